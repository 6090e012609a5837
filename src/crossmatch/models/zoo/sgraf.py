"""SGR and SAF: how each word, and the text as a whole, fits an image as a vector, and one number from all of these vectors.

    s(x, y; W) = W |x − y|² / ‖W |x − y|²‖                                                    diao2021sgraf, eq. 1
    s_j = s(a_j, w_j; W_l),   s_0 = s(v̄, w̄; W_g)

for each word w_j and what it attends to in the image, a_j (as in SCAN's t2i, at length 1), and for image and text as a whole.

SGR (similarity graph reasoning), three times, then the score of s_0:
    s_p ← ReLU(W_r Σ_q e_pq s_q),   e_p = softmax_q((W_in s_p) · (W_out s_q))
SAF (similarity attention filtration), then the score of what is left, at length 1:
    s = Σ_p β_p s_p,   β_p = σ(BN(W_f s_p)) / Σ_q σ(BN(W_f s_q))
The score is σ(w · s).

The released code takes one caption after the other; here many captions, those of like length together, go with all images at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.cross_attention import attended, weights
from crossmatch.models.zoo.inputs import Regions, Words
from crossmatch.models.zoo.pairwise import Pairwise, alike, trimmed
from crossmatch.models.zoo.parts import BiGRU, WordVectors, mean_over, unit
from crossmatch.models.zoo.sizes import FEW, SHARE, WIDTH

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

BLOCK = 32 << 20  # bytes of attended vectors at once
COPIES = 4  # of the attended vectors that there are at once
NEVER = -1e4  # the logit of what is not there
MOMENTUM, EPSILON = 0.1, 1e-5  # of batch norm, as torch has them


@dataclass(frozen=True)
class SGRAFConfig:
    """The published sizes: 1024 dimensions, similarity vectors of 256, three steps of reasoning, λ = 9."""

    features: int  # numbers of a region
    words: int  # how many words there are
    module: Literal["sgr", "saf"] = "sgr"
    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    similarity_dimensions: int = field(default=256, metadata=WIDTH)
    steps: int = field(default=3, metadata=FEW)  # of reasoning
    temperature: float = field(default=9.0, metadata={"least": 0})
    leak: float = field(default=0.0, metadata=SHARE)  # 0: as in the paper; 0.1: as in the released code
    dropout: float = field(default=0.4, metadata=SHARE)
    block: int = field(default=BLOCK, metadata={"least": 1})  # bytes of attended vectors at once


class Parts(NamedTuple):
    """Images or texts: unit vectors (N, K, D) of their regions or words, which of them are there (N, K), and the whole (N, D)."""

    vectors: Tensor
    real: Tensor
    whole: Tensor


class Whole(nn.Module):
    """A set of vectors as one: their mean asks how much each of them counts. At length 1.

        v̄ = Σ_i α_i v_i,   α = softmax_i(w · (tanh(BN(W_1 v_i)) ∘ tanh(BN(W_2 Σ_k v_k / K))))

    Texts have no batch norm (`norm`), as in the released code. Where that normalises each of the 36 places of a region in the list,
    here it is each dimension, over all regions that are there: images with fewer regions are no matter. Source: diao2021sgraf, sec.
    "Generic Representation Extraction"; released code.
    """

    def __init__(self, dimensions: int, dropout: float, norm: bool) -> None:
        super().__init__()
        self.one, self.all = nn.Linear(dimensions, dimensions), nn.Linear(dimensions, dimensions)
        self.one_norm, self.all_norm = (nn.BatchNorm1d(dimensions) if norm else None for _ in range(2))
        self.weight, self.dropout = nn.Linear(dimensions, 1), nn.Dropout(dropout)

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        mean = self._asked(self.all(mean_over(vectors, real)), self.all_norm)
        each = torch.zeros_like(vectors)
        each[real] = self._asked(self.one(vectors[real]), self.one_norm)
        logits = self.weight(each * mean.unsqueeze(1)).squeeze(2).masked_fill(~real, NEVER)
        return unit((logits.softmax(dim=1) * real).unsqueeze(1).matmul(vectors).squeeze(1))

    def _asked(self, given: Tensor, norm: nn.BatchNorm1d | None) -> Tensor:
        if norm is not None and (not norm.training or len(given) > 1):  # one alone has no variance
            given = norm(given)
        dropped: Tensor = self.dropout(given.tanh())
        return dropped


class Reasoning(nn.Module):
    """One step of SGR. A bias of W_out would cancel out in the softmax, and is left out."""

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(dimensions, dimensions), nn.Linear(dimensions, dimensions, bias=False)
        self.onward = nn.Linear(dimensions, dimensions)

    def forward(self, nodes: Tensor, real: Tensor, to: int | None = None) -> Tensor:
        """New similarity vectors (…, N, S) of the first `to` nodes, or of all; `real` (…, N) are the nodes that are there."""
        asks = F.linear(nodes[..., :to, :], self.out.weight.T @ self.into.weight, self.out.weight.T @ self.into.bias)
        edges = (asks @ nodes.mT).masked_fill(~real.unsqueeze(-2), NEVER).softmax(dim=-1)
        return F.relu(self.onward(edges @ nodes))


class Filtration(nn.Module):
    """SAF. Batch norm is over all images and words of one caption, as in the released code.

    Its statistics count as constants in the backward pass: so only the pairs that have a gradient need be looked at again. What
    evaluation uses takes one step towards the mean of a batch's captions; in the released code it takes one for each caption, and
    thus remembers little but the last batch. Variances are biased, there unbiased.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.weight = nn.Linear(dimensions, 1)
        self.scale, self.shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        self.moments: Tensor
        self.register_buffer("moments", torch.tensor([0.0, 1.0]))  # mean and variance that evaluation uses

    def forward(self, nodes: Tensor, real: Tensor, moments: Tensor) -> Tensor:
        """One vector (…, S) of the nodes (…, N, S) that are there (…, N); `moments` (…, 2) are mean and variance of each."""
        mean, variance = moments.unsqueeze(-2).unbind(dim=-1)
        said = (self.weight(nodes).squeeze(-1) - mean) * (variance + EPSILON).rsqrt() * self.scale + self.shift
        kept = said.sigmoid() * real
        return unit((kept.unsqueeze(-2) @ nodes).squeeze(-2))

    def measured(self, nodes: Tensor, real: Tensor) -> Tensor:
        """Mean and variance for each of the texts: (m, 2), from the nodes (n, m, N, S) of n images with them."""
        said, number = self.weight(nodes).squeeze(-1), len(nodes) * real[0].sum(dim=-1)
        mean = (said * real).sum(dim=(0, 2)) / number
        return torch.stack([mean, ((said - mean[:, None]).square() * real).sum(dim=(0, 2)) / number], dim=1)

    def remember(self, moments: Tensor) -> None:
        """Let what evaluation uses drift towards these."""
        self.moments.lerp_(moments.mean(dim=0), MOMENTUM)


class Comparison(nn.Module):
    """Similarity vectors of images with texts, and one score of each pair's vectors."""

    def __init__(self, config: SGRAFConfig) -> None:
        super().__init__()
        self.temperature, self.leak = config.temperature, config.leak
        size, small = config.dimensions, config.similarity_dimensions
        self.local, self.whole, self.score = nn.Linear(size, small), nn.Linear(size, small), nn.Linear(small, 1)
        self.reasoning = nn.ModuleList([Reasoning(small) for _ in range(config.steps)]) if config.module == "sgr" else None
        self.filtration = Filtration(small) if config.module == "saf" else None

    def alignments(
        self, regions: Tensor, region_real: Tensor, image: Tensor, words: Tensor, word_real: Tensor, text: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The similarity vectors of n images with m texts each, (n, m, 1 + L, S), the whole first; and which of them are there.

        Images are (n, K, D), (n, K) and (n, D), texts (n or 1, m, L, D), (n or 1, m, L) and (n or 1, m, D).
        """
        many = len(regions), *words.shape[1:3]
        dots = (regions @ words.flatten(1, 2).mT).view(*regions.shape[:2], *many[1:])
        weight = weights(dots, region_real, word_real, self.temperature, self.leak)
        _, length = attended(dots, weight, regions @ regions.mT)
        found = ((weight / length.unsqueeze(1)).flatten(2).mT @ regions).view(*many, regions.shape[2])
        local, whole = self.local((found - words).square()), self.whole((image[:, None] - text).square())
        return unit(torch.cat([whole.unsqueeze(2), local], dim=2)), F.pad(word_real, (1, 0), value=True)

    def moments(self, texts: int) -> Tensor:
        """What the filtration uses in evaluation, for each text: (texts, 2)."""
        return torch.zeros(texts, 2) if self.filtration is None else self.filtration.moments.repeat(texts, 1)

    def forward(self, nodes: Tensor, real: Tensor, moments: Tensor) -> Tensor:
        """Scores (…) from similarity vectors (…, N, S), which of them are there (…, N), and the filtration's moments (…, 2)."""
        if self.reasoning is not None:
            last = len(self.reasoning) - 1
            for number, step in enumerate(self.reasoning):
                nodes = step(nodes, real, to=1 if number == last else None)  # in the end, the first alone is looked at
            vector = nodes.squeeze(-2)
        elif self.filtration is not None:
            vector = self.filtration(nodes, real, moments)
        scores: Tensor = self.score(vector).squeeze(-1).sigmoid()
        return scores


class SGRAF(nn.Module):
    """Regions through a linear map, words through a bidirectional GRU, as SCAN has them; then SGR or SAF."""

    def __init__(self, config: SGRAFConfig) -> None:
        super().__init__()
        self.config = config
        self.image = nn.Linear(config.features, config.dimensions)
        self.image_whole = Whole(config.dimensions, config.dropout, norm=True)
        self.word_vectors, self.dropout = WordVectors(config.words, config.word_dimensions), nn.Dropout(config.dropout)
        self.text = BiGRU(config.word_dimensions, config.dimensions)
        self.text_whole = Whole(config.dimensions, config.dropout, norm=False)
        self.compare = Comparison(config)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def images(self, regions: Regions) -> Parts:
        """Their regions, and the whole of them."""
        vectors = unit(self.image(regions.features)) * regions.real.unsqueeze(2)
        return Parts(vectors, regions.real, self.image_whole(vectors, regions.real))

    def texts(self, words: Words) -> Parts:
        """Their words, and the whole of them."""
        vectors = unit(self.text(self.dropout(self.word_vectors(words)), words.real))
        return Parts(vectors, words.real, self.text_whole(vectors, words.real))

    def similarity(self, images: Parts, texts: Parts) -> Tensor:
        """Every image with every text: (I, T), from 0 to 1. `block` bounds the memory, in the backward pass too."""
        bytes_of = COPIES * texts.vectors.shape[1] * self.config.dimensions * images.vectors.element_size()  # of a pair
        at_once = max(1, self.config.block // bytes_of)
        if len(images.real) > at_once and not self.training:  # batch norm asks for all images of a batch
            cuts = (slice(at, at + at_once) for at in range(0, len(images.real), at_once))
            return torch.cat([self.similarity(Parts(*(each[cut] for each in images)), texts) for cut in cuts])
        compare, parts = self.compare, alike(texts.real.sum(dim=1), at_once // max(1, len(images.real)))
        filtration = compare.filtration if self.training else None
        moments = compare.moments(len(texts.real)).to(images.vectors)

        def seen(some: Tensor, v: Tensor, v_whole: Tensor, w: Tensor, w_whole: Tensor) -> tuple[Tensor, Tensor]:
            words, said = trimmed(w[some], texts.real[some])
            return compare.alignments(v, images.real, v_whole, words[None], said[None], w_whole[some][None])

        def matrix(*inputs: Tensor) -> Tensor:
            out = inputs[0].new_empty(len(images.real), len(texts.real))
            for some in parts:
                nodes, real = seen(some, *inputs)
                if filtration is not None:
                    moments[some] = filtration.measured(nodes, real)
                out[:, some] = compare(nodes, real, moments[some])
            if filtration is not None and parts:
                filtration.remember(moments)
            return out

        def columns(some: Tensor, *inputs: Tensor) -> Tensor:
            found: Tensor = compare(*seen(some, *inputs), moments[some])
            return found

        def pairs(left: Tensor, right: Tensor, v: Tensor, v_whole: Tensor, w: Tensor, w_whole: Tensor) -> Tensor:
            words, said = trimmed(w[right], texts.real[right])
            given = Parts(v[left], images.real[left], v_whole[left]), Parts(words, said, w_whole[right])
            return self._paired(*given, moments[right])

        work = Pairwise(matrix, columns, pairs, parts, at_once, tuple(compare.parameters()))
        return work.scores(images.vectors, images.whole, texts.vectors, texts.whole)

    def paired(self, images: Parts, texts: Parts) -> Tensor:
        """Image n with text n: (N,)."""
        return self._paired(images, texts, self.compare.moments(len(texts.real)))

    def _paired(self, images: Parts, texts: Parts, moments: Tensor) -> Tensor:
        nodes, real = self.compare.alignments(*images, *(each[:, None] for each in texts))
        found: Tensor = self.compare(nodes, real, moments[:, None])[:, 0]
        return found
