"""What `gradwire doctor --peak` measures."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'gradwire[native]'")

import torch

from gradwire.documents.peak_schema import MatmulPeak
from gradwire.measure.document import violations
from gradwire.measure.hardware import cpu_name, usable_cpus
from gradwire.train.matmul_peak import fastest_product


def test_the_fastest_of_several_sizes_counts() -> None:
    threads = torch.get_num_threads()
    try:
        rate = fastest_product(torch.device("cpu"), "fp32", 1, (8, 64, 256))
    finally:
        torch.set_num_threads(threads)
    # A product of 8 x 8 matrices is all call: the larger ones are faster by far.
    assert rate.size > 8
    assert (rate.dtype, rate.threads) == ("fp32", 1)
    assert rate.flops_per_second > 1e7


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA: there the cpu is measured")
def test_doctor_writes_a_peak_that_a_run_can_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("peak") / "peak.json"
    ended = subprocess.run(
        [sys.executable, "-m", "gradwire", "doctor", "--peak", "--json", "--out", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"GRADWIRE_PEAK={file}" in ended.stderr
    document = json.loads(ended.stdout)
    assert violations(document, "peak") == []
    assert json.loads(file.read_text()) == document
    peak = msgspec.convert(document, MatmulPeak)
    assert (peak.device, peak.device_name) == ("cpu", cpu_name())
    assert {(rate.dtype, rate.threads) for rate in peak.rates} == {
        (dtype, threads) for dtype in ("fp32", "bf16") for threads in (1, usable_cpus())
    }
