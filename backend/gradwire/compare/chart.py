"""Draws a comparison as SVG: throughput and efficiency against ideal, and the losses; the same bytes every time."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradwire.compare.draw import FAINT, INK, LOOKS, draw_efficiency, draw_losses, draw_throughput
from gradwire.compare.format import loss, name_of, percent, rate
from gradwire.documents.comparison_schema import Cell, Comparison
from gradwire.errors import EnvironmentNotFit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One chart as an `<svg>` element for a page; its label has every point, for those who cannot see it."""

    name: str
    caption: str
    svg: str


# One panel; on a phone it is shown at about this size.
_PANEL_INCHES = (4.5, 3.3)


# Name, title for those who cannot see it, caption, and what draws it.
_Plot = tuple[str, str, str, Callable[["Axes", Comparison], None]]
_CHARTS: tuple[_Plot, ...] = (
    (
        "throughput",
        "Throughput against the number of processes, in tokens per second",
        "Dotted: ideal scaling from the smallest size of each backend. Upright bars: from the slowest to the fastest "
        "repeat.",
        draw_throughput,
    ),
    (
        "efficiency",
        "Scaling efficiency against the number of processes",
        "Throughput as a share of ideal, against the smallest size of the same backend.",
        draw_efficiency,
    ),
    (
        "losses",
        "Training loss from the first to the last step",
        "Runs that train the same thing have the same curve: wide lines lie under narrow ones.",
        draw_losses,
    ),
)


def charts(comparison: Comparison) -> list[Chart]:
    """Return the charts as elements to put into a page: no size of their own, the page's text colour.

    Backends have the colours `--native`, `--accelerate` and `--deepspeed` where the page defines them.
    Raises EnvironmentNotFit where matplotlib is missing.
    """
    return [
        Chart(
            name=name,
            caption=caption,
            svg=_inlined(_drawn([draw], comparison, salt=name), name, f"{title}. {_in_words(comparison, name)}"),
        )
        for name, title, caption, draw in _telling(comparison)
    ]


def standalone_svg(comparison: Comparison) -> str:
    """Return all charts side by side as one SVG file on white; raises EnvironmentNotFit where matplotlib is missing."""
    text = _drawn([draw for _, _, _, draw in _telling(comparison)], comparison, salt="comparison")
    label = f"{comparison.recipe_name}. " + ". ".join(
        f"{title}. {_in_words(comparison, name)}" for name, title, _, _ in _telling(comparison)
    )
    head = f'role="img" aria-label="{_escaped(label)}" '
    return text.replace("<svg ", f"<svg {head}", 1)


def _drawn(draws: Sequence[Callable[[Axes, Comparison], None]], comparison: Comparison, *, salt: str) -> str:
    with _drawing_rules(salt):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        figure: Figure = Figure(figsize=(_PANEL_INCHES[0] * len(draws), _PANEL_INCHES[1]), layout="constrained")
        FigureCanvasSVG(figure)
        for number, draw in enumerate(draws, start=1):
            draw(figure.add_subplot(1, len(draws), number), comparison)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Type": None, "Format": None})
    text = re.sub(r" *<metadata>.*?</metadata>\n", "", buffer.getvalue(), flags=re.DOTALL)
    # The reader's own font; matplotlib only knows the names that are installed here.
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", text)
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


@contextmanager
def _drawing_rules(salt: str) -> Iterator[None]:
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
    graded = any(cell.grade is not None for cell in comparison.cells)
    trained = any(cell.losses for cell in comparison.cells)
    return [
        plot
        for plot in _CHARTS
        if plot[0] == "throughput" or (plot[0] == "efficiency" and graded) or (plot[0] == "losses" and trained)
    ]


def _in_words(comparison: Comparison, name: str) -> str:
    """Every point of a chart, in the order of the cells."""

    def point(cell: Cell) -> str:
        match name:
            case "throughput":
                return rate(cell.tokens_per_second)
            case "efficiency":
                return percent(cell.scaling_efficiency)
            case _:
                return f"{loss(cell.losses[0])} to {loss(cell.losses[-1])}" if cell.losses else loss(None)

    return "; ".join(f"{name_of(cell)}: {point(cell)}" for cell in comparison.cells)


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
    return text


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
