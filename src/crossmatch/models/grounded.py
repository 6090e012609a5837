"""A small grounding model: which regions of a picture a text is about. Trained by `crossmatch.train.grounded`.

SCAN's image-text attention (lee2018scan, sec. 3.1) over regions that a small CNN looks at one by one, and words that know their
neighbours. The regions are those that a picture carries, or a fixed grid (see `regions`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.grounding import Grounding
from crossmatch.models.dual import FIRST_WORD, PAD, UNKNOWN, convolutions, numbered
from crossmatch.models.folder import load_folder, save_folder, weights_of
from crossmatch.models.regions import GRID, crops_of, regions_of

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 256  # regions that are embedded at once
IMAGES, TEXTS, WORDS = 16, 64, 4096  # that are compared at once, at most
TINY = 1e-8  # below this a length counts as none
NEVER = -1e4  # the logit of padding, whose exponential is 0
WORD = 48  # numbers of a word's vector before it knows its neighbours
NEIGHBOURS = 2  # words on each side that a word knows


@dataclass(frozen=True)
class GroundedConfig:
    """What must be known to build the network again. `smoothing` is the λ of jiang2019tiger, eq. 2."""

    vocabulary: tuple[str, ...] = field(repr=False)
    pixels: int = 32
    dimensions: int = 128
    width: int = 12
    smoothing: float = 4.0


# -- attention


def attended(regions: Tensor, words: Tensor, said: Tensor, member: Tensor, smoothing: float) -> Tensor:
    """How much each text is grounded in each region: the s_i of jiang2019tiger, eq. 1 to 6, for many images and texts.

        s_i = v_i · a_i / (‖v_i‖ ‖a_i‖),    a_i = Σ_j α_ij w_j,    α_i = softmax_j(λ sim_ij),
        sim_ij = [v_i · w_j]₊ / √Σ_k [v_k · w_j]₊²

    Regions (T or 1, R, D) and words (T, L, D) are unit vectors, `said` (T, L) tells words from padding; the result is (T, R).
    `member` (T or 1, I, R) is 1 where region r is one of image i, else 0: the sum over k is over the regions of the same image.
    A word that no region is like has sim 0 everywhere. A text without words is grounded nowhere: 0.

    No a_i is built where a text has fewer words than a vector has numbers: v_i · a_i = Σ_j α_ij v_i · w_j, and ‖a_i‖² = α_i G α_i
    with G the dot products of the words.
    """
    score = regions @ words.transpose(1, 2)  # eq. 4: (T, R, L)
    positive = F.relu(score)
    gain = smoothing * (member @ positive.square()).clamp(min=TINY**2).rsqrt()  # (T, I, L)
    logits = positive * (member.transpose(1, 2) @ gain) + torch.where(said, 0.0, NEVER).unsqueeze(1)
    weight = logits.softmax(dim=2)  # eq. 2 and 3
    along = (weight * score).sum(dim=2)
    few = words.shape[1] < words.shape[2]
    squared = (weight @ (words @ words.transpose(1, 2)) * weight).sum(dim=2) if few else (weight @ words).square().sum(dim=2)
    return along / squared.clamp(min=TINY**2).sqrt() * said.any(dim=1, keepdim=True)


class GroundedNet(nn.Module):
    """Regions and words in one space; both are unit vectors of `dimensions` numbers.

    region:  four convolutions with batch norm over its crop, their mean and maximum over all places, and its box; a linear map
    word:    a ReLU layer over the word and two neighbours on each side, then a linear map

    Two neighbours tell the "red" of "a red striped cat and a blue cup" from the cup's colour; SCAN has a bidirectional GRU there,
    which takes many times longer on a CPU. Source: lee2018scan, sec. 3.3 and 3.4; kim2014convolutional, sec. 2.
    """

    def __init__(self, config: GroundedConfig) -> None:
        super().__init__()
        width, dimensions = config.width, config.dimensions
        self.image = convolutions(width)
        self.image_out = nn.Linear(16 * width + 4, dimensions)
        self.words = nn.Embedding(FIRST_WORD + len(config.vocabulary), WORD, padding_idx=PAD)
        self.phrase = nn.Linear((2 * NEIGHBOURS + 1) * WORD, 2 * WORD)
        self.text_out = nn.Linear(WORD + 2 * WORD, dimensions)
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())  # of the similarities, while training
        self.smoothing = config.smoothing

    def look(self, crops: Tensor) -> Tensor:
        """What is to be seen in a region, from bytes (n, side, side, 3), wherever it is: (n, features)."""
        seen = self.image(crops.permute(0, 3, 1, 2).contiguous().float() / 127.5 - 1)
        return torch.cat([F.adaptive_avg_pool2d(seen, 1), F.adaptive_max_pool2d(seen, 1)], dim=1).flatten(1)

    def embed_regions(self, features: Tensor, boxes: Tensor) -> Tensor:
        """From what is to be seen and boxes (n, 4) to unit vectors."""
        middle, extent = boxes[:, :2] + boxes[:, 2:] - 1, 4 * (boxes[:, 2:] - boxes[:, :2]) - 1
        return F.normalize(self.image_out(torch.cat([features, middle, extent], dim=1)), dim=1)

    def embed_words(self, numbers: Tensor) -> Tensor:
        """From word numbers (n, length) to a unit vector for each word. What stands beyond the end is no neighbour."""
        at = self.words(F.pad(numbers, (NEIGHBOURS, NEIGHBOURS), value=PAD))
        length = numbers.shape[1]
        around = torch.cat([at[:, n : n + length] for n in range(2 * NEIGHBOURS + 1)], dim=2)
        own = at[:, NEIGHBOURS : NEIGHBOURS + length]
        return F.normalize(self.text_out(torch.cat([own, F.relu(self.phrase(around))], dim=2)), dim=2)

    def similarity(self, regions: Tensor, words: Tensor, said: Tensor, member: Tensor) -> Tensor:
        """S(I, T), the mean of s_i over the regions of an image, shape (images, texts). Source: lee2018scan, sec. 3.1, Average.

        Regions (R, D) of all images, words (T, L, D), which of them are real (T, L), and which region is whose (I, R).
        """
        grounded = attended(regions.unsqueeze(0), words, said, member.unsqueeze(0), self.smoothing)
        return (member @ grounded.T) / member.sum(dim=1, keepdim=True)


# -- the model


@dataclass(frozen=True, eq=False)
class Seen:
    """The regions of some pictures as vectors, one after the other; those of picture n begin at `begin[n]`."""

    vectors: Tensor  # (regions, D)
    boxes: FloatArray  # (regions, 4)
    begin: IntArray  # (pictures + 1,)

    def __len__(self) -> int:
        return len(self.begin) - 1


def places_of(pictures: IntArray, begin: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Where the regions of these pictures are, shape (pictures, most regions of one), and which of these places are real.

    >>> at, real = places_of(np.array([1, 0]), np.array([0, 1, 3]))
    >>> at.tolist(), real.tolist()
    ([[1, 2], [0, 0]], [[True, True], [True, False]])
    """
    count = np.diff(begin)[pictures]
    step = np.arange(count.max(initial=1))
    real = step < count[:, None]
    return np.where(real, begin[pictures, None] + step, 0), real


def members_of(real: NDArray[np.bool_]) -> Tensor:
    """Which region, of those that are real and in their order, is which picture's: (pictures, regions), 1 or 0.

    >>> members_of(np.array([[True, True], [True, False]]))
    tensor([[1., 1., 0.], [0., 0., 1.]])
    """
    owner = np.nonzero(real)[0]
    return torch.from_numpy((owner == np.arange(len(real))[:, None]).astype(np.float32))


class Grounded:
    """A trained grounding model. A score depends on what else is in the batch by rounding alone (a test holds 1e-5).

    Words that the training never showed are known as such, and all alike: they share one vector, which stood for a few words at
    random in training. `unknown` counts them. `recipe` is what made the model (kept in model.json).
    """

    def __init__(self, config: GroundedConfig, recipe: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.net = GroundedNet(config).eval()
        self.recipe = dict(recipe or {})

    def ground(self, images: Sequence[Image], texts: Sequence[str]) -> Grounding:
        """The s_i of text n in the regions of image n, with the regions. A text without words has 0 everywhere."""
        if len(images) != len(texts):
            raise CrossmatchError(f"{len(images):,} images and {len(texts):,} texts are no pairs. Give image n with text n.")
        picture, seen = self._see(images)
        most = int(np.diff(seen.begin).max(initial=1))
        scores, boxes = np.full((len(texts), most), np.nan), np.full((len(texts), most, 4), np.nan)
        numbers, lengths = self._read(texts)
        self.net.eval()
        with torch.inference_mode():
            for part in _alike(lengths):
                at, real = places_of(picture[part], seen.begin)
                words, said = self._words(numbers[part, : max(1, lengths[part].max())])
                member = torch.from_numpy(real[:, None].astype(np.float32))
                found = attended(seen.vectors[torch.from_numpy(at)], words, said, member, self.config.smoothing).numpy()
                row, column = np.nonzero(real)
                scores[part[row], column] = found[row, column]
                boxes[part[row], column] = seen.boxes[at[row, column]]
        return Grounding(scores, boxes)

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """The similarity of image n and text n: the mean of s_i over its regions (lee2018scan, sec. 3.1, image-text, Average)."""
        found = self.ground(images, texts)
        return np.asarray(np.nansum(found.scores, axis=1) / found.regions, dtype=np.float64)

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float32]:
        """The similarity of every image with every text: (images, texts)."""
        picture, seen = self._see(images)
        return self.compared(seen, texts)[picture]

    def compared(self, seen: Seen, texts: Sequence[str]) -> NDArray[np.float32]:
        """The same for pictures that were seen already, in blocks of texts that are alike in length.

        Each text once: in two blocks the same text could differ in its last bits, and a tie would be broken by rounding.
        """
        different = {text: n for n, text in enumerate(dict.fromkeys(texts))}
        numbers, lengths = self._read(list(different))
        out = np.zeros((len(seen), len(different)), np.float32)
        self.net.eval()
        with torch.inference_mode():
            for part in _alike(lengths):
                words, said = self._words(numbers[part, : max(1, lengths[part].max())])
                for start in range(0, len(seen), IMAGES):
                    few = np.arange(start, min(start + IMAGES, len(seen)))
                    at, real = places_of(few, seen.begin)
                    regions = seen.vectors[torch.from_numpy(at[real])]
                    out[start : start + IMAGES, part] = self.net.similarity(regions, words, said, members_of(real)).numpy()
        return out[:, [different[text] for text in texts]]

    def unknown(self, texts: Sequence[str]) -> IntArray:
        """How many words of each text the model does not know."""
        return np.asarray((numbered(texts, self.config.vocabulary) == UNKNOWN).sum(axis=1), dtype=np.int64)

    def _read(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], IntArray]:
        numbers = numbered(texts, self.config.vocabulary)
        return np.pad(numbers, ((0, 0), (0, 1)), constant_values=PAD), np.asarray((numbers != PAD).sum(axis=1), dtype=np.int64)

    def _words(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        given = torch.from_numpy(numbers)
        return self.net.embed_words(given), given >= FIRST_WORD  # an unknown word is grounded nowhere

    def _see(self, images: Sequence[Image]) -> tuple[IntArray, Seen]:
        """The different pictures, seen once each, and which of them each image is. Equal regions with equal content are one."""
        objects: dict[int, int] = {}
        known: dict[bytes, int] = {}
        crops, boxes = [], []
        for image in images:
            if id(image) not in objects:
                where = regions_of(image)
                what = crops_of(image, where, self.config.pixels)
                key = hashlib.sha256(where.tobytes() + what.tobytes()).digest()
                if key not in known:
                    known[key] = len(known)
                    crops.append(what)
                    boxes.append(where)
                objects[id(image)] = known[key]
        member = np.asarray([objects[id(image)] for image in images], dtype=np.int64)
        begin = np.concatenate([[0], np.cumsum([len(where) for where in boxes], dtype=np.int64)]).astype(np.int64)
        side = self.config.pixels
        every = np.concatenate([np.empty((0, side, side, 3), np.uint8), *crops])
        return member, self.see(every, np.concatenate([np.empty((0, 4)), *boxes]), begin)

    def see(self, crops: NDArray[np.uint8], boxes: FloatArray, begin: IntArray) -> Seen:
        """Pictures as the vectors of their regions, from crops (n, side, side, 3), boxes (n, 4) and where each picture begins."""
        self.net.eval()
        with torch.inference_mode():
            given, where = torch.from_numpy(crops), torch.from_numpy(boxes).float()
            cuts = [slice(at, at + BATCH) for at in range(0, len(given), BATCH)]
            parts = [self.net.embed_regions(self.net.look(given[cut]), where[cut]) for cut in cuts]
            return Seen(torch.cat([torch.empty(0, self.config.dimensions), *parts]), boxes, begin)

    @property
    def weights(self) -> str:
        """Twelve hexadecimal digits of the weights."""
        return weights_of(self.net)

    @property
    def signature(self) -> str:
        """The system line: name, weights, preprocessing, attention, precision."""
        seen = f"regions:own or grid{len(GRID)}|pixels:{self.config.pixels}/bilinear"
        return f"grounded|weights:{self.weights}|{seen}|scan:i2t/average/{self.config.smoothing:g}|fp32"

    def save(self, folder: Path) -> None:
        """Write the model as a folder."""
        save_folder(self, "grounded", folder)

    @classmethod
    def load(cls, folder: Path) -> Grounded:
        """Read a folder that `save` wrote."""
        return load_folder(
            folder, "grounded", "grounding model", lambda config, recipe: cls(GroundedConfig(**config), recipe=recipe)
        )


def load(folder: Path) -> Grounded:
    """The trained model in this folder."""
    return Grounded.load(folder)


def _alike(lengths: IntArray) -> Iterator[IntArray]:
    """The places of all texts, some at a time, those of like length together: little padding, and never too many words."""
    order, at = np.argsort(lengths, kind="stable"), 0
    while at < len(order):
        longest = int(lengths[order[at : at + TEXTS]].max())
        step = max(1, min(TEXTS, WORDS // max(1, longest)))
        yield order[at : at + step]
        at += step
