"""A card: what it says is counted, its files load through `datasets` and mlcroissant, and nothing that was changed passes."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
from PIL import Image

from crossmatch.benchmarks.folder import load_folder
from crossmatch.build.card import Wording, card
from crossmatch.build.files import Asked, hash_of, manifest, written
from crossmatch.build.merge import merge
from crossmatch.build.pool import Pooling, pool
from crossmatch.build.provenance import chain_of, link_of, people_of
from crossmatch.build.sheet import _bias, how
from crossmatch.build.verdicts import read_said
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import sha256_of


def picture(name: str) -> Image.Image:
    return Image.new("RGB", (6, 4), (ord(name[0]), 9, 9))


def pets() -> Collection:
    return Collection.of({"ant": ["An ant.", 'Ein Tier, "klein"; 蚂蚁'], "bee": ["A bee."], "cow": ["A cow."]}, picture)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A pool, an export of a study of it, and the merged result."""
    held = pets()
    pool(held, ["random:1", "random:2"], tmp_path / "pool", how=Pooling(top=2, certain=0, gold=0))
    export = tmp_path / "export"
    export.mkdir()
    (export / "judgements.csv").write_text("image_id,caption_id,grade\nant,bee#0,0.5\nbee,bee#0,1\ncow,bee#0,0\n")
    head = "item,person,question,answer,seconds,at,hit,gold,late,order\n"
    said = [
        ("1", "eva", "yes"),
        ("1", "tom", "yes"),
        ("2", "eva", "no"),
        ("2", "tom", "no"),
        ("3", "eva", "yes"),
        ("3", "tom", "no"),
    ]
    lines = "".join(f"{item},{who},match,{answer},1,x,1,0,0,\n" for item, who, answer in said)
    (export / "answers.csv").write_text(f"{head}{lines}9,artificial-0001,match,no,1,x,1,1,0,\n")
    told = {"study": "pets", "preset": "eccv-hit", "hash": "ab" * 32, "answers": 6, "people": 2, "items": 3, "combine": "mean",
            "pending_review": 0, "still_to_come": 4, "crossmatch": "0.1.0",
            "origin": {"items": "rows.jsonl", "sha256": manifest(tmp_path / "pool")["sha256"]}}  # fmt: skip
    (export / "provenance.json").write_text(json.dumps(told))
    merge(held, [read_said(export, held, "people")], tmp_path / "merged")
    return tmp_path


WORDS = Wording("Small pets", "Three animals.", "cc-by-4.0", "https://example.org/pets", "@misc{pets}", "2026-11-17")


def loaded(folder: Path, cache: Path, *config: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import datasets

        datasets.disable_progress_bars()
        return datasets.load_dataset(str(folder), *config, cache_dir=str(cache), split="test")


def croissant_records(folder: Path) -> dict[str, list[dict]]:
    """All records of a folder by mlcroissant, which must not find anything wrong with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlcroissant as mlc

        found = mlc.Dataset(jsonld=str(folder / "croissant.json"))
        assert not found.metadata.issues.errors
        assert not found.metadata.issues.warnings
        return {one.id: list(found.records(record_set=one.id)) for one in found.metadata.record_sets}


def test_a_collection_with_judgements_goes_there_and_back(made: Path):
    told = card(made / "merged", made / "card", WORDS, earlier=[made / "export", made / "pool"])
    assert told["counts"] == {"images": 3, "captions": 4, "links": 4, "judged pairs": 6, "of them judged irrelevant": 1}
    images = loaded(made / "card", made / "cache")
    assert [row["image_id"] for row in images] == ["ant", "bee", "cow"]
    assert images[0]["captions"] == ["An ant.", 'Ein Tier, "klein"; 蚂蚁']
    assert images[2]["image"].convert("RGB").getpixel((0, 0)) == (ord("c"), 9, 9)
    judged = loaded(made / "card", made / "cache", "judgements")
    assert {(row["image_id"], row["caption_id"]): row["grade"] for row in judged} == {
        ("ant", "ant#0"): 1, ("ant", "ant#1"): 1, ("ant", "bee#0"): 1, ("bee", "bee#0"): 1, ("cow", "bee#0"): 0,
        ("cow", "cow#0"): 1,
    }  # fmt: skip
    again, before = load_folder(made / "card"), load_folder(made / "merged")
    assert again.collection.captions == before.collection.captions
    assert again.collection.links.tolist() == before.collection.links.tolist()
    assert again.judgements["merged"].count == before.judgements["merged"].count == 5
    assert card(made / "merged", made / "card", WORDS, earlier=[made / "export", made / "pool"]) == told


def test_a_card_that_was_killed_leaves_nothing_unfinished_behind(made: Path, monkeypatch):
    def killed(*_: object) -> str:
        (made / "card" / "data" / ".images.parquet.x.part").write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("crossmatch.build.card.sheet", killed)
        with pytest.raises(KeyboardInterrupt):
            card(made / "merged", made / "card", WORDS)
    card(made / "merged", made / "card", WORDS)
    assert not list((made / "card").rglob("*.part"))


def test_croissant_is_valid_and_its_records_are_those_of_the_files(made: Path):
    card(made / "merged", made / "card", WORDS)
    records = croissant_records(made / "card")
    assert [one["collection/image_id"] for one in records["collection"]] == [b"ant", b"bee", b"cow"]
    assert [text.decode() for text in records["collection"][0]["collection/captions"]] == ["An ant.", 'Ein Tier, "klein"; 蚂蚁']
    assert records["collection"][1]["collection/image"].size == (6, 4)
    assert sorted(one["judgements/grade"] for one in records["judgements"]) == [0, 1, 1, 1, 1, 1]
    assert records["judgements"][2]["judgements/said_by_pets"] == b"0.5"
    told = json.loads((made / "card" / "croissant.json").read_text())
    files = {one["contentUrl"]: one["sha256"] for one in told["distribution"]}
    assert files == {name: sha256_of(made / "card" / name) for name in files}


def test_the_sheet_says_what_is_known(made: Path):
    card(made / "merged", made / "card", WORDS, earlier=[made / "export", made / "pool"])
    text = (made / "card" / "README.md").read_text()
    of_pool, of_merge = (manifest(made / name)["sha256"][:16] for name in ("pool", "merged"))
    assert text.startswith('---\npretty_name: "Small pets"\nlicense: cc-by-4.0\n')
    for line in (
        f"| merge | `{of_merge}` |",
        f"items rows.jsonl `{of_pool}` (pool)",
        "(study pets)",
        "| i2t positives merged | 5 |",
        "- pets (eccv-hit): 6 answers of 2 people to 3 items.",
        str(people_of(link_of(made / "export")).alpha),
        "- 6 of 12 pairs (50 %) are judged; all others are unjudged, not wrong.",
        "- Only pairs that one of 2 models retrieved were judged: `random:1`, `random:2`.",
        "- 4 answers to HITs of pets were still to come.",
        "- The pictures: their licences were not stated.",
    ):
        assert line in text
    assert "artificial" not in text  # who answered gold alone does not count


def test_what_nobody_said_is_said_to_be_unknown(made: Path):
    (made / "bare" / "images").mkdir(parents=True)
    picture("x").save(made / "bare" / "images" / "x.png")
    (made / "bare" / "captions.csv").write_text("image,caption\nx.png,A cat.\nx.png,A pet.\n")
    (made / "bare" / "judgements_t2t.csv").write_text("caption_id,other_caption_id,grade\nx.png#0,x.png#1,2.5\n")
    card(made / "bare", made / "card", Wording("bare"))
    text = (made / "card" / "README.md").read_text()
    assert "license" not in text.partition("# bare")[0]
    for line in ("no licence was stated", "Nobody has said yet", "No manifest was at hand", "Nothing is known about who made"):
        assert line in text
    assert loaded(made / "card", made / "cache").num_rows == 1
    assert loaded(made / "card", made / "cache", "judgements_t2t")[0]["grade"] == 2.5


def test_artificial_annotators_are_called_so(made: Path):
    path = made / "export" / "answers.csv"
    path.write_text(path.read_text().replace("tom", "artificial-0007"))
    card(made / "merged", made / "card", WORDS, earlier=[made / "export"])
    assert "**1 of these 2 people were artificial annotators" in (made / "card" / "README.md").read_text()


def test_licences_of_images(made: Path):
    (made / "licences.csv").write_text("image_id,license\nant,CC BY 2.0\nbee,CC BY 2.0\ncow,CC BY-SA 2.0\n")
    card(made / "merged", made / "card", Wording("pets", licence="our own"), licences=made / "licences.csv")
    text = (made / "card" / "README.md").read_text()
    assert "- 2 pictures: CC BY 2.0\n- 1 picture: CC BY-SA 2.0" in text
    assert 'license: other\nlicense_name: "our own"' in text
    assert loaded(made / "card", made / "cache")[2]["licence"] == "CC BY-SA 2.0"
    (made / "licences.csv").write_text("image_id,license\nant,CC BY 2.0\n")
    with pytest.raises(CrossmatchError, match="1 of 3 images have a licence"):
        card(made / "merged", made / "other", Wording("pets"), licences=made / "licences.csv")


def test_trials_go_there_too(made: Path):
    folder = made / "trials"
    (folder / "images").mkdir(parents=True)
    for name in ("x.png", "y.png"):
        picture(name).save(folder / "images" / name)
    rows = [{"id": "1", "images": ["x.png", "y.png"], "captions": ["A cat.", "A dog."], "category": "swap"},
            {"id": "2", "images": ["y.png", "x.png"], "captions": ["A dog.", "A cow."], "category": "replace"}]  # fmt: skip
    (folder / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = card(folder, made / "card", WORDS)
    assert told["counts"] == {"trials": 2, "images": 2, "captions": 3, "categories": 2}
    found = loaded(made / "card", made / "cache")
    assert found[1]["caption_1"] == "A cow."
    assert found[1]["image_0"].convert("RGB").getpixel((0, 0)) == (ord("y"), 9, 9)
    (records,) = croissant_records(made / "card").values()
    assert [(one["trials/id"], one["trials/category"]) for one in records] == [(b"1", b"swap"), (b"2", b"replace")]
    assert records[0]["trials/image_1"].size == (6, 4)
    assert "collection:FOLDER" not in (made / "card" / "README.md").read_text()
    (folder / "trials.jsonl").write_text(json.dumps(rows[0]) + "\n" + json.dumps(rows[1] | {"captions": ["A dog."]}) + "\n")
    with pytest.raises(CrossmatchError, match="of 2 shapes"):
        card(folder, made / "other", WORDS)


def test_a_step_that_changed_nothing_stands_in_the_chain_beside_what_it_read(tmp_path: Path):
    def step(name: str, **inputs: str) -> Path:
        written(tmp_path / name, Asked(name, inputs), lambda made: [{"id": "x"}])
        return tmp_path / name

    negatives = step("negatives")
    formatted = step("format", negatives=hash_of(negatives))
    refined = step("refine", negatives=hash_of(formatted))
    for earlier in ([formatted, negatives], [negatives, formatted]):
        assert {one.name for one in chain_of(refined, earlier).links} == {"refine", "format", "negatives"}
    assert how(link_of(negatives)).startswith("seed 0, 1 rows")  # where there are no options, none are told
    with pytest.raises(CrossmatchError, match="name the step between"):
        chain_of(step("other", refined="f" * 16), [refined])


def test_a_chain_that_does_not_hold_is_refused(made: Path):
    pool(pets(), ["random:3"], made / "another", how=Pooling(top=2, certain=0, gold=0))
    with pytest.raises(CrossmatchError, match=r"nothing in .*merged was made from .*another \(pool\)"):
        chain_of(made / "merged", [made / "another"])
    with pytest.raises(WrongWords, match="it is no step and no export"):
        chain_of(made / "merged", [made])
    rows = made / "pool" / "rows.jsonl"
    rows.write_text(rows.read_text().replace("ant", "gnu"))
    with pytest.raises(CrossmatchError, match="was changed after it was made"):
        chain_of(made / "merged", [made / "export", made / "pool"])


def test_judgements_that_were_changed_are_refused(made: Path):
    path = made / "merged" / "judgements.csv"
    path.write_text(path.read_text().replace("cow,bee#0,0", "cow,bee#0,1"))
    with pytest.raises(CrossmatchError, match="was changed after it was merged, at cow and bee#0"):
        card(made / "merged", made / "card", WORDS)


def test_words_that_are_wrong(made: Path):
    with pytest.raises(WrongWords, match="the name is"):
        Wording("a/b")
    with pytest.raises(WrongWords, match="year-month-day"):
        Wording("a", released="yesterday")
    with pytest.raises(WrongWords, match="is the result itself"):
        card(made / "merged", made / "merged", WORDS)
    (made / "export" / "provenance.json").write_text("[]")
    with pytest.raises(CrossmatchError, match="is not that of an export"):
        link_of(made / "export")


@pytest.mark.parametrize(("within", "told"), [([], "2 models)"), ([1.0, 4.5], "2 models, 95 % interval 1.0 to 4.5)")])
def test_what_is_said_of_models_outside_of_a_pool_is_what_was_measured(tmp_path: Path, within, told):
    rows = [
        {"id": f"t2i/hit@1/{n} models", "direction": "t2i", "metric": "hit@1", "models": n, "non_self": [9.0 / n, *within]}
        for n in (1, 2)
    ]
    written(tmp_path / "bias", Asked("bias", {}), lambda made: rows)
    (line,) = _bias(link_of(tmp_path / "bias"))
    assert "its hit@1 in t2i would be off by 4.5 points" in line
    assert told in line
    assert "as much, or more" in line
