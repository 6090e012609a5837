"""What a caption is worth: the same as by the metric, for any captions, however they are repeated, empty or unheard of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.tokenise import tokenise
from crossmatch.diorama.world import Diorama
from crossmatch.models.zoo.inputs import BEGIN, END, PAD, UNKNOWN, Vocabulary
from crossmatch.train.data import PixelStore, TrainingSet
from crossmatch.train.reward import STOP, KnownReferences, Reward

LAST = "</s>"  # in these texts no token, so that it can stand for the end


def by_the_metric(captions, image, references, end=False):
    """CIDEr-D of each caption by itself, with the document frequencies of all references; an end is written as a token.

    A caption that was cut is marked by a last word "CUT", which is left out, and has no end.
    """

    def tokens(text):
        cut = text.endswith(" CUT")
        return [*tokenise(text.removesuffix(" CUT")), *([LAST] if end and not cut else [])]

    told = [[tokens(text) for text in own] for own in references]
    frequencies = Frequencies.of(Corpus.of_tokens([()] * len(told), told))
    alone = [Corpus.of_tokens([tokens(text)], [told[i]]) for text, i in zip(captions, image, strict=True)]
    return np.asarray([cider_d(corpus, frequencies)[0].value for corpus in alone])


texts = st.lists(st.sampled_from(["a", "a", "dog", "cat", "runs", "cannot", "t-shirt"]), max_size=7).map(" ".join)
some = st.lists(st.lists(texts, min_size=1, max_size=3), min_size=2, max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.data(), some, st.booleans())
def test_it_is_cider_d_by_the_metric(data, references, end):
    word = st.sampled_from(["a", "dog", "cat", "runs", "cannot", "zebra", "yak", "T-shirt."])
    captions = data.draw(st.lists(st.lists(word, max_size=7).map(" ".join), min_size=1, max_size=6))
    image = [data.draw(st.integers(0, len(references) - 1)) for _ in captions]
    found = KnownReferences.of(references, end).cider_d_of(captions, image)
    np.testing.assert_allclose(found, by_the_metric(captions, image, references, end), rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def world():
    """Scenes in another order than their captions, one of which has none."""
    made = Diorama.make("train", 30).collection
    links = made.links[made.links[:, 0] != 7]
    return TrainingSet(PixelStore(np.zeros((30, 2, 2, 3), np.uint8)), made.captions, links[::-1])


def captions_of(data, image):
    return [data.captions[n] for n in data.links[data.links[:, 0] == image, 1].tolist()]


def references_of(data):
    """Those of each image that has some, and its place among them."""
    place = {i: n for n, i in enumerate(sorted(set(data.links[:, 0].tolist())))}
    return place, [captions_of(data, i) for i in place]


@pytest.mark.parametrize("end", [True, False])
def test_captions_as_word_numbers_are_worth_what_their_texts_are(world, end):
    """With duplicated images, captions of another image, words in any order, and captions that were cut: those have no end."""
    vocabulary = Vocabulary.of(world.captions)
    reward, rng = Reward.of(world, vocabulary, end), np.random.default_rng(0)
    image = rng.choice(world.links[:, 0], 60)
    told = [captions_of(world, i)[0] if n % 2 else world.captions[rng.integers(150)] for n, i in enumerate(image)]
    told = [" ".join(rng.permutation(text.split())) if n % 3 == 0 else text for n, text in enumerate(told)]
    numbers = vocabulary.numbered(told).numbers.numpy()
    numbers[::5][numbers[::5] == END] = PAD
    said = [" ".join(vocabulary.words[n - 4] for n in row if n >= 4) for row in numbers.tolist()]
    said = [text if n % 5 else f"{text} CUT" for n, text in enumerate(said)]
    place, references = references_of(world)
    expected = by_the_metric(said, [place[i] for i in image.tolist()], references, end)
    np.testing.assert_allclose(reward(numbers, image), expected, rtol=0, atol=1e-9)
    assert expected[::5].max() > 1


@pytest.mark.parametrize("tail", ["in the", "in a", "with a", "and a"])
def test_words_that_lead_nowhere_are_no_longer_worth_more(tail):
    """A short true caption is prolonged by words that many references have: by the metric it gains, where its end counts it loses.

    Short, since a caption that is long enough loses either way; held against the other four, as it would else be perfect.
    """
    world = Diorama.make("train", 100).collection
    own = [[world.captions[n].rstrip(".") for i, n in world.links if i == image] for image in range(100)]
    told = [sorted(texts, key=lambda text: len(text.split()))[1] for texts in own]
    others = [[text for text in texts if text != said] for texts, said in zip(own, told, strict=True)]
    gain = {}
    for end in (True, False):
        known = KnownReferences.of(others, end)
        plain, dangling = (known.cider_d_of(texts, range(100)) for texts in (told, [f"{text} {tail}" for text in told]))
        gain[end] = (dangling - plain).mean()
    assert gain[True] < -0.01
    assert gain[False] > 0.01


def test_what_comes_after_the_end_and_where_it_begins_do_not_count_and_the_end_does(world):
    vocabulary = Vocabulary.of(world.captions)
    image = world.links[:1, 0]
    (row,) = vocabulary.rows([captions_of(world, image[0])[0]])
    for end in (True, False):
        reward = Reward.of(world, vocabulary, end)
        whole = reward(np.asarray([row]), image)
        assert whole > 1
        assert reward(np.asarray([row[1:]]), image) == whole
        assert reward(np.asarray([[*row, 9, 9, END, 5]]), image) == whole
        cut = reward(np.asarray([[*row[1:-1], PAD, PAD]]), image)
        assert cut < whole if end else cut == whole


def test_captions_that_say_nothing_are_worth_nothing(world):
    reward, image = Reward.of(world, Vocabulary.of(world.captions)), world.links[:4, 0]
    rows = np.asarray([[END, PAD, PAD], [END, 5, 6], [BEGIN, END, PAD], [UNKNOWN, UNKNOWN, END]])
    assert reward(rows, image).tolist() == [0, 0, 0, 0]
    assert reward(rows[:, :0], image).tolist() == [0, 0, 0, 0]


def test_an_unknown_word_costs_and_a_word_of_another_vocabulary_is_unknown(world):
    more = Vocabulary((*Vocabulary.of(world.captions).words, "zzz"))
    reward, image = Reward.of(world, more), world.links[:1, 0]
    (row,) = more.rows([captions_of(world, image[0])[0]])
    good = reward(np.asarray([row]), image)
    spoilt = [reward(np.asarray([[*row[:-1], word, END]]), image) for word in (UNKNOWN, len(more) - 1)]
    assert spoilt[0] == spoilt[1] < good


@given(st.lists(st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True) | st.sampled_from(["cannot", "st", "e", "no", "am"]), max_size=6))
def test_words_without_punctuation_are_cut_one_by_one(words):
    """By which a vocabulary can be cut once, instead of every caption."""
    assert tokenise(" ".join(words)) == [token for word in words for token in tokenise(word)]


def test_n_grams_of_every_image_tell_nothing():
    for end in (True, False):
        known = KnownReferences.of([["a dog"], ["a dog"]], end)
        assert known.cider_d_of(["a dog", "a cat"], [0, 1]).tolist() == [0, 0]


def test_a_text_cannot_pretend_to_have_ended():
    known = KnownReferences.of([["a dog", "the end"], ["a cat"]], end=True)
    assert STOP in known.tokens
    assert {STOP} == {token for token in known.tokens if tokenise(token) != [token]}
