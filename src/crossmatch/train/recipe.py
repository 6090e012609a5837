"""Recipes: small TOML files that say how a system of the zoo is built and trained. Needs no torch.

family = "vse"                       which network
[model] [features] [objective] [train]     the published sizes, regions, loss and training
[negatives]                          the hard negatives that it is trained with, if any
[diorama.model] …                    what differs on the embedded world, which is small
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

from crossmatch.core.declared import checked, nearest, shown, typed
from crossmatch.core.errors import WrongWords
from crossmatch.core.packaged import SUFFIX, assigned, called, names_in, read_declaration
from crossmatch.train.objectives import USE_NEGATIVES

TABLES = ("model", "features", "objective", "negatives", "train")
DIORAMA = "diorama"
LARGEST = 1000.0  # of a learning rate, a weight decay or an epsilon: far beyond what trains anything, and within float32
THREADS = 1024  # of the computation, at most: more than any machine has, and what a typing error exceeds
# On the embedded world, unless a recipe says otherwise: few words, none of them rare, and few minutes.
ON_DIORAMA: Mapping[str, Mapping[str, Any]] = {"train": {"fewest": 1, "validation": 300}}


@dataclass(frozen=True)
class TrainSettings:
    """How a network is trained; together with the data, everything that its weights depend on apart from the machine."""

    optimiser: Literal["adam", "adamw"] = "adam"
    learning_rate: float = field(default=2e-4, metadata={"above": 0, "most": LARGEST})
    batch: int = field(default=128, metadata={"least": 2})  # pairs of an image and a caption
    epochs: int = field(default=30, metadata={"least": 1})
    beta1: float = field(default=0.9, metadata={"least": 0, "below": 1})  # of Adam's running mean of the gradient
    beta2: float = field(default=0.999, metadata={"least": 0, "below": 1})  # and of its square
    eps: float = field(default=1e-8, metadata={"above": 0, "most": LARGEST})  # added to the root of the latter
    schedule: Literal["steps", "one-cycle", "cosine"] = "steps"
    decay_every: int = field(
        default=0, metadata={"least": 0}
    )  # epochs after which the learning rate is multiplied by `decay`; 0: never
    decay: float = field(default=0.1, metadata={"above": 0, "most": 1})
    warm_up: float = field(
        default=0.15, metadata={"above": 0, "most": 1}
    )  # share of the one cycle in which the learning rate rises
    warm_up_steps: int = field(default=0, metadata={"least": 0})  # in which it rises before it falls along a cosine
    clip: float = field(default=0.0, metadata={"least": 0})  # of the gradient's norm; 0: none
    weight_decay: float = field(default=0.0, metadata={"least": 0, "most": LARGEST})
    patience: int = field(default=0, metadata={"least": 0})  # epochs without improvement after which training stops; 0: never
    pairs: Literal["images", "captions"] = "images"  # captions: each row has another caption of its image beside it
    images: int = field(default=0, metadata={"least": 0})  # to train on, at most; 0: all
    fewest: int = field(default=4, metadata={"least": 1})  # times that a word must occur to be known; faghri2018vse's released code
    validation: int = field(default=1000, metadata={"least": 2})  # images, at most, that an epoch is judged by
    threads: int = field(default=1, metadata={"least": 1, "most": THREADS})  # sums over several threads depend on their number
    seed: int = field(default=0, metadata={"least": 0, "most": 2**32 - 1})


@dataclass(frozen=True)
class NegativeSettings:
    """The hard negatives that a system is trained with; all but the kind is for the embedded world, where they can be made.

    A wrong negative image is one of which the negative caption is not true, as when a generator draws what it was asked for but
    not the change that matters; miranda2024bivlc, sec. 5.3, estimates 61 % of them in its own training set.

        none      no negatives: all pairs of an image and a caption
        unused    those pairs that would have one, without it: what the two below are compared with
        texts     those pairs, with a false caption for each
        pairs     and with an image of that caption
    """

    kind: Literal["none", "unused", "texts", "pairs"] = "none"
    # In which negative images are drawn, and the synthetic ones of the trials that validate; all others are the camera's. The
    # recipes with negatives ask for the generator's, as miranda2024bivlc, sec. 5.2, has them.
    style: Literal["camera", "generator"] = "camera"
    noise: float = field(default=0.0, metadata={"least": 0, "most": 1})  # share of wrong negative images
    each: int = field(default=1, metadata={"least": 1, "most": 7})  # edits of a scene, of different categories, at most
    seed: int = field(default=0, metadata={"least": 0, "most": 2**32 - 1})  # of the edits, and of which images are wrong


@dataclass(frozen=True)
class Recipe:
    """One variant of one family."""

    name: str
    family: str
    about: str
    paper: str  # the key of the paper that published it
    evaluated_by: tuple[str, ...] = ()  # the keys of those that evaluate it
    begins_with: str = ""  # the recipe whose trained weights it begins with
    model: Mapping[str, Any] = field(default_factory=dict)  # sizes of the network
    features: Mapping[str, Any] = field(default_factory=dict)  # where regions come from
    objective: Mapping[str, Any] = field(default_factory=dict)  # the loss by name, and its options
    negatives: NegativeSettings = NegativeSettings()
    train: TrainSettings = TrainSettings()

    def told(self) -> dict[str, Any]:
        """What the weights depend on, for model.json."""
        told = {name: asdict(getattr(self, name)) if name in SETTINGS else dict(getattr(self, name)) for name in TABLES}
        return {"family": self.family, **told}

    def digest(self) -> str:
        """Twelve hexadecimal digits that change with anything that may change the weights."""
        return hashlib.sha256(json.dumps(self.told(), sort_keys=True).encode()).hexdigest()[:12]


# The tables whose keys are known beforehand.
SETTINGS: Mapping[str, type[NegativeSettings | TrainSettings]] = {"negatives": NegativeSettings, "train": TrainSettings}


def recipes() -> dict[str, Recipe]:
    """The packaged recipes by name, as published."""
    return {name: load_recipe(name, data="") for name in names()}


def names() -> list[str]:
    """The names of the packaged recipes, by alphabet."""
    return names_in(_home())


def is_recipe(name: str) -> bool:
    """Whether this is the name of a packaged recipe, or a recipe file."""
    return name in names() or (name.endswith(SUFFIX) and Path(name).is_file())


def load_recipe(name: str | Path, data: str = DIORAMA, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe of this name or file. For the embedded world, its tables `[diorama.*]` take precedence; `overrides` have the last
    word.

    >>> recipe = load_recipe("vse0", overrides=["train.epochs=3"])
    >>> recipe.family, recipe.train.epochs
    ('vse', 3)
    >>> load_recipe("vse0", overrides=["train.epoch=3"])
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: --set train.epoch=3: [train] has no key 'epoch'. Did you mean 'epochs'?
    """
    where, table = str(name), _read(str(name))
    tables = {each: dict(table.get(each, {})) for each in TABLES}
    if data == DIORAMA:
        special = table.get(DIORAMA, {})
        for each in TABLES:
            tables[each] |= {**ON_DIORAMA.get(each, {}), **special.get(each, {})}
    words = list(overrides)
    for word in words:
        _override(tables, word)
    told = {key: value for key, value in table.items() if key not in (*TABLES, DIORAMA)}
    held: dict[str, Any] = {
        each: SETTINGS[each](**checked(table, SETTINGS[each], f"{where}: [{each}]")) if each in SETTINGS else table
        for each, table in tables.items()
    }
    for word in words:
        _require_used(word, held["negatives"].kind, called(name), data)
    aim = tables["objective"].get("name")
    if held["negatives"].kind != "none" and aim not in USE_NEGATIVES:
        raise WrongWords(
            f"{where} has hard negatives, but its objective {aim!r} makes no use of them. Set negatives.kind=none, or "
            f"objective.name={USE_NEGATIVES[0]}"
        )
    return Recipe(called(name), **told, **held)


def _home() -> Traversable:
    return files("crossmatch.train") / "recipes"


def _read(name: str) -> dict[str, Any]:
    """The file of a recipe as tables."""
    table = read_declaration(name, _home(), "recipe", "crossmatch train --list")
    _require_shape(table, name)
    return table


def _require_shape(table: dict[str, Any], where: str) -> None:
    """The words at the top: all known, of the right type, and none that must be there missing."""
    texts, top = ("family", "about", "paper"), ("family", "about", "paper", "evaluated_by", "begins_with", *TABLES, DIORAMA)
    for key, value in table.items():
        if key not in top:
            raise WrongWords(f"{where} has no key {key!r}. {nearest(key, top)}")
        if key in (*TABLES, DIORAMA) and not isinstance(value, dict):
            raise WrongWords(f"{where} has {key} = {shown(value)}; a table was expected: [{key}].")
        if key in (*texts, "begins_with") and not isinstance(value, str):
            raise WrongWords(f"{where} has {key} = {shown(value)}; a text was expected.")
    for key, value in table.get(DIORAMA, {}).items():
        if key not in TABLES or not isinstance(value, dict):
            raise WrongWords(f"{where} has no table [{DIORAMA}.{key}]. {nearest(key, TABLES)}")
    missing = next((key for key in texts if key not in table), None)
    if missing:
        raise WrongWords(f'{where} does not say its {missing}. Add a line: {missing} = "…"')
    table["evaluated_by"] = typed(table.get("evaluated_by", []), tuple[str, ...], f"{where} has evaluated_by")


def _require_used(word: str, kind: str, recipe: str, data: str) -> None:
    """Refuse a change of hard negatives that are not there: it would change nothing."""
    table, _, name = word.partition("=")[0].strip().partition(".")
    if table != "negatives" or name == "kind":
        return
    why = ""
    if kind == "none":
        why = f"is for hard negatives, and the recipe {recipe} has none; clip-hard-texts and clip-hard-pairs do"
    elif name == "noise" and kind != "pairs":
        why = (
            f"is the share of wrong negative images, and with negatives.kind={kind} there are no such images; with pairs there are"
        )
    elif data not in (DIORAMA, ""):
        why = f"is for the edits of {DIORAMA}; the negatives of a {data} come from a file as they are"
    if why:
        raise WrongWords(f"--set {word.strip()}: it {why}. Leave it out.")


def _override(tables: dict[str, dict[str, Any]], word: str) -> None:
    """Put `train.epochs=3` in its place."""
    given = assigned(word)
    if given is None or given[0] not in tables:
        table = word.partition("=")[0].strip().partition(".")[0]
        hint = "" if table in tables else f" {nearest(table, TABLES)}"
        raise WrongWords(f"--set {word}: TABLE.KEY=VALUE was expected, as in --set train.epochs=3.{hint}")
    table, name, value = given
    if table in SETTINGS:
        value = checked({name: value}, SETTINGS[table], f"--set {word}: [{table}]")[name]
    elif name in tables[table]:
        value = typed(value, type(tables[table][name]), f"--set {word}: [{table}] has {name} = {shown(value)}")
    tables[table][name] = value
