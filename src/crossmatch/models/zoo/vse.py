"""VSE: one vector for an image and one for a text, compared by the cosine. VSE0, VSE++ and semi-hard differ in the loss.

    s(i, c) = f(φ(i), W_f, θ_φ) · g(ψ(c), W_g, θ_ψ)              faghri2018vse, eq. 1 to 3; both vectors have length 1

ConvNet+BoW, ConvNet+Bi-GRU and Obj+Bi-GRU differ in how regions and words become one vector (hu2019bison, app. D.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor, nn

from crossmatch.models.zoo.layers import (
    WIDTH,
    BiGRU,
    NetworkConfig,
    VectorNetwork,
    WordVectors,
    gru_outputs_and_last,
    masked_mean,
    normalize,
)
from crossmatch.models.zoo.network_inputs import Regions, Words


@dataclass(frozen=True)
class VSEConfig(NetworkConfig):
    """Published sizes: 1024 dimensions, hidden layers of 2048, word vectors of 300."""

    image: Literal["linear", "mlp", "bigru"] = "linear"
    text: Literal["gru", "bigru", "bow"] = "gru"
    dimensions: int = field(default=1024, metadata=WIDTH)
    hidden: int = field(default=2048, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)


def _mlp(inputs: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, out))


ENCODERS: dict[str, Callable[[int, int, int], nn.Module]] = {  # by name: (inputs, hidden, out) to a module
    "linear": lambda inputs, hidden, out: nn.Linear(inputs, out),
    "mlp": _mlp,
    "bow": _mlp,
    "gru": lambda inputs, hidden, out: nn.GRU(inputs, out, batch_first=True),
    "bigru": lambda inputs, hidden, out: BiGRU(inputs, out),
}


def _pool(encoder: nn.Module, vectors: Tensor, mask: Tensor) -> Tensor:
    """One vector for each set or sequence (N, L, D): the last output of a GRU, or a map of the mean."""
    if isinstance(encoder, BiGRU):
        return encoder.final_output(vectors, mask)
    if isinstance(encoder, nn.GRU):
        return gru_outputs_and_last(encoder, vectors, mask)[1]
    return encoder(masked_mean(vectors, mask))  # type: ignore[no-any-return]


class VSE(VectorNetwork):
    """Images and texts as unit vectors.

    image:  the mean of the regions through a linear map (faghri2018vse, sec. 3.1) or an MLP (ConvNet), or a bidirectional GRU over
            the regions in their order (Obj)
    text:   a GRU over the words (faghri2018vse), a bidirectional one (Bi-GRU), or the mean of their vectors through an MLP (BoW)
    """

    def __init__(self, config: VSEConfig) -> None:
        super().__init__()
        self.config = config
        self.word_vectors = WordVectors(config.words, config.word_dimensions)
        self.image = ENCODERS[config.image](config.features, config.hidden, config.dimensions)
        self.text = ENCODERS[config.text](config.word_dimensions, config.hidden, config.dimensions)

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, D)."""
        return normalize(_pool(self.image, regions.features, regions.mask))

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, D)."""
        return normalize(_pool(self.text, self.word_vectors(words), words.mask))
