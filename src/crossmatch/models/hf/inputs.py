"""What a network of transformers is given: texts as numbers, images as numbers, in batches that do not change a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

Inputs = Mapping[str, Tensor]  # by the names of the network's arguments; the items are the first axis of each

TEXTS = 64  # in a batch
IMAGES = 16
UNBOUNDED = 1 << 20  # transformers says 10^30 where a tokenizer knows no limit
OFFSET = ("roberta", "xlm-roberta", "camembert", "altclip_text_model", "bridgetower_text_model")  # positions begin after padding's


def positions(config: Any) -> int:
    """How many tokens a text network has places for."""
    held = getattr(config, "max_position_embeddings", None)
    if not isinstance(held, int) or held <= 0:
        return UNBOUNDED
    padding = getattr(config, "pad_token_id", None)
    return held - (int(padding if padding is not None else 1) + 1 if config.model_type in OFFSET else 0)


@dataclass(frozen=True, eq=False)
class Reader:
    """Texts as token numbers, at most `longest` of them; a longer text is cut, its end token stays.

    `filled`: each text is filled up to `longest`, and the network looks at the filling, as SigLIP was trained; else texts are
    filled up to the longest of the batch, and a mask says what is real. `end` is put after each text where the tokenizer puts
    nothing.
    """

    tokenizer: Any
    longest: int
    filled: bool = False
    lower: bool = False
    end: int | None = None

    @classmethod
    def of(cls, tokenizer: Any, places: int, **how: Any) -> Reader:
        """As long as both the tokenizer and the network allow."""
        return cls(tokenizer, min(int(min(tokenizer.model_max_length, UNBOUNDED)), places), **how)

    def numbers(self, texts: Sequence[str]) -> list[list[int]]:
        """The token numbers of each text, cut."""
        last = [] if self.end is None else [self.end]
        return [[*row, *last] for row in self._encoded(texts, truncation=True, max_length=self.longest - len(last))]

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts are cut."""
        room = self.longest - (self.end is not None)
        return np.asarray([len(row) > room for row in self._encoded(texts, truncation=False)], dtype=np.bool_)

    def _encoded(self, texts: Sequence[str], **how: Any) -> list[list[int]]:
        given = [text.lower() if self.lower else text for text in texts]
        found: list[list[int]] = self.tokenizer(given, padding=False, verbose=False, **how)["input_ids"] if given else []
        return found

    def inputs(self, numbers: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        """One batch: `input_ids`, and `attention_mask` unless filling is looked at."""
        if not self.filled:
            ids, real = padded(numbers, self.tokenizer.pad_token_id or 0)
            return {"input_ids": ids, "attention_mask": real}
        left = self.tokenizer.padding_side == "left"
        fill = [[self.tokenizer.pad_token_id] * (self.longest - len(row)) for row in numbers]
        return {"input_ids": torch.tensor([[*f, *n] if left else [*n, *f] for n, f in zip(numbers, fill, strict=True)])}


def padded(rows: Sequence[Sequence[int]], fill: int) -> tuple[Tensor, Tensor]:
    """Rows of numbers filled up on the right to one length, and a 1 for each that is real.

    >>> [t.tolist() for t in padded([[5, 6], [7]], fill=0)]
    [[[5, 6], [7, 0]], [[1, 1], [1, 0]]]
    """
    longest = max(map(len, rows), default=0)
    out = torch.full((len(rows), longest), fill, dtype=torch.int64)
    real = torch.zeros((len(rows), longest), dtype=torch.int64)
    for filled, mask, row in zip(out, real, rows, strict=True):
        filled[: len(row)] = torch.tensor(row, dtype=torch.int64)
        mask[: len(row)] = 1
    return out, real


def alike(lengths: Sequence[int], most: int = TEXTS) -> Iterator[IntArray]:
    """The places of all items, `most` at a time, those of like length together, so that little is padding.

    >>> [part.tolist() for part in alike([3, 1, 2], most=2)]
    [[1, 2], [0]]
    """
    order = np.argsort(np.asarray(lengths, dtype=np.int64), kind="stable")
    yield from (order[at : at + most] for at in range(0, len(order), most))


def distinct(items: Sequence[Any]) -> tuple[list[Any], IntArray]:
    """Each different item once, and which of them each is; images are told apart as objects.

    An item that was looked at twice could differ in its last bits, and a tie would be broken by rounding.

    >>> distinct(["a", "b", "a"])
    (['a', 'b'], array([0, 1, 0]))
    """
    keys = [item if isinstance(item, str) else id(item) for item in items]
    first = dict(zip(keys, items, strict=True))
    number = {key: n for n, key in enumerate(first)}
    return list(first.values()), np.asarray([number[key] for key in keys], dtype=np.int64)


def pixels_of(processor: Any, images: Sequence[Image]) -> list[dict[str, Tensor]]:
    """What the image processor makes of each image, by itself: no image is filled up for another's sake."""
    made = [processor(images=image.convert("RGB"), return_tensors="pt") for image in images]
    return [{name: values for name, values in one.items() if isinstance(values, Tensor)} for one in made]


def stacked(pixels: Sequence[Inputs], most: int = IMAGES) -> list[tuple[list[int], dict[str, Tensor]]]:
    """Images of one shape together, `most` at a time: their places, and one batch."""
    shapes: dict[tuple[Any, ...], list[int]] = {}
    for n, one in enumerate(pixels):
        shapes.setdefault(tuple((name, tuple(values.shape)) for name, values in sorted(one.items())), []).append(n)
    parts = [places[at : at + most] for places in shapes.values() for at in range(0, len(places), most)]
    return [(part, {name: torch.cat([pixels[n][name] for n in part]) for name in pixels[part[0]]}) for part in parts]


def require_pairs(images: Sequence[Any], texts: Sequence[Any]) -> None:
    """Refuse images and texts that do not come in pairs."""
    if len(images) != len(texts):
        raise CrossmatchError(f"{len(images):,} images and {len(texts):,} texts are no pairs. Give image n with text n.")
