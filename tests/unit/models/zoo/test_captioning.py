"""A captioner as a model: likelihoods of texts alone and in company, captions back from their numbers, and its folder."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials
from crossmatch.diorama.world import Diorama

torch = pytest.importorskip("torch")

from crossmatch.models import make_model  # noqa: E402
from crossmatch.models.abilities import abilities, trial_scores_of  # noqa: E402
from crossmatch.models.likelihood import ByLikelihood, Captioner, as_scorer  # noqa: E402
from crossmatch.models.zoo import captioning  # noqa: E402
from crossmatch.models.zoo import model as module  # noqa: E402
from crossmatch.models.zoo.captioning import CaptioningModel, blocks  # noqa: E402
from crossmatch.models.zoo.decoding import LONGEST_TOLD, beam, greedy, sampled  # noqa: E402
from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, LONGEST, PAD, UNKNOWN, Vocabulary  # noqa: E402
from crossmatch.models.zoo.model import ZooConfig, load, made  # noqa: E402

NETS = ("show-tell", "show-att-tell", "up-down")
TEXTS = ["", "A red cat.", "Wholly unheard-of gibberish", "a cat " * 40, "Two blue cups on a table in the snow.", "a red cat"]
REGIONS, PIXELS = {"name": "namer", "side": 16}, {"kind": "pixels", "side": 16, "width": 4}


def built(name, features=REGIONS):
    torch.manual_seed(3)
    sizes = {"dimensions": 16, "word_dimensions": 8, **({} if name == "show-tell" else {"attention": 8})}
    words = Vocabulary.of([TEXTS[1], TEXTS[4]]).words
    model = made(ZooConfig(name, sizes, words, features))
    with torch.no_grad():  # as if trained: images and words make a difference
        model.match.next_word.linear.weight.mul_(20)
        model.match.next_word.linear.bias[END] -= 2
        for values in model.net.look.parameters():
            values.mul_(2)
    return model


@pytest.fixture(scope="module")
def pictures():
    world = Diorama.make("val", images=6)
    return [world.picture(n, 64) for n in range(6)]


@pytest.fixture(params=NETS)
def model(request):
    return built(request.param)


def test_a_captioner_knows_likelihoods_and_tells_captions(model):
    assert isinstance(model, CaptioningModel)
    assert isinstance(model, Captioner)
    assert abilities(model) == ("log-likelihood", "caption")
    assert isinstance(as_scorer(model, None, others=False), ByLikelihood)


@pytest.mark.parametrize("features", [PIXELS, REGIONS], ids=["pixels", "regions"])
@pytest.mark.parametrize("name", NETS)
def test_a_likelihood_does_not_depend_on_its_company(name, features, pictures, monkeypatch):
    model = built(name, features)
    together = model.log_likelihood(pictures, TEXTS)
    alone = np.array([[model.log_likelihood([image], [text])[0, 0] for text in TEXTS] for image in pictures[:2]])
    # a text of 60 words has a log-likelihood of hundreds of nats, of which float32 keeps seven digits
    assert together[:2] == pytest.approx(alone, abs=1e-5, rel=1e-6)
    for block, images in ((1, 2), (1 << 15, 4), (1 << 20, 1)):
        monkeypatch.setattr(captioning, "BLOCK", block)
        monkeypatch.setattr(module, "IMAGES", images)
        assert model.log_likelihood(pictures, TEXTS) == pytest.approx(together, abs=1e-5, rel=1e-6)
    assert model.log_likelihood(pictures[::-1], TEXTS[::-1]) == pytest.approx(together[::-1, ::-1], abs=1e-5, rel=1e-6)
    assert together[:, 1] == pytest.approx(together[:, 5], abs=1e-5)  # the same words
    assert together.std(axis=0).min() > 1e-3  # it does look
    assert (together < 0).all()


def test_a_likelihood_is_the_sum_over_the_words(model, pictures):
    seen = model.see(pictures[:2])
    with torch.inference_mode():
        for at, text in enumerate(TEXTS):
            words = model.read([text, text])
            slow = model.match.told(model.match.images(seen), words).sum(dim=1)
            assert model.log_likelihood(pictures[:2], TEXTS)[:, at] == pytest.approx(slow.numpy(), abs=1e-5, rel=1e-6)
            assert model.lengths([text]) == words.lengths[0] - 1
    assert model.lengths(TEXTS).tolist() == [1, 4, 5, LONGEST + 1, 10, 4]


def test_all_pairs_hold_the_pairs(model, pictures):
    chosen = [pictures[n % 3] for n in range(6)]
    found = model.log_likelihood_of_pairs(chosen, TEXTS)
    assert found == pytest.approx(model.log_likelihood(chosen, TEXTS).diagonal(), abs=1e-5, rel=1e-6)
    assert model.log_likelihood_of_pairs([], []).shape == (0,)
    with pytest.raises(CrossmatchError, match="as many of one"):
        model.log_likelihood_of_pairs(chosen, TEXTS[:2])


def test_regions_are_compared_by_the_likelihood_per_word(model, pictures):
    found, whole = model.compare(model.see(pictures), TEXTS), model.log_likelihood(pictures, TEXTS)
    assert found == pytest.approx(whole / [1, 4, 5, LONGEST + 1, 10, 4], abs=1e-5)
    assert found == pytest.approx(ByLikelihood(model).score(pictures, TEXTS), abs=1e-5)
    assert ByLikelihood(model).kind == "per-token"
    assert model.log_likelihood([], TEXTS).shape == (0, 6)
    assert model.log_likelihood(pictures, []).shape == (6, 0)


def test_each_image_and_each_text_is_encoded_once(model, pictures, monkeypatch):
    seen, told = [], []
    images, tell = model.match.images, model.match.told
    monkeypatch.setattr(model.match, "images", lambda regions: seen.append(len(regions)) or images(regions))
    monkeypatch.setattr(model.match, "told", lambda encoded, words: told.append(len(words)) or tell(encoded, words))
    model.log_likelihood([pictures[0], pictures[1], pictures[0]], [TEXTS[1], TEXTS[4], TEXTS[1]])
    assert sum(seen) == 2
    assert sum(told) == 4


def test_blocks_cover_all_pairs_once_and_are_small(monkeypatch):
    monkeypatch.setattr(captioning, "BLOCK", 100)
    for images, sizes in ((1, [7, 20, 60, 300]), (5, [1, 1, 9, 30, 120]), (200, [1, 2]), (0, [4]), (3, [])):
        count = np.zeros((images, len(sizes)))
        for rows, cut in blocks(images, sizes):
            count[rows, cut] += 1
            pairs = (rows.stop - rows.start) * (cut.stop - cut.start)
            assert pairs == 1 or pairs * sizes[cut.stop - 1] <= 100
        assert (count == 1).all()


def test_captions_are_those_of_the_decoding(model, pictures):
    with torch.inference_mode():
        seen = model.match.images(model.see(pictures))
        said = {
            "greedy": greedy(model.match, seen, 9),
            "beam": beam(model.match, seen, 9, 3, 0.5),
            "sampled": sampled(model.match, seen, 9, 2.0, torch.Generator().manual_seed(4)),
        }
    options = {"width": 3, "length_penalty": 0.5, "temperature": 2.0, "seed": 4, "longest": 9}
    for way, told in said.items():
        captions = model.caption(pictures, decoding=way, **options)
        assert captions == model.unread(told.numbers)
        assert captions == model.caption_regions(model.see(pictures), decoding=way, **options)
    assert len(set(model.caption(pictures, decoding="sampled", temperature=2.0))) > 1


@pytest.mark.parametrize("way", ["greedy", "beam", "sampled"])
def test_captions_do_not_depend_on_how_many_are_told_at_once(model, pictures, way, monkeypatch):
    together = model.caption(pictures, decoding=way, longest=8)
    monkeypatch.setattr(module, "IMAGES", 4)
    assert model.caption(pictures, decoding=way, longest=8) == together
    assert model.caption([], decoding=way) == []


def test_an_unknown_way_to_caption_is_refused(model, pictures):
    with pytest.raises(WrongWords, match="one of greedy, sampled, beam"):
        model.caption(pictures, decoding="beams")
    with pytest.raises(WrongWords, match=r"no key 'widht'\. Did you mean 'width'"):
        model.caption_regions(model.see(pictures), widht=3)


def test_captions_that_do_not_end_are_cut_at_one_length_and_are_known(model, pictures):
    """As long as what is read of a text, so that everything that is taught may be told."""
    seen = model.see(pictures)
    for bias, longest, cut in ((-100, None, True), (-100, 7, True), (100, None, False)):
        with torch.no_grad():
            model.match.next_word.linear.bias[END] = bias
        many = longest or LONGEST_TOLD
        for way in ("greedy", "beam", "sampled"):
            told = model.caption_regions(seen, decoding=way, longest=longest)
            assert {len(text.split()) for text in told} == {many if cut else 0}
            assert model.cut_short(told, many).tolist() == [cut] * len(pictures)
    whole = model.unread(model.read(["a cat " * 40]).numbers)[0]
    assert len(whole.split()) == LONGEST == LONGEST_TOLD - 1
    assert not model.cut_short([whole])[0]
    assert model.filled(["a cat", whole, f"{whole} cat", ""]).tolist() == [False, True, False, False]


def test_a_caption_that_ends_at_the_last_step_is_whole_and_counted(model, pictures, monkeypatch):
    """Its end is the last of the words that it may have, so that it was never cut, and one more word would have been."""
    steps, step = [], type(model.match).step

    def late(self, encoded, state, words):
        said, state = step(self, encoded, state, words)
        steps.append(0)
        last = len(steps) == 4
        said = torch.full_like(said, -torch.inf) if last else said.clone()
        said[:, END] = 0.0 if last else -torch.inf
        return said, state

    monkeypatch.setattr(type(model.match), "step", late)
    for way in ("greedy", "beam", "sampled"):
        steps.clear()
        told = model.caption_regions(model.see(pictures), decoding=way, longest=4)
        assert model.filled(told, 4).all()
        assert not model.cut_short(told, 4).any()


def test_numbers_are_read_back_to_their_end(model):
    known = model.vocabulary.words
    rows = [[BEGIN, FIRST_WORD + 1, UNKNOWN, FIRST_WORD, END, FIRST_WORD], [END, PAD, PAD, PAD, PAD, PAD], [FIRST_WORD] * 6]
    assert model.unread(torch.tensor(rows)) == [f"{known[1]} unk {known[0]}", "", " ".join([known[0]] * 6)]
    texts = ["a red cat", "two blue cups on a table"]
    assert model.unread(model.read(texts).numbers) == texts


def test_a_folder_gives_the_same_captioner_back(model, pictures, tmp_path):
    model.save(tmp_path)
    for again in (make_model(str(tmp_path)), load(tmp_path, model.config.family)):
        assert again.signature == model.signature
        assert np.array_equal(again.log_likelihood(pictures, TEXTS), model.log_likelihood(pictures, TEXTS))
        assert again.caption(pictures) == model.caption(pictures)


def test_trials_are_answered_by_the_likelihood_per_word(model, pictures):
    texts = [TEXTS[1], TEXTS[4]]
    trials = Trials(["t0", "t1"], [["0", "1"], ["2", "3"]], [texts[:1], texts[1:]], ["", ""], open_image=lambda n: pictures[int(n)])
    found = trial_scores_of(ByLikelihood(model), trials)
    for t, images in enumerate(([0, 1], [2, 3])):
        whole = model.log_likelihood([pictures[n] for n in images], [texts[t]])
        assert found[t, 0] == pytest.approx(whole[:, 0] / model.lengths([texts[t]]), abs=1e-5)
