"""Near and far words: what is replaced, that nothing but the meaning differs, and that ties are counted as wrong."""

import csv
import json

import numpy as np
import pytest

from crossmatch.captions.alternatives import ATTRIBUTES, COMPONENTS, Mentioned, Vocabulary, alternatives, attribute, taken_apart
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.sensitivity import BLIND, Probe, probes, sensitivity
from crossmatch.captions.tokenise import tokenise
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.language.wordnet import meaning, synsets

SAID = {
    "1": ["A man rides a horse on the beach.", "Someone riding a brown pony.", "A person on a horse."],
    "2": ["Two big dogs sit on a couch.", "A pair of large dogs on a sofa.", "Dogs sitting on a red couch."],
    "3": ["A woman is eating pizza in the kitchen.", "The lady eats a slice of pizza.", "A woman with food."],
    "4": ["A large bus drives down a street.", "The big bus moves along the road.", "A bus on a wet road."],
    "5": ["A small cat sleeps on a wooden bench.", "A little kitten lying on a bench.", "A cat naps outside."],
    "6": ["2 boys run with a green kite.", "Three children jumping on grass.", "Two kids play with a blue kite."],
    "7": ["An empty plate on a dirty table.", "A full bowl on a clean desk.", "Four plates."],
}


@pytest.fixture(scope="module")
def coco(real_data_folder):
    said = {}
    with (real_data_folder / "coco/karpathy_test_captions.tsv").open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            said.setdefault(row["image_id"], []).append(row["caption"])
    return dict(list(said.items())[:180])


@pytest.fixture(scope="module")
def found(coco):
    return probes(coco)


def test_one_probe_for_each_image_and_component(found, coco):
    assert len({(probe.image, probe.component) for probe in found}) == len(found)
    for component, least in zip(COMPONENTS, (0.9, 0.8, 0.6), strict=True):
        assert sum(probe.component == component for probe in found) > least * len(coco)
    assert {probe.attribute for probe in found if probe.component == "property"} == set(ATTRIBUTES)


def test_nothing_but_one_component_differs(found):
    """Same length, and all words but the new ones are the source's: the article before it is right for both."""
    for probe in found:
        near, far, old = (tokenise(text) for text in (probe.near, probe.far, probe.source))
        assert len(near) == len(far)
        differ = [at for at, (one, two) in enumerate(zip(near, far, strict=True)) if one != two]
        assert 1 <= len(differ) <= probe.near_word.count(" ") + 1
        assert len(differ) == differ[-1] - differ[0] + 1 or " " in probe.near_word
        rest = [word for at, word in enumerate(near) if not differ[0] <= at <= differ[-1]]
        assert set(rest) - set(old) - set(probe.near_word.split()) <= {"a", "an"}


def test_the_source_is_not_a_reference(found, coco):
    for probe in found:
        assert probe.source not in probe.references
        assert [text for text in coco[probe.image] if text != probe.source] == list(probe.references)


def test_near_is_close_in_wordnet_and_far_is_not(found):
    files = {"object": "n", "action": "v", "property": "a"}
    for probe in found:
        pos = files[probe.component]
        senses = [set(synsets(word, pos)) for word in (probe.old, probe.near_word, probe.far_word)]
        around = senses[0].union(*(synset.related("@", "@i", "~", "&") for synset in senses[0]))
        siblings = around.union(*(synset.related("~", "&") for synset in around))
        assert senses[1] & siblings
        assert not senses[2] & senses[0]
        assert not senses[2] & senses[1]
        if pos != "a":
            assert meaning(probe.far_word, pos).topic != meaning(probe.old, pos).topic


def test_what_the_captions_mention_is_never_far(found, coco):
    for probe in found:
        words = {word for text in coco[probe.image] for word in tokenise(text)}
        assert probe.far_word not in words


def test_near_and_far_are_about_as_frequent(found):
    """Not twice or half as frequent; of numbers and colours there are too few for that."""
    for component, least in zip(COMPONENTS, (0.95, 0.95, 0.7), strict=True):
        near, far = np.log1p(np.array([probe.times for probe in found if probe.component == component], dtype=float)).T
        assert (np.abs(near - far) < np.log(2) + 1e-9).mean() > least


def test_probes_depend_on_neither_order_nor_other_images(coco):
    few = dict(list(coco.items())[:40])
    words = Vocabulary.of(text for texts in few.values() for text in texts)
    plain = {(probe.image, probe.component): probe for probe in probes(few, vocabulary=words)}
    turned = {image: few[image] for image in list(few)[:20][::-1]}
    for probe in probes(turned, vocabulary=words):
        assert probe == plain[probe.image, probe.component]
    other = probes(few, vocabulary=words, seed=1)
    assert sum(probe != plain[probe.image, probe.component] for probe in other) > len(other) / 2


def test_properties_have_their_kinds():
    said = {
        "two": "counting",
        "big": "size",
        "red": "colour",
        "wooden": "other",
        "wet": "state",
        "empty": "state",
        "happy": "state",
    }
    for word, kind in said.items():
        units = next(taken_apart([f"a man with {'' if word == 'two' else 'a '}{word} dog{'s' * (word == 'two')}"]))[3]
        assert [attribute(unit) for unit in units if unit.pos == "a"] == [kind], word


def test_numbers_become_the_same_number_or_another_one():
    words = Vocabulary.of(["2 dogs", "3 cats", "4 men", "two dogs", "three cats", "five men"])
    units = next(taken_apart(["Two dogs sit."]))[3]
    chosen = [alternatives(units[0], words, Mentioned.by(units), False, (drawn, drawn)) for drawn in (0.0, 0.99)]
    assert {two.near for two in chosen} == {"2"}
    assert {two.far for two in chosen} <= {str(n) for n in range(3, 11)}
    assert len({two.far for two in chosen}) == 2


def test_without_words_to_choose_from_there_is_no_probe():
    assert probes({"1": ["A dog.", "The dog."]}) == []
    assert probes({"1": ["A dog chasing a cat."]}) == []  # nothing to compare with
    assert probes({"1": ["", "!!"], "2": ["Wow", "Wow"]}) == []


def test_the_share_is_that_of_strictly_higher_scores():
    words = ("man", "guy", "bus", "narrower", (3, 3))
    given = [
        Probe("1", "object", "", "a man", *words, "a guy", "a bus", ("the guy", "a person")),  # seen
        Probe("2", "object", "", "a man", *words, "a guy", "a bus", ("the bus", "a person")),  # far is seen
        Probe("3", "object", "", "a man", *words, "a guy", "a bus", ("the dog", "a person")),  # neither is
        Probe("4", "property", "size", "a big man", *words, "large man", "red man", ("a large man",)),
    ]
    rows = {(row.metric, row.component, row.attribute): row for row in sensitivity(given, ["bleu-1", "bleu-2"]).rows}
    for name in ("bleu-1", "bleu-2"):
        row = rows[name, "object", ""]
        assert (row.right.value, row.ties, row.probes) == pytest.approx((1 / 3, 1 / 3, 3))
        assert rows[name, "property", "size"].right.value == rows[name, "property", ""].right.value == 1
    assert rows[BLIND, "object", ""].ties == 1
    assert (rows["bleu-1", "object", ""].right.low, rows["bleu-1", "object", ""].right.high) == pytest.approx(
        (0.0615, 0.7923), abs=1e-4
    )


def test_rounding_is_no_difference(found):
    """Words that nothing in the corpus has: CIDEr sums the same numbers in another order."""
    given = [
        Probe(p.image, p.component, p.attribute, p.source, p.old, "zzyx", "qqvx", p.relation, (0, 0),
              p.source + " zzyx", p.source + " qqvx", p.references)
        for p in found[:100]
    ]  # fmt: skip
    rows = sensitivity(given, ["bleu", "rouge-l", "cider", "cider-d"]).rows
    assert {row.ties for row in rows} == {1.0}
    assert {row.right.value for row in rows} == {0.0}


def test_real_captions_tie_by_words_and_not_by_weights(found):
    told = sensitivity(found, ["bleu-4", "rouge-l", "cider-d"]).rows
    rows = {(row.metric, row.component): row for row in told if not row.attribute}
    for component in COMPONENTS:
        for name in ("bleu-4", "rouge-l"):
            assert rows[name, component].ties > 0.5
            assert rows[name, component].right.value + rows[name, component].ties > 0.97
        assert rows["cider-d", component].ties < rows["bleu-4", component].ties - 0.1  # the words' frequencies tell them apart
    assert rows["bleu-4", "object"].right.low > rows["bleu-4", "action"].right.high


def test_a_small_collection_works_too():
    found = probes(SAID)
    assert {probe.component for probe in found} == set(COMPONENTS)
    assert sensitivity(found, ["cider-d"]).rows[0].metric == "cider-d"


def test_the_captions_of_an_image_are_one_document_however_many_probes_it_has():
    found = probes(SAID)
    assert len(found) > len(SAID)
    held = Frequencies.of(Corpus.of(dict.fromkeys(SAID, ""), SAID))
    plain, whole = sensitivity(found, ["cider-d"]), sensitivity(found, ["cider-d"], held=SAID)
    told = f"|df:{held.digest}/{len(SAID)}|"
    assert told in whole.signatures["cider-d"]
    assert told in plain.signatures["cider-d"]  # every image has a probe here, and a probe names all captions of its image
    assert "|df:images|" in whole.signature
    more = {**SAID, "8": ["A dog.", "The dog runs."]}  # without a probe, but a document
    assert "/8|" in sensitivity(found, ["cider-d"], held=more).signatures["cider-d"]
    given = sensitivity(found, ["cider-d"], held, held=more)
    assert (told in given.signatures["cider-d"], told in given.signature) == (True, True)
    assert given.rows == whole.rows


def test_other_probes_have_another_signature():
    found = probes(SAID)
    one, two = sensitivity(found, ["bleu-1"]), sensitivity(found[1:], ["bleu-1"])
    assert one.signature != two.signature
    assert one.as_json()["metrics"] == {"bleu-1": one.signatures["bleu-1"]}
    assert json.loads(json.dumps(one.as_json(), allow_nan=False))["rows"][0]["metric"] == "bleu-1"


def test_wrong_words_are_refused():
    with pytest.raises(WrongWords, match="no component 'verb'"):
        probes(SAID, ["verb"])
    with pytest.raises(CrossmatchError, match="no captions"):
        probes({})
    with pytest.raises(CrossmatchError, match="the captions of '1'"):
        probes({"1": "a dog"})
    with pytest.raises(CrossmatchError, match="no probes"):
        sensitivity([], ["bleu-1"])
