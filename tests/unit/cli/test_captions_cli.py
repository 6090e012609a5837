"""`crossmatch captions`: tables, JSON, csv, pages, and one line for what is wrong."""

import csv
import json

import pytest

from crossmatch.captions.document_frequencies import DocumentFrequencies

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
    for name, file in (("refs", REFERENCES), ("good", GOOD), ("poor", POOR)):
        (tmp_path / f"{name}.json").write_text(json.dumps(file))
    return lambda *arguments: crossmatch(*(() if arguments[0] == "list" else ("captions",)), *arguments)


SCORE = ("score", "--candidates", "good.json", "--references", "refs.json", "--samples", 50)


def test_a_table(crossmatch):
    code, out, _ = crossmatch(*SCORE, "--metrics", "bleu-4,cider-d")
    assert code == 0
    assert out.startswith("3 captions, 2 references each")
    assert [line.split()[0] for line in out.splitlines()[2:4]] == ["bleu-4", "cider-d"]


def test_json_has_value_interval_and_signature(crossmatch):
    code, out, _ = crossmatch(*SCORE, "--metrics", "bleu,rouge-l", "--json")
    parsed = json.loads(out)["good"]
    assert code == 0
    assert list(parsed) == ["bleu-1", "bleu-2", "bleu-3", "bleu-4", "rouge-l"]
    assert parsed["rouge-l"].keys() == {"value", "low", "high", "signature"}
    assert parsed["bleu-1"]["signature"].startswith("bleu-1|tok:ptb-3.4.1|refs:2|")


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


def test_order_of_a_file_does_not_matter(crossmatch, tmp_path):
    (tmp_path / "turned.json").write_text(json.dumps(dict(reversed(list(REFERENCES.items())))))
    arguments = ("score", "--candidates", "good.json", "--metrics", "bleu,rouge-l,cider-d", "--json", "--references")
    assert crossmatch(*arguments, "refs.json")[1] == crossmatch(*arguments, "turned.json")[1]


def test_same_file_twice_has_difference_zero(crossmatch):
    code, out, _ = crossmatch(*SCORE, "--candidates", "good.json", "--metrics", "rouge-l", "--json")
    parsed = json.loads(out)
    assert code == 0
    assert list(parsed) == ["good.json", "good.json (2)", "differences"]
    assert parsed["differences"][0]["value"] == 0
    assert parsed["differences"][0]["p"] == 1


def test_input_files_are_never_overwritten(crossmatch, tmp_path):
    (tmp_path / "good.csv").write_text("image_id,caption\n" + "".join(f"{i},{text}\n" for i, text in GOOD.items()))
    arguments = ("score", "--candidates", "good.csv", "--references", "refs.json", "--per-caption", "good.csv")
    code, _, err = crossmatch(*arguments)
    assert code == 2
    assert "good.csv is an input file and would be overwritten" in err


def test_document_frequencies_are_saved_and_used(crossmatch, tmp_path):
    code, _, err = crossmatch(*SCORE, "--metrics", "cider-d", "--frequencies", "refs.json", "--save-frequencies", "df.npz")
    assert code == 0
    assert "saved df.npz" in err
    assert "of 3 images" in err
    assert DocumentFrequencies.load(tmp_path / "df.npz").counts["on a dirt road"] == 1
    alone = json.loads(crossmatch(*SCORE, "--metrics", "cider-d", "--json")[1])["good"]["cider-d"]
    saved = json.loads(crossmatch(*SCORE, "--metrics", "cider-d", "--json", "--frequencies", "df.npz")[1])["good"]["cider-d"]
    assert saved["value"] == alone["value"]
    assert "df:references/3" in alone["signature"]
    assert "df:references/3" not in saved["signature"]


def test_partial_and_leave_one_out(crossmatch, tmp_path):
    (tmp_path / "one.json").write_text(json.dumps({"60623": "A young girl is preparing to blow out her candle"}))
    arguments = ("score", "--candidates", "one.json", "--references", "refs.json", "--metrics", "rouge-l", "--json")
    code, _, err = crossmatch(*arguments)
    assert code == 1
    assert "Image '391895' has references but no candidate" in err
    code, out, _ = crossmatch(*arguments, "--partial")
    assert code == 0
    assert json.loads(out)["one"]["rouge-l"]["value"] == 1
    code, out, _ = crossmatch(*arguments, "--partial", "--leave-one-out")
    parsed = json.loads(out)["one"]["rouge-l"]
    assert code == 0
    assert parsed["value"] < 0.5
    assert "|refs:1|own:left-out|" in parsed["signature"]


def test_leave_one_out_scores_all_files_with_the_same_references(crossmatch, tmp_path):
    """One captioner copies a reference of an image: both lose it."""
    (tmp_path / "copy.json").write_text(json.dumps({**POOR, "60623": REFERENCES["60623"][0]}))
    arguments = (*SCORE, "--candidates", "copy.json", "--metrics", "rouge-l,bleu-1", "--leave-one-out", "--json")
    parsed = json.loads(crossmatch(*arguments)[1])
    for metric in ("rouge-l", "bleu-1"):
        assert "|refs:1-2|own:left-out|" in parsed["good"][metric]["signature"]
        assert parsed["good"][metric]["signature"] == parsed["copy"][metric]["signature"]
    (tmp_path / "rest.json").write_text(json.dumps({**REFERENCES, "60623": REFERENCES["60623"][1:]}))
    score = ("score", "--candidates", "good.json", "--references", "rest.json", "--metrics", "rouge-l", "--json")
    shortened = json.loads(crossmatch(*score)[1])
    assert parsed["good"]["rouge-l"]["value"] == shortened["good"]["rouge-l"]["value"]


def test_references_of_a_task(crossmatch, tmp_path):
    from crossmatch.benchmarks import load_benchmark_data

    images = load_benchmark_data("diorama/retrieval", size="tiny").collection.image_ids.tolist()
    (tmp_path / "scenes.json").write_text(json.dumps(dict.fromkeys(images, "a red circle")))
    code, out, _ = crossmatch("score", "--candidates", "scenes.json", "--references", "diorama/retrieval+size=tiny", "--json")
    assert code == 0
    assert "|refs:5|" in json.loads(out)["scenes"]["bleu-1"]["signature"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--metrics", "blue"), 2, "Unknown caption metric 'blue'"),
        (("--metrics", ","), 2, "No caption metric was named"),
        (("-o", "page.pdf"), 2, "page.pdf should end in .html"),
        (("--references", "nothing.json"), 1, "nothing.json does not exist"),
        (("--references", "nothing"), 2, "nothing"),
        (("--references", "diorama/bison"), 2, "has no images with captions"),
        (("--by", "tiger"), 2, "Cannot sort captions by 'tiger'"),
        (("--frequencies", "df.npz"), 1, "document frequencies at df.npz"),
        (("--candidates", "absent.json"), 1, "absent.json"),
        (("--metrics", "cider-d+sigma=0"), 2, "sigma must be a positive number, got 0.0"),
        (("--metrics", "cider-d+sigma=nan"), 2, "sigma must be a positive number, got nan"),
        (("--metrics", "cider-d+sigma=4+sigma=5"), 2, "option sigma is set twice"),
        (("--metrics", "bleu", "--frequencies", "df.npz"), 2, "--frequencies is only for cider"),
        (("--per-caption", "good.json"), 2, "good.json should end in .csv"),
        (("--references", ""), 2, "--references is empty"),
    ],
)
def test_errors_are_one_line(crossmatch, arguments, code, message):
    references = () if "--references" in arguments else SCORE[3:]
    actual_code, _, err = crossmatch(*SCORE[:3], *references, *arguments)
    assert actual_code == code
    assert message in err
    assert err.count("\n") == 1


def test_the_metrics_are_listed(crossmatch):
    code, out, _ = crossmatch("list", "metrics")
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


def test_agreement_with_own_ratings(crossmatch, tmp_path):
    (tmp_path / "mine.csv").write_text(RATED)
    arguments = ("agree", "--judgements", "mine.csv", "--references", "refs.json", "--metrics", "rouge-l,bleu-1", "--groups", 50)
    code, out, _ = crossmatch(*arguments, "--scale", "-o", "agree.html")
    assert code == 0
    assert out.startswith("mine: 4 captions of 3 images, 5 ratings")
    assert "metrics on the rating scale" in out
    assert "agreement of metrics with people" in (tmp_path / "agree.html").read_text()
    code, out, _ = crossmatch(*arguments, "--ratings", "mean", "--curve", "--draws", 2, "--json")
    parsed = json.loads(out)["mine"]
    assert code == 0
    assert parsed["metrics"]["rouge-l"]["tau-b"].keys() == {"value", "low", "high"}
    assert parsed["differences"][0]["williams"]["freedom"] == 1
    assert {point["references"] for point in parsed["curve"]["points"]} == {1, 2}
    assert "ratings:mean" in parsed["signature"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--judgements", "mine.csv"), 2, "--references FILE"),
        (("--judgements", "mine.csv", "--references", "refs.json", "-o", "a.png"), 2, "a.png should end in .html"),
        (
            ("--judgements", "absent.csv", "--references", "refs.json"),
            1,
            "--judgements absent.csv: there is no such file. Check the path.",
        ),
        (("--judgements", "flickr9k"), 2, "--judgements flickr9k: expected flickr8k-expert, composite, pascal-50s"),
        (("--judgements", ","), 2, "--judgements is empty"),
        (("--judgements", "mine.csv", "--references", "refs.json", "--metrics", "tau"), 2, "Unknown caption metric 'tau'"),
        (("--judgements", "mine.csv", "--references", "refs.json", "--metrics", "clip-score"), 2, "a model that embeds"),
    ],
)
def test_errors_in_ratings_are_one_line(crossmatch, tmp_path, arguments, code, message):
    (tmp_path / "mine.csv").write_text(RATED)
    actual_code, _, err = crossmatch("agree", *arguments)
    assert actual_code == code
    assert message in err
    assert err.count("\n") == 1


def test_published_ratings_are_known(crossmatch, real_data):
    code, out, _ = crossmatch("agree", "--judgements", "flickr8k-expert,pascal-50s", "--metrics", "bleu-1", "--groups", 20)
    assert code == 0
    assert "5,664 captions of 1,000 images, 16,992 ratings" in out
    assert "(0.323)" in out
    assert "(74.08)" in out


@pytest.fixture(scope="module")
def grounder(tmp_path_factory):
    from crossmatch.train.small_grounder import train_grounded

    folder = tmp_path_factory.mktemp("grounded")
    train_grounded(folder, images=20, epochs=1, size="tiny", pixels=16)
    return folder


@pytest.mark.torch
def test_tiger_and_its_page_with_regions(crossmatch, tmp_path, grounder):
    from crossmatch.benchmarks import load_benchmark_data

    file = load_benchmark_data("diorama/retrieval", size="tiny").collection
    (tmp_path / "scenes.json").write_text(json.dumps(dict.fromkeys(file.image_ids.tolist(), "A red dog.")))
    arguments = ("score", "--candidates", "scenes.json", "--references", "diorama/retrieval+size=tiny", "--samples", 20, "--json")
    metrics = ("--metrics", "tiger+tau=0.5,tiger", "--grounder", grounder)
    code, out, _ = crossmatch(*arguments, *metrics, "-o", "page.html")
    assert code == 0
    parsed = json.loads(out)["scenes"]
    assert list(parsed) == ["tiger+tau=0.5", "rrs+tau=0.5", "wds+tau=0.5", "tiger", "rrs", "wds"]
    assert parsed["rrs"]["value"] == parsed["rrs+tau=0.5"]["value"]
    assert parsed["wds"]["value"] != parsed["wds+tau=0.5"]["value"]
    assert "grounder:grounded" in parsed["tiger"]["signature"]
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
    parsed = json.loads(out)["good"]
    assert code == 0
    assert parsed["clip-score"]["value"] == pytest.approx(2.5)
    assert "|prefix:A photo depicts|" in parsed["clip-score"]["signature"]
    assert parsed["ref-clip-score+prefix="]["value"] == pytest.approx(2 * 2.5 / 3.5)


@pytest.mark.torch
def test_a_caption_is_explained(crossmatch, tmp_path, grounder):
    from crossmatch.benchmarks import load_benchmark_data

    file = load_benchmark_data("diorama/retrieval", size="tiny").collection
    image = str(file.image_ids[0])
    arguments = ("explain", "--grounder", grounder, "--caption", "A red dog.", "-o", "dog.png")
    listed = ("--references", "diorama/retrieval+size=tiny", "--id", image)
    code, out, err = crossmatch(*arguments, *listed, "--json")
    assert code == 0
    assert "saved dog.png" in err
    assert (tmp_path / "dog.png").read_bytes().startswith(b"\x89PNG")
    parsed = json.loads(out)
    assert len(parsed["caption"]) == len(parsed["references"]) == len(parsed["boxes"])
    assert parsed["TIGEr"] == pytest.approx((parsed["RRS"] + parsed["WDS"]) / 2)
    assert parsed["tau"] == 1.5
    file.open_image(image).save(tmp_path / "scene.png")
    code, out, _ = crossmatch(*arguments, "--image", "scene.png", "--json")
    assert code == 0
    assert len(json.loads(out)["boxes"]) == 14  # a picture without boxes has a grid of them
    sized = ("--references", "diorama", "--size", "tiny", "--split", "val", "--id", "val-00003")
    code, out, _ = crossmatch(*arguments, *sized, "--json")
    assert code == 0
    assert 0 < json.loads(out)["TIGEr"] < 1
    for wrong, message in (
        (("--image", "scene.png", "--size", "tiny"), "--size is an option of the task of --references, which is missing"),
        ((), "give one image"),
        (("--id", image), "needs --references"),
        ((*listed[:2], "--id", "nobody"), "--id nobody is not in diorama/retrieval+size=tiny"),
        ((*listed, "--metric", "bleu-1"), "bleu-1 uses no regions"),
        ((*listed, "-o", "dog.txt"), "dog.txt: the name of an image must end in .png, .svg, .pdf"),
        ((*listed, "--grounder", "random"), "random: the model does not ground texts in regions"),
    ):
        options = {option for option in wrong if option in ("-o", "--grounder")}
        base = (
            "explain",
            *(() if "--grounder" in options else arguments[1:3]),
            *arguments[3:5],
            *(() if "-o" in options else arguments[5:]),
        )
        code, _, err = crossmatch(*base, *wrong)
        assert code in (1, 2)
        assert message in err
        assert err.count("\n") == 1


SCENE_RATINGS = "image_id,caption,rating\n" + "".join(f"test-{n:05},{text},{rating}\n" for n in range(4) for text, rating in (
    ("A red dog.", 1 + n % 2), ("There are three striped motorbikes.", 2 + n))
)  # fmt: skip


@pytest.mark.torch
def test_agreement_uses_the_pictures_of_the_task(crossmatch, tmp_path, grounder):
    (tmp_path / "mine.csv").write_text(SCENE_RATINGS)
    arguments = ("agree", "--judgements", "mine.csv", "--references", "diorama", "--size", "tiny", "--metrics", "tiger")
    code, out, _ = crossmatch(*arguments, "--grounder", grounder, "--groups", 4, "--json")
    assert code == 0
    values = json.loads(out)["mine"]["metrics"]
    assert set(values) == {"tiger", "rrs", "wds"}
    code, _, err = crossmatch("agree", "--judgements", "flickr8k-expert", "--size", "tiny")
    assert code == 2
    assert "--size is an option of the task of --references, which is missing" in err


@pytest.fixture(scope="module")
def regions(tmp_path_factory):
    """Random features of 36 regions without boxes for each scene, and an untrained grounder and captioner on them."""
    import numpy as np
    import torch

    from crossmatch.models.zoo.trained_model import ZooConfig, build_model

    folder = tmp_path_factory.mktemp("regions")
    (folder / "file").mkdir()
    features = np.random.default_rng(0).normal(size=(50, 36, 16)).astype(np.float32)
    np.save(folder / "file" / "test_ims.npy", features)
    (folder / "file" / "test_ids.txt").write_text("".join(f"test-{n:05}\n" for n in range(50)))
    torch.manual_seed(0)
    for family, more in (("scan", {}), ("up-down", {"attention": 4})):
        sizes = {"dimensions": 8, "word_dimensions": 5, **more}
        words = ("a", "dog", "motorbikes", "red", "striped", "three")
        build_model(ZooConfig(family, sizes, words, {"kind": "file", "dimensions": 16})).save(folder / family)
    return lambda family: f"regions:{folder / 'file' / 'test_ims.npy'}+{folder / family}"


@pytest.mark.torch
def test_precomputed_regions_need_no_pictures(crossmatch, tmp_path, regions):
    """References and ratings come from files, so that the only source of regions is the file of features."""
    from crossmatch.benchmarks import load_benchmark_data
    from crossmatch.models import make_model

    collection = load_benchmark_data("diorama/retrieval", size="tiny").collection
    texts, references = collection.texts(), {}
    for image, caption in collection.links.tolist():
        references.setdefault(str(collection.image_ids[image]), []).append(texts[caption])
    (tmp_path / "scenes.json").write_text(json.dumps(references))
    (tmp_path / "candidates.json").write_text(json.dumps(dict.fromkeys(references, "A red dog.")))
    (tmp_path / "mine.csv").write_text(SCENE_RATINGS)
    tiger = ("--references", "scenes.json", "--metrics", "tiger", "--grounder", regions("scan"), "--json")
    code, out, _ = crossmatch("score", "--candidates", "candidates.json", *tiger, "--samples", 20)
    scored = json.loads(out)["candidates"]
    assert code == 0
    assert "|grounder:regions:test_ims.npy" in scored["tiger"]["signature"]
    code, out, _ = crossmatch("agree", "--judgements", "mine.csv", *tiger, "--groups", 4, "--curve", "--draws", 2)
    assert code == 0
    assert set(json.loads(out)["mine"]["metrics"]) == {"tiger", "rrs", "wds"}
    explain = ("explain", "--caption", "A red dog.", "--grounder", regions("scan"), "-o", "dog.png", "--json")
    code, out, _ = crossmatch(*explain, "--references", "scenes.json", "--id", "test-00007")
    explained = json.loads(out)
    assert code == 0
    assert explained["boxes"] is None
    grounding = make_model(regions("scan")).ground(["test-00007"], ["A red dog."])
    assert explained["caption"] == pytest.approx(grounding.scores[0].tolist(), abs=1e-5)
    assert 0 < explained["TIGEr"] < 1
    assert (tmp_path / "dog.png").read_bytes().startswith(b"\x89PNG")
    code, out, _ = crossmatch(*explain, "--id", "test-00007")  # without references only the caption is grounded
    assert json.loads(out)["caption"] == explained["caption"]
    collection.open_image("test-00007").save(tmp_path / "scene.png")
    code, _, err = crossmatch(*explain, "--image", "scene.png")
    assert code == 2
    assert "finds the regions of an image by its id. Name it: --id ID" in err
    code, _, err = crossmatch(*explain, "--id", "test-99999")
    assert code == 1
    assert "missing: 'test-99999'" in err


@pytest.mark.torch
def test_captions_are_generated_from_precomputed_regions(crossmatch, tmp_path, regions):
    arguments = ("generate", "--size", "tiny", "--decoding", "greedy", "--limit", 5, "-o", "captions.json", "-m")
    code, out, _ = crossmatch(*arguments, regions("up-down"))
    assert code == 0
    assert "5 captions by greedy decoding" in out
    assert [row["image_id"] for row in json.loads((tmp_path / "captions.json").read_text())] == [f"test-{n:05}" for n in range(5)]
    code, _, err = crossmatch(*arguments, regions("scan"))
    assert code == 2
    assert "generates no captions" in err
