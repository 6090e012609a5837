"""Simulated annotators with an accuracy and habits. They use the service by HTTP like people.

They know the truth about an item by the key, which recognises an image by its bytes. Their habits decide how far they follow it. An
answer depends on the seed, the annotator and the item. It does not depend on the time, nor on the displayed order, except for
annotators with a bias towards the first place.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crossmatch.study.design.declaration import Design, Option, follows
from crossmatch.study.results.answers import StudyItem
from crossmatch.study.simulation.correct_answers import NO_TRUTH, CorrectAnswer, ItemTruth, TruthSource, ViewedItem, correct_answer
from crossmatch.study.simulation.http_client import Client

SHARE = {"least": 0, "most": 1}
TIME_DEVIATION = 0.4  # of the logarithm of the seconds per item
STEP_FACTOR = 0.35  # how much less likely a graded answer is for each step away from the truth
SLIDER_TOLERANCE = 0.5  # a slider value within this distance of the truth is right


@dataclass(frozen=True)
class Habits:
    """How a person works. `lazy`, `dropout` and `returns` are shares of HITs, the others shares of answers.

    Attributes:
        accuracy: Share of right answers to choices.
        noise: Standard deviation of answers on sliders.
        confusion: For a right value the probability of each answer, instead of `accuracy`.
        first: Share of answers that are the first option, whatever it is.
        yes: Share of answers that are the option with the best grade.
        lazy: Share of HITs with the same answer to every item.
        seconds: Time per item.
        dropout: Share of HITs that are left unfinished.
        returns: Share of the unfinished HITs that the person resumes.

    >>> careless = Habits(accuracy=0.7, lazy=0.2)           # 3 of 10 answers are wrong, and every fifth HIT is clicked through
    >>> crowd = [Habits(), Habits(), careless]              # `simulate(..., habits=crowd)`: every third annotator is careless
    >>> [habits.accuracy for habits in crowd]
    [0.9, 0.9, 0.7]
    """

    accuracy: float = field(default=0.9, metadata=SHARE)
    noise: float = field(default=0.5, metadata={"least": 0, "most": 100})
    confusion: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    first: float = field(default=0.0, metadata=SHARE)
    yes: float = field(default=0.0, metadata=SHARE)
    lazy: float = field(default=0.0, metadata=SHARE)
    seconds: float = field(default=6.0, metadata={"above": 0, "most": 3600})
    dropout: float = field(default=0.0, metadata=SHARE)
    returns: float = field(default=0.5, metadata=SHARE)


@dataclass(frozen=True, eq=False)
class AnswerKey:
    """The key to displayed items: images by the hash of their bytes, gold by its content, and the truth.

    Without a `design`, if only the address of the service is known, answers are drawn at random.
    """

    design: Design | None = None
    truth: TruthSource | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    gold: Mapping[frozenset[str], Mapping[str, tuple[str, ...]]] = field(default_factory=dict)  # by item and question

    @classmethod
    def of(cls, design: Design, items: Iterable[StudyItem], truth: TruthSource | None) -> AnswerKey:
        """The key to the items of a study."""
        images: dict[str, str] = {}
        fits: dict[tuple[str, str], bool] = {}
        paired: dict[tuple[str, str], bool] = {}
        gold: dict[frozenset[str], dict[str, tuple[str, ...]]] = {}
        for item in items:
            hashes = [name.partition(".")[0] for name in item.images]
            images |= dict(zip(hashes, item.image_ids or hashes, strict=True))
            pairs = [(image, caption) for image in item.image_ids or hashes for caption in item.captions]
            fits |= dict(zip(pairs, item.details.get("fits", ()), strict=False))
            if "trial" in item.details and isinstance(item.details.get("query"), int):  # from `item_files.choices_of`
                paired |= {pair: n == item.details["query"] % len(pairs) for n, pair in enumerate(pairs)}
            if item.gold:
                viewed = ViewedItem(tuple(images[name] for name in hashes), item.captions, design.shows.lists)
                gold[viewed.contents] = {
                    name: tuple(viewed.content_of(str(value)) for value in values) for name, values in item.gold.items()
                }
        return cls(design, ItemTruth(fits, truth or NO_TRUTH, paired) if fits or paired else truth, images, gold)


@dataclass
class WorkSummary:
    """What a simulated annotator has done."""

    hits: int = 0
    answers: int = 0
    checkable: int = 0  # answers whose truth is known
    right: int = 0
    dropouts: int = 0
    errors: list[str] = field(default_factory=list)
    why: str = ""  # reason for which the work ended

    def add(self, other: WorkSummary) -> None:
        for name in ("hits", "answers", "checkable", "right", "dropouts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors += other.errors


@dataclass(frozen=True, eq=False)
class SimulatedAnnotator:
    """An artificial person with a name, habits and a key."""

    name: str
    habits: Habits
    key: AnswerKey
    seed: int = 0

    def dice(self, *topic: object) -> np.random.Generator:
        """Random numbers for a topic, the same for each call."""
        purpose = repr((self.seed, self.name, *topic)).encode()
        return np.random.default_rng(int.from_bytes(hashlib.sha256(purpose).digest()[:8], "little"))

    # -- answering

    def answer_hit(self, client: Client, hit: Mapping[str, Any], tally: WorkSummary) -> tuple[list[dict[str, Any]], list[float]]:
        """The answers to a HIT and the seconds for each item. Images are downloaded."""
        lazy = self.dice("mood", hit["claim"]).random() < self.habits.lazy
        answers, seconds = [], []
        for item in hit["items"]:
            viewed = self.see(client, item)
            answer, right = self.answer(item, viewed, lazy)
            answers.append(answer)
            seconds.append(self.pace(viewed, lazy))
            if right is not None:
                tally.checkable += 1
                tally.right += is_right(answer[item["questions"][0]["name"]], right)
        return answers, seconds

    def see(self, client: Client, item: Mapping[str, Any]) -> ViewedItem:
        """An item with its downloaded images, recognised by their bytes."""
        hashes = [hashlib.sha256(client.picture(path)).hexdigest() for path in item["images"]]
        images = tuple(self.key.images.get(name, name) for name in hashes)
        return ViewedItem(images, tuple(item["captions"]), item["lists"])

    def truth(self, viewed: ViewedItem, question: Mapping[str, Any]) -> CorrectAnswer | None:
        """The right answer by gold and by the truth, in displayed places."""
        right = correct_answer(self.key.design.name, viewed, self.key.truth) if self.key.design else None
        accepted = self.key.gold.get(viewed.contents, {}).get(question["name"])
        if not accepted:
            return right
        values = tuple(option["value"] for option in question["options"] if viewed.content_of(option["value"]) in accepted)
        return tuple(value for value in values if isinstance(right, tuple) and value in right) or values or None

    def answer(
        self, item: Mapping[str, Any], viewed: ViewedItem, lazy: bool = False
    ) -> tuple[dict[str, Any], CorrectAnswer | None]:
        """A value for each question that is asked, and the right answer to the first."""
        dice = self.dice("item", sorted(viewed.contents))
        answer: dict[str, Any] = {}
        right: CorrectAnswer | None = None
        for n, question in enumerate(item["questions"]):
            if question["after"] and not follows(question["when"], answer.get(question["after"])):
                continue
            if n == 0:
                right = self.truth(viewed, question)
            answer[question["name"]] = self._choose_value(question, right if n == 0 else None, viewed, dice, lazy)
        return answer, right

    def _choose_value(
        self, question: Mapping[str, Any], right: CorrectAnswer | None, viewed: ViewedItem, dice: np.random.Generator, lazy: bool
    ) -> Any:
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
            return self._best_graded(question["name"], values)
        return self._choose_option(values, right if isinstance(right, tuple) else None, viewed, dice, question["name"])

    def _choose_option(
        self, values: list[str], right: tuple[str, ...] | None, viewed: ViewedItem, dice: np.random.Generator, name: str
    ) -> str:
        """The right value, or by mistake another one. The choice does not depend on the displayed order."""
        by_content = sorted(values, key=viewed.content_of)
        if right is None:
            return by_content[dice.integers(len(by_content))]
        best = sorted(right, key=viewed.content_of)[dice.integers(len(right))]
        row = self.habits.confusion.get(best)
        if row:
            weights = np.array([row.get(value, 0.0) for value in by_content])
            return by_content[dice.choice(len(by_content), p=weights / weights.sum())] if weights.sum() > 0 else best
        wrong = [value for value in by_content if value not in right]
        if not wrong or dice.random() < self.habits.accuracy:
            return best
        grades = {option.value: n for n, option in enumerate(self._options(name)) if option.grade is not None}
        weights = np.array([STEP_FACTOR ** (abs(grades[v] - grades[best]) if v in grades and best in grades else 1) for v in wrong])
        return wrong[dice.choice(len(wrong), p=weights / weights.sum())]

    def _options(self, name: str) -> tuple[Option, ...]:
        questions = self.key.design.questions if self.key.design else ()
        return next((question.options for question in questions if question.name == name), ())

    def _best_graded(self, name: str, values: Sequence[str]) -> str:
        graded = [option for option in self._options(name) if option.grade is not None]
        return max(graded, key=lambda option: option.grade or 0.0).value if graded else values[0]

    def pace(self, viewed: ViewedItem, lazy: bool) -> float:
        """Seconds for an item; lazy annotators are fast."""
        dice = self.dice("pace", viewed.images, sorted(viewed.captions))
        return round(float(self.habits.seconds * (0.2 if lazy else 1.0) * np.exp(dice.normal(0, TIME_DEVIATION))), 2)


def is_right(value: Any, right: CorrectAnswer) -> bool:
    """Whether an answer is right; on a slider, near enough."""
    return abs(value - right) <= SLIDER_TOLERANCE if isinstance(right, float) else value in right


def work(
    annotator: SimulatedAnnotator,
    client: Client,
    tally: WorkSummary,
    *,
    wait: float = 0.0,
    until: float = float("inf"),
    stays: bool = False,
) -> None:
    """Claim and answer HITs until there are none, or until the annotator leaves.

    Args:
        annotator: The annotator.
        client: Their connection to the service.
        tally: Where the work is counted.
        wait: The real duration of one second of simulated work.
        until: When to stop, on the clock of `time.monotonic`.
        stays: Whether the annotator leaves nothing unfinished.
    """
    abandoned = set[str]()
    while time.monotonic() < until:
        hit = client.claim()
        if isinstance(hit, str):
            tally.why = hit
            break
        name = str(hit["claim"])
        answers, seconds = annotator.answer_hit(client, hit, hit_tally := WorkSummary())
        mood = annotator.dice("leaves", len(abandoned), tally.hits)
        if not stays and name not in abandoned and mood.random() < annotator.habits.dropout:
            abandoned.add(name)
            tally.dropouts += 1
            half = len(answers) // 2
            client.draft(name, 1, [*answers[:half], *({} for _ in answers[half:])])
            if mood.random() < annotator.habits.returns:
                continue  # with the same HIT
            tally.why = "left"
            break
        if wait:
            time.sleep(min(sum(seconds) * wait, max(0.0, until - time.monotonic())))
        client.submit(name, answers, seconds)
        tally.hits += 1
        tally.answers += len(answers)
        tally.add(hit_tally)
