"""The towers of VSE against loops over one item at a time."""

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.inputs import Regions, Words  # noqa: E402
from crossmatch.models.zoo.vse import VSE, VSEConfig  # noqa: E402

LENGTHS = (4, 2, 1)


@pytest.fixture(autouse=True)
def same_chance():
    torch.manual_seed(0)


def inputs():
    real = torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(1)
    numbers = torch.randint(2, 9, (len(LENGTHS), 5)) * real
    return Regions(torch.randn(len(LENGTHS), 5, 6) * real.unsqueeze(2), real, torch.zeros(len(LENGTHS), 5, 4)), Words(numbers)


def by_hand(tower, kind, vectors):
    """What one item's own vectors (L, D) become."""
    if kind == "bigru":
        onward, back = tower.onward(vectors)[0][-1], tower.back(vectors.flip(0))[0][-1]
        return (onward + back) / 2
    if kind == "gru":
        return tower(vectors)[0][-1]
    return tower(vectors.mean(dim=0))


@pytest.mark.parametrize("image", ["linear", "mlp", "bigru"])
def test_images(image):
    net, (regions, _) = VSE(VSEConfig(6, 9, image=image, dimensions=7, hidden=5, word_dimensions=3)), inputs()
    for row, vectors, length in zip(net.images(regions), regions.features, LENGTHS, strict=True):
        expected = by_hand(net.image, image, vectors[:length])
        torch.testing.assert_close(row, expected / expected.norm())


@pytest.mark.parametrize("text", ["gru", "bigru", "bow"])
def test_texts(text):
    net, (_, words) = VSE(VSEConfig(6, 9, text=text, dimensions=7, hidden=5, word_dimensions=3)), inputs()
    for row, numbers, length in zip(net.texts(words), words.numbers, LENGTHS, strict=True):
        expected = by_hand(net.text, text, net.word_vectors.table(numbers[:length]))
        torch.testing.assert_close(row, expected / expected.norm())


def test_an_image_without_regions_is_a_number():
    net = VSE(VSEConfig(6, 9, image="bigru", dimensions=7))
    none = Regions(torch.zeros(1, 2, 6), torch.zeros(1, 2, dtype=torch.bool), torch.zeros(1, 2, 4))
    assert torch.isfinite(net.images(none)).all()
