"""Captioners as models: log-likelihoods of texts, generated captions, and model folders."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trials import Trials
from crossmatch.diorama.world import Diorama

torch = pytest.importorskip("torch")

from crossmatch.evaluation.model_scores import get_trial_scores
from crossmatch.models import make_model
from crossmatch.models.abilities import list_abilities
from crossmatch.models.likelihood_scoring import Captioner, LikelihoodScorer, as_scorer
from crossmatch.models.zoo import captioning_model
from crossmatch.models.zoo import trained_model as module
from crossmatch.models.zoo.captioning_model import CaptioningModel, pair_blocks
from crossmatch.models.zoo.decoding import MAX_CAPTION_WORDS, beam_search, decode_greedily, sample_captions
from crossmatch.models.zoo.network_inputs import BEGIN, END, FIRST_WORD, MAX_WORDS, PAD, UNKNOWN, Vocabulary
from crossmatch.models.zoo.trained_model import ZooConfig, build_model, load_zoo_model

NETS = ("show-tell", "show-att-tell", "up-down")
DECODINGS = ("greedy", "beam", "sampled")
TEXTS = ["", "A red cat.", "Wholly unheard-of gibberish", "a cat " * 40, "Two blue cups on a table in the snow.", "a red cat"]
REGIONS, PIXELS = {"name": "namer", "side": 16}, {"kind": "pixels", "side": 16, "width": 4}


def build(name, features=REGIONS):
    torch.manual_seed(3)
    sizes = {"dimensions": 16, "word_dimensions": 8, **({} if name == "show-tell" else {"attention": 8})}
    words = Vocabulary.from_texts([TEXTS[1], TEXTS[4]]).words
    model = build_model(ZooConfig(name, sizes, words, features))
    with torch.no_grad():  # as after training: images and words have an effect
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
    return build(request.param)


def test_captioner_has_likelihoods_and_captions(model):
    assert isinstance(model, CaptioningModel)
    assert isinstance(model, Captioner)
    assert list_abilities(model) == ("log-likelihood", "caption")
    assert isinstance(as_scorer(model, None, has_other_abilities=False), LikelihoodScorer)


@pytest.mark.parametrize("features", [PIXELS, REGIONS], ids=["pixels", "regions"])
@pytest.mark.parametrize("name", NETS)
def test_likelihoods_do_not_depend_on_the_batch(name, features, pictures, monkeypatch):
    model = build(name, features)
    together = model.log_likelihood(pictures, TEXTS)
    alone = np.array([[model.log_likelihood([image], [text])[0, 0] for text in TEXTS] for image in pictures[:2]])
    # a text of 60 words has a log-likelihood of hundreds of nats; float32 has seven digits
    assert together[:2] == pytest.approx(alone, abs=1e-5, rel=1e-6)
    for block, images in ((1, 2), (1 << 15, 4), (1 << 20, 1)):
        monkeypatch.setattr(captioning_model, "BLOCK", block)
        monkeypatch.setattr(module, "IMAGE_BATCH", images)
        assert model.log_likelihood(pictures, TEXTS) == pytest.approx(together, abs=1e-5, rel=1e-6)
    assert model.log_likelihood(pictures[::-1], TEXTS[::-1]) == pytest.approx(together[::-1, ::-1], abs=1e-5, rel=1e-6)
    assert together[:, 1] == pytest.approx(together[:, 5], abs=1e-5)  # the same words
    assert together.std(axis=0).min() > 1e-3  # images have an effect
    assert (together < 0).all()


def test_likelihood_is_the_sum_over_words(model, pictures):
    regions, likelihoods = model.extract_regions(pictures[:2]), model.log_likelihood(pictures[:2], TEXTS)
    with torch.inference_mode():
        for at, text in enumerate(TEXTS):
            words = model.read([text, text])
            expected = model.match.word_log_probabilities(model.match.images(regions), words).sum(dim=1)
            assert likelihoods[:, at] == pytest.approx(expected.numpy(), abs=1e-5, rel=1e-6)
            assert model.lengths([text]) == words.lengths[0] - 1
    assert model.lengths(TEXTS).tolist() == [1, 4, 5, MAX_WORDS + 1, 10, 4]


def test_pair_likelihoods_are_the_diagonal(model, pictures):
    chosen = [pictures[n % 3] for n in range(6)]
    likelihoods = model.log_likelihood_of_pairs(chosen, TEXTS)
    assert likelihoods == pytest.approx(model.log_likelihood(chosen, TEXTS).diagonal(), abs=1e-5, rel=1e-6)
    assert model.log_likelihood_of_pairs([], []).shape == (0,)
    with pytest.raises(CrossmatchError, match="pass equal numbers"):
        model.log_likelihood_of_pairs(chosen, TEXTS[:2])


def test_regions_are_compared_by_the_likelihood_per_word(model, pictures):
    scores, likelihoods = model.compare(model.extract_regions(pictures), TEXTS), model.log_likelihood(pictures, TEXTS)
    assert scores == pytest.approx(likelihoods / [1, 4, 5, MAX_WORDS + 1, 10, 4], abs=1e-5)
    assert scores == pytest.approx(LikelihoodScorer(model).score(pictures, TEXTS), abs=1e-5)
    assert LikelihoodScorer(model).kind == "per-token"
    assert model.log_likelihood([], TEXTS).shape == (0, 6)
    assert model.log_likelihood(pictures, []).shape == (6, 0)


def test_each_image_and_each_text_is_encoded_once(model, pictures, monkeypatch):
    images_encoded, texts_scored = [], []
    encode, score = model.match.images, model.match.word_log_probabilities
    monkeypatch.setattr(model.match, "images", lambda regions: images_encoded.append(len(regions)) or encode(regions))
    monkeypatch.setattr(
        model.match, "word_log_probabilities", lambda encoded, words: texts_scored.append(len(words)) or score(encoded, words)
    )
    model.log_likelihood([pictures[0], pictures[1], pictures[0]], [TEXTS[1], TEXTS[4], TEXTS[1]])
    assert sum(images_encoded) == 2
    assert sum(texts_scored) == 4


def test_blocks_cover_each_pair_once_within_the_limit(monkeypatch):
    monkeypatch.setattr(captioning_model, "BLOCK", 100)
    for images, sizes in ((1, [7, 20, 60, 300]), (5, [1, 1, 9, 30, 120]), (200, [1, 2]), (0, [4]), (3, [])):
        count = np.zeros((images, len(sizes)))
        for rows, cut in pair_blocks(images, sizes):
            count[rows, cut] += 1
            pairs = (rows.stop - rows.start) * (cut.stop - cut.start)
            assert pairs == 1 or pairs * sizes[cut.stop - 1] <= 100
        assert (count == 1).all()


def test_captions_are_those_of_the_decoder(model, pictures):
    with torch.inference_mode():
        encoded = model.match.images(model.extract_regions(pictures))
        expected = {
            "greedy": decode_greedily(model.match, encoded, 9),
            "beam": beam_search(model.match, encoded, 9, 3, 0.5),
            "sampled": sample_captions(model.match, encoded, 9, 2.0, torch.Generator().manual_seed(4)),
        }
    options = {"width": 3, "length_penalty": 0.5, "temperature": 2.0, "seed": 4, "longest": 9}
    for decoding, decoded in expected.items():
        captions = model.caption(pictures, decoding=decoding, **options)
        assert captions == model.decode_words(decoded.numbers)
        assert captions == model.caption_regions(model.extract_regions(pictures), decoding=decoding, **options)
    assert len(set(model.caption(pictures, decoding="sampled", temperature=2.0))) > 1


@pytest.mark.parametrize("decoding", DECODINGS)
def test_captions_do_not_depend_on_the_batch(model, pictures, decoding, monkeypatch):
    together = model.caption(pictures, decoding=decoding, longest=8)
    monkeypatch.setattr(module, "IMAGE_BATCH", 4)
    assert model.caption(pictures, decoding=decoding, longest=8) == together
    assert model.caption([], decoding=decoding) == []


def test_unknown_decoding_options_are_rejected(model, pictures):
    with pytest.raises(UsageError, match="one of greedy, sampled, beam"):
        model.caption(pictures, decoding="beams")
    with pytest.raises(UsageError, match=r"no key 'widht'\. Did you mean 'width'"):
        model.caption_regions(model.extract_regions(pictures), widht=3)


def test_captions_without_end_are_cut_and_counted(model, pictures):
    """The default maximum length is the number of words that are read of a text."""
    regions = model.extract_regions(pictures)
    for bias, longest, cut in ((-100, None, True), (-100, 7, True), (100, None, False)):
        with torch.no_grad():
            model.match.next_word.linear.bias[END] = bias
        most = longest or MAX_CAPTION_WORDS
        for decoding in DECODINGS:
            captions = model.caption_regions(regions, decoding=decoding, longest=longest)
            assert {len(text.split()) for text in captions} == {most if cut else 0}
            assert model.cut_short(captions, most).tolist() == [cut] * len(pictures)
    longest_text = model.decode_words(model.read(["a cat " * 40]).numbers)[0]
    assert len(longest_text.split()) == MAX_WORDS == MAX_CAPTION_WORDS - 1
    assert not model.cut_short([longest_text])[0]
    assert model.filled(["a cat", longest_text, f"{longest_text} cat", ""]).tolist() == [False, True, False, False]


def test_caption_that_ends_at_the_last_step_is_filled_and_not_cut(model, pictures, monkeypatch):
    steps, step = [], type(model.match).step

    def end_at_fourth_step(self, encoded, state, words):
        log_probabilities, state = step(self, encoded, state, words)
        steps.append(0)
        is_last = len(steps) == 4
        log_probabilities = torch.full_like(log_probabilities, -torch.inf) if is_last else log_probabilities.clone()
        log_probabilities[:, END] = 0.0 if is_last else -torch.inf
        return log_probabilities, state

    monkeypatch.setattr(type(model.match), "step", end_at_fourth_step)
    for decoding in DECODINGS:
        steps.clear()
        captions = model.caption_regions(model.extract_regions(pictures), decoding=decoding, longest=4)
        assert model.filled(captions, 4).all()
        assert not model.cut_short(captions, 4).any()


def test_word_numbers_are_decoded_up_to_the_end(model):
    vocabulary = model.vocabulary.words
    rows = [[BEGIN, FIRST_WORD + 1, UNKNOWN, FIRST_WORD, END, FIRST_WORD], [END, PAD, PAD, PAD, PAD, PAD], [FIRST_WORD] * 6]
    assert model.decode_words(torch.tensor(rows)) == [f"{vocabulary[1]} unk {vocabulary[0]}", "", " ".join([vocabulary[0]] * 6)]
    texts = ["a red cat", "two blue cups on a table"]
    assert model.decode_words(model.read(texts).numbers) == texts


def test_saved_captioner_loads_with_equal_results(model, pictures, tmp_path):
    model.save(tmp_path)
    for loaded in (make_model(str(tmp_path)), load_zoo_model(tmp_path, model.config.family)):
        assert loaded.signature == model.signature
        assert np.array_equal(loaded.log_likelihood(pictures, TEXTS), model.log_likelihood(pictures, TEXTS))
        assert loaded.caption(pictures) == model.caption(pictures)


def test_trials_are_scored_by_the_likelihood_per_word(model, pictures):
    texts = [TEXTS[1], TEXTS[4]]
    trials = Trials(["t0", "t1"], [["0", "1"], ["2", "3"]], [texts[:1], texts[1:]], ["", ""], open_image=lambda n: pictures[int(n)])
    scores = get_trial_scores(LikelihoodScorer(model), trials)
    for t, images in enumerate(([0, 1], [2, 3])):
        likelihoods = model.log_likelihood([pictures[n] for n in images], [texts[t]])
        assert scores[t, 0] == pytest.approx(likelihoods[:, 0] / model.lengths([texts[t]]), abs=1e-5)
