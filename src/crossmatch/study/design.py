"""What a study asks, of whom and how often: a small TOML file for each study of the papers; a user's own has the same words.

title = "…"                     what people read above the questions
[shows]                         images, captions and lists of an item; blocks of items that are asked one after the other
[[questions]]                   choices, sliders, and what is asked only after certain answers
[recipe]                        people for each item, items in a HIT, gold questions, time, pay
[result]                        what the answers become, and how answers of several people are put together
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from crossmatch.core.declared import checked, nearest, shown
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.packaged import assigned, called, names_in, read_declaration

SIDES = ("images", "captions", "lists")
ONE = {"images": "image", "captions": "caption", "lists": "list"}  # how a value names one of them: image-0, caption-4
PLACE = re.compile("(image|caption|list)-[0-9]+")
MOST_CHOSEN = 50  # options of a question, at most

Yields = Literal["judgements", "trials", "ratings", "preferences", "choices"]
Combine = Literal["mean", "majority", "unanimous", "dawid-skene", "bradley-terry"]


@dataclass(frozen=True)
class Option:
    """One answer that can be given: its value in the files, its text on the page, a hint, and the grade that it stands for."""

    value: str
    text: str
    hint: str = ""
    grade: float | None = None


@dataclass(frozen=True)
class Question:
    """One question about an item.

        choice    one of the options; `among` makes an option of each image, caption or list that is shown as well
        several   any number of the options, at least one
        slider    a number from `low` to `high`, continuous, never shown; the options are verbal anchors along it

    It is asked of the items of its `block`, and, if it comes `after` another question, only where that one was answered by one of
    the values in `when`.
    """

    name: str
    text: str
    kind: Literal["choice", "several", "slider"] = "choice"
    options: tuple[Option, ...] = ()
    among: Literal["", "images", "captions", "lists"] = ""
    low: float = 0.0
    high: float = 5.0
    block: str = ""
    after: str = ""
    when: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shows:
    """What an item has; minus one stands for any number.

    `lists` of equal length divide its images; `shuffle` names what is shown in a random order.
    """

    images: int = field(default=-1, metadata={"least": -1, "most": 100})
    captions: int = field(default=-1, metadata={"least": -1, "most": 100})
    lists: int = field(default=0, metadata={"least": 0, "most": 10})
    shuffle: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()  # in which items come, in this order; within a block their order is random
    labels: tuple[str, ...] = ()  # what stands above each image, where its place says something


@dataclass(frozen=True)
class Recipe:
    """How items are handed out."""

    people: int = field(default=1, metadata={"least": 1, "most": 1000})  # answers for each HIT
    batch: int = field(default=10, metadata={"least": 1, "most": 1000})  # items of a HIT, without gold ones
    gold_positive: int = field(default=0, metadata={"least": 0, "most": 100})  # of each HIT
    gold_negative: int = field(default=0, metadata={"least": 0, "most": 100})
    lease_minutes: float = field(default=60.0, metadata={"above": 0, "most": 100_000})  # for which a HIT is kept for a person
    hits_per_person: int = field(default=0, metadata={"least": 0})  # at most; 0: as many as there are
    pay: float = field(default=0.0, metadata={"least": 0, "most": 1e6})  # for a HIT
    fee: float = field(default=0.0, metadata={"least": 0, "most": 10})  # of the platform, as a share of the pay
    currency: str = "USD"
    reasons: bool = True  # whether questions that come after others are asked at all
    completion_code: str = ""  # that all people are given at the end; empty: each one's own
    completion_url: str = ""  # where they are sent then; {code} and {person} are filled in
    past_tasks: int = field(default=0, metadata={"least": 0})  # that a person must have behind them, by the list of people
    past_accepted: float = field(default=0.0, metadata={"least": 0, "most": 1})  # and the share of them that was accepted
    quiz: int = field(default=0, metadata={"least": 0, "most": 100})  # gold items that a person must answer first
    quiz_share: float = field(default=0.8, metadata={"least": 0, "most": 1})  # of which so many must be right
    excludes: tuple[str, ...] = ()  # presets whose people may not take part, if the campaign has such studies, and vice versa


@dataclass(frozen=True)
class Outcome:
    """What the answers become. `wanted` is the value that must be given where a result is accepted or refused."""

    yields: Yields = "judgements"
    combine: Combine = "mean"
    question: str = ""  # whose answers count; empty: the first
    wanted: str = ""


@dataclass(frozen=True)
class Design:
    """A study as it is declared."""

    name: str
    title: str
    about: str
    paper: str = ""
    instructions: tuple[str, ...] = ()
    consent: str = ""
    shows: Shows = Shows()
    questions: tuple[Question, ...] = ()
    recipe: Recipe = Recipe()
    result: Outcome = Outcome()

    def asked(self, block: str) -> tuple[Question, ...]:
        """The questions about an item of this block; those that come after others only where reasons are wanted."""
        return tuple(q for q in self.questions if q.block in ("", block) and (self.recipe.reasons or not q.after))

    @property
    def main(self) -> Question:
        """The question whose answers become the result."""
        return next(q for q in self.questions if q.name == (self.result.question or self.questions[0].name))

    def main_in(self, block: str) -> Question:
        """The question whose answers count for an item of this block: the main one, or the first that the block asks."""
        asked = self.asked(block)
        return self.main if self.main in asked or not asked else asked[0]

    def told(self) -> dict[str, Any]:
        """As it is kept with the study."""
        return asdict(self)


def presets() -> dict[str, Design]:
    """The packaged designs by name."""
    return {name: load_design(name) for name in names()}


def names() -> list[str]:
    return names_in(_home())


def load_design(name: str | Path, overrides: Iterable[str] = ()) -> Design:
    """The design of this name or file; `overrides` such as `recipe.people=3` have the last word.

    >>> load_design("eccv-hit").recipe.batch, load_design("sts", ["recipe.people=3"]).recipe.people
    (18, 3)
    >>> load_design("eccv-hit", ["recipe.peple=3"])
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: --set recipe.peple=3: [recipe] has no key 'peple'. Did you mean 'people'?
    """
    design = _parsed(called(name), read_declaration(str(name), _home(), "study", "crossmatch study presets"), str(name))
    where = [str(name)]
    for word in overrides:
        design = _override(design, word)
        where.append(f"--set {word}")
    _require_whole(design, " ".join(where))  # not before: two words may belong together
    return design


def from_told(told: Mapping[str, Any]) -> Design:
    """The design that `Design.told` gave."""
    questions = tuple(
        Question(**{**q, "options": tuple(Option(**o) for o in q["options"]), "when": tuple(q["when"])}) for q in told["questions"]
    )
    parts: dict[str, dict[str, Any]] = {
        part: {k: tuple(v) if isinstance(v, list | tuple) else v for k, v in told[part].items()} for part in ("shows", "recipe")
    }
    return Design(
        **{key: told[key] for key in ("name", "title", "about", "paper", "consent")},
        instructions=tuple(told["instructions"]), questions=questions, shows=Shows(**parts["shows"]),
        recipe=Recipe(**parts["recipe"]),
        result=Outcome(**told["result"]),
    )  # fmt: skip


# -- answers


def choices(question: Question, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The values that may be given, for an item that shows so many images, captions or lists.

    >>> choices(Question("q", "Which one?", options=(Option("none", "None"),), among="images"), {"images": 2})
    ('image-0', 'image-1', 'none')
    """
    shown_ones = tuple(f"{ONE[question.among]}-{n}" for n in range(sizes[question.among])) if question.among else ()
    return shown_ones + tuple(option.value for option in question.options)


def check_answer(asked: tuple[Question, ...], sizes: Mapping[str, int], given: object) -> dict[str, Any]:
    """An answer to all questions about an item, held against what may be said; anything else is refused.

    >>> likes = (Question("match", "Does it fit?", options=(Option("yes", "Yes"), Option("no", "No"))),)
    >>> check_answer(likes, {}, {"match": "maybe"})
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: the answer to 'match' is "maybe"; one of yes, no was expected. Choose one.
    """
    if not isinstance(given, dict):
        raise CrossmatchError(f"an answer is {shown(given):.60}; a value for each question was expected. Answer all questions.")
    strange = next((key for key in given if key not in {q.name for q in asked}), None)
    if strange is not None:
        raise CrossmatchError(f"there is no question {str(strange)[:60]!r} about this item. Reload the page.")
    out: dict[str, Any] = {}
    for question in asked:
        if question.after and not _applies(question, out.get(question.after)):
            if given.get(question.name) not in (None, "", []):
                raise CrossmatchError(f"{question.name!r} was answered, but is not asked after this answer. Reload the page.")
            continue
        out[question.name] = _valued(question, sizes, given.get(question.name))
    return out


def _applies(question: Question, before: object) -> bool:
    """Whether the earlier answer makes this question be asked."""
    said = before if isinstance(before, list) else [before]
    return any(each in question.when for each in said)


def _valued(question: Question, sizes: Mapping[str, int], value: Any) -> Any:
    if value is None:
        raise CrossmatchError(f"the question {question.name!r} has no answer. Answer it.")
    if question.kind == "slider":
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits or not question.low <= value <= question.high:  # neither NaN nor an endless number is between them
            told = f"the answer to {question.name!r} is {shown(value):.40}; a number from {question.low:g} to {question.high:g}"
            raise CrossmatchError(f"{told} was expected. Move the slider.")
        return float(value)
    known = choices(question, sizes)
    many = question.kind == "several"
    said = value if many else [value]
    fits = isinstance(said, list) and 0 < len(said) <= MOST_CHOSEN and all(isinstance(v, str) and v in known for v in said)
    if not fits or len(set(said)) < len(said):
        which = "some of" if many else "one of"
        told = f"the answer to {question.name!r} is {shown(value):.60}; {which} {', '.join(known)} was expected"
        raise CrossmatchError(f"{told}. Choose {'at least one' if many else 'one'}.")
    return sorted(said, key=known.index) if many else value


# -- files


def _home() -> Any:
    return files("crossmatch.study") / "presets"


TOP = ("title", "about", "paper", "instructions", "consent", "shows", "questions", "recipe", "result")


def _parsed(name: str, table: dict[str, Any], where: str) -> Design:
    for key in table:
        if key not in TOP:
            raise WrongWords(f"{where} has no key {key!r}. {nearest(key, TOP)}")
    for key in ("title", "about", "questions"):
        if not table.get(key):
            raise WrongWords(f"{where} does not say its {key}. Add it.")
    told: dict[str, Any] = {key: _text(table[key], key, where) for key in ("title", "about", "paper", "consent") if key in table}
    lines = checked({"instructions": table.get("instructions", [])}, Design, where)
    settings: dict[str, Any] = {
        "shows": Shows(**checked(_table(table, "shows", where), Shows, f"{where}: [shows]")),
        "recipe": Recipe(**checked(_table(table, "recipe", where), Recipe, f"{where}: [recipe]")),
        "result": Outcome(**checked(_table(table, "result", where), Outcome, f"{where}: [result]")),
    }
    if not isinstance(table["questions"], list) or not all(isinstance(q, dict) for q in table["questions"]):
        raise WrongWords(f"{where} has questions that are no tables. Write each one below a line [[questions]].")
    questions = tuple(_question(q, f"{where}: question {n + 1}") for n, q in enumerate(table["questions"]))
    return Design(name, questions=questions, **told, **lines, **settings)


def _table(table: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise WrongWords(f"{where} has {key} = {shown(value)}; a table was expected: [{key}].")
    return value


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise WrongWords(f"{where} has {key} = {shown(value)}; a text was expected.")
    return value


def _question(table: dict[str, Any], where: str) -> Question:
    given = dict(table)
    options = given.pop("options", [])
    if not isinstance(options, list) or not all(isinstance(o, dict) for o in options):
        raise WrongWords(f'{where} has options that are no tables. Write them as {{value = "yes", text = "Yes"}}.')
    made = []
    for n, option in enumerate(options):
        grade = option.get("grade")
        if grade is not None and (isinstance(grade, bool) or not isinstance(grade, int | float) or not math.isfinite(grade)):
            raise WrongWords(f"{where}, option {n + 1} has grade = {shown(grade)}; a number was expected.")
        words = {key: _text(value, key, f"{where}, option {n + 1}") for key, value in option.items() if key != "grade"}
        wrong = next((key for key in option if key not in ("value", "text", "hint", "grade")), None)
        if wrong or not words.get("value") or not words.get("text"):
            raise WrongWords(
                f"{where}, option {n + 1} has {', '.join(option)}; value and text were expected, with hint and grade if wanted."
            )
        made.append(Option(**words, grade=None if grade is None else float(grade)))
    for key in ("name", "text"):
        if not given.get(key):
            raise WrongWords(f"{where} does not say its {key}. Add it.")
    return Question(options=tuple(made), **checked(given, Question, where, without=("options",)))


def _require_whole(design: Design, where: str) -> None:
    """The parts must fit each other."""
    seen: dict[str, Question] = {}
    for q in design.questions:
        if q.name in seen:
            raise WrongWords(f"{where} asks {q.name!r} twice. Give each question a name of its own.")
        if q.block and q.block not in design.shows.blocks:
            raise WrongWords(
                f"{where} asks {q.name!r} in the block {q.block!r}, which [shows] has not. {nearest(q.block, design.shows.blocks)}"
            )
        values = [option.value for option in q.options]
        if len(set(values)) < len(values):
            raise WrongWords(f"{where}: question {q.name!r} has two options of the same value. Rename one.")
        taken = next((value for value in values if q.among and PLACE.fullmatch(value)), None)
        if taken:
            raise WrongWords(
                f"{where}: question {q.name!r} has the option {taken!r}, which names a thing that is shown. Rename it."
            )
        if q.kind == "slider" and (q.among or q.low >= q.high):
            raise WrongWords(
                f"{where}: the slider {q.name!r} runs from {q.low} to {q.high}; two ends were expected, and no `among`."
            )
        if q.kind != "slider" and not q.options and not q.among:
            raise WrongWords(
                f"{where}: question {q.name!r} has no options. Add some, or say among what is shown one is to be chosen."
            )
        if bool(q.after) != bool(q.when):
            raise WrongWords(f"{where}: question {q.name!r} needs both `after` and `when`, or neither.")
        if q.after:
            before = seen.get(q.after)
            if before is None:
                raise WrongWords(
                    f"{where}: question {q.name!r} comes after {q.after!r}, which is not asked before it. {nearest(q.after, seen)}"
                )
            if before.kind == "slider":
                raise WrongWords(
                    f"{where}: question {q.name!r} comes after the slider {q.after!r}, which has no answers to wait for."
                )
            unknown = [v for v in q.when if v not in {option.value for option in before.options}]
            if unknown:
                raise WrongWords(f"{where}: question {q.name!r} is asked after {unknown[0]!r}, which is no option of {q.after!r}.")
        seen[q.name] = q
    if design.result.question and design.result.question not in seen:
        raise WrongWords(f"{where}: the result counts question {design.result.question!r}. {nearest(design.result.question, seen)}")
    if design.main.after:
        raise WrongWords(
            f"{where}: the result counts question {design.main.name!r}, which is asked only after some answers to "
            f"{design.main.after!r}, so that items would have none. Count {design.main.after!r}: result.question"
        )
    if design.result.combine == "dawid-skene" and design.recipe.people < 2:
        raise WrongWords(
            f"{where}: one person judges each item, and one answer does not tell who errs how, as dawid-skene needs it. Ask more: "
            "recipe.people=3; or take result.combine=majority."
        )
    url = design.recipe.completion_url
    if url and not url.startswith(("https://", "http://")):
        raise WrongWords(f"{where} sends people to {url[:60]!r} at the end; an address with https:// was expected.")
    wrong = next((s for s in design.shows.shuffle if s not in SIDES), None)
    if wrong:
        raise WrongWords(f"{where} shuffles {wrong!r}; one of {', '.join(SIDES)} was expected.")


def _override(design: Design, word: str) -> Design:
    """Put `recipe.people=3` in its place."""
    given = assigned(word)
    if given is None or given[0] not in ("recipe", "result"):
        raise WrongWords(f"--set {word}: recipe.KEY=VALUE or result.KEY=VALUE was expected, as in --set recipe.people=3.")
    table, name, value = given
    held: Any = getattr(design, table)
    return replace(design, **{table: replace(held, **checked({name: value}, type(held), f"--set {word}: [{table}]"))})
