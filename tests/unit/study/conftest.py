"""Campaigns on SQLite and PostgreSQL with a test clock."""

import pytest
from PIL import Image

from crossmatch.data.collection import Collection
from study_exports import COLOURS
from study_lab import Clock, database_of, disable_sync, new_campaign

DATABASES = ("sqlite", "postgresql")


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=DATABASES)
def campaign(request, tmp_path, clock):
    """An empty campaign, on both databases."""
    with new_campaign(tmp_path / "campaign", database_of(request.param, request), clock) as created:
        if request.param == "sqlite":
            disable_sync(created)
        yield created


@pytest.fixture
def small(tmp_path, clock):
    """An empty campaign on SQLite without disk syncs, for tests that do not depend on the database."""
    with new_campaign(tmp_path / "campaign", "", clock) as created:
        disable_sync(created)
        yield created


@pytest.fixture
def painted(small):
    """A campaign with four images."""
    for name in COLOURS:
        Image.new("RGB", (16, 16), name).save(small.images_folder / f"{name}.jpg")
    return small


@pytest.fixture
def colours():
    """A collection of the same four images with two captions each."""
    captions = {name: [f"A {name} square.", f"Something {name}."] for name in COLOURS}
    return Collection.from_captions(captions, lambda name: Image.new("RGB", (16, 16), name))
