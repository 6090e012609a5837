"""`crossmatch report`: one HTML page about results."""

from __future__ import annotations

from pathlib import Path

import click

from crossmatch.cli.base import FILE, Command
from crossmatch.data.errors import UsageError


@click.command(cls=Command)
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=FILE, default=Path("report.html"), show_default=True, help="File to write (.html).")
@click.option("--published", is_flag=True, help="Also show published results of the same tasks, in separate tables.")
def report(results: tuple[Path, ...], output: Path, published: bool) -> None:
    """Write one HTML page about the results in these folders."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"-o {output}: a report is a page. Choose a name that ends in .html.")
    from crossmatch.data.result import load_results
    from crossmatch.report.html_report import write_report

    click.echo(write_report(load_results(list(results)), output, published))
