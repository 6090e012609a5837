"""Runs a test file as a child process that logs its calls and can be killed at a chosen step, to test what survives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent


class ChildProcess:
    """A test file that runs as a program. `options` are the arguments of its function `work`."""

    def __init__(self, script: str, folder: Path, name: str = "out", log_name: str = "", **options: object) -> None:
        self.log, self.out = folder / (log_name or f"{name}.log"), folder / f"{name}.npz"
        paths = {"folder": str(folder / "cache"), "log": str(self.log), "out": str(self.out)}
        self.popen = subprocess.Popen(
            [sys.executable, script, json.dumps({**paths, **options})],
            env={**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"},
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str]:
        error = self.popen.communicate(timeout=120)[1]
        return self.popen.returncode, error

    @property
    def calls(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


class Steps:
    """Kills this process (SIGKILL) when it reaches the step `point` for the nth time.

    The steps: "torn" is before a file is synced, with half of its content; "before the name" and "after the name" are before
    and after a finished file is renamed.
    """

    def __init__(self, point: str = "", nth: int = 0) -> None:
        self.point, self.nth, self.passed = point, nth, []
        fsync, replace = os.fsync, os.replace

        def torn_fsync(handle: int) -> None:
            if point == "torn" and self.passed.count("torn") + 1 == nth:
                os.ftruncate(handle, os.fstat(handle).st_size // 2)
            self.reach("torn")
            fsync(handle)

        def recorded_replace(source: str, target: str) -> None:
            self.reach("before the name")
            replace(source, target)
            self.reach("after the name")

        os.fsync, os.replace = torn_fsync, recorded_replace

    def reach(self, name: str) -> None:
        self.passed.append(name)
        if name == self.point and self.passed.count(name) == self.nth:
            os.kill(os.getpid(), signal.SIGKILL)


def wait_for_others(out: str, count: int) -> None:
    """Wait until `count` processes that write to the same folder have started."""
    Path(f"{out}.started").touch()
    while len(list(Path(out).parent.glob("*.started"))) < count:
        time.sleep(0.002)
