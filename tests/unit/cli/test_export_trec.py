"""Export and cache on the command line: what is written is what is evaluated, and wrong words end with exit code 2."""

import functools
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from crossmatch.cli.cache import cache_command, cache_options, score_cache
from crossmatch.cli.export_trec import export
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.diorama.world import Diorama
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.models.cache import Cache, default_cache_folder
from crossmatch.models.cache.cross_encoder_scores import score_matrix
from crossmatch.ranking.trec_files import read_qrels, read_run

TASK = "diorama/retrieval"
MAKE = functools.cache(Diorama.make)  # the same small world for every call


@pytest.fixture
def call(monkeypatch, tmp_path):
    """Call a group in this process; gives its standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(Diorama, "make", MAKE)

    def called(group, *arguments):
        process = CliRunner().invoke(group, [str(w) for w in arguments], catch_exceptions=True)
        if process.exception is not None and not isinstance(process.exception, SystemExit):
            raise process.exception
        assert process.exit_code == 0, process.output
        return process.output

    return called


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_exported_run_scores_like_the_model(call, direction):
    out = call(export, "run", "-m", "random:3", "-t", TASK, "--size", "tiny", "--direction", direction, "--all", "-o", "new/a.trec")
    assert out.startswith("saved new/a.trec · ")
    ours = evaluate("random:3", TASK, size="tiny", samples=10)
    reloaded = evaluate("precomputed:new/a.trec", TASK, size="tiny", samples=10)
    assert len(reloaded.rows) == len(ours.rows) / 2
    for row in reloaded.rows:
        assert row.value == pytest.approx(ours[row.key].value, abs=1e-12)
        assert row.ties == ours[row.key].ties


def test_depth_never_cuts_a_tie(call):
    call(export, "run", "-m", "random", "-t", TASK, "--size", "tiny", "--direction", "t2i", "--depth", 3, "--tag", "mine")
    run = read_run(Path("run.trec"))
    assert run.tag == "mine"
    assert set(np.unique(run.queries, return_counts=True)[1].tolist()) == {3}
    call(export, "run", "-m", "oracle", "-t", TASK, "--size", "tiny", "--direction", "t2i", "--depth", 1)
    world = MAKE("test", size="tiny")
    counts = dict(zip(*np.unique(read_run(Path("run.trec")).queries, return_counts=True), strict=True))
    assert counts == {str(c): int(n) for c, n in zip(world.collection.caption_ids, world.truth.sum(axis=0), strict=True) if n}


def test_exported_judgements_round_trip(call):
    world = MAKE("test", size="tiny")
    out = call(export, "qrels", "-t", TASK, "--size", "tiny", "--direction", "t2i", "--judgements", "truth", "-o", "q.txt")
    reloaded = read_qrels(Path("q.txt"), world.collection, "t2i", complete=True)
    true = np.zeros(world.truth.shape, dtype=bool)
    true[reloaded.rows, reloaded.columns] = True
    assert np.array_equal(true, world.truth)
    assert f"{world.truth.sum():,} pairs" in out
    assert "positive from 1" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("qrels", "-t", TASK, "--size", "tiny", "--direction", "i2t"), "has the judgements links, truth for i2t. Choose one"),
        (("qrels", "-t", TASK, "--size", "tiny", "--direction", "t2t"), "no judgements for t2t; its directions are i2t, t2i"),
        (
            ("qrels", "-t", TASK, "--size", "tiny", "--direction", "i2t", "--judgements", "x"),
            "has no 'x' for i2t; it has links",
        ),
        (("run", "-m", "random", "-t", "nothing", "--direction", "i2t"), "there is no task 'nothing'"),
        (("run", "-m", "nobody", "-t", TASK, "--size", "tiny", "--direction", "i2t"), "there is no model 'nobody'"),
    ],
)
def test_wrong_usage_is_reported_and_writes_nothing(call, tmp_path, arguments, message):
    with pytest.raises(UsageError, match=message):
        call(export, *arguments)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize("arguments", [("--depth", "0"), ("--direction", "x2y"), ("--no-cache", "--cache")])
def test_bad_option_values_exit_with_2(call, arguments):
    process = CliRunner().invoke(export, ["run", "-m", "random", "-t", TASK, "--direction", "i2t", *arguments])
    assert process.exit_code == 2


# The cache


def test_cache_options_choose_a_folder_or_none(call, tmp_path):
    assert score_cache(None, True) is None
    assert score_cache(None, False).folder == default_cache_folder() == tmp_path / "cache" / "crossmatch" / "cache"
    assert score_cache(tmp_path, False).folder == tmp_path
    with pytest.raises(UsageError, match="contradict each other"):
        score_cache(tmp_path, True)
    assert callable(cache_options(lambda cache, no_cache: None))


def test_cache_messages_go_to_standard_error(call, capsys):
    score_cache(None, False).notify("all is there")
    assert capsys.readouterr() == ("", "cache: all is there\n")


def test_cached_entries_are_listed_and_cleared(call, tmp_path):
    assert "is empty" in call(cache_command)
    two = Collection.from_captions({"i": ["x"], "j": ["y"]}, open_image=str)
    for system in ("one|v1", "two|v1"):
        score_matrix(
            lambda images, texts: np.ones((len(images), len(texts))), two, cache=Cache(default_cache_folder()), system=system
        )
    listing = call(cache_command)
    assert "one|v1" in listing
    assert "2 x 2" in listing
    assert "100 %" in listing
    assert "removed 1 entries" in call(cache_command, "--clear", "--model", "one|v1")
    (remaining,) = Cache(default_cache_folder()).summaries()
    assert remaining.system == "two|v1"
    assert "removed 0 entries" in call(cache_command, "--clear", "--model", "three|v1")
    assert "removed 1 entries" in call(cache_command, "--clear", "--model", remaining.folder.name)
    assert "is empty" in call(cache_command)


def test_cache_failure_is_one_line(call, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CrossmatchError, match="cannot write to the cache in"):
        score_matrix(
            lambda i, t: [[0.0]], Collection.from_captions({"i": ["x"]}, open_image=str), cache=Cache(tmp_path / "file"), system="s"
        )


def test_choices_equal_those_of_the_modules():
    from importlib import import_module

    from crossmatch.data.collection import SIDES
    from crossmatch.ranking.trec_files import GRADE_FORMATS

    command = import_module("crossmatch.cli.export_trec")  # the package has a command of the same name
    assert set(command.DIRECTIONS) == set(SIDES)
    assert tuple(command.GRADES) == tuple(GRADE_FORMATS)
