"""`crossmatch build`: a benchmark of one's own, step by step, each with a folder that says how it came about."""

from __future__ import annotations

import click

from crossmatch.cli.build.bounds import bounds_command


@click.group()
def build() -> None:
    """Build a benchmark: mine, sample, write and refine hard negatives, generate, pool, merge, and say how far to trust it."""


build.add_command(bounds_command)
