"""Captions: five English sentences per scene, from exhaustive to generic, and the rules of their meanings."""

from __future__ import annotations

from collections import Counter

import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.caption_meaning import SOME, SURROUNDINGS, Meaning, Phrase, disjoint, extension
from crossmatch.diorama.caption_writer import SETTING_WORDS, describe
from crossmatch.diorama.object_kinds import KIND, kinds_of
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.diorama.scenes import RELATIONS, Scene
from crossmatch.diorama.wording import RELATION_WORDS, VERBS, choose_article, verbs_of
from diorama_checks import assert_is_sentence

SCENES = [sample_scene("language", i) for i in range(400)]
FIVES = [describe(scene) for scene in SCENES]
CAPTIONS = [caption for five in FIVES for caption in five]


def word_count(text: str) -> int:
    return len(text.split())


def test_captions_are_five_different_sentences() -> None:
    for five in FIVES:
        assert len({caption.text for caption in five}) == len(five) == 5
        for caption in five:
            assert_is_sentence(caption.text)


def test_article_depends_on_the_sound() -> None:
    assert [choose_article(word) for word in ("egg", "hourglass", "huge dog", "umbrella", "TV", "orange cat")] == [
        "an", "an", "a", "an", "a", "an",
    ]  # fmt: skip


def test_nouns_agree_with_numbers() -> None:
    for caption in CAPTIONS:
        for phrase in caption.meaning.phrases:
            nouns = [w for k in kinds_of(phrase.noun) for w in KIND[k].words] if phrase.noun in KIND else []
            forms = [w.singular if phrase.count in (None, 1) else w.plural for w in nouns]
            assert not nouns or any(form in caption.text for form in forms), (caption.text, phrase)


def test_lengths_decrease_from_exhaustive_to_short() -> None:
    means = [sum(word_count(five[level].text) for five in FIVES) / len(FIVES) for level in range(5)]
    assert means[0] > means[1] > means[2] > means[3]
    assert max(word_count(five[0].text) for five in FIVES) <= 45
    assert max(word_count(five[1].text) for five in FIVES) <= 30


def test_first_caption_is_exhaustive() -> None:
    for scene, five in zip(SCENES, FIVES, strict=True):
        meaning = five[0].meaning
        extensions = [extension(phrase, scene) for phrase in meaning.phrases]
        assert sorted(i for members in extensions for i in members) == list(range(len(scene.objects)))
        assert meaning.setting == scene.setting
        for phrase, members in zip(meaning.phrases, extensions, strict=True):
            assert phrase.count == (None if len(members) == 1 else len(members))
            assert phrase.colour is not None
            item = scene.objects[members[0]]
            assert phrase.texture == item.texture or (phrase.texture is None and item.texture == "plain")
            assert phrase.size == (None if item.size == "medium" else item.size)
    assert sum(bool(five[0].meaning.relations) for five in FIVES) > 0.6 * len(FIVES)


def test_other_captions_are_less_detailed() -> None:
    for scene, (_, detailed, plain, short, generic) in zip(SCENES, FIVES, strict=True):
        assert detailed.meaning.setting == scene.setting
        assert len(detailed.meaning.phrases) == min(2, len({t.group for t in scene.objects}))
        assert len(plain.meaning.phrases) <= 2
        assert len(short.meaning.phrases) == 1
        assert sum(value is not None for value in short.meaning.phrases[0].attributes) <= 1
        assert all(phrase.attributes == (None, None, None) for phrase in generic.meaning.phrases)
    is_kind = [phrase.noun in KIND for five in FIVES for phrase in five[4].meaning.phrases]
    assert sum(is_kind) < 0.2 * len(is_kind)  # kinds without a category


def test_phrases_do_not_overlap_and_numbers_are_exact() -> None:
    for scene, five in zip(SCENES, FIVES, strict=True):
        for caption in five:
            for i, phrase in enumerate(caption.meaning.phrases):
                assert all(disjoint(phrase, earlier) for earlier in caption.meaning.phrases[:i])
                count = len(extension(phrase, scene))
                assert count >= 2 if phrase.count == SOME else count == (phrase.count or 1)


def test_all_words_for_settings_and_relations_occur() -> None:
    all_text = " ".join(caption.text.lower() for caption in CAPTIONS)
    for table in (SETTING_WORDS, {name: [words for words, _ in forms] for name, forms in RELATION_WORDS.items()}):
        for forms in table.values():
            assert all(form in all_text for form in forms)
    assert set(RELATION_WORDS) == set(RELATIONS)
    assert set(SETTING_WORDS) == set(SURROUNDINGS)
    assert Counter(name for c in CAPTIONS for name, _, _ in c.meaning.relations).keys() == set(RELATIONS)


def test_verbs_add_nothing_to_the_meaning() -> None:
    """A kind that "flies" can only be in the air."""
    only = {"flies": {"air"}, "swims": {"water"}, "floats": {"water"}, "stands": {"land", "indoors"}}
    for kind in KIND.values():
        for verb in verbs_of(kind.name):
            assert set(kind.places) <= only.get(verb, set(kind.places)), (kind.name, verb)
            assert not (kind.perches and verb in ("flies", "swims", "floats")), (kind.name, verb)
    assert {verb for kind in KIND for verb in verbs_of(kind)} == {verb for _, _, verbs in VERBS for verb in verbs}


def test_empty_scene_cannot_be_described() -> None:
    with pytest.raises(CrossmatchError, match="cannot be described"):
        describe(Scene("beach", (), frozenset(), 100, 0))


@pytest.mark.parametrize(
    ("phrases", "relations", "setting", "message"),
    [
        ((), (), None, "needs a phrase or a setting"),
        ((Phrase("dog"),), (), "moon", "Unknown setting"),
        ((Phrase("dog"), Phrase("animal")), (), None, "same object"),
        ((Phrase("dog", "red"), Phrase("dog", None, "striped")), (), None, "same object"),
        ((Phrase("dog"), Phrase("cat")), (("near", 0, 1),), None, "Unknown relation"),
        ((Phrase("dog"), Phrase("cat")), (("on", 0, 0),), None, "not an ordered forest"),
        ((Phrase("dog"), Phrase("cat")), (("left of", 0, 1), ("above", 0, 1)), None, "not an ordered forest"),
        ((Phrase("dog"), Phrase("cat")), (("left of", 0, 1), ("right of", 1, 0)), None, "not an ordered forest"),
        ((Phrase("dog"), Phrase("cat"), Phrase("car")), (("on", 1, 2), ("on", 0, 1)), None, "not an ordered forest"),
        ((Phrase("dog", count=SOME), Phrase("cat")), (("left of", 0, 1),), None, "SOME"),
    ],
)
def test_contradictory_meanings_are_rejected(
    phrases: tuple[Phrase, ...], relations: tuple[tuple[str, int, int], ...], setting: str | None, message: str
) -> None:
    with pytest.raises(CrossmatchError, match=message):
        Meaning(phrases, relations, setting)
