"""Declarations by name or from files, as used by training recipes and study designs."""

import pytest

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.declaration_files import packaged_names, parse_assignment, read_declaration


@pytest.fixture
def packaged(tmp_path):
    folder = tmp_path / "packaged"
    folder.mkdir()
    (folder / "plain.toml").write_text('about = "plain"\n')
    (folder / "README.md").write_text("no declaration")
    return folder


def read(name, packaged):
    return read_declaration(str(name), packaged, "recipe", "crossmatch list recipes")


def test_declaration_is_read_by_name_or_path(packaged, tmp_path):
    (tmp_path / "mine.toml").write_text("a = 1\n")
    assert packaged_names(packaged) == ["plain"]
    assert (read("plain", packaged), read(tmp_path / "mine.toml", packaged)) == ({"about": "plain"}, {"a": 1})


def test_unreadable_declarations_are_an_error(packaged, tmp_path):
    with pytest.raises(UsageError, match=r"there is no recipe 'plian'. Did you mean 'plain'\? `crossmatch list recipes`"):
        read("plian", packaged)
    with pytest.raises(UsageError, match=r"nowhere.toml cannot be read \(No such file or directory\). Check the path"):
        read(tmp_path / "nowhere.toml", packaged)
    for text in (b"a = ", b"\xff = 1"):
        (tmp_path / "mine.toml").write_bytes(text)
        with pytest.raises(CrossmatchError, match=r"mine\.toml is not TOML"):
            read(tmp_path / "mine.toml", packaged)


@pytest.mark.parametrize("text", ["people=3", "recipe.people", "recipe.=3", "=3", ""])
def test_text_without_assignment_is_none(text):
    assert parse_assignment(text) is None


def test_values_are_toml_and_words_need_no_quotes():
    assert [parse_assignment(f"a.b={text}")[2] for text in ("3", " 0.5", "true", '"x y"', "x y", "")] == [
        3,
        0.5,
        True,
        "x y",
        "x y",
        "",
    ]
