"""Models of transformers by name: `hf:org/name` from the local Hugging Face cache, or `hf:FOLDER`; nothing is downloaded.

The architecture in the model's config.json determines how it is used. If there are several uses, an option chooses another than the
first:

    hf:openai/clip-vit-base-patch32                      embeds images and texts
    hf:Salesforce/blip-itm-base-coco                     the matching head's probability;  …,itc  its cosine;
                                                         …,released  the score of the evaluation that came with BLIP
    hf:microsoft/git-base-coco                           log P(text | image);  …,prior=0.5  with the language prior corrected
    hf:llava-hf/llava-1.5-7b-hf                          P("Yes" | image, question about the text);  …,likelihood  as a captioner
    hf:NAME,revision=REVISION                            that revision of the cached model
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError

try:
    import torch  # noqa: F401 - all modules of this package need it
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

Options = Mapping[str, str]


@dataclass(frozen=True)
class ModelUse:
    """A way to use a model: the function that loads it from files, architecture and options, and the names of the options."""

    module: str  # imported when a model is made, because it needs an extra
    function: str
    options: tuple[str, ...] = ()

    def load(self, files: object, architecture: str, options: Options) -> object:
        return getattr(import_module(f"{__name__}.{self.module}"), self.function)(files, architecture, **options)


MODEL_USES: Mapping[str, ModelUse] = {
    "embed": ModelUse("dual_encoders", "load_encoder"),
    "itm": ModelUse("matching_heads", "load_matching_model"),
    "itc": ModelUse("dual_encoders", "load_contrastive_towers"),
    "released": ModelUse("matching_heads", "load_released_matching_model"),
    "likelihood": ModelUse("captioning", "load_captioner", ("prior", "prompt")),
    "vqa": ModelUse("chat_models", "load_question_scorer", ("question",)),
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
IMAGE_TEXT_TO_TEXT = ("vqa", "likelihood")  # of every other architecture that transformers lists as image-text-to-text

OPTIONS = ("revision", "prior", "prompt", "question")
SENTENCES = ("prompt", "question")  # may contain commas, so they take the rest of the name


@dataclass(frozen=True)
class HubName:
    """The parts of a name: the model, its use if it is named, and the options."""

    name: str
    use: str | None = None
    options: Options = field(default_factory=dict)


def parse_hub_name(argument: str) -> HubName:
    """Split a name into model, use and options.

    >>> parse_hub_name("org/name,itc")
    HubName(name='org/name', use='itc', options={})
    >>> parse_hub_name("org/name,prior=0.5,prompt=a photo, of")
    HubName(name='org/name', use=None, options={'prior': '0.5', 'prompt': 'a photo, of'})
    """
    name, _, more = (argument, "", "") if Path(argument).is_dir() else argument.partition(",")
    if not name:
        raise UsageError("hf needs a model of transformers, as in hf:openai/clip-vit-base-patch32 or hf:FOLDER")
    use: str | None = None
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
        elif word in MODEL_USES and use is None:
            use = word
        else:
            raise UsageError(
                f"hf:{argument}: unknown option {word!r}. Use one of {', '.join(MODEL_USES)}, and "
                f"{', '.join(f'{option}=…' for option in OPTIONS)}."
            )
    return HubName(name, use, options)


def hf_model(argument: str) -> object:
    """Make the model of `hf:NAME[,OPTIONS]`."""
    from crossmatch.models.adapters.transformers.loading import locate_model

    name = parse_hub_name(argument)
    files = locate_model(name.name, name.options.get("revision"))
    architecture = files.architecture()
    uses = ARCHITECTURES.get(architecture) or (IMAGE_TEXT_TO_TEXT if _is_image_text_to_text(architecture) else None)
    if uses is None:
        raise CrossmatchError(
            f"hf:{files.name} is a {architecture}, which cannot compare images with texts. Supported are "
            f"{', '.join(ARCHITECTURES)}, or an image-text-to-text model."
        )
    use = name.use or uses[0]
    if use not in uses:
        raise UsageError(f"hf:{files.name} is a {architecture}, which cannot be used for {use}, only for {' and '.join(uses)}.")
    options = {key: value for key, value in name.options.items() if key != "revision"}
    unsupported = [key for key in options if key not in MODEL_USES[use].options]
    if unsupported:
        supported = ", ".join(MODEL_USES[use].options) or "none"
        raise UsageError(
            f"hf:{files.name} is used for {use}, which has no option {unsupported[0]}= (options: {supported}). Remove it."
        )
    return MODEL_USES[use].load(files, architecture, options)


def _is_image_text_to_text(architecture: str) -> bool:
    from crossmatch.models.adapters.transformers.loading import import_transformers

    import_transformers()
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as LISTED

    return any(architecture in ((names,) if isinstance(names, str) else names) for names in LISTED.values())
