"""Says which program a launcher starts: `gradwire.train` on the plan, or the user's own script."""

from __future__ import annotations

from gradwire.artifact import PLAN_FILE, OutFile, Word
from gradwire.errors import UsageError
from gradwire.lowering.fields import Outcome, emulated, exact

TRAINER = "gradwire.train"


def program_words(program: tuple[str, ...] | None, module_flag: str) -> tuple[Word, ...]:
    """Return the last words of a launch command; `module_flag` is the launcher's spelling of python's -m.

    Raises UsageError where `program` names no script.
    """
    if program is None:
        return (module_flag, TRAINER, OutFile(name=PLAN_FILE))
    if not program:
        raise UsageError("after -- a script is expected, such as -- train.py --epochs 1")
    if program[0] == "-m" and len(program) > 1:
        return (module_flag, *program[1:])
    if program[0].startswith("-"):
        raise UsageError(f"after -- a script is expected, not the option {program[0]!r}")
    return program


def in_program(program: tuple[str, ...] | None, *, helper: str | None = None) -> Outcome:
    """Return the outcome of a field that only the program can honour.

    `helper` names the call that hands the value to a user's own script, where there is one.
    """
    if program is None:
        return exact(TRAINER)
    script = program[1] if program[0] == "-m" and len(program) > 1 else program[0]
    if helper is not None:
        return emulated(helper, f"reaches {script} only when it calls {helper}")
    return emulated(script, f"{script} must do this itself; plan.json has the value")
