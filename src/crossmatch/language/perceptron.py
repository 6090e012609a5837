"""The averaged perceptron tagger (honnibal2013good), for many texts at once, in whole numbers."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError, MissingDependency

NEVER = -(1 << 30)
Ints = NDArray[np.int32]
Places = NDArray[np.int64]
PACKAGE, MODEL = "textblob_aptagger", "trontagger-0.1.0.pickle"
BEFORE, AFTER = ("-START-", "-START2-"), ("-END-", "-END2-")
FIRST = (".", "NN")  # the tags before a text: the model was trained on running text, where the sentence before ended with them


@dataclass(frozen=True, eq=False)
class Perceptron:
    """Weights in thousandths, so that sums are exact and no order of addition changes a tag.

    `weights[0]` is all zero and stands for every feature that the model does not know.
    """

    tags: tuple[str, ...]  # from the last of the alphabet: the first of equal scores is then the one that the model's author takes
    rows: dict[str, int]
    weights: Ints  # (features, tags)
    after_tag: dict[str, list[tuple[int, int]]]  # word -> [(tag before it, row)]
    certain: dict[str, int]  # words with one tag only

    @classmethod
    def of(cls, weights: dict[str, dict[str, float]], certain: dict[str, str], tags: set[str]) -> Perceptron:
        order = tuple(sorted(tags, reverse=True))
        column = {tag: n for n, tag in enumerate(order)}
        rows = {feature: n for n, feature in enumerate(weights, start=1)}
        table = np.zeros((len(rows) + 1, len(order)), dtype=np.int32)
        cells = [(n, column[tag], weight) for n, row in enumerate(weights.values(), start=1) for tag, weight in row.items()]
        at, to, value = (np.array(part) for part in zip(*cells, strict=True))
        table[at, to] = np.rint(1000 * value)
        after: dict[str, list[tuple[int, int]]] = {}
        for feature, row in rows.items():
            if feature.startswith("i-1 tag+i word "):
                tag, _, word = feature.removeprefix("i-1 tag+i word ").partition(" ")
                if tag in column:
                    after.setdefault(word, []).append((column[tag], row))
        return cls(order, rows, table, after, {word: column[tag] for word, tag in certain.items()})

    @cached_property
    def by_tags(self) -> Ints:
        """What the tag before and the tag before that add to the scores: (tag before, tag before that, tag)."""
        one = self.sums([(f"i-1 tag {tag}",) for tag in self.tags])
        two = self.sums([(f"i-2 tag {tag}",) for tag in self.tags])
        both = self.sums([(f"i tag+i-2 tag {tag} {early}",) for tag in self.tags for early in self.tags])
        return one[:, None] + two[None, :] + both.reshape(len(one), len(two), -1)

    def sums(self, features: Sequence[tuple[str, ...]]) -> Ints:
        """For each tuple of features, the sum of their weights."""
        found = np.array([[self.rows.get(name, 0) for name in names] for names in features])
        return np.asarray(self.weights[found].sum(axis=1), dtype=np.int32)

    def tag(self, texts: Sequence[Sequence[str]], impossible: Callable[[str], frozenset[str]]) -> list[list[str]]:
        """The tags of many tokenised texts, a tag of `impossible(word)` only where the word has one tag in the model.

        All first words are tagged, then all second words, and so on, as a tag depends on the two before it.
        """
        if not any(texts):
            return [[] for _ in texts]
        order = sorted(range(len(texts)), key=lambda n: -len(texts[n]))
        lengths = np.array([len(texts[n]) for n in order])
        raw = {word: n for n, word in enumerate(sorted({word for text in texts for word in text} | {*BEFORE, *AFTER}))}
        number = np.zeros((len(texts), int(lengths[0]) + 4), dtype=np.int64)
        for at, n in enumerate(order):
            padded = [*BEFORE, *texts[n], *AFTER]
            number[at, : len(padded)] = [raw[word] for word in padded]
        by_word, row_after, certain = self._words(list(raw), impossible)
        found = np.zeros((len(texts), int(lengths[0]) + 2), dtype=np.int64)
        found[:, 1], found[:, 0] = (self.tags.index(tag) for tag in FIRST)
        for at in range(int(lengths[0])):
            many = int((lengths > at).sum())
            word, last, early = number[:many, at + 2], found[:many, at + 1], found[:many, at]
            scores = self.by_tags[last, early] + self.weights[row_after[last, word]]
            for step, sums in by_word.items():
                scores += sums[number[:many, at + 2 + step]]
            found[:many, at + 2] = np.where(certain[word] < 0, scores.argmax(axis=1), certain[word])
        out: list[list[str]] = [[] for _ in texts]
        for at, n in enumerate(order):
            out[n] = [self.tags[tag] for tag in found[at, 2 : 2 + int(lengths[at])]]
        return out

    def _words(self, raw: Sequence[str], impossible: Callable[[str], frozenset[str]]) -> tuple[dict[int, Ints], Places, Places]:
        """What each word adds to scores: its own and its neighbours', by distance; after each tag (a row); its only tag or -1."""
        plain = [word if word in (*BEFORE, *AFTER) else normalised(word) for word in raw]
        pairs = list(zip(raw, plain, strict=True))
        here = self.sums([("bias", f"i suffix {word[-3:]}", f"i pref1 {word[:1]}", f"i word {norm}") for word, norm in pairs])
        column = {tag: n for n, tag in enumerate(self.tags)}
        row_after = np.zeros((len(self.tags), len(raw)), dtype=np.int64)
        for n, (word, norm) in enumerate(pairs):
            here[n, [column[tag] for tag in impossible(word)]] = NEVER
            for tag, row in self.after_tag.get(norm, ()):
                row_after[tag, n] = row
        by_word = {
            0: here,
            -1: self.sums([(f"i-1 word {norm}", f"i-1 suffix {norm[-3:]}") for norm in plain]),
            -2: self.sums([(f"i-2 word {norm}",) for norm in plain]),
            1: self.sums([(f"i+1 word {norm}", f"i+1 suffix {norm[-3:]}") for norm in plain]),
            2: self.sums([(f"i+2 word {norm}",) for norm in plain]),
        }
        return by_word, row_after, np.array([self.certain.get(word, -1) for word in raw])


def normalised(word: str) -> str:
    """The word as the model's features have it."""
    if "-" in word and not word.startswith("-"):
        return "!HYPHEN"
    if word.isdigit() and len(word) == 4:
        return "!YEAR"
    return "!DIGITS" if word[:1].isdigit() else word.lower()


@cache
def perceptron() -> Perceptron:
    """The model that the package `textblob-aptagger` carries, trained on the Wall Street Journal (marcus1993building).

    Only its file is used: the package itself imports a part of TextBlob that later versions do not have.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / MODEL).is_file():
            with (Path(place) / MODEL).open("rb") as file:
                return Perceptron.of(*PlainUnpickler(file).load())
    raise MissingDependency("textblob-aptagger", "language")


class PlainUnpickler(pickle.Unpickler):
    """Reads dictionaries, sets, texts and numbers, and nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("__builtin__", "set"), ("builtins", "set")):
            return set
        raise CrossmatchError(
            f"{MODEL} of textblob-aptagger asks for {module}.{name}, but holds plain data only. Install it again."
        )
