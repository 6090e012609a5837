"""BiVLC's agreement between annotators: five pairs of people, their kappas and the mean (miranda2024bivlc, app. H.3, tab. 7)."""

from __future__ import annotations

from crossmatch.metrics.agreement.answer_arrays import Answers
from crossmatch.metrics.agreement.cohen_kappa import mean_kappa, pairwise_cohen_kappa

TABLE_7 = (0.66, 0.43, 0.56, 0.43, 0.38)
MEAN = 0.49
# The answers are not published. These tables of 100 items a pair (500 annotations in all) are made up to have the printed kappas:
# how many items no image was good enough for by both people, by the first alone, by the second alone, by neither.
MADE_UP = ((42, 8, 9, 41), (29, 14, 14, 43), (39, 11, 11, 39), (25, 13, 14, 48), (35, 15, 16, 34))


def test_published_kappas_have_the_published_mean():
    assert round(mean_kappa(TABLE_7), 2) == MEAN


def test_five_surveys_with_published_kappas_have_the_published_mean():
    answers_of_pairs = []
    for pair, counts in enumerate(MADE_UP):
        answers_of_two = [
            answers for answers, times in zip(((0, 0), (0, 1), (1, 0), (1, 1)), counts, strict=True) for _ in range(times)
        ]
        answers_of_pairs += [
            (100 * pair + n, 2 * pair + person, answer) for n, two in enumerate(answers_of_two) for person, answer in enumerate(two)
        ]
    kappas = pairwise_cohen_kappa(Answers.from_triples(answers_of_pairs))
    assert [(p.first, p.second) for p in kappas.pairs] == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]  # and nobody across surveys
    assert [round(p.kappa.value, 2) for p in kappas.pairs] == list(TABLE_7)
    assert round(kappas.mean.value, 2) == MEAN
    assert (kappas.mean.items, kappas.mean.people, kappas.skipped_pairs) == (500, 10, 0)
    assert 0.40 < kappas.mean.low < 0.42  # so much doubt there is in 500 such annotations
    assert 0.56 < kappas.mean.high < 0.58
