"""Which activation a checkpoint is loaded with: every clue and every row of the table of decisions."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from crossmatch.core.errors import CrossmatchError
from crossmatch.models.text import file_hash

pytest.importorskip("torch")

from crossmatch.models import activation as act
from crossmatch.models.stored import Stored

TABLE = {"openai": {"quick_gelu": True}, "laion2b": {}}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"args": argparse.Namespace(model="ViT-B-32-quickgelu", pretrained="")}, ("quickgelu", True)),
        ({"args": {"model": "ViT-B-32", "force_quick_gelu": True}}, ("quickgelu", True)),
        ({"args": {"model": "ViT-B-32", "pretrained": "openai"}}, ("quickgelu", False)),
        ({"args": {"model": "ViT-B-32", "pretrained": "LAION2b"}}, ("gelu", False)),
        ({"args": {"model": "ViT-B-32", "pretrained": ""}}, ("gelu", True)),
        ({"args": {"model": "ViT-B-32", "pretrained": "", "resume": "/some/file.pt"}}, None),
        ({"args": {"model": "ViT-B-32", "pretrained": "openai", "resume": "/some/file.pt"}}, None),
        ({"args": {"model": "ViT-B-32", "pretrained": "", "resume": None}}, ("gelu", True)),
        ({"args": {"model": "ViT-B-32", "force_quick_gelu": True, "resume": "/some/file.pt"}}, ("quickgelu", True)),
        ({"args": {"model": "roberta-ViT-B-32", "pretrained": ""}}, ("quickgelu", True)),
        ({"args": {"model": "ViT-B-32", "pretrained": "/some/file.pt"}}, None),
        ({"args": {"model": "ViT-B-32"}}, None),
        ({"name": "2024-model_ViT-B-32-quickgelu-lr_1e-06"}, ("quickgelu", True)),
        ({"name": "2024-model_ViT-B-32-lr_1e-06"}, None),
        ({}, None),
    ],
)
def test_what_the_arguments_of_a_training_tell(told: dict[str, Any], expected: tuple[str, bool] | None) -> None:
    found = act.trained_with(Path("run.pt"), Stored({}, told), TABLE)
    assert (found and (found.activation, found.sure)) == expected


def test_a_released_file_is_known_by_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(b"weights")
    mark = file_hash(path)[:8]
    named = tmp_path / f"vit-{mark}.pt"
    named.write_bytes(b"weights")
    table = {"a": {"url": f"https://example.org/vit-{mark}.pt", "quick_gelu": True}, "b": {"url": "https://example.org/other.pt"}}
    assert act.trained_with(named, Stored({}), table) == act.Trained("quickgelu", "the released weights 'a'", sure=True)
    named.write_bytes(b"other weights")
    assert act.trained_with(named, Stored({}), table) is None


SURE, UNSURE = (act.Trained("quickgelu", "why", sure) for sure in (True, False))


@pytest.mark.parametrize(
    ("usual", "asked", "known", "loaded", "said"),
    [
        ("gelu", None, SURE, "quickgelu", 1),
        ("gelu", None, UNSURE, "quickgelu", 1),
        ("quickgelu", None, SURE, "quickgelu", 0),
        ("gelu", "quickgelu", SURE, "quickgelu", 0),
        ("gelu", "quickgelu", None, "quickgelu", 0),
        ("gelu", "gelu", None, "gelu", 0),
        ("gelu", "gelu", UNSURE, "gelu", 1),
        ("gelu", "gelu", SURE, None, 0),
        ("gelu", None, None, None, 0),
    ],
)
def test_the_table_of_decisions(usual: str, asked: str | None, known: Any, loaded: str | None, said: int) -> None:
    if loaded is None:
        with pytest.raises(CrossmatchError):
            act.decided("x", usual, asked, known)
    else:
        found, notes = act.decided("x", usual, asked, known)
        assert (found, len(notes)) == (loaded, said)


@pytest.mark.parametrize("name", ["clip.pt", "signmix.pt", "magnmodel.pt", "coco_captions.pt"])
def test_other_names_tell_nothing(name: str) -> None:
    assert act.by_name(Path(name), Stored({}), {}) is None


QUICK, PLAIN = (act.Trained(how, "told") for how in ("quickgelu", "gelu"))


@pytest.mark.parametrize(
    ("told", "found", "asked", "known"),
    [
        (PLAIN, None, None, ("gelu", False)),
        (QUICK, SURE, None, ("quickgelu", True)),
        (QUICK, UNSURE, None, ("quickgelu", False)),
        (PLAIN, SURE, None, ("quickgelu", True)),
        (PLAIN, SURE, "gelu", ("quickgelu", True)),
        (PLAIN, UNSURE, "gelu", ("quickgelu", False)),
        (PLAIN, UNSURE, "quickgelu", ("gelu", False)),
        (QUICK, act.Trained("gelu", "why", sure=True), "quickgelu", ("gelu", False)),
        (QUICK, act.Trained("gelu", "why", sure=True), None, None),
        (PLAIN, UNSURE, None, None),
    ],
)
def test_a_description_and_a_clue(told: Any, found: Any, asked: str | None, known: tuple[str, bool] | None) -> None:
    if known is None:
        with pytest.raises(CrossmatchError, match="Say which: open_clip:x,quickgelu or open_clip:x,gelu"):
            act.agreed("x", told, found, asked)
    else:
        agreed = act.agreed("x", told, found, asked)
        assert (agreed.activation, agreed.sure) == known
