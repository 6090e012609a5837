"""The baseline: a small image tower and a small text tower that meet in one space. Trained by `crossmatch.train.dual`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import MissingDependency
from crossmatch.models.folder import load_folder, save_folder, weights_of

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

PAD, UNKNOWN, FIRST_WORD = 0, 1, 2
WORD = re.compile(r"[^\W_]+")  # letters and digits
MARKS = ("Mn", "Mc")  # what a letter of many scripts carries: vowels, tones, accents
BATCH = 64


@dataclass(frozen=True)
class DualConfig:
    """What must be known to build the network again."""

    vocabulary: tuple[str, ...] = field(repr=False)
    pixels: int = 64
    dimensions: int = 256
    width: int = 12


def words(text: str) -> list[str]:
    """Lower-case words without punctuation.

    >>> words("Two dotted T-shirts.")
    ['two', 'dotted', 't', 'shirts']
    >>> words("Ein Café, eine Straße")
    ['ein', 'café', 'eine', 'straße']
    >>> words("कि की"), words("cafe\u0301") == words("café")
    (['कि', 'की'], True)
    """
    if text.isascii():
        return WORD.findall(text.lower())
    whole = unicodedata.normalize("NFC", text.lower())
    return "".join(sign if sign.isalnum() or unicodedata.category(sign) in MARKS else " " for sign in whole).split()


def vocabulary_of(texts: Iterable[str]) -> tuple[str, ...]:
    """All words, sorted.

    >>> vocabulary_of(["A cat.", "a red cat"])
    ('a', 'cat', 'red')
    """
    return tuple(sorted({word for text in texts for word in words(text)}))


def numbered(texts: Sequence[str], vocabulary: Sequence[str]) -> NDArray[np.int64]:
    """One row of word numbers per text, filled up with 0; 1 stands for every unknown word.

    >>> numbered(["A cat", "", "a blue dog"], ("a", "cat", "dog"))
    array([[2, 3, 0], [0, 0, 0], [2, 1, 4]])
    """
    number = {word: n for n, word in enumerate(vocabulary, start=FIRST_WORD)}
    rows = [[number.get(word, UNKNOWN) for word in words(text)] for text in texts]
    out = np.full((len(rows), max(map(len, rows), default=0)), PAD, dtype=np.int64)
    for filled, row in zip(out, rows, strict=True):
        filled[: len(row)] = row
    return out


def pixels_of(images: Sequence[Image], side: int) -> NDArray[np.uint8]:
    """The images as one array (n, side, side, 3). Box averaging, so that a drawing of any size comes out alike."""
    from PIL import Image

    out = np.empty((len(images), side, side, 3), dtype=np.uint8)
    for filled, image in zip(out, images, strict=True):
        filled[:] = np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BOX))
    return out


def _convolution(channels: int, out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


def convolutions(width: int) -> nn.Sequential:
    """Four convolutions with batch norm: of a picture, a map of an eighth of its side with 8 `width` numbers at each place."""
    return nn.Sequential(
        _convolution(3, width, 2),
        _convolution(width, 2 * width, 2),
        _convolution(2 * width, 4 * width, 1),
        _convolution(4 * width, 8 * width, 2),
    )


class DualEncoderNet(nn.Module):
    """Two towers; both end in unit vectors of `dimensions` numbers.

    image:  four convolutions with batch norm, then the mean and the maximum over all places, then a linear map
    text:   a ReLU layer over every three neighbouring words, then mean and maximum over the caption, then a linear map

    Three neighbouring words tell "a red cat and a blue cup" from "a blue cat and a red cup", which a bag of words
    cannot; on a CPU this takes a fraction of the time of a GRU. Source: kim2014convolutional, sec. 2.
    """

    def __init__(self, config: DualConfig) -> None:
        super().__init__()
        width, dimensions = config.width, config.dimensions
        self.image = convolutions(width)
        self.image_out = nn.Linear(16 * width, dimensions)
        self.words = nn.Embedding(FIRST_WORD + len(config.vocabulary), 64, padding_idx=PAD)
        self.phrase = nn.Linear(3 * 64, 128)
        self.text_out = nn.Linear(2 * 128, dimensions)
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())  # of the cosines; the temperature is exp(-log_scale)

    def embed_images(self, pixels: Tensor) -> Tensor:
        """From bytes (n, side, side, 3) to unit vectors."""
        seen = self.image(pixels.permute(0, 3, 1, 2).contiguous().float() / 127.5 - 1)
        pooled = torch.cat([F.adaptive_avg_pool2d(seen, 1), F.adaptive_max_pool2d(seen, 1)], dim=1).flatten(1)
        return F.normalize(self.image_out(pooled), dim=1)

    def embed_texts(self, numbers: Tensor) -> Tensor:
        """From word numbers (n, length) to unit vectors. Padding counts for nothing, so the batch does not matter."""
        numbers = F.pad(numbers, (1, 2), value=PAD)  # never empty, and every word has two neighbours
        real = (numbers[:, 1:-1] != PAD).unsqueeze(2)
        at = self.words(numbers)
        heard = F.relu(self.phrase(torch.cat([at[:, :-2], at[:, 1:-1], at[:, 2:]], dim=2))) * real
        mean = heard.sum(dim=1) / real.sum(dim=1).clamp(min=1)
        return F.normalize(self.text_out(torch.cat([mean, heard.amax(dim=1)], dim=1)), dim=1)


class Dual:
    """A trained dual encoder. Embeddings depend on what else is in the batch by rounding alone (a test holds 1e-5).

    `recipe` is what made it (kept in model.json, so that a training with the same recipe need not run again).
    """

    def __init__(self, config: DualConfig, recipe: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.net = DualEncoderNet(config).eval()
        self.recipe = dict(recipe or {})

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """One unit vector per image."""
        return self.embed_pixels(pixels_of(images, self.config.pixels))

    def embed_pixels(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The same, from bytes of the right size: (n, side, side, 3)."""
        return self._in_batches(self.net.embed_images, pixels)

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector per text; an empty text has one as well."""
        return self._in_batches(self.net.embed_texts, numbered(texts, self.config.vocabulary))

    def _in_batches(self, embed: Callable[[Tensor], Tensor], given: NDArray[Any]) -> NDArray[np.float32]:
        self.net.eval()
        with torch.inference_mode():
            parts = [embed(torch.from_numpy(given[at : at + BATCH])).numpy() for at in range(0, len(given), BATCH)]
        return np.concatenate([np.empty((0, self.config.dimensions), np.float32), *parts])

    @property
    def weights(self) -> str:
        """Twelve hexadecimal digits of the weights."""
        return weights_of(self.net)

    @property
    def signature(self) -> str:
        """The system line: name, weights, preprocessing, precision."""
        return f"dual|weights:{self.weights}|pixels:{self.config.pixels}/box|fp32"

    def save(self, folder: Path) -> None:
        """Write the model as a folder."""
        save_folder(self, "dual", folder)

    @classmethod
    def load(cls, folder: Path) -> Dual:
        """Read a folder that `save` wrote."""
        return load_folder(folder, "dual", "dual encoder", lambda config, recipe: cls(DualConfig(**config), recipe=recipe))


def load(folder: Path) -> Dual:
    """The trained model in this folder."""
    return Dual.load(folder)
