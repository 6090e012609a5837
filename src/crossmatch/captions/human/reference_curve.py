"""Agreement of caption metrics with people as a function of the number of references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from crossmatch.captions.caption_metric_table import compute_metrics, parse_metric_names
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.human.cached_models import cache_models, ground_in_advance
from crossmatch.captions.human.floating_point_ties import merge_rounding_ties, score_preferences
from crossmatch.captions.human.metric_agreement import GROUP_MEAN, RATING_MODES, TIE_CREDIT
from crossmatch.captions.human.score_judged_captions import DOCUMENT_UNITS, prepare_preferences, prepare_ratings
from crossmatch.captions.ptb_tokenizer import tokenise
from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.hashed_random_numbers import hash_uniform
from crossmatch.data.ratings import Preferences, Ratings
from crossmatch.data.signature import protocol_signature
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL
from crossmatch.metrics.correlation.replicated_correlations import COEFFICIENTS, replicated_correlations
from crossmatch.metrics.jackknife import ClusterJackknife, jackknife_interval
from crossmatch.metrics.proportions import clustered_proportion

DRAWS = 20
GROUPS = 20  # of images, for the jackknife, which is computed for every draw
UNREFERENCED = frozenset({"clip-score"})  # families that ignore the references
CORPUS_SIZE = 150_000  # captions in one corpus: limits memory, changes no number
MODEL_CORPUS_SIZE = 20_000  # the same for metrics that use models, which hold a vector for each caption


@dataclass(frozen=True)
class CurvePoint:
    """One metric with k references: the mean over draws of references, with two intervals.

    `low` to `high` is the confidence interval over *images*, of the mean over draws: Wilson's with images as clusters, or the
    jackknife's for a correlation. `draw_low` to `draw_high` is the 95 % prediction interval of one more draw of *references*: with
    mean m and standard deviation s of n draws, m ± t(n - 1) · s · √(1 + 1/n). If every image has exactly k references there is one
    possible draw, and both ends are the value; with a single draw among several possible ones both are NaN.
    If a metric gives all captions the same score in a draw, the correlation is undefined and all numbers are NaN.
    """

    metric: str
    group: str
    references: int
    value: float
    low: float
    high: float
    draw_low: float
    draw_high: float
    draws: int  # 1 if there is only one way to choose the references
    items: int
    ties: float | None = None  # the mean share of pairs with equal scores

    def as_json(self) -> dict[str, object]:
        """Plain values; None for undefined numbers."""
        keys = {"draw_low": "least", "draw_high": "most"}
        return {
            keys.get(name, name): None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True)
class ReferenceCurve:
    """The points of all metrics, with signatures."""

    points: tuple[CurvePoint, ...]
    measure: str  # "accuracy", or the name of the correlation coefficient
    signatures: Mapping[str, str]  # of each metric, with the largest number of references
    signature: str

    def as_json(self) -> dict[str, object]:
        """Plain values for `--json`."""
        return {
            "signature": self.signature,
            "measure": self.measure,
            "metrics": dict(self.signatures),
            "points": [point.as_json() for point in self.points],
        }


@dataclass(frozen=True, eq=False)
class _CurveItems:
    """Captions to score, and the items (pairs or candidates) whose references they are compared with."""

    texts: Sequence[str]
    item_index: IntArray  # of each text
    ids: Sequence[str]  # of each item
    images: Sequence[str]  # of each item
    references: Sequence[Sequence[str]]  # of each item
    references_by_image: Mapping[str, Sequence[str]]


# From a metric, a number of references, scores (draws, texts), and whether there is only one possible draw.
_MakePoints = Callable[[str, int, FloatArray, bool], Iterator[CurvePoint]]


def measure_reference_curve(
    study: Ratings | Preferences,
    names: Iterable[str],
    draws: int = DRAWS,
    seed: int = 0,
    *,
    ties: str = "wrong",
    rating: str = "each",
    documents: str = "images",
    coefficient: str = "tau-c",
    **resources: Any,
) -> ReferenceCurve:
    """Measure agreement with people for 1, 2, … references, up to the number that every candidate has.

    The measure is accuracy for preferences, and a correlation coefficient for ratings. `ties`, `rating`, `documents` and the
    resources have the same meaning as in `measure_agreement`; if all candidates have the same number of references, the last point
    equals its result.

    In each draw the references of a pair or candidate are shuffled by its id and the seed, and the first k are used. Both captions
    of a pair are compared with the same references. Document frequencies are fixed along the curve: only the references that
    captions are compared with change. Models embed each image and text once.

    Source: jiang2019tiger, sec. 4.5 and fig. 5.

    >>> study = Preferences("mine", ["0"], ["7"], [("a dog", "a cat")], [["two dogs", "a dog runs"]], [0], ["HI"])
    >>> curve = measure_reference_curve(study, ["bleu-1"], ties="half")
    >>> [(point.group, point.references, point.value) for point in curve.points]
    [('HI', 1, 0.875), ('mean', 1, 0.875), ('HI', 2, 1.0), ('mean', 2, 1.0)]
    >>> curve.signature
    'accuracy-curve|mine|data:...|ties:half|df:images|refs:1-2|draws:20|interval:wilson/images|seed:0|v...'
    """
    if draws < 1:
        raise UsageError(f"The number of draws must be at least 1, got {draws}.")
    if documents not in DOCUMENT_UNITS:
        raise UsageError(f"Unknown value {documents!r} for documents. Choose from: {', '.join(DOCUMENT_UNITS)}.")
    if isinstance(study, Preferences):
        items, make_points = _prepare_accuracy(study, ties)
        name, measure, interval, facts = "accuracy-curve", "accuracy", "wilson/images", {"ties": ties}
    else:
        study, items, make_points, groups = _prepare_correlation(study, rating, coefficient, seed)
        name, measure, interval = "agreement-curve", coefficient, f"jackknife/images/{groups}"
        facts = {"ratings": rating, "equal": study.reference_rule, "coefficient": coefficient}
    frequencies = resources.get("frequencies")
    points, signatures = _compute_points(items, names, make_points, draws, seed, documents, resources)
    last = max(point.references for point in points)
    signature = protocol_signature(
        name, study.name, "", data=study.digest, **facts,
        df=documents if frequencies is None else f"{frequencies.digest}/{frequencies.images}",
        refs="1" if last == 1 else f"1-{last}", draws=draws, interval=interval, seed=seed,
    )  # fmt: skip
    return ReferenceCurve(tuple(points), measure, signatures, signature)


def _prepare_accuracy(study: Preferences, ties: str) -> tuple[_CurveItems, _MakePoints]:
    """Points with the share of pairs in which the preferred caption has the higher score, by group and as mean over groups."""
    if ties not in TIE_CREDIT:
        raise UsageError(f"Unknown rule {ties!r} for pairs with equal scores. Choose from: {', '.join(TIE_CREDIT)}.")
    group_names, group = np.unique(study.groups, return_inverse=True)
    cluster = np.unique(study.images, return_inverse=True)[1]
    members = {str(name): np.flatnonzero(group == g) for g, name in enumerate(group_names)}
    members[GROUP_MEAN] = np.arange(len(study))

    def make_points(metric: str, k: int, scores: FloatArray, is_only_draw: bool) -> Iterator[CurvePoint]:
        credit, is_tied = score_preferences(scores.reshape(len(scores), -1, 2), study.preferred, TIE_CREDIT[ties])
        for name, at in members.items():
            share = clustered_proportion(credit[:, at].mean(axis=0), cluster[at], group[at])
            draw_interval = _prediction_interval(_mean_over_groups(credit[:, at], group[at]), is_only_draw, 0.0)
            yield CurvePoint(
                metric, name, k, share.value, share.low, share.high, *draw_interval, len(scores), len(at),
                float(is_tied[:, at].mean()),
            )  # fmt: skip

    texts = [text for pair in study.captions for text in pair]
    item_index = np.repeat(np.arange(len(study)), 2)
    references_by_image = prepare_preferences(study).references_by_image
    items = _CurveItems(texts, item_index, study.ids.tolist(), study.images.tolist(), study.references, references_by_image)
    return items, make_points


def _prepare_correlation(study: Ratings, rating: str, coefficient: str, seed: int) -> tuple[Ratings, _CurveItems, _MakePoints, int]:
    """Points with the correlation of scores and ratings; also the ratings that count, and the number of groups of images.

    The interval over images comes from the jackknife over groups of images, of the mean over draws (kott2001delete).
    """
    if rating not in RATING_MODES:
        raise UsageError(f"Unknown value {rating!r} for rating. Choose from: {', '.join(RATING_MODES)}.")
    if coefficient not in COEFFICIENTS:
        raise UsageError(f"Unknown correlation coefficient {coefficient!r}. Choose from: {', '.join(COEFFICIENTS)}.")
    study, candidates = prepare_ratings(study)
    observations, ratings = (study.candidate_of_rating, study.values) if rating == "each" else (np.arange(len(study)), study.mean)
    if ratings.min() == ratings.max():
        raise CrossmatchError(f"All {len(ratings):,} ratings are {ratings[0]:g}, so a correlation is not defined.")
    cluster = np.unique(study.images, return_inverse=True)[1]
    jackknife = ClusterJackknife.from_clusters(cluster[observations], GROUPS, seed)

    def make_points(metric: str, k: int, scores: FloatArray, is_only_draw: bool) -> Iterator[CurvePoint]:
        estimates = [
            replicated_correlations(ratings, merge_rounding_ties(draw)[observations], jackknife, (coefficient,)) for draw in scores
        ]
        values = np.array([value[0] for value, _ in estimates])
        without = np.mean([replicates[0] for _, replicates in estimates], axis=0)
        mean = float(values.mean())
        interval = jackknife_interval(mean, without)
        low, high = (interval.low, interval.high) if np.isfinite(mean) else (np.nan, np.nan)
        draw_interval = _prediction_interval(values, is_only_draw, -1.0)
        yield CurvePoint(metric, GROUP_MEAN, k, mean, low, high, *draw_interval, len(scores), len(ratings))

    items = _CurveItems(
        study.captions, np.arange(len(study)), study.ids.tolist(), study.images.tolist(), list(candidates.references.values()),
        candidates.references_by_image,
    )  # fmt: skip
    return study, items, make_points, jackknife.groups


def _compute_points(
    items: _CurveItems,
    names: Iterable[str],
    make_points: _MakePoints,
    draws: int,
    seed: int,
    documents: str,
    resources: dict[str, Any],
) -> tuple[list[CurvePoint], dict[str, str]]:
    """The points of all metrics in the requested order, and the signature of each metric with the most references."""
    requested = parse_metric_names(names)
    sizes = [len(texts) for texts in items.references]
    counts = range(1, min(sizes) + 1)
    orders = draw_reference_orders(items.ids, sizes, draws, seed)
    tokens = {text: tokenise(text) for text in {*items.texts, *(text for texts in items.references for text in texts)}}
    if resources.get("frequencies") is None and any("frequencies" in request.metric.needs for request in requested.values()):
        resources = {**resources, "frequencies": _count_document_frequencies(items, documents)}
    resources = cache_models(resources)
    ground_in_advance(resources, requested, lambda: _collect_drawn_texts(items, orders, max(counts)))
    unreferenced = [name for name, request in requested.items() if request.metric.family in UNREFERENCED]
    visual = [name for name, request in requested.items() if "images" in request.metric.needs and name not in unreferenced]
    textual = [name for name in requested if name not in (*unreferenced, *visual)]
    points, signatures = list[CurvePoint](), dict[str, str]()

    def add_points(metrics: list[str], k: int, drawn: Sequence[IntArray], at: Iterable[int], is_only_draw: bool) -> None:
        scores, metric_signatures = _score_draws(items, drawn, k, metrics, tokens, resources)
        signatures.update(metric_signatures)
        points.extend(p for count in at for metric in metrics for p in make_points(metric, count, scores[metric], is_only_draw))

    first_draw = [order[:1] for order in orders]
    for k in counts:
        is_only_draw = all(size == k for size in sizes)
        for metrics in filter(None, (textual, visual)):
            add_points(metrics, k, first_draw if is_only_draw else orders, [k], is_only_draw)
    if unreferenced:  # the same value for every number of references
        add_points(unreferenced, 1, first_draw, counts, True)
    position = {name: n for n, name in enumerate(requested)}
    return sorted(points, key=lambda point: position[point.metric]), {name: signatures[name] for name in requested}


def draw_reference_orders(ids: Sequence[str], sizes: Sequence[int], draws: int, seed: int = 0) -> list[IntArray]:
    """Random orders of each item's references, shape (draws, size). An order depends only on the id and the seed.

    >>> [orders.shape for orders in draw_reference_orders(["7", "8"], [5, 3], 4)]
    [(4, 5), (4, 3)]
    """
    keys = (hash_uniform([i], draws * size, "references", seed).reshape(draws, size) for i, size in zip(ids, sizes, strict=True))
    return [np.argsort(key, axis=1, kind="stable").astype(np.int64) for key in keys]


def _count_document_frequencies(items: _CurveItems, documents: str) -> DocumentFrequencies:
    """Count all references of each image once, or those of each caption, as `score_judged_captions` does."""
    if documents == "images":
        return DocumentFrequencies.from_references(items.references_by_image)
    return DocumentFrequencies.from_references({str(n): items.references[item] for n, item in enumerate(items.item_index.tolist())})


def _collect_drawn_texts(items: _CurveItems, orders: Sequence[IntArray], k: int) -> dict[str, list[str]]:
    """All texts that are compared in some draw of at most k references, by image."""
    texts_by_image: dict[str, list[str]] = {}
    for text, item in zip(items.texts, items.item_index.tolist(), strict=True):
        references = [items.references[item][r] for r in np.unique(orders[item][:, :k]).tolist()]
        texts_by_image.setdefault(items.images[item], []).extend([text, *references])
    return texts_by_image


def _score_draws(
    items: _CurveItems,
    orders: Sequence[IntArray],
    k: int,
    names: Sequence[str],
    tokens: dict[str, list[str]],
    resources: dict[str, Any],
) -> tuple[dict[str, FloatArray], dict[str, str]]:
    """Score every caption with the first k references of every draw. A set that is drawn twice is scored once.

    Returns scores of shape (draws, captions) and the signature of each metric.
    """
    item_of_text = items.item_index.tolist()
    subsets = [_distinct_subsets(order[:, :k]) for order in orders]
    entries = [(text, subset) for text, item in enumerate(item_of_text) for subset in subsets[item][0]]
    values: dict[str, list[FloatArray]] = {name: [] for name in names}
    signatures: dict[str, str] = {}
    if (load_image := resources.get("images")) is not None:  # ids of the corpus are numbers of entries, not image ids
        resources = {**resources, "images": lambda i: load_image(items.images[item_of_text[entries[int(i)][0]]])}
    uses_models = any("images" in request.metric.needs for request in parse_metric_names(names).values())
    step = max(1, (MODEL_CORPUS_SIZE if uses_models else CORPUS_SIZE) // (k + 1))
    for start in range(0, len(entries), step):
        part = {str(start + n): entry for n, entry in enumerate(entries[start : start + step])}
        corpus = CaptionCorpus.from_texts(
            {i: items.texts[text] for i, (text, _) in part.items()},
            {i: [items.references[item_of_text[text]][r] for r in subset] for i, (text, subset) in part.items()},
            tokens.__getitem__,
        )
        for name, result in compute_metrics(corpus, names, **resources).items():
            if not np.isfinite(result.scores.values).all():
                raise CrossmatchError(f"{name} of a caption with {k} reference(s) is not a finite number. Leave the metric out.")
            values[name].append(result.scores.values)
            signatures[name] = result.signature
    first_entry = np.concatenate([[0], np.cumsum([len(subsets[item][0]) for item in item_of_text])])[:-1]
    entry = np.array([subsets[item][1] for item in item_of_text]).T + first_entry
    return {name: np.concatenate(parts)[entry] for name, parts in values.items()}, signatures


def _distinct_subsets(drawn: IntArray) -> tuple[list[tuple[int, ...]], list[int]]:
    """The distinct sets of references of one item, and the set of each draw."""
    numbers: dict[tuple[int, ...], int] = {}
    subset_of_draw = [numbers.setdefault(tuple(row), len(numbers)) for row in np.sort(drawn, axis=1).tolist()]
    return list(numbers), subset_of_draw


def _prediction_interval(values: FloatArray, is_only_draw: bool, lowest: float) -> tuple[float, float]:
    """The 95 % prediction interval of one more draw; see `CurvePoint`."""
    n, mean = len(values), float(values.mean())
    if is_only_draw:
        return mean, mean
    if n < 2 or not np.isfinite(mean):
        return float("nan"), float("nan")
    half_width = float(stdtrit(n - 1, (1 + CONFIDENCE_LEVEL) / 2) * values.std(ddof=1) * np.sqrt(1 + 1 / n))
    return max(lowest, mean - half_width), min(1.0, mean + half_width)


def _mean_over_groups(credit: FloatArray, group: IntArray) -> FloatArray:
    """The mean over groups of the share of correct pairs, for each draw."""
    return np.asarray(np.mean([credit[:, group == g].mean(axis=1) for g in np.unique(group)], axis=0), dtype=np.float64)
