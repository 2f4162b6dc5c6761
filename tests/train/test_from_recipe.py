"""`from_recipe` gives a script of one's own what Accelerate's YAML cannot say, or says why it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gradwire.accelerate import from_recipe
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.plan import Backend, settle
from gradwire.recipe import load_recipe, parse_set

SCRIPT = """
import torch
from gradwire.accelerate import from_recipe
torch.backends.cuda.matmul.fp32_precision = "tf32"
run = from_recipe("cpu/ddp", overrides=["training.gradient_accumulation=2", "training.gradient_clip=0.5"])
assert run.accelerator.num_processes == run.plan.world.world_size == 1
assert run.accelerator.gradient_accumulation_steps == run.gradient_accumulation == 2
model = run.adapt(torch.nn.Linear(4, 1))
optimizer = run.optimizer(model.parameters())
assert isinstance(optimizer, torch.optim.AdamW) and optimizer.defaults["weight_decay"] == 0.1
model, optimizer = run.accelerator.prepare(model, optimizer)
norms, before = [], model.weight.detach().clone()
for micro_step in range(2):
    with run.accumulate(model):
        run.accelerator.backward(model(torch.ones(3, 4)).sum() * 100)
        norms.append(run.clip(model))
        optimizer.step()
        if micro_step == 0:
            assert torch.equal(model.weight, before)
        else:
            clipped = torch.cat([model.weight.grad.flatten(), model.bias.grad])
            torch.testing.assert_close(clipped.norm(), torch.tensor(0.5))
            assert not torch.equal(model.weight, before)
        optimizer.zero_grad()
# The mean over two equal micro-steps of a gradient of 300 in each of 5 elements.
assert norms[0] is None
torch.testing.assert_close(norms[1], torch.tensor(300 * 5**0.5))
# Asked for by its older name, torch would raise: a script may have used the newer one.
assert torch.backends.cuda.matmul.fp32_precision == "tf32"
"""


def write_plan(folder: Path, backend: Backend, *sets: str) -> None:
    loaded = load_recipe("cpu/ddp", overrides=[parse_set(text) for text in sets])
    plan = settle(loaded.recipe, recipe_name=loaded.name, backend=backend, device="cpu")
    (folder / "plan.json").write_bytes(msgspec.json.encode(plan))


def test_recipe_accumulates_clips_and_updates() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    words = [sys.executable, "-W", "error", "-c", SCRIPT]
    finished = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert finished.returncode == 0, finished.stderr


def test_folder_of_another_backend_is_refused(tmp_path: Path) -> None:
    write_plan(tmp_path, "native")
    with pytest.raises(UsageError, match=r"lowered for native.*--backend accelerate"):
        from_recipe(tmp_path)


def test_folder_takes_no_overrides(tmp_path: Path) -> None:
    write_plan(tmp_path, "accelerate")
    with pytest.raises(UsageError, match="settled already"):
        from_recipe(tmp_path, overrides=["training.seed=3"])


def test_folder_for_another_world_is_refused(tmp_path: Path) -> None:
    write_plan(tmp_path, "accelerate", "training.num_gpus=3")
    with pytest.raises(EnvironmentNotFit, match="for 3 processes, but 1 was started"):
        from_recipe(tmp_path)


def test_what_the_launcher_was_told_beside_the_recipe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "INDUCTOR")
    with pytest.raises(EnvironmentNotFit) as caught:
        from_recipe("cpu/ddp")
    first, second = str(caught.value).splitlines()
    assert "told mixed_precision bf16, and the recipe makes it no: leave it out there, and set training.prec" in first
    assert "told dynamo_backend inductor" in second


def test_fsdp_on_cpu_is_refused(tmp_path: Path) -> None:
    write_plan(tmp_path, "accelerate", "training.num_gpus=1", "parallelism.data.strategy=fsdp")
    with pytest.raises(EnvironmentNotFit, match="fsdp through Accelerate needs CUDA devices"):
        from_recipe(tmp_path)


def test_pipeline_is_refused() -> None:
    with pytest.raises(UsageError, match="Accelerate has no pipeline"):
        from_recipe("cpu/pipeline")


def test_unknown_override_is_refused() -> None:
    with pytest.raises(UsageError, match="learning_rat"):
        from_recipe("cpu/ddp", overrides=["training.learning_rat=1"])
