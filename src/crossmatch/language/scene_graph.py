"""What a caption says as a graph: things, what they are like, and how they stand to each other (anderson2016spice, sec. 3.1).

A rule parser for captions: they are short, in the present, and mostly one noun phrase with what hangs on it. It reads the parts of
`scene_phrases` once from left to right, so that its time grows with the number of words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from crossmatch.language.negate import INTRANSITIVE
from crossmatch.language.scene_phrases import PERSON, Deed, Link, Mark, Part, Quality, Thing, animate, parts
from crossmatch.language.tags import tag_all
from crossmatch.language.wordnet import meaning

PARSER = "rules-1"  # the name in signatures; it changes whenever a tuple does
PIECE = 128  # a longer text is read in pieces of so many words, so that its time grows with its length and no faster
TOGETHER = 20_000  # captions tagged at once
# Participles that belong to a thing rather than to the person before it: "a man on a bench facing the sea".
OF_THINGS = frozenset(
    {"connect", "contain", "depict", "display", "face", "feature", "hang", "lead", "overlook", "show", "surround"}
)
OF_PEOPLE = frozenset({"dress", "seat"})
LETS = frozenset({"help", "let", "make", "see", "watch"})
PLACED = INTRANSITIVE | {"lay", "lie", "lock", "park", "perch", "place", "position", "seat"}  # "parked by a fence": no fence parks
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
    """Lemmas: things; (thing, what it is like); (thing, relation, thing). Each once, in the order of the text."""

    objects: tuple[str, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    relations: tuple[tuple[str, str, str], ...] = ()

    @property
    def tuples(self) -> tuple[tuple[str, ...], ...]:
        return (*((name,) for name in self.objects), *self.attributes, *self.relations)


def scene_graph(tokens: Sequence[str]) -> SceneGraph:
    """The scene graph of one caption, given as lower-case Penn Treebank tokens without punctuation.

    Nouns are things; the nouns, adjectives, participles and numbers before them, what they are said to be, and verbs without an
    object are attributes; verbs with an object and prepositions are relations. Source: anderson2016spice, sec. 3.1.

    >>> graph = scene_graph("a young girl standing on top of a tennis court".split())
    >>> graph.objects, graph.attributes
    (('girl', 'court'), (('girl', 'young'), ('girl', 'stand'), ('court', 'tennis')))
    >>> graph.relations
    (('girl', 'on top of', 'court'),)
    """
    return scene_graphs([tokens])[0]


def scene_graphs(texts: Iterable[Sequence[str]]) -> list[SceneGraph]:
    """The scene graphs of many captions, much faster than one after the other; equal captions are read once.

    >>> [graph.relations for graph in scene_graphs([["a", "man", "rides", "a", "wave"], ["two", "dogs"]])]
    [(('man', 'ride', 'wave'),), ()]
    """
    every = [tuple(text) for text in texts]
    pieces = {text: [text[n : n + PIECE] for n in range(0, len(text), PIECE)] for text in dict.fromkeys(every)}
    short = list(dict.fromkeys(chain.from_iterable(pieces.values())))
    graphs: dict[tuple[str, ...], SceneGraph] = {}
    for n in range(0, len(short), TOGETHER):
        batch = short[n : n + TOGETHER]
        graphs |= {text: _built(parts(text, tags)) for text, tags in zip(batch, tag_all(batch), strict=True)}
    whole = {text: _joined([graphs[piece] for piece in its]) for text, its in pieces.items()}
    return [whole[text] for text in every]


def _joined(graphs: Sequence[SceneGraph]) -> SceneGraph:
    if len(graphs) == 1:
        return graphs[0]
    return SceneGraph(*(tuple(dict.fromkeys(chain.from_iterable(same))) for same in zip(*graphs, strict=True)))


def _built(phrases: Sequence[Part]) -> SceneGraph:
    reading = Reading()
    for part, after in zip(phrases, [*phrases[1:], None], strict=False):
        reading.read(part, after)
        reading.before = part
    reading.end_deed()
    return SceneGraph(tuple(reading.objects), tuple(reading.attributes), tuple(reading.relations))


@dataclass
class Reading:
    """What is known after the words so far. Groups are joined things: "a man and a woman"."""

    objects: dict[str, None] = field(default_factory=dict)
    attributes: dict[tuple[str, str], None] = field(default_factory=dict)
    relations: dict[tuple[str, str, str], None] = field(default_factory=dict)
    seen: list[Thing] = field(default_factory=list)
    subject: list[Thing] = field(default_factory=list)  # of the clause
    last: list[Thing] = field(default_factory=list)  # the last group
    role: tuple[tuple[Thing, ...], str, bool] | None = None  # how the last group came in: by whom, relation, turned around
    doer: list[Thing] = field(default_factory=list)  # of the last verb
    deed: Deed | None = None  # the last verb of the clause
    finite: bool = False  # whether the clause has had a verb that needs no other: "rides", not "riding"
    waits: bool = False  # for an object of the verb
    link: str | None = None  # a preposition without its thing yet
    host: list[Thing] = field(default_factory=list)  # what the preposition belongs to
    before: Part | None = None

    def read(self, part: Part, after: Part | None) -> None:
        if isinstance(part, Thing):
            for thing in self.known(part):
                self.thing(thing, after)
        elif isinstance(part, Deed):
            self.act(part)
        elif isinstance(part, Link):
            self.relate(part.name)
        elif isinstance(part, Quality):
            self.describe(part.name)
        elif part.name == "while":
            self.end_deed()
            self.last, self.link, self.role = [], None, None
        elif part.name == "who":
            self.end_deed()
            self.subject, self.deed, self.link = self.last or self.subject, None, None

    def thing(self, thing: Thing, after: Part | None) -> None:
        """A noun phrase: the thing of a preposition, the object of a verb, one more of a group, or a new subject."""
        acts = isinstance(after, Deed) and after.finite and after.tag not in ("VBN", "VB")
        joins = isinstance(self.before, Mark) and self.before.name == "and" and bool(self.last)
        if self.link is not None:
            self.tie(tuple(self.host), self.link, thing)
            self.link, self.last = None, [thing]
        elif joins and self.role is not None and acts and (self.finite or animate(thing.name)):  # he rides and a dog runs
            self.begin(thing)
        elif self.role is not None and (joins or (isinstance(self.before, Thing) and not acts)):  # or a list that lost its commas
            if animate(thing.name) and not animate(self.last[-1].name) and self.subject and animate(self.subject[0].name):
                self.begin(thing)  # a man on a bench and a dog
            else:
                self.last = [*self.last, thing]
                who, relation, turned = self.role
                self.tie(who, relation, thing, turned)
        elif thing.owner == "whose":
            self.begin(thing)
        elif joins and not self.waits:
            self.subject = self.last = [*self.last, thing]
        elif self.waits and self.deed is not None:
            self.waits = False
            if self.deed.name == "be":
                self.be(thing)
            else:
                self.tie(tuple(self.doer), f"{self.deed.name} {self.deed.particle}".strip(), thing)
                self.last = [thing]
        elif self.last and self.role is None and self.subject and self.deed is None:  # a list that has lost its commas
            self.subject = self.last = [*self.last, thing]
        else:
            self.begin(thing)

    def begin(self, thing: Thing) -> None:
        self.end_deed()
        self.subject = self.last = [thing]
        self.role, self.deed, self.finite = None, None, False

    def be(self, thing: Thing) -> None:
        """ "The man is a rider": one thing, two names. "There is a man": the first that is known."""
        for one in self.doer:
            self.note(one, thing.name)
        if not self.doer:
            self.subject = [thing]
            self.deed = None
        self.last, self.role = [thing], None

    def act(self, deed: Deed) -> None:
        """A verb: whose it is, and what it waits for."""
        self.end_deed()
        self.link = None
        participle = not deed.finite or (deed.tag == "VBD" and not deed.passive and deed.name not in INTRANSITIVE)
        helped = deed.tag in ("VB", "VBP") and self.deed is not None and self.deed.name in LETS  # helps a child ride
        if isinstance(self.before, Thing) and helped and self.role is not None:
            self.doer = self.last
        elif isinstance(self.before, Thing) and participle and self.last:
            self.doer = self.nearest(deed)
        else:
            self.doer = self.subject
        self.deed, self.waits, self.finite = deed, True, self.finite or not participle

    def nearest(self, deed: Deed) -> list[Thing]:
        """Whose a participle is: "a man in a hat riding", "a room with people sitting", "a street lined with trees"."""
        if self.last is self.subject or not self.subject:
            return self.last
        people = next((group for group in (self.last, self.subject) if animate(group[-1].name)), None)
        if deed.tag == "VBG":
            if self.deed is None and animate(self.subject[-1].name) and self.role is not None and self.role[1] != "of":
                return self.subject
            return self.last if deed.name in OF_THINGS or people is None else people
        return people if people is not None and deed.name in OF_PEOPLE else self.last

    def end_deed(self) -> None:
        """A verb that got no object says what its subject is like."""
        if self.waits and self.deed is not None and self.deed.name not in ("be", "have"):
            for one in self.doer:
                self.note(one, self.deed.name)
        self.waits = False

    def relate(self, name: str) -> None:
        """A preposition: of the verb's subject after a verb, else of the noun before it."""
        if self.link is not None:  # from behind
            self.link = f"{self.link} {name}"
            return
        deed = self.deed
        if self.waits and deed is not None:
            agent = name == "by" and deed.tag in ("VBN", "VBD") and deed.name not in PLACED
            if agent:
                self.waits = False
                self.host, self.link = self.doer, f"<{deed.name}"
                return
            self.end_deed()
            self.host = self.doer
        elif name in ("of", "with") or deed is None or deed.name in ("be", "have") or not self.doer or self.with_it():
            self.host = self.last[-1:] if name == "of" or self.role is not None else self.last
        else:
            self.host = self.doer
        self.link = name

    def with_it(self) -> bool:
        """Whether the last thing came in by "with", so that a place after it is its own: "with a toy in its mouth"."""
        return self.role is not None and self.role[1] == "with"

    def describe(self, name: str) -> None:
        """An adjective on its own: of the verb's subject, or of the noun before it."""
        whose = self.doer if self.waits or (isinstance(self.before, Quality | Mark) and self.doer) else self.last
        if self.waits and self.deed is not None and self.deed.name == "be":
            self.waits = False
        for one in whose:
            self.note(one, name)

    def known(self, part: Thing) -> Iterator[Thing]:
        """The thing itself, noted with what is said of it; for a pronoun, what it stands for."""
        if part.pronoun:
            found = self.stands_for(part.name)
            if found is None:
                self.skip()
            else:
                yield found
            return
        self.objects[part.name] = None
        for trait in part.traits:
            self.note(part, trait)
        if part.owner is not None:
            owner = self.stands_for(part.owner) if part.owner in PRONOUNS else Thing(part.owner)
            if owner is not None:
                self.objects[owner.name] = None
                self.relations[owner.name, "have", part.name] = None
        self.seen.append(part)
        yield part

    def skip(self) -> None:
        """A pronoun for nothing that is known takes the place of its thing."""
        self.end_deed()
        self.link = None

    def stands_for(self, pronoun: str) -> Thing | None:
        kind = PRONOUNS.get(pronoun)
        if kind == "who":
            return self.last[-1] if self.last else None
        linked = self.link is not None and pronoun in ("it", "him", "her", "them")
        own = {thing.name for thing in self.host} if linked else set()  # in "the side of it", it is not the side
        known = chain(self.subject, reversed(self.seen))
        return next((thing for thing in known if fits(kind, thing) and thing.name not in own), None)

    def tie(self, who: tuple[Thing, ...], relation: str, thing: Thing, turned: bool = False) -> None:
        """One relation for each of a group; "<eat" turns it around: "eaten by a dog"."""
        turned = turned or relation.startswith("<")
        name = relation.removeprefix("<")
        for one in who:
            self.relations[(thing.name, name, one.name) if turned else (one.name, name, thing.name)] = None
        self.role = (who, name, turned)

    def note(self, thing: Thing, trait: str) -> None:
        self.attributes[thing.name, trait] = None


def fits(kind: str | None, thing: Thing) -> bool:
    """Whether a pronoun can stand for the thing.

    >>> fits("she", Thing("woman")), fits("she", Thing("man")), fits("it", Thing("dog")), fits("it", Thing("man"))
    (True, False, True, False)
    """
    if kind == "they":
        return thing.many or thing.name in ("couple", "crowd", "family", "group", "team")
    if thing.many:
        return False
    if kind == "it":
        return not _person(thing.name) or thing.name in ("baby", "child", "infant")
    other = {"he": FEMALE, "she": MALE}.get(kind or "")
    return other is not None and animate(thing.name) and thing.name not in other


@lru_cache(1 << 16)
def _person(name: str) -> bool:
    found = meaning(name, "n")
    return name == "person" or (found is not None and found.topic == PERSON)
