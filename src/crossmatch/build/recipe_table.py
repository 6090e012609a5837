"""The constructions of the papers, each a declaration of its stages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from crossmatch.benchmarks.formats.written import write_collection
from crossmatch.build.bias import bias
from crossmatch.build.bias_report import write_bias
from crossmatch.build.files import ROWS, Asked, Output, Row, hash_of, manifest, read_rows, whole_lines, written
from crossmatch.build.format import formatted
from crossmatch.build.generate import ITEMS, generate
from crossmatch.build.generators import GENERATORS, generator
from crossmatch.build.merge import merge
from crossmatch.build.mine import mine
from crossmatch.build.negative_llm import named_writer, written_negatives
from crossmatch.build.negative_world import world_negatives
from crossmatch.build.negatives import negatives
from crossmatch.build.pool import pool
from crossmatch.build.rated import read_rated
from crossmatch.build.recipes import Recipe, Stage, Work
from crossmatch.build.refine import SHARE, refine
from crossmatch.build.sample import TEXT_MODELS, sample_sis, sample_sits, sample_sts
from crossmatch.build.verdicts import read_said
from crossmatch.core.collection import Collection
from crossmatch.core.declared import nearest
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.files import sha256_of
from crossmatch.core.whole import whole_file
from crossmatch.study.sources import is_world, world_of

IMAGES = 4  # of each negative for people to choose from (miranda2024bivlc, sec. 3.1, step 2)
TRAINING = "negatives.jsonl"  # what `crossmatch train --negatives` reads


def rows_of(stage: str) -> Callable[[Work], Path]:
    """The rows of a step, which are items of a study."""
    return lambda work: work.at(stage) / ROWS


def _models(work: Work, what: str) -> list[str]:
    """The models that a recipe asks."""
    found = [str(name) for name in work.options.get("models", ())]
    if not found:
        raise WrongWords(f"this recipe needs {what}, and none was named. Name it: -m MODEL")
    return found


def evaluated(work: Work, task: str) -> str:
    """The words that evaluate a model on what was built; each recipe has results of its own, since two tasks may have one name."""
    return f"crossmatch run -m MODEL -t {quote(task)} -o {quote(str(work.at('results')))}"


# -- BISON: which of two look-alike images?

BISON = Recipe(
    name="bison",
    about="look-alike images, a caption that tells them apart, and two people who confirm it",
    paper="hu2019bison",
    options={"people": None},
    stages=(
        Stage("mine", "each image with the one whose captions are most like its own",
              do=lambda work: mine(work.collection, work.at("mine"))),
        Stage("bison-select", "which caption describes the left image but not the right one", ("mine",), items=rows_of("mine")),
        Stage("bison-verify", "which image does the caption describe: both people must choose the positive", ("bison-select",),
              items=lambda work: work.at("bison-select") / "trials.jsonl", excludes=("bison-select",)),
    ),
    ends=lambda work: evaluated(work, f"trials:{work.at('bison-verify') / 'trials.jsonl'}"),
)  # fmt: skip


# -- Crisscrossed Captions: graded likeness within and across modalities


def _sample_sts(work: Work) -> None:
    sample_sts(work.collection, work.at("sample-sts"), images=_looks(work), seed=work.seed)


def _looks(work: Work) -> str:
    models = _models(work, "a model that embeds images")
    if len(models) > 1:
        raise WrongWords(f"the recipe cxc asks one model that embeds images, and {len(models)} were named: {', '.join(models)}.")
    return models[0]


def _sample_sits(work: Work) -> None:
    held = work.collection
    sample_sits(
        held,
        work.at("sample-sits"),
        captions=read_rated(work.at("sts") / "judgements_t2t.csv", held, "caption"),
        images=read_rated(work.at("sis") / "judgements_i2i.csv", held, "image"),
        seed=work.seed,
    )


def _together(work: Work) -> None:
    """All ratings in one folder, with the collection that they are of."""
    work.at("benchmark").mkdir(exist_ok=True)
    files = {"judgements.csv": "sits", "judgements_t2t.csv": "sts", "judgements_i2i.csv": "sis"}
    held = {file: (work.at(stage) / file).read_bytes() for file, stage in files.items()}
    held["captions.json"] = write_collection(work.at("benchmark"), work.collection).encode()
    for file, content in held.items():
        with whole_file(work.at("benchmark") / file, durable=True) as target:
            target.write(content)


CXC = Recipe(
    name="cxc",
    about="pairs of captions, of images and of both, of graded likeness, rated by five people each",
    paper="parekh2021cxc",
    options={"models": (), "people": None},
    stages=(
        Stage("sample-sts", "pairs of captions: of images that look alike, and of one image", do=_sample_sts),
        Stage("sample-sis", "pairs of images: those whose captions read alike",
              do=lambda work: sample_sis(work.collection, work.at("sample-sis"), texts=TEXT_MODELS)),
        Stage("sts", "how alike are two captions", ("sample-sts",), items=rows_of("sample-sts")),
        Stage("sis", "how alike are two images", ("sample-sis",), items=rows_of("sample-sis")),
        Stage("sample-sits", "pairs of an image and a caption, by the ratings of both", ("sts", "sis"), do=_sample_sits),
        Stage("sits", "how well do an image and a caption fit", ("sample-sits",), items=rows_of("sample-sits")),
        Stage("benchmark", "all ratings beside the collection", ("sits",), do=_together),
    ),
    ends=lambda work: evaluated(work, f"collection:{work.at('benchmark')}+positive=3"),
    needs=_looks,
)  # fmt: skip


# -- negatives and their images, of BiVLC and of TROHN


def _by_rules(work: Work, folder: Path) -> object:
    return negatives(work.collection, folder, seed=work.seed, captions=work.options.get("captions", 0))


def _by_world(work: Work, folder: Path) -> object:
    return world_negatives(world_of(work.data), folder, seed=work.seed, captions=work.options.get("captions", 0))


def _by_llm(work: Work, folder: Path) -> object:
    writer = named_writer(str(work.options.get("endpoint", "")), str(work.options["llm"]))
    return written_negatives(work.collection, writer, folder, seed=work.seed, captions=work.options.get("captions", 0))


BY: Mapping[str, Callable[[Work, Path], object]] = {"rules": _by_rules, "diorama": _by_world, "llm": _by_llm}


def _written_by(work: Work) -> str:
    """Rules, a language model, or, where nothing is said of the embedded world, its own edits."""
    by = str(work.options.get("by") or ("diorama" if is_world(work.data) else "rules"))
    if by not in BY:
        raise WrongWords(f"negatives are not written by {by!r}. {nearest(by, BY)}")
    if by == "diorama" and not is_world(work.data):
        raise WrongWords(f"--by diorama edits the embedded world, and the data are {work.data}. Take --by rules, or --by llm.")
    if by == "llm" and not work.options.get("llm"):
        raise WrongWords("--by llm needs --llm: a folder or .gguf file, or with --endpoint the name of a model there.")
    strange = next((key for key in ("llm", "endpoint") if by != "llm" and work.options.get(key)), None)
    if strange is not None:
        raise WrongWords(f"--{strange} goes with --by llm, and negatives are written by {by}. Add it, or leave --{strange} out.")
    return by


def _negatives(work: Work) -> None:
    BY[_written_by(work)](work, work.at("negatives"))


def _drawn_by(work: Work) -> str:
    """Who draws, as far as that can be said before it is loaded."""
    words = str(work.options.get("generator") or ("diorama" if is_world(work.data) else ""))
    if not words:
        raise WrongWords("no generator was named that draws images of negative captions. Name one: --generator diffusers:FOLDER")
    if words == "diorama" and not is_world(work.data):
        raise WrongWords(
            f"--generator diorama draws the embedded world, and the data are {work.data}. Take --generator diffusers:FOLDER"
        )
    if words.startswith("diffusers:") and find_spec("diffusers") is None:
        raise MissingDependency("diffusers", "generate")
    return words


def _generate(work: Work, source: str, number: int) -> None:
    drawn_by = generator(_drawn_by(work), world_of(work.data) if is_world(work.data) else None)
    generate(work.at(source), work.at("generate"), by=drawn_by, number=number, seed=work.seed)


def _needs_images(work: Work) -> None:
    """Before negatives are written, which may take days: whether there is anybody who can draw them."""
    _written_by(work)
    if _drawn_by(work).partition(":")[0] not in GENERATORS:
        generator(_drawn_by(work))  # which says what there is


NEGATIVES = {"by": None, "llm": None, "endpoint": None, "captions": None}
WRITTEN = (
    Stage("negatives", "hard negatives: one thing, quality or relation replaced, swapped or added", do=_negatives),
    Stage("format", "captions and negatives in one form", ("negatives",),
          do=lambda work: formatted(work.at("negatives"), work.at("format"))),
)  # fmt: skip


# -- BiVLC: two images and two captions


def _pairs(work: Work) -> None:
    """Each original with the image that people chose for its negative: items of `bivlc-ambiguity`, the original first."""
    choices = work.at("bivlc-choose") / "choices.jsonl"
    chosen = {one["id"]: one for one in whole_lines(choices) if one.get("images")}

    holds = {row["id"]: row.get("caption_holds") for row in read_rows(work.at("generate"))}  # of images that the world drew

    def rows(made: Output) -> Iterator[Row]:
        (work.at("pair") / "images").mkdir(exist_ok=True)
        for row in read_rows(work.at("format")):
            if row["id"] not in chosen:
                made.count("without an image")
                continue
            (name,), (image_id,) = chosen[row["id"]]["images"], chosen[row["id"]]["image_ids"]
            with whole_file(work.at("pair") / "images" / name, durable=True) as file:
                file.write((work.at("bivlc-choose") / "images" / name).read_bytes())
            yield {
                "id": row["id"], "images": [row["image_id"], name], "captions": [row["caption"]], "category": row["category"],
                "trial_of": {"captions": [row["caption"], row["negative"]], "category": row["category"]},
                **({"fits": [True, holds[image_id]]} if holds[image_id] is not None else {}),
            }  # fmt: skip

    inputs = {"format": hash_of(work.at("format")), "choices": sha256_of(choices)[:16]}
    written(work.at("pair"), Asked("pair", inputs), rows)


BIVLC = Recipe(
    name="bivlc",
    about="hard negatives with generated images: people choose the best image, and drop what is ambiguous",
    paper="miranda2024bivlc",
    options={**NEGATIVES, "generator": None, "people": None},
    stages=(
        *WRITTEN,
        Stage("generate", "four images of each negative", ("format",), do=partial(_generate, source="format", number=IMAGES)),
        Stage("bivlc-choose", "which image shows the negative best", ("generate",),
              items=lambda work: work.at("generate") / ITEMS),
        Stage("pair", "the original with the chosen image", ("bivlc-choose",), do=_pairs),
        Stage("bivlc-ambiguity", "which image fits the original caption better: the original must", ("pair",),
              items=rows_of("pair"), excludes=("bivlc-choose",)),
    ),
    ends=lambda work: evaluated(work, f"trials:{work.at('bivlc-ambiguity') / 'trials.jsonl'}"),
    needs=_needs_images,
)  # fmt: skip


# -- ECCV Caption: the missing positives


def _proposing(work: Work) -> list[str]:
    return _models(work, "the models that propose pairs")


def _pool(work: Work) -> None:
    pool(work.collection, _proposing(work), work.at("pool"), seed=work.seed)


def _gold(work: Work) -> tuple[str, ...]:
    """No gold of a kind that the pool has none of: in a small collection no pair is certain to be wrong."""
    counts = manifest(work.at("pool"))["counts"]
    return tuple(f"recipe.gold_{kind}=0" for kind in ("positive", "negative") if not counts.get(kind))


def _bias(work: Work) -> None:
    found, _ = bias(work.at("pool"), work.at("merge"), work.at("bias"), seed=work.seed)
    with suppress(MissingDependency):  # the numbers need nothing to draw with
        write_bias(work.at("bias"), found)


def _one_model(work: Work) -> str:
    return "one model alone proposes: there is nothing to compare" if len(work.options["models"]) < 2 else ""


def _merge(work: Work) -> None:
    said = read_said(work.at("eccv-hit"), work.collection, "people")
    merge(work.collection, [said], work.at("merge"), pool=work.at("pool"))


ECCV = Recipe(
    name="eccv",
    about="what several models retrieve, judged by people and merged with the links",
    paper="chun2022eccv",
    options={"models": (), "people": None},
    stages=(
        Stage("pool", "the five best items of each model in both directions, with gold", do=_pool),
        Stage("eccv-hit", "does the caption fit the image", ("pool",), items=rows_of("pool"), design=_gold),
        Stage("merge", "answers and links as one set of judgements", ("eccv-hit",), do=_merge),
        Stage("bias", "what the choice of models did: bias/bias.html", ("merge",), do=_bias, skips=_one_model),
    ),
    ends=lambda work: evaluated(work, f"collection:{work.at('merge')}"),
    needs=_proposing,
)  # fmt: skip


# -- TROHN: hard negatives to train with


def _refine(work: Work) -> None:
    refine(work.at("format"), work.at("refine"), share=work.options.get("share", SHARE), seed=work.seed)


def _training(work: Work, source: str, images: bool) -> None:
    """A file for `crossmatch train --negatives`; the embedded world is written out as a collection to train on."""
    rows = read_rows(work.at(source))
    if not rows:
        raise CrossmatchError(f"no negative is left in {work.at(source)}. Begin with more captions, or keep a larger --share.")
    folder = work.at("training")
    folder.mkdir(exist_ok=True)
    told = [_example(row, images) for row in rows]
    files = {TRAINING: "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in told)}
    if images:
        (folder / "images").mkdir(exist_ok=True)
        for row in rows:
            with whole_file(folder / row["file"]) as target:
                target.write((work.at("generate") / row["file"]).read_bytes())
    if is_world(work.data):
        (folder / "collection").mkdir(exist_ok=True)
        files["collection/captions.json"] = write_collection(folder / "collection", _only(work.collection, rows))
    for name, text in files.items():
        with whole_file(folder / name, durable=True) as file:
            file.write(text.encode())


def _only(held: Collection, rows: Sequence[Row]) -> Collection:
    """The images that have a negative, with their captions: no others are trained with."""
    images = np.flatnonzero(np.isin(held.image_ids, [row["image_id"] for row in rows]))
    return held.reordered(images, np.unique(held.links[np.isin(held.links[:, 0], images), 1]))


def _example(row: Row, images: bool) -> dict[str, Any]:
    more = {"negative_image": Path(row["file"]).name} if images else {}
    return {"image": row["image_id"], "caption": row["caption"], "negative_caption": row["negative"], **more}


def _train(recipe: str, work: Work) -> str:
    data = f"collection:{work.at('training') / 'collection'}" if is_world(work.data) else work.data
    file = quote(str(work.at("training") / TRAINING))
    return f"crossmatch train {recipe} --data {quote(data)} --negatives {file} -o RUN"


TROHN_TEXT = Recipe(
    name="trohn-text",
    about="hard negative captions to train with",
    paper="miranda2024bivlc",
    options=NEGATIVES,
    stages=(*WRITTEN, Stage("training", "a file to train with", ("format",), do=partial(_training, source="format", images=False))),
    ends=partial(_train, "clip-hard-texts"),
    needs=_written_by,
)
TROHN_IMG = Recipe(
    name="trohn-img",
    about="the best hard negatives, which no blind model tells from captions, with an image of each, to train with",
    paper="miranda2024bivlc",
    options={**NEGATIVES, "share": SHARE, "generator": None},
    stages=(
        *WRITTEN,
        Stage("refine", "the most plausible and fluent, cleaned, and balanced over both scores", ("format",), do=_refine),
        Stage("generate", "an image of each negative", ("refine",), do=partial(_generate, source="refine", number=1)),
        Stage("training", "a file to train with", ("generate",), do=partial(_training, source="generate", images=True)),
    ),
    ends=partial(_train, "clip-hard-pairs"),
    needs=_needs_images,
)

RECIPES = {one.name: one for one in (BISON, CXC, BIVLC, ECCV, TROHN_TEXT, TROHN_IMG)}


def recipe(name: str) -> Recipe:
    """The recipe of this name.

    >>> [stage.name for stage in recipe("bison").stages]
    ['mine', 'bison-select', 'bison-verify']
    """
    if name not in RECIPES:
        raise WrongWords(f"there is no recipe {name!r}. {nearest(name, RECIPES)}")
    return RECIPES[name]
