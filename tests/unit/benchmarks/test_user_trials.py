"""User trials: every format gives the same trials, and errors name the trial and the remedy."""

import csv
import io
import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.benchmarks import load_benchmark_data, resolve_task
from crossmatch.benchmarks.formats.trial_files import TrialRecord, build_trials, identify_columns
from crossmatch.benchmarks.user_trials import detect_shape, load_trials, metrics_for_shape, parse_trials_task
from crossmatch.data.benchmark import Benchmark
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.loaded_data import data_hash
from error_messages import one_line_error

HEAD = "trial_id,caption_0,caption_1,image_0,image_1,category"
ROWS = ("a,A cat.,A dog.,1.png,2.png,pets", "b,Tea.,Coffee.,3.png,4.png,drinks/hot")
JSON = (
    {"id": "a", "captions": ["A cat.", "A dog."], "images": ["1.png", "2.png"], "category": "pets"},
    {"id": "b", "captions": ["Tea.", "Coffee."], "images": ["3.png", "4.png"], "category": "drinks/hot"},
)


def write_lines(folder, *lines, name="own.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_jsonl(folder, *records):
    return write_lines(folder, *map(json.dumps, records), name="own.jsonl")


def write_png(path, colour):
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(exist_ok=True)
    image.new("RGB", (3, 2), colour).save(path)


# Formats


def formats(folder):
    yield write_lines(folder, HEAD, *ROWS)
    yield write_lines(folder, *(line.replace(",", "\t") for line in (HEAD, *ROWS)), name="own.tsv")
    yield write_jsonl(folder, *JSON)
    flat = ({"trial_id": r["id"], **{f"{k[:-1]}_{n}": v for k in ("captions", "images") for n, v in enumerate(r[k])}} for r in JSON)
    yield write_jsonl(folder, *(record | {"category": r["category"]} for record, r in zip(flat, JSON, strict=True)))
    path = folder / "own.csv"
    path.write_bytes("\r\n".join((HEAD.upper(), *ROWS, "")).encode("utf-16"))
    yield path


def test_every_format_gives_the_same_trials(tmp_path):
    hashes_and_shapes = [(data_hash(load_trials(path)), detect_shape(path)) for path in formats(tmp_path)]
    assert len(hashes_and_shapes) == 5
    assert len(set(hashes_and_shapes)) == 1
    trials = load_trials(write_lines(tmp_path, HEAD, *ROWS))
    assert trials.ids.tolist() == ["a", "b"]
    assert trials.shape == (2, 2)
    assert trials.captions.tolist() == [["A cat.", "A dog."], ["Tea.", "Coffee."]]
    assert trials.images.tolist() == [["1.png", "2.png"], ["3.png", "4.png"]]
    assert trials.categories.tolist() == ["pets", "drinks/hot"]


@pytest.mark.parametrize(
    ("head", "row", "shape", "metrics"),
    [
        ("trial_id,caption,image_0,image_1", "a,A cat.,1,2", (1, 2), ("accuracy",)),
        ("trial_id,caption_0,caption_1,image", "a,A cat.,A dog.,1", (2, 1), ("accuracy",)),
        ("filename,caption,negative_caption,type,subtype", "1.jpg,A cat.,A dog.,Add,Object", (2, 1), ("accuracy",)),
        ("caption_0,image_0,image_1,image_2", "A cat.,1,2,3", (1, 3), ("accuracy",)),
        ("caption_0,caption_1,caption_2,image_0,image_1,image_2", "a,b,c,1,2,3", (3, 3), ("i2t", "t2i", "group")),
        (
            "image,caption,negative_caption,negative_image,type,subtype", "1,A cat.,A dog.,2,swap,att", (2, 2),
            ("i2t", "t2i", "group", "ipos2t", "ineg2t", "tpos2i", "tneg2i"),
        ),
    ],
)  # fmt: skip
def test_shapes_and_their_metrics(tmp_path, head, row, shape, metrics):
    path = write_lines(tmp_path, head, row)
    task, options = parse_trials_task(str(path))
    assert (task.name, task.metrics, options) == ("trials:own", metrics, {})
    trials = task.load()
    assert trials.shape == shape
    assert trials.ids.tolist() == (["a"] if "trial_id" in head else ["0"])


def test_columns_of_bivlc_give_categories(tmp_path):
    head = "image,caption,negative_caption,negative_image,type,subtype"
    path = write_lines(tmp_path, head, "1,A,B,2,Replace,Relation", "1,A,C,3,add,obj", "4,A,D,5,swap,")
    assert load_trials(path).categories.tolist() == ["replace/rel", "add/obj", "swap"]
    assert load_trials(path).images.tolist() == [["1", "2"], ["1", "3"], ["4", "5"]]


def test_unknown_columns_are_ignored(tmp_path):
    path = write_lines(tmp_path, "id,caption,image_0,image_1,caption_id,image_id,note,tag", "7,A cat.,1,2,c,i,n,t")
    assert load_trials(path).categories.tolist() == [""]
    assert load_trials(path).ids.tolist() == ["7"]


def test_options_follow_the_file_name(tmp_path):
    path = write_lines(tmp_path, HEAD, *ROWS)
    task, options = parse_trials_task(f"{path}+shape=2x2+categories=pets;drinks/hot")
    assert options == {"shape": "2x2", "categories": "pets;drinks/hot"}
    assert len(task.load(**options).ids) == 2
    odd_name = write_lines(tmp_path, HEAD, *ROWS, name="a+b=c.csv")
    assert parse_trials_task(str(odd_name))[1] == {}
    assert resolve_task(f"trials:{path}+shape=2x2", {})[1] == {"shape": "2x2"}
    assert len(load_benchmark_data(f"trials:{path}").ids) == 2


def test_shape_comes_from_the_header(tmp_path):
    assert detect_shape(write_lines(tmp_path, HEAD, 'a,"never closed')) == (2, 2)
    assert detect_shape(write_lines(tmp_path, "", json.dumps(JSON[0]), "{broken", name="own.jsonl")) == (2, 2)
    assert metrics_for_shape((4, 2)) == ("i2t", "t2i", "group")


# Images


@pytest.mark.parametrize("inside", ["", "images"])
def test_images_are_opened_from_the_folder(tmp_path, inside):
    path = write_lines(tmp_path, HEAD, *ROWS)
    for n in range(1, 5):
        write_png(tmp_path / inside / f"{n}.png", (50 * n, 0, 0))
    trials = load_trials(path)
    assert trials.open_image("3.png").getpixel((0, 0)) == (150, 0, 0)


def test_trials_load_without_images(tmp_path):
    trials = load_trials(write_lines(tmp_path, HEAD, *ROWS))
    with one_line_error("'1.png'", "Put them there", "precomputed"):
        trials.open_image("1.png")


def test_missing_images_are_an_error(tmp_path):
    write_png(tmp_path / "1.png", "red")
    with one_line_error("trial 'a'", "'2.png'", "3 of 4 images are missing", "Put it there"):
        load_trials(write_lines(tmp_path, HEAD, *ROWS))


def test_image_outside_the_folder_is_not_opened(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    write_png(tmp_path / "secret.png", "red")
    assert not hasattr(
        load_trials(write_lines(inside, "caption,image_0,image_1", "A cat.,../secret.png,2.png")).open_image, "encoded"
    )
    write_png(inside / "2.png", "blue")
    with one_line_error("trial '0'", "leads out"):
        load_trials(write_lines(inside, "caption,image_0,image_1", "A cat.,../secret.png,2.png"))


def test_one_image_under_two_names_is_an_error(tmp_path):
    write_png(tmp_path / "images" / "1.png", "red")
    with one_line_error("trial '0'", "one image file under two names"):
        load_trials(write_lines(tmp_path, "caption,image_0,image_1", "A cat.,1.png,images/1.png"))


# Errors

GOOD = "a,A cat.,A dog.,1.png,2.png,pets"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((HEAD, GOOD, "a,Tea.,Coffee.,3,4,"), ("own.csv line 3", "trial 'a'", "line 2", "its own id")),
        ((HEAD, GOOD, "b, ,Coffee.,3,4,"), ("line 3", "trial 'b'", "empty caption_0", "Fill it in")),
        ((HEAD, GOOD, "b,Tea.,Coffee.,3,,"), ("trial 'b'", "empty image_1", "Fill it in")),
        ((HEAD, GOOD, "b,Tea  pot.,Tea pot.,3,4,"), ("trial 'b'", "'Tea pot.'", "twice", "cannot be won")),
        ((HEAD, GOOD, "b,Tea.,Coffee.,3,3,"), ("trial 'b'", "image '3'", "twice")),
        ((HEAD, GOOD, "b,Tea.,Coffee.,3,4"), ("line 3", "5 cells", "6")),
        ((HEAD, GOOD, ",Tea.,Coffee.,3,4,"), ("line 3", "trial_id", "Fill it in")),
        ((HEAD,), ("no rows", "one row per trial")),
        (("",), ("is empty", "one row per trial")),
        (("trial_id,caption_0,caption_1", "a,b,c"), ("none holds images", "image_0")),
        (("trial_id,captoin,image_0,image_1", "a,b,1,2"), ("none holds captions", "'captoin'", "Rename")),
        (("trial_id,caption,image_0,image_1,categroy", "a,b,1,2,c"), ("'categroy'", "'category'", "Rename")),
        (("caption_0,caption_2,image", "a,b,1"), ("caption_2", "no caption_1", "from 0")),
        (("caption_1,caption_2,image", "a,b,1"), ("no caption_0", "from 0")),
        (("caption,caption_0,caption_1,image", "a,b,c,1"), ("both 'caption_0' and 'caption'", "Keep one")),
        (("caption,caption,image", "a,b,1"), ("two columns 'caption'",)),
        (("trial_id;caption;image_0;image_1", "a;b;1;2"), ("commas (.csv)",)),
        (("caption,image", "a,1"), ("leaves no choice", "Add image_1 or caption_1")),
    ],
)  # fmt: skip
def test_invalid_table_is_an_error(tmp_path, lines, words):
    path = write_lines(tmp_path, *lines)
    with one_line_error(*words):
        parse_trials_task(str(path))[0].load()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((json.dumps(JSON[0]), '{"id": 3,'), ("own.jsonl line 2", "not json", "column 10", "Correct the line")),
        ((json.dumps(JSON[0]), "[1]"), ("line 2", "an object")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"images": ["3"]})), ("trial 'b'", "1 image and 2 captions", "2x2", "Correct it")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"captions": "Tea."})), ("trial 'b'", "'Tea.'", "a list")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"captions": ["Tea.", 3]})), ("trial 'b'", "caption_1 of trial 'b'", "must be text (got 3)")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"images": ["3.png", 1.5]})), ("trial 'b'", "1.5")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"category": 4})), ("trial 'b'", "category must be text (got 4)")),
        ((json.dumps(JSON[0]), json.dumps({"id": "b", "captions": ["x"]})), ("line 2", "none holds images")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"id": None})), ("line 2", "None", "Fill it in")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"captions": ["\ud800", "b"]})), ("trial 'b'", "not valid Unicode")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"captions": ["a\0", "a"]})), ("trial 'b'", "not valid Unicode")),
        (("[" * 100_000,), ("line 1", "Correct the line")),
        (("",), ("is empty", "one line per trial")),
    ],
)  # fmt: skip
def test_invalid_jsonl_is_an_error(tmp_path, lines, words):
    path = write_lines(tmp_path, *lines, name="own.jsonl")
    with one_line_error(*words):
        parse_trials_task(str(path))[0].load()


def test_other_shapes_are_an_error(tmp_path):
    path = write_lines(tmp_path, HEAD, *ROWS)
    with one_line_error("trial 'a'", "2 images and 2 captions", "2x1", "Correct it"):
        parse_trials_task(f"{path}+shape=2x1")[0].load(shape="2x1")
    for words in ("2", "1x1", "0x2", "2x2x2", "axb"):
        with one_line_error(repr(words), "2x1", kind=UsageError):
            parse_trials_task(f"{path}+shape={words}")


def test_unknown_categories_are_an_error(tmp_path):
    path = write_lines(tmp_path, HEAD, *ROWS)
    with one_line_error("trial 'b'", "'drinks/hot'", "allowed: pets", "Correct it"):
        load_trials(path, categories="pets;cars")
    benchmark = Benchmark("own", "", lambda: load_trials(path), ("i2t",), categories=("pets",))
    with one_line_error("Trial 'b'", "'drinks/hot'", "pets"):
        benchmark.load()


def test_unreadable_files_are_an_error(tmp_path):
    with one_line_error("does not exist", kind=UsageError):
        parse_trials_task(str(tmp_path / "none.csv"))
    with one_line_error("is a folder", kind=UsageError):
        parse_trials_task(str(tmp_path))
    with one_line_error(".xlsx", ".csv, .tsv or .jsonl", kind=UsageError):
        parse_trials_task(str(write_lines(tmp_path, "x", name="own.xlsx")))
    for name in ("own.csv", "own.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"trial_id,caption,caf\xe9\na,b,c\n")
        with one_line_error(f"{name} line 1", "0xe9", "UTF-8"):
            parse_trials_task(str(path))
        path.write_bytes(
            f"{HEAD}\n".encode() + b"a,caf\xe9,b,1,2,\n" if name.endswith("csv") else json.dumps(JSON[0]).encode() + b"\n\xe9"
        )
        with one_line_error(f"{name} line 2", "0xe9", "UTF-8"):
            parse_trials_task(str(path))[0].load()
    if os.geteuid():
        path = write_lines(tmp_path, HEAD, *ROWS, name="secret.csv")
        path.chmod(0)
        with one_line_error("cannot be read", "Check its permissions"):
            parse_trials_task(str(path))


# Any column order and any text


def test_order_of_columns_does_not_matter():
    rng = np.random.default_rng(0)
    names = ("trial_id", "caption_0", "caption_1", "image_0", "image_1", "category", "note")
    expected = identify_columns(names, "x")
    assert all(identify_columns(tuple(rng.permutation(names).tolist()), "x") == expected for _ in range(20))


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(lambda t: t.strip())


@given(st.lists(st.tuples(words, words), min_size=1, max_size=5))
def test_written_captions_are_read_back(pairs):
    """Captions written as csv and as jsonl are read with single spaces."""
    from tempfile import TemporaryDirectory

    normalised = [[" ".join(t.split()) for t in pair] for pair in pairs]
    if any(a == b for a, b in normalised):
        with pytest.raises(CrossmatchError, match="cannot be won"):
            build_trials([TrialRecord(str(n), ("i",), pair, "", "here") for n, pair in enumerate(pairs)])
        return
    table = io.StringIO(newline="")
    out = csv.writer(table, lineterminator="\n", quoting=csv.QUOTE_ALL)
    out.writerow(("caption_0", "caption_1", "image"))
    out.writerows((*pair, "1") for pair in pairs)
    lines = "\n".join(json.dumps({"captions": pair, "images": ["1"]}, ensure_ascii=False) for pair in pairs)
    with TemporaryDirectory() as folder:
        for name, text in (("t.csv", table.getvalue()), ("t.jsonl", lines)):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            assert parse_trials_task(path)[0].load().captions.tolist() == normalised
