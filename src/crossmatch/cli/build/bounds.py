"""`crossmatch build bounds`: what unjudged pairs leave open, and which of them to judge first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from crossmatch.cli.cache import cache_options, score_cache
from crossmatch.cli.folders import FOLDER
from crossmatch.core.errors import CrossmatchError, WrongWords

if TYPE_CHECKING:
    from crossmatch.build.bounds import Contest
    from crossmatch.core.collection import Collection
    from crossmatch.core.judgements import Judgements


@click.command("bounds")
@click.option("-m", "--model", "models", multiple=True, required=True, help="A model (see `models`); several are compared.")
@click.option("--data", default="diorama", show_default=True, help="diorama, diorama:tiny, a retrieval task, or collection:FOLDER.")
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for the list of pairs, a new one.")
@click.option("--metric", default="map@r", show_default=True, help="hit@k, recall@k, precision@k, ndcg@k, r-precision, map@r, mrr.")
@click.option(
    "--direction", type=click.Choice(("i2t", "t2i")), default="t2i", show_default=True, help="What is searched with what."
)
@click.option("--judgements", "named", help="Which judgements, where the data has several.")
@click.option("--depth", type=click.IntRange(1), default=10, show_default=True,
              help="An unjudged pair may match if some model has it among so many places.")  # fmt: skip
@click.option("--open", "whole", is_flag=True, help="Any unjudged pair may match, also those that no model retrieved.")
@click.option("--tolerance", type=click.FloatRange(0, 100, max_open=True), default=0.0, show_default=True,
              help="Points by which a model may be ahead without counting as ahead.")  # fmt: skip
@click.option("--split", help="Split of the data, where there are several.")
@click.option("--size", help="Size of the world, for diorama: default, coco, tiny.")
@cache_options
def bounds_command(models: tuple[str, ...], data: str, output: Path, metric: str, direction: str, named: str | None, depth: int,
                   whole: bool, tolerance: float, cache: Path | None, no_cache: bool, **options: str | None) -> None:  # fmt: skip
    """Between which values a metric must lie, which order of models is certain, and which pairs to judge to settle the rest.

    The list in the folder is in the order in which it is best judged: crossmatch build pool --first FOLDER/rows.jsonl
    """
    from crossmatch.build.bounds import Bounding, bounded

    how = Bounding(metric, direction, None if whole else depth, tolerance / 100)
    held, judged = _asked(data, direction, named, options)
    told, contest = bounded(held, judged, models, output, how=how, cache=score_cache(cache, no_cache))
    _show(contest, told, direction)
    click.echo(f"saved {output} · {told['rows']:,} pairs that could change the order, the most urgent first", err=True)


def _asked(data: str, direction: str, named: str | None, options: dict[str, str | None]) -> tuple[Collection, Judgements]:
    """A collection in the order of its ids, and its judgements."""
    from crossmatch.benchmarks import benchmark_named
    from crossmatch.cli.generate import task_of
    from crossmatch.core.benchmark import Retrieval, in_order
    from crossmatch.core.judgements import Judgements
    from crossmatch.core.skipped import Unusable
    from crossmatch.study.sources import size_and_split

    told = {key: value for key, value in options.items() if value is not None}
    if data.startswith("diorama:"):
        data, told = "diorama", dict(zip(("size", "split"), size_and_split(data), strict=True)) | told
    declared, chosen = benchmark_named(task_of(data), told)
    try:
        found = in_order(declared.loaded(**chosen))
    except Unusable as error:
        raise CrossmatchError(error.why) from None  # nothing can be left out here
    if not isinstance(found, Retrieval):
        raise WrongWords(f"{data} has no rankings. Name diorama, a retrieval task (see `crossmatch tasks`) or collection:FOLDER.")
    there = {name: said for name, said in found.judgements.items() if isinstance(said, Judgements) and direction in said.directions}
    if named is None:
        there = {name: said for name, said in there.items() if not said.complete}  # where all is judged, nothing is open
    elif named not in there:
        raise WrongWords(f"{data} has no judgements {named!r} for {direction}; it has {', '.join(there) or 'none'}.")
    else:
        there = {named: there[named]}
    if len(there) != 1:
        raise WrongWords(f"{data} has the judgements {', '.join(there) or '(none)'} for {direction}. Name one with --judgements.")
    return found.collection, next(iter(there.values()))


def _show(contest: Contest, told: dict[str, object], direction: str) -> None:
    from crossmatch.build.bounds import intervals
    from crossmatch.report.tables import Table, as_text

    asked, counts = contest.question, told["counts"]
    assert isinstance(counts, dict)
    label = asked.metric.label or asked.metric.name
    title = f"{direction} {label} over {counts['queries']:,} queries, {counts['unjudged']:,} pairs unjudged"
    means, within = contest.means, intervals(contest)
    ahead = sorted(means, key=lambda name: -means[name])
    rows = [(name, f"{100 * means[name]:.1f}", f"{100 * within[name][0]:.1f}", f"{100 * within[name][1]:.1f}") for name in ahead]
    click.echo(as_text(Table(title, (("model", "unjudged irrelevant", "lowest", "highest"),), tuple(rows), 1)))
    if len(ahead) > 1:
        click.echo(
            "\n" + as_text(Table("", (("difference", "now", "lowest", "highest", "", "pairs"),), _compared(contest, ahead), 1))
        )


def _compared(contest: Contest, ahead: list[str]) -> tuple[tuple[str, ...], ...]:
    """Each comparison, the model that is ahead now first."""
    from itertools import combinations

    means, undecided = contest.means, contest.undecided
    rows = []
    for a, b in combinations(ahead, 2):
        two = (a, b) if (a, b) in contest.gaps else (b, a)
        low, high = contest.gap(two)
        low, high = (low, high) if two == (a, b) else (-high, -low)
        is_open = two in undecided
        pairs = f"{contest.hanging(two).sum():,}" if is_open else ""
        rows.append(
            (f"{a} - {b}", f"{100 * (means[a] - means[b]):+.1f}", f"{100 * low:+.1f}", f"{100 * high:+.1f}",
             "undecided" if is_open else "certain", pairs)
        )  # fmt: skip
    return tuple(rows)
