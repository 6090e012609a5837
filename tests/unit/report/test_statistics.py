"""What captions are like: counts, quantiles, distances, and where the source comes from."""

import json

import numpy as np
import pytest

from crossmatch.benchmarks import load_data
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials
from crossmatch.language.statistics import caption_statistics
from crossmatch.report.statistics import (
    as_json,
    compare_statistics,
    described,
    distance,
    length_quantile,
    statistics_table,
)
from crossmatch.report.tables import as_text

TINY = {"size": "tiny"}


def test_trials_are_counted_by_trial_and_their_images_and_captions_once():
    two = Trials(["a", "b"], [["1", "2"], ["2", "3"]], [["A dog.", "A cat."], ["A dog.", "Two dogs sit."]], ["", ""])
    found = described("mine", two)
    assert (found.examples, found.images, found.texts.captions, found.texts.unique) == (2, 3, 4, 3)


def test_a_collection_is_counted_by_caption():
    found = described("world", load_data("diorama/retrieval", **TINY))
    assert (found.examples, found.images) == (250, 50)


@pytest.mark.parametrize("q", [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0])
def test_quantiles_are_those_of_the_lengths(q):
    texts = [" ".join(["word"] * n) for n in np.random.default_rng(0).integers(1, 30, 77).tolist()]
    lengths = [len(text.split()) for text in texts]
    assert length_quantile(caption_statistics(texts), q) == np.quantile(lengths, q, method="inverted_cdf")


def test_distances():
    assert distance({"a": 1.0}, {"b": 1.0}) == 1.0
    assert distance({"a": 0.2, "b": 0.8}, {"b": 0.8, "a": 0.2}) == 0.0


def test_a_source_can_be_a_task_references_or_a_file(tmp_path):
    task = compare_statistics("diorama/bison", "diorama/retrieval", **TINY)
    own = compare_statistics("diorama/bison", "references", **TINY)
    assert task.source.texts == own.source.texts  # the same captions of the same 50 images
    assert own.source.name == "captions of 50 of its images"
    assert own.known == 1.0  # every query is one of them
    assert 0 < own.reused < 1
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(load_data("diorama/retrieval", **TINY).collection.texts()))
    file = compare_statistics("diorama/bison", str(path), **TINY)
    assert file.source.texts == own.source.texts
    assert file.source.images is None
    assert file.lengths == own.lengths


def test_a_set_compared_with_itself_has_no_distance():
    found = compare_statistics("diorama/bison", "diorama/bison", **TINY)
    assert (found.reused, found.known, found.lengths, found.parts) == (1.0, 1.0, 0.0, 0.0)


def test_the_table_and_the_json_say_the_same(tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("A dog sits.\nTwo black dogs sit on a couch.\n")
    found = compare_statistics("diorama/bison", str(path), **TINY)
    lines = {line.split("  ")[0].strip() or line: line.split() for line in as_text(statistics_table(found)).splitlines()}
    held = json.loads(json.dumps(as_json(found)))
    mine, other = held["sets"]
    assert lines["examples"][1:] == [str(mine["examples"]), "2"]
    assert lines["unique images"][2:] == [str(mine["unique_images"]), "–"]
    assert lines["words per caption"][3:] == [f"{mine['mean_length']:.2f}", "5.00"]
    assert other["lengths"] == {"3": 1, "7": 1}
    assert other["vocabulary"] == 9  # a dog sits two black dogs sit on couch
    assert held["compared"]["parts"] == found.parts
    assert sum(mine["parts_of_speech"].values()) == pytest.approx(1)
    assert "compared" not in as_json(compare_statistics("diorama/bison", **TINY))


def test_sources_that_are_not_there(tmp_path):
    with pytest.raises(WrongWords, match="there is no file"):
        compare_statistics("diorama/bison", str(tmp_path / "none.txt"), **TINY)
    with pytest.raises(WrongWords, match="there is no task 'coco-6k'"):
        compare_statistics("diorama/bison", "coco-6k", **TINY)
    with pytest.raises(CrossmatchError, match="knows no captions of its images"):
        compare_statistics("diorama/retrieval", "references", **TINY)
