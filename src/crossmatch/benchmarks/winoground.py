"""Winoground: two images, and two captions with equal words in different order (thrush2022winoground)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from crossmatch.benchmarks.datasets.dataset_table import require_data_file
from crossmatch.benchmarks.formats.huggingface import has_shards, read_shard_rows
from crossmatch.benchmarks.formats.image_caption_records import EncodedImage, ImageOpener
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.benchmarks.formats.trial_files import (
    MissingImages,
    build_trials,
    find_trial_images,
    identify_columns,
    parse_trial,
    read_records,
)
from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.paths import data_folder
from crossmatch.data.trials import Trials

PATH = "winoground/examples.jsonl"
CAPTIONS, IMAGES = ("caption_0", "caption_1"), ("image_0", "image_1")
CATEGORIES = ("object", "relation", "both")
HUB = "https://huggingface.co/datasets/facebook/winoground"


def load() -> Trials:
    """Load the 2x2 trials; the category is what was swapped: object, relation or both.

    Reads `winoground/examples.jsonl` and the images in `winoground/images/`, as on the hub. Without the jsonl, reads the Parquet
    files of the hub in `winoground/` or `winoground/data/`. Image ids have the form `ex_0_img_0` in both cases.
    """
    folder = data_folder() / "winoground"
    shards = has_shards(folder) and not (folder / "examples.jsonl").is_file()
    encoded: dict[str, EncodedImage] = {}
    records = _read_shard_records(encoded) if shards else read_records(require_data_file(PATH))
    trials = []
    for n, (record, where) in enumerate(records):
        missing = next((key for key in ("id", *CAPTIONS, *IMAGES, "collapsed_tag") if key not in record), None)
        if missing is not None:
            raise CrossmatchError(f"{where}: trial {record.get('id', n)!r} has no {missing!r}. Get the official file from {HUB}")
        fields = {key: record[key] for key in ("id", *CAPTIONS, *IMAGES)} | {
            "category": str(record["collapsed_tag"]).strip().lower()
        }
        trials.append(parse_trial(fields, identify_columns(tuple(fields), where), n, where))
    hint = (
        f"the images of Winoground are not in {folder / 'images'}. Accept the licence at {HUB}, and unpack its data/images.zip "
        "there; or evaluate precomputed scores of the trials: -m precomputed:FILE"
    )
    opener: ImageOpener | MissingImages = ImageOpener(encoded, decode_image) if encoded else find_trial_images(trials, folder, hint)
    return build_trials(trials, (2, 2), opener)


def _read_shard_records(encoded: dict[str, EncodedImage]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each row as a record of the jsonl with its place, and add its images to `encoded`."""
    for row in read_shard_rows(data_folder() / "winoground", IMAGES, ("id", *CAPTIONS, "collapsed_tag")):
        names = [f"ex_{row.texts['id']}_img_{n}" for n in range(2)]
        encoded.update(zip(names, row.images, strict=True))
        yield {**row.texts, **dict(zip(IMAGES, names, strict=True))}, row.where


WINOGROUND = Benchmark(
    name="winoground",
    description="Winoground: two images, and two captions with equal words in different order",
    loader=load,
    metrics=("text", "image", "group"),
    expected_counts={"trials": ExpectedCount(400, 400)},
    licence="Winoground's own, research only; gated",
    cite="thrush2022winoground",
    categories=CATEGORIES,
)
