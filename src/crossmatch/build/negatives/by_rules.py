"""Hard negative captions by rules: one object, attribute or relation of a caption is replaced, swapped or added.

    id, caption_id, image_id, caption, negative, category, changed: [before, after]

Every negative should be grammatical and false of the image. To make it false, all captions of the image are considered. A new word
is neither a synonym nor broader or narrower than the old one, and no caption mentions it. A number becomes a larger one. An added
object fits the scene, and is one that people would have mentioned.
Sources: hsieh2023sugarcrepe, sec. 4, for the seven categories; miranda2024bivlc, sec. 3.1 and 5.1; the rules are our own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.negatives.add import add_attribute, add_object
from crossmatch.build.negatives.caption_context import CaptionContext
from crossmatch.build.negatives.replace import EditOption, replace_attribute, replace_object, replace_relation
from crossmatch.build.negatives.swap import swap_attribute, swap_object
from crossmatch.build.step_files import Row, StepOutput, StepSpec, write_step
from crossmatch.build.step_inputs import captions_by_image, collection_hash, pair_id, sort_by_id
from crossmatch.data.collection import Collection
from crossmatch.data.errors import UsageError
from crossmatch.data.io.progress import track
from crossmatch.data.settings import suggest_name
from crossmatch.text.noun_phrases import TaggedCaption, tag_captions, word_set
from crossmatch.text.perturbations import random_bits
from crossmatch.text.tokens_and_edits import split_words

STEP = "negatives"
RULES_VERSION = 1  # increase whenever a rule or a table changes
MAX_WORDS = 100  # longer texts are not captions, and take long to tag
BATCH_SIZE = 200  # captions that are tagged together
# Words that tell English from other languages in Latin script; WordNet has most foreign ones as English nouns ("con", "pan", "la").
ENGLISH_WORDS = word_set(
    "a an the of in on at with and is are to for by from next near his her their its two three some over under down up while that"
)
FOREIGN_WORDS = word_set(
    """
    un una el la los las del con y en le les des et une dans sur avec der das und ein eine mit auf im il gli di che een het op och
    av på som og em um uma nos nas ao
    """
)

T = TypeVar("T")
Rule = Callable[[TaggedCaption, CaptionContext], Iterable[EditOption]]
RULES: Mapping[str, Rule] = {
    "add/obj": add_object,
    "add/att": add_attribute,
    "replace/obj": replace_object,
    "replace/att": replace_attribute,
    "replace/rel": replace_relation,
    "swap/obj": swap_object,
    "swap/att": swap_attribute,
}


@dataclass(frozen=True)
class SourceCaption:
    """A caption to negate, with its first image and all captions of its images."""

    id: str
    image: str
    text: str
    image_captions: tuple[int, ...]  # positions of all captions of its images, including its own


class NegativeCaption(NamedTuple):
    """A negative caption, and the words before and after the change."""

    text: str
    before: str
    after: str


def write_rule_negatives(
    collection: Collection,
    output: Path,
    *,
    seed: int = 0,
    categories: Sequence[str] = CATEGORIES,
    captions: int = 0,
) -> dict[str, Any]:
    """Write hard negatives of the captions of a collection into a folder.

    Each caption gets a negative of every category that applies. The negatives of a caption depend neither on the order of captions
    nor on the selection of others. The manifest counts skipped captions (no words, another script or language, too long), and for
    each category the captions to which no rule applies.

    Args:
        collection: Images with captions.
        output: Folder of the step.
        seed: Seed of the selection of captions and of the choice among edits.
        categories: Categories to write.
        captions: Number of random captions; 0 for all.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> data = Diorama.make("test", size="tiny").collection
    >>> write_rule_negatives(data, folder / "negatives", captions=20, categories=["replace/att"])["counts"]
    {'captions': 20, 'replace/att': 10, 'no rule applies: replace/att': 10}
    """
    data, chosen = sort_by_id(collection), check_categories(categories)
    options = {"by": "rules", "rules": RULES_VERSION, "categories": list(chosen), "captions": captions}
    spec = StepSpec(STEP, {"collection": collection_hash(data)}, options, seed)
    return write_step(output, spec, lambda step: _negative_rows(step, data, chosen, seed, captions))


def check_categories(categories: Sequence[str]) -> tuple[str, ...]:
    """Sort categories in the order of the table; reject unknown ones.

    >>> check_categories(["swap/obj", "add/obj"])
    ('add/obj', 'swap/obj')
    """
    unknown = next((name for name in categories if name not in CATEGORIES), None)
    if unknown is not None:
        raise UsageError(f"Unknown category {unknown!r}. {suggest_name(str(unknown), CATEGORIES)}")
    if not categories:
        raise UsageError(f"--kinds: no category is named. Known: {', '.join(CATEGORIES)}.")
    return tuple(name for name in CATEGORIES if name in categories)


def select_captions(collection: Collection, seed: int = 0, number: int = 0) -> list[SourceCaption]:
    """All captions of a collection, or a random selection, in the order of their ids."""
    if number < 0 or number > collection.shape[1]:
        raise UsageError(
            f"--captions must be from 0 (all) to {collection.shape[1]:,}, the size of the collection (got {number:,})."
        )
    texts, names, captions_of = collection.texts(), collection.caption_ids.tolist(), captions_by_image(collection)
    images_of: dict[int, list[int]] = {}
    for image, caption in collection.links.tolist():
        images_of.setdefault(caption, []).append(image)
    selected = list(range(len(texts)))
    if number:
        selected = sorted(sorted(selected, key=lambda n: next(random_bits("captions", seed, names[n])))[:number])
    captions = []
    for n in selected:
        images = sorted(images_of.get(n, ()))
        image_captions = tuple(sorted({n, *(caption for image in images for caption in captions_of[image])}))
        image_id = str(collection.image_ids[images[0]]) if images else ""
        captions.append(SourceCaption(names[n], image_id, texts[n], image_captions))
    return captions


def _negative_rows(step: StepOutput, data: Collection, categories: Sequence[str], seed: int, number: int) -> Iterator[Row]:
    captions = select_captions(data, seed, number)
    step.count("captions", len(captions))
    for start in track(range(0, len(captions), BATCH_SIZE), "writing negatives"):
        batch = captions[start : start + BATCH_SIZE]
        for caption, tagged, context in tag_readable(step, data, batch, ("", "another language")):
            existing = {normalise_text(data.captions[n]) for n in caption.image_captions}
            for category in categories:
                negative = draw_negative(category, tagged, context, seed, caption.id)
                if negative is None:
                    step.count(f"no rule applies: {category}")
                elif normalise_text(negative.text) in existing:
                    step.count(f"same as a caption: {category}")
                else:
                    step.count(category)
                    yield negative_row(caption, category, negative)


def tag_readable(
    step: StepOutput, data: Collection, captions: Sequence[SourceCaption], of_context: Sequence[str]
) -> Iterator[tuple[SourceCaption, TaggedCaption, CaptionContext]]:
    """Tag each readable caption, with the captions of its images as context; count the others by reason.

    `of_context` lists the values of `unreadable_reason` with which a caption belongs to the context.
    """
    needed = sorted({n for caption in captions for n in caption.image_captions})
    usable = [n for n in needed if unreadable_reason(data.captions[n]) in of_context]
    tagged = dict(zip(usable, tag_captions([data.captions[n] for n in usable]), strict=True))
    for caption in captions:
        reason = unreadable_reason(caption.text)
        if reason:
            step.count(f"passed over: {reason}")
            continue
        tagged_caption = next(tagged[n] for n in caption.image_captions if str(data.caption_ids[n]) == caption.id)
        yield caption, tagged_caption, CaptionContext(tuple(tagged[n] for n in caption.image_captions if n in tagged))


def draw_negative(category: str, caption: TaggedCaption, context: CaptionContext, *key: str | int) -> NegativeCaption | None:
    """Draw a negative of a category by a random key; None if no rule applies.

    A position is drawn first, then one of its alternatives, so that positions with many alternatives are not preferred.
    """
    options: dict[int, list[EditOption]] = {}
    for option in RULES[category](caption, context):
        options.setdefault(option.position, []).append(option)
    if not options:
        return None
    bits = random_bits(category, *key)
    position = _draw(list(options), bits)
    chosen = _draw(options[position], bits)
    return NegativeCaption(caption.apply(chosen.edits), chosen.before, chosen.after)


def _draw(items: list[T], bits: Iterator[int]) -> T:
    return items[(next(bits) * len(items)) >> 64]


def negative_row(caption: SourceCaption, category: str, negative: NegativeCaption) -> Row:
    """The row of a hard negative, in the form shared by all writers of negatives."""
    return {
        "id": pair_id(caption.id, category),
        "caption_id": caption.id,
        "image_id": caption.image,
        "caption": caption.text,
        "negative": negative.text,
        "category": category,
        "changed": [negative.before, negative.after],
    }


def normalise_text(text: str) -> str:
    """A text in lower case without punctuation and extra white space.

    >>> normalise_text("A  Dog.") == normalise_text("a dog")
    True
    """
    return " ".join(split_words(unicodedata.normalize("NFKC", text).casefold()))


def unreadable_reason(text: str) -> str:
    """Why the rules cannot read a caption; empty if they can.

    >>> [unreadable_reason(text) for text in ("A dog.", "🐕!", "Собака", "dog " * 200, "un perro en la mesa")]
    ['', 'no words', 'another script', 'too long', 'another language']
    """
    if len(text) > 20 * MAX_WORDS:
        return "too long"
    words = [word.lower() for word in split_words(text)]
    letters = [letter for word in words for letter in word if letter.isalpha()]
    if not letters:
        return "no words"
    if len(words) > MAX_WORDS:
        return "too long"
    if any(unicodedata.name(letter, "").split(" ")[0] != "LATIN" for letter in letters):
        return "another script"
    english, foreign = (sum(word in listed for word in words) for listed in (ENGLISH_WORDS, FOREIGN_WORDS))
    return "another language" if foreign > english else ""
