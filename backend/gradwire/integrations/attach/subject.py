"""What is watched: the model that an optimizer trains, its batches, and what a measurement says of both."""

from __future__ import annotations

import os
import resource
import sys
import weakref
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
import torch.distributed

from gradwire.integrations.attach.products import products_of
from gradwire.integrations.attach.roots import called_candidates, is_compiled, roots_of, wrapped_by
from gradwire.integrations.attach.shape import shape_of, size_of
from gradwire.integrations.counts import Counts, count_of
from gradwire.integrations.parallel import counts_here, parameters_count_here
from gradwire.measure.nvml import EnergyCounter
from gradwire.measure.rank_log import Products, RankFacts, RankStart, RankSubject
from gradwire.train.facts import device_name, device_uuid, read_versions

See = Callable[[Callable[[], "tuple[bool, Counts | None] | None"]], None]
"""Is given what finds out, at a call of the model, whether it trains and on what."""

_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


class Subject:
    """The model behind an optimizer, or DeepSpeed's engine, and what is seen of it.

    Keeps nothing of the command's alive: a script that drops its model to make room for the next one must get the room.
    """

    def __init__(self, stepped: Any, *, see: See, is_engine: bool) -> None:
        self._tell = see
        self._is_engine = is_engine
        self._hooks: weakref.WeakKeyDictionary[torch.nn.Module, Any] = weakref.WeakKeyDictionary()
        self._counted: weakref.ref[torch.nn.Module] | None = None
        self._is_found = False
        self._wrapped: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._followed = 0
        self.device = torch.device("cpu")
        self.follow(stepped)
        self.energy = EnergyCounter(device_uuid(self.device))

    def follow(self, stepped: Any) -> None:
        """Watch the model of `stepped` from now on."""
        roots = [stepped] if self._is_engine else roots_of(stepped)
        parameters = _parameters(stepped, is_engine=self._is_engine)
        strategy = _strategy(stepped, roots, is_engine=self._is_engine)
        self._counts_batches, self._counts_slices = (
            _counts_here(parameters, is_sharded_data=strategy == "fsdp", given_slices=slices)
            for slices in (False, True)
        )
        self._counted, self._is_found = None, bool(roots)
        self._followed += 1
        self._stepped = weakref.ref(stepped)
        self.device = parameters[0].device if parameters else self.device
        self._described = _described(stepped, roots, parameters, strategy, is_engine=self._is_engine)
        if self._followed > 1:
            several = "several models were trained one after the other"
            shape = msgspec.structs.replace(self._described.shape, reason=several)
            self._described = msgspec.structs.replace(self._described, shape=shape)
        for root in roots:
            for module in [root] if self._is_engine else called_candidates(root):
                self._hooks[module] = module.register_forward_pre_hook(self._called, with_kwargs=True)

    def start(self, *, warmup_steps: int) -> RankStart:
        """Return the rank's place and what it runs on."""
        is_group = torch.distributed.is_available() and torch.distributed.is_initialized()
        world_size = torch.distributed.get_world_size() if is_group else 1
        return RankStart(
            rank=torch.distributed.get_rank() if is_group else 0,
            world_size=world_size,
            ranks_on_node=min(world_size, int(os.environ.get("LOCAL_WORLD_SIZE") or world_size)),
            pid=os.getpid(),
            script=Path(sys.argv[0]).name or "python",
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            device="cuda" if self.device.type == "cuda" else "cpu",
            device_name=device_name(self.device),
            threads=torch.get_num_threads(),
            warmup_steps=warmup_steps,
            library=self._library(),
            versions=read_versions(),
            # torchrun's, which Accelerate's launcher passes on.
            attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0),
        )

    def facts(self, *, optimizers: int) -> RankFacts:
        """Return what is known by now."""
        energy = self.energy.read()
        on_device = self.device.type == "cuda"
        return RankFacts(
            # Linux counts in KiB.
            peak_process_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            peak_device_allocated_bytes=torch.cuda.max_memory_allocated(self.device) if on_device else None,
            peak_device_reserved_bytes=torch.cuda.max_memory_reserved(self.device) if on_device else None,
            joules=energy.joules,
            joules_seconds=energy.seconds,
            joules_device=energy.device,
            joules_reason=energy.reason,
            subject=self._described,
            notes=self._notes(optimizers),
        )

    def _see_products(self, model: torch.nn.Module) -> None:
        """Note the data type of the products, in the first call that trains: a context around it may set it."""
        stepped = self._stepped()
        if stepped is None:
            return
        parameters = _parameters(stepped, is_engine=self._is_engine)
        found: Products | None = products_of(stepped, list(model.modules()), parameters, is_engine=self._is_engine)
        self._described = msgspec.structs.replace(self._described, products=found)

    def _called(self, model: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._tell(lambda: self._see(model, arguments, named))

    def _see(
        self, model: torch.nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[bool, Counts | None] | None:
        """Return whether the call trains, with the counts of its batch; None for a call that is neither."""
        counted = None if self._counted is None else self._counted()
        if counted is None:
            self._keep(model)
            counted = model
        if not model.training:
            return False, None
        if model in self._wrapped or not torch.is_grad_enabled():
            return None
        return True, self._shares(count_of(arguments, named)) if counted is model else None

    def _keep(self, model: torch.nn.Module) -> None:
        """The outermost module that is called is the one to watch, and what it wraps, which may be evaluated."""
        self._wrapped = weakref.WeakSet(wrapped_by(model))
        for module in model.modules():
            if module is not model and module not in self._wrapped and module in self._hooks:
                self._hooks.pop(module).remove()
        if model.training:
            self._counted = weakref.ref(model)
            self._see_products(model)

    def _shares(self, found: Counts) -> Counts:
        return Counts(
            samples=found.samples if self._counts_batches or found.samples is None else 0,
            tokens=found.tokens if self._counts_slices or found.tokens is None else 0,
            slots=found.slots if self._counts_slices or found.slots is None else 0,
        )

    def _library(self) -> Literal["native", "accelerate", "deepspeed"]:
        if self._is_engine:
            return "deepspeed"
        state = sys.modules.get("accelerate.state")
        return "accelerate" if state is not None and state.PartialState._shared_state else "native"

    def _notes(self, optimizers: int) -> list[str]:
        notes = []
        if self._followed > 1:
            notes.append(f"{self._followed} models were trained one after the other; what is said is of the last")
        if optimizers > 1:
            notes.append(f"{optimizers} optimizers stepped; a step is one of the first that did")
        if self._counted is None:
            what = "call of the model was seen" if self._is_found else "model was found"
            notes.append(f"no {what}, so its batches, and evaluation, were not seen either: only steps were timed")
        return notes


def _described(stepped: Any, roots: list[Any], parameters: list[Any], strategy: str, *, is_engine: bool) -> RankSubject:
    inner = [[root, *wrapped_by(root)][-1] for root in roots]
    optimizer = getattr(stepped, "basic_optimizer", None) or stepped.optimizer if is_engine else stepped
    return RankSubject(
        model=", ".join(f"{_kind(model)} with {_size(model):,} parameters" for model in inner) or None,
        shape=shape_of(inner, is_pipeline=_is_pipeline(stepped, parameters)),
        products=None,
        optimizer=type(optimizer).__name__,
        precision=_precision(parameters),
        strategy=strategy,
        compile=any(is_compiled(module) for root in roots for module in root.modules()),
        gradient_checkpointing=any(
            # The name that transformers' modules have.
            vars(module).get("gradient_checkpointing") is True
            for model in inner
            for module in model.modules()
        ),
    )


def _strategy(stepped: Any, roots: list[Any], *, is_engine: bool) -> str:
    if is_engine:
        stage = int(stepped.zero_optimization_stage())
        return f"zero{stage}" if stage else "ddp"
    kinds = {type(module).__name__ for root in roots for module in root.modules()}
    return "fsdp" if any(kind.startswith(("FSDP", "FullyShardedDataParallel")) for kind in kinds) else "ddp"


def _parameters(stepped: Any, *, is_engine: bool) -> list[Any]:
    if is_engine:
        return list(stepped.module.parameters())
    return [parameter for group in stepped.param_groups for parameter in group["params"]]


def _counts_here(parameters: list[Any], *, is_sharded_data: bool, given_slices: bool) -> bool:
    """Whether this rank counts: by Accelerate's device mesh, else by those that the parameters lie on."""
    state = sys.modules.get("accelerate.state")
    if state is not None and state.AcceleratorState._shared_state:
        mesh = getattr(state.AcceleratorState(), "device_mesh", None)
        if mesh is not None:
            return counts_here(mesh, given_slices=given_slices)
    return parameters_count_here(parameters, is_sharded_data=is_sharded_data, given_slices=given_slices)


def _is_pipeline(stepped: Any, parameters: list[Any]) -> bool:
    names = {name for each in parameters if hasattr(each, "device_mesh") for name in _root_names(each.device_mesh)}
    # The kind of engine that DeepSpeed makes of a PipelineModule.
    return bool(names & {"pp", "pipeline"}) or any(kind.__name__ == "PipelineEngine" for kind in type(stepped).__mro__)


def _root_names(mesh: Any) -> Sequence[str]:
    return mesh._get_root_mesh().mesh_dim_names or ()


def _kind(model: torch.nn.Module) -> str:
    """The class of a model; fully_shard makes one of its own from it, named FSDP and what it was."""
    kinds = [kind.__name__ for kind in type(model).__mro__]
    return next(name for name in kinds if not name.startswith("FSDP")) if "FSDPModule" in kinds else kinds[0]


def _size(model: torch.nn.Module) -> int:
    return sum(size_of(parameter) for parameter in model.parameters())


def _precision(parameters: list[Any]) -> str:
    kinds = dict.fromkeys(str(parameter.dtype).removeprefix("torch.") for parameter in parameters)
    return " and ".join(_SHORT.get(kind, kind) for kind in kinds) + " parameters"
