"""Writing an artifact: deterministic bytes, all files or none, and a launch script that works from anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path, PurePath
from threading import Barrier
from typing import Any

import pytest

from gradwire.artifact import (
    Artifact,
    OutFile,
    Setting,
    build_artifact,
    command_line,
    command_settings,
    command_words,
    with_reread,
    write_artifact,
)
from gradwire.documents.lowering_schema import LoweringReport, Reread
from gradwire.errors import UsageError
from gradwire.plan import Backend
from tests.lowering.drawing import STRATEGY, lowered

NOT_READ = Reread(status="skipped", loader=None, reason="not asked", values=[])

# Prints its arguments and what it finds in the environment, as JSON, in place of a launcher.
ECHO = (
    "import json, os, sys; print(json.dumps([sys.argv[1:], {k: os.environ.get(k) for k in ('A', 'OMP_NUM_THREADS')}]))"
)


def artifact_of(*words: str | OutFile | Setting, environment: dict[str, str] | None = None) -> Artifact:
    report = LoweringReport(
        format_version=1,
        backend="native",
        recipe_name="x",
        recipe_sha256="0" * 64,
        fields=[],
        defaults=[],
        extras=[],
        files=[],
        environment={},
        command=[],
        reread=NOT_READ,
    )
    return build_artifact(
        plan_text="{}\n", target_files={}, command=words, environment=environment or {}, report=report
    )


def run_launch(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> list[Any]:
    search_path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        [str(folder / "launch.sh"), *arguments],
        env={"PATH": search_path, **(environment or {})},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found: list[Any] = json.loads(ended.stdout)
    return found


def test_a_new_folder_holds_every_file_of_the_report(tmp_path: Path) -> None:
    artifact = lowered("accelerate", {STRATEGY: "zero2"})
    write_artifact(artifact, tmp_path / "runs" / "out")
    names = sorted(path.name for path in (tmp_path / "runs" / "out").iterdir())
    assert names == artifact.report.files
    assert names == ["accelerate.yaml", "deepspeed.json", "launch.sh", "lowering.json", "plan.json"]


def test_files_end_with_a_newline_and_the_launch_script_is_executable(tmp_path: Path) -> None:
    write_artifact(lowered("deepspeed"), tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes().endswith(b"\n")
        assert os.access(path, os.X_OK) == (path.name == "launch.sh")


def test_the_same_recipe_gives_the_same_bytes() -> None:
    assert lowered("accelerate", {STRATEGY: "zero3"}).files == lowered("accelerate", {STRATEGY: "zero3"}).files


def test_nothing_of_this_machine_is_in_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for backend in ("native", "accelerate", "deepspeed"):
        for text in lowered(backend).files.values():
            for trace in (str(tmp_path), os.getcwd(), os.path.expanduser("~") + "/", "hf_secret"):
                assert trace not in text


def test_lowering_again_replaces_the_files_and_keeps_a_persons_own(tmp_path: Path) -> None:
    write_artifact(lowered("accelerate", {STRATEGY: "zero2"}), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    artifact = lowered("native")
    write_artifact(artifact, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*artifact.report.files, "notes.txt"])
    assert (tmp_path / "plan.json").read_text() == artifact.files["plan.json"]


@pytest.mark.parametrize("backend", ["accelerate", "native"])
def test_a_persons_own_configuration_is_neither_replaced_nor_removed(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text("mine")
    if backend == "accelerate":
        with pytest.raises(UsageError, match=r"accelerate\.yaml would be replaced, and no lowering wrote that"):
            write_artifact(lowered(backend), tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["accelerate.yaml"]
    else:
        write_artifact(lowered(backend), tmp_path)
    assert (tmp_path / "accelerate.yaml").read_text() == "mine"


def test_a_symbolic_link_in_the_folder_is_replaced_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("precious")
    write_artifact(lowered("native"), tmp_path / "out")
    (tmp_path / "out" / "plan.json").unlink()
    (tmp_path / "out" / "plan.json").symlink_to(outside)
    write_artifact(lowered("native"), tmp_path / "out")
    assert outside.read_text() == "precious"
    assert not (tmp_path / "out" / "plan.json").is_symlink()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UsageError, match="out: is not a folder"):
        write_artifact(lowered("native"), tmp_path / "out")
    assert (tmp_path / "out").read_text() == "a file"


def test_a_file_on_the_way_to_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="/file is not a folder; give --out another path"):
        write_artifact(lowered("native"), tmp_path / "file" / "a" / "out")


def test_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is not a folder"):
        write_artifact(lowered("native"), tmp_path / "out")
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_in_place_of_a_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "plan.json").mkdir()
    with pytest.raises(UsageError, match=r"plan\.json: is a folder"):
        write_artifact(lowered("native"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("exists", [True, False])
def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "out"
    if exists:
        write_artifact(lowered("native"), folder)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    artifact = lowered("deepspeed")
    # A name that no file system takes fails after other files were written.
    broken = replace(artifact, files={**artifact.files, "z" * 300: ""})
    with pytest.raises(UsageError, match="cannot write the files: File name too long"):
        write_artifact(broken, folder)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert exists or list(tmp_path.iterdir()) == []


def test_command_words_put_files_under_the_folder_and_choose_settings() -> None:
    artifact = artifact_of("run", OutFile(name="plan.json"), Setting(variable="MASTER_PORT", default="20000"))
    assert command_words(artifact, PurePath("a b")) == ["run", "a b/plan.json", "20000"]
    assert command_words(artifact, PurePath("o"), {"MASTER_PORT": "31000"}) == ["run", "o/plan.json", "31000"]
    assert [setting.variable for setting in command_settings(artifact)] == ["MASTER_PORT"]
    assert artifact.report.command == ["run", "plan.json", "20000"]


def test_the_command_line_is_quoted_for_a_shell() -> None:
    artifact = artifact_of("run", "it's; $HOME", OutFile(name="plan.json"), environment={"A": "x y"})
    assert command_line(artifact, PurePath("my runs")) == """A='x y' run 'it'"'"'s; $HOME' 'my runs/plan.json'"""


def test_the_launch_script_quotes_every_word_and_passes_arguments_on(tmp_path: Path) -> None:
    words = ("python3", "-c", ECHO, 'it\'s; $HOME `id` "q"\nline', OutFile(name="plan.json"))
    folder = tmp_path / "a 'folder' $HOME"
    write_artifact(artifact_of(*words, environment={"A": "v'; $(id)", "OMP_NUM_THREADS": "1"}), folder)
    arguments, environment = run_launch(folder, "--more", "two words")
    assert arguments == ['it\'s; $HOME `id` "q"\nline', str(folder / "plan.json"), "--more", "two words"]
    assert environment == {"A": "v'; $(id)", "OMP_NUM_THREADS": "1"}


def test_the_launch_script_finds_its_folder_through_a_link(tmp_path: Path) -> None:
    folder, link = tmp_path / "a folder", tmp_path / "links"
    write_artifact(artifact_of("python3", "-c", ECHO, OutFile(name="plan.json")), folder)
    link.mkdir()
    (link / "launch.sh").symlink_to(Path("..", "a folder", "launch.sh"))
    assert run_launch(link)[0] == [str(folder / "plan.json")]


def test_the_launch_script_takes_node_rank_and_threads_from_the_environment(tmp_path: Path) -> None:
    rank = Setting(variable="NODE_RANK", default="1")
    artifact = artifact_of("python3", "-c", ECHO, rank, environment={"OMP_NUM_THREADS": "1", "A": "decided"})
    write_artifact(artifact, tmp_path)
    assert run_launch(tmp_path)[0] == ["1"]
    arguments, environment = run_launch(
        tmp_path, environment={"NODE_RANK": "3", "OMP_NUM_THREADS": "4", "A": "undecided"}
    )
    assert arguments == ["3"]
    assert environment == {"A": "decided", "OMP_NUM_THREADS": "4"}


def test_the_launch_script_takes_node_rank_from_slurm_unless_it_is_given(tmp_path: Path) -> None:
    rank = Setting(variable="NODE_RANK", default="1", scheduler_variable="SLURM_NODEID")
    write_artifact(artifact_of("python3", "-c", ECHO, rank), tmp_path)
    ranks = [{}, {"SLURM_NODEID": "5"}, {"SLURM_NODEID": "5", "NODE_RANK": "3"}]
    assert [run_launch(tmp_path, environment=given)[0] for given in ranks] == [["1"], ["5"], ["3"]]


@pytest.mark.parametrize("is_there", [False, True])
def test_machines_that_share_a_new_folder_write_it_at_once(tmp_path: Path, is_there: bool) -> None:
    artifact, together = lowered("native"), Barrier(8)
    if is_there:
        (tmp_path / "runs" / "out").mkdir(parents=True)

    def write(_machine: int) -> None:
        together.wait()
        write_artifact(artifact, tmp_path / "runs" / "out")

    with ThreadPoolExecutor(8) as machines:
        list(machines.map(write, range(8)))
    assert {path.name for path in (tmp_path / "runs" / "out").iterdir()} == set(artifact.files)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["out"]


def test_a_folder_that_another_machine_makes_while_this_one_looks_is_written_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact, out, look = lowered("native"), tmp_path / "out", Path.is_symlink

    def another_is_faster(path: Path) -> bool:
        monkeypatch.undo()
        write_artifact(artifact, out)
        return look(path)

    monkeypatch.setattr(Path, "is_symlink", another_is_faster)
    write_artifact(artifact, out)
    assert {path.name for path in out.iterdir()} == set(artifact.files)


def test_the_launch_script_takes_a_free_port_unless_one_is_given(tmp_path: Path) -> None:
    port = Setting(variable="MASTER_PORT", default="20000", is_free_port=True)
    write_artifact(artifact_of("python3", "-c", ECHO, port), tmp_path)
    [chosen] = run_launch(tmp_path)[0]
    assert 20_000 <= int(chosen) < 32_768
    assert run_launch(tmp_path, environment={"MASTER_PORT": "31000"})[0] == ["31000"]


def test_what_was_read_back_goes_into_the_report_alone() -> None:
    before = lowered("native")
    reread = Reread(status="equal", loader="torchrun", reason=None, values=[])
    after = with_reread(before, reread)
    assert json.loads(after.files["lowering.json"])["reread"]["status"] == "equal"
    assert {name for name in before.files if before.files[name] != after.files[name]} == {"lowering.json"}
