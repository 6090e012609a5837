"""References drawn at random, and the scores of captions with each draw of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.table import chosen, score
from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.presented import uniform

AT_ONCE = 150_000  # captions in one corpus: bounds the memory, changes no number
IN_SIGHT = 20_000  # the same for metrics by models, which hold a vector for each


@dataclass(frozen=True, eq=False)
class Items:
    """Captions, and for each the item whose references it is compared with."""

    texts: Sequence[str]
    owner: IntArray
    references: Sequence[Sequence[str]]
    ids: Sequence[str] | None
    image: Sequence[str] | None
    held: Mapping[str, Sequence[str]] | None


def orders(ids: Sequence[str], sizes: Sequence[int], draws: int, seed: int = 0) -> list[IntArray]:
    """For each item, its references in as many random orders, shape (draws, size); an order depends on the id and the seed alone.

    >>> [found.shape for found in orders(["7", "8"], [5, 3], 4)]
    [(4, 5), (4, 3)]
    """
    drawn = (uniform([i], draws * size, "references", seed).reshape(draws, size) for i, size in zip(ids, sizes, strict=True))
    return [np.argsort(each, axis=1, kind="stable").astype(np.int64) for each in drawn]


def document_frequencies(items: Items, image: Sequence[str], documents: str) -> Frequencies:
    """As `candidates.scored` counts them: all references of each image once, or those of each caption."""
    held: dict[str, list[str]] = {name: list(texts) for name, texts in (items.held or {}).items()}
    if documents == "candidates":
        held = {str(n): list(items.references[own]) for n, own in enumerate(items.owner.tolist())}
    elif not held:
        for name, texts in zip(image, items.references, strict=True):
            held[name] = list(dict.fromkeys([*held.get(name, ()), *texts]))
    return Frequencies.of(Corpus.of(dict.fromkeys(held, ""), held))


def drawn_texts(items: Items, order: Sequence[IntArray], k: int, image: Sequence[str]) -> dict[str, list[str]]:
    """The texts that some draw of at most k references compares, by image."""
    found: dict[str, list[str]] = {}
    for text, own in zip(items.texts, items.owner.tolist(), strict=True):
        references = [items.references[own][r] for r in np.unique(order[own][:, :k]).tolist()]
        found.setdefault(image[own], []).extend([text, *references])
    return found


def by_draw(
    items: Items,
    order: Sequence[IntArray],
    k: int,
    names: Sequence[str],
    known: dict[str, list[str]],
    image: Sequence[str],
    given: dict[str, Any],
) -> tuple[dict[str, FloatArray], dict[str, str]]:
    """The scores of every caption in every draw, shape (draws, captions), and signatures. A set drawn again is scored once."""
    owner = items.owner.tolist()
    subsets = [_sets(each[:, :k]) for each in order]
    entries = [(c, subset) for c, own in enumerate(owner) for subset in subsets[own][0]]
    values: dict[str, list[FloatArray]] = {name: [] for name in names}
    signatures: dict[str, str] = {}
    if (opened := given.get("images")) is not None:  # the corpus has an id for each draw, the pictures have their own
        given = {**given, "images": lambda i: opened(image[owner[entries[int(i)][0]]])}
    models = any("images" in one.metric.needs for one in chosen(names).values())
    step = max(1, (IN_SIGHT if models else AT_ONCE) // (k + 1))
    for at in range(0, len(entries), step):
        part = {str(at + n): entry for n, entry in enumerate(entries[at : at + step])}
        corpus = Corpus.of(
            {i: items.texts[c] for i, (c, _) in part.items()},
            {i: [items.references[owner[c]][r] for r in subset] for i, (c, subset) in part.items()},
            known.__getitem__,
        )
        for name, result in score(corpus, names, **given).items():
            if not np.isfinite(result.scores.values).all():
                raise CrossmatchError(f"{name} of a caption with {k} reference(s) is not a number. Leave the metric out.")
            values[name].append(result.scores.values)
            signatures[name] = result.signature
    first = np.concatenate([[0], np.cumsum([len(subsets[own][0]) for own in owner])])[:-1]
    entry = np.array([subsets[own][1] for own in owner]).T + first
    return {name: np.concatenate(each)[entry] for name, each in values.items()}, signatures


def _sets(drawn: IntArray) -> tuple[list[tuple[int, ...]], list[int]]:
    """The different sets of references of one item, and of each draw its set."""
    number: dict[tuple[int, ...], int] = {}
    which = [number.setdefault(tuple(one), len(number)) for one in np.sort(drawn, axis=1).tolist()]
    return list(number), which


def numbers_asked(ids: Sequence[str], sizes: Sequence[int], counts: Iterable[int] | None) -> list[int]:
    """The numbers of references asked for: from one to as many as every item has, unless given."""
    fewest = int(np.argmin(sizes))
    if sizes[fewest] < 1:
        raise CrossmatchError(f"item {ids[fewest]!r} has no references; one or more were expected. Add them, or remove it.")
    asked = list(range(1, sizes[fewest] + 1)) if counts is None else sorted(set(counts))
    wrong = next((k for k in asked if not 1 <= k <= sizes[fewest]), None)
    if wrong is not None or not asked:
        raise WrongWords(
            f"{'no number' if wrong is None else wrong} of references was asked for; item {ids[fewest]!r} has {sizes[fewest]}. "
            f"Ask for 1 to {sizes[fewest]}."
        )
    return asked
