"""Self-critical training: the expected gradient, summed over all captions, is that of the expected reward."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.decoding import MAX_CAPTION_WORDS, DecodedCaptions, decode_greedily, mask_unknown
from crossmatch.models.zoo.network_inputs import BEGIN, END, FIRST_WORD, PAD, Regions, Vocabulary, Words
from crossmatch.models.zoo.show_tell import ShowTell, ShowTellConfig
from crossmatch.models.zoo.up_down import UpDown, UpDownConfig
from crossmatch.train.data.training_set import ArrayStore, TrainingBatch, TrainingSet
from crossmatch.train.objectives import make_objective, parse_objective, self_critical
from crossmatch.train.objectives.cider_reward import Reward
from crossmatch.train.objectives.self_critical import SelfCriticalLoss, surrogate_loss
from crossmatch.train.reproducibility import reproducible

CAPTIONS = ("a dog", "dog a a", "a cat", "cat", "a")
LINKS = np.array([[0, 0], [0, 1], [1, 2], [1, 3], [2, 4]])
VOCABULARY = Vocabulary.from_texts(CAPTIONS)  # a, cat, dog
LONGEST = 3  # words, END among them
FEATURES = np.random.default_rng(0).standard_normal((3, 2, 5)).astype(np.float32)
DATA = TrainingSet(ArrayStore(FEATURES), CAPTIONS, LINKS)
NETS = {
    "show-tell": lambda dropout: ShowTell(ShowTellConfig(5, len(VOCABULARY), 4, 3, dropout)),
    "up-down": lambda dropout: UpDown(UpDownConfig(5, len(VOCABULARY), 4, 3, 3, dropout=dropout)),
}


@pytest.fixture(autouse=True)
def _seeded():
    with reproducible(3):
        yield


@pytest.fixture(params=NETS)
def net(request):
    return NETS[request.param](0.0).double()


def batch_of(*images):
    regions = DATA.store.take(np.asarray(images))
    regions = Regions(regions.features.double(), regions.mask, regions.boxes.double())
    return TrainingBatch(regions, Words(torch.full((len(images), 3), END)), torch.tensor(images))


def all_captions():
    """All captions up to the maximum length: those with an end, and cut ones."""
    words = range(FIRST_WORD, len(VOCABULARY))
    ended = [(*caption, END) for length in range(LONGEST) for caption in product(words, repeat=length)]
    return [*ended, *product(words, repeat=LONGEST)]


def score_caption(net, regions, caption):
    """The log-probability of each word of a caption, step by step."""
    encoded = net.images(regions)
    state, before, log_probabilities = net.initial_state(encoded), BEGIN, []
    for word in caption:
        scores, state = net.step(encoded, state, torch.tensor([before]))
        log_probabilities.append(mask_unknown(scores).log_softmax(dim=1)[0, word])
        before = word
    filled = [*caption, *[PAD] * (LONGEST - len(caption))]
    return DecodedCaptions(
        torch.tensor([filled]),
        torch.stack([*log_probabilities, *[torch.zeros(()).double()] * (LONGEST - len(log_probabilities))]).unsqueeze(0),
    )


def gradient_of(value, net):
    return torch.cat([slope.flatten() for slope in torch.autograd.grad(value, list(net.parameters()))])


def expected_reward(net, images):
    """Exact expected reward of a sampled caption: the mean over the images of Σ p(caption) · reward."""
    reward, total = Reward.from_training_set(DATA, VOCABULARY), 0.0
    for image in images:
        for caption in all_captions():
            caption_values = score_caption(net, batch_of(image).regions, caption)
            total = total + caption_values.log_likelihood.exp()[0] * float(
                reward(caption_values.numbers.numpy(), np.array([image]))[0]
            )
    return total / len(images)


def test_probabilities_of_all_captions_sum_to_one(net):
    total = sum(score_caption(net, batch_of(1).regions, caption).log_likelihood.exp().item() for caption in all_captions())
    assert len(all_captions()) == 1 + 3 + 9 + 27
    assert total == pytest.approx(1, abs=1e-12)


def test_gradient_is_that_of_the_expected_reward(net, monkeypatch):
    """Every caption is used once, weighted by its probability, so that there is no noise."""
    criticise, images = SelfCriticalLoss(Reward.from_training_set(DATA, VOCABULARY), LONGEST), (0, 1, 2)
    exact = gradient_of(-expected_reward(net, images), net)
    mean = torch.zeros_like(exact)
    for image in images:
        for caption in all_captions():
            caption_values = score_caption(net, batch_of(image).regions, caption)
            monkeypatch.setattr(
                self_critical, "sample_captions", lambda net, encoded, longest, caption_values=caption_values: caption_values
            )
            loss = criticise(net, batch_of(image), 1.0)
            mean += gradient_of(loss, net) * caption_values.log_likelihood.exp().item() / len(images)
    assert exact.abs().max() > 1e-3
    torch.testing.assert_close(mean, exact, rtol=1e-9, atol=1e-12)


def test_gradient_of_expected_reward_equals_finite_differences(net):
    weight, step = net.next_word.linear.bias, 1e-5
    (exact,) = torch.autograd.grad(expected_reward(net, (0,)), [weight])
    for at in range(FIRST_WORD - 1, len(VOCABULARY)):
        with torch.no_grad():
            values = []
            for change in (step, -2 * step):
                weight[at] += change
                values.append(float(expected_reward(net, (0,))))
            weight[at] += step
        assert (values[0] - values[1]) / (2 * step) == pytest.approx(float(exact[at]), abs=1e-7)


def test_sampled_gradient_is_close_to_the_exact_one(net):
    """With sampling: 40,000 captions of one image."""
    exact = gradient_of(-expected_reward(net, (0,)), net)
    loss = SelfCriticalLoss(Reward.from_training_set(DATA, VOCABULARY), LONGEST)(net, batch_of(*[0] * 40_000), 1.0)
    gradient = gradient_of(loss, net)
    assert float(torch.cosine_similarity(gradient, exact, dim=0)) > 0.99
    assert float((gradient - exact).norm()) < 0.1 * float(exact.norm())


def test_surrogate_loss_equals_a_loop(net):
    """Sum over words, mean over captions."""
    log_probabilities, reward, best = torch.randn(4, 3), torch.rand(4), torch.rand(4)
    loop = 0.0
    for b in range(4):
        loop -= float(reward[b] - best[b]) * sum(float(log_probabilities[b, t]) for t in range(3)) / 4
    assert float(surrogate_loss(log_probabilities, reward, best)) == pytest.approx(loop, rel=1e-5)


def test_equal_rewards_give_no_gradient(net):
    loss = SelfCriticalLoss(lambda numbers, image: np.ones(len(image)), LONGEST)(net, batch_of(0, 1, 1), 1.0)
    assert loss.item() == 0
    assert not gradient_of(loss, net).any()


def test_reward_gets_sampled_then_greedy_captions(net):
    arguments = {}

    def reward(numbers, image):
        arguments.update(numbers=numbers, image=image)
        return np.arange(len(image), dtype=float)

    batch = batch_of(2, 0, 0)
    SelfCriticalLoss(reward, LONGEST)(net, batch, 1.0)
    assert arguments["image"].tolist() == [2, 0, 0, 2, 0, 0]
    best = decode_greedily(net, net.images(batch.regions), LONGEST).numbers.numpy()
    assert (arguments["numbers"][3:, : best.shape[1]] == best).all()
    assert (arguments["numbers"][3:, best.shape[1] :] == PAD).all()


def test_empty_captions_have_a_gradient(net):
    """A network whose greedy caption is empty, with reward 0, learns to write longer captions."""
    with torch.no_grad():
        net.next_word.linear.bias[END] = 3.0
    assert decode_greedily(net, net.images(batch_of(0).regions), LONGEST).numbers.tolist() == [[END]]
    loss = SelfCriticalLoss(Reward.from_training_set(DATA, VOCABULARY), LONGEST)(net, batch_of(*[0, 1] * 50), 1.0)
    loss.backward()
    assert net.next_word.linear.bias.grad[END] > 0  # descent makes captions longer
    with torch.no_grad():
        net.next_word.linear.bias[END] = 1000.0
    assert SelfCriticalLoss(Reward.from_training_set(DATA, VOCABULARY), LONGEST)(net, batch_of(0, 1), 1.0).item() == 0


def test_greedy_caption_has_no_dropout_and_mode_is_restored():
    net = NETS["show-tell"](0.9).double()
    plain, rewarded = net.eval(), []
    best = decode_greedily(plain, plain.images(batch_of(0, 1, 2).regions), LONGEST).numbers

    def reward(numbers, image):
        rewarded.append(numbers[3:, : best.shape[1]])
        return np.zeros(len(image))

    for training in (True, False):
        net.train(training)
        for _ in range(5):
            SelfCriticalLoss(reward, LONGEST)(net, batch_of(0, 1, 2), 1.0)
        assert net.training is training
    assert all((numbers == best.numpy()).all() for numbers in rewarded)


def test_made_objective_counts_ends_as_its_option_says(net, monkeypatch):
    """The loss uses the reward with or without ends, and the usual maximum length."""
    caption_values = score_caption(net, batch_of(0).regions, VOCABULARY.encode_rows(["dog a"])[0][1:])
    monkeypatch.setattr(
        self_critical, "decode_greedily", lambda net, encoded, longest: DecodedCaptions(torch.tensor([[END]]), torch.zeros(1, 1))
    )
    monkeypatch.setattr(self_critical, "sample_captions", lambda net, encoded, longest: lengths.append(longest) or caption_values)
    lengths, losses = [], []
    for options, end in (({}, True), ({"end": True}, True), ({"end": False}, False)):
        objective = make_objective(*parse_objective({"name": "self-critical", **options}, "mine"), DATA, VOCABULARY)
        losses.append(objective(net, batch_of(0), 1.0).item())
        reward = Reward.from_training_set(DATA, VOCABULARY, end)(caption_values.numbers.numpy(), np.array([0]))
        assert losses[-1] == pytest.approx(-reward[0] * caption_values.log_likelihood.item())
    assert losses[0] == losses[1] != losses[2]
    assert set(lengths) == {MAX_CAPTION_WORDS}
