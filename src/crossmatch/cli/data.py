"""`crossmatch data`: get data sets and verify them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.base import JSON, Group
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.dataset_files import CountState, DataSet, FileState
from crossmatch.data.io.paths import data_folder

if TYPE_CHECKING:
    from crossmatch.report.tables import Table


@click.group(cls=Group)
def data() -> None:
    """Get and verify data sets.

    They live in $CROSSMATCH_DATA, or in the cache folder.
    """


@data.command("get")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="DIR",
              help="Use files of this folder; nothing is downloaded.")  # fmt: skip
@click.option("--link", is_flag=True, help="With --from: link to the files instead of copying them.")
@click.option("--optional", is_flag=True, help="Also get the optional files.")
def get_command(names: tuple[str, ...], source: Path | None, link: bool, optional: bool) -> None:
    """Download or copy data sets and check their hashes."""
    from crossmatch.benchmarks.datasets.dataset_table import find_data_set, list_data_sets
    from crossmatch.data.io.dataset_install import install_data_set

    if link and source is None:
        raise UsageError("--link needs --from DIR, the folder with the files to link to.")
    if source is not None and not source.is_dir():
        raise UsageError(f"--from: {source} is not a folder. Name the folder with the files.")
    for data_set in [find_data_set(name) for name in names]:
        install_data_set(data_set, list_data_sets(), data_folder(), source=source, link=link, optional=optional, report=click.echo)


@data.command("verify")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@JSON
def verify_command(names: tuple[str, ...], as_json: bool) -> None:
    """Check hashes and counts of data sets.

    Without NAME, all data sets that are present are checked.
    """
    from crossmatch.benchmarks.datasets.dataset_table import find_data_set, list_data_sets
    from crossmatch.data.io.dataset_files import check_sizes, verify_data_set
    from crossmatch.report.tables import format_table

    root, available = data_folder(), list_data_sets()
    chosen = [find_data_set(name) for name in names] or [d for d in available if any(file.path for file in check_sizes(d, root))]
    checks = {data_set.name: verify_data_set(data_set, available, root) for data_set in chosen}
    if as_json:
        click.echo(json.dumps({name: _verification_facts(*check) for name, check in checks.items()}, indent=1))
    else:
        tables = [format_table(_verification_table(name, *check)) for name, check in checks.items()]
        click.echo("\n\n".join(tables) or f"{root} contains no data sets.")
    problems = [(name, problem) for name, check in checks.items() for problem in _problems(*check)]
    if problems:
        bad = " ".join(dict.fromkeys(name for name, _ in problems))
        raise CrossmatchError(f"{'; '.join(problem for _, problem in problems)}. Get the files again: crossmatch data get {bad}")


def data_set_facts() -> list[dict[str, Any]]:
    """Every data set with its files and whether they are present, for `crossmatch list data`."""
    from crossmatch.benchmarks.datasets.dataset_table import list_data_sets

    return [_data_set_facts(data_set, data_folder()) for data_set in list_data_sets()]


def _data_set_facts(data_set: DataSet, root: Path) -> dict[str, Any]:
    from crossmatch.data.io.dataset_files import check_sizes

    states = check_sizes(data_set, root)
    return {
        "name": data_set.name,
        "about": data_set.description,
        "licence": data_set.licence,
        "non_commercial": data_set.non_commercial,
        "source": data_set.homepage,
        "cite": data_set.cite,
        "tasks": list(data_set.tasks),
        "bytes": _required_size(states),
        "files": [_file_facts(checked) for checked in states if checked.file.use != "source"],
        "folders": [
            {"path": f.path, "about": f.description, "source": f.source_url, "present": (root / f.path).is_dir()}
            for f in data_set.folders
        ],
    }


def _required_size(states: Sequence[FileState]) -> int | None:
    """The bytes of all required files; None if the size of one is neither declared nor known from a file that is present."""
    sizes = [
        state.file.size if state.file.size is not None else state.path.stat().st_size if state.path else None
        for state in states
        if state.file.use == "required"
    ]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _file_facts(checked: FileState) -> dict[str, Any]:
    return {
        "path": checked.file.path,
        "use": checked.file.use,
        "state": checked.state,
        "why": checked.problem,
        "place": str(checked.path) if checked.path else None,
        "bytes": checked.file.size,
        "sha256": checked.file.sha256,
    }


def data_sets_table(facts: list[dict[str, Any]]) -> Table:
    from crossmatch.report.tables import Table

    rows, notes = [], []
    for entry in facts:
        required = [file for file in entry["files"] if file["use"] == "required"]
        present = sum(file["state"] in ("ok", "unknown") for file in required)
        wrong = sum(file["state"] == "wrong" for file in required)
        state = f"{present} of {len(required)}" + (f", {wrong} wrong" if wrong else "")
        licence = ("NON-COMMERCIAL " if entry["non_commercial"] else "") + entry["licence"]
        size = "unknown" if entry["bytes"] is None else f"{entry['bytes'] / 1e6:.1f} MB"
        rows.append((entry["name"], state, size, ", ".join(entry["tasks"]), licence, entry["about"]))
        optional = [(file["path"], file["state"] in ("ok", "unknown")) for file in entry["files"] if file["use"] == "optional"]
        optional += [(folder["path"], folder["present"]) for folder in entry["folders"]]
        notes += [f"optional: {path}, {'present' if is_present else 'not present'}" for path, is_present in optional]
    head = ("name", "files present", "size", "tasks that need it", "licence", "about")
    return Table(f"data in {data_folder()}", (head,), tuple(rows), 6, tuple(notes))


def _verification_facts(files: list[FileState], counts: list[CountState]) -> dict[str, Any]:
    return {
        "ok": not _problems(files, counts),
        "files": [_file_facts(checked) for checked in files if checked.file.use != "source"],
        "counts": [
            {
                "what": count.check.counted_item,
                "expected": count.check.expected,
                "seen": count.count,
                "ok": None if count.count is None else not count.is_bad,
                "why": count.problem,
            }
            for count in counts
        ],
    }


def _verification_table(name: str, files: list[FileState], counts: list[CountState]) -> Table:
    from crossmatch.report.tables import Table

    states = {"ok": "ok", "unknown": "present, sha256 not declared", "missing": "missing", "wrong": "WRONG"}
    listed = [checked for checked in files if checked.file.use == "required" or checked.path]
    rows = [(file.file.path, states[file.state] + (f": {file.problem}" if file.state == "wrong" else "")) for file in listed]
    rows += [(count.check.counted_item, _count_text(count)) for count in counts]
    return Table(name, (("item", "state"),), tuple(rows), 2)


def _count_text(count: CountState) -> str:
    if count.count is None:
        return f"WRONG: {count.problem}" if count.problem else "not counted: a file is missing or wrong"
    return f"{count.count:,}" + (f" WRONG: expected {count.check.expected:,}" if count.is_bad else "")


def _problems(files: list[FileState], counts: list[CountState]) -> list[str]:
    bad_files = [f"{checked.path or checked.file.path}: {checked.problem}" for checked in files if checked.is_bad]
    return bad_files + [f"{count.check.counted_item}: {_count_text(count)}" for count in counts if count.is_bad]
