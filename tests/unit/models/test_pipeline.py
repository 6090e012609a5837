"""Work that is done ahead comes out in order; threads, batches and company change no score; what goes wrong has a name."""

import threading
import time

import numpy as np
import pytest
from PIL import Image

from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Judgements
from crossmatch.core.pictures import BadPicture
from crossmatch.models.abilities import scores_of
from crossmatch.models.pipeline import ahead, image_vectors, text_vectors, unusable, usual_workers

SIDE = 24


def noise(seed, size=(SIDE, SIDE)):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8))


def collection(n, open_image=None):
    return Collection.of(
        {f"i{k:03d}": [f"caption {k}", f"another of {k % 5}"] for k in range(n)}, open_image or (lambda name: noise(int(name[1:])))
    )


class Mean:
    """The mean colour; remembers what it was given."""

    def __init__(self):
        self.seen = []

    def embed_images(self, images):
        self.seen.append(len(images))
        return np.array([np.asarray(image, np.float32).mean(axis=(0, 1)) + 1 for image in images])


class Prepared(Mean):
    """The same in two steps; remembers which thread did which."""

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


# Ahead


@pytest.mark.parametrize("workers", [0, 1, 2, 5])
def test_results_come_in_order_whatever_takes_long(workers):
    def work(n):
        time.sleep(0.002 * (n % 3))
        return n * n

    assert list(ahead(work, range(20), workers)) == [n * n for n in range(20)]
    assert list(ahead(work, [], workers)) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_no_more_is_made_than_the_look_ahead(workers):
    begun = []
    made = ahead(begun.append, range(50), workers)
    for asked in range(1, 6):
        next(made)
        time.sleep(0.02)  # all that may be begun has begun
        assert asked <= len(begun) <= asked + workers + 1
    made.close()
    time.sleep(0.02)
    assert len(begun) <= 5 + workers + 1


def test_compute_and_work_ahead_overlap():
    """While the first result is in use, the second is being made: it could not be otherwise that both meet here."""
    meet = threading.Barrier(2, timeout=20)

    def work(n):
        if n == 1:
            meet.wait()
        return n

    made = ahead(work, range(3), workers=1)
    assert next(made) == 0
    meet.wait()
    assert list(made) == [1, 2]


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_an_exception_comes_at_its_place_and_no_thread_is_left(workers):
    def work(n):
        if n >= 3:
            raise KeyError(n)
        time.sleep(0.01 * (3 - n))  # the later ones fail before the first is done
        return n

    before = threading.active_count()
    made = ahead(work, range(9), workers)
    assert [next(made), next(made), next(made)] == [0, 1, 2]
    with pytest.raises(KeyError, match="3"):
        next(made)
    assert threading.active_count() == before


# Images


@pytest.mark.parametrize("workers", [0, 1, 2, 7])
@pytest.mark.parametrize("batch", [1, 3, 8, 100])
def test_the_pipeline_gives_what_the_model_gives(batch, workers):
    held = collection(20)
    whole = Mean().embed_images(held.images(range(20)))
    for model in (Mean(), Prepared()):
        assert np.array_equal(image_vectors(model, held, batch=batch, workers=workers), whole)
        assert max(model.seen) <= batch
        assert sum(model.seen) == 20


def test_a_model_that_prepares_does_so_in_another_thread_than_it_computes():
    model = Prepared()
    image_vectors(model, collection(20), batch=4, workers=2)
    assert model.threads["embed"] == {threading.get_ident()}
    assert threading.get_ident() not in model.threads["prepare"]
    alone = Prepared()
    image_vectors(alone, collection(20), batch=4, workers=0)
    assert alone.threads["prepare"] == {threading.get_ident()}


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("batch", [2, 10])
def test_equal_pictures_have_equal_vectors_to_the_last_bit(batch, workers):
    """A model that says something else in every call: of equal pictures the first counts."""

    class Moody(Mean):
        def embed_images(self, images):
            return super().embed_images(images) + len(self.seen)

    held = collection(10, lambda name: noise(int(name[1:]) % 4))
    said = image_vectors(Moody(), held, batch=batch, workers=workers)
    assert len(np.unique(said, axis=0)) == 4
    assert np.array_equal(said, said[np.arange(10) % 4])


def test_pictures_that_carry_other_regions_are_not_equal():
    def open_image(name):
        image = noise(0)
        image.info["regions"] = [(0, 0, 1, int(name[1:]) / 10 + 0.1)]
        return image

    class Boxes:
        def embed_images(self, images):
            return [[image.info["regions"][0][3], 1.0] for image in images]

    assert len(np.unique(image_vectors(Boxes(), collection(5, open_image), batch=2), axis=0)) == 5


def test_things_that_cannot_be_hashed_are_all_different():
    class Thing:
        def __init__(self, name):
            self.name = name

    class Names:
        def embed_images(self, images):
            return [[float(image.name[1:]), 1.0] for image in images]

    assert image_vectors(Names(), collection(5, Thing), batch=2)[:, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_first_bad_picture_in_order_is_named(workers):
    def open_image(name):
        if name in ("i004", "i011"):
            raise OSError(f"{name} is torn")
        return noise(1)

    with pytest.raises(BadPicture, match=r"image 'i004' cannot be opened \(OSError: i004 is torn\).*--skip-bad") as caught:
        image_vectors(Mean(), collection(20, open_image), batch=3, workers=workers)
    assert caught.value.image == "i004"


def test_a_picture_that_is_read_lazily_is_named_as_well(tmp_path):
    noise(1).save(tmp_path / "whole.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:-400])
    held = collection(3, lambda name: Image.open(tmp_path / ("cut.png" if name == "i001" else "whole.png")))
    with pytest.raises(BadPicture, match="image 'i001' cannot be opened"):
        image_vectors(Mean(), held, batch=2, workers=1)


def test_an_error_in_preparing_says_where():
    class Broken(Prepared):
        def prepare_images(self, images):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        image_vectors(Broken(), collection(5), batch=2, workers=1)
    assert caught.value.__notes__ == ["while preparing the images 'i000' to 'i001'"]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_is_refused_by_the_name_of_its_item(value):
    class Holes(Mean):
        def embed_images(self, images):
            found = super().embed_images(images)
            found[np.asarray([np.asarray(image)[0, 0, 0] for image in images]) == np.asarray(noise(7))[0, 0, 0], 1] = value
            return found

    with pytest.raises(CrossmatchError, match=r"the vector of image 'i007' holds NaN or infinite numbers"):
        image_vectors(Holes(), collection(9), batch=4)

    class Silent:
        def embed_texts(self, texts):
            return [[value if text == "b" else 1.0] for text in texts]

    with pytest.raises(CrossmatchError, match=r"the vector of text 'b' holds NaN or infinite numbers"):
        text_vectors(Silent(), ["a", "b", "c"], batch=2)


# A real network


@pytest.fixture(scope="module")
def dual():
    torch = pytest.importorskip("torch")
    from crossmatch.models.dual import Dual, DualConfig

    torch.manual_seed(0)
    return Dual(DualConfig(("a", "another", "caption", "of"), pixels=32, dimensions=16, width=4))


def test_neither_batch_nor_workers_change_a_score(dual):
    held = collection(40)
    data = Retrieval(held, {"links": Judgements.from_links(held)})
    every = [(b, w) for b in (1, 7, 64) for w in (0, 1, 3)]
    found = {(b, w): scores_of(dual, data, batch=b, workers=w) for b, w in every}
    first = found[1, 0]
    rows, columns = (at.ravel() for at in np.indices(held.shape))
    for (b, w), said in found.items():
        assert np.abs(said.pairs(rows, columns) - first.pairs(rows, columns)).max() < 1e-5, (b, w)
        assert np.array_equal(said.image_vectors, found[b, 0].image_vectors), "threads change nothing at all"


# Bad pictures in one pass


@pytest.mark.parametrize("workers", [None, 0, 3])
def test_all_bad_pictures_are_found_in_one_pass(workers):
    opened = []

    def open_image(name):
        opened.append(name)
        if int(name) % 50 == 3:
            raise ValueError("no picture")
        return noise(0)

    names = [str(n) for n in range(170)]
    found = unusable(open_image, names, workers)
    assert list(found) == ["3", "53", "103", "153"]
    assert found["53"] == "image '53' cannot be opened (ValueError: no picture). Mend it."
    assert sorted(opened) == sorted(names)


def test_one_thread_for_openers_that_do_not_say_they_can_be_shared(monkeypatch):
    monkeypatch.setattr("crossmatch.models.pipeline.cores", lambda: 6)

    class Shared:
        concurrent = True

    assert usual_workers(lambda name: None) == 1
    assert usual_workers(Shared()) == 5
    monkeypatch.setattr("crossmatch.models.pipeline.cores", lambda: 64)
    assert usual_workers(Shared()) == 8


# What a model may give


class Thrifty(Mean):
    """Fills one array again and again."""

    room = np.empty((64, 3))

    def embed_images(self, images):
        self.room[: len(images)] = super().embed_images(images)
        return self.room[: len(images)]


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_a_model_may_use_its_array_again(batch):
    held = collection(10)
    assert np.array_equal(image_vectors(Thrifty(), held, batch=batch), image_vectors(Mean(), held, batch=batch))


def tensor_of(values, kind):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(np.asarray(values))
    made = {
        "gradient": lambda: tensor.clone().requires_grad_(),
        "bfloat16": tensor.bfloat16,
        "list": lambda: [row.clone().requires_grad_() for row in tensor],
    }
    return made[kind]()


@pytest.mark.parametrize("kind", ["gradient", "bfloat16", "list"])
def test_a_tensor_is_as_good_as_an_array(kind):
    class Tensors(Mean):
        def embed_images(self, images):
            return tensor_of(super().embed_images(images), kind)

    held = collection(4)
    found, wanted = (image_vectors(model, held, batch=3) for model in (Tensors(), Mean()))
    np.testing.assert_allclose(found, wanted, rtol=1e-2 if kind == "bfloat16" else 0)


def test_what_is_no_array_is_refused():
    torch = pytest.importorskip("torch")

    class Sparse(Mean):
        def embed_images(self, images):
            return torch.eye(len(images)).to_sparse()

    with pytest.raises(CrossmatchError, match="embedding images: a Tensor is no array"):
        image_vectors(Sparse(), collection(4), batch=4)
