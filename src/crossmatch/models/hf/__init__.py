"""Models of transformers by name: `hf:org/name` from the local cache of Hugging Face, or `hf:FOLDER`; nothing touches the network.

The architecture that the model's config.json names says what kind of model it is. Where one can be used in two ways, the second is
asked for by its name:

    hf:openai/clip-vit-base-patch32                      embeds images and texts
    hf:Salesforce/blip-itm-base-coco                     the matching head's probability;  …,itc  its cosine;
                                                         …,released  the score of the evaluation that came with BLIP
    hf:microsoft/git-base-coco                           log P(text | image);  …,prior=0.5  with the language prior corrected
    hf:llava-hf/llava-1.5-7b-hf                          P("Yes" | image, question about the text);  …,likelihood  as a captioner
    hf:NAME,revision=REVISION                            that revision of the cached model
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from crossmatch.core.errors import CrossmatchError, WrongWords

if TYPE_CHECKING:
    from crossmatch.models.hf.loading import Place

Options = Mapping[str, str]


def _embed(place: Place, architecture: str, options: Options) -> object:
    from crossmatch.models.hf.embed import encoder

    return encoder(place, architecture)


def _itm(place: Place, architecture: str, options: Options) -> object:
    from crossmatch.models.hf.itm import matcher

    return matcher(place, architecture)


def _released(place: Place, architecture: str, options: Options) -> object:
    from crossmatch.models.hf.itm import matcher

    return matcher(place, architecture, released=True)


def _itc(place: Place, architecture: str, options: Options) -> object:
    from crossmatch.models.hf.embed import contrastive

    return contrastive(place, architecture)


def _likelihood(place: Place, architecture: str, options: Options) -> object:
    from crossmatch.models.hf.caption_likelihood import captioner

    return captioner(place, architecture, options)


def _vqa(place: Place, architecture: str, options: Options) -> object:
    from crossmatch.models.hf.vqa import asker

    return asker(place, architecture, options)


@dataclass(frozen=True)
class Kind:
    """One way to use a model, and the options that it takes."""

    about: str
    make: Callable[[Place, str, Options], object]
    options: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "embed": Kind("embeds images and texts", _embed),
    "itm": Kind("the score of the image-text matching head", _itm),
    "itc": Kind("the cosine of the two towers under a matching head", _itc),
    "released": Kind("the score of the evaluation that was released with the model", _released),
    "likelihood": Kind("log P(text | image)", _likelihood, ("prior", "prompt")),
    "vqa": Kind('P("Yes" | image, question about the text)', _vqa, ("question",)),
}

ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "AlignModel": ("embed",),
    "AltCLIPModel": ("embed",),
    "BlipModel": ("embed",),
    "CLIPModel": ("embed",),
    "ChineseCLIPModel": ("embed",),
    "MetaClip2Model": ("embed",),
    "Siglip2Model": ("embed",),
    "SiglipModel": ("embed",),
    "VisionTextDualEncoderModel": ("embed",),
    "BlipForImageTextRetrieval": ("itm", "itc", "released"),
    "BridgeTowerForImageAndTextRetrieval": ("itm",),
    "ViltForImageAndTextRetrieval": ("itm",),
    "BlipForConditionalGeneration": ("likelihood",),
    "GitForCausalLM": ("likelihood",),
    "VisionEncoderDecoderModel": ("likelihood",),
}
IMAGE_TEXT_TO_TEXT = ("vqa", "likelihood")  # every other architecture that transformers lists under this heading

OPTIONS = ("revision", "prior", "prompt", "question")
SENTENCES = ("prompt", "question")  # may hold commas, so they take the rest of the line


@dataclass(frozen=True)
class Wanted:
    """What a name asks for: the model, the kind where it is said, and the options."""

    name: str
    kind: str | None = None
    options: Options = field(default_factory=dict)


def wanted(rest: str) -> Wanted:
    """What follows `hf:`, taken apart.

    >>> wanted("org/name,itc")
    Wanted(name='org/name', kind='itc', options={})
    >>> wanted("org/name,prior=0.5,prompt=a photo, of")
    Wanted(name='org/name', kind=None, options={'prior': '0.5', 'prompt': 'a photo, of'})
    """
    name, _, more = (rest, "", "") if Path(rest).is_dir() else rest.partition(",")
    if not name:
        raise WrongWords("hf needs a model of transformers, as in hf:openai/clip-vit-base-patch32 or hf:FOLDER")
    kind: str | None = None
    options: dict[str, str] = {}
    while more:
        key, equals, value = more.partition("=")
        if equals and key in SENTENCES:
            options[key], more = value, ""
            continue
        word, _, more = more.partition(",")
        key, equals, value = word.partition("=")
        if equals and key in OPTIONS and value:
            options[key] = value
        elif word in KINDS and kind is None:
            kind = word
        else:
            raise WrongWords(
                f"hf:{rest}: {word!r} has no meaning here. After the model may stand one of {', '.join(KINDS)}, and "
                f"{', '.join(f'{option}=…' for option in OPTIONS)}."
            )
    return Wanted(name, kind, options)


def hf_model(rest: str) -> object:
    """The model that `hf:REST` names, as the kind that its architecture says or that is asked for."""
    from crossmatch.models.hf.loading import located

    asked = wanted(rest)
    place = located(asked.name, asked.options.get("revision"))
    architecture = place.architecture()
    kinds = ARCHITECTURES.get(architecture) or (IMAGE_TEXT_TO_TEXT if _image_text_to_text(architecture) else None)
    if kinds is None:
        raise CrossmatchError(
            f"hf:{place.name} is a {architecture}, which cannot compare images with texts here. Expected: "
            f"{', '.join(ARCHITECTURES)}, or an image-text-to-text model."
        )
    kind = asked.kind or kinds[0]
    if kind not in kinds:
        raise WrongWords(f"hf:{place.name} is a {architecture}, which has no {kind}; it has {' and '.join(kinds)}.")
    options = {key: value for key, value in asked.options.items() if key != "revision"}
    foreign = [key for key in options if key not in KINDS[kind].options]
    if foreign:
        taken = ", ".join(KINDS[kind].options) or "none"
        raise WrongWords(f"hf:{place.name} is used for {kind}, which takes no {foreign[0]}= (it takes {taken}). Leave it out.")
    return KINDS[kind].make(place, architecture, options)


def _image_text_to_text(architecture: str) -> bool:
    from crossmatch.models.hf.loading import transformers_here

    transformers_here()
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as LISTED

    return any(architecture in ((names,) if isinstance(names, str) else names) for names in LISTED.values())
