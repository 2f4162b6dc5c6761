"""Each tracker through its own library, read back with that library."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradwire.documents.step_schema import Step
from gradwire.errors import EnvironmentNotFit, UsageError
from gradwire.launch.probe import free_port
from gradwire.trackers.interface import PACKAGES, check_trackers, open_trackers
from gradwire.trackers.names import step_figures

# Three steps, the second without a loss.
WRITE = """
import json, sys
from pathlib import Path
from gradwire.trackers.interface import open_trackers
with open_trackers(sys.argv[2:], folder=Path(sys.argv[1]), run_name="a-run", settings={"world_size": 2}) as trackers:
    for step in (1, 2, 3):
        figures = {"throughput/tokens_per_sec": 100.5 * step, "throughput/device/mfu": 0.25 * step}
        trackers.log({**figures, **({} if step == 2 else {"train/loss": 3.0 - step})}, step)
"""
WRITTEN = {
    "throughput/tokens_per_sec": [(1, 100.5), (2, 201.0), (3, 301.5)],
    "throughput/device/mfu": [(1, 0.25), (2, 0.5), (3, 0.75)],
    "train/loss": [(1, 2.0), (3, 0.0)],
}
READ = {
    "tensorboard": """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(str(folder / "tensorboard"))
events.Reload()
found = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
""",
    # The file is a LevelDB log: after 7 bytes, records of a checksum, a length, a type, and wandb's own message.
    "wandb": """
import struct
from wandb.proto.wandb_internal_pb2 import Record
(file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
content = file.read_bytes()
found, names, place = {}, [], 7
while place < len(content):
    _, length, kind = struct.unpack_from("<IHB", content, place)
    assert kind == 1
    record = Record.FromString(content[place + 7 : place + 7 + length])
    place += 7 + length
    if record.HasField("run"):
        names.append((record.run.project, record.run.display_name))
        assert not record.run.host
    if record.HasField("history"):
        row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item}
        for name, value in row.items():
            if not name.startswith("_"):
                found.setdefault(name, []).append((row["_step"], value))
assert names[0] == ("gradwire", "a-run"), names
""",
    "mlflow": """
import os
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
import mlflow
client = mlflow.MlflowClient((folder / "mlruns").as_uri())
(run,) = client.search_runs([client.get_experiment_by_name("gradwire").experiment_id])
assert run.info.run_name == "a-run" and run.info.status == "FINISHED" and run.data.params == {"world_size": "2"}
found = {
    name: [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
    for name in run.data.metrics
}
""",
    "trackio": """
import os
os.environ["TRACKIO_DIR"] = str(folder / "trackio")
from trackio.sqlite_storage import SQLiteStorage
found = {}
for row in SQLiteStorage.get_logs("gradwire", "a-run"):
    for name, value in row.items():
        if name not in ("step", "timestamp"):
            found.setdefault(name, []).append((row["step"], value))
""",
}


def run_python(program: str, *words: str | Path) -> str:
    """Run `program` in a Python of its own: these libraries leave threads and settings behind."""
    command = [sys.executable, "-c", program, *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """What each tracker that is installed wrote, all in one run."""
    folder = tmp_path_factory.mktemp("written")
    names = [name for name in READ if _is_installed(name)]
    run_python(WRITE, folder, *names)

    def of(name: str) -> Path:
        if name not in names:
            pytest.skip(f"{PACKAGES[name]} is not installed; gradwire's extra {_extra(name)} brings it")
        return folder

    return of


def _is_installed(name: str) -> bool:
    try:
        check_trackers([name])
    except EnvironmentNotFit:
        return False
    return True


def _extra(name: str) -> str:
    return "trackio" if name == "trackio" else "trackers"


@pytest.mark.parametrize("name", READ)
def test_the_figures_are_there_under_their_names_and_steps(name: str, written: Callable[[str], Path]) -> None:
    begin = "import json, sys\nfrom pathlib import Path\nfolder = Path(sys.argv[1])\n"
    out = run_python(f"{begin}{READ[name]}\nprint(json.dumps(found))", written(name))
    found = json.loads(out.splitlines()[-1])
    assert {each: [tuple(pair) for pair in pairs] for each, pairs in found.items()} == WRITTEN


def prometheus_samples(text: str) -> dict[str, float]:
    """The samples of one run in Prometheus's text format, by its own parser."""
    from prometheus_client.parser import text_string_to_metric_families

    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.labels["run"] for sample in samples} == {"a-run"}
    return {sample.name: sample.value for sample in samples}


def test_prometheus_has_the_last_figures_in_a_file(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    with open_trackers(["prometheus"], folder=tmp_path, run_name="a-run") as trackers:
        trackers.log({"throughput/tokens_per_sec": 1.0}, 1)
        trackers.log({"throughput/tokens_per_sec": 2.5, "throughput/device/mfu": 0.5}, 2)
    assert prometheus_samples((tmp_path / "metrics.prom").read_text(encoding="utf-8")) == {
        "gradwire_throughput_tokens_per_sec": 2.5,
        "gradwire_throughput_device_mfu": 0.5,
        "gradwire_step": 2.0,
    }


def test_prometheus_listens_only_when_asked_and_on_this_machine_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("prometheus_client")
    port = free_port()
    monkeypatch.setenv("GRADWIRE_PROMETHEUS_PORT", str(port))
    with open_trackers(["prometheus"], folder=tmp_path, run_name="a-run") as trackers:
        trackers.log({"train/loss": 1.5}, 1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert prometheus_samples(answer.read().decode())["gradwire_train_loss"] == 1.5
        monkeypatch.setenv("GRADWIRE_PROMETHEUS_PORT", "http")
        with pytest.raises(UsageError, match="GRADWIRE_PROMETHEUS_PORT is 'http', not a port"):
            open_trackers(["prometheus"], folder=tmp_path, run_name="b")


def test_a_tracker_that_fails_is_dropped_and_that_is_said_once(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    said: list[str] = []
    folder = tmp_path / "run"
    with open_trackers(["prometheus"], folder=folder, run_name="a-run", say=said.append) as trackers:
        trackers.log({"train/loss": 1.0}, 1)
        (folder / "metrics.prom").unlink()
        folder.rmdir()
        trackers.log({"train/loss": 1.0}, 2)
        trackers.log({"train/loss": 1.0}, 3)
    assert len(said) == 1
    assert said[0].startswith("prometheus gets no more figures: ")


@pytest.mark.parametrize("names", [["tensorbord"], ["prometheus", "tensorbord"]])
def test_a_tracker_that_there_is_not_is_refused(names: Sequence[str]) -> None:
    with pytest.raises(UsageError, match="no such tracker: tensorbord; there are tensorboard, wandb, mlflow"):
        check_trackers(names)


def test_a_missing_package_is_named_with_the_way_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "prometheus", "no_such_package")
    with pytest.raises(EnvironmentNotFit, match=r"not installed: no_such_package; .*gradwire\[trackers\]"):
        open_trackers(["prometheus"], folder=Path("nowhere"), run_name="a-run")


def step(**given: Any) -> Step:
    values = {"step": 7, "loss": 2.5, "gradient_norm": None, "seconds": 0.5, "samples": 16, "tokens": 1024, **given}
    return Step(**values)


def test_a_step_under_the_names_that_dashboards_know() -> None:
    assert step_figures(step(), world_size=4, mfu=0.5) == {
        "train/loss": 2.5,
        "time/step_seconds": 0.5,
        "throughput/samples_per_sec": 32.0,
        "throughput/tokens_per_sec": 2048.0,
        "throughput/device/samples_per_sec": 8.0,
        "throughput/device/tokens_per_sec": 512.0,
        "throughput/device/mfu": 0.5,
    }


def test_what_is_not_known_of_a_step_is_left_out() -> None:
    assert step_figures(step(loss=None, tokens=0, seconds=0.0), world_size=1) == {"time/step_seconds": 0.0}
    assert "throughput/tokens_per_sec" not in step_figures(step(tokens=0), world_size=1)
