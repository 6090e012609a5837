"""TIGEr: does the candidate speak of the same regions of the picture as the references do, and as much?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_softmax

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.pictures import Images, picture, written
from crossmatch.captions.scores import Scores
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.grounding import Grounder, Grounding
from crossmatch.core.progress import track

TAU = 1.5  # the paper leaves τ open; this is the value of the released code
VARIANTS = ("paper", "released")
BATCH = 64  # images in a call of the grounder
SAME = 1e-12  # gains that differ by less, relative to all relevance, are equal: it is what rounding leaves


@dataclass(frozen=True, eq=False)
class Grounded:
    """Grounding vectors of all candidates and of their references, (candidates, regions); NaN where an image has fewer regions."""

    candidate: FloatArray  # s(V, C)
    reference: FloatArray  # s(V, R), the mean over the references


def tiger(
    corpus: Corpus,
    *,
    grounder: Grounder,
    images: Images,
    tau: float = TAU,
    variant: str = "paper",
    batch: int = BATCH,
) -> tuple[Scores, Scores, Scores]:
    """TIGEr, RRS and WDS of each candidate, and their means over candidates.

        TIGEr = (RRS + WDS) / 2

    `images` gives the picture of an id. The grounder sees the captions as they were written. A candidate that is
    grounded just as its references has RRS 1 and WDS 1/2, so 3/4; more than that takes a candidate that is grounded more firmly.
    `variant="released"` scales the relevance inside RRS to 0 … 1 (see `rrs`), as the released code does.
    A candidate that is itself a reference should be compared with the other ones: `leave_out.leave_own_out`.
    Source: jiang2019tiger, eq. 7 to 14.

    >>> class Words:                                                    # a region for each of these words
    ...     def ground(self, images, texts):
    ...         return Grounding(np.array([[float(word in text) for word in ("dog", "ball", "sky")] for text in texts]))
    >>> corpus = Corpus.of({"7": "a dog", "8": "the sky"}, {"7": ["the dog", "a dog and a ball"], "8": ["a dog", "a ball"]})
    >>> [scores.values.round(3) for scores in tiger(corpus, grounder=Words(), images={"7": None, "8": None})]
    [array([0.712, 0.616]), array([0.975, 0.693]), array([0.449, 0.538])]
    """
    found = grounded(corpus, grounder=grounder, images=images, batch=batch)
    rank, weight = rrs(found.candidate, found.reference, variant), wds(found.candidate, found.reference, tau)
    whole, rank_scores, weight_scores = (Scores(float(v.mean()), v) for v in ((rank + weight) / 2, rank, weight))
    return whole, rank_scores, weight_scores


def rrs(candidate: FloatArray, reference: FloatArray, variant: str = "paper") -> FloatArray:
    """Region rank similarity: does the candidate rank the regions as the references do? Rows are images, columns their regions.

        RRS = DCG / IDCG,    DCG = Σ_k rel_k / log2(k + 1)

    with the regions in the candidate's order for DCG, in the references' for IDCG, and rel the references' score; in the variant
    "released", (rel - min) / (max - min).

    Ties: regions that the candidate scores alike share the mean discount of their places, which is the mean over all ways to break
    the tie (mcsherry2008computing); nothing depends on the order of regions. Scores may be negative. While IDCG > 0 the ratio is
    taken as it stands, but not below 0 (the paper's range is 0 to 1). Where IDCG <= 0 it is 1 for an order as good as the ideal one
    and 0 for any other, which is its limit. So if the references score all regions alike, and with one region, it is 1.
    Source: jiang2019tiger, eq. 8 to 10; jarvelin2002cumulated.

    >>> rrs(np.array([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]]), np.array([[0.9, 0.1, 0.5], [0.9, 0.1, 0.5]])).round(4)
    array([1. , 0.842])
    """
    if variant not in VARIANTS:
        raise WrongWords(f"TIGEr has no variant {variant!r}; there are {', '.join(VARIANTS)}. Choose among these.")
    known = _known(candidate, reference)
    relevance = np.where(known, reference, 0.0)
    if variant == "released":
        low = np.where(known, reference, np.inf).min(axis=1, keepdims=True)
        span = np.where(known, reference, -np.inf).max(axis=1, keepdims=True) - low
        relevance = np.where(known, reference - low, 0.0) / np.where(span > 0, span, 1.0)
    discount = 1 / np.log2(np.arange(2, known.shape[1] + 2))
    order = np.argsort(-candidate, axis=1, kind="stable")  # NaN last
    gained = (np.take_along_axis(relevance, order, axis=1) * _shared(np.take_along_axis(candidate, order, axis=1), discount)).sum(
        axis=1
    )
    ideal = -np.sort(np.where(known, -relevance, np.nan), axis=1)
    ideal_gain = (np.where(np.isnan(ideal), 0.0, ideal) * discount).sum(axis=1)
    rounding = SAME * np.abs(relevance).sum(axis=1)
    ratio = np.clip(gained, 0.0, None) / np.where(ideal_gain > rounding, ideal_gain, np.inf)
    return np.where(ideal_gain - gained <= rounding, 1.0, ratio)


def _shared(ranked: FloatArray, discount: FloatArray) -> FloatArray:
    """The discount of each place; places with equal scores share their mean."""
    new = np.ones(ranked.shape, dtype=np.bool_)
    new[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    group = np.cumsum(new.ravel()) - 1
    whole = np.bincount(group, weights=np.broadcast_to(discount, ranked.shape).ravel())
    return np.asarray((whole / np.bincount(group))[group].reshape(ranked.shape))


def wds(candidate: FloatArray, reference: FloatArray, tau: float = TAU) -> FloatArray:
    """Weight distribution similarity: is the candidate's attention spread over the regions as the references' is, and as strong?

        WDS = 1 - σ(τ D),    D = D_KL(softmax s(V, R) ‖ softmax s(V, C)) + log(‖s(V, R)‖ / ‖s(V, C)‖)

    D is negative, and WDS above 1/2, where the candidate is grounded more firmly than the references. The limits: a candidate that
    is grounded nowhere (all scores 0) has WDS 0; if the references are grounded nowhere, any other candidate has 1; if both are,
    their relevance does not differ, and WDS is 1/2. Source: jiang2019tiger, eq. 11 to 13.

    >>> wds(np.array([[0.9, 0.1], [0.9, 0.1], [0.0, 0.0]]), np.array([[0.9, 0.1], [0.1, 0.9], [0.9, 0.1]])).round(4)
    array([0.5   , 0.3879, 0.    ])
    """
    if not (tau > 0 and np.isfinite(tau)):
        raise WrongWords(f"tau is {tau}; a positive number was expected (the released code has {TAU}).")
    known = _known(candidate, reference)
    log_q, log_p = (log_softmax(np.where(known, s, -np.inf), axis=1) for s in (candidate, reference))
    apart = np.where(known, log_p, 0.0) - np.where(known, log_q, 0.0)
    divergence = np.maximum(0.0, (np.exp(log_p) * apart).sum(axis=1))
    ours, theirs = (_log_norm(np.where(known, s, 0.0)) for s in (candidate, reference))
    both = np.isneginf(ours) & np.isneginf(theirs)
    stronger = np.where(both, 0.0, theirs) - np.where(both, 0.0, ours)
    return np.asarray(expit(-tau * (divergence + stronger)))


def _log_norm(scores: FloatArray) -> FloatArray:
    """Of each row; minus infinity for zeros. No square overflows."""
    scale = np.abs(scores).max(axis=1, initial=0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(scale) + np.log(np.sqrt(((scores / np.where(scale > 0, scale, 1.0)[:, None]) ** 2).sum(axis=1))))


def references_mean(scores: FloatArray, owner: IntArray) -> FloatArray:
    """The mean grounding vector of each image's references; those of an image, `owner`, stand together, and images in order.

        s(V, R) = avg[s(V, R_1), …, s(V, R_k)]

    Source: jiang2019tiger, eq. 7.

    >>> references_mean(np.array([[0.2, 0.4], [0.4, 0.0], [0.5, np.nan]]), np.array([0, 0, 1]))
    array([[0.3, 0.2],
           [0.5, nan]])
    """
    start = np.searchsorted(owner, np.arange(owner[-1] + 1))
    return np.asarray(np.add.reduceat(scores, start) / np.bincount(owner)[:, None])


def grounded(corpus: Corpus, *, grounder: Grounder, images: Images, batch: int = BATCH) -> Grounded:
    """Ground every candidate and its references, `batch` images at a time; each picture is opened once."""
    texts = written(corpus)
    own, mean = [], []
    for first in track(range(0, len(corpus), batch), "grounding captions"):
        names = [str(name) for name in corpus.ids[first : first + batch]]
        pictures = [picture(images, name) for name in names]
        begin, end = np.searchsorted(corpus.image, [first, first + batch])
        at = np.arange(begin, end)
        owner = corpus.image[at] - first
        said = grounder.ground([pictures[n] for n in owner.tolist()], [texts[n] for n in at.tolist()])
        _check(said, len(at), owner, names)
        is_own = corpus.is_candidate[at]
        own.append(said.scores[is_own].astype(np.float64))
        mean.append(references_mean(said.scores[~is_own].astype(np.float64), owner[~is_own]))
    return Grounded(_joined(own), _joined(mean))


def _known(candidate: FloatArray, reference: FloatArray) -> BoolArray:
    """Where there are regions: the same for both, at least one in every row."""
    if candidate.ndim != 2 or candidate.shape != reference.shape:
        raise CrossmatchError(
            f"grounding vectors of shape {candidate.shape} and {reference.shape}; the same (images, regions) was expected for both."
        )
    known = ~np.isnan(candidate)
    wrong = (
        (known == np.isnan(reference)).any(axis=1) | ~known.any(axis=1) | (np.isinf(candidate) | np.isinf(reference)).any(axis=1)
    )
    if wrong.any():
        raise CrossmatchError(
            f"row {int(wrong.argmax())} of the grounding vectors has no region, an infinite score, or a region that only one side "
            "has. Give every caption of an image a finite score in each of its regions, and NaN beyond."
        )
    return known


def _check(said: Grounding, captions: int, owner: IntArray, names: list[str]) -> None:
    if len(said) != captions:
        raise CrossmatchError(f"ground(images, texts) gave {len(said):,} groundings for {captions:,} captions. Give one for each.")
    regions = said.regions
    few = np.zeros(len(names), dtype=np.int64)
    few[owner] = regions
    wrong = (regions == 0) | (regions != few[owner])
    if wrong.any():
        at = int(wrong.argmax())
        raise CrossmatchError(
            f"a caption of {names[owner[at]]!r} is grounded in {regions[at]} regions, another in {few[owner[at]]}; at least one, "
            "and the same for every caption of an image, was expected. Mend the grounder."
        )


def _joined(parts: list[FloatArray]) -> FloatArray:
    """One array, padded with NaN where a batch has fewer regions than another."""
    most = max(part.shape[1] for part in parts)
    ends = [[(0, 0), (0, most - part.shape[1])] + [(0, 0)] * (part.ndim - 2) for part in parts]
    return np.concatenate([np.pad(part, end, constant_values=np.nan) for part, end in zip(parts, ends, strict=True)])
