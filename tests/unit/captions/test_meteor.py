"""METEOR's formula, its alignment, and input that is out of the ordinary."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.captions import meteor_align, meteor_matches
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.meteor import ALPHA, BETA, DELTA, GAMMA, WEIGHTS, counts, meteor, stages
from crossmatch.captions.meteor_align import align, choices_of
from crossmatch.captions.meteor_matches import Matches, matches_of
from crossmatch.captions.meteor_terms import EXACT, STAGES, text_of

pytest.importorskip("pycocoevalcap", reason="it carries METEOR's tables; install crossmatch[captions]")


def of(candidate: str, *references: str) -> float:
    return float(meteor(Corpus.of_tokens([candidate.split()], [[r.split() for r in references]]))[0].values[0])


def test_the_formula_by_hand() -> None:
    """`in` is a function word without a partner, `sofa` and `couches` are synonyms; two chunks."""
    precision = (WEIGHTS[2] * DELTA + WEIGHTS[0] * DELTA) / (2 * DELTA + 1 * (1 - DELTA))
    recall = (WEIGHTS[2] * DELTA + WEIGHTS[0] * DELTA) / (2 * DELTA)
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    assert of("zebra in sofa", "couches zebra") == pytest.approx(mean * (1 - GAMMA * (2 / 2) ** BETA))


def test_the_corpus_value_comes_from_sums_and_not_from_the_mean() -> None:
    corpus = Corpus.of_tokens(
        [["a", "zebra"], ["a", "red", "zebra", "runs"]], [[["a", "zebra"]], [["the", "zebra"], ["some", "dogs"]]]
    )
    scores = meteor(corpus)[0]
    found = counts(corpus)[[0, 1]].astype(float)  # the best reference of each
    assert found[0, -1] == 1
    found[0, -1] = 0  # a perfect pair adds no chunk
    np.testing.assert_array_equal(scores.sums, found)
    assert scores.whole is not None
    assert float(scores.whole(found.sum(axis=0))) == scores.value
    assert scores.value != pytest.approx(scores.values.mean(), abs=0.01)
    np.testing.assert_allclose(scores.whole(np.stack([found[1], found.sum(axis=0)])), [scores.values[1], scores.value])


@pytest.mark.parametrize(
    ("own", "other", "stage"),
    [
        ("zebra", "zebra", "exact"),
        ("organ", "organization", "stem"),
        ("sofa", "couch", "synonym"),
        ("side by side with", "next to", "paraphrase"),
    ],
)
def test_every_stage_matches_something(own: str, other: str, stage: str) -> None:
    corpus = Corpus.of_tokens([["q", *own.split()]], [[other.split()]])
    found = counts(corpus)[0, 4:20].reshape(2, 2, len(STAGES)).sum(axis=(0, 1))
    assert found[STAGES.index(stage)] == len(own.split()) + len(other.split())
    assert found.sum() == found[STAGES.index(stage)]


def test_the_stages_say_where_they_come_from() -> None:
    assert [stage.name for stage in stages()] == list(STAGES)
    assert "1e57b4c7" in stages()[2].data
    assert "c147ac7d" in stages()[3].data


def test_equal_captions_score_one_however_odd() -> None:
    for text in ("a dog", "the", "😀 🏳️‍🌈", "שלום dog", "t-shirt 's n't", "a a a a"):
        assert of(text, "something else", text) == 1.0


@pytest.mark.parametrize(("own", "others"), [("", [""]), ("", ["a dog"]), ("a dog", [""]), ("dog", ["zebra"]), ("|||", ["a"])])
def test_nothing_to_match_scores_zero(own: str, others: list[str]) -> None:
    assert of(own, *others) == 0.0


def test_an_empty_reference_beside_another_changes_nothing() -> None:
    assert of("a red dog", "", "a dog runs") == of("a red dog", "a dog runs") > 0


@pytest.mark.parametrize("without_numba", [False, True])
def test_ten_thousand_words(without_numba: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded, whatever repeats: neither memory nor time may grow with the square of the length."""
    if without_numba:
        monkeypatch.setattr(meteor_align, "BEAM", 4)  # Python alone would take most of a minute
        monkeypatch.setattr(meteor_align, "MANY", 1 << 60)
    assert of(" ".join(["a"] * 10_000), " ".join(["a"] * 10_000)) == 1.0
    text = " ".join(["a man rides a red horse on the beach near a dog"] * 910)
    assert 0.1 < of(text, "the horse " + text + " and so on") < 1.0
    assert 0 < of(text, "a man on a horse") < 0.02


def test_the_block_of_images_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [f"a man {verb} a {thing}".split() for verb in ("rides", "holds", "eats") for thing in ("horse", "cat", "pizza")]
    corpus = Corpus.of_tokens(own, [[own[n - 1], own[n - 2], ["the", "guy"]] for n in range(len(own))])
    whole = counts(corpus)
    monkeypatch.setattr(meteor_matches, "IMAGES", 2)
    np.testing.assert_array_equal(counts(corpus), whole)


words = st.sampled_from(
    ["a", "the", "of", "man", "men", "guy", "dog", "dogs", "sofa", "couch", "runs", "running", "in", "front", "next", "to"]
)
caption = st.lists(words, min_size=0, max_size=9)


@settings(deadline=None, max_examples=60)
@given(caption, st.lists(caption, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_references_in_any_order_and_one_more_never_hurts(own: list[str], texts: list[list[str]], random: object) -> None:
    mixed = random.sample(texts, len(texts))  # type: ignore[attr-defined]
    corpus = Corpus.of_tokens([own, own, own], [texts, mixed, [*texts, ["a", "dog"]]])
    one, other, more = meteor(corpus)[0].values
    assert one == other <= more <= 1.0


def alignments(rows: list[tuple[int, ...]], must: set[int]) -> Iterator[tuple[int, int]]:
    """Gain and chunks of every set of matches that share no word and hold those that are settled."""

    def grow(at: int, chosen: list[int]) -> Iterator[list[int]]:
        if at == len(rows):
            yield chosen
            return
        yield from grow(at + 1, chosen)
        other, n, own, k, _ = rows[at]
        if all(
            (other + n <= o or o + m <= other) and (own + k <= i or i + j <= own) for o, m, i, j, _ in (rows[c] for c in chosen)
        ):
            yield from grow(at + 1, [*chosen, at])

    for chosen in grow(0, []):
        if must <= set(chosen):
            yield sum(rows[c][4] for c in chosen), chunks_of([rows[c] for c in chosen])


def chunks_of(taken: list[tuple[int, ...]]) -> int:
    ends = {(other + n, own + k) for other, n, own, k, _ in taken}
    return sum((other, own) not in ends for other, _, own, _, _ in taken)


@settings(deadline=None, max_examples=80)
@given(st.lists(words, min_size=1, max_size=5), st.lists(words, min_size=1, max_size=5))
def test_the_search_finds_the_best_of_all_alignments(own: list[str], other: list[str]) -> None:
    """Among all: the greatest gain, and then the fewest chunks. With room for every partial alignment."""
    corpus = Corpus.of_tokens([own], [[other]])
    text = text_of(corpus)
    matches = matches_of(text, corpus.image, corpus.is_candidate)
    first, last = text.begin[1:2], text.begin[2:3]
    if len(matches.stage) > 14:  # too many sets to try all
        return
    choices = choices_of(matches, len(text.words), first)
    columns = (matches.other_at, matches.other_length, matches.own_at, matches.own_length, choices.gain)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    settled = set(choices.begin[np.flatnonzero(choices.settled)].tolist())
    best = min((-gain, chunks) for gain, chunks in alignments(rows, settled))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meteor_align, "BEAM", 1 << 60)
        taken = [rows[m] for m in np.flatnonzero(align(matches, len(text.words), first, last))]
    assert (-sum(row[4] for row in taken), chunks_of(taken)) == best
    assert counts(corpus)[0, -1] == chunks_of(taken)


def test_a_single_word_gains_only_if_it_is_exact() -> None:
    """The slip that the search keeps: half a point for a stem, rounded down."""
    corpus = Corpus.of_tokens([["zebras", "zebra"]], [[["zebra"]]])
    text = text_of(corpus)
    found = matches_of(text, corpus.image, corpus.is_candidate)
    gain = choices_of(found, len(text.words), text.begin[1:2]).gain
    assert gain[found.stage == EXACT].tolist() == [2]
    assert set(gain[found.stage != EXACT].tolist()) == {0}


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Matches, int, np.ndarray, np.ndarray]:
    """Matches of several pairs at random, more than the beam can hold."""
    pairs = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    lengths = rng.integers(0, 9, pairs)
    first = 70 + np.cumsum(lengths) - lengths  # the candidate's 70 words stand before
    at, stage = [], []
    for low, size in zip(first, lengths, strict=True):
        for word in range(low, low + size):
            for _ in range(rng.integers(0, 6)):
                at.append((word, rng.integers(1, min(4, low + size - word) + 1), rng.integers(0, 66), rng.integers(1, 4)))
                stage.append(rng.integers(0, 4))
    columns = np.array(at, dtype=np.int64).reshape(-1, 4).T
    return Matches(*np.ascontiguousarray(columns), np.array(stage, dtype=np.int64)), int(70 + lengths.sum()), first, first + lengths


@settings(deadline=None, max_examples=60)
@given(crowded())
def test_the_compiled_search_takes_the_same_matches(made: tuple[Matches, int, np.ndarray, np.ndarray]) -> None:
    pytest.importorskip("numba", reason="the compiled search needs it; install crossmatch[fast]")
    found = []
    for many in (0, 1 << 60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(meteor_align, "MANY", many)
            found.append(align(*made))
    np.testing.assert_array_equal(*found)


def test_without_numba_the_search_is_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meteor_align, "MANY", 0)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "crossmatch.captions.meteor_kernels", raising=False)
    monkeypatch.delattr("crossmatch.captions.meteor_kernels", raising=False)
    assert meteor_align._loops(1) is None
    assert of("a red dog runs", "a dog is running") > 0
