"""Lowers a plan to DeepSpeed: `deepspeed.json` and the `deepspeed` launcher."""

from __future__ import annotations

import hashlib

from gradwire.artifact import OutFile, Setting, Word, document_text
from gradwire.documents.plan_schema import Plan
from gradwire.lowering.compilation import refuse_fullgraph
from gradwire.lowering.deepspeed_account import (
    deepspeed_outcomes,
    deepspeed_refusals,
    deepspeed_target,
)
from gradwire.lowering.deepspeed_defaults import written_defaults
from gradwire.lowering.deepspeed_document import FILE, deepspeed_document
from gradwire.lowering.deepspeed_scheduler import first_learning_rate, late_by, scheduler_says_it_all
from gradwire.lowering.extras import dotted_keys, merge_extras, refuse_extras
from gradwire.lowering.fields import Outcome, Refusal, emulated, exact
from gradwire.lowering.number_formats import label_outcomes
from gradwire.lowering.placement import Placement, meeting
from gradwire.lowering.program import TRAINER, in_program, program_words
from gradwire.lowering.sharding import refuse_fully_sharded
from gradwire.lowering.shared import (
    COMMON_ENVIRONMENT,
    Lowered,
    common_outcomes,
    extras_outcome,
    optimizer_outcomes,
    scheduler_outcomes,
)
from gradwire.recipe.learning_rate import changes

_HOSTFILE = "hostfile"
_OWN_SCHEDULER = "the scheduler of backends.deepspeed moves it, on this backend alone"

# Registered ports below the range from which Linux takes its own (32768-60999) and away from torch's 29500.
_FIRST_PORT, _NUM_PORTS = 20000, 8000


def refusals(plan: Plan) -> list[Refusal]:
    """Return what DeepSpeed cannot express of `plan`."""
    if plan.recipe.parallelism.data.strategy == "fsdp":
        path = "parallelism.data.strategy"
        limit = "DeepSpeed has no fully_shard; --backend native and --backend accelerate have"
        refused = Refusal(path=path, limit=limit, nearest="zero3 (shards the same three)", fallback={path: "zero3"})
        cut = refuse_fullgraph(plan, "ZeRO 3 gathers weights in every module, which cuts the graph")
        return [refused, *cut, *refuse_fully_sharded(plan, "a setting of torch's FSDP")]
    target = deepspeed_target(deepspeed_document(plan, with_optimizer=True), plan)
    return [*deepspeed_refusals(plan), *refuse_extras(plan.recipe.backends.deepspeed, target)]


def build(plan: Plan, placement: Placement, program: tuple[str, ...] | None) -> Lowered:
    """Return the DeepSpeed configuration and the launch command of `plan`."""
    extras = plan.recipe.backends.deepspeed
    document = deepspeed_document(plan, with_optimizer=True)
    files = {FILE: document_text(merge_extras(document, extras))}
    if plan.world.num_nodes > 1:
        files[_HOSTFILE] = _hostfile(plan)
    return Lowered(
        files=files,
        command=(*_launcher(plan, placement), *program_words(program, "--module")),
        environment=deepspeed_environment(plan),
        outcomes=_outcomes(plan, program),
        defaults=written_defaults(document),
        extras=tuple(f"{FILE} {key}" for key, _ in dotted_keys(extras)),
    )


def deepspeed_environment(plan: Plan) -> dict[str, str]:
    """Return the environment that DeepSpeed needs: which kind of device it is to use."""
    accelerator = {"DS_ACCELERATOR": "cpu"} if plan.world.device == "cpu" else {}
    return {**COMMON_ENVIRONMENT, **accelerator}


def _launcher(plan: Plan, placement: Placement) -> tuple[Word, ...]:
    world = plan.world
    # The program learns its rank from LOCAL_RANK, as under the other launchers, not from an argument.
    common: tuple[Word, ...] = ("--num_gpus", str(world.processes_per_node), "--no_local_rank")
    if world.num_nodes == 1:
        port = Setting(variable="MASTER_PORT", default=str(_own_port(plan)), is_free_port=True)
        return ("deepspeed", *common, "--master_port", port)
    place = meeting(placement)
    return (
        "deepspeed",
        # With --no_ssh the names in the host file only count machines; nothing connects to them.
        *("--hostfile", OutFile(name=_HOSTFILE), "--no_ssh"),
        *("--num_nodes", str(world.num_nodes)),
        *("--node_rank", place.node_rank),
        *common,
        *("--master_addr", place.address),
        *("--master_port", place.port),
    )


def _own_port(plan: Plan) -> int:
    """Return a port derived from the recipe and its size: DeepSpeed's launcher cannot look for a free one."""
    digest = hashlib.sha256(f"{plan.recipe_sha256} {plan.world.world_size}".encode()).digest()
    return _FIRST_PORT + int.from_bytes(digest[:4]) % _NUM_PORTS


def _hostfile(plan: Plan) -> str:
    return "".join(f"node-{rank} slots={plan.world.processes_per_node}\n" for rank in range(plan.world.num_nodes))


def _devices_note(plan: Plan) -> str | None:
    if plan.world.device == "cpu":
        return None
    return (
        "deepspeed takes the machine's first devices, whatever CUDA_VISIBLE_DEVICES says; "
        "to choose others, put --include localhost:IDS in the place of --num_gpus"
    )


def _outcomes(plan: Plan, program: tuple[str, ...] | None) -> dict[str, Outcome]:
    params = f"{FILE} optimizer.params."
    return {
        **common_outcomes(plan, program),
        **deepspeed_outcomes(plan, program),
        "training.num_gpus": exact("deepspeed --num_gpus", _devices_note(plan)),
        **optimizer_outcomes(
            plan,
            {
                "optimizer": exact(f"{FILE} optimizer.type and optimizer.params.adam_w_mode"),
                "learning_rate": _learning_rate_outcome(plan),
                "weight_decay": exact(f"{params}weight_decay"),
                "betas": exact(f"{params}betas"),
                "epsilon": exact(f"{params}eps"),
                "momentum": exact(f"{params}momentum"),
            },
        ),
        **label_outcomes(plan, reads=in_program(program), weighs=in_program(program)),
        **scheduler_outcomes(plan, _scheduler_outcome(plan, program)),
        "backends.deepspeed": extras_outcome(plan.recipe.backends.deepspeed, FILE),
    }


def _learning_rate_outcome(plan: Plan) -> Outcome:
    training = plan.recipe.training
    if "scheduler" in plan.recipe.backends.deepspeed:
        return emulated(f"{FILE} optimizer.params.lr", _OWN_SCHEDULER)
    if first_learning_rate(training) == training.learning_rate:
        return exact(f"{FILE} optimizer.params.lr")
    return exact(f"{FILE} scheduler.params.warmup_max_lr", "optimizer.params.lr is what the first step is taken with")


def _scheduler_outcome(plan: Plan, program: tuple[str, ...] | None) -> Outcome:
    training = plan.recipe.training
    if "scheduler" in plan.recipe.backends.deepspeed:
        return emulated(f"{FILE} scheduler", _OWN_SCHEDULER)
    if not changes(training.scheduler):
        return exact(f"{FILE}, which has no scheduler")
    if scheduler_says_it_all(training):
        return exact(f"{FILE} scheduler")
    if program is None:
        note = f"{FILE} alone cannot say it: {late_by(training)}, so the program hands a scheduler to DeepSpeed"
        return exact(f"{TRAINER}, in the place of {FILE} scheduler", note)
    return emulated(f"{FILE} scheduler", f"{late_by(training)}; every later step takes the recipe's learning rate")
