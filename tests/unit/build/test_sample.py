"""The sampling of Crisscrossed Captions: against the paper's words by loops, and against the released files."""

from __future__ import annotations

import csv
from collections import Counter
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.benchmarks.coco import collection as coco
from crossmatch.build import sample as module
from crossmatch.build.files import ROWS, manifest, read_rows
from crossmatch.build.rated import mean_ratings, read_rated
from crossmatch.build.sample import ring_pairs, sample_sis, sample_sits, sample_sts
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.scores import Embeddings
from crossmatch.study.design import load_design
from crossmatch.study.items import read_items
from crossmatch.study.sources import Source


class Seen:
    """A model with a vector for each image id, as a file of embeddings would have."""

    signature = "seen|test"

    def __init__(self, vectors: dict[str, list[float]]) -> None:
        self.vectors = vectors

    def scores(self, data):
        return Embeddings(list(self.vectors), list(self.vectors.values()), None, None)


class Letters:
    """A text as the number of each of some letters."""

    def __init__(self, letters: str) -> None:
        self.letters, self.signature = letters, f"letters|{letters}"

    def embed_texts(self, texts):
        return [[1e-3 + text.count(letter) for letter in self.letters] for text in texts]


def world(sizes: list[int], seed: int = 0) -> tuple[Collection, Seen]:
    rng = np.random.default_rng(seed)
    said = {f"i{n}": ["".join(rng.choice(list("abcd"), 5)) for _ in range(size)] for n, size in enumerate(sizes)}
    vectors = {name: rng.standard_normal(4).tolist() for name in said}
    return Collection.of(said), Seen(vectors)


def rows_of(step, collection: Collection, **how) -> list[dict]:
    with TemporaryDirectory() as folder:
        step(collection, Path(folder) / "out", **how)
        return read_rows(Path(folder) / "out", "sample")


def most_alike(vectors: dict[str, np.ndarray], top: int) -> set[frozenset[str]]:
    """Every item with its `top` most similar others, by cosine."""
    unit = {name: np.asarray(v) / np.linalg.norm(v) for name, v in vectors.items()}
    return {
        frozenset((a, b)) for a in unit for b in sorted((b for b in unit if b != a), key=lambda b: (-(unit[a] @ unit[b]), b))[:top]
    }


sizes = st.lists(st.integers(0, 6), min_size=2, max_size=8).filter(lambda sizes: sum(map(bool, sizes)) >= 2)


@settings(deadline=None, max_examples=40)
@given(sizes, st.integers(1, 6), st.integers(0, 5))
def test_images_that_look_alike_pick_pairs_of_captions_and_as_many_come_from_one_image(sizes, top, seed):
    held, model = world(sizes, seed)
    rows = rows_of(sample_sts, held, images=model, top=top, seed=seed)
    captioned = {name: vector for name, vector in model.vectors.items() if sizes[int(name[1:])]}
    across = [row for row in rows if row["sampling_method"] == "c2c_isim"]
    assert {frozenset(row["of"]) for row in across} == most_alike(captioned, top)
    assert len(across) == len(most_alike(captioned, top))  # one pair of captions for each pair of images
    for row in across:
        assert [name.partition("#")[0] for name in row["caption_ids"]] == row["of"]
    within = Counter(row["of"][0] for row in rows if row["sampling_method"] == "c2c_cocaption")
    assert within == {f"i{n}": min(top, size * (size - 1) // 2) for n, size in enumerate(sizes) if size > 1}
    assert len({frozenset(row["caption_ids"]) for row in rows}) == len(rows)
    assert all(len(set(row["caption_ids"])) == 2 for row in rows)


@settings(deadline=None, max_examples=40)
@given(sizes, st.integers(1, 6), st.integers(0, 5))
def test_captions_that_read_alike_pick_pairs_of_images_for_each_text_model(sizes, top, seed):
    held, _ = world(sizes, seed)
    models = {"one": Letters("ab"), "two": Letters("bcd")}
    rows = rows_of(sample_sis, held, texts=models, top=top)
    expected: dict[str, set] = {}
    for name, model in models.items():
        means = {
            f"i{n}": np.mean(model.embed_texts([held.captions[c] for i, c in held.links.tolist() if i == n]), axis=0)
            for n, size in enumerate(sizes)
            if size
        }
        expected[name] = most_alike(means, top)
        mine = {frozenset(row["images"]) for row in rows if name in row["similarity"]}
        rounded = [tuple(np.round(m / np.linalg.norm(m), 6)) for m in means.values()]
        if len(set(rounded)) == len(rounded) and len(means) > top + 1:
            scores = [m @ o / np.linalg.norm(m) / np.linalg.norm(o) for m, o in combinations(means.values(), 2)]
            if len(set(np.round(scores, 9))) == len(scores):  # no ties that the slow way's rounding could break
                assert mine == expected[name]
        assert len(mine) >= len(means) * min(top, len(means) - 1) / 2
    assert len({frozenset(row["images"]) for row in rows}) == len(rows)
    assert all(row["images"] == row["image_ids"] and row["images"][0] != row["images"][1] for row in rows)


@settings(deadline=None, max_examples=25)
@given(sizes, st.randoms(use_true_random=False))
def test_the_order_of_the_items_changes_nothing(sizes, random):
    held, model = world(sizes)
    image, caption = (np.asarray(random.sample(range(n), n)) for n in held.shape)
    other = held.reordered(image, caption)
    assert rows_of(sample_sts, held, images=model) == rows_of(sample_sts, other, images=model)
    assert rows_of(sample_sis, held, texts={"x": Letters("abc")}) == rows_of(sample_sis, other, texts={"x": Letters("abc")})
    rated = [("i0#0", "i1#0", 3.0)] if sizes[0] and sizes[1] else []
    how = {"captions": rated, "images": [("i0", "i1", 2.0)], "drawn": True}
    assert rows_of(sample_sits, held, **how) == rows_of(sample_sits, other, **how)


def test_a_model_that_embeds_images_is_shown_the_pictures_and_no_text():
    class Brightness:
        def embed_images(self, images):
            return [[image.mean(), 1.0] for image in images]

        def embed_texts(self, texts):
            raise AssertionError("no text is to be embedded")

    shades = {"a": 0.0, "b": 0.1, "c": 5.0, "d": 4.0}
    held = Collection.of({name: ["it"] for name in shades}, lambda name: np.full((2, 2), shades[name]))
    rows = rows_of(sample_sts, held, images=Brightness(), top=1)
    assert [row["of"] for row in rows] == [["a", "b"], ["c", "d"]]


def test_the_seed_decides_what_is_drawn():
    held, model = world([5] * 12)
    drawn = [{row["id"] for row in rows_of(sample_sts, held, images=model, seed=seed)} for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0] & drawn[2]) < len(drawn[0])


@given(st.integers(1, 9))
def test_a_ring_has_every_pair_once_and_each_thing_twice_among_the_neighbours(n):
    pairs = ring_pairs(n)
    assert {frozenset(pair) for pair in pairs} == {frozenset(pair) for pair in combinations(range(n), 2)}
    assert len(pairs) == n * (n - 1) // 2
    if n > 2:
        assert set(Counter(at for pair in pairs[:n] for at in pair).values()) == {2}


def test_a_caption_of_two_images_is_never_paired_with_itself():
    held = Collection(["a", "b", "c"], ["x", "y"], ("one", "two"), np.array([[0, 0], [1, 0], [2, 1]]))
    model = Seen({"a": [1.0, 0.1], "b": [1.0, 0.2], "c": [0.0, 1.0]})
    assert {frozenset(row["caption_ids"]) for row in rows_of(sample_sts, held, images=model)} == {frozenset("xy")}


# -- images with captions


def by_ratings(held: Collection, captions, number: int) -> set[tuple[str, str]]:
    """The half that comes from captions, in the paper's words: ranked by rating, without what is there already."""
    links = {(str(held.image_ids[i]), str(held.caption_ids[c])) for i, c in held.links.tolist()}
    owner = {c: i for i, c in links}
    chosen: list[tuple[str, str]] = []
    for a, b, _ in sorted(captions, key=lambda r: -r[2]):
        for pair in ((owner[a], b), (owner[b], a)):
            if pair not in links and pair not in chosen and len(chosen) < (number + 1) // 2:
                chosen.append(pair)
    return set(chosen)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 12), st.integers(0, 20))
def test_new_pairs_come_from_the_highest_ratings_half_by_captions_half_by_images(number, seed):
    held, _ = world([3, 4, 2, 5, 3])
    rng = np.random.default_rng(seed)
    names, texts = held.image_ids.tolist(), held.caption_ids.tolist()
    grades = iter(rng.permutation(200) / 40)
    captions = [(a, b, float(next(grades))) for a, b in combinations(texts, 2) if rng.random() < 0.15]
    images = [(a, b, float(next(grades))) for a, b in combinations(names, 2)]
    rows = rows_of(sample_sits, held, captions=captions, images=images, number=number, seed=seed)
    expected = by_ratings(held, captions, number)
    new = [row for row in rows if row["sampling_method"] == "c2i_intrasim"]
    pairs = [(row["image_id"], row["caption_id"]) for row in new]
    assert {pair for pair, row in zip(pairs, new, strict=True) if "c2c" in row} == expected
    assert len(set(pairs)) == len(pairs) <= number
    assert not set(pairs) & {(a.partition("#")[0], a) for a in texts}
    by_image = [row for row in new if "i2i" in row]
    assert [row["rating"] for row in by_image] == sorted((row["rating"] for row in by_image), reverse=True)
    assert all({row["image_id"], row["caption_id"].partition("#")[0]} == set(row["i2i"]) for row in by_image)
    original = [row for row in rows if row["sampling_method"] == "c2i_original"]
    assert {row["caption_id"] for row in original} == set(texts)
    assert all(row["caption_id"].startswith(row["image_id"] + "#") for row in original)


def test_a_caption_may_be_drawn_from_those_of_the_image_of_the_rated_one():
    held, _ = world([5, 5])
    drawn = set()
    for seed in range(12):
        rows = rows_of(sample_sits, held, captions=[("i0#0", "i1#0", 4.0)], images=[], number=4, drawn=True, seed=seed)
        drawn |= {row["caption_id"] for row in rows if "c2c" in row}
    assert drawn > {"i0#0", "i1#0"}
    assert all(row["caption_id"][:2] != row["image_id"] for row in rows if "c2c" in row)


def test_captions_of_one_image_bring_no_new_pair():
    held, _ = world([2, 2])
    rows = rows_of(sample_sits, held, captions=[("i0#0", "i0#1", 5.0)], images=[], number=4)
    assert [row["sampling_method"] for row in rows] == ["c2i_original"] * 4


# -- bad input


def test_what_cannot_be_sampled_is_refused(tmp_path):
    held, model = world([1, 1])
    alone = Collection.of({"a": ["one"], "b": []})
    with pytest.raises(CrossmatchError, match="1 of 2 images have captions; a pair needs two"):
        sample_sis(alone, tmp_path / "1", texts={"x": Letters("a")})
    with pytest.raises(WrongWords, match="the 0 most similar"):
        sample_sts(held, tmp_path / "2", images=model, top=0)
    with pytest.raises(WrongWords, match="no text model"):
        sample_sis(held, tmp_path / "3", texts={})
    with pytest.raises(CrossmatchError, match="does not embed images"):
        sample_sts(held, tmp_path / "4", images=Letters("a"))
    with pytest.raises(CrossmatchError, match="no image 'x' in the collection"):
        sample_sits(held, tmp_path / "5", captions=[], images=[("i0", "x", 1.0)])
    with pytest.raises(CrossmatchError, match="rated against itself"):
        sample_sits(held, tmp_path / "6", captions=[("i0#0", "i0#0", 1.0)], images=[])
    with pytest.raises(CrossmatchError, match="rated nan"):
        sample_sits(held, tmp_path / "7", captions=[], images=[("i0", "i1", float("nan"))])
    with pytest.raises(WrongWords, match="-1 new pairs"):
        sample_sits(held, tmp_path / "8", captions=[], images=[], number=-1)


def test_ratings_are_read_in_both_layouts_and_a_pair_has_its_mean(tmp_path):
    held = Collection.of({"205866": ["one"], "39081": ["two"]})
    own, official = tmp_path / "judgements_i2i.csv", tmp_path / "sis.csv"
    own.write_text("image_id,other_image_id,grade,deviation\n205866,39081,3.5,0.2\n39081,205866,2.5,\n")
    official.write_text(
        "image1,image2,agg_score,sampling_method\nCOCO_val2014_000000205866.jpg,COCO_val2014_000000039081.jpg,3.6,i2i_csim\n"
    )
    assert mean_ratings(read_rated(own, held, "image"), held, "image") == {(0, 1): 3.0}
    assert read_rated(official, held, "image") == [("205866", "39081", 3.6)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image_id,other_image_id,grade\na,b,much\n", "line 2: the rating is 'much'"),
        ("image_id,other_image_id,grade\na,c,1\n", "line 2: there is no image 'c'"),
        ("image_id,grade\na,1\n", "one called 'other_image_id' or 'image2' is missing"),
    ],
)
def test_a_file_of_ratings_says_what_is_wrong_with_it(tmp_path, text, said):
    path = tmp_path / "r.csv"
    path.write_text(text)
    with pytest.raises(CrossmatchError, match=said):
        read_rated(path, Collection.of({"a": ["one"], "b": ["two"]}), "image")


def test_a_file_that_is_not_there_or_no_table_is_refused(tmp_path):
    held = Collection.of({"a": ["one"]})
    with pytest.raises(WrongWords, match="is not there"):
        read_rated(tmp_path / "none.csv", held, "image")
    (tmp_path / "r.xlsx").write_text("x")
    with pytest.raises(WrongWords, match=r"read from .csv and .tsv"):
        read_rated(tmp_path / "r.xlsx", held, "image")


# -- interrupted, studies, released files


@pytest.mark.parametrize("step", ["sts", "sis", "sits"])
def test_a_sampling_that_was_broken_off_goes_on_and_ends_with_the_same_bytes(step, tmp_path, monkeypatch):
    held, model = world([3] * 6)

    def run(folder: Path) -> dict:
        if step == "sts":
            return sample_sts(held, folder, images=model)
        if step == "sis":
            return sample_sis(held, folder, texts={"x": Letters("abcd")})
        return sample_sits(held, folder, captions=[("i0#0", "i1#0", 3.0)], images=[("i2", "i3", 1.0)])

    whole = run(tmp_path / "whole")
    make, made = module.pair_id, []

    def broken(*ids: str) -> str:
        if len(made) == 4:
            raise OSError(28, "No space left on device")
        made.append(ids)
        return make(*ids)

    monkeypatch.setattr(module, "pair_id", broken)
    with pytest.raises(CrossmatchError, match="there is no room left on the disk"):
        run(tmp_path / "part")
    assert not manifest(tmp_path / "part")["finished"]
    monkeypatch.setattr(module, "pair_id", make)
    assert run(tmp_path / "part") == whole
    assert (tmp_path / "part" / ROWS).read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()


def test_rows_are_items_of_the_three_studies(tmp_path):
    held, model = world([3] * 5)
    source = Source.of("here", held, lambda name: None)
    sample_sts(held, tmp_path / "sts", images=model)
    sample_sis(held, tmp_path / "sis", texts={"x": Letters("abcd")})
    sample_sits(held, tmp_path / "sits", captions=[("i0#0", "i1#0", 3.0)], images=[("i2", "i3", 1.0)], number=4)
    for name in ("sts", "sis", "sits"):
        rows, material = read_rows(tmp_path / name), read_items(tmp_path / name / ROWS, load_design(name), source)
        assert [one.key for one in material.items] == [row["id"] for row in rows]
        assert [one.body["sampling_method"] for one in material.items] == [row["sampling_method"] for row in rows]


def test_the_released_files_have_the_shape_of_this_sampling(real_data):
    """Co-captions in rings, one pair of captions for each pair of images, new pairs of rated images, as many as we take."""
    held = coco("test")
    owner = {str(held.caption_ids[c]): str(held.image_ids[i]) for i, c in held.links.tolist()}
    with (real_data / "cxc" / "sts_test.csv").open(newline="") as file:
        rows = [(r["caption1"].split(":")[-1], r["caption2"].split(":")[-1], r["sampling_method"]) for r in csv.DictReader(file)]
    within = [(a, b) for a, b, method in rows if method == "c2c_cocaption"]
    assert Counter(Counter(owner[a] for a, _ in within).values()) == {5: 5000}
    assert set(Counter(c for pair in within for c in pair).values()) == {2}
    across = [frozenset((owner[a], owner[b])) for a, b, method in rows if method == "c2c_isim"]
    assert len(set(across)) == len(across)
    assert min(Counter(image for pair in across for image in pair).values()) == 5  # everyone's five most similar are there
    with (real_data / "cxc" / "sits_test.csv").open(newline="") as file:
        fits = [(r["caption"].split(":")[-1], str(int(r["image"][-16:-4])), r["sampling_method"]) for r in csv.DictReader(file)]
    new = {(image, caption) for caption, image, method in fits if method == "c2i_intrasim"}
    assert 0.95 < len(new) / (module.NEW_FOR_EACH_IMAGE * 5000) < 1
    seen = {frozenset(pair[:2]) for pair in read_rated(real_data / "cxc" / "sis_test.csv", held, "image")} | set(across)
    assert all(frozenset((image, owner[caption])) in seen for image, caption in new)


def test_the_released_ratings_pick_pairs_that_people_found_to_fit(real_data, tmp_path):
    held = coco("test")
    rated = {
        side: read_rated(real_data / "cxc" / name, held, side)
        for side, name in (("caption", "sts_test.csv"), ("image", "sis_test.csv"))
    }
    told = sample_sits(held, tmp_path / "out", captions=rated["caption"], images=rated["image"])
    assert told["counts"] == {"from captions": 10_000, "from images": 10_000, "c2i_original": 25_000}
    with (real_data / "cxc" / "sits_test.csv").open(newline="") as file:
        released = {
            (str(int(r["image"][-16:-4])), r["caption"].split(":")[-1]): float(r["agg_score"]) for r in csv.DictReader(file)
        }
    new = [(row["image_id"], row["caption_id"]) for row in read_rows(tmp_path / "out") if row["sampling_method"] == "c2i_intrasim"]
    assert np.mean([released[pair] for pair in new if pair in released]) > 3
