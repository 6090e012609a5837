"""What can be added to a caption so that it becomes false: things that fit the scene but that people would mention, and qualities
that they would mention. Each is rare enough that a picture whose captions say nothing of it hardly ever has it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

# A scene: the nouns that tell of it, and what may be added to it. The first scene with the most telling nouns counts.
SCENES = {
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
ANYWHERE = "ladder; trumpet; globe; parrot; statue; accordion"

# Qualities for a kind of thing (`negative_kinds.kind_of`) of which nothing of the sort is said.
QUALITIES = {
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
# Where a quality may be there unmentioned: with any of these words in a caption, it is not added.
NOT_WITH = {
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


@cache
def _scenes() -> tuple[tuple[frozenset[str], tuple[str, ...]], ...]:
    return tuple((frozenset(told.split()), tuple(_listed(held))) for told, held in SCENES.values())


def _listed(written: str) -> list[str]:
    return [name.strip() for name in written.split(";")]


def fitting(nouns: Collection[str]) -> tuple[str, ...]:
    """What may be added to a scene that these nouns tell of.

    >>> fitting({"ski", "snow", "man"})[:2], fitting({"idea"})[:1]
    (('snowman', 'igloo'), ('ladder',))
    """
    told, held = max(_scenes(), key=lambda scene: len(scene[0].intersection(nouns)))
    return held if told.intersection(nouns) else tuple(_listed(ANYWHERE))


def qualities(kind: str) -> tuple[str, ...]:
    """What may be said of things of a kind that nobody said.

    >>> qualities("food")[:2], qualities("")
    (('moldy', 'burnt'), ())
    """
    return tuple(QUALITIES[kind].split(", ")) if kind in QUALITIES else ()


def may_be_there(quality: str, said: Collection[str]) -> bool:
    """Whether a scene that is told of in these words may have a quality without anyone saying so.

    >>> may_be_there("masked", {"a", "skier"}), may_be_there("masked", {"a", "man"})
    (True, False)
    """
    return bool(set(NOT_WITH.get(quality, "").split()).intersection(said))
