"""The dual encoders of CxC: trainable layers on frozen encoders, compared by the dot product (parekh2021cxc, sec. 5.2).

DE_I2T and DE_T2T+I2T have an image side and a text side and differ in the loss only; DE_T2T encodes texts only, with one encoder
for both sides. The losses are in `crossmatch.train.objectives.sampled_softmax`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from crossmatch.data.errors import CrossmatchError
from crossmatch.models.zoo.frozen_text import CachedTexts, FrozenTextReader, TextFeatures
from crossmatch.models.zoo.layers import FEW, LAYERS, SHARE, WIDTH, NetworkConfig, VectorNetwork, masked_mean
from crossmatch.models.zoo.network_inputs import Regions


@dataclass(frozen=True)
class DualEncoderConfig(NetworkConfig):
    """Published sizes: three layers with eight heads, hidden size 3072, 1792 dimensions (as EfficientNet-B4).

    A token has the 384 numbers of MiniLM instead of the 768 of BERT-Base. The paper gives no dropout; BERT's is used.
    The vocabulary is not used, because the frozen text model has its own tokens.
    """

    dimensions: int = field(default=1792, metadata=WIDTH)
    layers: int = field(default=3, metadata=LAYERS)
    heads: int = field(default=8, metadata=FEW)
    hidden: int = field(default=3072, metadata=WIDTH)
    text_dimensions: int = field(default=384, metadata=WIDTH)
    dropout: float = field(default=0.1, metadata=SHARE)
    text_only: bool = False  # DE_T2T: no image side, and no projection

    def __post_init__(self) -> None:
        self.require_multiple("text_dimensions", "heads")


class PostNormLayer(nn.Module):
    """A transformer layer as in BERT: attention, then an MLP, each followed by residual and layer norm.

    Only the outputs of the query tokens are computed, because the last layer needs the first token only.
    """

    def __init__(self, dimensions: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(dimensions, heads, dropout, batch_first=True)
        self.widen, self.narrow = nn.Linear(dimensions, hidden), nn.Linear(hidden, dimensions)
        self.norm_attention, self.norm_hidden = nn.LayerNorm(dimensions), nn.LayerNorm(dimensions)
        self.dropout, self.gelu = nn.Dropout(dropout), nn.GELU()

    def forward(self, queries: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
        """From queries (N, A, D), tokens (N, L, D) and mask (N, L) to (N, A, D)."""
        attended, _ = self.attention(queries, tokens, tokens, key_padding_mask=~mask, need_weights=False)
        hidden = self.norm_attention(queries + self.dropout(attended))
        return self.norm_hidden(hidden + self.dropout(self.narrow(self.gelu(self.widen(hidden)))))  # type: ignore[no-any-return]


class DualEncoder(VectorNetwork):
    """One vector, not normalised, for an image and one for a text.

        text:   frozen token features, trainable transformer layers, the 0th token; then W_t (not in DE_T2T)
        image:  W_i · the mean of the regions' frozen features
        S(x, y) = x · y

    In the paper the image encoder, EfficientNet-B4, is trained too; here its features are frozen and only W_i is trained. Vectors
    are neither normalised nor scaled, because the paper mentions neither; they are evaluated by the dot product.
    """

    compared_by = "dot"

    def __init__(self, config: DualEncoderConfig, tower: FrozenTextReader | None = None) -> None:
        super().__init__()
        self.config, self._tower = config, tower
        self.layers = nn.ModuleList(
            PostNormLayer(config.text_dimensions, config.heads, config.hidden, config.dropout) for _ in range(config.layers)
        )
        self.project: nn.Module = nn.Identity() if config.text_only else nn.Linear(config.text_dimensions, config.dimensions)
        self.image = None if config.text_only else nn.Linear(config.features, config.dimensions)

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that have an encoder."""
        return ("text",) if self.config.text_only else ("image", "text")

    @property
    def tower(self) -> FrozenTextReader:
        """The frozen text model, loaded on first use. It is not part of the network's parameters or state."""
        if self._tower is None:
            self._tower = FrozenTextReader.default()
        if self._tower.tower.dimensions != self.config.text_dimensions:
            raise CrossmatchError(
                f"[model] has text_dimensions = {self.config.text_dimensions}, but the frozen text model gives "
                f"{self._tower.tower.dimensions} numbers per token. Set text_dimensions to that."
            )
        return self._tower

    @property
    def reads(self) -> str:
        """Signature of the frozen text model, a part of the model's signature."""
        return self.tower.tower.signature

    @property
    def longest(self) -> int:
        """Number of tokens that are read of a text."""
        return self.tower.tower.longest

    def read(self, texts: Sequence[str]) -> TextFeatures:
        """Frozen token features of texts."""
        return self.tower.read(texts)

    def read_all(self, texts: Sequence[str]) -> CachedTexts:
        """Frozen token features of all texts of a training, cached on disk."""
        return self.tower.read_all(texts)

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have more tokens than are read."""
        return self.tower.truncated(texts)

    def images(self, regions: Regions) -> Tensor:
        """Vectors (N, D)."""
        if self.image is None:
            raise CrossmatchError("DE_T2T has no image side. Use it for texts only, or train de-i2t or de-t2t-i2t.")
        return self.image(masked_mean(regions.features, regions.mask))  # type: ignore[no-any-return]

    def texts(self, words: TextFeatures) -> Tensor:
        """Vectors (N, D)."""
        tokens = words.features
        for n, layer in enumerate(self.layers, start=1):
            tokens = layer(tokens[:, :1] if n == len(self.layers) else tokens, tokens, words.mask)
        return self.project(tokens[:, 0])  # type: ignore[no-any-return]
