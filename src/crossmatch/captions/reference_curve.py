"""Agreement with people against the number of references: how many captions a metric needs to see before it is worth believing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from crossmatch.captions.agree import EVERY, TIES
from crossmatch.captions.candidates import DOCUMENTS
from crossmatch.captions.levels import answered, settled
from crossmatch.captions.reference_draws import Items, by_draw, document_frequencies, drawn_texts, numbers_asked, orders
from crossmatch.captions.remembered import ground_ahead, remembered
from crossmatch.captions.table import chosen
from crossmatch.captions.tokenise import tokenise
from crossmatch.core.arrays import FloatArray, IntArray, as_ids
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.signature import protocol
from crossmatch.metrics.concordance import COEFFICIENTS, correlations
from crossmatch.metrics.jackknife import LeftOut, jackknife
from crossmatch.metrics.proportion import share_of
from crossmatch.metrics.significance import LEVEL

DRAWS = 20
GROUPS = 20  # of images that the jackknife leaves out in turn; every draw is computed so often
UNREFERENCED = frozenset({"clip-score"})  # families that look at no reference


@dataclass(frozen=True)
class Point:
    """One metric with k references: the mean over draws of references and two intervals, which answer different questions.

    `low` to `high` is what other *images* could have given: Wilson's interval, with images as clusters, of the mean over draws, or
    the jackknife's for a correlation. `least` to `most` is where one more choice of *references* of the same images would lie with
    95 %: with mean m and standard deviation s of n draws, m ± t(n - 1) · s · √(1 + 1/n). Where every image has just k references,
    there is one choice and both ends are the value; of a single draw among several choices nothing is known, and both are NaN.
    A metric that gives all captions the same score in a draw has no correlation there: all numbers are NaN.
    """

    metric: str
    group: str
    references: int
    value: float
    low: float
    high: float
    least: float
    most: float
    draws: int  # 1 where there is only one way to choose the references
    items: int
    ties: float | None = None  # the mean share of pairs with equal scores

    def as_json(self) -> dict[str, object]:
        """Plain values; None for what is not known."""
        return {name: None if isinstance(x, float) and not np.isfinite(x) else x for name, x in asdict(self).items()}


@dataclass(frozen=True)
class Curve:
    """The points of all metrics, and how they came about."""

    points: tuple[Point, ...]
    measure: str  # accuracy, or the name of the coefficient
    signatures: Mapping[str, str]  # of each metric, with the largest number of references
    signature: str

    def as_json(self) -> dict[str, object]:
        return {
            "signature": self.signature,
            "measure": self.measure,
            "metrics": dict(self.signatures),
            "points": [p.as_json() for p in self.points],
        }


@dataclass(frozen=True)
class _Plan:
    """What is drawn, and what the signature says."""

    counts: Iterable[int] | None
    draws: int
    seed: int
    documents: str
    study: str
    facts: Mapping[str, object]


def accuracy_curve(
    pairs: Sequence[tuple[str, str]],
    preferred: Sequence[int],
    references: Sequence[Sequence[str]],
    names: Iterable[str],
    *,
    ties: str = "wrong",
    groups: Sequence[str] | None = None,
    image: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    documents: str = "images",
    held: Mapping[str, Sequence[str]] | None = None,
    counts: Iterable[int] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    study: str = "pairs",
    facts: Mapping[str, object] | None = None,
    **given: Any,
) -> Curve:
    """The share of pairs in which the caption that people prefer has the higher score, for each number of references.

    Both captions of a pair see the same references. Equal scores, equal but for rounding, are `wrong` (the rule of the source),
    `half` right or `right`, as in `agree.accurate`; with all references the numbers are the same as there.
    The value of `mean` is that of the groups' shares, each counting the same. Document frequencies are those of all references,
    each image (or, without `image`, each pair) being a document, or with `documents="candidates"` each caption, unless others are
    given: nothing but the references that are compared with changes along the curve. `held` are all references of each image, if
    they are not those of its items. The references of a pair are put in a random order for each draw, by the pair's id and the
    seed, and the first k are taken. Metrics by models see each picture and text once.
    Source: jiang2019tiger, sec. 4.5 and fig. 5.

    >>> pairs = [("a dog runs", "a cat"), ("the blue sky", "clouds in the sky")]
    >>> references = [["a dog", "a dog runs fast"], ["the sky", "many clouds in the sky"]]
    >>> found = accuracy_curve(pairs, [0, 1], references, ["rouge-l"], draws=8)
    >>> [(point.references, point.value, point.draws) for point in found.points]
    [(1, 0.8125, 8), (2, 1.0, 1)]
    >>> found.signature
    'accuracy-curve|pairs|data:...|ties:wrong|df:images|refs:1-2|draws:8|interval:wilson/images|seed:0|v...'
    """
    _require_alike(pairs=len(pairs), preferred=len(preferred), references=len(references))
    if ties not in TIES:
        raise WrongWords(f"pairs with equal scores are {ties!r}; there are {', '.join(TIES)}. Choose one.")
    label = np.asarray(preferred)
    if not np.isin(label, (0, 1)).all():
        raise CrossmatchError(
            f"a preferred caption is {label[~np.isin(label, (0, 1))][0]!r}; 0 or 1 was expected, its place in the pair."
        )
    texts = [text for pair in pairs for text in pair]
    group = np.zeros(len(pairs), dtype=np.int64) if groups is None else np.unique(groups, return_inverse=True)[1].ravel()
    cluster = np.arange(len(pairs)) if image is None else np.unique(image, return_inverse=True)[1].ravel()
    parts = {} if groups is None else {str(name): np.flatnonzero(np.asarray(groups) == name) for name in np.unique(groups)}

    def points(name: str, k: int, scores: FloatArray, one_way: bool) -> Iterator[Point]:
        right, level = answered(scores.reshape(len(scores), -1, 2), label, TIES[ties])
        for part, at in {**parts, EVERY: np.arange(len(pairs))}.items():
            found = share_of(right[:, at].mean(axis=0), cluster[at], group[at])
            spread = _another(_macro(right[:, at], group[at]), one_way, 0.0)
            yield Point(
                name, part, k, found.value, found.low, found.high, *spread, len(scores), len(at), float(level[:, at].mean())
            )

    said = {**(facts or _data(pairs, label.tolist(), references, groups, image)), "ties": ties}
    plan = _Plan(counts, draws, seed, documents, study, {**said, "interval": "wilson/images"})
    items = Items(texts, np.repeat(np.arange(len(pairs)), 2), references, ids, image, held)
    return _curve(items, names, points, plan, "accuracy", given)


def correlation_curve(
    captions: Sequence[str],
    ratings: Sequence[float],
    references: Sequence[Sequence[str]],
    names: Iterable[str],
    *,
    coefficient: str = "tau-c",
    image: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    documents: str = "images",
    held: Mapping[str, Sequence[str]] | None = None,
    counts: Iterable[int] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    study: str = "ratings",
    facts: Mapping[str, object] | None = None,
    **given: Any,
) -> Curve:
    """The correlation of a metric with people's ratings (`tau-b`, `tau-c`, `spearman`, `pearson`) for each number of references.

    A caption that several people rated is listed once for each rating, with one id in `ids` (by default each row has its own), so
    that all its rows see the same references; or once, with the mean of its ratings. The interval over images is that of the
    jackknife that leaves out groups of images, of the mean over draws (kott2001delete). All else is as in `accuracy_curve`; with
    all references the value is that of `agree.correlated`.

    >>> captions, ratings = ["a dog runs", "a cat", "two dogs", "a dog"], [4, 1, 2, 3]
    >>> found = correlation_curve(captions, ratings, [["a dog", "a dog runs fast"]] * 4, ["rouge-l"])
    >>> [(point.references, round(point.value, 2), point.draws) for point in found.points]
    [(1, 0.52, 20), (2, 0.56, 1)]
    """
    _require_alike(captions=len(captions), ratings=len(ratings), references=len(references))
    if coefficient not in COEFFICIENTS:
        raise WrongWords(f"there is no correlation coefficient {coefficient!r}; there are {', '.join(COEFFICIENTS)}.")
    human = np.asarray(ratings, dtype=np.float64)
    if human.min() == human.max():
        raise CrossmatchError(f"all {len(human):,} ratings are {human[0]:g}; ratings that never differ correlate with nothing.")
    cluster = np.arange(len(captions)) if image is None else np.unique(image, return_inverse=True)[1].ravel()
    row: dict[str, int] = {}  # the first of each caption
    for n, name in enumerate(range(len(captions)) if ids is None else ids):
        row.setdefault(str(name), n)
    place = {name: at for at, name in enumerate(row)}
    spread = np.array([place[str(name)] for name in (range(len(captions)) if ids is None else ids)])
    without = LeftOut.of(cluster, GROUPS, seed)

    def points(name: str, k: int, scores: FloatArray, one_way: bool) -> Iterator[Point]:
        found = [correlations(human, settled(each)[spread], without, (coefficient,)) for each in scores]
        values, left = np.array([value[0] for value, _ in found]), np.mean([each[0] for _, each in found], axis=0)
        value = float(values.mean())
        over = jackknife(value, left)
        low, high = (over.low, over.high) if np.isfinite(value) else (np.nan, np.nan)
        yield Point(name, EVERY, k, value, low, high, *_another(values, one_way, -1.0), len(scores), len(human))

    said = {**(facts or _data(list(captions), human.tolist(), references, image)), "coefficient": coefficient}
    plan = _Plan(counts, draws, seed, documents, study, {**said, "interval": f"jackknife/images/{without.groups}"})
    once = list(row.values())
    seen = None if image is None else [image[n] for n in once]
    items = Items([captions[n] for n in once], np.arange(len(once)), [references[n] for n in once], list(row), seen, held)
    return _curve(items, names, points, plan, coefficient, given)


def _another(values: FloatArray, one_way: bool, floor: float) -> tuple[float, float]:
    """Where the value of one more draw would lie: see `Point`."""
    n, mean = len(values), float(values.mean())
    if one_way:
        return mean, mean
    if n < 2 or not np.isfinite(mean):
        return float("nan"), float("nan")
    reach = float(stdtrit(n - 1, (1 + LEVEL) / 2) * values.std(ddof=1) * np.sqrt(1 + 1 / n))
    return max(floor, mean - reach), min(1.0, mean + reach)


def _curve(
    items: Items,
    names: Iterable[str],
    points: Callable[[str, int, FloatArray, bool], Iterator[Point]],
    plan: _Plan,
    measure: str,
    given: dict[str, Any],
) -> Curve:
    wanted = chosen(names)
    keys = [str(i) for i in as_ids(range(len(items.references)) if items.ids is None else items.ids, "item")]
    sizes = [len(each) for each in items.references]
    asked = numbers_asked(keys, sizes, plan.counts)
    if plan.draws < 1:
        raise WrongWords(f"{plan.draws} draws of references; at least one was expected.")
    if plan.documents not in DOCUMENTS:
        raise WrongWords(f"documents are {plan.documents!r}; there are {' and '.join(DOCUMENTS)}. Choose one.")
    order = orders(keys, sizes, plan.draws, plan.seed)
    known = {text: tokenise(text) for text in {*items.texts, *(text for each in items.references for text in each)}}
    kept = given.get("frequencies")
    image = keys if items.image is None else [str(name) for name in items.image]
    if kept is None and any("frequencies" in one.metric.needs for one in wanted.values()):
        given = {**given, "frequencies": document_frequencies(items, image, plan.documents)}
    given = remembered(given)
    ground_ahead(given, wanted, lambda: drawn_texts(items, order, max(asked), image))
    blind = [name for name, one in wanted.items() if one.metric.family in UNREFERENCED]
    looks = [name for name, one in wanted.items() if "images" in one.metric.needs and name not in blind]
    reads = [name for name in wanted if name not in (*blind, *looks)]
    found, signatures = list[Point](), dict[str, str]()

    def scored(mine: list[str], k: int, drawn: Sequence[IntArray]) -> dict[str, FloatArray]:
        scores, said = by_draw(items, drawn, k, mine, known, image, given)
        signatures.update(said)
        return scores

    first = [each[:1] for each in order]
    for k in asked:
        one_way = all(size == k for size in sizes)
        for mine in filter(None, (reads, looks)):
            scores = scored(mine, k, first if one_way else order)
            found += [point for name in mine for point in points(name, k, scores[name], one_way)]
    if blind:
        scores = scored(blind, 1, first)
        found += [point for k in asked for name in blind for point in points(name, k, scores[name], True)]
    df = plan.documents if kept is None else f"{kept.digest}/{kept.images}"
    refs = str(asked[0]) if len(asked) == 1 else f"{asked[0]}-{asked[-1]}"
    facts = dict(plan.facts)
    over = facts.pop("interval")
    signature = protocol(
        "accuracy-curve" if measure == "accuracy" else "agreement-curve", plan.study, "", **facts, df=df, refs=refs,
        draws=plan.draws, interval=over, seed=plan.seed,
    )  # fmt: skip
    place = {name: at for at, name in enumerate(wanted)}
    found.sort(key=lambda point: place[point.metric])
    return Curve(tuple(found), measure, {name: signatures[name] for name in wanted}, signature)


def _macro(right: FloatArray, group: IntArray) -> FloatArray:
    """Of each draw: the mean over groups of the share of right answers."""
    return np.asarray(np.mean([right[:, group == g].mean(axis=1) for g in np.unique(group)], axis=0), dtype=np.float64)


def _data(*given: object) -> dict[str, object]:
    """Eight signs that tell what was given from other data."""
    return {"data": hashlib.sha256(json.dumps(given, default=list).encode()).hexdigest()[:8]}


def _require_alike(**sizes: int) -> None:
    if len(set(sizes.values())) > 1 or not min(sizes.values()):
        told = ", ".join(f"{size:,} {what}" for what, size in sizes.items())
        raise CrossmatchError(f"there are {told}; as many of each were expected, and at least one. Check the file.")
