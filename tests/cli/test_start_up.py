"""Commands that need no torch import none of what takes long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    *("torch", "accelerate", "deepspeed", "transformers", "numpy", "psutil"),
    *("matplotlib", "jinja2", "rich", "shtab", "importlib.metadata"),
}
PROGRAM = """\
import json, sys, time
began = time.perf_counter()
from gradwire.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
sys.stderr.write("\\n" + json.dumps({"modules": list(sys.modules), "seconds": time.perf_counter() - began}))
"""


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("--help", set()),
        ("launch --help", set()),
        ("presets", set()),
        ("show h100-128", set()),
        ("validate cpu/ddp cpu/zero3", set()),
        ("explain cpu/ddp training.gradient_clip", set()),
        ("lower h100-8-overlap --backend accelerate --dry-run", set()),
        ("lower zero3 --backend deepspeed --dry-run", set()),
        ("lower cpu/ddp --backend native --out out --no-reread", set()),
        ("launch h100-128 --backend native --dry-run", set()),
        ("efficiency --baseline 100 --num-gpus 8 --throughput 720", set()),
        ("efficiency rows.csv --json", set()),
        ("report none", set()),
        ("diff cpu/ddp cpu/zero1", set()),
        ("schema recipe", set()),
        ("doctor", {"importlib.metadata"}),
        ("completion bash", {"shtab", "importlib.metadata"}),
    ],
)
def test_light_command_imports_nothing_heavy(line: str, allowed: set[str], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,100\n2,190\n4,350\n")
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, *line.split()], cwd=tmp_path, env=os.environ, capture_output=True, text=True
    )
    report = json.loads(ended.stderr.splitlines()[-1])
    # Shown with `pytest -s`; a timing decides no test.
    print(f"gradwire {line}: {report['seconds'] * 1000:.0f} ms")
    assert HEAVY & set(report["modules"]) == allowed & HEAVY
    if line.startswith("diff"):
        # Two recipes need nothing of what reads other programs' files.
        assert not {"gradwire.lint", "gradwire.importing", "gradwire.lowering", "yaml"} & set(report["modules"])


def test_verbs_options_are_known_without_what_the_verbs_do() -> None:
    """A verb's module loads its work when it runs: completion, help and a mistyped option need the options alone."""
    program = (
        "import json, sys\n"
        "from gradwire.cli.parser import VERBS, build_parser\n"
        "build_parser(list(VERBS))\n"
        "print(json.dumps(list(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, check=True)
    loaded = {name for name in json.loads(said.stdout) if name.startswith("gradwire.")}
    light = ("gradwire.cli", "gradwire.errors", "gradwire.presets", "gradwire.resources", "gradwire.launch.probe")
    assert {name for name in loaded if not name.startswith(light)} == {"gradwire.launch"}
    assert not {"msgspec", "yaml", "ruamel.yaml", "jsonschema"} & set(json.loads(said.stdout))
