"""Texts as vectors without a neural network: TF-IDF, and averaged static word vectors.

A text encoder has `embed_texts(texts)` and a `signature`, and nothing for images. One that must see the texts before it can embed
any of them also has `fitted(texts)`, which gives the encoder to use; the evaluation calls it with all captions of the collection.
Neural encoders are in `crossmatch.models.sentence`. All of them load from files that are here; nothing touches the network.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.lines import lines_of
from crossmatch.core.progress import track

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORD = re.compile(r"\b\w\w+\b")
MOST_WORDS = 4096
AT_ONCE = 1024
UNKNOWN = 0  # the number of `<unk>` in the vocabulary of WordLlama


class TextModel(Protocol):
    """What every encoder here is."""

    @property
    def signature(self) -> str: ...

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike: ...


def words(text: str) -> list[str]:
    """Lower-case runs of at least two letters, digits or underscores: scikit-learn's usual pattern.

    >>> words("A dog's T-shirt, 2 cafés & 10 cups.")
    ['dog', 'shirt', 'cafés', '10', 'cups']
    """
    return WORD.findall(text.lower())


def inverse_document_frequency(documents: int, containing: ArrayLike) -> FloatArray:
    """How rare a word is, smoothed as if one more document held every word, so that no word weighs nothing.

        idf(w) = ln((1 + N) / (1 + df(w))) + 1

    Source: pedregosa2011scikit, the formula of `TfidfTransformer`; the idea is sparckjones1972statistical.

    >>> inverse_document_frequency(3, [3, 1]).round(3)
    array([1.   , 1.693])
    """
    return np.asarray(np.log((1 + documents) / (1 + np.asarray(containing, dtype=np.float64))) + 1, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The words of a corpus with their idf, most frequent first; words of equal document frequency by alphabet."""

    number: Mapping[str, int] = field(repr=False)
    idf: FloatArray
    documents: int

    @classmethod
    def of(cls, texts: Iterable[str]) -> Vocabulary:
        count: Counter[str] = Counter()
        documents = 0
        for text in texts:
            count.update(set(words(text)))
            documents += 1
        ordered = sorted(count, key=lambda word: (-count[word], word))
        idf = inverse_document_frequency(documents, [count[word] for word in ordered])
        return cls({word: n for n, word in enumerate(ordered)}, idf, documents)


@dataclass(frozen=True, eq=False)
class TfIdf:
    """The words of a text, weighted by how often they are in it and how rare they are elsewhere, at length 1.

        v(t)_w = tf(t, w) · idf(w) / √(Σ_u (tf(t, u) · idf(u))²),    similarity = v(s) · v(t)

    Document frequencies come from all captions of the collection, or from a corpus with a text on each line (`tfidf:FILE`). Words
    that are not in it count for nothing. The sum under the root goes over all words, but `embed_texts` gives only the `most`
    frequent words a dimension. So a dropped word still makes a text less like all others, and two texts that share one lose
    just that product. A word of a single text is never shared: leaving it out changes no similarity between two texts of the
    corpus. On the 25,000 captions of the COCO test split 4,260 of 7,196 words are in more than one caption; 4,096 dimensions
    leave out 164 of these, each of which joins one pair of captions.

    The similarity is the dot product of these vectors, which is the cosine of the complete ones. It needs no rule for texts
    without a known word: they are zero, and have similarity 0 to everything. Source: manning2008introduction, sec. 6.2 to 6.4.

    >>> model = TfIdf().fitted(["A red cat.", "A red dog.", "Two cats."])
    >>> red_cat, red_dog, blue = model.embed_texts(["A red cat.", "A red dog.", "Blue."])
    >>> print(f"{red_cat @ red_dog:.3f} {red_cat @ blue:.3f}")
    0.366 0.000
    """

    corpus: str = "captions"
    most: int = MOST_WORDS
    vocabulary: Vocabulary | None = field(default=None, repr=False)
    similarity: str = "dot"

    @classmethod
    def from_file(cls, path: Path) -> TfIdf:
        """With the document frequencies of a file that has a text on each line."""
        raw = _read(path)
        try:
            texts = [line for line in lines_of(raw.decode("utf-8-sig")) if line.strip()]
        except UnicodeDecodeError as error:
            raise CrossmatchError(f"{path} is not UTF-8 ({error}). Write one text on each line, in UTF-8.") from None
        if not any(map(words, texts)):
            raise CrossmatchError(f"{path} holds no words. Write one text on each line.")
        return cls(f"{path.name}:{hashlib.sha256(raw).hexdigest()[:12]}", vocabulary=Vocabulary.of(texts))

    def fitted(self, texts: Sequence[str]) -> TfIdf:
        """With the document frequencies of these texts, unless it has those of a file."""
        return self if self.vocabulary else replace(self, vocabulary=Vocabulary.of(texts))

    @property
    def signature(self) -> str:
        return f"tfidf|corpus:{self.corpus}|words:{self.most}|idf:smooth|fp32"

    def weights(self, texts: Sequence[str]) -> csr_array:
        """The complete vectors, with all words of the vocabulary: sparse, in double precision."""
        if self.vocabulary is None:
            raise CrossmatchError(
                "tfidf has seen no texts to count words in. Call fitted(texts) first, or name a corpus: tfidf:FILE"
            )
        number, idf = self.vocabulary.number, self.vocabulary.idf
        rows = [Counter(number[word] for word in words(text) if word in number) for text in texts]
        start = np.cumsum([0, *map(len, rows)])
        column = np.asarray([n for row in rows for n in sorted(row)], dtype=np.int64)
        value = np.asarray([row[n] for row in rows for n in sorted(row)], dtype=np.float64) * idf[column]
        squares = np.add.reduceat(np.append(np.square(value), 0.0), start[:-1]) if len(rows) else np.zeros(0)
        lengths = np.sqrt(np.where(np.diff(start) > 0, squares, 1.0))
        return csr_array((value / np.repeat(lengths, np.diff(start)), column, start), shape=(len(rows), len(idf)))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text, of length 1 but for the words that have no dimension."""
        return self.weights(texts)[:, : self.most].astype(np.float32).toarray()


@dataclass(frozen=True, eq=False)
class WordVectors:
    """The mean of the static vectors of a text's tokens: a bag of words.

        v(t) = Σ_i w(t_i) · e(t_i) / Σ_i w(t_i)

    with w = 1, or the idf of the token among the collection's captions (`bow:idf`). The vectors are those that come with the
    package WordLlama (32,000 tokens of Llama 2, 256 numbers each); parekh2021cxc, sec. 5.1, take GloVe in their place. A text
    without a single token is the vector of the unknown token, so that it has a cosine.
    """

    vectors: NDArray[np.float32] = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    source: str = ""
    weighting: str = "none"  # or "idf"
    weight: NDArray[np.float32] | None = field(default=None, repr=False)
    similarity: str = "cosine"

    @classmethod
    def from_package(cls, weighting: str = "none") -> WordVectors:
        """The vectors and the tokenizer inside the installed package, which need not be imported."""
        at = packaged("wordllama", "weights/l2_supercat_256.safetensors")
        tokens = packaged("wordllama", "tokenizers/l2_supercat_tokenizer_config.json")
        try:
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as absent:
            raise MissingDependency("safetensors and tokenizers", "text") from absent
        tokenizer = Tokenizer.from_file(str(tokens))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        source = f"wordllama:{importlib.metadata.version('wordllama')}|weights:{file_hash(at)}"
        return cls(load_file(at)["embedding.weight"].astype(np.float32), tokenizer, source, weighting)

    def fitted(self, texts: Sequence[str]) -> WordVectors:
        """With the idf of every token among these texts, where it is asked for."""
        if self.weighting == "none" or self.weight is not None:
            return self
        containing = np.zeros(len(self.vectors), dtype=np.int64)
        for numbers in self._numbers(texts):
            containing[np.unique(numbers)] += 1
        return replace(self, weight=inverse_document_frequency(len(texts), containing).astype(np.float32))

    @property
    def signature(self) -> str:
        told = "|idf:captions" if self.weighting == "idf" else ""
        return f"bow|{self.source}{told}|fp32"

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One vector per text."""
        if self.weighting == "idf" and self.weight is None:
            raise CrossmatchError("bow:idf has seen no texts to count tokens in. Call fitted(texts) first, or take bow.")
        numbers = self._numbers(texts)
        start = np.cumsum([0, *map(len, numbers)])
        column = np.concatenate([np.zeros(0, np.int64), *numbers])
        weight = np.ones(len(column), np.float32) if self.weight is None else self.weight[column]
        bags = csr_array((weight, column, start), shape=(len(numbers), len(self.vectors)))
        return np.asarray((bags @ self.vectors) / bags.sum(axis=1)[:, None], dtype=np.float32)

    def _numbers(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        encoded = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.asarray(e.ids or [UNKNOWN], dtype=np.int64) for e in encoded]


def embed_distinct(model: TextModel, texts: Sequence[str], label: str, batch: int = AT_ONCE) -> NDArray[Any]:
    """One vector per text. Equal texts are embedded once, in an order of their own.

    A neural encoder rounds a text a little differently in other company. Embedded apart, two equal captions would have scores
    that differ in the last bits, and a tie would be broken by chance; and the vectors would depend on the order of the items.

    >>> embed_distinct(TfIdf().fitted(["a cat", "two dogs"]), ["cat", "dogs", "cat"], "embedding").tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    distinct = sorted(set(texts), key=lambda text: (len(text), text))
    number = {text: n for n, text in enumerate(distinct)}
    which = np.asarray([number[text] for text in texts], dtype=np.int64)
    order = np.argsort(which, kind="stable")
    out: NDArray[Any] | None = None
    for start in track(range(0, len(distinct), batch), label):
        asked = distinct[start : start + batch]
        part = as_vectors(model.embed_texts(asked), len(asked), label)
        if out is None:
            out = np.empty((len(texts), part.shape[1]), part.dtype)
        elif part.shape[1] != out.shape[1]:
            raise CrossmatchError(
                f"{label}: {out.shape[1]} dimensions in one batch and {part.shape[1]} in another. Give all as many."
            )
        first, last = np.searchsorted(which, (start, start + len(asked)), sorter=order)
        rows = order[first:last]
        out[rows] = part[which[rows] - start]
    if out is None:
        raise CrossmatchError(f"{label}: there are no texts. Give at least one.")
    return out


def as_vectors(said: ArrayLike, expected: int, label: str) -> NDArray[Any]:
    """What a model gave for so many texts, as an array of real numbers with a row for each."""
    try:
        part = np.asarray(said)
    except ValueError:
        raise CrossmatchError(f"{label}: the rows differ in length. Give an array with as many numbers in each.") from None
    if part.ndim != 2 or len(part) != expected:
        raise CrossmatchError(
            f"{label}: {expected} items gave an array of shape {part.shape}; ({expected}, dimensions) was expected."
        )
    if part.dtype.kind not in "fiub":
        raise CrossmatchError(f"{label}: the vectors have dtype {part.dtype}; real numbers were expected.")
    return part if part.dtype.kind == "f" else part.astype(np.float64)


def packaged(package: str, file: str) -> Path:
    """A file inside an installed package, found without importing it."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise MissingDependency(f"the package {package}", "text")
    path = Path(found.submodule_search_locations[0]) / file
    if not path.is_file():
        raise CrossmatchError(
            f"{package} is installed, but there is no {file} in it. Install one that has it: pip install 'crossmatch[text]'"
        )
    return path


def file_hash(path: Path) -> str:
    """Twelve hexadecimal digits of what is in a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise WrongWords(f"there is no file {path}. Check the path.")
    return path.read_bytes()


def _tfidf(rest: str) -> TextModel:
    return TfIdf.from_file(Path(rest)) if rest else TfIdf()


def _bow(rest: str) -> TextModel:
    if rest not in ("", "idf"):
        raise WrongWords(f"bow:{rest} has no meaning; say bow, or bow:idf to weight rare tokens more.")
    return WordVectors.from_package(rest or "none")


def _minilm(rest: str) -> TextModel:
    from crossmatch.models.sentence import MiniLM

    if rest:
        raise WrongWords(f"minilm:{rest} has no meaning; minilm takes no argument. Other encoders: sentence:NAME_OR_PATH")
    return MiniLM()


def _sentence(rest: str) -> TextModel:
    from crossmatch.models.sentence import sentence_model

    return sentence_model(rest)


# By the name of the family: how to make the model from what follows the colon.
TEXT_MODELS: Mapping[str, Callable[[str], TextModel]] = {
    "tfidf": _tfidf,
    "bow": _bow,
    "minilm": _minilm,
    "sentence": _sentence,
}


def text_model(name: str) -> TextModel:
    """The text encoder of this name.

    >>> text_model("tfidf").signature
    'tfidf|corpus:captions|words:4096|idf:smooth|fp32'
    """
    family, _, rest = name.partition(":")
    if family not in TEXT_MODELS:
        raise WrongWords(f"there is no text model {family!r}; there are {', '.join(TEXT_MODELS)}.")
    return TEXT_MODELS[family](rest)
