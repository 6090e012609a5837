"""Which activation function a CLIP was trained with. Weights do not say it, and with the wrong one every score is slightly wrong.

OpenAI trained with QuickGELU, x · σ(1.702 x), as was everything that was fine-tuned from its weights; most later weights of
open_clip use GELU. open_clip uses GELU for `ViT-B-32` and QuickGELU for `ViT-B-32-quickgelu`, whatever the weights are, and loads
a local file into either without a warning. So does the released evaluation code of NegCLIP, which loads it with GELU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.baselines.text_encoders import hash_file
from crossmatch.models.files.checkpoint_files import Checkpoint

QUICKGELU, GELU = "quickgelu", "gelu"
SUFFIX = f"-{QUICKGELU}"
DISPLAY_NAMES = {QUICKGELU: "QuickGELU", GELU: "GELU"}
IMPLICIT_QUICKGELU = ("roberta-ViT-B-32",)  # open_clip builds these with QuickGELU, though the name does not say so
ReleasedWeights = Mapping[str, Mapping[str, Any]]  # the released weights of an architecture by tag, as open_clip lists them


@dataclass(frozen=True)
class ActivationEvidence:
    """Evidence of the activation that some weights were trained with; certain evidence cannot be overruled."""

    activation: str
    reason: str
    is_certain: bool = False


# Released checkpoints by a pattern of their file names; all of them were fine-tuned from OpenAI's weights.
# Sources: yuksekgonul2023when (NegCLIP), sahin2024gnm (GNM), miranda2024bivlc (CLIP_COCO, CLIP_TROHN).
KNOWN_CHECKPOINTS = {
    "NegCLIP": r"neg[-_ ]?clip",
    "GNM": r"(?<![a-z])gnm(?![a-z])",
    "CLIP_COCO": r"clip[-_ ]?coco",
    "CLIP_TROHN": r"trohn",
}


# -- evidence; the first that is found decides


def evidence_from_release(path: Path, checkpoint: Checkpoint, table: ReleasedWeights) -> ActivationEvidence | None:
    """Evidence if the file is one of open_clip's released weights, by its name and the hash in its address."""
    for tag, row in table.items():
        address = str(row.get("url", ""))
        if address.rpartition("/")[2] != path.name:
            continue
        hashes = [text for text in re.findall(r"[0-9a-f]{8,64}", address) if len(text) in (8, 64)]
        if any(text.startswith(hash_file(path)[: len(text)]) for text in hashes):
            return _evidence_from_row(tag, row, is_certain=True)
    return None


def evidence_from_archive(path: Path, checkpoint: Checkpoint, table: ReleasedWeights) -> ActivationEvidence | None:
    """Evidence if the file is a TorchScript archive, which only OpenAI released."""
    if not checkpoint.is_torchscript:
        return None
    return ActivationEvidence(QUICKGELU, f"{path.name} is a TorchScript archive, as OpenAI released them", is_certain=True)


def evidence_from_training_arguments(path: Path, checkpoint: Checkpoint, table: ReleasedWeights) -> ActivationEvidence | None:
    """Evidence from the training's arguments in the checkpoint: architecture, a flag, and the weights that it began with.

    `resume` names a file that was loaded over the weights of `pretrained`; its activation is unknown.
    """
    value = checkpoint.metadata.get("args")
    args = value if isinstance(value, Mapping) else dict(getattr(value, "__dict__", {}))
    model, pretrained, resumed = str(args.get("model") or ""), args.get("pretrained"), args.get("resume")
    if args.get("force_quick_gelu") or model.endswith(SUFFIX) or model in IMPLICIT_QUICKGELU:
        return ActivationEvidence(QUICKGELU, f"the training's arguments in {path.name} say so", is_certain=True)
    if pretrained and not resumed and (row := table.get(_normalise_tag(str(pretrained)))) is not None:
        release = _evidence_from_row(_normalise_tag(str(pretrained)), row)
        return ActivationEvidence(release.activation, f"{path.name} was fine-tuned from {release.reason}")
    if model and "pretrained" in args and not pretrained and not resumed:
        reason = f"the training's arguments in {path.name} say that {model} began with no weights"
        return ActivationEvidence(GELU, reason, is_certain=True)
    if SUFFIX in str(checkpoint.metadata.get("name") or ""):
        return ActivationEvidence(QUICKGELU, f"the name of the training in {path.name} says so", is_certain=True)
    return None


def evidence_from_file_name(path: Path, checkpoint: Checkpoint, table: ReleasedWeights) -> ActivationEvidence | None:
    """Evidence if the name is that of a known checkpoint."""
    for name, pattern in KNOWN_CHECKPOINTS.items():
        if re.search(pattern, path.name, re.IGNORECASE):
            return ActivationEvidence(QUICKGELU, f"{path.name} is {name} by its name, which was fine-tuned from OpenAI's weights")
    return None


FILE_EVIDENCE: tuple[Callable[[Path, Checkpoint, ReleasedWeights], ActivationEvidence | None], ...] = (
    evidence_from_release,
    evidence_from_archive,
    evidence_from_training_arguments,
    evidence_from_file_name,
)


def _normalise_tag(tag: str) -> str:
    return tag.lower().replace("-", "_")


def _evidence_from_row(tag: str, row: Mapping[str, Any], is_certain: bool = False) -> ActivationEvidence:
    return ActivationEvidence(QUICKGELU if row.get("quick_gelu") else GELU, f"the released weights {tag!r}", is_certain)


def evidence_from_repository(name: str, table: ReleasedWeights) -> ActivationEvidence | None:
    """Evidence if open_clip's table lists this repository with QuickGELU; a row without an activation is no evidence."""
    rows = ((tag, row) for tag, row in table.items() if str(row.get("hf_hub", "")).rstrip("/") == name)
    return next((_evidence_from_row(tag, row, is_certain=True) for tag, row in rows if row.get("quick_gelu")), None)


def find_activation(path: Path, checkpoint: Checkpoint, table: ReleasedWeights, name: str = "") -> ActivationEvidence | None:
    """Find evidence in a file, else in the name of the folder or repository that it comes from, if it has one."""
    candidates = (find(path, checkpoint, table) for find in FILE_EVIDENCE)
    evidence = next((candidate for candidate in candidates if candidate is not None), None)
    if evidence is not None or not name:
        return evidence
    return evidence_from_repository(name, table) or evidence_from_file_name(Path(name), checkpoint, table)


# -- the decision


def choose_activation(
    name: str, default: str, requested: str | None, evidence: ActivationEvidence | None
) -> tuple[str, tuple[str, ...]]:
    """Choose the activation to load weights with, and the notes for reports.

        requested    evidence           result
        –            yes                that of the evidence; noted if the architecture's name means the other one
        –            no                 error
        yes          the same, or none  the requested one
        yes          the other          error if the evidence is certain; else the requested one, and noted

    `default` is the activation that the architecture's name means.

    >>> evidence = ActivationEvidence("quickgelu", "the released weights 'openai'", True)
    >>> choose_activation("ViT-B-32,openai", "gelu", None, evidence)[0]
    'quickgelu'
    """
    if requested is None and evidence is None:
        raise UsageError(
            f"{name}: it is unknown which activation its weights were trained with, and with the wrong one every score would be "
            f"wrong. OpenAI's CLIP and what was fine-tuned from it need QuickGELU: open_clip:{name},{QUICKGELU}. Weights that were "
            f"trained with open_clip's plain architecture need GELU: open_clip:{name},{GELU}"
        )
    if evidence is None:
        assert requested is not None
        return requested, ()
    if requested is not None and requested != evidence.activation:
        trained, chosen = DISPLAY_NAMES[evidence.activation], DISPLAY_NAMES[requested]
        if evidence.is_certain:
            raise CrossmatchError(
                f"{name} was trained with {trained} ({evidence.reason}), but {chosen} is requested; every score would be wrong. "
                f"Remove -{requested} or ,{requested}."
            )
        return requested, (f"activation {chosen} as requested, though {evidence.reason}, which means {trained}",)
    note = f"activation {DISPLAY_NAMES[evidence.activation]}: {evidence.reason}"
    return evidence.activation, (note,) if requested is None and evidence.activation != default else ()


def reconcile_evidence(
    name: str, described: ActivationEvidence, evidence: ActivationEvidence | None, requested: str | None
) -> ActivationEvidence:
    """Reconcile a model's description with evidence in its weights.

        evidence             requested    result
        the same, or none    any          that
        QuickGELU, certain   any          QuickGELU: a description without an activation means GELU, perhaps by omission
        the other            –            error: one of the two is wrong, and the user must say which
        the other            yes          the one that is not requested, so that it is noted

    >>> description = ActivationEvidence("gelu", "its config says so")
    >>> reconcile_evidence("x", description, ActivationEvidence("quickgelu", "it is OpenAI's", True), None).activation
    'quickgelu'
    """
    if evidence is None:
        return described
    if evidence.activation == described.activation:
        return evidence if evidence.is_certain else described
    if evidence.is_certain and evidence.activation == QUICKGELU:
        reason = f"{evidence.reason}; its description means {DISPLAY_NAMES[described.activation]}"
        return ActivationEvidence(QUICKGELU, reason, is_certain=True)
    if requested is None:
        raise UsageError(
            f"{name} means {DISPLAY_NAMES[described.activation]} ({described.reason}), but {evidence.reason}, which means "
            f"{DISPLAY_NAMES[evidence.activation]}; with the wrong one every score would be wrong. Say which: "
            f"open_clip:{name},{QUICKGELU} or open_clip:{name},{GELU}"
        )
    return described if requested == evidence.activation else replace(evidence, is_certain=False)
