"""Items come from files: what is meant is found, and every mistake is one line with the file, the line and the remedy."""

import hashlib
import json
import sys

import pytest
from PIL import Image

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.assignment.claims import load_hit
from crossmatch.study.design.add_study import add_study
from crossmatch.study.design.data_source import Source, collection_of, source_of
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.item_files import read_items, read_pool
from crossmatch.study.results.answers import load_items
from crossmatch.study.study import find_study
from study_lab import add_annotator, submit_hit

ECCV = load_design("eccv-hit")
STS = load_design("sts")


def picture(path, colour="red"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), colour).save(path)


@pytest.fixture
def folder(tmp_path):
    picture(tmp_path / "a.jpg", "red")
    picture(tmp_path / "images" / "b.png", "blue")
    picture(tmp_path / "images" / "deep" / "c.jpg", "green")
    return tmp_path


def jsonl(folder, *records, name="items.jsonl"):
    (folder / name).write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return folder / name


def table(folder, text, name="items.csv"):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


# What is read


def test_jsonl_item_keeps_all_keys(folder):
    record = {"id": "x", "images": ["a.jpg"], "captions": ["A  cat. "], "caption_ids": ["c7"], "mark": {"deep": [1, 2]}}
    (material,) = read_items(jsonl(folder, record), ECCV).items
    assert (material.key, material.images, material.captions, material.gold) == ("x", ("a.jpg",), ("A cat.",), None)
    assert material.details == {
        "image_ids": ["a.jpg"], "caption_ids": ["c7"], "image_id": "a.jpg", "caption_id": "c7", "caption": "A cat.",
        "mark": {"deep": [1, 2]},
    }  # fmt: skip


def test_a_csv_is_read_as_a_jsonl_is(folder):
    rows = "id,image,caption,caption_id,kind,gold,category\nx,a.jpg,A cat.,c7,,,pets\ng,b,A dog.,c8,positive,yes;weak-yes,\n"
    x, g = read_items(table(folder, rows), ECCV).items
    same = jsonl(
        folder,
        {"id": "x", "image": "a.jpg", "caption": "A cat.", "caption_id": "c7", "category": "pets"},
        {
            "id": "g",
            "images": ["b"],
            "captions": ["A dog."],
            "caption_ids": ["c8"],
            "kind": "positive",
            "gold": ["yes", "weak-yes"],
        },
    )
    assert (x, g) == read_items(same, ECCV).items
    assert g.gold == {"match": ("yes", "weak-yes")}


def test_a_tsv_may_have_captions_with_commas(folder):
    (material,) = read_items(table(folder, "caption_0\tcaption_1\nA cat, a dog.\tTwo pets.\n", "items.tsv"), STS).items
    assert material.captions == ("A cat, a dog.", "Two pets.")


def test_numbered_columns_end_where_the_row_ends(folder):
    design = load_design("bison-select")
    rows = "image_0,image_1,caption_0,caption_1,caption_2\na.jpg,b.png,One.,Two.,\na.jpg,b.png,One.,Two.,Three.\n"
    assert [len(item.captions) for item in read_items(table(folder, rows), design).items] == [2, 3]


def test_item_without_an_id_gets_one_from_its_pair_or_line(folder):
    pair = read_items(jsonl(folder, {"image": "a.jpg", "caption": "A cat.", "caption_id": "c"}), ECCV).items[0]
    two = read_items(jsonl(folder, {"captions": ["A.", "B."]}, {"captions": ["C.", "D."]}), STS).items
    assert [pair.key, *(one.key for one in two)] == ["a.jpg~c", "0", "1"]


def test_a_caption_without_an_id_gets_one_that_equal_texts_share(folder):
    a, b = read_items(jsonl(folder, {"image": "a.jpg", "caption": "A cat."}, {"image": "b", "caption": "A cat."}), ECCV).items
    assert a.details["caption_id"] == b.details["caption_id"] == "text-" + hashlib.sha256(b"A cat.").hexdigest()[:12]


def test_item_file_may_contain_undisplayed_content(folder):
    detail = load_design("caption-detail")
    (material,) = read_items(jsonl(folder, {"image_id": "cat", "image": "a.jpg", "caption": "A cat."}), detail).items
    assert material.images == ()
    assert material.details["image_id"] == "cat"


def test_a_trial_becomes_its_four_choices(folder):
    human = load_design("bivlc-human")
    record = {"id": "t", "images": ["a.jpg", "b"], "captions": ["Red.", "Blue."], "category": "swap"}
    items = read_items(jsonl(folder, record), human).items
    told = [(item.key, item.block, item.images, item.captions, item.details["query"]) for item in items]
    assert told == [
        ("t/i2t-0", "i2t", ("a.jpg",), ("Red.", "Blue."), 0),
        ("t/i2t-1", "i2t", ("b",), ("Red.", "Blue."), 1),
        ("t/t2i-0", "t2i", ("a.jpg", "b"), ("Red.",), 2),
        ("t/t2i-1", "t2i", ("a.jpg", "b"), ("Blue.",), 3),
    ]
    assert {(item.group, item.details["trial"], item.details["category"]) for item in items} == {("t", "t", "swap")}


def test_an_example_of_a_trial_tells_its_answers(folder):
    record = {"images": ["a.jpg", "b"], "captions": ["Red.", "Blue."], "kind": "example", "why": "Because."}
    items = read_items(jsonl(folder, record), load_design("bivlc-human")).items
    assert [item.gold for item in items] == [
        {"caption": ("caption-0",)}, {"caption": ("caption-1",)}, {"image": ("image-0",)}, {"image": ("image-1",)},
    ]  # fmt: skip
    assert items[0].details["why"] == "Because."


def test_gold_is_positive_or_negative_by_the_grades_of_the_options(folder):
    records = [{"id": kind, "image": "a.jpg", "caption": "A cat.", "kind": kind} for kind in ("candidate", "positive", "negative")]
    items = read_items(jsonl(folder, *records), ECCV).items
    assert [item.gold for item in items] == [None, {"match": ("yes", "weak-yes")}, {"match": ("weak-no", "no")}]
    assert [item.kind for item in items] == ["", "positive", "negative"]


# Where pictures are


def test_images_are_files_beside_the_items_or_in_images(folder):
    records = [{"id": str(n), "image": name, "caption": "It."} for n, name in enumerate(("a.jpg", "b.png", "b", "deep/c.jpg"))]
    material = read_items(jsonl(folder, *records), ECCV)
    assert [material.open_image(item.images[0]).size for item in material.items] == [(8, 8)] * 4


@pytest.mark.parametrize("name", ["../a.jpg", "images/../../a.jpg", "/etc/passwd", "C:\\a.jpg", "\\\\host\\a.jpg"])
def test_a_path_that_leads_out_is_refused(folder, name):
    file = jsonl(folder / "images", {"id": "x", "image": name, "caption": "It."})
    with pytest.raises(CrossmatchError, match=r"items\.jsonl line 1: item 'x': .* leads out of .*\. Name a file in it\.$"):
        read_items(file, ECCV)


def test_missing_images_are_counted(folder):
    file = jsonl(folder, *({"image": f"no-{n}.jpg", "caption": "It."} for n in range(3)))
    with pytest.raises(
        CrossmatchError, match=r"line 1: item .* has the image 'no-0\.jpg', which is not in .* \(3 images are missing\)"
    ):
        read_items(file, ECCV)


# A pool, by the ids of a collection


@pytest.fixture
def pets(tmp_path):
    """A collection with two images, three captions, and two of these with the same text."""
    picture(tmp_path / "pets" / "images" / "cat.jpg", "red")
    picture(tmp_path / "pets" / "images" / "dog.jpg", "blue")
    rows = "image,caption,caption_id\ncat.jpg,A cat.,c1\ndog.jpg,A dog.,d1\ndog.jpg,A pet.,d2\ncat.jpg,A pet.,c2\n"
    table(tmp_path / "pets", rows, "captions.csv")
    return source_of(f"collection:{tmp_path / 'pets'}")


def test_a_pool_names_images_and_captions_of_a_collection(pets, tmp_path):
    rows = "image_id,caption_id,kind\ncat.jpg,d1,candidate\ncat.jpg,c1,positive\ndog.jpg,c1,negative\n"
    material = read_pool(table(tmp_path, rows, "pool.csv"), ECCV, pets)
    assert [item.captions[0] for item in material.items] == ["A dog.", "A cat.", "A cat."]
    assert material.items[0].details["caption_id"] == "d1"
    assert material.origin["data"].startswith("collection:")
    assert material.open_image("cat.jpg").size == (8, 8)


def test_caption_is_found_by_its_text(pets, tmp_path):
    (material,) = read_pool(table(tmp_path, "image,caption\ncat.jpg,A dog.\n", "pool.csv"), ECCV, pets).items
    assert material.details["caption_id"] == "d1"


POOLS = {
    "image_id,caption\ncat.jpg,A pet.\n": r"line 2: the collection has the caption 'A pet\.' 2 times\. Add the caption_id",
    "image_id,caption_id\ncat.jpg,c9\n": r"line 2: caption_id 'c9' is not in the collection\. Choose another",
    "image_id,caption_id\ncatt.jpg,c1\n": r"line 2: image_id 'catt\.jpg' is not in the collection",
    "image_id,caption_id,caption\ncat.jpg,c1,A dog.\n": r"line 2: caption_id 'c1' is 'A cat\.' in the collection, but 'A dog\.' here\. Remove",
    "image_id,caption_id\ncat.jpg,c1\ncat.jpg,c1\n": r"line 3: item 'cat\.jpg~c1' is also in .*line 2\.",
    "image_id,caption_id,kind\ncat.jpg,c1,postive\n": r"line 2: expected the kind .* got 'postive'\. Did you mean 'positive'\?",
}


@pytest.mark.parametrize(("rows", "message"), POOLS.items())
def test_invalid_pool_is_refused(pets, tmp_path, rows, message):
    with pytest.raises(CrossmatchError, match=message):
        read_pool(table(tmp_path, rows, "pool.csv"), ECCV, pets)


def test_pool_needs_one_image_and_one_caption(tmp_path):
    with pytest.raises(UsageError, match="does not show one image and one caption"):
        read_pool(table(tmp_path, "image,caption\na,b\n"), STS)


def test_the_embedded_world_is_a_collection(tmp_path):
    rows = "image_id,caption_id\ntest-00000,test-00001#0\n"
    material = read_pool(table(tmp_path, rows, "pool.csv"), ECCV, source_of("diorama:tiny"))
    assert material.open_image("test-00000").size == (512, 512)
    assert collection_of("diorama:tiny").image_ids[0] == "test-00000"


@pytest.mark.parametrize("words", ["dioramma", "collection:", "diorama:huge", "pets", "collection:no/such/folder"])
def test_unknown_data_is_refused(words):
    with pytest.raises(CrossmatchError):
        source_of(words)


# Mistakes


WRONG = {
    '{"images": ["a", "b"], "caption": "A.", "fits": [true]}': r"line 1: expected `fits` as a list of 2 booleans, .* got \[true\]",
    '{"image": "a", "caption": "A.", "fits": "yes"}': r"line 1: expected `fits` as a list of 1 booleans",
    '{"id": "x", "captions": ["A."]}': r"line 1: item 'x' has 1 captions, but sts shows 2\. Correct it\.$",
    '{"id": "x", "captions": "A."}': r"line 1: item 'x' has 1 captions",
    '{"captions": [1.5, "A."]}': r"line 1: expected a text among captions, got 1\.5",
    '{"captions": ["A.", null]}': r"line 1: expected a text among captions, got null",
    '{"captions": {"a": 1}}': r"line 1: expected a list of captions, got \{.*\}",
    '{"captions": ["A.", "  "]}': r"line 1: item '0' has a caption of 0 characters",
    '{"captions": ["A.", "B."], "caption_0": "C."}': r"line 1 has both 'captions' and 'caption_0'\. Keep one of them",
    '{"caption_0": "A.", "caption_2": "B."}': r"line 1 has caption_2, but an earlier number is missing\. Number captions from 0",
    '{"captions": ["A.", "B."], "caption_ids": ["a"]}': r"line 1 has 2 captions but 1 ids\. Give one id for each\.",
    '{"captons": ["A.", "B."]}': r"has the key 'captons'\. Did you mean 'captions'\? Rename it\.",
    '{"captions": ["A.", "B."], "kind": "gold"}': r"line 1: expected the kind candidate, positive, .* got 'gold'",
    '{"captions": ["A.", "B."], "gold": "5"}': r"line 1: item '0' has gold but no kind",
    '{"captions": ["A.", "B."], "kind": "positive"}': r"line 1: item '0' is positive gold, but no option of 'similarity' has a grade that is positive",
    '{"captions": ["A.", "B."], "block": "first"}': r"line 1: item '0' has the block 'first', but the blocks of sts are: none",
    '{"captions": ["A.", "\\ud800"]}': r"line 1 contains a character that is not Unicode",
    '{"captions": ["A.", "B\\u0000"]}': r"line 1 contains a NUL character\. Remove it",
    '{"captions": ["A.", "B."], "score": NaN}': r"line 1 contains NaN",
    '{"captions": ["A.", "B."]': r"line 1 is not json",
    '["A.", "B."]': r"line 1 must be an object such as",
    '{"id": "x", "captions": ["A.", "B."]}\n{"id": "x", "captions": ["C.", "D."]}': r"line 2: item 'x' is also in .* line 1\.",
    '{"id": ["x"], "captions": ["A.", "B."]}': r"line 1: expected a text for id, got \[\"x\"\]",
    "": r"items\.jsonl is empty",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_every_error_is_one_line_with_its_place(tmp_path, text, message):
    with pytest.raises(CrossmatchError, match=message) as error:
        read_items(table(tmp_path, text, "items.jsonl"), STS)
    assert "\n" not in str(error.value)
    assert "items.jsonl" in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"), [("no.csv", "does not exist"), ("", "is a folder"), ("items.xlsx", r"has the ending '\.xlsx'")]
)
def test_invalid_item_file_is_refused(tmp_path, name, message):
    (tmp_path / "items.xlsx").write_bytes(b"PK")
    with pytest.raises(UsageError, match=message):
        read_items(tmp_path / name, STS)


def test_gold_must_be_a_valid_answer(folder):
    file = jsonl(folder, {"id": "g", "image": "a.jpg", "caption": "A cat.", "kind": "positive", "gold": "maybe"})
    with pytest.raises(
        CrossmatchError, match=r'line 1: item \'g\' has invalid gold: the answer to \'match\' is "maybe"\. Choose one of: yes'
    ):
        read_items(file, ECCV)


# Into the campaign


def test_a_study_of_a_file_can_be_worked_on(campaign, folder):
    records = [{"id": f"p{n}", "image": "a.jpg" if n % 2 else "b", "caption": f"It is {n}."} for n in range(4)]
    records += [{"id": "g", "image": "deep/c.jpg", "caption": "It is green.", "kind": "positive"}]
    design = load_design("eccv-hit", ["recipe.batch=2", "recipe.gold_negative=0"])
    study_id = add_study(campaign, design, read_items(jsonl(folder, *records), design))
    person = add_annotator(campaign, study_id)
    claim = submit_hit(campaign, study_id, person)
    with campaign.read_transaction() as connection:
        hit = load_hit(connection, claim, person)
        known = load_items(connection, study_id)
    assert len(hit.items) == 3
    assert all((campaign.images_folder / item.images[0]).is_file() for item in hit.items)
    assert len(list(campaign.images_folder.iterdir())) == 3
    assert {thing.image_ids for thing in known.values()} == {("a.jpg",), ("b",), ("deep/c.jpg",)}
    assert find_study(campaign).origin["items"] == "items.jsonl"


def test_nothing_is_written_when_the_items_do_not_fit(small, folder):
    file = read_items(jsonl(folder, {"image": "a.jpg", "caption": "It.", "kind": "positive"}), ECCV)
    with pytest.raises(CrossmatchError, match="All items are gold questions"):
        add_study(small, ECCV, file)
    assert not list(small.images_folder.iterdir())


def test_cost_of_an_item_does_not_grow_with_the_file(tmp_path):
    """By the number of calls, in Python and of built-in functions."""

    def calls(items):
        file = jsonl(tmp_path, *({"id": f"x{n}", "captions": [f"A {n}.", f"B {n}."], "mark": n} for n in range(items)))
        events = []
        sys.setprofile(lambda frame, event, argument: events.append(event))
        try:
            assert len(read_items(file, STS).items) == items
        finally:
            sys.setprofile(None)
        return len(events)

    calls(1)  # what is done once is done now
    assert calls(2_000) < 2.1 * calls(1_000)


def test_generated_captions_are_items(folder):
    """The file of `captions generate`: a caption for each image; also one that the collection has several times."""
    ids, repeated = ["1", "2", "3"], "a sky"
    collection = Collection.from_captions({"1": [repeated], "2": [repeated], "3": ["a cat"]})
    source = Source.of("collection:pets", collection, lambda name: Image.new("RGB", (8, 8)))
    rows = [{"image_id": name, "caption": text} for name, text in zip(ids, ("A  red dog.", repeated, "a blue cat"), strict=True)]
    (folder / "captions.json").write_text(json.dumps(rows))
    items = read_items(folder / "captions.json", load_design("caption-correctness"), source).items
    assert [item.images for item in items] == [(name,) for name in ids]
    assert [item.captions for item in items] == [("A red dog.",), (repeated,), ("a blue cat",)]
    assert len({item.key for item in items}) == 3
    assert all(item.details["caption_id"].startswith("text-") for item in items)
    (folder / "captions.json").write_text(json.dumps([*rows, {"image_id": "scene-99", "caption": "a sky"}]))
    with pytest.raises(CrossmatchError, match=r"captions.json, image 'scene-99': image_id 'scene-99' is not in the collection"):
        read_items(folder / "captions.json", load_design("caption-correctness"), source)
    (folder / "captions.json").write_text("[1, 2]")
    with pytest.raises(CrossmatchError, match=r"captions\.json"):
        read_items(folder / "captions.json", load_design("caption-correctness"), source)
