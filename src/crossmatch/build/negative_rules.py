"""Hard negatives by rules: what each of the seven categories can do to a caption, and which of it is done.

Source: hsieh2023sugarcrepe, sec. 4, for the categories; the rules are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from crossmatch.build.negative_add import add_attribute, add_object
from crossmatch.build.negative_kinds import Mentioned
from crossmatch.build.negative_replace import Option, replace_attribute, replace_object, replace_relation
from crossmatch.build.negative_swap import swap_attribute, swap_object
from crossmatch.build.phrases import Reading
from crossmatch.language.alter import draws

T = TypeVar("T")
Rule = Callable[[Reading, Mentioned], Iterable[Option]]
RULES: Mapping[str, Rule] = {
    "add/obj": add_object,
    "add/att": add_attribute,
    "replace/obj": replace_object,
    "replace/att": replace_attribute,
    "replace/rel": replace_relation,
    "swap/obj": swap_object,
    "swap/att": swap_attribute,
}


class Negative(NamedTuple):
    """A negative caption, and what was changed into what."""

    text: str
    before: str
    after: str


def negative(category: str, reading: Reading, known: Mentioned, *key: str | int) -> Negative | None:
    """The negative of a category for a caption, drawn by a key; nothing where no rule applies."""
    options = _by_place(RULES[category](reading, known))
    if not options:
        return None
    random = draws(category, *key)
    place = _drawn(list(options), random)
    chosen = _drawn(options[place], random)
    return Negative(reading.made(chosen.edits), chosen.before, chosen.after)


def _by_place(options: Iterable[Option]) -> dict[int, list[Option]]:
    """The alternatives of each place; a place with many of them is no more likely to be drawn than one with few."""
    found: dict[int, list[Option]] = {}
    for option in options:
        found.setdefault(option.place, []).append(option)
    return found


def _drawn(items: list[T], random: Iterator[int]) -> T:
    return items[(next(random) * len(items)) >> 64]
