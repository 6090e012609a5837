"""CLIP models of open_clip and transformers, wrapped for the training loop, and saved in the format of their library."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.data.arrays import IntArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.image_loading import load_image
from crossmatch.models import FOLDER_PLACEHOLDER
from crossmatch.models.files.model_folder import hash_weights
from crossmatch.models.zoo.clip import clamped_scale
from crossmatch.train.checkpoints import FOLDER_NAME, SUFFIX

if TYPE_CHECKING:
    from PIL.Image import Image

WEIGHTS_FILE = "open_clip.pt"
WEIGHT_PATTERNS = ("*.pt", "*.pth", "*.ckpt", "*.npz", "*.h5", "*.msgpack")  # weight files of other tools
CONFIG_FILE, BINARY_FILE = "open_clip_config.json", "open_clip_pytorch_model.bin"
TEMPORARY_PREFIX = ".saving-"  # of a folder whose files are not yet complete
EMBEDDING_BATCH = 64  # items that are embedded at once in validation


# -- inputs of the network


@dataclass(frozen=True, eq=False)
class TokenizedTexts:
    """Texts as padded token numbers (N, L), and their mask, if the network needs one."""

    numbers: Tensor
    mask: Tensor | None = None

    def __getitem__(self, which: Any) -> TokenizedTexts:
        return TokenizedTexts(self.numbers[which], None if self.mask is None else self.mask[which])

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, eq=False)
class PictureStore:
    """The images of a collection, opened and preprocessed when they are taken: (N, 3, height, width)."""

    collection: Collection
    prepare: Callable[[list[Image]], Tensor]

    def __len__(self) -> int:
        return self.collection.shape[0]

    def take(self, indices: IntArray) -> Tensor:
        open_image = self.collection.image_opener()
        ids = self.collection.image_ids[np.asarray(indices, dtype=np.int64)].tolist()
        return self.prepare([load_image(open_image, image_id) for image_id in ids])


@dataclass(frozen=True)
class Preparation:
    """Preprocessing of images by a library, and its description, which is part of the hash of the data."""

    description: str
    prepare: Callable[[list[Image]], Tensor] = field(repr=False, compare=False)

    def __repr__(self) -> str:  # part of the hash of the data, so it must not change
        return f"Preparation(words={self.description!r})"

    def __call__(self, collection: Collection) -> PictureStore:
        return PictureStore(collection, self.prepare)


# -- the two libraries


class ExternalClipNet(nn.Module):
    """A library's network with the interface of the zoo's CLIP: unit vectors, similarity and a learned temperature."""

    def __init__(self, net: Any, encode_images: Callable[..., Tensor], encode_texts: Callable[..., Tensor]) -> None:
        super().__init__()
        self.net, self._encode_images, self._encode_texts = net, encode_images, encode_texts
        self.read_all: Callable[[Sequence[str]], TokenizedTexts]

    @property
    def logit_scale(self) -> Tensor:
        scale: Tensor = self.net.logit_scale
        return scale

    def images(self, pixels: Tensor) -> Tensor:
        """Unit vectors (N, D)."""
        return F.normalize(self._encode_images(self.net, pixels), dim=1)

    def texts(self, tokens: TokenizedTexts) -> Tensor:
        """Unit vectors (N, D). Columns that contain padding only are dropped."""
        if tokens.mask is not None:
            longest = int(tokens.mask.sum(dim=1).max())
            tokens = TokenizedTexts(tokens.numbers[:, :longest], tokens.mask[:, :longest])
        return F.normalize(self._encode_texts(self.net, tokens), dim=1)

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """Cosine of each image with each text: (I, T)."""
        return images @ texts.T

    def scale(self) -> Tensor:
        """Factor of the cosines in the loss, 1/τ."""
        return clamped_scale(self.logit_scale)


@dataclass(eq=False)
class FineTunedModel:
    """A model of another library that the training loop can train.

    `write(folder)` saves it and returns its new model name, with `FOLDER_PLACEHOLDER` in place of the folder.
    """

    name: str
    signature: str
    match: ExternalClipNet
    preparation: Preparation
    write: Callable[[Path], str] = field(repr=False)
    recipe: dict[str, Any] = field(default_factory=dict)

    @property
    def net(self) -> nn.Module:
        return self.match

    @property
    def weights(self) -> str:
        """Twelve hexadecimal digits of the weights."""
        return hash_weights(self.match.net)

    def as_regions(self, images: Tensor) -> Tensor:
        """Return the images unchanged: the network has no regions."""
        return images

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """One unit vector per text."""
        return _in_batches(self.match.texts, self.match.read_all(texts))

    def embed(self, pixels: Tensor) -> Tensor:
        """One unit vector per image."""
        return _in_batches(self.match.images, pixels)

    def compare(self, pixels: Tensor, texts: Sequence[str]) -> NDArray[np.float32]:
        """Score every image with every text: (images, texts)."""
        return np.asarray((self.embed(pixels) @ self.embed_texts(texts).T).numpy(), dtype=np.float32)


def _in_batches(encode: Callable[[Any], Tensor], inputs: Any) -> Tensor:
    starts = range(0, len(inputs), EMBEDDING_BATCH)
    with torch.inference_mode():
        return torch.cat([encode(inputs[first : first + EMBEDDING_BATCH]) for first in starts])


def load_external_model(name: str) -> FineTunedModel:
    """Load a model of open_clip or transformers with trainable weights."""
    library, _, rest = name.partition(":")
    load = {"hf": _load_transformers, "open_clip": _load_open_clip}.get(library)
    if load is None:
        raise UsageError(f"--begin {name}: expected hf:… or open_clip:….")
    model = load(rest)
    scale = getattr(model.match.net, "logit_scale", None)
    if not isinstance(scale, nn.Parameter) or scale.numel() != 1:
        raise UsageError(f"--begin {name}: the model has no learned temperature. Start from a CLIP or SigLIP model.")
    model.match.requires_grad_(True)
    return model


def model_folder(name: str) -> Path | None:
    """The folder, or the folder of the weights file, that a model name refers to; None if it refers to neither.

    >>> model_folder("open_clip:ViT-B-32,openai") is None
    True
    """
    library, _, rest = name.partition(":")
    if library == "hf":
        from crossmatch.models.adapters.transformers import parse_hub_name

        folder = Path(parse_hub_name(rest).name)
        return folder if folder.is_dir() else None
    from crossmatch.models.adapters.open_clip import FOLDER, parse_clip_name

    clip_name = parse_clip_name(rest)
    if clip_name.source.startswith(FOLDER):
        return Path(clip_name.source.removeprefix(FOLDER))
    return Path(clip_name.weights).parent if Path(clip_name.weights).is_file() else None


def require_no_foreign_model(folder: Path, own_file: str) -> None:
    """Refuse a folder with a model that no fine-tuning wrote, because saving would replace its files.

    A fine-tuning leaves checkpoints in the folder until it has written `own_file`. Files that no library reads are ignored.
    """
    from crossmatch.models.adapters.transformers import loading

    if (folder / own_file).exists() or any((folder / FOLDER_NAME).glob(f"*{SUFFIX}")):
        return
    patterns = (*loading.CONFIGURATION, *loading.VOCABULARY, *loading.WEIGHTS, *WEIGHT_PATTERNS)
    foreign = sorted({path.name for pattern in patterns for path in folder.glob(pattern) if not path.name.startswith(".")})
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise CrossmatchError(
            f"-o {folder}: the fine-tuned model would replace {foreign[0]}{more}, which this training did not write. Choose another "
            "folder."
        )


def _load_transformers(rest: str) -> FineTunedModel:
    from crossmatch.models.adapters.transformers import hf_model, parse_hub_name
    from crossmatch.models.adapters.transformers.dual_encoders import TransformersEncoder
    from crossmatch.models.adapters.transformers.input_batches import preprocess_images
    from crossmatch.models.adapters.transformers.loading import locate_model

    model, hub_name = hf_model(rest), parse_hub_name(rest)
    if not isinstance(model, TransformersEncoder):
        raise UsageError(f"--begin hf:{rest}: only models that embed images and texts can be fine-tuned. Start from a CLIP model.")
    location = locate_model(hub_name.name, hub_name.options.get("revision"))
    encoder = model

    def prepare(images: list[Image]) -> Tensor:
        inputs = preprocess_images(encoder.processor, images)
        shapes = {tuple(row["pixel_values"].shape) if set(row) == {"pixel_values"} else None for row in inputs}
        if len(shapes) > 1 or None in shapes:
            raise UsageError(
                f"--begin hf:{rest}: the model prepares images in several shapes, which do not fit into one batch. Use another model."
            )
        return torch.cat([row["pixel_values"] for row in inputs])

    def encode_texts(net: Any, tokens: TokenizedTexts) -> Tensor:
        mask = {} if tokens.mask is None else {"attention_mask": tokens.mask}
        return encoder.encode_texts(net, {"input_ids": tokens.numbers, **mask})

    def read_all(texts: Sequence[str]) -> TokenizedTexts:
        inputs = encoder.reader.inputs(encoder.reader.token_ids(texts))
        return TokenizedTexts(inputs["input_ids"], inputs.get("attention_mask"))

    match = ExternalClipNet(encoder.net, lambda net, pixels: encoder.encode_images(net, {"pixel_values": pixels}), encode_texts)
    match.read_all = read_all
    return FineTunedModel(
        f"hf:{rest}",
        encoder.signature,
        match,
        Preparation(f"transformers {location.hash_files()} pil", prepare),
        lambda output: _write_transformers(encoder.net, location.folder, output),
    )


def _write_transformers(net: Any, origin: Path, folder: Path) -> str:
    """Save the network in the library's format, and copy the files of tokenizer and processor."""
    from crossmatch.models.adapters.transformers.loading import CONFIGURATION, NOT_READ, VOCABULARY, silence_transformers

    other_files = {path for pattern in (*CONFIGURATION, *VOCABULARY) for path in origin.glob(pattern) if path.is_file()}
    other_files -= {path for pattern in NOT_READ for path in origin.glob(pattern)}
    for leftover in folder.glob(f"{TEMPORARY_PREFIX}*"):  # of a killed process
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=TEMPORARY_PREFIX) as temporary, silence_transformers():
        net.save_pretrained(temporary)
        for path in other_files:
            if not (Path(temporary) / path.name).exists():
                shutil.copyfile(path, Path(temporary) / path.name)
        files = sorted(
            Path(temporary).iterdir(), key=lambda path: path.name == "config.json"
        )  # written last, because it identifies the model
        for path in files:
            os.chmod(path, 0o644)
            os.replace(path, folder / path.name)
    return f"hf:{FOLDER_PLACEHOLDER}"


def _load_open_clip(rest: str) -> FineTunedModel:
    from crossmatch.models.adapters.clip_activation import GELU, QUICKGELU
    from crossmatch.models.adapters.open_clip import FOLDER, HUB, open_clip_model, parse_clip_name

    model, clip_name = open_clip_model(rest), parse_clip_name(rest)
    match = ExternalClipNet(
        model.net, lambda net, pixels: net.encode_image(pixels), lambda net, tokens: net.encode_text(tokens.numbers)
    )
    match.read_all = lambda texts: TokenizedTexts(model.tokenizer(list(texts) or [""])[: len(texts)])
    activation = QUICKGELU if f"|{QUICKGELU}|" in model.signature else GELU
    has_config_file = clip_name.source.startswith((HUB, FOLDER))

    def write(folder: Path) -> str:
        if has_config_file:
            return _write_with_config(model, clip_name.source, folder)
        _write_weights(model.net, folder / WEIGHTS_FILE)
        return f"open_clip:{clip_name.source},{FOLDER_PLACEHOLDER}/{WEIGHTS_FILE},{activation}"

    preparation = Preparation(f"open_clip {json.dumps(model.preprocessing, default=str, sort_keys=True)}", model.prepare_images)
    return FineTunedModel(f"open_clip:{rest}", model.signature, match, preparation, write)


def _write_weights(net: nn.Module, path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"state_dict": net.state_dict()}, buffer)
    with atomic_write(path, durable=True) as file:
        file.write(buffer.getvalue())


def _write_with_config(model: Any, origin: str, folder: Path) -> str:
    """Write a folder in open_clip's format: the configuration of the original model, and the weights."""
    from crossmatch.models.adapters.open_clip import FOLDER
    from crossmatch.models.files.checkpoint_files import find_cached_file

    kind, _, name = origin.partition(":")
    config = Path(name) / CONFIG_FILE if f"{kind}:" == FOLDER else find_cached_file(name, (CONFIG_FILE,))
    assert config is not None  # the model was loaded from there
    _write_weights(model.net, folder / BINARY_FILE)
    with atomic_write(folder / CONFIG_FILE, durable=True) as file:
        file.write(Path(config).read_bytes())
    return f"open_clip:{FOLDER}{FOLDER_PLACEHOLDER}"
