"""UpDown against the equations, with PyTorch's own LSTMs over joined inputs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


def in_pytorchs_order(weight):
    """Gates as PyTorch has them: input, forget, candidate, output; ours end with the candidate."""
    return weight.unflatten(0, (4, -1))[[0, 1, 3, 2]].flatten(0, 1)


def cell_of(inputs, recurrent, bias):
    made = torch.nn.LSTMCell(inputs.shape[1], recurrent.shape[1])
    made.weight_ih.copy_(in_pytorchs_order(inputs))
    made.weight_hh.copy_(in_pytorchs_order(recurrent))
    made.bias_ih.copy_(in_pytorchs_order(bias))
    made.bias_hh.zero_()
    return made


@torch.no_grad()
@pytest.mark.parametrize("reads", ["word", "attention"])
def test_one_lstm_attends_for_the_other(captioner, reads):
    net, regions, words = captioner.net("up-down", reads=reads), captioner.regions(3, most=4), captioner.texts(4)
    found = net.told(net.images(regions), words)[0]
    word, bias = net.word.weight, net.word.bias
    # the first reads h², the mean and the word, and remembers h¹; in our weights h² stands before h¹
    first = cell_of(torch.cat([net.states.weight[:, :8], net.mean.weight, word[:32]], dim=1), net.states.weight[:, 8:], bias[:32])
    # the second reads what was attended to and the word or h¹, and remembers h²; in our weights they are v̂, h², h¹
    tell = net.tell.weight
    beside, at_last = (word[32:], bias[32:]) if reads == "word" else (tell[:, 14:], net.tell.bias)
    second = cell_of(torch.cat([tell[:, :6], beside], dim=1), tell[:, 6:14], at_last)
    real, look = regions.features[0, :3], net.attention
    one = two = (torch.zeros(1, 8), torch.zeros(1, 8))
    for at, (number, following) in enumerate(zip(words.numbers[0], words.numbers[0, 1:], strict=False)):
        x = net.word_vectors.table.weight[number].unsqueeze(0)
        one = first(torch.cat([two[0], real.mean(dim=0, keepdim=True), x], dim=1), one)
        a = torch.stack([look.weight(torch.tanh(look.region(v) + look.state(one[0][0])))[0] for v in real])
        attended = (a.softmax(dim=0) @ real).unsqueeze(0)
        two = second(torch.cat([attended, x if reads == "word" else one[0]], dim=1), two)
        scores = net.next_word.linear(two[0])[0]
        scores[[0, 2]] = -torch.inf
        assert found[at] == pytest.approx(float(scores.log_softmax(dim=0)[following]), abs=1e-5)
