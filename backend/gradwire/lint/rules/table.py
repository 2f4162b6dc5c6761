"""Every rule of the linter, in the order of their codes."""

from __future__ import annotations

from gradwire.lint.rule import Rule
from gradwire.lint.rules import (
    accelerate_fsdp,
    accelerate_keys,
    accelerate_launch,
    accelerate_plugins,
    accelerate_start,
    accelerate_values,
    deepspeed_auto,
    deepspeed_batch,
    deepspeed_engine,
    deepspeed_keys,
    deepspeed_numbers,
    deepspeed_optimizer,
    deepspeed_precision,
    deepspeed_scheduler,
    deepspeed_stages,
    deepspeed_together,
    deepspeed_torch,
    launch_facts,
    pairs,
    reading,
    trainer,
    trainer_arguments,
)

RULES: tuple[Rule, ...] = (
    *accelerate_keys.RULES,
    *accelerate_values.RULES,
    *accelerate_launch.RULES,
    *accelerate_start.RULES,
    *accelerate_plugins.RULES,
    *accelerate_fsdp.RULES,
    *deepspeed_keys.RULES,
    *deepspeed_stages.RULES,
    *deepspeed_together.RULES,
    *deepspeed_engine.RULES,
    *deepspeed_auto.RULES,
    *deepspeed_optimizer.RULES,
    *deepspeed_numbers.RULES,
    *deepspeed_scheduler.RULES,
    *deepspeed_torch.RULES,
    *deepspeed_batch.RULES,
    *deepspeed_precision.RULES,
    *launch_facts.RULES,
    *pairs.RULES,
    *reading.RULES,
    *trainer.RULES,
    *trainer_arguments.RULES,
)
