"""The benchmarks. Built-ins are listed here; others join through the entry-point group `crossmatch`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crossmatch.benchmarks.altered import alterable
from crossmatch.benchmarks.bison import BISON
from crossmatch.benchmarks.bivlc import BIVLC
from crossmatch.benchmarks.coco import COCO_1K, COCO_5K, PMRP
from crossmatch.benchmarks.cxc import CXC, CXC_SIS, CXC_SITS, CXC_STS
from crossmatch.benchmarks.diorama import DIORAMA_RETRIEVAL
from crossmatch.benchmarks.diorama_graded import DIORAMA_CXC, DIORAMA_SIS, DIORAMA_SITS, DIORAMA_STS
from crossmatch.benchmarks.diorama_trials import DIORAMA_BISON, DIORAMA_BIVLC, DIORAMA_SUGARCREPE
from crossmatch.benchmarks.eccv import ECCV_CAPTION
from crossmatch.benchmarks.folder import folder_task
from crossmatch.benchmarks.sugarcrepe import SUGARCREPE
from crossmatch.benchmarks.trials_file import trials_task
from crossmatch.benchmarks.winoground import WINOGROUND
from crossmatch.core.benchmark import Benchmark, Loaded
from crossmatch.core.catalog import Catalog
from crossmatch.core.errors import WrongWords
from crossmatch.core.plugins import plugged

BUILT_IN = (
    COCO_1K, COCO_5K, CXC, CXC_STS, CXC_SIS, CXC_SITS, ECCV_CAPTION, PMRP, alterable(BISON), BIVLC, SUGARCREPE, WINOGROUND,
    DIORAMA_RETRIEVAL, DIORAMA_CXC, DIORAMA_STS, DIORAMA_SIS, DIORAMA_SITS, alterable(DIORAMA_BISON), DIORAMA_BIVLC,
    DIORAMA_SUGARCREPE,
)  # fmt: skip
FILES = {"collection:": folder_task, "trials:": trials_task}  # a task of the user's own: what follows is a path


def benchmarks() -> Catalog[Benchmark]:
    """All benchmarks by name."""
    found = {b.name: b for b in BUILT_IN}
    return Catalog("task", found | {b.name: b for b in plugged(Benchmark)})


def load_data(name: str, *, skip_bad: bool = False, **options: str) -> Loaded:
    """The data of a task, by the name that `-t` takes; `skip_bad` leaves empty captions of the user's own out.

    >>> load_data("diorama/retrieval", size="tiny").collection.shape
    (50, 250)
    """
    declared, chosen = benchmark_named(name, options)
    return declared.loaded(skip_bad, **chosen)


def benchmark_named(named: str | Benchmark, options: Mapping[str, str]) -> tuple[Benchmark, dict[str, str]]:
    """A benchmark by name, `name+option=value`, `collection:FOLDER` or `trials:FILE`; and the options to load it with.

    >>> found, options = benchmark_named("cxc-sits+query=caption", {"split": "val"})
    >>> found.name, options
    ('cxc-sits', {'split': 'val', 'query': 'caption'})
    """
    if isinstance(named, Benchmark):
        return named, dict(options)
    for prefix, task in FILES.items():
        if named.startswith(prefix):
            found, own = task(named.removeprefix(prefix))
            return found, {**options, **own}
    if Path(named).suffix.lower() in (".csv", ".tsv", ".jsonl") and Path(named).is_file():
        raise WrongWords(f"{named} is a file. Your own forced choices are the task trials:{named}")
    name, *marks = named.split("+")
    own = {}
    for mark in marks:
        key, equals, value = mark.partition("=")
        if not equals or not key or not value:
            raise WrongWords(f"{named} has {mark!r} where option=value was expected, as in cxc-sits+query=caption.")
        own[key] = value
    return benchmarks()[name], {**options, **own}
