"""SCAN as a network: vectors of regions and words, and grounding."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.scan import SCAN, SCANConfig
from zoo_inputs import FEATURES, WORDS, random_regions, random_words


def small(direction, **options):
    torch.manual_seed(0)
    return SCAN(SCANConfig(FEATURES, WORDS, direction, dimensions=16, word_dimensions=5, **options)).eval()


def test_regions_and_words_are_unit_vectors_and_padding_is_zero():
    net = small("t2i")
    for vectors, mask in (net.images(random_regions(3, 1, 4)), net.texts(random_words(2, 0, 9))):
        torch.testing.assert_close(vectors[mask].norm(dim=1), torch.ones(int(mask.sum())), atol=1e-5, rtol=0)
        assert (vectors[~mask] == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_mean_of_the_grounding_is_the_i2t_similarity(direction):
    net = small(direction, temperature=4.0)
    images, texts = net.images(random_regions(3, 1, 5, 2)), net.texts(random_words(2, 0, 9, 1))
    grounding = net.region_grounding(images, texts)
    expected = small("i2t", temperature=4.0).pair_similarity(images, texts)
    assert grounding.shape == (4, 5)
    torch.testing.assert_close(grounding.sum(dim=1) / images.mask.sum(dim=1), expected, atol=1e-5, rtol=0)
