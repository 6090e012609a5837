"""Silhouettes of objects: glyphs of icon fonts, and drawings of our own where no second font has one."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from crossmatch.data.errors import MissingDependencyError

if TYPE_CHECKING:
    from PIL import Image, ImageFont

SIDE = 256  # pixels of a mask's longer side
_FONTS = {"mdi6": "materialdesignicons6", "fa6": "fontawesome6-solid", "ph": "phosphor", "ri": "remixicon"}

# Our own pen. `+` paints and `-` erases; `m` after the shape repeats it mirrored about x = 50. The shapes, on a sheet
# of 100 x 100 (it may be overdrawn to 128): o = oval (centre, radii), O = ring (centre, radius, width), d and u = upper
# and lower half of an oval, r = rounded rectangle (left, top, right, bottom, radius), l = line (width, points),
# p = polygon (points), c = smooth closed curve through points.
DRAWINGS: dict[str, tuple[str, ...]] = {
    "elephant": (
        "+o 60 44 36 28", "+r 34 56 48 96 4", "+r 76 56 90 96 4", "+r 54 60 64 90 4", "+o 26 36 20 19",
        "+l 9 13 42 6 60 7 78 15 86", "-o 38 38 15 19", "+o 38 38 12 16", "-o 18 32 2.5 2.5",
        "+l 3.5 94 38 101 50 99 62",
    ),
    "rabbit": (
        "+o 62 68 28 25", "+o 30 48 18 15", "+c 26 38 20 8 28 2 35 10 36 36", "+c 36 40 38 12 47 4 53 12 45 44",
        "+o 92 70 9 9", "+r 30 58 43 95 6", "+r 50 85 86 95 5", "+p 32 52 62 44 62 84 36 80", "-o 24 45 2.8 2.8",
        "-l 2.5 62 64 74 62 82 70 80 82",
    ),
    "turtle": (
        "+d 46 62 38 40", "+r 4 60 88 69 4", "+o 94 46 11 9", "+l 10 80 64 92 50", "+r 18 62 34 86 6",
        "+r 60 62 76 86 6", "-o 98 44 2.2 2.2", "-l 3 8 60 82 60", "-l 3 32 26 38 42 26 58", "-l 3 60 26 54 42 66 58",
        "-l 3 38 42 54 42",
    ),
    "snail": (
        "+c 2 88 4 74 10 62 20 62 27 76 60 78 98 82 99 90 60 92 20 92", "+o 60 46 31 32", "+l 4 11 66 5 44",
        "+l 4 17 64 20 44", "+o 5 42 4 4", "+o 20 42 4 4", "-O 60 46 21 4", "-O 62 47 10 4", "-l 4 78 52 72 47",
    ),
    "bat": (
        "+pm 50 36 40 40 31 14 0 42 3 72 14 58 24 76 33 62 43 84 50 74", "+o 50 50 10 22", "+pm 50 34 40 18 44 36",
        "-om 46 38 1.8 2.4",
    ),
    "duck": (
        "+c 4 48 18 58 42 54 58 46 84 52 92 66 84 84 62 93 36 93 14 80", "+o 70 28 19 18",
        "+p 56 36 84 36 84 62 50 62", "+c 86 22 102 28 101 35 84 40", "-o 76 23 3.2 3.2",
        "-l 3.5 28 64 40 78 58 76 66 64",
    ),
    "penguin": (
        "+o 50 50 26 46", "+om 38 95 12 5", "+cm 28 34 14 52 10 72 16 74 28 58",
        "-c 36 30 44 24 50 32 56 24 64 30 66 64 50 86 34 64", "+om 43 32 3.4 3.4", "+p 44 38 56 38 50 47",
    ),
    "owl": (
        "+o 50 58 33 40", "+o 50 36 34 27", "+pm 50 26 16 2 20 42", "-om 36 38 12 12", "+om 36 38 6.5 6.5",
        "-p 45 48 55 48 50 60", "-lm 3 24 62 30 78 42 90", "+om 38 97 8 5", "-lm 2.5 50 74 44 70",
        "-lm 2.5 50 84 44 80",
    ),
    "butterfly": (
        "+cm 48 44 38 14 14 4 2 16 8 42 28 52", "+cm 48 52 26 54 12 68 18 90 34 94 46 74", "+o 50 52 4 30",
        "+lm 3 50 26 42 8 36 4", "-om 21 26 7 7", "-om 30 73 6 6", "-lm 2.5 44 24 44 84",
    ),
    "dolphin": (
        "+c 0 60 12 44 26 26 48 16 70 22 86 42 91 66 84 68 74 54 58 46 40 48 20 60 6 65", "+c 44 18 50 2 64 1 66 22",
        "+c 82 58 96 66 106 80 92 77 82 84 76 96 72 88 78 66", "+c 34 48 34 64 44 74 48 70 46 46", "-o 22 42 2.4 2.4",
    ),
    "jellyfish": (
        "+d 50 44 40 42", "+om 20 44 10 7", "+om 40 44 11 8", "+lm 5 20 48 16 62 24 76 18 94",
        "+lm 5 41 48 36 64 44 80 38 104", "-om 36 28 4 5", "-l 3 44 36 50 39 56 36",
    ),
    "table": ("+r 0 12 100 26 4", "+pm 10 26 22 26 18 72 10 72", "+r 16 26 84 34 1"),
    "bench": ("+r 4 6 96 17 4", "+r 4 22 96 33 4", "+r 0 42 100 52 4", "+rm 12 8 20 44 2", "+rm 8 50 18 76 2"),
    "dresser": (
        "+r 4 6 96 82 5", "+rm 10 80 20 94 2", "-l 3 10 31 90 31", "-l 3 10 56 90 56", "-l 3 50 10 50 78",
        "-om 27 19 4 4", "-om 27 44 4 4", "-om 27 68 4 4",
    ),
    "grapes": (
        "+o 18 36 11 11", "+o 40 36 11 11", "+o 62 36 11 11", "+o 29 54 11 11", "+o 51 54 11 11", "+o 40 72 11 11",
        "+o 40 90 10 10", "+l 4 40 30 42 10 50 4", "+c 42 18 58 2 82 8 70 22 54 24", "-O 18 36 12 1.6",
        "-O 40 36 12 1.6", "-O 62 36 12 1.6", "-O 29 54 12 1.6", "-O 51 54 12 1.6", "-O 40 72 12 1.6",
    ),
    "watermelon": (
        "+u 50 20 50 50", "-u 50 20 43 43", "+u 50 20 39 39", "+r 0 18 7 22 0", "-o 36 34 2.4 4", "-o 50 42 2.4 4",
        "-o 64 34 2.4 4", "-o 50 28 2.4 4", "-o 24 28 2.4 4", "-o 76 28 2.4 4",
    ),
    "shovel": (
        "+r 45 10 55 62 1", "+r 30 0 70 9 4", "+pm 31 4 39 4 50 20 44 26",
        "+c 26 56 50 53 74 56 75 78 64 96 50 104 36 96 25 78", "-l 3 50 62 50 88",
    ),
    "axe": ("+r 45 0 56 104 4", "+c 56 14 70 12 88 2 96 24 88 48 70 38 56 36", "+r 32 14 46 36 2", "-l 3 58 14 58 36"),
    "ladder": (
        "+pm 24 0 34 0 14 110 2 110", "+r 30 14 70 22 1", "+r 26 34 74 42 1", "+r 22 54 78 62 1", "+r 18 74 82 82 1",
        "+r 14 94 86 102 1",
    ),
    "skateboard": ("+l 8 4 34 16 44 84 44 96 34", "+om 27 60 11 11", "-om 27 60 4 4", "+rm 20 44 34 50 1"),
    "kite": (
        "+p 50 0 88 34 50 78 12 34", "-l 3 50 2 50 76", "-l 3 14 34 86 34", "+l 3.5 50 76 60 86 44 96 54 108",
        "+p 52 90 64 80 66 92", "+p 48 92 36 90 40 102",
    ),
    "balloon": ("+o 50 34 30 34", "+p 50 64 42 75 58 75", "+l 3.5 50 74 58 88 44 102 52 120", "-l 5 33 36 34 24 42 14"),
    "teddy-bear": (
        "+o 50 27 25 22", "+om 28 10 11 10", "+o 50 68 25 26", "+om 22 60 11 15", "+om 30 93 14 10", "-om 41 23 3 3",
        "-o 50 34 9 7", "+o 50 31 4 3", "-O 50 70 16 3", "-om 28 10 5 4.5", "-om 29 93 5 4",
    ),
    "tie": ("+p 34 0 66 0 59 17 41 17", "+p 42 21 58 21 70 84 50 104 30 84"),
    "candle": (
        "+r 36 42 64 96 2", "+c 50 0 62 18 60 31 50 36 40 31 38 18", "+r 48 34 52 44 0", "+r 20 88 80 99 5",
        "+O 84 88 9 5", "-c 44 46 48 64 52 54 56 46", "-o 50 27 3 5",
    ),
    "palm-tree": (
        "+p 46 40 55 40 53 70 58 104 44 104 46 70", "+cm 52 38 34 20 12 22 0 44 18 36 42 44",
        "+cm 52 36 42 8 22 0 8 8 28 14 46 38", "+cm 50 40 34 44 22 58 22 78 34 62 50 48", "+om 45 46 5.5 5.5",
    ),
    "fire-hydrant": (
        "+r 30 34 70 90 2", "+r 20 88 80 98 3", "+d 50 28 24 22", "+r 22 27 78 35 2", "+r 14 50 86 66 2",
        "+rm 8 46 16 70 2", "+r 45 0 55 10 2", "-o 50 58 10 10", "+o 50 58 5 5", "-l 3 32 40 68 40",
    ),
    "microwave": (
        "+r 0 14 100 76 5", "-r 8 22 68 68 4", "+r 11 25 65 65 3", "-r 74 22 92 36 2", "-o 83 50 6 6",
        "+rm 8 74 18 82 1", "-l 3 22 52 34 38", "-l 3 34 56 52 34",
    ),
    "washing-machine": (
        "+r 10 0 90 100 6", "-l 3 14 21 86 21", "-o 24 11 4.5 4.5", "-r 52 7 80 15 2", "-o 50 60 29 29",
        "+o 50 60 24 24", "-u 50 60 17 17",
    ),
}  # fmt: skip


def _folder() -> Path:
    """Folder of qtawesome's fonts. The package is not imported, because it would load Qt."""
    spec = importlib.util.find_spec("qtawesome")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError("Pillow and qtawesome", "diorama")
    return Path(spec.submodule_search_locations[0]) / "fonts"


@cache
def _font(name: str) -> tuple[ImageFont.FreeTypeFont, dict[str, str]]:
    """A font and its charmap (glyph name to hexadecimal code point)."""
    from PIL import ImageFont

    stem = _FONTS[name]
    (charmap,) = _folder().glob(f"{stem}*charmap*.json")
    (path,) = _folder().glob(f"{stem}*.ttf")
    font = ImageFont.truetype(str(path), 2 * SIDE, layout_engine=ImageFont.Layout.BASIC)
    return font, json.loads(charmap.read_text())


def _printed(name: str, glyph: str) -> Image.Image:
    from PIL import Image, ImageDraw

    font, charmap = _font(name)
    character = chr(int(charmap[glyph], 16))
    x0, y0, x1, y1 = font.getbbox(character)
    sheet = Image.new("L", (int(x1 - x0) + 4, int(y1 - y0) + 4))
    ImageDraw.Draw(sheet).text((2 - x0, 2 - y0), character, font=font, fill=255)
    return sheet


Point = tuple[float, float]


def _smooth(points: list[Point]) -> list[Point]:
    """The closed Catmull-Rom curve through `points`, eight steps per segment."""

    def between(a: float, b: float, c: float, d: float, t: float) -> float:
        return b + t / 2 * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))

    out = []
    for i in range(len(points)):
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = (points[(i + k) % len(points)] for k in (-1, 0, 1, 2))
        out += [(between(ax, bx, cx, dx, step / 8), between(ay, by, cy, dy, step / 8)) for step in range(8)]
    return out


def _drawn(drawing: str, scale: int = 8, margin: int = 14) -> Image.Image:
    from PIL import Image, ImageDraw

    sheet = Image.new("L", ((100 + 2 * margin) * scale,) * 2)
    pen = ImageDraw.Draw(sheet)
    for stroke in DRAWINGS[drawing]:
        word, *numbers = stroke.split()
        values, ink = [float(n) for n in numbers], 255 if word[0] == "+" else 0
        for mirror in (False, True)[: 2 if word.endswith("m") else 1]:

            def at(x: float, y: float, mirror: bool = mirror) -> Point:
                return ((100 - x if mirror else x) + margin) * scale, (y + margin) * scale

            def around(x: float, y: float, rx: float, ry: float) -> tuple[Point, Point]:
                (cx, cy) = at(x, y)
                return (cx - rx * scale, cy - ry * scale), (cx + rx * scale, cy + ry * scale)

            pairs = values[1:] if word[1] == "l" else values
            points = [at(x, y) for x, y in zip(pairs[::2], pairs[1::2], strict=False)]
            match word[1]:
                case "o":
                    pen.ellipse(around(*values), fill=ink)
                case "O":
                    x, y, radius, width = values
                    pen.ellipse(around(x, y, radius, radius), outline=ink, width=int(width * scale))
                case "d":
                    pen.pieslice(around(*values), 180, 360, fill=ink)
                case "u":
                    pen.pieslice(around(*values), 0, 180, fill=ink)
                case "r":
                    (x0, y0), (x1, y1) = points
                    pen.rounded_rectangle((min(x0, x1), y0, max(x0, x1), y1), values[4] * scale, fill=ink)
                case "l":
                    half = values[0] / 2 * scale
                    pen.line(points, fill=ink, width=int(2 * half), joint="curve")
                    for x, y in points:
                        pen.ellipse((x - half, y - half, x + half, y + half), fill=ink)
                case "p":
                    pen.polygon(points, fill=ink)
                case "c":
                    pen.polygon(_smooth(points), fill=ink)
    return sheet


@cache
def mask(glyph: str) -> Image.Image:
    """The silhouette `artist:name` or `artist:name@degrees`, white on black, cut to its bounds; longer side 256 pixels.

    >>> mask("mdi6:dog-side").mode, max(mask("mdi6:dog-side").size)
    ('L', 256)
    """
    from PIL import Image

    artist, _, rest = glyph.partition(":")
    name, _, turn = rest.partition("@")
    sheet = _drawn(name) if artist == "own" else _printed(artist, name)
    if turn:
        sheet = sheet.rotate(int(turn), Image.Resampling.BICUBIC, expand=True)
    sheet = sheet.point(lambda v: v if v > 8 else 0)
    sheet = sheet.crop(sheet.getbbox())
    longest = max(sheet.size)
    return sheet.resize((max(1, sheet.width * SIDE // longest), max(1, sheet.height * SIDE // longest)), Image.Resampling.BOX)
