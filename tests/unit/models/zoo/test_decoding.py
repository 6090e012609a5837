"""Decoding against all captions of a tiny vocabulary, and against a search in plain Python, one image at a time."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import exp, inf, log
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
from crossmatch.core.errors import WrongWords  # noqa: E402
from crossmatch.models.zoo.captioner_parts import chosen  # noqa: E402
from crossmatch.models.zoo.decoding import beam, greedy, likeliest, sampled  # noqa: E402
from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, PAD, UNKNOWN, Words  # noqa: E402

LONGEST = 4
WORDS = (FIRST_WORD, FIRST_WORD + 1)


class Tables(NamedTuple):
    """The log-probability of each word after each, (N, V, V)."""

    after: torch.Tensor


class Table:
    """Tells the next word from the one before by an image's own table; there is nothing to remember."""

    def begin(self, encoded):
        return encoded

    def step(self, encoded, state, words):
        return encoded.after[torch.arange(len(words)), words], state


def tables(*scores):
    """Encoded images of `Table`: for each, the log-probability of END and of the words, whatever came before."""
    out = torch.full((len(scores), FIRST_WORD + 2, FIRST_WORD + 2), -inf)
    out[:, :, END:] = torch.tensor(scores).unsqueeze(1)
    return Tables(out)


def next_words(net, encoded, n):
    """What a network says after each beginning, for image n alone, asked anew each time."""
    one, known = chosen(encoded, slice(n, n + 1)), {}

    def after(said):
        if said not in known:
            state = net.begin(one)
            for word in (BEGIN, *said):
                found, state = net.step(one, state, torch.tensor([word]))
            known[said] = found[0].tolist()
        return known[said]

    return after


def slow_beam(after, longest, width, penalty):
    """The search as it is described, with lists, to the very end."""
    live, best = [(0.0, ())], (-inf, None)
    for length in range(1, longest + 1):
        grown = [
            (total + value, (*said, word))
            for total, said in live
            for word, value in enumerate(after(said))
            if word != UNKNOWN and value > -inf
        ]
        grown.sort(key=lambda one: -one[0])  # stable: equal ones stay in the order of beginnings, then of words
        for total, said in grown[:width]:
            if said[-1] == END and total / length**penalty > best[0]:
                best = (total / length**penalty, said)
        live = [one for one in grown if one[1][-1] != END][:width]
    return best[1] or live[0][1]


def captions(longest):
    """All that can be told: whole captions, and beginnings as long as is allowed."""
    whole = [(*said, END) for length in range(longest) for said in product(WORDS, repeat=length)]
    return whole, list(product(WORDS, repeat=longest))


def said_by(told):
    return [tuple(n for n in row if n != PAD) for row in told.numbers.tolist()]


@pytest.fixture
def tiny(captioner, family):
    """A network of two words, and what it has seen of seven images."""
    net = captioner.net(family, words=FIRST_WORD + 2)
    with torch.no_grad():
        net.next_word.linear.bias[END] -= 1  # else most captions are empty
        return net, net.images(captioner.regions(3, 1, 4, 2, 0, 3, 2))


@torch.no_grad()
@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
def test_a_wide_beam_finds_the_best_of_all_captions(tiny, penalty):
    """As wide as there are beginnings with an END or a word behind them."""
    net, encoded = tiny
    whole, _ = captions(LONGEST)
    found = said_by(beam(net, encoded, LONGEST, width=3 * 2 ** (LONGEST - 1), length_penalty=penalty))
    for n, said in enumerate(found):
        words = Words(torch.tensor([(BEGIN, *one, *[PAD] * (LONGEST - len(one))) for one in whole]))
        told = net.told(chosen(encoded, torch.full((len(whole),), n)), words).double().sum(dim=1).tolist()
        assert said == max(zip(whole, told, strict=True), key=lambda one: one[1] / len(one[0]) ** penalty)[0]


@torch.no_grad()
@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_is_the_slow_search(tiny, width, penalty):
    net, encoded = tiny
    found = said_by(beam(net, encoded, 6, width, penalty))
    assert found == [slow_beam(next_words(net, encoded, n), 6, width, penalty) for n in range(7)]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_beam_breaks_ties_as_the_slow_search_does(width, penalty):
    """Whole numbers add up exactly, so that many beginnings and captions are equally likely."""
    torch.manual_seed(width)
    few = torch.full((40, 9, 9), -inf)
    few[:, :, END:] = -torch.randint(1, 4, (40, 9, 6)).float()
    few[:, :, UNKNOWN] = -0.5  # the likeliest, and never said
    encoded = Tables(few)
    found = said_by(beam(Table(), encoded, 5, width, penalty))
    assert found == [slow_beam(next_words(Table(), encoded, n), 5, width, penalty) for n in range(40)]
    assert said_by(greedy(Table(), encoded, 5)) == [slow_beam(next_words(Table(), encoded, n), 5, 1, 0) for n in range(40)]


def test_of_equally_likely_words_the_first_is_said():
    assert said_by(greedy(Table(), tables([-1.0, -1.0, -1.0]), 3)) == [(END,)]
    assert said_by(greedy(Table(), tables([-2.0, -1.0, -1.0]), 3)) == [(FIRST_WORD,) * 3]
    assert said_by(beam(Table(), tables([-2.0, -1.0, -1.0]), 3, width=2, length_penalty=0)) == [(FIRST_WORD,) * 3]
    assert said_by(beam(Table(), tables([-2.0, -1.0, -1.0]), 3, width=3, length_penalty=0)) == [(END,)]


def test_the_likeliest_are_sorted_stably():
    scores = torch.randint(0, 4, (50, 30)).float()
    for most in (1, 3, 10, 40):
        place, value = likeliest(scores, most)
        slow = scores.sort(dim=1, descending=True, stable=True)
        assert torch.equal(place, slow.indices[:, :most])
        assert torch.equal(value, slow.values[:, :most])


@torch.no_grad()
def test_greedy_takes_the_likeliest_word_each_time(tiny):
    net, encoded = tiny
    told = greedy(net, encoded, 6)
    for n, found in enumerate(said_by(told)):
        after, said = next_words(net, encoded, n), ()
        while len(said) < 6 and said[-1:] != (END,):
            row = after(said)
            said += (max((END, *WORDS), key=lambda word: row[word]),)
        assert found == said
    assert said_by(beam(net, encoded, 6, width=1, length_penalty=0.0)) == said_by(told)


@torch.no_grad()
def test_a_caption_is_as_likely_as_it_is_told_to_be(tiny):
    net, encoded = tiny
    for told in (greedy(net, encoded, 6), beam(net, encoded, 6, 3, 0.5), beam(net, encoded, 2, 1, 1.0)):
        torch.testing.assert_close(net.told(encoded, told.words), told.each, atol=1e-5, rtol=0)
        torch.testing.assert_close(told.each.sum(dim=1), told.log_likelihood)


def test_a_caption_that_does_not_end_is_cut_and_said_to_be():
    encoded = tables([-9.0, -1.0, -2.0], [-1.0, -9.0, -9.0])
    for told in (greedy(Table(), encoded, 3), beam(Table(), encoded, 3, width=1, length_penalty=1.0)):
        assert said_by(told) == [(FIRST_WORD,) * 3, (END,)]
        assert told.finished.tolist() == [False, True]
        assert told.log_likelihood.tolist() == [-3.0, -1.0]
    # a wider beam has captions that end, and they go before the likelier one that was cut
    assert said_by(beam(Table(), encoded, 3, width=3, length_penalty=0.0)) == [(END,), (END,)]


@torch.no_grad()
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_captions_are_drawn_as_often_as_they_are_likely(captioner, family, temperature):
    net, draws = captioner.net(family, words=FIRST_WORD + 2), 20_000
    encoded = net.images(captioner.regions(3))
    after = next_words(net, encoded, 0)
    whole, begun = captions(2)
    likely = {}
    for said in (*whole, *begun):
        likely[said] = 0.0
        for at, word in enumerate(said):
            row = [value / temperature if number != UNKNOWN else -inf for number, value in enumerate(after(said[:at]))]
            likely[said] += row[word] - log(sum(map(exp, row)))
    assert sum(map(exp, likely.values())) == pytest.approx(1, abs=1e-5)
    generator = torch.Generator().manual_seed(3)
    told = sampled(net, chosen(encoded, torch.zeros(draws, dtype=torch.long)), 2, temperature, generator)
    often = Counter(said_by(told))
    assert set(often) <= set(likely)
    for said, value in likely.items():  # four standard deviations, and one draw more where hardly any is expected
        assert often[said] / draws == pytest.approx(exp(value), abs=4 * (exp(value) / draws) ** 0.5 + 1 / draws)
    expected = torch.tensor([likely[said] for said in said_by(told)])
    torch.testing.assert_close(told.log_likelihood, expected, atol=1e-5, rtol=0)


def test_what_is_drawn_has_the_gradient_of_its_likelihood(tiny):
    """Of the steps one by one, each normalised without the unknown word."""
    net, images = tiny[0], tiny[1]
    encoded = type(images)(*(each.detach() for each in images))
    told = sampled(net, encoded, 5, generator=torch.Generator().manual_seed(1))
    slow, state, words = [], net.begin(encoded), torch.full((7,), BEGIN)
    for at in range(told.numbers.shape[1]):
        row, state = net.step(encoded, state, words)
        row = row[:, END:].log_softmax(dim=1)
        words = told.numbers[:, at]
        there = words != PAD
        slow.append(torch.zeros(7).index_put((there.nonzero().squeeze(1),), row[there, words[there] - END]))
    torch.testing.assert_close(told.each, torch.stack(slow, dim=1), atol=1e-5, rtol=0)
    weights, learning = torch.randn(7), [p for p in net.parameters() if p.requires_grad]
    found, expected = (
        torch.autograd.grad((weights * each.sum(dim=1)).sum(), learning, allow_unused=True)
        for each in (told.each, torch.stack(slow, dim=1))
    )
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_only_drawing_has_a_gradient(tiny):
    net, encoded = tiny
    assert sampled(net, encoded, 3).each.requires_grad
    assert not greedy(net, encoded, 3).each.requires_grad
    assert not beam(net, encoded, 3, 2, 0.0).each.requires_grad
    with torch.no_grad():
        assert not sampled(net, encoded, 3).each.requires_grad


@torch.no_grad()
def test_some_images_are_told_the_same_as_all(tiny):
    net, encoded = tiny
    ways = {
        "greedy": lambda some, _: greedy(net, some, 5),
        "beam": lambda some, _: beam(net, some, 5, 3, 0.7),
        "sampled": lambda some, generator: sampled(net, some, 5, 1.5, generator),
    }
    for tell in ways.values():
        together = said_by(tell(encoded, torch.Generator().manual_seed(5)))
        generator = torch.Generator().manual_seed(5)
        parts = (said_by(tell(chosen(encoded, slice(at, at + 3)), generator)) for at in (0, 3, 6))
        assert [said for part in parts for said in part] == together
    assert said_by(sampled(net, encoded, 5, 1.5, torch.Generator().manual_seed(6))) != together
    nothing = chosen(encoded, slice(0))
    assert [len(tell(nothing, None)) for tell in ways.values()] == [0, 0, 0]


def test_what_cannot_be_meant_is_refused():
    encoded = tables([-1.0, -1.0, -1.0])
    for wrong in (
        lambda: greedy(Table(), encoded, 0),
        lambda: sampled(Table(), encoded, 3, temperature=0.0),
        lambda: beam(Table(), encoded, 3, width=0),
        lambda: beam(Table(), encoded, 3, length_penalty=-1.0),
        lambda: beam(Table(), encoded, 3, length_penalty=float("nan")),
    ):
        with pytest.raises(WrongWords, match="expected"):
            wrong()


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300])
def test_next_to_no_temperature_is_greedy(temperature):
    encoded = tables([-0.5, -1.5, -2.0], [-3.0, -0.1, -4.0], [-2.0, -90.0, -0.2])
    best, drawn = greedy(Table(), encoded, LONGEST), sampled(Table(), encoded, LONGEST, temperature)
    assert drawn.numbers.tolist() == best.numbers.tolist()
    assert drawn.log_likelihood.tolist() == [0.0] * 3


def test_a_boundless_temperature_draws_all_words_alike():
    encoded = tables([-0.01, -5.0, -300.0])
    drawn = sampled(Table(), encoded, 1, 1e300)
    assert drawn.each.tolist() == [[pytest.approx(log(1 / 3))]]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (lambda encoded: beam(Table(), encoded, 61, 3, 22.0), "from 0 .none. to 10"),
        (lambda encoded: beam(Table(), encoded, 61, 3, 180.0), "from 0 .none. to 10"),
        (lambda encoded: beam(Table(), encoded, 10**13), "at most 1,000"),
        (lambda encoded: sampled(Table(), encoded, 10**13), "at most 1,000"),
        (lambda encoded: sampled(Table(), encoded, LONGEST, inf), "a number above 0"),
    ],
)
def test_numbers_beyond_all_measure_are_refused(asked, says):
    with pytest.raises(WrongWords, match=says):
        asked(tables([-0.5, -1.5, -2.0]))
