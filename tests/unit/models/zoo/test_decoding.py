"""Decoding against all captions of a tiny vocabulary, and against a beam search in plain Python."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product
from math import exp, inf, log, nan
from typing import NamedTuple

import pytest

torch = pytest.importorskip("torch")
from crossmatch.data.errors import UsageError
from crossmatch.models.zoo.caption_decoder_layers import select_items
from crossmatch.models.zoo.decoding import beam_search, decode_greedily, sample_captions, stable_top_k
from crossmatch.models.zoo.network_inputs import BEGIN, END, FIRST_WORD, PAD, UNKNOWN, Words

LONGEST = 4
WORDS = (FIRST_WORD, FIRST_WORD + 1)


class BigramTables(NamedTuple):
    """Log-probability of each word after each word, (N, V, V)."""

    after: torch.Tensor


class BigramCaptioner:
    """Predicts the next word from the previous one by the table of an image; it has no state."""

    def initial_state(self, encoded):
        return encoded

    def step(self, encoded, state, words):
        return encoded.after[torch.arange(len(words)), words], state


def unigram_tables(*scores):
    """Encoded images of `BigramCaptioner`: the log-probabilities of END and of two words, independent of the previous word."""
    out = torch.full((len(scores), FIRST_WORD + 2, FIRST_WORD + 2), -inf)
    out[:, :, END:] = torch.tensor(scores).unsqueeze(1)
    return BigramTables(out)


def predictor(net, encoded, n):
    """A function from a prefix to the log-probabilities of the next word, for image n alone."""
    image = select_items(encoded, slice(n, n + 1))

    @cache
    def predict(prefix):
        state = net.initial_state(image)
        for word in (BEGIN, *prefix):
            log_probabilities, state = net.step(image, state, torch.tensor([word]))
        return log_probabilities[0].tolist()

    return predict


def plain_beam_search(predict, longest, width, penalty):
    """Beam search with lists, without an early stop."""
    prefixes, best = [(0.0, ())], (-inf, None)
    for length in range(1, longest + 1):
        extended = [
            (total + value, (*prefix, word))
            for total, prefix in prefixes
            for word, value in enumerate(predict(prefix))
            if word != UNKNOWN and value > -inf
        ]
        extended.sort(key=lambda scored: -scored[0])  # stable: ties stay in the order of prefixes, then of words
        for total, caption in extended[:width]:
            if caption[-1] == END and total / length**penalty > best[0]:
                best = (total / length**penalty, caption)
        prefixes = [(total, prefix) for total, prefix in extended if prefix[-1] != END][:width]
    return best[1] or prefixes[0][1]


def possible_results(longest):
    """All captions that end, and all that are cut at the maximum length."""
    finished = [(*words, END) for length in range(longest) for words in product(WORDS, repeat=length)]
    return finished, list(product(WORDS, repeat=longest))


def word_tuples(decoded):
    return [tuple(number for number in row if number != PAD) for row in decoded.numbers.tolist()]


@pytest.fixture
def tiny(captioner, family):
    """A network with two words, and seven encoded images."""
    net = captioner.net(family, words=FIRST_WORD + 2)
    with torch.no_grad():
        net.next_word.linear.bias[END] -= 1  # else most captions are empty
        return net, net.images(captioner.regions(3, 1, 4, 2, 0, 3, 2))


@torch.no_grad()
@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
def test_wide_beam_finds_the_best_of_all_captions(tiny, penalty):
    """The beam is as wide as the number of extended prefixes."""
    net, encoded = tiny
    captions, _ = possible_results(LONGEST)
    words = Words(torch.tensor([(BEGIN, *caption, *[PAD] * (LONGEST - len(caption))) for caption in captions]))
    lengths = torch.tensor([len(caption) for caption in captions])
    decoded = word_tuples(beam_search(net, encoded, LONGEST, width=3 * 2 ** (LONGEST - 1), length_penalty=penalty))
    for n, caption in enumerate(decoded):
        repeated = select_items(encoded, torch.full((len(captions),), n))
        scores = net.word_log_probabilities(repeated, words).double().sum(dim=1) / lengths**penalty
        assert caption == captions[int(scores.argmax())]


@torch.no_grad()
@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_beam_search_equals_the_plain_search(tiny, width, penalty):
    net, encoded = tiny
    decoded = word_tuples(beam_search(net, encoded, 6, width, penalty))
    assert decoded == [plain_beam_search(predictor(net, encoded, n), 6, width, penalty) for n in range(7)]


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_ties_are_broken_as_in_the_plain_search(width, penalty):
    """Sums of integers are exact, so many prefixes and captions are equally likely."""
    table = torch.full((40, 9, 9), -inf)
    table[:, :, END:] = -torch.randint(1, 4, (40, 9, 6)).float()
    table[:, :, UNKNOWN] = -0.5  # the likeliest word, but never generated
    net, encoded = BigramCaptioner(), BigramTables(table)
    predictors = [predictor(net, encoded, n) for n in range(40)]
    decoded = word_tuples(beam_search(net, encoded, 5, width, penalty))
    assert decoded == [plain_beam_search(predict, 5, width, penalty) for predict in predictors]
    assert word_tuples(decode_greedily(net, encoded, 5)) == [plain_beam_search(predict, 5, 1, 0) for predict in predictors]


def test_first_of_equally_likely_words_is_taken():
    net, words_first = BigramCaptioner(), unigram_tables([-2.0, -1.0, -1.0])
    assert word_tuples(decode_greedily(net, unigram_tables([-1.0, -1.0, -1.0]), 3)) == [(END,)]
    assert word_tuples(decode_greedily(net, words_first, 3)) == [(FIRST_WORD,) * 3]
    assert word_tuples(beam_search(net, words_first, 3, width=2, length_penalty=0)) == [(FIRST_WORD,) * 3]
    assert word_tuples(beam_search(net, words_first, 3, width=3, length_penalty=0)) == [(END,)]


def test_top_k_is_stable():
    scores = torch.randint(0, 4, (50, 30)).float()
    for most in (1, 3, 10, 40):
        positions, values = stable_top_k(scores, most)
        expected = scores.sort(dim=1, descending=True, stable=True)
        assert torch.equal(positions, expected.indices[:, :most])
        assert torch.equal(values, expected.values[:, :most])


@torch.no_grad()
def test_greedy_decoding_takes_the_likeliest_word_at_each_step(tiny):
    net, encoded = tiny
    decoded = word_tuples(decode_greedily(net, encoded, 6))
    for n, caption in enumerate(decoded):
        predict, prefix = predictor(net, encoded, n), ()
        while len(prefix) < 6 and prefix[-1:] != (END,):
            prefix += (max((END, *WORDS), key=predict(prefix).__getitem__),)
        assert caption == prefix
    assert word_tuples(beam_search(net, encoded, 6, width=1, length_penalty=0.0)) == decoded


@torch.no_grad()
def test_decoded_log_probabilities_are_those_of_the_network(tiny):
    net, encoded = tiny
    for decoded in (decode_greedily(net, encoded, 6), beam_search(net, encoded, 6, 3, 0.5), beam_search(net, encoded, 2, 1, 1.0)):
        expected = net.word_log_probabilities(encoded, decoded.words)
        torch.testing.assert_close(decoded.log_probabilities, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(decoded.log_probabilities.sum(dim=1), decoded.log_likelihood)


def test_caption_without_end_is_cut_and_not_finished():
    net, encoded = BigramCaptioner(), unigram_tables([-9.0, -1.0, -2.0], [-1.0, -9.0, -9.0])
    for decoded in (decode_greedily(net, encoded, 3), beam_search(net, encoded, 3, width=1, length_penalty=1.0)):
        assert word_tuples(decoded) == [(FIRST_WORD,) * 3, (END,)]
        assert decoded.finished.tolist() == [False, True]
        assert decoded.log_likelihood.tolist() == [-3.0, -1.0]
    # a wider beam contains finished captions, which are preferred to the likelier one that was cut
    assert word_tuples(beam_search(net, encoded, 3, width=3, length_penalty=0.0)) == [(END,), (END,)]


@torch.no_grad()
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_sampled_frequencies_equal_probabilities(captioner, family, temperature):
    net, draws = captioner.net(family, words=FIRST_WORD + 2), 20_000
    encoded = net.images(captioner.regions(3))
    predict = predictor(net, encoded, 0)
    finished, cut = possible_results(2)
    log_likelihoods = {}
    for caption in (*finished, *cut):
        log_likelihoods[caption] = 0.0
        for at, word in enumerate(caption):
            row = [value / temperature if number != UNKNOWN else -inf for number, value in enumerate(predict(caption[:at]))]
            log_likelihoods[caption] += row[word] - log(sum(map(exp, row)))
    assert sum(map(exp, log_likelihoods.values())) == pytest.approx(1, abs=1e-5)
    generator = torch.Generator().manual_seed(3)
    decoded = sample_captions(net, select_items(encoded, torch.zeros(draws, dtype=torch.long)), 2, temperature, generator)
    frequencies = Counter(word_tuples(decoded))
    assert set(frequencies) <= set(log_likelihoods)
    for caption, value in log_likelihoods.items():  # four standard deviations, and one more draw for rare captions
        assert frequencies[caption] / draws == pytest.approx(exp(value), abs=4 * (exp(value) / draws) ** 0.5 + 1 / draws)
    expected = torch.tensor([log_likelihoods[caption] for caption in word_tuples(decoded)])
    torch.testing.assert_close(decoded.log_likelihood, expected, atol=1e-5, rtol=0)


def test_sampled_captions_have_the_gradient_of_single_steps(tiny):
    """Each step is normalised without the unknown word."""
    net, images = tiny
    encoded = type(images)(*(values.detach() for values in images))
    decoded = sample_captions(net, encoded, 5, generator=torch.Generator().manual_seed(1))
    steps, state, words = [], net.initial_state(encoded), torch.full((7,), BEGIN)
    for at in range(decoded.numbers.shape[1]):
        row, state = net.step(encoded, state, words)
        row = row[:, END:].log_softmax(dim=1)
        words = decoded.numbers[:, at]
        is_word = words != PAD
        steps.append(torch.zeros(7).index_put((is_word.nonzero().squeeze(1),), row[is_word, words[is_word] - END]))
    by_steps = torch.stack(steps, dim=1)
    torch.testing.assert_close(decoded.log_probabilities, by_steps, atol=1e-5, rtol=0)
    weights, parameters = torch.randn(7), list(net.parameters())
    gradients, expected_gradients = (
        torch.autograd.grad((weights * values.sum(dim=1)).sum(), parameters, allow_unused=True)
        for values in (decoded.log_probabilities, by_steps)
    )
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        assert (gradient is None) == (expected is None)
        if gradient is not None:
            torch.testing.assert_close(gradient, expected, atol=1e-4, rtol=1e-4)


def test_only_sampling_has_a_gradient(tiny):
    net, encoded = tiny
    assert sample_captions(net, encoded, 3).log_probabilities.requires_grad
    assert not decode_greedily(net, encoded, 3).log_probabilities.requires_grad
    assert not beam_search(net, encoded, 3, 2, 0.0).log_probabilities.requires_grad
    with torch.no_grad():
        assert not sample_captions(net, encoded, 3).log_probabilities.requires_grad


@torch.no_grad()
def test_captions_do_not_depend_on_the_batch(tiny):
    net, encoded = tiny
    decoders = (
        lambda images, _: decode_greedily(net, images, 5),
        lambda images, _: beam_search(net, images, 5, 3, 0.7),
        lambda images, generator: sample_captions(net, images, 5, 1.5, generator),
    )
    for decode in decoders:
        together = word_tuples(decode(encoded, torch.Generator().manual_seed(5)))
        generator = torch.Generator().manual_seed(5)
        parts = (word_tuples(decode(select_items(encoded, slice(at, at + 3)), generator)) for at in (0, 3, 6))
        assert [caption for part in parts for caption in part] == together
        assert len(decode(select_items(encoded, slice(0)), None)) == 0
    assert word_tuples(sample_captions(net, encoded, 5, 1.5, torch.Generator().manual_seed(6))) != together


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-300])
def test_sampling_at_a_low_temperature_is_greedy(temperature):
    encoded = unigram_tables([-0.5, -1.5, -2.0], [-3.0, -0.1, -4.0], [-2.0, -90.0, -0.2])
    greedy = decode_greedily(BigramCaptioner(), encoded, LONGEST)
    sampled = sample_captions(BigramCaptioner(), encoded, LONGEST, temperature)
    assert sampled.numbers.tolist() == greedy.numbers.tolist()
    assert sampled.log_likelihood.tolist() == [0.0] * 3


def test_sampling_at_a_very_high_temperature_is_uniform():
    sampled = sample_captions(BigramCaptioner(), unigram_tables([-0.01, -5.0, -300.0]), 1, 1e300)
    assert sampled.log_probabilities.tolist() == [[pytest.approx(log(1 / 3))]]


@pytest.mark.parametrize(
    ("decode", "options", "message"),
    [
        (decode_greedily, {"longest": 0}, "longest must be at least 1"),
        (sample_captions, {"longest": 3, "temperature": 0.0}, "temperature must be a finite number above 0"),
        (sample_captions, {"longest": 3, "temperature": inf}, "temperature must be a finite number above 0"),
        (sample_captions, {"longest": 10**13}, "at most 1,000"),
        (beam_search, {"longest": 10**13}, "at most 1,000"),
        (beam_search, {"longest": 3, "width": 0}, "width must be at least 1"),
        (beam_search, {"longest": 3, "length_penalty": -1.0}, "length_penalty must be from 0 to 10"),
        (beam_search, {"longest": 3, "length_penalty": nan}, "length_penalty must be from 0 to 10"),
        (beam_search, {"longest": 61, "length_penalty": 22.0}, "length_penalty must be from 0 to 10"),
    ],
)
def test_options_out_of_range_are_rejected(decode, options, message):
    with pytest.raises(UsageError, match=message):
        decode(BigramCaptioner(), unigram_tables([-0.5, -1.5, -2.0]), **options)
