"""`crossmatch build`: a benchmark of one's own, step by step, each with a folder that says how it came about."""

from __future__ import annotations

import click

from crossmatch.cli.build.bounds import bounds_command
from crossmatch.cli.build.judged import bias_command, card_command, merge_command
from crossmatch.cli.build.negatives import format_command, generate_command, negatives_command, refine_command
from crossmatch.cli.build.recipe import recipe_command
from crossmatch.cli.build.steps import mine_command, pool_command, sample_group


@click.group()
def build() -> None:
    """Build a benchmark: mine, sample, write and refine hard negatives, generate, pool, merge, and say how far to trust it."""


STEPS = (mine_command, sample_group, negatives_command, format_command, generate_command, refine_command, pool_command)
AFTER = (merge_command, bias_command, bounds_command, card_command, recipe_command)
for command in (*STEPS, *AFTER):
    build.add_command(command)
