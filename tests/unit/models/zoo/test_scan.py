"""SCAN as a network: what it makes of regions and words, alone and in company, and that it learns."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from crossmatch.core.errors import WrongWords  # noqa: E402
from crossmatch.models.zoo.inputs import FIRST_WORD, Regions, Vocabulary, Words  # noqa: E402
from crossmatch.models.zoo.scan import SCAN, SCANConfig  # noqa: E402
from crossmatch.train.objectives.triplet import hinge  # noqa: E402

TEXTS = ["a dog", "", "a red cat on a very long and very blue sofa", "cat"]
DIRECTIONS = ["t2i", "i2t"]


def pictures(number, most, features, seed=0):
    rng = torch.Generator().manual_seed(seed)
    real = torch.arange(most) < torch.randint(1, most + 1, (number, 1), generator=rng)
    return Regions(torch.randn(number, most, features, generator=rng) * real.unsqueeze(2), real, torch.zeros(number, most, 4))


def made(direction, **more):
    torch.manual_seed(0)
    return SCAN(SCANConfig(7, len(Vocabulary.of(TEXTS)), direction, dimensions=16, word_dimensions=5, **more)).eval()


def cut(encoded, which):
    return type(encoded)(*(each[which] for each in encoded))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_regions_and_words_are_unit_vectors_and_filling_is_nothing(direction):
    net, regions, words = made(direction), pictures(3, 4, 7), Vocabulary.of(TEXTS).numbered(TEXTS)
    for vectors, real in (net.images(regions), net.texts(words)):
        assert vectors[real].norm(dim=1).tolist() == pytest.approx([1.0] * int(real.sum()), abs=1e-5)
        assert (vectors[~real] == 0).all()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("aggregation", ["mean", "sum", "max", "lse"])
def test_scores_do_not_depend_on_filling_or_company(direction, aggregation):
    net, words = made(direction, aggregation=aggregation), Vocabulary.of(TEXTS)
    regions = pictures(3, 6, 7)
    with torch.inference_mode():
        whole = net.similarity(net.images(regions), net.texts(words.numbered(TEXTS)))
        assert len(whole.unique()) == whole.numel()
        pairs = net.paired(cut(net.images(regions), [0, 1, 2]), cut(net.texts(words.numbered(TEXTS)), [0, 1, 2]))
        torch.testing.assert_close(pairs, whole[:, :3].diagonal(), atol=1e-5, rtol=0)
        for i in range(3):
            few = int(regions.real[i].sum())
            image = Regions(regions.features[i : i + 1, :few], regions.real[i : i + 1, :few], regions.boxes[i : i + 1, :few])
            for t, text in enumerate(TEXTS):
                alone = net.similarity(net.images(image), net.texts(words.numbered([text])))
                torch.testing.assert_close(alone, whole[i : i + 1, t : t + 1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_mean_of_the_grounding_is_the_similarity_of_i2t(direction):
    net, regions = made(direction, temperature=4.0), pictures(4, 5, 7)
    words = Vocabulary.of(TEXTS).numbered(TEXTS)
    with torch.inference_mode():
        found = net.grounded(net.images(regions), net.texts(words))
        i2t = made("i2t", temperature=4.0).paired(net.images(regions), net.texts(words))
    assert found.shape == (4, 5)
    torch.testing.assert_close(found.sum(dim=1) / regions.real.sum(dim=1), i2t, atol=1e-5, rtol=0)


def toy(images=20, kinds=12, features=10, seed=0):
    """Images of some things, each with a text that names them in another order."""
    rng = torch.Generator().manual_seed(seed)
    looks = torch.randn(kinds, features, generator=rng)
    things = torch.stack([torch.randperm(kinds, generator=rng)[:3] for _ in range(images)])
    seen = looks[things] + 0.1 * torch.randn(images, 3, features, generator=rng)
    named = torch.stack([row[torch.randperm(3, generator=rng)] for row in things]) + FIRST_WORD
    return Regions(seen, torch.ones(images, 3, dtype=torch.bool), torch.zeros(images, 3, 4)), Words(named)


def hits(net, regions, words):
    """Share of the texts that find their own image first."""
    with torch.inference_mode():
        scores = net.eval().similarity(net.images(regions), net.texts(words))
    return float((scores.argmax(dim=0) == torch.arange(len(words))).float().mean())


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_it_learns_which_word_is_which_thing(direction):
    torch.manual_seed(0)
    (regions, words), own = toy(), torch.arange(20)
    net = SCAN(SCANConfig(10, FIRST_WORD + 12, direction, dimensions=32, word_dimensions=16))
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for step in range(40):
        scores = net.train().similarity(net.images(regions), net.texts(words))
        loss = hinge(scores, own, "sum" if step < 20 else "hardest")
        optimiser.zero_grad()
        loss.backward()
        if step == 0:
            assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
        optimiser.step()
    assert hits(net, regions, words) >= 0.5  # chance is 0.05


def test_a_direction_that_there_is_not_is_refused():
    with pytest.raises(WrongWords, match="direction is 'both'"):
        SCAN(SCANConfig(4, 9, direction="both"))  # type: ignore[arg-type]
