"""COCO-BISON: which of two look-alike images a caption was written for (hu2019bison)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks.coco import table
from crossmatch.benchmarks.coco_images import coco_pictures, how_to_get
from crossmatch.benchmarks.data_sets import have, need
from crossmatch.benchmarks.formats.trials import NoPictures, Offer, as_trials
from crossmatch.core.benchmark import Benchmark, Count
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import read_json
from crossmatch.core.trials import Trials

PATH = "bison/bison_annotations.cocoval2014.json"
KEPT = ("data", "bison_id", "caption", "true_image_id", "image_candidates", "image_id", "image_filename")
KINDS = ("chosen", "random", "longest")
SEED = 14  # of the random captions
References = Mapping[str, tuple[str, ...]]


def load(caption: str) -> Trials:
    """One caption and two images each, the one it was written for first. Ids are those of BISON's prediction files.

    `caption` is the one that people chose because it tells the images apart, or, for comparison, a random or the longest one (in
    words, the first of equals) among all captions of the same image (hu2019bison, fig. 14). Where captions are known for a part of
    the images only, random and longest leave out the trials without.
    """
    if caption not in KINDS:
        raise WrongWords(f"caption is {caption!r}; {', '.join(KINDS)} was expected.")
    path = need(PATH)
    files: dict[str, str] = {}
    offers = [_offer(record, n, path, files) for n, record in enumerate(_records(path))]
    captions = references(files)
    opener = coco_pictures("val2014", files) or NoPictures(how_to_get("val2014"))
    if caption == "chosen":
        return as_trials(offers, (2, 1), opener, captions)
    others, rows = _other_captions(offers, captions or {}, caption)
    note = f"partial: COCO's captions are known here for {len(rows):,} of {len(offers):,} trials; compare on these alone"
    return as_trials(others, (2, 1), opener, captions, rows, (note,) if len(rows) < len(offers) else ())


def _records(path: Path) -> list[Any]:
    held = read_json(path, KEPT)
    found = held.get("data") if isinstance(held, dict) else None
    if not isinstance(found, list) or not found:
        raise CrossmatchError(f"{path} has no list of trials under 'data'. Get it again: crossmatch data get bison")
    return found


def _offer(record: Any, n: int, path: Path, files: dict[str, str]) -> Offer:
    """A trial with its positive image first, and the names of its image files put into `files`."""
    where = f"{path} data[{n}]"
    try:
        name, text, true = str(record["bison_id"]), record["caption"], str(record["true_image_id"])
        offered = {str(image["image_id"]): str(image["image_filename"]) for image in record["image_candidates"]}
        named = f"trial {name!r} offers the images {', '.join(str(image['image_id']) for image in record['image_candidates'])}"
        several = len(record["image_candidates"])
    except (TypeError, KeyError, AttributeError) as error:
        raise CrossmatchError(
            f"{where} is not a trial of BISON ({type(error).__name__}: {error}). Get the file again: crossmatch data get bison"
        ) from None
    if not isinstance(text, str):
        raise CrossmatchError(f"{where}: trial {name!r} has the caption {text!r:.40}; a text was expected.")
    if several != 2 or len(offered) != 2 or true not in offered:
        raise CrossmatchError(f"{where}: {named}; two, with its true image {true} among them, were expected. Mend it.")
    files |= offered
    return Offer(name, (true, *(image for image in offered if image != true)), (text,), "", where)


def references(images: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
    """All captions of these images, in the order of their ids, as far as they are known; None where no file of captions is here.

    They are in COCO's captions_val2014.json. Without it, those of the test split and of captions_val2017.json serve for the images
    that are in either: the ids and the texts are the same there.
    """
    wanted, found = set(images), defaultdict[str, dict[int, str]](dict)
    for image, number, text in _coco_captions():
        if image in wanted:
            found[image][number] = " ".join(text.split())
    return {image: tuple(said[number] for number in sorted(said)) for image, said in found.items()} or None


def _coco_captions() -> Iterator[tuple[str, int, str]]:
    whole = have("coco/captions_val2014.json")
    parts = [whole] if whole else [path for path in [have("coco/captions_val2017.json")] if path]
    for path in parts:
        try:
            held = json.loads(path.read_bytes())
            rows = [(str(row["image_id"]), int(row["id"]), str(row["caption"])) for row in held["annotations"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CrossmatchError(
                f"{path} is not COCO's file of captions ({type(error).__name__}: {error}). Get it again: crossmatch data get coco"
            ) from None
        yield from rows
    if not whole and have("coco/karpathy_test_captions.tsv"):
        for row in table("coco/karpathy_test_captions.tsv", ("caption_id", "image_id", "caption"), "\t"):
            yield row[1], int(row[0]), row[2]


def _other_captions(offers: list[Offer], captions: References, kind: str) -> tuple[list[Offer], list[int]]:
    """The trials with another caption of the positive image, where its captions are known, and their places in the file."""
    drawn = np.random.default_rng(SEED).random(len(offers)).tolist()  # one each, so that no draw depends on what is known
    known = [n for n, offer in enumerate(offers) if offer.images[0] in captions]
    if not known:
        raise CrossmatchError(
            f"bison+caption={kind} draws among COCO's captions, which are not here. Get them: crossmatch data get coco --optional"
        )
    found = []
    for n in known:
        texts = captions[offers[n].images[0]]
        text = max(texts, key=lambda said: len(said.split())) if kind == "longest" else texts[int(drawn[n] * len(texts))]
        found.append(replace(offers[n], captions=(text,)))
    return found, known


BISON = Benchmark(
    name="bison",
    about="COCO-BISON: which of two look-alike images a caption was written for",
    load=load,
    metrics=("accuracy",),
    directions=("t2i",),
    options={"caption": "chosen"},
    expect={"trials": Count(54_253, 54_253)},
    licence="CC BY-NC 4.0 (non-commercial); images by their Flickr owners",
    cite="hu2019bison",
)
