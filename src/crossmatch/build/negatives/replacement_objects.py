"""Families of common visible objects, in which objects can replace each other in a caption.

A family consists of groups, separated by semicolons. A group holds names of the same object ("couch", "sofa"), which do not
contradict each other; different groups of a family are easily told apart. The first name of a group is inserted into captions,
unless the group is in brackets: these objects are so often in a picture without being mentioned that a caption naming them may be
true. A noun outside the table belongs to the group of its nearest hypernym in WordNet: a poodle is a dog.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

from crossmatch.text.wordnet import Synset, caption_sense, synsets

FAMILIES = {
    "man": "man, guy, gentleman, dude, fellow, boyfriend, husband, father, dad, groom, male, uncle, grandfather, king",
    "animal": """
        dog, puppy, pup, hound, terrier; cat, kitten, feline; rabbit, bunny; fox; raccoon; monkey, ape, gorilla, chimpanzee;
        pig, hog, piglet; goat; turtle, tortoise; squirrel; lizard, iguana; [hamster]
    """,
    "farm": """
        cow, cattle, bull, calf, ox, bison, buffalo; horse, pony, stallion, mare, foal, colt; sheep, lamb, ram, ewe; goat; pig, hog;
        donkey, mule; llama, alpaca; ostrich; deer, elk, moose, reindeer, antelope; camel
    """,
    "wild": """
        elephant; giraffe; zebra; lion, lioness; tiger; bear, polar bear, brown bear, black bear, grizzly; rhinoceros, rhino;
        hippopotamus, hippo; kangaroo; gorilla; camel; wolf; leopard, cheetah; panda
    """,
    "bird": """
        [bird]; seagull, gull; duck, duckling, mallard; goose; swan; pigeon, dove; owl; parrot, parakeet; eagle, hawk, falcon;
        penguin; flamingo; peacock; rooster, hen, chicken; turkey; pelican; crow, raven
    """,
    "branch animal": "bird; squirrel; butterfly; bat; monkey",
    "athlete": """
        [baseball player, batter, catcher, umpire, pitcher]; tennis player; golfer; basketball player; soccer player; hockey player;
        boxer; fencer; gymnast; rugby player
    """,
    "on snow": "skier; snowboarder; ice skater; hiker; snowshoer",
    "on water": "surfer; kayaker; swimmer; diver; fisherman; water skier",
    "on wheels": "skateboarder; motorcyclist, biker; cyclist, bicyclist; roller skater; unicyclist; jogger",
    "role": "police officer, policeman, cop; firefighter, fireman; chef, cook; soldier; nurse; waiter, waitress; clown; painter",
    "road vehicle": """
        [car, taxi, sedan, suv, jeep, cab, vehicle, convertible]; truck, pickup, pickup truck, dump truck, tow truck, fire
        truck, semi; [bus, school bus, double decker, coach]; [motorcycle, motorbike, bicycle, bike, moped, scooter, cycle];
        tractor; ambulance; tram, trolley, streetcar; bulldozer; horse carriage; tank
    """,
    "train": "train, locomotive, passenger train, subway train; [bus]; truck; tram, trolley, streetcar; [car]; tractor; airship",
    "aircraft": "airplane, plane, jet, aircraft, jetliner, airliner, biplane; helicopter; hot-air balloon; blimp; glider; rocket",
    "vessel": "[boat, sailboat, ship, yacht, canoe, kayak, rowboat, ferry, barge]; raft; jet ski; submarine; seaplane; hovercraft",
    "ridden": """
        [skateboard]; [bicycle, bike]; [motorcycle, motorbike, moped, scooter]; unicycle; tricycle; camel; donkey; [horse]; tractor
    """,
    "carried": "[skateboard, surfboard, snowboard, ski]; ladder; canoe; guitar; suitcase; drum; flag",
    "on waves": "[surfboard, paddle board, paddleboard]; kayak; jet ski; raft; bodyboard; canoe",
    "in snow": "[snowboard]; [ski]; sled, sleigh, toboggan; snowmobile; unicycle",
    "seat": """
        couch, sofa, loveseat, futon, settee; [chair, armchair, recliner, rocking chair, office chair]; [bench, park bench]; stool;
        hammock; wheelchair; beanbag; throne; swing
    """,
    "furniture": """
        [table, dining table, dinner table, coffee table, picnic table, desk, counter, countertop]; couch, sofa; bench; bed;
        bookshelf, bookcase, shelf; dresser, wardrobe; piano; trunk
    """,
    "bed": "[bed, bunk bed, mattress]; couch, sofa; hammock; bench; carpet, rug; haystack",
    "room": """
        [room]; kitchen, kitchenette; bathroom, restroom, washroom; bedroom, hotel room; living room, lounge, den; [dining
        room]; office; classroom; garage; library; attic; [hallway]
    """,
    "fixture": """
        [toilet, commode, urinal]; [sink]; [bathtub, tub]; [shower]; [refrigerator, fridge, freezer]; [oven, stove]; [microwave];
        [dishwasher]; washing machine; fish tank, aquarium; fireplace; vending machine; piano; pool table; treadmill
    """,
    "container": """
        [plate, platter]; [bowl]; [tray]; [cup, mug]; [glass]; basket; bucket, pail; jar; [box, carton, crate]; [pan, skillet];
        [pot]; wheelbarrow; cauldron
    """,
    "luggage": """
        [suitcase, luggage, bag, backpack, briefcase, purse, handbag]; guitar case; wooden crate; barrel; toolbox; bucket;
        pillow; drum
    """,
    "vase": "[vase]; teapot; bucket, pail; lantern; candlestick; fishbowl; jar; trophy",
    "dish": """
        pizza; [sandwich, burger, hamburger, cheeseburger, panini]; [hot dog, hotdog]; salad; [cake, cupcake, birthday cake]; pie;
        [donut, doughnut, bagel, pastry, muffin]; burrito, taco; omelet, omelette; pancake, waffle; lobster; pretzel; steak
    """,
    "eaten": """
        pizza; soup, stew; sushi; pasta, spaghetti; cake; salad; ice cream; popcorn; steak, beef; bread, toast; rice; cereal;
        meat
    """,
    "fruit": """
        banana; apple; orange; pear; lemon, lime; strawberry; grape; pineapple; watermelon, melon; coconut; peach; mango;
        cherry; kiwi
    """,
    "vegetable": """
        broccoli; cauliflower; cabbage; corn; spinach; celery; asparagus; [lettuce]; [carrot]; [tomato]; [potato]; [onion];
        [pepper]; [cucumber, pickle]; [mushroom]; [pea]; [bean]
    """,
    "vegetables": "carrot; tomato; potato; onion; pepper; cucumber; mushroom; radish; pumpkin; eggplant; pea; bean; beet; turnip",
    "drink": "coffee, espresso; beer; wine; milk; juice, lemonade; tea; soda, coke; whiskey, liquor",
    "garment": """
        [shirt, t-shirt, blouse, jersey]; [jacket, coat]; [sweater, sweatshirt, hoodie]; [suit, tuxedo]; [dress, gown]; [skirt];
        [vest]; [uniform]; kimono; bathrobe, robe; wetsuit; raincoat; apron; kilt; cape
    """,
    "hat": "hat, cap; helmet; crown, tiara; turban; wig; veil; headband, bandana",
    "neckwear": "[tie, necktie, bow tie]; scarf; medal; necklace; whistle; stethoscope; bandana; lei",
    "held": """
        [umbrella, parasol]; flag; fishing rod; lantern; balloon; sword; trumpet; ladder; torch; guitar; shovel
    """,
    "racket": """
        [tennis racket, tennis racquet, racket, racquet]; [baseball bat, bat]; golf club; hockey stick; fishing rod; guitar;
        broom; sword
    """,
    "thrown": """
        [frisbee, disc]; [kite]; [ball, tennis ball, baseball, soccer ball]; boomerang; snowball; balloon; javelin; water
        bottle
    """,
    "flown": "[kite]; balloon; drone; flag; paper airplane",
    "game": "tennis; baseball, softball; soccer; golf; basketball; volleyball; hockey; cricket; chess; badminton; rugby",
    "gadget": """
        [laptop, laptop computer, notebook]; [computer, desktop computer]; [phone, cell phone, cellphone, cellular phone,
        smartphone, mobile phone, telephone]; [camera]; [television, tv]; [tablet]; [monitor, computer monitor]; radio;
        typewriter; calculator; telescope; microscope; record player; sewing machine
    """,
    "small gadget": """
        [remote, remote control, controller, game controller]; [computer mouse]; [keyboard, computer keyboard]; flashlight;
        calculator; hammer; harmonica; stapler; flute
    """,
    "tool": """
        [knife]; [fork]; [spoon]; [toothbrush]; [scissors]; hammer; screwdriver; paintbrush; pencil; comb, hairbrush; feather;
        candle; chopstick
    """,
    "read": "book; newspaper; magazine; map; letter; scroll; comic book",
    "way": """
        [street, road, avenue, highway, roadway, lane, freeway]; river; hallway, corridor; [sidewalk]; trail, path; [track];
        canal; alley
    """,
    "ground": "snow; sand; mud; grass; gravel; [dirt]",
    "land": """
        [field, pasture, meadow, grassland, lawn, plain]; forest, woods, jungle; desert; swamp, marsh; parking lot; vineyard;
        cave; canyon; [park]; [yard, backyard]; cemetery; stadium
    """,
    "shore": """
        beach, seashore; runway, tarmac; rooftop; bridge; farm; football field; [street, road]; golf course; mountain; train
        platform
    """,
    "water": "[ocean, sea]; [lake, pond]; [river, stream, creek]; swimming pool, pool; fountain; bathtub",
    "court": """
        tennis court, court; [baseball field, baseball diamond]; basketball court; soccer field; golf course; ice rink;
        bowling alley
    """,
    "rise": "[mountain]; [hill, slope, hillside, ski slope]; sand dune, dune; staircase; volcano; escalator",
    "house": """
        [building]; [house, home, cottage, cabin]; church, cathedral; barn; castle; [skyscraper]; lighthouse; windmill; pyramid;
        temple; gas station; greenhouse; circus tent
    """,
    "indoors": """
        [restaurant, cafe, diner]; [store, shop]; museum; library; church; hospital; gym; theater; bank; barn; train station
    """,
    "post": """
        [stop sign, street sign, sign]; [traffic light, stoplight, traffic signal]; [parking meter]; [fire hydrant, hydrant];
        mailbox; phone booth; statue, sculpture; fountain; flagpole; windmill; scarecrow; totem pole
    """,
    "tower": "clock tower; lighthouse; windmill; castle; water tower; chimney; pyramid; skyscraper; [steeple]",
    "on the wall": """
        [clock]; [mirror]; [painting, picture frame]; [television, tv]; dartboard; thermometer; antlers; birdcage; chandelier
    """,
    "flower": "flower, rose, tulip, daisy, bouquet; balloon; feather; candle; mushroom; pinecone; peacock feather",
    "tree": "[tree]; cactus; tent; statue; windmill; telephone booth; haystack; lamppost",
    "toy": "[teddy bear, stuffed animal, stuffed bear, teddy]; doll; puppet; rubber duck; snow globe; toy robot; rocking horse",
    "bedding": "[blanket, comforter, quilt]; [pillow, cushion]; [towel]; newspaper; tarp; sleeping bag; cardboard box",
    "shoes": "[shoe, sneaker, boot]; sandal; slipper; roller skate; flipper",
    "on the nose": "[glasses, sunglasses, eyeglasses, goggles]; earrings; headphones, earphones",
    "fence": "[fence, railing, gate]; hedge; stone wall; river; row of tents; waterfall",
    "enclosure": "cage; [enclosure, pen]; barn; tent; boat; cave",
    "train place": "[train station, station]; airport; harbor, marina; shopping mall; [zoo]; farm; circus; campground",
}  # fmt: skip
FAMILIES["man"] = f"""
    {FAMILIES["man"]}; woman, lady, female, girlfriend, wife, mother, mom, bride, aunt, grandmother, queen; boy; girl
"""
# A boy may be called a man and a girl a woman, so only the other gender contradicts; words without a gender contradict nothing.
GENDERS = {
    "he": frozenset({"man", "guy", "gentleman", "dude", "fellow", "boyfriend", "husband", "father", "dad", "groom", "male", "uncle",
                     "grandfather", "king", "boy", "son", "brother"}),
    "she": frozenset({"woman", "lady", "female", "girlfriend", "wife", "mother", "mom", "bride", "aunt", "grandmother", "queen",
                      "girl", "daughter", "sister"}),
}  # fmt: skip
MAX_STEPS = 7  # from a noun up to a hypernym that is in a group


@dataclass(frozen=True)
class ObjectGroup:
    """Names of one kind of object; the first is inserted into captions if the group is offered."""

    family: str
    names: tuple[str, ...]
    is_offered: bool

    @property
    def name(self) -> str:
        return self.names[0]


@cache
def all_groups() -> tuple[ObjectGroup, ...]:
    """All groups of all families, in the order of the table."""
    groups = []
    for family, text in FAMILIES.items():
        for part in text.split(";"):
            group = " ".join(part.split())
            names = tuple(name.strip() for name in group.strip("[]").split(","))
            groups.append(ObjectGroup(family, names, not group.startswith("[")))
    return tuple(groups)


@cache
def _groups_by_name() -> dict[str, tuple[ObjectGroup, ...]]:
    by_name: dict[str, list[ObjectGroup]] = {}
    for group in all_groups():
        for name in group.names:
            by_name.setdefault(name, []).append(group)
    return {name: tuple(groups) for name, groups in by_name.items()}


@lru_cache(1 << 14)
def find_groups(noun: str) -> tuple[ObjectGroup, ...]:
    """The groups of a lemma, or of its nearest hypernym in the table; empty if the table has neither.

    >>> [group.name for group in find_groups("sofa")][:1], [group.name for group in find_groups("poodle")]
    (['couch'], ['dog'])
    """
    by_name = _groups_by_name()
    if noun in by_name:
        return by_name[noun]
    sense = caption_sense(noun, "n")
    level = [sense] if sense else []
    for _ in range(MAX_STEPS):
        names = [name for synset in level for name in synset.lemmas if name in by_name and caption_sense(name, "n") == synset]
        if names:
            return by_name[names[0]]
        level = [hypernym for synset in level for hypernym in synset.related("@", "@i")]
    return ()


@lru_cache(1 << 14)
def replacement_objects(noun: str) -> tuple[str, ...]:
    """Objects that may replace a noun: the offered names of the other groups in its families.

    >>> replacement_objects("zebra")[:4]
    ('elephant', 'giraffe', 'lion', 'tiger')
    >>> replacement_objects("person")
    ()
    """
    own_groups = find_groups(noun)
    families = {group.family for group in own_groups}
    own_names = {name for group in own_groups for name in group.names}
    offered = [group.name for group in all_groups() if group.is_offered and group.family in families and group not in own_groups]
    return tuple(dict.fromkeys(name for name in offered if name not in own_names))


@lru_cache(1 << 14)
def aliases(noun: str) -> frozenset[str]:
    """All names in the table for the object that a noun names, including the noun itself.

    >>> sorted(aliases("sofa"))[:3]
    ['couch', 'futon', 'loveseat']
    """
    return frozenset({noun, *(name for group in find_groups(noun) for name in group.names)})


@lru_cache(1 << 14)
def hypernyms_of(noun: str) -> frozenset[Synset]:
    """The sense of a noun in captions, and all its hypernyms.

    >>> any("animal" in synset.lemmas for synset in hypernyms_of("dog"))
    True
    """
    hypernyms: set[Synset] = set()
    sense = caption_sense(noun, "n")
    level = [sense] if sense else list(synsets(noun, "n")[:1])
    while level:
        hypernyms.update(level)
        level = [parent for synset in level for parent in synset.related("@", "@i") if parent not in hypernyms]
    return frozenset(hypernyms)


def gender_of(noun: str) -> str:
    """`he`, `she`, or empty.

    >>> gender_of("boy"), gender_of("lady"), gender_of("person")
    ('he', 'she', '')
    """
    return next((pronoun for pronoun, nouns in GENDERS.items() if noun in nouns), "")
