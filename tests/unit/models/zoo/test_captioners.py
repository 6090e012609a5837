"""The three captioners against their equations, one step at a time."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.network_inputs import BEGIN, PAD


def assert_equal_steps(log_probabilities, net, words, advance):
    """`advance` maps the vector of a word to the hidden state (D,) from which the next word is predicted."""
    numbers = words.numbers[0]
    for step, (number, next_number) in enumerate(pairwise(numbers)):
        scores = net.next_word.linear(advance(net.word_vectors.table.weight[number]))
        scores[[PAD, BEGIN]] = -torch.inf
        assert log_probabilities[step] == pytest.approx(float(scores.log_softmax(dim=0)[next_number]), abs=1e-5)


def attend(attention, regions, hidden):
    """The feature attended to from the hidden state."""
    scores = [attention.weight(torch.tanh(attention.region(v) + attention.state(hidden)))[0] for v in regions]
    return torch.stack(scores).softmax(dim=0) @ regions


@torch.no_grad()
def test_show_tell_reads_the_image_as_the_first_word(captioner):
    net, regions, words = captioner.net("show-tell"), captioner.regions(3, most=5), captioner.texts(4)
    lstm = torch.nn.LSTMCell(7, 8)
    lstm.load_state_dict({name.removesuffix("_l0"): values for name, values in net.lstm.state_dict().items()})
    state = lstm(net.image(regions.features[0, :3].mean(dim=0, keepdim=True)))

    def advance(word):
        nonlocal state
        state = lstm(word.unsqueeze(0), state)
        return state[0][0]

    assert_equal_steps(net.word_log_probabilities(net.images(regions), words)[0], net, words, advance)


def test_word_vectors_start_within_a_tenth(captioner):
    """hu2019bison, app. D.2."""
    table = captioner.net("show-tell", words=200).word_vectors.table.weight
    assert 0.09 < table.abs().max() <= 0.1


@torch.no_grad()
def test_show_att_tell_adds_the_attended_feature_to_the_cell_only(captioner):
    net, regions, words = captioner.net("show-att-tell"), captioner.regions(3, most=4), captioner.texts(4)
    hidden, cell = torch.zeros(8), torch.zeros(8)
    (w_i, w_f, w_o, w_z, w_y), bias = net.word.weight.view(5, 8, 7), net.word.bias.view(5, 8)
    u_i, u_f, u_o, u_z, u_y = net.state.weight.view(5, 8, 8)
    v_z, v_y = net.attended.weight.view(2, 8, 6)

    def advance(x):
        nonlocal hidden, cell
        attended = attend(net.attention, regions.features[0, :3], hidden)
        gates = ((w_i, u_i, bias[0]), (w_f, u_f, bias[1]), (w_o, u_o, bias[2]))
        i, f, o = (torch.sigmoid(w @ x + u @ hidden + b) for w, u, b in gates)
        units = ((w_z, v_z, u_z, bias[3]), (w_y, v_y, u_y, bias[4]))
        z, y = (w @ x + v @ attended + u @ hidden + b for w, v, u, b in units)
        cell = i * torch.maximum(z, y) + f * cell
        hidden = o * cell.tanh()
        return hidden

    assert_equal_steps(net.word_log_probabilities(net.images(regions), words)[0], net, words, advance)


def in_torch_order(weight):
    """Gates in the order of PyTorch: input, forget, candidate, output; ours end with the candidate."""
    return weight.unflatten(0, (4, -1))[[0, 1, 3, 2]].flatten(0, 1)


def make_lstm_cell(inputs, recurrent, bias):
    cell = torch.nn.LSTMCell(inputs.shape[1], recurrent.shape[1])
    cell.weight_ih.copy_(in_torch_order(inputs))
    cell.weight_hh.copy_(in_torch_order(recurrent))
    cell.bias_ih.copy_(in_torch_order(bias))
    cell.bias_hh.zero_()
    return cell


@torch.no_grad()
@pytest.mark.parametrize("reads", ["word", "attention"])
def test_up_down_attends_with_its_first_lstm_and_writes_with_the_second(captioner, reads):
    net, regions, words = captioner.net("up-down", reads=reads), captioner.regions(3, most=4), captioner.texts(4)
    word, bias, tell = net.word.weight, net.word.bias, net.tell.weight
    # inputs of the first: h², the mean and the word, and its own h¹; our weights have h² before h¹
    first_inputs = torch.cat([net.states.weight[:, :8], net.mean.weight, word[:32]], dim=1)
    first = make_lstm_cell(first_inputs, net.states.weight[:, 8:], bias[:32])
    # inputs of the second: the attended feature and the word or h¹, and its own h²; our weights have v̂, h², h¹
    beside, second_bias = (word[32:], bias[32:]) if reads == "word" else (tell[:, 14:], net.tell.bias)
    second = make_lstm_cell(torch.cat([tell[:, :6], beside], dim=1), tell[:, 6:14], second_bias)
    real = regions.features[0, :3]
    first_state = second_state = (torch.zeros(1, 8), torch.zeros(1, 8))

    def advance(x):
        nonlocal first_state, second_state
        x = x.unsqueeze(0)
        first_state = first(torch.cat([second_state[0], real.mean(dim=0, keepdim=True), x], dim=1), first_state)
        attended = attend(net.attention, real, first_state[0][0]).unsqueeze(0)
        second_state = second(torch.cat([attended, x if reads == "word" else first_state[0]], dim=1), second_state)
        return second_state[0][0]

    assert_equal_steps(net.word_log_probabilities(net.images(regions), words)[0], net, words, advance)
