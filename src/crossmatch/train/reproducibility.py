"""Reproducible training: a fixed seed, a fixed number of threads, and deterministic algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def reproducible(seed: int, threads: int = 1) -> Iterator[None]:
    """Seed torch and fix its number of threads; restore its settings and random state afterwards.

    Sums depend on the number of threads. One thread is the default, because on a machine with other load torch's threads wait for
    each other at every operation.
    """
    previous_threads, was_deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with torch.random.fork_rng(devices=[]):
        try:
            torch.set_num_threads(threads)
            torch.use_deterministic_algorithms(True)
            torch.manual_seed(seed)
            yield
        finally:
            torch.set_num_threads(previous_threads)
            torch.use_deterministic_algorithms(was_deterministic)
