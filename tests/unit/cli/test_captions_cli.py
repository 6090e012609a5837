"""`crossmatch captions`: tables, JSON, csv, pages, and one line for what is wrong."""

import csv
import json
from functools import partial

import pytest

from crossmatch.captions.frequencies import Frequencies

REFERENCES = {
    "391895": ["A man with a red helmet on a small moped on a dirt road.", "Man riding a motor bike on a dirt road."],
    "60623": ["A young girl inhales with the intent of blowing out a candle.", "A young girl is preparing to blow out her candle."],
    "483108": [
        "A man on a bicycle riding next to a train.",
        "A person is riding a bicycle but there is a train in the background.",
    ],
}
GOOD = {
    "391895": "a man riding a motor bike on a dirt road",
    "60623": "a young girl blowing out a candle",
    "483108": "a man next to a train",
}
POOR = {"391895": "a cat", "60623": "", "483108": "a man riding a train"}


@pytest.fixture
def crossmatch(crossmatch, tmp_path):
    for name, held in (("refs", REFERENCES), ("good", GOOD), ("poor", POOR)):
        (tmp_path / f"{name}.json").write_text(json.dumps(held))
    return partial(crossmatch, "captions")


SCORE = ("score", "--candidates", "good.json", "--references", "refs.json", "--samples", 50)


def test_a_table(crossmatch):
    code, out, _ = crossmatch(*SCORE, "--metrics", "bleu-4,cider-d")
    assert code == 0
    assert out.startswith("3 captions, 2 references each")
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["bleu-4", "cider-d"]


def test_json_has_value_interval_and_signature(crossmatch):
    code, out, _ = crossmatch(*SCORE, "--metrics", "bleu,rouge-l", "--json")
    found = json.loads(out)["good"]
    assert code == 0
    assert list(found) == ["bleu-1", "bleu-2", "bleu-3", "bleu-4", "rouge-l"]
    assert found["rouge-l"].keys() == {"value", "low", "high", "signature"}
    assert found["bleu-1"]["signature"].startswith("bleu-1|tok:ptb-3.4.1|refs:2|")


def test_several_candidates_are_compared(crossmatch):
    code, out, _ = crossmatch(*SCORE, "--candidates", "poor.json", "--metrics", "rouge-l")
    assert code == 0
    assert out.splitlines()[1].split()[0] == "good"
    assert "paired bootstrap" in out


def test_values_of_every_caption(crossmatch, tmp_path):
    code, _, err = crossmatch(*SCORE, "--metrics", "rouge-l", "--per-caption", "values.csv")
    assert code == 0
    assert "values.csv" in err
    rows = list(csv.DictReader((tmp_path / "values.csv").read_text().splitlines()))
    assert [row["image_id"] for row in rows] == list(REFERENCES)
    assert rows[1]["caption"] == GOOD["60623"]
    whole = json.loads(crossmatch(*SCORE, "--metrics", "rouge-l", "--json")[1])["good"]["rouge-l"]["value"]
    assert sum(float(row["rouge-l"]) for row in rows) / 3 == pytest.approx(whole, abs=1e-6)


def test_the_order_of_a_file_is_of_no_account(crossmatch, tmp_path):
    (tmp_path / "turned.json").write_text(json.dumps(dict(reversed(list(REFERENCES.items())))))
    words = ("score", "--candidates", "good.json", "--metrics", "bleu,rouge-l,cider-d", "--json", "--references")
    assert crossmatch(*words, "refs.json")[1] == crossmatch(*words, "turned.json")[1]


def test_the_same_file_twice_is_level_with_itself(crossmatch):
    code, out, _ = crossmatch(*SCORE, "--candidates", "good.json", "--metrics", "rouge-l", "--json")
    found = json.loads(out)
    assert code == 0
    assert list(found) == ["good.json", "good.json (2)", "differences"]
    assert found["differences"][0]["value"] == 0
    assert found["differences"][0]["p"] == 1


def test_nothing_that_is_read_is_overwritten(crossmatch, tmp_path):
    (tmp_path / "good.csv").write_text("image_id,caption\n" + "".join(f"{i},{text}\n" for i, text in GOOD.items()))
    words = ("score", "--candidates", "good.csv", "--references", "refs.json", "--per-caption", "good.csv")
    code, _, err = crossmatch(*words)
    assert code == 2
    assert "good.csv is read, and would be overwritten" in err


def test_frequencies_are_kept_and_used(crossmatch, tmp_path):
    code, out, _ = crossmatch("frequencies", "refs.json", "-o", "df.npz")
    assert code == 0
    assert "of 3 images" in out
    assert Frequencies.load(tmp_path / "df.npz").counts["on a dirt road"] == 1
    alone = json.loads(crossmatch(*SCORE, "--metrics", "cider-d", "--json")[1])["good"]["cider-d"]
    kept = json.loads(crossmatch(*SCORE, "--metrics", "cider-d", "--json", "--frequencies", "df.npz")[1])["good"]["cider-d"]
    assert kept["value"] == alone["value"]
    assert "df:references/3" in alone["signature"]
    assert "df:references/3" not in kept["signature"]


def test_partial_and_leave_one_out(crossmatch, tmp_path):
    (tmp_path / "one.json").write_text(json.dumps({"60623": "A young girl is preparing to blow out her candle"}))
    words = ("score", "--candidates", "one.json", "--references", "refs.json", "--metrics", "rouge-l", "--json")
    code, _, err = crossmatch(*words)
    assert code == 1
    assert "image '391895' has references but no candidate" in err
    code, out, _ = crossmatch(*words, "--partial")
    assert code == 0
    assert json.loads(out)["one"]["rouge-l"]["value"] == 1
    code, out, _ = crossmatch(*words, "--partial", "--leave-one-out")
    found = json.loads(out)["one"]["rouge-l"]
    assert code == 0
    assert found["value"] < 0.5
    assert "|refs:1|own:left-out|" in found["signature"]


def test_references_of_a_task(crossmatch, tmp_path):
    from crossmatch.benchmarks import load_data

    images = load_data("diorama/retrieval", size="tiny").collection.image_ids.tolist()
    (tmp_path / "scenes.json").write_text(json.dumps(dict.fromkeys(images, "a red circle")))
    code, out, _ = crossmatch("score", "--candidates", "scenes.json", "--references", "diorama/retrieval+size=tiny", "--json")
    assert code == 0
    assert "|refs:5|" in json.loads(out)["scenes"]["bleu-1"]["signature"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--metrics", "blue"), 2, "there is no caption metric 'blue'"),
        (("--metrics", ","), 2, "no caption metric was named"),
        (("-o", "page.pdf"), 2, "page.pdf should end in .html"),
        (("--references", "nothing.json"), 1, "nothing.json is not there"),
        (("--references", "nothing"), 2, "nothing"),
        (("--references", "diorama/bison"), 2, "has no images with captions of their own"),
        (("--by", "tiger"), 2, "cannot be sorted by 'tiger'"),
        (("--frequencies", "df.npz"), 1, "df.npz is not there"),
        (("--candidates", "absent.json"), 1, "absent.json"),
        (("--metrics", "cider-d+sigma=0"), 2, "sigma is 0.0; a positive number was expected"),
        (("--metrics", "cider-d+sigma=nan"), 2, "sigma is nan"),
        (("--metrics", "cider-d+sigma=4+sigma=5"), 2, "was given sigma twice"),
        (("--metrics", "bleu", "--frequencies", "df.npz"), 2, "--frequencies are for cider"),
        (("--per-caption", "good.json"), 2, "good.json should end in .csv"),
        (("--references", ""), 2, "no references were named"),
    ],
)
def test_what_is_wrong_is_one_line(crossmatch, words, code, message):
    found, _, err = crossmatch(*SCORE, *words)
    assert found == code
    assert message in err
    assert err.count("\n") == 1


def test_the_metrics_are_listed(crossmatch):
    code, out, _ = crossmatch("metrics")
    assert code == 0
    assert "vedantam2015cider" in out


def test_a_page_with_the_worst_and_the_best(crossmatch, tmp_path):
    code, _, err = crossmatch(*SCORE, "--candidates", "poor.json", "--metrics", "rouge-l,bleu-1", "-o", "out/page.html")
    assert code == 0
    assert "saved out/page.html" in err.replace("\\", "/")
    page = (tmp_path / "out" / "page.html").read_text()
    for text in ("Worst by bleu-1 · good", "Best by bleu-1 · poor", GOOD["391895"], "(no words)", "a red helmet", "Signatures"):
        assert text in page


RATED = """image_id,caption,rating
391895,a man on a moped,5
391895,a man on a moped,4
60623,a cat,1
60623,a girl and a candle,4
483108,a train,2
"""


def test_agreement_with_ratings_of_ones_own(crossmatch, tmp_path):
    (tmp_path / "mine.csv").write_text(RATED)
    words = ("agree", "--judgements", "mine.csv", "--references", "refs.json", "--metrics", "rouge-l,bleu-1", "--groups", 50)
    code, out, _ = crossmatch(*words, "--scale", "-o", "agree.html")
    assert code == 0
    assert out.startswith("mine: 4 captions of 3 images, 5 ratings")
    assert "metrics on people's scale" in out
    assert "which metric agrees with people?" in (tmp_path / "agree.html").read_text()
    code, out, _ = crossmatch(*words, "--ratings", "mean", "--curve", "--draws", 2, "--json")
    found = json.loads(out)["mine"]
    assert code == 0
    assert found["metrics"]["rouge-l"]["tau-b"].keys() == {"value", "low", "high"}
    assert found["differences"][0]["williams"]["freedom"] == 1
    assert {point["references"] for point in found["curve"]["points"]} == {1, 2}
    assert "ratings:mean" in found["signature"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--judgements", "mine.csv"), 2, "say what they are compared with: --references FILE"),
        (("--judgements", "mine.csv", "--references", "refs.json", "-o", "a.png"), 2, "a.png should end in .html"),
        (("--judgements", "absent.csv", "--references", "refs.json"), 1, "absent.csv: No such file"),
        (("--judgements", "flickr9k"), 2, "there is no study 'flickr9k'; there are flickr8k-expert, composite, pascal-50s"),
        (("--judgements", ","), 2, "no study was named"),
        (("--judgements", "mine.csv", "--references", "refs.json", "--metrics", "tau"), 2, "there is no caption metric 'tau'"),
        (("--judgements", "mine.csv", "--references", "refs.json", "--metrics", "clip-score"), 2, "a model that embeds"),
    ],
)
def test_what_is_wrong_with_a_study_is_one_line(crossmatch, tmp_path, words, code, message):
    (tmp_path / "mine.csv").write_text(RATED)
    found, _, err = crossmatch("agree", *words)
    assert found == code
    assert message in err
    assert err.count("\n") == 1


def test_the_studies_of_the_papers(crossmatch, real_data):
    code, out, _ = crossmatch("agree", "--judgements", "flickr8k-expert,pascal-50s", "--metrics", "bleu-1", "--groups", 20)
    assert code == 0
    assert "5,664 captions of 1,000 images, 16,992 ratings" in out
    assert "(0.323)" in out
    assert "(74.08)" in out


@pytest.fixture(scope="module")
def grounder(tmp_path_factory):
    from crossmatch.train.grounded import train_grounded

    folder = tmp_path_factory.mktemp("grounded")
    train_grounded(folder, images=20, epochs=1, size="tiny", pixels=16)
    return folder


def test_tiger_and_its_page_with_regions(crossmatch, tmp_path, grounder):
    from crossmatch.benchmarks import load_data

    held = load_data("diorama/retrieval", size="tiny").collection
    (tmp_path / "scenes.json").write_text(json.dumps(dict.fromkeys(held.image_ids.tolist(), "A red dog.")))
    words = ("score", "--candidates", "scenes.json", "--references", "diorama/retrieval+size=tiny", "--samples", 20, "--json")
    metrics = ("--metrics", "tiger+tau=0.5,tiger", "--grounder", grounder)
    code, out, _ = crossmatch(*words, *metrics, "-o", "page.html")
    assert code == 0
    found = json.loads(out)["scenes"]
    assert list(found) == ["tiger+tau=0.5", "rrs+tau=0.5", "wds+tau=0.5", "tiger", "rrs", "wds"]
    assert found["rrs"]["value"] == found["rrs+tau=0.5"]["value"]
    assert found["wds"]["value"] != found["wds+tau=0.5"]["value"]
    assert "grounder:grounded" in found["tiger"]["signature"]
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == 1 + 2 * 3  # the histograms, and three cards on either end
    assert page.count('<img src="data:image/jpeg') == 24


def test_clip_score(crossmatch, tmp_path, monkeypatch):
    import numpy as np

    class Constant:
        def embed_images(self, images):
            return np.ones((len(images), 2))

        def embed_texts(self, texts):
            return np.ones((len(texts), 2))

    monkeypatch.setattr("crossmatch.models.make_model", lambda name: Constant())
    images = tmp_path / "pictures"
    images.mkdir()
    from PIL import Image

    for name in GOOD:
        Image.new("RGB", (4, 4)).save(images / f"{name}.png")
    code, out, _ = crossmatch(*SCORE, "--metrics", "clip-score,ref-clip-score+prefix=", "--images", images, "-m", "mine", "--json")
    found = json.loads(out)["good"]
    assert code == 0
    assert found["clip-score"]["value"] == pytest.approx(2.5)
    assert "|prefix:A photo depicts|" in found["clip-score"]["signature"]
    assert found["ref-clip-score+prefix="]["value"] == pytest.approx(2 * 2.5 / 3.5)


def test_a_caption_is_explained(crossmatch, tmp_path, grounder):
    from crossmatch.benchmarks import load_data

    held = load_data("diorama/retrieval", size="tiny").collection
    image = str(held.image_ids[0])
    words = ("explain", "--grounder", grounder, "--caption", "A red dog.", "-o", "dog.png")
    known = ("--references", "diorama/retrieval+size=tiny", "--id", image)
    code, out, err = crossmatch(*words, *known, "--json")
    assert code == 0
    assert "saved dog.png" in err
    assert (tmp_path / "dog.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(out)
    assert len(found["caption"]) == len(found["references"]) == len(found["boxes"])
    assert found["TIGEr"] == pytest.approx((found["RRS"] + found["WDS"]) / 2)
    assert found["tau"] == 1.5
    held.open_image(image).save(tmp_path / "scene.png")
    code, out, _ = crossmatch(*words, "--image", "scene.png", "--json")
    assert code == 0
    assert len(json.loads(out)["boxes"]) == 14  # a picture without boxes has a grid of them
    for wrong, message in (
        ((), "one image was expected"),
        (("--id", image), "say of which references"),
        ((*known[:2], "--id", "nobody"), "image 'nobody' is not in diorama/retrieval+size=tiny"),
        ((*known, "--metric", "bleu-1"), "bleu-1 looks at no regions"),
        ((*known, "-o", "dog.txt"), "dog.txt should end in .png, .svg, .pdf"),
        ((*known, "--grounder", "random"), "random does not ground texts in regions"),
    ):
        code, _, err = crossmatch(*words, *wrong)
        assert code in (1, 2)
        assert message in err
        assert err.count("\n") == 1
