"""The caption metrics, declared once. A family gives one or more numbers; each has a name of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from crossmatch import __version__
from crossmatch.captions.bleu import bleu
from crossmatch.captions.cider import SIGMA, cider, cider_d
from crossmatch.captions.corpus import ORDERS, Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.rouge import BETA, rouge_l
from crossmatch.captions.scores import Scores
from crossmatch.captions.tokenise import TOKENISER
from crossmatch.core.errors import WrongWords


@dataclass(frozen=True)
class CaptionMetric:
    """`score` takes a corpus and, where the metric weighs n-grams, document frequencies; it gives one `Scores` for each name."""

    family: str
    names: tuple[str, ...]
    about: str
    score: Callable[..., tuple[Scores, ...]]
    best: float
    source: str
    options: tuple[tuple[str, object], ...]  # the facts of its signature
    weighs: bool = False  # takes document frequencies


CAPTION_METRICS = (
    CaptionMetric(
        "bleu", tuple(f"bleu-{n}" for n in range(1, ORDERS + 1)),
        "share of the candidate's n-grams that a reference has, with a penalty for short candidates",
        bleu, 1.0, "papineni2002bleu, sec. 2", (("length", "closest"), ("smooth", "none")),
    ),
    CaptionMetric(
        "rouge-l", ("rouge-l",), "longest common subsequence with a reference, as F-score",
        rouge_l, 1.0, "lin2004rouge, sec. 3", (("beta", BETA), ("references", "max")),
    ),
    CaptionMetric(
        "cider", ("cider",), "cosine of n-grams weighted by how well they tell images apart",
        cider, 1.0, "vedantam2015cider, eq. 1 to 3", (("n", ORDERS), ("scale", 1), ("stem", "no")), weighs=True,
    ),
    CaptionMetric(
        "cider-d", ("cider-d",), "CIDEr with clipped counts and a penalty for another length; coco-caption's CIDEr",
        cider_d, 10.0, "vedantam2015cider, sec. 7", (("n", ORDERS), ("sigma", SIGMA), ("scale", 10), ("stem", "no")), weighs=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class CaptionResult:
    """One metric on one corpus, and how it came about."""

    name: str
    scores: Scores
    best: float
    signature: str


def chosen(names: Iterable[str]) -> dict[str, CaptionMetric]:
    """The metrics of these names; the name of a family stands for all of its numbers.

    >>> list(chosen(["bleu-4", "cider-d"]))
    ['bleu-4', 'cider-d']
    >>> list(chosen(["bleu"]))
    ['bleu-1', 'bleu-2', 'bleu-3', 'bleu-4']
    """
    known: dict[str, list[tuple[str, CaptionMetric]]] = {}
    for metric in CAPTION_METRICS:
        known |= {name: [(name, metric)] for name in metric.names}
        known[metric.family] = [(name, metric) for name in metric.names]
    found: dict[str, CaptionMetric] = {}
    for name in names:
        if name not in known:
            raise WrongWords(f"there is no caption metric {name!r}; there are {', '.join(known)}. Choose among these.")
        found |= known[name]
    return found


def score(
    corpus: Corpus, names: Iterable[str], frequencies: Frequencies | None = None, tokeniser: str = TOKENISER
) -> dict[str, CaptionResult]:
    """The corpus value, each candidate's value and the signature of each metric, by name. A family is computed once.

    >>> corpus = Corpus.of({"7": "a dog runs", "8": "a cat"}, {"7": ["a dog is running"], "8": ["the cat sleeps", "a cat"]})
    >>> result = score(corpus, ["bleu", "cider-d"])["bleu-1"]
    >>> round(result.scores.value, 4), result.scores.values.round(4)
    (0.655, array([0.4777, 1. ]))
    >>> result.signature
    'bleu-1|tok:ptb-3.4.1|refs:1-2|length:closest|smooth:none|v...'
    """
    metrics = chosen(names)
    computed = {m.family: m.score(corpus, frequencies) if m.weighs else m.score(corpus) for m in dict.fromkeys(metrics.values())}
    return {
        name: CaptionResult(
            name, computed[m.family][m.names.index(name)], m.best, signature(name, m, corpus, frequencies, tokeniser)
        )
        for name, m in metrics.items()
    }


def signature(
    name: str, metric: CaptionMetric, corpus: Corpus, frequencies: Frequencies | None = None, tokeniser: str = TOKENISER
) -> str:
    """One line that says how a number came about: tokeniser, references for each candidate, document frequencies, options."""
    few, many = corpus.references_each.min(), corpus.references_each.max()
    facts: list[tuple[str, object]] = [("tok", tokeniser), ("refs", str(few) if few == many else f"{few}-{many}")]
    if metric.weighs:
        facts.append(("df", f"references/{len(corpus)}" if frequencies is None else f"{frequencies.digest}/{frequencies.images}"))
    return "|".join([name, *(f"{key}:{value}" for key, value in (*facts, *metric.options)), f"v{__version__}"])
