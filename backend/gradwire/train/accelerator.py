"""Gives a training loop, beside Accelerate's `Accelerator`, all of the plan that its YAML cannot carry."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import DistributedDataParallelKwargs, DistributedType, DummyOptim

from gradwire.documents.measurement_schema import Buckets
from gradwire.documents.plan_schema import Plan
from gradwire.documents.recipe_schema import Training
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.recipe.learning_rate import changes
from gradwire.train.buckets import settle_buckets
from gradwire.train.clip import clip_gradients
from gradwire.train.communication import GradientCommunication
from gradwire.train.ddp import ddp_options, first_micro_step_must_reduce, register_communication
from gradwire.train.model import weights_dtype
from gradwire.train.optimizer import build_optimizer
from gradwire.train.passes import Passes
from gradwire.train.schedule import ScheduledLearningRate
from gradwire.train.weighting import token_weights


@dataclass
class RecipeDistributedDataParallelKwargs(DistributedDataParallelKwargs):  # type: ignore[misc]
    """DDP's options, those of `options`; `register` is called with each model that Accelerate has wrapped in DDP.

    Accelerate's own hooks are torch's: no method of Gradwire's, no checks, and no bf16 on gloo. Its own options leave
    out what equals its defaults, which are not all torch's.
    """

    register: Callable[[Any], None] | None = None
    options: Callable[[], dict[str, Any]] = dict

    def to_kwargs(self) -> dict[str, Any]:
        return self.options()

    def register_comm_hook(self, model: Any) -> None:
        if self.register is not None:
            self.register(model)


class RecipeAccelerator:
    """An Accelerator that trains as the plan says, and the calls that a training loop makes beside it.

    `accelerator` is Accelerate's own; `plan` says what it was built for. `communications` average gradients as the
    recipe says: one for each model that `accelerator.prepare` wrapped in DDP, none elsewhere. `buckets` are the sizes
    in which DDP reduces; None until they are settled. `notes` say what of a loaded checkpoint starts anew.
    """

    def __init__(self, plan: Plan, accelerator: Any) -> None:
        self.plan = plan
        self.accelerator = accelerator
        self.communications: list[GradientCommunication] = []
        self.buckets: Buckets | None = None
        self.notes: list[str] = []
        self._schedules: list[ScheduledLearningRate] = []
        self._took_step = False
        self._has_reduced = False
        compresses = plan.recipe.communication.compression.method != "none"
        if changes(plan.recipe.training.scheduler) or compresses:
            accelerator.register_for_checkpointing(self)
        # Not through kwargs_handlers, which takes no subclass.
        accelerator.ddp_handler = RecipeDistributedDataParallelKwargs(
            register=self._register, options=self._ddp_options
        )

    @property
    def batch_size(self) -> int:
        """Sequences per process in one forward pass: the data loader's `batch_size`."""
        return self.plan.batch.batch_size_per_gpu

    @property
    def gradient_accumulation(self) -> int:
        """Micro-batches per optimizer step."""
        return self.plan.batch.gradient_accumulation

    @property
    def max_steps(self) -> int:
        """Optimizer steps to train."""
        return self.plan.recipe.training.max_steps

    def adapt(self, model: Any) -> Any:
        """Return `model` changed in place as the recipe says: recomputation, 16-bit weights. `prepare` compiles it.

        Call it before `optimizer`. Recomputation needs a transformers model; raises EnvironmentNotFit for another.
        """
        training = self.plan.recipe.training
        if training.gradient_checkpointing:
            if not hasattr(model, "activation_checkpointing_enable"):
                raise EnvironmentNotFit(
                    "training.gradient_checkpointing: the model is not a transformers model and has no "
                    "activation_checkpointing_enable(); set it false and recompute in the model itself"
                )
            model.activation_checkpointing_enable(
                activation_checkpointing_kwargs={"use_reentrant": training.gradient_checkpointing_reentrant}
            )
        cast_weights(model, self)
        self.settle_buckets(model, passes=None)
        return model

    def settle_buckets(self, model: Any, *, passes: Passes | None) -> None:
        """Choose the sizes in which DDP will reduce `model`, which `accelerator.prepare` has not seen yet.

        Where the recipe says auto, all ranks measure together; see `gradwire.train.buckets`. `adapt` calls this.
        """
        accelerator = self.accelerator
        if accelerator.num_processes > 1 and self.plan.recipe.parallelism.data.strategy == "ddp":
            self.buckets = settle_buckets(
                model,
                self.plan.recipe,
                process_group=torch.distributed.group.WORLD,
                device=accelerator.device,
                passes=passes,
            )

    def optimizer(self, parameters: Iterable[Any]) -> Any:
        """Return the recipe's optimizer over `parameters`, to be passed to `accelerator.prepare`.

        `accumulate` moves its learning rate as the recipe's scheduler says; it needs no scheduler of the script's own.
        """
        training = self.plan.recipe.training
        if self._is_deepspeed and "optimizer" in self.accelerator.state.deepspeed_plugin.deepspeed_config:
            return DummyOptim(parameters, lr=training.learning_rate, weight_decay=training.weight_decay)
        by_deepspeed = self._offloads_to_cpu and training.optimizer != "SGD"
        optimizer = _cpu_adam(parameters, training) if by_deepspeed else build_optimizer(parameters, training)
        if changes(training.scheduler):
            # Not a scheduler of torch's through `prepare`: that one advances once per process in every step.
            self._schedules.append(ScheduledLearningRate(optimizer, training))
        if self.plan.recipe.communication.compression.method == "local-sgd":
            optimizer.register_step_post_hook(lambda *_: self._step_ended())
        return optimizer

    def synchronise(self) -> None:
        """Make the weights equal on all ranks, which call it together before evaluation and saving.

        Only `local-sgd` has ranks that differ.
        """
        for communication in self.communications:
            communication.synchronise()

    @contextmanager
    def accumulate(self, model: Any) -> Iterator[None]:
        """Wrap one micro-step of the prepared `model`; gradients are reduced in the last one of each step only.

        As `accelerator.accumulate`, and right with `static_graph` too, where that one hits an assertion in torch. The
        first one after an optimizer step moves the learning rate on, unless that step was skipped.
        """
        self._move_learning_rate()
        with self.accelerator.accumulate(model):
            self._took_step = self.accelerator.sync_gradients
            if not self._has_reduced and first_micro_step_must_reduce(self.plan.recipe) and hasattr(model, "reducer"):
                # Inside DDP's no_sync, which sets the flag back when it ends.
                model.require_backward_grad_sync = True
            self._has_reduced = True
            yield

    def loss_weights(self, label_counts: Sequence[int]) -> list[float]:
        """Return what to multiply each micro-batch's mean loss by, for one step with so many labels in each of them.

        All ones, unless the recipe's loss_weighting is token. Count the labels that the loss is the mean of; every
        rank calls it together, before the step's first `backward`.
        """
        if self.plan.recipe.training.loss_weighting == "micro-batch":
            return [1.0] * len(label_counts)
        # Not torch's own all_reduce: one process alone has no group.
        own = torch.tensor(sum(label_counts), device=self.accelerator.device)
        total = int(self.accelerator.reduce(own, reduction="sum"))
        return token_weights(label_counts, total=total, data_parallel_size=self.plan.batch.data_parallel_size)

    def clip(self, model: Any) -> Any:
        """Clip the prepared `model`'s gradients at the recipe's norm, if it has one, after `accelerator.backward`.

        Returns the global 2-norm before clipping, None between steps.
        """
        if not self.accelerator.sync_gradients:
            return None
        max_norm = self.plan.recipe.training.gradient_clip
        if self._is_deepspeed:
            # It has clipped already, in `backward`.
            return model.get_global_grad_norm()
        if self.accelerator.distributed_type == DistributedType.FSDP and not self.accelerator.is_fsdp2:
            return self.accelerator.clip_grad_norm_(model.parameters(), math.inf if max_norm is None else max_norm)
        self.accelerator.unscale_gradients()
        return clip_gradients(model.parameters(), max_norm)

    def state_dict(self) -> dict[str, Any]:
        """Return where the learning rate stands, and on rank 0 every rank's gradient communication.

        `accelerator.save_state`, which all ranks call, keeps what rank 0 returns.
        """
        self._move_learning_rate()
        return {
            "schedules": [schedule.state_dict() for schedule in self._schedules],
            "communications": [_of_all_ranks(communication.state_dict()) for communication in self.communications],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where learning rate and gradient communication stood; `accelerator.load_state` calls it.

        With another number of ranks what is shared is kept; `notes` says what starts anew.
        """
        for schedule, stood in zip(self._schedules, state["schedules"], strict=True):
            schedule.load_state_dict(stood)
        rank, ranks = self.accelerator.process_index, self.accelerator.num_processes
        for communication, each in zip(self.communications, state["communications"], strict=True):
            self.notes += communication.load_state_dict(each[rank] if len(each) == ranks else each[0])
        self._took_step = False

    def end(self) -> None:
        """End training, on every rank: gradient communication, then Accelerate's trackers and process group."""
        for communication in self.communications:
            communication.close()
        self.accelerator.wait_for_everyone()
        self.accelerator.end_training()

    def _step_ended(self) -> None:
        for communication in self.communications:
            communication.step_ended()

    def _ddp_options(self) -> dict[str, Any]:
        if self.buckets is None and self.plan.recipe.communication.overlap.bucket_cap_mb == "auto":
            raise UsageError(
                "communication.overlap.bucket_cap_mb auto needs the model before it is wrapped: call "
                "`model = run.adapt(model)` before run.accelerator.prepare"
            )
        return ddp_options(self.plan.recipe.communication.overlap, self.buckets)

    def _move_learning_rate(self) -> None:
        # Here, and not when the step ends: until the next one begins, the script may still call `optimizer.step`.
        if self._took_step and not self.accelerator.optimizer_step_was_skipped:
            for schedule in self._schedules:
                schedule.step()
        self._took_step = False

    def _register(self, model: Any) -> None:
        self.communications.append(register_communication(model, self.plan.recipe))

    @property
    def _offloads_to_cpu(self) -> bool:
        # On a CPU device torch's own optimizer is as near, and needs no compiler.
        offload = self.plan.recipe.parallelism.data.offload
        return self._is_deepspeed and offload.optimizer != "none" and self.plan.world.device == "cuda"

    @property
    def _is_deepspeed(self) -> bool:
        return bool(self.accelerator.distributed_type == DistributedType.DEEPSPEED)


def cast_weights(model: Any, recipe_accelerator: RecipeAccelerator) -> Any:
    """Return `model` with weights of the recipe's type; DeepSpeed casts them itself."""
    training = recipe_accelerator.plan.recipe.training
    if recipe_accelerator.accelerator.distributed_type == DistributedType.DEEPSPEED:
        return model
    return model.to(dtype=weights_dtype(training))


def _cpu_adam(parameters: Iterable[Any], training: Training) -> Any:
    """Return DeepSpeed's Adam for states in the machine's memory; torch's takes several times as long there."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    return DeepSpeedCPUAdam(
        parameters,
        lr=training.learning_rate,
        betas=tuple(training.betas),
        eps=training.epsilon,
        weight_decay=training.weight_decay,
        adamw_mode=training.optimizer == "AdamW",
        fp32_optimizer_states=training.precision != "bf16-true",
    )


def _of_all_ranks(state: dict[str, Any]) -> list[Any]:
    """Return every rank's `state`, in rank order, on rank 0; on the others nothing."""
    is_first = torch.distributed.get_rank() == 0
    gathered: list[Any] = [None] * torch.distributed.get_world_size() if is_first else []
    torch.distributed.gather_object(state, gathered if is_first else None, dst=0)
    return gathered
