"""Items that are kept between requests: the same ones, and not more than so many."""

import pytest

from crossmatch.study import shown
from crossmatch.study.assign import claim_and_load, submit
from crossmatch.study.shown import Kept
from study_lab import a_study, answers_to, hit_of, someone


def test_the_oldest_are_dropped_when_there_are_too_many_items(monkeypatch):
    monkeypatch.setattr(Kept, "MOST", 10)
    kept = Kept()
    for hit in range(5):
        kept.keep(hit, [hit] * 3)
    assert list(kept.items) == [2, 3, 4]
    kept.keep(4, ["another"])
    assert kept.items[4] == [4] * 3
    kept.keep(9, [0] * 11)  # what would fill it all is not kept
    assert list(kept.items) == [2, 3, 4]
    kept.keep(7, [7] * 10)
    assert list(kept.items) == [7]


@pytest.mark.parametrize("most", [0, 4, 10_000])
def test_what_is_shown_does_not_depend_on_what_is_kept(campaign, monkeypatch, most):
    monkeypatch.setattr(Kept, "MOST", most)
    study = a_study(campaign, "recipe.people=2", items=9)
    for who in [someone(campaign, study) for _ in range(2)]:
        for _ in range(3):
            held = claim_and_load(campaign, study, who)
            again = hit_of(campaign, held.claim, who)
            shown._ITEMS.pop(campaign.engine, None)
            assert held == again == hit_of(campaign, held.claim, who)
            submit(campaign, held.claim, who, answers_to(held))
    assert len(shown._ITEMS[campaign.engine].items) <= most


def test_items_of_a_hit_are_read_once(campaign, monkeypatch):
    study = a_study(campaign, "recipe.people=3", items=3)
    people, read, real = [someone(campaign, study) for _ in range(3)], [], Kept.keep
    monkeypatch.setattr(Kept, "keep", lambda self, hit, rows: (read.append(hit), real(self, hit, rows)))
    for who in people:
        held = claim_and_load(campaign, study, who)
        submit(campaign, held.claim, who, answers_to(held))
    assert len(read) == 1
