"""The command line: parse, call, print. Each command imports heavy libraries only when it runs."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from crossmatch import __version__
from crossmatch.cli.analyse import analyse
from crossmatch.cli.base import FOLDER, Group
from crossmatch.cli.build import build
from crossmatch.cli.cache import cache_command
from crossmatch.cli.captions import captions
from crossmatch.cli.compare import compare
from crossmatch.cli.data import data
from crossmatch.cli.doctor import doctor
from crossmatch.cli.export_trec import export
from crossmatch.cli.listing import list_command
from crossmatch.cli.report import report
from crossmatch.cli.run import run
from crossmatch.cli.study import study
from crossmatch.cli.train import train
from crossmatch.data.errors import CrossmatchError, UsageError, explain_missing_library
from crossmatch.data.io.user_code_errors import report_user_errors

INTERRUPTED = 130  # exit code of a process that was ended by Ctrl-C
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


@click.group(cls=Group)
@click.version_option(__version__, prog_name="crossmatch")
def cli() -> None:
    """Evaluate image-text models: exact, fast, and clear about uncertainty.

    diorama is the drawn test world in this package. A link is an image-caption pair that a data set came with.
    """


@cli.command()
@click.option("-o", "--output", type=FOLDER, default=Path("demo"), show_default=True, help="Folder for everything.")
@click.option("--size", default="default", show_default=True, help="Size of the diorama: default, coco, or tiny for a quick look.")
def demo(output: Path, size: str) -> None:
    """Train and evaluate a model on diorama, with a report."""
    from crossmatch.cli.demo import run_demo

    run_demo(output, size)


def _add(command: click.Command) -> None:
    """Add a command; all its subcommands accept -h."""
    cli.add_command(command)
    pending = [command]
    while pending:
        current = pending.pop()
        current.context_settings.update(CONTEXT)
        pending += getattr(current, "commands", {}).values()


cli.context_settings.update(CONTEXT)
for command in (
    demo, run, list_command, compare, report, analyse, captions, build, study, train, data, export, cache_command, doctor,
):  # fmt: skip
    _add(command)


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 the work failed, 2 wrong usage, 130 interrupted."""
    for stream in (sys.stdout, sys.stderr):  # an ASCII pipe prints ? instead of failing on τ
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        with report_user_errors():
            exit_code = _run_command()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.UsageError as error:
        command_path = error.ctx.command_path if error.ctx else "crossmatch"
        _fail(f"{error.format_message()} See `{command_path} --help`.", 2)
    except UsageError as error:
        _fail(str(error), 2)
    except CrossmatchError as error:
        _fail(str(error), 1)
    except ModuleNotFoundError as error:
        explained = explain_missing_library(error)
        if explained is error:
            raise
        _fail(str(explained), 1)
    except (click.Abort, KeyboardInterrupt) as error:
        _fail(f"stopped. {error}." if str(error) else "stopped.", INTERRUPTED)
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            disk = f" of {error.filename}" if error.filename else ""
            _fail(f"the disk{disk} is full. Free some space and run the same command again.", 1)
        _fail(f"{error.filename or 'system error'}: {error.strerror or error}.", 1)
    sys.exit(exit_code)


def _run_command() -> int:
    """Run the chosen command. click reports an unexpected end of a file as an abort; that is undone here."""
    try:
        exit_code = cli.main(prog_name="crossmatch", standalone_mode=False)
    except click.Abort as error:
        if isinstance(error.__cause__, EOFError):
            raise error.__cause__ from None
        raise
    return exit_code if isinstance(exit_code, int) else 0


def _fail(message: str, exit_code: int) -> NoReturn:
    click.echo("crossmatch: " + " ".join(message.split()), err=True)
    sys.exit(exit_code)
