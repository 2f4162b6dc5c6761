"""The real libraries, in one long-lived process: reads a request as a JSON line, answers with a JSON line.

It is started by the tests with the interpreter that has torch; nothing here is imported by them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.update(DS_ACCELERATOR="cpu", ACCELERATE_USE_CPU="true", TOKENIZERS_PARALLELISM="false")
warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

FOLDER = Path(tempfile.mkdtemp())


def outcome(function: Any, *arguments: Any, **named: Any) -> dict[str, Any]:
    """{"ok": true, "value": ...} or {"ok": false, "error": ..., "message": ...}."""
    try:
        return {"ok": True, "value": function(*arguments, **named)}
    except BaseException as error:  # noqa: BLE001 - whatever the library raises is the answer
        return {"ok": False, "error": type(error).__name__, "message": str(error)[:400]}


def deepspeed(request: dict[str, Any]) -> dict[str, Any]:
    """Load a configuration, as text or as a mapping, at a world size."""
    import deepspeed.runtime.config as module

    world = request.get("world", 1)
    module.dist = SimpleNamespace(get_rank=lambda: 0, get_world_size=lambda *_: world)
    config = request.get("config")
    if config is None:
        path = FOLDER / "config.json"
        path.write_bytes(request["text"].encode())
        config = str(path)
    return outcome(lambda: _effective(module.DeepSpeedConfig(config)))


def _effective(config: Any) -> dict[str, Any]:
    zero = config.zero_config
    return {
        "train_batch_size": config.train_batch_size,
        "train_micro_batch_size_per_gpu": config.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": config.gradient_accumulation_steps,
        "gradient_clipping": config.gradient_clipping,
        "stage": int(zero.stage),
        "zero": json.loads(json.dumps(zero.model_dump(), default=str)),
        "fp16": json.loads(json.dumps(config.float16_config.model_dump(), default=str)),
        "bf16": json.loads(json.dumps(config.bfloat16_config.model_dump(), default=str)),
        "optimizer": config.optimizer_name,
        "optimizer_params": config.optimizer_params,
    }


def fill(request: dict[str, Any]) -> dict[str, Any]:
    """What the Trainer makes of a configuration with its arguments; raises at a mismatch, as the Trainer does."""
    from transformers import TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    def filled() -> Any:
        arguments = TrainingArguments(output_dir=str(FOLDER), use_cpu=True, report_to=[], **request.get("arguments", {}))
        config = HfTrainerDeepSpeedConfig(request["config"])
        config.trainer_config_process(arguments)
        config.trainer_config_finalize(arguments, SimpleNamespace(config=SimpleNamespace(hidden_size=64)), 100)
        return config.config

    return outcome(filled)


def accelerate(request: dict[str, Any]) -> dict[str, Any]:
    """Load an Accelerate file, settle the launch, and return what the worker processes get in their environment."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env, prepare_simple_launcher_cmd_env

    path = FOLDER / ("config" + request.get("suffix", ".yaml"))
    path.write_bytes(request["text"].encode())

    def settled() -> dict[str, Any]:
        parser = launch.launch_command_parser()
        argv = ["--config_file", str(path), *request.get("argv", []), "train.py"]
        arguments, defaults, from_file = launch._validate_launch_command(parser.parse_args(argv))
        before = dict(os.environ)
        kind = "simple"
        if arguments.use_deepspeed:
            kind = "deepspeed"
            fields = list(defaults.deepspeed_config.keys()) + (["mixed_precision"] if from_file else [])
            arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
            environment = prepare_deepspeed_cmd_env(arguments)[1]
        elif arguments.use_fsdp or arguments.use_megatron_lm or arguments.multi_gpu:
            kind = "several"
            environment = prepare_multi_gpu_env(arguments)
        else:
            environment = prepare_simple_launcher_cmd_env(arguments)[1]
        added = {key: value for key, value in environment.items() if before.get(key) != value}
        return {
            "launcher": kind,
            "environment": added,
            "num_processes": arguments.num_processes,
            "per_node": getattr(arguments, "nproc_per_node", None),
        }

    return outcome(settled)


def plugin(request: dict[str, Any]) -> dict[str, Any]:
    """Build Accelerate's DeepSpeed or FSDP plugin, or its device mesh, from an environment."""
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import DeepSpeedPlugin, FullyShardedDataParallelPlugin

    saved = dict(os.environ)
    os.environ.update(request["environment"])
    try:
        if request["kind"] == "fsdp":
            return outcome(lambda: str(vars(FullyShardedDataParallelPlugin())))
        if request["kind"] == "mesh":
            return outcome(lambda: ParallelismConfig().total_size)

        def built() -> Any:
            made = DeepSpeedPlugin(hf_ds_config=request.get("config"))
            if "mixed_precision" in request:
                made.set_mixed_precision(request["mixed_precision"])
            return json.loads(json.dumps(made.deepspeed_config, default=str))

        return outcome(built)
    finally:
        os.environ.clear()
        os.environ.update(saved)


def construct(request: dict[str, Any]) -> dict[str, Any]:
    """Construct an optimizer or a scheduler with parameters, as the engine does."""
    import torch
    from deepspeed.runtime import lr_schedules

    weights = [torch.nn.Parameter(torch.zeros(2))]
    if request["what"] == "optimizer":
        return outcome(lambda: type(getattr(torch.optim, request["name"])(weights, **request["params"])).__name__)

    def rates() -> list[float]:
        optimizer = torch.optim.SGD(weights, lr=request.get("lr", 0.1))
        scheduler = getattr(lr_schedules, request["name"])(optimizer, **request["params"])
        found = []
        for _ in range(request.get("steps", 0)):
            optimizer.step()
            scheduler.step()
            found.append(float(optimizer.param_groups[0]["lr"]))
        return found

    return outcome(rates)


def facts(request: dict[str, Any]) -> dict[str, Any]:
    """The names that the libraries know: fields of models, groups of arguments, keys that are read."""
    from library_names import library_names

    return outcome(library_names)


REQUESTS = {function.__name__: function for function in (deepspeed, fill, accelerate, plugin, construct, facts)}


def main() -> None:
    """Answer until the input ends; the libraries' own output goes to stderr."""
    parser = argparse.ArgumentParser()
    parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        with contextlib.redirect_stdout(sys.stderr):
            answer = REQUESTS[request.pop("do")](request)
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
