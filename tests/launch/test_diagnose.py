"""What a bad end means; the texts are what torchrun, accelerate launch and deepspeed really print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradwire.errors import EnvironmentNotFit, RunFailed, UsageError
from gradwire.launch.diagnose import Failure, diagnose, read_failure
from gradwire.launch.process import Ended

TORCHRUN_KILLED = """\
step 3/30  loss 5.1
W1130 04:50:42.936000 11520 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 11548 closing signal
E1130 04:50:42.938000 11520 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) local_rank: 1 \
(pid: 11549) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 11548)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 11549)  (SIGKILL)
"""

# The other rank noticed the broken connection and ended before the launcher looked.
TORCHRUN_KILLED_SEEN_LATE = """\
E1130 05:04:02.000000 22163 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0 \
(pid: 22233) of binary: /usr/bin/python3
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 22234)  (SIGKILL)
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 22233)
"""

TORCHRUN_RAISED = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/train.py", line 6, in <module>
[rank1]:     raise ValueError("loss is odd")
[rank1]: ValueError: loss is odd
E1130 04:50:45.435000 11637 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 1 \
(pid: 11723) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 11722)  (SIGTERM)
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 11723)
"""

DEEPSPEED_KILLED = """\
[2026-11-30 04:50:58,899] [INFO] [launch.py:253:sigkill_handler] Killing subprocess 11766
[2026-11-30 04:50:58,902] [ERROR] [launch.py:259:sigkill_handler] ['/usr/bin/python3', '-u', 'die.py', \
'--local_rank=1', 'kill'] exits with return code = -9
"""


def ended(text: str, *, exit_code: int = 1, timed_out: bool = False) -> Ended:
    lines = tuple(line for line in text.splitlines() if line.strip())
    return Ended(exit_code=exit_code, timed_out=timed_out, seconds=1.0, lines=lines, log=Path("runs/x/launch.log"))


def headline(text: str, failure: Failure | None = None) -> str:
    return str(diagnose(ended(text), failure)).splitlines()[0]


@pytest.mark.parametrize("text", [TORCHRUN_KILLED, TORCHRUN_KILLED_SEEN_LATE, DEEPSPEED_KILLED])
def test_killed_worker_is_named_with_its_signal(text: str) -> None:
    assert headline(text).startswith("the process with local rank 1 was killed by SIGKILL (usually the machine ran out")


def test_killed_worker_explains_the_broken_connection_of_another_rank() -> None:
    broken = Failure(exit_code=1, message="the connection to another rank broke", rank=0)
    assert "local rank 1 was killed by SIGKILL" in headline(TORCHRUN_KILLED_SEEN_LATE, broken)


def test_rank_that_refused_keeps_its_exit_code_although_others_were_killed() -> None:
    refused = Failure(exit_code=4, message="the plan is for 4 processes, but 2 run", rank=0)
    error = diagnose(ended(TORCHRUN_KILLED), refused)
    assert isinstance(error, EnvironmentNotFit)
    assert str(error).startswith("the plan is for 4 processes, but 2 run\n  said by rank 0; the whole output: runs/x/")


def test_workers_that_the_launcher_ended_are_not_the_cause() -> None:
    assert headline(TORCHRUN_RAISED) == "ValueError: loss is odd"


def test_lines_before_the_end_and_the_log_are_shown() -> None:
    text = str(diagnose(ended(TORCHRUN_KILLED), None))
    assert "    step 3/30  loss 5.1" in text.splitlines()
    assert text.endswith("  the whole output: runs/x/launch.log")
    assert "closing signal" not in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("RuntimeError: The server socket has failed to listen on port 29500: EADDRINUSE", "port is in use: 29500"),
        ("OSError: [Errno 98] Address already in use (127.0.0.1:29711)", "port is in use: 29711"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "the GPU's memory is full"),
        ("OSError: [Errno 28] No space left on device", "a disk is full"),
        ("ModuleNotFoundError: No module named 'flash_attn'", "package `flash_attn` is not installed"),
        ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp", "NCCL failed"),
        ("torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients", "did not all meet"),
    ],
)
def test_known_trouble_has_its_way_out(line: str, expected: str) -> None:
    assert expected in headline(f"Traceback (most recent call last):\n  File x\n{line}\n")


def test_time_limit_is_named() -> None:
    error = diagnose(ended("step 1/9", timed_out=True, exit_code=-15), None, timeout_seconds=90)
    assert str(error).startswith("stopped after 90 s: the time limit (--timeout)\n    step 1/9\n")


def test_killed_launcher_is_named() -> None:
    assert str(diagnose(ended("", exit_code=-11), None)).startswith("the launcher was killed by SIGSEGV (a crash in")


def test_end_without_any_sign_gives_the_exit_code() -> None:
    error = diagnose(ended("hello", exit_code=7), None)
    assert isinstance(error, RunFailed)
    assert str(error).splitlines()[:2] == ["the run ended with exit code 7", "    hello"]


def test_word_of_a_rank_is_read(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    file.write_text(json.dumps({"exit_code": 2, "message": "no such text", "rank": 1}))
    failure = read_failure(file)
    assert failure == Failure(exit_code=2, message="no such text", rank=1)
    assert isinstance(diagnose(ended(""), failure), UsageError)


@pytest.mark.parametrize("content", [None, "", "[]", '{"exit_code": 2}', "\x00"])
def test_word_that_cannot_be_read_is_none(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "error.json"
    if content is not None:
        file.write_text(content)
    assert read_failure(file) is None
