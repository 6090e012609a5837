"""Export and cache on the command line: what is written is what is evaluated, and wrong words end with exit code 2."""

import functools
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from crossmatch.cli.cache import cache_group, cache_options, score_cache
from crossmatch.cli.export import export
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trec import read_qrels, read_run
from crossmatch.diorama.world import Diorama
from crossmatch.models.cache import ScoreCache, cached_matrix, default_folder
from crossmatch.models.shelf import held
from crossmatch.run import evaluate

TASK = "diorama/retrieval"
MAKE = functools.cache(Diorama.make)  # the same small world for every call


@pytest.fixture
def call(monkeypatch, tmp_path):
    """Call a group in this process; gives its standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(Diorama, "make", MAKE)

    def called(group, *words):
        done = CliRunner().invoke(group, [str(w) for w in words], catch_exceptions=True)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == 0, done.output
        return done.output

    return called


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_an_exported_run_is_evaluated_as_the_model_itself(call, direction):
    out = call(export, "run", "-m", "random:3", "-t", TASK, "--size", "tiny", "--direction", direction, "--all", "-o", "new/a.trec")
    assert out.startswith("saved new/a.trec · ")
    ours = evaluate("random:3", TASK, size="tiny", samples=10)
    back = evaluate("precomputed:new/a.trec", TASK, size="tiny", samples=10)
    assert len(back.rows) == len(ours.rows) / 2
    for row in back.rows:
        assert row.value == pytest.approx(ours[row.key].value, abs=1e-12)
        assert row.ties == ours[row.key].ties


def test_the_depth_is_kept_but_never_cuts_through_a_tie(call):
    call(export, "run", "-m", "random", "-t", TASK, "--size", "tiny", "--direction", "t2i", "--depth", 3, "--tag", "mine")
    run = read_run(Path("run.trec"))
    assert run.tag == "mine"
    assert set(np.unique(run.queries, return_counts=True)[1].tolist()) == {3}
    call(export, "run", "-m", "oracle", "-t", TASK, "--size", "tiny", "--direction", "t2i", "--depth", 1)
    said = MAKE("test", size="tiny")
    counts = dict(zip(*np.unique(read_run(Path("run.trec")).queries, return_counts=True), strict=True))
    assert counts == {str(c): int(n) for c, n in zip(said.collection.caption_ids, said.truth.sum(axis=0), strict=True) if n}


def test_exported_judgements_come_back(call):
    world = MAKE("test", size="tiny")
    out = call(export, "qrels", "-t", TASK, "--size", "tiny", "--direction", "t2i", "--judgements", "truth", "-o", "q.txt")
    back = read_qrels(Path("q.txt"), world.collection, "t2i", complete=True)
    true = np.zeros(world.truth.shape, dtype=bool)
    true[back.rows, back.columns] = True
    assert np.array_equal(true, world.truth)
    assert f"{world.truth.sum():,} pairs" in out
    assert "positive from 1 on" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("qrels", "-t", TASK, "--size", "tiny", "--direction", "i2t"), "has the judgements links, truth for i2t. Name one"),
        (("qrels", "-t", TASK, "--size", "tiny", "--direction", "t2t"), "no judgements for t2t; its directions are i2t, t2i"),
        (
            ("qrels", "-t", TASK, "--size", "tiny", "--direction", "i2t", "--judgements", "x"),
            "no judgements 'x' for i2t; it has links",
        ),
        (("run", "-m", "random", "-t", "nothing", "--direction", "i2t"), "there is no task 'nothing'"),
        (("run", "-m", "nobody", "-t", TASK, "--size", "tiny", "--direction", "i2t"), "there is no model 'nobody'"),
    ],
)
def test_wrong_words_are_told_and_nothing_is_left(call, tmp_path, words, says):
    with pytest.raises(WrongWords, match=says):
        call(export, *words)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize("words", [("--depth", "0"), ("--direction", "x2y"), ("--no-cache", "--cache")])
def test_click_refuses_what_it_can(call, words):
    done = CliRunner().invoke(export, ["run", "-m", "random", "-t", TASK, "--direction", "i2t", *words])
    assert done.exit_code == 2


# The cache


def test_the_two_options_mean_a_folder_or_none(call, tmp_path):
    assert score_cache(None, True) is None
    assert score_cache(None, False).folder == default_folder() == tmp_path / "cache" / "crossmatch" / "scores"
    assert score_cache(tmp_path, False).folder == tmp_path
    with pytest.raises(WrongWords, match="contradict each other"):
        score_cache(tmp_path, True)
    assert callable(cache_options(lambda cache, no_cache: None))


def test_the_news_of_the_cache_go_to_standard_error(call, capsys):
    score_cache(None, False).tell("all is there")
    assert capsys.readouterr() == ("", "cache: all is there\n")


def test_what_is_kept_is_listed_and_cleared(call, tmp_path):
    assert "no scores are kept in" in call(cache_group, "list")
    two = Collection.of({"i": ["x"], "j": ["y"]}, open_image=str)
    for system in ("one|v1", "two|v1"):
        cached_matrix(
            lambda images, texts: np.ones((len(images), len(texts))), two, cache=ScoreCache(default_folder()), system=system
        )
    told = call(cache_group, "list")
    assert "one|v1" in told
    assert "2 x 2" in told
    assert "100 %" in told
    assert "removed the scores of 1 models and collections" in call(cache_group, "clear", "--system", "one|v1")
    (left,) = held(default_folder())
    assert left.system == "two|v1"
    assert "removed the scores of 0 models" in call(cache_group, "clear", "--system", "three|v1")
    assert "removed the scores of 1 models" in call(cache_group, "clear", "--system", left.folder.name)
    assert "no scores are kept in" in call(cache_group, "list")


def test_a_failure_of_the_cache_is_one_line(call, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CrossmatchError, match="scores cannot be kept in"):
        cached_matrix(
            lambda i, t: [[0.0]], Collection.of({"i": ["x"]}, open_image=str), cache=ScoreCache(tmp_path / "file"), system="s"
        )


def test_the_choices_are_those_of_the_modules_behind():
    from importlib import import_module

    from crossmatch.core.collection import SIDES
    from crossmatch.core.trec import GRADES

    command = import_module("crossmatch.cli.export")  # the package has a command of the same name
    assert set(command.DIRECTIONS) == set(SIDES)
    assert tuple(command.GRADES) == tuple(GRADES)
