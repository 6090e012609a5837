"""METEOR's tables: words, stems, synonyms and the paraphrases that are read once."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crossmatch.captions import meteor_data
from crossmatch.captions.meteor_data import PARAPHRASES, Paraphrases, hashes, lexicon, paraphrases, synsets
from crossmatch.captions.meteor_stem import stem
from crossmatch.captions.meteor_words import is_plain, normalise
from crossmatch.core.errors import CrossmatchError, MissingDependency

pytest.importorskip("pycocoevalcap", reason="it carries METEOR's tables; install crossmatch[captions]")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("skies", "sky"), ("dying", "die"), ("news", "news"), ("inning", "inning"), ("succeeded", "succeed"), ("ties", "tie"),
        ("cries", "cri"), ("gas", "gas"), ("kiwis", "kiwi"), ("hopping", "hop"), ("hoping", "hope"), ("sized", "size"),
        ("added", "ad"), ("say", "say"), ("cry", "cri"), ("enjoying", "enjoy"), ("relational", "relat"), ("electricity", "electr"),
        ("analogi", "analog"), ("biologist", "biologist"), ("generously", "generous"), ("communal", "communal"),
        ("controlling", "control"), ("rate", "rate"), ("probate", "probat"),
        ("adoption", "adopt"), ("'dogs'", "dog"), ("dog's", "dog"), ("by", "by"), ("yes", "yes"), ("", ""),
        ("😀", "😀"), ("organization", "organ"), ("international", "intern"),
    ],
)  # fmt: skip
def test_stems(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a black-and-white t-shirt", "a black and white t shirt"), ("x-y-z", "x y-z"), ("the dog 's bone", "the dog ' s bone"),
        ("it is n't", "it is n 't"), ("the 1980's", "the 1980 's"), ("3,000 men,women", "3,000 men , women"),
        ("wait...what", "wait ... what"), ("main st.", "main st ."), ("st. peter", "st. peter"),
        ("“quoted” ‘here’", "\" quoted \" ' here '"), ("a/b & c", "a / b & c"), ("the u.s. flag", "the us flag"),
        ("cats vs. 2 dogs", "cats vs. 2 dogs"), ("Mr. X", "mr. x"), ("No. 7", "no. 7"), ("No. ?", "no . ?"),
        ("a\u00a0dog\u3000runs", "a dog runs"), ("😀🏳️", "😀 🏳 ️"), ("", ""), (" ", ""), ("–--", "- -"),
    ],
)  # fmt: skip
def test_words(text: str, expected: str) -> None:
    assert normalise(text, lexicon().abbreviations) == expected.split()


def test_plain_words_stay_whatever_stands_beside_them() -> None:
    for word in ("dog", "é", "42", "3d", "собака"):
        assert is_plain(word)
        assert normalise(f"... {word} 's", {})[1] == word
    assert not any(map(is_plain, ("Dog", "a.", "t-shirt", "犬", "", "a b")))


def test_irregular_and_regular_forms_have_the_senses_of_their_base() -> None:
    assert synsets("mouse") <= synsets("mice")
    assert synsets("church") <= synsets("churches")
    assert synsets("ride") <= synsets("riding")
    assert synsets("glass") == {int(n) for n in lexicon().synsets["glass"].split()}  # `ss` is no plural
    assert synsets("is") != synsets("i")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of three phrases in a data folder, and a cache folder of its own."""
    lines = [("0.1", "big dog", "hound"), ("0.2", "big dog", "large dog"), ("0.3", "café", "bar"), ("0.4", "dog", "hound dog")]
    packed = gzip.compress("".join(f"{p}\n{a}\n{b}\n" for p, a, b in lines).encode())
    place = tmp_path / PARAPHRASES.path
    place.parent.mkdir(parents=True)
    place.write_bytes(packed)
    file = replace(PARAPHRASES, sha256=hashlib.sha256(packed).hexdigest(), size=len(packed))
    monkeypatch.setattr(meteor_data, "PARAPHRASES", file)
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paraphrases.cache_clear()
    return place


@pytest.fixture(autouse=True)
def forget() -> object:
    yield
    paraphrases.cache_clear()
    lexicon.cache_clear()


def listed(table: Paraphrases, phrase: str) -> list[int]:
    at = np.flatnonzero(table.phrases == hashes([phrase])[0])
    return [int(h) for n in at for h in table.paraphrases[table.begin[n] : table.end[n]]]


@pytest.mark.parametrize("piece", [7, 40, 1 << 20])
def test_the_table_is_compiled_and_kept(small: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(meteor_data, "PIECE", max(piece, 64))  # powers are made for twice this
    monkeypatch.setattr(meteor_data.gzip, "open", lambda place: _Slow(place, piece))
    table = paraphrases()
    assert listed(table, "big dog") == hashes(["hound", "large dog"])[0].tolist()
    assert listed(table, "café") == hashes(["bar"])[0].tolist()
    assert listed(table, "hound") == []
    assert (np.diff(table.phrases.astype(object)) > 0).all()
    paraphrases.cache_clear()
    monkeypatch.setattr(meteor_data, "_compiled", None)  # not called again
    again = paraphrases()
    for one, other in zip(vars(table).values(), vars(again).values(), strict=True):
        np.testing.assert_array_equal(one, other)


class _Slow:
    """A packed file that gives a few bytes at a time."""

    def __init__(self, place: Path, most: int) -> None:
        self.rest, self.most = gzip.decompress(place.read_bytes()), most

    def __enter__(self) -> _Slow:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size: int) -> bytes:
        size = min(size, self.most)
        piece, self.rest = self.rest[:size], self.rest[size:]
        return piece


@pytest.mark.parametrize("content", [b"", b"not an array", None])
def test_a_damaged_cache_is_made_anew(small: Path, content: bytes | None) -> None:
    want = listed(paraphrases(), "dog")
    place = meteor_data.cache_file()
    paraphrases.cache_clear()
    place.write_bytes(place.read_bytes()[:-16] if content is None else content)
    assert listed(paraphrases(), "dog") == want
    paraphrases.cache_clear()
    assert np.load(place).dtype == np.uint64


def test_a_cache_that_cannot_be_written_is_no_error(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(small))  # a file, not a folder
    assert listed(paraphrases(), "café") == hashes(["bar"])[0].tolist()


def test_another_file_is_refused(small: Path) -> None:
    small.write_bytes(small.read_bytes() + b"x")
    with pytest.raises(CrossmatchError, match=r"not METEOR 1.5's: \d+ bytes, expected \d+. Install it again with"):
        paraphrases()
    small.write_bytes(bytes(small.stat().st_size - 1))
    with pytest.raises(CrossmatchError, match=r"not METEOR 1.5's: sha256 .* Install it again with"):
        paraphrases()


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meteor_data, "find", lambda file, root: None)
    paraphrases.cache_clear()
    lexicon.cache_clear()
    for load in (lexicon, paraphrases):
        with pytest.raises(MissingDependency, match=r"pip install 'crossmatch\[captions\]'"):
            load()
