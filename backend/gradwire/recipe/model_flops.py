"""Counts the FLOPs that training a transformer takes per token, by a formula that is stated."""

from __future__ import annotations

from gradwire.errors import UsageError


def model_flops_per_token(
    parameters: int,
    *,
    layers: int,
    hidden_size: int,
    sequence_length: int,
    embedding_parameters: int = 0,
    causal: bool = False,
) -> int:
    """Return 6 (N - E) + 12 L h s: forward and backward pass, in floating-point operations per token.

    N are all `parameters`, E those of embedding tables that take part in no matrix product (a table that the output
    projection shares does). The two attention products take 12 L h s (PaLM, arXiv:2204.02311, appendix B), half of it
    where `causal` counts what a causal mask leaves: say which, since at long sequences the two differ by a lot. Sum
    over heads: h is heads x head size. What gradient checkpointing recomputes is not counted.

    Raises UsageError for a count below 0, and for more embedding parameters than parameters.
    """
    counts = {
        "parameters": parameters,
        "layers": layers,
        "hidden_size": hidden_size,
        "sequence_length": sequence_length,
        "embedding_parameters": embedding_parameters,
    }
    wrong = [f"{name} is {value}, below 0" for name, value in counts.items() if value < 0]
    if embedding_parameters > parameters:
        wrong.append(f"embedding_parameters are {embedding_parameters}, more than all {parameters} parameters")
    if wrong:
        raise UsageError("; ".join(wrong))
    attention = (6 if causal else 12) * layers * hidden_size * sequence_length
    return 6 * (parameters - embedding_parameters) + attention


def flops_formula(
    parameters: int, *, layers: int, hidden_size: int, sequence_length: str, embedding_parameters: int
) -> str:
    """Return how `model_flops_per_token` counts, with the numbers; `sequence_length` as it is shown."""
    return (
        f"6 N + 12 L h s: N {parameters - embedding_parameters:,} parameters in matrix products, embedding tables of "
        f"{embedding_parameters:,} left out; L {layers}, h {hidden_size}, s {sequence_length}; attention whole, not "
        "halved for causality; recomputation not counted"
    )
