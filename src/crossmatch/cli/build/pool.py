"""`crossmatch build pool`: pool the pairs that several models retrieve."""

from __future__ import annotations

from pathlib import Path

import click

from crossmatch.cli.base import FILE, Command, resumable
from crossmatch.cli.build.common import (
    DATA,
    OUTPUT,
    SEED,
    SKIP_BAD,
    load_usable,
    print_summary,
    read_ids_file,
    split_model_names,
    split_names,
    study_command,
    write_skipped,
)
from crossmatch.cli.cache import cache_options, score_cache
from crossmatch.data.errors import UsageError


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

    The pool also contains gold pairs, whose answer is known, for the study eccv-hit (ECCV Caption).
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
