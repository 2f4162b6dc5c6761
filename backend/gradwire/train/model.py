"""Builds the recipe's model from transformers' blocks: the same weights from the same seed everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, assert_never

import torch
import transformers
from torch import nn

from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Model, Training
from gradwire.errors import UsageError
from gradwire.train.attention import attention_name
from gradwire.train.data import IGNORED


class Stage(nn.Module):  # type: ignore[misc]
    """Some consecutive blocks of a language model; the first stage embeds tokens, the last one returns logits.

    A model that is not split is a single stage. `tokens_or_hidden` is (batch, sequence) token ids for the first
    stage, else (batch, sequence, width) activations; the last stage returns (batch, sequence, vocabulary) logits.
    Under `autocast_dtype` matrix products run in that type and weights stay as they are.
    """

    def __init__(self, parts: Mapping[str, Any], layers: range, *, autocast_dtype: Any = None) -> None:
        super().__init__()
        blocks = parts["blocks"]
        is_first, is_last = layers.start == 0, layers.stop == len(blocks)
        self.blocks = nn.ModuleList(blocks[layer] for layer in layers)
        self.token_embedding = parts["token_embedding"] if is_first else None
        self.position_embedding = parts["position_embedding"] if is_first else None
        self.rotary_embedding = parts["rotary_embedding"]
        self.final_norm = parts["final_norm"] if is_last else None
        self.output_projection = parts["output_projection"] if is_last else None
        self._autocast_dtype = autocast_dtype
        self._first_layer = layers.start

    def whole_names(self) -> list[str]:
        """Return the names that this stage's parameters have in a model of one stage, in order."""
        names = []
        for name, _ in self.named_parameters():
            kind, _, rest = name.partition(".")
            if kind == "blocks":
                number, _, rest = rest.partition(".")
                rest = f"{int(number) + self._first_layer}.{rest}"
            names.append(f"{kind}.{rest}")
        return names

    def forward(self, tokens_or_hidden: Any) -> Any:
        with self._autocast(tokens_or_hidden.device.type):
            return self._forward(tokens_or_hidden)

    def _forward(self, hidden: Any) -> Any:
        positions = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        if self.token_embedding is not None:
            hidden = self.token_embedding(hidden)
        if self.position_embedding is not None:
            hidden = hidden + self.position_embedding(positions)
        rotation = {}
        if self.rotary_embedding is not None:
            rotation["position_embeddings"] = self.rotary_embedding(hidden, position_ids=positions)
        for block in self.blocks:
            # No mask: transformers' sdpa attention is then causal, the only form that every kernel takes.
            hidden = block(hidden, attention_mask=None, **rotation)
        if self.output_projection is not None and self.final_norm is not None:
            hidden = self.output_projection(self.final_norm(hidden))
        return hidden

    def _autocast(self, device_type: str) -> AbstractContextManager[Any]:
        if self._autocast_dtype is None:
            return nullcontext()
        context: AbstractContextManager[Any] = torch.autocast(device_type, dtype=self._autocast_dtype)
        return context

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Any:
        """Move and cast, but keep the rotary frequencies in fp32: in 16 bits far positions coincide."""
        buffers = [
            (module, name, buffer)
            for module in self.modules()
            for name, buffer in module.named_buffers(recurse=False)
            if buffer.is_floating_point()
        ]
        super()._apply(fn, recurse)
        for module, name, buffer in buffers:
            setattr(module, name, buffer.to(getattr(module, name).device))
        return self


class LossModel(nn.Module):  # type: ignore[misc]
    """A whole model that returns its loss, so that every wrapper sees a single forward."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, tokens: Any, labels: Any) -> Any:
        """Return the mean loss over all labels that count, in nats, a scalar; both arguments are (batch, sequence)."""
        return token_loss(self.stage(tokens), labels)


def token_loss(logits: Any, labels: Any, *, reduction: Literal["mean", "sum"] = "mean") -> Any:
    """Return the cross-entropy of `logits` (batch, sequence, vocabulary), in nats, computed in fp32 or wider.

    Over the labels that count: those that are not `IGNORED`.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return nn.functional.cross_entropy(wide.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction=reduction)


def build_model(plan: Plan, model: Model, *, autocast_dtype: Any = None) -> Stage:
    """Return the plan's model as a single stage, on the CPU in fp32; UsageError where it cannot be built."""
    return build_stages(plan, model, [range(model.layers)], autocast_dtype=autocast_dtype)[0]


def build_stages(plan: Plan, model: Model, layers: Sequence[range], *, autocast_dtype: Any = None) -> list[Stage]:
    """Return one stage of the plan's model for each range of `layers`, on the CPU in fp32.

    Every rank builds the whole model from the seed and keeps its parts, so the weights depend on the seed alone.
    Raises UsageError where the model cannot be built or split like that.
    """
    training = plan.recipe.training
    if model.tie_embeddings and any(len(each) < model.layers for each in layers):
        raise UsageError("model.tie_embeddings: the first and the last stage cannot share weights; set it false")
    torch.manual_seed(training.seed)
    whole = transformers.AutoModelForCausalLM.from_config(
        _configuration(model),
        attn_implementation=attention_name(flash_attention=training.flash_attention),
        dtype=torch.float32,
    )
    whole.train()
    _check_parameters(whole, plan)
    if training.gradient_checkpointing:
        whole.activation_checkpointing_enable(
            activation_checkpointing_kwargs={"use_reentrant": training.gradient_checkpointing_reentrant}
        )
    parts = _take_apart(whole)
    return [Stage(parts, each, autocast_dtype=autocast_dtype) for each in layers]


def weights_dtype(training: Training) -> Any:
    """Return the type in which weights and optimizer state are kept."""
    return torch.bfloat16 if training.precision == "bf16-true" else torch.float32


def compute_dtype(training: Training) -> Any:
    """Return the type in which matrix products run."""
    match training.precision:
        case "fp32":
            return torch.float32
        case "bf16-mixed" | "bf16-true":
            return torch.bfloat16
        case "fp16-mixed":
            return torch.float16
        case unknown:
            assert_never(unknown)


def _configuration(model: Model) -> Any:
    try:
        match model.family:
            case "gpt2":
                return transformers.GPT2Config(
                    vocab_size=model.vocab_size,
                    n_positions=model.sequence_length,
                    n_embd=model.hidden_size,
                    n_layer=model.layers,
                    n_head=model.attention_heads,
                    n_inner=model.intermediate_size,
                    resid_pdrop=0.0,
                    embd_pdrop=0.0,
                    attn_pdrop=0.0,
                    tie_word_embeddings=model.tie_embeddings,
                    bos_token_id=None,
                    eos_token_id=None,
                    use_cache=False,
                )
            case "llama":
                return transformers.LlamaConfig(
                    vocab_size=model.vocab_size,
                    max_position_embeddings=model.sequence_length,
                    hidden_size=model.hidden_size,
                    num_hidden_layers=model.layers,
                    num_attention_heads=model.attention_heads,
                    num_key_value_heads=model.key_value_heads or model.attention_heads,
                    intermediate_size=model.intermediate_size or 4 * model.hidden_size,
                    attention_dropout=0.0,
                    tie_word_embeddings=model.tie_embeddings,
                    bos_token_id=None,
                    eos_token_id=None,
                    use_cache=False,
                )
            case unknown:
                assert_never(unknown)
    except ValueError as error:
        raise UsageError(f"model: transformers refuses it: {error}") from None


def _check_parameters(whole: Any, plan: Plan) -> None:
    built = sum(parameter.numel() for parameter in whole.parameters())
    planned = plan.model_size.parameters if plan.model_size else None
    if built != planned:
        raise RuntimeError(f"the built model has {built} parameters, the plan counts {planned}; MFU would be wrong")


def _take_apart(whole: Any) -> dict[str, Any]:
    """Return the parts of a transformers GPT-2 or Llama under the same names."""
    if isinstance(whole, transformers.GPT2LMHeadModel):
        body = whole.transformer
        return {
            "token_embedding": body.wte,
            "position_embedding": body.wpe,
            "rotary_embedding": None,
            "blocks": body.h,
            "final_norm": body.ln_f,
            "output_projection": whole.lm_head,
        }
    body = whole.model
    return {
        "token_embedding": body.embed_tokens,
        "position_embedding": None,
        "rotary_embedding": body.rotary_emb,
        "blocks": body.layers,
        "final_norm": body.norm,
        "output_projection": whole.lm_head,
    }
