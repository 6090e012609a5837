"""Declarations by name or from files: the same for recipes of training and for designs of studies."""

import pytest

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.packaged import assigned, names_in, read_declaration


@pytest.fixture
def home(tmp_path):
    place = tmp_path / "packaged"
    place.mkdir()
    (place / "plain.toml").write_text('about = "plain"\n')
    (place / "README.md").write_text("no declaration")
    return place


def read(name, home):
    return read_declaration(str(name), home, "recipe", "crossmatch train --list")


def test_a_name_is_that_of_a_packaged_file_and_a_path_one_of_the_users_own(home, tmp_path):
    (tmp_path / "mine.toml").write_text("a = 1\n")
    assert names_in(home) == ["plain"]
    assert (read("plain", home), read(tmp_path / "mine.toml", home)) == ({"about": "plain"}, {"a": 1})


def test_what_cannot_be_read_is_named(home, tmp_path):
    with pytest.raises(WrongWords, match=r"there is no recipe 'plian'. Did you mean 'plain'\? `crossmatch train --list`"):
        read("plian", home)
    with pytest.raises(WrongWords, match=r"nowhere.toml cannot be read \(No such file or directory\). Check the path"):
        read(tmp_path / "nowhere.toml", home)
    for text in (b"a = ", b"\xff = 1"):
        (tmp_path / "mine.toml").write_bytes(text)
        with pytest.raises(CrossmatchError, match=r"mine\.toml is not TOML"):
            read(tmp_path / "mine.toml", home)


@pytest.mark.parametrize("word", ["people=3", "recipe.people", "recipe.=3", "=3", ""])
def test_a_word_that_assigns_nothing_is_none(word):
    assert assigned(word) is None


def test_values_are_toml_and_words_need_no_quotes():
    assert [assigned(f"a.b={text}")[2] for text in ("3", " 0.5", "true", '"x y"', "x y", "")] == [3, 0.5, True, "x y", "x y", ""]
