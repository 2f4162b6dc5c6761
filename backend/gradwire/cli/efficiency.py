"""`gradwire efficiency`: scaling efficiency and grade from two throughputs."""

from __future__ import annotations

import argparse

from gradwire.cli.options import add_json, positive_integer, positive_number
from gradwire.cli.output import note, say, say_json
from gradwire.errors import ThresholdNotMet
from gradwire.measure.efficiency import scaling_efficiency

DESCRIPTION = """\
Scaling efficiency: throughput / (baseline x N / M), where the baseline was
measured on M GPUs (1) and the throughput on N, both in all and in one unit.
good: above 85 %; acceptable: 70 to 85 %; poor: below 70 %."""
EXAMPLES = """\
  gradwire efficiency --baseline 100 --num-gpus 8 --throughput 720
  gradwire efficiency --baseline 780 --baseline-num-gpus 8 --num-gpus 64 \\
      --throughput 5200 --fail-below 0.85"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The numbers, and the threshold."""
    parser.add_argument("--baseline", required=True, type=positive_number, metavar="T", help="throughput on M GPUs")
    parser.add_argument(
        "--baseline-num-gpus", type=positive_integer, default=1, metavar="M", help="GPUs of the baseline (1)"
    )
    parser.add_argument("--num-gpus", required=True, type=positive_integer, metavar="N", help="GPUs of the run")
    parser.add_argument("--throughput", required=True, type=positive_number, metavar="T", help="throughput on N GPUs")
    parser.add_argument(
        "--fail-below", type=_share, metavar="X", help="exit with 5 when the efficiency is below X, a fraction or 85%%"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the efficiency; return ThresholdNotMet's exit code below --fail-below."""
    efficiency, grade = scaling_efficiency(
        arguments.baseline, arguments.num_gpus, arguments.throughput, baseline_n_gpus=arguments.baseline_num_gpus
    )
    ideal = arguments.baseline * arguments.num_gpus / arguments.baseline_num_gpus
    met = arguments.fail_below is None or efficiency >= arguments.fail_below
    if arguments.json:
        say_json(
            {
                "scaling_efficiency": efficiency,
                "grade": grade,
                "speedup": arguments.throughput / arguments.baseline,
                "baseline_throughput": arguments.baseline,
                "baseline_num_gpus": arguments.baseline_num_gpus,
                "num_gpus": arguments.num_gpus,
                "throughput": arguments.throughput,
                "ideal_throughput": ideal,
                "fail_below": arguments.fail_below,
                "met": met,
            }
        )
    else:
        say(f"{efficiency:.1%}  {grade}  ({arguments.throughput:g} of an ideal {ideal:g})")
    if met:
        return 0
    # Not raised: with --json the result is on stdout already, and stays the only document there.
    note(f"gradwire: scaling efficiency {efficiency:.1%} is below {arguments.fail_below:.1%} (--fail-below)")
    return ThresholdNotMet.exit_code


def _share(text: str) -> float:
    try:
        number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 2:
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction such as 0.85, or 85%")
    return number
