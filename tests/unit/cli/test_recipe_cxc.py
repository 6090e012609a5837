"""The recipe of Crisscrossed Captions, from the sample to the command that it prints at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from shlex import split
from zlib import crc32

import numpy as np
import pytest

from crossmatch import evaluate
from crossmatch.benchmarks import load_benchmark_data, load_benchmark_ratings
from crossmatch.benchmarks.formats.collection_writer import write_collection
from crossmatch.build.recipes.engine import (
    CAMPAIGN,
    DONE,
    LATER,
    WAITING,
    BuildRecipe,
    RecipeRun,
    next_commands,
    run_stages,
)
from crossmatch.build.recipes.papers import find_recipe
from crossmatch.diorama.world import Diorama
from crossmatch.study.database.campaign import open_campaign
from crossmatch.study.study import find_study
from study_exports import answer_all_hits


def states(recipe: BuildRecipe, run: RecipeRun) -> list[str]:
    return [status.state for status in run_stages(recipe, run)]


def answer(run: RecipeRun, study: str, values: Callable[[object], dict[str, float]]) -> None:
    """Let one person answer all items of a study."""
    campaign = open_campaign(run.folder / CAMPAIGN)
    try:
        answer_all_hits(campaign, find_study(campaign, study), f"{study} rater", values)
    finally:
        campaign.close()


def rate(item) -> dict[str, float]:
    """A rating from 0 to 5 that depends on the item only."""
    return {"similarity": 5 * (crc32(item.key.encode()) % 1000) / 999}


def run_next_command(crossmatch, recipe: BuildRecipe, run: RecipeRun, model: str) -> dict[str, dict[str, float]]:
    """Run the command that a finished recipe prints, and return its numbers by task."""
    statuses = run_stages(recipe, run)
    assert {status.state for status in statuses} == {DONE}
    (command,) = next_commands(recipe, run, statuses)
    arguments = [model if argument == "MODEL" else argument for argument in split(command)[1:]]
    code, out, err = crossmatch(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def small_collection(folder: Path, images: int) -> str:
    """The first scenes of diorama as a user's folder."""
    data = Diorama.make("test", size="tiny").collection
    captions = np.unique(data.links[data.links[:, 0] < images, 1])
    folder.mkdir()
    (folder / "captions.json").write_text(write_collection(folder, data.select(np.arange(images), captions)))
    return f"collection:{folder}"


def test_cxc_ends_with_all_that_the_paper_measures(crossmatch, tmp_path: Path, monkeypatch):
    """Retrieval in four directions with a threshold for each kind of pair, and three correlations."""
    monkeypatch.setattr("crossmatch.build.recipes.stage_steps.TEXT_MODELS", ("tfidf",))
    run = RecipeRun(tmp_path / "R", small_collection(tmp_path / "data", 8), {"models": ["random"], "people": 1})
    cxc = find_recipe("cxc")
    assert states(cxc, run) == [DONE, DONE, WAITING, WAITING, LATER, LATER, LATER]
    for study in ("sts", "sis"):
        answer(run, study, rate)
    assert states(cxc, run) == [DONE, DONE, DONE, DONE, DONE, WAITING, LATER]
    answer(run, "sits", rate)
    results = run_next_command(crossmatch, cxc, run, "random")
    folder = f"collection:{run.stage_folder('benchmark')}"
    names = ["collection:benchmark", *(f"{folder}+ratings={study}" for study in ("sts", "sis", "sits"))]
    assert list(results) == names
    assert {key.partition("/")[0] for key in results[names[0]]} == {"i2t", "t2i", "t2t", "i2i"}
    assert all({"bootstrap-spearman", "bootstrap-spearman-std"} <= set(results[name]) for name in names[1:])
    assert {name: j.positive for name, j in load_benchmark_data(folder).judgements.items()} == {
        "links": 1.0, "sits": 3.0, "sts": 3.0, "sis": 2.5,
    }  # fmt: skip
    methods = {name: set(ratings.methods) for name, ratings in load_benchmark_ratings(folder).ratings.items()}
    assert methods == {
        "sits": {"c2i_intrasim", "c2i_original"}, "sts": {"c2c_isim", "c2c_cocaption"}, "sis": {"i2i_csim"},
    }  # fmt: skip


@pytest.mark.slow
def test_simulated_people_build_cxc_on_diorama(crossmatch, tmp_path: Path):
    from crossmatch.study.simulation.simulate import simulate
    from crossmatch.study.simulation.simulated_annotators import Habits

    cxc, run = find_recipe("cxc"), RecipeRun(tmp_path / "R", "diorama:tiny", {"models": ["random"]})
    for study in ("sts", "sis", "sits"):
        run_stages(cxc, run)
        (outcome,) = simulate(run.folder / CAMPAIGN, study, people=8, habits=Habits(accuracy=1.0))
        assert (outcome.left, outcome.errors) == (0, 0)
    results = run_next_command(crossmatch, cxc, run, "random")
    assert [task.partition("+ratings=")[2] for task in results] == ["", "sts", "sis", "sits"]
    assert {key.partition("/")[0] for key in results["collection:benchmark"]} >= {"i2t", "t2i", "t2t"}
    oracle = evaluate("oracle", f"collection:{run.stage_folder('benchmark')}+ratings=sits")
    assert oracle["bootstrap-spearman"].value > 50, "the simulated people rate by the truth that the oracle knows"
