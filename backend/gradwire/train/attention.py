"""Makes attention run in torch's flash kernel or not at all."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from gradwire.documents.recipe_schema import Model
from gradwire.errors import EnvironmentNotFit

# No "flash" in the name: transformers takes that for the flash-attn package.
_FLASH = "gradwire_fused"


def attention_name(*, flash_attention: bool) -> str:
    """Return the name under which transformers finds the attention: torch's choice of kernel, or flash alone."""
    if not flash_attention:
        return "sdpa"
    AttentionInterface.register(_FLASH, _flash_attention)
    AttentionMaskInterface.register(_FLASH, sdpa_mask)
    return _FLASH


def check_flash_attention(model: Model, *, device: Any, dtype: Any) -> None:
    """Raise EnvironmentNotFit, with torch's own reason, where no flash kernel takes `model`'s heads in `dtype`."""
    heads, sequence_length = model.attention_heads, model.sequence_length
    key_value_heads = model.key_value_heads or heads
    head_width = model.hidden_size // heads
    query = torch.zeros(1, heads, sequence_length, head_width, device=device, dtype=dtype)
    key = torch.zeros(1, key_value_heads, sequence_length, head_width, device=device, dtype=dtype)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            torch.nn.functional.scaled_dot_product_attention(
                query, key, key, is_causal=True, enable_gqa=key_value_heads != heads
            )
    except RuntimeError as error:
        raise EnvironmentNotFit(
            f"training.flash_attention: torch has no flash kernel for {dtype} with heads of width {head_width} "
            f"on {device} ({str(error).splitlines()[0]}); set training.flash_attention: false"
        ) from None


def _flash_attention(*arguments: Any, **options: Any) -> Any:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return sdpa_attention_forward(*arguments, **options)
