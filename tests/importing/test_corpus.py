"""Real public files: what DeepSpeed loads from the lowered recipe is what it loads from the file."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from gradwire.errors import CannotImport, UsageError
from gradwire.importing.engine import Imported, import_job
from gradwire.importing.lowered import Target, lower_for
from gradwire.recipe.load import load_text
from gradwire.targets.filling import TRAINER_FILLED, loader_of
from gradwire.targets.job import Job, LaunchFacts
from gradwire.targets.loading import load_document
from gradwire.targets.tree import Document
from tests import corpus
from tests.corpus import results
from tests.importing.importing import text_of
from tests.importing.real_values import acting
from tests.lint.oracle_client import Oracle

pytestmark = corpus.NEEDED

IMPORTED_AT_LEAST = 0.75
"""Share of the files that load and that a recipe can say whole; the others name the keys that it cannot."""


def _job(row: dict[str, str]) -> Job:
    document = load_document(corpus.folder() / row["file"])
    assert isinstance(document, Document)
    if document.kind == "accelerate":
        return Job(accelerate=document)
    # One hidden size for all, and the number of processes at which the file was seen to work.
    world = row["works_at_world_size"]
    facts = LaunchFacts(num_processes=int(world) if world.isdigit() else 1, hidden_size=64)
    return Job(deepspeed=document, facts=facts)


def _needs_another_file(error: UsageError) -> bool:
    return "deepspeed_config_file: it names" in str(error)


def test_files_that_load_are_imported_or_refused_by_a_named_key() -> None:
    counts: Counter[str] = Counter()
    for row in results():
        if row["verdict"] in ("error", "plugin-error"):
            continue
        try:
            import_job(_job(row))
            counts["imported"] += 1
        except CannotImport as error:
            counts["refused"] += 1
            assert all(str(corpus.folder()) in text for text in error.refused_keys[:1]), row["file"]
        except UsageError as error:
            # An Accelerate file whose DeepSpeed JSON is not in the folder, or what DeepSpeed refuses only later.
            assert _needs_another_file(error) or row["verdict"] == "config-ok-later-fails", (row["file"], str(error))
            counts["incomplete"] += 1
    share = counts["imported"] / (counts["imported"] + counts["refused"])
    print(f"\n{dict(counts)} of {counts.total()} files that load; {share:.0%} of the complete ones are imported")
    assert share >= IMPORTED_AT_LEAST, counts


def test_files_that_do_not_load_are_not_imported() -> None:
    """Reading a file here tells what the library refuses; but for what only a CUDA machine has."""
    for row in results():
        if row["verdict"] == "error" and "only supported for CUDA" not in str(row):
            with pytest.raises(UsageError, match="refuses"):
                import_job(_job(row))


def test_nothing_is_written_that_is_not_valid() -> None:
    for row, imported, job in _imported(allow_lossy=True):
        assert load_text(text_of(imported, job), source=row["file"]).recipe, row["file"]


def test_deepspeed_loads_the_same_values(oracle: Oracle) -> None:
    """Every value that acts, as the real library loads it: the optimizer of a script of the file's owner excepted."""
    compared = 0
    for row, imported, job in _imported(allow_lossy=False):
        if job.deepspeed is None or row["verdict"] == "error":
            continue
        recipe = load_text(text_of(imported, job), source=row["file"]).recipe
        lowered = lower_for(recipe, Target(backend="deepspeed", device="cuda", num_nodes=1)).files["deepspeed.json"]
        world = job.facts.num_processes
        before = oracle.ask("deepspeed", config=_handed_over(job, oracle), world=world)
        after = oracle.ask("deepspeed", text=lowered, world=world)
        assert before["ok"] and after["ok"], (row["file"], before, after)
        one, other = acting(before["value"], world), acting(after["value"], world)
        if one["optimizer"] is None:
            other |= {"optimizer": None, "params": one["params"]}
        assert one == other, row["file"]
        compared += 1
    assert compared >= 45


def test_accelerate_starts_the_same(oracle: Oracle) -> None:
    """The environment of the ranks, as the real launcher makes it, and the DeepSpeed configuration that it leads to."""
    compared = 0
    for row, imported, job in _imported(allow_lossy=False):
        if job.accelerate is None:
            continue
        recipe = load_text(text_of(imported, job), source=row["file"]).recipe
        options = dict(zip(imported.lower_options[::2], imported.lower_options[1::2], strict=True))
        device = recipe.training.device or "cuda"
        target = Target(backend="accelerate", device=device, num_nodes=int(options.get("--num-nodes", 1)))
        files = lower_for(recipe, target).files
        before, after = (
            oracle.ask("accelerate", text=text) for text in (job.accelerate.text, files["accelerate.yaml"])
        )
        assert before["ok"] and after["ok"], (row["file"], before, after)
        assert _ranks(before["value"]) == _ranks(after["value"]), row["file"]
        if "deepspeed.json" in files:
            own = oracle.ask("plugin", kind="deepspeed", environment=before["value"]["environment"])
            config = {key: value for key, value in own["value"].items() if value != "auto" and key != "steps_per_print"}
            precision = before["value"]["environment"].get("ACCELERATE_MIXED_PRECISION", "no")
            config |= {"train_micro_batch_size_per_gpu": 1}
            if precision != "no":
                config |= {precision: {"enabled": True, **({"auto_cast": True} if precision == "fp16" else {})}}
            world = recipe.training.num_gpus
            one = oracle.ask("deepspeed", config=config, world=world)
            other = oracle.ask("deepspeed", text=files["deepspeed.json"], world=world)
            free = {"zero_force_ds_cpu_optimizer": None}
            assert acting(one["value"], world) | free == acting(other["value"], world) | free, row["file"]
        compared += 1
    assert compared >= 8


def _ranks(started: dict[str, Any]) -> dict[str, Any]:
    """What decides how the ranks train, of a launcher's answer; the rest are ports, and settings that do not act."""
    environment = started["environment"]
    version = environment.get("FSDP_VERSION", "1")
    idle = {"1": ("FSDP_RESHARD_AFTER_FORWARD",), "2": ("FSDP_SHARDING_STRATEGY", "FSDP_BACKWARD_PREFETCH")}[version]
    if environment.get("FSDP_AUTO_WRAP_POLICY") != "SIZE_BASED_WRAP":
        idle = (*idle, "FSDP_MIN_NUM_PARAMS")
    settings = {
        key: value.lower()
        for key, value in environment.items()
        # Where a recipe says so, the model itself recomputes its activations.
        if key != "FSDP_ACTIVATION_CHECKPOINTING"
        and key.startswith(("FSDP_", "ACCELERATE_USE_", "PARALLELISM_"))
        and key not in idle
        and (key, value.lower()) != ("ACCELERATE_USE_CPU", "false")
    }
    if "ACCELERATE_USE_DEEPSPEED" not in environment:
        settings["precision"] = environment["ACCELERATE_MIXED_PRECISION"]
    hidden = {"FSDP_AUTO_WRAP_POLICY": "no_wrap", "FSDP_BACKWARD_PREFETCH": "no_prefetch"}
    hidden["FSDP_STATE_DICT_TYPE"] = {"1": "full_state_dict", "2": "sharded_state_dict"}[version]
    if settings.get("FSDP_SHARDING_STRATEGY") == "1":
        settings["FSDP_SHARDING_STRATEGY"] = "full_shard"
    return {**hidden, **settings, "num_processes": started["num_processes"]}


def _imported(*, allow_lossy: bool) -> list[tuple[dict[str, str], Imported, Job]]:
    found = []
    for row in results():
        imported, job = _once(row["file"], row["works_at_world_size"], allow_lossy)
        if imported is not None:
            found.append((row, imported, job))
    return found


@cache
def _once(file: str, world: str, allow_lossy: bool) -> tuple[Imported | None, Job]:
    job = _job({"file": file, "works_at_world_size": world})
    try:
        return import_job(job, allow_lossy=allow_lossy), job
    except (CannotImport, UsageError):
        return None, job


def _handed_over(job: Job, oracle: Oracle) -> dict[str, Any]:
    """The configuration as DeepSpeed gets it: from the Trainer, with arguments that agree, where it leaves values."""
    document = job.deepspeed
    assert document is not None
    config: dict[str, Any] = document.root.data
    if loader_of(document, job) != "trainer":
        return config
    arguments = {
        argument: document.value(path)
        for path, argument, _ in TRAINER_FILLED
        if document.value(path) not in (None, "auto", False)
    }
    betas = document.value("optimizer.params.betas")
    if isinstance(betas, list):
        arguments |= {"adam_beta1": betas[0], "adam_beta2": betas[1]}
    warmup = document.value("scheduler.params.warmup_num_steps")
    if isinstance(warmup, int):
        arguments["warmup_steps"] = warmup
    filled = oracle.ask("fill", config=config, arguments=arguments)
    assert filled["ok"], (document.source, filled)
    value: dict[str, Any] = {"gradient_accumulation_steps": 1, **filled["value"]}
    if config.get("train_batch_size") == "auto":
        # The Trainer multiplies by its own world size, which is 1 here.
        per_rank = value.pop("train_batch_size")
        if "train_micro_batch_size_per_gpu" not in config:
            value["train_batch_size"] = per_rank * (job.facts.num_processes or 1)
    return value
