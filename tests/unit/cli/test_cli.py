"""The command line: exit codes, one line for an error, pure JSON, and nothing left behind by a failure."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

from crossmatch import __version__
from crossmatch.cli import cli
from crossmatch.data.result import load_result
from crossmatch.diorama.world import Diorama

SRC = Path(__file__).parents[3] / "src"
TASK = "diorama/retrieval"
MAKE = functools.cache(Diorama.make)  # the same small world for every call
QUICK = ("-t", TASK, "--size", "tiny", "--samples", "10")


@pytest.fixture
def crossmatch(crossmatch, monkeypatch):
    monkeypatch.setattr(Diorama, "make", MAKE)
    return crossmatch


def outside(*arguments, cwd, **environment):
    """Call it as a user does."""
    path = os.pathsep.join(p for p in (str(environment.pop("path", "")), str(SRC)) if p)
    return subprocess.run(
        [sys.executable, "-m", "crossmatch", *arguments], cwd=cwd, capture_output=True, text=True, encoding="utf-8", timeout=120,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )  # fmt: skip


def list_files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


# What works


def test_run_prints_a_table_and_saves(crossmatch, tmp_path):
    code, out, err = crossmatch("run", "-m", "random", *QUICK, "-o", "r")
    assert code == 0
    assert out.splitlines()[0] == f"{TASK} · samples 10 · size tiny"
    assert err == f"saved r/random/{TASK}+samples=10+size=tiny.json · crossmatch report r\n"
    assert list_files(tmp_path) == [f"r/random/{TASK}+samples=10+size=tiny.{end}" for end in ("json", "npz")]


def test_json_output_equals_the_saved_result(crossmatch, tmp_path):
    code, out, err = crossmatch("run", "-m", "random", *QUICK, "--json")
    assert code == 0
    parsed = json.loads(out)
    saved = load_result(tmp_path / "results" / "random" / f"{TASK}+samples=10+size=tiny.json")
    assert parsed == {TASK: saved.as_json()}
    assert len(err.splitlines()) == 1


def test_json_output_survives_a_hostile_terminal(tmp_path):
    process = outside(
        "run", "-m", "random", *QUICK, "--json", cwd=tmp_path, PYTHONIOENCODING="ascii", COLUMNS="10", TERM="dumb", NO_COLOR="1"
    )
    assert process.returncode == 0
    assert TASK in json.loads(process.stdout)


def test_several_models_are_evaluated_in_one_run(crossmatch, tmp_path):
    code, out, _ = crossmatch("run", "-m", "random", "-m", "oracle", "-t", TASK, "--size", "tiny", "--samples", "10", "--json")
    assert code == 0
    assert list(json.loads(out)) == ["random", "oracle"]
    assert json.loads(out)["oracle"][TASK]["t2i/truth/hit@1"] == 100.0
    assert {path.parts[-3] for path in (tmp_path / "results").rglob("*.json")} == {"random", "oracle"}


def test_the_options_reach_the_evaluation(crossmatch, tmp_path):
    arguments = ("--metrics", "hit@3, map@r", "--ties", "pessimistic", "--seed", "4", "--split", "val", "--name", "me & you")
    code, out, _ = crossmatch("run", "-m", "random:2", *QUICK, *arguments, "--json")
    assert code == 0
    result = load_result(next((tmp_path / "results").glob(f"me-you~*/{TASK}+metrics=hit@3,map@r+*.json")))
    assert (result.model, result.ties, result.seed, result.samples) == ("me & you", "pessimistic", 4, 10)
    assert result.options == {
        "split": "val", "size": "tiny", "ties": "pessimistic", "samples": "10", "seed": "4", "metrics": "hit@3,map@r",
    }  # fmt: skip
    assert result.system == "system|random|seed:2"
    assert {key.rsplit("/", 1)[1] for key in json.loads(out)[TASK]} == {"hit@3", "map@r"}


def test_compare_and_report_read_what_run_wrote(crossmatch, tmp_path):
    for model in ("random", "oracle"):
        assert crossmatch("run", "-m", model, *QUICK, "--metrics", "hit@5")[0] == 0
    code, out, err = crossmatch("compare", "results/random", "results/oracle")
    assert (code, err) == (0, "")
    assert f"{TASK}: oracle minus random" in out
    code, out, err = crossmatch("compare", "results/random", "results/oracle", "--json")
    rows = json.loads(out)
    assert (code, err) == (0, "")
    assert {r["metric"] for r in rows} == {f"{d}/{s}/hit@5" for d in ("i2t", "t2i") for s in ("links", "truth")}
    assert all(r["first"] == "random" and r["second"] == "oracle" and 0 < r["p"] <= r["p_holm"] <= 1 for r in rows)
    code, out, err = crossmatch("report", "results", "-o", "page/report.html")
    assert (code, out, err) == (0, "page/report.html\n", "")
    assert (tmp_path / "page" / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "tasks"), TASK),
        (("list", "models"), "precomputed:FILE"),
        (("list", "metrics"), "map@r"),
        pytest.param(("doctor",), __version__, marks=pytest.mark.torch),
        (("--version",), __version__),
        (("--help",), "compare"),
        (("-h",), "compare"),
        (("run", "--help"), "--ties"),
        (("train", "--help"), "RECIPE"),
        (("train", "dual", "-h"), "--epochs"),
        (("demo", "--help"), "--size"),
        (("report", "--help"), "--output"),
    ],
)
def test_listings_go_to_standard_output(crossmatch, tmp_path, arguments, message):
    code, out, err = crossmatch(*arguments)
    assert (code, err) == (0, "")
    assert message in out
    assert list_files(tmp_path) == []


def test_every_command_fits_one_line_of_80_columns_in_the_list():
    groups = [(cli, click.Context(cli))]
    while groups:
        group, context = groups.pop()
        names = group.list_commands(context)
        for name in names:
            command = group.get_command(context, name)
            text = command.get_short_help_str(80 - 6 - max(map(len, names)))
            assert text.endswith(".") and not text.endswith("..."), (name, text)  # noqa: PT018
            if isinstance(command, click.Group):
                groups.append((command, click.Context(command, parent=context, info_name=name)))


def test_every_listed_name_can_be_used(crossmatch):
    from crossmatch.benchmarks import list_benchmarks
    from crossmatch.metrics.metric_table import METRICS
    from crossmatch.models import families

    listed = {what: crossmatch("list", what)[1] for what in ("tasks", "models", "metrics")}
    assert all(name in listed["tasks"] for name in list_benchmarks())
    assert all(name in listed["models"] for name in families())
    assert all(name.partition("@")[0] in listed["metrics"] for name in METRICS)


def test_the_module_runs_and_standard_error_is_quiet_when_piped(tmp_path):
    process = outside("run", "-m", "random", *QUICK, "--metrics", "hit@1", cwd=tmp_path)
    assert process.returncode == 0
    assert process.stderr.splitlines() == [
        f"saved results/random/{TASK}+metrics=hit@1+samples=10+size=tiny.json · crossmatch report results"
    ]


def test_closed_pipe_is_no_failure(tmp_path):
    command = f"'{sys.executable}' -m crossmatch list metrics | head -c 1"
    process = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(SRC)})  # fmt: skip
    assert process.stderr == ""


# What fails: one line, the right code, nothing left behind


def damaged_npz(folder):
    (folder / "bad.npz").write_bytes(b"PK\x03\x04 not really")


def scores_of_another_split(folder):
    np.savez(folder / "val.npz", image_ids=["val-0", "val-1"], caption_ids=["val-0#0"], scores=np.zeros((2, 1)))


def shallow_run(folder):
    lines = [f"test-{n:05d} Q0 test-{n:05d}#{k} 1 {k} t" for n in range(50) for k in range(2)]
    (folder / "short.trec").write_text("\n".join(lines))


def a_file_called_results(folder):
    (folder / "taken").write_text("a file")


def damaged_result(folder):
    (folder / "res" / "m").mkdir(parents=True)
    (folder / "res" / "m" / "t.json").write_text("{")
    (folder / "res" / "m" / "t.npz").write_bytes(b"")


WRONG = [
    (("nope",), 2, "No such command 'nope'"),
    (("run",), 2, "Missing option"),
    (("run", "-m", "random"), 2, "Missing option"),
    (("run", "-m", "random", "-t", "diorama/retreival"), 2, "Did you mean 'diorama/retrieval'"),
    (("run", "-m", "random", "-t", ""), 2, "task"),
    (("run", "-m", "random", "-t", " , "), 2, "task"),
    (("run", "-m", "randm", *QUICK), 2, "Did you mean 'random'"),
    (("run", "-m", "", *QUICK), 2, "there is no model ''"),
    (("run", "-m", "random:x", *QUICK), 2, "whole number"),
    (("run", "-m", "oracle:x", *QUICK), 2, "oracle"),
    (("run", "-m", "precomputed", *QUICK), 2, "needs a file"),
    (("run", "-m", "precomputed:no.npz", *QUICK), 2, "no.npz: there is no such file"),
    (("run", "-m", "precomputed:.", *QUICK), 2, "no such file"),
    (("run", "-m", "random", *QUICK, "--metrics", "map@rr"), 2, "Did you mean 'map@r'"),
    (("run", "-m", "random", *QUICK, "--metrics", ","), 2, "no metric"),
    (("run", "-m", "random", *QUICK, "--metrics", "hit@0"), 2, "must be between 1 and"),
    (("run", "-m", "random", *QUICK, "--metrics", "hit@" + "9" * 30), 2, "hit@"),
    (("run", "-m", "random", *QUICK, "--metrics", "ndcg@" + "9" * 15), 2, "ndcg@"),
    (("run", "-m", "random", *QUICK, "--samples", "1"), 2, "--samples"),
    (("run", "-m", "random", *QUICK, "--samples", "many"), 2, "--samples"),
    (("run", "-m", "random", *QUICK, "--seed", "-1"), 2, "seed"),
    (("run", "-m", "random", *QUICK, "--ties", "lucky"), 2, "--ties"),
    (("run", "-m", "random", *QUICK, "--split", "tset"), 2, "Unknown diorama split 'tset'"),
    (("run", "-m", "random", "-t", TASK, "--size", "huge"), 2, "Unknown diorama size 'huge'"),
    (("run", "-m", "random", *QUICK, "--size", "tiny"), 2, "--size was given 2 times"),
    (("run", "-m", "random", "-m", "random", *QUICK), 2, "same model twice"),
    (("run", "-m", "random", "-m", "oracle", *QUICK, "--name", "a"), 2, "--name was given 1 times for 2 models"),
    (("list", "nope"), 2, "'nope' is not one of"),
    (("run", "-m", "random", *QUICK, "--nmae", "x"), 2, "No such option"),
    (("run", "-m", "random", *QUICK, "extra"), 2, "extra"),
    (("compare",), 2, "Missing argument"),
    (("compare", "nowhere"), 2, "nowhere does not exist"),
    (("compare", "."), 2, "no results below"),
    (("report",), 2, "Missing argument"),
    (("report", "nowhere"), 2, "nowhere does not exist"),
    (("report", "nowhere", "-o", "."), 2, "is a directory"),
    (("demo", "--size", "huge"), 2, "Unknown diorama size 'huge'"),
    (("train", "bert", "-o", "x"), 2, "there is no recipe 'bert'"),
    (("train", "dual"), 2, "Missing option"),
    (("train", "dual", "-o", "x", "--images", "1"), 2, "--images"),
    (("train", "dual", "-o", "x", "--epochs", "0"), 2, "--epochs"),
]


def wrong_case(arguments, code, message):
    marks = [pytest.mark.torch] if arguments[:1] in (("demo",), ("train",)) else []
    return pytest.param(arguments, code, message, id=" ".join(arguments)[:70] or "nothing", marks=marks)


@pytest.mark.parametrize(("arguments", "code", "message"), [wrong_case(*case) for case in WRONG])
def test_wrong_usage_exits_with_2_and_one_line(crossmatch, tmp_path, arguments, code, message):
    actual_code, out, err = crossmatch(*arguments)
    assert (actual_code, out) == (code, "")
    assert_one_line(err, message)
    assert list_files(tmp_path) == []


FAILING = [
    (damaged_npz, ("run", "-m", "precomputed:bad.npz", *QUICK), "bad.npz: "),
    (scores_of_another_split, ("run", "-m", "precomputed:val.npz", *QUICK), "first missing: 'test-00000'"),
    (
        shallow_run,
        ("run", "-m", "precomputed:short.trec", *QUICK, "--metrics", "hit@5"),
        "lists 2 candidates for query 'test-00000', but hit@5 needs 5",
    ),
    (a_file_called_results, ("run", "-m", "random", *QUICK, "-o", "taken"), "taken"),
    (a_file_called_results, ("run", "-m", "random", *QUICK, "-o", "taken/deeper"), "taken"),
    (a_file_called_results, ("report", "taken"), "taken is not a crossmatch result"),
    (a_file_called_results, ("compare", "taken", "taken"), "taken is not a crossmatch result"),
    (damaged_result, ("report", "res"), "damaged"),
    (damaged_result, ("compare", "res"), "damaged"),
]


@pytest.mark.parametrize(("prepare", "arguments", "message"), FAILING, ids=[f"{p.__name__} {w[0]}" for p, w, _ in FAILING])
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_failed_work_exits_with_1_and_one_line(crossmatch, tmp_path, prepare, arguments, message):
    prepare(tmp_path)
    before = list_files(tmp_path)
    actual_code, out, err = crossmatch(*arguments)
    assert (actual_code, out) == (1, "")
    assert_one_line(err, message)
    assert list_files(tmp_path) == before


def assert_one_line(err, message):
    assert err.startswith("crossmatch: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    assert message in err
    assert "Traceback" not in err
    assert len(err) < 600


@pytest.mark.parametrize("arguments", [(), ("train",)], ids=["nothing", "train"])
def test_command_without_arguments_prints_its_help(crossmatch, arguments):
    """Lines, as `--help` has them; not the page squeezed into one line of an error."""
    code, out, err = crossmatch(*arguments)
    assert code in (0, 2)
    assert len((out or err).splitlines()) > 3 or len(err) < 300


def test_an_error_message_with_line_breaks_is_still_one_line(crossmatch):
    code, _, err = crossmatch("run", "-m", "a\nb\nc", *QUICK)
    assert code == 2
    assert_one_line(err, "there is no model")


def test_incomparable_results_exit_with_1(crossmatch):
    assert crossmatch("run", "-m", "random", *QUICK, "--metrics", "hit@1")[0] == 0
    assert crossmatch("run", "-m", "oracle", *QUICK, "--metrics", "hit@1", "--ties", "optimistic")[0] == 0
    code, out, err = crossmatch("compare", "results")
    assert (code, out) == (1, "")
    assert_one_line(err, "ties:")
    code, _, err = crossmatch("compare", "results/oracle")
    assert code == 2
    assert_one_line(err, "needs two models")


def test_two_results_of_one_name_are_compared_or_named(crossmatch):
    """Two results called `random` in two folders: the message must not ask for two folders."""
    assert crossmatch("run", "-m", "random:1", "--name", "m", *QUICK, "--metrics", "hit@1", "-o", "a")[0] == 0
    assert crossmatch("run", "-m", "random:2", "--name", "m", *QUICK, "--metrics", "hit@1", "-o", "b")[0] == 0
    code, _, err = crossmatch("compare", "a", "b")
    assert code == 0 or "Name two folders" not in err


def test_failure_in_a_subprocess_has_no_traceback(tmp_path):
    (tmp_path / "x.csv").write_text("trial_id,s_c0_i0,s_c0_i1\n1,2,3\n")
    process = outside("run", "-m", "precomputed:x.csv", *QUICK, cwd=tmp_path)
    assert (process.returncode, process.stdout) == (1, "")
    assert_one_line(process.stderr, "retrieval benchmark")


def test_huge_embeddings_give_one_line_and_no_warning(tmp_path):
    images, captions = [f"test-{n:05d}" for n in range(50)], [f"test-{n:05d}#{k}" for n in range(50) for k in range(5)]
    vectors = np.random.default_rng(0).standard_normal((250, 4)) * 1e200
    np.savez(
        tmp_path / "long.npz", image_ids=images, image_embeddings=vectors[:50], caption_ids=captions, caption_embeddings=vectors
    )
    process = outside("run", "-m", "precomputed:long.npz", *QUICK, cwd=tmp_path)
    assert process.returncode == 0 or process.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("library", "arguments", "extra"),
    [
        ("sqlalchemy", ("study", "status", "S"), "study"),
        ("sqlalchemy", ("study", "simulate", "S"), "study"),
        ("torch", ("train", "vse0", "-o", "x"), "models"),
    ],
)
def test_missing_library_names_its_extra(tmp_path, library, arguments, extra):
    code = f"import sys; sys.modules[{library!r}] = None; from crossmatch.cli import main; sys.argv = {['crossmatch', *arguments]}; main()"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SRC)}
    )
    assert process.returncode == 1
    assert_one_line(process.stderr, f"pip install 'crossmatch[{extra}]'")


# Plugins


def plugin(folder, code):
    """A package with an entry point, as pip would install it."""
    (folder / "their_plugin.py").write_text(code)
    about = folder / "their_plugin-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-plugin\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[crossmatch]\nthing = their_plugin:THING\n")


TRIALS = """
from crossmatch.data.benchmark import Benchmark
from crossmatch.data.trials import Trials
THING = Benchmark("coins", "heads or tails", lambda: Trials(["a", "b"], [["x", "y"]] * 2, [["c"]] * 2, ["k"] * 2), ("t2i",))
"""


def test_a_plugged_in_task_is_listed_and_run(tmp_path):
    plugin(tmp_path, TRIALS)
    assert "coins" in outside("list", "tasks", cwd=tmp_path, path=tmp_path).stdout
    (tmp_path / "s.csv").write_text("trial_id,s_c0_i0,s_c0_i1\na,2,1\nb,1,2\n")
    process = outside("run", "-m", "precomputed:s.csv", "-t", "coins", "--json", cwd=tmp_path, path=tmp_path)
    assert (process.returncode, json.loads(process.stdout)) == (0, {"coins": {"t2i": 50.0}})


def test_a_broken_plugin_is_named_and_gives_no_traceback(tmp_path):
    plugin(tmp_path, "import a_package_that_is_not_there\n")
    process = outside("list", "tasks", cwd=tmp_path, path=tmp_path)
    assert "Traceback" not in process.stderr
    assert process.returncode == 0 or "thing" in process.stderr or "their" in process.stderr
