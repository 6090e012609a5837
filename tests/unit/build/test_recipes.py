"""Recipes stop where people must answer, and go on from their answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossmatch.benchmarks.folder import load_folder
from crossmatch.build.recipe_table import RECIPES, recipe
from crossmatch.build.recipes import CAMPAIGN, DONE, LATER, WAITS, Recipe, Stage, Work, carry_on, next_words
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.study import assign
from crossmatch.study.said import find_study
from crossmatch.study.store import Campaign, open_campaign
from study_lab import hit_of, someone

DATA = "diorama:tiny"
Answer = Callable[[assign.Hit, int], dict[str, object]]


def answered(work: Work, study: str, answer: Answer, names: tuple[str, ...] = ("anna", "ben")) -> None:
    """Let people work through a study, each until nothing is left for them."""
    campaign = open_campaign(work.folder / CAMPAIGN)
    try:
        number = find_study(campaign, study).id
        for name in names:
            _everything(campaign, number, someone(campaign, number, f"{study} {name}"), answer)
    finally:
        campaign.close()


def _everything(campaign: Campaign, study: int, person: int, answer: Answer) -> None:
    while True:
        try:
            claim = assign.claim_hit(campaign, study, person)
        except assign.Nothing:
            return
        held = hit_of(campaign, claim)
        assign.submit(campaign, claim, person, [answer(held, n) for n in range(len(held.items))])


def original(hit: assign.Hit, n: int) -> str:
    """The place at which the first image of an item is shown."""
    return f"image-{hit.items[n].orders['images'].index(0)}"


def states(recipe_: Recipe, work: Work) -> list[str]:
    return [one.state for one in carry_on(recipe_, work)]


# -- the table


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_that_of_a_paper_and_its_options_are_those_of_the_command(name: str):
    from crossmatch.cli.build.recipe import recipe_command

    known = {option.name for option in recipe_command.params}
    assert set(RECIPES[name].options) <= known
    assert RECIPES[name].paper
    assert "crossmatch " in RECIPES[name].ends(Work(Path("x"), DATA, {"models": ["m"]}))


def test_a_stage_after_one_that_is_not_there_is_refused():
    with pytest.raises(CrossmatchError, match="not declared well"):
        Recipe("x", "", "", (Stage("b", "", after=("a",), do=lambda work: None),), {}, lambda work: "")


def test_an_unknown_recipe_is_told_with_the_nearest():
    with pytest.raises(WrongWords, match="bison"):
        recipe("bisom")


# -- the folder


def small(made: list[str]) -> Recipe:
    stages = (
        Stage("one", "first", do=lambda work: made.append("one")),
        Stage("two", "second", after=("one",), do=lambda work: made.append("two")),
    )
    return Recipe("small", "", "", stages, {"captions": 0}, lambda work: "the end")


def test_stages_are_done_in_order_and_the_end_is_told(tmp_path: Path):
    made: list[str] = []
    work = Work(tmp_path / "R", DATA)
    found = carry_on(small(made), work)
    assert made == ["one", "two"]
    assert next_words(small(made), work, found) == ["the end"]


def test_other_words_are_refused_in_a_folder_that_was_begun(tmp_path: Path):
    carry_on(small([]), Work(tmp_path / "R", DATA, {"captions": 5}))
    with pytest.raises(WrongWords, match="other options"):
        carry_on(small([]), Work(tmp_path / "R", DATA, {"captions": 6}))
    with pytest.raises(WrongWords, match="no option 'captoins'"):
        carry_on(small([]), Work(tmp_path / "S", DATA, {"captoins": 6}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear diary")
    with pytest.raises(WrongWords, match="holds no recipe"):
        carry_on(small([]), Work(tmp_path / "mine", DATA))


# -- with people


def test_bison_stops_twice_and_ends_with_trials_that_both_people_confirmed(tmp_path: Path):
    bison, work = recipe("bison"), Work(tmp_path / "R", DATA)
    assert states(bison, work) == [DONE, WAITS, LATER]
    assert states(bison, work) == [DONE, WAITS, LATER], "nothing is asked twice"
    answered(work, "bison-select", lambda hit, n: {"telling": "caption-0" if n % 2 else "none"})
    assert states(bison, work) == [DONE, DONE, WAITS]
    chosen = [json.loads(line) for line in (work.at("bison-select") / "trials.jsonl").read_text().splitlines()]
    refused = chosen[0]["id"]
    answered(work, "bison-verify", lambda hit, n: {"which": "both" if hit.items[n].key == refused else original(hit, n)})
    found = carry_on(bison, work)
    assert [one.state for one in found] == [DONE, DONE, DONE]
    kept = [json.loads(line)["id"] for line in (work.at("bison-verify") / "trials.jsonl").read_text().splitlines()]
    assert set(kept) == {one["id"] for one in chosen} - {refused}
    assert "trials:" in next_words(bison, work, found)[0]


def test_bivlc_goes_from_edits_of_the_world_to_whole_trials(tmp_path: Path):
    bivlc, work = recipe("bivlc"), Work(tmp_path / "R", DATA, {"captions": 3})
    assert states(bivlc, work)[3:] == [WAITS, LATER, LATER]
    answered(work, "bivlc-choose", lambda hit, n: {"best": "image-0" if n else "none"}, ("anna",))
    assert states(bivlc, work)[4:] == [DONE, WAITS]
    answered(work, "bivlc-ambiguity", lambda hit, n: {"which": original(hit, n)}, ("ben",))
    assert set(states(bivlc, work)) == {DONE}
    assert (work.at("bivlc-ambiguity") / "trials.jsonl").stat().st_size
    negatives = {row["id"]: row for row in map(json.loads, (work.at("format") / "rows.jsonl").read_text().splitlines())}
    for line in (work.at("bivlc-ambiguity") / "trials.jsonl").read_text().splitlines():
        trial = json.loads(line)
        row = negatives[trial["id"]]
        assert trial["captions"] == [row["caption"], row["negative"]]
        assert len(trial["images"]) == 2


def test_artificial_people_know_what_the_world_drew(tmp_path: Path):
    from crossmatch.study.annotators import Habits
    from crossmatch.study.simulate import simulate

    bivlc, work = recipe("bivlc"), Work(tmp_path / "R", DATA, {"captions": 3})
    for study in ("bivlc-choose", "bivlc-ambiguity"):
        carry_on(bivlc, work)
        (one,) = simulate(work.folder / CAMPAIGN, study, people=2, habits=Habits(accuracy=1.0))
        assert (one.accuracy, one.left) == (1.0, 0)
    assert set(states(bivlc, work)) == {DONE}
    drawn, kept = (
        (work.at(stage) / name).read_text() for stage, name in (("pair", "rows.jsonl"), ("bivlc-ambiguity", "trials.jsonl"))
    )
    known = {row["id"]: row["fits"] for row in map(json.loads, drawn.splitlines())}
    assert {json.loads(line)["id"] for line in kept.splitlines()} == {name for name, fits in known.items() if fits == [True, False]}


def test_eccv_merges_what_people_said_with_the_links(tmp_path: Path):
    eccv, work = recipe("eccv"), Work(tmp_path / "R", DATA, {"models": ["random"]})
    assert states(eccv, work) == [DONE, WAITS, LATER, LATER]
    answered(work, "eccv-hit", lambda hit, n: {"match": "yes" if "yes" in (hit.items[n].gold or {}).get("match", ()) else "no"})
    assert states(eccv, work) == [DONE, DONE, DONE, DONE]
    merged = load_folder(work.at("merge"))
    assert any(name.startswith("merged") for name in merged.judgements)


def test_a_study_that_its_owner_closed_is_enough(tmp_path: Path):
    from crossmatch.study.assign import set_open

    bison, work = recipe("bison"), Work(tmp_path / "R", DATA)
    carry_on(bison, work)
    campaign = open_campaign(work.folder / CAMPAIGN)
    number = find_study(campaign, "bison-select").id
    who = someone(campaign, number, "anna")
    claim = assign.claim_hit(campaign, number, who)
    assign.submit(campaign, claim, who, [{"telling": "caption-0"} for _ in hit_of(campaign, claim).items])
    set_open(campaign, number, False)
    campaign.close()
    assert states(bison, work) == [DONE, DONE, WAITS]


# -- to train with


def test_trohn_writes_what_train_reads(tmp_path: Path):
    from crossmatch.train.hard_files import NegativeFile

    texts = Work(tmp_path / "T", f"{DATA}/train", {"captions": 40})
    assert set(states(recipe("trohn-text"), texts)) == {DONE}
    images = Work(tmp_path / "I", f"{DATA}/train", {"captions": 200, "share": 1.0})
    assert set(states(recipe("trohn-img"), images)) == {DONE}
    for work, pairs in ((texts, False), (images, True)):
        held = load_folder(work.at("training") / "collection").collection
        found = NegativeFile.read(work.at("training") / "negatives.jsonl", pairs)
        found.require_known(held.image_ids.tolist())
        assert all(row.negative != row.caption for row in found.rows)
    assert all((images.at("training") / "images" / row.negative_image).is_file() for row in found.rows)
