"""What people said of captions, from the files of three published studies.

The files lie in the data folder, as `crossmatch captions agree --judgements NAME` expects them:

| name | files |
|---|---|
| flickr8k-expert | judgements/flickr8k.json |
| composite | judgements/composite.tsv, judgements/flickr8k.json, coco/karpathy_test_captions.tsv |
| pascal-50s | judgements/pascal_50s.json |
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import read_json
from crossmatch.core.places import data_folder
from crossmatch.core.ratings import Preferences, Ratings

FLICKR8K, KARPATHY = "judgements/flickr8k.json", "coco/karpathy_test_captions.tsv"


@dataclass(frozen=True)
class Study:
    """A published study: its files in the data folder, and how they are read, in this order."""

    name: str
    about: str
    files: tuple[str, ...]
    read: Callable[..., Ratings | Preferences]
    cite: str


def flickr8k_expert(path: Path) -> Ratings:
    """Flickr8k-Expert: three experts rated each caption from 1 (unrelated) to 4 (describes the image without errors).

    The captions were written for other images, or for the same one. Of 5,822 candidates 158 are references of their own image, and
    the literature leaves them out; the file in circulation has the other 5,664 alone. The rule is applied all the same, so that a
    file with all of them gives the same numbers.
    Source: hodosh2013framing; jiang2019tiger, sec. 4.1.
    """
    held = _object(read_json(path), path)
    rated, references = [], {}
    for image, entry in held.items():
        by_caption: dict[str, list[float]] = {}
        try:
            references[image] = list(entry["ground_truth"])
            for said in entry["human_judgement"]:
                by_caption.setdefault(said["caption"], []).append(float(said["rating"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(path, f"image {image!r}", error) from error
        rated += [(image, caption, values) for caption, values in by_caption.items()]
    return Ratings.gathered("flickr8k-expert", rated, references, scale=(1, 4), equal="exclude")


def composite(path: Path, flickr8k: Path, karpathy: Path) -> Ratings:
    """Composite: relevance from 1 to 5 of three captions for each image, one by a person and two by machines, rated once each.

    An image is called `flickr8k/…` or `coco/…`. References come from Flickr8k-Expert's file, which has all images of that subset,
    and from Karpathy's test split, which has all of COCO's. Those of Flickr30k are in neither: its 2,973 of 11,985 candidates are
    left out and counted. The person's caption is one of the references of its image, and is compared with the others.
    Source: aditya2015images; jiang2019tiger, sec. 4.1.
    """
    references: dict[str, list[str]] = {}
    for image, entry in _object(read_json(flickr8k), flickr8k).items():
        references[f"flickr8k/{image}"] = list(entry["ground_truth"])
    for row in _tab_separated(karpathy, ("image_id", "caption")):
        references.setdefault(f"coco/{row['image_id']}", []).append(row["caption"])
    rated, unreferenced = [], 0
    for row in _tab_separated(path, ("subset", "image_key", "caption", "human_1to5")):
        image = f"{row['subset']}/{row['image_key']}"
        if image in references:
            rated.append((image, row["caption"], [_number(row["human_1to5"], f"{path}, image {image!r}")]))
        else:
            unreferenced += 1
    kept = {image: references[image] for image in dict.fromkeys(image for image, _, _ in rated)}
    return Ratings.gathered("composite", rated, kept, scale=(1, 5), equal="leave-out", unreferenced=unreferenced)


def pascal_50s(path: Path) -> Preferences:
    """PASCAL-50S: which of two captions is closer to the references, in the groups HC, HI, HM and MM.

    Two captions of people for the image (HC), one of them for another image (HI), of a person and a machine (HM), of two machines
    (MM). Each pair comes with five references. Some captions are among them; the pair stands as it was judged.
    Source: vedantam2015cider; jiang2019tiger, sec. 4.1.
    """
    rows = []
    for group, pairs in sorted(_object(read_json(path), path).items()):
        for n, pair in enumerate(pairs):
            try:
                texts = pair["captions"], pair["references"]
                rows.append((f"{group}/{n}", pair["image"], *texts, pair["label"], group))
            except (KeyError, TypeError) as error:
                raise _unreadable(path, f"pair {group}/{n}", error) from error
    if not rows:
        raise CrossmatchError(f"{path} holds no pairs. Get it again.")
    ids, images, captions, references, preferred, groups = zip(*rows, strict=True)
    return Preferences("pascal-50s", np.array(ids), np.array(images), captions, references, np.array(preferred), np.array(groups))


STUDIES = (
    Study("flickr8k-expert", "5,664 captions of 1,000 images, each rated 1 to 4 by three experts", (FLICKR8K,), flickr8k_expert,
          "hodosh2013framing"),
    Study("composite", "captions of people and machines, rated 1 to 5", ("judgements/composite.tsv", FLICKR8K, KARPATHY), composite,
          "aditya2015images"),
    Study("pascal-50s", "4,000 pairs of captions, of which people preferred one", ("judgements/pascal_50s.json",), pascal_50s,
          "vedantam2015cider"),
)  # fmt: skip


def study(name: str, root: Path | None = None) -> Ratings | Preferences:
    """One of the published studies, from the data folder.

    >>> study("flickr8k-expert", Path("/data"))
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: flickr8k-expert needs judgements/flickr8k.json, ... --from FOLDER
    """
    known = {each.name: each for each in STUDIES}
    if name not in known:
        raise WrongWords(f"there is no study {name!r}; there are {', '.join(known)}. Choose one, or give a csv of your own.")
    root = root or data_folder()
    for file in known[name].files:
        if not (root / file).is_file():
            raise CrossmatchError(
                f"{name} needs {file}, which is not in the data folder {root}. Put it at {root / file}, or: crossmatch data get "
                f"{'coco' if file.startswith('coco') else 'judgements'} --from FOLDER"
            )
    return known[name].read(*(root / file for file in known[name].files))


def _number(text: Any, where: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise CrossmatchError(f"{where}: the rating is {text!r:.40}; a number was expected. Mend it, or remove the row.") from None
    if not np.isfinite(value):
        raise CrossmatchError(f"{where}: the rating is {text!r:.40}; a finite number was expected. Mend it, or remove the row.")
    return value


def _tab_separated(path: Path, columns: tuple[str, ...]) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        if not set(columns) <= set(rows.fieldnames or ()):
            raise CrossmatchError(f"{path} has the columns {rows.fieldnames}; {', '.join(columns)} were expected. Get it again.")
        for row in rows:
            if None in row.values():
                raise CrossmatchError(f"{path} line {rows.line_num} is cut short. Get it again.")
            yield row


def _object(held: object, path: Path) -> dict[str, Any]:
    if not isinstance(held, dict) or not held:
        raise CrossmatchError(f"{path} holds {held!r:.40}; a json object that is not empty was expected. Get it again.")
    return held


def _unreadable(path: Path, where: str, error: Exception) -> CrossmatchError:
    return CrossmatchError(f"{path}: {where} cannot be read ({type(error).__name__}: {error}). Get it again.")
