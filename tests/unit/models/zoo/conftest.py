"""One seed and one thread for every test, and small captioners."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

CAPTIONERS = {  # family and sizes
    "show-tell": ("show-tell", {}),
    "show-att-tell": ("show-att-tell", {"attention": 5}),
    "up-down": ("up-down", {"attention": 5}),
    "up-down, as first published": ("up-down", {"attention": 5, "reads": "attention"}),
}


@pytest.fixture(autouse=True)
def _reproducible():
    pytest.importorskip("torch")
    from crossmatch.train.reproducibility import reproducible

    with reproducible(5):
        yield


@pytest.fixture
def captioner():
    """Builds small captioners by name, and random regions and texts for them."""
    import torch

    from crossmatch.models.zoo_families import zoo_families
    from zoo_inputs import FEATURES, WORDS, random_regions, random_words

    def build(name="up-down", words=WORDS, **sizes):
        family, own_sizes = CAPTIONERS[name]
        all_sizes = {"features": FEATURES, "words": words, "dimensions": 8, "word_dimensions": 7, **own_sizes, **sizes}
        net = zoo_families()[family].build(all_sizes).eval()
        with torch.no_grad():  # as after training: the probabilities of words differ
            net.next_word.linear.weight.mul_(20)
        return net

    return SimpleNamespace(net=build, regions=random_regions, texts=random_words)


@pytest.fixture(params=CAPTIONERS)
def family(request):
    """The name of each captioner."""
    return request.param
