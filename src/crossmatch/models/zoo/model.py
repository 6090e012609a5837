"""A trained network of the zoo as a model: it looks at pictures and reads texts, and embeds them or compares them.

What a model can do follows from its network: one whose images and texts are single vectors embeds (`Embedder`); any other compares
images with texts directly (`Comparer`), and may say how much a text is grounded in each region (`GroundingComparer`); one without
an image side embeds texts alone (`TextEmbedder`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.catalog import Catalog
from crossmatch.core.declared import checked
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.grounding import Grounding
from crossmatch.models.checkpoint import require_finite
from crossmatch.models.dual import pixels_of
from crossmatch.models.folder import load_folder, save_folder, weights_of
from crossmatch.models.zoo.families import networks
from crossmatch.models.zoo.features import Extractor, extractor
from crossmatch.models.zoo.inputs import LONGEST, PAD, UNKNOWN, Regions, Vocabulary
from crossmatch.models.zoo.pixels import PixelGrid

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGES, TEXTS = 64, 128  # that go through the network at once


@dataclass(frozen=True)
class ZooConfig:
    """What must be known to build the network again: its family and sizes, its words, and where regions come from."""

    family: str
    net: Mapping[str, Any]
    vocabulary: tuple[str, ...] = field(repr=False)
    features: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits of all of it: a temperature, a direction or the order of the words is in no weight."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class FromFile:
    """Regions that somebody else's detector found: they are in a file, by the ids of images, and not to be had from a picture."""

    dimensions: int = field(metadata={"least": 1})
    source: str = ""

    @property
    def signature(self) -> str:
        return f"file:{self.source}:{self.dimensions}"

    def regions(self, images: Sequence[Image]) -> Regions:
        raise CrossmatchError(
            "this model was trained on region features from a file, and pictures do not carry them. Name the file with the "
            "features of these images: -m regions:FILE+FOLDER"
        )


def eyes_of(features: Mapping[str, Any]) -> Any:
    """What turns pictures into regions: a frozen encoder over crops, the network's own convolutions, or a file."""
    kind, given = features.get("kind", "regions"), {name: value for name, value in features.items() if name != "kind"}
    kinds: dict[str, Callable[[], Any]] = {
        "regions": lambda: extractor(Extractor(**checked(given, Extractor, "[features]"))),
        "pixels": lambda: PixelGrid(**given),
        "file": lambda: FromFile(**checked(given, FromFile, "[features]")),
    }
    return Catalog("kind of regions", kinds)[kind]()


class ZooNet(nn.Module):
    """The family's network as `match`, and below it what turns a picture into regions, where that has weights to be kept."""

    def __init__(self, match: nn.Module, look: nn.Module | None) -> None:
        super().__init__()
        self.match, self.look = match, look


class Trained:
    """A network with its words and its regions. `recipe` is what made it (kept in model.json)."""

    def __init__(self, config: ZooConfig, net: ZooNet, eyes: Any, recipe: Mapping[str, Any] | None = None) -> None:
        self.config, self.recipe = config, dict(recipe or {})
        self.vocabulary = Vocabulary(config.vocabulary)
        self.net, self.eyes = net.eval(), eyes
        self.match: Any = net.match

    # what it is given

    def see(self, images: Sequence[Image]) -> Regions:
        """Pictures as regions."""
        if isinstance(self.eyes, PixelGrid):
            return self.look(torch.from_numpy(pixels_of(images, self.eyes.side)))
        found: Regions = self.eyes.regions(images)
        return found

    def look(self, given: Regions | Tensor) -> Regions:
        """Regions as they are, and pixels (N, side, side, 3) through the network's own eyes."""
        return given if isinstance(given, Regions) else self.eyes(given)

    def read(self, texts: Sequence[str]) -> Any:
        """Texts as the network wants them: numbers of words, unless it reads in a way of its own."""
        own = getattr(self.match, "read", None)
        return own(texts) if own is not None else self.vocabulary.numbered(texts)

    # what must be said of the texts

    @property
    def longest(self) -> int:
        """How many words, or tokens of its own, it reads of a text."""
        return int(getattr(self.match, "longest", LONGEST))

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts are longer than what is read of them."""
        own = getattr(self.match, "truncated", None)
        found = own(texts) if own is not None else [len(row) > LONGEST + 2 for row in self.vocabulary.rows(texts)]
        return np.asarray(found, dtype=bool)

    def unknown(self, texts: Sequence[str]) -> int:
        """How many of their words the training never showed."""
        return sum(row.count(UNKNOWN) for row in self.vocabulary.rows(texts))

    # through the network

    def _images(self, images: Sequence[Image]) -> Iterator[tuple[slice, Any]]:
        """Some pictures at a time, encoded."""
        for at in range(0, len(images), IMAGES):
            cut = slice(at, min(at + IMAGES, len(images)))
            with torch.inference_mode():
                yield cut, self.match.images(self.see(images[cut]))

    def _regions(self, regions: Regions) -> Iterator[tuple[slice, Any]]:
        """The same from regions that are there."""
        for at in range(0, len(regions), IMAGES):
            cut = slice(at, min(at + IMAGES, len(regions)))
            with torch.inference_mode():
                yield cut, self.match.images(regions[cut])

    def _texts(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """Some texts at a time, those of like length together, encoded."""
        order = np.argsort([len(row) for row in self.vocabulary.rows(texts)], kind="stable")
        for at in range(0, len(order), TEXTS):
            chosen = order[at : at + TEXTS]
            with torch.inference_mode():
                yield chosen, self.match.texts(self.read([texts[n] for n in chosen]))

    def _vectors(self, encoded: Any) -> NDArray[np.float32]:
        """What is compared; a distribution has more to it than its mean."""
        own = getattr(self.match, "vectors", None)
        found: NDArray[np.float32] = (own(encoded) if own is not None else encoded).numpy()
        return found

    # as a folder

    @property
    def weights(self) -> str:
        """Twelve hexadecimal digits of the weights."""
        return weights_of(self.net)

    @property
    def signature(self) -> str:
        """The system line: family, recipe, weights, what else a score depends on, regions, precision."""
        seen = f"pixels:{self.eyes.side}/box" if isinstance(self.eyes, PixelGrid) else self.eyes.signature
        name = self.recipe.get("name", self.config.family)
        read = f"|texts:{self.match.reads}" if hasattr(self.match, "reads") else ""
        known = f"weights:{self.weights}|config:{self.config.digest}"
        return f"{name}|family:{self.config.family}|{known}|regions:{seen}{read}|tokens:{self.longest}|fp32"

    def save(self, folder: Path) -> None:
        """Write the model as a folder."""
        save_folder(self, self.config.family, folder)


class TextEmbedder(Trained):
    """A model with a vector for each text."""

    @property
    def similarity(self) -> str:
        """How vectors are compared: by their cosine, or by the dot product where their lengths mean something."""
        return str(getattr(self.match, "compared_by", "cosine"))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text; an empty text has one as well."""
        parts = [(chosen, self._vectors(said)) for chosen, said in self._texts(texts)]
        return _gathered(parts, len(texts))


class Embedder(TextEmbedder):
    """A model with a vector for each image and one for each text, in one space."""

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """One vector per image."""
        return _gathered([(cut, self._vectors(seen)) for cut, seen in self._images(images)], len(images))

    def embed_regions(self, regions: Regions) -> NDArray[np.float32]:
        """One vector per image, from its regions."""
        return _gathered([(cut, self._vectors(seen)) for cut, seen in self._regions(regions)], len(regions))

    def compare(self, regions: Regions, texts: Sequence[str]) -> NDArray[np.float32]:
        """Every image, given as its regions, with every text: (images, texts)."""
        return self.embed_regions(regions) @ self.embed_texts(texts).T


class Comparer(Trained):
    """A model that looks at an image and a text together. A score depends on its company by rounding alone."""

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float32]:
        """Every image with every text: (images, texts)."""
        distinct, member = _distinct(images)
        return self._compared(list(self._images(distinct)), len(distinct), texts)[member]

    def compare(self, regions: Regions, texts: Sequence[str]) -> NDArray[np.float32]:
        """The same from regions that are there."""
        return self._compared(list(self._regions(regions)), len(regions), texts)

    def _compared(self, seen: list[tuple[slice, Any]], images: int, texts: Sequence[str]) -> NDArray[np.float32]:
        said, which = np.unique(np.asarray(texts, dtype=np.str_), return_inverse=True)
        out = np.empty((images, len(said)), dtype=np.float32)
        for chosen, heard in self._texts(said.tolist()):
            for cut, shown in seen:
                with torch.inference_mode():
                    out[cut, chosen] = self.match.similarity(shown, heard).numpy()
        return out[:, which.ravel()]

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float32]:
        """Image n with text n: (n,)."""
        if len(images) != len(texts):
            raise CrossmatchError(f"{len(images)} images came with {len(texts)} texts. Give as many of one as of the other.")
        distinct, member = _distinct(images)
        seen = _joined([shown for _, shown in self._images(distinct)]) if distinct else None
        out = np.empty(len(texts), dtype=np.float32)
        for chosen, heard in self._texts(texts):
            mine = _at(seen, torch.from_numpy(member[chosen]))
            with torch.inference_mode():
                paired = getattr(self.match, "paired", None)
                found = paired(mine, heard) if paired is not None else self.match.similarity(mine, heard).diagonal()
            out[chosen] = found.numpy()
        return out


class GroundingComparer(Comparer):
    """One that also says where in the image a text is."""

    def ground(self, images: Sequence[Image], texts: Sequence[str]) -> Grounding:
        """How much text n is grounded in each region of image n, with the regions; NaN where an image has fewer regions."""
        if len(images) != len(texts):
            raise CrossmatchError(f"{len(images)} images came with {len(texts)} texts. Give as many of one as of the other.")
        distinct, member = _distinct(images)
        with torch.inference_mode():
            shown = [self.see(distinct[at : at + IMAGES]) for at in range(0, len(distinct), IMAGES)]
            boxes, real = _joined([r.boxes for r in shown]).numpy(), _joined([r.real for r in shown]).numpy()
            seen = _joined([self.match.images(r) for r in shown])
            scores = np.full((len(texts), real.shape[1]), np.nan)
            for chosen, heard in self._texts(texts):
                scores[chosen] = self.match.grounded(_at(seen, torch.from_numpy(member[chosen])), heard).numpy()
        scores[~real[member]] = np.nan
        return Grounding(scores, np.where(real[member][..., None], boxes[member], np.nan).astype(np.float64))


def kind_of(match: nn.Module) -> type[Trained]:
    """What a network makes of a model.

    A family says so itself: `sides` are the sides that it has (both, if it does not say), `embeds` whether they are single vectors.
    """
    if getattr(match, "tells", False):
        from crossmatch.models.zoo.captioning import CaptioningModel

        return CaptioningModel
    if getattr(match, "sides", ("image", "text")) == ("text",):
        return TextEmbedder
    if getattr(match, "embeds", False):
        return Embedder
    return GroundingComparer if hasattr(match, "grounded") else Comparer


def made(config: ZooConfig, recipe: Mapping[str, Any] | None = None) -> Any:
    """The model of this configuration, its weights at random."""
    eyes = eyes_of(config.features)
    look = eyes if isinstance(eyes, PixelGrid) else getattr(eyes, "net", None)
    sizes = {"features": eyes.dimensions, "words": len(Vocabulary(config.vocabulary)), **config.net}
    net = ZooNet(networks()[config.family].build(sizes), look)
    return kind_of(net.match)(config, net, eyes, recipe)


def load(folder: Path, family: str) -> Any:
    """The trained model in this folder."""

    def build(config: Mapping[str, Any], recipe: Mapping[str, Any]) -> Any:
        if config["family"] != family:
            raise ValueError(f"its configuration is of {config['family']}")
        return made(ZooConfig(**config), recipe)

    model = load_folder(folder, family, f"{family} model", build)
    require_finite(model.net, str(folder))
    return model


def uncertainty_of_images(model: Any, images: Sequence[Image]) -> NDArray[np.float64]:
    """How unsure a probabilistic model is of each image."""
    return _gathered([(cut, _uncertainty(model)(seen).numpy()) for cut, seen in model._images(images)], len(images))


def uncertainty_of_texts(model: Any, texts: Sequence[str]) -> NDArray[np.float64]:
    """How unsure a probabilistic model is of each text."""
    return _gathered([(chosen, _uncertainty(model)(said).numpy()) for chosen, said in model._texts(texts)], len(texts))


def _uncertainty(model: Any) -> Any:
    found = getattr(getattr(model, "match", None), "uncertainty", None)
    if found is None:
        raise CrossmatchError(
            f"{type(model).__name__} has no uncertainty; only distributions have. Train one: crossmatch train pcme"
        )
    return found


def _gathered(parts: list[tuple[Any, NDArray[Any]]], n: int) -> NDArray[Any]:
    """What was found for some items at a time, in the order of all."""
    out = np.empty((n, *parts[0][1].shape[1:]), parts[0][1].dtype) if parts else np.empty((0, 1), np.float32)
    for chosen, values in parts:
        out[chosen] = values
    return out


def _distinct(images: Sequence[Image]) -> tuple[list[Image], NDArray[np.int64]]:
    """Each picture object once, and which of them each image is."""
    number = {id(image): n for n, image in enumerate({id(image): image for image in images}.values())}
    return list({id(image): image for image in images}.values()), np.asarray([number[id(i)] for i in images], dtype=np.int64)


def _joined(parts: Sequence[Any]) -> Any:
    """Encoded items one after another: tensors, or tuples of them; the second axis is filled up to the longest."""
    if not isinstance(parts[0], Tensor):
        return type(parts[0])(*(_joined(each) for each in zip(*parts, strict=True)))
    if parts[0].ndim == 1 or len({part.shape[1] for part in parts}) == 1:
        return torch.cat(list(parts))
    longest = max(part.shape[1] for part in parts)
    return torch.cat([_filled(part, longest) for part in parts])


def _filled(part: Tensor, longest: int) -> Tensor:
    out = part.new_full((part.shape[0], longest, *part.shape[2:]), PAD)
    out[:, : part.shape[1]] = part
    return out


def _at(encoded: Any, which: Tensor) -> Any:
    """Some of the encoded items."""
    return encoded[which] if isinstance(encoded, Tensor) else type(encoded)(*(each[which] for each in encoded))
