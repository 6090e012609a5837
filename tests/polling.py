"""Waits for a condition. No test waits for a number of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LIMIT = 120.0  # seconds; only a test that fails waits this long
PAUSE = 0.005


def wait_until(condition: Callable[[], T], pause: Callable[[float], object] = time.sleep) -> T:
    """Return the first true value of `condition`. `pause` waits between two calls, for example in the loop of a browser."""
    end = time.monotonic() + LIMIT
    while not (value := condition()):
        assert time.monotonic() < end, f"the condition did not become true within {LIMIT:g} s"
        pause(PAUSE)
    return value
