"""Checks before anything starts that this machine can run the plan; every problem at once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gradwire.documents.plan_schema import Plan
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.launch.probe import Machine, loopback_works, missing_packages, port_in_use, program_path
from gradwire.plan import not_on_cpu

_FP8_PACKAGES = {"transformer-engine": "transformer_engine", "torchao": "torchao"}
_OLD_LOCK_SECONDS = 900.0
# Far more processes than cores make a slow run, which may be wanted; beyond this, one that exhausts the machine.
_MOST_PROCESSES_PER_CORE = 16


def preflight(
    plan: Plan,
    machine: Machine,
    *,
    program: tuple[str, ...] | None,
    launcher: str,
    address: str | None,
    node_rank: int,
    environment: Mapping[str, str],
) -> None:
    """Raise EnvironmentNotFit, with every problem, where this machine cannot run `plan`.

    `program` is the user's own script with its arguments, None for gradwire.train. `launcher` is the command's first
    word. `address` is HOST:PORT that the processes meet at, None where the launcher picks a free port itself.
    """
    problems = [
        *_missing_packages(plan, machine, program),
        *_missing_programs(plan, launcher),
        *_too_few_devices(plan, machine),
        *_too_few_cores(plan, machine),
        *_impossible_on_cpu(plan),
        *_unfit_disk(plan),
        *_missing_fp8(plan),
        *_taken_port(address, node_rank),
        *_no_loopback(),
        *_missing_docstrings(program, environment),
        *_missing_script(program),
    ]
    if needs_deepspeed(plan):
        problems += old_build_locks(extension_folders(environment), now=time.time())
    if problems:
        raise EnvironmentNotFit("\n".join(problems))


def check_data_path(plan: Plan) -> None:
    """Raise UsageError where the text to train on is not there; each rank would say so, seconds later."""
    path = plan.recipe.data.path
    if path is not None and not Path(path).exists():
        raise UsageError(f"data.path {path}: No such file or directory; name a text file, or a folder with text files")


def needs_deepspeed(plan: Plan) -> bool:
    """Return whether the plan trains with DeepSpeed, directly or through Accelerate."""
    sharded = plan.recipe.parallelism.data.strategy in ("zero1", "zero2", "zero3")
    return plan.backend == "deepspeed" or (plan.backend in ("accelerate", "trainer") and sharded)


def needed_packages(plan: Plan, program: tuple[str, ...] | None) -> list[tuple[str, str]]:
    """Return (import name, extra that brings it) of what the plan needs; a user's own script brings its own rest."""
    needed = [("torch", "native")]
    if program is None:
        needed += [("transformers", "native"), ("numpy", "native"), ("psutil", "native")]
    if plan.backend in ("accelerate", "trainer"):
        needed.append(("accelerate", "accelerate"))
    if plan.backend == "trainer" and program is not None:
        needed.append(("transformers", "native"))
    if needs_deepspeed(plan):
        needed.append(("deepspeed", "deepspeed"))
    return needed


def extension_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the folders in which torch builds compiled operators."""
    named = environment.get("TORCH_EXTENSIONS_DIR")
    if named:
        return [Path(named)]
    cache = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "/root")) / ".cache")
    return [cache / "torch_extensions"]


def old_build_locks(folders: Sequence[Path], *, now: float) -> list[str]:
    """Return one problem per build lock that a killed build left: every later run waits for it without a word.

    `now` is in seconds since the epoch. A lock younger than 15 minutes may be a build that is running.
    """
    return [
        f"{lock}: left by an operator build that was killed {(now - changed) / 3600:.1f} hours ago, and every run "
        f"would wait for it forever; if nothing is being built now, remove it: rm {lock}"
        for lock, changed in build_locks(folders)
        if now - changed > _OLD_LOCK_SECONDS
    ]


def build_locks(folders: Sequence[Path]) -> list[tuple[Path, float]]:
    """Return each build lock with the time of its last change, in seconds since the epoch; see `closed_folders`."""
    found = []
    for folder in folders:
        # glob asks for the folder itself, and is refused where that may not be read.
        with suppress(OSError):
            for lock in sorted([*folder.glob("*/lock"), *folder.glob("*/*/lock")]):
                # A build that ends meanwhile takes its lock away.
                with suppress(FileNotFoundError):
                    found.append((lock, lock.stat().st_mtime))
    return found


def closed_folders(folders: Sequence[Path]) -> list[str]:
    """Return one problem for each folder that torch would build operators in, and that this user may not use."""
    found = []
    for folder in folders:
        existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
        if not os.access(existing, os.W_OK | os.X_OK):
            found.append(
                f"{folder}: torch builds DeepSpeed's operators there, and this user may not write to {existing}; "
                "set TORCH_EXTENSIONS_DIR to another folder"
            )
    return found


def _missing_packages(plan: Plan, machine: Machine, program: tuple[str, ...] | None) -> Iterator[str]:
    missing = [(name, extra) for name, extra in needed_packages(plan, program) if name not in machine.packages]
    if not missing:
        return
    names = " and ".join(name for name, _ in missing)
    # The last one needed is the most demanding extra; the extras include each other.
    extras = sorted(
        {extra for _, extra in missing} - ({"native"} if len({extra for _, extra in missing}) > 1 else set())
    )
    verb = "is" if len(missing) == 1 else "are"
    yield f"{names} {verb} not installed: pip install 'gradwire[{','.join(extras)}]'"


def _missing_programs(plan: Plan, launcher: str) -> Iterator[str]:
    if program_path(launcher) is None:
        yield f"the program `{launcher}` is neither beside this Python nor on PATH"
    if needs_deepspeed(plan) and plan.world.device == "cpu" and program_path("c++") is None:
        yield "DeepSpeed compiles its CPU operators, and there is no C++ compiler (`c++`): install g++"


def _too_few_devices(plan: Plan, machine: Machine) -> Iterator[str]:
    asked, present = plan.world.processes_per_node, machine.cuda_devices
    if plan.world.device == "cpu" or asked <= present:
        return
    here = f"this machine has {present}" if present else "this machine has none"
    if machine.hidden_cuda_devices:
        here += f" (CUDA_VISIBLE_DEVICES hides {machine.hidden_cuda_devices} more)"
    per_node = "on each node" if plan.world.num_nodes > 1 else "here"
    ways = [f"--num-gpus {present * plan.world.num_nodes} uses those"] if present else []
    ways += ["`gradwire launch --num-nodes N` spreads them over machines", "--device cpu trains without GPUs"]
    yield f"the recipe needs {asked} GPU{'s' if asked > 1 else ''} {per_node}, and {here}; {', '.join(ways)}"


def _too_few_cores(plan: Plan, machine: Machine) -> Iterator[str]:
    asked, most = plan.world.processes_per_node, machine.cores * _MOST_PROCESSES_PER_CORE
    if plan.world.device != "cpu" or asked <= most:
        return
    cores = f"{machine.cores} core{'s' if machine.cores > 1 else ''}"
    yield (
        f"the recipe needs {asked} processes on this machine, which has {cores}: at most {_MOST_PROCESSES_PER_CORE} "
        f"per core are started; --num-gpus {most * plan.world.num_nodes} is the most here, "
        "`gradwire launch --num-nodes N` spreads them over machines"
    )


def _impossible_on_cpu(plan: Plan) -> Iterator[str]:
    if plan.world.device != "cpu":
        return
    if plan.backend in ("accelerate", "trainer") and plan.recipe.parallelism.data.strategy == "fsdp":
        yield (
            f"{'Accelerate' if plan.backend == 'accelerate' else 'The Trainer'} cannot run FSDP on CPU: it would train "
            "without sharding and not say so. "
            "The nearest that runs here: --backend native"
        )
    problem = not_on_cpu(plan)
    if problem is not None:
        yield problem
    if needs_deepspeed(plan) and plan.recipe.training.precision == "fp16-mixed":
        yield "DeepSpeed refuses fp16 on CPU; the nearest that runs here: --set training.precision=bf16-mixed"


def _missing_fp8(plan: Plan) -> Iterator[str]:
    package = _FP8_PACKAGES.get(plan.recipe.training.fp8)
    if package is not None and missing_packages([package]):
        yield (
            f"training.fp8: {plan.recipe.training.fp8} needs the package {package}, which is not installed; "
            "install it for this CUDA, or --set training.fp8=none"
        )


def _unfit_disk(plan: Plan) -> Iterator[str]:
    asked = plan.recipe.parallelism.data.offload.nvme_path
    if asked is None:
        return
    path = "parallelism.data.offload.nvme_path"
    folder = Path(asked)
    if not folder.is_dir():
        yield f"{path}: {asked} is no folder on this machine; make it, on a local disk, or name another"
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield f"{path}: {asked} cannot be written by this user; name another folder, or change its permissions"


def _taken_port(address: str | None, node_rank: int) -> Iterator[str]:
    # Only the first node listens.
    if address is None or node_rank != 0:
        return
    port = int(address.rsplit(":", 1)[1])
    if port and port_in_use(port):
        yield f"port {port} is in use on this machine: end what listens there, or choose another with --rdzv HOST:PORT"


def _no_loopback() -> Iterator[str]:
    if not loopback_works():
        yield (
            "nothing answers on 127.0.0.1, where the processes of a machine meet: a sandbox without a network? "
            "`ip link set lo up` starts it"
        )


def _missing_docstrings(program: tuple[str, ...] | None, environment: Mapping[str, str]) -> Iterator[str]:
    level = environment.get("PYTHONOPTIMIZE", "")
    if program is None and level.isdecimal() and int(level) > 1:
        yield f"PYTHONOPTIMIZE={level} takes docstrings away, without which transformers is not imported; unset it"


def _missing_script(program: tuple[str, ...] | None) -> Iterator[str]:
    if program is None or program[0].startswith("-"):
        return
    if not Path(program[0]).is_file():
        yield f"{program[0]}: no such script"
