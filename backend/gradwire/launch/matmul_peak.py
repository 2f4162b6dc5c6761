"""Has torch measure its fastest matrix products, in a process of its own, and returns what they were."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from gradwire.documents.peak_schema import MatmulPeak
from gradwire.errors import EnvironmentNotFit
from gradwire.launch.probe import missing_packages

_TIMEOUT_SECONDS = 300.0


def measure_matmul_peak() -> MatmulPeak:
    """Return this machine's measured peak; raises EnvironmentNotFit where torch is missing or does not finish."""
    if missing_packages(("torch",)):
        raise EnvironmentNotFit("torch is not installed, and measures the peak: pip install 'gradwire[native]'")
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "gradwire.train.matmul_peak"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentNotFit(f"the matrix products did not finish in {_TIMEOUT_SECONDS:g} s") from None
    try:
        return msgspec.json.decode(ended.stdout, type=MatmulPeak)
    except msgspec.DecodeError:
        said = ended.stderr.strip().splitlines()
        raise EnvironmentNotFit(
            f"torch could not multiply on this machine (exit code {ended.returncode}): "
            + (said[-1] if said else "it said nothing")
        ) from None
