"""Publication of a result: a data sheet, Croissant metadata, and parquet files for `datasets.load_dataset`.

    README.md          the data sheet, with the front matter of Hugging Face (gebru2021datasheets; miranda2024bivlc, app. B)
    croissant.json     the same for machines (akhtar2024croissant)
    data/*.parquet     images with their captions, or trials; pictures are embedded
    judgements/*.parquet, judgements.csv    the judgements; the csv is for `crossmatch run -t collection:FOLDER`

Everything in the data sheet is counted from the data or read from manifests. Facts that only people know, such as a licence, are
options; the data sheet says which of them are missing.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.collection_writer import encode_png
from crossmatch.benchmarks.formats.csv_tables import DELIMITERS, read_table
from crossmatch.benchmarks.formats.image_caption_records import ImageOpener
from crossmatch.benchmarks.formats.judgement_files import JUDGEMENT_FILES, JudgementFileFormat
from crossmatch.benchmarks.formats.trial_files import TrialRecord, find_trial_images, read_trial_records
from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.build.publishing.data_sheet import BY_ARTIFICIAL, render_data_sheet
from crossmatch.build.publishing.parquet import IMAGE, NUMBER, TEXT, TEXTS, ParquetFile, Record, croissant_metadata, write_parquet
from crossmatch.build.publishing.provenance import ProvenanceChain, load_chain
from crossmatch.build.rating_files import JUDGEMENTS
from crossmatch.build.step_files import Row, StepOutput, StepSpec, read_rows, write_step
from crossmatch.build.step_inputs import captions_by_image
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import TEMPORARY_SUFFIX, atomic_write
from crossmatch.data.io.file_contents import file_sha256
from crossmatch.data.io.image_loading import load_image
from crossmatch.data.io.progress import track
from crossmatch.data.judgements import ARTIFICIAL

STEP = "card"
TRIALS = ("trials.jsonl", "trials.csv", "trials.tsv")
LICENCE_COLUMNS = ("licence", "license")
NUMERIC_COLUMNS = ("grade", "deviation", "positive_from")
JUDGEMENT_COLUMNS = {
    "grade": "0 is judged irrelevant; pairs that are not listed are unjudged",
    "source": "who judged",
    "direction": "the query is the image (i2t) or the caption (t2i)",
    "by": "who gave the judgement: people, the links of the collection, or artificial annotators (a rehearsal, not people)",
    "decided_by": "the source that decided",
    "positive_from": "the lowest grade of a positive pair",
    "sampling_method": "how the pair was selected for rating",
}


@dataclass(frozen=True)
class CardTexts:
    """Facts about a result that only people know, as given on the command line.

    Attributes:
        name: Name of the data set.
        about: One or more sentences about its content.
        licence: Licence of the captions and judgements.
        url: Address of the data set.
        cite: BibTeX entry or citation.
        released: Date of the release, YYYY-MM-DD.
        version: Version of the data set.

    >>> CardTexts("Small scenes", licence="cc-by-4.0", released="17.11.2026")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: --released must be a date such as 2026-11-17 (got '17.11.2026').
    >>> CardTexts("Small scenes", licence="cc-by-4.0", released="2026-11-17").version
    '1.0.0'
    """

    name: str
    about: str = ""
    licence: str = ""
    url: str = ""
    cite: str = ""
    released: str = ""
    version: str = "1.0.0"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w][\w .+-]*", self.name):
            raise UsageError(f"--name may contain letters, digits, spaces and -_.+ only (got {self.name!r:.60}).")
        if self.released and not re.fullmatch(r"\d{4}-\d\d-\d\d", self.released):
            raise UsageError(f"--released must be a date such as 2026-11-17 (got {self.released!r:.40}).")


@dataclass(frozen=True)
class CardContents:
    """What is published: parquet files, counts for the data sheet, and the licences of the images by id."""

    kind: str  # collection or trials
    files: tuple[ParquetFile, ...]
    counts: Mapping[str, int]
    licences: Mapping[str, str] = field(default_factory=dict)


def write_card(
    folder: Path, output: Path, texts: CardTexts, *, earlier: Sequence[Path] = (), licences: Path | None = None
) -> dict[str, Any]:
    """Write a result with its data sheet into another folder.

    Args:
        folder: A collection with judgements, as `build merge` writes it, or a folder with trials (trials.jsonl or .csv).
        output: Folder of the step.
        texts: Name, description, licence and similar facts.
        earlier: Folders of the steps and study exports that the result was made from.
        licences: Table with image_id and licence.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> from crossmatch.build import CardTexts, write_card, write_merge
    >>> manifest = write_merge(Diorama.make("test", images=6).collection, [], folder / "merged")
    >>> write_card(folder / "merged", folder / "card", CardTexts("Small scenes", licence="cc-by-4.0"))["counts"]
    {'images': 6, 'captions': 30, 'links': 30, 'judged pairs': 30, 'of them judged irrelevant': 0}
    >>> sorted(path.name for path in (folder / "card").glob("*.*"))
    ['README.md', 'croissant.json', 'judgements.csv', 'manifest.json', 'rows.jsonl']
    """
    if output.resolve() == folder.resolve():
        raise UsageError(f"-o {output} is the folder of the result itself. Choose another folder.")
    chain = load_chain(folder, earlier)
    _require_unchanged_judgements(folder, chain)
    image_licences = read_licences(licences) if licences else {}
    inputs = {"result": _result_hash(folder)} | {f"{step.name} {step.folder.name}": step.hash[:16] for step in chain.steps}
    inputs |= {"licences": file_sha256(licences)[:16]} if licences else {}

    # the result is read before the folder is created, so that bad input leaves nothing behind
    write_contents = _read_trials(folder, image_licences) if _trial_file(folder) else _read_collection(folder, image_licences)

    def make_rows(step: StepOutput) -> list[Row]:
        for leftover in output.rglob(f".*{TEMPORARY_SUFFIX}"):  # of a killed run; the folder is published as a whole
            leftover.unlink(missing_ok=True)
        contents = write_contents(output)
        pages = {"README.md": render_data_sheet(texts, contents, chain), "croissant.json": _croissant(texts, contents, chain)}
        for name, page in pages.items():
            with atomic_write(output / name) as file:
                file.write(page.encode())
        step.counts |= dict(contents.counts)
        files = [{"id": parquet.path, "rows": parquet.rows, "sha256": parquet.sha256} for parquet in contents.files]
        return files + [{"id": name, "sha256": file_sha256(output / name)} for name in pages]

    return write_step(output, StepSpec(STEP, inputs, dict(texts.__dict__)), make_rows)


def _require_unchanged_judgements(folder: Path, chain: ProvenanceChain) -> None:
    """Reject judgements that were edited after the merge: the data sheet would describe others."""
    if not chain.steps or chain.steps[0].name != "merge" or chain.steps[0].folder != folder:
        return
    merged = {(row["image_id"], row["caption_id"]): float(row["grade"]) for row in read_rows(folder, "merge")}
    required = (("image_id",), ("caption_id",), ("grade",))
    for row in read_table(folder / JUDGEMENTS, required, has_escaped_formulas=True):
        image, caption = row.cells["image_id"], row.cells["caption_id"]
        if merged.get((image, caption)) != float(row.cells["grade"]):
            raise CrossmatchError(
                f"{folder / JUDGEMENTS} was changed after the merge (image {image}, caption {caption}). Merge again."
            )


def _result_hash(folder: Path) -> str:
    """Hash of the judgements or trials of a result."""
    files = (folder / name for name in (*TRIALS, JUDGEMENTS, "captions.json", "captions.csv"))
    path = next((path for path in files if path.is_file()), None)
    return file_sha256(path)[:16] if path else "unknown"


def _trial_file(folder: Path) -> Path | None:
    return next((folder / name for name in TRIALS if (folder / name).is_file()), None)


def _croissant(texts: CardTexts, contents: CardContents, chain: ProvenanceChain) -> str:
    optional = {
        "license": texts.licence, "url": texts.url, "citeAs": texts.cite, "datePublished": texts.released, "version": texts.version,
    }  # fmt: skip
    counts = ", ".join(f"{number:,} {name}" for name, number in contents.counts.items())
    steps = ", ".join(step.name for step in chain.steps)
    about = texts.about or f"{counts}." + (f" Made by crossmatch: {steps}." if steps else "")
    slug = re.sub(r"[^\w-]+", "-", texts.name)
    metadata = croissant_metadata(slug, about, contents.files, {key: value for key, value in optional.items() if value})
    return json.dumps(metadata, indent=1, ensure_ascii=False)


def read_licences(path: Path) -> dict[str, str]:
    """Read the licence of each image from a table with image_id and licence (or license)."""
    if not path.is_file() or path.suffix.lower() not in DELIMITERS:
        raise UsageError(f"--image-licences {path} is not a table. Pass a .csv or .tsv with image_id and licence.")
    rows = read_table(path, (("image_id",), LICENCE_COLUMNS), row_noun="image")
    return {row.cells["image_id"]: next(row.cells[name] for name in LICENCE_COLUMNS if name in row.cells) for row in rows}


# -- a collection with judgements


def _read_collection(folder: Path, licences: Mapping[str, str]) -> Callable[[Path], CardContents]:
    """Read a collection; return a function that writes it into a folder."""
    data = load_collection_folder(folder, positive="0.000001").collection  # all grades are published, whatever is positive
    used = {name: licences[name] for name in data.image_ids.tolist() if name in licences}
    _require_all_licences(licences, used, data.shape[0])
    if data.open_image is None:
        raise CrossmatchError(f"{folder} has no pictures, only ids. Add them to its images/ folder.")
    return lambda output: _write_collection(folder, data, used, output)


def _write_collection(folder: Path, data: Collection, licences: Mapping[str, str], output: Path) -> CardContents:
    columns = {"image": IMAGE, "image_id": TEXT, "captions": TEXTS, "caption_ids": TEXTS} | ({"licence": TEXT} if licences else {})
    about = {
        "image": "the picture", "image_id": "its id", "captions": "its original captions", "caption_ids": "their ids",
        "licence": "the licence of the picture",
    }  # fmt: skip
    files = [write_parquet(output, "collection", "data", columns, about, _image_records(data, licences))]
    counts = {"images": data.shape[0], "captions": data.shape[1], "links": len(data.links)}
    for stem, pairs in JUDGEMENT_FILES.items():
        path = next((path for end in DELIMITERS if (path := folder / f"{stem}{end}").is_file()), None)
        if path is not None:
            required = (pairs.first, pairs.second, ("grade",))
            rows = [row.cells for row in read_table(path, required, has_escaped_formulas=True)]
            kinds = {name: NUMBER if name in NUMERIC_COLUMNS else TEXT for name in rows[0]}
            records = ({name: _parse_cell(row[name], kind) for name, kind in kinds.items()} for row in rows)
            files.append(write_parquet(output, stem, stem, kinds, JUDGEMENT_COLUMNS, records))
            counts |= _count_judged(rows, pairs) if stem == "judgements" else {f"rows of {stem}": len(rows)}
            first, second = (next(name for name in names if name in rows[0]) for names in (pairs.first, pairs.second))
            if artificial := len({(row[first], row[second]) for row in rows if row.get("by") == ARTIFICIAL}):
                counts[BY_ARTIFICIAL] = counts.get(BY_ARTIFICIAL, 0) + artificial
            shutil.copyfile(path, output / path.name)
    return CardContents("collection", tuple(files), counts, licences)


def _parse_cell(cell: str, kind: str) -> str | float | None:
    return cell if kind == TEXT else float(cell) if cell else None


def _count_judged(rows: Sequence[Mapping[str, str]], pairs: JudgementFileFormat) -> dict[str, int]:
    """Count distinct pairs; a pair may be listed for both directions."""
    first, second = (next(name for name in names if name in rows[0]) for names in (pairs.first, pairs.second))
    grades = {(row[first], row[second]): float(row["grade"]) for row in rows}
    return {"judged pairs": len(grades), "of them judged irrelevant": sum(grade == 0 for grade in grades.values())}


def _require_all_licences(licences: Mapping[str, str], used: Mapping[str, str], images: int) -> None:
    if licences and len(used) < images:
        raise CrossmatchError(f"--image-licences lists {len(used):,} of {images:,} images. Add a licence for each image.")


def _image_records(data: Collection, licences: Mapping[str, str]) -> Iterator[Record]:
    captions, caption_ids, texts = captions_by_image(data), data.caption_ids.tolist(), data.texts()
    for n, image_id in enumerate(track(data.image_ids.tolist(), "writing the pictures")):
        record = {"image": _encode_picture(data.open_image, image_id), "image_id": image_id}
        record |= {"captions": [texts[c] for c in captions[n]], "caption_ids": [caption_ids[c] for c in captions[n]]}
        yield record | ({"licence": licences[image_id]} if licences else {})


def _encode_picture(opener: Any, name: str) -> dict[str, Any]:
    """The bytes of a picture's file, or a PNG if there is no file; and its name."""
    is_file = isinstance(opener, ImageOpener) and name in opener.encoded
    return {"bytes": opener.read(name) if is_file else encode_png(load_image(opener, name)), "path": name}


# -- trials


def _read_trials(folder: Path, licences: Mapping[str, str]) -> Callable[[Path], CardContents]:
    """Read trials; return a function that writes them into a folder."""
    path = _trial_file(folder)
    assert path is not None
    trials = read_trial_records(path)
    shapes = {(len(trial.images), len(trial.captions)) for trial in trials}
    if len(shapes) > 1:
        raise CrossmatchError(f"{path} has trials of {len(shapes)} shapes; expected one, such as 2x1. Split the file.")
    pictures = find_trial_images(trials, folder, "")
    if not isinstance(pictures, ImageOpener):
        raise CrossmatchError(f"{folder} and its images/ contain no image that {path.name} names. Add the images.")
    names = {name for trial in trials for name in trial.images}
    used = {name: licences[name] for name in names if name in licences}
    _require_all_licences(licences, used, len(names))
    return lambda output: _write_trials(trials, pictures, used, output)


def _write_trials(trials: Sequence[TrialRecord], pictures: ImageOpener, licences: Mapping[str, str], output: Path) -> CardContents:
    images, captions = len(trials[0].images), len(trials[0].captions)
    columns = {"id": TEXT} | {f"image_{n}": IMAGE for n in range(images)} | {f"caption_{n}": TEXT for n in range(captions)}
    artificial = sum(trial.by == ARTIFICIAL for trial in trials)
    columns |= {"category": TEXT} | ({"by": TEXT} if artificial else {})
    about = {f"image_{n}": f"image {n}; it belongs to caption {n}, if there is one" for n in range(images)}
    about |= {"by": JUDGEMENT_COLUMNS["by"]} if artificial else {}
    file = write_parquet(output, "trials", "data", columns, about, _trial_records(trials, pictures, artificial > 0))
    counts = {
        "trials": len(trials),
        "images": len({name for trial in trials for name in trial.images}),
        "captions": len({text for trial in trials for text in trial.captions}),
    }
    counts |= {BY_ARTIFICIAL: artificial} if artificial else {}
    categories = {trial.category for trial in trials if trial.category}
    return CardContents("trials", (file,), counts | ({"categories": len(categories)} if categories else {}), licences)


def _trial_records(trials: Sequence[TrialRecord], pictures: ImageOpener, with_by: bool) -> Iterator[Record]:
    for trial in track(trials, "writing the trials"):
        record: dict[str, Any] = {"id": trial.id, "category": trial.category} | ({"by": trial.by} if with_by else {})
        record |= {f"image_{n}": _encode_picture(pictures, name) for n, name in enumerate(trial.images)}
        yield record | {f"caption_{n}": text for n, text in enumerate(trial.captions)}
