"""A result to be given to others: a data sheet, Croissant metadata, and parquet files that `datasets.load_dataset` takes.

    README.md          the data sheet, with the front matter that Hugging Face reads (gebru2021datasheets; miranda2024bivlc, app. B)
    croissant.json     the same for machines (akhtar2024croissant)
    data/*.parquet     images with their captions, or trials; the pictures are inside
    judgements/*.parquet, judgements.csv    what was judged; the csv is for `crossmatch run -t collection:FOLDER`

All that the data sheet says is counted from the data or read from the manifests of the steps. What only people can know, such as a
licence, is asked for, and if nobody says it, the data sheet says so.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.folder import load_folder
from crossmatch.benchmarks.formats.gathered import Pictures
from crossmatch.benchmarks.formats.judged import FILES, Pairs
from crossmatch.benchmarks.formats.table import DELIMITERS, read_table
from crossmatch.benchmarks.formats.trials import Offer, pictures_of, read_offers
from crossmatch.benchmarks.formats.written import png_of
from crossmatch.build.files import Asked, Output, Row, read_rows, written
from crossmatch.build.material import groups_of
from crossmatch.build.provenance import Chain, chain_of
from crossmatch.build.shards import IMAGE, NUMBER, TEXT, TEXTS, Record, Shard, croissant, write_shard
from crossmatch.build.sheet import sheet
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import sha256_of
from crossmatch.core.pictures import opened
from crossmatch.core.progress import track
from crossmatch.core.whole import UNFINISHED, whole_file

STEP = "card"
TRIALS = ("trials.jsonl", "trials.csv", "trials.tsv")
LICENCES = ("licence", "license")
NUMBERS = ("grade", "deviation")
JUDGED = {
    "grade": "0 is judged irrelevant; what is not listed is unjudged",
    "source": "who judged",
    "direction": "the query is the image (i2t) or the caption (t2i)",
    "decided_by": "the source that had the last word",
}


@dataclass(frozen=True)
class Wording:
    """What only people know about a result: what the data sheet says in their words."""

    name: str
    about: str = ""
    licence: str = ""
    url: str = ""
    cite: str = ""
    released: str = ""  # year-month-day
    version: str = "1.0.0"

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w][\w .+-]*", self.name):
            raise WrongWords(f"the name is {self.name!r:.60}; letters, digits and -_.+ were expected.")
        if self.released and not re.fullmatch(r"\d{4}-\d\d-\d\d", self.released):
            raise WrongWords(f"the day of release is {self.released!r:.40}; year-month-day was expected, such as 2026-11-17.")


@dataclass(frozen=True)
class Material:
    """What is to be given away: its files, counts for the data sheet, and the licences of its images by id."""

    kind: str  # collection or trials
    shards: tuple[Shard, ...]
    counts: Mapping[str, int]
    licences: Mapping[str, str] = field(default_factory=dict)


def card(
    folder: Path, output: Path, words: Wording, *, earlier: Sequence[Path] = (), licences: Path | None = None
) -> dict[str, Any]:
    """Write a result with its data sheet into another folder; the manifest.

    `folder` is a collection with judgements, such as `build merge` writes, or has trials (trials.jsonl or .csv). `earlier` are the
    folders of steps and of studies' exports that it was made from. `licences` is a table with image_id and licence.
    """
    if output.resolve() == folder.resolve():
        raise WrongWords(f"{output} is the result itself. Take another folder for the card.")
    chain = chain_of(folder, earlier)
    _require_as_merged(folder, chain)
    of_images = read_licences(licences) if licences else {}
    named = {f"{one.name} {one.folder.name}": one.hash[:16] for one in chain.links}
    inputs = {"result": _digest(folder), **named} | ({"licences": sha256_of(licences)[:16]} if licences else {})

    give = _trials(folder, of_images) if _trial_file(folder) else _collection(folder, of_images)  # read before a folder is begun

    def rows(made: Output) -> Iterator[Row]:
        for left in output.rglob(f".*{UNFINISHED}"):  # of a card that was killed: the folder is to be given away
            left.unlink(missing_ok=True)
        material = give(output)
        texts = {"README.md": sheet(words, material, chain), "croissant.json": _croissant(words, material, chain)}
        for name, text in texts.items():
            with whole_file(output / name) as file:
                file.write(text.encode())
        made.counts |= dict(material.counts)
        for one in material.shards:
            yield {"id": one.path, "rows": one.rows, "sha256": one.sha256}
        for name in texts:
            yield {"id": name, "sha256": sha256_of(output / name)}

    return written(output, Asked(STEP, inputs, dict(words.__dict__)), rows)


def _require_as_merged(folder: Path, chain: Chain) -> None:
    """Refuse judgements that were changed after they were merged: the data sheet would tell of others."""
    if not chain.links or chain.links[0].name != "merge" or chain.links[0].folder != folder:
        return
    merged = {(row["image_id"], row["caption_id"]): float(row["grade"]) for row in read_rows(folder, "merge")}
    table = read_table(folder / "judgements.csv", (("image_id",), ("caption_id",), ("grade",)))
    listed = {(row.cells["image_id"], row.cells["caption_id"]): float(row.cells["grade"]) for row in table}
    changed = next((pair for pair, grade in listed.items() if merged.get(pair) != grade), None)
    if changed is not None:
        raise CrossmatchError(
            f"{folder / 'judgements.csv'} was changed after it was merged, at {changed[0]} and {changed[1]}. Merge anew."
        )


def _digest(folder: Path) -> str:
    """What identifies a result: its judgements or trials."""
    files = (folder / name for name in (*TRIALS, "judgements.csv", "captions.json", "captions.csv"))
    path = next((path for path in files if path.is_file()), None)
    return sha256_of(path)[:16] if path else "unknown"


def _trial_file(folder: Path) -> Path | None:
    return next((folder / name for name in TRIALS if (folder / name).is_file()), None)


def _croissant(words: Wording, material: Material, chain: Chain) -> str:
    more = {
        "license": words.licence,
        "url": words.url,
        "citeAs": words.cite,
        "datePublished": words.released,
        "version": words.version,
    }
    told = ", ".join(f"{number:,} {what}" for what, number in material.counts.items())
    made = ", ".join(one.name for one in chain.links)
    about = words.about or f"{told}." + (f" Made by crossmatch: {made}." if made else "")
    found = croissant(_slug(words.name), about, material.shards, {key: value for key, value in more.items() if value})
    return json.dumps(found, indent=1, ensure_ascii=False)


def _slug(name: str) -> str:
    return re.sub(r"[^\w-]+", "-", name)


def read_licences(path: Path) -> dict[str, str]:
    """The licence of each image, from a table with image_id and licence (or license)."""
    if not path.is_file() or path.suffix.lower() not in DELIMITERS:
        raise WrongWords(f"{path} is no table. Name a .csv or .tsv with image_id and licence.")
    rows = read_table(path, (("image_id",), LICENCES), each="image")
    return {row.cells["image_id"]: next(row.cells[name] for name in LICENCES if name in row.cells) for row in rows}


# -- a collection with judgements


def _collection(folder: Path, licences: Mapping[str, str]) -> Callable[[Path], Material]:
    """Reads a collection; what it gives writes it into a folder."""
    held = load_folder(folder, positive="0.000001").collection  # whatever is positive, all grades are given on
    known = {name: licences[name] for name in held.image_ids.tolist() if name in licences}
    _require_all(licences, known, held.shape[0])
    if held.open_image is None:
        raise CrossmatchError("the result has no pictures, only ids. Put them into its images/.")
    return lambda output: _give_collection(folder, held, known, output)


def _give_collection(folder: Path, held: Collection, known: Mapping[str, str], output: Path) -> Material:
    columns = {"image": IMAGE, "image_id": TEXT, "captions": TEXTS, "caption_ids": TEXTS} | ({"licence": TEXT} if known else {})
    about = {
        "image": "the picture", "image_id": "its name", "captions": "the captions it came with", "caption_ids": "their names",
        "licence": "the licence of the picture",
    }  # fmt: skip
    shards = [write_shard(output, "collection", "data", columns, about, _images(held, known))]
    counts = {"images": held.shape[0], "captions": held.shape[1], "links": len(held.links)}
    for stem, pairs in FILES.items():
        path = next((path for end in DELIMITERS if (path := folder / f"{stem}{end}").is_file()), None)
        if path is not None:
            rows = [row.cells for row in read_table(path, (pairs.first, pairs.second, ("grade",)))]
            kinds = {name: NUMBER if name in NUMBERS else TEXT for name in rows[0]}
            shards.append(write_shard(output, stem, stem, kinds, JUDGED, _graded(rows, kinds)))
            counts |= _judged(rows, pairs) if stem == "judgements" else {f"rows of {stem}": len(rows)}
            shutil.copyfile(path, output / path.name)
    return Material("collection", tuple(shards), counts, known)


def _judged(rows: Sequence[Mapping[str, str]], pairs: Pairs) -> dict[str, int]:
    """Pairs, however many directions they are listed for."""
    first, second = (next(name for name in names if name in rows[0]) for names in (pairs.first, pairs.second))
    grades = {(row[first], row[second]): float(row["grade"]) for row in rows}
    return {"judged pairs": len(grades), "of them judged irrelevant": sum(grade == 0 for grade in grades.values())}


def _require_all(licences: Mapping[str, str], known: Mapping[str, str], images: int) -> None:
    if licences and len(known) < images:
        raise CrossmatchError(f"{len(known):,} of {images:,} images have a licence in the table. Name one for each of them.")


def _images(held: Collection, licences: Mapping[str, str]) -> Iterator[Record]:
    groups, ids = groups_of(held), held.caption_ids.tolist()
    texts, encoded = held.texts(), _encoded(held.open_image)
    for n, name in enumerate(track(held.image_ids.tolist(), "writing the pictures")):
        record = {"image": encoded(name), "image_id": name}
        record |= {"captions": [texts[c] for c in groups[n]], "caption_ids": [ids[c] for c in groups[n]]}
        yield record | ({"licence": licences[name]} if licences else {})


def _encoded(opener: Any) -> Callable[[str], tuple[bytes, str]]:
    """A picture as the bytes of its file, or else as PNG; and a name for it."""

    def encoded(name: str) -> tuple[bytes, str]:
        if isinstance(opener, Pictures) and name in opener.stored:
            return opener.read(name), name
        return png_of(opened(opener, name)), name

    return encoded


def _graded(rows: Sequence[Mapping[str, str]], kinds: Mapping[str, str]) -> Iterator[Record]:
    for row in rows:
        yield {name: (float(row[name]) if row[name] else None) if kind == NUMBER else row[name] for name, kind in kinds.items()}


# -- trials


def _trials(folder: Path, licences: Mapping[str, str]) -> Callable[[Path], Material]:
    """Reads trials; what it gives writes them into a folder."""
    path = _trial_file(folder)
    assert path is not None
    offers = read_offers(path)
    shapes = {(len(one.images), len(one.captions)) for one in offers}
    if len(shapes) > 1:
        raise CrossmatchError(f"{path} has trials of {len(shapes)} shapes; one was expected, such as 2x1. Split it.")
    pictures = pictures_of(offers, folder, "")
    if not isinstance(pictures, Pictures):
        raise CrossmatchError(f"no image that {path.name} names is in {folder} or its images/. Put them there.")
    names = {name for one in offers for name in one.images}
    known = {name: licences[name] for name in names if name in licences}
    _require_all(licences, known, len(names))
    return lambda output: _give_trials(offers, pictures, known, output)


def _give_trials(offers: Sequence[Offer], pictures: Pictures, known: Mapping[str, str], output: Path) -> Material:
    images, captions = len(offers[0].images), len(offers[0].captions)
    names = {name for one in offers for name in one.images}
    columns = {"id": TEXT} | {f"image_{n}": IMAGE for n in range(images)} | {f"caption_{n}": TEXT for n in range(captions)}
    columns |= {"category": TEXT}
    about = {f"image_{n}": f"image {n}; it belongs to caption {n}, if there is one" for n in range(images)}
    shard = write_shard(output, "trials", "data", columns, about, _offered(offers, pictures))
    counts = {"trials": len(offers), "images": len(names), "captions": len({text for one in offers for text in one.captions})}
    of_categories = {one.category for one in offers if one.category}
    return Material("trials", (shard,), counts | ({"categories": len(of_categories)} if of_categories else {}), known)


def _offered(offers: Sequence[Offer], pictures: Pictures) -> Iterator[Record]:
    encoded = _encoded(pictures)
    for one in track(offers, "writing the trials"):
        record: dict[str, Any] = {"id": one.id, "category": one.category}
        record |= {f"image_{n}": encoded(name) for n, name in enumerate(one.images)}
        yield record | {f"caption_{n}": text for n, text in enumerate(one.captions)}
