"""`crossmatch build refine`: keep plausible negatives that a text-only classifier cannot tell from captions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.base import Command, resumable
from crossmatch.cli.build.common import OUTPUT, SEED, SOURCE, print_summary, split_names


@click.command("refine", cls=Command)
@SOURCE
@OUTPUT
@click.option("--scorers", default="plausibility,fluency", show_default=True,
              help="Two scorers, separated by a comma: plausibility, fluency, lm:FOLDER, FILE.py:function.")  # fmt: skip
@click.option("--share", type=click.FloatRange(0, 1, min_open=True), default=0.35, show_default=True,
              help="Share of the most plausible and fluent negatives to keep, before the grid is balanced.")  # fmt: skip
@click.option(
    "--bins", type=click.IntRange(1, 4096), default=100, show_default=True, help="Cells per axis of the grid of the two scores."
)
@click.option(
    "--words",
    is_flag=True,
    help="Also balance every word between captions and negatives; negatives that only add words are dropped.",
)
@click.option("--parts", type=click.IntRange(1, 100), default=1, show_default=True,
              help="Balance this many parts of the images separately, for a later split into train and test.")  # fmt: skip
@SEED
def refine_command(source: Path, output: Path, scorers: str, share: float, bins: int, words: bool, parts: int, seed: int) -> None:
    """Select negatives that text alone does not give away.

    SOURCE is a folder of `build negatives`. The method is that of SugarCrepe and BiVLC.
    """
    from crossmatch.build.refinement.refinement_step import BLIND_FILE, MIN_ROWS, refine_negatives

    names = split_names(scorers, "scorer")
    with resumable():
        manifest = refine_negatives(source, output, scorers=names, share=share, bins=bins, words=words, parts=parts, seed=seed)
    accuracies = json.loads((output / BLIND_FILE).read_text(encoding="utf-8"))
    texts = [f"{stage} {_format_accuracy(values)}" for stage, values in accuracies.items() if "accuracy" in values]
    few = "few rows are left: try fewer --bins, a larger --share, or negatives of more captions"
    generate = f"crossmatch build generate {quote(str(output))} --by GENERATOR -o FOLDER"
    print_summary(
        output,
        manifest,
        f"blind accuracy in %: {', '.join(texts)}" if texts else "",
        few if manifest["rows"] < MIN_ROWS else "",
        generate if manifest["rows"] else "",
    )


def _format_accuracy(values: Mapping[str, Any]) -> str:
    """The blind accuracy in percent, and in parentheses that of a classifier that also sees the words."""
    with_words = f" ({100 * values['with words']['accuracy']:.1f} with words)" if "with words" in values else ""
    return f"{100 * values['accuracy']:.1f}{with_words}"
