"""The command line: parse, call, print. Heavy things are imported by the command that needs them."""

from __future__ import annotations

import errno
import json
import sys
import warnings
from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch import __version__
from crossmatch.cli.agree import agree_command
from crossmatch.cli.analyse import analyse
from crossmatch.cli.build import build
from crossmatch.cli.cache import cache_group, cache_options
from crossmatch.cli.captions import captions
from crossmatch.cli.correlate import correlate
from crossmatch.cli.data import data
from crossmatch.cli.export import export
from crossmatch.cli.folders import FOLDER
from crossmatch.cli.study import study
from crossmatch.cli.train import train
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.own_code import own_code

STOPPED = 130  # what shells say of a process that Ctrl-C ended
RESULTS = click.option("-o", "--output", type=FOLDER, default=Path("results"), show_default=True,
                       help="Folder for the results.")  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="crossmatch")
def cli() -> None:
    """What an image-text model really matched: exact, fast, honest about uncertainty."""


def _attach(command: click.Command) -> None:
    """Add a command that lives in a file of its own; it answers to the same words for help, however it is called."""
    cli.add_command(command)
    for each in (command, *getattr(command, "commands", {}).values()):
        each.context_settings |= cli.context_settings


captions.add_command(agree_command)
for attached in (analyse, build, cache_group, captions, correlate, data, export, study, train):
    _attach(attached)


@cli.command()
@click.option(
    "-o",
    "--output",
    type=FOLDER,
    default=Path("demo"),
    show_default=True,
    help="Folder for everything.",
)
@click.option("--size", default="default", show_default=True, help="Size of the world: default, coco, or tiny for a quick look.")
def demo(output: Path, size: str) -> None:
    """Draw the embedded world, train a model on it, evaluate it beside a random scorer and an oracle, and write a report."""
    from crossmatch.cli.demo import run_demo

    run_demo(output, size)


@cli.command()
@click.option(
    "-m",
    "--model",
    required=True,
    help="A model: conse, open_clip:…, hf:…, file.py:NAME, precomputed:FILE, a trained folder, … (see `models`).",
)
@click.option(
    "-t",
    "--task",
    "tasks",
    required=True,
    help="Tasks, separated by commas (see `tasks`); with options as in cxc+split=val; or collection:FOLDER, trials:FILE.",
)
@RESULTS
@click.option("--name", help="Call the model so in tables and files.")
@click.option("--metrics", help="Metrics to report instead of the task's own, separated by commas (see `metrics`).")
@click.option("--ties", type=click.Choice(["expected", "pessimistic", "optimistic"]), default="expected", show_default=True)
@click.option("--split", help="Split of the data, where the task has several.")
@click.option("--size", help="Size of the world, for diorama tasks: default, coco, tiny.")
@click.option("--limit", type=click.IntRange(1), help="Evaluate so many random images only; the result is marked as partial.")
@click.option("--partial", is_flag=True, help="Trials: evaluate those that the file answers; the result is marked as partial.")
@click.option(
    "--skip-bad", is_flag=True, help="Leave out pictures that cannot be opened and empty captions; the result lists them."
)
@click.option("--batch", type=click.IntRange(1), default=128, show_default=True, help="Items that a model is given at a time.")
@click.option("--workers", type=click.IntRange(0), help="Threads that open pictures ahead.  [default: cores to spare]")
@click.option("--likelihood", type=click.Choice(["per-token", "plain"]), help="How a captioner scores.  [default: per-token]")
@click.option("--alterations", is_flag=True, help="Also ask every query negated, reworded, shuffled and reversed (bison).")
@click.option("--gate", is_flag=True, help="Also run scorers that know nothing on the same trials, and compare them with theory.")
@click.option("--samples", type=click.IntRange(2), default=1000, show_default=True, help="Bootstrap samples.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the bootstrap and of --limit.")
@cache_options
@click.option("--published", is_flag=True, help="Show published results of the same tasks in tables of their own.")
@click.option("--json", "as_json", is_flag=True, help="Print {task: {metric: value}} on standard output.")
def run(model: str, tasks: str, output: Path, name: str | None, metrics: str | None, ties: str, split: str | None, size: str | None,
        limit: int | None, partial: bool, skip_bad: bool, batch: int, workers: int | None, likelihood: str | None,
        alterations: bool, gate: bool, samples: int, seed: int, cache: Path | None, no_cache: bool, published: bool,
        as_json: bool) -> None:  # fmt: skip
    """Evaluate a model. Tasks on one collection share one pass over its images, captions and scores."""
    from crossmatch.benchmarks import load_data
    from crossmatch.cli.cache import score_cache
    from crossmatch.cli.show import run_tables
    from crossmatch.core.result import save
    from crossmatch.metrics.table import metric
    from crossmatch.report.published import beside
    from crossmatch.report.tables import as_text
    from crossmatch.run import evaluate_all, evaluate_gate, with_alterations

    options: dict[str, Any] = {key: value for key, value in (("split", split), ("size", size)) if value is not None}
    named = [task.strip() for task in tasks.split(",") if task.strip()]
    if not named:
        raise WrongWords("no task was named. `crossmatch tasks` lists them all.")
    if gate and (partial or skip_bad):
        word = "--partial" if partial else "--skip-bad"
        raise WrongWords(f"the gate answers all trials, so that it does not go with {word}. Run it by itself: -m random --gate")
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")  # of Pillow; such pictures are refused in our words
    if alterations and model.partition(":")[0] in ("precomputed", "detector"):
        raise WrongWords(
            f"{model.partition(':')[0]} answers from a file, which knows nothing of altered queries. Score each altered task, and "
            "evaluate its file by itself: -t bison+alter=negation"
        )
    chosen = tuple(metric(m.strip()).name for m in metrics.split(",")) if metrics else None
    shared: dict[str, Any] = {"ties": ties, "samples": samples, "seed": seed, "metrics": chosen, "limit": limit, **options}
    loaded = (
        with_alterations(name, options, skip_bad) if alterations else [(name, load_data(name, skip_bad=skip_bad, **options))]
        for name in named
    )
    asked, data = zip(*(pair for each in loaded for pair in each), strict=True)
    results = evaluate_all(
        model, asked, name=name, data=data, partial=partial, likelihood=likelihood, cache=score_cache(cache, no_cache),
        skip_bad=skip_bad, batch=batch, workers=workers, **shared,
    )  # fmt: skip
    beyond = evaluate_gate(named, data=[data[asked.index(name)] for name in named], **shared) if gate else []
    if as_json:
        told = {_heading(asked[n], r): r.as_json() for n, r in enumerate(results)}
        text = json.dumps(told | {f"{r.model} {r.task}": r.as_json() for r in beyond}, indent=1)
    else:
        text = "\n\n".join(map(as_text, [*run_tables([*results, *beyond]), *(beside(results) if published else ())]))
    saved = [save(result, output) for result in (*results, *beyond)]
    click.echo(text)
    click.echo(f"saved {', '.join(map(str, saved))} · crossmatch report {quote(str(output))}", err=True)


def _heading(named: str, result: Any) -> str:
    """The key of a task in the printed json: as it was asked for, and with what was left out."""
    cut = "".join(f"+{key}={result.options[key]}" for key in ("limit", "partial", "skipped") if key in result.options)
    return (named if "+" in named else result.task) + cut


@cli.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON on standard output.")
def compare(results: tuple[Path, ...], as_json: bool) -> None:
    """Compare the first result with each of the others: paired bootstrap, or McNemar's test; equal protocols only."""
    from crossmatch.cli.show import compare_results

    click.echo(compare_results(list(results), as_json))


@cli.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), default=Path("report.html"), show_default=True)
@click.option("--published", is_flag=True, help="Show published results of the same tasks in tables of their own.")
def report(results: tuple[Path, ...], output: Path, published: bool) -> None:
    """Write one self-contained html page about all results in these folders."""
    from crossmatch.core.result import load_all
    from crossmatch.report.html import write_report

    click.echo(write_report(load_all(list(results)), output, published))


@cli.command()
def tasks() -> None:
    """List the tasks, with what they are scored by and under which licence."""
    from crossmatch.cli.show import list_tasks

    click.echo(list_tasks())


@cli.command()
def models() -> None:
    """List the models."""
    from crossmatch.cli.show import list_models

    click.echo(list_models())


@cli.command()
def metrics() -> None:
    """List the metrics, with best value and source."""
    from crossmatch.cli.show import list_metrics

    click.echo(list_metrics())


@cli.command()
def doctor() -> None:
    """Show versions, devices and data found, and what is missing for which command."""
    from crossmatch.cli.show import examine

    click.echo(examine())


def main() -> None:
    """Run, and turn every foreseeable end into one line and an exit code: 1 the work failed, 2 the words were wrong, 130 Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):  # a pipe that cannot show τ shows ?
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        with own_code():
            code = _called()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "crossmatch"
        _fail(f"{error.format_message()} See `{where} --help`.", 2)
    except WrongWords as error:
        _fail(str(error), 2)
    except CrossmatchError as error:
        _fail(str(error), 1)
    except (click.Abort, KeyboardInterrupt) as error:
        _fail(f"stopped; {error}." if str(error) else "stopped.", STOPPED)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            where = f" of {error.filename}" if error.filename else ""
            _fail(f"there is no room left on the disk{where}. Free some, and run the same command again.", 1)
        _fail(f"{error.filename or 'the system'}: {error.strerror or error}.", 1)
    else:
        sys.exit(code)


def _called() -> int:
    """Run the command that was asked for; a file that ended too soon is no Ctrl-C, for which click takes it."""
    try:
        code = cli.main(prog_name="crossmatch", standalone_mode=False)
    except click.Abort as error:
        if isinstance(error.__cause__, EOFError):
            raise error.__cause__ from None
        raise
    return code if isinstance(code, int) else 0


def _fail(message: str, code: int) -> None:
    click.echo("crossmatch: " + " ".join(message.split()), err=True)
    sys.exit(code)
