"""Items for every preset from the embedded world, with examples and gold questions, for demos and simulations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.design.data_source import is_world, world_of
from crossmatch.study.design.declaration import Design
from crossmatch.study.design.item_files import accepted_by_grade
from crossmatch.study.design.new_items import EXAMPLE, GOLD, NewItem, StudyItems
from crossmatch.study.design.places import parse_place
from crossmatch.study.simulation.correct_answers import CorrectAnswer, ViewedItem, WorldTruth, correct_answer
from crossmatch.study.simulation.item_generators import DEFAULT_COUNTS, GENERATORS, UNUSUAL_EVERY, ItemFactory

DEFAULT_DATA = "diorama:tiny"
MAX_EXAMPLES = 3  # at most
GOLD_PER_KIND = 12  # a person can do this many HITs with one gold item each
EXTRA_ITEMS = 2 * MAX_EXAMPLES * UNUSUAL_EVERY + 8 * GOLD_PER_KIND  # additional items, for examples and gold


def world_items(design: Design, data_name: str = DEFAULT_DATA, n: int = 0, factory: ItemFactory | None = None) -> StudyItems:
    """Items for a preset from the embedded world, with examples and gold; `n` items, or as many as a small study has."""
    if design.name not in GENERATORS:
        raise UsageError(
            f"The embedded world has no items for {design.name!r}, only for {', '.join(GENERATORS)}. Give a file: --items"
        )
    factory = factory or ItemFactory(world_of(data_name))
    candidates = _make_items(factory, design.name, n)
    number = n or DEFAULT_COUNTS[design.name]
    examples, rest = _examples(design, candidates, factory.truth)
    gold, rest = _gold(design, rest, factory.truth)
    work = _first_groups(rest, number)
    if n and len(work) < number:
        raise UsageError(
            f"{data_name} has {len(work)} items for {design.name}, fewer than {n}. Choose a larger size, or fewer items."
        )
    return StudyItems((*work, *gold, *examples), factory.picture, _origin(data_name, design, n, factory))


def _origin(data_name: str, design: Design, n: int, factory: ItemFactory) -> dict[str, Any]:
    return {"data": data_name, "preset": design.name, "n": n, "digest": factory.world.digest()}


def truth_of(origin: Mapping[str, Any]) -> WorldTruth | None:
    """The truth about a study whose items came from the embedded world; None for other studies."""
    if not is_world(origin.get("data")):
        return None
    factory = ItemFactory(world_of(str(origin["data"])))
    if origin.get("digest") not in (None, factory.world.digest()):
        raise CrossmatchError(
            "The embedded world has changed since this study was created. Use the version of crossmatch that created it."
        )
    if origin.get("preset") in GENERATORS:
        _make_items(factory, str(origin["preset"]), int(origin.get("n") or 0))
    return factory.truth


def _make_items(factory: ItemFactory, name: str, n: int) -> list[NewItem]:
    """More items than required, because examples and gold are taken from them. The factory records their truth."""
    return list(islice(GENERATORS[name](factory), EXTRA_ITEMS + (n or DEFAULT_COUNTS[name])))


def _answer(design: Design, item: NewItem, truth: WorldTruth) -> CorrectAnswer:
    right = correct_answer(design.name, ViewedItem(item.images, item.captions, design.shows.lists), truth)
    assert right is not None
    return right


def _examples(design: Design, candidates: list[NewItem], truth: WorldTruth) -> tuple[list[NewItem], list[NewItem]]:
    """An example for each of the first answers in `EXPLANATIONS`, and the other items."""
    item_by_kind: dict[str, NewItem] = {}
    for item in candidates:
        item_by_kind.setdefault(_answer_kind(design, _answer(design, item, truth)), item)
    kinds = [kind for kind in EXPLANATIONS[design.name] if kind in item_by_kind][:MAX_EXAMPLES]
    keys = {item_by_kind[kind].group or item_by_kind[kind].key for kind in kinds}
    examples = [_example(design, item_by_kind[kind], kind, truth) for kind in kinds]
    return examples, [item for item in candidates if (item.group or item.key) not in keys]


def _answer_kind(design: Design, right: CorrectAnswer) -> str:
    """The kind of an answer: an option, `image`, `caption` or `list`, or the nearest anchor of a slider."""
    if isinstance(right, float):
        return min(design.main_question.options, key=lambda option: abs((option.grade or 0.0) - right)).value
    place = parse_place(right[0])
    return place.noun if place else right[0]


def _example(design: Design, item: NewItem, kind: str, truth: WorldTruth) -> NewItem:
    right = _answer(design, item, truth)
    gold = {} if isinstance(right, float) else {design.questions_for(item.block)[0].name: right}
    why = EXPLANATIONS[design.name].get(kind, "")
    if isinstance(right, float):
        why = f"The expected position is near “{next(o.text for o in design.main_question.options if o.value == kind)}”. {why}".strip()
    return replace(item, kind=EXAMPLE, gold=gold, group="", details={**item.details, "why": why})


def _gold(design: Design, candidates: list[NewItem], truth: WorldTruth) -> tuple[list[NewItem], list[NewItem]]:
    """Gold of the kinds in the recipe, taken from the end, and the other items."""
    recipe = design.recipe
    required = {"positive": recipe.gold_positive or recipe.quiz, "negative": recipe.gold_negative or recipe.quiz}
    gold_items: list[NewItem] = []
    for kind in GOLD:
        fitting = [item for item in reversed(candidates) if required[kind] and _kind(design, _answer(design, item, truth)) == kind]
        for item in fitting[:GOLD_PER_KIND]:
            question = design.questions_for(item.block)[0]
            graded = any(option.grade == 0 for option in question.options)
            accepted: Any = accepted_by_grade(question, kind, item.key) if graded else _answer(design, item, truth)
            gold_items.append(replace(item, kind=kind, gold={question.name: accepted}, group=""))
    taken = {item.key for item in gold_items}
    return gold_items, [item for item in candidates if item.key not in taken]


def _kind(design: Design, right: CorrectAnswer) -> str:
    """The kind of gold that an answer is clear enough for, or an empty text."""
    if isinstance(right, float):
        return ""
    graded = {option.value: option.grade for option in design.main_question.options if option.grade is not None}
    if graded:
        best, worst = max(graded, key=graded.__getitem__), list(graded)[-1 if min(graded.values()) == 0 else 0]
        return {best: "positive", worst: "negative"}.get(right[0], "")
    return "negative" if right[0] in ("none", "neither") else "positive"


def _first_groups(candidates: list[NewItem], number: int) -> list[NewItem]:
    """The first items, without incomplete groups."""
    groups: dict[str, list[NewItem]] = {}
    for item in candidates:
        groups.setdefault(item.group or item.key, []).append(item)
    out: list[NewItem] = []
    for group in groups.values():
        if len(out) + len(group) <= number:
            out += group
    return out


EXPLANATIONS: Mapping[str, Mapping[str, str]] = {  # explanations of examples by answer, in the order of display
    "bison-select": {
        "caption": "Everything in this sentence is true of the left picture, and something in it is false for the right one.",
        "none": "The pictures show the same scene, so every sentence fits both.",
    },
    "bison-verify": {
        "image": "Everything in the sentence is true of this picture, and something in it is false for the other one.",
        "both": "Everything in the sentence is true of both pictures. The drawing style does not matter.",
    },
    "caption-correctness": {
        "5": "Everything in it is true.",
        "3": "One of the things that it mentions is not in the picture.",
        "1": "It is about something else.",
    },
    "caption-detail": {
        "5": "It mentions everything, how it looks, and where it is.",
        "3": "It mentions some things, and a little about how they look.",
        "1": "It fits many different pictures.",
    },
    "sts": {
        "4": "They mention the same things; only a detail differs.",
        "2": "They have some details in common, but are about different things.",
        "0": "They have nothing in common.",
    },
    "sis": {
        "5": "It is the same scene. The drawing style does not matter.",
        "2": "Some things are similar, but the participants or the place differ.",
        "0": "They have nothing in common.",
    },
    "sits": {
        "5": "Everything in the sentence is true of the picture.",
        "3": "Some of the sentence is true, but something important is not.",
        "0": "Nothing in the sentence is true of the picture.",
    },
    "eccv-hit": {
        "yes": "Everything in the description is true of the picture. It need not mention everything.",
        "weak-no": "Some of it is true, but something important is not.",
        "no": "Hardly anything in it is true.",
    },
    "ranking-preference": {"list": "More of its pictures match the query, or they come earlier."},
    "bivlc-choose": {
        "image": "This picture shows everything in the description.",
        "none": "No picture shows everything in the description.",
    },
    "bivlc-ambiguity": {
        "image": "Everything in the description is true of this picture, but not of the other one.",
        "both": "Both pictures show everything in the description. The drawing style does not matter.",
    },
    "bivlc-human": {
        "caption": "Everything in this description is true of the picture; something in the other one is false.",
        "image": "This picture shows everything in the description; the other one does not.",
    },
}
