"""What a rank knows about its run before anything is built: the plan, its place in the world, its device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gradwire.documents.peak_schema import MatmulPeak
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Model
from gradwire.errors import EnvironmentNotFit, RunFailed, UsageError
from gradwire.plan import not_on_cpu


class EveryRankFailed(RunFailed):
    """A failure that all ranks find in the same step; rank 0 speaks for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where this process stands: `rank` of `world_size`, the `local_rank`th on its machine.

    `launched` is False where no launcher started the process: it is alone.
    """

    rank: int
    local_rank: int
    world_size: int
    launched: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One rank's run: `plan`, the `folder` that holds it and its sibling files, and its `place`.

    `measured_peak` stands in for the peak of a device that the table does not have; None: none was given. A checkpoint
    is written every `save_every` steps and at the end (None: none); training goes on from the one at `resume`.
    """

    plan: Plan
    folder: Path
    place: Place
    measured_peak: MatmulPeak | None = None
    save_every: int | None = None
    resume: Path | None = None

    @property
    def model(self) -> Model:
        """The recipe's model; raises UsageError as `require_model` does."""
        return require_model(self.plan)


def require_model(plan: Plan) -> Model:
    """Return the recipe's model; raises UsageError where the recipe leaves the model to a user's script."""
    if plan.recipe.model is None:
        raise UsageError(
            f"the recipe {plan.recipe_name} has no `model`, so gradwire.train has nothing to build; "
            "add a model block, or launch your own script with it"
        )
    return plan.recipe.model


def read_place(environment: Mapping[str, str]) -> Place:
    """Return this process's place, as torchrun, accelerate launch and deepspeed put it into the environment.

    Raises UsageError where a variable is not a number.
    """
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        return Place(rank=0, local_rank=0, world_size=1, launched=False)
    return Place(
        rank=_number(environment, "RANK"),
        local_rank=_number(environment, "LOCAL_RANK"),
        world_size=_number(environment, "WORLD_SIZE"),
        launched=True,
    )


def check_world_size(plan: Plan, place: Place, environment: Mapping[str, str]) -> None:
    """Raise EnvironmentNotFit, with both numbers and the likely cause, where the job is not as large as the plan."""
    if place.world_size == plan.world.world_size:
        return
    raise EnvironmentNotFit(
        f"the plan is for {plan.world.world_size} processes, but {place.world_size} "
        f"{'was' if place.world_size == 1 else 'were'} started. {_likely_cause(plan, place, environment)}"
    )


def check_device_can(plan: Plan) -> None:
    """Raise EnvironmentNotFit, with the reason and a way out, where the plan's device cannot do what the plan asks."""
    if plan.world.device == "cuda":
        return
    if plan.recipe.training.precision == "fp16-mixed":
        raise EnvironmentNotFit("training.precision: fp16-mixed needs a CUDA device; on cpu use bf16-mixed or fp32")
    problem = not_on_cpu(plan)
    if problem is not None:
        raise EnvironmentNotFit(problem)
    if plan.backend in ("accelerate", "trainer") and plan.recipe.parallelism.data.strategy == "fsdp":
        through = "Accelerate" if plan.backend == "accelerate" else "the Trainer"
        raise EnvironmentNotFit(
            f"parallelism.data.strategy: fsdp through {through} needs CUDA devices: on a CPU it trains plain "
            "DDP or a single process without a word; use --backend native, whose fsdp runs on a CPU"
        )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "0")
    if not text.isdecimal():
        raise UsageError(f"the environment variable {name} is {text!r}, not a number; a launcher sets it")
    return int(text)


def _likely_cause(plan: Plan, place: Place, environment: Mapping[str, str]) -> str:
    way_out = f"Use the command of launch.sh beside the plan, or lower again with --num-gpus {place.world_size}."
    if place.world_size == 1 and any(name.startswith("ACCELERATE_") for name in environment):
        return (
            "Accelerate starts a single process, without a word, where distributed_type is NO, or MULTI_CPU without "
            f"mpirun, whatever num_processes says; is the generated accelerate.yaml the one in use? {way_out}"
        )
    if not place.launched:
        return f"No launcher started this process (torchrun, accelerate launch or deepspeed). {way_out}"
    return f"The launcher was told another number than the plan's. {way_out}"
