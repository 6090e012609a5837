"""Csv files: no cell is a formula in any locale, numbers stay numbers, and the texts can be restored."""

import csv
import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossmatch.benchmarks.formats.csv_tables import read_table
from crossmatch.data.io.spreadsheet_csv import SIGNS, escape_formulas, format_csv, restore_text

NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?")
ALPHABET = f"ab1 .,\"'{SIGNS};|\t\n\r\x0b\u2028\u00a0\u200b\u061b"
TEXTS = st.text(ALPHABET, max_size=12) | st.text(max_size=8)


def begins_formula(cell):
    """The slow, obvious version: the first character that a spreadsheet does not ignore is a sign, and this is no number."""
    bare = cell.lstrip().lstrip('\u200b\ufeff" ').lstrip()
    return bare[:1] in tuple(SIGNS) and not NUMBER.fullmatch(bare.strip().strip('"'))


def cells_in_other_locales(text):
    """All cells that a spreadsheet may see: separated by commas, by semicolons or tabs with quotes, or without quotes."""
    for delimiter in ",;\t|":
        yield from (cell for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) for cell in row)
    yield from re.split("[;\t|\n\r\v\f\x85\u2028\u2029\u061b]", text)


@given(st.lists(st.lists(TEXTS, min_size=3, max_size=3), max_size=3))
@example([["=1", "-5+cmd", "x"]])
@example([["x", "a cat;=1+1", "x"]])
@example([["-3", "5+cmd|' /C calc'!A0", "x"]])
@example([["x", "a;-3", "5+cmd"]])
@example([["x", 'a;"=1+1', "x"]])
@example([["\t=1", "\r=1", "'=1"]])
def test_no_cell_is_a_formula_in_any_locale(rows):
    text = format_csv(["id", "caption", "person"], rows)
    assert [cell for cell in cells_in_other_locales(text) if begins_formula(cell)] == []


@given(TEXTS)
@example("'=1")
@example("''\t=1")
@example("'\t'=1;'-2")
def test_the_text_is_restored(text):
    assert restore_text(escape_formulas(text)) == text
    assert restore_text(escape_formulas(text, keep_numbers=False)) == text


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3))
def test_written_rows_are_read_back(rows):
    text = format_csv(["first", "second"], rows)
    (_, *cells) = csv.reader(io.StringIO(text, newline=""))
    assert [tuple(map(restore_text, row)) for row in cells] == rows


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_numbers_stay_numbers(number):
    assert escape_formulas(number) == escape_formulas(str(number)) == str(number)
    first_cell = format_csv(["x"], [[number]]).splitlines()[1]
    assert float(first_cell) == float(number)


@pytest.mark.parametrize("text", ["-1", "+2.5", "-1e-3", "A cat.", "", "5", "a - b", "1; 2", "'tis a cat; 'twas", "cat|dog"])
def test_numbers_and_words_stay_as_they_are(text):
    assert escape_formulas(text) == text


def test_read_table_restores_only_files_of_this_package(tmp_path):
    path = tmp_path / "judgements.csv"
    path.write_text(format_csv(["image_id", "caption_id"], [["=a", "b;@c"]]), encoding="utf-8")
    columns = (("image_id",), ("caption_id",))
    (ours,), (foreign,) = read_table(path, columns, has_escaped_formulas=True), read_table(path, columns)
    assert dict(ours.cells) == {"image_id": "=a", "caption_id": "b;@c"}
    assert dict(foreign.cells) == {"image_id": "'=a", "caption_id": "b;'@c"}
