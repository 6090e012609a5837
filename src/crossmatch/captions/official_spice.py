"""The official SPICE program (anderson2016spice), where Java, the program and the language models that it needs are there."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError

JAR = "spice-1.0.jar"
MODELS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")  # the jar looks for them in lib/ beside itself
VARIABLE = "CROSSMATCH_SPICE"  # names a folder with the jar; or is `rules`, for the parser of this package
MEMORY = "8G"  # as coco-caption calls it
NAMES = {  # what the program calls its numbers
    "all": "All", "object": "Object", "attribute": "Attribute", "relation": "Relation",
    "colour": "Color", "count": "Cardinality", "size": "Size",
}  # fmt: skip
REMEDY = f"Score with the parser of this package: set {VARIABLE}=rules, or call spice(corpus, parser='rules')."


def official_folder() -> Path | None:
    """The folder of a program that can run, or None: that of `CROSSMATCH_SPICE`, or pycocoevalcap's if its models were added."""
    named = os.environ.get(VARIABLE, "")
    if named == "rules":
        return None
    if named:
        missing = _missing(Path(named))
        if missing:
            raise CrossmatchError(
                f"{VARIABLE} names {named}, which has no {missing}; SPICE needs it. Put it there, or unset {VARIABLE}."
            )
        if shutil.which("java") is None:
            raise CrossmatchError(f"{VARIABLE} names {named}, but there is no java on the path. Install it, or unset {VARIABLE}.")
        return Path(named)
    spec = importlib.util.find_spec("pycocoevalcap") if shutil.which("java") else None
    places = (spec.submodule_search_locations or ()) if spec else ()
    return next((folder for place in places if not _missing(folder := Path(place) / "spice")), None)


def _missing(folder: Path) -> str | None:
    """The first file that the program needs and that is not there."""
    return next((name for name in (JAR, *(f"lib/{model}" for model in MODELS)) if not (folder / name).is_file()), None)


def official_scores(folder: Path, captions: Sequence[tuple[str, Sequence[str]]]) -> dict[str, FloatArray]:
    """F-scores of the official program for each (candidate, references), by the keys of `NAMES`; NaN where it has none.

    The program is called as coco-caption calls it, but without its cache, which wants a library for the machine that it runs on.
    """
    given = [{"image_id": n, "test": own, "refs": list(refs)} for n, (own, refs) in enumerate(captions)]
    with tempfile.TemporaryDirectory() as place:
        asked, answered = Path(place) / "captions.json", Path(place) / "scores.json"
        asked.write_text(json.dumps(given), "utf-8")
        command = [
            "java",
            f"-Xmx{MEMORY}",
            "-jar",
            str(folder.resolve() / JAR),
            str(asked),
            "-out",
            str(answered),
            "-subset",
            "-silent",
        ]
        try:
            done = subprocess.run(command, cwd=place, capture_output=True, text=True, errors="replace", check=False)
        except OSError as problem:
            raise CrossmatchError(f"{JAR} could not be started ({problem}). {REMEDY}") from problem
        if done.returncode:
            raise CrossmatchError(
                f"{JAR} ended with code {done.returncode}: {_last_line(done.stderr)} (It wants Java 8 to 14.) {REMEDY}"
            )
        try:
            return _read(json.loads(answered.read_text("utf-8")), len(given))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
            raise CrossmatchError(
                f"{JAR} ended well, but its scores of {len(given):,} captions cannot be read "
                f"({type(problem).__name__}: {problem}). {REMEDY}"
            ) from problem


def _read(answer: Sequence[Mapping[str, Mapping[str, Mapping[str, float | None]]]], many: int) -> dict[str, FloatArray]:
    scores = {int(str(item["image_id"])): item["scores"] for item in answer}
    if sorted(scores) != list(range(many)):
        raise ValueError(f"scores of {len(scores)} captions")
    rows = [scores[n] for n in range(many)]
    return {name: np.array([_number(row[theirs]["f"]) for row in rows], dtype=np.float64) for name, theirs in NAMES.items()}


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _last_line(text: str) -> str:
    """The last line that says what went wrong: where in the program it did helps nobody.

    >>> _last_line("Error: no file\\n\\tat edu.anu.spice.SpiceScorer.main(SpiceScorer.java:56)\\n")
    'Error: no file'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    return lines[-1] if lines else "it said nothing."
