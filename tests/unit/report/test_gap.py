"""Directions, categories and ranks from saved results: the same numbers as elsewhere, and what cannot be compared is refused."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part, Result
from crossmatch.metrics.proportion import mcnemar, share_of, share_of_alike
from crossmatch.report.analysis_page import write
from crossmatch.report.analysis_plots import gap_panels, gap_sections
from crossmatch.report.gap import doubtful, gap, unlike
from crossmatch.report.gap_tables import as_json, gap_tables
from crossmatch.report.tables import as_text
from crossmatch.run import evaluate

TINY = {"size": "tiny"}


@pytest.fixture(scope="module")
def measured():
    """Two random scorers on both tasks of the embedded world."""
    return [evaluate(model, f"diorama/{task}", **TINY) for model in ("random", "random:1") for task in ("bivlc", "sugarcrepe")]


def wins(model, rows, task="bivlc", shape=(2, 2), categories=None, clusters=None, **options):
    """A result from known wins: for (2, 2) of image 0, image 1, caption 0, caption 1."""
    outcomes = Outcomes.from_wins(np.asarray(rows, dtype=bool), shape)
    ids, names = np.asarray([f"t{n}" for n in range(len(rows))]), np.asarray(categories or [""] * len(rows))
    clusters = np.arange(len(ids)) if clusters is None else np.asarray(clusters)
    parts = {"": Part(ids, clusters, outcomes)}
    for name in dict.fromkeys(path for full in names.tolist() if full for path in (full.split("/")[0], full)):
        at = np.flatnonzero([f"{full}/".startswith(f"{name}/") for full in names.tolist()])
        parts[name] = Part(ids[at], clusters[at], outcomes.chosen(at))
    return Result(model, task, "s", options, (), parts, {}, 1000, 0, "expected")


def right(model, said):
    """A result on SugarCrepe's kind of trial."""
    return wins(model, [[yes, True] for yes in said], "sugarcrepe", (2, 1))


# Directions


def test_shares_and_intervals_are_those_of_the_results(measured):
    found = gap(measured)
    assert len(found.gaps) == 2 * 3
    for g in found.gaps:
        mine = next(r for r in measured if (r.model, r.task) == (g.model, "diorama/bivlc"))
        for name, share in zip(g.metrics, g.shares, strict=True):
            row = mine[name]
            assert (100 * share.value, 100 * share.low, 100 * share.high) == pytest.approx((row.value, row.low, row.high))


def test_the_difference_is_second_minus_first_on_the_same_trials():
    rows = [[1, 1, 1, 0]] * 9 + [[1, 0, 1, 1]] * 1 + [[1, 1, 1, 1]] * 5 + [[0, 0, 0, 0]] * 5  # I2T alone 9 times, T2I alone once
    (first, *_) = gap([wins("m", rows)]).gaps
    assert first.metrics == ("i2t", "t2i")
    assert (first.shares[0].value, first.shares[1].value, first.difference.value) == pytest.approx((14 / 20, 6 / 20, -8 / 20))
    assert first.p == first.difference.p == mcnemar(9, 1)
    assert "T2I is below I2T for 1 of 1 models" in as_text(gap_tables(gap([wins("m", rows)]))[0])


def test_p_is_corrected_for_the_number_of_models():
    rows = [[1, 1, 1, 0]] * 9 + [[1, 0, 1, 1]] * 1
    alone, both = gap([wins("a", rows)]), gap([wins("a", rows), wins("b", rows)])
    assert both.gaps[0].p == pytest.approx(2 * alone.gaps[0].p)


def test_a_gap_that_cannot_be_told_is_called_so():
    rows = [[1, 1, 1, 0]] * 2 + [[1, 0, 1, 1]] * 1
    assert "cannot be told apart for 1 (p < .05)" in as_text(gap_tables(gap([wins("m", rows)]))[0])


def test_a_gap_within_few_clusters_is_not_called_one():
    rows = [[1, 1, 1, 0]] * 12 + [[1, 1, 1, 1]] * 12
    alone, shared = (gap([wins("m", rows, clusters=c)]) for c in (None, [0] * 6 + [1] * 6 + [*range(2, 14)]))
    one, other = alone.gaps[0], shared.gaps[0]
    assert one.sure
    assert one.difference.clustered is None
    assert other.difference.p == one.difference.p < 0.001  # McNemar does not know of clusters
    assert other.p == pytest.approx(other.difference.clustered)
    assert other.p > 0.05
    assert not other.sure
    table = gap_tables(shared)[0]
    assert "cannot be told apart for 1 (p < .05)" in table.notes[0]
    assert "the larger of McNemar's exact test and of the test over clusters" in table.notes[1]
    assert "p: McNemar's exact test on the same trials, corrected" in gap_tables(alone)[0].notes[1]
    assert as_json(shared)["directions"][0]["p_clustered"] == doubtful(other.difference)


# Categories


def test_categories_are_ranked_at_each_level_from_hard_to_easy():
    yes, no = [1, 1, 1, 1], [1, 1, 1, 0]
    said = [yes, no, no, yes, yes, yes]
    names = ["swap/obj", "swap/obj", "swap/att", "swap/att", "add/obj", "add/obj"]
    found = gap([wins("m", said, categories=names)]).difficulties
    assert [(d.category, d.places[0]) for d in found] == [("swap", 1), ("add", 2), ("swap/obj", 1), ("swap/att", 1), ("add/obj", 3)]
    table = gap_tables(gap([wins("m", said, categories=names)]))[1]
    assert table.notes[0] == "which category is the hardest cannot be told for 1 of 1 models"
    assert table.rows[0][1].startswith("50.0 ±")
    assert table.rows[0][1].endswith("(1)")


def by_category(model, **right):
    """Ten trials of each category, so many of them right."""
    rows = [[n < times] * 4 for times in right.values() for n in range(10)]
    return wins(model, rows, categories=[name for name in right for _ in range(10)])


def test_the_hardest_category_is_one_only_where_that_is_clear():
    level = [by_category("nothing", swap=0, add=0, replace=0), by_category("oracle", swap=10, add=10, replace=10)]
    clear, close = by_category("clear", swap=0, add=10, replace=9), by_category("close", swap=4, add=5, replace=10)
    found = gap([*level, clear, close])
    assert [(h.model, h.category, h.sure) for h in found.hardest] == [
        ("nothing", None, False), ("oracle", None, False), ("clear", "swap", True), ("close", "swap", False)
    ]  # fmt: skip
    assert found.hardest[2].p == pytest.approx(4 * stats.fisher_exact([[0, 10], [9, 1]]).pvalue)  # Holm over four models
    notes = gap_tables(found)[1].notes
    assert notes[0] == "swap is the hardest category for 1 of 4 models; which one is cannot be told for 3"
    assert gap_tables(gap(level))[1].notes[0] == "which category is the hardest cannot be told for 2 of 2 models"
    assert as_json(found)["hardest"][0] == {"task": "bivlc", "model": "nothing", "category": None, "p_holm": 1.0, "sure": False}


def test_the_lowest_place_alone_is_not_the_hardest():
    """The mean over models is lowest for another category than that of any one model."""
    found = gap([by_category("a", swap=0, add=10), by_category("b", swap=10, add=1)])
    assert [h.category for h in found.hardest] == ["swap", "add"]
    assert all(h.sure for h in found.hardest)
    told = gap_tables(found)[1].notes[0]
    assert told == "swap is the hardest category for 1 of 2 models; add is the hardest category for 1 of 2 models"


def test_a_single_category_is_no_hardest_one():
    assert gap([by_category("a", swap=3)]).hardest == ()


@given(st.tuples(*[st.integers(1, 40)] * 2), st.tuples(*[st.floats(0, 1)] * 2))
def test_two_shares_of_independent_trials_are_compared_by_fishers_test(sizes, values):
    right = [round(v * n) for v, n in zip(values, sizes, strict=True)]
    one, other = (share_of_alike(k, n) for k, n in zip(right, sizes, strict=True))
    table = [[k, n - k] for k, n in zip(right, sizes, strict=True)]
    slow = min(1.0, 2 * min(stats.fisher_exact(table, alternative=side).pvalue for side in ("less", "greater")))
    assert unlike(one, other) == pytest.approx(slow, abs=1e-9)
    assert unlike(one, other) == pytest.approx(unlike(other, one))


def test_clusters_make_categories_harder_to_tell_apart():
    rows, names = [[0] * 4] * 12 + [[1] * 4] * 12, ["swap"] * 12 + ["add"] * 12
    alone, shared = (gap([wins("m", rows, categories=names, clusters=c)]) for c in (None, np.arange(24) // 4))
    assert alone.hardest[0].sure
    assert not shared.hardest[0].sure


@pytest.mark.parametrize("size", [1, 4])
def test_of_equal_categories_one_is_rarely_called_the_hardest(size):
    """Three categories of forty clusters, of one trial or of four that are mostly alike."""
    rng = np.random.default_rng(0)
    clusters, called = np.repeat(np.arange(40), size), 0
    for _ in range(400):
        level = rng.beta(0.6, 0.6, (3, 40))  # mean 1/2, and within a cluster a correlation of 1 / 2.2
        shares = sorted((share_of(rng.random(40 * size) < level[n][clusters], clusters) for n in range(3)), key=lambda s: s.value)
        called += max(unlike(shares[0], other) for other in shares[1:]) < 0.05
    assert called <= 0.05 * 400


def test_a_category_that_a_model_was_not_asked_has_no_number():
    both = wins("a", [[1, 1, 1, 1]] * 2, categories=["swap", "add"])
    one = wins("b", [[1, 1, 1, 1]] * 2, categories=["swap", "swap"])
    table = gap_tables(gap([both, one]))[1]
    assert next(row for row in table.rows if row[0] == "add")[2] == "–"


# Ranks


def test_models_that_two_tasks_order_alike_and_unlike():
    orders = {"a": (9, 5), "b": (6, 8), "c": (3, 2)}
    results = [right(m, [n < s for n in range(10)]) for m, (s, _) in orders.items()]
    results += [wins(m, [[n < b] * 4 for n in range(10)]) for m, (_, b) in orders.items()]
    (ranking,) = gap(results).rankings
    assert ranking.tasks == ("sugarcrepe", "bivlc")
    assert dict(zip(ranking.models, ranking.places, strict=True)) == {"a": (1, 2), "b": (2, 1), "c": (3, 3)}
    assert ranking.tau == pytest.approx(1 / 3)
    assert ranking.p == 1.0
    (reversal,) = ranking.reversals
    assert (reversal.ahead, reversal.behind) == ("a", "b")
    assert (reversal.first.value, reversal.second.value) == pytest.approx((0.3, -0.3))
    notes = gap_tables(gap(results))[-1].notes
    assert notes[0] == "Kendall's τ-b 0.33 over 3 models, p 1.000 (so few can give no p below .333)"
    assert notes[1].startswith("a is 30.0 above b on sugarcrepe (p .250) and 30.0 below it on bivlc")


def test_two_models_are_too_few_and_level_ones_rank_nothing():
    two = [right("a", [1, 0]), right("b", [1, 1]), wins("a", [[1] * 4, [0] * 4]), wins("b", [[1] * 4, [1] * 4])]
    found = gap(two)
    assert found.rankings[0].tau is None
    assert "only 2 of the models ran on both: whether their ranks agree can be told from 3 on" in found_notes(found)
    level = [right(m, [1, 0]) for m in "abc"] + [wins(m, [[1] * 4, [int(m == "a")] * 4]) for m in "abc"]
    assert gap(level).rankings[0].tau is None
    assert gap(level).rankings[0].places == ((1, 1), (1, 2), (1, 2))
    assert "all models are level on one of the two" in found_notes(gap(level))


def found_notes(found):
    return " ".join(gap_tables(found)[-1].notes)


def test_tasks_go_together_by_their_data(measured):
    (ranking,) = gap(measured).rankings
    assert ranking.tasks == ("diorama/sugarcrepe · size tiny", "diorama/bivlc · size tiny")
    real = [*measured, right("random", [1, 0])]
    assert len(gap(real).rankings) == 1  # sugarcrepe has no bivlc beside it


# What is refused, and what is left out


def test_other_tasks_and_the_gate_are_left_out(measured):
    bison = evaluate("random", "diorama/bison", **TINY)
    assert gap([*measured, bison]).models == gap(measured).models
    gate = wins("gate:constant", [[0, 0, 0, 0]])
    with pytest.raises(WrongWords, match="none of these results is on a task such as bivlc or sugarcrepe"):
        gap([bison, gate])


def test_what_cannot_be_compared_is_refused(measured):
    with pytest.raises(CrossmatchError, match="there are two results of random on diorama/bivlc · size tiny"):
        gap([measured[0], measured[0]])
    with pytest.raises(CrossmatchError, match="a and b answered different trials of bivlc"):
        gap([wins("a", [[1] * 4]), wins("b", [[1] * 4] * 2)])
    assert gap_sections([measured[0], measured[0]]) == []


# For JSON, the page and the report


def test_json_is_in_percent_and_complete(measured):
    held = json.loads(json.dumps(as_json(gap(measured)), allow_nan=False))
    assert [len(held[key]) for key in ("directions", "ranks")] == [6, 1]
    first = held["directions"][0]
    assert first["difference"] == pytest.approx(first["values"][1] - first["values"][0])
    assert {row["task"] for row in held["categories"]} == {"diorama/bivlc · size tiny", "diorama/sugarcrepe · size tiny"}


@pytest.mark.parametrize("suffix", [".html", ".png", ".svg", ".pdf"])
def test_every_kind_of_file(measured, tmp_path, suffix):
    found = gap(measured)
    one, two = (write(tmp_path / f"{n}{suffix}", "title", gap_tables(found), gap_panels(found)).read_bytes() for n in (1, 2))
    assert one == two  # no time of drawing in it
    assert one.startswith({".html": b"<!doctype html>", ".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    if suffix == ".html":
        assert one.count(b"<svg") == 3
        assert b"http" not in one.replace(b"http://www.w3.org", b"").replace(b"http://purl.org", b"").replace(
            b"http://creativecommons", b""
        )


def test_a_file_of_another_kind_is_refused_and_nothing_is_left(measured, tmp_path):
    with pytest.raises(WrongWords, match=r"gap.txt should end in .html for a page, or in .png"):
        write(tmp_path / "gap.txt", "title", [], [])
    with pytest.raises(CrossmatchError, match=r"nothing to draw.*gap\.html"):
        write(tmp_path / "gap.png", "title", [], [])
    assert not list(tmp_path.iterdir())


def test_sections_of_the_report_have_a_table_and_a_figure_each(measured):
    sections = gap_sections(measured)
    assert sections[0][0].title.split(":")[0] == "diorama/bivlc · size tiny"
    assert len(sections) == 2
    assert all(svg.startswith("<svg") for _, figures in sections for _, _, svg in figures)
