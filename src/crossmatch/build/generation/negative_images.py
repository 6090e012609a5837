"""Images of negative captions: one, or several to choose from, per hard negative (miranda2024bivlc, sec. 3.1, step 2).

    rows.jsonl      one row per image: {"id", "negative_id", "image_id", "caption_id", "caption", "negative", "category",
                    "number": of the candidate, "file", "sha256", "width", "height", "seed", "generator"}
    images/         the files, written atomically
    failed.jsonl    images that could not be generated, with the reason
    items.jsonl     negatives with all their images: items of the study `bivlc-choose` if there are four each; `fits` tells
                    artificial annotators the truth about drawn scenes

An interrupted step resumes with the same images, because the seed of each image depends on its row and number only.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmatch.build.generation.generators import ImageGenerator, NoImageError
from crossmatch.build.step_files import (
    DISK_FULL,
    FAILED,
    ROWS,
    Failures,
    Row,
    StepOutput,
    StepSpec,
    open_step,
    read_complete_rows,
    read_manifest,
    read_rows,
    rows_hash,
)
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.progress import progress_bar

if TYPE_CHECKING:
    from PIL.Image import Image

STEP = "generate"
IMAGES, ITEMS = "images", "items.jsonl"
COPIED_FIELDS = ("image_id", "caption_id", "caption", "negative", "category")  # from the row of the negative
MAX_ERRORS_IN_A_ROW = 30
MAX_IMAGES = 64  # per negative
UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")


def generate_images(source: Path, output: Path, *, generator: ImageGenerator, number: int = 1, seed: int = 0) -> dict[str, Any]:
    """Generate `number` images of each negative caption.

    Args:
        source: Folder with hard negatives.
        output: Folder of the step.
        generator: Draws the images; `crossmatch.build.generation.generators.load_generator` finds one by name.
        number: Images per negative.
        seed: Seed of the step.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> from crossmatch.build import generate_images, write_diorama_negatives
    >>> from crossmatch.build.generation.generators import load_generator
    >>> world = Diorama.make("test", images=4)
    >>> manifest = write_diorama_negatives(world, folder / "negatives", categories=["swap/obj"])
    >>> generate_images(folder / "negatives", folder / "images", generator=load_generator("diorama", world), number=2)["counts"]
    {'negatives': 2, 'images': 4}
    """
    rows = read_rows(source, "negatives", "format", "refine")
    if not 1 <= number <= MAX_IMAGES:
        raise UsageError(f"--number must be from 1 to {MAX_IMAGES} (got {number}).")
    options = {"number": number, "settings": dict(getattr(generator, "settings", {}))}
    spec = StepSpec(STEP, {"negatives": rows_hash(source), "generator": generator.name}, options, seed)
    with open_step(output, spec) as step:
        if not step.is_finished:
            _generate_all(step, rows, generator, number, seed)
    return read_manifest(output)


def image_seed(seed: int, negative: str, number: int) -> int:
    """Seed of one image: 32 bits from the seed of the step, the id of the negative and the number of the candidate.

    >>> image_seed(0, "cat~swap/obj", 0) == image_seed(0, "cat~swap/obj", 0) != image_seed(0, "cat~swap/obj", 1)
    True
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {number} {negative}".encode()).digest()[:4], "big")


def image_file(image_id: str) -> str:
    """Path of an image file: the id in portable characters, and a hash that makes it unique.

    >>> image_file("a.jpg#0~swap/obj~1")
    'images/a.jpg-0-swap-obj-1-b66bbeb8.png'
    """
    return f"{IMAGES}/{UNSAFE_CHARACTERS.sub('-', image_id)[:80]}-{hashlib.sha256(image_id.encode()).hexdigest()[:8]}.png"


def _generate_all(step: StepOutput, rows: Sequence[Row], generator: ImageGenerator, number: int, seed: int) -> None:
    (step.folder / IMAGES).mkdir(exist_ok=True)
    errors_in_a_row = 0
    with Failures.resume(step.folder / FAILED) as failures, progress_bar(len(rows) * number, "drawing") as show:
        for row, candidate, image_id in _missing_images(rows, number, step, failures):
            try:
                step.write(_generate_image(step.folder, row, candidate, image_id, generator, seed))
                errors_in_a_row = 0
            except NoImageError as error:
                copied = {key: row.get(key, "") for key in ("category", "caption", "negative")}
                failed = {"id": image_id, "negative_id": row["id"], **copied, "reason": error.reason, "told": error.detail[:300]}
                failures.add(failed, error.may_retry)
                errors_in_a_row = errors_in_a_row + 1 if error.may_retry else 0
                if errors_in_a_row >= MAX_ERRORS_IN_A_ROW:
                    raise CrossmatchError(
                        f"{generator.name} failed for {MAX_ERRORS_IN_A_ROW} images in a row ({error}). "
                        f"{len(step.written_ids):,} images are kept in {step.folder}. Fix the generator, then run the same command "
                        "again to resume."
                    ) from None
            drawn, failed_number = len(step.written_ids), len(failures.final) + len(failures.retryable)
            show(drawn + failed_number, f"{drawn:,} drawn, {failed_number:,} failed")
        step.count("negatives", len(rows))
        step.count("images", len(step.written_ids))
        failures.count_reasons(step)
    _write_items(step, rows, number)


def _missing_images(rows: Sequence[Row], number: int, step: StepOutput, failures: Failures) -> Iterator[tuple[Row, int, str]]:
    for row in rows:
        for candidate in range(number):
            image_id = f"{row['id']}~{candidate}"
            if image_id not in step.written_ids and image_id not in failures.final:
                yield row, candidate, image_id


def _generate_image(folder: Path, row: Row, candidate: int, image_id: str, generator: ImageGenerator, seed: int) -> Row:
    """Generate and write an image; return its row."""
    own_seed = image_seed(seed, str(row["id"]), candidate)
    picture, extra_fields = _draw(generator, row, candidate, own_seed)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    file, data = image_file(image_id), buffer.getvalue()
    with atomic_write(folder / file) as target:
        target.write(data)
    copied = {key: row.get(key, "") for key in COPIED_FIELDS}
    return {
        "id": image_id, "negative_id": row["id"], **copied, "number": candidate, "file": file,
        "sha256": hashlib.sha256(data).hexdigest(), "width": picture.width, "height": picture.height, "seed": own_seed,
        "generator": generator.name, **extra_fields,
    }  # fmt: skip


def _draw(generator: ImageGenerator, row: Row, candidate: int, seed: int) -> tuple[Image, Mapping[str, Any]]:
    """Draw a picture; unexpected exceptions of the generator become failures that may be retried."""
    try:
        picture, extra_fields = generator.draw(row, candidate, seed)
        rgb = picture.convert("RGB")
        if not rgb.width or not rgb.height:
            raise ValueError("the picture is empty")
    except (NoImageError, MissingDependencyError):
        raise
    except Exception as error:  # third-party models raise anything
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise
        raise NoImageError("the generator broke", f"{type(error).__name__}: {error}"[:300], may_retry=True) from error
    return rgb, extra_fields


def _write_items(step: StepOutput, rows: Sequence[Row], number: int) -> None:
    """Write the negatives that have all their images as items of a study."""
    images: dict[str, list[Row]] = {}
    for image in read_complete_rows(step.folder / ROWS):
        images.setdefault(image["negative_id"], []).append(image)
    with atomic_write(step.folder / ITEMS) as file:
        for row in rows:
            candidates = sorted(images.get(row["id"], ()), key=lambda image: int(image["number"]))
            if len(candidates) == number:
                item = {
                    "id": row["id"], "images": [image["file"] for image in candidates],
                    "image_ids": [image["id"] for image in candidates], "caption": row["negative"], "caption_id": row["id"],
                }  # fmt: skip
                if all("caption_holds" in image for image in candidates):  # drawn from known scenes
                    item["fits"] = [True] * number
                file.write((json.dumps(item, ensure_ascii=False) + "\n").encode())
