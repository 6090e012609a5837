"""Items of every study of the papers from the embedded world, with all that is known of them: for demonstrations and rehearsals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.study.begin import EXAMPLE, GOLD, NewItem
from crossmatch.study.design import Design
from crossmatch.study.ideal import Right, Seen, WorldTruth, ideal
from crossmatch.study.items import Material, by_grade
from crossmatch.study.makers import MAKERS, ODD, USUAL, Shop
from crossmatch.study.sources import is_world, world_of

WORDS = "diorama:tiny"
EXAMPLES = 3  # at most
GOLD_OF_A_KIND = 12  # gold items: a person can do as many HITs with one of them in each
SPARE = 2 * EXAMPLES * ODD + 8 * GOLD_OF_A_KIND  # items that are made besides, for examples and gold


def world_items(design: Design, words: str = WORDS, n: int = 0, shop: Shop | None = None) -> Material:
    """Items for a preset from the world of these words: `n` of them, or as many as a small study has, with examples and gold."""
    if design.name not in MAKERS:
        raise WrongWords(
            f"the embedded world has no items for {design.name!r}, only for {', '.join(MAKERS)}. Give a file of items."
        )
    shop = shop or Shop(world_of(words))
    made = _made(shop, design.name, n)
    wanted = n or USUAL[design.name]
    examples, rest = _examples(design, made, shop.truth)
    gold, rest = _gold(design, rest, shop.truth)
    work = _first(rest, wanted)
    if n and len(work) < wanted:
        raise WrongWords(
            f"{words} has {len(work)} items for {design.name}, but {n} were wanted. Take a larger world, or fewer items."
        )
    return Material((*work, *gold, *examples), shop.picture, _origin(words, design, n, shop))


def _origin(words: str, design: Design, n: int, shop: Shop) -> dict[str, Any]:
    return {"data": words, "preset": design.name, "n": n, "digest": shop.world.digest()}


def known_of(origin: Mapping[str, Any]) -> WorldTruth | None:
    """What is known of a study's images and captions, made again from where they came: the embedded world, or else nothing."""
    if not is_world(origin.get("data")):
        return None
    shop = Shop(world_of(str(origin["data"])))
    if origin.get("digest") not in (None, shop.world.digest()):
        raise CrossmatchError(
            "the embedded world has changed since this study was made, so the truth about it is lost. Use the version that made it."
        )
    if origin.get("preset") in MAKERS:
        _made(shop, str(origin["preset"]), int(origin.get("n") or 0))
    return shop.truth


def _made(shop: Shop, name: str, n: int) -> list[NewItem]:
    """More items than are wanted: examples and gold are taken from them. What they are about is known to the shop afterwards."""
    return list(islice(MAKERS[name](shop), SPARE + (n or USUAL[name])))


def _answer(design: Design, one: NewItem, truth: WorldTruth) -> Right:
    right = ideal(design.name, Seen(one.images, one.captions, design.shows.lists, one.block), truth)
    assert right is not None  # the shop knows what it made
    return right


def _examples(design: Design, made: list[NewItem], truth: WorldTruth) -> tuple[list[NewItem], list[NewItem]]:
    """An item for each of the first answers that there are words for, to be shown with it; and the others."""
    chosen: dict[str, NewItem] = {}
    for one in made:
        chosen.setdefault(_face(design, _answer(design, one, truth)), one)
    told = [said for said in WHY[design.name] if said in chosen][:EXAMPLES]
    keys = {chosen[said].group or chosen[said].key for said in told}
    shown = [_example(design, chosen[said], said, truth) for said in told]
    return shown, [one for one in made if (one.group or one.key) not in keys]


def _face(design: Design, right: Right) -> str:
    """An answer as an example tells it: an option, what it is chosen among, or the nearest anchor of a slider."""
    if isinstance(right, float):
        return min(design.main.options, key=lambda option: abs((option.grade or 0.0) - right)).value
    return str(right[0]).partition("-")[0] if any(q.among for q in design.questions) else str(right[0])


def _example(design: Design, one: NewItem, said: str, truth: WorldTruth) -> NewItem:
    right = _answer(design, one, truth)
    gold = {} if isinstance(right, float) else {design.asked(one.block)[0].name: right}
    why = WHY[design.name].get(said, "")
    if isinstance(right, float):
        why = f"These would be put near “{next(o.text for o in design.main.options if o.value == said)}”. {why}".strip()
    return replace(one, kind=EXAMPLE, gold=gold, group="", body={**one.body, "why": why})


def _gold(design: Design, made: list[NewItem], truth: WorldTruth) -> tuple[list[NewItem], list[NewItem]]:
    """Gold of the kinds that the recipe asks for, taken from the end; and the others."""
    recipe = design.recipe
    asked = {"positive": recipe.gold_positive or recipe.quiz, "negative": recipe.gold_negative or recipe.quiz}
    out: list[NewItem] = []
    for kind in GOLD:
        fitting = [one for one in reversed(made) if asked[kind] and _kind(design, _answer(design, one, truth)) == kind]
        for one in fitting[:GOLD_OF_A_KIND]:
            question = design.asked(one.block)[0]
            graded = any(option.grade == 0 for option in question.options)
            accepted: Any = by_grade(question, kind, one.key) if graded else _answer(design, one, truth)
            out.append(replace(one, kind=kind, gold={question.name: accepted}, group=""))
    taken = {one.key for one in out}
    return out, [one for one in made if one.key not in taken]


def _kind(design: Design, right: Right) -> str:
    """Whether an answer is clear enough for gold, and of which kind."""
    if isinstance(right, float):
        return ""
    graded = {option.value: option.grade for option in design.main.options if option.grade is not None}
    if graded:
        best, worst = max(graded, key=graded.__getitem__), list(graded)[-1 if min(graded.values()) == 0 else 0]
        return {best: "positive", worst: "negative"}.get(right[0], "")
    return "negative" if right[0] in ("none", "neither") else "positive"


def _first(made: list[NewItem], wanted: int) -> list[NewItem]:
    """The first items, but no group in part."""
    groups: dict[str, list[NewItem]] = {}
    for one in made:
        groups.setdefault(one.group or one.key, []).append(one)
    out: list[NewItem] = []
    for together in groups.values():
        if len(out) + len(together) <= wanted:
            out += together
    return out


WHY: Mapping[str, Mapping[str, str]] = {  # what an example of each answer says; those that come first are shown
    "bison-select": {
        "caption": "What this sentence says is so in the left picture, and something of it is not so in the right one.",
        "none": "The pictures show the same scene, so that every sentence fits both.",
    },
    "bison-verify": {
        "image": "All that the sentence says is so in this picture, and something of it is not so in the other one.",
        "both": "All that the sentence says is so in either picture; how they are drawn does not matter.",
    },
    "caption-correctness": {
        "5": "All that it says is so.",
        "3": "One of the things that it names is not there.",
        "1": "It is about something else.",
    },
    "caption-detail": {
        "5": "It tells of everything, how it looks, and where it is.",
        "3": "It tells of some things, and a little of how they look.",
        "1": "It could be about any of many pictures.",
    },
    "sts": {
        "4": "They tell of the same things; only a detail differs.",
        "2": "They have some details in common, but tell of different things.",
        "0": "They have nothing in common.",
    },
    "sis": {
        "5": "It is the same scene; how it is drawn does not matter.",
        "2": "Some things are alike, but who is there, or where, differs.",
        "0": "They have nothing in common.",
    },
    "sits": {
        "5": "All that the sentence says is so in the picture.",
        "3": "Some of what the sentence says is so, and something important is not.",
        "0": "Nothing of what the sentence says is so.",
    },
    "eccv-hit": {
        "yes": "All that the description says is so in the picture; it need not mention everything.",
        "weak-no": "Some of it is so, but something important is not.",
        "no": "Hardly anything of it is so.",
    },
    "ranking-preference": {"list": "More of its pictures fit what was searched for, or they come earlier."},
    "bivlc-choose": {
        "image": "This picture shows all that the description says.",
        "none": "No picture shows all that the description says.",
    },
    "bivlc-ambiguity": {
        "image": "All that the description says is so in this picture, and not in the other one.",
        "both": "Both pictures show all that the description says; how they are drawn does not matter.",
    },
    "bivlc-human": {
        "caption": "All that this description says is so in the picture; something of the other one is not.",
        "image": "This picture shows all that the description says; the other one does not.",
    },
}
