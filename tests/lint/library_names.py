"""The names that the installed libraries know, found in their models, signatures and parsers and by watching them read.

Runs in the oracle's process, where the libraries are.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
from typing import Any


class Watched(dict[str, Any]):
    """A mapping that remembers which keys were asked for; a section inside it is watched too."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.asked: set[str] = set()

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def keys(self) -> Any:
        return _Keys(self)


class _Keys:
    """What `keys()` of a watched mapping returns: membership is watched."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def __contains__(self, key: object) -> bool:
        return key in self.watched

    def __iter__(self) -> Any:
        return iter(list(dict.keys(self.watched)))

    def __len__(self) -> int:
        return len(self.watched)


def library_names() -> dict[str, Any]:
    """{"deepspeed": {section: names}, "defaults": {...}, "accelerate": {section: names}, "versions": {...}}."""
    import accelerate
    import deepspeed

    return {
        "versions": {"deepspeed": deepspeed.__version__, "accelerate": accelerate.__version__},
        "deepspeed": {**_models()[0], **_watched_sections()},
        "aliases": _models()[1],
        "defaults": _models()[2],
        "removed": _removed(),
        "optimizers": _optimizers(),
        "schedulers": _schedulers(),
        "accelerate": _accelerate(),
        "data_pipeline": _data_pipeline(),
    }


def _models() -> tuple[dict[str, list[str]], dict[str, dict[str, str]], dict[str, dict[str, Any]]]:
    from deepspeed.comm.config import CommsLoggerConfig
    from deepspeed.compile.config import CompileConfig
    from deepspeed.inference.config import WeightQuantConfig
    from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
    from deepspeed.runtime.config import HybridEngineConfig
    from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
    from deepspeed.runtime.tensor_parallel.config import TPConfig, TPTrainingConfig
    from deepspeed.runtime.zenflow.zenflow_config import ZenFlowConfig
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig
    from deepspeed.runtime.zero.leaf_module_config import DeepSpeedZeroLeafModuleConfig
    from deepspeed.runtime.zero.offload_config import (
        DeepSpeedZeroOffloadOptimizerConfig,
        DeepSpeedZeroOffloadParamConfig,
    )
    from deepspeed.utils.config import DeepSpeedThroughputTimerConfig

    models = {
        "ZeroOptimization": DeepSpeedZeroConfig,
        "OffloadParam": DeepSpeedZeroOffloadParamConfig,
        "OffloadOptimizer": DeepSpeedZeroOffloadOptimizerConfig,
        "ZenFlow": ZenFlowConfig,
        "LeafModule": DeepSpeedZeroLeafModuleConfig,
        "Fp16": DeepSpeedFP16Config,
        "Bf16": DeepSpeedBF16Config,
        "CommsLogger": CommsLoggerConfig,
        "TensorBoard": TensorBoardConfig,
        "Wandb": WandbConfig,
        "CsvMonitor": CSVConfig,
        "Comet": CometConfig,
        "HybridEngine": HybridEngineConfig,
        "ThroughputTimer": DeepSpeedThroughputTimerConfig,
        "Compile": CompileConfig,
        "TensorParallel": TPTrainingConfig,
        "TensorParallelGroup": TPConfig,
        "WeightQuantization": WeightQuantConfig,
    }
    names, aliases, defaults = {}, {}, {}
    for section, model in models.items():
        fields = model.model_fields
        aliases[section] = {field.alias: name for name, field in fields.items() if field.alias}
        names[section] = sorted({*fields, *aliases[section]})
        defaults[section] = {
            field.alias or name: default
            for name, field in fields.items()
            if isinstance(
                default := field.get_default(call_default_factory=True), bool | int | float | str | type(None)
            )
        }
    return names, aliases, defaults


def _watched_sections() -> dict[str, list[str]]:
    """Keys of the sections that DeepSpeed reads by hand, by watching it read files that hold one section each."""
    found: dict[str, set[str]] = {}
    sections = {
        "ActivationCheckpointing": ("activation_checkpointing",),
        "FlopsProfiler": ("flops_profiler",),
        "Autotuning": ("autotuning",),
        "ModelInfo": ("autotuning", "model_info"),
        "Aio": ("aio",),
        "DataTypes": ("data_types",),
        "TorchAutocast": ("torch_autocast",),
        "Optimizer": ("optimizer",),
        "Scheduler": ("scheduler",),
        "Checkpoint": ("checkpoint",),
        "ParallelWrite": ("checkpoint", "parallel_write"),
        "CheckpointWriter": ("checkpoint", "writer"),
        "Timers": ("timers",),
        "ExpertParallel": ("expert_parallel",),
        "DataEfficiency": ("data_efficiency",),
        "DataSampling": ("data_efficiency", "data_sampling"),
        "DataRouting": ("data_efficiency", "data_routing"),
        "DynamicBatching": ("data_efficiency", "data_sampling", "dynamic_batching"),
    }
    examples = {"Optimizer": {"type": "AdamW"}, "Scheduler": {"type": "WarmupLR"}, "ExpertParallel": {"enabled": False}}
    found["top"] = _asked_for(Watched(train_batch_size=8), ())
    found["top"] |= _asked_for(Watched(train_batch_size=8, zero_optimization=True), ())
    for name, path in sections.items():
        inner = Watched(examples.get(name, {}))
        config: Any = inner
        for key in reversed(path):
            config = {key: config}
        found[name] = _asked_for(Watched(train_batch_size=8, **config), path, inner)
    import deepspeed.runtime.config as module
    from deepspeed.module_inject.autotp_config import AutoTPConfig

    specification, partition = Watched(), Watched()
    partition["layer_specs"] = [specification]
    AutoTPConfig.from_dict(partition)
    found["LayerSpec"], found["PartitionConfig"] = specification.asked, partition.asked
    found["top"] |= _names_in_initialize()
    found["Pipeline"] = set(module.get_pipeline_config({})) | _keys_in_source(
        "deepspeed.runtime.pipe.engine", "pipeline"
    )
    return {section: sorted(keys) for section, keys in found.items()}


def _keys_in_source(module: str, attribute: str) -> set[str]:
    """Constant keys that a module looks up in a mapping of this attribute name."""
    import ast
    import importlib

    keys = set()
    for node in ast.walk(ast.parse(inspect.getsource(importlib.import_module(module)))):
        holder = key = None
        if isinstance(node, ast.Subscript):
            holder, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            holder, key = node.func.value, node.args[0]
        if isinstance(holder, ast.Attribute) and holder.attr == attribute and isinstance(key, ast.Constant):
            keys.add(str(key.value))
    return keys


def _names_in_initialize() -> set[str]:
    """Constant keys that deepspeed.initialize looks up in the configuration before it is parsed."""
    import ast

    import deepspeed

    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(deepspeed.initialize))):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "config":
            found.add(str(ast.literal_eval(node.slice)))
    return found


def _asked_for(config: Watched, path: tuple[str, ...], inner: Watched | None = None) -> set[str]:
    import deepspeed.runtime.config as module

    with contextlib.suppress(Exception):
        module.DeepSpeedConfig(config)
    return set(config.asked if inner is None else inner.asked)


def _data_pipeline() -> dict[str, str]:
    """Name and value of every text constant of the data-efficiency library."""
    from deepspeed.runtime.data_pipeline import constants

    return {name: value for name, value in vars(constants).items() if name.isupper() and isinstance(value, str)}


def _removed() -> dict[str, list[str]]:
    import deepspeed.runtime.config as module

    return {
        "top": sorted(module._REMOVED_TOP_LEVEL_CONFIG_KEYS),
        "ZeroOptimization": sorted(module._REMOVED_ZERO_CONFIG_KEYS),
    }


def _parameters(function: Any) -> list[str]:
    return sorted(set(inspect.signature(function).parameters) - {"self", "params", "model_params", "optimizer"})


def _optimizers() -> dict[str, Any]:
    import torch
    from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
    from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
    from deepspeed.ops.lamb import FusedLamb
    from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS
    from deepspeed.runtime.zero.utils import ZERO_SUPPORTED_OPTIMIZERS

    torch_classes = {
        name: getattr(torch.optim, name)
        for name in dir(torch.optim)
        if inspect.isclass(getattr(torch.optim, name)) and name != "Optimizer"
    }
    return {
        "own": sorted(DEEPSPEED_OPTIMIZERS),
        "torch": sorted(torch_classes),
        "tested": sorted(each.__name__ for each in ZERO_SUPPORTED_OPTIMIZERS),
        "parameters": {
            "FusedAdam": _parameters(FusedAdam.__init__),
            "CPUAdam": _parameters(DeepSpeedCPUAdam.__init__),
            "CPUAdagrad": _parameters(DeepSpeedCPUAdagrad.__init__),
            "FusedLamb": _parameters(FusedLamb.__init__),
            "FusedLion": _parameters(FusedLion.__init__),
            "CPULion": _parameters(DeepSpeedCPULion.__init__),
            **{name: _parameters(each.__init__) for name, each in torch_classes.items()},
        },
    }


def _schedulers() -> dict[str, Any]:
    import torch
    from deepspeed.runtime import lr_schedules

    module = torch.optim.lr_scheduler
    of_torch = {
        name: getattr(module, name)
        for name in sorted(dir(module))
        if inspect.isclass(getattr(module, name))
        and issubclass(getattr(module, name), module.LRScheduler)
        and name[0] != "_"
    }
    own = {name: getattr(lr_schedules, name) for name in lr_schedules.VALID_LR_SCHEDULES}
    return {
        "own": sorted(own),
        "torch": list(of_torch),
        "parameters": {name: _parameters(each.__init__) for name, each in (own | of_torch).items()},
        "required": {
            name: sorted(
                key
                for key, parameter in inspect.signature(each.__init__).parameters.items()
                if parameter.default is inspect.Parameter.empty and key not in ("self", "optimizer")
            )
            for name, each in (own | of_torch).items()
        },
    }


def _accelerate() -> dict[str, Any]:
    from accelerate.commands.config.config_args import ClusterConfig, SageMakerConfig
    from accelerate.commands.launch import launch_command_parser
    from accelerate.utils import constants
    from accelerate.utils.dataclasses import DistributedType, DynamoBackend, PrecisionType, SageMakerDistributedType

    groups: dict[str, dict[str, Any]] = {}
    parser: argparse.ArgumentParser = launch_command_parser()
    for group in parser._action_groups:
        groups[str(group.title)] = {
            action.dest: action.default if isinstance(action.default, bool | int | float | str | type(None)) else None
            for action in group._group_actions
        }
    return {
        "LocalMachine": [field.name for field in dataclasses.fields(ClusterConfig)],
        "SageMaker": [field.name for field in dataclasses.fields(SageMakerConfig)],
        "groups": groups,
        "distributed_type": [each.value for each in DistributedType],
        "sagemaker_type": [each.value for each in SageMakerDistributedType],
        "dynamo_backend": [each.value for each in DynamoBackend],
        "mixed_precision": [each.value for each in PrecisionType],
        "constants": {
            name: list(getattr(constants, name))
            for name in ("FSDP_SHARDING_STRATEGY", "FSDP_AUTO_WRAP_POLICY", "FSDP_BACKWARD_PREFETCH",
                         "FSDP_STATE_DICT_TYPE",
                         "DEEPSPEED_MULTINODE_LAUNCHERS", "TORCH_DYNAMO_MODES")
        },
    }  # fmt: skip
