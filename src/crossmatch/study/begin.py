"""A new study: its items packed into HITs, with gold ones among them, and a slot for every answer that is wanted."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, func, insert, literal, select, true
from sqlalchemy.exc import IntegrityError

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.study import events
from crossmatch.study.blind import order
from crossmatch.study.content import content_hash
from crossmatch.study.design import Design, check_answer
from crossmatch.study.schema import exclusion, hit, hit_item, item, slot, study
from crossmatch.study.straight import write_rows

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,60}")
PICTURE = re.compile(r"[^/\\\0]*[^/\\\0.][^/\\\0]*")  # the name of a file, and no way to another folder
LONGEST_CAPTION = 10_000
LONGEST_KEY = 300
GOLD = ("positive", "negative")
EXAMPLE = "example"  # shown with its answer before the work begins, and never asked


@dataclass(frozen=True)
class NewItem:
    """One thing to be judged, before it has a place.

    `gold` says which values must be given to which question, and `kind` whether it is positive or negative gold, or an example;
    items of one `group` stay in one HIT.
    """

    key: str
    images: tuple[str, ...] = ()  # files in the campaign's pictures
    captions: tuple[str, ...] = ()
    block: str = ""
    gold: Mapping[str, tuple[Any, ...]] | None = None
    kind: str = ""
    group: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)


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
    """Write a study into the campaign, whole or not at all; its number."""
    name = name or design.name
    if not NAME.fullmatch(name):
        raise WrongWords(f"the study is called {name!r}; small letters, digits and hyphens were expected. Give it a --name.")
    require_items(design, items)
    seed = seed or secrets.token_hex(16)
    work, examples = [one for one in items if one.gold is None], [one for one in items if one.kind == EXAMPLE]
    gold = {kind: [one for one in items if one.kind == kind] for kind in GOLD}
    quiz, gold = _set_apart(design, gold)
    hits = packed(design, work, gold, seed)
    now, taken = campaign.now(), WrongWords(f"{campaign.folder} has a study called {name!r} already. Give this one another --name.")
    with campaign.writing(turn=False) as connection:  # others work on meanwhile, where the database lets them
        if connection.execute(select(study.c.id).where(study.c.name == name)).first() is not None:
            raise taken
        values = {"design": design.told(), "seed": seed, "link": secrets.token_urlsafe(16), "origin": dict(origin or {}), "at": now}
        new = insert(study).values(name=name, open=True, **values).returning(study.c.id)
        try:
            made: int = connection.execute(new).scalar_one()
        except IntegrityError:  # by another process, in this very moment
            raise taken from None
        others = list(dict.fromkeys(excludes))
        for other in others:
            known = connection.execute(select(study.c.id).where(study.c.name == other)).scalar()
            if known is None or known == made:
                raise WrongWords(f"{campaign.folder} has no study {other!r} whose people could be kept out.")
            pairs = [{"study": made, "other": known}, {"study": known, "other": made}]  # whoever comes first
            connection.execute(insert(exclusion), pairs)
        _write(connection, design, made, hits, quiz, examples)
        told = {"items": len(items), "hits": len(hits), "people": design.recipe.people, "excludes": others}
        events.begin(connection, made, now, name=name, seed=seed, content=content_hash(connection, made), **told)
    return made


def _write(
    connection: Connection, design: Design, made: int, hits: list[list[NewItem]], quiz: list[NewItem], examples: list[NewItem]
) -> None:
    all_items = {one.key: one for each in (*hits, quiz, examples) for one in each}
    rows = [
        {
            "study": made, "key": one.key, "images": list(one.images), "captions": list(one.captions), "block": one.block,
            "gold": None if one.gold is None else checked_gold(design, one, one.key), "body": dict(one.body),
            "example": one.kind == EXAMPLE,
        }
        for one in all_items.values()
    ]  # fmt: skip
    ids = dict(zip(all_items, _numbered(connection, item, rows), strict=True))
    numbers = _numbered(
        connection, hit, [{"study": made, "quiz": False}] * len(hits) + [{"study": made, "quiz": True}] * bool(quiz)
    )
    placed = [
        {"hit": number, "place": place, "item": ids[one.key]}
        for number, each in zip(numbers, [*hits, *([quiz] if quiz else [])], strict=True)
        for place, one in enumerate(each)
    ]
    write_rows(connection, hit_item, placed)
    _write_slots(connection, made, design.recipe.people)


def _write_slots(connection: Connection, made: int, people: int) -> None:
    """A slot for every answer, HIT by HIT, made by the database itself: there may be half a million."""
    counter = select(literal(0).label("n")).cte("counter", recursive=True)
    counter = counter.union_all(select(counter.c.n + 1).where(counter.c.n + 1 < people))
    each = hit.join(counter, true())  # every number for every HIT
    rows = select(hit.c.study, hit.c.id, counter.c.n, literal("open")).select_from(each).where(hit.c.study == made, ~hit.c.quiz)
    rows = rows.order_by(hit.c.id, counter.c.n)
    connection.execute(insert(slot).from_select(["study", "hit", "number", "state"], rows))


def _numbered(connection: Connection, table: Any, rows: list[dict[str, Any]]) -> list[int]:
    """Write rows; the numbers that they got, in their order."""
    if not rows:
        return []
    numbers = _reserved(connection, table, len(rows))
    write_rows(connection, table, [{"id": number, **row} for number, row in zip(numbers, rows, strict=True)])
    return numbers


def _reserved(connection: Connection, table: Any, n: int) -> list[int]:
    """Numbers for so many new rows, in one go; to have the database return each as it is written would take long."""
    if connection.dialect.name == "sqlite":  # nobody else writes
        last: int = connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()
        return list(range(last + 1, last + 1 + n))
    counter = func.pg_get_serial_sequence(table.name, "id")
    made = connection.execute(select(func.nextval(counter)).select_from(func.generate_series(1, n)))
    return sorted(int(number) for number in made.scalars())


def require_items(design: Design, items: Sequence[NewItem]) -> None:
    """Every item must be what the design shows, and gold must be answerable."""
    if not any(one.gold is None for one in items):
        raise CrossmatchError("no item is to be judged. Give a file with at least one that is not gold.")
    seen: set[str] = set()
    for one in items:
        where = f"item {one.key!r}"
        if one.key in seen:
            raise CrossmatchError(f"{where} is listed twice. Give each item a name of its own.")
        seen.add(one.key)
        require_item(design, one, where)
        _require_storable(one, where)


def require_item(design: Design, one: NewItem, where: str) -> None:
    """An item must be what the design shows; `where` begins the message if it is not."""
    if not one.key or len(one.key) > LONGEST_KEY:
        raise CrossmatchError(f"{where} has a name of {len(one.key)} signs; 1 to {LONGEST_KEY} were expected. Give it another one.")
    for side, wanted in (("images", design.shows.images), ("captions", design.shows.captions)):
        number = len(getattr(one, side))
        if wanted >= 0 and number != wanted:
            raise CrossmatchError(f"{where} has {number} {side}, but {design.name} shows {wanted}. Mend it.")
    if not one.images and not one.captions:
        raise CrossmatchError(f"{where} has neither an image nor a caption. Mend it.")
    if design.shows.lists and (not one.images or len(one.images) % design.shows.lists):
        raise CrossmatchError(f"{where} has {len(one.images)} images, which do not make {design.shows.lists} lists. Mend it.")
    long = next((text for text in one.captions if not text.strip() or len(text) > LONGEST_CAPTION), None)
    if long is not None:
        raise CrossmatchError(f"{where} has a caption of {len(long):,} signs; 1 to {LONGEST_CAPTION:,} were expected. Mend it.")
    if (one.block or design.shows.blocks) and one.block not in design.shows.blocks:
        raise CrossmatchError(f"{where} is of block {one.block!r}; one of {', '.join(design.shows.blocks) or 'none'} was expected.")
    if not design.asked(one.block):
        raise CrossmatchError(f"{design.name} asks nothing about {where}. Give it a block that is asked about.")
    if one.gold is not None or one.kind:
        checked_gold(design, one, where)


def _require_storable(one: NewItem, where: str) -> None:
    """No database keeps a zero byte or half a sign, and a picture is a file in the campaign's own folder."""
    for text in (one.key, one.block, one.group, *one.captions):
        if "\0" in text or any("\ud800" <= sign <= "\udfff" for sign in text):
            raise CrossmatchError(f"{where} has signs that cannot be kept: a zero byte, or half a sign. Take them out.")
    strange = next((name for name in one.images if not PICTURE.fullmatch(name)), None)
    if strange is not None:
        raise CrossmatchError(f"{where}: {strange!r} is no picture of the campaign. Store it there first.")


def checked_gold(design: Design, one: NewItem, where: str) -> dict[str, list[Any]]:
    """The values that gold accepts, as answers would have them."""
    if one.kind not in (*GOLD, EXAMPLE):
        raise CrossmatchError(f"{where} is gold of kind {one.kind!r}; positive, negative or example was expected.")
    if one.gold is None or (not one.gold and one.kind in GOLD):
        raise CrossmatchError(f"{where} is of kind {one.kind}, but does not say how it must be answered. Give its gold.")
    questions = {q.name: q for q in design.asked(one.block)}
    sizes = {"images": len(one.images), "captions": len(one.captions), "lists": design.shows.lists}
    out: dict[str, list[Any]] = {}
    for name, accepted in one.gold.items():
        if name not in questions or questions[name].kind == "slider" or not accepted:
            raise CrossmatchError(f"{where} has gold for {name!r}, which is no choice that is asked about it. Mend it.")
        try:
            out[name] = [check_answer((questions[name],), sizes, {name: value})[name] for value in accepted]
        except CrossmatchError as error:
            raise CrossmatchError(f"{where} is gold, but {error}") from None
    return out


def packed(design: Design, work: Sequence[NewItem], gold: Mapping[str, Sequence[NewItem]], seed: str) -> list[list[NewItem]]:
    """Items in HITs, in their order, with as many gold ones in each as the recipe asks for; none twice in a HIT.

    Gold items are used in a random order, each once before any is used again.
    """
    wanted = {"positive": design.recipe.gold_positive, "negative": design.recipe.gold_negative}
    bags = {kind: _bag(gold.get(kind, ()), seed, kind) for kind in GOLD}
    for kind, number in wanted.items():
        if number > len(bags[kind]):
            raise CrossmatchError(
                f"a HIT needs {number} gold items of kind {kind}, but there are {len(bags[kind])}. Add some, or ask for none: "
                f"--set recipe.gold_{kind}=0"
            )
    hits: list[list[NewItem]] = []
    groups: dict[tuple[str, str], list[NewItem]] = {}  # in the order of the first of each
    for one in work:
        groups.setdefault((one.group, "" if one.group else one.key), []).append(one)
    for together in groups.values():
        if len(together) > design.recipe.batch:
            raise CrossmatchError(f"{len(together)} items belong together, but a HIT has {design.recipe.batch}. Set recipe.batch.")
        if not hits or len(hits[-1]) + len(together) > design.recipe.batch:
            hits.append([])
        hits[-1] += together
    for n, each in enumerate(hits):
        for kind, number in wanted.items():
            each += [bags[kind][(n * number + k) % len(bags[kind])] for k in range(number)]
    return hits


def _bag(gold: Sequence[NewItem], seed: str, kind: str) -> list[NewItem]:
    return [gold[n] for n in order(len(gold), seed, "gold", kind)]


def _set_apart(design: Design, gold: dict[str, list[NewItem]]) -> tuple[list[NewItem], dict[str, list[NewItem]]]:
    """The quiz, half of it positive, and the gold that is left for HITs."""
    wanted = design.recipe.quiz
    if not wanted:
        return [], gold
    half = {"positive": wanted - wanted // 2, "negative": wanted // 2}
    short = next((kind for kind in GOLD if len(gold[kind]) < half[kind]), None)
    if short:
        raise CrossmatchError(
            f"a quiz of {wanted} needs {half[short]} gold items of kind {short}; there are {len(gold[short])}. Add some."
        )
    quiz = [one for kind in GOLD for one in gold[kind][: half[kind]]]
    return quiz, {kind: gold[kind][half[kind] :] for kind in GOLD}
