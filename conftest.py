"""Settings of all tests.

Doctests get `folder`, a new and empty folder, and a cache folder that is not the user's. Hypothesis draws the same examples in each
run and ignores the time they take, so that no test depends on luck or on the load of the machine.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def doctest_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doctest-cache")


@pytest.fixture(autouse=True)
def doctest_folder(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem):  # no folder for each ordinary test
        request.getfixturevalue("doctest_namespace")["folder"] = request.getfixturevalue("tmp_path")
        request.getfixturevalue("monkeypatch").setenv("XDG_CACHE_HOME", str(request.getfixturevalue("doctest_cache")))
