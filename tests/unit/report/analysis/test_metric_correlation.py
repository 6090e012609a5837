"""Correlation of metrics over models: the scoreboard, errors, tables and the heat map."""

import itertools
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner

from crossmatch.cli.analyse import correlate as command
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.result import Result, ResultPart, ResultRow, save_result
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.correlation.kendall_tau import kendall_tau_b
from crossmatch.metrics.metric_table import metric
from crossmatch.report.analysis.metric_correlation import (
    build_scoreboard,
    correlate_metrics,
    correlation_rows,
    correlation_table,
    metric_label,
    pairs_table,
    published_scoreboard,
    write_heat_map,
)
from crossmatch.report.tables import format_table

VALUES = {  # model -> i2t and t2i R@1, i2t and t2i median rank
    "a": (10.0, 30.0, 40, 9),
    "b": (20.0, 20.0, 30, 7),
    "c": (30.0, 40.0, 20, 5),
    "d": (40.0, 50.0, 10, 3),
}


def row(part, name, value, signature="same"):
    return ResultRow(part=part, metric=name, value=float(value), low=0.0, high=1.0, chance=0.0, unit=metric(name).unit, best=1.0, n=5,
               positives=5, ties=0.0, unjudged=None, signature=signature)  # fmt: skip


def result(model, rows, task="own", **options):
    return Result(model, task, f"system|{model}", options, tuple(rows), {}, {}, 10, 0, "expected")


def four_results(**change):
    keys = (("i2t", "hit@1"), ("t2i", "hit@1"), ("i2t", "median-rank"), ("t2i", "median-rank"))
    return [result(m, [row(*key, v) for key, v in zip(keys, {**VALUES, **change}[m], strict=True)]) for m in VALUES]


def test_directions_are_averaged_or_separate():
    mean, apart = build_scoreboard(four_results()), build_scoreboard(four_results(), mean_directions=False)
    assert mean.metrics == ("own:mean/hit@1", "own:mean/median-rank")
    assert mean.values[:, 0].tolist() == [20, 20, 35, 45]
    assert apart.metrics == ("own:i2t/hit@1", "own:t2i/hit@1", "own:i2t/median-rank", "own:t2i/median-rank")
    assert mean.models == tuple("abcd")


def test_metrics_where_lower_is_better_are_negated():
    correlation = correlate_metrics(build_scoreboard(four_results(), mean_directions=False))
    assert correlation.tau[0, 2] == 1.0  # R@1 rises where the median rank falls
    assert correlation.tau[1, 2] == pytest.approx(4 / 6)


def test_single_directions_keep_their_names():
    rows = [
        row("i2t/links", "hit@1", 1),
        row("t2i/links", "hit@1", 3),
        row("t2t", "hit@1", 5),
        row("", "rsum", 7),
        row("t2i/x", "hit@1", 9),
    ]
    board = build_scoreboard([result("a", rows)])
    assert board.metrics == ("own:mean/links/hit@1", "own:t2t/hit@1", "own:rsum", "own:t2i/x/hit@1")
    assert [metric_label(key) for key in board.metrics] == ["own links R@1", "own t2t R@1", "own RSUM", "own t2i x R@1"]
    assert metric_label("pmrp:mean/mean/pmrp@50") == "pmrp mean PMRP@50"  # the mean over zetas stays


def test_a_model_without_one_direction_has_no_mean():
    others = [result(m, [row("i2t", "hit@1", n), row("t2i", "hit@1", n), row("t2t", "hit@1", -n)]) for n, m in enumerate("abc")]
    board = build_scoreboard([*others, result("d", [row("i2t", "hit@1", 9), row("t2t", "hit@1", 9)])])
    assert board.present.tolist() == [[True, True], [True, True], [True, True], [False, True]]
    correlation = correlate_metrics(board)
    assert correlation.models.tolist() == [[3, 3], [3, 4]]
    assert correlation.tau[0, 1] == -1
    assert any("not all models have R@1" in note for note in correlation_table(correlation).notes)


def test_mean_of_directions_does_not_break_ties():
    rows = {"a": (0.1, 0.2), "b": (0.15, 0.15), "c": (0.3, 0.3)}  # 0.1 + 0.2 is not 0.3 in floats
    board = build_scoreboard(
        [result(m, [row("i2t", "hit@1", x), row("t2i", "hit@1", y), row("t2t", "hit@1", x)]) for m, (x, y) in rows.items()]
    )
    assert board.values[0, 0] == board.values[1, 0]


def test_tau_equals_kendall_of_each_pair():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 6, (7, 4)).astype(float)
    names = ("hit@1", "hit@5", "map@r", "r-precision")
    correlation = correlate_metrics(
        build_scoreboard(
            [result(f"m{n}", [row("t2t", k, v) for k, v in zip(names, line, strict=True)]) for n, line in enumerate(numbers)]
        )
    )
    for a, b in itertools.combinations(range(4), 2):
        assert correlation.tau[a, b] == pytest.approx(kendall_tau_b(numbers[:, a], numbers[:, b]))


def test_categories_are_columns_only_on_request():
    rows = [
        row("", "group", 1),
        row("macro", "group", 2),
        row("swap/obj", "group", 3),
        row("t2i", "hit@1", 4),
        row("t2i/links", "hit@1", 5),
    ]
    whole = ("own:group", "own:t2i/hit@1", "own:t2i/links/hit@1")
    assert build_scoreboard([result("a", rows)]).metrics == whole
    assert set(build_scoreboard([result("a", rows)], categories=True).metrics) == {*whole, "own:macro/group", "own:swap/obj/group"}


def test_gate_scorers_and_altered_queries_are_omitted():
    rows = [row("", "accuracy", 50.0)]
    gate = [result(f"gate:{name}", rows) for name in ("random", "constant")]
    variants = [result("a", rows, alter="negation"), result("b", rows, caption="longest")]
    board = build_scoreboard([*four_results(), *gate, *variants])
    alone = build_scoreboard(four_results())
    assert (board.models, board.metrics) == (alone.models, alone.metrics)
    assert correlation_table(correlate_metrics(board)).notes[-1] == "omitted results: 2 of gate scorers, 2 of other queries"
    assert not any("omitted" in note for note in correlation_table(correlate_metrics(alone)).notes)
    with pytest.raises(CrossmatchError, match="at least 3 models, got 0"):
        correlate_metrics(build_scoreboard(gate))


# Errors


def with_ties(model, ties):
    return result(model, [row("i2t", "hit@1", 1, f"hit@1|ties:{ties}")])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: correlate_metrics(build_scoreboard(four_results()[:2])), r"needs at least 3 models, got 2 \(a, b\)"),
        (lambda: correlate_metrics(build_scoreboard(four_results()[:1])), "at least 3 models, got 1"),
        (lambda: correlate_metrics(build_scoreboard(four_results()).with_metrics(["hit@1"])), "needs at least two metrics"),
        (
            lambda: correlate_metrics(build_scoreboard([result(m, [row("t2t", "hit@1", 1)], task=f"task-{m}") for m in "abcd"])),
            "No two metrics have 3 models in common",
        ),
        (
            lambda: build_scoreboard([with_ties("a", "expected"), with_ties("e", "optimistic")]),
            "ties:expected and ties:optimistic",
        ),
        (lambda: build_scoreboard([*four_results(), four_results()[0]]), "two results of a for own i2t/hit@1"),
    ],
)
def test_invalid_scoreboards_are_an_error(call, message):
    with pytest.raises(CrossmatchError, match=message):
        call()


def test_unknown_metric_is_a_usage_error():
    with pytest.raises(UsageError, match="No result has the metric 'map@r'. Choose from: hit@1, median-rank"):
        build_scoreboard(four_results()).with_metrics(["map@r"])


def test_results_on_another_split_are_other_columns():
    board = build_scoreboard([*four_results(), result("a", [row("t2t", "hit@1", 2)], split="val")])
    assert board.metrics[-1] == "own+split=val:t2t/hit@1"


def test_constant_metric_has_no_tau():
    constant = {m: (*v[:2], 7, 7) for m, v in VALUES.items()}
    correlation = correlate_metrics(build_scoreboard(four_results(**constant)), samples=20)
    assert correlation.constant == ("own:mean/median-rank",)
    assert correlation_table(correlation).rows[0][2:] == ("–", "–")
    assert any("Med r is the same for all models" in note for note in correlation_table(correlation).notes)
    (pair,) = correlation_rows(correlation)
    assert pair["tau"] is None
    assert pair["why"] == "all models that have both are tied by one of them"
    assert pairs_table(correlation).rows[0][2:] == ("–", "–", "–", "4")
    assert "nan" not in json.dumps(correlation_rows(correlation)).lower()


# Tables and heat map


def test_title_has_number_of_models_and_source():
    text = format_table(correlation_table(correlate_metrics(build_scoreboard(four_results()))))
    assert text.splitlines()[0] == "Kendall's τ-b between metrics over 4 models · measured · own"
    assert "changes τ by 0.333" in text
    assert "means of i2t and t2i" in text
    published = format_table(correlation_table(correlate_metrics(published_scoreboard())))
    assert "over 25 models · published: chun2022eccv" in published.splitlines()[0]
    assert "57.65" in published


def test_pairs_have_intervals_and_corrected_p():
    correlation = correlate_metrics(published_scoreboard().with_metrics(["hit@1", "map@r"]), samples=200)
    rows = correlation_rows(correlation)
    assert len(rows) == 10
    for r in rows:
        assert r["low"] <= r["tau"] <= r["high"]
        assert r["p"] <= r["p_holm"] + 1e-12 <= 1 + 1e-12  # holm() rounds to twelve decimals
        assert r["source"].startswith("published")
    assert "p" not in correlation_rows(correlate_metrics(published_scoreboard()))[0]  # not asked for


def test_interval_of_perfect_correlation_has_a_warning():
    board = build_scoreboard([result(m, [row("t2t", "hit@1", n), row("t2t", "hit@5", n)]) for n, m in enumerate("abc")])
    table = pairs_table(correlate_metrics(board, samples=20))
    assert table.rows[0][2:] == ("1.00", "[1.00, 1.00]", ".333", "3")
    assert any("use p" in note for note in table.notes)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_heat_map_is_reproducible(tmp_path, kind):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    correlation = correlate_metrics(published_scoreboard())
    first, second = (write_heat_map(correlation, tmp_path / f"{n}.{kind}").read_bytes() for n in (1, 2))
    assert first == second
    assert len(first) > 5000


def test_heat_map_has_every_label_and_number(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    constant = {m: (*v[:2], 7, 7) for m, v in VALUES.items()}
    correlation = correlate_metrics(build_scoreboard(four_results(**constant), mean_directions=False))
    text = [e.text for e in ET.parse(write_heat_map(correlation, tmp_path / "x.svg")).iter() if e.tag.endswith("text")]
    assert text.count("i2t R@1") == text.count("t2i R@1") == 2
    assert text.count(".67") == 2  # the one tau, twice
    assert text.count("–") == 10  # what is undefined
    assert any("over 4 models · measured · own" in t for t in text)


def test_unknown_image_suffix_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"x.gif: the name of an image must end in .png, .svg, .pdf"):
        write_heat_map(correlate_metrics(published_scoreboard()), tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


def test_missing_matplotlib_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"crossmatch\[report\]"):
        write_heat_map(correlate_metrics(published_scoreboard()), tmp_path / "x.png")


# Command line


def run_command(*arguments):
    outcome = CliRunner().invoke(command, [str(w) for w in arguments])
    if outcome.exception and not isinstance(outcome.exception, SystemExit):
        raise outcome.exception
    return outcome.stdout


def save_four_results(folder):
    for r in four_results():
        part = ResultPart(np.array(["q"]), np.array([0]), Outcomes.from_scores(np.zeros((1, 2, 1))))
        save_result(Result(r.model, r.task, r.system, {}, r.rows, {"": part}, {}, 10, 0, "expected"), folder)


def test_command_reads_results(tmp_path):
    save_four_results(tmp_path)
    assert "1  R@1" in run_command(tmp_path)
    assert "1  i2t R@1" in run_command(tmp_path, "--by-direction")
    assert run_command(tmp_path, "--by-category") == run_command(tmp_path)  # retrieval has none
    (pair,) = json.loads(run_command(tmp_path, "--json", "--samples", 50))
    assert pair["models"] == 4
    assert pair["low"] <= pair["tau"] <= pair["high"]
    assert "95 %" in run_command(tmp_path, "--pairs", "--samples", 50)


def test_command_writes_the_published_table_and_figure(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    out = run_command("--published", "-o", tmp_path / "tau.svg")
    assert re.search(r"eccv-caption mAP@R +0\.47", out)
    assert (tmp_path / "tau.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "but not both"),
        (("--published", "somewhere"), "but not both"),
        (("--published", "--by-direction"), "--by-direction works only with your own results"),
        (("--published", "--by-category"), "--by-category works only with your own results"),
        (("--published", "--metrics", "foo"), "No result has the metric 'foo'"),
        (("--published", "-o", "x.gif"), "must end in"),
        (("nowhere",), "nowhere does not exist"),
    ],
)
def test_invalid_arguments_are_an_error(arguments, message):
    with pytest.raises(UsageError, match=message):
        run_command(*arguments)
