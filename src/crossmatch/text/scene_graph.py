"""Scene graphs of captions: objects, their attributes, and relations between them (anderson2016spice, sec. 3.1).

A rule-based parser for captions, which are short, in the present tense, and mostly one noun phrase with dependents. It reads the
elements of `caption_chunks` once from left to right, so its time is linear in the number of words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from crossmatch.text.caption_chunks import (
    PERSON,
    Connective,
    ObjectMention,
    PredicateAdjective,
    Preposition,
    SceneElement,
    VerbGroup,
    is_animate,
    parse_scene,
)
from crossmatch.text.negation import INTRANSITIVE
from crossmatch.text.part_of_speech import tag_all
from crossmatch.text.wordnet import caption_sense

PARSER_NAME = "rules-1"  # part of signatures; change it when any output changes
MAX_WORDS = 128  # longer texts are parsed in pieces, which keeps the time linear
CAPTIONS_PER_BATCH = 20_000
# Participles of objects rather than of the person before them: "a man on a bench facing the sea".
OBJECT_VERBS = frozenset(
    {"connect", "contain", "depict", "display", "face", "feature", "hang", "lead", "overlook", "show", "surround"}
)
PERSON_VERBS = frozenset({"dress", "seat"})
CAUSATIVE_VERBS = frozenset({"help", "let", "make", "see", "watch"})
# "parked by a fence": the fence is no agent
LOCATION_VERBS = INTRANSITIVE | {"lay", "lie", "lock", "park", "perch", "place", "position", "seat"}
MALE = frozenset({"boy", "dad", "father", "gentleman", "guy", "husband", "king", "man", "son", "uncle"})
FEMALE = frozenset({"bride", "daughter", "female", "girl", "grandmother", "lady", "mom", "mother", "wife", "woman"})
PRONOUNS = {
    **dict.fromkeys(("he", "him", "his"), "he"),
    **dict.fromkeys(("she", "her", "hers"), "she"),
    **dict.fromkeys(("it", "its"), "it"),
    **dict.fromkeys(("they", "them", "their", "theirs"), "they"),
    "whose": "who",
}


class SceneGraph(NamedTuple):
    """Lemmas of objects, attributes (object, attribute) and relations (object, relation, object); each once, in text order."""

    objects: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    relations: tuple[tuple[str, str, str], ...] = ()

    @property
    def tuples(self) -> tuple[tuple[str, ...], ...]:
        return (*((name,) for name in self.objects), *self.attributes, *self.relations)


def scene_graph(tokens: Sequence[str]) -> SceneGraph:
    """The scene graph of one caption, given as lower-case Penn Treebank tokens without punctuation.

    Nouns are objects. Attributes are nouns, adjectives, participles and numbers before them, predicates, and verbs without an
    object. Relations are verbs with an object, and prepositions. Source: anderson2016spice, sec. 3.1.

    >>> graph = scene_graph("a young girl standing on top of a tennis court".split())
    >>> graph.objects, graph.attributes
    (('girl', 'court'), (('girl', 'young'), ('girl', 'stand'), ('court', 'tennis')))
    >>> graph.relations
    (('girl', 'on top of', 'court'),)
    """
    return scene_graphs([tokens])[0]


def scene_graphs(texts: Iterable[Sequence[str]]) -> list[SceneGraph]:
    """Scene graphs of many captions, much faster than one by one; equal captions are parsed once.

    >>> [graph.relations for graph in scene_graphs([["a", "man", "rides", "a", "wave"], ["two", "dogs"]])]
    [(('man', 'ride', 'wave'),), ()]
    """
    captions = [tuple(text) for text in texts]
    pieces = {text: [text[n : n + MAX_WORDS] for n in range(0, len(text), MAX_WORDS)] for text in dict.fromkeys(captions)}
    unique_pieces = list(dict.fromkeys(chain.from_iterable(pieces.values())))
    graphs: dict[tuple[str, ...], SceneGraph] = {}
    for n in range(0, len(unique_pieces), CAPTIONS_PER_BATCH):
        batch = unique_pieces[n : n + CAPTIONS_PER_BATCH]
        graphs |= {text: _build_graph(parse_scene(text, tags)) for text, tags in zip(batch, tag_all(batch), strict=True)}
    graph_of = {text: _merge_graphs([graphs[piece] for piece in caption_pieces]) for text, caption_pieces in pieces.items()}
    return [graph_of[text] for text in captions]


def _merge_graphs(graphs: Sequence[SceneGraph]) -> SceneGraph:
    if len(graphs) == 1:
        return graphs[0]
    return SceneGraph(*(tuple(dict.fromkeys(chain.from_iterable(tuples))) for tuples in zip(*graphs, strict=True)))


def _build_graph(elements: Sequence[SceneElement]) -> SceneGraph:
    builder = SceneGraphBuilder()
    for element, next_element in zip(elements, [*elements[1:], None], strict=False):
        builder.add(element, next_element)
        builder.previous = element
    builder.finish_verb()
    return SceneGraph(tuple(builder.objects), tuple(builder.attributes), tuple(builder.relations))


@dataclass
class SceneGraphBuilder:
    """Scene graph of the elements so far. A group is a list of joined objects: "a man and a woman".

    Attributes:
        mentions: All objects so far.
        subject: Group that is the subject of the clause.
        last_group: Last group.
        last_role: How the last group was related: other group, relation, whether it is inverted.
        agents: Subject of the last verb.
        verb: Last verb of the clause.
        has_finite_verb: Whether the clause has a finite verb: "rides", not "riding".
        awaits_object: Whether the verb may still get an object.
        preposition: A preposition that has no object yet.
        hosts: What the preposition belongs to.
        previous: The previous element.
    """

    objects: dict[str, None] = field(default_factory=dict)
    attributes: dict[tuple[str, str], None] = field(default_factory=dict)
    relations: dict[tuple[str, str, str], None] = field(default_factory=dict)
    mentions: list[ObjectMention] = field(default_factory=list)
    subject: list[ObjectMention] = field(default_factory=list)
    last_group: list[ObjectMention] = field(default_factory=list)
    last_role: tuple[tuple[ObjectMention, ...], str, bool] | None = None
    agents: list[ObjectMention] = field(default_factory=list)
    verb: VerbGroup | None = None
    has_finite_verb: bool = False
    awaits_object: bool = False
    preposition: str | None = None
    hosts: list[ObjectMention] = field(default_factory=list)
    previous: SceneElement | None = None

    def add(self, element: SceneElement, next_element: SceneElement | None) -> None:
        if isinstance(element, ObjectMention):
            for mention in self.resolve(element):
                self.add_object(mention, next_element)
        elif isinstance(element, VerbGroup):
            self.add_verb(element)
        elif isinstance(element, Preposition):
            self.add_preposition(element.name)
        elif isinstance(element, PredicateAdjective):
            self.add_adjective(element.name)
        elif element.name == "while":
            self.finish_verb()
            self.last_group, self.preposition, self.last_role = [], None, None
        elif element.name == "who":
            self.finish_verb()
            self.subject, self.verb, self.preposition = self.last_group or self.subject, None, None

    def add_object(self, mention: ObjectMention, next_element: SceneElement | None) -> None:
        """Add a noun phrase: object of a preposition or verb, member of a group, or new subject."""
        is_subject = isinstance(next_element, VerbGroup) and next_element.is_finite and next_element.tag not in ("VBN", "VB")
        is_joined = isinstance(self.previous, Connective) and self.previous.name == "and" and bool(self.last_group)
        if self.preposition is not None:
            self.add_relation(tuple(self.hosts), self.preposition, mention)
            self.preposition, self.last_group = None, [mention]
        elif (
            is_joined and self.last_role is not None and is_subject and (self.has_finite_verb or is_animate(mention.name))
        ):  # he rides and a dog runs
            self.start_subject(mention)
        elif self.last_role is not None and (is_joined or (isinstance(self.previous, ObjectMention) and not is_subject)):
            if (
                is_animate(mention.name)
                and not is_animate(self.last_group[-1].name)
                and self.subject
                and is_animate(self.subject[0].name)
            ):
                self.start_subject(mention)  # a man on a bench and a dog
            else:
                self.last_group = [*self.last_group, mention]
                group, relation, is_inverted = self.last_role
                self.add_relation(group, relation, mention, is_inverted)
        elif mention.owner == "whose":
            self.start_subject(mention)
        elif is_joined and not self.awaits_object:
            self.subject = self.last_group = [*self.last_group, mention]
        elif self.awaits_object and self.verb is not None:
            self.awaits_object = False
            if self.verb.name == "be":
                self.add_complement(mention)
            else:
                self.add_relation(tuple(self.agents), f"{self.verb.name} {self.verb.particle}".strip(), mention)
                self.last_group = [mention]
        elif self.last_group and self.last_role is None and self.subject and self.verb is None:  # a list that has lost its commas
            self.subject = self.last_group = [*self.last_group, mention]
        else:
            self.start_subject(mention)

    def start_subject(self, mention: ObjectMention) -> None:
        self.finish_verb()
        self.subject = self.last_group = [mention]
        self.last_role, self.verb, self.has_finite_verb = None, None, False

    def add_complement(self, mention: ObjectMention) -> None:
        """Add a noun after "be": "the man is a rider" adds an attribute, "there is a man" a subject."""
        for agent in self.agents:
            self.add_attribute(agent, mention.name)
        if not self.agents:
            self.subject = [mention]
            self.verb = None
        self.last_group, self.last_role = [mention], None

    def add_verb(self, verb: VerbGroup) -> None:
        """Add a verb: find its subject."""
        self.finish_verb()
        self.preposition = None
        is_participle = not verb.is_finite or (verb.tag == "VBD" and not verb.is_passive and verb.name not in INTRANSITIVE)
        is_caused = verb.tag in ("VB", "VBP") and self.verb is not None and self.verb.name in CAUSATIVE_VERBS  # helps a child ride
        if isinstance(self.previous, ObjectMention) and is_caused and self.last_role is not None:
            self.agents = self.last_group
        elif isinstance(self.previous, ObjectMention) and is_participle and self.last_group:
            self.agents = self.participle_subject(verb)
        else:
            self.agents = self.subject
        self.verb, self.awaits_object, self.has_finite_verb = verb, True, self.has_finite_verb or not is_participle

    def participle_subject(self, verb: VerbGroup) -> list[ObjectMention]:
        """Subject of a participle: "a man in a hat riding", "a room with people sitting", "a street lined with trees"."""
        if self.last_group is self.subject or not self.subject:
            return self.last_group
        animate_group = next((group for group in (self.last_group, self.subject) if is_animate(group[-1].name)), None)
        if verb.tag == "VBG":
            if self.verb is None and is_animate(self.subject[-1].name) and self.last_role is not None and self.last_role[1] != "of":
                return self.subject
            return self.last_group if verb.name in OBJECT_VERBS or animate_group is None else animate_group
        return animate_group if animate_group is not None and verb.name in PERSON_VERBS else self.last_group

    def finish_verb(self) -> None:
        """A verb without object becomes an attribute of its subject."""
        if self.awaits_object and self.verb is not None and self.verb.name not in ("be", "have"):
            for agent in self.agents:
                self.add_attribute(agent, self.verb.name)
        self.awaits_object = False

    def add_preposition(self, name: str) -> None:
        """Add a preposition: of the subject after a verb, else of the noun before it."""
        if self.preposition is not None:  # from behind
            self.preposition = f"{self.preposition} {name}"
            return
        verb = self.verb
        if self.awaits_object and verb is not None:
            is_agent = name == "by" and verb.tag in ("VBN", "VBD") and verb.name not in LOCATION_VERBS
            if is_agent:
                self.awaits_object = False
                self.hosts, self.preposition = self.agents, f"<{verb.name}"
                return
            self.finish_verb()
            self.hosts = self.agents
        elif name in ("of", "with") or verb is None or verb.name in ("be", "have") or not self.agents or self.follows_with():
            self.hosts = self.last_group[-1:] if name == "of" or self.last_role is not None else self.last_group
        else:
            self.hosts = self.agents
        self.preposition = name

    def follows_with(self) -> bool:
        """Whether the last object follows "with", so that a place after it is its own: "with a toy in its mouth"."""
        return self.last_role is not None and self.last_role[1] == "with"

    def add_adjective(self, name: str) -> None:
        """Add an adjective without noun: of the subject, or of the noun before it."""
        described = (
            self.agents
            if self.awaits_object or (isinstance(self.previous, PredicateAdjective | Connective) and self.agents)
            else self.last_group
        )
        if self.awaits_object and self.verb is not None and self.verb.name == "be":
            self.awaits_object = False
        for mention in described:
            self.add_attribute(mention, name)

    def resolve(self, mention: ObjectMention) -> Iterator[ObjectMention]:
        """The object with its modifiers added; for a pronoun, the object that it refers to."""
        if mention.is_pronoun:
            referent = self.resolve_pronoun(mention.name)
            if referent is None:
                self.skip_pronoun()
            else:
                yield referent
            return
        self.objects[mention.name] = None
        for modifier in mention.modifiers:
            self.add_attribute(mention, modifier)
        if mention.owner is not None:
            owner = self.resolve_pronoun(mention.owner) if mention.owner in PRONOUNS else ObjectMention(mention.owner)
            if owner is not None:
                self.objects[owner.name] = None
                self.relations[owner.name, "have", mention.name] = None
        self.mentions.append(mention)
        yield mention

    def skip_pronoun(self) -> None:
        """Handle a pronoun that refers to nothing known."""
        self.finish_verb()
        self.preposition = None

    def resolve_pronoun(self, pronoun: str) -> ObjectMention | None:
        kind = PRONOUNS.get(pronoun)
        if kind == "who":
            return self.last_group[-1] if self.last_group else None
        has_preposition = self.preposition is not None and pronoun in ("it", "him", "her", "them")
        excluded = {mention.name for mention in self.hosts} if has_preposition else set()  # in "the side of it", it is not the side
        candidates = chain(self.subject, reversed(self.mentions))
        return next((mention for mention in candidates if can_refer_to(kind, mention) and mention.name not in excluded), None)

    def add_relation(
        self, group: tuple[ObjectMention, ...], relation: str, mention: ObjectMention, is_inverted: bool = False
    ) -> None:
        """Add a relation for each member of a group; "<eat" inverts it: "eaten by a dog"."""
        is_inverted = is_inverted or relation.startswith("<")
        name = relation.removeprefix("<")
        for member in group:
            self.relations[(mention.name, name, member.name) if is_inverted else (member.name, name, mention.name)] = None
        self.last_role = (group, name, is_inverted)

    def add_attribute(self, mention: ObjectMention, attribute: str) -> None:
        self.attributes[mention.name, attribute] = None


def can_refer_to(kind: str | None, mention: ObjectMention) -> bool:
    """Whether a pronoun can refer to an object.

    >>> woman, man, dog = (ObjectMention(name) for name in ("woman", "man", "dog"))
    >>> can_refer_to("she", woman), can_refer_to("she", man), can_refer_to("it", dog), can_refer_to("it", man)
    (True, False, True, False)
    """
    if kind == "they":
        return mention.is_plural or mention.name in ("couple", "crowd", "family", "group", "team")
    if mention.is_plural:
        return False
    if kind == "it":
        return not _is_person(mention.name) or mention.name in ("baby", "child", "infant")
    excluded = {"he": FEMALE, "she": MALE}.get(kind or "")
    return excluded is not None and is_animate(mention.name) and mention.name not in excluded


@lru_cache(1 << 16)
def _is_person(name: str) -> bool:
    synset = caption_sense(name, "n")
    return name == "person" or (synset is not None and synset.lexicographer_file == PERSON)
