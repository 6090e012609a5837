"""Altered queries: trials whose caption is negated, reworded or shuffled, to test whether a model notices (hu2019bison, sec. 6)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossmatch.data.benchmark import Benchmark
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trials import Trials
from crossmatch.text.perturbations import ALTERATIONS, alter_all

UNALTERED = "none"


def with_alter_option(benchmark: Benchmark) -> Benchmark:
    """Add the option `alter` to a benchmark: an alteration of its captions, or none."""

    def load(alter: str, **options: str) -> Trials:
        if alter not in (UNALTERED, *ALTERATIONS):
            raise UsageError(f"alter must be one of {UNALTERED}, {', '.join(ALTERATIONS)} (got {alter!r}).")
        trials = benchmark.loader(**options)
        assert isinstance(trials, Trials)
        return trials if alter == UNALTERED else alter_trials(trials, alter)

    return replace(benchmark, loader=load, options={**benchmark.options, "alter": UNALTERED})


def alter_trials(trials: Trials, alteration: str) -> Trials:
    """Alter the caption of every trial. Captions that cannot be altered (without a verb, say) stay, and a note counts them.

    >>> trials = Trials(["a", "b"], [["1", "2"]] * 2, [["Dogs run."], ["Snow."]], ["", ""])
    >>> altered = alter_trials(trials, "reversal")
    >>> altered.captions.ravel().tolist(), altered.notes
    (['Run dogs.', 'Snow.'], ('reversal: 1 of 2 captions could be altered (50.0 %)',))
    """
    if trials.shape[0] != 1:
        raise CrossmatchError(
            f"only trials with one caption can be altered; these have {trials.shape[0]}. Use a task such as bison."
        )
    captions = trials.captions[:, 0].tolist()
    unique = list(dict.fromkeys(captions))
    altered_text = dict(zip(unique, alter_all(unique, alteration), strict=True))
    new_captions = [altered_text[text] for text in captions]
    changed = sum(old != new for old, new in zip(captions, new_captions, strict=True))
    note = (
        f"{alteration}: {changed:,} of {len(new_captions):,} captions could be altered ({100 * changed / len(new_captions):.1f} %)"
    )
    return replace(
        trials, captions=np.asarray(new_captions)[:, None], notes=(*trials.notes, note), original_captions=trials.captions
    )
