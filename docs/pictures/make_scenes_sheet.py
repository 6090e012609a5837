"""Draw docs/pictures/scenes.jpg: twelve scenes of diorama with their captions, so that a person can check them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from crossmatch.diorama.drawing import draw
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, Diorama

SIDE, GAP, TEXT, COLUMNS = 232, 14, 212, 4


def draw_sheet(first: int = 0, scenes: int = 12) -> Image.Image:
    """The first scenes of the test split; the last four are in the generator style."""
    world = Diorama.make("test", images=first + scenes)
    width, height = COLUMNS * (SIDE + GAP) + GAP, -(-scenes // COLUMNS) * (SIDE + TEXT + GAP) + GAP
    page = Image.new("RGB", (width, height), "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(size=11)
    for n in range(scenes):
        x, y = GAP + n % COLUMNS * (SIDE + GAP), GAP + n // COLUMNS * (SIDE + TEXT + GAP)
        style = "camera" if n < scenes - COLUMNS else "generator"
        page.paste(draw(world.scenes[first + n], style, SIDE), (x, y))
        captions = world.captions[(first + n) * CAPTIONS_PER_SCENE :][:CAPTIONS_PER_SCENE]
        lines = [line for c in captions for line in textwrap.wrap(c.text, 42, initial_indent="· ", subsequent_indent="  ")]
        pen.multiline_text((x, y + SIDE + 6), "\n".join(lines), fill="#1d2733", font=font, spacing=2)
    return page


if __name__ == "__main__":
    draw_sheet().save(Path(__file__).with_name("scenes.jpg"), quality=88, optimize=True)
