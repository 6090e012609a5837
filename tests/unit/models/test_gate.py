"""The scorers of the trust gate land where theory says, on trials of every shape, and a leak is caught."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.core import outcomes
from crossmatch.core.errors import WrongWords
from crossmatch.core.presented import presented, uniform
from crossmatch.core.trials import Trials
from crossmatch.metrics.choice import accuracy, group_choice, i2t_choice, t2i_choice
from crossmatch.metrics.theory import SCORERS, Finding, verdicts
from crossmatch.models import pair_cache
from crossmatch.models.abilities import trial_scores_of
from crossmatch.models.gate import GATE, gate_scorer

CHOICES = {"i2t": i2t_choice, "t2i": t2i_choice, "group": group_choice}
SHAPES = [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (5, 1)]  # captions x images: BISON, SugarCrepe, BiVLC, and others


def trials_of(shape: tuple[int, int], n: int = 4_000) -> Trials:
    c, i = shape
    images = [[f"image {t}-{k}" for k in range(i)] for t in range(n)]
    captions = [[f"caption {t}-{k}" for k in range(c)] for t in range(n)]
    return Trials([f"trial {t}" for t in range(n)], images, captions, [""] * n)


def said_by(scorer, trials: Trials) -> np.ndarray:
    """The scores, asked as those of any model are."""
    return trial_scores_of(scorer, trials)


def findings(trials: Trials, seed: int = 0) -> list[Finding]:
    return [
        Finding(scorer.name, name, choice, trials.shape, float(choice(said).mean()), len(trials.ids))
        for scorer in GATE
        for said in [said_by(gate_scorer(f"{scorer.name}:{seed}"), trials)]
        for name, choice in CHOICES.items()
    ]


def test_theory_knows_every_scorer_of_the_gate_and_no_other():
    assert [scorer.name for scorer in GATE] == list(SCORERS)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_scorer_lands_where_theory_says(shape):
    failed = [verdict for verdict in verdicts(findings(trials_of(shape))) if not verdict.passed]
    assert not failed


def test_the_values_are_spread_as_the_interval_says():
    """Over 200 seeds, a check at 5 % fails about ten times: neither never nor always."""
    trials = trials_of((2, 2), 200)
    checks = [
        verdicts([f])[0] for seed in range(200) for f in findings(trials, seed) if (f.scorer, f.metric) == ("random", "group")
    ]
    assert 1 <= sum(not check.passed for check in checks) <= 22


def test_an_order_that_tells_the_answer_is_caught(monkeypatch):
    """Were trials shown in the order of the file, the one who prefers what it sees first would always be right."""
    monkeypatch.setattr(
        pair_cache, "presented", lambda trials: tuple(np.tile(np.arange(n), (len(trials.ids), 1)) for n in trials.shape[::-1])
    )
    failed = {(v.scorer, v.metric) for v in verdicts(findings(trials_of((1, 2)))) if not v.passed}
    assert failed == {("position-biased", "t2i"), ("position-biased", "group")}


def test_ties_that_win_are_caught(monkeypatch):
    monkeypatch.setattr(outcomes, "_coded", lambda scores, shape: np.full(len(scores), 0b1111, dtype=np.uint8))
    failed = {v.scorer for v in verdicts(findings(trials_of((2, 2), 400))) if not v.passed}
    assert "constant" in failed


def test_what_each_scorer_is_blind_to():
    trials = trials_of((3, 3), 50)
    said = {scorer.name: said_by(scorer, trials) for scorer in GATE}
    assert (said["constant"] == 0).all()
    assert (said["text-blind"] == said["text-blind"][:, :1, :]).all()
    assert (said["image-blind"] == said["image-blind"][:, :, :1]).all()
    assert len(np.unique(said["random"])) == said["random"].size
    images, captions = presented(trials)
    first = np.arange(50)
    assert (said["position-biased"].argmax(axis=2) == images[:, :1]).all()
    assert (said["position-biased"].argmax(axis=1) == captions[:, :1]).all()
    assert (said["position-biased"][first, captions[:, 2], images[:, 2]] == said["position-biased"].min(axis=(1, 2))).all()


def test_random_scores_never_tie():
    assert not outcomes.Outcomes.of(said_by(gate_scorer("random"), trials_of((2, 2), 20_000))).tied.any()


def test_an_image_has_one_score_in_all_trials_and_under_every_seed_another():
    one = Trials(["a", "b"], [["x", "y"], ["z", "x"]], [["c"], ["d"]], ["", ""])
    said = said_by(gate_scorer("text-blind"), one)
    assert said[0, 0, 0] == said[1, 0, 1]
    assert said[0, 0, 0] != said_by(gate_scorer("text-blind:1"), one)[0, 0, 0]


@pytest.mark.parametrize("scorer", GATE, ids=lambda scorer: scorer.name)
def test_nothing_depends_on_where_a_trial_stands(scorer):
    trials = trials_of((2, 3), 60)
    which = np.random.default_rng(0).permutation(60)[:20]
    assert (said_by(scorer, trials.chosen(which)) == said_by(scorer, trials)[which]).all()


def test_every_order_is_presented_equally_often_and_the_sides_apart():
    trials = trials_of((2, 3), 12_000)
    images, captions = presented(trials)
    _, times = np.unique(np.concatenate([images, captions], axis=1), axis=0, return_counts=True)
    assert len(times) == 12
    assert np.abs(times - 1_000).max() < 4.5 * np.sqrt(1_000 * 11 / 12)
    assert (presented(trials, seed=1)[0] != images).any()


def test_uniform_numbers_are_uniform_and_alike_everywhere():
    drawn = uniform([f"{n}" for n in range(4_000)], 2, "test")
    assert np.abs(np.histogram(drawn, bins=8, range=(0, 1))[0] - 1_000).max() < 150
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.06
    assert uniform(["a"], 1, "test")[0, 0] == 0.5172841735845455  # a change would present every trial in another order


def test_names_and_signatures():
    assert len({scorer.signature for scorer in GATE}) == len(GATE) == 5
    assert accuracy(said_by(gate_scorer("constant"), trials_of((1, 2), 3))).sum() == 0
    for wrong in ("", "clever", "random:x"):
        with pytest.raises(WrongWords, match="there are gate:constant"):
            gate_scorer(wrong)
