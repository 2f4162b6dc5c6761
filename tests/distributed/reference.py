"""Trains each given plan in float64 on one process, every formula written out; prints losses and gradient norms.

Nothing of Gradwire's training is used but the choice of samples: transformers' own model, torch's autograd, and the
updates of Adam (Kingma and Ba 2015, coupled decay) and AdamW (Loshchilov and Hutter 2019) as in their papers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from gradwire.documents.plan_schema import Plan
from gradwire.train.data import cut, order_samples, read_text
from gradwire.train.reading import read_plan


def train(plan: Plan) -> dict[str, list[float]]:
    model_recipe, training = plan.recipe.model, plan.recipe.training
    assert model_recipe is not None
    text = read_text(None)
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
    losses, norms = [], []
    for step in range(training.max_steps):
        starts = numpy.concatenate(
            [
                order.starts(step=step, micro_step=micro_step, data_parallel_rank=rank)
                for micro_step in range(plan.batch.gradient_accumulation)
                for rank in range(plan.batch.data_parallel_size)
            ]
        )
        tokens, labels = (torch.from_numpy(array) for array in cut(text, starts, length))
        loss = torch.nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), labels.flatten())
        gradients = torch.autograd.grad(loss, parameters)
        norm = torch.sqrt(sum((gradient**2).sum() for gradient in gradients))
        losses.append(loss.item())
        norms.append(norm.item())
        scale = min(1.0, (training.gradient_clip or float("inf")) / (norm.item() + 1e-6))
        with torch.no_grad():
            for parameter, gradient, m, v in zip(parameters, gradients, first, second, strict=True):
                update(parameter, gradient * scale, m, v, step + 1, training)
    return {"losses": losses, "gradient_norms": norms}


def update(parameter, gradient, m, v, step, training) -> None:
    beta1, beta2 = training.betas
    if training.optimizer == "Adam":
        gradient = gradient + training.weight_decay * parameter
    else:
        parameter.mul_(1 - training.learning_rate * training.weight_decay)
    m.mul_(beta1).add_(gradient, alpha=1 - beta1)
    v.mul_(beta2).add_(gradient**2, alpha=1 - beta2)
    corrected_m, corrected_v = m / (1 - beta1**step), v / (1 - beta2**step)
    parameter.sub_(training.learning_rate * corrected_m / (corrected_v.sqrt() + training.epsilon))


sys.stdout.write(json.dumps([train(read_plan(Path(folder))[0]) for folder in sys.argv[1:]]))
