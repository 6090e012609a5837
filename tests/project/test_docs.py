"""Documents: their code runs, and citations, links and generated parts are valid."""

import doctest
import importlib.util
import re
from pathlib import Path

import pytest

from crossmatch.benchmarks import list_benchmarks
from crossmatch.metrics.metric_table import FAMILIES

ROOT = Path(__file__).parents[2]
KEYS = set(re.findall(r"@\w+\{([a-z0-9]+),", (ROOT / "docs/references.bib").read_text()))
BLOCKS = [
    pytest.param(code, id=f"{name}-{n}")
    for name in ("README.md", "CONTRIBUTING.md")
    for n, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S))
]


@pytest.mark.parametrize("code", BLOCKS)
def test_code_in_documents_runs(code, capsys):
    names = {"__name__": "document"}
    exec(compile(code, "document", "exec"), names)
    functions = [value for value in names.values() if getattr(value, "__module__", "") == "document"]
    tests = [test for f in functions for test in doctest.DocTestFinder().find(f, f.__name__, module=False, globs=dict(names))]
    assert not sum(doctest.DocTestRunner().run(test).failed for test in tests)


def test_number_of_code_examples():
    readme, contributing = (
        re.findall(r"```python\n(.*?)```", (ROOT / n).read_text(), re.S) for n in ("README.md", "CONTRIBUTING.md")
    )
    assert len(readme) == 1
    assert len([line for line in readme[0].splitlines() if line.strip()]) <= 10
    assert len(contributing) == 3


def test_reference_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs/make_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs/reference.md").read_text() == module.reference(), "run `make docs`"


def test_every_citation_resolves():
    sources = [m.source for m in FAMILIES] + [b.cite for b in list_benchmarks().values()]
    text = "\n".join(p.read_text() for p in (ROOT / "src").rglob("*.py"))
    cited = set(re.findall(r"\b([a-z]+(?:19|20)\d\d[a-z]+)\b", "\n".join(sources) + text))
    assert cited, "the pattern finds no citation at all"
    assert cited <= KEYS


def test_local_links_in_documents_exist():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_five_papers_are_cited():
    text = (ROOT / "CITATION.cff").read_text()
    assert all(name in text for name in ("BISON", "Crisscrossed", "TIGEr", "BiVLC", "ECCV Caption"))


def test_repository_has_no_large_files():
    big = [
        p for p in ROOT.rglob("*") if ".git" not in p.parts and ".venv" not in p.parts and p.is_file() and p.stat().st_size > 2**20
    ]
    assert not [p for p in big if "demo" not in p.parts and not any(part.startswith(".") for part in p.relative_to(ROOT).parts)]


def test_no_generated_block_is_empty():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    blocks = {
        (page.name, name): text
        for page in pages
        for name, text in re.findall(r"<!-- begin (\w+) -->\n(.*?)<!-- end \1 -->", page.read_text(), flags=re.DOTALL)
    }
    assert {("results.md", "zoo"), ("results.md", "choices"), ("results.md", "trials")} <= blocks.keys()
    assert [key for key, text in blocks.items() if len(text) < 200] == []
