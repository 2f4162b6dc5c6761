"""Every preset on every backend: the files that come out, or the refusal, exactly as in `golden/`.

After a change that is meant, run with GRADWIRE_UPDATE_GOLDEN=1 and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePath

import pytest

from gradwire.artifact import Artifact
from gradwire.errors import CannotLower
from gradwire.lowering import Placement, lower
from gradwire.plan import BACKENDS, Backend, settle
from gradwire.presets import preset_names
from gradwire.recipe import load_recipe

GOLDEN = Path(__file__).parent / "golden"
UPDATE = os.environ.get("GRADWIRE_UPDATE_GOLDEN") == "1"

# The plan has a test of its own and the report repeats it; their values are checked there.
LEFT_OUT = ("plan.json", "lowering.json")


def lowered(preset: str, backend: Backend, *, allow_lossy: bool = False) -> Artifact:
    loaded = load_recipe(preset)
    device = loaded.recipe.training.device or "cuda"
    plan = settle(loaded.recipe, recipe_name=loaded.name, backend=backend, device=device)
    return lower(plan, placement=Placement(out_folder=PurePath("out")), allow_lossy=allow_lossy)


def field_lines(artifact: Artifact) -> str:
    """What became of each field that the recipe asks for, one a line."""
    return "".join(
        f"{field.outcome} {field.path}: {field.carrier}\n"
        for field in artifact.report.fields
        if field.outcome != "unused" and not field.path.startswith("model.")
    )


def golden_files(preset: str, backend: Backend) -> dict[str, str]:
    try:
        artifact = lowered(preset, backend)
    except CannotLower as error:
        return {"refusal.txt": f"{error}\n"}
    files = {name: text for name, text in artifact.files.items() if name not in LEFT_OUT}
    return {**files, "fields.txt": field_lines(artifact)}


def cells() -> list[tuple[str, Backend]]:
    return [(preset, backend) for preset in preset_names() for backend in BACKENDS]


@pytest.mark.parametrize(("preset", "backend"), cells(), ids="-".join)
def test_a_preset_lowers_as_recorded(preset: str, backend: Backend) -> None:
    folder = GOLDEN / preset / backend
    files = golden_files(preset, backend)
    if UPDATE:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            path.unlink()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    recorded = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} if folder.is_dir() else {}
    assert files == recorded


def test_nothing_is_recorded_that_no_preset_gives() -> None:
    recorded = {str(path.parent.relative_to(GOLDEN)) for path in GOLDEN.rglob("*") if path.is_file()}
    assert recorded == {f"{preset}/{backend}" for preset, backend in cells()}


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_lowers_to_a_backend_and_lossily_to_all(preset: str) -> None:
    assert any("refusal.txt" not in golden_files(preset, backend) for backend in BACKENDS)
    for backend in BACKENDS:
        assert lowered(preset, backend, allow_lossy=True).report.files
