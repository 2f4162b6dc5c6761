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


def many(request: dict[str, Any]) -> dict[str, Any]:
    """Answers to many requests of one kind at once: whether each was taken, and the error where not."""
    function = REQUESTS[request["what"]]
    return {
        "ok": True,
        "value": [
            {key: answer[key] for key in ("ok", "error", "message") if key in answer}
            for answer in map(function, request["requests"])
        ],
    }


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
        "grad_accum_dtype": config.grad_accum_dtype,
        "optimizer": config.optimizer_name,
        "optimizer_params": config.optimizer_params,
        "scheduler": config.scheduler_name,
        "scheduler_params": config.scheduler_params,
        "communication_data_type": None
        if config.communication_data_type is None
        else str(config.communication_data_type),
        "prescale_gradients": config.prescale_gradients,
        "gradient_predivide_factor": config.gradient_predivide_factor,
        "zero_allow_untested_optimizer": config.zero_allow_untested_optimizer,
        "zero_force_ds_cpu_optimizer": config.zero_force_ds_cpu_optimizer,
        "torch_autocast": [config.torch_autocast_enabled, str(config.torch_autocast_dtype)],
    }


def fill(request: dict[str, Any]) -> dict[str, Any]:
    """What the Trainer makes of a configuration with its arguments; raises at a mismatch, as the Trainer does."""
    from transformers import TrainingArguments
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    def filled() -> Any:
        arguments = TrainingArguments(
            output_dir=str(FOLDER), use_cpu=True, report_to=[], **request.get("arguments", {})
        )
        config = HfTrainerDeepSpeedConfig(request["config"])
        config.trainer_config_process(arguments)
        config.trainer_config_finalize(arguments, SimpleNamespace(config=SimpleNamespace(hidden_size=64)), 100)
        return config.config

    return outcome(filled)


def accelerate(request: dict[str, Any]) -> dict[str, Any]:
    """Load an Accelerate file, settle the launch, and return what the worker processes get in their environment."""
    from accelerate.commands import launch
    from accelerate.utils.launch import (
        prepare_deepspeed_cmd_env,
        prepare_multi_gpu_env,
        prepare_simple_launcher_cmd_env,
    )

    path = FOLDER / ("config" + request.get("suffix", ".yaml"))
    path.write_bytes(request["text"].encode())

    def settled() -> dict[str, Any]:
        parser = launch.launch_command_parser()
        argv = ["--config_file", str(path), *request.get("argv", []), "train.py"]
        arguments, defaults, from_file = launch._validate_launch_command(parser.parse_args(argv))
        before = dict(os.environ)
        kind, command = "simple", None
        if arguments.use_deepspeed:
            kind = "deepspeed"
            fields = list(defaults.deepspeed_config.keys()) + (["mixed_precision"] if from_file else [])
            arguments.deepspeed_fields_from_accelerate_config = ",".join(fields)
            command, environment = prepare_deepspeed_cmd_env(arguments)
        elif arguments.use_fsdp or arguments.use_megatron_lm or arguments.multi_gpu:
            kind = "several"
            environment = prepare_multi_gpu_env(arguments)
        else:
            environment = prepare_simple_launcher_cmd_env(arguments)[1]
        added = {key: value for key, value in environment.items() if before.get(key) != value}
        return {
            "launcher": kind,
            "command": command or [],
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


def launch_and_plugin(request: dict[str, Any]) -> dict[str, Any]:
    """Settle a launch, then build what the worker would build of it: the plugin, and DeepSpeed's own configuration."""
    answer = accelerate(request)
    if not answer["ok"]:
        return answer
    environment = answer["value"]["environment"]
    if "ACCELERATE_USE_PARALLELISM_CONFIG" in environment:
        mesh = plugin({"kind": "mesh", "environment": environment})
        if not mesh["ok"]:
            return mesh
    if "ACCELERATE_USE_FSDP" in environment:
        # Sending parameters from rank 0 needs a device, which is not what is asked here.
        quiet = {"FSDP_SYNC_MODULE_STATES": "false"}
        if environment["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "true":
            quiet["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
        if environment["FSDP_SYNC_MODULE_STATES"] not in ("true", "false"):
            quiet = {"FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
        return _without_device(plugin({"kind": "fsdp", "environment": environment | quiet}))
    if "ACCELERATE_USE_DEEPSPEED" in environment:
        built = plugin({"kind": "deepspeed", "environment": environment})
        return _loaded(built["value"]) if built["ok"] else built
    return answer


def _without_device(answer: dict[str, Any]) -> dict[str, Any]:
    missing = "no currently available devices" in answer.get("message", "").replace("There are no", "no")
    return {"ok": True, "value": None} if missing else answer


def _loaded(config: dict[str, Any]) -> dict[str, Any]:
    """DeepSpeed's own reading of a plugin's configuration, with the batch that prepare() would have filled in."""
    filled = {key: value for key, value in config.items() if value != "auto" and key != "steps_per_print"}
    return deepspeed({"config": filled | {"train_batch_size": 8}})


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


def initialize(request: dict[str, Any]) -> dict[str, Any]:
    """Start the real engine on a small model, in a world of one process on the CPU, and take one step."""
    import deepspeed as library
    import deepspeed.runtime.config as module
    import torch

    module.dist = library.comm
    os.environ.update(
        RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(request["port"])
    )

    def stepped() -> str:
        model = torch.nn.Linear(4, 4)
        engine, *_ = library.initialize(model=model, model_parameters=model.parameters(), config=request["config"])
        inputs = torch.ones(2, 4)
        if engine.bfloat16_enabled() and not request.get("raw_inputs"):
            inputs = inputs.bfloat16()
        engine.backward(engine(inputs).sum())
        engine.step()
        return type(engine.optimizer).__name__

    return outcome(stepped)


def facts(request: dict[str, Any]) -> dict[str, Any]:
    """The names that the libraries know: fields of models, groups of arguments, keys that are read."""
    from library_names import library_names

    return outcome(library_names)


REQUESTS = {
    function.__name__: function
    for function in (deepspeed, fill, accelerate, plugin, launch_and_plugin, construct, initialize, facts, many)
}


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
