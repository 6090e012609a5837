"""Formats numbers, times and answers for the pages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from crossmatch.study.design.declaration import Question
from crossmatch.study.design.places import SIDE_NOUNS, parse_place
from crossmatch.study.results.event_columns import SLIDER_PARTS, CountedQuestion

DASH = "–"
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def number(n: float) -> str:
    """
    >>> number(12345)
    '12,345'
    """
    return f"{n:,}"


def many(n: int, singular: str, plural: str = "") -> str:
    """
    >>> many(1, "item"), many(1200, "item"), many(2, "person", "people")
    ('1 item', '1,200 items', '2 people')
    """
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def percent(share: float | None) -> str:
    """
    >>> percent(0.625), percent(0.9996), percent(0.0004), percent(None)
    ('62 %', '99.9 %', '0.1 %', '–')
    """
    if share is None:
        return DASH
    if 0 < share < 0.01 or 0.99 < share < 1:  # must not look like 0 % or 100 %
        return f"{min(99.9, max(0.1, 100 * share)):.1f} %"
    return f"{100 * share:.0f} %"


def decimal(value: float | None, places: int = 2) -> str:
    """
    >>> decimal(0.487), decimal(-0.001), decimal(None)
    ('0.49', '0.00', '–')
    """
    return DASH if value is None else f"{round(value, places) + 0.0:.{places}f}"


def money(value: float | None, currency: str) -> str:
    """
    >>> money(1234.5, "USD")
    '1,234.50 USD'
    """
    return DASH if value is None else f"{value:,.2f} {currency}"


def duration(seconds: float | None) -> str:
    """A duration; one is negative where the clock was set back, and shown as 0.

    >>> [duration(s) for s in (3.42, 75, 4000, 200000, 3e7, None, -2)]
    ['3.4 s', '1 min 15 s', '1 h 6 min', '2 days 7 h', '347 days', '–', '0.0 s']
    """
    if seconds is None:
        return DASH
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.1f} s"
    for unit, size, part, part_size, limit in (("min", 60, "s", 1, 60), ("h", 3600, "min", 60, 48), ("days", 86400, "h", 3600, 14)):
        whole, rest = divmod(int(seconds), size)
        if whole < limit:
            return f"{whole} {unit} {rest // part_size} {part}"
    return f"{seconds / 86400:,.0f} days"


def moment(at: float | None) -> str:
    """
    >>> moment(0)
    '1970-01-01 00:00 UTC'
    """
    return DASH if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def chance(p: float | None) -> str:
    """
    >>> chance(0.0312), chance(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return DASH if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def place(side: str, n: int, count: int) -> str:
    """
    >>> place("images", 0, 2), place("captions", 4, 5), place("captions", 12, 20)
    ('left image', 'fifth caption', 'caption 13')
    """
    if side == "images" and count == 2:
        return f"{('left', 'right')[n]} {SIDE_NOUNS[side]}"
    return f"{ORDINALS[n]} {SIDE_NOUNS[side]}" if n < len(ORDINALS) else f"{SIDE_NOUNS[side]} {n + 1}"


def format_declared(question: Question, value: Any) -> str:
    """The text of a declared answer: of an option, or the number of an image, caption or list.

    >>> format_declared(Question("q", "Which?", among="images"), "image-1")
    'Image 2'
    """
    if isinstance(value, list):
        return ", ".join(format_declared(question, part) for part in value)
    if question.kind == "slider":
        return format_slider(question, float(value))
    texts = {option.value: option.text for option in question.options}
    if value in texts:
        return texts[value]
    chosen = parse_place(value) if question.among else None
    if chosen:
        return f"{chosen.noun.capitalize()} {chosen.n + 1}"
    return ", ".join(texts.get(part, part) for part in str(value).split(", "))


def format_slider(question: Question, value: float) -> str:
    """A slider value with the nearest option."""
    options = [option for option in question.options if option.grade is not None]
    nearest = min(options, key=lambda option: abs(float(option.grade or 0) - value), default=None)
    return f"{value:.2f}" + (f" ({nearest.text})" if nearest else "")


def favourite(counted: CountedQuestion, code: int) -> str:
    """The text of the most frequent answer, by what was on the page."""
    question = counted.question
    if question.kind == "slider":
        step = (question.high - question.low) / SLIDER_PARTS
        return f"{question.low + code * step:g} to {question.low + (code + 1) * step:g}"
    name = counted.answer_names[code]
    chosen = parse_place(name) if counted.is_shuffled else None
    if chosen:
        return f"the {place(chosen.side, chosen.n, 0)}"
    return format_declared(question, name)


def values_of(answer: Mapping[str, Any], question: Question) -> list[Any]:
    """The values of an answer to a question, as a list."""
    value = answer.get(question.name)
    return value if isinstance(value, list) else [] if value is None else [value]
