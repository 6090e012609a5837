"""Random choices that are the same on every machine and with every library version."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

_MASK = (1 << 64) - 1
T = TypeVar("T")


class Dice:
    """SplitMix64 (steele2014fast) over plain integers, seeded by anything that has a `repr`.

    NumPy keeps the raw bits of its generators stable, but not its distributions; a benchmark needs both.

    >>> Dice("world", 7).below(6) == Dice("world", 7).below(6)
    True
    """

    __slots__ = ("_state",)

    def __init__(self, *seed: object) -> None:
        self._state = int.from_bytes(hashlib.blake2b(repr(seed).encode(), digest_size=8).digest(), "little")

    def bits(self) -> int:
        """The next 64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, n: int) -> int:
        """A random integer in 0 .. n - 1 (with a negligible bias of n / 2^64)."""
        return (self.bits() * n) >> 64

    def between(self, low: int, high: int) -> int:
        """A random integer in low .. high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def pick(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def weighted(self, items: Sequence[T], weights: Sequence[int]) -> T:
        """A random item, with integer weights."""
        at = self.below(sum(weights))
        for item, weight in zip(items, weights, strict=True):
            at -= weight
            if at < 0:
                return item
        raise AssertionError("unreachable: weights sum to more than `at`")

    def shuffled(self, items: Sequence[T]) -> list[T]:
        out = list(items)
        for i in range(len(out) - 1, 0, -1):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out
