"""Starts one world, over gloo or nccl, that runs every check of a file, and reports each check by itself."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

CHECK_PREFIX = "check_"
ROOT = Path(__file__).resolve().parents[2]


def check_names(*checks: Path) -> list[str]:
    """Return the names of the checks in files, read without importing them (they need torch)."""
    bodies = [node for path in checks for node in ast.parse(path.read_text()).body]
    names = [node.name for node in bodies if isinstance(node, ast.FunctionDef)]
    return [name for name in names if name.startswith(CHECK_PREFIX)]


def run_world(
    *checks: Path, ranks: int, only: Sequence[str] | None = None, device: str = "cpu", timeout: float = 200
) -> dict[str, str]:
    """Return for each check (`only` those, where given) what went wrong, on any rank; "" where nothing did.

    `device`: cpu over gloo, or cuda over nccl with a GPU for each rank.
    """
    names = check_names(*checks) if only is None else list(only)
    assert names, f"no checks in {checks}"
    with tempfile.TemporaryDirectory() as folder:
        processes = start_ranks(
            ["--out", folder, "--device", device, "--checks", *map(str, checks), "--names", *names],
            ranks=ranks,
            folder=Path(folder),
        )
        ended = wait_for(processes, timeout=timeout)
        reports = [
            json.loads(path.read_text()) if (path := Path(folder, f"{rank}.json")).exists() else {}
            for rank in range(ranks)
        ]
    results = {}
    for name in names:
        wrong = [f"rank {rank}: {report.get(name, 'did not run')}" for rank, report in enumerate(reports)]
        results[name] = "\n".join(line for line in wrong if not line.endswith(": "))
    results["exit codes"] = "" if all(code == 0 for code, _ in ended) else str(ended)
    return results


def start_ranks(
    arguments: list[str], *, ranks: int, folder: Path, module: str = "tests.communication.world"
) -> list[subprocess.Popen[str]]:
    """Start `ranks` processes of `module` that find each other through a file in `folder`."""
    environment = os.environ | {
        "WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
        "RENDEZVOUS": f"file://{folder}/store",
    }
    return [
        subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]


def wait_for(processes: list[subprocess.Popen[str]], *, timeout: float) -> list[tuple[int, str]]:
    """Return each process's exit code and the end of its output; kills all `timeout` seconds from now."""
    deadline = time.monotonic() + timeout
    ended = []
    try:
        for process in processes:
            try:
                output, _ = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
            ended.append((process.returncode, output[-3000:]))
    finally:
        for process in processes:
            process.kill()
    return ended


def join_world(*, timeout: float, device: str = "cpu") -> None:
    """Join the world that `start_ranks` started; collectives fail after `timeout` seconds.

    On `device` cuda, what names no device lies on this rank's GPU from then on.
    """
    import torch
    import torch.distributed as dist

    if device == "cuda":
        torch.cuda.set_device(int(os.environ["RANK"]))
        torch.set_default_device(torch.device("cuda", int(os.environ["RANK"])))
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        init_method=os.environ["RENDEZVOUS"],
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=timeout),
    )


def leave_world() -> None:
    """End this process cleanly: an ordinary exit aborts now and then once gloo has run callbacks."""
    import torch.distributed as dist

    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    import torch
    import torch.distributed as dist

    parser = argparse.ArgumentParser()
    parser.add_argument("--checks", type=Path, nargs="+", required=True)
    parser.add_argument("--names", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--timeout", type=float, default=60)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    arguments = parser.parse_args()
    paths: list[Path] = arguments.checks
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    join_world(timeout=arguments.timeout, device=arguments.device)
    checks: dict[str, Callable[[], None]] = {}
    for path in paths:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        checks |= {name: getattr(module, name) for name in check_names(path)}
    report = {}
    for name in arguments.names or checks:
        torch.manual_seed(1 + rank)
        try:
            checks[name]()
            report[name] = ""
        except BaseException:  # noqa: BLE001 - whatever a check raises is its report
            report[name] = traceback.format_exc()[-1500:]
        Path(arguments.out, f"{rank}.json").write_text(json.dumps(report))
        # A check that failed on one rank only must not meet the next check's collectives.
        failed = torch.tensor([1.0 if report[name] else 0.0])
        dist.all_reduce(failed)
    leave_world()


if __name__ == "__main__":
    main()
