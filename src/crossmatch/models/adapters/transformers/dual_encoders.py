"""Dual encoders of transformers: CLIP, SigLIP and similar models, and the two towers under BLIP's matching head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.data.errors import CrossmatchError
from crossmatch.models.adapters.transformers.input_batches import (
    Inputs,
    ReadsTexts,
    TextReader,
    count_positions,
    group_by_length,
    preprocess_images,
    stack_by_shape,
)
from crossmatch.models.adapters.transformers.loading import (
    ModelFiles,
    load_image_processor,
    load_network,
    load_tokenizer,
    make_signature,
    require_working,
)

if TYPE_CHECKING:
    from PIL.Image import Image

Towers = tuple[Callable[[Any, Inputs], Tensor], Callable[[Any, Inputs], Tensor]]  # of images and of texts
Prepared = list[tuple[list[int], dict[str, Tensor]]]  # positions of the images, and a batch of equal shape


# SigLIP was trained on 64 lower-case tokens without a mask, and uses the state at the last position: with less padding the same
# text has another embedding. CLIP uses the state at the end token, which stays when a text is truncated to 77 tokens.
SIGLIP = ("SiglipModel", "Siglip2Model")
CLIP = ("CLIPModel", "MetaClip2Model")


def _unwrap_features(output: Any) -> Any:
    """Return the projected vectors, which transformers 5 wraps and 4 does not."""
    return output if isinstance(output, Tensor) else output.pooler_output


def encode_images(net: Any, pixels: Inputs) -> Any:
    return _unwrap_features(net.get_image_features(**pixels))


def encode_texts(net: Any, tokens: Inputs) -> Any:
    return _unwrap_features(net.get_text_features(**tokens))


def encode_images_blip(net: Any, pixels: Inputs) -> Any:
    """BLIP's image tower: the state at the class token, projected. Source: li2022blip, sec. 3.2, ITC."""
    return net.vision_proj(net.vision_model(**pixels).last_hidden_state[:, 0])


def encode_texts_blip(net: Any, tokens: Inputs) -> Any:
    """BLIP's text tower: the text encoder without cross-attention."""
    return net.text_proj(net.text_encoder(**tokens).last_hidden_state[:, 0])


class TransformersEncoder(ReadsTexts):
    """Embeds images and texts as unit vectors of one space, compared by the cosine.

    Equal to the library's forward pass up to rounding; an embedding depends on its batch only by rounding.
    Source: radford2021clip, sec. 2.3; zhai2023siglip, sec. 3.
    """

    similarity = "cosine"

    def __init__(self, net: Any, reader: TextReader, processor: Any, signature: str, towers: Towers) -> None:
        self.net, self.reader, self.processor, self.signature = net, reader, processor, signature
        self.encode_images, self.encode_texts = towers

    @cached_property
    def dimensions(self) -> int:
        """The length of a vector."""
        return int(self._embed_tokens(self.reader.token_ids([""])).shape[1])

    def prepare_images(self, images: Sequence[Image]) -> Prepared:
        """Resize and normalise images, in batches; may run in any thread."""
        return stack_by_shape(preprocess_images(self.processor, images))

    def embed_prepared(self, prepared: Prepared) -> NDArray[np.float32]:
        """Embed what `prepare_images` returned: one unit vector per image."""
        out = np.empty((sum(len(positions) for positions, _ in prepared), self.dimensions), np.float32)
        with torch.inference_mode():
            for positions, pixels in prepared:
                out[positions] = F.normalize(self.encode_images(self.net, pixels), dim=1).numpy()
        return out

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Embed images: one unit vector per image."""
        return self.embed_prepared(self.prepare_images(images))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: one unit vector per text, also for an empty one."""
        token_ids = self.reader.token_ids(texts)
        out = np.empty((len(token_ids), self.dimensions), np.float32)
        for part in group_by_length([len(row) for row in token_ids]):
            out[part] = self._embed_tokens([token_ids[n] for n in part])
        return out

    def _embed_tokens(self, token_ids: list[list[int]]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return np.asarray(F.normalize(self.encode_texts(self.net, self.reader.inputs(token_ids)), dim=1).numpy())


def load_encoder(files: ModelFiles, architecture: str) -> TransformersEncoder:
    """Load a dual encoder: CLIP, SigLIP and similar models."""
    net, tokenizer, is_siglip = load_network(files, architecture), load_tokenizer(files), architecture in SIGLIP
    positions = count_positions(net.config.text_config)
    reader = TextReader.from_limits(tokenizer, positions, pads_to_longest=is_siglip, lowercase=is_siglip)
    if is_siglip and tokenizer.pad_token_id is None:
        raise CrossmatchError(f"{files.folder}: the tokenizer has no padding token, which {architecture} needs. Download it again.")
    if architecture in CLIP:
        _require_end(files, net.config.text_config, reader)
    return _make_encoder(files, "embed", net, reader, (encode_images, encode_texts), *(("filled",) if is_siglip else ()))


def load_contrastive_towers(files: ModelFiles, architecture: str) -> TransformersEncoder:
    """Load the two towers under BLIP's matching head (ITC)."""
    net = load_network(files, architecture)
    reader = TextReader.from_limits(load_tokenizer(files), count_positions(net.config.text_config))
    return _make_encoder(files, "itc", net, reader, (encode_images_blip, encode_texts_blip))


def _make_encoder(files: ModelFiles, use: str, net: Any, reader: TextReader, towers: Towers, *facts: str) -> TransformersEncoder:
    signature = make_signature(files, use, net, reader.longest, *facts)
    encoder = TransformersEncoder(net, reader, load_image_processor(files), signature, towers)
    require_working(files, lambda images, texts: encoder.embed_images(images) @ encoder.embed_texts(texts).T)
    return encoder


OLD_END = 2  # in the first configurations of CLIP; the network then uses the highest id as end token


def _require_end(files: ModelFiles, config: Any, reader: TextReader) -> None:
    """Raise an error if the tokenizer writes no end token: CLIP would use the first state, equal for all texts."""
    written, end = reader.token_ids([""])[0], config.eos_token_id
    if len(written) < 2 or (written[-1] != max(written) if end == OLD_END else end not in written):
        raise CrossmatchError(
            f"{files.folder}: the tokenizer returns {written} for an empty text, without the end token {end} that the network "
            "needs. Download the tokenizer that belongs to the model."
        )
