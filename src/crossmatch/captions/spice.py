"""SPICE: how much of what a caption says the references say too, as F-score over the tuples of their scene graphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.official_spice import JAR, MODELS, VARIABLE, official_folder, official_scores
from crossmatch.captions.scores import Scores
from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.language.scene_graph import PARSER, SceneGraph, scene_graphs
from crossmatch.language.wordnet import FILES, synsets

Keys = frozenset[object]  # a word and its meanings: two words match if they share one of these
COUNTS = frozenset(
    {
        "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "1", "2", "3", "4", "5", "6", "7",
        "8", "9", "10",
    }
)  # fmt: skip
COLOURS = frozenset(
    {
        "beige", "black", "blue", "brown", "dark", "gold", "gray", "green", "grey", "light", "maroon", "orange", "pink",
        "purple", "red", "silver", "tan", "turquoise", "violet", "white", "yellow",
    }
)  # fmt: skip
SIZES = frozenset(
    {
        "big", "bulky", "enormous", "fat", "giant", "gigantic", "great", "huge", "immense", "large", "little", "long", "low",
        "massive", "mini", "miniature", "narrow", "oversized", "petite", "short", "skinny", "slender", "slim", "small",
        "tall", "thick", "thin", "tiny", "vast", "wide",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Tuples:
    """What one or more captions say, with synonyms as one: a thing that two captions name differently is one thing.

    Things are numbered; attributes are (thing, keys, words), relations (thing, keys, thing).
    """

    objects: tuple[Keys, ...]
    attributes: tuple[tuple[int, Keys, tuple[str, ...]], ...]
    relations: tuple[tuple[int, Keys, int], ...]

    @classmethod
    def of(cls, graphs: Iterable[SceneGraph]) -> Tuples:
        """Joined whichever way the captions are ordered: words belong together if a chain of shared meanings joins them.

        >>> from crossmatch.language.scene_graph import SceneGraph
        >>> len(Tuples.of([SceneGraph(("bike",)), SceneGraph(("bicycle",)), SceneGraph(("car",))]).objects)
        2
        """
        graphs = list(graphs)
        groups = together(list(dict.fromkeys(name for graph in graphs for name in graph.objects)))
        number = {name: n for n, group in enumerate(groups) for name in group}
        traits: dict[int, dict[str, None]] = {}
        ties: dict[tuple[int, int], dict[str, None]] = {}
        for graph in graphs:
            for thing, trait in graph.attributes:
                traits.setdefault(number[thing], {})[trait] = None
            for one, relation, other in graph.relations:
                ties.setdefault((number[one], number[other]), {})[relation] = None
        return cls(
            tuple(keys_of(group) for group in groups),
            tuple((n, keys_of(group), tuple(group)) for n, words in traits.items() for group in together(list(words))),
            tuple((one, keys_of(group), other) for (one, other), words in ties.items() for group in together(list(words))),
        )


@dataclass(frozen=True)
class Part:
    """Some of the tuples, by what they are about."""

    about: str
    objects: bool = False
    attributes: frozenset[str] | None = frozenset()  # these words, or all
    relations: bool = False


ALL = Part("all tuples", True, None, True)
# What the official tool reports, too; its lists of colours and sizes are a little longer or shorter.
PARTS = {
    "object": Part("things", objects=True),
    "attribute": Part("what things are like", attributes=None),
    "relation": Part("how things stand to each other", relations=True),
    "colour": Part("attributes that are colours", attributes=COLOURS),
    "count": Part("attributes that are numbers up to ten", attributes=COUNTS),
    "size": Part("attributes that are sizes", attributes=SIZES),
}


def spice(corpus: Corpus, *, parser: str | None = None) -> tuple[Scores]:
    """SPICE of each candidate, and the mean over candidates.

        F₁ = 2 P R / (P + R),   P = |T(c) ⊗ T(S)| / |T(c)|,   R = |T(c) ⊗ T(S)| / |T(S)|

    T(c) are the objects, (object, attribute) and (object, relation, object) of the candidate's scene graph, T(S) those of all its
    references' together. ⊗ keeps the candidate's tuples for which there is one of the references' with equal or synonymous parts:
    words that share a synset of WordNet, of whatever part of speech. Synonymous objects, and synonymous attributes or relations
    of the same objects, count once. A side without tuples (an empty caption, or one without a noun) makes the score 0.

    The parser is the official program's where it is there (see `spice_parser`), else the rules of `language.scene_graph`.
    Source: anderson2016spice, sec. 3; where it is silent (which matches count, which synsets), its released code.

    >>> corpus = Corpus.of({"7": "a man rides a wave"}, {"7": ["a big man riding a wave", "two waves"]})
    >>> spice(corpus, parser="rules")[0].values          # three tuples and five; shared: man, wave, (man, ride, wave)
    array([0.75])
    """
    values = np.nan_to_num(_f_scores(corpus, {"all": ALL}, parser)["all"])
    return (Scores(float(values.mean()), values),)


def spice_parts(corpus: Corpus, *, parser: str | None = None) -> dict[str, Scores]:
    """F₁ by what the tuples are about: see `PARTS`.

    NaN where the references say nothing of the kind; the corpus value is the mean of the rest, as the official tool reports it.
    Source: anderson2016spice, sec. 3, by kinds of tuples as its released code parts them.

    >>> corpus = Corpus.of({"7": "a red bus"}, {"7": ["a red car"]})
    >>> {name: scores.value for name, scores in spice_parts(corpus, parser="rules").items()}
    {'object': 0.0, 'attribute': 0.0, 'relation': nan, 'colour': 0.0, 'count': nan, 'size': nan}
    """
    return {name: _mean(values) for name, values in _f_scores(corpus, PARTS, parser).items()}


def spice_parser(parser: str | None = None) -> str:
    """The parser that SPICE takes, as signatures name it.

    `rules` is that of this package, `official` the program's; None the program's if Java, the jar and its models are there.

    >>> spice_parser("rules")
    'rules-1'
    >>> spice_parser("stanza")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: there is no SPICE parser 'stanza'; there are rules and official. Choose one of these.
    """
    return PARSER if _folder(parser) is None else JAR


def _folder(parser: str | None) -> Path | None:
    if parser not in (None, "rules", "official"):
        raise WrongWords(f"there is no SPICE parser {parser!r}; there are rules and official. Choose one of these.")
    folder = None if parser == "rules" else official_folder()
    if parser == "official" and folder is None:
        raise CrossmatchError(
            f"the official SPICE cannot run here; it needs java, {JAR} and in lib/ beside it {' and '.join(MODELS)}. "
            f"Name a folder that has them in {VARIABLE}, or take the parser 'rules'."
        )
    return folder


def _f_scores(corpus: Corpus, parts: Mapping[str, Part], parser: str | None) -> dict[str, FloatArray]:
    folder = _folder(parser)
    if folder is None:
        pairs = list(sides(corpus))
        return {name: np.array([f_score(*pair, part) for pair in pairs], dtype=np.float64) for name, part in parts.items()}
    words = [" ".join(tokens) for tokens in texts(corpus)]
    found = official_scores(folder, [(words[own], words[own + 1 : end]) for own, end in _spans(corpus)])
    return {name: found[name] for name in parts}


def _mean(values: FloatArray) -> Scores:
    known = values[~np.isnan(values)]
    return Scores(float(known.mean()) if len(known) else float("nan"), values)


def sides(corpus: Corpus) -> Iterator[tuple[Tuples, Tuples]]:
    """Of each id: what its candidate says, and what its references say together."""
    graphs = scene_graphs(texts(corpus))
    for own, end in _spans(corpus):
        yield Tuples.of(graphs[own : own + 1]), Tuples.of(graphs[own + 1 : end])


def _spans(corpus: Corpus) -> Iterator[tuple[int, int]]:
    """Of each id: the place of its candidate among the captions, and that after its last reference."""
    own = corpus.candidate.tolist()
    return zip(own, [*own[1:], len(corpus.image)], strict=True)


def texts(corpus: Corpus) -> list[list[str]]:
    """The tokens of every caption."""
    words = [corpus.vocabulary[word] for word in corpus.words.tolist()]
    begin = corpus.begin.tolist()
    return [words[start:end] for start, end in pairwise(begin)]


def f_score(own: Tuples, other: Tuples, part: Part) -> float:
    """F₁ of the candidate's tuples against the references'; NaN where the references have none of this part.

    Several of the candidate's tuples may match the same one of the references': no more than there are count.
    """
    things: dict[object, list[int]] = {}
    for n, keys in enumerate(other.objects):
        for key in keys:
            things.setdefault(key, []).append(n)
    same = [{n for key in keys for n in things.get(key, ())} for keys in own.objects]
    found = said = wanted = 0
    if part.objects:
        found, said, wanted = sum(map(bool, same)), len(own.objects), len(other.objects)
    if part.attributes is None or part.attributes:
        ours, theirs = (_among(tuples, part.attributes) for tuples in (own, other))
        traits = {(thing, key) for thing, keys in theirs for key in keys}
        found += sum(any((n, key) in traits for n in same[thing] for key in keys) for thing, keys in ours)
        said, wanted = said + len(ours), wanted + len(theirs)
    if part.relations:
        ties = {(one, key, another) for one, keys, another in other.relations for key in keys}
        found += sum(
            any((n, key, m) in ties for n in same[one] for m in same[another] for key in keys)
            for one, keys, another in own.relations
        )
        said, wanted = said + len(own.relations), wanted + len(other.relations)
    found = min(found, wanted)
    return (2 * found / (said + wanted)) if wanted else float("nan")


def _among(tuples: Tuples, words: frozenset[str] | None) -> list[tuple[int, Keys]]:
    return [(thing, keys) for thing, keys, names in tuples.attributes if words is None or not words.isdisjoint(names)]


def together(names: Sequence[str]) -> list[list[str]]:
    """The words in groups, each joined by shared meanings.

    >>> together(["bike", "car", "bicycle", "auto"])
    [['bike', 'bicycle'], ['car', 'auto']]
    """
    if len(names) < 2:
        return [list(names)] if names else []
    group = {name: name for name in names}

    def top(name: str) -> str:
        while group[name] != name:
            group[name] = name = group[group[name]]
        return name

    first: dict[object, str] = {}
    for name in names:
        for key in keys_of((name,)):
            other = first.setdefault(key, name)
            if other is not name:
                group[top(name)] = top(other)
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(top(name), []).append(name)
    return list(found.values())


def keys_of(names: Sequence[str]) -> Keys:
    """The words and all their meanings."""
    return _keys(names[0]) if len(names) == 1 else frozenset().union(*map(_keys, names))


@lru_cache(1 << 16)
def _keys(name: str) -> Keys:
    return frozenset((name, *((synset.pos, synset.offset) for pos in FILES for synset in synsets(name, pos))))
