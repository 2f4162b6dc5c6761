"""What each method promises under any buckets and settings of DDP; `test_communication_ddp.py` runs it."""

from __future__ import annotations

import io

import pytest
import torch
import torch.distributed as dist
from torch import nn

from gradwire.documents.recipe_schema import Communication, Overlap, Recipe
from gradwire.errors import UsageError
from gradwire.train.buckets import settle_buckets
from gradwire.train.ddp import ddp_options
from tests.communication.models import (
    AVERAGING_METHODS,
    OWN_METHODS,
    SEVEN_BUCKETS_MB,
    WIDTH,
    Layers,
    Run,
    assert_ranks_identical,
    everyone,
    for_each_method,
    hooked,
    settings,
)


def check_ranks_are_identical_with_seven_buckets() -> None:
    def check(method: str) -> None:
        run = Run(settings(method))
        run.train(0, 10)
        assert len(hooked(run).state_dict()["buckets"]) == 7
        assert_ranks_identical(run)
        run.communication.close()

    for_each_method(check)


def check_ddp_options_and_dtypes() -> None:
    def check(method: str) -> None:
        for ddp in (
            {"gradient_as_bucket_view": True},
            {"static_graph": True},
            {"gradient_as_bucket_view": True, "static_graph": True, "dtype": torch.bfloat16},
            {"dtype": torch.bfloat16, "bucket_cap_mb": None},
        ):
            run = Run(settings(method), **ddp)
            run.train(0, 6)
            assert_ranks_identical(run)
            run.communication.close()

    for_each_method(check)


def check_unused_parameters() -> None:
    def skip(step: int) -> frozenset[int]:
        everywhere = {step % 7}
        here = {3} if dist.get_rank() == 0 and step % 2 else set()
        return frozenset(everywhere | here)

    def check(method: str) -> None:
        for view in (False, True):
            run = Run(settings(method), find_unused_parameters=True, gradient_as_bucket_view=view)
            run.train(0, 12, skip=skip)
            assert_ranks_identical(run)
            run.communication.close()

    for_each_method(check)


def check_ranks_with_fewer_batches_join_the_others() -> None:
    def check(method: str) -> None:
        run = Run(settings(method))
        with run.model.join():
            run.train(0, 5 + 2 * dist.get_rank())
        assert hooked(run).step == 5 + 2 * (dist.get_world_size() - 1)
        assert_ranks_identical(run)
        run.communication.close()

    for_each_method(check, AVERAGING_METHODS)
    for method, options, reason in (
        ("local-sgd", {}, "the others would wait for it"),
        ("bf16", {"divide_by_initial_world_size": False}, "which only plain DDP takes"),
    ):
        run = Run(settings(method))
        with run.model.join(**options), pytest.raises(UsageError, match=reason):
            run.train(0, 1)
        run.communication.close()


def check_groups_of_ranks_train_side_by_side() -> None:
    ranks, rank = dist.get_world_size(), dist.get_rank()
    even, odd = dist.new_group(list(range(0, ranks, 2))), dist.new_group(list(range(1, ranks, 2)))
    group = odd if rank % 2 else even

    def check(method: str) -> None:
        run = Run(settings(method), process_group=group)
        run.train(0, 4 + rank % 2)
        run.communication.synchronise()
        own = run.parameters()
        others = everyone(own)
        assert all(torch.equal(others[other], own) == (other % 2 == rank % 2) for other in range(ranks))
        run.communication.close()

    for_each_method(check)


def check_complex_parameters_are_refused() -> None:
    class Phases(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.phases = nn.Parameter(torch.zeros(4, dtype=torch.complex64))

    for method in (*OWN_METHODS, "fp16-torch"):
        with pytest.raises(UsageError, match="phases is a complex parameter"):
            Run(settings(method), model=Phases, dtype=None)


def check_static_graph_with_an_unused_layer() -> None:
    def check(method: str) -> None:
        run = Run(settings(method), static_graph=True)
        run.train(0, 6, skip=lambda step: frozenset({2}))
        assert_ranks_identical(run)
        run.communication.close()

    for_each_method(check)


def check_uncompressed_steps_equal_plain_ddp() -> None:
    plain = Run(settings("none"))
    plain.train(0, 6)
    for method in ("powersgd", "powersgd-alternating", "local-sgd"):
        run = Run(settings(method, start_step=6))
        run.train(0, 6)
        assert torch.equal(run.parameters(), plain.parameters()), method
        run.train(6, 7)
        run.communication.close()


def check_every_method_learns_like_plain_ddp() -> None:
    plain = Run(settings("none"))
    plain.train(0, 30)
    start = Run(settings("none")).parameters()

    def check(method: str) -> None:
        run = Run(settings(method))
        run.train(0, 30)
        moved = (run.parameters() - start).norm()
        apart = (run.parameters() - plain.parameters()).norm()
        assert apart < 0.5 * moved, f"{apart} of {moved}"
        run.communication.close()

    for_each_method(check)


def check_accumulation_counts_one_step_per_optimizer_step() -> None:
    def check(method: str) -> None:
        run = Run(settings(method))
        run.train(0, 4, micro_steps=3)
        assert hooked(run).step == 4
        assert_ranks_identical(run)
        run.communication.close()

    for_each_method(check)


def check_static_graph_with_accumulation_synchronises_once_more() -> None:
    def check(method: str) -> None:
        run = Run(settings(method), static_graph=True, extra_synchronisations=1)
        run.train(0, 4, micro_steps=2, synchronise_first=True)
        assert hooked(run).step == 4
        assert_ranks_identical(run)
        run.communication.close()

    for_each_method(check)


def check_bytes_are_counted() -> None:
    ranks = dist.get_world_size()
    gradient_bytes = sum(p.numel() for p in Layers().parameters()) * 4

    def traffic(method: str, **options: object) -> tuple[float, float]:
        run = Run(settings(method, **options))
        run.train(0, 4)
        step = run.communication.last_step
        assert step is not None and step.gradient_bytes == gradient_bytes
        run.communication.close()
        return step.payload_bytes, step.wire_bytes

    assert traffic("none") == (gradient_bytes, gradient_bytes * 2 * (ranks - 1) // ranks)
    payload, wire = traffic("bf16")
    assert payload == pytest.approx(gradient_bytes / 2, rel=0.01)
    assert wire == pytest.approx(gradient_bytes * (ranks - 1) / ranks, rel=0.01)
    payload, _ = traffic("powersgd")
    assert payload == 7 * (2 * 24 * 2 + 24) * 4
    payload, _ = traffic("powersgd", wire_dtype="bf16")
    assert payload == 7 * (2 * 24 * 2 + 24) * 2
    payload, _ = traffic("powersgd-alternating")
    assert payload == 7 * (24 * 2 + 24) * 4
    payload, _ = traffic("int8")
    assert payload == pytest.approx(gradient_bytes / 4 * (1 + 4 / 32), rel=0.25)


def check_auto_buckets_are_the_same_on_every_rank_and_leave_no_trace() -> None:
    for method in ("none", *AVERAGING_METHODS):
        model = Layers()
        x, state = torch.randn(8, WIDTH), torch.get_rng_state()
        communication = Communication(compression=settings(method), overlap=Overlap(bucket_cap_mb="auto"))
        buckets = settle_buckets(
            model,
            Recipe(communication=communication),
            process_group=dist.group.WORLD,
            device=torch.get_default_device(),
            passes=(lambda model=model, x=x: model(x).square().mean()) if method != "int8" else None,
        )
        assert torch.equal(state, torch.get_rng_state())
        assert all(parameter.grad is None for parameter in model.parameters())
        gradient_mb = sum(parameter.numel() for parameter in model.parameters()) * 4 / 2**20
        assert buckets.source == "auto" and 0 < buckets.bucket_cap_mb <= gradient_mb
        assert buckets.latency_seconds and buckets.bytes_per_second
        sizes = torch.tensor([buckets.bucket_cap_mb, buckets.latency_seconds], dtype=torch.float64)
        assert all(torch.equal(sizes, other) for other in everyone(sizes)), method
        options = ddp_options(communication.overlap, buckets)
        assert options["bucket_cap_mb"] == buckets.bucket_cap_mb and "bucket_cap_mb_list" not in options


def check_the_first_bucket_has_a_size_of_its_own() -> None:
    overlap = Overlap(bucket_cap_mb=3 * SEVEN_BUCKETS_MB, first_bucket_mb=SEVEN_BUCKETS_MB)
    run = Run(settings("powersgd"), **ddp_options(overlap))
    run.train(0, 4)
    # A layer is weight and bias; backward comes to the last layer first.
    sizes = [len(names) for names in hooked(run).state_dict()["buckets"]]
    assert sizes == [2, 6, 6], sizes
    assert_ranks_identical(run)
    run.communication.close()


def check_torch_hooks_run_where_they_are_safe() -> None:
    for method in ("powersgd-torch", "fp16-torch"):
        run = Run(settings(method), bucket_cap_mb=25)
        run.train(0, 6)
        assert_ranks_identical(run)
        step = run.communication.last_step
        assert step is not None and step.payload_bytes < step.gradient_bytes
        again = Run(settings(method), bucket_cap_mb=25)
        buffer = io.BytesIO()
        torch.save(run.communication.state_dict(), buffer)
        buffer.seek(0)
        again.communication.load_state_dict(torch.load(buffer, weights_only=True))
        again.train(6, 9)
        assert_ranks_identical(again)


def check_torch_powersgd_is_refused_where_it_hangs() -> None:
    with pytest.raises(UsageError, match="7 buckets on gloo"):
        Run(settings("powersgd-torch"))
    with pytest.raises(UsageError, match="find_unused_parameters"):
        Run(settings("powersgd-torch"), bucket_cap_mb=25, find_unused_parameters=True)
    with pytest.raises(UsageError, match="start_step 1"):
        Run(settings("powersgd-torch", start_step=1), bucket_cap_mb=25)


def check_alternating_without_warm_start_is_refused() -> None:
    with pytest.raises(UsageError, match="warm_start"):
        Run(settings("powersgd-alternating", warm_start=False))
