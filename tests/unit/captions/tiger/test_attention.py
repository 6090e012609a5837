"""Grounding of special cases and its numerics: zero, huge and tiny vectors, blocks, order, ties."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.captions.tiger import attention
from crossmatch.captions.tiger.attention import RELEASED_LEAK, SMOOTHING, ground_captions
from crossmatch.data.errors import CrossmatchError

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
    scores = ground_captions(v, w)
    assert scores[0, 2] == 0
    assert (np.delete(scores[0], 2) != 0).all()
    v[:] = 0
    assert (ground_captions(v, w) == 0).all()


@FLOATS
def test_zero_region_does_not_change_other_regions(dtype):
    v, w, _ = drawn(1, 1, dtype=dtype)
    v[0, -1] = 0
    np.testing.assert_allclose(
        ground_captions(v, w)[:, :-1], ground_captions(v[:, :-1], w), rtol=0, atol=1e-6 if dtype == np.float32 else 1e-12
    )


@FLOATS
@pytest.mark.parametrize("leak", [0.0, 0.1])
def test_zero_word_vectors_give_zero_scores(dtype, leak):
    v, w, _ = drawn(2, 1, dtype=dtype)
    w[0] = 0
    scores = ground_captions(v, w, leak=leak)
    assert (scores[0] == 0).all()
    assert (scores[1] != 0).all()


@FLOATS
def test_zero_word_vector_takes_weight_but_no_direction(dtype):
    v, w, _ = drawn(1, 1, words=1, dtype=dtype)
    with_unknown = np.concatenate([w, np.zeros_like(w)], axis=1)
    np.testing.assert_allclose(
        ground_captions(v, with_unknown), ground_captions(v, w), rtol=0, atol=1e-6 if dtype == np.float32 else 1e-12
    )


@FLOATS
def test_empty_caption_has_zero_scores(dtype):
    v, w, _ = drawn(2, 1, dtype=dtype)
    scores = ground_captions(v, w, lengths=[0, 5])
    assert (scores[0] == 0).all()
    assert (scores[1] != 0).all()
    assert (ground_captions(v, w[:, :0]) == 0).all()


@FLOATS
def test_one_region_gives_the_cosine(dtype):
    v, w, _ = drawn(1, 1, regions=1, words=1, dtype=dtype)
    cosine = (v[0, 0] @ w[0, 0]) / np.linalg.norm(v[0, 0]) / np.linalg.norm(w[0, 0])
    assert ground_captions(v, w)[0, 0] == pytest.approx(float(cosine), abs=1e-6)


@FLOATS
def test_equal_regions_have_equal_scores(dtype):
    v, w, _ = drawn(1, 1, regions=1, d=33, dtype=dtype)
    scores = ground_captions(np.repeat(v, 7, axis=1), w)
    assert len(np.unique(scores)) == 1
    mixed = np.concatenate([v, -v, v, v], axis=1)
    assert len(np.unique(ground_captions(mixed, w)[0, [0, 2, 3]])) == 1


def test_repeated_words_count_as_one():
    v, w, _ = drawn(1, 1, words=1, dtype=np.float64)
    np.testing.assert_allclose(ground_captions(v, np.repeat(w, 5, axis=1)), ground_captions(v, w), rtol=0, atol=1e-12)


@FLOATS
def test_words_that_cancel_out_give_zero_scores(dtype):
    v = np.zeros((1, 2, 3), dtype=dtype)
    v[0, :, 0] = 1
    w = np.array([[[0, 1, 0.3], [0, -1, -0.3]]], dtype=dtype)  # at right angles to both regions, and opposite
    assert (ground_captions(v, w) == 0).all()


def test_rounding_does_not_weight_orthogonal_words():
    """The division in eq. 3 would amplify cosines of 1e-17."""
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.standard_normal((64, 64)))[0]
    v, near, far = basis[None, :8], basis[:8].sum(axis=0), basis[20] * 2
    scores = ground_captions(v, np.stack([near, far])[None], smoothing=4.0)
    share = np.exp(4 / np.sqrt(8)) / (np.exp(4 / np.sqrt(8)) + 1)  # of the near word; the far one has similarity 0
    expected = share / np.sqrt((share**2) * 8 + ((1 - share) * 2) ** 2)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
@FLOATS
def test_scale_of_vectors_does_not_matter(scale, dtype):
    v, w, _ = drawn(3, 1, dtype=dtype)
    scale = dtype(scale if dtype == np.float32 else scale**8)
    expected = ground_captions(v, w)
    np.testing.assert_allclose(ground_captions(v * scale, w), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ground_captions(v, w * scale), expected, rtol=0, atol=1e-6)


def test_batch_order_and_padding_do_not_matter():
    v, w, image = drawn(30, 3)
    lengths = np.random.default_rng(2).integers(0, 6, len(w))
    regions_per_image = np.random.default_rng(3).integers(1, 7, len(v))
    expected = ground_captions(v, w, image=image, lengths=lengths, regions_per_image=regions_per_image)
    shuffled = np.random.default_rng(4).permutation(len(w))
    for block in (1, 500, 5_000):
        scores = ground_captions(
            v, w[shuffled], image=image[shuffled], lengths=lengths[shuffled], regions_per_image=regions_per_image, block=block
        )
        np.testing.assert_allclose(scores, expected[shuffled], rtol=0, atol=1e-6)
        np.testing.assert_array_equal(np.argsort(scores, axis=1), np.argsort(expected[shuffled], axis=1))
    wide = np.full((len(w), 9, 16), np.nan, dtype=np.float32)
    wide[:, :5] = w
    np.testing.assert_allclose(
        ground_captions(v, wide, image=image, lengths=lengths, regions_per_image=regions_per_image), expected, rtol=0, atol=1e-6
    )
    alone = [
        ground_captions(v[i : i + 1], w[n : n + 1], lengths=lengths[n : n + 1], regions_per_image=regions_per_image[i : i + 1])[0]
        for n, i in enumerate(image)
    ]
    np.testing.assert_allclose(alone, expected, rtol=0, atol=1e-6)


def crowded(rng):
    """Every region has neighbours that differ from it by a few roundings of float32."""
    v = np.repeat(rng.standard_normal((100, 12, 64)) + 1, 3, axis=1)
    return v * (1 + 3e-7 * rng.standard_normal(v.shape)), rng.standard_normal((100, 8, 64)) + 1


def opposed(rng):
    """The words nearly cancel out: what is left of them is less than a thousandth."""
    v, w = rng.standard_normal((100, 12, 64)) + 1, rng.standard_normal((100, 1, 64)) + 1
    return v, np.concatenate([w, w * -0.9995], axis=1)


def apart(rng):
    """The words are orthogonal to the regions up to a millionth."""
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
    narrow = ground_captions(v, w, smoothing=smoothing, leak=leak)
    wide = ground_captions(v.astype(np.float64), w.astype(np.float64), smoothing=smoothing, leak=leak)
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=2e-6)
    np.testing.assert_array_equal(np.argsort(narrow, axis=1), np.argsort(wide, axis=1))


def test_blas_threads_do_not_matter(monkeypatch):
    v, w, image = drawn(30, 3)
    expected = ground_captions(v, w, image=image, block=500)
    monkeypatch.setattr(attention, "blas_thread_controller", lambda: None)
    np.testing.assert_allclose(ground_captions(v, w, image=image, block=500), expected, rtol=0, atol=1e-6)


def test_half_precision_is_accepted():
    v, w, _ = drawn(2, 1)
    scores = ground_captions(v.astype(np.float16), w.astype(np.float16))
    np.testing.assert_allclose(
        scores, ground_captions(v.astype(np.float16).astype(float), w.astype(np.float16).astype(float)), rtol=0, atol=1e-6
    )


def test_inputs_are_not_modified():
    v, w, _ = drawn(3, 1)
    before = v.copy(), w.copy()
    ground_captions(v, w, lengths=[0, 2, 5])
    np.testing.assert_array_equal(v, before[0])
    np.testing.assert_array_equal(w, before[1])


def test_images_without_captions():
    v, w, _ = drawn(3, 1)
    np.testing.assert_array_equal(ground_captions(v, w[:1], image=[2]), ground_captions(v[2:], w[:1]))
    assert ground_captions(v, w[:0], image=[]).shape == (0, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"words": np.zeros((2, 5, 7))}, "Pad shorter rows"),
        ({"words": np.zeros((3, 5, 16))}, "Cannot assign 3 captions to 2 images"),
        ({"image": [0, 2]}, "Cannot assign"),
        ({"image": [0]}, "Cannot assign"),
        ({"lengths": [1, 6]}, "2 numbers of words from 0 to 5"),
        ({"regions_per_image": [0, 6]}, "numbers of regions from 1 to 6"),
        ({"smoothing": -1.0}, "got -1.0 and"),
        ({"leak": 1.0}, "and 1.0"),
        ({"words": np.zeros((2, 5, 16), dtype=np.int64)}, "int64"),
    ],
)
def test_mismatched_arrays_are_refused(change, message):
    v, w, _ = drawn(2, 1)
    with pytest.raises(CrossmatchError, match=message):
        ground_captions(**({"regions": v, "words": w} | change))


@FLOATS
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_vectors_are_refused(dtype, bad):
    v, w, _ = drawn(3, 1, dtype=dtype)
    v[1, 2, 3] = bad
    with pytest.raises(CrossmatchError, match="regions of image 1 have vectors with NaN or infinity"):
        ground_captions(v, w)
    v, w, _ = drawn(3, 1, dtype=dtype)
    w[2, 0, 0] = bad
    with pytest.raises(CrossmatchError, match="words of caption 2 have"):
        ground_captions(v, w)
    assert np.isfinite(ground_captions(v, w, lengths=[5, 5, 0])).all()  # it is padding now
