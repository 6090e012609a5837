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
from crossmatch.train.reward import KnownReferences, Reward


def by_the_metric(captions, image, references):
    """CIDEr-D of each caption by itself, with the document frequencies of all references."""
    whole = Corpus.of({str(n): "" for n in range(len(references))}, {str(n): own for n, own in enumerate(references)})
    frequencies = Frequencies.of(whole)
    alone = [Corpus.of({"x": text}, {"x": references[i]}) for text, i in zip(captions, image, strict=True)]
    return np.asarray([cider_d(corpus, frequencies)[0].value for corpus in alone])


texts = st.lists(st.sampled_from(["a", "a", "dog", "cat", "runs", "cannot", "t-shirt"]), max_size=7).map(" ".join)
some = st.lists(st.lists(texts, min_size=1, max_size=3), min_size=2, max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.data(), some)
def test_it_is_cider_d_by_the_metric(data, references):
    word = st.sampled_from(["a", "dog", "cat", "runs", "cannot", "zebra", "yak", "T-shirt."])
    captions = data.draw(st.lists(st.lists(word, max_size=7).map(" ".join), min_size=1, max_size=6))
    image = [data.draw(st.integers(0, len(references) - 1)) for _ in captions]
    found = KnownReferences.of(references).cider_d_of(captions, image)
    np.testing.assert_allclose(found, by_the_metric(captions, image, references), rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def world():
    """Scenes in another order than their captions, one of which has none."""
    made = Diorama.make("train", 30).collection
    links = made.links[made.links[:, 0] != 7]
    return TrainingSet(PixelStore(np.zeros((30, 2, 2, 3), np.uint8)), made.captions, links[::-1])


def captions_of(data, image):
    return [data.captions[n] for n in data.links[data.links[:, 0] == image, 1].tolist()]


def test_captions_as_word_numbers_are_worth_what_their_texts_are(world):
    """With duplicated images, captions of another image, and words in any order."""
    vocabulary = Vocabulary.of(world.captions)
    reward, rng = Reward.of(world, vocabulary), np.random.default_rng(0)
    image = rng.choice(world.links[:, 0], 60)
    told = [captions_of(world, i)[0] if n % 2 else world.captions[rng.integers(150)] for n, i in enumerate(image)]
    told = [" ".join(rng.permutation(text.split())) if n % 3 == 0 else text for n, text in enumerate(told)]
    numbers = vocabulary.numbered(told).numbers.numpy()
    said = [" ".join(vocabulary.words[n - 4] for n in row if n >= 4) for row in numbers.tolist()]
    place = {i: n for n, i in enumerate(sorted(set(world.links[:, 0].tolist())))}
    expected = by_the_metric(said, [place[i] for i in image.tolist()], [captions_of(world, i) for i in place])
    np.testing.assert_allclose(reward(numbers, image), expected, rtol=0, atol=1e-9)
    assert expected.max() > 1


def test_what_comes_after_the_end_and_where_it_begins_do_not_count(world):
    vocabulary = Vocabulary.of(world.captions)
    reward, image = Reward.of(world, vocabulary), world.links[:1, 0]
    (row,) = vocabulary.rows([captions_of(world, image[0])[0]])
    plain = reward(np.asarray([row]), image)
    assert plain > 1
    assert reward(np.asarray([row[1:]]), image) == plain
    assert reward(np.asarray([[*row, 9, 9, END, 5]]), image) == plain
    assert reward(np.asarray([[*row[1:-1], PAD, PAD]]), image) == plain


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
    known = KnownReferences.of([["a dog"], ["a dog"]])
    assert known.cider_d_of(["a dog", "a cat"], [0, 1]).tolist() == [0, 0]
