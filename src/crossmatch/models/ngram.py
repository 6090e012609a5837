"""A word trigram language model with interpolated Kneser-Ney smoothing: how likely a caption is, whatever it describes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crossmatch.core.errors import CrossmatchError

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # captions have both apostrophes
ORDER = 3
START, END, UNKNOWN = "<s>", "</s>", "<unk>"

Gram = tuple[str, ...]


def tokens(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation.

    >>> tokens("A dog's T-shirt, 2 cats.")
    ['a', "dog's", 't', 'shirt', '2', 'cats']
    """
    return WORD.findall(text.lower())


@dataclass(frozen=True, eq=False)
class Level:
    """The counts of the n-grams of one length by their context: their sum, and the discount of each."""

    follow: Mapping[Gram, Mapping[str, int]] = field(repr=False)
    total: Mapping[Gram, int] = field(repr=False)
    discount: float

    @classmethod
    def of(cls, counts: Mapping[Gram, int]) -> Level:
        follow: dict[Gram, dict[str, int]] = {}
        for gram, count in counts.items():
            follow.setdefault(gram[:-1], {})[gram[-1]] = count
        seen = Counter(counts.values())
        # D = n_1 / (n_1 + 2 n_2); a handful of captions may have no n-gram that occurs once, or none that occurs twice.
        discount = seen[1] / (seen[1] + 2 * seen[2]) if seen[1] and seen[2] else 0.5
        return cls(follow, {context: sum(words.values()) for context, words in follow.items()}, discount)


@dataclass(frozen=True, eq=False)
class NgramModel:
    """How likely a text is, word by word, each given the two before it.

        P(w | uv) = max(c(uvw) - D, 0) / c(uv·) + D N(uv·) / c(uv·) · P(w | v),    D = n_1 / (n_1 + 2 n_2)

    c counts occurrences at the highest order; below it, c(vw) is the number of different words seen before vw, and c(w) of those
    before w, except after the start of a text, where nothing stands before (and occurrences are counted). N(uv·) is the number of
    different words seen after uv, n_1 and n_2 that of n-grams counted once and twice, at each order. Under P(w) lies the uniform
    distribution over all known words, the end of a text, and one word that stands for all unknown ones. A text is its words and
    its end, so that the probabilities of all texts sum to 1.

    Source: kneser1995improved; chen1999empirical, sec. 2.7, for the interpolated form.

    >>> model = NgramModel.fit(["A cat sits.", "A dog sits.", "A dog runs."])
    >>> likely, odd = (model.log_likelihood(text) for text in ("A dog sits.", "Sits dog a."))
    >>> likely > odd, model.length("A dog sits.")
    (True, 4)
    """

    levels: tuple[Level, ...] = field(repr=False)  # of n-grams of length 1, 2, …
    words: frozenset[str] = field(repr=False)
    texts: frozenset[Gram] = field(repr=False)

    @classmethod
    def fit(cls, texts: Iterable[str], order: int = ORDER) -> NgramModel:
        known = Counter(tuple(tokens(text)) for text in texts)
        known.pop((), None)
        if not known:
            raise CrossmatchError("there are no words to learn from. Give captions, one on each line.")
        counts: list[Counter[Gram]] = [Counter() for _ in range(order)]
        for text, times in known.items():
            line = (START, *text, END)
            for end in range(2, len(line) + 1):
                longest = line[max(0, end - order) : end]
                counts[len(longest) - 1][longest] += times
        for n in range(order - 1, 0, -1):  # whatever has a word before it counts its different words
            for gram in counts[n]:
                counts[n - 1][gram[1:]] += 1
        words = frozenset(word for text in known for word in text)
        return cls(tuple(Level.of(count) for count in counts), words, frozenset(known))

    @property
    def vocabulary(self) -> frozenset[str]:
        """Everything that can follow: the words, the end of the text, and the unknown word."""
        return self.words | {END, UNKNOWN}

    def probability(self, word: str, context: Sequence[str]) -> float:
        """Of this word after this context, of which the last words count. A text begins after `START` and finishes with `END`."""
        known, longest = self.words, len(self.levels) - 1
        before = tuple(w if w in known or w == START else UNKNOWN for w in context[max(0, len(context) - longest) :])
        return self._probability(word if word in known or word == END else UNKNOWN, before)

    def _probability(self, word: str, context: Gram) -> float:
        out = 1 / (len(self.words) + 2)
        for n, level in enumerate(self.levels[: len(context) + 1]):
            given = context[len(context) - n :]
            total = level.total.get(given)
            if total is None:  # a context that was never seen is in no longer one
                break
            follow = level.follow[given]
            count = follow.get(word, 0)
            out = (max(count - level.discount, 0.0) + level.discount * len(follow) * out) / total
        return out

    def log_likelihood(self, text: str) -> float:
        """The natural logarithm of the probability of the whole text."""
        known, longest = self.words, len(self.levels) - 1
        line = (START, *(word if word in known else UNKNOWN for word in tokens(text)), END)
        return math.fsum(math.log(self._probability(line[n], line[max(0, n - longest) : n])) for n in range(1, len(line)))

    def length(self, text: str) -> int:
        """The number of probabilities that the likelihood is a product of: the words and the end."""
        return len(tokens(text)) + 1

    def has(self, text: str) -> bool:
        """Whether the model was fitted on this very text, but for case and punctuation."""
        return tuple(tokens(text)) in self.texts
