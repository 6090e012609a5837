"""The constructions of the papers, each a declaration of its stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote

from crossmatch.build.files import ROWS
from crossmatch.build.mine import mine
from crossmatch.build.rated import read_rated
from crossmatch.build.recipes import Recipe, Stage, Work
from crossmatch.build.sample import TEXT_MODELS, sample_sis, sample_sits, sample_sts
from crossmatch.core.errors import WrongWords
from crossmatch.core.whole import whole_file


def rows_of(stage: str) -> Callable[[Work], Path]:
    """The rows of a step, which are items of a study."""
    return lambda work: work.at(stage) / ROWS


def _one(work: Work, what: str) -> str:
    """The model that a recipe needs one of."""
    found = list(work.options.get("models", ()))
    if len(found) != 1:
        raise WrongWords(f"this recipe needs one model, {what}; {len(found)} were named. Say which: -m MODEL")
    return str(found[0])


# -- BISON: which of two look-alike images?

BISON = Recipe(
    name="bison",
    about="look-alike images, a caption that tells them apart, and two people who confirm it",
    paper="hu2019bison",
    options={"people": None},
    stages=(
        Stage("mine", "each image with the one whose captions are most like its own", do=lambda work: mine(work.collection, work.at("mine"))),
        Stage("bison-select", "which caption describes the left image but not the right one", ("mine",), items=rows_of("mine")),
        Stage("bison-verify", "which image does the caption describe: both people must choose the positive", ("bison-select",),
              items=lambda work: work.at("bison-select") / "trials.jsonl", excludes=("bison-select",)),
    ),
    ends=lambda work: f"crossmatch run -m MODEL -t trials:{quote(str(work.at('bison-verify') / 'trials.jsonl'))}",
)  # fmt: skip


# -- Crisscrossed Captions: graded likeness within and across modalities


def _sits(work: Work) -> None:
    held = work.collection
    sample_sits(
        held,
        work.at("sample-sits"),
        captions=read_rated(work.at("sts") / "judgements_t2t.csv", held, "caption"),
        images=read_rated(work.at("sis") / "judgements_i2i.csv", held, "image"),
        seed=work.seed,
    )


def _together(work: Work) -> None:
    """The ratings of all three studies beside the collection, which the export of the last has written."""
    for name, file in (("sts", "judgements_t2t.csv"), ("sis", "judgements_i2i.csv")):
        with whole_file(work.at("sits") / file, durable=True) as copy:
            copy.write((work.at(name) / file).read_bytes())


CXC = Recipe(
    name="cxc",
    about="pairs of captions, of images and of both, of graded likeness, rated by five people each",
    paper="parekh2021cxc",
    options={"models": (), "texts": TEXT_MODELS, "people": None},
    stages=(
        Stage("sample-sts", "pairs of captions: of images that look alike, and of one image",
              do=lambda work: sample_sts(work.collection, work.at("sample-sts"), images=_one(work, "which embeds images"), seed=work.seed)),
        Stage("sample-sis", "pairs of images: those whose captions read alike",
              do=lambda work: sample_sis(work.collection, work.at("sample-sis"), texts=work.options.get("texts", TEXT_MODELS))),
        Stage("sts", "how alike are two captions", ("sample-sts",), items=rows_of("sample-sts")),
        Stage("sis", "how alike are two images", ("sample-sis",), items=rows_of("sample-sis")),
        Stage("sample-sits", "pairs of an image and a caption, by the ratings of both", ("sts", "sis"), do=_sits),
        Stage("sits", "how well do an image and a caption fit", ("sample-sits",), items=rows_of("sample-sits")),
        Stage("together", "all ratings beside the collection", ("sits",), do=_together),
    ),
    ends=lambda work: f"crossmatch run -m MODEL -t {quote('collection:' + str(work.at('sits')) + '+positive=3')}",
)  # fmt: skip
