"""Draw docs/pictures/kinds.png: every kind of object of diorama in both styles, with its name.

python docs/pictures/make_kinds_sheet.py [FILE]
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from crossmatch.diorama.glyphs import mask
from crossmatch.diorama.object_kinds import KINDS, Kind

CELL, GAP, LABEL, COLUMNS = 60, 8, 16, 10
INKS = ((30, 40, 84), (150, 44, 20))  # camera, generator


def paste_glyph(sheet: Image.Image, kind: Kind, glyph: str, ink: tuple[int, int, int], x: int, y: int) -> None:
    """Paste a silhouette at the bottom of a cell, with the aspect ratio of its kind."""
    width, height = (CELL, round(CELL / kind.aspect)) if kind.aspect > 1 else (round(CELL * kind.aspect), CELL)
    shape = mask(glyph).resize((width, height), Image.Resampling.BILINEAR)
    sheet.paste(ink, (x + (CELL - width) // 2, y + CELL - height), shape)


def draw_sheet(kinds: tuple[Kind, ...]) -> Image.Image:
    wide, high = 2 * CELL + 3 * GAP, CELL + LABEL + 2 * GAP
    sheet = Image.new("RGB", (COLUMNS * wide, -(-len(kinds) // COLUMNS) * high), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for i, kind in enumerate(kinds):
        x, y = i % COLUMNS * wide + GAP, i // COLUMNS * high + GAP
        paste_glyph(sheet, kind, kind.camera, INKS[0], x, y)
        paste_glyph(sheet, kind, kind.generator, INKS[1], x + CELL + GAP, y)
        pen.text((x + CELL + GAP // 2, y + CELL + 3), kind.name, fill="black", font=font, anchor="ma")
    return sheet


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("kinds.png")
    draw_sheet(KINDS).quantize(32).save(target, optimize=True)
    print(f"{target}: {len(KINDS)} kinds, {target.stat().st_size // 1000} kB")
