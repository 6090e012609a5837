"""SCAN's similarity: words attend to regions (t2i), or regions attend to words (i2t). Source: lee2018scan, sec. 3.1.

    s_ij = cos(v_i, e_j),    s̄_ij = [s_ij]₊ / √Σ_q [s_ij]₊²                        eq. 1; the sum is over the queries q
    a_q = Σ_s α_qs x_s,      α_q = softmax_s(λ₁ s̄_qs)                              eq. 2 and 3
    R_q = cos(x_q, a_q)                                                            eq. 4
    S = 1/Q · Σ_q R_q (mean),   Σ_q R_q (sum),   max_q R_q (max),   1/λ₂ · log Σ_q exp(λ₂ R_q) (lse)     eq. 5 and 6

In i2t the queries are regions and the sources words; in t2i the queries are words and the sources regions.

The a_q are never computed: with G the dot products of the sources, R_q = Σ_s α_qs x_q·x_s / √(α_q G α_q). The length of α_q cancels
out, so it need not sum to 1. The remaining work is one matrix product of all regions with all words, and few operations per number.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from crossmatch.data.arrays import IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.models.zoo.layers import SHARE
from crossmatch.models.zoo.pairwise import PairwiseScores, group_by_length, trim_padding

AGGREGATIONS = ("mean", "sum", "max", "lse")  # in the order of the numbers in `attention_kernels`
BLOCK = 32 << 20  # bytes of dot products in memory at once: about a last-level cache
COPIES = 8  # of the dot products that torch has in memory at once, including the backward pass
TINY = 1e-6  # lengths below this count as 0, because rounding in float32 leaves about as much of zero
MASKED_LOGIT = -1e4
MAX_COMPILED_TEMPERATURE = 30.0  # λ₁ up to which exponentials and their squares fit into float32
SHARES_PER_THREAD = 4  # parts of a block per thread, so that a slow thread does not delay all others
MIN_COMPILED_DOTS = 1_000_000  # number of dot products below which starting numba costs more than it saves


@dataclass(frozen=True)
class AttentionOptions:
    """Options of the equations: λ₁ is `temperature`, λ₂ is `sharpness`.

    [x]₊ is max(0, x) as in the paper; with `leak` = 0.1 it is max(0.1 x, x) as in the released code.
    Published for COCO (released code of lee2018scan): t2i with λ₁ = 9, and λ₂ = 6 for lse; i2t with λ₁ = 4, and λ₂ = 20 for lse.
    """

    direction: Literal["t2i", "i2t"] = "t2i"
    aggregation: Literal["mean", "sum", "max", "lse"] = "mean"
    temperature: float = field(default=9.0, metadata={"least": 0})
    sharpness: float = field(default=6.0, metadata={"above": 0})
    leak: float = field(default=0.0, metadata=SHARE)


# -- public functions


def similarity(
    regions: Tensor,
    region_mask: Tensor,
    words: Tensor,
    word_mask: Tensor,
    attention: AttentionOptions,
    *,
    block: int = BLOCK,
    compiled: bool | None = None,
) -> Tensor:
    """Score every image with every text: (I, T).

    Conventions: a source without a positive cosine has s̄ = 0 with all queries (0/0 in the paper). A zero vector, and an attended
    vector of length 0, have the cosine 0. An image without regions and a text without words score 0 with everything.

    Args:
        regions: Unit vectors (I, K, D).
        region_mask: (I, K), False at padding.
        words: Unit vectors (T, L, D).
        word_mask: (T, L), False at padding.
        attention: Direction, aggregation and temperatures.
        block: Bytes of dot products in memory at once; bounds the memory, also in the backward pass.
        compiled: True for numba, False for torch. By default numba is used if it is installed, the vectors are float32, and the
            work outweighs its start-up time.

    >>> dog, ball, sky = torch.eye(3)
    >>> pictures = torch.stack([torch.stack([dog, sky]), torch.stack([ball, sky])])
    >>> texts, mask = torch.stack([dog, ball])[:, None], torch.ones(2, 2, dtype=torch.bool)
    >>> similarity(pictures, mask, texts, mask[:, :1], AttentionOptions("t2i")).round(decimals=3)
    tensor([[1., 0.], [0., 1.]])
    """
    source, source_mask, query, query_mask = regions, region_mask, words, word_mask
    if attention.direction == "i2t":
        source, source_mask, query, query_mask = words, word_mask, regions, region_mask
    kernels = _choose_kernels(source, query, attention, compiled)
    in_blocks = _scores_in_torch if kernels is None else partial(_compiled_scores, kernels)

    def columns(which: Tensor, s: Tensor, q: Tensor) -> Tensor:
        return _dense_scores(s, source_mask, *trim_padding(q[which], query_mask[which]), attention)

    def pairs(sources: Tensor, queries: Tensor, s: Tensor, q: Tensor) -> Tensor:
        left, right = trim_padding(s[sources], source_mask[sources]), trim_padding(q[queries], query_mask[queries])
        return _pair_scores(*left, *right, attention)

    pair_bytes = COPIES * _dot_bytes(source, query)
    gathered_bytes = (source[0:1].numel() + query[0:1].numel()) * source.element_size() * 2
    work = PairwiseScores(
        matrix=partial(in_blocks, source_mask=source_mask, query_mask=query_mask, attention=attention, block=block),
        columns=columns,
        pairs=pairs,
        parts=group_by_length(query_mask.sum(dim=1), block // max(1, pair_bytes * len(source))),
        pairs_per_step=block // max(1, pair_bytes + gathered_bytes),
    )
    scores = work.scores(source, query)
    return scores if attention.direction == "t2i" else scores.T


def pair_similarity(regions: Tensor, region_mask: Tensor, words: Tensor, word_mask: Tensor, attention: AttentionOptions) -> Tensor:
    """Score image n with text n: (N,), the diagonal of `similarity`."""
    if attention.direction == "t2i":
        return _pair_scores(regions, region_mask, words, word_mask, attention)
    return _pair_scores(words, word_mask, regions, region_mask, attention)


def region_grounding(regions: Tensor, region_mask: Tensor, words: Tensor, word_mask: Tensor, attention: AttentionOptions) -> Tensor:
    """Grounding of text n in each region of image n, (N, K): the R_q of i2t, independent of the model's direction.

    Uses λ₁ and the leak of `attention`. 0 at padding. Source: jiang2019tiger, eq. 1 to 6.
    """
    return _pair_cosines(words, word_mask, regions, region_mask, attention) * region_mask


# -- the equations in torch


def attention_weights(dots: Tensor, source_mask: Tensor, query_mask: Tensor, temperature: float, leak: float) -> Tensor:
    """Attention weights α of each query over the sources: (n, S, m, Q). They sum to 1 over the sources, or are all 0.

    Args:
        dots: Dot products (n, S, m, Q) of n sets of sources with m sets of queries.
        source_mask: (n, S).
        query_mask: (n or 1, m, Q).
        temperature: λ₁.
        leak: Slope of [x]₊ below 0.
    """
    clipped = torch.where(dots > 0, dots, leak * dots)
    length = (clipped * query_mask.unsqueeze(1)).square().sum(dim=3, keepdim=True).clamp(min=TINY**2).sqrt()
    logits = (clipped * (temperature / length)).masked_fill(~source_mask[:, :, None, None], MASKED_LOGIT)
    return logits.softmax(dim=1) * source_mask[:, :, None, None]


def attended_products(dots: Tensor, weight: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """Dot product of each query with its attended vector, and the length of that vector: (n, m, Q) each.

    `gram` (n, S, S) contains the dot products of the sources with each other.
    """
    inner = (gram @ weight.flatten(2)).view_as(weight)
    return (weight * dots).sum(dim=1), (weight * inner).sum(dim=1).clamp(min=TINY**2).sqrt()


def aggregate(cosines: Tensor, mask: Tensor, aggregation: str, sharpness: float) -> Tensor:
    """Reduce the R_q of each set of queries to one number, along the last axis; 0 for an empty set.

    >>> aggregate(torch.tensor([0.5, 0.1, 9.0]), torch.tensor([True, True, False]), "mean", 1.0)
    tensor(0.3000)
    """
    if aggregation in ("mean", "sum"):
        total = (cosines * mask).sum(dim=-1)
        return total / mask.sum(dim=-1).clamp(min=1) if aggregation == "mean" else total
    masked = cosines.masked_fill(~mask, MASKED_LOGIT)
    values = masked.amax(dim=-1) if aggregation == "max" else (sharpness * masked).logsumexp(dim=-1) / sharpness
    return values.where(mask.any(dim=-1), 0.0)


def _dense_scores(source: Tensor, source_mask: Tensor, query: Tensor, query_mask: Tensor, attention: AttentionOptions) -> Tensor:
    """Score every set of sources with every set of queries, without blocks: (n, m)."""
    dots = source.flatten(0, 1) @ query.flatten(0, 1).T
    dots = dots.view(*source.shape[:2], *query.shape[:2])
    cosines = _cosines(dots, source, source_mask, query_mask[None], attention)
    scores = aggregate(cosines, query_mask, attention.aggregation, attention.sharpness)
    return scores * source_mask.any(dim=1, keepdim=True)


def _pair_cosines(source: Tensor, source_mask: Tensor, query: Tensor, query_mask: Tensor, attention: AttentionOptions) -> Tensor:
    """R_q of each query of set n with the sources of set n: (n, Q)."""
    return _cosines((source @ query.mT).unsqueeze(2), source, source_mask, query_mask[:, None], attention)[:, 0]


def _pair_scores(source: Tensor, source_mask: Tensor, query: Tensor, query_mask: Tensor, attention: AttentionOptions) -> Tensor:
    """Score set n of sources with set n of queries: (n,)."""
    cosines = _pair_cosines(source, source_mask, query, query_mask, attention)
    return aggregate(cosines, query_mask, attention.aggregation, attention.sharpness) * source_mask.any(dim=1)


def _cosines(dots: Tensor, source: Tensor, source_mask: Tensor, query_mask: Tensor, attention: AttentionOptions) -> Tensor:
    weight = attention_weights(dots, source_mask, query_mask, attention.temperature, attention.leak)
    along, length = attended_products(dots, weight, source @ source.mT)
    return along / length


# -- all pairs, in blocks


def _scores_in_torch(
    source: Tensor, query: Tensor, *, source_mask: Tensor, query_mask: Tensor, attention: AttentionOptions, block: int
) -> Tensor:
    """`_dense_scores` in blocks of sources and queries of similar sizes."""
    out = source.new_zeros(len(source), len(query))
    side = max(1, math.isqrt(block // max(1, COPIES * _dot_bytes(source, query))))
    for rows in group_by_length(source_mask.sum(dim=1), side):
        left = trim_padding(source[rows], source_mask[rows])
        for columns in group_by_length(query_mask.sum(dim=1), side):
            scores = _dense_scores(*left, *trim_padding(query[columns], query_mask[columns]), attention)
            out[rows[:, None], columns] = scores
    return out


def _compiled_scores(
    kernels: Any, source: Tensor, query: Tensor, *, source_mask: Tensor, query_mask: Tensor, attention: AttentionOptions, block: int
) -> Tensor:
    """The same scores by a matrix product without padding and a compiled loop over it, with as many threads as torch uses."""
    flat_sources, flat_queries = _drop_padding(source, source_mask), _drop_padding(query, query_mask)
    source_begin, query_begin = _set_begins(source_mask), _set_begins(query_mask)
    position = source_mask.nonzero()[:, 1].numpy()
    kind = AGGREGATIONS.index(attention.aggregation)
    options = (*map(np.float32, (attention.temperature, attention.leak, attention.sharpness, TINY)), kind)
    out = np.zeros((len(source), len(query)), dtype=np.float32)
    side, threads = math.isqrt(block // 4), torch.get_num_threads()
    begins = source_begin, query_begin
    height, width = (max((int(b[last] - b[first]) for first, last in _split_sets(b, side)), default=0) for b in begins)
    buffer = torch.empty(height * width)  # reused, because allocating it for each block costs more than the computation
    with ThreadPoolExecutor(threads) as pool:
        for top, bottom in _split_sets(source_begin, side):
            sources, source_sets = flat_sources[source_begin[top] : source_begin[bottom]], source[top:bottom]
            gram = (source_sets @ source_sets.mT).numpy()
            source_positions = position[source_begin[top] : source_begin[bottom]]
            source_starts = source_begin[top : bottom + 1] - source_begin[top]
            for first, last in _split_sets(query_begin, side):
                queries = flat_queries[query_begin[first] : query_begin[last]]
                shape = len(sources), len(queries)
                dots = torch.mm(sources, queries.T, out=buffer[: shape[0] * shape[1]].view(shape)).numpy()
                query_starts, block_out = query_begin[first : last + 1] - query_begin[first], out[top:bottom, first:last]
                cuts = np.linspace(0, last - first, SHARES_PER_THREAD * threads + 1 if threads > 1 else 2).astype(np.int64)
                shares = [
                    (dots, gram, source_positions, source_starts, query_starts, options, a, b, block_out)
                    for a, b in pairwise(cuts.tolist())
                ]
                list(pool.map(lambda share: kernels.scores(*share), shares))
    return torch.from_numpy(out)


def _choose_kernels(source: Tensor, query: Tensor, attention: AttentionOptions, compiled: bool | None) -> Any:
    """The compiled kernels, if they are requested, or available and worth their start-up time; else None."""
    is_supported = (
        source.dtype == query.dtype == torch.float32
        and source.device.type == "cpu"
        and attention.temperature <= MAX_COMPILED_TEMPERATURE
    )
    is_large = len(source) * len(query) * _dot_bytes(source, query) >= MIN_COMPILED_DOTS * source.element_size()
    if compiled is False or (compiled is None and not (is_supported and is_large)):
        return None
    try:
        from crossmatch.models.zoo import cross_attention_kernels
    except ImportError:
        cross_attention_kernels = None  # type: ignore[assignment]
    if compiled and (cross_attention_kernels is None or not is_supported):
        raise CrossmatchError(
            f"compiled=True needs numba (pip install 'crossmatch[fast]'), float32 tensors on a CPU and a temperature of at most "
            f"{MAX_COMPILED_TEMPERATURE:g}. Leave `compiled` out to use torch."
        )
    return cross_attention_kernels


def _dot_bytes(source: Tensor, query: Tensor) -> int:
    """Bytes of the dot products of one pair."""
    return source.shape[1] * query.shape[1] * source.element_size()


def _drop_padding(vectors: Tensor, mask: Tensor) -> Tensor:
    """Concatenate the vectors of all sets, without padding: (n, D)."""
    return vectors.flatten(0, 1) if bool(mask.all()) else vectors[mask]


def _set_begins(mask: Tensor) -> IntArray:
    """Start of each set in the result of `_drop_padding`, and the end."""
    return np.concatenate([[0], np.cumsum(mask.sum(dim=1).numpy())]).astype(np.int64)


def _split_sets(begin: IntArray, most: int) -> list[tuple[int, int]]:
    """Split consecutive sets into parts of at most `most` members; a larger set is a part of its own.

    >>> _split_sets(np.array([0, 3, 6, 9, 19]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    cuts, first = [], 0
    while first < len(begin) - 1:
        last = max(first + 1, int(np.searchsorted(begin, begin[first] + most, side="right")) - 1)
        cuts.append((first, last))
        first = last
    return cuts
