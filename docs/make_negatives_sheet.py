"""Print the sheet of hard negatives that a reader checked, and how similar negatives are to their captions, also SugarCrepe's.

CROSSMATCH_DATA=FOLDER python docs/make_negatives_sheet.py              # the folder needs coco/ and sugarcrepe/
CROSSMATCH_DATA=FOLDER python docs/make_negatives_sheet.py --seed 1     # another sheet, to be read

Rules write negatives of 1,000 random captions of COCO's test split, and 50 of the negatives are sampled. The verdicts of the reader
are in negatives_sheet.csv. The file has no captions, because we may not publish them, but it has the words that were changed. The
script writes the same texts again, and refuses verdicts that belong to other texts.

The reader saw all captions of the image. Grammatical: the negative has no error that its caption does not have. False: it
contradicts one of the captions, or adds something that no caption mentions and that people would have mentioned.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from blocks import markdown
from crossmatch.benchmarks.coco import coco_collection
from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.benchmarks.sugarcrepe import load as load_sugarcrepe
from crossmatch.build.negatives.by_rules import normalise_text, write_rule_negatives
from crossmatch.build.negatives.replacement_objects import aliases
from crossmatch.build.step_files import Row, read_rows
from crossmatch.data.collection import Collection
from crossmatch.data.io.paths import data_folder
from crossmatch.metrics.proportions import wilson_interval
from crossmatch.models import make_model
from crossmatch.report.tables import Table
from crossmatch.text.inflection import lemmatise
from crossmatch.text.perturbations import random_bits
from negative_difficulty import caption_similarity, clustered_mean

SHEET = Path(__file__).parent / "negatives_sheet.csv"
SEED, CAPTIONS, SAMPLE = 2026, 1000, 50
VERDICTS = ("grammatical", "false", "both")
ADDED_WORDS = frozenset("next to a an near beside with nearby in the background and".split())  # noqa: SIM905 - words

Verdicts = dict[tuple[str, str], dict[str, str]]  # rows of the sheet by caption and category


def write_negatives(data: Collection, seed: int, captions: int = 0, categories: Sequence[str] = CATEGORIES) -> list[Row]:
    """Hard negatives by rules, written into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        write_rule_negatives(data, Path(folder) / "negatives", seed=seed, captions=captions, categories=categories)
        return read_rows(Path(folder) / "negatives")


def draw_sample(rows: Sequence[Row], seed: int) -> list[Row]:
    """The rows of a sheet, sampled by their ids."""
    return sorted(rows, key=lambda row: next(random_bits("sheet", seed, row["id"])))[:SAMPLE]


def read_verdicts() -> Verdicts:
    with SHEET.open(encoding="utf-8", newline="") as file:
        return {(row["caption_id"], row["category"]): row for row in csv.DictReader(file)}


def count_verdicts(rows: Sequence[Row], verdicts: Verdicts) -> Counter[str]:
    """How many of the rows are grammatical, false, and both; a verdict on another text is refused."""
    counts: Counter[str] = Counter()
    for row in rows:
        verdict = verdicts.get((row["caption_id"], row["category"]))
        if verdict is None or [verdict["before"], verdict["after"]] != row["changed"]:
            raise SystemExit(
                f"{SHEET} has no verdict on caption {row['caption_id']}, {row['category']}, because the rules have changed. Read the "
                "negatives again and update the file."
            )
        counts.update(name for name in ("grammatical", "false") if verdict[name] == "yes")
        counts["both"] += verdict["grammatical"] == verdict["false"] == "yes"
    return counts


def print_sheet(rows: Sequence[Row], verdicts: Verdicts) -> None:
    """Print each row with its texts and verdict, and how many are grammatical and false."""
    for number, row in enumerate(rows, start=1):
        verdict = verdicts.get((row["caption_id"], row["category"]))
        note = f"   grammatical: {verdict['grammatical']}, false: {verdict['false']} {verdict['note']}" if verdict else ""
        print(f"{number:2d} {row['category']:<12} {row['caption'].strip()}\n{'':16}{row['negative'].strip()}{note}")
    if verdicts:
        counts = count_verdicts(rows, verdicts)
        for name in VERDICTS:
            share = counts[name] / len(rows)
            low, high = wilson_interval(share, len(rows))
            print(f"{name}: {counts[name]} of {len(rows)}, {100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f})")


def print_label_check(rows: Sequence[Row]) -> None:
    """Print how many of the inserted objects are in the image by COCO's labels, which the rules do not use."""
    with (data_folder() / "coco" / "val2014_labels.tsv").open(encoding="utf-8") as file:
        labels = {row["image_id"]: set(row["labels"].split(",")) for row in csv.DictReader(file, delimiter="\t")}
    classes = set().union(*labels.values())
    for category in ("replace/obj", "add/obj"):
        is_labelled = []
        for row in rows:
            if row["category"] == category and row["image_id"] in labels:
                words = [word for word in row["changed"][1].split() if word not in ADDED_WORDS]
                matching_classes = classes & aliases(" ".join([*words[:-1], lemmatise(words[-1], "n")]))
                if matching_classes:
                    is_labelled.append(bool(matching_classes & labels[row["image_id"]]))
        if is_labelled:
            count, labelled = len(is_labelled), sum(is_labelled)
            low, high = wilson_interval(labelled / count, count)
            interval = f"{100 * low:.1f} to {100 * high:.1f} %"
            print(f"{category}: {labelled} of {count} inserted objects with a COCO class are labelled in the image ({interval})")


# -- comparison with SugarCrepe


def load_val2017() -> Collection:
    """The captions of COCO's val2017, from which SugarCrepe was made."""
    data = json.loads((data_folder() / "coco" / "captions_val2017.json").read_text(encoding="utf-8"))
    annotations = [annotation for annotation in data["annotations"] if annotation["caption"].strip()]
    images = sorted({annotation["image_id"] for annotation in annotations})
    place = {image: n for n, image in enumerate(images)}
    links = np.asarray([(place[annotation["image_id"]], n) for n, annotation in enumerate(annotations)])
    return Collection(
        np.asarray([f"{image:012d}.jpg" for image in images]),
        np.asarray([str(annotation["id"]) for annotation in annotations]),
        tuple(annotation["caption"].strip() for annotation in annotations),
        links,
    )


def similarity_table(model: str = "minilm") -> Table:
    """How similar negatives are to their captions, ours and SugarCrepe's of the same captions."""
    trials, data, encoder = load_sugarcrepe("csv"), load_val2017(), make_model(model)
    sugarcrepe = {
        (category, str(trials.images[n, 0]), normalise_text(str(pair[0]))): str(pair[1])
        for n, (category, pair) in enumerate(zip(trials.categories.tolist(), trials.captions.tolist(), strict=True))
    }
    image_names = {image for _, image, _ in sugarcrepe}
    images = np.asarray([n for n, image in enumerate(data.image_ids.tolist()) if image in image_names])
    captions = np.asarray(sorted(caption for image, caption in data.links.tolist() if image in set(images.tolist())))
    rows = write_negatives(data.select(images, captions), SEED)
    table = []
    for category in CATEGORIES:
        keys = [(category, row["image_id"], normalise_text(row["caption"])) for row in rows]
        pairs = [
            (row, sugarcrepe[key]) for row, key in zip(rows, keys, strict=True) if row["category"] == category and key in sugarcrepe
        ]
        clusters = [row["image_id"] for row, _ in pairs]
        if len(set(clusters)) < 2:
            continue
        originals = [row["caption"] for row, _ in pairs]
        ours = caption_similarity(originals, [row["negative"] for row, _ in pairs], encoder)
        theirs = caption_similarity(originals, [negative for _, negative in pairs], encoder)
        means = [clustered_mean(values, clusters) for values in (ours, theirs, ours - theirs)]
        table.append((category, str(len(pairs)), *(f"{mean.value:.3f} ({mean.low:.3f} to {mean.high:.3f})" for mean in means)))
    return Table("", (("category", "captions", "ours", "SugarCrepe", "ours minus SugarCrepe"),), tuple(table), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the captions, the negatives and the sample")
    seed = parser.parse_args().seed
    rows = write_negatives(coco_collection("test"), seed, CAPTIONS)
    categories = Counter(row["category"] for row in rows)
    print(f"{len(rows):,} negatives of {CAPTIONS:,} captions:", ", ".join(f"{name} {n}" for name, n in categories.items()))
    print_sheet(draw_sample(rows, seed), read_verdicts() if seed == SEED and SHEET.exists() else {})
    print_label_check(rows)
    if seed == SEED:
        print(markdown(similarity_table()))


if __name__ == "__main__":
    main()
