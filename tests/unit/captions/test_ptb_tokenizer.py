"""Tokens of examples; tests/parity compares the same captions with Stanford's program."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.captions.ptb_tokenizer import tokenise
from crossmatch.data.errors import CrossmatchError

CASES = [line.split("\t") for line in (Path(__file__).parent / "tokens.tsv").read_text().splitlines()]


@pytest.mark.parametrize(("caption", "tokens"), CASES)
def test_tokens_of_examples(caption: str, tokens: str) -> None:
    assert " ".join(tokenise(caption)) == tokens


@given(st.text(alphabet="abcXYZ ,.", max_size=30))
def test_fast_path_equals_full_lexer(caption: str) -> None:
    assert tokenise(caption) == tokenise("~ " + caption)[1:]  # one odd mark sends a caption the long way


@given(st.text(max_size=60))
def test_tokens_are_lower_case_without_spaces(caption: str) -> None:
    for token in tokenise(caption):
        assert token
        assert token == token.lower()
        assert not any(char.isspace() for char in token)


def test_line_ends_are_spaces() -> None:
    assert tokenise("a dog\r\non a\tmat.\n") == ["a", "dog", "on", "a", "mat"]
    assert tokenise("Two 1/2\r\n(cats)!!\r") == ["two", "1/2", "-lrb-", "cats", "-rrb-", "!!"]


def test_a_long_caption_takes_linear_time() -> None:
    assert len(tokenise("dog's " * 10_000)) == 20_000
    assert len(tokenise("x" * 100_000 + "'")) == 1
    assert tokenise("a-" * 5_000 + "!")[0].startswith("a-a-a")
    for odd in ("1/", "U.S.-", "1.-", "a,", "<a", "a@", "(555)"):  # minutes each, if a rule looked ahead without bound
        assert tokenise(odd * 50_000)


@pytest.mark.parametrize("value", [None, 5, b"a dog", ["a dog"], float("nan")])
def test_non_text_is_refused(value: object) -> None:
    with pytest.raises(CrossmatchError, match="Expected a caption as text"):
        tokenise(value)  # type: ignore[arg-type]
