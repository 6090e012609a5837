"""The threat model names a test for each attack, and every named test exists."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/threat_model.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and "`" in line.rpartition(" | ")[2]]
NAME = re.compile(r"`([\w/]+\.py)::(\w+)`")


def test_every_attack_has_a_test():
    tables = PAGE[PAGE.index("## Attacks") : PAGE.index("## Assumptions")]
    attacks = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith(("| who", "| :--"))]
    assert len(attacks) > 25
    assert [row for row in attacks if not NAME.search(row)] == []


def test_every_named_test_exists():
    names = NAME.findall(PAGE)
    assert len(names) >= len(ROWS) > 0
    for path, test in names:
        functions = [node.name for node in ast.parse((TESTS / path).read_text()).body if isinstance(node, ast.FunctionDef)]
        assert test in functions, f"{path}::{test}"
