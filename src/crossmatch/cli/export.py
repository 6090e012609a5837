"""`crossmatch export`: rankings and judgements as TREC files, for trec_eval and its kin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from crossmatch.cli.cache import cache_options, score_cache
from crossmatch.core.errors import WrongWords

if TYPE_CHECKING:
    from crossmatch.core.benchmark import Retrieval
    from crossmatch.core.judgements import Judgements

# Spelled out here, because the modules that know them import NumPy, and `--help` is to answer at once.
DIRECTIONS = ("i2t", "t2i", "t2t", "i2i")
GRADES = ("whole", "given", "binary")
TASK = click.option("-t", "--task", required=True, help="A retrieval task (see `tasks`).")
DIRECTION = click.option("--direction", type=click.Choice(DIRECTIONS), required=True, help="What is searched with what.")
SET = click.option("--judgements", "named", help="Which judgements, where the task has several.")
SPLIT = click.option("--split", help="Split of the data, where the task has several.")
SIZE = click.option("--size", help="Size of the world, for diorama tasks: default, coco, tiny.")
FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def export() -> None:
    """Write rankings and judgements as TREC files."""


@export.command("run")
@click.option("-m", "--model", required=True, help="A model (see `models`).")
@TASK
@DIRECTION
@click.option("--depth", type=click.IntRange(1), default=100, show_default=True,
              help="Places of each ranking; what is level with the last one is written too.")  # fmt: skip
@click.option("--all", "whole", is_flag=True, help="Write the whole rankings.")
@click.option("--tag", default="crossmatch", show_default=True, help="Name of the run, its last column.")
@SET
@SPLIT
@SIZE
@cache_options
@click.option("-o", "--output", type=FILE, default=Path("run.trec"), show_default=True, help="File to write.")
def export_run(model: str, task: str, direction: str, depth: int, whole: bool, tag: str, named: str | None, output: Path,
               cache: Path | None, no_cache: bool, **options: str | None) -> None:  # fmt: skip
    """Rankings of a model for the queries of a task that have a positive."""
    import numpy as np

    from crossmatch.core.trec import write_run
    from crossmatch.models import make_model
    from crossmatch.models.abilities import scores_of

    data, sets = _asked(task, direction, named, options)
    folds = [said.listed(direction).folds for said in sets.values()]
    if any(fold is not None for fold in folds) and len(folds) > 1:
        raise WrongWords(f"each of the judgements {', '.join(sets)} has galleries of its own. Name one with --judgements.")
    queries = np.unique(np.concatenate([said.listed(direction).query for said in sets.values()]))
    scores = scores_of(make_model(model), data, cache=score_cache(cache, no_cache))
    output.parent.mkdir(parents=True, exist_ok=True)
    wrote = write_run(
        scores, data.collection, direction, output, depth=None if whole else depth, queries=queries, folds=folds[0], tag=tag
    )
    click.echo(f"saved {output} · {wrote.rows:,} places for {wrote.queries:,} queries", err=True)


@export.command("qrels")
@TASK
@DIRECTION
@click.option("--grades", type=click.Choice(GRADES), default="whole", show_default=True,
              help="whole: times 100 or so if need be; given: with fractions; binary: 1 for positive, else 0.")  # fmt: skip
@SET
@SPLIT
@SIZE
@click.option("-o", "--output", type=FILE, default=Path("qrels.txt"), show_default=True, help="File to write.")
def export_qrels(task: str, direction: str, grades: str, named: str | None, output: Path, **options: str | None) -> None:
    """Judgements of a task."""
    from crossmatch.core.trec import write_qrels

    data, sets = _asked(task, direction, named, options)
    if len(sets) > 1:
        raise WrongWords(f"{task} has the judgements {', '.join(sets)} for {direction}. Name one with --judgements.")
    said = next(iter(sets.values()))
    output.parent.mkdir(parents=True, exist_ok=True)
    wrote = write_qrels(said, data.collection, direction, output, grades)
    facts = [f"saved {output}", f"{wrote.rows:,} pairs for {wrote.queries:,} queries", f"positive from {wrote.level:g} on"]
    facts += [f"grades x {wrote.scale}"] if wrote.scale > 1 else []
    facts += (
        [f"{wrote.bare:,} queries have no positive: trec_eval counts them as 0, crossmatch leaves them out"] if wrote.bare else []
    )
    click.echo(" · ".join(facts), err=True)


def _asked(task: str, direction: str, named: str | None, options: dict[str, str | None]) -> tuple[Retrieval, dict[str, Judgements]]:
    """The data of a task in canonical order, and its judgements that have this direction."""
    from crossmatch.benchmarks import benchmark_named
    from crossmatch.core.benchmark import Retrieval, in_order
    from crossmatch.core.judgements import Judgements

    declared, chosen = benchmark_named(task, {key: value for key, value in options.items() if value is not None})
    data = in_order(declared.loaded(**chosen))
    if not isinstance(data, Retrieval):
        raise WrongWords(f"{task} has no rankings to export. Name a retrieval task (see `crossmatch tasks`).")
    there = {name: said for name, said in data.judgements.items() if isinstance(said, Judgements) and direction in said.directions}
    if direction not in declared.directions:
        raise WrongWords(f"{task} has no judgements for {direction}; its directions are {', '.join(declared.directions)}.")
    if not there:
        raise WrongWords(f"{task} tells its {direction} positives by a rule and has no list of judged pairs. Name another task.")
    if named is None:
        return data, there
    if named not in there:
        raise WrongWords(f"{task} has no judgements {named!r} for {direction}; it has {', '.join(there)}.")
    return data, {named: there[named]}
