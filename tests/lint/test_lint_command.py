"""The verb: exit codes, the forms of the answer, files that belong together, and what it costs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gradwire.cli.main import main

SOUND = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_text(json.dumps(SOUND))
    (tmp_path / "bad.json").write_text(
        json.dumps(SOUND | {"gradient_clipp1ng": 1, "zero_optimization": {"stage": "2"}})
    )
    return tmp_path


def test_exit_code_is_2_for_an_error_and_0_without(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", "good.json"]) == 0
    assert main(["lint", "good.json", "bad.json"]) == 2
    assert main(["lint", "missing.json"]) == 2
    (folder / "mild.json").write_text(json.dumps(SOUND | {"zero_optimization": {"stage": "2"}}))
    assert main(["lint", "mild.json"]) == 0
    assert main(["lint", "--strict", "mild.json"]) == 2


def test_text_names_the_place_what_happens_and_the_way_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "bad.json"])
    said = capsys.readouterr()
    assert "bad.json:1:" in said.out
    assert "error DS101 gradient_clipp1ng: unknown key gradient_clipp1ng (did you mean gradient_clipping?)" in said.out
    assert "really: DeepSpeed ignores it without a word" in said.out
    assert "1 file: 1 error, 1 warning" in said.err


def test_json_has_the_promised_form(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--json"], ["--format", "json"]):
        main(["lint", "bad.json", *words])
        document = json.loads(capsys.readouterr().out)
        assert set(document) == {"findings"}
        finding = next(each for each in document["findings"] if each["code"] == "DS101")
        assert list(finding) == [
            "code",
            "severity",
            "file",
            "line",
            "column",
            "path",
            "message",
            "effect",
            "fix",
            "url",
        ]
        assert (finding["severity"], finding["file"], finding["path"]) == ("error", "bad.json", "gradient_clipp1ng")


def test_sarif_names_rules_and_places(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["lint", "--format", "sarif", "bad.json", "missing.json"])
    document = json.loads(capsys.readouterr().out)
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert document["version"] == "2.1.0"
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        region = result["locations"][0]["physicalLocation"]["region"]
        assert region["startLine"] >= 1 and region["startColumn"] >= 1
    assert {"DS101", "RD101"} <= {rule["id"] for rule in rules}


def test_github_annotations_are_one_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a,b.json").write_text(json.dumps(SOUND | {"bogus": 1}))
    main(["lint", "--format", "github", "a,b.json"])
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(
        line.startswith(("::error file=a%2Cb.json,line=", "::notice ", "::warning ")) for line in lines
    )


def test_fix_shows_the_diff_and_diff_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "bad.json").read_text()
    assert main(["lint", "--diff", "bad.json"]) == 2
    assert '-{"train' in capsys.readouterr().out and (folder / "bad.json").read_text() == before
    assert main(["lint", "--fix", "bad.json"]) == 2
    said = capsys.readouterr()
    assert '"stage": 2}' in said.out and "DS106" not in said.out.split("+++")[1].split("\n", 3)[3]
    assert json.loads((folder / "bad.json").read_text())["zero_optimization"] == {"stage": 2}


def test_nothing_is_written_for_a_file_that_cannot_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.json").write_bytes(b'{"a": \xff}')
    assert main(["lint", "--fix", "broken.json"]) == 2
    assert (folder / "broken.json").read_bytes() == b'{"a": \xff}'
    assert len(list(folder.iterdir())) == 3


def test_a_deepspeed_file_that_the_accelerate_file_names_is_checked_with_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "conf").mkdir()
    (folder / "conf" / "ds.json").write_text(json.dumps(SOUND | {"bf16": {"enabled": True, "loss_scale": 0}}))
    text = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    (folder / "conf" / "accelerate.yaml").write_text(text)
    assert main(["lint", "--json", "conf/accelerate.yaml"]) == 2
    found = {(each["code"], each["file"]) for each in json.loads(capsys.readouterr().out)["findings"]}
    assert ("DS102", "conf/ds.json") in found
    assert ("PR101", "conf/ds.json") in found


def test_a_file_outside_that_is_named_by_its_full_path_is_not_opened(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = folder / "secret.json"
    secret.write_text("{broken")
    text = f"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: {secret}\n"
    (folder / "accelerate.yaml").write_text(text)
    main(["lint", "--json", "accelerate.yaml"])
    assert {each["file"] for each in json.loads(capsys.readouterr().out)["findings"]} == {"accelerate.yaml"}


def test_two_files_are_one_job_unless_told_otherwise(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 2\n")
    main(["lint", "--json", "a.yaml", "good.json"])
    assert "PR105" in capsys.readouterr().out
    main(["lint", "--json", "--separately", "a.yaml", "good.json"])
    assert "PR105" not in capsys.readouterr().out


def test_facts_of_the_launch_and_of_the_trainer_are_used(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "batch.json").write_text(json.dumps(SOUND | {"train_batch_size": 16}))
    assert main(["lint", "batch.json", "--num-processes", "8"]) == 0
    assert main(["lint", "batch.json", "--num-processes", "7"]) == 2
    (folder / "arguments.json").write_text(json.dumps({"per_device_train_batch_size": 4, "max_grad_norm": 1.0}))
    assert main(["lint", "good.json", "--trainer-arguments", "arguments.json"]) == 2
    assert "TR101" in capsys.readouterr().out


def test_an_older_version_has_other_faults(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "amp.json").write_text(json.dumps(SOUND | {"amp": {"enabled": False}}))
    assert main(["lint", "amp.json"]) == 2
    assert main(["lint", "amp.json", "--deepspeed-version", "0.18.9"]) == 0


def test_a_mistyped_option_is_a_usage_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--num-processes", "x"], ["--deepspeed-version", "new"], ["--formt", "json"]):
        assert main(["lint", "good.json", *words]) == 2
    assert "--format" in capsys.readouterr().err
    assert main(["lint", "good.json", "--json", "--format", "sarif"]) == 2
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.slow
def test_a_thousand_files_take_seconds_and_load_no_torch(folder: Path) -> None:
    many = folder / "many"
    many.mkdir()
    for number in range(1000):
        zero = {
            "stage": 3,
            "stage3_max_live_parameters": number,
            "overlap_comm": True,
            "offload_param": {"device": "cpu", "bogus": 1},
        }
        (many / f"{number}.json").write_text(
            json.dumps(SOUND | {"zero_optimization": zero, "bf16": {"enabled": "auto"}}, indent=2)
        )
    program = (
        "import sys\nfrom gradwire.cli.main import main\n"
        "code = main(['lint', '--json', '--separately', *sys.argv[1:]])\n"
        "loaded = sorted({'torch', 'deepspeed', 'accelerate', 'transformers', 'numpy'} & set(sys.modules))\n"
        "sys.exit(f'loaded {loaded}' if loaded else code)"
    )
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", program, *sorted(map(str, many.iterdir()))], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 2, ended.stderr[-2000:]
    assert len({each["file"] for each in json.loads(ended.stdout)["findings"]}) == 1000
    print(f"1000 files: {time.monotonic() - started:.1f} s")


def test_the_shipped_hooks_call_the_verb() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert [hook["id"] for hook in hooks] == ["gradwire-lint", "gradwire-lint-fix"]
    for hook in hooks:
        assert hook["entry"].startswith("gradwire lint --separately")
        assert hook["language"] == "python"


@pytest.mark.parametrize("value", ["1e400", "-1e400", "nan", "inf", ".inf", ".nan", "9" * 399, "9" * 5000, "1e-300"])
def test_a_number_that_no_float_holds_is_a_finding(
    folder: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "accelerate.yaml").write_text(f"compute_environment: LOCAL_MACHINE\nnum_machines: {value}\n")
    assert main(["lint", "accelerate.yaml"]) == 2
    (folder / "far.json").write_text(f'{{"train_batch_size": {value}, "zero_optimization": {{"stage": {value}}}}}')
    assert main(["lint", "far.json"]) == 2
    assert main(["lint", "good.json", "--num-processes", "9" * 400]) == 2
    assert "is above the limit, 1000000000" in capsys.readouterr().err
