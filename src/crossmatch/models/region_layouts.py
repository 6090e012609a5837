"""The layouts in which region features are passed around. Nothing is read before it is asked for; arrays are memory-mapped."""

from __future__ import annotations

import base64
import binascii
import json
import mmap
import pickle
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.lines import read_lines
from crossmatch.models.region_files import DAMAGED, WHOLE, Item, fractions, said_by

FEATURES = ("features", "feat", "feats", "image_features", "x", "arr_0")
BOXES = ("boxes", "bbox", "bboxes", "box", "image_bb")
IDS = ("image_ids", "ids", "image_id")
COUNTS = ("counts", "num_boxes")
WIDTH, HEIGHT = ("image_w", "image_width", "width"), ("image_h", "image_height", "height")
# The columns of a tsv by their number: bottom-up attention's own, and those with objects and attributes.
COLUMNS = {
    6: ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features"),
    10: ("image_id", "image_h", "image_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf",
         "num_boxes", "boxes", "features"),
}  # fmt: skip
HEAD = b"image_id"  # the first cell of a row that names the columns
CAPTIONS = 5  # captions of an image, for each of which some files repeat it


@dataclass(frozen=True)
class Opened:
    """What a layout finds in a file."""

    ids: Sequence[str]
    dimensions: int
    read: Callable[[int], Item]
    parts: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Layout:
    """One way to keep region features: whether a path has it, and how it is opened."""

    name: str
    about: str
    fits: Callable[[Path], bool]
    open: Callable[[Path], Opened]


# -- arrays


def _of_array(ids: Sequence[str], rows: Sequence[int], features: NDArray[Any], **more: Any) -> Opened:
    """Images whose regions are rows of one array (N, K, F), or (N, F) for one region each; boxes, counts and sizes beside it."""
    boxes, counts, sizes, parts = (more.get(name) for name in ("boxes", "counts", "sizes", "parts"))

    def read(n: int) -> Item:
        row = rows[n]
        seen = np.atleast_2d(features[row])
        if counts is not None and not 0 <= int(counts[row]) <= len(seen):
            raise ValueError(f"{int(counts[row])} regions are counted among {len(seen)} rows")
        kept = slice(None if counts is None else int(counts[row]))
        framed = None if boxes is None else fractions(np.atleast_2d(boxes[row])[kept], *(() if sizes is None else sizes[row]))
        return seen[kept], framed

    return Opened(ids, int(features.shape[-1]), read, parts or ())


def _mapped(path: Path) -> NDArray[Any]:
    """A npy, memory-mapped. One that is cut off is noticed here."""
    try:
        return np.asanyarray(np.load(path, mmap_mode="r"))
    except (ValueError, OSError, EOFError) as error:
        raise CrossmatchError(
            f"{path} cannot be read as npy ({said_by(error)}). It is cut off or damaged: copy it again."
        ) from None


def _npy(path: Path) -> Opened:
    """SCAN's and VSE++'s `NAME_ims.npy` with `NAME_ids.txt` beside it: (N, 36, 2048), or (N, F) for whole images.

    Some have a row for each image and others one for each caption, five times the same; the ids, too, may be those of the captions'
    images, five times each. (lee2018scan and faghri2018vse, released code, which divides by 5 where the numbers differ.)
    """
    features = _mapped(path)
    if features.ndim not in (2, 3):
        raise CrossmatchError(
            f"{path} has shape {features.shape}; (images, regions, numbers) was expected. Save the regions alone."
        )
    beside = path.with_name(path.name.removesuffix(".npy").removesuffix("_ims") + "_ids.txt")
    if not beside.is_file():
        raise CrossmatchError(f"{path} needs {beside.name} beside it, with the id of each image on a line. Put it there.")
    lines = _listed(beside)
    ids = list(dict.fromkeys(lines))
    first = {name: n for n, name in reversed(list(enumerate(lines)))}
    ways: tuple[tuple[int, Sequence[int]], ...] = (
        (len(ids), range(len(ids))),
        (len(lines), [first[name] for name in ids]),
        (CAPTIONS * len(ids), range(0, CAPTIONS * len(ids), CAPTIONS)),
    )
    rows = next((rows for count, rows in ways if count == len(features)), None)
    if rows is None:
        raise CrossmatchError(
            f"{path} has {len(features):,} rows, and {beside.name} {len(lines):,} lines with {len(ids):,} different ids; one row "
            f"for each image, or {CAPTIONS}, was expected. Take both from the same release."
        )
    return _of_array(ids, rows, features, parts=(path, beside))


def _listed(path: Path) -> list[str]:
    """The ids in a file, one on each line."""
    return [line.strip() for line in read_lines(path) if line.strip()]


def _member(path: Path, name: str) -> NDArray[Any]:
    """An array of an npz, memory-mapped where it is not compressed."""
    with zipfile.ZipFile(path) as archive:
        told = archive.getinfo(f"{name}.npy")
    if told.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as file:
            file.seek(told.header_offset + 26)
            file.seek(told.header_offset + 30 + sum(struct.unpack("<HH", file.read(4))))
            version = np.lib.format.read_magic(file)
            reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
            if reader is not None:
                shape, fortran, dtype = reader(file)
                if not dtype.hasobject and shape:
                    return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")
    with np.load(path, allow_pickle=False) as held:
        return np.asarray(held[name])


def _first(names: Iterable[str], among: Iterable[str]) -> str | None:
    there = set(among)
    return next((name for name in names if name in there), None)


def _npz(path: Path) -> Opened:
    """One npz: `ids`, `features` (N, K, F), and perhaps `boxes` (N, K, 4), `counts` (N,), `image_w` and `image_h` (N,)."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if path.stat().st_size <= WHOLE and (bad := archive.testzip()) is not None:  # which takes long for large ones
                raise ValueError(f"{bad} has another checksum than it should")
        features, ids = _first(FEATURES, names), _first(IDS, names)
        if features is None or ids is None:
            raise CrossmatchError(f"{path} has the arrays {', '.join(names)}; ids and features were expected. Name them so.")
        held = {what: _member(path, name) for what, name in _named(names).items()}
        found, said = _member(path, features), np.atleast_1d(_member(path, ids).astype(np.str_)).tolist()
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, CrossmatchError):
            raise
        raise CrossmatchError(f"{path} cannot be read as npz ({error}). It is cut off or damaged: copy it again.") from None
    _require_as_many(path, len(said), {"features": found, **held})
    sizes = np.stack([held["width"], held["height"]], axis=1) if {"width", "height"} <= held.keys() else None
    return _of_array(said, range(len(said)), found, boxes=held.get("boxes"), counts=held.get("counts"), sizes=sizes)


def _named(names: Iterable[str]) -> dict[str, str]:
    """Which of these names are boxes, counts and sizes."""
    found = {
        "boxes": _first(BOXES, names),
        "counts": _first(COUNTS, names),
        "width": _first(WIDTH, names),
        "height": _first(HEIGHT, names),
    }
    return {what: name for what, name in found.items() if name is not None}


def _require_as_many(path: Path, images: int, arrays: Mapping[str, Any]) -> None:
    odd = next((name for name, values in arrays.items() if len(values) != images), None)
    if odd is not None:
        raise CrossmatchError(
            f"{path} has {images:,} ids and {len(arrays[odd]):,} rows of {odd}; one for each was expected. Extract it again."
        )


# -- a folder with a file for each image


def _npz_folder(path: Path) -> Opened:
    """`ID.npz` for each image, with `feat` (K, F), as in `cocobu_att`; or with `features`, `bbox`, `image_w` and `image_h`."""
    files = sorted(path.glob("*.npz"))

    def read(n: int) -> Item:
        try:
            with files[n].open("rb") as file, np.load(file, allow_pickle=False) as held:
                name = _first(FEATURES, held.files)
                if name is None:
                    raise CrossmatchError(
                        f"{files[n]} has the arrays {', '.join(held.files)}; {FEATURES[1]!r} was expected. Name it so."
                    )
                more = {what: held[known] for what, known in _named(held.files).items()}
                seen = held[name].reshape(-1, held[name].shape[-1])  # a grid is a set of regions as well
            size = (float(more["width"]), float(more["height"])) if {"width", "height"} <= more.keys() else ()
            return seen, fractions(more["boxes"], *size) if "boxes" in more else None
        except CrossmatchError:
            raise
        except DAMAGED as error:
            raise CrossmatchError(f"{files[n]} is cut off or damaged ({said_by(error)}). Extract or copy it again.") from None

    return Opened([file.stem for file in files], read(0)[0].shape[1], read, tuple(files))


# -- the tsv of bottom-up attention


def _tsv(*files: Path) -> Opened:
    """`image_id, image_w, image_h, num_boxes, boxes, features` on a line for each image, the last two as float32 in base64.

    Source: anderson2018bottomup, released features. The number of boxes may differ between images. Lines are found once, and
    decoded when they are asked for.
    """
    ids: list[str] = []
    lines: list[tuple[int, int, int]] = []  # of which file, from where to where
    maps = []
    for number, path in enumerate(files):
        if not path.stat().st_size:
            raise CrossmatchError(f"{path} is empty. Extract or copy it again.")
        with path.open("rb") as file:
            maps.append(held := mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        at, size = 0, len(held)
        while at < size:
            end = held.find(b"\n", at)
            end = size if end < 0 else end
            if end > at:
                tab = held.find(b"\t", at, end)
                if tab < 0:
                    raise CrossmatchError(f"{path}: line {len(lines) + 1} has no columns. It is cut off or no tsv: copy it again.")
                if held[at:tab] != HEAD:
                    ids.append(held[at:tab].decode("utf-8", "replace"))
                    lines.append((number, at, end))
            at = end + 1

    def read(n: int) -> Item:
        number, at, end = lines[n]
        cells = maps[number][at:end].rstrip(b"\r").split(b"\t")
        names = COLUMNS.get(len(cells))
        if names is None:
            raise ValueError(f"{len(cells)} columns; {' or '.join(map(str, COLUMNS))} were expected")
        row = dict(zip(names, cells, strict=True))
        count = int(row["num_boxes"])
        features, boxes = _floats(row["features"]), _floats(row["boxes"])
        if count < 1 or len(features) % count or len(boxes) != 4 * count:
            raise ValueError(f"{count} boxes, but {len(boxes):,} numbers of boxes and {len(features):,} of features")
        return features.reshape(count, -1), fractions(boxes.reshape(count, 4), float(row["image_w"]), float(row["image_h"]))

    try:
        width = read(0)[0].shape[1] if ids else 0
    except ValueError as error:
        raise CrossmatchError(
            f"{files[0]}: image {ids[0]!r} cannot be read ({error}). The file is damaged: copy it again."
        ) from None
    return Opened(ids, width, read, files)


def _floats(cell: bytes) -> NDArray[np.float32]:
    try:
        raw = base64.b64decode(cell, validate=True)
    except binascii.Error as error:
        raise ValueError(f"bad base64: {error}") from None
    return np.frombuffer(raw, dtype="<f4")


# -- h5


def _h5(path: Path) -> Opened:
    """An h5 in one of four ways: big arrays (`image_features`, with `pos_boxes` where the number of regions differs), or for each
    image a dataset named by its id, a group with `features`, or a dataset `ID_features`."""
    try:
        import h5py
    except ImportError as absent:
        raise MissingDependency("h5py", "regions") from absent
    try:
        file = h5py.File(path, "r")
        names = list(file)
    except OSError as error:
        raise CrossmatchError(f"{path} cannot be read as h5 ({error}). It is cut off or damaged: copy it again.") from None
    big = next((name for name in FEATURES if name in names and isinstance(file[name], h5py.Dataset)), None)
    if big is not None:
        return _h5_arrays(path, file, big)
    marked = [name for name in names if name.endswith("_features")]
    if marked:
        ids = [name.removesuffix("_features") for name in marked]
        return _h5_items(path, ids, lambda name: {key: file.get(f"{name}_{key}") for key in ("features", *BOXES, *WIDTH, *HEIGHT)})
    if names and isinstance(file[names[0]], h5py.Group):  # the first stands for all: to open each takes long
        return _h5_items(path, names, lambda name: {**file[name].attrs, **dict(file[name])})
    return _h5_items(path, names, lambda name: {"features": file[name]})


def _h5_items(path: Path, ids: Sequence[str], held: Callable[[str], Mapping[str, Any]]) -> Opened:
    def read(n: int) -> Item:
        there = {key: values for key, values in held(ids[n]).items() if values is not None}
        name = _first(FEATURES, there)
        if name is None:
            raise ValueError(f"it has {', '.join(there) or 'nothing'}; features were expected")
        seen = np.asarray(there[name])
        more = {what: np.asarray(there[key]) for what, key in _named(there).items()}
        size = (float(more["width"]), float(more["height"])) if {"width", "height"} <= more.keys() else ()
        return seen.reshape(-1, seen.shape[-1]), fractions(more["boxes"], *size) if "boxes" in more else None

    if not ids:
        raise CrossmatchError(
            f"{path} has no region features: neither image_features nor a dataset for each image. Check the file."
        )
    try:
        width = read(0)[0].shape[1]
    except DAMAGED as error:
        raise CrossmatchError(f"{path}: image {ids[0]!r} cannot be read ({said_by(error)}). Extract it again.") from None
    return Opened(ids, width, read)


def _h5_arrays(path: Path, file: Any, big: str) -> Opened:
    """Arrays over all images. With `pos_boxes` (N, 2), the regions of image n are the rows from its first to before its second."""
    features, ends = file[big], file.get("pos_boxes")
    ids, beside = _h5_ids(path, file)
    near, framed = file.get("spatial_features"), _first(BOXES, file)  # the former are fractions already
    boxes = near if near is not None else None if framed is None else file[framed]
    arrays = {"features": features, **({} if boxes is None else {"boxes": boxes})} if ends is None else {"pos_boxes": ends}
    _require_as_many(path, len(ids), arrays)

    def read(n: int) -> Item:
        part: Any = n
        if ends is not None:
            first, last = (int(place) for place in ends[n])
            if not 0 <= first < last <= len(features):
                raise ValueError(f"its regions are the rows {first} to {last} of {len(features):,}")
            part = slice(first, last)
        return np.atleast_2d(features[part]), None if boxes is None else fractions(np.atleast_2d(boxes[part]))

    return Opened(ids, int(features.shape[-1]), read, (path, *beside))


def _h5_ids(path: Path, file: Any) -> tuple[list[str], tuple[Path, ...]]:
    """The ids of the rows: in the file, or beside it in `NAME_ids.txt`, `NAME_imgid2idx.json` or `NAME_imgid2idx.pkl`."""
    inside = _first(IDS, file)
    if inside is not None:
        given = np.asarray(file[inside])
        return [name.decode() if isinstance(name, bytes) else str(name) for name in given.tolist()], ()
    listed, *mapped = (path.with_name(path.stem + end) for end in ("_ids.txt", "_imgid2idx.json", "_imgid2idx.pkl"))
    if listed.is_file():
        return _listed(listed), (listed,)
    beside = next((name for name in mapped if name.is_file()), None)
    if beside is None:
        raise CrossmatchError(
            f"{path} does not say which image each row is. Put {listed.name} or {mapped[1].name} beside it, or a dataset "
            "image_ids into it."
        )
    try:
        raw = beside.read_bytes()
        places = json.loads(raw) if beside.suffix == ".json" else _Plain.loads(raw)
        rows = sorted((int(row), str(name)) for name, row in places.items())
    except (ValueError, AttributeError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise CrossmatchError(f"{beside} does not hold {{image id: row}} ({error}). Get it again, or write it as json.") from None
    if [row for row, _ in rows] != list(range(len(rows))):
        raise CrossmatchError(f"{beside}: the rows are not those from 0 to {len(rows) - 1:,}, each once. Get it again.")
    return [name for _, name in rows], (beside,)


class _Plain(pickle.Unpickler):
    """Reads numbers, texts and dictionaries, and refuses whatever could run."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it holds {module}.{name}, which is not read")

    @classmethod
    def loads(cls, raw: bytes) -> Any:
        import io

        return cls(io.BytesIO(raw)).load()


def _parts_of_tsv(path: Path) -> list[Path]:
    return sorted(part for part in path.glob("*") if ".tsv" in part.suffixes and part.is_file())


LAYOUTS = (
    Layout("npy", "NAME_ims.npy with NAME_ids.txt", lambda p: p.is_file() and p.suffix == ".npy", _npy),
    Layout("tsv", "a .tsv of bottom-up attention", lambda p: p.is_file() and ".tsv" in p.suffixes, _tsv),
    Layout("h5", "an .h5 or .hdf5 with arrays or a dataset for each image", lambda p: p.suffix in (".h5", ".hdf5"), _h5),
    Layout("npz", "an .npz with ids and features", lambda p: p.is_file() and p.suffix == ".npz", _npz),
    Layout("npz folder", "a folder with ID.npz for each image", lambda p: p.is_dir() and any(p.glob("*.npz")), _npz_folder),
    Layout("tsv folder", "a folder with the parts of a .tsv", lambda p: p.is_dir() and bool(_parts_of_tsv(p)),
           lambda p: _tsv(*_parts_of_tsv(p))),
)  # fmt: skip
