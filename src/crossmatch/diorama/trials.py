"""Forced choices made from the embedded world: BISON, BiVLC and SugarCrepe, every cell of which the truth confirms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crossmatch.core.arrays import IntArray
from crossmatch.core.errors import WrongWords
from crossmatch.core.progress import track
from crossmatch.core.trials import Trials

from .dice import Dice
from .edits import IN_PICTURES, IN_WORDS, Edit, Propose, misleading, realised
from .grammar import word
from .scenes import Scene
from .wording import Wording
from .world import CAPTIONS_PER_SCENE, Diorama

if TYPE_CHECKING:
    from PIL.Image import Image

NEIGHBOURS = 4  # that are offered, the nearest first, until a caption tells the two images apart
PER_CATEGORY = {"bivlc": 20, "sugarcrepe": 25}  # trials of each category for a hundred scenes
BLOCK = 500  # scenes that are compared with all others at once
ROUNDS = 3  # trials of a category on the same scene, at most


@lru_cache(maxsize=2)
def _world(split: str, size: str) -> Diorama:
    return Diorama.make(split, size=size)


# -- two images, one caption


def neighbours(texts: list[str], number: int) -> IntArray:
    """For each text the places of the `number` most similar others, the nearest first; ties by place.

    The cosine of tf-idf vectors. The weights are integers, ⌊log₂ N/df⌋, so that all sums are exact and the order is the
    same on every machine.

    >>> neighbours(["a red dog", "a red dog and a cat", "the sea", "a cat"], 1)[:, 0].tolist()
    [1, 0, 0, 1]
    """
    groups = [text.lower().translate({ord(mark): None for mark in ",;."}).split() for text in texts]
    vocabulary = {name: n for n, name in enumerate(dict.fromkeys(name for words in groups for name in words))}
    counts = np.zeros((len(groups), len(vocabulary)))
    for row, words in zip(counts, groups, strict=True):
        np.add.at(row, [vocabulary[name] for name in words], 1)
    found = np.count_nonzero(counts, axis=0).tolist()
    vectors = counts * [(len(groups) // df).bit_length() - 1 for df in found]
    norms = np.maximum((vectors * vectors).sum(axis=1), 1)
    nearest = np.empty((len(groups), number), np.int64)
    for start in range(0, len(groups), BLOCK):
        shared = vectors[start : start + BLOCK] @ vectors.T
        squared = shared * shared / norms  # the square of the cosine, but for what is the same in the whole row
        np.fill_diagonal(squared[:, start:], -1)
        nearest[start : start + BLOCK] = np.argsort(-squared, axis=1, kind="stable")[:, :number]
    return nearest


def _annotator(dice: Dice, five: list[str], telling: list[str]) -> str:
    """One of the captions that tell the images apart, the longest somewhat rather: the people of BISON took it 30 % of the time."""
    longest = max(telling, key=_length)
    return dice.weighted(telling, [3 if text == longest else 2 for text in telling])


def _length(text: str) -> tuple[int, int]:
    return len(text.split()), len(text)


QUERIES: dict[str, Callable[[Dice, list[str], list[str]], str]] = {
    "chosen": _annotator,
    "random": lambda dice, five, telling: dice.pick(five),
    "longest": lambda dice, five, telling: max(five, key=_length),
}


@lru_cache(maxsize=4)
def bison(split: str = "test", size: str = "default", caption: str = "chosen") -> Trials:
    """For each scene a look-alike, and a caption of the scene that is false of the look-alike (hu2019bison, sec. 3.1).

    The look-alike is the nearest neighbour by all words of the five captions. If none of the five is false of it, the pair is
    discarded and the next neighbour is taken. `caption` "random" or "longest" asks with any, or with the longest, of the five
    captions instead, about the same pairs (hu2019bison, fig. 14); such a caption may be true of both images.

    >>> trials = bison(size="tiny")
    >>> trials.shape, str(trials.ids[0])
    ((1, 2), 'test-00000~test-00010')
    """
    if caption not in QUERIES:
        raise WrongWords(f"diorama/bison has no caption={caption!r}; it comes with {', '.join(QUERIES)}.")
    world = _world(split, size)
    names, texts = world.collection.image_ids.tolist(), [c.text for c in world.captions]
    fives = [texts[i : i + CAPTIONS_PER_SCENE] for i in range(0, len(texts), CAPTIONS_PER_SCENE)]
    ids, images, queries = [], [], []
    for n, others in enumerate(neighbours([" ".join(five) for five in fives], NEIGHBOURS).tolist()):
        false = ~world.truth[others, CAPTIONS_PER_SCENE * n : CAPTIONS_PER_SCENE * (n + 1)]
        if false.any():
            at = int(false.any(axis=1).argmax())
            telling = [text for text, tells in zip(fives[n], false[at].tolist(), strict=True) if tells]
            pair = [names[n], names[others[at]]]
            ids.append("~".join(pair))
            images.append(pair)
            queries.append([QUERIES[caption](Dice("bison", split, n, caption), fives[n], telling)])
    references = {name: tuple(five) for name, five in zip(names, fives, strict=True)}
    return Trials(
        np.asarray(ids), np.asarray(images), np.asarray(queries), np.full(len(ids), ""), world.collection.open_image, references
    )


# -- edited captions, and edited images with them


class Made(NamedTuple):
    """The trial of an edit: its id, the number of the scene, the edit, and the scene after it."""

    name: str
    number: int
    edit: Edit
    edited: Scene


def made_by(world: Diorama, task: str, table: dict[str, Propose]) -> tuple[Made, ...]:
    """The trials of a task from all scenes of a world, by the edits of this table."""
    return tuple(one for name in track(tuple(table), f"editing for {task}") for one in _in(world, task, name, table[name]))


def _in(world: Diorama, task: str, category: str, propose: Propose) -> Iterator[Made]:
    """The trials of one category, from scenes in random order, no two alike."""
    wanted = max(1, len(world.scenes) * PER_CATEGORY[task] // 100)
    order = Dice(task, category, world.split).shuffled(range(len(world.scenes)))
    seen: set[tuple[str, str]] = set()
    for round_ in range(ROUNDS):
        for n in order:
            if len(seen) == wanted:
                return
            found = _first(world, n, propose, Dice(task, category, world.split, n, round_), seen, task == "bivlc")
            if found:
                seen.add((found[0].positive.text, found[0].negative.text))
                yield Made(f"{world.split}-{n:05d}~{category.replace('/', '-')}-{round_}", n, *found)


def _first(
    world: Diorama, n: int, propose: Propose, dice: Dice, seen: set[tuple[str, str]], unlike: bool
) -> tuple[Edit, Scene] | None:
    """The first edit of any of the scene's captions that the truth confirms, with a scene after it."""
    scene = world.scenes[n]
    for wording in dice.shuffled(_wordings(world.split, n, scene)):
        for edit in propose(dice, scene, wording):
            if (edit.positive.text, edit.negative.text) not in seen and misleading(scene, edit):
                edited = realised(scene, edit, dice, unlike=unlike)
                if edited:
                    return edit, edited
    return None


@lru_cache(maxsize=8192)
def _wordings(split: str, n: int, scene: Scene) -> tuple[Wording, ...]:
    """The captions of `Diorama.make`, as words for their parts."""
    return word(scene, "diorama", 0, split, n)


def _trials(made: tuple[Made, ...], images: list[list[str]], open_image: Callable[[str], Image] | None) -> Trials:
    return Trials(
        np.asarray([one.name for one in made]),
        np.asarray(images),
        np.asarray([[one.edit.positive.text, one.edit.negative.text] for one in made]),
        np.asarray([one.edit.category for one in made]),
        open_image,
    )


@lru_cache(maxsize=4)
def made_bivlc(split: str, size: str) -> tuple[Made, ...]:
    """The edits of `bivlc`, with the scenes after them."""
    return made_by(_world(split, size), "bivlc", IN_PICTURES)


@lru_cache(maxsize=4)
def made_sugarcrepe(split: str, size: str) -> tuple[Made, ...]:
    """The edits of `sugarcrepe`; the scenes after them only show that the negative captions could be true."""
    return made_by(_world(split, size), "sugarcrepe", IN_WORDS)


def bivlc(split: str = "test", size: str = "default") -> Trials:
    """A scene and one of its captions, and both after an edit (miranda2024bivlc, sec. 3.1): two images, two captions.

    The positive image is in the camera's style, the negative one in the generator's. Each caption is true of its own image
    and false of the other one.

    >>> trials = bivlc(size="tiny")
    >>> trials.shape, trials.images[0].tolist()
    ((2, 2), ['test-00027', 'test-00027~replace-obj-0'])
    >>> print(*trials.captions[0], sep="\\n")
    A picture of two striped red palm trees to the left of a little striped blue fish by a lake.
    A picture of two striped red palm trees to the left of a little striped blue duck by a lake.
    """
    return in_two_styles(_world(split, size), made_bivlc(split, size))


def in_two_styles(world: Diorama, made: tuple[Made, ...]) -> Trials:
    """Two images and two captions for each edit: the scene as the world draws it, and the edited one as the generator does."""
    edited = {one.name: one.edited for one in made}
    places = {f"{world.split}-{n:05d}": n for n in range(len(world.scenes))}

    def open_image(name: str) -> Image:
        from .draw import draw

        return draw(edited[name], "generator") if name in edited else world.picture(places[name])

    return _trials(made, [[f"{world.split}-{one.number:05d}", one.name] for one in made], open_image)


def sugarcrepe(split: str = "test", size: str = "default") -> Trials:
    """A scene, one of its captions, and an edit of it that is false of the scene (hsieh2023sugarcrepe): one image, two captions.

    >>> trials = sugarcrepe(size="tiny")
    >>> trials.shape
    (2, 1)
    >>> print(*trials.captions[-1], sep="\\n")
    Four striped pizzas and a tiny cake.
    Four striped pizzas and a tiny red cake.
    """
    made = made_sugarcrepe(split, size)
    return _trials(made, [[f"{split}-{one.number:05d}"] for one in made], _world(split, size).collection.open_image)
