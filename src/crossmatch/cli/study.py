"""`crossmatch study`: annotation campaigns, from the items to the results."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.folders import FOLDER
from crossmatch.core.errors import MissingDependency, WrongWords

if TYPE_CHECKING:
    from crossmatch.study.said import Study
    from crossmatch.study.store import Campaign

NAMED = click.option("--study", "name", default="", help="Which study of the campaign, where it has several.")
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True)


def _opened(folder: Path) -> Campaign:
    try:
        from crossmatch.study.store import open_campaign
    except ImportError as error:
        raise MissingDependency(error.name or "SQLAlchemy", "study") from None
    return open_campaign(folder)


@click.group()
def study() -> None:
    """Have people judge images and captions in a browser, and turn their answers into benchmarks."""


@study.command("presets")
def presets_command() -> None:
    """List the studies of the papers."""
    from crossmatch.report.tables import Table, as_text
    from crossmatch.study.design import presets

    rows = tuple(
        (d.name, d.about, f"{d.recipe.batch} + {d.recipe.gold_positive + d.recipe.gold_negative}", str(d.recipe.people),
         d.result.combine, d.result.yields, d.paper)
        for d in presets().values()
    )  # fmt: skip
    notes = (
        "HIT: items that are handed out together, and gold ones among them; people: answers to each item",
        "`crossmatch study new NAME …` makes one; a design of your own is a TOML file in the same words: docs/studies.md",
    )
    heads = (("name", "asks", "HIT", "people", "combined by", "yields", "paper"),)
    click.echo(as_text(Table("studies", heads, rows, 7, notes)))


@study.command("new")
@click.argument("preset")
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder of the campaign; a study is added to one that is there.")
@click.option(
    "--items",
    type=click.Path(path_type=Path),
    help="What is to be judged: jsonl, csv or tsv (docs/studies.md), or a folder of `build`.",
)
@click.option("--pool", type=click.Path(path_type=Path), help="Pairs of an image and a caption to be judged, gold ones among them.")
@click.option("--data", default="", help="Where ids are looked up: collection:FOLDER, diorama, diorama:tiny; alone, items from it.")
@click.option("--number", type=click.IntRange(1), help="Items, where they come from the embedded world.  [default: a few]")
@click.option("--name", default="", help="Name of the study.  [default: the preset's]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Another recipe: --set recipe.people=3")
@click.option(
    "--excludes", multiple=True, metavar="STUDY", help="People of this study of the campaign may not take part, and vice versa."
)
@click.option("--database", default="", help="URL of a PostgreSQL database, instead of a file in the folder.")
@click.option("--seed", default="", help="Of all orders; a secret, unless the study shall be made again.  [default: random]")
def new_command(preset: str, output: Path, items: Path | None, pool: Path | None, data: str, number: int | None, name: str,
                overrides: tuple[str, ...], excludes: tuple[str, ...], database: str, seed: str) -> None:  # fmt: skip
    """Make a study PRESET (see `presets`), or that of a TOML file, in a campaign's folder."""
    from crossmatch.study.design import load_design

    design = load_design(preset, overrides)
    if bool(items) + bool(pool) > 1 or not (items or pool or data):
        raise WrongWords("say what is to be judged: --items FILE, --pool FILE, or --data diorama for the embedded world.")
    try:
        from crossmatch.study.items import begin_study, read_items, read_pool
        from crossmatch.study.said import find_study, progress
        from crossmatch.study.sources import is_world, source_of
        from crossmatch.study.store import create
        from crossmatch.study.worlds import world_items
    except ImportError as error:
        raise MissingDependency(error.name or "SQLAlchemy", "study") from None
    if items or pool:
        items, pool = items and _rows_in(items), pool and _rows_in(pool)
        material = read_pool(pool, design, source_of(data)) if pool else read_items(items, design, source_of(data))  # type: ignore[arg-type]
    elif is_world(data):
        material = world_items(design, data, number or 0)
    else:
        raise WrongWords(f"--data {data} alone does not say which of it is to be judged. Add --items FILE or --pool FILE.")
    campaign = create(output, database)
    begin_study(campaign, design, material, name=name, seed=seed, excludes=excludes)
    made = find_study(campaign, name or design.name)
    with campaign.reading() as connection:
        far = progress(connection, made.id)
    click.echo(
        f"{made.name}: {len(material.items):,} items in {far.hits:,} HITs, {far.slots:,} answers to HITs wanted · "
        f"crossmatch study serve {quote(str(output))}"
    )


def _rows_in(path: Path) -> Path:
    """The file itself, or the rows in the folder of a step of `build`, if it is finished."""
    if not path.is_dir():
        return path
    from crossmatch.build.files import ROWS, hash_of

    hash_of(path)  # says what is wrong with it
    return path / ROWS


@study.command("serve")
@click.argument("folder", type=FOLDER)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen at; any but loopback can be reached by others."
)
@click.option("--port", type=click.IntRange(1, 65535), default=8400, show_default=True)
@click.option("--url", default="", help="Under which people reach it, if that is another address (behind a proxy).")
@click.option("--log", is_flag=True, help="Log every request.")
def serve_command(folder: Path, host: str, port: int, url: str, log: bool) -> None:
    """Open the campaign for people, until Ctrl-C."""
    from crossmatch.study.people import owner_token
    from crossmatch.study.said import studies
    from crossmatch.study.serve import LOOPBACK, serve

    campaign = _opened(folder)
    base = (url or f"http://{f'[{host}]' if ':' in host else host}:{port}").rstrip("/")
    lines = [f"owner      {base}/enter/{owner_token(campaign)}"]
    lines += [f"{one.name:<10} {base}/join/{one.link}" for one in studies(campaign) if one.open]
    campaign.close()
    if host not in LOOPBACK and not base.startswith("https://"):
        lines.append("Others can reach this address, and everything travels in the open: put https before it (docs/studies.md).")
    click.echo("\n".join([*lines, "Ctrl-C stops; nothing is lost."]), err=True)
    serve(folder, host, port, url=url, log=log)


@study.command("status")
@click.argument("folder", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def status_command(folder: Path, as_json: bool) -> None:
    """How far each study is."""
    from dataclasses import asdict

    from crossmatch.report.tables import Table, as_text
    from crossmatch.study.said import progress, studies

    campaign = _opened(folder)
    told: dict[str, Any] = {}
    for one in studies(campaign):
        with campaign.reading() as connection:
            told[one.name] = {"preset": one.design.name, "accepting": one.open, **asdict(progress(connection, one.id))}
    if as_json:
        click.echo(json.dumps(told, indent=1))
        return
    keys = ("hits", "open", "held", "review", "done")
    rows = tuple((name, "" if t["accepting"] else "closed", *(f"{t[key]:,}" for key in keys)) for name, t in told.items())
    notes = ("open, held by somebody, waiting for a reviewer, done: answers to HITs",)
    click.echo(as_text(Table(str(folder), (("study", "", "HITs", "open", "held", "review", "done"),), rows, 2, notes)))


@study.command("invite")
@click.argument("folder", type=FOLDER)
@click.argument("people", nargs=-1)
@click.option(
    "--list", "listed", type=click.Path(path_type=Path), help="A csv with the column person, and past_tasks, past_accepted."
)
@click.option("--role", type=click.Choice(["annotator", "reviewer", "owner"]), default="annotator", show_default=True)
@click.option("--url", default="http://127.0.0.1:8400", show_default=True, help="Under which they reach the service.")
@click.option(
    "--study", "studies", multiple=True, help="Which study annotators see; may be repeated.  [default: all that there are]"
)
def invite_command(
    folder: Path, people: tuple[str, ...], listed: Path | None, role: str, url: str, studies: tuple[str, ...]
) -> None:
    """Print a personal link for each of these PEOPLE; who had one gets a new one, and the old one ends."""
    from crossmatch.study.people import invite, invited

    campaign = _opened(folder)
    known = [(name, None, None) for name in people] + (invited(listed) if listed else [])
    if not known:
        raise WrongWords("nobody was named. Name people, or a list of them: --list people.csv")
    for name, tasks, share in known:
        click.echo(f"{name}\t{url.rstrip('/')}/enter/{invite(campaign, name, role, tasks, share, studies or None)}")


@study.command("export")
@click.argument("folder", type=FOLDER)
@NAMED
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder for the results.")
@click.option(
    "--data", default=None, help="The collection to write beside judgements.  [default: the one that the items came from]"
)
@click.option("--links/--no-links", default=True, show_default=True,
              help="Let the collection's links stand as positives where people gave no grade.")  # fmt: skip
@click.option("--combine", type=click.Choice(["mean", "majority", "unanimous", "dawid-skene"]),
              help="How several people's answers become one.  [default: as the design says]")  # fmt: skip
@click.option("--pending", is_flag=True, help="Count HITs with wrong gold answers at which no reviewer has looked.")
def export_command(folder: Path, name: str, output: Path, data: str | None, links: bool, combine: Any, pending: bool) -> None:
    """Write what people said: judgements, trials, ratings or preferences, every answer, and where it all came from.

    The folder holds this export alone: one that was exported before is replaced, one with anything else in it is refused.
    """
    from crossmatch.study.export import export
    from crossmatch.study.said import find_study
    from crossmatch.study.sources import collection_of

    campaign = _opened(folder)
    one = find_study(campaign, name)
    words = data if data is not None else str(one.origin.get("data", ""))
    wanted = one.design.result.yields == "judgements"
    found = collection_of(words) if words and wanted else None
    done = export(campaign, one, output, found, pending=pending, links=links, combine=combine)
    for line in done.said:
        click.echo(line, err=True)
    click.echo("\n".join(str(done.folder / file) for file in done.files))
    for line in done.next:
        click.echo(f"next: {line}", err=True)


@study.command("verify")
@click.argument("folder", type=FOLDER)
def verify_command(folder: Path) -> None:
    """Check the chain of events, that the tables say what the events say, and that the pictures are those that were stored."""
    from crossmatch.study.verify import verify

    for one in verify(_opened(folder)):
        click.echo(f"{one.study}: {one.events:,} events, {one.answers:,} answers count, {one.pictures:,} pictures · {one.hash}")


@study.command("close")
@click.argument("folder", type=FOLDER)
@NAMED
@click.option("--reopen", is_flag=True, help="Open it again instead.")
def close_command(folder: Path, name: str, reopen: bool) -> None:
    """Hand out no more HITs; what people have is still taken."""
    from crossmatch.study.said import find_study
    from crossmatch.study.verdicts import set_open

    campaign = _opened(folder)
    one: Study = find_study(campaign, name)
    set_open(campaign, one.id, reopen)
    click.echo(f"{one.name} is {'open' if reopen else 'closed'}")


@study.command("simulate")
@click.argument("where")
@NAMED
@click.option("--people", type=click.IntRange(1, 1000), default=30, show_default=True, help="Artificial annotators.")
@click.option("--accuracy", type=click.FloatRange(0, 1), default=0.9, show_default=True, help="Share of right choices.")
@click.option("--spread", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="By which people's accuracies differ.")
@click.option("--noise", type=click.FloatRange(0, 100), default=0.5, show_default=True, help="Standard deviation of sliders.")
@click.option(
    "--first", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of answers that are what comes first."
)
@click.option(
    "--yes", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of answers that are the best grade."
)
@click.option("--lazy", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of HITs answered all alike.")
@click.option("--dropout", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of HITs left unfinished.")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=6.0, show_default=True, help="That an item takes a person.")
@click.option(
    "--wait", type=click.FloatRange(0, 10), default=0.0, show_default=True, help="How long a second of work really takes."
)
@click.option(
    "--truth", type=click.Path(path_type=Path), help="What is right, for data of your own: a csv (image, caption, grade)."
)
@click.option("--url", default="", help="A service of this campaign that runs already.")
@click.option("--rehearse-here", "here", is_flag=True,
              help="Also where real people are, or may be; what they hold stays theirs.")  # fmt: skip
@click.option("--limit", type=click.FloatRange(0), default=0.0, help="Stop after so many seconds.  [default: when all is done]")
@SEED
def simulate_command(where: str, name: str, people: int, spread: float, truth: Path | None, url: str, wait: float, here: bool,
                     limit: float, seed: int, **habits: Any) -> None:  # fmt: skip
    """Rehearse: artificial annotators answer through the real pages, in a campaign's folder or at the link of a study."""
    from crossmatch.report.tables import Table, as_text

    try:
        from crossmatch.study.annotators import Habits
        from crossmatch.study.simulate import simulate
    except ImportError as error:
        raise MissingDependency(error.name or "SQLAlchemy", "study") from None
    place = where if where.startswith(("http://", "https://")) else Path(where)
    found = simulate(place, name, people=people, habits=Habits(**habits), spread=spread, seed=seed, url=url, truth=truth, wait=wait,
                     here=here, limit=limit, say=lambda text: click.echo(text, err=True))  # fmt: skip
    rows = tuple(
        (one.study, f"{one.people}", f"{one.hits:,}", f"{one.answers:,}", _or_dash(one.accuracy, "%"), f"{one.dropouts}",
         f"{one.errors}", _or_dash(one.left), _or_dash(one.review), f"{one.seconds:.1f}")
        for one in found
    )  # fmt: skip
    heads = ("study", "people", "HITs", "answers", "% right", "left off", "errors", "open", "review", "seconds")
    click.echo(as_text(Table("simulated", (heads,), rows, 1)))
    for one in found:
        if one.first_error:
            click.echo(f"{one.study}: first error: {one.first_error}", err=True)


def _or_dash(number: float | None, unit: str = "") -> str:
    """A number, or a share in per cent; a dash where there is none."""
    return "–" if number is None else f"{100 * number:.1f}" if unit == "%" else f"{number:,}"


@study.command("demo")
@click.option("-o", "--output", type=FOLDER, default=Path("study-demo"), show_default=True, help="Folder of the campaign.")
@click.option("--port", type=click.IntRange(1, 65535), default=8400, show_default=True)
@click.option("--no-serve", is_flag=True, help="Make the campaign, and do not open it.")
@click.pass_context
def demo_command(ctx: click.Context, output: Path, port: int, no_serve: bool) -> None:
    """A small study of each preset on the embedded world, ready to be tried in a browser."""
    try:
        from crossmatch.study.demo import make_demo
    except ImportError as error:
        raise MissingDependency(error.name or "SQLAlchemy", "study") from None
    make_demo(output).close()
    if no_serve:
        click.echo(f"{output} · crossmatch study serve {quote(str(output))}")
    else:
        ctx.invoke(serve_command, folder=output, host="127.0.0.1", port=port, url="", log=False)


@study.command("power")
@click.option("--accuracy", type=click.FloatRange(0, 1), multiple=True, default=(0.9,), show_default=True,
              help="Share of right answers of a person; several times for a mixed crowd.")  # fmt: skip
@click.option("--positive", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.5, show_default=True,
              help="Share of items of which the answer is yes.")  # fmt: skip
@click.option("--items", type=click.IntRange(1, 100_000), default=200, show_default=True)
@click.option("--most", type=click.IntRange(1, 30), default=9, show_default=True, help="People for each item, up to.")
@click.option("--campaigns", type=click.IntRange(1, 10_000), default=100, show_default=True, help="That are drawn.")
@SEED
def power_command(accuracy: tuple[float, ...], positive: float, items: int, most: int, campaigns: int, seed: int) -> None:
    """How many people for each item? Campaigns of yes and no are drawn, and decided by each rule."""
    from crossmatch.report.tables import Table, as_text
    from crossmatch.study.power import power

    found = power(
        list(accuracy), items=items, prior=(positive, 1 - positive), people=range(1, most + 1), campaigns=campaigns, seed=seed
    )
    rows = tuple(
        (str(one.people), one.rule, f"{100 * one.right:.1f} [{100 * one.low:.1f}, {100 * one.high:.1f}]", f"{100 * one.wrong:.1f}",
         f"{100 * one.undecided:.1f}", f"±{50 * one.width:.1f}", f"{one.answers:,}")
        for one in found
    )  # fmt: skip
    heads = ("people", "rule", "% right", "% wrong", "% undecided", "share of yes", "answers")
    notes = ("in brackets: where 95 % of the campaigns lie; share of yes: half of its 95 % interval, among decided items",)
    click.echo(as_text(Table(f"{items:,} items, drawn {campaigns:,} times", (heads,), rows, 2, notes)))
