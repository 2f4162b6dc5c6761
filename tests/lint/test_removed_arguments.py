"""Arguments that the Trainer is said to have no longer, against the installed transformers."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from gradwire.lint.rules.trainer_arguments import REMOVED


def test_the_installed_trainer_lacks_them_and_has_what_took_over() -> None:
    package = find_spec("transformers")
    if package is None or package.origin is None:
        pytest.skip("reads the arguments of the installed transformers")
    tree = ast.parse((Path(package.origin).parent / "training_args.py").read_text(encoding="utf-8"))
    [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "TrainingArguments"]
    known = {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    assert len(known) > 100
    assert not known & REMOVED.keys()
    assert {instead for instead in REMOVED.values() if instead} <= known
