"""`gradwire doctor`: check this machine, or measure its matrix products."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gradwire.cli.options import add_json, file_path
from gradwire.cli.output import note, plain, say, say_json, wrapped
from gradwire.errors import EnvironmentNotFit, UsageError

if TYPE_CHECKING:
    from gradwire.documents.peak_schema import MatmulPeak

DESCRIPTION = """\
Check this machine for what training trips over later: packages and versions,
devices, compilers, build locks left behind, shared memory. Each line is ok,
warn or fail, with the way out; exit code 4 when any is fail.

With --peak, measure the fastest matrix products instead, by data type. Where
the vendor's peak is not known (any cpu, a device that is not in the table), a
run divides by them for its MFU, and says so: GRADWIRE_PEAK=FILE in its
environment. Let nothing else run meanwhile."""
EXAMPLES = """\
  gradwire doctor
  gradwire doctor --full        # also starts torch and asks it for its devices
  gradwire doctor --peak --out peak.json
  GRADWIRE_PEAK=peak.json gradwire launch cpu/ddp --backend native"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--full, --peak and --out."""
    parser.add_argument("--full", action="store_true", help="also start torch, which takes seconds")
    parser.add_argument("--peak", action="store_true", help="measure matrix products instead; takes seconds")
    parser.add_argument("--out", type=file_path, metavar="FILE", help="with --peak: write it to FILE (JSON), for runs")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print every check, or the measured peak; return 0, or 4 when any check failed."""
    if arguments.peak:
        return _run_peak(arguments.out, as_json=arguments.json)
    if arguments.out is not None:
        raise UsageError("--out FILE is where --peak writes; give --peak too")
    from gradwire.launch.health import check_machine

    checks = check_machine(os.environ, full=arguments.full)
    failed = any(check.status == "fail" for check in checks)
    if arguments.json:
        say_json({"ok": not failed, "checks": [plain(check) for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            say(wrapped(check.detail, indent=width + 8, first=f"{check.status:<4}  {check.name:<{width}}  "))
            if check.fix:
                say(wrapped(check.fix, indent=width + 11, first=f"{' ' * (width + 8)}-> "))
    return EnvironmentNotFit.exit_code if failed else 0


def _run_peak(out: Path | None, *, as_json: bool) -> int:
    from gradwire.launch.matmul_peak import measure_matmul_peak
    from gradwire.measure.document import check_target, document_text, write_text

    if out is not None:
        check_target(out, what="a measured peak", suffixes=(".json",), inputs=())
    peak = measure_matmul_peak()
    if out is not None:
        write_text(out, document_text(peak, "peak"))
    if as_json:
        say_json(plain(peak))
    else:
        _say_peak(peak)
    if out is not None:
        note(f"runs use it with GRADWIRE_PEAK={out} in their environment")
    return 0


def _say_peak(peak: MatmulPeak) -> None:
    from gradwire.measure.peaks import peak_flops_per_second

    say(f"{peak.device} {peak.device_name}, torch {peak.torch}: fastest of several square matrix products")
    for rate in peak.rates:
        threads = "" if rate.threads is None else f", {rate.threads} {'thread' if rate.threads == 1 else 'threads'}"
        said = f"  {rate.dtype}  {_flops(rate.flops_per_second):>14}  at {rate.size} x {rate.size}{threads}"
        known = None if peak.device == "cpu" else peak_flops_per_second(peak.device_name, _PRECISIONS[rate.dtype])
        beside = "" if known is None else f"; {rate.flops_per_second / known:.0%} of the vendor's {_flops(known)}"
        say(said + beside)


_PRECISIONS = {"fp32": "fp32", "bf16": "bf16-true", "fp16": "fp16-mixed"}


def _flops(value: float) -> str:
    for unit, size in (("TFLOP/s", 1e12), ("GFLOP/s", 1e9)):
        if value >= size:
            return f"{value / size:,.4g} {unit}"
    return f"{value / 1e6:,.4g} MFLOP/s"
