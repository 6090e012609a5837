"""The benchmarks. Built-ins are listed here; others join through the entry-point group `crossmatch`."""

from __future__ import annotations

from crossmatch.benchmarks.diorama import DIORAMA_RETRIEVAL
from crossmatch.core.benchmark import Benchmark
from crossmatch.core.catalog import Catalog
from crossmatch.core.plugins import plugged

BUILT_IN = (DIORAMA_RETRIEVAL,)


def benchmarks() -> Catalog[Benchmark]:
    """All benchmarks by name."""
    found = {b.name: b for b in BUILT_IN}
    return Catalog("task", found | {b.name: b for b in plugged(Benchmark)})
