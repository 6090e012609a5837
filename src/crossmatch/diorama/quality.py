"""Captions of known quality, to see whether a caption metric knows it too.

For a scene one of its captions is taken, and the others are the references. The caption itself is right; five more are made of it,
or of another scene, in a way whose worth is known. All six face the same references, and the truth about each was decided by the
logic of `meaning`:

| level | what it is | true of the scene | quality |
| :-- | :-- | :-- | --: |
| exact | the caption itself | yes | 5 |
| paraphrase | the same meaning in other words, in another order | yes | 5 |
| wrong attribute | the caption with one colour, texture or size that is not so | no | 4 |
| wrong object | the caption with one thing that is not there instead of one that is | no | 3 |
| shuffled words | the words of the caption in random order | says nothing | 2 |
| another scene | a caption of as much detail, of a scene with none of its things in this one | no | 1 |

The quality is an order, not a measure. People who rate captions ask first whether a caption is about the image, then whether it is
free of errors (hodosh2013framing has the scale: without errors, with minor errors, somewhat related, unrelated). Where shuffled
words stand is a convention: nothing of what they name is wrong, but they are no sentence, and whoever reads them does not learn
what stands where and looks how. So they are worse than a sentence with one error and better than a sentence about something else.
They test form where the other levels test content; to look at content alone, leave them out by `level`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.progress import track

from .dice import Dice
from .edits import Propose, holds, misleading, replace_attribute, replace_object
from .grammar import (
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
    word,
)
from .kinds import KIND, kinds_of
from .layout import INVERSE
from .wording import ATTRIBUTE_WORDS, RELATION_WORDS, TEXTURE_TAILS, VERBS_ON, Relation, Spoken, Wording, verbs_of
from .world import CAPTIONS_PER_SCENE

if TYPE_CHECKING:
    from .meaning import Caption, Meaning
    from .scenes import Scene
    from .world import Diorama

QUALITY = {
    "exact": 5,
    "paraphrase": 5,
    "wrong attribute": 4,
    "wrong object": 3,
    "shuffled words": 2,
    "another scene": 1,
}
PLACES = (0, 1, 2)  # of the five captions: exhaustive, detailed, plain. The others say too little to get an attribute wrong.
REWORDINGS = 8  # of which the least alike is taken
ROUNDS = 4  # of proposals for an edit
NUMBERS = (("some", "several"), ("a single", "just one"))  # that mean the same


class Said(NamedTuple):
    """A text that means nothing, where a caption could be."""

    text: str
    meaning: None = None


@dataclass(frozen=True)
class QualityCaption:
    """A candidate caption of an image, how good it is, and the image's other captions to compare it with."""

    image: str
    level: str  # a name in `QUALITY`
    quality: int
    caption: str
    references: tuple[str, ...]
    meaning: Meaning | None  # what the truth was asked about; shuffled words mean nothing


def quality_captions(world: Diorama, n: int | None = None, seed: int = 0) -> tuple[QualityCaption, ...]:
    """Six captions, one of each level, for each of the first `n` scenes that have all six (in practice all have), or for all.

    A scene's captions depend on the world, the seed and the scene's number alone.

    >>> from .world import Diorama
    >>> world = Diorama.make("test", images=20)
    >>> for made in quality_captions(world, 1):
    ...     print(made.quality, f"{made.level:16}", made.caption)
    5 exact            There are three striped motorbikes.
    5 paraphrase       Three motorcycles with stripes.
    4 wrong attribute  There are three spotted motorbikes.
    3 wrong object     There are three striped pine trees.
    2 shuffled words   Are striped there motorbikes three.
    1 another scene    In the room, there is a small pink basketball on the left side of a striped red basketball.
    """
    if n is not None and n < 1:
        raise WrongWords(f"{n} scenes have no captions. Ask for one at least.")
    ids = world.collection.image_ids.tolist()
    wanted = len(ids) if n is None else n
    out: list[QualityCaption] = []
    for number in track(range(len(ids)), "writing captions of known quality"):
        if len(out) == wanted * len(QUALITY):
            break
        out += _of_scene(world, number, ids[number], Dice("quality", seed, world.split, world.seed, number))
    if len(out) < wanted * len(QUALITY) and n is not None:
        raise CrossmatchError(
            f"{len(out) // len(QUALITY):,} of the {len(ids):,} scenes have captions of all levels; {n:,} were wanted. Take a "
            "larger world."
        )
    return tuple(out)


def _of_scene(world: Diorama, number: int, name: str, dice: Dice) -> list[QualityCaption]:
    """One caption of each level, made of the first of the scene's captions that allows all of them; else none."""
    scene = world.scenes[number]
    own = word(scene, "diorama", world.seed, world.split, number)
    for place in dice.shuffled(PLACES):
        made = {
            "exact": own[place].caption,
            "paraphrase": paraphrase(dice, own[place]),
            "wrong attribute": _wrong(dice, scene, own[place], replace_attribute),
            "wrong object": _wrong(dice, scene, own[place], replace_object),
            "shuffled words": Said(shuffled(dice, own[place].text)),
            "another scene": _elsewhere(dice, world, number, place),
        }
        references = tuple(wording.text for at, wording in enumerate(own) if at != place)
        said = {level: caption for level, caption in made.items() if caption is not None}
        if len({*references, *(caption.text for caption in said.values())}) == len(QUALITY) + len(references):
            return [QualityCaption(name, level, QUALITY[level], c.text, references, c.meaning) for level, c in said.items()]
    return []


def _wrong(dice: Dice, scene: Scene, wording: Wording, propose: Propose) -> Caption | None:
    """The caption after the first edit that makes it false."""
    edits = (edit for _ in range(ROUNDS) for edit in propose(dice, scene, wording))
    return next((edit.negative.caption for edit in edits if misleading(scene, edit)), None)


def _elsewhere(dice: Dice, world: Diorama, number: int, place: int) -> Caption | None:
    """A caption of another scene, from the same place among its five, that is false here and names no thing that is here."""
    scene = world.scenes[number]
    here = {thing.kind for thing in scene.things}
    for other in dice.shuffled(range(len(world.scenes))):
        caption = world.captions[CAPTIONS_PER_SCENE * other + place]
        strange = all(here.isdisjoint(kinds_of(phrase.noun)) for phrase in caption.meaning.phrases)
        if other != number and strange and not holds(caption.meaning, scene):
            return caption
    return None


def shuffled(dice: Dice, text: str) -> str:
    """The words of a sentence in another order, without its commas.

    >>> shuffled(Dice(1), "A dog, two cats and a red car at the beach.")
    'And two a cats beach dog at the red car a.'
    """
    words = (text[0].lower() + text[1:]).rstrip(".").translate({ord(mark): None for mark in ",;"}).split()
    mixed = dice.shuffled(words)
    while mixed == words and len(set(words)) > 1:
        mixed = dice.shuffled(words)
    said = " ".join(mixed)
    return said[0].upper() + said[1:] + "."


# -- other words for the same


def paraphrase(dice: Dice, wording: Wording) -> Caption | None:
    """The same meaning in other words and another order: of several rewordings the one that shares the fewest neighbouring words.

    None where there is no other way to say it.
    """
    said = wording.text
    others = [caption for caption in _rewordings(dice, wording) if caption.text != said]
    return min(others, key=lambda caption: len(_neighbours(caption.text) & _neighbours(said)), default=None)


def _neighbours(text: str) -> set[tuple[str, str]]:
    return set(pairwise(text.lower().rstrip(".").split()))


def _rewordings(dice: Dice, wording: Wording) -> Iterator[Caption]:
    for _ in range(REWORDINGS):
        new = reworded(dice, wording)
        try:
            yield new.caption
        except CrossmatchError:  # a turned relation may be in no order that a meaning can have
            continue


def reworded(dice: Dice, wording: Wording) -> Wording:
    """The phrases, relations and setting of a caption in words drawn anew, in an order drawn anew.

    Synonyms for kinds, sizes and textures, another frame of the sentence, and a relation seen from the other side: "a dog to the
    left of a cat" is "a cat to the right of a dog".
    """
    claims = [dice.pick(_ways_to_claim(relation)) for relation in wording.relations]
    template = dice.pick(_templates(wording))
    tails = not any(slot in template for slot in ("{rel}", "{the_facts}", "{the_claims}"))
    nouns = {noun: dice.pick(KIND[noun].words) for noun in dict.fromkeys(spoken.phrase.noun for spoken in wording.spoken)}
    order = dice.shuffled(range(len(wording.spoken)))
    spoken = tuple(replace(_respoken(dice, wording.spoken[i], tails), noun=nouns[wording.spoken[i].phrase.noun]) for i in order)
    moved = tuple((words, order.index(first), order.index(second)) for words, first, second in claims)
    rel, a, _ = moved[0] if moved else ("", 0, 0)
    verbs = VERBS_ON if rel in ("on", "on top of") else verbs_of(spoken[a].phrase.noun)
    here = dice.pick(SETTING_WORDS[wording.setting]) if wording.setting else ""
    return Wording(template, spoken, moved, dice.pick(verbs), wording.setting, here, dice.pick(PICTURE))


def _ways_to_claim(relation: Relation) -> list[Relation]:
    """All ways to say a relation: (words, place of the first, place of the second)."""
    name, s, o = relation
    ways = [(words, s, o) if about == "subject" else (words, o, s) for words, about in RELATION_WORDS[name]]
    return ways + [(words, o, s) for words, _ in RELATION_WORDS.get(INVERSE.get(name, ""), ())]


def _templates(wording: Wording) -> Sequence[str]:
    """The frames for as many phrases and relations, with or without a setting."""
    phrases, claims = len(wording.spoken), len(wording.claims)
    if claims and phrases > 2:
        return CROWD + CROWD_AROUND_PAIR if claims == 1 else CROWD
    if claims:
        return PAIR if wording.setting else PAIR_NOWHERE
    if not wording.setting:
        return LIST_NOWHERE
    idle = verbs_of(wording.spoken[0].phrase.noun) == ("is",)
    return LIST if phrases > 1 else [template for template in ONE if not (idle and template == ALONE_WITH_VERB)]


def _respoken(dice: Dice, spoken: Spoken, tails: bool) -> Spoken:
    """The phrase with other words for its attributes and, where they mean the same, for its number."""
    for attribute, words in ATTRIBUTE_WORDS.items():
        value = getattr(spoken.phrase, attribute)
        if value is not None:
            ways = words[value] + (TEXTURE_TAILS.get(value, ()) if tails else ())
            spoken = spoken.saying(attribute, value, dice.pick(ways))
    alike = next((few for few in NUMBERS if spoken.number in few), (spoken.number,))
    return replace(spoken, number=dice.pick(alike))
