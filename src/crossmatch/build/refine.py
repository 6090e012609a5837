"""Hard negatives that no blind model tells from captions: the best of them, cleaned, and cut until two score gaps say nothing.

top share      negatives that are plausible and fluent                                            (miranda2024bivlc, sec. 5.2, 1)
clean          no duplicates, no questions, no sentence without an end                            (2)
adversarial    a grid over the gaps of both scores, in which opposite cells hold equal numbers    (3; hsieh2023sugarcrepe)
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from crossmatch.build.blind import Lesson, blind_accuracy
from crossmatch.build.files import Asked, Output, Row, hash_of, manifest, output, read_rows
from crossmatch.build.fluency import Scorer, Scores, as_scorer
from crossmatch.build.format import CLOSING, ENDS
from crossmatch.build.negatives import plain
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.whole import whole_file

STEP = "refine"
BLIND = "blind.json"
SHARE, BINS, MOST_BINS = 0.35, 100, 4096
FEW = 20  # rows; fewer tell nothing about a blind model
SENTENCE_ENDS = (*ENDS, "。", "！", "？", "।", "؟")
QUESTIONS = ("?", "？", "؟")

# -- adversarial refinement


def adversarial_refinement(
    gap1: ArrayLike,
    gap2: ArrayLike,
    bins: int = BINS,
    keys: ArrayLike | None = None,
    *,
    seed: int = 0,
    reach: tuple[float, float] | None = None,
) -> BoolArray:
    """Which pairs to keep so that neither score tells captions from negatives, nor both of them together.

    The plane of the two gaps (the score of the caption minus that of its negative) is cut into K x K cells. A cell and its mirror
    image through the origin, in which the negatives are better by as much, are cut down to the number of the smaller,

        n'(i, j) = n'(-i, -j) = min( n(i, j), n(-i, -j) ),

    so that a model that sees nothing but the scores is right as often as wrong. A gap g belongs to cell sign(g) · ⌈|g| / w⌉, w the
    width of a cell, so that turning all gaps around turns the cells around, to the last bit; 0 belongs to neither side.
    With an odd K the middle cells lie across the axes. `reach` is how far the grid goes on each axis (1, 1 where scores are
    probabilities, as in the authors' program; by default the largest gap); what lies farther counts to the outermost cell.

    Which pairs of a cell stay is drawn by their `keys` (ids, or whole numbers; by default their places) and the seed, so that the
    order of pairs does not matter. Source: hsieh2023sugarcrepe, algorithm 1.

    >>> gap = np.array([0.9, 0.8, -0.85, 0.2, 0.0])
    >>> adversarial_refinement(gap, gap, bins=4).tolist()      # one of the first two, the third, nothing to balance the fourth
    [False, True, True, False, True]
    """
    gaps = [_gap(gap, name) for gap, name in ((gap1, "first"), (gap2, "second"))]
    n = len(gaps[0])
    if len(gaps[1]) != n:
        raise CrossmatchError(
            f"there are {n:,} gaps of the first score and {len(gaps[1]):,} of the second. Give one of each per pair."
        )
    if not 1 <= bins <= MOST_BINS:
        raise WrongWords(f"a grid of {bins} x {bins} cells was asked for; 1 to {MOST_BINS} on each side was expected.")
    if not n:
        return np.zeros(0, dtype=np.bool_)
    ends = reach if reach is not None else tuple(float(np.abs(gap).max()) for gap in gaps)
    first, second = (_cells(gap, bins, end) for gap, end in zip(gaps, ends, strict=True))
    side = bins // 2
    code = first * (2 * side + 1) + second  # the mirror image of a cell has the code with the other sign
    draw = _draws(np.arange(n) if keys is None else np.asarray(keys), n, seed)
    return _equal_numbers(code, draw, most=(2 * side + 1) * side + side)


def _gap(values: ArrayLike, which: str) -> FloatArray:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1:
        raise CrossmatchError(f"the gaps of the {which} score have shape {found.shape}; one number for each pair was expected.")
    if not np.isfinite(found).all():
        raise CrossmatchError(f"a gap of the {which} score is not finite. Leave its pair out, or mend the scorer.")
    return found


def _cells(gap: FloatArray, bins: int, end: float) -> IntArray:
    """The number of the cell of each gap: 0 in the middle, negative where the negative is better."""
    if end < 0 or not math.isfinite(end):
        raise WrongWords(f"the grid shall reach as far as {end}; a positive number was expected.")
    if not end or bins == 1:
        return np.zeros(len(gap), dtype=np.int64)
    far = np.abs(gap) / (2 * end / bins)
    number = np.ceil(far) if bins % 2 == 0 else np.floor(far + 0.5)
    return np.asarray(np.sign(gap) * np.minimum(number, bins // 2), dtype=np.int64)


def _equal_numbers(code: IntArray, draw: NDArray[np.uint64], most: int) -> BoolArray:
    """Of each cell as many as its mirror image has, those that are drawn first; the cell that is its own image is kept whole."""
    count = np.bincount(code + most, minlength=2 * most + 1)
    allowed = np.minimum(count, count[::-1])
    order = _ordered(code + most, draw)
    start = np.concatenate(([0], np.cumsum(count)[:-1]))
    place = code[order] + most
    keep = np.zeros(len(code), dtype=np.bool_)
    keep[order] = np.arange(len(code)) - start[place] < allowed[place]
    twice = (np.diff(draw[order]) == 0) & (np.diff(place) == 0)
    if twice.any():
        raise CrossmatchError("two pairs have the same key, so that it cannot be said which of them is kept. Give each its own.")
    return keep


def _ordered(place: IntArray, draw: NDArray[np.uint64]) -> IntArray:
    """The pairs cell by cell, in each as they are drawn: sorted by one number where its 64 bits tell all of them apart."""
    bits = np.uint64(64 - int(place.max()).bit_length())
    one = (place.astype(np.uint64) << bits) | (draw >> (np.uint64(64) - bits))
    order = np.argsort(one)
    level = one[order]
    return np.lexsort((draw, place)) if (level[1:] == level[:-1]).any() else order


def _draws(keys: NDArray[Any], n: int, seed: int) -> NDArray[np.uint64]:
    """64 random bits for each key, by the key and the seed alone: a hash over its letters, all keys at a time."""
    if keys.shape != (n,):
        raise CrossmatchError(f"keys have shape {keys.shape} for {n:,} pairs; one for each was expected.")
    mixed = np.full(n, np.uint64(seed & 0xFFFFFFFFFFFFFFFF), dtype=np.uint64)
    if keys.dtype.kind in "iu":
        return _stirred(_stirred(mixed) ^ keys.astype(np.uint64))
    text = keys.astype(np.str_)
    width = text.dtype.itemsize // 4
    even = np.ascontiguousarray(text.astype(f"<U{width + width % 2 or 2}")).view(np.uint64).reshape(n, -1)  # two letters at a time
    for column in even.T:
        there = np.flatnonzero(column)  # ids end where their letters do, whatever the longest of them is
        if len(there) == n:
            mixed = _stirred(mixed ^ column)
        else:
            mixed[there] = _stirred(mixed[there] ^ column[there])
    return _stirred(mixed)


def _stirred(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One step of splitmix64 (steele2014fast)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


# -- the best of them


def best(scores: Sequence[FloatArray], share: float, keys: Sequence[str], seed: int = 0) -> BoolArray:
    """The share of texts that are best by all scores together: by the mean of their ranks, so that no scale outweighs another.

    BiVLC keeps the upper 35 % by "the combined score of both models", and does not say how they are combined. Ties are broken by
    the keys.

    >>> best([np.array([1.0, 5.0, 3.0]), np.array([0.1, 0.3, 0.2])], 0.4, ["a", "b", "c"]).tolist()
    [False, True, True]
    """
    if not 0 < share <= 1:
        raise WrongWords(f"the share to keep is {share}; more than 0 and at most 1 was expected.")
    n = len(scores[0])
    combined = np.mean([rankdata(score) for score in scores], axis=0) if n else np.zeros(0)
    order = np.lexsort((_draws(np.asarray(keys, dtype=np.str_), n, seed), -combined))
    keep = np.zeros(n, dtype=np.bool_)
    keep[order[: math.ceil(share * n)]] = True
    return keep


def unfit(rows: Sequence[Row]) -> list[str]:
    """Why each row is no fit negative, or nothing: a question, no end, a caption of its image, or that of an earlier id.

    >>> texts = ("A cat.", "a cat.", "A cat?", "A cat", "A dog.")
    >>> unfit([{"id": n, "image_id": "x", "caption": "A dog.", "negative": text} for n, text in enumerate(texts)])
    ['', 'duplicate', 'question', 'no end', 'a caption of the image']
    """
    said: dict[str, set[str]] = {}
    for row in rows:
        said.setdefault(row["image_id"], set()).add(plain(row["caption"]))
    first = {plain(row["negative"]): row["id"] for row in sorted(rows, key=lambda row: str(row["id"]), reverse=True)}
    return [_unfit(row, said, first) for row in rows]


def _unfit(row: Row, said: dict[str, set[str]], first: dict[str, Any]) -> str:
    text, words = row["negative"].rstrip().rstrip(CLOSING), plain(row["negative"])
    if text.endswith(QUESTIONS):
        return "question"
    if not text.endswith(SENTENCE_ENDS):
        return "no end"
    if words in said[row["image_id"]]:
        return "a caption of the image"
    return "duplicate" if first[words] != row["id"] else ""


# -- the step


def refine(
    source: Path,
    output_folder: Path,
    *,
    scorers: Sequence[str | Scorer | Scores] = ("plausibility", "fluency"),
    share: float = SHARE,
    bins: int = BINS,
    seed: int = 0,
) -> dict[str, Any]:
    """Refine the hard negatives of a folder into another; its manifest.

    Each row keeps its two gaps and gets its four `scores`. The manifest counts what was dropped, and why; `blind.json` tells how
    often a blind classifier finds the caption before and after. Put captions into form first: those without an end are dropped.
    """
    told = manifest(source)
    if told["step"] not in ("negatives", "format"):
        raise WrongWords(f"{source} was made by {told['step']}; a folder with hard negatives was expected. Check the path.")
    if len(scorers) != 2:
        raise WrongWords(f"{len(scorers)} scorers were named; two were expected, such as plausibility and fluency.")
    both = [as_scorer(one) for one in scorers]
    options = {"scorers": [one.name for one in both], "share": share, "bins": bins}
    with output(output_folder, Asked(STEP, {"negatives": hash_of(source)}, options, seed)) as made:
        if not made.finished:
            rows = sorted(read_rows(source), key=lambda row: str(row["id"]))
            _fill(made, rows, both, share, bins, seed)
    return manifest(output_folder)


def _fill(made: Output, rows: list[Row], scorers: Sequence[Scorer], share: float, bins: int, seed: int) -> None:
    made.count("read", len(rows))
    scores = [pair_scores(scorer, rows) for scorer in scorers]
    ids = [str(row["id"]) for row in rows]
    chosen = np.flatnonzero(best([negative for _, negative in scores], share, ids, seed)) if rows else np.zeros(0, dtype=np.int64)
    made.count("dropped: below the share", len(rows) - len(chosen))
    problems = unfit([rows[n] for n in chosen])
    for problem in problems:
        if problem:
            made.count(f"dropped: {problem}")
    fit = np.asarray([n for n, problem in zip(chosen, problems, strict=True) if not problem], dtype=np.int64)
    one, other = ((positive - negative)[fit] for positive, negative in scores)
    kept = fit[adversarial_refinement(one, other, bins, np.asarray([ids[n] for n in fit], dtype=np.str_), seed=seed)]
    made.count("dropped: to balance the grid", len(fit) - len(kept))
    made.count("kept", len(kept))
    for n in kept:
        found = [[float(positive[n]), float(negative[n])] for positive, negative in scores]
        if ids[n] not in made.done:
            made.write({**rows[n], "scores": found})
    _tell(made, rows, scores, fit, kept)


def pair_scores(scorer: Scorer, rows: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
    """The scores of the captions and of the negatives; an image is a group, as its captions are alike."""
    texts = [row["caption"] for row in rows] + [row["negative"] for row in rows]
    groups = [str(row["image_id"]) or str(row["caption_id"]) for row in rows]
    if not rows:
        return np.zeros(0), np.zeros(0)
    found = scorer.score(texts, groups * 2, [True] * len(rows) + [False] * len(rows))
    return found[: len(rows)], found[len(rows) :]


def _tell(
    made: Output, rows: Sequence[Row], scores: Sequence[tuple[FloatArray, FloatArray]], fit: IntArray, kept: IntArray
) -> None:
    """How often a blind classifier finds the caption by the two gaps: among all that was read, what was fit, and what is kept.

    The last is told by what was learnt before the cut, as a model would bring it along, and by what the kept pairs teach.
    """
    gaps = np.stack([positive - negative for positive, negative in scores], axis=1)
    images = [str(row["image_id"]) or str(row["caption_id"]) for row in rows]
    everything = np.arange(len(rows))
    stages = {"read": (everything, None), "fit": (fit, None), "kept": (kept, fit), "kept, taught by itself": (kept, None)}
    told: dict[str, Any] = {}
    for stage, (judged, learnt) in stages.items():
        told[stage] = {"pairs": len(judged)}
        names = [images[n] for n in judged]
        if len(judged) >= FEW and len(set(names)) > 1:
            before = None if learnt is None else Lesson(gaps[learnt], [images[n] for n in learnt])
            found = blind_accuracy(gaps[judged], names, learnt=before)
            told[stage] |= {"accuracy": found.value, "low": found.low, "high": found.high}
    with whole_file(made.folder / BLIND) as file:
        file.write(json.dumps(told, indent=1).encode())
