"""Distribution of a score over correct and wrong trials of a result (hu2019bison, fig. 8)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from crossmatch.benchmarks import resolve_task
from crossmatch.benchmarks.formats.csv_tables import decode_text
from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.result import Result, ResultPart
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.data.trials import Trials
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL
from crossmatch.metrics.forced_choice import required_choices
from crossmatch.metrics.measurement import is_applicable
from crossmatch.metrics.metric_table import metric
from crossmatch.report.captions.scores_output import CANDIDATES_COLUMN, CAPTION_COLUMN
from crossmatch.report.tables import EMPTY_CELL, Table, model_labels

QUARTILES = (0.25, 0.5, 0.75)
LARGEST = 1e300  # limit of margins, so that their mean is finite
ID_COLUMNS = ("trial_id", "image_id")
MARGIN, CONFIDENCE = "margin", "confidence"
BISECTIONS = 60  # of an interval of length 1, down to the last bit


@dataclass(frozen=True, eq=False)
class ScoreSplit:
    """The values of a score on correct and on wrong trials, and the AUC, which measures how well it separates them."""

    score: str
    right: FloatArray  # values on correct trials
    wrong: FloatArray  # values on wrong trials
    auc: float | None  # None if the score determines the answer
    low: float
    high: float


def split_scores(
    result: Result, scores: Mapping[str, Mapping[str, float]] | None = None, name: str | None = None, *, partial: bool = False
) -> list[ScoreSplit]:
    """Split scores into those of correct and of wrong trials of a result.

    `scores` are by trial id; by default the model's own margin and confidence. The metric `name` decides which trials are correct; by
    default accuracy, or group for trials with two of each. `partial` leaves out trials without a score.

    The interval of the AUC takes clusters of trials with a common image into account.
    """
    part = _trials_part(result)
    name = name or next(m for m in ("accuracy", "group") if is_applicable(metric(m), part))
    if metric(name).shape != "trials" or not is_applicable(metric(name), part):
        raise UsageError(f"The metric {name} does not apply to the trials of {result.task}. Name one of its own metrics.")
    right = np.asarray(metric(name).values(part.evidence)) > 0
    if scores is None:
        return _split_own_scores(part, right, name)
    return [_split(key, *_align_scores(key, values, result, right, partial)) for key, values in scores.items()]


def auc(score: FloatArray, right: BoolArray) -> float:
    """The probability that a correct trial has a higher score than a wrong one; ties count half.

        AUC = P[ s_r > s_w ] + ½ P[ s_r = s_w ]

    This is Mann and Whitney's U divided by the number of pairs; 0.5 means no separation. Source: mann1947test.

    >>> auc(np.array([3.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False]))
    0.875
    """
    return float(_placements(score, right)[right].mean())


def auc_interval(score: FloatArray, right: BoolArray, clusters: IntArray) -> tuple[float, float]:
    """The 95 % score interval of an AUC of m correct and n wrong trials: all q with |AUC - q| <= z √(d V(q)).

        V(q) = q (1 - q) (1 + (N - 1) ((1 - q) / (2 - q) + q / (1 + q))) / (m n),    N = (m + n) / 2

    is the variance under a model of the scores (newcombe2006confidence, method 5; hanley1982meaning), so the interval has a
    positive width even if the score separates all trials. The design effect d, at least 1, adjusts it to the variance of the data
    over clusters (delong1988comparing; obuchowski1997nonparametric): it is the larger of the ratios of that variance to V(AUC) and
    to the variance of independent trials, increased by the squared ratio of Student's quantiles for few clusters. If that variance
    is 0, d is the mean size of a cluster. With a single cluster the interval is 0 to 1.

    >>> [round(end, 2) for end in auc_interval(np.arange(4.0), np.arange(4) > 1, np.arange(4))]
    [0.39, 1.0]
    """
    member = np.unique(clusters, return_inverse=True)[1].ravel()
    trials, cluster_count = len(score), int(member.max()) + 1
    if cluster_count < 2:
        return 0.0, 1.0
    value, m, n = auc(score, right), int(right.sum()), int((~right).sum())
    clustered, independent = _variances(score, right, member)
    modelled = _model_variance(value, m, n)
    effect = max(1.0, clustered / modelled, clustered / independent) if independent > 0 and modelled > 0 else trials / cluster_count
    if cluster_count < trials:
        effect *= (_quantile(cluster_count) / _quantile(trials)) ** 2
    z = float(special.ndtri((1 + CONFIDENCE_LEVEL) / 2))
    return _interval_end(value, 0.0, z * z * effect, m, n), _interval_end(value, 1.0, z * z * effect, m, n)


def _variances(score: FloatArray, right: BoolArray, member: IntArray) -> tuple[float, float]:
    """The variance of the AUC from the influence of each trial: summed over clusters first, and for independent trials."""
    placements = _placements(score, right)
    influence = np.zeros(len(score))
    for side in (right, ~right):
        clusters = len(np.unique(member[side]))
        centred = placements[side] - placements[side].mean()
        influence[side] = centred / side.sum() * np.sqrt(clusters / max(1, clusters - 1))
    return float((np.bincount(member, weights=influence) ** 2).sum()), float((influence**2).sum())


def _model_variance(q: float, m: int, n: int) -> float:
    return q * (1 - q) * (1 + ((m + n) / 2 - 1) * ((1 - q) / (2 - q) + q / (1 + q))) / (m * n)


def _interval_end(value: float, end: float, reach: float, m: int, n: int) -> float:
    """The q farthest from the value towards an end with (value - q)² <= reach V(q), by bisection."""
    inside, outside = value, end
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2
        if (value - middle) ** 2 <= reach * _model_variance(middle, m, n):
            inside = middle
        else:
            outside = middle
    return inside


def _quantile(n: int) -> float:
    return float(special.stdtrit(n - 1, (1 + CONFIDENCE_LEVEL) / 2))


def margins(outcomes: Outcomes, name: str) -> FloatArray:
    """The score of the match minus the best other score, minimised over the choices of the metric; positive if correct.

    >>> margins(Outcomes.from_scores(np.array([[[0.75, 0.25]], [[0.5, 0.75]]])), "accuracy")
    array([ 0.5 , -0.25])
    """
    with np.errstate(over="ignore"):  # the difference of two huge scores may overflow
        margin = np.min([match - best for match, best, _ in _choices(outcomes, name)], axis=0)
    return np.asarray(np.clip(margin, -LARGEST, LARGEST), dtype=np.float64)


def confidences(outcomes: Outcomes, name: str) -> FloatArray:
    """The best score minus the second best, minimised over the choices of the metric.

    >>> confidences(Outcomes.from_scores(np.array([[[0.75, 0.25]], [[0.5, 0.75]]])), "accuracy")
    array([0.5 , 0.25])
    """
    with np.errstate(over="ignore"):
        gaps = [
            abs(match - best) if second is None else np.where(match > best, match - best, best - np.maximum(match, second))
            for match, best, second in _choices(outcomes, name)
        ]
    return np.asarray(np.clip(np.min(gaps, axis=0), -LARGEST, LARGEST), dtype=np.float64)


def _choices(outcomes: Outcomes, name: str) -> list[tuple[FloatArray, FloatArray, FloatArray | None]]:
    """For each choice: the score of the match, the best other score and, if there are more, the second best other score."""
    scores = outcomes.scores
    if scores is None:
        raise CrossmatchError(
            "The result has no saved scores, so there is no margin. Evaluate a model that gives scores, or use other scores with "
            "--by FILE.csv"
        )
    by_image, by_caption = required_choices(metric(name).values, outcomes.shape)
    choices = []
    for pairs, grid in ((by_image, np.swapaxes(scores, 1, 2)), (by_caption, scores)):
        for m in pairs:
            others = np.sort(np.delete(grid[:, m, :], m, axis=1), axis=1)
            if others.shape[1]:
                choices.append((grid[:, m, m], others[:, -1], others[:, -2] if others.shape[1] > 1 else None))
    return choices


def read_scores(path: Path, result: Result) -> dict[str, dict[str, float]]:
    """Read scores by trial from a csv file.

    The file has a column `trial_id`, or `image_id` for scores of the positive image, and a column for each score. A column called
    `score` is named after the file. In a file of `captions score --per-caption`, the text of the caption is not a score, and with
    several files of candidates the name of each becomes part of its scores' names.
    """
    if not path.is_file():
        raise UsageError(f"No file at {path}. Check the path.")
    text = decode_text(path.read_bytes(), str(path)).removeprefix("\ufeff")
    try:
        head, *rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row] or [[]]
    except csv.Error as error:
        raise CrossmatchError(f"{path} is not a valid csv file ({error}). Close every double quote.") from None
    key = next((name for name in ID_COLUMNS if name in head), None)
    columns = [name for name in head if name not in (*ID_COLUMNS, CANDIDATES_COLUMN, CAPTION_COLUMN)]
    duplicate = next((name for name in head if head.count(name) > 1), None)
    if duplicate is not None:
        raise CrossmatchError(f"{path} has two columns {duplicate!r}. Rename one.")
    if key is None or not columns or not rows:
        raise CrossmatchError(
            f"{path}: expected the columns trial_id (or image_id) and score, and at least one row; "
            f"got {', '.join(head) or 'none'} and {len(rows):,} rows."
        )
    values_by_name: dict[str, dict[str, float]] = {}
    for n, row in enumerate(rows, 2):
        if len(row) != len(head):
            raise CrossmatchError(f"{path}, line {n}: expected {len(head)} cells, got {len(row)}. Correct the line.")
        cells = dict(zip(head, row, strict=True))
        for column in columns:
            name = f"{cells[CANDIDATES_COLUMN]} {column}" if CANDIDATES_COLUMN in cells else column
            values = values_by_name.setdefault(name, {})
            if cells[key] in values:
                raise CrossmatchError(f"{path}, line {n}: {key} {cells[key]!r} occurs twice. Keep one.")
            values[cells[key]] = _parse_number(cells[column], f"{path}, line {n}: {column} of {key} {cells[key]!r}")
    if "score" in values_by_name and path.stem in values_by_name and path.stem != "score":
        raise CrossmatchError(
            f"{path}: the column 'score' is named after the file, but there is a column {path.stem!r} already. Rename one."
        )
    scores = {path.stem if name == "score" else name: values for name, values in values_by_name.items()}
    return scores if key == "trial_id" else _image_to_trial_scores(path, scores, result)


def read_all_scores(paths: Sequence[Path], result: Result) -> dict[str, dict[str, float]]:
    """Read the scores of several files. Names must be unique."""
    scores: dict[str, dict[str, float]] = {}
    source: dict[str, Path] = {}
    for path in paths:
        for name, values in read_scores(path, result).items():
            if name in scores:
                reason = " (a column 'score' is named after its file)" if name == path.stem else ""
                raise CrossmatchError(f"{source[name]} and {path} both have a score {name!r}{reason}. Rename one.")
            scores[name], source[name] = values, path
    return scores


def split_table(result: Result, splits: Sequence[ScoreSplit]) -> Table:
    """Two rows for each score: correct and wrong trials."""
    body = []
    for split in splits:
        auc_cell = EMPTY_CELL if split.auc is None else f"{split.auc:.3f} [{split.low:.3f}, {split.high:.3f}]"
        for n, (side, values) in enumerate((("right", split.right), ("wrong", split.wrong))):
            numbers = (f"{len(values):,}", *(f"{x:.4g}" for x in (values.mean(), *np.quantile(values, QUARTILES))))
            body.append((split.score if n == 0 else "", side, *numbers, auc_cell if n == 0 else ""))
    notes = ["AUC: probability that a correct trial has a higher score than a wrong one; 0.5 means no separation"]
    if any(split.auc is None for split in splits):
        notes.append("the sign of the margin determines the answer, so it has no AUC; confidence: best minus second best score")
    head = (("score", "trials", "n", "mean", "25 %", "median", "75 %", "AUC [95 %]"),)
    return Table(
        f"{model_labels([result])[0]} on {result.task}: scores of correct and wrong trials", head, tuple(body), 2, tuple(notes)
    )


def split_rows(splits: Sequence[ScoreSplit]) -> list[dict[str, Any]]:
    """The splits for JSON; `auc` is null if the score determines the answer."""
    return [
        {
            "score": split.score,
            **({"auc": None} if split.auc is None else {"auc": split.auc, "low": split.low, "high": split.high}),
            **{
                side: {"n": len(x), "mean": float(x.mean()), "quartiles": np.quantile(x, QUARTILES).tolist()}
                for side, x in (("right", split.right), ("wrong", split.wrong))
            },
        }
        for split in splits
    ]


def _trials_part(result: Result) -> ResultPart:
    part = result.parts.get("")
    if part is None or not isinstance(part.evidence, Outcomes):
        raise UsageError(f"{result.task} has no trials. Use a result on a task such as bison or bivlc.")
    return part


def _split_own_scores(part: ResultPart, right: BoolArray, name: str) -> list[ScoreSplit]:
    assert isinstance(part.evidence, Outcomes)
    margin, confidence = margins(part.evidence, name), confidences(part.evidence, name)
    _require_both(MARGIN, right)
    return [
        ScoreSplit(MARGIN, margin[right], margin[~right], None, 0.0, 1.0),
        _split(CONFIDENCE, confidence, right, part.clusters),
    ]


def _align_scores(
    key: str, values: Mapping[str, float], result: Result, right: BoolArray, partial: bool
) -> tuple[FloatArray, BoolArray, IntArray]:
    part = _trials_part(result)
    ids = part.ids.tolist()
    unknown = values.keys() - set(ids)
    if unknown:
        first = next(trial_id for trial_id in values if trial_id in unknown)
        raise CrossmatchError(
            f"{key}: {len(unknown):,} of {len(values):,} values are for unknown trials, the first for {first!r}. The result has "
            f"{len(ids):,} trials of {result.task}, such as {ids[0]!r}. Correct the ids, or remove those lines."
        )
    has_score = np.asarray([trial_id in values for trial_id in ids])
    if not has_score.all() and (not partial or not has_score.any()):
        missing = ids[int(has_score.argmin())]
        raise CrossmatchError(
            f"{(~has_score).sum():,} of {len(ids):,} trials have no {key}, the first is {missing!r}. Add it"
            + (", or use --partial to leave them out." if has_score.any() else ".")
        )
    scores = np.asarray([values[trial_id] for trial_id in ids if trial_id in values], dtype=np.float64)
    return scores, right[has_score], part.clusters[has_score]


def _split(key: str, score: FloatArray, right: BoolArray, clusters: IntArray) -> ScoreSplit:
    _require_both(key, right)
    return ScoreSplit(key, score[right], score[~right], auc(score, right), *auc_interval(score, right, clusters))


def _require_both(key: str, right: BoolArray) -> None:
    if right.all() or not right.any():
        raise CrossmatchError(
            f"All {len(right):,} trials with {key} are {'correct' if right.all() else 'wrong'}, so there is nothing to compare. "
            "Use a model with correct and wrong trials."
        )


def _placements(score: FloatArray, right: BoolArray) -> FloatArray:
    """For a correct trial the share of wrong ones below it, for a wrong one the share of correct ones above; ties count half."""
    rank = np.unique(score, return_inverse=True)[1].ravel()
    right_counts, wrong_counts = (np.bincount(rank, weights=side, minlength=int(rank.max()) + 1) for side in (right, ~right))
    below = (np.cumsum(wrong_counts) - wrong_counts / 2) / wrong_counts.sum()
    above = 1 - (np.cumsum(right_counts) - right_counts / 2) / right_counts.sum()
    return np.asarray(np.where(right, below[rank], above[rank]), dtype=np.float64)


def _image_to_trial_scores(path: Path, scores: Mapping[str, Mapping[str, float]], result: Result) -> dict[str, dict[str, float]]:
    """Assign scores of images to the trials with that positive image."""
    if result.task.startswith("trials:"):
        raise UsageError(
            f"The images of {result.task} are unknown, because the result does not name its file. Use scores by trial_id."
        )
    benchmark, _ = resolve_task(result.task, {})
    data = benchmark.load(**{key: value for key, value in result.options.items() if key in benchmark.options})
    assert isinstance(data, Trials)
    image = dict(zip(data.ids.tolist(), data.images[:, 0].tolist(), strict=True))
    image_ids = set(data.images.ravel().tolist())
    unknown = next((image_id for values in scores.values() for image_id in values if image_id not in image_ids), None)
    if unknown is not None:
        raise CrossmatchError(
            f"{path}: no trial of {result.task} has image_id {unknown!r}; its ids look like {data.images[0, 0].item()!r}. "
            "Correct the id, or remove the line."
        )
    trials = _trials_part(result).ids.tolist()
    return {
        name: {trial: values[image[trial]] for trial in trials if image.get(trial) in values} for name, values in scores.items()
    }


def _parse_number(cell: str, where: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise CrossmatchError(f"{where}: expected a number, got {cell!r}. Correct the line.") from None
    if not np.isfinite(value):
        raise CrossmatchError(f"{where}: expected a finite number, got {cell}. Correct or remove the line.")
    return value
