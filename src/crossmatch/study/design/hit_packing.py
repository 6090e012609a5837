"""Packs the items of a study and its gold questions into HITs and a quiz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment.displayed_hits import shuffled_order
from crossmatch.study.design.declaration import Design
from crossmatch.study.design.new_items import GOLD, NewItem


def pack_hits(design: Design, work: Sequence[NewItem], gold: Mapping[str, Sequence[NewItem]], seed: str) -> list[list[NewItem]]:
    """Pack items into HITs in their order, each with the number of gold items that the recipe declares.

    Gold items are used in a random order, each once before any is used again.
    """
    gold_counts = {"positive": design.recipe.gold_positive, "negative": design.recipe.gold_negative}
    shuffled_gold: dict[str, list[NewItem]] = {}
    for kind, number in gold_counts.items():
        available = gold.get(kind, ())
        if number > len(available):
            raise CrossmatchError(
                f"a HIT needs {number} gold items of kind {kind}, but there are {len(available)}. Add some, or use none: "
                f"--set recipe.gold_{kind}=0"
            )
        shuffled_gold[kind] = [available[n] for n in shuffled_order(len(available), seed, "gold", kind)]
    groups: dict[tuple[str, str], list[NewItem]] = {}
    for new in work:
        groups.setdefault((new.group, "" if new.group else new.key), []).append(new)
    hits: list[list[NewItem]] = []
    for group in groups.values():
        if len(group) > design.recipe.batch:
            raise CrossmatchError(
                f"group {group[0].group!r} has {len(group)} items, but a HIT has {design.recipe.batch}. Set recipe.batch."
            )
        if not hits or len(hits[-1]) + len(group) > design.recipe.batch:
            hits.append([])
        hits[-1] += group
    for n, packed in enumerate(hits):
        for kind, number in gold_counts.items():
            packed += [shuffled_gold[kind][(n * number + k) % len(shuffled_gold[kind])] for k in range(number)]
    return hits


def split_quiz(design: Design, gold: dict[str, list[NewItem]]) -> tuple[list[NewItem], dict[str, list[NewItem]]]:
    """The gold items of the quiz, half of them positive, and those that are left for HITs."""
    size = design.recipe.quiz
    counts = {"positive": size - size // 2, "negative": size // 2}
    for kind, number in counts.items():
        if len(gold[kind]) < number:
            raise CrossmatchError(
                f"a quiz of {size} needs {number} gold items of kind {kind}; there are {len(gold[kind])}. Add some."
            )
    quiz = [new for kind in GOLD for new in gold[kind][: counts[kind]]]
    return quiz, {kind: gold[kind][counts[kind] :] for kind in GOLD}
