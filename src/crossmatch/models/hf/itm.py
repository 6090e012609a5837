"""Image-text matching heads of transformers: BLIP, ViLT, BridgeTower. They look at an image and a text together.

BLIP's score is that of transformers' own forward, which is not the one of the evaluation that was released with BLIP:

                         itm (here as in transformers)       released (as BLIP's train_retrieval.py)
    first token          [CLS]                               [ENC], with which the head was trained
    tokens at most       as many as the network has          35
    score of a pair      P(match)                            the head's logit of a match + the cosine of the two towers
    pairs                all                                 here all; there the best k by the cosine alone (COCO: 256)

`hf:NAME,released` gives the second. Published numbers of BLIP are to be compared with that one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.models.hf.inputs import (
    IMAGES,
    UNBOUNDED,
    Inputs,
    Reader,
    alike,
    distinct,
    pixels_of,
    positions,
    require_pairs,
    stacked,
)
from crossmatch.models.hf.loading import Place, image_processor_of, network, require_fit, system_line, tokenizer_of

try:
    import torch
    from torch import Tensor
    from torch.nn.functional import normalize
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

PAIRS = 32  # in a batch
SEED = 0
RELEASED = 35  # tokens that BLIP's released evaluation reads


def _blip_sees(net: Any, pixels: Inputs) -> Inputs:
    return {"seen": net.vision_model(**pixels).last_hidden_state}


def _blip_matches(net: Any, seen: Inputs, tokens: Inputs) -> Tensor:
    """The text encoder with cross-attention to the image, then the head, as BlipForImageTextRetrieval does it: after [CLS].

    Source: li2022blip, sec. 3.2, ITM, where [ENC] stands in its place.
    """
    states = net.text_encoder(**tokens, encoder_hidden_states=seen["seen"]).last_hidden_state
    logits: Tensor = net.itm_head(states[:, 0])
    return logits


def _blip_released(enc: int, net: Any, seen: Inputs, tokens: Inputs) -> Tensor:
    """One number a pair, as BLIP's released evaluation: l_match(image, text after [ENC]) + cos(image, text after [CLS])."""
    ids = tokens["input_ids"].clone()
    ids[:, 0] = enc
    matched = _blip_matches(net, seen, {**tokens, "input_ids": ids})[:, 1]
    image = normalize(net.vision_proj(seen["seen"][:, 0]), dim=1)
    text = normalize(net.text_proj(net.text_encoder(**tokens).last_hidden_state[:, 0]), dim=1)
    return (matched + (image * text).sum(dim=1)).unsqueeze(1)


def enc_token(place: Place, tokenizer: Any, config: Any) -> int:
    """The number of [ENC]. Where the tokenizer does not know it, it follows [DEC], with which a caption begins: BLIP added both."""
    known: dict[str, int] = tokenizer.get_vocab()
    number = known.get("[ENC]", int(config.bos_token_id) + 1)
    if not number < config.vocab_size or (number in known.values() and "[ENC]" not in known):
        raise CrossmatchError(
            f"{place.folder}: its words have no [ENC], with which BLIP's released evaluation begins a text. Leave ,released out."
        )
    return number


def _as_it_is(net: Any, pixels: Inputs) -> Inputs:
    return pixels


def _matches(net: Any, pixels: Inputs, tokens: Inputs) -> Tensor:
    logits: Tensor = net(**pixels, **tokens).logits
    return logits


@dataclass(frozen=True)
class Matching:
    """How an architecture compares: what is computed once for each image, and what for each pair."""

    sees: Callable[[Any, Inputs], Inputs]
    matches: Callable[[Any, Inputs, Inputs], Tensor]
    text_config: str = ""  # where the configuration of the text network is; empty for the whole one
    longest: int = UNBOUNDED  # tokens that are read, where the network has places for more


MATCHING: Mapping[str, Matching] = {
    "BlipForImageTextRetrieval": Matching(_blip_sees, _blip_matches, "text_config"),
    "BridgeTowerForImageAndTextRetrieval": Matching(_as_it_is, _matches, "text_config"),
    "ViltForImageAndTextRetrieval": Matching(_as_it_is, _matches),  # image and text share one network from the first layer on
}


def match_scores(logits: Tensor) -> FloatArray:
    """What a matching head says, in float64, so that near-certain pairs are still told apart.

        two numbers (no match, match):  P(match) = exp(l₁) / (exp(l₀) + exp(l₁))          one number:  itself

    Source: li2022blip, sec. 3.2, ITM; kim2021vilt (ranks by the number itself).

    >>> match_scores(torch.tensor([[0.0, 0.0], [-20.0, 20.0]])).tolist(), match_scores(torch.tensor([[1.5]])).tolist()
    ([0.5, 1.0], [1.5])
    """
    wide = logits.double()
    return np.asarray((wide.softmax(dim=1)[:, 1] if wide.shape[1] == 2 else wide[:, 0]).numpy(), dtype=np.float64)


class Matcher:
    """A cross encoder. A score depends on what else is in the batch by rounding alone: only images of one shape share a batch."""

    def __init__(self, net: Any, reader: Reader, processor: Any, signature: str, matching: Matching) -> None:
        self.net, self.reader, self.processor, self.signature, self.matching = net, reader, processor, signature, matching

    @property
    def longest(self) -> int:
        """How many tokens it reads."""
        return self.reader.longest

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts are longer than that."""
        return self.reader.truncated(texts)

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Every image with every text: (images, texts)."""
        (pictures, image), (words, text) = distinct(images), distinct(texts)
        rows, columns = np.divmod(np.arange(len(pictures) * len(words)), max(1, len(words)))
        found = self._pairs(pictures, words, rows, columns).reshape(len(pictures), len(words))
        return found[np.ix_(image, text)]

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> FloatArray:
        """Image n with text n."""
        require_pairs(images, texts)
        (pictures, image), (words, text) = distinct(images), distinct(texts)
        asked, where = np.unique(np.stack([image, text], axis=1), axis=0, return_inverse=True)
        return self._pairs(pictures, words, asked[:, 0], asked[:, 1])[where.ravel()]

    def _pairs(self, images: list[Image], texts: list[str], image: IntArray, text: IntArray) -> FloatArray:
        """Some images are seen at a time, then asked for all their pairs, those of like length together."""
        numbers = self.reader.numbers(texts)
        lengths = np.asarray([len(row) for row in numbers], dtype=np.int64)
        out = np.empty(len(image))
        # ViLT shuffles its patches (each keeps its position), which must neither depend on others' random numbers nor disturb them
        with torch.inference_mode(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            for start in range(0, len(images), IMAGES):
                for places, pixels in stacked(pixels_of(self.processor, images[start : start + IMAGES])):
                    seen = self.matching.sees(self.net, pixels)
                    row = {start + n: at for at, n in enumerate(places)}
                    asked = np.flatnonzero(np.isin(image, list(row)))
                    for part in alike(lengths[text[asked]].tolist(), PAIRS):
                        pairs = asked[part]
                        at = torch.tensor([row[int(n)] for n in image[pairs]])
                        given = {name: values[at] for name, values in seen.items()}
                        tokens = self.reader.inputs([numbers[n] for n in text[pairs]])
                        out[pairs] = match_scores(self.matching.matches(self.net, given, tokens))
        return out


def matcher(place: Place, architecture: str, released: bool = False) -> Matcher:
    """A model with a matching head; BLIP's may be asked as the evaluation does that was released with it."""
    net, tokenizer, matching = network(place, architecture), tokenizer_of(place), MATCHING[architecture]
    if released:
        begin = enc_token(place, tokenizer, net.config.text_config)
        matching = replace(matching, matches=partial(_blip_released, begin), longest=RELEASED)
    if hasattr(net.config, "max_image_length"):
        net.config.max_image_length = -1  # else ViLT would drop patches of large images at random, as in training
    places = positions(getattr(net.config, matching.text_config, net.config))
    reader = Reader.of(tokenizer, min(places, matching.longest))
    signature = system_line(place, "released" if released else "itm", net, reader.longest)
    made = Matcher(net, reader, image_processor_of(place), signature, matching)
    require_fit(place, made.score)
    return made
