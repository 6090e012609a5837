"""Training sets: batches, subsets, hard negatives, and the sources of the data."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.train.data.sources import DataOptions, open_source
from crossmatch.train.data.training_set import ArrayStore, JoinedStore, PixelStore, TrainingSet, feature_dimensions

PIXELS = {"kind": "pixels", "side": 16}


def small_set(images=7, captions=3):
    """Image n has n % captions + 1 captions."""
    owners = np.repeat(np.arange(images), np.arange(images) % captions + 1)
    texts = tuple(f"caption {n}" for n in range(len(owners)))
    pictures = np.arange(images, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    return TrainingSet(PixelStore(pictures), texts, np.stack([owners, np.arange(len(owners))], axis=1))


# Batches


@pytest.mark.parametrize("size", [2, 4, 5, 100])
def test_epoch_has_every_pair_once_in_batches_of_similar_size(size):
    data = small_set()
    batches = data.batches(size, seed=3, epoch=2)
    assert len(batches) == data.steps(size) == min(-(-len(data.links) // size), len(data.links) // 2)
    lengths = [len(rows.image) for rows in batches]
    assert max(lengths) <= size + (size == 2)  # three instead of one
    assert max(lengths) - min(lengths) <= 1
    pairs = sorted((int(i), int(c)) for rows in batches for i, c in zip(rows.image, rows.caption, strict=True))
    assert pairs == sorted(map(tuple, data.links.tolist()))


def test_order_depends_on_seed_and_epoch_only():
    def order(data, seed, epoch):
        return [rows.caption.tolist() for rows in data.batches(4, seed, epoch)]

    data = small_set()
    torch.manual_seed(1)
    first = order(data, 0, 1)
    torch.manual_seed(2)
    np.random.default_rng().random()
    order(data, 0, 0)
    assert order(data, 0, 1) == first
    shuffled = TrainingSet(data.store, data.captions, data.links[::-1])
    assert order(shuffled, 0, 1) == first
    assert order(data, 0, 2) != first != order(data, 1, 1)


def test_other_caption_belongs_to_the_same_image():
    data = small_set()
    owner = dict(data.links[:, ::-1].tolist())
    many = np.bincount(data.links[:, 0])
    pairs = set()
    for epoch in range(40):
        for rows in data.batches(4, 0, epoch):
            for image, caption, other in zip(rows.image, rows.caption, rows.other, strict=True):
                assert owner[int(other)] == image
                assert (other == caption) == (many[image] == 1)
                pairs.add((int(caption), int(other)))
    expected = {(c, o) for c in owner for o in owner if owner[c] == owner[o] and (c != o or many[owner[c]] == 1)}
    assert pairs == expected  # all other captions occur


def test_subset_keeps_captions_of_its_images():
    data = small_set()
    few = data.only(np.array([5, 2]))
    assert few.captions == tuple(data.captions[n] for n in sorted(data.links[np.isin(data.links[:, 0], [2, 5]), 1]))
    assert few.store.take(np.array([0, 1]))[:, 0, 0, 0].tolist() == [5, 2]
    for image, caption in few.links.tolist():
        assert [[5, 2][image], data.captions.index(few.captions[caption])] in data.links.tolist()


def test_digest_depends_on_captions_links_and_pictures():
    data = small_set()
    changed_sets = [
        TrainingSet(data.store, (*data.captions[:-1], "other"), data.links),
        TrainingSet(data.store, data.captions, data.links[1:]),
        TrainingSet(PixelStore(data.store.pictures + np.uint8(1)), data.captions, data.links),
    ]
    assert len({data.digest, *(changed.digest for changed in changed_sets)}) == 4
    assert small_set().digest == data.digest


def test_invalid_links_are_refused():
    data = small_set()
    for wrong in ([[0, 0]], [[0, 0], [7, 1]], [[0, 0], [1, 99]], [[0, 0], [-1, 1]]):
        with pytest.raises(CrossmatchError, match="Cannot train on"):
            TrainingSet(data.store, data.captions, np.array(wrong))


# Hard negatives and joined stores


def set_with_negatives(pairs=True):
    """The negative of link n is caption 50 + n, and image 20 + n."""
    data = small_set()
    count = len(data.links)
    pictures = np.concatenate(
        [
            data.store.pictures,
            np.full((count, 8, 8, 3), 0, np.uint8) + np.arange(20, 20 + count, dtype=np.uint8)[:, None, None, None],
        ]
    )
    texts = (*data.captions, *(f"negative {n}" for n in range(count)))
    hard = np.stack([7 + np.arange(count) if pairs else np.full(count, -1), count + np.arange(count)], axis=1)
    return TrainingSet(PixelStore(pictures), texts, data.links, hard)


def of_rows(data, rows):
    """Images and texts of a batch."""
    shown = data.store.pictures[:, 0, 0, 0]
    return [
        (int(shown[i]), data.captions[c], int(shown[h[0]]), data.captions[h[1]])
        for i, c, h in zip(rows.image, rows.caption, rows.hard, strict=True)
    ]


def test_negatives_stay_with_their_links():
    data = set_with_negatives()
    expected = {(int(i), f"caption {c}", 20 + c, f"negative {c}") for i, c in data.links.tolist()}
    assert {row for rows in data.batches(4, 0, 0) for row in of_rows(data, rows)} == expected
    turned = TrainingSet(data.store, data.captions, data.links[::-1], data.hard[::-1])
    assert np.array_equal(turned.hard, data.hard)
    assert {row for rows in turned.batches(4, 0, 0) for row in of_rows(turned, rows)} == expected


def test_subset_keeps_negatives_of_its_images():
    few = set_with_negatives().only(np.array([5, 2]))
    shown = few.store.take(np.arange(len(few.store)))[:, 0, 0, 0].tolist()
    for (image, caption), (negative_image, negative) in zip(few.links.tolist(), few.hard.tolist(), strict=True):
        n = int(few.captions[caption].split()[1])
        assert (shown[image] in (5, 2), shown[negative_image], few.captions[negative]) == (True, 20 + n, f"negative {n}")
    assert sorted(shown) == sorted({5, 2} | {shown[n] for n in few.hard[:, 0]})
    texts = set_with_negatives(pairs=False).only(np.array([5, 2]))
    assert (texts.hard[:, 0] == -1).all()
    assert len(texts.store) == 2


def test_digest_depends_on_the_negatives():
    data = set_with_negatives()
    changed = TrainingSet(data.store, data.captions, data.links, np.roll(data.hard, 1, axis=0))
    assert (
        len(
            {
                data.digest,
                set_with_negatives(pairs=False).digest,
                changed.digest,
                TrainingSet(data.store, data.captions, data.links).digest,
            }
        )
        == 4
    )


@pytest.mark.parametrize("spoil", [lambda h: h[1:], lambda h: h + 99, lambda h: h - [0, 99], lambda h: np.where(h == h[0], -1, h)])
def test_invalid_negatives_are_refused(spoil):
    data = set_with_negatives()
    with pytest.raises(CrossmatchError, match="hard negatives for"):
        TrainingSet(data.store, data.captions, data.links, spoil(data.hard))


def test_joined_store_equals_its_parts():
    rng = np.random.default_rng(0)
    parts = [rng.random((n, k, 3), np.float32) + 0.1 for n, k in ((4, 2), (3, 5), (2, 1))]
    joined = JoinedStore(tuple(map(ArrayStore, parts)))
    assert (len(joined), feature_dimensions(joined)) == (9, 3)
    images = [image for part in parts for image in part]
    for numbers in ([8, 0, 5, 5, 3], [1], [6, 4]):
        regions = joined.take(np.array(numbers))
        for n, image in enumerate(numbers):
            assert np.array_equal(regions.features[n][regions.mask[n]].numpy(), images[image])
            assert not regions.features[n][~regions.mask[n]].any()
            assert regions.boxes.shape == (*regions.mask.shape, 4)
    with pytest.raises(IndexError):
        joined.take(np.array([9]))


# Sources


def test_diorama_source_equals_the_world():
    from crossmatch.diorama.world import Diorama

    source = open_source("diorama", PIXELS, DataOptions(images=6, size="tiny", validation_images=4))
    train, validation = source.load()
    assert (len(train.store), len(validation.store)) == (6, 4)
    assert train.captions == tuple(c.text for c in Diorama.make("train", 6).captions)
    assert validation.captions == tuple(c.text for c in Diorama.make("val", 4).captions)
    assert train.links.tolist() == [[n // 5, n] for n in range(30)]
    again = open_source("diorama", PIXELS, DataOptions(images=6, size="tiny", validation_images=4))
    larger = open_source("diorama", {**PIXELS, "side": 24}, DataOptions(images=6, size="tiny", validation_images=4))
    assert again.digest == source.digest != larger.digest


@pytest.fixture
def folder(tmp_path):
    """Ten grey pictures, two captions each."""
    from PIL import Image

    (tmp_path / "pets/images").mkdir(parents=True)
    lines = ["image,caption"]
    for n in range(10):
        Image.new("RGB", (20, 20), (20 * n,) * 3).save(tmp_path / f"pets/images/{n}.png")
        lines += [f"{n}.png,picture {n}", f"{n}.png,number {n}"]
    (tmp_path / "pets/captions.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "pets"


def test_collection_holds_out_images_for_validation(folder):
    source = open_source(f"collection:{folder}", PIXELS, DataOptions())
    train, validation = source.load()
    assert (len(train.store), len(validation.store)) == (8, 2)
    assert not set(train.captions) & set(validation.captions)
    for part in (train, validation):
        for image, caption in part.links.tolist():
            grey = int(part.store.take(np.array([image]))[0, 0, 0, 0])
            assert part.captions[caption].endswith(f" {grey // 20}")
    assert open_source(f"collection:{folder}", PIXELS, DataOptions()).digest == source.digest
    assert open_source(f"collection:{folder}", PIXELS, DataOptions(images=5)).digest != source.digest
    assert len(open_source(f"collection:{folder}", PIXELS, DataOptions(images=5)).load()[0].store) == 5


def test_collection_with_separate_validation_folder(folder):
    train, validation = open_source(f"collection:{folder}", PIXELS, DataOptions(validation=str(folder))).load()
    assert (len(train.store), len(validation.store)) == (10, 10)


@pytest.fixture
def precomp(tmp_path):
    rng = np.random.default_rng(0)
    for split, images in (("train", 6), ("dev", 3)):
        np.save(tmp_path / f"{split}_ims.npy", rng.random((images, 4, 5), np.float32))
        (tmp_path / f"{split}_caps.txt").write_text("".join(f"{split} {n}\n" for n in range(2 * images)))
    return tmp_path


def test_precomp_layout(precomp):
    train, validation = open_source(f"precomp:{precomp}", {}, DataOptions()).load()
    regions = train.store.take(np.array([5, 0]))
    assert np.array_equal(regions.features.numpy(), np.load(precomp / "train_ims.npy")[[5, 0]])
    assert regions.mask.all()
    assert train.links.tolist() == [[n // 2, n] for n in range(12)]
    assert (len(validation.store), validation.captions[3]) == (3, "dev 3")
    assert len(open_source(f"precomp:{precomp}", {}, DataOptions(images=2)).load()[0].store) == 2


def test_repeated_images_count_once(precomp):
    np.save(precomp / "dev_ims.npy", np.repeat(np.load(precomp / "dev_ims.npy"), 2, axis=0))
    validation = open_source(f"precomp:{precomp}", {}, DataOptions()).load()[1]
    assert len(validation.store) == 3
    assert validation.links.tolist() == [[n // 2, n] for n in range(6)]


def test_one_vector_per_image_is_one_region(precomp):
    np.save(precomp / "train_ims.npy", np.load(precomp / "train_ims.npy")[:, 0])
    train = open_source(f"precomp:{precomp}", {}, DataOptions()).load()[0]
    assert train.store.take(np.array([1])).features.shape == (1, 1, 5)


def test_regions_of_zeros_are_padding():
    features = np.ones((2, 3, 4), np.float32)
    features[1, 2] = 0
    assert ArrayStore(features).take(np.array([1, 0])).mask.tolist() == [[True, True, False], [True] * 3]


def cut_captions(folder):
    (folder / "train_caps.txt").write_text("one\ntwo\nthree\nfour\n")


def empty_caption(folder):
    (folder / "dev_caps.txt").write_text("one\n\nthree\n")


def no_array(folder):
    (folder / "dev_ims.npy").write_bytes(b"nothing")


def one_dimension(folder):
    np.save(folder / "train_ims.npy", np.zeros(6))


def features(change):
    """Other features of the training images."""

    def spoil(folder):
        np.save(folder / "train_ims.npy", change(np.load(folder / "train_ims.npy").astype(np.float64)))

    return spoil


def spot(value):
    def change(array):
        array[2, 1, 3] = value
        return array

    return change


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut_captions, "4 captions; expected equally many captions for each image"),
        (empty_caption, "dev_caps.txt, line 2: expected a caption"),
        (no_array, "cannot be read"),
        (one_dimension, "has shape"),
        (features(lambda f: f[:, :0]), r"train_ims.npy has shape \(6, 0, 5\)"),
        (features(lambda f: f[:, :, :0]), r"train_ims.npy has shape \(6, 4, 0\)"),
        (features(lambda f: f.astype(str)), "train_ims.npy has dtype <U"),
        (features(lambda f: f.astype(complex)), "train_ims.npy has dtype complex128; expected real numbers"),
        (features(lambda f: f[:, :, :3]), "train_ims.npy has 3 numbers per region, dev_ims.npy has 5"),
        (features(lambda f: f * [[[1]]] * (np.arange(6) != 4)[:, None, None]), "train_ims.npy: image 4 .* has no region"),
        (features(spot(np.nan)), "train_ims.npy: image 2 .counted from 0. has NaN or infinity"),
        (features(spot(1e300)), "train_ims.npy: image 2 .counted from 0. has NaN or infinity"),
        (features(spot(-np.inf)), "train_ims.npy: image 2 .counted from 0. has NaN or infinity"),
        (lambda folder: (folder / "train_ims.npy").write_bytes(b""), "train_ims.npy cannot be read as npy"),
        (lambda folder: (folder / "dev_caps.txt").write_bytes(b"caf\xe9\n"), "dev_caps.txt is not UTF-8"),
        (lambda folder: (folder / "dev_ims.npy").unlink(), "dev_ims.npy does not exist"),
    ],
)
def test_damaged_precomp_folder_is_refused(precomp, spoil, message):
    spoil(precomp)
    with pytest.raises(CrossmatchError, match=message):
        open_source(f"precomp:{precomp}", {}, DataOptions())


@pytest.mark.parametrize("mark", ["\u2028", "\x0b", "\x0c", "\x1d", "\x85", "\r"])
def test_captions_are_split_at_line_feeds_only(precomp, mark):
    lines = [f"train {n}" for n in range(12)]
    lines[3] = f"two dogs{mark}with a ball"
    (precomp / "train_caps.txt").write_bytes("".join(f"{line}\r\n" for line in lines).encode())
    assert open_source(f"precomp:{precomp}", {}, DataOptions()).load()[0].captions == tuple(lines)


def test_error_names_the_row_of_a_repeated_image(precomp):
    array = np.repeat(np.load(precomp / "train_ims.npy"), 2, axis=0)
    array[6:8] = np.nan
    np.save(precomp / "train_ims.npy", array)
    with pytest.raises(CrossmatchError, match=r"image 6 .counted from 0. has NaN"):
        open_source(f"precomp:{precomp}", {}, DataOptions())


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("dioarma", {}, "--data dioarma: expected"),
        ("collection", {}, "--data collection: expected"),
        ("diorama:x", {}, "--data diorama:x: expected"),
        ("diorama", {"size": "huge"}, "no size 'huge'"),
        ("diorama", {"images": 1}, "at least 2"),
        ("diorama", {"validation": "x"}, "--validation applies to"),
        ("collection:nowhere", {}, "nowhere does not exist"),
        ("precomp:nowhere", {}, "nowhere does not exist"),
    ],
)
def test_unknown_or_missing_data_are_refused(data, options, message):
    with pytest.raises(UsageError, match=message):
        open_source(data, PIXELS, DataOptions(**options))


@given(st.integers(0, 2**31), st.sampled_from(["none", "texts", "pairs"]))
def test_true_pairs_equal_a_loop(seed, kind):
    """Against a loop over all links."""
    rng = np.random.default_rng(seed)
    captions = tuple(rng.choice(["a cat", "a dog", "a cow", "two cows"], 6).tolist())
    links = np.unique(rng.integers(0, [3, 6], (5, 2)), axis=0)
    if len(links) < 2:
        return
    images = np.full(len(links), -1) if kind == "texts" else rng.integers(3, 5, len(links))
    hard = None if kind == "none" else np.stack([images, rng.integers(0, 6, len(links))], axis=1)
    data = TrainingSet(PixelStore(np.zeros((5, 8, 8, 3), np.uint8)), captions, links, hard)
    (rows,) = data.batches(size=10, seed=0, epoch=0)
    images_of_batch, captions_of_batch = [*rows.image], [*rows.caption]
    true_pairs = {(int(i), captions[c]) for i, c in data.links}
    if rows.hard is not None:
        captions_of_batch += [*rows.hard[:, 1]]
        if kind == "pairs":
            images_of_batch += [*rows.hard[:, 0]]
            true_pairs |= {(int(i), captions[c]) for i, c in rows.hard}
    assert data.find_true_pairs(rows).tolist() == [
        [(int(i), captions[c]) in true_pairs for c in captions_of_batch] for i in images_of_batch
    ]


def test_single_link_batches_occur_only_on_request():
    data = TrainingSet(PixelStore(np.zeros((3, 8, 8, 3), np.uint8)), ("a", "b", "c"), np.array([[0, 0], [1, 1], [2, 2]]))
    assert [len(rows.image) for rows in data.batches(size=2, seed=0, epoch=0)] == [3]
    assert [len(rows.image) for rows in data.batches(size=1, seed=0, epoch=0)] == [1, 1, 1]
