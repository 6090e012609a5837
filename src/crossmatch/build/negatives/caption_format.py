"""A uniform caption format, so that only words distinguish captions from negatives (miranda2024bivlc, sec. 3.1, step 1).

A caption starts with a capital and continues in lower case, except for names and quoted text. It has single spaces, and ends with a
punctuation mark. Captions in other scripts are not changed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from crossmatch.build.step_files import Row, StepOutput, StepSpec, read_rows, rows_hash, write_step
from crossmatch.build.step_inputs import collection_hash, sort_by_id
from crossmatch.data.collection import Collection
from crossmatch.text.inflection import lemmatise
from crossmatch.text.noun_phrases import word_set
from crossmatch.text.tokens_and_edits import Token, TokenEdit, apply_edits, capitalise, is_mostly_upper_case, is_word, tokenise
from crossmatch.text.wordnet import synsets

STEP = "format"
MAX_PASSES = 10
SENTENCE_ENDS = ".!?…"
CLOSING = "\"'”’)]}»"
QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”")
TRAILING_PUNCTUATION = re.compile(r"[\s,;:\-–—]+$")
INITIALS = re.compile(r"(?:[A-Z]\.)+[A-Z]?\.?")
FUNCTION_WORDS = word_set(
    """
    a all an and any are as at be been both but by down each for from he her here him his if in into is it its me my no not of off
    on one onto or our out over she so some that the their them then there these they this those to two under up us was we were what
    when where which while who with you your
    """
)
SPACE_BEFORE_PUNCTUATION = re.compile(r"\s+([,;:!?…]|\.(?!\w))")


def format_caption(text: str) -> str:
    """Format a caption; formatting it again changes nothing. A caption in another script is returned unchanged.

    >>> format_caption("a man  on a BMW in London , at night"), format_caption("A MAN IN LONDON"), format_caption("Собака сидит")
    ('A man on a BMW in London, at night.', 'A man in London.', 'Собака сидит')
    """
    if not is_latin(text):
        return text
    for _ in range(MAX_PASSES):  # one change may enable another: "no Parking" is not a name any more
        formatted = _fix_ends(_lower_case(_fix_spaces(text)))
        if formatted == text:
            break
        text = formatted
    return text


def is_latin(text: str) -> bool:
    """Whether a text has letters, and all of them are Latin.

    >>> is_latin("Ein Bär."), is_latin("熊"), is_latin("123")
    (True, False, False)
    """
    letters = [letter for letter in text if letter.isalpha()]
    return bool(letters) and all(unicodedata.name(letter, "").startswith("LATIN") for letter in letters)


def _fix_spaces(text: str) -> str:
    """One space between words, none before a punctuation mark."""
    return SPACE_BEFORE_PUNCTUATION.sub(r"\1", " ".join(text.split()))


def _fix_ends(text: str) -> str:
    """A capital at the start and a punctuation mark at the end."""
    start = next((n for n, character in enumerate(text) if character.isalnum()), 0)
    word = re.match(r"\w*", text[start:])
    is_mixed_case = word is not None and not word.group().islower() and not word.group().istitle()  # iPod, TV
    text = text if is_mixed_case else text[:start] + capitalise(text[start:])
    trimmed = TRAILING_PUNCTUATION.sub("", text) or text
    if trimmed.rstrip(CLOSING).endswith(tuple(SENTENCE_ENDS)):
        return f"{trimmed[:-2]}." if trimmed.endswith("..") and not trimmed.endswith("...") else trimmed
    return f"{trimmed}."


def _lower_case(text: str) -> str:
    """Lower case, except for names, quoted text and starts of sentences."""
    tokens = tokenise(text)
    quoted = [match.span() for match in QUOTED.finditer(text)]
    ignore_capitals = is_mostly_upper_case(text) or _is_title_case(tokens)
    edits = []
    for first, last in _capitalised_runs(tokens):
        if any(start <= tokens[first].start < end for start, end in quoted):
            continue
        starts_sentence = first == 0 or tokens[first - 1].text[-1:] in SENTENCE_ENDS
        for at in range(first, last + 1):
            word = tokens[at].text
            if not _keeps_capitals(tokens, at, last > first, ignore_capitals):
                lower = word.lower()
                new = capitalise(lower) if (starts_sentence and at == first) or _is_only_name(lower) else lower
                edits.append(TokenEdit(tokens[at].start, tokens[at].end, new))
    return apply_edits(text, edits)


def _capitalised_runs(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """First and last position of runs of capitalised words, as "Red Sox"; the first word of a sentence is its own run."""
    start: int | None = None
    for at, token in enumerate(tokens):
        has_capital = token.text != token.text.lower() and is_word(token.text)
        starts_sentence = at == 1 or (at > 1 and tokens[at - 2].text[-1:] in SENTENCE_ENDS)
        is_function_word = token.text.lower() in FUNCTION_WORDS or tokens[at - 1].text.lower() in FUNCTION_WORDS
        if start is not None and (not has_capital or starts_sentence or is_function_word):
            yield start, at - 1
            start = None
        if has_capital and start is None:
            start = at
    if start is not None:
        yield start, len(tokens) - 1


def _is_title_case(tokens: Sequence[Token]) -> bool:
    """Whether most words after the first are capitalised, so that capitals carry no information: "A Man Riding A Wave"."""
    words = [token.text for token in tokens if token.text[:1].isalpha()][1:]
    has_title_function_word = any(word[0].isupper() and word.lower() in FUNCTION_WORDS for word in words)
    is_long_enough = len(words) > (2 if has_title_function_word else 5)
    return is_long_enough and 3 * sum(word[0].isupper() for word in words) > 2 * len(words)


def _keeps_capitals(tokens: Sequence[Token], at: int, is_in_run: bool, ignore_capitals: bool) -> bool:
    """Whether a word keeps its capitals: an acronym, an abbreviation, or a name.

    Several capitalised words in a row are a name ("Burger King"). A single one is a name if dictionaries list it as a name or not
    at all. The tagger is not used, because it tags every capitalised word as a name. If capitals carry no information, dictionaries
    decide.
    """
    word, lower = tokens[at].text, tokens[at].text.lower()
    if lower == "i" or INITIALS.fullmatch(word) or (_is_only_name(lower) and word == capitalise(lower)):
        return True
    if ignore_capitals:
        return False
    if (
        len(word) > 1 and not word.istitle() and not (word.isupper() and len(word) > 3 and is_common_word(lower))
    ):  # BMW, iPod; not STOP
        return True
    is_abbreviation = at + 2 < len(tokens) and tokens[at + 1].text == "." and tokens[at + 1].start == tokens[at].end  # St. Mary
    return (
        at > 0
        and lower not in FUNCTION_WORDS
        and (is_in_run or is_abbreviation or is_proper_name(lower) or not is_common_word(lower))
    )


@lru_cache(1 << 14)
def is_common_word(word: str) -> bool:
    """Whether dictionaries list a word in lower case, or it is too short or has other characters than letters.

    >>> is_common_word("streets"), is_common_word("london"), is_common_word("chelsea")
    (True, False, False)
    """
    bases = {word, lemmatise(word, "n"), lemmatise(word, "v")} if word.isalpha() else {word}
    is_listed = any(base in synset.lemmas for base in bases for pos in "nvar" for synset in synsets(base, pos))
    return is_listed or word in FUNCTION_WORDS or not word.isalpha() or len(word) < 3


@lru_cache(1 << 14)
def is_proper_name(word: str) -> bool:
    """Whether dictionaries list a word with a capital: a city, a people, a weekday.

    >>> is_proper_name("french"), is_proper_name("dog")
    (True, False)
    """
    return word not in FUNCTION_WORDS and any(capitalise(word) in synset.lemmas for pos in "na" for synset in synsets(word, pos))


@lru_cache(1 << 14)
def _is_only_name(word: str) -> bool:
    """Whether dictionaries list a word with a capital only."""
    return is_proper_name(word) and not is_common_word(word)


# -- the step


def write_formatted(source: Collection | Path, output: Path) -> dict[str, Any]:
    """Write formatted captions into a folder.

    Args:
        source: A collection, or a folder with hard negatives, of which captions and negatives are formatted. A negative that
            differs from its caption in format only is dropped and counted.
        output: Folder of the step.

    Returns:
        The manifest.
    """
    if isinstance(source, Collection):
        data = sort_by_id(source)
        return write_step(output, StepSpec(STEP, {"collection": collection_hash(data)}), lambda step: _caption_rows(step, data))
    rows = read_rows(source, "negatives", "format")
    return write_step(output, StepSpec(STEP, {"negatives": rows_hash(source)}), lambda step: _negative_rows(step, rows))


def _caption_rows(step: StepOutput, collection: Collection) -> list[Row]:
    rows: list[Row] = []
    image_of = {caption: image for image, caption in reversed(collection.links.tolist())}
    for n, old in enumerate(collection.texts()):
        new = format_caption(old)
        _count(step, "caption", old, new)
        image = str(collection.image_ids[image_of[n]]) if n in image_of else ""
        rows.append({"id": str(collection.caption_ids[n]), "image_id": image, "caption": new, "was": old})
    return rows


def _negative_rows(step: StepOutput, rows: Sequence[Row]) -> list[Row]:
    formatted: list[Row] = []
    for row in rows:
        caption, negative = format_caption(row["caption"]), format_caption(row["negative"])
        _count(step, "caption", row["caption"], caption)
        _count(step, "negative", row["negative"], negative)
        if caption == negative:
            step.count("same but for the form")
        else:
            formatted.append({**row, "caption": caption, "negative": negative})
    return formatted


def _count(step: StepOutput, kind: str, old: str, new: str) -> None:
    if not is_latin(old):
        step.count(f"{kind}: left alone")
    else:
        step.count(f"{kind}: {'changed' if new != old else 'was uniform'}")
