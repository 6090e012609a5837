"""`crossmatch build`: a benchmark of one's own, step by step, each with a folder that says how it came about."""

from __future__ import annotations

import click

from crossmatch.cli.build.bounds import bounds_command
from crossmatch.cli.build.judged import bias_command, card_command, merge_command
from crossmatch.cli.build.recipe import recipe_command


@click.group()
def build() -> None:
    """Build a benchmark: mine, sample, write and refine hard negatives, generate, pool, merge, and say how far to trust it."""


for command in (merge_command, bias_command, bounds_command, card_command, recipe_command):
    build.add_command(command)
