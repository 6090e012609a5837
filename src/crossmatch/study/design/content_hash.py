"""The hash of a study's content. Its first event contains it, so that later changes of questions or items are detected."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy import Connection, Select, select

from crossmatch.study.database.schema import hit, hit_item, item, study


def content_hash(connection: Connection, study_id: int) -> str:
    """The hash of the design, seed, items and HITs in the tables of a study."""
    digest = hashlib.sha256()
    for query in _content_queries(study_id):
        for row in connection.execute(query, execution_options={"yield_per": 5000}):
            digest.update(json.dumps(list(row), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def _content_queries(study_id: int) -> tuple[Select[Any], ...]:
    item_columns = (item.c.id, item.c.key, item.c.images, item.c.captions, item.c.block, item.c.example, item.c.gold, item.c.body)
    item_places = select(hit_item.c.hit, hit_item.c.place, hit_item.c.item).join(hit, hit.c.id == hit_item.c.hit)
    return (
        select(study.c.name, study.c.design, study.c.seed, study.c.origin).where(study.c.id == study_id),
        select(*item_columns).where(item.c.study == study_id).order_by(item.c.id),
        select(hit.c.id, hit.c.quiz).where(hit.c.study == study_id).order_by(hit.c.id),
        item_places.where(hit.c.study == study_id).order_by(hit_item.c.hit, hit_item.c.place),
    )
