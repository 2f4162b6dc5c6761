"""What the optimizer and the scheduler of a DeepSpeed file are, and which parameters their constructors take."""

from __future__ import annotations

from typing import Literal

from gradwire.targets.deepspeed_readings import is_on, offload_device, zero_stage
from gradwire.targets.schema import Spec, load_schema
from gradwire.targets.tree import Document


def optimizer_section() -> Spec:
    """What the schema says about the optimizer section."""
    section: Spec = load_schema("deepspeed")["$defs"]["Optimizer"]
    return section


def optimizer_type(document: Document) -> str | None:
    """The optimizer as DeepSpeed looks it up: its own in lower case, torch's by exact name; None: no such section."""
    written = document.value("optimizer.type")
    if not isinstance(written, str):
        return None
    return written.lower() if written.lower() in optimizer_section()["x-types"]["own"] else written


def scheduler_type(document: Document) -> str | None:
    """The scheduler's exact name, or None where there is no such section."""
    written = document.value("scheduler.type")
    return written if isinstance(written, str) else None


def accepted_parameters(document: Document, section: Literal["optimizer", "scheduler"]) -> tuple[str, ...] | None:
    """The parameters that the constructor takes, beyond which `deepspeed.initialize` fails; None: not known here."""
    definitions = load_schema("deepspeed")["$defs"]
    if section == "scheduler":
        table = definitions["SchedulerParams"]["x-parameters"].get(scheduler_type(document))
        return None if table is None else tuple(table["accepted"])
    variants = definitions["OptimizerParams"]["x-parameters"].get(optimizer_type(document))
    if variants is None:
        return None
    variant = "fused"
    if "torch" in variants and is_on(document, "optimizer.params.torch_adam"):
        variant = "torch"
    elif "cpu" in variants and offload_device(document, "offload_optimizer") != "none" and zero_stage(document) > 0:
        variant = "cpu"
    return tuple(variants[variant])
