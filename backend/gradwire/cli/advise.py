"""`gradwire advise`: below which link speed each compression method pays, for one recipe and number of ranks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradwire.cli.options import add_changes, add_json, add_recipe, positive_number
from gradwire.cli.output import note, plain, say, say_json, wrapped
from gradwire.cli.steps import device_of, load
from gradwire.errors import UsageError

if TYPE_CHECKING:
    from gradwire.documents.figures_schema import Figures
    from gradwire.documents.plan_schema import Plan
    from gradwire.measure.advice import Advice

DESCRIPTION = """\
Say when gradient compression pays: for each method the link speed below which
it makes the step shorter, for this model, batch and number of ranks, and what
to do on the link at hand; often that is not to compress.

Latency, bandwidth, a micro-step's compute and each method's arithmetic are
measured on this machine, between a few processes, unless they are given. The
network of a real job is another one: give --latency and --bandwidth."""
EXAMPLES = """\
  gradwire advise cpu/powersgd --num-gpus 8 --bandwidth 1000 --latency 1e-4
  gradwire advise mine.yaml --num-gpus 16 --out figures.json
  gradwire advise mine.yaml --num-gpus 64 --figures figures.json --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """RECIPE, changes, and figures that are known."""
    add_recipe(parser)
    add_changes(parser)
    group = parser.add_argument_group("figures (what is not given is measured here)")
    group.add_argument("--figures", type=Path, metavar="FILE", help="take all from FILE (JSON); measures nothing")
    group.add_argument("--latency", type=positive_number, metavar="S", help="seconds of an empty all-reduce")
    group.add_argument("--bandwidth", type=positive_number, metavar="MBIT", help="a link's speed, in Mb/s")
    group.add_argument(
        "--compute-seconds", type=positive_number, metavar="S", help="forward and backward of a micro-step"
    )
    group.add_argument("--out", type=Path, metavar="FILE", help="write the figures used to FILE, for --figures")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the advice."""
    from gradwire.measure.advice import build_advice

    plan = _plan(arguments)
    model = plan.recipe.model
    if model is None:
        raise UsageError(f"{plan.recipe_name} has no model block, so its gradients are not known; add one")
    figures, origin = _figures(arguments, plan)
    if arguments.out is not None:
        from gradwire.measure.document import document_text, write_text

        write_text(arguments.out, document_text(figures, "figures"))
    advice = build_advice(plan, model, figures)
    if arguments.json:
        say_json(_document(plan, figures, origin, advice))
    else:
        _say(plan, figures, origin, advice)
    return 0


def _plan(arguments: argparse.Namespace) -> Plan:
    from gradwire.plan import settle
    from gradwire.recipe import check_device

    loaded = load(arguments.recipe, arguments)
    device = device_of(loaded)
    if loaded.recipe.training.device is None:
        check_device(loaded, device)
    plan = settle(loaded.recipe, recipe_name=loaded.name, backend="native", device=device)
    strategy = plan.recipe.parallelism.data.strategy
    if strategy != "ddp" or plan.pipeline is not None:
        raise UsageError(f"{loaded.name}: there is advice under plain DDP only, without a pipeline")
    if plan.batch.data_parallel_size < 2:
        raise UsageError(f"{loaded.name}: one rank sends nothing; give --num-gpus 2 or more")
    return plan


def _figures(arguments: argparse.Namespace, plan: Plan) -> tuple[Figures, str]:
    import msgspec

    from gradwire.documents.figures_schema import Figures

    if arguments.figures is not None:
        from gradwire.measure.document import read_document

        figures, origin = read_document(arguments.figures, "figures", Figures), f"as in {arguments.figures.name}"
        if figures.device != plan.world.device:
            raise UsageError(
                f"{arguments.figures}: was measured on {figures.device}, and the recipe runs on {plan.world.device}, "
                "whose arithmetic takes other times; measure there, or give --device"
            )
    else:
        from gradwire.launch.figures import measure_figures

        note("measuring on this machine; a few seconds (--figures FILE takes them from an earlier run)")
        figures, processes = measure_figures(plan)
        origin = f"measured between {processes} processes of this machine"
    given: dict[str, Any] = {}
    if arguments.latency is not None:
        given["latency_seconds"] = arguments.latency
    if arguments.bandwidth is not None:
        given["bytes_per_second"] = arguments.bandwidth * 1e6 / 8
    if arguments.compute_seconds is not None:
        given["compute_seconds"] = arguments.compute_seconds
    if {"latency_seconds", "bytes_per_second"} <= set(given):
        origin = "as given"
    elif given.keys() & {"latency_seconds", "bytes_per_second"}:
        origin += ", and as given"
    return msgspec.structs.replace(figures, **given), origin


def _document(plan: Plan, figures: Figures, origin: str, advice: Advice) -> dict[str, Any]:
    return {
        "recipe_name": plan.recipe_name,
        "world_size": advice.world_size,
        "gradient_accumulation": plan.batch.gradient_accumulation,
        "gradient_bytes": advice.gradient_bytes,
        "compute_seconds": advice.compute_seconds,
        "link": origin,
        "figures": plain(figures),
        "plain_step_seconds": advice.plain_seconds,
        "methods": [
            {
                "name": method.name,
                "compression": plain(method.compression),
                "payload_share": method.payload_share,
                "wins_below_bits_per_second": method.wins_below,
                "step_seconds": method.step_seconds,
                "speedup": advice.plain_seconds / method.step_seconds,
            }
            for method in advice.methods
        ],
        "compress": advice.method is not None,
        "method": None if advice.method is None else advice.method.name,
        "advice": _verdict(advice, figures),
    }


def _say(plan: Plan, figures: Figures, origin: str, advice: Advice) -> None:
    micro_steps = plan.batch.gradient_accumulation
    say(f"{plan.recipe_name} on {advice.world_size} ranks, {micro_steps} micro-step{'s' if micro_steps > 1 else ''}")
    say(f"gradients  {advice.gradient_bytes / 1e6:,.4g} MB a step, after {advice.compute_seconds:.3g} s of compute")
    say(f"link       {_speed(figures.bytes_per_second * 8)}, {figures.latency_seconds * 1e3:.3g} ms; {origin}")
    say()
    width = max(len("method"), *(len(method.name) for method in advice.methods))
    say(f"{'method':<{width}}  {'bytes':>8}  {'pays below':>10}  {'step here':>10}")
    say(f"{'none':<{width}}  {'1':>8}  {'':>10}  {_seconds(advice.plain_seconds):>10}")
    for method in advice.methods:
        pays = "never" if method.wins_below is None else _speed(method.wins_below)
        fewer = 1 / method.payload_share
        share = f"1/{fewer:,.0f}" if fewer >= 100 else f"1/{fewer:.3g}"
        say(f"{method.name:<{width}}  {share:>8}  {pays:>10}  {_seconds(method.step_seconds):>10}")
    say()
    say(wrapped(_verdict(advice, figures)))


def _verdict(advice: Advice, figures: Figures) -> str:
    speed = _speed(figures.bytes_per_second * 8)
    if advice.method is None:
        return (
            f"Don't compress: at {speed} no method makes the step of {_seconds(advice.plain_seconds)} shorter by more "
            "than 2 %. communication.overlap.bucket_cap_mb: auto hides what can be hidden."
        )
    return (
        f"At {speed}: {advice.method.name}, predicted {advice.plain_seconds / advice.method.step_seconds:.2f}x plain "
        "DDP's steps. It changes least of those about as fast; what it costs in loss depends on the training, so "
        "compare the losses of both."
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"


def _speed(bits_per_second: float) -> str:
    for unit, size in (("Tb/s", 1e12), ("Gb/s", 1e9), ("Mb/s", 1e6)):
        if bits_per_second >= size:
            return f"{bits_per_second / size:.3g} {unit}"
    return f"{bits_per_second / 1e3:.3g} kb/s"
