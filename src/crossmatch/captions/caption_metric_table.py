"""The table of caption metrics, the parser of metric names, and the function that computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from crossmatch import __version__
from crossmatch.captions.bleu import bleu
from crossmatch.captions.cider import SIGMA, cider, cider_d
from crossmatch.captions.clip_score import PREFIX, WEIGHT, clip_score, ref_clip_score
from crossmatch.captions.corpus import MAX_ORDER, CaptionCorpus, CaptionScores
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.meteor.score import SIGNATURE_FACTS as METEOR_FACTS
from crossmatch.captions.meteor.score import meteor
from crossmatch.captions.ptb_tokenizer import TOKENISER
from crossmatch.captions.rouge import BETA, rouge_l
from crossmatch.captions.spice.score import parser_name, spice
from crossmatch.captions.tiger.score import TAU, tiger
from crossmatch.data.errors import UsageError
from crossmatch.data.grounding import takes_image_ids

Facts = tuple[tuple[str, object], ...]

# What a metric may need besides the corpus, and how to provide it. Without frequencies CIDEr counts those of the references.
REQUIREMENTS = {
    "frequencies": "document frequencies (--frequencies FILE)",
    "images": "images (--images FOLDER, or a task as --references)",
    "embedder": "a model that embeds images and texts (--model NAME)",
    "grounder": "a model that grounds texts in regions (--grounder FOLDER, or regions:FILE+FOLDER)",
}


@dataclass(frozen=True)
class CaptionMetric:
    """A family of caption metrics that are computed together, such as BLEU-1 to BLEU-4.

    `compute` takes a corpus, and by keyword what the family needs and its options. It returns one `CaptionScores` for each name.
    """

    family: str
    names: tuple[str, ...]
    description: str
    compute: Callable[..., tuple[CaptionScores, ...]]
    best: float
    source: str
    signature_facts: Facts = ()
    options: Facts = ()  # that a user may set, with their defaults
    needs: tuple[str, ...] = ()  # keys of `REQUIREMENTS`
    environment_facts: Callable[[], Facts] = tuple  # signature facts that depend on what is installed


CAPTION_METRICS = (
    CaptionMetric(
        "bleu", tuple(f"bleu-{n}" for n in range(1, MAX_ORDER + 1)),
        "share of the candidate's n-grams that occur in a reference, with a penalty for short candidates",
        bleu, 1.0, "papineni2002bleu, sec. 2", (("length", "closest"), ("smooth", "none")),
    ),
    CaptionMetric(
        "rouge-l", ("rouge-l",), "longest common subsequence with a reference, as an F-score",
        rouge_l, 1.0, "lin2004rouge, sec. 3", (("beta", BETA), ("references", "max")),
    ),
    CaptionMetric(
        "cider", ("cider",), "cosine of n-grams weighted by tf-idf; coco-caption's CIDEr is cider-d",
        cider, 1.0, "vedantam2015cider, eq. 1 to 3", (("n", MAX_ORDER), ("scale", 1), ("stem", "no")), needs=("frequencies",),
    ),
    CaptionMetric(
        "cider-d", ("cider-d",), "CIDEr with clipped counts and a length penalty; coco-caption's CIDEr",
        cider_d, 10.0, "vedantam2015cider, sec. 7", (("n", MAX_ORDER), ("scale", 10), ("stem", "no")), (("sigma", SIGMA),),
        needs=("frequencies",),
    ),
    CaptionMetric(
        "meteor", ("meteor",), "words aligned by form, stem, synonym or paraphrase, with a penalty for changed word order",
        meteor, 1.0, "denkowski2014meteor", METEOR_FACTS,
    ),
    CaptionMetric(
        "spice", ("spice",), "F-score over the objects, attributes and relations that the caption mentions",
        spice, 1.0, "anderson2016spice, sec. 3", (("synonyms", "wordnet-3.0"),),
        environment_facts=lambda: (("parser", parser_name()),),
    ),
    CaptionMetric(
        "tiger", ("tiger", "rrs", "wds"), "agreement with the references about which image regions are described",
        tiger, 1.0, "jiang2019tiger, eq. 1 to 14", (("ties", "expected"),), (("tau", TAU), ("variant", "paper")),
        needs=("grounder", "images"),
    ),
    CaptionMetric(
        "clip-score", ("clip-score",), "cosine of caption and image",
        clip_score, WEIGHT, "hessel2021clipscore, sec. 3", (), (("weight", WEIGHT), ("prefix", PREFIX)),
        needs=("embedder", "images"),
    ),
    CaptionMetric(
        "ref-clip-score", ("ref-clip-score",), "harmonic mean of clip-score and the cosine with the nearest reference",
        ref_clip_score, 2 * WEIGHT / (1 + WEIGHT), "hessel2021clipscore, sec. 3", (), (("weight", WEIGHT), ("prefix", PREFIX)),
        needs=("embedder", "images"),
    ),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class CaptionResult:
    """The scores of one metric on one corpus, with a signature that says how they were computed."""

    name: str
    scores: CaptionScores
    best: float
    signature: str


class RequestedMetric(NamedTuple):
    """One requested metric: its family, its name within the family, and its options."""

    metric: CaptionMetric
    name: str
    options: Facts


def parse_metric_names(names: str | Iterable[str]) -> dict[str, RequestedMetric]:
    """Parse names of caption metrics.

    Names come as a list, or as one text separated by commas. The name of a family means all its metrics, and `all` all metrics that
    need no images. Options follow the name, as in `cider-d+sigma=4`. Returns the requested metrics by the name of each result.

    >>> list(parse_metric_names(["bleu-4", "cider-d+sigma=4"]))
    ['bleu-4', 'cider-d+sigma=4']
    >>> list(parse_metric_names(["bleu"]))
    ['bleu-1', 'bleu-2', 'bleu-3', 'bleu-4']
    """
    metrics_by_name: dict[str, list[tuple[str, CaptionMetric]]] = {}
    for metric in CAPTION_METRICS:
        metrics_by_name |= {name: [(name, metric)] for name in metric.names}
        metrics_by_name[metric.family] = [(name, metric) for name in metric.names]
    text_metrics = [metric for metric in CAPTION_METRICS if set(metric.needs) <= {"frequencies"}]
    metrics_by_name["all"] = [pair for metric in text_metrics for pair in metrics_by_name[metric.family]]
    requested: dict[str, RequestedMetric] = {}
    for text in names.split(",") if isinstance(names, str) else names:
        name, *settings = text.strip().split("+")
        name = name.lower()
        if name not in metrics_by_name:
            raise UsageError(f"Unknown caption metric {name!r}. Choose from: {', '.join(metrics_by_name)}.")
        for member, metric in metrics_by_name[name]:
            requested["+".join([member, *settings])] = RequestedMetric(metric, member, _parse_options(metric, settings))
    if not requested:
        raise UsageError(f"No caption metric was named. Choose from: {', '.join(metrics_by_name)}.")
    return requested


def _parse_options(metric: CaptionMetric, settings: list[str]) -> Facts:
    """The options of a metric: defaults, overridden by settings such as `sigma=4`."""
    values = dict(metric.options)
    option_names: set[str] = set()
    for setting in settings:
        key, _, text = setting.partition("=")
        if key not in values:
            options = f"its options are {', '.join(values)}" if values else "it has no options"
            raise UsageError(f"{metric.family}: unknown option {key!r}; {options}. Write options as in cider-d+sigma=4.")
        if key in option_names:
            raise UsageError(f"{metric.family}: option {key} is set twice. Keep one.")
        option_names.add(key)
        values[key] = _parse_value(metric.family, key, text, values[key])
    return tuple(values.items())


def _parse_value(family: str, key: str, text: str, default: object) -> object:
    """A text as a value of the default's type."""
    parsers: dict[type, Callable[[str], object]] = {bool: {"yes": True, "no": False}.__getitem__, float: float, str: str}
    try:
        return parsers[type(default)](text)
    except (KeyError, ValueError):
        raise UsageError(f"{family}: expected a value such as {format_option(default)!r} for {key}, got {text!r}.") from None


def compute_metrics(
    corpus: CaptionCorpus,
    names: str | Iterable[str],
    frequencies: DocumentFrequencies | None = None,
    *,
    images: Callable[[str], Any] | None = None,
    embedder: object = None,
    grounder: object = None,
    tokeniser: str = TOKENISER,
    facts: Facts = (),
) -> dict[str, CaptionResult]:
    """Compute caption metrics on a corpus. Metrics of one family are computed together.

    Args:
        corpus: The candidates with their references.
        names: Names of metrics; see `parse_metric_names`.
        frequencies: Document frequencies for CIDEr; by default those of the corpus.
        images: Opens the image of an id.
        embedder: A model that embeds images and texts, for CLIPScore.
        grounder: A model that grounds texts in image regions, for TIGEr.
        tokeniser: The name of the tokeniser, for signatures.
        facts: How the corpus was made, for signatures.

    Returns:
        The scores and the signature of each metric, by name.

    Raises:
        UsageError: A metric needs something that is missing.

    >>> references = {"7": ["a dog is running"], "8": ["the cat sleeps", "a cat"]}
    >>> corpus = CaptionCorpus.from_texts({"7": "a dog runs", "8": "a cat"}, references)
    >>> result = compute_metrics(corpus, ["bleu", "cider-d"])["bleu-1"]
    >>> round(result.scores.value, 4), result.scores.values.round(4)
    (0.655, array([0.4777, 1. ]))
    >>> result.signature
    'bleu-1|tok:ptb-3.4.1|refs:1-2|length:closest|smooth:none|v...'
    """
    requested = parse_metric_names(names)
    resources = {"frequencies": frequencies, "images": images, "embedder": embedder, "grounder": grounder}
    for name, (metric, _, _) in requested.items():
        for need in metric.needs:
            is_optional = need == "frequencies" or (need == "images" and "grounder" in metric.needs and takes_image_ids(grounder))
            if resources[need] is None and not is_optional:
                raise UsageError(f"{name} needs {REQUIREMENTS[need]}.")
    families = {
        (metric.family, options): metric.compute(corpus, **{need: resources[need] for need in metric.needs}, **dict(options))
        for metric, options in dict.fromkeys((metric, options) for metric, _, options in requested.values())
    }
    return {
        label: CaptionResult(
            label,
            families[request.metric.family, request.options][request.metric.names.index(request.name)],
            request.metric.best,
            metric_signature(request, corpus, resources, tokeniser, facts),
        )
        for label, request in requested.items()
    }


def metric_signature(
    request: RequestedMetric,
    corpus: CaptionCorpus,
    resources: dict[str, Any],
    tokeniser: str = TOKENISER,
    corpus_facts: Facts = (),
) -> str:
    """One line that says how a number was computed: tokeniser, number of references, document frequencies, model, options."""
    fewest, most = corpus.references_per_image.min(), corpus.references_per_image.max()
    references = str(fewest) if fewest == most else f"{fewest}-{most}"
    facts: list[tuple[str, object]] = [("tok", tokeniser), ("refs", references), *corpus_facts]
    frequencies = resources["frequencies"]
    for need in request.metric.needs:
        if need == "frequencies":
            uses_references = frequencies is None
            facts.append(("df", f"references/{len(corpus)}" if uses_references else f"{frequencies.digest}/{frequencies.images}"))
        elif need != "images":
            model = resources[need]
            facts.append((need, str(getattr(model, "signature", type(model).__name__)).replace("|", ",")))
    facts += [*request.metric.signature_facts, *request.options, *request.metric.environment_facts()]
    return "|".join([request.name, *(f"{key}:{format_option(value)}" for key, value in facts), f"v{__version__}"])


def format_option(value: object) -> object:
    """The value of an option as users write it."""
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value
