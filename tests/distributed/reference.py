"""Trains each given plan in float64 on one process, every formula written out; prints losses and gradient norms.

Nothing of Gradwire's training is used but the choice of samples: transformers' own model, torch's autograd, and the
updates of Adam (Kingma and Ba 2015, coupled decay) and AdamW (Loshchilov and Hutter 2019) as in their papers, SGD with
momentum, the learning rate's course, and what a label weighs.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from gradwire.documents.plan_schema import Plan
from gradwire.train.data import cut, leave_out, order_samples, read_text
from gradwire.train.reading import read_plan


def train(plan: Plan) -> dict[str, list[float]]:
    model_recipe, training = plan.recipe.model, plan.recipe.training
    assert model_recipe is not None
    text = read_text(plan.recipe.data.path)
    length = model_recipe.sequence_length
    order = order_samples(text, sequence_length=length, seed=training.seed, batch=plan.batch)

    torch.manual_seed(training.seed)
    config = GPT2Config(
        vocab_size=256,
        n_positions=length,
        n_embd=model_recipe.hidden_size,
        n_layer=model_recipe.layers,
        n_head=model_recipe.attention_heads,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = GPT2LMHeadModel(config).double().train()
    parameters = list(model.parameters())
    first = [torch.zeros_like(parameter) for parameter in parameters]
    second = [torch.zeros_like(parameter) for parameter in parameters]
    measured = {"losses": [], "gradient_norms": [], "learning_rates": [], "labels": []}
    for step in range(training.max_steps):
        loss, labels = loss_of_step(plan, order, text, model, step)
        gradients = torch.autograd.grad(loss, parameters)
        norm = torch.sqrt(sum((gradient**2).sum() for gradient in gradients))
        rate = learning_rate(training, step)
        measured["losses"].append(loss.item())
        measured["gradient_norms"].append(norm.item())
        measured["learning_rates"].append(rate)
        measured["labels"].append(labels)
        scale = min(1.0, (training.gradient_clip or float("inf")) / (norm.item() + 1e-6))
        with torch.no_grad():
            for parameter, gradient, m, v in zip(parameters, gradients, first, second, strict=True):
                update(parameter, gradient * scale, m, v, step + 1, rate, training)
    return measured


def loss_of_step(plan: Plan, order, text, model, step: int):
    """The loss as the recipe's loss_weighting defines it, and the number of labels that it is over."""
    recipe = plan.recipe
    length = recipe.model.sequence_length
    losses = []
    for micro_step in range(plan.batch.gradient_accumulation):
        for rank in range(plan.batch.data_parallel_size):
            starts = order.starts(step=step, micro_step=micro_step, data_parallel_rank=rank)
            tokens, labels = cut(text, starts, length)
            if recipe.data.min_labels is not None:
                labels = leave_out(labels, starts, min_labels=recipe.data.min_labels, seed=recipe.training.seed)
            logits = model(torch.from_numpy(tokens)).logits
            each = -logits.log_softmax(-1).gather(-1, torch.from_numpy(labels).clamp(min=0).unsqueeze(-1)).squeeze(-1)
            losses.append(each[torch.from_numpy(labels) >= 0])
    everything = torch.cat(losses)
    if recipe.training.loss_weighting == "token":
        return everything.mean(), len(everything)
    return torch.stack([loss.mean() for loss in losses]).mean(), len(everything)


def learning_rate(training, step: int) -> float:
    scheduler = training.scheduler
    warmup, total = scheduler.warmup_steps, scheduler.total_steps or training.max_steps
    if step < warmup:
        return training.learning_rate * step / warmup
    if scheduler.type == "constant":
        return training.learning_rate
    done = min(1.0, (step - warmup) / (total - warmup))
    left = 1 - done if scheduler.type == "linear" else math.cos(math.pi * done) / 2 + 0.5
    lowest = training.learning_rate * scheduler.min_ratio
    return lowest + (training.learning_rate - lowest) * left


def update(parameter, gradient, m, v, step: int, rate: float, training) -> None:
    if training.optimizer == "AdamW":
        parameter.mul_(1 - rate * training.weight_decay)
    else:
        gradient = gradient + training.weight_decay * parameter
    if training.optimizer == "SGD":
        # The first velocity is the gradient itself, as everywhere but in the paper.
        m.mul_(training.momentum).add_(gradient)
        parameter.sub_(rate * m)
        return
    beta1, beta2 = training.betas
    m.mul_(beta1).add_(gradient, alpha=1 - beta1)
    v.mul_(beta2).add_(gradient**2, alpha=1 - beta2)
    corrected_m, corrected_v = m / (1 - beta1**step), v / (1 - beta2**step)
    parameter.sub_(rate * corrected_m / (corrected_v.sqrt() + training.epsilon))


sys.stdout.write(json.dumps([train(read_plan(Path(folder))[0]) for folder in sys.argv[1:]]))
