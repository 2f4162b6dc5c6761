# Generated from the JSON Schemas by `make documents`; never edited.

from __future__ import annotations

from typing import Any, Literal
from msgspec import Struct, field


class Model(Struct, frozen=True, kw_only=True):
    """A decoder-only language model built from its configuration with random weights."""

    family: Literal["gpt2", "llama"]
    """Architecture: gpt2 (learned positions, LayerNorm, GELU) or llama (rotary positions, RMSNorm, SwiGLU)."""
    hidden_size: int
    """Width of the residual stream."""
    layers: int
    """Number of transformer blocks."""
    attention_heads: int
    """Query heads per block; divides hidden_size."""
    sequence_length: int
    """Tokens per sequence."""
    vocab_size: int = 256
    """Number of token ids. The text is read as bytes, so at least 256."""
    key_value_heads: int | None = None
    """Key and value heads per block (llama only); divides attention_heads. Absent: as many as attention_heads."""
    intermediate_size: int | None = None
    """Width of the feed-forward layer. Absent: 4 x hidden_size."""
    tie_embeddings: bool = False
    """Whether the output projection shares the input embedding's weights."""


class Data(Struct, frozen=True, kw_only=True):
    """Text read as bytes, cut into sequences in an order fixed by the seed."""

    path: str | None = None
    """A text file, or a folder whose text files are read in name order. Absent: the source files of the Python standard library."""
    min_labels: int | None = None
    """Fewest labels that count in a sequence. Each sequence then has a number of them between this and model.sequence_length, drawn from the seed; the rest is left out of the loss, as prompts and padding are in fine-tuning. Absent: every token's label counts."""


class Scheduler(Struct, frozen=True, kw_only=True):
    """How the learning rate changes over the run. Step k, counted from 0, takes learning_rate x k / warmup_steps during the warm-up (so the first step takes 0, as in transformers), then follows `type`."""

    type: Literal["constant", "linear", "cosine"] = "constant"
    """After the warm-up: constant; linear: falls in a straight line to min_ratio at total_steps; cosine: falls along half a cosine to min_ratio at total_steps."""
    warmup_steps: int = 0
    """Optimizer steps in which the learning rate rises in a straight line from 0; neither micro-steps nor steps times processes."""
    total_steps: int | None = None
    """linear, cosine: optimizer steps, warm-up included, after which the fall ends. Absent: training.max_steps. Give it where a run is cut short and should still follow the whole run's learning rates."""
    min_ratio: float = 0.0
    """linear, cosine: what the learning rate falls to and then stays at, as a fraction of training.learning_rate."""


class Compression(Struct, frozen=True, kw_only=True):
    """Gradient compression under plain DDP."""

    method: Literal[
        "none",
        "fp16",
        "bf16",
        "powersgd",
        "powersgd-alternating",
        "int8",
        "topk",
        "local-sgd",
        "powersgd-torch",
        "fp16-torch",
    ] = "none"
    """none: full gradients; fp16, bf16: rounded to 16 bits for the wire, summed in fp32; powersgd: low-rank factors with error feedback (Vogels et al. 2019, arXiv:1905.13727); powersgd-alternating: one of the two factors per step, in turn (ACP-SGD, arXiv:2306.08881); int8: 8-bit integers with a scale per block, with error feedback; topk: the largest elements, with error feedback; local-sgd: no gradients, but every local_steps steps the difference of the parameters, with an outer Nesterov step (DiLoCo, arXiv:2311.08105); powersgd-torch, fp16-torch: torch's own hooks."""
    matrix_approximation_rank: int = 4
    """powersgd, powersgd-alternating, powersgd-torch: rank of the low-rank approximation of each gradient matrix."""
    warm_start: bool = True
    """powersgd, powersgd-alternating, powersgd-torch: whether each step starts from the last step's factor. powersgd-alternating needs it."""
    error_feedback: bool = True
    """powersgd, powersgd-alternating, powersgd-torch, int8, topk, local-sgd: whether what was not sent is added to the next gradient (local-sgd with an int8 difference: to the next difference)."""
    start_step: int = 10
    """powersgd, powersgd-alternating, powersgd-torch, local-sgd: first optimizer step that compresses, or is local, counted from 0; earlier steps send full gradients. powersgd-torch: at least 2 with warm_start or error_feedback."""
    min_compression_rate: float = 2.0
    """powersgd, powersgd-alternating, powersgd-torch: matrices whose elements do not shrink by more than this factor are sent whole."""
    wire_dtype: Literal["fp32", "bf16"] | None = None
    """powersgd, powersgd-alternating: number format in which factors and uncompressed gradients travel. Absent: the gradients' own."""
    int8_block_size: int = 512
    """int8, local-sgd: elements that share one scale of 4 bytes, a multiple of 4 (local-sgd: with an int8 difference)."""
    topk_fraction: float = 0.01
    """topk: share of each bucket's elements that a rank sends, as a fraction; each takes 8 bytes per other rank, so at 1 / topk_fraction ranks nothing is saved."""
    local_steps: int = 8
    """local-sgd: optimizer steps that each rank takes by itself between two synchronisations."""
    outer_learning_rate: float = 1.0
    """local-sgd: step size along the ranks' mean difference; 1 with outer_momentum 0 is their plain average, 0.7 with 0.9 is DiLoCo's, meant for 50 local_steps and more."""
    outer_momentum: float = 0.0
    """local-sgd: Nesterov momentum of that step."""
    difference_dtype: Literal["int8"] | None = None
    """local-sgd: number format in which the difference travels; int8: with a scale per int8_block_size elements. Absent: fp32."""


class Overlap(Struct, frozen=True, kw_only=True):
    """DDP's reduction settings."""

    bucket_cap_mb: float | Literal["auto"] | None = None
    """Gradients reduced together, in MiB. auto: chosen before training from the latency and bandwidth that the ranks measure between them, and from when each gradient is ready; the measurement says which and why. Absent: torch's own 25 MiB with a first bucket of 1 MiB."""
    first_bucket_mb: float | None = None
    """Size of the first bucket to be reduced, in MiB; a smaller one starts earlier. Absent: as bucket_cap_mb, or torch's own 1 MiB where that is absent too."""
    gradient_as_bucket_view: bool = False
    """Whether gradients are views into the buckets, which saves one copy of the gradients."""
    static_graph: bool = False
    """Whether the set of used parameters never changes, which lets DDP plan ahead."""
    find_unused_parameters: bool = False
    """Whether each step searches for parameters that took no part in it."""


class Offload(Struct, frozen=True, kw_only=True):
    """What waits in the machine's memory or on its disk while the device does not need it."""

    optimizer: Literal["none", "cpu", "nvme"] = "none"
    """Where the optimizer's state and its step go: none (the device), cpu, or nvme (zero3). fsdp: as parameters."""
    parameters: Literal["none", "cpu", "nvme"] = "none"
    """Where parameters wait (zero3, fsdp): none (the device), cpu, or nvme (zero3)."""
    nvme_path: str | None = None
    """nvme: folder on a local disk of every machine, as an absolute path."""
    pin_memory: bool | None = None
    """Whether the memory that offloading uses is page-locked, which copies faster and cannot be swapped out. Absent: on cuda yes, on cpu no."""


class ZeroPlusPlus(Struct, frozen=True, kw_only=True):
    """ZeRO++ (arXiv:2306.10209): less sent between machines under zero3."""

    secondary_partition_size: int | None = None
    """hpZ: ranks over which a second copy of the parameters is sharded, so that the backward pass gathers among these only; usually the GPUs of a machine. Divides the processes. Absent: no second copy."""
    quantized_weights: bool = False
    """qwZ: whether parameters are gathered as 8-bit integers with a scale per block."""
    quantized_gradients: bool = False
    """qgZ: whether gradients are averaged between machines as 4-bit integers; on a single machine there is nothing to quantize."""


class FullySharded(Struct, frozen=True, kw_only=True):
    """How torch's fully sharded data parallelism is set up."""

    version: Literal[1, 2] = 2
    """2: fully_shard, parameter by parameter; 1: the older FullyShardedDataParallel, which flattens the parameters of each unit."""
    reshard_after_forward: bool = True
    """Whether a unit's parameters are freed after its forward pass and gathered again for the backward pass; false keeps them, which sends less and holds more."""
    wrap: Literal["blocks", "size", "model"] = "blocks"
    """What is gathered as one unit: blocks (each transformer block), size (each module with more than wrap_min_parameters), model (everything at once)."""
    wrap_min_parameters: int | None = None
    """wrap size: parameters that make a module a unit."""
    block_classes: list[str] | None = None
    """wrap blocks, without a model in the recipe: class names of the script's transformer blocks. Absent: those that a transformers model names itself."""
    state_dict: Literal["sharded", "full"] = "sharded"
    """Checkpoints: sharded (each rank writes its own part) or full (rank 0 gathers and writes everything)."""
    cpu_ram_efficient_loading: bool = False
    """Whether rank 0 alone reads a pretrained checkpoint and sends each rank its part. For scripts that load one."""
    sync_module_states: bool = False
    """version 1: whether rank 0's weights are sent to every rank before training; cpu_ram_efficient_loading needs it there. version 2 does so by itself."""


class Pipeline(Struct, frozen=True, kw_only=True):
    """Layers split over stages, each batch cut into chunks that flow through them."""

    chunks: int
    """Micro-batches each batch_size_per_gpu is cut into; at least as many as stages, and divides batch_size_per_gpu."""
    stages: int | None = None
    """Pieces the layers are split into, by counted cost. Absent: as many as the processes hold (one each; two with the interleaved schedules and zbv)."""
    schedule: Literal["gpipe", "1f1b", "interleaved-1f1b", "interleaved-zero-bubble", "zbv"] = "1f1b"
    """Order of forward and backward passes. gpipe: all forward, then all backward. 1f1b: one of each in turn, which keeps fewer activations. interleaved-1f1b: several stages per rank, which idles less and sends more. interleaved-zero-bubble: the same, and weight gradients fill the idle time. zbv: two stages per rank, placed in a V, weight gradients fill the idle time."""
    stages_per_rank: int | None = None
    """Stages that each rank of a pipeline holds: 1 with gpipe and 1f1b, 2 with zbv, 2 or more with the interleaved schedules. Absent: 1 or 2, as the schedule asks."""


class MeasurementOptions(Struct, frozen=True, kw_only=True):
    """What the throughput meter leaves out, and who else gets its figures."""

    warmup_steps: int = 3
    """First optimizer steps that are trained but not timed."""
    trackers: list[Literal["tensorboard", "wandb", "mlflow", "trackio", "prometheus"]] = field(default_factory=list)
    """Trackers that get each step's figures (throughput/tokens_per_sec, ...), by name; what they keep on disk goes beside the measurement. Not part of recipe_sha256."""


class Backends(Struct, frozen=True, kw_only=True):
    """Keys in a backend's own spelling."""

    accelerate: dict[str, Any] = field(default_factory=dict)
    """Top-level keys of Accelerate's YAML config."""
    deepspeed: dict[str, Any] = field(default_factory=dict)
    """Top-level keys of DeepSpeed's JSON config."""


class Training(Struct, frozen=True, kw_only=True):
    """Optimizer, precision, batch and size of the job."""

    precision: Literal["fp32", "bf16-mixed", "bf16-true", "fp16-mixed"] = "fp32"
    """fp32; bf16-mixed and fp16-mixed: 16-bit compute with fp32 master weights; bf16-true: weights, gradients and optimizer state in bf16."""
    fp8: Literal["none", "transformer-engine", "torchao"] = "none"
    """With bf16-mixed: what runs the matrix products of linear layers in 8-bit floats, forward in e4m3 and backward in e5m2: none, transformer-engine, or torchao. Needs Accelerate and a GPU that has them (compute capability 8.9); mfu stays against the bf16 peak."""
    optimizer: Literal["Adam", "AdamW", "SGD"] = "AdamW"
    """Adam (weight decay coupled: added to the gradient), AdamW (decoupled) or SGD (coupled, with momentum)."""
    learning_rate: float = 0.0003
    """Step size; the largest one where `scheduler` changes it over the run."""
    scheduler: Scheduler = field(default_factory=lambda: Scheduler())
    """How the learning rate changes over the run."""
    weight_decay: float = 0.0
    """Weight decay; coupled or decoupled as the optimizer's name says. Applied to every parameter."""
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    """Decay rates of Adam's and AdamW's two moment estimates."""
    epsilon: float = 1e-08
    """Term added to Adam's and AdamW's denominator."""
    momentum: float = 0.0
    """SGD's momentum."""
    gradient_clip: float | None = None
    """Largest allowed global 2-norm of the averaged gradient; null: no clipping."""
    batch_size_per_gpu: int = 1
    """Sequences per rank in one forward pass (the micro-batch)."""
    gradient_accumulation: int = 1
    """Micro-batches per optimizer step and data-parallel rank."""
    gradient_accumulation_dtype: Literal["fp32", "bf16"] | None = None
    """Number format in which gradients are added up over micro-steps. Absent: the backend's own, which is fp32 where torch's autocast or fully_shard keeps fp32 weights, and bf16 in DeepSpeed's bf16-mixed and with bf16-true."""
    loss_weighting: Literal["micro-batch", "token"] = "micro-batch"
    """What counts equally in a step's loss. micro-batch: each micro-batch of each rank, whose loss is the mean over its labels. token: each label, so that the loss is the sum over all labels of all ranks and micro-steps divided by their number. The same where every micro-batch has equally many labels."""
    global_batch_size: int | None = None
    """Sequences per optimizer step over all ranks, as a check: batch_size_per_gpu x gradient_accumulation x data-parallel size must equal it. Absent: derived."""
    num_gpus: int = 1
    """Processes the recipe was written for, one per GPU (or per CPU worker); `--num-gpus` overrides it."""
    device: Literal["cuda", "cpu"] | None = None
    """Kind of device the processes run on. Absent: cuda where the machine has one, else cpu."""
    flash_attention: bool = False
    """Whether attention runs in a fused flash kernel; needs a 16-bit precision. false: the kernel is torch's choice."""
    gradient_checkpointing: bool = False
    """Whether each block's activations are recomputed in the backward pass instead of kept."""
    gradient_checkpointing_reentrant: bool = False
    """Whether recomputation uses torch's older reentrant form; it works with fewer other features."""
    compile: bool = False
    """Whether the model runs through torch.compile."""
    compile_backend: Literal["inductor", "cudagraphs", "aot_eager", "eager"] = "inductor"
    """What torch.compile hands its graphs to: inductor generates kernels, cudagraphs replays torch's own on a GPU, aot_eager and eager run torch's own and serve to find faults."""
    compile_mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default"
    """How hard inductor tries: reduce-overhead records CUDA graphs, max-autotune times kernels and records CUDA graphs, max-autotune-no-cudagraphs only times kernels."""
    compile_dynamic: bool | None = None
    """Whether graphs are made for every shape (true) or for one each (false: a new shape compiles anew). Absent: for one, then for every where a second one comes."""
    compile_fullgraph: bool = False
    """Whether torch.compile fails where it would cut the graph, instead of running that part without it."""
    compile_regional: bool = True
    """Whether each of the model's repeated blocks is compiled by itself (equal blocks compile once, and sharding still sees every block's boundary) instead of the model as one."""
    max_steps: int = 100
    """Optimizer steps to train."""
    seed: int = 0
    """Seed of the weights and of the order of the data; the same on every rank."""


class Communication(Struct, frozen=True, kw_only=True):
    """How gradients are averaged between ranks."""

    dtype: Literal["fp32", "bf16", "fp16"] | None = None
    """Number format in which full gradients travel between ranks. Absent: that in which the backward pass leaves them (fully_shard under mixed precision: fp32). For 16 bits under DDP the same as compression.method fp16 or bf16."""
    compression: Compression = field(default_factory=lambda: Compression())
    """What is sent instead of the full gradient."""
    overlap: Overlap = field(default_factory=lambda: Overlap())
    """How reduction overlaps with the backward pass (DDP)."""


class DataParallelism(Struct, frozen=True, kw_only=True):
    """What data-parallel ranks replicate and what they shard."""

    strategy: Literal["ddp", "zero1", "zero2", "zero3", "fsdp"] = "ddp"
    """ddp: everything replicated; zero1, zero2, zero3: optimizer state, then gradients, then parameters sharded by DeepSpeed; fsdp: all three sharded by torch's fully_shard."""
    shard_group_size: int | None = None
    """fsdp: ranks that share one copy of the model (hybrid sharding): parameters are gathered inside such a group only, gradients are averaged between groups. Divides the data-parallel size; at that size or more there is a single group. Absent: all ranks share one copy."""
    offload: Offload = field(default_factory=lambda: Offload())
    """What waits in the machine's memory or on its disk while the device does not need it (zero1, zero2, zero3, fsdp)."""
    zero: ZeroPlusPlus = field(default_factory=lambda: ZeroPlusPlus())
    """ZeRO++ (zero3): less sent between machines."""
    fsdp: FullySharded = field(default_factory=lambda: FullySharded())
    """How torch's fully sharded data parallelism is set up (fsdp)."""


class Parallelism(Struct, frozen=True, kw_only=True):
    """How the work is split over ranks."""

    data: DataParallelism = field(default_factory=lambda: DataParallelism())
    """What data-parallel ranks replicate and what they shard."""
    pipeline: Pipeline | None = None
    """Layers split over stages; absent: no pipeline."""


class Recipe(Struct, frozen=True, kw_only=True):
    """What is trained, how gradients travel, and how the work is split. Never names a backend."""

    extends: str | None = None
    """Preset this recipe starts from; what is written here overrides it. Precedence: command line > this file > what it extends > schema default."""
    summary: str | None = None
    """One line that says what the recipe is for; shown by `gradwire presets`."""
    model: Model | None = None
    """The model that `gradwire.train` builds; absent when the user's own script brings its own."""
    data: Data = field(default_factory=lambda: Data())
    """The text that `gradwire.train` reads."""
    training: Training = field(default_factory=lambda: Training())
    """Optimizer, precision, batch and size of the job."""
    communication: Communication = field(default_factory=lambda: Communication())
    """How gradients are averaged between ranks."""
    parallelism: Parallelism = field(default_factory=lambda: Parallelism())
    """How the work is split over ranks."""
    measurement: MeasurementOptions = field(default_factory=lambda: MeasurementOptions())
    """What the throughput meter leaves out."""
    backends: Backends = field(default_factory=lambda: Backends())
    """Keys for one backend only; merged last, reported, and refused where they contradict the recipe."""
