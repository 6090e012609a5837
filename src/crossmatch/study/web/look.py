"""What owners and reviewers look at: a HIT as its person saw it, with the answers; and items with everybody's answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from crossmatch.study import events, shown
from crossmatch.study.design import Question
from crossmatch.study.live import Figures
from crossmatch.study.schema import claim, event, person, slot
from crossmatch.study.shown import NotYours, Shown
from crossmatch.study.tally import Snapshot
from crossmatch.study.web import words
from crossmatch.study.web.faces import payload


def names_of(connection: Connection, people: Iterable[int]) -> dict[int, str]:
    """What people are called."""
    ids = sorted({int(each) for each in people})
    found: dict[int, str] = {}
    for n in range(0, len(ids), 500):
        rows = connection.execute(select(person.c.id, person.c.key).where(person.c.id.in_(ids[n : n + 500])))
        found |= {row.id: row.key for row in rows}
    return found


# -- one HIT


def claim_of(connection: Connection, study_id: int, claim_id: str) -> Any:
    """The row of a claim on a HIT of this study."""
    row = connection.execute(select(claim).where(claim.c.id == claim_id, claim.c.study == study_id)).first()
    if row is None:
        raise NotYours("there is no such HIT in this study. Go back to the study.")
    return row


def rejected_before(connection: Connection, study_id: int, claim_id: str) -> Any:
    """The HIT of which somebody just said that its answers do not count, so that it can be taken back at once."""
    asked = select(claim).where(claim.c.id == claim_id, claim.c.study == study_id, claim.c.verdict.in_(("reject", "reassign")))
    return connection.execute(asked).first()


def slot_state(connection: Connection, row: Any) -> str | None:
    """What has become of the slot of a claim; nothing if it is another's by now, or if it was a quiz."""
    found = connection.execute(select(slot.c.state).where(slot.c.id == row.slot, slot.c.claim == row.id)).scalar()
    return None if found is None else str(found)


def seen_hit(connection: Connection, row: Any) -> dict[str, Any]:
    """A HIT with everything that its person saw, in the same order, and what they answered."""
    held = shown.load_hit(connection, row.id, None)
    told = payload(held)
    body = events.body(connection, row.study, row.event) if row.event is not None else {}
    given = {each["item"]: each["answer"] for each in body.get("answers", ())}
    seconds = body.get("seconds") or [None] * len(held.items)
    items = [
        {"number": n, **_seen_item(one, faces, given.get(one.item), took)}
        for n, (one, faces, took) in enumerate(zip(held.items, told["items"], seconds, strict=True), 1)
    ]
    return {"items": items, "late": body.get("late", False), "quiz": held.quiz, "wrong": body.get("wrong", []), "held": held}


def _seen_item(one: Shown, faces: Mapping[str, Any], answer: Mapping[str, Any] | None, took: float | None) -> dict[str, Any]:
    gold = one.gold or {}
    asked = {told["name"]: told for told in faces["questions"]}
    lines = [
        {
            "question": question.text,
            "answer": _in_words(one, question, asked[question.name], words.values_in(answer or {}, question)),
            "expected": _in_words(one, question, asked[question.name], list(gold.get(question.name, ())), " or "),
        }
        for question in one.questions
        if answer is None or question.name in answer or question.name in gold
    ]
    right = None if one.gold is None or answer is None else shown.right(one, answer)
    return {"key": one.key, "gold": one.gold is not None, "right": right, "lines": lines, "seconds": took, **faces}


def _in_words(one: Shown, question: Question, told: Mapping[str, Any], values: list[Any], join: str = ", ") -> str:
    """Answers by the texts that stood on the page."""
    if question.kind == "slider":
        return join.join(words.on_slider(question, float(value)) for value in values)
    texts = {_declared(one, question, option["value"]): option["text"] for option in told["options"]}
    return join.join(texts.get(value, str(value)) for value in values)


def _declared(one: Shown, question: Question, value: Any) -> Any:
    return shown.as_declared(one, {question.name: value})[question.name]


# -- items on which people differ


def differing_items(connection: Connection, study_id: int, figures: Figures, start: int, number: int) -> list[dict[str, Any]]:
    """Some of the items on which people differ most, with what each person answered that counts."""
    seen, most = figures.seen, figures.differing
    rows = np.flatnonzero(seen.alike & np.isin(seen.said.item, most.item[start : start + number]))
    names = names_of(connection, seen.person[rows])
    numbers = sorted({int(n) for n in seen.work.event[seen.said.work[rows]]})
    found = connection.execute(select(event.c.number, event.c.claim).where(event.c.study == study_id, event.c.number.in_(numbers)))
    claims = {row.number: row.claim for row in found}
    out = []
    for item, spread in zip(most.item[start : start + number], most.spread[start : start + number], strict=True):
        mine = rows[seen.said.item[rows] == item]
        token, at = claims[int(seen.work.event[seen.said.work[mine[0]]])], int(seen.said.at[mine[0]])
        answers = [_answer(seen, row, names, claims) for row in mine.tolist()]
        told = {
            "spread": float(spread),
            "question": seen.asked[int(seen.said.question[mine[0]])].question,
            "answers": sorted(answers, key=lambda each: (each["value"], each["name"])),
        }
        out.append({**told, **_as_declared(shown.load_hit(connection, token, None).items[at], token, at)})
    return out


def _answer(seen: Snapshot, row: int, names: Mapping[int, str], claims: Mapping[int, str]) -> dict[str, Any]:
    who, value = int(seen.person[row]), float(seen.said.value[row])
    asked = seen.asked[int(seen.said.question[row])]
    return {
        "person": who,
        "name": names[who],
        "claim": claims[int(seen.work.event[seen.said.work[row]])],
        "value": value,
        "text": words.declared(asked.question, value if seen.slides else asked.names[int(value)]),
    }


def _as_declared(one: Shown, token: str, at: int) -> dict[str, Any]:
    """An item in the order in which it was declared, its pictures by the address in a HIT that has it."""
    images = [f"/h/{token}/picture/{at}/{one.orders['images'].index(n)}" for n in range(len(one.images))]
    captions = [one.captions[one.orders["captions"].index(n)] for n in range(len(one.captions))]
    return {"key": one.key, "images": images, "captions": captions, "lists": len(one.orders["lists"])}
