"""What `gradwire parity` found here for a recipe that is being lowered or explained, or how to let it look."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from gradwire.cli.folders import RUNS

if TYPE_CHECKING:
    from gradwire.documents.lowering_schema import ParityCheck, ParityEvidence
    from gradwire.documents.parity_schema import Parity
    from gradwire.documents.plan_schema import Plan
    from gradwire.recipe import LoadedRecipe

_FILES = "parity-*/parity.json"


def parity_check(loaded: LoadedRecipe, plan: Plan, arguments: argparse.Namespace) -> ParityCheck | None:
    """Return the command that compares `plan`'s backend with the others, and what it last found in this folder.

    None for a user's own script, which it does not run, and for several machines.
    """
    from gradwire.documents.lowering_schema import ParityCheck

    if vars(arguments).get("program") is not None or plan.world.num_nodes > 1:
        return None
    reference = PurePath(arguments.recipe)
    words = ["gradwire", "parity", reference.name if reference.is_absolute() else arguments.recipe]
    words += ["--num-gpus", str(plan.world.world_size)]
    words += [word for text in arguments.sets for word in ("--set", text)]
    if arguments.device is not None:
        words += ["--device", arguments.device]
    return ParityCheck(command=words, evidence=_newest_evidence(loaded, plan))


def parity_text(check: ParityCheck) -> str:
    """Return in one sentence what is known, with the command that finds out more."""
    evidence = check.evidence
    if evidence is None:
        return f"not compared with other backends here: `{shlex.join(check.command)}` does"
    if evidence.difference is not None:
        return f"DIFFERS: {evidence.difference} ({evidence.file})"
    others = " and ".join(evidence.others)
    steps = f"{evidence.steps} step{'' if evidence.steps == 1 else 's'}"
    return f"trains the same as {others} over {steps}, learning rates, losses and gradient norms ({evidence.file})"


def _newest_evidence(loaded: LoadedRecipe, plan: Plan) -> ParityEvidence | None:
    from gradwire.plan import recipe_sha256

    sha256 = recipe_sha256(loaded.recipe)
    for file, parity in _parities(RUNS):
        if parity.recipe_sha256 != sha256 or parity.world != plan.world:
            continue
        evidence = _evidence(file, parity, plan.backend)
        if evidence is not None:
            return evidence
    return None


def _parities(folder: Path) -> Iterator[tuple[Path, Parity]]:
    """Yield the documents of earlier comparisons below `folder`, newest first; what cannot be read is none."""
    import msgspec

    from gradwire.documents.parity_schema import Parity

    files = [file for file in folder.glob(_FILES) if file.is_file()]
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        try:
            yield file, msgspec.json.decode(file.read_bytes(), type=Parity)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            continue


def _evidence(file: Path, parity: Parity, backend: str) -> ParityEvidence | None:
    from gradwire.compare.parity_text import difference_text
    from gradwire.documents.lowering_schema import ParityEvidence

    # A run of nearest values is a run of another recipe.
    versions = {run.backend: run.versions for run in parity.runs if run.status == "ok" and not run.is_lossy}
    pairings = [
        pairing
        for pairing in parity.comparisons
        if backend in (pairing.backend, parity.reference) and {pairing.backend, parity.reference} <= versions.keys()
    ]
    if backend not in versions or not pairings:
        return None
    differences = [text for pairing in pairings if (text := difference_text(pairing, parity.reference))]
    others = sorted({name for pairing in pairings for name in (pairing.backend, parity.reference)} - {backend})
    return ParityEvidence(
        file=file.as_posix(),
        is_same=not differences,
        others=[name for name in versions if name in others],
        steps=parity.steps,
        versions=dict(versions[backend]),
        difference="; ".join(differences) or None,
    )
