"""Call the official SPICE program (anderson2016spice) if Java, the program and its language models are installed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.file_contents import UndecodableFileError, check_record, decode_json_file

JAR = "spice-1.0.jar"
MODELS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")  # in the folder lib/ next to the jar
ENVIRONMENT_VARIABLE = "CROSSMATCH_SPICE"  # a folder with the jar; or `rules` for the parser of this package
MEMORY = "8G"  # as in coco-caption
SCORE_NAMES = {  # names in the program's output
    "all": "All", "object": "Object", "attribute": "Attribute", "relation": "Relation",
    "colour": "Color", "count": "Cardinality", "size": "Size",
}  # fmt: skip
REMEDY = f"Use the parser of this package: set {ENVIRONMENT_VARIABLE}=rules, or call spice(corpus, parser='rules')."


def find_official_folder() -> Path | None:
    """The folder of a program that can run: that of `CROSSMATCH_SPICE`, or that of pycocoevalcap if it has the models; or None."""
    folder_name = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if folder_name == "rules":
        return None
    if folder_name:
        missing = _missing_file(Path(folder_name))
        if missing:
            raise CrossmatchError(
                f"{ENVIRONMENT_VARIABLE} is {folder_name}, but this folder has no {missing}. Copy it there, or unset "
                f"{ENVIRONMENT_VARIABLE}."
            )
        if shutil.which("java") is None:
            raise CrossmatchError(
                f"{ENVIRONMENT_VARIABLE} is {folder_name}, but Java is not installed. Install it, or unset {ENVIRONMENT_VARIABLE}."
            )
        return Path(folder_name)
    spec = importlib.util.find_spec("pycocoevalcap") if shutil.which("java") else None
    locations = (spec.submodule_search_locations or ()) if spec else ()
    return next((folder for location in locations if not _missing_file(folder := Path(location) / "spice")), None)


def _missing_file(folder: Path) -> str | None:
    """The first file that the program needs and that the folder does not have."""
    return next((name for name in (JAR, *(f"lib/{model}" for model in MODELS)) if not (folder / name).is_file()), None)


def run_official_program(folder: Path, captions: Sequence[tuple[str, Sequence[str]]]) -> dict[str, FloatArray]:
    """F-scores of the official program for each (candidate, references), by the keys of `SCORE_NAMES`; NaN if undefined.

    The program is called as in coco-caption, but without its cache, which needs a platform-specific library.
    """
    entries = [{"image_id": n, "test": candidate, "refs": list(refs)} for n, (candidate, refs) in enumerate(captions)]
    with tempfile.TemporaryDirectory() as work_folder:
        input_file, output_file = Path(work_folder) / "captions.json", Path(work_folder) / "scores.json"
        input_file.write_text(json.dumps(entries), "utf-8")
        program = str(folder.resolve() / JAR)
        command = ["java", f"-Xmx{MEMORY}", "-jar", program, str(input_file), "-out", str(output_file), "-subset", "-silent"]
        try:
            process = subprocess.run(command, cwd=work_folder, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise CrossmatchError(f"{JAR} could not be started ({error}). {REMEDY}") from error
        if process.returncode:
            raise CrossmatchError(
                f"{JAR} failed with code {process.returncode}: {_last_line(process.stderr)} (It needs Java 8 to 14.) {REMEDY}"
            )
        try:
            return _parse_scores(decode_json_file(output_file), len(entries))
        except UndecodableFileError as error:
            raise CrossmatchError(f"The output of {JAR} for {len(entries):,} captions cannot be read ({error}). {REMEDY}") from None


def _parse_scores(output: object, captions: int) -> dict[str, FloatArray]:
    if not isinstance(output, list):
        raise UndecodableFileError(f"the file is {output!r:.40}, expected a list")
    scores = {}
    for n, item in enumerate(output):
        check_record(item, f"item {n}", {"image_id": (int, str), "scores": dict})
        for label in SCORE_NAMES.values():
            check_record(item["scores"].get(label), f"score {label} of item {n}", {"f": (int, float, type(None))})
        scores[str(item["image_id"])] = item["scores"]
    if set(scores) != set(map(str, range(captions))):
        raise UndecodableFileError(f"it has the scores of {len(scores)} captions")
    rows = [scores[str(n)] for n in range(captions)]
    return {name: np.array([_number(row[label]["f"]) for row in rows], dtype=np.float64) for name, label in SCORE_NAMES.items()}


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _last_line(text: str) -> str:
    """The last line of an error message, without the stack trace.

    >>> _last_line("Error: no file\\n\\tat edu.anu.spice.SpiceScorer.main(SpiceScorer.java:56)\\n")
    'Error: no file'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "... "))]
    return lines[-1] if lines else "no error message."
