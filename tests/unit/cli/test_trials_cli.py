"""Forced choices on the command line: own trials, precomputed answers good and bad, partial answers, alterations, the gate."""

from __future__ import annotations

import csv
import json

import pytest
from click.testing import CliRunner

from crossmatch.cli import cli
from crossmatch.core.errors import CrossmatchError, WrongWords

PAIRS = [(f"t{n}", f"A dog runs past {n} trees.", f"{n}a.jpg", f"{n}b.jpg", "near" if n % 2 else "far") for n in range(40)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("trial_id", "caption", "image_0", "image_1", "category"), *PAIRS])
    answers(tmp_path, {row[0]: (2, 1) if n < 30 else (1, 2) for n, row in enumerate(PAIRS)})
    return tmp_path


def answers(folder, scores, name="s.csv"):
    lines = ["trial_id,s_c0_i0,s_c0_i1", *(f"{trial},{a},{b}" for trial, (a, b) in scores.items())]
    (folder / name).write_text("\n".join(lines))


def run(*words):
    return CliRunner().invoke(cli, ["run", "-t", "trials:pairs.csv", "-o", "out", *words], catch_exceptions=True)


def test_own_trials_from_a_csv(folder):
    found = json.loads(run("-m", "precomputed:s.csv", "--json").stdout)["trials:pairs"]
    assert found == {"accuracy": 75.0, "macro/accuracy": 75.0, "far/accuracy": 75.0, "near/accuracy": 75.0}
    shown = run("-m", "precomputed:s.csv").stdout
    assert "75.0 ± 13" in shown
    assert "chance" in shown


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.pop("t7"), "first missing: 't7'"),
        (lambda s: s.update({"t99": (1, 2)}), "'t99' is answered but not in the benchmark"),
        (lambda s: s.update({"t7": ("nan", 1)}), "trial 't7' has the score nan"),
        (lambda s: s.update({"t7": ("x", 1)}), "trial 't7' has s_c0_i0 = 'x'"),
    ],
)
def test_bad_answers_name_the_trial(folder, change, says):
    scores = {row[0]: (2, 1) for row in PAIRS}
    change(scores)
    answers(folder, scores, "bad.csv")
    done = run("-m", "precomputed:bad.csv")
    assert isinstance(done.exception, CrossmatchError)
    assert says in str(done.exception)
    assert "bad.csv" in str(done.exception)


def test_two_answers_to_one_trial(folder):
    (folder / "twice.csv").write_text((folder / "s.csv").read_text() + "\nt3,1,2\n")
    assert "'t3' occurs 2 times" in str(run("-m", "precomputed:twice.csv").exception)


def test_a_part_of_the_answers_needs_the_word_partial_and_is_marked(folder):
    answers(folder, {row[0]: (2, 1) for row in PAIRS[:10]}, "some.csv")
    assert "--partial" in str(run("-m", "precomputed:some.csv").exception)
    done = run("-m", "precomputed:some.csv", "--partial")
    assert done.exit_code == 0
    assert "partial: 10 of 40 trials were answered" in done.stdout
    assert "partial 10" in done.stdout.splitlines()[0]
    assert list((folder / "out").rglob("*partial=10.json"))
    answers(folder, {"else": (1, 2)}, "none.csv")
    assert "none of the 40 trials is answered" in str(run("-m", "precomputed:none.csv", "--partial").exception)
    answers(folder, {**{row[0]: (2, 1) for row in PAIRS[:10]}, "stranger": (1, 2)}, "strange.csv")
    assert "'stranger' is answered but not" in str(run("-m", "precomputed:strange.csv", "--partial").exception)


def test_a_limit_takes_the_answers_it_needs(folder):
    done = run("-m", "precomputed:s.csv", "--limit", "12", "--json")
    assert done.exit_code == 0, done.exception


def test_right_or_wrong_is_an_answer_too(folder):
    (folder / "right.csv").write_text("\n".join(["trial_id,correct", *(f"{row[0]},{n < 30}" for n, row in enumerate(PAIRS))]))
    found = json.loads(run("-m", "precomputed:right.csv", "--json").stdout)["trials:pairs"]
    assert found["accuracy"] == 75.0
    (folder / "odd.csv").write_text("trial_id,correct\nt0,maybe\n")
    assert "trial 't0' has correct = 'maybe'" in str(run("-m", "precomputed:odd.csv").exception)


def test_gate_and_alterations_run_beside_the_model(folder):
    done = run("-m", "precomputed:s.csv", "--gate")
    assert done.exit_code == 0, done.exception
    assert "trust gate, trials:pairs" in done.stdout
    assert done.stdout.count("passes") == 5
    done = run("-m", "blind:longest", "--alterations")
    assert done.exit_code == 0, done.exception
    assert "predictions that change" in done.stdout
    kept = {path.name for path in (folder / "out").rglob("*alter=*.json")}
    assert len(kept) == 5
    page = CliRunner().invoke(cli, ["report", "out", "-o", "r.html"])
    assert page.exit_code == 0, page.exception
    assert "trust gate" in (folder / "r.html").read_text()


def test_words_that_do_not_fit(folder):
    for words, says in (
        (("-m", "random", "-t", "diorama/retrieval", "--size", "tiny", "--gate"), "the gate is for forced choices"),
        (("-m", "random", "-t", "diorama/bivlc", "--size", "tiny", "--alterations"), "no single query to alter"),
        (("-m", "random", "-t", "diorama/bison+alter=louder", "--size", "tiny"), "alter is 'louder'"),
        (("-m", "random", "-t", "trials:pairs.csv", "--likelihood", "plain"), "no captioner"),
        (("-m", "gate:careless", "-t", "trials:pairs.csv"), "gate:constant"),
    ):
        done = CliRunner().invoke(cli, ["run", *words], catch_exceptions=True)
        assert isinstance(done.exception, WrongWords), (words, done.exception)
        assert says in str(done.exception)


@pytest.mark.usefixtures("real_data")
def test_bison_on_the_command_line(real_data_folder, tmp_path):
    file = real_data_folder / "bison" / "fake_predictions.cocoval2014.json"
    done = CliRunner().invoke(cli, ["run", "-m", f"precomputed:{file}", "-t", "bison", "--json", "-o", str(tmp_path)])
    assert round(json.loads(done.stdout)["bison"]["accuracy"], 2) == 49.96
