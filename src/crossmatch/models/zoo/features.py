"""What a region looks like, as numbers: a frozen image encoder over the crops of a picture, and where the crop is.

The published systems take the features of a detector that was trained to name what is in a box and how it looks
(anderson2018bottomup, sec. 3.1). Here are two encoders in its place, of very different origin:

    namer                  a small CNN that was trained to name the things of the embedded world: 256 numbers
    efficientnet-lite0     stages of a network that was trained on ImageNet's photos: 512 numbers

To these come four numbers for the box. Neither encoder is trained any further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import MissingDependency, WrongWords
from crossmatch.models.dual import convolutions
from crossmatch.models.efficientnet import each, given, in_batches, network, stages
from crossmatch.models.folder import weights_of
from crossmatch.models.regions import crops_of
from crossmatch.models.zoo.boxes import INACCURACY, MOST, STRAYS, looked_at
from crossmatch.models.zoo.inputs import Regions

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

PLACE = 4  # numbers for where a region is
CROPS = 256  # that go through a namer at once


@dataclass(frozen=True)
class Extractor:
    """Which encoder looks at regions, and how: what a recipe says, and what the folder of a model keeps as json."""

    name: Literal["namer", "efficientnet-lite0"] = "namer"
    side: int = field(default=0, metadata={"least": 0, "most": 1024})  # pixels of a crop; 0: what suits the encoder
    lessons: int = field(default=6_000, metadata={"least": 1, "most": 1_000_000})  # pictures that a namer learns from


class RegionExtractor(Protocol):
    """What turns pictures into regions. `net` are weights that a model's folder must keep; none where a package carries them."""

    @property
    def dimensions(self) -> int: ...

    @property
    def signature(self) -> str: ...

    @property
    def net(self) -> nn.Module | None: ...

    def regions(self, images: Sequence[Image]) -> Regions: ...


def extractor(settings: Extractor, weights: Mapping[str, Tensor] | None = None) -> Encoded:
    """The encoder of these settings. `weights` are those of its `net`, if it has one; else they are random.

    >>> from PIL import Image
    >>> looking = extractor(Extractor("namer"))
    >>> looking.regions([Image.new("RGB", (40, 30))]).features.shape, looking.dimensions
    (torch.Size([1, 14, 260]), 260)
    """
    if settings.name not in ENCODERS:
        raise WrongWords(f"there is no encoder of regions {settings.name!r}. Use one of: {', '.join(ENCODERS)}.")
    made = ENCODERS[settings.name](settings)
    if weights is not None and made.net is not None:
        made.net.load_state_dict(weights)
    return made


@dataclass(frozen=True, eq=False)
class Encoded:
    """Regions through an encoder: `look` makes features (n, F) of crops (n, side, side, 3), which are bytes."""

    settings: Extractor
    side: int
    features: int  # F
    look: Callable[[NDArray[np.uint8]], Tensor]
    net: nn.Module | None  # weights that a model's folder must keep
    frozen: nn.Module  # all weights

    @property
    def dimensions(self) -> int:
        return self.features + PLACE

    @property
    def signature(self) -> str:
        """What the features depend on. Weights may be put in place after it was made, unless a package carries them."""
        weights = weights_of(self.frozen) if self.net is not None else self._carried
        boxes = f"regions:{MOST}/jitter{INACCURACY:g}/strays{STRAYS}"
        return f"{boxes}|{self.settings.name}|weights:{weights}|pixels:{self.side}/bilinear"

    @cached_property
    def _carried(self) -> str:
        return weights_of(self.frozen)

    def seen(self, images: Sequence[Image]) -> tuple[Tensor, Tensor, IntArray]:
        """The features (R, D) and boxes (R, 4) of all regions, one picture after the other, and where each picture begins."""
        boxes = [looked_at(image) for image in images]
        crops = [crops_of(image, own, self.side) for image, own in zip(images, boxes, strict=True)]
        where = np.concatenate([np.empty((0, 4)), *boxes])
        begin = np.concatenate([[0], np.cumsum([len(own) for own in boxes], dtype=np.int64)]).astype(np.int64)
        looks = self.look(np.concatenate([np.empty((0, self.side, self.side, 3), np.uint8), *crops]))
        return torch.cat([looks, placed(where)], dim=1), torch.from_numpy(where).float(), begin

    def regions(self, images: Sequence[Image]) -> Regions:
        """The regions of each picture; a picture's own do not depend on the others but for rounding."""
        features, boxes, begin = self.seen(images)
        return gathered(features, boxes, begin)


def placed(boxes: FloatArray) -> Tensor:
    """Where boxes (n, 4) are and how large, as four numbers about 0: the middle, and width and height.

    >>> placed(np.array([[0.0, 0.5, 0.5, 1.0]]))
    tensor([[-0.5000,  0.5000,  1.0000,  1.0000]])
    """
    middle, extent = boxes[:, :2] + boxes[:, 2:] - 1, 4 * (boxes[:, 2:] - boxes[:, :2]) - 1
    return torch.from_numpy(np.concatenate([middle, extent], axis=1)).float()


def gathered(features: Tensor, boxes: Tensor, begin: IntArray) -> Regions:
    """Regions that stand one after the other (R, …) as a block (N, K, …), filled up with zeros.

    >>> gathered(torch.ones(3, 1), torch.ones(3, 4), np.array([0, 1, 3])).features.squeeze(2)
    tensor([[1., 0.], [1., 1.]])
    """
    count = torch.from_numpy(np.diff(begin))
    most = int(count.max()) if len(count) else 1
    real = torch.arange(most) < count.unsqueeze(1)
    filled = [values.new_zeros(len(count), most, values.shape[1]) for values in (features, boxes)]
    for block, values in zip(filled, (features, boxes), strict=True):
        block[real] = values
    return Regions(filled[0], real, filled[1])


# A small CNN of our own


class Namer(nn.Module):
    """Four convolutions with batch norm, their mean and maximum over all places; in use each number has mean 0 and spread 1.

    `crossmatch.train.features` trains it to name the kind, colour and texture of things and the setting of whole pictures.
    """

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.features = 16 * width
        self.convolutions = convolutions(width).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.standard = nn.BatchNorm1d(self.features, affine=False)

    def forward(self, crops: Tensor) -> Tensor:
        """From bytes (n, side, side, 3) to features (n, F)."""
        seen = self.convolutions(crops.permute(0, 3, 1, 2).float() / 127.5 - 1)
        return self.standard(torch.cat([seen.mean(dim=(2, 3)), seen.amax(dim=(2, 3))], dim=1))  # type: ignore[no-any-return]


def _namer(settings: Extractor) -> Encoded:
    side = _side(settings, 32, 8)
    net = Namer().eval().requires_grad_(False)

    def look(crops: NDArray[np.uint8]) -> Tensor:
        net.eval()
        cuts = [crops[at : at + CROPS] for at in range(0, len(crops), CROPS)]
        return torch.cat([torch.empty(0, net.features), *each(lambda few: net(torch.from_numpy(few)), cuts)])

    return Encoded(settings, side, net.features, look, net, net)


# Stages of EfficientNet-Lite0

BLOCKS = (2, 4, 7, 10)  # the last blocks of the stages with 24, 40, 80 and 112 channels
PIXELS = 8 * 64 * 64  # at once: small enough that memory is used again at once


def _efficientnet(settings: Extractor) -> Encoded:
    """The mean and maximum of four stages, each of these at mean 0 and spread 1 over its own channels (ba2016layer).

    Early stages still tell colours and textures apart, which the last layer, made for classes of photos, partly forgets.
    """
    side = _side(settings, 64, 32)
    if side % 32:
        raise WrongWords(f"efficientnet-lite0 cannot look at crops of {side} pixels; it takes multiples of 32, such as 64.")
    net = network("lite0", side)
    channels = [int(net._blocks[number]._bn2.num_features) for number in BLOCKS]
    width = 2 * sum(channels)

    def through(few: NDArray[np.uint8]) -> Tensor:
        return torch.cat([F.layer_norm(seen, seen.shape[1:]) for seen in stages(net, given(few), BLOCKS)], dim=1)

    def look(crops: NDArray[np.uint8]) -> Tensor:
        return torch.cat([torch.empty(0, width), *each(through, in_batches(crops, PIXELS))])

    return Encoded(settings, side, width, look, None, net)


def _side(settings: Extractor, usual: int, least: int) -> int:
    side = settings.side or usual
    if side < least:
        raise WrongWords(f"{settings.name} cannot look at crops of {side} pixels; {least} at least were expected.")
    return side


ENCODERS: Mapping[str, Callable[[Extractor], Encoded]] = {"namer": _namer, "efficientnet-lite0": _efficientnet}
