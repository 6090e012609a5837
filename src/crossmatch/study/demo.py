"""A campaign with a small study of each preset on the embedded world: what a newcomer sees first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crossmatch.study.begin import create_study
from crossmatch.study.design import load_design, names
from crossmatch.study.makers import Shop
from crossmatch.study.pictures import store_pictures
from crossmatch.study.said import studies
from crossmatch.study.sources import world_of
from crossmatch.study.store import create
from crossmatch.study.worlds import WORDS, world_items

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

PEOPLE = 3  # answers to each item, at least: several visitors find something to do
ITEMS = {"eccv-hit": 36, "ranking-preference": 10, "bivlc-human": 16, "sts": 6, "sis": 6, "sits": 6}  # all others have ten
KEPT_APART = {"bison-verify": ("bison-select",)}  # who chose the sentences does not check them (hu2019bison, sec. 3)


def make_demo(folder: Path) -> Campaign:
    """Make the campaign; a folder that holds something else is refused, and one that was made before is opened, and completed."""
    campaign = create(folder)
    there = {one.name for one in studies(campaign)}
    missing = [name for name in names() if name not in there]
    if not missing:
        return campaign
    shop = Shop(world_of(WORDS))
    made = {}
    for name in missing:
        people = max(PEOPLE, load_design(name).recipe.people)
        design = load_design(name, [f"recipe.people={people}"])
        made[name] = design, world_items(design, WORDS, ITEMS.get(name, 10), shop)
    wanted = (image for _, material in made.values() for one in material.items for image in one.images)
    files = store_pictures(campaign.pictures, wanted, shop.picture)  # once for all studies
    for name, (design, material) in made.items():
        items = [replace(one, images=tuple(files[image] for image in one.images)) for one in material.items]
        create_study(campaign, design, items, seed="demo", excludes=KEPT_APART.get(name, ()), origin=material.origin)
    return campaign
