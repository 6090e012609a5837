"""Reports of forced choices: tables, McNemar's test with Holm's correction, altered queries, the trust gate."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from crossmatch.data.benchmark import Benchmark
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.result import load_result, save_result
from crossmatch.data.trials import Trials, TrialScores
from crossmatch.evaluation.controls import evaluate_gate
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.evaluation.plan import load_task
from crossmatch.metrics.paired_tests import holm_correction
from crossmatch.report.comparison import compare
from crossmatch.report.html_report import write_report
from crossmatch.report.query_variants import (
    ALTER,
    alteration_tables,
    caption_choice_tables,
    changed_share,
    find_variants,
    main_results,
    predicted_images,
)
from crossmatch.report.tables import format_table, result_tables
from crossmatch.report.trust_gate_table import check_gate_results, gate_tables

N = 240
KINDS = ["replace/obj", "replace/att", "swap/att"]
TRIALS = Trials(
    [f"t{n:03d}" for n in range(N)],
    [[f"{n}a", f"{n}b"] for n in range(N)],
    [[f"one {n}", f"two {n}"] for n in range(N)],
    [KINDS[n % 3] for n in range(N)],
)
BIVLC = Benchmark("quads", "", lambda: TRIALS, ("i2t", "t2i", "group", "ipos2t", "ineg2t", "tpos2i", "tneg2i"))


class Fixed:
    """Random scores with a bonus for matching pairs."""

    def __init__(self, seed, bonus):
        self.seed, self.bonus = seed, bonus

    signature = "fixed"

    def scores(self, data):
        scores = np.random.default_rng(self.seed).random((N, *data.shape)) + self.bonus * np.eye(*data.shape)
        return TrialScores(np.sort(data.ids), scores).select_ids(data.ids)


@pytest.fixture(scope="module")
def weak_and_strong():
    return evaluate(Fixed(0, 0.1), BIVLC, name="weak"), evaluate(Fixed(1, 0.5), BIVLC, name="strong")


def test_categories_are_a_tree_and_the_macro_mean_counts_leaves(weak_and_strong):
    result = weak_and_strong[0]
    parts = list(dict.fromkeys(row.part for row in result.rows))
    assert parts == ["", "macro", "replace", "replace/att", "replace/obj", "swap", "swap/att"]
    assert [result[f"{part}/i2t" if part else "i2t"].n for part in parts] == [240, 240, 160, 80, 80, 80, 80]
    leaves = [result[f"{kind}/i2t"].value for kind in KINDS]
    assert result["macro/i2t"].value == pytest.approx(np.mean(leaves))
    assert "categories:3" in result["macro/i2t"].signature
    assert "interval:wilson" in result["i2t"].signature
    assert "seed" not in result["i2t"].signature


def test_the_table_has_a_column_for_each_metric_and_chance_on_top(weak_and_strong):
    lines = format_table(result_tables(list(weak_and_strong))[0]).splitlines()
    assert lines[1].split() == ["trials", "I2T", "T2I", "Group", "Ipos2T", "Ineg2T", "Tpos2I", "Tneg2I"]
    assert lines[2].split() == ["chance", "25.0", "25.0", "16.7", "50.0", "50.0", "50.0", "50.0"]
    assert lines[3].split()[:3] == ["all", "weak", "240"]
    assert lines[4].split()[:2] == ["strong", "240"]


def test_the_comparison_is_mcnemars_exact_test_with_holm_over_the_categories(weak_and_strong):
    comparisons = {c.first.key: c for c in compare(*weak_and_strong)}
    for name in ("i2t", "group"):
        keys = [key for key in comparisons if key.split("/")[-1] == name]
        plain = []
        for key in keys:
            part = key.rpartition("/")[0]
            values = [np.array(r.parts[part].evidence.has_wins({"i2t": 0b0011, "group": 0b1111}[name])) for r in weak_and_strong]
            gained, lost = int((values[1] & ~values[0]).sum()), int((values[0] & ~values[1]).sum())
            if part != "macro":
                slow = stats.binomtest(min(gained, lost), gained + lost).pvalue
                assert comparisons[key].difference.p == pytest.approx(slow, rel=1e-9)
                assert comparisons[key].difference.value == pytest.approx(100 * (gained - lost) / len(values[0]))
            plain.append(comparisons[key].difference.p)
        assert [comparisons[key].p for key in keys] == holm_correction(plain)  # over the categories of this metric alone
    assert comparisons["i2t"].winner == 1


def test_loaded_result_equals_the_saved_one(weak_and_strong, tmp_path):
    loaded = load_result(save_result(weak_and_strong[0], tmp_path))
    assert loaded.as_json() == weak_and_strong[0].as_json()
    assert np.array_equal(loaded.parts["swap"].evidence.codes, weak_and_strong[0].parts["swap"].evidence.codes)
    assert [c.p for c in compare(loaded, weak_and_strong[1])] == [c.p for c in compare(*weak_and_strong)]


# Altered queries

QUERIES = Trials(
    [f"q{n}" for n in range(N)], [[f"{n}a", f"{n}b"] for n in range(N)], [["A dog runs."]] * N, [""] * N, references=None
)
BISON = Benchmark("pairs", "", lambda alter, caption: QUERIES, ("accuracy",), options={"alter": "none", "caption": "chosen"})


def bison_result(values, name="m", **options):
    return evaluate(GivenScores(values), BISON, name=name, **options)


class GivenScores:
    signature = "ready"

    def __init__(self, values):
        self.values = np.asarray(values, dtype=float)

    def scores(self, data):
        positions = [int(name[1:]) for name in data.ids]
        return TrialScores(data.ids, self.values[positions][:, None, :])


def test_tie_counts_as_a_changed_prediction():
    base = np.tile([1.0, 0.0], (N, 1))
    changed = base.copy()
    changed[:60] = [0.0, 1.0]  # another image
    changed[60:72] = [1.0, 1.0]  # undecided now
    results = [bison_result(base), bison_result(changed, alter="negation")]
    (variant,) = find_variants(results, ALTER)
    assert changed_share(variant).value == pytest.approx(72 / N)
    assert set(predicted_images(results[1].parts[""]).tolist()) == {-1, 0, 1}
    ((table, _),) = alteration_tables(results)
    assert table.rows[0][:2] == ("negation", "–")  # this result does not tell how many captions were altered
    assert table.rows[0][2].startswith("30.0 ±")


def test_share_among_altered_captions_is_shown():
    base = np.tile([1.0, 0.0], (N, 1))
    changed = base.copy()
    changed[:60] = [0.0, 1.0]
    altered = replace(bison_result(changed, alter="negation"), notes=("negation: 120 of 240 captions could be altered (50.0 %)",))
    ((table, _),) = alteration_tables([bison_result(base), altered])
    assert table.rows[0][1] == "50.0"
    assert table.rows[0][3] == "50.0"  # a quarter of all trials, half of the altered ones
    none = replace(bison_result(base, alter="negation"), notes=("negation: 0 of 240 captions could be altered (0.0 %)",))
    ((table, _),) = alteration_tables([bison_result(base), none])
    assert table.rows[0] == ("negation", "0.0", "–", "–")


def test_variants_need_the_same_model_and_the_same_trials():
    base = np.tile([1.0, 0.0], (N, 1))
    assert find_variants([bison_result(base, name="a"), bison_result(base, name="b", alter="negation")], ALTER) == []
    reversal = evaluate(GivenScores(base), BISON, name="m", data=QUERIES.select(np.arange(100)), alter="reversal")
    (variant,) = find_variants([bison_result(base), reversal], ALTER)
    with pytest.raises(CrossmatchError, match="240 without alteration, 100 with"):
        changed_share(variant)


def test_caption_choices_are_compared_on_common_trials():
    right, wrong = [1.0, 0.0], [0.0, 1.0]
    base = np.array([right if n < 120 else wrong for n in range(N)])
    longest = evaluate(
        GivenScores(np.tile(wrong, (N, 1))), BISON, name="m", data=QUERIES.select(np.arange(60, 180)), caption="longest"
    )
    ((table, _),) = caption_choice_tables([bison_result(base), longest])
    assert table.header[0] == ("", "trials", "chosen", "longest")
    assert table.rows[0][:2] == ("m", "120")
    assert table.rows[0][2].startswith("50.0")
    assert table.rows[0][3].startswith("0.0")


def test_gate_scorers_are_no_variants():
    base = np.tile([1.0, 0.0], (N, 1))
    results = [
        bison_result(base, name=name, **options) for name in ("m", "gate:random") for options in ({}, {"caption": "longest"})
    ]
    assert [variant.result.model for variant in find_variants(results, "caption")] == ["m"]
    ((table, _),) = caption_choice_tables(results)
    assert [row[0] for row in table.rows] == ["m"]


def test_variant_without_base_has_its_own_table():
    base = np.tile([1.0, 0.0], (N, 1))
    longest = bison_result(base, caption="longest")
    assert main_results([longest, *evaluate_gate([load_task(BIVLC)])]) == [longest]
    assert main_results([longest, bison_result(base)]) != [longest, bison_result(base)]
    assert len(main_results([longest, bison_result(base)])) == 1


# The gate


def test_gate_fails_if_a_random_scorer_wins_too_often():
    sound = evaluate_gate([load_task(BIVLC)])
    assert all(v.passed for v in check_gate_results(sound))
    (table,) = gate_tables(sound)
    assert [row[-1] for row in table.rows] == ["passes"] * 5
    seeded = evaluate("gate:random:7", BIVLC)
    assert all(v.passed for v in check_gate_results([seeded]))
    assert not gate_tables([evaluate(Fixed(0, 0.4), BIVLC, name="gate:mine")])  # a name of the user's own is no gate
    # a broken evaluation: the random scorer wins far too often
    broken = [evaluate(Fixed(0, 0.4), BIVLC, name="gate:random")]
    assert not all(v.passed for v in check_gate_results(broken))
    (table,) = gate_tables(broken)
    assert table.rows[0][-1] == "FAILS"
    assert "outside of" in table.notes[0]


def test_page_shows_alterations_and_gate(tmp_path, weak_and_strong):
    base = np.tile([1.0, 0.0], (N, 1))
    results = [
        *weak_and_strong,
        bison_result(base),
        bison_result(base[:, ::-1], alter="permutation"),
        *evaluate_gate([load_task(BIVLC)]),
    ]
    page = write_report(results, tmp_path / "r.html").read_text()
    assert "predictions changed, percent" in page
    assert "trust gate, quads" in page
    assert "Group by category" in page
    lead = re.search(r'class="lead">([^·]*)', page)[1]
    assert "gate:" not in lead
    assert "which direction" in page or "I2T → T2I" in page
    assert page.count("<h2>") == 5  # two tasks, the alterations, the gap between directions, the gate


def test_page_shows_a_failed_gate(tmp_path):
    broken = evaluate(Fixed(0, 0.4), BIVLC, name="gate:random")
    page = write_report([evaluate(Fixed(1, 0.5), BIVLC, name="mine"), broken], tmp_path / "r.html").read_text()
    assert re.search(r'class="note">random got .* outside of', page)
