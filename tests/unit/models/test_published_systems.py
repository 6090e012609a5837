"""Every system of the published tables is listed, with a model name or recipe that exists."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import crossmatch.report.published_results as published
from crossmatch.models import families
from crossmatch.models.published_systems import PUBLISHED_SYSTEMS
from crossmatch.train.recipe import recipes

TABLES = sorted((Path(published.__file__).parent / "papers").glob("*.csv"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_system_of_a_published_table_is_listed(path):
    paper = path.name.partition("-")[0]
    printed = {row["model"] for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())}
    systems = {name for name in printed if name != "Human" and not name.startswith("references:")}  # people, caption scores
    assert systems <= {s.name for s in PUBLISHED_SYSTEMS if s.paper == paper}


@pytest.mark.parametrize("system", PUBLISHED_SYSTEMS, ids=lambda s: f"{s.paper}-{s.name}")
def test_system_has_a_known_family_or_recipe(system):
    if system.weights.startswith("crossmatch train "):
        assert system.weights.split()[2].rstrip(",") in recipes()
    else:
        assert system.model.partition(":")[0] in {*families(), "FOLDER"}
