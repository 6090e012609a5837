"""What an export leaves behind: one moment of the study, exactly its own files, codes for payment, links, and no artificial people
among real ones."""

import json

import pytest

from crossmatch import evaluate
from crossmatch.benchmarks import load_benchmark_data
from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.assignment import people
from crossmatch.study.assignment.review import review
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.results import answer_tables
from crossmatch.study.results import export_study as exporting
from crossmatch.study.results.export_study import export_study
from crossmatch.study.results.folder_replacement import replacing_folder
from crossmatch.study.study import find_study
from study_exports import answer_all_hits, choose, new_study, pair, rows_of, two_image_item

NO_GOLD = ("recipe.gold_positive=0", "recipe.gold_negative=0")


def held_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


# -- the folder


def test_a_second_export_takes_the_place_of_the_first(painted, tmp_path):
    """Systems that nothing connects have no strengths, and no file of them is left from before."""
    items = [
        NewItem(f"q{n}", ("red.jpg", "blue.jpg"), ("A query.",), details={"systems": systems})
        for n, systems in enumerate([["a", "b"], ["b", "a"], ["c", "d"]])
    ]
    first = new_study(painted, "ranking-preference", items[:2], "recipe.people=1", name="two")
    answer_all_hits(painted, first, "anna", choose("list", 0))
    assert "strengths.csv" in export_study(painted, first, tmp_path / "out").files
    second = new_study(painted, "ranking-preference", items, "recipe.people=1", name="four")
    answer_all_hits(painted, second, "ben", choose("list", 0))
    done = export_study(painted, second, tmp_path / "out")
    assert held_in(tmp_path / "out") == set(done.files)
    assert "strengths.csv" not in done.files
    assert json.loads((tmp_path / "out" / "provenance.json").read_text())["study"] == "four"
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == ["out"]  # nothing beside it


def judged(painted, **more):
    study = new_study(painted, "eccv-hit", [pair("red", "red"), pair("blue", "red")], *NO_GOLD, **more)
    answer_all_hits(painted, study, "anna", lambda item: {"match": "yes" if item.key.startswith("red") else "no"})
    return study


@pytest.mark.parametrize("name", ["notes.txt", "images/mine.png"])
def test_foreign_files_are_never_deleted(painted, tmp_path, name):
    study = judged(painted)
    export_study(painted, study, tmp_path / "out")
    (tmp_path / "out" / name).parent.mkdir(exist_ok=True)
    (tmp_path / "out" / name).write_text("mine")
    before = held_in(tmp_path / "out")
    with pytest.raises(UsageError, match=rf"{name} does not belong to the export"):
        export_study(painted, study, tmp_path / "out")
    assert held_in(tmp_path / "out") == before


def test_changed_or_foreign_folder_is_refused(painted, tmp_path):
    study = judged(painted)
    export_study(painted, study, tmp_path / "out")
    (tmp_path / "out" / "judgements.csv").write_text("mended by hand")
    with pytest.raises(UsageError, match=r"judgements.csv was changed since the export"):
        export_study(painted, study, tmp_path / "out")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "provenance.json").write_text("{}")
    with pytest.raises(UsageError, match="not an export"):
        export_study(painted, study, tmp_path / "other")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        export_study(painted, study, tmp_path / "file")


def test_failed_export_leaves_the_earlier_one_intact(painted, tmp_path, monkeypatch):
    study = judged(painted)
    export_study(painted, study, tmp_path / "out")
    before = {name: (tmp_path / "out" / name).read_bytes() for name in held_in(tmp_path / "out")}
    monkeypatch.setattr(answer_tables, "annotators_csv", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_study(painted, study, tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_bytes() for name in held_in(tmp_path / "out")} == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_file_created_during_an_export_is_not_deleted(tmp_path):
    def interrupted():
        with replacing_folder(tmp_path / "out") as place:
            (place / "a.csv").write_text("new")
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "mine").write_text("just came")

    with pytest.raises(UsageError, match="not an export"):
        interrupted()
    assert held_in(tmp_path / "out") == {"mine"}


# -- one moment


def test_export_shows_one_moment(painted, tmp_path, monkeypatch):
    """Somebody submits between the reading of the chain and that of the answers: the export is of before."""
    study = new_study(painted, "eccv-hit", [pair("red", "red"), pair("blue", "red")], *NO_GOLD, "recipe.batch=1")
    real = exporting.check_chain

    def interrupted(connection, study_id):
        found = real(connection, study_id)
        answer_all_hits(painted, study, "ben", lambda item: {"match": "yes"})
        return found

    monkeypatch.setattr(exporting, "check_chain", interrupted)
    with pytest.raises(CrossmatchError, match="no answers that count yet"):
        export_study(painted, study, tmp_path / "out")
    monkeypatch.setattr(exporting, "check_chain", real)
    export_study(painted, study, tmp_path / "out")
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    with painted.read_transaction() as connection:
        assert (provenance["events"], provenance["hash"]) == real(connection, study.id)


# -- payment


def test_exported_assignments_have_completion_codes(painted, tmp_path):
    study = judged(painted)
    people.join_study(painted, study.link, "ben")  # joined, and did nothing
    export_study(painted, study, tmp_path / "out")
    with painted.read_transaction() as connection:
        anna = next(person for person in (people.find_person(connection, n) for n in (1, 2)) if person.name == "anna")
        code, _ = people.completion_code(painted, connection, study.id, anna)  # as the page showed it
    (row,) = rows_of(tmp_path / "out" / "assignments.csv")
    assert (row["WorkerId"], row["CompletionCode"], row["Artificial"], row["Reward"]) == ("anna", code, "0", "")
    (row,) = rows_of(tmp_path / "out" / "annotators.csv")
    assert (row["person"], row["completion_code"], row["hits"], row["answers"], row["counted"]) == ("anna", code, "1", "2", "2")


def test_shared_completion_code_is_exported(painted, tmp_path):
    study = new_study(painted, "eccv-hit", [pair("red", "red")], *NO_GOLD, "recipe.completion_code=C0FFEE", "recipe.pay=2")
    answer_all_hits(painted, study, "anna", lambda item: {"match": "yes"})
    export_study(painted, study, tmp_path / "out")
    (row,) = rows_of(tmp_path / "out" / "assignments.csv")
    assert (row["CompletionCode"], row["Reward"]) == ("C0FFEE", "2.00 USD")


# -- artificial people


def test_artificial_annotators_are_marked_and_left_out_beside_real_people(painted, tmp_path):
    study = new_study(painted, "eccv-hit", [pair("red", "red"), pair("blue", "red")], *NO_GOLD, "recipe.people=2")
    answer_all_hits(painted, study, "artificial-0001", lambda item: {"match": "no"})
    alone = export_study(painted, study, tmp_path / "rehearsal")
    assert alone.messages[0] == "2 answers of 1 artificial annotators to 2 items"
    assert {row["artificial"] for row in rows_of(tmp_path / "rehearsal" / "answers.csv")} == {"1"}
    assert json.loads((tmp_path / "rehearsal" / "provenance.json").read_text())["artificial"] is True
    answer_all_hits(painted, study, "anna", lambda item: {"match": "yes"})
    done = export_study(painted, study, tmp_path / "real")
    assert done.messages[:2] == (
        "2 answers of 1 people to 2 items",
        "2 answers of 1 artificial annotators are left out, because real people answered too (artificial-0001)",
    )
    for name in ("answers", "assignments", "annotators"):
        assert "artificial-0001" not in (tmp_path / "real" / f"{name}.csv").read_text()
    assert {row["grade"] for row in rows_of(tmp_path / "real" / "judgements.csv")} == {"1"}


def test_python_and_export_leave_out_the_same_artificial_answers(painted, colours, tmp_path):
    """Artificial answers do not become the result while the answers of real people await review."""
    items = [pair("red", "red"), pair("white", "white", gold={"match": ("no",)}, kind="negative")]
    study = new_study(painted, "eccv-hit", items, "recipe.gold_positive=0", "recipe.gold_negative=1", "recipe.people=2")
    answer_all_hits(painted, study, "artificial-0001", lambda item: {"match": "no"})
    (claim_id,) = answer_all_hits(painted, study, "anna", lambda item: {"match": "yes"})
    message = "2 answers of 1 artificial annotators are left out, because real people answered too"
    with pytest.raises(CrossmatchError, match=message):
        export_study(painted, study, tmp_path / "export")
    with pytest.warns(UserWarning, match=message):
        assert study.answers() == []
    with pytest.warns(UserWarning, match=message):
        assert {answer.person for answer in study.answers(pending=True)} == {"anna"}
    review(painted, claim_id, None, "approve")
    export_study(painted, study, tmp_path / "export")
    with pytest.warns(UserWarning, match=message):
        judgements = study.judgements(colours, links=False)
    assert judgements.grades.tolist() == [1.0]
    assert [row["grade"] for row in rows_of(tmp_path / "export" / "judgements.csv")] == ["1"]
    assert {row["person"] for row in rows_of(tmp_path / "export" / "answers.csv")} == {"anna"}


# -- links


def test_unjudged_links_count_as_positives(painted, colours, tmp_path):
    """People denied one link and found one more positive; all other links are as true as before."""
    study = new_study(painted, "eccv-hit", [pair("red", "red"), pair("blue", "red")], *NO_GOLD)
    answer_all_hits(painted, study, "anna", lambda item: {"match": "no" if item.key.startswith("red") else "yes"})
    done = export_study(painted, study, tmp_path / "out", colours)
    rows = {(row["image_id"], row["caption_id"]): row for row in rows_of(tmp_path / "out" / "judgements.csv")}
    assert len(rows) == 2 + 7
    assert (rows["red", "red#0"]["grade"], rows["red", "red#0"]["by"]) == ("0", "people")  # also against a link
    assert (rows["red", "red#1"]["grade"], rows["red", "red#1"]["by"], rows["red", "red#1"]["answers"]) == ("1", "links", "0")
    assert "7 links of the collection count as positives" in " ".join(done.messages)
    loaded = load_collection_folder(tmp_path / "out").judgements["eccv-hit"]
    assert loaded.positive_count == 1 + 7

    def by_name(images, texts):  # finds the captions that were written for an image, and nothing else
        names = {(255, 0, 0): "red", (0, 128, 0): "green", (0, 0, 255): "blue", (255, 255, 255): "white"}
        return [[float(names[image.getpixel((0, 0))] in text) for text in texts] for image in images]

    result = evaluate(by_name, f"collection:{tmp_path / 'out'}", metrics=["hit@1"])
    assert result["t2i/links/hit@1"].value == 100.0
    assert result["t2i/eccv-hit/hit@1"].value == 100 * 7 / 8  # but for the caption that people moved
    export_study(painted, study, tmp_path / "bare", colours, links=False)
    assert len(rows_of(tmp_path / "bare" / "judgements.csv")) == 2
    assert json.loads((tmp_path / "bare" / "provenance.json").read_text())["links"] is False


def test_judged_images_outside_the_collection_are_added(painted, colours, tmp_path):
    item = NewItem("i", ("red.jpg", "blue.jpg"), (), details={"image_ids": ["red", "blue@generator"]})
    study = new_study(painted, "sis", [item], "recipe.people=1")
    answer_all_hits(painted, study, "anna", lambda displayed: {"similarity": 4.0})
    export_study(painted, study, tmp_path / "out", colours)
    assert load_collection_folder(tmp_path / "out", positive=3).collection.shape == (5, 8)


def test_a_caption_that_the_collection_has_not_is_named(painted, colours, tmp_path):
    item = NewItem("a", ("red.jpg",), ("A cat.",), details={"image_id": "red", "caption_id": "elsewhere"})
    study = new_study(painted, "eccv-hit", [item], *NO_GOLD)
    answer_all_hits(painted, study, "anna", lambda displayed: {"match": "yes"})
    with pytest.raises(CrossmatchError, match="Caption 'elsewhere' was judged but is not in the collection"):
        export_study(painted, study, tmp_path / "out", colours)
    assert "without images and captions" in " ".join(export_study(painted, study, tmp_path / "out").messages)


# -- trials, and how answers are combined


def test_trials_keep_the_ids_of_their_captions(painted, tmp_path):
    captions = tuple(f"Caption {n}." for n in range(5))
    body = {"image_ids": ["red", "blue"], "caption_ids": [f"red#{n}" for n in range(5)]}
    study = new_study(painted, "bison-select", [NewItem("p", ("red.jpg", "blue.jpg"), captions, details=body)])
    answer_all_hits(painted, study, "anna", choose("caption", 3))
    export_study(painted, study, tmp_path / "out")
    row = json.loads((tmp_path / "out" / "trials.jsonl").read_text())
    assert (row["captions"], row["caption_ids"], row["image_ids"]) == (["Caption 3."], ["red#3"], ["red", "blue"])
    assert load_benchmark_data(f"trials:{tmp_path / 'out' / 'trials.jsonl'}").shape == (1, 2)


def test_complete_trial_keeps_the_caption_ids_it_has(painted, tmp_path):
    whole = {"captions": ["A red square.", "A blue square."], "caption_ids": ["r", "b"], "category": "swap"}
    items = [NewItem("a", ("red.jpg", "blue.jpg"), ("A red square.",), details={"caption_ids": ["r"], "trial_of": whole})]
    items.append(
        NewItem("b", *items[0].images and (items[0].images, items[0].captions), details={"trial_of": {"captions": ["x", "y"]}})
    )
    study = new_study(painted, "bivlc-ambiguity", items)
    answer_all_hits(painted, study, "anna", choose("image", 0))
    export_study(painted, study, tmp_path / "out")
    first, second = (json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines())
    assert (first["caption_ids"], first["category"], "caption_ids" in second) == (["r", "b"], "swap", False)
    assert load_benchmark_data(f"trials:{tmp_path / 'out' / 'trials.jsonl'}").shape == (2, 2)


def test_wanted_image_comes_first_in_a_trial(painted, tmp_path):
    study = new_study(painted, "bison-verify", [two_image_item(0)], "result.wanted=image-1", "recipe.people=1")
    answer_all_hits(painted, study, "anna", choose("image", 1))
    export_study(painted, study, tmp_path / "out")
    row = json.loads((tmp_path / "out" / "trials.jsonl").read_text())
    assert (row["images"], row["image_ids"]) == (["blue.jpg", "red.jpg"], ["blue", "red"])


def test_dawid_skene_is_refused_while_items_have_one_answer(painted, tmp_path):
    study = new_study(painted, "eccv-hit", [pair("red", "red"), pair("blue", "red")], *NO_GOLD, "recipe.batch=1", "recipe.people=2",
                  "result.combine=dawid-skene")  # fmt: skip
    answer_all_hits(painted, study, "anna", lambda item: {"match": "yes"})
    with pytest.raises(CrossmatchError, match=r"has one so far.*--combine majority"):
        export_study(painted, study, tmp_path / "out")
    export_study(painted, study, tmp_path / "out", combine="majority")
    assert json.loads((tmp_path / "out" / "provenance.json").read_text())["combine"] == "majority"
    answer_all_hits(painted, study, "ben", lambda item: {"match": "yes"})
    assert "2 pairs graded" in export_study(painted, find_study(painted), tmp_path / "out").messages


def test_export_checks_an_overridden_rule(painted, tmp_path):
    study = new_study(painted, "caption-correctness", [pair("red", "red")], "result.yields=judgements", "recipe.people=1")
    answer_all_hits(painted, study, "anna", lambda item: {"correctness": "5"})
    with pytest.raises(CrossmatchError, match="cannot make judgements by unanimous"):
        export_study(painted, study, tmp_path / "out", combine="unanimous")
