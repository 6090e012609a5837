"""Text encoders without a neural network: TF-IDF and averaged static word vectors; and the table of all text encoders.

A text encoder has `embed_texts(texts)` and a `signature`. One that needs all texts of a collection first also has `fitted(texts)`,
which returns the encoder to use; the evaluation calls it with all captions of the collection. Neural encoders are in
`crossmatch.models.adapters.sentence_encoders`. All of them load local files; nothing is downloaded.
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

from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.file_contents import split_lines
from crossmatch.data.io.progress import track
from crossmatch.models.model_outputs import as_vectors

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORD = re.compile(r"\b\w\w+\b")
MAX_WORDS = 4096
BATCH = 1024
UNKNOWN = 0  # the id of `<unk>` in the vocabulary of WordLlama


class TextModel(Protocol):
    """A text encoder with a signature."""

    @property
    def signature(self) -> str: ...

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike: ...


def split_words(text: str) -> list[str]:
    """Split a text into lower-case runs of at least two letters, digits or underscores: scikit-learn's default pattern.

    >>> split_words("A dog's T-shirt, 2 cafés & 10 cups.")
    ['dog', 'shirt', 'cafés', '10', 'cups']
    """
    return WORD.findall(text.lower())


def inverse_document_frequency(documents: int, containing: ArrayLike) -> FloatArray:
    """Return the idf of words, smoothed as if one more document contained every word, so that no weight is 0.

        idf(w) = ln((1 + N) / (1 + df(w))) + 1

    Source: pedregosa2011scikit, the formula of `TfidfTransformer`; the idea is sparckjones1972statistical.

    >>> inverse_document_frequency(3, [3, 1]).round(3)
    array([1.   , 1.693])
    """
    return np.asarray(np.log((1 + documents) / (1 + np.asarray(containing, dtype=np.float64))) + 1, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class DocumentFrequencyTable:
    """The words of a corpus with their idf, most frequent first; words of equal document frequency alphabetically."""

    number: Mapping[str, int] = field(repr=False)
    idf: FloatArray
    documents: int

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> DocumentFrequencyTable:
        count: Counter[str] = Counter()
        documents = 0
        for text in texts:
            count.update(set(split_words(text)))
            documents += 1
        ordered = sorted(count, key=lambda word: (-count[word], word))
        idf = inverse_document_frequency(documents, [count[word] for word in ordered])
        return cls({word: n for n, word in enumerate(ordered)}, idf, documents)


@dataclass(frozen=True, eq=False)
class TfIdf:
    """TF-IDF: the words of a text, weighted by frequency in the text and rarity in the corpus, as a vector of length 1.

        v(t)_w = tf(t, w) · idf(w) / √(Σ_u (tf(t, u) · idf(u))²),    similarity = v(s) · v(t)

    Document frequencies come from all captions of the collection, or from a corpus with one text per line (`tfidf:FILE`). Words
    that are not in it are ignored. The sum under the root covers all words, but `embed_texts` gives only the `max_words` most
    frequent words a dimension. So a dropped word still makes a text less similar to all others, and two texts that share a dropped
    word lose just that product. A word that occurs in one text only is never shared, so dropping it changes no similarity. In the
    25,000 captions of the COCO test split 4,260 of 7,196 words occur in more than one caption; 4,096 dimensions drop 164 of them,
    each of which is shared by one pair of captions.

    The similarity is the dot product of these vectors, which is the cosine of the complete ones. Texts without a known word are
    zero, with similarity 0 to everything. Source: manning2008introduction, sec. 6.2 to 6.4.

    >>> model = TfIdf().fitted(["A red cat.", "A red dog.", "Two cats."])
    >>> red_cat, red_dog, blue = model.embed_texts(["A red cat.", "A red dog.", "Blue."])
    >>> print(f"{red_cat @ red_dog:.3f} {red_cat @ blue:.3f}")
    0.366 0.000
    """

    corpus: str = "captions"
    max_words: int = MAX_WORDS
    vocabulary: DocumentFrequencyTable | None = field(default=None, repr=False)
    similarity: str = "dot"

    @classmethod
    def from_file(cls, path: Path) -> TfIdf:
        """Return an encoder with the document frequencies of a file with one text per line."""
        if not path.is_file():
            raise UsageError(f"there is no file {path}. Check the path.")
        raw = path.read_bytes()
        try:
            texts = [line for line in split_lines(raw.decode("utf-8-sig")) if line.strip()]
        except UnicodeDecodeError as error:
            raise CrossmatchError(f"{path} is not UTF-8 ({error}). Write one text per line, in UTF-8.") from None
        if not any(map(split_words, texts)):
            raise CrossmatchError(f"{path} has no words. Write one text per line.")
        return cls(f"{path.name}:{hashlib.sha256(raw).hexdigest()[:12]}", vocabulary=DocumentFrequencyTable.from_texts(texts))

    def fitted(self, texts: Sequence[str]) -> TfIdf:
        """Return an encoder with the document frequencies of these texts, unless it has those of a file."""
        return self if self.vocabulary else replace(self, vocabulary=DocumentFrequencyTable.from_texts(texts))

    @property
    def signature(self) -> str:
        return f"tfidf|corpus:{self.corpus}|words:{self.max_words}|idf:smooth|fp32"

    def weights(self, texts: Sequence[str]) -> csr_array:
        """Return the complete vectors, with all words of the vocabulary: sparse, in double precision."""
        if self.vocabulary is None:
            raise CrossmatchError("tfidf has no document frequencies yet. Call fitted(texts) first, or name a corpus: tfidf:FILE")
        number, idf = self.vocabulary.number, self.vocabulary.idf
        rows = [Counter(number[word] for word in split_words(text) if word in number) for text in texts]
        start = np.cumsum([0, *map(len, rows)])
        column = np.asarray([n for row in rows for n in sorted(row)], dtype=np.int64)
        value = np.asarray([row[n] for row in rows for n in sorted(row)], dtype=np.float64) * idf[column]
        squares = np.add.reduceat(np.append(np.square(value), 0.0), start[:-1]) if len(rows) else np.zeros(0)
        lengths = np.sqrt(np.where(np.diff(start) > 0, squares, 1.0))
        return csr_array((value / np.repeat(lengths, np.diff(start)), column, start), shape=(len(rows), len(idf)))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: one vector per text, of length 1 except for words without a dimension."""
        return self.weights(texts)[:, : self.max_words].astype(np.float32).toarray()


@dataclass(frozen=True, eq=False)
class AveragedWordVectors:
    """The mean of the static vectors of a text's tokens: a bag of words.

        v(t) = Σ_i w(t_i) · e(t_i) / Σ_i w(t_i)

    with w = 1, or the idf of the token in the collection's captions (`bow:idf`). The vectors are those of the package WordLlama
    (32,000 tokens of Llama 2, 256 dimensions); parekh2021cxc, sec. 5.1, use GloVe instead. A text without tokens gets the vector of
    the unknown token, so that its cosine is defined.
    """

    vectors: NDArray[np.float32] = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    source: str = ""
    weighting: str = "none"  # or "idf"
    weight: NDArray[np.float32] | None = field(default=None, repr=False)
    similarity: str = "cosine"

    @classmethod
    def from_package(cls, weighting: str = "none") -> AveragedWordVectors:
        """Load the vectors and the tokenizer from the installed package, without importing it."""
        weights_path = find_package_file("wordllama", "weights/l2_supercat_256.safetensors")
        tokenizer_path = find_package_file("wordllama", "tokenizers/l2_supercat_tokenizer_config.json")
        try:
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as absent:
            raise MissingDependencyError("safetensors and tokenizers", "text") from absent
        tokenizer = Tokenizer.from_file(str(tokenizer_path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        source = f"wordllama:{importlib.metadata.version('wordllama')}|weights:{hash_file(weights_path)}"
        return cls(load_file(weights_path)["embedding.weight"].astype(np.float32), tokenizer, source, weighting)

    def fitted(self, texts: Sequence[str]) -> AveragedWordVectors:
        """Return an encoder with the idf of every token in these texts, if tokens are weighted."""
        if self.weighting == "none" or self.weight is not None:
            return self
        containing = np.zeros(len(self.vectors), dtype=np.int64)
        for token_ids in self._token_ids(texts):
            containing[np.unique(token_ids)] += 1
        return replace(self, weight=inverse_document_frequency(len(texts), containing).astype(np.float32))

    @property
    def signature(self) -> str:
        weighting = "|idf:captions" if self.weighting == "idf" else ""
        return f"bow|{self.source}{weighting}|fp32"

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: one vector per text."""
        if self.weighting == "idf" and self.weight is None:
            raise CrossmatchError("bow:idf has no document frequencies yet. Call fitted(texts) first, or use bow.")
        token_ids = self._token_ids(texts)
        start = np.cumsum([0, *map(len, token_ids)])
        column = np.concatenate([np.zeros(0, np.int64), *token_ids])
        weight = np.ones(len(column), np.float32) if self.weight is None else self.weight[column]
        bags = csr_array((weight, column, start), shape=(len(token_ids), len(self.vectors)))
        return np.asarray((bags @ self.vectors) / bags.sum(axis=1)[:, None], dtype=np.float32)

    def _token_ids(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        encoded = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.asarray(e.ids or [UNKNOWN], dtype=np.int64) for e in encoded]


def embed_unique_texts(model: TextModel, texts: Sequence[str], label: str, batch: int = BATCH) -> NDArray[Any]:
    """Embed texts; equal texts are embedded once, sorted by length.

    A neural encoder rounds differently in another batch. If equal captions were embedded separately, their scores would differ in
    the last bits, rounding would break ties, and the vectors would depend on the order of the items.

    `label` says what is being embedded, in the progress bar and in errors.

    >>> embed_unique_texts(TfIdf().fitted(["a cat", "two dogs"]), ["cat", "dogs", "cat"], "embedding").tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    distinct = sorted(set(texts), key=lambda text: (len(text), text))
    position = {text: n for n, text in enumerate(distinct)}
    member = np.asarray([position[text] for text in texts], dtype=np.int64)
    order = np.argsort(member, kind="stable")
    out: NDArray[Any] | None = None
    for start in track(range(0, len(distinct), batch), label):
        batch_texts = distinct[start : start + batch]
        vectors = as_vectors(model.embed_texts(batch_texts), len(batch_texts), label)
        if out is None:
            out = np.empty((len(texts), vectors.shape[1]), vectors.dtype)
        elif vectors.shape[1] != out.shape[1]:
            raise CrossmatchError(
                f"{label}: one batch has {out.shape[1]} dimensions and another {vectors.shape[1]}. Return vectors of one length."
            )
        first, last = np.searchsorted(member, (start, start + len(batch_texts)), sorter=order)
        rows = order[first:last]
        out[rows] = vectors[member[rows] - start]
    if out is None:
        raise CrossmatchError(f"{label}: there are no texts. Give at least one.")
    return out


def find_package_folder(package: str, extra: str) -> Path:
    """Return the folder of an installed package, without importing it; `extra` installs it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError(f"the package {package}", extra)
    return Path(spec.submodule_search_locations[0])


def find_package_file(package: str, file: str) -> Path:
    """Return the path of a file inside an installed package."""
    path = find_package_folder(package, "text") / file
    if not path.is_file():
        raise CrossmatchError(
            f"the installed package {package} has no file {file}. Install a version that has it: pip install 'crossmatch[text]'"
        )
    return path


def hash_file(path: Path) -> str:
    """Return twelve hexadecimal digits of the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def make_tfidf(argument: str) -> TextModel:
    return TfIdf.from_file(Path(argument)) if argument else TfIdf()


def make_bow(argument: str) -> TextModel:
    if argument not in ("", "idf"):
        raise UsageError(f"bow:{argument}: use bow, or bow:idf to give rare tokens more weight.")
    return AveragedWordVectors.from_package(argument or "none")


def make_minilm(argument: str) -> TextModel:
    from crossmatch.models.adapters.sentence_encoders import MiniLM

    if argument:
        raise UsageError(f"minilm:{argument}: minilm takes no argument. For other encoders use sentence:NAME_OR_PATH")
    return MiniLM()


def make_sentence_model(argument: str) -> TextModel:
    from crossmatch.models.adapters.sentence_encoders import sentence_model

    return sentence_model(argument)


# By family: makes the encoder from the part of the name after the colon.
TEXT_MODELS: Mapping[str, Callable[[str], TextModel]] = {
    "tfidf": make_tfidf,
    "bow": make_bow,
    "minilm": make_minilm,
    "sentence": make_sentence_model,
}


def make_text_model(name: str) -> TextModel:
    """Make the text encoder of this name.

    >>> make_text_model("tfidf").signature
    'tfidf|corpus:captions|words:4096|idf:smooth|fp32'
    """
    family, _, argument = name.partition(":")
    if family not in TEXT_MODELS:
        raise UsageError(f"there is no text model {family!r}. Use one of {', '.join(TEXT_MODELS)}.")
    return TEXT_MODELS[family](argument)
