"""docs/papers.md: every command, option, function, file and test that it names exists, and the page is up to date."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import pytest

from crossmatch.benchmarks import resolve_task
from crossmatch.build.recipes.papers import RECIPES
from crossmatch.cli import cli
from crossmatch.cli.base import split_names
from crossmatch.metrics.metric_table import metric
from crossmatch.study.design.declaration import load_design
from crossmatch.train.recipe import load_recipe

ROOT = Path(__file__).parents[2]
POINTS = range(1, 23)  # of issue 25


def load_script():
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return importlib.import_module("make_papers")
    finally:
        sys.path.remove(str(ROOT / "docs"))


SCRIPT = load_script()
ROWS = SCRIPT.load_rows()
NAMES = sorted({name for row in ROWS for name in row.by})
COMMANDS = [name for name in NAMES if name.startswith("crossmatch ")]
FUNCTIONS = [name for name in NAMES if name.startswith("crossmatch.")]
FILES = [name for name in NAMES if not name.startswith(("crossmatch ", "crossmatch."))]
TESTS = sorted({test for row in ROWS for test in row.tests})


def split_command(command: str) -> tuple[click.Command, list[str]]:
    """The click command of a command line, and the words that follow its name."""
    current: click.Command = cli
    words = shlex.split(command)[1:]
    while isinstance(current, click.Group):
        assert words, f"{command} lacks a subcommand"
        subcommand = current.get_command(click.Context(current), words[0])
        assert subcommand is not None, f"{command}: no command {words[0]}"
        current, words = subcommand, words[1:]
    return current, words


def import_object(name: str) -> object:
    """The object of a dotted name: its longest prefix that is a module, then attributes."""
    parts = name.split(".")
    length = next(n for n in range(len(parts), 0, -1) if is_module(".".join(parts[:n])))
    value: object = importlib.import_module(".".join(parts[:length]))
    for part in parts[length:]:
        value = getattr(value, part)
    return value


def is_module(name: str) -> bool:
    path = ROOT / "src" / Path(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@cache
def functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("command", COMMANDS)
def test_command_line_is_valid(command):
    """The command and its options exist and get values of their types. Nothing is run."""
    leaf, words = split_command(command)
    parameters = leaf.make_context(leaf.name, words).params
    for task in split_names(parameters.get("tasks") or parameters.get("task") or ()):
        if not task.startswith(("collection:", "trials:")):
            benchmark, options = resolve_task(task, {})
            assert set(options) <= set(benchmark.options)
    if leaf.name == "run":
        for name in split_names(parameters["metrics"] or ()):
            metric(name)


@pytest.mark.parametrize("command", [command for command in COMMANDS if " recipe " in command or " study new " in command])
def test_recipes_and_presets_exist(command):
    leaf, words = split_command(command)
    if leaf.name == "recipe":
        assert words[0] in RECIPES
    else:
        load_design(words[0], [value for option, value in pairwise(words) if option == "--set"])


@pytest.mark.torch
@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("crossmatch train ")])
def test_training_recipe_is_valid(command):
    """The recipe exists, and its changes name settings of its network, objective and training."""
    from crossmatch.train.run_recipe import require_valid_recipe

    recipe, *options = split_command(command)[1]
    changes = [value for option, value in pairwise(options) if option == "--set"]
    data = next((value for option, value in pairwise(options) if option == "--data"), "diorama")
    require_valid_recipe(load_recipe(recipe, data.partition(":")[0], changes))


@pytest.mark.torch
@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_can_be_imported(name):
    import_object(name)


@pytest.mark.parametrize("name", FILES)
def test_file_exists(name):
    assert (ROOT / name).is_file()


@pytest.mark.parametrize("test", TESTS)
def test_named_test_exists(test):
    path, _, name = test.partition("::")
    assert name.startswith("test_")
    assert name in functions_of(path)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper}-{row.where}-{row.what}"[:70])
def test_row_is_complete(row):
    assert row.where
    assert row.what
    assert row.status == "exact" or row.why
    if row.status in ("exact", "equivalent", "approximated"):
        assert row.by
        assert row.tests
    assert set(row.points) <= set(POINTS)
    assert not any("\n" in text for text in (row.where, row.what, row.why))


def test_rows_are_distinct():
    keys = [(row.paper, row.kind, row.where, row.what) for row in ROWS]
    assert len(set(keys)) == len(keys)


def test_every_point_of_the_issue_has_a_row():
    assert {point for row in ROWS for point in row.points} == set(POINTS)


def test_page_is_up_to_date():
    assert SCRIPT.PAGE.read_text(encoding="utf-8") == SCRIPT.page(ROWS), "run python docs/make_papers.py"


def test_tables_of_the_page_are_small():
    lines = SCRIPT.PAGE.read_text(encoding="utf-8").splitlines()
    blocks = re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", flags=re.MULTILINE)
    assert len(blocks) > len(SCRIPT.PAPERS)
    for block in blocks:
        header, _, *rows = block.splitlines()
        assert len(re.findall(r"(?<!\\)\|", header)) - 1 <= 8
        assert len(rows) <= 15
    assert [line for line in lines if not line.startswith("|") and len(line) > 120] == []
