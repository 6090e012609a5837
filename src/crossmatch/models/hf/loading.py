"""A model of transformers from files that are here: where it is, and its parts, each refused in one line where it is unusable."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.models.checkpoint import require_finite
from crossmatch.models.folder import weights_of

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
WEIGHTS = ("*.safetensors", "*.bin")
READ = ("*.json", "*.txt", "*.model", "*.jinja")  # what else transformers reads in a folder: configuration, words, chat template
VOCABULARY = ("tokenizer.json", "vocab*", "merges.txt", "*.model", "*.tiktoken", "tekken.json")
PARTS = ("qformer_tokenizer",)  # folders in a model's folder that are read as well
UNREAD = ("*.index.json", "README*", "requirements*.txt")


@dataclass(frozen=True)
class Place:
    """A model on disk: its folder, the name it is shown under, and the revision where the cache knows it."""

    folder: Path
    name: str
    revision: str = "folder"

    def architecture(self) -> str:
        """The class of transformers that config.json names."""
        path = self.folder / "config.json"
        if not path.is_file():
            raise CrossmatchError(
                f"{self.folder} holds no model of transformers: there is no config.json. Check the path, or fetch the model again."
            )
        try:
            named = json.loads(path.read_bytes()).get("architectures")
        except (ValueError, AttributeError) as error:
            raise CrossmatchError(f"{path} is not the json of a model ({error}). Fetch or save the model again.") from None
        if not isinstance(named, list) or not named or not isinstance(named[0], str):
            raise CrossmatchError(f'{path} names no architecture. Add it, as in "architectures": ["CLIPModel"].')
        return named[0]

    def files(self) -> str:
        """Twelve hexadecimal digits of all that is read beside the weights: configuration, preprocessing, tokenizer, template."""
        return files_hash(self.folder, PARTS)


def files_hash(folder: Path, parts: Iterable[str] = ()) -> str:
    """Twelve hexadecimal digits of what libraries read in a model's folder beside its weights, and in some of the folders in it."""
    digest = hashlib.sha256()
    for place in (folder, *(folder / part for part in parts)):
        found = {path for pattern in READ for path in place.glob(pattern)}
        for path in sorted(found - {path for pattern in UNREAD for path in place.glob(pattern)}):
            digest.update(path.relative_to(folder).as_posix().encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def located(name: str, revision: str | None = None) -> Place:
    """Where the model is: a folder, or the snapshot in the local cache of Hugging Face."""
    if Path(name).is_dir():
        if revision:
            raise WrongWords(f"{name} is a folder, which has no revisions. Leave revision={revision} out.")
        return Place(Path(name), Path(name).resolve().name)
    transformers_here()
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json", revision=revision) if HUB_NAME.fullmatch(name) else None
    if not isinstance(found, str):
        wanted = f" at revision {revision}" if revision else ""
        fetch = f"hf download {name}" + (f" --revision {revision}" if revision else "")
        raise CrossmatchError(
            f"there is no model {name}{wanted} on this machine: neither a folder nor in the cache of Hugging Face. "
            f"Give its folder, or fetch it first: {fetch}"
        )
    folder = Path(found).parent
    return Place(folder, name, folder.name[:12])


def transformers_here() -> Any:
    """The library, able to work without torchvision and with a torchvision that cannot be imported."""
    try:
        import torch  # noqa: F401 - transformers alone has no models
        import transformers
    except ImportError as absent:
        raise MissingDependency("PyTorch and transformers", "text") from absent
    _without_broken_torchvision()
    return transformers


def _without_broken_torchvision() -> None:
    """Let transformers know that torchvision is as good as absent where importing it fails.

    transformers asks only whether the package is there, then imports it together with everything about images. A torchvision that
    was built for another torch would so make every image processor unusable, though none of those used here needs it.
    """
    if "transformers.image_utils" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torchvision")
    except Exception:  # whatever a library that does not fit raises
        from transformers.utils import import_utils

        sys.modules["torchvision"] = None  # type: ignore[assignment]  # Python's own way to say that it cannot be imported
        try:
            for asked in ("is_torchvision_available", "is_torchvision_v2_available", "is_torchvision_greater_or_equal"):
                getattr(getattr(import_utils, asked, None), "cache_clear", lambda: None)()
            import_utils.is_torchvision_available()  # remembered from now on, for transformers alone
        finally:
            del sys.modules["torchvision"]


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no advice of transformers, which it writes into pipes as well; then as before."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _part(place: Place, what: str, load: Callable[[], Any]) -> Any:
    try:
        with quiet():
            return load()
    except Exception as error:  # the library's and the file system's, of many kinds
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(
            f"{place.folder}: the {what} cannot be loaded ({type(error).__name__}: {said:.200}). Fetch or save the model again."
        ) from error


def network(place: Place, architecture: str) -> Any:
    """The network in float32, ready to be asked. Weights that are missing, of another architecture or not finite are refused."""
    transformers = transformers_here()
    if not any(path for pattern in WEIGHTS for path in place.folder.glob(pattern)):
        raise CrossmatchError(f"{place.folder} holds no weights ({' or '.join(WEIGHTS)}). Fetch or save the model again.")
    kind = getattr(transformers, architecture, None)
    if kind is None:
        raise CrossmatchError(
            f"{place.folder} is a {architecture}, which transformers {transformers.__version__} does not have. Install a newer one."
        )
    net, told = _part(
        place,
        "network",
        lambda: kind.from_pretrained(place.folder, local_files_only=True, output_loading_info=True),
    )
    missing, unequal = sorted(told["missing_keys"]), sorted(map(str, told.get("mismatched_keys", ())))
    if missing or unequal:  # transformers would fill them with random numbers
        raise CrossmatchError(
            f"{place.folder}: the weights are not those of a {architecture}: {len(missing) + len(unequal):,} of "
            f"{len(net.state_dict()):,} are missing or of another shape, first {(missing + unequal)[0]!r}. Check the architecture "
            "in config.json, or fetch the model again."
        )
    net = net.float().eval()
    require_finite(net, str(place.folder))
    return net.requires_grad_(False)


def tokenizer_of(place: Place) -> Any:
    """The tokenizer beside the model. Where its words are missing, transformers 5 would make one that knows none."""
    transformers = transformers_here()
    _require_vocabulary(place)
    return _part(place, "tokenizer", lambda: transformers.AutoTokenizer.from_pretrained(place.folder, local_files_only=True))


def _require_vocabulary(place: Place) -> None:
    if not any(path for pattern in VOCABULARY for path in place.folder.glob(pattern)):
        raise CrossmatchError(f"{place.folder} holds no tokenizer ({', '.join(VOCABULARY)}). Fetch or save the model again.")


def image_processor_of(place: Place) -> Any:
    """The image processor beside the model, always as PIL and NumPy do it: results must not depend on torchvision being there."""
    transformers = transformers_here()
    how: dict[str, Any] = {"backend": "pil"} if hasattr(transformers, "CLIPImageProcessorPil") else {"use_fast": False}
    load = transformers.AutoImageProcessor.from_pretrained
    return _part(place, "image processor", lambda: load(place.folder, local_files_only=True, **how))


def processor_of(place: Place) -> Any:
    """The processor that joins images with a chat; its images are handled as by `image_processor_of`."""
    transformers = transformers_here()
    _require_vocabulary(place)
    load = transformers.AutoProcessor.from_pretrained
    processor = _part(place, "processor", lambda: load(place.folder, local_files_only=True))
    if not hasattr(processor, "image_processor") or not hasattr(processor, "tokenizer"):
        raise CrossmatchError(
            f"{place.folder} has no processor of images and texts, only a {type(processor).__name__}. Fetch the model again, with "
            "all its files."
        )
    processor.image_processor = image_processor_of(place)
    return processor


def require_fit(place: Place, ask: Callable[[list[Any], list[str]], Any]) -> None:
    """Ask about one image and two texts: parts that do not belong together are refused now, not in the middle of an evaluation."""
    from PIL import Image

    try:
        ask([Image.new("RGB", (64, 48), (200, 120, 40))], ["a cat", ""])
    except Exception as error:  # whatever a network says of numbers that it does not expect
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(
            f"{place.folder}: tokenizer, image processor and network do not fit together ({type(error).__name__}: {said:.200}). "
            "Fetch or save all files of the model again."
        ) from error


def system_line(place: Place, what: str, net: Any, longest: int | None, *more: str) -> str:
    """The signature: it changes with the name, the revision, the use, the weights and everything else that is read."""
    transformers = transformers_here()
    tokens = () if longest is None else (f"tokens:{longest}",)
    facts = (f"weights:{weights_of(net)}", f"files:{place.files()}", "pixels:pil", *tokens, *more)
    return "|".join(
        (f"hf:{place.name}", what, f"revision:{place.revision}", *facts, f"transformers:{transformers.__version__}", "fp32")
    )
