"""Numbers and answers in the words of a page."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from crossmatch.study.design import ONE, Question
from crossmatch.study.tally import TENTHS, Asked

NOTHING = "–"
NOUNS = {"images": "picture", "captions": "caption", "lists": "list"}
NUMBERS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def number(n: float) -> str:
    """
    >>> number(12345)
    '12,345'
    """
    return f"{n:,}"


def many(n: int, one: str, more: str = "") -> str:
    """
    >>> many(1, "item"), many(1200, "item"), many(2, "person", "people")
    ('1 item', '1,200 items', '2 people')
    """
    return f"{n:,} {one if n == 1 else more or one + 's'}"


def percent(share: float | None) -> str:
    """
    >>> percent(0.625), percent(0.9996), percent(0.0004), percent(None)
    ('62 %', '99.9 %', '0.1 %', '–')
    """
    if share is None:
        return NOTHING
    if 0 < share < 0.01 or 0.99 < share < 1:  # neither nothing nor all
        return f"{min(99.9, max(0.1, 100 * share)):.1f} %"
    return f"{100 * share:.0f} %"


def decimal(value: float | None, places: int = 2) -> str:
    """
    >>> decimal(0.487), decimal(-0.001), decimal(None)
    ('0.49', '0.00', '–')
    """
    return NOTHING if value is None else f"{round(value, places) + 0.0:.{places}f}"


def money(value: float | None, currency: str) -> str:
    """
    >>> money(1234.5, "USD")
    '1,234.50 USD'
    """
    return NOTHING if value is None else f"{value:,.2f} {currency}"


def duration(seconds: float | None) -> str:
    """
    >>> [duration(s) for s in (3.42, 75, 4000, 200000, 3e7, None)]
    ['3.4 s', '1 min 15 s', '1 h 6 min', '2 days 7 h', '347 days', '–']
    """
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{seconds:.1f} s"
    for unit, size, part, of, until in (("min", 60, "s", 1, 60), ("h", 3600, "min", 60, 48), ("days", 86400, "h", 3600, 14)):
        whole, rest = divmod(int(seconds), size)
        if whole < until:
            return f"{whole} {unit} {rest // of} {part}"
    return f"{seconds / 86400:,.0f} days"


def moment(at: float | None) -> str:
    """
    >>> moment(0)
    '1970-01-01 00:00 UTC'
    """
    return NOTHING if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def chance(p: float | None) -> str:
    """
    >>> chance(0.0312), chance(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return NOTHING if p is None else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def place(side: str, n: int, of: int) -> str:
    """
    >>> place("images", 0, 2), place("captions", 4, 5), place("captions", 12, 20)
    ('left picture', 'fifth caption', 'caption 13')
    """
    if side == "images" and of == 2:
        return f"{('left', 'right')[n]} {NOUNS[side]}"
    return f"{NUMBERS[n]} {NOUNS[side]}" if n < len(NUMBERS) else f"{NOUNS[side]} {n + 1}"


def declared(question: Question, value: Any) -> str:
    """An answer as the item declares it: the text of an option, or the number of a picture, caption or list.

    >>> declared(Question("q", "Which?", among="images"), "image-1")
    'Picture 2'
    """
    if isinstance(value, list):
        return ", ".join(declared(question, each) for each in value)
    if question.kind == "slider":
        return on_slider(question, float(value))
    texts = {option.value: option.text for option in question.options}
    if value in texts:
        return texts[value]
    if question.among and str(value).startswith(f"{ONE[question.among]}-"):
        return f"{NOUNS[question.among].capitalize()} {int(str(value).rpartition('-')[2]) + 1}"
    return ", ".join(texts.get(each, each) for each in str(value).split(", "))


def on_slider(question: Question, value: float) -> str:
    """A number on a slider, with the nearest of its words."""
    words = [option for option in question.options if option.grade is not None]
    near = min(words, key=lambda option: abs(float(option.grade or 0) - value), default=None)
    return f"{value:.2f}" + (f" ({near.text})" if near else "")


def favourite(asked: Asked, code: int) -> str:
    """The answer that somebody gives most often, by what it looked like on the page."""
    question = asked.question
    if question.kind == "slider":
        step = (question.high - question.low) / TENTHS
        return f"{question.low + code * step:g} to {question.low + (code + 1) * step:g}"
    name = asked.names[code]
    if question.among and name.startswith(f"{ONE[question.among]}-") and asked.shuffled:
        return f"the {place(question.among, int(name.rpartition('-')[2]), 0)}"
    return declared(question, name)


def values_in(answer: Mapping[str, Any], question: Question) -> list[Any]:
    """What was answered to a question, as a list."""
    value = answer.get(question.name)
    return value if isinstance(value, list) else [] if value is None else [value]
