"""Overrides from the command line: `--set a.b=c` becomes the topmost layer of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradwire.errors import InvalidRecipe, UsageError, Violation
from gradwire.recipe.document import Document
from gradwire.recipe.merge import Layer


@dataclass(frozen=True, kw_only=True, slots=True)
class Override:
    """One value from the command line: `text`, a YAML 1.2 value, for the dotted `path`; `option` gave it."""

    path: str
    text: str
    option: str

    @property
    def source(self) -> str:
        """What a user typed, as messages name it."""
        return f"--set {self.path}={self.text}" if self.option == "--set" else f"{self.option} {self.text}"


def parse_set(argument: str) -> Override:
    """Return the override in the argument of `--set`, `a.b=c`; raises UsageError where it has another form."""
    path, equals, text = argument.partition("=")
    path = path.strip()
    if not equals or not all(path.split(".")) or not path.isprintable():
        shown = argument.encode("ascii", "backslashreplace").decode()
        raise UsageError(f"--set {shown}: write KEY=VALUE, for example --set training.max_steps=50")
    return Override(path=path, text=text, option="--set")


def override_layer(override: Override) -> Layer:
    """Return `override` as a layer; raises InvalidRecipe where its text is not one YAML value."""
    if override.path.split(".")[0] == "extends":
        raise InvalidRecipe(
            [
                Violation(
                    source=override.source,
                    line=None,
                    column=None,
                    path="extends",
                    message="cannot be overridden; name that preset instead, and override single keys",
                )
            ]
        )
    # The YAML parser takes 25 ms to import; a load without overrides, or of TOML, does without.
    from gradwire.recipe.yaml_text import parse_value

    data: Any = parse_value(override.text, source=override.source)
    for key in reversed(override.path.split(".")):
        data = {key: data}
    return Layer(name="command line", document=Document(source=override.source, data=data))
