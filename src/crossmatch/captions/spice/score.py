"""SPICE: F-score over the tuples of the scene graphs of candidate and references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from crossmatch.captions.corpus import CaptionCorpus, CaptionScores
from crossmatch.captions.spice.official_program import ENVIRONMENT_VARIABLE, JAR, MODELS, find_official_folder, run_official_program
from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.text.scene_graph import PARSER_NAME, SceneGraph, scene_graphs
from crossmatch.text.wordnet import FILES, synsets

SynonymKeys = frozenset[object]  # a word and its meanings; two words match if they share a key
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
class SemanticTuples:
    """The objects, attributes and relations of one or more captions, with synonyms merged.

    Objects are numbered. Attributes are (object, keys, words), relations (object, keys, object).
    """

    objects: tuple[SynonymKeys, ...]
    attributes: tuple[tuple[int, SynonymKeys, tuple[str, ...]], ...]
    relations: tuple[tuple[int, SynonymKeys, int], ...]

    @classmethod
    def from_graphs(cls, graphs: Iterable[SceneGraph]) -> SemanticTuples:
        """Merge the scene graphs of captions. Words are merged if a chain of shared meanings connects them, in any order.

        >>> from crossmatch.text.scene_graph import SceneGraph
        >>> len(SemanticTuples.from_graphs([SceneGraph(("bike",)), SceneGraph(("bicycle",)), SceneGraph(("car",))]).objects)
        2
        """
        graphs = list(graphs)
        groups = group_synonyms(list(dict.fromkeys(name for graph in graphs for name in graph.objects)))
        number = {name: n for n, group in enumerate(groups) for name in group}
        attributes: dict[int, dict[str, None]] = {}
        relations: dict[tuple[int, int], dict[str, None]] = {}
        for graph in graphs:
            for name, attribute in graph.attributes:
                attributes.setdefault(number[name], {})[attribute] = None
            for first, relation, second in graph.relations:
                relations.setdefault((number[first], number[second]), {})[relation] = None
        return cls(
            tuple(synonym_keys(group) for group in groups),
            tuple(
                (n, synonym_keys(group), tuple(group)) for n, words in attributes.items() for group in group_synonyms(list(words))
            ),
            tuple(
                (first, synonym_keys(group), second)
                for (first, second), words in relations.items()
                for group in group_synonyms(list(words))
            ),
        )


@dataclass(frozen=True)
class TupleKind:
    """A subset of the tuples."""

    description: str
    objects: bool = False
    attributes: frozenset[str] | None = frozenset()  # attributes with these words; None for all
    relations: bool = False


ALL_TUPLES = TupleKind("all tuples", True, None, True)
# The official program reports the same kinds; its lists of colours and sizes differ slightly.
TUPLE_KINDS = {
    "object": TupleKind("objects", objects=True),
    "attribute": TupleKind("attributes of objects", attributes=None),
    "relation": TupleKind("relations between objects", relations=True),
    "colour": TupleKind("attributes that are colours", attributes=COLOURS),
    "count": TupleKind("attributes that are numbers up to ten", attributes=COUNTS),
    "size": TupleKind("attributes that are sizes", attributes=SIZES),
}


def spice(corpus: CaptionCorpus, *, parser: str | None = None) -> tuple[CaptionScores]:
    """SPICE of each candidate, and the mean over candidates.

        F₁ = 2 P R / (P + R),   P = |T(c) ⊗ T(S)| / |T(c)|,   R = |T(c) ⊗ T(S)| / |T(S)|

    T(c) are the objects, (object, attribute) and (object, relation, object) tuples of the candidate's scene graph, T(S) those of
    all its references together. ⊗ selects the candidate's tuples that match a tuple of the references: all parts are equal or
    synonymous, which means that they share a WordNet synset of any part of speech. Synonymous objects, and synonymous attributes or
    relations of the same objects, count once. If the candidate or the references have no tuples, the score is 0.

    The official program is used if it is available (see `parser_name`), otherwise the rules of `text.scene_graph`.

    Source: anderson2016spice, sec. 3; for details that it leaves open (which matches count, which synsets), its released code.

    >>> corpus = CaptionCorpus.from_texts({"7": "a man rides a wave"}, {"7": ["a big man riding a wave", "two waves"]})
    >>> spice(corpus, parser="rules")[0].values          # 3 and 5 tuples; shared: man, wave, (man, ride, wave)
    array([0.75])
    """
    values = np.nan_to_num(_f_scores(corpus, {"all": ALL_TUPLES}, parser)["all"])
    return (CaptionScores.from_mean(values),)


def spice_by_kind(corpus: CaptionCorpus, *, parser: str | None = None) -> dict[str, CaptionScores]:
    """F₁ by kind of tuple; see `TUPLE_KINDS`.

    A value is NaN if the references have no tuple of that kind; the corpus value is the mean of the others, as in the official
    program.

    Source: anderson2016spice, sec. 3; the kinds are those of its released code.

    >>> corpus = CaptionCorpus.from_texts({"7": "a red bus"}, {"7": ["a red car"]})
    >>> {name: scores.value for name, scores in spice_by_kind(corpus, parser="rules").items()}
    {'object': 0.0, 'attribute': 0.0, 'relation': nan, 'colour': 0.0, 'count': nan, 'size': nan}
    """
    return {name: _mean(values) for name, values in _f_scores(corpus, TUPLE_KINDS, parser).items()}


def parser_name(parser: str | None = None) -> str:
    """The name of the parser that SPICE uses, for signatures.

    `rules` is the parser of this package, `official` that of the official program; None selects the official program if Java, the
    jar and its models are available.

    >>> parser_name("rules")
    'rules-1'
    >>> parser_name("stanza")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: Unknown SPICE parser 'stanza'. Choose from: rules, official.
    """
    return PARSER_NAME if _official_folder(parser) is None else JAR


def _official_folder(parser: str | None) -> Path | None:
    if parser not in (None, "rules", "official"):
        raise UsageError(f"Unknown SPICE parser {parser!r}. Choose from: rules, official.")
    folder = None if parser == "rules" else find_official_folder()
    if parser == "official" and folder is None:
        raise CrossmatchError(
            f"The official SPICE program needs Java, {JAR}, and {' and '.join(MODELS)} in the folder lib/ next to it. "
            f"Set {ENVIRONMENT_VARIABLE} to a folder that has them, or use the parser 'rules'."
        )
    return folder


def _f_scores(corpus: CaptionCorpus, kinds: Mapping[str, TupleKind], parser: str | None) -> dict[str, FloatArray]:
    folder = _official_folder(parser)
    if folder is None:
        pairs = list(tuples_by_image(corpus))
        return {name: np.array([f_score(*pair, kind) for pair in pairs], dtype=np.float64) for name, kind in kinds.items()}
    texts = [" ".join(tokens) for tokens in caption_tokens(corpus)]
    scores = run_official_program(folder, [(texts[start], texts[start + 1 : end]) for start, end in _caption_ranges(corpus)])
    return {name: scores[name] for name in kinds}


def _mean(values: FloatArray) -> CaptionScores:
    defined = values[~np.isnan(values)]
    return CaptionScores(float(defined.mean()) if len(defined) else float("nan"), values)


def tuples_by_image(corpus: CaptionCorpus) -> Iterator[tuple[SemanticTuples, SemanticTuples]]:
    """The tuples of each candidate, and those of all its references."""
    graphs = scene_graphs(caption_tokens(corpus))
    for start, end in _caption_ranges(corpus):
        yield SemanticTuples.from_graphs(graphs[start : start + 1]), SemanticTuples.from_graphs(graphs[start + 1 : end])


def _caption_ranges(corpus: CaptionCorpus) -> Iterator[tuple[int, int]]:
    """The range of each image's captions; the first one is the candidate."""
    starts = corpus.candidate_index.tolist()
    return zip(starts, [*starts[1:], len(corpus.image_index)], strict=True)


def caption_tokens(corpus: CaptionCorpus) -> list[list[str]]:
    """The tokens of every caption."""
    words = [corpus.vocabulary[word] for word in corpus.words.tolist()]
    return [words[start:end] for start, end in pairwise(corpus.offsets.tolist())]


def f_score(candidate: SemanticTuples, references: SemanticTuples, kind: TupleKind) -> float:
    """F₁ of the candidate's tuples of one kind; NaN if the references have none of that kind.

    Several tuples of the candidate may match the same tuple of the references; at most as many count as the references have.
    """
    objects_by_key: dict[object, list[int]] = {}
    for n, keys in enumerate(references.objects):
        for key in keys:
            objects_by_key.setdefault(key, []).append(n)
    same_objects = [{n for key in keys for n in objects_by_key.get(key, ())} for keys in candidate.objects]
    matched = candidate_size = reference_size = 0
    if kind.objects:
        matched, candidate_size, reference_size = sum(map(bool, same_objects)), len(candidate.objects), len(references.objects)
    if kind.attributes is None or kind.attributes:
        candidate_attributes, reference_attributes = (
            _select_attributes(tuples, kind.attributes) for tuples in (candidate, references)
        )
        attributes = {(n, key) for n, keys in reference_attributes for key in keys}
        matched += sum(any((m, key) in attributes for m in same_objects[n] for key in keys) for n, keys in candidate_attributes)
        candidate_size, reference_size = candidate_size + len(candidate_attributes), reference_size + len(reference_attributes)
    if kind.relations:
        relations = {(first, key, second) for first, keys, second in references.relations for key in keys}
        matched += sum(
            any((a, key, b) in relations for a in same_objects[first] for b in same_objects[second] for key in keys)
            for first, keys, second in candidate.relations
        )
        candidate_size += len(candidate.relations)
        reference_size += len(references.relations)
    matched = min(matched, reference_size)
    return (2 * matched / (candidate_size + reference_size)) if reference_size else float("nan")


def _select_attributes(tuples: SemanticTuples, words: frozenset[str] | None) -> list[tuple[int, SynonymKeys]]:
    return [(n, keys) for n, keys, names in tuples.attributes if words is None or not words.isdisjoint(names)]


def group_synonyms(names: Sequence[str]) -> list[list[str]]:
    """Group words that are connected by shared meanings.

    >>> group_synonyms(["bike", "car", "bicycle", "auto"])
    [['bike', 'bicycle'], ['car', 'auto']]
    """
    if len(names) < 2:
        return [list(names)] if names else []
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            parent[name] = name = parent[parent[name]]
        return name

    first: dict[object, str] = {}
    for name in names:
        for key in synonym_keys((name,)):
            synonym = first.setdefault(key, name)
            if synonym is not name:
                parent[root(name)] = root(synonym)
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(root(name), []).append(name)
    return list(groups.values())


def synonym_keys(names: Sequence[str]) -> SynonymKeys:
    """The words and all their meanings."""
    return _word_keys(names[0]) if len(names) == 1 else frozenset().union(*map(_word_keys, names))


@lru_cache(1 << 16)
def _word_keys(name: str) -> SynonymKeys:
    return frozenset((name, *((synset.pos, synset.offset) for pos in FILES for synset in synsets(name, pos))))
