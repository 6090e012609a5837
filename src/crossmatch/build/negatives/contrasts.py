"""Tables of contradicting attributes, spatial relations and verbs, for hard negatives by rules."""

from __future__ import annotations

from functools import cache

from crossmatch.text.noun_phrases import word_set
from crossmatch.text.wordnet import synsets

# Attributes of one kind. Those between semicolons are similar, so that none of them contradicts the others.
CONTRASTS = {
    "colour": """
        red maroon crimson scarlet pink orange; blue navy turquoise teal aqua purple; green lime turquoise teal; yellow gold
        golden beige tan orange; black dark; white cream beige silver; brown tan beige maroon; purple violet lavender pink; pink
        red; orange red yellow; gray grey silver
    """,
    "size": "large big huge giant massive enormous oversized; small little tiny miniature mini",
    "tallness": "tall; short",
    "age": "young younger little; old older elderly aged",
    "material": """
        wooden wood; metal steel iron metallic silver; plastic; glass; brick; stone concrete marble; leather; paper cardboard
    """,
    "fullness": "full filled packed crowded; empty bare vacant",
    "wetness": "wet rainy soaked; dry dusty",
    "cleanness": "clean tidy neat; dirty messy filthy cluttered muddy",
    "weather": "sunny clear bright; cloudy overcast rainy stormy foggy gray snowy",
    "openness": "open opened; closed shut",
    "pattern": "striped; plaid checkered; spotted polka-dotted; floral flowered",
    "length": "long; short",
    "mood": "happy smiling cheerful; sad crying gloomy angry",
    "traffic": "busy crowded; empty deserted quiet",
    "shape": "round circular; square rectangular; triangular",
    "newness": "new modern; old antique vintage rusty",
    "ground": "grassy; sandy; snowy; rocky; muddy",
    "raw": "raw uncooked; cooked fried grilled baked roasted",
}  # fmt: skip
# Comparatives and synonyms, which are recognised but never inserted into a caption.
NEVER_INSERTED = word_set(
    """
    aged aqua beige bright cardboard circular clear concrete cooked cream crimson dark dim filled filthy flowered gold
    golden gray grey icy iron lavender leather light lime little marble maroon massive metallic mini navy older opened
    oversized packed paper rectangular scarlet shut silver soaked steaming steel tan teal turquoise uncooked vacant violet
    warm wood younger
    """
)
# Visible attributes whose opposites come from WordNet.
WORDNET_OPPOSED = ("narrow", "wide", "deep", "shallow", "thin", "thick", "indoor", "outdoor", "rural", "urban", "male", "female",
                   "colorful")  # fmt: skip
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBER_OF_DIGIT = {str(n): name for n, name in enumerate(NUMBERS, start=2)}

# Spatial relations: the relation, the kind of the object after it, and relations that contradict it. Kinds are those of
# `OBJECT_NAMES`, and `seen` for anything visible.
SPATIAL_RELATIONS = (
    ("on top of", "seen", ("underneath", "next to", "behind")),
    ("in front of", "seen", ("behind",)),
    ("on the back of", "vehicle", ("in front of",)),
    ("next to", "seen", ("far from", "on top of")),
    ("close to", "seen", ("far from",)),
    ("inside of", "inside", ("outside of",)),
    ("outside of", "inside", ("inside of",)),
    ("on", "surface", ("under", "beside", "behind")),
    ("on", "vehicle", ("beside", "behind", "in front of")),
    ("on", "vessel", ("under", "beside")),
    ("in", "inside", ("outside", "behind", "in front of")),
    ("in", "vessel", ("behind", "beside", "in front of", "under")),
    ("on", "outdoors", ("far from",)),
    ("in", "outdoors", ("far from",)),
    ("with", "worn", ("without",)),
    ("atop", "seen", ("underneath", "beside")),
    ("inside", "inside", ("outside", "behind")),
    ("outside", "inside", ("inside",)),
    ("behind", "seen", ("in front of",)),
    ("beside", "seen", ("far from",)),
    ("near", "seen", ("far from",)),
    ("under", "seen", ("on top of", "far from")),
    ("underneath", "seen", ("on top of",)),
    ("beneath", "seen", ("on top of",)),
    ("below", "seen", ("above",)),
    ("above", "seen", ("below",)),
    ("over", "seen", ("under",)),
    ("against", "seen", ("far from",)),
    ("toward", "seen", ("away from",)),
    ("towards", "seen", ("away from",)),
    ("into", "vessel", ("out of",)),
    ("without", "seen", ("with",)),
)
# Verb classes: the verbs, the kind of the subject, the kind of the object (empty: no object), and verbs that the same subject
# cannot do at the same time. A verb with "=" is not inflected.
VERB_CLASSES = (
    ("sit", "animate", "", "stand, kneel, dance, jump"),
    ("stand", "animate", "", "sit, lie, kneel, dance"),
    ("lie, lay", "animate", "", "stand, sit, jump, dance"),
    ("kneel, crouch, squat", "animate", "", "stand, dance, lie"),
    ("walk, stroll, hike", "animate", "", "crawl, dance, run"),
    ("run, jog, race", "animate", "", "crawl, dance"),
    ("jump, leap", "animate", "", "crawl, roll"),
    ("sleep, nap", "animate", "", "play, jump, fight, run"),
    ("rest, relax, lounge", "animate", "", "jump, dance, fight, run"),
    ("graze", "animate", "", "run, sleep, fight, swim"),
    ("smile, grin, laugh", "person", "", "cry, frown, yawn, sneeze"),
    ("wait", "animate", "", "dance, fight, sleep"),
    ("pose", "person", "", "dance, sleep, argue, wrestle"),
    ("hold, carry", "animate", "thing", "drop, throw, kick, paint"),
    ("wear", "person", "clothing", "carry, wash, throw"),
    ("eat", "person", "food", "cook, throw, photograph, sell"),
    ("cut, slice", "person", "food", "eat, throw, photograph, drop"),
    ("ride, drive", "person", "vehicle", "push, wash, repair, paint"),
    ("ride", "person", "animal", "feed, wash, chase, brush"),
    ("throw, toss", "person", "thing", "catch, kick, bury, paint"),
    ("catch", "animate", "thing", "throw, kick, drop"),
    ("hit", "person", "thing", "catch, drop, kick"),
    ("swing", "person", "thing", "drop, carry, throw, paint"),
    ("fly", "person", "thing", "fold, repair, bury, burn"),
    ("pull, drag", "animate", "thing", "push, wash, paint"),
    ("push", "animate", "thing", "pull, lift, paint"),
    ("feed, pet", "person", "animal", "chase, wash, photograph, brush"),
    ("read", "person", "thing", "burn, throw, fold, sell"),
    ("prepare, make, cook", "person", "food", "eat, throw, photograph, buy"),
    ("play", "person", "game", "watch"),
    ("open", "animate", "", "close"),
    ("enter", "animate", "", "leave"),
    ("park", "vehicle", "", "=burning, =overturned, =moving"),
)
OBJECT_NAMES = {
    "surface": """
        table; couch; chair; bench; bed; desk; counter; shelf; stool; stove; rug; roof; bridge; plate; dresser; mattress;
        blanket; towel; stage; tray; toilet; board; branch; pillow; cabinet; platform; seat; cutting board; ledge; stand
    """,
    "vehicle": "car; truck; bus; motorcycle; bicycle; train; boat; horse; elephant; skateboard; surfboard; camel; scooter; tractor",
    "vessel": """
        bowl; basket; box; sink; vase; cup; suitcase; bag; bathtub; cage; bucket; jar; crate; pot; pan; drawer; oven; bottle
    """,
    "inside": """
        kitchen; bathroom; bedroom; living room; office; house; building; store; restaurant; barn; train station; room; car;
        bus; truck; garage; tent; church; museum; hotel; airport; library; hospital; shop; cage; refrigerator; closet
    """,
    "outdoors": """
        beach; street; road; sidewalk; tennis court; ramp; hill; mountain; field; park; forest; ocean; river; lake; runway;
        baseball field; desert; yard; parking lot; zoo
    """,
    "worn": "hat; tie; glasses; helmet; scarf; backpack; umbrella; camera; beard",
}


@cache
def contrasting_attributes() -> dict[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """For each attribute its kinds, and the attributes that contradict it in each kind.

    >>> contrasting_attributes()["wooden"][0][0], "plastic" in contrasting_attributes()["wooden"][0][1]
    ('material', True)
    >>> "orange" in dict(contrasting_attributes()["red"])["colour"]
    False
    """
    table: dict[str, dict[str, tuple[str, ...]]] = {}
    for kind, text in CONTRASTS.items():
        groups = [group.split() for group in text.split(";")]
        attributes = dict.fromkeys(attribute for group in groups for attribute in group)
        for attribute in attributes:
            similar = {member for group in groups if attribute in group for member in group}
            opposites = tuple(name for name in attributes if name not in similar and name not in NEVER_INSERTED)
            table.setdefault(attribute, {})[kind] = opposites
    for attribute in WORDNET_OPPOSED:
        opposite = antonym(attribute)
        if opposite:
            table.setdefault(attribute, {})["opposed"] = (opposite,)
    return {attribute: tuple(kinds.items()) for attribute, kinds in table.items()}


def antonym(attribute: str) -> str:
    """WordNet's opposite of the most common meaning of an attribute, or empty.

    >>> antonym("narrow"), antonym("purple")
    ('wide', '')
    """
    first = next(iter(synsets(attribute, "a")), None)
    return next((opposite.lemmas[0] for opposite in first.related("!")), "") if first else ""


@cache
def compatible_attributes(attribute: str) -> frozenset[str]:
    """Attributes that may describe the same object as this one, including itself.

    >>> sorted(compatible_attributes("gray"))
    ['cloudy', 'foggy', 'gray', 'grey', 'overcast', 'rainy', 'silver', 'snowy', 'stormy']
    """
    groups = [group.split() for text in CONTRASTS.values() for group in text.split(";")]
    return frozenset({attribute, *(member for group in groups if attribute in group for member in group)})


@cache
def verb_alternatives() -> dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]]:
    """For each verb the kinds of its subject and object, and the verbs that contradict it.

    >>> verb_alternatives()["wear"]
    (('person', 'clothing', ('carry', 'wash', 'throw')),)
    """
    table: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {}
    for verbs, subject, target, alternatives in VERB_CLASSES:
        for verb in verbs.split(", "):
            table.setdefault(verb, []).append((subject, target, tuple(alternatives.split(", "))))
    return {verb: tuple(classes) for verb, classes in table.items()}


@cache
def object_names(kind: str) -> tuple[str, ...]:
    """The object names of a kind in `OBJECT_NAMES`."""
    return tuple(name.strip() for name in OBJECT_NAMES[kind].split(";"))
