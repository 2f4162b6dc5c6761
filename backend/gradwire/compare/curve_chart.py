"""Draws scaling efficiencies of any series as one SVG or PNG file."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire.compare.chart import drawing_rules
from gradwire.compare.draw import draw_borders, size_axis
from gradwire.errors import UsageError
from gradwire.measure.curve import Curve
from gradwire.measure.document import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
# Okabe and Ito's palette, safe for the colour-blind.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_MARKERS = "os^Dv*"
# More of them are a band.
_MOST_MARKERS = 60


def write_chart(path: Path, curves: Sequence[Curve], *, title: str) -> None:
    """Write the chart to `path`, in the format of its suffix; raises UsageError for another one.

    Raises EnvironmentNotFit where matplotlib is missing.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: a chart is written as {' or '.join(SUFFIXES)}")
    buffer = io.BytesIO()
    with drawing_rules("efficiency"):
        figure = _figure(curves, title)
        if path.suffix.lower() == ".svg":
            figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
        else:
            figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())


def _figure(curves: Sequence[Curve], title: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    size_axis(axes, sorted({point.num_gpus for curve in curves for point in curve.points}))
    highest = 1.12
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        shares = [1.0 if point.graded is None else point.graded.scaling_efficiency for point in curve.points]
        axes.plot(
            [point.num_gpus for point in curve.points],
            shares,
            color=colour,
            marker=_MARKERS[number % len(_MARKERS)] if len(curve.points) <= _MOST_MARKERS else "",
            # matplotlib keeps names that begin with _ to itself.
            label=f" {curve.series}" if (curve.series or "").startswith("_") else curve.series or "measured",
        )
        sure = [
            (point.num_gpus, point.graded.interval)
            for point in curve.points
            if point.graded is not None and point.graded.interval is not None
        ]
        # One collection: a line for each of thousands takes minutes.
        axes.vlines(
            [size for size, _ in sure],
            [interval.low for _, interval in sure],
            [interval.high for _, interval in sure],
            color=colour,
            linewidth=1.2,
        )
        highest = max([highest, *(share * 1.05 for share in shares)])
    draw_borders(axes)
    axes.set_ylim(0, highest)
    axes.set_title(f"Scaling efficiency: {title}", loc="left")
    axes.set_ylabel("share of ideal throughput")
    axes.set_xlabel("GPUs")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}".replace("%", " %"))
    if len(curves) > 1:
        axes.legend(loc="lower left", fontsize=8)
    return figure
