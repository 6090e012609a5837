"""Models that cannot be used are refused in one line that says how to mend it; nothing touches the network."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models.hf import ARCHITECTURES, KINDS, hf_model, loading, wanted
from crossmatch.models.hf.inputs import Reader, positions
from crossmatch.models.hf.loading import located

from .conftest import SIDE, tower


@pytest.fixture(scope="module")
def git(transformers, saved, bert):
    text = tower(vocab_size=len(bert), max_position_embeddings=32, bos_token_id=2, eos_token_id=3)
    config = transformers.GitConfig(vision_config=tower(image_size=SIDE, patch_size=8), **text)
    processor = transformers.CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return saved("git", config, "GitForCausalLM", bert, processor)


@pytest.fixture
def copy(git, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(git, folder)
    return folder


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("something asked for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("rest", "said"), [
    ("", "hf needs a model of transformers, as in hf:"),
    ("org/name,itx", "'itx' has no meaning here. After the model may stand one of embed, itm, itc, released, likelihood, vqa, and"),
    ("org/name,itm,itc", "'itc' has no meaning here"),
    ("org/name,prior=", "'prior=' has no meaning here"),
    ("org/name,size=4", "'size=4' has no meaning here"),
])  # fmt: skip
def test_wrong_words(rest, said):
    with pytest.raises(WrongWords) as error:
        hf_model(rest)
    assert said in one_line(error)


def test_a_question_takes_the_rest_of_the_line():
    found = wanted("org/name,vqa,revision=abc,question=Is it {}, or not?")
    assert (found.name, found.kind) == ("org/name", "vqa")
    assert found.options == {"revision": "abc", "question": "Is it {}, or not?"}


def test_a_folder_with_a_comma(git, tmp_path):
    shutil.copytree(git, tmp_path / "a,b")
    assert hf_model(str(tmp_path / "a,b")).signature.startswith("hf:a,b|")


@pytest.fixture
def cache(git, tmp_path, monkeypatch):
    """A cache of Hugging Face with one model in it, at one revision."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    held = tmp_path / "hub" / "models--some--git"
    revision = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(git, held / "snapshots" / revision)
    (held / "refs").mkdir()
    (held / "refs" / "main").write_text(revision)
    return revision


def test_a_model_of_the_cache(cache, git):
    model = hf_model("some/git")
    assert model.signature.startswith("hf:some/git|likelihood|revision:0123456789ab|weights:")
    assert hf_model(f"some/git,revision={cache}").signature == model.signature
    assert located("some/git").folder.name == cache
    assert model.signature.split("|weights:")[1] == hf_model(str(git)).signature.split("|weights:")[1]


def test_a_model_that_is_not_here(cache):
    with pytest.raises(CrossmatchError) as error:
        hf_model("some/other")
    assert one_line(error).endswith("Give its folder, or fetch it first: hf download some/other")
    with pytest.raises(CrossmatchError) as error:
        hf_model("some/git,revision=v2")
    assert one_line(error).endswith("fetch it first: hf download some/git --revision v2")
    with pytest.raises(CrossmatchError, match="there is no model /no/such/folder on this machine"):
        hf_model("/no/such/folder")


def test_a_folder_has_no_revisions(git):
    with pytest.raises(WrongWords, match="is a folder, which has no revisions"):
        hf_model(f"{git},revision=main")


@pytest.mark.parametrize(("written", "said"), [
    (None, "holds no model of transformers: there is no config.json"),
    ("{", "is not the json of a model"),
    ("[]", "is not the json of a model"),
    ("{}", 'names no architecture. Add it, as in "architectures": ["CLIPModel"]'),
    ('{"architectures": ["BertModel"]}', "is a BertModel, which cannot compare images with texts here. Expected: AlignModel"),
])  # fmt: skip
def test_configurations_that_say_nothing_usable(copy, written, said):
    (copy / "config.json").unlink() if written is None else (copy / "config.json").write_text(written)
    with pytest.raises(CrossmatchError) as error:
        hf_model(str(copy))
    assert said in one_line(error)


def test_a_kind_or_an_option_that_the_architecture_does_not_have(git):
    with pytest.raises(WrongWords, match="is a GitForCausalLM, which has no itm; it has likelihood"):
        hf_model(f"{git},itm")
    with pytest.raises(WrongWords, match=r"is used for likelihood, which takes no question= \(it takes prior, prompt\)"):
        hf_model(f"{git},question={{}}?")


def test_missing_weights(copy):
    (copy / "model.safetensors").unlink()
    with pytest.raises(CrossmatchError) as error:
        hf_model(str(copy))
    assert one_line(error) == f"{copy} holds no weights (*.safetensors or *.bin). Fetch or save the model again."


def test_a_damaged_weight_file(copy):
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(CrossmatchError) as error:
        hf_model(str(copy))
    assert f"{copy}: the network cannot be loaded (" in one_line(error)


def test_weights_of_another_architecture(copy):
    """transformers would fill what is missing with random numbers."""
    told = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(told | {"num_hidden_layers": 3}))
    with pytest.raises(CrossmatchError) as error:
        hf_model(str(copy))
    assert "the weights are not those of a GitForCausalLM: 16 of" in one_line(error)
    (copy / "config.json").write_text(json.dumps(told | {"intermediate_size": 38}))
    with pytest.raises(CrossmatchError, match=r"cannot be loaded|are missing or of another shape") as error:
        hf_model(str(copy))
    one_line(error)


def test_weights_that_are_no_numbers(copy):
    from safetensors.torch import load_file, save_file

    held = load_file(copy / "model.safetensors")
    name = next(name for name in held if name.endswith("output.dense.weight"))
    held[name][0, 0] = torch.nan
    save_file(held, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(CrossmatchError, match="are NaN or infinite") as error:
        hf_model(str(copy))
    assert one_line(error).startswith(f"{copy}: 1 of the ")


def test_missing_parts(copy):
    """transformers 5 would make a tokenizer that knows no words."""
    (copy / "preprocessor_config.json").rename(copy / "kept")
    with pytest.raises(CrossmatchError) as error:
        hf_model(str(copy))
    assert f"{copy}: the image processor cannot be loaded (" in one_line(error)
    (copy / "kept").rename(copy / "preprocessor_config.json")
    (copy / "tokenizer.json").unlink()
    with pytest.raises(CrossmatchError) as error:
        hf_model(str(copy))
    assert one_line(error).startswith(f"{copy} holds no tokenizer (tokenizer.json, vocab*,")


def test_parts_that_do_not_fit(transformers, copy):
    transformers.CLIPImageProcessorPil().save_pretrained(copy)
    with pytest.raises(CrossmatchError, match=r"do not fit together \(ValueError: Input image size \(224\*224\)") as error:
        hf_model(str(copy))
    assert one_line(error).startswith(f"{copy}: tokenizer, image processor and network")


def test_half_precision_weights_are_read_in_float32(transformers, git, copy):
    net = transformers.GitForCausalLM.from_pretrained(git).half()
    net.save_pretrained(copy)
    model = hf_model(str(copy))
    assert {parameter.dtype for parameter in model.plain.net.parameters()} == {torch.float32}
    assert model.signature != hf_model(str(git)).signature
    assert not any(parameter.requires_grad for parameter in model.plain.net.parameters())


def test_every_architecture_is_of_the_library_and_has_its_kinds(transformers):
    for name, kinds in ARCHITECTURES.items():
        assert hasattr(transformers, name), name
        assert set(kinds) <= set(KINDS)


def test_positions():
    class Config:
        model_type, max_position_embeddings, pad_token_id = "roberta", 514, 1

    assert positions(Config) == 512
    Config.model_type = "bert"
    assert positions(Config) == 514


def test_padding_goes_where_the_tokenizer_wants_it(bert):
    left = Reader(bert, 6, filled=True)
    row = left.numbers(["a cat"])
    assert left.inputs(row)["input_ids"].tolist() == [[2, 5, 11, 3, 0, 0]]
    bert.padding_side = "left"
    try:
        assert left.inputs(row)["input_ids"].tolist() == [[0, 0, 2, 5, 11, 3]]
    finally:
        bert.padding_side = "right"


def test_transformers_may_be_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependency, match="this needs PyTorch and transformers"):
        loading.transformers_here()


BROKEN = """
import importlib.machinery, sys

class Broken:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "torchvision" else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        raise RuntimeError("operator torchvision::nms does not exist")

sys.meta_path.insert(0, Broken())
from PIL import Image
from crossmatch.models.hf import hf_model

model = hf_model(sys.argv[1])
print(model.log_likelihood([Image.new("RGB", (20, 30), (200, 30, 90))], ["a red cat"])[0, 0])
assert "torchvision" not in sys.modules  # whoever can mend it may still import it
"""


def test_torchvision_may_be_broken(git):
    done = subprocess.run([sys.executable, "-W", "error", "-c", BROKEN, str(git)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar, no advice
    here = hf_model(str(git)).log_likelihood([Image.new("RGB", (20, 30), (200, 30, 90))], ["a red cat"])
    np.testing.assert_allclose(float(done.stdout), here[0, 0], rtol=0, atol=1e-5)
