"""Prompts for hard negatives, and the parsing and checking of a language model's answers.

A model may change more than requested, swap words that do not occur, or answer with a story. Answers that do not follow the
template are rejected with a reason that is counted. miranda2024bivlc, sec. 5.1, filters "the generations that do not follow the
templates" without saying how.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.negatives.by_rules import NegativeCaption
from crossmatch.build.negatives.caption_context import CaptionContext
from crossmatch.build.negatives.contrasts import compatible_attributes
from crossmatch.build.negatives.replace import is_related
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.adapters.language_model_endpoint import NoAnswerError
from crossmatch.text.inflection import lemmatise, possible_tags
from crossmatch.text.noun_phrases import TaggedCaption, tag_captions
from crossmatch.text.part_of_speech import NOUN_TAGS, VERB_TAGS
from crossmatch.text.tokens_and_edits import is_word, tokenise

PLACEHOLDER = "{caption}"
FIELDS = {"replace": ("old", "new", "negative"), "swap": ("first", "second", "negative"), "add": ("added", "negative")}
FIELD_LINE = re.compile(r"^\s*[*_]*(old|new|first|second|added|negative)[*_]*\s*:\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
ARTICLES = frozenset({"a", "an"})
MAX_ADDED = {"obj": 12, "att": 4}  # words
PART_NAMES = {"obj": "thing", "att": "quality", "rel": "relation"}
CHANGED_TAGS = {  # tags that the changed words of a category may have
    "obj": NOUN_TAGS,
    "att": frozenset({"JJ", "JJR", "JJS", "CD", "VBN", "VBG", "VBD", "RB", "DT"}) | NOUN_TAGS,
    "rel": VERB_TAGS | {"IN", "TO", "RP", "RB", "JJ"},
}


# -- templates


def load_templates(folder: Path | None = None) -> dict[str, str]:
    """Load the template of each category from the package, or from a folder with files such as `replace_obj.txt`.

    >>> sorted(load_templates())[:2], "{caption}" in load_templates()["swap/att"]
    (['add/att', 'add/obj'], True)
    """
    return {category: _load_template(category, folder) for category in CATEGORIES}


def _load_template(category: str, folder: Path | None) -> str:
    name = f"{category.replace('/', '_')}.txt"
    file = folder / name if folder is not None else resources.files("crossmatch.build.negatives") / "templates" / name
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{file} does not exist; expected a template for {category}. Add it, or drop --templates.") from None
    except (OSError, ValueError) as error:
        raise CrossmatchError(f"{file} cannot be read as text ({error}).") from None
    if text.count(PLACEHOLDER) != 1:
        raise CrossmatchError(f"{file}: expected {PLACEHOLDER} once, found it {text.count(PLACEHOLDER)} times.")
    return text


def fill_template(template: str, caption: str) -> str:
    """Insert a caption into a template; line breaks become spaces, so that the caption cannot end early.

    >>> fill_template("Caption: {caption}!", "A dog\\nAdded: x")
    'Caption: A dog Added: x!'
    """
    return template.replace(PLACEHOLDER, " ".join(caption.split()))


# -- answers


def parse_negative(category: str, answer: str, caption: TaggedCaption, context: CaptionContext) -> NegativeCaption:
    """Parse and check the negative in an answer.

    Raises:
        NoAnswerError: If the answer does not follow the template; its `reason` is one of a few texts.
    """
    operation, _, part = category.partition("/")
    values = parse_fields(operation, answer)
    text = " ".join(values["negative"].split())
    _check_form(text, caption)
    negative = tag_captions([text])[0]
    if content_words(negative.words) == content_words(caption.words):
        raise NoAnswerError("same as the caption", text)
    if any(content_words(negative.words) == content_words(mention.words) for mention in context.captions):
        raise NoAnswerError("same as another caption of the image", text)
    checks = {"replace": _check_replacement, "swap": _check_swap, "add": _check_addition}
    before, after = checks[operation](part, values, negative, caption, context)
    return NegativeCaption(text, before, after)


def parse_fields(operation: str, answer: str) -> dict[str, str]:
    """Parse the lines that a template asks for, each once.

    >>> parse_fields("add", "Sure!\\n**Added:** red\\nNegative: A red dog.")
    {'added': 'red', 'negative': 'A red dog.'}
    """
    if answer.strip().strip(".").lower() == "none":
        raise NoAnswerError("the model saw nothing to change")
    values: dict[str, str] = {}
    for name, value in FIELD_LINE.findall(answer):
        if name.lower() in values:
            raise NoAnswerError("not the form that was asked for", f"{name} comes twice")
        values[name.lower()] = value.strip("*_ ").strip('"“”')
    missing = [name for name in FIELDS[operation] if not values.get(name)]
    if missing:
        raise NoAnswerError("not the form that was asked for", f"no line {missing[0]}")
    return values


def _check_form(text: str, caption: TaggedCaption) -> None:
    if text.endswith("?") and not caption.text.rstrip().endswith("?"):
        raise NoAnswerError("a question", text)
    if len(text) > 3 * len(caption.text) + 100:
        raise NoAnswerError("too long", text[:80])


def content_words(words: Sequence[str]) -> list[str]:
    """Words in lower case, without articles and punctuation.

    >>> content_words(["A", "dog", "."])
    ['dog']
    """
    return [word.lower() for word in words if is_word(word) and word.lower() not in ARTICLES]


def _words_of(text: str) -> list[str]:
    return content_words([token.text for token in tokenise(text)])


def _check_replacement(
    part: str, values: dict[str, str], negative: TaggedCaption, caption: TaggedCaption, context: CaptionContext
) -> tuple[str, str]:
    old, new = _words_of(values["old"]), _words_of(values["new"])
    words = content_words(caption.words)
    if not old or not new or old == new:
        raise NoAnswerError("nothing was replaced", values["old"])
    positions = [n for n in range(len(words)) if words[n : n + len(old)] == old]
    if not positions:
        raise NoAnswerError("what was replaced is not in the caption", values["old"])
    if not any([*words[:n], *new, *words[n + len(old) :]] == content_words(negative.words) for n in positions):
        raise NoAnswerError("more was changed than asked for", negative.text)
    _check_tags(part, old, caption)
    _check_tags(part, new, negative, is_new=True)
    change = f"{values['old']}, {values['new']}"
    old_name, new_name = (" ".join([*name[:-1], lemmatise(name[-1], "n")]) for name in (old, new))
    if part == "obj":
        if is_related(new_name, old_name):
            raise NoAnswerError("means the same, or something broader or narrower", change)
        if not context.is_absent(new_name, old_name):
            raise NoAnswerError("another caption mentions it", values["new"])
    elif part == "att" and compatible_attributes(old[-1]) & set(new):
        raise NoAnswerError("means the same, or something broader or narrower", change)
    return values["old"], values["new"]


def _check_tags(part: str, words: Sequence[str], caption: TaggedCaption, is_new: bool = False) -> None:
    """Require words of the part of speech that a category changes: nouns for objects, verbs or prepositions for relations.

    A new word may also have such a tag in the dictionary only.
    """
    tags = {tag for word, tag in zip(caption.words, caption.tags, strict=True) if word in words}
    if is_new:
        tags |= {tag for word in words for tag in possible_tags(word)}
    if not tags & CHANGED_TAGS[part]:
        raise NoAnswerError(f"the changed words do not name a {PART_NAMES[part]}", " ".join(words))


def _check_swap(
    part: str, values: dict[str, str], negative: TaggedCaption, caption: TaggedCaption, context: CaptionContext
) -> tuple[str, str]:
    if Counter(content_words(negative.words)) != Counter(content_words(caption.words)):
        raise NoAnswerError("words were added or lost in a swap", negative.text)
    swapped_words = [_words_of(values[name]) for name in ("first", "second")]
    before, after = (" ".join(content_words(words)) for words in (caption.words, negative.words))
    first, second = (" ".join(words) for words in swapped_words)
    if not first or not second or first == second or f" {first} " not in f" {before} " or f" {second} " not in f" {before} ":
        raise NoAnswerError("what was swapped is not in the caption", f"{values['first']}, {values['second']}")
    swapped = f" {before} ".replace(f" {first} ", " \0 ", 1).replace(f" {second} ", f" {first} ", 1)
    if swapped.replace(" \0 ", f" {second} ", 1).strip() != after:
        raise NoAnswerError("more was changed than asked for", negative.text)
    for words in swapped_words:
        _check_tags(part, words, caption)
    return f"{values['first']} … {values['second']}", f"{values['second']} … {values['first']}"


def _check_addition(
    part: str, values: dict[str, str], negative: TaggedCaption, caption: TaggedCaption, context: CaptionContext
) -> tuple[str, str]:
    added = _words_of(values["added"])
    before, after = content_words(caption.words), content_words(negative.words)
    if not 0 < len(added) <= MAX_ADDED[part]:
        raise NoAnswerError("too much was added, or nothing", values["added"])
    if not any([*before[:n], *added, *before[n:]] == after for n in range(len(before) + 1)):
        raise NoAnswerError("more was changed than asked for", negative.text)
    _check_tags(part, added, negative, is_new=True)
    if part == "obj":
        tagged = zip(negative.words, negative.tags, strict=True)
        nouns = {lemmatise(word, "n") for word, tag in tagged if word in added and tag in NOUN_TAGS}
        is_mentioned = any(not context.is_absent(noun) for noun in nouns)
    else:
        is_mentioned = any(compatible_attributes(word) & context.words for word in added)
    if is_mentioned:
        raise NoAnswerError("another caption mentions it", values["added"])
    return "", values["added"]
