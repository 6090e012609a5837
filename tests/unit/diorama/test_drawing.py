"""Pictures of scenes: reproducible bytes, visible colours and textures, and both styles."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("PIL")

from PIL import Image

from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.diorama import glyphs
from crossmatch.diorama.drawing import STYLES, draw
from crossmatch.diorama.glyphs import mask
from crossmatch.diorama.object_kinds import KINDS
from crossmatch.diorama.scenes import COLOURS, SETTINGS, TEXTURES, Box, Scene, SceneObject

MIDDLE = Box(300, 300, 700, 700)


def make_object(kind="apple", colour="red", texture="plain", box=MIDDLE, footing="ground", **options):
    return SceneObject(kind, colour, texture, "large", box, 0, footing, **options)


def make_scene(*objects, setting="meadow", light=100, seed=5):
    return Scene(setting, objects, frozenset(), light, seed)


def digest(image):
    return hashlib.sha256(image.tobytes()).hexdigest()


BUSY = [
    make_scene(
        make_object("dog", COLOURS[i], texture=TEXTURES[i % 3], box=Box(100, 600, 400, 880), mirrored=True, tilt=4),
        make_object("duck", COLOURS[-i - 1], texture=TEXTURES[-i % 3], box=Box(350, 550, 600, 760), footing="water"),
        setting=setting,
        seed=i,
    )
    for i, setting in enumerate(SETTINGS)
]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("pixels", [64, 100, 256])
def test_same_scene_gives_the_same_bytes(style, pixels):
    before = [digest(draw(s, style, pixels)) for s in BUSY]
    assert [digest(draw(s, style, pixels)) for s in reversed(BUSY)] == before[::-1]
    assert len(set(before)) == len(before)


def test_same_bytes_in_another_process():
    code = (
        "import hashlib, sys; from crossmatch.diorama.drawing import draw; from crossmatch.diorama.scenes import *;"
        "duck = SceneObject('duck', 'pink', 'dotted', 'large', Box(200, 500, 500, 760), 0, 'water');"
        "s = Scene('lake', (duck,), frozenset(), 90, 3);"
        "assert not [m for m in sys.modules if 'qt' in m.lower()], 'Qt was imported';"
        "print(hashlib.sha256(draw(s).tobytes()).hexdigest())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    s = make_scene(make_object("duck", "pink", "dotted", Box(200, 500, 500, 760), "water"), setting="lake", light=90, seed=3)
    assert out.stdout.strip() == digest(draw(s))


def test_size_and_mode():
    picture = draw(BUSY[0], pixels=96)
    assert (picture.mode, picture.size) == ("RGB", (96, 96))


def test_seed_changes_the_noise_and_light_the_brightness():
    def mean(light):
        return np.asarray(draw(make_scene(light=light))).mean()

    assert digest(draw(make_scene(seed=1))) != digest(draw(make_scene(seed=2)))
    assert mean(75) < mean(100) < mean(115)


def test_small_picture_looks_like_a_reduced_large_one():
    for s in BUSY:
        small, large = draw(s, pixels=64), draw(s, pixels=256).reduce(4)
        assert np.abs(np.asarray(small).astype(int) - np.asarray(large)).mean() < 5


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_is_drawn_in_both_styles(kind):
    shapes = [np.asarray(mask(glyph).resize((100, 100))) > 127 for glyph in (kind.camera, kind.generator)]
    assert all(0.05 < shape.mean() < 0.95 for shape in shapes)
    assert (shapes[0] != shapes[1]).mean() > 0.03, "both styles have the same silhouette"
    for style in STYLES:
        with_object = np.asarray(draw(make_scene(make_object(kind.name, "purple", footing="air")), style)).astype(int)
        without = np.asarray(draw(make_scene(), style)).astype(int)
        changed = np.abs(with_object - without).max(axis=2) > 25
        assert 0.05 < changed[77:179, 77:179].mean() <= 1
        assert changed[:60].mean() == 0, "paint outside the box"


def test_styles_differ():
    for s in BUSY:
        camera, generator = (np.asarray(draw(s, style)).astype(int) for style in STYLES)
        assert np.abs(camera - generator).mean() > 5


def lab(rgb):
    """CIELAB under D65, from sRGB in 0..255."""
    c = np.asarray(rgb, float) / 255
    linear = np.where(c > 0.04045, ((c + 0.055) / 1.055) ** 2.4, c / 12.92)
    xyz = linear @ np.array([[0.4124, 0.2126, 0.0193], [0.3576, 0.7152, 0.1192], [0.1805, 0.0722, 0.9505]])
    f = np.cbrt(xyz / np.array([0.9505, 1.0, 1.089]))
    return np.stack([116 * f[..., 1] - 16, 500 * (f[..., 0] - f[..., 1]), 200 * (f[..., 1] - f[..., 2])], axis=-1)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("light", [75, 115])
def test_colours_keep_their_names(style, light):
    """The fill is nearest to the colour of its name. Viewers partly discount the light, so half of it is divided out."""
    names = list(STYLES["camera"].palette)
    named_colours = lab([STYLES["camera"].palette[name][0] for name in names])
    perceived_light = (100 + light) / 200
    wrong = []
    for setting in SETTINGS:
        for name in names:
            picture = draw(make_scene(make_object("egg", name), setting=setting, light=light), style)
            fill = np.median(np.asarray(picture)[115:141, 115:141].reshape(-1, 3), axis=0)
            distance = np.linalg.norm(lab(np.minimum(255, fill / perceived_light)) - named_colours, axis=-1)
            nearest = names[int(distance.argmin())]
            if nearest != name:
                wrong.append((setting, name, nearest, tuple(fill)))
    assert wrong == []


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("colour", COLOURS)
def test_textures_are_visible_and_cover_less_than_half(style, colour):
    plain, *textured_pictures = (np.asarray(draw(make_scene(make_object("egg", colour, t)), style)).astype(int) for t in TEXTURES)
    body = np.s_[100:160, 100:160]
    for textured in textured_pictures:
        differs = np.abs(textured[body] - plain[body]).max(axis=2) > 20
        assert 0.15 < differs.mean() < 0.5


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_is_visible_in_every_setting(setting, colour, style):
    ball = make_object("soccer ball", colour, box=Box(400, 640, 600, 840))
    with_ball, without = (np.asarray(draw(make_scene(*objects, setting=setting), style)).astype(int) for objects in ((ball,), ()))
    assert (np.abs(with_ball - without).max(axis=2)[164:215, 103:153] > 40).mean() > 0.25


def test_mirrored_and_tilted_objects_differ():
    scenes = [make_scene(make_object("dog", **options)) for options in ({}, {"mirrored": True}, {"tilt": 6})]
    assert len({digest(draw(s)) for s in scenes}) == 3


def test_object_may_extend_beyond_the_picture():
    assert draw(make_scene(make_object(box=Box(-100, 900, 200, 1100)))).size == (256, 256)


def test_unknown_style_is_rejected():
    with pytest.raises(CrossmatchError, match="camera, generator"):
        draw(make_scene(), "crayon")


def test_missing_fonts_are_reported_with_the_extra(monkeypatch):
    monkeypatch.setattr(glyphs.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"crossmatch\[diorama\]"):
        glyphs._folder()


def test_every_own_drawing_is_used():
    used = {kind.generator.removeprefix("own:").split("@")[0] for kind in KINDS if kind.generator.startswith("own:")}
    assert used == set(glyphs.DRAWINGS)


def test_masks_are_cropped_to_their_bounds():
    for glyph in ("mdi6:cat", "fa6:dog", "own:bat", "fa6:carrot@45"):
        shape = mask(glyph)
        assert isinstance(shape, Image.Image)
        assert shape.getbbox() == (0, 0, *shape.size)
        assert max(shape.size) == glyphs.SIDE
