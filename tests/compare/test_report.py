"""The report as a page."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'gradwire[report]'")
pytest.importorskip("jinja2", reason="needs jinja2: pip install 'gradwire[report]'")

from gradwire.compare.report import check_can_report, report_html, write_comparison
from gradwire.compare.table import comparison_text
from gradwire.documents.comparison_schema import Comparison, Run
from gradwire.documents.measurement_schema import Measurement
from gradwire.errors import EnvironmentNotFit

Make = Callable[..., Any]
Example = tuple[Comparison, list[Measurement]]
COMMAND = ["gradwire", "compare", "cpu/test", "--num-gpus", "1,2,4", "--out", "a folder"]


class Page(HTMLParser):
    """Elements of a page, with their attributes, and all of its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def html(example: Example) -> str:
    return report_html(*example, command=COMMAND)


def test_the_same_comparison_makes_the_same_page(example: Example, html: str) -> None:
    assert report_html(*example, command=COMMAND) == html


def test_the_finding_comes_first(html: str) -> None:
    page = Page(html)
    before, _, after = page.text.partition(
        "This machine is too noisy for a verdict on 4 processes: 4 processes on 2 cores."
    )
    assert after
    assert "Result" not in before
    assert page.text.index("Read this before quoting") < page.text.index("Result")


def test_the_page_asks_nobody_for_anything(html: str) -> None:
    page = Page(html)
    assert not page.all("script") and not page.all("img") and not page.all("iframe")
    assert [link.get("href") for link in page.all("link")] == ["data:,"]
    assert all(use.get("href", "").startswith("#") for use in page.all("use"))  # type: ignore[union-attr]
    assert not re.search(r"https?://|@import|url\((?!#)", html)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert "default-src 'none'" in policy


def test_headers_have_a_scope_and_charts_a_label_and_a_caption(html: str) -> None:
    page = Page(html)
    assert page.all("th")
    assert all(header.get("scope") in ("col", "row") for header in page.all("th"))
    assert len(page.all("svg")) == len(page.all("figcaption")) == 4
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in page.all("svg"))
    assert page.all("html")[0]["lang"] == "en"


def test_every_figure_and_reason_is_on_the_page(example: Example, html: str) -> None:
    text = Page(html).text
    for words in (
        "76.9 %",
        "acceptable",
        "1,969",
        "rank 3 was killed by signal 9; see runs/deepspeed-4-0/rank3.log",
        "gpt2 hidden 8 layers 1 heads 1/1 ffn 32 vocab 256",
        "3 trained, the first 1 left out as warm-up, 2 timed",
        "torch 2.13.0",
        "A Processor, 2 logical processors",
        "none: a cpu has no peak",
        "gradwire compare cpu/test --num-gpus 1,2,4 --out 'a folder'",
        *(run.folder for run in example[0].runs),
    ):
        assert words in text


def test_the_losses_are_there_as_a_table(ran: Make, compared: Make) -> None:
    run, measurement = ran(losses=[float(100 - step) for step in range(100)])
    text = Page(report_html(compared((run, measurement)), [measurement], command=["x"])).text
    assert "not every step is shown" in text
    assert "100.000" in text
    assert "1.000" in text


def test_runs_without_tokens_are_shown_in_samples(ran: Make, compared: Make) -> None:
    """A model of images, or whatever else is no tokens."""

    def of_images(run: Run, measurement: Measurement) -> tuple[Run, Measurement]:
        without = replace(measurement.throughput, tokens_per_second=None, tokens_per_second_per_rank=None)
        return run, replace(measurement, throughput=replace(without, slots_per_second=None, timed_tokens=0))

    pairs = [of_images(*ran(num_gpus=size, seconds=seconds)) for size, seconds in ((1, 1.0), (2, 1.05))]
    comparison = compared(*pairs)
    page = report_html(comparison, [measurement for _, measurement in pairs], command=["x"])
    assert "Tokens/s" not in page
    assert (
        "Throughput against the number of processes, in samples per second. native on 1: 4; native on 2: 7.62" in page
    )
    assert "Samples/s" in comparison_text(comparison).splitlines()[1]


def test_utilization_has_its_column_only_where_it_is_known(ran: Make, compared: Make, html: str) -> None:
    assert "MFU</abbr>" not in html
    run, measurement = ran(device="cuda", device_name="NVIDIA H200", precision="bf16-true", device_bytes=5)
    page = report_html(compared((run, measurement)), [measurement], command=["x"])
    assert "MFU</abbr>" in page
    assert (
        "of the data sheet&#39;s dense peak of 989.5 TFLOP/s per device (https://www.nvidia.com/en-us/data-center/h200/)"
        in page
    )


def test_what_a_stranger_wrote_is_shown_and_not_run(example: Example) -> None:
    comparison, measurements = example
    evil = "</code><script>alert(1)</script>"
    odd = replace(
        comparison,
        recipe_name=evil,
        notes=[evil],
        cells=[replace(cell, reason=evil) for cell in comparison.cells],
        runs=[replace(run, folder=evil) for run in comparison.runs],
    )
    evil_machine = replace(measurements[0], hardware=replace(measurements[0].hardware, cpu=evil))
    html = report_html(odd, [evil_machine], command=[evil])
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 5


def test_a_comparison_where_everything_failed_has_a_page(failed: Make, compared: Make) -> None:
    page = Page(report_html(compared(failed(reason="no\nluck")), [], command=["x"]))
    assert "Nothing was measured" in page.text
    assert not page.all("figure")


def test_all_four_files_are_written(example: Example, tmp_path: Path) -> None:
    paths = write_comparison(tmp_path / "out", *example, command=COMMAND)
    assert [path.name for path in paths] == [
        "comparison.json",
        "comparison.svg",
        "comparison.png",
        "report.html",
    ]
    assert sorted(tmp_path.joinpath("out").iterdir()) == sorted(paths)
    assert json.loads(paths[0].read_text())["recipe_name"] == "cpu/test"
    assert paths[3].read_text(encoding="utf-8") == report_html(*example, command=COMMAND)


@pytest.mark.parametrize("package", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named_and_the_figures_are_saved_first(
    example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    message = rf"needs {package}, .* pip install 'gradwire\[report\]'"
    with pytest.raises(EnvironmentNotFit, match=message):
        check_can_report()
    with pytest.raises(EnvironmentNotFit, match=message):
        write_comparison(tmp_path, *example, command=COMMAND)
    assert [path.name for path in tmp_path.iterdir()] == ["comparison.json"]


def test_intervals_causes_splits_and_laws_are_on_the_page(repeated: Comparison) -> None:
    page = Page(report_html(repeated, [], command=["x"]))
    for words in (
        "95\xa0% interval",
        "Intervals: Student's t on the logarithms of the ratios within each round of runs.",
        "native on 4: 50.0\xa0%, poor",
        "Communication bound",
        "communication.compression.method: bf16, half the bytes (at most 1.33x)",
        "Where a step's time goes, as a table",
        "exposed communication",
        "What larger sizes would give",
        "gustafson",
        "not fitted: 3 parameters need 4 sizes or more, and 3 could be used",
    ):
        assert words in page.text
