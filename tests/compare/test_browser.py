"""The report in a real browser: it draws, it is quiet, it fits, and it asks nobody for anything."""

from __future__ import annotations

import http.server
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'gradwire[report]'")
pytest.importorskip("jinja2", reason="needs jinja2: pip install 'gradwire[report]'")

from gradwire.compare.report import report_html, write_comparison
from gradwire.documents.comparison_schema import Comparison
from gradwire.documents.measurement_schema import Measurement

BROWSER = next((found for name in ("chromium", "google-chrome", "chrome") if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH")

# Loads the report as a phone would, and writes down what it finds there.
PROBE = """<!doctype html><body><iframe id="page" style="width:WIDTHpx;height:900px" src="PAGE"></iframe><script>
document.getElementById("page").onload = (event) => {
  const inside = event.target.contentDocument;
  const root = inside.documentElement;
  const box = (element) => element.getBoundingClientRect();
  const charts = [...inside.querySelectorAll("svg")];
  // Of 255: how light a colour looks.
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\\d.]+/g).map(Number);
    return Math.round(0.2126 * red + 0.7152 * green + 0.0722 * blue);
  };
  // Words of a chart over each other, by more than fonts differ, or outside of it.
  const meet = (one, other) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 3
    && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 3;
  let overlaps = 0, cut = 0;
  for (const chart of charts) {
    const frame = box(chart), words = [...chart.querySelectorAll("text")].map(box);
    words.forEach((word, place) => {
      overlaps += words.slice(place + 1).filter((other) => meet(word, other)).length;
      cut += word.left < frame.left - 3 || word.right > frame.right + 3
        || word.top < frame.top - 3 || word.bottom > frame.bottom + 3;
    });
  }
  const body = inside.defaultView.getComputedStyle(inside.body);
  document.title = "probed";
  document.body.dataset.result = JSON.stringify({
    overflow: root.scrollWidth - root.clientWidth,
    charts: charts.filter((chart) => box(chart).width > 200 && box(chart).height > 100).length,
    overlaps, cut,
    paper: light(body.backgroundColor),
    ink: light(body.color),
    heading: inside.querySelector("h1").textContent,
    loaded: inside.defaultView.performance.getEntriesByType("resource").length,
  });
};
</script></body>"""


@pytest.fixture(scope="module")
def site(
    example: tuple[Comparison, list[Measurement]],
    repeated: Comparison,
    many: Comparison,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, list[str]]]:
    """The address of a server of the report and of the probes, and the paths that were asked for."""
    folder = tmp_path_factory.mktemp("site")
    write_comparison(folder, *example, command=["gradwire", "compare"])
    for name, comparison in (("repeated", repeated), ("many", many)):
        text = report_html(comparison, [], command=["gradwire", "report"])
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    for page in ("report", "repeated", "many"):
        for width in (400, 1400):
            probe = PROBE.replace("WIDTH", str(width)).replace("PAGE", f"{page}.html")
            (folder / f"{page}-{width}.html").write_text(probe)
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            asked.append(self.path)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    thread.join()
    server.server_close()


def browse(address: str, profile: Path, *, scheme: str) -> tuple[str, str]:
    """Return the page as the browser has it after its scripts ran, and what the browser wrote to its log.

    `scheme`: what the reader prefers, light or dark.
    """
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
            "--window-size=1500,1000",
            f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
            "--virtual-time-budget=10000",
            "--dump-dom",
            address,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**os.environ, "HOME": str(profile)},
    )
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("name", "width", "scheme", "charts", "heading"),
    [
        ("report", 1400, "light", 4, "This machine is too noisy for a verdict on 4 processes"),
        ("repeated", 400, "light", 5, "Scaling from 1 to 4 processes"),
        ("many", 400, "dark", 5, "Scaling from 1 to 64 processes"),
        ("many", 1400, "light", 5, "Scaling from 1 to 64 processes"),
    ],
)
def test_the_page_draws_fits_and_loads_nothing(
    site: tuple[str, list[str]], tmp_path: Path, width: int, scheme: str, name: str, charts: int, heading: str
) -> None:
    address, asked = site
    asked.clear()
    page, log = browse(f"{address}/{name}-{width}.html", tmp_path, scheme=scheme)
    assert '"overflow":0' in page.replace("&quot;", '"')
    assert f'"charts":{charts}' in page.replace("&quot;", '"')
    assert '"overlaps":0,"cut":0' in page.replace("&quot;", '"')
    assert '"loaded":0' in page.replace("&quot;", '"')
    found = {key: int(re.findall(rf'"{key}":(\d+)', page.replace("&quot;", '"'))[0]) for key in ("paper", "ink")}
    assert (
        (found["paper"] < 60 and found["ink"] > 200) if scheme == "dark" else found["paper"] > 240 > 60 > found["ink"]
    )
    assert heading in page
    assert not re.search(r"CONSOLE", log)
    assert set(asked) - {"/favicon.ico"} == {f"/{name}-{width}.html", f"/{name}.html"}
