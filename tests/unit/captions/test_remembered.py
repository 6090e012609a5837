"""Models that remember: the same numbers, each picture opened once and each text seen once, however many draws there are."""

from collections import Counter

import numpy as np
import pytest

from crossmatch.captions.beyond import by_references, by_words
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.remembered import Memory, RememberedGrounder, remembered
from crossmatch.captions.table import score
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.grounding import Grounding
from crossmatch.core.ratings import Preferences

LOOKS = ["clip-score", "ref-clip-score", "tiger"]
SAID = [
    "A man rides a horse.", "Two big dogs sit on a couch.", "A woman is eating pizza.", "A large bus drives down a street.",
    "A small cat sleeps on a bench.", "Three boys run with a green kite.", "A person on a pony.", "The dog and a man.",
]  # fmt: skip


class Model:
    """Vectors by the letters of a text or of a picture's name; counts what it sees."""

    signature = "letters|1"

    def __init__(self):
        self.seen = Counter()

    def embed_images(self, images):
        self.seen.update(images)
        return np.array([[image.count(letter) + 0.1 for letter in "aeiost"] for image in images])

    def embed_texts(self, texts):
        self.seen.update(texts)
        return np.array([[text.count(letter) for letter in "aeiost"] for text in texts], dtype=np.float32)

    def ground(self, images, texts):
        self.seen.update(zip(images, texts, strict=True))
        regions = [2 + len(image) % 2 for image in images]
        scores = np.full((len(texts), max(regions)), np.nan)
        boxes = np.full((*scores.shape, 4), np.nan)
        for n, (text, many) in enumerate(zip(texts, regions, strict=True)):
            scores[n, :many] = [text.count(letter) / len(text) + 0.01 for letter in "aeo"[:many]]
            boxes[n, :many] = many
        return Grounding(scores, boxes)


class Opener:
    def __init__(self):
        self.opened = Counter()

    def __call__(self, name):
        self.opened[name] += 1
        return f"picture {name * 3}"


@pytest.fixture
def said():
    images = [f"i{'x' * (n // 2)}" for n in range(6)]
    pairs = [(SAID[n], SAID[(n + 3) % 8]) for n in range(6)]
    references = [[SAID[(n + at) % 8] for at in (1, 2, 4)] for n in range(6)]
    return Preferences("mine", [str(n) for n in range(6)], images, pairs, references, [0, 1] * 3, ["a", "b"] * 3)


def test_a_curve_opens_each_picture_once_and_shows_each_text_once(said):
    embedder, grounder, opener = Model(), Model(), Opener()
    given = {"embedder": embedder, "grounder": grounder, "images": opener}
    found = by_references(said, LOOKS, draws=6, **given)
    assert set(embedder.seen.values()) == set(grounder.seen.values()) == {1}
    assert opener.opened == dict.fromkeys(dict.fromkeys(said.images.tolist()), 2)  # by each of the two models
    assert len(found.signatures) == 5
    assert "|embedder:letters,1|" in found.signatures["clip-score"]
    plain = [p for p in found.points if p.metric == "clip-score" and p.group == "mean"]
    assert len({(p.value, p.low, p.least, p.most, p.draws) for p in plain}) == 1  # no reference plays a part
    assert plain[0].draws == 1


def test_pictures_of_a_draw_are_those_of_its_image(said):
    """The curve with all references against the models without a memory."""
    given = {"embedder": Model(), "grounder": Model()}
    found = by_references(said, LOOKS, draws=2, images=Opener(), **given)
    names = {f"{n}/{which}": n for n in range(6) for which in (0, 1)}
    corpus = Corpus.of(
        {i: said.captions[n][int(i[-1])] for i, n in names.items()}, {i: said.references[n] for i, n in names.items()}
    )
    opener = Opener()
    results = score(corpus, LOOKS, images=lambda i: opener(str(said.images[names[i]])), **given)
    for name, result in results.items():
        both = result.scores.values.reshape(-1, 2)
        right = both[np.arange(6), said.preferred] > both[np.arange(6), 1 - said.preferred]
        mine = next(p for p in found.points if (p.metric, p.group, p.references) == (name, "mean", 3))
        assert mine.value == pytest.approx(right.reshape(-1, 2).mean())


def test_several_tables_share_a_memory(said):
    embedder, grounder, opener = Model(), Model(), Opener()
    given = remembered({"embedder": embedder, "grounder": grounder, "images": opener})
    assert remembered(given) == given
    first = by_references(said, LOOKS, draws=3, **given)
    seen, opened = Counter(grounder.seen), Counter(opener.opened)
    assert by_references(said, LOOKS, draws=3, **given).points == first.points
    assert (grounder.seen, opener.opened) == (seen, opened)
    by_words(said, LOOKS, **given)
    assert set(embedder.seen.values()) == set(grounder.seen.values()) == {1}


def test_changed_words_open_each_picture_once(said):
    embedder, grounder, opener = Model(), Model(), Opener()
    found = by_words(said, LOOKS, embedder=embedder, grounder=grounder, images=opener)
    assert found.rows[0].probes > 1
    assert set(opener.opened.values()) == {2}  # by each of the two models
    assert set(embedder.seen.values()) == set(grounder.seen.values()) == {1}


def test_the_same_id_on_another_shelf_is_another_picture():
    model = Model()
    one, two = (remembered({"images": images, "grounder": model}) for images in ({"7": "here"}, {"7": "there"}))
    both = RememberedGrounder(model)
    found = both.ground([one["images"]("7"), two["images"]("7"), one["images"]("7")], ["a man", "a man", "a man"])
    assert model.seen == {("here", "a man"): 1, ("there", "a man"): 1}
    assert found.regions.tolist() == [2, 3, 2]
    assert (found.boxes[1] == 3).all()
    assert np.isnan(found.boxes[0, 2]).all()


def test_without_pictures_nothing_is_wrapped():
    given = {"frequencies": None, "embedder": object(), "images": None}
    assert remembered(given) == given


def test_a_full_memory_forgets_the_oldest():
    memory, asked = Memory(most=16), []

    def compute(new):
        asked.append(list(new))
        return [np.array([float(key)]) for key in new]

    assert memory.of([1, 2, 3], compute) == [1.0, 2.0, 3.0]
    assert memory.of([3, 2, 1], compute) == [3.0, 2.0, 1.0]
    assert (asked, memory.held, list(memory.known)) == ([[1, 2, 3], [1]], 16, [3, 1])


@pytest.mark.parametrize("rows", [[[1.0]], [1.0, 2.0]])
def test_models_that_lose_count_are_refused(rows):
    class Wrong:
        def embed_texts(self, texts):
            return rows

        def ground(self, images, texts):
            return Grounding(np.ones((1, 2)))

    given = remembered({"images": {"7": "here"}, "embedder": Wrong(), "grounder": Wrong()})
    with pytest.raises(CrossmatchError, match="one row for each"):
        given["embedder"].embed_texts(["a", "b"])
    with pytest.raises(CrossmatchError, match="1 groundings for 2"):
        given["grounder"].ground([given["images"]("7")] * 2, ["a", "b"])
