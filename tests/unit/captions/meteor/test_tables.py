"""METEOR's tables: words, stems, synonyms and the paraphrases that are read once."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crossmatch.captions.meteor import tables as meteor_data
from crossmatch.captions.meteor.normalisation import is_unchanged, normalise
from crossmatch.captions.meteor.porter_stemmer import stem
from crossmatch.captions.meteor.tables import (
    PARAPHRASE_FILE,
    ParaphraseTable,
    hash_words,
    load_lexicon,
    load_paraphrases,
    word_synsets,
)
from crossmatch.data.errors import CrossmatchError, MissingDependencyError

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
def test_stems_of_words(word: str, expected: str) -> None:
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
def test_words_of_captions(text: str, expected: str) -> None:
    assert normalise(text, load_lexicon().abbreviations) == expected.split()


def test_plain_words_do_not_depend_on_neighbours() -> None:
    for word in ("dog", "é", "42", "3d", "собака"):
        assert is_unchanged(word)
        assert normalise(f"... {word} 's", {})[1] == word
    assert not any(map(is_unchanged, ("Dog", "a.", "t-shirt", "犬", "", "a b")))


def test_inflected_forms_have_the_synsets_of_their_base() -> None:
    assert word_synsets("mouse") <= word_synsets("mice")
    assert word_synsets("church") <= word_synsets("churches")
    assert word_synsets("ride") <= word_synsets("riding")
    assert word_synsets("glass") == {int(n) for n in load_lexicon().synsets["glass"].split()}  # `ss` is no plural
    assert word_synsets("is") != word_synsets("i")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of three phrases in a data folder, and a cache folder of its own."""
    lines = [("0.1", "big dog", "hound"), ("0.2", "big dog", "large dog"), ("0.3", "café", "bar"), ("0.4", "dog", "hound dog")]
    packed = gzip.compress("".join(f"{p}\n{a}\n{b}\n" for p, a, b in lines).encode())
    place = tmp_path / PARAPHRASE_FILE.path
    place.parent.mkdir(parents=True)
    place.write_bytes(packed)
    file = replace(PARAPHRASE_FILE, sha256=hashlib.sha256(packed).hexdigest(), size=len(packed))
    monkeypatch.setattr(meteor_data, "PARAPHRASE_FILE", file)
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    load_paraphrases.cache_clear()
    return place


@pytest.fixture(autouse=True)
def forget() -> object:
    yield
    load_paraphrases.cache_clear()
    load_lexicon.cache_clear()


def listed(table: ParaphraseTable, phrase: str) -> list[int]:
    at = np.flatnonzero(table.phrases == hash_words([phrase])[0])
    return [int(h) for n in at for h in table.paraphrases[table.starts[n] : table.ends[n]]]


@pytest.mark.parametrize("piece", [7, 40, 1 << 20])
def test_table_is_compiled_and_cached(small: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    monkeypatch.setattr(meteor_data, "PIECE_BYTES", max(piece, 64))  # powers are made for twice this
    monkeypatch.setattr(meteor_data.gzip, "open", lambda place: _Slow(place, piece))
    table = load_paraphrases()
    assert listed(table, "big dog") == hash_words(["hound", "large dog"])[0].tolist()
    assert listed(table, "café") == hash_words(["bar"])[0].tolist()
    assert listed(table, "hound") == []
    assert (np.diff(table.phrases.astype(object)) > 0).all()
    load_paraphrases.cache_clear()
    monkeypatch.setattr(meteor_data, "_hash_table", None)  # not called again
    reloaded = load_paraphrases()
    for first, second in zip(vars(table).values(), vars(reloaded).values(), strict=True):
        np.testing.assert_array_equal(first, second)


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
def test_damaged_cache_is_rebuilt(small: Path, content: bytes | None) -> None:
    want = listed(load_paraphrases(), "dog")
    place = meteor_data.paraphrase_cache_path()
    load_paraphrases.cache_clear()
    place.write_bytes(place.read_bytes()[:-16] if content is None else content)
    assert listed(load_paraphrases(), "dog") == want
    load_paraphrases.cache_clear()
    assert np.load(place).dtype == np.uint64


def test_read_only_cache_is_no_error(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(small))  # a file, not a folder
    assert listed(load_paraphrases(), "café") == hash_words(["bar"])[0].tolist()


def test_wrong_file_is_refused(small: Path) -> None:
    small.write_bytes(small.read_bytes() + b"x")
    with pytest.raises(CrossmatchError, match=r"not the file of METEOR 1.5: \d+ bytes, expected \d+. Reinstall it with"):
        load_paraphrases()
    small.write_bytes(bytes(small.stat().st_size - 1))
    with pytest.raises(CrossmatchError, match=r"not the file of METEOR 1.5: sha256 .* Reinstall it with"):
        load_paraphrases()


def test_missing_package_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meteor_data, "find_file", lambda file, root: None)
    load_paraphrases.cache_clear()
    load_lexicon.cache_clear()
    for load in (load_lexicon, load_paraphrases):
        with pytest.raises(MissingDependencyError, match=r"pip install 'crossmatch\[captions\]'"):
            load()
