"""The polysemous instance embedding: what several looks at the parts of an item add to a look at the whole."""

from __future__ import annotations

from typing import NamedTuple

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.parts import unit

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


class Senses(NamedTuple):
    """K readings of each of N items."""

    embedded: Tensor  # (N, K, D), each of length 1
    guided: Tensor  # (N, K, D): what the parts added, before it was added


class Attention(nn.Module):
    """K ways to weigh the parts of an item, by its parts alone.

        A = softmax(w₂ tanh(w₁ Ψᵀ)),    AΨ                                                     lin2017structured, eq. 5 and 6

    Ψ are the L parts, w₁ has half as many rows as a part has numbers (song2019pvse, as in the released code), w₂ has K.
    Absent parts have no weight; an item without parts gets 0.
    """

    def __init__(self, heads: int, inputs: int) -> None:
        super().__init__()
        hidden = max(1, inputs // 2)
        self.w1, self.w2 = nn.Linear(inputs, hidden, bias=False), nn.Linear(hidden, heads, bias=False)
        nn.init.xavier_uniform_(self.w1.weight)
        nn.init.xavier_uniform_(self.w2.weight)

    def forward(self, parts: Tensor, real: Tensor) -> Tensor:
        """From (N, L, inputs) and which of them are real, (N, L), to (N, K, inputs)."""
        found = self.w2(torch.tanh(self.w1(parts))).transpose(1, 2)
        absent = ~real.unsqueeze(1)
        # finite, so that an item without parts gives no NaN, and its gradient neither
        weight = found.masked_fill(absent, torch.finfo(found.dtype).min).softmax(dim=2).masked_fill(absent, 0.0)
        return weight @ parts  # type: ignore[no-any-return]


class PIE(nn.Module):
    """K embeddings of an item from its whole and its parts.

        Υ = sigmoid(w₃ AΨ + b₃)              the locally guided features, A by `Attention`
        z = LayerNorm(φ + Υ) / ‖·‖           φ is the feature of the whole, the same for all K

    Source: song2019pvse, sec. 3, and the released code, from which the length of 1 is taken.
    """

    def __init__(self, embeddings: int, inputs: int, dimensions: int) -> None:
        super().__init__()
        self.attention = Attention(embeddings, inputs)
        self.guide = nn.Linear(inputs, dimensions)
        self.norm = nn.LayerNorm(dimensions)
        nn.init.xavier_uniform_(self.guide.weight)
        nn.init.zeros_(self.guide.bias)

    def forward(self, whole: Tensor, parts: Tensor, real: Tensor) -> Senses:
        """From the whole (N, D), the parts (N, L, inputs) and which of them are real."""
        guided = torch.sigmoid(self.guide(self.attention(parts, real)))
        return Senses(unit(self.norm(whole.unsqueeze(1) + guided)), guided)
