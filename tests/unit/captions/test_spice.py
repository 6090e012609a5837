"""SPICE against a slow oracle, its laws, and the official program played by a script."""

from __future__ import annotations

import json
import os
import stat
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.official_spice import JAR, MODELS, NAMES, VARIABLE
from crossmatch.captions.spice import ALL, COLOURS, COUNTS, PARTS, SIZES, Tuples, f_score, spice, spice_parser, spice_parts
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.language.scene_graph import SceneGraph
from crossmatch.language.wordnet import synsets

THINGS = ["bike", "bicycle", "cycle", "car", "auto", "man", "child", "kid", "dog", "zzz"]  # some are synonyms, some by a third
TRAITS = ["red", "grey", "gray", "big", "large", "two", "2", "run"]
TIES = ["on", "ride", "sit on", "hold", "keep"]
things, traits, ties = (st.sampled_from(words) for words in (THINGS, TRAITS, TIES))


@st.composite
def graphs(draw: st.DrawFn) -> SceneGraph:
    attributes = draw(st.lists(st.tuples(things, traits), max_size=4, unique=True))
    relations = draw(st.lists(st.tuples(things, ties, things), max_size=3, unique=True))
    named = [*draw(st.lists(things, max_size=3)), *(t for t, _ in attributes), *(t for a, _, b in relations for t in (a, b))]
    return SceneGraph(tuple(dict.fromkeys(named)), tuple(attributes), tuple(relations))


def synonyms(one: str, other: str) -> bool:
    shared = [s for pos in "nvar" for s in synsets(one, pos) if s in synsets(other, pos)]
    return one == other or bool(shared)


Words = frozenset[str]


def joined(words: set[str]) -> list[Words]:
    """Groups of synonyms, and of synonyms of synonyms: joined until nothing changes."""
    groups = [frozenset([word]) for word in sorted(words)]
    while True:
        pair = next(
            ((g, h) for g, h in product(groups, groups) if g != h and any(synonyms(a, b) for a in g for b in h)),
            None,
        )
        if pair is None:
            return groups
        groups = [group for group in groups if group not in pair] + [pair[0] | pair[1]]


def merged(many: list[SceneGraph]) -> list[tuple[Words, ...]]:
    """The tuples of all graphs, each part a group of words."""
    objects = joined({name for graph in many for name in graph.objects})
    found: list[tuple[Words, ...]] = [(group,) for group in objects]
    for group in objects:
        found += [(group, trait) for trait in joined({a for graph in many for thing, a in graph.attributes if thing in group})]
    for one, other in product(objects, objects):
        between = {name for graph in many for a, name, b in graph.relations if a in one and b in other}
        found += [(one, name, other) for name in joined(between)]
    return found


def f_by_loops(own: list[SceneGraph], references: list[SceneGraph], name: str) -> float:
    def chosen(part: tuple[Words, ...]) -> bool:
        lists = {"colour": COLOURS, "count": COUNTS, "size": SIZES}
        lengths = {"object": 1, "attribute": 2, "relation": 3}
        if name in lists:
            return len(part) == 2 and bool(part[1] & lists[name])
        return name == "all" or len(part) == lengths[name]

    mine, theirs = ([part for part in merged(side) if chosen(part)] for side in (own, references))
    if not theirs:
        return float("nan")
    matched = 0
    for tuple_ in mine:
        for other in theirs:
            if len(tuple_) == len(other) and all(
                any(synonyms(a, b) for a in g for b in h) for g, h in zip(tuple_, other, strict=True)
            ):
                matched += 1
                break
    matched = min(matched, len(theirs))
    precision, recall = (matched / len(mine) if mine else 0.0), matched / len(theirs)
    return 2 * precision * recall / (precision + recall) if matched else 0.0


@settings(deadline=None)
@given(graphs(), st.lists(graphs(), min_size=1, max_size=3))
def test_the_f_score_is_the_one_of_loops(own: SceneGraph, references: list[SceneGraph]) -> None:
    sides = Tuples.of([own]), Tuples.of(references)
    for name, part in {"all": ALL, **PARTS}.items():
        assert f_score(*sides, part) == pytest.approx(f_by_loops([own], references, name), nan_ok=True), name


@settings(deadline=None)
@given(graphs(), st.lists(graphs(), min_size=1, max_size=3), st.randoms())
def test_laws(own: SceneGraph, references: list[SceneGraph], random: object) -> None:
    """Between 0 and 1; the order of references and a reference twice change nothing; all that is said is matched by itself."""
    score = np.nan_to_num(f_score(Tuples.of([own]), Tuples.of(references), ALL))
    assert 0 <= score <= 1
    shuffled = [*references, references[0]]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert np.nan_to_num(f_score(Tuples.of([own]), Tuples.of(shuffled), ALL)) == score
    if own.objects:
        assert f_score(Tuples.of([own]), Tuples.of([own]), ALL) == 1


def of(candidate: str, *references: str) -> float:
    return spice(Corpus.of({"7": candidate}, {"7": references}), parser="rules")[0].value


CAPTIONS = [
    "A young girl standing on top of a tennis court.",
    "Two dogs run.",
    "A man riding a wave on a surfboard",
    "the sun is up",
]


@pytest.mark.parametrize("caption", CAPTIONS)
def test_a_caption_that_is_its_reference_scores_one(caption: str) -> None:
    assert of(caption, caption) == 1
    assert of(caption, caption, caption.upper()) == 1


def test_what_is_said_counts_and_not_how() -> None:
    assert of("a bike is red", "a red bicycle") == 1
    assert of("a pizza eaten by a man", "a man eating a pizza") == 1
    assert of("a car is parked", "a parked automobile") == 1
    assert of("a man bites a dog", "a dog bites a man") == pytest.approx(2 / 3)  # both things, but another relation


def test_by_hand() -> None:
    """girl, court, (girl, young), (girl, on, court) against girl, court, (court, tennis), (girl, on, court), sun."""
    assert of("a young girl on a court", "a girl on a tennis court", "the sun") == pytest.approx(2 * 3 / (4 + 5))


def test_the_corpus_value_is_the_mean() -> None:
    corpus = Corpus.of({"1": "a dog", "2": "a cat"}, {"1": ["a dog"], "2": ["a red dog"]})
    (scores,) = spice(corpus, parser="rules")
    assert scores.values.tolist() == [1, 0]
    assert scores.value == 0.5


def test_parts() -> None:
    corpus = Corpus.of(
        {"1": "two big red dogs on a bed", "2": "a dog"}, {"1": ["two large green dogs on a sofa"], "2": ["a small dog sleeps"]}
    )
    found = {name: scores.values.tolist() for name, scores in spice_parts(corpus, parser="rules").items()}
    nan = pytest.approx(float("nan"), nan_ok=True)
    assert found["object"] == [0.5, 1]
    assert found["attribute"] == [pytest.approx(2 / 3), 0]
    assert found["relation"] == [0, nan]
    assert found["colour"] == [0, nan]
    assert found["count"] == [1, nan]
    assert found["size"] == [1, 0]
    assert spice_parts(corpus, parser="rules")["count"].value == 1  # the mean over captions that have it


def test_captions_that_say_nothing_score_nothing() -> None:
    texts = {"1": "", "2": "a dog", "3": "🐶", "4": "...", "5": "a dog 🐶"}
    (scores,) = spice(
        Corpus.of(texts, {"1": ["a dog"], "2": ["", "🐶"], "3": ["🐶"], "4": ["!"], "5": ["", "the dog"]}), parser="rules"
    )
    assert scores.values.tolist() == [0, 0, 0, 0, 1]


def test_long_captions() -> None:
    text = " ".join(f"a red thing{n} on a big box{n} and" for n in range(1_250))
    assert len(text.split()) == 10_000
    assert of(text, text, "a dog") == pytest.approx(1, abs=1e-3)  # one tuple of thousands is not matched


# The official program


FAKE = """#!{python}
import json, os, sys
memory, jar_option, jar, asked, *options = sys.argv[1:]
assert memory.startswith("-Xmx") and jar_option == "-jar" and os.path.isfile(jar), sys.argv
assert options[0] == "-out" and options[2:] == ["-subset", "-silent"], options
said = os.environ["FAKE_SPICE"]
if said == "crash":
    sys.stderr.write("Error: no scores:\\njava.lang.OutOfMemoryError: heap\\n\\tat edu.anu.spice.X(X.java:1)\\n")
    sys.exit(1)
given = json.load(open(asked))
json.dump(given, open(said, "w"))
def evaluation(f):
    return {{"f": f, "pr": f, "re": f, "tp": 1, "fp": 1, "fn": 1, "numImages": 1}}
scores = [
    {{"image_id": item["image_id"], "scores": {{
        "All": evaluation(len(item["refs"]) / 10), "Object": evaluation(0.5), "Attribute": evaluation(0.25),
        "Relation": evaluation(0.0),
        "Color": evaluation(None), "Cardinality": evaluation(item["image_id"] and None), "Size": evaluation(1.0),
    }}}}
    for item in reversed(given)
]
json.dump(scores, open(options[1], "w")) if "silent" not in said else None
"""
CORPUS = Corpus.of({"a": "A dog, the dog's ball.", "b": "Ein Hündchen"}, {"a": ["two dogs!"], "b": ["a cat", "", "cats"]})


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files of the right names, and a `java` that answers as the program does."""
    folder, path = tmp_path / "spice", tmp_path / "bin"
    (folder / "lib").mkdir(parents=True)
    path.mkdir()
    for name in (JAR, *(f"lib/{model}" for model in MODELS)):
        (folder / name).touch()
    java = path / "java"
    java.write_text(FAKE.format(python=sys.executable))
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SPICE", str(tmp_path / "given.json"))
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def test_the_official_program_is_called_where_it_is(program: Path, tmp_path: Path) -> None:
    assert spice_parser() == spice_parser("official") == JAR
    (scores,) = spice(CORPUS)
    assert scores.values.tolist() == [0.1, 0.3]
    assert scores.value == pytest.approx(0.2)
    assert json.loads((tmp_path / "given.json").read_text()) == [
        {"image_id": 0, "test": "a dog the dog 's ball", "refs": ["two dogs"]},
        {"image_id": 1, "test": "ein hündchen", "refs": ["a cat", "", "cats"]},
    ]
    parts = spice_parts(CORPUS)
    assert list(parts) == [name for name in NAMES if name != "all"]
    assert parts["attribute"].value == 0.25
    assert np.isnan(parts["colour"].value)
    assert parts["count"].value == 0  # one of two captions has a count
    assert np.isnan(parts["count"].values).tolist() == [False, True]


def test_our_own_parser_can_be_forced(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert spice_parser("rules") == "rules-1"
    forced = spice(CORPUS, parser="rules")[0].values
    monkeypatch.setenv(VARIABLE, "rules")
    assert spice_parser() == "rules-1"
    assert spice(CORPUS)[0].values.tolist() == forced.tolist()
    assert not (tmp_path / "given.json").exists()
    with pytest.raises(CrossmatchError, match=r"the official SPICE cannot run here; it needs java, spice-1\.0\.jar"):
        spice_parser("official")


def test_a_program_that_fails_says_why_and_what_to_do(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SPICE", "crash")
    with pytest.raises(
        CrossmatchError, match=r"ended with code 1: java\.lang\.OutOfMemoryError: heap .* set CROSSMATCH_SPICE=rules"
    ):
        spice(CORPUS)
    monkeypatch.setenv("FAKE_SPICE", str(tmp_path / "silent.json"))
    with pytest.raises(CrossmatchError, match=r"its scores of 2 captions cannot be read .* set CROSSMATCH_SPICE=rules"):
        spice(CORPUS)


@pytest.mark.parametrize("name", [JAR, *(f"lib/{model}" for model in MODELS)])
def test_a_folder_without_a_part_of_the_program_is_an_error(program: Path, name: str) -> None:
    (program / name).unlink()
    with pytest.raises(CrossmatchError, match=f"names {program}, which has no {name}"):
        spice(CORPUS)


def test_without_java(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program))
    with pytest.raises(CrossmatchError, match="no java on the path"):
        spice_parser()
    monkeypatch.delenv(VARIABLE)
    assert spice_parser() == "rules-1"


def test_there_are_two_parsers() -> None:
    with pytest.raises(WrongWords, match="there is no SPICE parser 'stanford'"):
        spice(CORPUS, parser="stanford")
