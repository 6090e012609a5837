"""ECCV Caption: the missing positives of COCO, found by models and verified by people, with those of CxC (chun2022eccv)."""

from __future__ import annotations

import json

import numpy as np

from crossmatch.benchmarks.coco import collection, without_invalid
from crossmatch.benchmarks.data_sets import need
from crossmatch.core.benchmark import Benchmark, Count, Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements

FILES = {"i2t": "eccv_caption/eccv_image_to_caption.json", "t2i": "eccv_caption/eccv_caption_to_image.json"}


def matches(held: Collection, path: str, direction: str) -> Judgements:
    """The positives of one direction, `{query: [items]}`: those of the other are not the same pairs, so each is used alone.

    Two positive captions are not among the five captions that the split keeps of an image. The official code counts them as
    positives that are never found, and so does this.
    """
    place = need(path)
    try:
        found = [(q, str(int(c))) for q, items in json.loads(place.read_bytes()).items() for c in items]
    except (ValueError, TypeError, AttributeError) as error:
        raise CrossmatchError(f"{place} is not a map of ids ({error}). Run `crossmatch data verify eccv-caption`.") from None
    side = held.caption_ids if direction == "i2t" else held.image_ids
    query, item = (np.asarray([pair[n] for pair in found]) for n in (0, 1))
    there = np.isin(item, side)
    query, item, lost = query[there], item[there], query[~there]
    images, captions = (query, item) if direction == "i2t" else (item, query)
    positions = held.image_positions if direction == "i2t" else held.caption_positions
    absent = tuple(positions(lost).tolist())
    rows, columns = held.image_positions(images), held.caption_positions(captions)
    return Judgements("eccv", rows, columns, np.ones(len(rows)), held.shape, only=direction, absent=absent)


def load(split: str, invalid: str) -> Retrieval:
    if split != "test":
        raise WrongWords("ECCV Caption was made for the test split of COCO only. Take --split test.")
    held = collection("test")
    return Retrieval(held, {d: without_invalid(held, matches(held, path, d), invalid) for d, path in FILES.items()})


ECCV_CAPTION = Benchmark(
    name="eccv-caption",
    about="ECCV Caption: positives verified by people, 3.6 times the captions and 8.5 times the images that COCO's links have",
    load=load,
    metrics=("map@r", "r-precision", "hit@1", "hit@5", "hit@10"),
    options={"split": "test", "invalid": "keep"},
    expect={"i2t/i2t": Count(1_261, 22_550), "t2i/t2i": Count(1_332, 11_279)},
    licence="MIT; COCO's captions CC BY 4.0",
    cite="chun2022eccv",
)
