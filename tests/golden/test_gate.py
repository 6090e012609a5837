"""Gate scorers get their expected values on every benchmark of trials."""

from __future__ import annotations

import json

import pytest

from crossmatch.benchmarks import BUILT_IN, load_benchmark_data
from crossmatch.data.trials import Trials
from crossmatch.evaluation.controls import evaluate_gate
from crossmatch.evaluation.plan import load_task
from crossmatch.models.baselines.gate_scorers import GATE_SCORERS
from crossmatch.report.trust_gate_table import check_gate_results

REAL = ("bison", "bivlc", "sugarcrepe")
EMBEDDED = ("diorama/bison", "diorama/bivlc", "diorama/sugarcrepe")
LARGE = {"bison", "diorama/bivlc", "diorama/sugarcrepe"}
ELSEWHERE = {"winoground"}  # no data here; its loader is tested on made-up files


def passes(task, data):
    checks = check_gate_results(evaluate_gate([load_task(task, data=data)]))
    assert {v.scorer for v in checks} == {scorer.name for scorer in GATE_SCORERS}
    assert [v for v in checks if not v.passed] == []
    assert any(v.expected == 0 for v in checks)  # where every comparison ties
    return checks


def cases(tasks):
    return [pytest.param(task, marks=pytest.mark.slow if task in LARGE else []) for task in tasks]


@pytest.mark.parametrize("task", cases(EMBEDDED))
def test_gate_passes_on_diorama(task):
    passes(task, load_benchmark_data(task))


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("task", cases(REAL))
def test_gate_passes_on_real_benchmarks(task):
    passes(task, load_benchmark_data(task))


@pytest.mark.parametrize(("images", "captions"), [(2, 1), (1, 2), (2, 2), (3, 2), (2, 4)])
def test_gate_passes_on_user_trials_of_any_shape(tmp_path, images, captions):
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
    passes(task, load_benchmark_data(task))


def test_gate_covers_all_trial_benchmarks():
    tested = {b.name for b in BUILT_IN if {"accuracy", "group"} & set(b.metrics)}
    assert tested == {*REAL, *EMBEDDED, *ELSEWHERE}
    assert isinstance(load_benchmark_data("diorama/bison", size="tiny"), Trials)


def test_repeated_captions_pass_the_gate(tmp_path):
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
        failed += not all(v.passed for v in check_gate_results(evaluate_gate([load_task(task)])))
    assert failed <= 2  # 5 % of twelve, and a margin
