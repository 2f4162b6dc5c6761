"""What DeepSpeed ends up with from its file: every key read, filled, replaced, idle or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from gradwire.targets.deepspeed_activity import idle_reason
from gradwire.targets.deepspeed_parameters import accepted_parameters
from gradwire.targets.deepspeed_readings import zero_stage
from gradwire.targets.deepspeed_values import is_removed, misfits, twin_of
from gradwire.targets.effective import Effective, Passed, Reading
from gradwire.targets.filling import PLUGIN_FILLED, Loader, fill, job_precision, loader_of
from gradwire.targets.job import Job
from gradwire.targets.schema import Visit, is_known_in, section_of, spec_at, visit
from gradwire.targets.suggest import suggestion
from gradwire.targets.tree import Document, Member

_WRITTEN_OUT = tuple(
    f"scheduler.params.{name}"
    for name in (
        "warmup_num_steps",
        "warmup_type",
        "last_batch_iteration",
        "warmup_min_lr",
        "warmup_max_lr",
        "warmup_min_ratio",
        "cos_min_ratio",
    )
)
_CONSTRUCTED: tuple[Literal["optimizer", "scheduler"], ...] = ("optimizer", "scheduler")
_TRAIN, _MICRO, _ACCUMULATION = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)


def read_deepspeed(document: Document, job: Job) -> Reading:
    """Return what DeepSpeed makes of `document` in `job`, handed over by the Trainer or Accelerate where they do so."""
    loader = loader_of(document, job)
    stage = _stage(document, loader)
    found = _Found(document, job, loader, stage)
    for each in visit(document):
        found.take(each)
    found.add_injected()
    values, idle = found.values, list(found.idle)
    for path, effective in list(values.items()):
        reason = idle_reason(path, values, stage)
        if reason is not None and effective.member is not None:
            idle.append(Passed(path=path, document=document, member=effective.member, reason=reason))
            del values[path]
    return Reading(values=values, idle=tuple(idle), refused=tuple(found.refused))


def default_of(path: str, values: Mapping[str, Effective]) -> Any:
    """Return what DeepSpeed has at a path that nothing says; None where it has nothing."""

    def value(other: str, default: Any) -> Any:
        found = values.get(other)
        return default if found is None else found.value

    match path:
        case "zero_optimization.overlap_comm":
            return value("zero_optimization.stage", 0) == 3
        case "communication_data_type":
            return "fp16" if value("fp16.enabled", False) else "bf16" if value("bf16.enabled", False) else "fp32"
        case "optimizer.params.weight_decay":
            kind = str(value("optimizer.type", "")).lower()
            decouples = kind == "adamw" or (kind == "adam" and value("optimizer.params.adam_w_mode", True))
            return 0.01 if decouples and value("optimizer.params.torch_adam", False) else 0.0
        case "optimizer.params.adam_w_mode":
            return True
    if path in _WRITTEN_OUT:
        # No scheduler, or one whose defaults were written out: see `comparable`.
        return None
    return (spec_at("deepspeed", path) or {}).get("default")


def canonical(path: str) -> str:
    """Return a dotted path with every old or second name of a key replaced by the one that is used here."""
    if path.startswith("bfloat16."):
        return f"bf16.{path.partition('.')[2]}"
    spec = spec_at("deepspeed", path) or {}
    section, _, name = path.rpartition(".")
    new = spec.get("x-same-as") or (spec.get("x-renamed-to") if spec.get("deprecated") else None)
    if new is None or section != "zero_optimization":
        return path
    return f"{section}.{new}" + (".device" if new.startswith("offload_") else "") if name != new else path


def _stage(document: Document, loader: Loader) -> int:
    if document.value("zero_optimization.stage") == "auto" and loader != "deepspeed":
        return int(PLUGIN_FILLED["zero_optimization.stage"])
    return zero_stage(document)


def _unaccepted(document: Document) -> Iterator[str]:
    """Paths of parameters that the constructor of the optimizer or the scheduler does not take."""
    for section in _CONSTRUCTED:
        accepted = accepted_parameters(document, section)
        if accepted is not None:
            # What clips has words of its own.
            beyond = document.mapping(f"{section}.params").keys() - {*accepted, "max_grad_norm"}
            yield from (f"{section}.params.{name}" for name in beyond)


class _Found:
    """Collects the values of one file, key by key."""

    def __init__(self, document: Document, job: Job, loader: Loader, stage: int) -> None:
        self.document, self.job, self.loader, self.stage = document, job, loader, stage
        self.values: dict[str, Effective] = {}
        self.idle: list[Passed] = []
        self.refused: list[Passed] = []
        self._misfits = {each.path: misfit for each, misfit in misfits(document)}
        self._has_bf16 = document.value("bf16") is not None
        self._unaccepted = set(_unaccepted(document))

    def take(self, each: Visit) -> None:
        """Sort one key in."""
        value, spec = each.member.node.data, each.spec
        if "[" in each.path or self._is_inside_a_value(each.path):
            return
        if is_removed(each, self.job.versions.deepspeed):
            removal = each.section["x-removed"][each.member.name]
            self._refuse(each, f"{removal['what']} was removed in DeepSpeed {removal['version']}")
        elif each.path in self._unaccepted:
            kind = self.document.value(f"{each.section_path.removesuffix('.params')}.type")
            self._refuse(each, f"{kind} takes no parameter {each.member.name}, and deepspeed.initialize fails")
        elif spec is None or not is_known_in(spec, self.job.versions.deepspeed):
            self._take_unknown(each)
        elif (twin := twin_of(each)) is not None:
            self._refuse(each, f"it is another name of {twin}, and both are written")
        elif each.path.startswith("bfloat16") and self._has_bf16:
            self._pass(each, "bf16 is written too, and DeepSpeed then ignores bfloat16")
        elif section_of("deepspeed", spec) is not None:
            self._take_section(each, value)
        elif value == "auto" and spec.get("x-auto") != "value":
            self._take_auto(each)
        else:
            self._take_value(each, value)

    def add_injected(self) -> None:
        """Add what Accelerate and the Trainer write into a file that lacks it."""
        if self.loader == "deepspeed":
            return
        if _ACCUMULATION not in self.values:
            note = f"{_ACCUMULATION} is not written, so Accelerate and the Trainer write 1"
            self.values[_ACCUMULATION] = Effective(path=_ACCUMULATION, value=1, origin="filled", note=note)
        self._add_micro_batch()
        wanted = job_precision(self.job)
        section = {"fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}.get(wanted or "no")
        if section is not None and not self.document.has(section):
            for name in ("enabled", "auto_cast") if section == "fp16" else ("enabled",):
                path, note = f"{section}.{name}", f"Accelerate adds it: mixed precision {wanted}"
                self.values[path] = Effective(path=path, value=True, origin="filled", note=note)

    def _add_micro_batch(self) -> None:
        """The micro batch in the global one that the Trainer or Accelerate fills in where the file has no other."""
        member = self.document.member(_TRAIN)
        filled = fill(_MICRO, self.job, self.loader, stage=self.stage)
        if filled is None or member is None or member.node.data != "auto" or self.document.has(_MICRO):
            return
        self.values[_MICRO] = Effective(
            path=_MICRO,
            value=filled.value,
            origin=filled.origin,
            document=self.document,
            member=member,
            note=f"in the {_TRAIN} that is filled in: {filled.note}",
        )

    def _take_section(self, each: Visit, value: Any) -> None:
        if each.path == "zero_optimization" and isinstance(value, bool):
            self._keep(each, "zero_optimization.stage", int(value), note="an old spelling of the stage")
        elif isinstance(value, dict):
            if not value:
                self._pass(each, "an empty section says nothing")
        elif each.path in self._misfits:
            self._refuse(each, f"it must be {self._misfits[each.path].expected}")
        else:
            self._pass(each, "an empty section says nothing")

    def _take_unknown(self, each: Visit) -> None:
        treatment = each.section["x-unknown-keys"]
        meant, _ = suggestion("deepspeed", each)
        hint = f" (did you mean {meant}?)" if meant else ""
        if treatment == "ignored" or (treatment == "refused" and each.member.node.data == "auto"):
            self._pass(each, f"DeepSpeed does not know it and ignores it{hint}")
        elif treatment == "refused":
            self._refuse(each, f"DeepSpeed does not know it and stops{hint}")
        else:
            self._keep(each, each.path, each.member.node.data)

    def _take_auto(self, each: Visit) -> None:
        path = canonical(each.path)
        filled = fill(path, self.job, self.loader, stage=self.stage)
        if filled is not None and filled.value is not None:
            self.values[path] = Effective(
                path=path,
                value=filled.value,
                origin=filled.origin,
                document=self.document,
                member=each.member,
                note=filled.note,
            )
            return
        if filled is not None or each.section["x-unknown-keys"] == "refused":
            default = default_of(path, self.values)
            note = filled.note if filled is not None else f'nobody fills this "auto"; DeepSpeed uses {default!r}'
            if default is None or path == "train_batch_size":
                self._pass(each, note)
                return
            origin = filled.origin if filled is not None else "default"
            self.values[path] = Effective(
                path=path, value=default, origin=origin, document=self.document, member=each.member, note=note
            )
        elif each.path in ("optimizer.type", "scheduler.type"):
            self._keep(each, each.path, "auto")
        else:
            self._refuse(each, 'nobody fills this "auto", and DeepSpeed gets the text')

    def _take_value(self, each: Visit, value: Any) -> None:
        inert = each.says.get("x-inert")
        if inert is not None:
            (self._refuse if inert.startswith("refused") else self._pass)(each, inert)
            return
        path, note = canonical(each.path), None
        misfit = self._misfits.get(each.path)
        if misfit is not None and misfit.outcome == "refused":
            self._refuse(each, f"it must be {misfit.expected}")
            return
        if misfit is not None and misfit.outcome == "replaced":
            value, note = misfit.becomes, f"written {value!r}, taken for {misfit.becomes!r}"
        if value is None and path != "gradient_clipping":
            self._pass(each, "null is the same as leaving it out")
            return
        if path != each.path and path.endswith(".device"):
            if value is not True:
                self._pass(each, "switched off, which is the default")
                return
            value, note = "cpu", f"the old name {each.member.name}"
        self._keep(each, path, _whole(each, value), note=note)

    def _keep(self, each: Visit, path: str, value: Any, *, note: str | None = None) -> None:
        self.values[path] = Effective(
            path=path, value=value, origin="written", document=self.document, member=each.member, note=note
        )

    def _pass(self, each: Visit, reason: str) -> None:
        self.idle.append(self._passed(each.path, each.member, reason))

    def _refuse(self, each: Visit, reason: str) -> None:
        self.refused.append(self._passed(each.path, each.member, reason))

    def _passed(self, path: str, member: Member, reason: str) -> Passed:
        return Passed(path=path, document=self.document, member=member, reason=reason)

    def _is_inside_a_value(self, path: str) -> bool:
        parts = path.split(".")
        return any(".".join(parts[:size]) in self.values for size in range(1, len(parts)))


def _whole(each: Visit, value: Any) -> Any:
    """5e8 for a key that counts is 500000000."""
    kinds = each.says.get("type", ())
    is_count = "integer" in kinds and "number" not in kinds
    return int(value) if is_count and isinstance(value, float) and value.is_integer() else value
