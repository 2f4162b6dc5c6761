"""Counts a model's parameters and lists its weight matrices from its configuration alone."""

from __future__ import annotations

from collections import Counter

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
    tables = Counter({(model.vocab_size, model.hidden_size): 1 if model.tie_embeddings else 2})
    if model.family == "gpt2":
        tables[model.sequence_length, model.hidden_size] += 1
    blocks = {shape: count * model.layers for shape, count in _block_matrices(model).items()}
    return dict(tables + Counter(blocks))


def _block_matrices(model: Model) -> Counter[tuple[int, int]]:
    """Return (rows, columns) of every weight matrix of one transformer block, each with how often it occurs."""
    width, inner = model.hidden_size, inner_size(model)
    match model.family:
        case "llama":
            key_value_width = (model.key_value_heads or model.attention_heads) * (width // model.attention_heads)
            shapes = [(width, width)] * 2 + [(key_value_width, width)] * 2 + [(inner, width)] * 2 + [(width, inner)]
        case "gpt2":
            shapes = [(width, 3 * width), (width, width), (width, inner), (inner, width)]
    return Counter(shapes)


def layers_per_stage(model: Model, stages: int) -> list[int]:
    """Return how many transformer blocks each of `stages` stages holds, first to last, at least one each.

    Counted by matrix products: a block costs 2 FLOPs per weight and token and 4 x hidden_size x sequence_length for the
    two attention products; the last stage has the output projection besides, 2 x vocab_size x hidden_size. The
    costliest stage costs as little as it can; of two such splits the more even one is taken. Blocks that do not divide
    go to the later stages, which hold fewer chunks at a time.
    """
    width = model.hidden_size
    per_token = 2 * sum(rows * columns * count for (rows, columns), count in _block_matrices(model).items())
    block = per_token + 4 * width * model.sequence_length
    projection = 2 * model.vocab_size * width

    def costliest(last: int) -> int:
        others = -(-(model.layers - last) // (stages - 1))
        return max(others * block, last * block + projection)

    # Beyond an even share the last stage only gets costlier; among equals the largest is the most even.
    share = max(1, model.layers // stages)
    last = min(range(share, 0, -1), key=costliest)
    before, rest = divmod(model.layers - last, stages - 1)
    return [before + (index >= stages - 1 - rest) for index in range(stages - 1)] + [last]


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
