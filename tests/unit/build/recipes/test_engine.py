"""Recipes stop where people must answer, and continue from their answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.build.recipes.engine import (
    CAMPAIGN,
    DONE,
    LATER,
    SKIPPED_STAGE,
    WAITING,
    BuildRecipe,
    BuildStage,
    RecipeRun,
    next_commands,
    run_stages,
)
from crossmatch.build.recipes.papers import BISON, RECIPES, find_recipe
from crossmatch.build.step_files import read_rows
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.judgements import rehearsal_note
from crossmatch.study.assignment import claims
from crossmatch.study.database.campaign import Campaign, open_campaign
from crossmatch.study.study import find_study
from study_lab import add_annotator, hit_of

DATA = "diorama:tiny"
Answer = Callable[[claims.Hit, int], dict[str, object]]


def answer_study(run: RecipeRun, study: str, answer: Answer, names: tuple[str, ...] = ("anna", "ben")) -> None:
    """Let people answer a study, each until no HIT is left for them."""
    campaign = open_campaign(run.folder / CAMPAIGN)
    try:
        number = find_study(campaign, study).id
        for name in names:
            answer_all_hits(campaign, number, add_annotator(campaign, number, f"{study} {name}"), answer)
    finally:
        campaign.close()


def answer_all_hits(campaign: Campaign, study: int, person: int, answer: Answer) -> None:
    while True:
        try:
            claim = claims.claim_hit(campaign, study, person)
        except claims.NoHitAvailableError:
            return
        data = hit_of(campaign, claim)
        claims.submit(campaign, claim, person, [answer(data, n) for n in range(len(data.items))])


def original(hit: claims.Hit, n: int) -> str:
    """The displayed place of the first image of an item."""
    return f"image-{hit.items[n].orders['images'].index(0)}"


def states(recipe: BuildRecipe, run: RecipeRun) -> list[str]:
    return [status.state for status in run_stages(recipe, run)]


def read_lines(run: RecipeRun, stage: str, file: str) -> list[dict]:
    return [json.loads(line) for line in (run.stage_folder(stage) / file).read_text().splitlines()]


# -- the table


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_names_a_paper_and_options_of_the_command(name: str):
    from crossmatch.cli.build.recipe import recipe_command

    parameters = {option.name for option in recipe_command.params}
    assert set(RECIPES[name].options) <= parameters
    assert RECIPES[name].paper
    assert "crossmatch " in RECIPES[name].next_command(RecipeRun(Path("x"), DATA, {"models": ["m"]}))


def test_stage_after_an_unknown_stage_is_rejected():
    with pytest.raises(CrossmatchError, match="expected a unique name"):
        BuildRecipe("x", "", "", (BuildStage("b", "", after=("a",), run_step=lambda run: None),), {}, lambda run: "")


def test_unknown_recipe_suggests_a_name():
    with pytest.raises(UsageError, match="bison"):
        find_recipe("bisom")


# -- the folder


def two_stage_recipe(finished: list[str]) -> BuildRecipe:
    stages = (
        BuildStage("one", "first", run_step=lambda run: finished.append("one")),
        BuildStage("two", "second", after=("one",), run_step=lambda run: finished.append("two")),
    )
    return BuildRecipe("small", "", "", stages, {"captions": 0}, lambda run: "the end")


def test_stages_run_in_order_and_end_with_a_command(tmp_path: Path):
    finished: list[str] = []
    run = RecipeRun(tmp_path / "R", DATA)
    statuses = run_stages(two_stage_recipe(finished), run)
    assert finished == ["one", "two"]
    assert next_commands(two_stage_recipe(finished), run, statuses) == ["the end"]


def test_changed_data_or_options_are_rejected(tmp_path: Path):
    run_stages(two_stage_recipe([]), RecipeRun(tmp_path / "R", DATA, {"captions": 5}))
    (tmp_path / "R" / "one").mkdir()
    with pytest.raises(UsageError, match="other data"):
        run_stages(two_stage_recipe([]), RecipeRun(tmp_path / "R", "diorama", {"captions": 5}))
    (tmp_path / "R" / CAMPAIGN).mkdir()
    with pytest.raises(UsageError, match="other options"):
        run_stages(two_stage_recipe([]), RecipeRun(tmp_path / "R", DATA, {"captions": 6}))
    with pytest.raises(UsageError, match="no option 'captoins'"):
        run_stages(two_stage_recipe([]), RecipeRun(tmp_path / "S", DATA, {"captoins": 6}))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("text")
    with pytest.raises(UsageError, match="is not the folder of a recipe"):
        run_stages(two_stage_recipe([]), RecipeRun(tmp_path / "mine", DATA))


def test_failed_start_leaves_the_folder_usable(tmp_path: Path):
    bison = find_recipe("bison")
    with pytest.raises(CrossmatchError, match="does not exist"):
        run_stages(bison, RecipeRun(tmp_path / "R", f"collection:{tmp_path / 'photoz'}"))
    assert states(bison, RecipeRun(tmp_path / "R", DATA))[0] == DONE


def test_options_of_later_stages_may_change(tmp_path: Path, monkeypatch):
    from crossmatch.build.recipes import stage_steps

    def at_hand(name: str) -> object:
        return None if name == "diffusers" else pytest.fail(name)

    bivlc, run = find_recipe("bivlc"), RecipeRun(tmp_path / "R", DATA, {"captions": 3, "generator": "diffusers:nowhere"})
    with monkeypatch.context() as without:
        without.setattr(stage_steps, "find_spec", at_hand)
        with pytest.raises(MissingDependencyError, match="diffusers"):
            run_stages(bivlc, run)
        assert not run.folder.exists(), "nothing starts that cannot be finished"
    monkeypatch.setattr(stage_steps, "find_spec", lambda name: name)
    with pytest.raises(CrossmatchError, match="diffusers"):
        run_stages(bivlc, run)
    with pytest.raises(UsageError, match=r"negatives was made with other options: captions was 3, now 4"):
        run_stages(bivlc, RecipeRun(run.folder, DATA, {"captions": 4}))
    assert states(bivlc, RecipeRun(run.folder, DATA, {"captions": 3}))[:4] == [DONE, DONE, DONE, WAITING]


@pytest.mark.parametrize(
    ("name", "data", "options", "message"),
    [
        ("cxc", DATA, {}, "needs a model that embeds images"),
        ("cxc", DATA, {"models": ["random", "oracle"]}, "takes one model"),
        ("eccv", DATA, {}, "models whose results are pooled"),
        ("bivlc", "collection:photos", {}, "needs an image generator"),
        ("bivlc", "collection:photos", {"generator": "diorama"}, "draws the embedded world only, but --data is collection:photos"),
        ("trohn-img", "collection:photos", {"generator": "crayons"}, "Unknown generator 'crayons'"),
        ("trohn-text", "collection:photos", {"by": "llm"}, "needs --llm: "),
        ("trohn-text", "collection:photos", {"llm": "x"}, "--llm requires --by llm, but negatives are written by rules"),
        ("trohn-text", "collection:photos", {"by": "diorama"}, "edits the embedded world"),
        ("trohn-text", DATA, {"by": "heart"}, "--by 'heart' is unknown"),
    ],
)
def test_missing_options_are_reported_before_the_start(tmp_path: Path, name, data, options, message):
    with pytest.raises(UsageError, match=message):
        run_stages(find_recipe(name), RecipeRun(tmp_path / "R", data, options))
    assert not (tmp_path / "R").exists()


# -- with people


def test_bison_ends_with_trials_that_both_people_confirmed(tmp_path: Path):
    bison, run = find_recipe("bison"), RecipeRun(tmp_path / "R", DATA)
    assert states(bison, run) == [DONE, WAITING, LATER]
    assert states(bison, run) == [DONE, WAITING, LATER], "a second run opens no second study"
    answer_study(run, "bison-select", lambda hit, n: {"telling": "caption-0" if n % 2 else "none"})
    assert states(bison, run) == [DONE, DONE, WAITING]
    chosen = read_lines(run, "bison-select", "trials.jsonl")
    refused = chosen[0]["id"]
    answer_study(run, "bison-verify", lambda hit, n: {"which": "both" if hit.items[n].key == refused else original(hit, n)})
    statuses = run_stages(bison, run)
    assert [status.state for status in statuses] == [DONE, DONE, DONE]
    confirmed = {trial["id"] for trial in read_lines(run, "bison-verify", "trials.jsonl")}
    assert confirmed == {trial["id"] for trial in chosen} - {refused}
    assert "trials:" in next_commands(bison, run, statuses)[0]


def test_finished_stages_are_not_repeated(tmp_path: Path, monkeypatch):
    """A finished stage loads no model when the recipe is resumed."""
    run = RecipeRun(tmp_path / "b", "diorama:tiny")
    run_stages(BISON, run)

    def fail(*_: object) -> None:
        raise AssertionError("a finished stage was repeated")

    monkeypatch.setattr("crossmatch.build.recipes.stage_steps.find_lookalikes", fail)
    assert states(BISON, run) == [DONE, WAITING, LATER]
    (run.stage_folder("lookalikes") / "rows.jsonl").write_text("")  # readers detect the change
    with pytest.raises(CrossmatchError, match="changed"):
        read_rows(run.stage_folder("lookalikes"))


def test_bivlc_ends_with_complete_trials(tmp_path: Path):
    bivlc, run = find_recipe("bivlc"), RecipeRun(tmp_path / "R", DATA, {"captions": 3})
    assert states(bivlc, run)[3:] == [WAITING, LATER, LATER]
    answer_study(run, "bivlc-choose", lambda hit, n: {"best": "image-0" if n else "none"}, ("anna",))
    assert states(bivlc, run)[4:] == [DONE, WAITING]
    answer_study(run, "bivlc-ambiguity", lambda hit, n: {"which": original(hit, n)}, ("ben",))
    assert set(states(bivlc, run)) == {DONE}
    negatives, trials = read_lines(run, "format", "rows.jsonl"), read_lines(run, "bivlc-ambiguity", "trials.jsonl")
    negatives = {row["id"]: row for row in negatives}
    assert trials
    for trial in trials:
        row = negatives[trial["id"]]
        assert trial["captions"] == [row["caption"], row["negative"]]
        assert len(trial["images"]) == 2


def test_artificial_annotators_know_the_drawn_scenes(tmp_path: Path):
    from crossmatch.study.simulation.simulate import simulate
    from crossmatch.study.simulation.simulated_annotators import Habits

    bivlc, run = find_recipe("bivlc"), RecipeRun(tmp_path / "R", DATA, {"captions": 3})
    for study in ("bivlc-choose", "bivlc-ambiguity"):
        run_stages(bivlc, run)
        (outcome,) = simulate(run.folder / CAMPAIGN, study, people=2, habits=Habits(accuracy=1.0))
        assert (outcome.accuracy, outcome.left) == (1.0, 0)
    statuses = run_stages(bivlc, run)
    assert {status.state for status in statuses} == {DONE}
    by_artificial = {status.stage for status in statuses if status.message == rehearsal_note("answers")}
    assert by_artificial == {"bivlc-choose", "bivlc-ambiguity"}
    expected = {row["id"] for row in read_lines(run, "pair", "rows.jsonl") if row["fits"] == [True, False]}
    assert {trial["id"] for trial in read_lines(run, "bivlc-ambiguity", "trials.jsonl")} == expected


@pytest.mark.parametrize("models", [["random"], ["random", "oracle"]])
def test_eccv_merges_answers_with_links(tmp_path: Path, models: list[str]):
    eccv, run = find_recipe("eccv"), RecipeRun(tmp_path / "R", DATA, {"models": models})
    assert states(eccv, run) == [DONE, WAITING, LATER, LATER]
    answer_study(run, "eccv-hit", lambda hit, n: {"match": "no" if "no" in (hit.items[n].gold or {}).get("match", ()) else "yes"})
    statuses = run_stages(eccv, run)
    assert [status.state for status in statuses] == [DONE, DONE, DONE, SKIPPED_STAGE if len(models) == 1 else DONE]
    assert ("nothing to compare" in statuses[-1].message) == (len(models) == 1)
    assert (run.stage_folder("bias") / "bias.html").is_file() == (len(models) == 2)
    assert next_commands(eccv, run, statuses) == [
        f"crossmatch run -m MODEL -t collection:{run.stage_folder('merge')} -o {run.stage_folder('results')}"
    ]
    merged = load_collection_folder(run.stage_folder("merge"))
    assert any(name.startswith("merged") for name in merged.judgements)


def test_small_collection_is_judged_without_negative_gold(tmp_path: Path):
    from PIL import Image

    (tmp_path / "pets" / "images").mkdir(parents=True)
    rows = ["image,caption"]
    for n in range(6):
        Image.new("RGB", (8, 8), (40 * n, 0, 0)).save(tmp_path / "pets" / "images" / f"{n}.png")
        rows += [f"{n}.png,Caption {k} of picture {n}." for k in range(2)]
    (tmp_path / "pets" / "captions.csv").write_text("\n".join(rows))
    eccv, run = find_recipe("eccv"), RecipeRun(tmp_path / "R", f"collection:{tmp_path / 'pets'}", {"models": ["random"]})
    assert states(eccv, run) == [DONE, WAITING, LATER, LATER]
    answer_study(run, "eccv-hit", lambda hit, n: {"match": "yes"})
    assert states(eccv, run) == [DONE, DONE, DONE, SKIPPED_STAGE]  # one model: nothing to compare


def test_closed_study_counts_as_finished(tmp_path: Path):
    from crossmatch.study.assignment.review import set_open

    bison, run = find_recipe("bison"), RecipeRun(tmp_path / "R", DATA)
    run_stages(bison, run)
    campaign = open_campaign(run.folder / CAMPAIGN)
    number = find_study(campaign, "bison-select").id
    person = add_annotator(campaign, number, "anna")
    claim = claims.claim_hit(campaign, number, person)
    claims.submit(campaign, claim, person, [{"telling": "caption-0"} for _ in hit_of(campaign, claim).items])
    set_open(campaign, number, False)
    campaign.close()
    assert states(bison, run) == [DONE, DONE, WAITING]


# -- to train with


def test_trohn_writes_files_that_train_reads(tmp_path: Path):
    from crossmatch.train.data.negative_files import NegativeFile

    texts = RecipeRun(tmp_path / "T", f"{DATA}/train", {"captions": 40})
    assert set(states(find_recipe("trohn-text"), texts)) == {DONE}
    images = RecipeRun(tmp_path / "I", f"{DATA}/train", {"captions": 200, "share": 1.0})
    assert set(states(find_recipe("trohn-img"), images)) == {DONE}
    for run, pairs in ((texts, False), (images, True)):
        data = load_collection_folder(run.stage_folder("training") / "collection").collection
        statuses = NegativeFile.read(run.stage_folder("training") / "negatives.jsonl", pairs)
        statuses.require_known_images(data.image_ids.tolist())
        assert all(row.negative != row.caption for row in statuses.rows)
    assert all((images.stage_folder("training") / "images" / row.negative_image).is_file() for row in statuses.rows)
