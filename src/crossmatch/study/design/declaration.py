"""Designs of studies: TOML files that declare what is displayed and asked, how often, and what the answers become.

title = "…"                     the heading above the questions
[shows]                         images, captions and lists of an item; blocks of items
[[questions]]                   choices, sliders, and questions that follow certain answers
[recipe]                        people for each item, items in a HIT, gold questions, time, pay
[result]                        what the answers become, and how the answers of several people are combined
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.declaration_files import declaration_name, packaged_names, parse_assignment, read_declaration
from crossmatch.data.settings import format_value, suggest_name, validate_settings
from crossmatch.study.design.places import SIDES, Place, parse_place

MAX_CHOSEN = 50  # values of an answer to a question of kind `several`

Yields = Literal["judgements", "trials", "ratings", "preferences", "choices"]
Combine = Literal["mean", "majority", "unanimous", "dawid-skene", "bradley-terry"]


@dataclass(frozen=True)
class Option:
    """An option of a question: its value in files, its text on the page, a hint and its grade."""

    value: str
    text: str
    hint: str = ""
    grade: float | None = None


@dataclass(frozen=True)
class Question:
    """One question about an item.

        choice    one of the options; with `among`, each displayed image, caption or list is an option too
        several   one or more of the options
        slider    a continuous number from `low` to `high`, not displayed; the options are verbal anchors along it

    A question with a `block` is asked about items of that block only. A question with `after` follows another question if the
    answer to that question is one of the values in `when`.
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
class DisplaySettings:
    """How an item is displayed; -1 images or captions means any number.

    `lists` divide the images into lists of equal length; `shuffle` names the sides with a random order.
    """

    images: int = field(default=-1, metadata={"least": -1, "most": 100})
    captions: int = field(default=-1, metadata={"least": -1, "most": 100})
    lists: int = field(default=0, metadata={"least": 0, "most": 10})
    shuffle: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()  # in this order; the items of a block have a random order
    labels: tuple[str, ...] = ()  # above each image, for images whose place has a meaning


@dataclass(frozen=True)
class Recipe:
    """How items are packed into HITs, assigned and paid."""

    people: int = field(default=1, metadata={"least": 1, "most": 1000})  # answers for each HIT
    batch: int = field(default=10, metadata={"least": 1, "most": 1000})  # items of a HIT, without gold items
    gold_positive: int = field(default=0, metadata={"least": 0, "most": 100})  # gold items of each HIT
    gold_negative: int = field(default=0, metadata={"least": 0, "most": 100})
    lease_minutes: float = field(default=60.0, metadata={"above": 0, "most": 100_000})  # time to finish a HIT
    hits_per_person: int = field(default=0, metadata={"least": 0})  # limit; 0: none
    pay: float = field(default=0.0, metadata={"least": 0, "most": 1e6})  # for each HIT
    fee: float = field(default=0.0, metadata={"least": 0, "most": 10})  # of the platform, as a share of the pay
    currency: str = "USD"
    reasons: bool = True  # whether follow-up questions (`after`) are asked
    completion_code: str = ""  # displayed at the end; empty: a different code for each person
    completion_url: str = ""  # address at the end; {code} and {person} are replaced
    past_tasks: int = field(default=0, metadata={"least": 0})  # required of a person, by the list of people
    past_accepted: float = field(default=0.0, metadata={"least": 0, "most": 1})  # required share of accepted past tasks
    quiz: int = field(default=0, metadata={"least": 0, "most": 100})  # gold items of the quiz that a person takes first; 0: no quiz
    quiz_share: float = field(default=0.8, metadata={"least": 0, "most": 1})  # share of correct answers that passes the quiz
    excludes: tuple[str, ...] = ()  # presets whose people may not take part, and vice versa


@dataclass(frozen=True)
class ResultSettings:
    """What the answers become. `wanted` is the answer that accepts an item."""

    yields: Yields = "judgements"
    combine: Combine = "mean"
    question: str = ""  # the main question; empty: the first
    wanted: str = ""
    positive: float = 0.0  # lowest grade of a positive pair; 0: by the grades of the main question


@dataclass(frozen=True)
class Design:
    """The declaration of a study.

    `load_design` loads it from a preset or a TOML file.

    Attributes:
        name: The name of the preset.
        title: The title that annotators see.
        about: One line for the list of presets.
        paper: Key of the paper that describes the study.
        instructions: The paragraphs that annotators read first.
        consent: The text that annotators agree to; empty: none.
        shows: How an item is displayed.
        questions: The questions about an item.
        recipe: How items are packed into HITs, assigned and paid.
        result: What the answers become.

    >>> from crossmatch.study import load_design
    >>> design = load_design("eccv-hit")
    >>> design.main_question.text
    'Is the image described correctly?'
    >>> [(option.text, option.grade) for option in design.main_question.options[:2]]
    [('100% YES', 1.0), ('Partially YES, but', 0.5)]
    """

    name: str
    title: str
    about: str
    paper: str = ""
    instructions: tuple[str, ...] = ()
    consent: str = ""
    shows: DisplaySettings = DisplaySettings()
    questions: tuple[Question, ...] = ()
    recipe: Recipe = Recipe()
    result: ResultSettings = ResultSettings()

    def questions_for(self, block: str) -> tuple[Question, ...]:
        """The questions about an item of this block; follow-up questions only if the recipe wants reasons."""
        return tuple(q for q in self.questions if q.block in ("", block) and (self.recipe.reasons or not q.after))

    @property
    def main_question(self) -> Question:
        """The question whose answers become the result."""
        return next(q for q in self.questions if q.name == (self.result.question or self.questions[0].name))

    def main_question_for(self, block: str) -> Question:
        """The main question of an item of this block: that of the design, or else the first question of the block."""
        questions = self.questions_for(block)
        return self.main_question if self.main_question in questions or not questions else questions[0]

    def to_dict(self) -> dict[str, Any]:
        """The design as a dictionary, as stored in the database."""
        return asdict(self)


def load_presets() -> dict[str, Design]:
    """The packaged designs by name."""
    return {name: load_design(name) for name in preset_names()}


def preset_names() -> list[str]:
    return packaged_names(_presets_folder())


def load_design(name: str | Path, overrides: Iterable[str] = ()) -> Design:
    """Load a preset or a TOML file; `overrides` such as `recipe.people=3` replace its values.

    Args:
        name: The name of a preset (`crossmatch list studies` lists them), or the path of a TOML file.
        overrides: Changes of single values, applied in this order.

    Raises:
        UsageError: There is no such preset, file or value.
        CrossmatchError: The design is not consistent.

    >>> load_design("eccv-hit").recipe.batch, load_design("sts", ["recipe.people=3"]).recipe.people
    (18, 3)
    >>> load_design("eccv-hit", ["recipe.peple=3"])
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: --set recipe.peple=3: [recipe] has no key 'peple'. Did you mean 'people'?
    """
    table = read_declaration(str(name), _presets_folder(), "study", "crossmatch list studies")
    design = _parse_design(declaration_name(name), table, str(name))
    where = [str(name)]
    for override in overrides:
        design = _override(design, override)
        where.append(f"--set {override}")
    _require_consistent(design, " ".join(where))  # at the end: one override may need another
    return design


def design_from_dict(data: Mapping[str, Any]) -> Design:
    """The design from the dictionary of `Design.to_dict`."""
    questions = tuple(
        Question(**{**q, "options": tuple(Option(**o) for o in q["options"]), "when": tuple(q["when"])}) for q in data["questions"]
    )
    parts: dict[str, dict[str, Any]] = {
        part: {k: tuple(v) if isinstance(v, list | tuple) else v for k, v in data[part].items()} for part in ("shows", "recipe")
    }
    return Design(
        **{key: data[key] for key in ("name", "title", "about", "paper", "consent")},
        instructions=tuple(data["instructions"]), questions=questions, shows=DisplaySettings(**parts["shows"]),
        recipe=Recipe(**parts["recipe"]),
        result=ResultSettings(**data["result"]),
    )  # fmt: skip


# -- answers


def allowed_values(question: Question, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The allowed values of an answer, given the number of images, captions and lists of an item.

    >>> allowed_values(Question("q", "Which one?", options=(Option("none", "None"),), among="images"), {"images": 2})
    ('image-0', 'image-1', 'none')
    """
    places = tuple(Place(question.among, n).value for n in range(sizes[question.among])) if question.among else ()
    return places + tuple(option.value for option in question.options)


def check_answer(questions: tuple[Question, ...], sizes: Mapping[str, int], answer: object) -> dict[str, Any]:
    """Check an answer to all questions about an item; raise if a value is missing or not allowed.

    >>> likes = (Question("match", "Does it fit?", options=(Option("yes", "Yes"), Option("no", "No"))),)
    >>> check_answer(likes, {}, {"match": "maybe"})
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: the answer to 'match' is "maybe". Choose one of: yes, no.
    """
    if not isinstance(answer, dict):
        raise CrossmatchError(f"expected a value for each question, got {format_value(answer):.60}. Answer all questions.")
    unknown = next((key for key in answer if key not in {question.name for question in questions}), None)
    if unknown is not None:
        raise CrossmatchError(f"There is no question {str(unknown)[:60]!r} about this item. Reload the page.")
    checked: dict[str, Any] = {}
    for question in questions:
        value = answer.get(question.name)
        if question.after and not follows(question.when, checked.get(question.after)):
            if value not in (None, "", []):
                raise CrossmatchError(f"{question.name!r} was answered, but is not asked after this answer. Reload the page.")
        else:
            checked[question.name] = _check_value(question, sizes, value)
    return checked


def follows(when: Collection[str], earlier_answer: object) -> bool:
    """Whether a follow-up question is asked after the answer to the earlier question."""
    values = earlier_answer if isinstance(earlier_answer, list) else [earlier_answer]
    return any(value in when for value in values)


def _check_value(question: Question, sizes: Mapping[str, int], value: Any) -> Any:
    if value is None:
        raise CrossmatchError(f"the question {question.name!r} has no answer. Answer it.")
    if question.kind == "slider":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not question.low <= value <= question.high:  # also refuses NaN and infinity
            raise CrossmatchError(
                f"the answer to {question.name!r} is {format_value(value):.40}, not a number from {question.low:g} to "
                f"{question.high:g}. Move the slider."
            )
        return float(value)
    allowed = allowed_values(question, sizes)
    is_several = question.kind == "several"
    values = value if is_several else [value]
    is_valid = isinstance(values, list) and 0 < len(values) <= MAX_CHOSEN
    is_valid = is_valid and all(isinstance(part, str) and part in allowed for part in values)
    if not is_valid or len(set(values)) < len(values):
        number = "one or more" if is_several else "one"
        raise CrossmatchError(
            f"the answer to {question.name!r} is {format_value(value):.60}. Choose {number} of: {', '.join(allowed)}."
        )
    return sorted(values, key=allowed.index) if is_several else value


# -- files


def _presets_folder() -> Any:
    return files("crossmatch.study") / "presets"


TOP_KEYS = ("title", "about", "paper", "instructions", "consent", "shows", "questions", "recipe", "result")


def _parse_design(name: str, table: dict[str, Any], where: str) -> Design:
    for key in table:
        if key not in TOP_KEYS:
            raise UsageError(f"{where} has no key {key!r}. {suggest_name(key, TOP_KEYS)}")
    for key in ("title", "about", "questions"):
        if not table.get(key):
            raise UsageError(f"{where} has no {key}. Add it.")
    texts: dict[str, Any] = {key: _text(table[key], key, where) for key in ("title", "about", "paper", "consent") if key in table}
    lines = validate_settings({"instructions": table.get("instructions", [])}, Design, where)
    settings: dict[str, Any] = {
        "shows": DisplaySettings(**validate_settings(_table(table, "shows", where), DisplaySettings, f"{where}: [shows]")),
        "recipe": Recipe(**validate_settings(_table(table, "recipe", where), Recipe, f"{where}: [recipe]")),
        "result": ResultSettings(**validate_settings(_table(table, "result", where), ResultSettings, f"{where}: [result]")),
    }
    if not isinstance(table["questions"], list) or not all(isinstance(q, dict) for q in table["questions"]):
        raise UsageError(f"{where}: `questions` must be tables. Write each question below a line [[questions]].")
    questions = tuple(_parse_question(q, f"{where}: question {n + 1}") for n, q in enumerate(table["questions"]))
    return Design(name, questions=questions, **texts, **lines, **settings)


def _table(table: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise UsageError(f"{where}: expected a table [{key}], got {key} = {format_value(value)}.")
    return value


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where}: expected a text for {key}, got {format_value(value)}.")
    return value


def _parse_question(table: dict[str, Any], where: str) -> Question:
    settings = dict(table)
    options = settings.pop("options", [])
    if not isinstance(options, list) or not all(isinstance(o, dict) for o in options):
        raise UsageError(f'{where}: `options` must be tables. Write them as {{value = "yes", text = "Yes"}}.')
    parsed_options = [_parse_option(option, f"{where}, option {n}") for n, option in enumerate(options, 1)]
    for key in ("name", "text"):
        if not settings.get(key):
            raise UsageError(f"{where} has no {key}. Add it.")
    return Question(options=tuple(parsed_options), **validate_settings(settings, Question, where, without=("options",)))


def _parse_option(table: dict[str, Any], where: str) -> Option:
    grade = table.get("grade")
    if grade is not None and (isinstance(grade, bool) or not isinstance(grade, int | float) or not math.isfinite(grade)):
        raise UsageError(f"{where}: expected a number for grade, got {format_value(grade)}.")
    texts = {key: _text(value, key, where) for key, value in table.items() if key != "grade"}
    if not texts.get("value") or not texts.get("text") or not texts.keys() <= {"value", "text", "hint"}:
        raise UsageError(f"{where}: expected value and text, and optionally hint and grade, got {', '.join(table)}.")
    return Option(**texts, grade=None if grade is None else float(grade))


def _require_consistent(design: Design, where: str) -> None:
    """Raise if the parts of a design contradict each other."""
    earlier_questions: dict[str, Question] = {}
    for question in design.questions:
        if question.name in earlier_questions:
            raise UsageError(f"{where} has two questions {question.name!r}. Give each question its own name.")
        if question.block and question.block not in design.shows.blocks:
            raise UsageError(
                f"{where}: question {question.name!r} has the block {question.block!r}, which is not in [shows]. "
                f"{suggest_name(question.block, design.shows.blocks)}"
            )
        _require_valid_question(question, earlier_questions, f"{where}: question {question.name!r}")
        earlier_questions[question.name] = question
    result, main_question = design.result, design.result.question
    if main_question and main_question not in earlier_questions:
        raise UsageError(f"{where}: result.question is {main_question!r}. {suggest_name(main_question, earlier_questions)}")
    if design.main_question.after:
        raise UsageError(
            f"{where}: result.question is {design.main_question.name!r}, which is asked only after some answers to "
            f"{design.main_question.after!r}. Set result.question={design.main_question.after}."
        )
    if result.combine == "dawid-skene" and design.recipe.people < 2:
        raise UsageError(
            f"{where}: dawid-skene needs two or more answers for each item, but recipe.people is 1. Set recipe.people=3, or "
            "result.combine=majority."
        )
    url = design.recipe.completion_url
    if url and not url.startswith(("https://", "http://")):
        raise UsageError(f"{where}: recipe.completion_url must begin with https:// (got {url[:60]!r}).")
    unknown = next((side for side in design.shows.shuffle if side not in SIDES), None)
    if unknown:
        raise UsageError(f"{where}: cannot shuffle {unknown!r}; expected one of {', '.join(SIDES)}.")


def _require_valid_question(question: Question, earlier_questions: Mapping[str, Question], where: str) -> None:
    values = [option.value for option in question.options]
    if len(set(values)) < len(values):
        raise UsageError(f"{where} has two options with the same value. Rename one.")
    reserved = next((value for value in values if question.among and parse_place(value)), None)
    if reserved:
        raise UsageError(f"{where} has the option {reserved!r}, which is the value of a displayed choice. Rename it.")
    if question.kind == "slider" and (question.among or question.low >= question.high):
        raise UsageError(f"{where}: a slider needs low < high and no `among` (got low={question.low}, high={question.high}).")
    if question.kind != "slider" and not question.options and not question.among:
        raise UsageError(f"{where} has no options. Add some, or set `among` to images, captions or lists.")
    if bool(question.after) != bool(question.when):
        raise UsageError(f"{where} needs both `after` and `when`, or neither.")
    if not question.after:
        return
    earlier = earlier_questions.get(question.after)
    if earlier is None:
        hint = suggest_name(question.after, earlier_questions)
        raise UsageError(f"{where} comes after {question.after!r}, which is not an earlier question. {hint}")
    if earlier.kind == "slider":
        raise UsageError(f"{where} comes after the slider {question.after!r}. Only a choice can have follow-up questions.")
    unknown = next((value for value in question.when if value not in {option.value for option in earlier.options}), None)
    if unknown is not None:
        raise UsageError(f"{where} is asked after {unknown!r}, which is not an option of {question.after!r}. Correct `when`.")


def _override(design: Design, override: str) -> Design:
    """Apply an override such as `recipe.people=3`."""
    assignment = parse_assignment(override)
    if assignment is None or assignment[0] not in ("recipe", "result"):
        raise UsageError(f"--set {override}: expected recipe.KEY=VALUE or result.KEY=VALUE, as in --set recipe.people=3.")
    table, name, value = assignment
    section: Any = getattr(design, table)
    settings = validate_settings({name: value}, type(section), f"--set {override}: [{table}]")
    return replace(design, **{table: replace(section, **settings)})
