"""Correlation of metrics over models: what goes in, what is refused, and what the table and the picture say."""

import itertools
import json
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner

from crossmatch.cli.correlate import correlate as command
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part, Result, Row, save
from crossmatch.metrics.rank_correlation import kendall_tau_b
from crossmatch.metrics.table import metric
from crossmatch.report.correlate import (
    as_rows,
    correlate,
    correlation_table,
    heat_map,
    label,
    pairs_table,
    published_scoreboard,
    scoreboard,
)
from crossmatch.report.tables import as_text

VALUES = {  # model -> i2t and t2i R@1, i2t and t2i median rank
    "a": (10.0, 30.0, 40, 9),
    "b": (20.0, 20.0, 30, 7),
    "c": (30.0, 40.0, 20, 5),
    "d": (40.0, 50.0, 10, 3),
}


def row(part, name, value, signature="same"):
    return Row(part=part, metric=name, value=float(value), low=0.0, high=1.0, chance=0.0, unit=metric(name).unit, best=1.0, n=5,
               positives=5, ties=0.0, unjudged=None, signature=signature)  # fmt: skip


def result(model, rows, task="own", **options):
    return Result(model, task, f"system|{model}", options, tuple(rows), {}, {}, 10, 0, "expected")


def four(**change):
    keys = (("i2t", "hit@1"), ("t2i", "hit@1"), ("i2t", "median-rank"), ("t2i", "median-rank"))
    return [result(m, [row(*key, v) for key, v in zip(keys, {**VALUES, **change}[m], strict=True)]) for m in VALUES]


def test_directions_are_averaged_as_in_the_papers_or_kept():
    mean, apart = scoreboard(four()), scoreboard(four(), mean_directions=False)
    assert mean.metrics == ("own:mean/hit@1", "own:mean/median-rank")
    assert mean.values[:, 0].tolist() == [20, 20, 35, 45]
    assert apart.metrics == ("own:i2t/hit@1", "own:t2i/hit@1", "own:i2t/median-rank", "own:t2i/median-rank")
    assert mean.models == tuple("abcd")


def test_fewer_ranks_are_better_so_tau_is_of_the_orders_from_best_to_worst():
    found = correlate(scoreboard(four(), mean_directions=False))
    assert found.tau[0, 2] == 1.0  # R@1 rises where the median rank falls
    assert found.tau[1, 2] == pytest.approx(4 / 6)


def test_parts_with_judgements_and_lone_directions_keep_their_names():
    rows = [
        row("i2t/links", "hit@1", 1),
        row("t2i/links", "hit@1", 3),
        row("t2t", "hit@1", 5),
        row("", "rsum", 7),
        row("t2i/x", "hit@1", 9),
    ]
    board = scoreboard([result("a", rows)])
    assert board.metrics == ("own:mean/links/hit@1", "own:t2t/hit@1", "own:rsum", "own:t2i/x/hit@1")
    assert [label(key) for key in board.metrics] == ["own links R@1", "own t2t R@1", "own RSUM", "own t2i x R@1"]
    assert label("pmrp:mean/mean/pmrp@50") == "pmrp mean PMRP@50"  # the mean over zetas stays


def test_a_model_without_one_direction_has_no_mean():
    others = [result(m, [row("i2t", "hit@1", n), row("t2i", "hit@1", n), row("t2t", "hit@1", -n)]) for n, m in enumerate("abc")]
    board = scoreboard([*others, result("d", [row("i2t", "hit@1", 9), row("t2t", "hit@1", 9)])])
    assert board.present.tolist() == [[True, True], [True, True], [True, True], [False, True]]
    found = correlate(board)
    assert found.models.tolist() == [[3, 3], [3, 4]]
    assert found.tau[0, 1] == -1
    assert any("not all models have R@1" in note for note in correlation_table(found).notes)


def test_a_sum_of_floats_breaks_no_tie():
    rows = {"a": (0.1, 0.2), "b": (0.15, 0.15), "c": (0.3, 0.3)}  # 0.1 + 0.2 is not 0.3 in floats
    board = scoreboard(
        [result(m, [row("i2t", "hit@1", x), row("t2i", "hit@1", y), row("t2t", "hit@1", x)]) for m, (x, y) in rows.items()]
    )
    assert board.values[0, 0] == board.values[1, 0]


def test_tau_of_every_two_metrics():
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 6, (7, 4)).astype(float)
    names = ("hit@1", "hit@5", "map@r", "r-precision")
    found = correlate(
        scoreboard(
            [result(f"m{n}", [row("t2t", k, v) for k, v in zip(names, line, strict=True)]) for n, line in enumerate(numbers)]
        )
    )
    for a, b in itertools.combinations(range(4), 2):
        assert found.tau[a, b] == pytest.approx(kendall_tau_b(numbers[:, a], numbers[:, b]))


def test_categories_of_trials_are_metrics_on_request_only():
    rows = [
        row("", "group", 1),
        row("macro", "group", 2),
        row("swap/obj", "group", 3),
        row("t2i", "hit@1", 4),
        row("t2i/links", "hit@1", 5),
    ]
    whole = ("own:group", "own:t2i/hit@1", "own:t2i/links/hit@1")
    assert scoreboard([result("a", rows)]).metrics == whole
    assert set(scoreboard([result("a", rows)], categories=True).metrics) == {*whole, "own:macro/group", "own:swap/obj/group"}


def test_scorers_of_the_gate_are_no_models_and_altered_queries_no_metrics():
    rows = [row("", "accuracy", 50.0)]
    gate = [result(f"gate:{name}", rows) for name in ("random", "constant")]
    varied = [result("a", rows, alter="negation"), result("b", rows, caption="longest")]
    board = scoreboard([*four(), *gate, *varied])
    alone = scoreboard(four())
    assert (board.models, board.metrics) == (alone.models, alone.metrics)
    assert correlation_table(correlate(board)).notes[-1] == "results left out: 2 of scorers of the trust gate, 2 of other queries"
    assert not any("left out" in note for note in correlation_table(correlate(alone)).notes)
    with pytest.raises(CrossmatchError, match="0 models are there; the order"):
        correlate(scoreboard(gate))


# What is refused


def test_two_models_are_too_few():
    with pytest.raises(CrossmatchError, match=r"2 models are there \(a, b\); the order of models can be compared from 3 on"):
        correlate(scoreboard(four()[:2]))
    with pytest.raises(CrossmatchError, match="1 model is there"):
        correlate(scoreboard(four()[:1]))


def test_one_metric_is_too_few():
    with pytest.raises(CrossmatchError, match="needs two metrics"):
        correlate(scoreboard(four()).with_metrics(["hit@1"]))


def test_models_that_share_no_task_cannot_be_ranked():
    lone = [result(m, [row("t2t", "hit@1", 1)], task=f"task-{m}") for m in "abcd"]
    with pytest.raises(CrossmatchError, match="no two metrics have 3 models in common"):
        correlate(scoreboard(lone))


def test_unequal_protocols_are_refused():
    unlike = result("e", [row("i2t", "hit@1", 1, "hit@1|ties:optimistic")])
    first = result("a", [row("i2t", "hit@1", 1, "hit@1|ties:expected")])
    with pytest.raises(CrossmatchError, match="ties:expected against ties:optimistic"):
        scoreboard([first, unlike])


def test_the_same_model_twice_is_refused_and_other_splits_are_other_columns():
    with pytest.raises(CrossmatchError, match="two results of a for own i2t/hit@1"):
        scoreboard([*four(), four()[0]])
    board = scoreboard([*four(), result("a", [row("t2t", "hit@1", 2)], split="val")])
    assert board.metrics[-1] == "own+split=val:t2t/hit@1"


def test_an_unknown_metric_is_refused():
    with pytest.raises(WrongWords, match="no result has 'map@r'; there are hit@1, median-rank"):
        scoreboard(four()).with_metrics(["map@r"])


def test_a_constant_metric_has_no_tau_and_it_is_said():
    level = {m: (*v[:2], 7, 7) for m, v in VALUES.items()}
    found = correlate(scoreboard(four(**level)), samples=20)
    assert found.constant == ("own:mean/median-rank",)
    assert correlation_table(found).rows[0][2:] == ("–", "–")
    assert any("Med r is the same for all models" in note for note in correlation_table(found).notes)
    (pair,) = as_rows(found)
    assert pair["tau"] is None
    assert pair["why"] == "all models that have both are level by one of them"
    assert pairs_table(found).rows[0][2:] == ("–", "–", "–", "4")
    assert "nan" not in json.dumps(as_rows(found)).lower()


# What is shown


def test_the_table_says_how_many_models_and_whose():
    text = as_text(correlation_table(correlate(scoreboard(four()))))
    assert text.splitlines()[0] == "Kendall's τ-b between metrics over 4 models · measured · own"
    assert "moves τ by 0.333" in text
    assert "means of i2t and t2i" in text
    published = as_text(correlation_table(correlate(published_scoreboard())))
    assert "over 25 models · published: chun2022eccv" in published.splitlines()[0]
    assert "57.65" in published


def test_pairs_have_intervals_and_corrected_p():
    found = correlate(published_scoreboard().with_metrics(["hit@1", "map@r"]), samples=200)
    rows = as_rows(found)
    assert len(rows) == 10
    for r in rows:
        assert r["low"] <= r["tau"] <= r["high"]
        assert r["p"] <= r["p_holm"] + 1e-12 <= 1 + 1e-12  # holm() rounds to twelve decimals
        assert r["source"].startswith("published")
    assert "p" not in as_rows(correlate(published_scoreboard()))[0]  # not asked for


def test_where_every_replicate_agrees_the_interval_is_not_to_be_trusted():
    board = scoreboard([result(m, [row("t2t", "hit@1", n), row("t2t", "hit@5", n)]) for n, m in enumerate("abc")])
    table = pairs_table(correlate(board, samples=20))
    assert table.rows[0][2:] == ("1.00", "[1.00, 1.00]", ".333", "3")
    assert any("go by p there" in note for note in table.notes)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_picture_is_drawn_twice_alike(tmp_path, kind):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    found = correlate(published_scoreboard())
    one, two = (heat_map(found, tmp_path / f"{n}.{kind}").read_bytes() for n in (1, 2))
    assert one == two
    assert len(one) > 5000


def test_the_picture_has_every_label_and_number(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    level = {m: (*v[:2], 7, 7) for m, v in VALUES.items()}
    found = correlate(scoreboard(four(**level), mean_directions=False))
    text = [e.text for e in ET.parse(heat_map(found, tmp_path / "x.svg")).iter() if e.tag.endswith("text")]
    assert text.count("i2t R@1") == text.count("t2i R@1") == 2
    assert text.count(".67") == 2  # the one tau, twice
    assert text.count("–") == 10  # what is undefined
    assert any("over 4 models · measured · own" in t for t in text)


def test_other_kinds_of_picture_are_refused(tmp_path):
    with pytest.raises(WrongWords, match=r"x.gif should end in .png, .svg, .pdf"):
        heat_map(correlate(published_scoreboard()), tmp_path / "x.gif")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingDependency, match=r"crossmatch\[report\]"):
        heat_map(correlate(published_scoreboard()), tmp_path / "x.png")


# The command


def call(*words):
    done = CliRunner().invoke(command, [str(w) for w in words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def saved(folder):
    for r in four():
        part = Part(np.array(["q"]), np.array([0]), Outcomes.of(np.zeros((1, 2, 1))))
        save(Result(r.model, r.task, r.system, {}, r.rows, {"": part}, {}, 10, 0, "expected"), folder)


def test_the_command_reads_results(tmp_path):
    saved(tmp_path)
    assert "1  R@1" in call(tmp_path)
    assert "1  i2t R@1" in call(tmp_path, "--by-direction")
    assert call(tmp_path, "--by-category") == call(tmp_path)  # retrieval has none
    (pair,) = json.loads(call(tmp_path, "--json", "--samples", 50))
    assert pair["models"] == 4
    assert pair["low"] <= pair["tau"] <= pair["high"]
    assert "95 %" in call(tmp_path, "--pairs", "--samples", 50)


def test_the_command_gives_the_published_table_and_draws(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    out = call("--published", "-o", tmp_path / "tau.svg")
    assert re.search(r"eccv-caption mAP@R +0\.47", out)
    assert (tmp_path / "tau.svg").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "never mixed"),
        (("--published", "somewhere"), "never mixed"),
        (("--published", "--by-direction"), "means over directions; --by-direction"),
        (("--published", "--by-category"), "means over directions; --by-category"),
        (("--published", "--metrics", "foo"), "no result has 'foo'"),
        (("--published", "-o", "x.gif"), "should end in"),
        (("nowhere",), "there is no nowhere"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_printed(words, says):
    with pytest.raises(WrongWords, match=says):
        call(*words)
