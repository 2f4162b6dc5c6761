"""Counts a model's parameters and lists its weight matrices from its configuration alone."""

from __future__ import annotations

from gradwire.documents.recipe_schema import Model


def parameter_count(model: Model) -> int:
    """Return how many parameters transformers' GPT-2 or Llama of this configuration has."""
    vectors = {
        # Two RMSNorms a block, one at the end.
        "llama": (2 * model.layers + 1) * model.hidden_size,
        # Two LayerNorms and the four biases a block, one LayerNorm at the end.
        "gpt2": model.layers * (9 * model.hidden_size + inner_size(model)) + 2 * model.hidden_size,
    }
    return (
        sum(rows * columns * count for (rows, columns), count in weight_matrices(model).items()) + vectors[model.family]
    )


def weight_matrices(model: Model) -> dict[tuple[int, int], int]:
    """Return (rows, columns) of every weight matrix of `model`, each with how often it occurs."""
    width, inner, layers = model.hidden_size, inner_size(model), model.layers
    matrices: dict[tuple[int, int], int] = {}

    def add(rows: int, columns: int, count: int) -> None:
        matrices[rows, columns] = matrices.get((rows, columns), 0) + count

    add(model.vocab_size, width, 1 if model.tie_embeddings else 2)
    match model.family:
        case "llama":
            key_value_width = (model.key_value_heads or model.attention_heads) * (width // model.attention_heads)
            add(width, width, 2 * layers)
            add(key_value_width, width, 2 * layers)
            add(inner, width, 2 * layers)
            add(width, inner, layers)
        case "gpt2":
            add(model.sequence_length, width, 1)
            add(width, 3 * width, layers)
            add(width, width, layers)
            add(width, inner, layers)
            add(inner, width, layers)
    return matrices


def inner_size(model: Model) -> int:
    """Return the width of the feed-forward layer."""
    return model.intermediate_size or 4 * model.hidden_size


def compresses_any(model: Model, rank: int, min_compression_rate: float) -> bool:
    """Say whether PowerSGD at `rank` shrinks some gradient of `model`.

    A matrix is sent as factors where (rows + columns) x rank x min_compression_rate < rows x columns, in torch's hook
    (torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook, `_should_compress`) as in Gradwire's own methods.
    """
    return any(
        (rows + columns) * rank * min_compression_rate < rows * columns for rows, columns in weight_matrices(model)
    )
