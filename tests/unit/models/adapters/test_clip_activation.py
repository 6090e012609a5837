"""The activation of a checkpoint: all evidence, and every row of the decision tables."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from crossmatch.data.errors import CrossmatchError
from crossmatch.models.baselines.text_encoders import hash_file

pytest.importorskip("torch")

from crossmatch.models.adapters import clip_activation as act
from crossmatch.models.files.checkpoint_files import Checkpoint

TABLE = {"openai": {"quick_gelu": True}, "laion2b": {}}


@pytest.mark.parametrize(
    ("metadata", "expected"),
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
def test_training_arguments_are_evidence_of_the_activation(metadata: dict[str, Any], expected: tuple[str, bool] | None) -> None:
    evidence = act.find_activation(Path("run.pt"), Checkpoint({}, metadata), TABLE)
    assert (evidence and (evidence.activation, evidence.is_certain)) == expected


def test_released_file_is_recognised_by_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(b"weights")
    mark = hash_file(path)[:8]
    named = tmp_path / f"vit-{mark}.pt"
    named.write_bytes(b"weights")
    table = {"a": {"url": f"https://example.org/vit-{mark}.pt", "quick_gelu": True}, "b": {"url": "https://example.org/other.pt"}}
    assert act.find_activation(named, Checkpoint({}), table) == act.ActivationEvidence(
        "quickgelu", "the released weights 'a'", is_certain=True
    )
    named.write_bytes(b"other weights")
    assert act.find_activation(named, Checkpoint({}), table) is None


CERTAIN, UNCERTAIN = (act.ActivationEvidence("quickgelu", "why", is_certain) for is_certain in (True, False))


@pytest.mark.parametrize(
    ("default", "requested", "evidence", "loaded", "note_count"),
    [
        ("gelu", None, CERTAIN, "quickgelu", 1),
        ("gelu", None, UNCERTAIN, "quickgelu", 1),
        ("quickgelu", None, CERTAIN, "quickgelu", 0),
        ("gelu", "quickgelu", CERTAIN, "quickgelu", 0),
        ("gelu", "quickgelu", None, "quickgelu", 0),
        ("gelu", "gelu", None, "gelu", 0),
        ("gelu", "gelu", UNCERTAIN, "gelu", 1),
        ("gelu", "gelu", CERTAIN, None, 0),
        ("gelu", None, None, None, 0),
    ],
)
def test_activation_follows_the_decision_table(
    default: str, requested: str | None, evidence: Any, loaded: str | None, note_count: int
) -> None:
    if loaded is None:
        with pytest.raises(CrossmatchError):
            act.choose_activation("x", default, requested, evidence)
    else:
        activation, notes = act.choose_activation("x", default, requested, evidence)
        assert (activation, len(notes)) == (loaded, note_count)


@pytest.mark.parametrize("name", ["clip.pt", "signmix.pt", "magnmodel.pt", "coco_captions.pt"])
def test_other_file_names_are_no_evidence(name: str) -> None:
    assert act.evidence_from_file_name(Path(name), Checkpoint({}), {}) is None


DESCRIBED_QUICKGELU, DESCRIBED_GELU = (act.ActivationEvidence(activation, "told") for activation in ("quickgelu", "gelu"))


@pytest.mark.parametrize(
    ("described", "evidence", "requested", "expected"),
    [
        (DESCRIBED_GELU, None, None, ("gelu", False)),
        (DESCRIBED_QUICKGELU, CERTAIN, None, ("quickgelu", True)),
        (DESCRIBED_QUICKGELU, UNCERTAIN, None, ("quickgelu", False)),
        (DESCRIBED_GELU, CERTAIN, None, ("quickgelu", True)),
        (DESCRIBED_GELU, CERTAIN, "gelu", ("quickgelu", True)),
        (DESCRIBED_GELU, UNCERTAIN, "gelu", ("quickgelu", False)),
        (DESCRIBED_GELU, UNCERTAIN, "quickgelu", ("gelu", False)),
        (DESCRIBED_QUICKGELU, act.ActivationEvidence("gelu", "why", is_certain=True), "quickgelu", ("gelu", False)),
        (DESCRIBED_QUICKGELU, act.ActivationEvidence("gelu", "why", is_certain=True), None, None),
        (DESCRIBED_GELU, UNCERTAIN, None, None),
    ],
)
def test_description_and_evidence_are_reconciled(
    described: Any, evidence: Any, requested: str | None, expected: tuple[str, bool] | None
) -> None:
    if expected is None:
        with pytest.raises(CrossmatchError, match="Say which: open_clip:x,quickgelu or open_clip:x,gelu"):
            act.reconcile_evidence("x", described, evidence, requested)
    else:
        agreed = act.reconcile_evidence("x", described, evidence, requested)
        assert (agreed.activation, agreed.is_certain) == expected
