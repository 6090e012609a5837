"""Shared by the benchmarks: command-line options, timing, memory, and the json line of a case."""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("CROSSMATCH_DATA") or Path(__file__).parents[2] / "shared" / "data")


def make_parser(description: str | None, **defaults: int) -> argparse.ArgumentParser:
    """Make a parser with an integer option for each default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    return parser


def best_of(repeat: int, *functions: Callable[[], Any]) -> list[float]:
    """The shortest time of each function. The functions take turns, so that a slow moment of the machine affects all of them."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeat):
        for function, seconds in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            seconds.append(time.perf_counter() - start)
    return [min(seconds) for seconds in times]


def peak_mb() -> int:
    """Largest memory of this process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def report(workload: str, ours_s: float, peer: str, peer_s: float | None, **more: Any) -> None:
    """Print the json line of a case. `ratio` says how many times as fast as the peer ours is."""
    line = {"workload": workload, "ours_s": round(ours_s, 4), "peer": peer, "peer_s": None, "ratio": None}
    if peer_s is not None:
        line |= {"peer_s": round(peer_s, 4), "ratio": round(peer_s / ours_s, 3)}
    line |= {name: round(value, 3) if isinstance(value, float) else value for name, value in more.items()}
    print(json.dumps(line), flush=True)
