"""The dual encoders of CxC: frozen pretrained towers with trainable layers, compared by the dot product (parekh2021cxc, sec. 5.2).

DE_I2T and DE_T2T+I2T have an image side and a text side and differ in their loss alone; DE_T2T has texts only, both sides of which
share one encoder. The losses are in `crossmatch.train.objectives.dual_encoder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models.zoo.frozen_text import FrozenText, TextFeatures, TextRows
from crossmatch.models.zoo.inputs import Regions
from crossmatch.models.zoo.parts import mean_over
from crossmatch.models.zoo.sizes import FEW, LAYERS, SHARE, WIDTH

try:
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


@dataclass(frozen=True)
class DualEncoderConfig:
    """The published sizes: three layers of eight heads, 3072 hidden numbers, 1792 dimensions (those of EfficientNet-B4).

    A token has the 384 numbers of MiniLM instead of the 768 of BERT-Base. The paper names no dropout: it is BERT's.
    """

    features: int  # numbers of a region
    words: int  # not used: the frozen tower has tokens of its own
    dimensions: int = field(default=1792, metadata=WIDTH)
    layers: int = field(default=3, metadata=LAYERS)
    heads: int = field(default=8, metadata=FEW)
    hidden: int = field(default=3072, metadata=WIDTH)
    text_dimensions: int = field(default=384, metadata=WIDTH)
    dropout: float = field(default=0.1, metadata=SHARE)
    text_only: bool = False  # DE_T2T: no image side, and no projection

    def __post_init__(self) -> None:
        if self.text_dimensions % self.heads:
            raise WrongWords(
                f"{self.heads} heads cannot share {self.text_dimensions} numbers (text_dimensions) evenly. Set heads in the "
                "recipe's [model] to a divisor."
            )


class Layer(nn.Module):
    """A transformer layer as in BERT: attention, then a hidden layer, each with residual and layer norm after it.

    `asking` are the tokens that are wanted of it; above the last layer only the first is looked at, so only that is computed.
    """

    def __init__(self, dimensions: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(dimensions, heads, dropout, batch_first=True)
        self.widen, self.narrow = nn.Linear(dimensions, hidden), nn.Linear(hidden, dimensions)
        self.norm_attention, self.norm_hidden = nn.LayerNorm(dimensions), nn.LayerNorm(dimensions)
        self.dropout, self.gelu = nn.Dropout(dropout), nn.GELU()

    def forward(self, asking: Tensor, tokens: Tensor, real: Tensor) -> Tensor:
        """From (N, A, D), which ask, and (N, L, D), which answer, to (N, A, D)."""
        answered, _ = self.attention(asking, tokens, tokens, key_padding_mask=~real, need_weights=False)
        seen = self.norm_attention(asking + self.dropout(answered))
        return self.norm_hidden(seen + self.dropout(self.narrow(self.gelu(self.widen(seen)))))  # type: ignore[no-any-return]


class DualEncoder(nn.Module):
    """An image and a text as one vector each, of any length.

        text:   the frozen tower's token features, trainable transformer layers, the 0th token; then W_t (not in DE_T2T)
        image:  W_i · the mean of the regions' frozen features
        S(x, y) = x · y

    In the paper the image encoder, EfficientNet-B4, is trained with the rest; here its features are frozen, and W_i takes its part.
    Vectors are neither normalised nor scaled, since the paper speaks of neither: evaluate them by the dot product.
    """

    embeds = True
    compared_by = "dot"

    def __init__(self, config: DualEncoderConfig, tower: FrozenText | None = None) -> None:
        super().__init__()
        self.config, self._tower = config, tower
        self.layers = nn.ModuleList(
            Layer(config.text_dimensions, config.heads, config.hidden, config.dropout) for _ in range(config.layers)
        )
        self.project: nn.Module = nn.Identity() if config.text_only else nn.Linear(config.text_dimensions, config.dimensions)
        self.image = None if config.text_only else nn.Linear(config.features, config.dimensions)

    @property
    def sides(self) -> tuple[str, ...]:
        """What it has a vector for."""
        return ("text",) if self.config.text_only else ("image", "text")

    @property
    def tower(self) -> FrozenText:
        """The frozen part, which is loaded when the first text is read; no part of the network's parameters or of its state."""
        if self._tower is None:
            self._tower = FrozenText.standard()
        if self._tower.tower.dimensions != self.config.text_dimensions:
            raise CrossmatchError(
                f"the text tower gives {self._tower.tower.dimensions} numbers for each token, the network takes "
                f"{self.config.text_dimensions}. Set text_dimensions in the recipe's [model] to the first."
            )
        return self._tower

    @property
    def reads(self) -> str:
        """The frozen tower's signature, which belongs to that of the model."""
        return self.tower.tower.signature

    @property
    def longest(self) -> int:
        """Tokens of a text that are read."""
        return self.tower.tower.longest

    def read(self, texts: Sequence[str]) -> TextFeatures:
        """Texts as the frozen tower sees them."""
        return self.tower.read(texts)

    def read_all(self, texts: Sequence[str]) -> TextRows:
        """The same for all texts of a training, kept on disk."""
        return self.tower.read_all(texts)

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have more tokens than are read."""
        return self.tower.truncated(texts)

    def images(self, regions: Regions) -> Tensor:
        """Vectors (N, D)."""
        if self.image is None:
            raise CrossmatchError("DE_T2T has no image side. Give it texts, or train de-i2t or de-t2t-i2t.")
        return self.image(mean_over(regions.features, regions.real))  # type: ignore[no-any-return]

    def texts(self, words: TextFeatures) -> Tensor:
        """Vectors (N, D)."""
        tokens = words.features
        for n, layer in enumerate(self.layers, start=1):
            tokens = layer(tokens[:, :1] if n == len(self.layers) else tokens, tokens, words.real)
        return self.project(tokens[:, 0])  # type: ignore[no-any-return]

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """The dot product of each image with each text, or of each text with each text: (I, T)."""
        return images @ texts.T
