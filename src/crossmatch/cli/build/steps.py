"""`crossmatch build mine | sample | pool`: what people shall be shown."""

from __future__ import annotations

from pathlib import Path

import click

from crossmatch.cli.build.common import (
    DATA,
    OUTPUT,
    SEED,
    SKIP_BAD,
    collection,
    ended,
    lines_of,
    listed,
    named_models,
    study,
    tell_skipped,
    usable,
)
from crossmatch.cli.cache import cache_options, score_cache
from crossmatch.cli.stopped import goes_on
from crossmatch.core.errors import WrongWords

FILE = click.Path(path_type=Path, dir_okay=False)
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.command("mine")
@DATA
@OUTPUT
@click.option("-m", "--model", default="bow", show_default=True, help="Text encoder whose vectors are compared.")
@click.option("--roles", type=click.Choice(["query", "once", "both"]), default="query", show_default=True,
              help="Each image positive once, each pair once, or each pair in both roles.")  # fmt: skip
@click.option("--neighbours", type=click.IntRange(1), default=1, show_default=True,
              help="That may become the negative, one after another, where pairs were refused.")  # fmt: skip
@click.option("--search", type=click.Choice(["exact", "faiss"]), default="exact", show_default=True)
@click.option("--pictures/--no-pictures", default=True, show_default=True, help="Look at pictures: leave out bad and equal ones.")
@click.option("--captions/--no-captions", default=True, show_default=True, help="Leave out images with the captions of another.")
@click.option("--refused", type=FILE, help="Ids of pairs that people refused, a line each: the next neighbour is taken.")
@click.option(
    "--earlier",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Folder of an earlier mining: its pairs are not written again.",
)
def mine_command(data: str, output: Path, model: str, roles: str, neighbours: int, search: str, pictures: bool, captions: bool,
                 refused: Path | None, earlier: tuple[Path, ...]) -> None:  # fmt: skip
    """Look-alike images: each with the one whose captions are most like its own (BISON)."""
    from crossmatch.build.mine import Mining, mine

    how = Mining(roles, neighbours, search, pictures, captions)
    with goes_on():
        told = mine(collection(data), output, model=model, how=how, refused=lines_of(refused) or (), earlier=earlier)
    ended(output, told, study("bison-select", "--items", output / "rows.jsonl", data))


@click.group("sample")
def sample_group() -> None:
    """Pairs to be rated, of graded likeness: what is alike in one modality picks the pairs of the other (CxC)."""


@sample_group.command("sts", context_settings=HELP)
@DATA
@OUTPUT
@click.option("--images", required=True, metavar="MODEL", help="Model that embeds images: a trained folder, precomputed:FILE, …")
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Most similar images.")
@SEED
@SKIP_BAD
@cache_options
def sts_command(data: str, output: Path, images: str, top: int, seed: int, skip_bad: bool, cache: Path | None,
                no_cache: bool) -> None:  # fmt: skip
    """Pairs of captions: one each of images that look alike, and as many of one image."""
    from crossmatch.build.sample import sample_sts

    held, left = usable(data, skip_bad)
    with goes_on():
        told = sample_sts(held, output, images=images, top=top, seed=seed, cache=score_cache(cache, no_cache))
    ended(output, told, tell_skipped(output, left), study("sts", "--items", output / "rows.jsonl", data))


@sample_group.command("sis", context_settings=HELP)
@DATA
@OUTPUT
@click.option("--texts", default="minilm,bow", show_default=True, help="Text encoders, each of which picks for itself.")
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Images whose captions are most similar.")
@SKIP_BAD
def sis_command(data: str, output: Path, texts: str, top: int, skip_bad: bool) -> None:
    """Pairs of images whose captions are alike."""
    from crossmatch.build.sample import sample_sis

    held, left = usable(data, skip_bad)
    with goes_on():
        told = sample_sis(held, output, texts=listed(texts, "text model"), top=top)
    ended(output, told, tell_skipped(output, left), study("sis", "--items", output / "rows.jsonl", data))


@sample_group.command("sits", context_settings=HELP)
@DATA
@OUTPUT
@click.option("--captions", type=FILE, required=True, help="Ratings of pairs of captions: a study's judgements_t2t.csv, or CxC's.")
@click.option("--images", type=FILE, required=True, help="Ratings of pairs of images: a study's judgements_i2i.csv, or CxC's.")
@click.option("--number", type=click.IntRange(0), help="Pairs beside the links.  [default: four for each image]")
@click.option("--drawn", is_flag=True, help="Any caption of the other image, as in the released files of CxC.")
@SEED
@SKIP_BAD
def sits_command(data: str, output: Path, captions: Path, images: Path, number: int | None, drawn: bool, seed: int,
                 skip_bad: bool) -> None:  # fmt: skip
    """Pairs of an image and a caption, from what people said of pairs of one kind; and all links."""
    from crossmatch.build.rated import read_rated
    from crossmatch.build.sample import sample_sits

    held, left = usable(data, skip_bad)
    rated = read_rated(captions, held, "caption"), read_rated(images, held, "image")
    with goes_on():
        told = sample_sits(held, output, captions=rated[0], images=rated[1], number=number, drawn=drawn, seed=seed)
    ended(output, told, tell_skipped(output, left), study("sits", "--items", output / "rows.jsonl", data))


@click.command("pool")
@DATA
@OUTPUT
@click.option("-m", "--models", required=True, multiple=True,
              help="A model whose retrieval is pooled; several with commas between them, or -m again for each.")  # fmt: skip
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Items that each model gives for a query.")
@click.option("--certain", type=click.IntRange(0), default=25, show_default=True, help="Best items no certain negative is among.")
@click.option("--directions", default="i2t,t2i", show_default=True)
@click.option("--judge-links/--no-judge-links", default=True, show_default=True, help="Judge retrieved links like all else.")
@click.option("--gold", type=click.IntRange(0), help="Gold pairs of each kind.  [default: one for 18 candidates]")
@click.option("--image-queries", type=FILE, help="Ids of images to ask with, a line each.  [default: all]")
@click.option("--caption-queries", type=FILE, help="Ids of captions to ask with, a line each.  [default: all]")
@click.option("--first", type=FILE, help="Pairs to be judged before all others: jsonl, csv or tsv with image_id and caption_id.")
@SEED
@SKIP_BAD
@cache_options
def pool_command(data: str, output: Path, models: tuple[str, ...], top: int, certain: int, directions: str,
                 judge_links: bool, gold: int | None, image_queries: Path | None, caption_queries: Path | None,
                 first: Path | None, seed: int, skip_bad: bool, cache: Path | None, no_cache: bool) -> None:  # fmt: skip
    """Candidates for people to judge: what several models retrieve, with gold pairs among them (ECCV Caption)."""
    from crossmatch.build.pool import Pooling, pool, read_pairs

    how = Pooling(top, certain, tuple(listed(directions, "direction")), judge_links, gold)
    names = named_models(models)
    if image_queries is not None and "i2t" not in how.directions:
        raise WrongWords("--image-queries goes with the direction i2t, which --directions leaves out. Leave one of them out.")
    held, left = usable(data, skip_bad)
    with goes_on():
        told = pool(held, names, output, how=how, image_queries=lines_of(image_queries), caption_queries=lines_of(caption_queries),
                    first=read_pairs(first) if first else (), seed=seed, cache=score_cache(cache, no_cache))  # fmt: skip
    ended(output, told, tell_skipped(output, left), study("eccv-hit", "--pool", output / "rows.jsonl", data))
