"""The averaged perceptron tagger (honnibal2013good), for many texts at once, with integer weights."""

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

from crossmatch.data.errors import CrossmatchError, MissingDependencyError

EXCLUDED_SCORE = -(1 << 30)
Ints = NDArray[np.int32]
Indices = NDArray[np.int64]
PACKAGE, MODEL = "textblob_aptagger", "trontagger-0.1.0.pickle"
PADDING_BEFORE, PADDING_AFTER = ("-START-", "-START2-"), ("-END-", "-END2-")
TAGS_BEFORE = (".", "NN")  # tags before a text, as at the end of a sentence in the training text


@dataclass(frozen=True, eq=False)
class PerceptronTagger:
    """Weights in thousandths as integers, so that sums are exact in any order.

    Row 0 of `weights` is zero and is used for unknown features. Tags are in descending alphabetical order: then the first of
    equal scores is the one that the original implementation chooses.

    Attributes:
        tags: All tags.
        rows: Row of each feature.
        weights: Weights, features x tags.
        after_tag: For each word the pairs (previous tag, row).
        certain: Words with only one tag.
    """

    tags: tuple[str, ...]
    rows: dict[str, int]
    weights: Ints
    after_tag: dict[str, list[tuple[int, int]]]
    certain: dict[str, int]

    @classmethod
    def from_weights(cls, weights: dict[str, dict[str, float]], certain: dict[str, str], tags: set[str]) -> PerceptronTagger:
        order = tuple(sorted(tags, reverse=True))
        column = {tag: n for n, tag in enumerate(order)}
        rows = {feature: n for n, feature in enumerate(weights, start=1)}
        table = np.zeros((len(rows) + 1, len(order)), dtype=np.int32)
        cells = [(n, column[tag], weight) for n, row in enumerate(weights.values(), start=1) for tag, weight in row.items()]
        row_index, column_index, cell_weights = (np.array(part) for part in zip(*cells, strict=True))
        table[row_index, column_index] = np.rint(1000 * cell_weights)
        after: dict[str, list[tuple[int, int]]] = {}
        for feature, row in rows.items():
            if feature.startswith("i-1 tag+i word "):
                tag, _, word = feature.removeprefix("i-1 tag+i word ").partition(" ")
                if tag in column:
                    after.setdefault(word, []).append((column[tag], row))
        return cls(order, rows, table, after, {word: column[tag] for word, tag in certain.items()})

    @cached_property
    def by_tags(self) -> Ints:
        """Scores added by the two previous tags: (previous tag, tag before it, tag)."""
        previous = self.sums([(f"i-1 tag {tag}",) for tag in self.tags])
        second_previous = self.sums([(f"i-2 tag {tag}",) for tag in self.tags])
        pairs = self.sums([(f"i tag+i-2 tag {tag} {early}",) for tag in self.tags for early in self.tags])
        return previous[:, None] + second_previous[None, :] + pairs.reshape(len(previous), len(second_previous), -1)

    def sums(self, features: Sequence[tuple[str, ...]]) -> Ints:
        """Sum of the weights of each tuple of features."""
        rows = np.array([[self.rows.get(name, 0) for name in names] for names in features])
        return np.asarray(self.weights[rows].sum(axis=1), dtype=np.int32)

    def tag(self, texts: Sequence[Sequence[str]], impossible: Callable[[str], frozenset[str]]) -> list[list[str]]:
        """Tag many tokenised texts. Tags in `impossible(word)` are excluded, unless the model has a single tag for the word.

        All first words are tagged, then all second words, and so on, because a tag depends on the two before it.
        """
        if not any(texts):
            return [[] for _ in texts]
        order = sorted(range(len(texts)), key=lambda n: -len(texts[n]))
        lengths = np.array([len(texts[n]) for n in order])
        word_index = {
            word: n for n, word in enumerate(sorted({word for text in texts for word in text} | {*PADDING_BEFORE, *PADDING_AFTER}))
        }
        word_matrix = np.zeros((len(texts), int(lengths[0]) + 4), dtype=np.int64)
        for position, n in enumerate(order):
            padded = [*PADDING_BEFORE, *texts[n], *PADDING_AFTER]
            word_matrix[position, : len(padded)] = [word_index[word] for word in padded]
        by_word, row_after, certain = self._words(list(word_index), impossible)
        tag_indices = np.zeros((len(texts), int(lengths[0]) + 2), dtype=np.int64)
        tag_indices[:, 1], tag_indices[:, 0] = (self.tags.index(tag) for tag in TAGS_BEFORE)
        for position in range(int(lengths[0])):
            active = int((lengths > position).sum())
            word, last, second_last = (
                word_matrix[:active, position + 2],
                tag_indices[:active, position + 1],
                tag_indices[:active, position],
            )
            scores = self.by_tags[last, second_last] + self.weights[row_after[last, word]]
            for step, sums in by_word.items():
                scores += sums[word_matrix[:active, position + 2 + step]]
            tag_indices[:active, position + 2] = np.where(certain[word] < 0, scores.argmax(axis=1), certain[word])
        tagged: list[list[str]] = [[] for _ in texts]
        for position, n in enumerate(order):
            tagged[n] = [self.tags[tag] for tag in tag_indices[position, 2 : 2 + int(lengths[position])]]
        return tagged

    def _words(self, raw: Sequence[str], impossible: Callable[[str], frozenset[str]]) -> tuple[dict[int, Ints], Indices, Indices]:
        """Scores of each word by distance, rows of features with the previous tag, and the only tag of a word or -1."""
        plain = [word if word in (*PADDING_BEFORE, *PADDING_AFTER) else normalise_word(word) for word in raw]
        pairs = list(zip(raw, plain, strict=True))
        own_scores = self.sums([("bias", f"i suffix {word[-3:]}", f"i pref1 {word[:1]}", f"i word {norm}") for word, norm in pairs])
        column = {tag: n for n, tag in enumerate(self.tags)}
        row_after = np.zeros((len(self.tags), len(raw)), dtype=np.int64)
        for n, (word, norm) in enumerate(pairs):
            own_scores[n, [column[tag] for tag in impossible(word)]] = EXCLUDED_SCORE
            for tag, row in self.after_tag.get(norm, ()):
                row_after[tag, n] = row
        by_word = {
            0: own_scores,
            -1: self.sums([(f"i-1 word {norm}", f"i-1 suffix {norm[-3:]}") for norm in plain]),
            -2: self.sums([(f"i-2 word {norm}",) for norm in plain]),
            1: self.sums([(f"i+1 word {norm}", f"i+1 suffix {norm[-3:]}") for norm in plain]),
            2: self.sums([(f"i+2 word {norm}",) for norm in plain]),
        }
        return by_word, row_after, np.array([self.certain.get(word, -1) for word in raw])


def normalise_word(word: str) -> str:
    """The word as it appears in features."""
    if "-" in word and not word.startswith("-"):
        return "!HYPHEN"
    if word.isdigit() and len(word) == 4:
        return "!YEAR"
    return "!DIGITS" if word[:1].isdigit() else word.lower()


@cache
def load_perceptron() -> PerceptronTagger:
    """Load the model in the package `textblob-aptagger`, trained on the Wall Street Journal (marcus1993building).

    Only its data file is used: the package imports a part of TextBlob that newer versions do not have.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        if (Path(folder) / MODEL).is_file():
            with (Path(folder) / MODEL).open("rb") as file:
                return PerceptronTagger.from_weights(*SafeUnpickler(file).load())
    raise MissingDependencyError("textblob-aptagger", "language")


class SafeUnpickler(pickle.Unpickler):
    """Unpickles dictionaries, sets, strings and numbers, but nothing that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("__builtin__", "set"), ("builtins", "set")):
            return set
        raise CrossmatchError(
            f"{MODEL} of textblob-aptagger contains {module}.{name}, but only plain data is expected. Reinstall the package."
        )
