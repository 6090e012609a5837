"""Captions of known quality, to test caption metrics.

One caption of a scene is the candidate, and the others are the references. Five more candidates are made from it, or taken from
another scene, with known quality. All six have the same references, and the truth of each is decided by the logic of
`caption_meaning`:

| level | caption | true of the scene | quality |
| :-- | :-- | :-- | --: |
| exact | the caption itself | yes | 5 |
| paraphrase | the same meaning in other words and order | yes | 5 |
| wrong attribute | the caption with one wrong colour, texture or size | no | 4 |
| wrong object | the caption with one object replaced by an absent one | no | 3 |
| shuffled words | the words of the caption in random order | undefined | 2 |
| another scene | a caption of similar detail, of a scene whose named objects are absent here | no | 1 |

The quality is an order, not a scale. Human raters ask first whether a caption is about the image, then whether it has errors
(hodosh2013framing: without errors, with minor errors, somewhat related, unrelated). The position of shuffled words is a
convention: they name the right objects but are not a sentence, so they are worse than a sentence with one error and better than
a sentence about something else. They test form, the other levels content; to test content alone, leave them out by `level`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.progress import track
from crossmatch.diorama.caption_writer import (
    ALONE_WITH_VERB,
    CROWD,
    CROWD_AROUND_PAIR,
    LIST,
    LIST_NOWHERE,
    ONE,
    PAIR,
    PAIR_NOWHERE,
    PICTURE,
    SETTING_WORDS,
    word_captions,
)
from crossmatch.diorama.edits import Propose, is_true_negative, is_true_of, replace_attribute, replace_object
from crossmatch.diorama.object_kinds import KIND, kinds_of
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.scene_sampling import INVERSE
from crossmatch.diorama.wording import (
    ATTRIBUTE_WORDS,
    RELATION_WORDS,
    TEXTURE_TAILS,
    Relation,
    WordedPhrase,
    Wording,
    verbs_of,
)
from crossmatch.diorama.world import CAPTIONS_PER_SCENE

if TYPE_CHECKING:
    from crossmatch.diorama.caption_meaning import Caption, Meaning
    from crossmatch.diorama.scenes import Scene
    from crossmatch.diorama.world import Diorama

QUALITY = {
    "exact": 5,
    "paraphrase": 5,
    "wrong attribute": 4,
    "wrong object": 3,
    "shuffled words": 2,
    "another scene": 1,
}
CAPTION_LEVELS = (0, 1, 2)  # exhaustive, detailed, plain; the others have too few attributes to change
REWORDINGS = 8  # the least similar one is used
ROUNDS = 4  # of proposals for an edit
NUMBERS = (("some", "several"), ("a single", "just one"))  # synonyms


class PlainText(NamedTuple):
    """A text without meaning, in place of a caption."""

    text: str
    meaning: None = None


@dataclass(frozen=True)
class QualityCaption:
    """A candidate caption of an image, its quality, and the reference captions of the image."""

    image: str
    level: str  # a name in `QUALITY`
    quality: int
    caption: str
    references: tuple[str, ...]
    meaning: Meaning | None  # None for shuffled words


def quality_captions(world: Diorama, n: int | None = None, seed: int = 0) -> tuple[QualityCaption, ...]:
    """Six captions, one of each level, for each of the first `n` scenes that have all six (in practice all do), or for all.

    The captions of a scene depend only on the world, the seed and the scene number.

    >>> from .world import Diorama
    >>> world = Diorama.make("test", images=20)
    >>> for candidate in quality_captions(world, 1):
    ...     print(candidate.quality, f"{candidate.level:16}", candidate.caption)
    5 exact            There are three striped motorbikes.
    5 paraphrase       Three motorcycles with stripes.
    4 wrong attribute  There are three spotted motorbikes.
    3 wrong object     There are three striped pine trees.
    2 shuffled words   Are striped there motorbikes three.
    1 another scene    In the room, there is a small pink basketball on the left side of a striped red basketball.
    """
    if n is not None and n < 1:
        raise UsageError(f"The number of scenes must be at least 1 (got {n}).")
    ids = world.collection.image_ids.tolist()
    scene_count = len(ids) if n is None else n
    candidates: list[QualityCaption] = []
    for number in track(range(len(ids)), "writing captions of known quality"):
        if len(candidates) == scene_count * len(QUALITY):
            break
        candidates += _of_scene(world, number, ids[number], Dice("quality", seed, world.split, world.seed, number))
    if len(candidates) < scene_count * len(QUALITY) and n is not None:
        raise CrossmatchError(
            f"Only {len(candidates) // len(QUALITY):,} of the {len(ids):,} scenes have captions of all levels (requested {n:,}). "
            "Use a larger world."
        )
    return tuple(candidates)


def _of_scene(world: Diorama, number: int, name: str, dice: Dice) -> list[QualityCaption]:
    """One caption of each level, from the first caption of the scene that allows all of them; else none."""
    scene = world.scenes[number]
    wordings = word_captions(scene, "diorama", world.seed, world.split, number)
    for place in dice.shuffled(CAPTION_LEVELS):
        by_level = {
            "exact": wordings[place].caption,
            "paraphrase": paraphrase(dice, wordings[place]),
            "wrong attribute": _wrong(dice, scene, wordings[place], replace_attribute),
            "wrong object": _wrong(dice, scene, wordings[place], replace_object),
            "shuffled words": PlainText(shuffle_words(dice, wordings[place].text)),
            "another scene": _elsewhere(dice, world, number, place),
        }
        references = tuple(wording.text for at, wording in enumerate(wordings) if at != place)
        available = {level: caption for level, caption in by_level.items() if caption is not None}
        if len({*references, *(caption.text for caption in available.values())}) == len(QUALITY) + len(references):
            return [QualityCaption(name, level, QUALITY[level], c.text, references, c.meaning) for level, c in available.items()]
    return []


def _wrong(dice: Dice, scene: Scene, wording: Wording, propose: Propose) -> Caption | None:
    """The caption after the first edit that makes it false."""
    edits = (edit for _ in range(ROUNDS) for edit in propose(dice, scene, wording))
    return next((edit.negative.caption for edit in edits if is_true_negative(scene, edit)), None)


def _elsewhere(dice: Dice, world: Diorama, number: int, place: int) -> Caption | None:
    """A caption of another scene, of the same level, that is false here and names no object that is here."""
    scene = world.scenes[number]
    present = {item.kind for item in scene.objects}
    for candidate in dice.shuffled(range(len(world.scenes))):
        caption = world.captions[CAPTIONS_PER_SCENE * candidate + place]
        is_unrelated = all(present.isdisjoint(kinds_of(phrase.noun)) for phrase in caption.meaning.phrases)
        if candidate != number and is_unrelated and not is_true_of(caption.meaning, scene):
            return caption
    return None


def shuffle_words(dice: Dice, text: str) -> str:
    """The words of a sentence in another order, without its commas.

    >>> shuffle_words(Dice(1), "A dog, two cats and a red car at the beach.")
    'And two a cats beach dog at the red car a.'
    """
    words = (text[0].lower() + text[1:]).rstrip(".").translate({ord(mark): None for mark in ",;"}).split()
    mixed = dice.shuffled(words)
    while mixed == words and len(set(words)) > 1:
        mixed = dice.shuffled(words)
    sentence = " ".join(mixed)
    return sentence[0].upper() + sentence[1:] + "."


# -- paraphrases


def paraphrase(dice: Dice, wording: Wording) -> Caption | None:
    """The same meaning in other words and order: of several rewordings the one with the fewest shared word pairs.

    None if there is no other wording.
    """
    original = wording.text
    others = [caption for caption in _rewordings(dice, wording) if caption.text != original]
    return min(others, key=lambda caption: len(_neighbours(caption.text) & _neighbours(original)), default=None)


def _neighbours(text: str) -> set[tuple[str, str]]:
    return set(pairwise(text.lower().rstrip(".").split()))


def _rewordings(dice: Dice, wording: Wording) -> Iterator[Caption]:
    for _ in range(REWORDINGS):
        new = reword(dice, wording)
        try:
            yield new.caption
        except CrossmatchError:  # an inverted relation may violate the order that a meaning needs
            continue


def reword(dice: Dice, wording: Wording) -> Wording:
    """The phrases, relations and setting of a caption in new random words and order.

    Uses synonyms, another sentence template, and inverted relations: "a dog to the left of a cat" is "a cat to the right of a dog".
    """
    claims = [dice.pick(_ways_to_claim(relation)) for relation in wording.relations]
    template = dice.pick(_templates(wording))
    tails = not any(slot in template for slot in ("{rel}", "{the_facts}", "{the_claims}"))
    nouns = {noun: dice.pick(KIND[noun].words) for noun in dict.fromkeys(spoken.phrase.noun for spoken in wording.spoken)}
    order = dice.shuffled(range(len(wording.spoken)))
    spoken = tuple(replace(_respoken(dice, wording.spoken[i], tails), noun=nouns[wording.spoken[i].phrase.noun]) for i in order)
    moved = tuple((words, order.index(first), order.index(second)) for words, first, second in claims)
    relation, a, _ = moved[0] if moved else ("", 0, 0)
    verbs = verbs_of(spoken[a].phrase.noun, relation)
    setting_words = dice.pick(SETTING_WORDS[wording.setting]) if wording.setting else ""
    return Wording(template, spoken, moved, dice.pick(verbs), wording.setting, setting_words, dice.pick(PICTURE))


def _ways_to_claim(relation: Relation) -> list[Relation]:
    """All ways to state a relation: (words, first phrase, second phrase)."""
    name, s, o = relation
    ways = [(words, s, o) if about == "subject" else (words, o, s) for words, about in RELATION_WORDS[name]]
    return ways + [(words, o, s) for words, _ in RELATION_WORDS.get(INVERSE.get(name, ""), ())]


def _templates(wording: Wording) -> Sequence[str]:
    """Templates for this number of phrases and relations, with or without a setting."""
    phrases, claims = len(wording.spoken), len(wording.claims)
    if claims and phrases > 2:
        return CROWD + CROWD_AROUND_PAIR if claims == 1 else CROWD
    if claims:
        return PAIR if wording.setting else PAIR_NOWHERE
    if not wording.setting:
        return LIST_NOWHERE
    idle = verbs_of(wording.spoken[0].phrase.noun) == ("is",)
    return LIST if phrases > 1 else [template for template in ONE if not (idle and template == ALONE_WITH_VERB)]


def _respoken(dice: Dice, spoken: WordedPhrase, tails: bool) -> WordedPhrase:
    """The phrase with other words for its attributes and, if they are synonyms, for its number."""
    for attribute, words in ATTRIBUTE_WORDS.items():
        value = getattr(spoken.phrase, attribute)
        if value is not None:
            ways = words[value] + (TEXTURE_TAILS.get(value, ()) if tails else ())
            spoken = spoken.with_attribute(attribute, value, dice.pick(ways))
    alike = next((few for few in NUMBERS if spoken.number in few), (spoken.number,))
    return replace(spoken, number=dice.pick(alike))
