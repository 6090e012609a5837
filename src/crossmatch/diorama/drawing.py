"""Pictures of scenes in two styles: "camera" imitates photographs, "generator" generated images.

The same scene, style and size always give the same bytes: every random choice depends on the scene's seed, and all pixel
arithmetic uses integers or Pillow's resampling. Lengths are thousandths of the picture's side.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.diorama.glyphs import mask
from crossmatch.diorama.object_kinds import KIND
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.scenes import regions

try:
    from PIL import Image, ImageChops, ImageDraw, ImageFilter
except ImportError as absent:
    raise MissingDependencyError("Pillow and qtawesome", "diorama") from absent

from crossmatch.diorama.backdrops import RGB, VARIANTS, backdrop, mix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from crossmatch.diorama.scenes import Scene, SceneObject


class Style(NamedTuple):
    """A drawing style. Lengths are pixels of a 256-pixel picture."""

    palette: dict[str, tuple[RGB, RGB]]  # the colour, and the second tone of its stripes and dots
    outline: float
    rim: int  # percent of the object's own colour in its outline
    shade: int  # strength of the light from above, 0 to 255
    vignette: int  # darkening of the corners, in 256ths
    noise: int  # sensor noise: a byte shifted right by this number of bits


STYLES = {
    "camera": Style(
        {
            "red": ((208, 28, 34), (246, 214, 206)),
            "orange": ((248, 132, 18), (255, 238, 214)),
            "yellow": ((248, 212, 40), (255, 252, 226)),
            "green": ((36, 146, 58), (214, 240, 212)),
            "blue": ((38, 92, 210), (212, 226, 250)),
            "purple": ((122, 44, 164), (232, 212, 244)),
            "pink": ((246, 128, 182), (255, 240, 246)),
            "brown": ((112, 66, 34), (226, 202, 176)),
            "black": ((27, 27, 31), (118, 118, 124)),
            "white": ((242, 242, 240), (164, 168, 174)),
        },
        outline=1.2, rim=0, shade=64, vignette=52, noise=4,
    ),
    "generator": Style(
        {
            "red": ((230, 20, 40), (255, 196, 190)),
            "orange": ((255, 142, 0), (255, 232, 180)),
            "yellow": ((255, 222, 20), (255, 253, 225)),
            "green": ((20, 168, 70), (190, 246, 196)),
            "blue": ((20, 100, 240), (190, 220, 255)),
            "purple": ((138, 36, 190), (236, 200, 255)),
            "pink": ((255, 120, 190), (255, 230, 244)),
            "brown": ((126, 70, 28), (234, 200, 160)),
            "black": ((26, 24, 34), (110, 106, 126)),
            "white": ((252, 252, 252), (176, 178, 194)),
        },
        outline=2.2, rim=22, shade=18, vignette=16, noise=6,
    ),
}  # fmt: skip


@cache
def _reduced(glyph: str, side: int) -> Image.Image:
    """The silhouette at 256, 128 or 64 pixels, from which resizing is several times faster."""
    full = mask(glyph)
    return full if side == 256 else full.reduce(256 // side)


def _silhouette(item: SceneObject, style: str, width: int, height: int) -> Image.Image:
    kind = KIND[item.kind]
    glyph = kind.camera if style == "camera" else kind.generator
    side = 64 if max(width, height) <= 64 else 128 if max(width, height) <= 128 else 256
    shape = _reduced(glyph, side).resize((width, height), Image.Resampling.BILINEAR)
    if item.mirrored:
        shape = shape.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if item.tilt:
        shape = shape.rotate(item.tilt, Image.Resampling.BILINEAR, expand=True)
    return shape


@lru_cache(maxsize=128)
def _pattern(texture: str, period: int, extent: int) -> Image.Image:
    """Mask of the second tone, `extent` pixels square: diagonal bands, or dots in a quincunx."""
    fine = 4
    y, x = np.mgrid[0 : extent * fine, 0 : extent * fine].astype(np.int32)
    step = period * fine
    if texture == "striped":
        inside = (x + y) % step < step * 3 // 8
    else:
        dx, dy = (x + y // (step // 2) % 2 * (step // 2)) % step - step // 2, y % (step // 2) - step // 4
        inside = dx * dx + dy * dy <= step * step // 28
    return Image.fromarray((inside * 255).astype(np.uint8)).reduce(fine)


@lru_cache(maxsize=512)
def _ramp(height: int, strength: int, width: int) -> Image.Image:
    """A gradient from 0 at the top to `strength` at the bottom."""
    column = (np.arange(height) * strength // height).astype(np.uint8)
    return Image.fromarray(np.repeat(column[:, None], width, axis=1))


def _fill(item: SceneObject, style: Style, colour: RGB, second: RGB, size: tuple[int, int], unit: float) -> Image.Image:
    """Paint of an object: colour, texture, and light from above."""
    width, height = size
    extent = -(-max(size) // 128) * 128  # few sizes, so that the pieces below are made once
    paint = Image.new("RGB", size, mix(colour, (255, 255, 255), style.shade // 3))
    if item.texture != "plain":
        # about five periods across the object, but never too fine to see
        period = max((width + height) // 9, int(11 * unit))
        paint.paste(second, mask=_pattern(item.texture, period, extent).crop((0, 0, width, height)))
    paint.paste((0, 0, 0), mask=_ramp(height, style.shade, extent).crop((0, 0, width, height)))
    return paint


def _times(shape: Image.Image, gain: float) -> Image.Image:
    """Multiply every pixel by `gain`, at most 255 (`point` with a table is much slower on small images)."""
    return ImageChops.add(shape, shape, scale=2 / gain)


def _grown(shape: Image.Image, by: float) -> Image.Image:
    """The shape, grown by some pixels (or a fraction of one) on every side."""
    return _times(shape.filter(ImageFilter.BoxBlur(by)), 2 * by + 1)


@lru_cache(maxsize=4096)
def _puddle(width: int, height: int) -> Image.Image:
    """A soft oval: the shadow under an object."""
    sheet = Image.new("L", (128, 32))
    ImageDraw.Draw(sheet).ellipse((16, 6, 112, 26), fill=130)
    return sheet.filter(ImageFilter.BoxBlur(4)).resize((width, height), Image.Resampling.BILINEAR)


@cache
def _surf() -> Image.Image:
    """Mask of the water over the lowest part of a floating object, with a scalloped edge."""
    x, y = np.arange(128)[None, :], np.arange(32)[:, None]
    crest = 4 + (x % 32 - 16) ** 2 // 32
    return Image.fromarray(np.where(y >= crest, 215, 0).astype(np.uint8))


def _jitter(colour: RGB, dice: Dice) -> RGB:
    r, g, b = (min(255, max(0, c + dice.between(-7, 7))) for c in colour)
    return r, g, b


def _place(picture: Image.Image, item: SceneObject, setting: str, style_name: str, dice: Dice) -> None:
    """Draw one object onto the picture."""
    style, side = STYLES[style_name], picture.width
    unit = side / 256
    left, top, right, bottom = (v * side // 1000 for v in item.box)
    shape = _silhouette(item, style_name, max(2, right - left), max(2, bottom - top))
    width, height = shape.size
    # centred on the box: a tilted shape is larger than it
    x, y = (left + right - width) // 2, (top + bottom - height) // 2

    # a black object has a thin grey outline, because a dark one would hide its details
    edge, dark = style.outline * unit * (0.6 if item.colour == "black" else 1), setting == "night"
    pad = int(edge + 4 * unit) + 2
    padded = Image.new("L", (width + 2 * pad, height + 2 * pad))
    padded.paste(shape, (pad, pad))
    colour, second = style.palette[item.colour]
    colour = _jitter(colour, dice)

    sunk = item.footing == "water"
    dip = max(2, height * 14 // 100)
    surface = (x - width // 8, y + height - dip, x + width + width // 8, y + height + max(1, dip // 3))
    water = picture.crop(surface) if sunk else None
    if item.footing == "ground":
        tall = max(2, width // 4)
        picture.paste((0, 0, 0), (x - width // 8, y + height - tall * 11 // 20), _puddle(width * 5 // 4, tall))
    # a soft shadow; at night it is a rim of moonlight, so that black objects are visible
    grown = _grown(padded, edge)
    soft = _times(grown.filter(ImageFilter.BoxBlur(1.6 * unit)), 0.6 if dark else 0.4)
    drop = 0 if dark else round((2 if style_name == "camera" else 3) * unit)
    picture.paste((176, 186, 226) if dark else (0, 0, 0), (x - pad + drop, y - pad + drop), soft)
    rim = mix((18, 16, 20), colour, style.rim * 256 // 100) if item.colour != "black" else (88, 88, 98)
    picture.paste(rim, (x - pad, y - pad), grown)
    picture.paste(_fill(item, style, colour, second, shape.size, unit), (x, y), shape)
    if water is not None:
        picture.paste(water, surface[:2], _surf().resize(water.size, Image.Resampling.BILINEAR))
        crest = ImageDraw.Draw(picture)
        for k in (0, 1):
            level, half = y + height - dip + dip * (1 + 2 * k) // 3, width * (13 - 6 * k) // 24
            ends = (x + width // 2 - half, level, x + width // 2 + half, level)
            crest.line(ends, (158, 200, 214), max(1, round(unit)))


@lru_cache(maxsize=256)
def _exposure(light: int, vignette: int, pixels: int) -> NDArray[np.uint16]:
    """Gain of each pixel in 128ths (so that products fit 16 bits): the light, with darker corners."""
    at = 2 * np.arange(pixels) + 1 - pixels
    distance = (at[:, None] ** 2 + at[None, :] ** 2) * 256 // (2 * pixels * pixels)  # 0 in the centre, 256 in the corners
    gain = (256 - distance * distance // 256 * vignette // 256) * light // 200
    return np.repeat(gain, 3).astype(np.uint16)


def _exposed(image: Image.Image, light: int, style: Style, seed: int) -> Image.Image:
    """Apply light, vignette and noise from raw random bits (distributions of libraries may change)."""
    shift = style.noise + (image.width <= 128)  # a small picture averages over more of the sensor
    number = image.width * image.height * 3
    noise = np.random.PCG64(seed).random_raw(-(-number // 8)).view(np.uint8)[:number]
    values = np.frombuffer(image.tobytes(), np.uint8) * _exposure(light, style.vignette, image.width)
    values >>= 7
    values += noise >> shift
    middle = 128 >> shift
    np.clip(values, middle, 255 + middle, out=values)
    values -= middle
    return Image.frombytes("RGB", image.size, values.astype(np.uint8).tobytes())


def draw(scene: Scene, style: str = "camera", pixels: int = 256) -> Image.Image:
    """The picture of a scene, `pixels` wide and high, in the style "camera" or "generator".

    Small pictures are drawn twice as large and reduced, so that they look like reduced large ones. The regions of the
    picture are in its `info["regions"]` (see `regions`).

    >>> from crossmatch.diorama.scenes import Scene
    >>> draw(Scene("beach", (), frozenset(), light=100, seed=1), pixels=64).size
    (64, 64)
    """
    if style not in STYLES:
        raise CrossmatchError(f"there is no style {style!r}. Use one of: {', '.join(STYLES)}.")
    side = pixels * 2 if pixels <= 128 else pixels
    dice = Dice("picture", scene.seed)
    picture = backdrop(scene.setting, style, dice.below(VARIANTS), dice.chance(50), side).copy()
    for item in scene.objects:
        _place(picture, item, scene.setting, style, dice)
    if side != pixels:
        picture = picture.reduce(2)
    exposed = _exposed(picture, scene.light, STYLES[style], scene.seed)
    exposed.info["regions"] = regions(scene)
    return exposed
