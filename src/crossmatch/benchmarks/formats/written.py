"""A collection as a folder in COCO's layout, which `collection:FOLDER` reads: pictures in `images/`, and captions.json."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.gathered import Pictures
from crossmatch.benchmarks.formats.images import is_image
from crossmatch.core.collection import Collection
from crossmatch.core.pictures import opened
from crossmatch.core.progress import track
from crossmatch.core.whole import whole_file


def write_collection(folder: Path, collection: Collection, more: Mapping[str, Path] | None = None, *, anew: bool = False) -> str:
    """Write the pictures into `images/`; what captions.json is to hold: their names, the captions and the links.

    Pictures are the files they are, or else PNG; with `anew` all are encoded anew, without what a file may hold beside them. `more`
    are files of pictures that the collection has not, by their ids: they are added without a caption. Where there are no pictures
    there is the text alone, and whoever has them can put them into `images/` under the names that it tells.
    """
    (folder / "images").mkdir(exist_ok=True)
    images: list[dict[str, str]] = []
    for name in track(collection.image_ids.tolist(), "writing the pictures"):
        images.append(_written(folder, len(images), name, *_encoded(collection, name, anew)))
    for name, file in (more or {}).items():
        images.append(_written(folder, len(images), name, file.read_bytes(), file.suffix))
    ids, texts = collection.caption_ids.tolist(), collection.captions
    annotations = [
        {"id": ids[c], "image_id": images[i]["id"], "caption": texts[c] if texts else ""} for i, c in collection.links.tolist()
    ]
    return json.dumps({"images": images, "annotations": annotations}, ensure_ascii=False)


def _written(folder: Path, number: int, name: str, held: bytes | None, suffix: str) -> dict[str, str]:
    file_name = f"{number:06d}{suffix}"
    if held is not None:
        with whole_file(folder / "images" / file_name) as file:
            file.write(held)
    return {"id": name, "file_name": file_name}


def _encoded(collection: Collection, name: str, anew: bool) -> tuple[bytes | None, str]:
    """A picture as bytes and the ending of its file's name; nothing where there is none."""
    opener = collection.open_image
    if opener is None:
        return None, ".jpg"
    if isinstance(opener, Pictures) and not anew:
        where = opener.stored[name].where
        return opener.read(name), Path(where).suffix if is_image(where) else ".jpg"  # readers look at the content
    return png_of(opened(opener, name)), ".png"


def png_of(picture: Any) -> bytes:
    """A picture as the bytes of a PNG file, in RGB."""
    out = io.BytesIO()
    picture.convert("RGB").save(out, "PNG")
    return out.getvalue()
