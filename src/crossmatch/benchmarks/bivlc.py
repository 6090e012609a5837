"""BiVLC: two images and two captions, the second of each a hard negative; SugarCrepe in both directions (miranda2024bivlc)."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crossmatch.benchmarks.data_sets import have, need
from crossmatch.benchmarks.formats.gathered import Pictures, Stored, decoded
from crossmatch.benchmarks.formats.table import Row, read_table
from crossmatch.benchmarks.formats.trial_shards import has_shards, shard_rows
from crossmatch.benchmarks.formats.trials import NoPictures, Offer, as_trials, category_of, pictures_of
from crossmatch.core.benchmark import Benchmark, Count
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.places import data_folder
from crossmatch.core.trials import Trials

OUTCOMES = "bivlc/results/BiVLC_ViT-B-32.csv"  # published outcomes; they carry the captions, too
MADE_OF = "bivlc/BiVLC_negative_imgs.csv"  # which COCO image each pair of captions comes from
TEXTS = ("caption", "negative_caption", "type", "subtype")
IMAGES = ("image", "negative_image")
CATEGORIES = ("replace/obj", "replace/att", "replace/rel", "swap/obj", "swap/att", "add/obj", "add/att")
COCO_FILE = re.compile(r"\d{12}\.jpg")
HUB = "https://huggingface.co/datasets/imirandam/BiVLC"


@dataclass(frozen=True)
class Instance:
    """A row of the data set: its texts by column, and what is known of its images: stored pictures, names of files, or nothing."""

    texts: Mapping[str, str]
    where: str
    stored: tuple[Stored, ...] = ()
    files: tuple[str | None, ...] = (None, None)


def load() -> Trials:
    """Two images and two captions each, the natural ones first. A trial goes by the number of its row in the official order.

    Read are the Parquet files of the hub in `bivlc/` or `bivlc/data/`; else a csv in `bivlc/` with the same columns, the images of
    which are files beside it or in `images/`; else a published file of outcomes, which knows the captions but has no pictures.

    The negative image of row 7 is called `7-`. The natural one goes by its COCO file, because up to eleven rows share it and are
    not independent: BiVLC_negative_imgs.csv tells it by the captions, or else the name beside the bytes. Failing both it is `7+`.
    """
    folder = data_folder() / "bivlc"
    found = _in_shards(folder) or _in_table(folder) or _in_outcomes(folder)
    names = natural_names(found)
    offers = [_offer(row, n, name) for n, (row, name) in enumerate(zip(found, names, strict=True))]
    stored: dict[str, Stored] = {}
    for offer, row in zip(offers, found, strict=True):
        stored.update(zip(offer.images, row.stored, strict=False))  # a row without pictures has none
    how = (
        f"BiVLC's pictures are not in {folder}. Put the Parquet files of {HUB} (folder data) into {folder / 'data'}, or evaluate "
        "scores or published outcomes: -m precomputed:FILE"
    )
    return as_trials(offers, (2, 2), Pictures(stored, decoded) if stored else NoPictures(how))


def _in_shards(folder: Path) -> list[Instance]:
    rows = shard_rows(folder, IMAGES, TEXTS) if has_shards(folder) else []
    for n, row in enumerate(rows):
        odd = next((name for name in TEXTS if not isinstance(row.texts[name], str)), None)
        if odd is not None:
            raise CrossmatchError(f"{row.where}: trial '{n}' has no text under {odd!r}. Fetch the official files: {HUB}")
    return [Instance(row.texts, row.where, row.images, row.files) for row in rows]


def _in_table(folder: Path) -> list[Instance]:
    """The one csv in the folder that has all six columns."""
    tables = [path for path in sorted(folder.glob("*.csv")) if {*TEXTS, *IMAGES} <= _head(path)]
    if len(tables) > 1:
        raise CrossmatchError(
            f"{folder} holds {tables[0].name} and {tables[1].name}. Keep one, so that it is clear which is meant."
        )
    if not tables:
        return []
    rows = read_table(tables[0], (), each="trial")
    named = [
        Offer(str(n), tuple(row.cells[key] for key in IMAGES), (row.cells["caption"],), "", row.where) for n, row in enumerate(rows)
    ]
    same = next((offer for offer in named if offer.images[0] == offer.images[1]), None)
    if same is not None:
        raise CrossmatchError(
            f"{same.where}: trial {same.id!r} has one image twice, so that it cannot be won. Name the negative one."
        )
    opener = pictures_of(named, folder, "")
    held = opener.stored if isinstance(opener, Pictures) else {}
    return [
        Instance(row.cells, row.where, tuple(held[name] for name in offer.images if name in held), offer.images)
        for row, offer in zip(rows, named, strict=True)
    ]


def _head(path: Path) -> set[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        return {name.strip(' "\r\n\ufeff').lower() for name in file.readline().split(",")}


def _in_outcomes(folder: Path) -> list[Instance]:
    path = next(iter(sorted((folder / "results").glob("BiVLC_*.csv"))), None) if have(OUTCOMES) is None else need(OUTCOMES)
    rows: Sequence[Row] = read_table(path or need(OUTCOMES), tuple((name,) for name in TEXTS), each="trial")
    return [Instance(row.cells, row.where) for row in rows]  # its image columns are Python's words about an object in memory


def _offer(row: Instance, n: int, natural: str) -> Offer:
    category = category_of([row.texts["type"], row.texts["subtype"]], f"{row.where}: trial '{n}'")
    return Offer(str(n), (natural, f"{n}-"), (row.texts["caption"], row.texts["negative_caption"]), category, row.where)


def natural_names(rows: Sequence[Instance]) -> list[str]:
    """The COCO file of each row's natural image, as far as it can be told; else the row's number with a plus.

    BiVLC rewrote SugarCrepe's captions in one format, so captions are compared by their letters and digits. That tells every row
    apart but two, which have the same captions, and these come in the order in which they were made.
    """
    path = have(MADE_OF)
    known: dict[tuple[str, ...], deque[str]] = defaultdict(deque)
    for made in read_table(path, (("filename",), *((name,) for name in TEXTS))) if path else ():
        known[_key(made.cells)].append(made.cells["filename"])
    found = []
    for n, row in enumerate(rows):
        same = known[_key(row.texts)]
        beside = PurePosixPath(row.files[0] or "").name
        told = same.popleft() if same else beside if COCO_FILE.fullmatch(beside) else f"{n}+"
        found.append(told)
    return found


def _key(texts: Mapping[str, str]) -> tuple[str, ...]:
    return (
        *("".join(filter(str.isalnum, texts[name].lower())) for name in TEXTS[:2]),
        category_of([texts["type"], texts["subtype"]], ""),
    )


BIVLC = Benchmark(
    name="bivlc",
    about="BiVLC: two images and two captions that differ in one object, attribute or relation, matched in both directions",
    load=load,
    metrics=("i2t", "t2i", "group", "ipos2t", "ineg2t", "tpos2i", "tneg2i"),
    expect={"trials": Count(2_933, 2_933)},
    licence="MIT; natural images by their Flickr owners",
    cite="miranda2024bivlc",
    categories=CATEGORIES,
)
