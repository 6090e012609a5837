"""Train a system of the zoo by its recipe: from the words of a user to a folder with the trained model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from crossmatch.core.declared import checked, nearest
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.skipped import Unusable
from crossmatch.models.zoo.families import NETWORKS
from crossmatch.models.zoo.inputs import Vocabulary
from crossmatch.models.zoo.model import ZooConfig, load, made
from crossmatch.train.begin import (
    FOLDER,
    PREFIX,
    before,
    begun,
    completed,
    grown,
    identified,
    require_line,
    require_source,
    shared_out,
    told_of,
)
from crossmatch.train.checkpoints import Checkpoints, Identity, alone, require_same
from crossmatch.train.data import TrainingSet, dimensions_of
from crossmatch.train.dual import reproducible
from crossmatch.train.hard_files import NegativeFile
from crossmatch.train.judge import validated_by
from crossmatch.train.loop import EVERY, Training, fit
from crossmatch.train.objectives import OBJECTIVES, objective
from crossmatch.train.objectives.options import FAMILIES, OPTIONS
from crossmatch.train.place import require_place
from crossmatch.train.recipe import Recipe, load_recipe
from crossmatch.train.sources import Asked, Source, require_asked, source

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

LIBRARIES = ("hf:", "open_clip:")  # how the name of a model begins that `fine_tune` trains further
MOST_PIXELS = 1024  # of a side, or channels
KINDS = ("regions", "pixels")  # where a recipe may take its regions from; a file is named on the command line


def train_zoo(
    recipe: str | Path,
    output: Path | str,
    *,
    data: str = "diorama",
    asked: Asked | None = None,
    overrides: Iterable[str] = (),
    begin: Path | str | None = None,
    restart: bool = False,
    tensorboard: bool = False,
    tell: Callable[[str], object] = lambda said: None,
    every: float = EVERY,
) -> Any:
    """The model of this recipe, trained on these data; it, its log and its checkpoints are in the folder `output`.

    A folder that holds the finished model of the same recipe and data is loaded instead, an interrupted training goes on, and one
    of another recipe or other data is refused unless `restart`. Training begins with the weights in the folder `begin`, if there is
    one, or with those of the recipe that this one begins with, which is trained first, in a folder within `output`. Another
    library's model that `begin` names is trained further by itself (see `fine_tune`).
    """
    folder, world, overrides = Path(output), data.partition(":")[0], list(overrides)
    own, others = shared_out(overrides)
    chosen, foreign = load_recipe(recipe, world, own), begin is not None and str(begin).startswith(LIBRARIES)
    if foreign:  # a large network is trained as published; how the embedded world trains its small ones is nothing to it
        chosen = replace(load_recipe(recipe, "", own), negatives=chosen.negatives)
    require_known(chosen)
    require_line(chosen, world)
    _require_other(chosen, folder, begin, overrides)
    require_place(folder, restart)
    asked = asked or Asked()
    if foreign:
        from crossmatch.train.fine_tune import fine_tune

        with _all_usable():
            return fine_tune(chosen, folder, str(begin), data=data, asked=asked, restart=restart, tensorboard=tensorboard,
                             tell=tell, every=every)  # fmt: skip
    images, judged = asked.images or chosen.train.images or None, chosen.train.validation
    wanted = replace(asked, images=images, judged=judged, hard=chosen.negatives)
    require_asked(data, wanted)
    with alone(folder), _all_usable():
        base = None
        if begin is not None:
            base = begun(Path(begin).expanduser(), chosen)
        elif chosen.begins_with:
            first = before(chosen, world, overrides)
            require_known(first)
            if wanted.negatives is not None:  # better seen now than after that training
                NegativeFile.read(wanted.negatives, chosen.negatives.kind == "pairs")
            plain = first.negatives.kind == "none"
            tell(f"{chosen.name} begins with {chosen.begins_with}, in {folder / FOLDER}")
            train_zoo(chosen.begins_with, folder / FOLDER, data=data, asked=replace(asked, negatives=None) if plain else asked,
                      overrides=others, restart=restart, tensorboard=tensorboard, tell=tell, every=every)  # fmt: skip
            base = begun(folder / FOLDER, chosen)
        if base is not None:
            require_source(base, data, in_file=world == "precomp" or asked.regions is not None)
            chosen = completed(chosen, base)
        held = source(data, chosen.features, wanted)
        identity = Identity(identified(chosen, base), held.digest, chosen.told())
        checkpoints = Checkpoints(folder, identity, tell)
        if restart:
            _clear(folder, checkpoints)
        finished = _finished(folder, identity, tell)
        if finished is not None:
            tell(f"{folder} holds the finished model of this recipe and these data; nothing is left to train")
            checkpoints.drop()
            return finished
        train, validation = held.load()
        model = built(chosen, held, train, base)
        training = Training(model, *_aim(chosen, train, model.vocabulary), train, validation, chosen.train)
        state = fit(training, checkpoints, tensorboard=tensorboard, every=every)
        model.recipe |= {"best_epoch": state.best_epoch, "epochs": state.epoch, "validation": state.best}
        model.recipe |= {"validated_by": validated_by(model, validation)}
        _save(model, folder)
        checkpoints.drop()
    return model


@contextmanager
def _all_usable() -> Iterator[None]:
    """An item that cannot be used is mended or removed: a training leaves none out."""
    try:
        yield
    except Unusable as error:
        raise CrossmatchError(error.why) from None


def built(recipe: Recipe, held: Source, train: TrainingSet, base: Any | None = None) -> Any:
    """The model as it is before the training: its words are those of the training captions, its first weights follow from the seed.

    Or words and weights are those of the model that it begins with.
    """
    told = {"name": recipe.name, "hash": identified(recipe, base), "data": held.name, "data_hash": held.digest, **recipe.told()}
    with reproducible(recipe.train.seed):
        torch.set_num_threads(recipe.train.threads)
        model = _fresh(recipe, held, train, told) if base is None else grown(recipe, base, held, train, told | told_of(base))
    if model.config.features.get("kind", KINDS[0]) == "regions" and model.net.look is not None:
        _open_eyes(model, model.config.features)
    return model


def _fresh(recipe: Recipe, held: Source, train: TrainingSet, told: Mapping[str, Any]) -> Any:
    words = Vocabulary.of(train.captions, recipe.train.fewest).words
    if not words:
        if not Vocabulary.of(train.captions).words:
            raise CrossmatchError(
                f"the {len(train.captions):,} captions have no words, that is letters or digits; the first is "
                f"{train.captions[0]!r:.40}. Write captions of words."
            )
        raise CrossmatchError(
            f"no word occurs {recipe.train.fewest} times in the {len(train.captions):,} captions. Know rarer words: "
            "--set train.fewest=1"
        )
    file = {"kind": "file", "dimensions": dimensions_of(train.store), "source": held.file} if held.file else None
    return made(ZooConfig(recipe.family, dict(recipe.model), words, file or dict(recipe.features)), told)


def _require_other(recipe: Recipe, output: Path, begin: Path | str | None, overrides: Iterable[str]) -> None:
    """Refuse to begin with what is about to be written, and words for a model that is not trained here."""
    place = None if begin is None else _place(str(begin))
    if place is not None and place.resolve() == output.expanduser().resolve():
        raise WrongWords(f"--begin {begin} is also where the model would be written. Name another folder with -o.")
    word = next((word for word in overrides if word.strip().startswith(PREFIX)), None)
    if word is not None and (begin is not None or not recipe.begins_with):
        why = "it is trained already" if begin is not None else f"the recipe {recipe.name} begins with none"
        raise WrongWords(f"--set {word} is for the model to begin with, but {why}. Leave it out.")


def _place(begin: str) -> Path | None:
    """The folder in which the model to begin with is, if it is in one."""
    if not begin.startswith(LIBRARIES):
        return Path(begin).expanduser()
    from crossmatch.train.foreign import folder_of

    return folder_of(begin)


def _open_eyes(model: Any, features: Mapping[str, Any]) -> None:
    """Give the encoder of regions the weights with which the training set was made, and keep them as they are."""
    from crossmatch.models.zoo.features import Extractor
    from crossmatch.train.features import ready

    trained = ready(Extractor(**{key: value for key, value in features.items() if key != "kind"})).net
    assert trained is not None
    model.net.look.load_state_dict(trained.state_dict())
    model.net.look.requires_grad_(False)


def require_known(recipe: Recipe) -> None:
    """Refuse a recipe whose family, sizes, regions or objective do not exist, before any work is done."""
    where = f"the recipe {recipe.name}"
    families = {network.name: network for network in NETWORKS}
    if recipe.family not in families:
        raise WrongWords(f"{where} is of the family {recipe.family!r}, which is not there. {nearest(recipe.family, families)}")
    network = families[recipe.family]
    declared = network.declared()
    sizes = checked(recipe.model, declared, f"{where}: [model]", without=("features", "words"))
    declared(features=1, words=1, **sizes)  # what must agree among them
    name = recipe.objective.get("name")
    if not isinstance(name, str) or name not in OBJECTIVES:
        raise WrongWords(f"{where} has the objective {name!r}, which is not there. {nearest(str(name), OBJECTIVES)}")
    if recipe.family not in FAMILIES.get(name, (recipe.family,)):
        raise WrongWords(f"{where} has the objective {name!r}, which goes with {', '.join(FAMILIES[name])} alone. Take another.")
    checked(recipe.objective, OPTIONS[name], f"{where}: [objective]")
    _require_features(recipe.features, where)


def _require_features(features: Mapping[str, Any], where: str) -> None:
    from crossmatch.models.zoo.features import Extractor
    from crossmatch.models.zoo.pixels import PixelGrid

    kind, given = features.get("kind", KINDS[0]), {key: value for key, value in features.items() if key != "kind"}
    if kind not in KINDS:
        raise WrongWords(f"{where} has regions of the kind {kind!r}. {nearest(str(kind), KINDS)}")
    if kind == "regions":
        checked(given, Extractor, f"{where}: [features]")
        return
    sizes = list(signature(PixelGrid).parameters)
    for name, value in given.items():
        if name not in sizes:
            raise WrongWords(f"{where}: [features] has no key {name!r}. {nearest(name, sizes)}")
        if type(value) is not int or not 1 <= value <= MOST_PIXELS:
            raise WrongWords(f"{where}: [features] has {name} = {value!r}; a whole number from 1 to {MOST_PIXELS} was expected.")


def _aim(recipe: Recipe, train: TrainingSet, vocabulary: Vocabulary) -> tuple[Any, dict[str, Any]]:
    """The objective, and its options."""
    options = dict(recipe.objective)
    return objective(options.pop("name"), train, vocabulary), options


def _finished(folder: Path, identity: Identity, tell: Callable[[str], object]) -> Any | None:
    """The finished model in a folder, if it is of the same recipe and data; of others, it is refused. Half a model is none."""
    try:
        told = json.loads((folder / "model.json").read_bytes())
        recipe, family = told["recipe"], str(told["family"])
        found = Identity(str(recipe.get("hash")), str(recipe.get("data_hash")), recipe)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    require_same(found, identity, folder, "the finished model")
    try:
        return load(folder, family)
    except CrossmatchError as error:
        tell(f"the model in {folder} cannot be used, and is trained anew: {error}")
        return None


def _save(model: Any, folder: Path) -> None:
    try:
        model.save(folder)
    except OSError as error:
        raise CrossmatchError(
            f"the trained model cannot be written to {folder} ({error.strerror or error}). Mend that, and start again with the "
            "same words: the checkpoint of the last epoch is there."
        ) from None


def _clear(folder: Path, checkpoints: Checkpoints) -> None:
    """Remove what an earlier training left, and nothing else."""
    checkpoints.drop()
    for path in (folder / "model.json", folder / "log.csv", *folder.glob("weights-*.pt")):
        path.unlink(missing_ok=True)
