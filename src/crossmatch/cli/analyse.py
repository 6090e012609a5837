"""`crossmatch analyse`: look behind the numbers of results and benchmarks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crossmatch.cli.base import FILE, JSON, SIZE, SPLIT, Group, split_names, without_none
from crossmatch.cli.cache import cache_options, score_cache
from crossmatch.data.errors import UsageError

if TYPE_CHECKING:
    from crossmatch.report.pages import Panel
    from crossmatch.report.tables import Table

OUTPUT = click.option("-o", "--output", type=FILE, help="Write a page (.html) or only the plots (.png, .svg, .pdf).")
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random draws.")


@click.group(cls=Group)
def analyse() -> None:
    """Analyse results, metrics and benchmarks."""


@analyse.command("correlate")
@click.argument("results", nargs=-1, type=click.Path(path_type=Path))
@click.option("--published", is_flag=True, help="Use the 25 models of the ECCV Caption paper instead of your results.")
@click.option("--by-direction", is_flag=True, help="Keep i2t and t2i separate instead of averaging them.")
@click.option("--by-category", is_flag=True, help="Also treat each category of trials as a metric.")
@click.option("--metrics", help="Only these metrics, separated by commas, such as hit@1,map@r.")
@click.option("--pairs", is_flag=True, help="Print one line per pair of metrics, with interval and p, instead of the matrix.")
@click.option("--samples", type=click.IntRange(2), default=10_000, show_default=True, help="Bootstrap samples for the intervals.")
@SEED
@click.option("-o", "--output", type=FILE, help="Draw a heat map (.png, .svg or .pdf).")
@JSON
def correlate(results: tuple[Path, ...], published: bool, by_direction: bool, by_category: bool, metrics: str | None, pairs: bool,
              samples: int, seed: int, output: Path | None, as_json: bool) -> None:  # fmt: skip
    """Show which metrics agree on which model is better.

    The agreement is Kendall's tau-b between two metrics over the models.
    """
    if published == bool(results):
        raise UsageError("Name at least one folder of results, or use --published, but not both.")
    from crossmatch.data.result import load_results
    from crossmatch.report.analysis import metric_correlation
    from crossmatch.report.pages import require_figure_suffix
    from crossmatch.report.tables import format_table

    if published and (by_direction or by_category):
        option = "--by-direction" if by_direction else "--by-category"
        raise UsageError(f"{option} works only with your own results; the published values are means over directions.")
    if output:
        require_figure_suffix(output)
    if published:
        scoreboard = metric_correlation.published_scoreboard()
    else:
        scoreboard = metric_correlation.build_scoreboard(load_results(list(results)), not by_direction, by_category)
    if metrics:
        scoreboard = scoreboard.with_metrics(split_names(metrics))
    correlation = metric_correlation.correlate_metrics(scoreboard, samples if pairs or as_json else 0, seed)
    if as_json:
        click.echo(json.dumps(metric_correlation.correlation_rows(correlation), indent=1, allow_nan=False))
    else:
        table = metric_correlation.pairs_table(correlation) if pairs else metric_correlation.correlation_table(correlation)
        click.echo(format_table(table))
    if output:
        click.echo(f"saved {metric_correlation.write_heat_map(correlation, output)}", err=True)


@analyse.command("statistics")
@click.option("-t", "--task", required=True, help="Any task (`crossmatch list tasks`).")
@click.option("--source", help="Captions to compare with: a task, collection:FOLDER, a file of captions, or references "
              "(all captions of the task's own images).")  # fmt: skip
@SIZE
@SPLIT
@OUTPUT
@JSON
def statistics(task: str, source: str | None, size: str | None, split: str | None, output: Path | None, as_json: bool) -> None:
    """Count images, captions, words and parts of speech (BISON).

    The counts are those of BISON, Table 2.
    """
    from crossmatch.report.analysis import caption_statistics_comparison
    from crossmatch.report.analysis.analysis_plots import statistics_panels

    _require_writable_kind(output)
    compared = caption_statistics_comparison.compare_statistics(task, source, **without_none(size=size, split=split))
    table = caption_statistics_comparison.statistics_table(compared)
    if as_json:
        click.echo(json.dumps(caption_statistics_comparison.statistics_json(compared), indent=1, allow_nan=False))
    else:
        _print_tables([table])
    if output:
        _write_page(output, " and ".join(described.name for described in compared.sets), [table], statistics_panels(compared))


@analyse.command("scores")
@click.argument("result", type=FILE)
@click.option("--by", "files", type=FILE, multiple=True,
              help="A csv with trial_id (or image_id, of the positive image) and columns of scores. "
              "[default: the model's own margin and confidence]")  # fmt: skip
@click.option("--metric", help="What counts as right: accuracy, group, i2t, t2i, …  [default: accuracy, or group]")
@click.option("--partial", is_flag=True, help="Skip trials without a score.")
@OUTPUT
@JSON
def scores(result: Path, files: tuple[Path, ...], metric: str | None, partial: bool, output: Path | None, as_json: bool) -> None:
    """Compare a score between correct and wrong trials (BISON).

    The plot is that of BISON, Figure 8.
    """
    from crossmatch.data.result import load_results
    from crossmatch.report.analysis import scores_by_trial_outcome
    from crossmatch.report.analysis.analysis_plots import split_panels

    _require_writable_kind(output)
    (loaded,) = load_results([result])
    external_scores = scores_by_trial_outcome.read_all_scores(files, loaded) if files else None
    distributions = scores_by_trial_outcome.split_scores(loaded, external_scores, metric, partial=partial)
    table = scores_by_trial_outcome.split_table(loaded, distributions)
    if as_json:
        click.echo(json.dumps(scores_by_trial_outcome.split_rows(distributions), indent=1, allow_nan=False))
    else:
        _print_tables([table])
    if output:
        _write_page(output, table.title, [table], split_panels(distributions))


@analyse.command("gap")
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@OUTPUT
@JSON
def gap(results: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
    """Compare directions, categories and the ranks of models (BiVLC)."""
    from crossmatch.data.result import load_results
    from crossmatch.report.analysis import direction_gap
    from crossmatch.report.analysis.analysis_plots import direction_panels

    _require_writable_kind(output)
    gaps = direction_gap.analyse_directions(load_results(list(results)))
    tables = direction_gap.direction_analysis_tables(gaps)
    if as_json:
        click.echo(json.dumps(direction_gap.direction_analysis_json(gaps), indent=1, allow_nan=False))
    else:
        _print_tables(tables)
    if output:
        _write_page(output, "Directions, categories and ranks", tables, direction_panels(gaps))


@analyse.command("ratings")
@click.option(
    "-t", "--task", required=True, help="A task with ratings of pairs: cxc, cxc-sts, cxc-sis, cxc-sits, collection:FOLDER."
)
@click.option("-m", "--model", "models", multiple=True,
              help="Also show the scores of this model (`crossmatch list models`). Repeat it for several models.")  # fmt: skip
@click.option("--examples", type=click.IntRange(0), default=3, show_default=True, help="Examples in each group of the page.")
@SIZE
@SPLIT
@SEED
@cache_options
@OUTPUT
@JSON
def ratings(task: str, models: tuple[str, ...], examples: int, size: str | None, split: str | None, seed: int, cache: Path | None,
            no_cache: bool, output: Path | None, as_json: bool) -> None:  # fmt: skip
    """Show how people rated pairs, by sampling method (CxC).

    The page (-o FILE.html) has the distributions, the positives per item, the disagreement, and examples with the scores of models.
    """
    from crossmatch.benchmarks import load_benchmark_ratings
    from crossmatch.report.analysis import rated_examples, rating_distributions
    from crossmatch.report.analysis.rating_plots import rating_panels, write_ratings_page

    _require_writable_kind(output)
    rated = load_benchmark_ratings(task, **without_none(split=split, size=size))
    rated.require_ratings(task)
    rated = replace(rated, ratings=rating_distributions.sort_by_kind(rated.ratings))
    score_store = score_cache(cache, no_cache)
    scores = [rated_examples.score_ratings(model, rated, score_store) for model in models]
    tables = rating_distributions.rating_tables(rated.ratings)
    if as_json:
        click.echo(json.dumps(rating_distributions.ratings_json(rated.ratings), indent=1, allow_nan=False))
    else:
        _print_tables(tables)
    if output and output.suffix == ".html":
        groups = rated_examples.example_groups(rated, scores, examples, seed)
        panels = rating_panels(rated.ratings, scores, seed)
        path = write_ratings_page(output, f"Ratings of {task}", rated.ratings, tables, panels, groups)
        click.echo(f"saved {path}", err=True)
    elif output:
        _write_page(output, task, tables, rating_panels(rated.ratings, scores, seed))


def _require_writable_kind(output: Path | None) -> None:
    """Refuse an unknown file ending before any work is done."""
    if output is not None:
        from crossmatch.report.pages import require_output_suffix

        require_output_suffix(output)


def _print_tables(tables: Sequence[Table]) -> None:
    from crossmatch.report.tables import format_table

    click.echo("\n\n".join(map(format_table, tables)))


def _write_page(output: Path, title: str, tables: Sequence[Table], panels: Sequence[Panel]) -> None:
    from crossmatch.report.pages import write_analysis

    click.echo(f"saved {write_analysis(output, title, tables, panels)}", err=True)
