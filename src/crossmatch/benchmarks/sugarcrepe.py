"""SugarCrepe: the caption of an image against a hard negative that differs in one object, attribute or relation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

from crossmatch.benchmarks.coco_images import coco_pictures, how_to_get
from crossmatch.benchmarks.data_sets import have, need
from crossmatch.benchmarks.formats.coco import as_id
from crossmatch.benchmarks.formats.table import read_table
from crossmatch.benchmarks.formats.trials import NoPictures, Offer, as_trials
from crossmatch.core.benchmark import Benchmark, Count
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import read_json
from crossmatch.core.trials import Trials

CSV = "sugarcrepe/test_SugarCrepe.csv"
FIELDS = ("filename", "caption", "negative_caption")
SUBSETS = ("add_obj", "add_att", "replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att")  # the order of the csv
CATEGORIES = tuple(subset.replace("_", "/") for subset in SUBSETS)


def load(source: str) -> Trials:
    """One image and two captions each, in the order of the csv. A trial is called `swap_obj/107`: its subset, and its key there.

    The csv has all 7,512 (hsieh2023sugarcrepe; miranda2024bivlc, tab. 1). The json of swap_obj lacks the record 108.
    """
    readers = {"csv": _from_csv, "json": _from_json}
    if source not in readers:
        raise WrongWords(f"source is {source!r}; csv or json was expected.")
    offers = readers[source]()
    files = {name: name for offer in offers for name in offer.images}
    opener = coco_pictures("val2017", files) or NoPictures(how_to_get("val2017"))
    return as_trials(offers, (1, 2), opener, rows=_rows(offers) if source == "json" else None)


def _rows(offers: list[Offer]) -> list[int]:
    """The rows of the csv that the records of the json are: a key that is missing leaves its row out."""
    keys = [(subset, int(key)) for subset, _, key in (offer.id.partition("/") for offer in offers)]
    sizes = {subset: 1 + max((key for own, key in keys if own == subset), default=-1) for subset in SUBSETS}
    before = dict(zip(SUBSETS, accumulate(sizes.values(), initial=0), strict=False))
    return [before[subset] + key for subset, key in keys]


def ids_by_row(subsets: Iterable[tuple[str, str]]) -> list[str]:
    """The id of every row of the csv, or of a file with its rows in the same order, from the types and subtypes.

    A row is the n-th of its subset, and n is its key in the json of the subset.

    >>> ids_by_row([("add", "obj"), ("add", "obj"), ("swap", "att"), ("add", "obj")])
    ['add_obj/0', 'add_obj/1', 'swap_att/0', 'add_obj/2']
    """
    numbers: Counter[str] = Counter()
    found = []
    for kind, part in subsets:
        subset = f"{kind}_{part}"
        found.append(f"{subset}/{numbers[subset]}")
        numbers[subset] += 1
    return found


def _from_csv() -> list[Offer]:
    if have(CSV) is None and have(f"sugarcrepe/{SUBSETS[0]}.json") is not None:
        raise CrossmatchError(
            f"{CSV} is not here. Get it with `crossmatch data get sugarcrepe`, or take the json files, which lack one record: "
            "-t sugarcrepe+source=json"
        )
    path = need(CSV)
    rows = read_table(path, tuple((name,) for name in (*FIELDS, "type", "subtype")), each="trial")
    names = ids_by_row((row.cells["type"], row.cells["subtype"]) for row in rows)
    return [_offer(name, row.cells, row.where) for name, row in zip(names, rows, strict=True)]


def _from_json() -> list[Offer]:
    offers = []
    for subset in SUBSETS:
        path = need(f"sugarcrepe/{subset}.json")
        held = read_json(path)
        if not isinstance(held, dict):
            raise CrossmatchError(f"{path} holds no json object. Get it again: crossmatch data get sugarcrepe")
        for key, record in held.items():
            where, name = f"{path} {key!r}", f"{subset}/{key}"
            if not key.isdecimal():
                raise CrossmatchError(f"{where} is no number; the records of {subset} were expected to be numbered. Mend it.")
            odd = [field for field in FIELDS if not (isinstance(record, dict) and isinstance(record.get(field), str))]
            if odd:
                raise CrossmatchError(f"{where}: trial {name!r} has no text under {odd[0]!r}. Mend it.")
            offers.append(_offer(name, record, where))
    return offers


def _offer(name: str, record: Mapping[str, str], where: str) -> Offer:
    subset = name.partition("/")[0]
    image = as_id(record["filename"], f"{where}: trial {name!r}", "filename")
    return Offer(name, (image,), (record["caption"], record["negative_caption"]), subset.replace("_", "/").lower(), where)


SUGARCREPE = Benchmark(
    name="sugarcrepe",
    about="SugarCrepe: which of two captions fits an image, the other made from it by adding, replacing or swapping",
    load=load,
    metrics=("accuracy",),
    directions=("i2t",),
    options={"source": "csv"},
    expect={"trials": Count(7_512, 7_512)},
    licence="MIT; images by their Flickr owners",
    cite="hsieh2023sugarcrepe; miranda2024bivlc",
    categories=CATEGORIES,
)
