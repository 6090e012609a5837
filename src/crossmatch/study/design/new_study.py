"""Creates a study: packs items and gold questions into HITs, and writes a slot for every required answer."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, insert, literal, select, true
from sqlalchemy.exc import IntegrityError

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.assignment.hits import shuffled_order
from crossmatch.study.database import events
from crossmatch.study.database.schema import exclusion, hit, hit_item, item, slot, study
from crossmatch.study.design.content_hash import content_hash
from crossmatch.study.design.declaration import Design, check_answer

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
IMAGE_FILE = re.compile(r"[^/\\\0]*[^/\\\0.][^/\\\0]*")  # a file name, not a path to another folder
MAX_CAPTION_LENGTH = 10_000
MAX_KEY_LENGTH = 300
GOLD = ("positive", "negative")
EXAMPLE = "example"  # displayed with its answer before the work begins, and never asked


@dataclass(frozen=True)
class NewItem:
    """An item of a study that is to be created.

    Attributes:
        images: Files in the campaign's image folder.
        gold: The accepted values by question; None for an item to be judged.
        kind: `positive` or `negative` for gold, `example`, or empty.
        group: Items of one group stay in one HIT.
    """

    key: str
    images: tuple[str, ...] = ()
    captions: tuple[str, ...] = ()
    block: str = ""
    gold: Mapping[str, tuple[Any, ...]] | None = None
    kind: str = ""
    group: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


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
    quiz, gold = _split_quiz(design, gold)
    hits = pack_hits(design, work, gold, seed)
    now, name_taken = campaign.now(), UsageError(f"{campaign.folder} already has a study {name!r}. Choose another --name.")
    with campaign.write_transaction(exclusive=False) as connection:  # on PostgreSQL others can write meanwhile
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


def require_items(design: Design, items: Sequence[NewItem]) -> None:
    """Check that every item fits the design, and that gold questions can be answered."""
    if all(new.gold is not None for new in items):
        raise CrossmatchError("All items are gold questions or examples. Add at least one item to be judged.")
    used_keys: set[str] = set()
    for new in items:
        where = f"item {new.key!r}"
        if new.key in used_keys:
            raise CrossmatchError(f"{where} is listed twice. Give each item its own id.")
        used_keys.add(new.key)
        require_item(design, new, where)
        _require_storable(new, where)


def require_item(design: Design, new: NewItem, where: str) -> None:
    """Check that an item fits the design; `where` begins the error message."""
    if not 1 <= len(new.key) <= MAX_KEY_LENGTH:
        raise CrossmatchError(f"{where} has an id of {len(new.key)} characters; use 1 to {MAX_KEY_LENGTH}.")
    for side, expected in (("images", design.shows.images), ("captions", design.shows.captions)):
        number = len(getattr(new, side))
        if expected >= 0 and number != expected:
            raise CrossmatchError(f"{where} has {number} {side}, but {design.name} shows {expected}. Correct it.")
    if not new.images and not new.captions:
        raise CrossmatchError(f"{where} has neither an image nor a caption. Add one.")
    if design.shows.lists and (not new.images or len(new.images) % design.shows.lists):
        raise CrossmatchError(
            f"{where} has {len(new.images)} images, which cannot be divided into {design.shows.lists} lists. Correct it."
        )
    for text in new.captions:
        if not text.strip() or len(text) > MAX_CAPTION_LENGTH:
            raise CrossmatchError(f"{where} has a caption of {len(text):,} characters; use 1 to {MAX_CAPTION_LENGTH:,}.")
    if (new.block or design.shows.blocks) and new.block not in design.shows.blocks:
        blocks = ", ".join(design.shows.blocks) or "none"
        raise CrossmatchError(f"{where} has the block {new.block!r}, but the blocks of {design.name} are: {blocks}. Correct it.")
    if not design.questions_for(new.block):
        raise CrossmatchError(f"{where}: {design.name} has no question for its block {new.block!r}. Choose another block.")
    if new.gold is not None or new.kind:
        check_gold(design, new, where)


def _require_storable(new: NewItem, where: str) -> None:
    """Check for characters that databases cannot store, and that images are files of the campaign."""
    for text in (new.key, new.block, new.group, *new.captions):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise CrossmatchError(f"{where} has characters that cannot be stored: a zero byte, or a lone surrogate. Remove them.")
    for name in new.images:
        if not IMAGE_FILE.fullmatch(name):
            raise CrossmatchError(f"{where}: {name!r} is not an image file of the campaign. Store it there first.")


def check_gold(design: Design, new: NewItem, where: str) -> dict[str, list[Any]]:
    """The accepted values of a gold question, checked like answers."""
    if new.kind not in (*GOLD, EXAMPLE):
        raise CrossmatchError(f"{where} has gold answers but the kind {new.kind!r}; use positive, negative or example.")
    if new.gold is None or (not new.gold and new.kind in GOLD):
        raise CrossmatchError(f"{where} has the kind {new.kind}, but no accepted answer. Add its gold.")
    questions = {question.name: question for question in design.questions_for(new.block)}
    counts = {"images": len(new.images), "captions": len(new.captions), "lists": design.shows.lists}
    checked: dict[str, list[Any]] = {}
    for name, accepted in new.gold.items():
        if name not in questions or questions[name].kind == "slider" or not accepted:
            raise CrossmatchError(f"{where} has gold for {name!r}, which is not a choice question about this item. Correct it.")
        try:
            checked[name] = [check_answer((questions[name],), counts, {name: value})[name] for value in accepted]
        except CrossmatchError as error:
            raise CrossmatchError(f"{where} has invalid gold: {error}") from None
    return checked


def pack_hits(design: Design, work: Sequence[NewItem], gold: Mapping[str, Sequence[NewItem]], seed: str) -> list[list[NewItem]]:
    """Pack items into HITs in their order, each with the number of gold items that the recipe declares.

    Gold items are used in a random order, each once before any is used again.
    """
    gold_counts = {"positive": design.recipe.gold_positive, "negative": design.recipe.gold_negative}
    shuffled_gold: dict[str, list[NewItem]] = {}
    for kind, number in gold_counts.items():
        available = gold.get(kind, ())
        if number > len(available):
            raise CrossmatchError(
                f"a HIT needs {number} gold items of kind {kind}, but there are {len(available)}. Add some, or use none: "
                f"--set recipe.gold_{kind}=0"
            )
        shuffled_gold[kind] = [available[n] for n in shuffled_order(len(available), seed, "gold", kind)]
    groups: dict[tuple[str, str], list[NewItem]] = {}
    for new in work:
        groups.setdefault((new.group, "" if new.group else new.key), []).append(new)
    hits: list[list[NewItem]] = []
    for group in groups.values():
        if len(group) > design.recipe.batch:
            raise CrossmatchError(
                f"group {group[0].group!r} has {len(group)} items, but a HIT has {design.recipe.batch}. Set recipe.batch."
            )
        if not hits or len(hits[-1]) + len(group) > design.recipe.batch:
            hits.append([])
        hits[-1] += group
    for n, packed in enumerate(hits):
        for kind, number in gold_counts.items():
            packed += [shuffled_gold[kind][(n * number + k) % len(shuffled_gold[kind])] for k in range(number)]
    return hits


def _split_quiz(design: Design, gold: dict[str, list[NewItem]]) -> tuple[list[NewItem], dict[str, list[NewItem]]]:
    """The gold items of the quiz, half of them positive, and those that are left for HITs."""
    size = design.recipe.quiz
    counts = {"positive": size - size // 2, "negative": size // 2}
    for kind, number in counts.items():
        if len(gold[kind]) < number:
            raise CrossmatchError(
                f"a quiz of {size} needs {number} gold items of kind {kind}; there are {len(gold[kind])}. Add some."
            )
    quiz = [new for kind in GOLD for new in gold[kind][: counts[kind]]]
    return quiz, {kind: gold[kind][counts[kind] :] for kind in GOLD}
