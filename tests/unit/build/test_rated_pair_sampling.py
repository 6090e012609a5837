"""The sampling of Crisscrossed Captions: against loops that follow the paper, and against the released files."""

from __future__ import annotations

import csv
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.benchmarks.coco import coco_collection as coco
from crossmatch.build import rated_pair_sampling as module
from crossmatch.build.rated_pair_sampling import ring_pairs, sample_sis, sample_sits, sample_sts
from crossmatch.build.rating_files import mean_ratings, read_pair_ratings
from crossmatch.build.step_files import ROWS, read_rows
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.scores import Embeddings
from crossmatch.study.design.data_source import Source
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.item_files import read_items


class PrecomputedImages:
    """A model with a precomputed vector for each image id."""

    signature = "seen|test"

    def __init__(self, vectors: dict[str, list[float]]) -> None:
        self.vectors = vectors

    def scores(self, data):
        return Embeddings(list(self.vectors), list(self.vectors.values()), None, None)


class LetterCounts:
    """A text encoder that counts letters."""

    def __init__(self, letters: str) -> None:
        self.letters, self.signature = letters, f"letters|{letters}"

    def embed_texts(self, texts):
        return [[1e-3 + text.count(letter) for letter in self.letters] for text in texts]


def world(sizes: list[int], seed: int = 0) -> tuple[Collection, PrecomputedImages]:
    rng = np.random.default_rng(seed)
    captions_by_image = {f"i{n}": ["".join(rng.choice(list("abcd"), 5)) for _ in range(size)] for n, size in enumerate(sizes)}
    vectors = {name: rng.standard_normal(4).tolist() for name in captions_by_image}
    return Collection.from_captions(captions_by_image), PrecomputedImages(vectors)


def rows_of(step, collection: Collection, **options) -> list[dict]:
    with TemporaryDirectory() as folder:
        step(collection, Path(folder) / "out", **options)
        return read_rows(Path(folder) / "out", "sample")


def nearest_pairs(vectors: dict[str, np.ndarray], top: int) -> set[frozenset[str]]:
    """Pairs of each item with its `top` most similar others, by cosine."""
    unit = {name: np.asarray(v) / np.linalg.norm(v) for name, v in vectors.items()}
    return {
        frozenset((a, b)) for a in unit for b in sorted((b for b in unit if b != a), key=lambda b: (-(unit[a] @ unit[b]), b))[:top]
    }


sizes = st.lists(st.integers(0, 6), min_size=2, max_size=8).filter(lambda sizes: sum(map(bool, sizes)) >= 2)


@given(sizes, st.integers(1, 6), st.integers(0, 5))
def test_sts_pairs_captions_of_similar_images_and_of_one_image(sizes, top, seed):
    data, model = world(sizes, seed)
    rows = rows_of(sample_sts, data, image_model=model, top=top, seed=seed)
    captioned = {name: vector for name, vector in model.vectors.items() if sizes[int(name[1:])]}
    of_similar_images = [row for row in rows if row["sampling_method"] == "c2c_isim"]
    assert {frozenset(row["of"]) for row in of_similar_images} == nearest_pairs(captioned, top)
    assert len(of_similar_images) == len(nearest_pairs(captioned, top))  # one pair of captions for each pair of images
    for row in of_similar_images:
        assert [name.partition("#")[0] for name in row["caption_ids"]] == row["of"]
    of_one_image = Counter(row["of"][0] for row in rows if row["sampling_method"] == "c2c_cocaption")
    assert of_one_image == {f"i{n}": min(top, size * (size - 1) // 2) for n, size in enumerate(sizes) if size > 1}
    assert len({frozenset(row["caption_ids"]) for row in rows}) == len(rows)
    assert all(len(set(row["caption_ids"])) == 2 for row in rows)


@given(sizes, st.integers(1, 6), st.integers(0, 5))
def test_sis_pairs_images_with_similar_captions(sizes, top, seed):
    data, _ = world(sizes, seed)
    models = {"one": LetterCounts("ab"), "two": LetterCounts("bcd")}
    rows = rows_of(sample_sis, data, text_models=models, top=top)
    expected: dict[str, set] = {}
    for name, model in models.items():
        means = {
            f"i{n}": np.mean(model.embed_texts([data.captions[c] for i, c in data.links.tolist() if i == n]), axis=0)
            for n, size in enumerate(sizes)
            if size
        }
        expected[name] = nearest_pairs(means, top)
        pairs = {frozenset(row["images"]) for row in rows if name in row["similarity"]}
        scores = [m @ o / np.linalg.norm(m) / np.linalg.norm(o) for m, o in combinations(means.values(), 2)]
        if len(scores) == 1 or np.diff(np.sort(scores)).min() > 1e-9:  # no ties within rounding
            assert pairs == expected[name]
        assert len(pairs) >= len(means) * min(top, len(means) - 1) / 2
    assert len({frozenset(row["images"]) for row in rows}) == len(rows)
    assert all(row["images"] == row["image_ids"] and row["images"][0] != row["images"][1] for row in rows)


@given(sizes, st.randoms(use_true_random=False))
def test_rows_do_not_depend_on_the_order_of_items(sizes, random):
    data, model = world(sizes)
    image, caption = (np.asarray(random.sample(range(n), n)) for n in data.shape)
    reordered = data.select(image, caption)
    assert rows_of(sample_sts, data, image_model=model) == rows_of(sample_sts, reordered, image_model=model)
    assert rows_of(sample_sis, data, text_models={"x": LetterCounts("abc")}) == rows_of(
        sample_sis, reordered, text_models={"x": LetterCounts("abc")}
    )
    ratings = [("i0#0", "i1#0", 3.0)] if sizes[0] and sizes[1] else []
    options = {"caption_ratings": ratings, "image_ratings": [("i0", "i1", 2.0)]}
    assert rows_of(sample_sits, data, **options) == rows_of(sample_sits, reordered, **options)


def test_image_encoder_embeds_pictures_only():
    class Brightness:
        def embed_images(self, images):
            return [[image.mean(), 1.0] for image in images]

        def embed_texts(self, texts):
            raise AssertionError("no text should be embedded")

    shades = {"a": 0.0, "b": 0.1, "c": 5.0, "d": 4.0}
    data = Collection.from_captions({name: ["it"] for name in shades}, lambda name: np.full((2, 2), shades[name]))
    rows = rows_of(sample_sts, data, image_model=Brightness(), top=1)
    assert [row["of"] for row in rows] == [["a", "b"], ["c", "d"]]


def test_seed_changes_the_sample():
    data, model = world([5] * 12)
    drawn = [{row["id"] for row in rows_of(sample_sts, data, image_model=model, seed=seed)} for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0] & drawn[2]) < len(drawn[0])


@given(st.integers(1, 9))
def test_ring_has_every_pair_once_and_each_position_twice_among_neighbours(n):
    pairs = ring_pairs(n)
    assert {frozenset(pair) for pair in pairs} == {frozenset(pair) for pair in combinations(range(n), 2)}
    assert len(pairs) == n * (n - 1) // 2
    if n > 2:
        assert set(Counter(at for pair in pairs[:n] for at in pair).values()) == {2}


def test_caption_of_two_images_is_not_paired_with_itself():
    data = Collection(["a", "b", "c"], ["x", "y"], ("one", "two"), np.array([[0, 0], [1, 0], [2, 1]]))
    model = PrecomputedImages({"a": [1.0, 0.1], "b": [1.0, 0.2], "c": [0.0, 1.0]})
    assert {frozenset(row["caption_ids"]) for row in rows_of(sample_sts, data, image_model=model)} == {frozenset("xy")}


# -- images with captions


def image_of(caption: str) -> str:
    return caption.partition("#")[0]


def image_order(row: dict) -> tuple[str, str]:
    """The images of the rated pair that led to a new pair, in the order of the rating."""
    first, second = row.get("c2c") or row["i2i"]
    return image_of(first), image_of(second)


def random_ratings(data: Collection, seed: int) -> tuple[list, list]:
    """Ratings of some pairs of captions of different images, and of some pairs of images, in random order."""
    rng = np.random.default_rng(seed)
    of_captions, of_images = (
        [
            (*rng.permutation(pair).tolist(), float(rng.integers(0, 51) / 10))
            for pair in combinations(names.tolist(), 2)
            if rng.random() < share and image_of(pair[0]) != image_of(pair[1])
        ]
        for names, share in ((data.caption_ids, 0.15), (data.image_ids, 0.6))
    )
    return of_captions, of_images


@given(st.integers(0, 40), st.integers(0, 20))
def test_sits_pairs_the_first_image_with_a_caption_of_the_second(number, seed):
    data, _ = world([3, 4, 2, 5, 3])
    captions, images = random_ratings(data, seed)
    rows = rows_of(sample_sits, data, caption_ratings=captions, image_ratings=images, number=number, seed=seed)
    rated = {(a, b) for a, b, _ in (*captions, *images)}
    new_pairs = [row for row in rows if row["sampling_method"] == "c2i_intrasim"]
    assert all((row["image_id"], image_of(row["caption_id"])) == image_order(row) for row in new_pairs)
    assert {tuple(row.get("c2c") or row["i2i"]) for row in new_pairs} <= rated
    pairs = [(row["image_id"], row["caption_id"]) for row in new_pairs]
    assert len(set(pairs)) == len(pairs)
    assert sum("c2c" in row for row in new_pairs) <= (number + 1) // 2
    assert sum("i2i" in row for row in new_pairs) <= number // 2
    original = [row for row in rows if row["sampling_method"] == "c2i_original"]
    assert {row["caption_id"] for row in original} == set(data.caption_ids.tolist())
    assert all(image_of(row["caption_id"]) == row["image_id"] for row in original)


@given(st.integers(0, 30))
def test_each_image_takes_its_best_pair_that_is_free(seed):
    """In one pass, both images of a pair that is left over took a pair with at least its whole grade."""
    data, _ = world([3, 4, 2, 5, 3, 1, 2])
    _, images = random_ratings(data, seed)
    rows = rows_of(sample_sits, data, caption_ratings=[], image_ratings=images, number=2 * data.shape[0], seed=seed)
    whole = {(a, b): int(Decimal(str(rating)).quantize(Decimal(1), ROUND_HALF_UP)) for a, b, rating in images}
    used = [tuple(row["i2i"]) for row in rows if "i2i" in row]
    assert len(set(used)) == len(used) <= data.shape[0]
    for pair in set(whole) - set(used):
        for image in pair:
            assert any(image in other and whole[other] >= whole[pair] for other in used)


def test_a_rated_pair_gives_at_most_two_new_pairs_by_default():
    data, _ = world([5, 5])
    for seed in range(8):
        rows = rows_of(
            sample_sits, data, caption_ratings=[("i0#0", "i1#0", 4.0)], image_ratings=[("i1", "i0", 1.0)], seed=seed
        )  # fmt: skip
        counts = Counter(("c2c" if "c2c" in row else "i2i", row["image_id"]) for row in rows if "rating" in row)
        assert set(counts) == {("c2c", "i0"), ("i2i", "i1")}
        assert max(counts.values()) <= 2


def test_sits_draws_any_caption_of_the_second_image():
    data, _ = world([5, 5])
    options = {"caption_ratings": [("i0#0", "i1#0", 4.0)], "image_ratings": [], "number": 4}
    drawn = {row["caption_id"] for seed in range(20) for row in rows_of(sample_sits, data, seed=seed, **options) if "c2c" in row}
    assert drawn == {f"i1#{n}" for n in range(5)}


@pytest.mark.parametrize(("rating", "grade"), [(0.0, 0), (0.49, 0), (0.5, 1), (2.5, 3), (3.49, 3), (5.0, 5)])
def test_ratings_count_as_whole_grades(rating, grade):
    assert module.RatedImages(0, 1, rating, {}).whole_grade == grade


def test_captions_of_one_image_give_no_new_pair():
    data, _ = world([2, 2])
    rows = rows_of(sample_sits, data, caption_ratings=[("i0#0", "i0#1", 5.0)], image_ratings=[], number=4)
    assert [row["sampling_method"] for row in rows] == ["c2i_original"] * 4


# -- bad input


RATINGS = {"caption_ratings": [], "image_ratings": []}


@pytest.mark.parametrize(
    ("step", "options", "message"),
    [
        (sample_sts, {"image_model": PrecomputedImages({}), "top": 0}, r"--top must be at least 1 \(got 0\)"),
        (sample_sts, {"image_model": LetterCounts("a")}, "does not embed images"),
        (sample_sis, {"text_models": {}}, "no text model"),
        (sample_sits, {**RATINGS, "image_ratings": [("i0", "x", 1.0)]}, "image 'x' is not in the collection"),
        (sample_sits, {**RATINGS, "caption_ratings": [("i0#0", "i0#0", 1.0)]}, "rated against itself"),
        (sample_sits, {**RATINGS, "image_ratings": [("i0", "i1", float("nan"))]}, "got nan"),
        (sample_sits, {**RATINGS, "number": -1}, r"--number must be 0 or more \(got -1\)"),
    ],
)
def test_invalid_requests_are_rejected(tmp_path, step, options, message):
    with pytest.raises(CrossmatchError, match=message):
        step(world([1, 1])[0], tmp_path / "out", **options)


def test_a_pair_needs_two_captioned_images(tmp_path):
    with pytest.raises(CrossmatchError, match="1 of 2 images have captions; a pair needs two"):
        sample_sis(Collection.from_captions({"a": ["one"], "b": []}), tmp_path / "1", text_models={"x": LetterCounts("a")})


def test_ratings_are_read_in_both_layouts_and_averaged(tmp_path):
    data = Collection.from_captions({"205866": ["one"], "39081": ["two"]})
    exported, official = tmp_path / "judgements_i2i.csv", tmp_path / "sis.csv"
    exported.write_text("image_id,other_image_id,grade,deviation\n205866,39081,3.5,0.2\n39081,205866,2.5,\n")
    official.write_text(
        "image1,image2,agg_score,sampling_method\nCOCO_val2014_000000205866.jpg,COCO_val2014_000000039081.jpg,3.6,i2i_csim\n"
    )
    assert mean_ratings(read_pair_ratings(exported, data, "image"), data, "image") == {(0, 1): 3.5, (1, 0): 2.5}
    assert read_pair_ratings(official, data, "image") == [("205866", "39081", 3.6)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_id,other_image_id,grade\na,b,much\n", "line 2: expected a number as the rating, got 'much'"),
        ("image_id,other_image_id,grade\na,c,1\n", "line 2: other_image_id 'c' is not in the collection"),
        ("image_id,grade\na,1\n", "a column 'other_image_id' or 'image2' is missing"),
    ],
)
def test_invalid_rating_files_are_rejected(tmp_path, text, message):
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(CrossmatchError, match=message):
        read_pair_ratings(path, Collection.from_captions({"a": ["one"], "b": ["two"]}), "image")


# -- studies, released files


def test_rows_are_items_of_the_three_studies(tmp_path):
    data, model = world([3] * 5)
    source = Source.of("here", data, lambda name: None)
    sample_sts(data, tmp_path / "sts", image_model=model)
    sample_sis(data, tmp_path / "sis", text_models={"x": LetterCounts("abcd")})
    sample_sits(data, tmp_path / "sits", caption_ratings=[("i0#0", "i1#0", 3.0)], image_ratings=[("i2", "i3", 1.0)], number=4)
    for name in ("sts", "sis", "sits"):
        rows, material = read_rows(tmp_path / name), read_items(tmp_path / name / ROWS, load_design(name), source)
        assert [item.key for item in material.items] == [row["id"] for row in rows]
        assert [item.details["sampling_method"] for item in material.items] == [row["sampling_method"] for row in rows]


def test_released_files_have_the_structure_of_this_sampling(real_data):
    """Co-captions form rings, each pair of images has one pair of captions, and new pairs come from rated images."""
    data = coco("test")
    image_of = {str(data.caption_ids[c]): str(data.image_ids[i]) for i, c in data.links.tolist()}
    with (real_data / "cxc" / "sts_test.csv").open(newline="") as file:
        rows = [(r["caption1"].split(":")[-1], r["caption2"].split(":")[-1], r["sampling_method"]) for r in csv.DictReader(file)]
    of_one_image = [(a, b) for a, b, method in rows if method == "c2c_cocaption"]
    assert Counter(Counter(image_of[a] for a, _ in of_one_image).values()) == {5: 5000}
    assert set(Counter(c for pair in of_one_image for c in pair).values()) == {2}
    of_similar_images = [frozenset((image_of[a], image_of[b])) for a, b, method in rows if method == "c2c_isim"]
    assert len(set(of_similar_images)) == len(of_similar_images)
    assert min(Counter(image for pair in of_similar_images for image in pair).values()) == 5  # the five most similar of each image
    with (real_data / "cxc" / "sits_test.csv").open(newline="") as file:
        rated_rows = [
            (r["caption"].split(":")[-1], str(int(r["image"][-16:-4])), r["sampling_method"]) for r in csv.DictReader(file)
        ]
    new_pairs = {(image, caption) for caption, image, method in rated_rows if method == "c2i_intrasim"}
    assert 0.95 < len(new_pairs) / (module.NEW_PER_IMAGE * 5000) < 1
    rated_pairs = {frozenset(pair[:2]) for pair in read_pair_ratings(real_data / "cxc" / "sis_test.csv", data, "image")} | set(
        of_similar_images
    )
    assert all(frozenset((image, image_of[caption])) in rated_pairs for image, caption in new_pairs)


@pytest.mark.slow
def test_released_ratings_select_the_released_pairs(real_data, tmp_path):
    """As many released pairs of images are shared as two seeds share with each other (docs/decisions/0023)."""
    data = coco("test")
    ratings = {
        side: read_pair_ratings(real_data / "cxc" / name, data, side)
        for side, name in (("caption", "sts_test.csv"), ("image", "sis_test.csv"))
    }
    orders = [pair[:2] for pair in ratings["image"]]
    place = {pair: n for n, pair in enumerate(orders)}
    first_batch = ratings["image"][: min(max(n, place[b, a]) for n, (a, b) in enumerate(orders) if (b, a) in place)]
    for seed in (0, 1):
        manifest = sample_sits(
            data, tmp_path / str(seed), caption_ratings=ratings["caption"], image_ratings=first_batch, seed=seed
        )  # fmt: skip
        assert manifest["counts"]["c2i_original"] == 25_000
        assert 19_900 < manifest["counts"]["from captions"] + manifest["counts"]["from images"] <= 20_000
    owner = {str(data.caption_ids[c]): str(data.image_ids[i]) for i, c in data.links.tolist()}
    first, second = (
        {
            (row["image_id"], owner[row["caption_id"]])
            for row in read_rows(tmp_path / name)
            if row["sampling_method"] == "c2i_intrasim"
        }
        for name in "01"
    )
    with (real_data / "cxc" / "sits_test.csv").open(newline="") as file:
        released = {
            (str(int(row["image"][-16:-4])), owner[row["caption"].split(":")[-1]])
            for row in csv.DictReader(file)
            if row["sampling_method"] == "c2i_intrasim"
        }
    assert len(released) == 14_244
    shared, of_two_seeds = len(first & released) / len(released), len(first & second) / len(first)
    assert shared > 0.72
    assert shared == pytest.approx(of_two_seeds, abs=0.02)
