"""The command as a whole: help, typos, --json on mistakes, exit codes, broken pipes, bugs."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gradwire.cli.parser import VERBS, parse
from tests.cli.command_runner import COMMAND, Said

Run = Callable[..., Said]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example_and_json_and_fits_eighty_columns(run_here: Run, verb: str) -> None:
    said = run_here(verb, "--help")
    assert said.exit_code == 0
    assert f"examples:\n  gradwire {verb}" in said.out
    assert "--json" in said.out
    assert max(len(line) for line in said.out.splitlines()) <= 80


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_the_documents_can_be_given(page: Path) -> None:
    lines = re.findall(r"^ {4,}(?:\$ )?gradwire ([a-z]+(?: (?! ).*)?)$", page.read_text(encoding="utf-8"), re.M)
    assert lines
    for line in lines:
        # Comments and redirections are the shell's.
        assert parse(shlex.split(re.split(r"  +#| > ", line)[0]))


def test_help_lists_every_verb_and_exit_code(run_here: Run) -> None:
    said = run_here("--help")
    assert said.exit_code == 0
    assert all(f"\n  {verb} " in said.out for verb in VERBS)
    assert "5  a threshold was not met" in said.out
    assert max(len(line) for line in said.out.splitlines()) <= 80


def test_version_is_the_packages(run_here: Run) -> None:
    said = run_here("--version")
    assert (said.exit_code, said.out.split()[0]) == (0, "gradwire")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("lanch", "there is no verb 'lanch' (did you mean launch?)"),
        ("list", "there is no verb 'list' (did you mean presets?)"),
        ("help launch", "(gradwire VERB --help says what one does)"),
        ("launch cpu/ddp train.py --backend native", "a script of your own stands at the end, after `--`"),
        ("compare cpu/ddp --num-gpus 1, 2", "'1,': something is missing beside a comma"),
        ("lower cpu/ddp --bakend native --dry-run", "unknown option --bakend (did you mean --backend?)"),
        ("lower cpu/ddp --backend deepsped --dry-run", "there is no backend 'deepsped' (did you mean deepspeed?)"),
        ("compare cpu/ddp --backends native,acelerate --num-gpus 1", "(did you mean accelerate?)"),
        ("compare cpu/ddp --num-gpus 1,0", "'0' is not a whole number of at least 1"),
        ("compare cpu/ddp --num-gpus 2,2", "names one twice"),
        ("schema recpie", "there is no document kind 'recpie' (did you mean recipe?)"),
        ("completion fsh", "no completion for 'fsh' (did you mean fish?)"),
        ("presets extra", "unexpected argument: extra"),
        ("lower cpu/ddp --backend native", "one of the arguments --out --dry-run is required"),
        ("lower cpu/ddp --backend native --dry-run --num-gpus two", "'two' is not a whole number of at least 1"),
        ("lower cpu/ddp --backend native --dry-run --device gpu", "invalid choice: 'gpu'"),
        ("launch cpu/ddp --backend native --num-nodes 2", "--num-nodes 2 needs --rdzv HOST:PORT"),
        ("launch cpu/ddp --backend native --node-rank 1", "ranks go from 0 to 0"),
        ("launch cpu/ddp --backend native --rdzv node0", "'node0' is not HOST:PORT"),
        ("launch cpu/ddp --backend native --", "nothing follows `--`"),
        ("launch cpu/ddp --backend native --rdzv a;b:29500", "'a;b:29500' is not HOST:PORT"),
        ("launch cpu/ddp --backend native --rdzv [::1]:65536", "'[::1]:65536' is not HOST:PORT"),
        ("validate -- --no-such.yaml", "--no-such.yaml: no such file"),
        ("show cpu/ddp -- train.py", "gradwire show takes no script after `--`"),
        ("efficiency --baseline 0 --num-gpus 2 --throughput 1", "'0' is not a number above 0"),
        ("efficiency --baseline 1 --num-gpus 2 --throughput 1 --fail-below 85", "'85' is not a fraction"),
        ("lower cpu/ddp --backend native --dry-run --set training.seed", "write KEY=VALUE"),
        ("", "a verb is missing"),
    ],
)
def test_mistyped_line_is_a_usage_error_that_helps(run_here: Run, line: str, expected: str) -> None:
    said = run_here(*line.split())
    assert (said.exit_code, said.out) == (2, "")
    assert expected in said.err


@pytest.mark.parametrize(
    "line",
    [
        "lanch --json",
        "lower cpu/ddp --json",
        "show no-such-preset --json",
        "efficiency --json --baseline x",
        "schema nothing --json",
    ],
)
def test_mistake_with_json_is_one_object_on_stdout(run_here: Run, line: str) -> None:
    said = run_here(*line.split())
    error = said.document["error"]
    assert said.exit_code == error["exit_code"] == 2
    assert error["kind"] == "UsageError"
    assert error["message"] in said.err
    assert error["violations"] == []


@pytest.mark.parametrize("line", ["validate caf\udce9.yaml", "launch cpu/ddp -- caf\udce9.yaml"])
def test_name_that_no_document_can_hold_is_refused(run_here: Run, line: str) -> None:
    said = run_here(*line.split())
    assert said.exit_code == 2
    assert said.err.startswith("gradwire: caf\\xe9.yaml: is not UTF-8")


def test_json_after_the_scripts_dashes_is_the_scripts(run_here: Run) -> None:
    said = run_here("launch", "cpu/ddp", "--backend", "native", "--", "no-such-script.py", "--json")
    assert (said.exit_code, said.out) == (4, "")


def test_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    # Before the command starts: one that is quicker than this test would have written all to the pipe.
    os.close(reader)
    ended = subprocess.run([*COMMAND, "schema", "recipe"], stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize(
    "line",
    [
        "launch cpu/ddp --backend native --out {path}",
        "launch cpu/ddp --backend native --set data.path={path} --dry-run",
        "compare cpu/ddp --backends native --num-gpus 1 --out {path}",
        "report {path}",
        "diff cpu/ddp {path}.json",
        "import ds.json --out {path}.yaml",
    ],
)
def test_path_that_the_file_system_refuses_is_one_line(run_here: Run, tmp_path: Path, line: str) -> None:
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1}')
    # The one refusal that root meets too; a folder that may not be entered is another.
    said = run_here(*line.format(path="x" * 300).split())
    assert (said.exit_code, said.out) == (2, "")
    assert "File name too long; name another path" in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("line", [["show", ""], ["lower", "cpu/ddp", "--backend", "native", "--out", ""]])
def test_empty_path_is_refused(run_here: Run, line: list[str]) -> None:
    said = run_here(*line)
    assert said.exit_code == 2
    assert "the path is empty" in said.err


@pytest.mark.parametrize(
    ("redirection", "expected"),
    [(">&-", "gradwire: stdout is closed"), (">/dev/full", "gradwire: cannot write to stdout: No space left")],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(redirection: str, expected: str, unbuffered: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *COMMAND, "schema", "recipe"],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(expected)
    assert ended.stderr.count("\n") == 1


def test_letter_that_the_output_cannot_encode_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "caf\u00e9.yaml").write_text("model: {family: gpt2}\n")
    ended = subprocess.run(
        [*COMMAND, "validate", "caf\u00e9.yaml"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        cwd=tmp_path,
    )
    assert b"caf\\xe9.yaml" in ended.stdout + ended.stderr
    assert b"Traceback" not in ended.stderr


def test_interrupt_is_no_traceback(tmp_path: Path) -> None:
    program = (
        "import sys, time\nimport gradwire.cli.presets\nfrom gradwire.cli.main import main\n"
        "gradwire.cli.presets.run = lambda arguments: (print('runs', flush=True), time.sleep(60))\n"
        "sys.exit(main(['presets']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (130, b"gradwire: interrupted\n")


def test_bug_keeps_its_traceback_and_asks_to_be_reported(tmp_path: Path) -> None:
    program = (
        "import sys\nimport gradwire.cli.presets\nfrom gradwire.cli.main import main\n"
        "gradwire.cli.presets.run = lambda arguments: 1 // 0\nsys.exit(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, "presets"], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 1
    *_, error, request = ended.stderr.splitlines()
    assert error.startswith("ZeroDivisionError")
    assert request.startswith("gradwire: this is a bug; please report it")
