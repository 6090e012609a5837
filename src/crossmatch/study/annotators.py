"""Artificial annotators: people with an accuracy, with habits and moods, who see what people see and work as people do.

They know the truth about what they see, by the key: which picture it is that was served to them, told by its bytes, and what its
caption means. They answer by it as their habits let them. What they answer to an item depends on the seed, on who they are, and on
the item; not on when they got it, nor, but for a bias towards what comes first, on the order in which it is shown.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crossmatch.study.client import Client
from crossmatch.study.design import ONE, Design
from crossmatch.study.ideal import NOTHING, Known, Right, Seen, ToldTruth, ideal
from crossmatch.study.said import Thing

SHARE = {"least": 0, "most": 1}
SPREAD_OF_TIME = 0.4  # of the logarithm of the seconds for an item
NEIGHBOUR = 0.35  # of graded answers: one that is a step farther from the truth is so much less likely
CLOSE = 0.5  # a slider as near to the truth as this is right


@dataclass(frozen=True)
class Habits:
    """How a person works. Shares are of answers, but for `lazy`, `dropout` and `returns`, which are of HITs."""

    accuracy: float = field(default=0.9, metadata=SHARE)  # right answers, where one of several is to be chosen
    noise: float = field(default=0.5, metadata={"least": 0, "most": 100})  # the standard deviation of sliders
    confusion: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # for a right value, how likely each value is given
    first: float = field(default=0.0, metadata=SHARE)  # answers that are what comes first, whatever it is
    yes: float = field(default=0.0, metadata=SHARE)  # answers that are the best grade, whatever is shown
    lazy: float = field(default=0.0, metadata=SHARE)  # HITs in which all is answered alike, without looking
    seconds: float = field(default=6.0, metadata={"above": 0, "most": 3600})  # for an item
    dropout: float = field(default=0.0, metadata=SHARE)  # HITs that are left unfinished
    returns: float = field(default=0.5, metadata=SHARE)  # of those, the ones that the person comes back to


@dataclass(frozen=True, eq=False)
class Key:
    """What can be found out from what is shown: images by the hash of their bytes, gold by what stands in it, and the truth.

    `design` is none where only the address of the service is known: then every valid answer is as good.
    """

    design: Design | None = None
    known: Known | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    gold: Mapping[frozenset[str], Mapping[str, tuple[str, ...]]] = field(default_factory=dict)  # accepted faces by question

    @classmethod
    def of(cls, design: Design, things: Iterable[Thing], known: Known | None) -> Key:
        """The key to a study's items; pictures are named by the hash of their bytes."""
        images: dict[str, str] = {}
        fits: dict[tuple[str, str], bool] = {}
        paired: dict[tuple[str, str], bool] = {}
        gold: dict[frozenset[str], dict[str, tuple[str, ...]]] = {}
        for thing in things:
            hashes = [name.partition(".")[0] for name in thing.images]
            images |= dict(zip(hashes, thing.image_ids or hashes, strict=True))
            pairs = [(image, caption) for image in thing.image_ids or hashes for caption in thing.captions]
            fits |= dict(zip(pairs, thing.body.get("fits", ()), strict=False))
            if "trial" in thing.body and isinstance(thing.body.get("query"), int):  # one choice of a trial (`items.choices_of`)
                paired |= {pair: n == thing.body["query"] % len(pairs) for n, pair in enumerate(pairs)}
            if thing.gold:
                faces = Faces(tuple(images[name] for name in hashes), thing.captions, design.shows.lists)
                gold[faces.all] = {name: tuple(faces.of(str(v)) for v in values) for name, values in thing.gold.items()}
        return cls(design, ToldTruth(fits, known or NOTHING, paired) if fits or paired else known, images, gold)


@dataclass(frozen=True)
class Faces:
    """What stands behind the values of an item: `image-1` is an image, which stays the same wherever it is shown."""

    images: tuple[str, ...]
    captions: tuple[str, ...]
    lists: int = 0

    @property
    def all(self) -> frozenset[str]:
        return frozenset((*(f"i{name}" for name in self.images), *(f"c{text}" for text in self.captions)))

    def of(self, value: str) -> str:
        """
        >>> Faces(("cat", "dog"), ("A pet.",)).of("image-1"), Faces(("cat", "dog"), ("A pet.",)).of("both")
        ('dog', 'both')
        """
        side, _, place = value.rpartition("-")
        if side not in ONE.values() or not place.isdigit():
            return value
        if side == "list":
            size = len(self.images) // max(1, self.lists)
            return "|".join(self.images[int(place) * size : (int(place) + 1) * size])
        return (self.images if side == "image" else self.captions)[int(place)]


@dataclass
class Tally:
    """What a person has done."""

    hits: int = 0
    answers: int = 0
    known: int = 0  # answers of which the truth is known
    right: int = 0
    dropouts: int = 0
    errors: list[str] = field(default_factory=list)
    why: str = ""  # there was nothing more for them

    def add(self, other: Tally) -> None:
        for name in ("hits", "answers", "known", "right", "dropouts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors += other.errors


@dataclass(frozen=True, eq=False)
class Annotator:
    """A person: their name, their habits, and the key by which they know what they see."""

    name: str
    habits: Habits
    key: Key
    seed: int = 0

    def dice(self, *about: object) -> np.random.Generator:
        """Random numbers for one thing, the same whenever it comes."""
        told = repr((self.seed, self.name, *about)).encode()
        return np.random.default_rng(int.from_bytes(hashlib.sha256(told).digest()[:8], "little"))

    # -- answering

    def answer_hit(self, client: Client, hit: Mapping[str, Any], tally: Tally) -> tuple[list[dict[str, Any]], list[float]]:
        """The answers to a HIT and the seconds for each item; pictures are looked at as they are served."""
        lazy = self.dice("mood", hit["claim"]).random() < self.habits.lazy
        answers, seconds = [], []
        for item in hit["items"]:
            seen = self.see(client, item)
            answer, right = self.answer(item, seen, lazy)
            answers.append(answer)
            seconds.append(self.pace(seen, lazy))
            if right is not None:
                tally.known += 1
                tally.right += is_right(answer[item["questions"][0]["name"]], right)
        return answers, seconds

    def see(self, client: Client, item: Mapping[str, Any]) -> Seen:
        """An item with its pictures, known by their bytes."""
        hashes = [hashlib.sha256(client.picture(path)).hexdigest() for path in item["images"]]
        return Seen(
            tuple(self.key.images.get(name, name) for name in hashes), tuple(item["captions"]), item["lists"], item["block"]
        )

    def truth(self, seen: Seen, question: Mapping[str, Any]) -> Right | None:
        """What is right, by gold and by the truth; values as they are shown."""
        found = ideal(self.key.design.name, seen, self.key.known) if self.key.design else None
        faces = Faces(seen.images, seen.captions, seen.lists)
        accepted = self.key.gold.get(faces.all, {}).get(question["name"])
        if not accepted:
            return found
        values = tuple(o["value"] for o in question["options"] if faces.of(o["value"]) in accepted)
        both = tuple(value for value in values if isinstance(found, tuple) and value in found)
        return both or values or None

    def answer(self, item: Mapping[str, Any], seen: Seen, lazy: bool = False) -> tuple[dict[str, Any], Right | None]:
        """A value for each question that is asked, and what is right for the first."""
        faces = Faces(seen.images, seen.captions, seen.lists)
        dice = self.dice("item", sorted(faces.all))
        out: dict[str, Any] = {}
        right: Right | None = None
        for n, question in enumerate(item["questions"]):
            if question["after"] and not _applies(question, out.get(question["after"])):
                continue
            if n == 0:
                right = self.truth(seen, question)
            out[question["name"]] = self._value(question, right if n == 0 else None, faces, dice, lazy)
        return out, right

    def _value(self, question: Mapping[str, Any], right: Right | None, faces: Faces, dice: np.random.Generator, lazy: bool) -> Any:
        if question["kind"] == "slider":
            low, high = float(question["low"]), float(question["high"])
            middle = (low + high) / 2 if lazy else right if isinstance(right, float) else dice.uniform(low, high)
            return round(float(np.clip(middle + (0 if lazy else dice.normal(0, self.habits.noise)), low, high)), 3)
        values = [option["value"] for option in question["options"]]
        if question["kind"] == "several":
            some = dice.choice(len(values), size=min(len(values), 1 + int(dice.random() < 0.3)), replace=False)
            return [values[n] for n in sorted(some.tolist())]
        if lazy:
            return values[self.dice("lazy", question["name"]).integers(len(values))]
        if dice.random() < self.habits.first:
            return values[0]
        if dice.random() < self.habits.yes:
            return self._best(question["name"], values)
        return self._chosen(values, right if isinstance(right, tuple) else None, faces, dice, question["name"])

    def _chosen(self, values: list[str], right: tuple[str, ...] | None, faces: Faces, dice: np.random.Generator, name: str) -> str:
        """One of the values: the right one, or by mistake another; which of several does not depend on their order."""
        by_face = sorted(values, key=faces.of)
        if right is None:
            return by_face[dice.integers(len(by_face))]
        best = sorted(right, key=faces.of)[dice.integers(len(right))]
        row = self.habits.confusion.get(best)
        if row:
            weights = np.array([row.get(value, 0.0) for value in by_face])
            return by_face[dice.choice(len(by_face), p=weights / weights.sum())] if weights.sum() > 0 else best
        wrong = [value for value in by_face if value not in right]
        if not wrong or dice.random() < self.habits.accuracy:
            return best
        grades = self._ranks(name)
        weights = np.array([NEIGHBOUR ** (abs(grades[v] - grades[best]) if v in grades and best in grades else 1) for v in wrong])
        return wrong[dice.choice(len(wrong), p=weights / weights.sum())]

    def _ranks(self, name: str) -> dict[str, int]:
        """The places of graded options along their scale."""
        question = next((q for q in self.key.design.questions if q.name == name), None) if self.key.design else None
        return {o.value: n for n, o in enumerate(question.options) if o.grade is not None} if question else {}

    def _best(self, name: str, values: Sequence[str]) -> str:
        question = next((q for q in self.key.design.questions if q.name == name), None) if self.key.design else None
        graded = [o for o in question.options if o.grade is not None] if question else []
        return max(graded, key=lambda option: option.grade or 0.0).value if graded else values[0]

    def pace(self, seen: Seen, lazy: bool) -> float:
        """Seconds for an item; who does not look is fast."""
        dice = self.dice("pace", seen.images, sorted(seen.captions))
        return round(float(self.habits.seconds * (0.2 if lazy else 1.0) * np.exp(dice.normal(0, SPREAD_OF_TIME))), 2)


def _applies(question: Mapping[str, Any], before: object) -> bool:
    return any(each in question["when"] for each in (before if isinstance(before, list) else [before]))


def is_right(value: Any, right: Right) -> bool:
    """Whether an answer is the right one; on a slider, near enough."""
    return abs(value - right) <= CLOSE if isinstance(right, float) else value in right


def work(
    annotator: Annotator,
    client: Client,
    tally: Tally,
    *,
    wait: float = 0.0,
    until: float = float("inf"),
    stays: bool = False,
) -> None:
    """Take HITs and answer them until there are none, or until somebody has had enough; the tally is kept on the way.

    `wait` is how long a second of work really takes; `until` ends it (on the clock of `time.monotonic`). Who `stays` leaves
    nothing unfinished.
    """
    left = set[str]()
    while time.monotonic() < until:
        hit = client.claim()
        if isinstance(hit, str):
            tally.why = hit
            break
        name = str(hit["claim"])
        answers, seconds = annotator.answer_hit(client, hit, done := Tally())
        mood = annotator.dice("leaves", len(left), tally.hits)
        if not stays and name not in left and mood.random() < annotator.habits.dropout:
            left.add(name)
            tally.dropouts += 1
            half = len(answers) // 2
            client.draft(name, 1, [*answers[:half], *({} for _ in answers[half:])])
            if mood.random() < annotator.habits.returns:
                continue  # and finds the same HIT
            tally.why = "left"
            break
        if wait:
            time.sleep(min(sum(seconds) * wait, max(0.0, until - time.monotonic())))
        client.submit(name, answers, seconds)
        tally.hits += 1
        tally.answers += len(answers)
        tally.add(done)
