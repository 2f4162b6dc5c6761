"""What gets into a watched process harms it in no way: imports, a full disk, forks and threads."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path

import pytest
import torch

from gradwire.integrations.attach import imports
from gradwire.integrations.attach.harmless import Harmless
from gradwire.integrations.attach.observer import FOLDER_VARIABLE, Observer
from gradwire.measure.rank_log import RankReader


def test_a_library_that_cannot_be_hooked_is_imported_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "of_another_version.py").write_text("here = True\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "of_another_version", raising=False)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setitem(imports._WATCHED, "of_another_version", "no_such_hook")
    imports.watch_imports()
    import of_another_version  # type: ignore[import-not-found]

    assert of_another_version.here
    assert "no attribute 'no_such_hook'" in capsys.readouterr().err


def test_a_fault_that_cannot_be_told_is_kept_from_the_command_too(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stderr in (closed, None):
        monkeypatch.setattr(sys, "stderr", stderr)
        harmless = Harmless()
        with harmless:
            raise RuntimeError
        assert harmless.is_broken


def test_a_full_disk_is_told_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Harmless():
        raise OSError(28, "No space left on device")
    assert capsys.readouterr().err == (
        "gradwire measure: stopped watching this process, whose run goes on: [Errno 28] No space left on device\n"
    )


def train(watcher: Observer, steps: int) -> None:
    """What the hooks tell an observer of a loop."""
    model = torch.nn.Embedding(16, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        # A forked process cannot make a backward pass where its parent has.
        model(torch.zeros(2, 5, dtype=torch.long))
        model.weight.grad = torch.ones_like(model.weight)
        watcher.optimizer_begins(optimizer)
        optimizer.step()
        watcher.optimizer_ended(optimizer)


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observer:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return Observer(tmp_path, warmup_steps=1)


def test_the_thread_that_trains_is_watched_and_another_one_is_not(tmp_path: Path, watcher: Observer) -> None:
    """Some programs train in a thread beside their server or window."""
    with watcher.between("aside-begin", "aside-end"):
        thread = threading.Thread(target=train, args=(watcher, 4))
        thread.start()
        thread.join()
    train(watcher, 3)
    (log,) = RankReader(tmp_path).read()
    assert [step.tokens for step in log.steps] == [None, 10, 10, 10]


def test_a_process_that_was_forked_to_train_is_watched_and_a_workers_is_not(tmp_path: Path, watcher: Observer) -> None:
    """Launchers of notebooks fork their ranks, and loaders their workers."""

    def forked() -> int:
        child = os.fork()
        if child == 0:
            # pytest's own end is not for the child.
            try:
                train(watcher, 3)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return child

    trained = forked()
    train(watcher, 2)
    forked()
    logs = RankReader(tmp_path).read()
    assert {log.start.pid: len(log.steps) for log in logs} == {trained: 3, os.getpid(): 2}
