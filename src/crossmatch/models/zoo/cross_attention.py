"""SCAN's similarity: words that attend to regions (t2i), or regions that attend to words (i2t). lee2018scan, sec. 3.1.

    s_ij = cos(v_i, e_j),    s̄_ij = [s_ij]₊ / √Σ_q [s_ij]₊²                        eq. 1; the sum is over the queries q
    a_q = Σ_s α_qs x_s,      α_q = softmax_s(λ₁ s̄_qs)                              eq. 2 and 3
    R_q = cos(x_q, a_q)                                                            eq. 4
    S = 1/Q · Σ_q R_q (mean),   Σ_q R_q (sum),   max_q R_q (max),   1/λ₂ · log Σ_q exp(λ₂ R_q) (lse)     eq. 5 and 6

In i2t the queries are regions and the sources words; in t2i the queries are words and the sources regions.

No a_q is made: with G the dot products of the sources, R_q = Σ_s α_qs x_q·x_s / √(α_q G α_q). The length of α_q cancels out, so
that it need not sum to 1. What is left is one matrix product of all regions with all words, and few operations on each number.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from crossmatch.core.arrays import IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models.zoo.pairwise import Pairwise, alike, trimmed

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

DIRECTIONS, AGGREGATIONS = ("t2i", "i2t"), ("mean", "sum", "max", "lse")
BLOCK = 32 << 20  # bytes of dot products at once: about a last-level cache
COPIES = 8  # of the dot products that torch has at once, with what it keeps for the backward pass
TINY = 1e-6  # a length below is none: it is what rounding in float32 leaves of zero
NEVER = -1e4  # the logit of what is not there
STEEPEST = 30.0  # λ₁ up to which exponentials and their squares fit into float32 as they are
SHARES = 4  # parts of a block for each thread, so that one that is held up does not hold up all
MANY = 1_000_000  # dot products; below, numba's start costs more than it saves


@dataclass(frozen=True)
class Attention:
    """What is free in the equations: λ₁ is `temperature`, λ₂ `sharpness`.

    [x]₊ is max(0, x) as in the paper; with a `leak` of 0.1 it is max(0.1 x, x) as in the released code.
    Published for COCO (released code of lee2018scan): t2i with λ₁ = 9, and λ₂ = 6 for lse; i2t with λ₁ = 4, and λ₂ = 20 for lse.
    """

    direction: Literal["t2i", "i2t"] = "t2i"
    aggregation: Literal["mean", "sum", "max", "lse"] = "mean"
    temperature: float = 9.0
    sharpness: float = 6.0
    leak: float = 0.0

    def __post_init__(self) -> None:
        for name, known in (("direction", DIRECTIONS), ("aggregation", AGGREGATIONS)):
            if getattr(self, name) not in known:
                raise WrongWords(f"{name} is {getattr(self, name)!r}; one of {', '.join(known)} was expected.")
        fine = math.isfinite(self.temperature) and math.isfinite(self.sharpness)
        if not (fine and self.temperature >= 0 and self.sharpness > 0 and 0 <= self.leak < 1):
            raise WrongWords(
                f"temperature is {self.temperature}, sharpness {self.sharpness} and leak {self.leak}; a number from 0, one above "
                "0, and one from 0 to below 1 were expected."
            )


# -- every image with every text, image n with text n, region by region


def similarity(
    regions: Tensor,
    region_real: Tensor,
    words: Tensor,
    word_real: Tensor,
    attention: Attention,
    *,
    block: int = BLOCK,
    compiled: bool | None = None,
) -> Tensor:
    """Every image with every text: (I, T), from unit vectors (I, K, D) and (T, L, D); `real` tells them from filling.

    Nothing positive: a source that no query is like has s̄ = 0 with all of them (the paper has 0/0), and a query attends equally to
    sources that it is equally like. A zero vector, and an attended vector of length 0, have the cosine 0. An image without regions
    and a text without words have the similarity 0 with all.

    `block` is the bytes of dot products that are there at once; it bounds the memory, in the backward pass too. `compiled` chooses
    numba (the default where it is installed, vectors are float32, and the work is worth its start) or torch.

    >>> dog, ball, sky = torch.eye(3)
    >>> pictures = torch.stack([torch.stack([dog, sky]), torch.stack([ball, sky])])
    >>> texts, real = torch.stack([dog, ball])[:, None], torch.ones(2, 2, dtype=torch.bool)
    >>> similarity(pictures, real, texts, real[:, :1], Attention("t2i")).round(decimals=3)
    tensor([[1., 0.], [0., 1.]])
    """
    if attention.direction == "t2i":
        return _scores(regions, region_real, words, word_real, attention, block, compiled)
    return _scores(words, word_real, regions, region_real, attention, block, compiled).T


def paired(regions: Tensor, region_real: Tensor, words: Tensor, word_real: Tensor, attention: Attention) -> Tensor:
    """Image n with text n: (N,), the diagonal of `similarity`."""
    if attention.direction == "t2i":
        return _paired(regions, region_real, words, word_real, attention)
    return _paired(words, word_real, regions, region_real, attention)


def grounded(regions: Tensor, region_real: Tensor, words: Tensor, word_real: Tensor, attention: Attention) -> Tensor:
    """How much text n is grounded in each region of image n: (N, K), the R_q of i2t, whichever the model's direction is.

    Of `attention` λ₁ and the leak are used. 0 where a region is filling. Source: jiang2019tiger, eq. 1 to 6.
    """
    return _one_by_one(words, word_real, regions, region_real, attention) * region_real


# -- the equations in torch


def weights(dots: Tensor, source_real: Tensor, query_real: Tensor, temperature: float, leak: float) -> Tensor:
    """α, how much each query attends to each source: (n, S, m, Q). It sums to 1 over the sources, to 0 where there are none.

    `dots` (n, S, m, Q) are those of n sets of sources with m sets of queries; `source_real` is (n, S), `query_real` (n or 1, m, Q).
    """
    clipped = torch.where(dots > 0, dots, leak * dots)
    length = (clipped * query_real.unsqueeze(1)).square().sum(dim=3, keepdim=True).clamp(min=TINY**2).sqrt()
    logits = (clipped * (temperature / length)).masked_fill(~source_real[:, :, None, None], NEVER)
    return logits.softmax(dim=1) * source_real[:, :, None, None]


def attended(dots: Tensor, weight: Tensor, gram: Tensor) -> tuple[Tensor, Tensor]:
    """The dot product of each query with what it attends to, and the length of that: (n, m, Q) each.

    `gram` (n, S, S) are the dot products of the sources with each other.
    """
    inner = (gram @ weight.flatten(2)).view_as(weight)
    return (weight * dots).sum(dim=1), (weight * inner).sum(dim=1).clamp(min=TINY**2).sqrt()


def aggregated(cosines: Tensor, real: Tensor, aggregation: str, sharpness: float) -> Tensor:
    """The R_q of each set of queries as one number, along the last axis; 0 where there are none.

    >>> aggregated(torch.tensor([0.5, 0.1, 9.0]), torch.tensor([True, True, False]), "mean", 1.0)
    tensor(0.3000)
    """
    if aggregation in ("mean", "sum"):
        total = (cosines * real).sum(dim=-1)
        return total / real.sum(dim=-1).clamp(min=1) if aggregation == "mean" else total
    there = cosines.masked_fill(~real, NEVER)
    found = there.amax(dim=-1) if aggregation == "max" else (sharpness * there).logsumexp(dim=-1) / sharpness
    return found.where(real.any(dim=-1), 0.0)


def _together(source: Tensor, source_real: Tensor, query: Tensor, query_real: Tensor, attention: Attention) -> Tensor:
    """Every set of sources with every set of queries, in one go: (n, m)."""
    dots = source.flatten(0, 1) @ query.flatten(0, 1).T
    dots = dots.view(*source.shape[:2], *query.shape[:2])
    cosines = _cosines(dots, source, source_real, query_real[None], attention)
    found = aggregated(cosines, query_real, attention.aggregation, attention.sharpness)
    return found * source_real.any(dim=1, keepdim=True)


def _one_by_one(source: Tensor, source_real: Tensor, query: Tensor, query_real: Tensor, attention: Attention) -> Tensor:
    """R_q of each query of set n with the sources of set n: (n, Q)."""
    return _cosines((source @ query.mT).unsqueeze(2), source, source_real, query_real[:, None], attention)[:, 0]


def _paired(source: Tensor, source_real: Tensor, query: Tensor, query_real: Tensor, attention: Attention) -> Tensor:
    """Set n with set n: (n,)."""
    cosines = _one_by_one(source, source_real, query, query_real, attention)
    return aggregated(cosines, query_real, attention.aggregation, attention.sharpness) * source_real.any(dim=1)


def _cosines(dots: Tensor, source: Tensor, source_real: Tensor, query_real: Tensor, attention: Attention) -> Tensor:
    weight = weights(dots, source_real, query_real, attention.temperature, attention.leak)
    along, length = attended(dots, weight, source @ source.mT)
    return along / length


# -- all pairs, a block at a time


def _scores(
    source: Tensor,
    source_real: Tensor,
    query: Tensor,
    query_real: Tensor,
    attention: Attention,
    block: int,
    compiled: bool | None,
) -> Tensor:
    """Every set of sources with every set of queries: (n, m)."""
    loops = _loops(source, query, attention, compiled)

    def matrix(s: Tensor, q: Tensor) -> Tensor:
        if loops is not None:
            return _compiled(loops, s, source_real, q, query_real, attention, block)
        return _in_torch(s, source_real, q, query_real, attention, block)

    def columns(which: Tensor, s: Tensor, q: Tensor) -> Tensor:
        return _together(s, source_real, *trimmed(q[which], query_real[which]), attention)

    def pairs(sources: Tensor, queries: Tensor, s: Tensor, q: Tensor) -> Tensor:
        left, right = trimmed(s[sources], source_real[sources]), trimmed(q[queries], query_real[queries])
        return _paired(*left, *right, attention)

    each = COPIES * _bytes(source, query)
    gathered = (source[0:1].numel() + query[0:1].numel()) * source.element_size() * 2
    parts = alike(query_real.sum(dim=1), block // max(1, each * len(source)))
    return Pairwise(matrix, columns, pairs, parts, block // max(1, each + gathered)).scores(source, query)


def _in_torch(source: Tensor, source_real: Tensor, query: Tensor, query_real: Tensor, attention: Attention, block: int) -> Tensor:
    """`_together` for some of the sources and queries at a time, those with like numbers together."""
    out = source.new_zeros(len(source), len(query))
    side = max(1, math.isqrt(block // max(1, COPIES * _bytes(source, query))))
    for rows in alike(source_real.sum(dim=1), side):
        left = trimmed(source[rows], source_real[rows])
        for columns in alike(query_real.sum(dim=1), side):
            found = _together(*left, *trimmed(query[columns], query_real[columns]), attention)
            out[rows[:, None], columns] = found
    return out


def _compiled(
    loops: Any, source: Tensor, source_real: Tensor, query: Tensor, query_real: Tensor, attention: Attention, block: int
) -> Tensor:
    """The same by a matrix product without filling, and a compiled loop over what it gives, with as many threads as torch has."""
    left, right = _flat(source, source_real), _flat(query, query_real)
    begin, start = _begins(source_real), _begins(query_real)
    place = source_real.nonzero()[:, 1].numpy()
    kind = AGGREGATIONS.index(attention.aggregation)
    options = (*map(np.float32, (attention.temperature, attention.leak, attention.sharpness, TINY)), kind)
    out = np.zeros((len(source), len(query)), dtype=np.float32)
    side, threads = math.isqrt(block // 4), torch.get_num_threads()
    tall, wide = (max((int(b[last] - b[first]) for first, last in _cuts(b, side)), default=0) for b in (begin, start))
    room = torch.empty(tall * wide)  # memory that is new each time costs more than what is done with it
    with ThreadPoolExecutor(threads) as pool:
        for top, bottom in _cuts(begin, side):
            mine, own = left[begin[top] : begin[bottom]], source[top:bottom]
            gram = (own @ own.mT).numpy()
            given = gram, place[begin[top] : begin[bottom]], begin[top : bottom + 1] - begin[top]
            for first, last in _cuts(start, side):
                yours = right[start[first] : start[last]]
                dots = torch.mm(mine, yours.T, out=room[: len(mine) * len(yours)].view(len(mine), len(yours))).numpy()
                there, filled = start[first : last + 1] - start[first], out[top:bottom, first:last]
                share = np.linspace(0, last - first, SHARES * threads + 1 if threads > 1 else 2).astype(np.int64)
                parts = [(dots, *given, there, options, a, b, filled) for a, b in pairwise(share.tolist())]
                list(pool.map(lambda part: loops.scores(*part), parts))
    return torch.from_numpy(out)


def _loops(source: Tensor, query: Tensor, attention: Attention, compiled: bool | None) -> Any:
    """The compiled loops, where they are asked for, or can be had and are worth it."""
    able = source.dtype == query.dtype == torch.float32 and source.device.type == "cpu" and attention.temperature <= STEEPEST
    many = len(source) * len(query) * _bytes(source, query) >= MANY * source.element_size()
    if compiled is False or (compiled is None and not (able and many)):
        return None
    try:
        from crossmatch.models.zoo import attention_kernels
    except ImportError:
        attention_kernels = None  # type: ignore[assignment]
    if compiled and (attention_kernels is None or not able):
        raise CrossmatchError(
            f"the compiled path needs numba, float32 on a CPU and a temperature up to {STEEPEST:g}. Install numba with: pip "
            "install 'crossmatch[fast]', or leave the choice open."
        )
    return attention_kernels


def _bytes(source: Tensor, query: Tensor) -> int:
    """Of the dot products of one pair."""
    return source.shape[1] * query.shape[1] * source.element_size()


def _flat(vectors: Tensor, real: Tensor) -> Tensor:
    """The real vectors of all sets, one after the other: (n, D)."""
    return vectors.flatten(0, 1) if bool(real.all()) else vectors[real]


def _begins(real: Tensor) -> IntArray:
    """Where each set begins in `_flat`, and the end."""
    return np.concatenate([[0], np.cumsum(real.sum(dim=1).numpy())]).astype(np.int64)


def _cuts(begin: IntArray, most: int) -> list[tuple[int, int]]:
    """Sets one after the other, in parts with at most so many members, unless one set has more.

    >>> _cuts(np.array([0, 3, 6, 9, 19]), 6)
    [(0, 2), (2, 3), (3, 4)]
    """
    cuts, first = [], 0
    while first < len(begin) - 1:
        last = max(first + 1, int(np.searchsorted(begin, begin[first] + most, side="right")) - 1)
        cuts.append((first, last))
        first = last
    return cuts
