"""Figures that are there when a page asks for them: nothing is measured twice, and nobody waits long."""

from threading import Event

import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment import claims
from crossmatch.study.assignment import review as verdicts
from crossmatch.study.results import statistics_cache
from crossmatch.study.results.annotator_agreement import measure_agreement
from crossmatch.study.results.statistics_cache import StatisticsCache
from polling import LIMIT, wait_until
from study_lab import add_annotator, add_small_study, submit_hit


def test_nothing_is_measured_again_while_nothing_has_changed(small, monkeypatch):
    study_id = add_small_study(small, "recipe.people=2")
    who = add_annotator(small, study_id)
    calls = []
    monkeypatch.setattr(statistics_cache, "measure_agreement", lambda *told: calls.append(told) or measure_agreement(*told))
    tallies = StatisticsCache(max_wait=60)
    first = tallies.view(small, study_id)
    assert first.is_new
    assert tallies.view(small, study_id).agreement is first.agreement
    claims.claim_hit(small, study_id, who)
    assert tallies.view(small, study_id).figures is first.figures
    assert len(calls) == 1
    made = submit_hit(small, study_id, who)
    second = tallies.view(small, study_id)
    assert second.is_new
    assert second.figures.annotators[0].counted == 3
    assert len(calls) == 2
    verdicts.review(small, made, None, "reject")
    assert tallies.view(small, study_id).figures.annotators[0].counted == 0


def test_what_takes_long_is_not_measured_for_every_page(small, monkeypatch):
    study_id = add_small_study(small, "recipe.people=2")
    who = add_annotator(small, study_id)
    monkeypatch.setattr(statistics_cache, "SHORT_S", 0.0)
    monkeypatch.setattr(statistics_cache, "PAUSE_FACTOR", 1e9)
    tallies = StatisticsCache(max_wait=60)
    first = tallies.view(small, study_id)
    submit_hit(small, study_id, who)
    second = tallies.view(small, study_id)
    assert second.agreement is first.agreement
    assert not second.is_new
    assert second.figures.annotators[0].answers == 3  # but this is new


def test_a_page_does_not_wait_for_what_takes_long(small, monkeypatch):
    study_id = add_small_study(small, "recipe.people=2")
    goes_on = Event()
    monkeypatch.setattr(statistics_cache, "measure_agreement", lambda *told: goes_on.wait(LIMIT) and measure_agreement(*told))
    found = StatisticsCache(max_wait=0.0)
    assert found.view(small, study_id).agreement is None
    goes_on.set()
    wait_until(lambda: found.view(small, study_id).agreement is not None)
    assert found.view(small, study_id).is_new


def test_what_goes_wrong_behind_a_page_goes_wrong_on_it(small, monkeypatch):
    study_id = add_small_study(small, "recipe.people=2")

    def broken(*_):
        raise CrossmatchError("broken")

    monkeypatch.setattr(statistics_cache, "measure_agreement", broken)
    with pytest.raises(CrossmatchError, match="broken"):
        StatisticsCache(max_wait=60).view(small, study_id)
