"""Blind baselines: models that see the caption alone or the image alone, and what is there to be found without the other.

On a benchmark whose negative captions are less fluent than its positives, a language model that never opens a picture can be right
most of the time. Each baseline says by `sees` what it needs; those that see texts alone take anything in place of the pictures.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.core.arrays import BoolArray, FloatArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials
from crossmatch.models.ngram import ORDER, NgramModel, tokens
from crossmatch.models.text import file_hash

if TYPE_CHECKING:
    from PIL.Image import Image

SCENES = 2_000  # of the training split, whose captions are learnt from by default: a fifth of the time for 490 of its 500 words
SIDE = 224  # pixels of a picture's side when its detail is measured, so that detail does not depend on its size


@dataclass(frozen=True)
class TextOnly:
    """A number for each caption, the same with every image.

    >>> blind("longest").score([None], ["A cat.", "A black cat on a mat."])
    array([[2., 6.]])
    """

    name: str
    about: str
    value: Callable[[str], float] = field(repr=False)
    sees: str = "texts"

    @property
    def signature(self) -> str:
        return f"blind:{self.name}"

    def score(self, images: Sequence[object], texts: Sequence[str]) -> FloatArray:
        return _alike(images, [self.value(text) for text in texts])


@dataclass(frozen=True)
class ImageOnly:
    """A number for each image, the same with every caption.

    >>> from PIL import Image
    >>> blind("brightness").score([Image.new("RGB", (4, 4), "white"), Image.new("RGB", (4, 4))], ["A cat.", "A dog."])
    array([[1., 1.],
           [0., 0.]])
    """

    name: str
    about: str
    value: Callable[[Image], float] = field(repr=False)
    sees: str = "images"

    @property
    def signature(self) -> str:
        return f"blind:{self.name}"

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        return np.repeat([[self.value(image)] for image in images], len(texts), axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Ngram:
    """The likelihood of each caption under a trigram language model (`models.ngram`), whatever the image.

    The model is fitted on the captions of a file, or on those of the embedded world's training split. A file that holds the
    benchmark's own captions makes it know the answers; `seen` tells how many it does.
    """

    path: Path | None = None
    sees: str = "texts"

    @cached_property
    def model(self) -> NgramModel:
        return NgramModel.fit(read_texts(self.path) if self.path is not None else _diorama_captions())

    @property
    def signature(self) -> str:
        source = f"{self.path.name}:{file_hash(self.path)}" if self.path is not None else "diorama/train"
        return f"blind:ngram|captions:{source}|order:{ORDER}|smoothing:kneser-ney"

    def log_likelihood(self, images: Sequence[object], texts: Sequence[str]) -> FloatArray:
        """Natural logarithms, shape (images, texts)."""
        return _alike(images, [self.model.log_likelihood(text) for text in texts])

    def lengths(self, texts: Sequence[str]) -> FloatArray:
        """The tokens of each caption that the likelihood runs over: its words and its end."""
        return np.asarray([self.model.length(text) for text in texts], dtype=np.float64)

    def notes_on(self, trials: Trials) -> tuple[str, ...]:
        """A warning where the answers were among what it was fitted on."""
        share = float(self.seen(trials.captions.ravel().tolist()).mean())
        return (f"{100 * share:.1f} % of the captions are among those that the language model was fitted on",) if share else ()

    def seen(self, texts: Sequence[str]) -> BoolArray:
        """Which of the captions the model was fitted on."""
        return np.asarray([self.model.has(text) for text in texts], dtype=np.bool_)


def _alike(images: Sequence[object], values: Sequence[float]) -> FloatArray:
    return np.tile(np.asarray(values, dtype=np.float64), (len(images), 1))


def _length(text: str) -> float:
    return float(len(tokens(text)))


def _shortness(text: str) -> float:
    return -_length(text)


def brightness(image: Image) -> float:
    """The mean luminance, 0 for black and 1 for white."""
    return float(_grey(image).mean())


def detail(image: Image) -> float:
    """The mean length of the luminance's gradient, per pixel of a picture of 224 x 224."""
    from PIL.Image import Resampling

    down, across = np.gradient(_grey(image.resize((SIDE, SIDE), Resampling.BILINEAR)))
    return float(np.hypot(down, across).mean())


def _grey(image: Image) -> FloatArray:
    return np.asarray(image.convert("L"), dtype=np.float64) / 255


BLIND: tuple[TextOnly | ImageOnly, ...] = (
    TextOnly("longest", "the caption of more words", _length),
    TextOnly("shortest", "the caption of fewer words", _shortness),
    ImageOnly("brightness", "the brighter image", brightness),
    ImageOnly("detail", "the image of more detail: a larger mean gradient", detail),
)


def blind(rest: str) -> TextOnly | ImageOnly | Ngram:
    """The baseline of this name; `ngram` may have a file of captions, as in `ngram=captions.txt`.

    >>> blind("ngram").signature
    'blind:ngram|captions:diorama/train|order:3|smoothing:kneser-ney'
    """
    name, named, file = rest.partition("=")
    if name == "ngram":
        if named and not Path(file).is_file():
            raise WrongWords(f"there is no file {file or '(none)'} to fit blind:ngram on. Check the path.")
        return Ngram(Path(file) if named else None)
    found = next((baseline for baseline in BLIND if baseline.name == rest), None)
    if found is None:
        names = ", ".join(f"blind:{baseline.name}" for baseline in BLIND)
        raise WrongWords(f"blind:{rest} has no meaning; there are {names}, blind:ngram and blind:ngram=FILE.")
    return found


def _diorama_captions() -> Iterable[str]:
    from crossmatch.diorama.world import Diorama

    return Diorama.make("train", images=SCENES).collection.texts()


def read_texts(path: Path) -> list[str]:
    """Captions from a txt (one on each line), a csv or tsv (the column `caption`), or a COCO json (its annotations)."""
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise CrossmatchError(f"{path}: captions are read from files that end in {', '.join(READERS)}. Rename or convert it.")
    try:
        texts = [text for text in reader(path.read_bytes().decode("utf-8-sig")) if text.strip()]
    except CrossmatchError as error:
        raise CrossmatchError(f"{path}: {error}") from None
    except (ValueError, csv.Error, RecursionError) as error:
        raise CrossmatchError(f"{path} cannot be read as {path.suffix} ({error}). Write it again.") from None
    if not texts:
        raise CrossmatchError(f"{path} holds no captions. Write at least one.")
    return texts


def _column(text: str, separator: str) -> list[str]:
    rows = csv.DictReader(io.StringIO(text), delimiter=separator, strict=True)
    names = list(rows.fieldnames or ())
    if "caption" not in names:
        raise CrossmatchError(f"it has the columns {', '.join(names) or '(none)'}; one of the name caption was expected.")
    return [row["caption"] or "" for row in rows]


def _annotations(text: str) -> list[str]:
    held: Any = json.loads(text)
    rows = held.get("annotations") if isinstance(held, dict) else held
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("caption"), str) for row in rows):
        raise CrossmatchError('expected {"annotations": [{"caption": …}, …]}, as COCO has it, or that list alone.')
    return [row["caption"] for row in rows]


READERS: Mapping[str, Callable[[str], list[str]]] = {
    ".txt": str.splitlines,
    ".csv": lambda text: _column(text, ","),
    ".tsv": lambda text: _column(text, "\t"),
    ".json": _annotations,
}
