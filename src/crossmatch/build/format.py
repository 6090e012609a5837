"""Captions in one form, so that nothing but their words tells natural from written ones (miranda2024bivlc, sec. 3.1, step 1).

A capital at the start, small letters after it, named entities and what stands in quotation marks kept as they are, one space
between words, a punctuation mark at the end. Captions in other scripts are left alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from crossmatch.build.files import Asked, Output, Row, hash_of, manifest, read_rows, written
from crossmatch.build.material import collection_hash, in_order
from crossmatch.build.phrases import listed
from crossmatch.core.collection import Collection
from crossmatch.core.errors import WrongWords
from crossmatch.language.forms import lemma
from crossmatch.language.wordnet import synsets
from crossmatch.language.words import Edit, Token, capitalised, edited, is_word, loud, tokens

STEP = "format"
PASSES = 10
ENDS = ".!?…"
CLOSING = "\"'”’)]}»"
QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”")
OPEN_ENDS = re.compile(r"[\s,;:\-–—]+$")
INITIALS = re.compile(r"(?:[A-Z]\.)+[A-Z]?\.?")
CLOSED = listed(
    """
    a all an and any are as at be been both but by down each for from he her here him his if in into is it its me my no not of off
    on one onto or our out over she so some that the their them then there these they this those to two under up us was we were what
    when where which while who with you your
    """
)
SPACED = re.compile(r"\s+([,;:!?…]|\.(?!\w))")


def uniform(text: str) -> str:
    """A caption in the uniform form; the uniform form of what is uniform is itself.

    >>> uniform("a man  on a BMW in London , at night"), uniform("A MAN IN LONDON")
    ('A man on a BMW in London, at night.', 'A man in London.')
    """
    return uniform_all([text])[0]


def uniform_all(texts: Sequence[str]) -> list[str]:
    """Many captions in the uniform form.

    >>> uniform_all(["The Dog sits on a Couch", "Собака сидит"])
    ['The dog sits on a couch.', 'Собака сидит']
    """
    return [_formed(text) if latin(text) else text for text in texts]


def _formed(text: str) -> str:
    """The form of the form of …, until it stays: what one change brings about ("no Parking" is no name any more) asks for more."""
    for _ in range(PASSES):
        new = _finished(_lowered(_spaced(text)))
        if new == text:
            break
        text = new
    return text


def latin(text: str) -> bool:
    """Whether a text has letters, and all of them are Latin.

    >>> latin("Ein Bär."), latin("熊"), latin("123")
    (True, False, False)
    """
    letters = [letter for letter in text if letter.isalpha()]
    return bool(letters) and all(unicodedata.name(letter, "").startswith("LATIN") for letter in letters)


def _spaced(text: str) -> str:
    """One space between words, none before a punctuation mark."""
    return SPACED.sub(r"\1", " ".join(text.split()))


def _finished(text: str) -> str:
    """A capital at the start and a punctuation mark at the end."""
    letter = next((n for n, sign in enumerate(text) if sign.isalnum()), 0)
    word = re.match(r"\w*", text[letter:])
    mixed = word is not None and not word.group().islower() and not word.group().istitle()  # iPod, TV
    text = text if mixed else text[:letter] + capitalised(text[letter:])
    bare = OPEN_ENDS.sub("", text) or text
    if bare.rstrip(CLOSING).endswith(tuple(ENDS)):
        return f"{bare[:-2]}." if bare.endswith("..") and not bare.endswith("...") else bare
    return f"{bare}."


def _lowered(text: str) -> str:
    """The text in small letters but for names, what is quoted, and what begins a sentence."""
    found = tokens(text)
    quoted = [match.span() for match in QUOTED.finditer(text)]
    says_nothing = loud(text) or _titled(found)
    edits = []
    for first, last in _runs(found):
        if any(start <= found[first].start < end for start, end in quoted):
            continue
        begins = first == 0 or found[first - 1].text[-1:] in ENDS
        for at in range(first, last + 1):
            word = found[at].text
            if not _keeps(found, at, last > first, says_nothing):
                small = word.lower()
                new = capitalised(small) if (begins and at == first) or _only_name(small) else small
                edits.append(Edit(found[at].start, found[at].end, new))
    return edited(text, edits)


def _runs(found: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """From where to where words with capitals stand side by side: "Red Sox"; the first word of a sentence is a run of its own."""
    start: int | None = None
    for at, token in enumerate(found):
        capital = token.text != token.text.lower() and is_word(token.text)
        begins = at == 1 or (at > 1 and found[at - 2].text[-1:] in ENDS)
        alone = token.text.lower() in CLOSED or found[at - 1].text.lower() in CLOSED
        if start is not None and (not capital or begins or alone):
            yield start, at - 1
            start = None
        if capital and start is None:
            start = at
    if start is not None:
        yield start, len(found) - 1


def _titled(found: Sequence[Token]) -> bool:
    """Whether most words after the first have a capital, so that capitals say nothing: "A Man Riding A Wave"."""
    lettered = [token.text for token in found if token.text[:1].isalpha()][1:]
    small_words = any(word[0].isupper() and word.lower() in CLOSED for word in lettered)
    enough = len(lettered) > (2 if small_words else 5)
    return enough and 3 * sum(word[0].isupper() for word in lettered) > 2 * len(lettered)


def _keeps(found: Sequence[Token], at: int, beside: bool, says_nothing: bool) -> bool:
    """Whether a word keeps its capitals: an acronym, an abbreviation, or a name.

    Several words with capitals side by side are a name ("Burger King"); a single one is, if dictionaries have it as a name or not
    at all. The tagger is not asked: it calls every word with a capital a name. Where capitals say nothing, dictionaries decide.
    """
    word, small = found[at].text, found[at].text.lower()
    if small == "i" or INITIALS.fullmatch(word) or (_only_name(small) and word == capitalised(small)):
        return True
    if says_nothing:
        return False
    if len(word) > 1 and not word.istitle() and not (word.isupper() and len(word) > 3 and common(small)):  # BMW, iPod; not STOP
        return True
    shortened = at + 2 < len(found) and found[at + 1].text == "." and found[at + 1].start == found[at].end  # St. Mary
    return at > 0 and small not in CLOSED and (beside or shortened or name(small) or not common(small))


@lru_cache(1 << 14)
def common(word: str) -> bool:
    """Whether dictionaries have a word in small letters, or it is too short or too odd to tell.

    >>> common("streets"), common("london"), common("chelsea")
    (True, False, False)
    """
    bases = {word, lemma(word, "n"), lemma(word, "v")} if word.isalpha() else {word}
    listed = any(base in synset.lemmas for base in bases for pos in "nvar" for synset in synsets(base, pos))
    return listed or word in CLOSED or not word.isalpha() or len(word) < 3


@lru_cache(1 << 14)
def name(word: str) -> bool:
    """Whether dictionaries have a word with a capital: a city, a people, a weekday.

    >>> name("french"), name("dog")
    (True, False)
    """
    return word not in CLOSED and any(capitalised(word) in synset.lemmas for pos in "na" for synset in synsets(word, pos))


@lru_cache(1 << 14)
def _only_name(word: str) -> bool:
    """Whether dictionaries have a word with a capital only."""
    return name(word) and not common(word)


# -- the step


def formatted(source: Collection | Path, output: Path) -> dict[str, Any]:
    """Write captions in the uniform form into a folder; its manifest.

    The source is a collection, or a folder with hard negatives, of which both captions are put into form. A negative that is its
    caption but for the form is dropped, and counted.
    """
    if isinstance(source, Collection):
        held = in_order(source)
        return written(output, Asked(STEP, {"collection": collection_hash(held)}), lambda made: _captions(made, held))
    told = manifest(source)
    if told["step"] not in ("negatives", "format"):
        raise WrongWords(
            f"{source} was made by {told['step']}; a folder with negatives was expected, or a collection. Check the path."
        )
    return written(output, Asked(STEP, {"negatives": hash_of(source)}), lambda made: _negatives(made, read_rows(source)))


def _captions(made: Output, collection: Collection) -> Iterator[Row]:
    texts = collection.texts()
    image_of = {caption: image for image, caption in reversed(collection.links.tolist())}
    for n, (old, new) in enumerate(zip(texts, uniform_all(texts), strict=True)):
        _count(made, "caption", old, new)
        image = str(collection.image_ids[image_of[n]]) if n in image_of else ""
        yield {"id": str(collection.caption_ids[n]), "image_id": image, "caption": new, "was": old}


def _negatives(made: Output, rows: Sequence[Row]) -> Iterator[Row]:
    captions, negatives = (uniform_all([row[name] for row in rows]) for name in ("caption", "negative"))
    for row, caption, negative in zip(rows, captions, negatives, strict=True):
        _count(made, "caption", row["caption"], caption)
        _count(made, "negative", row["negative"], negative)
        if caption == negative:
            made.count("same but for the form")
        else:
            yield {**row, "caption": caption, "negative": negative}


def _count(made: Output, what: str, old: str, new: str) -> None:
    if not latin(old):
        made.count(f"{what}: left alone")
    else:
        made.count(f"{what}: {'changed' if new != old else 'was uniform'}")
