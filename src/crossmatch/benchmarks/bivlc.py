"""BiVLC: SugarCrepe in both directions; two images and two captions, the second ones hard negatives (miranda2024bivlc)."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crossmatch.benchmarks.datasets.dataset_table import find_data_file, require_data_file
from crossmatch.benchmarks.formats.csv_tables import TableRow, read_table
from crossmatch.benchmarks.formats.huggingface import has_shards, read_shard_rows
from crossmatch.benchmarks.formats.image_caption_records import EncodedImage, ImageOpener
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.benchmarks.formats.trial_files import MissingImages, TrialRecord, build_trials, category_path, find_trial_images
from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.paths import data_folder
from crossmatch.data.trials import Trials

OUTCOMES = "bivlc/results/BiVLC_ViT-B-32.csv"  # published outcomes, with the captions
SOURCE_CAPTIONS = "bivlc/BiVLC_negative_imgs.csv"  # which COCO image each pair of captions comes from
TEXTS = ("caption", "negative_caption", "type", "subtype")
IMAGES = ("image", "negative_image")
CATEGORIES = ("replace/obj", "replace/att", "replace/rel", "swap/obj", "swap/att", "add/obj", "add/att")
COCO_FILE = re.compile(r"\d{12}\.jpg")
HUB = "https://huggingface.co/datasets/imirandam/BiVLC"


@dataclass(frozen=True)
class BivlcRow:
    """A row of the data set: its texts by column, and its images as far as available: encoded images, file names, or neither."""

    texts: Mapping[str, str]
    where: str
    encoded: tuple[EncodedImage, ...] = ()
    files: tuple[str | None, ...] = (None, None)


def load() -> Trials:
    """Load the 2x2 trials, the natural image and caption first. The id of a trial is its row number in the official order.

    Reads the Parquet files of the hub in `bivlc/` or `bivlc/data/`. Without them, reads a csv in `bivlc/` with the same columns,
    whose images are files in that folder or in `images/`. Without both, reads a published file of outcomes, which has the captions
    but no images.

    The id of the negative image of row 7 is `7-`. The id of the natural image is its COCO file name, because up to eleven rows
    share an image and are not independent. The file name comes from BiVLC_negative_imgs.csv (matched by the captions), or from
    the Parquet file. If neither has it, the id is `7+`.
    """
    folder = data_folder() / "bivlc"
    rows = _read_shards(folder) or _read_image_table(folder) or _read_outcome_captions(folder)
    names = natural_image_names(rows)
    records = [_trial_record(row, n, name) for n, (row, name) in enumerate(zip(rows, names, strict=True))]
    encoded: dict[str, EncodedImage] = {}
    for record, row in zip(records, rows, strict=True):
        encoded.update(zip(record.images, row.encoded, strict=False))  # rows of a csv may have no images
    hint = (
        f"the images of BiVLC are not in {folder}. Put the Parquet files of {HUB} (folder data) into {folder / 'data'}, or "
        "evaluate precomputed scores or published outcomes: -m precomputed:FILE"
    )
    return build_trials(records, (2, 2), ImageOpener(encoded, decode_image) if encoded else MissingImages(hint))


def _read_shards(folder: Path) -> list[BivlcRow]:
    rows = read_shard_rows(folder, IMAGES, TEXTS) if has_shards(folder) else []
    for n, row in enumerate(rows):
        not_text = next((name for name in TEXTS if not isinstance(row.texts[name], str)), None)
        if not_text is not None:
            raise CrossmatchError(f"{row.where}: trial '{n}' has no text in column {not_text!r}. Get the official files: {HUB}")
    return [BivlcRow(row.texts, row.where, row.images, row.files) for row in rows]


def _read_image_table(folder: Path) -> list[BivlcRow]:
    """Read the csv in the folder that has all six columns."""
    tables = [path for path in sorted(folder.glob("*.csv")) if {*TEXTS, *IMAGES} <= _read_header(path)]
    if len(tables) > 1:
        raise CrossmatchError(f"{folder} holds {tables[0].name} and {tables[1].name}, and either could be meant. Keep one.")
    if not tables:
        return []
    rows = read_table(tables[0], (), row_noun="trial")
    records = [
        TrialRecord(str(n), tuple(row.cells[key] for key in IMAGES), (row.cells["caption"],), "", row.where)
        for n, row in enumerate(rows)
    ]
    same = next((record for record in records if record.images[0] == record.images[1]), None)
    if same is not None:
        raise CrossmatchError(
            f"{same.where}: trial {same.id!r} has the same image twice, so it cannot be won. Name the negative image."
        )
    opener = find_trial_images(records, folder, "")
    encoded = opener.encoded if isinstance(opener, ImageOpener) else {}
    return [
        BivlcRow(row.cells, row.where, tuple(encoded[name] for name in record.images if name in encoded), record.images)
        for row, record in zip(rows, records, strict=True)
    ]


def _read_header(path: Path) -> set[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        return {name.strip(' "\r\n\ufeff').lower() for name in file.readline().split(",")}


def _read_outcome_captions(folder: Path) -> list[BivlcRow]:
    other_files = sorted((folder / "results").glob("BiVLC_*.csv"))
    path = other_files[0] if other_files and find_data_file(OUTCOMES) is None else require_data_file(OUTCOMES)
    rows: Sequence[TableRow] = read_table(path, tuple((name,) for name in TEXTS), row_noun="trial")
    return [BivlcRow(row.cells, row.where) for row in rows]  # the image columns hold the repr of a Python object


def _trial_record(row: BivlcRow, n: int, natural: str) -> TrialRecord:
    category = category_path([row.texts["type"], row.texts["subtype"]], f"{row.where}: trial '{n}'")
    return TrialRecord(str(n), (natural, f"{n}-"), (row.texts["caption"], row.texts["negative_caption"]), category, row.where)


def natural_image_names(rows: Sequence[BivlcRow]) -> list[str]:
    """Return the COCO file name of each row's natural image if it is available, else the row number with a plus.

    BiVLC rewrote SugarCrepe's captions in one format, so captions are compared by their letters and digits. Two rows have equal
    captions; they are matched in the order of the source file.
    """
    path = find_data_file(SOURCE_CAPTIONS)
    file_names: dict[tuple[str, ...], deque[str]] = defaultdict(deque)
    for source_row in read_table(path, (("filename",), *((name,) for name in TEXTS))) if path else ():
        file_names[_caption_key(source_row.cells)].append(source_row.cells["filename"])
    names = []
    for n, row in enumerate(rows):
        matching_files = file_names[_caption_key(row.texts)]
        stored_name = PurePosixPath(row.files[0] or "").name
        names.append(matching_files.popleft() if matching_files else stored_name if COCO_FILE.fullmatch(stored_name) else f"{n}+")
    return names


def _caption_key(texts: Mapping[str, str]) -> tuple[str, ...]:
    return (
        *("".join(filter(str.isalnum, texts[name].lower())) for name in TEXTS[:2]),
        category_path([texts["type"], texts["subtype"]], ""),
    )


BIVLC = Benchmark(
    name="bivlc",
    description="BiVLC: two images and two captions that differ in one object, attribute or relation, matched in both directions",
    loader=load,
    metrics=("i2t", "t2i", "group", "ipos2t", "ineg2t", "tpos2i", "tneg2i"),
    expected_counts={"trials": ExpectedCount(2_933, 2_933)},
    licence="MIT; natural images by their Flickr owners",
    cite="miranda2024bivlc",
    categories=CATEGORIES,
)
