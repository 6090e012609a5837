"""Caption statistics: counts, quantiles, distances and sources."""

import json

import numpy as np
import pytest

from crossmatch.benchmarks import load_benchmark_data
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trials import Trials
from crossmatch.report.analysis.caption_statistics_comparison import (
    compare_statistics,
    describe_data,
    length_quantile,
    statistics_json,
    statistics_table,
    total_variation,
)
from crossmatch.report.tables import format_table
from crossmatch.text.caption_statistics import caption_statistics

TINY = {"size": "tiny"}


def test_statistics_of_trials():
    trials = Trials(["a", "b"], [["1", "2"], ["2", "3"]], [["A dog.", "A cat."], ["A dog.", "Two dogs sit."]], ["", ""])
    caption_set = describe_data("mine", trials)
    assert (caption_set.examples, caption_set.images, caption_set.statistics.captions, caption_set.statistics.unique) == (
        2,
        3,
        4,
        3,
    )


def test_statistics_of_a_collection():
    caption_set = describe_data("world", load_benchmark_data("diorama/retrieval", **TINY))
    assert (caption_set.examples, caption_set.images) == (250, 50)


@pytest.mark.parametrize("q", [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0])
def test_length_quantiles_equal_numpy(q):
    texts = [" ".join(["word"] * n) for n in np.random.default_rng(0).integers(1, 30, 77).tolist()]
    lengths = [len(text.split()) for text in texts]
    assert length_quantile(caption_statistics(texts), q) == np.quantile(lengths, q, method="inverted_cdf")


def test_total_variation_distances():
    assert total_variation({"a": 1.0}, {"b": 1.0}) == 1.0
    assert total_variation({"a": 0.2, "b": 0.8}, {"b": 0.8, "a": 0.2}) == 0.0


def test_a_source_can_be_a_task_references_or_a_file(tmp_path):
    task = compare_statistics("diorama/bison", "diorama/retrieval", **TINY)
    own = compare_statistics("diorama/bison", "references", **TINY)
    assert task.source.statistics == own.source.statistics  # the same captions of the same 50 images
    assert own.source.name == "captions of 50 of its images"
    assert own.benchmark_overlap == 1.0  # every query is one of them
    assert 0 < own.source_overlap < 1
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(load_benchmark_data("diorama/retrieval", **TINY).collection.texts()))
    file = compare_statistics("diorama/bison", str(path), **TINY)
    assert file.source.statistics == own.source.statistics
    assert file.source.images is None
    assert file.length_distance == own.length_distance


def test_a_set_compared_with_itself_has_no_distance():
    comparison = compare_statistics("diorama/bison", "diorama/bison", **TINY)
    assert (
        comparison.source_overlap,
        comparison.benchmark_overlap,
        comparison.length_distance,
        comparison.part_of_speech_distance,
    ) == (1.0, 1.0, 0.0, 0.0)


def test_table_and_json_have_equal_numbers(tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("A dog sits.\nTwo black dogs sit on a couch.\n")
    comparison = compare_statistics("diorama/bison", str(path), **TINY)
    lines = {line.split("  ")[0].strip() or line: line.split() for line in format_table(statistics_table(comparison)).splitlines()}
    content = json.loads(json.dumps(statistics_json(comparison)))
    benchmark, source = content["sets"]
    assert lines["examples"][1:] == [str(benchmark["examples"]), "2"]
    assert lines["unique images"][2:] == [str(benchmark["unique_images"]), "–"]
    assert lines["words per caption"][3:] == [f"{benchmark['mean_length']:.2f}", "5.00"]
    assert source["lengths"] == {"3": 1, "7": 1}
    assert source["vocabulary"] == 9  # a dog sits two black dogs sit on couch
    assert content["compared"]["parts"] == comparison.part_of_speech_distance
    assert sum(benchmark["parts_of_speech"].values()) == pytest.approx(1)
    assert "compared" not in statistics_json(compare_statistics("diorama/bison", **TINY))


def test_missing_sources_are_an_error(tmp_path):
    with pytest.raises(UsageError, match="No file"):
        compare_statistics("diorama/bison", str(tmp_path / "none.txt"), **TINY)
    with pytest.raises(UsageError, match="there is no task 'coco-6k'"):
        compare_statistics("diorama/bison", "coco-6k", **TINY)
    with pytest.raises(CrossmatchError, match="has no captions of its images"):
        compare_statistics("diorama/retrieval", "references", **TINY)
