"""A test file that runs itself as a child process: it computes slowly, logs each call, and may kill itself at a chosen step."""

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
    """A run of a test file as a program, with options as json; `options` are arguments of the file's `work`."""

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
    """The steps of this process. It dies by SIGKILL at the nth time that the step `point` is reached.

    "torn" is reached before a file is synced, with half of its content; the other two before and after it gets its name.
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
