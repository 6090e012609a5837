"""Settings of all tests: tiers, hypothesis profiles, and folders that are not the user's.

    pytest                 the main tier: everything but what is marked `slow`
    pytest --tier fast     no torch, no PostgreSQL, no browser, no published data, nothing slow
    pytest --tier slow     what is marked `slow`, and every property test with many random examples
    pytest --tier all      everything

docs/contributing/testing.md says what belongs where.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import hypothesis.core
import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

pytest_plugins = ["run_summary"]

# The main tier draws the same examples in each run. No test depends on the time that an example takes.
QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("repeatable", derandomize=True, max_examples=25, **QUIET)
settings.register_profile("search", derandomize=False, max_examples=500, print_blob=True, database=None, **QUIET)

# The fast tier has none of these. Fixtures and parameters give the marks of services, TORCH_PATHS and `pytestmark` that of torch.
FAST_EXCLUDES = ("slow", "torch", "postgres", "browser", "java", "data")
FIXTURE_MARKS = {"postgres_url": "postgres", "browser": "browser", "chrome": "browser", "real_data_folder": "data"}
TORCH_PATHS = (
    "src/crossmatch/train",
    "src/crossmatch/cli/train.py",
    "src/crossmatch/models",
    "tests/unit/train",
    "tests/unit/models",
    "tests/unit/cli/test_train.py",
    "tests/unit/cli/test_train_detector.py",
    "tests/zoo_inputs.py",
    "tests/grounding_equations.py",
    "docs/hard_negative_results.py",
    "docs/make_caption_results.py",
    "docs/make_photo_results.py",
    "docs/make_training_results.py",
    "docs/make_zoo_results.py",
)
# Not in the fast tier: published data, rival programs, browser, servers, and whole campaigns.
OUTSIDE_FAST = (
    "tests/golden",
    "tests/parity",
    "tests/web",
    "tests/study_contract",
    "tests/unit/diorama/test_trials.py",
    "tests/unit/study/simulation",
    "tests/unit/study/test_connections.py",
    "tests/unit/study/test_flow.py",
    "tests/unit/study/test_fuzz.py",
    "tests/unit/study/test_hostile.py",
    "tests/unit/study/test_malformed.py",
    "tests/unit/study/test_rules.py",
    "tests/unit/cli/test_build.py",
    "tests/unit/cli/test_study_cli.py",
    "tests/unit/cli/test_study_serve.py",
    "tests/unit/cli/test_coco_suite.py",
)


class NoTorch:
    """An import finder for the fast tier: torch is not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("The fast tier has no torch. Mark the test: pytestmark = pytest.mark.torch", name=name)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=("fast", "main", "slow", "all"), default="main", help="Which tests to run.")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell; tests interrupt themselves
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _use_own_cache(config)
    tier = config.getoption("--tier")
    settings.load_profile("search" if tier == "slow" else "repeatable")
    # Hypothesis mixes in constants of the modules that are loaded. Without them, the examples of a test are the same alone, beside
    # other tests, and after a change elsewhere in the package.
    providers._get_local_constants = lambda: providers._local_constants
    if tier == "slow" and config.getoption("hypothesis_seed", None) is None:  # workers get the seed of their controller
        config.option.hypothesis_seed = random.SystemRandom().randrange(2**32)
        hypothesis.core.global_force_seed = config.option.hypothesis_seed
    if tier == "fast":
        sys.meta_path.insert(0, NoTorch())


def _use_own_cache(config: pytest.Config) -> None:
    """A cache folder for the run, which all workers share. It exists before tests are imported: matplotlib writes at import."""
    if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit the environment
        folder = tempfile.mkdtemp(prefix="crossmatch-cache-")
        os.environ["XDG_CACHE_HOME"] = os.environ["MPLCONFIGDIR"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast tier does not even import what it leaves out."""
    return True if config.getoption("--tier") == "fast" and _is_below(collection_path, (*TORCH_PATHS, *OUTSIDE_FAST)) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        marks = {FIXTURE_MARKS[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURE_MARKS}
        if "postgresql" in [value for value in _parameters(item) if isinstance(value, str)]:
            marks.add("postgres")
        if _is_below(item.path, TORCH_PATHS):
            marks.add("torch")
        for mark in sorted(marks):
            item.add_marker(mark)
    selected = [item for item in items if _is_selected(item, config.getoption("--tier"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(selected)])
    items[:] = selected


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed the global generators, so that a test gets the same random numbers whatever ran before it."""
    random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def _is_selected(item: pytest.Item, tier: str) -> bool:
    is_slow = item.get_closest_marker("slow") is not None
    if tier == "fast":
        return not any(item.get_closest_marker(mark) for mark in FAST_EXCLUDES)
    if tier == "slow":
        return is_slow or is_hypothesis_test(getattr(item, "obj", None))
    return tier == "all" or not is_slow


def _parameters(item: pytest.Item) -> Iterable[object]:
    """The values of a parametrised test and of its fixtures."""
    return item.callspec.params.values() if hasattr(item, "callspec") else ()


def _is_below(path: Path, places: Iterable[str]) -> bool:
    """Whether a path is one of these files, or in one of these folders of the repository."""
    return any(path.is_relative_to(Path(__file__).parent / place) for place in places)


@pytest.fixture(autouse=True)
def _doctest_folder(request: pytest.FixtureRequest) -> None:
    """`folder` in doctests: a new and empty folder."""
    if isinstance(request.node, pytest.DoctestItem):  # ordinary tests ask for tmp_path themselves
        request.getfixturevalue("doctest_namespace")["folder"] = request.getfixturevalue("tmp_path")
