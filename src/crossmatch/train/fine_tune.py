"""Fine-tune a CLIP that somebody else trained, of open_clip or transformers, by the recipes and the loop of our own CLIP.

    crossmatch train clip-in-batch --begin open_clip:ViT-B-32,openai --data collection:FOLDER -o runs/mine

Its images are the library's own preprocessed pictures, its texts the library's own tokens; the loss is that of the recipe. What
comes out is loaded again as what went in: `hf:runs/mine`, or `open_clip:ARCHITECTURE,runs/mine/open_clip.pt,ACTIVATION`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.core.arrays import IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.whole import whole_file
from crossmatch.models import FINE_TUNED, HERE
from crossmatch.models.checkpoint import require_finite
from crossmatch.train.checkpoints import Checkpoints, Identity, alone, require_same
from crossmatch.train.data import TrainingSet
from crossmatch.train.foreign import AT_ONCE, FineTuned, begun_with, require_free
from crossmatch.train.judge import validated_by
from crossmatch.train.loop import EVERY, Training, fit, judged_by_kind
from crossmatch.train.objectives import objective
from crossmatch.train.recipe import Recipe
from crossmatch.train.sources import Asked, source

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

FAMILY = "clip"  # of the recipes by which it is done
TOLD = FINE_TUNED  # written last: what the folder holds, and how it came about
NAMED = re.compile(rf"hf:{HERE}|open_clip:([^,]+,|local-dir:){HERE}")  # what a model is called in it


# -- how good it is


@dataclass(frozen=True, eq=False)
class _Embedded:
    """Pictures that were embedded some at a time, in the place of the pictures: all of them at once would fill the memory."""

    vectors: Tensor

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, indices: IntArray) -> Tensor:
        return self.vectors[torch.from_numpy(np.asarray(indices, dtype=np.int64))]


class _ByVectors(FineTuned):
    """The same model, which is given vectors of pictures."""

    def embed(self, pixels: Tensor) -> Tensor:
        return pixels


def judged_in_parts(model: FineTuned, held: TrainingSet) -> dict[str, float]:
    """As the loop judges any model, with few pictures in memory."""
    model.net.eval()
    places = np.arange(len(held.store))
    found = [model.embed(held.store.take(places[at : at + AT_ONCE])) for at in range(0, len(places), AT_ONCE)]  # type: ignore[arg-type]
    given = _ByVectors(model.name, model.signature, model.match, model.preparation, model.write)
    return judged_by_kind(given, replace(held, store=_Embedded(torch.cat(found))))


# -- from words to a folder


def fine_tune(
    recipe: Recipe,
    output: Path | str,
    begin: str,
    *,
    data: str,
    asked: Asked | None = None,
    restart: bool = False,
    tensorboard: bool = False,
    tell: Callable[[str], object] = lambda said: None,
    every: float = EVERY,
) -> FineTuned:
    """The model named `begin`, trained further by this recipe on these data, saved so that `-m` loads it: its `name` says how.

    Interrupted trainings go on, finished ones are loaded, and a folder of another recipe, other data or another beginning is
    refused unless `restart`, as with every recipe.
    """
    folder, asked = Path(output), asked or Asked()
    _require(recipe, begin, data, asked)
    require_free(folder, TOLD)
    with alone(folder):
        model = begun_with(begin)
        images, judged = asked.images or recipe.train.images or None, recipe.train.validation
        wanted = replace(asked, images=images, judged=judged, hard=recipe.negatives)
        held = source(data, {"kind": "pictures", "prepare": model.preparation}, wanted)
        identity = Identity(_digest(recipe, model), held.digest)
        checkpoints = Checkpoints(folder, identity, tell)
        if restart:
            _clear(folder, checkpoints)
        finished = _finished(folder, identity)
        if finished is not None:
            tell(f"{folder} holds the finished model of this recipe and these data; nothing is left to train")
            checkpoints.drop()
            return finished
        train, validation = held.load()
        options = dict(recipe.objective)
        training = Training(model, objective(options.pop("name"), train), options, train, validation, recipe.train, judged_in_parts)
        state = fit(training, checkpoints, tensorboard=tensorboard, every=every)
        model.recipe = {
            "name": recipe.name, "hash": identity.recipe, "data": held.name, "data_hash": identity.data,
            "begin": {"name": begin, "signature": model.signature}, "best_epoch": state.best_epoch, "epochs": state.epoch,
            "validation": state.best, "validated_by": validated_by(model, validation), **_told(recipe),
        }  # fmt: skip
        _save(model, folder)
        checkpoints.drop()
    return model


def _require(recipe: Recipe, begin: str, data: str, asked: Asked) -> None:
    if recipe.family != FAMILY:
        raise WrongWords(
            f"the recipe {recipe.name} is of the family {recipe.family!r}; {begin} is fine-tuned by those of {FAMILY!r}: "
            "clip-in-batch, clip-hard-texts or clip-hard-pairs."
        )
    if data.startswith("precomp:"):
        raise WrongWords(
            f"{begin} looks at pictures, and {data} has regions alone. Name others: --data collection:FOLDER, or diorama"
        )
    if asked.regions is not None:
        raise WrongWords(f"{begin} looks at pictures, not at regions. Leave --regions out.")


def _told(recipe: Recipe) -> dict[str, Any]:
    """What the weights depend on, of the recipe: sizes and regions are those of the network that it begins with."""
    return {key: value for key, value in recipe.told().items() if key not in ("model", "features")}


def _digest(recipe: Recipe, model: FineTuned) -> str:
    told = json.dumps([_told(recipe), model.weights, model.preparation.words], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def _finished(folder: Path, identity: Identity) -> FineTuned | None:
    """The finished model in a folder, if it is of the same training; of another, it is refused. Half a model is none."""
    try:
        told: Mapping[str, Any] = json.loads((folder / TOLD).read_bytes())
        found = Identity(str(told["recipe"]["hash"]), str(told["recipe"]["data_hash"]))
        name, weights = str(told["name"]), str(told["weights"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    require_same(found, identity, folder, "the finished model")
    if not NAMED.match(name):
        raise CrossmatchError(
            f"{folder / TOLD} calls the model {name!r:.80}; hf:{HERE} or open_clip:…{HERE}… was expected. Write its name there, or "
            "train it again: --restart"
        )
    try:
        model = begun_with(_called(name, folder))
    except CrossmatchError:
        return None
    model.recipe = dict(told["recipe"])
    model.match.eval()
    return model if model.weights == weights else None


def _called(name: str, folder: Path) -> str:
    """What a model is called that is in this folder.

    >>> _called("open_clip:ViT-B-32,FOLDER/open_clip.pt,gelu", Path("runs"))
    'open_clip:ViT-B-32,runs/open_clip.pt,gelu'
    """
    return str(folder).join(name.rsplit(HERE, 1))


def _clear(folder: Path, checkpoints: Checkpoints) -> None:
    """Forget an earlier training. The weights that it wrote stay until others replace them, and `TOLD` says whose they are."""
    if (folder / TOLD).exists() or checkpoints.there:
        with whole_file(folder / TOLD) as file:
            file.write(b"{}")
    checkpoints.drop()
    (folder / "log.csv").unlink(missing_ok=True)


def _save(model: FineTuned, folder: Path) -> None:
    require_finite(model.match.net, str(folder))
    try:
        name = model.write(folder)
        model.name = _called(name, folder)
        told = {
            "name": name,
            "weights": model.weights,
            "recipe": model.recipe,
            "versions": {"torch": torch.__version__},
        }
        with whole_file(folder / TOLD, durable=True) as file:
            file.write(json.dumps(told, indent=1).encode())
    except OSError as error:
        raise CrossmatchError(
            f"the fine-tuned model cannot be written to {folder} ({error.strerror or error}). Mend that, and start again with the "
            "same words: the checkpoint of the last epoch is there."
        ) from None
