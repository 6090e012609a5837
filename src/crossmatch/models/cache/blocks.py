"""The file format of the cache: a block of named arrays whose header proves that it is complete and the right one.

A block is one line of json, then the bytes of its arrays. The header names the format, the key of the entry, the block, and for
each array its dtype, shape and SHA-256. The hash covers the rest of the header too, so no byte can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.io.file_contents import UndecodableFileError, check_record, decode_json

FORMAT = 2  # increase when blocks are written differently, or when images are decoded differently
MAX_HEADER = 2000  # bytes
DTYPES = ("<f2", "<f4", "<f8", "|u1", "<i8")


def content_key(*facts: object) -> str:
    """Return a key of 32 hexadecimal digits that changes with any of the facts and with the format.

    >>> content_key("embeddings", "clip|v1") == content_key("embeddings", "clip|v2")
    False
    """
    return hashlib.sha256(json.dumps([FORMAT, *facts]).encode()).hexdigest()[:32]


def pack_block(key: str, name: str, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Serialise named arrays, each with one of `DTYPES`, as the block `name` of the entry `key`.

    >>> pack_block("9f0c", "0-0", {"scores": np.zeros((1, 2), "<f4")}).partition(b"sha256")[0]
    b'{"format":2,"key":"9f0c","block":"0-0","arrays":{"scores":{"dtype":"<f4","shape":[1,2],"'
    """
    specs = {}
    for label, values in arrays.items():
        checksum = _checksum(key, name, label, values.dtype.str, values.shape, values.tobytes())
        specs[label] = {"dtype": values.dtype.str, "shape": list(values.shape), "sha256": checksum}
    header = {"format": FORMAT, "key": key, "block": name, "arrays": specs}
    return b"".join([_dump(header), *(values.tobytes() for values in arrays.values())])


def read_block(file: BinaryIO, key: str, name: str, only: Iterable[str] | None = None) -> dict[str, NDArray[Any]] | None:
    """Read the arrays of a block, or `only` some; None if it is incomplete, damaged, or not this block."""
    specs = read_header(file, key, name)
    if specs is None:
        return None
    arrays = {}
    for label, (dtype, shape, checksum) in specs.items():
        size = math.prod(shape) * dtype.itemsize
        if only is not None and label not in only:
            file.seek(size, 1)
            continue
        raw = file.read(size)
        if _checksum(key, name, label, dtype.str, shape, raw) != checksum:
            return None
        arrays[label] = np.frombuffer(raw, dtype).reshape(shape)
    return arrays


def _check_spec(spec: object) -> tuple[np.dtype[Any], tuple[int, ...], str]:
    record = check_record(spec, "an array", {"dtype": str, "shape": list, "sha256": str})
    if record["dtype"] not in DTYPES or not all(type(size) is int and size >= 0 for size in record["shape"]):
        raise UndecodableFileError(f"an array is of {record['dtype']} and shape {record['shape']}")
    return np.dtype(record["dtype"]), tuple(record["shape"]), record["sha256"]


def read_header(file: BinaryIO, key: str, name: str) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], str]] | None:
    """Read dtype, shape and checksum of each array; None if the header is damaged or the file has the wrong size."""
    line = file.readline(MAX_HEADER)
    try:
        header = check_record(decode_json(line), "the header", {"format": int, "key": str, "block": str, "arrays": dict})
        specs = {label: _check_spec(spec) for label, spec in header["arrays"].items()}
    except UndecodableFileError:
        return None
    is_expected = (header["format"], header["key"], header["block"]) == (FORMAT, key, name) and line == _dump(header)
    size = len(line) + sum(math.prod(shape) * dtype.itemsize for dtype, shape, _ in specs.values())
    if not is_expected or file.seek(0, 2) != size:
        return None
    file.seek(len(line))
    return specs


def _dump(header: Mapping[str, object]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode() + b"\n"


def _checksum(key: str, block: str, label: str, dtype: str, shape: tuple[int, ...], raw: bytes) -> str:
    digest = hashlib.sha256(json.dumps([FORMAT, key, block, label, dtype, list(shape)]).encode())
    digest.update(raw)
    return digest.hexdigest()
