"""Registers a method with DDP: names the gradients of each bucket, counts steps and bytes, saves and restores."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Work
from torch.nn.parallel import DistributedDataParallel

from gradwire.errors import RunFailed, UsageError
from gradwire.measure.traffic import StepTraffic
from gradwire.train.communication.dispatcher import StreamDispatcher, ThreadDispatcher
from gradwire.train.communication.gate import Gate
from gradwire.train.communication.interface import Bucket, Method
from gradwire.train.communication.lanes import Lanes
from gradwire.train.communication.layout import Layout, layout_of, packed
from gradwire.train.communication.local_sgd import LocalSgd
from gradwire.train.communication.peers import Peers
from gradwire.train.communication.reduction_clock import ReductionClock
from gradwire.train.communication.remembered import RememberedBuckets
from gradwire.train.communication.roll_call import culprits, roll_call

FORMAT_VERSION = 1


class HookedCommunication:
    """One of Gradwire's own methods on one DDP model.

    `options` are plain values that name the method's settings in a saved state. `extra_synchronisations`: backward
    passes outside `no_sync` beside the one of each optimizer step, once, before the first step of this process ends.
    """

    def __init__(
        self,
        ddp_model: DistributedDataParallel,
        method: Method,
        *,
        name: str,
        options: Mapping[str, Any],
        process_group: dist.ProcessGroup,
        extra_synchronisations: int,
    ) -> None:
        self.method = name
        self._averager = method
        self._options = dict(options)
        parameters = [(key, value) for key, value in ddp_model.module.named_parameters() if value.requires_grad]
        self._names = {id(parameter): key for key, parameter in parameters}
        self._sizes = {key: parameter.numel() for key, parameter in parameters}
        self._device = parameters[0][1].device
        self._ddp_model = ddp_model
        self._process_group = process_group
        self._peers = Peers(process_group)
        self._lanes = Lanes(process_group, method.lane_count, self._device)
        self._dispatcher = StreamDispatcher(self._device) if self._device.type == "cuda" else ThreadDispatcher()
        self._layouts: dict[tuple[int, ...], Layout] = {}
        self._buckets = RememberedBuckets()
        self._synchronisations = 0
        self._extra_synchronisations = extra_synchronisations
        self._handed_over = False
        self._gradient_bytes = 0
        self._seconds_before = 0.0
        self._clock = ReductionClock(ddp_model)
        self._steps_ended = 0
        self._synchronised_at = 0
        self._outer_seconds = 0.0
        self.failure: RunFailed | None = None
        # DDP checks the annotations of a hook as objects, and here they are strings: a lambda has none.
        ddp_model.register_comm_hook(self, lambda communication, bucket: communication.average(bucket))

    @property
    def step(self) -> int:
        """Return how many optimizer steps' gradients have been handed over, counted over interruptions."""
        return self._synchronisations

    @property
    def last_step(self) -> StepTraffic | None:
        if not self._handed_over:
            return None
        seconds = self._dispatcher.communication_seconds
        communication_seconds = self._clock.reduction_seconds if seconds is None else seconds - self._seconds_before
        exposed = self._clock.exposed_seconds
        return StepTraffic(
            gradient_bytes=self._gradient_bytes,
            payload_bytes=self._lanes.payload_bytes,
            wire_bytes=self._lanes.wire_bytes,
            communication_seconds=communication_seconds,
            exposed_seconds=None if exposed is None else exposed + self._outer_seconds,
        )

    def backward_ended(self) -> None:
        self._clock.backward_ended()

    def step_ended(self) -> None:
        if not self._ddp_model.require_backward_grad_sync:
            return
        self._steps_ended = self.step
        if isinstance(self._averager, LocalSgd) and self._averager.is_due(self.step):
            self._synchronise(self._averager)

    def synchronise(self) -> None:
        method = self._averager
        if isinstance(method, LocalSgd) and method.has_local_steps(self.step) and self._synchronised_at != self.step:
            self._synchronise(method)

    def average(self, grad_bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Return the future of the bucket's buffer holding the average; DDP calls this in bucket order.

        Raises UsageError for sparse gradients, and where the method does not go with how the model is trained.
        """
        flat = grad_bucket.buffer()
        if flat.layout != torch.strided:
            raise UsageError(f"communication.compression.method {self.method}: sparse gradients are not supported")
        if grad_bucket.index() == 0:
            self._begin_backward()
        self._gradient_bytes += flat.numel() * flat.element_size()
        layout, step = self._layout_of(grad_bucket), self.step
        groups = self._buckets.arrange(layout.names)
        if grad_bucket.is_last():
            self._end_backward()
        gate = Gate(self._device, waiting=0 if self._lanes.world_size == 1 else len(groups))
        if self._lanes.world_size > 1:
            for names in groups:
                self._dispatcher.submit(self._parts(flat, layout, names, step), gate.one_finished)

        def outcome(_: torch.futures.Future[None]) -> Tensor:
            if gate.failure is not None:
                raise self._explain(gate.failure, step)
            return flat

        return gate.future.then(outcome)

    def state_dict(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "method": self.method,
            "options": dict(self._options),
            "world_size": self._lanes.world_size,
            "rank": self._lanes.rank,
            "synchronisations": self._synchronisations,
            "synchronised_at": self._synchronised_at,
            "buckets": [list(names) for names in self._buckets.last],
            "shared": self._averager.shared_state(),
            "local": self._averager.local_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> tuple[str, ...]:
        """Take over a saved state; every rank calls this, each with the state of its own rank where there is one.

        From another world size or rank the shared tensors are kept and this rank's own start anew. Raises UsageError
        where the ranks hand in states of different steps: they would wait for each other for ever.
        """
        if state.get("format_version") != FORMAT_VERSION:
            found = state.get("format_version")
            raise UsageError(f"communication state has format {found}, this version reads {FORMAT_VERSION}")
        notes = []
        if state["method"] != self.method:
            notes.append(
                f"communication state of method {state['method']} is not used: the recipe asks for {self.method}, "
                "which starts from nothing"
            )
        else:
            notes = self._take_over(state)
        self._check_ranks_agree()
        return tuple(notes)

    def close(self) -> None:
        self._clock.close()
        self._dispatcher.close()
        if self.failure is None:
            self._lanes.close()

    def _take_over(self, state: Mapping[str, Any]) -> list[str]:
        notes = []
        shared = {kind: self._fitting(table) for kind, table in state["shared"].items()}
        local: dict[str, dict[str, Tensor]] | None = None
        saved_place, place = (state["rank"], state["world_size"]), (self._lanes.rank, self._lanes.world_size)
        if saved_place == place:
            local = {kind: self._fitting(table) for kind, table in state["local"].items()}
        elif any(state["local"].values()):
            notes.append(
                f"errors of rank {saved_place[0]} of {saved_place[1]} are reset on rank {place[0]} of {place[1]}: "
                "what was not yet sent is lost; factors and the step count are kept"
            )
        if dict(state["options"]) != self._options:
            notes.append(f"communication options changed from {dict(state['options'])} to {self._options}")
        saved_names = {name for table in state["shared"].values() for name in table}
        saved_names |= {name for table in state["local"].values() for name in table}
        gone = sorted(saved_names - self._sizes.keys())
        if gone:
            notes.append(
                f"communication state of parameters that the model does not have is dropped: {', '.join(gone)}"
            )
        self._averager.load(shared, local)
        self._synchronisations = int(state["synchronisations"])
        self._steps_ended = self.step
        self._synchronised_at = int(state.get("synchronised_at", 0))
        self._buckets.resume([tuple(names) for names in state["buckets"]])
        return notes

    def _fitting(self, table: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in table.items() if name in self._sizes}

    def _check_ranks_agree(self) -> None:
        if self._lanes.world_size == 1:
            return
        text = repr((self._synchronisations, self._buckets.to_repeat)).encode()
        digest = int.from_bytes(hashlib.sha256(text).digest()[:7], "little")
        largest = torch.tensor([digest, -digest], dtype=torch.int64, device=self._device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self._process_group)
        if largest[0] != digest or -largest[1] != digest:
            raise UsageError(
                f"communication states of different runs or steps: rank {self._lanes.rank} has step {self.step}; "
                "give every rank the state of one checkpoint"
            )

    def _synchronise(self, method: LocalSgd) -> None:
        """Make all ranks' parameters equal; raises RunFailed where a rank is gone."""
        started = time.perf_counter()
        if self._lanes.world_size > 1:
            gate = Gate(self._device, waiting=len(method.parts))
            for part in method.parts:
                self._dispatcher.submit(method.synchronise(part, self.step, self._lanes), gate.one_finished)
            gate.future.wait()
            if gate.failure is not None:
                raise self._explain(gate.failure, self.step)
            self._share_buffers()
        self._synchronised_at = self.step
        self._outer_seconds = time.perf_counter() - started

    def _share_buffers(self) -> None:
        for buffer in self._ddp_model.module.buffers():
            dist.broadcast(buffer, group_src=0, group=self._process_group)

    def _begin_backward(self) -> None:
        if isinstance(self._averager, LocalSgd) and self._ddp_model._join_config.enable:
            raise UsageError(
                "communication.compression.method local-sgd inside join(): a rank without batches takes no steps, and "
                "the others would wait for it; give all ranks equally many batches, or use another method"
            )
        if isinstance(self._averager, LocalSgd) and self._steps_ended != self.step:
            raise UsageError(
                "communication.compression.method local-sgd: nobody said that an optimizer step has ended; take the "
                "optimizer from run.optimizer(), or call step_ended() of the communication after each optimizer.step()"
            )
        if not getattr(self._ddp_model, "_divide_by_initial_world_size", True):
            raise UsageError(
                f"communication.compression.method {self.method}: join(divide_by_initial_world_size=False) asks for a "
                "mean over the ranks that still have batches, which only plain DDP takes; leave it True, or use none"
            )
        self._outer_seconds = 0.0
        self._gradient_bytes = 0
        self._lanes.reset_counts()
        self._seconds_before = self._dispatcher.communication_seconds or 0.0

    def _end_backward(self) -> None:
        self._handed_over = True
        self._buckets.end_backward()
        if self._extra_synchronisations:
            self._extra_synchronisations -= 1
        else:
            self._synchronisations += 1

    def _layout_of(self, grad_bucket: dist.GradBucket) -> Layout:
        parameters = grad_bucket.parameters()
        key = tuple(id(parameter) for parameter in parameters)
        if key not in self._layouts:
            names = [self._names[identity] for identity in key]
            self._layouts[key] = layout_of(names, grad_bucket.gradients())
        return self._layouts[key]

    def _parts(self, flat: Tensor, layout: Layout, names: Sequence[str], step: int) -> Iterator[Work]:
        """Average the parameters `names` of a bucket; where they are only some of it, in a buffer of their own."""
        if len(names) == len(layout.slots):
            yield from self._averager.average(Bucket(flat=flat, layout=layout, step=step), self._lanes)
            return
        by_name = {slot.name: slot for slot in layout.slots}
        slots = [by_name[name] for name in names]
        pieces = [flat[slot.offset : slot.end] for slot in slots]
        gathered = torch.cat(pieces)
        yield from self._averager.average(Bucket(flat=gathered, layout=packed(slots), step=step), self._lanes)
        for piece, average in zip(pieces, gathered.split([slot.numel for slot in slots]), strict=True):
            piece.copy_(average)

    def _explain(self, cause: BaseException, step: int) -> RunFailed:
        """Return the failure of this run, made of the first `cause`."""
        if self.failure is None:
            culprit = self._culprit()
            self.failure = RunFailed(
                f"gradient communication ({self.method}) failed on rank {self._lanes.rank} of "
                f"{self._lanes.world_size} in step {step}: {culprit} ({cause})"
            )
        return self.failure

    def _culprit(self) -> str:
        asked = roll_call()
        if asked is not None:
            return culprits(asked.missing_ranks())
        dead = self._peers.dead_ranks()
        if dead:
            return culprits(dead)
        return "a rank on another machine has died, or a rank is stuck: look for the first error of all ranks"
