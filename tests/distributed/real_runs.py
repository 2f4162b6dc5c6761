"""Lowers a tiny recipe and runs it under a real launcher, with a time limit and no process left behind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gradwire.artifact import write_artifact
from gradwire.documents.measurement_schema import Measurement
from gradwire.launch.process import run
from gradwire.lowering import Placement, lower
from gradwire.measure.measurement import read_measurement
from gradwire.plan import Backend, Device, settle
from gradwire.recipe import load_recipe, parse_set

DRIVER = Path(__file__).with_name("train_several.py")

RECIPE = """
model: {family: gpt2, hidden_size: 32, layers: 4, attention_heads: 4, sequence_length: 48}
training:
  learning_rate: 3e-3
  weight_decay: 0.1
  gradient_clip: 1.0
  batch_size_per_gpu: 2
  gradient_accumulation: 4
  num_gpus: 2
  device: cpu
  max_steps: 10
  seed: 1
measurement: {warmup_steps: 2}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """Exit code and whole output of one command."""

    exit_code: int
    output: str

    def check(self, *, leaves_as_python_does: bool = False) -> None:
        """Fail unless the command ended well.

        `leaves_as_python_does`: a user's script, which lets Python end the process. There one of torch's own threads
        may ask for an interpreter that is gone by then, and abort a process that has done all its work; gradwire.train
        leaves in another way.
        """
        aborted_at_the_end = leaves_as_python_does and "terminate called without an active exception" in self.output
        assert self.exit_code == 0 or aborted_at_the_end, self.output


def lowered(folder: Path, backend: Backend, *sets: str, device: Device = "cpu") -> Path:
    """Lower the tiny recipe with `sets` (as `--set`) into `folder` and return it."""
    folder.mkdir(parents=True)
    recipe_file = folder / "recipe.yaml"
    recipe_file.write_text(RECIPE, encoding="utf-8")
    loaded = load_recipe(str(recipe_file), overrides=[parse_set(text) for text in sets])
    plan = settle(loaded.recipe, recipe_name=loaded.name, backend=backend, device=device)
    write_artifact(lower(plan, placement=Placement(out_folder=folder)), folder)
    return folder


def run_words(*words: str | Path, seconds: float = 150, **environment: str) -> Finished:
    """Run `words` and return how it ended."""
    log = Path(os.environ.get("TMPDIR", "/tmp")) / f"gradwire-test-{os.getpid()}.log"
    ended = run(
        [str(word) for word in words],
        environment={**os.environ, **environment},
        log=log,
        timeout_seconds=seconds,
    )
    output = log.read_text(encoding="utf-8", errors="replace")
    log.unlink()
    assert not ended.timed_out, f"{words} took more than {seconds} s:\n{output}"
    return Finished(exit_code=ended.exit_code, output=output)


def torchrun(processes: int, *words: str | Path, **environment: str) -> Finished:
    """Run a script, or `-m MODULE`, under torchrun."""
    return run_words("torchrun", "--standalone", "--nproc-per-node", str(processes), *words, **environment)


def train_in_one_group(folders: Sequence[Path], processes: int, *, seconds: float = 280) -> list[Measurement]:
    """Train the plans in `folders`, of any backend, one after another in one start; return what each measured."""
    words = ("torchrun", "--standalone", "--nproc-per-node", str(processes), DRIVER)
    run_words(*words, *folders, seconds=seconds).check()
    return [read_measurement(folder / "measurement.json") for folder in folders]
