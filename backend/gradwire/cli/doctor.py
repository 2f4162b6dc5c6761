"""`gradwire doctor`: check this machine."""

from __future__ import annotations

import argparse
import os

from gradwire.cli.options import add_json
from gradwire.cli.output import plain, say, say_json, wrapped
from gradwire.errors import EnvironmentNotFit

DESCRIPTION = """\
Check this machine for what training trips over later: packages and versions,
devices, compilers, build locks left behind, shared memory. Each line is ok,
warn or fail, with the way out; exit code 4 when any is fail."""
EXAMPLES = """\
  gradwire doctor
  gradwire doctor --full        # also starts torch and asks it for its devices"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--full."""
    parser.add_argument("--full", action="store_true", help="also start torch, which takes seconds")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print every check; return 0, or 4 when any failed."""
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
