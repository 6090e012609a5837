"""Fine-tuning of CLIP models of open_clip or transformers, with the recipes and the loop of the zoo's CLIP.

    crossmatch train clip-in-batch --begin open_clip:ViT-B-32,openai --data collection:FOLDER -o runs/mine

Images and texts are preprocessed by the library; the loss is that of the recipe. The result is loaded by the same library:
`hf:runs/mine`, or `open_clip:ARCHITECTURE,runs/mine/open_clip.pt,ACTIVATION`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.file_contents import UndecodableFileError, check_record, decode_json_file
from crossmatch.models import FINE_TUNED_FILE, FOLDER_PLACEHOLDER
from crossmatch.models.files.checkpoint_files import require_finite
from crossmatch.train.checkpoints import Checkpoints, TrainingIdentity, ignore_message, require_same_training
from crossmatch.train.data.sources import DataOptions, open_source
from crossmatch.train.data.training_set import PixelStore, TrainingSet
from crossmatch.train.loop import CHECKPOINT_SECONDS, fit
from crossmatch.train.objectives import make_objective, parse_objective
from crossmatch.train.output_folder import explain_write_errors, lock_folder
from crossmatch.train.pretrained_clip import EMBEDDING_BATCH, FineTunedModel, load_external_model, require_no_foreign_model
from crossmatch.train.recipe import TrainingRecipe
from crossmatch.train.validation import choose_metric, validate
from crossmatch.train.zoo_training import ZooTraining

FAMILY = "clip"  # of the recipes that can fine-tune
# Names of a model in `FINE_TUNED_FILE`.
MODEL_NAME = re.compile(rf"hf:{FOLDER_PLACEHOLDER}|open_clip:([^,]+,|local-dir:){FOLDER_PLACEHOLDER}")


# -- validation


class _EmbeddedModel(FineTunedModel):
    """The same model with embeddings as inputs, because the images would not fit into memory all at once."""

    def embed(self, pixels: Tensor) -> Tensor:
        return pixels


def validate_in_batches(model: FineTunedModel, validation: TrainingSet) -> dict[str, float]:
    """Validate a model with few images in memory at a time."""
    model.net.eval()
    numbers = np.arange(len(validation.store))
    batches = [numbers[first : first + EMBEDDING_BATCH] for first in range(0, len(numbers), EMBEDDING_BATCH)]
    vectors = torch.cat([model.embed(validation.store.take(batch)) for batch in batches])  # type: ignore[arg-type]
    embedded = _EmbeddedModel(model.name, model.signature, model.match, model.preparation, model.write)
    return validate(embedded, replace(validation, store=PixelStore(vectors.numpy())))


# -- training


def fine_tune(
    recipe: TrainingRecipe,
    output: Path | str,
    begin: str,
    *,
    data: str,
    options: DataOptions | None = None,
    restart: bool = False,
    tensorboard: bool = False,
    notify: Callable[[str], object] = ignore_message,
    every: float = CHECKPOINT_SECONDS,
) -> FineTunedModel:
    """Fine-tune a model of another library; the result's `name` loads it with `-m`.

    As with every recipe, an interrupted training resumes, a finished one is loaded, and a folder with another recipe, other data or
    another original model is refused unless `restart`. The arguments are those of `train_recipe`; `begin` is hf:… or open_clip:….
    """
    folder, options = Path(output), options or DataOptions()
    _require_valid_options(recipe, begin, data, options)
    require_no_foreign_model(folder, FINE_TUNED_FILE)
    with lock_folder(folder):
        model = load_external_model(begin)
        source = open_source(data, {"kind": "pictures", "prepare": model.preparation}, options.for_recipe(recipe))
        identity = TrainingIdentity(_hash_recipe(recipe, model), source.digest)
        checkpoints = Checkpoints(folder, identity, notify)
        if restart:
            _clear(folder, checkpoints)
        finished = _load_finished(folder, identity)
        if finished is not None:
            notify(f"{folder} contains the finished model of this recipe and these data; there is nothing left to train.")
            checkpoints.delete()
            return finished
        train, validation = source.load()
        objective = make_objective(*parse_objective(recipe.objective, recipe.name))
        training = ZooTraining(model, objective, train, validation, recipe.train, validate_in_batches)
        state = fit(training, checkpoints, tensorboard=tensorboard, every=every)
        model.recipe = {
            "name": recipe.name, "hash": identity.recipe, "data": source.name, "data_hash": identity.data,
            "begin": {"name": begin, "signature": model.signature}, "best_epoch": state.best_epoch, "epochs": state.epoch,
            "validation": state.best, "validated_by": choose_metric(model, validation).label, **_relevant_settings(recipe),
        }  # fmt: skip
        _save(model, folder)
        checkpoints.delete()
    return model


def _require_valid_options(recipe: TrainingRecipe, begin: str, data: str, options: DataOptions) -> None:
    if recipe.family != FAMILY:
        raise UsageError(
            f"--begin {begin}: the recipe {recipe.name} is of the family {recipe.family!r}; fine-tuning needs one of {FAMILY!r}: "
            "clip-in-batch, clip-hard-texts or clip-hard-pairs."
        )
    if data.startswith("precomp:"):
        raise UsageError(f"--data {data}: {begin} needs pictures, not regions. Use --data collection:FOLDER or diorama.")
    if options.regions is not None:
        raise UsageError(f"--regions does not apply, because {begin} uses pictures. Remove it.")


def _relevant_settings(recipe: TrainingRecipe) -> dict[str, Any]:
    """The settings that the weights depend on; sizes and regions are those of the original network."""
    return {key: value for key, value in recipe.as_table().items() if key not in ("model", "features")}


def _hash_recipe(recipe: TrainingRecipe, model: FineTunedModel) -> str:
    facts = json.dumps([_relevant_settings(recipe), model.weights, model.preparation.description], sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:12]


def _load_finished(folder: Path, identity: TrainingIdentity) -> FineTunedModel | None:
    """Load the finished model of a folder, if it is complete; one of another training is refused."""
    path = folder / FINE_TUNED_FILE
    try:
        description = check_record(decode_json_file(path), "the file", {"recipe": dict, "name": str, "weights": object})
        recipe = check_record(description["recipe"], "the recipe", {"hash": str, "data_hash": str})
    except UndecodableFileError:
        return None
    saved = TrainingIdentity(recipe["hash"], recipe["data_hash"])
    name, weights = description["name"], str(description["weights"])
    require_same_training(saved, identity, folder, "the finished model")
    if not MODEL_NAME.match(name):
        raise CrossmatchError(
            f"{path} has name = {name!r:.80}; expected hf:{FOLDER_PLACEHOLDER} or open_clip:…{FOLDER_PLACEHOLDER}…. Correct it, or "
            "train the model again with --restart."
        )
    try:
        model = load_external_model(_fill_in_folder(name, folder))
    except CrossmatchError:
        return None
    model.recipe = dict(description["recipe"])
    model.match.eval()
    return model if model.weights == weights else None


def _fill_in_folder(name: str, folder: Path) -> str:
    """Replace the placeholder of a model name by the folder.

    >>> _fill_in_folder("open_clip:ViT-B-32,FOLDER/open_clip.pt,gelu", Path("runs"))
    'open_clip:ViT-B-32,runs/open_clip.pt,gelu'
    """
    return str(folder).join(name.rsplit(FOLDER_PLACEHOLDER, 1))


def _clear(folder: Path, checkpoints: Checkpoints) -> None:
    """Discard an earlier training. Its weights stay until they are replaced; an empty `FINE_TUNED_FILE` marks them as ours."""
    if (folder / FINE_TUNED_FILE).exists() or checkpoints.exist:
        with atomic_write(folder / FINE_TUNED_FILE) as file:
            file.write(b"{}")
    checkpoints.delete()
    (folder / "log.csv").unlink(missing_ok=True)


def _save(model: FineTunedModel, folder: Path) -> None:
    """Write the model, and `FINE_TUNED_FILE` last."""
    require_finite(model.match.net, str(folder))
    with explain_write_errors(f"The fine-tuned model cannot be written to {folder}", ": the checkpoint of the last epoch is kept"):
        name = model.write(folder)
        model.name = _fill_in_folder(name, folder)
        versions = {"torch": torch.__version__}
        description = {"name": name, "weights": model.weights, "recipe": model.recipe, "versions": versions}
        with atomic_write(folder / FINE_TUNED_FILE, durable=True) as file:
            file.write(json.dumps(description, indent=1).encode())
