"""`crossmatch study`: annotation campaigns, from the items to the results."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.base import FOLDER, JSON, Group
from crossmatch.data.errors import CrossmatchError, UsageError

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign
    from crossmatch.study.simulation.simulate import SimulationSummary

STUDY = click.option("--study", "name", default="", help="Name of the study, if the campaign has several.")
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random draws.")
SHARE = click.FloatRange(0, 1)


def _open_campaign(folder: Path) -> Campaign:
    from crossmatch.study.database.campaign import open_campaign

    return open_campaign(folder)


@click.group(cls=Group)
def study() -> None:
    """Collect human judgements in a browser.

    A campaign is a folder with one or more studies. A HIT is a few items that one person answers together. Gold items have a known
    answer and check attention.
    """


@study.command("new")
@click.argument("preset")
@click.option(
    "-o", "--output", type=FOLDER, required=True, help="Folder of the campaign. An existing campaign gets one more study."
)
@click.option(
    "--items",
    type=click.Path(path_type=Path),
    help="Items to judge: jsonl, csv or tsv, captions of `captions generate` (.json), or the folder of a `build` step.",
)
@click.option(
    "--pool",
    type=click.Path(path_type=Path),
    help="Image-caption pairs to judge: the folder of `build pool`, or a table.",
)
@click.option(
    "--data",
    default="",
    help="Data of the items: collection:FOLDER or diorama. diorama alone provides items by itself.",
)
@click.option("--number", type=click.IntRange(1), help="Number of items from diorama.  [default: a few]")
@click.option("--name", default="", help="Name of the study.  [default: the preset's]")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change the design, as in recipe.people=3. Repeatable."
)
@click.option(
    "--excludes",
    multiple=True,
    metavar="STUDY",
    help="Study of the campaign whose people may not take part, and vice versa. Repeatable.",
)
@click.option("--database", default="", help="URL of a PostgreSQL database.  [default: an SQLite file in the folder]")
@click.option("--seed", default="", help="Seed of all random orders. Keep it secret.  [default: random]")
def new_command(preset: str, output: Path, items: Path | None, pool: Path | None, data: str, number: int | None, name: str,
                overrides: tuple[str, ...], excludes: tuple[str, ...], database: str, seed: str) -> None:  # fmt: skip
    """Create a study from a preset or a TOML file.

    `crossmatch list studies` lists the presets.
    """
    from crossmatch.study.design.declaration import load_design

    design = load_design(preset, overrides)
    if bool(items) + bool(pool) > 1 or not (items or pool or data):
        raise UsageError("Choose the items to judge: --items FILE, --pool FILE, or --data diorama.")
    from crossmatch.study.database.campaign import create_campaign
    from crossmatch.study.design.add_study import add_study
    from crossmatch.study.design.data_source import is_world, source_of
    from crossmatch.study.design.item_files import read_items, read_pool
    from crossmatch.study.results.progress import count_slots
    from crossmatch.study.simulation.diorama_items import world_items
    from crossmatch.study.study import find_study

    if items or pool:
        items, pool = items and _rows_in(items), pool and _rows_in(pool)
        material = read_pool(pool, design, source_of(data)) if pool else read_items(items, design, source_of(data))  # type: ignore[arg-type]
    elif is_world(data):
        material = world_items(design, data, number or 0)
    else:
        raise UsageError(f"--data {data} needs --items FILE or --pool FILE. Only diorama provides items by itself.")
    campaign = create_campaign(output, database)
    add_study(campaign, design, material, name=name, seed=seed, excludes=excludes)
    new_study = find_study(campaign, name or design.name)
    with campaign.read_transaction() as connection:
        slots = count_slots(connection, new_study.id)
    click.echo(
        f"{new_study.name}: {len(material.items):,} items in {slots.hits:,} HITs, {slots.total:,} assignments to collect · "
        f"crossmatch study serve {quote(str(output))}"
    )


def _rows_in(path: Path) -> Path:
    """The file itself, or the rows of a finished `build` step in a folder."""
    if not path.is_dir():
        return path
    from crossmatch.build.step_files import ROWS, rows_hash

    rows_hash(path)  # raises if the step is unfinished or damaged
    return path / ROWS


@study.command("serve")
@click.argument("folder", type=FOLDER)
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address to listen on. Other computers can reach any address but the default.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), default=8400, show_default=True, help="Port to listen on.")
@click.option("--url", default="", help="Public address of the service, if it differs, such as behind a proxy.")
@click.option("--connections", type=click.IntRange(0), default=256, show_default=True,
              help="Allowed open connections from one address, such as that of a proxy; 0 for any number.")  # fmt: skip
@click.option("--log", is_flag=True, help="Log every request.")
@click.option("--demo", is_flag=True, help="First create a campaign in FOLDER with a small study of each preset on diorama.")
def serve_command(folder: Path, host: str, port: int, url: str, connections: int, log: bool, demo: bool) -> None:
    """Serve a campaign until Ctrl-C or SIGTERM."""
    if demo:
        _create_demo(folder)
    from crossmatch.study.assignment.people import owner_token
    from crossmatch.study.study import list_studies
    from crossmatch.study.web.server import LOOPBACK, open_listener, serve

    campaign = _open_campaign(folder)
    base = (url or f"http://{f'[{host}]' if ':' in host else host}:{port}").rstrip("/")
    lines = [f"owner      {base}/enter/{owner_token(campaign)}"]
    lines += [f"{listed.name:<10} {base}/join/{listed.link}" for listed in list_studies(campaign) if listed.is_open]
    campaign.close()
    listener = open_listener(host, port)
    if host not in LOOPBACK and not base.startswith("https://"):
        lines.append(
            "Other computers can reach this address, and the traffic is not encrypted. Use https behind a proxy, and --url."
        )
    click.echo("\n".join([*lines, "Press Ctrl-C to stop. Every answer is saved."]), err=True)
    serve(folder, host, port, url=url, log=log, connections=connections, listener=listener)


def _create_demo(folder: Path) -> None:
    from crossmatch.study.demo_campaign import make_demo

    make_demo(folder).close()


@study.command("status")
@click.argument("folder", type=FOLDER)
@STUDY
@click.option("--close", is_flag=True, help="Close the study: it hands out no more HITs.")
@click.option("--reopen", is_flag=True, help="Open a closed study again.")
@click.option(
    "--backup", type=FOLDER, help="First copy the campaign to this new folder, also while it is served, and verify the copy."
)
@JSON
def status_command(folder: Path, name: str, close: bool, reopen: bool, backup: Path | None, as_json: bool) -> None:
    """Show the progress of studies, or close, reopen or copy.

    Annotators can still submit the HITs that they have when a study closes. A copy is a campaign that all commands open.
    """
    from dataclasses import asdict

    from crossmatch.report.tables import Table, format_table
    from crossmatch.study.assignment.review import set_open
    from crossmatch.study.results.progress import count_slots
    from crossmatch.study.study import find_study, list_studies

    campaign = _open_campaign(folder)
    if close and reopen:
        raise UsageError("--close and --reopen contradict each other. Use one of them.")
    if backup is not None:
        from crossmatch.study.database.backup import backup_campaign

        backup_campaign(campaign, backup)
        click.echo("\n".join(_verify_lines(backup)), err=True)
    if close or reopen:
        set_open(campaign, find_study(campaign, name).id, reopen)
    studies = [find_study(campaign, name)] if name else list_studies(campaign)
    status_by_study: dict[str, Any] = {}
    for listed in studies:
        with campaign.read_transaction() as connection:
            slots = asdict(count_slots(connection, listed.id))
        status_by_study[listed.name] = {"preset": listed.design.name, "accepting": listed.is_open, **slots}
    if as_json:
        click.echo(json.dumps(status_by_study, indent=1))
        return
    keys = ("hits", "open", "held", "review", "done")
    rows = tuple(
        (study_name, "" if status["accepting"] else "closed", *(f"{status[key]:,}" for key in keys))
        for study_name, status in status_by_study.items()
    )
    notes = ("Assignments (one person's work on a HIT): open, held by a person, awaiting review, done.",)
    click.echo(format_table(Table(str(folder), (("study", "", "HITs", "open", "held", "review", "done"),), rows, 2, notes)))


@study.command("review")
@click.argument("folder", type=FOLDER)
@STUDY
@click.option("--approve", multiple=True, metavar="ID", help="The answers count. Repeatable.")
@click.option("--reassign", multiple=True, metavar="ID", help="The answers do not count but are paid. Repeatable.")
@click.option("--reject", multiple=True, metavar="ID", help="The answers do not count and are not paid. Repeatable.")
@click.option("--undo", multiple=True, metavar="ID", help="Withdraw the verdict. Repeatable.")
def review_command(folder: Path, name: str, **ids_by_verdict: tuple[str, ...]) -> None:
    """List the HITs that await review, or give verdicts on them.

    A HIT awaits review if a gold question in it has a wrong answer. Without options, the command lists these HITs. A reassigned or
    rejected HIT is open for another person. `study serve` has the same verdicts in the browser, beside the answers.
    """
    from crossmatch.report.tables import Table, format_table
    from crossmatch.study.assignment.review import UNDO, ReviewConflictError, find_missing_assignments, list_pending, review
    from crossmatch.study.study import find_study

    campaign = _open_campaign(folder)
    selected = find_study(campaign, name)
    verdicts = [(assignment, verdict) for verdict, ids in ids_by_verdict.items() for assignment in ids]
    if len(dict(verdicts)) < len(verdicts):
        raise UsageError("An assignment has several verdicts. Give one for each ID.")
    with campaign.read_transaction() as connection:
        missing = find_missing_assignments(connection, selected.id, [assignment for assignment, _ in verdicts])
    if missing:
        raise UsageError(
            f"{selected.name} has no submitted assignment {missing[0]!r}. `crossmatch study review {folder}` lists the IDs."
        )
    for assignment, verdict in verdicts:
        try:
            is_counted = review(campaign, assignment, None, verdict)  # type: ignore[arg-type]
        except ReviewConflictError as error:
            raise CrossmatchError(f"--{verdict} {assignment}: {str(error).removesuffix(' Reload the page.')}") from None
        effect = "the verdict is withdrawn" if verdict == UNDO else f"the answers {'count' if is_counted else 'do not count'}"
        click.echo(f"{assignment}: {verdict}, {effect}", err=True)
    with campaign.read_transaction() as connection:
        pending = list_pending(connection, selected.id)
    rows = tuple((hit.id, str(hit.hit_id), hit.person, f"{hit.wrong} of {hit.gold}", f"{hit.seconds:,.0f}") for hit in pending)
    if rows:
        heads = ("assignment", "HIT", "person", "wrong gold", "seconds")
        click.echo(format_table(Table(f"{selected.name}: awaiting review", (heads,), rows, 3)))
    else:
        click.echo(f"{selected.name}: no HIT awaits review")


@study.command("invite")
@click.argument("folder", type=FOLDER)
@click.argument("people", nargs=-1)
@click.option(
    "--list",
    "listed",
    type=click.Path(path_type=Path),
    help="A csv with the columns person, and optionally past_tasks and past_accepted.",
)
@click.option("--role", type=click.Choice(["annotator", "reviewer", "owner"]), default="annotator", show_default=True,
              help="What the person may do.")  # fmt: skip
@click.option("--url", default="http://127.0.0.1:8400", show_default=True, help="Address of the service.")
@click.option("--study", "studies", multiple=True, help="Study that annotators see. Repeatable.  [default: all studies]")
def invite_command(
    folder: Path, people: tuple[str, ...], listed: Path | None, role: str, url: str, studies: tuple[str, ...]
) -> None:
    """Print a personal link for each person.

    A new link for a person replaces the old one.
    """
    from crossmatch.study.assignment.people import invite, read_people_csv

    campaign = _open_campaign(folder)
    invitations = [(name, None, None) for name in people] + (read_people_csv(listed) if listed else [])
    if not invitations:
        raise UsageError("No people given. Name people, or a list of them: --list people.csv")
    for name, tasks, share in invitations:
        click.echo(f"{name}\t{url.rstrip('/')}/enter/{invite(campaign, name, role, tasks, share, studies or None)}")


@study.command("export")
@click.argument("folder", type=FOLDER)
@STUDY
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for the results.")
@click.option("--data", default=None, help="Collection to write with the judgements.  [default: the collection of the items]")
@click.option("--links/--no-links", default=True, show_default=True,
              help="Count the collection's links as positive where people gave no grade.")  # fmt: skip
@click.option("--combine", type=click.Choice(["mean", "majority", "unanimous", "dawid-skene"]),
              help="How the answers of several people are combined.  [default: the design's rule]")  # fmt: skip
@click.option("--pending", is_flag=True, help="Also count HITs that await review.")
def export_command(folder: Path, name: str, output: Path, data: str | None, links: bool, combine: Any, pending: bool) -> None:
    """Export judgements, trials, ratings or preferences.

    An earlier export in the folder is replaced. A folder with other files is refused.
    """
    from crossmatch.study.design.data_source import collection_of
    from crossmatch.study.results.export_study import export_study
    from crossmatch.study.study import find_study

    campaign = _open_campaign(folder)
    selected = find_study(campaign, name)
    data_name = data if data is not None else str(selected.origin.get("data", ""))
    has_judgements = selected.design.result.yields == "judgements"
    collection = collection_of(data_name) if data_name and has_judgements else None
    summary = export_study(campaign, selected, output, collection, pending=pending, links=links, combine=combine)
    for line in summary.messages:
        click.echo(line, err=True)
    click.echo("\n".join(str(summary.folder / file) for file in summary.files))
    for line in summary.next_commands:
        click.echo(f"next: {line}", err=True)


@study.command("verify")
@click.argument("folder", type=FOLDER)
def verify_command(folder: Path) -> None:
    """Check that the answer log is unaltered and matches all tables.

    Images are checked too.
    """
    click.echo("\n".join(_verify_lines(folder)))


def _verify_lines(folder: Path) -> list[str]:
    """What was verified of each study of a campaign."""
    from crossmatch.study.database.verification import verify

    campaign = _open_campaign(folder)
    lines = [
        f"{verified.study}: {verified.events:,} events, {verified.answers:,} answers count or await review, "
        f"{verified.images:,} images · {verified.last_hash}"
        for verified in verify(campaign)
    ]
    campaign.close()
    return lines


@study.command("simulate")
@click.argument("folder", type=FOLDER)
@STUDY
@click.option("--people", type=click.IntRange(1, 1000), default=30, show_default=True, help="Number of artificial annotators.")
@click.option("--accuracy", type=SHARE, default=0.9, show_default=True, help="Share of correct choices.")
@click.option("--spread", type=SHARE, default=0.0, show_default=True, help="Spread of the accuracy between annotators.")
@click.option("--noise", type=click.FloatRange(0, 100), default=0.5, show_default=True, help="Standard deviation of slider values.")
@click.option("--first", type=SHARE, default=0.0, show_default=True, help="Share of answers that choose the first option.")
@click.option("--yes", type=SHARE, default=0.0, show_default=True, help="Share of answers that choose the best grade.")
@click.option("--lazy", type=SHARE, default=0.0, show_default=True, help="Share of HITs with the same answer to all items.")
@click.option("--dropout", type=SHARE, default=0.0, show_default=True, help="Share of HITs that are left unfinished.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=6.0, show_default=True, help="Simulated seconds per item.")
@click.option("--wait", type=click.FloatRange(0, 10), default=0.0, show_default=True, help="Real seconds per simulated second.")
@click.option("--truth", type=click.Path(path_type=Path), help="Correct grades of your own data: a csv (image, caption, grade).")
@click.option("--url", default="", help="Address of a running service of this campaign.")
@click.option("--rehearse-here", "allow_real_people", is_flag=True,
              help="Allow a campaign in which real people may work; their HITs are not touched.")  # fmt: skip
@click.option("--limit", type=click.FloatRange(0), default=0.0, help="Stop after this many seconds.  [default: no limit]")
@SEED
def simulate_command(folder: Path, name: str, people: int, spread: float, truth: Path | None, url: str, wait: float,
                     allow_real_people: bool, limit: float, seed: int, **habits: Any) -> None:  # fmt: skip
    """Rehearse a study with artificial annotators.

    They answer through the real web pages.
    """
    from crossmatch.report.tables import Table, format_table
    from crossmatch.study.simulation.simulate import simulate
    from crossmatch.study.simulation.simulated_annotators import Habits

    summaries = simulate(folder, name, people=people, habits=Habits(**habits), spread=spread, seed=seed, url=url, truth=truth, wait=wait,
                         allow_real_people=allow_real_people, limit=limit, say=lambda text: click.echo(text, err=True))  # fmt: skip
    rows = tuple(
        (
            summary.study,
            f"{summary.people}",
            f"{summary.hits:,}",
            f"{summary.answers:,}",
            _or_dash(summary.accuracy, "%"),
            f"{summary.dropouts}",
            f"{summary.errors}",
            _or_dash(summary.left),
            _or_dash(summary.review),
            f"{summary.seconds:.1f}",
        )
        for summary in summaries
    )
    heads = ("study", "people", "HITs", "answers", "% correct", "dropouts", "errors", "open", "review", "seconds")
    notes = tuple(filter(None, map(_describe_known_truth, summaries)))
    click.echo(format_table(Table("simulated", (heads,), rows, 1, notes)))
    for summary in summaries:
        if summary.first_error:
            click.echo(f"{summary.study}: first error: {summary.first_error}", err=True)


def _describe_known_truth(summary: SimulationSummary) -> str:
    """How many answers "% correct" is about, unless it is about all of them."""
    if not summary.answers or summary.checkable == summary.answers:
        return ""
    if not summary.checkable:
        return f"{summary.study}: the truth is not known, so answers are random. --truth FILE or gold questions tell it."
    return f"{summary.study}: % correct of the {summary.checkable:,} of {summary.answers:,} answers whose truth is known."


def _or_dash(number: float | None, unit: str = "") -> str:
    """Format a number, or a share in per cent; None becomes a dash."""
    return "–" if number is None else f"{100 * number:.1f}" if unit == "%" else f"{number:,}"


@study.command("power")
@click.option("--accuracy", type=SHARE, multiple=True, default=(0.9,), show_default=True,
              help="Share of correct answers of a person. Repeat it for a mixed crowd.")  # fmt: skip
@click.option("--positive", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.5, show_default=True,
              help="Share of items whose correct answer is yes.")  # fmt: skip
@click.option("--items", type=click.IntRange(1, 100_000), default=200, show_default=True, help="Number of items.")
@click.option("--most", type=click.IntRange(1, 30), default=9, show_default=True, help="Largest number of people per item.")
@click.option("--campaigns", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Number of simulated campaigns.")
@SEED
def power_command(accuracy: tuple[float, ...], positive: float, items: int, most: int, campaigns: int, seed: int) -> None:
    """Estimate how many people each item needs.

    Simulates campaigns with yes/no questions and combines the answers by each rule.
    """
    from crossmatch.report.tables import Table, format_table
    from crossmatch.study.simulation.power_analysis import power

    estimates = power(
        list(accuracy), items=items, prior=(positive, 1 - positive), people=range(1, most + 1), campaigns=campaigns, seed=seed
    )
    rows = tuple(
        (
            str(estimate.people),
            estimate.rule,
            f"{100 * estimate.right:.1f} [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]",
            f"{100 * estimate.wrong:.1f}",
            f"{100 * estimate.undecided:.1f}",
            f"±{50 * estimate.width:.1f}",
            f"{estimate.answers:,}",
        )
        for estimate in estimates
    )
    heads = ("people", "rule", "% correct", "% wrong", "% undecided", "share of yes", "answers")
    notes = ("Brackets: range of 95 % of the campaigns. Share of yes: half of its 95 % interval, among decided items.",)
    click.echo(format_table(Table(f"{items:,} items, {campaigns:,} simulated campaigns", (heads,), rows, 2, notes)))
