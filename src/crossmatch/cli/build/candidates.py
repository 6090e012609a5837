"""`crossmatch build lookalikes`, `sample` and `pool`: select the pairs that people judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from crossmatch.cli.base import FILE, FOLDER, Command, resumable
from crossmatch.cli.build.common import (
    DATA,
    OUTPUT,
    SEED,
    SKIP_BAD,
    load_collection,
    load_usable,
    print_summary,
    read_ids_file,
    refuse_options,
    split_model_names,
    split_names,
    study_command,
    write_skipped,
)
from crossmatch.cli.cache import cache_options, score_cache
from crossmatch.data.errors import UsageError

# Options of `build sample` that only some kinds of pairs use.
SAMPLE_OPTIONS = {
    "sts": ("image_model", "top", "seed", "cache", "no_cache"),
    "sis": ("text_models", "top"),
    "sits": ("caption_ratings", "image_ratings", "number", "drawn", "seed"),
}


@click.command("lookalikes", cls=Command)
@DATA
@OUTPUT
@click.option("-m", "--model", default="bow", show_default=True, help="Text encoder whose vectors are compared.")
@click.option("--roles", type=click.Choice(["query", "once", "both"]), default="query", show_default=True,
              help="query: each image is the positive of one pair; once: each pair once; both: each pair twice, swapped.")  # fmt: skip
@click.option("--neighbours", type=click.IntRange(1), default=1, show_default=True,
              help="How many nearest images to try if nearer ones are in --refused or --earlier.")  # fmt: skip
@click.option("--search", type=click.Choice(["exact", "faiss"]), default="exact", show_default=True,
              help="Exact search, or approximate search with FAISS.")  # fmt: skip
@click.option("--pictures/--no-pictures", default=True, show_default=True, help="Open pictures, and skip bad and equal ones.")
@click.option("--captions/--no-captions", default=True, show_default=True, help="Skip images with the captions of another image.")
@click.option("--refused", type=FILE, help="File with ids of refused pairs, one per line; the next neighbour replaces them.")
@click.option("--earlier", type=FOLDER, multiple=True, help="Folder of an earlier run, whose pairs are not repeated. Repeatable.")
def lookalikes_command(data: str, output: Path, model: str, roles: str, neighbours: int, search: str, pictures: bool,
                       captions: bool, refused: Path | None, earlier: tuple[Path, ...]) -> None:  # fmt: skip
    """Pair each image with a look-alike image (BISON).

    The look-alike is the image with the most similar captions.
    """
    from crossmatch.build.lookalikes import LookalikeOptions, find_lookalikes

    options = LookalikeOptions(roles, neighbours, search, pictures, captions)
    refused_ids = read_ids_file(refused) or ()
    with resumable():
        manifest = find_lookalikes(
            load_collection(data), output, model=model, options=options, refused=refused_ids, earlier=earlier
        )  # fmt: skip
    print_summary(output, manifest, study_command("bison-select", "--items", output / "rows.jsonl", data))


@click.command("sample", cls=Command)
@click.option("--kind", type=click.Choice(list(SAMPLE_OPTIONS)), required=True,
              help="Pairs of captions (sts), of images (sis), or of an image and a caption (sits).")  # fmt: skip
@DATA
@OUTPUT
@click.option("--image-model", metavar="MODEL", help="sts: model that embeds images: a trained folder, precomputed:FILE, …")
@click.option("--text-models", default="minilm,bow", show_default=True, help="sis: text encoders; each selects its own pairs.")
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="sts, sis: most similar images per image.")
@click.option("--caption-ratings", type=FILE, help="sits: ratings of caption pairs: a study's judgements_t2t.csv, or CxC's file.")
@click.option("--image-ratings", type=FILE, help="sits: ratings of image pairs: a study's judgements_i2i.csv, or CxC's file.")
@click.option("--number", type=click.IntRange(0), help="sits: pairs besides the links.  [default: four per image]")
@click.option(
    "--drawn",
    is_flag=True,
    help="sits: draw any caption of the other image instead of the rated one, as in the released files of CxC.",
)
@SEED
@SKIP_BAD
@cache_options
def sample_command(kind: str, data: str, output: Path, skip_bad: bool, **options: Any) -> None:
    """Sample pairs of graded similarity for people to rate.

    Similarity in one modality selects the pairs of the other (Crisscrossed Captions).
    """
    used = SAMPLE_OPTIONS[kind]
    refuse_options({name for names in SAMPLE_OPTIONS.values() for name in names if name not in used}, f"with --kind {kind}")
    required = {"sts": ("image_model",), "sis": (), "sits": ("caption_ratings", "image_ratings")}[kind]
    missing = next((name for name in required if options[name] is None), None)
    if missing is not None:
        raise UsageError(f"--kind {kind} needs --{missing.replace('_', '-')}.")
    collection, skipped = load_usable(data, skip_bad)
    with resumable():
        manifest = _sample(kind, collection, output, **options)
    print_summary(output, manifest, write_skipped(output, skipped), study_command(kind, "--items", output / "rows.jsonl", data))


def _sample(kind: str, collection: Any, output: Path, *, image_model: str, text_models: str, top: int, caption_ratings: Path,
            image_ratings: Path, number: int | None, drawn: bool, seed: int, cache: Path | None,
            no_cache: bool) -> dict[str, Any]:  # fmt: skip
    from crossmatch.build.grade_tables import read_pair_ratings
    from crossmatch.build.rated_pair_sampling import sample_sis, sample_sits, sample_sts

    if kind == "sts":
        score_store = score_cache(cache, no_cache)
        return sample_sts(collection, output, image_model=image_model, top=top, seed=seed, cache=score_store)
    if kind == "sis":
        return sample_sis(collection, output, text_models=split_names(text_models, "text model"), top=top)
    return sample_sits(
        collection,
        output,
        caption_ratings=read_pair_ratings(caption_ratings, collection, "caption"),
        image_ratings=read_pair_ratings(image_ratings, collection, "image"),
        number=number,
        draw_captions=drawn,
        seed=seed,
    )


@click.command("pool", cls=Command)
@DATA
@OUTPUT
@click.option("-m", "--models", required=True, multiple=True,
              help="Models whose results are pooled, separated by commas or by repeated -m.")  # fmt: skip
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Items per model and query.")
@click.option("--certain", type=click.IntRange(0), default=25, show_default=True,
              help="Draw negative gold pairs from items that no model ranks among its first N.")  # fmt: skip
@click.option("--directions", default="i2t,t2i", show_default=True, help="Directions to pool.")
@click.option(
    "--judge-links/--no-judge-links",
    default=True,
    show_default=True,
    help="Let people judge links (the pairs that the data came with) too, if a model retrieves them.",
)
@click.option("--gold", type=click.IntRange(0), help="Gold pairs of each kind.  [default: one per 18 candidates]")
@click.option("--image-queries", type=FILE, help="File with ids of the query images, one per line.  [default: all]")
@click.option("--caption-queries", type=FILE, help="File with ids of the query captions, one per line.  [default: all]")
@click.option("--first", type=FILE, help="Pairs to judge first: jsonl, csv or tsv with image_id and caption_id.")
@SEED
@SKIP_BAD
@cache_options
def pool_command(data: str, output: Path, models: tuple[str, ...], top: int, certain: int, directions: str,
                 judge_links: bool, gold: int | None, image_queries: Path | None, caption_queries: Path | None,
                 first: Path | None, seed: int, skip_bad: bool, cache: Path | None, no_cache: bool) -> None:  # fmt: skip
    """Pool the pairs that several models retrieve.

    It also has control pairs with a known answer (gold), for the study eccv-hit (ECCV Caption).
    """
    from crossmatch.build.pooling import PoolOptions, build_pool, read_pair_list

    options = PoolOptions(top, certain, tuple(split_names(directions, "direction")), judge_links, gold)
    names = split_model_names(models)
    for option, file, direction in (("--image-queries", image_queries, "i2t"), ("--caption-queries", caption_queries, "t2i")):
        if file is not None and direction not in options.directions:
            raise UsageError(f"{option} needs direction {direction}, which --directions leaves out. Remove one of the two options.")
    collection, skipped = load_usable(data, skip_bad)
    with resumable():
        manifest = build_pool(
            collection, names, output, options=options, image_queries=read_ids_file(image_queries),
            caption_queries=read_ids_file(caption_queries), first=read_pair_list(first) if first else (), seed=seed,
            cache=score_cache(cache, no_cache),
        )  # fmt: skip
    print_summary(
        output, manifest, write_skipped(output, skipped), study_command("eccv-hit", "--pool", output / "rows.jsonl", data)
    )
