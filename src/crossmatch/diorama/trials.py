"""Forced-choice trials from diorama: BISON, BiVLC and SugarCrepe; every cell is confirmed by the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crossmatch.data.arrays import IntArray
from crossmatch.data.errors import UsageError
from crossmatch.data.io.progress import track
from crossmatch.data.trials import Trials
from crossmatch.diorama.caption_writer import word_captions
from crossmatch.diorama.edits import CAPTION_EDITS, IMAGE_EDITS, Edit, Propose, is_true_negative, realise_edit
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.wording import Wording
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, Diorama

if TYPE_CHECKING:
    from PIL.Image import Image

NEIGHBOURS = 4  # nearest images that are tried until a caption distinguishes the two
PER_CATEGORY = {"bivlc": 20, "sugarcrepe": 25}  # trials per category and hundred scenes
TEXTS_PER_BLOCK = 500
ROUNDS = 3  # most trials of a category per scene


@lru_cache(maxsize=2)
def _world(split: str, size: str) -> Diorama:
    return Diorama.make(split, size=size)


# -- two images, one caption


def nearest_texts(texts: list[str], number: int) -> IntArray:
    """For each text the positions of the `number` most similar others, nearest first; ties by position.

    The similarity is the cosine of tf-idf vectors. The weights are integers, ⌊log₂ N/df⌋, so sums are exact and the order is the
    same on every machine.

    >>> nearest_texts(["a red dog", "a red dog and a cat", "the sea", "a cat"], 1)[:, 0].tolist()
    [1, 0, 0, 1]
    """
    word_lists = [text.lower().translate({ord(mark): None for mark in ",;."}).split() for text in texts]
    vocabulary = {name: n for n, name in enumerate(dict.fromkeys(name for words in word_lists for name in words))}
    counts = np.zeros((len(word_lists), len(vocabulary)))
    for row, words in zip(counts, word_lists, strict=True):
        np.add.at(row, [vocabulary[name] for name in words], 1)
    document_counts = np.count_nonzero(counts, axis=0).tolist()
    vectors = counts * [(len(word_lists) // df).bit_length() - 1 for df in document_counts]
    norms = np.maximum((vectors * vectors).sum(axis=1), 1)
    nearest = np.empty((len(word_lists), number), np.int64)
    for start in range(0, len(word_lists), TEXTS_PER_BLOCK):
        shared = vectors[start : start + TEXTS_PER_BLOCK] @ vectors.T
        squared = shared * shared / norms  # squared cosine, up to a factor per row
        np.fill_diagonal(squared[:, start:], -1)
        nearest[start : start + TEXTS_PER_BLOCK] = np.argsort(-squared, axis=1, kind="stable")[:, :number]
    return nearest


def _annotator(dice: Dice, captions: list[str], distinguishing: list[str]) -> str:
    """A caption that distinguishes the images; the longest is preferred, as by 30 % of the annotators of BISON."""
    longest = max(distinguishing, key=_length)
    return dice.weighted(distinguishing, [3 if text == longest else 2 for text in distinguishing])


def _length(text: str) -> tuple[int, int]:
    return len(text.split()), len(text)


QUERIES: dict[str, Callable[[Dice, list[str], list[str]], str]] = {
    "chosen": _annotator,
    "random": lambda dice, captions, distinguishing: dice.pick(captions),
    "longest": lambda dice, captions, distinguishing: max(captions, key=_length),
}


@lru_cache(maxsize=4)
def bison(split: str = "test", size: str = "default", caption: str = "chosen") -> Trials:
    """For each scene a look-alike, and a caption of the scene that is false of the look-alike (hu2019bison, sec. 3.1).

    The look-alike is the nearest neighbour by all words of the five captions. If none of the five captions is false of it, the
    next neighbour is used. `caption` is the query: "chosen" (false of the look-alike), or, for the same pairs, "random" or
    "longest" of the five, which may be true of both images (hu2019bison, fig. 14).

    >>> trials = bison(size="tiny")
    >>> trials.shape, str(trials.ids[0])
    ((1, 2), 'test-00000~test-00010')
    """
    if caption not in QUERIES:
        raise UsageError(f"diorama/bison: unknown option caption={caption!r}. Choose one of {', '.join(QUERIES)}.")
    world = _world(split, size)
    names, texts = world.collection.image_ids.tolist(), [c.text for c in world.captions]
    fives = [texts[i : i + CAPTIONS_PER_SCENE] for i in range(0, len(texts), CAPTIONS_PER_SCENE)]
    ids, images, queries = [], [], []
    for n, neighbours in enumerate(nearest_texts([" ".join(five) for five in fives], NEIGHBOURS).tolist()):
        false = ~world.truth[neighbours, CAPTIONS_PER_SCENE * n : CAPTIONS_PER_SCENE * (n + 1)]
        if false.any():
            rank = int(false.any(axis=1).argmax())
            distinguishing = [text for text, is_false in zip(fives[n], false[rank].tolist(), strict=True) if is_false]
            pair = [names[n], names[neighbours[rank]]]
            ids.append("~".join(pair))
            images.append(pair)
            queries.append([QUERIES[caption](Dice("bison", split, n, caption), fives[n], distinguishing)])
    references = {name: tuple(five) for name, five in zip(names, fives, strict=True)}
    return Trials(
        np.asarray(ids), np.asarray(images), np.asarray(queries), np.full(len(ids), ""), world.collection.open_image, references
    )


# -- edited captions and images


class EditTrial(NamedTuple):
    """The trial of an edit: its id, the scene number, the edit, and the scene after it."""

    name: str
    number: int
    edit: Edit
    edited: Scene


def make_edit_trials(world: Diorama, task: str, table: dict[str, Propose]) -> tuple[EditTrial, ...]:
    """Trials of a task from all scenes of a world, with the edits of this table."""
    return tuple(
        trial for name in track(tuple(table), f"editing for {task}") for trial in _category_trials(world, task, name, table[name])
    )


def _category_trials(world: Diorama, task: str, category: str, propose: Propose) -> Iterator[EditTrial]:
    """Trials of one category, from scenes in random order, without repeats."""
    trial_count = max(1, len(world.scenes) * PER_CATEGORY[task] // 100)
    order = Dice(task, category, world.split).shuffled(range(len(world.scenes)))
    used_captions: set[tuple[str, str]] = set()
    for round_ in range(ROUNDS):
        for n in order:
            if len(used_captions) == trial_count:
                return
            edit_and_scene = _first_confirmed(
                world, n, propose, Dice(task, category, world.split, n, round_), used_captions, task == "bivlc"
            )
            if edit_and_scene:
                used_captions.add((edit_and_scene[0].positive.text, edit_and_scene[0].negative.text))
                yield EditTrial(f"{world.split}-{n:05d}~{category.replace('/', '-')}-{round_}", n, *edit_and_scene)


def _first_confirmed(
    world: Diorama, n: int, propose: Propose, dice: Dice, used_captions: set[tuple[str, str]], unlike: bool
) -> tuple[Edit, Scene] | None:
    """The first confirmed edit of any of the captions of the scene, with the scene after it."""
    scene = world.scenes[n]
    for wording in dice.shuffled(_wordings(world.split, n, scene)):
        for edit in propose(dice, scene, wording):
            if (edit.positive.text, edit.negative.text) not in used_captions and is_true_negative(scene, edit):
                edited = realise_edit(scene, edit, dice, unlike=unlike)
                if edited:
                    return edit, edited
    return None


@lru_cache(maxsize=8192)
def _wordings(split: str, n: int, scene: Scene) -> tuple[Wording, ...]:
    """The captions of `Diorama.make` as wordings."""
    return word_captions(scene, "diorama", 0, split, n)


def _trials(edit_trials: tuple[EditTrial, ...], images: list[list[str]], open_image: Callable[[str], Image] | None) -> Trials:
    return Trials(
        np.asarray([trial.name for trial in edit_trials]),
        np.asarray(images),
        np.asarray([[trial.edit.positive.text, trial.edit.negative.text] for trial in edit_trials]),
        np.asarray([trial.edit.category for trial in edit_trials]),
        open_image,
    )


@lru_cache(maxsize=4)
def bivlc_edits(split: str, size: str) -> tuple[EditTrial, ...]:
    """Edits of `bivlc`, with the scenes after them."""
    return make_edit_trials(_world(split, size), "bivlc", IMAGE_EDITS)


@lru_cache(maxsize=4)
def sugarcrepe_edits(split: str, size: str) -> tuple[EditTrial, ...]:
    """Edits of `sugarcrepe`; the scenes after them show that the negative captions can be true."""
    return make_edit_trials(_world(split, size), "sugarcrepe", CAPTION_EDITS)


def bivlc(split: str = "test", size: str = "default") -> Trials:
    """A scene and one of its captions, and both after an edit: two images, two captions (miranda2024bivlc, sec. 3.1).

    The positive image has the camera style, the negative one the generator style. Each caption is true of its own image and
    false of the other.

    >>> trials = bivlc(size="tiny")
    >>> trials.shape, trials.images[0].tolist()
    ((2, 2), ['test-00027', 'test-00027~replace-obj-0'])
    >>> print(*trials.captions[0], sep="\\n")
    A picture of two striped red palm trees to the left of a little striped blue fish by a lake.
    A picture of two striped red palm trees to the left of a little striped blue duck by a lake.
    """
    return two_style_trials(_world(split, size), bivlc_edits(split, size))


def two_style_trials(world: Diorama, edit_trials: tuple[EditTrial, ...]) -> Trials:
    """Two images and two captions per edit: the scene in the style of the world, the edited scene in the generator style."""
    edited = {trial.name: trial.edited for trial in edit_trials}
    scene_numbers = {f"{world.split}-{n:05d}": n for n in range(len(world.scenes))}

    def open_image(name: str) -> Image:
        from crossmatch.diorama.drawing import draw

        return draw(edited[name], "generator") if name in edited else world.picture(scene_numbers[name])

    return _trials(edit_trials, [[f"{world.split}-{trial.number:05d}", trial.name] for trial in edit_trials], open_image)


def sugarcrepe(split: str = "test", size: str = "default") -> Trials:
    """A scene, one of its captions, and an edited caption that is false: one image, two captions (hsieh2023sugarcrepe).

    >>> trials = sugarcrepe(size="tiny")
    >>> trials.shape
    (2, 1)
    >>> print(*trials.captions[-1], sep="\\n")
    Four striped pizzas and a tiny cake.
    Four striped pizzas and a tiny red cake.
    """
    edit_trials = sugarcrepe_edits(split, size)
    return _trials(
        edit_trials, [[f"{split}-{trial.number:05d}"] for trial in edit_trials], _world(split, size).collection.open_image
    )
