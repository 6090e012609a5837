"""Images of negative captions: one, or several to choose from, of each hard negative (miranda2024bivlc, sec. 3.1, step 2).

    rows.jsonl      one row for each image: {"id", "negative_id", "image_id", "caption_id", "caption", "negative", "category",
                    "number": of the candidate, "file", "sha256", "width", "height", "seed", "generator"}
    images/         the files; each is there whole, or not at all
    failed.jsonl    the images that did not come out, with the reason
    items.jsonl     each negative of which all images came out, with them: items of the study `bivlc-choose`, where there are four;
                    `fits` tells artificial people what is known of a drawn scene

A step that was broken off goes on where it stopped, with the same images: the seed of each is made from its row and its number.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmatch.build.files import (
    FAILED,
    FULL,
    ROWS,
    Asked,
    Failures,
    Output,
    Row,
    hash_of,
    manifest,
    output,
    read_rows,
    whole_lines,
)
from crossmatch.build.generators import Generator, NoImage
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.progress import steps
from crossmatch.core.whole import whole_file

if TYPE_CHECKING:
    from PIL.Image import Image

STEP = "generate"
IMAGES, ITEMS = "images", "items.jsonl"
SOURCES = ("negatives", "format", "refine")
KEPT = ("image_id", "caption_id", "caption", "negative", "category")  # of the negative, in the rows of its images
GIVE_UP = 30  # images in a row that the generator broke at: it is not in order
MOST = 64  # images of a negative
SIGNS = re.compile(r"[^A-Za-z0-9._-]+")


def generate(source: Path, output_folder: Path, *, by: Generator, number: int = 1, seed: int = 0) -> dict[str, Any]:
    """Draw `number` images of each negative caption of a folder into another; its manifest."""
    told = manifest(source)
    if told["step"] not in SOURCES:
        raise WrongWords(f"{source} was made by {told['step']}; a folder with hard negatives was expected. Check the path.")
    if not 1 <= number <= MOST:
        raise WrongWords(f"{number} images of each negative were asked for; 1 to {MOST} was expected.")
    options = {"number": number, "settings": dict(getattr(by, "settings", {}))}
    asked = Asked(STEP, {"negatives": hash_of(source), "generator": by.name}, options, seed)
    with output(output_folder, asked) as made:
        if not made.finished:
            _fill(made, read_rows(source), by, number, seed)
    return manifest(output_folder)


def seed_of(seed: int, negative: str, number: int) -> int:
    """The seed of one image: 32 bits from the step's seed, the negative and the number of the candidate.

    >>> seed_of(0, "cat~swap/obj", 0) == seed_of(0, "cat~swap/obj", 0) != seed_of(0, "cat~swap/obj", 1)
    True
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {number} {negative}".encode()).digest()[:4], "big")


def file_of(name: str) -> str:
    """The file of an image: its id in letters that every system knows, and enough of a hash to tell it from all others.

    >>> file_of("a.jpg#0~swap/obj~1")
    'images/a.jpg-0-swap-obj-1-b66bbeb8.png'
    """
    return f"{IMAGES}/{SIGNS.sub('-', name)[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}.png"


def _fill(made: Output, rows: Sequence[Row], by: Generator, number: int, seed: int) -> None:
    (made.folder / IMAGES).mkdir(exist_ok=True)
    broken = 0
    with Failures.taken_up(made.folder / FAILED) as failures, steps(len(rows) * number, "drawing") as show:
        for row, candidate, name in _open(rows, number, made, failures):
            try:
                made.write(_made(made.folder, row, candidate, name, by, seed))
                broken = 0
            except NoImage as trouble:
                about = {key: row.get(key, "") for key in ("category", "caption", "negative")}
                failed = {"id": name, "negative_id": row["id"], **about, "reason": trouble.reason, "told": trouble.told[:300]}
                failures.add(failed, trouble.passing)
                broken = broken + 1 if trouble.passing else 0
                if broken >= GIVE_UP:
                    raise CrossmatchError(
                        f"{by.name} broke at {GIVE_UP} images in a row ({trouble}). Mend that; {len(made.done):,} images are kept "
                        f"in {made.folder}, and the step goes on from there."
                    ) from None
            drawn, lost = len(made.done), len(failures.settled) + len(failures.passing)
            show(drawn + lost, f"{drawn:,} drawn, {lost:,} failed")
        made.count("negatives", len(rows))
        made.count("images", len(made.done))
        failures.counted(made)
    _write_items(made, rows, number)


def _open(rows: Sequence[Row], number: int, made: Output, failures: Failures) -> Iterator[tuple[Row, int, str]]:
    """What is still to be drawn."""
    for row in rows:
        for candidate in range(number):
            name = f"{row['id']}~{candidate}"
            if name not in made.done and name not in failures.settled:
                yield row, candidate, name


def _made(folder: Path, row: Row, candidate: int, name: str, by: Generator, seed: int) -> Row:
    """Draw an image, write it, and tell of it."""
    own = seed_of(seed, str(row["id"]), candidate)
    picture, known = _drawn(by, row, candidate, own)
    held = io.BytesIO()
    picture.save(held, "PNG")
    file, data = file_of(name), held.getvalue()
    with whole_file(folder / file) as target:
        target.write(data)
    about = {key: row.get(key, "") for key in KEPT}
    return {
        "id": name, "negative_id": row["id"], **about, "number": candidate, "file": file,
        "sha256": hashlib.sha256(data).hexdigest(), "width": picture.width, "height": picture.height, "seed": own,
        "generator": by.name, **known,
    }  # fmt: skip


def _drawn(by: Generator, row: Row, candidate: int, seed: int) -> tuple[Image, Mapping[str, Any]]:
    """What a generator draws, if that is a picture; whatever else happens in it is told as a failure that may pass."""
    try:
        picture, known = by.draw(row, candidate, seed)
        plain = picture.convert("RGB")
        if not plain.width or not plain.height:
            raise ValueError("the picture is empty")
    except (NoImage, MissingDependency):
        raise
    except Exception as error:  # of a model of somebody else
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        raise NoImage("the generator broke", f"{type(error).__name__}: {error}"[:300], passing=True) from error
    return plain, known


def _write_items(made: Output, rows: Sequence[Row], number: int) -> None:
    """Each negative of which all images came out, with them, for people to choose from."""
    images: dict[str, list[Row]] = {}
    for one in whole_lines(made.folder / ROWS):
        images.setdefault(one["negative_id"], []).append(one)
    with whole_file(made.folder / ITEMS) as file:
        for row in rows:
            found = sorted(images.get(row["id"], ()), key=lambda one: int(one["number"]))
            if len(found) == number:
                item = {
                    "id": row["id"], "images": [one["file"] for one in found], "image_ids": [one["id"] for one in found],
                    "caption": row["negative"], "caption_id": row["id"],
                }  # fmt: skip
                if all("caption_holds" in one for one in found):  # drawn by who knows what is in them
                    item["fits"] = [True] * number
                file.write((json.dumps(item, ensure_ascii=False) + "\n").encode())
