"""Says what tells each backend to compile the model, and how: torch.compile's switch and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gradwire.documents.plan_schema import Plan
from gradwire.lowering.fields import Outcome, Refusal, exact, unused
from gradwire.recipe.compile_rules import OPTIONS

_PREFIX = "ACCELERATE_DYNAMO_"
_AROUND = "Accelerate compiles each part around the blocks by itself too"
_AUTOMATIC = "accelerate launch says false where nothing is written, so the program makes it automatic again"


def compile_outcomes(plan: Plan, switch: Outcome, options: Mapping[str, Outcome] | None = None) -> dict[str, Outcome]:
    """Return the outcomes of `training.compile` and of its options: those given by name, else the switch's."""
    given = options or {}
    if not plan.recipe.training.compile:
        given = dict.fromkeys(OPTIONS, unused("nothing is compiled"))
    return {"training.compile": switch, **{f"training.{name}": given.get(name, switch) for name in OPTIONS}}


def refuse_fullgraph(plan: Plan, limit: str) -> list[Refusal]:
    """Return the refusal of a whole graph where it is asked for."""
    training = plan.recipe.training
    if not (training.compile and training.compile_fullgraph):
        return []
    path = "training.compile_fullgraph"
    return [Refusal(path=path, limit=limit, nearest="false (the graph may be cut)", fallback={path: False})]


def refuse_accelerate_fullgraph(plan: Plan) -> list[Refusal]:
    """Return the refusal of a whole graph where an Accelerator compiles and torch cannot make one."""
    if plan.recipe.parallelism.data.strategy != "ddp":
        return refuse_fullgraph(plan, "Accelerate compiles torch's own layers too, which have no graph")
    if plan.recipe.training.compile_regional or plan.world.world_size == 1:
        return []
    return refuse_fullgraph(plan, "Accelerate compiles what DDP has wrapped, whose calls cut the graph")


def refuse_deepspeed_fullgraph(plan: Plan) -> list[Refusal]:
    """Return the refusal of a whole graph of a whole model below DeepSpeed's engine."""
    if plan.recipe.training.compile_regional:
        return []
    return refuse_fullgraph(plan, "DeepSpeed's hooks on the model as one cut the graph")


def dynamo_section(plan: Plan) -> dict[str, Any]:
    """Return Accelerate's dynamo_config, every key written; empty where nothing is compiled."""
    training = plan.recipe.training
    if not training.compile:
        return {}
    return {
        "dynamo_backend": training.compile_backend.upper(),
        "dynamo_mode": training.compile_mode,
        # The launcher exports False where the key is absent, and cannot read null.
        "dynamo_use_dynamic": training.compile_dynamic is True,
        "dynamo_use_fullgraph": training.compile_fullgraph,
        "dynamo_use_regional_compilation": training.compile_regional,
    }


def dynamo_environment(plan: Plan, *, by_arguments: bool = False) -> dict[str, str]:
    """Return the environment in which an Accelerator compiles as the plan says, where no file of its launcher's does.

    `by_arguments`: the Trainer's arguments say the compiler and its mode already.
    """
    training = plan.recipe.training
    if not training.compile:
        return {}
    found = {
        "USE_FULLGRAPH": str(training.compile_fullgraph),
        "USE_REGIONAL_COMPILATION": str(training.compile_regional),
    }
    if not by_arguments:
        found |= {"BACKEND": training.compile_backend.upper(), "MODE": training.compile_mode}
    if training.compile_dynamic is not None:
        found["USE_DYNAMIC"] = str(training.compile_dynamic)
    return {f"{_PREFIX}{name}": value for name, value in sorted(found.items())}


def dynamo_file_outcomes(plan: Plan, file: str, by_helper: Outcome) -> dict[str, Outcome]:
    """Return the outcomes where the dynamo_config of `file` carries them; automatic shapes only `by_helper` does."""
    training, section = plan.recipe.training, f"{file} dynamo_config."
    if not training.compile:
        return compile_outcomes(plan, exact(f"{file}, which has no dynamo_config"))
    by_file = exact(f"{section}dynamo_use_dynamic")
    note = f"{by_helper.note}; {_AUTOMATIC}" if by_helper.note else _AUTOMATIC
    return compile_outcomes(
        plan,
        exact(f"{section}dynamo_backend"),
        {
            "compile_mode": exact(f"{section}dynamo_mode"),
            "compile_dynamic": replace(by_helper, note=note) if training.compile_dynamic is None else by_file,
            "compile_fullgraph": exact(f"{section}dynamo_use_fullgraph"),
            "compile_regional": exact(f"{section}dynamo_use_regional_compilation", _around(plan)),
        },
    )


def dynamo_environment_outcomes(plan: Plan, without: Outcome) -> dict[str, Outcome]:
    """Return the outcomes where the environment of the command carries them; `without`: nothing is compiled."""
    if not plan.recipe.training.compile:
        return compile_outcomes(plan, without)
    note = "accelerate launch does not pass dynamo_config on under DEEPSPEED"
    return compile_outcomes(plan, _variable("BACKEND", note), {"compile_mode": _variable("MODE"), **_variables(plan)})


def trainer_compile_outcomes(plan: Plan, file: str) -> dict[str, Outcome]:
    """Return the outcomes where the Trainer's arguments in `file` carry them, and the environment what those cannot."""
    return compile_outcomes(
        plan,
        exact(f"{file} torch_compile"),
        {
            "compile_backend": exact(f"{file} torch_compile_backend"),
            "compile_mode": exact(f"{file} torch_compile_mode"),
            **_variables(plan),
        },
    )


def tf32_note(plan: Plan, helper: str, program: tuple[str, ...] | None) -> str | None:
    """Return what an Accelerator of a script's own does to fp32 products on a GPU where it compiles; None: nothing."""
    training = plan.recipe.training
    if program is None or not training.compile or training.precision != "fp32" or plan.world.device != "cuda":
        return None
    return f"with a compiler Accelerate allows TF32 in matrix products, which {helper} takes back"


def _variables(plan: Plan) -> dict[str, Outcome]:
    dynamic = plan.recipe.training.compile_dynamic
    return {
        "compile_dynamic": _variable("USE_DYNAMIC") if dynamic is not None else exact("torch's own default"),
        "compile_fullgraph": _variable("USE_FULLGRAPH"),
        "compile_regional": _variable("USE_REGIONAL_COMPILATION", _around(plan)),
    }


def _variable(name: str, note: str | None = None) -> Outcome:
    return exact(f"{_PREFIX}{name} in the environment", note)


def _around(plan: Plan) -> str | None:
    return _AROUND if plan.recipe.training.compile_regional else None
