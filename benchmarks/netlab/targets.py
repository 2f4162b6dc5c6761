"""What Gradwire promises in the lab, set beside what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, assert_never

from benchmarks.netlab.configurations import ALONE
from benchmarks.netlab.figures import Figure, Place, by_name

Quantity = Literal["scaling efficiency", "step time to torch PowerSGD", "bytes: fewer than plain DDP"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A bound on one quantity of one configuration; `hosts` None: at every number of hosts that was measured.

    Efficiency and fewer bytes are to be at least `bound`, times at most. Times are compared with torch's PowerSGD of
    `torch_rank` in one bucket.
    """

    configuration: str
    quantity: Quantity
    bound: float
    rate_mbit: float | None
    hosts: int | None = 2
    torch_rank: int = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One target at one place; `measured` is the median over the rounds.

    `floor`: for times, what a method that took no time at all would have reached in the same rounds. torch's own hook
    decides it, and how fast that is depends on the machine: a bound below the floor is out of reach there.
    """

    target: Target
    place: Place
    measured: float
    low: float
    high: float
    met: bool
    floor: float | None = None


TARGETS: tuple[Target, ...] = (
    Target(configuration="ddp@auto", quantity="scaling efficiency", rate_mbit=1000, bound=0.60),
    Target(configuration="bf16@1", quantity="scaling efficiency", rate_mbit=1000, bound=0.84),
    Target(configuration="powersgd-r4@4.5", quantity="scaling efficiency", rate_mbit=1000, bound=0.88),
    Target(configuration="powersgd-r4@4.5", quantity="scaling efficiency", rate_mbit=100, bound=0.86),
    Target(configuration="int8@1", quantity="scaling efficiency", rate_mbit=100, bound=0.25),
    Target(configuration="powersgd-r4@4.5", quantity="step time to torch PowerSGD", rate_mbit=1000, bound=0.77),
    Target(configuration="powersgd-r4@4.5", quantity="step time to torch PowerSGD", rate_mbit=100, bound=0.77),
    Target(
        configuration="powersgd-r32-bf16@4.5",
        quantity="step time to torch PowerSGD",
        rate_mbit=100,
        bound=0.50,
        torch_rank=32,
    ),
    Target(configuration="powersgd-r4-bf16@4.5", quantity="bytes: fewer than plain DDP", rate_mbit=1000, bound=95),
    Target(configuration="alternating-r4-bf16@4.5", quantity="bytes: fewer than plain DDP", rate_mbit=1000, bound=155),
    Target(configuration="int8@1", quantity="bytes: fewer than plain DDP", rate_mbit=1000, bound=3.9, hosts=None),
)


def outcomes(measured: Mapping[Place, Sequence[Figure]]) -> list[Outcome]:
    """Return every target that was measured in emulated mode, in the table's order."""
    found = []
    for target in TARGETS:
        for place, place_figures in measured.items():
            named = by_name(place_figures)
            figure = named.get(target.configuration)
            if (
                figure is not None
                and place.mode == "emulated"
                and place.rate_mbit == target.rate_mbit
                and target.hosts in (None, place.hosts)
            ):
                found.append(_outcome(target, place, figure, named[ALONE]))
    return found


def _outcome(target: Target, place: Place, figure: Figure, alone: Figure) -> Outcome:
    floor = None
    match target.quantity:
        case "scaling efficiency":
            spread = figure.scaling_efficiency
            met = spread.median >= target.bound
        case "step time to torch PowerSGD":
            spread = figure.time_to_torch[target.torch_rank]
            met = spread.median <= target.bound
            floor = alone.time_to_torch[target.torch_rank].median
        case "bytes: fewer than plain DDP":
            fewer = figure.fewer_bytes
            return Outcome(target=target, place=place, measured=fewer, low=fewer, high=fewer, met=fewer >= target.bound)
        case unknown:
            assert_never(unknown)
    return Outcome(
        target=target, place=place, measured=spread.median, low=spread.low, high=spread.high, met=met, floor=floor
    )
