"""Results of artificial annotators are marked wherever they go: exports, Python, merges, data sheets, recipes, runs and reports."""

import json

import pytest

from crossmatch import evaluate
from crossmatch.build.merging.merge import write_merge
from crossmatch.build.merging.pair_verdicts import read_source
from crossmatch.build.publishing.published_folder import CardTexts, write_card
from crossmatch.data.judgements import rehearsal_note
from crossmatch.report.html_report import write_report
from crossmatch.report.tables import format_table, result_tables
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.results.export_study import export_study
from study_exports import COLOURS, answer_all_hits, choose, new_study, pair, rows_of, two_image_item

NO_GOLD = ("recipe.gold_positive=0", "recipe.gold_negative=0")
MARK = "artificial annotators"
ANNOTATORS = pytest.mark.parametrize("name", ["artificial-0001", "anna"])


def is_artificial(name):
    return name.startswith("artificial-")


def judged(painted, name):
    items = [pair(image, caption) for image in COLOURS for caption in COLOURS[:2]]
    study = new_study(painted, "eccv-hit", items, *NO_GOLD, "recipe.people=1")
    answer_all_hits(painted, study, name, lambda item: {"match": "yes" if len(set(item.key.split("-")[:2])) == 1 else "no"})
    return study


# -- exports


@ANNOTATORS
def test_judgements_say_who_graded(painted, colours, tmp_path, name):
    done = export_study(painted, judged(painted, name), tmp_path / "out", colours)
    counts = {"people": 0, MARK: 0, "links": 0}
    for row in rows_of(tmp_path / "out" / "judgements.csv"):
        counts[row["by"]] += 1
    assert counts == {"people": 0 if is_artificial(name) else 8, MARK: 8 if is_artificial(name) else 0, "links": 6}
    assert (rehearsal_note("all results of this export") in done.messages) == is_artificial(name)


@ANNOTATORS
def test_ratings_say_who_rated(painted, tmp_path, name):
    study = new_study(painted, "caption-correctness", [pair("red", "red"), pair("blue", "red")], "recipe.people=1")
    answer_all_hits(painted, study, name, lambda item: {"correctness": "4" if item.key.startswith("red") else "2"})
    export_study(painted, study, tmp_path / "out")
    assert {row["by"] for row in rows_of(tmp_path / "out" / "ratings.csv")} == {MARK if is_artificial(name) else "people"}
    ratings = study.ratings({"red": ["A square."], "blue": ["A square."]})
    assert ratings.name == "caption-correctness" + f" ({MARK})" * is_artificial(name)


@ANNOTATORS
def test_preferences_say_who_preferred(painted, tmp_path, name):
    items = [
        NewItem(f"q{n}", ("red.jpg", "blue.jpg"), ("A query.",), details={"systems": systems, "image_ids": ["red", "blue"]})
        for n, systems in enumerate([["a", "b"]] * 3 + [["b", "a"]])
    ]
    study = new_study(painted, "ranking-preference", items, "recipe.people=1")
    answer_all_hits(painted, study, name, choose("list", 0))
    export_study(painted, study, tmp_path / "out")
    for file in ("preferences.csv", "strengths.csv"):
        assert {row["by"] for row in rows_of(tmp_path / "out" / file)} == {MARK if is_artificial(name) else "people"}
    if is_artificial(name):
        with pytest.warns(UserWarning, match="preferences of ranking-preference are from artificial annotators"):
            study.preferences()
    else:
        study.preferences()


@ANNOTATORS
def test_choices_say_who_chose(painted, tmp_path, name):
    files = tuple(f"{colour}.jpg" for colour in COLOURS)
    items = [NewItem("c", files, ("A blue square.",), details={"image_ids": list(COLOURS), "by": MARK})]
    study = new_study(painted, "bivlc-choose", items)
    answer_all_hits(painted, study, name, choose("image", 2))
    export_study(painted, study, tmp_path / "out")
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "choices.jsonl").read_text().splitlines()]
    assert row["by"] == MARK  # also if only the earlier stage, which chose the images, was a rehearsal


@ANNOTATORS
def test_trials_and_their_results_are_marked(painted, tmp_path, name):
    study = new_study(painted, "bison-verify", [two_image_item(0), two_image_item(1)], "recipe.people=1")
    answer_all_hits(painted, study, name, choose("image", 0))
    export_study(painted, study, tmp_path / "out")
    note = rehearsal_note("trials of trials.jsonl")
    result = evaluate("random", f"trials:{tmp_path / 'out' / 'trials.jsonl'}", samples=100)
    assert (note in result.notes) == is_artificial(name)
    assert (rehearsal_note("trials of bison-verify") in study.trials().notes) == is_artificial(name)
    write_card(tmp_path / "out", tmp_path / "card", CardTexts("squares"))
    warning = f"**{rehearsal_note('2 of these trials')}.**"
    assert (warning in (tmp_path / "card" / "README.md").read_text()) == is_artificial(name)


# -- where judgements go


@ANNOTATORS
def test_every_result_by_the_judgements_has_a_note(painted, colours, tmp_path, name):
    study = judged(painted, name)
    export_study(painted, study, tmp_path / "out", colours)
    note = rehearsal_note("grades of eccv-hit")
    result = evaluate("random", f"collection:{tmp_path / 'out'}+positive=0.5", samples=100)
    assert (note in result.notes) == is_artificial(name)
    assert study.judgements(colours).note == (note if is_artificial(name) else "")
    assert any(note in format_table(table) for table in result_tables([result])) == is_artificial(name)
    page = write_report([result], tmp_path / "report.html")
    assert (note in page.read_text()) == is_artificial(name)


@ANNOTATORS
def test_merges_and_data_sheets_name_the_rehearsal(painted, colours, tmp_path, name):
    export_study(painted, judged(painted, name), tmp_path / "out", colours)
    source = read_source(tmp_path / "out", colours, "people")
    assert source.name == "eccv-hit" + f" ({MARK})" * is_artificial(name)
    manifest = write_merge(colours, [source], tmp_path / "merged")
    assert (f"i2t positives eccv-hit ({MARK})" in manifest["counts"]) == is_artificial(name)
    rows = rows_of(tmp_path / "merged" / "judgements.csv")
    if is_artificial(name):
        assert [row["by"] for row in rows].count(MARK) == 8
        assert {row["by"] for row in rows} == {MARK, "links"}
    else:
        assert {row["by"] for row in rows} == {"people", "links"}
    result = evaluate("random", f"collection:{tmp_path / 'merged'}", samples=100)
    assert (rehearsal_note("grades of merged") in result.notes) == is_artificial(name)
    write_card(tmp_path / "merged", tmp_path / "card", CardTexts("squares"))
    text = (tmp_path / "card" / "README.md").read_text()
    assert (f"**{rehearsal_note('8 of these judgements')}.**" in text) == is_artificial(name)


def test_grades_of_people_beside_artificial_ones_are_partly_marked(painted, colours, tmp_path):
    export_study(painted, judged(painted, "artificial-0001"), tmp_path / "rehearsal", colours)
    grades = "image_id,caption_id,grade\nred,blue#0,0\nblue,blue#1,1\n"
    (tmp_path / "people.csv").write_text(grades)
    sources = [read_source(tmp_path / name, colours, "people") for name in ("rehearsal", "people.csv")]
    write_merge(colours, sources, tmp_path / "merged")
    result = evaluate("random", f"collection:{tmp_path / 'merged'}", samples=100)
    assert rehearsal_note("some grades of merged") in result.notes
