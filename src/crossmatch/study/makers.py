"""One maker of items for each study of the papers: endless but for the size of the world, in an order of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.benchmarks.diorama_graded import drawn
from crossmatch.diorama.dice import Dice
from crossmatch.diorama.draw import draw
from crossmatch.diorama.edits import IN_PICTURES, holds, realised
from crossmatch.diorama.meaning import Meaning
from crossmatch.diorama.quality import quality_captions
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.similarity import Matrix, caption_similarity, scene_caption_similarity, scene_similarity
from crossmatch.diorama.trials import Made, made_by, neighbours
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, Diorama
from crossmatch.study.begin import NewItem
from crossmatch.study.design import load_design
from crossmatch.study.ideal import WorldTruth
from crossmatch.study.items import body_of, choices_of
from crossmatch.study.sources import PIXELS

if TYPE_CHECKING:
    from PIL.Image import Image

AGAIN = "@generator"  # behind the id of a scene: the same scene drawn by the other artist
ODD = 5  # one in so many items has another answer than the usual one: none, or both
NEIGHBOURS = 12  # of which a look-alike is chosen
LISTED = 8  # results in a list, at most (chun2022eccv, sec. D.1)
SYSTEMS: Mapping[str, Callable[[int, int], bool]] = {  # whether the result at a place is right, in a list of so many (fig. D.1)
    "A": lambda place, size: place != 0,
    "B": lambda place, size: place == 0,
    "C": lambda place, size: place >= 5,
    "D": lambda place, size: place == 4,
    "E": lambda place, size: False,
}


@dataclass(eq=False)
class Shop:
    """A world, and what was made in it for studies: scenes by the id of their picture, texts with what they mean."""

    world: Diorama
    scenes: dict[str, tuple[Scene, str]] = field(default_factory=dict)  # with the artist's style
    meanings: dict[str, Meaning | None] = field(default_factory=dict)
    qualities: dict[tuple[str, str], int] = field(default_factory=dict)
    details: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, scene in zip(self.ids, self.world.scenes, strict=True):
            self.scenes[name] = (scene, self.world.style)
            self.scenes[name + AGAIN] = (scene, "generator")
        for n, caption in enumerate(self.world.captions):
            self.meanings[caption.text] = caption.meaning
            self.details.setdefault(caption.text, CAPTIONS_PER_SCENE - n % CAPTIONS_PER_SCENE)

    @property
    def ids(self) -> list[str]:
        return [str(name) for name in self.world.collection.image_ids]

    @property
    def truth(self) -> WorldTruth:
        return WorldTruth({name: scene for name, (scene, _) in self.scenes.items()}, self.meanings, self.qualities, self.details)

    def five(self, n: int) -> tuple[list[str], list[str]]:
        """The texts of a scene's captions, and their ids."""
        places = range(CAPTIONS_PER_SCENE * n, CAPTIONS_PER_SCENE * (n + 1))
        return [self.world.captions[at].text for at in places], [str(self.world.collection.caption_ids[at]) for at in places]

    def picture(self, name: str) -> Image:
        return draw(*self.scenes[name], PIXELS)

    def order(self, *told: object) -> list[int]:
        """The scenes in an order of their own for each purpose."""
        return Dice("study", *told).shuffled(range(len(self.world.scenes)))

    def item(self, key: str, images: list[str], captions: list[str], caption_ids: list[str], **rest: Any) -> NewItem:
        return NewItem(key, tuple(images), tuple(captions), body=body_of(images, caption_ids, captions, **rest))


# -- one maker for each study


def _look_alikes(shop: Shop) -> Iterator[tuple[int, int]]:
    """Each scene with one of its nearest neighbours: the one that the fewest of its captions tell from it, but at least one."""
    fives = [" ".join(shop.five(n)[0]) for n in range(len(shop.world.scenes))]
    for n, others in enumerate(neighbours(fives, min(NEIGHBOURS, len(fives) - 1)).tolist()):
        own = slice(CAPTIONS_PER_SCENE * n, CAPTIONS_PER_SCENE * (n + 1))
        telling = {other: int((~shop.world.truth[other, own]).sum()) for other in others}
        found = min((other for other in others if telling[other]), key=lambda other: telling[other], default=None)
        if found is not None:
            yield n, found


def _bison_select(shop: Shop) -> Iterator[NewItem]:
    for at, (n, other) in enumerate(_look_alikes(shop)):
        images = [shop.ids[n], shop.ids[n] + AGAIN if at % ODD == 1 else shop.ids[other]]
        yield shop.item("~".join(images), images, *shop.five(n))


def _bison_verify(shop: Shop) -> Iterator[NewItem]:
    for at, (n, other) in enumerate(_look_alikes(shop)):
        images, (texts, ids) = [shop.ids[n], shop.ids[other]], shop.five(n)
        false = ~shop.world.truth[other, CAPTIONS_PER_SCENE * n : CAPTIONS_PER_SCENE * (n + 1)]
        telling = [k for k in range(CAPTIONS_PER_SCENE) if false[k]]
        k = Dice("verify", n).pick(telling)
        if at % ODD == 1:
            images[1] = images[0] + AGAIN  # the sentence is true of both
        yield shop.item("~".join(images), images, [texts[k]], [ids[k]])


def _correctness(shop: Shop) -> Iterator[NewItem]:
    for one in quality_captions(shop.world):
        shop.qualities[one.image, one.caption] = one.quality
        shop.meanings.setdefault(one.caption, one.meaning)
        name = f"{one.image}#{one.level.replace(' ', '-')}"
        yield shop.item(name, [one.image], [one.caption], [name], level=one.level)


def _detail(shop: Shop) -> Iterator[NewItem]:
    seen: set[str] = set()
    for at, n in enumerate(shop.order("detail")):
        texts, ids = shop.five(n)
        k = at % CAPTIONS_PER_SCENE
        if texts[k] not in seen:
            seen.add(texts[k])
            made = shop.item(ids[k], [], [texts[k]], [ids[k]])
            yield replace(made, body={**made.body, "image_id": shop.ids[n]})


def _alike(grades: Callable[[Diorama], Matrix], sides: str) -> Callable[[Shop], Iterator[NewItem]]:
    """Pairs of all grades in turn."""

    def make(shop: Shop) -> Iterator[NewItem]:
        matrix, images, captions = grades(shop.world), shop.ids, [str(c) for c in shop.world.collection.caption_ids]
        rows, columns = drawn(matrix, sides != "ic", 0)
        steps: list[list[tuple[int, int]]] = [[] for _ in range(6)]
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            steps[int(np.floor(matrix[row, column] + 0.5))].append((row, column))
        if sides == "ii":  # the same scene by two artists
            steps[5] += [(n, n) for n in range(len(images))]
        mixed = [Dice("alike", sides, n).shuffled(step) for n, step in enumerate(steps)]
        seen: set[frozenset[tuple[str, str]]] = set()
        for row, column in (pair for step in zip_longest(*mixed) for pair in step if pair is not None):
            shown = [(images, captions)[side == "c"][at] for side, at in zip(sides, (row, column), strict=True)]
            if sides == "ii" and row == column:
                shown[1] += AGAIN
            texts = [shop.world.captions[at].text for side, at in zip(sides, (row, column), strict=True) if side == "c"]
            one = frozenset(zip(sides, shown if len(texts) < 2 else texts, strict=True))
            if one not in seen and len(one) == 2:
                seen.add(one)
                ids = {side: [name for s, name in zip(sides, shown, strict=True) if s == side] for side in "ic"}
                yield shop.item("~".join(shown), ids["i"], texts, ids["c"])

    return make


def _pool(shop: Shop) -> Iterator[NewItem]:
    """Captions with the images that fit them best: some fit, some nearly, some not at all."""
    grades, truth = scene_caption_similarity(shop.world.scenes, shop.world.captions), shop.world.truth
    for turn in range(CAPTIONS_PER_SCENE):
        for n in shop.order("pool", turn):
            at = CAPTIONS_PER_SCENE * n + turn
            ranked = np.argsort(-grades[:, at], kind="stable")
            false = [int(i) for i in ranked if not truth[i, at]]
            right = [int(i) for i in ranked if truth[i, at]]
            dice = Dice("pool", n, turn)
            for image in (dice.pick(right), false[0], dice.pick(false[1:])):
                text, name = shop.world.captions[at].text, str(shop.world.collection.caption_ids[at])
                yield shop.item(f"{shop.ids[image]}~{name}", [shop.ids[image]], [text], [name])


def _rankings(shop: Shop) -> Iterator[NewItem]:
    """Captions of several images, and two lists for each by systems that are right at different places."""
    truth, seen = shop.world.truth, set[str]()
    for at in Dice("rankings").shuffled(range(len(shop.world.captions))):
        text, name = shop.world.captions[at].text, str(shop.world.collection.caption_ids[at])
        right, wrong = (np.flatnonzero(truth[:, at] == fits).tolist() for fits in (True, False))
        size = min(LISTED, len(right))
        if size <= 5 or len(wrong) < size or text in seen:  # with five, systems C and E would be the same
            continue
        seen.add(text)
        dice = Dice("rankings", at)
        right, wrong = dice.shuffled(right)[:size], dice.shuffled(wrong)[:size]
        lists = {s: [shop.ids[(right if fits(k, size) else wrong)[k]] for k in range(size)] for s, fits in SYSTEMS.items()}
        for a, b in map(dice.shuffled, dice.shuffled(list(combinations(SYSTEMS, 2)))):
            yield shop.item(f"{name}~{a}{b}", lists[a] + lists[b], [text], [name], systems=[a, b], query=name)


def _edits(shop: Shop) -> list[Made]:
    """Edits of all categories in turn; scenes after them are the generator's pictures."""
    by_category: dict[str, list[Made]] = {}
    for one in made_by(shop.world, "bivlc", IN_PICTURES):
        by_category.setdefault(one.edit.category, []).append(one)
        shop.scenes[one.name] = (one.edited, "generator")
        for wording in (one.edit.positive, one.edit.negative):
            shop.meanings[wording.text] = wording.caption.meaning
    return [one for step in zip_longest(*by_category.values()) for one in step if one is not None]


def _choose(shop: Shop) -> Iterator[NewItem]:
    edits = _edits(shop)
    for at, one in enumerate(edits):
        said, dice = one.edit.negative.caption, Dice("choose", one.name)
        right = [] if at % ODD == 1 else [one.name]
        again = realised(one.edited, one.edit, Dice("again", one.name)) if at % ODD == 3 else None
        if again is not None and again != one.edited:
            shop.scenes[f"{one.name}@again"] = (again, "generator")
            right.append(f"{one.name}@again")
        others = [e.name for e in dice.shuffled(edits) if e.name != one.name and not holds(said.meaning, e.edited)]
        wrong = [shop.ids[one.number] + AGAIN, *others]
        images = dice.shuffled([*right, *wrong[: 4 - len(right)]])
        original = {"image": shop.ids[one.number], "caption": one.edit.positive.text}
        yield shop.item(one.name, images, [said.text], [f"{one.name}#negative"], original=original, category=one.edit.category)


def _ambiguity(shop: Shop) -> Iterator[NewItem]:
    for at, one in enumerate(_edits(shop)):
        original = shop.ids[one.number]
        images = [original, original + AGAIN if at % ODD == 1 else one.name]
        ids = [f"{one.name}#positive", f"{one.name}#negative"]
        whole = {"captions": [one.edit.positive.text, one.edit.negative.text], "caption_ids": ids, "category": one.edit.category}
        yield shop.item(one.name, images, [one.edit.positive.text], ids[:1], trial_of=whole)


def _human(shop: Shop) -> Iterator[NewItem]:
    design = load_design("bivlc-human")
    for one in _edits(shop):
        texts, ids = [one.edit.positive.text, one.edit.negative.text], [f"{one.name}#positive", f"{one.name}#negative"]
        trial = shop.item(one.name, [shop.ids[one.number], one.name], texts, ids, category=one.edit.category)
        yield from choices_of(trial, design)


MAKERS: Mapping[str, Callable[[Shop], Iterator[NewItem]]] = {
    "bison-select": _bison_select,
    "bison-verify": _bison_verify,
    "caption-correctness": _correctness,
    "caption-detail": _detail,
    "sts": _alike(lambda w: caption_similarity(w.captions, w.captions), "cc"),
    "sis": _alike(lambda w: scene_similarity(w.scenes, w.scenes), "ii"),
    "sits": _alike(lambda w: scene_caption_similarity(w.scenes, w.captions), "ic"),
    "eccv-hit": _pool,
    "ranking-preference": _rankings,
    "bivlc-choose": _choose,
    "bivlc-ambiguity": _ambiguity,
    "bivlc-human": _human,
}
USUAL: Mapping[str, int] = dict.fromkeys(MAKERS, 20) | {"eccv-hit": 54, "ranking-preference": 40, "bivlc-human": 40}
