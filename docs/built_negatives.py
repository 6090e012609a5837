"""Hard negatives by rules on COCO's captions, and what a blind classifier finds before and after refinement, in the results pages."""

# ruff: noqa: E501 - prose

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import make_negatives_sheet as sheet
from crossmatch.benchmarks.coco import collection as coco
from crossmatch.build.blind import blind_accuracy
from crossmatch.build.files import Row, read_rows
from crossmatch.build.fluency import as_scorer
from crossmatch.build.format import formatted
from crossmatch.build.logistic import parts, weights
from crossmatch.build.negatives import negatives
from crossmatch.build.refine import image_of, pair_scores, pairs_of, refine
from crossmatch.core.collection import Collection
from crossmatch.diorama.world import Diorama
from crossmatch.metrics.proportion import Share, share_of, wilson
from crossmatch.models import make_model
from crossmatch.report.tables import Table
from make_results import markdown

SCENES, CAPTIONS = 3000, 12_000
PARTS = 2  # of the images: each is balanced by itself, and judged by what the other teaches
SCALE = 10.0  # of differences of unit vectors, so that the usual penalty does not hold their weights down
CUTS = {"refined": False, "refined with `--words`": True}
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


def refined(folder: Path, data: Collection) -> tuple[list[Row], dict[str, list[Row]]]:
    """Negatives in form, and what each way of refinement keeps of them."""
    negatives(data, folder / "negatives", captions=CAPTIONS)
    formatted(folder / "negatives", folder / "format")
    kept = {}
    for name, words in CUTS.items():
        place = folder / ("refine-words" if words else "refine")
        refine(folder / "format", place, words=words, parts=PARTS)
        kept[name] = read_rows(place)
    return read_rows(folder / "format"), kept


def told(found: Share) -> str:
    return f"{100 * found.value:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def by_vectors(rows: list[Row]) -> Share:
    """How often a classifier over the differences of sentence vectors finds the caption, taught by the other half of the images."""
    model: Any = make_model("minilm")
    texts, place = np.unique([(row["caption"], row["negative"]) for row in rows], return_inverse=True)
    captions, written = np.asarray(model.embed_texts(texts.tolist()))[place.reshape(-1, 2)].swapaxes(0, 1)
    features, images = SCALE * (captions - written), [image_of(row) for row in rows]
    member, right = parts(images, PARTS), np.zeros(len(rows))
    for part in range(PARTS):
        mine = member == part
        right[mine] = 0.5 + 0.5 * np.sign(features[mine] @ weights(features[~mine]))
    return share_of(right, np.unique(images, return_inverse=True)[1])


def blind_table(folder: Path) -> Table:
    """Before and after, by the two scores alone and with the words; a half is chance."""
    lines = []
    for source, load in SOURCES.items():
        before, kept = refined(folder / source.replace(" ", "-").replace("'", ""), load())
        scores = [pair_scores(as_scorer(one), before) for one in ("plausibility", "fluency")]
        gaps = np.stack([captions - negatives for captions, negatives in scores], axis=1)
        place = {row["id"]: n for n, row in enumerate(before)}
        every = np.arange(len(before))
        for stage, rows in {"before": before, **kept}.items():
            at = np.asarray([place[row["id"]] for row in rows])
            cells = []
            for words in (False, True):
                judged = pairs_of(before, gaps, at, words)
                cells += [blind_accuracy(judged, pairs_of(before, gaps, every, words), PARTS), blind_accuracy(judged, folds=PARTS)]
            kinds = Counter(row["category"].partition("/")[0] for row in rows)
            lines.append(
                (source, stage, f"{len(rows):,}", f"{100 * kinds['add'] / len(rows):.0f} %", *map(told, [*cells, by_vectors(rows)]))
            )
    seen = [f"{what}, taught by {whom}" for what in ("two scores", "scores and words") for whom in ("all", "the same")]
    heads = ("", "pairs", "additions", *seen, "sentence vectors, taught by the same")
    return Table("", (("", *heads),), tuple(lines), 2)


def section(folder: Path) -> str:
    return "\n".join(
        [
            "### Hard negatives by rules, on COCO's captions",
            read_by_hand() + " [The sheet](negatives_sheet.csv) · `docs/make_negatives_sheet.py` prints it with the texts.\n",
            "How near negatives are to their captions, ours and SugarCrepe's of the same captions: cosine of MiniLM's vectors, with 95 % intervals over images. The nearer, the harder.\n",
            sheet.compared(),
            "\n### What a blind classifier finds before and after refinement",
            f"Negatives by rules, put into form and refined (`build negatives`, `build format`, `build refine --parts {PARTS}`: the best 35 %, and a grid of 100 x 100 cells as in the papers), of {CAPTIONS:,} captions each, of {SCENES:,} scenes and of COCO's test split. The classifier sees both texts and no image; 50 is chance. By the two scores that refinement balances, and with the counts of words, which `--words` balances, too. *Taught by all*: by all pairs before refinement; *by the same*: by pairs of the same stage; in both cases by those of the other half of the images alone. The last column is a classifier over MiniLM's vectors of both texts, which nothing here balances.\n",
            markdown(blind_table(folder / "refinement")),
            "",
        ]
    )
