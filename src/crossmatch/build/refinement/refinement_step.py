"""Refinement of hard negatives, until no blind model can tell them from captions.

top share      keep the most plausible and fluent negatives                                       (miranda2024bivlc, sec. 5.2, 1)
clean          drop duplicates, questions and sentences without an end                            (2)
adversarial    balance opposite cells of a grid over the gaps of both scores                      (3; hsieh2023sugarcrepe)
words          optional: every word occurs as often in captions as in negatives                   (not in the papers)
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from crossmatch.build.negatives.by_rules import normalise_text
from crossmatch.build.negatives.caption_format import CLOSING, SENTENCE_ENDS
from crossmatch.build.refinement.adversarial_refinement import BINS, adversarial_refinement, hash_keys, word_refinement
from crossmatch.build.refinement.blind_classifier import FOLDS, BlindPairs, assign_folds, blind_accuracy, word_differences
from crossmatch.build.refinement.text_scorers import ScoreFunction, TextScorer, as_scorer
from crossmatch.build.step_files import Row, StepOutput, StepSpec, read_rows, rows_hash, write_step
from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.errors import UsageError
from crossmatch.data.io.atomic_write import atomic_write

STEP = "refine"
BLIND_FILE = "blind.json"
SHARE = 0.35
MIN_ROWS = 20  # fewer rows do not allow a blind accuracy
ENDS_OF_ALL_SCRIPTS = (*SENTENCE_ENDS, "。", "！", "？", "।", "؟")
QUESTION_MARKS = ("?", "？", "؟")

# -- top share and cleaning


def select_best(scores: Sequence[FloatArray], share: float, keys: Sequence[str], seed: int = 0) -> BoolArray:
    """Mask of the best share of texts by the mean of their ranks under all scores.

    BiVLC keeps the upper 35 % by "the combined score of both models" without saying how the scores are combined. Ranks make the
    scales comparable. Ties are broken by the keys.

    >>> select_best([np.array([1.0, 5.0, 3.0]), np.array([0.1, 0.3, 0.2])], 0.4, ["a", "b", "c"]).tolist()
    [False, True, True]
    """
    if not 0 < share <= 1:
        raise UsageError(f"--share must be above 0 and at most 1 (got {share}).")
    n = len(scores[0])
    mean_rank = np.mean([rankdata(score) for score in scores], axis=0) if n else np.zeros(0)
    order = np.lexsort((hash_keys(np.asarray(keys, dtype=np.str_), n, seed), -mean_rank))
    keep = np.zeros(n, dtype=np.bool_)
    keep[order[: math.ceil(share * n)]] = True
    return keep


def rejection_reasons(rows: Sequence[Row]) -> list[str]:
    """Why each row is not usable; empty if it is. Of duplicates the first by id is usable.

    >>> texts = ("A cat.", "a cat.", "A cat?", "A cat", "A dog.")
    >>> rejection_reasons([{"id": n, "image_id": "x", "caption": "A dog.", "negative": text} for n, text in enumerate(texts)])
    ['', 'duplicate', 'question', 'no end', 'a caption of the image']
    """
    captions: dict[str, set[str]] = {}
    for row in rows:
        captions.setdefault(row["image_id"], set()).add(normalise_text(row["caption"]))
    first_id = {normalise_text(row["negative"]): row["id"] for row in sorted(rows, key=lambda row: str(row["id"]), reverse=True)}
    return [_rejection_reason(row, captions[row["image_id"]], first_id) for row in rows]


def _rejection_reason(row: Row, captions: set[str], first_id: dict[str, Any]) -> str:
    text, normalised = row["negative"].rstrip().rstrip(CLOSING), normalise_text(row["negative"])
    if text.endswith(QUESTION_MARKS):
        return "question"
    if not text.endswith(ENDS_OF_ALL_SCRIPTS):
        return "no end"
    if normalised in captions:
        return "a caption of the image"
    return "duplicate" if first_id[normalised] != row["id"] else ""


# -- the step


@dataclass(frozen=True)
class RefineOptions:
    """Options of refinement, as recorded in the manifest.

    Parts are sets of images, chosen by a hash of their names. Each part is balanced separately, so that a classifier trained on one
    part learns nothing that holds in another.
    """

    share: float = SHARE
    bins: int = BINS
    words: bool = False
    parts: int = 1


def refine_negatives(
    source: Path,
    output: Path,
    *,
    scorers: Sequence[str | TextScorer | ScoreFunction] = ("plausibility", "fluency"),
    share: float = SHARE,
    bins: int = BINS,
    words: bool = False,
    parts: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Refine the hard negatives of a folder.

    Each row gets its four `scores`. The manifest counts dropped rows by reason. `blind.json` reports the blind accuracy before and
    after. Format captions first, because negatives without a final punctuation mark are dropped.

    Args:
        source: Folder with hard negatives.
        output: Folder of the step.
        scorers: Two scorers, or their names.
        share: Share of negatives to keep before cleaning.
        bins: Cells on each side of the grid.
        words: Also balance every word: it occurs as often in captions as in negatives.
        parts: Number of parts to balance separately; needed if the pairs are later split into training and test. Each row then
            records its `part`.
        seed: Seed of the choice among equal pairs.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> from crossmatch.build import refine_negatives, write_diorama_negatives
    >>> world = Diorama.make("test", size="tiny")
    >>> manifest = write_diorama_negatives(world, folder / "negatives", categories=["replace/obj"])
    >>> refine_negatives(folder / "negatives", folder / "refined", share=0.5)["counts"]
    {'read': 217, 'dropped: below the share': 108, 'dropped: to balance the grid': 62, 'kept': 47}
    """
    rows = sorted(read_rows(source, "negatives", "format"), key=lambda row: str(row["id"]))
    for row in rows:
        missing = next((name for name in ("caption", "negative", "image_id", "caption_id") if name not in row), None)
        if missing:
            raise UsageError(f"{source}, row {row['id']}: {missing} is missing; expected captions with negatives. Check the path.")
    if len(scorers) != 2:
        raise UsageError(f"--scorers needs two scorers, such as plausibility,fluency (got {len(scorers)}).")
    if parts < 1:
        raise UsageError(f"--parts must be at least 1 (got {parts}).")
    if bins == 1 and not words:
        raise UsageError("--bins 1 balances nothing. Use at least 2, or add --words.")
    text_scorers, options = [as_scorer(scorer) for scorer in scorers], RefineOptions(share, bins, words, parts)
    recorded = {"scorers": [scorer.name for scorer in text_scorers], **asdict(options)}
    spec = StepSpec(STEP, {"negatives": rows_hash(source)}, recorded, seed)
    return write_step(output, spec, lambda step: _refine_rows(step, rows, text_scorers, options, seed))


def _refine_rows(step: StepOutput, rows: list[Row], scorers: Sequence[TextScorer], options: RefineOptions, seed: int) -> list[Row]:
    step.count("read", len(rows))
    scores = [score_pairs(scorer, rows) for scorer in scorers]
    ids = [str(row["id"]) for row in rows]
    negative_scores = [of_negatives for _, of_negatives in scores]
    best = np.flatnonzero(select_best(negative_scores, options.share, ids, seed)) if rows else np.zeros(0, dtype=np.int64)
    step.count("dropped: below the share", len(rows) - len(best))
    reasons = rejection_reasons([rows[n] for n in best])
    for reason in reasons:
        if reason:
            step.count(f"dropped: {reason}")
    clean = np.asarray([n for n, reason in zip(best, reasons, strict=True) if not reason], dtype=np.int64)
    gaps = np.stack([of_captions - of_negatives for of_captions, of_negatives in scores], axis=1)
    balanced = _balance(rows, gaps, clean, options, seed)
    part_of = assign_folds([pair_cluster(rows[n]) for n in balanced], options.parts)
    dropped = "dropped: to balance the grid and all words" if options.words else "dropped: to balance the grid"
    step.count(dropped, len(clean) - len(balanced))
    step.count("kept", len(balanced))
    for part in range(options.parts if options.parts > 1 else 0):
        step.count(f"kept in part {part}", int((part_of == part).sum()))
    _write_blind_accuracies(step, rows, gaps, clean, balanced, options)
    refined = []
    for n, part in zip(balanced, part_of.tolist(), strict=True):
        row_scores = [[float(of_captions[n]), float(of_negatives[n])] for of_captions, of_negatives in scores]
        refined.append({**rows[n], "scores": row_scores} | ({"part": part} if options.parts > 1 else {}))
    return refined


def _balance(rows: Sequence[Row], gaps: FloatArray, clean: IntArray, options: RefineOptions, seed: int) -> IntArray:
    """Positions of the pairs to keep, balanced part by part on a common grid."""
    if not len(clean):
        return clean
    first, second = gaps[clean].T
    reach = (float(np.abs(first).max()), float(np.abs(second).max()))
    part_of = assign_folds([pair_cluster(rows[n]) for n in clean], options.parts)
    keep = np.zeros(len(clean), dtype=np.bool_)
    for part in range(options.parts):
        at = np.flatnonzero(part_of == part)
        part_rows = [rows[n] for n in clean[at]]
        ids = np.asarray([str(row["id"]) for row in part_rows], dtype=np.str_)
        if options.words:
            words = word_differences([row["caption"] for row in part_rows], [row["negative"] for row in part_rows])
            keep[at] = word_refinement(first[at], second[at], words, options.bins, ids, seed=seed, reach=reach)
        else:
            keep[at] = adversarial_refinement(first[at], second[at], options.bins, ids, seed=seed, reach=reach)
    return clean[keep]


def pair_cluster(row: Row) -> str:
    """Cluster of a pair: its image, or its caption if it has no image."""
    return str(row["image_id"]) or str(row["caption_id"])


def score_pairs(scorer: TextScorer, rows: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
    """Scores of the captions and of the negatives; the texts of an image form a group."""
    if not rows:
        return np.zeros(0), np.zeros(0)
    texts = [row["caption"] for row in rows] + [row["negative"] for row in rows]
    groups = [pair_cluster(row) for row in rows]
    scores = scorer.score(texts, groups * 2, [True] * len(rows) + [False] * len(rows))
    return scores[: len(rows)], scores[len(rows) :]


def blind_pairs(rows: Sequence[Row], gaps: FloatArray, at: IntArray, words: bool) -> BlindPairs:
    """Selected pairs as input of a blind classifier, with or without their words."""
    selected = [rows[n] for n in at]
    texts = ([row["caption"] for row in selected], [row["negative"] for row in selected]) if words else ((), ())
    return BlindPairs(gaps[at], [pair_cluster(row) for row in selected], *texts)


def _write_blind_accuracies(
    step: StepOutput, rows: Sequence[Row], gaps: FloatArray, clean: IntArray, balanced: IntArray, options: RefineOptions
) -> None:
    """Write the blind accuracy on all pairs, on the clean ones and on the kept ones.

    The classifier uses the two gaps, and also words if these were balanced. The kept pairs are judged twice: by a classifier
    trained before the balancing, and by one trained on kept pairs, across parts if there are several.
    """
    stages = {
        "read": (np.arange(len(rows)), None),
        "fit": (clean, None),
        "kept": (balanced, clean),
        "kept, taught by itself": (balanced, None),
    }
    report: dict[str, Any] = {}
    for stage, (judged, training) in stages.items():
        report[stage] = {"pairs": len(judged)}
        if len(judged) < MIN_ROWS or len({pair_cluster(rows[n]) for n in judged}) < 2:
            continue
        folds = options.parts if options.parts > 1 and stage == "kept, taught by itself" else FOLDS
        for words in (False, True) if options.words else (False,):
            training_pairs = None if training is None else blind_pairs(rows, gaps, training, words)
            share = blind_accuracy(blind_pairs(rows, gaps, judged, words), training_pairs, folds)
            accuracy = {"accuracy": share.value, "low": share.low, "high": share.high}
            report[stage] |= {"with words": accuracy} if words else accuracy
    with atomic_write(step.folder / BLIND_FILE) as file:
        file.write(json.dumps(report, indent=1).encode())
