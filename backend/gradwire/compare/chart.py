"""Draws a comparison as SVG and PNG: each chart for a page, or all in one file; the same bytes every time."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradwire.compare.draw import (
    FAINT,
    INK,
    LOOKS,
    PART_COLOURS,
    bars_of_split,
    draw_efficiency,
    draw_losses,
    draw_memory,
    draw_split,
    draw_throughput,
)
from gradwire.compare.format import loss, memory, name_of, percent, rate, seconds, span
from gradwire.compare.work import work_of
from gradwire.documents.comparison_schema import Cell, Comparison
from gradwire.errors import EnvironmentNotFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One chart as an `<svg>` element for a page; its label has every point, for those who cannot see it.

    `is_tall`: it takes the height of about two others.
    """

    name: str
    caption: str
    svg: str
    is_tall: bool


# One panel; on a phone it is shown at about this size.
_PANEL_INCHES = (4.5, 3.3)
# A chart of bars grows with them, so that their names keep apart; so many have room in a panel.
_INCHES_PER_BAR = 0.16
_BARS_IN_PANEL = 12
_TALL = 1.4
_PANELS_PER_ROW = 3
_DOTS_PER_INCH = 150


# Name, title for those who cannot see it, caption, and what draws it.
_Plot = tuple[str, str, str, Callable[["Axes", Comparison], None]]
_CHARTS: tuple[_Plot, ...] = (
    (
        "throughput",
        "Throughput against the number of processes, in {counted} per second",
        "Dotted: ideal scaling from the smallest size of each backend. Upright bars: from the slowest to the fastest "
        "repeat.",
        draw_throughput,
    ),
    (
        "efficiency",
        "Scaling efficiency against the number of processes",
        "Throughput as a share of ideal. Upright bars: 95 % intervals, drawn beside each other. Grey: acceptable, good "
        "above it and poor below.",
        draw_efficiency,
    ),
    (
        "split",
        "Seconds of a step by what they were spent on",
        "Mean over the timed steps and the repeats; the table below has every number.",
        draw_split,
    ),
    (
        "losses",
        "Training loss from the first to the last step",
        "Runs that train the same thing have the same curve: wide lines lie under narrow ones; dashes are sizes.",
        draw_losses,
    ),
    (
        "memory",
        "Peak memory against the number of processes",
        "The fullest rank, over all repeats: allocated on the device, or resident in main memory.",
        draw_memory,
    ),
)


def charts(comparison: Comparison) -> list[Chart]:
    """Return the charts as elements to put into a page: no size of their own, the page's text colour.

    Backends have the colours `--native`, `--accelerate`, `--deepspeed`, `--trainer` where the page defines them.
    Raises EnvironmentNotFit where matplotlib is missing.
    """
    return [
        Chart(
            name=name,
            caption=caption,
            svg=_inlined(_drawn([draw], comparison, salt=name), name, f"{title}. {_in_words(comparison, name)}"),
            is_tall=_height(draw, comparison) > _TALL * _PANEL_INCHES[1],
        )
        for name, title, caption, draw in _telling(comparison)
    ]


def standalone_svg(comparison: Comparison) -> str:
    """Return all charts as one SVG file on white; raises EnvironmentNotFit where matplotlib is missing."""
    text = _drawn([draw for _, _, _, draw in _telling(comparison)], comparison, salt="comparison")
    label = f"{comparison.recipe_name}. " + ". ".join(
        f"{title}. {_in_words(comparison, name)}" for name, title, _, _ in _telling(comparison)
    )
    head = f'role="img" aria-label="{_escaped(label)}" '
    return text.replace("<svg ", f"<svg {head}", 1)


def standalone_png(comparison: Comparison) -> bytes:
    """Return all charts as one PNG file on white; raises EnvironmentNotFit where matplotlib is missing."""
    buffer = io.BytesIO()
    with drawing_rules("comparison"):
        figure = _figure([draw for _, _, _, draw in _telling(comparison)], comparison)
        figure.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()


def _figure(draws: Sequence[Callable[[Axes, Comparison], None]], comparison: Comparison) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(_PANELS_PER_ROW, len(draws))
    heights = [
        max(_height(draw, comparison) for draw in draws[first : first + columns])
        for first in range(0, len(draws), columns)
    ]
    figure: Figure = Figure(figsize=(_PANEL_INCHES[0] * columns, sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    for number, draw in enumerate(draws):
        draw(figure.add_subplot(grid[number // columns, number % columns]), comparison)
    return figure


def _height(draw: Callable[[Axes, Comparison], None], comparison: Comparison) -> float:
    more = max(0, bars_of_split(comparison) - _BARS_IN_PANEL) if draw is draw_split else 0
    return _PANEL_INCHES[1] + more * _INCHES_PER_BAR


def _drawn(draws: Sequence[Callable[[Axes, Comparison], None]], comparison: Comparison, *, salt: str) -> str:
    buffer = io.StringIO()
    with drawing_rules(salt):
        _figure(draws, comparison).savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None}
        )
    text = re.sub(r" *<metadata>.*?</metadata>\n", "", buffer.getvalue(), flags=re.DOTALL)
    # The reader's own font; matplotlib only knows the names that are installed here.
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


@contextmanager
def drawing_rules(salt: str) -> Iterator[None]:
    """Set matplotlib's parameters while drawing; raises EnvironmentNotFit where it is missing."""
    try:
        import matplotlib
    except ImportError:
        raise EnvironmentNotFit("charts need matplotlib, which is missing: pip install 'gradwire[report]'") from None
    with matplotlib.rc_context():
        # Not the person's own style: two machines give the same bytes.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.hashsalt": salt,
                "svg.fonttype": "none",
                # A name from elsewhere is no formula, whatever signs are in it.
                "text.parse_math": False,
                "font.size": 9,
                "text.color": INK,
                "axes.edgecolor": INK,
                "axes.labelcolor": INK,
                "axes.titlecolor": INK,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "xtick.color": INK,
                "ytick.color": INK,
                "legend.frameon": False,
            }
        )
        yield


def _telling(comparison: Comparison) -> list[_Plot]:
    """The charts that have something to show; throughput always."""
    cells = comparison.cells
    shown = {
        "throughput": True,
        "efficiency": any(cell.grade is not None for cell in cells),
        "split": any(cell.time_split is not None for cell in cells),
        "losses": any(cell.losses for cell in cells),
        "memory": any(cell.peak_memory_bytes for cell in cells),
    }
    counted = work_of(comparison).counted
    return [
        (name, title.format(counted=counted), caption, draw) for name, title, caption, draw in _CHARTS if shown[name]
    ]


def _in_words(comparison: Comparison, name: str) -> str:
    """Every point of a chart, in the order of the cells."""

    def point(cell: Cell) -> str:
        match name:
            case "throughput":
                return rate(work_of(comparison).rate(cell))
            case "efficiency":
                between = "" if cell.interval is None else f" ({span(cell.interval)})"
                return percent(cell.scaling_efficiency) + between
            case "split":
                return _split_in_words(cell)
            case "memory":
                return memory(cell.peak_memory_bytes)
            case _:
                return f"{loss(cell.losses[0])} to {loss(cell.losses[-1])}" if cell.losses else loss(None)

    return "; ".join(f"{name_of(cell)}: {point(cell)}" for cell in comparison.cells)


def _split_in_words(cell: Cell) -> str:
    if cell.time_split is None:
        return seconds(None)
    found = {part: getattr(cell.time_split, part) for part in PART_COLOURS}
    return ", ".join(
        f"{part.replace('_', ' ')} {'in compute' if value is None else seconds(value)}"
        for part, value in found.items()
        if value != 0
    )


def _inlined(text: str, name: str, label: str) -> str:
    root, _, inside = text[text.index("<svg ") :].partition(">")
    box = root[root.index("viewBox=") :].split('"')[1]
    # The style element would reach the whole page; attributes on the root do the same for the drawing alone.
    inside = re.sub(r" *<defs>\s*<style.*?</style>\s*</defs>\n", "", inside, flags=re.DOTALL)
    text = (
        f'<svg viewBox="{box}" role="img" aria-label="{_escaped(label)}" stroke-linejoin="round" stroke-linecap="butt">'
        + inside
    )
    text = re.sub(r'(?<![\w-])id="', f'id="{name}-', text)
    text = text.replace("url(#", f"url(#{name}-").replace('xlink:href="#', f'href="#{name}-')
    text = re.sub(r' *<g id="[\w-]*patch_1">.*?</g>\n', "", text, count=1, flags=re.DOTALL)
    text = text.replace("#ffffff", "none").replace(INK, "currentColor").replace(FAINT, f"var(--faint, {FAINT})")
    for backend, look in LOOKS.items():
        text = text.replace(look.colour, f"var(--{backend}, {look.colour})")
    for part, colour in PART_COLOURS.items():
        text = text.replace(colour, f"var(--{part.replace('_', '-')}, {colour})")
    return text


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
