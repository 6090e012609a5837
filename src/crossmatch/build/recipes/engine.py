"""Runs a recipe: the steps of a paper up to where people must answer, and on from their answers.

A recipe is a list of stages. A stage either runs a build step, or opens a study in the recipe's campaign. A study is finished when
no answer or review is missing, or when its owner has closed it; later stages read its export. Running the recipe again continues
from there, and finished stages are not repeated.

    DIR/recipe.json     recipe, data, options and seed
    DIR/campaign        the studies of all stages
    DIR/STAGE           result of each stage: rows and manifest of a step, or the export of a study
    DIR/skipped.jsonl   with `skip_bad`: skipped captions and pictures, with the reason
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from crossmatch import __version__
from crossmatch.build.step_files import MANIFEST, read_manifest
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import TEMPORARY_SUFFIX, atomic_write
from crossmatch.data.io.file_contents import read_json_object
from crossmatch.data.judgements import rehearsal_note
from crossmatch.data.loaded_data import Retrieval
from crossmatch.evaluation.input_checks import drop_unreadable_images
from crossmatch.study.design.data_source import collection_of, retrieval_of

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign
    from crossmatch.study.study import Study

RECIPE_FILE, CAMPAIGN, EXPORT_FILE, SKIPPED_FILE = "recipe.json", "campaign", "provenance.json", "skipped.jsonl"
SKIP_BAD = "skip_bad"  # option of every recipe: skip empty captions and pictures that do not open
DONE, SKIPPED_STAGE, WAITING, LATER = "done", "left out", "waits for people", "later"
FINISHED_STATES = (DONE, SKIPPED_STAGE)


@dataclass(frozen=True, eq=False)
class RecipeRun:
    """One run of a recipe: its folder, data, options and seed.

    Attributes:
        folder: Folder of all stages.
        data: `collection:FOLDER`, `diorama` or `diorama:SIZE`.
        options: Options of the recipe, such as `people`.
        seed: Seed of all stages.

    >>> run = RecipeRun(folder / "bison", "diorama:tiny")
    >>> run.collection.shape                                # images and captions
    (50, 250)
    """

    folder: Path
    data: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @cached_property
    def collection(self) -> Collection:
        if not self.options.get(SKIP_BAD):
            return collection_of(self.data)
        ((usable, skipped, _),) = drop_unreadable_images([retrieval_of(self.data, skip_bad=True)])
        assert isinstance(usable, Retrieval)
        with atomic_write(self.folder / SKIPPED_FILE) as file:
            for item in skipped:
                file.write((json.dumps({item.kind: item.id, "why": item.reason}, ensure_ascii=False) + "\n").encode())
        return usable.collection

    def stage_folder(self, stage: str) -> Path:
        return self.folder / stage


@dataclass(frozen=True)
class BuildStage:
    """A stage of a recipe: a build step (`run_step`), or a study with the preset of the same name (`study_items`)."""

    name: str  # of the stage and of its folder
    about: str  # one line for the table of stages
    after: tuple[str, ...] = ()  # stages that must be finished first
    run_step: Callable[[RecipeRun], object] | None = None
    study_items: Callable[[RecipeRun], Path] | None = None  # path of the items
    excludes: tuple[str, ...] = ()  # studies whose annotators may not take part
    design_changes: Callable[[RecipeRun], tuple[str, ...]] = lambda run: ()  # of the preset, besides those of the user
    skip_reason: Callable[[RecipeRun], str] = lambda run: ""  # why the stage is not needed; empty if it is


@dataclass(frozen=True)
class BuildRecipe:
    """The construction of a paper's benchmark."""

    name: str  # on the command line
    about: str
    paper: str  # key of the bibliography
    stages: tuple[BuildStage, ...]  # in order
    options: Mapping[str, Any]  # accepted options with their defaults
    next_command: Callable[[RecipeRun], str]  # the command that uses the result
    check_options: Callable[[RecipeRun], object] = lambda run: None  # raises before anything starts

    def __post_init__(self) -> None:
        names: set[str] = set()
        for stage in self.stages:
            unknown = [name for name in (*stage.after, *stage.excludes) if name not in names]
            if unknown or stage.name in names or (stage.run_step is None) == (stage.study_items is None):
                raise CrossmatchError(
                    f"Recipe {self.name}, stage {stage.name!r}: expected a unique name, earlier stages, run_step or study_items."
                )
            names.add(stage.name)


@dataclass(frozen=True)
class StageStatus:
    """State of a stage, with a message about what is missing or why it was skipped."""

    stage: str
    about: str
    state: str
    message: str = ""


def run_stages(recipe: BuildRecipe, run: RecipeRun) -> list[StageStatus]:
    """Run all stages that can run now, and return the status of each stage.

    Call it again after people have answered: finished stages are not repeated.

    Args:
        recipe: The recipe; `crossmatch.build.recipes.papers.find_recipe` finds those of the papers by name.
        run: Folder, data, options and seed.

    Returns:
        The stages in order, each with its state and with what is missing.

    Raises:
        UsageError: An option is wrong, or the folder belongs to another recipe or was started with other options.

    >>> from crossmatch.build import RecipeRun, run_stages
    >>> from crossmatch.build.recipes.papers import find_recipe
    >>> run = RecipeRun(folder / "eccv", "diorama:tiny", {"models": ["oracle"], "people": 1})
    >>> [(status.stage, status.state) for status in run_stages(find_recipe("eccv"), run)]
    [('pool', 'done'), ('eccv-hit', 'waits for people'), ('merge', 'later'), ('bias', 'later')]
    """
    _check_option_names(recipe, run)
    recipe.check_options(run)
    _write_recipe_file(recipe, run)
    statuses: dict[str, StageStatus] = {}
    for stage in recipe.stages:
        is_ready = all(statuses[name].state in FINISHED_STATES for name in stage.after)
        statuses[stage.name] = _run_stage(stage, run) if is_ready else StageStatus(stage.name, stage.about, LATER)
    return list(statuses.values())


def _run_stage(stage: BuildStage, run: RecipeRun) -> StageStatus:
    reason = stage.skip_reason(run)
    if reason:
        return StageStatus(stage.name, stage.about, SKIPPED_STAGE, reason)
    if stage.run_step is not None:
        if not _is_settled(stage, run):
            stage.run_step(run)
        return StageStatus(stage.name, stage.about, DONE)
    missing = _run_study(stage, run)
    if missing:
        return StageStatus(stage.name, stage.about, WAITING, missing)
    export = json.loads((run.stage_folder(stage.name) / EXPORT_FILE).read_text(encoding="utf-8"))
    return StageStatus(stage.name, stage.about, DONE, rehearsal_note("answers") if export.get("artificial") else "")


def _is_settled(stage: BuildStage, run: RecipeRun) -> bool:
    """Whether a step is finished and a study was opened since: options are fixed then, and no model need be loaded again."""
    folder = run.stage_folder(stage.name)
    return (run.folder / CAMPAIGN).exists() and (folder / MANIFEST).exists() and bool(read_manifest(folder)["finished"])


def _check_option_names(recipe: BuildRecipe, run: RecipeRun) -> None:
    unknown = next((key for key in run.options if key not in (*recipe.options, SKIP_BAD)), None)
    if unknown is not None:
        raise UsageError(f"Recipe {recipe.name} has no option {unknown!r}. Its options: {', '.join(recipe.options) or 'none'}.")


def _write_recipe_file(recipe: BuildRecipe, run: RecipeRun) -> None:
    """Record recipe, data, options and seed; reject a folder that holds something else.

    Options may change until a study is opened, for example if a generator turns out to be missing; finished steps reject changes of
    their own options. Everything may change as long as no stage has started.
    """
    current = {"recipe": recipe.name, "data": run.data, "options": dict(run.options), "seed": run.seed}
    path = run.folder / RECIPE_FILE
    if path.exists():
        as_json = json.loads(json.dumps(current))
        previous = read_json_object(path)
        if previous is None:
            raise CrossmatchError(f"{path} cannot be read. Choose another folder.")
        changed = [key for key, value in as_json.items() if previous.get(key) != value]
        rejected = next((key for key in changed if key in _fixed_keys(run.folder)), None)
        if rejected is not None:
            raise UsageError(
                f"{run.folder} was started with other {rejected}: was {previous.get(rejected)!r:.80}, "
                f"now {current[rejected]!r:.80}. Repeat the first command to continue, or choose another folder."
            )
        if not changed:
            return
    elif run.folder.exists() and (not run.folder.is_dir() or any(_permanent_files(run.folder))):
        raise UsageError(f"{run.folder} exists and is not the folder of a recipe. Choose another folder.")
    run.folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path, durable=True) as file:
        file.write(json.dumps({**current, "crossmatch": __version__}, indent=1, ensure_ascii=False).encode())


def _fixed_keys(folder: Path) -> tuple[str, ...]:
    """Entries of the recipe file that can no longer change."""
    if (folder / CAMPAIGN).exists():
        return ("recipe", "data", "options", "seed")
    has_started = any(file.name not in (RECIPE_FILE, SKIPPED_FILE) for file in _permanent_files(folder))
    return ("recipe", "data", "seed") if has_started else ()


def _permanent_files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.iterdir() if not file.name.endswith(TEMPORARY_SUFFIX))


# -- studies


def _run_study(stage: BuildStage, run: RecipeRun) -> str:
    """Open the study of a stage, or export it if it is finished; return what is still missing."""
    from crossmatch.study.database.campaign import create_campaign

    if (run.stage_folder(stage.name) / EXPORT_FILE).exists():
        return ""
    campaign = create_campaign(run.folder / CAMPAIGN)
    try:
        study = _find_or_add_study(stage, run, campaign)
        missing = _missing_answers(campaign, study)
        if not missing:
            _export(campaign, study, run)
        return missing
    finally:
        campaign.close()


def _find_or_add_study(stage: BuildStage, run: RecipeRun, campaign: Campaign) -> Study:
    from crossmatch.study.design.add_study import add_study
    from crossmatch.study.design.data_source import source_of
    from crossmatch.study.design.declaration import load_design
    from crossmatch.study.design.item_files import read_items
    from crossmatch.study.study import find_study, list_studies

    assert stage.study_items is not None
    if stage.name not in {study.name for study in list_studies(campaign)}:
        people = run.options.get("people")
        by_user = (f"recipe.people={people}",) if people else ()
        design = load_design(stage.name, (*stage.design_changes(run), *by_user))
        path = stage.study_items(run)
        if not path.stat().st_size:
            raise CrossmatchError(f"Stage {stage.name}: {path} is empty, so there is nothing to ask. Start with more data.")
        add_study(campaign, design, read_items(path, design, source_of(run.data)), name=stage.name, excludes=stage.excludes)
    return find_study(campaign, stage.name)


def _missing_answers(campaign: Campaign, study: Study) -> str:
    from crossmatch.study.results.progress import count_slots

    if not study.is_open:  # its owner decided that the answers are enough
        return ""
    with campaign.read_transaction() as connection:
        slots = count_slots(connection, study.id)
    missing = []
    if slots.left:
        missing.append(f"{slots.left:,} of {slots.total:,} assignments are missing")
    if slots.review:
        missing.append(f"{slots.review:,} assignments await review")
    return ", ".join(missing)


def _export(campaign: Campaign, study: Study, run: RecipeRun) -> None:
    from crossmatch.study.results.export_study import export_study

    needs_collection = study.design.result.yields == "judgements"
    export_study(campaign, study, run.stage_folder(study.name), run.collection if needs_collection else None)


def next_commands(recipe: BuildRecipe, run: RecipeRun, statuses: Sequence[StageStatus]) -> list[str]:
    """The commands to run next."""
    if all(status.state in FINISHED_STATES for status in statuses):
        return [recipe.next_command(run)]
    campaign = quote(str(run.folder / CAMPAIGN))
    return [
        f"crossmatch study serve {campaign}",
        "then run the same command again (review pending HITs on the owner's page; to continue with the answers so far, close the "
        f"study there, or run: crossmatch study status {campaign} --study STUDY --close)",
    ]
