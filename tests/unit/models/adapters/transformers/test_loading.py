"""Loading models of transformers: errors in one line with a remedy, and no access to the network."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.models.adapters.transformers import ARCHITECTURES, MODEL_USES, hf_model, loading, parse_hub_name
from crossmatch.models.adapters.transformers.input_batches import TextReader, count_positions
from crossmatch.models.adapters.transformers.loading import locate_model

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
        raise AssertionError("the network was accessed")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("argument", "message"), [
    ("", "hf needs a model of transformers, as in hf:"),
    ("org/name,itx", "unknown option 'itx'. Use one of embed, itm, itc, released, likelihood, vqa, and"),
    ("org/name,itm,itc", "unknown option 'itc'"),
    ("org/name,prior=", "unknown option 'prior='"),
    ("org/name,size=4", "unknown option 'size=4'"),
])  # fmt: skip
def test_wrong_names_are_refused(argument, message):
    with pytest.raises(UsageError) as error:
        hf_model(argument)
    assert message in one_line(error)


def test_question_takes_the_rest_of_the_name():
    name = parse_hub_name("org/name,vqa,revision=abc,question=Is it {}, or not?")
    assert (name.name, name.use) == ("org/name", "vqa")
    assert name.options == {"revision": "abc", "question": "Is it {}, or not?"}


def test_folder_name_may_contain_a_comma(git, tmp_path):
    shutil.copytree(git, tmp_path / "a,b")
    assert hf_model(str(tmp_path / "a,b")).signature.startswith("hf:a,b|")


@pytest.fixture
def cache(git, hub):
    """A Hugging Face cache with one model at one revision."""
    revision = "0123456789abcdef0123456789abcdef01234567"
    hub("some/git", {path.name: path.read_bytes() for path in git.iterdir()}, revision)
    return revision


def test_cached_model_is_loaded(cache, git):
    model = hf_model("some/git")
    assert model.signature.startswith("hf:some/git|likelihood|revision:0123456789ab|weights:")
    assert hf_model(f"some/git,revision={cache}").signature == model.signature
    assert locate_model("some/git").folder.name == cache
    assert model.signature.split("|weights:")[1] == hf_model(str(git)).signature.split("|weights:")[1]


def test_missing_model_says_how_to_download_it(cache):
    with pytest.raises(CrossmatchError) as error:
        hf_model("some/other")
    assert one_line(error).endswith("Name its folder, or download it first: hf download some/other")
    with pytest.raises(CrossmatchError) as error:
        hf_model("some/git,revision=v2")
    assert one_line(error).endswith("download it first: hf download some/git --revision v2")
    with pytest.raises(CrossmatchError, match="there is no model /no/such/folder on this machine"):
        hf_model("/no/such/folder")


def test_folder_has_no_revisions(git):
    with pytest.raises(UsageError, match="is a folder, which has no revisions"):
        hf_model(f"{git},revision=main")


@pytest.mark.parametrize(("content", "message"), [
    (None, "has no model of transformers: there is no config.json"),
    ("{", "is not the json of a model"),
    ("[]", "is not the json of a model"),
    ("{}", 'names no architecture. Add it, as in "architectures": ["CLIPModel"]'),
    ('{"architectures": ["BertModel"]}', "is a BertModel, which cannot compare images with texts. Supported are AlignModel"),
])  # fmt: skip
def test_unusable_configurations_are_refused(copy, content, message):
    (copy / "config.json").unlink() if content is None else (copy / "config.json").write_text(content)
    with pytest.raises(CrossmatchError) as error:
        hf_model(str(copy))
    assert message in one_line(error)


def test_unsupported_uses_and_options_are_refused(git):
    with pytest.raises(UsageError, match="is a GitForCausalLM, which cannot be used for itm, only for likelihood"):
        hf_model(f"{git},itm")
    with pytest.raises(UsageError, match=r"is used for likelihood, which has no option question= \(options: prior, prompt\)"):
        hf_model(f"{git},question={{}}?")


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(("file", "damage", "message"), [
    ("model.safetensors", Path.unlink, "{} has no weights (*.safetensors or *.bin). Download or save the model again."),
    ("model.safetensors", truncate, "{}: the network cannot be loaded ("),
    ("preprocessor_config.json", Path.unlink, "{}: the image processor cannot be loaded ("),
    ("tokenizer.json", Path.unlink, "{} has no tokenizer (tokenizer.json, vocab*,"),  # transformers 5 would make an empty one
])  # fmt: skip
def test_missing_and_damaged_files_are_refused(copy, file, damage, message):
    damage(copy / file)
    with pytest.raises(CrossmatchError) as error:
        hf_model(str(copy))
    assert one_line(error).startswith(message.format(copy))


def test_weights_of_another_architecture_are_refused(copy):
    """transformers would use random numbers for missing weights."""
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(CrossmatchError) as error:
        hf_model(str(copy))
    assert "the weights are not those of a GitForCausalLM: 16 of" in one_line(error)
    (copy / "config.json").write_text(json.dumps(config | {"intermediate_size": 38}))
    with pytest.raises(CrossmatchError, match=r"cannot be loaded|are missing or of another shape") as error:
        hf_model(str(copy))
    one_line(error)


def test_nan_weights_are_refused(copy):
    from safetensors.torch import load_file, save_file

    weights = load_file(copy / "model.safetensors")
    name = next(name for name in weights if name.endswith("output.dense.weight"))
    weights[name][0, 0] = torch.nan
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(CrossmatchError, match="are NaN or infinite") as error:
        hf_model(str(copy))
    assert one_line(error).startswith(f"{copy}: 1 of the ")


def test_parts_that_do_not_fit_together_are_refused(transformers, copy):
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


def test_architectures_exist_in_the_library(transformers):
    for name, uses in ARCHITECTURES.items():
        assert hasattr(transformers, name), name
        assert set(uses) <= set(MODEL_USES)


def test_roberta_has_two_positions_less():
    class Config:
        model_type, max_position_embeddings, pad_token_id = "roberta", 514, 1

    assert count_positions(Config) == 512
    Config.model_type = "bert"
    assert count_positions(Config) == 514


def test_padding_is_on_the_side_of_the_tokenizer(bert):
    left = TextReader(bert, 6, pads_to_longest=True)
    row = left.token_ids(["a cat"])
    assert left.inputs(row)["input_ids"].tolist() == [[2, 5, 11, 3, 0, 0]]
    bert.padding_side = "left"
    try:
        assert left.inputs(row)["input_ids"].tolist() == [[0, 0, 2, 5, 11, 3]]
    finally:
        bert.padding_side = "right"


def test_missing_transformers_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match="This needs PyTorch and transformers"):
        loading.import_transformers()


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
from crossmatch.models.adapters.transformers import hf_model

model = hf_model(sys.argv[1])
print(model.log_likelihood([Image.new("RGB", (20, 30), (200, 30, 90))], ["a red cat"])[0, 0])
assert "torchvision" not in sys.modules  # a repaired torchvision can still be imported
"""


@pytest.mark.slow
def test_broken_torchvision_is_ignored(git):
    done = subprocess.run([sys.executable, "-W", "error", "-c", BROKEN, str(git)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar and no warnings
    here = hf_model(str(git)).log_likelihood([Image.new("RGB", (20, 30), (200, 30, 90))], ["a red cat"])
    np.testing.assert_allclose(float(done.stdout), here[0, 0], rtol=0, atol=1e-5)
