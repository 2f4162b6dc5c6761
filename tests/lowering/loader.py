"""One long-lived process that reads lowerings back with the real loaders: only their imports take long."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from gradwire.artifact import Artifact, write_artifact
from gradwire.documents.lowering_schema import Reread

_SERVER = """
import os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import msgspec
from pathlib import Path
from gradwire.train.reread import reread
for line in sys.stdin:
    answers.write(msgspec.json.encode(reread(Path(line.rstrip("\\n")))).decode() + "\\n")
    answers.flush()
"""


class Loader:
    """Writes artifacts into `folder`, one after the other, and returns what the target's loader reads."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._count = 0

    def read(self, artifact: Artifact) -> Reread:
        self._count += 1
        folder = self._folder / str(self._count)
        write_artifact(artifact, folder)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(f"{folder}\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, "the loader's process ended; its stderr is in loader.log beside the lowerings"
        return msgspec.json.decode(answer, type=Reread)


@contextmanager
def running_loader(folder: Path) -> Iterator[Loader]:
    """Yield a Loader that works below `folder`; its process ends with the block."""
    with (
        (folder / "loader.log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as server,
    ):
        yield Loader(server, folder)
        assert server.stdin is not None
        server.stdin.close()
