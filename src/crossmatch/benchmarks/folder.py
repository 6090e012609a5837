"""A user's own folder of images and captions as a benchmark, with no code: `-t collection:DIR`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from crossmatch.benchmarks.formats.captions_csv import read_captions_csv
from crossmatch.benchmarks.formats.coco import read_coco, read_only_coco
from crossmatch.benchmarks.formats.gathered import Gathered, as_collection, usable
from crossmatch.benchmarks.formats.huggingface import read_huggingface
from crossmatch.benchmarks.formats.images import visible
from crossmatch.benchmarks.formats.judged import FILES, read_judgements
from crossmatch.benchmarks.formats.tars import read_tars
from crossmatch.core.benchmark import Benchmark, Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements

METRICS = ("hit@1", "hit@5", "hit@10", "median-rank", "mrr", "recall@10", "r-precision", "map@r", "ndcg@10")
OPTION = re.compile(r"(.+)\+([a-z]+)=([^+=]+)")


@dataclass(frozen=True)
class Layout:
    """One way to lay out a collection: the files that give it away, and who reads them."""

    about: str
    marks: tuple[str, ...]
    read: Callable[[Path, list[Path], str], Gathered | None]
    splits: bool = False


# The first group in which a layout is seen decides; two layouts of one group are an error, because either may be meant.
LAYOUTS = (
    (
        Layout(
            "captions.csv beside images/", ("captions.csv", "captions.tsv"), lambda _, files, __: read_captions_csv(_one(files))
        ),
        Layout("captions.json (COCO) beside images/", ("captions.json",), lambda _, files, __: read_coco(_one(files))),
    ),
    (
        Layout("*.tar (webdataset)", ("*.tar",), lambda _, files, __: read_tars(files)),
        Layout(
            "*.arrow or *.parquet (Hugging Face)",
            ("dataset_info.json", "dataset_dict.json", "state.json", "*.arrow", "*.parquet", "data/*.parquet"),
            lambda folder, _, split: read_huggingface(folder, split),
            splits=True,
        ),
    ),
    (Layout("a json (COCO) beside images/", ("*.json",), lambda folder, files, _: _other_json(folder, files)),),
)


def folder_benchmark(path: Path | str) -> Benchmark:
    """The benchmark `collection:NAME` of a folder called NAME. Nothing is read before it is loaded.

    Options: `positive` is the grade from which a pair of `judgements.csv` is positive; `split` is a folder in the folder, or
    a split of a Hugging Face data set.

    >>> folder_benchmark("data/pets/").name
    'collection:pets'
    """
    folder = Path(path).expanduser()
    name = Path(os.path.abspath(folder)).name
    return Benchmark(
        name=f"collection:{name}",
        about=f"your own images and captions in {folder}",
        load=partial(load_folder, folder),
        metrics=METRICS,
        directions=("i2t", "t2i", "t2t", "i2i"),
        options={"positive": "1", "split": ""},
        skips=True,
    )


def folder_task(words: str) -> tuple[Benchmark, dict[str, str]]:
    """What `collection:WORDS` means: a folder, and options behind it unless they belong to the folder's name.

    >>> task, options = folder_task("data/pets+positive=3")
    >>> task.name, options
    ('collection:pets', {'positive': '3'})
    """
    options: dict[str, str] = {}
    while not Path(words).expanduser().is_dir() and (match := OPTION.fullmatch(words)):
        words, key, value = match.groups()
        options = {key: value, **options}
    return folder_benchmark(words), options


def load_folder(path: Path, positive: float | str = 1.0, split: str = "", bad: str = "refuse") -> Retrieval:
    """Images, captions and judgements of a folder; which of the layouts it has is told by what is in it.

    `judgements` holds `links`, the pairs that the folder came with, and beside it one set for each source in `judgements.csv`.
    An empty caption is an error, or with `bad="skip"` left out.
    """
    folder, threshold = Path(path), _threshold(positive)
    if not folder.is_dir():
        seen = "is a file; name the folder that holds it" if folder.exists() else "is not there. Check the path"
        raise WrongWords(f"{folder} {seen}.")
    if split and split == Path(split).name != ".." and (folder / split).is_dir():
        folder, split = folder / split, ""
    try:
        found, left = usable(_gathered(folder, split)) if bad == "skip" else (_gathered(folder, split), ())
        collection = as_collection(found)
        more = _judged(folder, collection, found.aliases, threshold, {one.id for one in left})
    except OSError as error:
        raise CrossmatchError(
            f"{error.filename or folder} cannot be read ({error.strerror or error}). Check who may read it."
        ) from None
    return Retrieval(collection, {"links": Judgements.from_links(collection)} | more, left)


def _gathered(folder: Path, split: str) -> Gathered:
    for group in LAYOUTS:
        seen = [(layout, files) for layout in group if (files := _marked(folder, layout.marks))]
        if len(seen) > 1:
            raise CrossmatchError(
                f"{folder} holds {' and '.join(files[0].name for _, files in seen)}. Keep one, so that it is clear which is meant."
            )
        for layout, files in seen:
            if split and not layout.splits:
                raise WrongWords(f"{folder} has no split {split!r}: there is no folder of that name in it. Leave --split out.")
            found = layout.read(folder, files, split)
            if found is not None:
                if not found.captions:
                    raise CrossmatchError(
                        f"{folder} has {len(found.images):,} images but no caption. Add captions to {files[0].name}."
                    )
                return found
    raise _nothing(folder)


def _marked(folder: Path, marks: tuple[str, ...]) -> list[Path]:
    """The visible files that fit a mark, in upper or lower case, in the order of their names."""
    places = {mark.rpartition("/")[0] for mark in marks}
    here = [path for place in places for path in (folder / place).glob("*") if visible(path.name) and path.is_file()]
    names = {path: path.relative_to(folder).as_posix().lower() for path in here}
    return sorted(path for path, name in names.items() if any(fnmatch(name, mark) for mark in marks))


def _judged(
    folder: Path, collection: Collection, aliases: Mapping[str, str], positive: float, left_out: Container[str]
) -> dict[str, Judgements]:
    """What the files of judgements say, each set under its name."""
    more: dict[str, Judgements] = {}
    for path in _judgement_files(folder):
        found = read_judgements(path, collection, aliases, positive, left_out)
        twice = next((name for name in found if name in more), None)
        if twice is not None:
            raise CrossmatchError(f"{path}: judgements of another kind are called {twice!r} as well. Rename one source.")
        more |= found
    return more


def _judgement_files(folder: Path) -> list[Path]:
    """`judgements.csv` and its like, as far as they are there; one that is called almost so would be overlooked: an error."""
    found = [_one(files) for stem in FILES if (files := _marked(folder, (f"{stem}.csv", f"{stem}.tsv")))]
    known = {"captions.csv", "captions.tsv", *(path.name.lower() for path in found)}
    near = [path.name for path in _marked(folder, ("*.csv", "*.tsv")) if path.name.lower() not in known]
    slips = [] if found else get_close_matches("judgements.csv", near, n=1, cutoff=0.8)
    if slips:
        raise CrossmatchError(f"{folder / slips[0]} may hold judgements. Rename it to judgements.csv to use it, or move it away.")
    return found


def _one(files: list[Path]) -> Path:
    if len(files) > 1:
        raise CrossmatchError(
            f"{files[0].parent} holds {' and '.join(p.name for p in files)}. Keep one, so that it is clear which is meant."
        )
    return files[0]


def _other_json(folder: Path, files: list[Path]) -> Gathered | None:
    path = read_only_coco(folder, files)
    return None if path is None else read_coco(path)


def _nothing(folder: Path) -> CrossmatchError:
    """No layout fits: what is there instead, and what may have been meant."""
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir() if visible(path.name))
    held = f"{', '.join(names[:5])}{', …' if len(names) > 5 else ''}" if names else "nothing"
    squeezed = next((name for name in names if name.lower().endswith((".tgz", ".tar.gz", ".tar.zst", ".tar.bz2", ".tar.xz"))), None)
    near = get_close_matches("captions.csv", names, n=1, cutoff=0.7)
    if squeezed is not None:
        hint = f"Unpack the compression of {squeezed} first: images are read from the tar in place."
    elif near:
        hint = f"Rename {near[0]} to captions.csv?"
    else:
        hint = f"Expected: {'; '.join(layout.about for group in LAYOUTS for layout in group)}."
    return CrossmatchError(f"{folder} has no captions; it holds {held}. {hint}")


def _threshold(positive: float | str) -> float:
    try:
        value = float(positive)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise WrongWords(f"positive is {positive!r}; a grade above zero was expected, such as 1.")
    return value
