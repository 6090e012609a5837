"""BiVLC's agreement between annotators: five pairs of people, their kappas and the mean (miranda2024bivlc, app. H.3, tab. 7)."""

from __future__ import annotations

from crossmatch.metrics.answers import Answers
from crossmatch.metrics.cohen import cohen_pairs, mean_kappa

TABLE_7 = (0.66, 0.43, 0.56, 0.43, 0.38)
MEAN = 0.49
# The answers are not published. These tables of 100 items a pair (500 annotations in all) are made up to have the printed kappas:
# how many items no image was good enough for by both people, by the first alone, by the second alone, by neither.
MADE_UP = ((42, 8, 9, 41), (29, 14, 14, 43), (39, 11, 11, 39), (25, 13, 14, 48), (35, 15, 16, 34))


def test_the_printed_kappas_have_the_printed_mean():
    assert round(mean_kappa(TABLE_7), 2) == MEAN


def test_five_surveys_with_the_printed_kappas_have_the_printed_mean():
    said = []
    for pair, counts in enumerate(MADE_UP):
        both = [answers for answers, times in zip(((0, 0), (0, 1), (1, 0), (1, 1)), counts, strict=True) for _ in range(times)]
        said += [(100 * pair + n, 2 * pair + person, answer) for n, two in enumerate(both) for person, answer in enumerate(two)]
    found = cohen_pairs(Answers.of(said))
    assert [(p.first, p.second) for p in found.pairs] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]  # and nobody across surveys
    assert [round(p.kappa.value, 2) for p in found.pairs] == list(TABLE_7)
    assert round(found.mean.value, 2) == MEAN
    assert (found.mean.items, found.mean.people, found.few) == (500, 10, 0)
    assert 0.40 < found.mean.low < 0.42  # so much doubt there is in 500 such annotations
    assert 0.56 < found.mean.high < 0.58
