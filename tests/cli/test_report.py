"""`gradwire report`, and the regression gate, on measurements that exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gradwire.documents.recipe_schema import Model, Recipe, Training
from gradwire.measure.hardware import with_fingerprint
from gradwire.measure.measurement import build_measurement, write_measurement
from gradwire.measure.totals import RankRecord
from gradwire.plan import settle
from tests.cli.command_runner import Said

Run = Callable[..., Said]


@pytest.fixture
def measured(tmp_path: Path) -> Callable[..., None]:
    """Write rounds of runs on 1 and 2 processes; a step on 2 takes `seconds`."""

    def write(folder: str, *, seconds: float = 1.25, rounds: int = 3, precision: str = "fp32") -> None:
        for number in range(rounds):
            for size in (1, 2):
                training = Training(num_gpus=size, precision=precision if size == 2 else "fp32")  # type: ignore[arg-type]
                model = Model(family="gpt2", hidden_size=8, layers=1, attention_heads=1, sequence_length=16)
                plan = settle(
                    Recipe(model=model, training=training), recipe_name="tiny", backend="native", device="cpu"
                )
                steps = plan.recipe.measurement.warmup_steps + 2
                pace = (1.0 if size == 1 else seconds) * (1 + 0.2 * number)
                batch = plan.batch.batch_size_per_gpu * plan.batch.gradient_accumulation
                record = RankRecord(
                    step_seconds=[pace] * steps,
                    samples=[batch] * steps,
                    tokens=[batch * 16] * steps,
                    peak_device_allocated_bytes=None,
                    peak_device_reserved_bytes=None,
                    peak_process_bytes=2**28,
                )
                found = build_measurement(
                    plan,
                    [record] * size,
                    losses=[3.0] * steps,
                    gradient_norms=[None] * steps,
                    started_at=f"2026-05-01T12:{number:02}:{size:02}+00:00",
                    versions={"torch": "2.13.0"},
                    hardware=with_fingerprint(
                        device_name="A Processor",
                        cpu="A Processor",
                        cpu_count=8,
                        memory_bytes=2**34,
                        platform_name="Linux x86_64",
                    ),
                    notes=[],
                )
                write_measurement(tmp_path / folder / f"native-{size}" / f"repeat-{number}" / "measurement.json", found)

    return write


def test_runs_that_exist_are_compared(run_here: Run, measured: Callable[..., None], tmp_path: Path) -> None:
    measured("runs")
    said = run_here("report", "runs", "--json")
    assert said.exit_code == 0
    one, two = said.document["cells"]
    assert (one["grade"], two["grade"], two["scaling_efficiency"]) == (None, "acceptable", pytest.approx(0.8))
    # Every round was slower than the last one: pairs see through that.
    assert two["interval"]["method"] == "paired-t"
    assert two["interval"]["high"] - two["interval"]["low"] < 1e-6
    assert said.document["runs"][0]["folder"] == "runs/native-1/repeat-0"
    assert not list(tmp_path.glob("*.html"))


def test_the_page_and_the_files_are_written_where_asked(
    run_here: Run, measured: Callable[..., None], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'gradwire[report]'")
    pytest.importorskip("jinja2", reason="needs jinja2: pip install 'gradwire[report]'")
    measured("runs")
    said = run_here("report", "runs", "--html", "page.html", "--out", "out")
    assert said.exit_code == 0
    assert "80.0 to 80.0 %" in said.out
    assert said.out.splitlines()[-1] == "page.html"
    assert "gradwire report runs --html page.html --out out" in (tmp_path / "page.html").read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "comparison.json",
        "comparison.png",
        "comparison.svg",
        "report.html",
    ]


def test_unlike_runs_are_refused_with_what_differs(run_here: Run, measured: Callable[..., None]) -> None:
    measured("runs", precision="bf16-mixed", rounds=1)
    said = run_here("report", "runs")
    assert said.exit_code == 2
    assert "native-2/repeat-0/measurement.json: precision: bf16-mixed against fp32" in said.err


def test_the_gate_exits_with_5_and_names_the_cells_below(
    run_here: Run, measured: Callable[..., None], tmp_path: Path
) -> None:
    measured("before")
    (tmp_path / "comparison.json").write_text(run_here("report", "before", "--json").out)
    measured("same")
    same = run_here("report", "same", "--baseline", "comparison.json", "--fail-below", "0.95")
    assert same.exit_code == 0
    assert "gate: 2 cells at 95% or more of comparison.json:\n  native on 1: 100.0 %, " in same.err
    measured("slower", seconds=1.5)
    slower = run_here("report", "slower", "--baseline", "comparison.json", "--fail-below", "95%", "--json")
    assert slower.exit_code == 5
    assert "1 of 2 cells below 95% of comparison.json:\n  native on 2: 83.3 %" in slower.err
    assert "native on 1" not in slower.err
    assert [cell["met"] for cell in slower.document["gate"]["cells"]] == [True, False]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("report runs --fail-below 0.9", "--fail-below needs --baseline FILE"),
        ("report runs --baseline x.json", "--baseline FILE needs --fail-below X"),
        ("report runs --baseline x.json --fail-below 0.9", "x.json"),
        ("report runs --baseline-num-gpus 8", "--baseline-num-gpus needs --baseline-throughput"),
        ("report runs --baseline-throughput 0", "--baseline-throughput 0 is not a number above 0"),
        ("report none", "none: does not exist"),
        ("report runs --out=", "argument --out: the path is empty; name a folder, or . for this one"),
        ("report runs --html=", "argument --html: the path is empty; name a file"),
        ("report runs --baseline= --fail-below 1", "argument --baseline: the path is empty; name a file"),
        ("efficiency rows.csv --chart=", "argument --chart: the path is empty; name a file"),
        ("report runs --out /dev/null", "/dev/null"),
        ("compare --num-gpus 1", "missing: RECIPE"),
        ("compare cpu/ddp", "missing: --num-gpus"),
        ("compare --baseline none.json --fail-below 0.9", "none.json"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(
    run_here: Run, measured: Callable[..., None], words: str, message: str
) -> None:
    measured("runs", rounds=1)
    said = run_here(*words.split())
    assert said.exit_code == 2
    assert message in said.err


def test_an_input_or_another_kind_of_file_is_not_written_over(
    run_here: Run, measured: Callable[..., None], tmp_path: Path
) -> None:
    measured("runs", rounds=1)
    source = next(tmp_path.rglob("measurement.json"))
    (tmp_path / "in.html").hardlink_to(source)
    before = source.read_bytes()
    for target, message in (
        (str(source), "a report is written as .html or .htm"),
        ("in.html", "in.html: is one of the files that are read"),
        (".", "a report is written as"),
        ("/dev/null", "a report is written as"),
    ):
        said = run_here("report", str(source), "--html", target)
        assert said.exit_code == 2
        assert message in said.err
    assert source.read_bytes() == before
