"""Dual encoders of transformers: CLIP, SigLIP and their kin, and the two towers under BLIP's matching head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.models.hf.inputs import Inputs, Reader, alike, pixels_of, positions, stacked
from crossmatch.models.hf.loading import Place, image_processor_of, network, require_fit, system_line, tokenizer_of

try:
    import torch
    from torch import Tensor
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

Prepared = list[tuple[list[int], dict[str, Tensor]]]  # places among the images, and a batch of one shape


@dataclass(frozen=True)
class Reading:
    """How an architecture was taught to read."""

    how: Mapping[str, Any] = field(default_factory=dict)  # for `Reader`
    pools_at_end: bool = False  # takes the state at the end token, which the tokenizer must write


# SigLIP read 64 tokens, all of them, in lower case and without a mask, and takes its state at the last place: the same text with
# less filling has another embedding. CLIP takes its state at the end token, which stays when a text is cut at 77.
SIGLIP = Reading({"filled": True, "lower": True})
CLIP = Reading(pools_at_end=True)
READINGS: Mapping[str, Reading] = {"CLIPModel": CLIP, "MetaClip2Model": CLIP, "SiglipModel": SIGLIP, "Siglip2Model": SIGLIP}


def _features(found: Any) -> Tensor:
    """The projected vectors: transformers 5 wraps them, 4 did not."""
    vectors: Tensor = found if isinstance(found, Tensor) else found.pooler_output
    return vectors


def look(net: Any, pixels: Inputs) -> Tensor:
    """Images, by the method that all dual encoders of the library have."""
    return _features(net.get_image_features(**pixels))


def read(net: Any, tokens: Inputs) -> Tensor:
    """Texts, likewise."""
    return _features(net.get_text_features(**tokens))


def look_under_head(net: Any, pixels: Inputs) -> Tensor:
    """BLIP's image tower: the state at the class token, projected. Source: li2022blip, sec. 3.2, ITC."""
    projected: Tensor = net.vision_proj(net.vision_model(**pixels).last_hidden_state[:, 0])
    return projected


def read_under_head(net: Any, tokens: Inputs) -> Tensor:
    """BLIP's text tower: the text encoder without cross-attention."""
    projected: Tensor = net.text_proj(net.text_encoder(**tokens).last_hidden_state[:, 0])
    return projected


class Encoder:
    """Images and texts as unit vectors of one space; the cosine compares them. Equal to the library's own forward, to rounding.

    An embedding depends on what else is in the batch by rounding alone. Source: radford2021clip, sec. 2.3; zhai2023siglip, sec. 3.
    """

    similarity = "cosine"

    def __init__(self, net: Any, reader: Reader, processor: Any, signature: str, towers: tuple[Callable[..., Tensor], ...]) -> None:
        self.net, self.reader, self.processor, self.signature = net, reader, processor, signature
        self.look, self.read = towers

    @cached_property
    def dimensions(self) -> int:
        """The length of a vector."""
        return int(self._read(self.reader.numbers([""])).shape[1])

    @property
    def longest(self) -> int:
        """How many tokens it reads."""
        return self.reader.longest

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts are longer than that."""
        return self.reader.truncated(texts)

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """The images resized and normalised, in batches. Changes nothing here, so any thread may do it."""
        return stacked(pixels_of(self.processor, images))

    def embed_prepared(self, prepared: Prepared) -> NDArray[np.float32]:
        """One unit vector for each image that was prepared."""
        out = np.empty((sum(len(places) for places, _ in prepared), self.dimensions), np.float32)
        with torch.inference_mode():
            for places, pixels in prepared:
                out[places] = F.normalize(self.look(self.net, pixels), dim=1).numpy()
        return out

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """One unit vector per image."""
        return self.embed_prepared(self.prepare_images(images))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector per text; an empty text has one as well."""
        numbers = self.reader.numbers(texts)
        out = np.empty((len(numbers), self.dimensions), np.float32)
        for part in alike([len(row) for row in numbers]):
            out[part] = self._read([numbers[n] for n in part])
        return out

    def _read(self, numbers: list[list[int]]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return np.asarray(F.normalize(self.read(self.net, self.reader.inputs(numbers)), dim=1).numpy())


def encoder(place: Place, architecture: str) -> Encoder:
    """A dual encoder: CLIP, SigLIP and the like."""
    reading = READINGS.get(architecture, Reading())
    net, tokenizer = network(place, architecture), tokenizer_of(place)
    reader = Reader.of(tokenizer, positions(net.config.text_config), **reading.how)
    if reader.filled and tokenizer.pad_token_id is None:
        raise CrossmatchError(f"{place.folder}: the tokenizer has no padding token, which {architecture} reads. Fetch it again.")
    if reading.pools_at_end:
        _require_end(place, net.config.text_config, reader)
    signature = system_line(place, "embed", net, reader.longest, *(("filled",) if reader.filled else ()))
    return _fitting(place, Encoder(net, reader, image_processor_of(place), signature, (look, read)))


def contrastive(place: Place, architecture: str) -> Encoder:
    """The two towers under BLIP's matching head (ITC)."""
    net = network(place, architecture)
    reader = Reader.of(tokenizer_of(place), positions(net.config.text_config))
    signature = system_line(place, "itc", net, reader.longest)
    return _fitting(place, Encoder(net, reader, image_processor_of(place), signature, (look_under_head, read_under_head)))


def _fitting(place: Place, made: Encoder) -> Encoder:
    require_fit(place, lambda images, texts: made.embed_images(images) @ made.embed_texts(texts).T)
    return made


OLD_END = 2  # first configurations of CLIP say this; the network then takes the highest number for the end


def _require_end(place: Place, config: Any, reader: Reader) -> None:
    """Refuse a tokenizer that does not write the end token: CLIP would take its state at the first place, alike for all texts."""
    written, end = reader.numbers([""])[0], config.eos_token_id
    if len(written) < 2 or (written[-1] != max(written) if end == OLD_END else end not in written):
        raise CrossmatchError(
            f"{place.folder}: the tokenizer writes {written} for an empty text, without the end token {end} where the network "
            "takes its state. Fetch the tokenizer that belongs to the model."
        )
