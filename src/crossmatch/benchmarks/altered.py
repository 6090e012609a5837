"""Trials whose query was altered: negated, reworded, shuffled. Does the model notice? (hu2019bison, sec. 6)"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crossmatch.core.benchmark import Benchmark
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials
from crossmatch.language.alter import ALTERATIONS, alter_all

UNALTERED = "none"


def alterable(declared: Benchmark) -> Benchmark:
    """The benchmark with an option `alter`, which is one of the alterations or none."""

    def load(alter: str, **options: str) -> Trials:
        if alter not in (UNALTERED, *ALTERATIONS):
            raise WrongWords(f"alter is {alter!r}; one of {UNALTERED}, {', '.join(ALTERATIONS)} was expected.")
        trials = declared.load(**options)
        assert isinstance(trials, Trials)
        return trials if alter == UNALTERED else altered(trials, alter)

    return replace(declared, load=load, options={**declared.options, "alter": UNALTERED})


def altered(trials: Trials, how: str) -> Trials:
    """The same trials with their captions altered; one that cannot be (it has no verb, say) stays as it is, and is counted.

    >>> two = Trials(["a", "b"], [["1", "2"]] * 2, [["Dogs run."], ["Snow."]], ["", ""])
    >>> found = altered(two, "reversal")
    >>> found.captions.ravel().tolist(), found.notes
    (['Run dogs.', 'Snow.'], ('reversal: 1 of 2 captions could be altered (50.0 %)',))
    """
    if trials.shape[0] != 1:
        raise CrossmatchError(
            f"alterations are of a query, and these trials have {trials.shape[0]} captions each. Take trials of one, as bison."
        )
    given = trials.captions[:, 0].tolist()
    unique = list(dict.fromkeys(given))
    become = dict(zip(unique, alter_all(unique, how), strict=True))
    texts = [become[text] for text in given]
    done = sum(old != new for old, new in zip(given, texts, strict=True))
    note = f"{how}: {done:,} of {len(texts):,} captions could be altered ({100 * done / len(texts):.1f} %)"
    return replace(trials, captions=np.asarray(texts)[:, None], notes=(*trials.notes, note), unaltered=trials.captions)
