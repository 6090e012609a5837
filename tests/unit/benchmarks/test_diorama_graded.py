"""The embedded world as Crisscrossed Captions: what counts as alike, and which pairs are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.benchmarks import load_data
from crossmatch.benchmarks.diorama_graded import ANY, LIKE, SIS, STS, drawn
from crossmatch.diorama.similarity import caption_similarity, scene_similarity
from crossmatch.diorama.world import Diorama
from crossmatch.run import evaluate


@pytest.fixture(scope="module")
def world():
    return Diorama.make("test", size="tiny")


def test_positives_are_the_pairs_above_the_papers_thresholds(world):
    data = load_data("diorama/cxc", size="tiny")
    assert data.judgements["sits"].listed("i2t").count.sum() == world.truth.sum()
    for name, grades, least in (("sts", caption_similarity(world.captions, world.captions), STS),
                                ("sis", scene_similarity(world.scenes, world.scenes), SIS)):  # fmt: skip
        said = data.judgements[name]
        alike = (grades >= least).sum() - len(grades)  # each is like itself
        assert len(said.rows) == alike
        assert said.complete


@pytest.mark.parametrize("task", ["diorama/sts", "diorama/sis", "diorama/sits"])
def test_every_query_has_like_and_unlike_items_and_the_pairs_are_the_same_each_time(task):
    first, second = (load_data(task, size="tiny") for _ in range(2))
    assert np.array_equal(first.said.rows, second.said.rows)
    assert np.array_equal(first.said.columns, second.said.columns)
    assert first.said.grades.max() > 2.5 > 1 > first.said.grades.min()  # few images of a tiny world are as like as 3


def test_no_item_is_paired_with_itself():
    rng = np.random.default_rng(0)
    grades = rng.random((40, 40)).astype(np.float32)
    np.fill_diagonal(grades, 5)
    rows, columns = drawn(grades, True, 0)
    assert (rows != columns).all()
    assert np.bincount(rows).max() <= LIKE + ANY
    rows, columns = drawn(grades, False, 0)
    assert (np.bincount(rows) == LIKE + ANY).all()


def test_a_text_model_is_asked_for_texts_alone():
    found = evaluate("tfidf", "diorama/sts", size="tiny", samples=50)
    assert found["bootstrap-spearman"].value > 30
