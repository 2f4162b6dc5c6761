"""Lowers a plan to Accelerate: `accelerate.yaml` for `accelerate launch`, with `deepspeed.json` beside it for ZeRO."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from gradwire.artifact import DEEPSPEED_FILE, OutFile, Word, document_text
from gradwire.documents.lowering_schema import WrittenDefault
from gradwire.documents.plan_schema import Plan
from gradwire.lowering.accelerate_document import (
    FILE,
    accelerate_document,
    distributed_type,
    is_zero,
    yaml_text,
)
from gradwire.lowering.accelerate_fsdp import (
    FSDP_FIELDS,
    accelerate_fsdp_outcomes,
    accelerate_fsdp_refusals,
    fsdp_defaults,
)
from gradwire.lowering.compilation import (
    dynamo_environment,
    dynamo_environment_outcomes,
    dynamo_file_outcomes,
    refuse_accelerate_fullgraph,
    tf32_note,
)
from gradwire.lowering.deepspeed import deepspeed_environment
from gradwire.lowering.deepspeed_account import (
    deepspeed_outcomes,
    deepspeed_refusals,
    deepspeed_target,
)
from gradwire.lowering.deepspeed_defaults import written_defaults
from gradwire.lowering.deepspeed_document import deepspeed_document
from gradwire.lowering.extras import Target, dotted_keys, merge_extras, refuse_extras
from gradwire.lowering.fields import Outcome, Refusal, emulated, exact, unused
from gradwire.lowering.keys import ACCELERATE_KEYS, ACCELERATE_KEYS_BELOW, FSDP1_KEYS
from gradwire.lowering.number_formats import (
    label_outcomes,
    refuse_accelerate_fsdp_formats,
    refuse_torch_formats,
    torch_format_outcomes,
)
from gradwire.lowering.placement import Placement, meeting
from gradwire.lowering.program import in_program, program_words
from gradwire.lowering.sharding import unused_sharding
from gradwire.lowering.shared import (
    COMMON_ENVIRONMENT,
    Lowered,
    common_outcomes,
    compression_outcomes,
    extras_outcome,
    optimizer_outcomes,
    overlap_outcomes,
    refuse_ddp_settings,
    refuse_fp16_on_cpu,
    refuse_pipeline,
    scheduler_outcomes,
)

HELPER = "gradwire.accelerate.from_recipe"

_OPTIMIZER = ("optimizer", "learning_rate", "weight_decay", "betas", "epsilon", "momentum")
_FORBIDDEN = {
    "command_file": "for TPU pods only",
    "commands": "for TPU pods only",
    "compute_environment": "the job runs on these machines",
    "megatron_lm_config": "parallelism decides",
    "mpirun_config": "the processes are started by accelerate itself",
}


def refusals(plan: Plan) -> list[Refusal]:
    """Return what Accelerate cannot express of `plan`."""
    if is_zero(plan):
        document = deepspeed_document(plan, with_optimizer=False)
        found = deepspeed_refusals(plan)
        found += refuse_extras(plan.recipe.backends.deepspeed, deepspeed_target(document, plan))
    else:
        found = _torch_refusals(plan)
    found += refuse_accelerate_fullgraph(plan)
    return found + refuse_extras(plan.recipe.backends.accelerate, _target(plan))


def build(plan: Plan, placement: Placement, program: tuple[str, ...] | None) -> Lowered:
    """Return the Accelerate configuration, the DeepSpeed one where ZeRO needs it, and the launch command of `plan`."""
    extras = plan.recipe.backends.accelerate
    document = merge_extras(accelerate_document(plan, placement), extras)
    files = {FILE: yaml_text(document)}
    reported = [f"{FILE} {key}" for key, _ in dotted_keys(extras)]
    defaults = _written_defaults(plan)
    if is_zero(plan):
        deepspeed_extras = plan.recipe.backends.deepspeed
        deepspeed = deepspeed_document(plan, with_optimizer=False)
        files[DEEPSPEED_FILE] = document_text(merge_extras(deepspeed, deepspeed_extras))
        reported += [f"{DEEPSPEED_FILE} {key}" for key, _ in dotted_keys(deepspeed_extras)]
        defaults += written_defaults(deepspeed)
    return Lowered(
        files=files,
        command=(*_launcher(plan, placement), *program_words(program, "-m")),
        environment=_environment(plan),
        outcomes=_outcomes(plan, program),
        defaults=defaults,
        extras=tuple(reported),
    )


def _torch_refusals(plan: Plan) -> list[Refusal]:
    found = refuse_pipeline(plan, "Accelerate has no pipeline schedule for training")
    found += refuse_fp16_on_cpu(plan, "Accelerate has no fp16 on a CPU")
    found += refuse_torch_formats(plan)
    if plan.recipe.parallelism.data.strategy == "fsdp":
        found += refuse_ddp_settings(plan) + accelerate_fsdp_refusals(plan) + refuse_accelerate_fsdp_formats(plan)
    return found


def _target(plan: Plan) -> Target:
    document = accelerate_document(plan, Placement(out_folder=PurePath(), rendezvous="localhost:1"))
    fields = {
        "distributed_type": "parallelism.data.strategy",
        "mixed_precision": "training.precision",
        "num_machines": "--num-nodes",
        "num_processes": "training.num_gpus",
        "use_cpu": "training.device",
        **FSDP_FIELDS,
        "deepspeed_config.deepspeed_config_file": "--out",
    }
    flat = dict(dotted_keys(document))
    decided = {key: (field, flat[key]) for key, field in fields.items() if key in flat}
    forbidden = dict(_FORBIDDEN)
    for key, section in (("deepspeed_config", "DEEPSPEED"), ("fsdp_config", "FSDP")):
        if document["distributed_type"] != section:
            forbidden[key] = (
                f"parallelism.data.strategy makes it {document['distributed_type']}, which does not read it"
            )
    if "fp8_config" in document:
        decided["fp8_config.fp8_backend"] = ("training.fp8", document["fp8_config"]["fp8_backend"])
    else:
        forbidden["fp8_config"] = "training.fp8 decides"
    if document["distributed_type"] == "DEEPSPEED":
        forbidden["mixed_precision"] = "the precision is in deepspeed.json; Accelerate refuses both"
    if "dynamo_config" in document:
        decided |= {key: ("training.compile", value) for key, value in flat.items() if key.startswith("dynamo_config.")}
    else:
        forbidden["dynamo_config"] = "training.compile decides"
    if "parallelism_config" in document:
        # Model parallelism of Accelerate's own is no part of a recipe, and its sizes multiply to the processes.
        decided |= {key: ("parallelism", value) for key, value in flat.items() if key.startswith("parallelism_config.")}
    else:
        forbidden["parallelism_config"] = "parallelism decides: one group of ranks, all of them data-parallel"
    for key in ("machine_rank", "main_process_ip", "main_process_port"):
        forbidden[key] = "--node-rank and --rdzv decide"
    return Target(
        section="accelerate",
        file=FILE,
        known=ACCELERATE_KEYS,
        decided=decided,
        forbidden=forbidden,
        known_below=_known_below(plan),
    )


def _known_below(plan: Plan) -> dict[str, frozenset[str]]:
    if plan.recipe.parallelism.data.fsdp.version == 2:
        return ACCELERATE_KEYS_BELOW
    return {**ACCELERATE_KEYS_BELOW, "fsdp_config": ACCELERATE_KEYS_BELOW["fsdp_config"] | FSDP1_KEYS}


def _environment(plan: Plan) -> dict[str, str]:
    if is_zero(plan):
        # ACCELERATE_USE_CPU would quietly train plain DDP here.
        return {**deepspeed_environment(plan), **dynamo_environment(plan)}
    use_cpu = {"ACCELERATE_USE_CPU": "true"} if plan.world.device == "cpu" else {}
    return {**COMMON_ENVIRONMENT, **use_cpu}


def _launcher(plan: Plan, placement: Placement) -> tuple[Word, ...]:
    words: tuple[Word, ...] = ("accelerate", "launch", "--config_file", OutFile(name=FILE))
    if is_zero(plan):
        # The path in the YAML holds in the folder where the recipe was lowered; this one holds everywhere.
        words += ("--deepspeed_config_file", OutFile(name=DEEPSPEED_FILE))
    if plan.world.num_nodes > 1:
        place = meeting(placement)
        words += (
            *("--machine_rank", place.node_rank),
            *("--main_process_ip", place.address),
            *("--main_process_port", place.port),
        )
    return words


def _written_defaults(plan: Plan) -> tuple[WrittenDefault, ...]:
    written = []
    if plan.world.num_nodes == 1:
        why = "two runs on one machine would meet at the same port"
        written.append(WrittenDefault(key="main_process_port", value=0, hidden_default=29500, why=why))
    if distributed_type(plan) == "FSDP":
        written += fsdp_defaults(plan)
    return tuple(written)


def _outcomes(plan: Plan, program: tuple[str, ...] | None) -> dict[str, Outcome]:
    by_helper = in_program(program, helper=HELPER)
    outcomes = {
        **common_outcomes(plan, program),
        **optimizer_outcomes(plan, dict.fromkeys(_OPTIMIZER, by_helper)),
        **scheduler_outcomes(plan, _scheduler_outcome(by_helper)),
        **label_outcomes(plan, reads=in_program(program), weighs=by_helper),
        "training.max_steps": by_helper,
        "training.num_gpus": exact(f"{FILE} num_processes"),
        "training.device": exact(f"{FILE} use_cpu"),
        "backends.accelerate": extras_outcome(plan.recipe.backends.accelerate, FILE),
    }
    if is_zero(plan):
        merged = extras_outcome(plan.recipe.backends.deepspeed, DEEPSPEED_FILE)
        return {
            **outcomes,
            **deepspeed_outcomes(plan, program),
            **dynamo_environment_outcomes(plan, in_program(program)),
            "parallelism.data.strategy": _zero_outcome(plan, program),
            "backends.deepspeed": merged,
        }
    is_fsdp = plan.recipe.parallelism.data.strategy == "fsdp"
    method = plan.recipe.communication.compression.method
    return {
        **outcomes,
        "training.precision": _precision_outcome(plan, program),
        **_fp8_outcome(plan),
        **dynamo_file_outcomes(plan, FILE, by_helper),
        "training.gradient_clip": by_helper,
        "training.batch_size_per_gpu": by_helper,
        "training.gradient_accumulation": by_helper,
        **torch_format_outcomes(plan, by_helper),
        "parallelism.data.strategy": exact(f"{FILE} distributed_type"),
        **(accelerate_fsdp_outcomes(plan) if is_fsdp else unused_sharding(plan)),
        **compression_outcomes(plan, unused() if method == "none" else by_helper, by_helper),
        **overlap_outcomes(unused("DDP's settings") if is_fsdp else by_helper),
    }


def _scheduler_outcome(by_helper: Outcome) -> Outcome:
    note = "counts optimizer steps; a scheduler that Accelerate prepares advances once per process in each of them"
    return replace(by_helper, note=f"{by_helper.note}; {note}" if by_helper.note else note)


def _zero_outcome(plan: Plan, program: tuple[str, ...] | None) -> Outcome:
    carrier = f"{FILE} distributed_type and {DEEPSPEED_FILE} zero_optimization.stage"
    if plan.world.device == "cpu" and program is not None:
        note = f"on a CPU an Accelerator() of the script's own trains alone: {HELPER} makes one that sees every rank"
        return emulated(f"{carrier}, and {HELPER}", note)
    return exact(carrier)


def _fp8_outcome(plan: Plan) -> dict[str, Outcome]:
    if plan.recipe.training.fp8 == "none":
        return {}
    return {"training.fp8": exact(f"{FILE} mixed_precision and fp8_config.fp8_backend")}


def _precision_outcome(plan: Plan, program: tuple[str, ...] | None) -> Outcome:
    precision = plan.recipe.training.precision
    if precision == "bf16-true":
        caster = in_program(program, helper=HELPER).carrier
        note = "Accelerate has no such mode: mixed_precision is 'no' and the model itself is cast to bf16"
        return emulated(f"{FILE} mixed_precision and {caster}", note)
    if precision != "fp32" and plan.recipe.parallelism.data.strategy == "fsdp":
        name = precision.removesuffix("-mixed")
        return emulated(
            f"{FILE} mixed_precision", f"fully_shard computes and reduces in {name}, where autocast reduces in fp32"
        )
    rounds = tf32_note(plan, HELPER, program)
    return emulated(f"{FILE} mixed_precision", rounds) if rounds else exact(f"{FILE} mixed_precision")
