"""Each compression method trains through `gradwire.train`, native and under Accelerate, and says what it sent."""

from __future__ import annotations

import pytest

from gradwire.documents.measurement_schema import Measurement
from gradwire.plan import Backend
from tests.distributed.real_runs import lowered, train_in_one_group

pytestmark = pytest.mark.distributed

# A dozen buckets of 0.02 MiB, and full gradients in the first three steps.
SEVERAL_BUCKETS = ("communication.overlap.bucket_cap_mb=0.02",)
OPTIONS = "start_step: 3, matrix_approximation_rank: 2"
STATIC = "communication.overlap.static_graph=true"


def compression(method: str, more: str = OPTIONS) -> str:
    return f"communication.compression={{method: {method}, {more}}}"


RUNS: dict[str, tuple[str, ...]] = {
    "none": (),
    "auto": ("communication.overlap.bucket_cap_mb=auto",),
    "powersgd": (compression("powersgd"), *SEVERAL_BUCKETS, "communication.overlap.first_bucket_mb=0.01"),
    "powersgd-static": (compression("powersgd"), *SEVERAL_BUCKETS, STATIC),
    "powersgd-torch": (compression("powersgd-torch"), "communication.overlap.bucket_cap_mb=25"),
    "bf16": (compression("bf16"), *SEVERAL_BUCKETS),
    "local-sgd": (compression("local-sgd", "start_step: 3, local_steps: 3, outer_momentum: 0.2"),),
}
NATIVE_ONLY: dict[str, tuple[str, ...]] = {
    "powersgd-torch-static": (*RUNS["powersgd-torch"], STATIC),
    "powersgd-alternating": (compression("powersgd-alternating", f"{OPTIONS}, wire_dtype: bf16"), *SEVERAL_BUCKETS),
    "int8": (compression("int8", "int8_block_size: 128"), *SEVERAL_BUCKETS),
    "topk": (compression("topk", "topk_fraction: 0.05"), *SEVERAL_BUCKETS),
    "fp16": (compression("fp16"), *SEVERAL_BUCKETS),
    "fp16-torch": (compression("fp16-torch"), *SEVERAL_BUCKETS),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[Backend, dict[str, Measurement]]:
    """What each method trains and sends on two processes, by backend and name."""
    parent = tmp_path_factory.mktemp("compression")
    chosen: tuple[tuple[Backend, dict[str, tuple[str, ...]]], ...] = (
        ("native", {**RUNS, **NATIVE_ONLY}),
        ("accelerate", RUNS),
    )
    keys = [(backend, name, sets) for backend, runs in chosen for name, sets in runs.items()]
    measured = train_in_one_group(
        [
            lowered(parent / f"{backend}-{name}", backend, "training.max_steps=12", "measurement.warmup_steps=4", *sets)
            for backend, name, sets in keys
        ],
        2,
    )
    found: dict[Backend, dict[str, Measurement]] = {"native": {}, "accelerate": {}}
    for (backend, name, _), measurement in zip(keys, measured, strict=True):
        found[backend][name] = measurement
    return found


@pytest.fixture(scope="module")
def native(trained: dict[Backend, dict[str, Measurement]]) -> dict[str, Measurement]:
    return trained["native"]


@pytest.fixture(scope="module")
def accelerate(trained: dict[Backend, dict[str, Measurement]]) -> dict[str, Measurement]:
    return trained["accelerate"]


@pytest.mark.parametrize("name", [*RUNS, *NATIVE_ONLY])
def test_every_method_learns(native: dict[str, Measurement], name: str) -> None:
    losses = native[name].losses
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("name", [name for name in (*RUNS, *NATIVE_ONLY) if name.startswith("powersgd")])
def test_low_rank_equals_plain_ddp_until_its_start_step(native: dict[str, Measurement], name: str) -> None:
    losses, plain = native[name].losses, native["none"].losses
    # Step 3 is the first whose gradient is compressed; its loss came from the weights before it.
    assert losses[:4] == pytest.approx(plain[:4], rel=1e-4)
    assert losses[4] != pytest.approx(plain[4], rel=1e-6)


@pytest.mark.parametrize("name", ["auto", "bf16", "fp16", "fp16-torch", "int8"])
def test_rounded_gradients_train_as_full_ones_do(native: dict[str, Measurement], name: str) -> None:
    assert native[name].losses == pytest.approx(native["none"].losses, rel=2e-3)


@pytest.mark.parametrize("name", RUNS)
def test_accelerate_trains_what_native_trains(
    native: dict[str, Measurement], accelerate: dict[str, Measurement], name: str
) -> None:
    assert accelerate[name].losses == pytest.approx(native[name].losses, rel=1e-4)
    ours, theirs = accelerate[name].communication, native[name].communication
    assert ours is not None
    assert theirs is not None
    assert (ours.gradient_bytes, ours.payload_bytes) == (theirs.gradient_bytes, theirs.payload_bytes)


@pytest.mark.parametrize(
    ("name", "times_smaller"),
    [
        *(("none", 1), ("bf16", 2), ("fp16", 2), ("fp16-torch", 2)),
        # 132 bytes for 128 elements, and some padding.
        ("int8", 3.75),
        # Three synchronisations in the 8 timed steps, of which all are local.
        ("local-sgd", 8 / 3),
        # 8 bytes for every twentieth element.
        ("topk", 10),
        # 2 x (rows + columns) elements of each matrix, and the vectors whole: by hand for this model.
        ("powersgd", 68800 / 7136),
    ],
)
def test_the_measurement_says_what_was_sent(native: dict[str, Measurement], name: str, times_smaller: float) -> None:
    sent, plain = native[name].communication, native["none"].communication
    assert sent is not None
    assert plain is not None
    assert sent.gradient_bytes == plain.gradient_bytes == plain.payload_bytes
    assert sent.gradient_bytes / sent.payload_bytes == pytest.approx(times_smaller, rel=0.05)
    assert sent.wire_bytes == pytest.approx(sent.payload_bytes, rel=1e-3)


def test_the_measurement_has_the_buckets_and_who_chose_them(
    native: dict[str, Measurement], accelerate: dict[str, Measurement]
) -> None:
    for runs in (native, accelerate):
        found = {name: runs[name].buckets for name in ("none", "auto", "powersgd")}
        torchs, auto, given = found["none"], found["auto"], found["powersgd"]
        assert torchs is not None
        assert (torchs.bucket_cap_mb, torchs.first_bucket_mb, torchs.source) == (25, 1, "torch")
        assert given is not None
        assert (given.bucket_cap_mb, given.first_bucket_mb, given.source) == (0.02, 0.01, "recipe")
        assert auto is not None
        assert auto.source == "auto"
        assert 0 < auto.bucket_cap_mb < 1
        assert auto.latency_seconds is not None
        assert auto.bytes_per_second is not None
        assert "compute measured as" in auto.reason


def test_communication_and_its_exposed_part_are_timed(
    native: dict[str, Measurement], accelerate: dict[str, Measurement]
) -> None:
    for run in (*native.values(), *accelerate.values()):
        timed = run.communication
        assert timed is not None
        assert timed.communication_seconds is not None
        assert timed.exposed_seconds is not None
        assert timed.overlap_fraction is not None
        assert 0 < timed.communication_seconds < 60
        assert 0 < timed.exposed_seconds < 60
        assert 0 <= timed.overlap_fraction < 1
