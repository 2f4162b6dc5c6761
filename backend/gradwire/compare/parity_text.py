"""Says a parity in words: one line per backend and quantity, and where each run first differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradwire.documents.parity_schema import Difference, Pairing, Parity, Quantity

_WORDS = {
    "sequences": "sequences",
    "labels": "labels",
    "text": "checksum of the text",
    "learning_rate": "learning rate",
    "loss": "loss",
    "gradient_norm": "gradient norm",
}
_COLUMNS = {
    "batch": ("sequences", "labels", "text"),
    "learning rate": ("learning_rate",),
    "loss": ("loss",),
    "gradient norm": ("gradient_norm",),
}


def parity_rows(parity: Parity) -> list[tuple[str, ...]]:
    """Return the table's rows, headings first: a backend, then what became of each quantity."""
    rows: list[tuple[str, ...]] = [(f"against {parity.reference}", *_COLUMNS)]
    for pairing in parity.comparisons:
        by_name: dict[str, Quantity] = {quantity.name: quantity for quantity in pairing.quantities}
        cells = [_cell([by_name[name] for name in names]) for names in _COLUMNS.values()]
        rows.append((pairing.backend, *cells))
    return rows


def difference_text(pairing: Pairing, reference: str) -> str | None:
    """Return `deepspeed differs from native first in step 3: loss 5.17 against 5.15 (...)`; None where it does not."""
    first = pairing.first_difference
    if first is None:
        return None
    return f"{pairing.backend} differs from {reference} first in step {first.step}: {_values(first)}"


def findings(parity: Parity) -> Iterator[tuple[str, str]]:
    """Yield each first difference in words, and what it points to."""
    for pairing in parity.comparisons:
        text = difference_text(pairing, parity.reference)
        if text is not None:
            yield text, pairing.points_to or ""


def verdict_text(parity: Parity) -> str:
    """Return the verdict as one sentence."""
    compared = [parity.reference, *(pairing.backend for pairing in parity.comparisons)]
    over = f"over {parity.steps} step{'' if parity.steps == 1 else 's'}"
    match parity.verdict:
        case "same":
            return f"the same {over}: {', '.join(compared)}"
        case "differs":
            different = [pairing.backend for pairing in parity.comparisons if not pairing.is_same]
            return f"NOT the same {over}: {', '.join(different)} against {parity.reference}"
        case "incomplete":
            failed = [run.backend for run in parity.runs if run.status == "failed"]
            return f"incomplete: no measurement of {', '.join(failed)}"


def _cell(quantities: Sequence[Quantity]) -> str:
    steps = [quantity.first_difference.step for quantity in quantities if quantity.first_difference]
    if steps:
        return f"DIFFERS at step {min(steps)}"
    if any(quantity.is_same is None for quantity in quantities):
        return "not recorded"
    largest = max(quantity.largest_difference or 0.0 for quantity in quantities)
    return f"within {largest:.0e}" if largest else "equal"


def _values(first: Difference) -> str:
    values = f"{_WORDS[first.quantity]} {_number(first.found)} against {_number(first.reference)}"
    if first.relative_difference is None or not first.tolerance:
        return values
    return f"{values} ({first.relative_difference:.1e} apart, {first.tolerance:.0e} allowed)"


def _number(value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1000 else f"{value:.6g}"
