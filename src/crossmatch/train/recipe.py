"""Training recipes: TOML files that declare how a system is built and trained. Needs no torch.

family = "vse"                       which network
[model] [features] [objective] [train]     published sizes, regions, loss and training
[negatives]                          hard negatives, if any
[diorama.model] …                    differences on the embedded world, which is small
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal

from crossmatch.data.errors import UsageError
from crossmatch.data.io.declaration_files import declaration_name, packaged_names, parse_assignment, read_declaration
from crossmatch.data.settings import check_type, format_value, suggest_name, validate_settings
from crossmatch.train.objectives import OBJECTIVES

TABLES = ("model", "features", "objective", "negatives", "train")
DIORAMA = "diorama"
BEGIN_PREFIX = "begin."  # of an override of the recipe that another begins with
MAX_RATE = 1000.0  # of a learning rate, a weight decay or an epsilon: far beyond useful values, and within float32
MAX_THREADS = 1024  # more than any machine has, so that a typing error is noticed
# Defaults on the embedded world: all words are frequent, and validation takes little time.
ON_DIORAMA: Mapping[str, Mapping[str, Any]] = {"train": {"fewest": 1, "validation": 300}}


@dataclass(frozen=True)
class TrainSettings:
    """The table `[train]`. Together with the data, everything that the weights depend on apart from the machine."""

    optimiser: Literal["adam", "adamw"] = "adam"
    learning_rate: float = field(default=2e-4, metadata={"above": 0, "most": MAX_RATE})
    batch: int = field(default=128, metadata={"least": 2})  # image-caption pairs per step
    epochs: int = field(default=30, metadata={"least": 1})
    beta1: float = field(default=0.9, metadata={"least": 0, "below": 1})  # of Adam
    beta2: float = field(default=0.999, metadata={"least": 0, "below": 1})  # of Adam
    eps: float = field(default=1e-8, metadata={"above": 0, "most": MAX_RATE})  # of Adam
    schedule: Literal["steps", "one-cycle", "one-cycle-momentum", "cosine"] = "steps"
    # epochs after which the learning rate is multiplied by `decay`; 0: never
    decay_every: int = field(default=0, metadata={"least": 0})
    decay: float = field(default=0.1, metadata={"above": 0, "most": 1})
    # share of the one cycle in which the learning rate rises
    warm_up: float = field(default=0.15, metadata={"above": 0, "most": 1})
    warm_up_steps: int = field(default=0, metadata={"least": 0})  # steps in which it rises before the cosine schedule
    clip: float = field(default=0.0, metadata={"least": 0})  # largest norm of the gradient; 0: no limit
    weight_decay: float = field(default=0.0, metadata={"least": 0, "most": MAX_RATE})
    patience: int = field(default=0, metadata={"least": 0})  # epochs without improvement after which training stops; 0: never
    pairs: Literal["images", "captions"] = "images"  # captions: each row also has another caption of its image
    images: int = field(default=0, metadata={"least": 0})  # largest number of training images; 0: all
    fewest: int = field(default=4, metadata={"least": 1})  # occurrences that make a word known; released code of faghri2018vse
    validation: int = field(default=1000, metadata={"least": 2})  # largest number of validation images
    threads: int = field(default=1, metadata={"least": 1, "most": MAX_THREADS})  # sums depend on the number of threads
    seed: int = field(default=0, metadata={"least": 0, "most": 2**32 - 1})


@dataclass(frozen=True)
class NegativeSettings:
    """The table `[negatives]`: hard negatives of the training. All but the kind applies to the embedded world only.

        none      no negatives: all image-caption pairs
        unused    the pairs for which a negative exists, without it: the control for the two below
        texts     these pairs, each with a false caption
        pairs     these pairs, each with a false caption and an image of it

    A wrong negative image does not match the negative caption, as when a generator misses the relevant change; miranda2024bivlc,
    sec. 5.3, estimates 61 % of wrong images in its own training set.
    """

    kind: Literal["none", "unused", "texts", "pairs"] = "none"
    # Drawing style of negative images, and of the synthetic images of the validation trials; all others are in camera style.
    # The recipes with negatives use the generator's, as miranda2024bivlc, sec. 5.2.
    style: Literal["camera", "generator"] = "camera"
    noise: float = field(default=0.0, metadata={"least": 0, "most": 1})  # share of wrong negative images
    each: int = field(default=1, metadata={"least": 1, "most": 7})  # largest number of edits of a scene, of different categories
    seed: int = field(default=0, metadata={"least": 0, "most": 2**32 - 1})  # of the edits and of the wrong images


@dataclass(frozen=True)
class TrainingRecipe:
    """One variant of one family: a file in `train/recipes`, or a user's own.

    `load_recipe` loads it.

    Attributes:
        name: The name of the recipe.
        family: The kind of model.
        about: One line for the list of recipes.
        paper: Key of the paper that published it.
        evaluated_by: Keys of the papers that evaluate it.
        begins_with: The recipe whose trained weights it starts from.
        model: Sizes of the network.
        features: Source of the regions.
        objective: Name and options of the loss.
        negatives: Hard negatives of the training.
        train: Optimiser, learning rate, batch, epochs and the like.

    >>> from crossmatch.train import load_recipe
    >>> recipe = load_recipe("vse++")
    >>> recipe.family, recipe.objective["negatives"], recipe.train.optimiser
    ('vse', 'hardest', 'adam')
    """

    name: str
    family: str
    about: str
    paper: str
    evaluated_by: tuple[str, ...] = ()
    begins_with: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    features: Mapping[str, Any] = field(default_factory=dict)
    objective: Mapping[str, Any] = field(default_factory=dict)
    negatives: NegativeSettings = NegativeSettings()
    train: TrainSettings = TrainSettings()

    def as_table(self) -> dict[str, Any]:
        """Everything that the weights depend on, as model.json stores it."""
        tables = {name: asdict(getattr(self, name)) if name in SETTINGS else dict(getattr(self, name)) for name in TABLES}
        return {"family": self.family, **tables}

    def digest(self) -> str:
        """Twelve hexadecimal digits that change with everything that may change the weights."""
        return hashlib.sha256(json.dumps(self.as_table(), sort_keys=True).encode()).hexdigest()[:12]


# Tables with a fixed set of keys.
SETTINGS: Mapping[str, type[NegativeSettings | TrainSettings]] = {"negatives": NegativeSettings, "train": TrainSettings}


@dataclass(frozen=True)
class Override:
    """A change to one value of a recipe."""

    table: str
    key: str
    value: Any
    option: str  # of the command line, as the user wrote it, for error messages
    stages_before: int = 0  # 0: changes the recipe itself; 1: the recipe that it begins with; …

    @classmethod
    def parse(cls, text: str) -> Override:
        """Parse an argument of `--set`, such as `train.epochs=3` or `begin.train.epochs=3`."""
        own_text, stages_before = text.strip(), 0
        while own_text.startswith(BEGIN_PREFIX):
            own_text, stages_before = own_text.removeprefix(BEGIN_PREFIX), stages_before + 1
        assignment = parse_assignment(own_text)
        if assignment is None or assignment[0] not in TABLES:
            table = own_text.partition("=")[0].strip().partition(".")[0]
            hint = "" if table in TABLES else f" {suggest_name(table, TABLES)}"
            raise UsageError(f"--set {text}: expected TABLE.KEY=VALUE, such as --set train.epochs=3.{hint}")
        return cls(*assignment, f"--set {text.strip()}", stages_before)


def parse_overrides(overrides: Iterable[str | Override]) -> list[Override]:
    """Parse those overrides that are texts."""
    return [override if isinstance(override, Override) else Override.parse(override) for override in overrides]


def recipes() -> dict[str, TrainingRecipe]:
    """Load the packaged recipes by name, with the published settings."""
    return {name: load_recipe(name, data="") for name in recipe_names()}


def recipe_names() -> list[str]:
    """Names of the packaged recipes, sorted.

    >>> [name for name in recipe_names() if name.startswith("vse")]
    ['vse++', 'vse-infinity', 'vse-semi-hard', 'vse0']
    """
    return packaged_names(_recipe_folder())


def load_recipe(name: str | Path, data: str = DIORAMA, overrides: Iterable[str | Override] = ()) -> TrainingRecipe:
    """Load a recipe by name or file.

    Args:
        name: Name of a packaged recipe, or a .toml file.
        data: Kind of the training data; for "diorama" the tables `[diorama.*]` take precedence.
        overrides: Changes such as "train.epochs=3", applied last. Those of the recipe that it begins with do not count.

    >>> recipe = load_recipe("vse0", overrides=["train.epochs=3"])
    >>> recipe.family, recipe.train.epochs
    ('vse', 3)
    >>> load_recipe("vse0", overrides=["train.epoch=3"])
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: --set train.epoch=3: [train] has no key 'epoch'. Did you mean 'epochs'?
    """
    where, content = str(name), _read_recipe(str(name))
    tables = {key: dict(content.get(key, {})) for key in TABLES}
    if data == DIORAMA:
        special = content.get(DIORAMA, {})
        for key in TABLES:
            tables[key] |= {**ON_DIORAMA.get(key, {}), **special.get(key, {})}
    own_overrides = [override for override in parse_overrides(overrides) if not override.stages_before]
    for override in own_overrides:
        _apply_override(tables, override)
    top = {key: value for key, value in content.items() if key not in (*TABLES, DIORAMA)}
    parsed: dict[str, Any] = dict(tables)
    for key, settings in SETTINGS.items():
        parsed[key] = settings(**validate_settings(tables[key], settings, f"{where}: [{key}]"))
    for override in own_overrides:
        _require_effect(override, parsed["negatives"].kind, declaration_name(name), data)
    objective = tables["objective"].get("name")
    with_negatives = [name for name, entry in OBJECTIVES.items() if entry.uses_negatives]
    if parsed["negatives"].kind != "none" and objective not in with_negatives:
        raise UsageError(
            f"{where} has hard negatives, but the objective {objective!r} does not use them. Set negatives.kind=none, or "
            f"objective.name={with_negatives[0]}"
        )
    return TrainingRecipe(declaration_name(name), **top, **parsed)


def _recipe_folder() -> Traversable:
    return files("crossmatch.train") / "recipes"


def _read_recipe(name: str) -> dict[str, Any]:
    content = read_declaration(name, _recipe_folder(), "recipe", "crossmatch list recipes")
    _check_top_level(content, name)
    return content


def _check_top_level(content: dict[str, Any], where: str) -> None:
    """Check the top-level keys: known, of the right type, and none missing."""
    required = ("family", "about", "paper")
    allowed = (*required, "evaluated_by", "begins_with", *TABLES, DIORAMA)
    for key, value in content.items():
        if key not in allowed:
            raise UsageError(f"{where} has no key {key!r}. {suggest_name(key, allowed)}")
        if key in (*TABLES, DIORAMA) and not isinstance(value, dict):
            raise UsageError(f"{where} has {key} = {format_value(value)}; expected a table: [{key}].")
        if key in (*required, "begins_with") and not isinstance(value, str):
            raise UsageError(f"{where} has {key} = {format_value(value)}; expected a text.")
    for key, value in content.get(DIORAMA, {}).items():
        if key not in TABLES or not isinstance(value, dict):
            raise UsageError(f"{where} has no table [{DIORAMA}.{key}]. {suggest_name(key, TABLES)}")
    missing = next((key for key in required if key not in content), None)
    if missing:
        raise UsageError(f'{where} has no {missing}. Add a line: {missing} = "…"')
    content["evaluated_by"] = check_type(content.get("evaluated_by", []), tuple[str, ...], f"{where} has evaluated_by")


def _require_effect(override: Override, kind: str, recipe: str, data: str) -> None:
    """Refuse an override of hard negatives that would change nothing."""
    if override.table != "negatives" or override.key == "kind":
        return
    reason = ""
    if kind == "none":
        reason = f"the recipe {recipe} has no hard negatives; clip-hard-texts and clip-hard-pairs have some"
    elif override.key == "noise" and kind != "pairs":
        reason = f"noise is the share of wrong negative images, and negatives.kind={kind} has no negative images; pairs has"
    elif data not in (DIORAMA, ""):
        reason = f"it applies to the edits of {DIORAMA}; the negatives of a {data} come from a file"
    if reason:
        raise UsageError(f"{override.option}: it has no effect, because {reason}. Remove it.")


def _apply_override(tables: dict[str, dict[str, Any]], override: Override) -> None:
    table, key, value = override.table, override.key, override.value
    if table in SETTINGS:
        value = validate_settings({key: value}, SETTINGS[table], f"{override.option}: [{table}]")[key]
    elif key in tables[table]:
        value = check_type(value, type(tables[table][key]), f"{override.option}: [{table}] has {key} = {format_value(value)}")
    tables[table][key] = value
