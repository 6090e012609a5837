"""SGR and SAF: similarity vectors of each word and of the whole text with an image, reduced to one score (diao2021sgraf).

    s(x, y; W) = W |x − y|² / ‖W |x − y|²‖                                                    diao2021sgraf, eq. 1
    s_j = s(a_j, w_j; W_l),   s_0 = s(v̄, w̄; W_g)

for each word w_j and its attended vector a_j (as in SCAN's t2i, of length 1), and for image and text as a whole.

SGR (similarity graph reasoning), three steps, then the score of s_0:
    s_p ← ReLU(W_r Σ_q e_pq s_q),   e_p = softmax_q((W_in s_p) · (W_out s_q))
SAF (similarity attention filtration), then the score of the normalised sum:
    s = Σ_p β_p s_p,   β_p = σ(BN(W_f s_p)) / Σ_q σ(BN(W_f s_q))
The score is σ(w · s).

The released code processes one caption at a time; here captions of similar length are processed together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.models.zoo.cross_attention import attended_products, attention_weights
from crossmatch.models.zoo.layers import FEW, SHARE, WIDTH, BiGRU, NetworkConfig, WordVectors, masked_mean, normalize
from crossmatch.models.zoo.network_inputs import Regions, Words
from crossmatch.models.zoo.pairwise import PairwiseScores, group_by_length, trim_padding

BLOCK = 32 << 20  # bytes of attended vectors in memory at once
COPIES = 4  # of the attended vectors in memory at once
MASKED_LOGIT = -1e4
MOMENTUM, EPSILON = 0.1, 1e-5  # of batch norm, the defaults of torch


@dataclass(frozen=True)
class SGRAFConfig(NetworkConfig):
    """Published sizes: 1024 dimensions, similarity vectors of 256, three steps of reasoning, λ = 9."""

    module: Literal["sgr", "saf"] = "sgr"
    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    similarity_dimensions: int = field(default=256, metadata=WIDTH)
    steps: int = field(default=3, metadata=FEW)  # of reasoning
    temperature: float = field(default=9.0, metadata={"least": 0})
    leak: float = field(default=0.0, metadata=SHARE)  # 0: as in the paper; 0.1: as in the released code
    dropout: float = field(default=0.4, metadata=SHARE)
    block: int = field(default=BLOCK, metadata={"least": 1})  # bytes of attended vectors in memory at once


class PartsAndWhole(NamedTuple):
    """Images or texts: unit vectors (N, K, D) of their regions or words, their mask (N, K), and the whole (N, D)."""

    vectors: Tensor
    mask: Tensor
    whole: Tensor


class WholePooling(nn.Module):
    """Pools a set of vectors into one unit vector by attention, with their mean as the query.

        v̄ = Σ_i α_i v_i,   α = softmax_i(w · (tanh(BN(W_1 v_i)) ∘ tanh(BN(W_2 Σ_k v_k / K))))

    Texts have no batch norm (`norm`), as in the released code. The released code normalises each of the 36 positions in the list of
    regions; here each dimension is normalised over all regions, so that images may have fewer regions. Source: diao2021sgraf, sec.
    "Generic Representation Extraction"; released code.
    """

    def __init__(self, dimensions: int, dropout: float, norm: bool) -> None:
        super().__init__()
        self.one, self.all = nn.Linear(dimensions, dimensions), nn.Linear(dimensions, dimensions)
        self.one_norm, self.all_norm = (nn.BatchNorm1d(dimensions) if norm else None for _ in range(2))
        self.weight, self.dropout = nn.Linear(dimensions, 1), nn.Dropout(dropout)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        query = self._activate(self.all(masked_mean(vectors, mask)), self.all_norm)
        keys = torch.zeros_like(vectors)
        keys[mask] = self._activate(self.one(vectors[mask]), self.one_norm)
        logits = self.weight(keys * query.unsqueeze(1)).squeeze(2).masked_fill(~mask, MASKED_LOGIT)
        return normalize((logits.softmax(dim=1) * mask).unsqueeze(1).matmul(vectors).squeeze(1))

    def _activate(self, vectors: Tensor, norm: nn.BatchNorm1d | None) -> Tensor:
        if norm is not None and (not norm.training or len(vectors) > 1):  # a single vector has no variance
            vectors = norm(vectors)
        activated: Tensor = self.dropout(vectors.tanh())
        return activated


class SimilarityReasoning(nn.Module):
    """One step of SGR. W_out has no bias, because it would cancel out in the softmax."""

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(dimensions, dimensions), nn.Linear(dimensions, dimensions, bias=False)
        self.onward = nn.Linear(dimensions, dimensions)

    def forward(self, nodes: Tensor, mask: Tensor, count: int | None = None) -> Tensor:
        """New similarity vectors (…, N, S) of the first `count` nodes, or of all; `mask` is (…, N)."""
        queries = F.linear(nodes[..., :count, :], self.out.weight.T @ self.into.weight, self.out.weight.T @ self.into.bias)
        edges = (queries @ nodes.mT).masked_fill(~mask.unsqueeze(-2), MASKED_LOGIT).softmax(dim=-1)
        return F.relu(self.onward(edges @ nodes))


class AttentionFiltration(nn.Module):
    """SAF. Batch norm runs over all images and words of one caption, as in the released code.

    The batch statistics are constants in the backward pass, so that only pairs with a gradient are recomputed. The running
    statistics for evaluation take one step per batch, towards the mean of its captions; in the released code they take one step
    per caption and thus reflect little but the last batch. Variances are biased here, unbiased there.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.weight = nn.Linear(dimensions, 1)
        self.scale, self.shift = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))
        self.moments: Tensor
        self.register_buffer("moments", torch.tensor([0.0, 1.0]))  # running mean and variance, for evaluation

    def forward(self, nodes: Tensor, mask: Tensor, moments: Tensor) -> Tensor:
        """One vector (…, S) of the nodes (…, N, S) with mask (…, N); `moments` (…, 2) are mean and variance."""
        mean, variance = moments.unsqueeze(-2).unbind(dim=-1)
        logits = (self.weight(nodes).squeeze(-1) - mean) * (variance + EPSILON).rsqrt() * self.scale + self.shift
        weights = logits.sigmoid() * mask
        return normalize((weights.unsqueeze(-2) @ nodes).squeeze(-2))

    def measure(self, nodes: Tensor, mask: Tensor) -> Tensor:
        """Mean and variance for each text: (m, 2), from its nodes (n, m, N, S) with n images."""
        values, number = self.weight(nodes).squeeze(-1), len(nodes) * mask[0].sum(dim=-1)
        mean = (values * mask).sum(dim=(0, 2)) / number
        return torch.stack([mean, ((values - mean[:, None]).square() * mask).sum(dim=(0, 2)) / number], dim=1)

    def update_moments(self, moments: Tensor) -> None:
        """Move the running statistics towards the mean of these moments."""
        self.moments.lerp_(moments.mean(dim=0), MOMENTUM)


class SimilarityScorer(nn.Module):
    """Computes the similarity vectors of images with texts, and one score from each pair's vectors."""

    def __init__(self, config: SGRAFConfig) -> None:
        super().__init__()
        self.temperature, self.leak = config.temperature, config.leak
        size, small = config.dimensions, config.similarity_dimensions
        self.local, self.whole, self.score = nn.Linear(size, small), nn.Linear(size, small), nn.Linear(small, 1)
        self.reasoning = (
            nn.ModuleList([SimilarityReasoning(small) for _ in range(config.steps)]) if config.module == "sgr" else None
        )
        self.filtration = AttentionFiltration(small) if config.module == "saf" else None

    def alignments(
        self, regions: Tensor, region_mask: Tensor, image: Tensor, words: Tensor, word_mask: Tensor, text: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Similarity vectors of n images with m texts each, (n, m, 1 + L, S), the whole first; and their mask.

        Images are (n, K, D), (n, K) and (n, D), texts (n or 1, m, L, D), (n or 1, m, L) and (n or 1, m, D).
        """
        shape = len(regions), *words.shape[1:3]
        dots = (regions @ words.flatten(1, 2).mT).view(*regions.shape[:2], *shape[1:])
        weight = attention_weights(dots, region_mask, word_mask, self.temperature, self.leak)
        _, length = attended_products(dots, weight, regions @ regions.mT)
        attended = ((weight / length.unsqueeze(1)).flatten(2).mT @ regions).view(*shape, regions.shape[2])
        local, whole = self.local((attended - words).square()), self.whole((image[:, None] - text).square())
        return normalize(torch.cat([whole.unsqueeze(2), local], dim=2)), F.pad(word_mask, (1, 0), value=True)

    def moments(self, texts: int) -> Tensor:
        """Running mean and variance of the filtration, repeated for each text: (texts, 2)."""
        return torch.zeros(texts, 2) if self.filtration is None else self.filtration.moments.repeat(texts, 1)

    def forward(self, nodes: Tensor, mask: Tensor, moments: Tensor) -> Tensor:
        """Scores (…) from similarity vectors (…, N, S), their mask (…, N), and the filtration's moments (…, 2)."""
        if self.reasoning is not None:
            last = len(self.reasoning) - 1
            for number, step in enumerate(self.reasoning):
                nodes = step(nodes, mask, count=1 if number == last else None)  # only the first node is scored
            vector = nodes.squeeze(-2)
        elif self.filtration is not None:
            vector = self.filtration(nodes, mask, moments)
        scores: Tensor = self.score(vector).squeeze(-1).sigmoid()
        return scores


class SGRAF(nn.Module):
    """Regions through a linear map and words through a bidirectional GRU, as in SCAN; then SGR or SAF."""

    def __init__(self, config: SGRAFConfig) -> None:
        super().__init__()
        self.config = config
        self.image = nn.Linear(config.features, config.dimensions)
        self.image_whole = WholePooling(config.dimensions, config.dropout, norm=True)
        self.word_vectors, self.dropout = WordVectors(config.words, config.word_dimensions), nn.Dropout(config.dropout)
        self.text = BiGRU(config.word_dimensions, config.dimensions)
        self.text_whole = WholePooling(config.dimensions, config.dropout, norm=False)
        self.compare = SimilarityScorer(config)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def images(self, regions: Regions) -> PartsAndWhole:
        """Vectors of the regions, and of the whole image."""
        vectors = normalize(self.image(regions.features)) * regions.mask.unsqueeze(2)
        return PartsAndWhole(vectors, regions.mask, self.image_whole(vectors, regions.mask))

    def texts(self, words: Words) -> PartsAndWhole:
        """Vectors of the words, and of the whole text."""
        vectors = normalize(self.text(self.dropout(self.word_vectors(words)), words.mask))
        return PartsAndWhole(vectors, words.mask, self.text_whole(vectors, words.mask))

    def similarity(self, images: PartsAndWhole, texts: PartsAndWhole) -> Tensor:
        """Score every image with every text: (I, T), from 0 to 1. `block` bounds the memory, also in the backward pass."""
        pair_bytes = COPIES * texts.vectors.shape[1] * self.config.dimensions * images.vectors.element_size()
        pairs_per_step = max(1, self.config.block // pair_bytes)
        if len(images.mask) > pairs_per_step and not self.training:  # in training, batch norm needs all images of a batch
            cuts = (slice(at, at + pairs_per_step) for at in range(0, len(images.mask), pairs_per_step))
            return torch.cat([self.similarity(PartsAndWhole(*(values[cut] for values in images)), texts) for cut in cuts])
        compare = self.compare
        groups = group_by_length(texts.mask.sum(dim=1), pairs_per_step // max(1, len(images.mask)))
        filtration = compare.filtration if self.training else None
        moments = compare.moments(len(texts.mask)).to(images.vectors)

        def align(which: Tensor, v: Tensor, v_whole: Tensor, w: Tensor, w_whole: Tensor) -> tuple[Tensor, Tensor]:
            words, word_mask = trim_padding(w[which], texts.mask[which])
            return compare.alignments(v, images.mask, v_whole, words[None], word_mask[None], w_whole[which][None])

        def matrix(*inputs: Tensor) -> Tensor:
            out = inputs[0].new_empty(len(images.mask), len(texts.mask))
            for which in groups:
                nodes, mask = align(which, *inputs)
                if filtration is not None:
                    moments[which] = filtration.measure(nodes, mask)
                out[:, which] = compare(nodes, mask, moments[which])
            if filtration is not None and groups:
                filtration.update_moments(moments)
            return out

        def columns(which: Tensor, *inputs: Tensor) -> Tensor:
            scores: Tensor = compare(*align(which, *inputs), moments[which])
            return scores

        def pairs(left: Tensor, right: Tensor, v: Tensor, v_whole: Tensor, w: Tensor, w_whole: Tensor) -> Tensor:
            words, word_mask = trim_padding(w[right], texts.mask[right])
            image_parts = PartsAndWhole(v[left], images.mask[left], v_whole[left])
            return self._score_pairs(image_parts, PartsAndWhole(words, word_mask, w_whole[right]), moments[right])

        work = PairwiseScores(matrix, columns, pairs, groups, pairs_per_step, tuple(compare.parameters()))
        return work.scores(images.vectors, images.whole, texts.vectors, texts.whole)

    def pair_similarity(self, images: PartsAndWhole, texts: PartsAndWhole) -> Tensor:
        """Score image n with text n: (N,)."""
        return self._score_pairs(images, texts, self.compare.moments(len(texts.mask)))

    def _score_pairs(self, images: PartsAndWhole, texts: PartsAndWhole, moments: Tensor) -> Tensor:
        nodes, mask = self.compare.alignments(*images, *(values[:, None] for values in texts))
        scores: Tensor = self.compare(nodes, mask, moments[:, None])[:, 0]
        return scores
