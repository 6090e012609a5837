"""VSE: an image and a text as one vector each, compared by their cosine. The losses make VSE0, VSE++ and semi-hard of it.

    s(i, c) = f(φ(i), W_f, θ_φ) · g(ψ(c), W_g, θ_ψ)              faghri2018vse, eq. 1 to 3; both vectors have length 1

ConvNet+BoW, ConvNet+Bi-GRU and Obj+Bi-GRU differ in how regions and words become one vector (hu2019bison, app. D.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.inputs import Regions, Words
from crossmatch.models.zoo.parts import BiGRU, WordVectors, last_of, mean_over, unit
from crossmatch.models.zoo.sizes import WIDTH

try:
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


@dataclass(frozen=True)
class VSEConfig:
    """The published sizes: 1024 dimensions, hidden layers of 2048, word vectors of 300."""

    features: int  # numbers of a region
    words: int  # how many words there are
    image: Literal["linear", "mlp", "bigru"] = "linear"
    text: Literal["gru", "bigru", "bow"] = "gru"
    dimensions: int = field(default=1024, metadata=WIDTH)
    hidden: int = field(default=2048, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)


def _mlp(inputs: int, hidden: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, out))


TOWERS: dict[str, Callable[[int, int, int], nn.Module]] = {  # from so many numbers, by way of a hidden layer, to so many
    "linear": lambda inputs, hidden, out: nn.Linear(inputs, out),
    "mlp": _mlp,
    "bow": _mlp,
    "gru": lambda inputs, hidden, out: nn.GRU(inputs, out, batch_first=True),
    "bigru": lambda inputs, hidden, out: BiGRU(inputs, out),
}


def _pooled(tower: nn.Module, vectors: Tensor, real: Tensor) -> Tensor:
    """A set or sequence of vectors (N, L, D) as one vector each: where a GRU ended, or what a map makes of their mean."""
    if isinstance(tower, BiGRU):
        return tower.ends(vectors, real)
    if isinstance(tower, nn.GRU):
        return last_of(tower, vectors, real)[1]
    return tower(mean_over(vectors, real))  # type: ignore[no-any-return]


class VSE(nn.Module):
    """Images and texts as unit vectors.

    image:  the mean of the regions through a linear map (faghri2018vse, sec. 3.1) or an MLP (ConvNet), or a bidirectional GRU over
            the regions in their order (Obj)
    text:   a GRU over the words (faghri2018vse), a bidirectional one (Bi-GRU), or the mean of their vectors through an MLP (BoW)
    """

    embeds = True

    def __init__(self, config: VSEConfig) -> None:
        super().__init__()
        self.config = config
        self.word_vectors = WordVectors(config.words, config.word_dimensions)
        self.image = TOWERS[config.image](config.features, config.hidden, config.dimensions)
        self.text = TOWERS[config.text](config.word_dimensions, config.hidden, config.dimensions)

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, D)."""
        return unit(_pooled(self.image, regions.features, regions.real))

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, D)."""
        return unit(_pooled(self.text, self.word_vectors(words), words.real))

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine of each image with each text: (I, T)."""
        return images @ texts.T
