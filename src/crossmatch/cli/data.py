"""`crossmatch data`: what data sets there are, bring one here, and check what is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import Checked, Counted, DataSet
from crossmatch.core.places import data_folder

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


@click.group()
def data() -> None:
    """List, get and verify data sets. They live in $CROSSMATCH_DATA, or else in the cache folder."""


@data.command("list")
@AS_JSON
def list_command(as_json: bool) -> None:
    """List the data sets: what is here, how large, under which licence, and which tasks need it."""
    from crossmatch.benchmarks.data_sets import data_sets

    found = [_listed(data_set, data_folder()) for data_set in data_sets()]
    click.echo(json.dumps(found, indent=1) if as_json else _list_table(found))


@data.command("get")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="DIR",
              help="Take files that are already in this folder; nothing is downloaded.")  # fmt: skip
@click.option("--link", is_flag=True, help="With --from: link to the files instead of copying them.")
@click.option("--optional", is_flag=True, help="The optional files too.")
def get_command(names: tuple[str, ...], source: Path | None, link: bool, optional: bool) -> None:
    """Bring data sets into the data folder, from their official source or with --from DIR. Every file's sha256 is checked."""
    from crossmatch.benchmarks.data_sets import data_sets, named
    from crossmatch.core.obtain import get

    if link and source is None:
        raise WrongWords("--link needs --from DIR: it links to files that are already there.")
    if source is not None and not source.is_dir():
        raise WrongWords(f"{source} is not a folder. Name the folder that holds the files.")
    for data_set in [named(name) for name in names]:
        get(data_set, data_sets(), data_folder(), source=source, link=link, optional=optional, say=click.echo)


@data.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@AS_JSON
def verify_command(names: tuple[str, ...], as_json: bool) -> None:
    """Check the sha256 of every file and the counts that must come out. Without NAME: of every data set that has a file here."""
    from crossmatch.benchmarks.data_sets import data_sets, named
    from crossmatch.core.files import glance, verify

    root, known = data_folder(), data_sets()
    chosen = [named(name) for name in names] or [d for d in known if any(seen.place for seen in glance(d, root))]
    found = {data_set.name: verify(data_set, known, root) for data_set in chosen}
    if as_json:
        click.echo(json.dumps({name: _verdict(*seen) for name, seen in found.items()}, indent=1))
    else:
        click.echo("\n\n".join(_verify_table(name, *seen) for name, seen in found.items()) or f"there are no data in {root}.")
    bad = [(name, line) for name, seen in found.items() for line in _complaints(*seen)]
    if bad:
        wrong = dict.fromkeys(name for name, _ in bad)
        raise CrossmatchError(
            f"{'; '.join(line for _, line in bad)}. Get what is missing or wrong with `crossmatch data get {' '.join(wrong)}`."
        )


def _listed(data_set: DataSet, root: Path) -> dict[str, Any]:
    from crossmatch.core.files import glance

    seen = glance(data_set, root)
    return {
        "name": data_set.name,
        "about": data_set.about,
        "licence": data_set.licence,
        "non_commercial": data_set.non_commercial,
        "source": data_set.source,
        "cite": data_set.cite,
        "tasks": list(data_set.tasks),
        "bytes": sum(file.size or 0 for file in data_set.using("required")),
        "files": [_file(checked) for checked in seen if checked.file.use != "source"],
        "folders": [
            {"path": f.path, "about": f.about, "source": f.source_url, "present": (root / f.path).is_dir()}
            for f in data_set.folders
        ],
    }


def _file(seen: Checked) -> dict[str, Any]:
    return {
        "path": seen.file.path,
        "use": seen.file.use,
        "state": seen.state,
        "why": seen.why,
        "place": str(seen.place) if seen.place else None,
        "bytes": seen.file.size,
        "sha256": seen.file.sha256,
    }


def _list_table(found: list[dict[str, Any]]) -> str:
    from crossmatch.report.tables import Table, as_text

    lines = []
    for entry in found:
        required = [file for file in entry["files"] if file["use"] == "required"]
        here = sum(file["state"] in ("ok", "unknown") for file in required)
        wrong = sum(file["state"] == "wrong" for file in required)
        licence = ("NON-COMMERCIAL " if entry["non_commercial"] else "") + entry["licence"]
        state = f"{here} of {len(required)}" + (f", {wrong} wrong" if wrong else "")
        lines.append((entry["name"], state, f"{entry['bytes'] / 1e6:.1f} MB", ", ".join(entry["tasks"]), licence, entry["about"]))
    notes = [
        f"optional: {part['path']}, {'here' if part.get('present', part.get('state') in ('ok', 'unknown')) else 'not here'}"
        for entry in found
        for part in [*(file for file in entry["files"] if file["use"] == "optional"), *entry["folders"]]
    ]
    head = ("name", "files here", "size", "tasks that need it", "licence", "about")
    return as_text(Table(f"data in {data_folder()}", (head,), tuple(lines), 6, tuple(notes)))


def _verdict(files: list[Checked], counts: list[Counted]) -> dict[str, Any]:
    return {
        "ok": not _complaints(files, counts),
        "files": [_file(seen) for seen in files if seen.file.use != "source"],
        "counts": [
            {
                "what": c.tally.what,
                "expected": c.tally.expected,
                "seen": c.seen,
                "ok": None if c.seen is None else not c.bad,
                "why": c.why,
            }
            for c in counts
        ],
    }


def _verify_table(name: str, files: list[Checked], counts: list[Counted]) -> str:
    from crossmatch.report.tables import Table, as_text

    words = {"ok": "ok", "unknown": "here, but its sha256 is not known", "missing": "missing", "wrong": "WRONG"}
    shown = [seen for seen in files if seen.file.use == "required" or seen.place]
    lines = [(seen.file.path, words[seen.state] + (f": {seen.why}" if seen.state == "wrong" else "")) for seen in shown]
    lines += [(count.tally.what, _count(count)) for count in counts]
    return as_text(Table(name, (("what", "found"),), tuple(lines), 2))


def _count(count: Counted) -> str:
    if count.seen is None:
        return f"WRONG: {count.why}" if count.why else "not counted: a file is missing or wrong"
    return f"{count.seen:,}" + (f" WRONG: expected {count.tally.expected:,}" if count.bad else "")


def _complaints(files: list[Checked], counts: list[Counted]) -> list[str]:
    """What is wrong, file by file and count by count."""
    return [f"{seen.place or seen.file.path}: {seen.why}" for seen in files if seen.bad] + [
        f"{count.tally.what}: {_count(count)}" for count in counts if count.bad
    ]
