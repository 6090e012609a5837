"""BISON from made-up files in the official layout: ids, order, pictures, references, other captions, mistakes."""

import json

import pytest

from crossmatch.benchmarks import bison, coco
from crossmatch.benchmarks.bison import load, references
from crossmatch.core.errors import CrossmatchError, WrongWords

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
        held = {"info": {"source": "COCO", "split": "val2014"}, "data": list(trials)}
        (tmp_path / "bison/bison_annotations.cocoval2014.json").write_text(json.dumps(held))
        if captions is not None:
            (tmp_path / "coco" / name).write_text(json.dumps(annotations(captions)))
        return tmp_path

    return write


def test_the_positive_image_comes_first_and_ids_are_those_of_predictions(data):
    data(*TRIALS)
    trials = load("chosen")
    assert trials.ids.tolist() == ["3", "1", "2"]
    assert trials.images.tolist() == [["5", "6"], ["6", "5"], ["7", "5"]]
    assert trials.captions.tolist() == [["A cat."], ["A dog runs."], ["Tea."]]
    assert set(trials.categories) == {""}
    assert trials.references is None


def test_pictures_are_those_of_coco(data):
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
    assert references(["6", "99"]) == {"6": ("A dog.", "A dog runs.")}


def test_a_part_of_the_captions_serves_for_a_part_of_the_images(data, monkeypatch):
    """Without COCO's whole file: its tables of the test split and of val2017, each caption once."""
    root = data(*TRIALS, captions=(5,), name="captions_val2017.json")
    table = ["caption_id\timage_id\tcaption", "100\t5\tA cat.", "9\t6\tA dog runs.", "8\t6\tA dog."]
    (root / "coco/karpathy_test_captions.tsv").write_text("\n".join(table) + "\n")
    monkeypatch.setattr(bison, "have", lambda path: place if (place := root / path).is_file() else None)  # of any size
    monkeypatch.setattr(coco, "need", lambda path: root / path)
    assert load("chosen").references == {"5": tuple(CAPTIONS[5]), "6": ("A dog.", "A dog runs.")}
    assert load("longest").ids.tolist() == ["3", "1"]


def test_random_and_longest_captions(data):
    data(*TRIALS, captions=(5, 6, 7))
    assert load("longest").captions.tolist() == [["One small grey cat."], ["A dog runs."], ["Tea."]]
    drawn = load("random")
    assert drawn.captions.tolist() == load("random").captions.tolist()
    assert all(text in drawn.references[image] for [text], [image, _] in zip(drawn.captions, drawn.images, strict=True))
    many = [trial(n, "A cat.", 5, 5, 6) for n in range(300)]
    data(*many, captions=(5, 6, 7))
    counts = [load("random").captions.ravel().tolist().count(text) for text in CAPTIONS[5]]
    assert min(counts) > 70  # 100 are expected of each of three; below 70 has a chance of 1 in 10,000, and the draw is fixed


def test_trials_without_captions_are_left_out_of_random_and_longest_alone(data):
    data(*TRIALS, captions=(5, 6))
    assert load("longest").ids.tolist() == ["3", "1"]
    assert load("longest").notes == ("partial: COCO's captions are known here for 2 of 3 trials; compare on these alone",)
    assert len(load("chosen").ids) == 3
    assert load("chosen").notes == ()
    data(*TRIALS, captions=(5, 6, 7))
    whole = dict(zip(load("random").ids, load("random").captions.ravel(), strict=True))
    data(*TRIALS, captions=(5, 6))
    assert all(whole[name] == text for name, text in zip(load("random").ids, load("random").captions.ravel(), strict=True))


def test_other_captions_need_captions(data):
    data(*TRIALS)
    with pytest.raises(CrossmatchError, match=r"bison\+caption=longest.*crossmatch data get coco --optional"):
        load("longest")
    with pytest.raises(WrongWords, match="'shortest'; chosen, random, longest"):
        load("shortest")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (trial(9, "A cat.", 5, 5), "trial '9' offers the images 5; two"),
        (trial(9, "A cat.", 5, 5, 6, 7), "trial '9' offers the images 5, 6, 7; two"),
        (trial(9, "A cat.", 5, 6, 7), "trial '9'.*its true image 5 among them"),
        (trial(9, "A cat.", 5, 5, 5), "trial '9' offers the images 5, 5; two"),
        (trial(9, " ", 5, 5, 6), "trial '9' has an empty caption_0"),
        (trial(9, None, 5, 5, 6), "trial '9' has the caption None"),
        (trial(3, "A cat.", 5, 5, 6), r"trial '3' was in .*data\[0\] already"),
        ({"bison_id": 9}, r"data\[3\] is not a trial of BISON.*data get bison"),
        (7, r"data\[3\] is not a trial of BISON"),
    ],
)
def test_what_is_wrong_with_a_trial(data, wrong, said):
    data(*TRIALS, wrong)
    with pytest.raises(CrossmatchError, match=said):
        load("chosen")


def test_files_of_another_kind(data):
    path = data(*TRIALS) / "bison/bison_annotations.cocoval2014.json"
    for text, said in (
        ("[]", "no list of trials"),
        ('{"data": []}', "no list of trials"),
        ("{", "not a json file"),
        ("", "0 bytes"),
    ):
        path.write_text(text)
        with pytest.raises(CrossmatchError, match=said):
            load("chosen")
    path.unlink()
    with pytest.raises(CrossmatchError, match="crossmatch data get bison"):
        load("chosen")
    data(*TRIALS, captions=())
    (path.parents[1] / "coco/captions_val2014.json").write_text('{"annotations": [{"id": 3}]}')
    with pytest.raises(CrossmatchError, match=r"captions_val2014\.json is not COCO's file of captions.*data get coco"):
        load("chosen")
