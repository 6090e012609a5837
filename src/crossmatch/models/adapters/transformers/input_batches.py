"""The inputs of a network of transformers: token ids and pixels, in batches that do not change a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image

Inputs = Mapping[str, Tensor]  # by the names of the network's arguments; the items are the first axis of each

TEXTS = 64  # in a batch
IMAGES = 16
UNBOUNDED = 1 << 20  # transformers reports 10^30 for a tokenizer without a limit
# Networks whose positions begin after that of padding.
OFFSET = ("roberta", "xlm-roberta", "camembert", "altclip_text_model", "bridgetower_text_model")


def count_positions(config: Any) -> int:
    """Return how many tokens a text network has position embeddings for."""
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return UNBOUNDED
    padding = getattr(config, "pad_token_id", None)
    return positions - (int(padding if padding is not None else 1) + 1 if config.model_type in OFFSET else 0)


@dataclass(frozen=True, eq=False)
class TextReader:
    """Converts texts to token ids, at most `longest`; a longer text is truncated, but keeps its end token."""

    tokenizer: Any
    longest: int
    pads_to_longest: bool = False  # without a mask, as SigLIP was trained; else to the longest text of the batch, with a mask
    lowercase: bool = False
    end_token: int | None = None  # appended to each text, if the tokenizer appends none

    @classmethod
    def from_limits(cls, tokenizer: Any, positions: int, **options: Any) -> TextReader:
        """Make a reader of texts as long as both the tokenizer and the network allow."""
        return cls(tokenizer, min(int(min(tokenizer.model_max_length, UNBOUNDED)), positions), **options)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, truncated."""
        end = [] if self.end_token is None else [self.end_token]
        return [[*row, *end] for row in self._encoded(texts, truncation=True, max_length=self.longest - len(end))]

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        room = self.longest - (self.end_token is not None)
        return np.asarray([len(row) > room for row in self._encoded(texts, truncation=False)], dtype=np.bool_)

    def _encoded(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
        lowered = [text.lower() if self.lowercase else text for text in texts]
        return list(self.tokenizer(lowered, padding=False, verbose=False, **options)["input_ids"]) if lowered else []

    def inputs(self, token_ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """Return one batch: `input_ids`, and `attention_mask` unless texts are padded to `longest`."""
        if not self.pads_to_longest:
            ids, mask = pad_rows(token_ids, self.tokenizer.pad_token_id or 0)
            return {"input_ids": ids, "attention_mask": mask}
        left = self.tokenizer.padding_side == "left"
        padding = [[self.tokenizer.pad_token_id] * (self.longest - len(row)) for row in token_ids]
        return {"input_ids": torch.tensor([[*f, *n] if left else [*n, *f] for n, f in zip(token_ids, padding, strict=True)])}


class ReadsTexts:
    """A model whose texts are tokenized by a reader."""

    reader: TextReader

    @property
    def longest(self) -> int:
        """The number of tokens that it reads."""
        return self.reader.longest

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts are truncated."""
        return self.reader.truncated(texts)


def pad_rows(rows: Sequence[Sequence[int]], fill: int) -> tuple[Tensor, Tensor]:
    """Pad rows of numbers on the right to one length, and return a mask with 1 for each number that is not padding.

    >>> [t.tolist() for t in pad_rows([[5, 6], [7]], fill=0)]
    [[[5, 6], [7, 0]], [[1, 1], [1, 0]]]
    """
    longest = max(map(len, rows), default=0)
    out = torch.full((len(rows), longest), fill, dtype=torch.int64)
    mask = torch.zeros((len(rows), longest), dtype=torch.int64)
    for target, mask_row, row in zip(out, mask, rows, strict=True):
        target[: len(row)] = torch.tensor(row, dtype=torch.int64)
        mask_row[: len(row)] = 1
    return out, mask


def group_by_length(lengths: Sequence[int], most: int = TEXTS) -> Iterator[IntArray]:
    """Yield the positions of all items, `most` at a time, sorted by length, so that there is little padding.

    >>> [part.tolist() for part in group_by_length([3, 1, 2], most=2)]
    [[1, 2], [0]]
    """
    order = np.argsort(np.asarray(lengths, dtype=np.int64), kind="stable")
    yield from (order[start : start + most] for start in range(0, len(order), most))


def find_distinct(items: Sequence[Any]) -> tuple[list[Any], IntArray]:
    """Return the distinct items, and the position of each item among them; images are compared as objects.

    If an item were processed twice, its results could differ in the last bits, and rounding would break a tie.

    >>> find_distinct(["a", "b", "a"])
    (['a', 'b'], array([0, 1, 0]))
    """
    keys = [item if isinstance(item, str) else id(item) for item in items]
    first = dict(zip(keys, items, strict=True))
    position = {key: n for n, key in enumerate(first)}
    return list(first.values()), np.asarray([position[key] for key in keys], dtype=np.int64)


def score_all_pairs(
    images: Sequence[Any], texts: Sequence[str], score_pairs: Callable[[list[Any], list[str]], FloatArray]
) -> FloatArray:
    """Score every distinct image with every distinct text by a function of pairs: (images, texts)."""
    (distinct_images, image_index), (distinct_texts, text_index) = find_distinct(images), find_distinct(texts)
    scores = score_pairs([image for image in distinct_images for _ in distinct_texts], distinct_texts * len(distinct_images))
    return scores.reshape(len(distinct_images), len(distinct_texts))[np.ix_(image_index, text_index)]


def preprocess_images(processor: Any, images: Sequence[Image]) -> list[dict[str, Tensor]]:
    """Apply the image processor to each image separately, so that no image is padded because of another."""
    outputs = [processor(images=image.convert("RGB"), return_tensors="pt") for image in images]
    return [{name: values for name, values in output.items() if isinstance(values, Tensor)} for output in outputs]


def stack_by_shape(pixels: Sequence[Inputs], most: int = IMAGES) -> list[tuple[list[int], dict[str, Tensor]]]:
    """Group images of equal shape into batches of at most `most`: their positions, and the batch."""
    shapes: dict[tuple[Any, ...], list[int]] = {}
    for n, image in enumerate(pixels):
        shapes.setdefault(tuple((name, tuple(values.shape)) for name, values in sorted(image.items())), []).append(n)
    parts = [positions[at : at + most] for positions in shapes.values() for at in range(0, len(positions), most)]
    return [(part, {name: torch.cat([pixels[n][name] for n in part]) for name in pixels[part[0]]}) for part in parts]


def require_pairs(images: Sequence[Any], texts: Sequence[Any]) -> None:
    """Raise an error unless there are as many images as texts."""
    if len(images) != len(texts):
        raise CrossmatchError(f"score_pairs needs as many images as texts (got {len(images):,} and {len(texts):,}).")
