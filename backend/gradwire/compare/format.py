"""Numbers as people read them: shares in percent, times, memory, rates."""

from __future__ import annotations

from gradwire.documents.comparison_schema import Cell, Interval, Run

ABSENT = "-"
# Numbers from here on are read by their exponent.
_BEYOND_DIGITS = 1e6


def name_of(cell: Cell | Run) -> str:
    """Return `native on 2`."""
    return f"{cell.backend} on {cell.num_gpus}"


def processes(number: int) -> str:
    """Return `1 process` or `2 processes`."""
    return "1 process" if number == 1 else f"{number} processes"


def percent(share: float | None) -> str:
    """Return a fraction as `84.6 %`; whole where its magnitude makes the rest noise."""
    if share is None:
        return ABSENT
    if share >= _BEYOND_DIGITS:
        return f"{share * 100:.3g} %"
    return f"{share:.1%}".replace("%", " %") if share < 10 else f"{share:.0%}".replace("%", " %")


def span(interval: Interval | None) -> str:
    """Return an interval as `88.1 to 92.3 %`."""
    if interval is None:
        return ABSENT
    low = percent(interval.low)
    return f"{low.removesuffix(' %')} to {percent(interval.high)}"


def rate(per_second: float | None) -> str:
    """Return work per second, `12,345`; with decimals below 100, in millions above 100 million."""
    if per_second is None:
        return ABSENT
    if per_second >= 1e6 * _BEYOND_DIGITS:
        return f"{per_second:.3g}"
    if per_second >= 1e8:
        return f"{per_second / 1e6:,.1f}M"
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def times(factor: float | None) -> str:
    """Return a speed-up as `1.84x` or `101x`."""
    if factor is None:
        return ABSENT
    if factor >= _BEYOND_DIGITS:
        return f"{factor:.3g}x"
    return f"{factor:.2f}x" if factor < 10 else f"{three_digits(factor)}x"


def seconds(value: float | None) -> str:
    """Return a duration as `12.3 ms` or `1.23 s`."""
    if value is None:
        return ABSENT
    return f"{three_digits(value * 1000)} ms" if value < 1 else f"{three_digits(value)} s"


def three_digits(value: float) -> str:
    """Return a positive number with three digits and never an exponent: `0.123`, `12.3`, `1234`."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def memory(number: int | None) -> str:
    """Return bytes as `512 MiB` or `1.23 GiB`."""
    if number is None:
        return ABSENT
    mebibytes = number / 2**20
    return f"{three_digits(mebibytes)} MiB" if mebibytes < 1000 else f"{three_digits(mebibytes / 1024)} GiB"


def loss(value: float | None) -> str:
    """Return a loss in nats per token with three decimals."""
    if value is None:
        return ABSENT
    # A run that diverged.
    return f"{value:.3g}" if abs(value) >= _BEYOND_DIGITS else f"{value:.3f}"
