"""`crossmatch build merge`, `bias` and `card`: from the answers of people to a benchmark that says how far to trust it."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.build.common import DATA, collection
from crossmatch.cli.cache import cache_options
from crossmatch.cli.folders import FOLDER

FILE = click.Path(path_type=Path)


@click.command("merge")
@DATA
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for the merged collection.")
@click.option("--answers", multiple=True, type=FILE, help="What people said: a study's export, or a table. Repeatable.")
@click.option("--ratings", multiple=True, type=FILE, help="Ratings from 0 to 5: an export, or CxC's sits_test.csv. Repeatable.")
@click.option("--no-links", is_flag=True, help="The collection's own links say nothing about what nobody judged.")
@click.option("--pool", type=FOLDER, help="The pool that people judged: its queries are the queries.  [default: all]")
@click.option(
    "--rule", type=click.Choice(["any", "all", "first"]), default="any", show_default=True,
    help="Where people and ratings disagree: one positive is enough, all must agree, or the first source named decides.",
)  # fmt: skip
@click.option("--answers-positive", type=float, help="Grade from which an answer is a positive.  [default: 0.5, partly right]")
@click.option("--ratings-positive", type=float, help="Rating from which a pair is a positive.  [default: 3]")
@click.option("--invalid", type=FILE, help="Ids of captions that describe nothing, one on each line: they leave.")
@click.option("--wrong", type=FILE, help="Ids of wrong captions, which leave too; suspects.csv says where to look.")
@click.option("--images", type=FILE, help="Ids of images that leave, one on each line.")
@click.option("--against", default="", help="A collection, such as a training set, whose pictures leave.")
@click.option("--as-is", is_flag=True, help="Do not look for meaningless captions and equal pictures.")
def merge_command(data: str, output: Path, answers: tuple[Path, ...], ratings: tuple[Path, ...], no_links: bool, pool: Path | None,
                  rule: str, answers_positive: float | None, ratings_positive: float | None, invalid: Path | None,
                  wrong: Path | None, images: Path | None, against: str, as_is: bool) -> None:  # fmt: skip
    """Answers of people, ratings and links as one set of judgements (chun2022eccv, sec. 3.3)."""
    from crossmatch.build.merge import Merging, merge
    from crossmatch.build.removed import read_ids
    from crossmatch.build.verdicts import read_said
    from crossmatch.report.tables import as_text

    held = collection(data)
    sources = [read_said(path, held, "people", answers_positive) for path in answers]
    sources += [read_said(path, held, "ratings", ratings_positive) for path in ratings]
    lists = {key: read_ids(path) if path else [] for key, path in (("invalid", invalid), ("wrong", wrong), ("images", images))}
    told = merge(
        held, sources, output, how=Merging(rule, not no_links, not as_is), pool=pool,
        against=collection(against) if against else None, **lists,
    )  # fmt: skip
    click.echo(as_text(_merge_table(told)))
    run = "" if held.open_image is not None else " (once the pictures are in its images/)"
    click.echo(f"saved {output} · crossmatch run -m MODEL -t {quote(f'collection:{output}')}{run}", err=True)


def _merge_table(told: dict[str, Any]) -> Any:
    """As chun2022eccv, Table 3."""
    from crossmatch.report.tables import Table

    counts: dict[str, int] = told["counts"]
    rows = []
    for direction, things in (("i2t", "captions of images"), ("t2i", "images of captions")):
        head, queries = f"{direction} positives ", counts[f"{direction} queries"]
        names = [key.removeprefix(head) for key in counts if key.startswith(head)]
        linked = counts.get(f"{head}links", 0)
        for n, name in enumerate(names):
            found = counts[head + name]
            times = f"×{found / linked:.2f}" if linked else "–"
            new = f"{counts[f'{direction} new']:,}" if name == "merged" else ""
            first = (f"{direction}: {things}", f"{queries:,}")
            rows.append((*(first if n == 0 else ("", "")), name, f"{found:,}", times, f"{found / max(queries, 1):.2f}", new))
    notes = [f"{key}: {number:,}" for key, number in counts.items() if key.startswith(("removed", "conflicts"))]
    heads = (("", "queries", "source", "positives", "of links", "per query", "no links"),)
    return Table(f"{counts['images']:,} images, {counts['captions']:,} captions", heads, tuple(rows), 3, tuple(notes))


@click.command("bias")
@click.argument("pool", type=FOLDER)
@click.option(
    "--answers", type=FILE, required=True, help="A study's export, a merged folder, or a csv: image_id, caption_id, grade."
)
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for the bias of every subset, and a picture.")
@click.option("--metric", "metrics", multiple=True, type=click.Choice(["hit@1", "r-precision"]), help="[default: hit@1]")
@click.option("--data", default="", help="The pool's collection: for r-precision and for candidates.")
@click.option("-m", "--model", "models", multiple=True, help="A model that may be added to the pool. Repeatable.")
@click.option("--samples", type=click.IntRange(0), default=1000, show_default=True, help="Bootstrap samples; 0 for no intervals.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@cache_options
def bias_command(pool: Path, answers: Path, output: Path, metrics: tuple[str, ...], data: str, models: tuple[str, ...],
                 samples: int, seed: int, cache: Path | None, no_cache: bool) -> None:  # fmt: skip
    """What the choice of annotator models did to a POOL, and which to add (chun2022eccv, app. E)."""
    from crossmatch.build.bias import bias
    from crossmatch.build.bias_report import write_bias
    from crossmatch.cli.cache import score_cache
    from crossmatch.report.tables import as_text

    found, _ = bias(
        pool, answers, output, metrics=metrics or ("hit@1",), collection=collection(data) if data else None, candidates=models,
        samples=samples, seed=seed, cache=score_cache(cache, no_cache),
    )  # fmt: skip
    click.echo("\n\n".join(map(as_text, write_bias(output, found))))
    for direction, number in found.unjudged.items():
        if number:
            click.echo(f"{number:,} pairs of the pool in {direction} have no answer, and count as no match", err=True)
    click.echo(f"saved {output} · {output / 'bias.html'}", err=True)


@click.command("card")
@click.argument("folder", type=FOLDER)
@click.option("-o", "--output", type=FOLDER, required=True, help="Another folder, to be given to others.")
@click.option("--name", default="", help="What it is called.  [default: the folder's name]")
@click.option("--about", default="", help="What it is for, in a sentence or two.")
@click.option("--licence", default="", help="Licence of the annotations, such as cc-by-4.0.")
@click.option("--image-licences", type=FILE, help="A table with image_id and licence.")
@click.option("--step", "earlier", multiple=True, type=FOLDER, help="A step or a study's export that it was made from. Repeatable.")
@click.option("--url", default="", help="Where it can be found.")
@click.option("--cite", default="", help="How it is to be cited.")
@click.option("--released", default="", help="Day of its release: year-month-day.")
@click.option("--version", default="1.0.0", show_default=True, help="Of the data.")
def card_command(folder: Path, output: Path, name: str, about: str, licence: str, image_licences: Path | None,
                 earlier: tuple[Path, ...], url: str, cite: str, released: str, version: str) -> None:  # fmt: skip
    """A data sheet, Croissant metadata and parquet files for a FOLDER with judgements or trials."""
    from crossmatch.build.card import Wording, card

    words = Wording(name or folder.resolve().name, about, licence, url, cite, released, version)
    told = card(folder, output, words, earlier=earlier, licences=image_licences)
    click.echo(", ".join(f"{number:,} {what}" for what, number in told["counts"].items()))
    if not licence:
        click.echo("no licence was stated, and the data sheet says so: --licence", err=True)
    load = f'datasets.load_dataset("{output}")'
    click.echo(f"saved {output / 'README.md'}, {output / 'croissant.json'} · {load}", err=True)
