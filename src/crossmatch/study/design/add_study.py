"""Adds a study to a campaign: checks its items and stores their images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.design.declaration import Design
from crossmatch.study.design.images import store_pictures
from crossmatch.study.design.new_study import NewItem, create_study, require_items
from crossmatch.study.design.result_requirements import require_result
from crossmatch.study.study import list_studies

if TYPE_CHECKING:
    from PIL.Image import Image

    from crossmatch.study.database.campaign import Campaign


@dataclass(frozen=True, eq=False)
class StudyItems:
    """Items whose images are still ids or file names, the function that opens them, and the origin of both."""

    items: tuple[NewItem, ...]
    open_image: Callable[[str], Image] | None
    origin: Mapping[str, Any]


def add_study(
    campaign: Campaign, design: Design, material: StudyItems, *, name: str = "", seed: str = "", excludes: Sequence[str] = ()
) -> int:
    """Check the items, store their images, and create the study.

    Args:
        campaign: The campaign.
        design: The design of the study.
        material: The items, as `read_items` and `read_pool` return them.
        name: The name of the study; default: the name of the design.
        seed: Seed of the displayed orders; default: a random one.
        excludes: Names of studies whose people may not take part, and vice versa, besides those that the recipe excludes.

    Returns:
        The id of the study.

    >>> from crossmatch.study import add_study, create_campaign, find_study, load_design, read_items
    >>> count = (folder / "items.jsonl").write_text('{"captions": ["A cat.", "A kitten."]}')
    >>> campaign, design = create_campaign(folder / "campaign"), load_design("sts", ["recipe.people=3"])
    >>> add_study(campaign, design, read_items(folder / "items.jsonl", design), name="pilot")
    1
    >>> find_study(campaign, "pilot").design.recipe.people
    3
    >>> campaign.close()
    """
    checked_first = [replace(item, images=("unchecked",) * len(item.images)) for item in material.items]
    require_items(design, checked_first)  # before storing images, which can take hours
    require_result(design, material.items)
    excluded = [*excludes, *(study.name for study in list_studies(campaign) if study.design.name in design.recipe.excludes)]
    items = store_images(campaign.images_folder, material)
    return create_study(campaign, design, items, name=name, seed=seed, excludes=excluded, origin=material.origin)


def store_images(folder: Path, material: StudyItems) -> list[NewItem]:
    """The items with the files of their images in this folder."""
    names = [image for item in material.items for image in item.images]
    if names and material.open_image is None:
        raise CrossmatchError("The images of these items cannot be opened. Choose a collection that has the image files: --data")
    files = store_pictures(folder, names, material.open_image) if material.open_image else {}
    return [replace(item, images=tuple(files[image] for image in item.images)) for item in material.items]
