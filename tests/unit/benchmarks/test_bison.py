"""BISON from small files in the official layout: ids, order, images, references, other captions, errors."""

import json

import pytest

from crossmatch.benchmarks import bison, coco
from crossmatch.benchmarks.bison import load, load_references
from crossmatch.data.errors import CrossmatchError, UsageError

CAPTIONS = {5: ["A cat.", "One small grey cat.", "Cat."], 6: ["A dog.", "A dog runs."], 7: ["Tea."]}


def trial(number, caption, true, *images):
    candidates = [{"image_id": i, "image_filename": f"COCO_val2014_{i:012d}.jpg"} for i in images]
    return {"bison_id": number, "caption": caption, "true_image_id": true, "image_candidates": candidates}


TRIALS = (trial(3, "A cat. ", 5, 5, 6), trial(1, "A dog runs.", 6, 5, 6), trial(2, "Tea.", 7, 7, 5))


def annotations(images, first=100):
    rows = [(image, text) for image in images for text in CAPTIONS[image]]
    return {"images": [], "annotations": [{"id": first + n, "image_id": i, "caption": f"{t} "} for n, (i, t) in enumerate(rows)]}


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))

    def write(*trials, captions=None, name="captions_val2014.json"):
        (tmp_path / "bison").mkdir(exist_ok=True)
        (tmp_path / "coco").mkdir(exist_ok=True)
        content = {"info": {"source": "COCO", "split": "val2014"}, "data": list(trials)}
        (tmp_path / "bison/bison_annotations.cocoval2014.json").write_text(json.dumps(content))
        if captions is not None:
            (tmp_path / "coco" / name).write_text(json.dumps(annotations(captions)))
        return tmp_path

    return write


def test_positive_image_comes_first(data):
    data(*TRIALS)
    trials = load("chosen")
    assert trials.ids.tolist() == ["3", "1", "2"]
    assert trials.images.tolist() == [["5", "6"], ["6", "5"], ["7", "5"]]
    assert trials.captions.tolist() == [["A cat."], ["A dog runs."], ["Tea."]]
    assert set(trials.categories) == {""}
    assert trials.references is None


def test_images_are_those_of_coco(data):
    image = pytest.importorskip("PIL.Image")
    root = data(*TRIALS)
    with pytest.raises(CrossmatchError, match=r"image '5' cannot be opened.*val2014\.zip.*precomputed"):
        load("chosen").open_image("5")
    (root / "coco/images/val2014").mkdir(parents=True)
    image.new("RGB", (2, 2), (9, 0, 0)).save(root / "coco/images/val2014/COCO_val2014_000000000005.jpg")
    opened = load("chosen").open_image
    assert opened("5").size == (2, 2)
    with pytest.raises(CrossmatchError, match=r"COCO_val2014_000000000006\.jpg cannot be read"):
        opened("6")


def test_references_are_all_captions_in_the_order_of_their_ids(data):
    data(*TRIALS, captions=(7, 6, 5))
    assert load("chosen").references == {str(image): tuple(texts) for image, texts in CAPTIONS.items()}
    assert load_references(["6", "99"]) == {"6": ("A dog.", "A dog runs.")}


def test_partial_caption_files_are_used(data, monkeypatch):
    """Without COCO's complete file, captions come from the test split and from val2017, each once."""
    root = data(*TRIALS, captions=(5,), name="captions_val2017.json")
    table = ["caption_id\timage_id\tcaption", "100\t5\tA cat.", "9\t6\tA dog runs.", "8\t6\tA dog."]
    (root / "coco/karpathy_test_captions.tsv").write_text("\n".join(table) + "\n")
    monkeypatch.setattr(bison, "find_data_file", lambda path: place if (place := root / path).is_file() else None)  # of any size
    monkeypatch.setattr(coco, "require_data_file", lambda path: root / path)
    assert load("chosen").references == {"5": tuple(CAPTIONS[5]), "6": ("A dog.", "A dog runs.")}
    assert load("longest").ids.tolist() == ["3", "1"]


def test_random_and_longest_captions(data):
    data(*TRIALS, captions=(5, 6, 7))
    assert load("longest").captions.tolist() == [["One small grey cat."], ["A dog runs."], ["Tea."]]
    trials = load("random")
    assert trials.captions.tolist() == load("random").captions.tolist()
    assert all(text in trials.references[image] for [text], [image, _] in zip(trials.captions, trials.images, strict=True))
    many = [trial(n, "A cat.", 5, 5, 6) for n in range(300)]
    data(*many, captions=(5, 6, 7))
    counts = [load("random").captions.ravel().tolist().count(text) for text in CAPTIONS[5]]
    assert min(counts) > 70  # 100 are expected of each of three; below 70 has a chance of 1 in 10,000, and the draw is fixed


def test_trials_without_captions_are_left_out_only_if_captions_are_needed(data):
    data(*TRIALS, captions=(5, 6))
    assert load("longest").ids.tolist() == ["3", "1"]
    assert load("longest").notes == ("partial: COCO captions are available for 2 of 3 trials; compare models on these only",)
    assert len(load("chosen").ids) == 3
    assert load("chosen").notes == ()
    data(*TRIALS, captions=(5, 6, 7))
    caption_by_id = dict(zip(load("random").ids, load("random").captions.ravel(), strict=True))
    data(*TRIALS, captions=(5, 6))
    assert all(caption_by_id[name] == text for name, text in zip(load("random").ids, load("random").captions.ravel(), strict=True))


def test_random_and_longest_need_coco_captions(data):
    data(*TRIALS)
    with pytest.raises(CrossmatchError, match=r"bison\+caption=longest.*crossmatch data get coco --optional"):
        load("longest")
    with pytest.raises(UsageError, match="chosen, random, longest \\(got 'shortest'\\)"):
        load("shortest")


@pytest.mark.parametrize(
    ("bad_trial", "message"),
    [
        (trial(9, "A cat.", 5, 5), "trial '9' must have two .*\\(got 5\\)"),
        (trial(9, "A cat.", 5, 5, 6, 7), "trial '9' must have two .*\\(got 5, 6, 7\\)"),
        (trial(9, "A cat.", 5, 6, 7), "trial '9'.*its true image 5 \\(got 6, 7\\)"),
        (trial(9, "A cat.", 5, 5, 5), "trial '9' must have two different .*\\(got 5, 5\\)"),
        (trial(9, " ", 5, 5, 6), "trial '9' has an empty caption_0"),
        (trial(9, None, 5, 5, 6), r"data\[3\] is not a BISON trial \(the trial has None as caption, expected str\)"),
        (trial(3, "A cat.", 5, 5, 6), r"trial '3' has the same id as the trial in .*data\[0\]"),
        ({"bison_id": 9}, r"data\[3\] is not a BISON trial.*data get bison"),
        (7, r"data\[3\] is not a BISON trial"),
    ],
)
def test_invalid_trial_is_an_error(data, bad_trial, message):
    data(*TRIALS, bad_trial)
    with pytest.raises(CrossmatchError, match=message):
        load("chosen")


def test_invalid_files_are_an_error(data):
    path = data(*TRIALS) / "bison/bison_annotations.cocoval2014.json"
    for text, message in (
        ("[]", "no list of trials"),
        ('{"data": []}', "no list of trials"),
        ("{", "not a JSON file"),
        ("", "0 bytes"),
    ):
        path.write_text(text)
        with pytest.raises(CrossmatchError, match=message):
            load("chosen")
    path.unlink()
    with pytest.raises(CrossmatchError, match="crossmatch data get bison"):
        load("chosen")
    data(*TRIALS, captions=())
    (path.parents[1] / "coco/captions_val2014.json").write_text('{"annotations": [{"id": 3}]}')
    with pytest.raises(CrossmatchError, match=r"captions_val2014\.json is not COCO's caption file.*data get coco"):
        load("chosen")
