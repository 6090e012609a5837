"""PVSE: K vectors for an image and K for a text, because both are ambiguous; the closest pair decides.

    s(i, c) = max_{p,q ≤ K} cos(z_i^p, z_c^q)                                                        song2019pvse, sec. 3

With K = 1 this is VSE with attention to parts. `PIE`, the polysemous instance embedding, is also used by PCME.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from crossmatch.models.zoo.layers import FEW, WIDTH, BiGRU, NetworkConfig, WordVectors, masked_mean, normalize
from crossmatch.models.zoo.network_inputs import Regions, Words


@dataclass(frozen=True)
class PVSEConfig(NetworkConfig):
    """Published sizes: 1024 dimensions, word vectors of 300."""

    embeddings: int = field(default=1, metadata=FEW)  # K
    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)


class Senses(NamedTuple):
    """K embeddings of each of N items."""

    embedded: Tensor  # (N, K, D), each of length 1
    guided: Tensor  # (N, K, D): the contribution of the parts, before it is added


class PartAttention(nn.Module):
    """K attention heads over the parts of an item, computed from the parts alone.

        A = softmax(w₂ tanh(w₁ Ψᵀ)),    AΨ                                                     lin2017structured, eq. 5 and 6

    Ψ are the L parts. w₁ has half as many rows as a part has numbers (song2019pvse, as in the released code), w₂ has K.
    Padding has weight 0; an item without parts gets 0.
    """

    def __init__(self, heads: int, inputs: int) -> None:
        super().__init__()
        hidden = max(1, inputs // 2)
        self.w1, self.w2 = nn.Linear(inputs, hidden, bias=False), nn.Linear(hidden, heads, bias=False)
        nn.init.xavier_uniform_(self.w1.weight)
        nn.init.xavier_uniform_(self.w2.weight)

    def forward(self, parts: Tensor, mask: Tensor) -> Tensor:
        """From (N, L, inputs) and mask (N, L) to (N, K, inputs)."""
        logits = self.w2(torch.tanh(self.w1(parts))).transpose(1, 2)
        absent = ~mask.unsqueeze(1)
        # a finite number instead of -∞, so that an item without parts gives no NaN, also in the gradient
        weight = logits.masked_fill(absent, torch.finfo(logits.dtype).min).softmax(dim=2).masked_fill(absent, 0.0)
        return weight @ parts  # type: ignore[no-any-return]


class PIE(nn.Module):
    """K embeddings of an item from its whole and its parts.

        Υ = sigmoid(w₃ AΨ + b₃)              the locally guided features, A by `PartAttention`
        z = LayerNorm(φ + Υ) / ‖·‖           φ is the feature of the whole, the same for all K

    Source: song2019pvse, sec. 3, and the released code, which normalises to length 1.
    """

    def __init__(self, embeddings: int, inputs: int, dimensions: int) -> None:
        super().__init__()
        self.attention = PartAttention(embeddings, inputs)
        self.guide = nn.Linear(inputs, dimensions)
        self.norm = nn.LayerNorm(dimensions)
        nn.init.xavier_uniform_(self.guide.weight)
        nn.init.zeros_(self.guide.bias)

    def forward(self, whole: Tensor, parts: Tensor, mask: Tensor) -> Senses:
        """From the whole (N, D), the parts (N, L, inputs) and their mask (N, L)."""
        guided = torch.sigmoid(self.guide(self.attention(parts, mask)))
        return Senses(normalize(self.norm(whole.unsqueeze(1) + guided)), guided)


class PVSE(nn.Module):
    """Images and texts as K unit vectors each.

    The parts of an image are its regions; its whole is their mean after a linear map. The parts of a text are its word vectors; its
    whole is the final output of a bidirectional GRU. The paper uses the 7 x 7 positions of a ResNet-152 as regions, GloVe word
    vectors, and concatenates the two GRU directions, each of half the size, instead of averaging them.
    """

    def __init__(self, config: PVSEConfig) -> None:
        super().__init__()
        self.config = config
        self.embeds = config.embeddings == 1  # one vector each, compared by the cosine
        self.word_vectors = WordVectors(config.words, config.word_dimensions)
        self.image = nn.Linear(config.features, config.dimensions)
        self.text = BiGRU(config.word_dimensions, config.dimensions)
        self.image_pie = PIE(config.embeddings, config.features, config.dimensions)
        self.text_pie = PIE(config.embeddings, config.word_dimensions, config.dimensions)

    def image_senses(self, regions: Regions) -> Senses:
        """The K embeddings of each image, and the contribution of its regions."""
        whole = self.image(masked_mean(regions.features, regions.mask))
        senses: Senses = self.image_pie(whole, regions.features, regions.mask)
        return senses

    def text_senses(self, words: Words) -> Senses:
        """The K embeddings of each text, and the contribution of its words."""
        vectors = self.word_vectors(words)
        senses: Senses = self.text_pie(self.text.final_output(vectors, words.mask), vectors, words.mask)
        return senses

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, K, D); (N, D) if K is 1."""
        return self._embedded(self.image_senses(regions))

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, K, D); (N, D) if K is 1."""
        return self._embedded(self.text_senses(words))

    def _embedded(self, senses: Senses) -> Tensor:
        return senses.embedded.squeeze(1) if self.embeds else senses.embedded

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """Highest cosine between the vectors of each image and each text: (I, T)."""
        return max_similarity(images, texts)

    def pair_similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """`similarity` of image n with text n: (N,)."""
        return (_with_senses(images) @ _with_senses(texts).transpose(1, 2)).amax(dim=(1, 2))


def max_similarity(images: Tensor, texts: Tensor) -> Tensor:
    """Highest dot product between any vector of an image, (I, K, D) or (I, D), and any of a text: (I, T).

    >>> import torch
    >>> two = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> max_similarity(two, torch.tensor([[0.6, 0.8], [-1.0, 0.0]]))
    tensor([[0.8000, 0.0000]])
    """
    image_senses, text_senses = _with_senses(images), _with_senses(texts)
    cosines = image_senses.flatten(0, 1) @ text_senses.flatten(0, 1).T
    shape = len(image_senses), image_senses.shape[1], len(text_senses), text_senses.shape[1]
    return cosines.view(shape).amax(dim=(1, 3))


def _with_senses(vectors: Tensor) -> Tensor:
    """(N, D) or (N, K, D) to (N, K, D)."""
    return vectors.unsqueeze(1) if vectors.ndim == 2 else vectors
