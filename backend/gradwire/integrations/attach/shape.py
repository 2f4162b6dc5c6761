"""Finds in a model what its FLOPs per token are counted from: parameters, layers, hidden size; or why it cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradwire.measure.rank_log import RankShape

# Names of these sizes in the configurations of transformers, and of the small GPTs that people copy.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_WIDTH = ("hidden_size", "n_embd", "d_model", "dim", "embed_dim")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_CONFIGS = ("config", "cfg")


def shape_of(models: Sequence[torch.nn.Module], *, is_pipeline: bool = False) -> RankShape:
    """Return the shape of what an optimizer trains, `models` being free of what wraps them.

    Layers and hidden size are those of the model's configuration, where the model bears them out, or of its attention
    modules; None where neither tells them. `reason` says why 6 N + 12 L h s would not be what the model computes.
    """
    parameters = {id(each): each for model in models for each in model.parameters()}
    layers, hidden_size, reason = None, None, _misfit(models, list(parameters.values()), is_pipeline=is_pipeline)
    if reason is None:
        reason, layers, hidden_size = _sizes(models[0])
    outputs = _outputs(models[0]) if reason is None else None
    return RankShape(
        parameters=sum(size_of(each) for each in parameters.values()),
        embedding_parameters=_table_parameters(models),
        layers=layers,
        hidden_size=hidden_size,
        output_parameters=outputs,
        reason=reason,
    )


def size_of(parameter: Any) -> int:
    """Return how many elements a parameter has, those that other ranks hold as well."""
    # ds_numel: what DeepSpeed has put away elsewhere.
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def _misfit(models: Sequence[torch.nn.Module], parameters: Sequence[Any], *, is_pipeline: bool) -> str | None:
    kinds = {type(module).__name__ for model in models for module in model.modules()}
    frozen = sum(size_of(each) for each in parameters if not each.requires_grad)
    if not models:
        return "the model was not found"
    if len(models) > 1:
        return f"the optimizer trains {len(models)} models"
    if is_pipeline:
        return "a rank of a pipeline holds a part of the model only"
    if "FullyShardedDataParallel" in kinds:
        return "FSDP 1 has flattened the parameters"
    if frozen:
        return f"{frozen:,} parameters are frozen, which cost less than the others"
    if any(isinstance(module, torch.nn.Transformer) for model in models for module in model.modules()):
        return _TWO_SEQUENCES
    if any("expert" in kind.lower() for kind in kinds):
        return _EXPERTS_REASON
    return None


_TWO_SEQUENCES = "an encoder and a decoder have a sequence each"
_EXPERTS_REASON = "a token passes only some of the model's experts"


def _sizes(model: torch.nn.Module) -> tuple[str | None, int | None, int | None]:
    """The reason why the formula does not fit, layers, and hidden size (heads x head size)."""
    configs = list(_outermost_configs(model))
    if len(configs) > 1:
        return f"the model is made of {len(configs)} with a configuration each", None, None
    if not configs:
        return None, *_attention_sizes(model)
    owner, config = configs[0]
    if getattr(config, "is_encoder_decoder", False) is True:
        return _TWO_SEQUENCES, None, None
    if any(getattr(config, name, None) for name in ("vision_config", "audio_config")):
        return "the model has parts that see no tokens", None, None
    # transformers keeps a language model's own sizes one level down where there are others.
    get_text = getattr(config, "get_text_config", None)
    text = get_text() if callable(get_text) else config
    if any((_number(text, (name,)) or 0) > 1 for name in _EXPERTS):
        return _EXPERTS_REASON, None, None
    layers, width, heads = (_number(text, names) for names in (_LAYERS, _WIDTH, _HEADS))
    if layers is None or width is None or heads is None or not _bears_out(owner, layers, width):
        return None, *_attention_sizes(model)
    head_size = _number(text, ("head_dim",))
    return None, layers, heads * head_size if head_size else width


def _outermost_configs(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, Any]]:
    for name in _CONFIGS:
        config = vars(model).get(name)
        if config is not None and _number(config, _WIDTH) is not None:
            yield model, config
            return
    for child in model.children():
        yield from _outermost_configs(child)


def _number(config: Any, names: Sequence[str]) -> int | None:
    for name in names:
        found = config.get(name) if isinstance(config, dict) else getattr(config, name, None)
        if isinstance(found, int) and not isinstance(found, bool) and found > 0:
            return found
    return None


def _bears_out(model: torch.nn.Module, layers: int, width: int) -> bool:
    """Whether the model has a list of `layers` blocks, and a matrix as wide as `width`."""
    lists = [len(module) for module in model.modules() if isinstance(module, torch.nn.ModuleList | torch.nn.Sequential)]
    return layers in lists and any(
        width in _shape(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)
    )


def _attention_sizes(model: torch.nn.Module) -> tuple[int | None, int | None]:
    """How many of torch's own attention modules there are, and how wide; None where they differ, or there are none."""
    widths = [module.embed_dim for module in model.modules() if isinstance(module, torch.nn.MultiheadAttention)]
    return (len(widths), widths[0]) if widths and len(set(widths)) == 1 else (None, None)


def _outputs(model: torch.nn.Module) -> int | None:
    """Elements of the output projection of a model of transformers; None for other models."""
    get_output = getattr(model, "get_output_embeddings", None)
    if not callable(get_output):
        return None
    output = get_output()
    return size_of(output.weight) if output is not None and hasattr(output, "weight") else 0


def _table_parameters(models: Sequence[torch.nn.Module]) -> int:
    modules = [module for model in models for module in model.modules()]
    multiplied = {id(module.weight) for module in modules if isinstance(module, torch.nn.Linear)}
    tables = {id(module.weight): module.weight for module in modules if isinstance(module, torch.nn.Embedding)}
    return sum(size_of(weight) for key, weight in tables.items() if key not in multiplied)


def _shape(parameter: Any) -> tuple[int, ...]:
    return tuple(getattr(parameter, "ds_shape", parameter.shape))
