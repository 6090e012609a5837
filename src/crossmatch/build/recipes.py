"""Whole constructions: the steps of a paper one after the other, up to where people must answer, and on from their answers.

A recipe is a list of stages, each after some of the others. What a machine does is done at once. Where people are asked, a study is
opened in the recipe's campaign, and the stage is done when nothing is left to answer or to review, or when its owner has closed it;
its export is then what the next stages read. Calling the recipe again goes on from there: what is done is not done again.

    DIR/recipe.json     which recipe, of what, and how
    DIR/campaign        the studies of all its stages that ask people
    DIR/STAGE           what each stage made: a step's rows and manifest, or a study's export
    DIR/skipped.jsonl   with `skip_bad`: the captions and pictures that were left out, and why
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from crossmatch import __version__
from crossmatch.build.files import MANIFEST, manifest
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.whole import UNFINISHED, whole_file
from crossmatch.inputs import without_bad
from crossmatch.study.sources import collection_of, retrieval_of

if TYPE_CHECKING:
    from crossmatch.study.said import Study
    from crossmatch.study.store import Campaign

TOLD, CAMPAIGN, EXPORTED, SKIPPED = "recipe.json", "campaign", "provenance.json", "skipped.jsonl"
SKIP_BAD = "skip_bad"  # an option of all recipes: empty captions and pictures that do not open are left out
DONE, LEFT_OUT, WAITS, LATER = "done", "left out", "waits for people", "later"
OVER = (DONE, LEFT_OUT)


@dataclass(frozen=True, eq=False)
class Work:
    """One construction: where it stands, of which data, and how it is to be done."""

    folder: Path
    data: str  # collection:FOLDER or diorama…
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @cached_property
    def collection(self) -> Collection:
        if not self.options.get(SKIP_BAD):
            return collection_of(self.data)
        ((kept, left, _),) = without_bad([retrieval_of(self.data, skip_bad=True)])
        assert isinstance(kept, Retrieval)
        with whole_file(self.folder / SKIPPED) as file:
            for one in left:
                file.write((json.dumps({one.kind: one.id, "why": one.why}, ensure_ascii=False) + "\n").encode())
        return kept.collection

    def at(self, stage: str) -> Path:
        return self.folder / stage

    @property
    def asked(self) -> tuple[str, ...]:
        """What is changed in the design of a study, as `study new --set` takes it."""
        people = self.options.get("people")
        return (f"recipe.people={people}",) if people else ()


@dataclass(frozen=True)
class Stage:
    """A stage: something that a machine does (`do`), or a study of items that a file holds (`items`), called as its preset."""

    name: str
    about: str
    after: tuple[str, ...] = ()
    do: Callable[[Work], object] | None = None
    items: Callable[[Work], Path] | None = None
    excludes: tuple[str, ...] = ()  # studies whose people may not take part
    design: Callable[[Work], tuple[str, ...]] = lambda work: ()  # changes of the preset, beside those of the user
    skips: Callable[[Work], str] = lambda work: ""  # why there is nothing to do, if there is not


@dataclass(frozen=True)
class Recipe:
    """The construction of a paper."""

    name: str
    about: str
    paper: str
    stages: tuple[Stage, ...]
    options: Mapping[str, Any]  # what can be set, and what it is if it is not
    ends: Callable[[Work], str]  # what to do with the result
    needs: Callable[[Work], object] = lambda work: None  # refuses what is lacking before anything is begun

    def __post_init__(self) -> None:
        known: set[str] = set()
        for stage in self.stages:
            strange = [name for name in (*stage.after, *stage.excludes) if name not in known]
            if strange or stage.name in known or (stage.do is None) == (stage.items is None):
                raise CrossmatchError(f"stage {stage.name!r} of {self.name} is not declared well. Mend the table of recipes.")
            known.add(stage.name)


@dataclass(frozen=True)
class Standing:
    """How far a stage is."""

    stage: str
    about: str
    state: str
    said: str = ""


def carry_on(recipe: Recipe, work: Work) -> list[Standing]:
    """Do all that can be done now. How far each stage is; the construction is finished if all of them are done."""
    _require_options(recipe, work)
    recipe.needs(work)
    _begin(recipe, work)
    found: dict[str, Standing] = {}
    for stage in recipe.stages:
        ready = all(found[name].state in OVER for name in stage.after)
        found[stage.name] = _carried(stage, work) if ready else Standing(stage.name, stage.about, LATER)
    return list(found.values())


def _carried(stage: Stage, work: Work) -> Standing:
    why = stage.skips(work)
    if why:
        return Standing(stage.name, stage.about, LEFT_OUT, why)
    if stage.do is not None:
        if not _is_over(stage, work):
            stage.do(work)
        return Standing(stage.name, stage.about, DONE)
    left = _asked(stage, work)
    return Standing(stage.name, stage.about, WAITS if left else DONE, left)


def _is_over(stage: Stage, work: Work) -> bool:
    """Whether people were asked after a step was finished: then its options are fixed, and no model is loaded to say so again."""
    step = work.at(stage.name)
    return (work.folder / CAMPAIGN).exists() and (step / MANIFEST).exists() and bool(manifest(step)["finished"])


def _require_options(recipe: Recipe, work: Work) -> None:
    strange = next((key for key in work.options if key not in (*recipe.options, SKIP_BAD)), None)
    if strange is not None:
        raise WrongWords(f"the recipe {recipe.name} has no option {strange!r}; it has {', '.join(recipe.options) or 'none'}.")


def _begin(recipe: Recipe, work: Work) -> None:
    """Write down what is being made; a folder of something else is refused.

    Until people are asked, options may be said anew, as where a generator turns out not to be there: steps that were done with
    others refuse them by themselves. As long as nothing is done, everything may be.
    """
    wanted = {"recipe": recipe.name, "data": work.data, "options": dict(work.options), "seed": work.seed}
    path = work.folder / TOLD
    if path.exists():
        fixed = {key: value for key, value in wanted.items() if key in _fixed(work.folder)}
        try:
            seen = json.loads(path.read_text(encoding="utf-8"))
            other = next((key for key, value in json.loads(json.dumps(fixed)).items() if seen.get(key) != value), None)
            same = all(seen.get(key) == value for key, value in json.loads(json.dumps(wanted)).items())
        except (ValueError, AttributeError):
            raise CrossmatchError(f"{path} cannot be read. Take another folder.") from None
        if other is not None:
            raise WrongWords(
                f"{work.folder} was begun with other {other}: {seen.get(other)!r:.80}, and not {wanted[other]!r:.80}. "
                "Say the same again to go on, or take another folder."
            )
        if same:
            return
    elif work.folder.exists() and (not work.folder.is_dir() or any(_kept(work.folder))):
        raise WrongWords(f"{work.folder} is there already, and holds no recipe. Take another folder.")
    work.folder.mkdir(parents=True, exist_ok=True)
    with whole_file(path, durable=True) as file:
        file.write(json.dumps({**wanted, "crossmatch": __version__}, indent=1, ensure_ascii=False).encode())


def _fixed(folder: Path) -> tuple[str, ...]:
    """What cannot be said anew."""
    if (folder / CAMPAIGN).exists():
        return ("recipe", "data", "options", "seed")
    return ("recipe", "data", "seed") if any(file.name not in (TOLD, SKIPPED) for file in _kept(folder)) else ()


def _kept(folder: Path) -> Iterator[Path]:
    """What is in a folder, but for files that were broken off."""
    return (file for file in folder.iterdir() if not file.name.endswith(UNFINISHED))


# -- people


def _asked(stage: Stage, work: Work) -> str:
    """What people have still to do in a stage; nothing, and their answers are exported, where they are done."""
    from crossmatch.study.store import create

    if (work.at(stage.name) / EXPORTED).exists():
        return ""
    campaign = create(work.folder / CAMPAIGN)
    try:
        study = _opened(stage, work, campaign)
        left = _left(campaign, study)
        if not left:
            _export(campaign, study, work)
        return left
    finally:
        campaign.close()


def _opened(stage: Stage, work: Work, campaign: Campaign) -> Study:
    """The study of a stage, begun if it is not there yet."""
    from crossmatch.study.design import load_design
    from crossmatch.study.items import begin_study, read_items
    from crossmatch.study.said import find_study, studies
    from crossmatch.study.sources import source_of

    assert stage.items is not None
    if stage.name not in {one.name for one in studies(campaign)}:
        design = load_design(stage.name, (*stage.design(work), *work.asked))
        path = stage.items(work)
        if not path.stat().st_size:
            raise CrossmatchError(
                f"nothing is left for {stage.name}: {path} is empty, so that there is nothing to ask. Take more data to begin with."
            )
        material = read_items(path, design, source_of(work.data))
        begin_study(campaign, design, material, name=stage.name, excludes=stage.excludes)
    return find_study(campaign, stage.name)


def _left(campaign: Campaign, study: Study) -> str:
    from crossmatch.study.said import progress

    with campaign.reading() as connection:
        far = progress(connection, study.id)
    if not study.open:  # its owner says that it is enough
        return ""
    left = [f"{far.open + far.held:,} of {far.slots:,} answers to HITs are missing"] * bool(far.open + far.held)
    left += [f"{far.review:,} HITs wait for a reviewer"] * bool(far.review)
    return ", ".join(left)


def _export(campaign: Campaign, study: Study, work: Work) -> None:
    from crossmatch.study.export import export

    wanted = study.design.result.yields == "judgements"
    export(campaign, study, work.at(study.name), work.collection if wanted else None)


def next_words(recipe: Recipe, work: Work, found: list[Standing]) -> list[str]:
    """What the user is to do now."""
    if all(one.state in OVER for one in found):
        return [recipe.ends(work)]
    campaign = quote(str(work.folder / CAMPAIGN))
    return [
        f"crossmatch study serve {campaign}",
        "then the same command again (review what waits on the owner's page; to go on with the answers there are, close the study "
        f"there, or by: crossmatch study close {campaign} --study STUDY)",
    ]
