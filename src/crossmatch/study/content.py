"""What a study asks, as one hash: its first event holds it, so that a question, an item or its gold cannot be changed unseen."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sqlalchemy import Connection, Select, select

from crossmatch.study.schema import hit, hit_item, item, study

MANY = {"yield_per": 5000}


def content_hash(connection: Connection, study_id: int) -> str:
    """The hash of a study's design, seed, items and HITs, as the tables have them."""
    found = hashlib.sha256()
    for asked in _rows(study_id):
        for row in connection.execute(asked, execution_options=MANY):
            found.update(json.dumps(list(row), sort_keys=True).encode() + b"\n")
    return found.hexdigest()


def _rows(study_id: int) -> tuple[Select[Any], ...]:
    shown = (item.c.id, item.c.key, item.c.images, item.c.captions, item.c.block, item.c.example, item.c.gold, item.c.body)
    placed = select(hit_item.c.hit, hit_item.c.place, hit_item.c.item).join(hit, hit.c.id == hit_item.c.hit)
    return (
        select(study.c.name, study.c.design, study.c.seed, study.c.origin).where(study.c.id == study_id),
        select(*shown).where(item.c.study == study_id).order_by(item.c.id),
        select(hit.c.id, hit.c.quiz).where(hit.c.study == study_id).order_by(hit.c.id),
        placed.where(hit.c.study == study_id).order_by(hit_item.c.hit, hit_item.c.place),
    )
