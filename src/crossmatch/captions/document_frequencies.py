"""Document frequencies: in the references of how many images each n-gram occurs. Computed, saved and loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from crossmatch.captions.corpus import CaptionCorpus, NGrams
from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.file_contents import UndecodableFileError, decode_npz

FORMAT = 1  # of saved files


@dataclass(frozen=True, eq=False)
class DocumentFrequencies:
    """Document frequencies of a corpus. Saved ones let a few captions be scored as part of a large corpus.

    >>> corpus = CaptionCorpus.from_texts({"7": "a dog", "8": "a cat"}, {"7": ["a dog", "a big dog"], "8": ["the cat"]})
    >>> frequencies = DocumentFrequencies.from_corpus(corpus)
    >>> frequencies.images, frequencies.counts["a dog"], frequencies.counts.get("a cat", 0)      # candidates do not count
    (2, 1, 0)
    """

    images: int
    counts: Mapping[str, int]  # n-grams of one to four tokens, joined by spaces

    def __post_init__(self) -> None:
        _require_images(self.images)

    @classmethod
    def from_corpus(cls, corpus: CaptionCorpus) -> DocumentFrequencies:
        """Count the n-grams of a corpus' references."""
        counts: dict[str, int] = {}
        for ngrams in corpus.ngrams:
            documents = count_documents(corpus, ngrams).tolist()
            counts.update((text, n) for text, n in zip(corpus.ngram_texts(ngrams), documents, strict=True) if n)
        return cls(len(corpus), counts)

    @classmethod
    def from_references(cls, references: Mapping[str, Sequence[str]]) -> DocumentFrequencies:
        """Count the n-grams of the references of each image."""
        return cls.from_corpus(CaptionCorpus.from_texts(dict.fromkeys(references, ""), references))

    @cached_property
    def digest(self) -> str:
        """Eight hexadecimal digits that identify these frequencies in signatures."""
        text = "\n".join([str(self.images), *(f"{gram}\t{n}" for gram, n in sorted(self.counts.items()))])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def save(self, path: Path | str) -> None:
        """Write the frequencies to an npz file."""
        texts = np.frombuffer("\n".join(self.counts).encode(), dtype=np.uint8)
        counts = np.fromiter(self.counts.values(), dtype=np.int64, count=len(self.counts))
        with atomic_write(Path(path)) as file:
            np.savez_compressed(file, format=FORMAT, images=self.images, grams=texts, counts=counts)

    @classmethod
    def load(cls, path: Path | str) -> DocumentFrequencies:
        """Read a file that `save` wrote."""
        path = Path(path)
        if not path.is_file():
            raise CrossmatchError(
                f"No file of document frequencies at {path}. Create it with: crossmatch captions score … --frequencies REFERENCES "
                f"--save-frequencies {path}"
            )
        try:
            images, counts = _decode_counts(path)
        except UndecodableFileError as error:
            raise CrossmatchError(
                f"{path} is not a file of document frequencies ({error}). Create it again with: crossmatch captions score … "
                f"--frequencies REFERENCES --save-frequencies {path}"
            ) from None
        return cls(images, counts)

    def lookup(self, corpus: CaptionCorpus, ngrams: NGrams) -> IntArray:
        """The document frequency of each n-gram of a corpus; 0 for unknown n-grams."""
        return np.array([self.counts.get(text, 0) for text in corpus.ngram_texts(ngrams)], dtype=np.int64)


def _decode_counts(path: Path) -> tuple[int, dict[str, int]]:
    """The number of images and the counts by n-gram of a file."""
    with path.open("rb") as file:
        saved = decode_npz(file)
    saved_format = saved.get("format")
    if saved_format is not None and saved_format.ndim == 0 and saved_format != FORMAT:
        raise CrossmatchError(f"{path}: expected format {FORMAT}, got {saved_format}. Save the frequencies again.")
    missing = next((name for name in ("format", "images", "grams", "counts") if name not in saved), None)
    if missing is not None:
        raise UndecodableFileError(f"the array {missing} is missing")
    images, texts, counts = (saved[name] for name in ("images", "grams", "counts"))
    for name, array, dimensions in (("images", images, 0), ("grams", texts, 1), ("counts", counts, 1)):
        if array.ndim != dimensions or array.dtype.kind not in "iu":
            raise UndecodableFileError(f"the array {name} has {array.ndim} dimensions of {array.dtype}")
    if len(counts) and not (counts.min() >= 1 and counts.max() <= images):
        raise UndecodableFileError("a count is not between 1 and the number of images")
    try:
        text = texts.tobytes().decode()
    except UnicodeDecodeError as error:
        raise UndecodableFileError(f"the n-grams are not UTF-8: {error}") from None
    grams = text.split("\n") if text else []
    if len(grams) != len(counts):
        raise UndecodableFileError(f"{len(grams):,} n-grams have {len(counts):,} counts")
    return int(images), dict(zip(grams, counts.tolist(), strict=True))


def count_documents(corpus: CaptionCorpus, ngrams: NGrams) -> IntArray:
    """The number of images whose references contain each n-gram.

    >>> corpus = CaptionCorpus.from_texts({"7": "a dog", "8": "a cat"}, {"7": ["a dog", "a big dog"], "8": ["the cat"]})
    >>> dict(zip(corpus.ngram_texts(corpus.ngrams[0]), count_documents(corpus, corpus.ngrams[0]).tolist()))
    {'a': 1, 'dog': 1, 'big': 1, 'cat': 1, 'the': 1}
    """
    block_size = np.diff(np.append(ngrams.block_start, len(ngrams.caption)))
    in_references = block_size > corpus.is_candidate[ngrams.caption[ngrams.block_start]]  # the candidate has at most one entry
    return np.bincount(ngrams.block_ngram[in_references], minlength=len(ngrams.position))


def inverse_document_frequencies(corpus: CaptionCorpus, frequencies: DocumentFrequencies | None) -> list[FloatArray]:
    """log(|I| / max(1, df)) of each n-gram, in one array per order; |I| is the number of images."""
    if frequencies is None:
        _require_images(len(corpus))
        return [np.log(len(corpus)) - np.log(np.maximum(1, count_documents(corpus, ngrams))) for ngrams in corpus.ngrams]
    return [np.log(frequencies.images) - np.log(np.maximum(1, frequencies.lookup(corpus, ngrams))) for ngrams in corpus.ngrams]


def _require_images(count: int) -> None:
    if count < 2:
        raise CrossmatchError(
            f"CIDEr needs document frequencies of at least 2 images, got {count}. "
            "Score more images together, or use saved frequencies (--frequencies FILE)."
        )
