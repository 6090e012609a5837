"""Parquet files for `datasets.load_dataset`, with embedded pictures, and their Croissant metadata."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from crossmatch.data.errors import MissingDependencyError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.file_contents import file_sha256

ROW_GROUP = 64  # rows; with pictures a few megabytes
IMAGE, TEXT, TEXTS, NUMBER = "image", "text", "texts", "number"  # kinds of columns
Record = Mapping[str, Any]


@dataclass(frozen=True)
class ParquetFile:
    """A parquet file: its configuration, columns with their kinds and descriptions, number of rows, hash and size."""

    config: str
    path: str  # relative to the folder
    columns: Mapping[str, str]
    about: Mapping[str, str]
    rows: int
    sha256: str
    size: int


def write_parquet(
    folder: Path, config: str, subfolder: str, columns: Mapping[str, str], about: Mapping[str, str], records: Iterable[Record]
) -> ParquetFile:
    """Write records into `subfolder/test-00000-of-00001.parquet`, one row group at a time."""
    try:
        import pyarrow as pa  # type: ignore[import-untyped, import-not-found, unused-ignore]
        from pyarrow import parquet
    except ImportError:
        raise MissingDependencyError("pyarrow", "hf") from None
    kinds = {
        IMAGE: pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        TEXT: pa.string(),
        TEXTS: pa.list_(pa.string()),
        NUMBER: pa.float64(),
    }
    features = json.dumps({"info": {"features": {name: FEATURES[kind] for name, kind in columns.items()}}})
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()], metadata={"huggingface": features})
    path = folder / subfolder / "test-00000-of-00001.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows, remaining = 0, iter(records)
    with atomic_write(path) as file, parquet.ParquetWriter(file, schema) as writer:
        while group := list(islice(remaining, ROW_GROUP)):
            rows += len(group)
            arrays = [pa.array([record[name] for record in group], kinds[kind]) for name, kind in columns.items()]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return ParquetFile(config, path.relative_to(folder).as_posix(), columns, about, rows, file_sha256(path), path.stat().st_size)


TEXT_VALUE = {"dtype": "string", "_type": "Value"}
FEATURES: dict[str, Any] = {  # feature types of `datasets`
    IMAGE: {"_type": "Image"},
    TEXT: TEXT_VALUE,
    TEXTS: {"feature": TEXT_VALUE, "_type": "Sequence"},
    NUMBER: {"dtype": "float64", "_type": "Value"},
}


# -- Croissant

CROISSANT_TERMS = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject",
    "fileProperty", "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5", "parentField",
    "path", "recordSet", "references", "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField",
    "transform",
)  # fmt: skip
OTHER_TERMS: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}
CONTEXT = dict(sorted((OTHER_TERMS | {term: f"cr:{term}" for term in CROISSANT_TERMS}).items()))
TYPES = {IMAGE: "sc:ImageObject", TEXT: "sc:Text", TEXTS: "sc:Text", NUMBER: "sc:Float"}


def croissant_metadata(name: str, description: str, files: Sequence[ParquetFile], optional: Mapping[str, str]) -> dict[str, Any]:
    """Croissant metadata of a folder of parquet files: one file and one record set each (akhtar2024croissant)."""
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": description,
        **optional,
        "distribution": [_file_object(file) for file in files],
        "recordSet": [
            {
                "@type": "cr:RecordSet", "@id": file.config, "name": file.config,
                "field": [_field(file, name, kind) for name, kind in file.columns.items()],
            }
            for file in files
        ],
    }  # fmt: skip


def _file_object(file: ParquetFile) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject", "@id": f"file-{file.config}", "name": f"file-{file.config}", "contentUrl": file.path,
        "contentSize": f"{file.size} B", "encodingFormat": "application/x-parquet", "sha256": file.sha256,
    }  # fmt: skip


def _field(file: ParquetFile, name: str, kind: str) -> dict[str, Any]:
    source: dict[str, Any] = {"fileObject": {"@id": f"file-{file.config}"}, "extract": {"column": name}}
    if kind == IMAGE:
        source["transform"] = {"jsonPath": "bytes"}
    description = {"description": file.about[name]} if name in file.about else {}
    field_id = f"{file.config}/{name.replace(' ', '_')}"
    repeated = {"repeated": True} if kind == TEXTS else {}
    return {
        "@type": "cr:Field", "@id": field_id, "name": field_id, **description, "dataType": TYPES[kind], **repeated, "source": source,
    }  # fmt: skip
