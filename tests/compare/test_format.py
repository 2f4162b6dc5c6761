"""Numbers as people read them."""

from __future__ import annotations

import pytest

from gradwire.compare.format import loss, memory, percent, rate, seconds, times


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (percent(0.846), "84.6 %"),
        (percent(1.0), "100.0 %"),
        (percent(12.5), "1250 %"),
        (percent(2e9), "2e+11 %"),
        (rate(6.4e16), "6.4e+16"),
        (loss(1e30), "1e+30"),
        (rate(12345.6), "12,346"),
        (rate(7.25), "7.25"),
        (rate(0.0), "0"),
        (rate(123_456_789.0), "123.5M"),
        (times(1.835), "1.83x"),
        (times(0.4803), "0.48x"),
        (times(101.4), "101x"),
        (times(2e9), "2e+09x"),
        (seconds(0.0123), "12.3 ms"),
        (seconds(1.234), "1.23 s"),
        (seconds(1234.5), "1234 s"),
        (seconds(0.0), "0.000 ms"),
        (memory(512 * 2**20), "512 MiB"),
        (memory(3 * 2**29), "1.50 GiB"),
        (memory(10_000_000), "9.54 MiB"),
        (loss(2.34567), "2.346"),
    ],
)
def test_numbers_are_short_and_have_their_unit(shown: str, text: str) -> None:
    assert shown == text


def test_what_is_absent_is_a_dash() -> None:
    assert {percent(None), rate(None), times(None), seconds(None), memory(None), loss(None)} == {"-"}
