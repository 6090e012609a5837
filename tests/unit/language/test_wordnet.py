"""WordNet as its package has it, forms of words, and what captions mean by them."""

import pytest

from crossmatch.language.forms import inflected, lemma, uncounted
from crossmatch.language.replace import ground, hypernym, synonym
from crossmatch.language.tags import tag
from crossmatch.language.wordnet import FILES, IN_CAPTIONS, _data, _index, knows, meaning, synset_at, synsets


def test_all_of_wordnet_is_there_and_can_be_read():
    """The numbers of synsets are those of WordNet 3.0's own statistics."""
    assert {pos: len(_data(pos)) for pos in FILES} == {"n": 82115, "v": 13767, "a": 18156, "r": 3621}
    for pos in FILES:
        for offset in list(_data(pos))[::97]:
            synset = synset_at(pos, offset)
            assert synset.lemmas
            assert all(synset_at(other, place).lemmas for _, other, place in synset.pointers)


def test_every_synset_of_a_lemma_has_the_lemma():
    for pos in FILES:
        for name in list(_index(pos))[::499]:
            assert all(name.replace("_", " ") in [known.lower() for known in synset.lemmas] for synset in synsets(name, pos))


def test_hypernyms_and_hyponyms_point_at_each_other():
    dog = meaning("dog", "n")
    assert all(dog in above.related("~") for above in dog.related("@"))
    assert [synset.lemmas[0] for synset in dog.related("@")] == ["canine", "domestic animal"]


def test_what_is_not_there():
    assert synsets("zzzz", "n") == ()
    assert meaning("zzzz", "n") is None
    assert not knows("", "v")


@pytest.mark.parametrize(
    ("word", "pos", "gloss"),
    [
        ("plate", "n", "dish on which food"), ("bat", "n", "a club used for hitting"), ("hot dog", "n", "a frankfurter served hot"),
        ("kite", "n", "plaything"), ("light", "n", "any device serving as a source"), ("toilet", "n", "a plumbing fixture"),
        ("court", "n", "a specially marked horizontal area"), ("pose", "v", "assume a posture"), ("fry", "n", "a young person"),
        ("man", "n", "an adult person who is male"),
    ],
)  # fmt: skip
def test_meanings_in_captions(word, pos, gloss):
    assert meaning(word, pos).gloss.startswith(gloss)


def test_no_exception_names_the_sense_that_is_first_anyway():
    for pos, exceptions in IN_CAPTIONS.items():
        assert not [word for word, number in exceptions.items() if number == 0 or number >= len(synsets(word, pos))]


@pytest.mark.parametrize(
    ("base", "tag", "form"),
    [
        ("ride", "VBG", "riding"), ("sit", "VBD", "sat"), ("park", "VBN", "parked"), ("carry", "VBZ", "carries"),
        ("woman", "NNS", "women"),
        ("adult female", "NNS", "adult females"), ("source of illumination", "NNS", "sources of illumination"),
        ("sit down", "VBZ", "sits down"),
        ("furniture", "NNS", "furniture"), ("spectacles", "NNS", "spectacles"), ("man", "NN", "man"), ("go", "VBP", "go"),
    ],
)  # fmt: skip
def test_forms(base, tag, form):
    assert inflected(base, tag) == form


def test_lemmas():
    words = ("men", "people", "glasses", "leaves", "teeth")
    assert [lemma(word, "n") for word in words] == ["man", "person", "glasses", "leaf", "tooth"]
    assert [lemma(word, "v") for word in ("lying", "sat", "is", "rides")] == ["lie", "sit", "be", "ride"]
    assert uncounted("bedroom furniture")
    assert not uncounted("suit of clothes")


def grounded(text):
    words = text.split()
    return ground(words, tag(words))


def test_compounds_are_one_noun_and_light_words_are_none():
    found = grounded("A couple of men are taking pictures of a red fire hydrant and two polar bears on top of hot dogs")
    assert [unit.lemma for unit in found] == ["man", "picture", "fire hydrant", "polar bear", "hot dog"]


def test_an_adjective_makes_a_compound_only_if_it_is_meant_literally():
    assert [unit.lemma for unit in grounded("A white horse")] == ["horse"]  # WordNet's white horse is a wave


def test_a_participle_in_front_of_a_noun_is_no_verb_and_a_verb_with_a_particle_is_left_out():
    assert [unit.lemma for unit in grounded("A parked car")] == ["car"]
    assert [unit.lemma for unit in grounded("A man picking up litter")] == ["man", "litter"]
    assert [unit.lemma for unit in grounded("A man walking down the street")] == ["man", "walk", "street"]


def test_a_noun_in_front_of_a_noun_is_left_out():
    assert [unit.lemma for unit in grounded("A stop sign and a snow covered hill")] == ["sign", "hill"]


def test_frames_say_whether_a_verb_takes_an_object():
    assert [synsets(verb, "v")[0].fits(verb, False) for verb in ("walk", "wear")] == [True, False]
    move, stay = (grounded(text)[1] for text in ("A man pulling a cart", "A man walking here"))
    assert (move.lemma, move.with_object, hypernym(move)) == ("pull", True, "move")
    assert (stay.lemma, stay.with_object) == ("walk", False)
    assert [unit.lemma for unit in grounded("A man walking a dog")] == ["man", "dog"]  # its first meaning takes no object


def test_a_replacement_is_read_in_the_meaning_that_it_stands_for():
    for unit in grounded("A guy near a toilet with a motorcycle in a stadium on a couch"):
        new = synonym(unit)
        assert new is None or meaning(new, "n") == unit.meaning


def test_synonyms_and_hypernyms_are_other_words():
    for unit in grounded("A horse and a bus with water and a person on a street in a group eating pizza"):
        for other in (synonym(unit), hypernym(unit)):
            assert other is None or (other != unit.lemma and other.islower())
    horse, group = grounded("horse")[0], grounded("group")[0]
    assert (synonym(horse), hypernym(horse)) == (None, "equine")  # "Equus caballus" is a name
    assert hypernym(group) is None  # an abstraction
