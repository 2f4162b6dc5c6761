"""Explains each kind of lost time in words, with what to try in order and what it can bring at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gradwire.compare.compression_gain import gains_of
from gradwire.compare.format import percent, processes, three_digits
from gradwire.compare.situation import Situation
from gradwire.documents.comparison_schema import Remedy
from gradwire.documents.measurement_schema import TimeSplit
from gradwire.measure.time_split import step_of
from gradwire.plan import bubble_fraction

Kind = Literal[
    "input-bound",
    "communication-bound",
    "pipeline-bubble",
    "straggler",
    "batch-too-small",
    "slow-compute",
    "slow-optimizer",
    "crowded-machine",
    "unaccounted",
    "not-recorded",
]

# So few sequences per pass leave a device idle between kernels, and nothing to hide the reduction behind.
_FEW_SEQUENCES = 2
# A link below this, in bytes per second, is slow whatever the batch: 1 Gbit/s between CPUs, 16 Gbit/s between GPUs.
_SLOW_LINK = {"cpu": 0.125e9, "cuda": 2e9}
# A speed-up below this is within what the cost model is off.
_WORTH_TRYING = 1.02
# Fewer gradient bytes than this measure the link's latency, not its bandwidth.
_ENOUGH_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A kind of lost time; `is_root` puts it before larger parts, which it explains."""

    kind: Kind
    evidence: str
    remedies: tuple[Remedy, ...]
    is_root: bool = False


def input_wait(lost: float, _share: float, split: TimeSplit, _situation: Situation) -> Finding:
    """The next batch was not ready."""
    return Finding(
        kind="input-bound",
        evidence="the ranks wait for their next batch; the network has no part in it",
        remedies=(
            _try("more loader workers, and a larger prefetch", without(split, lost)),
            _try("decode or tokenize the data once, before training", without(split, lost)),
            _try("faster storage, or a copy of the data on each machine", without(split, lost)),
        ),
    )


def communication(lost: float, _share: float, split: TimeSplit, situation: Situation) -> Finding:
    """Gradients were on the way while nothing was computed; a batch too small to hide that is the root of it."""
    rate = _link_rate(split, situation)
    is_slow = rate is not None and rate < _SLOW_LINK[situation.device]
    small = None if is_slow else batch(situation)
    if small is not None and split.exposed_communication is not None and split.exposed_communication > split.compute:
        return Finding(
            kind="batch-too-small",
            evidence=f"a step moves the gradients for longer than it computes; {small.evidence}",
            remedies=small.remedies,
            is_root=True,
        )
    moved = "" if rate is None else f"; gradients move at {three_digits(rate / 1e6)} MB/s at most"
    slow = ", which is a slow link" if is_slow else ""
    return Finding(
        kind="communication-bound",
        evidence=f"collectives that no compute hides{moved}{slow}",
        remedies=_communication_remedies(lost, split, situation),
    )


def bubble(lost: float, _share: float, split: TimeSplit, situation: Situation) -> Finding:
    """Stages waited for each other."""
    known = bubble_by_formula(situation, lost=lost, split=split)
    if known is not None:
        return known
    return Finding(
        kind="pipeline-bubble",
        evidence="stages wait for each other",
        remedies=(_try("more chunks", without(split, lost)), _try("stages of equal work", None)),
    )


def bubble_by_formula(
    situation: Situation, *, lost: float | None = None, split: TimeSplit | None = None
) -> Finding | None:
    """What the formula says of a pipeline's idle share, now and with more chunks; None without a pipeline."""
    stages, chunks = situation.stages, situation.chunks
    if stages is None or chunks is None:
        return None
    idle = [f"{count} chunks {percent(bubble_fraction(stages, count))}" for count in (chunks, 2 * chunks, 4 * chunks)]
    more = [
        _try(_more_chunks(factor * chunks, situation), _gain_of_chunks(factor, stages, chunks, lost, split))
        for factor in (2, 4)
    ]
    return Finding(
        kind="pipeline-bubble",
        evidence=f"(p-1)/(m+p-1) of the step is idle: with {stages} stages, {', '.join(idle)}",
        remedies=(
            *more,
            _try("fewer stages, and the ranks that frees for data parallelism", None),
            _try("stages of equal work: the slowest one sets the pace", None),
        ),
    )


def straggler(lost: float, _share: float, split: TimeSplit, situation: Situation) -> Finding:
    """One rank is slower than the others."""
    who = "one rank" if split.slowest_rank is None else f"rank {split.slowest_rank}"
    node = ""
    if split.slowest_rank is not None and situation.num_gpus > situation.processes_per_node:
        node = f" (node {split.slowest_rank // situation.processes_per_node})"
    return Finding(
        kind="straggler",
        evidence=f"the others wait for {who}{node}, which is slower than the median rank",
        remedies=(
            _try(f"look at {who}{node}: another job on its machine, a hot or slowed-down device", without(split, lost)),
            _try("give every rank batches of equal length", None),
            _try("leave that machine out", without(split, lost)),
        ),
    )


def compute(lost: float, _share: float, split: TimeSplit, situation: Situation) -> Finding:
    """The same passes take longer than at the baseline's size."""
    if split.exposed_communication is None and situation.num_gpus > 1:
        return Finding(
            kind="slow-compute",
            evidence="forward, backward and the collectives in them, which could not be told apart: communication, a "
            "straggler, or something that the ranks share",
            remedies=(
                *_communication_remedies(lost, split, situation),
                _try("measure native ddp at this size: its split tells communication from compute", None),
            ),
        )
    if situation.scaling == "strong":
        smaller = batch(situation)
        remedies = _batch_remedies(situation) if smaller is None else smaller.remedies
        return Finding(
            kind="batch-too-small",
            evidence="compute did not shrink with each rank's share of the batch, now "
            f"{three_digits(situation.sequences_per_rank)} sequences per step",
            remedies=remedies,
        )
    return Finding(
        kind="slow-compute",
        evidence="each rank does the work that the baseline's did, and takes longer",
        remedies=(
            _try("look for what the ranks share: cores, memory bandwidth, power, a PCIe switch", None),
            _try("OMP_NUM_THREADS of cores / processes; pin each process to its cores", None),
            _try("measure the baseline again: it may have had a faster clock, alone on the machine", None),
        ),
    )


def optimizer(lost: float, _share: float, split: TimeSplit, situation: Situation) -> Finding:
    """Updating the weights takes a share worth naming; every replica updates all of them."""
    shards = situation.workload.strategy == "ddp" and situation.num_gpus > 1
    sharding = without(split, lost * (1 - 1 / situation.num_gpus)) if shards else None
    return Finding(
        kind="slow-optimizer",
        evidence="clipping and the update, which each step pays once whatever its batch",
        remedies=(
            _try(
                "twice the gradient_accumulation: half as many updates for the same tokens", _half_as_often(split, lost)
            ),
            *((_try("parallelism.data.strategy: zero1, each rank updates its shard", sharding),) if shards else ()),
            _try("a fused optimizer", None),
        ),
    )


def unaccounted(_lost: float, _share: float, _split: TimeSplit, _situation: Situation) -> Finding:
    """Time that no other part claims."""
    return Finding(
        kind="unaccounted",
        evidence="none of the other parts: logging, checkpoints, evaluation, garbage collection, Python",
        remedies=(_try("profile one step, and look at what runs between the optimizer and the next batch", None),),
    )


def batch(situation: Situation) -> Finding | None:
    """The rank's share of the batch is too small to keep it busy; None where it is not."""
    size = situation.workload.batch_size_per_gpu
    baseline = situation.baseline_num_gpus
    # In a pipeline the batch is cut into chunks on purpose.
    if size > _FEW_SEQUENCES or situation.chunks is not None:
        return None
    evidence = f"{size} {'sequence' if size == 1 else 'sequences'} per rank and pass"
    if situation.scaling == "strong" and baseline is not None and baseline < situation.num_gpus:
        evidence += f", since the global batch is fixed and spread over {processes(situation.num_gpus)}"
    return Finding(kind="batch-too-small", evidence=evidence, remedies=_batch_remedies(situation))


def crowded(situation: Situation) -> Finding | None:
    """More processes than cores on one machine; None where each has its own, or has a GPU."""
    if situation.device != "cpu" or situation.processes_per_node <= situation.cpu_count:
        return None
    return Finding(
        kind="crowded-machine",
        evidence=f"{processes(situation.processes_per_node)} share {situation.cpu_count} "
        f"{'core' if situation.cpu_count == 1 else 'cores'}: they slow each other, whatever the backend does",
        remedies=(_try(f"measure with at most {processes(situation.cpu_count)} here, or on a larger machine", None),),
    )


def not_recorded() -> Finding:
    """No time split was recorded."""
    return Finding(
        kind="not-recorded",
        evidence="no time split was recorded, so where the time went is not known",
        remedies=(_try("measure again with a version of Gradwire and a backend that record one", None),),
    )


def without(split: TimeSplit, lost: float) -> float | None:
    """Return the speed-up of a step that loses `lost` seconds no more; None where nothing would be left."""
    step = step_of(split)
    return step / (step - lost) if lost < step else None


def _half_as_often(split: TimeSplit, lost: float) -> float | None:
    return without(split, lost / 2)


def _communication_remedies(lost: float, split: TimeSplit, situation: Situation) -> tuple[Remedy, ...]:
    workload = situation.workload
    is_ddp = workload.strategy == "ddp"
    remedies = [
        _try(
            "twice the gradient_accumulation: gradients travel half as often (and the global batch doubles)",
            _half_as_often(split, lost),
        )
    ]
    if is_ddp:
        remedies.insert(0, _try("communication.overlap.bucket_cap_mb: 10 and 50, beside torch's 25", None))
    if is_ddp and workload.compression == "none":
        remedies += _compression_remedies(lost, split, situation)
    if workload.compression.startswith("powersgd"):
        remedies.append(_try("a smaller matrix_approximation_rank", None))
    if workload.strategy in ("zero3", "fsdp"):
        remedies.append(_try("zero1 or zero2: weights are not gathered in every pass", None))
    return (*remedies, _try("look at the link itself: which interface is used, and its speed", None))


def _compression_remedies(lost: float, split: TimeSplit, situation: Situation) -> list[Remedy]:
    """With what the cost model predicts for the measured link; with the bytes alone where that is not known."""
    gains = gains_of(split, situation, ("bf16", "powersgd"))
    if gains is None:
        return [
            _try("communication.compression.method: bf16, half the bytes", without(split, lost / 2)),
            _try("communication.compression.method: powersgd, few bytes", without(split, lost)),
        ]
    speed = f"{three_digits((situation.link_bytes_per_second or 0.0) / 1e6)} MB/s"
    return [
        _try(f"communication.compression.method: {gain.method}, by the cost model at {speed}", gain.speedup)
        for gain in gains
        if gain.speedup > _WORTH_TRYING
    ]


def _batch_remedies(situation: Situation) -> tuple[Remedy, ...]:
    if situation.scaling == "strong":
        fewer = max(situation.baseline_num_gpus or 1, situation.num_gpus // 2)
        return (
            _try("a larger global batch, if the training bears it", None),
            _try(f"fewer ranks: {processes(fewer)} for this batch", None),
            _try("less gradient_accumulation with a larger batch_size_per_gpu, where memory allows", None),
        )
    return (
        _try("a larger batch_size_per_gpu, where memory allows (gradient_checkpointing makes room)", None),
        _try("more gradient_accumulation: the gradients travel once for more sequences", None),
    )


def _more_chunks(chunks: int, situation: Situation) -> str:
    size = situation.workload.batch_size_per_gpu
    fits = "" if size % chunks == 0 else f", with a batch_size_per_gpu that {chunks} divides (now {size})"
    return f"parallelism.pipeline.chunks: {chunks}{fits}"


def _gain_of_chunks(factor: int, stages: int, chunks: int, lost: float | None, split: TimeSplit | None) -> float | None:
    """Idle time is (p-1)/m of the busy time; with `factor` times as many chunks it falls to that part of it."""
    if split is None or lost is None:
        return (1 - bubble_fraction(stages, factor * chunks)) / (1 - bubble_fraction(stages, chunks))
    return without(split, lost * (1 - 1 / factor))


def _link_rate(split: TimeSplit, situation: Situation) -> float | None:
    """Bytes per second at most that each rank sends in a ring all-reduce; None where that is not known.

    Bytes over the exposed seconds: what was hidden behind compute makes the link slower than that, never faster.
    """
    bytes_each, size, workload = situation.gradient_bytes, situation.num_gpus, situation.workload
    if bytes_each is None or bytes_each < _ENOUGH_BYTES or not split.exposed_communication:
        return None
    if situation.chunks is not None or size < 2 or (workload.strategy, workload.compression) != ("ddp", "none"):
        return None
    return 2 * (size - 1) / size * bytes_each / split.exposed_communication


def _try(action: str, predicted_speedup: float | None) -> Remedy:
    return Remedy(action=action, predicted_speedup=predicted_speedup)
