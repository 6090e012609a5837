"""The results of a study as `Judgements`, `Trials`, `Ratings` and comparisons of systems. Exports are written from these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.judgements import ARTIFICIAL, Judgements, rehearsal_note
from crossmatch.data.ratings import Ratings
from crossmatch.data.trials import Trials
from crossmatch.metrics.bradley_terry import ComparisonCounts
from crossmatch.study.design.declaration import Design
from crossmatch.study.design.places import Place, parse_place
from crossmatch.study.design.result_requirements import caption_places, trial_captions
from crossmatch.study.results.answers import Answer, StudyItem, answered_by, depend_on_rehearsal
from crossmatch.study.results.item_decisions import Decision, decide_items

if TYPE_CHECKING:
    from PIL import Image

    from crossmatch.data.collection import Collection
    from crossmatch.study.study import Study


# -- judgements


@dataclass(frozen=True)
class GradedPair:
    """A pair of an image and a caption, or of two of a kind, with the grade that people gave it."""

    first_id: str
    second_id: str
    grade: float
    deviation: float | None
    answer_count: int
    sampling_method: str = ""  # of the item, such as `c2c_isim`


def pair_kind(item: StudyItem) -> str:
    """What a judgement about this item relates: `image-caption`, `caption-caption` or `image-image`."""
    kinds = {(0, 2): "caption-caption", (2, 0): "image-image"}
    return kinds.get((len(item.images), len(item.captions)), "image-caption")


def graded_pairs(decisions: Sequence[Decision]) -> list[GradedPair]:
    """The pairs that have a grade.

    Raises:
        CrossmatchError: No pair has one.
    """
    pairs = [
        GradedPair(
            *_pair_ids(decision.item),
            decision.grade,
            decision.deviation,
            decision.answer_count,
            str(decision.item.details.get("sampling_method", "")),
        )
        for decision in decisions
        if decision.grade is not None
    ]
    if not pairs:
        raise CrossmatchError("No item has a grade, because the answers to every item are tied. Collect more answers.")
    return pairs


def _pair_ids(item: StudyItem) -> tuple[str, str]:
    kind = pair_kind(item)
    ids = item.caption_ids if kind == "caption-caption" else item.image_ids
    if kind == "image-caption":
        ids = (*(item.image_ids[:1] or ("",)), *(item.caption_ids[:1] or ("",)))
    return (*ids, "", "")[0], (*ids, "", "")[1]


def unjudged_links(collection: Collection, pairs: Iterable[GradedPair]) -> list[tuple[str, str]]:
    """The links of a collection (image id, caption id) to which people gave no grade."""
    judged = {(pair.first_id, pair.second_id) for pair in pairs}
    images, captions = collection.image_ids.tolist(), collection.caption_ids.tolist()
    links = ((str(images[i]), str(captions[c])) for i, c in collection.links.tolist())
    return [link for link in links if link not in judged]


def best_grade(design: Design) -> float:
    """The highest grade that an answer can have."""
    question = design.main_question
    if question.kind == "slider":
        return question.high
    return max(option.grade for option in question.options if option.grade is not None)


def positive_threshold(design: Design) -> float:
    """The grade from which a pair is positive: as the design declares, else 3 of 5 (parekh2021cxc), or partly right (chun2022eccv)."""
    if design.result.positive:
        return design.result.positive
    grades = [option.grade for option in design.main_question.options if option.grade]
    return 3.0 if max(grades, default=design.main_question.high) > 1 else min(grades)


def as_judgements(study: Study, answers: list[Answer], collection: Collection, *, links: bool = True) -> Judgements:
    """The graded pairs of a study; see `Study.judgements`."""
    decisions = decide_items(study.design, answers)
    pairs = graded_pairs(decisions)
    kind = pair_kind(next(decision.item for decision in decisions if decision.grade is not None))
    rows = [(pair.first_id, pair.second_id, pair.grade) for pair in pairs]
    positive = positive_threshold(study.design)
    note = rehearsal_note(f"grades of {study.name}") if answered_by(answers) == ARTIFICIAL else ""
    if kind == "image-caption":
        if links:
            rows += [(image, caption, best_grade(study.design)) for image, caption in unjudged_links(collection, pairs)]
        return replace(Judgements.from_ids(collection, study.name, rows, positive), note=note)
    find_positions = collection.caption_positions if kind == "caption-caption" else collection.image_positions
    first, second = (find_positions(np.array([row[n] for row in rows])) for n in (0, 1))
    n = len(collection.caption_ids if kind == "caption-caption" else collection.image_ids)
    both_ways = (np.concatenate([first, second]), np.concatenate([second, first]))
    grades = np.array([row[2] for row in rows] * 2)
    return Judgements(study.name, *both_ways, grades, (n, n), positive, kind=kind, note=note)


# -- trials


@dataclass
class ImageNames:
    """Names for the images of exported trials: the image id where it can be a file name, else the campaign's file."""

    files: dict[str, str] = field(default_factory=dict)  # name to file in the campaign's folder

    def name(self, item: StudyItem, n: int) -> str:
        file = item.images[n]
        suffix = Path(file).suffix
        stem = re.sub(r"[^\w.~-]", "_", item.image_ids[n].removesuffix(suffix)) if item.image_ids else ""
        name = f"{stem}{suffix}" if stem.strip("._") and len(stem) < 150 else file
        name = name if self.files.get(name, file) == file else file
        self.files.setdefault(name, file)
        return name


@dataclass(frozen=True)
class SolvedTrial:
    """A 2 x 2 trial as one person solved it: whether each image got its caption, and each caption its image."""

    trial_id: str
    person: str
    wins: tuple[bool, bool, bool, bool]


def find_solved_trials(design: Design, answers: Iterable[Answer]) -> list[SolvedTrial]:
    """Combine the four two-way choices of `bivlc-human`, for each person and trial with all four answers.

    An item names its trial (`trial`) and which of the four questions it is (`query`: 0 and 1 show the images, 2 and 3 the
    captions). The correct choice for queries 0 and 2 is the first, for 1 and 3 the second.
    """
    wins_of: dict[tuple[str, str], dict[int, bool]] = {}
    for answer in answers:
        details = answer.item.details
        if answer.item.gold is None and "query" in details:
            query = int(details["query"])
            place = parse_place(answer.values[design.main_question_for(answer.item.block).name])
            wins_of.setdefault((str(details["trial"]), answer.person), {})[query] = place is not None and place.n == query % 2
    return [
        SolvedTrial(trial, person, (wins[0], wins[1], wins[2], wins[3]))
        for (trial, person), wins in wins_of.items()
        if len(wins) == 4
    ]


def solved_trial_ids(solved: Sequence[SolvedTrial]) -> list[str]:
    """An id for each solved trial. Where several people solved a trial, each solution counts separately."""
    is_repeated = len({trial.trial_id for trial in solved}) < len(solved)
    return [f"{trial.trial_id}@{trial.person}" if is_repeated else trial.trial_id for trial in solved]


def solved_trial_rows(answers: Iterable[Answer], solved: Sequence[SolvedTrial], names: ImageNames) -> list[dict[str, Any]]:
    """The trials that people solved, as rows of a trial file."""
    parts: dict[str, dict[str, Any]] = {}
    for item in {answer.item.id: answer.item for answer in answers if "trial" in answer.item.details}.values():
        part = parts.setdefault(str(item.details["trial"]), {})
        if len(item.images) == 2:
            part |= {"images": [names.name(item, n) for n in range(2)], "image_ids": list(item.image_ids)}
        else:
            part |= {"captions": list(item.captions), "caption_ids": list(item.caption_ids)}
        if item.details.get("category"):
            part["category"] = item.details["category"]
    ids = solved_trial_ids(solved)
    return [
        {"id": name, **{key: value for key, value in parts[trial.trial_id].items() if value}}
        for name, trial in zip(ids, solved, strict=True)
    ]


def accepted_trial_rows(design: Design, decisions: Iterable[Decision], names: ImageNames) -> list[dict[str, Any]]:
    """The items that people accepted as trials, as rows of a trial file."""
    return [
        _trial_row(decision.item, decision.value, names)
        for decision in decisions
        if decision.value and _accepts_trial(design, decision.value)
    ]


def _accepts_trial(design: Design, value: str) -> bool:
    """Whether an answer is the wanted one, or chooses a caption where the design names no wanted answer."""
    if design.result.wanted:
        return value == design.result.wanted
    place = parse_place(value)
    return place is not None and place.side == "captions"


def _trial_row(item: StudyItem, value: str, names: ImageNames) -> dict[str, Any]:
    """A caption and two images, the correct one first; or an image and captions, the correct one first.

    An item with `trial_of` becomes that trial: two captions for its two images, in their order.
    """
    original = item.details.get("trial_of")
    original = original if isinstance(original, Mapping) else {}
    captions, order = trial_captions(item, value), list(range(len(item.images)))
    if captions == tuple(original.get("captions", ())):
        caption_ids = list(map(str, original.get("caption_ids", ())))
    else:
        caption_ids = [item.caption_ids[n] for n in caption_places(item, value)] if item.caption_ids else []
        order.sort(key=lambda n: Place("images", n).value != value)  # the chosen image first
    row = {"id": item.key, "images": [names.name(item, n) for n in order], "captions": list(captions)}
    optional = {
        "image_ids": [item.image_ids[n] for n in order] if item.image_ids else [],
        "caption_ids": caption_ids if len(caption_ids) == len(captions) else [],
        "category": item.details.get("category") or original.get("category", ""),
    }
    return row | {key: value for key, value in optional.items() if value}


def as_trials(study: Study, answers: list[Answer]) -> Trials:
    """The accepted or solved trials of a study; see `Study.trials`."""
    names = ImageNames()
    solved = find_solved_trials(study.design, answers)
    if solved:
        rows = solved_trial_rows(answers, solved, names)
    else:
        rows = accepted_trial_rows(study.design, decide_items(study.design, answers), names)
    if not rows:
        raise CrossmatchError(f"{study.name} has no accepted trial yet. Collect more answers.")
    ids, images, captions = (np.array([row[key] for row in rows], dtype=np.str_) for key in ("id", "images", "captions"))
    categories = np.array([str(row.get("category", "")) for row in rows], dtype=np.str_)
    notes = (rehearsal_note(f"trials of {study.name}"),) if depend_on_rehearsal(answers) else ()
    opener = _image_opener(study.campaign.images_folder, names.files)
    return Trials(ids, images, captions, categories, opener, notes=notes)


def _image_opener(folder: Path, files: Mapping[str, str]) -> Callable[[str], Image.Image]:
    def open_image(name: str) -> Image.Image:
        from PIL import Image

        return Image.open(folder / files[name])

    return open_image


# -- ratings and preferences


@dataclass(frozen=True)
class CaptionRating:
    """One person's rating of one caption."""

    image_id: str
    caption_id: str
    caption: str
    rating: Any
    person: str


def caption_ratings(design: Design, answers: Iterable[Answer]) -> list[CaptionRating]:
    """Every single rating, with the grade of an option instead of its name."""
    question = design.main_question
    grades = {option.value: option.grade for option in question.options}
    return [
        CaptionRating(
            _rated_image(answer.item),
            next(iter(answer.item.caption_ids), ""),
            answer.item.captions[0],
            grades.get(answer.values[question.name], answer.values[question.name]),
            answer.person,
        )
        for answer in answers
        if answer.item.gold is None
    ]


def _rated_image(item: StudyItem) -> str:
    """The image of a rated caption, also if it was not displayed."""
    if item.image_ids:
        return item.image_ids[0]
    return str(item.details.get("image_id") or (item.details.get("image_ids") or [item.key])[0])


def as_ratings(study: Study, answers: list[Answer], references: Mapping[str, Sequence[str]]) -> Ratings:
    """The ratings of a study; see `Study.ratings`."""
    values: dict[tuple[str, str], list[float]] = {}
    for rating in caption_ratings(study.design, answers):
        values.setdefault((rating.image_id, rating.caption), []).append(float(rating.rating))
    rows = [(image, caption, ratings) for (image, caption), ratings in values.items() if image in references]
    question = study.design.main_question
    grades = [option.grade for option in question.options if option.grade is not None]
    scale = (question.low, question.high) if question.kind == "slider" else (min(grades), max(grades))
    name = f"{study.name} ({ARTIFICIAL})" if answered_by(answers) == ARTIFICIAL else study.name
    return Ratings.from_rows(name, rows, references, scale=scale, unreferenced=len(values) - len(rows))


def as_comparisons(study: Study, answers: Iterable[Answer]) -> ComparisonCounts:
    """Which of two systems each answer preferred; an item names its systems in the order of its lists."""
    outcomes = {"list-0": 1.0, "list-1": 0.0}
    question = study.design.main_question.name
    comparisons = []
    for answer in answers:
        if answer.item.gold is None:
            first, second = map(str, answer.item.details["systems"])
            comparisons.append((first, second, outcomes.get(str(answer.values[question]), 0.5)))
    return ComparisonCounts.from_outcomes(comparisons)
