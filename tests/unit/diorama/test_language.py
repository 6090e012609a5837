"""Captions: five per scene, good English, from exhaustive to generic; meanings that keep their promises."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from crossmatch.core.errors import CrossmatchError
from crossmatch.diorama.grammar import SETTING_WORDS, describe
from crossmatch.diorama.kinds import KIND, kinds_of
from crossmatch.diorama.layout import sample_scene
from crossmatch.diorama.meaning import SOME, SURROUNDINGS, Meaning, Phrase, disjoint, extension
from crossmatch.diorama.scenes import RELATIONS, Scene
from crossmatch.diorama.wording import RELATION_WORDS, VERBS, article, listed, verbs_of

SCENES = [sample_scene("language", i) for i in range(400)]
FIVES = [describe(scene) for scene in SCENES]
CAPTIONS = [caption for five in FIVES for caption in five]


def words(text: str) -> list[str]:
    return text.split()


def test_five_different_sentences() -> None:
    for five in FIVES:
        assert len({caption.text for caption in five}) == len(five) == 5


def test_sentences_look_like_sentences() -> None:
    for caption in CAPTIONS:
        assert re.fullmatch(r"[A-Z][A-Za-z ,;-]*[a-zVA-Z]\.", caption.text), caption.text
        assert "  " not in caption.text
        assert " ," not in caption.text
        assert not re.search(r"\b(\w+) \1\b", caption.text), caption.text


def test_articles_agree() -> None:
    for caption in CAPTIONS:
        for said, word in re.findall(r"\b([Aa]n?) (\w[\w-]*)", caption.text):
            assert said.lower() == article(word), caption.text
    assert [article(word) for word in ("egg", "hourglass", "huge dog", "umbrella", "TV", "orange cat")] == [
        "an", "an", "a", "an", "a", "an",
    ]  # fmt: skip


def test_numbers_agree_with_nouns() -> None:
    """A plural stands where the meaning counts, a singular where it does not."""
    for caption in CAPTIONS:
        for phrase in caption.meaning.phrases:
            nouns = [w for k in kinds_of(phrase.noun) for w in KIND[k].words] if phrase.noun in KIND else []
            forms = [w.singular if phrase.count in (None, 1) else w.plural for w in nouns]
            assert not nouns or any(form in caption.text for form in forms), (caption.text, phrase)


def test_lengths_fall_from_exhaustive_to_short() -> None:
    means = [sum(len(words(five[level].text)) for five in FIVES) / len(FIVES) for level in range(5)]
    assert means[0] > means[1] > means[2] > means[3]
    assert max(len(words(five[0].text)) for five in FIVES) <= 45
    assert max(len(words(five[1].text)) for five in FIVES) <= 30


def test_the_first_caption_is_exhaustive() -> None:
    for scene, five in zip(SCENES, FIVES, strict=True):
        meaning = five[0].meaning
        found = [extension(phrase, scene) for phrase in meaning.phrases]
        assert sorted(i for things in found for i in things) == list(range(len(scene.things)))
        assert meaning.setting == scene.setting
        for phrase, things in zip(meaning.phrases, found, strict=True):
            assert phrase.count == (None if len(things) == 1 else len(things))
            assert phrase.colour is not None
            thing = scene.things[things[0]]
            assert phrase.texture == thing.texture or (phrase.texture is None and thing.texture == "plain")
            assert phrase.size == (None if thing.size == "medium" else thing.size)
    assert sum(bool(five[0].meaning.relations) for five in FIVES) > 0.6 * len(FIVES)


def test_the_others_say_less() -> None:
    for scene, (_, detailed, plain, short, generic) in zip(SCENES, FIVES, strict=True):
        assert detailed.meaning.setting == scene.setting
        assert len(detailed.meaning.phrases) == min(2, len({t.group for t in scene.things}))
        assert len(plain.meaning.phrases) <= 2
        assert len(short.meaning.phrases) == 1
        assert sum(value is not None for value in short.meaning.phrases[0].attributes) <= 1
        assert all(phrase.attributes == (None, None, None) for phrase in generic.meaning.phrases)
    named = [phrase.noun in KIND for five in FIVES for phrase in five[4].meaning.phrases]
    assert sum(named) < 0.2 * len(named)  # a kind without a category has only its own name


def test_phrases_never_overlap_and_numbers_are_exact() -> None:
    for scene, five in zip(SCENES, FIVES, strict=True):
        for caption in five:
            for i, phrase in enumerate(caption.meaning.phrases):
                assert all(disjoint(phrase, other) for other in caption.meaning.phrases[:i])
                found = len(extension(phrase, scene))
                assert found >= 2 if phrase.count == SOME else found == (phrase.count or 1)


def test_every_word_of_the_world_is_said() -> None:
    said = " ".join(caption.text.lower() for caption in CAPTIONS)
    for table in (SETTING_WORDS, {name: [w for w, _ in words] for name, words in RELATION_WORDS.items()}):
        for spoken in table.values():
            assert all(form in said for form in spoken)
    assert set(RELATION_WORDS) == set(RELATIONS)
    assert set(SETTING_WORDS) == set(SURROUNDINGS)
    assert Counter(name for c in CAPTIONS for name, _, _ in c.meaning.relations).keys() == set(RELATIONS)


def test_verbs_say_nothing_that_the_meaning_does_not() -> None:
    """What "flies" can only be in the air, whatever the scene, and so on."""
    only = {"flies": {"air"}, "swims": {"water"}, "floats": {"water"}, "stands": {"land", "indoors"}}
    for kind in KIND.values():
        for verb in verbs_of(kind.name):
            assert set(kind.places) <= only.get(verb, set(kind.places)), (kind.name, verb)
            assert not (kind.perches and verb in ("flies", "swims", "floats")), (kind.name, verb)
    said = {verb for kind in KIND for verb in verbs_of(kind)}
    assert said == {verb for _, _, verbs in VERBS for verb in verbs}


def test_an_empty_scene_is_an_error() -> None:
    with pytest.raises(CrossmatchError, match="nothing to describe"):
        describe(Scene("beach", (), frozenset(), 100, 0))


def test_lists() -> None:
    assert listed(["a", "b", "c", "d"]) == "a, b, c and d"


@pytest.mark.parametrize(
    ("phrases", "relations", "setting", "message"),
    [
        ((), (), None, "says nothing"),
        ((Phrase("dog"),), (), "moon", "unknown setting"),
        ((Phrase("dog"), Phrase("animal")), (), None, "same thing"),
        ((Phrase("dog", "red"), Phrase("dog", None, "striped")), (), None, "same thing"),
        ((Phrase("dog"), Phrase("cat")), (("near", 0, 1),), None, "unknown relation"),
        ((Phrase("dog"), Phrase("cat")), (("on", 0, 0),), None, "no forest"),
        ((Phrase("dog"), Phrase("cat")), (("left of", 0, 1), ("above", 0, 1)), None, "no forest"),
        ((Phrase("dog"), Phrase("cat")), (("left of", 0, 1), ("right of", 1, 0)), None, "no forest"),
        ((Phrase("dog"), Phrase("cat"), Phrase("car")), (("on", 1, 2), ("on", 0, 1)), None, "no forest"),
        ((Phrase("dog", count=SOME), Phrase("cat")), (("left of", 0, 1),), None, "SOME"),
    ],
)
def test_meanings_that_are_refused(
    phrases: tuple[Phrase, ...], relations: tuple[tuple[str, int, int], ...], setting: str | None, message: str
) -> None:
    with pytest.raises(CrossmatchError, match=message):
        Meaning(phrases, relations, setting)
