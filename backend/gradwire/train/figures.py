"""Measures what `gradwire advise` rests on; started under torchrun, it writes one document from rank 0.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m gradwire.train.figures PLAN OUT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from gradwire.documents.figures_schema import Figures, MethodArithmetic
from gradwire.documents.plan_schema import Plan, World
from gradwire.errors import GradwireError
from gradwire.measure.advice import candidates
from gradwire.measure.document import document_text, write_text
from gradwire.train.communication.arithmetic import measure_arithmetic
from gradwire.train.engines.native import autocast_for
from gradwire.train.link import measure_wire
from gradwire.train.model import LossModel, build_model, weights_dtype
from gradwire.train.passes import timed_step
from gradwire.train.process_group import begin_process_group, choose_device, end_process_group, leave
from gradwire.train.reading import read_plan
from gradwire.train.setting import Place, read_place, require_model


def measure_figures(plan: Plan, place: Place) -> Figures:
    """Return the figures of `plan`'s model on this machine; the ranks that were started measure together."""
    here = World(
        world_size=place.world_size,
        num_nodes=1,
        processes_per_node=place.world_size,
        device=plan.world.device,
        process_group_backend=plan.world.process_group_backend,
    )
    device = choose_device(here, place)
    begin_process_group(here, place, device)
    group = dist.group.WORLD
    wire = measure_wire(group, device)
    model = _model(plan, device)
    tokens = torch.zeros(
        (plan.batch.batch_size_per_gpu, require_model(plan).sequence_length), dtype=torch.long, device=device
    )
    step = timed_step(model, lambda: model(tokens, tokens), micro_steps=1, process_group=group, device=device)
    arithmetic = []
    for name, compression in candidates(plan.recipe.communication.compression).items():
        cost = measure_arithmetic(model, compression, process_group=group, device=device)
        arithmetic.append(
            MethodArithmetic(
                name=name, seconds_per_byte=cost.seconds_per_byte, seconds_per_bucket=cost.seconds_per_bucket
            )
        )
    end_process_group()
    return Figures(
        format_version=1,
        device=plan.world.device,
        latency_seconds=wire.latency_seconds,
        bytes_per_second=wire.bytes_per_second,
        compute_seconds=step.compute_seconds,
        arithmetic=arithmetic,
    )


def _model(plan: Plan, device: Any) -> LossModel:
    stage = build_model(plan, require_model(plan), autocast_dtype=autocast_for(plan.recipe))
    model: LossModel = LossModel(stage).to(device=device, dtype=weights_dtype(plan.recipe.training))
    return model


def main(plan_path: Path, out: Path) -> None:
    """Measure, write, and end the process."""
    place = read_place(os.environ)
    try:
        plan, _ = read_plan(plan_path)
        figures = measure_figures(plan, place)
        if place.rank == 0:
            write_text(out, document_text(figures, "figures"))
    except GradwireError as error:
        sys.stderr.write(f"gradwire: {error}\n")
        leave(error.exit_code)
    leave(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
