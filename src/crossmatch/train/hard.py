"""Hard negatives to train with: a caption that is almost true of an image, and an image of which that caption is true.

The embedded world makes them by editing a scene and one of its captions, as `crossmatch.diorama.trials` does for the test split; a
user's own come from a file (`crossmatch.train.hard_files`). Either way they become a `TrainingSet` whose links are the pairs that
have a negative, and whose `hard` are these.

    CACHE/crossmatch/features/edits-DIGEST.json    which captions the edits changed, and into what
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.whole import whole_file
from crossmatch.diorama.dice import Dice
from crossmatch.diorama.edits import IN_PICTURES, IN_WORDS, TRIES, Edit, holds, misleading, realised
from crossmatch.diorama.grammar import word
from crossmatch.diorama.layout import sample_scene
from crossmatch.diorama.rearrange import groups_of, versions
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.world import CAPTIONS_PER_SCENE
from crossmatch.train.data import Joined, PixelStore, Store, TrainingSet
from crossmatch.train.judge import CHOICES, SUM, Judge
from crossmatch.train.pictures import Part, in_parts
from crossmatch.train.recipe import NegativeSettings

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

AT_ONCE = 64  # pairs that are compared with their negatives together
PARTS_PER_MILLION = 1_000_000
WHICH = ("edited", "unedited")  # what a negative image shows: the edit, or the scene without it


# What is chosen between a pair and its negative


def trial_accuracy(model: Any, held: TrainingSet) -> dict[str, float]:
    """How often the model chooses right between pairs and their hard negatives, in per cent, and the sum of these.

        ipos2t    the image takes its caption rather than the negative one: all there is where negatives are texts alone
        ineg2t    the negative image takes the negative caption
        tpos2i    the caption takes its image rather than the negative one
        tneg2i    the negative caption takes the negative image

    On the embedded world all four are asked of every recipe, whatever negatives it is trained with (see `diorama_trials`). A tie
    loses. Source: miranda2024bivlc, sec. 3.2, and app. E.3 for choosing an epoch by the accuracy on held-out pairs.
    """
    assert held.hard is not None
    model.net.eval()
    pairs = bool((held.hard[:, 0] >= 0).all())
    won: list[NDArray[np.bool_]] = []
    for at in range(0, len(held.links), AT_ONCE):
        links, hard = held.links[at : at + AT_ONCE], held.hard[at : at + AT_ONCE]
        images = np.concatenate([links[:, 0], hard[:, 0]]) if pairs else links[:, 0]
        captions = [held.captions[n] for n in (*links[:, 1].tolist(), *hard[:, 1].tolist())]
        with torch.inference_mode():
            regions = model.look(held.store.take(images))
        won.append(_choices(model.compare(regions, captions), len(links)))
    names = ("ipos2t", "ineg2t", "tpos2i", "tneg2i")[: 4 if pairs else 1]
    found = {name: 100 * float(share) for name, share in zip(names, np.concatenate(won).mean(axis=0), strict=True)}
    return found | {SUM: sum(found.values())}


CHOSEN = Judge(CHOICES, trial_accuracy)


def _choices(scores: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Whether each of the choices was right (count, 1 or 4), from scores of images x texts, the negatives after the others."""
    if not np.isfinite(scores).all():
        raise CrossmatchError("the network's scores are no numbers any more: it has diverged. Lower learning_rate, or set clip.")
    ours = scores[:count]
    own, lured = np.diagonal(ours[:, :count]), np.diagonal(ours[:, count:])
    if len(scores) == count:
        return np.asarray(own > lured)[:, None]
    other, negative = np.diagonal(scores[count:, :count]), np.diagonal(scores[count:, count:])
    return np.stack([own > lured, negative > other, own > other, negative > lured], axis=1)


# Training sets with negatives


def hardened(
    data: TrainingSet, links: IntArray, texts: Sequence[str], store: Store | None = None, images: IntArray | None = None
) -> TrainingSet:
    """The training set of these links (P, 2) alone, each with a negative caption, and with image number `images` of a store.

    >>> pets = TrainingSet(PixelStore(np.zeros((2, 8, 8, 3), np.uint8)), ("a cat", "a dog"), np.array([[0, 0], [1, 1]]))
    >>> hard = hardened(pets, pets.links, ["a dog", "a red dog"])
    >>> hard.captions, hard.hard.tolist()
    (('a cat', 'a dog', 'a red dog'), [[-1, 1], [-1, 2]])
    """
    captions, caption = numbered(data.captions, texts)
    if store is None or images is None:
        return TrainingSet(data.store, captions, links, np.stack([np.full(len(links), -1), caption], axis=1))
    hard = np.stack([len(data.store) + np.asarray(images, dtype=np.int64), caption], axis=1)
    return TrainingSet(Joined((data.store, store)), captions, links, hard)


def numbered(captions: tuple[str, ...], texts: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    """The captions with those texts behind them that are none of them, and the number of each text among these.

    >>> numbered(("a cat", "a dog"), ["a cow", "a cat", "a cow"])
    (('a cat', 'a dog', 'a cow'), array([2, 0, 2]))
    """
    known = set(captions)
    more = (*captions, *dict.fromkeys(text for text in texts if text not in known))
    place = {text: n for n, text in reversed(list(enumerate(more)))}
    return more, np.asarray([place[text] for text in texts], dtype=np.int64)


def diorama_negatives(
    plain: TrainingSet, split: str, images: int, features: Mapping[str, Any], negatives: NegativeSettings
) -> TrainingSet:
    """A split of the embedded world with an edit of each scene as hard negatives; `plain` is the split itself.

    The links are the same whatever the kind: the captions that an edit changes, each with its image. What differs:

        pairs     the caption after the edit, and the scene after it, as `trials.bivlc` has them
        texts     the caption after an edit as `trials.sugarcrepe` has it, which is another one where it adds (see `in_words`)
        unused    neither: only other links of a batch are negatives

    Whatever the share of wrong images, the edits are the same, and more noise spoils what less noise spoils, and more.
    """
    edits = diorama_edits(split, images, negatives)
    if len(edits) < 2:
        raise CrossmatchError(f"{images} scenes of the split {split} can be edited {len(edits)} times. Ask for more scenes.")
    links = np.asarray([(n, CAPTIONS_PER_SCENE * n + place) for n, place, _, _ in edits], dtype=np.int64)
    texts = [text for _, _, _, text in edits]
    if negatives.kind == "unused":
        return replace(plain, links=links)
    if negatives.kind == "texts":
        return hardened(plain, links, texts)
    wrong = np.asarray([is_wrong(negatives, split, n, category) for n, _, category, _ in edits])
    stores = [_store(split, images, features, negatives, WHICH[0])]
    if wrong.any():
        stores.append(_store(split, images, features, negatives, WHICH[1]))
    return hardened(plain, links, texts, Joined(tuple(stores)), np.arange(len(edits)) + len(edits) * wrong)


def diorama_trials(
    plain: TrainingSet, split: str, images: int, features: Mapping[str, Any], negatives: NegativeSettings
) -> TrainingSet:
    """The trials by which an epoch is judged, the same for every kind of negatives and every share of wrong images.

    Two images and two captions each, as in `trials.bivlc`: pairs whose images all show their edits.
    """
    return diorama_negatives(plain, split, images, features, replace(negatives, kind="pairs", noise=0.0))


def is_wrong(negatives: NegativeSettings, split: str, n: int, category: str) -> bool:
    """Whether the negative image of an edit does not show it."""
    dice = Dice("wrong image", negatives.seed, split, n, category)
    return dice.below(PARTS_PER_MILLION) < round(negatives.noise * PARTS_PER_MILLION)


# Edits of the embedded world


class Edited(NamedTuple):
    """An edit of scene n: which of its captions it changes, and the scene after it."""

    number: int
    drawn: tuple[str, ...]  # the categories that were drawn for it: its own is the last, those before it came to nothing
    place: int
    edit: Edit
    scene: Scene


def edited(split: str, n: int, each: int = 1, seed: int = 0) -> Iterator[Edited]:
    """Edits of a scene, at most so many, of different categories drawn at random: the caption it changes is any of the five.

    Each is as in `trials.bivlc`: the caption is true of the scene and false of the edited one, the negative caption the reverse.

    >>> one, = edited("train", 0)
    >>> print(one.edit.positive.caption.text, one.edit.negative.caption.text, sep="\\n")
    A picture of an orange ship with stripes and a brown car by a lake.
    A picture of an orange ship with stripes and a green car by a lake.
    """
    dice, scene = Dice("hard", seed, split, n), sample_scene("diorama", 0, split, n)
    wordings, found = word(scene, "diorama", 0, split, n), 0
    drawn: list[str] = []
    for category in dice.shuffled(tuple(IN_PICTURES)):
        if found == each:
            return
        drawn.append(category)
        made = next(_proposed(dice, scene, wordings, category), None)
        if made is not None:
            found += 1
            yield Edited(n, tuple(drawn), *made)
            drawn = []


def _proposed(dice: Dice, scene: Scene, wordings: Sequence[Any], category: str) -> Iterator[tuple[int, Edit, Scene]]:
    for place in dice.shuffled(range(len(wordings))):
        for edit in IN_PICTURES[category](dice, scene, wordings[place]):
            after = realised(scene, edit, dice) if misleading(scene, edit) else None
            if after is not None:
                yield place, edit, after


def in_words(one: Edited, split: str, seed: int = 0) -> Edit:
    """An edit of the same caption as SugarCrepe has it: the first of the drawn categories that words alone allow.

    Where no picture is edited, any caption can be added to, and not only one with a number that the addition makes false. So some
    captions have something added that for a pair have something replaced or swapped, or something else added; all others have the
    same edit.

    >>> three = [one for n in (0, 5, 8) for one in edited("train", n)]
    >>> [(one.edit.category, in_words(one, "train").category) for one in three]
    [('replace/att', 'replace/att'), ('add/att', 'add/att'), ('swap/att', 'add/obj')]
    """
    scene = sample_scene("diorama", 0, split, one.number)
    for category in one.drawn:
        if IN_WORDS[category] is not IN_PICTURES[category]:
            dice = Dice("in words", seed, split, one.number, category)
            for edit in IN_WORDS[category](dice, scene, one.edit.positive):
                if misleading(scene, edit) and realised(scene, edit, dice, unlike=False):
                    return edit
    return one.edit


def unedited(one: Edited, split: str, seed: int = 0) -> Scene:
    """What a generator may draw that was asked for an edit: all that the scene had, laid out anew, and not what was edited.

    The negative caption is false of it. Where no other layout is at hand, it is the scene itself, seen another time.
    """
    before = sample_scene("diorama", 0, split, one.number)
    dice = Dice("unedited", seed, split, one.number, one.edit.category)
    negative = one.edit.negative.caption.meaning
    for version in versions(before, groups_of(before), dice, TRIES):
        if version.things != before.things and not holds(negative, version):
            return version
    return replace(before, seed=dice.below(2**32))


def diorama_edits(split: str, images: int, negatives: NegativeSettings) -> list[tuple[int, int, str, str]]:
    """Scene, place of the caption among its five, category and negative caption of each edit; kept on disk.

    Several processes make those of many scenes.
    """
    from crossmatch.core.places import features_folder
    from crossmatch.train.features import writing

    words = negatives.kind == "texts"
    facts = [split, images, negatives.each, negatives.seed, words, _probe(split, negatives)]
    digest = hashlib.sha256(json.dumps(["edits", *facts]).encode()).hexdigest()[:16]
    path = features_folder() / f"edits-{digest}.json"
    try:
        return [(n, place, category, text) for n, place, category, text in json.loads(path.read_bytes())]
    except (OSError, ValueError, TypeError):  # absent, or damaged: made anew
        pass
    parts = in_parts(partial(_told, negatives.each, negatives.seed, words), split, images, 0)
    found = [one for part in parts for one in part]
    with writing(path.parent), whole_file(path) as file:
        file.write(json.dumps(found).encode())
    return found


def _told(each: int, seed: int, words: bool, part: Part) -> list[tuple[int, int, str, str]]:
    made = ((one, in_words(one, part[0], seed) if words else one.edit) for one in _of(part, each, seed))
    return [(one.number, one.place, edit.category, edit.negative.text) for one, edit in made]


def _of(part: Part, each: int, seed: int) -> Iterator[Edited]:
    split, numbers, _, _ = part
    for n in numbers:
        yield from edited(split, n, each, seed)


def _probe(split: str, negatives: NegativeSettings) -> str:
    """What edits are like today: those of the first scenes, with what is drawn for them."""
    few = [one for n in range(4) for one in edited(split, n, negatives.each, negatives.seed)]
    texts = [(one.place, one.edit.negative.text, in_words(one, split, negatives.seed).negative.text) for one in few]
    told = [texts, *((one.scene.things, unedited(one, split, negatives.seed).things) for one in few)]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


# Their pictures


def _store(split: str, images: int, features: Mapping[str, Any], negatives: NegativeSettings, which: str) -> Store:
    """The negative images of all edits: what is `which` of them, in the style that was asked for."""
    given = dict(features)
    scenes = partial(negative_scenes, negatives.each, negatives.seed, which)
    kind = given.pop("kind", "regions")
    if kind == "pictures":  # as another library prepares them, drawn whenever they are asked for
        made = [scene for part in in_parts(scenes, split, images, 0) for scene in part]
        prepared: Store = given["prepare"](_collection(made, negatives.style))
        return prepared
    if kind == "pixels":
        drawn = in_parts(partial(_pixels, scenes, negatives.style), split, images, int(given.get("side", 64)))
        return PixelStore(np.concatenate(drawn))
    from crossmatch.models.zoo.features import Extractor
    from crossmatch.train.features import drawn_features

    facts = ["hard", split, images, negatives.each, negatives.seed, which, _probe(split, negatives)]
    return drawn_features(facts, scenes, negatives.style, split, images, Extractor(**given))


def _collection(scenes: Sequence[Scene], style: str) -> Collection:
    """Scenes as images, which are drawn when they are opened."""

    def open_image(name: str) -> Image:
        from crossmatch.diorama.draw import draw

        return draw(scenes[int(name)], style)

    return Collection.of({str(n): [f"scene {n}"] for n in range(len(scenes))}, open_image)  # a collection has captions


def negative_scenes(each: int, seed: int, which: str, part: Part) -> list[Scene]:
    """The scenes of some edits' negative images."""
    made = _of(part, each, seed)
    return [one.scene if which == WHICH[0] else unedited(one, part[0], seed) for one in made]


def _pixels(scenes: Any, style: str, part: Part) -> NDArray[np.uint8]:
    """Drawn at twice the size and averaged, as in `draw_split`."""
    from PIL.Image import Resampling

    from crossmatch.diorama.draw import draw

    side = part[2]
    seen = [draw(scene, style, 2 * side).resize((side, side), Resampling.BOX) for scene in scenes(part)]
    return np.asarray([np.asarray(picture) for picture in seen], dtype=np.uint8).reshape(-1, side, side, 3)
