"""The layouts of files with region features. Regions are read on demand; arrays are memory-mapped."""

from __future__ import annotations

import base64
import binascii
import io
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

from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.data.io.file_contents import UndecodableFileError, decode_json_file, decode_npz, read_lines
from crossmatch.models.regions.feature_files import DAMAGED, WHOLE, Item, first_line, to_fractions

FEATURES = ("features", "feat", "feats", "image_features", "x", "arr_0")
BOXES = ("boxes", "bbox", "bboxes", "box", "image_bb")
IDS = ("image_ids", "ids", "image_id")
COUNTS = ("counts", "num_boxes")
WIDTH, HEIGHT = ("image_w", "image_width", "width"), ("image_h", "image_height", "height")
# The columns of a tsv by their number: those of bottom-up attention, and those with objects and attributes.
COLUMNS = {
    6: ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features"),
    10: ("image_id", "image_h", "image_w", "objects_id", "objects_conf", "attrs_id", "attrs_conf",
         "num_boxes", "boxes", "features"),
}  # fmt: skip
HEADER = b"image_id"  # the first cell of a header row
CAPTIONS = 5  # captions of an image; some files repeat the image for each


@dataclass(frozen=True)
class RegionContent:
    """The content of an opened file."""

    ids: Sequence[str]
    dimensions: int
    read: Callable[[int], Item]
    parts: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Layout:
    """A layout of region features: a test whether a path has it, and a function that opens it."""

    name: str
    about: str
    fits: Callable[[Path], bool]
    open: Callable[[Path], RegionContent]


# -- arrays


def _open_array(ids: Sequence[str], rows: Sequence[int], features: NDArray[Any], **more: Any) -> RegionContent:
    """Images whose regions are rows of one array (N, K, F), or (N, F) for one region each, with boxes, counts and sizes."""
    boxes, counts, sizes, parts = (more.get(name) for name in ("boxes", "counts", "sizes", "parts"))

    def read(n: int) -> Item:
        row = rows[n]
        values = np.atleast_2d(features[row])
        if counts is not None and not 0 <= int(counts[row]) <= len(values):
            raise ValueError(f"{int(counts[row])} regions are counted among {len(values)} rows")
        regions = slice(None if counts is None else int(counts[row]))
        if boxes is None:
            return values[regions], None
        return values[regions], to_fractions(np.atleast_2d(boxes[row])[regions], *(() if sizes is None else sizes[row]))

    return RegionContent(ids, int(features.shape[-1]), read, parts or ())


def _map_npy(path: Path) -> NDArray[Any]:
    """Memory-map a npy; a truncated file raises an error here."""
    try:
        return np.asanyarray(np.load(path, mmap_mode="r"))
    except (ValueError, OSError, EOFError) as error:
        raise CrossmatchError(
            f"{path} cannot be read as npy ({first_line(error)}). It is truncated or damaged: copy it again."
        ) from None


def _open_npy(path: Path) -> RegionContent:
    """`NAME_ims.npy` of SCAN and VSE++ with `NAME_ids.txt` in the same folder: (N, 36, 2048), or (N, F) for whole images.

    Some files have a row for each image, others repeat it for each of five captions; the ids may be repeated too. (lee2018scan and
    faghri2018vse, released code, which divides by 5 if the numbers differ.)
    """
    features = _map_npy(path)
    if features.ndim not in (2, 3):
        raise CrossmatchError(f"{path}: expected shape (images, regions, numbers), got {features.shape}. Save the regions alone.")
    ids_path = path.with_name(path.name.removesuffix(".npy").removesuffix("_ims") + "_ids.txt")
    if not ids_path.is_file():
        raise CrossmatchError(f"{path} needs {ids_path.name} in the same folder, with one image id per line.")
    lines = _read_ids(ids_path)
    ids = list(dict.fromkeys(lines))
    first = {name: n for n, name in reversed(list(enumerate(lines)))}
    options: tuple[tuple[int, Sequence[int]], ...] = (
        (len(ids), range(len(ids))),
        (len(lines), [first[name] for name in ids]),
        (CAPTIONS * len(ids), range(0, CAPTIONS * len(ids), CAPTIONS)),
    )
    rows = next((rows for count, rows in options if count == len(features)), None)
    if rows is None:
        raise CrossmatchError(
            f"{path} has {len(features):,} rows, and {ids_path.name} {len(lines):,} lines with {len(ids):,} different ids; "
            f"expected 1 or {CAPTIONS} rows for each image. Use both files of the same release."
        )
    return _open_array(ids, rows, features, parts=(path, ids_path))


def _read_ids(path: Path) -> list[str]:
    return [line.strip() for line in read_lines(path) if line.strip()]


def _read_member(path: Path, name: str) -> NDArray[Any]:
    """Read an array of an npz; memory-mapped if it is not compressed."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{name}.npy")
    if info.compress_type == zipfile.ZIP_STORED:
        with path.open("rb") as file:
            file.seek(info.header_offset + 26)
            file.seek(info.header_offset + 30 + sum(struct.unpack("<HH", file.read(4))))
            version = np.lib.format.read_magic(file)
            reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
            if reader is not None:
                shape, fortran, dtype = reader(file)
                if not dtype.hasobject and shape:
                    return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")
    with np.load(path, allow_pickle=False) as archive:
        return np.asarray(archive[name])


def _first(names: Iterable[str], among: Iterable[str]) -> str | None:
    available = set(among)
    return next((name for name in names if name in available), None)


def _open_npz(path: Path) -> RegionContent:
    """An npz with `ids`, `features` (N, K, F), and optionally `boxes` (N, K, 4), `counts` (N,), `image_w` and `image_h` (N,)."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if path.stat().st_size <= WHOLE and (bad := archive.testzip()) is not None:  # slow for large files
                raise ValueError(f"the checksum of {bad} is wrong")
        features, ids = _first(FEATURES, names), _first(IDS, names)
        if features is None or ids is None:
            raise CrossmatchError(f"{path}: expected arrays ids and features, got {', '.join(names)}. Rename them.")
        optional = {role: _read_member(path, name) for role, name in _find_optional_arrays(names).items()}
        feature_array, id_list = _read_member(path, features), np.atleast_1d(_read_member(path, ids).astype(np.str_)).tolist()
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, CrossmatchError):
            raise
        raise CrossmatchError(f"{path} cannot be read as npz ({error}). It is truncated or damaged: copy it again.") from None
    if not feature_array.ndim:
        raise CrossmatchError(f"{path} cannot be read as npz (the features are a single number). Extract or copy it again.")
    _require_rows(path, len(id_list), {"features": feature_array, **optional})
    sizes = np.stack([optional["width"], optional["height"]], axis=1) if {"width", "height"} <= optional.keys() else None
    return _open_array(
        id_list, range(len(id_list)), feature_array, boxes=optional.get("boxes"), counts=optional.get("counts"), sizes=sizes
    )


def _find_optional_arrays(names: Iterable[str]) -> dict[str, str]:
    """Return which of these names are those of boxes, counts and sizes."""
    roles = {"boxes": BOXES, "counts": COUNTS, "width": WIDTH, "height": HEIGHT}
    return {role: name for role, candidates in roles.items() if (name := _first(candidates, names)) is not None}


def _read_boxes(optional: Mapping[str, Any]) -> NDArray[np.float32] | None:
    """Return the boxes of one image, or None if it has none."""
    if "boxes" not in optional:
        return None
    size = (float(optional["width"]), float(optional["height"])) if {"width", "height"} <= optional.keys() else ()
    return to_fractions(optional["boxes"], *size)


def _require_rows(path: Path, images: int, arrays: Mapping[str, Any]) -> None:
    uneven = next((name for name, values in arrays.items() if len(values) != images), None)
    if uneven is not None:
        raise CrossmatchError(
            f"{path} has {images:,} ids but {len(arrays[uneven]):,} rows of {uneven}; expected one for each. Extract it again."
        )


# -- a folder with a file for each image


def _open_npz_folder(path: Path) -> RegionContent:
    """A folder with `ID.npz` for each image: `feat` (K, F), as in `cocobu_att`; or `features`, `bbox`, `image_w`, `image_h`."""
    files = sorted(path.glob("*.npz"))

    def read(n: int) -> Item:
        try:
            with files[n].open("rb") as file:
                arrays = decode_npz(file)
        except (UndecodableFileError, OSError) as error:
            raise CrossmatchError(f"{files[n]} is truncated or damaged ({error}). Extract or copy it again.") from None
        name = _first(FEATURES, arrays)
        if name is None or not arrays[name].ndim:
            raise CrossmatchError(f"{files[n]}: expected an array {FEATURES[1]!r}, got {', '.join(arrays)}. Rename it.")
        optional = {role: arrays[array_name] for role, array_name in _find_optional_arrays(list(arrays)).items()}
        return arrays[name].reshape(-1, arrays[name].shape[-1]), _read_boxes(optional)  # the cells of a grid are regions

    return RegionContent([file.stem for file in files], read(0)[0].shape[1], read, tuple(files))


# -- the tsv of bottom-up attention


def _open_tsv(*files: Path) -> RegionContent:
    """The tsv of bottom-up attention: one line per image, boxes and features as float32 in base64.

    The columns are `image_id, image_w, image_h, num_boxes, boxes, features`. The number of boxes may differ between images. Lines
    are located once, and decoded on demand. Source: anderson2018bottomup, released features.
    """
    ids: list[str] = []
    lines: list[tuple[int, int, int]] = []  # file, start and end of each
    maps = []
    for file_number, path in enumerate(files):
        if not path.stat().st_size:
            raise CrossmatchError(f"{path} is empty. Extract or copy it again.")
        with path.open("rb") as file:
            maps.append(mapped := mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        start, size = 0, len(mapped)
        while start < size:
            end = mapped.find(b"\n", start)
            end = size if end < 0 else end
            if end > start:
                tab = mapped.find(b"\t", start, end)
                if tab < 0:
                    raise CrossmatchError(
                        f"{path}: line {len(lines) + 1} has no columns. The file is truncated or not a tsv: copy it again."
                    )
                if mapped[start:tab] != HEADER:
                    ids.append(mapped[start:tab].decode("utf-8", "replace"))
                    lines.append((file_number, start, end))
            start = end + 1

    def read(n: int) -> Item:
        file_number, start, end = lines[n]
        cells = maps[file_number][start:end].rstrip(b"\r").split(b"\t")
        names = COLUMNS.get(len(cells))
        if names is None:
            raise ValueError(f"{len(cells)} columns instead of {' or '.join(map(str, COLUMNS))}")
        row = dict(zip(names, cells, strict=True))
        count = int(row["num_boxes"])
        features, boxes = _decode_floats(row["features"]), _decode_floats(row["boxes"])
        if count < 1 or len(features) % count or len(boxes) != 4 * count:
            raise ValueError(f"{count} boxes, but {len(boxes):,} numbers of boxes and {len(features):,} of features")
        return features.reshape(count, -1), to_fractions(boxes.reshape(count, 4), float(row["image_w"]), float(row["image_h"]))

    try:
        width = read(0)[0].shape[1] if ids else 0
    except ValueError as error:
        raise CrossmatchError(
            f"{files[0]}: image {ids[0]!r} cannot be read ({error}). The file is damaged: copy it again."
        ) from None
    return RegionContent(ids, width, read, files)


def _decode_floats(cell: bytes) -> NDArray[np.float32]:
    try:
        raw = base64.b64decode(cell, validate=True)
    except binascii.Error as error:
        raise ValueError(f"bad base64: {error}") from None
    return np.frombuffer(raw, dtype="<f4")


# -- h5


def _open_h5(path: Path) -> RegionContent:
    """An h5 with one of four structures.

    Arrays over all images (`image_features`, with `pos_boxes` if the number of regions differs); or for each image a dataset named
    by its id, a group with `features`, or a dataset `ID_features`.
    """
    try:
        import h5py
    except ImportError as absent:
        raise MissingDependencyError("h5py", "regions") from absent
    try:
        file = h5py.File(path, "r")
        names = list(file)
    except OSError as error:
        raise CrossmatchError(f"{path} cannot be read as h5 ({error}). It is truncated or damaged: copy it again.") from None
    feature_name = next((name for name in FEATURES if name in names and isinstance(file[name], h5py.Dataset)), None)
    if feature_name is not None:
        return _open_h5_arrays(path, file, feature_name)
    feature_names = [name for name in names if name.endswith("_features")]
    if feature_names:
        ids = [name.removesuffix("_features") for name in feature_names]
        return _open_h5_items(
            path, ids, lambda name: {key: file.get(f"{name}_{key}") for key in ("features", *BOXES, *WIDTH, *HEIGHT)}
        )
    if names and isinstance(file[names[0]], h5py.Group):  # only the first is checked, because opening each is slow
        return _open_h5_items(path, names, lambda name: {**file[name].attrs, **dict(file[name])})
    return _open_h5_items(path, names, lambda name: {"features": file[name]})


def _open_h5_items(path: Path, ids: Sequence[str], get_datasets: Callable[[str], Mapping[str, Any]]) -> RegionContent:
    def read(n: int) -> Item:
        try:
            datasets = {key: values for key, values in get_datasets(ids[n]).items() if values is not None}
        except KeyError as error:  # h5py raises it for damaged objects
            raise ValueError(str(error)) from None
        name = _first(FEATURES, datasets)
        if name is None:
            raise ValueError(f"expected features, got {', '.join(datasets) or 'nothing'}")
        features = np.asarray(datasets[name])
        if not features.ndim:
            raise ValueError(f"expected an array of features, got {features.dtype}")
        optional = {role: np.asarray(datasets[key]) for role, key in _find_optional_arrays(datasets).items()}
        return features.reshape(-1, features.shape[-1]), _read_boxes(optional)

    if not ids:
        raise CrossmatchError(
            f"{path} has no region features: neither image_features nor a dataset for each image. Check the file."
        )
    try:
        width = read(0)[0].shape[1]
    except DAMAGED as error:
        raise CrossmatchError(f"{path}: image {ids[0]!r} cannot be read ({first_line(error)}). Extract it again.") from None
    return RegionContent(ids, width, read)


def _open_h5_arrays(path: Path, file: Any, feature_name: str) -> RegionContent:
    """Arrays over all images. With `pos_boxes` (N, 2), image n has the rows from its first number to before its second."""
    features, bounds = file[feature_name], file.get("pos_boxes")
    ids, id_files = _read_h5_ids(path, file)
    spatial, box_name = file.get("spatial_features"), _first(BOXES, file)  # the former are already fractions
    boxes = spatial if spatial is not None else None if box_name is None else file[box_name]
    arrays = {"features": features, **({} if boxes is None else {"boxes": boxes})} if bounds is None else {"pos_boxes": bounds}
    _require_rows(path, len(ids), arrays)

    def read(n: int) -> Item:
        part: Any = n
        if bounds is not None:
            first, last = (int(place) for place in bounds[n])
            if not 0 <= first < last <= len(features):
                raise ValueError(f"its regions are the rows {first} to {last} of {len(features):,}")
            part = slice(first, last)
        return np.atleast_2d(features[part]), None if boxes is None else to_fractions(np.atleast_2d(boxes[part]))

    return RegionContent(ids, int(features.shape[-1]), read, (path, *id_files))


def _read_h5_ids(path: Path, file: Any) -> tuple[list[str], tuple[Path, ...]]:
    """Return the ids of the rows: from the file, or from `NAME_ids.txt`, `NAME_imgid2idx.json` or `NAME_imgid2idx.pkl`."""
    dataset = _first(IDS, file)
    if dataset is not None:
        values = np.asarray(file[dataset])
        return [name.decode() if isinstance(name, bytes) else str(name) for name in values.tolist()], ()
    listed, *mapped = (path.with_name(path.stem + end) for end in ("_ids.txt", "_imgid2idx.json", "_imgid2idx.pkl"))
    if listed.is_file():
        return _read_ids(listed), (listed,)
    map_path = next((name for name in mapped if name.is_file()), None)
    if map_path is None:
        raise CrossmatchError(
            f"{path} does not say which image each row is. Add {listed.name} or {mapped[1].name} to its folder, or a dataset "
            "image_ids to the file."
        )
    try:
        row_of_id = decode_json_file(map_path) if map_path.suffix == ".json" else _unpickle(map_path)
        if not isinstance(row_of_id, dict) or not all(isinstance(row, int) for row in row_of_id.values()):
            raise UndecodableFileError(f"it is {row_of_id!r:.40}")
    except UndecodableFileError as error:
        raise CrossmatchError(
            f"{map_path} does not contain {{image id: row}} ({error}). Download it again, or write it as json."
        ) from None
    rows = sorted((row, str(name)) for name, row in row_of_id.items())
    if [row for row, _ in rows] != list(range(len(rows))):
        raise CrossmatchError(f"{map_path}: expected the rows 0 to {len(rows) - 1:,}, each once. Download it again.")
    return [name for _, name in rows], (map_path,)


def _unpickle(path: Path) -> object:
    raw = path.read_bytes()
    try:
        return _SafeUnpickler(io.BytesIO(raw)).load()
    except Exception as error:  # only the unpickler runs here, and damaged bytes can fail anywhere in it
        raise UndecodableFileError(str(error) or type(error).__name__) from None


class _SafeUnpickler(pickle.Unpickler):
    """Unpickles numbers, texts and dictionaries, and refuses everything that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it contains {module}.{name}, which is not loaded")


def _list_tsv_parts(path: Path) -> list[Path]:
    return sorted(part for part in path.glob("*") if ".tsv" in part.suffixes and part.is_file())


LAYOUTS = (
    Layout("npy", "NAME_ims.npy with NAME_ids.txt", lambda p: p.is_file() and p.suffix == ".npy", _open_npy),
    Layout("tsv", "a .tsv of bottom-up attention", lambda p: p.is_file() and ".tsv" in p.suffixes, _open_tsv),
    Layout("h5", "an .h5 or .hdf5 with arrays or a dataset for each image", lambda p: p.suffix in (".h5", ".hdf5"), _open_h5),
    Layout("npz", "an .npz with ids and features", lambda p: p.is_file() and p.suffix == ".npz", _open_npz),
    Layout("npz folder", "a folder with ID.npz for each image", lambda p: p.is_dir() and any(p.glob("*.npz")), _open_npz_folder),
    Layout("tsv folder", "a folder with the parts of a .tsv", lambda p: p.is_dir() and bool(_list_tsv_parts(p)),
           lambda p: _open_tsv(*_list_tsv_parts(p))),
)  # fmt: skip
