"""Winoground: two images and two captions of the same words in another order (thrush2022winoground)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from crossmatch.benchmarks.data_sets import need
from crossmatch.benchmarks.formats.gathered import Pictures, Stored, decoded
from crossmatch.benchmarks.formats.trial_shards import has_shards, shard_rows
from crossmatch.benchmarks.formats.trials import NoPictures, as_trials, columns_of, offer_of, pictures_of, read_records
from crossmatch.core.benchmark import Benchmark, Count
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.places import data_folder
from crossmatch.core.trials import Trials

PATH = "winoground/examples.jsonl"
CAPTIONS, IMAGES = ("caption_0", "caption_1"), ("image_0", "image_1")
CATEGORIES = ("object", "relation", "both")
HUB = "https://huggingface.co/datasets/facebook/winoground"


def load() -> Trials:
    """Two images and two captions each; the category is what was swapped: object, relation or both.

    Read are `winoground/examples.jsonl` and the pictures in `winoground/images/`, as the hub has them; where the jsonl is not
    there, Parquet files of the hub in `winoground/` or `winoground/data/`. An image is called `ex_0_img_0` in either.
    """
    folder = data_folder() / "winoground"
    shards = has_shards(folder) and not (folder / "examples.jsonl").is_file()
    stored: dict[str, Stored] = {}
    records = _in_shards(stored) if shards else read_records(need(PATH))
    offers = []
    for n, (record, where) in enumerate(records):
        absent = next((key for key in ("id", *CAPTIONS, *IMAGES, "collapsed_tag") if key not in record), None)
        if absent is not None:
            raise CrossmatchError(f"{where}: trial {record.get('id', n)!r} has no {absent!r}. Take the official file from {HUB}")
        kept = {key: record[key] for key in ("id", *CAPTIONS, *IMAGES)} | {"category": str(record["collapsed_tag"]).strip().lower()}
        offers.append(offer_of(kept, columns_of(tuple(kept), where), n, where))
    how = (
        f"Winoground's pictures are not in {folder / 'images'}. Accept the licence at {HUB}, and unpack its data/images.zip there; "
        "or evaluate scores of the trials: -m precomputed:FILE"
    )
    opener: Pictures | NoPictures = Pictures(stored, decoded) if stored else pictures_of(offers, folder, how)
    return as_trials(offers, (2, 2), opener)


def _in_shards(stored: dict[str, Stored]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The rows as records of the jsonl, and their pictures put into `stored`."""
    for row in shard_rows(data_folder() / "winoground", IMAGES, ("id", *CAPTIONS, "collapsed_tag")):
        names = [f"ex_{row.texts['id']}_img_{n}" for n in range(2)]
        stored.update(zip(names, row.images, strict=True))
        yield {**row.texts, **dict(zip(IMAGES, names, strict=True))}, row.where


WINOGROUND = Benchmark(
    name="winoground",
    about="Winoground: two images and two captions of the same words in another order",
    load=load,
    metrics=("text", "image", "group"),
    expect={"trials": Count(400, 400)},
    licence="Winoground's own, research only; gated",
    cite="thrush2022winoground",
    categories=CATEGORIES,
)
