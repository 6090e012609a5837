"""A small dual encoder: an image tower and a text tower with one embedding space. Trained by `train.small_dual_encoder`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.errors import MissingDependencyError
from crossmatch.models.files.model_folder import FolderModel, load_model_folder

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

PAD, UNKNOWN, FIRST_WORD = 0, 1, 2
WORD = re.compile(r"[^\W_]+")  # letters and digits
MARK_CATEGORIES = ("Mn", "Mc")  # Unicode categories of vowel signs, tone marks and accents
BATCH = 64


@dataclass(frozen=True)
class SmallDualEncoderConfig:
    """The configuration in model.json."""

    vocabulary: tuple[str, ...] = field(repr=False)
    pixels: int = 64
    dimensions: int = 256
    width: int = 12


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words without punctuation.

    >>> split_words("Two dotted T-shirts.")
    ['two', 'dotted', 't', 'shirts']
    >>> split_words("Ein Café, eine Straße")
    ['ein', 'café', 'eine', 'straße']
    >>> split_words("कि की"), split_words("cafe\u0301") == split_words("café")
    (['कि', 'की'], True)
    """
    if text.isascii():
        return WORD.findall(text.lower())
    normal = unicodedata.normalize("NFC", text.lower())
    return "".join(c if c.isalnum() or unicodedata.category(c) in MARK_CATEGORIES else " " for c in normal).split()


def build_vocabulary(texts: Iterable[str]) -> tuple[str, ...]:
    """Return all words of some texts, sorted.

    >>> build_vocabulary(["A cat.", "a red cat"])
    ('a', 'cat', 'red')
    """
    return tuple(sorted({word for text in texts for word in split_words(text)}))


def number_words(texts: Sequence[str], vocabulary: Sequence[str]) -> NDArray[np.int64]:
    """Return one row of word ids per text, padded with 0; 1 is the id of every unknown word.

    >>> number_words(["A cat", "", "a blue dog"], ("a", "cat", "dog"))
    array([[2, 3, 0], [0, 0, 0], [2, 1, 4]])
    """
    word_id = {word: n for n, word in enumerate(vocabulary, start=FIRST_WORD)}
    rows = [[word_id.get(word, UNKNOWN) for word in split_words(text)] for text in texts]
    out = np.full((len(rows), max(map(len, rows), default=0)), PAD, dtype=np.int64)
    for target, row in zip(out, rows, strict=True):
        target[: len(row)] = row
    return out


def resize_images(images: Sequence[Image], side: int) -> NDArray[np.uint8]:
    """Resize images to one array (n, side, side, 3), by box averaging, so that a drawing of any size looks the same."""
    from PIL import Image

    out = np.empty((len(images), side, side, 3), dtype=np.uint8)
    for target, image in zip(out, images, strict=True):
        target[:] = np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BOX))
    return out


def _convolution(channels: int, out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))


def make_convolutions(width: int) -> nn.Sequential:
    """Make four convolutions with batch norm: the map has an eighth of the image's side and 8 x `width` channels."""
    return nn.Sequential(
        _convolution(3, width, 2),
        _convolution(width, 2 * width, 2),
        _convolution(2 * width, 4 * width, 1),
        _convolution(4 * width, 8 * width, 2),
    )


class DualEncoderNet(nn.Module):
    """Two towers that end in unit vectors of `dimensions` numbers.

    image:  four convolutions with batch norm, then mean and maximum over all positions, then a linear layer
    text:   a ReLU layer over every three neighbouring words, then mean and maximum over the caption, then a linear layer

    Three neighbouring words distinguish "a red cat and a blue cup" from "a blue cat and a red cup", which a bag of words cannot; on
    a CPU this takes a fraction of the time of a GRU. Source: kim2014convolutional, sec. 2.
    """

    def __init__(self, config: SmallDualEncoderConfig) -> None:
        super().__init__()
        width, dimensions = config.width, config.dimensions
        self.image = make_convolutions(width)
        self.image_out = nn.Linear(16 * width, dimensions)
        self.words = nn.Embedding(FIRST_WORD + len(config.vocabulary), 64, padding_idx=PAD)
        self.phrase = nn.Linear(3 * 64, 128)
        self.text_out = nn.Linear(2 * 128, dimensions)
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())  # of the cosines; the temperature is exp(-log_scale)

    def embed_images(self, pixels: Tensor) -> Tensor:
        """Embed bytes (n, side, side, 3) as unit vectors."""
        features = self.image(pixels.permute(0, 3, 1, 2).contiguous().float() / 127.5 - 1)
        pooled = torch.cat([F.adaptive_avg_pool2d(features, 1), F.adaptive_max_pool2d(features, 1)], dim=1).flatten(1)
        return F.normalize(self.image_out(pooled), dim=1)

    def embed_texts(self, word_ids: Tensor) -> Tensor:
        """Embed word ids (n, length) as unit vectors. Padding is ignored, so a text does not depend on its batch."""
        word_ids = F.pad(word_ids, (1, 2), value=PAD)  # never empty, and every word has two neighbours
        is_word = (word_ids[:, 1:-1] != PAD).unsqueeze(2)
        words = self.words(word_ids)
        phrases = F.relu(self.phrase(torch.cat([words[:, :-2], words[:, 1:-1], words[:, 2:]], dim=2))) * is_word
        mean = phrases.sum(dim=1) / is_word.sum(dim=1).clamp(min=1)
        return F.normalize(self.text_out(torch.cat([mean, phrases.amax(dim=1)], dim=1)), dim=1)


class SmallDualEncoder(FolderModel):
    """A trained small dual encoder. Embeddings depend on the batch only by rounding (a test allows 1e-5)."""

    family = "dual"
    net: DualEncoderNet

    def __init__(self, config: SmallDualEncoderConfig, recipe: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.net = DualEncoderNet(config).eval()
        self.recipe = dict(recipe or {})

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Embed images: one unit vector per image."""
        return self.embed_pixels(resize_images(images, self.config.pixels))

    def embed_pixels(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Embed images that are already resized: bytes (n, side, side, 3)."""
        return self._embed_batches(self.net.embed_images, pixels)

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: one unit vector per text, also for an empty one."""
        return self._embed_batches(self.net.embed_texts, number_words(texts, self.config.vocabulary))

    def _embed_batches(self, embed: Callable[[Tensor], Tensor], inputs: NDArray[Any]) -> NDArray[np.float32]:
        self.net.eval()
        with torch.inference_mode():
            parts = [embed(torch.from_numpy(inputs[start : start + BATCH])).numpy() for start in range(0, len(inputs), BATCH)]
        return np.concatenate([np.empty((0, self.config.dimensions), np.float32), *parts])

    @property
    def signature(self) -> str:
        """Name, weights, preprocessing and precision."""
        return f"dual|weights:{self.weights}|pixels:{self.config.pixels}/box|fp32"


def load(folder: Path) -> SmallDualEncoder:
    """Load a folder that `save` wrote."""
    return load_model_folder(
        folder, "dual", "dual encoder", lambda config, recipe: SmallDualEncoder(SmallDualEncoderConfig(**config), recipe)
    )
