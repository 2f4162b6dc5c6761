"""Gradwire: one recipe for distributed training, lowered to Accelerate, DeepSpeed or plain torch, and measured."""
