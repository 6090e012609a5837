"""The end of a test run: seconds by folder, the slowest tests of the main tier, and every skip with its reason.

The seconds are a report, not a limit: they differ from machine to machine. In CI a skip is a failure, because everything that a test
may need is installed there.
"""

from __future__ import annotations

import os
from collections import defaultdict

import pytest

SLOWEST = 10


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    options = terminalreporter.config.option
    if options.hypothesis_seed is not None:
        terminalreporter.line(f"To repeat this run: --tier {options.tier} --hypothesis-seed={options.hypothesis_seed}")
    reports = [r for kind in terminalreporter.stats.values() for r in kind if isinstance(r, pytest.TestReport)]
    seconds: dict[str, float] = defaultdict(float)
    folders: dict[str, float] = defaultdict(float)
    slow = set()
    for report in reports:
        seconds[report.nodeid] += report.duration
        folders[_folder(report.nodeid)] += report.duration
        if "slow" in report.keywords:
            slow.add(report.nodeid)
    if not reports:
        return
    terminalreporter.section("seconds by folder")
    for folder, total in sorted(folders.items(), key=lambda pair: -pair[1]):
        terminalreporter.line(f"{total:8.1f}  {folder}")
    terminalreporter.section(f"the {SLOWEST} slowest tests that are not marked slow")
    unmarked = {test: total for test, total in seconds.items() if test not in slow}
    for test, total in sorted(unmarked.items(), key=lambda pair: -pair[1])[:SLOWEST]:
        terminalreporter.line(f"{total:8.1f}  {test}")
    skips = _skips(terminalreporter)
    if skips:
        terminalreporter.section("skipped" + (", which is a failure in CI" if os.environ.get("CI") else ""))
        for reason, tests in sorted(skips.items()):
            terminalreporter.line(f"{len(tests):5d}  {reason}: {tests[0]}{', …' * (len(tests) > 1)}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and os.environ.get("CI") and _skips(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _skips(reporter: pytest.TerminalReporter) -> dict[str, list[str]]:
    """The skipped tests of each reason."""
    skips: dict[str, list[str]] = defaultdict(list)
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skips[reason.removeprefix("Skipped: ")].append(report.nodeid)
    return skips


def _folder(nodeid: str) -> str:
    """The first folders of a test: three below tests/unit, else two.

    >>> _folder("tests/unit/ranking/test_sweep.py::test_counts"), _folder("src/crossmatch/text/wordnet.py::crossmatch.text")
    ('tests/unit/ranking', 'src/crossmatch')
    """
    parts = nodeid.split("::")[0].split("/")[:-1]
    return "/".join(parts[: 3 if parts[:2] == ["tests", "unit"] else 2]) or "."
