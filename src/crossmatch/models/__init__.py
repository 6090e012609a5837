"""Models by name. A name is `family`, `family:rest` or the folder of a trained model; a plain object needs no name."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crossmatch.core.catalog import Catalog
from crossmatch.core.errors import WrongWords
from crossmatch.core.plugins import plugged


@dataclass(frozen=True)
class Family:
    """One way to make a model: `make` takes what follows the colon in its name."""

    name: str
    about: str
    abilities: str
    make: Callable[[str], object]
    argument: str = ""  # how the part after the colon is called, empty if there is none


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


def _dual(rest: str) -> object:
    from crossmatch.models.dual import load

    if not rest:
        raise WrongWords("dual needs the folder of a trained model, as in dual:runs/dual")
    if not (Path(rest) / "model.json").is_file():
        raise WrongWords(f"there is no trained model in {rest}. Train one: crossmatch train dual -o {rest}")
    return load(Path(rest))


def _grounded(rest: str) -> object:
    from crossmatch.models.grounded import load

    if not rest:
        raise WrongWords("grounded needs the folder of a trained model, as in grounded:runs/grounded")
    if not (Path(rest) / "model.json").is_file():
        raise WrongWords(f"there is no trained model in {rest}. Train one: crossmatch train grounded -o {rest}")
    return load(Path(rest))


def _trained(folder: str) -> object:
    """The model in a folder, by the family that its model.json names; `_dual` says what is wrong with any other folder."""
    try:
        told = json.loads((Path(folder) / "model.json").read_bytes())
    except ValueError:
        told = None
    return (_grounded if isinstance(told, dict) and told.get("family") == "grounded" else _dual)(folder)


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
    from crossmatch.models.detector import detector

    return detector(rest)


def _references(rest: str) -> object:
    from crossmatch.models.references import references_model

    return references_model(rest)


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
           "FILE"),
    Family("references", "the image whose reference captions are most like the query, by a caption score", "scores", _references,
           "SCORE"),
    Family("gate", "knows nothing, and must get what theory says", "scores", _gate,
           "constant|random|text-blind|image-blind|position-biased"),
    Family("dual", "the small dual encoder of `crossmatch train dual`", "embed", _dual, "FOLDER"),
    Family("grounded", "the small grounding model of `crossmatch train grounded`", "score, ground", _grounded, "FOLDER"),
)  # fmt: skip


def families() -> Catalog[Family]:
    """All model families by name."""
    return Catalog("model", {f.name: f for f in (*FAMILIES, *plugged(Family))})


def make_model(name: str) -> object:
    """The model of this name.

    >>> make_model("random:7")
    RandomScorer(seed=7, dimensions=64)
    """
    if (Path(name) / "model.json").is_file():
        return _trained(name)
    family, _, rest = name.partition(":")
    if "/" in family and family not in families():
        raise WrongWords(f"there is no trained model in {name}. Train one: crossmatch train dual -o {name}")
    if family.endswith(".py") and family not in families():
        raise WrongWords(
            f"{name} is a Python file. A model of your own is evaluated in Python: crossmatch.evaluate(your_model, task); for "
            f"texts alone there is sentence:{name}"
        )
    return families()[family].make(rest)
