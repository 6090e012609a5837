"""Checks that items and design fit the declared result, before a study starts and before an export.

judgements    grades, and two ids per item: of an image and a caption, of two captions, or of two images
trials        images and captions, the same numbers for each item, and an answer that accepts an item
ratings       grades, and one caption per item
preferences   two lists per item, and the names of the systems that made them
choices       answers that can be equal, so no slider
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.design.declaration import Design, Question, allowed_values
from crossmatch.study.design.places import parse_place

if TYPE_CHECKING:
    from crossmatch.study.design.new_items import NewItem
    from crossmatch.study.results.answers import StudyItem

    Item: TypeAlias = NewItem | StudyItem

COMBINES: Mapping[str, tuple[str, ...]] = {
    "judgements": ("mean", "majority", "dawid-skene"),
    "trials": ("majority", "unanimous", "dawid-skene"),
    "ratings": ("mean", "majority", "dawid-skene"),
    "preferences": ("bradley-terry", "majority"),
    "choices": ("majority", "unanimous", "dawid-skene"),
}
PAIRS = {(1, 1): "an image and a caption", (0, 2): "two captions", (2, 0): "two images"}


def require_result(design: Design, items: Sequence[Item]) -> None:
    """Raise if the answers cannot become the result that the design declares."""
    result, name = design.result, design.name
    if result.combine not in COMBINES[result.yields]:
        allowed = " or ".join(COMBINES[result.yields])
        raise CrossmatchError(f"{name} cannot make {result.yields} by {result.combine}. Set result.combine={allowed}.")
    if result.combine == "unanimous" and not result.wanted:
        raise CrossmatchError(f"{name} combines by unanimous but does not name the accepting answer. Set result.wanted.")
    work = [item for item in items if item.gold is None]
    for question in dict.fromkeys(design.main_question_for(item.block) for item in work):
        _require_countable(design, question)
    if result.wanted:
        _require_wanted(design, work)
    if result.yields in REQUIREMENTS:
        REQUIREMENTS[result.yields](design, work)


def _require_countable(design: Design, question: Question) -> None:
    """A mean needs grades; all other rules need answers that can be equal."""
    result = design.result
    if question.kind == "slider":
        if result.combine != "mean":
            raise CrossmatchError(
                f"{design.name}: {result.combine} counts equal answers, but answers on the slider {question.name!r} are rarely "
                "equal. Set result.combine=mean, with result.yields=judgements or ratings."
            )
        return
    ungraded = [option.value for option in question.options if option.grade is None]
    needs_grades = result.combine == "mean" or result.yields == "ratings"
    if needs_grades and (question.among or question.kind == "several" or ungraded):
        subject = f"option {ungraded[0]!r}" if ungraded and not question.among else "the chosen value"
        raise CrossmatchError(
            f"{design.name}: {subject} of question {question.name!r} has no grade, but {result.yields} by {result.combine} need "
            "grades. Give each option a grade, or set result.combine=majority and result.yields=choices."
        )


def _require_wanted(design: Design, work: Sequence[Item]) -> None:
    for item in work:
        question = design.main_question_for(item.block)
        counts = {"images": len(item.images), "captions": len(item.captions), "lists": design.shows.lists}
        allowed = allowed_values(question, counts)
        if design.result.wanted not in allowed:
            raise CrossmatchError(
                f"{design.name}: result.wanted is {design.result.wanted!r}, which is not an answer to item {item.key!r}. "
                f"Set it to one of {', '.join(allowed)}."
            )


# -- the requirements of each result


def ids_of(details: Mapping[str, Any], key: str, n: int) -> tuple[str, ...]:
    """The ids of the n images or captions of an item (`key` is image_id or caption_id); empty if it has none.

    >>> ids_of({"image_ids": ["a", "b"]}, "image_id", 2), ids_of({"caption_id": 7}, "caption_id", 1), ids_of({}, "image_id", 1)
    (('a', 'b'), ('7',), ())
    """
    ids = details.get(f"{key}s")
    if isinstance(ids, list | tuple) and len(ids) == n:
        return tuple(map(str, ids))
    return (str(details[key]),) if key in details and n == 1 else ()


def _require_judgements(design: Design, work: Sequence[Item]) -> None:
    """All pairs are of one kind and have ids, and no pair occurs twice: a file of judgements has one grade per pair."""
    question = design.main_question
    if question.kind != "slider" and all(option.grade is None for option in question.options):
        raise CrossmatchError(f"{design.name}: no option of question {question.name!r} has a grade. Add grades: grade = 1")
    shape, item_by_pair = _shape(work[0]), dict[tuple[str, ...], str]()
    for item in work:
        if _shape(item) not in PAIRS or _shape(item) != shape:
            expected = PAIRS.get(shape, ", ".join(PAIRS.values()))
            raise CrossmatchError(
                f"item {item.key!r} has {len(item.images)} images and {len(item.captions)} captions, but a judgement needs "
                f"{expected}. Correct the item, or set result.yields=choices."
            )
        ids = [("image", name) for name in ids_of(item.details, "image_id", len(item.images))]
        ids += [("caption", name) for name in ids_of(item.details, "caption_id", len(item.captions))]
        if len(ids) < 2 or not all(name for _, name in ids):
            raise CrossmatchError(
                f"item {item.key!r} has no ids for its images and captions, but judgements refer to ids. Add image_id and "
                "caption_id to the items."
            )
        pair = tuple(sorted(f"{side} {name!r}" for side, name in ids))
        if pair[0] == pair[1]:
            raise CrossmatchError(f"item {item.key!r} compares {pair[0]} with itself. Remove it.")
        if pair in item_by_pair:
            raise CrossmatchError(
                f"item {item.key!r} has the same pair as item {item_by_pair[pair]!r} ({' and '.join(pair)}). "
                "Keep one item for each pair."
            )
        item_by_pair[pair] = item.key


def _shape(item: Item) -> tuple[int, int]:
    return len(item.images), len(item.captions)


def _require_trials(design: Design, work: Sequence[Item]) -> None:
    if design.shows.blocks:
        _require_complete_trials(design, work)
        return
    if not design.result.wanted and design.main_question.among != "captions":
        raise CrossmatchError(f"{design.name} does not name the answer that accepts an item as a trial. Set result.wanted.")
    item_by_shape: dict[tuple[int, int], str] = {}
    for item in work:
        shape = len(item.images), len(trial_captions(item, design.result.wanted or "caption-0"))
        if min(shape) < 1 or max(shape) < 2:
            raise CrossmatchError(
                f"item {item.key!r} has {len(item.images)} images and {len(item.captions)} captions, but a trial needs at least "
                "one of each and two of one kind. Correct the item, or set result.yields=choices."
            )
        item_by_shape.setdefault(shape, item.key)
    if len(item_by_shape) > 1:
        (a, first), (b, second), *_ = item_by_shape.items()
        raise CrossmatchError(
            f"items {first!r} and {second!r} would become trials of {a[0]}x{a[1]} and {b[0]}x{b[1]}, but all trials of a file "
            "have one shape. Create one study for each shape."
        )


def trial_captions(item: Item, value: str) -> tuple[str, ...]:
    """The captions of the trial that an item becomes when this answer accepts it.

    If the item names its complete trial (`trial_of`), these are its captions. If it has one image, they are all captions of the
    item, the chosen one first. Otherwise it is the chosen caption, or the only one.
    """
    original = item.details.get("trial_of")
    if isinstance(original, Mapping) and item.images and len(original.get("captions", ())) == len(item.images):
        return tuple(map(str, original["captions"]))
    return tuple(item.captions[n] for n in caption_places(item, value))


def caption_places(item: Item, value: str) -> list[int]:
    """The places of the captions that a trial takes from its item."""
    place = parse_place(value)
    chosen = place.n if place and place.side == "captions" else 0
    rest = [n for n in range(len(item.captions)) if n != chosen] if len(item.images) == 1 else []
    return [chosen, *rest] if item.captions else []


def _require_complete_trials(design: Design, work: Sequence[Item]) -> None:
    """Questions in blocks: the items are the four choices of each 2 x 2 trial, and `query` tells them apart."""
    queries_by_trial: dict[str, set[int]] = {}
    for item in work:
        trial, query = item.details.get("trial"), item.details.get("query")
        among = design.main_question_for(item.block).among
        shape = {"captions": (1, 2), "images": (2, 1)}.get(among)
        if trial is None or query not in (0, 1, 2, 3) or _shape(item) != shape or (query < 2) != (among == "captions"):
            raise CrossmatchError(
                f"item {item.key!r} is not one of the four choices of a trial with two images and two captions. Give complete "
                "trials without a block (image n and caption n belong together), or set result.yields=choices."
            )
        queries_by_trial.setdefault(str(trial), set()).add(query)
    for trial, queries in queries_by_trial.items():
        if len(queries) < 4:
            raise CrossmatchError(f"trial {trial!r} has {len(queries)} of its 4 choices among the items. Give the complete trial.")


def _require_ratings(design: Design, work: Sequence[Item]) -> None:
    for item in work:
        if len(item.captions) != 1:
            raise CrossmatchError(
                f"item {item.key!r} has {len(item.captions)} captions, but a rating is of one caption. Correct the item, or set "
                "result.yields=judgements or choices."
            )
        if design.main_question_for(item.block) != design.main_question:
            raise CrossmatchError(
                f"block {item.block!r} of item {item.key!r} does not ask the main question {design.main_question.name!r}. "
                "Ask it in this block too."
            )


def _require_preferences(design: Design, work: Sequence[Item]) -> None:
    if design.main_question.among != "lists" or design.shows.lists != 2:
        raise CrossmatchError(
            f"{design.name}: preferences need a choice between two lists. Set lists = 2 in [shows], and among = 'lists'."
        )
    for item in work:
        systems = item.details.get("systems")
        if not isinstance(systems, list | tuple) or len(systems) != 2 or len({str(name) for name in systems}) != 2:
            raise CrossmatchError(f"item {item.key!r} does not name its two `systems`. Add them to the items.")


REQUIREMENTS: Mapping[str, Callable[[Design, Sequence[Item]], None]] = {
    "judgements": _require_judgements,
    "trials": _require_trials,
    "ratings": _require_ratings,
    "preferences": _require_preferences,
}
