"""The options of caption generation: greedy decoding, sampling and beam search. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from crossmatch.data.errors import UsageError
from crossmatch.data.settings import validate_settings

MAX_LENGTH_PENALTY = 10  # beyond it, float32 cannot tell the scores of long captions apart
MAX_BEAM_WIDTH = 100  # time and memory grow with the width; beyond about ten, captions rarely improve
MAX_CAPTION_LENGTH = 1000  # words or tokens


@dataclass(frozen=True)
class DecodingOptions:
    """The options of `caption(images, …)`; `crossmatch.models.zoo.decoding` explains them.

    Each option belongs to one decoding, which the field's metadata names; the other decodings ignore it.

    >>> DecodingOptions.from_mapping({"decoding": "beam", "width": 3}).width
    3
    >>> DecodingOptions.from_mapping({"decoding": "beams"})
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: ...beams...
    """

    decoding: Literal["greedy", "sampled", "beam"] = "beam"
    width: int = field(default=5, metadata={"of": "beam", "least": 1, "most": MAX_BEAM_WIDTH})
    length_penalty: float = field(default=1.0, metadata={"of": "beam", "least": 0, "most": MAX_LENGTH_PENALTY})
    temperature: float = field(default=1.0, metadata={"of": "sampled", "above": 0})
    seed: int = field(default=0, metadata={"of": "sampled", "least": 0, "most": 2**64 - 1})
    longest: int | None = field(default=None, metadata={"least": 1, "most": MAX_CAPTION_LENGTH})  # None: the model's default

    @classmethod
    def from_mapping(cls, options: Mapping[str, Any]) -> DecodingOptions:
        """Check options and return them; unknown options and wrong values are errors."""
        return cls(**validate_settings(options, cls, "caption(images, …)"))


DECODING_OF_OPTION: Mapping[str, str] = {f.name: f.metadata["of"] for f in fields(DecodingOptions) if "of" in f.metadata}


def resolve_decoding(options: Mapping[str, Any], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Drop options that are None, and add the decoding that the others imply.

    `names` says what error messages call the decodings, if not by their own names.

    >>> resolve_decoding({"decoding": "greedy", "width": None}), resolve_decoding({"decoding": None, "width": 3})
    ({'decoding': 'greedy'}, {'decoding': 'beam', 'width': 3})
    >>> resolve_decoding({"decoding": "greedy", "width": 3})
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: width is an option of beam decoding, but greedy was chosen. Remove it, or choose beam.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    decoding = chosen.get("decoding") or next((DECODING_OF_OPTION[name] for name in chosen if name in DECODING_OF_OPTION), None)
    foreign = next((name for name in chosen if DECODING_OF_OPTION.get(name, decoding) != decoding), None)
    if foreign is not None:
        owner, choice = ((names or {}).get(str(d), d) for d in (DECODING_OF_OPTION[foreign], decoding))
        raise UsageError(
            f"{foreign.replace('_', ' ')} is an option of {owner} decoding, but {choice} was chosen. Remove it, or choose {owner}."
        )
    return ({"decoding": decoding} if decoding else {}) | chosen
