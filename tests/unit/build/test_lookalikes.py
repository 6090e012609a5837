"""Look-alike pairs: against comparing all means of word vectors, with refused pairs and skipped images."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crossmatch.benchmarks.coco import coco_collection as coco
from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.build import lookalikes as module
from crossmatch.build.lookalikes import SKIPPED_FILE, LookalikeOptions, embed_images_by_captions, find_lookalikes
from crossmatch.build.step_files import ROWS, read_rows
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.baselines.text_encoders import AveragedWordVectors
from crossmatch.study.design.data_source import Source, collection_of, source_of
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.item_files import read_items

WORDS = ["cat", "dog", "sea", "red", "runs", "sleeps"]


class WordCounts:
    """A text encoder that counts words; each word is a dimension."""

    signature = "sums|test"

    def embed_texts(self, texts):
        return [[1e-3 + text.split().count(word) for word in WORDS] for text in texts]


texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join), min_size=1, max_size=3)


def rows_of(collection: Collection, **options) -> list[dict]:
    with TemporaryDirectory() as folder:
        options = {"model": WordCounts(), "options": LookalikeOptions(captions=False)} | options
        find_lookalikes(collection, Path(folder) / "out", **options)
        return read_rows(Path(folder) / "out", "lookalikes")


def cosines_by_comparing_all(collection: Collection) -> dict[tuple[str, str], float]:
    """Cosines of all pairs of different images."""
    means = {}
    for n, name in enumerate(collection.image_ids.tolist()):
        caption_texts = [collection.captions[c] for i, c in collection.links.tolist() if i == n]
        means[name] = np.mean(WordCounts().embed_texts(caption_texts), axis=0)
    return {
        (a, b): means[a] @ means[b] / np.linalg.norm(means[a]) / np.linalg.norm(means[b]) for a in means for b in means if a != b
    }


@given(st.lists(texts, min_size=2, max_size=8))
def test_each_image_is_paired_with_the_most_similar_other(captions):
    data = Collection.from_captions({f"image{n}": caption_texts for n, caption_texts in enumerate(captions)})
    cosines = cosines_by_comparing_all(data)
    rows = rows_of(data)
    assert [row["positive"] for row in rows] == sorted(data.image_ids.tolist())
    for row in rows:
        largest = max(cosine for (image, _), cosine in cosines.items() if image == row["positive"])
        assert row["similarity"] == pytest.approx(largest, abs=1e-6)
        assert cosines[row["positive"], row["negative"]] == pytest.approx(largest, abs=1e-12)  # equal cosines may be rounded apart
        assert row["images"] == row["image_ids"] == [row["positive"], row["negative"]]


@given(st.lists(texts, min_size=2, max_size=7), st.randoms(use_true_random=False))
def test_rows_do_not_depend_on_the_order_of_items(captions, random):
    data = Collection.from_captions({f"image{n}": caption_texts for n, caption_texts in enumerate(captions)})
    image, caption = (np.asarray(random.sample(range(n), n)) for n in data.shape)
    assert rows_of(data) == rows_of(data.select(image, caption))


def pets() -> Collection:
    return Collection.from_captions(
        {
            "a": ["red cat cat", "cat sleeps"],
            "b": ["red cat", "cat sleeps"],
            "c": ["dog runs", "red dog runs"],
            "d": ["dog runs", "dog"],
            "e": ["cat sleeps", "red"],
        }
    )


def test_rows_contain_the_captions_of_the_positive():
    row = rows_of(pets())[0]
    assert (row["id"], row["captions"], row["caption_ids"]) == ("a~b", ["red cat cat", "cat sleeps"], ["a#0", "a#1"])
    assert row["neighbour"] == 1


def test_roles_decide_how_often_a_pair_occurs():
    pairs = {roles: [row["id"] for row in rows_of(pets(), options=LookalikeOptions(roles=roles))] for roles in module.ROLES}
    assert pairs["query"] == ["a~b", "b~a", "c~d", "d~c", "e~b"]
    assert pairs["once"] == ["a~b", "c~d", "e~b"]
    assert pairs["both"] == ["a~b", "b~a", "c~d", "d~c", "e~b", "b~e"]


def test_refused_pairs_are_replaced_by_the_next_neighbour(tmp_path):
    first = find_lookalikes(pets(), tmp_path / "1", model=WordCounts(), options=LookalikeOptions(neighbours=3))
    assert first["rows"] == 5
    rerun = {"model": WordCounts(), "options": LookalikeOptions(neighbours=3), "earlier": [tmp_path / "1"]}
    manifest = find_lookalikes(pets(), tmp_path / "2", refused=["a~b", "c~d"], **rerun)
    second = read_rows(tmp_path / "2")
    assert [(row["id"], row["neighbour"]) for row in second] == [("a~e", 2), ("c~e", 2)]
    assert set(manifest["inputs"]) == {"collection", "vectors", "earlier 0", "refused"}
    find_lookalikes(pets(), tmp_path / "3", refused=["a~b", "c~d", "a~e"], **rerun | {"earlier": [tmp_path / "1", tmp_path / "2"]})
    assert [row["positive"] for row in read_rows(tmp_path / "3")] == ["a"]


def test_images_without_a_neighbour_left_are_counted(tmp_path):
    manifest = find_lookalikes(pets(), tmp_path / "out", model=WordCounts(), refused=["a~b"])
    assert manifest["counts"]["images without a neighbour left"] == 1
    assert "a" not in {row["positive"] for row in read_rows(tmp_path / "out")}


def test_refusal_covers_both_roles_of_a_pair_that_occurs_once():
    assert "b~a" not in {
        row["id"] for row in rows_of(pets(), options=LookalikeOptions(roles="once", neighbours=3), refused=["a~b"])
    }


# -- skipped images


def plain_pictures(colours: dict[str, int]):
    """An opener of plain pictures by id; a negative colour is a broken file."""

    def open_image(name: str) -> Image.Image:
        if colours[name] < 0:
            raise OSError("image file is truncated")
        return Image.new("L", (4, 4), colours[name])

    return open_image


def test_unusable_images_are_skipped_with_a_reason(tmp_path):
    data = Collection.from_captions(
        {"a": ["cat"], "b": ["cat sleeps"], "c": ["dog"], "d": ["dog runs"], "e": [], "f": ["red cat"]},
        plain_pictures({"a": 10, "b": 20, "c": -1, "d": 10, "e": 30, "f": 40}),
    )
    manifest = find_lookalikes(data, tmp_path / "out", model=WordCounts())
    assert manifest["counts"] == {
        "images without captions": 1, "images that do not open": 1, "images with the picture of another": 1, "images": 3,
    }  # fmt: skip
    reasons = {row["image"]: row["why"] for row in map(json.loads, (tmp_path / "out" / SKIPPED_FILE).read_text().splitlines())}
    assert "truncated" in reasons["c"]
    assert reasons["d"] == "its picture is that of 'a'"
    assert reasons["e"] == "it has no captions"
    assert {name for row in read_rows(tmp_path / "out") for name in row["images"]} == {"a", "b", "f"}


def test_images_with_equal_captions_are_skipped_by_default():
    data = Collection.from_captions({"a": ["cat", "red cat"], "b": ["red cat", "cat"], "c": ["dog"], "d": ["cat dog"]})
    assert {row["positive"] for row in rows_of(data, options=LookalikeOptions())} == {"a", "c", "d"}
    assert rows_of(data)[0]["id"] == "a~b"


def test_second_of_equal_captions_replaces_an_unreadable_first(tmp_path):
    data = Collection.from_captions({"a": ["cat"], "b": ["cat"], "c": ["dog"]}, plain_pictures({"a": -1, "b": 1, "c": 2}))
    find_lookalikes(data, tmp_path / "out", model=WordCounts())
    assert {row["positive"] for row in read_rows(tmp_path / "out")} == {"b", "c"}


def test_collections_without_pairs_are_rejected(tmp_path):
    with pytest.raises(CrossmatchError, match=r"two are needed\. Add images with captions\."):
        find_lookalikes(Collection.from_captions({"a": ["cat"]}), tmp_path / "one", model=WordCounts())
    with pytest.raises(CrossmatchError, match="1 of 2 images can be paired"):
        find_lookalikes(Collection.from_captions({"a": ["cat"], "b": ["cat"]}), tmp_path / "same", model=WordCounts())
    with pytest.raises(CrossmatchError, match="None of the 2 pictures can be opened"):
        find_lookalikes(
            Collection.from_captions({"a": ["cat"], "b": ["dog"]}, plain_pictures({"a": -1, "b": -1})),
            tmp_path / "closed",
            model=WordCounts(),
        )
    with pytest.raises(CrossmatchError, match="does not embed texts"):
        find_lookalikes(pets(), tmp_path / "model", model=object())
    ids_only = Collection(["a", "b"], ["x", "y"], (), np.array([[0, 0], [1, 1]]))
    with pytest.raises(CrossmatchError, match="no texts, only the ids"):
        find_lookalikes(ids_only, tmp_path / "ids", model=WordCounts())


def test_invalid_options_are_rejected():
    for options in ({"roles": "all"}, {"search": "fast"}, {"neighbours": 0}):
        with pytest.raises(UsageError):
            LookalikeOptions(**options)


# -- finished and changed folders


def test_finished_step_is_not_repeated_and_other_options_are_rejected(tmp_path, monkeypatch):
    find_lookalikes(pets(), tmp_path / "out", model=WordCounts())
    monkeypatch.setattr(module, "_pair_rows", lambda *_: pytest.fail("a finished step was repeated"))
    assert find_lookalikes(pets(), tmp_path / "out", model=WordCounts())["rows"] == 5
    with pytest.raises(UsageError, match="other options: roles was 'query', now 'both'"):
        find_lookalikes(pets(), tmp_path / "out", model=WordCounts(), options=LookalikeOptions(roles="both"))
    changed = Collection.from_captions({"a": ["cat"], "b": ["dog"]})
    with pytest.raises(UsageError, match="other inputs: collection"):
        find_lookalikes(changed, tmp_path / "out", model=WordCounts())


def test_changed_picture_is_a_changed_input(tmp_path):
    (tmp_path / "in" / "images").mkdir(parents=True)
    for n, name in enumerate("abc"):
        Image.new("RGB", (4, 4), (n, 0, 0)).save(tmp_path / "in" / "images" / f"{name}.png")
    complete = (tmp_path / "in" / "images" / "c.png").read_bytes()
    (tmp_path / "in" / "images" / "c.png").write_bytes(complete[:20])
    (tmp_path / "in" / "captions.csv").write_text("image,caption\na.png,cat\nb.png,red cat\nc.png,dog\n")
    manifest = find_lookalikes(load_collection_folder(tmp_path / "in").collection, tmp_path / "out", model=WordCounts())
    assert manifest["counts"] == {"images that do not open": 1, "images": 2}
    (tmp_path / "in" / "images" / "c.png").write_bytes(complete)
    with pytest.raises(UsageError, match="other inputs: pictures was"):
        find_lookalikes(load_collection_folder(tmp_path / "in").collection, tmp_path / "out", model=WordCounts())
    no_pictures = LookalikeOptions(pictures=False)
    manifest = find_lookalikes(
        load_collection_folder(tmp_path / "in").collection, tmp_path / "unseen", model=WordCounts(), options=no_pictures
    )
    assert "pictures" not in manifest["inputs"]


# -- words, studies, real data


def test_image_vector_is_the_mean_over_all_words_of_its_captions():
    model = AveragedWordVectors.from_package()
    data = Collection.from_captions({"a": ["A red cat.", "Two cats sleep on an old sofa, side by side."], "b": ["Dogs!"]})
    vectors = embed_images_by_captions(data, model, {0: [0, 1], 1: [2]}).image_vectors
    for n, caption_texts in enumerate(([0, 1], [2])):
        tokens = [token for c in caption_texts for token in model.tokenizer.encode(data.captions[c], add_special_tokens=False).ids]
        assert vectors[n] == pytest.approx(model.vectors[tokens].mean(axis=0), abs=1e-6)


def test_rows_are_items_of_the_study_bison_select(tmp_path):
    source = source_of("diorama:tiny")
    data = collection_of("diorama:tiny")
    find_lookalikes(data, tmp_path / "out", model="tfidf", options=LookalikeOptions(pictures=False))
    rows = read_rows(tmp_path / "out")
    material = read_items(tmp_path / "out" / ROWS, load_design("bison-select"), source)
    assert [item.key for item in material.items] == [row["id"] for row in rows]
    assert [item.images for item in material.items] == [tuple(row["images"]) for row in rows]
    assert material.items[0].captions == tuple(rows[0]["captions"])
    assert material.items[0].details["caption_ids"] == rows[0]["caption_ids"]
    assert material.items[0].details["negative"] == rows[0]["negative"]


def test_rows_name_files_without_a_collection(tmp_path):
    data = Collection.from_captions({"a.png": ["cat"], "b.png": ["red cat"]}, plain_pictures({"a.png": 1, "b.png": 2}))
    find_lookalikes(data, tmp_path / "out", model=WordCounts())
    for name in ("a.png", "b.png"):
        Image.new("L", (2, 2)).save(tmp_path / "out" / name)
    assert len(read_items(tmp_path / "out" / ROWS, load_design("bison-select"), Source()).items) == 2


def test_every_coco_test_image_has_a_lookalike(real_data, tmp_path):
    data = coco("test")
    manifest = find_lookalikes(data, tmp_path / "out", options=LookalikeOptions(roles="both", pictures=False))
    rows = read_rows(tmp_path / "out")
    assert manifest["counts"]["images"] == 5000
    assert all(row["positive"] != row["negative"] for row in rows)
    pairs = {(row["positive"], row["negative"]) for row in rows}
    assert len(pairs) == len(rows)
    assert pairs == {pair[::-1] for pair in pairs}
    assert {a for a, _ in pairs} == set(data.image_ids.tolist())
    # In stage 1 of the paper 40,504 images gave 67,564 pairs, 1.67 for each.
    assert 1.6 < len(rows) / 5000 < 1.75


def test_released_bison_pairs_occur_in_both_roles(real_data):
    trials = json.loads((real_data / "bison" / "bison_annotations.cocoval2014.json").read_text())["data"]
    pairs = set()
    for trial in trials:
        (negative,) = {c["image_id"] for c in trial["image_candidates"]} - {trial["true_image_id"]}
        pairs.add((trial["true_image_id"], negative))
    assert len(pairs) == 54_253
    assert sum(pair[::-1] in pairs for pair in pairs) / len(pairs) > 0.84
    positives = [a for a, _ in pairs]
    assert len(positives) > len(set(positives))  # an image is positive with several negatives


@pytest.fixture
def photos(real_data_folder, tmp_path) -> Collection:
    """The real photos, as a user would lay them out."""
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "images").symlink_to(real_data_folder / "photos" / "images")
    manifest = json.loads((real_data_folder / "photos" / "photos.json").read_bytes())
    with (folder / "captions.csv").open("w", newline="") as file:
        rows = [(Path(photo["file"]).name, said["caption"]) for photo in manifest for said in photo["captions"]]
        csv.writer(file).writerows([("image", "caption"), *rows])
    return collection_of(f"collection:{folder}")


def test_real_photos_are_looked_at_and_paired(photos, tmp_path):
    manifest = find_lookalikes(photos, tmp_path / "out")
    assert manifest["rows"] == manifest["counts"]["images"] == 178
    rows = read_rows(tmp_path / "out")
    assert all(row["positive"] != row["negative"] and len(row["captions"]) >= 5 for row in rows)
    source = Source.of("photos", photos, photos.open_image)
    assert len(read_items(tmp_path / "out" / ROWS, load_design("bison-select"), source).items) == 178
