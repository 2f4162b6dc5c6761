"""Every error a user can cause; each class has one exit code, and only `cli.main` turns one into an exit."""

from __future__ import annotations

from dataclasses import dataclass


class GradwireError(Exception):
    """A mistake or a failure that a person can act on; its text is the whole message.

    `exit_code` is what the command line ends with.
    """

    exit_code = 1


class RunFailed(GradwireError):
    """A launched run ended badly: a worker was killed, the loss is not finite, a child exited non-zero."""

    exit_code = 1


class UsageError(GradwireError):
    """The command line, a path or a document cannot be used as given."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One thing wrong with a recipe: where, what, and the way out.

    `path` is the dotted path in the recipe; `line` and `column` count from 1 and are None where the value
    came from a default or the command line, which `source` then names.
    """

    source: str
    line: int | None
    column: int | None
    path: str
    message: str
    url: str | None = None

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}:{self.column}"
        subject = f"{place} {self.path}" if self.path else place
        link = f" (see {self.url})" if self.url else ""
        return f"{subject}: {self.message}{link}"


class InvalidRecipe(UsageError):
    """A recipe breaks its schema or a cross-field rule; carries every violation, in file order."""

    def __init__(self, violations: list[Violation]) -> None:
        self.violations = violations
        super().__init__("\n".join(str(violation) for violation in violations))


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedField:
    """One recipe field that a backend cannot express: its value as text, the limit, and the nearest thing it can do."""

    path: str
    value: str
    limit: str
    nearest: str


class CannotLower(GradwireError):
    """A backend cannot express the recipe without loss; carries every refused field."""

    exit_code = 3

    def __init__(self, *, recipe_name: str, backend: str, refused: list[RefusedField]) -> None:
        self.refused = refused
        lines = [f"{recipe_name}: {backend} cannot express it without loss"]
        lines += [f"  {field.path}: {field.value}: {field.limit}; nearest: {field.nearest}" for field in refused]
        lines.append("Change the recipe, take another backend, or accept the nearest values with --allow-lossy.")
        super().__init__("\n".join(lines))


class CannotImport(GradwireError):
    """A recipe cannot say all that a configuration does; carries one text for every refused key."""

    exit_code = 3

    def __init__(self, refused: list[str]) -> None:
        self.refused_keys = refused
        lines = ["a recipe cannot say all of this configuration"]
        lines += [f"  {each}" for each in refused]
        lines.append("Change these keys, or leave them out of the recipe with --allow-lossy.")
        super().__init__("\n".join(lines))


class EnvironmentNotFit(GradwireError):
    """This machine cannot run it: a missing package or device, a taken port, another world size than the plan's."""

    exit_code = 4


class ThresholdNotMet(GradwireError):
    """A measured value is below what was asked for."""

    exit_code = 5
