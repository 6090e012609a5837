"""Trained networks of the zoo as models: they embed images and texts, or score pairs of them.

The class of a model follows from its network. A network with single vectors for images and texts gives a `ZooEmbedder`; one without
an image side a `ZooTextEmbedder`; any other network scores images with texts directly (`ZooScorer`), and may ground a text in
regions (`ZooGrounder`) or generate captions (`crossmatch.models.zoo.captioning_model.CaptioningModel`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.grounding import Grounding
from crossmatch.data.name_lookup import Catalog
from crossmatch.data.settings import validate_settings
from crossmatch.models.baselines.small_dual_encoder import resize_images
from crossmatch.models.files.checkpoint_files import require_finite
from crossmatch.models.files.model_folder import FolderModel, load_model_folder
from crossmatch.models.zoo.network_inputs import MAX_WORDS, PAD, UNKNOWN, Regions, Vocabulary
from crossmatch.models.zoo.region_extractors import ExtractorSettings, PixelGrid, make_extractor
from crossmatch.models.zoo_families import zoo_families

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_BATCH, TEXT_BATCH = 64, 128  # items that the network encodes at once


@dataclass(frozen=True)
class ZooConfig:
    """Configuration from which a network is rebuilt: family and sizes, vocabulary, and source of the regions."""

    family: str
    net: Mapping[str, Any]
    vocabulary: tuple[str, ...] = field(repr=False)
    features: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits; they cover settings that are not in the weights, such as a temperature or the word order."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class FileRegions:
    """Region features from a file, known by image ids. They cannot be computed from pictures."""

    dimensions: int = field(metadata={"least": 1})
    source: str = ""

    @property
    def signature(self) -> str:
        return f"file:{self.source}:{self.dimensions}"

    def regions(self, images: Sequence[Image]) -> Regions:
        raise CrossmatchError(
            "this model was trained on region features from a file; they cannot be computed from pictures. Name the file with the "
            "features of these images, and the folder of the model: regions:FILE+FOLDER"
        )


def make_region_extractor(features: Mapping[str, Any]) -> Any:
    """Make the extractor that `[features]` declares: a frozen crop encoder, trainable convolutions, or a file."""
    kind, options = features.get("kind", "regions"), {name: value for name, value in features.items() if name != "kind"}
    kinds: dict[str, Callable[[], Any]] = {
        "regions": lambda: make_extractor(ExtractorSettings(**validate_settings(options, ExtractorSettings, "[features]"))),
        "pixels": lambda: PixelGrid(**options),
        "file": lambda: FileRegions(**validate_settings(options, FileRegions, "[features]")),
    }
    return Catalog("kind of regions", kinds)[kind]()


class ZooNet(nn.Module):
    """The family's network (`match`), and the region extractor's weights (`look`), if they belong to the model."""

    def __init__(self, match: nn.Module, look: nn.Module | None) -> None:
        super().__init__()
        self.match, self.look = match, look


class ZooModel(FolderModel):
    """A network with its vocabulary and region extractor. `recipe` describes its training (stored in model.json)."""

    def __init__(self, config: ZooConfig, net: ZooNet, extractor: Any, recipe: Mapping[str, Any] | None = None) -> None:
        self.family, self.config, self.recipe = config.family, config, dict(recipe or {})
        self.vocabulary = Vocabulary(config.vocabulary)
        self.net, self.extractor = net.eval(), extractor
        self.match: Any = net.match

    # -- inputs

    def extract_regions(self, images: Sequence[Image]) -> Regions:
        """Compute the regions of pictures."""
        if isinstance(self.extractor, PixelGrid):
            return self.as_regions(torch.from_numpy(resize_images(images, self.extractor.side)))
        regions: Regions = self.extractor.regions(images)
        return regions

    def as_regions(self, images: Regions | Tensor) -> Regions:
        """Return regions unchanged; turn pixels (N, side, side, 3) into regions by the network's own convolutions."""
        return images if isinstance(images, Regions) else self.extractor(images)

    def read(self, texts: Sequence[str]) -> Any:
        """Texts as the network reads them: word numbers, unless the network defines `read` itself."""
        network_read = getattr(self.match, "read", None)
        return network_read(texts) if network_read is not None else self.vocabulary.encode(texts)

    @property
    def longest(self) -> int:
        """Number of words, or of the network's own tokens, that are read of a text."""
        return int(getattr(self.match, "longest", MAX_WORDS))

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts are too long to be read completely."""
        network_truncated = getattr(self.match, "truncated", None)
        flags = (
            network_truncated(texts)
            if network_truncated is not None
            else [len(row) > MAX_WORDS + 2 for row in self.vocabulary.encode_rows(texts)]
        )
        return np.asarray(flags, dtype=bool)

    def unknown(self, texts: Sequence[str]) -> int:
        """Number of words that are not in the vocabulary."""
        return sum(row.count(UNKNOWN) for row in self.vocabulary.encode_rows(texts))

    # -- encoding in batches

    def _encode_images(self, images: Sequence[Image] | Regions) -> Iterator[tuple[slice, Any]]:
        for first in range(0, len(images), IMAGE_BATCH):
            rows = slice(first, min(first + IMAGE_BATCH, len(images)))
            with torch.inference_mode():
                regions = images[rows] if isinstance(images, Regions) else self.extract_regions(images[rows])
                yield rows, self.match.images(regions)

    def _encode_texts(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """Texts of similar length share a batch."""
        order = np.argsort([len(row) for row in self.vocabulary.encode_rows(texts)], kind="stable")
        for first in range(0, len(order), TEXT_BATCH):
            rows = order[first : first + TEXT_BATCH]
            with torch.inference_mode():
                yield rows, self.match.texts(self.read([texts[n] for n in rows]))

    def _vectors(self, encoded: Any) -> NDArray[np.float32]:
        """The vectors that are compared; of a distribution, its mean."""
        network_vectors = getattr(self.match, "vectors", None)
        vectors: NDArray[np.float32] = (network_vectors(encoded) if network_vectors is not None else encoded).numpy()
        return vectors

    # -- identity and folder

    @property
    def signature(self) -> str:
        """The system line: recipe, family, weights, configuration, regions, texts, precision."""
        regions = f"pixels:{self.extractor.side}/box" if isinstance(self.extractor, PixelGrid) else self.extractor.signature
        name = self.recipe.get("name", self.config.family)
        texts = f"|texts:{self.match.reads}" if hasattr(self.match, "reads") else ""
        weights = f"weights:{self.weights}|config:{self.config.digest}"
        return f"{name}|family:{self.config.family}|{weights}|regions:{regions}{texts}|tokens:{self.longest}|fp32"


class ZooTextEmbedder(ZooModel):
    """A model with one vector per text."""

    @property
    def similarity(self) -> str:
        """Similarity of vectors: "cosine", or "dot" if the network uses their lengths."""
        return str(getattr(self.match, "compared_by", "cosine"))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text, also for an empty text."""
        return _scatter([(rows, self._vectors(encoded)) for rows, encoded in self._encode_texts(texts)], len(texts))


class ZooEmbedder(ZooTextEmbedder):
    """A model with one vector per image and per text, in the same space."""

    def embed_images(self, images: Sequence[Image] | Regions) -> NDArray[np.float32]:
        """One vector per image."""
        return _scatter([(rows, self._vectors(encoded)) for rows, encoded in self._encode_images(images)], len(images))

    def embed_regions(self, regions: Regions) -> NDArray[np.float32]:
        """One vector per image that is given as regions."""
        return self.embed_images(regions)

    def compare(self, regions: Regions, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score every image, given as regions, with every text: (images, texts)."""
        return self.embed_regions(regions) @ self.embed_texts(texts).T


class ZooScorer(ZooModel):
    """A model that scores an image and a text together. Batching changes scores by rounding only."""

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float32]:
        """Score every image with every text: (images, texts)."""
        distinct, position = deduplicate_images(images)
        return self._score_encoded(list(self._encode_images(distinct)), len(distinct), texts)[position]

    def compare(self, regions: Regions, texts: Sequence[str]) -> NDArray[np.float32]:
        """`score` of images that are given as regions."""
        return self._score_encoded(list(self._encode_images(regions)), len(regions), texts)

    def _score_encoded(self, images: list[tuple[slice, Any]], count: int, texts: Sequence[str]) -> NDArray[np.float32]:
        distinct, position = np.unique(np.asarray(texts, dtype=np.str_), return_inverse=True)
        out = np.empty((count, len(distinct)), dtype=np.float32)
        for columns, encoded_texts in self._encode_texts(distinct.tolist()):
            for rows, encoded_images in images:
                with torch.inference_mode():
                    out[rows, columns] = self.match.similarity(encoded_images, encoded_texts).numpy()
        return out[:, position.ravel()]

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[np.float32]:
        """Score image n with text n: (n,)."""
        if len(images) != len(texts):
            raise CrossmatchError(f"score_pairs got {len(images)} images and {len(texts)} texts; pass equal numbers.")
        distinct, position = deduplicate_images(images)
        encoded = concatenate_padded([part for _, part in self._encode_images(distinct)]) if distinct else None
        out = np.empty(len(texts), dtype=np.float32)
        for rows, encoded_texts in self._encode_texts(texts):
            encoded_images = _select(encoded, torch.from_numpy(position[rows]))
            with torch.inference_mode():
                pair_similarity = getattr(self.match, "pair_similarity", None)
                if pair_similarity is not None:
                    scores = pair_similarity(encoded_images, encoded_texts)
                else:
                    scores = self.match.similarity(encoded_images, encoded_texts).diagonal()
            out[rows] = scores.numpy()
        return out


class ZooGrounder(ZooScorer):
    """A scorer that also grounds a text in the regions of an image."""

    def ground(self, images: Sequence[Image], texts: Sequence[str]) -> Grounding:
        """Ground text n in each region of image n; NaN where an image has fewer regions than the others."""
        if len(images) != len(texts):
            raise CrossmatchError(f"ground got {len(images)} images and {len(texts)} texts; pass equal numbers.")
        distinct, position = deduplicate_images(images)
        with torch.inference_mode():
            regions = [self.extract_regions(distinct[at : at + IMAGE_BATCH]) for at in range(0, len(distinct), IMAGE_BATCH)]
        return self._ground_in(regions, position, texts)

    def ground_regions(self, regions: Regions, position: NDArray[np.int64], texts: Sequence[str]) -> Grounding:
        """`ground` of images that are given as regions: text n in image position[n]. Unknown boxes are NaN."""
        return self._ground_in([regions[at : at + IMAGE_BATCH] for at in range(0, len(regions), IMAGE_BATCH)], position, texts)

    def _ground_in(self, regions: Sequence[Regions], position: NDArray[np.int64], texts: Sequence[str]) -> Grounding:
        with torch.inference_mode():
            boxes = concatenate_padded([part.boxes for part in regions]).numpy()
            mask = concatenate_padded([part.mask for part in regions]).numpy()
            encoded = concatenate_padded([self.match.images(part) for part in regions])
            scores = np.full((len(texts), mask.shape[1]), np.nan)
            for rows, encoded_texts in self._encode_texts(texts):
                encoded_images = _select(encoded, torch.from_numpy(position[rows]))
                scores[rows] = self.match.region_grounding(encoded_images, encoded_texts).numpy()
        scores[~mask[position]] = np.nan
        has_box = (mask & boxes.any(axis=2))[position]
        return Grounding(scores, np.where(has_box[..., None], boxes[position], np.nan).astype(np.float64))


def model_class(match: nn.Module) -> type[ZooModel]:
    """Choose the model class for a network.

    A network declares its abilities by attributes: `generates_captions`, `sides` (the sides it has; both by default), `embeds`
    (single vectors) and the method `region_grounding`.
    """
    if getattr(match, "generates_captions", False):
        from crossmatch.models.zoo.captioning_model import CaptioningModel

        return CaptioningModel
    if getattr(match, "sides", ("image", "text")) == ("text",):
        return ZooTextEmbedder
    if getattr(match, "embeds", False):
        return ZooEmbedder
    return ZooGrounder if hasattr(match, "region_grounding") else ZooScorer


def build_model(config: ZooConfig, recipe: Mapping[str, Any] | None = None) -> Any:
    """Build the model of a configuration, with random weights."""
    extractor = make_region_extractor(config.features)
    look = extractor if isinstance(extractor, PixelGrid) else getattr(extractor, "net", None)
    sizes = {"features": extractor.dimensions, "words": len(Vocabulary(config.vocabulary)), **config.net}
    net = ZooNet(zoo_families()[config.family].build(sizes), look)
    return model_class(net.match)(config, net, extractor, recipe)


def load_zoo_model(folder: Path, family: str) -> Any:
    """Load the trained model of a folder."""

    def build(config: Mapping[str, Any], recipe: Mapping[str, Any]) -> Any:
        if config["family"] != family:
            raise ValueError(f"its configuration is of the family {config['family']}")
        return build_model(ZooConfig(**config), recipe)

    model = load_model_folder(folder, family, f"{family} model", build)
    require_finite(model.net, str(folder))
    return model


def uncertainty_of_images(model: Any, images: Sequence[Image]) -> NDArray[np.float64]:
    """Uncertainty of a probabilistic model about each image."""
    uncertainty = _require_uncertainty(model)
    return _scatter([(rows, uncertainty(encoded).numpy()) for rows, encoded in model._encode_images(images)], len(images))


def uncertainty_of_texts(model: Any, texts: Sequence[str]) -> NDArray[np.float64]:
    """Uncertainty of a probabilistic model about each text."""
    uncertainty = _require_uncertainty(model)
    return _scatter([(rows, uncertainty(encoded).numpy()) for rows, encoded in model._encode_texts(texts)], len(texts))


def _require_uncertainty(model: Any) -> Any:
    uncertainty = getattr(getattr(model, "match", None), "uncertainty", None)
    if uncertainty is None:
        raise CrossmatchError(
            f"{type(model).__name__} has no uncertainty; only probabilistic models have one. Train one: crossmatch train pcme"
        )
    return uncertainty


def _scatter(parts: list[tuple[Any, NDArray[Any]]], n: int) -> NDArray[Any]:
    """Put the values of batches into the order of all items."""
    out = np.empty((n, *parts[0][1].shape[1:]), parts[0][1].dtype) if parts else np.empty((0, 1), np.float32)
    for rows, values in parts:
        out[rows] = values
    return out


def deduplicate_images(images: Sequence[Image]) -> tuple[list[Image], NDArray[np.int64]]:
    """Each picture object once, and the position of each image among them."""
    distinct = list({id(image): image for image in images}.values())
    position = {id(image): n for n, image in enumerate(distinct)}
    return distinct, np.asarray([position[id(image)] for image in images], dtype=np.int64)


def concatenate_padded(parts: Sequence[Any]) -> Any:
    """Concatenate tensors, or tuples of tensors; the second axis is padded to the longest."""
    if not isinstance(parts[0], Tensor):
        return type(parts[0])(*(concatenate_padded(values) for values in zip(*parts, strict=True)))
    if parts[0].ndim == 1 or len({part.shape[1] for part in parts}) == 1:
        return torch.cat(list(parts))
    longest = max(part.shape[1] for part in parts)
    return torch.cat([_pad(part, longest) for part in parts])


def _pad(part: Tensor, longest: int) -> Tensor:
    out = part.new_full((part.shape[0], longest, *part.shape[2:]), PAD)
    out[:, : part.shape[1]] = part
    return out


def _select(encoded: Any, which: Tensor) -> Any:
    return encoded[which] if isinstance(encoded, Tensor) else type(encoded)(*(values[which] for values in encoded))
