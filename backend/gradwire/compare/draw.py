"""Draws the parts of a comparison onto matplotlib's axes: throughput, efficiency, time split, losses, memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradwire.compare.format import name_of
from gradwire.compare.work import work_of
from gradwire.documents.comparison_schema import Cell, Comparison
from gradwire.measure.efficiency import ACCEPTABLE_FROM, GOOD_ABOVE
from gradwire.plan import BACKENDS, Backend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """How a backend is drawn in every chart; the marker's size and the width of the loss line are in points."""

    colour: str
    marker: str
    marker_size: float
    width: float


# Okabe and Ito's palette, safe for the colour-blind. Larger and wider ones are drawn first, so that equal ones show.
LOOKS: dict[Backend, Look] = {
    "native": Look(colour="#0072b2", marker="o", marker_size=8.5, width=3.0),
    "accelerate": Look(colour="#d55e00", marker="s", marker_size=6.5, width=1.9),
    "deepspeed": Look(colour="#009e73", marker="^", marker_size=5.0, width=1.0),
    "trainer": Look(colour="#cc79a7", marker="D", marker_size=4.0, width=0.8),
}
# Tol's bright palette; `other` is grey in any.
PART_COLOURS = {
    "compute": "#4477aa",
    "exposed_communication": "#ee6677",
    "pipeline_bubble": "#aa3377",
    "input_wait": "#ccbb44",
    "straggler_wait": "#66ccee",
    "optimizer": "#228833",
    "other": "#bbbbbb",
}
"""The parts of a time split from left to right, and their colours."""
INK = "#1b1b1c"
FAINT = "#8a8a8b"
_DASHES = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
_LOG_FROM_RATIO = 8
_ASIDE_POINTS = 5
# Where nothing is lower, the axis starts here, so that the grades are not a narrow strip.
_ROOM_BELOW = 0.4
_MOST_TICKS = 12
_LEGEND_BELOW_POINTS = 29
# More entries than this are no legend.
_MOST_CURVES_NAMED = 9
# Bars are no thicker than if there were so many.
_FEWEST_BARS = 3
# An interval from two repeats can reach far beyond what matters.
_HIGHEST_SHARE = 1.5


def draw_throughput(axes: Axes, comparison: Comparison) -> None:
    """Throughput by size with its spread over repeats, and what ideal scaling from the baseline would give."""
    sizes, work = _sizes(comparison), work_of(comparison)
    for backend, cells in _by_backend(comparison):
        look = LOOKS[backend]
        measured = [cell for cell in cells if work.rate(cell) is not None]
        spreads = [(cell.num_gpus, *found) for cell in measured if (found := work.spread(cell, comparison.runs))]
        _draw_line(axes, backend, measured, [_or_gap(work.rate(cell)) for cell in measured])
        axes.vlines(
            [size for size, _, _ in spreads],
            [slowest for _, slowest, _ in spreads],
            [fastest for _, _, fastest in spreads],
            color=look.colour,
        )
        based = [cell for cell in measured if cell.num_gpus == cell.baseline_num_gpus]
        if based and len(sizes) > 1:
            each = (work.rate(based[0]) or 0) / based[0].num_gpus
            reach = [size for size in sizes if size >= based[0].num_gpus]
            axes.plot(reach, [each * size for size in reach], color=look.colour, linestyle=":", linewidth=1)
    if len(sizes) > 1:
        axes.plot([], [], color=FAINT, linestyle=":", linewidth=1, label="ideal")
    axes.set_title("Throughput", loc="left")
    axes.set_ylabel(f"{work.counted} per second")
    size_axis(axes, sizes, also_y=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if not _is_wide(sizes):
        # Room above the highest marker, which matplotlib would cut in half.
        highest = axes.dataLim.ymax
        axes.set_ylim(0, highest * 1.08 if math.isfinite(highest) and highest > 0 else 1)
    _legend_below(axes, columns=4)


def draw_efficiency(axes: Axes, comparison: Comparison) -> None:
    """Scaling efficiency by size with its intervals, the lines at 100, 85 and 70 %, and the band between the two."""
    sizes = _sizes(comparison)
    shares = [cell.scaling_efficiency for cell in comparison.cells if cell.scaling_efficiency is not None]
    highs = [cell.interval.high for cell in comparison.cells if cell.interval is not None]
    size_axis(axes, sizes)
    draw_borders(axes)
    for backend, cells in _by_backend(comparison):
        known = [cell for cell in cells if cell.scaling_efficiency is not None]
        _draw_line(axes, backend, known, [_or_gap(cell.scaling_efficiency) for cell in known])
        sure = [(cell, cell.interval) for cell in known if cell.interval is not None]
        for cell, interval in sure:
            # Beside each other where backends share a size.
            beside = (BACKENDS.index(backend) - 1) * _ASIDE_POINTS
            shift = axes.transData + _aside(axes, beside)
            axes.plot(
                [cell.num_gpus] * 2,
                [interval.low, interval.high],
                color=LOOKS[backend].colour,
                marker="_",
                markersize=5,
                linewidth=1.5,
                transform=shift,
                zorder=3,
            )
    axes.set_title("Scaling efficiency", loc="left")
    axes.set_ylabel("share of ideal throughput")
    lows = [cell.interval.low for cell in comparison.cells if cell.interval is not None]
    floor = 0.0 if min([*shares, *lows], default=0.0) < _ROOM_BELOW + 0.05 else _ROOM_BELOW
    axes.set_ylim(floor, max([1.12, *(min(share, _HIGHEST_SHARE) * 1.05 for share in (*shares, *highs))]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}".replace("%", " %"))
    _legend_below(axes)


def draw_borders(axes: Axes) -> None:
    """The lines at 100, 85 and 70 % with their names, and the band between the two."""
    axes.axhspan(ACCEPTABLE_FROM, GOOD_ABOVE, color=FAINT, alpha=0.14, linewidth=0, zorder=0)
    for share, words, style in (
        (1.0, "ideal", ":"),
        (GOOD_ABOVE, "good above\n85 %", "--"),
        (ACCEPTABLE_FROM, "poor below\n70 %", "--"),
    ):
        axes.axhline(share, color=FAINT, linestyle=style, linewidth=1, zorder=1)
        axes.annotate(
            words,
            (1, share),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=8,
        )


def draw_losses(axes: Axes, comparison: Comparison) -> None:
    """Loss by step of every cell: colour by backend, dashes by size."""
    sizes = _sizes(comparison)
    are_named = sum(1 for cell in comparison.cells if cell.losses) <= _MOST_CURVES_NAMED
    for backend, cells in _by_backend(comparison):
        look = LOOKS[backend]
        for cell in cells:
            if not cell.losses:
                continue
            axes.plot(
                range(1, len(cell.losses) + 1),
                [_or_gap(loss) for loss in cell.losses],
                color=look.colour,
                linestyle=_DASHES[sizes.index(cell.num_gpus) % len(_DASHES)],
                linewidth=look.width,
                label=f"{backend} on {cell.num_gpus}" if are_named else None,
            )
        if not are_named and any(cell.losses for cell in cells):
            axes.plot([], [], color=look.colour, linewidth=look.width, label=backend)
    axes.set_title("Training loss", loc="left")
    axes.set_ylabel("nats per token")
    axes.set_xlabel("step")
    axes.locator_params(axis="x", integer=True)
    _legend_below(axes)


def draw_split(axes: Axes, comparison: Comparison) -> None:
    """Where the seconds of a step went: one bar for each backend and size, its parts side by side."""
    cells = [cell for _, cells in _by_backend(comparison) for cell in cells if cell.time_split is not None]
    slowest = max(sum(getattr(cell.time_split, part) or 0.0 for part in PART_COLOURS) for cell in cells)
    unit, per_second = ("seconds", 1.0) if slowest >= 1 else ("milliseconds", 1000.0)
    names = [name_of(cell) for cell in cells]
    reached = [0.0] * len(cells)
    for part, colour in PART_COLOURS.items():
        widths = [(getattr(cell.time_split, part) or 0.0) * per_second for cell in cells]
        if any(widths):
            axes.barh(names, widths, left=reached, color=colour, label=part.replace("_", " "), height=0.7)
        reached = [before + width for before, width in zip(reached, widths, strict=True)]
    middle = (len(cells) - 1) / 2
    reach = max(len(cells), _FEWEST_BARS) / 2
    axes.set_ylim(middle + reach, middle - reach)
    axes.set_title("Where a step's time goes", loc="left")
    axes.set_xlabel(f"{unit} per step")
    # The names of the cells leave less width than the other charts have.
    _legend_below(axes, columns=2)


def bars_of_split(comparison: Comparison) -> int:
    """Return how many bars `draw_split` draws, below each other."""
    return sum(1 for cell in comparison.cells if cell.time_split is not None)


def draw_memory(axes: Axes, comparison: Comparison) -> None:
    """Peak memory of the fullest rank by size."""
    sizes = _sizes(comparison)
    largest = max(cell.peak_memory_bytes or 0 for cell in comparison.cells)
    unit, size_of_unit = ("GiB", 2**30) if largest >= 2**30 else ("MiB", 2**20)
    for backend, cells in _by_backend(comparison):
        known = [cell for cell in cells if cell.peak_memory_bytes is not None]
        _draw_line(axes, backend, known, [(cell.peak_memory_bytes or 0) / size_of_unit for cell in known])
    size_axis(axes, sizes)
    axes.set_ylim(0, max(largest / size_of_unit * 1.1, 1e-9))
    axes.set_title("Peak memory", loc="left")
    axes.set_ylabel(f"{unit}, fullest rank")
    _legend_below(axes)


def _draw_line(axes: Axes, backend: Backend, cells: Sequence[Cell], heights: Sequence[float]) -> None:
    look = LOOKS[backend]
    axes.plot(
        [cell.num_gpus for cell in cells],
        heights,
        color=look.colour,
        marker=look.marker,
        markersize=look.marker_size,
        label=backend,
    )


def _aside(axes: Axes, points: float) -> Transform:
    from matplotlib.transforms import ScaledTranslation

    moved: Transform = ScaledTranslation(points / 72, 0, axes.figure.dpi_scale_trans)
    return moved


def size_axis(axes: Axes, sizes: Sequence[int], *, also_y: bool = False) -> None:
    """Sizes along the x axis, by powers of two where they reach far."""
    if _is_wide(sizes):
        axes.set_xscale("log", base=2)
        if also_y:
            axes.set_yscale("log")
    named = _apart(sizes)
    axes.set_xticks(named, labels=[str(size) for size in named], minor=False)
    axes.minorticks_off()
    room = 1.15 if _is_wide(sizes) else 1
    step = 0 if _is_wide(sizes) else max(0.2, (sizes[-1] - sizes[0]) * 0.08)
    axes.set_xlim(sizes[0] / room - step, sizes[-1] * room + step)
    axes.set_xlabel("processes")


def _apart(sizes: Sequence[int]) -> list[int]:
    """The smallest and the largest of `sizes`, and those between that leave room for each other's names."""
    places = [math.log(size) if _is_wide(sizes) else size for size in sizes]
    room = (places[-1] - places[0]) / _MOST_TICKS
    kept = [0]
    for number in range(1, len(sizes) - 1):
        if places[number] - places[kept[-1]] >= room and places[-1] - places[number] >= room:
            kept.append(number)
    return [sizes[number] for number in kept] + ([sizes[-1]] if len(sizes) > 1 else [])


def _is_wide(sizes: Sequence[int]) -> bool:
    return sizes[-1] / sizes[0] > _LOG_FROM_RATIO


def _legend_below(axes: Axes, *, columns: int = 3) -> None:
    from matplotlib.transforms import ScaledTranslation

    if axes.get_legend_handles_labels()[0]:
        # In points, for charts of any height: below the numbers of the axis and its name.
        below = ScaledTranslation(0, -_LEGEND_BELOW_POINTS / 72, axes.figure.dpi_scale_trans)
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, 0),
            bbox_transform=axes.transAxes + below,
            ncols=columns,
            fontsize=8,
            columnspacing=1.4,
        )


def _sizes(comparison: Comparison) -> list[int]:
    return sorted({cell.num_gpus for cell in comparison.cells})


def _by_backend(comparison: Comparison) -> list[tuple[Backend, list[Cell]]]:
    """The cells of each backend by size; backends in a fixed order, the widest line first."""
    ordered = sorted(comparison.cells, key=lambda cell: cell.num_gpus)
    found = [(backend, [cell for cell in ordered if cell.backend == backend]) for backend in BACKENDS]
    return [(backend, cells) for backend, cells in found if cells]


def _or_gap(value: float | None) -> float:
    return math.nan if value is None else value
