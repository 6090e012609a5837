"""SCAN's similarity against loops over images, texts, regions and words."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError

torch = pytest.importorskip("torch")

from crossmatch.models.zoo import cross_attention
from crossmatch.models.zoo.cross_attention import (
    AGGREGATIONS,
    TINY,
    AttentionOptions,
    pair_similarity,
    region_grounding,
    similarity,
)
from crossmatch.models.zoo.layers import normalize
from grounding_equations import ground_by_loops

DIRECTIONS = ("t2i", "i2t")
EVERY = [AttentionOptions(d, a, leak=leak) for d, a, leak in product(DIRECTIONS, AGGREGATIONS, (0.0, 0.1))]
BOTH = [False, True]


def needs_numba(compiled):
    if compiled:
        pytest.importorskip("numba")


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def attended_vectors(queries, sources, attention):
    """a of each query: lee2018scan, eq. 1 to 3, one number at a time."""
    clipped = [[max(dot(q, s), attention.leak * dot(q, s)) for s in sources] for q in queries]
    length = [max(math.sqrt(sum(row[s] ** 2 for row in clipped)), TINY) for s in range(len(sources))]
    vectors = []
    for query, row in zip(queries, clipped, strict=True):
        powers = [math.exp(attention.temperature * (row[s] / length[s])) for s in range(len(sources))]
        vectors.append(
            [sum(p / sum(powers) * source[d] for p, source in zip(powers, sources, strict=True)) for d in range(len(query))]
        )
    return vectors


def attended_cosines(queries, sources, attention):
    """R of each query: eq. 4."""
    vectors = attended_vectors(queries, sources, attention)
    return [dot(q, vector) / max(math.sqrt(dot(vector, vector)), TINY) for q, vector in zip(queries, vectors, strict=True)]


def sides(regions, words, attention):
    """Queries and sources."""
    return (words, regions) if attention.direction == "t2i" else (regions, words)


def shortest_attended_vector(all_regions, region_mask, all_words, word_mask, attention):
    """The smallest length of an attended vector; infinite if there is none."""
    lengths = [math.inf]
    for i, t in np.ndindex(len(all_regions), len(all_words)):
        regions, words = all_regions[i][region_mask[i]].double().tolist(), all_words[t][word_mask[t]].double().tolist()
        if regions and words:
            lengths += [math.hypot(*vector) for vector in attended_vectors(*sides(regions, words, attention), attention)]
    return min(lengths)


def scores_by_loops(all_regions, region_mask, all_words, word_mask, attention):
    out = np.zeros((len(all_regions), len(all_words)))
    for i, t in np.ndindex(out.shape):
        regions = all_regions[i][region_mask[i]].double().tolist()
        words = all_words[t][word_mask[t]].double().tolist()
        if not regions or not words:
            continue
        cosines = attended_cosines(*sides(regions, words, attention), attention)
        out[i, t] = {
            "mean": lambda r: sum(r) / len(r),
            "sum": sum,
            "max": max,
            "lse": lambda r: math.log(sum(math.exp(attention.sharpness * x) for x in r)) / attention.sharpness,
        }[attention.aggregation](cosines)
    return out


def random_sets(number, most, dimensions, seed, common=0.3, never_empty=True):
    """Sets of unit vectors and their mask; `common` is added to each vector, so that most cosines are positive."""
    rng = torch.Generator().manual_seed(seed)
    vectors = normalize(torch.randn(number, most, dimensions, generator=rng) + common)
    mask = torch.rand(number, most, generator=rng) < 0.7
    if never_empty:
        mask[:, 0] = True
    return vectors, mask


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize("attention", EVERY, ids=str)
def test_every_direction_and_aggregation_equals_loops(attention, compiled):
    needs_numba(compiled)
    images, texts = random_sets(4, 5, 6, seed=1), random_sets(3, 7, 6, seed=2)
    scores = similarity(*images, *texts, attention, compiled=compiled)
    np.testing.assert_allclose(scores, scores_by_loops(*images, *texts, attention), atol=1e-5)


@pytest.mark.parametrize("compiled", BOTH)
@given(data=st.data())
def test_any_shape_and_mask_equals_loops(compiled, data):
    needs_numba(compiled)
    small = st.integers(1, 5)
    shape = [data.draw(small) for _ in range(5)]
    attention = AttentionOptions(
        data.draw(st.sampled_from(DIRECTIONS)),
        data.draw(st.sampled_from(AGGREGATIONS)),
        data.draw(st.floats(0, 25)),
        data.draw(st.floats(0.5, 20)),
        data.draw(st.sampled_from([0.0, 0.1, 0.5])),
    )
    common = data.draw(st.sampled_from([0.0, 1.0, -1.0]))  # random, similar, or images opposite to texts
    never_empty = data.draw(st.booleans())  # or some images have no regions, and some texts no words
    images = random_sets(shape[0], shape[1], shape[2] + 1, data.draw(st.integers(0, 999)), abs(common), never_empty)
    texts = random_sets(shape[3], shape[4], shape[2] + 1, data.draw(st.integers(0, 999)), common, never_empty)
    # Vectors that almost cancel have no direction in float32: an error of 1e-7 over a length of 0.03 is within the tolerance.
    assume(shortest_attended_vector(*images, *texts, attention) > 0.03)
    block = data.draw(st.sampled_from([1, 300, 1 << 20]))
    scores = similarity(*images, *texts, attention, block=block, compiled=compiled)
    np.testing.assert_allclose(scores, scores_by_loops(*images, *texts, attention), atol=1e-5 * max(1, shape[1], shape[4]))


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize("attention", EVERY, ids=str)
def test_single_repeated_and_dissimilar_parts_equal_loops(attention, compiled):
    needs_numba(compiled)
    dog, cat, sky, _ = torch.eye(4)
    images = torch.stack([torch.stack([dog, sky, -cat]), torch.stack([dog, dog, dog])])
    region_mask = torch.tensor([[True, True, True], [True, False, False]])
    texts = torch.stack([torch.stack([dog, dog, sky]), torch.stack([cat, cat, cat]), torch.stack([-dog, -sky, -sky])])
    word_mask = torch.tensor([[True, True, True], [True, False, False], [True, True, True]])
    scores = similarity(images, region_mask, texts, word_mask, attention, compiled=compiled)
    assert torch.isfinite(scores).all()
    np.testing.assert_allclose(scores, scores_by_loops(images, region_mask, texts, word_mask, attention), atol=1e-5)


def test_query_without_positive_cosine_attends_equally():
    regions = normalize(torch.tensor([[[1.0, 0.0], [1.0, 1.0]]]))
    word = torch.tensor([[[-1.0, 0.0]]])
    mask = torch.ones(1, 2, dtype=torch.bool)
    middle = normalize(regions.mean(dim=1))
    score = similarity(regions, mask, word, mask[:, :1], AttentionOptions("t2i"))
    assert score.item() == pytest.approx(float(word[0, 0] @ middle[0]), abs=1e-6)


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize("attention", EVERY[::3], ids=str)
def test_padding_batch_and_blocks_do_not_change_scores(attention, compiled):
    needs_numba(compiled)
    images, texts = random_sets(5, 4, 8, seed=3), random_sets(6, 5, 8, seed=4)
    whole = similarity(*images, *texts, attention, compiled=compiled)
    for block in (1, 500, 2000):
        np.testing.assert_allclose(similarity(*images, *texts, attention, block=block, compiled=compiled), whole, atol=1e-6)
    alone = similarity(images[0][2:3], images[1][2:3], texts[0][1:2], texts[1][1:2], attention, compiled=compiled)
    np.testing.assert_allclose(alone, whole[2:3, 1:2], atol=1e-6)
    padded = [
        (torch.cat([vectors, torch.full((len(vectors), 3, 8), 9.0)], dim=1), torch.nn.functional.pad(mask, (0, 3)))
        for vectors, mask in (images, texts)
    ]
    np.testing.assert_allclose(similarity(*padded[0], *padded[1], attention, compiled=compiled), whole, atol=1e-6)


@pytest.mark.parametrize("attention", EVERY[::3], ids=str)
def test_pair_scores_are_the_diagonal(attention):
    images, texts = random_sets(5, 4, 8, seed=5, never_empty=False), random_sets(5, 6, 8, seed=6, never_empty=False)
    np.testing.assert_allclose(
        pair_similarity(*images, *texts, attention), similarity(*images, *texts, attention).diagonal(), atol=1e-6
    )


@pytest.mark.parametrize("temperature", [0.0, 5.0, 30.0])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_grounding_equals_tigers_equations_in_both_directions(direction, temperature):
    images, texts = random_sets(3, 4, 8, seed=7, common=0.0), random_sets(3, 5, 8, seed=8, common=0.0)
    grounding = region_grounding(*images, *texts, AttentionOptions(direction, temperature=temperature))
    for n, mask in enumerate(images[1]):
        regions, words = images[0][n][mask].double().tolist(), texts[0][n][texts[1][n]].double().tolist()
        np.testing.assert_allclose(grounding[n][mask], ground_by_loops(regions, words, temperature), atol=2e-5)


@pytest.mark.parametrize("attention", [AttentionOptions("t2i", temperature=5.0), AttentionOptions("i2t", leak=0.1)], ids=str)
def test_grounding_is_the_cosine_of_each_region_with_its_attended_words(attention):
    images, texts = random_sets(3, 4, 8, seed=7), random_sets(3, 5, 8, seed=8)
    grounding = region_grounding(*images, *texts, attention)
    for n in range(3):
        mask = images[1][n]
        regions, words = images[0][n][mask].double().tolist(), texts[0][n][texts[1][n]].double().tolist()
        np.testing.assert_allclose(grounding[n][mask], attended_cosines(regions, words, attention), atol=1e-5)
        assert (grounding[n][~mask] == 0).all()


# -- gradients


def gradients(attention, pick, block, images, texts):
    """Gradients of the sum of the picked scores, squared: by blocks that are recomputed, and by one graph over all pairs."""
    (v, region_mask), (w, word_mask) = images, texts
    rows, columns = torch.cartesian_prod(torch.arange(len(v)), torch.arange(len(w))).unbind(dim=1)
    out = []
    for in_blocks in (True, False):
        x, y = (side.double().clone().requires_grad_() for side in (v, w))
        if in_blocks:
            scores = similarity(x, region_mask, y, word_mask, attention, block=block)
        else:
            pairs = pair_similarity(x[rows], region_mask[rows], y[columns], word_mask[columns], attention)
            scores = pairs.view(len(v), len(w))
        pick(scores).square().sum().backward()
        out.append((x.grad, y.grad))
    return out


@pytest.mark.parametrize("attention", EVERY, ids=str)
@pytest.mark.parametrize("pick", [lambda s: s, lambda s: s[[0, 2, 2], [1, 3, 0]]], ids=["all", "few"])
def test_gradient_is_that_of_one_graph(attention, pick):
    images, texts = random_sets(5, 3, 6, seed=9), random_sets(6, 4, 6, seed=10)
    for block in (1, 4000, 1 << 24):
        (v, w), (expected_v, expected_w) = gradients(attention, pick, block, images, texts)
        assert v.abs().sum() > 0
        torch.testing.assert_close(v, expected_v)
        torch.testing.assert_close(w, expected_w)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_compiled_scores_have_the_gradient_of_torch(direction):
    pytest.importorskip("numba")
    images, texts = random_sets(4, 3, 6, seed=17), random_sets(5, 4, 6, seed=18)
    region_gradients = []
    for compiled in BOTH:
        v = images[0].clone().requires_grad_()
        similarity(v, images[1], *texts, AttentionOptions(direction), compiled=compiled).square().sum().backward()
        region_gradients.append(v.grad)
    assert region_gradients[0].abs().sum() > 0
    torch.testing.assert_close(*region_gradients)


def test_gradient_equals_finite_differences():
    images, texts = random_sets(2, 2, 3, seed=11), random_sets(2, 2, 3, seed=12)
    inputs = [x.double().requires_grad_() for x in (images[0], texts[0])]
    for attention in (AttentionOptions("t2i"), AttentionOptions("i2t", "lse", temperature=4.0, leak=0.1)):
        assert torch.autograd.gradcheck(lambda v, w, a=attention: similarity(v, images[1], w, texts[1], a), inputs, fast_mode=True)


def test_zero_vectors_have_a_finite_gradient():
    v, w = torch.zeros(1, 2, 3, requires_grad=True), torch.zeros(1, 2, 3, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    for direction in DIRECTIONS:
        score = similarity(v, mask, w, mask, AttentionOptions(direction))
        score.sum().backward()
        assert score.item() == 0
        assert torch.isfinite(v.grad).all()
        assert torch.isfinite(w.grad).all()


def test_similarity_accepts_no_images_no_texts_and_a_zero_gradient():
    images, texts = random_sets(3, 2, 4, seed=15), random_sets(2, 3, 4, seed=16)
    no_images = images[0][:0], images[1][:0]
    for attention in (AttentionOptions("t2i"), AttentionOptions("i2t", "lse")):
        assert similarity(*no_images, *texts, attention).shape == (0, 2)
        assert similarity(*texts, *no_images, attention).shape == (2, 0)
        v = images[0].clone().requires_grad_()
        (similarity(v, images[1], *texts, attention) * 0).sum().backward()  # as when no margin is violated
        assert v.grad.shape == v.shape
        assert not v.grad.any()


# -- choice of the kernels


def test_large_inputs_are_compiled_unless_float64_or_very_steep(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(cross_attention, "MIN_COMPILED_DOTS", 10)
    v = torch.zeros(2, 2, 3)

    def choose(x, **options):
        return cross_attention._choose_kernels(x, x, AttentionOptions(**options), None)

    assert choose(v) is not None
    assert choose(v.double()) is None
    assert choose(v, temperature=31.0) is None
    with pytest.raises(CrossmatchError, match="compiled=True needs"):
        cross_attention._choose_kernels(v.double(), v.double(), AttentionOptions(), True)


def test_very_steep_attention_equals_loops():
    images, texts = random_sets(2, 4, 6, seed=13), random_sets(2, 3, 6, seed=14)
    attention = AttentionOptions("t2i", temperature=80.0)
    np.testing.assert_allclose(similarity(*images, *texts, attention), scores_by_loops(*images, *texts, attention), atol=1e-5)
