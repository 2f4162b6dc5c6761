"""Real runs through the command: launch, compare, a killed worker, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.command_runner import COMMAND, Said, run_command

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(240)]

ENDLESS = ("--set", "training.max_steps=100000")


def processes_of(folder: Path) -> dict[int, str | None]:
    """Return the living processes of the run in `folder`, each with its local rank."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            variables = (process / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        environment = dict(entry.split("=", 1) for entry in variables if "=" in entry)
        if environment.get("GRADWIRE_ERROR_FILE", "").startswith(f"{folder}/"):
            found[int(process.name)] = environment.get("LOCAL_RANK")
    return found


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the command ended early"
        assert time.monotonic() < deadline, "the run did not get that far"
        time.sleep(0.1)


def log_has(log: Path, text: str) -> bool:
    return log.exists() and text in log.read_text(errors="replace")


@contextmanager
def command(line: str, *words: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a command; when the block ends it is told to stop, and so ends its own processes."""
    process = subprocess.Popen(
        [*COMMAND, *line.split(), *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    with process:
        try:
            yield process
        finally:
            process.terminate()


def finish(process: subprocess.Popen[str]) -> Said:
    out, err = process.communicate(timeout=90)
    return Said(exit_code=process.returncode, out=out, err=err)


def test_launch_trains_and_measures(tmp_path: Path, run_here: Callable[..., Said]) -> None:
    line = "launch cpu/ddp --backend native --num-gpus 2 --set training.max_steps=6 --json"
    said = run_command(line.split(), folder=tmp_path, timeout=120)
    assert said.exit_code == 0, said.err
    document = said.document
    assert document["folder"] == "runs/cpu-ddp-native-2"
    measurement = document["measurement"]
    assert measurement == json.loads((tmp_path / "runs/cpu-ddp-native-2/measurement.json").read_text())
    assert measurement["world"]["world_size"] == 2
    assert measurement["losses"][-1] < measurement["losses"][0]
    assert "step 6/6" in said.err
    assert "step 6/6" in (tmp_path / "runs/cpu-ddp-native-2/launch.log").read_text()
    # The next run takes another folder.
    dry = run_here(*line.split(), "--dry-run")
    assert dry.document["folder"] == "runs/cpu-ddp-native-2.2"


def test_exit_code_of_a_rank_survives_the_launcher(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    line = "launch cpu/ddp --backend native --out out --set data.path=empty.txt"
    said = run_command(line.split(), folder=tmp_path, timeout=120)
    assert (said.exit_code, said.out) == (2, "")
    last = said.err[said.err.rindex("gradwire: ") :]
    assert "data.path empty.txt: holds no text" in last
    assert "out/launch.log" in last
    assert not (tmp_path / "out" / "measurement.json").exists()


def test_failing_script_is_named_with_its_exception(tmp_path: Path) -> None:
    # Each line in one write, and no end before both ranks spoke: the launcher kills what outlives a failure.
    (tmp_path / "train.py").write_text(
        "import os, pathlib, sys, time\n"
        "rank = os.environ['RANK']\n"
        "os.write(1, f'rank {rank} {\" \".join(sys.argv[1:])}\\n'.encode())\n"
        "pathlib.Path(f'said-{rank}').touch()\n"
        "while not (pathlib.Path('said-0').exists() and pathlib.Path('said-1').exists()):\n"
        "    time.sleep(0.05)\n"
        "if rank == '0':\n"
        "    time.sleep(60)\n"
        "raise ValueError('loss is odd')\n"
    )
    line = "launch cpu/ddp --backend native --out out -- train.py --epochs 2"
    said = run_command(line.split(), folder=tmp_path, timeout=120)
    assert (said.exit_code, said.out) == (1, "")
    log = (tmp_path / "out" / "launch.log").read_text()
    assert "rank 0 --epochs 2" in log
    assert "rank 1 --epochs 2" in log
    last = said.err[said.err.rindex("gradwire: ") :]
    assert last.startswith("gradwire: ValueError: loss is odd\n")


def test_time_limit_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(300)\n")
    line = "launch cpu/ddp --backend native --out out --timeout 6 -- train.py"
    said = run_command(line.split(), folder=tmp_path, timeout=120)
    assert said.exit_code == 1
    assert "stopped after 6 s: the time limit (--timeout)" in said.err
    assert processes_of(tmp_path) == {}


def test_killed_worker_is_named_and_leaves_no_process(tmp_path: Path) -> None:
    with command("launch cpu/ddp --backend native --out out", *ENDLESS, folder=tmp_path) as process:
        wait_for(lambda: log_has(tmp_path / "out" / "launch.log", "step 2/"), process)
        (victim,) = [pid for pid, rank in processes_of(tmp_path).items() if rank == "1"]
        os.kill(victim, signal.SIGKILL)
        said = finish(process)
    assert said.exit_code == 1
    assert "the process with local rank 1 was killed by SIGKILL" in said.err
    # The launcher tells the other rank to stop, which speaks before it does.
    last_words = [line for line in (tmp_path / "out" / "launch.log").read_text().splitlines() if "rank 0: " in line]
    assert any("rank 1 has died" in line for line in last_words), last_words
    assert processes_of(tmp_path) == {}
    assert not (tmp_path / "out" / "measurement.json").exists()


def test_interrupted_comparison_keeps_what_was_measured(tmp_path: Path) -> None:
    line = "compare cpu/ddp --backends native --num-gpus 1,2 --steps 4 --out out"
    with command(line, folder=tmp_path) as process:
        wait_for((tmp_path / "out" / "native-2" / "repeat-0" / "launch.log").exists, process)
        process.send_signal(signal.SIGINT)
        said = finish(process)
    assert said.exit_code == 130
    assert "1 of 2 runs were made and are kept" in said.err
    assert processes_of(tmp_path) == {}
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [(run["num_gpus"], run["status"]) for run in comparison["runs"]] == [(1, "ok")]


# Python imports a sitecustomize on its path: reading samples takes 0.2 s more, as from a slow disk.
SLOW_DISK = """\
import importlib.abc, importlib.util, sys, time

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "gradwire.train.data":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            cut = module.cut

            def slow_cut(*arguments):
                time.sleep(0.2)
                return cut(*arguments)

            module.cut = slow_cut

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.alone
def test_a_slower_run_does_not_pass_the_gate_and_an_equal_one_does(
    tmp_path: Path, run_here: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "compare cpu/ddp --backends native --num-gpus 1 --steps 4 --out before"
    first = run_here(*line.split())
    assert first.exit_code == 0, first.err
    baseline = (tmp_path / "before" / "comparison.json").read_bytes()
    again = "compare --baseline before/comparison.json --steps 4 --out {} --fail-below {}"
    # What a shared machine does to a run in between is no business of this test: a hundredth of the speed passes.
    equal = run_here(*again.format("equal", "0.01").split())
    assert equal.exit_code == 0, equal.err
    assert "gate: 1 cell at 1% or more of before/comparison.json" in equal.err
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "sitecustomize.py").write_text(SLOW_DISK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "slow"), prepend=os.pathsep)
    slower = run_here(*again.format("slower", "0.95").split())
    assert slower.exit_code == 5, slower.err
    assert "1 of 1 cell below 95% of before/comparison.json" in slower.err
    assert "native on 1: " in slower.err
    over = run_here(*again.format("before", "0.95").split())
    assert over.exit_code == 2
    assert "its comparison.json is the --baseline" in over.err
    assert (tmp_path / "before" / "comparison.json").read_bytes() == baseline


def test_comparison_shows_a_failed_cell_and_runs_the_rest(tmp_path: Path) -> None:
    line = "compare cpu/powersgd --backends deepspeed,native --num-gpus 2,1 --steps 4 --out out"
    said = run_command(line.split(), folder=tmp_path, timeout=200)
    assert said.exit_code == 1, said.err
    assert [text for text in said.err.splitlines() if text.startswith("[")][-1].startswith("[4/4] native on 1: ")
    assert "DeepSpeed reduces gradients itself" in " ".join(said.out.split())
    assert max(len(text) for text in said.out.splitlines()) <= 80
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [(cell["backend"], cell["num_gpus"], cell["status"]) for cell in comparison["cells"]] == [
        ("deepspeed", 2, "failed"),
        ("deepspeed", 1, "failed"),
        ("native", 2, "ok"),
        ("native", 1, "ok"),
    ], said.out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("comparison.json", "comparison.png", "comparison.svg", "report.html", "native-1", "native-2")
    }
    report = (tmp_path / "out" / "report.html").read_text()
    assert "gradwire compare cpu/powersgd" in report
