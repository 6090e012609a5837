"""The embedded trials: the truth confirms every cell of every one, and they come out the same on every machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from crossmatch.benchmarks.diorama_trials import DIORAMA_BISON, DIORAMA_BIVLC, DIORAMA_SUGARCREPE
from crossmatch.core.benchmark import data_hash
from crossmatch.core.errors import WrongWords
from crossmatch.core.trials import Trials
from crossmatch.diorama.draw import draw
from crossmatch.diorama.edits import CATEGORIES
from crossmatch.diorama.trials import bison, bivlc, made_bivlc, made_sugarcrepe, neighbours, sugarcrepe
from crossmatch.diorama.truth import truth
from crossmatch.diorama.world import Diorama

WORLD = Diorama.make("test")
NUMBER = {f"test-{n:05d}": n for n in range(len(WORLD.scenes))}
FIVES = {name: [c.text for c in WORLD.captions[5 * n : 5 * n + 5]] for name, n in NUMBER.items()}
TASKS = {"bison": DIORAMA_BISON, "bivlc": DIORAMA_BIVLC, "sugarcrepe": DIORAMA_SUGARCREPE}


@pytest.fixture(scope="module")
def trials() -> dict[str, Trials]:
    return {name: task.loaded() for name, task in TASKS.items()}  # checks the declared counts and categories


def test_the_trials_do_not_change_without_a_word(trials: dict[str, Trials]) -> None:
    assert {name: data_hash(found) for name, found in trials.items()} == {
        "bison": "6b062737",
        "bivlc": "e6276a5a",
        "sugarcrepe": "728bb403",
    }
    scenes = [(one.edited.things, sorted(one.edited.relations)) for one in made_bivlc("test", "default")]
    assert hashlib.sha256(repr(scenes).encode()).hexdigest()[:8] == "3290a881"


def test_there_are_enough_of_every_category(trials: dict[str, Trials]) -> None:
    assert all(len(found.ids) >= 1000 for found in trials.values())
    for name in ("bivlc", "sugarcrepe"):
        counts = Counter(trials[name].categories.tolist())
        assert set(counts) == set(CATEGORIES)
        assert max(counts.values()) <= 1.5 * min(counts.values())
    assert set(trials["bison"].categories.tolist()) == {""}


def test_no_trial_comes_twice(trials: dict[str, Trials]) -> None:
    for found in trials.values():
        rows = list(zip(map(tuple, found.images.tolist()), map(tuple, found.captions.tolist()), strict=True))
        assert len(set(rows)) == len(set(found.ids.tolist())) == len(rows)
        for row in (found.images, found.captions):
            assert all(len(set(cells)) == len(cells) for cells in row.tolist())


def test_the_truth_confirms_all_four_cells_of_bivlc(trials: dict[str, Trials]) -> None:
    made, found = made_bivlc("test", "default"), trials["bivlc"]
    positives, negatives = [one.edit.positive.caption for one in made], [one.edit.negative.caption for one in made]
    assert found.captions.tolist() == [[a.text, b.text] for a, b in zip(positives, negatives, strict=True)]
    original, edited = [WORLD.scenes[one.number] for one in made], [one.edited for one in made]
    for scenes, holds in ((original, (True, False)), (edited, (False, True))):
        for captions, expected in zip((positives, negatives), holds, strict=True):
            assert set(np.diag(truth(scenes, captions)).tolist()) == {expected}


def test_the_truth_confirms_both_cells_of_sugarcrepe(trials: dict[str, Trials]) -> None:
    made, found = made_sugarcrepe("test", "default"), trials["sugarcrepe"]
    scenes = [WORLD.scenes[one.number] for one in made]
    for at, expected in enumerate((True, False)):
        captions = [(one.edit.positive, one.edit.negative)[at].caption for one in made]
        assert found.captions[:, at].tolist() == [caption.text for caption in captions]
        assert set(np.diag(truth(scenes, captions)).tolist()) == {expected}
    assert np.diag(truth([one.edited for one in made], [one.edit.negative.caption for one in made])).all()  # it could be


def test_the_positive_caption_is_one_of_the_five(trials: dict[str, Trials]) -> None:
    for found in trials.values():
        assert all(text in FIVES[image] for image, text in zip(found.images[:, 0], found.captions[:, 0], strict=True))
    for name in ("bivlc", "sugarcrepe"):
        found = trials[name]
        levels = Counter(FIVES[image].index(text) for image, text in zip(found.images[:, 0], found.captions[:, 0], strict=True))
        assert min(levels.values()) > 0.03 * len(found.ids)  # not only the long ones


def test_the_truth_confirms_the_queries_of_bison(trials: dict[str, Trials]) -> None:
    found = trials["bison"]
    for (positive, negative), (query,) in zip(found.images.tolist(), found.captions.tolist(), strict=True):
        column = 5 * NUMBER[positive] + FIVES[positive].index(query)
        assert WORLD.truth[NUMBER[positive], column]
        assert not WORLD.truth[NUMBER[negative], column]
    assert found.references == {name: tuple(five) for name, five in FIVES.items()}


def test_bison_asks_about_the_nearest_neighbour_that_can_be_told(trials: dict[str, Trials]) -> None:
    near = neighbours([" ".join(five) for five in FIVES.values()], 4)
    first = 0
    for positive, negative in trials["bison"].images.tolist():
        rank = near[NUMBER[positive]].tolist().index(NUMBER[negative])
        skipped = near[NUMBER[positive], :rank]
        assert WORLD.truth[skipped, 5 * NUMBER[positive] : 5 * NUMBER[positive] + 5].all()
        first += rank == 0
    assert first > 0.99 * len(NUMBER)


def test_people_took_the_longest_caption_three_times_in_ten(trials: dict[str, Trials]) -> None:
    assert (trials["bison"].captions == bison(caption="longest").captions).mean() == pytest.approx(0.3, abs=0.03)


def test_other_captions_for_the_same_pairs(trials: dict[str, Trials]) -> None:
    for caption in ("random", "longest"):
        other = DIORAMA_BISON.loaded(caption=caption)
        assert other.ids.tolist() == trials["bison"].ids.tolist()
        assert other.images.tolist() == trials["bison"].images.tolist()
        for (image, _), (query,) in zip(other.images.tolist(), other.captions.tolist(), strict=True):
            assert query in FIVES[image]
            if caption == "longest":
                assert len(query.split()) == max(len(text.split()) for text in FIVES[image])
    queries = zip(trials["bison"].images[:, 0], bison(caption="random").captions[:, 0], strict=True)
    which = Counter(FIVES[image].index(query) for image, query in queries)
    assert min(which.values()) > 150  # of a thousand, over five
    with pytest.raises(WrongWords, match="chosen, random, longest"):
        DIORAMA_BISON.loaded(caption="shortest")


def slow_neighbours(texts: list[str]) -> list[list[int]]:
    """All others in order of the exact squared cosine."""
    bags = [Counter(text.lower().replace(".", "").replace(",", "").replace(";", "").split()) for text in texts]
    seen = Counter(name for bag in bags for name in bag)
    weight = {name: (len(texts) // times).bit_length() - 1 for name, times in seen.items()}
    vectors = [{name: times * weight[name] for name, times in bag.items()} for bag in bags]

    def near(a: dict[str, int], b: dict[str, int]) -> Fraction:
        dot = sum(value * b.get(name, 0) for name, value in a.items())
        return Fraction(dot * dot, max(1, sum(value * value for value in b.values())))

    return [
        sorted((j for j in range(len(texts)) if j != i), key=lambda j: (-near(a, vectors[j]), j)) for i, a in enumerate(vectors)
    ]


def test_neighbours_are_those_of_the_definition() -> None:
    texts = [" ".join(five) for five in list(FIVES.values())[:60]]
    assert neighbours(texts, 5).tolist() == [row[:5] for row in slow_neighbours(texts)]
    assert neighbours(["a b", "a b", "a b"], 2).tolist() == [[1, 2], [0, 2], [0, 1]]


def test_pictures(trials: dict[str, Trials]) -> None:
    found, made = trials["bivlc"], made_bivlc("test", "default")
    for category in CATEGORIES:
        at = found.categories.tolist().index(category)
        one, (original, edited) = made[at], found.images[at].tolist()
        assert edited == f"{original}~{category.replace('/', '-')}-0" == one.name
        assert found.open_image(original).tobytes() == WORLD.picture(one.number).tobytes()
        assert found.open_image(edited).tobytes() == draw(one.edited, "generator").tobytes()
        assert draw(one.edited).tobytes() != WORLD.picture(one.number).tobytes()  # not only the style is another one
    for name in ("bison", "sugarcrepe"):
        first = str(trials[name].images[3, 0])
        assert trials[name].open_image(first).tobytes() == WORLD.picture(NUMBER[first]).tobytes()


def test_edited_scenes_differ(trials: dict[str, Trials]) -> None:
    for one in made_bivlc("test", "default"):
        scene = WORLD.scenes[one.number]
        assert (one.edited.setting, one.edited.seed) == (scene.setting, scene.seed)
        assert one.edited.things != scene.things
        more = len(one.edited.things) - len(scene.things)
        assert more == one.edit.category.startswith("add/")
    assert len({one.edited for one in made_bivlc("test", "default")}) == len(trials["bivlc"].ids)


@pytest.mark.parametrize("split", ["val", "train"])
def test_other_splits_and_sizes(split: str) -> None:
    for task in TASKS.values():
        found = task.loaded(split=split, size="tiny")
        assert all(image.startswith(split) for image in found.images.ravel().tolist())
        assert len(found.ids) >= 50
    with pytest.raises(WrongWords, match="no size"):
        bivlc(size="huge")
    with pytest.raises(WrongWords, match="no split"):
        sugarcrepe("dev")


def test_the_same_whatever_the_hash_seed() -> None:
    program = (
        "from crossmatch.core.benchmark import data_hash as h\n"
        "from crossmatch.diorama.trials import bison, bivlc, sugarcrepe, made_bivlc\n"
        "print(*(h(task(size='tiny')) for task in (bison, bivlc, sugarcrepe)))\n"
        "print([(one.edited.things, sorted(one.edited.relations)) for one in made_bivlc('test', 'tiny')])"
    )
    said = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        said.add(subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True).stdout)
    assert len(said) == 1
