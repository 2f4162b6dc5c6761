"""What is found in a model for counting its FLOPs, and why sometimes nothing can be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MixtralConfig, T5Config
from transformers import MixtralForCausalLM as Mixtral
from transformers import T5ForConditionalGeneration as T5

from gradwire.integrations.attach.products import products_of
from gradwire.integrations.attach.shape import shape_of
from gradwire.recipe.model_flops import model_flops_per_token


def gpt2(**given: Any) -> torch.nn.Module:
    model: torch.nn.Module = GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=16, n_positions=4, **given)
    )
    return model


def llama() -> torch.nn.Module:
    config = LlamaConfig(
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=6,
        vocab_size=16,
        # The one that torch's counter sees on a CPU.
        attn_implementation="eager",
    )
    model: torch.nn.Module = LlamaForCausalLM(config)
    return model


def counted(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_a_model_of_transformers_tells_its_sizes() -> None:
    tied, apart = gpt2(), llama()
    shape = shape_of([tied])
    # The table of positions is looked up; that of words is the output projection too.
    assert (shape.parameters, shape.embedding_parameters, shape.output_parameters) == (counted(tied), 4 * 8, 16 * 8)
    assert (shape.layers, shape.hidden_size, shape.reason) == (2, 8, None)
    shape = shape_of([torch.nn.Sequential(apart)])
    assert (shape.parameters, shape.embedding_parameters) == (counted(apart), 16 * 8)
    # Heads x head size, which is what attention multiplies.
    assert (shape.layers, shape.hidden_size, shape.reason) == (3, 12, None)


def test_flops_are_those_that_the_products_really_take() -> None:
    """Against torch's own count of a forward pass, whose backward pass takes twice as much again."""
    from torch.utils.flop_counter import FlopCounterMode

    model = llama()
    tokens = torch.zeros(2, 8, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=tokens)
    shape = shape_of([model])
    assert shape.layers is not None and shape.hidden_size is not None
    ours = model_flops_per_token(
        shape.parameters,
        layers=shape.layers,
        hidden_size=shape.hidden_size,
        sequence_length=8,
        embedding_parameters=shape.embedding_parameters,
    )
    # Norms have parameters and no products: 7 norms of 8.
    assert ours - 6 * 7 * 8 == 3 * counter.get_total_flops() / tokens.numel()


def test_torchs_own_attention_tells_its_sizes() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.TransformerEncoder(layer, 3))
    shape = shape_of([model])
    assert (shape.layers, shape.hidden_size, shape.embedding_parameters) == (3, 8, 128)
    assert (shape.output_parameters, shape.reason) == (None, None)


@dataclass
class SmallConfig:
    """As in the small GPTs that people write themselves."""

    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 8


class Own(torch.nn.Module):
    def __init__(self, config: Any, blocks: int = 2) -> None:
        super().__init__()
        self.config = config
        self.table = torch.nn.Embedding(16, 8)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(blocks))


def test_a_configuration_of_ones_own_counts_where_the_model_bears_it_out() -> None:
    assert (shape_of([Own(SmallConfig())]).layers, shape_of([Own(SmallConfig())]).hidden_size) == (2, 8)
    assert shape_of([Own({"n_layers": 2, "n_heads": 2, "dim": 8})]).layers == 2
    for other in (Own(SmallConfig(), blocks=3), Own(SmallConfig(n_embd=9)), Own(None)):
        shape = shape_of([other])
        assert (shape.layers, shape.hidden_size, shape.reason) == (None, None, None)


def frozen() -> torch.nn.Module:
    model = gpt2()
    next(model.parameters()).requires_grad_(False)
    return model


def mixtral() -> torch.nn.Module:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 16}
    model: torch.nn.Module = Mixtral(MixtralConfig(num_attention_heads=2, num_key_value_heads=2, **sizes))
    return model


def t5() -> torch.nn.Module:
    model: torch.nn.Module = T5(T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=16))
    return model


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        (list, "the model was not found"),
        (lambda: [Own(None), Own(None)], "the optimizer trains 2 models"),
        (lambda: [frozen()], "128 parameters are frozen"),
        (lambda: [torch.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)], "an encoder and a decoder"),
        (lambda: [t5()], "an encoder and a decoder"),
        (lambda: [mixtral()], "a token passes only some of the model's experts"),
        (lambda: [torch.nn.Sequential(gpt2(), gpt2())], "the model is made of 2 with a configuration each"),
    ],
)
def test_where_the_formula_would_be_wrong_that_is_said(
    models: Callable[[], list[torch.nn.Module]], reason: str
) -> None:
    assert str(shape_of(models()).reason).startswith(reason)


def test_a_part_of_a_pipeline_is_no_model() -> None:
    assert shape_of([gpt2()], is_pipeline=True).reason == "a rank of a pipeline holds a part of the model only"


def test_products_are_of_what_they_are_cast_to() -> None:
    model = torch.nn.Linear(2, 2)
    one, mixed = list(model.parameters()), [*model.parameters(), torch.nn.Parameter(torch.ones(1).bfloat16())]
    assert products_of(None, [model], one, is_engine=False) == "fp32"
    assert products_of(None, [model], mixed, is_engine=False) is None
    assert products_of(None, [model], [each.bfloat16() for each in one], is_engine=False) == "bf16"
    with torch.autocast("cpu", torch.bfloat16):
        assert products_of(None, [model], mixed, is_engine=False) == "bf16"


TF32 = """
import torch
from gradwire.integrations.attach.products import _of
assert _of(torch.float32, "cuda") == "fp32"
torch.backends.fp32_precision = "tf32"
assert _of(torch.float32, "cuda") == "tf32"
assert _of(torch.float32, "cpu") == "fp32" and _of(torch.bfloat16, "cuda") == "bf16"
for setting, found in (("highest", "fp32"), ("high", "tf32")):
    torch.set_float32_matmul_precision(setting)
    assert _of(torch.float32, "cuda") == found
"""


def test_both_ways_of_asking_for_tf32_are_seen() -> None:
    """The newer one, which the Trainer makes, lets torch refuse to say what the older one is."""
    ended = subprocess.run([sys.executable, "-c", TF32], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
