"""The workload in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from gradwire.documents.recipe_schema import Communication, Compression, Model, Pipeline
from gradwire.measure.workload import workload_of

Make = Callable[..., Any]


def test_the_model_is_put_into_words(plan: Make) -> None:
    model = Model(
        family="llama",
        hidden_size=4096,
        layers=32,
        attention_heads=32,
        intermediate_size=11008,
        sequence_length=4096,
        vocab_size=32000,
    )
    words = "llama hidden 4096 layers 32 heads 32/32 ffn 11008 vocab 32000"
    assert workload_of(plan(model=model), "x").model == words
    assert workload_of(plan(model=replace(model, tie_embeddings=True)), "x").model == f"{words} tied"
    grouped = workload_of(plan(model=replace(model, key_value_heads=8)), "x").model
    assert grouped == words.replace("32/32", "32/8")


def test_a_default_and_the_same_value_written_out_are_equal(plan: Make) -> None:
    model = Model(family="llama", hidden_size=64, layers=2, attention_heads=4, sequence_length=32)
    explicit = replace(model, key_value_heads=4, intermediate_size=256)
    assert workload_of(plan(model=model), "x") == workload_of(plan(model=explicit), "x")


def test_a_script_with_its_own_model_has_no_sequence_length(plan: Make) -> None:
    workload = workload_of(plan(model=None), "x")
    assert (workload.model, workload.sequence_length) == ("the script's own", None)


def test_a_pipeline_is_named_at_every_size(plan: Make) -> None:
    pipeline = Pipeline(chunks=4)
    assert workload_of(plan(pipeline=pipeline), "x").pipeline == "1f1b, 4 chunks"
    assert workload_of(plan(pipeline=pipeline, num_gpus=1), "x").pipeline == "1f1b, 4 chunks"
    assert workload_of(plan(), "x").pipeline is None


def test_compression_says_everything_that_changes_the_work(plan: Make) -> None:
    def words(**given: Any) -> str:
        settled = plan()
        recipe = replace(settled.recipe, communication=Communication(compression=Compression(**given)))
        return workload_of(replace(settled, recipe=recipe), "x").compression

    assert words() == "none"
    assert words(method="fp16", start_step=7) == "fp16"
    assert words(method="bf16") == "bf16"
    assert words(method="int8", int8_block_size=64) == "int8 blocks of 64, error feedback"
    assert words(method="topk", error_feedback=False) == "topk fraction 0.01, no error feedback"
    assert words(method="powersgd-alternating", wire_dtype="bf16").startswith("powersgd-alternating rank 4, warm start")
    assert words(method="powersgd-alternating", wire_dtype="bf16").endswith(", bf16 on the wire")
    assert words(method="powersgd") == "powersgd rank 4, warm start, error feedback, from step 10, rate above 2"
    assert (
        words(method="powersgd", warm_start=False, error_feedback=False, start_step=0)
        == "powersgd rank 4, cold start, no error feedback, from step 0, rate above 2"
    )


def test_the_device_has_its_kind_and_its_name(plan: Make) -> None:
    assert workload_of(plan(device="cuda"), "NVIDIA H200").device == "cuda NVIDIA H200"
