"""Inputs of the zoo's networks: region features of images, and word numbers of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from crossmatch.models.baselines.small_dual_encoder import split_words

PAD, UNKNOWN, BEGIN, END, FIRST_WORD = range(5)
MAX_WORDS = 60  # words of a text that a network reads; longer texts are truncated, and reports count them


@dataclass(frozen=True, eq=False)
class Regions:
    """Regions of N images, padded to K each.

    Attributes:
        features: (N, K, F); 0 at padding.
        mask: (N, K) bool; False at padding.
        boxes: (N, K, 4) left, top, right, bottom in fractions of the image; 0 if unknown.
    """

    features: Tensor
    mask: Tensor
    boxes: Tensor

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, which: slice | Tensor) -> Regions:
        return Regions(self.features[which], self.mask[which], self.boxes[which])


@dataclass(frozen=True, eq=False)
class Words:
    """N texts as word numbers (N, L): `BEGIN`, the words, `END`, then `PAD`. No text is empty.

    `BEGIN` and `END` are words like any other, as in the released code of VSE++ and SCAN (faghri2018vse, lee2018scan).
    """

    numbers: Tensor

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: slice | Tensor) -> Words:
        """Select texts, and drop columns that contain padding only."""
        selected = self.numbers[which]
        return Words(selected[:, : int((selected != PAD).sum(dim=1).max())] if len(selected) else selected)

    @property
    def mask(self) -> Tensor:
        """(N, L) bool; False at padding."""
        return self.numbers != PAD

    @property
    def lengths(self) -> Tensor:
        return self.mask.sum(dim=1)


@dataclass(frozen=True)
class Vocabulary:
    """The known words of a model. All other words share one number, `UNKNOWN`.

    Words are runs of letters and digits in lower case. (The released code of VSE++ and SCAN uses nltk tokens, where a full stop
    is a word.)

    >>> vocabulary = Vocabulary.from_texts(["A cat.", "a red cat"])
    >>> vocabulary.encode(["A blue cat", ""]).numbers
    tensor([[2, 4, 1, 5, 3], [2, 3, 0, 0, 0]])
    """

    words: tuple[str, ...]

    @classmethod
    def from_texts(cls, texts: Iterable[str], min_count: int = 1) -> Vocabulary:
        """Collect all words that occur at least `min_count` times, in alphabetical order."""
        count: dict[str, int] = {}
        for text in texts:
            for word in split_words(text):
                count[word] = count.get(word, 0) + 1
        return cls(tuple(sorted(word for word, n in count.items() if n >= min_count)))

    def __len__(self) -> int:
        """Number of word numbers, including the special ones."""
        return FIRST_WORD + len(self.words)

    def encode_rows(self, texts: Sequence[str]) -> list[list[int]]:
        """Word numbers of each text from `BEGIN` to `END`, not truncated."""
        number = {word: n for n, word in enumerate(self.words, start=FIRST_WORD)}
        return [[BEGIN, *(number.get(word, UNKNOWN) for word in split_words(text)), END] for text in texts]

    def encode(self, texts: Sequence[str]) -> Words:
        """Word numbers of all texts as one padded block, each text truncated to `MAX_WORDS` words."""
        rows = [row if len(row) <= MAX_WORDS + 2 else [*row[: MAX_WORDS + 1], END] for row in self.encode_rows(texts)]
        out = np.full((len(rows), max(map(len, rows), default=2)), PAD, dtype=np.int64)
        for padded, row in zip(out, rows, strict=True):
            padded[: len(row)] = row
        return Words(torch.from_numpy(out))
