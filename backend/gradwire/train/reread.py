"""Reads a written lowering back with the target's own loader and compares each value with the plan.

`python -m gradwire.train.reread FOLDER` prints the Reread document as JSON, and nothing else, on stdout.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from gradwire.artifact import DEEPSPEED_FILE
from gradwire.documents.lowering_schema import LoweringReport, Reread, RereadValue
from gradwire.documents.plan_schema import Plan
from gradwire.errors import EnvironmentNotFit, GradwireError, UsageError
from gradwire.plan import check_plan
from gradwire.reading import read_regular
from gradwire.train.deepspeed_config import AUTOCAST_TYPES, LOADER_ERRORS, Pairs, deepspeed_pairs
from gradwire.train.dynamo_config import dynamo_pairs

_LARGEST_BYTES = 4 * 2**20
_DISTRIBUTED_TYPES = {"fsdp": "FSDP", "zero1": "DEEPSPEED", "zero2": "DEEPSPEED", "zero3": "DEEPSPEED"}


def reread(folder: Path) -> Reread:
    """Return what the target's own loader reads from the files in `folder`, beside what the plan says.

    Raises UsageError where the folder holds no lowering, EnvironmentNotFit where the target is not installed.
    """
    plan, report = _read_documents(folder)
    try:
        match plan.backend:
            case "native":
                loader, pairs = f"torch {version('torch')} torchrun", list(_torchrun_pairs(plan, report))
            case "deepspeed":
                loader = f"deepspeed {version('deepspeed')} DeepSpeedConfig"
                pairs = list(deepspeed_pairs(plan, str(folder / DEEPSPEED_FILE), has_optimizer=True))
            case "trainer":
                # It imports torch, which need not be here; so does what reads FSDP's settings.
                from gradwire.train.trainer_config import trainer_pairs

                loader = f"transformers {version('transformers')} TrainingArguments"
                pairs = [*_torchrun_pairs(plan, report), *trainer_pairs(plan, folder, report.environment)]
            case "accelerate":
                loader = f"accelerate {version('accelerate')} accelerate launch"
                pairs = list(_accelerate_pairs(plan, report, folder))
    except ImportError as error:
        library = {"native": "torch", "trainer": "transformers"}.get(plan.backend, plan.backend)
        extra = {"trainer": "accelerate"}.get(plan.backend, plan.backend)
        raise EnvironmentNotFit(
            f"{library} is not installed here ({error}): pip install 'gradwire[{extra}]'"
        ) from error
    except LOADER_ERRORS as error:
        pairs = [("loads", True, f"{type(error).__name__}: {error}")]
        loader = plan.backend
    values = [_value(name, planned, loaded) for name, planned, loaded in pairs]
    is_equal = all(value.equal for value in values)
    return Reread(status="equal" if is_equal else "different", loader=loader, reason=None, values=values)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the Reread document of a folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gradwire.train.reread", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="output folder of `gradwire lower`")
    folder = parser.parse_args(arguments).folder
    try:
        with _only_stderr():
            document = reread(folder)
    except GradwireError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(msgspec.json.encode(document, order="sorted").decode() + "\n")
    return 0


def _read_documents(folder: Path) -> tuple[Plan, LoweringReport]:
    try:
        plan = msgspec.json.decode(_content(folder / "plan.json"), type=Plan)
        report = msgspec.json.decode(_content(folder / "lowering.json"), type=LoweringReport)
    except OSError as error:
        raise UsageError(f"{folder}: holds no lowering: {error.strerror}: {error.filename}") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{folder}: plan.json or lowering.json is not one that was generated: {error}") from error
    check_plan(plan)
    return plan, report


def _content(file: Path) -> bytes:
    content = read_regular(file, max_bytes=_LARGEST_BYTES)
    if len(content) > _LARGEST_BYTES:
        raise UsageError(f"{file}: larger than {_LARGEST_BYTES // 2**20} MiB, which no generated document is")
    return content


def _value(name: str, planned: Any, loaded: Any) -> RereadValue:
    return RereadValue(name=name, planned=planned, loaded=loaded, equal=planned == loaded)


@contextmanager
def _only_stderr() -> Iterator[None]:
    """Send everything that is written to stdout, by C code and child processes too, to stderr meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _torchrun_pairs(plan: Plan, report: LoweringReport) -> Pairs:
    from torch.distributed import run

    arguments = run.parse_args(report.command[1:])
    config, _, _ = run.config_from_args(arguments)
    yield "recipe_sha256", plan.recipe_sha256, report.recipe_sha256
    yield "nnodes", plan.world.num_nodes, config.max_nodes
    yield "nproc_per_node", plan.world.processes_per_node, config.nproc_per_node


def _accelerate_pairs(plan: Plan, report: LoweringReport, folder: Path) -> Pairs:
    from accelerate.commands import launch
    from accelerate.utils import launch as launch_utilities
    from accelerate.utils import patch_environment

    words = [str(folder / word) if word in report.files else word for word in report.command[2:]]
    arguments, defaults, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(words))
    strategy = plan.recipe.parallelism.data.strategy
    alone = "NO" if plan.world.world_size == 1 else "MULTI_GPU"
    distributed_type = _DISTRIBUTED_TYPES.get(strategy, alone)
    yield "distributed_type", distributed_type, str(defaults.distributed_type.value)
    yield "num_processes", plan.world.world_size, arguments.num_processes
    yield "num_machines", plan.world.num_nodes, arguments.num_machines
    yield "use_cpu", plan.world.device == "cpu", arguments.use_cpu
    # From here on the values are those of the ranks' environment; the real port may be taken on this machine.
    arguments.main_process_port = 0
    # What is meant for a GPU with a library of its own is read here all the same.
    launch_utilities.is_fp8_available = lambda: True
    match distributed_type:
        case "DEEPSPEED":
            arguments.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
            environment = launch.prepare_deepspeed_cmd_env(arguments)[1]
            with patch_environment(**environment):
                yield from _accelerate_deepspeed_pairs(plan)
            # Not by the launcher: the command's own environment.
            yield from dynamo_pairs(plan, {**environment, **report.environment})
        case "FSDP":
            environment = launch.prepare_multi_gpu_env(arguments)
            yield from _precision_pairs(plan, environment)
            from gradwire.train.fsdp_config import fsdp_pairs

            yield from fsdp_pairs(plan, environment)
            yield from dynamo_pairs(plan, environment)
        case "NO":
            environment = launch.prepare_simple_launcher_cmd_env(arguments)[1]
            yield from _precision_pairs(plan, environment)
            yield from dynamo_pairs(plan, environment)
        case _:
            environment = launch.prepare_multi_gpu_env(arguments)
            yield from _precision_pairs(plan, environment)
            yield from dynamo_pairs(plan, environment)


def _precision_pairs(plan: Plan, environment: Mapping[str, str]) -> Pairs:
    training = plan.recipe.training
    if training.fp8 == "none":
        planned = AUTOCAST_TYPES.get(training.precision, "no")
        yield "mixed_precision", planned, environment["ACCELERATE_MIXED_PRECISION"]
        return
    yield "mixed_precision", "fp8", environment["ACCELERATE_MIXED_PRECISION"]
    backend = {"transformer-engine": "te", "torchao": "ao"}[training.fp8]
    yield "fp8_backend", backend, environment["ACCELERATE_FP8_BACKEND"]
    settings = {
        "te": {
            "format": "HYBRID",
            "amax_compute_algo": "most_recent",
            "amax_history_len": "1024",
            "interval": "1",
            "margin": "0",
            "use_autocast_during_eval": "False",
        },
        "ao": {"enable_fsdp_float8_all_gather": "True", "pad_inner_dim": "True"},
    }
    for name, planned in settings[backend].items():
        yield f"fp8_{name}", planned, environment.get(f"ACCELERATE_FP8_{name.upper()}")


def _accelerate_deepspeed_pairs(plan: Plan) -> Pairs:
    from accelerate.utils import DeepSpeedPlugin

    plugin = DeepSpeedPlugin()
    yield (
        "deepspeed_plugin.gradient_accumulation_steps",
        (plan.batch.gradient_accumulation),
        plugin.gradient_accumulation_steps,
    )
    yield "deepspeed_plugin.zero3_init_flag", plan.recipe.parallelism.data.strategy == "zero3", plugin.zero3_init_flag
    plugin.set_mixed_precision("no")
    yield from deepspeed_pairs(plan, plugin.deepspeed_config, has_optimizer=False)


if __name__ == "__main__":
    raise SystemExit(main())
