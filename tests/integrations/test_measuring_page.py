"""Each program in docs/measuring.md runs as it stands, with the real libraries, and prints its result."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from gradwire.launch.probe import free_port
from tests.distributed.real_runs import run_words

pytestmark = pytest.mark.distributed

PAGE = Path(__file__).parents[2] / "docs" / "measuring.md"
PROGRAM = re.compile(r"^#+ (?P<title>[^\n]+)\n(?:(?!^#)[^\n]*\n)*?```python\n(?P<code>.*?)^```", re.M | re.S)
PROGRAMS = {match["title"]: match["code"] for match in PROGRAM.finditer(PAGE.read_text(encoding="utf-8"))}


def test_every_program_of_the_page_is_found() -> None:
    assert len(PROGRAMS) == PAGE.read_text(encoding="utf-8").count("```python") >= 8


@pytest.mark.parametrize("title", PROGRAMS)
def test_the_program_runs(title: str, tmp_path: Path) -> None:
    if title == "Lightning":
        pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS[title], encoding="utf-8")
    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    variables = {**alone, "MASTER_PORT": str(free_port()), "DS_ACCELERATOR": "cpu"} if title == "DeepSpeed" else {}
    finished = run_words(sys.executable, program, ACCELERATE_USE_CPU="true", **variables)
    finished.check(leaves_as_python_does=True)
    assert re.search(r"[\d,]+ tokens/s|MFU [\d.]+%|finished, the next one torn: True", finished.output), finished.output
