"""Caption files: every layout gives the same captions, and errors name id and place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from crossmatch.benchmarks.formats.caption_scoring_files import find_images, read_candidates, read_ratings, read_references
from crossmatch.data.errors import CrossmatchError, UsageError

CAPTIONS = {"7": ["A dog.", "Two dogs, running."], "9": ["Ein Hund \U0001f415", "\u202bכלב\u202c"]}
RECORDS = [{"image_id": int(i), "caption": text} for i, texts in CAPTIONS.items() for text in texts]


def as_table(separator: str, end: str = "\n") -> str:
    rows = [f'{i}{separator}"{text}"' for i, texts in CAPTIONS.items() for text in texts]
    return end.join([f"image_id{separator}caption", *rows, ""])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps(CAPTIONS)),
        ("a.json", json.dumps(RECORDS)),
        ("a.json", json.dumps({i: [{"caption": text} for text in texts] for i, texts in CAPTIONS.items()})),
        ("a.json", json.dumps({"images": [], "annotations": [{**record, "id": n} for n, record in enumerate(RECORDS)]})),
        ("a.jsonl", "\r\n".join(json.dumps(record, ensure_ascii=False) for record in RECORDS)),
        ("a.csv", as_table(",")),
        ("a.csv", as_table(",", "\r\n")),
        ("a.tsv", as_table("\t")),
        ("a.csv", "\ufeff" + as_table(",")),
        ("a.tsv", "caption_id\t" + as_table("\t").replace("\n", "\n1\t", 4)),
    ],
)
def test_every_layout_gives_the_same(tmp_path: Path, name: str, content: str) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert read_references(path) == CAPTIONS


@pytest.mark.parametrize("content", ['{"7": "A dog."}', '{"7": ["A dog."]}', '[{"image_id": 7, "caption": "A dog."}]'])
def test_candidates_of_every_layout(tmp_path: Path, content: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(content)
    assert read_candidates(path) == {"7": "A dog."}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.json", '[{"image_id": 7, "caption": "a"}, {"image_id": "7", "caption": "b"}]', "one candidate per image; image '7' has 2"),
        ("c.json", '{"7": ["a", "b"]}', "one candidate per image; image '7' has 2"),
        ("c.json", '{"7": "a", "7": "b"}', "the id '7' occurs twice"),
        ("c.json", '{"7": 5}', "the caption of image '7' must be text \\(got 5\\)"),
        ("c.json", '{"7": null}', "the caption of image '7' must be text \\(got None\\)"),
        ("c.json", '{"7": []}', "image '7' has no captions"),
        ("c.json", '[{"image_id": 7}]', r"\[0\]: image '7' has no 'caption'"),
        ("c.json", '[{"caption": "a"}]', r"\[0\]: 'image_id' must be .*\(got None\)"),
        ("c.json", "[7]", r"\[0\] must be a record .*\(got 7\)"),
        ("c.json", '{"annotations": [{"id": 1, "image_id": 7, "caption": "a"}, {"id": 1, "image_id": 8, "caption": "a"}]}',
         "annotation id 1 occurs 2 times"),
        ("c.json", "{}", "holds no captions"),
        ("c.json", "7", "holds 7; accepted are"),
        ("c.json", '{"7": "a"', "is not json"),
        ("c.json", "[" * 100_000, "nested too deeply"),
        ("c.jsonl", '{"image_id": 7, "caption": "a"}\n{"image_id": 8,', "line 2 is not json"),
        ("c.csv", "image_id,caption\n,a dog\n", "line 2: 'image_id' must be .*\\(got ''\\)"),
        ("c.csv", "picture,caption\n7,a dog\n", "a column 'image_id' or 'id' or 'image' is missing"),
        ("c.csv", "image_id,caption\n7,a,dog\n", "line 2: 3 cells"),
    ],
)  # fmt: skip
def test_invalid_candidates_are_an_error(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(CrossmatchError, match=message):
        read_candidates(path)


def test_unknown_suffix_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("a dog")
    with pytest.raises(UsageError, match=r"got '.txt'"):
        read_candidates(tmp_path / "c.txt")


def test_empty_candidate_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text('image_id,caption\n7,""\n')
    assert read_candidates(tmp_path / "c.csv") == {"7": ""}


def test_images_are_found_by_id(tmp_path: Path) -> None:
    for name, red in (("cat.png", 10), ("COCO_val2014_000000000139.png", 20), ("000000000285.png", 30)):
        Image.new("RGB", (2, 2), (red, 0, 0)).save(tmp_path / name)
    open_image = find_images(tmp_path, ["cat", "139", "285", "cat.png"])
    assert [open_image(i).getpixel((0, 0))[0] for i in ("cat", "139", "285", "cat.png")] == [10, 20, 30, 10]
    with pytest.raises(CrossmatchError, match=r"there is no image 'dog' in .* \(2 images are missing\)"):
        find_images(tmp_path, ["cat", "dog", "bird"])


def test_ratings_of_a_user_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes('\ufeffImage_ID,caption,rating\r\n7,a dog,4\r\n8,"a cat, asleep",1\r\n7,a dog,2.5\r\n'.encode())
    assert read_ratings(path) == [("7", "a dog", [4, 2.5]), ("8", "a cat, asleep", [1])]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "mine.csv is empty"),
        (b"image_id,caption\n7,a dog\n", "a column 'rating' or 'score' is missing"),
        (b"image_id,caption,rating\n", "has a header but no rows"),
        (b"image_id,caption,rating\n7,a dog,good\n", "line 2, image '7': the rating must be a number .got 'good'"),
        (b"image_id,caption,rating\n7,a dog,\n", "line 2, image '7': the rating must be a number .got ''"),
        (b"image_id,caption,rating\n7,a dog,inf\n", "the rating must be a number .got 'inf'"),
        (b"image_id,caption,rating\n7,a dog,1e300\n", "the rating must be a number \\(got '1e300'\\)"),
        (b"image_id,caption,rating\n7,a dog,1_0\n", "the rating must be a number \\(got '1_0'\\)"),
        (b"image_id,caption,rating\n7,a dog,2,5\n", "line 2: 4 cells"),
        (b"image_id,caption,rating\n,a dog,1\n", "line 2: 'image_id' must be .*\\(got ''\\)"),
        (b"image_id,caption,rating,rating\n7,a dog,1,2\n", "two columns 'rating'"),
        (b"image_id,caption,rating\n7,caf\xe9,1\n", "is not utf-8"),
    ],
)
def test_invalid_rating_files_are_an_error(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "mine.csv").write_bytes(content)
    with pytest.raises(CrossmatchError, match=message):
        read_ratings(tmp_path / "mine.csv")


def test_candidates_and_references_may_share_a_file(tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("image_id,candidate,reference\n7,a dog,the dog\n")
    assert read_candidates(tmp_path / "two.csv") == {"7": "a dog"}
    assert read_references(tmp_path / "two.csv") == {"7": ["the dog"]}


def test_long_cells_are_read(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text(f"image_id,caption\n7,{'dog ' * 60_000}\n")
    assert len(read_candidates(tmp_path / "long.csv")["7"].split()) == 60_000


def test_huge_number_in_json_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"7": ' + "9" * 5_000 + "}")
    with pytest.raises(CrossmatchError, match=r"c\.json cannot be read"):
        read_candidates(tmp_path / "c.json")
