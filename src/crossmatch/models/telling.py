"""How a caption is told: one way of three, and what each may be told. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from crossmatch.core.declared import checked
from crossmatch.core.errors import WrongWords

MOST_PENALTY = 10  # of a length: beyond it, scores of long captions are too small for float32 to tell them apart
# Captions that a beam search follows: its time and memory grow with them, and beyond ten or so captions rarely become better.
WIDEST = 100
LONGEST_ASKED = 1000  # words or tokens of a caption


@dataclass(frozen=True)
class Telling:
    """The options of `caption(images, …)`, by their names; `crossmatch.models.zoo.decoding` says what they mean.

    An option is of one decoding alone; the others do not look at it.

    >>> Telling.of({"decoding": "beam", "width": 3}).width
    3
    >>> Telling.of({"decoding": "beams"})
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: caption(images, …) has decoding = "beams"; one of greedy, sampled, beam was expected. \
Did you mean 'beam'?
    """

    decoding: Literal["greedy", "sampled", "beam"] = "beam"
    width: int = field(default=5, metadata={"of": "beam", "least": 1, "most": WIDEST})
    length_penalty: float = field(default=1.0, metadata={"of": "beam", "least": 0, "most": MOST_PENALTY})
    temperature: float = field(default=1.0, metadata={"of": "sampled", "above": 0})
    seed: int = field(default=0, metadata={"of": "sampled", "least": 0, "most": 2**64 - 1})
    longest: int | None = field(
        default=None, metadata={"least": 1, "most": LONGEST_ASKED}
    )  # words or tokens; None: as many as the model usually may

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Telling:
        """From options that somebody gave."""
        return cls(**checked(given, cls, "caption(images, …)"))


OF: Mapping[str, str] = {each.name: each.metadata["of"] for each in fields(Telling) if "of" in each.metadata}


def decoding_of(given: Mapping[str, Any], called: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What was asked for, of how captions are told. An option says which decoding is meant, and is refused beside another.

    `called` is what the asker calls decodings, if otherwise.

    >>> decoding_of({"decoding": "greedy", "width": None}), decoding_of({"decoding": None, "width": 3})
    ({'decoding': 'greedy'}, {'decoding': 'beam', 'width': 3})
    >>> decoding_of({"decoding": "greedy", "width": 3})
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: greedy decoding has no width; beam has. Leave it out, or choose that decoding.
    """
    asked = {key: value for key, value in given.items() if value is not None}
    decoding = asked.get("decoding") or next((OF[key] for key in asked if key in OF), None)
    foreign = next((key for key in asked if OF.get(key, decoding) != decoding), None)
    if foreign is not None:
        word, (this, that) = foreign.replace("_", " "), ((called or {}).get(str(way), way) for way in (decoding, OF[foreign]))
        raise WrongWords(f"{this} decoding has no {word}; {that} has. Leave it out, or choose that decoding.")
    return ({"decoding": decoding} if decoding else {}) | asked
