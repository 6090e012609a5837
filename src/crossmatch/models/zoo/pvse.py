"""PVSE: K vectors for an image and K for a text, because either may mean several things; the closest two decide.

    s(i, c) = max_{p,q ≤ K} cos(z_i^p, z_c^q)                                                        song2019pvse, sec. 3

One vector each (K = 1) is VSE with attention to parts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.inputs import Regions, Words
from crossmatch.models.zoo.parts import BiGRU, WordVectors, mean_over
from crossmatch.models.zoo.pie import PIE, Senses
from crossmatch.models.zoo.sizes import FEW, WIDTH

try:
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


@dataclass(frozen=True)
class PVSEConfig:
    """The published sizes: 1024 dimensions, word vectors of 300."""

    features: int  # numbers of a region
    words: int  # how many words there are
    embeddings: int = field(default=1, metadata=FEW)  # K
    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)


class PVSE(nn.Module):
    """Images and texts as K unit vectors each.

    The parts of an image are its regions, its whole is their mean through a linear map; the parts of a text are the vectors of its
    words, its whole is where the bidirectional GRU ends. The paper has the 7 x 7 places of a ResNet-152 for regions, GloVe for word
    vectors, and joins the two directions of the GRU, of half the size each, instead of taking their mean.
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
        """What the images may mean, and what their regions had to do with it."""
        whole = self.image(mean_over(regions.features, regions.real))
        found: Senses = self.image_pie(whole, regions.features, regions.real)
        return found

    def text_senses(self, words: Words) -> Senses:
        """What the texts may mean, and what their words had to do with it."""
        vectors = self.word_vectors(words)
        found: Senses = self.text_pie(self.text.ends(vectors, words.real), vectors, words.real)
        return found

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, K, D); (N, D) if K is 1."""
        return self._embedded(self.image_senses(regions))

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, K, D); (N, D) if K is 1."""
        return self._embedded(self.text_senses(words))

    def _embedded(self, senses: Senses) -> Tensor:
        return senses.embedded.squeeze(1) if self.embeds else senses.embedded

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """The highest cosine between the vectors of an image and those of a text: (I, T)."""
        return similarity(images, texts)

    def paired(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same for image n with text n: (N,)."""
        return (_several(images) @ _several(texts).transpose(1, 2)).amax(dim=(1, 2))


def similarity(images: Tensor, texts: Tensor) -> Tensor:
    """The highest dot product between any vector of an image, (I, K, D) or (I, D), and any of a text: (I, T).

    >>> import torch
    >>> two = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    >>> similarity(two, torch.tensor([[0.6, 0.8], [-1.0, 0.0]]))
    tensor([[0.8000, 0.0000]])
    """
    seen, said = _several(images), _several(texts)
    cosines = seen.flatten(0, 1) @ said.flatten(0, 1).T
    return cosines.view(len(seen), seen.shape[1], len(said), said.shape[1]).amax(dim=(1, 3))


def _several(vectors: Tensor) -> Tensor:
    return vectors.unsqueeze(1) if vectors.ndim == 2 else vectors
