"""Hard negatives by rules on COCO's captions, and what a blind classifier finds before and after refinement, in the results pages."""

# ruff: noqa: E501 - prose

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

import make_negatives_sheet as sheet
from crossmatch.benchmarks.coco import collection as coco
from crossmatch.build.blind import Lesson, blind_accuracy
from crossmatch.build.files import Row, read_rows
from crossmatch.build.fluency import as_scorer
from crossmatch.build.format import formatted
from crossmatch.build.negatives import negatives
from crossmatch.build.refine import pair_scores, refine
from crossmatch.core.collection import Collection
from crossmatch.diorama.world import Diorama
from crossmatch.metrics.proportion import Share, wilson
from crossmatch.report.tables import Table
from make_results import markdown

SCENES, CAPTIONS = 1000, 4000
USUAL, WORDS = ("plausibility", "fluency"), ("words", "fluency")  # what refinement balances: by default, and against bags of words
SOURCES: Mapping[str, Callable[[], Collection]] = {
    "the embedded world": lambda: Diorama.make("train", images=SCENES).collection,
    "COCO's test captions": lambda: coco("test"),
}


# -- what was read


def read_by_hand() -> str:
    """How many of the negatives that were drawn are grammatical, false, and both."""
    rows, said = sheet.made(coco("test"), sheet.SEED, sheet.CAPTIONS), sheet.verdicts()
    drawn = sheet.drawn(rows, sheet.SEED)
    good = sheet.counted(drawn, said)
    shares = []
    for name in ("grammatical", "false", "both"):
        low, high = wilson(good[name] / len(drawn), len(drawn))
        shares.append(f"{name}: {good[name]} of {len(drawn)} ({100 * low:.0f} to {100 * high:.0f} %)")
    kinds = ", ".join(f"{kind} {number}" for kind, number in Counter(row["category"] for row in rows).items())
    return f"{len(rows):,} negatives of {sheet.CAPTIONS:,} captions: {kinds}. Of {len(drawn)} that were drawn and read by one of us, {'; '.join(shares)}."


# -- refinement


def refined(folder: Path, data: Collection, scorers: Sequence[str]) -> tuple[list[Row], list[Row]]:
    """Negatives in form, and what refinement keeps of them."""
    negatives(data, folder / "negatives", captions=CAPTIONS)
    formatted(folder / "negatives", folder / "format")
    kept = folder / ("refine" if scorers == USUAL else f"refine-{'-'.join(scorers)}")
    refine(folder / "format", kept, scorers=scorers)
    return read_rows(folder / "format"), read_rows(kept)


def blind(rows: list[Row], taught: list[Row], gaps: Mapping[str, tuple[float, float]], words: bool) -> Share:
    """How often a classifier that sees the texts alone finds the caption, by what was learnt from `taught`."""

    def lesson(some: list[Row]) -> Lesson:
        texts = ([row["caption"] for row in some], [row["negative"] for row in some]) if words else ((), ())
        return Lesson(np.asarray([gaps[row["id"]] for row in some]), [str(row["image_id"]) for row in some], *texts)

    judged = lesson(rows)
    return blind_accuracy(judged.gaps, judged.clusters, captions=judged.captions, negatives=judged.negatives, learnt=lesson(taught))


def blind_table(folder: Path) -> Table:
    """Before and after, by the two scores alone and with the words; a half is chance."""
    lines = []
    for name, load in SOURCES.items():
        place, data = folder / name.replace(" ", "-").replace("'", ""), load()
        before, after = refined(place, data, USUAL)
        _, harder = refined(place, data, WORDS)
        for stage, rows, taught, scorers in (
            ("before", before, before, USUAL),
            ("after", after, before, USUAL),
            ("after, taught by what is left", after, after, USUAL),
            ("after `--scorers words,fluency`", harder, before, WORDS),
            ("the same, taught by what is left", harder, harder, WORDS),
        ):
            scores = [pair_scores(as_scorer(one), before) for one in scorers]
            gaps = {row["id"]: tuple(float(c[n] - m[n]) for c, m in scores) for n, row in enumerate(before)}
            cells = [blind(rows, taught, gaps, words) for words in (False, True)]
            told = [f"{100 * one.value:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]" for one in cells]
            lines.append((name, stage, f"{len(rows):,}", *told))
    return Table("", (("", "refinement", "pairs", "by the two scores, % right", "with the words, % right"),), tuple(lines), 2)


def section(folder: Path) -> str:
    return "\n".join(
        [
            "### Hard negatives by rules, on COCO's captions",
            read_by_hand() + " [The sheet](negatives_sheet.csv) · `docs/make_negatives_sheet.py` prints it with the texts.\n",
            "How near negatives are to their captions, ours and SugarCrepe's of the same captions: cosine of MiniLM's vectors, with 95 % intervals over images. The nearer, the harder.\n",
            sheet.compared(),
            "\n### What a blind classifier finds before and after refinement",
            f"Negatives by rules, put into form and refined (`build negatives`, `build format`, `build refine`, the best 35 % and a grid of 100 x 100 cells as in the papers), of {CAPTIONS:,} captions each, of {SCENES:,} scenes and of COCO's test split. The classifier sees both texts and no image; 50 is chance. By the two scores that refinement balances, and with the counts of words, which it does not.\n",
            markdown(blind_table(folder / "refinement")),
            "\nBy the two scores that were balanced the classifier falls to chance, with words it does not: some of them still give negatives away, fewer where a score by words is one of the two. What is *taught by what is left* may lie below 50: a balanced set without one of its parts is tipped the other way, and that is what is learnt.\n",
        ]
    )
