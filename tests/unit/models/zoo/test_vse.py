"""The encoders of VSE against loops over single items."""

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.vse import VSE, VSEConfig
from zoo_inputs import FEATURES, WORDS, random_regions, random_words

SIZES = {"dimensions": 7, "hidden": 5, "word_dimensions": 3}


def encode_by_hand(encoder, kind, vectors):
    """The unit vector of one item with the vectors (L, D)."""
    if kind == "bigru":
        vector = (encoder.onward(vectors)[0][-1] + encoder.back(vectors.flip(0))[0][-1]) / 2
    elif kind == "gru":
        vector = encoder(vectors)[0][-1]
    else:
        vector = encoder(vectors.mean(dim=0))
    return vector / vector.norm()


@pytest.mark.parametrize("kind", ["linear", "mlp", "bigru"])
def test_image_encoders_equal_loops(kind):
    net, counts = VSE(VSEConfig(FEATURES, WORDS, image=kind, **SIZES)), (4, 2, 1)
    regions = random_regions(*counts, most=5)
    for vector, features, count in zip(net.images(regions), regions.features, counts, strict=True):
        torch.testing.assert_close(vector, encode_by_hand(net.image, kind, features[:count]))


@pytest.mark.parametrize("kind", ["gru", "bigru", "bow"])
def test_text_encoders_equal_loops(kind):
    net, words = VSE(VSEConfig(FEATURES, WORDS, text=kind, **SIZES)), random_words(4, 2, 1)
    for vector, numbers, length in zip(net.texts(words), words.numbers, words.lengths, strict=True):
        torch.testing.assert_close(vector, encode_by_hand(net.text, kind, net.word_vectors.table(numbers[:length])))
