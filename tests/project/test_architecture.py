"""docs/architecture.md names files, functions and lines that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "crossmatch"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def _names(path: Path) -> set[str]:
    """Top-level names of a module, and `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
            names |= {f"{node.name}.{child.name}" for child in getattr(node, "body", []) if hasattr(child, "name")}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_every_named_function_exists():
    mentions = re.findall(r"`([\w/]+\.py)::([\w.]+)`", PAGE)
    assert len(mentions) > 30
    assert [f"{path}::{name}" for path, name in mentions if name not in _names(PACKAGE / path)] == []


def test_every_named_file_and_folder_exists():
    files = re.findall(r"`([a-z_]+/[\w/]+\.(?:py|js))(?:::[\w.]+)?`", PAGE)
    folders = re.findall(r"^\| `([a-z_]+)/` \|", PAGE, flags=re.MULTILINE)
    assert [name for name in (*files, *folders) if not (PACKAGE / name).exists()] == []
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert packages == set(folders)


def test_every_line_of_the_diffs_is_in_its_file():
    for diff in re.findall(r"```diff\n(.*?)```", PAGE, flags=re.DOTALL):
        lines: list[str] = []
        for line in diff.splitlines():
            if line.startswith("+++ b/"):
                lines = (ROOT / line.removeprefix("+++ b/")).read_text(encoding="utf-8").splitlines()
            else:
                assert line.removeprefix("+") in lines
