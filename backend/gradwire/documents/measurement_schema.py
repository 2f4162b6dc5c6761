# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from msgspec import Struct, field
from typing import Literal
from . import plan_schema


class Workload(Struct, frozen=True, kw_only=True):
    """What must be equal between two runs before an efficiency may be computed from them."""

    model: str
    """Family and sizes of the model, in words; equal for equal models."""
    sequence_length: int | None
    """Tokens per sequence; null where the user's own script brings the model."""
    precision: str
    """The recipe's training.precision."""
    optimizer: str
    """The recipe's training.optimizer."""
    batch_size_per_gpu: int
    """Sequences per rank in one forward pass."""
    gradient_accumulation: int
    """Micro-batches per optimizer step and data-parallel rank."""
    strategy: str
    """The recipe's parallelism.data.strategy."""
    pipeline: str | None
    """Schedule and chunks of the pipeline, in words; null: none."""
    compression: str
    """Method and options of the gradient compression, in words."""
    gradient_checkpointing: bool
    """Whether activations are recomputed."""
    compile: bool
    """Whether the model is compiled."""
    device: str
    """Kind and name of the device."""


class Device(Struct, frozen=True, kw_only=True):
    """What the accelerator of rank 0 says of itself."""

    memory_bytes: int | None
    """Memory of the device, in bytes."""
    driver: str | None
    """Version of the driver."""
    power_limit_watts: float | None
    """Power that the device keeps to."""
    max_clock_mhz: int | None
    """Highest clock of the multiprocessors."""


class Steps(Struct, frozen=True, kw_only=True):
    """How many optimizer steps were trained and timed."""

    trained: int
    """Optimizer steps trained."""
    warmup: int
    """First steps left out of every timing."""
    timed: int
    """Steps that the timings rest on."""
    excluded_seconds: float | None = None
    """Seconds between the first step and the last that are in no step: evaluation, checkpoints, logging; null where nobody measured them."""


class Throughput(Struct, frozen=True, kw_only=True):
    """Work per second over the timed steps; null where no step was timed. Each data-parallel rank's tokens count once, over all its micro-steps."""

    samples_per_second: float | None
    """Sequences per second over all ranks."""
    tokens_per_second: float | None
    """Tokens per second over all ranks."""
    samples_per_second_per_rank: float | None
    """samples_per_second / world_size."""
    tokens_per_second_per_rank: float | None
    """tokens_per_second / world_size."""
    timed_seconds: float
    """Sum of the timed steps' seconds."""
    timed_samples: int
    """Sequences in the timed steps, over all ranks."""
    timed_tokens: int
    """Tokens in the timed steps, over all ranks; padding is not counted where it is known."""
    slots_per_second: float | None = None
    """As tokens_per_second, with padding counted."""
    timed_slots: int | None = None
    """As timed_tokens, with padding counted; null where nobody counted it."""


class StepSeconds(Struct, frozen=True, kw_only=True):
    """Seconds per timed optimizer step; null where no step was timed."""

    median: float | None
    """Half of the timed steps were faster."""
    p95: float | None
    """95 % of the timed steps were faster (linear interpolation)."""
    mean: float | None
    """Arithmetic mean."""
    minimum: float | None
    """Fastest timed step."""
    maximum: float | None
    """Slowest timed step."""
    each: list[float]
    """Every trained step in order, warm-up steps included."""
    rank_spread: float | None = None
    """The slowest rank's median step less the fastest rank's; small where collectives hold the ranks together."""


class MicroStepSeconds(Struct, frozen=True, kw_only=True):
    """Seconds per micro-step, one forward and backward pass, over all ranks and timed steps; the last one of a step contains its collectives."""

    median: float
    """Half of the micro-steps were faster."""
    p95: float
    """95 % of the micro-steps were faster (linear interpolation)."""
    maximum: float
    """Slowest micro-step."""
    rank_spread: float
    """The slowest rank's median micro-step less the fastest rank's."""
    count: int
    """Micro-steps in the figures above, over all ranks."""


class Traffic(Struct, frozen=True, kw_only=True):
    """Means over the timed optimizer steps of one rank."""

    gradient_bytes: float
    """Size of the gradients, in bytes."""
    payload_bytes: float
    """Size they were compressed to, in bytes: that of the plain all-reduce that would send as much."""
    wire_bytes: float
    """Bytes that the rank sends, by each collective's bandwidth-optimal algorithm; protocol headers not counted."""
    communication_seconds: float | None
    """Seconds during which at least one collective was under way, hidden behind compute or not; where torch's own code runs them, from the first one's start to the last one's end; null where that is not known."""
    exposed_seconds: float | None = None
    """Seconds from the last gradient's being ready to the end of the backward pass, which waits for all reduction: communication that no compute hides, by timing. time_split.exposed_communication is the same by doing without. Null where nobody timed it."""
    overlap_fraction: float | None = None
    """1 - exposed_seconds / communication_seconds: the share of communication hidden behind the backward pass; null where one of them is not known."""


class Bubble(Struct, frozen=True, kw_only=True):
    """Idle share of a pipeline's steps, as measured and by the schedule's formula."""

    measured: float | None
    """time_split.pipeline_bubble over the mean step, a fraction; transfers that nothing hides are in it. Null where the split was not recorded."""
    by_formula: float
    """Idle share for equal stages and transfers that take no time, a fraction: bubble_fraction of the plan."""


class Buckets(Struct, frozen=True, kw_only=True):
    """Sizes of the buckets in which DDP reduced gradients, and where they come from."""

    bucket_cap_mb: float
    """Gradients reduced together, in MiB."""
    first_bucket_mb: float
    """Size of the first bucket, in MiB."""
    source: Literal["recipe", "torch", "auto"]
    """Who chose: the recipe, torch (its default), or auto (measured before training)."""
    reason: str
    """Why these sizes, in words."""
    latency_seconds: float | None = None
    """Seconds of an empty all-reduce, measured before training; null where the sizes were given."""
    bytes_per_second: float | None = None
    """Speed of a link in each direction in a large all-reduce, measured before training; null where the sizes were given."""


class TimeSplit(Struct, frozen=True, kw_only=True):
    """Mean seconds per timed optimizer step, by what the median rank spent them on; the parts sum to the mean step."""

    input_wait: float
    """Waiting for the next batch."""
    compute: float
    """Forward and backward passes."""
    exposed_communication: float | None
    """In collectives while no compute ran; null where that cannot be told from compute, which then contains it and the wait for a straggler."""
    pipeline_bubble: float
    """A stage waiting for another stage, and for activations on their way."""
    optimizer: float
    """Clipping the gradients and updating the weights."""
    straggler_wait: float
    """The median rank waiting for the slowest."""
    other: float
    """The rest of the step."""
    slowest_rank: int | None = None
    """Rank that the others waited for most; null where none stands out or that was not recorded."""


class Memory(Struct, frozen=True, kw_only=True):
    """Peak memory, the largest over all ranks."""

    peak_device_allocated_bytes: int | None
    """Most bytes that tensors held on the device; null on cpu."""
    peak_device_reserved_bytes: int | None
    """Most bytes that the allocator held on the device; null on cpu."""
    peak_process_bytes: int
    """Most bytes of main memory that the process held (resident set)."""


class Energy(Struct, frozen=True, kw_only=True):
    """What the devices took from the first timed step to the last, pauses in between included; the rest of the machine is not in it."""

    joules: float | None
    """Sum over all devices; null where a device does not report it."""
    joules_per_token: float | None
    """joules over the tokens of all steps after the warm-up; null without tokens."""
    mean_watts_per_device: float | None
    """joules per second and device."""
    reason: str | None
    """Why joules is null; null when it is not."""


class Batches(Struct, frozen=True, kw_only=True):
    """What each optimizer step was taken over, all ranks and micro-steps together; one entry per step."""

    sequences: list[int]
    """Sequences that the step's gradient is made of, as the backend counts them."""
    labels: list[int]
    """Labels that counted in the step's loss."""
    text_checksums: list[int]
    """Sum of the CRC-32s of the step's micro-batches: equal where two runs read the same text."""


class Utilization(Struct, frozen=True, kw_only=True):
    """Model FLOP/s against the device's peak."""

    model_flops_per_second_per_rank: float | None
    """flops_per_token x tokens_per_second_per_rank; null without a timed step."""
    peak_flops_per_second: float | None
    """Dense peak of one device at the run's matrix-product dtype; null where it is not known."""
    mfu: float | None
    """Model FLOP/s over the peak, a fraction; recomputation not counted."""
    hfu: float | None
    """As mfu, with the FLOPs of activation recomputation counted."""
    reason: str | None
    """Why mfu is null; null when it is not."""
    flops_per_token: float | None = None
    """Model FLOPs per token, forward and backward; null where the recipe has no model."""
    flops_formula: str | None = None
    """How flops_per_token was counted, with its numbers."""
    peak_kind: Literal["data-sheet", "measured", "given"] | None = None
    """Where peak_flops_per_second is from: the vendor, matrix products measured on such a device, or whoever gave it by hand; null without a peak."""
    peak_source: str | None = None
    """The vendor's document, or what was measured; null without a peak."""


class Hardware(Struct, frozen=True, kw_only=True):
    """The machine of rank 0; no host name, no address."""

    device_name: str
    """Name of the accelerator; the processor's where there is none."""
    cpu: str
    """Name of the processor."""
    cpu_count: int
    """Logical processors this process may use."""
    memory_bytes: int
    """Main memory in bytes."""
    platform: str
    """Operating system and architecture."""
    fingerprint: str
    """Short hash of the entries above: equal on equal machines."""
    device: Device | None = None
    """What the accelerator says of itself through NVML; null without one, or without pynvml."""


class Measurement(Struct, frozen=True, kw_only=True):
    """One training run, measured: seconds, bytes and tokens; shares are fractions 0..1."""

    format_version: Literal[1]
    """Version of this document's format."""
    backend: Literal["native", "accelerate", "deepspeed", "trainer"]
    """Backend that trained."""
    recipe_name: str
    """The plan's recipe_name."""
    recipe_sha256: str
    """The plan's recipe_sha256."""
    started_at: str
    """Start of the run, UTC, ISO 8601."""
    workload: Workload
    """What must be equal between two runs before an efficiency may be computed from them."""
    world: plan_schema.World
    """The processes that really ran."""
    versions: dict[str, str | None]
    """Package name to version; null where a package is not installed."""
    hardware: Hardware
    """The machine of rank 0."""
    steps: Steps
    """How many optimizer steps were trained and timed."""
    throughput: Throughput
    """Work per second over the timed steps."""
    step_seconds: StepSeconds
    """Seconds per optimizer step, of the slowest rank in each step."""
    communication: Traffic | None
    """What rank 0 communicated to average gradients, per timed step; null where no step was timed, or gradients are not averaged by DDP."""
    time_split: TimeSplit | None
    """Where the seconds of a timed step went; null where that was not recorded."""
    memory: Memory
    """Peak memory, the largest over all ranks."""
    utilization: Utilization
    """Model FLOP/s against the device's peak."""
    losses: list[float | None]
    """Mean training loss per optimizer step, in nats per token, averaged over all ranks and micro-steps."""
    gradient_norms: list[float | None]
    """Global 2-norm of the averaged gradient per step before clipping; null where the backend does not report it."""
    notes: list[str]
    """What a reader should know before quoting the numbers."""
    micro_step_seconds: MicroStepSeconds | None = None
    """Seconds per micro-step; null where they were not recorded, and in a pipeline, whose chunks interleave."""
    buckets: Buckets | None = None
    """The sizes in which DDP reduced gradients; null where DDP reduced none."""
    bubble: Bubble | None = None
    """Idle share of the steps of a pipeline; null without one."""
    energy: Energy | None = None
    """What the devices took, as they report it; null where nobody asked them."""
    batches: Batches | None = None
    """What each optimizer step was taken over; null where a run did not record it."""
    learning_rates: list[float] = field(default_factory=list)
    """Learning rate that each step was taken with, as the optimizer held it; empty where a run did not record it."""
