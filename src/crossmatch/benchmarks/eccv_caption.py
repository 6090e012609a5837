"""ECCV Caption: COCO with the positives that models retrieved and people verified (chun2022eccv)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.coco import coco_collection, drop_invalid
from crossmatch.benchmarks.datasets.dataset_table import require_data_file
from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import UndecodableFileError, check_record, decode_json_file
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval

FILES = {"i2t": "eccv_caption/eccv_image_to_caption.json", "t2i": "eccv_caption/eccv_caption_to_image.json"}
WHOLE_NUMBER = re.compile(r"[0-9]+")


def _decode_pairs(file: Path) -> list[tuple[str, str]]:
    """The pairs of query and item; items are whole numbers, maybe as text or with leading zeros."""
    content = check_record(decode_json_file(file), "the file", {})
    pairs = []
    for query, items in content.items():
        if not isinstance(items, list):
            raise UndecodableFileError(f"the items of query {query!r:.40} are {items!r:.40}, expected a list")
        unknown = next((item for item in items if not WHOLE_NUMBER.fullmatch(str(item))), None)
        if unknown is not None:
            raise UndecodableFileError(f"query {query!r:.40} has the item {unknown!r:.40}, expected a whole number")
        pairs += [(query, str(int(item))) for item in items]
    return pairs


def read_matches(collection: Collection, path: str, direction: str) -> Judgements:
    """Read the positives of one direction from a json `{query: [items]}`. The two directions have different pairs.

    Two positive captions are not among the five captions per image of the split. Like the official code, count them as positives
    that are never retrieved.
    """
    file = require_data_file(path)
    try:
        pairs = _decode_pairs(file)
    except UndecodableFileError as error:
        raise CrossmatchError(f"{file} does not map ids to ids ({error}). Run `crossmatch data verify eccv-caption`.") from None
    side = collection.caption_ids if direction == "i2t" else collection.image_ids
    query, item = (np.asarray([pair[n] for pair in pairs]) for n in (0, 1))
    in_gallery = np.isin(item, side)
    query, item, absent_query = query[in_gallery], item[in_gallery], query[~in_gallery]
    images, captions = (query, item) if direction == "i2t" else (item, query)
    positions = collection.image_positions if direction == "i2t" else collection.caption_positions
    absent = tuple(positions(absent_query).tolist())
    rows, columns = collection.image_positions(images), collection.caption_positions(captions)
    return Judgements(
        "eccv", rows, columns, np.ones(len(rows)), collection.shape, only_direction=direction, absent_positives=absent
    )


def load(split: str, invalid: str) -> Retrieval:
    if split != "test":
        raise UsageError("ECCV Caption exists for the test split of COCO only. Use --split test.")
    collection = coco_collection("test")
    return Retrieval(
        collection, {d: drop_invalid(collection, read_matches(collection, path, d), invalid) for d, path in FILES.items()}
    )


ECCV_CAPTION = Benchmark(
    name="eccv-caption",
    description="ECCV Caption: positives verified by people, 3.6 times the captions and 8.5 times the images of COCO's links",
    loader=load,
    metrics=("map@r", "r-precision", "hit@1", "hit@5", "hit@10"),
    options={"split": "test", "invalid": "keep"},
    expected_counts={"i2t/i2t": ExpectedCount(1_261, 22_550), "t2i/t2i": ExpectedCount(1_332, 11_279)},
    licence="MIT; COCO's captions CC BY 4.0",
    cite="chun2022eccv",
)
