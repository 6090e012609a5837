"""Trials of one's own: the same from every format, and every mistake named with the trial's id and the remedy."""

import csv
import io
import json
import os
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.benchmarks import benchmark_named, load_data
from crossmatch.benchmarks.formats.trials import Offer, as_trials, columns_of
from crossmatch.benchmarks.trials_file import load_trials, metrics_of, shape_of, trials_task
from crossmatch.core.benchmark import Benchmark, data_hash
from crossmatch.core.errors import CrossmatchError, WrongWords

HEAD = "trial_id,caption_0,caption_1,image_0,image_1,category"
ROWS = ("a,A cat.,A dog.,1.png,2.png,pets", "b,Tea.,Coffee.,3.png,4.png,drinks/hot")
JSON = (
    {"id": "a", "captions": ["A cat.", "A dog."], "images": ["1.png", "2.png"], "category": "pets"},
    {"id": "b", "captions": ["Tea.", "Coffee."], "images": ["3.png", "4.png"], "category": "drinks/hot"},
)


@contextmanager
def refused(*words, kind=CrossmatchError):
    """An error of one line that says all of these words."""
    with pytest.raises(kind) as caught:
        yield
    said = str(caught.value)
    assert "\n" not in said
    assert [word for word in words if word not in said] == [], said


def written(folder, *lines, name="own.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def jsonl(folder, *records):
    return written(folder, *map(json.dumps, records), name="own.jsonl")


def png(path, colour):
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(exist_ok=True)
    image.new("RGB", (3, 2), colour).save(path)


# The formats


def formats(folder):
    yield written(folder, HEAD, *ROWS)
    yield written(folder, *(line.replace(",", "\t") for line in (HEAD, *ROWS)), name="own.tsv")
    yield jsonl(folder, *JSON)
    flat = ({"trial_id": r["id"], **{f"{k[:-1]}_{n}": v for k in ("captions", "images") for n, v in enumerate(r[k])}} for r in JSON)
    yield jsonl(folder, *(record | {"category": r["category"]} for record, r in zip(flat, JSON, strict=True)))
    path = folder / "own.csv"
    path.write_bytes("\r\n".join((HEAD.upper(), *ROWS, "")).encode("utf-16"))
    yield path


def test_every_format_gives_the_same_trials(tmp_path):
    found = [(data_hash(load_trials(path)), shape_of(path)) for path in formats(tmp_path)]
    assert len(found) == 5
    assert len(set(found)) == 1
    trials = load_trials(written(tmp_path, HEAD, *ROWS))
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
    path = written(tmp_path, head, row)
    task, options = trials_task(str(path))
    assert (task.name, task.metrics, options) == ("trials:own", metrics, {})
    trials = task.loaded()
    assert trials.shape == shape
    assert trials.ids.tolist() == (["a"] if "trial_id" in head else ["0"])


def test_bivlc_s_columns_give_its_categories(tmp_path):
    head = "image,caption,negative_caption,negative_image,type,subtype"
    path = written(tmp_path, head, "1,A,B,2,Replace,Relation", "1,A,C,3,add,obj", "4,A,D,5,swap,")
    assert load_trials(path).categories.tolist() == ["replace/rel", "add/obj", "swap"]
    assert load_trials(path).images.tolist() == [["1", "2"], ["1", "3"], ["4", "5"]]


def test_trials_without_categories_and_with_columns_of_the_user_s_own(tmp_path):
    path = written(tmp_path, "id,caption,image_0,image_1,caption_id,image_id,note,tag", "7,A cat.,1,2,c,i,n,t")
    assert load_trials(path).categories.tolist() == [""]
    assert load_trials(path).ids.tolist() == ["7"]


def test_the_task_s_name_carries_options_unless_they_belong_to_the_file(tmp_path):
    path = written(tmp_path, HEAD, *ROWS)
    task, options = trials_task(f"{path}+shape=2x2+categories=pets;drinks/hot")
    assert options == {"shape": "2x2", "categories": "pets;drinks/hot"}
    assert len(task.loaded(**options).ids) == 2
    odd = written(tmp_path, HEAD, *ROWS, name="a+b=c.csv")
    assert trials_task(str(odd))[1] == {}
    assert benchmark_named(f"trials:{path}+shape=2x2", {})[1] == {"shape": "2x2"}
    assert len(load_data(f"trials:{path}").ids) == 2


def test_the_shape_is_told_by_the_head_alone(tmp_path):
    assert shape_of(written(tmp_path, HEAD, 'a,"never closed')) == (2, 2)
    assert shape_of(written(tmp_path, "", json.dumps(JSON[0]), "{broken", name="own.jsonl")) == (2, 2)
    assert metrics_of((4, 2)) == ("i2t", "t2i", "group")


# The pictures


@pytest.mark.parametrize("inside", ["", "images"])
def test_images_are_opened_from_the_folder_when_asked_for(tmp_path, inside):
    path = written(tmp_path, HEAD, *ROWS)
    for n in range(1, 5):
        png(tmp_path / inside / f"{n}.png", (50 * n, 0, 0))
    trials = load_trials(path)
    assert trials.open_image("3.png").getpixel((0, 0)) == (150, 0, 0)


def test_without_any_picture_trials_load_and_a_model_is_told_what_is_missing(tmp_path):
    trials = load_trials(written(tmp_path, HEAD, *ROWS))
    with refused("'1.png'", "Put them there", "precomputed"):
        trials.open_image("1.png")


def test_some_pictures_are_not_enough(tmp_path):
    png(tmp_path / "1.png", "red")
    with refused("trial 'a'", "'2.png'", "3 of 4 images are missing", "Put it there"):
        load_trials(written(tmp_path, HEAD, *ROWS))


def test_a_picture_outside_of_the_folder_is_not_opened(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    png(tmp_path / "secret.png", "red")
    assert not hasattr(load_trials(written(inside, "caption,image_0,image_1", "A cat.,../secret.png,2.png")).open_image, "stored")
    png(inside / "2.png", "blue")
    with refused("trial '0'", "leads out"):
        load_trials(written(inside, "caption,image_0,image_1", "A cat.,../secret.png,2.png"))


def test_one_file_under_two_names_is_one_image(tmp_path):
    png(tmp_path / "images" / "1.png", "red")
    with refused("trial '0'", "one image file under two names"):
        load_trials(written(tmp_path, "caption,image_0,image_1", "A cat.,1.png,images/1.png"))


# Bad input

GOOD = "a,A cat.,A dog.,1.png,2.png,pets"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((HEAD, GOOD, "a,Tea.,Coffee.,3,4,"), ("own.csv line 3", "trial 'a'", "line 2", "id of its own")),
        ((HEAD, GOOD, "b, ,Coffee.,3,4,"), ("line 3", "trial 'b'", "empty caption_0", "Write it")),
        ((HEAD, GOOD, "b,Tea.,Coffee.,3,,"), ("trial 'b'", "empty image_1", "Name the image")),
        ((HEAD, GOOD, "b,Tea  pot.,Tea pot.,3,4,"), ("trial 'b'", "'Tea pot.'", "twice", "cannot be won")),
        ((HEAD, GOOD, "b,Tea.,Coffee.,3,3,"), ("trial 'b'", "image '3'", "twice")),
        ((HEAD, GOOD, "b,Tea.,Coffee.,3,4"), ("line 3", "5 cells", "6")),
        ((HEAD, GOOD, ",Tea.,Coffee.,3,4,"), ("line 3", "trial_id", "Fill it in")),
        ((HEAD,), ("no rows", "one row per trial")),
        (("",), ("is empty", "one row per trial")),
        (("trial_id,caption_0,caption_1", "a,b,c"), ("none of them images", "image_0")),
        (("trial_id,captoin,image_0,image_1", "a,b,1,2"), ("none of them captions", "'captoin'", "Rename")),
        (("trial_id,caption,image_0,image_1,categroy", "a,b,1,2,c"), ("'categroy'", "'category'", "Rename")),
        (("caption_0,caption_2,image", "a,b,1"), ("caption_2", "no caption_1", "from 0")),
        (("caption_1,caption_2,image", "a,b,1"), ("no caption_0", "from 0")),
        (("caption,caption_0,caption_1,image", "a,b,c,1"), ("both 'caption_0' and 'caption'", "Keep one")),
        (("caption,caption,image", "a,b,1"), ("two columns 'caption'",)),
        (("trial_id;caption;image_0;image_1", "a;b;1;2"), ("Save it with commas",)),
        (("caption,image", "a,1"), ("leaves no choice", "Add image_1 or caption_1")),
    ],
)  # fmt: skip
def test_mistakes_in_a_table(tmp_path, lines, words):
    path = written(tmp_path, *lines)
    with refused(*words):
        trials_task(str(path))[0].loaded()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ((json.dumps(JSON[0]), '{"id": 3,'), ("own.jsonl line 2", "not json", "column 10", "Mend the line")),
        ((json.dumps(JSON[0]), "[1]"), ("line 2", "an object")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"images": ["3"]})), ("trial 'b'", "1 image and 2 captions", "2x2", "Mend it")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"captions": "Tea."})), ("trial 'b'", "'Tea.'", "a list")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"captions": ["Tea.", 3]})), ("trial 'b'", "3 for caption_1", "a text")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"images": ["3.png", 1.5]})), ("trial 'b'", "1.5")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"category": 4})), ("trial 'b'", "category 4", "a text")),
        ((json.dumps(JSON[0]), json.dumps({"id": "b", "captions": ["x"]})), ("line 2", "none of them images")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"id": None})), ("line 2", "None", "Fill it in")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"captions": ["\ud800", "b"]})), ("trial 'b'", "not Unicode")),
        ((json.dumps(JSON[0]), json.dumps(JSON[1] | {"captions": ["a\0", "a"]})), ("trial 'b'", "not Unicode")),
        (("[" * 100_000,), ("line 1", "Mend the line")),
        (("",), ("is empty", "one line per trial")),
    ],
)  # fmt: skip
def test_mistakes_in_jsonl(tmp_path, lines, words):
    path = written(tmp_path, *lines, name="own.jsonl")
    with refused(*words):
        trials_task(str(path))[0].loaded()


def test_other_shapes_than_the_one_asked_for(tmp_path):
    path = written(tmp_path, HEAD, *ROWS)
    with refused("trial 'a'", "2 images and 2 captions", "2x1", "Mend it"):
        trials_task(f"{path}+shape=2x1")[0].loaded(shape="2x1")
    for words in ("2", "1x1", "0x2", "2x2x2", "axb"):
        with refused(repr(words), "2x1", kind=WrongWords):
            trials_task(f"{path}+shape={words}")


def test_unknown_categories(tmp_path):
    path = written(tmp_path, HEAD, *ROWS)
    with refused("trial 'b'", "'drinks/hot'", "known: pets", "Mend it"):
        load_trials(path, categories="pets;cars")
    declared = Benchmark("own", "", lambda: load_trials(path), ("i2t",), categories=("pets",))
    with refused("trial 'b'", "'drinks/hot'", "pets"):
        declared.loaded()


def test_files_that_cannot_be_read(tmp_path):
    with refused("is not there", kind=WrongWords):
        trials_task(str(tmp_path / "none.csv"))
    with refused("is a folder", kind=WrongWords):
        trials_task(str(tmp_path))
    with refused(".xlsx", ".csv, .tsv and .jsonl", kind=WrongWords):
        trials_task(str(written(tmp_path, "x", name="own.xlsx")))
    for name in ("own.csv", "own.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"trial_id,caption,caf\xe9\na,b,c\n")
        with refused(f"{name} line 1", "0xe9", "UTF-8"):
            trials_task(str(path))
        path.write_bytes(
            f"{HEAD}\n".encode() + b"a,caf\xe9,b,1,2,\n" if name.endswith("csv") else json.dumps(JSON[0]).encode() + b"\n\xe9"
        )
        with refused(f"{name} line 2", "0xe9", "UTF-8"):
            trials_task(str(path))[0].loaded()
    if os.geteuid():
        path = written(tmp_path, HEAD, *ROWS, name="secret.csv")
        path.chmod(0)
        with refused("cannot be read", "Check who may read it"):
            trials_task(str(path))


# Any table


def test_columns_in_any_order_mean_the_same():
    rng = np.random.default_rng(0)
    names = ("trial_id", "caption_0", "caption_1", "image_0", "image_1", "category", "note")
    asked = columns_of(names, "x")
    assert all(columns_of(tuple(rng.permutation(names).tolist()), "x") == asked for _ in range(20))


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(lambda t: t.strip())


@given(st.lists(st.tuples(words, words), min_size=1, max_size=5))
def test_what_is_written_is_read(pairs):
    """Any captions, through csv and through jsonl: as they were, with every run of white space as one space."""
    from tempfile import TemporaryDirectory

    squeezed = [[" ".join(t.split()) for t in pair] for pair in pairs]
    if any(a == b for a, b in squeezed):
        with pytest.raises(CrossmatchError, match="cannot be won"):
            as_trials([Offer(str(n), ("i",), pair, "", "here") for n, pair in enumerate(pairs)])
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
            assert trials_task(path)[0].loaded().captions.tolist() == squeezed
