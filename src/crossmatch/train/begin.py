"""Beginning with the weights of a model that is trained already: which recipe makes it, and whether it fits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import Any

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models import called_in
from crossmatch.models.zoo.features import Extractor
from crossmatch.models.zoo.model import ZooConfig, load, made
from crossmatch.models.zoo.pixels import PixelGrid
from crossmatch.train.data import TrainingSet, dimensions_of
from crossmatch.train.recipe import Recipe, load_recipe
from crossmatch.train.sources import Source

try:
    import torch  # noqa: F401 - this needs it, though only modules are handed on
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

FOLDER = "begin"  # within the folder of the model: the one that it begins with, where that was trained for it
PREFIX = "begin."  # before a word of the command line that is for that one alone
SHARED = ("model.", "features.", "train.seed=", "train.threads=", "train.images=", "train.fewest=", "train.validation=")


def shared_out(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """The changes to a recipe on the command line: those for itself, and those for the one that it begins with.

    Sizes, regions, data and seed are for both; `begin.train.epochs=3` is for the other alone.

    >>> shared_out(["train.epochs=2", "model.dimensions=64", "begin.train.epochs=3"])
    (['train.epochs=2', 'model.dimensions=64'], ['model.dimensions=64', 'train.epochs=3'])
    """
    given = [word.strip() for word in words]
    own = [word for word in given if not word.startswith(PREFIX)]
    both = [word for word in own if word.replace(" ", "").startswith(SHARED)]
    return own, both + [word.removeprefix(PREFIX) for word in given if word.startswith(PREFIX)]


def require_line(recipe: Recipe, data: str) -> None:
    """Refuse recipes that begin with each other, or with one of another family."""
    seen, at = [recipe.name], recipe
    while at.begins_with:
        at = load_recipe(at.begins_with, data)
        if at.family != recipe.family:
            raise WrongWords(
                f"the recipe {recipe.name} of the family {recipe.family!r} begins with {at.name} of {at.family!r}. Mend "
                "begins_with."
            )
        if at.name in seen:
            raise WrongWords(f"the recipe {recipe.name} begins with itself: {' <- '.join([*seen, at.name])}. Mend begins_with.")
        seen.append(at.name)


def before(recipe: Recipe, data: str, words: Iterable[str]) -> Recipe:
    """The recipe that another begins with, as these words change it; what is wrong with a word is said of it as it was written."""
    given = list(words)
    try:
        return load_recipe(recipe.begins_with, data, shared_out(shared_out(given)[1])[0])
    except WrongWords as error:
        said, own = str(error), [word.strip() for word in given if word.strip().startswith(PREFIX)]
        for word in own:
            said = said.replace(f"--set {word.removeprefix(PREFIX)}:", f"--set {word}:")
        raise WrongWords(said) from None


def begun(folder: Path, recipe: Recipe) -> Any:
    """The model in a folder, if the recipe can begin with it."""
    try:
        family = json.loads((folder / "model.json").read_bytes())["family"]
    except OSError:
        if (name := called_in(folder)) is not None:
            raise WrongWords(f"--begin {folder}: it holds a fine-tuned model of another library: --begin {quote(name)}") from None
        raise WrongWords(
            f"--begin {folder}: there is no model.json. Name the folder of a trained model, or leave --begin out."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise CrossmatchError(f"--begin {folder}: its model.json cannot be read. Train that model again.") from None
    if family != recipe.family:
        raise WrongWords(
            f"{folder} holds a model of the family {family!r}; the recipe {recipe.name} is of {recipe.family!r}. Begin with one of "
            "the same family."
        )
    model = load(folder, recipe.family)
    there = model.config.features
    if recipe.features and there.get("kind") != "file" and _complete(recipe.features) != _complete(there):
        raise WrongWords(
            f"{folder} was trained on regions of {_worded(there)}; the recipe {recipe.name} has "
            f"{_worded(recipe.features)}. Begin with a model of the same regions, or leave [features] out."
        )
    return model


def require_source(base: Any, data: str, in_file: bool) -> None:
    """Refuse data whose regions come from files for a model whose own come from pictures, and the other way round."""
    features = base.config.features
    kind = features.get("kind", "regions")
    if (kind == "file") != in_file:
        was = f"a file ({features.get('source')})" if kind == "file" else "pictures"
        raise WrongWords(
            f"the model to begin with was trained on regions from {was}; those of {data} come from "
            f"{'a file' if in_file else 'pictures'}. Name data of the same regions, or another model."
        )


def completed(recipe: Recipe, base: Any) -> Recipe:
    """The recipe with the sizes and regions of the model that it begins with. Regions in files come with the data."""
    was = base.config
    return replace(
        recipe,
        model={**was.net, **recipe.model},
        features=recipe.features if was.features.get("kind") == "file" else dict(was.features),
    )


def identified(recipe: Recipe, base: Any | None) -> str:
    """The hash of a recipe, with that of the weights that it begins with."""
    own = recipe.digest()
    return own if base is None else hashlib.sha256(f"{own} begins with {base.weights}".encode()).hexdigest()[:12]


def told_of(base: Any | None) -> dict[str, Any]:
    """What model.json says of the model that another began with."""
    return {} if base is None else {"begin": {"name": base.recipe.get("name", base.config.family), "weights": base.weights}}


def grown(recipe: Recipe, base: Any, held: Source, train: TrainingSet, told: Mapping[str, Any]) -> Any:
    """A model of the completed recipe with the weights, words and regions of another. What has no weights may differ: dropout."""
    was, kind = base.config, base.config.features.get("kind")
    if kind == "file" and dimensions_of(train.store) != was.features["dimensions"]:
        raise WrongWords(
            f"the model to begin with has regions of {was.features['dimensions']} numbers; those of {held.name} have "
            f"{dimensions_of(train.store)}. Name data of the same regions."
        )
    features = {**was.features, "source": held.file} if kind == "file" else was.features
    model = made(ZooConfig(recipe.family, dict(recipe.model), was.vocabulary, features), told)
    try:
        model.net.load_state_dict(base.net.state_dict())
    except RuntimeError:
        apart = [name for name, value in recipe.model.items() if was.net.get(name) != value]
        asked, there = ({name: sizes.get(name, "its default") for name in apart} for sizes in (recipe.model, was.net))
        raise WrongWords(
            f"the recipe {recipe.name} asks for a network of {_listed(asked)}; the model to begin with has {_listed(there)}. Begin "
            "with one of these sizes, or leave them out of [model]."
        ) from None
    return model


def _complete(features: Mapping[str, Any]) -> Any:
    """With everything that is left out at its default."""
    kind, given = features.get("kind", "regions"), {name: value for name, value in features.items() if name != "kind"}
    if kind == "regions":
        return kind, Extractor(**given)
    sizes = {name: each.default for name, each in signature(PixelGrid).parameters.items()} if kind == "pixels" else {}
    return kind, {**sizes, **given}


def _worded(features: Mapping[str, Any]) -> str:
    return f"the kind {features.get('kind', 'regions')}" + "".join(
        f", {name} = {value}" for name, value in features.items() if name != "kind"
    )


def _listed(sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items()) or "other sizes"
