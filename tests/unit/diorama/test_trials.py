"""Trials from diorama: the truth confirms every cell, and they are the same on every machine."""

from __future__ import annotations

import hashlib
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from crossmatch.benchmarks.diorama_tasks import DIORAMA_BISON, DIORAMA_BIVLC, DIORAMA_SUGARCREPE
from crossmatch.data.errors import UsageError
from crossmatch.data.loaded_data import data_hash
from crossmatch.data.trials import Trials
from crossmatch.diorama.drawing import draw
from crossmatch.diorama.edits import CATEGORIES
from crossmatch.diorama.trials import bison, bivlc, bivlc_edits, nearest_texts, sugarcrepe, sugarcrepe_edits
from crossmatch.diorama.truth import truth
from crossmatch.diorama.world import Diorama
from diorama_checks import assert_same_output_for_every_hash_seed

WORLD = Diorama.make("test")
NUMBER = {f"test-{n:05d}": n for n in range(len(WORLD.scenes))}
FIVES = {name: [c.text for c in WORLD.captions[5 * n : 5 * n + 5]] for name, n in NUMBER.items()}
TASKS = {"bison": DIORAMA_BISON, "bivlc": DIORAMA_BIVLC, "sugarcrepe": DIORAMA_SUGARCREPE}


@pytest.fixture(scope="module")
def trials() -> dict[str, Trials]:
    return {name: task.load() for name, task in TASKS.items()}  # checks the declared counts and categories


def test_trials_do_not_change(trials: dict[str, Trials]) -> None:
    assert {name: data_hash(task_trials) for name, task_trials in trials.items()} == {
        "bison": "6b062737",
        "bivlc": "e6276a5a",
        "sugarcrepe": "728bb403",
    }
    scenes = [(trial.edited.objects, sorted(trial.edited.relations)) for trial in bivlc_edits("test", "default")]
    assert hashlib.sha256(repr(scenes).replace("SceneObject(", "Thing(").encode()).hexdigest()[:8] == "3290a881"


def test_every_category_has_enough_trials(trials: dict[str, Trials]) -> None:
    assert all(len(task_trials.ids) >= 1000 for task_trials in trials.values())
    for name in ("bivlc", "sugarcrepe"):
        counts = Counter(trials[name].categories.tolist())
        assert set(counts) == set(CATEGORIES)
        assert max(counts.values()) <= 1.5 * min(counts.values())
    assert set(trials["bison"].categories.tolist()) == {""}


def test_trials_are_distinct(trials: dict[str, Trials]) -> None:
    for task_trials in trials.values():
        rows = list(zip(map(tuple, task_trials.images.tolist()), map(tuple, task_trials.captions.tolist()), strict=True))
        assert len(set(rows)) == len(set(task_trials.ids.tolist())) == len(rows)
        for table in (task_trials.images, task_trials.captions):
            assert all(len(set(row)) == len(row) for row in table.tolist())


def test_truth_confirms_all_four_cells_of_bivlc(trials: dict[str, Trials]) -> None:
    edits = bivlc_edits("test", "default")
    positives, negatives = [trial.edit.positive.caption for trial in edits], [trial.edit.negative.caption for trial in edits]
    assert trials["bivlc"].captions.tolist() == [[a.text, b.text] for a, b in zip(positives, negatives, strict=True)]
    original, edited = [WORLD.scenes[trial.number] for trial in edits], [trial.edited for trial in edits]
    for scenes, truths in ((original, (True, False)), (edited, (False, True))):
        for captions, expected in zip((positives, negatives), truths, strict=True):
            assert set(np.diag(truth(scenes, captions)).tolist()) == {expected}


def test_truth_confirms_both_cells_of_sugarcrepe(trials: dict[str, Trials]) -> None:
    edits = sugarcrepe_edits("test", "default")
    scenes = [WORLD.scenes[trial.number] for trial in edits]
    for at, expected in enumerate((True, False)):
        captions = [(trial.edit.positive, trial.edit.negative)[at].caption for trial in edits]
        assert trials["sugarcrepe"].captions[:, at].tolist() == [caption.text for caption in captions]
        assert set(np.diag(truth(scenes, captions)).tolist()) == {expected}
    negatives = [trial.edit.negative.caption for trial in edits]
    assert np.diag(truth([trial.edited for trial in edits], negatives)).all()  # the negatives can be true


def test_positive_caption_is_one_of_the_five(trials: dict[str, Trials]) -> None:
    for name, task_trials in trials.items():
        positives = zip(task_trials.images[:, 0], task_trials.captions[:, 0], strict=True)
        levels = Counter(FIVES[image].index(text) for image, text in positives)
        if name != "bison":
            assert min(levels.values()) > 0.03 * len(task_trials.ids)  # not only the long ones


def test_truth_confirms_the_queries_of_bison(trials: dict[str, Trials]) -> None:
    images, captions = trials["bison"].images.tolist(), trials["bison"].captions.tolist()
    for (positive, negative), (query,) in zip(images, captions, strict=True):
        column = 5 * NUMBER[positive] + FIVES[positive].index(query)
        assert WORLD.truth[NUMBER[positive], column]
        assert not WORLD.truth[NUMBER[negative], column]
    assert trials["bison"].references == {name: tuple(five) for name, five in FIVES.items()}


def test_bison_uses_the_nearest_distinguishable_neighbour(trials: dict[str, Trials]) -> None:
    near = nearest_texts([" ".join(five) for five in FIVES.values()], 4)
    first = 0
    for positive, negative in trials["bison"].images.tolist():
        rank = near[NUMBER[positive]].tolist().index(NUMBER[negative])
        skipped = near[NUMBER[positive], :rank]
        assert WORLD.truth[skipped, 5 * NUMBER[positive] : 5 * NUMBER[positive] + 5].all()
        first += rank == 0
    assert first > 0.99 * len(NUMBER)


def test_longest_caption_is_chosen_in_three_of_ten_trials(trials: dict[str, Trials]) -> None:
    assert (trials["bison"].captions == bison(caption="longest").captions).mean() == pytest.approx(0.3, abs=0.03)


def test_caption_options_keep_the_pairs(trials: dict[str, Trials]) -> None:
    for caption in ("random", "longest"):
        variant = DIORAMA_BISON.load(caption=caption)
        assert variant.ids.tolist() == trials["bison"].ids.tolist()
        assert variant.images.tolist() == trials["bison"].images.tolist()
        for (image, _), (query,) in zip(variant.images.tolist(), variant.captions.tolist(), strict=True):
            assert query in FIVES[image]
            if caption == "longest":
                assert len(query.split()) == max(len(text.split()) for text in FIVES[image])
    queries = zip(trials["bison"].images[:, 0], bison(caption="random").captions[:, 0], strict=True)
    levels = Counter(FIVES[image].index(query) for image, query in queries)
    assert min(levels.values()) > 150  # of about 200
    with pytest.raises(UsageError, match="chosen, random, longest"):
        DIORAMA_BISON.load(caption="shortest")


def neighbours_by_definition(texts: list[str]) -> list[list[int]]:
    """All other texts in order of the exact squared cosine."""
    bags = [Counter(text.lower().replace(".", "").replace(",", "").replace(";", "").split()) for text in texts]
    document_counts = Counter(name for bag in bags for name in bag)
    weight = {name: (len(texts) // count).bit_length() - 1 for name, count in document_counts.items()}
    vectors = [{name: count * weight[name] for name, count in bag.items()} for bag in bags]

    def squared_cosine(a: dict[str, int], b: dict[str, int]) -> Fraction:
        dot = sum(value * b.get(name, 0) for name, value in a.items())
        return Fraction(dot * dot, max(1, sum(value * value for value in b.values())))

    return [
        sorted((j for j in range(len(texts)) if j != i), key=lambda j: (-squared_cosine(a, vectors[j]), j))
        for i, a in enumerate(vectors)
    ]


def test_neighbours_equal_the_definition() -> None:
    texts = [" ".join(five) for five in list(FIVES.values())[:60]]
    assert nearest_texts(texts, 5).tolist() == [row[:5] for row in neighbours_by_definition(texts)]
    assert nearest_texts(["a b", "a b", "a b"], 2).tolist() == [[1, 2], [0, 2], [0, 1]]


def test_pictures_are_those_of_the_scenes(trials: dict[str, Trials]) -> None:
    pairs, edits = trials["bivlc"], bivlc_edits("test", "default")
    for category in CATEGORIES:
        at = pairs.categories.tolist().index(category)
        trial, (original, edited) = edits[at], pairs.images[at].tolist()
        assert edited == f"{original}~{category.replace('/', '-')}-0" == trial.name
        assert pairs.open_image(original).tobytes() == WORLD.picture(trial.number).tobytes()
        assert pairs.open_image(edited).tobytes() == draw(trial.edited, "generator").tobytes()
        assert draw(trial.edited).tobytes() != WORLD.picture(trial.number).tobytes()  # the style is not the only difference
    for name in ("bison", "sugarcrepe"):
        first = str(trials[name].images[3, 0])
        assert trials[name].open_image(first).tobytes() == WORLD.picture(NUMBER[first]).tobytes()


def test_edited_scenes_differ(trials: dict[str, Trials]) -> None:
    edits = bivlc_edits("test", "default")
    for trial in edits:
        scene = WORLD.scenes[trial.number]
        assert (trial.edited.setting, trial.edited.seed) == (scene.setting, scene.seed)
        assert trial.edited.objects != scene.objects
        assert len(trial.edited.objects) - len(scene.objects) == trial.edit.category.startswith("add/")
    assert len({trial.edited for trial in edits}) == len(trials["bivlc"].ids)


@pytest.mark.parametrize("split", ["val", "train"])
def test_splits_and_sizes(split: str) -> None:
    for task in TASKS.values():
        task_trials = task.load(split=split, size="tiny")
        assert all(image.startswith(split) for image in task_trials.images.ravel().tolist())
        assert len(task_trials.ids) >= 50
    with pytest.raises(UsageError, match="Unknown diorama size"):
        bivlc(size="huge")
    with pytest.raises(UsageError, match="Unknown diorama split"):
        sugarcrepe("dev")


def test_trials_do_not_depend_on_the_hash_seed() -> None:
    assert_same_output_for_every_hash_seed(
        "from crossmatch.data.loaded_data import data_hash as h\n"
        "from crossmatch.diorama.trials import bison, bivlc, sugarcrepe, bivlc_edits\n"
        "print(*(h(task(size='tiny')) for task in (bison, bivlc, sugarcrepe)))\n"
        "print([(t.edited.objects, sorted(t.edited.relations)) for t in bivlc_edits('test', 'tiny')])"
    )
