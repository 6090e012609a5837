"""Results on the same trials with another query: altered (hu2019bison, fig. 9 and 15), or another caption (fig. 14)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossmatch.core.arrays import IntArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part, Result
from crossmatch.language.alter import ALTERATIONS
from crossmatch.metrics.choice import accuracy
from crossmatch.metrics.proportion import Share, share_of
from crossmatch.report.gate import is_gate
from crossmatch.report.tables import NONE, SHORTER, Table, called, told

ALTER, CAPTION = "alter", "caption"
COUNTED = re.compile(r"([\d,]+) of ([\d,]+) captions could be altered")
USUAL = {ALTER: "none", CAPTION: "chosen"}


@dataclass(frozen=True, eq=False)
class Variant:
    """A result, the same model's result on the query as it was, and in what way the query differs."""

    result: Result
    base: Result
    how: str


def is_variant(result: Result) -> bool:
    return ALTER in result.options or CAPTION in result.options


def plain(results: Sequence[Result]) -> list[Result]:
    """The results that have tables of their own: all but the gate's, and but variants that stand beside their base."""
    shown = {id(v.result) for option in USUAL for v in variants(results, option)}
    return [r for r in results if not is_gate(r) and id(r) not in shown] or list(results)


def variants(results: Sequence[Result], option: str) -> list[Variant]:
    """All results that differ from another one by this option alone."""
    found = []
    for result in results:
        rest = {key: value for key, value in result.options.items() if key != option}
        same = [r for r in results if (r.model, r.task, dict(r.options)) == (result.model, result.task, rest)]
        if option in result.options and same:
            found.append(Variant(result, same[0], result.options[option]))
    return found


def predictions(part: Part) -> IntArray:
    """The image taken in each trial of one caption, -1 for a tie; where scores are not known, 0 for the right one, else -1.

    >>> part = Part(np.array(["a", "b"]), np.arange(2), Outcomes.of(np.array([[[1.0, 3.0]], [[2.0, 2.0]]])))
    >>> predictions(part)
    array([ 1, -1])
    """
    outcomes = part.evidence
    if not isinstance(outcomes, Outcomes) or outcomes.shape[0] != 1:
        raise CrossmatchError("predictions are of trials with one caption. Take a result on bison or diorama/bison.")
    if outcomes.scores is None:
        return np.where(accuracy(outcomes) > 0, 0, -1)
    scores = outcomes.scores[:, 0, :]
    best = scores.argmax(axis=1)
    return np.where((scores == scores.max(axis=1, keepdims=True)).sum(axis=1) > 1, -1, best)


def changed(variant: Variant) -> Share:
    """The share of the predictions that the alteration changed, in per one."""
    base, other = variant.base.parts[""], variant.result.parts[""]
    if not np.array_equal(base.ids, other.ids):
        raise CrossmatchError(
            f"{variant.result.model} was run on {len(base.ids):,} trials as they are and on {len(other.ids):,} under "
            f"{variant.how}; the same ones were expected. Run both again."
        )
    return share_of(predictions(base) != predictions(other), base.clusters)


def alteration_tables(results: Sequence[Result]) -> list[tuple[Table, list[Variant]]]:
    """For each task the share of predictions that change: a row for each alteration, two columns for each model.

    A caption that cannot be altered changes nothing, so the share among the altered ones is larger than that among all trials.
    """
    found = variants(results, ALTER)
    out = []
    for task in dict.fromkeys(called(v.base) for v in found):
        mine = [v for v in found if called(v.base) == task]
        models = list(dict.fromkeys(v.base.model for v in mine))
        rows = []
        for how in (name for name in ALTERATIONS if any(v.how == name for v in mine)):
            own = [next((v for v in mine if (v.how, v.base.model) == (how, m)), None) for m in models]
            told_of = altered_share(next(v for v in own if v is not None))
            cells = [cell for v in own for cell in _changes(v, told_of)]
            rows.append((how, NONE if told_of is None else f"{100 * told_of:.1f}", *cells))
        names = [SHORTER.sub("", m) for m in models]
        head = (("", "captions", *(cell for name in names for cell in (name, ""))),
                ("", "altered", *(cell for _ in models for cell in ("of all trials", "of the altered"))))  # fmt: skip
        title = f"{task}: predictions that change when the query is altered, percent"
        note = "negation, permutation and reversal change what is said or break it; synonym and hypernym should change little"
        out.append((Table(title, head, tuple(rows), 1, (note,)), mine))
    return out


def _changes(variant: Variant | None, altered: float | None) -> tuple[str, str]:
    if variant is None:
        return NONE, NONE
    share = changed(variant)
    return _percent(share) if altered != 0 else NONE, f"{100 * share.value / altered:.1f}" if altered else NONE


def altered_share(variant: Variant) -> float | None:
    """The share of the captions that were altered, as the result tells it; unknown where not all trials were answered."""
    if "partial" in variant.result.options or "limit" in variant.result.options:
        return None
    note = next((note for note in variant.result.notes if note.startswith(f"{variant.how}: ")), "")
    match = COUNTED.search(note)
    return int(match[1].replace(",", "")) / int(match[2].replace(",", "")) if match else None


def caption_tables(results: Sequence[Result]) -> list[tuple[Table, list[Variant]]]:
    """Accuracy with the caption that people chose, a random one and the longest, on the trials for which all are known."""
    found = variants(results, CAPTION)
    out = []
    for task in dict.fromkeys(called(v.base) for v in found):
        mine = [v for v in found if called(v.base) == task]
        models = list(dict.fromkeys(v.base.model for v in mine))
        kinds = list(dict.fromkeys(v.how for v in mine))
        rows = []
        for model in models:
            own = [v for v in mine if v.base.model == model]
            common = sorted(set.intersection(*(set(r.parts[""].ids.tolist()) for v in own for r in (v.base, v.result))))
            shares = {USUAL[CAPTION]: _accuracy(own[0].base, common)} | {v.how: _accuracy(v.result, common) for v in own}
            rows.append((model, f"{len(common):,}", *(_percent(shares.get(how)) for how in (USUAL[CAPTION], *kinds))))
        head = (("", "trials", USUAL[CAPTION], *kinds),)
        title = f"{task}: accuracy by the caption that is asked"
        out.append((Table(title, head, tuple(rows), 1), mine))
    return out


def _accuracy(result: Result, ids: Sequence[str]) -> Share:
    part = result.parts[""]
    there = np.isin(part.ids, ids)
    return share_of(accuracy(part.evidence)[there], part.clusters[there])  # type: ignore[arg-type]


def _percent(found: Share | None) -> str:
    return NONE if found is None else told(100 * found.value, 100 * found.low, 100 * found.high)
