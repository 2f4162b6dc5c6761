"""Torch's types of the number formats that a recipe names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

NumberFormat = Literal["fp32", "bf16", "fp16"]
DTYPES: Mapping[NumberFormat, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
