"""PCME: an image and a text as one Gaussian each, to represent ambiguity.

    p(z | x) = N(μ(x), diag σ²(x))                                                               chun2021pcme, sec. 3.2
    p(m | i, c) ≈ 1/J² · Σ_j Σ_j' p(m | z_i^j, z_c^j'),    z^j = μ + σ ⊙ ε^j                      chun2021pcme, eq. 3
    p(m | z, z') = sigmoid(−a ‖z − z'‖₂ + b)                                                     chun2021pcme, eq. 4

The released code writes eˣ / (eˣ + e⁻ˣ) for the sigmoid, which equals the usual sigmoid of 2x. Its initial a = b = 15 belong to
that form, which is used here too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.models.zoo.layers import FEW, WIDTH, BiGRU, NetworkConfig, WordVectors, masked_mean
from crossmatch.models.zoo.network_inputs import Regions, Words
from crossmatch.models.zoo.pvse import PIE, PartAttention

NEAR = 1e-6  # added under the root of a distance, as in the released code, so that the gradient at 0 is finite
BLOCK = 1 << 20  # distances between samples in memory at a time
ROWS = 32  # images of a block, at most
NOISE_SEED = 2021  # of the samples that retrieval draws


@dataclass(frozen=True)
class PCMEConfig(NetworkConfig):
    """Published sizes: 1024 dimensions, word vectors of 300, 7 samples.

    retrieval:  "means" scores by the cosine of the two means. This is how the released code evaluates COCO up to sampling error (it
                sums the dot products of all samples), and how chun2022eccv, sec. 4.1, evaluates all dual encoders.
                "probability" scores by the logarithm of the matching probability.
    """

    retrieval: Literal["means", "probability"] = "means"
    samples: int = field(default=7, metadata=FEW)  # J: samples of each item in retrieval by probability
    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    scale: float = 15.0  # initial a
    shift: float = 15.0  # initial b
    log_sigma: float = field(default=0.0, metadata={"least": -20, "most": 20})  # approximate initial value


class Gaussian(NamedTuple):
    """N items as normal distributions with independent coordinates."""

    mean: Tensor  # (N, D), of length 1
    log_sigma: Tensor  # (N, D): the logarithm of the standard deviation


class LogSigmaHead(nn.Module):
    """Computes log σ of an item from its whole and its parts, without the sigmoid and layer norm, which would bound it.

    log σ = φ_σ + w₃ AΨ + b₃                                                                 chun2021pcme, sec. 3.2
    """

    def __init__(self, inputs: int, dimensions: int, start: float) -> None:
        super().__init__()
        self.attention, self.guide = PartAttention(1, inputs), nn.Linear(inputs, dimensions)
        nn.init.xavier_uniform_(self.guide.weight)
        nn.init.constant_(self.guide.bias, start)

    def forward(self, whole: Tensor, parts: Tensor, mask: Tensor) -> Tensor:
        """From the whole (N, D), the parts (N, L, inputs) and their mask (N, L) to (N, D)."""
        return whole + self.guide(self.attention(parts, mask).squeeze(1))  # type: ignore[no-any-return]


class PCME(nn.Module):
    """Images and texts as Gaussians. The means are PVSE's with K = 1; the deviations have their own encoders."""

    noise: Tensor

    def __init__(self, config: PCMEConfig) -> None:
        super().__init__()
        self.config = config
        self.embeds = config.retrieval == "means"
        size, word_size = config.dimensions, config.word_dimensions
        self.word_vectors = WordVectors(config.words, word_size)
        self.image, self.image_wide = nn.Linear(config.features, size), nn.Linear(config.features, size)
        self.text, self.text_wide = BiGRU(word_size, size), BiGRU(word_size, size)
        self.image_pie, self.text_pie = PIE(1, config.features, size), PIE(1, word_size, size)
        self.image_spread = LogSigmaHead(config.features, size, config.log_sigma)
        self.text_spread = LogSigmaHead(word_size, size, config.log_sigma)
        self.scale, self.shift = nn.Parameter(torch.tensor(config.scale)), nn.Parameter(torch.tensor(config.shift))
        # All items of a side share the noise of sample j, so that a score depends on image and text alone. It is saved with the
        # weights, because another version of torch may draw other numbers.
        noise = torch.randn(2, config.samples, size, generator=torch.Generator().manual_seed(NOISE_SEED))
        self.register_buffer("noise", noise)

    def images(self, regions: Regions) -> Gaussian:
        parts, mask = regions.features, regions.mask
        whole = masked_mean(parts, mask)
        mean = self.image_pie(self.image(whole), parts, mask).embedded.squeeze(1)
        return Gaussian(mean, self.image_spread(self.image_wide(whole), parts, mask))

    def texts(self, words: Words) -> Gaussian:
        parts, mask = self.word_vectors(words), words.mask
        mean = self.text_pie(self.text.final_output(parts, mask), parts, mask).embedded.squeeze(1)
        return Gaussian(mean, self.text_spread(self.text_wide.final_output(parts, mask), parts, mask))

    def vectors(self, encoded: Gaussian) -> Tensor:
        """Unit vectors (N, D) for retrieval by means."""
        return encoded.mean

    def uncertainty(self, encoded: Gaussian) -> Tensor:
        """Ambiguity of each item: the geometric mean of its standard deviations, (N,).

            (Π_d σ_d)^{1/D} = exp(1/D · Σ_d log σ_d)                                             chun2021pcme, sec. 4

        Any power of it, such as the geometric mean of the variances, gives the same order.
        """
        return encoded.log_sigma.mean(dim=1).exp()

    def similarity(self, images: Gaussian, texts: Gaussian) -> Tensor:
        """Score every image with every text, (I, T): the cosine of the means, or the log of the matching probability.

        The logarithm has the order of the probability, and still separates pairs whose probabilities round to 0.
        """
        if self.config.retrieval == "means":
            return images.mean @ texts.mean.T
        return log_match_probability(
            draw_samples(images, self.noise[0]), draw_samples(texts, self.noise[1]), self.scale, self.shift
        )

    def pair_similarity(self, images: Gaussian, texts: Gaussian) -> Tensor:
        """`similarity` of image n with text n: (N,)."""
        if self.config.retrieval == "means":
            return (images.mean * texts.mean).sum(dim=1)
        image_samples, text_samples = draw_samples(images, self.noise[0]), draw_samples(texts, self.noise[1])
        return _log_mean_sigmoid(match_logits(_exact_distances(image_samples, text_samples), self.scale, self.shift), (1, 2))


def draw_samples(items: Gaussian, noise: Tensor) -> Tensor:
    """z = μ + σ ⊙ ε with noise (J, D) for all items, or (N, J, D) for each: (N, J, D).

    >>> draw_samples(Gaussian(torch.tensor([[1.0]]), torch.tensor([[0.0]])), torch.tensor([[0.5], [-2.0]]))
    tensor([[[ 1.5000],
             [-1.0000]]])
    """
    return items.mean.unsqueeze(1) + items.log_sigma.exp().unsqueeze(1) * noise


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances ‖x − y‖² between the rows of x, (…, A, D), and of y, (…, B, D), by one matrix product: (…, A, B)."""
    lengths = x.square().sum(dim=-1).unsqueeze(-1) + y.square().sum(dim=-1).unsqueeze(-2)
    return (lengths - 2 * x @ y.transpose(-1, -2)).clamp(min=0)


def _exact_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared distances through double precision, so that cancellation does not make them depend on the block size."""
    return squared_distances(x.double(), y.double()).to(x.dtype)


def match_logits(squares: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Arguments of the sigmoid from squared distances: 2 · (b − a ‖z − z'‖)."""
    return 2 * (shift - scale * (squares + NEAR).sqrt())


def log_match_probability(images: Tensor, texts: Tensor, scale: Tensor, shift: Tensor, block: int = BLOCK) -> Tensor:
    """log p(m | i, c) of every image with every text, from samples (I, J, D) and (T, J, D): (I, T). chun2021pcme, eq. 3 and 4.

    At most `block` distances between samples are in memory at a time, or those of one image and one text.

    >>> points = torch.tensor([[[0.0]], [[9.0]]])
    >>> log_match_probability(points, points, torch.tensor(1.0), torch.tensor(1.0)).exp().round(decimals=3)
    tensor([[0.8810, 0.0000],
            [0.0000, 0.8810]])
    """
    samples = images.shape[1], texts.shape[1]
    rows = max(1, min(len(images), ROWS, block // (samples[0] * samples[1])))
    columns = max(1, block // (samples[0] * samples[1] * rows))
    blocks = []
    for some_images in torch.split(images.transpose(0, 1), rows, dim=1):  # samples first, which makes the sums faster
        row = []
        for some_texts in torch.split(texts.transpose(0, 1), columns, dim=1):
            squares = _exact_distances(some_images.flatten(0, 1), some_texts.flatten(0, 1))
            logits = match_logits(squares, scale, shift)
            logits = logits.view(samples[0], some_images.shape[1], samples[1], some_texts.shape[1])
            row.append(_log_mean_sigmoid(logits, (0, 2)))
        blocks.append(torch.cat(row, dim=1))
    return torch.cat(blocks)


def _log_mean_sigmoid(logits: Tensor, axes: tuple[int, int]) -> Tensor:
    """Logarithm of the mean sigmoid over two axes."""
    return F.logsigmoid(logits).logsumexp(dim=axes) - log(logits.shape[axes[0]] * logits.shape[axes[1]])
