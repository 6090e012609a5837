"""Loading a model of transformers from local files: network, tokenizer and processors."""

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

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.user_code_errors import describe_error
from crossmatch.models.files.checkpoint_files import require_finite
from crossmatch.models.files.model_folder import hash_weights

HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
WEIGHTS = ("*.safetensors", "*.bin")
CONFIGURATION = ("*.json", "*.txt", "*.model", "*.jinja")  # other files that are read: settings, vocabulary, chat template
VOCABULARY = ("tokenizer.json", "vocab*", "merges.txt", "*.model", "*.tiktoken", "tekken.json")
SUBFOLDERS = ("qformer_tokenizer",)  # of a model's folder, which are read as well
NOT_READ = ("*.index.json", "README*", "requirements*.txt")


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model: its folder, its name in reports, and its revision if it is in the cache."""

    folder: Path
    name: str
    revision: str = "folder"

    def architecture(self) -> str:
        """Return the class of transformers that config.json names."""
        path = self.folder / "config.json"
        if not path.is_file():
            raise CrossmatchError(
                f"{self.folder} has no model of transformers: there is no config.json. Check the path, or download the model again."
            )
        try:
            architectures = json.loads(path.read_bytes()).get("architectures")
        except (ValueError, AttributeError) as error:
            raise CrossmatchError(f"{path} is not the json of a model ({error}). Download or save the model again.") from None
        if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
            raise CrossmatchError(f'{path} names no architecture. Add it, as in "architectures": ["CLIPModel"].')
        return architectures[0]

    def hash_files(self) -> str:
        return hash_model_files(self.folder, SUBFOLDERS)


def hash_model_files(folder: Path, subfolders: Iterable[str] = ()) -> str:
    """Hash what is read beside the weights in a folder and some subfolders: configuration, preprocessing, tokenizer, template."""
    digest = hashlib.sha256()
    for place in (folder, *(folder / part for part in subfolders)):
        paths = {path for pattern in CONFIGURATION for path in place.glob(pattern)}
        for path in sorted(paths - {path for pattern in NOT_READ for path in place.glob(pattern)}):
            digest.update(path.relative_to(folder).as_posix().encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def locate_model(name: str, revision: str | None = None) -> ModelFiles:
    """Find a model: a folder, or a snapshot in the local cache of Hugging Face."""
    if Path(name).is_dir():
        if revision:
            raise UsageError(f"{name} is a folder, which has no revisions. Remove revision={revision}.")
        return ModelFiles(Path(name), Path(name).resolve().name)
    import_transformers()
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(name, "config.json", revision=revision) if HUB_NAME.fullmatch(name) else None
    if not isinstance(path, str):
        at_revision = f" at revision {revision}" if revision else ""
        command = f"hf download {name}" + (f" --revision {revision}" if revision else "")
        raise CrossmatchError(
            f"there is no model {name}{at_revision} on this machine: neither a folder nor in the Hugging Face cache. "
            f"Name its folder, or download it first: {command}"
        )
    folder = Path(path).parent
    return ModelFiles(folder, name, folder.name[:12])


def import_transformers() -> Any:
    """Import transformers so that it works without torchvision and with a broken torchvision."""
    try:
        import torch  # noqa: F401 - transformers alone has no models
        import transformers
    except ImportError as absent:
        raise MissingDependencyError("PyTorch and transformers", "text") from absent
    _without_broken_torchvision()
    return transformers


def _without_broken_torchvision() -> None:
    """Make transformers treat a torchvision that cannot be imported as absent.

    transformers only checks whether the package is installed, and imports it together with all image processors. A torchvision that
    was built for another torch would make every image processor unusable, though those used here do not need it.
    """
    if "transformers.image_utils" in sys.modules or importlib.util.find_spec("torchvision") is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torchvision")
    except Exception:  # a library that does not fit may raise anything
        from transformers.utils import import_utils

        sys.modules["torchvision"] = None  # type: ignore[assignment]  # makes an import raise ImportError
        try:
            for function in ("is_torchvision_available", "is_torchvision_v2_available", "is_torchvision_greater_or_equal"):
                getattr(getattr(import_utils, function, None), "cache_clear", lambda: None)()
            import_utils.is_torchvision_available()  # transformers caches the result
        finally:
            del sys.modules["torchvision"]


@contextmanager
def silence_transformers() -> Iterator[None]:
    """Disable progress bars and warnings of transformers within the context; they are written to pipes as well."""
    from transformers.utils import logging

    was_enabled, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if was_enabled:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _load_part(files: ModelFiles, part: str, load: Callable[[], Any]) -> Any:
    try:
        with silence_transformers():
            return load()
    except Exception as error:  # the library and the file system raise many types
        raise CrossmatchError(
            f"{files.folder}: the {part} cannot be loaded ({describe_error(error)}). Download the model again."
        ) from error


def load_network(files: ModelFiles, architecture: str) -> Any:
    """Load the network in float32, frozen, in evaluation mode."""
    transformers = import_transformers()
    if not any(path for pattern in WEIGHTS for path in files.folder.glob(pattern)):
        raise CrossmatchError(f"{files.folder} has no weights ({' or '.join(WEIGHTS)}). Download or save the model again.")
    network_class = getattr(transformers, architecture, None)
    if network_class is None:
        raise CrossmatchError(
            f"{files.folder} is a {architecture}, which transformers {transformers.__version__} does not have. Install a newer one."
        )
    net, loading_info = _load_part(
        files,
        "network",
        lambda: network_class.from_pretrained(files.folder, local_files_only=True, output_loading_info=True),
    )
    missing, mismatched = sorted(loading_info["missing_keys"]), sorted(map(str, loading_info.get("mismatched_keys", ())))
    if missing or mismatched:  # transformers would use random numbers
        raise CrossmatchError(
            f"{files.folder}: the weights are not those of a {architecture}: {len(missing) + len(mismatched):,} of "
            f"{len(net.state_dict()):,} are missing or of another shape, first {(missing + mismatched)[0]!r}. Check the "
            "architecture in config.json, or download the model again."
        )
    net = net.float().eval()
    require_finite(net, str(files.folder))
    return net.requires_grad_(False)


def load_tokenizer(files: ModelFiles) -> Any:
    """Load the model's tokenizer; without its vocabulary, transformers 5 would make an empty one."""
    transformers = import_transformers()
    _require_vocabulary(files)
    return _load_part(files, "tokenizer", lambda: transformers.AutoTokenizer.from_pretrained(files.folder, local_files_only=True))


def _require_vocabulary(files: ModelFiles) -> None:
    if not any(path for pattern in VOCABULARY for path in files.folder.glob(pattern)):
        raise CrossmatchError(f"{files.folder} has no tokenizer ({', '.join(VOCABULARY)}). Download or save the model again.")


def load_image_processor(files: ModelFiles) -> Any:
    """Load the model's image processor, always with PIL and NumPy: results must not depend on torchvision being installed."""
    transformers = import_transformers()
    options: dict[str, Any] = {"backend": "pil"} if hasattr(transformers, "CLIPImageProcessorPil") else {"use_fast": False}
    load = transformers.AutoImageProcessor.from_pretrained
    return _load_part(files, "image processor", lambda: load(files.folder, local_files_only=True, **options))


def load_processor(files: ModelFiles) -> Any:
    """Load the processor of images and chats; its images are processed as by `load_image_processor`."""
    transformers = import_transformers()
    _require_vocabulary(files)
    load = transformers.AutoProcessor.from_pretrained
    processor = _load_part(files, "processor", lambda: load(files.folder, local_files_only=True))
    if not hasattr(processor, "image_processor") or not hasattr(processor, "tokenizer"):
        raise CrossmatchError(
            f"{files.folder} has no processor of images and texts, only a {type(processor).__name__}. Download the model again, "
            "with all its files."
        )
    processor.image_processor = load_image_processor(files)
    return processor


def require_working(files: ModelFiles, score: Callable[[list[Any], list[str]], Any]) -> None:
    """Try one image and two texts, so that parts that do not fit together are found before the evaluation."""
    from PIL import Image

    try:
        score([Image.new("RGB", (64, 48), (200, 120, 40))], ["a cat", ""])
    except Exception as error:  # a network may raise anything for unexpected inputs
        raise CrossmatchError(
            f"{files.folder}: tokenizer, image processor and network do not fit together ({describe_error(error)}). Download or "
            "save all files of the model again."
        ) from error


def make_signature(files: ModelFiles, use: str, net: Any, longest: int | None, *facts: str) -> str:
    """Return the signature, which changes with name, revision, use, weights and everything else that is read."""
    transformers = import_transformers()
    tokens = () if longest is None else (f"tokens:{longest}",)
    facts = (f"weights:{hash_weights(net)}", f"files:{files.hash_files()}", "pixels:pil", *tokens, *facts)
    return "|".join(
        (f"hf:{files.name}", use, f"revision:{files.revision}", *facts, f"transformers:{transformers.__version__}", "fp32")
    )
