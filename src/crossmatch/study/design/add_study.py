"""Adds a study to a campaign: checks its items, stores their images, and writes items, HITs and slots to the database."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, insert, literal, select, true
from sqlalchemy.exc import IntegrityError

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.database import events
from crossmatch.study.database.schema import exclusion, hit, hit_item, item, slot, study
from crossmatch.study.design.content_hash import content_hash
from crossmatch.study.design.declaration import Design
from crossmatch.study.design.hit_packing import pack_hits, split_quiz
from crossmatch.study.design.image_storage import store_pictures
from crossmatch.study.design.new_items import EXAMPLE, GOLD, NewItem, StudyItems, check_gold, require_items
from crossmatch.study.design.result_requirements import require_result
from crossmatch.study.study import list_studies

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")


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


def create_study(
    campaign: Campaign,
    design: Design,
    items: Sequence[NewItem],
    *,
    name: str = "",
    seed: str = "",
    excludes: Iterable[str] = (),
    origin: Mapping[str, Any] | None = None,
) -> int:
    """Write a study to the campaign's database, completely or not at all.

    Returns:
        The id of the study.
    """
    name = name or design.name
    if not NAME.fullmatch(name):
        raise UsageError(f"Invalid study name {name!r}; use lower-case letters, digits and hyphens. Choose another --name.")
    require_items(design, items)
    seed = seed or secrets.token_hex(16)
    work, examples = [new for new in items if new.gold is None], [new for new in items if new.kind == EXAMPLE]
    gold = {kind: [new for new in items if new.kind == kind] for kind in GOLD}
    quiz, gold = split_quiz(design, gold)
    hits = pack_hits(design, work, gold, seed)
    now, name_taken = campaign.now(), UsageError(f"{campaign.folder} already has a study {name!r}. Choose another --name.")
    with campaign.write_transaction(exclusive=False) as connection:  # on PostgreSQL others can write at the same time
        if connection.execute(select(study.c.id).where(study.c.name == name)).first() is not None:
            raise name_taken
        values = {
            "design": design.to_dict(),
            "seed": seed,
            "link": secrets.token_urlsafe(16),
            "origin": dict(origin or {}),
            "at": now,
        }
        try:
            new_row = insert(study).values(name=name, open=True, **values).returning(study.c.id)
            study_id: int = connection.execute(new_row).scalar_one()
        except IntegrityError:  # another process took the name at the same moment
            raise name_taken from None
        excluded_names = list(dict.fromkeys(excludes))
        for excluded in excluded_names:
            excluded_id = connection.execute(select(study.c.id).where(study.c.name == excluded)).scalar()
            if excluded_id is None or excluded_id == study_id:
                raise UsageError(f"--excludes: {campaign.folder} has no study {excluded!r}.")
            pairs = [{"study": study_id, "other": excluded_id}, {"study": excluded_id, "other": study_id}]
            connection.execute(insert(exclusion), pairs)
        _write(connection, design, study_id, hits, quiz, examples)
        counts = {"items": len(items), "hits": len(hits), "people": design.recipe.people, "excludes": excluded_names}
        events.start_chain(connection, study_id, now, name=name, seed=seed, content=content_hash(connection, study_id), **counts)
    return study_id


def _write(
    connection: Connection, design: Design, study_id: int, hits: list[list[NewItem]], quiz: list[NewItem], examples: list[NewItem]
) -> None:
    all_items = {new.key: new for group in (*hits, quiz, examples) for new in group}
    rows = [
        {
            "study": study_id, "key": new.key, "images": list(new.images), "captions": list(new.captions), "block": new.block,
            "gold": None if new.gold is None else check_gold(design, new, new.key), "body": dict(new.details),
            "example": new.kind == EXAMPLE,
        }
        for new in all_items.values()
    ]  # fmt: skip
    item_ids = dict(zip(all_items, _insert_rows(connection, item, rows), strict=True))
    hit_rows = [{"study": study_id, "quiz": False}] * len(hits) + [{"study": study_id, "quiz": True}] * bool(quiz)
    hit_ids = _insert_rows(connection, hit, hit_rows)
    item_places = [
        {"hit": hit_id, "place": place, "item": item_ids[new.key]}
        for hit_id, group in zip(hit_ids, [*hits, *([quiz] if quiz else [])], strict=True)
        for place, new in enumerate(group)
    ]
    connection.execute(insert(hit_item), item_places)
    _write_slots(connection, study_id, design.recipe.people)


def _write_slots(connection: Connection, study_id: int, people: int) -> None:
    """Insert a slot for every required answer, HIT by HIT, in one statement: there may be half a million."""
    counter = select(literal(0).label("n")).cte("counter", recursive=True)
    counter = counter.union_all(select(counter.c.n + 1).where(counter.c.n + 1 < people))
    rows = select(hit.c.study, hit.c.id, counter.c.n, literal("open")).select_from(hit.join(counter, true()))
    rows = rows.where(hit.c.study == study_id, ~hit.c.quiz).order_by(hit.c.id, counter.c.n)
    connection.execute(insert(slot).from_select(["study", "hit", "number", "state"], rows))


def _insert_rows(connection: Connection, table: Any, rows: list[dict[str, Any]]) -> list[int]:
    """Insert rows and return their ids, in order."""
    if not rows:
        return []
    ids = _reserve_ids(connection, table, len(rows))
    connection.execute(insert(table), [{"id": row_id, **row} for row_id, row in zip(ids, rows, strict=True)])
    return ids


def _reserve_ids(connection: Connection, table: Any, n: int) -> list[int]:
    """Reserve n ids at once, which is faster than RETURNING for every row."""
    if connection.dialect.name == "sqlite":  # there is no other writer
        last: int = connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()
        return list(range(last + 1, last + 1 + n))
    counter = func.pg_get_serial_sequence(table.name, "id")
    ids = connection.execute(select(func.nextval(counter)).select_from(func.generate_series(1, n)))
    return sorted(int(number) for number in ids.scalars())
