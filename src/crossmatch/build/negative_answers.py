"""What a language model answered when it was asked for a hard negative: taken apart, checked against its template, or refused.

A model that writes well may still change more than it was asked to, swap words that were never there, or answer with a story.
Everything that does not follow the template is refused, with a reason that can be counted (miranda2024bivlc, sec. 5.1, filters "the
generations that do not follow the templates"; how, it does not say).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.endpoint import NoAnswer
from crossmatch.build.negative_contrasts import near
from crossmatch.build.negative_kinds import Mentioned
from crossmatch.build.negative_replace import related
from crossmatch.build.negative_rules import Negative
from crossmatch.build.phrases import Reading, read_all
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.language.forms import lemma, possible
from crossmatch.language.tags import NOUNS, VERBS
from crossmatch.language.words import is_word, tokens

PLACE = "{caption}"
FIELDS = {"replace": ("old", "new", "negative"), "swap": ("first", "second", "negative"), "add": ("added", "negative")}
LINE = re.compile(r"^\s*[*_]*(old|new|first|second|added|negative)[*_]*\s*:\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
ARTICLES = frozenset({"a", "an"})
MOST_ADDED = {"obj": 12, "att": 4}  # words
CALLED = {"obj": "thing", "att": "quality", "rel": "relation"}
ABOUT = {  # what the words that change may be, as tags
    "obj": NOUNS,
    "att": frozenset({"JJ", "JJR", "JJS", "CD", "VBN", "VBG", "VBD", "RB", "DT"}) | NOUNS,
    "rel": VERBS | {"IN", "TO", "RP", "RB", "JJ"},
}


# -- templates


def templates(folder: Path | None = None) -> dict[str, str]:
    """The template of each category, from the package or from a folder with a file for each, such as `replace_obj.txt`.

    >>> sorted(templates())[:2], "{caption}" in templates()["swap/att"]
    (['add/att', 'add/obj'], True)
    """
    return {category: _template(category, folder) for category in CATEGORIES}


def _template(category: str, folder: Path | None) -> str:
    name = f"{category.replace('/', '_')}.txt"
    place = folder / name if folder is not None else resources.files("crossmatch.build") / "templates" / name
    try:
        text = place.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise WrongWords(
            f"{place} is not there; a template for {category} was expected. Write it, or take those of the package."
        ) from None
    except (OSError, ValueError) as error:
        raise CrossmatchError(f"{place} cannot be read as text ({error}). Write it again.") from None
    if text.count(PLACE) != 1:
        raise CrossmatchError(f"{place} has {text.count(PLACE)} places for the caption; one {PLACE} was expected. Mend it.")
    return text


def prompt(template: str, caption: str) -> str:
    """A template with a caption in its place; line breaks in a caption could end it early.

    >>> prompt("Caption: {caption}!", "A dog\\nAdded: x")
    'Caption: A dog Added: x!'
    """
    return template.replace(PLACE, " ".join(caption.split()))


# -- answers


def taken(category: str, answer: str, caption: Reading, known: Mentioned) -> Negative:
    """The negative in an answer, or `NoAnswer` with the reason why it is none."""
    kind, _, part = category.partition("/")
    found = fields(kind, answer)
    new = " ".join(found["negative"].split())
    _readable(new, caption)
    reading = read_all([new])[0]
    if bare(reading.words) == bare(caption.words):
        raise NoAnswer("same as the caption", new)
    if any(bare(reading.words) == bare(other.words) for other in known.readings):
        raise NoAnswer("same as another caption of the image", new)
    checks = {"replace": _replaced, "swap": _swapped, "add": _added}
    return checks[kind](part, found, new, reading, caption, known)


def fields(kind: str, answer: str) -> dict[str, str]:
    """The lines that a template asks for, each once.

    >>> fields("add", "Sure!\\n**Added:** red\\nNegative: A red dog.")
    {'added': 'red', 'negative': 'A red dog.'}
    """
    if answer.strip().strip(".").lower() == "none":
        raise NoAnswer("the model saw nothing to change")
    found: dict[str, str] = {}
    for name, value in LINE.findall(answer):
        if name.lower() in found:
            raise NoAnswer("not the form that was asked for", f"{name} comes twice")
        found[name.lower()] = value.strip("*_ ").strip('"“”')
    missing = [name for name in FIELDS[kind] if not found.get(name)]
    if missing:
        raise NoAnswer("not the form that was asked for", f"no line {missing[0]}")
    return found


def _readable(new: str, caption: Reading) -> None:
    if new.endswith("?") and not caption.text.rstrip().endswith("?"):
        raise NoAnswer("a question", new)
    if len(new) > 3 * len(caption.text) + 100:
        raise NoAnswer("too long", new[:80])


def bare(words: Sequence[str]) -> list[str]:
    """Words without articles and punctuation, in lower case.

    >>> bare(["A", "dog", "."])
    ['dog']
    """
    return [word.lower() for word in words if is_word(word) and word.lower() not in ARTICLES]


def _spoken(text: str) -> list[str]:
    return bare([token.text for token in tokens(text)])


def _replaced(part: str, found: dict[str, str], new: str, reading: Reading, caption: Reading, known: Mentioned) -> Negative:
    old_words, new_words, said = _spoken(found["old"]), _spoken(found["new"]), bare(caption.words)
    if not old_words or not new_words or old_words == new_words:
        raise NoAnswer("nothing was replaced", found["old"])
    places = [n for n in range(len(said)) if said[n : n + len(old_words)] == old_words]
    if not places:
        raise NoAnswer("what was replaced is not in the caption", found["old"])
    if not any([*said[:n], *new_words, *said[n + len(old_words) :]] == bare(reading.words) for n in places):
        raise NoAnswer("more was changed than asked for", new)
    _require_kind(part, old_words, caption)
    _require_kind(part, new_words, reading, new=True)
    names = [" ".join([*words[:-1], lemma(words[-1], "n")]) for words in (old_words, new_words)]
    if part == "obj":
        if related(names[1], names[0]):
            raise NoAnswer("means the same, or something broader or narrower", f"{found['old']}, {found['new']}")
        if not known.absent(names[1], names[0]):
            raise NoAnswer("another caption mentions it", found["new"])
    elif part == "att" and near(old_words[-1]) & set(new_words):
        raise NoAnswer("means the same, or something broader or narrower", f"{found['old']}, {found['new']}")
    return Negative(new, found["old"], found["new"])


def _require_kind(part: str, words: Sequence[str], reading: Reading, new: bool = False) -> None:
    """Words must be of the kind that a category is about: a thing is told by a noun, a relation by a verb or a preposition.

    A new word need not be tagged so, where it stands, if a dictionary has it so.
    """
    tags = {tag for word, tag in zip(reading.words, reading.tags, strict=True) if word in words}
    if new:
        tags |= {tag for word in words for tag in possible(word)}
    if not tags & ABOUT[part]:
        raise NoAnswer(f"the changed words are no {CALLED[part]}", " ".join(words))


def _swapped(part: str, found: dict[str, str], new: str, reading: Reading, caption: Reading, known: Mentioned) -> Negative:
    if Counter(bare(reading.words)) != Counter(bare(caption.words)):
        raise NoAnswer("words were added or lost in a swap", new)
    both = [_spoken(found[name]) for name in ("first", "second")]
    said, now = (" ".join(bare(words)) for words in (caption.words, reading.words))
    one, other = (" ".join(words) for words in both)
    if not one or not other or one == other or f" {one} " not in f" {said} " or f" {other} " not in f" {said} ":
        raise NoAnswer("what was swapped is not in the caption", f"{found['first']}, {found['second']}")
    marked = f" {said} ".replace(f" {one} ", " \0 ", 1).replace(f" {other} ", f" {one} ", 1).replace(" \0 ", f" {other} ", 1)
    if marked.strip() != now:
        raise NoAnswer("more was changed than asked for", new)
    for words in both:
        _require_kind(part, words, caption)
    return Negative(new, f"{found['first']} … {found['second']}", f"{found['second']} … {found['first']}")


def _added(part: str, found: dict[str, str], new: str, reading: Reading, caption: Reading, known: Mentioned) -> Negative:
    added = _spoken(found["added"])
    old, now = bare(caption.words), bare(reading.words)
    if not 0 < len(added) <= MOST_ADDED[part]:
        raise NoAnswer("too much was added, or nothing", found["added"])
    if not any([*old[:n], *added, *old[n:]] == now for n in range(len(old) + 1)):
        raise NoAnswer("more was changed than asked for", new)
    _require_kind(part, added, reading, new=True)
    if part == "obj":
        nouns = {lemma(word, "n") for word, tag in zip(reading.words, reading.tags, strict=True) if word in added and tag in NOUNS}
        if any(not known.absent(noun) for noun in nouns):
            raise NoAnswer("another caption mentions it", found["added"])
    elif any(near(word) & known.words for word in added):
        raise NoAnswer("another caption mentions it", found["added"])
    return Negative(new, "", found["added"])
