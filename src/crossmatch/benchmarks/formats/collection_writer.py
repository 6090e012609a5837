"""Writes a collection as a folder in COCO's format, `captions.json` and `images/`, which `collection:FOLDER` reads."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.image_caption_records import ImageOpener
from crossmatch.benchmarks.formats.image_folder import is_image
from crossmatch.data.collection import Collection
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.image_loading import load_image
from crossmatch.data.io.progress import track


def write_collection(
    folder: Path, collection: Collection, extra_images: Mapping[str, Path] | None = None, *, reencode: bool = False
) -> str:
    """Write the images into `images/`, and return the content of captions.json: file names, captions and links.

    A collection without images gets the json only; the images can be added later under the file names in it.

    `extra_images` are files of further images by id, which are added without captions. With `reencode` all images become PNG, which
    drops metadata; by default encoded images are copied.
    """
    (folder / "images").mkdir(exist_ok=True)
    images: list[dict[str, str]] = []
    for name in track(collection.image_ids.tolist(), "writing images"):
        images.append(_write_image(folder, len(images), name, *_encode_image(collection, name, reencode)))
    for name, file in (extra_images or {}).items():
        images.append(_write_image(folder, len(images), name, file.read_bytes(), file.suffix))
    ids, texts = collection.caption_ids.tolist(), collection.captions
    annotations = [
        {"id": ids[c], "image_id": images[i]["id"], "caption": texts[c] if texts else ""} for i, c in collection.links.tolist()
    ]
    return json.dumps({"images": images, "annotations": annotations}, ensure_ascii=False)


def _write_image(folder: Path, number: int, name: str, encoded: bytes | None, suffix: str) -> dict[str, str]:
    file_name = f"{number:06d}{suffix}"
    if encoded is not None:
        with atomic_write(folder / "images" / file_name) as file:
            file.write(encoded)
    return {"id": name, "file_name": file_name}


def _encode_image(collection: Collection, name: str, reencode: bool) -> tuple[bytes | None, str]:
    """Return the encoded image (None if the collection has no images) and the suffix of its file."""
    opener = collection.open_image
    if opener is None:
        return None, ".jpg"
    if isinstance(opener, ImageOpener) and not reencode:
        where = opener.encoded[name].where
        return opener.read(name), Path(where).suffix if is_image(where) else ".jpg"  # readers detect the format from the content
    return encode_png(load_image(opener, name)), ".png"


def encode_png(picture: Any) -> bytes:
    """Encode an image as an RGB PNG file."""
    out = io.BytesIO()
    picture.convert("RGB").save(out, "PNG")
    return out.getvalue()
