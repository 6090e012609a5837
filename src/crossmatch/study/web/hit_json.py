"""The JSON of a HIT for the annotator's page. Images have addresses by place, and nothing reveals gold questions."""

from __future__ import annotations

from typing import Any

from crossmatch.study.assignment.displayed_hits import DisplayedItem, Hit, display_item, to_declared_places
from crossmatch.study.design.declaration import DisplaySettings, Question, design_from_dict
from crossmatch.study.design.places import Place

LETTERS = "ABCDEFGHIJ"


def hit_as_json(claimed: Hit) -> dict[str, Any]:
    """A HIT as the page gets it."""
    return {
        "claim": claimed.claim_id,
        "study": claimed.study_name,
        "title": claimed.design.title,
        "quiz": claimed.is_quiz,
        "submitted": claimed.is_submitted,
        "lease": claimed.lease_end,
        "draft": {"number": claimed.draft_number, "answers": claimed.draft_answers},
        "items": [
            {**_item_as_json(claimed.design.shows, item, f"/h/{claimed.claim_id}/picture/{place}"), "block": item.block}
            for place, item in enumerate(claimed.items)
        ],
    }


def _item_as_json(settings: DisplaySettings, item: DisplayedItem, address: str) -> dict[str, Any]:
    names = _image_names(settings, len(item.images))
    return {
        "images": [f"{address}/{n}" for n in range(len(item.images))],
        "places": names,
        "labels": list(settings.labels) if len(settings.labels) == len(names) else [],
        "captions": list(item.captions),
        "lists": settings.lists,
        "questions": [_question_as_json(question, item, names) for question in item.questions],
    }


def _image_names(settings: DisplaySettings, number: int) -> list[str]:
    """The names of the images on the page, by place.

    >>> _image_names(DisplaySettings(labels=("Left: look here first", "Right")), 2), _image_names(DisplaySettings(), 3)
    (['Left image', 'Right image'], ['Image A', 'Image B', 'Image C'])
    >>> _image_names(DisplaySettings(lists=2), 4)
    ['List A, image 1', 'List A, image 2', 'List B, image 1', 'List B, image 2']
    """
    if settings.lists:
        size = number // settings.lists
        return [f"List {LETTERS[n // size]}, image {n % size + 1}" for n in range(number)]
    labels = settings.labels if len(settings.labels) == number else ("Left", "Right") if number == 2 else ()
    if labels:
        return [f"{label.partition(':')[0]} image" for label in labels]
    return ["The image"] if number == 1 else [f"Image {LETTERS[n] if n < len(LETTERS) else n + 1}" for n in range(number)]


def _question_as_json(question: Question, item: DisplayedItem, image_names: list[str]) -> dict[str, Any]:
    side = question.among
    choices = [
        {
            "value": Place(side, n).value,
            "text": _choice_text(side, item, n, image_names),
            "hint": "",
            "shown": side,
            "place": n,
        }
        for n in range(item.counts[side] if side else 0)
    ]
    options: list[dict[str, Any]] = [
        {"value": option.value, "text": option.text, "hint": option.hint, "shown": "", "place": -1} for option in question.options
    ]
    if question.kind == "slider":
        for option_json, option in zip(options, question.options, strict=True):
            option_json["at"] = (float(option.grade or 0) - question.low) / (question.high - question.low)
    return {
        "name": question.name,
        "kind": question.kind,
        "text": question.text,
        "options": choices + options,
        "low": question.low,
        "high": question.high,
        "after": question.after,
        "when": list(question.when),
    }


def _choice_text(side: str, item: DisplayedItem, n: int, image_names: list[str]) -> str:
    """The text of an image, caption or list that can be chosen."""
    if side == "captions":
        return item.captions[n]
    return f"List {LETTERS[n]}" if side == "lists" else image_names[n]


def example_as_json(study_row: Any, item_row: Any) -> dict[str, Any]:
    """An example with its expected answer."""
    design = design_from_dict(study_row.design)
    displayed = display_item(design, item_row, study_row.seed, "example")
    item_json = _item_as_json(design.shows, displayed, "")
    answers = []
    for question, question_json in zip(displayed.questions, item_json["questions"], strict=True):
        accepted = (item_row.gold or {}).get(question.name, ())
        texts = [
            option["text"]
            for option in question_json["options"]
            if to_declared_places(displayed, {question.name: option["value"]})[question.name] in accepted
        ]
        if texts:
            answers.append({"question": question.text, "answer": " or ".join(texts)})
    return {
        "images": len(displayed.images),
        **{key: item_json[key] for key in ("captions", "lists", "places", "labels")},
        "answers": answers,
        "why": str(item_row.body.get("why", "")),
    }
