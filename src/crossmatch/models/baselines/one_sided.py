"""Blind baselines: models that see only the caption or only the image.

On a benchmark whose negative captions are less fluent than its positives, a language model that never opens an image can be right
most of the time. The attribute `inputs` of each baseline says what it needs; those that see texts ignore the images.
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

from crossmatch.data.arrays import BoolArray, FloatArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trials import Trials
from crossmatch.models.baselines.caption_proxy import read_caption_file
from crossmatch.models.baselines.ngram_language_model import ORDER, NgramModel, tokenize
from crossmatch.models.baselines.text_encoders import hash_file

if TYPE_CHECKING:
    from PIL.Image import Image

SCENES = 2_000  # of diorama's training split, for the default language model: they have 490 of its 500 words
SIDE = 224  # pixels to which an image is resized before its detail is measured, so that detail does not depend on size


@dataclass(frozen=True)
class BlindScorer:
    """A score for each caption, the same with every image; or a score for each image, the same with every caption.

    >>> make_blind_model("longest").score([None], ["A cat.", "A black cat on a mat."])
    array([[2., 6.]])
    """

    name: str
    about: str
    inputs: str  # "texts" or "images"
    value: Callable[[Any], float] = field(repr=False)

    @property
    def signature(self) -> str:
        return f"blind:{self.name}"

    def score(self, images: Sequence[Any], texts: Sequence[str]) -> FloatArray:
        """Score every image with every text."""
        values = [self.value(text) for text in texts] if self.inputs == "texts" else [[self.value(image)] for image in images]
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (len(images), len(texts)))


@dataclass(frozen=True, eq=False)
class NgramScorer:
    """The likelihood of each caption under a trigram language model, whatever the image.

    The model is fitted on the captions of a file, or on those of diorama's training split. A file with the benchmark's own captions
    gives the answers away; `was_fitted_on` says which captions it knows.
    """

    path: Path | None = None
    inputs: str = "texts"

    @cached_property
    def model(self) -> NgramModel:
        """The fitted language model."""
        return NgramModel.fit(read_caption_texts(self.path) if self.path is not None else _diorama_captions())

    @property
    def signature(self) -> str:
        source = f"{self.path.name}:{hash_file(self.path)}" if self.path is not None else "diorama/train"
        return f"blind:ngram|captions:{source}|order:{ORDER}|smoothing:kneser-ney"

    def log_likelihood(self, images: Sequence[object], texts: Sequence[str]) -> FloatArray:
        """Natural logarithms; shape (images, texts)."""
        values = [self.model.log_likelihood(text) for text in texts]
        return np.tile(np.asarray(values, dtype=np.float64), (len(images), 1))

    def lengths(self, texts: Sequence[str]) -> FloatArray:
        """The number of factors of each likelihood: the words and the end."""
        return np.asarray([self.model.length(text) for text in texts], dtype=np.float64)

    def notes_on(self, trials: Trials) -> tuple[str, ...]:
        """A warning if the language model was fitted on captions of the trials."""
        share = float(self.was_fitted_on(trials.captions.ravel().tolist()).mean())
        return (f"the language model was fitted on {100 * share:.1f} % of the captions",) if share else ()

    def was_fitted_on(self, texts: Sequence[str]) -> BoolArray:
        """Which of the captions the language model was fitted on."""
        return np.asarray([self.model.was_fitted_on(text) for text in texts], dtype=np.bool_)


def brightness(image: Image) -> float:
    """Return the mean luminance, 0 for black and 1 for white."""
    return float(_luminance(image).mean())


def detail(image: Image) -> float:
    """Return the mean length of the luminance gradient, per pixel of the image resized to 224 x 224."""
    from PIL.Image import Resampling

    vertical, horizontal = np.gradient(_luminance(image.resize((SIDE, SIDE), Resampling.BILINEAR)))
    return float(np.hypot(vertical, horizontal).mean())


def _luminance(image: Image) -> FloatArray:
    return np.asarray(image.convert("L"), dtype=np.float64) / 255


BLIND = (
    BlindScorer("longest", "the caption with more words", "texts", lambda text: len(tokenize(text))),
    BlindScorer("shortest", "the caption with fewer words", "texts", lambda text: -len(tokenize(text))),
    BlindScorer("brightness", "the brighter image", "images", brightness),
    BlindScorer("detail", "the image with more detail: a larger mean gradient", "images", detail),
)


def make_blind_model(argument: str) -> BlindScorer | NgramScorer:
    """Make the baseline of `blind:NAME`; `ngram` may have a file of captions, as in `ngram=captions.txt`.

    >>> make_blind_model("ngram").signature
    'blind:ngram|captions:diorama/train|order:3|smoothing:kneser-ney'
    """
    name, has_file, file = argument.partition("=")
    if name == "ngram":
        if has_file and not Path(file).is_file():
            raise UsageError(f"blind:{argument}: there is no file {file or '(none)'}. Check the path.")
        return NgramScorer(Path(file) if has_file else None)
    baseline = next((baseline for baseline in BLIND if baseline.name == argument), None)
    if baseline is None:
        names = ", ".join(f"blind:{baseline.name}" for baseline in BLIND)
        raise UsageError(f"there is no baseline blind:{argument}. Use one of {names}, blind:ngram and blind:ngram=FILE.")
    return baseline


def _diorama_captions() -> Iterable[str]:
    from crossmatch.diorama.world import Diorama

    return Diorama.make("train", images=SCENES).collection.texts()


def read_caption_texts(path: Path) -> list[str]:
    """Read captions from a txt (one per line), a csv or tsv (column `caption`), or a COCO json (its annotations)."""
    return read_caption_file(path, READERS)


def _read_column(text: str, separator: str) -> list[str]:
    rows = csv.DictReader(io.StringIO(text), delimiter=separator, strict=True)
    names = list(rows.fieldnames or ())
    if "caption" not in names:
        raise CrossmatchError(f"expected a column caption, got the columns {', '.join(names) or '(none)'}.")
    return _non_empty(row["caption"] or "" for row in rows)


def _read_annotations(text: str) -> list[str]:
    content: Any = json.loads(text)
    rows = content.get("annotations") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("caption"), str) for row in rows):
        raise CrossmatchError('expected {"annotations": [{"caption": …}, …]}, as in COCO, or that list alone.')
    return _non_empty(row["caption"] for row in rows)


def _non_empty(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if text.strip()]


READERS: Mapping[str, Callable[[str], list[str]]] = {
    ".txt": lambda text: _non_empty(text.splitlines()),
    ".csv": lambda text: _read_column(text, ","),
    ".tsv": lambda text: _read_column(text, "\t"),
    ".json": _read_annotations,
}
