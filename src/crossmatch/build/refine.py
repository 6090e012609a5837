"""Hard negatives that no blind model tells from captions: the best, cleaned, and cut until neither scores nor words tell them.

top share      negatives that are plausible and fluent                                            (miranda2024bivlc, sec. 5.2, 1)
clean          no duplicates, no questions, no sentence without an end                            (2)
adversarial    a grid over the gaps of both scores, in which opposite cells hold equal numbers    (3; hsieh2023sugarcrepe)
words          if asked for: every word as often in captions as in negatives                      (here alone)
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

from crossmatch.build.balance import BINS, adversarial_refinement, draws, word_refinement
from crossmatch.build.blind import FOLDS, Pairs, blind_accuracy, word_differences
from crossmatch.build.files import Asked, Output, Row, hash_of, manifest, output, read_rows
from crossmatch.build.fluency import Scorer, Scores, as_scorer
from crossmatch.build.format import CLOSING, ENDS
from crossmatch.build.logistic import parts
from crossmatch.build.negatives import plain
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import WrongWords
from crossmatch.core.whole import whole_file

STEP = "refine"
BLIND = "blind.json"
SHARE = 0.35
FEW = 20  # rows; fewer tell nothing about a blind model
SENTENCE_ENDS = (*ENDS, "。", "！", "？", "।", "؟")
QUESTIONS = ("?", "？", "؟")

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
    order = np.lexsort((draws(np.asarray(keys, dtype=np.str_), n, seed), -combined))
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


@dataclass(frozen=True)
class Cut:
    """How negatives are refined: `share` that is looked at, `bins` of the grid, whether `words` are balanced, in how many `parts`.

    Parts are of images, by a hash of their names, and each is balanced by itself: what one part teaches is of no use on another.
    """

    share: float = SHARE
    bins: int = BINS
    words: bool = False
    parts: int = 1


def refine(
    source: Path,
    output_folder: Path,
    *,
    scorers: Sequence[str | Scorer | Scores] = ("plausibility", "fluency"),
    share: float = SHARE,
    bins: int = BINS,
    words: bool = False,
    parts: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Refine the hard negatives of a folder into another; its manifest.

    Each row keeps its two gaps and gets its four `scores`. The manifest counts what was dropped, and why; `blind.json` tells how
    often a blind classifier finds the caption before and after. Put captions into form first: those without an end are dropped.
    `words` balances every word, too (`balance.word_refinement`), and `parts` balances so many parts of the images by themselves:
    pairs that are split into those that teach and those that are judged need that (`blind.blind_accuracy` says why). Then each row
    tells its `part`.
    """
    told = manifest(source)
    if told["step"] not in ("negatives", "format"):
        raise WrongWords(f"{source} was made by {told['step']}; a folder with hard negatives was expected. Check the path.")
    if len(scorers) != 2:
        raise WrongWords(f"{len(scorers)} scorers were named; two were expected, such as plausibility and fluency.")
    if parts < 1:
        raise WrongWords(f"{parts} parts were asked for; one or more was expected.")
    if bins == 1 and not words:
        raise WrongWords("a grid of one cell balances nothing. Ask for two on each side or more, or for --words.")
    both, cut = [as_scorer(one) for one in scorers], Cut(share, bins, words, parts)
    options = {"scorers": [one.name for one in both], **asdict(cut)}
    with output(output_folder, Asked(STEP, {"negatives": hash_of(source)}, options, seed)) as made:
        if not made.finished:
            _fill(made, _read(source), both, cut, seed)
    return manifest(output_folder)


def _read(source: Path) -> list[Row]:
    """The rows of a folder by their ids, each a caption with its negative."""
    rows = sorted(read_rows(source), key=lambda row: str(row["id"]))
    for row in rows:
        lacking = next((name for name in ("caption", "negative", "image_id", "caption_id") if name not in row), None)
        if lacking:
            raise WrongWords(
                f"row {row['id']} of {source} has no {lacking}; captions with hard negatives were expected. Check the path."
            )
    return rows


def _fill(made: Output, rows: list[Row], scorers: Sequence[Scorer], cut: Cut, seed: int) -> None:
    made.count("read", len(rows))
    scores = [pair_scores(scorer, rows) for scorer in scorers]
    ids = [str(row["id"]) for row in rows]
    good = [negative for _, negative in scores]
    chosen = np.flatnonzero(best(good, cut.share, ids, seed)) if rows else np.zeros(0, dtype=np.int64)
    made.count("dropped: below the share", len(rows) - len(chosen))
    problems = unfit([rows[n] for n in chosen])
    for problem in problems:
        if problem:
            made.count(f"dropped: {problem}")
    fit = np.asarray([n for n, problem in zip(chosen, problems, strict=True) if not problem], dtype=np.int64)
    gaps = np.stack([positive - negative for positive, negative in scores], axis=1)
    kept = _balanced(rows, gaps, fit, cut, seed)
    member = parts([image_of(rows[n]) for n in kept], cut.parts)
    made.count("dropped: to balance the grid and all words" if cut.words else "dropped: to balance the grid", len(fit) - len(kept))
    made.count("kept", len(kept))
    for part in range(cut.parts if cut.parts > 1 else 0):
        made.count(f"kept in part {part}", int((member == part).sum()))
    for n, part in zip(kept, member.tolist(), strict=True):
        found = [[float(positive[n]), float(negative[n])] for positive, negative in scores]
        if ids[n] not in made.done:
            made.write({**rows[n], "scores": found} | ({"part": part} if cut.parts > 1 else {}))
    _tell(made, rows, gaps, fit, kept, cut)


def _balanced(rows: Sequence[Row], gaps: FloatArray, fit: IntArray, cut: Cut, seed: int) -> IntArray:
    """Those of the fit pairs that are kept, part by part; the grid is the same for all parts."""
    if not len(fit):
        return fit
    one, other = gaps[fit].T
    reach = (float(np.abs(one).max()), float(np.abs(other).max()))
    member, kept = parts([image_of(rows[n]) for n in fit], cut.parts), np.zeros(len(fit), dtype=np.bool_)
    for part in range(cut.parts):
        at = np.flatnonzero(member == part)
        some = [rows[n] for n in fit[at]]
        ids = np.asarray([str(row["id"]) for row in some], dtype=np.str_)
        if cut.words:
            words = word_differences([row["caption"] for row in some], [row["negative"] for row in some])
            kept[at] = word_refinement(one[at], other[at], words, cut.bins, ids, seed=seed, reach=reach)
        else:
            kept[at] = adversarial_refinement(one[at], other[at], cut.bins, ids, seed=seed, reach=reach)
    return fit[kept]


def image_of(row: Row) -> str:
    """What pairs are alike by: their image, or where there is none their caption."""
    return str(row["image_id"]) or str(row["caption_id"])


def pair_scores(scorer: Scorer, rows: Sequence[Row]) -> tuple[FloatArray, FloatArray]:
    """The scores of the captions and of the negatives; an image is a group, as its captions are alike."""
    texts = [row["caption"] for row in rows] + [row["negative"] for row in rows]
    groups = [image_of(row) for row in rows]
    if not rows:
        return np.zeros(0), np.zeros(0)
    found = scorer.score(texts, groups * 2, [True] * len(rows) + [False] * len(rows))
    return found[: len(rows)], found[len(rows) :]


def pairs_of(rows: Sequence[Row], gaps: FloatArray, at: IntArray, words: bool) -> Pairs:
    """Some of the pairs as a blind classifier has them: by the gaps of their scores, and by their words if it may see them."""
    some = [rows[n] for n in at]
    texts = ([row["caption"] for row in some], [row["negative"] for row in some]) if words else ((), ())
    return Pairs(gaps[at], [image_of(row) for row in some], *texts)


def _tell(made: Output, rows: Sequence[Row], gaps: FloatArray, fit: IntArray, kept: IntArray, cut: Cut) -> None:
    """How often a blind classifier finds the caption: among all that was read, what was fit, and what is kept.

    By the two gaps, and by the words as well where they were balanced. The last is told by what was learnt before the cut, as a
    model would bring it along, and by what the kept pairs teach; where there are parts, each is told by what the others teach.
    """
    everything = np.arange(len(rows))
    stages = {"read": (everything, None), "fit": (fit, None), "kept": (kept, fit), "kept, taught by itself": (kept, None)}
    told: dict[str, Any] = {}
    for stage, (judged, learnt) in stages.items():
        told[stage] = {"pairs": len(judged)}
        if len(judged) < FEW or len({image_of(rows[n]) for n in judged}) < 2:
            continue
        folds = cut.parts if cut.parts > 1 and stage == "kept, taught by itself" else FOLDS
        for words in (False, True) if cut.words else (False,):
            before = None if learnt is None else pairs_of(rows, gaps, learnt, words)
            found = blind_accuracy(pairs_of(rows, gaps, judged, words), before, folds)
            accuracy = {"accuracy": found.value, "low": found.low, "high": found.high}
            told[stage] |= {"with words": accuracy} if words else accuracy
    with whole_file(made.folder / BLIND) as file:
        file.write(json.dumps(told, indent=1).encode())
