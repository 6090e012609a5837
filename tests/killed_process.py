"""Runs a test file as a child process that logs its calls and can be killed at a chosen step, to test what survives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from polling import LIMIT, wait_until

TESTS = Path(__file__).parent
RELEASED = "released"  # name of a file


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
        error = self.popen.communicate(timeout=LIMIT)[1]
        return self.popen.returncode, error

    @property
    def calls(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def wait_for_calls(self, count: int) -> None:
        wait_until(lambda: self.calls >= count or self.popen.poll() is not None)

    def release(self) -> None:
        """Let all processes of this folder go on that called `hold`."""
        (self.out.parent / RELEASED).touch()


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


def wait_for_others(out: str, count: int, step: str = "started") -> None:
    """Wait until `count` processes that write to the same folder have come to this step."""
    Path(f"{out}.{step}").touch()
    wait_until(lambda: len(list(Path(out).parent.glob(f"*.{step}"))) >= count)


def hold(out: str) -> None:
    """Stay here until the parent calls `ChildProcess.release`, or kills this process."""
    wait_until((Path(out).parent / RELEASED).exists)
