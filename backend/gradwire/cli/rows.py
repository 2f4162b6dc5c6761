"""`gradwire efficiency FILE`: grades, intervals, fits and a chart for throughputs that came from elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradwire.cli.output import note, say, say_json, screen_width, wrapped
from gradwire.errors import ThresholdNotMet

if TYPE_CHECKING:
    from gradwire.compare.bars import Bar
    from gradwire.measure.curve import Curve, Point
    from gradwire.measure.fits import Fit
    from gradwire.measure.interval import Interval

_MOST_BARS = 40
_MOST_PLACES = 10


def run_rows(arguments: argparse.Namespace) -> int:
    """Print the efficiencies of the rows of `arguments.file`; return ThresholdNotMet's exit code below --fail-below."""
    from gradwire.measure.curve import curves_of
    from gradwire.measure.rows import read_rows

    read = read_rows(arguments.file, size_name=arguments.size_column, throughput_name=arguments.throughput_column)
    given = None if arguments.baseline is None else (arguments.baseline_num_gpus, arguments.baseline)
    curves = curves_of(read.rows, scaling=arguments.scaling, baseline=given)
    below = [
        f"{_name(curve, point)} {point.graded.scaling_efficiency:.1%}"
        for curve in curves
        for point in curve.points
        if arguments.fail_below is not None
        and point.graded is not None
        and point.graded.scaling_efficiency < arguments.fail_below
    ]
    notes = [*_left_out(read.left_out), *_notes(curves)]
    if arguments.chart is not None:
        from gradwire.compare.curve_chart import write_chart

        write_chart(arguments.chart, curves, title=arguments.file.name)
    if arguments.json:
        say_json(
            {
                "file": str(arguments.file),
                "scaling": arguments.scaling,
                "curves": [_plain(curve) for curve in curves],
                "left_out": list(read.left_out),
                "notes": notes,
                "fail_below": arguments.fail_below,
                "met": not below,
            }
        )
    else:
        _say(curves, notes, arguments)
    if not below:
        return 0
    note(f"gradwire: scaling efficiency below {arguments.fail_below:.1%} (--fail-below): {', '.join(below)}")
    return ThresholdNotMet.exit_code


def _say(curves: Sequence[Curve], notes: Sequence[str], arguments: argparse.Namespace) -> None:
    from gradwire.compare.bars import Bar, bars_text
    from gradwire.compare.format import percent, rate, times

    bars = []
    for curve in curves:
        if curve.series is not None:
            say(curve.series)
        say(f"{'GPUs':>8}  {'Throughput':>12}  {'Speed-up':>8}  {'Efficiency':>10}  {'95 % interval':>16}  Grade")
        for point in curve.points:
            graded = point.graded
            figures = [f"{point.num_gpus:>8}", f"{rate(point.throughput):>12}"]
            if graded is None:
                say("  ".join([*figures, f"{'1.00x':>8}", f"{'100.0 %':>10}", f"{'-':>16}", "baseline"]))
                continue
            between = "-" if graded.interval is None else _between(graded.interval)
            mark = "*" if graded.basis == "one-run" else ""
            figures += [f"{times(graded.speedup):>8}", f"{percent(graded.scaling_efficiency):>10}", f"{between:>16}"]
            say("  ".join([*figures, graded.grade + mark]))
            bars.append(
                Bar(
                    label=_name(curve, point),
                    share=graded.scaling_efficiency,
                    low=None if graded.interval is None else graded.interval.low,
                    high=None if graded.interval is None else graded.interval.high,
                    text=percent(graded.scaling_efficiency),
                )
            )
        for fit in curve.fits:
            if fit.suits and len(curve.points) > 1:
                say(wrapped(_fit_in_words(fit, curve), indent=4, first="  - "))
        say()
    if bars:
        shown = _spread(bars)
        say(bars_text(shown, width=screen_width()))
        if len(shown) < len(bars):
            say(f"  - bars of {len(shown)} of {len(bars)} sizes; the table has all")
    for line in notes:
        say(wrapped(line, indent=4, first="  - "))
    fixed = "the batch per GPU" if arguments.scaling == "weak" else "the global batch"
    say(wrapped(f"({arguments.scaling} scaling, as --scaling says: {fixed} is taken to be fixed)"))
    if arguments.chart is not None:
        say(str(arguments.chart))


def _spread(bars: Sequence[Bar]) -> list[Bar]:
    """As many as fit on a screen, evenly chosen, with the first and the last."""
    if len(bars) <= _MOST_BARS:
        return list(bars)
    return [bars[round(number * (len(bars) - 1) / (_MOST_BARS - 1))] for number in range(_MOST_BARS)]


def _left_out(places: Sequence[str]) -> list[str]:
    if not places:
        return []
    return [
        f"{len(places)} {'row has' if len(places) == 1 else 'rows have'} no throughput, left out: {_listed(places)}"
    ]


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MOST_PLACES} more" if len(words) > _MOST_PLACES else ""
    return ", ".join(words[:_MOST_PLACES]) + more


def _gpus(number: int) -> str:
    return "1 GPU was" if number == 1 else f"{number} GPUs were"


def _name(curve: Curve, point: Point) -> str:
    return f"{curve.series + ' on ' if curve.series else ''}{point.num_gpus}"


def _between(interval: Interval) -> str:
    return f"{interval.low * 100:.1f} to {interval.high * 100:.1f} %"


def _fit_in_words(fit: Fit, curve: Curve) -> str:
    if fit.refused is not None:
        return f"{fit.law}: not fitted: {fit.refused}"
    from gradwire.compare.format import rate

    each = curve.baseline_throughput / curve.baseline_num_gpus
    said = ", ".join(
        f"{rate(found.throughput)} on {found.num_gpus} ({found.throughput / each / found.num_gpus:.1%} of ideal; 95 % "
        f"from {rate(found.low)} to {'no limit' if found.high is None else rate(found.high)}, if the law holds)"
        for found in fit.predictions
    )
    shares = ", ".join(f"{parameter.name.replace('_', ' ')} {parameter.value:.1%}" for parameter in fit.parameters)
    return f"{fit.law} ({shares}; off by {fit.relative_error or 0.0:.1%} where measured) would give {said}"


def _notes(curves: Sequence[Curve]) -> list[str]:
    from gradwire.measure.outliers import OUTLIER_RULE

    notes = []
    points = [(curve, point) for curve in curves for point in curve.points]
    far = [f"{_name(curve, point)} at {place}" for curve, point in points for place in point.outliers]
    noisy = [_name(curve, point) for curve, point in points if point.graded is not None and point.graded.is_too_noisy]
    if noisy:
        notes.append(
            f"{_listed(noisy)}: too noisy for a verdict: the interval straddles two grades and is wider than 15 %"
        )
    if any(point.graded is not None and point.graded.basis == "one-run" for _, point in points):
        notes.append("grades with a * rest on one run and have no interval, so the noise is not known")
    if far:
        notes.append(f"outliers, kept in every figure: {_listed(far)}; the rule: {OUTLIER_RULE}")
    for curve in curves:
        name = f"{curve.series}: " if curve.series else ""
        if len(curve.points) == 1 and not curve.baseline_is_given:
            notes.append(
                f"{name}only {_gpus(curve.baseline_num_gpus)} measured, so there is nothing to hold against each "
                "other; add a row of another size, or give --baseline"
            )
        if curve.baseline_is_given:
            notes.append(
                f"{name}the baseline is a given number, {curve.baseline_throughput:g} on {curve.baseline_num_gpus}, "
                "taken as exact"
            )
        elif curve.baseline_num_gpus > 1 and len(curve.points) > 1:
            notes.append(
                f"{name}the baseline is extrapolated: efficiencies are against {curve.baseline_num_gpus} GPUs, the "
                "smallest size in the file, so what one would do is not known"
            )
    return notes


def _plain(curve: Curve) -> dict[str, Any]:
    return {
        "series": curve.series,
        "baseline_num_gpus": curve.baseline_num_gpus,
        "baseline_throughput": curve.baseline_throughput,
        "baseline_is_given": curve.baseline_is_given,
        "points": [_plain_point(point) for point in curve.points],
        "fits": [
            {
                "law": fit.law,
                "suits": fit.suits,
                "refused": fit.refused,
                "points": fit.points,
                "relative_error": fit.relative_error,
                "parameters": {parameter.name: parameter.value for parameter in fit.parameters},
                "predictions": [
                    {
                        "num_gpus": found.num_gpus,
                        "throughput": found.throughput,
                        "low": found.low,
                        "high": found.high,
                        "scaling_efficiency": found.throughput
                        / (curve.baseline_throughput / curve.baseline_num_gpus * found.num_gpus),
                    }
                    for found in fit.predictions
                ],
            }
            for fit in curve.fits
        ],
    }


def _plain_point(point: Point) -> dict[str, Any]:
    graded = point.graded
    interval = None if graded is None else graded.interval
    return {
        "num_gpus": point.num_gpus,
        "throughput": point.throughput,
        "throughput_minimum": point.slowest,
        "throughput_maximum": point.fastest,
        "repeats": point.repeats,
        "outliers": list(point.outliers),
        "speedup": 1.0 if graded is None else graded.speedup,
        "scaling_efficiency": 1.0 if graded is None else graded.scaling_efficiency,
        "interval": None
        if interval is None
        else {
            "low": interval.low,
            "high": interval.high,
            "confidence": interval.confidence,
            "method": interval.method,
        },
        "grade": None if graded is None else graded.grade,
        "grade_basis": None if graded is None else graded.basis,
        "is_too_noisy": False if graded is None else graded.is_too_noisy,
    }
