"""A new metric of trials is a function and a row in the table, as docs/architecture.md says."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch import evaluate
from crossmatch.data.name_lookup import Catalog
from crossmatch.metrics import metric_table
from crossmatch.metrics.forced_choice import ipos2t, tpos2i
from crossmatch.metrics.metric_table import METRICS, Metric
from crossmatch.report.analysis.scores_by_trial_outcome import margins
from crossmatch.report.trust_gate_table import check_gate_results


def positive_pair(trials):
    """1 if the positive image and the positive caption choose each other."""
    return ipos2t(trials) * tpos2i(trials)


def any_positive(trials):
    """1 if the positive image or the positive caption chooses right; no conjunction of choices."""
    return np.maximum(ipos2t(trials), tpos2i(trials))


@pytest.mark.parametrize(("function", "chance"), [(positive_pair, 1 / 3), (any_positive, 2 / 3)])
def test_new_trial_metric_is_a_function_and_a_row(monkeypatch, function, chance):
    row = Metric("new", "a new metric", "trials", function, 1.0, "a test", label="new")
    monkeypatch.setattr(metric_table, "METRICS", Catalog("metric", {**METRICS, row.name: row}))
    result = evaluate("random", "diorama/bivlc", size="tiny", metrics=("new",), name="gate:random")
    outcomes = result.parts[""].evidence
    assert result["new"].value == pytest.approx(100 * function(outcomes).mean())
    assert result["new"].chance == pytest.approx(100 * chance)
    assert result["new"].low < result["new"].value < result["new"].high
    (check,) = check_gate_results([result])
    assert check.passed
    assert check.expected == pytest.approx(chance)


def test_margin_of_a_new_metric_is_that_of_its_choices(monkeypatch):
    row = Metric("new", "a new metric", "trials", positive_pair, 1.0, "a test")
    monkeypatch.setattr(metric_table, "METRICS", Catalog("metric", {**METRICS, row.name: row}))
    outcomes = evaluate("random", "diorama/bivlc", size="tiny", samples=2).parts[""].evidence
    assert ((margins(outcomes, "new") > 0) == (positive_pair(outcomes) > 0)).all()
