"""Prefetching and embedding: order, threads, batches, duplicates, and errors that name the item."""

import threading

import numpy as np
import pytest
from PIL import Image

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.image_loading import UnreadableImageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.evaluation.model_scores import score_collection
from crossmatch.models.embedding_pipeline import default_workers, embed_images_of, embed_texts_of, find_unreadable_images, prefetch
from polling import LIMIT, wait_until

SIDE = 24


def noise(seed, size=(SIDE, SIDE)):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def collection(n, open_image=None):
    return Collection.from_captions(
        {f"i{k:03d}": [f"caption {k}", f"another of {k % 5}"] for k in range(n)}, open_image or (lambda name: noise(int(name[1:])))
    )


class Mean:
    """Embeds the mean colour, and records the batch sizes."""

    def __init__(self):
        self.seen = []

    def embed_images(self, images):
        self.seen.append(len(images))
        return np.array([np.asarray(image, np.float32).mean(axis=(0, 1)) + 1 for image in images])


class Prepared(Mean):
    """The same in two steps; records the threads of each."""

    def __init__(self):
        super().__init__()
        self.threads = {"prepare": set(), "embed": set()}

    def prepare_images(self, images):
        self.threads["prepare"].add(threading.get_ident())
        return np.stack([np.asarray(image, np.float32) for image in images])

    def embed_prepared(self, pixels):
        self.threads["embed"].add(threading.get_ident())
        self.seen.append(len(pixels))
        return pixels.mean(axis=(1, 2)) + 1


# Prefetching


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_results_come_in_order(workers):
    """With threads, each even item is finished after the odd item that follows it."""
    finished = [threading.Event() for _ in range(20)]

    def work(n):
        if workers > 1 and n % 2 == 0:
            assert finished[n + 1].wait(LIMIT)
        finished[n].set()
        return n * n

    assert list(prefetch(work, range(20), workers)) == [n * n for n in range(20)]
    assert list(prefetch(work, [], workers)) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_look_ahead_is_bounded(workers):
    started = []
    results = prefetch(started.append, range(50), workers)
    for count in range(1, 6):
        next(results)
        wait_until(lambda count=count: len(started) >= count + workers + 1)
        assert len(started) == count + workers + 1
    results.close()  # ends the threads
    assert len(started) == 5 + workers + 1


def test_prefetching_overlaps_with_use():
    """The barrier is passed only if the second item is computed while the first result is in use."""
    meet = threading.Barrier(2, timeout=LIMIT)

    def work(n):
        if n == 1:
            meet.wait()
        return n

    results = prefetch(work, range(3), workers=1)
    assert next(results) == 0
    meet.wait()
    assert list(results) == [1, 2]


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_exception_is_raised_in_order_and_threads_end(workers):
    has_failed = threading.Event()

    def work(n):
        if n >= 3:
            has_failed.set()
            raise KeyError(n)
        if workers > 3:
            assert has_failed.wait(LIMIT)  # a later item fails before the first is finished
        return n

    before = set(threading.enumerate())
    results = prefetch(work, range(9), workers)
    assert [next(results), next(results), next(results)] == [0, 1, 2]
    with pytest.raises(KeyError, match="3"):
        next(results)
    assert set(threading.enumerate()) <= before


# Images


@pytest.mark.parametrize("workers", [0, 1, 2, 7])
@pytest.mark.parametrize("batch", [1, 3, 8, 100])
def test_pipeline_equals_the_model(batch, workers):
    images = collection(20)
    whole = Mean().embed_images(images.open_images(range(20)))
    for model in (Mean(), Prepared()):
        assert np.array_equal(embed_images_of(model, images, batch=batch, workers=workers), whole)
        assert max(model.seen) <= batch
        assert sum(model.seen) == 20


def test_images_are_prepared_in_other_threads():
    model = Prepared()
    embed_images_of(model, collection(20), batch=4, workers=2)
    assert model.threads["embed"] == {threading.get_ident()}
    assert threading.get_ident() not in model.threads["prepare"]
    alone = Prepared()
    embed_images_of(alone, collection(20), batch=4, workers=0)
    assert alone.threads["prepare"] == {threading.get_ident()}


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("batch", [2, 10])
def test_equal_images_get_equal_vectors(batch, workers):
    """The model returns other vectors in every call; the first one counts for equal images."""

    class Moody(Mean):
        def embed_images(self, images):
            return super().embed_images(images) + len(self.seen)

    images = collection(10, lambda name: noise(int(name[1:]) % 4))
    vectors = embed_images_of(Moody(), images, batch=batch, workers=workers)
    assert len(np.unique(vectors, axis=0)) == 4
    assert np.array_equal(vectors, vectors[np.arange(10) % 4])


def test_images_with_other_regions_are_not_equal():
    def open_image(name):
        image = noise(0)
        image.info["regions"] = [(0, 0, 1, int(name[1:]) / 10 + 0.1)]
        return image

    class Boxes:
        def embed_images(self, images):
            return [[image.info["regions"][0][3], 1.0] for image in images]

    assert len(np.unique(embed_images_of(Boxes(), collection(5, open_image), batch=2), axis=0)) == 5


def test_objects_without_hash_are_all_different():
    class Thing:
        def __init__(self, name):
            self.name = name

    class Names:
        def embed_images(self, images):
            return [[float(image.name[1:]), 1.0] for image in images]

    assert embed_images_of(Names(), collection(5, Thing), batch=2)[:, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_first_unreadable_image_is_named(workers):
    def open_image(name):
        if name in ("i004", "i011"):
            raise OSError(f"{name} is torn")
        return noise(1)

    with pytest.raises(
        UnreadableImageError, match=r"image 'i004' cannot be opened \(OSError: i004 is torn\).*--skip-bad"
    ) as caught:
        embed_images_of(Mean(), collection(20, open_image), batch=3, workers=workers)
    assert caught.value.image == "i004"


def test_truncated_file_is_named(tmp_path):
    noise(1).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:-400])
    images = collection(3, lambda name: Image.open(tmp_path / ("cut.png" if name == "i001" else "whole.png")))
    with pytest.raises(UnreadableImageError, match="image 'i001' cannot be opened"):
        embed_images_of(Mean(), images, batch=2, workers=1)


def test_error_in_preparation_names_the_images():
    class Broken(Prepared):
        def prepare_images(self, images):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        embed_images_of(Broken(), collection(5), batch=2, workers=1)
    assert caught.value.__notes__ == ["while preparing the images 'i000' to 'i001'"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_error_for_nan_names_the_item(value):
    class Holes(Mean):
        def embed_images(self, images):
            vectors = super().embed_images(images)
            vectors[np.asarray([np.asarray(image)[0, 0, 0] for image in images]) == np.asarray(noise(7))[0, 0, 0], 1] = value
            return vectors

    with pytest.raises(CrossmatchError, match=r"the vector of image 'i007' has NaN or infinite numbers"):
        embed_images_of(Holes(), collection(9), batch=4)

    class Silent:
        def embed_texts(self, texts):
            return [[value if text == "b" else 1.0] for text in texts]

    with pytest.raises(CrossmatchError, match=r"the vector of text 'b' has NaN or infinite numbers"):
        embed_texts_of(Silent(), ["a", "b", "c"], batch=2)


# A trained network


@pytest.fixture(scope="module")
def dual():
    torch = pytest.importorskip("torch")
    from crossmatch.models.baselines.small_dual_encoder import SmallDualEncoder, SmallDualEncoderConfig

    torch.manual_seed(0)
    return SmallDualEncoder(SmallDualEncoderConfig(("a", "another", "caption", "of"), pixels=32, dimensions=16, width=4))


def test_batches_and_threads_change_no_score(dual):
    images = collection(40)
    data = Retrieval(images, {"links": Judgements.from_links(images)})
    settings = [(b, w) for b in (1, 7, 64) for w in (0, 1, 3)]
    embeddings = {(b, w): score_collection(dual, data, batch=b, workers=w) for b, w in settings}
    first = embeddings[1, 0]
    rows, columns = (at.ravel() for at in np.indices(images.shape))
    for (b, w), candidate in embeddings.items():
        assert np.abs(candidate.score_pairs(rows, columns) - first.score_pairs(rows, columns)).max() < 1e-5, (b, w)
        assert np.array_equal(candidate.image_vectors, embeddings[b, 0].image_vectors), "threads change no bit"


# Unreadable images


@pytest.mark.parametrize("workers", [None, 0, 3])
def test_all_unreadable_images_are_found_in_one_pass(workers):
    opened = []

    def open_image(name):
        opened.append(name)
        if int(name) % 50 == 3:
            raise ValueError("no picture")
        return noise(0)

    names = [str(n) for n in range(170)]
    unreadable = find_unreadable_images(open_image, names, workers)
    assert list(unreadable) == ["3", "53", "103", "153"]
    assert unreadable["53"] == "image '53' cannot be opened (ValueError: no picture). Replace the file."
    assert sorted(opened) == sorted(names)


def test_only_concurrent_openers_get_several_threads(monkeypatch):
    monkeypatch.setattr("crossmatch.models.embedding_pipeline.available_cores", lambda: 6)

    class Shared:
        concurrent = True

    assert default_workers(lambda name: None) == 1
    assert default_workers(Shared()) == 5
    monkeypatch.setattr("crossmatch.models.embedding_pipeline.available_cores", lambda: 64)
    assert default_workers(Shared()) == 8


# Outputs of a model


class Thrifty(Mean):
    """Reuses one output array."""

    room = np.empty((64, 3))

    def embed_images(self, images):
        self.room[: len(images)] = super().embed_images(images)
        return self.room[: len(images)]


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_model_may_reuse_its_output_array(batch):
    images = collection(10)
    assert np.array_equal(embed_images_of(Thrifty(), images, batch=batch), embed_images_of(Mean(), images, batch=batch))


def tensor_of(values, kind):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(np.asarray(values))
    conversions = {
        "gradient": lambda: tensor.clone().requires_grad_(),
        "bfloat16": tensor.bfloat16,
        "list": lambda: [row.clone().requires_grad_() for row in tensor],
    }
    return conversions[kind]()


@pytest.mark.parametrize("kind", ["gradient", "bfloat16", "list"])
def test_tensors_are_converted(kind):
    class Tensors(Mean):
        def embed_images(self, images):
            return tensor_of(super().embed_images(images), kind)

    images = collection(4)
    vectors, expected = (embed_images_of(model, images, batch=3) for model in (Tensors(), Mean()))
    np.testing.assert_allclose(vectors, expected, rtol=1e-2 if kind == "bfloat16" else 0)


def test_sparse_tensor_is_refused():
    torch = pytest.importorskip("torch")

    class Sparse(Mean):
        def embed_images(self, images):
            return torch.eye(len(images)).to_sparse()

    with pytest.raises(CrossmatchError, match="embedding images: cannot convert a Tensor to an array"):
        embed_images_of(Sparse(), collection(4), batch=4)
