"""The CIDEr-D reward equals the metric, for repeated, empty and unknown captions too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.ptb_tokenizer import tokenise
from crossmatch.diorama.world import Diorama
from crossmatch.models.zoo.network_inputs import BEGIN, END, PAD, UNKNOWN, Vocabulary
from crossmatch.train.data.training_set import PixelStore, TrainingSet
from crossmatch.train.objectives.cider_reward import END_TOKEN, ReferenceIndex, Reward

LAST = "</s>"  # the end as a token; no text contains it


def cider_d_by_the_metric(captions, image, references, end=False):
    """CIDEr-D of each caption by itself, with the document frequencies of all references; an end is written as a token.

    A caption that was cut is marked by a last word "CUT", which is left out, and has no end.
    """

    def tokens(text):
        cut = text.endswith(" CUT")
        return [*tokenise(text.removesuffix(" CUT")), *([LAST] if end and not cut else [])]

    references_tokens = [[tokens(text) for text in own] for own in references]
    frequencies = DocumentFrequencies.from_corpus(CaptionCorpus.from_tokens([()] * len(references_tokens), references_tokens))
    alone = [CaptionCorpus.from_tokens([tokens(text)], [references_tokens[i]]) for text, i in zip(captions, image, strict=True)]
    return np.asarray([cider_d(corpus, frequencies)[0].value for corpus in alone])


texts = st.lists(st.sampled_from(["a", "a", "dog", "cat", "runs", "cannot", "t-shirt"]), max_size=7).map(" ".join)
reference_lists = st.lists(st.lists(texts, min_size=1, max_size=3), min_size=2, max_size=4)


@given(st.data(), reference_lists, st.booleans())
def test_index_equals_the_metric(data, references, end):
    word = st.sampled_from(["a", "dog", "cat", "runs", "cannot", "zebra", "yak", "T-shirt."])
    captions = data.draw(st.lists(st.lists(word, max_size=7).map(" ".join), min_size=1, max_size=6))
    image = [data.draw(st.integers(0, len(references) - 1)) for _ in captions]
    scores = ReferenceIndex.from_texts(references, end).cider_d_of_texts(captions, image)
    np.testing.assert_allclose(scores, cider_d_by_the_metric(captions, image, references, end), rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def world():
    """Scenes whose links are in reverse order; one has no captions."""
    collection = Diorama.make("train", 30).collection
    links = collection.links[collection.links[:, 0] != 7]
    return TrainingSet(PixelStore(np.zeros((30, 2, 2, 3), np.uint8)), collection.captions, links[::-1])


def captions_of(data, image):
    return [data.captions[n] for n in data.links[data.links[:, 0] == image, 1].tolist()]


def references_of(data):
    """Those of each image that has some, and its place among them."""
    place = {i: n for n, i in enumerate(sorted(set(data.links[:, 0].tolist())))}
    return place, [captions_of(data, i) for i in place]


@pytest.mark.parametrize("end", [True, False])
def test_reward_of_word_numbers_equals_that_of_texts(world, end):
    """With repeated images, captions of other images, shuffled words, and cut captions, which have no end."""
    vocabulary = Vocabulary.from_texts(world.captions)
    reward, rng = Reward.from_training_set(world, vocabulary, end), np.random.default_rng(0)
    image = rng.choice(world.links[:, 0], 60)
    texts = [captions_of(world, i)[0] if n % 2 else world.captions[rng.integers(150)] for n, i in enumerate(image)]
    texts = [" ".join(rng.permutation(text.split())) if n % 3 == 0 else text for n, text in enumerate(texts)]
    numbers = vocabulary.encode(texts).numbers.numpy()
    numbers[::5][numbers[::5] == END] = PAD
    texts_of_rows = [" ".join(vocabulary.words[n - 4] for n in row if n >= 4) for row in numbers.tolist()]
    texts_of_rows = [text if n % 5 else f"{text} CUT" for n, text in enumerate(texts_of_rows)]
    place, references = references_of(world)
    expected = cider_d_by_the_metric(texts_of_rows, [place[i] for i in image.tolist()], references, end)
    np.testing.assert_allclose(reward(numbers, image), expected, rtol=0, atol=1e-9)
    assert expected[::5].max() > 1


@pytest.mark.parametrize("tail", ["in the", "in a", "with a", "and a"])
def test_dangling_words_cost_if_the_end_counts(tail):
    """A short caption with frequent words appended scores higher by the metric, and lower if the end counts.

    The caption is short, because a long one loses anyway, and is compared with the other four captions.
    """
    world = Diorama.make("train", 100).collection
    own = [[world.captions[n].rstrip(".") for i, n in world.links if i == image] for image in range(100)]
    short_captions = [sorted(texts, key=lambda text: len(text.split()))[1] for texts in own]
    others = [[text for text in texts if text != caption] for texts, caption in zip(own, short_captions, strict=True)]
    gain = {}
    for end in (True, False):
        index = ReferenceIndex.from_texts(others, end)
        plain, dangling = (
            index.cider_d_of_texts(texts, range(100)) for texts in (short_captions, [f"{text} {tail}" for text in short_captions])
        )
        gain[end] = (dangling - plain).mean()
    assert gain[True] < -0.01
    assert gain[False] > 0.01


def test_begin_and_words_after_the_end_do_not_count(world):
    vocabulary = Vocabulary.from_texts(world.captions)
    image = world.links[:1, 0]
    (row,) = vocabulary.encode_rows([captions_of(world, image[0])[0]])
    for end in (True, False):
        reward = Reward.from_training_set(world, vocabulary, end)
        whole = reward(np.asarray([row]), image)
        assert whole > 1
        assert reward(np.asarray([row[1:]]), image) == whole
        assert reward(np.asarray([[*row, 9, 9, END, 5]]), image) == whole
        cut = reward(np.asarray([[*row[1:-1], PAD, PAD]]), image)
        assert cut < whole if end else cut == whole


def test_empty_and_unknown_captions_have_reward_zero(world):
    reward, image = Reward.from_training_set(world, Vocabulary.from_texts(world.captions)), world.links[:4, 0]
    rows = np.asarray([[END, PAD, PAD], [END, 5, 6], [BEGIN, END, PAD], [UNKNOWN, UNKNOWN, END]])
    assert reward(rows, image).tolist() == [0, 0, 0, 0]
    assert reward(rows[:, :0], image).tolist() == [0, 0, 0, 0]


def test_unknown_word_lowers_the_reward(world):
    more = Vocabulary((*Vocabulary.from_texts(world.captions).words, "zzz"))
    reward, image = Reward.from_training_set(world, more), world.links[:1, 0]
    (row,) = more.encode_rows([captions_of(world, image[0])[0]])
    good = reward(np.asarray([row]), image)
    rewards = [reward(np.asarray([[*row[:-1], word, END]]), image) for word in (UNKNOWN, len(more) - 1)]
    assert rewards[0] == rewards[1] < good


@given(st.lists(st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True) | st.sampled_from(["cannot", "st", "e", "no", "am"]), max_size=6))
def test_words_without_punctuation_are_tokenised_separately(words):
    """So the vocabulary can be tokenised once, instead of every caption."""
    assert tokenise(" ".join(words)) == [token for word in words for token in tokenise(word)]


def test_n_grams_of_every_image_have_no_weight():
    for end in (True, False):
        index = ReferenceIndex.from_texts([["a dog"], ["a dog"]], end)
        assert index.cider_d_of_texts(["a dog", "a cat"], [0, 1]).tolist() == [0, 0]


def test_no_text_contains_the_end_token():
    index = ReferenceIndex.from_texts([["a dog", "the end"], ["a cat"]], end=True)
    assert END_TOKEN in index.tokens
    assert {END_TOKEN} == {token for token in index.tokens if tokenise(token) != [token]}
