"""`crossmatch captions`: generate captions, score them, measure agreement with people, explain a score."""

from __future__ import annotations

import click

from crossmatch.cli.base import Group
from crossmatch.cli.captions.agree import agree_command
from crossmatch.cli.captions.explain import explain_command
from crossmatch.cli.captions.generate import generate_command
from crossmatch.cli.captions.score import score_command


@click.group(cls=Group)
def captions() -> None:
    """Generate, score and explain captions."""


for command in (score_command, agree_command, explain_command, generate_command):
    captions.add_command(command)
