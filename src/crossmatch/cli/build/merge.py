"""`crossmatch build merge`: merge answers, ratings and links into judgements."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.base import FOLDER, Command
from crossmatch.cli.build.common import DATA, load_collection

PATH = click.Path(path_type=Path)


@click.command("merge", cls=Command)
@DATA
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for the merged collection.")
@click.option("--answers", multiple=True, type=PATH, help="Human answers: a study's export, or a table. Repeatable.")
@click.option("--ratings", multiple=True, type=PATH, help="Ratings from 0 to 5: an export, or CxC's sits_test.csv. Repeatable.")
@click.option("--no-links", is_flag=True, help="Do not count unjudged links (the pairs that the data came with) as positives.")
@click.option("--pool", type=FOLDER, help="Folder of the judged pool; only its queries count.  [default: all]")
@click.option(
    "--rule", type=click.Choice(["any", "all", "first"]), default="any", show_default=True,
    help="If sources disagree: one positive is enough, all must agree, or the first source decides.",
)  # fmt: skip
@click.option("--answers-positive", type=float, help="Lowest grade of a positive answer.  [default: 0.5, partly right]")
@click.option("--ratings-positive", type=float, help="Lowest rating of a positive pair.  [default: 3]")
@click.option("--invalid", type=PATH, help="File with ids of meaningless captions to remove, one per line.")
@click.option("--wrong", type=PATH, help="File with ids of wrong captions to remove; suspects.csv lists candidates.")
@click.option("--images", type=PATH, help="File with ids of images to remove, one per line.")
@click.option("--against", default="", help="Collection, such as a training set, whose images are removed.")
@click.option("--as-is", is_flag=True, help="Do not search for meaningless captions and duplicate images.")
def merge_command(data: str, output: Path, answers: tuple[Path, ...], ratings: tuple[Path, ...], no_links: bool, pool: Path | None,
                  rule: str, answers_positive: float | None, ratings_positive: float | None, invalid: Path | None,
                  wrong: Path | None, images: Path | None, against: str, as_is: bool) -> None:  # fmt: skip
    """Merge answers, ratings and links into judgements.

    The method is that of ECCV Caption. The output folder is a collection: crossmatch run -m MODEL -t collection:FOLDER
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
