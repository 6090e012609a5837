"""The table of object kinds: the words for each kind, and its glyphs in both drawing styles.

Camera glyphs are Material Design Icons; generator glyphs come from Font Awesome (`fa6`), Phosphor (`ph`), Remix (`ri`), and our own
drawings (`own`, see `glyphs.py`) where those have none. `@45` rotates a glyph counter-clockwise.

The words are chosen so that truth is decidable: a noun belongs to one kind or one category and is true of exactly the kinds
below it. So there is no "glass" (ambiguous), no "orange" (a colour), no shark (it is a fish), and "bug" is above spider and
beetle. Kinds whose outline looks striped or dotted, such as lighthouses, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Noun:
    """A word for captions."""

    singular: str
    plural: str


@dataclass(frozen=True)
class Kind:
    """A kind of object. `aspect` is width / height of its box; both styles are stretched to it."""

    name: str
    words: tuple[Noun, ...]  # synonyms, the canonical one first
    parent: str
    camera: str
    generator: str
    places: tuple[str, ...]  # on outdoor ground, on a room's floor, in the water, in the air
    aspect: float
    supports: bool = False  # other objects may be put on it
    perches: bool = False  # it may be put on a support
    upright: bool = False  # its mirror image would look wrong


@dataclass(frozen=True)
class Category:
    """A word for several kinds. The root is "thing", which is true of everything."""

    name: str
    words: tuple[Noun, ...]
    parent: str | None


def _nouns(words: str) -> tuple[Noun, ...]:
    """Parse `"sofa|knife/knives"` into nouns; the plural ends in s unless it is given."""
    pairs = (word.partition("/") for word in words.split("|"))
    return tuple(Noun(singular, plural or singular + "s") for singular, _, plural in pairs)


def _category(words: str, parent: str | None) -> Category:
    nouns = _nouns(words)
    return Category(nouns[0].singular, nouns, parent)


def _kind(words: str, parent: str, camera: str, generator: str, places: str, aspect: float, can: str = "") -> Kind:
    nouns = _nouns(words)
    return Kind(
        nouns[0].singular, nouns, parent, "mdi6:" + camera, generator, tuple(places.split()), aspect,
        supports="supports" in can, perches="perches" in can, upright="upright" in can,
    )  # fmt: skip


CATEGORIES: tuple[Category, ...] = (
    _category("thing", None),
    _category("animal", "thing"),
    _category("bird", "animal"),
    _category("bug", "animal"),
    _category("sea creature", "animal"),
    _category("vehicle", "thing"),
    _category("boat", "vehicle"),
    _category("aircraft/aircraft", "vehicle"),
    _category("piece of furniture/pieces of furniture", "thing"),
    _category("food item|piece of food/pieces of food", "thing"),
    _category("fruit/fruits|piece of fruit/pieces of fruit", "food item"),
    _category("vegetable", "food item"),
    _category("sweet treat|dessert", "food item"),
    _category("tool", "thing"),
    _category("kitchen item", "thing"),
    _category("electronic device", "thing"),
    _category("musical instrument", "thing"),
    _category("sports item", "thing"),
    _category("ball", "sports item"),
    _category("piece of clothing/pieces of clothing", "thing"),
    _category("bag", "thing"),
    _category("piece of jewellery/pieces of jewellery", "thing"),
    _category("toy", "thing"),
    _category("timepiece", "thing"),
    _category("building", "thing"),
    _category("plant", "thing"),
    _category("tree", "plant"),
)

_FURNITURE, _CLOTHING, _JEWEL = "piece of furniture", "piece of clothing", "piece of jewellery"
_DEVICE = "electronic device"
_SMALL, _TOP = "land indoors", "supports"

KINDS: tuple[Kind, ...] = (
    # animals
    _kind("dog", "animal", "dog-side", "fa6:dog", _SMALL, 1.12, "perches"),
    _kind("cat", "animal", "cat", "ph:cat-fill", _SMALL, 1.15, "perches"),
    _kind("horse", "animal", "horse", "fa6:horse", "land", 1.11),
    _kind("elephant", "animal", "elephant", "own:elephant", "land", 1.40),
    _kind("rabbit", "animal", "rabbit", "own:rabbit", _SMALL, 1.00, "perches"),
    _kind("turtle", "sea creature", "turtle", "own:turtle", "land water", 1.25, "perches"),
    _kind("snail", "animal", "snail", "own:snail", "land", 1.15, "perches"),
    _kind("bat", "animal", "bat", "own:bat", "air", 1.90),
    _kind("duck", "bird", "duck", "own:duck", "land water", 1.06, "perches"),
    _kind("penguin", "bird", "penguin", "own:penguin", "land water", 0.80, "perches"),
    _kind("owl", "bird", "owl", "own:owl", "land", 0.90, "perches"),
    _kind("butterfly/butterflies", "bug", "butterfly", "own:butterfly", "land air", 1.10, "perches"),
    _kind("beetle", "bug", "ladybug", "fa6:bug", "land indoors air", 0.90, "perches"),
    _kind("spider", "bug", "spider", "fa6:spider", _SMALL, 1.02, "perches"),
    _kind("fish/fish", "sea creature", "fish", "fa6:fish", "water", 1.48),
    _kind("dolphin", "sea creature", "dolphin", "own:dolphin", "water", 1.10),
    _kind("jellyfish/jellyfish", "sea creature", "jellyfish", "own:jellyfish", "water", 0.85),
    # vehicles
    _kind("car|automobile", "vehicle", "car-side", "fa6:car-side", "land", 1.60, _TOP),
    _kind("bus/buses", "vehicle", "bus", "fa6:bus", "land", 0.95, _TOP),
    _kind("truck|lorry/lorries", "vehicle", "truck", "fa6:truck-moving", "land", 1.40, _TOP),
    _kind("train", "vehicle", "train", "fa6:train", "land", 0.86),
    _kind("motorcycle|motorbike", "vehicle", "motorbike", "fa6:motorcycle", "land", 1.48),
    _kind("bicycle|bike", "vehicle", "bicycle", "fa6:bicycle", "land", 1.48),
    _kind("tractor", "vehicle", "tractor", "fa6:tractor", "land", 1.25),
    _kind("caravan", "vehicle", "caravan", "fa6:caravan", "land", 1.36, _TOP),
    _kind("rocket", "vehicle", "rocket", "ri:rocket-fill", "land air", 0.82),
    _kind("plane|airplane|aeroplane", "aircraft", "airplane", "fa6:plane-up@-45", "air", 1.00),
    _kind("helicopter", "aircraft", "helicopter", "fa6:helicopter", "land air", 1.24),
    _kind("sailboat|sailing boat", "boat", "sail-boat", "fa6:sailboat", "water", 1.00),
    _kind("ship", "boat", "ferry", "fa6:ship", "water", 1.00),
    # furniture
    _kind("sofa|couch/couches", _FURNITURE, "sofa", "fa6:couch", "indoors", 1.40, _TOP),
    _kind("chair", _FURNITURE, "seat", "fa6:chair", _SMALL, 0.92),
    _kind("bed", _FURNITURE, "bed-empty", "fa6:bed", "indoors", 1.46),
    _kind("table", _FURNITURE, "table-furniture", "own:table", _SMALL, 1.70, _TOP),
    _kind("bench/benches", _FURNITURE, "bench-back", "own:bench", "land", 1.60, _TOP),
    _kind("dresser|chest of drawers/chests of drawers", _FURNITURE, "dresser", "own:dresser", "indoors", 1.1, _TOP),
    _kind("lamp", _FURNITURE, "lamp", "ph:lamp-fill", "indoors", 0.95, "perches"),
    # food
    _kind("apple", "fruit", "food-apple", "fa6:apple-whole", _SMALL, 0.88, "perches"),
    _kind("lemon", "fruit", "fruit-citrus", "fa6:lemon", _SMALL, 1.00, "perches"),
    _kind("bunch of grapes/bunches of grapes", "fruit", "fruit-grapes", "own:grapes", _SMALL, 0.70, "perches"),
    _kind("watermelon", "fruit", "fruit-watermelon", "own:watermelon@45", _SMALL, 1.10, "perches"),
    _kind("carrot", "vegetable", "carrot", "fa6:carrot@45", _SMALL, 0.43, "perches"),
    _kind("pizza", "food item", "pizza", "fa6:pizza-slice", _SMALL, 0.95, "perches"),
    _kind("burger|hamburger", "food item", "hamburger", "fa6:burger", _SMALL, 1.10, "perches"),
    _kind("hot dog", "food item", "food-hot-dog", "fa6:hotdog", _SMALL, 1.00, "perches"),
    _kind("chicken leg|drumstick", "food item", "food-drumstick", "fa6:drumstick-bite", _SMALL, 1.00, "perches"),
    _kind("egg", "food item", "egg", "fa6:egg", _SMALL, 0.77, "perches"),
    _kind("cake", "sweet treat", "cake", "fa6:cake-candles", _SMALL, 0.93, "perches"),
    _kind("cookie|biscuit", "sweet treat", "cookie", "fa6:cookie-bite", _SMALL, 1.00, "perches"),
    _kind("ice cream|ice cream cone", "sweet treat", "ice-cream", "fa6:ice-cream", _SMALL, 0.76, "perches"),
    # kitchen
    _kind("cup|mug", "kitchen item", "coffee", "fa6:mug-saucer", _SMALL, 1.22, "perches"),
    _kind("wine glass/wine glasses", "kitchen item", "glass-wine", "fa6:wine-glass", _SMALL, 0.53, "perches"),
    _kind("cocktail|martini", "kitchen item", "glass-cocktail", "fa6:martini-glass", _SMALL, 1.00, "perches"),
    _kind("bottle", "kitchen item", "bottle-wine", "fa6:wine-bottle@45", "land indoors water", 0.33, "perches"),
    _kind("pot|cooking pot", "kitchen item", "pot", "ph:cooking-pot-fill", _SMALL, 1.40, "perches"),
    _kind("bowl", "kitchen item", "rice", "fa6:bowl-rice", _SMALL, 1.06, "perches"),
    _kind("spoon", "kitchen item", "silverware-spoon", "fa6:spoon", _SMALL, 1.00, "perches"),
    _kind("fridge|refrigerator", "kitchen item", "fridge", "ri:fridge-fill", "indoors", 0.70, _TOP),
    _kind("microwave", "kitchen item", "microwave", "own:microwave", "indoors", 1.5, "supports perches"),
    # tools
    _kind("hammer", "tool", "hammer", "fa6:hammer", _SMALL, 1.10, "perches"),
    _kind("wrench/wrenches|spanner", "tool", "wrench", "fa6:wrench", _SMALL, 1.00, "perches"),
    _kind("screwdriver", "tool", "screwdriver", "fa6:screwdriver", _SMALL, 1.00, "perches"),
    _kind("pair of scissors/pairs of scissors", "tool", "content-cut", "fa6:scissors", _SMALL, 1.00, "perches"),
    _kind("broom", "tool", "broom", "fa6:broom", _SMALL, 1.05),
    _kind("shovel|spade", "tool", "shovel", "own:shovel@-45", "land", 1.00),
    _kind("axe", "tool", "axe", "own:axe@-35", "land", 1.08, "perches"),
    _kind("ladder", "tool", "ladder", "own:ladder", _SMALL, 0.48),
    _kind("paintbrush/paintbrushes", "tool", "brush", "fa6:paintbrush", _SMALL, 1.06, "perches"),
    _kind("paint roller", "tool", "format-paint", "fa6:paint-roller", _SMALL, 0.92, "perches"),
    _kind("pencil", "tool", "pencil", "fa6:pencil", _SMALL, 1.00, "perches"),
    _kind("magnifying glass/magnifying glasses", "tool", "magnify", "fa6:magnifying-glass", _SMALL, 1.00, "perches"),
    # electronics
    _kind("laptop", _DEVICE, "laptop", "fa6:laptop", "indoors", 1.45, "perches"),
    _kind("phone|mobile phone|smartphone", _DEVICE, "cellphone", "fa6:mobile-screen-button", _SMALL, 0.66, "perches"),
    _kind("television|TV", _DEVICE, "television-classic", "ph:television-fill", "indoors", 1.08, "perches"),
    _kind("camera", _DEVICE, "camera", "fa6:camera", _SMALL, 1.12, "perches"),
    _kind("keyboard", _DEVICE, "keyboard", "fa6:keyboard", "indoors", 1.46, "perches"),
    _kind("radio", _DEVICE, "radio", "fa6:radio", _SMALL, 0.98, "perches"),
    _kind("printer", _DEVICE, "printer", "fa6:print", "indoors", 1.06, "perches"),
    _kind("pair of headphones/pairs of headphones", _DEVICE, "headphones", "fa6:headphones", _SMALL, 1.02, "perches"),
    _kind("game controller", _DEVICE, "controller-classic", "fa6:gamepad", "indoors", 1.80, "perches"),
    # music, sport, toys
    _kind("guitar", "musical instrument", "guitar-acoustic", "fa6:guitar", _SMALL, 1.02, "perches"),
    _kind("bell", "musical instrument", "bell", "fa6:bell", _SMALL, 0.87, "perches"),
    _kind("soccer ball", "ball", "soccer", "fa6:futbol", _SMALL, 1.00, "perches"),
    _kind("basketball", "ball", "basketball", "fa6:basketball", _SMALL, 1.00, "perches"),
    _kind("volleyball", "ball", "volleyball", "fa6:volleyball", _SMALL, 1.00, "perches"),
    _kind("bowling ball", "ball", "bowling", "fa6:bowling-ball", _SMALL, 1.00, "perches"),
    _kind("dumbbell", "sports item", "dumbbell@45", "fa6:dumbbell", _SMALL, 1.70, "perches"),
    _kind("skateboard", "sports item", "skateboard", "own:skateboard", _SMALL, 2.60, "perches"),
    _kind("kite", "toy", "kite", "own:kite", "air", 0.88),
    _kind("balloon", "toy", "balloon", "own:balloon", "air indoors", 0.50),
    _kind("teddy bear", "toy", "teddy-bear", "own:teddy-bear", _SMALL, 0.95, "perches"),
    _kind("robot", "toy", "robot", "fa6:robot", _SMALL, 1.18, "perches"),
    _kind("puzzle piece", "toy", "puzzle", "fa6:puzzle-piece", _SMALL, 1.00, "perches"),
    # to wear, to carry
    _kind("shirt|T-shirt", _CLOTHING, "tshirt-crew", "fa6:shirt", _SMALL, 1.22, "perches"),
    _kind("tie|necktie", _CLOTHING, "tie", "own:tie", "indoors", 0.50, "perches"),
    _kind("hat", _CLOTHING, "hat-fedora", "fa6:hat-cowboy", _SMALL, 1.42, "perches"),
    _kind("crown", _JEWEL, "crown", "fa6:crown", _SMALL, 1.20, "perches"),
    _kind("diamond", _JEWEL, "diamond-stone", "fa6:gem", _SMALL, 1.06, "perches"),
    _kind("suitcase", "bag", "bag-suitcase", "fa6:suitcase-rolling", _SMALL, 0.72, "perches"),
    _kind("briefcase", "bag", "briefcase", "fa6:briefcase", _SMALL, 1.06, "perches"),
    _kind("handbag|purse", "bag", "purse", "ph:handbag-fill", _SMALL, 1.11, "perches"),
    _kind("umbrella", "thing", "umbrella", "fa6:umbrella", _SMALL, 1.00, "perches"),
    # around the house
    _kind("clock", "timepiece", "clock", "ph:clock-fill", "indoors", 1.00, "perches upright"),
    _kind("watch/watches|wristwatch/wristwatches", "timepiece", "watch", "ph:watch-fill", _SMALL, 0.70, "perches"),
    _kind("hourglass/hourglasses", "timepiece", "timer-sand-complete", "fa6:hourglass", "indoors", 0.68, "perches"),
    _kind("book", "thing", "book-open-variant", "fa6:book-open", _SMALL, 1.30, "perches"),
    _kind("key", "thing", "key-variant", "fa6:key", _SMALL, 1.00, "perches"),
    _kind("padlock|lock", "thing", "lock", "fa6:lock", _SMALL, 0.82, "perches"),
    _kind("light bulb|lightbulb", "thing", "lightbulb", "fa6:lightbulb", _SMALL, 0.70, "perches"),
    _kind("candle", "thing", "candle", "own:candle", "indoors", 0.68, "perches"),
    _kind("toilet", "thing", "toilet", "fa6:toilet", "indoors", 0.88),
    _kind("bathtub|bath", "thing", "shower", "fa6:bath", "indoors", 1.00),
    _kind("washing machine", "thing", "washing-machine", "own:washing-machine", "indoors", 0.80, _TOP),
    _kind("door", "thing", "door", "fa6:door-closed", "indoors", 0.75),
    _kind("gift|present", "thing", "gift", "fa6:gift", _SMALL, 1.04, "perches"),
    _kind("trophy/trophies", "thing", "trophy", "fa6:trophy", _SMALL, 1.06, "perches"),
    _kind("globe", "thing", "globe-model", "ph:globe-stand-fill", "indoors", 0.83, "perches"),
    _kind("trash can|dustbin", "thing", "trash-can", "fa6:trash-can", _SMALL, 0.88),
    # outdoors
    _kind("house", "building", "home", "fa6:house-chimney", "land", 1.15),
    _kind("church/churches", "building", "church", "fa6:church", "land", 1.08),
    _kind("mosque", "building", "mosque", "fa6:mosque", "land", 1.22),
    _kind("pine tree|fir tree", "tree", "pine-tree", "fa6:tree", "land", 0.90),
    _kind("palm tree|palm", "tree", "palm-tree", "own:palm-tree", "land", 0.88),
    _kind("cactus/cactuses", "plant", "cactus", "ri:cactus-fill", _SMALL, 0.76, "perches"),
    _kind("flower", "plant", "flower", "ph:flower-fill", _SMALL, 0.88, "perches"),
    _kind("snowman/snowmen", "thing", "snowman", "fa6:snowman", "land", 1.00),
    _kind("traffic light", "thing", "traffic-light", "fa6:traffic-light", "land", 0.72),
    _kind("fire hydrant|hydrant", "thing", "fire-hydrant", "own:fire-hydrant", "land", 0.80),
    _kind("shopping cart|shopping trolley", "thing", "cart", "fa6:cart-shopping", _SMALL, 1.05),
    _kind("parachute", "thing", "parachute", "fa6:parachute-box", "air", 0.96),
    _kind("ghost", "thing", "ghost", "fa6:ghost", "land indoors air", 0.84),
    _kind("flag", "thing", "flag-variant", "fa6:flag", "land", 0.86),
    _kind("life ring|life buoy", "thing", "lifebuoy", "fa6:life-ring", "land water", 1.00, "perches"),
    _kind("bone", "thing", "bone", "fa6:bone", _SMALL, 1.88, "perches"),
    _kind("skull", "thing", "skull", "fa6:skull", _SMALL, 0.94, "perches"),
)

KIND: Mapping[str, Kind] = MappingProxyType({kind.name: kind for kind in KINDS})
CATEGORY: Mapping[str, Category] = MappingProxyType({category.name: category for category in CATEGORIES})


@cache
def ancestors(name: str) -> tuple[str, ...]:
    """The categories above a kind or category, the nearest first.

    >>> ancestors("apple")
    ('fruit', 'food item', 'thing')
    """
    parent = KIND[name].parent if name in KIND else CATEGORY[name].parent
    return () if parent is None else (parent, *ancestors(parent))


@cache
def kinds_of(noun: str) -> frozenset[str]:
    """Every kind that `noun` is true of: the name, or a singular or plural word, of a kind or category.

    >>> sorted(kinds_of("boats"))
    ['sailboat', 'ship']
    >>> kinds_of("couch")
    frozenset({'sofa'})
    """
    entries: tuple[Kind | Category, ...] = (*KINDS, *CATEGORIES)
    named = {e.name for e in entries if any(noun in (w.singular, w.plural) for w in e.words)}
    if not named:
        raise KeyError(f"no kind or category is called {noun!r}")
    return frozenset(kind.name for kind in KINDS if named & {kind.name, *ancestors(kind.name)})
