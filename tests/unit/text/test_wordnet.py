"""WordNet, inflected forms, and the senses of words in captions."""

import pytest

from crossmatch.text.inflection import inflect, is_uncountable, lemmatise
from crossmatch.text.part_of_speech import tag
from crossmatch.text.synonyms_and_hypernyms import find_word_senses, hypernym, synonym
from crossmatch.text.wordnet import CAPTION_SENSES, FILES, _data, _index, caption_sense, is_lemma, synset_at, synsets


def test_wordnet_is_complete():
    """The numbers of synsets are those of WordNet 3.0's own statistics."""
    assert {pos: len(_data(pos)) for pos in FILES} == {"n": 82115, "v": 13767, "a": 18156, "r": 3621}
    for pos in FILES:
        for offset in list(_data(pos))[::97]:
            synset = synset_at(pos, offset)
            assert synset.lemmas
            assert all(synset_at(target_pos, target).lemmas for _, target_pos, target in synset.pointers)


def test_synsets_contain_their_lemma():
    for pos in FILES:
        for name in list(_index(pos))[::499]:
            assert all(name.replace("_", " ") in [lemma.lower() for lemma in synset.lemmas] for synset in synsets(name, pos))


def test_hypernyms_and_hyponyms_are_inverse():
    dog = caption_sense("dog", "n")
    assert all(dog in above.related("~") for above in dog.related("@"))
    assert [synset.lemmas[0] for synset in dog.related("@")] == ["canine", "domestic animal"]


def test_unknown_words_have_no_synset():
    assert synsets("zzzz", "n") == ()
    assert caption_sense("zzzz", "n") is None
    assert not is_lemma("", "v")


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
    assert caption_sense(word, pos).gloss.startswith(gloss)


def test_caption_senses_are_never_the_first_sense():
    for pos, exceptions in CAPTION_SENSES.items():
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
def test_inflected_forms(base, tag, form):
    assert inflect(base, tag) == form


def test_lemmas():
    words = ("men", "people", "glasses", "leaves", "teeth")
    assert [lemmatise(word, "n") for word in words] == ["man", "person", "glasses", "leaf", "tooth"]
    assert [lemmatise(word, "v") for word in ("lying", "sat", "is", "rides")] == ["lie", "sit", "be", "ride"]
    assert is_uncountable("bedroom furniture")
    assert not is_uncountable("suit of clothes")


def senses_of(text):
    words = text.split()
    return find_word_senses(words, tag(words))


def test_compounds_are_one_noun_and_light_words_are_left_out():
    senses = senses_of("A couple of men are taking pictures of a red fire hydrant and two polar bears on top of hot dogs")
    assert [unit.lemma for unit in senses] == ["man", "picture", "fire hydrant", "polar bear", "hot dog"]


def test_adjective_compounds_must_be_literal():
    assert [unit.lemma for unit in senses_of("A white horse")] == ["horse"]  # WordNet's white horse is a wave


def test_attributive_participles_and_particle_verbs_are_left_out():
    assert [unit.lemma for unit in senses_of("A parked car")] == ["car"]
    assert [unit.lemma for unit in senses_of("A man picking up litter")] == ["man", "litter"]
    assert [unit.lemma for unit in senses_of("A man walking down the street")] == ["man", "walk", "street"]


def test_noun_before_a_noun_is_left_out():
    assert [unit.lemma for unit in senses_of("A stop sign and a snow covered hill")] == ["sign", "hill"]


def test_frames_say_whether_a_verb_takes_an_object():
    assert [synsets(verb, "v")[0].allows_object(verb, False) for verb in ("walk", "wear")] == [True, False]
    move, stay = (senses_of(text)[1] for text in ("A man pulling a cart", "A man walking here"))
    assert (move.lemma, move.with_object, hypernym(move)) == ("pull", True, "move")
    assert (stay.lemma, stay.with_object) == ("walk", False)
    assert [unit.lemma for unit in senses_of("A man walking a dog")] == ["man", "dog"]  # its first meaning takes no object


def test_synonyms_keep_the_sense():
    for unit in senses_of("A guy near a toilet with a motorcycle in a stadium on a couch"):
        new = synonym(unit)
        assert new is None or caption_sense(new, "n") == unit.synset


def test_synonyms_and_hypernyms_are_other_words():
    for unit in senses_of("A horse and a bus with water and a person on a street in a group eating pizza"):
        for lemma in (synonym(unit), hypernym(unit)):
            assert lemma is None or (lemma != unit.lemma and lemma.islower())
    horse, group = senses_of("horse")[0], senses_of("group")[0]
    assert (synonym(horse), hypernym(horse)) == (None, "equine")  # "Equus caballus" is a name
    assert hypernym(group) is None  # an abstraction
