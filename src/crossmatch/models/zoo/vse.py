"""VSE: an image and a text as one vector each, compared by their cosine. The losses make VSE0, VSE++ and semi-hard of it.

    s(i, c) = f(φ(i), W_f, θ_φ) · g(ψ(c), W_g, θ_ψ)              faghri2018vse, eq. 1 to 3; both vectors have length 1

ConvNet+BoW, ConvNet+Bi-GRU and Obj+Bi-GRU differ in how regions and words become one vector (hu2019bison, app. D.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.inputs import Regions, Words
from crossmatch.models.zoo.parts import BiGRU, WordVectors, mean_over, unit

try:
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


@dataclass(frozen=True)
class VSEConfig:
    """The published sizes: 1024 dimensions, hidden layers of 2048, word vectors of 300."""

    features: int  # numbers of a region
    words: int  # how many words there are
    image: Literal["linear", "mlp", "gru"] = "linear"
    text: Literal["gru", "bow"] = "gru"
    dimensions: int = 1024
    hidden: int = 2048
    word_dimensions: int = 300


def _mlp(inputs: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, out))


class VSE(nn.Module):
    """Images and texts as unit vectors.

    image:  the mean of the regions through a linear map (faghri2018vse, sec. 3.1) or an MLP (ConvNet), or a bidirectional GRU over
            the regions in their order (Obj)
    text:   a bidirectional GRU over the words (Bi-GRU), or the mean of their vectors through an MLP (BoW)
    """

    embeds = True

    def __init__(self, config: VSEConfig) -> None:
        super().__init__()
        self.config = config
        self.word_vectors = WordVectors(config.words, config.word_dimensions)
        towers: dict[str, Callable[[], nn.Module]] = {
            "linear": lambda: nn.Linear(config.features, config.dimensions),
            "mlp": lambda: _mlp(config.features, config.hidden, config.dimensions),
            "gru": lambda: BiGRU(config.features, config.dimensions),
        }
        self.image = towers[config.image]()
        self.text: nn.Module = (
            BiGRU(config.word_dimensions, config.dimensions)
            if config.text == "gru"
            else _mlp(config.word_dimensions, config.hidden, config.dimensions)
        )

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, D)."""
        if isinstance(self.image, BiGRU):
            return unit(self.image.ends(regions.features, regions.real))
        return unit(self.image(mean_over(regions.features, regions.real)))

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, D)."""
        vectors = self.word_vectors(words)
        if isinstance(self.text, BiGRU):
            return unit(self.text.ends(vectors, words.real))
        return unit(self.text(mean_over(vectors, words.real)))

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine of each image with each text: (I, T)."""
        return images @ texts.T
