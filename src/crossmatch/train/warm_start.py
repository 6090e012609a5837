"""Warm starts: a recipe that starts from another recipe's model is a list of stages, run in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import Any

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import UndecodableFileError, check_record, decode_json_file
from crossmatch.models import fine_tuned_name
from crossmatch.models.zoo.region_extractors import ExtractorSettings, PixelGrid
from crossmatch.models.zoo.trained_model import ZooConfig, build_model, load_zoo_model
from crossmatch.train.data.sources import DataOptions, TrainingSource
from crossmatch.train.data.training_set import TrainingSet, feature_dimensions
from crossmatch.train.recipe import Override, TrainingRecipe, load_recipe

STAGE_FOLDER = "begin"  # within a stage's folder: the folder of the stage before it
# overrides that apply to all stages
SHARED_TABLES = ("model", "features")
SHARED_TRAIN_KEYS = ("seed", "threads", "images", "fewest", "validation")


@dataclass(frozen=True)
class Stage:
    """One training of a plan: its recipe, folder and data, and the folder of the model that it starts from, if any."""

    recipe: TrainingRecipe
    folder: Path
    options: DataOptions
    begin: Path | None = None


def plan_stages(
    recipe: TrainingRecipe,
    folder: Path,
    options: DataOptions,
    data: str,
    overrides: Iterable[Override],
    begin: Path | None = None,
) -> list[Stage]:
    """List the trainings that a recipe consists of, in the order in which they run.

    `recipe` and `folder` are those of the last stage; each earlier stage uses the folder `begin` within the next one's. With the
    folder of a trained model (`begin`), the recipe that `begins_with` names is not trained. `overrides` are all of the command line.
    """
    stages = [Stage(recipe, folder, options, begin)]
    inherited = list(overrides)
    while stages[0].begin is None and stages[0].recipe.begins_with:
        later = stages[0]
        inherited = overrides_of_base(inherited)
        base = load_recipe(later.recipe.begins_with, data, inherited)
        base_options = replace(later.options, negatives=None) if base.negatives.kind == "none" else later.options
        base_folder = later.folder / STAGE_FOLDER
        stages = [Stage(base, base_folder, base_options), replace(later, begin=base_folder), *stages[1:]]
    return stages


def overrides_of_base(overrides: Iterable[Override]) -> list[Override]:
    """The overrides that apply to the recipe that another begins with.

    Sizes, regions, data and seed apply to both; `begin.train.epochs=3` applies to the other recipe only.

    >>> from crossmatch.train.recipe import parse_overrides
    >>> overrides = parse_overrides(["train.epochs=2", "model.dimensions=64", "begin.train.epochs=3"])
    >>> [(override.key, override.value) for override in overrides_of_base(overrides)]
    [('dimensions', 64), ('epochs', 3)]
    """
    shared, base_only = [], []
    for override in overrides:
        if override.stages_before:
            base_only.append(replace(override, stages_before=override.stages_before - 1))
        elif override.table in SHARED_TABLES or (override.table == "train" and override.key in SHARED_TRAIN_KEYS):
            shared.append(override)
    return shared + base_only


def require_valid_chain(recipe: TrainingRecipe, data: str) -> None:
    """Refuse recipes that begin with each other, or with a recipe of another family."""
    names, current = [recipe.name], recipe
    while current.begins_with:
        current = load_recipe(current.begins_with, data)
        if current.family != recipe.family:
            raise UsageError(
                f"The recipe {recipe.name} of the family {recipe.family!r} begins with {current.name} of the family "
                f"{current.family!r}. Set begins_with to a recipe of the same family."
            )
        if current.name in names:
            raise UsageError(f"The recipe {recipe.name} begins with itself: {' <- '.join([*names, current.name])}.")
        names.append(current.name)


def load_base_model(folder: Path, recipe: TrainingRecipe) -> Any:
    """Load the model of a folder, if the recipe can start from it."""
    if not (folder / "model.json").is_file():
        if (name := fine_tuned_name(folder)) is not None:
            raise UsageError(
                f"--begin {folder}: the folder contains a fine-tuned model of another library. Use --begin {quote(name)}"
            )
        raise UsageError(f"--begin {folder}: there is no model.json. Name the folder of a trained model, or remove --begin.")
    try:
        family = check_record(decode_json_file(folder / "model.json"), "the file", {"family": str})["family"]
    except UndecodableFileError:
        raise CrossmatchError(f"--begin {folder}: model.json cannot be read. Train that model again.") from None
    if family != recipe.family:
        raise UsageError(
            f"--begin {folder}: the model is of the family {family!r}, the recipe {recipe.name} of {recipe.family!r}. Start from "
            "a model of the same family."
        )
    model = load_zoo_model(folder, recipe.family)
    features = model.config.features
    if recipe.features and features.get("kind") != "file" and _with_defaults(recipe.features) != _with_defaults(features):
        raise UsageError(
            f"--begin {folder}: the model was trained on {_describe_features(features)}; the recipe {recipe.name} has "
            f"{_describe_features(recipe.features)}. Start from a model with the same regions, or remove [features]."
        )
    return model


def require_same_region_source(base: Any, data: str, is_file: bool) -> None:
    """Refuse region files for a model trained on pictures, and pictures for a model trained on region files."""
    features = base.config.features
    kind = features.get("kind", "regions")
    if (kind == "file") != is_file:
        source = f"a file ({features.get('source')})" if kind == "file" else "pictures"
        raise UsageError(
            f"--data {data}: its regions come from {'a file' if is_file else 'pictures'}, but the model to start from was trained "
            f"on regions from {source}. Use the same kind of regions, or another model."
        )


def complete_recipe(recipe: TrainingRecipe, base: Any) -> TrainingRecipe:
    """Add the sizes and regions of the base model to a recipe. Regions in files come with the data."""
    config = base.config
    features = recipe.features if config.features.get("kind") == "file" else dict(config.features)
    return replace(recipe, model={**config.net, **recipe.model}, features=features)


def recipe_hash(recipe: TrainingRecipe, base: Any | None) -> str:
    """Hash of a recipe and of the weights that it starts from."""
    digest = recipe.digest()
    return digest if base is None else hashlib.sha256(f"{digest} begins with {base.weights}".encode()).hexdigest()[:12]


def describe_base(base: Any | None) -> dict[str, Any]:
    """The entry of model.json about the model that another started from."""
    return {} if base is None else {"begin": {"name": base.recipe.get("name", base.config.family), "weights": base.weights}}


def build_from_base(
    recipe: TrainingRecipe, base: Any, source: TrainingSource, train: TrainingSet, description: Mapping[str, Any]
) -> Any:
    """Build a model of the completed recipe with the weights, vocabulary and regions of another. Dropout may differ."""
    config, kind = base.config, base.config.features.get("kind")
    if kind == "file" and feature_dimensions(train.store) != config.features["dimensions"]:
        raise UsageError(
            f"{source.name} has regions of {feature_dimensions(train.store)} numbers; the model to start from has "
            f"{config.features['dimensions']}. Use data with the same regions."
        )
    features = {**config.features, "source": source.file} if kind == "file" else config.features
    model = build_model(ZooConfig(recipe.family, dict(recipe.model), config.vocabulary, features), description)
    try:
        model.net.load_state_dict(base.net.state_dict())
    except RuntimeError:
        changed = [name for name, value in recipe.model.items() if config.net.get(name) != value]
        required, existing = ({name: sizes.get(name, "its default") for name in changed} for sizes in (recipe.model, config.net))
        raise UsageError(
            f"The recipe {recipe.name} has a network with {_describe_sizes(required)}; the model to start from has "
            f"{_describe_sizes(existing)}. Start from a model with these sizes, or remove them from [model]."
        ) from None
    return model


def _with_defaults(features: Mapping[str, Any]) -> Any:
    """The table `[features]` with all defaults filled in."""
    kind, options = features.get("kind", "regions"), {name: value for name, value in features.items() if name != "kind"}
    if kind == "regions":
        return kind, ExtractorSettings(**options)
    defaults = {}
    if kind == "pixels":
        defaults = {name: parameter.default for name, parameter in signature(PixelGrid).parameters.items()}
    return kind, {**defaults, **options}


def _describe_features(features: Mapping[str, Any]) -> str:
    options = "".join(f", {name} = {value}" for name, value in features.items() if name != "kind")
    return f"regions of kind {features.get('kind', 'regions')}{options}"


def _describe_sizes(sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items()) or "other sizes"
