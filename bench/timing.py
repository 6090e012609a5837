"""How the benchmarks take time: nothing here is a workload."""

from __future__ import annotations

import time


def best_of(repeat: int, *works):
    """The best time of each work; the works take turns, so that a slow moment of the machine meets them all."""
    times = [[] for _ in works]
    for _ in range(repeat):
        for at, work in enumerate(works):
            begun = time.perf_counter()
            work()
            times[at].append(time.perf_counter() - begun)
    return [min(t) for t in times]
