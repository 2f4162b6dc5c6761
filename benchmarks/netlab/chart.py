"""Draws the lab's figures as one SVG: scaling efficiency, and bytes per step, for every configuration and link."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Drawing

from benchmarks.netlab.configurations import ALONE
from benchmarks.netlab.figures import Figure, Place
from benchmarks.netlab.report import place_name

# Okabe and Ito's palette, safe for the colour-blind; markers differ too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_INK = "#1b1b1c"
_ROW_INCHES, _WIDTH_INCHES = 0.27, 10.0


def chart_svg(measured: Mapping[Place, Sequence[Figure]]) -> str:
    """Return the chart; the same figures give the same bytes."""
    names = list(dict.fromkeys(figure.configuration for place in measured.values() for figure in place))
    names.remove(ALONE)
    heights = {name: -number for number, name in enumerate(names)}
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.hashsalt": "netlab", "svg.fonttype": "none", "font.size": 9, "text.color": _INK})
        size = (_WIDTH_INCHES, 1.6 + _ROW_INCHES * len(names) + 0.2 * len(measured))
        drawing = Drawing(figsize=size, layout="constrained")
        FigureCanvasSVG(drawing)
        efficiency, sent = drawing.subplots(1, 2, sharey=True)
        _draw(efficiency, sent, measured, heights)
        efficiency.set_yticks(list(heights.values()), list(heights))
        handles, labels = efficiency.get_legend_handles_labels()
        drawing.legend(handles, labels, loc="outside lower center", ncols=min(3, len(measured)), frameon=False)
        buffer = io.StringIO()
        drawing.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", buffer.getvalue())
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _draw(efficiency: Axes, sent: Axes, measured: Mapping[Place, Sequence[Figure]], heights: Mapping[str, int]) -> None:
    for number, (place, place_figures) in enumerate(measured.items()):
        colour, marker = _COLOURS[number % len(_COLOURS)], _MARKERS[number % len(_MARKERS)]
        shown = [figure for figure in place_figures if figure.configuration != ALONE]
        rows = [heights[figure.configuration] for figure in shown]
        spreads = [figure.scaling_efficiency for figure in shown]
        label = f"{place_name(place.hosts, place.rate_mbit)}, {place.mode}"
        medians = [spread.median for spread in spreads]
        efficiency.plot(medians, rows, linestyle="none", label=label, color=colour, marker=marker)
        efficiency.hlines(rows, [s.low for s in spreads], [s.high for s in spreads], color=colour)
        megabytes = [figure.sent_bytes / 1e6 for figure in shown]
        sent.plot(megabytes, rows, linestyle="none", alpha=0.8, color=colour, marker=marker)
    efficiency.set_xlim(0, 1.02)
    efficiency.set_xlabel("scaling efficiency (line: range over the rounds)")
    sent.set_xscale("log")
    sent.set_xlabel("MB sent per step and host, interface counters")
    for axes in (efficiency, sent):
        axes.grid(visible=True, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
