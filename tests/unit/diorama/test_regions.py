"""Regions of scenes, in `info` of every drawn picture."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

pytest.importorskip("PIL")

from PIL import Image

from crossmatch.diorama.drawing import draw
from crossmatch.diorama.scenes import WHOLE, regions
from crossmatch.diorama.trials import bivlc
from crossmatch.diorama.world import Diorama


@pytest.fixture(scope="module")
def world():
    return Diorama.make("test", images=40)


def test_regions_are_the_whole_picture_and_each_object(world):
    for scene in world.scenes:
        whole, *boxes = regions(scene)
        assert whole == WHOLE
        assert [tuple(round(1000 * v) for v in box) for box in boxes] == [tuple(item.box) for item in scene.objects]


def test_regions_are_inside_the_picture_and_not_empty(world):
    boxes = np.array([box for scene in world.scenes for box in regions(scene)])
    assert ((boxes >= 0) & (boxes <= 1)).all()
    assert (boxes[:, :2] < boxes[:, 2:]).all()


@pytest.mark.parametrize("style", ["camera", "generator"])
@pytest.mark.parametrize("pixels", [64, 256])
def test_drawn_picture_has_its_regions(world, style, pixels):
    assert draw(world.scenes[0], style, pixels).info == {"regions": regions(world.scenes[0])}


def test_opened_and_edited_pictures_have_their_regions(world):
    name = world.collection.image_ids[3]
    assert world.collection.open_image(name).info["regions"] == regions(world.scenes[3])
    trials = bivlc(size="tiny")
    assert all(len(trials.open_image(name).info["regions"]) > 1 for name in trials.images[0].tolist())


def test_object_is_in_its_region(world):
    """Removing an object changes only its box and ten pixels around it, for outline, shadow and tilt."""
    for scene in world.scenes[:10]:
        without = type(scene)(scene.setting, scene.objects[:-1], frozenset(), scene.light, scene.seed)
        change = np.abs(np.asarray(draw(scene)).astype(int) - np.asarray(draw(without)).astype(int)).max(axis=2) > 40
        left, top, right, bottom = (round(256 * v) for v in regions(scene)[-1])
        inside = change[max(0, top - 10) : bottom + 10, max(0, left - 10) : right + 10].sum()
        assert inside > 0.99 * change.sum() > 0
        assert change[top:bottom, left:right].mean() > 0.1


def test_copies_keep_the_regions_and_files_do_not_contain_them(world):
    picture = world.picture(0, 64)
    bare = picture.copy()
    del bare.info["regions"]
    for derived in (
        picture.copy(),
        copy.deepcopy(picture),
        pickle.loads(pickle.dumps(picture)),
        picture.convert("RGB"),
        picture.resize((32, 32)),
    ):
        assert derived.info["regions"] == picture.info["regions"]
    assert picture.tobytes() == bare.tobytes()
    np.testing.assert_array_equal(np.asarray(picture), np.asarray(bare))
    for kind in ("PNG", "JPEG", "WEBP"):
        with_regions, without = io.BytesIO(), io.BytesIO()
        picture.save(with_regions, kind)
        bare.save(without, kind)
        assert with_regions.getvalue() == without.getvalue()
        assert "regions" not in Image.open(with_regions).info
