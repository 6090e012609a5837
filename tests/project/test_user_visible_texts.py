"""Texts that users read do not refer to files of the repository, which an installed package does not have."""

import ast
import re
from pathlib import Path

import crossmatch

PACKAGE = Path(crossmatch.__file__).parent
REPOSITORY_PATH = re.compile(r"\b(docs|tests|bench|demo|tools|src)/[a-z_]+(\.|/)\w|\b(README|CONTRIBUTING|CHANGELOG)\.md")
WRITTEN_FILES = ("README.md",)  # `build card` writes this file


def visible_strings(source, with_docstrings=False):
    """The string constants of a module; docstrings only where they are help texts."""
    tree = ast.parse(source)
    documented = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = {id(node.body[0].value) for node in documented if node.body and isinstance(node.body[0], ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (with_docstrings or id(node) not in docstrings)
    ]


def test_repository_paths_are_recognised():
    assert REPOSITORY_PATH.search("see docs/studies.md")
    assert REPOSITORY_PATH.search("see CONTRIBUTING.md")
    assert not REPOSITORY_PATH.search("demo/dual is a model, and docs are files")
    assert visible_strings('"""docs/a.md"""\nx = "docs/b.md"') == ["docs/b.md"]


def test_messages_and_help_name_no_file_of_the_repository():
    named = {}
    for module in PACKAGE.rglob("*.py"):
        texts = visible_strings(module.read_text(encoding="utf-8"), with_docstrings="cli" in module.parts)
        named[module.name] = [text for text in texts if REPOSITORY_PATH.search(text) and not text.endswith(WRITTEN_FILES)]
    assert len(named) > 300
    assert {name: texts for name, texts in named.items() if texts} == {}


def test_pages_and_presets_name_no_file_of_the_repository():
    files = [path for ending in ("html", "js", "toml", "css") for path in PACKAGE.rglob(f"*.{ending}")]
    assert len(files) > 50
    assert [path.name for path in files if REPOSITORY_PATH.search(path.read_text(encoding="utf-8"))] == []
