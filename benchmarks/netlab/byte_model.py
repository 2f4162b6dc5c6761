"""A small byte-level transformer and the text it learns: Python's own standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn

VOCABULARY = 256


class ByteModel(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """A causal transformer over bytes: [batch, length] integers in, mean cross-entropy of the next byte (nats) out."""

    def __init__(self, *, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)
        nn.init.normal_(self.embedding.weight, std=0.5)

    def forward(self, windows: Tensor) -> Tensor:
        """Return the loss of predicting `windows[:, 1:]` from `windows[:, :-1]`."""
        inputs, targets = windows[:, :-1], windows[:, 1:]
        hidden = self.body(self.embedding(inputs) + self.position, mask=self.mask, is_causal=True)
        logits = self.head(self.norm(hidden))
        return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def standard_library_text() -> tuple[Tensor, Tensor]:
    """Return (training, held-out) bytes as uint8: the top-level modules in alphabetical order, every tenth held out."""
    folder = Path(sysconfig.get_path("stdlib"))
    modules = sorted(path for path in folder.glob("*.py") if path.is_file())
    return _joined(modules, held_out=False), _joined(modules, held_out=True)


def random_windows(text: Tensor, *, batch: int, length: int, generator: torch.Generator) -> Tensor:
    """Return [batch, length + 1] integers: windows of `text` at places drawn from `generator`."""
    starts = torch.randint(len(text) - length - 1, (batch,), generator=generator)
    return torch.stack([text[start : start + length + 1] for start in starts.tolist()]).long()


def _joined(modules: list[Path], *, held_out: bool) -> Tensor:
    chosen = [path for number, path in enumerate(modules) if (number % 10 == 9) == held_out]
    return torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in chosen)), dtype=torch.uint8)
