"""What a page is told of a HIT: places instead of names, and nothing by which gold could be known."""

from __future__ import annotations

from typing import Any

from crossmatch.study.design import ONE, Question, Shows, from_told
from crossmatch.study.shown import Hit, Shown, as_declared, shown_item

LETTERS = "ABCDEFGHIJ"


def payload(held: Hit) -> dict[str, Any]:
    """A HIT as json: places instead of names, and no word of what is gold."""
    number, answers = held.draft
    return {
        "claim": held.claim,
        "study": held.name,
        "title": held.design.title,
        "quiz": held.quiz,
        "submitted": held.submitted,
        "lease": held.lease,
        "draft": {"number": number, "answers": answers},
        "items": [_told(held, one, place) for place, one in enumerate(held.items)],
    }


def _told(held: Hit, one: Shown, place: int) -> dict[str, Any]:
    address = f"/h/{held.claim}/picture/{place}"
    return {**_faces(held.design.shows, one, address), "block": one.block}


def _faces(shows: Shows, one: Shown, address: str) -> dict[str, Any]:
    places = _places(shows, len(one.images))
    return {
        "images": [f"{address}/{n}" for n in range(len(one.images))],
        "places": places,
        "labels": list(shows.labels) if len(shows.labels) == len(places) else [],
        "captions": list(one.captions),
        "lists": shows.lists,
        "questions": [_question(q, one, places) for q in one.questions],
    }


def _places(shows: Shows, number: int) -> list[str]:
    """What each picture is called: by its place alone, which gives nothing away.

    >>> _places(Shows(labels=("Left: look here first", "Right")), 2), _places(Shows(), 3)
    (['Left picture', 'Right picture'], ['Picture A', 'Picture B', 'Picture C'])
    >>> _places(Shows(lists=2), 4)
    ['List A, picture 1', 'List A, picture 2', 'List B, picture 1', 'List B, picture 2']
    """
    if shows.lists:
        size = number // shows.lists
        return [f"List {LETTERS[n // size]}, picture {n % size + 1}" for n in range(number)]
    labels = shows.labels if len(shows.labels) == number else ("Left", "Right") if number == 2 else ()
    if labels:
        return [f"{label.partition(':')[0]} picture" for label in labels]
    return ["The picture"] if number == 1 else [f"Picture {_letter(n)}" for n in range(number)]


def _letter(n: int) -> str:
    return LETTERS[n] if n < len(LETTERS) else str(n + 1)


def _question(question: Question, one: Shown, places: list[str]) -> dict[str, Any]:
    side = question.among
    among = [
        {"value": f"{ONE[side]}-{n}", "text": _face(side, one, n, places), "hint": "", "shown": side, "place": n}
        for n in range(one.sizes[side] if side else 0)
    ]
    fixed = [{"value": o.value, "text": o.text, "hint": o.hint, "shown": "", "place": -1} for o in question.options]
    if question.kind == "slider":
        fixed = [
            {**told, "at": (float(o.grade or 0) - question.low) / (question.high - question.low)}
            for told, o in zip(fixed, question.options, strict=True)
        ]
    return {
        "name": question.name, "kind": question.kind, "text": question.text, "options": among + fixed, "low": question.low,
        "high": question.high, "after": question.after, "when": list(question.when),
    }  # fmt: skip


def _face(side: str, one: Shown, n: int, places: list[str]) -> str:
    """What the button of a thing that is shown says."""
    if side == "captions":
        return one.captions[n]
    if side == "lists":
        return f"List {LETTERS[n]}"
    return places[n]


def example(row: Any, one: Any) -> dict[str, Any]:
    """An example with the answer that it should get, in words."""
    design = from_told(row.design)
    shown = shown_item(design, one, row.seed, "example")
    told = _faces(design.shows, shown, "")
    answers = []
    for question in shown.questions:
        accepted = (one.gold or {}).get(question.name, ())
        said = [told_option["text"] for q in told["questions"] if q["name"] == question.name for told_option in q["options"]
                if as_declared(shown, {question.name: told_option["value"]})[question.name] in accepted]  # fmt: skip
        if said:
            answers.append({"question": question.text, "answer": " or ".join(said)})
    seen = {key: told[key] for key in ("captions", "lists", "places", "labels")}
    return {"images": len(shown.images), **seen, "answers": answers, "why": str(one.body.get("why", ""))}
