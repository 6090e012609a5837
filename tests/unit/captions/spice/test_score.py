"""SPICE against loops, its laws, and a script in place of the official program."""

from __future__ import annotations

import json
import os
import stat
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.spice.official_program import ENVIRONMENT_VARIABLE, JAR, MODELS, SCORE_NAMES
from crossmatch.captions.spice.score import (
    ALL_TUPLES,
    COLOURS,
    COUNTS,
    SIZES,
    TUPLE_KINDS,
    SemanticTuples,
    f_score,
    parser_name,
    spice,
    spice_by_kind,
)
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.text.scene_graph import SceneGraph
from crossmatch.text.wordnet import synsets

# Some are synonyms, some through a third word.
OBJECTS = ["bike", "bicycle", "cycle", "car", "auto", "man", "child", "kid", "dog", "zzz"]
ATTRIBUTES = ["red", "grey", "gray", "big", "large", "two", "2", "run"]
RELATIONS = ["on", "ride", "sit on", "hold", "keep"]
objects, attributes, relations = (st.sampled_from(words) for words in (OBJECTS, ATTRIBUTES, RELATIONS))


@st.composite
def graphs(draw: st.DrawFn) -> SceneGraph:
    drawn_attributes = draw(st.lists(st.tuples(objects, attributes), max_size=4, unique=True))
    drawn_relations = draw(st.lists(st.tuples(objects, relations, objects), max_size=3, unique=True))
    named = [
        *draw(st.lists(objects, max_size=3)),
        *(t for t, _ in drawn_attributes),
        *(t for a, _, b in drawn_relations for t in (a, b)),
    ]
    return SceneGraph(tuple(dict.fromkeys(named)), tuple(drawn_attributes), tuple(drawn_relations))


def synonyms(first: str, second: str) -> bool:
    shared = [s for pos in "nvar" for s in synsets(first, pos) if s in synsets(second, pos)]
    return first == second or bool(shared)


Words = frozenset[str]


def joined(words: set[str]) -> list[Words]:
    """Groups of words connected by synonyms, merged until nothing changes."""
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
    tuples: list[tuple[Words, ...]] = [(group,) for group in objects]
    for group in objects:
        tuples += [(group, trait) for trait in joined({a for graph in many for owner, a in graph.attributes if owner in group})]
    for first, second in product(objects, objects):
        between = {name for graph in many for a, name, b in graph.relations if a in first and b in second}
        tuples += [(first, name, second) for name in joined(between)]
    return tuples


def f_score_by_loops(candidate: list[SceneGraph], references: list[SceneGraph], name: str) -> float:
    def chosen(part: tuple[Words, ...]) -> bool:
        lists = {"colour": COLOURS, "count": COUNTS, "size": SIZES}
        lengths = {"object": 1, "attribute": 2, "relation": 3}
        if name in lists:
            return len(part) == 2 and bool(part[1] & lists[name])
        return name == "all" or len(part) == lengths[name]

    candidate_tuples, reference_tuples = ([part for part in merged(side) if chosen(part)] for side in (candidate, references))
    if not reference_tuples:
        return float("nan")
    matched = 0
    for tuple_ in candidate_tuples:
        for second in reference_tuples:
            if len(tuple_) == len(second) and all(
                any(synonyms(a, b) for a in g for b in h) for g, h in zip(tuple_, second, strict=True)
            ):
                matched += 1
                break
    matched = min(matched, len(reference_tuples))
    precision, recall = (matched / len(candidate_tuples) if candidate_tuples else 0.0), matched / len(reference_tuples)
    return 2 * precision * recall / (precision + recall) if matched else 0.0


@given(graphs(), st.lists(graphs(), min_size=1, max_size=3))
def test_f_score_equals_loops(candidate: SceneGraph, references: list[SceneGraph]) -> None:
    sides = SemanticTuples.from_graphs([candidate]), SemanticTuples.from_graphs(references)
    for name, part in {"all": ALL_TUPLES, **TUPLE_KINDS}.items():
        assert f_score(*sides, part) == pytest.approx(f_score_by_loops([candidate], references, name), nan_ok=True), name


@given(graphs(), st.lists(graphs(), min_size=1, max_size=3), st.randoms())
def test_f_score_obeys_laws(candidate: SceneGraph, references: list[SceneGraph], random: object) -> None:
    """Between 0 and 1; order and repetition of references do not matter; a graph matches itself."""
    score = np.nan_to_num(f_score(SemanticTuples.from_graphs([candidate]), SemanticTuples.from_graphs(references), ALL_TUPLES))
    assert 0 <= score <= 1
    shuffled = [*references, references[0]]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert (
        np.nan_to_num(f_score(SemanticTuples.from_graphs([candidate]), SemanticTuples.from_graphs(shuffled), ALL_TUPLES)) == score
    )
    if candidate.objects:
        assert f_score(SemanticTuples.from_graphs([candidate]), SemanticTuples.from_graphs([candidate]), ALL_TUPLES) == 1


def of(candidate: str, *references: str) -> float:
    return spice(CaptionCorpus.from_texts({"7": candidate}, {"7": references}), parser="rules")[0].value


CAPTIONS = [
    "A young girl standing on top of a tennis court.",
    "Two dogs run.",
    "A man riding a wave on a surfboard",
    "the sun is up",
]


@pytest.mark.parametrize("caption", CAPTIONS)
def test_caption_equal_to_its_reference_scores_one(caption: str) -> None:
    assert of(caption, caption) == 1
    assert of(caption, caption, caption.upper()) == 1


def test_meaning_counts_and_not_wording() -> None:
    assert of("a bike is red", "a red bicycle") == 1
    assert of("a pizza eaten by a man", "a man eating a pizza") == 1
    assert of("a car is parked", "a parked automobile") == 1
    assert of("a man bites a dog", "a dog bites a man") == pytest.approx(2 / 3)  # both things, but another relation


def test_score_of_an_example() -> None:
    """girl, court, (girl, young), (girl, on, court) against girl, court, (court, tennis), (girl, on, court), sun."""
    assert of("a young girl on a court", "a girl on a tennis court", "the sun") == pytest.approx(2 * 3 / (4 + 5))


def test_corpus_value_is_the_mean() -> None:
    corpus = CaptionCorpus.from_texts({"1": "a dog", "2": "a cat"}, {"1": ["a dog"], "2": ["a red dog"]})
    (scores,) = spice(corpus, parser="rules")
    assert scores.values.tolist() == [1, 0]
    assert scores.value == 0.5


def test_scores_by_kind_of_tuple() -> None:
    corpus = CaptionCorpus.from_texts(
        {"1": "two big red dogs on a bed", "2": "a dog"}, {"1": ["two large green dogs on a sofa"], "2": ["a small dog sleeps"]}
    )
    values_by_kind = {name: scores.values.tolist() for name, scores in spice_by_kind(corpus, parser="rules").items()}
    nan = pytest.approx(float("nan"), nan_ok=True)
    assert values_by_kind["object"] == [0.5, 1]
    assert values_by_kind["attribute"] == [pytest.approx(2 / 3), 0]
    assert values_by_kind["relation"] == [0, nan]
    assert values_by_kind["colour"] == [0, nan]
    assert values_by_kind["count"] == [1, nan]
    assert values_by_kind["size"] == [1, 0]
    assert spice_by_kind(corpus, parser="rules")["count"].value == 1  # the mean over captions that have it


def test_captions_without_tuples_score_zero() -> None:
    texts = {"1": "", "2": "a dog", "3": "🐶", "4": "...", "5": "a dog 🐶"}
    (scores,) = spice(
        CaptionCorpus.from_texts(texts, {"1": ["a dog"], "2": ["", "🐶"], "3": ["🐶"], "4": ["!"], "5": ["", "the dog"]}),
        parser="rules",
    )
    assert scores.values.tolist() == [0, 0, 0, 0, 1]


def test_long_captions_are_scored() -> None:
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
CORPUS = CaptionCorpus.from_texts(
    {"a": "A dog, the dog's ball.", "b": "Ein Hündchen"}, {"a": ["two dogs!"], "b": ["a cat", "", "cats"]}
)


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
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, str(folder))
    return folder


def test_official_program_is_called_if_available(program: Path, tmp_path: Path) -> None:
    assert parser_name() == parser_name("official") == JAR
    (scores,) = spice(CORPUS)
    assert scores.values.tolist() == [0.1, 0.3]
    assert scores.value == pytest.approx(0.2)
    assert json.loads((tmp_path / "given.json").read_text()) == [
        {"image_id": 0, "test": "a dog the dog 's ball", "refs": ["two dogs"]},
        {"image_id": 1, "test": "ein hündchen", "refs": ["a cat", "", "cats"]},
    ]
    parts = spice_by_kind(CORPUS)
    assert list(parts) == [name for name in SCORE_NAMES if name != "all"]
    assert parts["attribute"].value == 0.25
    assert np.isnan(parts["colour"].value)
    assert parts["count"].value == 0  # one of two captions has a count
    assert np.isnan(parts["count"].values).tolist() == [False, True]


def test_rules_can_be_forced(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parser_name("rules") == "rules-1"
    forced = spice(CORPUS, parser="rules")[0].values
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "rules")
    assert parser_name() == "rules-1"
    assert spice(CORPUS)[0].values.tolist() == forced.tolist()
    assert not (tmp_path / "given.json").exists()
    with pytest.raises(CrossmatchError, match=r"The official SPICE program needs Java, spice-1\.0\.jar"):
        parser_name("official")


def test_failing_program_gives_reason_and_remedy(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_SPICE", "crash")
    with pytest.raises(
        CrossmatchError, match=r"failed with code 1: java\.lang\.OutOfMemoryError: heap .* set CROSSMATCH_SPICE=rules"
    ):
        spice(CORPUS)
    monkeypatch.setenv("FAKE_SPICE", str(tmp_path / "silent.json"))
    with pytest.raises(CrossmatchError, match=r"for 2 captions cannot be read .* set CROSSMATCH_SPICE=rules"):
        spice(CORPUS)


@pytest.mark.parametrize("name", [JAR, *(f"lib/{model}" for model in MODELS)])
def test_incomplete_folder_is_an_error(program: Path, name: str) -> None:
    (program / name).unlink()
    with pytest.raises(CrossmatchError, match=f"is {program}, but this folder has no {name}"):
        spice(CORPUS)


def test_without_java_rules_are_used(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(program))
    with pytest.raises(CrossmatchError, match="Java is not installed"):
        parser_name()
    monkeypatch.delenv(ENVIRONMENT_VARIABLE)
    assert parser_name() == "rules-1"


def test_unknown_parser_is_refused() -> None:
    with pytest.raises(UsageError, match="Unknown SPICE parser 'stanford'"):
        spice(CORPUS, parser="stanford")


CIDER = 0.439  # published for Flickr8k-Expert; the published SPICE has 0.449, and its claim is to be above CIDEr


@pytest.mark.slow
def test_agreement_with_experts_is_above_that_of_cider(real_data_folder: Path) -> None:
    """Kendall's tau-c over all ratings, three of each caption; the rules were not fitted to these."""
    items, ratings = {}, []
    for image, entry in json.loads((real_data_folder / "judgements/flickr8k.json").read_text()).items():
        for judged in entry["human_judgement"]:
            item = f"{image} {judged['caption']}"
            items[item] = judged["caption"], entry["ground_truth"]
            ratings.append((item, judged["rating"]))
    assert len(ratings) == 16_992
    corpus = CaptionCorpus.from_texts(
        {item: caption for item, (caption, _) in items.items()}, {item: refs for item, (_, refs) in items.items()}
    )
    score = dict(zip(items, spice(corpus, parser="rules")[0].values, strict=True))
    pairs = np.array([(score[item], rating) for item, rating in ratings])
    assert kendalltau(pairs[:, 0], pairs[:, 1], variant="c").statistic > CIDER
