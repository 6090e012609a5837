"""Captions inside of a record: a row of a Hugging Face data set, or the json of a webdataset sample."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from crossmatch.benchmarks.formats.coco import as_id
from crossmatch.benchmarks.formats.gathered import Caption
from crossmatch.core.errors import CrossmatchError

# The first name that is there is taken, so the more telling ones come first.
CAPTION_NAMES = ("captions", "caption", "sentences", "sentence", "texts", "text", "raw")
CAPTION_ID_NAMES = ("caption_ids", "caption_id", "sentids", "sentid")
NUMBERED = re.compile(r"captions?_?(\d+)")


def caption_columns(names: Mapping[str, Any] | list[str]) -> list[str]:
    """The columns that hold captions: the best known name, or `caption_0`, `caption_1`, … together.

    >>> caption_columns(["image", "text", "caption"]), caption_columns(["caption_10", "image", "caption_2"])
    (['caption'], ['caption_2', 'caption_10'])
    """
    known = [name for name in CAPTION_NAMES if name in names]
    numbered = sorted((int(match[1]), name) for name in names if (match := NUMBERED.fullmatch(name)))
    return known[:1] or [name for _, name in numbered]


def captions_in(record: Mapping[str, Any], image: str, where: str) -> list[Caption]:
    """The captions of an image in its record: texts, lists of texts, or objects that hold a text and perhaps its id.

    >>> [(c.id, c.text) for c in captions_in({"captions": ["A cat.", "A pet."], "caption_ids": [7, 8]}, "a", "row 0")]
    [('7', 'A cat.'), ('8', 'A pet.')]
    >>> [(c.id, c.text) for c in captions_in({"sentences": [{"raw": "A cat.", "sentid": 7}]}, "a", "row 0")]
    [('7', 'A cat.')]
    """
    found = [pair for name in caption_columns(record) for pair in _texts(record[name], where)]
    name = next((name for name in CAPTION_ID_NAMES if name in record), None)
    if name is None:
        return [Caption(image, text, where, key) for key, text in found]
    given = record[name] if isinstance(record[name], list) else [record[name]]
    if len(given) != len(found):
        raise CrossmatchError(f"{where}: {len(given)} {name} for {len(found)} captions. Give one id for each caption.")
    return [Caption(image, text, where, as_id(key, where, name)) for key, (_, text) in zip(given, found, strict=True)]


def _texts(value: Any, where: str) -> Iterator[tuple[str | None, str]]:
    """Pairs of an id, where there is one, and a text."""
    if isinstance(value, str):
        yield None, value.strip()
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, where)
    elif isinstance(value, dict) and caption_columns(value):
        name = next((name for name in (*CAPTION_ID_NAMES, "id") if name in value), None)
        texts = [text for column in caption_columns(value) for _, text in _texts(value[column], where)]
        ids = value[name] if name and isinstance(value[name], list) else [value[name]] if name else [None] * len(texts)
        if len(ids) != len(texts):
            raise CrossmatchError(f"{where}: {len(ids)} {name} for {len(texts)} captions. Give one id for each caption.")
        yield from ((None if key is None else as_id(key, where, str(name)), text) for key, text in zip(ids, texts, strict=True))
    else:
        raise CrossmatchError(
            f"{where}: a caption is {value!r:.60}; a text was expected. Write one, or an empty list for an image without captions."
        )
