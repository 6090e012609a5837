"""Image-text matching heads of transformers: BLIP, ViLT, BridgeTower. They score an image and a text together.

BLIP's score is that of transformers' forward pass, which differs from the evaluation that was released with BLIP:

                         itm (here as in transformers)       released (as BLIP's train_retrieval.py)
    first token          [CLS]                               [ENC], with which the head was trained
    most tokens          as many as the network has          35
    score of a pair      P(match)                            the head's logit of a match + the cosine of the two towers
    pairs                all                                 here all; there the best k by the cosine alone (COCO: 256)

`hf:NAME,released` computes the second. Published numbers of BLIP can be compared with that one only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.models.adapters.transformers.input_batches import (
    IMAGES,
    UNBOUNDED,
    Inputs,
    ReadsTexts,
    TextReader,
    count_positions,
    find_distinct,
    group_by_length,
    preprocess_images,
    require_pairs,
    score_all_pairs,
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

PAIRS = 32  # in a batch
SEED = 0
RELEASED = 35  # tokens that BLIP's released evaluation reads


def _match_blip(net: Any, encoded: Inputs, tokens: Inputs) -> Any:
    """The text encoder with cross-attention to the image, then the head after [CLS], as in BlipForImageTextRetrieval.

    Source: li2022blip, sec. 3.2, ITM, which uses [ENC] instead.
    """
    states = net.text_encoder(**tokens, encoder_hidden_states=encoded["states"]).last_hidden_state
    return net.itm_head(states[:, 0])


def _match_blip_released(enc: int, net: Any, encoded: Inputs, tokens: Inputs) -> Tensor:
    """The score of BLIP's released evaluation: l_match(image, text after [ENC]) + cos(image, text after [CLS])."""
    ids = tokens["input_ids"].clone()
    ids[:, 0] = enc
    match_logit = _match_blip(net, encoded, {**tokens, "input_ids": ids})[:, 1]
    image = normalize(net.vision_proj(encoded["states"][:, 0]), dim=1)
    text = normalize(net.text_proj(net.text_encoder(**tokens).last_hidden_state[:, 0]), dim=1)
    return torch.unsqueeze(match_logit + (image * text).sum(dim=1), 1)


def find_enc_token(files: ModelFiles, tokenizer: Any, config: Any) -> int:
    """Return the id of [ENC]. If the tokenizer lacks it, it follows [DEC], the first token of a caption: BLIP added both."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    number = vocabulary.get("[ENC]", int(config.bos_token_id) + 1)
    if not number < config.vocab_size or (number in vocabulary.values() and "[ENC]" not in vocabulary):
        raise CrossmatchError(
            f"{files.folder}: the vocabulary has no [ENC], the first token in BLIP's released evaluation. Remove ,released."
        )
    return number


@dataclass(frozen=True)
class MatchingArchitecture:
    """How an architecture scores pairs. By default its forward pass takes the pixels of an image."""

    encode_image: Callable[[Any, Inputs], Inputs] = lambda net, pixels: pixels  # computed once for each image
    match: Callable[[Any, Inputs, Inputs], Any] = lambda net, pixels, tokens: net(**pixels, **tokens).logits
    text_config: str = ""  # name of the text network's configuration; empty if it has none of its own
    longest: int = UNBOUNDED  # tokens that are read, if fewer than the network has positions for


ARCHITECTURES: Mapping[str, MatchingArchitecture] = {
    "BlipForImageTextRetrieval": MatchingArchitecture(
        lambda net, pixels: {"states": net.vision_model(**pixels).last_hidden_state}, _match_blip, "text_config"
    ),
    "BridgeTowerForImageAndTextRetrieval": MatchingArchitecture(text_config="text_config"),
    "ViltForImageAndTextRetrieval": MatchingArchitecture(),  # image and text share all layers
}


def match_scores(logits: Tensor) -> FloatArray:
    """Convert the logits of a matching head to scores, in float64, so that near-certain pairs still differ.

        two numbers (no match, match):  P(match) = exp(l₁) / (exp(l₀) + exp(l₁))          one number:  itself

    Source: li2022blip, sec. 3.2, ITM; kim2021vilt (ranks by the number itself).

    >>> match_scores(torch.tensor([[0.0, 0.0], [-20.0, 20.0]])).tolist(), match_scores(torch.tensor([[1.5]])).tolist()
    ([0.5, 1.0], [1.5])
    """
    wide = logits.double()
    return np.asarray((wide.softmax(dim=1)[:, 1] if wide.shape[1] == 2 else wide[:, 0]).numpy(), dtype=np.float64)


class MatchingModel(ReadsTexts):
    """A cross encoder. A score depends on its batch only by rounding: only images of equal shape share a batch."""

    def __init__(self, net: Any, reader: TextReader, processor: Any, signature: str, matching: MatchingArchitecture) -> None:
        self.net, self.reader, self.processor, self.signature, self.matching = net, reader, processor, signature, matching

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Score every image with every text: (images, texts)."""
        return score_all_pairs(images, texts, self.score_pairs)

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Score image n with text n."""
        require_pairs(images, texts)
        (distinct_images, image_index), (distinct_texts, text_index) = find_distinct(images), find_distinct(texts)
        pairs, pair_index = np.unique(np.stack([image_index, text_index], axis=1), axis=0, return_inverse=True)
        return self._score(distinct_images, distinct_texts, pairs[:, 0], pairs[:, 1])[pair_index.ravel()]

    def _score(self, images: list[Image], texts: list[str], image_index: IntArray, text_index: IntArray) -> FloatArray:
        """Encode some images at a time, then score all their pairs, grouped by the length of the text."""
        token_ids = self.reader.token_ids(texts)
        lengths = np.asarray([len(row) for row in token_ids], dtype=np.int64)
        out = np.empty(len(image_index))
        # ViLT shuffles its patches (each keeps its position); a fixed seed keeps that independent of other random numbers.
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            for start in range(0, len(images), IMAGES):
                for positions, pixels in stack_by_shape(preprocess_images(self.processor, images[start : start + IMAGES])):
                    encoded = self.matching.encode_image(self.net, pixels)
                    row_of_image = {start + n: row for row, n in enumerate(positions)}
                    candidates = np.flatnonzero(np.isin(image_index, list(row_of_image)))
                    for part in group_by_length(lengths[text_index[candidates]].tolist(), PAIRS):
                        pairs = candidates[part]
                        rows = torch.tensor([row_of_image[int(n)] for n in image_index[pairs]])
                        image_inputs = {name: values[rows] for name, values in encoded.items()}
                        tokens = self.reader.inputs([token_ids[n] for n in text_index[pairs]])
                        out[pairs] = match_scores(self.matching.match(self.net, image_inputs, tokens))
        return out


def load_matching_model(files: ModelFiles, architecture: str, released: bool = False) -> MatchingModel:
    """Load a model with a matching head; `released` scores as in the evaluation that was released with BLIP."""
    net, tokenizer, matching = load_network(files, architecture), load_tokenizer(files), ARCHITECTURES[architecture]
    if released:
        enc = find_enc_token(files, tokenizer, net.config.text_config)
        matching = replace(matching, match=partial(_match_blip_released, enc), longest=RELEASED)
    if hasattr(net.config, "max_image_length"):
        net.config.max_image_length = -1  # or ViLT would drop random patches of large images, as in training
    positions = count_positions(getattr(net.config, matching.text_config, net.config))
    reader = TextReader.from_limits(tokenizer, min(positions, matching.longest))
    signature = make_signature(files, "released" if released else "itm", net, reader.longest)
    model = MatchingModel(net, reader, load_image_processor(files), signature, matching)
    require_working(files, model.score)
    return model


load_released_matching_model = partial(load_matching_model, released=True)
