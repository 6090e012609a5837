"""Write the part of docs/results.md on real photos: what a zero-shot model without training finds among them.

CROSSMATCH_DATA=FOLDER python docs/make_photo_results.py        # the folder needs photos/, with photos.json and images/

It needs the packages of the extra `conse`. Nothing is downloaded, and the same numbers come out each time.
"""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path

import crossmatch as cm
from blocks import replace_block
from crossmatch.benchmarks.folder import folder_benchmark
from crossmatch.core.places import data_folder
from crossmatch.models.conse import ConSE

SHOWN = {"hit@1": "R@1", "hit@5": "R@5", "hit@10": "R@10", "median-rank": "Med r"}
WAYS = {"i2t": "image to text", "t2i": "text to image"}


def collected(photos: Path, folder: Path) -> Path:
    """The photos in a layout that `collection:FOLDER` reads: captions.csv beside images/."""
    (folder / "images").symlink_to((photos / "images").resolve(), target_is_directory=True)
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption"])
        for photo in json.loads((photos / "photos.json").read_bytes()):
            writer.writerows([Path(photo["file"]).name, said["caption"]] for said in photo["captions"])
    return folder


def cells(result: cm.Result, way: str) -> list[str]:
    """A row of the table: value, interval and chance of each metric."""
    rows = [result[f"{way}/{name}"] for name in SHOWN]
    return [f"{row.value:.1f} ({row.low:.1f} to {row.high:.1f}; {row.chance:.1f})" for row in rows]


def page(result: cm.Result) -> str:
    head = ["", *SHOWN.values()]
    lines = [head, [":--", *["--:"] * (len(head) - 1)], *([WAYS[way], *cells(result, way)] for way in WAYS)]
    counted = result["t2i/hit@1"].n, result["i2t/hit@1"].n
    return "\n".join(
        [
            "## A real model on real photos",
            f"`conse` on {counted[1]:,} photos of COCO with {counted[0]:,} captions: a classifier of ImageNet's classes and a "
            "sentence encoder, which were never shown a picture with its caption (norouzi2014conse; among the texts that the "
            "encoder was trained on are captions of COCO, without their pictures). How classes are worded was chosen on texts "
            "alone; nothing was tuned on these photos. In brackets the 95 % interval; chance.\n",
            "\n".join("| " + " | ".join(cells) + " |" for cells in lines),
            "",
            f"*{result.system}*",
        ]
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "photos"
        folder.mkdir()
        task = folder_benchmark(collected(data_folder() / "photos", folder))
        result = cm.evaluate(ConSE(), task, name="conse", metrics=tuple(SHOWN))
    replace_block(Path(__file__).with_name("results.md"), "photos", page(result))


if __name__ == "__main__":
    main()
