"""Agreement with people against the number of references: how many captions a metric needs to see before it is worth believing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from crossmatch.captions.candidates import same
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.table import chosen, score
from crossmatch.captions.tokenise import tokenise
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, as_ids
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.presented import uniform
from crossmatch.metrics.correlation import LEVEL, left_out
from crossmatch.metrics.proportion import share_of
from crossmatch.metrics.significance import interval

DRAWS = 20
EVERY = "mean"  # the name of the mean over groups
AT_ONCE = 150_000  # captions in one corpus: bounds the memory, changes no number
GROUPS = 20  # of images that the jackknife leaves out in turn; every draw is computed so often


@dataclass(frozen=True)
class Point:
    """One metric with k references: the mean over draws of references and two intervals, which answer different questions.

    `low` to `high` is what other *images* could have given: Wilson's interval, with images as clusters, of the mean over draws, or
    the jackknife's for a correlation. `least` to `most` is what another choice of *references* of the same images could have given:
    from the 2.5th to the 97.5th percentile over draws, nothing wide where every image has k references.
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


def accuracy_curve(
    pairs: Sequence[tuple[str, str]],
    preferred: Sequence[int],
    references: Sequence[Sequence[str]],
    names: Iterable[str],
    *,
    groups: Sequence[str] | None = None,
    image: Sequence[str] | None = None,
    ids: Sequence[str] | None = None,
    counts: Iterable[int] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    **given: Any,
) -> list[Point]:
    """The share of pairs in which the caption that people prefer has the strictly higher score, for each number of references.

    Both captions of a pair see the same references. Equal scores are wrong (the rule of the source), equal but for rounding.
    The value of `mean` is that of the groups' shares, each counting the same. Document frequencies are those of all references,
    each image (or, without `image`, each pair) being a document, unless others are given: nothing but the references that are
    compared with changes along the curve. The references of a pair are put in a random order for each draw, by the pair's
    id and the seed, and the first k are taken.
    Source: jiang2019tiger, sec. 4.5 and fig. 5.

    >>> pairs = [("a dog runs", "a cat"), ("the blue sky", "clouds in the sky")]
    >>> references = [["a dog", "a dog runs fast"], ["the sky", "many clouds in the sky"]]
    >>> for point in accuracy_curve(pairs, [0, 1], references, ["rouge-l"], draws=8):
    ...     print(point.references, point.value, point.draws)
    1 0.8125 8
    2 1.0 1
    """
    _require_alike(pairs=len(pairs), preferred=len(preferred), references=len(references))
    label = np.asarray(preferred)
    if not np.isin(label, (0, 1)).all():
        raise CrossmatchError(
            f"a preferred caption is {label[~np.isin(label, (0, 1))][0]!r}; 0 or 1 was expected, its place in the pair."
        )
    texts = [text for pair in pairs for text in pair]
    group = np.zeros(len(pairs), dtype=np.int64) if groups is None else np.unique(groups, return_inverse=True)[1].ravel()
    cluster = np.arange(len(pairs)) if image is None else np.unique(image, return_inverse=True)[1].ravel()
    parts = {} if groups is None else {str(name): np.flatnonzero(np.asarray(groups) == name) for name in np.unique(groups)}

    def points(name: str, k: int, scores: FloatArray) -> Iterator[Point]:
        both = scores.reshape(len(scores), -1, 2)
        right_of, equal = above(both[..., 0], both[..., 1]), same(both[..., 0], both[..., 1])
        right = np.where(label == 0, right_of, ~right_of & ~equal)
        for part, at in {**parts, EVERY: np.arange(len(pairs))}.items():
            found = share_of(right[:, at].mean(axis=0), cluster[at], group[at])
            means = _macro(right[:, at], group[at])
            yield Point(
                name,
                part,
                k,
                found.value,
                found.low,
                found.high,
                *interval(means),
                len(scores),
                len(at),
                float(equal[:, at].mean()),
            )

    owner = np.repeat(np.arange(len(pairs)), 2)
    return _curve(texts, owner, references, names, points, ids, image, counts, draws, seed, given)


def correlation_curve(
    captions: Sequence[str],
    ratings: Sequence[float],
    references: Sequence[Sequence[str]],
    names: Iterable[str],
    *,
    image: Sequence[str] | None = None,
    coefficient: str = "kendall",
    ids: Sequence[str] | None = None,
    counts: Iterable[int] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    **given: Any,
) -> list[Point]:
    """The correlation of a metric with people's ratings (`kendall`'s tau-b, `spearman`, `pearson`) for each number of references.

    A caption that several people rated is listed once for each rating, with one id in `ids` (by default each row has its own), so
    that all its rows see the same references. The interval over images is that of the jackknife that leaves out groups of images,
    of the mean over draws. All else is as in `accuracy_curve`.

    >>> captions, ratings = ["a dog runs", "a cat", "two dogs", "a dog"], [4, 1, 2, 3]
    >>> found = correlation_curve(captions, ratings, [["a dog", "a dog runs fast"]] * 4, ["rouge-l"])
    >>> [(point.references, round(point.value, 2), point.draws) for point in found]
    [(1, 0.52, 20), (2, 0.55, 1)]
    """
    _require_alike(captions=len(captions), ratings=len(ratings), references=len(references))
    human = np.asarray(ratings, dtype=np.float64)
    cluster = np.arange(len(captions)) if image is None else np.unique(image, return_inverse=True)[1].ravel()
    names_of = list(range(len(captions))) if ids is None else list(ids)
    rows = {name: row for row, name in reversed(list(enumerate(names_of)))}
    once = list(rows.values())  # one row for each caption
    place = {name: at for at, name in enumerate(rows)}
    spread = np.array([place[name] for name in names_of])

    def points(name: str, k: int, scores: FloatArray) -> Iterator[Point]:
        found = [left_out(coefficient, cluster, human, of_draw[spread], GROUPS, seed) for of_draw in scores]
        values, without = np.array([value for value, _ in found]), np.mean([each for _, each in found], axis=0)
        value, left = float(values.mean()), len(without)
        error = float(np.sqrt((left - 1) / left * np.square(without - value).sum()))
        reach = float(stdtrit(left - 1, (1 + LEVEL) / 2)) * error
        low, high = max(-1.0, value - reach), min(1.0, value + reach)
        yield Point(name, EVERY, k, value, low, high, *interval(values), len(scores), len(human))

    texts, own = [captions[row] for row in once], [references[row] for row in once]
    seen = None if image is None else [image[row] for row in once]
    return _curve(texts, np.arange(len(once)), own, names, points, [str(name) for name in rows], seen, counts, draws, seed, given)


def above(first: FloatArray, second: FloatArray) -> BoolArray:
    """Which of the first scores are strictly higher, by more than rounding.

    >>> above(np.array([0.1 + 0.2, 0.4]), np.array([0.3, 0.3]))
    array([False,  True])
    """
    return np.asarray((first > second) & ~same(first, second), dtype=np.bool_)


def orders(ids: Sequence[str], sizes: Sequence[int], draws: int, seed: int = 0) -> list[IntArray]:
    """For each item, its references in as many random orders, shape (draws, size); an order depends on the id and the seed alone.

    >>> [found.shape for found in orders(["7", "8"], [5, 3], 4)]
    [(4, 5), (4, 3)]
    """
    drawn = (uniform([i], draws * size, "references", seed).reshape(draws, size) for i, size in zip(ids, sizes, strict=True))
    return [np.argsort(each, axis=1, kind="stable").astype(np.int64) for each in drawn]


def _curve(
    texts: Sequence[str],
    owner: IntArray,
    references: Sequence[Sequence[str]],
    names: Iterable[str],
    points: Callable[[str, int, FloatArray], Iterator[Point]],
    ids: Sequence[str] | None,
    image: Sequence[str] | None,
    counts: Iterable[int] | None,
    draws: int,
    seed: int,
    given: dict[str, Any],
) -> list[Point]:
    wanted = list(chosen(names))
    keys = [str(i) for i in as_ids(range(len(references)) if ids is None else ids, "item")]
    sizes = [len(each) for each in references]
    asked = _counts(keys, sizes, counts)
    if draws < 1:
        raise WrongWords(f"{draws} draws of references; at least one was expected.")
    order = orders(keys, sizes, draws, seed)
    known = {text: tokenise(text) for text in {*texts, *(text for each in references for text in each)}}
    if given.get("frequencies") is None:
        documents: dict[str, dict[str, None]] = {}
        for name, each in zip(keys if image is None else image, references, strict=True):
            documents.setdefault(str(name), {}).update(dict.fromkeys(each))
        of_all = {name: list(each) for name, each in documents.items()}
        if len(of_all) > 1:  # else no n-gram tells anything, and the metrics that ask for frequencies say so
            whole = Corpus.of(dict.fromkeys(of_all, ""), of_all, (known | {"": []}).__getitem__)
            given = {**given, "frequencies": Frequencies.of(whole)}
    found = []
    for k in asked:
        scores = _by_draw(texts, owner, references, order, k, wanted, known, keys if image is None else image, given)
        found += [point for name in wanted for point in points(name, k, scores[name])]
    return sorted(found, key=lambda point: wanted.index(point.metric))


def _by_draw(
    texts: Sequence[str],
    owner: IntArray,
    references: Sequence[Sequence[str]],
    order: Sequence[IntArray],
    k: int,
    names: Sequence[str],
    known: dict[str, list[str]],
    image: Sequence[str],
    given: dict[str, Any],
) -> dict[str, FloatArray]:
    """The scores of every caption in every draw, shape (draws, captions). A set that is drawn again is scored once."""
    places = [np.unique(np.sort(each[:, :k], axis=1), axis=0, return_inverse=True) for each in order]
    subsets = [([tuple(subset) for subset in sets.tolist()], which.ravel()) for sets, which in places]
    entries = [(c, subset) for c, own in enumerate(owner.tolist()) for subset in subsets[own][0]]
    values: dict[str, list[FloatArray]] = {name: [] for name in names}
    if (opened := given.get("images")) is not None:  # the corpus has an id for each draw, the pictures have their own
        given = {**given, "images": lambda i: opened(image[owner[entries[int(i)][0]]])}
    step = max(1, AT_ONCE // (k + 1))
    for at in range(0, len(entries), step):
        part = {str(at + n): entry for n, entry in enumerate(entries[at : at + step])}
        corpus = Corpus.of(
            {i: texts[c] for i, (c, _) in part.items()},
            {i: [references[owner[c]][r] for r in subset] for i, (c, subset) in part.items()},
            known.__getitem__,
        )
        for name, result in score(corpus, names, **given).items():
            values[name].append(result.scores.values)
    first = np.concatenate([[0], np.cumsum([len(subsets[own][0]) for own in owner.tolist()])])[:-1]
    entry = np.stack([subsets[own][1] for own in owner.tolist()], axis=1) + first
    if all(len(sets) == 1 for sets, _ in subsets):
        entry = entry[:1]
    return {name: np.concatenate(each)[entry] for name, each in values.items()}


def _macro(right: BoolArray, group: IntArray) -> FloatArray:
    """Of each draw: the mean over groups of the share of right answers."""
    return np.asarray(np.mean([right[:, group == g].mean(axis=1) for g in np.unique(group)], axis=0), dtype=np.float64)


def _counts(ids: Sequence[str], sizes: Sequence[int], counts: Iterable[int] | None) -> list[int]:
    """The numbers of references asked for: from one to as many as every item has, unless given."""
    fewest = int(np.argmin(sizes))
    if sizes[fewest] < 1:
        raise CrossmatchError(f"item {ids[fewest]!r} has no references; one or more were expected. Add them, or remove it.")
    asked = list(range(1, sizes[fewest] + 1)) if counts is None else sorted(set(counts))
    wrong = next((k for k in asked if not 1 <= k <= sizes[fewest]), None)
    if wrong is not None or not asked:
        raise WrongWords(
            f"{'no number' if wrong is None else wrong} of references was asked for; item {ids[fewest]!r} has {sizes[fewest]}. "
            f"Ask for 1 to {sizes[fewest]}."
        )
    return asked


def _require_alike(**sizes: int) -> None:
    if len(set(sizes.values())) > 1 or not min(sizes.values()):
        told = ", ".join(f"{size:,} {what}" for what, size in sizes.items())
        raise CrossmatchError(f"there are {told}; as many of each were expected, and at least one. Check the file.")
