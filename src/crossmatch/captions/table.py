"""The caption metrics, declared once. A family gives one or more numbers; each has a name of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from crossmatch import __version__
from crossmatch.captions.bleu import bleu
from crossmatch.captions.cider import SIGMA, cider, cider_d
from crossmatch.captions.clip_score import PREFIX, WEIGHT, clip_score, ref_clip_score
from crossmatch.captions.corpus import ORDERS, Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.meteor import FACTS as METEOR_FACTS
from crossmatch.captions.meteor import meteor
from crossmatch.captions.rouge import BETA, rouge_l
from crossmatch.captions.scores import Scores
from crossmatch.captions.spice import spice, spice_parser
from crossmatch.captions.tiger import TAU, tiger
from crossmatch.captions.tokenise import TOKENISER
from crossmatch.core.errors import WrongWords

Facts = tuple[tuple[str, object], ...]

# What a metric may need beyond the corpus, and how to give it. CIDEr does without frequencies: it counts the references'.
GIVEN = {
    "frequencies": "document frequencies (--frequencies FILE)",
    "images": "the pictures (--images FOLDER, or a task as --references)",
    "embedder": "a model that embeds images and texts (--model NAME)",
    "grounder": "a model that grounds texts in regions (--grounder FOLDER)",
}


@dataclass(frozen=True)
class CaptionMetric:
    """`score` takes a corpus, and by keyword what it `needs` and its `options`; it gives one `Scores` for each name."""

    family: str
    names: tuple[str, ...]
    about: str
    score: Callable[..., tuple[Scores, ...]]
    best: float
    source: str
    facts: Facts = ()  # of its signature
    options: Facts = ()  # those that a user may set, with their defaults
    needs: tuple[str, ...] = ()  # of what is in `GIVEN`
    found: Callable[[], Facts] = tuple  # facts of its signature that depend on what is installed


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
        "cider", ("cider",), "cosine of n-grams weighted by how well they tell images apart; coco-caption's CIDEr is cider-d",
        cider, 1.0, "vedantam2015cider, eq. 1 to 3", (("n", ORDERS), ("scale", 1), ("stem", "no")), needs=("frequencies",),
    ),
    CaptionMetric(
        "cider-d", ("cider-d",), "CIDEr with clipped counts and a penalty for another length; coco-caption's CIDEr",
        cider_d, 10.0, "vedantam2015cider, sec. 7", (("n", ORDERS), ("scale", 10), ("stem", "no")), (("sigma", SIGMA),),
        needs=("frequencies",),
    ),
    CaptionMetric(
        "meteor", ("meteor",), "words aligned by form, stem, synonym or paraphrase, with a penalty for broken order",
        meteor, 1.0, "denkowski2014meteor", METEOR_FACTS,
    ),
    CaptionMetric(
        "spice", ("spice",), "what the caption says: F-score over things, attributes and relations",
        spice, 1.0, "anderson2016spice, sec. 3", (("synonyms", "wordnet-3.0"),), found=lambda: (("parser", spice_parser()),),
    ),
    CaptionMetric(
        "tiger", ("tiger", "rrs", "wds"), "whether the caption speaks of the same regions of the picture as the references",
        tiger, 1.0, "jiang2019tiger, eq. 1 to 14", (("ties", "expected"),), (("tau", TAU), ("variant", "paper")),
        needs=("grounder", "images"),
    ),
    CaptionMetric(
        "clip-score", ("clip-score",), "cosine of caption and picture",
        clip_score, WEIGHT, "hessel2021clipscore, sec. 3", (), (("weight", WEIGHT), ("prefix", PREFIX)),
        needs=("embedder", "images"),
    ),
    CaptionMetric(
        "ref-clip-score", ("ref-clip-score",), "harmonic mean of clip-score and of the cosine with the nearest reference",
        ref_clip_score, 2 * WEIGHT / (1 + WEIGHT), "hessel2021clipscore, sec. 3", (), (("weight", WEIGHT), ("prefix", PREFIX)),
        needs=("embedder", "images"),
    ),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class CaptionResult:
    """One metric on one corpus, and how it came about."""

    name: str
    scores: Scores
    best: float
    signature: str


class Asked(NamedTuple):
    """One number that was asked for: which of a family's, and with which options."""

    metric: CaptionMetric
    name: str
    options: Facts


def chosen(names: str | Iterable[str]) -> dict[str, Asked]:
    """The metrics of these names, by the name that each result has. The name of a family stands for all of its numbers, `all` for
    all metrics that look at no picture, and options follow as in `cider-d+sigma=4`.

    >>> list(chosen(["bleu-4", "cider-d+sigma=4"]))
    ['bleu-4', 'cider-d+sigma=4']
    >>> list(chosen(["bleu"]))
    ['bleu-1', 'bleu-2', 'bleu-3', 'bleu-4']
    """
    known: dict[str, list[tuple[str, CaptionMetric]]] = {}
    for metric in CAPTION_METRICS:
        known |= {name: [(name, metric)] for name in metric.names}
        known[metric.family] = [(name, metric) for name in metric.names]
    known["all"] = [pair for m in CAPTION_METRICS if set(m.needs) <= {"frequencies"} for pair in known[m.family]]
    found: dict[str, Asked] = {}
    for words in names.split(",") if isinstance(names, str) else names:
        name, *given = words.strip().split("+")
        name = name.lower()
        if name not in known:
            raise WrongWords(f"there is no caption metric {name!r}; there are {', '.join(known)}. Choose among these.")
        for each, metric in known[name]:
            found["+".join([each, *given])] = Asked(metric, each, _options(metric, given))
    if not found:
        raise WrongWords(f"no caption metric was named; there are {', '.join(known)}. Choose among these.")
    return found


def _options(metric: CaptionMetric, given: list[str]) -> Facts:
    """The options of a metric, with what was given in place of the defaults."""
    values = dict(metric.options)
    for n, words in enumerate(given):
        key, _, text = words.partition("=")
        if key not in values:
            there = ", ".join(values) or "no options"
            raise WrongWords(f"{metric.family} has no option {key!r}; there are {there}. Write it as in cider-d+sigma=4.")
        if words.partition("=")[0] in (one.partition("=")[0] for one in given[:n]):
            raise WrongWords(f"{metric.family} was given {key} twice. Keep one.")
        values[key] = _value(metric.family, key, text, values[key])
    return tuple(values.items())


def _value(family: str, key: str, text: str, default: object) -> object:
    """A text as a value of the default's kind."""
    read: dict[type, Callable[[str], object]] = {bool: {"yes": True, "no": False}.__getitem__, float: float, str: str}
    try:
        return read[type(default)](text)
    except (KeyError, ValueError):
        raise WrongWords(f"{family} was given {key}={text!r}; something like {told(default)!r} was expected.") from None


def score(
    corpus: Corpus,
    names: str | Iterable[str],
    frequencies: Frequencies | None = None,
    *,
    images: Callable[[str], Any] | None = None,
    embedder: object = None,
    grounder: object = None,
    tokeniser: str = TOKENISER,
    facts: Facts = (),
) -> dict[str, CaptionResult]:
    """The corpus value, each candidate's value and the signature of each metric, by name. A family is computed once.

    `images` opens the picture of an id, for metrics that look at pictures by an `embedder` or a `grounder`. `facts` of how the
    corpus came about join each signature.

    >>> corpus = Corpus.of({"7": "a dog runs", "8": "a cat"}, {"7": ["a dog is running"], "8": ["the cat sleeps", "a cat"]})
    >>> result = score(corpus, ["bleu", "cider-d"])["bleu-1"]
    >>> round(result.scores.value, 4), result.scores.values.round(4)
    (0.655, array([0.4777, 1. ]))
    >>> result.signature
    'bleu-1|tok:ptb-3.4.1|refs:1-2|length:closest|smooth:none|v...'
    """
    asked = chosen(names)
    given = {"frequencies": frequencies, "images": images, "embedder": embedder, "grounder": grounder}
    for name, (metric, _, _) in asked.items():
        for need in metric.needs:
            if given[need] is None and need != "frequencies":
                raise WrongWords(f"{name} needs {GIVEN[need]}, which was not given.")
    computed = {
        (metric.family, options): metric.score(corpus, **{need: given[need] for need in metric.needs}, **dict(options))
        for metric, options in dict.fromkeys((metric, options) for metric, _, options in asked.values())
    }
    return {
        label: CaptionResult(
            label,
            computed[one.metric.family, one.options][one.metric.names.index(one.name)],
            one.metric.best,
            signature(one, corpus, given, tokeniser, facts),
        )
        for label, one in asked.items()
    }


def signature(one: Asked, corpus: Corpus, given: dict[str, Any], tokeniser: str = TOKENISER, about: Facts = ()) -> str:
    """One line that says how a number came about: tokeniser, references for each candidate, document frequencies, the model and
    the data behind it, options."""
    few, many = corpus.references_each.min(), corpus.references_each.max()
    facts: list[tuple[str, object]] = [("tok", tokeniser), ("refs", str(few) if few == many else f"{few}-{many}"), *about]
    kept = given["frequencies"]
    for need in one.metric.needs:
        if need == "frequencies":
            facts.append(("df", f"references/{len(corpus)}" if kept is None else f"{kept.digest}/{kept.images}"))
        elif need != "images":
            model = given[need]
            facts.append((need, str(getattr(model, "signature", type(model).__name__)).replace("|", ",")))
    facts += [*one.metric.facts, *one.options, *one.metric.found()]
    return "|".join([one.name, *(f"{key}:{told(value)}" for key, value in facts), f"v{__version__}"])


def told(value: object) -> object:
    """A value of an option as users write it."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
