"""`crossmatch build bias`: measure how the choice of models biases a pool."""

from __future__ import annotations

from pathlib import Path

import click

from crossmatch.cli.base import FOLDER, Command
from crossmatch.cli.build.common import load_collection
from crossmatch.cli.cache import cache_options

PATH = click.Path(path_type=Path)


@click.command("bias", cls=Command)
@click.argument("pool", type=FOLDER)
@click.option(
    "--answers", type=PATH, required=True, help="A study's export, a merged folder, or a csv: image_id, caption_id, grade."
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
    from crossmatch.benchmarks.formats.judgement_files import has_artificial_answers
    from crossmatch.build.pool_bias_report import write_bias_report
    from crossmatch.build.pool_bias_step import write_pool_bias
    from crossmatch.build.rating_files import judgements_file
    from crossmatch.cli.cache import score_cache
    from crossmatch.data.judgements import rehearsal_note
    from crossmatch.report.tables import format_table

    analysis, _ = write_pool_bias(
        pool, answers, output, metrics=metrics or ("hit@1",), collection=load_collection(data) if data else None, candidates=models,
        samples=samples, seed=seed, cache=score_cache(cache, no_cache),
    )  # fmt: skip
    click.echo("\n\n".join(map(format_table, write_bias_report(output, analysis))))
    if has_artificial_answers(judgements_file(answers)):
        click.echo(rehearsal_note(f"answers of {answers}"), err=True)
    for direction, number in analysis.unjudged.items():
        if number:
            click.echo(f"{number:,} pairs of the pool in {direction} have no answer and count as irrelevant", err=True)
    click.echo(f"saved {output} · {output / 'bias.html'}", err=True)
