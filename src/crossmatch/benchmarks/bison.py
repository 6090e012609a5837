"""COCO-BISON: which of two look-alike images a caption was written for (hu2019bison)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks.coco import coco_image_opener, missing_images_hint, read_coco_captions, read_official_table
from crossmatch.benchmarks.datasets.dataset_table import find_data_file, require_data_file
from crossmatch.benchmarks.formats.trial_files import MissingImages, TrialRecord, build_trials
from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import UndecodableFileError, check_record, read_json
from crossmatch.data.trials import Trials

PATH = "bison/bison_annotations.cocoval2014.json"
JSON_KEYS = ("data", "bison_id", "caption", "true_image_id", "image_candidates", "image_id", "image_filename")
CAPTION_CHOICES = ("chosen", "random", "longest")
SEED = 14  # of the random captions
References = Mapping[str, tuple[str, ...]]


def load(caption: str) -> Trials:
    """Load the 2x1 trials, the positive image first. Trial ids are those of BISON's prediction files.

    The caption "chosen" is the one that annotators chose because it distinguishes the images. For comparison, "random" and "longest"
    (most words, first of equals) choose among all captions of the image (hu2019bison, fig. 14); they leave out trials whose captions
    are not in the local files.
    """
    if caption not in CAPTION_CHOICES:
        raise UsageError(f"caption must be one of {', '.join(CAPTION_CHOICES)} (got {caption!r}).")
    path = require_data_file(PATH)
    files: dict[str, str] = {}
    trials = [_trial_record(record, n, path, files) for n, record in enumerate(_read_records(path))]
    captions = load_references(files)
    opener = coco_image_opener("val2014", files) or MissingImages(missing_images_hint("val2014"))
    if caption == "chosen":
        return build_trials(trials, (2, 1), opener, captions)
    replaced, rows = _replace_captions(trials, captions or {}, caption)
    note = f"partial: COCO captions are available for {len(rows):,} of {len(trials):,} trials; compare models on these only"
    return build_trials(replaced, (2, 1), opener, captions, rows, (note,) if len(rows) < len(trials) else ())


def _read_records(path: Path) -> list[Any]:
    content = read_json(path, JSON_KEYS)
    trials = content.get("data") if isinstance(content, dict) else None
    if not isinstance(trials, list) or not trials:
        raise CrossmatchError(f"{path} has no list of trials under 'data'. Get it again: crossmatch data get bison")
    return trials


def _trial_record(record: Any, n: int, path: Path, files: dict[str, str]) -> TrialRecord:
    """Parse a trial, its positive image first, and add the names of its image files to `files`."""
    where = f"{path} data[{n}]"
    try:
        check_record(
            record, "the trial", {"bison_id": (int, str), "caption": str, "true_image_id": (int, str), "image_candidates": list}
        )
        for k, image in enumerate(record["image_candidates"]):
            check_record(image, f"image_candidates[{k}]", {"image_id": (int, str), "image_filename": str})
    except UndecodableFileError as error:
        raise CrossmatchError(f"{where} is not a BISON trial ({error}). Get the file again: crossmatch data get bison") from None
    name, text, true = str(record["bison_id"]), record["caption"], str(record["true_image_id"])
    image_ids = [str(image["image_id"]) for image in record["image_candidates"]]
    file_names = [image["image_filename"] for image in record["image_candidates"]]
    if len(image_ids) != 2 or len(set(image_ids)) != 2 or true not in image_ids:
        raise CrossmatchError(
            f"{where}: trial {name!r} must have two different images, one of them its true image {true} "
            f"(got {', '.join(image_ids)}). Correct the record."
        )
    files.update(zip(image_ids, file_names, strict=True))
    return TrialRecord(name, (true, *(image for image in image_ids if image != true)), (text,), "", where)


def load_references(image_ids: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
    """Load all available captions of these images, sorted by caption id; None if no caption file exists locally.

    They come from COCO's captions_val2014.json. Without it, from the test split and captions_val2017.json, which have equal ids
    and texts for the images they contain.
    """
    requested, captions = set(image_ids), defaultdict[str, dict[int, str]](dict)
    for image, number, text in _read_coco_captions():
        if image in requested:
            captions[image][number] = text
    return {image: tuple(texts[number] for number in sorted(texts)) for image, texts in captions.items()} or None


def _read_coco_captions() -> Iterator[tuple[str, int, str]]:
    whole = find_data_file("coco/captions_val2014.json")
    parts = [whole] if whole else [path for path in [find_data_file("coco/captions_val2017.json")] if path]
    for path in parts:
        yield from read_coco_captions(path)
    if not whole and find_data_file("coco/karpathy_test_captions.tsv"):
        for row in read_official_table("coco/karpathy_test_captions.tsv", ("caption_id", "image_id", "caption"), "\t"):
            yield row[1], int(row[0]), " ".join(row[2].split())


def _replace_captions(trials: list[TrialRecord], captions: References, kind: str) -> tuple[list[TrialRecord], list[int]]:
    """Replace the caption of each trial whose image has captions; return these trials and their rows in the file."""
    # One random number for each trial of the file, so that a draw does not depend on which captions are available.
    uniform = np.random.default_rng(SEED).random(len(trials)).tolist()
    with_captions = [n for n, trial in enumerate(trials) if trial.images[0] in captions]
    if not with_captions:
        raise CrossmatchError(
            f"bison+caption={kind} needs COCO's captions, which are missing. Get them: crossmatch data get coco --optional"
        )
    records = []
    for n in with_captions:
        texts = captions[trials[n].images[0]]
        text = max(texts, key=lambda caption: len(caption.split())) if kind == "longest" else texts[int(uniform[n] * len(texts))]
        records.append(replace(trials[n], captions=(text,)))
    return records, with_captions


BISON = Benchmark(
    name="bison",
    description="COCO-BISON: which of two look-alike images a caption was written for",
    loader=load,
    metrics=("accuracy",),
    directions=("t2i",),
    options={"caption": "chosen"},
    expected_counts={"trials": ExpectedCount(54_253, 54_253)},
    licence="CC BY-NC 4.0 (non-commercial); images by their Flickr owners",
    cite="hu2019bison",
)
