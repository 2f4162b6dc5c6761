"""What Accelerate's own plugin reads of torch.compile from the environment of a rank, beside what the plan says."""

from __future__ import annotations

from collections.abc import Mapping

from gradwire.documents.plan_schema import Plan
from gradwire.train.deepspeed_config import Pairs

_PREFIX = "ACCELERATE_DYNAMO_"


def dynamo_pairs(plan: Plan, environment: Mapping[str, str], arguments: Mapping[str, str] | None = None) -> Pairs:
    """Yield (name, planned, loaded) for whether and how an Accelerator compiles in `environment`, and in no other.

    `arguments` are those that the Trainer gives the plugin itself.
    """
    from accelerate.utils import TorchDynamoPlugin, patch_environment
    from accelerate.utils.environment import clear_environment

    variables = {name: value for name, value in environment.items() if name.startswith(_PREFIX)}
    with clear_environment(), patch_environment(**variables):
        plugin = TorchDynamoPlugin(**(arguments or {}))
        loaded = plugin.to_dict()
    training = plan.recipe.training
    yield "dynamo backend", training.compile_backend if training.compile else "no", loaded["backend"]
    if not training.compile:
        return
    yield "dynamo mode", training.compile_mode, loaded["mode"]
    yield "dynamo fullgraph", training.compile_fullgraph, loaded["fullgraph"]
    yield "dynamo use_regional_compilation", training.compile_regional, loaded["use_regional_compilation"]
    # The launcher's own answer where the plan has none: gradwire.accelerate takes it back.
    says_dynamic = f"{_PREFIX}USE_DYNAMIC" in environment
    by_launcher = training.compile_dynamic is None and says_dynamic
    yield "dynamo dynamic", False if by_launcher else training.compile_dynamic, loaded["dynamic"]
