"""Loaders of published studies: counts of the real files, and invalid files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossmatch.captions.corpus import normalise_caption
from crossmatch.captions.human.published_ratings import (
    PUBLISHED_STUDIES,
    load_composite,
    load_flickr8k_expert,
    load_pascal_50s,
    load_ratings,
)
from crossmatch.captions.human.score_judged_captions import prepare_preferences, prepare_ratings
from crossmatch.captions.ptb_tokenizer import tokenise
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.ratings import Preferences, Ratings

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


def write_file(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_flickr8k_expert_has_its_counts(real_data: Path) -> None:
    judged = load_ratings("flickr8k-expert")
    assert isinstance(judged, Ratings)
    assert len(set(judged.images.tolist())) == 1_000
    assert (len(judged), len(judged.values)) == (5_664, 16_992)
    assert set(np.bincount(judged.candidate_of_rating).tolist()) == {3}
    assert Counter(judged.values.tolist()) == {1: 9_796, 2: 4_997, 3: 1_686, 4: 513}
    assert {len(texts) for texts in judged.references.values()} == {5}


def test_flickr8k_expert_file_lacks_the_158_references(real_data: Path) -> None:
    """5,822 candidates minus 158: none is left, by letters or by tokens."""
    judged = load_ratings("flickr8k-expert")
    assert isinstance(judged, Ratings)
    remaining, prepared = prepare_ratings(judged)
    assert (prepared.excluded, len(remaining)) == (0, 5_664)
    assert len(judged) + 158 == 5_822
    tokens_of_references = {image: {tuple(tokenise(text)) for text in texts} for image, texts in judged.references.items()}
    assert not any(
        tuple(tokenise(text)) in tokens_of_references[image] for image, text in zip(judged.images, judged.captions, strict=True)
    )


def test_composite_has_its_counts(real_data: Path) -> None:
    judged = load_ratings("composite")
    assert isinstance(judged, Ratings)
    assert len(judged) + judged.unreferenced == 11_985
    assert judged.unreferenced == 2_973  # Flickr30k's
    subsets = Counter(image.partition("/")[0] for image in judged.images.tolist())
    assert subsets == {"coco": 6_021, "flickr8k": 2_991}
    assert len(set(judged.images.tolist())) == 2_007 + 997
    _, prepared = prepare_ratings(judged)
    assert prepared.left_out == 3_004 + 12  # the human caption of every image, and twelve generated ones that equal a reference
    sizes = Counter(len(prepared.references[i]) - len(judged.references[prepared.images[i]]) for i in prepared.texts)
    assert set(sizes) <= {0, -1, -2}  # -2 where two people wrote the same
    assert sizes[0] == len(judged) - 3_016


def test_pascal_50s_has_its_counts(real_data: Path) -> None:
    judged = load_ratings("pascal-50s")
    assert isinstance(judged, Preferences)
    assert Counter(judged.groups.tolist()) == {"HC": 1_000, "HI": 1_000, "HM": 1_000, "MM": 1_000}
    assert {len(texts) for texts in judged.references} == {5}
    assert len(prepare_preferences(judged).texts) == 8_000
    assert len(prepare_preferences(judged).references_by_image) == 1_000


def test_missing_files_are_named(tmp_path: Path) -> None:
    names = [declared.name for declared in PUBLISHED_STUDIES]
    assert len(set(names)) == len(names)
    for declared in PUBLISHED_STUDIES:
        for file in declared.files:
            with pytest.raises(CrossmatchError, match=f"{declared.name} needs {file}.*Copy it to {tmp_path / file}"):
                load_ratings(declared.name, tmp_path)
            write_file(tmp_path / file, "")
        for file in declared.files:
            (tmp_path / file).unlink()
    with pytest.raises(UsageError, match="--judgements flicker: expected"):
        load_ratings("flicker", tmp_path)


def test_flickr8k_excludes_references(tmp_path: Path) -> None:
    judged = load_flickr8k_expert(write_file(tmp_path / "f.json", FLICKR8K))
    assert judged.ids.tolist() == ["im1#0", "im1#1", "im2#0"]
    assert judged.values.tolist() == [1, 2, 4, 3]
    remaining, prepared = prepare_ratings(judged)
    assert prepared.excluded == 1
    assert remaining.ids.tolist() == ["im1#0", "im2#0"]
    assert remaining.values.tolist() == [1, 2, 3]


def test_captions_are_compared_by_letters_and_digits() -> None:
    assert normalise_caption("A man's T-shirt, 20 years old!") == normalise_caption("a mans t shirt 20 years old .")
    assert normalise_caption("a dog") != normalise_caption("a hog")
    assert normalise_caption("😀") != normalise_caption("😀😀")  # without letters, symbols are compared


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected a non-empty json object"),
        ({}, "expected a non-empty json object"),
        ("{", "is not a JSON file"),
        ({"im9": {"human_judgement": []}}, "image 'im9' has no ground_truth"),
        (
            {"im9": {"ground_truth": ["a"], "human_judgement": [{"caption": "b", "rating": "good"}]}},
            "image 'im9': expected a number as rating, got 'good'",
        ),
        ({"im9": {"ground_truth": ["a"], "human_judgement": [{"caption": "b", "rating": 5}]}}, "'im9#0' has the rating 5"),
        ({"im9": {"ground_truth": [], "human_judgement": [{"caption": "b", "rating": 3}]}}, "references of image 'im9'"),
    ],
)
def test_invalid_flickr8k_files_are_refused(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(CrossmatchError, match=message):
        load_flickr8k_expert(write_file(tmp_path / "f.json", content))


COMPOSITE = "subset\timage_key\tcaption\thuman_1to5\nflickr8k\tim1\tA dog runs.\t5\ncoco\t9\ta bus\t2\nflickr30k\t3\ta bike\t1\n"
KARPATHY = 'caption_id\timage_id\tcaption\n1\t9\tA "red" bus\n2\t9\tThe bus\n3\t4\ta train\n'


def test_composite_takes_references_from_two_files(tmp_path: Path) -> None:
    flickr8k, karpathy = write_file(tmp_path / "f.json", FLICKR8K), write_file(tmp_path / "k.tsv", KARPATHY)
    judged = load_composite(write_file(tmp_path / "c.tsv", COMPOSITE), flickr8k, karpathy)
    assert judged.images.tolist() == ["flickr8k/im1", "coco/9"]
    assert judged.unreferenced == 1
    _, prepared = prepare_ratings(judged)
    assert prepared.references == {"flickr8k/im1#0": ["The dog ."], "coco/9#0": ['A "red" bus', "The bus"]}
    assert prepared.left_out == 1
    for text, message in (
        (COMPOSITE.replace("\t2\n", "\tgood\n"), "image 'coco/9': expected a number as rating, got 'good'"),
        (COMPOSITE.replace("\t2\n", "\n"), "line 3: missing cells"),
        (COMPOSITE.replace("human_1to5", "stars"), "expected columns"),
    ):
        with pytest.raises(CrossmatchError, match=message):
            load_composite(write_file(tmp_path / "c.tsv", text), flickr8k, karpathy)


PAIR: dict[str, Any] = {"image": "a.jpg", "captions": ["a dog", "a cat"], "references": ["the dog"], "label": 0}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"HC": []}, "has no pairs"),
        ({"HC": [{**PAIR, "label": 2}]}, "'HC/0' prefers caption 2"),
        ({"HC": [PAIR, {"image": "a.jpg"}]}, "pair HC/1 has no captions"),
        ({"HC": [{**PAIR, "captions": ["a dog"]}]}, "captions of pair 'HC/0'"),
        ({"HC": [{**PAIR, "references": "a dog"}]}, "references of pair 'HC/0'"),
    ],
)
def test_invalid_pascal_files_are_refused(content: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(CrossmatchError, match=message):
        load_pascal_50s(write_file(tmp_path / "p.json", content))
