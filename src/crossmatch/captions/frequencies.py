"""In how many images' references an n-gram occurs: what makes a word telling. Counted here or kept in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from crossmatch.captions.corpus import Corpus, Grams
from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.whole import whole_file

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Document frequencies of a saved corpus, so that a few captions can be scored as if among many.

    >>> corpus = Corpus.of({"7": "a dog", "8": "a cat"}, {"7": ["a dog", "a big dog"], "8": ["the cat"]})
    >>> found = Frequencies.of(corpus)
    >>> found.images, found.counts["a dog"], found.counts.get("a cat", 0)      # candidates do not count
    (2, 1, 0)
    """

    images: int
    counts: Mapping[str, int]  # n-grams of one to four tokens, joined by spaces

    def __post_init__(self) -> None:
        if self.images < 2:
            raise CrossmatchError(
                f"document frequencies of {self.images} image(s); with fewer than two no n-gram tells anything, and CIDEr is 0. "
                "Score more images together, or take the frequencies of a saved corpus."
            )

    @classmethod
    def of(cls, corpus: Corpus) -> Frequencies:
        """Those of a corpus' references."""
        counts: dict[str, int] = {}
        for grams in corpus.grams:
            found = counted(corpus, grams).tolist()
            counts.update((text, n) for text, n in zip(corpus.texts(grams), found, strict=True) if n)
        return cls(len(corpus), counts)

    @cached_property
    def digest(self) -> str:
        """Eight signs that tell these frequencies from others, for signatures."""
        text = "\n".join([str(self.images), *(f"{gram}\t{n}" for gram, n in sorted(self.counts.items()))])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def save(self, path: Path | str) -> None:
        """Into one npz file."""
        texts = np.frombuffer("\n".join(self.counts).encode(), dtype=np.uint8)
        counts = np.fromiter(self.counts.values(), dtype=np.int64, count=len(self.counts))
        with whole_file(Path(path)) as file:
            np.savez_compressed(file, format=FORMAT, images=self.images, grams=texts, counts=counts)

    @classmethod
    def load(cls, path: Path | str) -> Frequencies:
        """From a file that `save` wrote."""
        if not Path(path).is_file():
            raise CrossmatchError(
                f"{path} is not there; a file of document frequencies was expected. Make it: crossmatch captions frequencies "
                f"REFERENCES -o {path}"
            )
        try:
            with np.load(path, allow_pickle=False) as kept:
                if int(kept["format"]) != FORMAT:
                    raise CrossmatchError(f"{path} has format {int(kept['format'])}; {FORMAT} was expected. Save it again.")
                images, texts, counts = (kept[name] for name in ("images", "grams", "counts"))
            if counts.ndim != 1 or (len(counts) and not (counts.min() >= 1 and counts.max() <= int(images))):
                raise ValueError("a count is not between 1 and the number of images")
            grams = texts.tobytes().decode()
            return cls(int(images), dict(zip(grams.split("\n") if grams else [], counts.tolist(), strict=True)))
        except CrossmatchError:
            raise
        except Exception as error:  # a damaged file can fail anywhere inside of its reader
            said = "it is no npz file" if "pickle" in str(error) else str(error) or type(error).__name__
            raise CrossmatchError(
                f"{path} cannot be read as document frequencies ({said}). Make it again: crossmatch captions frequencies "
                f"REFERENCES -o {path}"
            ) from error

    def among(self, corpus: Corpus, grams: Grams) -> IntArray:
        """Of each n-gram of a corpus: its frequency here."""
        return np.array([self.counts.get(text, 0) for text in corpus.texts(grams)], dtype=np.int64)


def counted(corpus: Corpus, grams: Grams) -> IntArray:
    """Of each n-gram: the number of images with a reference that has it.

    >>> corpus = Corpus.of({"7": "a dog", "8": "a cat"}, {"7": ["a dog", "a big dog"], "8": ["the cat"]})
    >>> dict(zip(corpus.texts(corpus.grams[0]), counted(corpus, corpus.grams[0]).tolist()))
    {'a': 1, 'dog': 1, 'big': 1, 'cat': 1, 'the': 1}
    """
    size = np.diff(np.append(grams.first, len(grams.caption)))
    in_references = size > corpus.is_candidate[grams.caption[grams.first]]  # the candidate's is one entry at most
    return np.bincount(grams.gram[in_references], minlength=len(grams.place))


def telling(corpus: Corpus, frequencies: Frequencies | None) -> list[FloatArray]:
    """Of each n-gram of each order: log(|I| / max(1, df)), |I| being the number of images."""
    if frequencies is None:
        if len(corpus) < 2:
            Frequencies(len(corpus), {})  # refuses
        return [np.log(len(corpus)) - np.log(np.maximum(1, counted(corpus, grams))) for grams in corpus.grams]
    return [np.log(frequencies.images) - np.log(np.maximum(1, frequencies.among(corpus, grams))) for grams in corpus.grams]
