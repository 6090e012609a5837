"""Which activation a CLIP was trained with. Weights do not say it, and with the wrong one every score is a little wrong.

OpenAI trained with QuickGELU, x · σ(1.702 x), and everything that was fine-tuned from its weights has it; most later weights of
open_clip have GELU. open_clip takes GELU for `ViT-B-32` and QuickGELU for `ViT-B-32-quickgelu`, whatever the weights are, and a
local file loads into either without a word: so does NegCLIP in the evaluation code that was released with it, into GELU.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models.stored import Stored
from crossmatch.models.text import file_hash

QUICK, PLAIN = "quickgelu", "gelu"
SUFFIX = f"-{QUICK}"
NAMES = {QUICK: "QuickGELU", PLAIN: "GELU"}
UNSAID = ("roberta-ViT-B-32",)  # architectures that open_clip builds with QuickGELU though their name does not say so
Table = Mapping[str, Mapping[str, Any]]  # the released weights of an architecture by tag, as open_clip has them


@dataclass(frozen=True)
class Trained:
    """What is known about the training of some weights. What is `sure` is not to be overruled."""

    activation: str
    why: str
    sure: bool = False


@dataclass(frozen=True)
class Known:
    """Released checkpoints that are known by the name of their file: all of them were fine-tuned from OpenAI's weights."""

    name: str
    pattern: str
    cite: str


KNOWN = (
    Known("NegCLIP", r"neg[-_ ]?clip", "yuksekgonul2023when"),
    Known("GNM", r"(?<![a-z])gnm(?![a-z])", "sahin2024gnm"),
    Known("CLIP_COCO", r"clip[-_ ]?coco", "miranda2024bivlc"),
    Known("CLIP_TROHN", r"trohn", "miranda2024bivlc"),
)


# -- clues, each of which may tell; the first that does is believed


def by_release(path: Path, stored: Stored, table: Table) -> Trained | None:
    """The file is one that open_clip's table of released weights names, and has the hash that its address carries."""
    for tag, told in table.items():
        address = str(told.get("url", ""))
        if address.rpartition("/")[2] != path.name:
            continue
        marks = [mark for mark in re.findall(r"[0-9a-f]{8,64}", address) if len(mark) in (8, 64)]
        if any(mark.startswith(file_hash(path)[: len(mark)]) for mark in marks):
            return _released(tag, told, sure=True)
    return None


def by_archive(path: Path, stored: Stored, table: Table) -> Trained | None:
    """OpenAI's own files are TorchScript archives, and nobody else's are."""
    return Trained(QUICK, f"{path.name} is a TorchScript archive, as OpenAI released them", sure=True) if stored.script else None


def by_arguments(path: Path, stored: Stored, table: Table) -> Trained | None:
    """The arguments of the training are kept in the checkpoint: the architecture's name, a flag, and the weights it began with.

    `resume` names a file that was loaded after those of `pretrained`, over them: what it was trained with is not said.
    """
    given = stored.told.get("args")
    args = given if isinstance(given, Mapping) else dict(getattr(given, "__dict__", {}))
    model, began, resumed = str(args.get("model") or ""), args.get("pretrained"), args.get("resume")
    if args.get("force_quick_gelu") or model.endswith(SUFFIX) or model in UNSAID:
        return Trained(QUICK, f"the training's arguments in {path.name} say so", sure=True)
    if began and not resumed and (told := table.get(_clean(str(began)))) is not None:
        found = _released(_clean(str(began)), told)
        return Trained(found.activation, f"{path.name} was fine-tuned from {found.why}")
    if model and "pretrained" in args and not began and not resumed:
        return Trained(PLAIN, f"the training's arguments in {path.name} say that {model} began with no weights", sure=True)
    if SUFFIX in str(stored.told.get("name") or ""):
        return Trained(QUICK, f"the name of the training in {path.name} says so", sure=True)
    return None


def by_name(path: Path, stored: Stored, table: Table) -> Trained | None:
    """Its name is that of a checkpoint which was fine-tuned from OpenAI's weights."""
    known = next((k for k in KNOWN if re.search(k.pattern, path.name, re.IGNORECASE)), None)
    return Trained(QUICK, f"{path.name} is {known.name} by its name, which was fine-tuned from OpenAI's weights") if known else None


CLUES: tuple[Callable[[Path, Stored, Table], Trained | None], ...] = (by_release, by_archive, by_arguments, by_name)


def _clean(tag: str) -> str:
    return tag.lower().replace("-", "_")


def _released(tag: str, told: Mapping[str, Any], sure: bool = False) -> Trained:
    return Trained(QUICK if told.get("quick_gelu") else PLAIN, f"the released weights {tag!r}", sure)


def by_repository(name: str, table: Table) -> Trained | None:
    """open_clip's table names this repository, and QuickGELU with it; where it names no activation, it tells nothing."""
    rows = ((tag, told) for tag, told in table.items() if str(told.get("hf_hub", "")).rstrip("/") == name)
    return next((_released(tag, told, sure=True) for tag, told in rows if told.get("quick_gelu")), None)


def trained_with(path: Path, stored: Stored, table: Table, name: str = "") -> Trained | None:
    """What a file tells about its activation, or else the name of the folder or the repository that it comes from; or nothing."""
    from_file = (clue(path, stored, table) for clue in CLUES)
    found = next((one for one in from_file if one is not None), None)
    return found or (by_repository(name, table) or by_name(Path(name), stored, table) if name else None)


# -- the decision


def decided(name: str, usual: str, asked: str | None, known: Trained | None) -> tuple[str, tuple[str, ...]]:
    """The activation to load with, and what must be said about it.

        asked     known         loaded with
        –         yes           what is known; said where the architecture's name alone means the other (`usual`)
        –         no            refused
        yes       the same, no  what is asked
        yes       the other     refused where it is sure; else what is asked, and said

    >>> decided("ViT-B-32,openai", "gelu", None, Trained("quickgelu", "the released weights 'openai'", sure=True))[0]
    'quickgelu'
    """
    if asked is None and known is None:
        raise WrongWords(
            f"{name} does not say with which activation its weights were trained; with the wrong one every score would be wrong. "
            f"OpenAI's CLIP, and what was fine-tuned from it, needs QuickGELU: say open_clip:{name},{QUICK}. Weights that were "
            f"trained with open_clip's plain architecture need GELU: say open_clip:{name},{PLAIN}"
        )
    if known is None:
        assert asked is not None
        return asked, ()
    if asked is not None and asked != known.activation:
        if known.sure:
            raise CrossmatchError(
                f"{name} was trained with {NAMES[known.activation]} ({known.why}), but {NAMES[asked]} is asked for; every score "
                f"would be wrong. Leave -{asked} or ,{asked} out."
            )
        return asked, (f"activation {NAMES[asked]} as asked for, though {known.why}, which means {NAMES[known.activation]}",)
    said = f"activation {NAMES[known.activation]}: {known.why}"
    return known.activation, (said,) if asked is None and known.activation != usual else ()


def agreed(name: str, told: Trained, found: Trained | None, asked: str | None) -> Trained:
    """What is known of weights that come with a description (`told`), when the weights themselves may say another thing (`found`).

        found            asked    known
        the same, no     any      that
        QuickGELU, sure  any      QuickGELU: a description that is silent means GELU, so nothing may have been meant
        the other        –        refused: one of the two is wrong, and the user must say which
        the other        yes      the one that is not asked for, so that it is said

    >>> agreed("x", Trained("gelu", "its config says so"), Trained("quickgelu", "it is OpenAI's", sure=True), None).activation
    'quickgelu'
    """
    if found is None:
        return told
    if found.activation == told.activation:
        return found if found.sure else told
    if found.sure and found.activation == QUICK:
        return Trained(QUICK, f"{found.why}; its description means {NAMES[told.activation]}", sure=True)
    if asked is None:
        raise WrongWords(
            f"{name} means {NAMES[told.activation]} ({told.why}), but {found.why}, which means {NAMES[found.activation]}; with the "
            f"wrong one every score would be wrong. Say which: open_clip:{name},{QUICK} or open_clip:{name},{PLAIN}"
        )
    return told if asked == found.activation else replace(found, sure=False)
