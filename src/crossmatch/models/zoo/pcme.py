"""PCME: an image and a text as one Gaussian each, because what they may mean is spread out.

    p(z | x) = N(μ(x), diag σ²(x))                                                               chun2021pcme, sec. 3.2
    p(m | i, c) ≈ 1/J² · Σ_j Σ_j' p(m | z_i^j, z_c^j'),    z^j = μ + σ ⊙ ε^j                      chun2021pcme, eq. 3
    p(m | z, z') = sigmoid(−a ‖z − z'‖₂ + b)                                                     chun2021pcme, eq. 4

The released code writes eˣ / (eˣ + e⁻ˣ) for the sigmoid, which is the usual one of 2x; its a = b = 15 at the start go with that,
and so they do here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import Literal, NamedTuple, get_args

from crossmatch.core.errors import MissingDependency, WrongWords
from crossmatch.models.zoo.inputs import Regions, Words
from crossmatch.models.zoo.parts import BiGRU, WordVectors, mean_over
from crossmatch.models.zoo.pie import PIE, Attention
from crossmatch.models.zoo.sizes import FEW, WIDTH

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

Retrieval = Literal["means", "probability"]
NEAR = 1e-6  # under the root of a distance, as in the released code: the root has a slope at 0 then
BLOCK = 1 << 20  # distances between samples in memory at a time
ROWS = 32  # images of a block, at most
NOISE = 2021  # the seed of the samples that retrieval draws


@dataclass(frozen=True)
class PCMEConfig:
    """The published sizes: 1024 dimensions, word vectors of 300, 7 samples.

    retrieval:  by `means`, the cosine of the two means, as the released code evaluates COCO but for its sampling error (it adds up
                the dot products of all samples), and as chun2022eccv, sec. 4.1, says of all models with two encoders; or by the
                matching `probability`, whose logarithm is the score
    """

    features: int  # numbers of a region
    words: int  # how many words there are
    retrieval: Retrieval = "means"
    samples: int = field(default=7, metadata=FEW)  # J, of each item in retrieval by probability
    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    scale: float = 15.0  # a at the start
    shift: float = 15.0  # b at the start
    log_sigma: float = field(default=0.0, metadata={"least": -20, "most": 20})  # about what it is at the start


class Gaussian(NamedTuple):
    """N items as normal distributions with independent coordinates."""

    mean: Tensor  # (N, D), of length 1
    log_sigma: Tensor  # (N, D): the logarithm of the standard deviation


class Spread(nn.Module):
    """log σ of an item from its whole and its parts; no sigmoid and no layer norm, which would bound it.

    log σ = φ_σ + w₃ AΨ + b₃                                                                 chun2021pcme, sec. 3.2
    """

    def __init__(self, inputs: int, dimensions: int, start: float) -> None:
        super().__init__()
        self.attention, self.guide = Attention(1, inputs), nn.Linear(inputs, dimensions)
        nn.init.xavier_uniform_(self.guide.weight)
        nn.init.constant_(self.guide.bias, start)

    def forward(self, whole: Tensor, parts: Tensor, real: Tensor) -> Tensor:
        """From the whole (N, D), the parts (N, L, inputs) and which of them are real, to (N, D)."""
        return whole + self.guide(self.attention(parts, real).squeeze(1))  # type: ignore[no-any-return]


class PCME(nn.Module):
    """Images and texts as Gaussians. Means are those of PVSE with K = 1; deviations have encoders of their own."""

    noise: Tensor

    def __init__(self, config: PCMEConfig) -> None:
        super().__init__()
        if config.retrieval not in get_args(Retrieval):
            raise WrongWords(f"retrieval is {config.retrieval!r}; one of {', '.join(get_args(Retrieval))} was expected.")
        self.config = config
        self.embeds = config.retrieval == "means"
        size, read = config.dimensions, config.word_dimensions
        self.word_vectors = WordVectors(config.words, read)
        self.image, self.image_wide = nn.Linear(config.features, size), nn.Linear(config.features, size)
        self.text, self.text_wide = BiGRU(read, size), BiGRU(read, size)
        self.image_pie, self.text_pie = PIE(1, config.features, size), PIE(1, read, size)
        self.image_spread = Spread(config.features, size, config.log_sigma)
        self.text_spread = Spread(read, size, config.log_sigma)
        self.scale, self.shift = nn.Parameter(torch.tensor(config.scale)), nn.Parameter(torch.tensor(config.shift))
        # The noise of sample j is the same for all items of a side, so that a score depends on image and text alone. It is kept
        # with the weights: another version of torch may draw other numbers.
        drawn = torch.randn(2, config.samples, size, generator=torch.Generator().manual_seed(NOISE))
        self.register_buffer("noise", drawn)

    def images(self, regions: Regions) -> Gaussian:
        parts, real = regions.features, regions.real
        whole = mean_over(parts, real)
        mean = self.image_pie(self.image(whole), parts, real).embedded.squeeze(1)
        return Gaussian(mean, self.image_spread(self.image_wide(whole), parts, real))

    def texts(self, words: Words) -> Gaussian:
        parts, real = self.word_vectors(words), words.real
        mean = self.text_pie(self.text.ends(parts, real), parts, real).embedded.squeeze(1)
        return Gaussian(mean, self.text_spread(self.text_wide.ends(parts, real), parts, real))

    def vectors(self, encoded: Gaussian) -> Tensor:
        """What retrieval by means compares: unit vectors (N, D)."""
        return encoded.mean

    def uncertainty(self, encoded: Gaussian) -> Tensor:
        """How much an item may mean: the geometric mean of its standard deviations, (N,).

            (Π_d σ_d)^{1/D} = exp(1/D · Σ_d log σ_d)                                             chun2021pcme, sec. 4

        Any power of it, such as that of the variances, orders items alike.
        """
        return encoded.log_sigma.mean(dim=1).exp()

    def similarity(self, images: Gaussian, texts: Gaussian) -> Tensor:
        """Every image with every text, (I, T): the cosine of the means, or the logarithm of the matching probability.

        The logarithm orders as the probability does, and tells two pairs apart whose probabilities are both too small to be told
        from 0.
        """
        if self.config.retrieval == "means":
            return images.mean @ texts.mean.T
        return log_probability(sampled(images, self.noise[0]), sampled(texts, self.noise[1]), self.scale, self.shift)

    def paired(self, images: Gaussian, texts: Gaussian) -> Tensor:
        """The same for image n with text n: (N,)."""
        if self.config.retrieval == "means":
            return (images.mean * texts.mean).sum(dim=1)
        seen, said = sampled(images, self.noise[0]), sampled(texts, self.noise[1])
        return _log_mean(logit(_exactly_squared(seen, said), self.scale, self.shift), (1, 2))


def sampled(items: Gaussian, noise: Tensor) -> Tensor:
    """z = μ + σ ⊙ ε with noise (J, D) for all items, or (N, J, D) for each: (N, J, D).

    >>> sampled(Gaussian(torch.tensor([[1.0]]), torch.tensor([[0.0]])), torch.tensor([[0.5], [-2.0]]))
    tensor([[[ 1.5000],
             [-1.0000]]])
    """
    return items.mean.unsqueeze(1) + items.log_sigma.exp().unsqueeze(1) * noise


def squared(x: Tensor, y: Tensor) -> Tensor:
    """‖x − y‖² of each row of x, (…, A, D), with each of y, (…, B, D), by one matrix product: (…, A, B)."""
    lengths = x.square().sum(dim=-1).unsqueeze(-1) + y.square().sum(dim=-1).unsqueeze(-2)
    return (lengths - 2 * x @ y.transpose(-1, -2)).clamp(min=0)


def _exactly_squared(x: Tensor, y: Tensor) -> Tensor:
    """The same through double precision: a small difference of large numbers would else depend on how the product was cut."""
    return squared(x.double(), y.double()).to(x.dtype)


def logit(squares: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """2 · (b − a ‖z − z'‖): what the sigmoid is taken of, from squared distances."""
    return 2 * (shift - scale * (squares + NEAR).sqrt())


def log_probability(images: Tensor, texts: Tensor, scale: Tensor, shift: Tensor, block: int = BLOCK) -> Tensor:
    """log p(m | i, c) of every image with every text, from samples (I, J, D) and (T, J, D): (I, T). chun2021pcme, eq. 3 and 4.

    No more than `block` distances between samples are held at a time (but those of one image and one text).

    >>> at = torch.tensor([[[0.0]], [[9.0]]])
    >>> log_probability(at, at, torch.tensor(1.0), torch.tensor(1.0)).exp().round(decimals=3)
    tensor([[0.8810, 0.0000],
            [0.0000, 0.8810]])
    """
    many = images.shape[1], texts.shape[1]
    rows = max(1, min(len(images), ROWS, block // (many[0] * many[1])))
    columns = max(1, block // (many[0] * many[1] * rows))
    blocks = []
    for seen in torch.split(images.transpose(0, 1), rows, dim=1):  # samples first: sums along the last axis but one are faster
        row = []
        for said in torch.split(texts.transpose(0, 1), columns, dim=1):
            squares = _exactly_squared(seen.flatten(0, 1), said.flatten(0, 1))
            logits = logit(squares, scale, shift).view(many[0], seen.shape[1], many[1], said.shape[1])
            row.append(_log_mean(logits, (0, 2)))
        blocks.append(torch.cat(row, dim=1))
    return torch.cat(blocks)


def _log_mean(logits: Tensor, over: tuple[int, int]) -> Tensor:
    """The logarithm of the mean sigmoid over two axes."""
    return F.logsigmoid(logits).logsumexp(dim=over) - log(logits.shape[over[0]] * logits.shape[over[1]])
