"""A small grounding model: which regions of an image a text refers to. Trained by `crossmatch.train.small_grounder`.

SCAN's image-text attention (lee2018scan, sec. 3.1) between regions, embedded one by one by a small CNN, and words, embedded with
their neighbours. The regions are those that an image carries, or a fixed grid (`regions.crops`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.data.grounding import Grounding
from crossmatch.models.baselines.small_dual_encoder import FIRST_WORD, PAD, make_convolutions, number_words
from crossmatch.models.files.model_folder import FolderModel, load_model_folder
from crossmatch.models.regions.crops import GRID, crop_regions, get_regions

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 256  # regions embedded at a time
IMAGES, TEXTS, WORDS = 16, 64, 4096  # compared at a time, at most
EPSILON = 1e-8  # shorter vectors count as zero
PADDING_LOGIT = -1e4  # its exponential is 0
WORD_SIZE = 48  # numbers of a word's vector without its neighbours
NEIGHBOURS = 2  # words on each side that are part of a word's embedding


@dataclass(frozen=True)
class SmallGrounderConfig:
    """The configuration in model.json. `smoothing` is the λ of jiang2019tiger, eq. 2."""

    vocabulary: tuple[str, ...] = field(repr=False)
    pixels: int = 32
    dimensions: int = 128
    width: int = 12
    smoothing: float = 4.0


# -- attention


def ground_words(regions: Tensor, words: Tensor, is_word: Tensor, member: Tensor, smoothing: float) -> Tensor:
    """Return how much each text is grounded in each region: s_i of jiang2019tiger, eq. 1 to 6, for many images and texts.

        s_i = v_i · a_i / (‖v_i‖ ‖a_i‖),    a_i = Σ_j α_ij w_j,    α_i = softmax_j(λ sim_ij),
        sim_ij = [v_i · w_j]₊ / √Σ_k [v_k · w_j]₊²

    The sum over k covers the regions of the same image. A word that no region resembles has sim 0 everywhere. A text without
    words has s_i = 0 everywhere. If a text has fewer words than a vector has numbers, a_i is not computed: v_i · a_i = Σ_j α_ij
    v_i · w_j, and ‖a_i‖² = α_i G α_i with G the dot products of the words.

    Args:
        regions: Unit vectors (T or 1, R, D).
        words: Unit vectors (T, L, D).
        is_word: Which of them are words and not padding, (T, L).
        member: 1 where region r belongs to image i, else 0, (T or 1, I, R).
        smoothing: λ.

    Returns:
        s_i, (T, R).
    """
    score = regions @ words.transpose(1, 2)  # eq. 4: (T, R, L)
    positive = F.relu(score)
    gain = smoothing * (member @ positive.square()).clamp(min=EPSILON**2).rsqrt()  # (T, I, L)
    logits = positive * (member.transpose(1, 2) @ gain) + torch.where(is_word, 0.0, PADDING_LOGIT).unsqueeze(1)
    weight = logits.softmax(dim=2)  # eq. 2 and 3
    product = (weight * score).sum(dim=2)  # v_i · a_i
    if words.shape[1] < words.shape[2]:
        squared = (weight @ (words @ words.transpose(1, 2)) * weight).sum(dim=2)  # ‖a_i‖²
    else:
        squared = (weight @ words).square().sum(dim=2)
    return product / squared.clamp(min=EPSILON**2).sqrt() * is_word.any(dim=1, keepdim=True)


class GrounderNet(nn.Module):
    """Embeds regions and words as unit vectors of `dimensions` numbers in one space.

    region:  four convolutions with batch norm over its crop, mean and maximum over all positions, its box; a linear layer
    word:    a ReLU layer over the word and two neighbours on each side, then a linear layer

    Two neighbours distinguish the "red" in "a red striped cat and a blue cup" from the cup's colour. SCAN uses a bidirectional GRU
    instead, which is much slower on a CPU. Source: lee2018scan, sec. 3.3 and 3.4; kim2014convolutional, sec. 2.
    """

    def __init__(self, config: SmallGrounderConfig) -> None:
        super().__init__()
        width, dimensions = config.width, config.dimensions
        self.image = make_convolutions(width)
        self.image_out = nn.Linear(16 * width + 4, dimensions)
        self.words = nn.Embedding(FIRST_WORD + len(config.vocabulary), WORD_SIZE, padding_idx=PAD)
        self.phrase = nn.Linear((2 * NEIGHBOURS + 1) * WORD_SIZE, 2 * WORD_SIZE)
        self.text_out = nn.Linear(WORD_SIZE + 2 * WORD_SIZE, dimensions)
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())  # of the similarities, while training
        self.smoothing = config.smoothing

    def look(self, crops: Tensor) -> Tensor:
        """Return the features (n, F) of crops, bytes (n, side, side, 3), without their positions."""
        maps = self.image(crops.permute(0, 3, 1, 2).contiguous().float() / 127.5 - 1)
        return torch.cat([F.adaptive_avg_pool2d(maps, 1), F.adaptive_max_pool2d(maps, 1)], dim=1).flatten(1)

    def embed_regions(self, features: Tensor, boxes: Tensor) -> Tensor:
        """Embed features and boxes (n, 4) as unit vectors."""
        middle, extent = boxes[:, :2] + boxes[:, 2:] - 1, 4 * (boxes[:, 2:] - boxes[:, :2]) - 1
        return F.normalize(self.image_out(torch.cat([features, middle, extent], dim=1)), dim=1)

    def embed_words(self, word_ids: Tensor) -> Tensor:
        """Embed word ids (n, length) as a unit vector for each word; padding is not a neighbour."""
        vectors = self.words(F.pad(word_ids, (NEIGHBOURS, NEIGHBOURS), value=PAD))
        length = word_ids.shape[1]
        phrases = torch.cat([vectors[:, n : n + length] for n in range(2 * NEIGHBOURS + 1)], dim=2)
        words = vectors[:, NEIGHBOURS : NEIGHBOURS + length]
        return F.normalize(self.text_out(torch.cat([words, F.relu(self.phrase(phrases))], dim=2)), dim=2)

    def similarity(self, regions: Tensor, words: Tensor, is_word: Tensor, member: Tensor) -> Tensor:
        """Return S(I, T), the mean of s_i over the regions of an image: (images, texts). Source: lee2018scan, sec. 3.1, Average.

        Regions are (R, D) for all images, words (T, L, D), `is_word` is (T, L), and `member` (I, R).
        """
        grounded = ground_words(regions.unsqueeze(0), words, is_word, member.unsqueeze(0), self.smoothing)
        return (member @ grounded.T) / member.sum(dim=1, keepdim=True)


# -- the model


@dataclass(frozen=True, eq=False)
class RegionVectors:
    """The regions of some images as vectors, one image after another; those of image n begin at `begin[n]`."""

    vectors: Tensor  # (regions, D)
    boxes: FloatArray  # (regions, 4)
    begin: IntArray  # (images + 1,)

    def __len__(self) -> int:
        return len(self.begin) - 1


def locate_regions(images: IntArray, begin: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the rows of the regions of these images, (images, most regions), and which of them are not padding.

    >>> rows, is_region = locate_regions(np.array([1, 0]), np.array([0, 1, 3]))
    >>> rows.tolist(), is_region.tolist()
    ([[1, 2], [0, 0]], [[True, True], [True, False]])
    """
    count = np.diff(begin)[images]
    step = np.arange(count.max(initial=1))
    is_region = step < count[:, None]
    return np.where(is_region, begin[images, None] + step, 0), is_region


def make_membership(is_region: NDArray[np.bool_]) -> Tensor:
    """Return which region, without padding, belongs to which image: (images, regions), 1 or 0.

    >>> make_membership(np.array([[True, True], [True, False]]))
    tensor([[1., 1., 0.], [0., 0., 1.]])
    """
    owner = np.nonzero(is_region)[0]
    return torch.from_numpy((owner == np.arange(len(is_region))[:, None]).astype(np.float32))


class SmallGrounder(FolderModel):
    """A trained grounding model. A score depends on its batch only by rounding (a test allows 1e-5).

    Words that are not in the vocabulary share one vector, which replaced some words at random in training.
    """

    family = "grounded"
    net: GrounderNet

    def __init__(self, config: SmallGrounderConfig, recipe: Mapping[str, Any] | None = None) -> None:
        self.config = config
        self.net = GrounderNet(config).eval()
        self.recipe = dict(recipe or {})

    def ground(self, images: Sequence[Image], texts: Sequence[str]) -> Grounding:
        """Return s_i of text n in the regions of image n, with the regions. A text without words has 0 everywhere."""
        if len(images) != len(texts):
            raise CrossmatchError(f"ground(images, texts) needs as many images as texts (got {len(images):,} and {len(texts):,}).")
        image_index, regions = self._embed_images(images)
        max_regions = int(np.diff(regions.begin).max(initial=1))
        scores, boxes = np.full((len(texts), max_regions), np.nan), np.full((len(texts), max_regions, 4), np.nan)
        word_ids, lengths = self._number_words(texts)
        self.net.eval()
        with torch.inference_mode():
            for part in _group_by_length(lengths):
                rows, is_region = locate_regions(image_index[part], regions.begin)
                words, is_word = self._embed_words(word_ids[part, : max(1, lengths[part].max())])
                member = torch.from_numpy(is_region[:, None].astype(np.float32))
                grounded = ground_words(
                    regions.vectors[torch.from_numpy(rows)], words, is_word, member, self.config.smoothing
                ).numpy()
                row, column = np.nonzero(is_region)
                scores[part[row], column] = grounded[row, column]
                boxes[part[row], column] = regions.boxes[rows[row, column]]
        return Grounding(scores, boxes)

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Score image n with text n: the mean of s_i over its regions (lee2018scan, sec. 3.1, image-text, Average)."""
        grounding = self.ground(images, texts)
        return np.asarray(np.nansum(grounding.scores, axis=1) / grounding.regions, dtype=np.float64)

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float32]:
        """Score every image with every text: (images, texts)."""
        image_index, regions = self._embed_images(images)
        return self.score_regions(regions, texts)[image_index]

    def score_regions(self, images: RegionVectors, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score images whose regions are embedded with every text, in blocks of texts of similar length.

        Each distinct text is embedded once: in two blocks its scores could differ in the last bits, and rounding would break a tie.
        """
        position = {text: n for n, text in enumerate(dict.fromkeys(texts))}
        word_ids, lengths = self._number_words(list(position))
        out = np.zeros((len(images), len(position)), np.float32)
        self.net.eval()
        with torch.inference_mode():
            for part in _group_by_length(lengths):
                words, is_word = self._embed_words(word_ids[part, : max(1, lengths[part].max())])
                for start in range(0, len(images), IMAGES):
                    batch = np.arange(start, min(start + IMAGES, len(images)))
                    rows, is_region = locate_regions(batch, images.begin)
                    regions = images.vectors[torch.from_numpy(rows[is_region])]
                    out[start : start + IMAGES, part] = self.net.similarity(
                        regions, words, is_word, make_membership(is_region)
                    ).numpy()
        return out[:, [position[text] for text in texts]]

    def _number_words(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], IntArray]:
        word_ids = number_words(texts, self.config.vocabulary)
        return np.pad(word_ids, ((0, 0), (0, 1)), constant_values=PAD), np.asarray((word_ids != PAD).sum(axis=1), dtype=np.int64)

    def _embed_words(self, word_ids: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        tensor = torch.from_numpy(word_ids)
        return self.net.embed_words(tensor), tensor >= FIRST_WORD  # an unknown word is not grounded

    def _embed_images(self, images: Sequence[Image]) -> tuple[IntArray, RegionVectors]:
        """Embed the distinct images once, and return which of them each image is. Images with equal regions and crops are equal."""
        position_of_object: dict[int, int] = {}
        position_of_content: dict[bytes, int] = {}
        crops, boxes = [], []
        for image in images:
            if id(image) not in position_of_object:
                image_boxes = get_regions(image)
                image_crops = crop_regions(image, image_boxes, self.config.pixels)
                key = hashlib.sha256(image_boxes.tobytes() + image_crops.tobytes()).digest()
                if key not in position_of_content:
                    position_of_content[key] = len(position_of_content)
                    crops.append(image_crops)
                    boxes.append(image_boxes)
                position_of_object[id(image)] = position_of_content[key]
        member = np.asarray([position_of_object[id(image)] for image in images], dtype=np.int64)
        begin = np.concatenate([[0], np.cumsum([len(image_boxes) for image_boxes in boxes], dtype=np.int64)]).astype(np.int64)
        side = self.config.pixels
        all_crops = np.concatenate([np.empty((0, side, side, 3), np.uint8), *crops])
        return member, self.embed_regions(all_crops, np.concatenate([np.empty((0, 4)), *boxes]), begin)

    def embed_regions(self, crops: NDArray[np.uint8], boxes: FloatArray, begin: IntArray) -> RegionVectors:
        """Embed the regions of images, from crops (n, side, side, 3), boxes (n, 4) and the first region of each image."""
        self.net.eval()
        with torch.inference_mode():
            crop_tensor, box_tensor = torch.from_numpy(crops), torch.from_numpy(boxes).float()
            cuts = [slice(start, start + BATCH) for start in range(0, len(crop_tensor), BATCH)]
            parts = [self.net.embed_regions(self.net.look(crop_tensor[cut]), box_tensor[cut]) for cut in cuts]
            return RegionVectors(torch.cat([torch.empty(0, self.config.dimensions), *parts]), boxes, begin)

    @property
    def signature(self) -> str:
        """Name, weights, preprocessing, attention and precision."""
        inputs = f"regions:own or grid{len(GRID)}|pixels:{self.config.pixels}/bilinear"
        return f"grounded|weights:{self.weights}|{inputs}|scan:i2t/average/{self.config.smoothing:g}|fp32"


def load(folder: Path) -> SmallGrounder:
    """Load a folder that `save` wrote."""
    return load_model_folder(
        folder, "grounded", "grounding model", lambda config, recipe: SmallGrounder(SmallGrounderConfig(**config), recipe)
    )


def _group_by_length(lengths: IntArray) -> Iterator[IntArray]:
    """Yield the positions of all texts in groups of similar length: little padding, and a bounded number of words."""
    order, start = np.argsort(lengths, kind="stable"), 0
    while start < len(order):
        longest = int(lengths[order[start : start + TEXTS]].max())
        step = max(1, min(TEXTS, WORDS // max(1, longest)))
        yield order[start : start + step]
        start += step
