"""Has another score to do with what a model gets right? Its distribution over right and over wrong trials (hu2019bison, fig. 8)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks import benchmark_named
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part, Result
from crossmatch.core.trials import Trials
from crossmatch.metrics.choice import ASKED
from crossmatch.metrics.measure import applies
from crossmatch.metrics.significance import SAMPLES, interval
from crossmatch.metrics.table import metric
from crossmatch.report.tables import NONE, Table, labels

QUARTILES = (0.25, 0.5, 0.75)
KEYS = ("trial_id", "image_id")
MARGIN, CONFIDENCE = "margin", "confidence"


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
    result: Result, scores: Mapping[str, Mapping[str, float]] | None = None, name: str | None = None, *, partial: bool = False,
    samples: int = SAMPLES, seed: int = 0,
) -> list[Apart]:  # fmt: skip
    """For each score, its values on the trials of a saved result that are right and on those that are wrong.

    `scores` maps the name of a score to its value for each trial; by default they are the model's own margin and confidence. `name`
    is the metric that says what is right: accuracy, or group where both sides offer a choice. `partial` leaves out trials without
    a score. The interval of the AUC is that of a bootstrap over the clusters of trials that share an image.
    """
    part = _whole(result)
    chosen = name or next(m for m in ("accuracy", "group") if applies(metric(m), part))
    if metric(chosen).shape != "trials" or not applies(metric(chosen), part):
        raise WrongWords(f"{chosen} says nothing about the trials of {result.task}. Name one of its own metrics.")
    right = np.asarray(metric(chosen).values(part.evidence)) > 0
    if scores is None:
        return _own(result, part, right, chosen, samples, seed)
    return [_apart(key, *_given(key, said, part, right, partial), samples, seed) for key, said in scores.items()]


def auc(score: FloatArray, right: BoolArray) -> float:
    """How often a right trial has a higher score than a wrong one; equal scores count half.

        AUC = P[ s_r > s_w ] + ½ P[ s_r = s_w ]

    That is Mann and Whitney's U over the number of pairs; 0.5 means that the score does not tell. Source: mann1947test.

    >>> auc(np.array([3.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False]))
    0.875
    """
    _, place = np.unique(score, return_inverse=True)
    return _auc(place.ravel(), right.astype(np.float64), (~right).astype(np.float64))


def auc_interval(
    score: FloatArray, right: BoolArray, clusters: IntArray, samples: int = SAMPLES, seed: int = 0
) -> tuple[float, float]:
    """The 95 % percentile interval of the AUC when whole clusters are drawn anew (field2007bootstrapping).

    Replicates without a right or without a wrong trial have no AUC and are left out. A single cluster tells nothing: 0 to 1.
    """
    names, member = np.unique(clusters, return_inverse=True)
    _, place = np.unique(score, return_inverse=True)
    member, place, n = member.ravel(), place.ravel(), len(names)
    if n < 2:
        return 0.0, 1.0
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(samples):
        times = np.bincount(rng.integers(0, n, n), minlength=n)[member].astype(np.float64)
        yes, no = times * right, times * ~right
        if yes.any() and no.any():
            found.append(_auc(place, yes, no))
    return interval(np.asarray(found)) if found else (0.0, 1.0)


def margins(outcomes: Outcomes, name: str) -> FloatArray:
    """Own score minus the best rival's, the smallest over the choices that the metric asks for: positive where it is right.

    >>> margins(Outcomes.of(np.array([[[0.75, 0.25]], [[0.5, 0.75]]])), "accuracy")
    array([ 0.5 , -0.25])
    """
    return np.asarray(np.min([own - best for own, best, _ in _lines(outcomes, name)], axis=0), dtype=np.float64)


def confidences(outcomes: Outcomes, name: str) -> FloatArray:
    """The best score minus the second best, the smallest over the same choices: how sure a model is, right or wrong.

    >>> confidences(Outcomes.of(np.array([[[0.75, 0.25]], [[0.5, 0.75]]])), "accuracy")
    array([0.5 , 0.25])
    """
    found = [
        abs(own - best) if second is None else np.where(own > best, own - best, best - np.maximum(own, second))
        for own, best, second in _lines(outcomes, name)
    ]
    return np.asarray(np.min(found, axis=0), dtype=np.float64)


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
    with path.open(newline="", encoding="utf-8-sig") as file:
        head, *rows = [row for row in csv.reader(file) if row] or [[]]
    key = next((name for name in KEYS if name in head), None)
    columns = [name for name in head if name not in KEYS]
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
    named = {path.stem if name == "score" else name: said for name, said in held.items()}
    if key == "trial_id":
        return named
    image = _positive_images(result)
    return {
        name: {trial: said[image[trial]] for trial in _whole(result).ids.tolist() if image.get(trial) in said}
        for name, said in named.items()
    }


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


def _own(result: Result, part: Part, right: BoolArray, name: str, samples: int, seed: int) -> list[Apart]:
    assert isinstance(part.evidence, Outcomes)
    margin, confidence = margins(part.evidence, name), confidences(part.evidence, name)
    _require_both(MARGIN, right)
    return [
        Apart(MARGIN, margin[right], margin[~right], None, 0.0, 1.0),
        _apart(CONFIDENCE, confidence, right, part.clusters, samples, seed),
    ]


def _given(
    key: str, said: Mapping[str, float], part: Part, right: BoolArray, partial: bool
) -> tuple[FloatArray, BoolArray, IntArray]:
    ids = part.ids.tolist()
    there = np.asarray([name in said for name in ids])
    if not there.all() and (not partial or not there.any()):
        missing = ids[int(there.argmin())]
        raise CrossmatchError(
            f"{(~there).sum():,} of {len(ids):,} trials have no {key}; first missing: {missing!r}. Add it"
            + (", or say --partial to leave them out." if there.any() else "; none of the ids is that of a trial.")
        )
    return np.asarray([said[name] for name in ids if name in said], dtype=np.float64), right[there], part.clusters[there]


def _apart(key: str, score: FloatArray, right: BoolArray, clusters: IntArray, samples: int, seed: int) -> Apart:
    _require_both(key, right)
    return Apart(key, score[right], score[~right], auc(score, right), *auc_interval(score, right, clusters, samples, seed))


def _require_both(key: str, right: BoolArray) -> None:
    if right.all() or not right.any():
        raise CrossmatchError(
            f"all {len(right):,} trials that have {key} were answered {'rightly' if right.all() else 'wrongly'}: there is nothing "
            "to compare. Take a model that gets some right and some wrong."
        )


def _auc(place: IntArray, yes: FloatArray, no: FloatArray) -> float:
    """From the place of each trial's score among the distinct ones, and how often it counts as right and as wrong."""
    more, less = (np.bincount(place, weights=times) for times in (yes, no))
    below = np.cumsum(less) - less
    return float((more * (below + less / 2)).sum() / (more.sum() * less.sum()))


def _positive_images(result: Result) -> dict[str, str]:
    """The positive image of each trial, from the task's data."""
    if result.task.startswith("trials:"):
        raise WrongWords(f"{result.task} does not say where its file is, so images cannot be told. Give scores by trial_id.")
    declared, _ = benchmark_named(result.task, {})
    data = declared.loaded(**{key: value for key, value in result.options.items() if key in declared.options})
    assert isinstance(data, Trials)
    return dict(zip(data.ids.tolist(), data.images[:, 0].tolist(), strict=True))


def _number(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise CrossmatchError(f"{where} is {cell!r}, which is not a number. Mend it.") from None
    if not np.isfinite(value):
        raise CrossmatchError(f"{where} is {cell}; a finite number was expected. Mend it, or leave the line out.")
    return value
