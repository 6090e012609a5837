"""Regions of an image as feature vectors: which boxes are used, and the encoders that look at them.

The published systems use the 36 regions of a detector that was trained to name objects and attributes (anderson2018bottomup,
sec. 3.1). Here boxes come with the image or from a grid, and one of two frozen encoders looks at the crops:

    namer                  a small CNN, trained to name the objects of the embedded world: 256 numbers
    efficientnet-lite0     four stages of a network trained on ImageNet: 512 numbers

Four numbers for the box are added. `PixelGrid` is a third, trainable kind: the positions of a convolutional feature map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import UsageError
from crossmatch.models.adapters.efficientnet import load_network, map_batches, normalise_pixels, pool_stages, split_by_pixels
from crossmatch.models.baselines.small_dual_encoder import make_convolutions
from crossmatch.models.files.model_folder import hash_weights
from crossmatch.models.regions.crops import GRID, crop_regions, get_regions
from crossmatch.models.zoo.network_inputs import Regions

if TYPE_CHECKING:
    from PIL.Image import Image

# -- which regions

MAX_REGIONS = 36  # regions of an image, as in the papers
STRAY_BOXES = 2  # boxes of the background, besides the whole image
JITTER = 0.08  # largest move of each side of a box, as a share of the box's width or height
WHOLE_IMAGE = np.array([[0.0, 0.0, 1.0, 1.0]])
WHOLE_IMAGE.flags.writeable = False


def select_regions(image: Image) -> FloatArray:
    """Choose the regions of an image, shape (K, 4) with K ≤ `MAX_REGIONS`: left, top, right, bottom in fractions of the image.

    An image with boxes (`info["regions"]`, see `crossmatch.models.regions.crops`) has the boxes of its objects, the largest
    first, then the whole image and `STRAY_BOXES` boxes of the background. Object boxes are jittered, because a detector's boxes
    are never exact. An image without boxes has the whole image, its quarters and its ninths. The result depends on the boxes
    only, so an image always has the same regions.

    >>> from PIL import Image
    >>> photo = Image.new("RGB", (40, 30))
    >>> select_regions(photo).shape
    (14, 4)
    >>> photo.info["regions"] = [(0, 0, 1, 1), (0.5, 0.5, 0.6, 0.6), (0.1, 0.2, 0.5, 0.8)]
    >>> select_regions(photo).round(2)
    array([[0.1 , 0.2 , 0.52, 0.82],
           [0.5 , 0.51, 0.6 , 0.61],
           [0.  , 0.  , 1.  , 1.  ],
           [0.1 , 0.19, 0.52, 0.62],
           [0.55, 0.46, 0.94, 0.89]])
    """
    if "regions" not in image.info:
        return GRID
    boxes = get_regions(image)
    objects = boxes[(boxes != WHOLE_IMAGE).any(axis=1)]
    area = (objects[:, 2:] - objects[:, :2]).prod(axis=1)
    largest = np.argsort(-area, kind="stable")[: MAX_REGIONS - 1 - STRAY_BOXES]
    return np.concatenate([jitter_boxes(objects[largest]), WHOLE_IMAGE, stray_boxes(boxes)])


def jitter_boxes(boxes: FloatArray, most: float = JITTER) -> FloatArray:
    """Move each side by at most `most` of the box's width or height, within the image; equal boxes move equally.

    >>> jitter_boxes(np.array([[0.25, 0.25, 0.75, 0.75]])).round(3)
    array([[0.227, 0.263, 0.76 , 0.725]])
    """
    if not len(boxes):
        return np.empty((0, 4))
    extent = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    moved = boxes + extent * most * (2 * np.array([_hash_fractions(box) for box in boxes]) - 1)
    return np.asarray(np.clip(moved, 0.0, 1.0))


def stray_boxes(boxes: FloatArray, number: int = STRAY_BOXES) -> FloatArray:
    """Pseudo-random boxes with 0.35 to 0.65 of the image's sides, like a detector's boxes of the background."""
    fractions = np.array([_hash_fractions(boxes, which) for which in range(number)]).reshape(number, 4)
    extent = 0.35 + 0.3 * fractions[:, 2:]
    corner = fractions[:, :2] * (1 - extent)
    return np.concatenate([corner, corner + extent], axis=1)


def _hash_fractions(values: FloatArray, which: int = 0) -> FloatArray:
    """Four pseudo-random numbers in [0, 1] that depend on the values only."""
    content = np.ascontiguousarray(values, dtype="<f8").tobytes() + which.to_bytes(2, "little")
    return np.frombuffer(blake2b(content, digest_size=16).digest(), "<u4") / np.float64(2**32 - 1)


# -- frozen encoders of crops

BOX_FEATURES = 4  # numbers for the position and size of a region
CROP_BATCH = 256  # crops that the classifier encodes at once


@dataclass(frozen=True)
class ExtractorSettings:
    """The table `[features]` of a recipe and of model.json: which encoder looks at regions, and how."""

    name: Literal["namer", "efficientnet-lite0"] = "namer"
    side: int = field(default=0, metadata={"least": 0, "most": 1024})  # pixels of a crop; 0: the encoder's default
    lessons: int = field(default=6_000, metadata={"least": 1, "most": 1_000_000})  # training images of the namer


def make_extractor(settings: ExtractorSettings, weights: Mapping[str, Tensor] | None = None) -> CropExtractor:
    """Make the extractor of these settings. `weights` are those of its `net`, if it has one; random by default.

    >>> from PIL import Image
    >>> extractor = make_extractor(ExtractorSettings("namer"))
    >>> extractor.regions([Image.new("RGB", (40, 30))]).features.shape, extractor.dimensions
    (torch.Size([1, 14, 260]), 260)
    """
    if settings.name not in ENCODERS:
        raise UsageError(f"[features] has name = {settings.name!r}; expected one of: {', '.join(ENCODERS)}.")
    extractor = ENCODERS[settings.name](settings)
    if weights is not None and extractor.net is not None:
        extractor.net.load_state_dict(weights)
    return extractor


@dataclass(frozen=True, eq=False)
class CropExtractor:
    """Extracts region features: `encode_crops` maps crops (n, side, side, 3), as bytes, to features (n, F)."""

    settings: ExtractorSettings
    side: int
    features: int  # F
    encode_crops: Callable[[NDArray[np.uint8]], Tensor]
    net: nn.Module | None  # weights that the model folder must contain; None if a package carries them
    encoder: nn.Module  # all weights

    @property
    def dimensions(self) -> int:
        return self.features + BOX_FEATURES

    @property
    def signature(self) -> str:
        """Everything that the features depend on. The weights of `net` may be loaded later, so they are hashed at each call."""
        weights = hash_weights(self.encoder) if self.net is not None else self._fixed_weights
        boxes = f"regions:{MAX_REGIONS}/jitter{JITTER:g}/strays{STRAY_BOXES}"
        return f"{boxes}|{self.settings.name}|weights:{weights}|pixels:{self.side}/bilinear"

    @cached_property
    def _fixed_weights(self) -> str:
        return hash_weights(self.encoder)

    def extract(self, images: Sequence[Image]) -> tuple[Tensor, Tensor, IntArray]:
        """Features (R, D) and boxes (R, 4) of all regions, image after image, and the start of each image (N + 1,)."""
        boxes = [select_regions(image) for image in images]
        crops = [crop_regions(image, image_boxes, self.side) for image, image_boxes in zip(images, boxes, strict=True)]
        all_boxes = np.concatenate([np.empty((0, 4)), *boxes])
        begin = np.concatenate([[0], np.cumsum([len(image_boxes) for image_boxes in boxes], dtype=np.int64)]).astype(np.int64)
        features = self.encode_crops(np.concatenate([np.empty((0, self.side, self.side, 3), np.uint8), *crops]))
        return torch.cat([features, box_features(all_boxes)], dim=1), torch.from_numpy(all_boxes).float(), begin

    def regions(self, images: Sequence[Image]) -> Regions:
        """Regions of each image. Batching changes them by rounding only."""
        return pad_regions(*self.extract(images))


def box_features(boxes: FloatArray) -> Tensor:
    """Four numbers around 0 for each box (n, 4): the centre, and width and height.

    >>> box_features(np.array([[0.0, 0.5, 0.5, 1.0]]))
    tensor([[-0.5000,  0.5000,  1.0000,  1.0000]])
    """
    centre, extent = boxes[:, :2] + boxes[:, 2:] - 1, 4 * (boxes[:, 2:] - boxes[:, :2]) - 1
    return torch.from_numpy(np.concatenate([centre, extent], axis=1)).float()


def pad_regions(features: Tensor, boxes: Tensor, begin: IntArray) -> Regions:
    """Turn concatenated regions (R, …) into a padded block (N, K, …).

    >>> pad_regions(torch.ones(3, 1), torch.ones(3, 4), np.array([0, 1, 3])).features.squeeze(2)
    tensor([[1., 0.], [1., 1.]])
    """
    count = torch.from_numpy(np.diff(begin))
    most = int(count.max()) if len(count) else 1
    mask = torch.arange(most) < count.unsqueeze(1)
    blocks = [values.new_zeros(len(count), most, values.shape[1]) for values in (features, boxes)]
    for block, values in zip(blocks, (features, boxes), strict=True):
        block[mask] = values
    return Regions(blocks[0], mask, blocks[1])


class RegionClassifier(nn.Module):
    """The encoder "namer": four convolutions with batch norm, then the mean and maximum over all positions, standardised.

    `crossmatch.train.region_classifier` trains it to name the kind, colour and texture of objects, and the setting of images.
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.features = 16 * width
        self.convolutions = make_convolutions(width).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.standard = nn.BatchNorm1d(self.features, affine=False)

    def forward(self, crops: Tensor) -> Tensor:
        """From bytes (n, side, side, 3) to features (n, F)."""
        maps = self.convolutions(crops.permute(0, 3, 1, 2).float() / 127.5 - 1)
        return self.standard(torch.cat([maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))], dim=1))  # type: ignore[no-any-return]


def _make_namer(settings: ExtractorSettings) -> CropExtractor:
    side = _crop_side(settings, 32, 8)
    net = RegionClassifier().eval().requires_grad_(False)

    def encode_crops(crops: NDArray[np.uint8]) -> Tensor:
        net.eval()
        batches = [crops[at : at + CROP_BATCH] for at in range(0, len(crops), CROP_BATCH)]
        return torch.cat([torch.empty(0, net.features), *map_batches(lambda batch: net(torch.from_numpy(batch)), batches)])

    return CropExtractor(settings, side, net.features, encode_crops, net, net)


EFFICIENTNET_BLOCKS = (2, 4, 7, 10)  # the last blocks of the stages with 24, 40, 80 and 112 channels
PIXELS = 8 * 64 * 64  # at once: small enough that memory is reused immediately


def _make_efficientnet(settings: ExtractorSettings) -> CropExtractor:
    """Mean and maximum of four stages, each layer-normalised over its own channels (ba2016layer).

    Early stages still distinguish colours and textures; the last layer, trained for object classes, partly loses them.
    """
    side = _crop_side(settings, 64, 32)
    if side % 32:
        raise UsageError(f"[features] has side = {side}; efficientnet-lite0 needs a multiple of 32, such as 64.")
    net = load_network("lite0", side)
    channels = [int(net._blocks[number]._bn2.num_features) for number in EFFICIENTNET_BLOCKS]
    width = 2 * sum(channels)

    def encode_batch(batch: NDArray[np.uint8]) -> Tensor:
        stages = pool_stages(net, normalise_pixels(batch), EFFICIENTNET_BLOCKS)
        return torch.cat([F.layer_norm(pooled, pooled.shape[1:]) for pooled in stages], dim=1)

    def encode_crops(crops: NDArray[np.uint8]) -> Tensor:
        return torch.cat([torch.empty(0, width), *map_batches(encode_batch, split_by_pixels(crops, PIXELS))])

    return CropExtractor(settings, side, width, encode_crops, None, net)


def _crop_side(settings: ExtractorSettings, default: int, least: int) -> int:
    side = settings.side or default
    if side < least:
        raise UsageError(f"[features] has side = {side}; {settings.name} needs at least {least} pixels.")
    return side


ENCODERS: Mapping[str, Callable[[ExtractorSettings], CropExtractor]] = {
    "namer": _make_namer,
    "efficientnet-lite0": _make_efficientnet,
}


# -- regions from a trainable feature map

STRIDE = 8  # pixels between two positions of the feature map


class PixelGrid(nn.Module):
    """Four convolutions with batch norm; each position of the last map is a region, with four more numbers for its box.

    Spatial features of a CNN are one of the two kinds of regions in hu2019bison, app. E. There the CNN is pretrained on ImageNet;
    here it is trained with the model.
    """

    def __init__(self, side: int = 64, width: int = 12) -> None:
        super().__init__()
        self.side = side
        self.layers = make_convolutions(width)
        across = -(-side // STRIDE)
        corner = torch.arange(across) / across
        left, top = (axis.flatten() for axis in torch.meshgrid(corner, corner, indexing="xy"))
        self.boxes: Tensor
        self.register_buffer("boxes", torch.stack([left, top, left + 1 / across, top + 1 / across], dim=1), persistent=False)
        self.dimensions = 8 * width + 4

    def forward(self, pixels: Tensor) -> Regions:
        """From bytes (N, side, side, 3) to side²/64 regions each."""
        maps = self.layers(pixels.permute(0, 3, 1, 2).contiguous().float() / 127.5 - 1).flatten(2).transpose(1, 2)
        boxes = self.boxes.expand(len(pixels), -1, -1)
        features = torch.cat([maps, 2 * boxes - 1], dim=2)
        return Regions(features, torch.ones(features.shape[:2], dtype=torch.bool), boxes)
