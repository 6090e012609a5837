"""`crossmatch correlate`: do the metrics agree on which model is better?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from crossmatch.core.errors import WrongWords


@click.command()
@click.argument("results", nargs=-1, type=click.Path(path_type=Path))
@click.option("--published", is_flag=True, help="Take the 25 models of the ECCV Caption paper instead of results of your own.")
@click.option("--by-direction", is_flag=True, help="Keep i2t and t2i apart instead of averaging them.")
@click.option("--by-category", is_flag=True, help="Take the categories of trials as metrics of their own too.")
@click.option("--metrics", help="Only these metrics, separated by commas, such as hit@1,map@r.")
@click.option("--pairs", is_flag=True, help="A line for every two metrics, with interval and p, instead of the matrix.")
@click.option("--samples", type=click.IntRange(2), default=10_000, show_default=True, help="Bootstrap samples for the intervals.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the bootstrap.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Draw a heat map: a .png, .svg or .pdf file.")
@click.option("--json", "as_json", is_flag=True, help="Print every pair as JSON on standard output.")
def correlate(results: tuple[Path, ...], published: bool, by_direction: bool, by_category: bool, metrics: str | None, pairs: bool,
              samples: int, seed: int, output: Path | None, as_json: bool) -> None:  # fmt: skip
    """Kendall's tau-b between every two metrics, over the models in these folders of results."""
    if published == bool(results):
        raise WrongWords("name folders of results, or --published; the two are never mixed. For both, call it twice.")
    from crossmatch.core.result import load_all
    from crossmatch.report import correlate as analysis
    from crossmatch.report.tables import as_text

    if published and (by_direction or by_category):
        named = "--by-direction" if by_direction else "--by-category"
        raise WrongWords(f"the published correlations are of means over directions; {named} is for results of your own.")
    if output:
        analysis.require_picture(output)
    if published:
        board = analysis.published_scoreboard()
    else:
        board = analysis.scoreboard(load_all(list(results)), not by_direction, by_category)
    if metrics:
        board = board.with_metrics([name.strip() for name in metrics.split(",") if name.strip()])
    found = analysis.correlate(board, samples if pairs or as_json else 0, seed)
    if as_json:
        click.echo(json.dumps(analysis.as_rows(found), indent=1, allow_nan=False))
    else:
        click.echo(as_text(analysis.pairs_table(found) if pairs else analysis.correlation_table(found)))
    if output:
        click.echo(f"drew {analysis.heat_map(found, output)}", err=True)
