"""TIGEr: agreement of candidate and references about which image regions they describe, and how strongly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, log_softmax

from crossmatch.captions.corpus import CaptionCorpus, CaptionScores, ImageSource, open_image
from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.grounding import Grounder, Grounding, takes_image_ids
from crossmatch.data.io.progress import track

TAU = 1.5  # the value of the released code; the paper does not give τ
VARIANTS = ("paper", "released")
BATCH = 64  # images in a call of the grounder
ROUNDING_TOLERANCE = 1e-12  # relative to the total relevance; smaller differences of gains are rounding errors


@dataclass(frozen=True, eq=False)
class GroundingVectors:
    """Grounding vectors of all candidates and of their references, shape (candidates, regions), padded with NaN."""

    candidate: FloatArray  # s(V, C)
    reference: FloatArray  # s(V, R), the mean over the references


def tiger(
    corpus: CaptionCorpus,
    *,
    grounder: Grounder,
    images: ImageSource | None = None,
    tau: float = TAU,
    variant: str = "paper",
    batch: int = BATCH,
) -> tuple[CaptionScores, CaptionScores, CaptionScores]:
    """TIGEr, RRS and WDS of each candidate, and their means over candidates.

        TIGEr = (RRS + WDS) / 2

    The grounder gets the original captions. A candidate that is grounded exactly like its references has RRS 1 and WDS 1/2, so
    TIGEr 3/4; a higher value needs a candidate that is grounded more strongly. A candidate that is itself a reference should be
    compared with the other references only; see `leave_one_out`.

    `images` opens the image of an id. A grounder of precomputed regions takes the ids themselves and needs no images.

    τ belongs to WDS. The variant "released" scales the relevance in RRS to 0 … 1 as the released code does; see `rrs`.

    Source: jiang2019tiger, eq. 7 to 14.

    >>> class Words:                                                    # one region for each of these words
    ...     def ground(self, images, texts):
    ...         return Grounding(np.array([[float(word in text) for word in ("dog", "ball", "sky")] for text in texts]))
    >>> references = {"7": ["the dog", "a dog and a ball"], "8": ["a dog", "a ball"]}
    >>> corpus = CaptionCorpus.from_texts({"7": "a dog", "8": "the sky"}, references)
    >>> [scores.values.round(3) for scores in tiger(corpus, grounder=Words(), images={"7": None, "8": None})]
    [array([0.712, 0.616]), array([0.975, 0.693]), array([0.449, 0.538])]
    """
    vectors = ground_corpus(corpus, grounder=grounder, images=images, batch=batch)
    rank_similarity = rrs(vectors.candidate, vectors.reference, variant)
    weight_similarity = wds(vectors.candidate, vectors.reference, tau)
    mean = (rank_similarity + weight_similarity) / 2
    tiger_scores, rrs_scores, wds_scores = map(CaptionScores.from_mean, (mean, rank_similarity, weight_similarity))
    return tiger_scores, rrs_scores, wds_scores


def rrs(candidate: FloatArray, reference: FloatArray, variant: str = "paper") -> FloatArray:
    """Region rank similarity of candidate and references. Rows are images, columns their regions.

        RRS = DCG / IDCG,    DCG = Σ_k rel_k / log2(k + 1)

    Regions are in the candidate's order for DCG and in the references' order for IDCG. rel is the references' score; in the variant
    "released" it is (rel - min) / (max - min).

    Ties: regions with equal scores of the candidate share the mean discount of their ranks, which is the mean over all tie orders
    (mcsherry2008computing). Scores may be negative. If IDCG > 0 the ratio is clipped at 0 (the paper's range is 0 to 1). If
    IDCG <= 0 the value is the limit: 1 for an order as good as the ideal one, otherwise 0. So it is 1 with a single region, and if
    the references score all regions equally.

    Source: jiang2019tiger, eq. 8 to 10; jarvelin2002cumulated.

    >>> rrs(np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]]), np.array([[0.9, 0.1, 0.5], [0.9, 0.1, 0.5]])).round(4)
    array([1. , 0.842])
    """
    if variant not in VARIANTS:
        raise UsageError(f"tiger: unknown variant {variant!r}. Choose from: {', '.join(VARIANTS)}.")
    is_region = _require_same_regions(candidate, reference)
    relevance = np.where(is_region, reference, 0.0)
    if variant == "released":
        low = np.where(is_region, reference, np.inf).min(axis=1, keepdims=True)
        span = np.where(is_region, reference, -np.inf).max(axis=1, keepdims=True) - low
        relevance = np.where(is_region, reference - low, 0.0) / np.where(span > 0, span, 1.0)
    discount = 1 / np.log2(np.arange(2, is_region.shape[1] + 2))
    order = np.argsort(-candidate, axis=1, kind="stable")  # NaN last
    discounts = _mean_discounts(np.take_along_axis(candidate, order, axis=1), discount)
    dcg = (np.take_along_axis(relevance, order, axis=1) * discounts).sum(axis=1)
    ideal = -np.sort(np.where(is_region, -relevance, np.nan), axis=1)
    ideal_dcg = (np.where(np.isnan(ideal), 0.0, ideal) * discount).sum(axis=1)
    rounding = ROUNDING_TOLERANCE * np.abs(relevance).sum(axis=1)
    ratio = np.clip(dcg, 0.0, None) / np.where(ideal_dcg > rounding, ideal_dcg, np.inf)
    return np.where(ideal_dcg - dcg <= rounding, 1.0, ratio)


def _mean_discounts(ranked: FloatArray, discount: FloatArray) -> FloatArray:
    """The discount of each rank; ranks with equal scores share their mean."""
    starts_group = np.ones(ranked.shape, dtype=np.bool_)
    starts_group[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    group = np.cumsum(starts_group.ravel()) - 1
    totals = np.bincount(group, weights=np.broadcast_to(discount, ranked.shape).ravel())
    return np.asarray((totals / np.bincount(group))[group].reshape(ranked.shape))


def wds(candidate: FloatArray, reference: FloatArray, tau: float = TAU) -> FloatArray:
    """Weight distribution similarity of the attention of candidate and references over the regions.

        WDS = 1 - σ(τ D),    D = D_KL(softmax s(V, R) ‖ softmax s(V, C)) + log(‖s(V, R)‖ / ‖s(V, C)‖)

    D is negative, and WDS above 1/2, if the candidate is grounded more strongly than the references. Limits: WDS is 0 if all scores
    of the candidate are 0, 1 if only those of the references are 0, and 1/2 if both are 0.

    Source: jiang2019tiger, eq. 11 to 13.

    >>> wds(np.array([[0.9, 0.1], [0.9, 0.1], [0.0, 0.0]]), np.array([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])).round(4)
    array([0.5   , 0.3879, 0.    ])
    """
    if not (tau > 0 and np.isfinite(tau)):
        raise UsageError(f"tiger: tau must be a positive number, got {tau} (the released code uses {TAU}).")
    is_region = _require_same_regions(candidate, reference)
    log_q, log_p = (log_softmax(np.where(is_region, s, -np.inf), axis=1) for s in (candidate, reference))
    log_ratio = np.where(is_region, log_p, 0.0) - np.where(is_region, log_q, 0.0)
    divergence = np.maximum(0.0, (np.exp(log_p) * log_ratio).sum(axis=1))
    candidate_norm, reference_norm = (_log_norm(np.where(is_region, s, 0.0)) for s in (candidate, reference))
    both_zero = np.isneginf(candidate_norm) & np.isneginf(reference_norm)
    norm_ratio = np.where(both_zero, 0.0, reference_norm) - np.where(both_zero, 0.0, candidate_norm)
    return np.asarray(expit(-tau * (divergence + norm_ratio)))


def _log_norm(scores: FloatArray) -> FloatArray:
    """The logarithm of each row's norm; minus infinity for zeros. Scaling first avoids overflow."""
    scale = np.abs(scores).max(axis=1, initial=0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(scale) + np.log(np.sqrt(((scores / np.where(scale > 0, scale, 1.0)[:, None]) ** 2).sum(axis=1))))


def mean_by_image(scores: FloatArray, owner: IntArray) -> FloatArray:
    """The mean grounding vector of each image's references. `owner`, the image of each reference, is ascending.

        s(V, R) = avg[s(V, R_1), …, s(V, R_k)]

    Source: jiang2019tiger, eq. 7.

    >>> mean_by_image(np.array([[0.2, 0.4], [0.4, 0.0], [0.5, np.nan]]), np.array([0, 0, 1]))
    array([[0.3, 0.2],
           [0.5, nan]])
    """
    start = np.searchsorted(owner, np.arange(owner[-1] + 1))
    return np.asarray(np.add.reduceat(scores, start) / np.bincount(owner)[:, None])


def ground_corpus(
    corpus: CaptionCorpus, *, grounder: Grounder, images: ImageSource | None = None, batch: int = BATCH
) -> GroundingVectors:
    """Ground every candidate and its references, `batch` images at a time. Each image is opened once."""
    source: Any = str if takes_image_ids(grounder) else images
    if source is None:
        raise UsageError("tiger needs images, because the grounder computes their regions. Pass images, or precomputed regions.")
    texts = corpus.original_captions()
    candidates, references = [], []
    for first in track(range(0, len(corpus), batch), "grounding captions"):
        image_ids = [str(image_id) for image_id in corpus.ids[first : first + batch]]
        opened = [open_image(source, image_id) for image_id in image_ids]
        start, end = np.searchsorted(corpus.image_index, [first, first + batch])
        captions = np.arange(start, end)
        owner = corpus.image_index[captions] - first
        grounding = grounder.ground([opened[n] for n in owner.tolist()], [texts[n] for n in captions.tolist()])
        _require_valid(grounding, len(captions), owner, image_ids)
        is_candidate = corpus.is_candidate[captions]
        candidates.append(grounding.scores[is_candidate].astype(np.float64))
        references.append(mean_by_image(grounding.scores[~is_candidate].astype(np.float64), owner[~is_candidate]))
    return GroundingVectors(_concatenate(candidates), _concatenate(references))


def _require_same_regions(candidate: FloatArray, reference: FloatArray) -> BoolArray:
    """Which entries are regions; they must be the same for both, at least one in every row."""
    if candidate.ndim != 2 or candidate.shape != reference.shape:
        raise CrossmatchError(
            f"Expected grounding vectors of the same shape (images, regions), got {candidate.shape} and {reference.shape}."
        )
    is_region = ~np.isnan(candidate)
    is_invalid = (is_region == np.isnan(reference)).any(axis=1) | ~is_region.any(axis=1)
    is_invalid |= (np.isinf(candidate) | np.isinf(reference)).any(axis=1)
    if is_invalid.any():
        raise CrossmatchError(
            f"Grounding vectors, row {int(is_invalid.argmax())}: no region, an infinite score, or a region of only one of the two. "
            "Every caption of an image needs a finite score in each of its regions, followed by NaN."
        )
    return is_region


def _require_valid(grounding: Grounding, captions: int, owner: IntArray, image_ids: list[str]) -> None:
    if len(grounding) != captions:
        raise CrossmatchError(
            f"ground(images, texts) must return one grounding per caption: got {len(grounding):,} for {captions:,} captions."
        )
    regions = grounding.regions
    expected = np.zeros(len(image_ids), dtype=np.int64)
    expected[owner] = regions
    is_invalid = (regions == 0) | (regions != expected[owner])
    if is_invalid.any():
        n = int(is_invalid.argmax())
        raise CrossmatchError(
            f"Image {image_ids[owner[n]]!r}: the grounder returned {regions[n]} regions for one caption and {expected[owner[n]]} "
            "for another. It must return the same number, at least 1, for every caption of an image."
        )


def _concatenate(batches: list[FloatArray]) -> FloatArray:
    """One array, padded with NaN to the largest number of regions."""
    regions = max(batch.shape[1] for batch in batches)
    return np.concatenate([np.pad(b, ((0, 0), (0, regions - b.shape[1])), constant_values=np.nan) for b in batches])
