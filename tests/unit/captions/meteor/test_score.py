"""METEOR's formula, its alignment, and unusual input."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.meteor import alignment as meteor_align
from crossmatch.captions.meteor import matches as meteor_matches
from crossmatch.captions.meteor.alignment import align, index_matches
from crossmatch.captions.meteor.matches import PhraseMatches, find_matches
from crossmatch.captions.meteor.score import ALPHA, BETA, DELTA, GAMMA, WEIGHTS, count_alignments, meteor
from crossmatch.captions.meteor.term_links import EXACT, STAGES, split_into_words

pytest.importorskip("pycocoevalcap", reason="it carries METEOR's tables; install crossmatch[captions]")


def of(candidate: str, *references: str) -> float:
    return float(meteor(CaptionCorpus.from_tokens([candidate.split()], [[r.split() for r in references]]))[0].values[0])


def test_score_equals_the_formula() -> None:
    """`in` is a function word without a partner, `sofa` and `couches` are synonyms; two chunks."""
    precision = (WEIGHTS[2] * DELTA + WEIGHTS[0] * DELTA) / (2 * DELTA + 1 * (1 - DELTA))
    recall = (WEIGHTS[2] * DELTA + WEIGHTS[0] * DELTA) / (2 * DELTA)
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    assert of("zebra in sofa", "couches zebra") == pytest.approx(mean * (1 - GAMMA * (2 / 2) ** BETA))


def test_corpus_value_comes_from_summed_counts() -> None:
    corpus = CaptionCorpus.from_tokens(
        [["a", "zebra"], ["a", "red", "zebra", "runs"]], [[["a", "zebra"]], [["the", "zebra"], ["some", "dogs"]]]
    )
    scores = meteor(corpus)[0]
    counts = count_alignments(corpus)[[0, 1]].astype(float)  # the best reference of each
    assert counts[0, -1] == 1
    counts[0, -1] = 0  # a perfect pair adds no chunk
    np.testing.assert_array_equal(scores.statistics, counts)
    assert scores.combine is not None
    assert float(scores.combine(counts.sum(axis=0))) == scores.value
    assert scores.value != pytest.approx(scores.values.mean(), abs=0.01)
    np.testing.assert_allclose(scores.combine(np.stack([counts[1], counts.sum(axis=0)])), [scores.values[1], scores.value])


@pytest.mark.parametrize(
    ("candidate", "reference", "stage"),
    [
        ("zebra", "zebra", "exact"),
        ("organ", "organization", "stem"),
        ("sofa", "couch", "synonym"),
        ("side by side with", "next to", "paraphrase"),
    ],
)
def test_each_stage_matches(candidate: str, reference: str, stage: str) -> None:
    corpus = CaptionCorpus.from_tokens([["q", *candidate.split()]], [[reference.split()]])
    counts = count_alignments(corpus)[0, 4:20].reshape(2, 2, len(STAGES)).sum(axis=(0, 1))
    assert counts[STAGES.index(stage)] == len(candidate.split()) + len(reference.split())
    assert counts.sum() == counts[STAGES.index(stage)]


def test_equal_captions_score_one() -> None:
    for text in ("a dog", "the", "😀 🏳️‍🌈", "שלום dog", "t-shirt 's n't", "a a a a"):
        assert of(text, "something else", text) == 1.0


@pytest.mark.parametrize(
    ("candidate", "references"), [("", [""]), ("", ["a dog"]), ("a dog", [""]), ("dog", ["zebra"]), ("|||", ["a"])]
)
def test_captions_without_match_score_zero(candidate: str, references: list[str]) -> None:
    assert of(candidate, *references) == 0.0


def test_empty_reference_changes_nothing() -> None:
    assert of("a red dog", "", "a dog runs") == of("a red dog", "a dog runs") > 0


@pytest.mark.parametrize("without_numba", [False, True])
def test_ten_thousand_words_take_bounded_time(without_numba: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither memory nor time may grow with the square of the length."""
    if without_numba:
        monkeypatch.setattr(meteor_align, "BEAM", 4)  # Python alone would take most of a minute
        monkeypatch.setattr(meteor_align, "NUMBA_THRESHOLD", 1 << 60)
    assert of(" ".join(["a"] * 10_000), " ".join(["a"] * 10_000)) == 1.0
    text = " ".join(["a man rides a red horse on the beach near a dog"] * 910)
    assert 0.1 < of(text, "the horse " + text + " and so on") < 1.0
    assert 0 < of(text, "a man on a horse") < 0.02


def test_block_size_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = [f"a man {verb} a {noun}".split() for verb in ("rides", "holds", "eats") for noun in ("horse", "cat", "pizza")]
    corpus = CaptionCorpus.from_tokens(
        candidate, [[candidate[n - 1], candidate[n - 2], ["the", "guy"]] for n in range(len(candidate))]
    )
    expected = count_alignments(corpus)
    monkeypatch.setattr(meteor_matches, "BLOCK_IMAGES", 2)
    np.testing.assert_array_equal(count_alignments(corpus), expected)


words = st.sampled_from(
    ["a", "the", "of", "man", "men", "guy", "dog", "dogs", "sofa", "couch", "runs", "running", "in", "front", "next", "to"]
)
caption = st.lists(words, min_size=0, max_size=9)


@given(caption, st.lists(caption, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_order_of_references_does_not_matter_and_more_never_hurt(
    candidate: list[str], texts: list[list[str]], random: object
) -> None:
    mixed = random.sample(texts, len(texts))  # type: ignore[attr-defined]
    corpus = CaptionCorpus.from_tokens([candidate, candidate, candidate], [texts, mixed, [*texts, ["a", "dog"]]])
    plain, reordered, more = meteor(corpus)[0].values
    assert plain == reordered <= more <= 1.0


def alignments(rows: list[tuple[int, ...]], must: set[int]) -> Iterator[tuple[int, int]]:
    """Gain and chunks of every set of matches that share no word and contain the fixed ones."""

    def grow(at: int, chosen: list[int]) -> Iterator[list[int]]:
        if at == len(rows):
            yield chosen
            return
        yield from grow(at + 1, chosen)
        reference, n, candidate, k, _ = rows[at]
        if all(
            (reference + n <= o or o + m <= reference) and (candidate + k <= i or i + j <= candidate)
            for o, m, i, j, _ in (rows[c] for c in chosen)
        ):
            yield from grow(at + 1, [*chosen, at])

    for chosen in grow(0, []):
        if must <= set(chosen):
            yield sum(rows[c][4] for c in chosen), chunks_of([rows[c] for c in chosen])


def chunks_of(selected: list[tuple[int, ...]]) -> int:
    ends = {(reference + n, candidate + k) for reference, n, candidate, k, _ in selected}
    return sum((reference, candidate) not in ends for reference, _, candidate, _, _ in selected)


@given(st.lists(words, min_size=1, max_size=5), st.lists(words, min_size=1, max_size=5))
def test_search_finds_the_best_alignment(candidate: list[str], reference: list[str]) -> None:
    """The largest gain, then the fewest chunks, if the beam has room for every partial alignment."""
    corpus = CaptionCorpus.from_tokens([candidate], [[reference]])
    text = split_into_words(corpus)
    matches = find_matches(text, corpus.image_index, corpus.is_candidate)
    first, last = text.offsets[1:2], text.offsets[2:3]
    if len(matches.stage) > 14:  # too many sets to try all
        return
    choices = index_matches(matches, len(text.words), first)
    columns = (matches.reference_start, matches.reference_length, matches.candidate_start, matches.candidate_length, choices.gain)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    settled = set(choices.offsets[np.flatnonzero(choices.fixed)].tolist())
    best = min((-gain, chunks) for gain, chunks in alignments(rows, settled))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meteor_align, "BEAM", 1 << 60)
        selected = [rows[m] for m in np.flatnonzero(align(matches, len(text.words), first, last))]
    assert (-sum(row[4] for row in selected), chunks_of(selected)) == best
    assert count_alignments(corpus)[0, -1] == chunks_of(selected)


def test_single_word_gains_only_if_exact() -> None:
    """A mistake of the original that the search reproduces: half a point for a stem, rounded down."""
    corpus = CaptionCorpus.from_tokens([["zebras", "zebra"]], [[["zebra"]]])
    text = split_into_words(corpus)
    matches = find_matches(text, corpus.image_index, corpus.is_candidate)
    gain = index_matches(matches, len(text.words), text.offsets[1:2]).gain
    assert gain[matches.stage == EXACT].tolist() == [2]
    assert set(gain[matches.stage != EXACT].tolist()) == {0}


@st.composite
def crowded(draw: st.DrawFn) -> tuple[PhraseMatches, int, np.ndarray, np.ndarray]:
    """Matches of several pairs at random, more than fit into the beam."""
    pairs = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    lengths = rng.integers(0, 9, pairs)
    first = 70 + np.cumsum(lengths) - lengths  # after the candidate's 70 words
    at, stage = [], []
    for low, size in zip(first, lengths, strict=True):
        for word in range(low, low + size):
            for _ in range(rng.integers(0, 6)):
                at.append((word, rng.integers(1, min(4, low + size - word) + 1), rng.integers(0, 66), rng.integers(1, 4)))
                stage.append(rng.integers(0, 4))
    columns = np.array(at, dtype=np.int64).reshape(-1, 4).T
    return (
        PhraseMatches(*np.ascontiguousarray(columns), np.array(stage, dtype=np.int64)),
        int(70 + lengths.sum()),
        first,
        first + lengths,
    )


@given(crowded())
def test_compiled_search_equals_python(problem: tuple[PhraseMatches, int, np.ndarray, np.ndarray]) -> None:
    pytest.importorskip("numba", reason="the compiled search needs it; install crossmatch[fast]")
    selections = []
    for threshold in (0, 1 << 60):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(meteor_align, "NUMBA_THRESHOLD", threshold)
            selections.append(align(*problem))
    np.testing.assert_array_equal(*selections)


def test_without_numba_python_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meteor_align, "NUMBA_THRESHOLD", 0)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "crossmatch.captions.meteor.alignment_kernels", raising=False)
    monkeypatch.delattr("crossmatch.captions.meteor.alignment_kernels", raising=False)
    assert meteor_align._load_kernels(1) is None
    assert of("a red dog runs", "a dog is running") > 0
