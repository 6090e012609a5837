"""Draw the table of kinds: every kind in both styles, its name below. `python make_kinds_sheet.py [kinds.png]`"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from crossmatch.diorama.glyphs import mask
from crossmatch.diorama.kinds import KINDS, Kind

CELL, GAP, LABEL, COLUMNS = 60, 8, 16, 10
INKS = ((30, 40, 84), (150, 44, 20))  # camera, generator


def stand(sheet: Image.Image, kind: Kind, glyph: str, ink: tuple[int, int, int], x: int, y: int) -> None:
    """Put a silhouette on the bottom of a cell, stretched to the kind's aspect."""
    width, height = (CELL, round(CELL / kind.aspect)) if kind.aspect > 1 else (round(CELL * kind.aspect), CELL)
    shape = mask(glyph).resize((width, height), Image.Resampling.BILINEAR)
    sheet.paste(ink, (x + (CELL - width) // 2, y + CELL - height), shape)


def sheet_of(kinds: tuple[Kind, ...]) -> Image.Image:
    wide, high = 2 * CELL + 3 * GAP, CELL + LABEL + 2 * GAP
    sheet = Image.new("RGB", (COLUMNS * wide, -(-len(kinds) // COLUMNS) * high), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(12)
    for i, kind in enumerate(kinds):
        x, y = i % COLUMNS * wide + GAP, i // COLUMNS * high + GAP
        stand(sheet, kind, kind.camera, INKS[0], x, y)
        stand(sheet, kind, kind.generator, INKS[1], x + CELL + GAP, y)
        pen.text((x + CELL + GAP // 2, y + CELL + 3), kind.name, fill="black", font=font, anchor="ma")
    return sheet


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("kinds.png")
    sheet_of(KINDS).quantize(32).save(target, optimize=True)
    print(f"{target}: {len(KINDS)} kinds, {target.stat().st_size // 1000} kB")
