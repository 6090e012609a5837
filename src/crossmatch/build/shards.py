"""A result as parquet files that `datasets.load_dataset` takes, with pictures inside; and what their columns are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from crossmatch.core.errors import MissingDependency
from crossmatch.core.files import sha256_of
from crossmatch.core.whole import whole_file

ROWS = 64  # in a group: with pictures a few megabytes
IMAGE, TEXT, TEXTS, NUMBER = "image", "text", "texts", "number"  # what a column may hold
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Shard:
    """A parquet file that was written: the set it is, its columns and what they mean, how many rows, and its hash."""

    config: str
    path: str  # in the folder
    columns: Mapping[str, str]
    about: Mapping[str, str]
    rows: int
    sha256: str
    size: int


def write_shard(
    folder: Path, config: str, place: str, columns: Mapping[str, str], about: Mapping[str, str], records: Iterable[Record]
) -> Shard:
    """Write records into `place/test-00000-of-00001.parquet`, a few at a time; an image is (bytes, name)."""
    pa, parquet = _arrow("pyarrow"), _arrow("pyarrow.parquet")
    kinds = {
        IMAGE: pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        TEXT: pa.string(),
        TEXTS: pa.list_(pa.string()),
        NUMBER: pa.float64(),
    }
    features = json.dumps({"info": {"features": {name: FEATURES[kind] for name, kind in columns.items()}}})
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()], metadata={"huggingface": features})
    path = folder / place / "test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with whole_file(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for some in _groups(records):
            rows += len(some)
            arrays = [pa.array([_cell(one[name], kind) for one in some], kinds[kind]) for name, kind in columns.items()]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return Shard(config, path.relative_to(folder).as_posix(), columns, about, rows, sha256_of(path), path.stat().st_size)


def _arrow(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingDependency("pyarrow", "hf") from None


def _groups(records: Iterable[Record]) -> Iterator[list[Record]]:
    left = iter(records)
    while some := list(islice(left, ROWS)):
        yield some


def _cell(value: Any, kind: str) -> Any:
    return {"bytes": value[0], "path": value[1]} if kind == IMAGE else value


TEXT_VALUE = {"dtype": "string", "_type": "Value"}
FEATURES: dict[str, Any] = {  # in the words of `datasets`
    IMAGE: {"_type": "Image"},
    TEXT: TEXT_VALUE,
    TEXTS: {"feature": TEXT_VALUE, "_type": "Sequence"},
    NUMBER: {"dtype": "float64", "_type": "Value"},
}


# -- Croissant

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "arrayShape": "cr:arrayShape",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "containedIn": "cr:containedIn",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isArray": "cr:isArray",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
TYPES = {IMAGE: "sc:ImageObject", TEXT: "sc:Text", TEXTS: "sc:Text", NUMBER: "sc:Float"}


def croissant(name: str, description: str, shards: Sequence[Shard], more: Mapping[str, str]) -> dict[str, Any]:
    """The metadata of ML Commons for a folder of parquet files: a file and a set of records for each (akhtar2024croissant)."""
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": description,
        **more,
        "distribution": [_file(one) for one in shards],
        "recordSet": [_records(one) for one in shards],
    }


def _file(shard: Shard) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject", "@id": f"file-{shard.config}", "name": f"file-{shard.config}", "contentUrl": shard.path,
        "contentSize": f"{shard.size} B", "encodingFormat": "application/x-parquet", "sha256": shard.sha256,
    }  # fmt: skip


def _records(shard: Shard) -> dict[str, Any]:
    fields = [_field(shard, name, kind) for name, kind in shard.columns.items()]
    return {"@type": "cr:RecordSet", "@id": shard.config, "name": shard.config, "field": fields}


def _field(shard: Shard, name: str, kind: str) -> dict[str, Any]:
    source: dict[str, Any] = {"fileObject": {"@id": f"file-{shard.config}"}, "extract": {"column": name}}
    if kind == IMAGE:
        source["transform"] = {"jsonPath": "bytes"}
    about = {"description": shard.about[name]} if name in shard.about else {}
    ident = f"{shard.config}/{name.replace(' ', '_')}"
    repeated = {"repeated": True} if kind == TEXTS else {}
    return {"@type": "cr:Field", "@id": ident, "name": ident, **about, "dataType": TYPES[kind], **repeated, "source": source}
