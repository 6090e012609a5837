"""Which errors a metric notices: an object, an action or a property of a caption replaced by a near and by a far alternative."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from crossmatch.captions.alternatives import (
    ATTRIBUTES,
    COMPONENT,
    COMPONENTS,
    PROPERTY,
    Mentioned,
    Vocabulary,
    alternatives,
    article_before,
    attribute,
    put,
    taken_apart,
)
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.levels import answered
from crossmatch.captions.remembered import ground_ahead, remembered
from crossmatch.captions.table import chosen, score
from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.presented import uniform
from crossmatch.core.signature import protocol
from crossmatch.metrics.proportion import Share, share_of_alike

CHANCE = 0.5  # of a metric that sees nothing and never gives two captions the same score
BLIND = "word frequency"  # the name of the scorer that sees nothing but how often captions say the two words


@dataclass(frozen=True)
class Probe:
    """Two candidates for an image, made of one of its captions, and the captions that are left to compare them with."""

    image: str
    component: str
    attribute: str  # of a property: counting, colour, size, state or other
    source: str
    old: str  # the lemma that was replaced, and what took its place
    near_word: str
    far_word: str
    relation: str  # of the near word to the old one
    times: tuple[int, int]  # how often captions say the near and the far word
    near: str  # the candidates
    far: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class Noticed:
    """In which share of the probes a metric scores the near candidate strictly higher, with Wilson's interval."""

    metric: str
    component: str
    attribute: str  # "" for a whole component
    right: Share
    ties: float  # share of the probes with equal scores: wrong, too
    probes: int


@dataclass(frozen=True)
class Sensitivity:
    """What all metrics notice, the scorer that sees nothing last, and how the numbers came about."""

    rows: tuple[Noticed, ...]
    signatures: Mapping[str, str]  # of each metric
    signature: str

    def as_json(self) -> dict[str, object]:
        return {"signature": self.signature, "metrics": dict(self.signatures), "rows": [asdict(row) for row in self.rows]}


def probes(
    captions: Mapping[str, Sequence[str]],
    components: Iterable[str] = COMPONENTS,
    vocabulary: Vocabulary | None = None,
    seed: int = 0,
) -> list[Probe]:
    """At most one probe for each image and component: one that is replaced in one of its captions, both drawn at random.

    The words that far alternatives are drawn from are those of the captions, unless a larger vocabulary is given. A probe depends
    on the image's captions, the vocabulary and the seed, not on other images or on any order. The source, and every caption equal
    to it, is not among the references. Images without a second caption, or without such a component, have no probe.
    Source: jiang2019tiger, sec. 4.6; there, people chose the words.

    >>> said = {"7": ["A man rides a horse.", "Someone on a pony."], "8": ["A woman eats pizza.", "A lady with food."]}
    >>> words = Vocabulary.of(["A man and a woman ride a pony.", "A boy eats pizza.", "An adult drives a big bus near the horse."])
    >>> for probe in probes(said, ["object"], words):
    ...     print(probe.near, "|", probe.far, "|", *probe.references)
    A man rides a pony. | A man rides a bus. | Someone on a pony.
    A man eats pizza. | A pony eats pizza. | A lady with food.
    """
    asked = list(components)
    wrong = [name for name in asked if name not in COMPONENTS]
    if wrong:
        raise WrongWords(f"there is no component {wrong[0]!r}; there are {', '.join(COMPONENTS)}. Choose among these.")
    if not captions:
        raise CrossmatchError("there are no captions; a list of them for each image was expected. Check the file.")
    apart = {text: (found, units) for text, found, _, units in taken_apart(_every(captions))}
    known = vocabulary or Vocabulary.counted(unit for texts in captions.values() for text in texts for unit in apart[text][1])
    return [
        probe
        for component in asked
        for image, texts in captions.items()
        if (probe := _probe(image, texts, component, apart, known, seed)) is not None
    ]


def _every(captions: Mapping[str, Sequence[str]]) -> list[str]:
    for image, texts in captions.items():
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise CrossmatchError(f"the captions of {image!r} are {texts!r:.60}; a list of texts was expected. Mend the file.")
    return list(dict.fromkeys(text for texts in captions.values() for text in texts))


def _probe(
    image: str, texts: Sequence[str], component: str, apart: Mapping[str, Any], vocabulary: Vocabulary, seed: int
) -> Probe | None:
    words = (token.text for text in texts for token in apart[text][0])
    mentioned = Mentioned.by((unit for text in texts for unit in apart[text][1]), words)
    places = [(text, unit) for text in dict.fromkeys(texts) for unit in apart[text][1] if COMPONENT[unit.pos] == component]
    drawn = uniform([f"{image} {unit.first} {text}" for text, unit in places], 3, f"sensitivity {component}", seed)
    for at in np.argsort(drawn[:, 0], kind="stable").tolist():
        text, unit = places[at]
        rest = tuple(other for other in texts if other != text)
        found = apart[text][0]
        with_article = article_before(found, unit) is not None
        if rest and (two := alternatives(unit, vocabulary, mentioned, with_article, (drawn[at, 1], drawn[at, 2]))):
            near, far = (put(text, found, unit, new) for new in (two.near, two.far))
            times = vocabulary.frequency(two.near, unit.pos), vocabulary.frequency(two.far, unit.pos)
            return Probe(
                image, component, attribute(unit), text, unit.lemma, two.near, two.far, two.relation, times, near, far, rest
            )
    return None


def sensitivity(
    given_probes: Sequence[Probe],
    names: Iterable[str],
    frequencies: Frequencies | None = None,
    *,
    held: Mapping[str, Sequence[str]] | None = None,
    study: str = "captions",
    facts: Mapping[str, object] | None = None,
    **given: Any,
) -> Sensitivity:
    """For each metric and component, and for each kind of property, how often the near candidate scores strictly higher.

    Equal scores are wrong, and metrics that compare words give them often: a word that no reference has is as wrong as any other.
    CIDEr weighs such words by their document frequency, and so has a favourite all the same. What that is worth is told by the last
    rows, of a scorer that prefers the more frequent word: the frequencies of near and far are alike, but not equal everywhere.
    Document frequencies, if none are given, are those of the captions of each image, every image counting once: of all captions
    that are `held`, or of those that its probes name. Source: jiang2019tiger, sec. 4.6 and fig. 7.

    >>> words = ("man", "guy", "bus", "narrower", (3, 4))
    >>> probe = Probe("7", "object", "", "a man", *words, "a guy", "a bus", ("the guy", "a person"))
    >>> found = sensitivity([probe], ["bleu-1", "bleu-2"])
    >>> [(row.metric, row.component, row.right.value, row.ties) for row in found.rows]
    [('bleu-1', 'object', 1.0, 0.0), ('bleu-2', 'object', 1.0, 0.0), ('word frequency', 'object', 0.0, 0.0)]
    >>> found.signature
    'sensitivity|captions|data:...|ties:wrong|df:images|probes:1|words:wordnet-3.0|v...'
    """
    if not given_probes:
        raise CrossmatchError("there are no probes; images with at least two captions were expected, in whole sentences.")
    wanted = chosen(names)
    rows = {f"{n}/{which}": probe for n, probe in enumerate(given_probes) for which in ("near", "far")}
    corpus = Corpus.of(
        {i: probe.near if i.endswith("near") else probe.far for i, probe in rows.items()},
        {i: probe.references for i, probe in rows.items()},
    )
    df = "images" if frequencies is None else f"{frequencies.digest}/{frequencies.images}"
    if frequencies is None and any("frequencies" in one.metric.needs for one in wanted.values()):
        documents = held or _held(given_probes)
        frequencies = Frequencies.of(Corpus.of(dict.fromkeys(documents, ""), documents))
    given = remembered(given)
    ground_ahead(given, wanted, lambda: _said(given_probes))
    if (opened := given.get("images")) is not None:
        given = {**given, "images": lambda i: opened(rows[i].image)}
    results = score(corpus, wanted, frequencies=frequencies, **given)
    scores = {name: results[name].scores.values.reshape(-1, 2) for name in wanted}
    scores[BLIND] = np.array([probe.times for probe in given_probes], dtype=np.float64)
    parts = _parts(given_probes)
    found = [_noticed(name, component, kind, both[at]) for name, both in scores.items() for (component, kind), at in parts.items()]
    said = dict(facts) if facts is not None else {"data": _digest(given_probes)}
    told = {**said, "ties": "wrong", "df": df, "probes": len(given_probes), "words": "wordnet-3.0"}
    signatures = {name: results[name].signature for name in wanted}
    return Sensitivity(tuple(found), signatures, protocol("sensitivity", study, "", **told))


def _held(given_probes: Sequence[Probe]) -> dict[str, list[str]]:
    """The captions of each image, as far as its probes name them."""
    held: dict[str, dict[str, None]] = {}
    for probe in given_probes:
        held.setdefault(probe.image, {}).update(dict.fromkeys((probe.source, *probe.references)))
    return {image: list(texts) for image, texts in held.items()}


def _said(given_probes: Sequence[Probe]) -> dict[str, list[str]]:
    """All texts that are compared, by image."""
    said: dict[str, list[str]] = {}
    for probe in given_probes:
        said.setdefault(probe.image, []).extend([probe.near, probe.far, *probe.references])
    return said


def _digest(given_probes: Sequence[Probe]) -> str:
    """Eight signs that tell these probes from others."""
    return hashlib.sha256(json.dumps([asdict(probe) for probe in given_probes]).encode()).hexdigest()[:8]


def _noticed(name: str, component: str, kind: str, both: FloatArray) -> Noticed:
    right, level = answered(both, np.zeros(len(both), dtype=np.int64), 0.0)
    return Noticed(name, component, kind, share_of_alike(int(right.sum()), len(both)), float(level.mean()), len(both))


def _parts(given_probes: Sequence[Probe]) -> dict[tuple[str, str], list[int]]:
    """The probes of each component, then those of each kind of property."""
    wanted = [(component, "") for component in COMPONENTS] + [(PROPERTY, kind) for kind in ATTRIBUTES]
    found = {
        (component, kind): [n for n, p in enumerate(given_probes) if p.component == component and kind in ("", p.attribute)]
        for component, kind in wanted
    }
    return {part: at for part, at in found.items() if at}
