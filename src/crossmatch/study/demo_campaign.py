"""A demo campaign with a small study of each preset on the embedded world."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crossmatch.study.database.campaign import create_campaign
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.data_source import world_of
from crossmatch.study.design.declaration import load_design, preset_names
from crossmatch.study.design.image_storage import store_pictures
from crossmatch.study.simulation.diorama_items import DEFAULT_DATA, world_items
from crossmatch.study.simulation.item_generators import ItemFactory
from crossmatch.study.study import list_studies

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

PEOPLE = 3  # minimum number of answers per item, so that several visitors find work
ITEMS = {"eccv-hit": 36, "ranking-preference": 10, "bivlc-human": 16, "sts": 6, "sis": 6, "sits": 6}  # the others have ten
EXCLUDES = {"bison-verify": ("bison-select",)}  # nobody verifies the captions they selected (hu2019bison, sec. 3)


def make_demo(folder: Path) -> Campaign:
    """Create the campaign, or open it and add missing studies. A folder with other content is refused."""
    campaign = create_campaign(folder)
    existing = {study.name for study in list_studies(campaign)}
    missing = [name for name in preset_names() if name not in existing]
    if not missing:
        return campaign
    factory = ItemFactory(world_of(DEFAULT_DATA))
    material_by_preset = {}
    for name in missing:
        people = max(PEOPLE, load_design(name).recipe.people)
        design = load_design(name, [f"recipe.people={people}"])
        material_by_preset[name] = design, world_items(design, DEFAULT_DATA, ITEMS.get(name, 10), factory)
    image_names = (image for _, material in material_by_preset.values() for item in material.items for image in item.images)
    files = store_pictures(campaign.images_folder, image_names, factory.picture)  # once for all studies
    for name, (design, material) in material_by_preset.items():
        items = [replace(item, images=tuple(files[image] for image in item.images)) for item in material.items]
        create_study(campaign, design, items, seed="demo", excludes=EXCLUDES.get(name, ()), origin=material.origin)
    return campaign
