"""The charts."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'gradwire[report]'")

from gradwire.compare.chart import charts, standalone_png, standalone_svg
from gradwire.documents.comparison_schema import Comparison

Make = Callable[..., Any]


def test_the_same_comparison_draws_the_same_bytes(example: tuple[Comparison, Any]) -> None:
    assert standalone_svg(example[0]) == standalone_svg(example[0])
    assert charts(example[0]) == charts(example[0])


def test_the_file_is_svg_on_white_without_a_date(example: tuple[Comparison, Any]) -> None:
    text = standalone_svg(example[0])
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("aria-label", "").startswith("cpu/test. Throughput")
    assert "fill: #ffffff" in text
    assert not re.search(r"<dc:date>|matplotlib\.org", text)


def test_text_stays_text(example: tuple[Comparison, Any]) -> None:
    words = {element.text for element in ElementTree.fromstring(standalone_svg(example[0])).iter() if element.text}
    assert {"native", "accelerate", "deepspeed", "ideal", "tokens per second", "85 %", "processes"} <= words


def test_an_inlined_chart_takes_the_pages_colours(example: tuple[Comparison, Any]) -> None:
    for chart in charts(example[0]):
        ElementTree.fromstring(chart.svg)
        assert "currentColor" in chart.svg
        assert "var(--native, #0072b2)" in chart.svg
        assert "<style" not in chart.svg
        assert "#ffffff" not in chart.svg
        assert not re.search(r"(fill|stroke): #", chart.svg)


def test_inlined_charts_share_no_identifier(example: tuple[Comparison, Any]) -> None:
    found = [set(re.findall(r' id="([^"]+)"', chart.svg)) for chart in charts(example[0])]
    assert len(found) == 4
    assert all(found)
    assert len(set.union(*found)) == sum(len(names) for names in found)
    for chart, names in zip(charts(example[0]), found, strict=True):
        assert set(re.findall(r"#((?:throughput|efficiency|losses|memory)-[\w.]+)", chart.svg)) <= names


def test_the_label_has_every_point(example: tuple[Comparison, Any]) -> None:
    throughput, efficiency, losses, memory = charts(example[0])
    assert "native on 1: 640; native on 2: 1,164" in throughput.svg
    assert "deepspeed on 2: 66.7 %; deepspeed on 4: -" in efficiency.svg
    assert "native on 1: 3.000 to 2.000" in losses.svg
    assert "native on 1: 512 MiB" in memory.svg


def test_one_size_has_no_efficiency_chart(ran: Make, compared: Make) -> None:
    assert [chart.name for chart in charts(compared(ran("native", 2), ran("deepspeed", 2)))] == [
        "throughput",
        "losses",
        "memory",
    ]


def test_many_sizes_and_missing_losses_are_drawn(ran: Make, compared: Make) -> None:
    runs = [ran(num_gpus=size, losses=[3.0, float("nan"), 2.0]) for size in (1, 2, 4, 8, 16, 128)]
    assert [chart.name for chart in charts(compared(*runs))] == ["throughput", "efficiency", "losses", "memory"]


def test_nothing_measured_is_an_empty_chart(failed: Make, compared: Make) -> None:
    ElementTree.fromstring(standalone_svg(compared(failed(reason="no"))))


def test_a_name_with_markup_stays_a_name(ran: Make, compared: Make, example: tuple[Comparison, Any]) -> None:
    from msgspec.structs import replace

    odd = replace(example[0], recipe_name='a"><script>&')
    assert ElementTree.fromstring(standalone_svg(odd)).get("aria-label", "").startswith('a"><script>&. ')


def test_intervals_and_time_splits_are_drawn_and_told(repeated: Comparison) -> None:
    named = {chart.name: chart.svg for chart in charts(repeated)}
    assert list(named) == ["throughput", "efficiency", "split", "losses", "memory"]
    assert re.search(r"native on 2: \d\d\.\d % \(\d\d\.\d to \d\d\.\d %\)", named["efficiency"])
    assert "exposed communication 90.0 ms" in named["split"]
    assert "var(--exposed-communication, #ee6677)" in named["split"]
    for svg in named.values():
        assert not re.search(r"(fill|stroke): #", svg)


def test_the_png_is_one_and_the_same_every_time(example: tuple[Comparison, Any]) -> None:
    content = standalone_png(example[0])
    assert content.startswith(b"\x89PNG\r\n")
    assert content == standalone_png(example[0])
