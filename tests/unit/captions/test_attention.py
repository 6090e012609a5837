"""Groundings where the equations say nothing, and the arithmetic: zero, huge and tiny vectors, blocks, order, ties."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.captions import attention
from crossmatch.captions.attention import RELEASED_LEAK, SMOOTHING, ground
from crossmatch.core.errors import CrossmatchError

FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def drawn(images, captions, regions=6, words=5, d=16, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    v = rng.standard_normal((images, regions, d)) + 1
    w = rng.standard_normal((images * captions, words, d)) + 1
    return v.astype(dtype), w.astype(dtype), np.repeat(np.arange(images), captions)


@FLOATS
def test_zero_vectors_have_cosine_zero(dtype):
    v, w, _ = drawn(1, 1, dtype=dtype)
    v[0, 2] = 0
    found = ground(v, w)
    assert found[0, 2] == 0
    assert (np.delete(found[0], 2) != 0).all()
    v[:] = 0
    assert (ground(v, w) == 0).all()


@FLOATS
def test_a_zero_region_changes_nothing_for_the_others(dtype):
    v, w, _ = drawn(1, 1, dtype=dtype)
    v[0, -1] = 0
    np.testing.assert_allclose(ground(v, w)[:, :-1], ground(v[:, :-1], w), rtol=0, atol=1e-6 if dtype == np.float32 else 1e-12)


@FLOATS
@pytest.mark.parametrize("leak", [0.0, 0.1])
def test_unknown_words_only_are_grounded_nowhere(dtype, leak):
    v, w, _ = drawn(2, 1, dtype=dtype)
    w[0] = 0
    found = ground(v, w, leak=leak)
    assert (found[0] == 0).all()
    assert (found[1] != 0).all()


@FLOATS
def test_an_unknown_word_among_others_takes_weight_but_no_direction(dtype):
    v, w, _ = drawn(1, 1, words=1, dtype=dtype)
    with_unknown = np.concatenate([w, np.zeros_like(w)], axis=1)
    np.testing.assert_allclose(ground(v, with_unknown), ground(v, w), rtol=0, atol=1e-6 if dtype == np.float32 else 1e-12)


@FLOATS
def test_an_empty_caption_is_grounded_nowhere(dtype):
    v, w, _ = drawn(2, 1, dtype=dtype)
    found = ground(v, w, lengths=[0, 5])
    assert (found[0] == 0).all()
    assert (found[1] != 0).all()
    assert (ground(v, w[:, :0]) == 0).all()


@FLOATS
def test_with_one_region_only_the_cosine_counts(dtype):
    v, w, _ = drawn(1, 1, regions=1, words=1, dtype=dtype)
    cosine = (v[0, 0] @ w[0, 0]) / np.linalg.norm(v[0, 0]) / np.linalg.norm(w[0, 0])
    assert ground(v, w)[0, 0] == pytest.approx(float(cosine), abs=1e-6)


@FLOATS
def test_equal_regions_are_equally_grounded(dtype):
    v, w, _ = drawn(1, 1, regions=1, d=33, dtype=dtype)
    found = ground(np.repeat(v, 7, axis=1), w)
    assert len(np.unique(found)) == 1
    mixed = np.concatenate([v, -v, v, v], axis=1)
    assert len(np.unique(ground(mixed, w)[0, [0, 2, 3]])) == 1


def test_equal_words_are_one_word():
    v, w, _ = drawn(1, 1, words=1, dtype=np.float64)
    np.testing.assert_allclose(ground(v, np.repeat(w, 5, axis=1)), ground(v, w), rtol=0, atol=1e-12)


@FLOATS
def test_words_that_cancel_out_are_grounded_nowhere(dtype):
    v = np.zeros((1, 2, 3), dtype=dtype)
    v[0, :, 0] = 1
    w = np.array([[[0, 1, 0.3], [0, -1, -0.3]]], dtype=dtype)  # at right angles to both regions, and opposite
    assert (ground(v, w) == 0).all()


def test_words_at_right_angles_to_all_regions_weigh_alike_however_the_cosines_are_rounded():
    """The division of eq. 3 would make anything of a cosine of 1e-17 among others like it."""
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((64, 64)))[0]
    v, near, far = basis[None, :8], basis[:8].sum(axis=0), basis[20] * 2
    found = ground(v, np.stack([near, far])[None], smoothing=4.0)
    share = np.exp(4 / np.sqrt(8)) / (np.exp(4 / np.sqrt(8)) + 1)  # of the near word; the far one has similarity 0
    expected = share / np.sqrt((share**2) * 8 + ((1 - share) * 2) ** 2)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
@FLOATS
def test_the_length_of_regions_does_not_matter_nor_that_of_all_words(scale, dtype):
    v, w, _ = drawn(3, 1, dtype=dtype)
    scale = dtype(scale if dtype == np.float32 else scale**8)
    expected = ground(v, w)
    np.testing.assert_allclose(ground(v * scale, w), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ground(v, w * scale), expected, rtol=0, atol=1e-6)


def test_batch_order_and_padding_do_not_matter():
    v, w, image = drawn(30, 3)
    lengths = np.random.default_rng(2).integers(0, 6, len(w))
    regions_each = np.random.default_rng(3).integers(1, 7, len(v))
    whole = ground(v, w, image=image, lengths=lengths, regions_each=regions_each)
    shuffled = np.random.default_rng(4).permutation(len(w))
    for block in (1, 500, 5_000):
        found = ground(v, w[shuffled], image=image[shuffled], lengths=lengths[shuffled], regions_each=regions_each, block=block)
        np.testing.assert_allclose(found, whole[shuffled], rtol=0, atol=1e-6)
        np.testing.assert_array_equal(np.argsort(found, axis=1), np.argsort(whole[shuffled], axis=1))
    wide = np.full((len(w), 9, 16), np.nan, dtype=np.float32)
    wide[:, :5] = w
    np.testing.assert_allclose(ground(v, wide, image=image, lengths=lengths, regions_each=regions_each), whole, rtol=0, atol=1e-6)
    alone = [
        ground(v[i : i + 1], w[n : n + 1], lengths=lengths[n : n + 1], regions_each=regions_each[i : i + 1])[0]
        for n, i in enumerate(image)
    ]
    np.testing.assert_allclose(alone, whole, rtol=0, atol=1e-6)


def crowded(rng):
    """Every region has neighbours that differ from it by a few roundings of float32."""
    v = np.repeat(rng.standard_normal((100, 12, 64)) + 1, 3, axis=1)
    return v * (1 + 3e-7 * rng.standard_normal(v.shape)), rng.standard_normal((100, 8, 64)) + 1


def opposed(rng):
    """The words nearly cancel out: what is left of them is less than a thousandth."""
    v, w = rng.standard_normal((100, 12, 64)) + 1, rng.standard_normal((100, 1, 64)) + 1
    return v, np.concatenate([w, w * -0.9995], axis=1)


def apart(rng):
    """The words are at right angles to the regions but for a millionth."""
    v, w = np.zeros((100, 12, 64)), np.zeros((100, 5, 64))
    v[..., :32], w[..., 32:] = rng.standard_normal((100, 12, 32)), rng.standard_normal((100, 5, 32))
    w[..., :32] = 1e-6 * rng.standard_normal((100, 5, 32))
    w[:, 0] = rng.standard_normal((100, 64))
    turn = np.linalg.qr(rng.standard_normal((64, 64)))[0]
    return v @ turn, w @ turn


@pytest.mark.parametrize("hard", [crowded, opposed, apart])
@pytest.mark.parametrize(("smoothing", "leak"), [(0.0, 0.0), (4.0, 0.0), (SMOOTHING, RELEASED_LEAK)])
def test_float32_ranks_regions_as_float64_does(hard, smoothing, leak):
    v, w = (side.astype(np.float32) for side in hard(np.random.default_rng(5)))
    narrow = ground(v, w, smoothing=smoothing, leak=leak)
    wide = ground(v.astype(np.float64), w.astype(np.float64), smoothing=smoothing, leak=leak)
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(np.argsort(narrow, axis=1), np.argsort(wide, axis=1))


def test_without_control_over_the_threads_of_blas_it_is_the_same(monkeypatch):
    v, w, image = drawn(30, 3)
    expected = ground(v, w, image=image, block=500)
    monkeypatch.setattr(attention, "blas_threads", lambda: None)
    np.testing.assert_allclose(ground(v, w, image=image, block=500), expected, rtol=0, atol=1e-6)


def test_half_precision_is_read_too():
    v, w, _ = drawn(2, 1)
    found = ground(v.astype(np.float16), w.astype(np.float16))
    np.testing.assert_allclose(
        found, ground(v.astype(np.float16).astype(float), w.astype(np.float16).astype(float)), rtol=0, atol=1e-6
    )


def test_what_is_given_stays_as_it_was():
    v, w, _ = drawn(3, 1)
    before = v.copy(), w.copy()
    ground(v, w, lengths=[0, 2, 5])
    np.testing.assert_array_equal(v, before[0])
    np.testing.assert_array_equal(w, before[1])


def test_an_image_without_captions_and_no_captions_at_all():
    v, w, _ = drawn(3, 1)
    np.testing.assert_array_equal(ground(v, w[:1], image=[2]), ground(v[2:], w[:1]))
    assert ground(v, w[:0], image=[]).shape == (0, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": np.zeros((2, 5, 7))}, "were expected. Pad what is shorter"),
        ({"words": np.zeros((3, 5, 16))}, "3 captions and 2 images do not belong together"),
        ({"image": [0, 2]}, "do not belong together"),
        ({"image": [0]}, "do not belong together"),
        ({"lengths": [1, 6]}, "2 numbers from 0 to 5"),
        ({"regions_each": [0, 6]}, "An image needs a region"),
        ({"smoothing": -1.0}, "smoothing -1.0"),
        ({"leak": 1.0}, "leak 1.0"),
        ({"words": np.zeros((2, 5, 16), dtype=np.int64)}, "int64"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    v, w, _ = drawn(2, 1)
    with pytest.raises(CrossmatchError, match=message):
        ground(**({"regions": v, "words": w} | change))


@FLOATS
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(dtype, bad):
    v, w, _ = drawn(3, 1, dtype=dtype)
    v[1, 2, 3] = bad
    with pytest.raises(CrossmatchError, match="regions of image 1 have vectors with NaN or infinity"):
        ground(v, w)
    v, w, _ = drawn(3, 1, dtype=dtype)
    w[2, 0, 0] = bad
    with pytest.raises(CrossmatchError, match="words of caption 2 have"):
        ground(v, w)
    assert np.isfinite(ground(v, w, lengths=[5, 5, 0])).all()  # it is padding now
