"""What stands in the way of a run is said before anything starts, all at once."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradwire.documents.plan_schema import Plan
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.launch.preflight import build_locks, check_data_path, closed_folders, old_build_locks, preflight
from gradwire.launch.probe import LIBRARIES, Machine, missing_packages
from gradwire.plan import settle
from gradwire.recipe import load_recipe, parse_set

MACHINE = Machine(cuda_devices=8, hidden_cuda_devices=0, cores=8, packages=frozenset(LIBRARIES))


def plan_of(preset: str, backend: Any, *sets: str, num_nodes: int = 1) -> Plan:
    loaded = load_recipe(preset, overrides=[parse_set(text) for text in sets])
    device = loaded.recipe.training.device or "cpu"
    return settle(loaded.recipe, recipe_name=preset, backend=backend, device=device, num_nodes=num_nodes)


def problems(
    plan: Plan,
    machine: Machine = MACHINE,
    *,
    program: tuple[str, ...] | None = None,
    launcher: str = "sh",
    address: str | None = None,
    node_rank: int = 0,
    extensions: Path = Path("/nonexistent"),
) -> list[str]:
    try:
        preflight(
            plan,
            machine,
            program=program,
            launcher=launcher,
            address=address,
            node_rank=node_rank,
            environment={"TORCH_EXTENSIONS_DIR": str(extensions)},
        )
    except EnvironmentNotFit as error:
        return str(error).splitlines()
    return []


def without(*packages: str) -> Machine:
    return replace(MACHINE, packages=MACHINE.packages.difference(packages))


def test_fit_machine_has_no_problem() -> None:
    assert problems(plan_of("zero3", "deepspeed")) == []
    assert problems(plan_of("cpu/fsdp", "native"), replace(MACHINE, cuda_devices=0)) == []


@pytest.mark.parametrize(
    ("backend", "preset", "missing", "expected"),
    [
        ("native", "cpu/ddp", ["torch"], "torch is not installed: pip install 'gradwire[native]'"),
        ("accelerate", "cpu/ddp", ["accelerate"], "accelerate is not installed: pip install 'gradwire[accelerate]'"),
        ("deepspeed", "cpu/ddp", ["deepspeed"], "deepspeed is not installed: pip install 'gradwire[deepspeed]'"),
        ("accelerate", "cpu/zero2", ["deepspeed"], "deepspeed is not installed: pip install 'gradwire[deepspeed]'"),
        (
            "accelerate",
            "cpu/zero2",
            ["accelerate", "deepspeed", "torch"],
            "torch and accelerate and deepspeed are not installed: pip install 'gradwire[accelerate,deepspeed]'",
        ),
    ],
)
def test_missing_package_names_the_extra(backend: str, preset: str, missing: list[str], expected: str) -> None:
    assert problems(plan_of(preset, backend), without(*missing)) == [expected]


def test_package_that_the_backend_does_not_use_is_not_missed() -> None:
    assert problems(plan_of("cpu/ddp", "native"), without("accelerate", "deepspeed")) == []


def test_own_script_brings_its_own_model_library(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert problems(plan_of("cpu/ddp", "native"), without("transformers"), program=(str(script),)) == []


def test_too_few_gpus_gives_both_numbers_and_the_ways_out() -> None:
    (problem,) = problems(plan_of("zero1", "deepspeed"), replace(MACHINE, cuda_devices=2, hidden_cuda_devices=6))
    assert problem.startswith(
        "the recipe needs 8 GPUs here, and this machine has 2 (CUDA_VISIBLE_DEVICES hides 6 more); --num-gpus 2 uses"
    )
    assert "--device cpu" in problem


def test_gpus_are_counted_per_node() -> None:
    assert problems(plan_of("h100-128", "native", num_nodes=16)) == []
    (problem,) = problems(plan_of("h100-128", "native", num_nodes=8))
    assert problem.startswith("the recipe needs 16 GPUs on each node, and this machine has 8; --num-gpus 64 uses those")


def test_accelerate_cannot_run_fsdp_on_cpu() -> None:
    (problem,) = problems(plan_of("cpu/fsdp", "accelerate"))
    assert problem.startswith("Accelerate cannot run FSDP on CPU")
    assert "--backend native" in problem


def test_taken_port_is_named_on_the_first_node_only() -> None:
    plan = plan_of("zero1", "deepspeed", num_nodes=2)
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        port = listener.getsockname()[1]
        (problem,) = problems(plan, address=f"node0:{port}")
        assert problem.startswith(f"port {port} is in use on this machine")
        assert problems(plan, address=f"node0:{port}", node_rank=1) == []


def test_missing_script_and_launcher_are_named(tmp_path: Path) -> None:
    script = str(tmp_path / "train.py")
    assert problems(plan_of("cpu/ddp", "native"), program=(script,), launcher="no-such-launcher") == [
        "the program `no-such-launcher` is neither beside this Python nor on PATH",
        f"{script}: no such script",
    ]
    assert problems(plan_of("cpu/ddp", "native"), program=("-m", "mine")) == []


def test_all_problems_come_at_once() -> None:
    machine = replace(without("deepspeed"), cuda_devices=0)
    assert len(problems(plan_of("zero3", "accelerate"), machine, program=("no-such.py",))) == 3


def test_old_build_lock_is_a_problem_with_the_command_that_removes_it(tmp_path: Path) -> None:
    lock = tmp_path / "py311_cpu" / "deepspeed_shm_comm_op" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert problems(plan_of("cpu/zero1", "deepspeed"), extensions=tmp_path) == []
    two_hours_ago = time.time() - 7200
    os.utime(lock, (two_hours_ago, two_hours_ago))
    (problem,) = problems(plan_of("cpu/zero1", "deepspeed"), extensions=tmp_path)
    assert "killed 2.0 hours ago" in problem
    assert problem.endswith(f"rm {lock}")
    assert problems(plan_of("cpu/ddp", "native"), extensions=tmp_path) == []


def test_build_locks_of_no_folder_are_none(tmp_path: Path) -> None:
    assert build_locks([tmp_path / "nothing"]) == []
    assert old_build_locks([tmp_path], now=0.0) == []


def test_far_more_cpu_processes_than_cores_are_refused_with_both_numbers() -> None:
    assert problems(plan_of("cpu/ddp", "native", "training.num_gpus=128")) == []
    [problem] = problems(plan_of("cpu/ddp", "native", "training.num_gpus=129"))
    assert "needs 129 processes on this machine, which has 8 cores" in problem
    assert "--num-gpus 128 is the most here" in problem


def test_eight_bit_floats_need_their_library() -> None:
    pytest.importorskip("torch", reason="the other packages are there")
    if not missing_packages(["torchao"]):
        pytest.skip("torchao is installed")
    sets = ("training.fp8=torchao", "parallelism.data.strategy=fsdp")
    [problem] = problems(plan_of("zero1", "accelerate", *sets))
    assert problem.startswith("training.fp8: torchao needs the package torchao, which is not installed")


def test_python_without_docstrings_is_a_problem() -> None:
    with pytest.raises(EnvironmentNotFit, match="PYTHONOPTIMIZE=2 takes docstrings away"):
        preflight(
            plan_of("cpu/ddp", "native"),
            MACHINE,
            program=None,
            launcher="sh",
            address=None,
            node_rank=0,
            environment={"PYTHONOPTIMIZE": "2"},
        )


def test_a_machine_whose_processes_cannot_meet_is_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradwire.launch.preflight.loopback_works", lambda: False)
    [problem] = problems(plan_of("cpu/ddp", "native"))
    assert "nothing answers on 127.0.0.1" in problem


def test_text_that_is_not_there_is_said_before_anything_starts() -> None:
    with pytest.raises(UsageError, match=r"data\.path /no/such/text: No such file"):
        check_data_path(plan_of("cpu/ddp", "native", "data.path=/no/such/text"))


def test_extension_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(mode=0o600)
    (problem,) = closed_folders([file / "extensions"])
    assert problem.startswith(f"{file}/extensions: torch builds") and str(file) in problem.split("write to ")[1]
    assert closed_folders([tmp_path / "not" / "yet"]) == []
    assert build_locks([tmp_path / ("x" * 300)]) == []
