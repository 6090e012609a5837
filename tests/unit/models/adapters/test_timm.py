"""Image towers of timm against the forward pass of the library, on small random networks."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.abilities import list_abilities

torch = pytest.importorskip("torch")

from crossmatch.models.adapters import timm as towers
from crossmatch.models.adapters.timm import timm_model
from crossmatch.models.files.checkpoint_files import offline

LIMIT = 1e-5
SMALL = "test_resnet"


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def whole(timm: Any) -> Any:
    """A small network with its classifier, and with batch norms that differ from the initial ones."""
    torch.manual_seed(3)
    with offline():
        net = timm.create_model(SMALL)
    with torch.no_grad():
        for name, values in net.state_dict().items():
            if name.endswith(("running_mean", "bias")):
                values.normal_(std=0.1)
    return net.eval()


@pytest.fixture(scope="module")
def saved(whole: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("towers") / "tower.pt"
    torch.save({"state_dict": whole.state_dict(), "epoch": 1}, path)
    return path


def pictures() -> list[Image.Image]:
    rng = np.random.default_rng(0)
    images = [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in [(60, 40), (176, 176), (33, 91)]]
    return [*images, images[0].convert("L"), images[1].convert("RGBA"), images[2].convert("CMYK")]


def embed_with_library(timm: Any, net: Any) -> np.ndarray:
    """The pooled features of the library, one image at a time."""
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(net), is_training=False)
    with torch.no_grad():
        inputs = [transform(image.convert("RGB"))[None] for image in pictures()]
        return np.concatenate([net.forward_head(net.forward_features(x), pre_logits=True).numpy() for x in inputs])


def test_pooled_features_equal_those_of_the_library(timm: Any, whole: Any, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = timm_model(f"{SMALL},{saved}")
    features, expected = model.embed_images(pictures()), embed_with_library(timm, whole)
    assert features.shape == (6, model.dimensions) == (6, 96)
    assert np.abs(features - expected).max() < LIMIT * max(1, np.abs(expected).max())
    assert list_abilities(model) == ("embed images",)
    assert np.array_equal(model.embed_prepared(model.prepare_images(pictures())), features)
    monkeypatch.setattr(towers, "BATCH", 4)
    assert np.abs(model.embed_images(pictures()[::-1]) - features[::-1]).max() < LIMIT * max(1, np.abs(expected).max())
    assert model.embed_images([]).shape == (0, 96)


def test_transformer_is_pooled_as_in_the_library(timm: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with offline():
        net = timm.create_model("test_vit").eval()
    torch.save(net.state_dict(), tmp_path / "vit.pt")
    model = timm_model(f"test_vit,{tmp_path / 'vit.pt'}")
    assert np.abs(model.embed_images(pictures()) - embed_with_library(timm, net)).max() < LIMIT


@pytest.mark.parametrize(
    ("prefix", "others"),
    [
        ("module.", {}),
        ("backbone.", {"projector.0.weight": torch.zeros(2, 2)}),  # a projection beside the tower,
        ("encoder.", {"encoder.fc.0.weight": torch.zeros(2, 2)}),  # or in place of its classifier,
        ("module.encoder_q.", {"module.encoder_k.conv1.0.weight": torch.zeros(2, 2)}),  # or a second tower, as MoCo has
    ],
)
def test_self_supervised_checkpoints_are_read(whole: Any, saved: Path, tmp_path: Path, prefix: str, others: dict[str, Any]) -> None:
    weights = {prefix + name: values for name, values in whole.state_dict().items() if not name.startswith("fc.")}
    torch.save({"state_dict": weights | others}, tmp_path / "ssl.pt")
    model = timm_model(f"{SMALL},{tmp_path / 'ssl.pt'}")
    assert np.array_equal(model.embed_images(pictures()), timm_model(f"{SMALL},{saved}").embed_images(pictures()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights | {name.replace("layer1.0", "layer1.1"): weights[name] for name in weights if "layer1.0" in name},
         rf"a\.pt does not fit {SMALL}: \d+ are unknown \(first 'layer1\.1"),
        (lambda weights: {f"blocks.{name}": values for name, values in weights.items()},
         r"a\.pt does not fit .*missing.*timm:ARCHITECTURE"),
        (lambda weights: {name: weights[name] for name in weights if name != "layer2.0.bn1.weight"},
         r"1 weights are missing \(first 'layer2\.0\.bn1\.weight'\)"),
        (lambda weights: weights | {"layer1.0.bn1.running_var": torch.tensor([torch.inf] + [1.0] * 31)},
         r"a\.pt: 1 of the 32 numbers in 'layer1\.0\.bn1\.running_var' are NaN"),
    ],
)  # fmt: skip
def test_wrong_weights_are_refused(whole: Any, tmp_path: Path, change: Any, message: str) -> None:
    torch.save(change(dict(whole.state_dict())), tmp_path / "a.pt")
    with pytest.raises(CrossmatchError, match=message):
        timm_model(f"{SMALL},{tmp_path / 'a.pt'}")


def test_missing_files_and_wrong_names_are_refused(timm: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        timm_model(f"{SMALL},{tmp_path / 'none.pt'}")
    with pytest.raises(UsageError, match=r"timm has no network 'resnet15'\. Nearest: .*resnet1"):
        timm_model("resnet15,random")
    with pytest.raises(UsageError, match=r"timm cannot build test_resnet\.nonsense"):
        timm_model("test_resnet.nonsense,random")
    with pytest.raises(UsageError, match="timm needs the name of a network"):
        timm_model("")


def test_error_for_missing_weights_says_how_to_download_them(
    timm: Any, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(
        CrossmatchError,
        match=rf"timm:{SMALL} are not on this machine.*hf download timm/test_resnet\S*\), or name a checkpoint: timm:{SMALL},FILE",
    ):
        timm_model(SMALL)


def test_cached_weights_are_loaded(timm: Any, whole: Any, saved: Path, hub: Any) -> None:
    buffer = io.BytesIO()
    torch.save(whole.state_dict(), buffer)
    hub(whole.pretrained_cfg["hf_hub_id"].rstrip("/"), {"pytorch_model.bin": buffer.getvalue()})
    expected = timm_model(f"{SMALL},{saved}")
    model = timm_model(SMALL)
    assert np.array_equal(model.embed_images(pictures()), expected.embed_images(pictures()))
    assert model.signature.split("|")[1:] == expected.signature.split("|")[1:]
    assert model.signature.startswith(f"timm:{SMALL}|")


def test_random_weights_are_reproducible(timm: Any) -> None:
    before = torch.random.get_rng_state()
    first, second = timm_model(f"{SMALL},random"), timm_model(f"{SMALL},random")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert first.signature == second.signature
    assert first.signature.startswith(f"timm:{SMALL},random|")
    assert np.array_equal(first.embed_images(pictures()), second.embed_images(pictures()))


@pytest.mark.parametrize(("name", "side"), [("inception_v3", 299), ("resnet152", 224)])
def test_towers_of_the_paper_are_built(timm: Any, name: str, side: int) -> None:
    model = timm_model(f"{name},random")
    assert model.dimensions == 2048
    assert f"|pixels:{side}/" in model.signature
    assert model.prepare_images(pictures()[:1]).shape == (1, 3, side, side)


def test_auxiliary_heads_are_ignored(whole: Any, saved: Path, tmp_path: Path) -> None:
    """The weights of InceptionV3 in torchvision have one."""
    torch.save(whole.state_dict() | {"AuxLogits.conv0.conv.weight": torch.zeros(2, 2, 1, 1)}, tmp_path / "aux.pt")
    assert (
        timm_model(f"{SMALL},{tmp_path / 'aux.pt'}").signature.split("|")[2]
        == timm_model(f"{SMALL},{saved}").signature.split("|")[2]
    )
