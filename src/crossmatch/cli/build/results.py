"""`crossmatch build merge`, `bias` and `card`: from human answers to a published benchmark."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.base import FOLDER, Command
from crossmatch.cli.build.common import DATA, load_collection
from crossmatch.cli.cache import cache_options

FILE = click.Path(path_type=Path)


@click.command("merge", cls=Command)
@DATA
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for the merged collection.")
@click.option("--answers", multiple=True, type=FILE, help="Human answers: a study's export, or a table. Repeatable.")
@click.option("--ratings", multiple=True, type=FILE, help="Ratings from 0 to 5: an export, or CxC's sits_test.csv. Repeatable.")
@click.option("--no-links", is_flag=True, help="Do not count unjudged links (the pairs that the data came with) as positives.")
@click.option("--pool", type=FOLDER, help="Folder of the judged pool; only its queries count.  [default: all]")
@click.option(
    "--rule", type=click.Choice(["any", "all", "first"]), default="any", show_default=True,
    help="If sources disagree: one positive is enough, all must agree, or the first source decides.",
)  # fmt: skip
@click.option("--answers-positive", type=float, help="Lowest grade of a positive answer.  [default: 0.5, partly right]")
@click.option("--ratings-positive", type=float, help="Lowest rating of a positive pair.  [default: 3]")
@click.option("--invalid", type=FILE, help="File with ids of meaningless captions to remove, one per line.")
@click.option("--wrong", type=FILE, help="File with ids of wrong captions to remove; suspects.csv lists candidates.")
@click.option("--images", type=FILE, help="File with ids of images to remove, one per line.")
@click.option("--against", default="", help="Collection, such as a training set, whose pictures are removed.")
@click.option("--as-is", is_flag=True, help="Do not search for meaningless captions and equal pictures.")
def merge_command(data: str, output: Path, answers: tuple[Path, ...], ratings: tuple[Path, ...], no_links: bool, pool: Path | None,
                  rule: str, answers_positive: float | None, ratings_positive: float | None, invalid: Path | None,
                  wrong: Path | None, images: Path | None, against: str, as_is: bool) -> None:  # fmt: skip
    """Merge answers, ratings and links into judgements.

    The output folder is a collection, as ECCV Caption was made: crossmatch run -t collection:FOLDER
    """
    from crossmatch.build.merging.merge import MergeOptions, write_merge
    from crossmatch.build.merging.pair_verdicts import read_source
    from crossmatch.build.merging.removed_items import read_ids
    from crossmatch.report.tables import format_table

    judged_data = load_collection(data)
    sources = [read_source(path, judged_data, "people", answers_positive) for path in answers]
    sources += [read_source(path, judged_data, "ratings", ratings_positive) for path in ratings]
    lists = {key: read_ids(path) if path else [] for key, path in (("invalid", invalid), ("wrong", wrong), ("images", images))}
    manifest = write_merge(
        judged_data, sources, output, options=MergeOptions(rule, not no_links, not as_is), pool=pool,
        against=load_collection(against) if against else None, **lists,
    )  # fmt: skip
    click.echo(format_table(_merge_table(manifest)))
    run = "" if judged_data.open_image is not None else " (after adding the pictures to its images/ folder)"
    click.echo(f"saved {output} · crossmatch run -m MODEL -t {quote(f'collection:{output}')}{run}", err=True)


def _merge_table(manifest: dict[str, Any]) -> Any:
    """A table like chun2022eccv, Table 3."""
    from crossmatch.report.tables import Table

    counts: dict[str, int] = manifest["counts"]
    rows = []
    for direction, nouns in (("i2t", "captions of images"), ("t2i", "images of captions")):
        head, queries = f"{direction} positives ", counts[f"{direction} queries"]
        names = [key.removeprefix(head) for key in counts if key.startswith(head)]
        linked = counts.get(f"{head}links", 0)
        for n, name in enumerate(names):
            positives = counts[head + name]
            times = f"×{positives / linked:.2f}" if linked else "–"
            new = f"{counts[f'{direction} new']:,}" if name == "merged" else ""
            first = (f"{direction}: {nouns}", f"{queries:,}")
            rows.append(
                (*(first if n == 0 else ("", "")), name, f"{positives:,}", times, f"{positives / max(queries, 1):.2f}", new)
            )
    notes = [f"{key}: {number:,}" for key, number in counts.items() if key.startswith(("removed", "conflicts"))]
    heads = (("", "queries", "source", "positives", "of links", "per query", "no links"),)
    return Table(f"{counts['images']:,} images, {counts['captions']:,} captions", heads, tuple(rows), 3, tuple(notes))


@click.command("bias", cls=Command)
@click.argument("pool", type=FOLDER)
@click.option(
    "--answers", type=FILE, required=True, help="A study's export, a merged folder, or a csv: image_id, caption_id, grade."
)
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for the bias of every subset, and plots.")
@click.option(
    "--metric", "metrics", multiple=True, type=click.Choice(["hit@1", "r-precision"]), help="Metric. Repeatable.  [default: hit@1]"
)
@click.option("--data", default="", help="The pool's collection; needed for r-precision and -m.")
@click.option("-m", "--model", "models", multiple=True, help="Candidate model to add to the pool. Repeatable.")
@click.option("--samples", type=click.IntRange(0), default=1000, show_default=True, help="Bootstrap samples; 0 for no intervals.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the bootstrap.")
@cache_options
def bias_command(pool: Path, answers: Path, output: Path, metrics: tuple[str, ...], data: str, models: tuple[str, ...],
                 samples: int, seed: int, cache: Path | None, no_cache: bool) -> None:  # fmt: skip
    """Measure how the choice of models biases a POOL.

    The bias is that of ECCV Caption, appendix E. With -m, the command also says which model to add.
    """
    from crossmatch.build.pool_bias import write_pool_bias
    from crossmatch.build.pool_bias_report import write_bias_report
    from crossmatch.cli.cache import score_cache
    from crossmatch.report.tables import format_table

    analysis, _ = write_pool_bias(
        pool, answers, output, metrics=metrics or ("hit@1",), collection=load_collection(data) if data else None, candidates=models,
        samples=samples, seed=seed, cache=score_cache(cache, no_cache),
    )  # fmt: skip
    click.echo("\n\n".join(map(format_table, write_bias_report(output, analysis))))
    for direction, number in analysis.unjudged.items():
        if number:
            click.echo(f"{number:,} pairs of the pool in {direction} have no answer and count as irrelevant", err=True)
    click.echo(f"saved {output} · {output / 'bias.html'}", err=True)


@click.command("card", cls=Command)
@click.argument("folder", type=FOLDER)
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder to publish.")
@click.option("--name", default="", help="Name of the data set.  [default: the folder's name]")
@click.option("--about", default="", help="Description in one or two sentences.")
@click.option("--licence", default="", help="Licence of the annotations, such as cc-by-4.0.")
@click.option("--image-licences", type=FILE, help="Table with image_id and licence.")
@click.option(
    "--step", "earlier", multiple=True, type=FOLDER, help="Folder of a step or study export behind the result. Repeatable."
)
@click.option("--url", default="", help="Web address.")
@click.option("--cite", default="", help="Citation.")
@click.option("--released", default="", help="Release date, such as 2026-11-17.")
@click.option("--version", default="1.0.0", show_default=True, help="Version of the data.")
def card_command(folder: Path, output: Path, name: str, about: str, licence: str, image_licences: Path | None,
                 earlier: tuple[Path, ...], url: str, cite: str, released: str, version: str) -> None:  # fmt: skip
    """Write a data sheet and parquet files for a result FOLDER.

    FOLDER has judgements or trials. The result also has Croissant metadata.
    """
    from crossmatch.build.publishing.card import CardTexts, write_card

    texts = CardTexts(name or folder.resolve().name, about, licence, url, cite, released, version)
    manifest = write_card(folder, output, texts, earlier=earlier, licences=image_licences)
    click.echo(", ".join(f"{number:,} {name}" for name, number in manifest["counts"].items()))
    if not licence:
        click.echo("No licence was stated. Add one with --licence.", err=True)
    load = f'datasets.load_dataset("{output}")'
    click.echo(f"saved {output / 'README.md'}, {output / 'croissant.json'} · {load}", err=True)
