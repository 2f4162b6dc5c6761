"""presets, show, explain, efficiency, schema, doctor, completion."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gradwire.launch.health import KNOWN_TOGETHER
from gradwire.presets import preset_names
from gradwire.resources import schema_kinds, schema_text
from tests.cli.command_runner import Said

Run = Callable[..., Said]


def test_presets_are_listed_with_their_summaries(run_here: Run) -> None:
    document = run_here("presets", "--json").document
    assert [entry["name"] for entry in document] == preset_names()
    assert all(set(entry) == {"name", "summary"} and entry["summary"] for entry in document)
    lines = run_here("presets").out.splitlines()
    assert [line.split()[0] for line in lines] == preset_names()


@pytest.mark.parametrize("preset", preset_names())
def test_shown_recipe_is_the_same_recipe_again(run_here: Run, tmp_path: Path, preset: str) -> None:
    (tmp_path / "again.yaml").write_text(run_here("show", preset).out)
    assert run_here("show", "again.yaml", "--json").document == run_here("show", preset, "--json").document


def test_show_names_where_values_come_from(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: cpu/ddp\ntraining: {seed: 7}\n")
    lines = run_here("show", "mine.yaml", "--set", "training.max_steps=5", "--num-gpus", "4").out.splitlines()
    assert "  seed: 7 # mine.yaml:2" in lines
    assert "  max_steps: 5 # --set training.max_steps=5" in lines
    assert "  num_gpus: 4 # --num-gpus 4" in lines
    assert any(line.startswith("  learning_rate: 0.002 # preset cpu/ddp:") for line in lines)
    assert "  momentum: 0.0" in lines


def test_a_backends_own_keys_are_checked_with_their_place(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "extends: cpu/zero2\nbackends:\n  deepspeed:\n    zero_optimisation: {stage: 1}\n"
    )
    said = run_here("validate", "mine.yaml")
    assert said.exit_code == 2
    assert said.err.startswith("mine.yaml:4:32 backends.deepspeed: zero_optimisation: no key of deepspeed.json")
    (tmp_path / "mine.yaml").write_text("extends: cpu/zero2\nbackends: {deepspeed: {wall_clock_breakdown: true}}\n")
    assert run_here("validate", "mine.yaml").exit_code == 0


def test_a_file_name_cannot_steer_the_terminal(run_here: Run, tmp_path: Path) -> None:
    (tmp_path / "\x1b[31mred.yaml").write_text("extends: cpu/ddp\nextra: 1\n")
    said = run_here("validate", "\x1b[31mred.yaml")
    assert said.exit_code == 2
    assert "\x1b" not in said.out + said.err
    assert "\\x1b[31mred.yaml" in said.err


def test_later_option_wins_over_set(run_here: Run) -> None:
    said = run_here("show", "cpu/ddp", "--json", "--num-gpus", "2", "--set", "training.num_gpus=4")
    assert said.document["training"]["num_gpus"] == 2


def test_key_is_explained_with_origin_meaning_and_every_backend(run_here: Run) -> None:
    line = ("explain", "cpu/powersgd", "communication.compression.method")
    document = run_here(*line, "--json").document
    assert document["value"] == "powersgd"
    assert document["origin"]["layer"] == "preset"
    assert document["default"] == "none"
    assert document["allowed"].startswith("none, fp16, bf16, powersgd, ")
    assert document["backends"]["deepspeed"]["outcome"] == "refused"
    assert document["backends"]["native"]["outcome"] == "exact"
    text = run_here(*line).out
    assert text.startswith("communication.compression.method = powersgd\n  from        preset cpu/powersgd:")
    assert max(len(line) for line in text.splitlines()) <= 80


def test_default_and_command_line_are_named_as_origins(run_here: Run) -> None:
    assert "from        schema default" in run_here("explain", "cpu/ddp", "training.seed").out
    said = run_here("explain", "cpu/ddp", "training.seed", "--set", "training.seed=4")
    assert "from        --set training.seed=4" in said.out


def test_recipe_is_explained_section_by_section(run_here: Run) -> None:
    said = run_here("explain", "cpu/ddp")
    assert "\nparallelism    How the work is split over ranks." in said.out
    assert "`gradwire explain cpu/ddp training` lists a section" in said.out
    assert "parallelism" in run_here("explain", "cpu/ddp", "--json").document["sections"]


def test_section_is_explained_key_by_key(run_here: Run) -> None:
    document = run_here("explain", "cpu/overlap", "communication.overlap", "--json").document
    assert document["kind"] == "section"
    assert [key["path"].rpartition(".")[2] for key in document["keys"]] == [
        *("bucket_cap_mb", "first_bucket_mb", "gradient_as_bucket_view", "static_graph", "find_unused_parameters")
    ]
    assert "  static_graph = true" in run_here("explain", "cpu/overlap", "communication.overlap").out


def test_every_key_of_every_preset_can_be_explained(run_here: Run) -> None:
    keys = run_here("explain", "cpu/pipeline", "parallelism", "--json").document["keys"]
    keys += run_here("explain", "cpu/ddp", "training", "--json").document["keys"]
    keys += run_here("explain", "cpu/ddp", "backends", "--json").document["keys"]
    for key in keys:
        assert run_here("explain", "cpu/ddp", key["path"]).exit_code == 0


@pytest.mark.parametrize("key", ["training.gradient_clp", "trainng", "training.seed.more", ""])
def test_unknown_key_is_a_usage_error(run_here: Run, key: str) -> None:
    said = run_here("explain", "cpu/ddp", key)
    assert (said.exit_code, said.out) == (2, "")
    assert "a recipe has no key" in said.err


def test_efficiency_is_a_fraction_in_json_and_percent_on_screen(run_here: Run) -> None:
    line = ("efficiency", "--baseline", "100", "--num-gpus", "8", "--throughput", "720")
    document = run_here(*line, "--json").document
    assert (document["scaling_efficiency"], document["grade"]) == (0.9, "good")
    assert run_here(*line).out == "90.0%  good  (720 of an ideal 800)\n"


@pytest.mark.parametrize(("threshold", "expected"), [("0.85", 0), ("90%", 0), ("0.91", 5), ("95%", 5)])
def test_efficiency_below_the_threshold_exits_with_five(run_here: Run, threshold: str, expected: int) -> None:
    line = f"efficiency --baseline 100 --num-gpus 8 --throughput 720 --json --fail-below {threshold}"
    said = run_here(*line.split())
    assert said.exit_code == expected
    assert said.document["met"] is (expected == 0)


def test_efficiency_against_a_larger_baseline(run_here: Run) -> None:
    line = "efficiency --baseline 800 --baseline-num-gpus 8 --num-gpus 64 --throughput 4480 --json"
    document = run_here(*line.split()).document
    assert (document["scaling_efficiency"], document["grade"]) == (0.7, "acceptable")


@pytest.mark.parametrize("kind", schema_kinds())
def test_schema_is_printed_as_it_is(run_here: Run, kind: str) -> None:
    assert run_here("schema", kind).out == schema_text(kind)
    assert run_here("schema", kind, "--json").document == json.loads(schema_text(kind))


def test_kinds_are_listed(run_here: Run) -> None:
    assert run_here("schema").out.split() == schema_kinds()
    assert run_here("schema", "--json").document == schema_kinds()


def test_doctor_looks_at_everything_and_gives_ways_out(run_here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/nonexistent")
    said = run_here("doctor", "--json")
    checks = {check["name"]: check for check in said.document["checks"]}
    assert {"python", "torch", "devices", "compiler", "build locks", "port", "/dev/shm"} <= set(checks)
    assert all(check["fix"] for check in checks.values() if check["status"] == "fail")
    assert said.document["ok"] is (said.exit_code == 0)
    assert said.exit_code in (0, 4)


def test_doctor_fails_on_an_old_build_lock(run_here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    lock = tmp_path / "op" / "lock"
    lock.parent.mkdir()
    lock.touch()
    os.utime(lock, (1, 1))
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    said = run_here("doctor")
    assert said.exit_code == 4
    assert "fail  build locks" in said.out
    assert f"rm {lock}" in "".join(line.strip() for line in said.out.splitlines()).replace("rm/", "rm /")


def test_versions_known_together_are_those_of_the_constraints_file() -> None:
    constraints = Path(__file__).parents[2] / "constraints.txt"
    pinned = dict(line.split("==") for line in constraints.read_text().splitlines() if "==" in line)
    assert {name: pinned[name] for name in KNOWN_TOGETHER} == KNOWN_TOGETHER


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_script_knows_verbs_and_options(run_here: Run, shell: str) -> None:
    script = run_here("completion", shell).out
    assert "allow-lossy" in script
    assert "efficiency" in script
    assert run_here("completion", shell, "--json").document == {"shell": shell, "script": script.rstrip("\n")}


def test_bash_completion_completes_verbs_and_presets(run_here: Run, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    (tmp_path / "completion.sh").write_text(run_here("completion", "bash").out)
    script = (
        "gradwire() { printf 'cpu/ddp  Tiny\\ncpu/fsdp  Tiny\\n'; }\n"
        "source ./completion.sh\n"
        "complete_line() { COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); "
        "_shtab_gradwire; printf '%s\\n' \"${COMPREPLY[@]}\"; }\n"
        "complete_line 'gradwire comp'\n"
        "complete_line 'gradwire show cpu/f'\n"
    )
    ended = subprocess.run([bash, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert sorted(ended.stdout.split()) == ["compare", "completion", "cpu/fsdp"], ended.stderr
