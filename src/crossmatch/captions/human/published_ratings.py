"""Load the ratings and preferences of three published studies.

`crossmatch captions agree --judgements NAME` expects these files in the data folder:

| name | files |
|---|---|
| flickr8k-expert | judgements/flickr8k.json |
| composite | judgements/composite.tsv, judgements/flickr8k.json, coco/karpathy_test_captions.tsv |
| pascal-50s | judgements/pascal_50s.json |
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import Types, UndecodableFileError, check_record, read_json
from crossmatch.data.io.paths import data_folder
from crossmatch.data.ratings import Preferences, Ratings

FLICKR8K, KARPATHY = "judgements/flickr8k.json", "coco/karpathy_test_captions.tsv"


@dataclass(frozen=True)
class PublishedStudy:
    """A published study: its files in the data folder, in the order of the arguments of `load`."""

    name: str
    description: str
    files: tuple[str, ...]
    load: Callable[..., Ratings | Preferences]
    source: str


PAIR_TYPES: Mapping[str, Types] = {"image": (str, int), "captions": object, "references": object, "label": object}


def load_flickr8k_expert(path: Path) -> Ratings:
    """Flickr8k-Expert: three experts rated each caption from 1 (unrelated) to 4 (describes the image without errors).

    The captions were written for other images or for the same image. 158 of the 5,822 candidates are references of their own image;
    the literature excludes them, and the common file has only the other 5,664. The rule is applied anyway, so that a file with all
    candidates gives the same numbers.

    Source: hodosh2013framing; jiang2019tiger, sec. 4.1.
    """
    rows, references = [], {}
    for image, entry in _require_object(read_json(path), path).items():
        by_caption: dict[str, list[float]] = {}
        where = f"{path}, image {image!r}"
        _check_entry(entry, where, {"ground_truth": list, "human_judgement": list})
        references[image] = entry["ground_truth"]
        for n, judgement in enumerate(entry["human_judgement"]):
            _check_entry(judgement, f"{where}, judgement {n}", {"caption": str, "rating": object})
            by_caption.setdefault(judgement["caption"], []).append(_parse_rating(judgement["rating"], where))
        rows += [(image, caption, values) for caption, values in by_caption.items()]
    return Ratings.from_rows("flickr8k-expert", rows, references, scale=(1, 4), reference_rule="exclude")


def load_composite(path: Path, flickr8k: Path, karpathy: Path) -> Ratings:
    """Composite: relevance from 1 to 5 of one human and two generated captions for each image, rated once each.

    Image ids are `flickr8k/…` or `coco/…`. References come from the file of Flickr8k-Expert, which has all images of that subset,
    and from Karpathy's test split, which has all of COCO's. Neither has those of Flickr30k: its 2,973 of 11,985 candidates are left
    out and counted. The human caption is one of the references of its image and is compared with the others.

    Source: aditya2015images; jiang2019tiger, sec. 4.1.
    """
    references: dict[str, list[str]] = {}
    for image, entry in _require_object(read_json(flickr8k), flickr8k).items():
        _check_entry(entry, f"{flickr8k}, image {image!r}", {"ground_truth": list})
        references[f"flickr8k/{image}"] = entry["ground_truth"]
    for row in _read_tsv(karpathy, ("image_id", "caption")):
        references.setdefault(f"coco/{row['image_id']}", []).append(row["caption"])
    rows, unreferenced = [], 0
    for row in _read_tsv(path, ("subset", "image_key", "caption", "human_1to5")):
        image = f"{row['subset']}/{row['image_key']}"
        if image in references:
            rows.append((image, row["caption"], [_parse_rating(row["human_1to5"], f"{path}, image {image!r}")]))
        else:
            unreferenced += 1
    rated_references = {image: references[image] for image in dict.fromkeys(image for image, _, _ in rows)}
    return Ratings.from_rows(
        "composite", rows, rated_references, scale=(1, 5), reference_rule="leave-out", unreferenced=unreferenced
    )


def load_pascal_50s(path: Path) -> Preferences:
    """PASCAL-50S: which of two captions is closer to the references, in the groups HC, HI, HM and MM.

    HC: two human captions of the image. HI: two human captions, one of them of another image. HM: a human and a generated caption.
    MM: two generated captions. Each pair has five references. Some captions are among their references and stay there, as in the
    study.

    Source: vedantam2015cider; jiang2019tiger, sec. 4.1.
    """
    rows = []
    for group, pairs in sorted(_require_object(read_json(path), path).items()):
        if not isinstance(pairs, list):
            raise CrossmatchError(f"{path}, group {group!r} is {pairs!r:.40}, expected a list. Download the file again.")
        for n, pair in enumerate(pairs):
            _check_entry(pair, f"{path}, pair {group}/{n}", PAIR_TYPES)
            rows.append((f"{group}/{n}", pair["image"], pair["captions"], pair["references"], pair["label"], group))
    if not rows:
        raise CrossmatchError(f"{path} has no pairs. Download it again.")
    ids, images, captions, references, preferred, groups = zip(*rows, strict=True)
    return Preferences("pascal-50s", np.array(ids), np.array(images), captions, references, np.array(preferred), np.array(groups))


PUBLISHED_STUDIES = (
    PublishedStudy(
        "flickr8k-expert", "5,664 captions of 1,000 images, rated 1 to 4 by three experts each", (FLICKR8K,),
        load_flickr8k_expert, "hodosh2013framing",
    ),
    PublishedStudy(
        "composite", "human and generated captions, rated 1 to 5", ("judgements/composite.tsv", FLICKR8K, KARPATHY),
        load_composite, "aditya2015images",
    ),
    PublishedStudy(
        "pascal-50s", "4,000 pairs of captions with the preferred one", ("judgements/pascal_50s.json",),
        load_pascal_50s, "vedantam2015cider",
    ),
)  # fmt: skip


def load_ratings(name: str, root: Path | None = None) -> Ratings | Preferences:
    """Load the ratings or preferences of a published study.

    Args:
        name: `flickr8k-expert`, `composite` or `pascal-50s`.
        root: The data folder; by default `$CROSSMATCH_DATA` or the user's cache folder.

    Raises:
        UsageError: The study is unknown.
        CrossmatchError: A file is missing or unreadable.

    >>> from pathlib import Path
    >>> load_ratings("flickr8k-expert", Path("/data"))
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: flickr8k-expert needs judgements/flickr8k.json, ... --from FOLDER
    """
    studies = {study.name: study for study in PUBLISHED_STUDIES}
    if name not in studies:
        raise UsageError(f"--judgements {name}: expected {', '.join(studies)}, or a csv file of your own.")
    study = studies[name]
    root = root or data_folder()
    for file in study.files:
        if not (root / file).is_file():
            raise CrossmatchError(
                f"{name} needs {file}, which is missing in the data folder {root}. Copy it to {root / file}, or run: "
                f"crossmatch data get {'coco' if file.startswith('coco') else 'judgements'} --from FOLDER"
            )
    return study.load(*(root / file for file in study.files))


def _parse_rating(text: Any, where: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise CrossmatchError(f"{where}: expected a number as rating, got {text!r:.40}. Correct or remove the row.") from None
    if not np.isfinite(value):
        raise CrossmatchError(f"{where}: expected a finite number as rating, got {text!r:.40}. Correct or remove the row.")
    return value


def _read_tsv(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        if not set(columns) <= set(rows.fieldnames or ()):
            raise CrossmatchError(f"{path}: expected columns {', '.join(columns)}, got {rows.fieldnames}. Download the file again.")
        for row in rows:
            if None in row.values():
                raise CrossmatchError(f"{path}, line {rows.line_num}: missing cells. Download the file again.")
            yield row


def _require_object(content: object, path: Path) -> dict[str, Any]:
    if not isinstance(content, dict) or not content:
        raise CrossmatchError(f"{path}: expected a non-empty json object, got {content!r:.40}. Download the file again.")
    return content


def _check_entry(entry: object, where: str, types: Mapping[str, Types]) -> None:
    try:
        check_record(entry, where, types)
    except UndecodableFileError as error:
        raise CrossmatchError(f"{error}. Download the file again.") from None
