"""Recipes stop where people must answer, and go on from their answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossmatch.benchmarks.folder import load_folder
from crossmatch.build.files import read_rows
from crossmatch.build.recipe_table import BISON, RECIPES, recipe
from crossmatch.build.recipes import CAMPAIGN, DONE, LATER, LEFT_OUT, WAITS, Recipe, Stage, Work, carry_on, next_words
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
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
    (tmp_path / "R" / "one").mkdir()
    with pytest.raises(WrongWords, match="other data"):
        carry_on(small([]), Work(tmp_path / "R", "diorama", {"captions": 5}))
    (tmp_path / "R" / CAMPAIGN).mkdir()
    with pytest.raises(WrongWords, match="other options"):
        carry_on(small([]), Work(tmp_path / "R", DATA, {"captions": 6}))
    with pytest.raises(WrongWords, match="no option 'captoins'"):
        carry_on(small([]), Work(tmp_path / "S", DATA, {"captoins": 6}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "diary.txt").write_text("dear diary")
    with pytest.raises(WrongWords, match="holds no recipe"):
        carry_on(small([]), Work(tmp_path / "mine", DATA))


def test_a_slip_at_the_start_costs_no_folder(tmp_path: Path):
    bison = recipe("bison")
    with pytest.raises(CrossmatchError, match="is not there"):
        carry_on(bison, Work(tmp_path / "R", f"collection:{tmp_path / 'photoz'}"))
    assert states(bison, Work(tmp_path / "R", DATA))[0] == DONE


def test_options_of_what_is_to_come_may_be_said_anew_and_a_step_that_is_done_refuses_others(tmp_path: Path, monkeypatch):
    from crossmatch.build import recipe_table

    def at_hand(name: str) -> object:
        return None if name == "diffusers" else pytest.fail(name)

    bivlc, work = recipe("bivlc"), Work(tmp_path / "R", DATA, {"captions": 3, "generator": "diffusers:nowhere"})
    with monkeypatch.context() as without:
        without.setattr(recipe_table, "find_spec", at_hand)
        with pytest.raises(MissingDependency, match="diffusers"):
            carry_on(bivlc, work)
        assert not work.folder.exists(), "nothing is begun that cannot be ended"
    monkeypatch.setattr(recipe_table, "find_spec", lambda name: name)
    with pytest.raises(CrossmatchError, match="diffusers"):
        carry_on(bivlc, work)
    with pytest.raises(WrongWords, match=r"negatives was made with other options: captions was 3, and is 4"):
        carry_on(bivlc, Work(work.folder, DATA, {"captions": 4}))
    assert states(bivlc, Work(work.folder, DATA, {"captions": 3}))[:4] == [DONE, DONE, DONE, WAITS]


@pytest.mark.parametrize(
    ("name", "data", "options", "says"),
    [
        ("cxc", DATA, {}, "a model that embeds images, and none was named"),
        ("cxc", DATA, {"models": ["random", "oracle"]}, "asks one model"),
        ("eccv", DATA, {}, "the models that propose pairs"),
        ("bivlc", "collection:photos", {}, "no generator was named"),
        ("bivlc", "collection:photos", {"generator": "diorama"}, "draws the embedded world, and the data are collection:photos"),
        ("trohn-img", "collection:photos", {"generator": "crayons"}, "there is no generator 'crayons'"),
        ("trohn-text", "collection:photos", {"by": "llm"}, "needs --llm: "),
        ("trohn-text", "collection:photos", {"llm": "x"}, "--llm goes with --by llm, and negatives are written by rules"),
        ("trohn-text", "collection:photos", {"by": "diorama"}, "edits the embedded world"),
        ("trohn-text", DATA, {"by": "heart"}, "not written by 'heart'"),
    ],
)
def test_what_a_recipe_lacks_is_told_before_anything_is_begun(tmp_path: Path, name, data, options, says):
    with pytest.raises(WrongWords, match=says):
        carry_on(recipe(name), Work(tmp_path / "R", data, options))
    assert not (tmp_path / "R").exists()


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


def test_what_people_were_asked_about_is_not_made_again(tmp_path: Path, monkeypatch):
    """A stage that is over loads no model when the recipe is taken up again."""
    work = Work(tmp_path / "b", "diorama:tiny")
    carry_on(BISON, work)

    def fail(*_: object) -> None:
        raise AssertionError("it was done already")

    monkeypatch.setattr("crossmatch.build.recipe_table.mine", fail)
    assert [one.state for one in carry_on(BISON, work)] == [DONE, WAITS, LATER]
    (work.at("mine") / "rows.jsonl").write_text("")  # what was made is still looked after by those who read it
    with pytest.raises(CrossmatchError, match="changed"):
        read_rows(work.at("mine"))


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


@pytest.mark.parametrize("models", [["random"], ["random", "oracle"]])
def test_eccv_merges_what_people_said_with_the_links(tmp_path: Path, models: list[str]):
    eccv, work = recipe("eccv"), Work(tmp_path / "R", DATA, {"models": models})
    assert states(eccv, work) == [DONE, WAITS, LATER, LATER]
    answered(work, "eccv-hit", lambda hit, n: {"match": "no" if "no" in (hit.items[n].gold or {}).get("match", ()) else "yes"})
    found = carry_on(eccv, work)
    assert [one.state for one in found] == [DONE, DONE, DONE, LEFT_OUT if len(models) == 1 else DONE]
    assert ("nothing to compare" in found[-1].said) == (len(models) == 1)
    assert (work.at("bias") / "bias.html").is_file() == (len(models) == 2)
    assert next_words(eccv, work, found) == [f"crossmatch run -m MODEL -t collection:{work.at('merge')} -o {work.at('results')}"]
    merged = load_folder(work.at("merge"))
    assert any(name.startswith("merged") for name in merged.judgements)


def test_a_small_collection_has_no_certain_negatives_and_is_judged_without(tmp_path: Path):
    from PIL import Image

    (tmp_path / "pets" / "images").mkdir(parents=True)
    rows = ["image,caption"]
    for n in range(6):
        Image.new("RGB", (8, 8), (40 * n, 0, 0)).save(tmp_path / "pets" / "images" / f"{n}.png")
        rows += [f"{n}.png,Caption {k} of picture {n}." for k in range(2)]
    (tmp_path / "pets" / "captions.csv").write_text("\n".join(rows))
    eccv, work = recipe("eccv"), Work(tmp_path / "R", f"collection:{tmp_path / 'pets'}", {"models": ["random"]})
    assert states(eccv, work) == [DONE, WAITS, LATER, LATER]
    answered(work, "eccv-hit", lambda hit, n: {"match": "yes"})
    assert states(eccv, work) == [DONE, DONE, DONE, LEFT_OUT]  # one model: nothing to compare


def test_a_study_that_its_owner_closed_is_enough(tmp_path: Path):
    from crossmatch.study.verdicts import set_open

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
