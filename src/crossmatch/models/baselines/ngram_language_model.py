"""A word trigram language model with interpolated Kneser-Ney smoothing: the likelihood of a caption without its image."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crossmatch.data.errors import CrossmatchError

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")  # captions have both apostrophes
ORDER = 3
START, END, UNKNOWN = "<s>", "</s>", "<unk>"

Gram = tuple[str, ...]


def tokenize(text: str) -> list[str]:
    """Split a text into lower-case words without punctuation.

    >>> tokenize("A dog's T-shirt, 2 cats.")
    ['a', "dog's", 't', 'shirt', '2', 'cats']
    """
    return WORD.findall(text.lower())


@dataclass(frozen=True, eq=False)
class NgramCounts:
    """The counts of the n-grams of one length by context, their sum for each context, and the discount."""

    follow: Mapping[Gram, Mapping[str, int]] = field(repr=False)
    total: Mapping[Gram, int] = field(repr=False)
    discount: float

    @classmethod
    def from_counts(cls, counts: Mapping[Gram, int]) -> NgramCounts:
        """Group counts of n-grams by context."""
        follow: dict[Gram, dict[str, int]] = {}
        for gram, count in counts.items():
            follow.setdefault(gram[:-1], {})[gram[-1]] = count
        frequency = Counter(counts.values())
        # D = n_1 / (n_1 + 2 n_2); a few captions may have no n-gram that occurs once, or none that occurs twice.
        discount = frequency[1] / (frequency[1] + 2 * frequency[2]) if frequency[1] and frequency[2] else 0.5
        return cls(follow, {context: sum(words.values()) for context, words in follow.items()}, discount)


@dataclass(frozen=True, eq=False)
class NgramModel:
    """The likelihood of a text, word by word, each given the two words before it.

        P(w | uv) = max(c(uvw) - D, 0) / c(uv·) + D N(uv·) / c(uv·) · P(w | v),    D = n_1 / (n_1 + 2 n_2)

    At the highest order c counts occurrences. Below it, c(vw) is the number of different words seen before vw, and c(w) that of
    those before w, except at the start of a text, where nothing precedes and occurrences are counted. N(uv·) is the number of
    different words seen after uv; n_1 and n_2 are the numbers of n-grams counted once and twice, at each order. P(w) is
    interpolated with the uniform distribution over all known words, the end of a text, and one word for all unknown ones. A text
    is its words and its end, so that the probabilities of all texts sum to 1.

    Source: kneser1995improved; chen1999empirical, sec. 2.7, for the interpolated form.

    >>> model = NgramModel.fit(["A cat sits.", "A dog sits.", "A dog runs."])
    >>> likely, odd = (model.log_likelihood(text) for text in ("A dog sits.", "Sits dog a."))
    >>> likely > odd, model.length("A dog sits.")
    (True, 4)
    """

    levels: tuple[NgramCounts, ...] = field(repr=False)  # of n-grams of length 1, 2, …
    words: frozenset[str] = field(repr=False)
    texts: frozenset[Gram] = field(repr=False)

    @classmethod
    def fit(cls, texts: Iterable[str], order: int = ORDER) -> NgramModel:
        """Fit a model to texts."""
        text_counts = Counter(tuple(tokenize(text)) for text in texts)
        text_counts.pop((), None)
        if not text_counts:
            raise CrossmatchError("the texts for the language model have no words. Give captions, one per line.")
        counts: list[Counter[Gram]] = [Counter() for _ in range(order)]
        for text, times in text_counts.items():
            line = (START, *text, END)
            for end in range(2, len(line) + 1):
                longest = line[max(0, end - order) : end]
                counts[len(longest) - 1][longest] += times
        for n in range(order - 1, 0, -1):  # lower orders count the different words that precede an n-gram
            for gram in counts[n]:
                counts[n - 1][gram[1:]] += 1
        words = frozenset(word for text in text_counts for word in text)
        return cls(tuple(NgramCounts.from_counts(count) for count in counts), words, frozenset(text_counts))

    @property
    def vocabulary(self) -> frozenset[str]:
        """Everything that can follow a context: the words, the end of the text, and the unknown word."""
        return self.words | {END, UNKNOWN}

    def probability(self, word: str, context: Sequence[str]) -> float:
        """Return the probability of a word after a context. A text begins after `START` and finishes with `END`."""
        longest = len(self.levels) - 1
        before = tuple(w if w in self.words or w == START else UNKNOWN for w in context[max(0, len(context) - longest) :])
        return self._probability(word if word in self.words or word == END else UNKNOWN, before)

    def _probability(self, word: str, context: Gram) -> float:
        out = 1 / (len(self.words) + 2)
        for n, level in enumerate(self.levels[: len(context) + 1]):
            suffix = context[len(context) - n :]
            total = level.total.get(suffix)
            if total is None:  # an unseen context is not part of a longer one
                break
            follow = level.follow[suffix]
            count = follow.get(word, 0)
            out = (max(count - level.discount, 0.0) + level.discount * len(follow) * out) / total
        return out

    def log_likelihood(self, text: str) -> float:
        """Return the natural logarithm of the probability of the whole text."""
        longest = len(self.levels) - 1
        line = (START, *(word if word in self.words else UNKNOWN for word in tokenize(text)), END)
        return math.fsum(math.log(self._probability(line[n], line[max(0, n - longest) : n])) for n in range(1, len(line)))

    def length(self, text: str) -> int:
        """Return the number of factors of the likelihood: the words and the end."""
        return len(tokenize(text)) + 1

    def was_fitted_on(self, text: str) -> bool:
        """Whether the model was fitted on this text, ignoring case and punctuation."""
        return tuple(tokenize(text)) in self.texts
