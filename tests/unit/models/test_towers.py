"""timm's image towers through the adapter, against the library's own forward, on small random networks that were saved to disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models.abilities import abilities
from crossmatch.models.sentence import threads

torch = pytest.importorskip("torch")

from crossmatch.models import towers  # noqa: E402
from crossmatch.models.stored import offline  # noqa: E402
from crossmatch.models.towers import timm_model  # noqa: E402

LIMIT = 1e-5
SMALL = "test_resnet"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Networks this small only wait for one another."""
    with threads(1):
        yield


@pytest.fixture(scope="module")
def whole(timm: Any) -> Any:
    """A small network with its classifier, whose batch norms are not those of a new one."""
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
    found = [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in [(60, 40), (176, 176), (33, 91)]]
    return [*found, found[0].convert("L"), found[1].convert("RGBA"), found[2].convert("CMYK")]


def own(timm: Any, net: Any) -> np.ndarray:
    """The library's pooled features, one picture at a time."""
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(net), is_training=False)
    with torch.no_grad():
        given = [transform(image.convert("RGB"))[None] for image in pictures()]
        return np.concatenate([net.forward_head(net.forward_features(x), pre_logits=True).numpy() for x in given])


def test_pooled_features_are_the_librarys_own(timm: Any, whole: Any, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = timm_model(f"{SMALL},{saved}")
    found, expected = model.embed_images(pictures()), own(timm, whole)
    assert found.shape == (6, model.dimensions) == (6, 96)
    assert np.abs(found - expected).max() < LIMIT * max(1, np.abs(expected).max())
    assert abilities(model) == ("embed images",)
    assert np.array_equal(model.embed_prepared(model.prepare_images(pictures())), found)
    monkeypatch.setattr(towers, "BATCH", 4)
    assert np.abs(model.embed_images(pictures()[::-1]) - found[::-1]).max() < LIMIT * max(1, np.abs(expected).max())
    assert model.embed_images([]).shape == (0, 96)


def test_a_transformer_is_pooled_by_its_own_rule(timm: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with offline():
        net = timm.create_model("test_vit").eval()
    torch.save(net.state_dict(), tmp_path / "vit.pt")
    model = timm_model(f"test_vit,{tmp_path / 'vit.pt'}")
    assert np.abs(model.embed_images(pictures()) - own(timm, net)).max() < LIMIT


@pytest.mark.parametrize(
    ("prefix", "others"),
    [
        ("module.", {}),
        ("backbone.", {"projector.0.weight": torch.zeros(2, 2)}),  # a projection beside the tower,
        ("encoder.", {"encoder.fc.0.weight": torch.zeros(2, 2)}),  # or in place of its classifier,
        ("module.encoder_q.", {"module.encoder_k.conv1.0.weight": torch.zeros(2, 2)}),  # or a second tower, as MoCo has
    ],
)
def test_self_supervised_checkpoints(whole: Any, saved: Path, tmp_path: Path, prefix: str, others: dict[str, Any]) -> None:
    weights = {prefix + name: values for name, values in whole.state_dict().items() if not name.startswith("fc.")}
    torch.save({"state_dict": weights | others}, tmp_path / "ssl.pt")
    model = timm_model(f"{SMALL},{tmp_path / 'ssl.pt'}")
    assert np.array_equal(model.embed_images(pictures()), timm_model(f"{SMALL},{saved}").embed_images(pictures()))


def test_the_weights_of_a_deeper_or_another_network_are_refused(timm: Any, whole: Any, tmp_path: Path) -> None:
    weights = whole.state_dict()
    deeper = weights | {name.replace("layer1.0", "layer1.1"): values for name, values in weights.items() if "layer1.0" in name}
    torch.save(deeper, tmp_path / "deeper.pt")
    with pytest.raises(CrossmatchError, match=rf"deeper\.pt does not fit {SMALL}: \d+ are not known \(first 'layer1\.1"):
        timm_model(f"{SMALL},{tmp_path / 'deeper.pt'}")
    with offline():
        torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "vit.pt")
    with pytest.raises(CrossmatchError, match=r"vit\.pt does not fit .*missing.*timm:ARCHITECTURE"):
        timm_model(f"{SMALL},{tmp_path / 'vit.pt'}")
    torch.save({name: values for name, values in weights.items() if name != "layer2.0.bn1.weight"}, tmp_path / "less.pt")
    with pytest.raises(CrossmatchError, match=r"1 weights are missing \(first 'layer2\.0\.bn1\.weight'\)"):
        timm_model(f"{SMALL},{tmp_path / 'less.pt'}")


def test_nan_weights_a_missing_file_and_wrong_names(timm: Any, whole: Any, tmp_path: Path) -> None:
    weights = {name: values.clone() for name, values in whole.state_dict().items()}
    weights["layer1.0.bn1.running_var"][0] = float("inf")
    torch.save(weights, tmp_path / "nan.pt")
    with pytest.raises(CrossmatchError, match=r"nan\.pt: 1 of the 32 numbers in 'layer1\.0\.bn1\.running_var' are NaN"):
        timm_model(f"{SMALL},{tmp_path / 'nan.pt'}")
    with pytest.raises(WrongWords, match="there is no file"):
        timm_model(f"{SMALL},{tmp_path / 'none.pt'}")
    with pytest.raises(WrongWords, match=r"timm knows no network 'resnet15'\. Nearest: .*resnet1"):
        timm_model("resnet15,random")
    with pytest.raises(WrongWords, match=r"timm cannot build test_resnet\.nonsense"):
        timm_model("test_resnet.nonsense,random")
    with pytest.raises(WrongWords, match="timm needs the name of a network"):
        timm_model("")


def test_without_weights_here_the_remedy_is_said(timm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(
        CrossmatchError,
        match=rf"timm:{SMALL} are not on this machine.*hf download timm/test_resnet\S*\. Or give a checkpoint: timm:{SMALL},FILE",
    ):
        timm_model(SMALL)


def test_weights_in_the_cache_are_taken(
    timm: Any, whole: Any, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    there = tmp_path / f"models--{whole.pretrained_cfg['hf_hub_id'].rstrip('/').replace('/', '--')}"
    (there / "refs").mkdir(parents=True)
    (there / "refs" / "main").write_text("0" * 40)
    (there / "snapshots" / ("0" * 40)).mkdir(parents=True)
    torch.save(whole.state_dict(), there / "snapshots" / ("0" * 40) / "pytorch_model.bin")
    expected = timm_model(f"{SMALL},{saved}")
    found = timm_model(SMALL)
    assert np.array_equal(found.embed_images(pictures()), expected.embed_images(pictures()))
    assert found.signature.split("|")[1:] == expected.signature.split("|")[1:]
    assert found.signature.startswith(f"timm:{SMALL}|")


def test_random_weights_are_the_same_each_time_and_said(timm: Any) -> None:
    before = torch.random.get_rng_state()
    one, other = timm_model(f"{SMALL},random"), timm_model(f"{SMALL},random")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one.signature == other.signature
    assert one.signature.startswith(f"timm:{SMALL},random|")
    assert np.array_equal(one.embed_images(pictures()), other.embed_images(pictures()))


@pytest.mark.parametrize(("name", "side"), [("inception_v3", 299), ("resnet152", 224)])
def test_the_papers_towers_build(timm: Any, name: str, side: int) -> None:
    model = timm_model(f"{name},random")
    assert model.dimensions == 2048
    assert f"|pixels:{side}/" in model.signature
    assert model.prepare_images(pictures()[:1]).shape == (1, 3, side, side)


def test_auxiliary_heads_are_left_out(whole: Any, saved: Path, tmp_path: Path) -> None:
    """As torchvision's weights of InceptionV3 have one."""
    torch.save(whole.state_dict() | {"AuxLogits.conv0.conv.weight": torch.zeros(2, 2, 1, 1)}, tmp_path / "aux.pt")
    assert (
        timm_model(f"{SMALL},{tmp_path / 'aux.pt'}").signature.split("|")[2]
        == timm_model(f"{SMALL},{saved}").signature.split("|")[2]
    )
