"""Generators of items from the embedded world, one for each preset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.benchmarks.diorama_tasks import sample_pairs
from crossmatch.diorama.caption_meaning import Meaning
from crossmatch.diorama.drawing import draw
from crossmatch.diorama.edits import IMAGE_EDITS, is_true_of, realise_edit
from crossmatch.diorama.graded_similarity import Matrix, caption_similarity, scene_caption_similarity, scene_similarity
from crossmatch.diorama.quality_captions import quality_captions
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.trials import EditTrial, make_edit_trials, nearest_texts
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, Diorama
from crossmatch.study.design.data_source import PIXELS
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.item_files import choices_of, item_details
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.simulation.correct_answers import WorldTruth

if TYPE_CHECKING:
    from PIL.Image import Image

OTHER_STYLE = "@generator"  # suffix of the id of a scene in another style
UNUSUAL_EVERY = 5  # one in this many items has an unusual answer: none, or both
NEIGHBOURS = 12  # candidates for a look-alike
MAX_LIST_LENGTH = 8  # maximum length of a list (chun2022eccv, sec. D.1)
SYSTEMS: Mapping[str, Callable[[int, int], bool]] = {  # whether the result at a place of a list is right (fig. D.1)
    "A": lambda place, size: place != 0,
    "B": lambda place, size: place == 0,
    "C": lambda place, size: place >= 5,
    "D": lambda place, size: place == 4,
    "E": lambda place, size: False,
}


@dataclass(eq=False)
class ItemFactory:
    """Makes items from a world. Records the scene of each image and the meaning of each text."""

    world: Diorama
    scenes: dict[str, tuple[Scene, str]] = field(default_factory=dict)  # with their style
    meanings: dict[str, Meaning | None] = field(default_factory=dict)
    qualities: dict[tuple[str, str], int] = field(default_factory=dict)
    details: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, scene in zip(self.ids, self.world.scenes, strict=True):
            self.scenes[name] = (scene, self.world.style)
            self.scenes[name + OTHER_STYLE] = (scene, "generator")
        for n, caption in enumerate(self.world.captions):
            self.meanings[caption.text] = caption.meaning
            self.details.setdefault(caption.text, CAPTIONS_PER_SCENE - n % CAPTIONS_PER_SCENE)

    @property
    def ids(self) -> list[str]:
        return [str(name) for name in self.world.collection.image_ids]

    @property
    def truth(self) -> WorldTruth:
        return WorldTruth({name: scene for name, (scene, _) in self.scenes.items()}, self.meanings, self.qualities, self.details)

    def scene_captions(self, n: int) -> tuple[list[str], list[str]]:
        """The texts of a scene's captions, and their ids."""
        places = range(CAPTIONS_PER_SCENE * n, CAPTIONS_PER_SCENE * (n + 1))
        return [self.world.captions[at].text for at in places], [str(self.world.collection.caption_ids[at]) for at in places]

    def picture(self, name: str) -> Image:
        return draw(*self.scenes[name], PIXELS)

    def shuffled_scenes(self, *purpose: object) -> list[int]:
        """The scenes in a random order for each purpose."""
        return Dice("study", *purpose).shuffled(range(len(self.world.scenes)))

    def item(self, key: str, images: list[str], captions: list[str], caption_ids: list[str], **rest: Any) -> NewItem:
        return NewItem(key, tuple(images), tuple(captions), details=item_details(images, caption_ids, captions, **rest))


# -- one generator for each preset


def _lookalikes(factory: ItemFactory) -> Iterator[tuple[int, int]]:
    """Each scene with the neighbour that the fewest of its captions distinguish from it, but at least one."""
    joined_captions = [" ".join(factory.scene_captions(n)[0]) for n in range(len(factory.world.scenes))]
    for n, others in enumerate(nearest_texts(joined_captions, min(NEIGHBOURS, len(joined_captions) - 1)).tolist()):
        caption_slice = slice(CAPTIONS_PER_SCENE * n, CAPTIONS_PER_SCENE * (n + 1))
        distinguishing = {other: int((~factory.world.truth[other, caption_slice]).sum()) for other in others}
        look_alike = min(
            (other for other in others if distinguishing[other]), key=lambda other: distinguishing[other], default=None
        )
        if look_alike is not None:
            yield n, look_alike


def _bison_select(factory: ItemFactory) -> Iterator[NewItem]:
    for at, (n, other) in enumerate(_lookalikes(factory)):
        images = [factory.ids[n], factory.ids[n] + OTHER_STYLE if at % UNUSUAL_EVERY == 1 else factory.ids[other]]
        yield factory.item("~".join(images), images, *factory.scene_captions(n))


def _bison_verify(factory: ItemFactory) -> Iterator[NewItem]:
    for at, (n, other) in enumerate(_lookalikes(factory)):
        images, (texts, ids) = [factory.ids[n], factory.ids[other]], factory.scene_captions(n)
        false = ~factory.world.truth[other, CAPTIONS_PER_SCENE * n : CAPTIONS_PER_SCENE * (n + 1)]
        distinguishing = [k for k in range(CAPTIONS_PER_SCENE) if false[k]]
        k = Dice("verify", n).pick(distinguishing)
        if at % UNUSUAL_EVERY == 1:
            images[1] = images[0] + OTHER_STYLE  # the sentence is true of both
        yield factory.item("~".join(images), images, [texts[k]], [ids[k]])


def _correctness(factory: ItemFactory) -> Iterator[NewItem]:
    for rated in quality_captions(factory.world):
        factory.qualities[rated.image, rated.caption] = rated.quality
        factory.meanings.setdefault(rated.caption, rated.meaning)
        name = f"{rated.image}#{rated.level.replace(' ', '-')}"
        yield factory.item(name, [rated.image], [rated.caption], [name], level=rated.level)


def _detail(factory: ItemFactory) -> Iterator[NewItem]:
    used_texts: set[str] = set()
    for at, n in enumerate(factory.shuffled_scenes("detail")):
        texts, ids = factory.scene_captions(n)
        k = at % CAPTIONS_PER_SCENE
        if texts[k] not in used_texts:
            used_texts.add(texts[k])
            item = factory.item(ids[k], [], [texts[k]], [ids[k]])
            yield replace(item, details={**item.details, "image_id": factory.ids[n]})


def _similarity_pairs(grades: Callable[[Diorama], Matrix], sides: str) -> Callable[[ItemFactory], Iterator[NewItem]]:
    """Pairs of all grades in turn."""

    def make(factory: ItemFactory) -> Iterator[NewItem]:
        matrix, images, captions = grades(factory.world), factory.ids, [str(c) for c in factory.world.collection.caption_ids]
        rows, columns = sample_pairs(matrix, sides != "ic", 0)
        steps: list[list[tuple[int, int]]] = [[] for _ in range(6)]
        for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
            steps[int(np.floor(matrix[row, column] + 0.5))].append((row, column))
        if sides == "ii":  # the same scene in two styles
            steps[5] += [(n, n) for n in range(len(images))]
        mixed = [Dice("alike", sides, n).shuffled(step) for n, step in enumerate(steps)]
        used_pairs: set[frozenset[tuple[str, str]]] = set()
        for row, column in (pair for step in zip_longest(*mixed) for pair in step if pair is not None):
            pair_ids = [(images, captions)[side == "c"][at] for side, at in zip(sides, (row, column), strict=True)]
            if sides == "ii" and row == column:
                pair_ids[1] += OTHER_STYLE
            texts = [factory.world.captions[at].text for side, at in zip(sides, (row, column), strict=True) if side == "c"]
            pair_content = frozenset(zip(sides, pair_ids if len(texts) < 2 else texts, strict=True))
            if pair_content not in used_pairs and len(pair_content) == 2:
                used_pairs.add(pair_content)
                ids = {side: [name for s, name in zip(sides, pair_ids, strict=True) if s == side] for side in "ic"}
                yield factory.item("~".join(pair_ids), ids["i"], texts, ids["c"])

    return make


def _pool(factory: ItemFactory) -> Iterator[NewItem]:
    """Captions with the images that fit them best: some fit, some nearly, some not at all."""
    grades, truth = scene_caption_similarity(factory.world.scenes, factory.world.captions), factory.world.truth
    for turn in range(CAPTIONS_PER_SCENE):
        for n in factory.shuffled_scenes("pool", turn):
            at = CAPTIONS_PER_SCENE * n + turn
            ranked = np.argsort(-grades[:, at], kind="stable")
            false = [int(i) for i in ranked if not truth[i, at]]
            right = [int(i) for i in ranked if truth[i, at]]
            dice = Dice("pool", n, turn)
            for image in (dice.pick(right), false[0], dice.pick(false[1:])):
                text, name = factory.world.captions[at].text, str(factory.world.collection.caption_ids[at])
                yield factory.item(f"{factory.ids[image]}~{name}", [factory.ids[image]], [text], [name])


def _rankings(factory: ItemFactory) -> Iterator[NewItem]:
    """Captions of several images, and two lists for each by systems that are right at different places."""
    truth, used_texts = factory.world.truth, set[str]()
    for at in Dice("rankings").shuffled(range(len(factory.world.captions))):
        text, name = factory.world.captions[at].text, str(factory.world.collection.caption_ids[at])
        right, wrong = (np.flatnonzero(truth[:, at] == fits).tolist() for fits in (True, False))
        size = min(MAX_LIST_LENGTH, len(right))
        if size <= 5 or len(wrong) < size or text in used_texts:  # with five, systems C and E would be the same
            continue
        used_texts.add(text)
        dice = Dice("rankings", at)
        right, wrong = dice.shuffled(right)[:size], dice.shuffled(wrong)[:size]
        lists = {s: [factory.ids[(right if fits(k, size) else wrong)[k]] for k in range(size)] for s, fits in SYSTEMS.items()}
        for a, b in map(dice.shuffled, dice.shuffled(list(combinations(SYSTEMS, 2)))):
            yield factory.item(f"{name}~{a}{b}", lists[a] + lists[b], [text], [name], systems=[a, b], query=name)


def _edits(factory: ItemFactory) -> list[EditTrial]:
    """Edits of all categories in turn; the edited scenes are drawn in the generator's style."""
    by_category: dict[str, list[EditTrial]] = {}
    for trial in make_edit_trials(factory.world, "bivlc", IMAGE_EDITS):
        by_category.setdefault(trial.edit.category, []).append(trial)
        factory.scenes[trial.name] = (trial.edited, "generator")
        for wording in (trial.edit.positive, trial.edit.negative):
            factory.meanings[wording.text] = wording.caption.meaning
    return [trial for step in zip_longest(*by_category.values()) for trial in step if trial is not None]


def _choose(factory: ItemFactory) -> Iterator[NewItem]:
    edits = _edits(factory)
    for at, edit_trial in enumerate(edits):
        negative, dice = edit_trial.edit.negative.caption, Dice("choose", edit_trial.name)
        right = [] if at % UNUSUAL_EVERY == 1 else [edit_trial.name]
        again = (
            realise_edit(edit_trial.edited, edit_trial.edit, Dice("again", edit_trial.name)) if at % UNUSUAL_EVERY == 3 else None
        )
        if again is not None and again != edit_trial.edited:
            factory.scenes[f"{edit_trial.name}@again"] = (again, "generator")
            right.append(f"{edit_trial.name}@again")
        others = [e.name for e in dice.shuffled(edits) if e.name != edit_trial.name and not is_true_of(negative.meaning, e.edited)]
        wrong = [factory.ids[edit_trial.number] + OTHER_STYLE, *others]
        images = dice.shuffled([*right, *wrong[: 4 - len(right)]])
        original = {"image": factory.ids[edit_trial.number], "caption": edit_trial.edit.positive.text}
        yield factory.item(
            edit_trial.name,
            images,
            [negative.text],
            [f"{edit_trial.name}#negative"],
            original=original,
            category=edit_trial.edit.category,
        )


def _ambiguity(factory: ItemFactory) -> Iterator[NewItem]:
    for at, edit_trial in enumerate(_edits(factory)):
        original = factory.ids[edit_trial.number]
        images = [original, original + OTHER_STYLE if at % UNUSUAL_EVERY == 1 else edit_trial.name]
        ids = [f"{edit_trial.name}#positive", f"{edit_trial.name}#negative"]
        whole = {
            "captions": [edit_trial.edit.positive.text, edit_trial.edit.negative.text],
            "caption_ids": ids,
            "category": edit_trial.edit.category,
        }
        yield factory.item(edit_trial.name, images, [edit_trial.edit.positive.text], ids[:1], trial_of=whole)


def _human(factory: ItemFactory) -> Iterator[NewItem]:
    design = load_design("bivlc-human")
    for edit_trial in _edits(factory):
        texts, ids = (
            [edit_trial.edit.positive.text, edit_trial.edit.negative.text],
            [f"{edit_trial.name}#positive", f"{edit_trial.name}#negative"],
        )
        trial = factory.item(
            edit_trial.name, [factory.ids[edit_trial.number], edit_trial.name], texts, ids, category=edit_trial.edit.category
        )
        yield from choices_of(trial, design)


GENERATORS: Mapping[str, Callable[[ItemFactory], Iterator[NewItem]]] = {
    "bison-select": _bison_select,
    "bison-verify": _bison_verify,
    "caption-correctness": _correctness,
    "caption-detail": _detail,
    "sts": _similarity_pairs(lambda w: caption_similarity(w.captions, w.captions), "cc"),
    "sis": _similarity_pairs(lambda w: scene_similarity(w.scenes, w.scenes), "ii"),
    "sits": _similarity_pairs(lambda w: scene_caption_similarity(w.scenes, w.captions), "ic"),
    "eccv-hit": _pool,
    "ranking-preference": _rankings,
    "bivlc-choose": _choose,
    "bivlc-ambiguity": _ambiguity,
    "bivlc-human": _human,
}
DEFAULT_COUNTS: Mapping[str, int] = dict.fromkeys(GENERATORS, 20) | {"eccv-hit": 54, "ranking-preference": 40, "bivlc-human": 40}
