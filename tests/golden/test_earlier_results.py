"""Result files of version 0.1 still load, and today's code computes the same numbers."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from crossmatch import Benchmark, Diorama, Judgements, Retrieval, evaluate, load_result, load_results, save_result
from crossmatch.data.plausible_matches import PlausibleMatches

FOLDER = Path(__file__).parent / "results_of_version_0.1"
PROTOCOL = re.compile(r".*?(?=\|(?:bootstrap|seed|interval):)")  # a signature up to the facts about intervals
FILES = sorted(path.relative_to(FOLDER) for path in FOLDER.rglob("*.json"))


def test_all_earlier_results_load_together():
    results = load_results([FOLDER])
    assert len(results) == len(FILES) == 4
    assert all(result.rows and result.parts for result in results)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_evaluation_gives_the_same_numbers(file):
    earlier = load_result(FOLDER / file)
    now = evaluate(earlier.model, earlier.task, size="tiny")
    assert [row.key for row in now.rows] == [row.key for row in earlier.rows]
    for row, before in zip(now.rows, earlier.rows, strict=True):
        assert (row.value, row.std, row.chance, row.ties, row.unjudged, row.n) == (
            before.value, before.std, before.chance, before.ties, before.unjudged, before.n,
        )  # fmt: skip
        assert row.low <= row.value <= row.high
        # Intervals are computed differently since, and the last facts of a signature say how.
        assert PROTOCOL.match(row.signature)[0] == PROTOCOL.match(before.signature)[0]


def load_scenes():
    collection = Diorama.make("test", size="tiny").collection
    labels = np.random.default_rng(0).random((50, 4)) < 0.5
    matches = PlausibleMatches.from_labels(collection, "labels", labels)
    return Retrieval(collection, {"links": Judgements.from_links(collection), "labels": matches})


SCENES = Benchmark("scenes", "links and plausible matches", load_scenes, ("hit@1", "pmrp", "pmrp@50"))


@pytest.mark.parametrize(
    "task", [SCENES, "diorama/sits+size=tiny", "diorama/sugarcrepe+size=tiny"], ids=["plausible", "similarity", "trials"]
)
def test_format_2_loads_as_format_3(task, tmp_path):
    """Format 2 has no kind of evidence, direction or judgements; they follow from the names of arrays and parts."""
    path = save_result(evaluate("random", task, samples=10), tmp_path)
    expected, header = load_result(path), json.loads(path.read_text())
    assert header["format"] == 3
    for entry in (*header["parts"].values(), *header["rows"]):
        for key in ("kind", "direction", "judgements"):
            entry.pop(key, None)
    path.write_text(json.dumps(header | {"format": 2}))
    loaded = load_result(path)
    assert loaded.rows == expected.rows
    assert {name: (type(part.evidence), part.direction, part.judgements) for name, part in loaded.parts.items()} == {
        name: (type(part.evidence), part.direction, part.judgements) for name, part in expected.parts.items()
    }
