"""The built model is transformers' own model, in whole or in stages, and what the recipe says is done to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace

from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Model, Recipe, Training
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.plan import settle
from gradwire.train.attention import check_flash_attention
from gradwire.train.model import LossModel, Stage, build_stages

GPT2 = Model(family="gpt2", hidden_size=16, layers=4, attention_heads=2, sequence_length=12)
LLAMA = replace(GPT2, family="llama", key_value_heads=1, intermediate_size=40)
MODELS = {
    "gpt2": GPT2,
    "gpt2-tied": replace(GPT2, tie_embeddings=True),
    "llama": LLAMA,
    "llama-wide": replace(LLAMA, vocab_size=300),
}
TOKENS = torch.arange(24).reshape(2, 12) * 7 % 256


def plan_of(model: Model, **training: Any) -> Plan:
    recipe = Recipe(model=model, training=Training(**training))
    return settle(recipe, recipe_name="test", backend="native", device="cpu")


def build(model: Model, *, index: int = 0, stages: int = 1, **training: Any) -> Stage:
    layers = range(index * model.layers // stages, (index + 1) * model.layers // stages)
    return build_stages(plan_of(model, **training), model, [layers])[0]


def gradients(stage: Stage) -> list[torch.Tensor]:
    LossModel(stage)(TOKENS, TOKENS).backward()
    return [parameter.grad for parameter in stage.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_transformers(name: str) -> None:
    model = MODELS[name]
    torch.manual_seed(0)
    shared = {"vocab_size": model.vocab_size, "tie_word_embeddings": model.tie_embeddings, "bos_token_id": None}
    if model.family == "gpt2":
        config = transformers.GPT2Config(**shared, eos_token_id=None, n_positions=12, n_embd=16, n_layer=4, n_head=2)
        theirs = transformers.GPT2LMHeadModel(config).eval()
    else:
        config = transformers.LlamaConfig(
            **shared,
            eos_token_id=None,
            max_position_embeddings=12,
            hidden_size=16,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=1,
            intermediate_size=40,
        )
        theirs = transformers.LlamaForCausalLM(config).eval()
    torch.testing.assert_close(build(model)(TOKENS), theirs(TOKENS).logits)


@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_stages_in_a_row_are_the_whole_model(model: Model, stages: int) -> None:
    hidden = TOKENS
    for index in range(stages):
        hidden = build(model, index=index, stages=stages)(hidden)
    torch.testing.assert_close(hidden, build(model)(TOKENS))


def test_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    one, same, other = (build(GPT2, seed=seed).token_embedding.weight for seed in (5, 5, 6))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_changes_no_gradient(reentrant: bool) -> None:
    recomputed = gradients(build(LLAMA, gradient_checkpointing=True, gradient_checkpointing_reentrant=reentrant))
    torch.testing.assert_close(recomputed, gradients(build(LLAMA)))


def test_recomputation_recomputes() -> None:
    stage = build(GPT2, gradient_checkpointing=True)
    calls = []
    stage.blocks[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    gradients(stage)
    assert len(calls) == 2


def test_rotary_frequencies_stay_in_fp32() -> None:
    stage = build(LLAMA).to(torch.bfloat16)
    assert next(stage.parameters()).dtype == torch.bfloat16
    assert stage.rotary_embedding.inv_freq.dtype == torch.float32
    assert torch.equal(stage.rotary_embedding.inv_freq, build(LLAMA).rotary_embedding.inv_freq)


def test_flash_attention_equals_the_default() -> None:
    flash = build(LLAMA, flash_attention=True, precision="bf16-true").to(torch.bfloat16)
    plain = build(LLAMA, precision="bf16-true").to(torch.bfloat16)
    torch.testing.assert_close(flash(TOKENS), plain(TOKENS), atol=0.02, rtol=0.02)
    check_flash_attention(LLAMA, device=torch.device("cpu"), dtype=torch.bfloat16)


@pytest.mark.gpu
def test_flash_attention_without_a_kernel_is_refused() -> None:
    with pytest.raises(EnvironmentNotFit, match=r"no flash kernel for torch.float32 .*flash_attention: false"):
        check_flash_attention(LLAMA, device=torch.device("cuda"), dtype=torch.float32)


def test_tied_weights_cannot_be_split() -> None:
    with pytest.raises(UsageError, match=r"model\.tie_embeddings"):
        build(MODELS["gpt2-tied"], index=0, stages=2)
