"""CLIP models of open_clip: released weights by tag, repositories in the local cache, folders, and checkpoints on disk.

    open_clip:ViT-B-32,openai                    a tag of open_clip's table, once it was fetched
    open_clip:ViT-B-32,negclip.pt[,quickgelu]    a checkpoint of this architecture (`activation` says when the last word is needed)
    open_clip:hf-hub:org/name[,quickgelu]        a repository of Hugging Face, once it was fetched
    open_clip:local-dir:/folder[,quickgelu]      a folder with open_clip_config.json and weights

Nothing is fetched: what is not on this machine is an error that says how to get it.
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

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models.activation import PLAIN, QUICK, SUFFIX, Table, Trained, agreed, decided, trained_with
from crossmatch.models.checkpoint import require_finite
from crossmatch.models.folder import weights_of
from crossmatch.models.stored import Stored, cached_file, fill, library, offline, read_stored

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 64
HUB, FOLDER = "hf-hub:", "local-dir:"
CONFIG = "open_clip_config.json"
WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")  # in a repository, the better first
OPENAI_EXTRAS = ("input_resolution", "context_length", "vocab_size")  # numbers that OpenAI's archives keep among the weights
PREPROCESSING = ("mean", "std", "interpolation", "resize_mode", "fill_color")


def _numbers(count: int, above: float = -sys.float_info.max) -> Callable[[object], bool]:
    """Whether something is as many finite numbers, all above a bound."""

    def holds(value: object) -> bool:
        if not isinstance(value, list) or len(value) != count:
            return False
        return all(isinstance(n, (int, float)) and not isinstance(n, bool) and above < n < sys.float_info.max for n in value)

    return holds


def _whole(value: object, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _one_of(*known: str) -> tuple[Callable[[object], bool], str]:
    return (lambda value: value in known), f"one of {', '.join(known)}"


Expected = Mapping[str, tuple[Callable[[object], bool], str]]  # what holds of a value, and in words
DESCRIBED: Expected = {
    "embed_dim": (_whole, "a whole number above 0"),
    "vision_cfg": (lambda value: isinstance(value, Mapping), "a table"),
    "text_cfg": (lambda value: isinstance(value, Mapping), "a table"),
    "quick_gelu": (lambda value: isinstance(value, bool), "true or false"),
}
PREPARED: Expected = {
    "mean": (_numbers(3), "three numbers"),
    "std": (_numbers(3, above=0), "three numbers above 0"),
    "interpolation": _one_of("bicubic", "bilinear", "random"),
    "resize_mode": _one_of("shortest", "longest", "squash"),
    "fill_color": (lambda value: _whole(value, 0) or _numbers(3, -1)(value), "a whole number or three, from 0"),
}


@dataclass(frozen=True)
class Words:
    """What a name asks for: where the network is described, where its weights are, and the activation if it is said."""

    source: str  # an architecture, or hf-hub:… or local-dir:…
    weights: str = ""  # a tag or a file; empty where the source has them
    activation: str | None = None

    @property
    def name(self) -> str:
        return f"{self.source},{self.weights}" if self.weights else self.source


def parsed(rest: str) -> Words:
    """The parts of a name. A file may have commas in its path.

    >>> parsed("ViT-B/32,/tmp/a,b.pt,quickgelu")
    Words(source='ViT-B-32', weights='/tmp/a,b.pt', activation='quickgelu')
    >>> parsed("ViT-B-32-quickgelu,openai")
    Words(source='ViT-B-32', weights='openai', activation='quickgelu')
    """
    asked = next((how for how in (QUICK, PLAIN) if rest.endswith(f",{how}") and not Path(rest.partition(",")[2]).is_file()), None)
    kept = rest[: -len(asked) - 1] if asked else rest
    if kept.startswith((HUB, FOLDER)):
        return Words(kept, "", asked)
    source, _, weights = kept.partition(",")
    if not source or not weights:
        raise WrongWords(
            "open_clip needs an architecture and its weights, as in open_clip:ViT-B-32,openai or open_clip:ViT-B-32,negclip.pt; or "
            "open_clip:hf-hub:org/name; or open_clip:local-dir:FOLDER"
        )
    source = source.replace("/", "-")
    if source.endswith(SUFFIX):
        if asked == PLAIN:
            raise WrongWords(f"open_clip:{rest} asks for QuickGELU in its architecture and for GELU after it. Leave one out.")
        source, asked = source.removesuffix(SUFFIX), QUICK
    return Words(source, weights, asked)


@dataclass(frozen=True)
class Found:
    """Everything that is needed to build a model: its description, its weights, and how it was trained."""

    build: str  # the name that open_clip builds the network and the tokenizer from
    config: Mapping[str, Any]
    path: Path
    stored: Stored
    preprocessing: Mapping[str, Any]
    activation: str
    notes: tuple[str, ...]


def _library() -> Any:
    return library("open_clip", "clip")


def found(words: Words) -> Found:
    """Where the parts of a model are on this machine."""
    return _described(words) if words.source.startswith((HUB, FOLDER)) else _built_in(words)


def _built_in(words: Words) -> Found:
    clip = _library()
    config = clip.get_model_config(words.source)
    if config is None:
        from difflib import get_close_matches

        near = ", ".join(get_close_matches(words.source, clip.list_models(), 3)) or "open_clip.list_models() has them"
        raise WrongWords(f"open_clip knows no architecture {words.source!r}. Nearest: {near}.")
    table = _table(words.source)
    tag = words.weights.lower().replace("-", "_")
    usual = QUICK if config.get("quick_gelu") else PLAIN
    if tag in table:
        path = _fetched(words, tag, table[tag])
        known: Trained | None = Trained(
            QUICK if table[tag].get("quick_gelu") else PLAIN, f"the released weights {tag!r}", sure=True
        )
        stored, preprocessing = read_stored(path), table[tag]
    else:
        path = Path(words.weights)
        if not path.is_file():
            raise WrongWords(
                f"{words.weights!r} is neither a file nor one of open_clip's weights for {words.source}. Check the path; the "
                f"weights are {', '.join(table) or 'none'}."
            )
        stored, preprocessing = read_stored(path), _usual_preprocessing(table)
        known = trained_with(path, stored, table)
        if known is None and clip.get_model_config(words.source + SUFFIX) is None:
            # Of an architecture that open_clip has once, the other activation comes by force_quick_gelu alone: rare, not excluded.
            known = Trained(usual, f"open_clip has {words.source} with no other")
    activation, notes = decided(words.name, usual, words.activation, known)
    return Found(words.source, config, path, stored, preprocessing, activation, notes)


def _table(architecture: str) -> Table:
    """The released weights of an architecture by tag. A row is silent about QuickGELU where the architecture itself has it."""
    from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model

    own = {"quick_gelu": True} if (_library().get_model_config(architecture) or {}).get("quick_gelu") else {}
    return {tag: {**get_pretrained_cfg(architecture, tag), **own} for tag in list_pretrained_tags_by_model(architecture)}


def _whole_table(stored: Stored) -> Table:
    """All released weights, for files by which no architecture is named; by tag alone those of what a training's arguments name."""
    from open_clip.pretrained import get_pretrained_cfg, list_pretrained

    args = stored.told.get("args")
    named = args.get("model") if isinstance(args, Mapping) else getattr(args, "model", None)
    rows = {f"{architecture},{tag}": get_pretrained_cfg(architecture, tag) for architecture, tag in list_pretrained()}
    return {**rows, **(_table(str(named)) if named else {})}


def _usual_preprocessing(table: Table) -> Mapping[str, Any]:
    """How pictures are prepared for all released weights of an architecture, where they agree; else open_clip's default."""
    ways = [{name: told[name] for name in PREPROCESSING if name in told} for told in table.values()]
    return ways[0] if ways and all(way == ways[0] for way in ways) else {}


def _fetched(words: Words, tag: str, told: Mapping[str, Any]) -> Path:
    """Where the weights of a tag are, in the cache of Hugging Face or in that of OpenAI's library."""
    repository, _, name = str(told.get("hf_hub", "")).rpartition("/")
    path = cached_file(repository, (name,) if name else WEIGHTS) if repository else None
    old = Path("~/.cache/clip").expanduser() / str(told.get("url", "")).rpartition("/")[2]
    if path is None and old.is_file():
        path = old
    if path is None:
        how = f"hf download {repository}" if repository else f"get {told.get('url')} into {old.parent}"
        raise CrossmatchError(
            f"the weights of open_clip:{words.source},{tag} are not on this machine. Where there is a network: {how}. Or give a "
            f"file: open_clip:{words.source},FILE"
        )
    return path


def _described(words: Words) -> Found:
    """A repository in the cache, or a folder: open_clip_config.json and weights."""
    name = words.source.partition(":")[2]
    if words.source.startswith(FOLDER):
        told = Path(name) / CONFIG if (Path(name) / CONFIG).is_file() else None
        held = sorted(path for path in Path(name).glob("*") if path.suffix in (".safetensors", ".bin", ".pt", ".pth"))
        path = next((p for known in WEIGHTS for p in held if p.name == known), held[0] if len(held) == 1 else None)
        remedy = f"One {CONFIG} and one file of weights belong into the folder, as open_clip's push_to_hf_hub writes them"
    else:
        told, path = cached_file(name, (CONFIG,)), cached_file(name, WEIGHTS)
        remedy = f"Where there is a network: hf download {name}"
    if told is None or path is None:
        lacks = " and ".join(what for what, there in ((CONFIG, told), ("its weights", path)) if there is None)
        raise CrossmatchError(f"open_clip:{words.source}: {lacks} cannot be found on this machine. {remedy}.")
    try:
        described = json.loads(told.read_bytes())
        config = described["model_cfg"]
        preprocessing = described.get("preprocess_cfg") or {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CrossmatchError(f"{told} does not describe a model of open_clip: it has no model_cfg. Get it again.") from None
    _require_described(told, config, preprocessing)
    usual = QUICK if config.get("quick_gelu") else PLAIN
    stored = read_stored(path)
    shown = Path(name).resolve().name if words.source.startswith(FOLDER) else name
    clue = trained_with(path, stored, _whole_table(stored), shown)
    known = agreed(words.name, Trained(usual, f"its {CONFIG} says so"), clue, words.activation)
    activation, notes = decided(words.name, usual, words.activation, known)
    return Found(words.source, config, path, stored, preprocessing, activation, notes)


def _require_described(file: Path, config: object, preprocessing: object) -> None:
    """What is read here of a description must be what it ought to be; the rest is open_clip's to refuse."""
    for part, held, expected in (("model_cfg", config, DESCRIBED), ("preprocess_cfg", preprocessing, PREPARED)):
        if not isinstance(held, Mapping):
            raise CrossmatchError(f"{file}: {part} must be a table of names and values. Get the file again.")
        for name, (holds, what) in expected.items():
            if (name in held or name == "embed_dim") and not holds(held.get(name)):
                seen = repr(held[name])[:60] if name in held else "absent"
                raise CrossmatchError(f"{file}: {name} of {part} must be {what}, not {seen}. Mend it, or get it again.")


def likely(weights: Mapping[str, Tensor]) -> list[str]:
    """The architectures of open_clip whose sizes are those of these weights; only its own transformers are told apart."""
    clip = _library()
    names = ("visual.conv1.weight", "visual.positional_embedding", "text_projection", "ln_final.weight")
    if not all(name in weights for name in names) or weights[names[0]].ndim != 4:
        return []
    patches, places, projection, norm = (weights[name] for name in names)
    side = math.isqrt(len(places) - 1) * patches.shape[-1]
    depth = len({name.split(".")[3] for name in weights if name.startswith("visual.transformer.resblocks.")})
    sizes = (projection.shape[-1], patches.shape[0], patches.shape[-1], side, depth, norm.shape[0])
    return [name for name in clip.list_models() if _sizes(clip.get_model_config(name)) == sizes and not name.endswith(SUFFIX)]


def _sizes(config: Mapping[str, Any]) -> tuple[Any, ...]:
    seen, said = config["vision_cfg"], config["text_cfg"]
    asked = (seen.get(name) for name in ("width", "patch_size", "image_size", "layers"))
    return (config["embed_dim"], *asked, said.get("width"))


class OpenClip:
    """A CLIP of open_clip: unit vectors for images and texts, through the library's own transform, tokenizer and network."""

    similarity = "cosine"

    def __init__(self, words: Words) -> None:
        clip = _library()
        there = found(words)
        quick = {"quick_gelu": there.activation == QUICK} if there.activation == QUICK or there.config.get("quick_gelu") else {}
        forced = {name: there.preprocessing[name] for name in PREPROCESSING if name in there.preprocessing}
        try:
            with offline():
                self.net: Any = clip.create_model(
                    there.build, load_weights=False, pretrained_text=False, force_preprocess_cfg=forced, **quick
                )
                self.tokenizer: Any = clip.get_tokenizer(there.build)
        except Exception as error:  # of the library, of transformers and of the hub, of many kinds
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise CrossmatchError(
                f"open_clip cannot build {words.source} on this machine ({said:.150}). If its text tower is a model of "
                "transformers, fetch that one as well: hf download NAME"
            ) from error
        self.net.eval()
        _fill(self.net, there, words)
        require_finite(self.net, str(there.path))
        self.notes, self.name = there.notes, words.name
        self.preprocessing = dict(self.net.visual.preprocess_cfg)
        self.transform = _transform(self.preprocessing)
        self.dimensions = int(there.config["embed_dim"])
        self.longest = int(self.tokenizer.context_length)
        self.signature = self._signature(there, words, clip.__version__)

    def _signature(self, there: Found, words: Words, version: str) -> str:
        shown = f"{words.source},{there.path.name}" if Path(words.weights).is_file() else words.name
        if words.source.startswith(FOLDER):
            shown = f"{FOLDER}{Path(words.source.partition(':')[2]).name}"
        p = self.preprocessing
        size = "x".join(map(str, p["size"])) if isinstance(p["size"], Sequence) else p["size"]
        norm = hashlib.sha256(json.dumps([[float(n) for n in p["mean"]], [float(n) for n in p["std"]], p["fill_color"]]).encode())
        pixels = f"pixels:{size}/{p['resize_mode']}/{p['interpolation']}/{norm.hexdigest()[:6]}"
        return (
            f"open_clip:{shown}|open_clip:{version}|weights:{weights_of(self.net)}|{there.activation}|{pixels}|"
            f"tokens:{self.longest}|fp32"
        )

    def notes_on(self, data: object) -> tuple[str, ...]:
        """What must be said beside its results: with which activation it was loaded, where that is not what its name says."""
        return self.notes

    def prepare_images(self, images: Sequence[Image]) -> Tensor:
        """The pictures through open_clip's own transform: (n, 3, height, width)."""
        if not len(images):
            return torch.empty(0, 3, 1, 1)
        return torch.stack([self.transform(image) for image in images])

    def embed_prepared(self, prepared: Tensor) -> NDArray[np.float32]:
        """One unit vector per picture."""
        return self._in_batches(self.net.encode_image, prepared)

    def embed_images(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """One unit vector per image."""
        return self.embed_prepared(self.prepare_images(images))

    def embed_texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector per text; an empty text has one as well."""
        return self._in_batches(self.net.encode_text, self.tokenizer(list(texts) or [""])[: len(texts)])

    def truncated(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Which texts have more tokens than are read: those that would go on in one place more."""
        *tokens, empty = self.tokenizer([*texts, ""], context_length=self.longest + 1)
        return np.array([bool(row[-1] != empty[-1]) for row in tokens], dtype=bool)

    def _in_batches(self, embed: Callable[..., Tensor], given: Tensor) -> NDArray[np.float32]:
        with torch.inference_mode():
            parts = [embed(given[at : at + BATCH], normalize=True).numpy() for at in range(0, len(given), BATCH)]
        return np.concatenate([np.empty((0, self.dimensions), np.float32), *parts])


def _transform(preprocessing: Mapping[str, Any]) -> Callable[[Any], Tensor]:
    """What open_clip does with a picture before it is embedded."""
    from open_clip.transform import PreprocessCfg, image_transform_v2

    made: Callable[[Any], Tensor] = image_transform_v2(PreprocessCfg(**preprocessing), is_train=False)
    return made


def _fill(net: nn.Module, there: Found, words: Words) -> None:
    """The weights into the network, strictly: nothing is resized or left at random."""
    from open_clip.convert import convert_state_dict
    from open_clip.model import convert_to_custom_text_state_dict

    weights = {name: values for name, values in there.stored.weights.items() if name not in OPENAI_EXTRAS}
    names = ", ".join(likely(weights))
    converted = convert_state_dict(net, dict(weights))  # of other libraries, where open_clip recognises them
    if "positional_embedding" in converted and not hasattr(net, "positional_embedding"):
        converted = convert_to_custom_text_state_dict(converted)
    known = net.state_dict()  # older versions of transformers stored the numbers of the places
    converted = {name: values for name, values in converted.items() if name in known or not name.endswith(".position_ids")}
    remedy = f"Its sizes are those of {names}" if names else "Name the architecture that it was trained with"
    fill(
        net,
        converted,
        str(there.path),
        words.source,
        f"{remedy}, as in open_clip:{names.partition(',')[0] or 'ARCHITECTURE'},FILE.",
    )


def open_clip_model(rest: str) -> OpenClip:
    """The model of a name, as after `open_clip:`."""
    return OpenClip(parsed(rest))
