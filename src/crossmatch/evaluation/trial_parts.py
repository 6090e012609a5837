"""The parts of a trials task: all trials, each category, and the mean over categories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.result import ResultPart
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.data.trials import Trials

MACRO = "macro"  # the part in which every category has the same weight
UNCATEGORISED = "(none)"
RESERVED = (MACRO, "all", UNCATEGORISED)
MAX_CATEGORIES = 200


def build_trial_parts(trials: Trials, answered: Trials, outcomes: Outcomes) -> tuple[dict[str, ResultPart], tuple[str, ...]]:
    """Build the parts of the answered trials, and notes about them."""
    clusters, n = answered.clusters, len(answered.ids)
    whole = ResultPart(answered.ids, clusters, outcomes)
    parts = {"": whole}
    notes = list(trials.notes)
    if n < len(trials.ids):
        notes.append(f"partial: {n:,} of {len(trials.ids):,} trials were answered; not comparable with complete results")
    categories, first, category_index = np.unique(answered.categories, return_index=True, return_inverse=True)
    if len(categories) > MAX_CATEGORIES:
        notes.append(f"{len(categories):,} categories are too many to report each")
    elif len(categories) > 1:
        for category, n in zip(categories.tolist(), first.tolist(), strict=True):
            _require_unambiguous(category, str(answered.ids[n]))
        category_of_trial = category_index.ravel().astype(np.int64)
        parts[MACRO] = replace(whole, folds=category_of_trial)
        for path in _with_ancestors(categories.tolist()):
            is_inside = np.array([f"{category}/".startswith(f"{path}/") for category in categories.tolist()])
            members = np.flatnonzero(is_inside[category_of_trial])
            parts[path or UNCATEGORISED] = ResultPart(answered.ids[members], clusters[members], outcomes.select(members))
    return parts, tuple(notes)


def _require_unambiguous(category: str, trial: str) -> None:
    """Raise an error for a category whose name has another meaning in tables."""
    steps = category.split("/")
    if steps[0] in RESERVED or (category and not all(step.strip() for step in steps)):
        reason = "is a reserved name" if steps[0] in RESERVED else "has an empty step between slashes"
        raise CrossmatchError(f"the category {category!r} of trial {trial!r} {reason}. Rename it.")


def _with_ancestors(categories: Sequence[str]) -> list[str]:
    """Return all categories and their parents, parents first.

    >>> _with_ancestors(["add/obj", "replace/att", "replace/obj"])
    ['add', 'add/obj', 'replace', 'replace/att', 'replace/obj']
    """
    steps = [category.split("/") for category in categories]
    paths = dict.fromkeys("/".join(step[: n + 1]) for step in steps for n in range(len(step)))
    return sorted(paths, key=lambda path: path.split("/"))
