"""Answers of people become files, and the files become benchmarks again."""

import csv
import json

import numpy as np
import pytest

from crossmatch import evaluate
from crossmatch.benchmarks import load_benchmark_data
from crossmatch.benchmarks.formats.caption_scoring_files import read_ratings
from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment import claims, people
from crossmatch.study.assignment import review as verdicts
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.results.export_study import export_study
from crossmatch.study.results.item_decisions import decide_items
from study_exports import COLOURS, answer_all_hits, choose, new_study, pair, rows_of, two_image_item
from study_lab import verify_chain

# -- judgements


def test_judgements_become_a_collection_that_run_uses(painted, colours, tmp_path):
    items = [pair(image, caption) for image in COLOURS for caption in COLOURS[:2]]
    study = new_study(painted, "eccv-hit", items, "recipe.gold_positive=0", "recipe.gold_negative=0", "recipe.people=2")
    grade = {True: "yes", False: "no"}
    answer_all_hits(painted, study, "anna", lambda item: {"match": grade[item.key.split("-")[0] == item.key.split("-")[1]]})
    answer_all_hits(
        painted,
        study,
        "ben",
        lambda item: {"match": "yes" if item.key.startswith("blue") else grade[item.key.split("-")[0] == item.key.split("-")[1]]},
    )
    done = export_study(painted, study, tmp_path / "out", colours)
    rows = {(row["image_id"], row["caption_id"]): row for row in rows_of(tmp_path / "out" / "judgements.csv")}
    assert len([row for row in rows.values() if row["by"] == "people"]) == 8
    assert float(rows["red", "red#0"]["grade"]) == 1
    assert float(rows["blue", "red#0"]["grade"]) == 0.5  # one of two
    assert float(rows["blue", "red#0"]["deviation"]) == pytest.approx(np.std([0, 1], ddof=1))
    loaded = load_collection_folder(tmp_path / "out", positive=0.5)
    assert loaded.judgements["eccv-hit"].positive_count == 4 + 6  # six captions were not asked about
    assert loaded.collection.shape == colours.shape
    assert done.next_commands == (f"crossmatch run -m MODEL -t collection:{tmp_path / 'out'}",)
    assert {row["positive_from"] for row in rows.values()} == {"0.5"}

    def sees(images, texts):
        return [
            [float(np.dot(np.asarray(i.resize((1, 1))).ravel() / 255, COLOUR_OF[t.split()[1].rstrip(".")])) for t in texts]
            for i in images
        ]

    result = evaluate(sees, f"collection:{tmp_path / 'out'}")
    assert result["t2i/eccv-hit/hit@1"].value == 100.0


COLOUR_OF = {"red": (1, -1, -1), "green": (-1, 1, -1), "blue": (-1, -1, 1), "white": (1, 1, 1)}


def test_answers_become_the_noun_too(painted, colours):
    study = new_study(
        painted, "eccv-hit", [pair("red", "red"), pair("blue", "red")], "recipe.gold_positive=0", "recipe.gold_negative=0"
    )
    answer_all_hits(painted, study, "anna", lambda item: {"match": "yes" if item.key.startswith("red") else "no"})
    judgements = study.judgements(colours, links=False)
    assert (judgements.positive_count, len(judgements.rows)) == (1, 2)


def test_sliders_about_two_captions_or_two_images_become_judgements_of_one_side(painted, colours, tmp_path):
    texts = NewItem("c", (), ("A red square.", "Something red."), details={"caption_ids": ["red#0", "red#1"]})
    sts = new_study(painted, "sts", [texts])
    for n, who in enumerate(("a", "b", "c", "d", "e")):
        answer_all_hits(painted, sts, who, lambda item, n=n: {"similarity": float(n)})
    export_study(painted, sts, tmp_path / "sts", colours)
    assert [row["grade"] for row in rows_of(tmp_path / "sts" / "judgements_t2t.csv")] == ["2"]
    images = NewItem("i", ("red.jpg", "blue.jpg"), (), details={"image_ids": ["red", "blue"]})
    sis = new_study(painted, "sis", [images])
    for who in ("f", "g", "h", "i", "j"):
        answer_all_hits(painted, sis, who, lambda item: {"similarity": 4.5})
    export_study(painted, sis, tmp_path / "sis", colours)
    assert load_collection_folder(tmp_path / "sis", positive=3).judgements["sis"].directions == ("i2i",)


def test_hits_with_wrong_gold_wait_for_a_reviewer(painted, colours, tmp_path):
    gold = [pair("red", "red", 1, gold={"match": ("yes", "weak-yes")}, kind="positive")]
    study = new_study(painted, "eccv-hit", [pair("blue", "blue"), *gold], "recipe.gold_negative=0")
    (token,) = answer_all_hits(painted, study, "anna", lambda item: {"match": "no"})
    with pytest.raises(CrossmatchError, match="no answers that count yet"):
        export_study(painted, study, tmp_path / "none", colours)
    assert "count" in " ".join(export_study(painted, study, tmp_path / "pending", colours, pending=True).messages)
    verdicts.review(painted, token, None, "approve")
    export_study(painted, study, tmp_path / "approved", colours)
    judged = rows_of(tmp_path / "approved" / "judgements.csv")
    assert [row["image_id"] for row in judged if row["by"] == "people"] == ["blue"]  # the gold one is none
    assert rows_of(tmp_path / "approved" / "assignments.csv")[0]["AssignmentStatus"] == "Approved"


def test_items_without_ids_are_refused_by_name(painted, tmp_path):
    study = new_study(painted, "sits", [NewItem("nameless", ("red.jpg",), ("A cat.",))], "recipe.people=1")
    answer_all_hits(painted, study, "anna", lambda item: {"similarity": 1.0})
    with pytest.raises(CrossmatchError, match="'nameless' has no ids"):
        export_study(painted, study, tmp_path / "out")


# -- trials


def test_a_trial_is_kept_only_if_both_choose_the_positive(painted, tmp_path):
    study = new_study(painted, "bison-verify", [two_image_item(0), two_image_item(1), two_image_item(2)])
    answer_all_hits(painted, study, "anna", choose("image", 0))
    answer_all_hits(
        painted, study, "ben", lambda item: {"which": "both"} if item.key == "t1" else choose("image", int(item.key == "t2"))(item)
    )
    done = export_study(painted, study, tmp_path / "out")
    assert done.messages[1] == "1 trials accepted, 2 rejected"
    trials = load_benchmark_data(f"trials:{tmp_path / 'out' / 'trials.jsonl'}")
    assert (trials.ids.tolist(), trials.shape, trials.categories.tolist()) == (["t0"], (1, 2), ["colour"])
    assert trials.open_image(str(trials.images[0, 0])).convert("RGB").getpixel((8, 8))[0] > 200


def test_an_unfinished_verification_is_undecided(painted, tmp_path):
    study = new_study(painted, "bison-verify", [two_image_item(0)])
    answer_all_hits(painted, study, "anna", choose("image", 0))
    done = export_study(painted, study, tmp_path / "out")
    assert done.messages[1] == "0 trials accepted, 0 rejected, 1 undecided"
    assert "1 of 2 assignments are still missing" in done.messages


def test_a_selected_caption_becomes_a_trial_for_the_next_stage(painted, tmp_path):
    captions = tuple(f"Caption {n}." for n in range(5))
    items = [NewItem(f"p{n}", ("red.jpg", "blue.jpg"), captions, details={"image_ids": ["red", "blue"]}) for n in range(2)]
    study = new_study(painted, "bison-select", items)
    answer_all_hits(painted, study, "anna", lambda item: {"telling": "none"} if item.key == "p1" else choose("caption", 3)(item))
    done = export_study(painted, study, tmp_path / "out")
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert row["captions"] == ["Caption 3."]
    assert "bison-verify" in done.next_commands[0]


def test_unambiguous_caption_keeps_its_complete_trial(painted, tmp_path):
    whole = {"captions": ["A red square.", "A blue square."], "category": "replace/att"}
    items = [
        NewItem(f"a{n}", ("red.jpg", "blue.jpg"), ("A red square.",), details={"image_ids": ["red", "blue"], "trial_of": whole})
        for n in range(2)
    ]
    study = new_study(painted, "bivlc-ambiguity", items)
    answer_all_hits(painted, study, "anna", lambda item: {"which": "both"} if item.key == "a1" else choose("image", 0)(item))
    export_study(painted, study, tmp_path / "out")
    trials = load_benchmark_data(f"trials:{tmp_path / 'out' / 'trials.jsonl'}")
    assert (trials.ids.tolist(), trials.shape) == (["a0"], (2, 2))


def test_human_outcomes_are_evaluated_like_a_model(painted, tmp_path):
    items = []
    for n in range(3):
        body = {"trial": f"v{n}", "category": "swap"}
        images, texts = ("red", "blue"), ("A red square.", "A blue square.")
        items += [
            NewItem(
                f"v{n}/i{k}",
                (f"{images[k]}.jpg",),
                texts,
                "i2t",
                group=f"v{n}",
                details={**body, "query": k, "image_ids": [images[k]]},
            )
            for k in range(2)
        ]
        both = tuple(f"{name}.jpg" for name in images)
        items += [
            NewItem(
                f"v{n}/c{k}", both, (texts[k],), "t2i", group=f"v{n}", details={**body, "query": 2 + k, "image_ids": list(images)}
            )
            for k in range(2)
        ]
    study = new_study(painted, "bivlc-human", items)

    def mostly(one):
        right = one.details["query"] % 2
        right = 1 - right if one.key == "v1/c0" else right
        return choose("caption" if one.block == "i2t" else "image", right)(one)

    answer_all_hits(painted, study, "anna", mostly)
    done = export_study(painted, study, tmp_path / "out")
    assert done.messages[1] == "3 trials solved: I2T 100.0, T2I 66.7, Group 66.7 %"
    result = evaluate(f"precomputed:{tmp_path / 'out' / 'people.csv'}", f"trials:{tmp_path / 'out' / 'trials.jsonl'}")
    assert [round(result[key].value, 1) for key in ("i2t", "t2i", "group")] == [100.0, 66.7, 66.7]


# -- ratings, preferences, choices


def test_ratings_are_read_back_each_by_itself(painted, tmp_path):
    study = new_study(painted, "caption-correctness", [pair("red", "red"), pair("blue", "red")])
    for who, grade in (("a", "5"), ("b", "4"), ("c", "1")):
        answer_all_hits(painted, study, who, lambda item, grade=grade: {"correctness": grade})
    export_study(painted, study, tmp_path / "out")
    assert sorted(read_ratings(tmp_path / "out" / "ratings.csv")) == [
        ("blue", "A red square.", [5.0, 4.0, 1.0]),
        ("red", "A red square.", [5.0, 4.0, 1.0]),
    ]


def test_preferences_give_strengths_with_intervals(painted, tmp_path):
    items = [
        NewItem(f"q{n}", ("red.jpg", "blue.jpg"), ("A query.",), details={"systems": systems, "image_ids": ["red", "blue"]})
        for n, systems in enumerate([["good", "poor"]] * 6 + [["poor", "good"]] * 6)
    ]
    study = new_study(painted, "ranking-preference", items, "recipe.people=1")
    answer_all_hits(
        painted, study, "anna", lambda item: choose("list", int((item.details["systems"][0] == "poor") != (item.key == "q0")))(item)
    )
    export_study(painted, study, tmp_path / "out")
    good, poor = rows_of(tmp_path / "out" / "strengths.csv")
    assert (good["system"], poor["system"]) == ("good", "poor")
    assert float(good["strength"]) == pytest.approx(11 / 12)
    assert float(good["low"]) < float(good["strength"]) <= float(good["high"])


def test_chosen_image_keeps_its_details(painted, tmp_path):
    files = tuple(f"{name}.jpg" for name in COLOURS)
    items = [
        NewItem(f"c{n}", files, ("A blue square.",), details={"image_ids": list(COLOURS), "original": "red"}) for n in range(2)
    ]
    study = new_study(painted, "bivlc-choose", items)
    answer_all_hits(painted, study, "anna", lambda item: {"best": "none"} if item.key == "c1" else choose("image", 2)(item))
    done = export_study(painted, study, tmp_path / "out")
    assert done.messages[1] == "1 captions have an image, 1 have none, 0 undecided"
    rows = [json.loads(line) for line in (tmp_path / "out" / "choices.jsonl").read_text().splitlines()]
    assert (rows[0]["id"], rows[0]["images"], rows[0]["image_ids"], rows[0]["original"]) == ("c0", ["blue.jpg"], ["blue"], "red")
    assert (rows[1]["value"], "images" in rows[1]) == ("none", False)


def test_only_items_with_the_wanted_answer_become_trials(painted, tmp_path):
    study = new_study(
        painted,
        "bison-verify",
        [two_image_item(0), two_image_item(1), two_image_item(2)],
        "result.combine=majority",
        "recipe.people=1",
    )
    values = {"t0": choose("image", 0), "t1": lambda item: {"which": "both"}, "t2": choose("image", 1)}
    answer_all_hits(painted, study, "anna", lambda item: values[item.key](item))
    assert export_study(painted, study, tmp_path / "out").messages[1] == "1 trials accepted, 2 rejected"


def test_tied_votes_give_no_value(painted):
    study = new_study(painted, "bivlc-choose", [NewItem("c", tuple(f"{n}.jpg" for n in COLOURS), ("A cat.",))], "recipe.people=2")
    answer_all_hits(painted, study, "anna", choose("image", 0))
    answer_all_hits(painted, study, "ben", choose("image", 1))
    (decision,) = decide_items(study.design, study.answers())
    assert (decision.value, decision.answer_count, decision.share) == (None, 2, 0.5)


def test_dawid_and_skene_can_decide(painted):
    items = [pair("red", "red", n) for n in range(30)]
    zero = ("recipe.gold_positive=0", "recipe.gold_negative=0", "recipe.people=3", "result.combine=dawid-skene")
    study = new_study(painted, "eccv-hit", items, *zero)

    def truth(one):
        return ("yes", "no")[int(one.key.rpartition("-")[2]) % 2]

    answer_all_hits(painted, study, "anna", lambda item: {"match": truth(item)})
    answer_all_hits(painted, study, "ben", lambda item: {"match": truth(item)})
    answer_all_hits(painted, study, "eve", lambda item: {"match": "yes"})
    decisions = decide_items(study.design, study.answers())
    assert [(outcome.value, outcome.grade) for outcome in decisions] == [("yes", 1.0), ("no", 0.0)] * 15


# -- files that a spreadsheet may open


def test_names_of_people_and_items_cannot_be_formulas_in_the_exports(painted, colours, tmp_path):
    study = new_study(
        painted,
        "eccv-hit",
        [NewItem("=2+2", ("red.jpg",), ("@x",), details={"image_id": "red", "caption_id": "red#0"})],
        "recipe.gold_positive=0",
        "recipe.gold_negative=0",
    )
    answer_all_hits(painted, study, "=HYPERLINK(1)", lambda item: {"match": "yes"})
    export_study(painted, study, tmp_path / "out", colours)
    for path in (tmp_path / "out").glob("*.csv"):
        with path.open(newline="") as file:
            assert not [cell for row in csv.reader(file) for cell in row if cell.startswith(("=", "+", "@"))], path.name


def test_provenance_is_exported(painted, colours, tmp_path):

    study = new_study(painted, "eccv-hit", [pair("red", "red")], "recipe.gold_positive=0", "recipe.gold_negative=0")
    answer_all_hits(painted, study, "anna", lambda item: {"match": "yes"})
    export_study(painted, study, tmp_path / "out", colours)
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert (provenance["events"], provenance["hash"]) == verify_chain(painted, study.id)
    assert (provenance["preset"], provenance["answers"], provenance["people"]) == ("eccv-hit", 1, 1)


# -- answers that do not count


def test_export_says_whose_answers_are_left_out_and_why(painted, tmp_path):
    """Each submitted answer is counted or listed, on the screen and in provenance.json."""
    clock, gold = painted.now, pair("white", "white", gold={"match": ("no",)}, kind="negative")
    recipe = ("recipe.gold_positive=0", "recipe.gold_negative=1", "recipe.people=4", "recipe.lease_minutes=1")
    study = new_study(painted, "eccv-hit", [pair("red", "red"), gold], *recipe)
    _, slow = people.join_study(painted, study.link, "slow")
    people.give_consent(painted, study.id, slow.id)
    late_claim = claims.claim_hit(painted, study.id, slow.id)
    clock.wait(2)
    right, wrong = (lambda item: {"match": "no"}), (lambda item: {"match": "yes"})
    claim_of = {
        name: answer_all_hits(painted, study, name, answer)[0]
        for name, answer in (("anna", right), ("ben", wrong), ("carla", wrong), ("dora", wrong))
    }
    claims.submit(painted, late_claim, slow.id, [{"match": "no"}] * 2)
    verdicts.review(painted, claim_of["ben"], None, "reject")
    verdicts.review(painted, claim_of["carla"], None, "reassign")
    summary = export_study(painted, study, tmp_path / "out")
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    reasons = {
        "dora": "they await review",
        "ben": "a reviewer rejected them",
        "carla": "a reviewer reassigned their HIT",
        "slow": "their HIT had gone to another person",
    }
    assert {entry["people"][0]: entry["reason"] for entry in provenance["left_out"]} == reasons
    for name, reason in reasons.items():
        assert f"2 answers of 1 people are left out, because {reason} ({name})" in summary.messages
    assert provenance["messages"] == list(summary.messages)
    assert provenance["answers"] + sum(entry["answers"] for entry in provenance["left_out"]) == 5 * 2


def test_answers_to_the_test_before_the_work_are_listed_too(painted, tmp_path):
    gold = [
        pair("white", "white", gold={"match": ("no",)}, kind="negative"),
        pair("blue", "blue", gold={"match": ("no",)}, kind="positive"),
    ]
    recipe = ("recipe.gold_positive=0", "recipe.gold_negative=0", "recipe.quiz=2", "recipe.quiz_share=1")
    study = new_study(painted, "eccv-hit", [pair("red", "red"), *gold], *recipe)
    answer_all_hits(painted, study, "anna", lambda item: {"match": "no"})
    messages = export_study(painted, study, tmp_path / "out").messages
    assert "2 answers of 1 people are left out, because they belong to the test before the work (anna)" in messages
