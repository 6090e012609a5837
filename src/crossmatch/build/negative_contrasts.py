"""What excludes what among qualities and relations, what may be said of a thing that nobody said, and what a scene may hold."""

from __future__ import annotations

from functools import cache

from crossmatch.build.phrases import listed
from crossmatch.language.wordnet import synsets

# Qualities of one kind. Groups in brackets are near each other, so that none of them contradicts the others.
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
# Comparatives and synonyms are recognised, and never put into a caption.
UNOFFERED = listed(
    """
    aged aqua beige bright cardboard circular clear concrete cooked cream crimson dark dim filled filthy flowered gold
    golden gray grey icy iron lavender leather light lime little marble maroon massive metallic mini navy older opened
    oversized packed paper rectangular scarlet shut silver soaked steaming steel tan teal turquoise uncooked vacant violet
    warm wood younger
    """
)
# Qualities that can be seen and whose opposites are WordNet's.
OPPOSED = (
    "narrow",
    "wide",
    "deep",
    "shallow",
    "thin",
    "thick",
    "indoor",
    "outdoor",
    "rural",
    "urban",
    "male",
    "female",
    "colorful",
)
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
FIGURES = {str(n): name for n, name in enumerate(NUMBERS, start=2)}

# Relations: what stands between two things, and what may stand there instead. The second column says of what kind the thing after
# it must be: a surface, a vessel (something to be in), a place to be inside of, a vehicle, anything that can be seen, or anything.
PLACES = (
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
# Verbs of one class: what is done, by whom, to what (nothing: nobody asks), and what cannot be done by the same one at the same
# time. With "=" the form is kept as it is written.
DEEDS = (
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
KINDS = {
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
def contrasts() -> dict[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """For each quality: its kinds, and what contradicts it in each.

    >>> contrasts()["wooden"][0][0], "plastic" in contrasts()["wooden"][0][1]
    ('material', True)
    >>> "orange" in dict(contrasts()["red"])["colour"]
    False
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for kind, written in CONTRASTS.items():
        near = [part.split() for part in written.split(";")]
        names = dict.fromkeys(name for part in near for name in part)
        for name in names:
            close = {other for part in near if name in part for other in part}
            found.setdefault(name, {})[kind] = tuple(x for x in names if x not in close and x not in UNOFFERED)
    for name in OPPOSED:
        opposite = antonym(name)
        if opposite:
            found.setdefault(name, {})["opposed"] = (opposite,)
    return {name: tuple(kinds.items()) for name, kinds in found.items()}


def antonym(quality: str) -> str:
    """The opposite that WordNet has for the commonest meaning of a quality, or nothing.

    >>> antonym("narrow"), antonym("purple")
    ('wide', '')
    """
    first = next(iter(synsets(quality, "a")), None)
    return next((other.lemmas[0] for other in first.related("!")), "") if first else ""


@cache
def near(quality: str) -> frozenset[str]:
    """The qualities that may be said of the same thing as this one, itself among them.

    >>> sorted(near("gray"))
    ['cloudy', 'foggy', 'gray', 'grey', 'overcast', 'rainy', 'silver', 'snowy', 'stormy']
    """
    parts = [part.split() for written in CONTRASTS.values() for part in written.split(";")]
    return frozenset({quality, *(other for part in parts if quality in part for other in part)})


@cache
def deeds() -> dict[str, tuple[tuple[str, str, tuple[str, ...]], ...]]:
    """For each verb: who does it, to what, and what cannot be done at the same time.

    >>> deeds()["wear"]
    (('person', 'clothing', ('carry', 'wash', 'throw')),)
    """
    found: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {}
    for done, who, what, instead in DEEDS:
        for verb in done.split(", "):
            found.setdefault(verb, []).append((who, what, tuple(instead.split(", "))))
    return {verb: tuple(its) for verb, its in found.items()}


@cache
def kinds(name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in KINDS[name].split(";"))
