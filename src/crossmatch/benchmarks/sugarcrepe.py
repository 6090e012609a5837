"""SugarCrepe: the caption of an image against a hard negative that differs in one object, attribute or relation.

Sources: hsieh2023sugarcrepe; the csv is that of miranda2024bivlc.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

from crossmatch.benchmarks.coco import coco_image_opener, missing_images_hint
from crossmatch.benchmarks.datasets.dataset_table import find_data_file, require_data_file
from crossmatch.benchmarks.formats.coco_json import parse_id
from crossmatch.benchmarks.formats.csv_tables import read_table
from crossmatch.benchmarks.formats.trial_files import MissingImages, TrialRecord, build_trials
from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import read_json
from crossmatch.data.trials import Trials

CSV = "sugarcrepe/test_SugarCrepe.csv"
FIELDS = ("filename", "caption", "negative_caption")
SUBSETS = ("add_obj", "add_att", "replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att")  # the order of the csv
CATEGORIES = tuple(subset.replace("_", "/") for subset in SUBSETS)


def load(source: str) -> Trials:
    """Load the 1x2 trials in the order of the csv. A trial id such as `swap_obj/107` is its subset, and its key there.

    The csv has all 7,512 trials (hsieh2023sugarcrepe; miranda2024bivlc, tab. 1). The json of swap_obj lacks record 108.
    """
    readers = {"csv": _read_csv, "json": _read_json_files}
    if source not in readers:
        raise UsageError(f"source must be csv or json (got {source!r}).")
    trials = readers[source]()
    files = {name: name for trial in trials for name in trial.images}
    opener = coco_image_opener("val2017", files) or MissingImages(missing_images_hint("val2017"))
    return build_trials(trials, (1, 2), opener, rows=_csv_rows(trials) if source == "json" else None)


def _csv_rows(trials: list[TrialRecord]) -> list[int]:
    """Return the row in the csv of each trial from the json files; a key missing there leaves a gap."""
    keys = [(subset, int(key)) for subset, _, key in (trial.id.partition("/") for trial in trials)]
    sizes = {subset: 1 + max((key for trial_subset, key in keys if trial_subset == subset), default=-1) for subset in SUBSETS}
    before = dict(zip(SUBSETS, accumulate(sizes.values(), initial=0), strict=False))
    return [before[subset] + key for subset, key in keys]


def trial_ids_by_row(subsets: Iterable[tuple[str, str]]) -> list[str]:
    """Return the trial id of every row of the csv, or of a file with rows in the same order, from types and subtypes.

    The n-th row of a subset has the key n in the json of the subset.

    >>> trial_ids_by_row([("add", "obj"), ("add", "obj"), ("swap", "att"), ("add", "obj")])
    ['add_obj/0', 'add_obj/1', 'swap_att/0', 'add_obj/2']
    """
    numbers: Counter[str] = Counter()
    ids = []
    for kind, part in subsets:
        subset = f"{kind}_{part}"
        ids.append(f"{subset}/{numbers[subset]}")
        numbers[subset] += 1
    return ids


def _read_csv() -> list[TrialRecord]:
    if find_data_file(CSV) is None and find_data_file(f"sugarcrepe/{SUBSETS[0]}.json") is not None:
        raise CrossmatchError(
            f"{CSV} is missing. Get it with `crossmatch data get sugarcrepe`, or use the json files, which lack one record: "
            "-t sugarcrepe+source=json"
        )
    path = require_data_file(CSV)
    rows = read_table(path, tuple((name,) for name in (*FIELDS, "type", "subtype")), row_noun="trial")
    names = trial_ids_by_row((row.cells["type"], row.cells["subtype"]) for row in rows)
    return [_trial_record(name, row.cells, row.where) for name, row in zip(names, rows, strict=True)]


def _read_json_files() -> list[TrialRecord]:
    trials = []
    for subset in SUBSETS:
        path = require_data_file(f"sugarcrepe/{subset}.json")
        content = read_json(path)
        if not isinstance(content, dict):
            raise CrossmatchError(f"{path} is not a json object. Get it again: crossmatch data get sugarcrepe")
        for key, record in content.items():
            where, name = f"{path} {key!r}", f"{subset}/{key}"
            if not key.isdecimal():
                raise CrossmatchError(f"{where}: the key of a record must be a number. Correct the key.")
            not_text = [field for field in FIELDS if not (isinstance(record, dict) and isinstance(record.get(field), str))]
            if not_text:
                raise CrossmatchError(f"{where}: trial {name!r} has no text in the field {not_text[0]!r}. Add it.")
            trials.append(_trial_record(name, record, where))
    return trials


def _trial_record(name: str, record: Mapping[str, str], where: str) -> TrialRecord:
    subset = name.partition("/")[0]
    image = parse_id(record["filename"], f"{where}: trial {name!r}", "filename")
    return TrialRecord(name, (image,), (record["caption"], record["negative_caption"]), subset.replace("_", "/").lower(), where)


SUGARCREPE = Benchmark(
    name="sugarcrepe",
    description="SugarCrepe: which of two captions fits an image; the negative adds, replaces or swaps words",
    loader=load,
    metrics=("accuracy",),
    directions=("i2t",),
    options={"source": "csv"},
    expected_counts={"trials": ExpectedCount(7_512, 7_512)},
    licence="MIT; images by their Flickr owners",
    cite="hsieh2023sugarcrepe; miranda2024bivlc",
    categories=CATEGORIES,
)
