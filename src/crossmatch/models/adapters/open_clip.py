"""CLIP models of open_clip: released weights by tag, repositories in the local cache, folders, and checkpoint files.

    open_clip:ViT-B-32,openai                    a tag of open_clip's table, once it is downloaded
    open_clip:ViT-B-32,negclip.pt[,quickgelu]    a checkpoint of this architecture
    open_clip:hf-hub:org/name[,quickgelu]        a repository of Hugging Face, once it is downloaded
    open_clip:local-dir:/folder[,quickgelu]      a folder with open_clip_config.json and weights

`clip_activation` says when the suffix is needed. Nothing is downloaded: the error for missing files says how to get them.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.file_contents import UndecodableFileError, check_record, decode_json_file
from crossmatch.data.io.user_code_errors import describe_error
from crossmatch.models.adapters.clip_activation import (
    GELU,
    QUICKGELU,
    SUFFIX,
    ActivationEvidence,
    ReleasedWeights,
    choose_activation,
    find_activation,
    reconcile_evidence,
)
from crossmatch.models.files.checkpoint_files import (
    Checkpoint,
    find_cached_file,
    import_library,
    load_weights,
    offline,
    read_checkpoint,
    require_finite,
)
from crossmatch.models.files.model_folder import hash_weights

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependencyError("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 64
HUB, FOLDER = "hf-hub:", "local-dir:"
CONFIG = "open_clip_config.json"
WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # in a repository, the better format first
OPENAI_EXTRAS = ("input_resolution", "context_length", "vocab_size")  # numbers that OpenAI's archives store among the weights
PREPROCESSING = ("mean", "std", "interpolation", "resize_mode", "fill_color")


def _are_numbers(count: int, above: float = -sys.float_info.max) -> Callable[[object], bool]:
    """Return a test whether a value is a list of `count` finite numbers above a bound."""

    def test(value: object) -> bool:
        if not isinstance(value, list) or len(value) != count:
            return False
        return all(isinstance(n, (int, float)) and not isinstance(n, bool) and above < n < sys.float_info.max for n in value)

    return test


def _is_whole_number(value: object, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _one_of(*names: str) -> tuple[Callable[[object], bool], str]:
    return (lambda value: value in names), f"one of {', '.join(names)}"


Expectations = Mapping[str, tuple[Callable[[object], bool], str]]  # by key: a test of its value, and the expectation in words
MODEL_KEYS: Expectations = {
    "embed_dim": (_is_whole_number, "a whole number above 0"),
    "vision_cfg": (lambda value: isinstance(value, Mapping), "a table"),
    "text_cfg": (lambda value: isinstance(value, Mapping), "a table"),
    "quick_gelu": (lambda value: isinstance(value, bool), "true or false"),
}
PREPROCESSING_KEYS: Expectations = {
    "mean": (_are_numbers(3), "three numbers"),
    "std": (_are_numbers(3, above=0), "three numbers above 0"),
    "interpolation": _one_of("bicubic", "bilinear", "random"),
    "resize_mode": _one_of("shortest", "longest", "squash"),
    "fill_color": (lambda value: _is_whole_number(value, 0) or _are_numbers(3, -1)(value), "a whole number or three, from 0"),
}


@dataclass(frozen=True)
class ClipName:
    """The parts of a model name: the description of the network, its weights, and the activation if it is named."""

    source: str  # an architecture, or hf-hub:… or local-dir:…
    weights: str = ""  # a tag or a file; empty if the source has the weights
    activation: str | None = None

    @property
    def name(self) -> str:
        return f"{self.source},{self.weights}" if self.weights else self.source


def parse_clip_name(argument: str) -> ClipName:
    """Split a name into its parts. The path of a file may contain commas.

    >>> parse_clip_name("ViT-B/32,/tmp/a,b.pt,quickgelu")
    ClipName(source='ViT-B-32', weights='/tmp/a,b.pt', activation='quickgelu')
    >>> parse_clip_name("ViT-B-32-quickgelu,openai")
    ClipName(source='ViT-B-32', weights='openai', activation='quickgelu')
    """
    is_file = Path(argument.partition(",")[2]).is_file()
    activation = next((a for a in (QUICKGELU, GELU) if argument.endswith(f",{a}") and not is_file), None)
    rest = argument[: -len(activation) - 1] if activation else argument
    if rest.startswith((HUB, FOLDER)):
        return ClipName(rest, "", activation)
    source, _, weights = rest.partition(",")
    if not source or not weights:
        raise UsageError(
            "open_clip needs an architecture and its weights, as in open_clip:ViT-B-32,openai or open_clip:ViT-B-32,negclip.pt; or "
            "open_clip:hf-hub:org/name; or open_clip:local-dir:FOLDER"
        )
    source = source.replace("/", "-")
    if source.endswith(SUFFIX):
        if activation == GELU:
            raise UsageError(f"open_clip:{argument} names QuickGELU in its architecture and GELU after it. Remove one of them.")
        source, activation = source.removesuffix(SUFFIX), QUICKGELU
    return ClipName(source, weights, activation)


@dataclass(frozen=True)
class ClipFiles:
    """What is needed to build a model: its description, its weights, and how it was trained."""

    config: Mapping[str, Any]
    path: Path
    checkpoint: Checkpoint
    preprocessing: Mapping[str, Any]
    activation: str
    notes: tuple[str, ...]


def _import_open_clip() -> Any:
    return import_library("open_clip", "clip")


def _locate_built_in(name: ClipName) -> ClipFiles:
    """Find the weights of an architecture of open_clip: by a tag of its table, or in a file."""
    clip = _import_open_clip()
    config = clip.get_model_config(name.source)
    if config is None:
        from difflib import get_close_matches

        near = ", ".join(get_close_matches(name.source, clip.list_models(), 3)) or "see open_clip.list_models()"
        raise UsageError(f"open_clip has no architecture {name.source!r}. Nearest: {near}.")
    table = _list_released_weights(name.source)
    tag = name.weights.lower().replace("-", "_")
    default = QUICKGELU if config.get("quick_gelu") else GELU
    if tag in table:
        path = _find_released_weights(name, tag, table[tag])
        trained = QUICKGELU if table[tag].get("quick_gelu") else GELU
        evidence: ActivationEvidence | None = ActivationEvidence(trained, f"the released weights {tag!r}", is_certain=True)
        checkpoint, preprocessing = read_checkpoint(path), table[tag]
    else:
        path = Path(name.weights)
        if not path.is_file():
            raise UsageError(
                f"{name.weights!r} is neither a file nor one of open_clip's weights for {name.source}. Check the path; the weights "
                f"are {', '.join(table) or 'none'}."
            )
        checkpoint, preprocessing = read_checkpoint(path), _default_preprocessing(table)
        evidence = find_activation(path, checkpoint, table)
        if evidence is None and clip.get_model_config(name.source + SUFFIX) is None:
            # An architecture without a variant gets the other activation only by force_quick_gelu: rare, but possible.
            evidence = ActivationEvidence(default, f"open_clip has {name.source} with this activation only")
    activation, notes = choose_activation(name.name, default, name.activation, evidence)
    return ClipFiles(config, path, checkpoint, preprocessing, activation, notes)


def _list_released_weights(architecture: str) -> ReleasedWeights:
    """Return the released weights of an architecture by tag; rows omit QuickGELU if the architecture itself has it."""
    from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model

    default = {"quick_gelu": True} if (_import_open_clip().get_model_config(architecture) or {}).get("quick_gelu") else {}
    return {tag: {**get_pretrained_cfg(architecture, tag), **default} for tag in list_pretrained_tags_by_model(architecture)}


def _list_all_released_weights(checkpoint: Checkpoint) -> ReleasedWeights:
    """Return all released weights, and by tag alone those of the architecture that the training's arguments name."""
    from open_clip.pretrained import get_pretrained_cfg, list_pretrained

    args = checkpoint.metadata.get("args")
    architecture_trained = args.get("model") if isinstance(args, Mapping) else getattr(args, "model", None)
    rows = {f"{architecture},{tag}": get_pretrained_cfg(architecture, tag) for architecture, tag in list_pretrained()}
    return {**rows, **(_list_released_weights(str(architecture_trained)) if architecture_trained else {})}


def _default_preprocessing(table: ReleasedWeights) -> Mapping[str, Any]:
    """Return the preprocessing of all released weights of an architecture if they agree; else open_clip's default."""
    settings = [{name: row[name] for name in PREPROCESSING if name in row} for row in table.values()]
    return settings[0] if settings and all(row == settings[0] for row in settings) else {}


def _find_released_weights(name: ClipName, tag: str, row: Mapping[str, Any]) -> Path:
    """Return the weights of a tag, in the cache of Hugging Face or in that of OpenAI's library."""
    repository, _, file = str(row.get("hf_hub", "")).rpartition("/")
    path = find_cached_file(repository, (file,) if file else WEIGHTS) if repository else None
    old = Path("~/.cache/clip").expanduser() / str(row.get("url", "")).rpartition("/")[2]
    if path is None and old.is_file():
        path = old
    if path is None:
        command = f"hf download {repository}" if repository else f"download {row.get('url')} to {old.parent}"
        raise CrossmatchError(
            f"the weights of open_clip:{name.source},{tag} are not on this machine. Download them ({command}), or name a file: "
            f"open_clip:{name.source},FILE"
        )
    return path


def _locate_described(name: ClipName) -> ClipFiles:
    """Find open_clip_config.json and weights in a repository in the cache, or in a folder."""
    place = name.source.partition(":")[2]
    if name.source.startswith(FOLDER):
        config_path = Path(place) / CONFIG if (Path(place) / CONFIG).is_file() else None
        candidates = sorted(path for path in Path(place).glob("*") if path.suffix in (".safetensors", ".bin", ".pt", ".pth"))
        path = next(
            (p for weights in WEIGHTS for p in candidates if p.name == weights), candidates[0] if len(candidates) == 1 else None
        )
        remedy = f"The folder needs {CONFIG} and one file of weights, as open_clip's push_to_hf_hub writes them"
    else:
        config_path, path = find_cached_file(place, (CONFIG,)), find_cached_file(place, WEIGHTS)
        remedy = f"Download them: hf download {place}"
    if config_path is None or path is None:
        missing = " and ".join(label for label, file in ((CONFIG, config_path), ("its weights", path)) if file is None)
        raise CrossmatchError(f"open_clip:{name.source}: {missing} cannot be found on this machine. {remedy}.")
    try:
        description = check_record(decode_json_file(config_path), "the file", {"model_cfg": object})
    except UndecodableFileError:
        raise CrossmatchError(
            f"{config_path} does not describe a model of open_clip: it has no model_cfg. Download it again."
        ) from None
    config, preprocessing = description["model_cfg"], description.get("preprocess_cfg") or {}
    _check_description(config_path, config, preprocessing)
    default = QUICKGELU if config.get("quick_gelu") else GELU
    checkpoint = read_checkpoint(path)
    label = Path(place).resolve().name if name.source.startswith(FOLDER) else place
    evidence = find_activation(path, checkpoint, _list_all_released_weights(checkpoint), label)
    described = ActivationEvidence(default, f"its {CONFIG} says so")
    evidence = reconcile_evidence(name.name, described, evidence, name.activation)
    activation, notes = choose_activation(name.name, default, name.activation, evidence)
    return ClipFiles(config, path, checkpoint, preprocessing, activation, notes)


def _check_description(file: Path, config: object, preprocessing: object) -> None:
    """Check the values of a description that are used here; open_clip checks the rest."""
    for section, table, expectations in (
        ("model_cfg", config, MODEL_KEYS),
        ("preprocess_cfg", preprocessing, PREPROCESSING_KEYS),
    ):
        if not isinstance(table, Mapping):
            raise CrossmatchError(f"{file}: {section} must be a table of names and values. Download the file again.")
        for key, (test, expectation) in expectations.items():
            if (key in table or key == "embed_dim") and not test(table.get(key)):
                value = repr(table[key])[:60] if key in table else "absent"
                raise CrossmatchError(
                    f"{file}: {key} of {section} must be {expectation} (got {value}). Correct it, or download it again."
                )


def architectures_of_size(weights: Mapping[str, Tensor]) -> list[str]:
    """Return the architectures of open_clip with the sizes of these weights; only its own transformers are recognised."""
    clip = _import_open_clip()
    names = ("visual.conv1.weight", "visual.positional_embedding", "text_projection", "ln_final.weight")
    if not all(name in weights for name in names) or weights[names[0]].ndim != 4:
        return []
    patches, positions, projection, norm = (weights[name] for name in names)
    side = math.isqrt(len(positions) - 1) * patches.shape[-1]
    depth = len({name.split(".")[3] for name in weights if name.startswith("visual.transformer.resblocks.")})
    sizes = (projection.shape[-1], patches.shape[0], patches.shape[-1], side, depth, norm.shape[0])
    return [name for name in clip.list_models() if _sizes(clip.get_model_config(name)) == sizes and not name.endswith(SUFFIX)]


def _sizes(config: Mapping[str, Any]) -> tuple[Any, ...]:
    vision = (config["vision_cfg"].get(name) for name in ("width", "patch_size", "image_size", "layers"))
    return (config["embed_dim"], *vision, config["text_cfg"].get("width"))


class OpenClip:
    """A CLIP of open_clip: unit vectors for images and texts, with the library's transform, tokenizer and network."""

    similarity = "cosine"

    def __init__(self, name: ClipName) -> None:
        clip = _import_open_clip()
        from open_clip.transform import PreprocessCfg, image_transform_v2

        files = _locate_described(name) if name.source.startswith((HUB, FOLDER)) else _locate_built_in(name)
        is_quick = files.activation == QUICKGELU
        quick = {"quick_gelu": is_quick} if is_quick or files.config.get("quick_gelu") else {}
        forced = {key: files.preprocessing[key] for key in PREPROCESSING if key in files.preprocessing}
        try:
            with offline():
                self.net: Any = clip.create_model(
                    name.source, load_weights=False, pretrained_text=False, force_preprocess_cfg=forced, **quick
                )
                self.tokenizer: Any = clip.get_tokenizer(name.source)
        except Exception as error:  # open_clip, transformers and the hub raise many types
            raise CrossmatchError(
                f"open_clip cannot build {name.source} on this machine ({describe_error(error)}). If its text tower is a model of "
                "transformers, download that one as well: hf download NAME"
            ) from error
        self.net.eval()
        _load_clip_weights(self.net, files, name)
        require_finite(self.net, str(files.path))
        self.notes, self.name = files.notes, name.name
        self.preprocessing = dict(self.net.visual.preprocess_cfg)
        self.transform: Callable[[Any], Tensor] = image_transform_v2(PreprocessCfg(**self.preprocessing), is_train=False)
        self.dimensions = int(files.config["embed_dim"])
        self.longest = int(self.tokenizer.context_length)
        self.signature = self._make_signature(files, name, clip.__version__)

    def _make_signature(self, files: ClipFiles, name: ClipName, version: str) -> str:
        label = f"{name.source},{files.path.name}" if Path(name.weights).is_file() else name.name
        if name.source.startswith(FOLDER):
            label = f"{FOLDER}{Path(name.source.partition(':')[2]).name}"
        p = self.preprocessing
        size = "x".join(map(str, p["size"])) if isinstance(p["size"], Sequence) else p["size"]
        norm = hashlib.sha256(json.dumps([[float(n) for n in p["mean"]], [float(n) for n in p["std"]], p["fill_color"]]).encode())
        pixels = f"pixels:{size}/{p['resize_mode']}/{p['interpolation']}/{norm.hexdigest()[:6]}"
        return (
            f"open_clip:{label}|open_clip:{version}|weights:{hash_weights(self.net)}|{files.activation}|{pixels}|"
            f"tokens:{self.longest}|fp32"
        )

    def notes_on(self, data: object) -> tuple[str, ...]:
        """Notes for reports: the activation, if it is not the one that the name means."""
        return self.notes

    def prepare_images(self, images: Sequence[Image]) -> Tensor:
        """Apply open_clip's transform: (n, 3, height, width)."""
        if not len(images):
            return torch.empty(0, 3, 1, 1)
        return torch.stack([self.transform(image) for image in images])

    def embed_prepared(self, prepared: Tensor) -> NDArray[np.float32]:
        """Embed what `prepare_images` returned: one unit vector per image."""
        return self._embed_batches(self.net.encode_image, prepared)

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Embed images: one unit vector per image."""
        return self.embed_prepared(self.prepare_images(images))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed texts: one unit vector per text, also for an empty one."""
        return self._embed_batches(self.net.encode_text, self.tokenizer(list(texts) or [""])[: len(texts)])

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have more tokens than are read: those whose tokens continue at one more position."""
        *tokens, empty = self.tokenizer([*texts, ""], context_length=self.longest + 1)
        return np.array([bool(row[-1] != empty[-1]) for row in tokens], dtype=bool)

    def _embed_batches(self, embed: Callable[..., Tensor], inputs: Tensor) -> NDArray[np.float32]:
        with torch.inference_mode():
            parts = [embed(inputs[start : start + BATCH], normalize=True).numpy() for start in range(0, len(inputs), BATCH)]
        return np.concatenate([np.empty((0, self.dimensions), np.float32), *parts])


def _load_clip_weights(net: nn.Module, files: ClipFiles, name: ClipName) -> None:
    """Load the weights strictly: nothing is resized or left at random."""
    from open_clip.convert import convert_state_dict
    from open_clip.model import convert_to_custom_text_state_dict

    weights = {key: values for key, values in files.checkpoint.weights.items() if key not in OPENAI_EXTRAS}
    candidates = ", ".join(architectures_of_size(weights))
    converted = convert_state_dict(net, dict(weights))  # weights of other libraries, if open_clip recognises them
    if "positional_embedding" in converted and not hasattr(net, "positional_embedding"):
        converted = convert_to_custom_text_state_dict(converted)
    expected = net.state_dict()  # older versions of transformers stored the position ids
    converted = {key: values for key, values in converted.items() if key in expected or not key.endswith(".position_ids")}
    hint = f"Its sizes are those of {candidates}" if candidates else "Name the architecture that it was trained with"
    example = f"open_clip:{candidates.partition(',')[0] or 'ARCHITECTURE'},FILE"
    load_weights(net, converted, str(files.path), name.source, f"{hint}, as in {example}.")


def open_clip_model(argument: str) -> OpenClip:
    """Make the model of `open_clip:ARGUMENT`."""
    return OpenClip(parse_clip_name(argument))
