"""The recipes: how the benchmarks of the papers are built, as tables of stages."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from shlex import quote

from crossmatch.build.generation.negative_images import ITEMS
from crossmatch.build.recipes import stage_steps as steps
from crossmatch.build.recipes.engine import BuildRecipe, BuildStage, RecipeRun
from crossmatch.build.refinement.refinement_step import SHARE
from crossmatch.build.step_files import ROWS
from crossmatch.data.errors import UsageError
from crossmatch.data.settings import suggest_name
from crossmatch.study.design.data_source import is_world

IMAGES = 4  # per negative, for people to choose from (miranda2024bivlc, sec. 3.1, step 2)


def step_rows(stage: str) -> Callable[[RecipeRun], Path]:
    """The rows of a stage, as items of a study."""
    return lambda run: run.stage_folder(stage) / ROWS


def evaluate_command(run: RecipeRun, task: str) -> str:
    """The command that evaluates a model on the result; each recipe keeps its own results folder."""
    return f"crossmatch run -m MODEL -t {quote(task)} -o {quote(str(run.stage_folder('results')))}"


def rated_tasks(folder: Path) -> list[str]:
    """Retrieval in four directions, and the correlation with each kind of rating (parekh2021cxc, sec. 4)."""
    return [f"collection:{folder}", *(f"collection:{folder}+ratings={study}" for study in ("sts", "sis", "sits"))]


def train_command(recipe: str, run: RecipeRun) -> str:
    """The command that trains with the result."""
    data = f"collection:{run.stage_folder('training') / 'collection'}" if is_world(run.data) else run.data
    file = quote(str(run.stage_folder("training") / steps.TRAINING_FILE))
    return f"crossmatch train {recipe} --data {quote(data)} --negatives {file} -o RUN"


BISON = BuildRecipe(
    name="bison",
    about="pairs of look-alike images, a caption that tells them apart, and two people who confirm it",
    paper="hu2019bison",
    options={"people": None},
    stages=(
        BuildStage("lookalikes", "each image with the image whose captions are most similar", run_step=steps.find_lookalike_pairs),
        BuildStage("bison-select", "which caption describes the left image but not the right one", ("lookalikes",),
                   study_items=step_rows("lookalikes")),
        BuildStage("bison-verify", "which image the caption describes: both people must choose the positive", ("bison-select",),
                   study_items=lambda run: run.stage_folder("bison-select") / "trials.jsonl", excludes=("bison-select",)),
    ),
    next_command=lambda run: evaluate_command(run, f"trials:{run.stage_folder('bison-verify') / 'trials.jsonl'}"),
)  # fmt: skip

CXC = BuildRecipe(
    name="cxc",
    about="pairs of captions, of images and of both, of graded similarity, each rated by five people",
    paper="parekh2021cxc",
    options={"models": (), "people": None},
    stages=(
        BuildStage("sample-sts", "pairs of captions: of similar images, and of one image", run_step=steps.sample_caption_pairs),
        BuildStage("sample-sis", "pairs of images with similar captions", run_step=steps.sample_image_pairs),
        BuildStage("sts", "how similar two captions are", ("sample-sts",), study_items=step_rows("sample-sts")),
        BuildStage("sis", "how similar two images are", ("sample-sis",), study_items=step_rows("sample-sis")),
        BuildStage("sample-sits", "image-caption pairs, by the ratings of both", ("sts", "sis"),
                   run_step=steps.sample_image_caption_pairs),
        BuildStage("sits", "how well an image and a caption match", ("sample-sits",), study_items=step_rows("sample-sits")),
        BuildStage("benchmark", "all ratings with the collection", ("sits",), run_step=steps.collect_ratings),
    ),
    next_command=lambda run: evaluate_command(run, ",".join(rated_tasks(run.stage_folder("benchmark")))),
    check_options=steps.image_model,
)  # fmt: skip

NEGATIVE_OPTIONS = {"by": None, "llm": None, "endpoint": None, "captions": None}
NEGATIVE_STAGES = (
    BuildStage("negatives", "hard negatives: an object, attribute or relation replaced, swapped or added",
               run_step=steps.write_negatives),
    BuildStage("format", "captions and negatives in one format", ("negatives",), run_step=steps.format_negatives),
)  # fmt: skip

BIVLC = BuildRecipe(
    name="bivlc",
    about="hard negatives with generated images: people choose the best image, and drop ambiguous ones",
    paper="miranda2024bivlc",
    options={**NEGATIVE_OPTIONS, "generator": None, "people": None},
    stages=(
        *NEGATIVE_STAGES,
        BuildStage("generate", "four images of each negative", ("format",),
                   run_step=partial(steps.draw_negatives, source="format", number=IMAGES)),
        BuildStage("bivlc-choose", "which image shows the negative best", ("generate",),
                   study_items=lambda run: run.stage_folder("generate") / ITEMS),
        BuildStage("pair", "the original with the chosen image", ("bivlc-choose",), run_step=steps.pair_with_originals),
        BuildStage("bivlc-ambiguity", "which image fits the original caption better: it must be the original", ("pair",),
                   study_items=step_rows("pair"), excludes=("bivlc-choose",)),
    ),
    next_command=lambda run: evaluate_command(run, f"trials:{run.stage_folder('bivlc-ambiguity') / 'trials.jsonl'}"),
    check_options=steps.check_writer_and_generator,
)  # fmt: skip

ECCV = BuildRecipe(
    name="eccv",
    about="pairs that several models retrieve, judged by people and merged with the links",
    paper="chun2022eccv",
    options={"models": (), "people": None},
    stages=(
        BuildStage("pool", "the five best items of each model in both directions, with gold pairs", run_step=steps.pool_candidates),
        BuildStage("eccv-hit", "whether the caption fits the image", ("pool",), study_items=step_rows("pool"),
                   design_changes=steps.drop_missing_gold),
        BuildStage("merge", "answers and links as one set of judgements", ("eccv-hit",), run_step=steps.merge_answers),
        BuildStage("bias", "how the choice of models biases the pool: bias/bias.html", ("merge",), run_step=steps.report_bias,
                   skip_reason=steps.single_model_reason),
    ),
    next_command=lambda run: evaluate_command(run, f"collection:{run.stage_folder('merge')}"),
    check_options=steps.pooled_models,
)  # fmt: skip

TROHN_TEXT = BuildRecipe(
    name="trohn-text",
    about="hard negative captions for training",
    paper="miranda2024bivlc",
    options=NEGATIVE_OPTIONS,
    stages=(
        *NEGATIVE_STAGES,
        BuildStage("training", "a training file", ("format",),
                   run_step=partial(steps.write_training_file, source="format", with_images=False)),
    ),
    next_command=partial(train_command, "clip-hard-texts"),
    check_options=steps.negative_writer,
)  # fmt: skip

TROHN_IMG = BuildRecipe(
    name="trohn-img",
    about="refined hard negatives that no blind model tells from captions, with an image each, for training",
    paper="miranda2024bivlc",
    options={**NEGATIVE_OPTIONS, "share": SHARE, "generator": None},
    stages=(
        *NEGATIVE_STAGES,
        BuildStage("refine", "the most plausible and fluent, cleaned, balanced over both scores", ("format",),
                   run_step=steps.refine_formatted),
        BuildStage("generate", "an image of each negative", ("refine",),
                   run_step=partial(steps.draw_negatives, source="refine", number=1)),
        BuildStage("training", "a training file", ("generate",),
                   run_step=partial(steps.write_training_file, source="generate", with_images=True)),
    ),
    next_command=partial(train_command, "clip-hard-pairs"),
    check_options=steps.check_writer_and_generator,
)  # fmt: skip

RECIPES = {recipe.name: recipe for recipe in (BISON, CXC, BIVLC, ECCV, TROHN_TEXT, TROHN_IMG)}


def find_recipe(name: str) -> BuildRecipe:
    """The recipe of this name.

    >>> [stage.name for stage in find_recipe("bison").stages]
    ['lookalikes', 'bison-select', 'bison-verify']
    """
    if name not in RECIPES:
        raise UsageError(f"Unknown recipe {name!r}. {suggest_name(name, RECIPES)}")
    return RECIPES[name]
