"""The wheel holds what the package needs, and works from a folder that is no checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


def test_wheel_holds_every_schema_and_preset(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = [path for kind in ("schemas", "presets") for path in (ROOT / kind).rglob("*") if path.is_file()]
    assert shipped
    assert {f"gradwire/_data/{path.relative_to(ROOT)}" for path in shipped} <= names
    assert {"gradwire/py.typed", "gradwire/compare/report.html.j2"} <= names


def test_installed_wheel_works_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    installed = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    zipfile.ZipFile(wheel).extractall(installed)
    # What gradwire rests on comes from the environment of this test; gradwire itself, only from the wheel.
    (installed / "rest.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def python(*words: str) -> str:
        command = [tmp_path / "venv" / "bin" / "python", *words]
        ended = subprocess.run(command, cwd="/", env=elsewhere, check=True, capture_output=True, text=True, timeout=60)
        return ended.stdout

    def run(*words: str) -> str:
        return python("-m", "gradwire", *words)

    where = python("-c", "import gradwire; print(gradwire.__file__)")
    assert Path(where.strip()).is_relative_to(tmp_path)
    assert "cpu/ddp" in {preset["name"] for preset in json.loads(run("presets", "--json"))}
    assert json.loads(run("schema", "recipe"))["title"] == "Recipe"
    assert run("lower", "zero2", "--backend", "deepspeed", "--dry-run")
