"""ShowAttTell against the equations, number by number."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")


@torch.no_grad()
def test_what_is_attended_to_goes_into_the_cell_alone(captioner):
    net, regions, words = captioner.net("show-att-tell"), captioner.regions(3, most=4), captioner.texts(4)
    found = net.told(net.images(regions), words)[0]
    hidden, cell = torch.zeros(8), torch.zeros(8)
    (w_i, w_f, w_o, w_z, w_y), bias = net.word.weight.view(5, 8, 7), net.word.bias.view(5, 8)
    u_i, u_f, u_o, u_z, u_y = net.state.weight.view(5, 8, 8)
    v_z, v_y = net.attended.weight.view(2, 8, 6)
    look = net.attention
    for at, (word, following) in enumerate(zip(words.numbers[0], words.numbers[0, 1:], strict=False)):
        x, real = net.word_vectors.table.weight[word], regions.features[0, :3]
        a = torch.stack([look.weight(torch.tanh(look.region(v) + look.state(hidden)))[0] for v in real])
        seen = a.softmax(dim=0) @ real
        i, f, o = (
            torch.sigmoid(w @ x + u @ hidden + b) for w, u, b in ((w_i, u_i, bias[0]), (w_f, u_f, bias[1]), (w_o, u_o, bias[2]))
        )
        z, y = (w @ x + v @ seen + u @ hidden + b for w, v, u, b in ((w_z, v_z, u_z, bias[3]), (w_y, v_y, u_y, bias[4])))
        cell = i * torch.maximum(z, y) + f * cell
        hidden = o * cell.tanh()
        scores = net.next_word.linear(hidden)
        scores[[0, 2]] = -torch.inf
        assert found[at] == pytest.approx(float(scores.log_softmax(dim=0)[following]), abs=1e-5)
