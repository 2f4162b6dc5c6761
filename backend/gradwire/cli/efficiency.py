"""`gradwire efficiency`: scaling efficiency and grade from two throughputs, or from a file of them."""

from __future__ import annotations

import argparse

from gradwire.cli.options import add_json, file_path, positive_integer, positive_number, share
from gradwire.cli.output import note, say, say_json
from gradwire.errors import ThresholdNotMet, UsageError

DESCRIPTION = """\
Scaling efficiency: throughput / (baseline x N / M), where the baseline was
measured on M GPUs (1) and the throughput on N, both in all and in one unit.
good: above 85 %; acceptable: 70 to 85 %; poor: below 70 %.

With FILE, a CSV or JSON of sizes and throughputs from anywhere: the same for
every size, with 95 % intervals where a size has several rows (undecided where
the interval straddles two grades), and what 2x and 4x more GPUs would give."""
EXAMPLES = """\
  gradwire efficiency --baseline 100 --num-gpus 8 --throughput 720
  gradwire efficiency --baseline 780 --baseline-num-gpus 8 --num-gpus 64 \\
      --throughput 5200 --fail-below 0.85
  gradwire efficiency results.csv --chart efficiency.svg
  gradwire efficiency results.csv --throughput-column tok_s --scaling strong"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The numbers, and the threshold."""
    parser.add_argument(
        "file", nargs="?", type=file_path, metavar="FILE", help="CSV or JSON of (GPUs, throughput) rows"
    )
    parser.add_argument("--baseline", type=_throughput, metavar="T", help="throughput on M GPUs")
    parser.add_argument(
        "--baseline-num-gpus", type=positive_integer, default=1, metavar="M", help="GPUs of the baseline (1)"
    )
    parser.add_argument("--num-gpus", type=positive_integer, metavar="N", help="GPUs of the run")
    parser.add_argument("--throughput", type=_throughput, metavar="T", help="throughput on N GPUs")
    parser.add_argument(
        "--fail-below", type=share, metavar="X", help="exit with 5 when the efficiency is below X, a fraction or 85%%"
    )
    group = parser.add_argument_group("with FILE")
    group.add_argument("--size-column", metavar="NAME", help="column of the GPUs (n, gpus, world_size, ... are known)")
    group.add_argument(
        "--throughput-column", metavar="NAME", help="column of the throughput (tokens_per_second, ... are known)"
    )
    group.add_argument(
        "--scaling", choices=("weak", "strong"), default="weak", help="what the rows are: decides the fitted law (weak)"
    )
    group.add_argument("--chart", type=file_path, metavar="FILE", help="write the efficiencies as a .svg or .png")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the efficiency; return ThresholdNotMet's exit code below --fail-below."""
    _check(arguments)
    if arguments.file is not None:
        from gradwire.cli.rows import run_rows

        if arguments.chart is not None:
            from gradwire.measure.document import check_target

            check_target(arguments.chart, what="a chart", suffixes=(".svg", ".png"), inputs=[arguments.file])
        return run_rows(arguments)
    from gradwire.measure.efficiency import scaling_efficiency

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


def _throughput(text: str) -> float:
    # The limits of a file's rows, which this verb does not import for two numbers.
    number = positive_number(text)
    if not 1e-30 <= number <= 1e30:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 1e-30 to 1e30; give throughputs in another unit")
    return number


def _check(arguments: argparse.Namespace) -> None:
    both = {"--num-gpus": arguments.num_gpus, "--throughput": arguments.throughput}
    only_file = {
        "--size-column": arguments.size_column,
        "--throughput-column": arguments.throughput_column,
        "--chart": arguments.chart,
    }
    if arguments.file is not None:
        given = [name for name, value in both.items() if value is not None]
        if given:
            raise UsageError(f"{' and '.join(given)} with a FILE: the file has the sizes and throughputs")
        return
    missing = [name for name, value in {"--baseline": arguments.baseline, **both}.items() if value is None]
    if missing:
        raise UsageError(
            f"without a FILE of rows, {', '.join(missing)} must be given; more: gradwire efficiency --help"
        )
    given = [name for name, value in only_file.items() if value is not None]
    if given:
        raise UsageError(f"{' and '.join(given)} needs a FILE of rows")
