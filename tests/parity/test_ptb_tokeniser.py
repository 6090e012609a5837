"""The tokeniser against Stanford's, which pycocoevalcap carries as a jar. Needs Java."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from crossmatch.captions.ptb_tokenizer import tokenise

pytest.importorskip("pycocoevalcap", reason="the peer is not installed; install crossmatch[dev]")
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

pytestmark = pytest.mark.skipif(
    shutil.which("java") is None and not os.environ.get("CI"), reason="Stanford's tokeniser needs Java; install a JRE"
)

HAND = [line.split("\t")[0] for line in (Path(__file__).parents[1] / "unit/captions/tokens.tsv").read_text().splitlines()]


def stanford(captions: Sequence[str]) -> list[str]:
    tokenised = PTBTokenizer().tokenize({n: [{"caption": caption}] for n, caption in enumerate(captions)})
    return [tokenised[n][0] for n in range(len(captions))]


def stanford_alone(captions: Sequence[str]) -> list[str]:
    """Each caption followed by a line that cannot start a sentence, so that no caption changes the one before."""
    return stanford([line for caption in captions for line in (caption, "end")])[::2]


@pytest.fixture(scope="module")
def real_captions(real_data_folder: Path) -> list[str]:
    with (real_data_folder / "coco/karpathy_test_captions.tsv").open(newline="") as file:
        karpathy = [row["caption"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    val = [row["caption"] for row in json.loads((real_data_folder / "coco/captions_val2017.json").read_text())["annotations"]]
    return karpathy + val


def test_examples_equal_stanford() -> None:
    for caption, theirs in zip(HAND, stanford_alone(HAND), strict=True):
        assert " ".join(tokenise(caption)) == theirs.replace("\u00a0", " "), caption


def test_real_captions_equal_stanford(real_captions: list[str]) -> None:
    """At least 99.9 % are identical; the rest are the two differences that `tokenise` declares, and no others."""
    assert len(real_captions) == 50_014
    ours = [" ".join(tokenise(caption)) for caption in real_captions]
    rest = [n for n, theirs in enumerate(stanford(real_captions)) if ours[n] != theirs]
    print(*(real_captions[n] for n in rest), sep="\n")
    assert 1 - len(rest) / len(real_captions) >= 0.9998
    alone = stanford_alone([real_captions[n] for n in rest])
    assert [ours[n] for n in rest] == [theirs.replace("\u00a0", " ") for theirs in alone]
