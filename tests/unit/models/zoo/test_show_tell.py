"""ShowTell against the equations, one step of a plain LSTM at a time."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@torch.no_grad()
def test_the_image_is_the_first_word(captioner):
    net, regions, words = captioner.net("show-tell"), captioner.regions(3, most=5), captioner.texts(4)
    lstm = torch.nn.LSTMCell(7, 8)
    lstm.load_state_dict({name.removesuffix("_l0"): values for name, values in net.lstm.state_dict().items()})
    state = lstm(net.image(regions.features[0, :3].mean(dim=0, keepdim=True)))
    found = net.told(net.images(regions), words)[0]
    for at, (word, following) in enumerate(zip(words.numbers[0], words.numbers[0, 1:], strict=False)):
        state = lstm(net.word_vectors.table.weight[word].unsqueeze(0), state)
        scores = net.next_word.linear(state[0])[0]
        scores[[0, 2]] = -torch.inf
        assert found[at] == pytest.approx(float(scores.log_softmax(dim=0)[following]), abs=1e-5)


def test_words_begin_within_a_tenth(captioner):
    """hu2019bison, app. D.2."""
    table = captioner.net("show-tell", words=200).word_vectors.table.weight
    assert 0.09 < table.abs().max() <= 0.1
