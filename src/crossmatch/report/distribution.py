"""Has another score to do with what a model gets right? Its distribution over right and over wrong trials (hu2019bison, fig. 8)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from crossmatch.benchmarks import benchmark_named
from crossmatch.benchmarks.formats.table import text_of
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part, Result
from crossmatch.core.trials import Trials
from crossmatch.metrics.choice import ASKED
from crossmatch.metrics.measure import applies
from crossmatch.metrics.significance import LEVEL
from crossmatch.metrics.table import metric
from crossmatch.report.tables import NONE, Table, labels

QUARTILES = (0.25, 0.5, 0.75)
LARGEST = 1e300  # so that a mean of them stays a number
KEYS = ("trial_id", "image_id")
MARGIN, CONFIDENCE = "margin", "confidence"
HALVINGS = 60  # of an interval of length 1: down to the last bit


@dataclass(frozen=True, eq=False)
class Apart:
    """A score of the trials that were answered rightly and of those answered wrongly, and how far it tells them apart."""

    score: str
    right: FloatArray
    wrong: FloatArray
    auc: float | None  # None where the score is the answer itself
    low: float
    high: float


def apart(
    result: Result, scores: Mapping[str, Mapping[str, float]] | None = None, name: str | None = None, *, partial: bool = False
) -> list[Apart]:
    """For each score, its values on the trials of a saved result that are right and on those that are wrong.

    `scores` maps the name of a score to its value for each trial; by default they are the model's own margin and confidence. `name`
    is the metric that says what is right: accuracy, or group where both sides offer a choice. `partial` leaves out trials without
    a score; a score of no trial is an error always. The interval of the AUC knows which trials share an image.
    """
    part = _whole(result)
    chosen = name or next(m for m in ("accuracy", "group") if applies(metric(m), part))
    if metric(chosen).shape != "trials" or not applies(metric(chosen), part):
        raise WrongWords(f"{chosen} says nothing about the trials of {result.task}. Name one of its own metrics.")
    right = np.asarray(metric(chosen).values(part.evidence)) > 0
    if scores is None:
        return _own(part, right, chosen)
    return [_apart(key, *_given(key, said, result, right, partial)) for key, said in scores.items()]


def auc(score: FloatArray, right: BoolArray) -> float:
    """How often a right trial has a higher score than a wrong one; equal scores count half.

        AUC = P[ s_r > s_w ] + ½ P[ s_r = s_w ]

    That is Mann and Whitney's U over the number of pairs; 0.5 means that the score does not tell. Source: mann1947test.

    >>> auc(np.array([3.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False]))
    0.875
    """
    return float(_placements(score, right)[right].mean())


def auc_interval(score: FloatArray, right: BoolArray, clusters: IntArray) -> tuple[float, float]:
    """The 95 % score interval of an AUC of m right and n wrong trials: all q with |AUC - q| <= z √(d V(q)).

        V(q) = q (1 - q) (1 + (N - 1) ((1 - q) / (2 - q) + q / (1 + q))) / (m n),    N = (m + n) / 2

    is the variance under a model of the scores (newcombe2006confidence, method 5; hanley1982meaning), so that the interval has a
    width even where the score tells all trials apart. d, at least 1, makes it as large as the variance that the data have, of a sum
    over clusters (delong1988comparing; obuchowski1997nonparametric): the larger of its ratios to V(AUC) and to the variance of so
    many independent trials, raised by the squared ratio of Student's quantiles where clusters are few. Where that variance is
    nothing, d is the mean size of a cluster. A single cluster tells nothing: 0 to 1.

    >>> [round(end, 2) for end in auc_interval(np.arange(4.0), np.arange(4) > 1, np.arange(4))]
    [0.39, 1.0]
    """
    member = np.unique(clusters, return_inverse=True)[1].ravel()
    trials, held = len(score), int(member.max()) + 1
    if held < 2:
        return 0.0, 1.0
    value, m, n = auc(score, right), int(right.sum()), int((~right).sum())
    clustered, alone = _variances(score, right, member)
    modelled = _model_variance(value, m, n)
    effect = max(1.0, clustered / modelled, clustered / alone) if alone > 0 and modelled > 0 else trials / held
    if held < trials:
        effect *= (_quantile(held) / _quantile(trials)) ** 2
    z = float(special.ndtri((1 + LEVEL) / 2))
    return _end(value, 0.0, z * z * effect, m, n), _end(value, 1.0, z * z * effect, m, n)


def _variances(score: FloatArray, right: BoolArray, member: IntArray) -> tuple[float, float]:
    """The variance of the AUC from each trial's influence on it, summed over clusters first, and as if trials were independent."""
    placed = _placements(score, right)
    influence = np.zeros(len(score))
    for side in (right, ~right):
        held = len(np.unique(member[side]))
        influence[side] = (placed[side] - placed[side].mean()) / side.sum() * np.sqrt(held / max(1, held - 1))
    return float((np.bincount(member, weights=influence) ** 2).sum()), float((influence**2).sum())


def _model_variance(q: float, m: int, n: int) -> float:
    return q * (1 - q) * (1 + ((m + n) / 2 - 1) * ((1 - q) / (2 - q) + q / (1 + q))) / (m * n)


def _end(value: float, end: float, reach: float, m: int, n: int) -> float:
    """The q farthest from the value towards this end with (value - q)² <= reach V(q): once too far, it stays so."""
    inside, outside = value, end
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        if (value - middle) ** 2 <= reach * _model_variance(middle, m, n):
            inside = middle
        else:
            outside = middle
    return inside


def _quantile(n: int) -> float:
    return float(special.stdtrit(n - 1, (1 + LEVEL) / 2))


def margins(outcomes: Outcomes, name: str) -> FloatArray:
    """Own score minus the best rival's, the smallest over the choices that the metric asks for: positive where it is right.

    >>> margins(Outcomes.of(np.array([[[0.75, 0.25]], [[0.5, 0.75]]])), "accuracy")
    array([ 0.5 , -0.25])
    """
    with np.errstate(over="ignore"):  # two scores of the largest size may be further apart than a number can tell
        found = np.min([own - best for own, best, _ in _lines(outcomes, name)], axis=0)
    return np.asarray(np.clip(found, -LARGEST, LARGEST), dtype=np.float64)


def confidences(outcomes: Outcomes, name: str) -> FloatArray:
    """The best score minus the second best, the smallest over the same choices: how sure a model is, right or wrong.

    >>> confidences(Outcomes.of(np.array([[[0.75, 0.25]], [[0.5, 0.75]]])), "accuracy")
    array([0.5 , 0.25])
    """
    with np.errstate(over="ignore"):
        found = [
            abs(own - best) if second is None else np.where(own > best, own - best, best - np.maximum(own, second))
            for own, best, second in _lines(outcomes, name)
        ]
    return np.asarray(np.clip(np.min(found, axis=0), -LARGEST, LARGEST), dtype=np.float64)


def _lines(outcomes: Outcomes, name: str) -> list[tuple[FloatArray, FloatArray, FloatArray | None]]:
    """For each choice: the own score, the best rival's and, where there are more, the second best rival's."""
    scores = outcomes.scores
    if scores is None:
        raise CrossmatchError(
            "only what came of the trials was saved, not the scores, so there is no margin. Evaluate scores, or give others: "
            "--by FILE.csv"
        )
    asked = zip(ASKED[name], (np.swapaxes(scores, 1, 2), scores), strict=True)  # the choices of images, then those of captions
    found = []
    for which, grid in asked:
        for m in range(outcomes.matched)[which]:
            rivals = np.sort(np.delete(grid[:, m, :], m, axis=1), axis=1)
            if rivals.shape[1]:
                found.append((grid[:, m, m], rivals[:, -1], rivals[:, -2] if rivals.shape[1] > 1 else None))
    return found


def read_scores(path: Path, result: Result) -> dict[str, dict[str, float]]:
    """Scores by trial from a csv: `trial_id`, or `image_id` for those of the positive image, and a column for each score.

    A column called `score` goes by the name of the file.
    """
    if not path.is_file():
        raise WrongWords(f"there is no file {path}. Check the path.")
    text = text_of(path.read_bytes(), str(path)).removeprefix("\ufeff")
    try:
        head, *rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row] or [[]]
    except csv.Error as error:
        raise CrossmatchError(f"{path} cannot be read as csv ({error}). Close every double quote, and write it again.") from None
    key = next((name for name in KEYS if name in head), None)
    columns = [name for name in head if name not in KEYS]
    twice = next((name for name in head if head.count(name) > 1), None)
    if twice is not None:
        raise CrossmatchError(f"{path} has two columns called {twice!r}. Name them differently.")
    if key is None or not columns or not rows:
        raise CrossmatchError(
            f"{path} has the columns {', '.join(head) or '(none)'} and {len(rows):,} rows; expected trial_id (or image_id), score."
        )
    held: dict[str, dict[str, float]] = {name: {} for name in columns}
    for n, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise CrossmatchError(f"{path}, line {n}: {len(row)} cells under {len(head)} columns. Mend it.")
        cells = dict(zip(head, row, strict=True))
        for name in columns:
            if cells[key] in held[name]:
                raise CrossmatchError(f"{path}, line {n}: {key} {cells[key]!r} is there twice. Keep one of them.")
            held[name][cells[key]] = _number(cells[name], f"{path}, line {n}: {name} of {key} {cells[key]!r}")
    if "score" in held and path.stem in held and path.stem != "score":
        raise CrossmatchError(
            f"{path} has a column {path.stem!r}, and its column 'score' goes by that name too. Rename one of them."
        )
    named = {path.stem if name == "score" else name: said for name, said in held.items()}
    return named if key == "trial_id" else _by_image(path, named, result)


def read_all_scores(paths: Sequence[Path], result: Result) -> dict[str, dict[str, float]]:
    """The scores of several files; two files that have one of the same name are refused."""
    found: dict[str, dict[str, float]] = {}
    source: dict[str, Path] = {}
    for path in paths:
        for name, said in read_scores(path, result).items():
            if name in found:
                why = " (a column 'score' goes by the name of its file)" if name == path.stem else ""
                raise CrossmatchError(
                    f"{source[name]} and {path} both have a score called {name!r}{why}. Rename one, or name each file once."
                )
            found[name], source[name] = said, path
    return found


def apart_table(result: Result, found: Sequence[Apart]) -> Table:
    """Two lines for each score: the trials that were answered rightly, and those answered wrongly."""
    body = []
    for one in found:
        sure = NONE if one.auc is None else f"{one.auc:.3f} [{one.low:.3f}, {one.high:.3f}]"
        for n, (said, values) in enumerate((("right", one.right), ("wrong", one.wrong))):
            told = (f"{len(values):,}", *(f"{x:.4g}" for x in (values.mean(), *np.quantile(values, QUARTILES))))
            body.append((one.score if n == 0 else "", said, *told, sure if n == 0 else ""))
    notes = ["AUC: how often a right trial has the higher score than a wrong one; 0.5 means that the score does not tell"]
    if any(one.auc is None for one in found):
        notes.append("the sign of the margin is the answer itself, so it has no AUC; confidence is best minus second best score")
    head = (("score", "trials", "n", "mean", "25 %", "median", "75 %", "AUC [95 %]"),)
    return Table(f"{labels([result])[0]} on {result.task}: scores of right and wrong trials", head, tuple(body), 2, tuple(notes))


def as_rows(found: Sequence[Apart]) -> list[dict[str, Any]]:
    """For JSON; where the score is the answer itself, `auc` is null."""
    return [
        {
            "score": one.score,
            **({"auc": None} if one.auc is None else {"auc": one.auc, "low": one.low, "high": one.high}),
            **{
                said: {"n": len(x), "mean": float(x.mean()), "quartiles": np.quantile(x, QUARTILES).tolist()}
                for said, x in (("right", one.right), ("wrong", one.wrong))
            },
        }
        for one in found
    ]


def _whole(result: Result) -> Part:
    part = result.parts.get("")
    if part is None or not isinstance(part.evidence, Outcomes):
        raise WrongWords(f"{result.task} has no trials that are right or wrong. Name a result on a task such as bison or bivlc.")
    return part


def _own(part: Part, right: BoolArray, name: str) -> list[Apart]:
    assert isinstance(part.evidence, Outcomes)
    margin, confidence = margins(part.evidence, name), confidences(part.evidence, name)
    _require_both(MARGIN, right)
    return [
        Apart(MARGIN, margin[right], margin[~right], None, 0.0, 1.0),
        _apart(CONFIDENCE, confidence, right, part.clusters),
    ]


def _given(
    key: str, said: Mapping[str, float], result: Result, right: BoolArray, partial: bool
) -> tuple[FloatArray, BoolArray, IntArray]:
    part = _whole(result)
    ids = part.ids.tolist()
    strangers = said.keys() - set(ids)
    if strangers:
        first = next(name for name in said if name in strangers)
        raise CrossmatchError(
            f"{len(strangers):,} of {len(said):,} values of {key} are of no trial of this result; first: {first!r}. It has "
            f"{len(ids):,} trials of {result.task}, such as {ids[0]!r}. Correct the ids, or take those lines out."
        )
    there = np.asarray([name in said for name in ids])
    if not there.all() and (not partial or not there.any()):
        missing = ids[int(there.argmin())]
        raise CrossmatchError(
            f"{(~there).sum():,} of {len(ids):,} trials have no {key}; first missing: {missing!r}. Add it"
            + (", or say --partial to leave them out." if there.any() else ".")
        )
    return np.asarray([said[name] for name in ids if name in said], dtype=np.float64), right[there], part.clusters[there]


def _apart(key: str, score: FloatArray, right: BoolArray, clusters: IntArray) -> Apart:
    _require_both(key, right)
    return Apart(key, score[right], score[~right], auc(score, right), *auc_interval(score, right, clusters))


def _require_both(key: str, right: BoolArray) -> None:
    if right.all() or not right.any():
        raise CrossmatchError(
            f"all {len(right):,} trials that have {key} were answered {'rightly' if right.all() else 'wrongly'}: there is nothing "
            "to compare. Take a model that gets some right and some wrong."
        )


def _placements(score: FloatArray, right: BoolArray) -> FloatArray:
    """Of each right trial the share of wrong ones below it, of each wrong one the share of right ones above it; ties count half."""
    place = np.unique(score, return_inverse=True)[1].ravel()
    more, less = (np.bincount(place, weights=side, minlength=int(place.max()) + 1) for side in (right, ~right))
    below = (np.cumsum(less) - less / 2) / less.sum()
    above = 1 - (np.cumsum(more) - more / 2) / more.sum()
    return np.asarray(np.where(right, below[place], above[place]), dtype=np.float64)


def _by_image(path: Path, named: Mapping[str, Mapping[str, float]], result: Result) -> dict[str, dict[str, float]]:
    """Scores of images as scores of the trials whose positive image they are of."""
    if result.task.startswith("trials:"):
        raise WrongWords(f"{result.task} does not say where its file is, so images cannot be told. Give scores by trial_id.")
    declared, _ = benchmark_named(result.task, {})
    data = declared.loaded(**{key: value for key, value in result.options.items() if key in declared.options})
    assert isinstance(data, Trials)
    image = dict(zip(data.ids.tolist(), data.images[:, 0].tolist(), strict=True))
    known = set(data.images.ravel().tolist())
    stranger = next((name for said in named.values() for name in said if name not in known), None)
    if stranger is not None:
        raise CrossmatchError(
            f"{path}: image_id {stranger!r} is in no trial of {result.task}; its images are such as {data.images[0, 0].item()!r}. "
            "Correct the id, or take the line out."
        )
    asked = _whole(result).ids.tolist()
    return {name: {trial: said[image[trial]] for trial in asked if image.get(trial) in said} for name, said in named.items()}


def _number(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise CrossmatchError(f"{where} is {cell!r}, which is not a number. Mend it.") from None
    if not np.isfinite(value):
        raise CrossmatchError(f"{where} is {cell}; a finite number was expected. Mend it, or leave the line out.")
    return value
