"""Gradient communication under DDP: `register` picks the recipe's method; each other module is one method or a part."""

from __future__ import annotations

from gradwire.train.communication.interface import GradientCommunication, StepTraffic
from gradwire.train.communication.register import register

__all__ = ["GradientCommunication", "StepTraffic", "register"]
