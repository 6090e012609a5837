"""Items of a study that is to be created, and checks that they fit its design."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.design.declaration import Design, check_answer

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_FILE = re.compile(r"[^/\\\0]*[^/\\\0.][^/\\\0]*")  # a file name, not a path to another folder
MAX_CAPTION_LENGTH = 10_000
MAX_KEY_LENGTH = 300
GOLD = ("positive", "negative")
EXAMPLE = "example"  # displayed with its answer before the work begins, and never asked


@dataclass(frozen=True)
class NewItem:
    """An item of a study that is to be created.

    Attributes:
        images: Files in the campaign's image folder.
        gold: The accepted values by question; None for an item to be judged.
        kind: `positive` or `negative` for gold, `example`, or empty.
        group: Items of one group stay in one HIT.
    """

    key: str
    images: tuple[str, ...] = ()
    captions: tuple[str, ...] = ()
    block: str = ""
    gold: Mapping[str, tuple[Any, ...]] | None = None
    kind: str = ""
    group: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class StudyItems:
    """Items whose images are still ids or file names, the function that opens them, and the origin of both."""

    items: tuple[NewItem, ...]
    open_image: Callable[[str], Image] | None
    origin: Mapping[str, Any]


def require_items(design: Design, items: Sequence[NewItem]) -> None:
    """Check that every item fits the design, and that gold questions can be answered."""
    if all(new.gold is not None for new in items):
        raise CrossmatchError("All items are gold questions or examples. Add at least one item to be judged.")
    used_keys: set[str] = set()
    for new in items:
        where = f"item {new.key!r}"
        if new.key in used_keys:
            raise CrossmatchError(f"{where} is listed twice. Give each item its own id.")
        used_keys.add(new.key)
        require_item(design, new, where)
        _require_storable(new, where)


def require_item(design: Design, new: NewItem, where: str) -> None:
    """Check that an item fits the design; `where` begins the error message."""
    if not 1 <= len(new.key) <= MAX_KEY_LENGTH:
        raise CrossmatchError(f"{where} has an id of {len(new.key)} characters; use 1 to {MAX_KEY_LENGTH}.")
    for side, expected in (("images", design.shows.images), ("captions", design.shows.captions)):
        number = len(getattr(new, side))
        if expected >= 0 and number != expected:
            raise CrossmatchError(f"{where} has {number} {side}, but {design.name} shows {expected}. Correct it.")
    if not new.images and not new.captions:
        raise CrossmatchError(f"{where} has neither an image nor a caption. Add one.")
    if design.shows.lists and (not new.images or len(new.images) % design.shows.lists):
        raise CrossmatchError(
            f"{where} has {len(new.images)} images, which cannot be divided into {design.shows.lists} lists. Correct it."
        )
    for text in new.captions:
        if not text.strip() or len(text) > MAX_CAPTION_LENGTH:
            raise CrossmatchError(f"{where} has a caption of {len(text):,} characters; use 1 to {MAX_CAPTION_LENGTH:,}.")
    if (new.block or design.shows.blocks) and new.block not in design.shows.blocks:
        blocks = ", ".join(design.shows.blocks) or "none"
        raise CrossmatchError(f"{where} has the block {new.block!r}, but the blocks of {design.name} are: {blocks}. Correct it.")
    if not design.questions_for(new.block):
        raise CrossmatchError(f"{where}: {design.name} has no question for its block {new.block!r}. Choose another block.")
    if new.gold is not None or new.kind:
        check_gold(design, new, where)


def _require_storable(new: NewItem, where: str) -> None:
    """Check for characters that databases cannot store, and that images are files of the campaign."""
    for text in (new.key, new.block, new.group, *new.captions):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise CrossmatchError(f"{where} has characters that cannot be stored: a zero byte, or a lone surrogate. Remove them.")
    for name in new.images:
        if not IMAGE_FILE.fullmatch(name):
            raise CrossmatchError(f"{where}: {name!r} is not an image file of the campaign. Store it there first.")


def check_gold(design: Design, new: NewItem, where: str) -> dict[str, list[Any]]:
    """The accepted values of a gold question, checked like answers."""
    if new.kind not in (*GOLD, EXAMPLE):
        raise CrossmatchError(f"{where} has gold answers but the kind {new.kind!r}; use positive, negative or example.")
    if new.gold is None or (not new.gold and new.kind in GOLD):
        raise CrossmatchError(f"{where} has the kind {new.kind}, but no accepted answer. Add its gold.")
    questions = {question.name: question for question in design.questions_for(new.block)}
    counts = {"images": len(new.images), "captions": len(new.captions), "lists": design.shows.lists}
    checked: dict[str, list[Any]] = {}
    for name, accepted in new.gold.items():
        if name not in questions or questions[name].kind == "slider" or not accepted:
            raise CrossmatchError(f"{where} has gold for {name!r}, which is not a choice question about this item. Correct it.")
        try:
            checked[name] = [check_answer((questions[name],), counts, {name: value})[name] for value in accepted]
        except CrossmatchError as error:
            raise CrossmatchError(f"{where} has invalid gold: {error}") from None
    return checked
