"""CLIPs of other libraries, open_clip and transformers, as models that the training loop can train, and saved as they came."""

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
from numpy.typing import NDArray

from crossmatch.core.arrays import IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.pictures import opened
from crossmatch.core.whole import whole_file
from crossmatch.models import HERE
from crossmatch.models.folder import weights_of
from crossmatch.models.zoo.clip import scale_of
from crossmatch.train.checkpoints import FOLDER as CHECKPOINTS
from crossmatch.train.checkpoints import SUFFIX

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from PIL.Image import Image

WEIGHTS = "open_clip.pt"
OTHERS = ("*.pt", "*.pth", "*.ckpt", "*.npz", "*.h5", "*.msgpack")  # how else weights are kept
CONFIG, BINARY = "open_clip_config.json", "open_clip_pytorch_model.bin"
SAVING = ".saving-"  # how a folder is called whose files are not yet all there
AT_ONCE = 64  # items that are embedded together to be judged


# -- what the network is given


@dataclass(frozen=True, eq=False)
class Tokens:
    """Texts as token numbers (N, L), filled up; `real` says which are read, where the network asks for that."""

    numbers: Tensor
    real: Tensor | None = None

    def __getitem__(self, which: Any) -> Tokens:
        return Tokens(self.numbers[which], None if self.real is None else self.real[which])

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, eq=False)
class PictureStore:
    """The pictures of a collection, opened and prepared whenever they are asked for: (N, 3, height, width)."""

    collection: Collection
    prepare: Callable[[list[Image]], Tensor]

    def __len__(self) -> int:
        return self.collection.shape[0]

    def take(self, indices: IntArray) -> Tensor:
        open_image = self.collection.open_image
        if open_image is None:
            self.collection.images([0])  # says what is missing
            raise AssertionError
        names = self.collection.image_ids[np.asarray(indices, dtype=np.int64)].tolist()
        return self.prepare([opened(open_image, name) for name in names])


@dataclass(frozen=True)
class Preparation:
    """How a library prepares pictures, known by a few words: data that were prepared in another way are other data."""

    words: str
    prepare: Callable[[list[Image]], Tensor] = field(repr=False, compare=False)

    def __call__(self, collection: Collection) -> PictureStore:
        return PictureStore(collection, self.prepare)


# -- the two libraries


class Towers(nn.Module):
    """A library's network as a `match` of the training loop: unit vectors for images and texts, and a learned temperature."""

    def __init__(self, net: Any, look: Callable[..., Tensor], read: Callable[..., Tensor]) -> None:
        super().__init__()
        self.net, self._look, self._read = net, look, read
        self.read_all: Callable[[Sequence[str]], Tokens]

    @property
    def logit_scale(self) -> Tensor:
        found: Tensor = self.net.logit_scale
        return found

    def images(self, pixels: Tensor) -> Tensor:
        """Unit vectors (N, D)."""
        return F.normalize(self._look(self.net, pixels), dim=1)

    def texts(self, tokens: Tokens) -> Tensor:
        """Unit vectors (N, D). What no text of these fills is left out."""
        if tokens.real is not None:
            longest = int(tokens.real.sum(dim=1).max())
            tokens = Tokens(tokens.numbers[:, :longest], tokens.real[:, :longest])
        return F.normalize(self._read(self.net, tokens), dim=1)

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine of each image with each text: (I, T)."""
        return images @ texts.T

    def scale(self) -> Tensor:
        """What cosines are multiplied by before they compete, 1/τ."""
        return scale_of(self.logit_scale)


@dataclass(eq=False)
class FineTuned:
    """A model of another library in the hands of the training loop.

    `write(folder)` saves it, and gives its name from then on, with `HERE` in the place of the folder.
    """

    name: str
    signature: str
    match: Towers
    preparation: Preparation
    write: Callable[[Path], str] = field(repr=False)
    recipe: dict[str, Any] = field(default_factory=dict)

    @property
    def net(self) -> nn.Module:
        """All weights."""
        return self.match

    @property
    def weights(self) -> str:
        """Twelve hexadecimal digits of the weights."""
        return weights_of(self.match.net)

    def look(self, given: Tensor) -> Tensor:
        """Pictures as they are: the network looks at them itself."""
        return given

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """One unit vector per text."""
        read = self.match.read_all(texts)
        with torch.inference_mode():
            return torch.cat([self.match.texts(read[at : at + AT_ONCE]) for at in range(0, len(read), AT_ONCE)])

    def embed(self, pixels: Tensor) -> Tensor:
        """One unit vector per picture."""
        with torch.inference_mode():
            return torch.cat([self.match.images(pixels[at : at + AT_ONCE]) for at in range(0, len(pixels), AT_ONCE)])

    def compare(self, pixels: Tensor, texts: Sequence[str]) -> NDArray[np.float32]:
        """Every picture with every text: (images, texts)."""
        return np.asarray((self.embed(pixels) @ self.embed_texts(texts).T).numpy(), dtype=np.float32)


def begun_with(name: str) -> FineTuned:
    """The model of this name, with weights that can be trained."""
    library, _, rest = name.partition(":")
    begin = {"hf": _transformers, "open_clip": _open_clip}.get(library)
    if begin is None:
        raise WrongWords(f"{name!r} is no model that is trained further; hf:… or open_clip:… was expected. Mend its name.")
    made = begin(rest)
    scale = getattr(made.match.net, "logit_scale", None)
    if not isinstance(scale, nn.Parameter) or scale.numel() != 1:
        raise WrongWords(f"{name} has no temperature of its own to learn. Begin with a CLIP, a SigLIP or one of their kin.")
    made.match.requires_grad_(True)
    return made


def folder_of(name: str) -> Path | None:
    """The folder that a name of either library means, or that of the file that it means; nothing if it means neither.

    >>> folder_of("open_clip:ViT-B-32,openai") is None
    True
    """
    library, _, rest = name.partition(":")
    if library == "hf":
        from crossmatch.models.hf import wanted

        place = Path(wanted(rest).name)
        return place if place.is_dir() else None
    from crossmatch.models.open_clip import FOLDER, parsed

    words = parsed(rest)
    if words.source.startswith(FOLDER):
        return Path(words.source.removeprefix(FOLDER))
    return Path(words.weights).parent if Path(words.weights).is_file() else None


def require_free(folder: Path, own: str) -> None:
    """Refuse a folder in which a model is that no fine-tuning wrote: saving would replace its files.

    A fine-tuning leaves its checkpoints there until it has written the file `own`. What no library reads is no model, such as the
    output of a command.
    """
    from crossmatch.models.hf import loading

    if (folder / own).exists() or any((folder / CHECKPOINTS).glob(f"*{SUFFIX}")):
        return
    patterns = (*loading.READ, *loading.VOCABULARY, *loading.WEIGHTS, *OTHERS)
    found = sorted({path.name for pattern in patterns for path in folder.glob(pattern) if not path.name.startswith(".")})
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise CrossmatchError(
            f"{folder} holds {found[0]}{more}, which this training did not write: the fine-tuned model would take the place of "
            "what is there. Name another folder with -o."
        )


def _transformers(rest: str) -> FineTuned:
    from crossmatch.models.hf import hf_model, wanted
    from crossmatch.models.hf.embed import Encoder
    from crossmatch.models.hf.inputs import pixels_of
    from crossmatch.models.hf.loading import located

    model, asked = hf_model(rest), wanted(rest)
    if not isinstance(model, Encoder):
        raise WrongWords(f"hf:{rest} does not embed images and texts, and only such models are fine-tuned. Begin with a CLIP.")
    place = located(asked.name, asked.options.get("revision"))
    encoder = model

    def prepare(images: list[Image]) -> Tensor:
        found = pixels_of(encoder.processor, images)
        shapes = {tuple(one["pixel_values"].shape) if set(one) == {"pixel_values"} else None for one in found}
        if len(shapes) > 1 or None in shapes:
            raise WrongWords(
                f"hf:{rest} prepares pictures in several shapes, which cannot be trained in one batch. Begin with another."
            )
        return torch.cat([one["pixel_values"] for one in found])

    def read(net: Any, tokens: Tokens) -> Tensor:
        real = {} if tokens.real is None else {"attention_mask": tokens.real}
        return encoder.read(net, {"input_ids": tokens.numbers, **real})

    def read_all(texts: Sequence[str]) -> Tokens:
        given = encoder.reader.inputs(encoder.reader.numbers(texts))
        return Tokens(given["input_ids"], given.get("attention_mask"))

    match = Towers(encoder.net, lambda net, pixels: encoder.look(net, {"pixel_values": pixels}), read)
    match.read_all = read_all
    words = f"transformers {place.files()} pil"
    return FineTuned(
        f"hf:{rest}",
        encoder.signature,
        match,
        Preparation(words, prepare),
        lambda to: _write_transformers(encoder.net, place.folder, to),
    )


def _write_transformers(net: Any, origin: Path, folder: Path) -> str:
    """The network as the library saves it, and beside it the tokenizer's and the processor's files as they were."""
    from crossmatch.models.hf.loading import READ, UNREAD, VOCABULARY, quiet

    beside = {path for pattern in (*READ, *VOCABULARY) for path in origin.glob(pattern) if path.is_file()}
    beside -= {path for pattern in UNREAD for path in origin.glob(pattern)}
    for left in folder.glob(f"{SAVING}*"):  # of a killed process
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=SAVING) as temporary, quiet():
        net.save_pretrained(temporary)
        for path in beside:
            if not (Path(temporary) / path.name).exists():
                shutil.copyfile(path, Path(temporary) / path.name)
        files = sorted(Path(temporary).iterdir(), key=lambda path: path.name == "config.json")  # last: what names the model
        for path in files:
            os.chmod(path, 0o644)
            os.replace(path, folder / path.name)
    return f"hf:{HERE}"


def _open_clip(rest: str) -> FineTuned:
    from crossmatch.models.activation import PLAIN, QUICK
    from crossmatch.models.open_clip import FOLDER, HUB, open_clip_model, parsed

    model, words = open_clip_model(rest), parsed(rest)
    match = Towers(model.net, lambda net, pixels: net.encode_image(pixels), lambda net, tokens: net.encode_text(tokens.numbers))
    match.read_all = lambda texts: Tokens(model.tokenizer(list(texts) or [""])[: len(texts)])
    activation = QUICK if f"|{QUICK}|" in model.signature else PLAIN
    described = words.source.startswith((HUB, FOLDER))

    def write(folder: Path) -> str:
        if described:
            return _write_described(model, words.source, folder)
        _write_weights(model.net, folder / WEIGHTS)
        return f"open_clip:{words.source},{HERE}/{WEIGHTS},{activation}"

    preparation = Preparation(f"open_clip {json.dumps(model.preprocessing, default=str, sort_keys=True)}", model.prepare_images)
    return FineTuned(f"open_clip:{rest}", model.signature, match, preparation, write)


def _write_weights(net: nn.Module, path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"state_dict": net.state_dict()}, buffer)
    with whole_file(path, durable=True) as file:
        file.write(buffer.getvalue())


def _write_described(model: Any, origin: str, folder: Path) -> str:
    """A folder as open_clip's own: the description of the model that it began with, and the weights."""
    from crossmatch.models.open_clip import FOLDER
    from crossmatch.models.stored import cached_file

    kind, _, name = origin.partition(":")
    described = Path(name) / CONFIG if f"{kind}:" == FOLDER else cached_file(name, (CONFIG,))
    assert described is not None  # it was loaded from there
    _write_weights(model.net, folder / BINARY)
    with whole_file(folder / CONFIG, durable=True) as file:
        file.write(Path(described).read_bytes())
    return f"open_clip:{FOLDER}{HERE}"
