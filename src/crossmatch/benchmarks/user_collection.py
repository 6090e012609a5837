"""A user's own folder of images and captions as a benchmark: `-t collection:FOLDER`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from crossmatch.benchmarks.formats.captions_csv import read_captions_csv
from crossmatch.benchmarks.formats.coco_json import find_coco_json, read_coco
from crossmatch.benchmarks.formats.huggingface import read_huggingface
from crossmatch.benchmarks.formats.image_caption_records import FolderContents, build_collection, drop_empty_captions
from crossmatch.benchmarks.formats.image_folder import is_visible
from crossmatch.benchmarks.formats.judgement_files import (
    JUDGEMENT_FILES,
    JudgementFile,
    read_judgements,
    read_ratings_of_pairs,
)
from crossmatch.benchmarks.formats.webdataset import read_webdataset
from crossmatch.data.benchmark import Benchmark
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, SkippedItem, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import PairRatings, RatedCollection, Similarity

COLLECTION_METRICS = ("hit@1", "hit@5", "hit@10", "median-rank", "mrr", "recall@10", "r-precision", "map@r", "ndcg@10")
OPTION_SUFFIX = re.compile(r"(.+)\+([a-z]+)=([^+=]+)")


@dataclass(frozen=True)
class FolderLayout:
    """A folder layout: the files that identify it, and the function that reads it."""

    description: str
    file_patterns: tuple[str, ...]
    read: Callable[[Path, list[Path], str], FolderContents | None]
    has_splits: bool = False


# The first group with a matching layout decides. Two matching layouts in one group are ambiguous, and an error.
LAYOUTS = (
    (
        FolderLayout(
            "captions.csv beside images/",
            ("captions.csv", "captions.tsv"),
            lambda _, files, __: read_captions_csv(_single_file(files)),
        ),
        FolderLayout(
            "captions.json (COCO) beside images/", ("captions.json",), lambda _, files, __: read_coco(_single_file(files))
        ),
    ),
    (
        FolderLayout("*.tar (webdataset)", ("*.tar",), lambda _, files, __: read_webdataset(files)),
        FolderLayout(
            "*.arrow or *.parquet (Hugging Face)",
            ("dataset_info.json", "dataset_dict.json", "state.json", "*.arrow", "*.parquet", "data/*.parquet"),
            lambda folder, _, split: read_huggingface(folder, split),
            has_splits=True,
        ),
    ),
    (FolderLayout("a json (COCO) beside images/", ("*.json",), lambda folder, files, _: _read_coco_json(folder, files)),),
)


def collection_benchmark(path: Path | str) -> Benchmark:
    """Declare the benchmark `collection:NAME` for a folder called NAME. The folder is read when the benchmark is loaded.

    Options of the benchmark: `positive`, the lowest grade of a positive pair in `judgements.csv`; `split`, a subfolder or a
    split of a Hugging Face data set.

    >>> collection_benchmark("data/pets/").name
    'collection:pets'
    """
    folder = Path(path).expanduser()
    return Benchmark(
        name=_benchmark_name(folder),
        description=f"your own images and captions in {folder}",
        loader=partial(load_collection_folder, folder),
        metrics=COLLECTION_METRICS,
        directions=("i2t", "t2i", "t2t", "i2i"),
        options={"positive": "", "split": ""},
        can_skip_bad=True,
        ratings_loader=partial(load_rated_folder, folder),
    )


def ratings_benchmark(path: Path | str) -> Benchmark:
    """Declare the similarity task `collection:NAME+ratings=SOURCE`: the correlation with the ratings of that source in a folder.

    Options of the benchmark: `ratings`, the source; `query`, the item of a pair that is the query (`first` or `second`, `image` or
    `caption`; default: the first); `split` as in `collection_benchmark`.

    >>> ratings_benchmark("data/pets/").metrics
    ('bootstrap-spearman',)
    """
    folder = Path(path).expanduser()
    return Benchmark(
        name=_benchmark_name(folder),
        description=f"people's ratings of pairs in {folder}: correlation with them",
        loader=partial(load_folder_similarity, folder),
        metrics=("bootstrap-spearman",),
        directions=("i2t", "t2i", "t2t", "i2i"),
        options={"ratings": "", "query": "", "split": ""},
        ratings_loader=partial(load_rated_folder, folder),
        can_skip_bad=True,
    )


def _benchmark_name(folder: Path) -> str:
    return f"collection:{Path(os.path.abspath(folder)).name}"


def parse_collection_task(spec: str) -> tuple[Benchmark, dict[str, str]]:
    """Return the benchmark and the options of `collection:SPEC`, where SPEC is `FOLDER+option=value`.

    >>> benchmark, options = parse_collection_task("data/pets+positive=3")
    >>> benchmark.name, options
    ('collection:pets', {'positive': '3'})
    >>> parse_collection_task("data/pets+ratings=sts")[0].metrics
    ('bootstrap-spearman',)
    """
    folder, options = split_options(spec, Path.is_dir)
    return ratings_benchmark(folder) if "ratings" in options else collection_benchmark(folder), options


def split_options(spec: str, exists: Callable[[Path], bool]) -> tuple[str, dict[str, str]]:
    """Split `PATH+option=value+…` into path and options, unless the path of that name exists."""
    options: dict[str, str] = {}
    while not exists(Path(spec).expanduser()) and (match := OPTION_SUFFIX.fullmatch(spec)):
        spec, key, value = match.groups()
        options = {key: value, **options}
    return spec, options


def load_collection_folder(path: Path, positive: float | str = "", split: str = "", bad: str = "refuse") -> Retrieval:
    """Load images, captions and judgements of a folder. The files in it determine its layout.

    `positive` is the lowest grade of a positive pair; by default the value of the column `positive_from` in a judgement file, or 1.
    `split` is a subfolder, or a split of a Hugging Face data set; `bad="skip"` leaves out empty captions, which are an error by
    default. The judgements are `links`, and one set for each source in the judgement files.
    """
    threshold = None if positive == "" else _parse_threshold(positive)
    folder = _load_folder(path, split, bad)
    judgements: dict[str, Judgements] = {}
    notes: list[str] = []
    for file in folder.judgement_files:
        with _report_unreadable(file.path):
            from_file = read_judgements(file, threshold)
        _require_new_sources(judgements, from_file.by_source, file)
        judgements |= from_file.by_source
        notes += from_file.notes
    links = {"links": Judgements.from_links(folder.collection)}
    return Retrieval(folder.collection, links | judgements, folder.skipped, tuple(notes))


def load_rated_folder(path: Path, split: str = "", bad: str = "refuse", **other_options: str) -> RatedCollection:
    """Load a folder with the ratings of its pairs by source; the other options of the benchmarks do not change them."""
    folder = _load_folder(path, split, bad)
    ratings: dict[str, PairRatings] = {}
    for file in folder.judgement_files:
        with _report_unreadable(file.path):
            from_file = read_ratings_of_pairs(file)
        _require_new_sources(ratings, from_file, file)
        ratings |= from_file
    return RatedCollection(folder.collection, ratings)


def load_folder_similarity(path: Path, ratings: str, query: str = "", split: str = "", bad: str = "refuse") -> Similarity:
    """Load the ratings of one source as a similarity task."""
    rated = load_rated_folder(path, split, bad)
    return rated.find(ratings, str(path)).similarity(rated.collection, query)


@dataclass(frozen=True)
class _LoadedFolder:
    """A collection, the judgement files beside it, and the items that were left out."""

    collection: Collection
    judgement_files: tuple[JudgementFile, ...]
    skipped: tuple[SkippedItem, ...]


def _load_folder(path: Path, split: str, bad: str) -> _LoadedFolder:
    folder = Path(path)
    if not folder.is_dir():
        problem = "is a file. Name the folder that holds it" if folder.exists() else "does not exist. Check the path"
        raise UsageError(f"{folder} {problem}.")
    if split and split == Path(split).name != ".." and (folder / split).is_dir():
        folder, split = folder / split, ""
    with _report_unreadable(folder):
        contents = _read_contents(folder, split)
        contents, skipped = drop_empty_captions(contents) if bad == "skip" else (contents, ())
        collection = build_collection(contents)
        skipped_captions = {item.id for item in skipped}
        files = tuple(JudgementFile(file, collection, contents.aliases, skipped_captions) for file in _judgement_files(folder))
    return _LoadedFolder(collection, files, skipped)


@contextmanager
def _report_unreadable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CrossmatchError(
            f"{error.filename or folder} cannot be read ({error.strerror or error}). Check its permissions."
        ) from None


def _require_new_sources(earlier: Container[str], sources: Iterable[str], file: JudgementFile) -> None:
    duplicate = next((name for name in sources if name in earlier), None)
    if duplicate is not None:
        raise CrossmatchError(f"{file.path}: another judgement file uses the source name {duplicate!r} too. Rename one source.")


def _read_contents(folder: Path, split: str) -> FolderContents:
    for group in LAYOUTS:
        matching = [(layout, files) for layout in group if (files := _matching_files(folder, layout.file_patterns))]
        if len(matching) > 1:
            raise CrossmatchError(
                f"{folder} holds {' and '.join(files[0].name for _, files in matching)}, and either could be meant. Keep one."
            )
        for layout, files in matching:
            if split and not layout.has_splits:
                raise UsageError(f"{folder} has no split {split!r}: it has no subfolder of that name. Omit --split.")
            contents = layout.read(folder, files, split)
            if contents is not None:
                if not contents.captions:
                    raise CrossmatchError(
                        f"{folder} has {len(contents.images):,} images but no captions. Add captions to {files[0].name}."
                    )
                return contents
    raise _no_captions_error(folder)


def _matching_files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the visible files that match a pattern, ignoring case, sorted by name."""
    subfolders = {pattern.rpartition("/")[0] for pattern in patterns}
    files = [
        path for subfolder in subfolders for path in (folder / subfolder).glob("*") if is_visible(path.name) and path.is_file()
    ]
    names = {path: path.relative_to(folder).as_posix().lower() for path in files}
    return sorted(path for path, name in names.items() if any(fnmatch(name, pattern) for pattern in patterns))


def _judgement_files(folder: Path) -> list[Path]:
    """Return the judgement files of a folder. A file with a misspelt name is an error, because it would be ignored."""
    files_found = [
        _single_file(files) for stem in JUDGEMENT_FILES if (files := _matching_files(folder, (f"{stem}.csv", f"{stem}.tsv")))
    ]
    known_names = {"captions.csv", "captions.tsv", *(path.name.lower() for path in files_found)}
    other_tables = [path.name for path in _matching_files(folder, ("*.csv", "*.tsv")) if path.name.lower() not in known_names]
    misspelt = [] if files_found else get_close_matches("judgements.csv", other_tables, n=1, cutoff=0.8)
    if misspelt:
        raise CrossmatchError(
            f"{folder / misspelt[0]} looks like a judgement file. Rename it to judgements.csv to use it, or move it away."
        )
    return files_found


def _single_file(files: list[Path]) -> Path:
    if len(files) > 1:
        raise CrossmatchError(
            f"{files[0].parent} holds {' and '.join(p.name for p in files)}, and either could be meant. Keep one."
        )
    return files[0]


def _read_coco_json(folder: Path, files: list[Path]) -> FolderContents | None:
    path = find_coco_json(folder, files)
    return None if path is None else read_coco(path)


def _no_captions_error(folder: Path) -> CrossmatchError:
    """Build the error for a folder that matches no layout, with a hint at the likely mistake."""
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir() if is_visible(path.name))
    listing = f"{', '.join(names[:5])}{', …' if len(names) > 5 else ''}" if names else "nothing"
    compressed = next(
        (name for name in names if name.lower().endswith((".tgz", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz"))), None
    )
    near = get_close_matches("captions.csv", names, n=1, cutoff=0.7)
    if compressed is not None:
        hint = f"Decompress {compressed} to an uncompressed .tar first: images are read from the tar in place."
    elif near:
        hint = f"Rename {near[0]} to captions.csv?"
    else:
        hint = f"Expected: {'; '.join(layout.description for group in LAYOUTS for layout in group)}."
    return CrossmatchError(f"{folder} has no captions; it holds {listing}. {hint}")


def _parse_threshold(positive: float | str) -> float:
    try:
        value = float(positive)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"positive must be a grade above zero, such as 1 (got {positive!r}).")
    return value
