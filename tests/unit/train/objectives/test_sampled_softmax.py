"""The in-batch sampled softmax of CxC against loops written from its two equations."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crossmatch.data.errors import UsageError

torch = pytest.importorskip("torch")
from crossmatch.train.data.training_set import TrainingBatch
from crossmatch.train.objectives import SampledSoftmaxOptions, parse_objective
from crossmatch.train.objectives.sampled_softmax import bidirectional, sampled_softmax


def equation_1(left, right):
    """Term by term as printed: two sums over i, each with its own sum over the j that are not i."""
    k = len(left)

    def s(x, y):
        return sum(a * b for a, b in zip(x, y, strict=True))

    total = 0.0
    for i in range(k):
        total -= s(left[i], right[i]) - math.log(sum(math.exp(s(left[i], right[j])) for j in range(k) if j != i))
    for i in range(k):
        total -= s(right[i], left[i]) - math.log(sum(math.exp(s(right[i], left[j])) for j in range(k) if j != i))
    return total / k


vectors = st.tuples(st.integers(2, 6), st.integers(1, 4)).flatmap(
    lambda shape: st.tuples(*(arrays("float64", shape, elements=st.floats(-3, 3)) for _ in range(2)))
)


@given(vectors)
def test_bidirectional_equals_equation_1(both):
    left, right = (torch.from_numpy(values) for values in both)
    assert float(bidirectional(left @ right.T)) == pytest.approx(equation_1(left.tolist(), right.tolist()), abs=1e-9)


def test_pair_itself_is_not_in_the_denominator():
    scores = torch.tensor([[5.0, 1.0], [2.0, 7.0]], dtype=torch.float64)
    # with two pairs each sum over j has one term, and the logarithm undoes its exponential
    assert float(bidirectional(scores)) == pytest.approx((-5 + 1 - 7 + 2) / 2 + (-5 + 2 - 7 + 1) / 2)
    better = scores + 10 * torch.eye(2, dtype=torch.float64)
    assert float(bidirectional(better)) == pytest.approx(float(bidirectional(scores)) - 20)  # it does not saturate


def test_large_scores_do_not_overflow():
    assert torch.isfinite(bidirectional(torch.tensor([[500.0, 400.0], [300.0, 600.0]])))


NET = SimpleNamespace(images=lambda x: 2 * x, texts=lambda x: 3 * x, similarity=lambda x, y: x @ y.T)


@pytest.fixture
def batch():
    seed = torch.Generator().manual_seed(1)
    regions, words, others = torch.randn(3, 4, 5, generator=seed, dtype=torch.float64)
    return TrainingBatch(regions, words, torch.arange(4), others)


def test_equation_2_adds_the_tasks(batch):
    images, texts, others = (
        (factor * values).tolist() for factor, values in zip((2, 3, 3), (batch.regions, batch.words, batch.others), strict=True)
    )
    i2t, t2t = equation_1(images, texts), equation_1(texts, others)
    assert float(sampled_softmax(NET, batch, 1.0, SampledSoftmaxOptions(task="i2t"))) == pytest.approx(i2t)
    assert float(sampled_softmax(NET, batch, 1.0, SampledSoftmaxOptions(task="t2t"))) == pytest.approx(t2t)
    assert float(sampled_softmax(NET, batch, 1.0, SampledSoftmaxOptions(task="t2t+i2t"))) == pytest.approx(i2t + t2t)
    assert float(sampled_softmax(NET, batch, 1.0, SampledSoftmaxOptions(task="t2t+i2t", weight=0.25))) == pytest.approx(
        i2t + 0.25 * t2t
    )


def test_t2t_needs_no_images(batch):
    blind = SimpleNamespace(texts=NET.texts, similarity=NET.similarity)
    assert torch.isfinite(sampled_softmax(blind, batch, 1.0, SampledSoftmaxOptions(task="t2t")))


def test_invalid_tasks_and_batches_are_refused(batch):
    with pytest.raises(UsageError, match=r"mine: \[objective\] has task = \"i2i\"; expected one of i2t, t2t, t2t\+i2t"):
        parse_objective({"name": "sampled-softmax", "task": "i2i"}, "mine")
    with pytest.raises(UsageError, match='weight = 0.5, which has no effect with task = "t2t"'):
        parse_objective({"name": "sampled-softmax", "task": "t2t", "weight": 0.5}, "mine")
    with pytest.raises(UsageError, match='pairs = "captions"'):
        sampled_softmax(NET, TrainingBatch(batch.regions, batch.words, batch.image), 1.0, SampledSoftmaxOptions(task="t2t+i2t"))
    with pytest.raises(UsageError, match="no negatives"):
        sampled_softmax(NET, TrainingBatch(batch.regions[:1], batch.words[:1], batch.image[:1]), 1.0, SampledSoftmaxOptions())
