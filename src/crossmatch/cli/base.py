"""What all commands share: command classes, common options, and the parsing of lists."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click


class Command(click.Command):
    """A command that refuses a repeated single-valued option. click itself would silently use the last value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        _refuse_repeated_options(self, ctx, args)
        return super().parse_args(ctx, args)


class Group(click.Group):
    """A group whose commands and groups are of these classes."""

    command_class = Command
    group_class = type


def _refuse_repeated_options(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    words = args[: args.index("--")] if "--" in args else args
    for option in command.get_params(ctx):
        if not isinstance(option, click.Option) or option.multiple or option.is_flag or option.count:
            continue
        uses = [word for word in words if any(_names_option(word, name) for name in option.opts)]
        if len(uses) > 1:
            ctx.fail(f"{max(option.opts, key=len)} was given {len(uses)} times. Give it once.")


def _names_option(word: str, name: str) -> bool:
    """Whether a word of the command line is this option, possibly with its value: `--seed`, `--seed=3`, `-o`, `-oDIR`."""
    return word == name or (word.startswith(f"{name}=") if name.startswith("--") else word.startswith(name))


class FolderPath(click.Path):
    """A path to a folder. The empty path, which would mean the current folder, is refused."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("the path is empty. Name a folder, or . for the current one.", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = FolderPath(path_type=Path, readable=False)  # a missing permission is no wrong usage: it is reported when opening
FILE = click.Path(path_type=Path, dir_okay=False)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
SIZE = click.option("--size", help="Size of the diorama, for diorama tasks: tiny, default, or coco (as large as COCO).")
SPLIT = click.option("--split", help="Split of the data, for tasks with several splits.")


def split_names(values: str | Iterable[str]) -> list[str]:
    """The names in one or several comma-separated lists.

    >>> split_names("hit@1, map@r"), split_names(["coco-1k,coco-5k", "cxc"])
    (['hit@1', 'map@r'], ['coco-1k', 'coco-5k', 'cxc'])
    """
    texts = [values] if isinstance(values, str) else values
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def without_none(**options: str | None) -> dict[str, Any]:
    """The options that were given on the command line."""
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def resumable(restart: bool = False) -> Iterator[None]:
    """Tell users who press Ctrl-C that the same command resumes the work."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(err=True)  # ends the line with the terminal's ^C
        raise click.Abort(f"Run the same command again{' without --restart' if restart else ''} to resume") from None
