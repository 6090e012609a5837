"""Training sets: every pair once per epoch, in an order that nothing but seed and epoch decides; and where they come from."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.train.data import ArrayStore, Joined, PixelStore, TrainingSet
from crossmatch.train.sources import Asked, source

PIXELS = {"kind": "pixels", "side": 16}


def some(images=7, captions=3):
    """Image n has n % captions + 1 captions."""
    owners = np.repeat(np.arange(images), np.arange(images) % captions + 1)
    texts = tuple(f"caption {n}" for n in range(len(owners)))
    pictures = np.arange(images, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    return TrainingSet(PixelStore(pictures), texts, np.stack([owners, np.arange(len(owners))], axis=1))


# Batches


@pytest.mark.parametrize("size", [2, 4, 5, 100])
def test_an_epoch_has_every_pair_once_in_batches_of_about_one_size(size):
    data = some()
    batches = data.batches(size, seed=3, epoch=2)
    assert len(batches) == data.steps(size) == min(-(-len(data.links) // size), len(data.links) // 2)
    lengths = [len(rows.image) for rows in batches]
    assert max(lengths) <= size + (size == 2)  # rather three than one
    assert max(lengths) - min(lengths) <= 1
    pairs = sorted((int(i), int(c)) for rows in batches for i, c in zip(rows.image, rows.caption, strict=True))
    assert pairs == sorted(map(tuple, data.links.tolist()))


def test_the_order_depends_on_seed_and_epoch_alone():
    def order(data, seed, epoch):
        return [rows.caption.tolist() for rows in data.batches(4, seed, epoch)]

    data = some()
    torch.manual_seed(1)
    first = order(data, 0, 1)
    torch.manual_seed(2)
    np.random.default_rng().random()
    order(data, 0, 0)
    assert order(data, 0, 1) == first
    shuffled = TrainingSet(data.store, data.captions, data.links[::-1])
    assert order(shuffled, 0, 1) == first
    assert order(data, 0, 2) != first != order(data, 1, 1)


def test_another_caption_is_of_the_same_image_and_another_where_there_is_one():
    data = some()
    owner = dict(data.links[:, ::-1].tolist())
    many = np.bincount(data.links[:, 0])
    seen = set()
    for epoch in range(40):
        for rows in data.batches(4, 0, epoch):
            for image, caption, other in zip(rows.image, rows.caption, rows.other, strict=True):
                assert owner[int(other)] == image
                assert (other == caption) == (many[image] == 1)
                seen.add((int(caption), int(other)))
    wanted = {(c, o) for c in owner for o in owner if owner[c] == owner[o] and (c != o or many[owner[c]] == 1)}
    assert seen == wanted  # each of the others comes up sooner or later


def test_some_images_bring_their_captions():
    data = some()
    few = data.only(np.array([5, 2]))
    assert few.captions == tuple(data.captions[n] for n in sorted(data.links[np.isin(data.links[:, 0], [2, 5]), 1]))
    assert few.store.take(np.array([0, 1]))[:, 0, 0, 0].tolist() == [5, 2]
    for image, caption in few.links.tolist():
        assert [[5, 2][image], data.captions.index(few.captions[caption])] in data.links.tolist()


def test_a_digest_follows_captions_links_and_pictures():
    data = some()
    others = [
        TrainingSet(data.store, (*data.captions[:-1], "other"), data.links),
        TrainingSet(data.store, data.captions, data.links[1:]),
        TrainingSet(PixelStore(data.store.pictures + np.uint8(1)), data.captions, data.links),
    ]
    assert len({data.digest, *(other.digest for other in others)}) == 4
    assert some().digest == data.digest


def test_links_that_lead_nowhere_are_refused():
    data = some()
    for wrong in ([[0, 0]], [[0, 0], [7, 1]], [[0, 0], [1, 99]], [[0, 0], [-1, 1]]):
        with pytest.raises(CrossmatchError, match="cannot be trained on"):
            TrainingSet(data.store, data.captions, np.array(wrong))


# Hard negatives, and stores side by side


def harder(pairs=True):
    """The negative of link n is caption 50 + n, and image 20 + n."""
    data = some()
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
    """What the numbers of a batch stand for."""
    shown = data.store.pictures[:, 0, 0, 0]
    return [
        (int(shown[i]), data.captions[c], int(shown[h[0]]), data.captions[h[1]])
        for i, c, h in zip(rows.image, rows.caption, rows.hard, strict=True)
    ]


def test_negatives_stay_with_their_links_in_whatever_order():
    data = harder()
    wanted = {(int(i), f"caption {c}", 20 + c, f"negative {c}") for i, c in data.links.tolist()}
    assert {row for rows in data.batches(4, 0, 0) for row in of_rows(data, rows)} == wanted
    turned = TrainingSet(data.store, data.captions, data.links[::-1], data.hard[::-1])
    assert np.array_equal(turned.hard, data.hard)
    assert {row for rows in turned.batches(4, 0, 0) for row in of_rows(turned, rows)} == wanted


def test_some_images_bring_their_negatives():
    few = harder().only(np.array([5, 2]))
    shown = few.store.take(np.arange(len(few.store)))[:, 0, 0, 0].tolist()
    for (image, caption), (other, negative) in zip(few.links.tolist(), few.hard.tolist(), strict=True):
        n = int(few.captions[caption].split()[1])
        assert (shown[image] in (5, 2), shown[other], few.captions[negative]) == (True, 20 + n, f"negative {n}")
    assert sorted(shown) == sorted({5, 2} | {shown[n] for n in few.hard[:, 0]})
    texts = harder(pairs=False).only(np.array([5, 2]))
    assert (texts.hard[:, 0] == -1).all()
    assert len(texts.store) == 2


def test_a_digest_follows_the_negatives():
    data = harder()
    other = TrainingSet(data.store, data.captions, data.links, np.roll(data.hard, 1, axis=0))
    assert (
        len({data.digest, harder(pairs=False).digest, other.digest, TrainingSet(data.store, data.captions, data.links).digest}) == 4
    )


@pytest.mark.parametrize("spoil", [lambda h: h[1:], lambda h: h + 99, lambda h: h - [0, 99], lambda h: np.where(h == h[0], -1, h)])
def test_negatives_that_lead_nowhere_are_refused(spoil):
    data = harder()
    with pytest.raises(CrossmatchError, match="hard negatives for"):
        TrainingSet(data.store, data.captions, data.links, spoil(data.hard))


def test_stores_side_by_side_are_one():
    rng = np.random.default_rng(0)
    parts = [rng.random((n, k, 3), np.float32) + 0.1 for n, k in ((4, 2), (3, 5), (2, 1))]
    both = Joined(tuple(map(ArrayStore, parts)))
    assert (len(both), both.dimensions) == (9, 3)
    every = [image for part in parts for image in part]
    for asked in ([8, 0, 5, 5, 3], [1], [6, 4]):
        seen = both.take(np.array(asked))
        for n, image in enumerate(asked):
            assert np.array_equal(seen.features[n][seen.real[n]].numpy(), every[image])
            assert not seen.features[n][~seen.real[n]].any()
            assert seen.boxes.shape == (*seen.real.shape, 4)
    with pytest.raises(IndexError):
        both.take(np.array([9]))


# Sources


def test_the_embedded_world_is_what_the_world_says():
    from crossmatch.diorama.world import Diorama

    held = source("diorama", PIXELS, Asked(images=6, size="tiny", judged=4))
    train, validation = held.load()
    assert (len(train.store), len(validation.store)) == (6, 4)
    assert train.captions == tuple(c.text for c in Diorama.make("train", 6).captions)
    assert validation.captions == tuple(c.text for c in Diorama.make("val", 4).captions)
    assert train.links.tolist() == [[n // 5, n] for n in range(30)]
    again = source("diorama", PIXELS, Asked(images=6, size="tiny", judged=4))
    other = source("diorama", {**PIXELS, "side": 24}, Asked(images=6, size="tiny", judged=4))
    assert again.digest == held.digest != other.digest


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


def test_a_folder_holds_out_some_images_for_validation(folder):
    held = source(f"collection:{folder}", PIXELS, Asked())
    train, validation = held.load()
    assert (len(train.store), len(validation.store)) == (8, 2)
    assert not set(train.captions) & set(validation.captions)
    for part in (train, validation):
        for image, caption in part.links.tolist():
            grey = int(part.store.take(np.array([image]))[0, 0, 0, 0])
            assert part.captions[caption].endswith(f" {grey // 20}")
    assert source(f"collection:{folder}", PIXELS, Asked()).digest == held.digest
    assert source(f"collection:{folder}", PIXELS, Asked(images=5)).digest != held.digest
    assert len(source(f"collection:{folder}", PIXELS, Asked(images=5)).load()[0].store) == 5


def test_a_folder_may_have_another_one_to_validate_with(folder):
    train, validation = source(f"collection:{folder}", PIXELS, Asked(validation=str(folder))).load()
    assert (len(train.store), len(validation.store)) == (10, 10)


@pytest.fixture
def precomp(tmp_path):
    rng = np.random.default_rng(0)
    for split, images in (("train", 6), ("dev", 3)):
        np.save(tmp_path / f"{split}_ims.npy", rng.random((images, 4, 5), np.float32))
        (tmp_path / f"{split}_caps.txt").write_text("".join(f"{split} {n}\n" for n in range(2 * images)))
    return tmp_path


def test_scans_layout(precomp):
    train, validation = source(f"precomp:{precomp}", {}, Asked()).load()
    regions = train.store.take(np.array([5, 0]))
    assert np.array_equal(regions.features.numpy(), np.load(precomp / "train_ims.npy")[[5, 0]])
    assert regions.real.all()
    assert train.links.tolist() == [[n // 2, n] for n in range(12)]
    assert (len(validation.store), validation.captions[3]) == (3, "dev 3")
    assert len(source(f"precomp:{precomp}", {}, Asked(images=2)).load()[0].store) == 2


def test_images_that_are_repeated_for_each_caption_count_once(precomp):
    np.save(precomp / "dev_ims.npy", np.repeat(np.load(precomp / "dev_ims.npy"), 2, axis=0))
    validation = source(f"precomp:{precomp}", {}, Asked()).load()[1]
    assert len(validation.store) == 3
    assert validation.links.tolist() == [[n // 2, n] for n in range(6)]


def test_one_vector_for_a_picture_is_one_region(precomp):
    np.save(precomp / "train_ims.npy", np.load(precomp / "train_ims.npy")[:, 0])
    train = source(f"precomp:{precomp}", {}, Asked()).load()[0]
    assert train.store.take(np.array([1])).features.shape == (1, 1, 5)


def test_absent_regions_are_zeros():
    features = np.ones((2, 3, 4), np.float32)
    features[1, 2] = 0
    assert ArrayStore(features).take(np.array([1, 0])).real.tolist() == [[True, True, False], [True] * 3]


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
    def change(held):
        held[2, 1, 3] = value
        return held

    return change


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (cut_captions, "4 captions; equally many captions for each image"),
        (empty_caption, "line 2 of .*dev_caps.txt is empty"),
        (no_array, "cannot be read"),
        (one_dimension, "has shape"),
        (features(lambda f: f[:, :0]), r"train_ims.npy has shape \(6, 0, 5\)"),
        (features(lambda f: f[:, :, :0]), r"train_ims.npy has shape \(6, 4, 0\)"),
        (features(lambda f: f.astype(str)), "train_ims.npy holds <U"),
        (features(lambda f: f.astype(complex)), "train_ims.npy holds complex128; real numbers"),
        (features(lambda f: f[:, :, :3]), "train_ims.npy has 3 numbers for each region and dev_ims.npy beside it 5"),
        (features(lambda f: f * [[[1]]] * (np.arange(6) != 4)[:, None, None]), "train_ims.npy: image 4, .* has no region"),
        (features(spot(np.nan)), "train_ims.npy: image 2, counted from 0, has NaN or infinity"),
        (features(spot(1e300)), "train_ims.npy: image 2, counted from 0, has NaN or infinity"),
        (features(spot(-np.inf)), "train_ims.npy: image 2, counted from 0, has NaN or infinity"),
        (lambda folder: (folder / "train_ims.npy").write_bytes(b""), "train_ims.npy cannot be read as npy"),
        (lambda folder: (folder / "dev_caps.txt").write_bytes(b"caf\xe9\n"), "dev_caps.txt is not UTF-8"),
        (lambda folder: (folder / "dev_ims.npy").unlink(), "there is no .*dev_ims.npy"),
    ],
)
def test_a_spoilt_layout_is_refused(precomp, spoil, says):
    spoil(precomp)
    with pytest.raises(CrossmatchError, match=says):
        source(f"precomp:{precomp}", {}, Asked())


@pytest.mark.parametrize("mark", ["\u2028", "\x0b", "\x0c", "\x1d", "\x85", "\r"])
def test_captions_are_cut_at_line_feeds_alone(precomp, mark):
    lines = [f"train {n}" for n in range(12)]
    lines[3] = f"two dogs{mark}with a ball"
    (precomp / "train_caps.txt").write_bytes("".join(f"{line}\r\n" for line in lines).encode())
    assert source(f"precomp:{precomp}", {}, Asked()).load()[0].captions == tuple(lines)


def test_an_image_is_named_by_its_row_where_rows_are_repeated(precomp):
    held = np.repeat(np.load(precomp / "train_ims.npy"), 2, axis=0)
    held[6:8] = np.nan
    np.save(precomp / "train_ims.npy", held)
    with pytest.raises(CrossmatchError, match="image 6, counted from 0, has NaN"):
        source(f"precomp:{precomp}", {}, Asked())


@pytest.mark.parametrize(
    ("data", "asked", "says"),
    [
        ("dioarma", {}, "no data 'dioarma'"),
        ("collection", {}, "no data 'collection'"),
        ("diorama:x", {}, "no data 'diorama:x'"),
        ("diorama", {"size": "huge"}, "no size 'huge'"),
        ("diorama", {"images": 1}, "2 images at least"),
        ("diorama", {"validation": "x"}, "--validation goes with"),
        ("collection:nowhere", {}, "nowhere is not there"),
        ("precomp:nowhere", {}, "there is no nowhere"),
    ],
)
def test_data_that_are_not_there_are_named(data, asked, says):
    with pytest.raises(WrongWords, match=says):
        source(data, PIXELS, Asked(**asked))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(["none", "texts", "pairs"]))
def test_known_pairs_are_those_that_some_link_says(seed, kind):
    """By looking at all links, text by text."""
    dice = np.random.default_rng(seed)
    captions = tuple(dice.choice(["a cat", "a dog", "a cow", "two cows"], 6).tolist())
    links = np.unique(dice.integers(0, [3, 6], (5, 2)), axis=0)
    if len(links) < 2:
        return
    images = np.full(len(links), -1) if kind == "texts" else dice.integers(3, 5, len(links))
    hard = None if kind == "none" else np.stack([images, dice.integers(0, 6, len(links))], axis=1)
    data = TrainingSet(PixelStore(np.zeros((5, 8, 8, 3), np.uint8)), captions, links, hard)
    (rows,) = data.batches(size=10, seed=0, epoch=0)
    seen, said = [*rows.image], [*rows.caption]
    true = {(int(i), captions[c]) for i, c in data.links}
    if rows.hard is not None:
        said += [*rows.hard[:, 1]]
        if kind == "pairs":
            seen += [*rows.hard[:, 0]]
            true |= {(int(i), captions[c]) for i, c in rows.hard}
    assert data.known(rows).tolist() == [[(int(i), captions[c]) in true for c in said] for i in seen]


def test_no_batch_has_a_single_link_unless_that_was_asked_for():
    data = TrainingSet(PixelStore(np.zeros((3, 8, 8, 3), np.uint8)), ("a", "b", "c"), np.array([[0, 0], [1, 1], [2, 2]]))
    assert [len(rows.image) for rows in data.batches(size=2, seed=0, epoch=0)] == [3]
    assert [len(rows.image) for rows in data.batches(size=1, seed=0, epoch=0)] == [1, 1, 1]
