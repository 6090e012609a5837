"""Directions, categories and ranks from saved results, and errors for results that cannot be compared."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.result import Result, ResultPart
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.metrics.paired_tests import mcnemar_test
from crossmatch.metrics.proportions import clustered_proportion, independent_proportion
from crossmatch.report.analysis.analysis_plots import direction_panels, direction_sections
from crossmatch.report.analysis.direction_gap import (
    analyse_directions,
    direction_analysis_json,
    direction_analysis_tables,
    fisher_p_value,
    larger_p,
)
from crossmatch.report.pages import write_analysis
from crossmatch.report.tables import format_table

TINY = {"size": "tiny"}


@pytest.fixture(scope="module")
def measured():
    """Two random scorers on two tasks of diorama."""
    return [evaluate(model, f"diorama/{task}", **TINY) for model in ("random", "random:1") for task in ("bivlc", "sugarcrepe")]


def wins(model, rows, task="bivlc", shape=(2, 2), categories=None, clusters=None, **options):
    """A result from known wins: for (2, 2) of image 0, image 1, caption 0, caption 1."""
    outcomes = Outcomes.from_wins(np.asarray(rows, dtype=bool), shape)
    ids, names = np.asarray([f"t{n}" for n in range(len(rows))]), np.asarray(categories or [""] * len(rows))
    clusters = np.arange(len(ids)) if clusters is None else np.asarray(clusters)
    parts = {"": ResultPart(ids, clusters, outcomes)}
    for name in dict.fromkeys(path for full in names.tolist() if full for path in (full.split("/")[0], full)):
        at = np.flatnonzero([f"{full}/".startswith(f"{name}/") for full in names.tolist()])
        parts[name] = ResultPart(ids[at], clusters[at], outcomes.select(at))
    return Result(model, task, "s", options, (), parts, {}, 1000, 0, "expected")


def right(model, is_right):
    """A result on trials with one image and two captions."""
    return wins(model, [[yes, True] for yes in is_right], "sugarcrepe", (2, 1))


# Directions


def test_shares_and_intervals_equal_the_results(measured):
    analysis = analyse_directions(measured)
    assert len(analysis.gaps) == 2 * 3
    for g in analysis.gaps:
        result = next(r for r in measured if (r.model, r.task) == (g.model, "diorama/bivlc"))
        for name, share in zip(g.metrics, g.shares, strict=True):
            row = result[name]
            assert (100 * share.value, 100 * share.low, 100 * share.high) == pytest.approx((row.value, row.low, row.high))


def test_the_difference_is_second_minus_first_on_the_same_trials():
    rows = [[1, 1, 1, 0]] * 9 + [[1, 0, 1, 1]] * 1 + [[1, 1, 1, 1]] * 5 + [[0, 0, 0, 0]] * 5  # I2T alone 9 times, T2I alone once
    (first, *_) = analyse_directions([wins("m", rows)]).gaps
    assert first.metrics == ("i2t", "t2i")
    assert (first.shares[0].value, first.shares[1].value, first.difference.value) == pytest.approx((14 / 20, 6 / 20, -8 / 20))
    assert first.p == first.difference.p == mcnemar_test(9, 1)
    assert "T2I is below I2T for 1 of 1 models" in format_table(direction_analysis_tables(analyse_directions([wins("m", rows)]))[0])


def test_p_is_corrected_for_the_number_of_models():
    rows = [[1, 1, 1, 0]] * 9 + [[1, 0, 1, 1]] * 1
    single, both = analyse_directions([wins("a", rows)]), analyse_directions([wins("a", rows), wins("b", rows)])
    assert both.gaps[0].p == pytest.approx(2 * single.gaps[0].p)


def test_insignificant_gap_is_labelled():
    rows = [[1, 1, 1, 0]] * 2 + [[1, 0, 1, 1]] * 1
    assert "not significantly different for 1 (p < .05)" in format_table(
        direction_analysis_tables(analyse_directions([wins("m", rows)]))[0]
    )


def test_gap_within_few_clusters_is_not_significant():
    rows = [[1, 1, 1, 0]] * 12 + [[1, 1, 1, 1]] * 12
    independent, clustered = (
        analyse_directions([wins("m", rows, clusters=c)]) for c in (None, [0] * 6 + [1] * 6 + [*range(2, 14)])
    )
    first, second = independent.gaps[0], clustered.gaps[0]
    assert first.is_significant
    assert first.difference.cluster_p is None
    assert second.difference.p == first.difference.p < 0.001  # McNemar does not know of clusters
    assert second.p == pytest.approx(second.difference.cluster_p)
    assert second.p > 0.05
    assert not second.is_significant
    table = direction_analysis_tables(clustered)[0]
    assert "not significantly different for 1 (p < .05)" in table.notes[0]
    assert "the larger one of McNemar's exact test and the test over clusters" in table.notes[1]
    assert "p: McNemar's exact test on the same trials, corrected" in direction_analysis_tables(independent)[0].notes[1]
    assert direction_analysis_json(clustered)["directions"][0]["p_clustered"] == larger_p(second.difference)


# Categories


def test_categories_are_ranked_at_each_level_from_hard_to_easy():
    yes, no = [1, 1, 1, 1], [1, 1, 1, 0]
    rows = [yes, no, no, yes, yes, yes]
    names = ["swap/obj", "swap/obj", "swap/att", "swap/att", "add/obj", "add/obj"]
    difficulties = analyse_directions([wins("m", rows, categories=names)]).difficulties
    assert [(d.category, d.ranks[0]) for d in difficulties] == [
        ("swap", 1),
        ("add", 2),
        ("swap/obj", 1),
        ("swap/att", 1),
        ("add/obj", 3),
    ]
    table = direction_analysis_tables(analyse_directions([wins("m", rows, categories=names)]))[1]
    assert table.notes[0] == "the hardest category is unclear: for 1 of 1 models the difference is not significant"
    assert table.rows[0][1].startswith("50.0 ±")
    assert table.rows[0][1].endswith("(1)")


def by_category(model, **right):
    """Ten trials of each category with this many correct ones."""
    rows = [[n < times] * 4 for times in right.values() for n in range(10)]
    return wins(model, rows, categories=[name for name in right for _ in range(10)])


def test_hardest_category_needs_significance():
    tied = [by_category("nothing", swap=0, add=0, replace=0), by_category("oracle", swap=10, add=10, replace=10)]
    clear, close = by_category("clear", swap=0, add=10, replace=9), by_category("close", swap=4, add=5, replace=10)
    analysis = analyse_directions([*tied, clear, close])
    assert [(h.model, h.category, h.is_significant) for h in analysis.hardest] == [
        ("nothing", None, False), ("oracle", None, False), ("clear", "swap", True), ("close", "swap", False)
    ]  # fmt: skip
    assert analysis.hardest[2].p == pytest.approx(4 * stats.fisher_exact([[0, 10], [9, 1]]).pvalue)  # Holm over four models
    notes = direction_analysis_tables(analysis)[1].notes
    assert notes[0] == "swap is the hardest category for 1 of 4 models; for 3 the difference is not significant"
    assert (
        direction_analysis_tables(analyse_directions(tied))[1].notes[0]
        == "the hardest category is unclear: for 2 of 2 models the difference is not significant"
    )
    assert direction_analysis_json(analysis)["hardest"][0] == {
        "task": "bivlc",
        "model": "nothing",
        "category": None,
        "p_holm": 1.0,
        "sure": False,
    }


def test_hardest_category_is_decided_for_each_model():
    """Two models have different hardest categories."""
    analysis = analyse_directions([by_category("a", swap=0, add=10), by_category("b", swap=10, add=1)])
    assert [h.category for h in analysis.hardest] == ["swap", "add"]
    assert all(h.is_significant for h in analysis.hardest)
    note = direction_analysis_tables(analysis)[1].notes[0]
    assert note == "swap is the hardest category for 1 of 2 models; add is the hardest category for 1 of 2 models"


def test_single_category_is_not_the_hardest():
    assert analyse_directions([by_category("a", swap=3)]).hardest == ()


@given(st.tuples(*[st.integers(1, 40)] * 2), st.tuples(*[st.floats(0, 1)] * 2))
def test_two_shares_of_independent_trials_are_compared_by_fishers_test(sizes, values):
    right = [round(v * n) for v, n in zip(values, sizes, strict=True)]
    first, second = (independent_proportion(k, n) for k, n in zip(right, sizes, strict=True))
    table = [[k, n - k] for k, n in zip(right, sizes, strict=True)]
    slow = min(1.0, 2 * min(stats.fisher_exact(table, alternative=side).pvalue for side in ("less", "greater")))
    assert fisher_p_value(first, second) == pytest.approx(slow, abs=1e-9)
    assert fisher_p_value(first, second) == pytest.approx(fisher_p_value(second, first))


def test_clusters_make_categories_harder_to_tell_apart():
    rows, names = [[0] * 4] * 12 + [[1] * 4] * 12, ["swap"] * 12 + ["add"] * 12
    independent, clustered = (
        analyse_directions([wins("m", rows, categories=names, clusters=c)]) for c in (None, np.arange(24) // 4)
    )
    assert independent.hardest[0].is_significant
    assert not clustered.hardest[0].is_significant


@pytest.mark.parametrize("size", [1, 4])
def test_equal_categories_rarely_have_a_hardest_one(size):
    """Three categories of forty clusters, of one trial or of four that are mostly alike."""
    rng = np.random.default_rng(0)
    clusters, false_alarms = np.repeat(np.arange(40), size), 0
    for _ in range(400):
        rates = rng.beta(0.6, 0.6, (3, 40))  # mean 1/2, and within a cluster a correlation of 1 / 2.2
        shares = sorted(
            (clustered_proportion(rng.random(40 * size) < rates[n][clusters], clusters) for n in range(3)), key=lambda s: s.value
        )
        false_alarms += max(fisher_p_value(shares[0], share) for share in shares[1:]) < 0.05
    assert false_alarms <= 0.05 * 400


def test_missing_category_has_an_empty_cell():
    both = wins("a", [[1, 1, 1, 1]] * 2, categories=["swap", "add"])
    swap_only = wins("b", [[1, 1, 1, 1]] * 2, categories=["swap", "swap"])
    table = direction_analysis_tables(analyse_directions([both, swap_only]))[1]
    assert next(row for row in table.rows if row[0] == "add")[2] == "–"


# Ranks


def test_rank_reversals_between_two_tasks():
    orders = {"a": (9, 5), "b": (6, 8), "c": (3, 2)}
    results = [right(m, [n < s for n in range(10)]) for m, (s, _) in orders.items()]
    results += [wins(m, [[n < b] * 4 for n in range(10)]) for m, (_, b) in orders.items()]
    (ranking,) = analyse_directions(results).rankings
    assert ranking.tasks == ("sugarcrepe", "bivlc")
    assert dict(zip(ranking.models, ranking.ranks, strict=True)) == {"a": (1, 2), "b": (2, 1), "c": (3, 3)}
    assert ranking.tau == pytest.approx(1 / 3)
    assert ranking.p == 1.0
    (reversal,) = ranking.reversals
    assert (reversal.ahead, reversal.behind) == ("a", "b")
    assert (reversal.first.value, reversal.second.value) == pytest.approx((0.3, -0.3))
    notes = direction_analysis_tables(analyse_directions(results))[-1].notes
    assert notes[0] == "Kendall's τ-b 0.33 over 3 models, p 1.000 (with so few models p cannot be below .333)"
    assert notes[1].startswith("a is 30.0 above b on sugarcrepe (p .250) and 30.0 below it on bivlc")


def test_no_rank_correlation_of_few_or_tied_models():
    two = [right("a", [1, 0]), right("b", [1, 1]), wins("a", [[1] * 4, [0] * 4]), wins("b", [[1] * 4, [1] * 4])]
    analysis = analyse_directions(two)
    assert analysis.rankings[0].tau is None
    assert "only 2 of the models ran on both tasks; a rank correlation needs at least 3" in ranking_notes(analysis)
    tied = [right(m, [1, 0]) for m in "abc"] + [wins(m, [[1] * 4, [int(m == "a")] * 4]) for m in "abc"]
    assert analyse_directions(tied).rankings[0].tau is None
    assert analyse_directions(tied).rankings[0].ranks == ((1, 1), (1, 2), (1, 2))
    assert "all models are tied on one of the two tasks" in ranking_notes(analyse_directions(tied))


def ranking_notes(analysis):
    return " ".join(direction_analysis_tables(analysis)[-1].notes)


def test_tasks_are_paired_by_their_data(measured):
    (ranking,) = analyse_directions(measured).rankings
    assert ranking.tasks == ("diorama/sugarcrepe · size tiny", "diorama/bivlc · size tiny")
    real = [*measured, right("random", [1, 0])]
    assert len(analyse_directions(real).rankings) == 1  # sugarcrepe has no bivlc beside it


# Omitted results and errors


def test_other_tasks_and_the_gate_are_left_out(measured):
    bison = evaluate("random", "diorama/bison", **TINY)
    assert analyse_directions([*measured, bison]).models == analyse_directions(measured).models
    gate = wins("gate:constant", [[0, 0, 0, 0]])
    with pytest.raises(UsageError, match="No result is on a task such as bivlc or sugarcrepe"):
        analyse_directions([bison, gate])


def test_invalid_input_is_an_error(measured):
    with pytest.raises(CrossmatchError, match="There are two results of random on diorama/bivlc · size tiny"):
        analyse_directions([measured[0], measured[0]])
    with pytest.raises(CrossmatchError, match="a and b have different trials of bivlc"):
        analyse_directions([wins("a", [[1] * 4]), wins("b", [[1] * 4] * 2)])
    assert direction_sections([measured[0], measured[0]]) == []


# JSON, pages and the report


def test_json_is_in_percent_and_complete(measured):
    content = json.loads(json.dumps(direction_analysis_json(analyse_directions(measured)), allow_nan=False))
    assert [len(content[key]) for key in ("directions", "ranks")] == [6, 1]
    first = content["directions"][0]
    assert first["difference"] == pytest.approx(first["values"][1] - first["values"][0])
    assert {row["task"] for row in content["categories"]} == {"diorama/bivlc · size tiny", "diorama/sugarcrepe · size tiny"}


@pytest.mark.parametrize("suffix", [".html", ".png", ".svg", ".pdf"])
def test_output_files_of_every_type_are_reproducible(measured, tmp_path, suffix):
    analysis = analyse_directions(measured)
    first, again = (
        write_analysis(
            tmp_path / f"{n}{suffix}", "title", direction_analysis_tables(analysis), direction_panels(analysis)
        ).read_bytes()
        for n in (1, 2)
    )
    assert first == again  # no time of drawing in it
    assert first.startswith({".html": b"<!doctype html>", ".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    if suffix == ".html":
        assert first.count(b"<svg") == 3
        assert b"http" not in first.replace(b"http://www.w3.org", b"").replace(b"http://purl.org", b"").replace(
            b"http://creativecommons", b""
        )


def test_unknown_output_suffix_is_an_error(measured, tmp_path):
    with pytest.raises(UsageError, match=r"gap.txt: the name must end in .html for a page, or in .png"):
        write_analysis(tmp_path / "gap.txt", "title", [], [])
    with pytest.raises(CrossmatchError, match=r"no figure for .*gap\.html"):
        write_analysis(tmp_path / "gap.png", "title", [], [])
    assert not list(tmp_path.iterdir())


def test_sections_of_the_report_have_a_table_and_a_figure_each(measured):
    sections = direction_sections(measured)
    assert sections[0][0].title.split(":")[0] == "diorama/bivlc · size tiny"
    assert len(sections) == 2
    assert all(svg.startswith("<svg") for _, figures in sections for _, _, svg in figures)
