"""A card: counted facts, files that load with `datasets` and mlcroissant, and rejection of changed inputs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from PIL import Image

from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.build.merging.merge import write_merge
from crossmatch.build.merging.pair_verdicts import read_source
from crossmatch.build.pooling import PoolOptions, build_pool
from crossmatch.build.publishing.data_sheet import _bias_limits, describe_step
from crossmatch.build.publishing.provenance import load_chain, load_provenance_step, summarise_annotators
from crossmatch.build.publishing.published_folder import CardTexts, write_card
from crossmatch.build.step_files import StepSpec, read_manifest, rows_hash, write_step
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import file_sha256


def picture(name: str) -> Image.Image:
    return Image.new("RGB", (6, 4), (ord(name[0]), 9, 9))


def pets() -> Collection:
    return Collection.from_captions({"ant": ["An ant.", 'Ein Tier, "klein"; 蚂蚁'], "bee": ["A bee."], "cow": ["A cow."]}, picture)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pool, an export of a study of it, and the merged result."""
    data = pets()
    build_pool(data, ["random:1", "random:2"], tmp_path / "pool", options=PoolOptions(top=2, certain=0, gold=0))
    export = tmp_path / "export"
    export.mkdir()
    (export / "judgements.csv").write_text("image_id,caption_id,grade\nant,bee#0,0.5\nbee,bee#0,1\ncow,bee#0,0\n")
    head = "item,person,question,answer,seconds,at,hit,gold,late,order,artificial\n"
    answers = {"eva": ("yes", "no", "yes"), "tom": ("yes", "no", "no")}
    lines = "".join(
        f"{item},{name},match,{answer},1,x,1,0,0,,0\n" for name, texts in answers.items() for item, answer in enumerate(texts, 1)
    )
    (export / "answers.csv").write_text(f"{head}{lines}9,artificial-0001,match,no,1,x,1,1,0,,1\n")
    manifest = {"study": "pets", "preset": "eccv-hit", "hash": "ab" * 32, "answers": 6, "people": 2, "items": 3, "combine": "mean",
            "pending_review": 0, "still_to_come": 4, "crossmatch": "0.1.0",
            "origin": {"items": "rows.jsonl", "sha256": read_manifest(tmp_path / "pool")["sha256"]}}  # fmt: skip
    (export / "provenance.json").write_text(json.dumps(manifest))
    write_merge(data, [read_source(export, data, "people")], tmp_path / "merged")
    return tmp_path


TEXTS = CardTexts("Small pets", "Three animals.", "cc-by-4.0", "https://example.org/pets", "@misc{pets}", "2026-11-17")


def load_split(trials_folder: Path, cache: Path, *config: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets

        datasets.disable_progress_bars()
        return datasets.load_dataset(str(trials_folder), *config, cache_dir=str(cache), split="test")


def croissant_records(trials_folder: Path) -> dict[str, list[dict]]:
    """All records of a folder, read by mlcroissant without errors and warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlcroissant as mlc

        dataset = mlc.Dataset(jsonld=str(trials_folder / "croissant.json"))
        assert not dataset.metadata.issues.errors
        assert not dataset.metadata.issues.warnings
        return {part.id: list(dataset.records(record_set=part.id)) for part in dataset.metadata.record_sets}


def test_published_collection_equals_the_original(folder: Path):
    manifest = write_card(folder / "merged", folder / "card", TEXTS, earlier=[folder / "export", folder / "pool"])
    assert manifest["counts"] == {"images": 3, "captions": 4, "links": 4, "judged pairs": 6, "of them judged irrelevant": 1}
    images = load_split(folder / "card", folder / "cache")
    assert [row["image_id"] for row in images] == ["ant", "bee", "cow"]
    assert images[0]["captions"] == ["An ant.", 'Ein Tier, "klein"; 蚂蚁']
    assert images[2]["image"].convert("RGB").getpixel((0, 0)) == (ord("c"), 9, 9)
    judgements = load_split(folder / "card", folder / "cache", "judgements")
    assert {(row["image_id"], row["caption_id"]): row["grade"] for row in judgements} == {
        ("ant", "ant#0"): 1, ("ant", "ant#1"): 1, ("ant", "bee#0"): 1, ("bee", "bee#0"): 1, ("cow", "bee#0"): 0,
        ("cow", "cow#0"): 1,
    }  # fmt: skip
    published, before = load_collection_folder(folder / "card"), load_collection_folder(folder / "merged")
    assert published.collection.captions == before.collection.captions
    assert published.collection.links.tolist() == before.collection.links.tolist()
    assert published.judgements["merged"].positive_count == before.judgements["merged"].positive_count == 5
    assert write_card(folder / "merged", folder / "card", TEXTS, earlier=[folder / "export", folder / "pool"]) == manifest


def test_interrupted_card_leaves_no_temporary_files(folder: Path, monkeypatch):
    def interrupt(*_: object) -> str:
        (folder / "card" / "data" / ".images.parquet.x.part").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("crossmatch.build.publishing.published_folder.render_data_sheet", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_card(folder / "merged", folder / "card", TEXTS)
    write_card(folder / "merged", folder / "card", TEXTS)
    assert not list((folder / "card").rglob("*.part"))


def test_croissant_is_valid_and_matches_the_files(folder: Path):
    write_card(folder / "merged", folder / "card", TEXTS)
    records = croissant_records(folder / "card")
    assert [record["collection/image_id"] for record in records["collection"]] == [b"ant", b"bee", b"cow"]
    assert [text.decode() for text in records["collection"][0]["collection/captions"]] == ["An ant.", 'Ein Tier, "klein"; 蚂蚁']
    assert records["collection"][1]["collection/image"].size == (6, 4)
    assert sorted(record["judgements/grade"] for record in records["judgements"]) == [0, 1, 1, 1, 1, 1]
    assert records["judgements"][2]["judgements/said_by_pets"] == b"0.5"
    manifest = json.loads((folder / "card" / "croissant.json").read_text())
    files = {file["contentUrl"]: file["sha256"] for file in manifest["distribution"]}
    assert files == {name: file_sha256(folder / "card" / name) for name in files}


def test_data_sheet_states_the_facts(folder: Path):
    write_card(folder / "merged", folder / "card", TEXTS, earlier=[folder / "export", folder / "pool"])
    text = (folder / "card" / "README.md").read_text()
    of_pool, of_merge = (read_manifest(folder / name)["sha256"][:16] for name in ("pool", "merged"))
    assert text.startswith('---\npretty_name: "Small pets"\nlicense: cc-by-4.0\n')
    for line in (
        f"| merge | `{of_merge}` |",
        f"items rows.jsonl `{of_pool}` (pool)",
        "(study pets)",
        "| i2t positives merged | 5 |",
        "- pets (eccv-hit): 6 answers of 2 people to 3 items.",
        str(summarise_annotators(load_provenance_step(folder / "export")).alpha),
        "- 6 of 12 pairs (50 %) are judged; all others are unjudged, not wrong.",
        "- Only pairs that one of 2 models retrieved were judged: `random:1`, `random:2`.",
        "- 4 assignments of pets were missing.",
        "- Pictures: no licences were stated.",
    ):
        assert line in text
    assert "were artificial annotators" not in text  # annotators of gold questions only do not count


def test_data_sheet_names_missing_facts(folder: Path):
    (folder / "bare" / "images").mkdir(parents=True)
    picture("x").save(folder / "bare" / "images" / "x.png")
    (folder / "bare" / "captions.csv").write_text("image,caption\nx.png,A cat.\nx.png,A pet.\n")
    (folder / "bare" / "judgements_t2t.csv").write_text("caption_id,other_caption_id,grade\nx.png#0,x.png#1,2.5\n")
    write_card(folder / "bare", folder / "card", CardTexts("bare"))
    text = (folder / "card" / "README.md").read_text()
    assert "license" not in text.partition("# bare")[0]
    for line in ("no licence was stated", "No description was given", "No manifest was available", "It is unknown who made"):
        assert line in text
    assert load_split(folder / "card", folder / "cache").num_rows == 1
    assert load_split(folder / "card", folder / "cache", "judgements_t2t")[0]["grade"] == 2.5


def test_data_sheet_names_artificial_annotators(folder: Path):
    path = folder / "export" / "answers.csv"
    lines = (line.removesuffix("0") + "1" if ",tom," in line else line for line in path.read_text().splitlines())
    path.write_text("\n".join(lines) + "\n")
    write_card(folder / "merged", folder / "card", TEXTS, earlier=[folder / "export"])
    assert "**1 of these 2 people were artificial annotators" in (folder / "card" / "README.md").read_text()


def test_image_licences_are_published(folder: Path):
    (folder / "licences.csv").write_text("image_id,license\nant,CC BY 2.0\nbee,CC BY 2.0\ncow,CC BY-SA 2.0\n")
    write_card(folder / "merged", folder / "card", CardTexts("pets", licence="our own"), licences=folder / "licences.csv")
    text = (folder / "card" / "README.md").read_text()
    assert "- 2 pictures: CC BY 2.0\n- 1 picture: CC BY-SA 2.0" in text
    assert 'license: other\nlicense_name: "our own"' in text
    assert load_split(folder / "card", folder / "cache")[2]["licence"] == "CC BY-SA 2.0"
    (folder / "licences.csv").write_text("image_id,license\nant,CC BY 2.0\n")
    with pytest.raises(CrossmatchError, match="lists 1 of 3 images"):
        write_card(folder / "merged", folder / "other", CardTexts("pets"), licences=folder / "licences.csv")


def test_trials_are_published(folder: Path):
    trials_folder = folder / "trials"
    (trials_folder / "images").mkdir(parents=True)
    for name in ("x.png", "y.png"):
        picture(name).save(trials_folder / "images" / name)
    rows = [{"id": "1", "images": ["x.png", "y.png"], "captions": ["A cat.", "A dog."], "category": "swap"},
            {"id": "2", "images": ["y.png", "x.png"], "captions": ["A dog.", "A cow."], "category": "replace"}]  # fmt: skip
    (trials_folder / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    manifest = write_card(trials_folder, folder / "card", TEXTS)
    assert manifest["counts"] == {"trials": 2, "images": 2, "captions": 3, "categories": 2}
    dataset = load_split(folder / "card", folder / "cache")
    assert dataset[1]["caption_1"] == "A cow."
    assert dataset[1]["image_0"].convert("RGB").getpixel((0, 0)) == (ord("y"), 9, 9)
    (records,) = croissant_records(folder / "card").values()
    assert [(record["trials/id"], record["trials/category"]) for record in records] == [(b"1", b"swap"), (b"2", b"replace")]
    assert records[0]["trials/image_1"].size == (6, 4)
    assert "collection:FOLDER" not in (folder / "card" / "README.md").read_text()
    (trials_folder / "trials.jsonl").write_text(json.dumps(rows[0]) + "\n" + json.dumps(rows[1] | {"captions": ["A dog."]}) + "\n")
    with pytest.raises(CrossmatchError, match="of 2 shapes"):
        write_card(trials_folder, folder / "other", TEXTS)


def test_unchanged_rows_keep_both_steps_in_the_chain(tmp_path: Path):
    def make_step(name: str, **inputs: str) -> Path:
        write_step(tmp_path / name, StepSpec(name, inputs), lambda output: [{"id": "x"}])
        return tmp_path / name

    negatives = make_step("negatives")
    formatted = make_step("format", negatives=rows_hash(negatives))
    refined = make_step("refine", negatives=rows_hash(formatted))
    for earlier in ([formatted, negatives], [negatives, formatted]):
        assert {step.name for step in load_chain(refined, earlier).steps} == {"refine", "format", "negatives"}
    assert describe_step(load_provenance_step(negatives)).startswith("seed 0, 1 rows")
    with pytest.raises(CrossmatchError, match="add the step between"):
        load_chain(make_step("other", refined="f" * 16), [refined])


def test_broken_chain_is_rejected(folder: Path):
    build_pool(pets(), ["random:3"], folder / "another", options=PoolOptions(top=2, certain=0, gold=0))
    with pytest.raises(CrossmatchError, match=r"another: .*merged was not made from this pool"):
        load_chain(folder / "merged", [folder / "another"])
    with pytest.raises(UsageError, match="not a build step or a study export"):
        load_chain(folder / "merged", [folder])
    rows = folder / "pool" / "rows.jsonl"
    rows.write_text(rows.read_text().replace("ant", "gnu"))
    with pytest.raises(CrossmatchError, match="was changed after the step"):
        load_chain(folder / "merged", [folder / "export", folder / "pool"])


def test_changed_judgements_are_rejected(folder: Path):
    path = folder / "merged" / "judgements.csv"
    path.write_text(path.read_text().replace("cow,bee#0,0", "cow,bee#0,1"))
    with pytest.raises(CrossmatchError, match=r"was changed after the merge \(image cow, caption bee#0\)"):
        write_card(folder / "merged", folder / "card", TEXTS)


def test_invalid_texts_and_folders_are_rejected(folder: Path):
    with pytest.raises(UsageError, match="--name may contain"):
        CardTexts("a/b")
    with pytest.raises(UsageError, match="--released must be a date"):
        CardTexts("a", released="yesterday")
    with pytest.raises(UsageError, match="is the folder of the result itself"):
        write_card(folder / "merged", folder / "merged", TEXTS)
    (folder / "export" / "provenance.json").write_text("[]")
    with pytest.raises(CrossmatchError, match="is not the file of an export"):
        load_provenance_step(folder / "export")


@pytest.mark.parametrize(("interval", "expected"), [([], "2 models)"), ([1.0, 4.5], "2 models, 95 % interval 1.0 to 4.5)")])
def test_data_sheet_reports_the_measured_bias(tmp_path: Path, interval, expected):
    rows = [
        {"id": f"t2i/hit@1/{n} models", "direction": "t2i", "metric": "hit@1", "models": n, "non_self": [9.0 / n, *interval]}
        for n in (1, 2)
    ]
    write_step(tmp_path / "bias", StepSpec("bias", {}), lambda output: rows)
    (line,) = _bias_limits(load_provenance_step(tmp_path / "bias"))
    assert "its hit@1 in t2i would change by 4.5 points" in line
    assert expected in line
    assert "as much, or more" in line
