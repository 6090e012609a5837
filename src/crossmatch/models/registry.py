"""The table of model families, and `make_model`, which makes a model from its name.

A name is `family`, `family:argument`, the folder of a trained model, or `FILE.py:NAME` for a user's own model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import Any

from crossmatch.data.errors import UsageError
from crossmatch.data.io.file_contents import read_json_object
from crossmatch.data.io.plugins import load_plugins
from crossmatch.data.name_lookup import Catalog
from crossmatch.models.zoo_families import ZOO_FAMILIES

FINE_TUNED_FILE = "fine-tuned.json"  # in the folder of a fine-tuned model of another library: its name, and how it was trained
FOLDER_PLACEHOLDER = "FOLDER"  # in that name: the folder itself, which may be moved


@dataclass(frozen=True)
class Family:
    """A way to make models.

    Args:
        name: Name of the family, before the colon.
        about: What its models are, in a line.
        abilities: What its models can do, separated by commas.
        make: Makes a model from the part of the name after the colon.
        argument: How `crossmatch list models` shows that part; may be empty.
        cite: Key of the paper.
        weights: Where the weights come from; may be empty.
    """

    name: str
    about: str
    abilities: str
    make: Callable[[str], object]
    argument: str = ""
    cite: str = ""
    weights: str = ""


def fine_tuned_name(folder: Path) -> str | None:
    """Return the model name of a folder with a fine-tuned model of another library; None if there is no such model."""
    name = (read_json_object(folder / FINE_TUNED_FILE) or {}).get("name")
    return None if name is None else str(folder).join(str(name).rsplit(FOLDER_PLACEHOLDER, 1))


def _no_model_error(folder: str, recipe: str = "dual") -> UsageError:
    """Explain why a folder is not a trained model: it is another library's, its training was interrupted, or it is empty."""
    name = fine_tuned_name(Path(folder))
    if name is not None:
        return UsageError(f"{folder} contains a fine-tuned model of another library. Use its name: -m {quote(name)}")
    if (Path(folder) / "checkpoints").is_dir():
        return UsageError(f"the training in {folder} is not finished. Run the same command again to resume it.")
    return UsageError(f"there is no trained model in {folder}. Train one: crossmatch train {recipe} -o {folder}")


# -- factories. Modules are imported when a model is made, because many need an extra.


def _factory(module: str, function: str, *more: object) -> Callable[[Any], object]:
    """Return a function that imports `crossmatch.models.MODULE` and calls FUNCTION with its argument and `more`."""

    def make(argument: Any) -> object:
        return getattr(import_module(f"crossmatch.models.{module}"), function)(argument, *more)

    return make


def _folder_factory(family: str, recipe: str, load: Callable[[Path], object]) -> Callable[[str], object]:
    """Return a factory of models that are trained here; `recipe` trains such a model."""

    def make(folder: str) -> object:
        if not folder:
            raise UsageError(f"{family} needs the folder of a trained model, as in {family}:runs/{family}")
        if not (Path(folder) / "model.json").is_file():
            raise _no_model_error(folder, recipe)
        return load(Path(folder))

    return make


# -- the table


TRAINED_FAMILIES = (
    Family("dual", "the small dual encoder of `crossmatch train dual`", "embed",
           _folder_factory("dual", "dual", _factory("baselines.small_dual_encoder", "load")), "FOLDER", "",
           "crossmatch train dual"),
    Family("grounded", "the small grounding model of `crossmatch train grounded`", "score, ground",
           _folder_factory("grounded", "grounded", _factory("baselines.small_grounder", "load")), "FOLDER", "lee2018scan",
           "crossmatch train grounded"),
    *(Family(f.name, f.about, f.abilities,
             _folder_factory(f.name, f.recipe, _factory("zoo.trained_model", "load_zoo_model", f.name)), "FOLDER", f.paper,
             f"crossmatch train {f.recipe}") for f in ZOO_FAMILIES),
)  # fmt: skip

FAMILIES = (
    Family("random", "a random vector for each id: chance level", "scores",
           _factory("baselines.random_and_oracle", "make_random_scorer"), "[SEED]"),
    Family("oracle", "1 for every positive, 0 for the rest: the best possible result", "scores",
           _factory("baselines.random_and_oracle", "make_oracle")),
    Family("precomputed", "embeddings, a score matrix, a TREC run or trial scores from a file", "scores",
           _factory("files.precomputed", "make_precomputed"), "FILE"),
    Family("tfidf", "TF-IDF over 4,096 words; document frequencies from the captions, or from a file", "embed texts",
           _factory("baselines.text_encoders", "make_tfidf"), "[FILE]"),
    Family("bow", "averaged static word vectors, plain or weighted by idf", "embed texts",
           _factory("baselines.text_encoders", "make_bow"), "[idf]"),
    Family("minilm", "the sentence encoder all-MiniLM-L6-v2, with weights from a package", "embed texts",
           _factory("baselines.text_encoders", "make_minilm")),
    Family("sentence", "any model of sentence-transformers, or a function in a Python file", "embed texts",
           _factory("baselines.text_encoders", "make_sentence_model"), "NAME|FILE.py:FUNCTION"),
    Family("caption-proxy", "represents each image by its caption in a file, compared as text", "scores",
           _factory("baselines.caption_proxy", "make_caption_proxy"), "FILE[+TEXTMODEL]"),
    Family("blind", "sees only one side: the caption's length or likelihood, or the image's brightness or detail",
           "score, log-likelihood", _factory("baselines.one_sided", "make_blind_model"),
           "longest|shortest|ngram[=FILE]|brightness|detail"),
    Family("detector", "chooses by a detector's probability that an item is synthetic", "scores",
           _factory("baselines.precomputed_synthetic_detector", "make_detector"), "FILE|FOLDER[+MODEL]", "miranda2024bivlc",
           "crossmatch train detector"),
    Family("references", "chooses the image whose reference captions are most similar to the query, by a caption metric", "scores",
           _factory("baselines.reference_captions", "make_reference_chooser"), "SCORE"),
    Family("gate", "knows nothing; its expected result is known in theory, which tests the evaluation", "scores",
           _factory("baselines.gate_scorers", "make_gate_scorer"), "constant|random|text-blind|image-blind|position-biased"),
    Family("conse", "zero-shot: an image classifier's probabilities times sentence embeddings of the class names", "embed",
           _factory("baselines.conse", "make_conse"), "[lite0|lite1|lite2]", "norouzi2014conse",
           "in packages: pip install 'crossmatch[conse]'"),
    Family("open_clip", "any CLIP of open_clip, by tag, from the Hugging Face cache, or from a checkpoint", "embed",
           _factory("adapters.open_clip", "open_clip_model"),
           "ARCH,TAG|ARCH,FILE[,quickgelu|gelu]|hf-hub:ORG/NAME|local-dir:FOLDER", "radford2021clip",
           "open_clip's tags, or a checkpoint file"),
    Family("hf", "a model of transformers: CLIP, SigLIP, BLIP, ViLT, captioners, image-text-to-text models",
           "embed, score or log-likelihood, caption", _factory("adapters.transformers", "hf_model"),
           "ORG/NAME|FOLDER[,OPTION]", "", "hf download ORG/NAME"),
    Family("timm", "an image tower of timm: the pooled features of its last layer", "embed images",
           _factory("adapters.timm", "timm_model"), "NAME[,FILE|random]", "", "timm's, or a checkpoint file"),
    Family("regions", "precomputed region features: their mean, or the output of a trained model for them", "scores, ground, caption",
           _factory("regions.feature_model", "make_region_model"), "FILE[+FOLDER]", "anderson2018bottomup",
           "a file of features, as released with SCAN or bottom-up attention"),
    *TRAINED_FAMILIES,
)  # fmt: skip


def families() -> Catalog[Family]:
    """Return all model families by name, those of plug-ins included."""
    return Catalog("model", {f.name: f for f in (*FAMILIES, *load_plugins(Family))})


def make_model(name: str, recipe: str = "dual") -> object:
    """Make the model of a name: `family`, `family:argument`, the folder of a trained model, or `FILE.py:NAME`.

    Args:
        name: The name.
        recipe: Recipe that the error message suggests if a folder contains no model.

    Raises:
        UsageError: There is no such family, or no trained model in the folder.

    >>> make_model("random:7")
    RandomScorer(seed=7, dimensions=64)
    """
    if (Path(name) / "model.json").is_file():
        return _load_folder(name)
    family, _, argument = name.partition(":")
    if family.endswith(".py") and family not in families():
        from crossmatch.models.adapters.user_file import user_model

        return user_model(name)
    if ("/" in family and family not in families()) or fine_tuned_name(Path(name)) is not None:
        raise _no_model_error(name, recipe)
    return families()[family].make(argument)


def _load_folder(folder: str) -> object:
    """Load the model of a folder by the family in its model.json; the first family reports what is wrong with a bad folder."""
    try:
        description = json.loads((Path(folder) / "model.json").read_bytes())
    except ValueError:
        description = None
    name = description.get("family") if isinstance(description, dict) else None
    candidates = (*TRAINED_FAMILIES, families()["detector"])
    return next((family for family in candidates if family.name == name), TRAINED_FAMILIES[0]).make(folder)
