"""Ctrl-C: what to say of work that is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click


@contextmanager
def goes_on(restart: bool = False) -> Iterator[None]:
    """Work that the same command takes up where it was stopped; one that says --restart would begin again."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(err=True)  # after the ^C of the terminal
        raise click.Abort(f"the same command{' without --restart' if restart else ''} goes on") from None
