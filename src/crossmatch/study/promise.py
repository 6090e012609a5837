"""Whether the answers of a study can become what its design promises: asked before anybody works, and again before an export.

judgements    grades, and of each item two things with ids: an image and a caption, two captions, or two images
trials        images and captions, as many for each item, and an answer that accepts an item
ratings       grades, and one caption of each item
preferences   two lists, and the systems that they are of
choices       answers that can be equal: no slider
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from crossmatch.core.errors import CrossmatchError
from crossmatch.study.design import Design, Question, choices


class Item(Protocol):
    """What is asked of an item, whether it is new or was asked about."""

    @property
    def key(self) -> str: ...
    @property
    def images(self) -> tuple[str, ...]: ...
    @property
    def captions(self) -> tuple[str, ...]: ...
    @property
    def block(self) -> str: ...
    @property
    def gold(self) -> Mapping[str, Any] | None: ...
    @property
    def body(self) -> Mapping[str, Any]: ...


COMBINES: Mapping[str, tuple[str, ...]] = {
    "judgements": ("mean", "majority", "dawid-skene"),
    "trials": ("majority", "unanimous", "dawid-skene"),
    "ratings": ("mean", "majority", "dawid-skene"),
    "preferences": ("bradley-terry", "majority"),
    "choices": ("majority", "unanimous", "dawid-skene"),
}


def require_result(design: Design, items: Sequence[Item]) -> None:
    """Nobody shall work for a result that cannot be made: what stands in its way is an error that says what to change."""
    result, name = design.result, design.name
    if result.combine not in COMBINES[result.yields]:
        fitting = " or ".join(COMBINES[result.yields])
        raise CrossmatchError(f"{name} cannot make {result.yields} by {result.combine}. Set result.combine={fitting}.")
    if result.combine == "unanimous" and not result.wanted:
        raise CrossmatchError(f"{name} does not say which answer all must give to accept an item. Set result.wanted.")
    work = [one for one in items if one.gold is None]
    for question in {q.name: q for q in (design.main_in(one.block) for one in work)}.values():
        _require_countable(design, question)
    if result.wanted:
        _require_wanted(design, work)
    NEEDS[result.yields](design, work)


def _require_countable(design: Design, question: Question) -> None:
    """A mean is of grades; everything else is of answers that can be equal."""
    result, lacking = design.result, [option.value for option in question.options if option.grade is None]
    numbers = question.kind == "slider"
    if numbers and result.combine != "mean":
        raise CrossmatchError(
            f"{design.name}: answers on the slider {question.name!r} are hardly ever equal, and {result.combine} counts equal "
            "ones. Set result.combine=mean, with result.yields=judgements or ratings."
        )
    graded = result.combine == "mean" or result.yields == "ratings"
    if graded and not numbers and (question.among or question.kind == "several" or lacking):
        what = f"the option {lacking[0]!r}" if lacking and not question.among else "what is chosen"
        raise CrossmatchError(
            f"{design.name}: {what} of {question.name!r} has no grade, so that there is no number to take. Give each option "
            "a grade, or set result.combine=majority and result.yields=choices."
        )


def _require_wanted(design: Design, work: Sequence[Item]) -> None:
    for one in work:
        question = design.main_in(one.block)
        known = choices(question, {"images": len(one.images), "captions": len(one.captions), "lists": design.shows.lists})
        if design.result.wanted not in known:
            raise CrossmatchError(
                f"{design.name} accepts item {one.key!r} by the answer {design.result.wanted!r}, which nobody can give; "
                f"{', '.join(known)} can be. Set result.wanted to one of these."
            )


# -- what each result needs


def ids_of(body: Mapping[str, Any], key: str, n: int) -> tuple[str, ...]:
    """The ids of the n images or captions of an item (`key` is image_id or caption_id), or none.

    >>> ids_of({"image_ids": ["a", "b"]}, "image_id", 2), ids_of({"caption_id": 7}, "caption_id", 1), ids_of({}, "image_id", 1)
    (('a', 'b'), ('7',), ())
    """
    many = body.get(f"{key}s")
    if isinstance(many, list | tuple) and len(many) == n:
        return tuple(map(str, many))
    return (str(body[key]),) if key in body and n == 1 else ()


PAIRS = {(1, 1): "an image and a caption", (0, 2): "two captions", (2, 0): "two images"}


def _judgements(design: Design, work: Sequence[Item]) -> None:
    """Pairs of one kind, each with ids, and none twice: a file of judgements has one grade for each."""
    if not any(option.grade is not None for option in design.main.options) and design.main.kind != "slider":
        raise CrossmatchError(f"{design.name}: no option of {design.main.name!r} has a grade. Give them grades: grade = 1")
    shape, seen = _shape(work[0]), dict[tuple[str, ...], str]()
    for one in work:
        if _shape(one) not in PAIRS or _shape(one) != shape:
            told = f"{len(one.images)} images and {len(one.captions)} captions"
            wanted = PAIRS.get(shape, ", ".join(PAIRS.values()))
            raise CrossmatchError(
                f"item {one.key!r} has {told}, but a judgement is of {wanted}. Mend it, or set result.yields=choices."
            )
        ids = tuple(("image", i) for i in ids_of(one.body, "image_id", len(one.images)))
        ids += tuple(("caption", i) for i in ids_of(one.body, "caption_id", len(one.captions)))
        if len(ids) < 2 or not all(name for _, name in ids):
            raise CrossmatchError(
                f"item {one.key!r} has no ids of what it shows, so that its grade belongs to nothing. Add them to the items."
            )
        pair = tuple(sorted(f"{side} {name!r}" for side, name in ids))
        if pair[0] == pair[1] or pair in seen:
            why = "compares it with itself" if pair[0] == pair[1] else f"is about the same as item {seen[pair]!r}"
            raise CrossmatchError(f"item {one.key!r} ({' and '.join(dict.fromkeys(pair))}) {why}. Keep one item for each pair.")
        seen[pair] = one.key


def _shape(one: Item) -> tuple[int, int]:
    return len(one.images), len(one.captions)


def _trials(design: Design, work: Sequence[Item]) -> None:
    if design.shows.blocks:
        _whole_trials(design, work)
        return
    if not design.result.wanted and design.main.among != "captions":
        raise CrossmatchError(f"{design.name} does not say which answer accepts an item as a trial. Set result.wanted.")
    shapes: dict[tuple[int, int], str] = {}
    for one in work:
        shape = len(one.images), len(trial_captions(one, design.result.wanted or "caption-0"))
        if min(shape) < 1 or max(shape) < 2:
            raise CrossmatchError(
                f"item {one.key!r} has {len(one.images)} images and {len(one.captions)} captions, which make no trial: it needs "
                "both, and two of one. Mend it, or set result.yields=choices."
            )
        shapes.setdefault(shape, one.key)
    if len(shapes) > 1:
        (a, first), (b, other), *_ = shapes.items()
        raise CrossmatchError(
            f"items {first!r} and {other!r} would become trials of {a[0]}x{a[1]} and {b[0]}x{b[1]}, and a file of trials has one "
            "shape. Make a study of each."
        )


def trial_captions(one: Item, value: str) -> tuple[str, ...]:
    """The captions of the trial that an item becomes when this answer accepts it.

    Of an item that tells its whole trial (`trial_of`), those; of one image, all captions, the chosen one first; else the chosen
    one, or the only one there is.
    """
    whole = one.body.get("trial_of")
    if isinstance(whole, Mapping) and one.images and len(whole.get("captions", ())) == len(one.images):
        return tuple(map(str, whole["captions"]))
    return tuple(one.captions[n] for n in caption_places(one, value))


def caption_places(one: Item, value: str) -> list[int]:
    """The places of the captions that a trial takes from its item."""
    side, _, place = value.rpartition("-")
    chosen = int(place) if side == "caption" else 0
    rest = [n for n in range(len(one.captions)) if n != chosen] if len(one.images) == 1 else []
    return [chosen, *rest] if one.captions else []


def _whole_trials(design: Design, work: Sequence[Item]) -> None:
    """Questions in blocks: all four of a trial of two images and two captions, each of them said to be which."""
    seen: dict[str, set[int]] = {}
    for one in work:
        trial, query = one.body.get("trial"), one.body.get("query")
        among = design.main_in(one.block).among
        want = {"captions": (1, 2), "images": (2, 1)}.get(among)
        if trial is None or query not in (0, 1, 2, 3) or _shape(one) != want or (query < 2) != (among == "captions"):
            raise CrossmatchError(
                f"item {one.key!r} is no choice of a trial of two images and two captions. Give whole trials without a block ("
                "image n and caption n belong together), and their choices are made of them; or set result.yields=choices."
            )
        seen.setdefault(str(trial), set()).add(query)
    short = next((trial for trial, queries in seen.items() if len(queries) < 4), None)
    if short is not None:
        raise CrossmatchError(f"trial {short!r} has {len(seen[short])} of its 4 choices among the items. Give the whole trial.")


def _ratings(design: Design, work: Sequence[Item]) -> None:
    odd = next((one for one in work if len(one.captions) != 1), None)
    if odd is not None:
        raise CrossmatchError(
            f"item {odd.key!r} has {len(odd.captions)} captions, but ratings are of one caption each. Mend it, or set "
            "result.yields=judgements or choices."
        )
    other = next((one for one in work if design.main_in(one.block) != design.main), None)
    if other is not None:
        raise CrossmatchError(
            f"item {other.key!r} of block {other.block!r} is not asked {design.main.name!r}, of which the ratings are. Ask it."
        )


def _preferences(design: Design, work: Sequence[Item]) -> None:
    if design.main.among != "lists" or design.shows.lists != 2:
        raise CrossmatchError(f"{design.name}: preferences are choices of two lists. Set lists = 2 below [shows], among = 'lists'.")
    for one in work:
        systems = one.body.get("systems")
        if not isinstance(systems, list | tuple) or len(systems) != 2 or len({str(name) for name in systems}) != 2:
            raise CrossmatchError(f"item {one.key!r} does not name its two `systems`. Add them to the items.")


def _choices(design: Design, work: Sequence[Item]) -> None:
    """Whatever can be counted can be told."""


NEEDS: Mapping[str, Callable[[Design, Sequence[Item]], None]] = {
    "judgements": _judgements,
    "trials": _trials,
    "ratings": _ratings,
    "preferences": _preferences,
    "choices": _choices,
}
