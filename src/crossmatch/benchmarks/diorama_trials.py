"""The forced choices of the embedded world: BISON, BiVLC and SugarCrepe, with every cell confirmed by the truth."""

from __future__ import annotations

from crossmatch.core.benchmark import Benchmark, Count
from crossmatch.diorama.edits import CATEGORIES
from crossmatch.diorama.trials import bison, bivlc, sugarcrepe

WORLD = {"split": "test", "size": "default"}

DIORAMA_BISON = Benchmark(
    name="diorama/bison",
    about="two drawn scenes with similar captions and a caption that is true of the first one only",
    load=bison,
    metrics=("accuracy",),
    directions=("t2i",),
    options={**WORLD, "caption": "chosen"},
    expect={"trials": Count(1000, 1000)},
    licence="MIT",
    cite="hu2019bison",
)

DIORAMA_BIVLC = Benchmark(
    name="diorama/bivlc",
    about="a drawn scene and its caption against both after an edit, the edited scene drawn by another artist",
    load=bivlc,
    metrics=("i2t", "t2i", "group", "ipos2t", "ineg2t", "tpos2i", "tneg2i"),
    options=WORLD,
    expect={"trials": Count(1400, 1400)},
    licence="MIT",
    cite="miranda2024bivlc",
    categories=CATEGORIES,
)

DIORAMA_SUGARCREPE = Benchmark(
    name="diorama/sugarcrepe",
    about="a drawn scene, one of its captions, and an edit of the caption that is false of the scene",
    load=sugarcrepe,
    metrics=("accuracy",),
    directions=("i2t",),
    options=WORLD,
    expect={"trials": Count(1750, 1750)},
    licence="MIT",
    cite="hsieh2023sugarcrepe",
    categories=CATEGORIES,
)
