"""Advice on compression: what a model's gradients are, and where compressing them pays."""

from __future__ import annotations

import pytest

from gradwire.documents.figures_schema import Figures, MethodArithmetic
from gradwire.documents.recipe_schema import Model
from gradwire.measure.advice import build_advice, candidates, model_step
from gradwire.plan import settle
from gradwire.presets import preset_names
from gradwire.recipe import load_recipe, parse_set
from gradwire.recipe.model_shapes import parameter_count

_MODELS = [
    Model(family="gpt2", hidden_size=64, layers=3, attention_heads=2, sequence_length=32),
    Model(family="gpt2", hidden_size=64, layers=3, attention_heads=2, sequence_length=32, tie_embeddings=True),
    Model(family="llama", hidden_size=64, layers=5, attention_heads=4, key_value_heads=2, sequence_length=32),
    # A square vocabulary: the embedding has the shape of an attention matrix.
    Model(family="llama", hidden_size=256, layers=2, attention_heads=4, sequence_length=32),
]


@pytest.mark.parametrize("model", _MODELS)
def test_the_gradients_are_all_of_the_models(model: Model) -> None:
    step = model_step(model, compute_seconds=3.0, bytes_per_element=4)
    assert step.gradient_bytes / 4 == pytest.approx(parameter_count(model), abs=2 * model.layers + model.hidden_size)
    ready = [gradient.ready_seconds for gradient in step.gradients]
    assert ready == sorted(ready)
    assert 1.0 < ready[0] < ready[-1] == pytest.approx(3.0)


def advice(
    *, bits_per_second: float, seconds_per_byte: float = 1e-9, accumulation: int = 1
) -> tuple[str | None, float]:
    loaded = load_recipe(
        "cpu/ddp",
        overrides=[parse_set("training.num_gpus=8"), parse_set(f"training.gradient_accumulation={accumulation}")],
    )
    plan = settle(loaded.recipe, recipe_name=loaded.name, backend="native", device="cpu")
    assert plan.recipe.model is not None
    names = candidates(plan.recipe.communication.compression)
    figures = Figures(
        format_version=1,
        device="cpu",
        latency_seconds=1e-4,
        bytes_per_second=bits_per_second / 8,
        compute_seconds=0.05,
        arithmetic=[
            MethodArithmetic(name=name, seconds_per_byte=seconds_per_byte, seconds_per_bucket=1e-4) for name in names
        ],
    )
    built = build_advice(plan, plan.recipe.model, figures)
    assert [method.name for method in built.methods] == list(names)
    wins = next(method.wins_below for method in built.methods if method.name == "bf16")
    return None if built.method is None else built.method.name, wins or 0.0


def test_a_slow_link_wants_the_fewest_bytes_and_a_fast_one_none() -> None:
    slow, _ = advice(bits_per_second=5e6)
    assert slow is not None
    assert slow.startswith("powersgd")
    fast, wins = advice(bits_per_second=1e11)
    assert fast is None
    assert 1e7 < wins < 1e10


def test_the_least_change_that_is_as_fast_is_chosen() -> None:
    # 0.9 MB in 0.05 s of compute: at half the bytes nothing is exposed any more.
    _, wins = advice(bits_per_second=1e8)
    chosen, _ = advice(bits_per_second=wins * 0.9)
    assert chosen == "bf16"


def test_accumulation_lowers_the_speed_below_which_it_pays() -> None:
    assert advice(bits_per_second=1e8, accumulation=8)[1] < advice(bits_per_second=1e8)[1]


def test_dear_arithmetic_never_pays() -> None:
    assert advice(bits_per_second=1e9, seconds_per_byte=1e-6)[0] is None


def test_every_ddp_preset_has_shapes() -> None:
    assert len(preset_names()) > 5
    for name in preset_names():
        model = load_recipe(name).recipe.model
        if model is not None:
            assert model_step(model, compute_seconds=1.0, bytes_per_element=2).gradients
