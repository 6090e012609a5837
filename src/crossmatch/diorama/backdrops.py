"""Backdrops of the eight settings, each painted in a few variants that are cached.

Lengths are thousandths of the picture's side. No object kind appears in a backdrop, so it never makes a caption true.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import chain

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from crossmatch.diorama.random_choices import Dice

RGB = tuple[int, int, int]
VARIANTS = 6  # backgrounds of each setting; each is also used mirrored


class Canvas:
    """A background under construction, at twice the largest picture size; lengths are thousandths."""

    side = 512

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.image = Image.new("RGB", (self.side, self.side))
        self.pen = ImageDraw.Draw(self.image)
        self.horizon = 480 + dice.between(-12, 12)

    def at(self, *lengths: int) -> list[int]:
        return [length * self.side // 1000 for length in lengths]

    def blend(self, top: int, bottom: int, above: RGB, below: RGB) -> None:
        """A vertical gradient between two heights."""
        y0, y1 = self.at(top, bottom)
        for y in range(y0, y1):
            part = (y - y0) * 256 // (y1 - y0)
            self.pen.line((0, y, self.side, y), mix(above, below, part))

    def box(self, x0: int, y0: int, x1: int, y1: int, colour: RGB) -> None:
        self.pen.rectangle(self.at(x0, y0, x1, y1), fill=colour)

    def disc(self, x: int, y: int, radius: int, colour: RGB, flat: int = 1) -> None:
        self.pen.ellipse(self.at(x - radius, y - radius // flat, x + radius, y + radius // flat), fill=colour)

    def path(self, points: list[tuple[int, int]], colour: RGB, width: int) -> None:
        self.pen.line(self.at(*chain.from_iterable(points)), fill=colour, width=max(1, width * self.side // 1000))

    def polygon(self, *points: tuple[int, int], colour: RGB) -> None:
        self.pen.polygon(self.at(*chain.from_iterable(points)), fill=colour)

    def hills(self, base: int, height: int, colour: RGB, step: int = 260) -> None:
        """A rolling skyline above `base`."""
        x = -self.dice.below(step)
        while x < 1000:
            width, rise = self.dice.between(step, step * 2), self.dice.between(height // 2, height)
            self.pen.ellipse(self.at(x, base - rise, x + width, base + rise), fill=colour)
            x += width * 6 // 10

    def glow(self, x: int, y: int, radius: int, colour: RGB, strength: int = 90) -> None:
        """A disc with a soft glow."""
        halo = Image.new("L", self.image.size)
        reach = radius * 3
        ImageDraw.Draw(halo).ellipse(self.at(x - reach, y - reach, x + reach, y + reach), fill=strength)
        self.image.paste(colour, mask=halo.filter(ImageFilter.BoxBlur(self.side // 16)))
        self.disc(x, y, radius, colour)

    def waves(self, top: int, bottom: int, colour: RGB, number: int) -> None:
        """Short crests, longer the nearer they are."""
        for _ in range(number):
            y = self.dice.between(top, bottom)
            near = 20 + (y - top) * 60 // (bottom - top)
            x = self.dice.between(-40, 1000)
            self.path([(x + near * k // 2, y - 4 * (k % 2)) for k in range(5)], colour, 4)


def mix(a: RGB, b: RGB, part: int) -> RGB:
    """`part` 256ths of the way from a to b."""
    return tuple(p + (q - p) * part // 256 for p, q in zip(a, b, strict=True))  # type: ignore[return-value]


def _cloud(c: Canvas, colour: RGB) -> None:
    x, y = c.dice.between(60, 940), c.dice.between(60, 260)
    for _ in range(5):
        c.disc(x + c.dice.between(-70, 70), y + c.dice.between(-8, 14), c.dice.between(26, 50), colour, 2)


def _beach(c: Canvas) -> None:
    c.blend(0, c.horizon, (92, 172, 232), (206, 232, 242))
    c.glow(c.dice.between(80, 920), c.dice.between(70, 160), 48, (255, 240, 160))
    c.blend(c.horizon, 650, (24, 112, 168), (70, 176, 190))
    c.waves(c.horizon + 20, 620, (190, 232, 236), 26)
    c.blend(640, 1000, (236, 212, 158), (214, 180, 118))
    shore = [(x, 640 + c.dice.between(-8, 10)) for x in range(-50, 1101, 50)]
    c.path([(x, y + 14) for x, y in shore], (200, 172, 118), 22)
    c.path(shore, (246, 250, 250), 16)
    for _ in range(150):
        c.disc(c.dice.below(1000), c.dice.between(690, 1000), 3, c.dice.pick([(198, 162, 104), (248, 230, 186)]))


def _street(c: Canvas) -> None:
    c.blend(0, c.horizon, (158, 182, 204), (222, 226, 226))
    x = -c.dice.below(80)
    while x < 1000:
        width, top = c.dice.between(90, 170), c.dice.between(110, 300)
        wall = c.dice.pick([(150, 132, 124), (128, 134, 146), (170, 152, 132), (140, 120, 116), (118, 128, 132)])
        c.box(x, top, x + width - 4, c.horizon + 30, wall)
        for wx in range(x + 16, x + width - 28, 34):
            for wy in range(top + 20, c.horizon - 40, 46):
                c.box(wx, wy, wx + 16, wy + 24, c.dice.pick([(74, 84, 98), (92, 104, 118), (206, 196, 150)]))
        x += width
    c.box(0, c.horizon, 1000, 610, (178, 174, 168))  # the pavement
    for x in range(-40, 1000, 110):
        c.path([(x + 30, c.horizon), (x, 606)], (154, 150, 146), 4)
    c.box(0, 600, 1000, 622, (206, 204, 198))  # the kerb
    c.blend(622, 1000, (128, 130, 134), (108, 110, 114))
    start = -c.dice.below(150)
    for x in range(start, 1000, 230):
        c.polygon((x + 20, 800), (x + 150, 800), (x + 140, 822), (x, 822), colour=(228, 224, 204))


def _room(c: Canvas) -> None:
    wall = c.dice.pick([(226, 214, 188), (206, 216, 206), (220, 204, 200), (204, 212, 222)])
    c.blend(0, 600, wall, mix(wall, (120, 110, 100), 40))
    for x in range(c.dice.between(10, 60), 1000, 74):
        c.box(x, 0, x + 26, 600, mix(wall, (255, 255, 255), 60))
    c.box(0, 586, 1000, 628, (244, 240, 230))  # the skirting board
    c.box(0, 624, 1000, 632, (140, 122, 104))
    y, height = 632, 44
    while y < 1000:
        plank = mix((176, 122, 74), (152, 98, 56), c.dice.below(200))
        c.box(0, y, 1000, y + height, plank)
        for x in range(-c.dice.below(300), 1000, 330):
            c.box(x, y, x + 330, y + height, mix(plank, (196, 144, 92), c.dice.below(130)))
            c.path([(x, y), (x, y + height)], (112, 70, 38), 4)
        c.path([(0, y), (1000, y)], (112, 70, 38), 4)
        y, height = y + height, height + 16


def _night(c: Canvas) -> None:
    c.blend(0, c.horizon, (14, 18, 52), (54, 58, 116))
    for _ in range(90):
        c.disc(c.dice.below(1000), c.dice.below(c.horizon - 40), c.dice.between(2, 4), (236, 236, 214))
    x, y = c.dice.between(100, 900), c.dice.between(80, 170)
    c.glow(x, y, 54, (244, 240, 212), 70)
    for dx, dy, r in ((-18, -12, 11), (16, 14, 14), (10, -24, 7)):
        c.disc(x + dx, y + dy, r, (220, 214, 184))
    c.hills(c.horizon, 90, (30, 34, 72))
    c.blend(c.horizon, 1000, (60, 74, 106), (78, 94, 118))
    for _ in range(60):
        x, y = c.dice.below(1000), c.dice.between(c.horizon + 40, 1000)
        c.path([(x, y), (x + 40, y)], (68, 84, 114), 5)


def _meadow(c: Canvas) -> None:
    c.blend(0, c.horizon, (118, 186, 240), (222, 240, 248))
    for _ in range(3):
        _cloud(c, (250, 252, 254))
    c.hills(c.horizon + 10, 110, (134, 182, 132), 340)
    c.hills(c.horizon + 20, 60, (112, 172, 92), 300)
    c.blend(c.horizon, 1000, (128, 186, 84), (86, 148, 56))
    for i in range(110):  # tufts of grass, from far to near
        y = c.horizon + 20 + i * (980 - c.horizon) // 110
        x, tall = c.dice.below(1000), 12 + (y - c.horizon) // 16
        for lean in (-1, 0, 1):
            colour = c.dice.pick([(70, 130, 46), (150, 204, 98)])
            c.path([(x + lean * 5, y), (x + lean * (8 + tall // 4), y - tall)], colour, 5)


def _desert(c: Canvas) -> None:
    c.blend(0, c.horizon, (238, 158, 104), (252, 222, 166))
    c.glow(c.dice.between(120, 880), c.dice.between(120, 220), 60, (255, 246, 206))
    c.hills(c.horizon + 10, 130, (214, 148, 92), 420)
    c.blend(c.horizon, 1000, (232, 172, 104), (206, 138, 76))
    for top, colour in ((520, (240, 188, 122)), (610, (222, 158, 92)), (730, (236, 178, 112)), (860, (216, 150, 86))):
        x, width, rise = c.dice.between(-400, 500), c.dice.between(900, 1300), c.dice.between(40, 80)
        shade = mix(colour, (170, 104, 56), 70)
        c.pen.ellipse(c.at(x, top - rise, x + width, top + rise * 3), fill=colour)
        c.pen.ellipse(c.at(x + width // 4, top - rise + 16, x + width * 5 // 4, top + rise * 3), fill=shade)
    for _ in range(26):  # ripples
        x, y = c.dice.below(1000), c.dice.between(600, 990)
        c.path([(x, y), (x + 40, y - 6), (x + 90, y)], (196, 130, 72), 4)


def _snow(c: Canvas) -> None:
    c.blend(0, c.horizon, (176, 192, 208), (222, 230, 238))
    for _ in range(5):
        x, top, half = c.dice.below(1000), c.dice.between(230, 380), c.dice.between(150, 260)
        cap = (c.horizon - top) // 3
        wide = half * cap // (c.horizon - top)
        c.polygon((x, top), (x + half, c.horizon), (x - half, c.horizon), colour=(150, 166, 186))
        under = top + cap
        c.polygon((x, top), (x + wide, under), (x, under - cap // 3), (x - wide, under), colour=(248, 250, 253))
    c.hills(c.horizon + 20, 70, (228, 236, 244), 420)
    c.blend(c.horizon, 1000, (240, 245, 250), (226, 235, 246))
    for top in (560, 690, 830):
        x, width = c.dice.between(-300, 400), c.dice.between(700, 1100)
        c.pen.ellipse(c.at(x, top - 30, x + width, top + 110), fill=(252, 254, 255))
        c.pen.ellipse(c.at(x + 40, top - 12, x + width + 40, top + 130), fill=(230, 238, 248))
    for _ in range(150):
        c.disc(c.dice.below(1000), c.dice.below(1000), c.dice.between(4, 9), (255, 255, 255))


def _lake(c: Canvas) -> None:
    c.blend(0, c.horizon, (142, 190, 226), (226, 236, 238))
    _cloud(c, (248, 250, 252))
    c.hills(c.horizon, 170, (134, 156, 176), 380)
    c.hills(c.horizon + 4, 80, (84, 122, 98), 260)
    c.blend(c.horizon, 870, (74, 140, 176), (30, 88, 134))
    c.box(0, c.horizon, 1000, c.horizon + 8, (56, 92, 92))
    c.waves(c.horizon + 24, 815, (150, 200, 220), 60)
    shore = [(x, 840 + c.dice.between(-12, 12)) for x in range(-50, 1101, 50)]
    c.polygon(*shore, (1100, 1000), (-50, 1000), colour=(136, 140, 92))
    c.path(shore, (206, 226, 224), 12)
    for _ in range(70):
        pebble = c.dice.pick([(112, 116, 74), (158, 156, 122)])
        c.disc(c.dice.below(1000), c.dice.between(866, 1000), c.dice.between(5, 14), pebble, 2)


_SETTINGS = {
    "beach": _beach, "street": _street, "room": _room, "night": _night,
    "meadow": _meadow, "desert": _desert, "snow": _snow, "lake": _lake,
}  # fmt: skip


@cache
def _background(setting: str, style: str, variant: int) -> Image.Image:
    canvas = Canvas(Dice("background", setting, variant))
    _SETTINGS[setting](canvas)
    image = canvas.image
    if style == "generator":  # smoother and more saturated, tinted towards violet
        image = image.filter(ImageFilter.BoxBlur(2))
    pixels = np.asarray(image).astype(np.int32)
    dice = Dice("hue", setting, variant)
    tint = np.array([dice.between(251, 261) for _ in range(3)])
    if style == "generator":
        grey = pixels.sum(axis=2, keepdims=True) // 3
        pixels = grey + (pixels - grey) * 350 // 256
        tint = tint + np.array([6, -8, 10])
    return Image.fromarray(np.clip(pixels * tint // 256, 0, 255).astype(np.uint8))


@lru_cache(maxsize=400)  # two sizes in one style, or one in both
def backdrop(setting: str, style: str, variant: int, mirrored: bool, pixels: int) -> Image.Image:
    image = _background(setting, style, variant).resize((pixels, pixels), Image.Resampling.BOX)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else image
