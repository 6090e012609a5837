"""Write the part of docs/results.md on photos: retrieval by a zero-shot model that was not trained on image-caption pairs.

CROSSMATCH_DATA=FOLDER python docs/make_photo_results.py        # the folder needs photos/, with photos.json and images/

It needs the packages of the extra `conse`. Nothing is downloaded, and the numbers are the same each time.
"""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path

import crossmatch as cm
from blocks import RESULTS, markdown, replace_block
from crossmatch.benchmarks.user_collection import collection_benchmark
from crossmatch.data.io.paths import data_folder
from crossmatch.models.baselines.conse import ConSE
from crossmatch.report.tables import Table

METRICS = {"hit@1": "R@1", "hit@5": "R@5", "hit@10": "R@10", "median-rank": "Med r"}
DIRECTIONS = {"i2t": "image to text", "t2i": "text to image"}


def write_collection(photos: Path, folder: Path) -> Path:
    """Arrange the photos as `collection:FOLDER` reads them: captions.csv beside images/."""
    folder.mkdir()
    (folder / "images").symlink_to((photos / "images").resolve(), target_is_directory=True)
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption"])
        for photo in json.loads((photos / "photos.json").read_bytes()):
            writer.writerows([Path(photo["file"]).name, caption["caption"]] for caption in photo["captions"])
    return folder


def result_table(result: cm.Result) -> Table:
    rows = tuple(
        (label, *(f"{row.value:.1f} ({row.low:.1f} to {row.high:.1f}; {row.chance:.1f})"
                  for row in (result[f"{direction}/{name}"] for name in METRICS)))
        for direction, label in DIRECTIONS.items()
    )  # fmt: skip
    return Table("", (("", *METRICS.values()),), rows, 1)


def page(result: cm.Result) -> str:
    captions, photos = result["t2i/hit@1"].n, result["i2t/hit@1"].n
    return "\n".join(
        [
            "## A zero-shot model on photos",
            f"`conse` on {photos:,} photos of COCO with {captions:,} captions. It combines a classifier of ImageNet's classes with a "
            "sentence encoder (norouzi2014conse). Neither was trained on images with captions; the sentence encoder's training texts "
            "include captions of COCO, without their images. The wording of the classes was chosen on texts only, and nothing was "
            "tuned on these photos. In parentheses: the 95 % interval, and chance.\n",
            markdown(result_table(result)),
            "\nThe system line of the signature:\n",
            f"```\n{result.system}\n```",
        ]
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = write_collection(data_folder() / "photos", Path(temporary) / "photos")
        result = cm.evaluate(ConSE(), collection_benchmark(folder), name="conse", metrics=tuple(METRICS))
    replace_block(RESULTS, "photos", page(result))


if __name__ == "__main__":
    main()
