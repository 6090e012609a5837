"""`crossmatch build`: build a benchmark step by step. Each step writes a folder that records how it was made."""

from __future__ import annotations

import click

from crossmatch.cli.base import Group
from crossmatch.cli.build.bias import bias_command
from crossmatch.cli.build.bounds import bounds_command
from crossmatch.cli.build.card import card_command
from crossmatch.cli.build.generate import generate_command
from crossmatch.cli.build.lookalikes import lookalikes_command
from crossmatch.cli.build.merge import merge_command
from crossmatch.cli.build.negatives import negatives_command
from crossmatch.cli.build.pool import pool_command
from crossmatch.cli.build.recipe import recipe_command
from crossmatch.cli.build.refine import refine_command
from crossmatch.cli.build.sample import sample_command


@click.group(cls=Group)
def build() -> None:
    """Build a benchmark step by step, or with the recipe of a paper."""


for command in (
    lookalikes_command,
    sample_command,
    negatives_command,
    generate_command,
    refine_command,
    pool_command,
    merge_command,
    bounds_command,
    bias_command,
    card_command,
    recipe_command,
):
    build.add_command(command)
