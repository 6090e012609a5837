"""Hard negatives by rules in the results pages, and the accuracy of a blind classifier before and after refinement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import make_negatives_sheet as sheet
from blocks import excerpt, markdown
from crossmatch.benchmarks.coco import coco_collection as coco
from crossmatch.build.negatives.by_rules import write_rule_negatives
from crossmatch.build.negatives.caption_format import write_formatted
from crossmatch.build.refinement.blind_classifier import assign_folds, blind_accuracy, fit_logistic
from crossmatch.build.refinement.refinement_step import blind_pairs, pair_cluster, refine_negatives, score_pairs
from crossmatch.build.refinement.text_scorers import as_scorer
from crossmatch.build.step_files import Row, read_rows
from crossmatch.data.collection import Collection
from crossmatch.diorama.world import Diorama
from crossmatch.metrics.proportions import Proportion, clustered_proportion, wilson_interval
from crossmatch.models import make_model
from crossmatch.report.tables import Table

SCENES, CAPTIONS = 3000, 12_000
PARTS = 2  # halves of the images: each is balanced separately, and classified by what was learnt from the other
SCALE = 10.0  # of differences of unit vectors, so that the default penalty does not keep their weights small
REFINEMENTS = {"refined": False, "refined with `--words`": True}
SOURCES: Mapping[str, Callable[[], Collection]] = {
    "diorama": lambda: Diorama.make("train", images=SCENES).collection,
    "COCO's test captions": lambda: coco("test"),
}


def describe_sheet() -> str:
    """How many of the sampled negatives are grammatical, false, and both, in a sentence."""
    rows = sheet.write_negatives(coco("test"), sheet.SEED, sheet.CAPTIONS)
    sample = sheet.draw_sample(rows, sheet.SEED)
    counts = sheet.count_verdicts(sample, sheet.read_verdicts())
    shares = []
    for name in sheet.VERDICTS:
        low, high = wilson_interval(counts[name] / len(sample), len(sample))
        shares.append(f"{counts[name]} are {name} ({100 * low:.0f} to {100 * high:.0f} %)")
    categories = ", ".join(f"{category} {number}" for category, number in Counter(row["category"] for row in rows).items())
    return (
        f"The rules write {len(rows):,} negatives of {sheet.CAPTIONS:,} captions: {categories}. One of the authors read "
        f"{len(sample)} random ones: {', '.join(shares)}."
    )


def refine(folder: Path, data: Collection) -> tuple[list[Row], dict[str, list[Row]]]:
    """Formatted negatives, and what each kind of refinement keeps of them."""
    write_rule_negatives(data, folder / "negatives", captions=CAPTIONS)
    write_formatted(folder / "negatives", folder / "format")
    refined = {}
    for name, words in REFINEMENTS.items():
        output = folder / ("refine-words" if words else "refine")
        refine_negatives(folder / "format", output, words=words, parts=PARTS)
        refined[name] = read_rows(output)
    return read_rows(folder / "format"), refined


def classify_by_embedding(rows: list[Row]) -> Proportion:
    """How often a classifier of differences of sentence embeddings finds the caption, trained on the other half of the images."""
    model: Any = make_model("minilm")
    texts, place = np.unique([(row["caption"], row["negative"]) for row in rows], return_inverse=True)
    captions, negatives = np.asarray(model.embed_texts(texts.tolist()))[place.reshape(-1, 2)].swapaxes(0, 1)
    features, images = SCALE * (captions - negatives), [pair_cluster(row) for row in rows]
    fold, is_right = assign_folds(images, PARTS), np.zeros(len(rows))
    for part in range(PARTS):
        members = fold == part
        is_right[members] = 0.5 + 0.5 * np.sign(features[members] @ fit_logistic(features[~members]))
    return clustered_proportion(is_right, np.unique(images, return_inverse=True)[1])


def blind_table(folder: Path) -> Table:
    """The accuracy of blind classifiers before and after refinement, by the two scores alone and with the words."""
    lines = []
    for source, load in SOURCES.items():
        negatives, refined = refine(folder / source.replace(" ", "-").replace("'", ""), load())
        scores = [score_pairs(as_scorer(name), negatives) for name in ("plausibility", "fluency")]
        gaps = np.stack([captions - written for captions, written in scores], axis=1)
        place = {row["id"]: n for n, row in enumerate(negatives)}
        all_places = np.arange(len(negatives))
        for stage, rows in {"before": negatives, **refined}.items():
            places = np.asarray([place[row["id"]] for row in rows])
            accuracies = []
            for words in (False, True):
                pairs, all_pairs = (blind_pairs(negatives, gaps, members, words) for members in (places, all_places))
                accuracies += [blind_accuracy(pairs, all_pairs, PARTS), blind_accuracy(pairs, folds=PARTS)]
            accuracies.append(classify_by_embedding(rows))
            additions = sum(row["category"].startswith("add/") for row in rows)
            lines.append((source, stage, f"{len(rows):,}", f"{100 * additions / len(rows):.0f} %", *map(_format_share, accuracies)))
    header = ("", "", "pairs", "additions", "two scores, trained on all", "two scores, same stage", "scores and words, trained on all",
              "scores and words, same stage", "sentence embeddings, same stage")  # fmt: skip
    return Table("", (header,), tuple(lines), 2)


def _format_share(share: Proportion) -> str:
    return f"{100 * share.value:.1f} [{100 * share.low:.1f}, {100 * share.high:.1f}]"


def section(folder: Path) -> str:
    return section_text(describe_sheet(), sheet.similarity_table(), blind_table(folder / "refinement"))


def section_text(sheet_text: str, similarity: Table, blind: Table) -> str:
    return "\n".join(
        [
            "### Hard negatives by rules, on COCO's captions",
            f"{sheet_text} [The sheet](negatives_sheet.csv) has no texts; `docs/make_negatives_sheet.py` prints it with them.\n",
            "How similar negatives are to their captions, ours and SugarCrepe's of the same captions: cosine of MiniLM's embeddings, "
            "with 95 % intervals over images. A more similar negative is harder.\n",
            markdown(similarity),
            "\n### A blind classifier before and after refinement",
            f"Negatives by rules of {CAPTIONS:,} captions each, from {SCENES:,} scenes of diorama and from COCO's test split. They were "
            f"formatted and refined (`build negatives`, `build negatives --format-only`, `build refine --parts {PARTS}`) with the "
            "settings of the papers: the best 35 %, and a grid of 100 x 100 cells.\n",
            "The classifier sees both texts of a pair but no image, and says which one is the original caption; 50 % is chance. It "
            "uses the two scores that refinement balances, or also the word counts, which only `--words` balances. It is trained "
            "on all pairs before refinement, or on pairs of the same stage; in both cases on the other half of the images. The last "
            "column is a classifier of MiniLM's embeddings of both texts, which nothing here balances.\n",
            excerpt(
                blind, "blind-classifier",
                columns=("pairs", "additions", "two scores, same stage", "scores and words, trained on all",
                         "scores and words, same stage", "sentence embeddings, same stage"),
            ),
            "",
        ]
    )  # fmt: skip
