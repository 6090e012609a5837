"""Forced choices on the command line: own trials, precomputed answers good and bad, partial answers, alterations, the gate."""

from __future__ import annotations

import csv
import json

import pytest
from click.testing import CliRunner
from PIL import Image

from crossmatch.cli import cli
from crossmatch.data.errors import CrossmatchError, UsageError

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


def run(*arguments):
    return CliRunner().invoke(cli, ["run", "-t", "trials:pairs.csv", "-o", "out", *arguments], catch_exceptions=True)


def test_own_trials_from_a_csv(folder):
    parsed = json.loads(run("-m", "precomputed:s.csv", "--json").stdout)["trials:pairs"]
    assert parsed == {"accuracy": 75.0, "macro/accuracy": 75.0, "far/accuracy": 75.0, "near/accuracy": 75.0}
    shown = run("-m", "precomputed:s.csv").stdout
    assert "75.0 [59.8, 85.8]" in shown
    assert "chance" in shown


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("t7"), "first missing: 't7'"),
        (lambda s: s.update({"t99": (1, 2)}), "'t99' is answered but not in the benchmark"),
        (lambda s: s.update({"t7": ("nan", 1)}), "Trial 't7' has the score nan"),
        (lambda s: s.update({"t7": ("x", 1)}), "trial 't7': expected a number in column s_c0_i0, got 'x'"),
    ],
)
def test_bad_answers_name_the_trial(folder, change, message):
    scores = {row[0]: (2, 1) for row in PAIRS}
    change(scores)
    answers(folder, scores, "bad.csv")
    process = run("-m", "precomputed:bad.csv")
    assert isinstance(process.exception, CrossmatchError)
    assert message in str(process.exception)
    assert "bad.csv" in str(process.exception)


def test_two_answers_to_one_trial_are_refused(folder):
    (folder / "twice.csv").write_text((folder / "s.csv").read_text() + "\nt3,1,2\n")
    assert "'t3' occurs 2 times" in str(run("-m", "precomputed:twice.csv").exception)


def test_partial_answers_need_partial_and_are_marked(folder):
    answers(folder, {row[0]: (2, 1) for row in PAIRS[:10]}, "some.csv")
    assert "--partial" in str(run("-m", "precomputed:some.csv").exception)
    process = run("-m", "precomputed:some.csv", "--partial")
    assert process.exit_code == 0
    assert "partial: 10 of 40 trials were answered" in process.stdout
    assert "partial 10" in process.stdout.splitlines()[0]
    assert list((folder / "out").rglob("*partial=10.json"))
    answers(folder, {"else": (1, 2)}, "none.csv")
    assert "no answer to any of the 40 trials" in str(run("-m", "precomputed:none.csv", "--partial").exception)
    answers(folder, {**{row[0]: (2, 1) for row in PAIRS[:10]}, "stranger": (1, 2)}, "strange.csv")
    assert "'stranger' is answered but not" in str(run("-m", "precomputed:strange.csv", "--partial").exception)


def test_limit_uses_only_the_answers_it_needs(folder):
    process = run("-m", "precomputed:s.csv", "--limit", "12", "--json")
    assert process.exit_code == 0, process.exception


def test_outcomes_are_accepted_as_answers(folder):
    (folder / "right.csv").write_text("\n".join(["trial_id,correct", *(f"{row[0]},{n < 30}" for n, row in enumerate(PAIRS))]))
    parsed = json.loads(run("-m", "precomputed:right.csv", "--json").stdout)["trials:pairs"]
    assert parsed["accuracy"] == 75.0
    (folder / "odd.csv").write_text("trial_id,correct\nt0,maybe\n")
    assert "trial 't0': expected True or False" in str(run("-m", "precomputed:odd.csv").exception)


def test_gate_and_alterations_run_with_the_model(folder):
    process = run("-m", "precomputed:s.csv", "--gate")
    assert process.exit_code == 0, process.exception
    assert "trust gate, trials:pairs" in process.stdout
    assert process.stdout.count("passes") == 5
    process = run("-m", "blind:longest", "--alterations")
    assert process.exit_code == 0, process.exception
    assert "predictions that change" in process.stdout
    saved = {path.name for path in (folder / "out").rglob("*alter=*.json")}
    assert len(saved) == 5
    page = CliRunner().invoke(cli, ["report", "out", "-o", "r.html"])
    assert page.exit_code == 0, page.exception
    assert "trust gate" in (folder / "r.html").read_text()


def test_other_captions_are_not_altered_and_have_no_gate_scorers(folder):
    tasks = "diorama/bison,diorama/bison+caption=random"
    process = CliRunner().invoke(
        cli,
        ["run", "-m", "blind:longest", "-t", tasks, "--size", "tiny", "--alterations", "--gate", "--samples", "50", "-o", "out"],
    )
    assert process.exit_code == 0, process.exception
    assert process.stdout.count("predictions that change when the query is altered") == 1
    assert process.stdout.count("accuracy by caption") == 1
    rows = process.stdout.split("accuracy by caption")[1].split("trust gate")[0]
    assert "blind:longest" in rows
    assert "gate:" not in rows
    assert not list((folder / "out").rglob("*alter=*caption=*"))


def test_options_that_do_not_fit_are_refused(folder):
    for arguments, message in (
        (("-m", "random", "-t", "diorama/retrieval", "--size", "tiny", "--gate"), "--gate needs a task with forced choices"),
        (("-m", "random", "-t", "diorama/bivlc", "--size", "tiny", "--alterations"), "no single query to alter"),
        (("-m", "random", "-t", "diorama/bison+alter=louder", "--size", "tiny"), "(got 'louder')"),
        (("-m", "random", "-t", "diorama/bison+caption=random", "--size", "tiny", "--alterations"), "has another caption as query"),
        (("-m", "random", "-t", "trials:pairs.csv", "--likelihood", "plain"), "random is not a captioner"),
        (("-m", "gate:careless", "-t", "trials:pairs.csv"), "gate:constant"),
    ):
        process = CliRunner().invoke(cli, ["run", *arguments], catch_exceptions=True)
        assert isinstance(process.exception, UsageError), (arguments, process.exception)
        assert message in str(process.exception)


@pytest.mark.usefixtures("real_data")
def test_bison_on_the_command_line(real_data_folder, tmp_path):
    file = real_data_folder / "bison" / "fake_predictions.cocoval2014.json"
    process = CliRunner().invoke(cli, ["run", "-m", f"precomputed:{file}", "-t", "bison", "--json", "-o", str(tmp_path)])
    assert round(json.loads(process.stdout)["bison"]["accuracy"], 2) == 49.96


def test_two_files_of_one_name_do_not_overwrite_each_other(folder):
    (folder / "b").mkdir()
    (folder / "b" / "pairs.csv").write_text((folder / "pairs.csv").read_text())
    process = CliRunner().invoke(cli, ["run", "-m", "blind:longest", "-t", "trials:pairs.csv,trials:b/pairs.csv"])
    assert isinstance(process.exception, UsageError)
    assert "occurs twice" in str(process.exception)
    assert not (folder / "results").exists()


@pytest.mark.parametrize("category", ["macro", "all", "(none)/x", "a//b", "/x", "bell\a", "x" * 90])
def test_ambiguous_categories_are_refused(folder, category):
    rows = [(*row[:4], category if n == 5 else "far") for n, row in enumerate(PAIRS)]
    with (folder / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("trial_id", "caption", "image_0", "image_1", "category"), *rows])
    process = run("-m", "precomputed:s.csv")
    assert isinstance(process.exception, CrossmatchError)
    assert "'t5'" in str(process.exception)


def test_caption_with_a_swallowed_file_is_refused(folder):
    rows = [(row[0], "x" * 20_000 if n == 5 else row[1], *row[2:]) for n, row in enumerate(PAIRS)]
    with (folder / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("trial_id", "caption", "image_0", "image_1", "category"), *rows])
    assert "'t5' has a text of 20,000 characters" in str(run("-m", "precomputed:s.csv").exception)


def test_json_marks_skipped_trials(folder):
    answers(folder, {row[0]: (2, 1) for row in PAIRS[:10]}, "some.csv")
    assert list(json.loads(run("-m", "precomputed:some.csv", "--partial", "--json").stdout)) == ["trials:pairs+partial=10"]
    assert list(json.loads(run("-m", "precomputed:s.csv", "--limit", "8", "--json").stdout)) == ["trials:pairs+limit=8"]


def test_answer_files_have_no_altered_queries(folder):
    process = run("-m", "precomputed:s.csv", "--alterations")
    assert isinstance(process.exception, UsageError)
    assert "has none for altered queries" in str(process.exception)
    assert "cannot be combined with --partial" in str(run("-m", "precomputed:s.csv", "--gate", "--partial").exception)


def test_checks_change_no_result(folder):
    run("-m", "precomputed:s.csv")
    CliRunner().invoke(cli, ["run", "-m", "blind:longest", "-t", "trials:pairs.csv+shape=2x1", "-o", "out"])
    process = CliRunner().invoke(cli, ["compare", "out"])
    assert process.exit_code == 0, process.exception


def test_unmatched_results_are_named_and_the_rest_compared(folder):
    run("-m", "blind:longest", "--name", "a", "--alterations")
    run("-m", "precomputed:s.csv", "--name", "b")
    for order in (["out/a", "out/b"], ["out/b", "out/a"]):
        process = CliRunner().invoke(cli, ["compare", *order])
        assert process.exit_code == 0, process.exception
        assert "not compared, because the other model has no result for it:" in process.stdout
        assert "trials:pairs · alter negation of a" in process.stdout


def test_failed_run_saves_nothing(folder):
    assert isinstance(run("-m", "precomputed:s.csv", "--published").exception, UsageError)
    assert not (folder / "out").exists()
    assert isinstance(run("-m", "precomputed:s.csv", "--name", "\udcff").exception, UsageError)
    assert not (folder / "out").exists()


def test_header_without_rows_and_repeated_columns_are_refused(folder):
    (folder / "head.csv").write_text("trial_id,correct\n")
    assert "no rows" in str(run("-m", "precomputed:head.csv").exception)
    (folder / "twice.csv").write_text("trial_id,correct,correct\nt0,1,0\n")
    assert "twice" in str(run("-m", "precomputed:twice.csv").exception)


def test_json_with_arrays_of_another_run_is_refused(folder):
    run("-m", "precomputed:s.csv", "--name", "a")
    run("-m", "blind:longest", "--name", "b")
    one, other = (next((folder / "out" / name).rglob("*.npz")) for name in "ab")
    other.write_bytes(one.read_bytes())
    process = CliRunner().invoke(cli, ["compare", "out/a", "out/b"])
    assert "not from the same run" in str(process.exception)


def test_references_do_not_contain_the_altered_query(folder):
    output = CliRunner().invoke(
        cli, ["run", "-m", "references:overlap", "-t", "diorama/bison", "--size", "tiny", "--alterations", "--json"]
    )
    parsed = json.loads(output.stdout)
    plain = parsed["diorama/bison"]["accuracy"]
    # the words are the same, whatever their order; had the query stayed among the references, it would always win
    assert parsed["diorama/bison+alter=permutation"]["accuracy"] == parsed["diorama/bison+alter=reversal"]["accuracy"] == plain


def test_images_beside_a_file_in_the_current_folder_are_found(folder):
    for row in PAIRS:
        for name in row[2:4]:
            Image.new("RGB", (4, 4), "red" if name.endswith("a.jpg") else "white").save(folder / name)
    process = run("-m", "blind:brightness", "--json")
    assert process.exit_code == 0, process.exception
    assert json.loads(process.stdout)["trials:pairs"]["accuracy"] == 0  # the wrong image is always the brighter one
    (folder / "0a.jpg").unlink()
    assert "0a.jpg" in str(run("-m", "blind:brightness").exception)


def test_errors_suggest_similar_names(folder):
    process = CliRunner().invoke(cli, ["run", "-m", "random", "-t", "pairs.csv"])
    assert "trials:pairs.csv" in str(process.exception)
    assert "there is no file mine.py" in str(run("-m", "mine.py:Model").exception)
