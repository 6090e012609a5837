"""`crossmatch build bounds`: bounds on the order of models, and the pairs to judge first."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.base import FOLDER, SIZE, SPLIT, Command
from crossmatch.cli.cache import cache_options, score_cache
from crossmatch.data.errors import CrossmatchError, UsageError

if TYPE_CHECKING:
    from crossmatch.build.model_order_bounds import ModelOrder
    from crossmatch.data.collection import Collection
    from crossmatch.data.judgements import Judgements


@click.command("bounds", cls=Command)
@click.option("-m", "--model", "models", multiple=True, required=True, help="Model to compare. Repeatable.")
@click.option("--data", default="diorama", show_default=True, help="diorama, diorama:tiny, a retrieval task, or collection:FOLDER.")
@click.option("-o", "--output", type=FOLDER, required=True, help="New folder for the list of pairs.")
@click.option("--metric", default="map@r", show_default=True, help="hit@k, recall@k, precision@k, ndcg@k, r-precision, map@r, mrr.")
@click.option("--direction", type=click.Choice(("i2t", "t2i")), default="t2i", show_default=True, help="Direction of retrieval.")
@click.option("--judgements", "judgements_name", help="Name of the judgements, if the data have several.")
@click.option("--depth", type=click.IntRange(1), default=10, show_default=True,
              help="An unjudged pair may match if some model ranks it within this depth.")  # fmt: skip
@click.option("--open", "is_open", is_flag=True, help="Any unjudged pair may match, even if no model retrieved it.")
@click.option("--tolerance", type=click.FloatRange(0, 100, max_open=True), default=0.0, show_default=True,
              help="A lead up to this many points counts as a tie.")  # fmt: skip
@SPLIT
@SIZE
@cache_options
def bounds_command(models: tuple[str, ...], data: str, output: Path, metric: str, direction: str, judgements_name: str | None,
                   depth: int, is_open: bool, tolerance: float, cache: Path | None, no_cache: bool,
                   **load_options: str | None) -> None:  # fmt: skip
    """Show how missing judgements could change the order of models.

    The output lists the unjudged pairs that could change the order of models. The list is in the best order for judging:
    crossmatch build pool --first FOLDER/rows.jsonl
    """
    from crossmatch.build.model_order_bounds import BoundsOptions, bound_model_order

    options = BoundsOptions(metric, direction, None if is_open else depth, tolerance / 100)
    collection, judgements = _load_judged(data, direction, judgements_name, load_options)
    manifest, order = bound_model_order(
        collection, judgements, models, output, options=options, cache=score_cache(cache, no_cache)
    )  # fmt: skip
    _print_bounds(order, manifest, direction)
    click.echo(f"saved {output} · {manifest['rows']:,} pairs that could change the order, most influential first", err=True)


def _load_judged(data: str, direction: str, name: str | None, load_options: dict[str, str | None]) -> tuple[Collection, Judgements]:
    """Load a collection in canonical order, and its incomplete judgements of this name."""
    from crossmatch.benchmarks import resolve_task
    from crossmatch.cli.captions.common import resolve_task as task_with_images
    from crossmatch.data.errors import UnusableItemError
    from crossmatch.data.judgements import Judgements
    from crossmatch.data.loaded_data import Retrieval, sort_canonically
    from crossmatch.study.design.data_source import size_and_split

    options: dict[str, Any] = {key: value for key, value in load_options.items() if value is not None}
    if data.startswith("diorama:"):
        data, options = "diorama", dict(zip(("size", "split"), size_and_split(data), strict=True)) | options
    benchmark, task_options = resolve_task(task_with_images(data), options)
    try:
        loaded = sort_canonically(benchmark.load(**task_options))
    except UnusableItemError as error:
        raise CrossmatchError(error.reason) from None  # this command cannot skip items
    if not isinstance(loaded, Retrieval):
        raise UsageError(f"--data {data} is not a retrieval task. Use diorama, a retrieval task (`crossmatch list tasks`) or "
                         "collection:FOLDER.")  # fmt: skip
    available = {
        key: judgements
        for key, judgements in loaded.judgements.items()
        if isinstance(judgements, Judgements) and direction in judgements.directions
    }
    if name is not None and name not in available:
        raise UsageError(f"--judgements {name!r}: {data} has {', '.join(available) or 'no judgements'} for {direction}.")
    if name is not None:
        return loaded.collection, available[name]
    incomplete = [key for key, judgements in available.items() if not judgements.complete]
    if len(incomplete) != 1:
        raise UsageError(
            f"{data} has {', '.join(incomplete) or 'no incomplete judgements'} for {direction}. Choose with --judgements."
        )
    return loaded.collection, available[incomplete[0]]


def _print_bounds(order: ModelOrder, manifest: dict[str, Any], direction: str) -> None:
    from crossmatch.build.model_order_bounds import metric_intervals
    from crossmatch.report.tables import Table, format_table

    metric, counts = order.rankings.metric, manifest["counts"]
    title = f"{direction} {metric.label or metric.name} over {counts['queries']:,} queries, {counts['unjudged']:,} pairs unjudged"
    means, bounds = order.means, metric_intervals(order)
    names = sorted(means, key=lambda name: -means[name])
    rows = [(name, *(f"{100 * value:.1f}" for value in (means[name], *bounds[name]))) for name in names]
    click.echo(format_table(Table(title, (("model", "unjudged irrelevant", "lowest", "highest"),), tuple(rows), 1)))
    if len(names) > 1:
        head = (("difference", "now", "lowest", "highest", "", "pairs"),)
        click.echo("\n" + format_table(Table("", head, _comparison_rows(order, names), 1)))


def _comparison_rows(order: ModelOrder, names: list[str]) -> tuple[tuple[str, ...], ...]:
    """One row per pair of models, the leading model first."""
    means, undecided = order.means, order.undecided
    rows = []
    for a, b in combinations(names, 2):
        pair = (a, b) if (a, b) in order.differences else (b, a)
        low, high = order.mean_difference(pair)
        low, high = (low, high) if pair == (a, b) else (-high, -low)
        differences = (f"{100 * value:+.1f}" for value in (means[a] - means[b], low, high))
        state = ("undecided", f"{order.open_pairs(pair).sum():,}") if pair in undecided else ("certain", "")
        rows.append((f"{a} - {b}", *differences, *state))
    return tuple(rows)
