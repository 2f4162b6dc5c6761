"""`gradwire measure` around real commands that know nothing of Gradwire."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradwire.documents.measurement_schema import Measurement
from gradwire.measure.measurement import read_measurement
from gradwire.measure.steps import read_steps
from tests.distributed.real_runs import Finished, run_words

pytestmark = pytest.mark.distributed

SCRIPTS = Path(__file__).with_name("watched")
GRADWIRE = (sys.executable, "-m", "gradwire", "measure")
TORCHRUN = ("torchrun", "--standalone", "--nproc-per-node", "2")


def measure(
    folder: Path, *words: str | Path, options: tuple[str, ...] = (), **variables: str
) -> tuple[Finished, Measurement]:
    ended = run_words(*GRADWIRE, *options, "--out", folder, "--", *words, **variables)
    assert (folder / "measurement.json").exists(), ended.output
    return ended, read_measurement(folder / "measurement.json")


def text_of(measurement: Measurement) -> str:
    return "\n".join(measurement.notes)


def test_a_plain_script_is_measured_and_its_exit_code_passed_on(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('the real sitecustomize')\n", encoding="utf-8")
    path = os.pathsep.join([str(other), os.environ.get("PYTHONPATH", "")])
    words = (sys.executable, "-W", "error", SCRIPTS / "plain.py", tmp_path, "fail")
    ended, found = measure(tmp_path / "run", *words, PYTHONPATH=path)
    assert ended.exit_code == 7
    assert "done fail" in ended.output
    assert "the real sitecustomize" in ended.output
    # 2 epochs of 12 batches of 4 sequences of 10 tokens, two to a step; the first step is where watching begins.
    assert (found.steps.trained, found.steps.warmup, found.steps.timed) == (12, 3, 9)
    assert (found.throughput.timed_samples, found.throughput.timed_tokens) == (9 * 8, 9 * 80)
    assert (found.workload.batch_size_per_gpu, found.workload.gradient_accumulation) == (4, 2)
    assert (found.workload.sequence_length, found.workload.optimizer) == (10, "AdamW")
    assert found.workload.model == "Sequential with 272 parameters"
    assert (found.backend, found.world.world_size, found.recipe_name) == ("native", 1, "plain.py")
    assert found.steps.excluded_seconds is not None
    assert found.steps.excluded_seconds > 0
    log = read_steps(tmp_path / "run")
    assert [step.tokens for step in log.steps] == [0] + [80] * 11
    assert "pass --layers and --hidden-size" in str(found.utilization.reason)
    split = found.time_split
    assert split is not None
    assert found.step_seconds.mean == pytest.approx(
        split.input_wait + split.compute + split.optimizer + split.straggler_wait + split.other
    )


def test_two_ranks_of_torchrun_are_one_run(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="prometheus_client is not installed")
    tracked = ("--tracker", "prometheus")
    ended, found = measure(tmp_path / "run", *TORCHRUN, SCRIPTS / "plain.py", tmp_path, options=tracked)
    ended.check(leaves_as_python_does=True)
    metrics = (tmp_path / "run" / "metrics.prom").read_text(encoding="utf-8")
    assert 'gradwire_step{run="run"} 12.0' in metrics
    assert ended.output.count("done") == 2
    assert (found.world.world_size, found.world.processes_per_node, found.world.num_nodes) == (2, 2, 1)
    assert found.throughput.timed_tokens == 2 * 9 * 80
    assert [step.samples for step in read_steps(tmp_path / "run").steps] == [0] + [16] * 11
    assert found.time_split is not None
    assert found.time_split.exposed_communication is None
    assert "communication cannot be told from compute" in text_of(found)
    assert "2 processes on cpu" in ended.output


def test_ranks_that_share_a_batch_count_it_once_on_a_real_mesh(tmp_path: Path) -> None:
    """Two data-parallel groups of two tensor-parallel ranks: what four processes count is what two groups trained."""
    words = ("torchrun", "--standalone", "--nproc-per-node", "4", SCRIPTS / "several_dimensions.py", tmp_path)
    ended, found = measure(tmp_path / "run", *words)
    ended.check(leaves_as_python_does=True)
    counted = [json.loads((tmp_path / f"counted-{rank}.json").read_text(encoding="utf-8")) for rank in range(4)]
    # A batch is 3 sequences of 8 tokens. Ranks 0 and 1 train one, 2 and 3 the other; the first of each counts it.
    assert [each["tokens"] for each in counted] == [[24] * 6, [0] * 6, [24] * 6, [0] * 6]
    assert [each["samples"] for each in counted] == [[3] * 6, [0] * 6, [3] * 6, [0] * 6]
    assert counted[0]["loss"] == pytest.approx(counted[1]["loss"])
    assert counted[0]["loss"] != pytest.approx(counted[2]["loss"])
    # A rate over all ranks is that of one of them times four, although two count nothing.
    rates = counted[3]["rates"]
    assert rates == counted[0]["rates"]
    assert rates["throughput/tokens_per_sec"] == pytest.approx(4 * rates["throughput/device/tokens_per_sec"])
    assert rates["throughput/tokens_per_sec"] == pytest.approx(8 * rates["throughput/samples_per_sec"])
    # Context parallel: each group's sequences once, and each rank's slice of their tokens.
    assert [each["slices"] for each in counted] == [[3, 12], [0, 12], [3, 12], [0, 12]]
    # The same from outside, by the meshes that the parameters lie on.
    assert (found.throughput.timed_samples, found.throughput.timed_tokens) == (3 * 6, 3 * 48)
    assert found.workload.model == "Net with 1,392 parameters"


def test_accelerate_launch_with_padding(tmp_path: Path) -> None:
    launch = "accelerate launch --num_processes 2 --multi_gpu --num_machines 1 --mixed_precision no --dynamo_backend no"
    words = (*launch.split(), "--main_process_port", "0", SCRIPTS / "accelerated.py")
    ended, found = measure(tmp_path / "run", *words, ACCELERATE_USE_CPU="true")
    ended.check(leaves_as_python_does=True)
    assert (found.backend, found.world.world_size, found.steps.trained) == ("accelerate", 2, 6)
    # Sequences of 4 and of 8 tokens, padded to 8; four on each rank in a step.
    assert (found.throughput.timed_tokens, found.throughput.timed_slots) == (3 * 48, 3 * 64)


def test_the_trainer_whose_evaluation_and_checkpoints_are_in_no_step(tmp_path: Path) -> None:
    peak = ("--peak-flops", "1e15")
    ended, found = measure(tmp_path / "run", *TORCHRUN, SCRIPTS / "trainer.py", tmp_path, options=peak)
    ended.check(leaves_as_python_does=True)
    assert ended.output.count(" done") == 2
    assert (found.world.world_size, found.steps.trained, found.backend) == (2, 8, "accelerate")
    assert (found.throughput.timed_samples, found.throughput.timed_tokens) == (2 * 5 * 8, 2 * 5 * 64)
    assert found.steps.excluded_seconds is not None
    assert found.steps.excluded_seconds > 0
    assert found.workload.model.startswith("GPT2LMHeadModel with ")
    # The model's own sizes, and those of its sequences: nothing was given but the peak.
    assert found.utilization.mfu is not None
    assert found.utilization.mfu * 1e15 == pytest.approx(found.utilization.model_flops_per_second_per_rank)
    assert "L 1, h 8, s 8; attention whole" in str(found.utilization.flops_formula)
    assert found.utilization.hfu == found.utilization.mfu


def test_a_command_without_training_is_left_alone(tmp_path: Path) -> None:
    ended = run_words(*GRADWIRE, "--out", tmp_path / "run", "--", sys.executable, "-c", "import sys; sys.exit(3)")
    assert ended.exit_code == 3
    assert "nothing was measured: no process of the command stepped an optimizer" in ended.output


def test_a_fault_of_the_watching_does_not_reach_the_command(tmp_path: Path) -> None:
    # The folder is gone by the time a rank wants to write into it, and a file is in its place.
    program = (
        "import os, shutil, sys; folder = os.environ['GRADWIRE_MEASURE']; shutil.rmtree(folder); open(folder, 'w');"
        f"sys.argv = ['plain.py', {str(tmp_path)!r}]; exec(open({str(SCRIPTS / 'plain.py')!r}).read())"
    )
    ended = run_words(*GRADWIRE, "--out", tmp_path / "run", "--", sys.executable, "-c", program)
    assert ended.exit_code == 0, ended.output
    assert "done" in ended.output
    assert "gradwire measure: stopped watching this process, whose run goes on" in ended.output
    assert ended.output.count("stopped watching") == 1


KILLED = """
import os, sys, torch
model = torch.nn.Embedding(16, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10**9):
    model(torch.zeros(2, 5, dtype=torch.long)).sum().backward()
    optimizer.step()
    if step == 20:
        print("ready", os.getpid(), flush=True)
"""


def test_a_killed_command_leaves_its_finished_steps(tmp_path: Path) -> None:
    (tmp_path / "forever.py").write_text(KILLED, encoding="utf-8")
    words: list[Any] = [*GRADWIRE, "--out", tmp_path / "run", "--", sys.executable, tmp_path / "forever.py"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as started:
        assert started.stdout is not None
        word, pid = started.stdout.readline().split()
        assert word == "ready"
        os.kill(int(pid), signal.SIGKILL)
        assert started.wait(60) == 128 + signal.SIGKILL
    found = read_measurement(tmp_path / "run" / "measurement.json")
    assert found.steps.trained >= 20
    assert found.throughput.timed_tokens == 10 * found.steps.timed
    assert len(read_steps(tmp_path / "run").steps) == found.steps.trained


def test_a_signal_goes_on_to_the_command(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(9));"
        "print('ready', flush=True); time.sleep(60)"
    )
    words: list[Any] = [*GRADWIRE, "--out", tmp_path / "run", "--", sys.executable, "-c", program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "ready\n"
        started.send_signal(signal.SIGTERM)
        assert started.wait(60) == 9


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "a command is missing"),
        (("--", "no-such-command"), "no-such-command: no such command"),
        (("--warmup-steps", "0", "--", "true"), "--warmup-steps"),
        (("--tracker", "tensorbord", "--", "true"), "no such tracker: tensorbord"),
    ],
)
def test_misuse_says_what_is_missing(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    ended = run_words(*GRADWIRE, "--out", tmp_path / "run", *words)
    assert ended.exit_code == 2
    assert said in ended.output
