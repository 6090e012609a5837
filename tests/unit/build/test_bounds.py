"""The pairs that could change the order of models: against every labelling of a small pool, and judged to the end."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.build.bounds import (
    Bounding,
    Contest,
    bounded,
    by_bounds,
    by_depth,
    by_lot,
    intervals,
    judged_until_certain,
    posed,
)
from crossmatch.build.files import ROWS, read_rows
from crossmatch.build.pool import pool, read_pairs
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.ranks import rank
from crossmatch.core.scores import Matrix, Run
from crossmatch.metrics.bounds import UNJUDGED
from crossmatch.metrics.table import metric


class Saved:
    """A model that has its scores ready."""

    def __init__(self, said, signature: str) -> None:
        self.said, self.signature = said, signature

    def scores(self, data):
        return self.said


def world(images=4, captions=2, models=2, seed=0, levels=None):
    """A collection, scores of models as matrices, and a truth that holds the links."""
    rng = np.random.default_rng(seed)
    held = Collection.of({f"i{n}": [f"text {n} {k}" for k in range(captions)] for n in range(images)})
    drawn = [rng.integers(0, levels, held.shape) if levels else rng.random(held.shape) for _ in range(models)]
    said = {f"m{n}": Matrix(held.image_ids, held.caption_ids, values.astype(float)) for n, values in enumerate(drawn)}
    truth = rng.random(held.shape) < 0.4
    truth[tuple(held.links.T)] = True
    return held, said, truth


def matches(truth):
    """An oracle for t2i: queries are captions."""
    return lambda query, item: truth[item, query]


def by_all_labellings(held, said, judged, how):
    """The bounds of each difference of means, from every way to label what was retrieved."""
    known = np.zeros(held.shape)
    known[judged.rows, judged.columns] = judged.grades
    free = set()
    for scores in said.values():
        for c in range(held.shape[1]):
            values = scores.values[:, c]
            cut = np.sort(values)[::-1][min(how.depth or len(values), len(values)) - 1]
            free |= {(int(i), c) for i in np.flatnonzero(values >= cut)}
    free = sorted(free - set(zip(judged.rows.tolist(), judged.columns.tolist(), strict=True)))
    found = []
    for ways in product((0, 1), repeat=len(free)):
        relevant = known.copy()
        relevant[tuple(np.array(free).T)] = ways
        found.append([metric(how.metric).values(rank(s.values.T, relevant.T)).mean() for s in said.values()])
    return np.array(found)


@pytest.mark.parametrize("name", ["map@r", "hit@1", "recall@2"])
@given(st.integers(0, 99), st.sampled_from([None, 3]), st.sampled_from([1, None]))
@settings(max_examples=6, deadline=None)
def test_bounds_and_lists_against_every_labelling(name, seed, levels, depth):
    held, said, _ = world(images=3, captions=1, seed=seed, levels=levels)
    judged, how = Judgements.from_links(held), Bounding(name, "t2i", depth)
    contest = Contest(posed(held, judged, said, how))
    found = by_all_labellings(held, said, judged, how)
    gap = found[:, 0] - found[:, 1]
    assert contest.gap(("m0", "m1")) == pytest.approx((gap.min(), gap.max()), abs=1e-12)
    for n, within in enumerate(intervals(contest).values()):
        assert within == pytest.approx((found[:, n].min(), found[:, n].max()), abs=1e-12)
    assert contest.undecided == ((("m0", "m1"),) if gap.min() < -1e-12 and gap.max() > 1e-12 else ())


@pytest.mark.parametrize("choose", ["bounds", "depth", "lot"])
@pytest.mark.parametrize("name", ["map@r", "hit@1"])
def test_judging_ends_with_the_order_of_the_closed_pool(choose, name):
    held, said, truth = world(images=12, captions=2, models=3, seed=4)
    question = posed(held, Judgements.from_links(held), said, Bounding(name, "t2i", 4))
    chooser = {"bounds": by_bounds, "depth": by_depth(question), "lot": by_lot(question)}[choose]
    states = list(judged_until_certain(question, matches(truth), chooser, batch=5))
    pooled = np.zeros(held.shape, dtype=bool)
    for q, c in enumerate(question.query):
        pooled[question.item[q][question.item[q] >= 0], c] = True
    closed = Judgements.from_matrix("closed", truth & pooled)
    means = Contest(posed(held, closed, said, Bounding(name, "t2i", 4))).means
    assert states[-1].undecided == ()
    assert [s.judged for s in states[:-1]] == [5 * n for n in range(len(states) - 1)]
    assert all(set(after.undecided) <= set(before.undecided) for before, after in pairwise(states))
    order = sorted(means, key=lambda name: -means[name])
    contest = Contest(question)
    while contest.undecided:
        rows, columns = (each[:5] for each in chooser(contest))
        contest.answer(rows, columns, truth[question.item[rows, columns], question.query[rows]])
    for n, a in enumerate(order):
        for b in order[n + 1 :]:
            low, high = contest.gap((a, b)) if (a, b) in contest.gaps else tuple(-x for x in contest.gap((b, a))[::-1])
            assert low - 1e-12 <= means[a] - means[b] <= high + 1e-12


def test_counting_only_what_changed_is_the_same_as_counting_anew():
    held, said, truth = world(images=10, captions=2, models=3, seed=1, levels=6)
    question = posed(held, Judgements.from_links(held), said, Bounding("map@r", "t2i", 4))
    contest = Contest(question)
    for _ in range(3):
        rows, columns = (each[:7] for each in contest.first())
        contest.answer(rows, columns, truth[question.item[rows, columns], question.query[rows]])
    fresh = Contest(type(question)(question.metric, question.query, question.item, contest.label, question.models))
    assert contest.means == fresh.means
    assert contest.undecided == fresh.undecided
    for two in contest.undecided:
        assert contest.gap(two) == pytest.approx(fresh.gap(two))
        assert contest.moves(two) == pytest.approx(fresh.moves(two))


def test_a_tolerance_ends_sooner_and_a_run_to_the_end_judges_all():
    held, said, truth = world(images=12, captions=2, models=3, seed=4)
    question = posed(held, Judgements.from_links(held), said, Bounding("map@r", "t2i", 4))
    strict, loose = (list(judged_until_certain(question, matches(truth), batch=5, tolerance=t))[-1].judged for t in (0.0, 0.2))
    assert loose < strict
    whole = list(judged_until_certain(question, matches(truth), by_lot(question), batch=50, to_the_end=True))
    assert whole[-1].judged == (question.label == UNJUDGED).sum() > strict


def test_depth_by_depth_judges_what_some_model_has_first_before_all_else():
    held, said, _ = world(images=12, captions=1, models=2, seed=2)
    question = posed(held, Judgements.from_links(held), said, Bounding("map@r", "t2i", 5))
    rows, columns = by_depth(question)(Contest(question))
    best = np.min([placed.above[rows, columns] for placed in question.models.values()], axis=0)
    assert (np.diff(best) >= 0).all()
    assert len(rows) == (question.label == UNJUDGED).sum()


def test_the_list_is_what_a_pool_takes_first(tmp_path):
    held, said, _ = world(images=8, captions=2, models=3, seed=3)
    models = {name: Saved(scores, name) for name, scores in said.items()}
    told, contest = bounded(held, Judgements.from_links(held), models, tmp_path / "bounds", how=Bounding(depth=3))
    rows = read_rows(tmp_path / "bounds", "bounds")
    assert told["counts"] == {"queries": 16, "unjudged": (contest.label == UNJUDGED).sum(), "comparisons": 3, "undecided": 3}
    assert len(rows) == contest.hanging(*contest.undecided).sum()
    where, column = contest.first()
    assert (np.diff(sum(contest.moves(two)[where, column] for two in contest.undecided)) <= 0).all()
    assert [row["image_id"] for row in rows] == held.image_ids[contest.question.item[where, column]].tolist()
    most = {two: 100 / 16 * contest.moves(two)[where, column] for two in contest.undecided}
    for n, row in enumerate(rows):
        assert {tuple(each["models"]): each["by"] for each in row["moves"]} == pytest.approx(
            {two: by[n] for two, by in most.items() if by[n] > 0}, abs=1e-6
        )
    assert all(row["image_id"] != f"i{row['caption_id'][1:].split('#')[0]}" for row in rows)  # no link
    first = read_pairs(tmp_path / "bounds" / ROWS)
    pool(held, models, tmp_path / "pool", first=first)
    pooled = [(row["image_id"], row["caption_id"]) for row in read_rows(tmp_path / "pool") if row.get("first")]
    assert pooled == first
    again, _ = bounded(held, Judgements.from_links(held), models, tmp_path / "bounds", how=Bounding(depth=3))
    assert again == told
    with pytest.raises(WrongWords, match="metric was 'map@r', and is 'hit@1'"):
        bounded(held, Judgements.from_links(held), models, tmp_path / "bounds", how=Bounding("hit@1", depth=3))


def test_images_search_captions_too():
    held, said, _ = world(images=5, captions=2, models=2, seed=5)
    question = posed(held, Judgements.from_links(held), said, Bounding("recall@3", "i2t", 3))
    assert question.label.shape[0] == 5
    turned = {name: Matrix(s.caption_ids, s.image_ids, s.values.T) for name, s in said.items()}
    flipped = Collection(held.caption_ids, held.image_ids, tuple(held.image_ids), held.links[:, ::-1])
    same = posed(flipped, Judgements.from_links(flipped), turned, Bounding("recall@3", "t2i", 3))
    assert Contest(question).gap(("m0", "m1")) == pytest.approx(Contest(same).gap(("m0", "m1")))


def test_judged_negatives_are_no_longer_open_and_a_complete_set_leaves_nothing_open():
    held, said, truth = world(images=5, captions=1, models=2, seed=6)
    linked = Judgements.from_links(held)
    before = posed(held, linked, said, Bounding(depth=3))
    q, w = np.argwhere(before.label == UNJUDGED)[0]
    pair = (before.item[q, w], before.query[q])
    more = Judgements(
        "more", np.append(linked.rows, pair[0]), np.append(linked.columns, pair[1]), np.append(linked.grades, 0), held.shape
    )
    after = posed(held, more, said, Bounding(depth=3))
    assert (after.label == UNJUDGED).sum() == (before.label == UNJUDGED).sum() - 1
    assert pair[0] not in after.item[q]
    assert (posed(held, Judgements.from_matrix("truth", truth), said, Bounding(depth=3)).label != UNJUDGED).all()


def test_a_run_that_is_too_short_says_so():
    held, said, _ = world(images=6, captions=1, models=1, seed=7)
    values = said["m0"].values
    top = [(c, i) for c in range(6) for i in np.argsort(-values[:, c])[:2]]
    captions, images = (list(each) for each in zip(*top, strict=True))
    run = Run(held.caption_ids[captions], held.image_ids[images], values[images, captions])
    judged, both = Judgements.from_links(held), {**said, "run": run}
    question = posed(held, judged, both, Bounding("map@r", "t2i", 2))
    with pytest.raises(CrossmatchError, match="lists 2 candidates for a query that may need"):
        intervals(Contest(question))
    for name in ("map@r", "hit@1"):  # whatever the metric needs: the pool would not be what it is said to be
        with pytest.raises(CrossmatchError, match="run lists 2 candidates for 'i0#0'; 4 are looked at"):
            posed(held, judged, both, Bounding(name, "t2i", 4))


def test_in_the_open_reading_what_a_run_does_not_list_may_match_too():
    held, said, _ = world(images=4, captions=1, models=1, seed=7)
    values = said["m0"].values
    top = [(c, i) for c in range(4) for i in np.argsort(-values[:, c])[:2]]
    captions, images = (list(each) for each in zip(*top, strict=True))
    run = Run(held.caption_ids[captions], held.image_ids[images], values[images, captions])
    how, judged = Bounding("recall@1", "t2i", None), Judgements.from_links(held)
    listed, whole = (intervals(Contest(posed(held, judged, {"m": scores}, how)))["m"] for scores in (run, said["m0"]))
    assert listed == pytest.approx(whole)
    assert (posed(held, judged, {"m": run}, how).label == UNJUDGED).sum() == 4 * 3


def test_wrong_words():
    with pytest.raises(WrongWords, match="no bounds of median-rank"):
        Bounding("median-rank")
    with pytest.raises(WrongWords, match="i2t or t2i was expected"):
        Bounding(direction="t2t")
    with pytest.raises(WrongWords, match="the depth is 0"):
        Bounding(depth=0)
    held, said, _ = world()
    graded = Judgements("graded", [0, 1], [0, 2], [2.0, 1.0], held.shape)
    with pytest.raises(WrongWords, match="grades of 0 and 1 alone"):
        posed(held, graded, said, Bounding("ndcg@5"))
