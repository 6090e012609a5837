"""SCAN: every word attends to the regions of an image (t2i), or every region to the words of a text (i2t), and is compared with
what it attended to. `cross_attention.py` has the equations; here are the vectors of regions and words. lee2018scan.

Temperatures: λ₁ is 9 in t2i and 4 in i2t in the published settings for COCO (released code of lee2018scan). hu2019bison, app. D.3,
takes 9 and 6; jiang2019tiger the released code's defaults, t2i with λ₁ = 9 and lse with λ₂ = 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.cross_attention import BLOCK, Attention, grounded, paired, similarity
from crossmatch.models.zoo.inputs import Regions, Words
from crossmatch.models.zoo.parts import BiGRU, WordVectors, unit
from crossmatch.models.zoo.sizes import SHARE, WIDTH

try:
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


@dataclass(frozen=True)
class SCANConfig:
    """The published sizes: 1024 dimensions, word vectors of 300. `Attention` says what the first five are."""

    features: int  # numbers of a region
    words: int  # how many words there are
    direction: Literal["t2i", "i2t"] = "t2i"
    aggregation: Literal["mean", "sum", "max", "lse"] = "mean"
    temperature: float = field(default=9.0, metadata={"least": 0})
    sharpness: float = field(default=6.0, metadata={"above": 0})
    leak: float = field(default=0.0, metadata=SHARE)  # 0: as in the paper; 0.1: as in the released code
    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    block: int = field(default=BLOCK, metadata={"least": 1})  # bytes of dot products at once

    def attention(self) -> Attention:
        return Attention(self.direction, self.aggregation, self.temperature, self.sharpness, self.leak)


class Parts(NamedTuple):
    """Unit vectors (N, K, D) of the regions of images, or of the words of texts, and which of them are there (N, K)."""

    vectors: Tensor
    real: Tensor


class SCAN(nn.Module):
    """Regions and words as unit vectors in one space.

    region:  a linear map of its features (lee2018scan, sec. 3.3)
    word:    a bidirectional GRU over the text, the mean of both directions (sec. 3.4)
    """

    def __init__(self, config: SCANConfig) -> None:
        super().__init__()
        self.config, self.attention = config, config.attention()
        self.image = nn.Linear(config.features, config.dimensions)
        nn.init.xavier_uniform_(self.image.weight)
        nn.init.zeros_(self.image.bias)
        self.word_vectors = WordVectors(config.words, config.word_dimensions)
        self.text = BiGRU(config.word_dimensions, config.dimensions)

    def images(self, regions: Regions) -> Parts:
        """Their regions as unit vectors."""
        return Parts(unit(self.image(regions.features)) * regions.real.unsqueeze(2), regions.real)

    def texts(self, words: Words) -> Parts:
        """Their words as unit vectors; beginning and end are words like any other, as in the released code."""
        return Parts(unit(self.text(self.word_vectors(words), words.real)), words.real)

    def similarity(self, images: Parts, texts: Parts) -> Tensor:
        """Every image with every text: (I, T)."""
        return similarity(*images, *texts, self.attention, block=self.config.block)

    def paired(self, images: Parts, texts: Parts) -> Tensor:
        """Image n with text n: (N,)."""
        return paired(*images, *texts, self.attention)

    def grounded(self, images: Parts, texts: Parts) -> Tensor:
        """How much text n is grounded in each region of image n: (N, K), for TIGEr.

        The cosine of each region with the words that it attends to (jiang2019tiger, eq. 1 to 6), with the λ₁ of this model. A model
        with t2i attention is asked the same of its vectors: TIGEr wants a number for each region, and t2i has one for each word.
        """
        return grounded(*images, *texts, self.attention)
