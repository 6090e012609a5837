"""Run a training recipe: from the command line's options to a folder with the trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any

from crossmatch.data.errors import CrossmatchError, UnusableItemError, UsageError
from crossmatch.data.io.file_contents import read_json_object
from crossmatch.data.settings import suggest_name, validate_settings
from crossmatch.models.zoo.network_inputs import Vocabulary
from crossmatch.models.zoo.region_extractors import ExtractorSettings, PixelGrid
from crossmatch.models.zoo.trained_model import ZooConfig, build_model, load_zoo_model
from crossmatch.models.zoo_families import ZOO_FAMILIES
from crossmatch.train.checkpoints import Checkpoints, TrainingIdentity, ignore_message, require_same_training
from crossmatch.train.data.negative_files import NegativeFile
from crossmatch.train.data.sources import DataOptions, TrainingSource, check_data_options, open_source
from crossmatch.train.data.training_set import TrainingSet, feature_dimensions
from crossmatch.train.loop import CHECKPOINT_SECONDS, fit
from crossmatch.train.objectives import make_objective, parse_objective
from crossmatch.train.output_folder import explain_write_errors, lock_folder, remove_outputs, require_writable_folder
from crossmatch.train.recipe import Override, TrainingRecipe, load_recipe, parse_overrides
from crossmatch.train.reproducibility import reproducible
from crossmatch.train.validation import RETRIEVAL, choose_metric
from crossmatch.train.warm_start import (
    Stage,
    build_from_base,
    complete_recipe,
    describe_base,
    load_base_model,
    plan_stages,
    recipe_hash,
    require_same_region_source,
    require_valid_chain,
)
from crossmatch.train.zoo_training import ZooTraining

EXTERNAL_PREFIXES = ("hf:", "open_clip:")  # models of other libraries, which `fine_tune_clip` trains
MAX_PIXELS = 1024  # of a side, or channels
REGION_KINDS = ("regions", "pixels")  # kinds of [features] in a recipe; a file is named on the command line
# Small models of the embedded world: their modules define the sizes, the data and the training.
DETECTOR = "detector"  # its model to begin with stays frozen, and it has a training of its own
SMALL_FAMILIES = {"dual": "crossmatch.train.small_dual_encoder", "grounded": "crossmatch.train.small_grounder"}


def train_recipe(
    recipe: str | Path,
    output: Path | str,
    *,
    data: str = "diorama",
    options: DataOptions | None = None,
    overrides: Iterable[str | Override] = (),
    begin: Path | str | None = None,
    restart: bool = False,
    tensorboard: bool = False,
    notify: Callable[[str], object] = ignore_message,
    every: float = CHECKPOINT_SECONDS,
) -> Any:
    """Train a recipe, and write model, log and checkpoints to the folder `output`.

    A finished model of the same recipe and data is loaded instead of trained, and an interrupted training resumes. A folder with
    another recipe or other data is refused unless `restart`. A recipe that begins with another one trains that first, in the folder
    `output/begin`.

    Args:
        recipe: Name or file of the recipe.
        output: Folder of the trained model.
        data: diorama, collection:FOLDER or precomp:FOLDER.
        options: Further options of the data.
        overrides: Changes to the recipe, such as "train.epochs=3".
        begin: Folder of a trained model to start from, or a model of another library (`hf:…`, `open_clip:…`) to fine-tune. For the
            recipe `detector`, the name of the frozen model.
        restart: Replace an earlier training in the folder.
        tensorboard: Also write TensorBoard events.
        notify: Called with messages about the progress.
        every: Seconds between two checkpoints.

    Returns:
        The trained model.

    >>> from crossmatch.train import DataOptions, train_recipe
    >>> options = DataOptions(images=10, size="tiny")
    >>> model = train_recipe("dual", folder / "dual", options=options, overrides=["train.epochs=1", "train.validation=10"])
    >>> model.recipe["epochs"], model.recipe["model"]
    (1, {'dimensions': 256, 'width': 12})
    """
    folder, data_kind, parsed = Path(output), data.partition(":")[0], parse_overrides(overrides)
    loaded = load_recipe(recipe, data_kind, parsed)
    is_external = begin is not None and str(begin).startswith(EXTERNAL_PREFIXES)
    if is_external and loaded.family != DETECTOR:
        # A large network is trained as published; the settings of small networks on diorama do not apply.
        loaded = replace(load_recipe(recipe, "", parsed), negatives=loaded.negatives)
    require_valid_recipe(loaded)
    if loaded.family == DETECTOR:
        from crossmatch.train.synthetic_detector import train_detector_recipe

        if tensorboard or any(override.stages_before for override in parsed):
            option = "--tensorboard" if tensorboard else "--set begin.…"
            raise UsageError(f"{option} has no effect on the recipe {loaded.name}. Remove it.")
        model = None if begin is None else str(begin)
        return train_detector_recipe(loaded, model, folder, data, options or DataOptions(), restart, notify)
    require_valid_chain(loaded, data_kind)
    _require_separate_begin(loaded, folder, begin, parsed)
    require_writable_folder(folder, restart)
    options = options or DataOptions()
    if is_external:
        from crossmatch.train.fine_tune_clip import fine_tune

        with _unusable_items_as_errors():
            return fine_tune(loaded, folder, str(begin), data=data, options=options, restart=restart, tensorboard=tensorboard,
                             notify=notify, every=every)  # fmt: skip
    if loaded.family in SMALL_FAMILIES:
        _require_small_options(loaded, data, begin)
    check_data_options(data, options.for_recipe(loaded))
    stages = plan_stages(loaded, folder, options, data_kind, parsed, None if begin is None else Path(begin).expanduser())
    with lock_folder(folder), _unusable_items_as_errors():
        for stage in stages[:-1]:
            require_valid_recipe(stage.recipe)
        if len(stages) > 1 and options.negatives is not None:  # notice errors before the first stage is trained
            NegativeFile.read(options.negatives, loaded.negatives.kind == "pairs")
        for stage, later in pairwise(stages):
            notify(f"{later.recipe.name} begins with {stage.recipe.name}, in {stage.folder}")
            require_writable_folder(stage.folder, restart)
            check_data_options(data, stage.options.for_recipe(stage.recipe))
            with lock_folder(stage.folder):
                _run_stage(stage, data, restart, tensorboard, notify, every)
        return _run_stage(stages[-1], data, restart, tensorboard, notify, every)


def _run_stage(stage: Stage, data: str, restart: bool, tensorboard: bool, notify: Callable[[str], object], every: float) -> Any:
    """Train one recipe in its locked folder, or load its finished model."""
    recipe, folder, base = stage.recipe, stage.folder, None
    if stage.begin is not None:
        base = load_base_model(stage.begin, recipe)
        require_same_region_source(base, data, is_file=data.startswith("precomp:") or stage.options.regions is not None)
        recipe = complete_recipe(recipe, base)
    options = stage.options.for_recipe(recipe)
    small = import_module(SMALL_FAMILIES[recipe.family]) if recipe.family in SMALL_FAMILIES else None
    source = open_source(data, recipe.features, options) if small is None else small.open_source(recipe, options)
    identity = TrainingIdentity(recipe_hash(recipe, base), source.digest, recipe.as_table())
    checkpoints = Checkpoints(folder, identity, notify)
    if restart:
        checkpoints.delete()
        remove_outputs(folder, "log.csv")
    finished = _load_finished(folder, identity, notify)
    if finished is not None:
        notify(f"{folder} contains the finished model of this recipe and these data; there is nothing left to train.")
        checkpoints.delete()
        return finished
    train, validation = source.load()
    if small is None:
        training = _make_zoo_training(recipe, source, train, validation, base)
        label = choose_metric(training.model, validation).label
    else:
        training = small.make_training(recipe, source, train, validation)
        label = RETRIEVAL.label
    state = fit(training, checkpoints, tensorboard=tensorboard, every=every)
    model = training.model
    model.recipe |= {"best_epoch": state.best_epoch, "epochs": state.epoch, "validation": state.best, "validated_by": label}
    _save(model, folder)
    checkpoints.delete()
    return model


@contextmanager
def _unusable_items_as_errors() -> Iterator[None]:
    """Turn an unusable item into an error: a training never skips items."""
    try:
        yield
    except UnusableItemError as error:
        raise CrossmatchError(error.reason) from None


def _make_zoo_training(
    recipe: TrainingRecipe, source: TrainingSource, train: TrainingSet, validation: TrainingSet, base: Any | None
) -> ZooTraining:
    model = build_untrained_model(recipe, source, train, base)
    entry, options = parse_objective(recipe.objective, recipe.name)
    objective = make_objective(entry, options, train, model.vocabulary)
    return ZooTraining(model, objective, train, validation, recipe.train, zero_loss_hint=entry.zero_loss_hint)


def build_untrained_model(recipe: TrainingRecipe, source: TrainingSource, train: TrainingSet, base: Any | None = None) -> Any:
    """Build the model before training: vocabulary of the training captions and weights from the seed, or both of `base`."""
    description = {
        "name": recipe.name,
        "hash": recipe_hash(recipe, base),
        "data": source.name,
        "data_hash": source.digest,
        **recipe.as_table(),
    }
    with reproducible(recipe.train.seed, recipe.train.threads):
        if base is None:
            model = _build_from_scratch(recipe, source, train, description)
        else:
            model = build_from_base(recipe, base, source, train, description | describe_base(base))
    if model.config.features.get("kind", REGION_KINDS[0]) == "regions" and model.net.look is not None:
        _load_extractor_weights(model, model.config.features)
    return model


def _build_from_scratch(recipe: TrainingRecipe, source: TrainingSource, train: TrainingSet, description: Mapping[str, Any]) -> Any:
    words = Vocabulary.from_texts(train.captions, recipe.train.fewest).words
    if not words:
        if not Vocabulary.from_texts(train.captions).words:
            raise CrossmatchError(
                f"The {len(train.captions):,} captions contain no words (letters or digits); the first is "
                f"{train.captions[0]!r:.40}. Use captions with words."
            )
        raise CrossmatchError(
            f"No word occurs {recipe.train.fewest} times in the {len(train.captions):,} captions. Accept rarer words: "
            "--set train.fewest=1"
        )
    features = dict(recipe.features)
    if source.file:
        features = {"kind": "file", "dimensions": feature_dimensions(train.store), "source": source.file}
    return build_model(ZooConfig(recipe.family, dict(recipe.model), words, features), description)


def _load_extractor_weights(model: Any, features: Mapping[str, Any]) -> None:
    """Give the region encoder the weights with which the training set was computed, and freeze it."""
    from crossmatch.train.data.region_feature_cache import load_extractor

    trained = load_extractor(ExtractorSettings(**{key: value for key, value in features.items() if key != "kind"})).net
    assert trained is not None
    model.net.look.load_state_dict(trained.state_dict())
    model.net.look.requires_grad_(False)


def _load_finished(folder: Path, identity: TrainingIdentity, notify: Callable[[str], object]) -> Any | None:
    """Load the finished model of a folder, if it is complete; one of another recipe or other data is refused."""
    description = read_json_object(folder / "model.json") or {}
    recipe, family = description.get("recipe"), description.get("family")
    if not isinstance(recipe, dict) or not isinstance(family, str):
        return None
    saved = TrainingIdentity(str(recipe.get("hash")), str(recipe.get("data_hash")), recipe)
    require_same_training(saved, identity, folder, "the finished model")
    try:
        if family in SMALL_FAMILIES:
            return import_module(SMALL_FAMILIES[family]).load_model(folder)
        return load_zoo_model(folder, family)
    except CrossmatchError as error:
        notify(f"The model in {folder} cannot be used and is trained again: {error}")
        return None


def _save(model: Any, folder: Path) -> None:
    with explain_write_errors(f"The trained model cannot be written to {folder}", ": the checkpoint of the last epoch is kept"):
        model.save(folder)


# -- checks before any work is done


def require_valid_recipe(recipe: TrainingRecipe) -> None:
    """Refuse a recipe with an unknown family, size, region setting or objective."""
    where = f"The recipe {recipe.name}"
    own_checks = {**SMALL_FAMILIES, DETECTOR: "crossmatch.train.synthetic_detector"}
    if recipe.family in own_checks:
        import_module(own_checks[recipe.family]).require_valid_recipe(recipe)
        return
    families = {family.name: family for family in ZOO_FAMILIES}
    if recipe.family not in families:
        family_names = (*families, *own_checks)
        raise UsageError(f"{where} has the unknown family {recipe.family!r}. {suggest_name(recipe.family, family_names)}")
    config_class = families[recipe.family].config_class()
    sizes = validate_settings(recipe.model, config_class, f"{where}: [model]", without=("features", "words"))
    config_class(features=1, words=1, **sizes)  # checks that the sizes fit together
    parse_objective(recipe.objective, where, recipe.family)
    _require_valid_features(recipe.features, where)


def _require_valid_features(features: Mapping[str, Any], where: str) -> None:
    kind, options = features.get("kind", REGION_KINDS[0]), {key: value for key, value in features.items() if key != "kind"}
    if kind not in REGION_KINDS:
        raise UsageError(f"{where} has regions of the unknown kind {kind!r}. {suggest_name(str(kind), REGION_KINDS)}")
    if kind == "regions":
        validate_settings(options, ExtractorSettings, f"{where}: [features]")
        return
    allowed = list(signature(PixelGrid).parameters)
    for name, value in options.items():
        if name not in allowed:
            raise UsageError(f"{where}: [features] has no key {name!r}. {suggest_name(name, allowed)}")
        if type(value) is not int or not 1 <= value <= MAX_PIXELS:
            raise UsageError(f"{where}: [features] has {name} = {value!r}; expected a whole number from 1 to {MAX_PIXELS}.")


def _require_separate_begin(recipe: TrainingRecipe, output: Path, begin: Path | str | None, overrides: Iterable[Override]) -> None:
    """Refuse to start from the output folder, and overrides of a stage that is not trained."""
    begin_folder = None if begin is None else _begin_folder(str(begin))
    if begin_folder is not None and begin_folder.resolve() == output.expanduser().resolve():
        raise UsageError(f"--begin {begin} is also the output folder. Choose another folder with -o.")
    override = next((override for override in overrides if override.stages_before), None)
    if override is not None and (begin is not None or not recipe.begins_with):
        reason = "that model is already trained" if begin is not None else f"the recipe {recipe.name} begins with none"
        raise UsageError(f"{override.option} is for the model to begin with, but {reason}. Remove it.")


def _begin_folder(begin: str) -> Path | None:
    """The folder of the model to start from, if it is in one."""
    if not begin.startswith(EXTERNAL_PREFIXES):
        return Path(begin).expanduser()
    from crossmatch.train.pretrained_clip import model_folder

    return model_folder(begin)


def _require_small_options(recipe: TrainingRecipe, data: str, begin: Path | str | None) -> None:
    """The small models are trained on the embedded world only, and from scratch."""
    if data != "diorama":
        raise UsageError(f"--data {data}: the recipe {recipe.name} is trained on diorama only. Remove --data.")
    if begin is not None:
        raise UsageError(f"--begin {begin}: the recipe {recipe.name} is always trained from scratch. Remove it.")
