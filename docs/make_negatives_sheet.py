"""Print the sheet of hard negatives that were read one by one, and how near those of SugarCrepe are to theirs.

CROSSMATCH_DATA=FOLDER python docs/make_negatives_sheet.py              # the folder needs coco/ and sugarcrepe/
CROSSMATCH_DATA=FOLDER python docs/make_negatives_sheet.py --seed 1     # another sheet, to be read

The negatives are made by rules from 1,000 captions of COCO's test split, drawn by a seed, and 50 of them are drawn. What a reader
said of them is in negatives_sheet.csv: without the captions, which are not ours to publish, but with the words that were changed,
so that this script makes the same texts again and refuses verdicts on others.

The reader had all captions of the image before him. Grammatical: the negative has no fault that its caption has not. False: it
contradicts one of the captions, or adds something that none of them tells of and that people would have mentioned.
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

from crossmatch.benchmarks.coco import collection
from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.benchmarks.sugarcrepe import load as load_sugarcrepe
from crossmatch.build.difficulty import mean_of, similarity
from crossmatch.build.files import Row, read_rows
from crossmatch.build.negative_objects import aliases
from crossmatch.build.negatives import negatives, plain
from crossmatch.core.collection import Collection
from crossmatch.core.places import data_folder
from crossmatch.language.alter import draws
from crossmatch.language.forms import lemma
from crossmatch.metrics.proportion import wilson
from crossmatch.models import make_model

SHEET = Path(__file__).parent / "negatives_sheet.csv"
SEED, CAPTIONS, DRAWN = 2026, 1000, 50
COLUMNS = ("caption_id", "category", "before", "after", "grammatical", "false", "note")
BESIDE = frozenset("next to a an near beside with nearby in the background and".split())  # noqa: SIM905 - words


def made(data: Collection, seed: int, captions: int = 0, categories: Sequence[str] = CATEGORIES) -> list[Row]:
    """Hard negatives by rules, made in a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        negatives(data, Path(folder) / "negatives", seed=seed, captions=captions, categories=categories)
        return read_rows(Path(folder) / "negatives")


def drawn(rows: Sequence[Row], seed: int) -> list[Row]:
    """The rows of a sheet, drawn by their ids."""
    return sorted(rows, key=lambda row: next(draws("sheet", seed, row["id"])))[:DRAWN]


def verdicts() -> dict[tuple[str, str], dict[str, str]]:
    with SHEET.open(encoding="utf-8", newline="") as file:
        return {(row["caption_id"], row["category"]): row for row in csv.DictReader(file)}


def counted(rows: Sequence[Row], said: dict[tuple[str, str], dict[str, str]]) -> Counter[str]:
    """How many of the rows were found grammatical, false, and both; a verdict on another text is refused."""
    good: Counter[str] = Counter()
    for row in rows:
        found = said.get((row["caption_id"], row["category"]))
        if found is None or [found["before"], found["after"]] != row["changed"]:
            raise SystemExit(
                f"{SHEET} does not tell of caption {row['caption_id']}, {row['category']}: the rules have changed. Read anew."
            )
        good.update(name for name in ("grammatical", "false") if found[name] == "yes")
        good["both"] += found["grammatical"] == found["false"] == "yes"
    return good


def show(rows: Sequence[Row], said: dict[tuple[str, str], dict[str, str]]) -> None:
    """Each row with its texts and what was said of it, and how many are both grammatical and false."""
    good = counted(rows, said) if said else Counter()
    for number, row in enumerate(rows, start=1):
        found = said.get((row["caption_id"], row["category"]))
        told = "" if found is None else f"   grammatical: {found['grammatical']}, false: {found['false']} {found['note']}"
        print(f"{number:2d} {row['category']:<12} {row['caption'].strip()}\n{'':16}{row['negative'].strip()}{told}")
    for name in ("grammatical", "false", "both") if said else ():
        low, high = wilson(good[name] / len(rows), len(rows))
        print(f"{name}: {good[name]} of {len(rows)}, {100 * good[name] / len(rows):.0f} % ({100 * low:.0f} to {100 * high:.0f})")


def labelled(rows: Sequence[Row]) -> None:
    """How many of the things that were put in are in the picture by COCO's labels, which no rule has seen."""
    with (data_folder() / "coco" / "val2014_labels.tsv").open(encoding="utf-8") as file:
        labels = {row["image_id"]: set(row["labels"].split(",")) for row in csv.DictReader(file, delimiter="\t")}
    classes = set().union(*labels.values())
    seen: Counter[str] = Counter()
    for row in (row for row in rows if row["category"] in ("replace/obj", "add/obj")):
        words = [word for word in row["changed"][1].split() if word not in BESIDE]
        name = " ".join([*words[:-1], lemma(words[-1], "n")])
        its = classes & aliases(name)
        if its and row["image_id"] in labels:
            seen[row["category"], "of a class"] += 1
            seen[row["category"], "there"] += bool(its & labels[row["image_id"]])
    for category in ("replace/obj", "add/obj"):
        n, there = seen[category, "of a class"], seen[category, "there"]
        if n:
            low, high = wilson(there / n, n)
            share = f"{100 * low:.1f} to {100 * high:.1f} %"
            print(f"{category}: {there} of the {n} new things that COCO has a label for are labelled in the image ({share})")


# -- beside SugarCrepe


def val2017() -> Collection:
    """The captions of COCO's val2017, from which SugarCrepe was made."""
    held = json.loads((data_folder() / "coco" / "captions_val2017.json").read_text(encoding="utf-8"))
    notes = [note for note in held["annotations"] if note["caption"].strip()]
    images = sorted({note["image_id"] for note in notes})
    place = {image: n for n, image in enumerate(images)}
    links = np.asarray([(place[note["image_id"]], n) for n, note in enumerate(notes)])
    return Collection(
        np.asarray([f"{image:012d}.jpg" for image in images]),
        np.asarray([str(note["id"]) for note in notes]),
        tuple(note["caption"].strip() for note in notes),
        links,
    )


def compared(model: str = "minilm") -> str:
    """A table: how near negatives are to their captions, ours and SugarCrepe's of the same captions."""
    trials, data, encoder = load_sugarcrepe("csv"), val2017(), make_model(model)
    theirs = {
        (category, str(trials.images[n, 0]), plain(str(pair[0]))): str(pair[1])
        for n, (category, pair) in enumerate(zip(trials.categories.tolist(), trials.captions.tolist(), strict=True))
    }
    wanted = {image for _, image, _ in theirs}
    keep = np.asarray([n for n, image in enumerate(data.image_ids.tolist()) if image in wanted])
    own = np.asarray(sorted(caption for image, caption in data.links.tolist() if image in set(keep.tolist())))
    lines = ["| category | captions | ours | SugarCrepe | ours minus SugarCrepe |", "|---|---|---|---|---|"]
    rows = made(data.reordered(keep, own), SEED)
    for category in CATEGORIES:
        found = [
            row for row in rows if row["category"] == category and (category, row["image_id"], plain(row["caption"])) in theirs
        ]
        if len({row["image_id"] for row in found}) < 2:
            continue
        captions, images = [row["caption"] for row in found], [row["image_id"] for row in found]
        other = [theirs[category, row["image_id"], plain(row["caption"])] for row in found]
        values = [similarity(captions, texts, encoder) for texts in ([row["negative"] for row in found], other)]
        cells = [mean_of(value, images) for value in (*values, values[0] - values[1])]
        shown = " | ".join(f"{cell.value:.3f} ({cell.low:.3f} to {cell.high:.3f})" for cell in cells)
        lines.append(f"| {category} | {len(found)} | {shown} |")
    return "\n".join(lines)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seed", type=int, default=SEED, help="of the captions, of what is made of them, and of the sheet")
    seed = asked.parse_args().seed
    rows = made(collection("test"), seed, CAPTIONS)
    print(
        f"{len(rows):,} negatives of {CAPTIONS:,} captions:",
        ", ".join(f"{k} {v}" for k, v in Counter(r["category"] for r in rows).items()),
    )
    show(drawn(rows, seed), verdicts() if seed == SEED and SHEET.exists() else {})
    labelled(rows)
    if seed == SEED:
        print(compared())


if __name__ == "__main__":
    main()
