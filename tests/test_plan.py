"""The plan's arithmetic, its refusals with both numbers, and its counts against transformers' own models."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest
from msgspec.structs import replace

from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Model, Recipe
from gradwire.errors import UsageError
from gradwire.plan import bubble_fraction, check_plan, model_size, recipe_sha256, settle

TINY = {"family": "gpt2", "hidden_size": 64, "layers": 4, "attention_heads": 4, "sequence_length": 128}


def recipe_of(**sections: object) -> Recipe:
    return msgspec.convert(sections, Recipe)


def plan_of(recipe: Recipe, *, num_nodes: int = 1) -> Plan:
    return settle(recipe, recipe_name="test", backend="native", device="cpu", num_nodes=num_nodes)


def test_batch_is_the_product_of_its_three_numbers() -> None:
    batch = plan_of(
        recipe_of(model=TINY, training={"num_gpus": 8, "batch_size_per_gpu": 16, "gradient_accumulation": 8})
    ).batch
    assert (batch.data_parallel_size, batch.global_batch_size) == (8, 1024)
    assert batch.tokens_per_step == 1024 * 128


def test_pipeline_leaves_fewer_data_parallel_ranks() -> None:
    plan = plan_of(
        recipe_of(
            training={"num_gpus": 8, "batch_size_per_gpu": 8}, parallelism={"pipeline": {"stages": 4, "chunks": 8}}
        )
    )
    assert plan.batch.data_parallel_size == 2
    assert plan.batch.global_batch_size == 16
    assert plan.pipeline is not None
    assert plan.pipeline.bubble_fraction == 3 / 11


def test_absent_stages_are_one_per_process() -> None:
    pipeline = {"pipeline": {"chunks": 4}}
    several = plan_of(recipe_of(training={"num_gpus": 4, "batch_size_per_gpu": 4}, parallelism=pipeline))
    assert several.pipeline is not None
    assert (several.pipeline.stages, several.batch.data_parallel_size) == (4, 1)
    assert plan_of(recipe_of(training={"num_gpus": 1, "batch_size_per_gpu": 4}, parallelism=pipeline)).pipeline is None


def test_several_stages_per_rank() -> None:
    training = {"num_gpus": 8, "batch_size_per_gpu": 8}
    pipeline = {"stages": 8, "stages_per_rank": 2, "chunks": 8, "schedule": "interleaved-1f1b"}
    plan = plan_of(recipe_of(training=training, model={**TINY, "layers": 8}, parallelism={"pipeline": pipeline}))
    assert plan.pipeline is not None
    assert (plan.pipeline.ranks, plan.batch.data_parallel_size) == (4, 2)
    assert plan.pipeline.bubble_fraction == 3 / 19
    absent = plan_of(
        recipe_of(
            training=training, model={**TINY, "layers": 16}, parallelism={"pipeline": {"chunks": 8, "schedule": "zbv"}}
        )
    )
    assert absent.pipeline is not None
    assert (absent.pipeline.stages, absent.pipeline.ranks, absent.pipeline.bubble_fraction) == (16, 8, 0.0)


@pytest.mark.parametrize(("stages", "chunks", "idle"), [(1, 8, 0.0), (2, 1, 0.5), (4, 8, 3 / 11), (4, 16, 3 / 19)])
def test_bubble_fraction(stages: int, chunks: int, idle: float) -> None:
    assert bubble_fraction(stages, chunks) == idle


def test_world_is_split_evenly_over_nodes() -> None:
    world = plan_of(recipe_of(training={"num_gpus": 16}), num_nodes=2).world
    assert (world.world_size, world.num_nodes, world.processes_per_node) == (16, 2, 8)
    assert world.process_group_backend == "gloo"


def test_uneven_nodes_are_refused_with_the_nearest_sizes() -> None:
    with pytest.raises(UsageError, match="9 processes do not split evenly over 2 nodes; nearest num_gpus: 8 or 10"):
        plan_of(recipe_of(training={"num_gpus": 9}), num_nodes=2)


def test_more_nodes_than_processes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"1 processes do not split evenly over 2 nodes; nearest num_gpus: 2$"):
        plan_of(recipe_of(training={"num_gpus": 1}), num_nodes=2)


def test_wrong_global_batch_size_is_refused_with_both_numbers() -> None:
    training = {"num_gpus": 7, "batch_size_per_gpu": 2, "gradient_accumulation": 18, "global_batch_size": 256}
    with pytest.raises(UsageError, match="global_batch_size is 256, but 2 x 18 x 7 data-parallel ranks is 252"):
        plan_of(recipe_of(training=training))


def test_stages_that_do_not_divide_are_refused_with_both_numbers() -> None:
    with pytest.raises(UsageError, match="4 stages, 1 on each rank, do not divide 3 processes"):
        plan_of(recipe_of(training={"num_gpus": 3}, parallelism={"pipeline": {"stages": 4, "chunks": 4}}))


def test_other_device_than_the_recipes_is_refused() -> None:
    with pytest.raises(UsageError, match=r"training\.device is cuda, but the plan is for cpu"):
        plan_of(recipe_of(training={"device": "cuda"}))


def test_hash_is_of_what_is_trained_not_of_its_size_or_name() -> None:
    recipe = recipe_of(model=TINY, training={"num_gpus": 2})
    larger = replace(recipe, summary="larger", extends="cpu/ddp", training=replace(recipe.training, num_gpus=4))
    other = replace(recipe, training=replace(recipe.training, learning_rate=1.0))
    assert recipe_sha256(larger) == recipe_sha256(recipe) != recipe_sha256(other)


def test_plan_that_was_edited_is_refused() -> None:
    plan = plan_of(recipe_of(model=TINY))
    check_plan(plan)
    with pytest.raises(UsageError, match="contradicts its own recipe in batch"):
        check_plan(replace(plan, batch=replace(plan.batch, global_batch_size=99)))


def test_plan_survives_json() -> None:
    plan = plan_of(recipe_of(model=TINY, training={"num_gpus": 2, "gradient_clip": 1.0}))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_flops_count_products_and_attention() -> None:
    size = model_size(msgspec.convert(TINY | {"tie_embeddings": True}, Model))
    # The tied table is an output projection too; the table of positions is only looked up.
    assert size.embedding_parameters == 128 * 64
    assert size.flops_per_token == 6 * (size.parameters - 128 * 64) + 12 * 4 * 64 * 128


SHAPES: list[dict[str, object]] = [
    TINY,
    TINY | {"tie_embeddings": True},
    TINY | {"intermediate_size": 96, "vocab_size": 1000},
    TINY | {"family": "llama"},
    TINY | {"family": "llama", "tie_embeddings": True, "intermediate_size": 172},
    TINY | {"family": "llama", "key_value_heads": 2},
    TINY | {"family": "llama", "key_value_heads": 1, "layers": 1, "vocab_size": 32000},
]

# Built on the meta device, so that a 7B model costs nothing; in its own process, for its import and its warnings.
COUNT = """
import json, sys, torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig
counts = []
for m in json.loads(sys.argv[1]):
    tied, width, heads = m["tie_embeddings"], m["hidden_size"], m["attention_heads"]
    if m["family"] == "gpt2":
        config = GPT2Config(vocab_size=m["vocab_size"], n_positions=m["sequence_length"], n_embd=width,
            n_layer=m["layers"], n_head=heads, n_inner=m["intermediate_size"], tie_word_embeddings=tied)
    else:
        config = LlamaConfig(vocab_size=m["vocab_size"], max_position_embeddings=m["sequence_length"],
            hidden_size=width, num_hidden_layers=m["layers"], num_attention_heads=heads,
            num_key_value_heads=m["key_value_heads"], tie_word_embeddings=tied,
            intermediate_size=m["intermediate_size"] or 4 * width)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shapes = {}
    for p in model.parameters():
        if p.dim() == 2:
            key = "x".join(str(n) for n in p.shape)
            shapes[key] = shapes.get(key, 0) + 1
    counts.append({"parameters": sum(p.numel() for p in model.parameters()), "matrices": shapes})
print(json.dumps(counts))
"""


def test_counts_are_those_of_transformers_models() -> None:
    pytest.importorskip("transformers")
    from gradwire.recipe import load_recipe
    from gradwire.recipe.model_shapes import weight_matrices

    models = [msgspec.convert(shape, Model) for shape in SHAPES]
    models += [model for name in ("h100-128", "zero1", "cpu/ddp") if (model := load_recipe(name).recipe.model)]
    command = [sys.executable, "-c", COUNT, json.dumps(msgspec.to_builtins(models))]
    counted = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)
    for model, real in zip(models, counted, strict=True):
        assert model_size(model).parameters == real["parameters"], model
        ours = {f"{rows}x{columns}": count for (rows, columns), count in weight_matrices(model).items()}
        assert ours == real["matrices"], model
