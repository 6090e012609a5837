"""Every reader of files tells damaged content from a bug: damage is a `CrossmatchError` in one line, a bug stays what it is."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossmatch import Collection, evaluate, load_result, load_results, save_result
from crossmatch.benchmarks.bison import _read_records, _trial_record
from crossmatch.benchmarks.coco import read_coco_captions
from crossmatch.benchmarks.eccv_caption import FILES, read_matches
from crossmatch.benchmarks.formats.caption_scoring_files import read_candidates, read_ratings
from crossmatch.benchmarks.formats.coco_json import read_coco
from crossmatch.benchmarks.formats.csv_tables import read_table
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.benchmarks.formats.trial_files import read_trial_records
from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.build.publishing.provenance import load_provenance_step
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.human.published_ratings import load_flickr8k_expert, load_pascal_50s
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import decode_json, decode_npz
from crossmatch.models.files.precomputed import read_scores_file
from crossmatch.models.regions.feature_files import RegionFile

IMAGE_NAME = "a.jpg"
ECCV = Collection(["1", "2"], ["11", "12", "21"], ("A cat.", "A pet.", "A dog."), [[0, 0], [0, 1], [1, 2]])


def as_json(content: object) -> bytes:
    return json.dumps(content).encode()


def as_npz(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def as_png() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 4), "red").save(file, "png")
    return file.getvalue()


@dataclass(frozen=True)
class Reader:
    """A reader, the name and the content of a file that it can read, and a function of ours that it calls."""

    name: str
    file: str
    content: bytes
    read: Callable[[Path], object]
    calls: str  # replaced by a function with a bug


BISON = {"bison_id": 9, "caption": "A cat.", "true_image_id": 5, "image_candidates": [
    {"image_id": 5, "image_filename": "5.jpg"}, {"image_id": 6, "image_filename": "6.jpg"},
]}  # fmt: skip
EXPERT = {"im": {"ground_truth": ["a cat"], "human_judgement": [{"caption": "a dog", "rating": 2}]}}
PASCAL = {"HC": [{"image": "a.jpg", "captions": ["a cat", "a dog"], "references": ["a cat runs"], "label": 1}]}
PROVENANCE = {
    "study": "s", "preset": "sts", "hash": "ab", "origin": {}, "answers": 1, "people": 1, "items": 1, "combine": "mean",
    "crossmatch": "0.1", "still_to_come": 0,
}  # fmt: skip
COCO = {
    "images": [{"id": 1, "file_name": IMAGE_NAME}],
    "annotations": [{"id": 11, "image_id": 1, "caption": "A cat."}],
}
EMBEDDINGS = as_npz(image_ids=["1"], image_embeddings=[[1.0, 2.0]], caption_ids=["11"], caption_embeddings=[[0.5, 1.0]])
FREQUENCIES = as_npz(format=1, images=2, grams=np.frombuffer(b"a cat", np.uint8), counts=np.array([1]))
READERS = (
    Reader("result", "result.json", b"", load_result, "crossmatch.data.result._read_part"),
    Reader("evidence of a result", "result.npz", b"", lambda path: load_result(path.with_suffix(".json")), "crossmatch.data.result.ResultPart"),
    Reader("embeddings", "e.npz", EMBEDDINGS, read_scores_file, "crossmatch.models.files.precomputed.Embeddings"),
    Reader("trial scores", "t.csv", b"trial_id,s_c0_i0,s_c0_i1\na,1,2\n", read_scores_file, "crossmatch.models.files.precomputed.TrialScores"),
    Reader("run", "r.trec", b"1 Q0 11 1 0.5 tag\n", read_scores_file, "crossmatch.ranking.trec_files.Run"),
    Reader(
        "BISON predictions", "p.json", as_json([{"bison_id": 1, "predicted_image_id": 2}]), read_scores_file,
        "crossmatch.models.files.precomputed.TrialChoices",
    ),
    Reader(
        "document frequencies", "df.npz", FREQUENCIES, DocumentFrequencies.load,
        "crossmatch.captions.document_frequencies.DocumentFrequencies.__post_init__",
    ),
    Reader("COCO captions", "captions_val2014.json", as_json(COCO), read_coco_captions, "crossmatch.benchmarks.coco.check_record"),
    Reader(
        "ECCV Caption", FILES["i2t"], as_json({"1": [11, "21"]}), lambda path: read_matches(ECCV, FILES["i2t"], "i2t"),
        "crossmatch.benchmarks.eccv_caption.Judgements",
    ),
    Reader(
        "BISON trials", "bison.json", as_json({"data": [BISON]}),
        lambda path: [_trial_record(record, n, path, {}) for n, record in enumerate(_read_records(path))],
        "crossmatch.benchmarks.bison.TrialRecord",
    ),
    Reader(
        "Flickr8k-Expert", "f.json", as_json(EXPERT), load_flickr8k_expert, "crossmatch.captions.human.published_ratings._parse_rating"
    ),
    Reader("PASCAL-50S", "p.json", as_json(PASCAL), load_pascal_50s, "crossmatch.captions.human.published_ratings.Preferences"),
    Reader(
        "provenance", "provenance.json", as_json(PROVENANCE), lambda path: load_provenance_step(path.parent),
        "crossmatch.build.publishing.provenance.ProvenanceStep",
    ),
    Reader(
        "image", "i.png", as_png(), lambda path: decode_image(path.read_bytes(), str(path)),
        "crossmatch.benchmarks.formats.image_decoding.io.BytesIO",
    ),
    Reader(
        "region features", "r.npz", as_npz(ids=["1"], features=np.ones((1, 2, 3))), RegionFile.open,
        "crossmatch.models.regions.file_layouts._open_array",
    ),
    Reader("table", "t.csv", b"image,grade\na,1\n", lambda path: read_table(path, (("image",),)), "crossmatch.benchmarks.formats.csv_tables.TableRow"),
    Reader(
        "trials", "t.jsonl", as_json({"images": ["a.jpg", "b.jpg"], "captions": ["A cat."]}), read_trial_records,
        "crossmatch.benchmarks.formats.trial_files.TrialRecord",
    ),
    Reader("candidates", "c.json", as_json({"1": "A cat."}), read_candidates, "crossmatch.benchmarks.formats.caption_scoring_files.parse_id"),
    Reader(
        "ratings", "r.csv", b"image_id,caption,rating\n1,A cat.,2\n", read_ratings,
        "crossmatch.benchmarks.formats.caption_scoring_files._parse_rating",
    ),
    Reader("COCO json", "captions.json", as_json(COCO), read_coco, "crossmatch.benchmarks.formats.coco_json.parse_id"),
    Reader(
        "collection", "captions.csv", b"image,caption\na.jpg,A cat.\n", lambda path: load_collection_folder(path.parent),
        "crossmatch.benchmarks.user_collection.build_collection",
    ),
)  # fmt: skip
EACH = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)


@pytest.fixture(scope="module")
def result_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = save_result(evaluate("random", "diorama/retrieval", size="tiny", samples=10), tmp_path_factory.mktemp("results"))
    return {"result.json": path.read_bytes(), "result.npz": path.with_suffix(".npz").read_bytes()}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, result_files: dict[str, bytes]) -> Callable[..., Path]:
    """Write the file of a reader, or damaged content in its place."""
    monkeypatch.setattr("crossmatch.benchmarks.eccv_caption.require_data_file", lambda name: tmp_path / name)  # of any size

    def write_file(reader: Reader, damage: Callable[[bytes], bytes] = bytes) -> Path:
        for name, content in {reader.file: reader.content, **(result_files if reader.file in result_files else {})}.items():
            path = tmp_path / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(damage(content) if name == reader.file else content)
        if reader.name in ("collection", "COCO json"):
            (tmp_path / "images").mkdir(exist_ok=True)
            (tmp_path / "images" / IMAGE_NAME).write_bytes(as_png())
        return tmp_path / reader.file

    return write_file


@EACH
def test_valid_file_is_read(reader, write):
    reader.read(write(reader))


DAMAGES = {
    "empty": lambda content: b"",
    "half": lambda content: content[: len(content) // 2],
    "noise": lambda content: bytes(range(128, 256)) + content[3:],
    "an object": lambda content: b"{}",
    "a list": lambda content: b"[]",
    "a list of numbers": lambda content: b"[1, 2]",
    "null": lambda content: b"null",
    "an object of nulls": lambda content: (
        b'{"data": null, "annotations": null, "images": null, "1": null, "rows": null, "parts": null}'
    ),
    "a deep list": lambda content: b"[" * 100_000,
    "values of another type": lambda content: (
        content.replace(b'": "', b'": ["').replace(b'",', b'"],').replace(b": {", b': 3, "x": {')
    ),
    "no values": lambda content: re.sub(rb": [^{\\[,}]+", b": null", content),
}


@pytest.mark.parametrize("damage", DAMAGES)
@EACH
def test_damaged_file_is_an_error_in_one_line(reader, write, damage):
    """A table that is cut may still be a table."""
    path = write(reader, DAMAGES[damage])
    message = ""
    try:
        reader.read(path)
    except CrossmatchError as error:
        message = str(error)
    assert message or damage not in ("empty", "noise", "null")
    assert "\n" not in message


@pytest.mark.parametrize(
    "bug", [KeyError("bug"), TypeError("bug"), AttributeError("bug"), IndexError("bug"), NameError("bug")], ids=repr
)
@EACH
def test_bug_is_not_called_damage(reader, write, bug, monkeypatch):
    path = write(reader)

    def buggy(*arguments: object, **options: object) -> None:
        raise bug

    monkeypatch.setattr(reader.calls, buggy)
    with pytest.raises(type(bug), match="bug"):
        reader.read(path)


@pytest.mark.parametrize("value", [5, None, 1.5, {}], ids=repr)
@pytest.mark.parametrize(
    "read",
    [load_result, DocumentFrequencies.load, read_scores_file, lambda value: load_results([value])],
    ids=["result", "frequencies", "scores", "results"],
)
def test_wrong_type_of_a_path_is_a_type_error(read, value):
    with pytest.raises(TypeError):
        read(value)


@pytest.mark.parametrize("value", ["a text", 5, None], ids=repr)
def test_wrong_type_of_content_is_a_type_error(value):
    for decode in (decode_json, decode_npz, lambda content: decode_image(content, "i.png")):
        with pytest.raises(TypeError):
            decode(value)


# -- load_result


def test_results_are_loaded_from_texts_and_folders(write, tmp_path):
    path = write(READERS[0])
    expected = load_result(path).as_json()
    for name in (str(path), tmp_path, str(tmp_path)):
        assert load_result(name).as_json() == expected
    assert [result.as_json() for result in load_results(str(tmp_path))] == [expected]


def test_folder_without_or_with_several_results_is_a_usage_error(write, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"There is no result in .*empty\. Make one"):
        load_result(tmp_path / "empty")
    with pytest.raises(UsageError, match=r"There is no result in .*nowhere\.json"):
        load_result(tmp_path / "nowhere.json")
    path = write(READERS[0])
    for suffix in (".json", ".npz"):
        path.with_name(f"second{suffix}").write_bytes(path.with_suffix(suffix).read_bytes())
    with pytest.raises(UsageError, match=r"has 2 results\. Read them with load_results"):
        load_result(tmp_path)
    assert len(load_results(tmp_path)) == 2
