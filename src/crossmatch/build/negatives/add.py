"""Hard negatives that add an object that fits the scene, or an attribute, that no caption of the image mentions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

from crossmatch.build.negatives.caption_context import CaptionContext
from crossmatch.build.negatives.contrasts import compatible_attributes, contrasting_attributes
from crossmatch.build.negatives.noun_categories import NOT_OBJECTS, object_kind
from crossmatch.build.negatives.replace import PHOTO_WORDS, EditOption, accepts_attribute, accepts_value
from crossmatch.text.noun_phrases import NounPhrase, TaggedCaption, word_set
from crossmatch.text.part_of_speech import NOUN_TAGS
from crossmatch.text.tokens_and_edits import indefinite_article, is_word

NEARBY = ("next to {}", "near {}", "beside {}", "with {} nearby", "with {} in the background")
PLACE_PREPOSITIONS = word_set("on in near by under at beside next")
DETERMINERS = frozenset({"a", "an", "the", "two", "three", "four", "his", "her", ""})
COLOUR_NOUNS = word_set("burgundy ivory khaki magenta mustard olive rust charcoal bronze copper")
LAST_WORD_TAGS = NOUN_TAGS | {"VBG", "VBN", "RB", "PRP", "RP"}

# Each scene: nouns that indicate it, and objects to add. The first scene with the most matching nouns is used. A picture whose
# captions do not mention these objects rarely contains them.
SCENE_OBJECTS = {
    "kitchen": (
        "kitchen stove oven refrigerator microwave countertop cupboard blender toaster chef",
        "parrot; ladder; toolbox; birdcage; typewriter; saxophone; rocking chair; fishbowl",
    ),
    "bathroom": (
        "bathroom toilet bathtub shower tub urinal restroom sink toothbrush",
        "rubber duck; parrot; ladder; guitar; rocking chair; fish tank; typewriter; globe",
    ),
    "living room": (
        "couch sofa bed bedroom pillow blanket rug fireplace television lamp",
        "harp; parrot; telescope; drum set; rocking horse; globe; spinning wheel; saxophone",
    ),
    "desk": (
        "desk laptop computer keyboard monitor mouse office printer",
        "globe; microscope; trophy; violin; typewriter; fishbowl; birdcage; cactus",
    ),
    "meal": (
        "plate pizza cake sandwich bowl food salad meal dish donut doughnut fork dessert bread breakfast hotdog soup restaurant",
        "chess board; candelabra; lobster; trophy; violin; cactus; compass; music box",
    ),
    "market": (
        "fruit vegetable apple orange banana carrot broccoli market stand basket",
        "parrot; accordion; goat; lobster; pumpkin; birdcage; rocking chair",
    ),
    "street": (
        "street road car bus truck sidewalk intersection traffic sign motorcycle building highway corner city crosswalk hydrant",
        "street musician; ice cream truck; fountain; horse carriage; hot-air balloon; food cart; brass band; flower stall",
    ),
    "railway": (
        "train track station platform railroad locomotive engine subway",
        "helicopter; fountain; brass band; hot-air balloon; windmill; water tower; horse carriage",
    ),
    "airport": (
        "airplane plane jet runway airport tarmac airliner",
        "hot-air balloon; limousine; rainbow; brass band; windmill; helicopter",
    ),
    "water": (
        "beach ocean sea wave surfboard surfer boat shore sand surf harbor pier lake river",
        "lighthouse; dolphin; sandcastle; lifeguard tower; helicopter; sea turtle; campfire; iceberg",
    ),
    "snow": (
        "snow ski skier snowboard snowboarder slope mountain",
        "snowman; igloo; campfire; reindeer; helicopter; sled; frozen waterfall",
    ),
    "sport": (
        "tennis baseball batter racket racquet bat ball court player pitcher umpire soccer frisbee skateboard skateboarder ramp",
        "mascot; drone; trophy; cheerleader; golf cart; trampoline; brass band; wheelchair",
    ),
    "meadow": (
        "field grass elephant giraffe zebra cow sheep horse tree park pasture herd bear goat zoo fence forest garden kite bird",
        "scarecrow; windmill; tractor; campfire; tent; waterfall; picnic basket; wishing well",
    ),
}
OBJECTS_ANYWHERE = "ladder; trumpet; globe; parrot; statue; accordion"

# Attributes for a kind of object (`object_kinds.object_kind`) that captions would mention.
UNUSUAL_ATTRIBUTES = {
    "person": "blindfolded, masked, turbaned, crying",
    "animal": "three-legged, blindfolded, saddled, bandaged",
    "vehicle": "purple, pink, rusty, polka-dotted, burning, checkered",
    "clothing": "polka-dotted, sequined, purple, torn, zebra-striped",
    "furniture": "purple, polka-dotted, golden, broken, inflatable",
    "room": "flooded, candlelit, abandoned, purple",
    "building": "burning, ruined, pink, thatched, polka-dotted",
    "food": "moldy, burnt, heart-shaped, purple",
    "place": "flooded, foggy, moonlit",
    "thing": "purple, golden, broken, polka-dotted, rusty",
    "luggage": "torn, purple, golden, polka-dotted",
    "container": "cracked, golden, purple, polka-dotted",
    "device": "broken, purple, golden, antique",
    "toy": "purple, one-eyed, torn, polka-dotted",
}
# An attribute is not added if a caption has one of these words, because it may apply without being mentioned.
MAY_APPLY_WITH = {
    "masked": "snow ski skier snowboard catcher umpire batter baseball helmet motorcycle costume",
    "saddled": "ride riding rides rider saddle horseback jockey carriage",
    "burnt": "toast toasted grill grilled crust oven",
    "purple": "cabbage grape eggplant onion colorful",
    "foggy": "mist misty fog haze rain",
    "moonlit": "night dark evening",
    "flooded": "water flood river ocean sea lake pond wave beach",
    "antique": "old vintage",
    "ruined": "broken damaged hole destroyed old crumbling",
    "broken": "damaged missing old torn cracked",
    "cracked": "broken damaged old",
    "torn": "ripped old worn broken",
    "rusty": "rust rusted old metal",
    "abandoned": "old empty broken deserted",
    "crying": "sad upset tears baby",
}


# -- objects


def add_object(caption: TaggedCaption, context: CaptionContext) -> Iterator[EditOption]:
    """Add an object that fits the scene and that no caption mentions: "… next to a windmill"."""
    last = _last_word(caption)
    first = _joinable_phrase(caption)
    for name in objects_for_scene(context.nouns.keys()):
        if not context.is_absent(name):
            continue
        phrase = f"{indefinite_article(name)} {name}"
        if last is not None:
            for template in NEARBY:
                if not set(template.split()) & set(caption.words):
                    added = template.format(phrase)
                    yield EditOption(last, tuple(caption.insert_after(last, added)), "", added)
        if first is not None:
            yield EditOption(first.head, tuple(caption.insert_after(first.head, f"and {phrase}")), "", f"and {phrase}")


def _last_word(caption: TaggedCaption) -> int | None:
    """Position of the last word, if a place may follow it."""
    at = max((n for n, word in enumerate(caption.words) if is_word(word)), default=-1)
    if at < 1 or caption.tags[at] not in LAST_WORD_TAGS or any(is_word(word) for word in caption.words[at + 1 :]):
        return None
    return at if "?" not in caption.words and len(caption.phrases) > 0 else None


def _joinable_phrase(caption: TaggedCaption) -> NounPhrase | None:
    """The first phrase if "and …" may follow: an object with an article before a place, and no verb that must agree."""
    if caption.has_finite_verb or not caption.phrases:
        return None
    first = caption.phrases[0]
    after = caption.words[first.head + 1 : first.head + 2]
    is_object = object_kind(first.name) not in ("", "room", "building", "place", "person")
    has_article = first.first == 0 and first.determiner in ("a", "an") and not first.is_possessive
    return first if is_object and has_article and after and after[0] in PLACE_PREPOSITIONS else None


@cache
def _scenes() -> tuple[tuple[frozenset[str], tuple[str, ...]], ...]:
    return tuple((frozenset(nouns.split()), _split_names(objects)) for nouns, objects in SCENE_OBJECTS.values())


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(";"))


def objects_for_scene(nouns: Collection[str]) -> tuple[str, ...]:
    """Objects that may be added to a scene with these nouns.

    >>> objects_for_scene({"ski", "snow", "man"})[:2], objects_for_scene({"idea"})[:1]
    (('snowman', 'igloo'), ('ladder',))
    """
    indicators, objects = max(_scenes(), key=lambda scene: len(scene[0].intersection(nouns)))
    return objects if indicators.intersection(nouns) else _split_names(OBJECTS_ANYWHERE)


# -- attributes


def add_attribute(caption: TaggedCaption, context: CaptionContext) -> Iterator[EditOption]:
    """Add an attribute that contradicts another caption, or else an unusual one that no caption mentions.

    "A man" whom another caption calls young becomes "an elderly man"; otherwise "a bus" becomes "a purple bus".
    """
    for phrase in caption.phrases:
        if not _accepts_adjective(caption, phrase):
            continue
        mentioned = {adjective for noun, adjective in context.attributes if noun == phrase.name}
        unusual = [
            attribute
            for attribute in unmentioned_attributes(object_kind(phrase.name))
            if not compatible_attributes(attribute) & mentioned and not may_apply(attribute, context.words)
        ]
        for attribute in list(_contradicting_attributes(phrase, context)) or unusual:
            if not compatible_attributes(attribute) & context.words:
                yield EditOption(phrase.noun_start, tuple(caption.insert_before(phrase.noun_start, attribute)), "", attribute)


def _accepts_adjective(caption: TaggedCaption, phrase: NounPhrase) -> bool:
    """Whether an adjective may precede the nouns of a phrase: it has none, and is neither a name nor a colour."""
    tags, first = caption.tags, phrase.first
    is_name = (
        "NNP" in tags[phrase.noun_start : phrase.head + 1]
        or phrase.name in NOT_OBJECTS | PHOTO_WORDS
        or phrase.name in contrasting_attributes()
    )
    has_colour = bool(COLOUR_NOUNS & set(caption.words[phrase.noun_start : phrase.head]))
    is_bare_singular = phrase.determiner == "" and not phrase.is_plural
    # "near moving trucks": the participle belongs to the phrase
    has_participle = first > 1 and tags[first - 1] == "VBG" and tags[first - 2] == "IN" and phrase.determiner == ""
    return phrase.determiner in DETERMINERS and not (
        phrase.adjectives or phrase.is_possessive or is_name or has_colour or is_bare_singular or has_participle
    )


def _contradicting_attributes(phrase: NounPhrase, context: CaptionContext) -> Iterator[str]:
    """Attributes that contradict what a caption says of the same object; none if there may be several such objects."""
    if phrase.is_plural or context.nouns.get(phrase.name, False):
        return
    for noun, adjective in sorted(context.attributes):
        if noun == phrase.name:
            for kind, opposites in contrasting_attributes().get(adjective, ()):
                if accepts_attribute(kind, noun):
                    yield from (opposite for opposite in opposites if accepts_value(opposite, noun))


def unmentioned_attributes(kind: str) -> tuple[str, ...]:
    """Unusual attributes for objects of a kind, which captions would mention.

    >>> unmentioned_attributes("food")[:2], unmentioned_attributes("")
    (('moldy', 'burnt'), ())
    """
    return tuple(UNUSUAL_ATTRIBUTES[kind].split(", ")) if kind in UNUSUAL_ATTRIBUTES else ()


def may_apply(attribute: str, words: Collection[str]) -> bool:
    """Whether an attribute may apply to a scene that is described in these words, without being mentioned.

    >>> may_apply("masked", {"a", "skier"}), may_apply("masked", {"a", "man"})
    (True, False)
    """
    return bool(set(MAY_APPLY_WITH.get(attribute, "").split()).intersection(words))
