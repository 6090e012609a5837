"""SCAN's similarity against the equations as loops: image by image, text by text, region by region, word by word."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError, WrongWords

torch = pytest.importorskip("torch")

from crossmatch.models.zoo import cross_attention  # noqa: E402
from crossmatch.models.zoo.cross_attention import (  # noqa: E402
    AGGREGATIONS,
    DIRECTIONS,
    TINY,
    Attention,
    grounded,
    paired,
    similarity,
)
from crossmatch.models.zoo.parts import unit  # noqa: E402

EVERY = [Attention(d, a, leak=leak) for d, a, leak in product(DIRECTIONS, AGGREGATIONS, (0.0, 0.1))]
BOTH = [False, True]


def needs_numba(compiled):
    if compiled:
        pytest.importorskip("numba")


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def attend(queries, sources, attention):
    """R of each query: lee2018scan, eq. 1 to 4, one number after the other."""
    clipped = [[max(dot(q, s), attention.leak * dot(q, s)) for s in sources] for q in queries]
    length = [max(math.sqrt(sum(row[s] ** 2 for row in clipped)), TINY) for s in range(len(sources))]
    found = []
    for query, row in zip(queries, clipped, strict=True):
        powers = [math.exp(attention.temperature * (row[s] / length[s])) for s in range(len(sources))]
        context = [sum(p / sum(powers) * source[d] for p, source in zip(powers, sources, strict=True)) for d in range(len(query))]
        found.append(dot(query, context) / max(math.sqrt(dot(context, context)), TINY))
    return found


def by_loops(regions, region_real, words, word_real, attention):
    out = np.zeros((len(regions), len(words)))
    for i, t in np.ndindex(out.shape):
        seen = regions[i][region_real[i]].double().tolist()
        said = words[t][word_real[t]].double().tolist()
        if not seen or not said:
            continue
        cosines = attend(said, seen, attention) if attention.direction == "t2i" else attend(seen, said, attention)
        out[i, t] = {
            "mean": lambda r: sum(r) / len(r),
            "sum": sum,
            "max": max,
            "lse": lambda r: math.log(sum(math.exp(attention.sharpness * x) for x in r)) / attention.sharpness,
        }[attention.aggregation](cosines)
    return out


def sets(number, most, dimensions, seed, common=0.3, always=True):
    """Unit vectors with something in common, so that most cosines are positive; which are there is a matter of chance."""
    rng = torch.Generator().manual_seed(seed)
    vectors = unit(torch.randn(number, most, dimensions, generator=rng) + common)
    real = torch.rand(number, most, generator=rng) < 0.7
    if always:
        real[:, 0] = True
    return vectors, real


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize("attention", EVERY, ids=str)
def test_every_direction_and_aggregation_agrees_with_the_loops(attention, compiled):
    needs_numba(compiled)
    images, texts = sets(4, 5, 6, seed=1), sets(3, 7, 6, seed=2)
    found = similarity(*images, *texts, attention, compiled=compiled)
    np.testing.assert_allclose(found, by_loops(*images, *texts, attention), atol=1e-5)


@pytest.mark.parametrize("compiled", BOTH)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_shape_and_mask_agrees_with_the_loops(compiled, data):
    needs_numba(compiled)
    small = st.integers(1, 5)
    shape = [data.draw(small) for _ in range(5)]
    attention = Attention(
        data.draw(st.sampled_from(DIRECTIONS)),
        data.draw(st.sampled_from(AGGREGATIONS)),
        data.draw(st.floats(0, 25)),
        data.draw(st.floats(0.5, 20)),
        data.draw(st.sampled_from([0.0, 0.1, 0.5])),
    )
    common = data.draw(st.sampled_from([0.0, 1.0, -1.0]))  # as they come, all alike, or images and texts opposite
    always = data.draw(st.booleans())  # or perhaps an image without regions, or a text without words
    images = sets(shape[0], shape[1], shape[2] + 1, data.draw(st.integers(0, 999)), abs(common), always)
    texts = sets(shape[3], shape[4], shape[2] + 1, data.draw(st.integers(0, 999)), common, always)
    block = data.draw(st.sampled_from([1, 300, 1 << 20]))
    found = similarity(*images, *texts, attention, block=block, compiled=compiled)
    np.testing.assert_allclose(found, by_loops(*images, *texts, attention), atol=1e-5 * max(1, shape[1], shape[4]))


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize("attention", EVERY, ids=str)
def test_one_region_one_word_repeated_words_and_nothing_alike(attention, compiled):
    needs_numba(compiled)
    axes = torch.eye(4)
    dog, cat, sky, _ = axes
    images = torch.stack([torch.stack([dog, sky, -cat]), torch.stack([dog, dog, dog])])
    seen = torch.tensor([[True, True, True], [True, False, False]])
    texts = torch.stack([torch.stack([dog, dog, sky]), torch.stack([cat, cat, cat]), torch.stack([-dog, -sky, -sky])])
    said = torch.tensor([[True, True, True], [True, False, False], [True, True, True]])
    found = similarity(images, seen, texts, said, attention, compiled=compiled)
    assert torch.isfinite(found).all()
    np.testing.assert_allclose(found, by_loops(images, seen, texts, said, attention), atol=1e-5)


def test_where_nothing_is_positive_a_query_attends_to_all_alike():
    regions = unit(torch.tensor([[[1.0, 0.0], [1.0, 1.0]]]))
    word = torch.tensor([[[-1.0, 0.0]]])
    there = torch.ones(1, 2, dtype=torch.bool)
    middle = unit(regions.mean(dim=1))
    found = similarity(regions, there, word, there[:, :1], Attention("t2i"))
    assert found.item() == pytest.approx(float(word[0, 0] @ middle[0]), abs=1e-6)


@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize("attention", EVERY[::3], ids=str)
def test_filling_company_and_blocks_change_nothing(attention, compiled):
    needs_numba(compiled)
    images, texts = sets(5, 4, 8, seed=3), sets(6, 5, 8, seed=4)
    whole = similarity(*images, *texts, attention, compiled=compiled)
    for block in (1, 500, 2000):
        np.testing.assert_allclose(similarity(*images, *texts, attention, block=block, compiled=compiled), whole, atol=1e-6)
    alone = similarity(images[0][2:3], images[1][2:3], texts[0][1:2], texts[1][1:2], attention, compiled=compiled)
    np.testing.assert_allclose(alone, whole[2:3, 1:2], atol=1e-6)
    longer = [
        (torch.cat([v, torch.full((len(v), 3, 8), 9.0)], dim=1), torch.nn.functional.pad(r, (0, 3))) for v, r in (images, texts)
    ]
    np.testing.assert_allclose(similarity(*longer[0], *longer[1], attention, compiled=compiled), whole, atol=1e-6)


@pytest.mark.parametrize("attention", EVERY[::3], ids=str)
def test_pairs_are_the_diagonal(attention):
    images, texts = sets(5, 4, 8, seed=5, always=False), sets(5, 6, 8, seed=6, always=False)
    np.testing.assert_allclose(paired(*images, *texts, attention), similarity(*images, *texts, attention).diagonal(), atol=1e-6)


@pytest.mark.parametrize("attention", [Attention("t2i", temperature=5.0), Attention("i2t", leak=0.1)], ids=str)
def test_grounding_is_the_cosine_of_each_region_with_its_sentence(attention):
    images, texts = sets(3, 4, 8, seed=7), sets(3, 5, 8, seed=8)
    found = grounded(*images, *texts, attention)
    for n in range(3):
        there = images[1][n]
        slow = attend(images[0][n][there].double().tolist(), texts[0][n][texts[1][n]].double().tolist(), attention)
        np.testing.assert_allclose(found[n][there], slow, atol=1e-5)
        assert (found[n][~there] == 0).all()


# -- gradients


def gradients(attention, pick, block, images, texts):
    """Those of the picked scores, squared: by blocks that are made again, and by one graph over all pairs."""
    (v, seen), (w, said) = images, texts
    rows, columns = torch.cartesian_prod(torch.arange(len(v)), torch.arange(len(w))).unbind(dim=1)
    out = []
    for ours in (True, False):
        x, y = (side.double().clone().requires_grad_() for side in (v, w))
        if ours:
            scores = similarity(x, seen, y, said, attention, block=block)
        else:
            scores = paired(x[rows], seen[rows], y[columns], said[columns], attention).view(len(v), len(w))
        pick(scores).square().sum().backward()
        out.append((x.grad, y.grad))
    return out


@pytest.mark.parametrize("attention", EVERY, ids=str)
@pytest.mark.parametrize("pick", [lambda s: s, lambda s: s[[0, 2, 2], [1, 3, 0]]], ids=["all", "few"])
def test_the_gradient_is_that_of_the_plain_graph(attention, pick):
    images, texts = sets(5, 3, 6, seed=9), sets(6, 4, 6, seed=10)
    for block in (1, 4000, 1 << 24):
        (v, w), (slow_v, slow_w) = gradients(attention, pick, block, images, texts)
        assert v.abs().sum() > 0
        torch.testing.assert_close(v, slow_v)
        torch.testing.assert_close(w, slow_w)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_gradient_of_the_compiled_way_is_that_of_the_other(direction):
    pytest.importorskip("numba")
    images, texts = sets(4, 3, 6, seed=17), sets(5, 4, 6, seed=18)
    found = []
    for compiled in BOTH:
        v = images[0].clone().requires_grad_()
        similarity(v, images[1], *texts, Attention(direction), compiled=compiled).square().sum().backward()
        found.append(v.grad)
    assert found[0].abs().sum() > 0
    torch.testing.assert_close(*found)


def test_the_gradient_is_that_of_small_differences():
    images, texts = sets(2, 2, 3, seed=11), sets(2, 2, 3, seed=12)
    inputs = [x.double().requires_grad_() for x in (images[0], texts[0])]
    for attention in (Attention("t2i"), Attention("i2t", "lse", temperature=4.0, leak=0.1)):
        assert torch.autograd.gradcheck(lambda v, w, a=attention: similarity(v, images[1], w, texts[1], a), inputs, fast_mode=True)


def test_a_zero_vector_leaves_no_nan_in_the_gradient():
    v, w = torch.zeros(1, 2, 3, requires_grad=True), torch.zeros(1, 2, 3, requires_grad=True)
    there = torch.ones(1, 2, dtype=torch.bool)
    for direction in DIRECTIONS:
        found = similarity(v, there, w, there, Attention(direction))
        found.sum().backward()
        assert found.item() == 0
        assert torch.isfinite(v.grad).all()
        assert torch.isfinite(w.grad).all()


def test_without_images_or_texts_and_without_a_gradient():
    images, texts = sets(3, 2, 4, seed=15), sets(2, 3, 4, seed=16)
    none = images[0][:0], images[1][:0]
    for attention in (Attention("t2i"), Attention("i2t", "lse")):
        assert similarity(*none, *texts, attention).shape == (0, 2)
        assert similarity(*texts, *none, attention).shape == (2, 0)
        v = images[0].clone().requires_grad_()
        (similarity(v, images[1], *texts, attention) * 0).sum().backward()  # as where every margin is kept
        assert v.grad.shape == v.shape
        assert not v.grad.any()


# -- which way, and what is refused


def test_much_work_is_compiled_and_steep_or_exact_work_is_not(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(cross_attention, "MANY", 10)
    v = torch.zeros(2, 2, 3)
    chosen = lambda x, **more: cross_attention._loops(x, x, Attention(**more), None)  # noqa: E731
    assert chosen(v) is not None
    assert chosen(v.double()) is None
    assert chosen(v, temperature=31.0) is None
    with pytest.raises(CrossmatchError, match="the compiled path needs"):
        cross_attention._loops(v.double(), v.double(), Attention(), True)


def test_a_very_steep_attention_is_the_maximum():
    images, texts = sets(2, 4, 6, seed=13), sets(2, 3, 6, seed=14)
    found = similarity(*images, *texts, Attention("t2i", temperature=80.0))
    np.testing.assert_allclose(found, by_loops(*images, *texts, Attention("t2i", temperature=80.0)), atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"direction": "x2t"}, "one of t2i, i2t was expected"),
        ({"aggregation": "median"}, "one of mean, sum, max, lse was expected"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"sharpness": 0.0}, "sharpness 0.0"),
        ({"leak": 1.0}, "leak 1.0"),
    ],
)
def test_wrong_settings_are_refused(wrong, said):
    with pytest.raises(WrongWords, match=said):
        Attention(**wrong)
