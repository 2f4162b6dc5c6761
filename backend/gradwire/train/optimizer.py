"""The recipe's optimizer as torch's: Adam couples weight decay to the gradient, AdamW does not, SGD does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import torch

from gradwire.documents.recipe_schema import Training


def build_optimizer(parameters: Iterable[Any], training: Training) -> Any:
    """Return the optimizer over `parameters` (tensors or parameter groups); weight decay applies to every one."""
    shared = {"lr": training.learning_rate, "weight_decay": training.weight_decay}
    adam = {"betas": tuple(training.betas), "eps": training.epsilon}
    match training.optimizer:
        case "Adam":
            return torch.optim.Adam(parameters, **shared, **adam)
        case "AdamW":
            return torch.optim.AdamW(parameters, **shared, **adam)
        case "SGD":
            return torch.optim.SGD(parameters, **shared, momentum=training.momentum)
        case unknown:
            assert_never(unknown)
