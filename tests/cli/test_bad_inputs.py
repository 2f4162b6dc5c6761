"""Bad input of every kind: a clear message, the right exit code, no traceback, nothing half-written."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command_runner import Said, run_command

Run = Callable[..., Said]

VALID = """\
model: {family: gpt2, hidden_size: 32, layers: 2, attention_heads: 2, sequence_length: 32}
training:
  device: cpu
"""

BILLION_LAUGHS = "a0: &a0 [lol, lol]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)

BAD_FILES: dict[str, tuple[bytes, str]] = {
    "unknown key": (
        VALID.encode() + b"  gradient_acumulation: 4\n",
        "bad.yaml:4:3 training.gradient_acumulation: unknown key (did you mean gradient_accumulation?)",
    ),
    "wrong type": (VALID.encode() + b"  max_steps: many\n", "bad.yaml:4:14 training.max_steps"),
    "yaml syntax": (b"training: {max_steps: 3\nmodel: [\n", "bad.yaml:"),
    "billion laughs": (BILLION_LAUGHS.encode(), "bad.yaml"),
    "empty": (b"", "bad.yaml"),
    "only a comment": (b"# nothing\n", "bad.yaml"),
    "list": (b"- 1\n- 2\n", "bad.yaml"),
    "binary": (b"\x7fELF\x02\x01\x00\x00\xff\xfe", "bad.yaml: is a binary file"),
    "not utf-8": (b"summary: caf\xe9\n", "bad.yaml:1:13"),
    "python object": (b"training: !!python/object/apply:os.system ['touch hacked']\n", "bad.yaml:1"),
    "key twice": (b"training: {seed: 1, seed: 2}\n", "bad.yaml:1"),
}


@pytest.mark.parametrize("defect", BAD_FILES)
@pytest.mark.parametrize(
    "line",
    [
        "validate bad.yaml",
        "lower bad.yaml --backend native --out out",
        "launch bad.yaml --backend native --out out",
        "compare bad.yaml --backends native --num-gpus 1 --out out",
    ],
)
def test_bad_file_is_refused_and_nothing_is_written(run_here: Run, tmp_path: Path, defect: str, line: str) -> None:
    content, expected = BAD_FILES[defect]
    (tmp_path / "bad.yaml").write_bytes(content)
    said = run_here(*line.split())
    assert (said.exit_code, said.out) == (2, "")
    assert expected in said.err
    assert len(said.err) < 2000
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("missing.yaml", "missing.yaml: no such file"),
        (".", "is a folder"),
        ("../x", "'..'"),
        ("../../etc/passwd", "'..'"),
        ("/etc/no-such-recipe", "no such file"),
        ("cpu/dpd", "did you mean cpu/ddp?"),
        ("cpu", "is a group of presets"),
        ("/dev/null", "/dev/null"),
    ],
)
def test_bad_reference_is_refused(run_here: Run, tmp_path: Path, reference: str, expected: str) -> None:
    said = run_here("lower", reference, "--backend", "native", "--out", "out")
    assert (said.exit_code, said.out) == (2, "")
    assert expected in said.err
    assert list(tmp_path.iterdir()) == []


def test_every_violation_of_every_file_is_said(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(VALID + "  seed: x\n  max_stepz: 4\n")
    (tmp_path / "two.yaml").write_text("training: {precision: fp12}\n")
    said = run_here("validate", "one.yaml", "cpu/ddp", "two.yaml", "gone.yaml")
    assert said.exit_code == 2
    assert said.out == "cpu/ddp: valid\n"
    for place in ("one.yaml:4:", "one.yaml:5:", "two.yaml:1:", "gone.yaml: no such file", "3 of 4 recipes invalid"):
        assert place in said.err


def test_violations_in_json_have_their_places(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(VALID + "  seed: x\n  max_stepz: 4\n")
    document = run_here("validate", "one.yaml", "cpu/ddp", "--json").document
    assert document["valid"] is False
    first, second = document["recipes"]
    assert [violation["line"] for violation in first["error"]["violations"]] == [4, 5]
    assert second == {"recipe": "cpu/ddp", "valid": True, "error": None}


def test_processes_that_do_not_fit_the_stages_are_refused(run_here: Run, tmp_path: Path) -> None:
    line = "lower h100-16-pipeline --backend native --num-gpus 3 --out out"
    said = run_here(*line.split())
    assert (said.exit_code, said.out) == (2, "")
    assert "4" in said.err
    assert "3" in said.err
    assert list(tmp_path.iterdir()) == []


def test_field_that_the_backend_lacks_is_refused_and_nothing_is_written(run_here: Run, tmp_path: Path) -> None:
    said = run_here("lower", "cpu/powersgd", "--backend", "deepspeed", "--out", "out")
    assert (said.exit_code, said.out) == (3, "")
    assert "communication.compression.method" in said.err
    assert list(tmp_path.iterdir()) == []


def test_out_that_is_a_file_is_refused(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    said = run_here("lower", "cpu/ddp", "--backend", "native", "--out", "out", "--no-reread")
    assert said.exit_code == 2
    assert (tmp_path / "out").read_text() == "mine"


def test_too_few_gpus_is_an_unfit_environment(run_here: Run, tmp_path: Path) -> None:
    said = run_here("launch", "h100-128", "--backend", "native", "--num-gpus", "1000000")
    assert said.exit_code == 4
    assert "the recipe needs 1000000 GPUs here" in said.err
    assert list(tmp_path.iterdir()) == []


def test_fsdp_through_accelerate_on_cpu_is_an_unfit_environment(run_here: Run, tmp_path: Path) -> None:
    said = run_here("launch", "cpu/fsdp", "--backend", "accelerate", "--json")
    assert said.exit_code == said.document["error"]["exit_code"] == 4
    assert "Accelerate cannot run FSDP on CPU" in said.err
    assert list(tmp_path.iterdir()) == []


def test_port_in_use_is_named(run_here: Run, tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        port = listener.getsockname()[1]
        line = f"launch cpu/ddp --backend native --num-nodes 2 --rdzv 127.0.0.1:{port}"
        said = run_here(*line.split())
    assert said.exit_code == 4
    assert f"port {port} is in use" in said.err
    assert list(tmp_path.iterdir()) == []


def test_missing_package_names_what_installs_it(tmp_path: Path) -> None:
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(HIDE_DEEPSPEED)
    work = tmp_path / "work"
    work.mkdir()
    said = run_command(["launch", "cpu/zero2", "--backend", "deepspeed"], folder=work, timeout=60, PYTHONPATH=str(shim))
    assert (said.exit_code, said.out) == (4, "")
    assert said.err == "gradwire: deepspeed is not installed: pip install 'gradwire[deepspeed]'\n"
    assert list(work.iterdir()) == []


# The interpreter's own path finder, but for one package: as if it were not installed.
HIDE_DEEPSPEED = """\
import sys
from importlib.machinery import PathFinder


class WithoutDeepspeed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] == "deepspeed" else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutDeepspeed
"""


def test_missing_target_library_leaves_the_lowering_unread_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDE_DEEPSPEED)
    line = "lower cpu/zero2 --backend deepspeed --out out --json"
    said = run_command(line.split(), folder=tmp_path, timeout=120, PYTHONPATH=str(tmp_path))
    assert said.exit_code == 0, said.err
    assert said.document["report"]["reread"]["status"] == "skipped"
    assert "deepspeed" in said.document["report"]["reread"]["reason"]
    assert sys.executable not in (tmp_path / "out" / "lowering.json").read_text()


@pytest.mark.parametrize("name", ["pipe.json", "zero.json"])
@pytest.mark.parametrize(
    "line",
    [
        "validate NAME",
        "lint NAME",
        "lint good.json --trainer-arguments NAME",
        "efficiency NAME",
        "report NAME",
        "report .",
        "compare --baseline NAME --fail-below 0.9 cpu/ddp --num-gpus 1",
    ],
)
def test_a_pipe_or_a_device_is_refused_and_not_waited_for(run_here: Run, tmp_path: Path, line: str, name: str) -> None:
    (tmp_path / "good.json").write_text("{}")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "measurement.json").symlink_to(tmp_path / name)
    said = run_here(*line.replace("NAME", name).split())
    assert said.exit_code == 2
    assert "is not a regular file" in said.out + said.err
