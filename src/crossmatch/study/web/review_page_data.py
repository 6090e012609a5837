"""Data for the review pages: a HIT as its annotator saw it, and items with the answers of everybody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from crossmatch.study.assignment import displayed_hits
from crossmatch.study.assignment.displayed_hits import DisplayedItem, NotFoundError
from crossmatch.study.database import events
from crossmatch.study.database.schema import claim, event, person, slot
from crossmatch.study.design.declaration import Question
from crossmatch.study.results.event_columns import Snapshot
from crossmatch.study.results.statistics_cache import StudyFigures
from crossmatch.study.web import value_formatting
from crossmatch.study.web.hit_json import hit_as_json


def load_names(connection: Connection, people: Iterable[int]) -> dict[int, str]:
    """The names of people by id."""
    ids = sorted({int(person_id) for person_id in people})
    names: dict[int, str] = {}
    for n in range(0, len(ids), 500):
        rows = connection.execute(select(person.c.id, person.c.key).where(person.c.id.in_(ids[n : n + 500])))
        names |= {row.id: row.key for row in rows}
    return names


# -- one HIT


def load_claim(connection: Connection, study_id: int, claim_id: str) -> Any:
    """The row of a claim on a HIT of this study."""
    row = connection.execute(select(claim).where(claim.c.id == claim_id, claim.c.study == study_id)).first()
    if row is None:
        raise NotFoundError("This study has no such HIT. Go back to the study.")
    return row


def find_rejected_claim(connection: Connection, study_id: int, claim_id: str) -> Any:
    """The claim that was just rejected or reassigned, so that the page can offer to undo it."""
    query = select(claim).where(claim.c.id == claim_id, claim.c.study == study_id, claim.c.verdict.in_(("reject", "reassign")))
    return connection.execute(query).first()


def load_slot_state(connection: Connection, row: Any) -> str | None:
    """The state of the slot of a claim; None if the slot has gone to somebody else, or for a quiz."""
    state = connection.execute(select(slot.c.state).where(slot.c.id == row.slot, slot.c.claim == row.id)).scalar()
    return None if state is None else str(state)


def load_submitted_hit(connection: Connection, row: Any) -> dict[str, Any]:
    """A HIT with everything that its annotator saw, in the same order, and the answers."""
    submitted = displayed_hits.load_hit(connection, row.id, None)
    body = events.read_body(connection, row.study, row.event) if row.event is not None else {}
    answers = {answer["item"]: answer["answer"] for answer in body.get("answers", ())}
    times = body.get("seconds") or [None] * len(submitted.items)
    displayed_items = hit_as_json(submitted)["items"]
    items = [
        {"number": n, **_answered_item(displayed, item_json, answers.get(displayed.item_id), seconds)}
        for n, (displayed, item_json, seconds) in enumerate(zip(submitted.items, displayed_items, times, strict=True), 1)
    ]
    return {"items": items, "late": body.get("late", False), "quiz": submitted.is_quiz, "wrong": body.get("wrong", [])}


def _answered_item(
    displayed: DisplayedItem, item_json: Mapping[str, Any], answer: Mapping[str, Any] | None, seconds: float | None
) -> dict[str, Any]:
    gold = displayed.gold or {}
    questions = {question["name"]: question for question in item_json["questions"]}
    lines = [
        {
            "question": question.text,
            "answer": _texts_of(displayed, question, questions[question.name], value_formatting.values_of(answer or {}, question)),
            "expected": _texts_of(displayed, question, questions[question.name], list(gold.get(question.name, ())), " or "),
        }
        for question in displayed.questions
        if answer is None or question.name in answer or question.name in gold
    ]
    is_right = None if displayed.gold is None or answer is None else displayed_hits.is_gold_correct(displayed, answer)
    return {
        "key": displayed.key,
        "gold": displayed.gold is not None,
        "right": is_right,
        "lines": lines,
        "seconds": seconds,
        **item_json,
    }


def _texts_of(
    displayed: DisplayedItem, question: Question, question_json: Mapping[str, Any], values: list[Any], separator: str = ", "
) -> str:
    """Answers as the texts that were on the page."""
    if question.kind == "slider":
        return separator.join(value_formatting.format_slider(question, float(value)) for value in values)
    texts = {
        displayed_hits.to_declared_places(displayed, {question.name: option["value"]})[question.name]: option["text"]
        for option in question_json["options"]
    }
    return separator.join(texts.get(value, str(value)) for value in values)


# -- items with disagreement


def load_disagreement(
    connection: Connection, study_id: int, figures: StudyFigures, start: int, number: int
) -> list[dict[str, Any]]:
    """Some of the items with the largest disagreement, with the counted answers of each person."""
    snapshot, ranking = figures.snapshot, figures.disagreement
    answers = snapshot.answers
    rows = np.flatnonzero(snapshot.is_compared & np.isin(answers.item, ranking.item[start : start + number]))
    names = load_names(connection, snapshot.person[rows])
    numbers = sorted({int(n) for n in snapshot.hits.event[answers.hit_row[rows]]})
    query = select(event.c.number, event.c.claim).where(event.c.study == study_id, event.c.number.in_(numbers))
    claims = {row.number: row.claim for row in connection.execute(query)}
    items = []
    for item, spread in zip(ranking.item[start : start + number], ranking.spread[start : start + number], strict=True):
        item_rows = rows[answers.item[rows] == item]
        claim_id, at = claims[int(snapshot.hits.event[answers.hit_row[item_rows[0]]])], int(answers.at[item_rows[0]])
        people = [_person_answer(snapshot, row, names, claims) for row in item_rows.tolist()]
        displayed = displayed_hits.load_hit(connection, claim_id, None).items[at]
        items.append(
            {
                "spread": float(spread),
                "question": snapshot.questions[int(answers.question[item_rows[0]])].question,
                "answers": sorted(people, key=lambda answer: (answer["value"], answer["name"])),
                **_in_declared_order(displayed, claim_id, at),
            }
        )
    return items


def _person_answer(snapshot: Snapshot, row: int, names: Mapping[int, str], claims: Mapping[int, str]) -> dict[str, Any]:
    person_id, value = int(snapshot.person[row]), float(snapshot.answers.value[row])
    question = snapshot.questions[int(snapshot.answers.question[row])]
    answer = value if snapshot.is_slider else question.answer_names[int(value)]
    return {
        "person": person_id,
        "name": names[person_id],
        "claim": claims[int(snapshot.hits.event[snapshot.answers.hit_row[row]])],
        "value": value,
        "text": value_formatting.format_declared(question.question, answer),
    }


def _in_declared_order(displayed: DisplayedItem, claim_id: str, at: int) -> dict[str, Any]:
    """An item in its declared order; its images have the addresses of a HIT with this item."""
    image_order, caption_order = displayed.orders["images"], displayed.orders["captions"]
    images = [f"/h/{claim_id}/picture/{at}/{image_order.index(n)}" for n in range(len(displayed.images))]
    captions = [displayed.captions[caption_order.index(n)] for n in range(len(displayed.captions))]
    return {"key": displayed.key, "images": images, "captions": captions, "lists": len(displayed.orders["lists"])}
