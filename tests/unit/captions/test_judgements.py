"""Readers of what people said: the counts of the real files, and files that are wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossmatch.captions.candidates import preferred, rated
from crossmatch.captions.judgements import STUDIES, composite, flickr8k_expert, pascal_50s, study
from crossmatch.captions.leave_out import plain
from crossmatch.captions.tokenise import tokenise
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.ratings import Preferences, Ratings

FLICKR8K = {
    "im1": {
        "ground_truth": ["A dog runs .", "The dog ."],
        "human_judgement": [
            {"caption": "a cat", "rating": 1.0},
            {"caption": "a cat", "rating": 2.0},
            {"caption": "a dog runs", "rating": 4.0},
        ],
    },
    "im2": {"ground_truth": ["A car ."], "human_judgement": [{"caption": "a car on a road", "rating": 3.0}]},
}


def written(path: Path, held: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(held if isinstance(held, str) else json.dumps(held), encoding="utf-8")
    return path


def test_flickr8k_expert_counts(real_data: Path) -> None:
    said = study("flickr8k-expert")
    assert isinstance(said, Ratings)
    assert len(set(said.images.tolist())) == 1_000
    assert (len(said), len(said.values)) == (5_664, 16_992)
    assert set(np.bincount(said.of).tolist()) == {3}
    assert Counter(said.values.tolist()) == {1: 9_796, 2: 4_997, 3: 1_686, 4: 513}
    assert {len(texts) for texts in said.references.values()} == {5}


def test_the_158_references_are_not_in_the_file_of_flickr8k_expert(real_data: Path) -> None:
    """5,822 candidates less 158: the rule finds none left, by letters nor by tokens."""
    said = study("flickr8k-expert")
    assert isinstance(said, Ratings)
    kept, found = rated(said)
    assert (found.excluded, len(kept)) == (0, 5_664)
    assert len(said) + 158 == 5_822
    known = {image: {tuple(tokenise(text)) for text in texts} for image, texts in said.references.items()}
    assert not any(tuple(tokenise(text)) in known[image] for image, text in zip(said.images, said.captions, strict=True))


def test_composite_counts(real_data: Path) -> None:
    said = study("composite")
    assert isinstance(said, Ratings)
    assert len(said) + said.unreferenced == 11_985
    assert said.unreferenced == 2_973  # Flickr30k's
    subsets = Counter(image.partition("/")[0] for image in said.images.tolist())
    assert subsets == {"coco": 6_021, "flickr8k": 2_991}
    assert len(set(said.images.tolist())) == 2_007 + 997
    _, found = rated(said)
    assert found.left_out == 3_004 + 12  # a person's caption of every image, and twelve of the machines' that are somebody's too
    sizes = Counter(len(found.references[i]) - len(said.references[found.images[i]]) for i in found.texts)
    assert set(sizes) <= {0, -1, -2}  # -2 where two people wrote the same
    assert sizes[0] == len(said) - 3_016


def test_pascal_50s_counts(real_data: Path) -> None:
    said = study("pascal-50s")
    assert isinstance(said, Preferences)
    assert Counter(said.groups.tolist()) == {"HC": 1_000, "HI": 1_000, "HM": 1_000, "MM": 1_000}
    assert {len(texts) for texts in said.references} == {5}
    assert len(preferred(said).texts) == 8_000
    assert len(preferred(said).documents) == 1_000


def test_studies_read_what_they_declare(tmp_path: Path) -> None:
    names = [each.name for each in STUDIES]
    assert len(set(names)) == len(names)
    for each in STUDIES:
        for file in each.files:
            with pytest.raises(CrossmatchError, match=f"{each.name} needs {file}.*Put it at {tmp_path / file}"):
                study(each.name, tmp_path)
            written(tmp_path / file, "")
        for file in each.files:
            (tmp_path / file).unlink()
    with pytest.raises(WrongWords, match="no study 'flicker'"):
        study("flicker", tmp_path)


def test_flickr8k_and_the_rule_for_references(tmp_path: Path) -> None:
    said = flickr8k_expert(written(tmp_path / "f.json", FLICKR8K))
    assert said.ids.tolist() == ["im1#0", "im1#1", "im2#0"]
    assert said.values.tolist() == [1, 2, 4, 3]
    kept, found = rated(said)
    assert found.excluded == 1
    assert kept.ids.tolist() == ["im1#0", "im2#0"]
    assert kept.values.tolist() == [1, 2, 3]


def test_letters_and_digits_say_what_is_equal() -> None:
    assert plain("A man's T-shirt, 20 years old!") == plain("a mans t shirt 20 years old .")
    assert plain("a dog") != plain("a hog")
    assert plain("😀") != plain("😀😀")  # nothing but signs: the signs are compared


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ([], "a json object that is not empty"),
        ({}, "a json object that is not empty"),
        ("{", "is not a json file"),
        ({"im9": {"human_judgement": []}}, "image 'im9' cannot be read .KeyError"),
        ({"im9": {"ground_truth": ["a"], "human_judgement": [{"caption": "b", "rating": "good"}]}}, "image 'im9' cannot be read"),
        ({"im9": {"ground_truth": ["a"], "human_judgement": [{"caption": "b", "rating": 5}]}}, "candidate 'im9#0' is rated 5"),
        ({"im9": {"ground_truth": [], "human_judgement": [{"caption": "b", "rating": 3}]}}, "references of image 'im9'"),
    ],
)
def test_wrong_flickr8k(held: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(CrossmatchError, match=message):
        flickr8k_expert(written(tmp_path / "f.json", held))


COMPOSITE = "subset\timage_key\tcaption\thuman_1to5\nflickr8k\tim1\tA dog runs.\t5\ncoco\t9\ta bus\t2\nflickr30k\t3\ta bike\t1\n"
KARPATHY = 'caption_id\timage_id\tcaption\n1\t9\tA "red" bus\n2\t9\tThe bus\n3\t4\ta train\n'


def test_composite_takes_references_from_two_files(tmp_path: Path) -> None:
    flickr8k, karpathy = written(tmp_path / "f.json", FLICKR8K), written(tmp_path / "k.tsv", KARPATHY)
    said = composite(written(tmp_path / "c.tsv", COMPOSITE), flickr8k, karpathy)
    assert said.images.tolist() == ["flickr8k/im1", "coco/9"]
    assert said.unreferenced == 1
    _, found = rated(said)
    assert found.references == {"flickr8k/im1#0": ["The dog ."], "coco/9#0": ['A "red" bus', "The bus"]}
    assert found.left_out == 1
    for text, message in (
        (COMPOSITE.replace("\t2\n", "\tgood\n"), "image 'coco/9': the rating is 'good'"),
        (COMPOSITE.replace("\t2\n", "\n"), "line 3 is cut short"),
        (COMPOSITE.replace("human_1to5", "stars"), "has the columns"),
    ):
        with pytest.raises(CrossmatchError, match=message):
            composite(written(tmp_path / "c.tsv", text), flickr8k, karpathy)


PAIR: dict[str, Any] = {"image": "a.jpg", "captions": ["a dog", "a cat"], "references": ["the dog"], "label": 0}


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"HC": []}, "holds no pairs"),
        ({"HC": [{**PAIR, "label": 2}]}, "pair 'HC/0' prefers caption 2"),
        ({"HC": [PAIR, {"image": "a.jpg"}]}, "pair HC/1 cannot be read .KeyError"),
        ({"HC": [{**PAIR, "captions": ["a dog"]}]}, "captions of pair 'HC/0'"),
        ({"HC": [{**PAIR, "references": "a dog"}]}, "references of pair 'HC/0'"),
    ],
)
def test_wrong_pascal(held: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(CrossmatchError, match=message):
        pascal_50s(written(tmp_path / "p.json", held))
