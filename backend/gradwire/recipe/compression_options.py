"""Which options of `communication.compression` each method reads."""

from __future__ import annotations

from collections.abc import Mapping

LOW_RANK = ("powersgd", "powersgd-alternating", "powersgd-torch")
PIPELINED_METHODS = ("fp16", "bf16", "powersgd", "powersgd-alternating", "int8", "topk")
"""Those that average a stage's gradients as they do a whole model's."""

READ_BY: Mapping[str, tuple[str, ...]] = {
    "matrix_approximation_rank": LOW_RANK,
    "warm_start": LOW_RANK,
    "error_feedback": (*LOW_RANK, "int8", "topk", "local-sgd"),
    "start_step": (*LOW_RANK, "local-sgd"),
    "min_compression_rate": LOW_RANK,
    "wire_dtype": ("powersgd", "powersgd-alternating"),
    "int8_block_size": ("int8", "local-sgd"),
    "topk_fraction": ("topk",),
    "local_steps": ("local-sgd",),
    "outer_learning_rate": ("local-sgd",),
    "outer_momentum": ("local-sgd",),
    "difference_dtype": ("local-sgd",),
}
"""From an option to the methods that read it. The others leave it unread, whatever its value: scripts and presets
change the method alone, and the lowering says which options are unused."""
