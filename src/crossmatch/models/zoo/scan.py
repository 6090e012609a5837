"""SCAN: words attend to regions (t2i), or regions to words (i2t), and are compared with the attended vectors (lee2018scan).

`cross_attention.py` contains the equations; this module computes the vectors of regions and words.

Temperatures: the published settings for COCO have λ₁ = 9 in t2i and 4 in i2t (released code of lee2018scan). hu2019bison, app. D.3,
uses 9 and 6; jiang2019tiger uses the released code's defaults, t2i with λ₁ = 9 and lse with λ₂ = 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn

from crossmatch.models.zoo.cross_attention import BLOCK, AttentionOptions, pair_similarity, region_grounding, similarity
from crossmatch.models.zoo.layers import WIDTH, BiGRU, NetworkConfig, WordVectors, normalize
from crossmatch.models.zoo.network_inputs import Regions, Words


@dataclass(frozen=True)
class SCANConfig(AttentionOptions, NetworkConfig):
    """Published sizes: 1024 dimensions, word vectors of 300. `AttentionOptions` explains the attention options."""

    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    block: int = field(default=BLOCK, metadata={"least": 1})  # bytes of dot products in memory at once


class PartVectors(NamedTuple):
    """Unit vectors (N, K, D) of the regions of images or the words of texts, and their mask (N, K)."""

    vectors: Tensor
    mask: Tensor


class SCAN(nn.Module):
    """Regions and words as unit vectors in the same space.

    region:  a linear map of its features (lee2018scan, sec. 3.3)
    word:    a bidirectional GRU over the text, mean of both directions (sec. 3.4)
    """

    def __init__(self, config: SCANConfig) -> None:
        super().__init__()
        self.config = config
        self.image = nn.Linear(config.features, config.dimensions)
        nn.init.xavier_uniform_(self.image.weight)
        nn.init.zeros_(self.image.bias)
        self.word_vectors = WordVectors(config.words, config.word_dimensions)
        self.text = BiGRU(config.word_dimensions, config.dimensions)

    def images(self, regions: Regions) -> PartVectors:
        """Unit vectors of the regions."""
        return PartVectors(normalize(self.image(regions.features)) * regions.mask.unsqueeze(2), regions.mask)

    def texts(self, words: Words) -> PartVectors:
        """Unit vectors of the words, including `BEGIN` and `END`, as in the released code."""
        return PartVectors(normalize(self.text(self.word_vectors(words), words.mask)), words.mask)

    def similarity(self, images: PartVectors, texts: PartVectors) -> Tensor:
        """Score every image with every text: (I, T)."""
        return similarity(*images, *texts, self.config, block=self.config.block)

    def pair_similarity(self, images: PartVectors, texts: PartVectors) -> Tensor:
        """Score image n with text n: (N,)."""
        return pair_similarity(*images, *texts, self.config)

    def region_grounding(self, images: PartVectors, texts: PartVectors) -> Tensor:
        """Grounding of text n in each region of image n, for TIGEr: (N, K).

        The cosine of each region with the words that it attends to (jiang2019tiger, eq. 1 to 6), with this model's λ₁. A t2i model
        uses the same i2t equations, because TIGEr needs a number per region and t2i has one per word.
        """
        return region_grounding(*images, *texts, self.config)
