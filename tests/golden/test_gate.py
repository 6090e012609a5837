"""Scorers that know nothing get what theory gives them, on every benchmark of trials."""

from __future__ import annotations

import json

import pytest

from crossmatch.benchmarks import BUILT_IN, load_data
from crossmatch.core.trials import Trials
from crossmatch.models.gate import GATE
from crossmatch.report.gate import gate_verdicts
from crossmatch.run import evaluate_gate

REAL = ("bison", "bivlc", "sugarcrepe")
EMBEDDED = ("diorama/bison", "diorama/bivlc", "diorama/sugarcrepe")
ELSEWHERE = {"winoground"}  # no data here; its loader is tested on made-up files


def passes(task, data):
    found = gate_verdicts(evaluate_gate([task], data=[data]))
    assert {v.scorer for v in found} == {scorer.name for scorer in GATE}
    assert [v for v in found if not v.passed] == []
    assert any(v.theory == 0 for v in found)  # where every comparison ties
    return found


@pytest.mark.parametrize("task", EMBEDDED)
def test_on_the_embedded_world(task):
    passes(task, load_data(task))


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("task", REAL)
def test_on_the_real_benchmarks(task):
    passes(task, load_data(task))


@pytest.mark.parametrize(("images", "captions"), [(2, 1), (1, 2), (2, 2), (3, 2), (2, 4)])
def test_on_a_users_own_trials_of_any_shape(tmp_path, images, captions):
    rows = [
        {
            "id": f"t{n}",
            "images": [f"{n}-{i}.jpg" for i in range(images)],
            "captions": [f"text {c} of {n}" for c in range(captions)],
        }
        for n in range(1200)
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = f"trials:{tmp_path / 'own.jsonl'}"
    passes(task, load_data(task))


def test_no_benchmark_of_trials_is_left_out():
    known = {b.name for b in BUILT_IN if {"accuracy", "group"} & set(b.metrics)}
    assert known == {*REAL, *EMBEDDED, *ELSEWHERE}
    assert isinstance(load_data("diorama/bison", size="tiny"), Trials)


def test_captions_that_come_again_raise_no_alarm(tmp_path):
    """Twenty pairs of captions, each with twenty images: for a scorer that sees captions alone they are twenty draws."""
    failed = 0
    for world in range(12):
        rows = [
            {"id": f"t{p}-{n}", "images": [f"{p}-{n}.jpg"], "captions": [f"one {p} of {world}", f"two {p} of {world}"]}
            for p in range(20)
            for n in range(20)
        ]
        (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
        task = f"trials:{tmp_path / 'own.jsonl'}"
        failed += not all(v.passed for v in gate_verdicts(evaluate_gate([task], data=[load_data(task)])))
    assert failed <= 2  # 5 % of twelve, and a margin
