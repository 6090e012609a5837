"""Examples of rated pairs with the scores of models: Table 1 and Figures 6 to 8 of parekh2021cxc."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crossmatch.data.arrays import FloatArray
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import KINDS
from crossmatch.data.rated_pairs import PairRatings, RatedCollection
from crossmatch.data.scores import Run, Scores
from crossmatch.evaluation.data_shapes import scored_directions
from crossmatch.evaluation.model_scores import score_collection
from crossmatch.models import make_model
from crossmatch.models.cache import Cache
from crossmatch.ranking.ranks_in_run import look_up_run_scores
from crossmatch.ranking.sweep import score_pairs
from crossmatch.ranking.top_lists import iterate_rankings
from crossmatch.report.analysis.rating_distributions import METHOD_LABELS
from crossmatch.report.pages import image_data_url

DEPTHS = {"i2t": 5, "t2i": 3}  # retrieved items of an example, as in Figures 8 and 7
PICTURE_SIZE = 280  # pixels
MAX_QUERIES = 200  # that are searched for an example with a new positive
DIRECTION_TITLES = {"t2i": "Images that a model retrieves for a caption", "i2t": "Captions that a model retrieves for an image"}


@dataclass(frozen=True, eq=False)
class ModelScores:
    """The scores of one model for the rated pairs of each source that it can score."""

    name: str
    by_source: Mapping[str, FloatArray]
    scores: Scores
    directions: tuple[str, ...]


@dataclass(frozen=True)
class ExampleItem:
    """A caption or an image of an example, with a label such as its rating."""

    text: str
    picture: str = ""  # data URL
    label: str = ""


@dataclass(frozen=True)
class RatedExample:
    """A card: items side by side, and numbers below them."""

    items: tuple[ExampleItem, ...]
    numbers: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ExampleGroup:
    """Examples below one heading."""

    title: str
    description: str
    examples: tuple[RatedExample, ...]


def score_ratings(model: str, rated: RatedCollection, cache: Cache | None = None) -> ModelScores:
    """Score all rated pairs that a model can compare.

    Raises:
        UsageError: The model can compare none of them.
    """
    opened = make_model(model)
    tasks = {name: ratings.similarity(rated.collection) for name, ratings in rated.ratings.items()}
    scores = score_collection(opened, next(iter(tasks.values())), allow_extra=True, cache=cache)
    directions = tuple(scored_directions(scores, rated.collection))
    by_source = {
        name: look_up_run_scores(scores, rated.collection, task.direction, task.query, task.item)
        if isinstance(scores, Run)
        else score_pairs(scores, task.query, task.item, task.direction)
        for name, task in tasks.items()
        if task.direction in directions
    }
    if not by_source:
        needed = ", ".join(sorted({task.direction for task in tasks.values()}))
        raise UsageError(f"{model} scores {', '.join(directions)} only, but the ratings need {needed}. Choose another model.")
    return ModelScores(model, by_source, scores, directions)


def example_groups(rated: RatedCollection, scores: Sequence[ModelScores], number: int = 3, seed: int = 0) -> list[ExampleGroup]:
    """All groups of examples that the ratings and scores allow.

    Args:
        rated: The collection and its ratings.
        scores: Scores of models, from `score_ratings`.
        number: Number of examples in a group, except for one example per whole rating.
        seed: Seed of the choice.
    """
    writer = _ExampleWriter(rated.collection, picture_source(rated.collection))
    groups = [_examples_by_rating(writer, ratings, scores, seed) for ratings in rated.ratings.values()]
    for ratings in rated.ratings.values():
        if ratings.kind == "caption-caption":
            groups.append(_closer_than_own_captions(writer, ratings, scores, number))
        if ratings.kind == "image-caption":
            for model in scores:
                groups += [_retrieved(writer, ratings, model, direction, number, seed) for direction in ("t2i", "i2t")
                           if direction in model.directions]  # fmt: skip
    return [group for group in groups if group.examples]


@dataclass(frozen=True)
class _ExampleWriter:
    """Turns positions of items into parts of an example."""

    collection: Collection
    picture_of: Callable[[str], str]

    def item(self, side: str, position: int, label: str = "") -> ExampleItem:
        if side == "image":
            name = str(self.collection.image_ids[position])
            picture = self.picture_of(name)
            return ExampleItem("" if picture else self._describe_image(position), picture, label)
        texts = self.collection.captions
        return ExampleItem(texts[position] if texts else f"caption {self.collection.caption_ids[position]}", "", label)

    def _describe_image(self, position: int) -> str:
        """The id of an image without a picture, with one of its captions."""
        name, texts = str(self.collection.image_ids[position]), self.collection.captions
        captions = self.collection.links[self.collection.links[:, 0] == position, 1]
        return f"image {name} (“{texts[captions.min()]}”)" if texts and len(captions) else f"image {name}"

    def pair(self, ratings: PairRatings, n: int, scores: Sequence[ModelScores]) -> RatedExample:
        """A rated pair with its rating and scores."""
        first_side, second_side = KINDS[ratings.kind][0]
        items = self.item(first_side, int(ratings.first[n])), self.item(second_side, int(ratings.second[n]))
        method = ratings.methods[n]
        numbers = [("rating", f"{ratings.grades[n]:.2f}")]
        numbers += [
            (model.name, f"{model.by_source[ratings.source][n]:.2f}") for model in scores if ratings.source in model.by_source
        ]
        return RatedExample(items, (*numbers, *((("", METHOD_LABELS.get(method, method)),) if method else ())))


def _examples_by_rating(writer: _ExampleWriter, ratings: PairRatings, scores: Sequence[ModelScores], seed: int) -> ExampleGroup:
    """For each whole rating, from the highest, the pair that is closest to it; equal ones are drawn."""
    order = np.random.default_rng(seed).permutation(len(ratings))
    highest, lowest = round(float(ratings.grades.max())), round(float(ratings.grades.min()))
    chosen = [int(order[np.abs(ratings.grades[order] - grade).argmin()]) for grade in range(highest, lowest - 1, -1)]
    examples = tuple(writer.pair(ratings, n, scores) for n in dict.fromkeys(chosen))
    description = "One random pair for each whole rating, from the highest to the lowest (parekh2021cxc, table 1, app. fig. 1)."
    return ExampleGroup(f"{ratings.source}: what the ratings mean", description, examples)


def _closer_than_own_captions(
    writer: _ExampleWriter, ratings: PairRatings, scores: Sequence[ModelScores], number: int
) -> ExampleGroup:
    """Captions of two images that are rated more similar than each of them and the captions of its own image."""
    owner = writer.collection.caption_owners()
    own_ratings: dict[int, list[float]] = defaultdict(list)
    is_own = owner[ratings.first] == owner[ratings.second]
    for a, b, grade in zip(ratings.first[is_own], ratings.second[is_own], ratings.grades[is_own], strict=True):
        own_ratings[int(a)].append(float(grade))
        own_ratings[int(b)].append(float(grade))
    margins: dict[frozenset[int], tuple[float, int]] = {}  # by pair; a pair may be rated in both orders
    for n in np.flatnonzero(~is_own).tolist():
        pair = int(ratings.first[n]), int(ratings.second[n])
        sibling_grades = [grade for caption in pair for grade in own_ratings[caption]]
        if all(own_ratings[caption] for caption in pair) and ratings.grades[n] > max(sibling_grades):
            margins.setdefault(frozenset(pair), (float(ratings.grades[n]) - max(sibling_grades), n))
    examples = []
    for _, n in sorted(margins.values(), key=lambda entry: (-entry[0], entry[1]))[:number]:
        example = writer.pair(ratings, n, scores)
        items = []
        for position in (int(ratings.first[n]), int(ratings.second[n])):
            own_text = ", ".join(f"{grade:.2f}" for grade in sorted(own_ratings[position], reverse=True))
            picture = writer.item("image", int(owner[position])).picture
            items.append(ExampleItem(writer.item("caption", position).text, picture, f"with captions of its own image: {own_text}"))
        examples.append(RatedExample(tuple(items), example.numbers))
    description = (
        "Captions of two images, rated higher than each of them with the other captions of its own image. "
        f"Number of such pairs: {len(margins):,}. These have the largest difference (parekh2021cxc, fig. 6)."
    )
    return ExampleGroup(f"{ratings.source}: closer than captions of one image", description, tuple(examples))


def _retrieved(
    writer: _ExampleWriter, ratings: PairRatings, model: ModelScores, direction: str, number: int, seed: int
) -> ExampleGroup:
    """The first items that a model retrieves, with their ratings; if possible, queries that retrieve a new positive."""
    query_side, item_side = SIDES[direction]
    grades = {(int(i), int(c)): float(g) for i, c, g in zip(ratings.first, ratings.second, ratings.grades, strict=True)}
    links = {(int(i), int(c)) for i, c in writer.collection.links}
    examples = []
    new_positives = 0
    for query, items in _queries_with_new_positives(writer.collection, ratings, model, direction, links, seed):
        pairs = [(query, item) if query_side == "image" else (item, query) for item in items]
        labels = [f"{f'{grades[pair]:.2f}' if pair in grades else 'not rated'}{' *' if pair in links else ''}" for pair in pairs]
        retrieved = [writer.item(item_side, item, label) for item, label in zip(items, labels, strict=True)]
        examples.append(RatedExample((writer.item(query_side, query, "query"), *retrieved), ()))
        new_positives += any(grades.get(pair, 0.0) >= ratings.positive and pair not in links for pair in pairs)
        if len(examples) == number:
            break
    description = (
        f"{model.name}, best first, with the rating of people; * original link. "
        f"{new_positives} of {len(examples)} show a positive that is no link (parekh2021cxc, fig. {7 if direction == 't2i' else 8})."
    )
    return ExampleGroup(f"{DIRECTION_TITLES[direction]} ({model.name})", description, tuple(examples))


def _queries_with_new_positives(
    collection: Collection, ratings: PairRatings, model: ModelScores, direction: str, links: set[tuple[int, int]], seed: int
) -> Iterator[tuple[int, list[int]]]:
    """Random queries and their first items: first the queries that retrieve a positive without a link, then the others."""
    pairs = zip(ratings.first.tolist(), ratings.second.tolist(), strict=True)
    new = {pair for pair, positive in zip(pairs, ratings.is_positive.tolist(), strict=True) if positive and pair not in links}
    side = 0 if SIDES[direction][0] == "image" else 1
    rated = np.unique(ratings.first if side == 0 else ratings.second)
    has_new = np.isin(rated, np.array(sorted({pair[side] for pair in new}), dtype=np.int64))
    shuffled = np.random.default_rng(seed).permutation(len(rated))
    queries = rated[shuffled[np.argsort(~has_new[shuffled], kind="stable")]][:MAX_QUERIES]
    depth = DEPTHS[direction]
    others = []
    for query, items, _ in iterate_rankings(model.scores, collection, direction, depth, queries):
        first = items[:depth].tolist()
        if any(((query, item) if side == 0 else (item, query)) in new for item in first):
            yield query, first
        else:
            others.append((query, first))
    yield from others


def picture_source(collection: Collection) -> Callable[[str], str]:
    """Return the function that makes the small picture of an image id as a data URL; "" where there is no picture."""

    def picture_of(image: str) -> str:
        if collection.open_image is None:
            return ""
        try:
            return image_data_url(collection.open_image(image), PICTURE_SIZE)
        except (OSError, CrossmatchError):
            return ""

    return picture_of
