"""Exports a study to a folder that `crossmatch run`, `captions agree` and the next stage can use.

answers.csv, assignments.csv, annotators.csv    answers, HITs and people (`answer_tables`)
judgements.csv …                                the result that the design declares
captions.json, images/                          the judged collection, if there is one
provenance.json                                 study, design, last event and its hash, hashes of all files
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from crossmatch import __version__
from crossmatch.benchmarks.formats.collection_writer import write_collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.spreadsheet_csv import format_csv
from crossmatch.data.judgements import ARTIFICIAL, LINKS, rehearsal_note
from crossmatch.metrics.bradley_terry import bradley_terry, bradley_terry_interval
from crossmatch.study.database.events import check_chain
from crossmatch.study.design.declaration import Combine
from crossmatch.study.design.places import parse_place
from crossmatch.study.design.result_requirements import require_result
from crossmatch.study.results import answer_tables, folder_replacement, judgements_and_trials
from crossmatch.study.results.answers import Answer, StudyAnswers, answered_by, depend_on_rehearsal, load_items, read_answers
from crossmatch.study.results.item_decisions import Decision, decide_items
from crossmatch.study.results.progress import SlotCounts, count_slots
from crossmatch.study.study import Study

if TYPE_CHECKING:
    from crossmatch.data.collection import Collection
    from crossmatch.study.database.campaign import Campaign

WIN_COLUMNS = ("text_score_i0", "text_score_i1", "image_score_c0", "image_score_c1")
PAIR_FILES = {
    "image-caption": ("judgements.csv", ("image_id", "caption_id")),
    "caption-caption": ("judgements_t2t.csv", ("caption_id", "other_caption_id")),
    "image-image": ("judgements_i2i.csv", ("image_id", "other_image_id")),
}


@dataclass(frozen=True)
class ExportSummary:
    """The written files, messages with counts, and commands to run next."""

    folder: Path
    files: tuple[str, ...]
    messages: tuple[str, ...]
    next_commands: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StudyState:
    """What the database says about a study at one moment."""

    last_event: int
    last_hash: str
    answers: StudyAnswers
    slots: SlotCounts
    completion_codes: dict[str, str]


@dataclass(frozen=True, eq=False)
class ExportJob:
    """An export in progress. Files are written to `folder`, which becomes `target`."""

    study: Study
    answers: list[Answer]
    decisions: list[Decision]
    folder: Path
    target: Path
    images_folder: Path
    collection: Collection | None = None
    links: bool = True

    @property
    def people(self) -> int:
        return len({answer.person for answer in self.answers})

    @property
    def by(self) -> str:
        """Who answered: people, or artificial annotators."""
        return answered_by(self.answers)

    @property
    def mark(self) -> dict[str, str]:
        """The key `by` of a row of trials or choices, if artificial annotators answered in this study or in an earlier stage."""
        return {"by": ARTIFICIAL} if depend_on_rehearsal(self.answers) else {}

    def copy_images(self, names: judgements_and_trials.ImageNames) -> None:
        """Copy the named images from the campaign to `images/`."""
        for name, file in names.files.items():
            (self.folder / "images").mkdir(exist_ok=True)
            with atomic_write(self.folder / "images" / name) as copy:
                copy.write((self.images_folder / file).read_bytes())


@dataclass(frozen=True)
class ResultFiles:
    """The files of a result by name, messages about them, and commands to run next."""

    files: dict[str, str]
    messages: tuple[str, ...] = ()
    next_commands: tuple[str, ...] = ()


def export_study(
    campaign: Campaign,
    study: Study,
    folder: Path,
    collection: Collection | None = None,
    *,
    pending: bool = False,
    links: bool = True,
    combine: Combine | None = None,
) -> ExportSummary:
    """Write the results of a study to a folder, which then holds this export and nothing else.

    As soon as a real person has submitted a HIT, the answers of artificial annotators are left out, and a message says so.

    Args:
        campaign: The campaign.
        study: The study.
        folder: Where to write. It must be absent, empty, or an earlier export.
        collection: The collection that the items came from. With it, judgements are written as a complete collection.
        pending: Whether to include HITs with wrong gold answers that await review.
        links: Whether the collection's links count as positives where people gave no grade.
        combine: How several answers become one, instead of the rule in the design.

    Returns:
        The written files, messages with counts, and commands to run next.

    Raises:
        CrossmatchError: There are no answers that count.
        UsageError: The folder holds something else.

    >>> from crossmatch.study import add_study, create_campaign, export_study, find_study, load_design, read_items, simulate
    >>> count = (folder / "items.jsonl").write_text('{"captions": ["A cat.", "A kitten."]}')
    >>> campaign, design = create_campaign(folder / "campaign"), load_design("sts")
    >>> study_id = add_study(campaign, design, read_items(folder / "items.jsonl", design))
    >>> summary = simulate(folder / "campaign", people=5)
    >>> export_study(campaign, find_study(campaign), folder / "export").files
    ('answers.csv', 'assignments.csv', 'annotators.csv', 'judgements_t2t.csv', 'provenance.json')
    >>> campaign.close()
    """
    folder_replacement.require_replaceable(folder)
    if combine is not None:
        study = replace(study, design=replace(study.design, result=replace(study.design.result, combine=combine)))
    state = _read_state(campaign, study, pending)
    counted, submitted = state.answers.counted, state.answers.submitted
    if not counted:
        left_out = "".join(f" {omitted.message}." for omitted in state.answers.left_out)
        raise CrossmatchError(
            f"{study.name} has no answers that count yet.{left_out} See: crossmatch study status {campaign.folder}"
        )
    decisions = decide_items(study.design, counted)
    collection = collection if study.design.result.yields == "judgements" else None
    with folder_replacement.replacing_folder(folder) as temporary:
        job = ExportJob(study, counted, decisions, temporary, folder, campaign.images_folder, collection, links)
        files = {
            "answers.csv": answer_tables.answers_csv(counted),
            "assignments.csv": answer_tables.assignments_csv(study, submitted, state.completion_codes),
            "annotators.csv": answer_tables.annotators_csv(submitted, counted, state.completion_codes),
        }
        result = RESULT_WRITERS[study.design.result.yields](job)
        files |= result.files
        if collection is not None:
            files |= _export_collection(job, collection)
        messages = (*_answer_messages(job, state), *result.messages, *_progress_messages(state, pending))
        names = folder_replacement.write_files(temporary, files, _provenance(job, state, messages))
    return ExportSummary(folder, names, messages, result.next_commands)


def _read_state(campaign: Campaign, study: Study, pending: bool) -> StudyState:
    """Read everything in one transaction, so that the last hash belongs to these answers."""
    with campaign.read_transaction() as connection:
        number, last_hash = check_chain(connection, study.id)
        require_result(study.design, list(load_items(connection, study.id).values()))
        answers = read_answers(connection, study.id, pending=pending)
        codes = answer_tables.completion_codes(campaign, connection, study.id)
        return StudyState(number, last_hash, answers, count_slots(connection, study.id), codes)


def _answer_messages(job: ExportJob, state: StudyState) -> tuple[str, ...]:
    items = len({answer.item.id for answer in job.answers})
    messages = [f"{len(job.answers):,} answers of {job.people:,} {job.by} to {items:,} items"]
    if job.by == ARTIFICIAL:
        messages.append(rehearsal_note("all results of this export"))
    return (*messages, *(omitted.message for omitted in state.answers.left_out))


def _progress_messages(state: StudyState, pending: bool) -> tuple[str, ...]:
    slots, messages = state.slots, []
    if slots.review and pending:
        messages.append(f"{slots.review:,} assignments await review and count")
    missing = slots.left
    if missing:
        messages.append(f"{missing:,} of {slots.total:,} assignments are still missing")
    return tuple(messages)


def _provenance(job: ExportJob, state: StudyState, messages: Sequence[str]) -> dict[str, Any]:
    """Which answers, by which design, up to which event, and which answers were left out: enough to detect later changes."""
    design = job.study.design
    return {
        "study": job.study.name,
        "preset": design.name,
        "paper": design.paper,
        "yields": design.result.yields,
        "events": state.last_event,
        "hash": state.last_hash,
        "answers": len(job.answers),
        "people": job.people,
        "artificial": job.by == ARTIFICIAL,
        "left_out": [asdict(omitted) for omitted in state.answers.left_out],
        "messages": list(messages),
        "items": len(job.decisions),
        "combine": design.result.combine,
        "links": job.collection is not None and job.links,
        "pending_review": state.slots.review,
        "still_to_come": state.slots.left,
        "origin": dict(job.study.origin),
        "design": design.to_dict(),
        "crossmatch": __version__,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _export_collection(job: ExportJob, collection: Collection) -> dict[str, str]:
    """The judged images and captions in COCO's layout, so that the folder is a complete collection.

    Images that people saw but that are not in the collection (another drawing of a scene) are added without captions.
    """
    if collection.open_image is None:
        raise CrossmatchError("The collection has no images, so it cannot be exported. Export the grades alone: --data ''")
    caption_ids = set(map(str, collection.caption_ids.tolist()))
    unknown = next((name for decision in job.decisions for name in decision.item.caption_ids if name not in caption_ids), None)
    if unknown is not None:
        raise CrossmatchError(
            f"Caption {unknown!r:.60} was judged but is not in the collection. Choose the collection that has it (--data), or "
            "export the grades alone: --data ''"
        )
    image_ids = set(collection.image_ids.tolist())
    added: dict[str, Path] = {}
    for decision in job.decisions:
        for name, file in zip(decision.item.image_ids, decision.item.images, strict=False):
            if name not in image_ids:
                added.setdefault(name, job.images_folder / file)
    return {"captions.json": write_collection(job.folder, collection, added, reencode=True)}


# -- the result files


def _format_jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    """One json object per line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _format_number(number: float | None) -> str:
    return "" if number is None else f"{number:.6g}"


def _export_judgements(job: ExportJob) -> ResultFiles:
    """Graded pairs.

    Unjudged pairs count as irrelevant. So the collection's links are written with the best grade where people gave none, or a
    model would be wrong to retrieve the caption that was written for an image. The column `by` tells them apart: people, links, or
    artificial annotators. `positive_from` has the lowest grade of a positive.
    """
    design = job.study.design
    pairs = judgements_and_trials.graded_pairs(job.decisions)
    kind = judgements_and_trials.pair_kind(next(decision.item for decision in job.decisions if decision.grade is not None))
    name, id_columns = PAIR_FILES[kind]
    threshold = _format_number(judgements_and_trials.positive_threshold(design))
    rows: list[tuple[object, ...]] = [
        (
            pair.first_id,
            pair.second_id,
            _format_number(pair.grade),
            _format_number(pair.deviation),
            pair.answer_count,
            job.study.name,
            job.by,
            threshold,
            pair.sampling_method,
        )
        for pair in pairs
    ]
    tied = len(job.decisions) - len(pairs)
    messages = [
        f"{len(pairs):,} pairs graded" + (f", {tied:,} items left out, because their answers are tied or too few" if tied else "")
    ]
    commands: tuple[str, ...] = ()
    if job.collection is None:
        messages.append("no collection was given (--data), so the grades are exported without images and captions")
    else:
        commands = (f"crossmatch run -m MODEL -t {quote(f'collection:{job.target}')}",)
        if kind == "image-caption" and job.links:
            links = judgements_and_trials.unjudged_links(job.collection, pairs)
            best = _format_number(judgements_and_trials.best_grade(design))
            rows += [(*link, best, "", 0, job.study.name, LINKS, threshold, "") for link in links]
            messages.append(f"{len(links):,} links of the collection count as positives, because people gave no grade (--no-links)")
    columns: tuple[str, ...]
    columns = (*id_columns, "grade", "deviation", "answers", "source", "by", "positive_from", "sampling_method")
    if not any(pair.sampling_method for pair in pairs):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return ResultFiles({name: format_csv(columns, rows)}, tuple(messages), commands)


def _export_trials(job: ExportJob) -> ResultFiles:
    """Accepted trials; or, if people solved whole trials, the outcomes in the columns that `precomputed:FILE` reads."""
    names = judgements_and_trials.ImageNames()
    solved = judgements_and_trials.find_solved_trials(job.study.design, job.answers)
    if solved:
        return _export_solved_trials(job, solved, names)
    rows = [row | job.mark for row in judgements_and_trials.accepted_trial_rows(job.study.design, job.decisions, names)]
    job.copy_images(names)
    undecided = sum(decision.value is None for decision in job.decisions)
    rejected = len(job.decisions) - len(rows) - undecided
    message = f"{len(rows):,} trials accepted, {rejected:,} rejected" + (f", {undecided:,} undecided" if undecided else "")
    if not rows:
        return ResultFiles({"trials.jsonl": ""}, (message,))
    file = quote(str(job.target / "trials.jsonl"))
    data = f" --data {quote(str(job.study.origin['data']))}" if job.study.origin.get("data") else ""
    verify = f"crossmatch study new bison-verify --items {file}{data} --excludes {job.study.name} -o CAMPAIGN"
    commands = [verify] * (job.study.design.name == "bison-select") + [f"crossmatch run -m MODEL -t trials:{file}"]
    return ResultFiles({"trials.jsonl": _format_jsonl(rows)}, (message,), tuple(commands))


def _export_solved_trials(
    job: ExportJob, solved: list[judgements_and_trials.SolvedTrial], names: judgements_and_trials.ImageNames
) -> ResultFiles:
    rows = [row | job.mark for row in judgements_and_trials.solved_trial_rows(job.answers, solved, names)]
    job.copy_images(names)
    ids = judgements_and_trials.solved_trial_ids(solved)
    i2t, t2i = (sum(all(trial.wins[k : k + 2]) for trial in solved) / len(solved) for k in (0, 2))
    group = sum(all(trial.wins) for trial in solved) / len(solved)
    message = f"{len(solved):,} trials solved: I2T {100 * i2t:.1f}, T2I {100 * t2i:.1f}, Group {100 * group:.1f} %"
    items = ((answer.item, answer.person) for answer in job.answers if answer.item.gold is None and "query" in answer.item.details)
    started = {(str(item.details["trial"]), person) for item, person in items}
    if len(started) > len(solved):
        message += f"; {len(started) - len(solved):,} left out, because a person answered only some of the four questions"
    people, trials = job.target / "people.csv", job.target / "trials.jsonl"
    wins = [(name, *trial.wins, job.by) for name, trial in zip(ids, solved, strict=True)]
    files = {people.name: format_csv(("trial_id", *WIN_COLUMNS, "by"), wins), trials.name: _format_jsonl(rows)}
    command = f"crossmatch run -m {quote(f'precomputed:{people}')} --name {quote(job.by)} -t {quote(f'trials:{trials}')}"
    return ResultFiles(files, (message,), (command,))


def _export_ratings(job: ExportJob) -> ResultFiles:
    """Every single rating, in the columns that `captions agree` reads."""
    ratings = judgements_and_trials.caption_ratings(job.study.design, job.answers)
    rows = [
        (rating.image_id, rating.caption_id, rating.caption, _format_number(rating.rating), rating.person, job.by)
        for rating in ratings
    ]
    file = quote(str(job.target / "ratings.csv"))
    command = f"crossmatch captions agree --judgements {file} --references REFERENCES --metrics cider-d,spice"
    table = format_csv(("image_id", "caption_id", "caption", "rating", "person", "by"), rows)
    return ResultFiles({"ratings.csv": table}, (f"{len(rows):,} ratings",), (command,))


def _export_preferences(job: ExportJob) -> ResultFiles:
    """Comparisons of systems, and the strength of each by the Bradley-Terry model with an interval."""
    question = job.study.design.main_question.name
    comparisons = [
        (*answer.item.details["systems"], answer.values[question], answer.person, answer.item.key, job.by)
        for answer in job.answers
        if answer.item.gold is None
    ]
    files = {"preferences.csv": format_csv(("first", "second", "preferred", "person", "item", "by"), comparisons)}
    counts = judgements_and_trials.as_comparisons(job.study, job.answers)
    try:
        strengths = bradley_terry(counts)
        low, high = bradley_terry_interval(counts)
    except CrossmatchError as error:
        return ResultFiles(files, (f"no strengths: {error}",))
    table = zip(counts.items, strengths.tolist(), low.tolist(), high.tolist(), strict=True)
    rows = sorted(((name, *map(_format_number, numbers), job.by) for name, *numbers in table), key=lambda row: -float(row[1]))
    files["strengths.csv"] = format_csv(("system", "strength", "low", "high", "by"), rows)
    return ResultFiles(files, tuple(f"{name}: {value} [{least}, {most}]" for name, value, least, most, _ in rows))


def _export_choices(job: ExportJob) -> ResultFiles:
    """The chosen value of each item with its share; a chosen image is copied."""
    names = judgements_and_trials.ImageNames()
    decided = [decision for decision in job.decisions if decision.value is not None]
    rows = [_choice_row(decision, names) | job.mark for decision in decided]
    job.copy_images(names)
    images = sum("images" in row for row in rows)
    without = sum(decision.value == "none" for decision in decided)
    undecided = len(job.decisions) - len(decided)
    message = f"{images:,} captions have an image, {without:,} have none" if images else f"{len(decided):,} items decided"
    return ResultFiles({"choices.jsonl": _format_jsonl(rows)}, (f"{message}, {undecided:,} undecided",))


def _choice_row(decision: Decision, names: judgements_and_trials.ImageNames) -> dict[str, Any]:
    item = decision.item
    id_keys = ("image_ids", "caption_ids", "image_id", "caption_id", "caption", "by")
    row: dict[str, Any] = {key: value for key, value in item.details.items() if key not in id_keys}
    row |= {"id": item.key, "value": decision.value, "share": decision.share, "answers": decision.answer_count}
    place = parse_place(decision.value)
    if place and place.side == "images":
        row |= {"images": [names.name(item, place.n)], "image_ids": list(item.image_ids[place.n : place.n + 1])}
    return {**row, "captions": list(item.captions), "caption_ids": list(item.caption_ids)}


RESULT_WRITERS: dict[str, Callable[[ExportJob], ResultFiles]] = {
    "judgements": _export_judgements,
    "trials": _export_trials,
    "ratings": _export_ratings,
    "preferences": _export_preferences,
    "choices": _export_choices,
}
