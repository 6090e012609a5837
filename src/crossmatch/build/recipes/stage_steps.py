"""The build steps of the recipes, each as a function of a recipe run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks.formats.collection_writer import write_collection
from crossmatch.build.generation.generators import GENERATORS, load_generator
from crossmatch.build.generation.negative_images import generate_images
from crossmatch.build.lookalikes import find_lookalikes
from crossmatch.build.merging.merge import write_merge
from crossmatch.build.merging.pair_verdicts import read_source
from crossmatch.build.negatives.by_diorama import write_diorama_negatives
from crossmatch.build.negatives.by_language_model import load_writer, write_llm_negatives
from crossmatch.build.negatives.by_rules import write_rule_negatives
from crossmatch.build.negatives.caption_format import write_formatted
from crossmatch.build.pool_bias_report import write_bias_report
from crossmatch.build.pool_bias_step import write_pool_bias
from crossmatch.build.pooling import build_pool
from crossmatch.build.rated_pair_sampling import TEXT_MODELS, sample_sis, sample_sits, sample_sts
from crossmatch.build.rating_files import read_pair_ratings
from crossmatch.build.recipes.engine import RecipeRun
from crossmatch.build.refinement.refinement_step import SHARE, refine_negatives
from crossmatch.build.step_files import (
    Row,
    StepOutput,
    StepSpec,
    read_complete_rows,
    read_manifest,
    read_rows,
    rows_hash,
    write_step,
)
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.file_contents import file_sha256
from crossmatch.data.settings import suggest_name
from crossmatch.study.design.data_source import is_world, world_of

NEGATIVE_WRITERS = ("rules", "diorama", "llm")
TRAINING_FILE = "negatives.jsonl"  # read by `crossmatch train --negatives`


def _models(run: RecipeRun, purpose: str) -> list[str]:
    models = [str(name) for name in run.options.get("models", ())]
    if not models:
        raise UsageError(f"The recipe needs {purpose}. Add -m MODEL.")
    return models


# -- BISON


def find_lookalike_pairs(run: RecipeRun) -> None:
    find_lookalikes(run.collection, run.stage_folder("lookalikes"))


# -- Crisscrossed Captions


def image_model(run: RecipeRun) -> str:
    """The one model that embeds images."""
    models = _models(run, "a model that embeds images")
    if len(models) > 1:
        raise UsageError(f"Recipe cxc takes one model that embeds images, got {len(models)}: {', '.join(models)}.")
    return models[0]


def sample_caption_pairs(run: RecipeRun) -> None:
    sample_sts(run.collection, run.stage_folder("sample-sts"), image_model=image_model(run), seed=run.seed)


def sample_image_pairs(run: RecipeRun) -> None:
    sample_sis(run.collection, run.stage_folder("sample-sis"), text_models=TEXT_MODELS)


def sample_image_caption_pairs(run: RecipeRun) -> None:
    sample_sits(
        run.collection,
        run.stage_folder("sample-sits"),
        caption_ratings=read_pair_ratings(run.stage_folder("sts") / "judgements_t2t.csv", run.collection, "caption"),
        image_ratings=read_pair_ratings(run.stage_folder("sis") / "judgements_i2i.csv", run.collection, "image"),
        seed=run.seed,
    )


def collect_ratings(run: RecipeRun) -> None:
    """Write all ratings and the collection into one folder."""
    folder = run.stage_folder("benchmark")
    folder.mkdir(exist_ok=True)
    stages = {"judgements.csv": "sits", "judgements_t2t.csv": "sts", "judgements_i2i.csv": "sis"}
    contents = {file: (run.stage_folder(stage) / file).read_bytes() for file, stage in stages.items()}
    contents["captions.json"] = write_collection(folder, run.collection).encode()
    for file, content in contents.items():
        with atomic_write(folder / file, durable=True) as target:
            target.write(content)


# -- negatives and their images (BiVLC, TROHN)


def negative_writer(run: RecipeRun) -> str:
    """How negatives are written; by default rules, and for the embedded world its own edits."""
    by = str(run.options.get("by") or ("diorama" if is_world(run.data) else "rules"))
    if by not in NEGATIVE_WRITERS:
        raise UsageError(f"--by {by!r} is unknown. {suggest_name(by, NEGATIVE_WRITERS)}")
    if by == "diorama" and not is_world(run.data):
        raise UsageError(f"--by diorama edits the embedded world only, but --data is {run.data}. Use --by rules or --by llm.")
    if by == "llm" and not run.options.get("llm"):
        raise UsageError("--by llm needs --llm: a folder or .gguf file, or with --endpoint the name of a model there.")
    unused = next((key for key in ("llm", "endpoint") if by != "llm" and run.options.get(key)), None)
    if unused is not None:
        raise UsageError(f"--{unused} requires --by llm, but negatives are written by {by}. Add --by llm, or remove --{unused}.")
    return by


def write_negatives(run: RecipeRun) -> None:
    by, folder, captions = negative_writer(run), run.stage_folder("negatives"), run.options.get("captions", 0)
    if by == "rules":
        write_rule_negatives(run.collection, folder, seed=run.seed, captions=captions)
    elif by == "diorama":
        write_diorama_negatives(world_of(run.data), folder, seed=run.seed, captions=captions)
    else:
        writer = load_writer(str(run.options.get("endpoint", "")), str(run.options["llm"]))
        write_llm_negatives(run.collection, writer, folder, seed=run.seed, captions=captions)


def format_negatives(run: RecipeRun) -> None:
    write_formatted(run.stage_folder("negatives"), run.stage_folder("format"))


def refine_formatted(run: RecipeRun) -> None:
    share = run.options.get("share", SHARE)
    refine_negatives(run.stage_folder("format"), run.stage_folder("refine"), share=share, seed=run.seed)


def _generator_name(run: RecipeRun) -> str:
    """Name of the image generator, checked as far as possible without loading it."""
    name = str(run.options.get("generator") or ("diorama" if is_world(run.data) else ""))
    if not name:
        raise UsageError("The recipe needs an image generator. Add --generator diffusers:FOLDER.")
    if name == "diorama" and not is_world(run.data):
        raise UsageError(
            f"--generator diorama draws the embedded world only, but --data is {run.data}. Use --generator diffusers:FOLDER."
        )
    if name.startswith("diffusers:") and find_spec("diffusers") is None:
        raise MissingDependencyError("diffusers", "generate")
    return name


def check_writer_and_generator(run: RecipeRun) -> None:
    """Check both options before negatives are written, which may take days."""
    negative_writer(run)
    name = _generator_name(run)
    if name.partition(":")[0] not in GENERATORS:
        load_generator(name)  # raises with a list of the known generators


def draw_negatives(run: RecipeRun, source: str, number: int) -> None:
    generator = load_generator(_generator_name(run), world_of(run.data) if is_world(run.data) else None)
    folder = run.stage_folder("generate")
    generate_images(run.stage_folder(source), folder, generator=generator, number=number, seed=run.seed)


# -- BiVLC


def pair_with_originals(run: RecipeRun) -> None:
    """Pair each original with the image chosen for its negative: items of `bivlc-ambiguity`, the original first."""
    folder, choices = run.stage_folder("pair"), run.stage_folder("bivlc-choose") / "choices.jsonl"
    chosen = {choice["id"]: choice for choice in read_complete_rows(choices) if choice.get("images")}
    caption_holds = {row["id"]: row.get("caption_holds") for row in read_rows(run.stage_folder("generate"))}  # diorama only

    def make_rows(step: StepOutput) -> list[Row]:
        (folder / "images").mkdir(exist_ok=True)
        rows: list[Row] = []
        for row in read_rows(run.stage_folder("format")):
            if row["id"] not in chosen:
                step.count("without an image")
                continue
            (name,), (image_id,) = chosen[row["id"]]["images"], chosen[row["id"]]["image_ids"]
            with atomic_write(folder / "images" / name, durable=True) as file:
                file.write((run.stage_folder("bivlc-choose") / "images" / name).read_bytes())
            is_true = caption_holds[image_id]
            rows.append({
                "id": row["id"], "images": [row["image_id"], name], "captions": [row["caption"]], "category": row["category"],
                "trial_of": {"captions": [row["caption"], row["negative"]], "category": row["category"]},
                **({"fits": [True, is_true]} if is_true is not None else {}),
                **{key: chosen[row["id"]][key] for key in ("by",) if key in chosen[row["id"]]},
            })  # fmt: skip
        return rows

    inputs = {"format": rows_hash(run.stage_folder("format")), "choices": file_sha256(choices)[:16]}
    write_step(folder, StepSpec("pair", inputs), make_rows)


# -- ECCV Caption


def pooled_models(run: RecipeRun) -> list[str]:
    """The models whose results are pooled."""
    return _models(run, "models whose results are pooled")


def pool_candidates(run: RecipeRun) -> None:
    build_pool(run.collection, pooled_models(run), run.stage_folder("pool"), seed=run.seed)


def drop_missing_gold(run: RecipeRun) -> tuple[str, ...]:
    """Design changes for kinds of gold pairs that the pool lacks: a small collection has no safe negatives."""
    counts = read_manifest(run.stage_folder("pool"))["counts"]
    return tuple(f"recipe.gold_{kind}=0" for kind in ("positive", "negative") if not counts.get(kind))


def merge_answers(run: RecipeRun) -> None:
    answers = read_source(run.stage_folder("eccv-hit"), run.collection, "people")
    write_merge(run.collection, [answers], run.stage_folder("merge"), pool=run.stage_folder("pool"))


def report_bias(run: RecipeRun) -> None:
    folder = run.stage_folder("bias")
    analysis, _ = write_pool_bias(run.stage_folder("pool"), run.stage_folder("merge"), folder, seed=run.seed)
    with suppress(MissingDependencyError):  # the plot is optional
        write_bias_report(folder, analysis)


def single_model_reason(run: RecipeRun) -> str:
    """Why the bias is skipped if there is one model only."""
    return "only one model was pooled, so there is nothing to compare" if len(run.options["models"]) < 2 else ""


# -- TROHN


def write_training_file(run: RecipeRun, source: str, with_images: bool) -> None:
    """Write a file for `crossmatch train --negatives`; the embedded world is also written as a collection to train on."""
    rows = read_rows(run.stage_folder(source))
    if not rows:
        raise CrossmatchError(f"{run.stage_folder(source)} contains no negatives. Use more --captions, or a larger --share.")
    folder = run.stage_folder("training")
    folder.mkdir(exist_ok=True)
    examples = [_training_example(row, with_images) for row in rows]
    files = {TRAINING_FILE: "".join(json.dumps(example, ensure_ascii=False) + "\n" for example in examples)}
    if with_images:
        (folder / "images").mkdir(exist_ok=True)
        for row in rows:
            with atomic_write(folder / row["file"]) as target:
                target.write((run.stage_folder("generate") / row["file"]).read_bytes())
    if is_world(run.data):
        (folder / "collection").mkdir(exist_ok=True)
        files["collection/captions.json"] = write_collection(folder / "collection", _with_negatives(run.collection, rows))
    for name, text in files.items():
        with atomic_write(folder / name, durable=True) as file:
            file.write(text.encode())


def _with_negatives(data: Collection, rows: Sequence[Row]) -> Collection:
    """The images that have a negative, with their captions."""
    images = np.flatnonzero(np.isin(data.image_ids, [row["image_id"] for row in rows]))
    return data.select(images, np.unique(data.links[np.isin(data.links[:, 0], images), 1]))


def _training_example(row: Row, with_images: bool) -> dict[str, Any]:
    image = {"negative_image": Path(row["file"]).name} if with_images else {}
    return {"image": row["image_id"], "caption": row["caption"], "negative_caption": row["negative"], **image}
