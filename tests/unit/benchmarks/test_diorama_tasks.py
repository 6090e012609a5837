"""Diorama as Crisscrossed Captions: positives and sampled pairs."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.benchmarks import load_benchmark_data
from crossmatch.benchmarks.diorama_tasks import RANDOM_PER_QUERY, SIMILAR_PER_QUERY, SIS_POSITIVE, STS_POSITIVE, sample_pairs
from crossmatch.diorama.graded_similarity import caption_similarity, scene_similarity
from crossmatch.diorama.world import Diorama
from crossmatch.evaluation.evaluate import evaluate


@pytest.fixture(scope="module")
def world():
    return Diorama.make("test", size="tiny")


def test_positives_are_the_pairs_above_the_papers_thresholds(world):
    data = load_benchmark_data("diorama/cxc", size="tiny")
    assert data.judgements["sits"].candidate_lists("i2t").count.sum() == world.truth.sum()
    for name, grades, threshold in (("sts", caption_similarity(world.captions, world.captions), STS_POSITIVE),
                                ("sis", scene_similarity(world.scenes, world.scenes), SIS_POSITIVE)):  # fmt: skip
        judgements = data.judgements[name]
        positives = (grades >= threshold).sum() - len(grades)  # each is like itself
        assert len(judgements.rows) == positives
        assert judgements.complete


@pytest.mark.parametrize("task", ["diorama/sts", "diorama/sis", "diorama/sits"])
def test_sampled_pairs_cover_low_and_high_grades_and_are_reproducible(task):
    first, second = (load_benchmark_data(task, size="tiny") for _ in range(2))
    assert np.array_equal(first.judgements.rows, second.judgements.rows)
    assert np.array_equal(first.judgements.columns, second.judgements.columns)
    assert first.judgements.grades.max() > 2.5 > 1 > first.judgements.grades.min()  # few images of a tiny world are as like as 3


def test_no_item_is_paired_with_itself():
    rng = np.random.default_rng(0)
    grades = rng.random((40, 40)).astype(np.float32)
    np.fill_diagonal(grades, 5)
    rows, columns = sample_pairs(grades, True, 0)
    assert (rows != columns).all()
    assert np.bincount(rows).max() <= SIMILAR_PER_QUERY + RANDOM_PER_QUERY
    rows, columns = sample_pairs(grades, False, 0)
    assert (np.bincount(rows) == SIMILAR_PER_QUERY + RANDOM_PER_QUERY).all()


def test_text_model_runs_sts():
    result = evaluate("tfidf", "diorama/sts", size="tiny", samples=50)
    assert result["bootstrap-spearman"].value > 30
