"""Result files of version 0.1 still load, and today's code computes the same numbers."""

from pathlib import Path

import pytest

from crossmatch import evaluate, load_result, load_results

FOLDER = Path(__file__).parent / "results_of_version_0.1"
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
        assert (row.value, row.low, row.high, row.chance, row.ties, row.unjudged, row.n) == (
            before.value, before.low, before.high, before.chance, before.ties, before.unjudged, before.n,
        )  # fmt: skip
        assert row.signature == before.signature
