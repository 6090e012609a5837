"""Sensitivity of caption metrics to errors: a word of a caption is replaced by a near and by a far alternative."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.captions.caption_metric_table import compute_metrics, parse_metric_names
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.human.cached_models import cache_models, ground_in_advance
from crossmatch.captions.human.floating_point_ties import score_preferences
from crossmatch.captions.human.word_alternatives import (
    COMPONENT,
    COMPONENTS,
    PROPERTY,
    PROPERTY_KINDS,
    CaptionVocabulary,
    MentionedMeanings,
    extract_components,
    find_alternatives,
    property_kind,
)
from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.hashed_random_numbers import hash_uniform
from crossmatch.data.ratings import Preferences, Ratings
from crossmatch.data.signature import protocol_signature
from crossmatch.metrics.proportions import Proportion, independent_proportion
from crossmatch.text.synonyms_and_hypernyms import find_article, replace_word

CHANCE = 0.5  # accuracy of a random metric without ties
FREQUENCY_SCORER = "word frequency"  # a baseline that prefers the word that is more frequent in captions


@dataclass(frozen=True)
class Probe:
    """Two candidates for an image, made from one of its captions, and the other captions as references."""

    image: str
    component: str
    attribute: str  # of a property: counting, colour, size, state or other
    source: str  # the original caption
    old: str  # the lemma that was replaced
    near_word: str
    far_word: str
    relation: str  # of the near word to the old one
    times: tuple[int, int]  # frequencies of the near and the far word in captions
    near: str  # the candidate with the near word
    far: str  # the candidate with the far word
    references: tuple[str, ...]


@dataclass(frozen=True)
class SensitivityRow:
    """The share of probes in which a metric scores the near candidate strictly higher, with Wilson's interval."""

    metric: str
    component: str
    attribute: str  # "" for the whole component
    correct: Proportion
    ties: float  # share of the probes with equal scores, which count as wrong
    probes: int

    def as_json(self) -> dict[str, object]:
        """Plain values for `--json`."""
        share = self.correct
        right = {"value": share.value, "low": share.low, "high": share.high, "effective": share.effective}
        return {
            "metric": self.metric,
            "component": self.component,
            "attribute": self.attribute,
            "right": right,
            "ties": self.ties,
            "probes": self.probes,
        }


@dataclass(frozen=True)
class Sensitivity:
    """The rows of all metrics and, last, of the word frequency baseline, with signatures."""

    rows: tuple[SensitivityRow, ...]
    signatures: Mapping[str, str]  # of each metric
    signature: str

    def as_json(self) -> dict[str, object]:
        """Plain values for `--json`."""
        return {"signature": self.signature, "metrics": dict(self.signatures), "rows": [row.as_json() for row in self.rows]}


def measure_word_sensitivity(study: Ratings | Preferences, names: Iterable[str], seed: int = 0, **resources: Any) -> Sensitivity:
    """Measure sensitivity with probes made from the references of a study; see `measure_sensitivity`.

    Document frequencies, unless given, are those of the references of the study, with each image as a document.
    """
    references: dict[str, list[str]] = {}
    if isinstance(study, Preferences):
        for image, texts in zip(study.images.tolist(), study.references, strict=True):
            references[image] = list(dict.fromkeys([*references.get(image, ()), *texts]))
    else:
        references = {image: list(study.references[image]) for image in dict.fromkeys(study.images.tolist())}
    facts = {"data": study.digest, "seed": seed}
    probes = make_probes(references, seed=seed)
    return measure_sensitivity(probes, names, references, study=study.name, facts=facts, **resources)


def make_probes(captions: Mapping[str, Sequence[str]], vocabulary: CaptionVocabulary | None = None, seed: int = 0) -> list[Probe]:
    """Make at most one probe for each image and kind of component, from a random component of a random caption.

    A probe depends on the image's captions, the vocabulary and the seed, but not on other images or on their order. The source
    caption, and every caption equal to it, is not among the references. Images with a single caption, or without a suitable
    component, have no probe.

    Far alternatives are drawn from the vocabulary; by default that of the captions.

    Source: jiang2019tiger, sec. 4.6, where people chose the words.

    >>> captions = {"7": ["A man rides a horse.", "Someone on a pony."], "8": ["A woman eats pizza.", "A lady with food."]}
    >>> sentences = ["A man and a woman ride a pony.", "A boy eats pizza.", "An adult drives a big bus near the horse."]
    >>> for probe in make_probes(captions, CaptionVocabulary.from_captions(sentences))[:2]:
    ...     print(probe.near, "|", probe.far, "|", *probe.references)
    A man rides a pony. | A man rides a bus. | Someone on a pony.
    A man eats pizza. | A pony eats pizza. | A lady with food.
    """
    distinct_texts = dict.fromkeys(text for texts in captions.values() for text in texts)
    parsed = {text: (tokens, components) for text, tokens, _, components in extract_components(distinct_texts)}
    if vocabulary is None:
        vocabulary = CaptionVocabulary.from_components(
            component for texts in captions.values() for text in texts for component in parsed[text][1]
        )
    probes = (_make_probe(image, texts, kind, parsed, vocabulary, seed) for kind in COMPONENTS for image, texts in captions.items())
    return [probe for probe in probes if probe is not None]


def _make_probe(
    image: str, texts: Sequence[str], kind: str, parsed: Mapping[str, Any], vocabulary: CaptionVocabulary, seed: int
) -> Probe | None:
    words = (token.text for text in texts for token in parsed[text][0])
    mentioned = MentionedMeanings.from_components((component for text in texts for component in parsed[text][1]), words)
    places = [
        (text, candidate) for text in dict.fromkeys(texts) for candidate in parsed[text][1] if COMPONENT[candidate.pos] == kind
    ]
    random = hash_uniform([f"{image} {candidate.first} {text}" for text, candidate in places], 3, f"sensitivity {kind}", seed)
    for n in np.argsort(random[:, 0], kind="stable").tolist():
        text, component = places[n]
        references = tuple(caption for caption in texts if caption != text)
        if not references:
            continue
        tokens, pos = parsed[text][0], component.pos
        with_article = find_article(tokens, component) is not None
        alternatives = find_alternatives(component, vocabulary, mentioned, with_article, (random[n, 1], random[n, 2]))
        if alternatives:
            near, far = alternatives.near, alternatives.far
            return Probe(
                image, kind, property_kind(component), text, component.lemma, near, far, alternatives.relation,
                (vocabulary.frequency(near, pos), vocabulary.frequency(far, pos)),
                replace_word(text, tokens, component, near), replace_word(text, tokens, component, far), references,
            )  # fmt: skip
    return None


def measure_sensitivity(
    probes: Sequence[Probe],
    names: Iterable[str],
    image_captions: Mapping[str, Sequence[str]],
    frequencies: DocumentFrequencies | None = None,
    *,
    study: str,
    facts: Mapping[str, object],
    **resources: Any,
) -> Sensitivity:
    """Measure how often each metric scores the near candidate strictly higher, by component and by kind of property.

    Equal scores count as wrong. Metrics that compare words give them often: a word in no reference is as wrong as any other.
    CIDEr weighs such words by document frequency and therefore prefers one of them. The last rows show the value of such a
    preference: they belong to a baseline that prefers the more frequent word. Near and far words have similar, but not always equal
    frequencies.

    Document frequencies, unless given, are counted with each image as a document. The resources are those of `compute_metrics`.

    Source: jiang2019tiger, sec. 4.6 and fig. 7.

    >>> words = ("man", "guy", "bus", "narrower", (3, 4))
    >>> probe = Probe("7", "object", "", "a man", *words, "a guy", "a bus", ("the guy", "a person"))
    >>> captions = {"7": ["a man", "the guy", "a person"]}
    >>> result = measure_sensitivity([probe], ["bleu-1", "bleu-2"], captions, study="mine", facts={"seed": 0})
    >>> [(row.metric, row.component, row.correct.value, row.ties) for row in result.rows]
    [('bleu-1', 'object', 1.0, 0.0), ('bleu-2', 'object', 1.0, 0.0), ('word frequency', 'object', 0.0, 0.0)]
    >>> result.signature
    'sensitivity|mine|seed:0|ties:wrong|df:images|probes:1|words:wordnet-3.0|v...'
    """
    if not probes:
        raise CrossmatchError("No probes: images with at least two captions in whole sentences are needed.")
    requested = parse_metric_names(names)
    probe_of = {f"{n}/{side}": probe for n, probe in enumerate(probes) for side in ("near", "far")}
    corpus = CaptionCorpus.from_texts(
        {i: probe.near if i.endswith("near") else probe.far for i, probe in probe_of.items()},
        {i: probe.references for i, probe in probe_of.items()},
    )
    document_label = "images" if frequencies is None else f"{frequencies.digest}/{frequencies.images}"
    if frequencies is None and any("frequencies" in request.metric.needs for request in requested.values()):
        frequencies = DocumentFrequencies.from_references(image_captions)
    resources = cache_models(resources)
    ground_in_advance(resources, requested, lambda: _texts_of_probes(probes))
    if (load_image := resources.get("images")) is not None:
        resources = {**resources, "images": lambda i: load_image(probe_of[i].image)}
    results = compute_metrics(corpus, requested, frequencies=frequencies, **resources)
    scores = {name: results[name].scores.values.reshape(-1, 2) for name in requested}
    scores[FREQUENCY_SCORER] = np.array([probe.times for probe in probes], dtype=np.float64)
    rows = [
        _sensitivity_row(name, component, kind, pairs[members])
        for name, pairs in scores.items()
        for (component, kind), members in _probe_groups(probes).items()
    ]
    signature = protocol_signature(
        "sensitivity", study, "", **facts, ties="wrong", df=document_label,
        probes=len(probes), words="wordnet-3.0",
    )  # fmt: skip
    return Sensitivity(tuple(rows), {name: results[name].signature for name in requested}, signature)


def _texts_of_probes(probes: Sequence[Probe]) -> dict[str, list[str]]:
    """All texts that are scored, by image."""
    texts: dict[str, list[str]] = {}
    for probe in probes:
        texts.setdefault(probe.image, []).extend([probe.near, probe.far, *probe.references])
    return texts


def _sensitivity_row(name: str, component: str, kind: str, pairs: FloatArray) -> SensitivityRow:
    credit, is_tied = score_preferences(pairs, np.zeros(len(pairs), dtype=np.int64), 0.0)
    share = independent_proportion(int(credit.sum()), len(pairs))
    return SensitivityRow(name, component, kind, share, float(is_tied.mean()), len(pairs))


def _probe_groups(probes: Sequence[Probe]) -> dict[tuple[str, str], list[int]]:
    """The probes of each component, then those of each kind of property."""
    parts = [(component, "") for component in COMPONENTS] + [(PROPERTY, kind) for kind in PROPERTY_KINDS]
    groups = {
        (component, kind): [n for n, p in enumerate(probes) if p.component == component and kind in ("", p.attribute)]
        for component, kind in parts
    }
    return {part: members for part, members in groups.items() if members}
