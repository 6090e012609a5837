"""Where the real data are: `$CROSSMATCH_DATA`, or ../shared/data beside the repository; and a PostgreSQL server for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data_folder() -> Path:
    found = Path(os.environ.get("CROSSMATCH_DATA") or SHARED)
    if not (found / "cxc" / "sts_test.csv").is_file():
        pytest.skip(f"the real data are not in {found}; set CROSSMATCH_DATA to their folder")
    return found


@pytest.fixture
def real_data(real_data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real data as the data folder of everything in the test."""
    monkeypatch.setenv("CROSSMATCH_DATA", str(real_data_folder))
    return real_data_folder


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A temporary PostgreSQL server. Tests are skipped on a machine without PostgreSQL, except in CI."""
    if request.config.getoption("--tier") == "fast":
        pytest.fail("The fast tier has no PostgreSQL. Mark the test: @pytest.mark.postgres")
    from postgres_server import PostgresNotFoundError, postgres

    try:
        with postgres() as url:
            yield url
    except PostgresNotFoundError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
