"""Finds the captions in a record: a row of a Hugging Face data set, or the json of a webdataset sample."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from crossmatch.benchmarks.formats.coco_json import parse_id
from crossmatch.benchmarks.formats.image_caption_records import CaptionRecord
from crossmatch.data.errors import CrossmatchError

# The first name that exists is used, so the most specific names come first.
CAPTION_NAMES = ("captions", "caption", "sentences", "sentence", "texts", "text", "raw")
CAPTION_ID_NAMES = ("caption_ids", "caption_id", "sentids", "sentid")
NUMBERED_CAPTION = re.compile(r"captions?_?(\d+)")


def find_caption_columns(names: Mapping[str, Any] | list[str]) -> list[str]:
    """Return the columns that hold captions: the first known name, or all of `caption_0`, `caption_1`, ….

    >>> find_caption_columns(["image", "text", "caption"]), find_caption_columns(["caption_10", "image", "caption_2"])
    (['caption'], ['caption_2', 'caption_10'])
    """
    preferred = [name for name in CAPTION_NAMES if name in names]
    numbered = sorted((int(match[1]), name) for name in names if (match := NUMBERED_CAPTION.fullmatch(name)))
    return preferred[:1] or [name for _, name in numbered]


def parse_captions(record: Mapping[str, Any], image: str, where: str) -> list[CaptionRecord]:
    """Parse the captions of an image from its record: texts, lists of texts, or objects with a text and an optional id.

    >>> [(c.id, c.text) for c in parse_captions({"captions": ["A cat.", "A pet."], "caption_ids": [7, 8]}, "a", "row 0")]
    [('7', 'A cat.'), ('8', 'A pet.')]
    >>> [(c.id, c.text) for c in parse_captions({"sentences": [{"raw": "A cat.", "sentid": 7}]}, "a", "row 0")]
    [('7', 'A cat.')]
    """
    texts = [pair for name in find_caption_columns(record) for pair in _texts(record[name], where)]
    name = next((name for name in CAPTION_ID_NAMES if name in record), None)
    if name is None:
        return [CaptionRecord(image, text, where, key) for key, text in texts]
    ids = record[name] if isinstance(record[name], list) else [record[name]]
    if len(ids) != len(texts):
        raise CrossmatchError(f"{where}: {len(ids)} {name} for {len(texts)} captions. Give one id for each caption.")
    return [CaptionRecord(image, text, where, parse_id(key, where, name)) for key, (_, text) in zip(ids, texts, strict=True)]


def _texts(value: Any, where: str) -> Iterator[tuple[str | None, str]]:
    """Yield pairs of an id (or None) and a text."""
    if isinstance(value, str):
        yield None, value.strip()
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, where)
    elif isinstance(value, dict) and find_caption_columns(value):
        name = next((name for name in (*CAPTION_ID_NAMES, "id") if name in value), None)
        texts = [text for column in find_caption_columns(value) for _, text in _texts(value[column], where)]
        ids = value[name] if name and isinstance(value[name], list) else [value[name]] if name else [None] * len(texts)
        if len(ids) != len(texts):
            raise CrossmatchError(f"{where}: {len(ids)} {name} for {len(texts)} captions. Give one id for each caption.")
        yield from ((None if key is None else parse_id(key, where, str(name)), text) for key, text in zip(ids, texts, strict=True))
    else:
        raise CrossmatchError(
            f"{where}: a caption must be text (got {value!r:.60}). Write text, or an empty list for an image without captions."
        )
