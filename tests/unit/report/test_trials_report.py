"""Forced choices in tables, comparisons and pages: the papers' layout, McNemar with Holm, altered queries, the trust gate."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from crossmatch.core.benchmark import Benchmark
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.result import load, save
from crossmatch.core.trials import Trials, TrialScores
from crossmatch.metrics.significance import holm
from crossmatch.report.compare import compare
from crossmatch.report.gate import gate_tables, gate_verdicts
from crossmatch.report.html import write_report
from crossmatch.report.tables import as_text, results_table
from crossmatch.report.variants import ALTER, alteration_tables, caption_tables, changed, plain, predictions, variants
from crossmatch.run import evaluate, evaluate_gate

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
    """Scores from a seed, with a bonus for what belongs together."""

    def __init__(self, seed, bonus):
        self.seed, self.bonus = seed, bonus

    signature = "fixed"

    def scores(self, data):
        drawn = np.random.default_rng(self.seed).random((N, *data.shape)) + self.bonus * np.eye(*data.shape)
        return TrialScores(np.sort(data.ids), drawn).among(data.ids)


@pytest.fixture(scope="module")
def two():
    return evaluate(Fixed(0, 0.1), BIVLC, name="weak"), evaluate(Fixed(1, 0.5), BIVLC, name="strong")


def test_categories_are_a_tree_and_the_macro_mean_counts_leaves(two):
    result = two[0]
    parts = list(dict.fromkeys(row.part for row in result.rows))
    assert parts == ["", "macro", "replace", "replace/att", "replace/obj", "swap", "swap/att"]
    assert [result[f"{part}/i2t" if part else "i2t"].n for part in parts] == [240, 240, 160, 80, 80, 80, 80]
    leaves = [result[f"{kind}/i2t"].value for kind in KINDS]
    assert result["macro/i2t"].value == pytest.approx(np.mean(leaves))
    assert "categories:3" in result["macro/i2t"].signature
    assert "interval:wilson" in result["i2t"].signature
    assert "seed" not in result["i2t"].signature


def test_the_table_has_a_column_for_each_metric_and_chance_on_top(two):
    lines = as_text(results_table(list(two))[0]).splitlines()
    assert lines[1].split() == ["trials", "I2T", "T2I", "Group", "Ipos2T", "Ineg2T", "Tpos2I", "Tneg2I"]
    assert lines[2].split() == ["chance", "25.0", "25.0", "16.7", "50.0", "50.0", "50.0", "50.0"]
    assert lines[3].split()[:3] == ["all", "weak", "240"]
    assert lines[4].split()[:2] == ["strong", "240"]


def test_the_comparison_is_mcnemars_exact_test_with_holm_over_the_categories(two):
    found = {c.first.key: c for c in compare(*two)}
    for name in ("i2t", "group"):
        keys = [key for key in found if key.split("/")[-1] == name]
        plain = []
        for key in keys:
            part = key.rpartition("/")[0]
            values = [np.array(r.parts[part].evidence.won({"i2t": 0b0011, "group": 0b1111}[name])) for r in two]
            gained, lost = int((values[1] & ~values[0]).sum()), int((values[0] & ~values[1]).sum())
            if part != "macro":
                slow = stats.binomtest(min(gained, lost), gained + lost).pvalue
                assert found[key].difference.p == pytest.approx(slow, rel=1e-9)
                assert found[key].difference.value == pytest.approx(100 * (gained - lost) / len(values[0]))
            plain.append(found[key].difference.p)
        assert [found[key].p for key in keys] == holm(plain)  # over the categories of this metric alone
    assert found["i2t"].better == 1


def test_a_saved_result_says_the_same_after_loading(two, tmp_path):
    again = load(save(two[0], tmp_path))
    assert again.as_json() == two[0].as_json()
    assert np.array_equal(again.parts["swap"].evidence.codes, two[0].parts["swap"].evidence.codes)
    assert [c.p for c in compare(again, two[1])] == [c.p for c in compare(*two)]


# Altered queries

ASKED = Trials(
    [f"q{n}" for n in range(N)], [[f"{n}a", f"{n}b"] for n in range(N)], [["A dog runs."]] * N, [""] * N, references=None
)
BISON = Benchmark("pairs", "", lambda alter, caption: ASKED, ("accuracy",), options={"alter": "none", "caption": "chosen"})


def of(values, name="m", **options):
    return evaluate(Ready(values), BISON, name=name, **options)


class Ready:
    signature = "ready"

    def __init__(self, values):
        self.values = np.asarray(values, dtype=float)

    def scores(self, data):
        place = [int(name[1:]) for name in data.ids]
        return TrialScores(data.ids, self.values[place][:, None, :])


def test_the_share_of_changed_predictions_counts_ties_as_a_choice_of_their_own():
    base = np.tile([1.0, 0.0], (N, 1))
    other = base.copy()
    other[:60] = [0.0, 1.0]  # another image
    other[60:72] = [1.0, 1.0]  # undecided now
    results = [of(base), of(other, alter="negation")]
    (variant,) = variants(results, ALTER)
    assert changed(variant).value == pytest.approx(72 / N)
    assert set(predictions(results[1].parts[""]).tolist()) == {-1, 0, 1}
    ((table, _),) = alteration_tables(results)
    assert table.rows[0][:2] == ("negation", "–")  # this result does not tell how many captions were altered
    assert table.rows[0][2].startswith("30.0 ±")


def test_the_share_among_altered_captions_is_told_too():
    base = np.tile([1.0, 0.0], (N, 1))
    other = base.copy()
    other[:60] = [0.0, 1.0]
    told = replace(of(other, alter="negation"), notes=("negation: 120 of 240 captions could be altered (50.0 %)",))
    ((table, _),) = alteration_tables([of(base), told])
    assert table.rows[0][1] == "50.0"
    assert table.rows[0][3] == "50.0"  # a quarter of all trials, half of the altered ones
    none = replace(of(base, alter="negation"), notes=("negation: 0 of 240 captions could be altered (0.0 %)",))
    ((table, _),) = alteration_tables([of(base), none])
    assert table.rows[0] == ("negation", "0.0", "–", "–")


def test_variants_need_the_same_model_and_the_same_trials():
    base = np.tile([1.0, 0.0], (N, 1))
    assert variants([of(base, name="a"), of(base, name="b", alter="negation")], ALTER) == []
    short = evaluate(Ready(base), BISON, name="m", data=ASKED.chosen(np.arange(100)), alter="reversal")
    (variant,) = variants([of(base), short], ALTER)
    with pytest.raises(CrossmatchError, match="240 trials as they are and on 100"):
        changed(variant)


def test_captions_are_compared_on_the_trials_that_all_have():
    right, wrong = [1.0, 0.0], [0.0, 1.0]
    base = np.array([right if n < 120 else wrong for n in range(N)])
    some = evaluate(Ready(np.tile(wrong, (N, 1))), BISON, name="m", data=ASKED.chosen(np.arange(60, 180)), caption="longest")
    ((table, _),) = caption_tables([of(base), some])
    assert table.head[0] == ("", "trials", "chosen", "longest")
    assert table.rows[0][:2] == ("m", "120")
    assert table.rows[0][2].startswith("50.0")
    assert table.rows[0][3].startswith("0.0")


def test_a_variant_without_its_base_has_a_table_of_its_own():
    base = np.tile([1.0, 0.0], (N, 1))
    lone = of(base, caption="longest")
    assert plain([lone, *evaluate_gate([BIVLC], data=[TRIALS])]) == [lone]
    assert plain([lone, of(base)]) != [lone, of(base)]
    assert len(plain([lone, of(base)])) == 1


# The gate


def test_the_gate_passes_on_sound_trials_and_fails_on_a_leak():
    sound = evaluate_gate([BIVLC], data=[TRIALS])
    assert all(v.passed for v in gate_verdicts(sound))
    (table,) = gate_tables(sound)
    assert [row[-1] for row in table.rows] == ["passes"] * 5
    seeded = evaluate("gate:random:7", BIVLC)
    assert all(v.passed for v in gate_verdicts([seeded]))
    assert not gate_tables([evaluate(Fixed(0, 0.4), BIVLC, name="gate:mine")])  # a name of the user's own is no gate
    # a broken evaluation: the random scorer wins far too often
    broken = [evaluate(Fixed(0, 0.4), BIVLC, name="gate:random")]
    assert not all(v.passed for v in gate_verdicts(broken))
    (table,) = gate_tables(broken)
    assert table.rows[0][-1] == "FAILS"
    assert "outside of" in table.notes[0]


def test_the_page_shows_the_alteration_chart_and_the_gate(tmp_path, two):
    base = np.tile([1.0, 0.0], (N, 1))
    results = [*two, of(base), of(base[:, ::-1], alter="permutation"), *evaluate_gate([BIVLC], data=[TRIALS])]
    page = write_report(results, tmp_path / "r.html").read_text()
    assert "predictions changed, percent" in page
    assert "trust gate, quads" in page
    assert "Group by category" in page
    lead = re.search(r'class="lead">([^·]*)', page)[1]
    assert "gate:" not in lead
    assert "which direction" in page or "I2T → T2I" in page
    assert page.count("<h2>") == 5  # two tasks, the alterations, the gap between directions, the gate


def test_the_page_says_aloud_that_the_gate_failed(tmp_path):
    broken = evaluate(Fixed(0, 0.4), BIVLC, name="gate:random")
    page = write_report([evaluate(Fixed(1, 0.5), BIVLC, name="mine"), broken], tmp_path / "r.html").read_text()
    assert re.search(r'class="note">random got .* outside of', page)
