"""Files of captions: every layout gives the same captions, and what is wrong is named by id and place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from crossmatch.benchmarks.formats.caption_files import pictures_in, read_candidates, read_ratings, read_references
from crossmatch.core.errors import CrossmatchError, WrongWords

SAID = {"7": ["A dog.", "Two dogs, running."], "9": ["Ein Hund \U0001f415", "\u202bכלב\u202c"]}
RECORDS = [{"image_id": int(i), "caption": text} for i, texts in SAID.items() for text in texts]


def lines(separator: str, end: str = "\n") -> str:
    rows = [f'{i}{separator}"{text}"' for i, texts in SAID.items() for text in texts]
    return end.join([f"image_id{separator}caption", *rows, ""])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps(SAID)),
        ("a.json", json.dumps(RECORDS)),
        ("a.json", json.dumps({i: [{"caption": text} for text in texts] for i, texts in SAID.items()})),
        ("a.json", json.dumps({"images": [], "annotations": [{**one, "id": n} for n, one in enumerate(RECORDS)]})),
        ("a.jsonl", "\r\n".join(json.dumps(one, ensure_ascii=False) for one in RECORDS)),
        ("a.csv", lines(",")),
        ("a.csv", lines(",", "\r\n")),
        ("a.tsv", lines("\t")),
        ("a.csv", "\ufeff" + lines(",")),
        ("a.tsv", "caption_id\t" + lines("\t").replace("\n", "\n1\t", 4)),
    ],
)
def test_every_layout_gives_the_same(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert read_references(path) == SAID


@pytest.mark.parametrize("content", ['{"7": "A dog."}', '{"7": ["A dog."]}', '[{"image_id": 7, "caption": "A dog."}]'])
def test_candidates(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    assert read_candidates(path) == {"7": "A dog."}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.json", '[{"image_id": 7, "caption": "a"}, {"image_id": "7", "caption": "b"}]', "2 candidates of image '7'"),
        ("c.json", '{"7": ["a", "b"]}', "2 candidates of image '7'"),
        ("c.json", '{"7": "a", "7": "b"}', "the id '7' stands there twice"),
        ("c.json", '{"7": 5}', "the caption of image '7' is 5; a text was expected"),
        ("c.json", '{"7": null}', "the caption of image '7' is None"),
        ("c.json", '{"7": []}', "image '7' has no captions"),
        ("c.json", '[{"image_id": 7}]', r"\[0\]: image '7' has no 'caption'"),
        ("c.json", '[{"caption": "a"}]', r"\[0\]: its 'image_id' is None"),
        ("c.json", "[7]", r"\[0\] is 7; a record"),
        ("c.json", '{"annotations": [{"id": 1, "image_id": 7, "caption": "a"}, {"id": 1, "image_id": 8, "caption": "a"}]}',
         "annotation id 1 stands there 2 times"),
        ("c.json", "{}", "holds no captions"),
        ("c.json", "7", "holds 7; it may be one of"),
        ("c.json", '{"7": "a"', "is not json"),
        ("c.json", "[" * 100_000, "nested too deeply"),
        ("c.jsonl", '{"image_id": 7, "caption": "a"}\n{"image_id": 8,', "line 2 is not json"),
        ("c.csv", "image_id,caption\n,a dog\n", "line 2: its 'image_id' is ''"),
        ("c.csv", "picture,caption\n7,a dog\n", "one called 'image_id' or 'id' or 'image' is missing"),
        ("c.csv", "image_id,caption\n7,a,dog\n", "line 2: 3 cells"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(CrossmatchError, match=message):
        read_candidates(path)


def test_an_unknown_ending_is_a_wrong_word(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("a dog")
    with pytest.raises(WrongWords, match=r"ends in '.txt'"):
        read_candidates(tmp_path / "c.txt")


def test_an_empty_caption_is_a_caption(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text('image_id,caption\n7,""\n')
    assert read_candidates(tmp_path / "c.csv") == {"7": ""}


def test_pictures_by_id(tmp_path: Path) -> None:
    for name, red in (("cat.png", 10), ("COCO_val2014_000000000139.png", 20), ("000000000285.png", 30)):
        Image.new("RGB", (2, 2), (red, 0, 0)).save(tmp_path / name)
    opened = pictures_in(tmp_path, ["cat", "139", "285", "cat.png"])
    assert [opened(i).getpixel((0, 0))[0] for i in ("cat", "139", "285", "cat.png")] == [10, 20, 30, 10]
    with pytest.raises(CrossmatchError, match=r"there is no image 'dog' in .* \(2 images are missing\)"):
        pictures_in(tmp_path, ["cat", "dog", "bird"])


def test_ratings_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes('\ufeffImage_ID,caption,rating\r\n7,a dog,4\r\n8,"a cat, asleep",1\r\n7,a dog,2.5\r\n'.encode())
    assert read_ratings(path) == [("7", "a dog", [4, 2.5]), ("8", "a cat, asleep", [1])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "mine.csv is empty"),
        (b"image_id,caption\n7,a dog\n", "one called 'rating' or 'score' is missing"),
        (b"image_id,caption,rating\n", "has a header but no rows"),
        (b"image_id,caption,rating\n7,a dog,good\n", "line 2, image '7': the rating is 'good'"),
        (b"image_id,caption,rating\n7,a dog,\n", "line 2, image '7': the rating is ''"),
        (b"image_id,caption,rating\n7,a dog,inf\n", "the rating is 'inf'"),
        (b"image_id,caption,rating\n7,a dog,1e300\n", "the rating is '1e300'"),
        (b"image_id,caption,rating\n7,a dog,1_0\n", "the rating is '1_0'"),
        (b"image_id,caption,rating\n7,a dog,2,5\n", "line 2: 4 cells"),
        (b"image_id,caption,rating\n,a dog,1\n", "line 2: its 'image_id' is ''"),
        (b"image_id,caption,rating,rating\n7,a dog,1,2\n", "two columns 'rating'"),
        (b"image_id,caption,rating\n7,caf\xe9,1\n", "is not utf-8"),
    ],
)
def test_wrong_ratings_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "mine.csv").write_bytes(content)
    with pytest.raises(CrossmatchError, match=message):
        read_ratings(tmp_path / "mine.csv")


def test_one_file_with_both_columns_is_read_by_role(tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("image_id,candidate,reference\n7,a dog,the dog\n")
    assert read_candidates(tmp_path / "two.csv") == {"7": "a dog"}
    assert read_references(tmp_path / "two.csv") == {"7": ["the dog"]}


def test_a_cell_may_be_long(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text(f"image_id,caption\n7,{'dog ' * 60_000}\n")
    assert len(read_candidates(tmp_path / "long.csv")["7"].split()) == 60_000


def test_a_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"7": ' + "9" * 5_000 + "}")
    with pytest.raises(CrossmatchError, match=r"c\.json cannot be read"):
        read_candidates(tmp_path / "c.json")
