"""Near and far words: what is replaced, that only the meaning differs, and that ties count as wrong."""

import csv
import json

import numpy as np
import pytest

from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.human.published_ratings import load_ratings
from crossmatch.captions.human.sensitivity import (
    FREQUENCY_SCORER,
    Probe,
    make_probes,
    measure_sensitivity,
    measure_word_sensitivity,
)
from crossmatch.captions.human.word_alternatives import (
    COMPONENTS,
    PROPERTY_KINDS,
    CaptionVocabulary,
    MentionedMeanings,
    extract_components,
    find_alternatives,
    property_kind,
)
from crossmatch.captions.ptb_tokenizer import tokenise
from crossmatch.data.errors import CrossmatchError
from crossmatch.text.wordnet import caption_sense, synsets

CAPTIONS = {
    "1": ["A man rides a horse on the beach.", "Someone riding a brown pony.", "A person on a horse."],
    "2": ["Two big dogs sit on a couch.", "A pair of large dogs on a sofa.", "Dogs sitting on a red couch."],
    "3": ["A woman is eating pizza in the kitchen.", "The lady eats a slice of pizza.", "A woman with food."],
    "4": ["A large bus drives down a street.", "The big bus moves along the road.", "A bus on a wet road."],
    "5": ["A small cat sleeps on a wooden bench.", "A little kitten lying on a bench.", "A cat naps outside."],
    "6": ["2 boys run with a green kite.", "Three children jumping on grass.", "Two kids play with a blue kite."],
    "7": ["An empty plate on a dirty table.", "A full bowl on a clean desk.", "Four plates."],
}


def measure(probes, names, captions=CAPTIONS, frequencies=None):
    return measure_sensitivity(probes, names, captions, frequencies, study="mine", facts={"seed": 0})


@pytest.fixture(scope="module")
def coco(real_data_folder):
    captions = {}
    with (real_data_folder / "coco/karpathy_test_captions.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            captions.setdefault(row["image_id"], []).append(row["caption"])
    return dict(list(captions.items())[:180])


@pytest.fixture(scope="module")
def probes(coco):
    return make_probes(coco)


def test_each_image_and_component_has_at_most_one_probe(probes, coco):
    assert len({(probe.image, probe.component) for probe in probes}) == len(probes)
    for component, least in zip(COMPONENTS, (0.9, 0.8, 0.6), strict=True):
        assert sum(probe.component == component for probe in probes) > least * len(coco)
    assert {probe.attribute for probe in probes if probe.component == "property"} == set(PROPERTY_KINDS)


def test_candidates_differ_in_one_component_only(probes):
    """Same length, and all words but the new ones are the source's: the article before it is right for both."""
    for probe in probes:
        near, far, old = (tokenise(text) for text in (probe.near, probe.far, probe.source))
        assert len(near) == len(far)
        differ = [at for at, words in enumerate(zip(near, far, strict=True)) if words[0] != words[1]]
        assert 1 <= len(differ) <= probe.near_word.count(" ") + 1
        assert len(differ) == differ[-1] - differ[0] + 1 or " " in probe.near_word
        rest = [word for at, word in enumerate(near) if not differ[0] <= at <= differ[-1]]
        assert set(rest) - set(old) - set(probe.near_word.split()) <= {"a", "an"}


def test_source_is_not_a_reference(probes, coco):
    for probe in probes:
        assert probe.source not in probe.references
        assert [text for text in coco[probe.image] if text != probe.source] == list(probe.references)


def test_near_word_is_close_in_wordnet_and_far_word_is_not(probes):
    files = {"object": "n", "action": "v", "property": "a"}
    for probe in probes:
        pos = files[probe.component]
        senses = [set(synsets(word, pos)) for word in (probe.old, probe.near_word, probe.far_word)]
        around = senses[0].union(*(synset.related("@", "@i", "~", "&") for synset in senses[0]))
        siblings = around.union(*(synset.related("~", "&") for synset in around))
        assert senses[1] & siblings
        assert not senses[2] & senses[0]
        assert not senses[2] & senses[1]
        if pos != "a":
            assert caption_sense(probe.far_word, pos).lexicographer_file != caption_sense(probe.old, pos).lexicographer_file


def test_far_word_is_not_in_the_captions_of_the_image(probes, coco):
    for probe in probes:
        words = {word for text in coco[probe.image] for word in tokenise(text)}
        assert probe.far_word not in words


def test_near_and_far_words_have_similar_frequencies(probes):
    """Not twice or half as frequent; of numbers and colours there are too few for that."""
    for component, least in zip(COMPONENTS, (0.95, 0.95, 0.7), strict=True):
        near, far = np.log1p(np.array([probe.times for probe in probes if probe.component == component], dtype=float)).T
        assert (np.abs(near - far) < np.log(2) + 1e-9).mean() > least


def test_probes_do_not_depend_on_order_or_other_images(coco):
    few = dict(list(coco.items())[:40])
    words = CaptionVocabulary.from_captions(text for texts in few.values() for text in texts)
    plain = {(probe.image, probe.component): probe for probe in make_probes(few, vocabulary=words)}
    reversed_images = {image: few[image] for image in list(few)[:20][::-1]}
    for probe in make_probes(reversed_images, vocabulary=words):
        assert probe == plain[probe.image, probe.component]
    reseeded = make_probes(few, vocabulary=words, seed=1)
    assert sum(probe != plain[probe.image, probe.component] for probe in reseeded) > len(reseeded) / 2


def test_kinds_of_properties():
    kinds = {"two": "counting", "big": "size", "red": "colour", "wooden": "other", "wet": "state", "happy": "state"}
    for word, kind in kinds.items():
        components = next(extract_components([f"a man with {'' if word == 'two' else 'a '}{word} dog{'s' * (word == 'two')}"]))[3]
        assert [property_kind(component) for component in components if component.pos == "a"] == [kind], word


def test_numbers_are_replaced_by_numbers():
    words = CaptionVocabulary.from_captions(["2 dogs", "3 cats", "4 men", "two dogs", "three cats", "five men"])
    components = next(extract_components(["Two dogs sit."]))[3]
    chosen = [
        find_alternatives(components[0], words, MentionedMeanings.from_components(components), False, (drawn, drawn))
        for drawn in (0.0, 0.99)
    ]
    assert {pair.near for pair in chosen} == {"2"}
    assert {pair.far for pair in chosen} <= {str(n) for n in range(3, 11)}
    assert len({pair.far for pair in chosen}) == 2


def test_without_alternatives_there_is_no_probe():
    assert make_probes({"1": ["A dog.", "The dog."]}) == []
    assert make_probes({"1": ["A dog chasing a cat."]}) == []  # nothing to compare with
    assert make_probes({"1": ["", "!!"], "2": ["Wow", "Wow"]}) == []


def test_only_strictly_higher_scores_count():
    words = ("man", "guy", "bus", "narrower", (3, 3))
    probes = [
        Probe("1", "object", "", "a man", *words, "a guy", "a bus", ("the guy", "a person")),  # seen
        Probe("2", "object", "", "a man", *words, "a guy", "a bus", ("the bus", "a person")),  # far is seen
        Probe("3", "object", "", "a man", *words, "a guy", "a bus", ("the dog", "a person")),  # neither is
        Probe("4", "property", "size", "a big man", *words, "large man", "red man", ("a large man",)),
    ]
    rows = {(row.metric, row.component, row.attribute): row for row in measure(probes, ["bleu-1", "bleu-2"]).rows}
    for name in ("bleu-1", "bleu-2"):
        row = rows[name, "object", ""]
        assert (row.correct.value, row.ties, row.probes) == pytest.approx((1 / 3, 1 / 3, 3))
        assert rows[name, "property", "size"].correct.value == rows[name, "property", ""].correct.value == 1
    assert rows[FREQUENCY_SCORER, "object", ""].ties == 1
    assert (rows["bleu-1", "object", ""].correct.low, rows["bleu-1", "object", ""].correct.high) == pytest.approx(
        (0.0615, 0.7923), abs=1e-4
    )


def test_rounding_errors_are_ties(probes, coco):
    """Words that nothing in the corpus has: CIDEr sums the same numbers in another order."""
    changed = [
        Probe(p.image, p.component, p.attribute, p.source, p.old, "zzyx", "qqvx", p.relation, (0, 0),
              p.source + " zzyx", p.source + " qqvx", p.references)
        for p in probes[:100]
    ]  # fmt: skip
    rows = measure(changed, ["bleu", "rouge-l", "cider", "cider-d"], coco).rows
    assert {row.ties for row in rows} == {1.0}
    assert {row.correct.value for row in rows} == {0.0}


def test_word_overlap_ties_more_often_than_cider(probes, coco):
    result_rows = measure(probes, ["bleu-4", "rouge-l", "cider-d"], coco).rows
    rows = {(row.metric, row.component): row for row in result_rows if not row.attribute}
    for component in COMPONENTS:
        for name in ("bleu-4", "rouge-l"):
            assert rows[name, component].ties > 0.5
            assert rows[name, component].correct.value + rows[name, component].ties > 0.97
        assert rows["cider-d", component].ties < rows["bleu-4", component].ties - 0.1  # the words' frequencies tell them apart
    assert rows["bleu-4", "object"].correct.low > rows["bleu-4", "action"].correct.high


def test_captions_of_an_image_are_one_document():
    probes = make_probes(CAPTIONS)
    assert {probe.component for probe in probes} == set(COMPONENTS)
    assert len(probes) > len(CAPTIONS)
    frequencies = DocumentFrequencies.from_references(CAPTIONS)
    by_image = measure(probes, ["cider-d"])
    label = f"|df:{frequencies.digest}/{len(CAPTIONS)}|"
    assert label in by_image.signatures["cider-d"]
    assert "|df:images|" in by_image.signature
    explicit = measure(probes, ["cider-d"], {"8": ["A dog."]}, frequencies)
    assert (label in explicit.signatures["cider-d"], label in explicit.signature) == (True, True)
    assert explicit.rows == by_image.rows


def test_result_has_a_signature_and_is_json():
    result = measure(make_probes(CAPTIONS), ["bleu-1"])
    assert result.signature.startswith("sensitivity|mine|seed:0|ties:wrong|df:images|probes:")
    assert result.as_json()["metrics"] == {"bleu-1": result.signatures["bleu-1"]}
    assert json.loads(json.dumps(result.as_json(), allow_nan=False))["rows"][0]["metric"] == "bleu-1"


def test_study_gives_captions_documents_and_signature(real_data_folder):
    study = load_ratings("flickr8k-expert", real_data_folder)
    study = study.select(np.arange(0, len(study), 6)[:40])
    result = measure_word_sensitivity(study, ["cider-d"])
    assert f"/{len(set(study.images.tolist()))}|" in result.signatures["cider-d"]
    assert result.signature.startswith(f"sensitivity|flickr8k-expert|data:{study.digest}|seed:0|ties:wrong|df:images|probes:")


def test_no_probes_are_refused():
    with pytest.raises(CrossmatchError, match="No probes"):
        measure([], ["bleu-1"])
