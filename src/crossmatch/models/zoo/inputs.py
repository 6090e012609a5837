"""What the zoo's networks are given: some images as sets of region features, some texts as rows of word numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crossmatch.core.errors import MissingDependency
from crossmatch.models.dual import words

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

PAD, UNKNOWN, BEGIN, END, FIRST_WORD = range(5)
LONGEST = 60  # words of a text that are read; the rest is cut off, and counted


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of N images, at most K each, as features (N, K, F); absent ones are 0.

    `boxes` (N, K, 4) are left, top, right, bottom in fractions of the picture, 0 where they are not known.
    """

    features: Tensor
    real: Tensor  # (N, K) bool
    boxes: Tensor

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, which: slice | Tensor) -> Regions:
        return Regions(self.features[which], self.real[which], self.boxes[which])


@dataclass(frozen=True, eq=False)
class Words:
    """N texts as word numbers (N, L): `BEGIN`, the words, `END`, then `PAD`. No text is empty, since it has a beginning and an end.

    As in the released code of VSE++ and SCAN, where beginning and end are words like any other (faghri2018vse, lee2018scan).
    """

    numbers: Tensor

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: slice | Tensor) -> Words:
        """Some of the texts, without columns that none of them needs."""
        few = self.numbers[which]
        return Words(few[:, : int((few != PAD).sum(dim=1).max())] if len(few) else few)

    @property
    def real(self) -> Tensor:
        """(N, L): which are words, and not filling."""
        return self.numbers != PAD

    @property
    def lengths(self) -> Tensor:
        return self.real.sum(dim=1)


@dataclass(frozen=True)
class Vocabulary:
    """The words that a model knows; all others are one unknown word.

    Words are runs of letters and digits in lower case. The released code of VSE++ and SCAN takes the tokens of nltk, in which a
    full stop is a word.

    >>> known = Vocabulary.of(["A cat.", "a red cat"])
    >>> known.numbered(["A blue cat", ""]).numbers
    tensor([[2, 4, 1, 5, 3], [2, 3, 0, 0, 0]])
    """

    words: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str], fewest: int = 1) -> Vocabulary:
        """All words that occur at least `fewest` times, by alphabet."""
        count: dict[str, int] = {}
        for text in texts:
            for word in words(text):
                count[word] = count.get(word, 0) + 1
        return cls(tuple(sorted(word for word, n in count.items() if n >= fewest)))

    def __len__(self) -> int:
        """How many numbers there are, those with a meaning of their own included."""
        return FIRST_WORD + len(self.words)

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of each text between `BEGIN` and `END`, however long it is."""
        number = {word: n for n, word in enumerate(self.words, start=FIRST_WORD)}
        return [[BEGIN, *(number.get(word, UNKNOWN) for word in words(text)), END] for text in texts]

    def numbered(self, texts: Sequence[str]) -> Words:
        """The texts as a block of numbers, each cut to `LONGEST` words."""
        rows = [row if len(row) <= LONGEST + 2 else [*row[: LONGEST + 1], END] for row in self.rows(texts)]
        out = np.full((len(rows), max(map(len, rows), default=2)), PAD, dtype=np.int64)
        for filled, row in zip(out, rows, strict=True):
            filled[: len(row)] = row
        return Words(torch.from_numpy(out))
