"""Input that is accepted or refused, and the messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossmatch.captions import corpus as module
from crossmatch.captions.caption_metric_table import CAPTION_METRICS, compute_metrics, format_option, parse_metric_names
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.grounding import Grounding


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        ({"7": "a"}, {}, "Candidate '7' has no references"),
        ({"7": "a"}, {"7": []}, "'7' has no references"),
        ({"7": "a"}, {"7": ["a"], "8": ["b"]}, "Image '8' has references but no candidate .1 of 2 images"),
        ({"7": "a"}, {"7": "a dog"}, "Image '7': expected a list of references, got 'a dog'"),
        ({"7": None}, {"7": ["a"]}, "Image '7': expected a caption as text, got None"),
        ({"7": "a"}, {"7": ["a", 5]}, "Image '7': expected a caption as text, got 5"),
        ({}, {}, "There are no candidate ids"),
        ({"7": "a", 7: "b"}, {"7": ["a"], 7: ["b"]}, "candidate id '7' occurs 2 times"),
    ],
)
def test_invalid_input_is_refused_with_its_id(candidates: dict, references: dict, message: str) -> None:
    with pytest.raises(CrossmatchError, match=message):
        CaptionCorpus.from_texts(candidates, references)


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(CrossmatchError, match=r"Image '7': a caption has '.ud800' at position 2"):
        CaptionCorpus.from_texts({"7": "a \ud800 dog"}, {"7": ["a dog"]})


def test_unequal_lists_are_refused() -> None:
    with pytest.raises(CrossmatchError, match="got 1 lists for 2 candidates"):
        CaptionCorpus.from_tokens([["a"], ["b"]], [[["a"]]])


def test_large_corpus_gives_the_same_ngrams() -> None:
    texts = [[f"w{n}" for n in range(40)], ["w1", "w0", "w1"], ["w2"]]
    corpus = CaptionCorpus.from_tokens(texts, [[t, texts[0]] for t in texts])
    large = module._count_ngrams(
        corpus.words, corpus.offsets, corpus.image_index, vocabulary=2**55
    )  # with the caption, more than 63 bits
    for ours, theirs in zip(corpus.ngrams, large, strict=True):
        assert all(
            np.array_equal(getattr(ours, name), getattr(theirs, name))
            for name in ("caption", "count", "block", "block_start", "block_ngram")
        )


def test_saved_frequencies_are_loaded(tmp_path: Path) -> None:
    corpus = CaptionCorpus.from_texts({"1": "a dog", "2": "x"}, {"1": ["Ein Hund — 東京", "a dog"], "2": ["a dog", ""]})
    saved = DocumentFrequencies.from_corpus(corpus)
    saved.save(tmp_path / "df.npz")
    loaded_frequencies = DocumentFrequencies.load(tmp_path / "df.npz")
    assert (loaded_frequencies.images, loaded_frequencies.counts, loaded_frequencies.digest) == (2, saved.counts, saved.digest)
    assert loaded_frequencies.counts["a dog"] == 2
    results_of_loaded = compute_metrics(corpus, ["cider", "cider-d"], loaded_frequencies)
    for name, result in compute_metrics(corpus, ["cider", "cider-d"]).items():
        assert np.array_equal(result.scores.values, results_of_loaded[name].scores.values)
        assert result.signature != results_of_loaded[name].signature
        assert f"df:{saved.digest}/2" in results_of_loaded[name].signature


def test_broken_frequency_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CrossmatchError, match="No file of document frequencies"):
        DocumentFrequencies.load(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("a dog")
    np.savez(tmp_path / "other.npz", a=1)
    np.savez(tmp_path / "uneven.npz", format=1, images=2, grams=np.frombuffer(b"a\nb", dtype=np.uint8), counts=np.array([1]))
    gram = np.frombuffer(b"a", dtype=np.uint8)
    np.savez(tmp_path / "many.npz", format=1, images=2, grams=gram, counts=np.array([3]))
    np.savez(tmp_path / "none.npz", format=1, images=2, grams=gram, counts=np.array([0]))
    np.savez(tmp_path / "list.npz", format=1, images=[2, 3], grams=gram, counts=np.array([1]))
    for name in ("text", "other", "uneven", "many", "none", "list"):
        with pytest.raises(CrossmatchError, match="is not a file of document frequencies"):
            DocumentFrequencies.load(tmp_path / f"{name}.npz")
    np.savez(tmp_path / "later.npz", format=2)
    with pytest.raises(CrossmatchError, match="expected format 1, got 2"):
        DocumentFrequencies.load(tmp_path / "later.npz")


def test_metric_table_is_consistent() -> None:
    names = [name for metric in CAPTION_METRICS for name in metric.names]
    assert len(set(names)) == len(names)
    corpus = CaptionCorpus.from_texts({"1": "a dog", "2": "x"}, {"1": ["a dog"], "2": ["a dog"]})

    class Model:
        signature = "a|model"

        def embed_images(self, images: list[str]) -> np.ndarray:
            return np.ones((len(images), 2))

        def embed_texts(self, texts: list[str]) -> np.ndarray:
            return np.array([[len(text), 1.0] for text in texts])

        def ground(self, images: list[str], texts: list[str]) -> Grounding:
            return Grounding(np.array([[len(text), 1.0] for text in texts]))

    resources = {"images": lambda i: i, "embedder": Model(), "grounder": Model()}
    for metric in CAPTION_METRICS:
        assert list(parse_metric_names([metric.family])) == list(metric.names)
        for name, result in compute_metrics(corpus, [metric.family], **resources).items():
            assert result.signature.startswith(f"{name}|tok:ptb-3.4.1|refs:1|")
            assert all(
                f"|{key}:{format_option(value)}|" in result.signature for key, value in (*metric.signature_facts, *metric.options)
            )
            assert ("a,model" in result.signature) == bool({"embedder", "grounder"} & set(metric.needs))
            assert len(result.scores.values) == 2
        for need in set(metric.needs) - {"frequencies"}:
            with pytest.raises(UsageError, match=f"{metric.names[0]} needs .*--"):
                compute_metrics(corpus, [metric.family], **{**resources, need: None})
    with pytest.raises(UsageError, match="Unknown caption metric 'bleu-5'. Choose from: bleu-1"):
        parse_metric_names(["bleu-5"])
