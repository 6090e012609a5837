"""What is accepted, what is refused, and what the message says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossmatch.captions import corpus as module
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.table import CAPTION_METRICS, chosen, score, told
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.grounding import Grounding


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        ({"7": "a"}, {}, "candidate '7' has no references"),
        ({"7": "a"}, {"7": []}, "'7' has no references"),
        ({"7": "a"}, {"7": ["a"], "8": ["b"]}, "image '8' has references but no candidate, one of 1 such among 2"),
        ({"7": "a"}, {"7": "a dog"}, "the references of '7' are 'a dog'; a list of texts was expected"),
        ({"7": None}, {"7": ["a"]}, "a caption of '7' is None"),
        ({"7": "a"}, {"7": ["a", 5]}, "a caption of '7' is 5"),
        ({}, {}, "no candidate ids were given"),
        ({"7": "a", 7: "b"}, {"7": ["a"], 7: ["b"]}, "candidate id '7' occurs 2 times"),
    ],
)
def test_bad_input_is_refused_and_the_id_is_named(candidates: dict, references: dict, message: str) -> None:
    with pytest.raises(CrossmatchError, match=message):
        Corpus.of(candidates, references)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(CrossmatchError, match=r"a caption of '7' has '.ud800' at place 2"):
        Corpus.of({"7": "a \ud800 dog"}, {"7": ["a dog"]})


def test_unequal_lists_are_refused() -> None:
    with pytest.raises(CrossmatchError, match="2 candidates and references for 1"):
        Corpus.of_tokens([["a"], ["b"]], [[["a"]]])


def test_a_corpus_too_large_for_one_number_gives_the_same_grams() -> None:
    texts = [[f"w{n}" for n in range(40)], ["w1", "w0", "w1"], ["w2"]]
    corpus = Corpus.of_tokens(texts, [[t, texts[0]] for t in texts])
    large = module._orders(corpus.words, corpus.begin, corpus.image, vocabulary=2**55)  # with the caption, more than 63 bits
    for ours, theirs in zip(corpus.grams, large, strict=True):
        assert all(
            np.array_equal(getattr(ours, name), getattr(theirs, name)) for name in ("caption", "count", "block", "first", "gram")
        )


def test_saved_frequencies_come_back(tmp_path: Path) -> None:
    corpus = Corpus.of({"1": "a dog", "2": "x"}, {"1": ["Ein Hund — 東京", "a dog"], "2": ["a dog", ""]})
    kept = Frequencies.of(corpus)
    kept.save(tmp_path / "df.npz")
    found = Frequencies.load(tmp_path / "df.npz")
    assert (found.images, found.counts, found.digest) == (2, kept.counts, kept.digest)
    assert found.counts["a dog"] == 2
    again = score(corpus, ["cider", "cider-d"], found)
    for name, result in score(corpus, ["cider", "cider-d"]).items():
        assert np.array_equal(result.scores.values, again[name].scores.values)
        assert result.signature != again[name].signature
        assert f"df:{kept.digest}/2" in again[name].signature


def test_broken_frequency_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CrossmatchError, match="is not there"):
        Frequencies.load(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("a dog")
    np.savez(tmp_path / "other.npz", a=1)
    np.savez(tmp_path / "uneven.npz", format=1, images=2, grams=np.frombuffer(b"a\nb", dtype=np.uint8), counts=np.array([1]))
    one = np.frombuffer(b"a", dtype=np.uint8)
    np.savez(tmp_path / "many.npz", format=1, images=2, grams=one, counts=np.array([3]))
    np.savez(tmp_path / "none.npz", format=1, images=2, grams=one, counts=np.array([0]))
    np.savez(tmp_path / "list.npz", format=1, images=[2, 3], grams=one, counts=np.array([1]))
    for name in ("text", "other", "uneven", "many", "none", "list"):
        with pytest.raises(CrossmatchError, match="cannot be read as document frequencies"):
            Frequencies.load(tmp_path / f"{name}.npz")
    np.savez(tmp_path / "later.npz", format=2)
    with pytest.raises(CrossmatchError, match="has format 2; 1 was expected"):
        Frequencies.load(tmp_path / "later.npz")


def test_the_table() -> None:
    names = [name for metric in CAPTION_METRICS for name in metric.names]
    assert len(set(names)) == len(names)
    corpus = Corpus.of({"1": "a dog", "2": "x"}, {"1": ["a dog"], "2": ["a dog"]})

    class Model:
        signature = "a|model"

        def embed_images(self, images: list[str]) -> np.ndarray:
            return np.ones((len(images), 2))

        def embed_texts(self, texts: list[str]) -> np.ndarray:
            return np.array([[len(text), 1.0] for text in texts])

        def ground(self, images: list[str], texts: list[str]) -> Grounding:
            return Grounding(np.array([[len(text), 1.0] for text in texts]))

    given = {"images": lambda i: i, "embedder": Model(), "grounder": Model()}
    for metric in CAPTION_METRICS:
        assert list(chosen([metric.family])) == list(metric.names)
        for name, result in score(corpus, [metric.family], **given).items():
            assert result.signature.startswith(f"{name}|tok:ptb-3.4.1|refs:1|")
            assert all(f"|{key}:{told(value)}|" in result.signature for key, value in (*metric.facts, *metric.options))
            assert ("a,model" in result.signature) == bool({"embedder", "grounder"} & set(metric.needs))
            assert len(result.scores.values) == 2
        for need in set(metric.needs) - {"frequencies"}:
            with pytest.raises(WrongWords, match=f"{metric.names[0]} needs .*which was not given"):
                score(corpus, [metric.family], **{**given, need: None})
    with pytest.raises(WrongWords, match="no caption metric 'bleu-5'; there are bleu-1"):
        chosen(["bleu-5"])
