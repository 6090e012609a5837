"""Generators of images for negative captions: the renderer of the embedded world, and text-to-image models of diffusers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from crossmatch.build.step_files import Row
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.settings import suggest_name
from crossmatch.diorama.caption_parsing import find_wording, normalise_text, parse_edits
from crossmatch.diorama.edited_scenes import edited_scenes
from crossmatch.diorama.edits import TRIES, Edit, is_true_negative, is_true_of
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.world import Diorama

if TYPE_CHECKING:
    from PIL.Image import Image

GENERATORS = ("diorama", "diffusers")
LAYOUT_ROUNDS = 8  # attempts at laying out a scene
STYLE = "generator"  # a second drawing style: in BiVLC negatives are generated and positives are photographs


class NoImageError(Exception):
    """No image could be generated for a caption. The `reason` is one of a few fixed texts, which are counted."""

    def __init__(self, reason: str, detail: str = "", may_retry: bool = False) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.may_retry = reason, detail, may_retry


class ImageGenerator(Protocol):
    """Draws an image of a row's negative caption, or raises `NoImageError`. `name` identifies it in a manifest.

    Candidates of a negative are numbered from 0. The same row, number and seed give the same image. The returned fields are added
    to the row of the image.
    """

    @property
    def name(self) -> str: ...

    def draw(self, row: Row, number: int, seed: int) -> tuple[Image, Row]: ...


# -- the embedded world


@dataclass(frozen=True, eq=False)
class DioramaGenerator:
    """Draws negatives of diorama captions: a scene of which the negative is true, close to the original scene.

    Candidate 0 changes only what the negative says, if possible; the others have a new layout. Scenes of which the original caption
    is false are preferred. `caption_holds` records whether the original caption is true of the drawn scene, as it is whenever an
    object is added without a number.
    """

    world: Diorama
    pixels: int = 256

    @property
    def name(self) -> str:
        return f"diorama|style:{STYLE}|pixels:{self.pixels}|world:{self.world.digest()}"

    @cached_property
    def _image_positions(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.world.collection.image_ids.tolist())}

    @cached_property
    def _captions(self) -> dict[str, str]:
        collection = self.world.collection
        return dict(zip(collection.caption_ids.tolist(), collection.captions, strict=True))

    def draw(self, row: Row, number: int, seed: int) -> tuple[Image, Row]:
        from crossmatch.diorama.drawing import draw

        scene, caption_holds = self.scene(row, number, seed)
        return draw(scene, STYLE, self.pixels), {"caption_holds": caption_holds}

    def scene(self, row: Row, number: int, seed: int) -> tuple[Scene, bool]:
        """The scene of a candidate, and whether the original caption is true of it too."""
        caption = self._captions.get(row["caption_id"])
        if caption is None or normalise_text(caption) != normalise_text(row["caption"]):
            raise NoImageError("no caption of this world", f"{row['caption_id']}: {row['caption']}")
        original, wording = find_wording(self.world, self._image_positions[row["image_id"]], row["caption_id"])
        dice = Dice("generate", row["id"], seed)
        edits = parse_edits(original, wording, row["negative"], dice, str(row.get("category", "")))
        is_parsed, ambiguous = False, list[Scene]()
        for edit in edits:
            if not is_true_negative(original, edit):
                raise NoImageError("the negative is true of its scene", row["negative"])
            is_parsed = True
            scene = _edited_scene(original, edit, number, dice, ambiguous)
            if scene is not None:
                return scene, False
        if ambiguous:
            return ambiguous[min(number, len(ambiguous) - 1)], True
        reason = "no scene fits the words" if is_parsed else "words or a change that the world does not have"
        raise NoImageError(reason, row["negative"])


def _edited_scene(original: Scene, edit: Edit, number: int, dice: Dice, ambiguous: list[Scene]) -> Scene | None:
    """A scene of which the negative is true and the caption false; scenes of which both are true go to `ambiguous`."""
    positive, negative = edit.positive.caption.meaning, edit.negative.caption.meaning
    first: Scene | None = None
    layouts = (edited_scenes(original, edit.groups, dice, TRIES) for _ in range(LAYOUT_ROUNDS))
    for version in chain.from_iterable(layouts):
        if not is_true_of(negative, version):
            continue
        if is_true_of(positive, version):
            ambiguous.append(version)
        elif number == 0 or (first is not None and version.objects != first.objects):
            return version
        else:
            first = version
    return first and replace(first, seed=dice.bits())  # no other layout exists: draw the same scene again


# -- diffusers


@dataclass(frozen=True, eq=False)
class DiffusersGenerator:
    """A text-to-image pipeline of diffusers, or a compatible callable: `pipeline(prompt=…, generator=…).images[0]`."""

    name: str
    pipeline: Any = field(repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, name: str, settings: Mapping[str, Any]) -> DiffusersGenerator:
        """Load a pipeline from a folder or from the Hugging Face cache; nothing is downloaded."""
        try:
            import torch
            from diffusers import AutoPipelineForText2Image  # type: ignore[import-not-found, unused-ignore]
        except ImportError as absent:
            raise MissingDependencyError("diffusers", "generate") from absent
        try:
            pipeline = AutoPipelineForText2Image.from_pretrained(name, local_files_only=True)
        except Exception as error:  # the library raises many types
            message = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise CrossmatchError(
                f"diffusers:{name} cannot be loaded ({type(error).__name__}: {message:.200}). Name the folder of a text-to-image "
                "model, or download it first: huggingface-cli download NAME"
            ) from error
        pipeline.set_progress_bar_config(disable=True)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(f"diffusers:{name}", pipeline.to(device), settings)

    def draw(self, row: Row, number: int, seed: int) -> tuple[Image, Row]:
        import torch

        output = self.pipeline(prompt=row["negative"], generator=torch.Generator().manual_seed(seed), **self.settings)
        flagged = getattr(output, "nsfw_content_detected", None)
        if flagged and any(flagged):
            raise NoImageError("refused by the model's own filter")
        return output.images[0], {}


# -- by name


def _load_diorama(rest: str, world: Diorama | None, settings: Mapping[str, Any]) -> ImageGenerator:
    if rest:
        raise UsageError(f"--by diorama:{rest}: expected diorama alone. Name the world with --data.")
    if world is None:
        raise UsageError("--by diorama draws captions of the embedded world only. Pass --data diorama or --data diorama:tiny.")
    pixels = settings.get("pixels", 256)
    if set(settings) - {"pixels"} or not isinstance(pixels, int) or not 16 <= pixels <= 4096:
        raise UsageError(f"--set: diorama accepts only pixels, from 16 to 4096 (got {dict(settings)}).")
    return DioramaGenerator(world, pixels)


def load_generator(name: str, world: Diorama | None = None, settings: Mapping[str, Any] | None = None) -> ImageGenerator:
    """Load a generator by name: `diorama` for captions of a world, or `diffusers:FOLDER-OR-NAME`.

    >>> load_generator("dall-e")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: Unknown generator 'dall-e'. Known: diorama, diffusers.
    """
    kind, _, rest = name.partition(":")
    if kind not in GENERATORS:
        raise UsageError(f"Unknown generator {name!r}. {suggest_name(kind, GENERATORS)}")
    if kind == "diorama":
        return _load_diorama(rest, world, settings or {})
    if not rest:
        raise UsageError("--by diffusers: the model is missing. Name it after a colon: diffusers:FOLDER")
    return DiffusersGenerator.load(str(Path(rest).expanduser()) if rest.startswith("~") else rest, settings or {})
