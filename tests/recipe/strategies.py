"""Draws recipes: documents that fit the schema, and recipes that pass the rules too."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from gradwire.documents.recipe_schema import Recipe
from gradwire.recipe.broken import Device
from gradwire.recipe.rules import broken_device_rules, broken_rules
from gradwire.resources import schema_text

_SCHEMA: dict[str, Any] = json.loads(schema_text("recipe"))

# They name files and presets of this machine, which a property has no use for.
_LEFT_OUT = ("extends", "backends")


def recipe_documents() -> SearchStrategy[dict[str, Any]]:
    """Documents that fit the recipe's schema; the rules may still refuse them."""
    return _values(_SCHEMA)


@st.composite
def valid_recipes(draw: DrawFn) -> Recipe:
    """Recipes that pass the schema, the rules, and the rules of their own device (of both where they name none)."""
    recipe = msgspec.convert(draw(_valid_documents()), Recipe)
    devices: tuple[Device, ...] = (recipe.training.device,) if recipe.training.device else ("cpu", "cuda")
    broken = broken_rules(recipe) + [found for device in devices for found in broken_device_rules(recipe, device)]
    assert broken == [], "the construction below missed a rule"
    return recipe


def _values(schema: dict[str, Any]) -> SearchStrategy[Any]:
    """Values of `schema`, an own walk over the keywords that the recipe's schema uses."""
    if "$ref" in schema:
        return _values(_SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")])
    if "anyOf" in schema:
        return st.one_of([_values(branch) for branch in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([_values_of_kind(kind, schema) for kind in kinds])


def _values_of_kind(kind: str, schema: dict[str, Any]) -> SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            low, high = schema["minimum"], schema["maximum"]
            step = schema.get("multipleOf", 1)
            low, high = -(-low // step), high // step
            # Small numbers fit each other more often than huge ones.
            return st.one_of(st.integers(low, min(low + 8, high)), st.integers(low, high)).map(step.__mul__)
        case "number":
            return st.floats(
                schema.get("minimum", schema.get("exclusiveMinimum")),
                schema.get("maximum", schema.get("exclusiveMaximum")),
                exclude_min="exclusiveMinimum" in schema,
                exclude_max="exclusiveMaximum" in schema,
            )
        case "string":
            return st.text(
                st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")),
                min_size=schema.get("minLength", 0),
                max_size=min(schema.get("maxLength", 20), 20),
            )
        case "array":
            most = min(schema["maxItems"], 4)
            return st.lists(
                _values(schema["items"]),
                min_size=schema.get("minItems", 0),
                max_size=most,
                unique=schema.get("uniqueItems", False),
            )
        case "object":
            return _mappings(schema)
        case _:
            raise NotImplementedError(f"the schema has a new type, {kind}")


def _mappings(schema: dict[str, Any]) -> SearchStrategy[dict[str, Any]]:
    properties = {key: _values(below) for key, below in schema.get("properties", {}).items() if key not in _LEFT_OUT}
    required = {key: properties.pop(key) for key in schema.get("required", ())}
    return st.fixed_dictionaries(required, optional=properties)


@st.composite
def _valid_documents(draw: DrawFn) -> dict[str, Any]:
    device = draw(st.sampled_from(["cpu", "cuda", None]))
    on_cpu = device != "cuda"
    methods = st.sampled_from(_SCHEMA["$defs"]["Compression"]["properties"]["method"]["enum"])
    method = draw(st.one_of(st.just("none"), methods))
    strategy = "ddp" if method != "none" else draw(st.sampled_from(["ddp", "ddp", "zero1", "zero2", "zero3", "fsdp"]))
    stages = 1 if strategy.startswith("zero") or method != "none" else draw(st.sampled_from([1, 1, 2, 4]))
    ranks = draw(st.integers(1, 8))
    chunks = stages * draw(st.integers(1, 4))
    max_steps = draw(st.integers(8, 200))
    scales_loss = not on_cpu and stages == 1 and method != "local-sgd"
    training: dict[str, Any] = {
        "device": device,
        "precision": draw(
            st.sampled_from(["fp32", "bf16-mixed", "bf16-true", *(["fp16-mixed"] if scales_loss else [])])
        ),
        "learning_rate": draw(st.floats(1e-6, 1.0)),
        "scheduler": draw(_schedulers(max_steps)),
        "weight_decay": draw(st.sampled_from([0.0, 0.01, 0.1])),
        "gradient_clip": draw(st.sampled_from([None, 0.5, 1.0])),
        "batch_size_per_gpu": chunks * draw(st.integers(1, 4)),
        "gradient_accumulation": draw(st.integers(1, 8)),
        "loss_weighting": draw(st.sampled_from(["micro-batch", "token"])),
        "num_gpus": stages * ranks,
        "gradient_checkpointing": draw(st.booleans()),
        "compile": draw(st.booleans()),
        "max_steps": max_steps,
        "seed": draw(st.integers(0, 4294967295)),
        **draw(_optimizers()),
    }
    formats = [None, "fp32", "bf16"] if training["precision"].startswith("bf16") else [None, "fp32"]
    training["gradient_accumulation_dtype"] = draw(st.sampled_from(formats))
    if training["compile"]:
        training |= draw(_compilers(strategy, on_cpu=on_cpu))
    training["flash_attention"] = training["precision"] != "fp32" and draw(st.booleans())
    training["gradient_checkpointing_reentrant"] = (
        training["gradient_checkpointing"] and stages == 1 and draw(st.booleans())
    )
    if training["precision"] == "bf16-mixed" and not on_cpu and device is not None:
        training["fp8"] = draw(st.sampled_from(["none", "none", "transformer-engine", "torchao"]))
    if draw(st.booleans()):
        batch = training["batch_size_per_gpu"] * training["gradient_accumulation"]
        training["global_batch_size"] = batch * ranks
    one_bucket = on_cpu and method == "powersgd-torch"
    searchable = not training["gradient_checkpointing_reentrant"] and not one_bucket
    overlap = draw(_overlaps(strategy, stages, searchable=searchable, one_bucket=one_bucket))
    pipeline = draw(_pipelines(stages, ranks, chunks, splits=strategy == "ddp" and not training["compile"]))
    if (method == "local-sgd" and overlap.get("bucket_cap_mb") == "auto") or (
        training["compile"] and strategy == "ddp" and overlap["bucket_cap_mb"] == 0.5
    ):
        overlap["bucket_cap_mb"] = None
    return {
        "summary": draw(st.sampled_from([None, "drawn"])),
        "model": draw(_models(tied=stages == 1, layers=max(4, stages * (3 if pipeline else 1)))),
        "training": training,
        "communication": {
            "dtype": draw(st.sampled_from([None, "fp32", "bf16"])) if method == "none" else None,
            "compression": draw(_compressions(method, max_steps)),
            "overlap": overlap,
        },
        "parallelism": {
            "data": {"strategy": strategy, **draw(_shardings(strategy, stages, ranks, on_cpu=on_cpu))},
            "pipeline": pipeline,
        },
        "measurement": {"warmup_steps": draw(st.integers(0, max_steps - 1))},
    }


@st.composite
def _optimizers(draw: DrawFn) -> dict[str, Any]:
    optimizer = draw(st.sampled_from(["Adam", "AdamW", "SGD"]))
    if optimizer == "SGD":
        return {"optimizer": optimizer, "momentum": draw(st.sampled_from([0.0, 0.9]))}
    betas = draw(st.sampled_from([[0.9, 0.999], [0.9, 0.95]]))
    return {"optimizer": optimizer, "betas": betas, "epsilon": draw(st.sampled_from([1e-8, 1e-6]))}


@st.composite
def _schedulers(draw: DrawFn, max_steps: int) -> dict[str, Any]:
    kind = draw(st.sampled_from(["constant", "linear", "cosine"]))
    if kind == "constant":
        return {"type": kind, "warmup_steps": draw(st.integers(0, 2 * max_steps))}
    total = draw(st.one_of(st.none(), st.integers(1, 2 * max_steps)))
    return {
        "type": kind,
        "warmup_steps": draw(st.integers(0, (total or max_steps) - 1)),
        "total_steps": total,
        "min_ratio": draw(st.sampled_from([0.0, 0.1, 1.0])),
    }


@st.composite
def _models(draw: DrawFn, *, tied: bool, layers: int) -> dict[str, Any]:
    heads = draw(st.sampled_from([1, 2, 4]))
    family = draw(st.sampled_from(["gpt2", "llama"]))
    return {
        "family": family,
        "vocab_size": draw(st.sampled_from([256, 512])),
        "hidden_size": heads * draw(st.sampled_from([16, 32])),
        "layers": draw(st.integers(layers, layers + 2)),
        "attention_heads": heads,
        "key_value_heads": draw(st.sampled_from([None, 1, heads])) if family == "llama" else None,
        "intermediate_size": draw(st.sampled_from([None, 64, 192])),
        "sequence_length": draw(st.sampled_from([16, 64])),
        "tie_embeddings": tied and draw(st.booleans()),
    }


@st.composite
def _compressions(draw: DrawFn, method: str, max_steps: int) -> dict[str, Any]:
    # Methods leave the options that they do not read unread. The smallest model drawn has a gradient matrix of
    # 256 x 16, which rank 4 still shrinks threefold.
    start = draw(st.integers(2 if method == "powersgd-torch" else 0, max_steps - 1))
    return {
        "method": method,
        "matrix_approximation_rank": draw(st.integers(1, 4)),
        "warm_start": method == "powersgd-alternating" or draw(st.booleans()),
        "error_feedback": draw(st.booleans()),
        "start_step": start,
        "local_steps": draw(st.integers(1, max_steps - start)),
        "outer_learning_rate": draw(st.sampled_from([0.7, 1.0])),
        "outer_momentum": draw(st.sampled_from([0.0, 0.9])),
        "difference_dtype": draw(st.sampled_from([None, "int8"])),
        "min_compression_rate": draw(st.sampled_from([1.0, 2.0])),
        "wire_dtype": draw(st.sampled_from([None, "fp32", "bf16"])),
        "int8_block_size": 4 * draw(st.integers(8, 16384)),
        # On 8 ranks, with gradients of 2 bytes, a sixteenth is as much as everything.
        "topk_fraction": draw(st.floats(0.001, 0.06)),
    }


@st.composite
def _overlaps(draw: DrawFn, strategy: str, stages: int, *, searchable: bool, one_bucket: bool) -> dict[str, Any]:
    if strategy == "fsdp":
        return {}
    # 64 MiB hold the gradients of every model drawn.
    caps: list[float | str | None] = [64.0] if one_bucket else [None, 0.5, 25.0, 64.0]
    if strategy == "ddp" and stages == 1 and not one_bucket:
        caps.append("auto")
    overlap = {"bucket_cap_mb": draw(st.sampled_from(caps))}
    if strategy == "ddp":
        if not one_bucket:
            overlap["first_bucket_mb"] = draw(st.sampled_from([None, 0.25, 0.5]))
        static_graph = stages == 1 and draw(st.booleans())
        searches = searchable and not static_graph and draw(st.booleans())
        overlap |= {
            "gradient_as_bucket_view": draw(st.booleans()),
            "static_graph": static_graph,
            "find_unused_parameters": searches,
        }
    return overlap


@st.composite
def _shardings(draw: DrawFn, strategy: str, stages: int, ranks: int, *, on_cpu: bool) -> dict[str, Any]:
    sharding: dict[str, Any] = {}
    groups = [size for size in range(1, ranks + 2) if size > ranks or ranks % size == 0]
    if strategy == "fsdp":
        sharding["fsdp"] = draw(_fully_sharded())
        if stages == 1:
            sharding["shard_group_size"] = draw(st.sampled_from([None, *groups]))
    if strategy == "zero3" and draw(st.booleans()):
        sharding["zero"] = {
            "secondary_partition_size": draw(st.sampled_from([None, *groups[1:]])),
            "quantized_weights": draw(st.booleans()),
            "quantized_gradients": draw(st.booleans()),
        }
    if strategy != "ddp" and stages == 1:
        sharding["offload"] = draw(_offloads(strategy, on_cpu=on_cpu))
    return sharding


@st.composite
def _offloads(draw: DrawFn, strategy: str, *, on_cpu: bool) -> dict[str, Any]:
    places = ["none", "cpu", "nvme"] if strategy == "zero3" else ["none", "cpu"]
    optimizer = draw(st.sampled_from(places))
    parameters = {"fsdp": optimizer, "zero3": draw(st.sampled_from(places))}.get(strategy, "none")
    offload: dict[str, Any] = {"optimizer": optimizer, "parameters": parameters}
    if "nvme" in offload.values():
        offload["nvme_path"] = "/local_nvme"
    if optimizer != "none" or parameters != "none":
        offload["pin_memory"] = draw(st.sampled_from([None, False] if on_cpu else [None, False, True]))
    return offload


@st.composite
def _fully_sharded(draw: DrawFn) -> dict[str, Any]:
    version = draw(st.sampled_from([1, 2]))
    wrap = draw(st.sampled_from(["blocks", "size", "model"]))
    sends = version == 1 and draw(st.booleans())
    return {
        "version": version,
        "reshard_after_forward": draw(st.booleans()),
        "wrap": wrap,
        "wrap_min_parameters": 1000 if wrap == "size" else None,
        "state_dict": draw(st.sampled_from(["sharded", "full"])),
        "cpu_ram_efficient_loading": (version == 2 or sends) and draw(st.booleans()),
        "sync_module_states": sends,
    }


@st.composite
def _pipelines(draw: DrawFn, size: int, ranks: int, chunks: int, *, splits: bool) -> dict[str, Any] | None:
    """A pipeline over `size` ranks; `splits` allows the schedules that split the backward pass."""
    if size == 1:
        return None
    schedule = draw(
        st.sampled_from(["1f1b", "gpipe", "interleaved-1f1b", *(["interleaved-zero-bubble", "zbv"] if splits else [])])
    )
    each = {"1f1b": 1, "gpipe": 1, "zbv": 2}.get(schedule) or draw(st.integers(2, 3))
    usual = 1 if schedule in ("1f1b", "gpipe") else 2
    return {
        "stages": draw(st.sampled_from([size * each, None])) if ranks == 1 else size * each,
        "stages_per_rank": draw(st.sampled_from([each, None])) if each == usual else each,
        "chunks": chunks,
        "schedule": schedule,
    }


@st.composite
def _compilers(draw: DrawFn, strategy: str, *, on_cpu: bool) -> dict[str, Any]:
    backend = draw(st.sampled_from(["inductor", "aot_eager", "eager", *([] if on_cpu else ["cudagraphs"])]))
    modes = _SCHEMA["$defs"]["Training"]["properties"]["compile_mode"]["enum"] if backend == "inductor" else ["default"]
    regional = draw(st.booleans())
    cuts = strategy == "zero3" or (strategy == "fsdp" and not regional)
    return {
        "compile_backend": backend,
        "compile_mode": draw(st.sampled_from(modes)),
        "compile_dynamic": draw(st.sampled_from([None, True, False])),
        "compile_fullgraph": not cuts and draw(st.booleans()),
        "compile_regional": regional,
    }
