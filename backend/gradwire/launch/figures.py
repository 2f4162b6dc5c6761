"""Has torch measure what advice on compression rests on, in processes of its own, and returns the figures."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import msgspec

from gradwire.documents.figures_schema import Figures
from gradwire.documents.plan_schema import Plan
from gradwire.errors import EnvironmentNotFit
from gradwire.launch.probe import missing_packages, probe_machine
from gradwire.launch.process import run
from gradwire.measure.document import read_document

_TIMEOUT_SECONDS = 600.0
_SHOWN_LINES = 10
# A model, its gradients, and as much again for activations.
_BYTES_PER_PARAMETER = 12


def measure_figures(plan: Plan) -> tuple[Figures, int]:
    """Return the figures of `plan`'s model on this machine, and how many processes measured them.

    Raises EnvironmentNotFit where the machine cannot: torch or memory is missing, or there are too few devices.
    """
    missing = missing_packages(("torch", "transformers"))
    if missing:
        raise EnvironmentNotFit(
            f"{' and '.join(missing)} not installed, which measure: pip install 'gradwire[native]', or give --figures"
        )
    processes = _processes(plan)
    _check_memory(plan, processes)
    with tempfile.TemporaryDirectory(prefix="gradwire-advise-") as folder:
        plan_file, out, log = Path(folder, "plan.json"), Path(folder, "figures.json"), Path(folder, "log")
        plan_file.write_bytes(msgspec.json.encode(plan))
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        words = [sys.executable, *launcher, "-m", "gradwire.train.figures", str(plan_file), str(out)]
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        ended = run(words, environment=environment, log=log, timeout_seconds=_TIMEOUT_SECONDS)
        if ended.exit_code or ended.timed_out:
            how = f"not done after {_TIMEOUT_SECONDS:g} s" if ended.timed_out else f"exit code {ended.exit_code}"
            shown = "\n".join(f"    {line}" for line in ended.lines[-_SHOWN_LINES:])
            raise EnvironmentNotFit(f"this machine could not measure ({how}); give --figures FILE instead\n{shown}")
        return read_document(out, "figures", Figures), processes


def _processes(plan: Plan) -> int:
    if plan.world.device == "cpu":
        return 2
    devices = probe_machine(os.environ).cuda_devices
    if devices < 2:
        raise EnvironmentNotFit(
            f"the link between 2 CUDA devices cannot be measured here: this machine has {devices}; run it where there "
            "are two, or give --figures FILE (the schema: gradwire schema figures)"
        )
    return min(devices, plan.world.processes_per_node)


def _check_memory(plan: Plan, processes: int) -> None:
    if plan.world.device != "cpu" or plan.model_size is None:
        return
    needed = plan.model_size.parameters * _BYTES_PER_PARAMETER * processes
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        raise EnvironmentNotFit(
            f"{processes} processes with a model of {plan.model_size.parameters:,} parameters need about "
            f"{needed / 2**30:.0f} GiB, and this machine has {present / 2**30:.0f}; measure on a machine of the job, "
            "or give --figures FILE (the schema: gradwire schema figures)"
        )
