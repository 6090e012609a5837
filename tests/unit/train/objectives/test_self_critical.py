"""Self-critical training: its gradient on average over all captions is that of the expected reward, summed up exactly."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.decoding import LONGEST_TOLD, Told, greedy, without_unknown  # noqa: E402
from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, PAD, Regions, Vocabulary, Words  # noqa: E402
from crossmatch.models.zoo.show_tell import ShowTell, ShowTellConfig  # noqa: E402
from crossmatch.models.zoo.up_down import UpDown, UpDownConfig  # noqa: E402
from crossmatch.train.batch import Batch  # noqa: E402
from crossmatch.train.data import ArrayStore, TrainingSet  # noqa: E402
from crossmatch.train.dual import reproducible  # noqa: E402
from crossmatch.train.objectives import objective, self_critical  # noqa: E402
from crossmatch.train.objectives.self_critical import SelfCritical, surrogate  # noqa: E402
from crossmatch.train.reward import Reward  # noqa: E402

CAPTIONS = ("a dog", "dog a a", "a cat", "cat", "a")
LINKS = np.array([[0, 0], [0, 1], [1, 2], [1, 3], [2, 4]])
VOCABULARY = Vocabulary.of(CAPTIONS)  # a, cat, dog
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
    regions = Regions(regions.features.double(), regions.real, regions.boxes.double())
    return Batch(regions, Words(torch.full((len(images), 3), END)), torch.tensor(images))


def all_captions():
    """Everything that can be said in at most so many words: captions that end, and beginnings that were cut."""
    words = range(FIRST_WORD, len(VOCABULARY))
    ended = [(*said, END) for length in range(LONGEST) for said in product(words, repeat=length)]
    return [*ended, *product(words, repeat=LONGEST)]


def spelt(net, regions, caption):
    """The log-probability of each word of one caption as it may be drawn, step by step."""
    encoded = net.images(regions)
    state, before, each = net.begin(encoded), BEGIN, []
    for word in caption:
        said, state = net.step(encoded, state, torch.tensor([before]))
        each.append(without_unknown(said).log_softmax(dim=1)[0, word])
        before = word
    filled = [*caption, *[PAD] * (LONGEST - len(caption))]
    return Told(torch.tensor([filled]), torch.stack([*each, *[torch.zeros(()).double()] * (LONGEST - len(each))]).unsqueeze(0))


def slopes(value, net):
    return torch.cat([slope.flatten() for slope in torch.autograd.grad(value, list(net.parameters()))])


def expected_reward(net, images):
    """Of a caption that is drawn, exactly: the mean over the images of Σ p(caption) · reward."""
    reward, total = Reward.of(DATA, VOCABULARY), 0.0
    for image in images:
        for caption in all_captions():
            told = spelt(net, batch_of(image).regions, caption)
            total = total + told.log_likelihood.exp()[0] * float(reward(told.numbers.numpy(), np.array([image]))[0])
    return total / len(images)


def test_all_captions_are_all_there_is(net):
    total = sum(spelt(net, batch_of(1).regions, caption).log_likelihood.exp().item() for caption in all_captions())
    assert len(all_captions()) == 1 + 3 + 9 + 27
    assert total == pytest.approx(1, abs=1e-12)


def test_the_gradient_is_that_of_the_expected_reward(net, monkeypatch):
    """Every caption is drawn once and counts by its probability, so that there is no noise: equal to the last digits."""
    criticise, images = SelfCritical(Reward.of(DATA, VOCABULARY), LONGEST), (0, 1, 2)
    exact = slopes(-expected_reward(net, images), net)
    mean = torch.zeros_like(exact)
    for image in images:
        for caption in all_captions():
            told = spelt(net, batch_of(image).regions, caption)
            monkeypatch.setattr(self_critical, "sampled", lambda net, encoded, longest, told=told: told)
            loss = criticise(net, batch_of(image), {})
            mean += slopes(loss, net) * told.log_likelihood.exp().item() / len(images)
    assert exact.abs().max() > 1e-3
    torch.testing.assert_close(mean, exact, rtol=1e-9, atol=1e-12)


def test_the_expected_reward_has_this_slope_by_finite_differences(net):
    weight, step = net.next_word.linear.bias, 1e-5
    (exact,) = torch.autograd.grad(expected_reward(net, (0,)), [weight])
    for at in range(FIRST_WORD - 1, len(VOCABULARY)):
        with torch.no_grad():
            found = []
            for way in (step, -2 * step):
                weight[at] += way
                found.append(float(expected_reward(net, (0,))))
            weight[at] += step
        assert (found[0] - found[1]) / (2 * step) == pytest.approx(float(exact[at]), abs=1e-7)


def test_captions_that_are_drawn_come_near_it(net):
    """The whole way, with chance: 40,000 captions of one image, a batch of duplicates."""
    exact = slopes(-expected_reward(net, (0,)), net)
    loss = SelfCritical(Reward.of(DATA, VOCABULARY), LONGEST)(net, batch_of(*[0] * 40_000), {})
    found = slopes(loss, net)
    assert float(torch.cosine_similarity(found, exact, dim=0)) > 0.99
    assert float((found - exact).norm()) < 0.1 * float(exact.norm())


def test_a_batch_is_the_mean_of_its_images(net):
    """Sums over words, means over captions; by a loop."""
    each, reward, best = torch.randn(4, 3), torch.rand(4), torch.rand(4)
    loop = 0.0
    for b in range(4):
        loop -= float(reward[b] - best[b]) * sum(float(each[b, t]) for t in range(3)) / 4
    assert float(surrogate(each, reward, best)) == pytest.approx(loop, rel=1e-5)


def test_equal_rewards_teach_nothing(net):
    loss = SelfCritical(lambda numbers, image: np.ones(len(image)), LONGEST)(net, batch_of(0, 1, 1), {})
    assert loss.item() == 0
    assert not slopes(loss, net).any()


def test_the_drawn_captions_come_first_and_are_compared_with_the_greedy_ones(net):
    seen = {}

    def reward(numbers, image):
        seen.update(numbers=numbers, image=image)
        return np.arange(len(image), dtype=float)

    batch = batch_of(2, 0, 0)
    SelfCritical(reward, LONGEST)(net, batch, {})
    assert seen["image"].tolist() == [2, 0, 0, 2, 0, 0]
    best = greedy(net, net.images(batch.regions), LONGEST).numbers.numpy()
    assert (seen["numbers"][3:, : best.shape[1]] == best).all()
    assert (seen["numbers"][3:, best.shape[1] :] == PAD).all()


def test_captions_that_are_empty_are_learnt_from(net):
    """A network that says nothing at first: what it draws is empty, worth 0, and a caption that says something beats it."""
    with torch.no_grad():
        net.next_word.linear.bias[END] = 3.0
    assert greedy(net, net.images(batch_of(0).regions), LONGEST).numbers.tolist() == [[END]]
    loss = SelfCritical(Reward.of(DATA, VOCABULARY), LONGEST)(net, batch_of(*[0, 1] * 50), {})
    loss.backward()
    assert net.next_word.linear.bias.grad[END] > 0  # downhill it ends less soon
    with torch.no_grad():
        net.next_word.linear.bias[END] = 1000.0
    assert SelfCritical(Reward.of(DATA, VOCABULARY), LONGEST)(net, batch_of(0, 1), {}).item() == 0


def test_the_greedy_caption_is_told_without_dropout_and_the_mode_stays():
    net = NETS["show-tell"](0.9).double()
    plain, rewarded = net.eval(), []
    best = greedy(plain, plain.images(batch_of(0, 1, 2).regions), LONGEST).numbers

    def reward(numbers, image):
        rewarded.append(numbers[3:, : best.shape[1]])
        return np.zeros(len(image))

    for training in (True, False):
        net.train(training)
        for _ in range(5):
            SelfCritical(reward, LONGEST)(net, batch_of(0, 1, 2), {})
        assert net.training is training
    assert all((each == best.numpy()).all() for each in rewarded)


def test_by_its_name_it_is_made_for_a_training_set_and_counts_ends_as_the_recipe_says(net, monkeypatch):
    """The loss is that of the reward with ends or without, over captions that are as long as anywhere."""
    told = spelt(net, batch_of(0).regions, VOCABULARY.rows(["dog a"])[0][1:])
    monkeypatch.setattr(self_critical, "greedy", lambda net, encoded, longest: Told(torch.tensor([[END]]), torch.zeros(1, 1)))
    monkeypatch.setattr(self_critical, "sampled", lambda net, encoded, longest: asked.append(longest) or told)
    asked, made, losses = [], objective("self-critical", DATA, VOCABULARY), []
    for options, end in (({}, True), ({"end": True}, True), ({"end": False}, False)):
        losses.append(made(net, batch_of(0), options).item())
        reward = Reward.of(DATA, VOCABULARY, end)(told.numbers.numpy(), np.array([0]))
        assert losses[-1] == pytest.approx(-reward[0] * told.log_likelihood.item())
    assert losses[0] == losses[1] != losses[2]
    assert set(asked) == {LONGEST_TOLD}
