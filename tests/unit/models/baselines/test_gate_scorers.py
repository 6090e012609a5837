"""Gate scorers get the values of the theory on trials of every shape, and leaks are detected."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.data import trial_outcomes
from crossmatch.data.errors import UsageError
from crossmatch.data.hashed_random_numbers import draw_presentation_order, hash_uniform
from crossmatch.data.trials import Trials
from crossmatch.evaluation.model_scores import get_trial_scores
from crossmatch.metrics.forced_choice import accuracy, group_choice, i2t_choice, t2i_choice
from crossmatch.metrics.forced_choice_chance import SCORERS, GateResult, check_gate
from crossmatch.models import trial_scoring
from crossmatch.models.baselines.gate_scorers import GATE_SCORERS, make_gate_scorer

CHOICES = {"i2t": i2t_choice, "t2i": t2i_choice, "group": group_choice}
SHAPES = [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (5, 1)]  # captions x images: BISON, SugarCrepe, BiVLC, and others


def trials_of(shape: tuple[int, int], n: int = 4_000) -> Trials:
    c, i = shape
    images = [[f"image {t}-{k}" for k in range(i)] for t in range(n)]
    captions = [[f"caption {t}-{k}" for k in range(c)] for t in range(n)]
    return Trials([f"trial {t}" for t in range(n)], images, captions, [""] * n)


def scores_of(scorer, trials: Trials) -> np.ndarray:
    """Return the scores as the evaluation computes them."""
    return get_trial_scores(scorer, trials)


def gate_results(trials: Trials, seed: int = 0) -> list[GateResult]:
    return [
        GateResult(scorer.name, name, choice, trials.shape, float(choice(scores).mean()), len(trials.ids))
        for scorer in GATE_SCORERS
        for scores in [scores_of(make_gate_scorer(f"{scorer.name}:{seed}"), trials)]
        for name, choice in CHOICES.items()
    ]


def test_theory_covers_exactly_the_gate_scorers():
    assert [scorer.name for scorer in GATE_SCORERS] == list(SCORERS)


@pytest.mark.parametrize("shape", SHAPES)
def test_scorers_get_the_value_of_the_theory(shape):
    failed = [verdict for verdict in check_gate(gate_results(trials_of(shape))) if not verdict.passed]
    assert not failed


@pytest.mark.slow
def test_confidence_interval_has_its_coverage():
    """Of 200 seeds, about ten fail a check at 5 %."""
    trials = trials_of((2, 2), 200)
    checks = [
        check_gate([f])[0] for seed in range(200) for f in gate_results(trials, seed) if (f.scorer, f.metric) == ("random", "group")
    ]
    assert 1 <= sum(not check.passed for check in checks) <= 22


def test_revealing_order_is_detected(monkeypatch):
    """If trials were presented in the order of the file, a position-biased scorer would always be right."""
    monkeypatch.setattr(
        trial_scoring,
        "draw_presentation_order",
        lambda trials: tuple(np.tile(np.arange(n), (len(trials.ids), 1)) for n in trials.shape[::-1]),
    )
    failed = {(v.scorer, v.metric) for v in check_gate(gate_results(trials_of((1, 2)))) if not v.passed}
    assert failed == {("position-biased", "t2i"), ("position-biased", "group")}


def test_winning_ties_are_detected(monkeypatch):
    monkeypatch.setattr(trial_outcomes, "_encode", lambda scores, shape: np.full(len(scores), 0b1111, dtype=np.uint8))
    failed = {v.scorer for v in check_gate(gate_results(trials_of((2, 2), 400))) if not v.passed}
    assert "constant" in failed


def test_scorers_ignore_what_they_should():
    trials = trials_of((3, 3), 50)
    scores = {scorer.name: scores_of(scorer, trials) for scorer in GATE_SCORERS}
    assert (scores["constant"] == 0).all()
    assert (scores["text-blind"] == scores["text-blind"][:, :1, :]).all()
    assert (scores["image-blind"] == scores["image-blind"][:, :, :1]).all()
    assert len(np.unique(scores["random"])) == scores["random"].size
    images, captions = draw_presentation_order(trials)
    first = np.arange(50)
    assert (scores["position-biased"].argmax(axis=2) == images[:, :1]).all()
    assert (scores["position-biased"].argmax(axis=1) == captions[:, :1]).all()
    assert (scores["position-biased"][first, captions[:, 2], images[:, 2]] == scores["position-biased"].min(axis=(1, 2))).all()


def test_random_scores_do_not_tie():
    assert not trial_outcomes.Outcomes.from_scores(scores_of(make_gate_scorer("random"), trials_of((2, 2), 20_000))).is_tied.any()


def test_score_of_an_image_depends_on_the_seed_only():
    trials = Trials(["a", "b"], [["x", "y"], ["z", "x"]], [["c"], ["d"]], ["", ""])
    scores = scores_of(make_gate_scorer("text-blind"), trials)
    assert scores[0, 0, 0] == scores[1, 0, 1]
    assert scores[0, 0, 0] != scores_of(make_gate_scorer("text-blind:1"), trials)[0, 0, 0]


@pytest.mark.parametrize("scorer", GATE_SCORERS, ids=lambda scorer: scorer.name)
def test_scores_do_not_depend_on_the_position_of_a_trial(scorer):
    trials = trials_of((2, 3), 60)
    which = np.random.default_rng(0).permutation(60)[:20]
    assert (scores_of(scorer, trials.select(which)) == scores_of(scorer, trials)[which]).all()


def test_presentation_orders_are_uniform_and_independent():
    trials = trials_of((2, 3), 12_000)
    images, captions = draw_presentation_order(trials)
    _, times = np.unique(np.concatenate([images, captions], axis=1), axis=0, return_counts=True)
    assert len(times) == 12
    assert np.abs(times - 1_000).max() < 4.5 * np.sqrt(1_000 * 11 / 12)
    assert (draw_presentation_order(trials, seed=1)[0] != images).any()


def test_hashed_numbers_are_uniform_and_fixed():
    drawn = hash_uniform([f"{n}" for n in range(4_000)], 2, "test")
    assert np.abs(np.histogram(drawn, bins=8, range=(0, 1))[0] - 1_000).max() < 150
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.06
    assert hash_uniform(["a"], 1, "test")[0, 0] == 0.5172841735845455  # a change would present every trial in another order


def test_names_and_signatures():
    assert len({scorer.signature for scorer in GATE_SCORERS}) == len(GATE_SCORERS) == 5
    assert accuracy(scores_of(make_gate_scorer("constant"), trials_of((1, 2), 3))).sum() == 0
    for wrong in ("", "clever", "random:x"):
        with pytest.raises(UsageError, match="one of gate:constant"):
            make_gate_scorer(wrong)
