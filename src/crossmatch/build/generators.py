"""Who draws the picture of a negative caption: the embedded world's own renderer, or a text-to-image model of diffusers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from crossmatch.build.files import Row
from crossmatch.core.declared import nearest
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.diorama.dice import Dice
from crossmatch.diorama.edits import TRIES, Edit, holds, misleading
from crossmatch.diorama.reading import understood, worded, words_of
from crossmatch.diorama.rearrange import versions
from crossmatch.diorama.scenes import Scene
from crossmatch.diorama.world import Diorama

if TYPE_CHECKING:
    from PIL.Image import Image

ROUNDS = 8  # attempts at laying a scene out
STYLE = "generator"  # the second artist: negatives of BiVLC are generated, its positives are photographs


class NoImage(Exception):  # noqa: N818 - nothing is wrong with the program
    """A caption of which no picture came out. `reason` is one of few, to be counted; `passing`: another time may be better."""

    def __init__(self, reason: str, told: str = "", passing: bool = False) -> None:
        super().__init__(f"{reason}: {told}" if told else reason)
        self.reason, self.told, self.passing = reason, told, passing


class Generator(Protocol):
    """Whoever draws a picture of a row's negative caption, or raises `NoImage`. `name` identifies it in a manifest.

    Candidates of one negative are numbered from 0; the same row, number and seed give the same picture. What else is known of the
    picture is kept in its row.
    """

    @property
    def name(self) -> str: ...

    def draw(self, row: Row, number: int, seed: int) -> tuple[Image, Row]: ...


# -- the embedded world


@dataclass(frozen=True, eq=False)
class Renderer:
    """Draws negatives of captions of a world: a scene of which the negative is true, as near to the original as can be.

    The first candidate changes what the negative says and leaves all else in its place, where that can be; the others are laid out
    anew. A scene of which the caption is false is preferred; `caption_holds` says whether it is true of the picture all the same,
    as of all that have something added without a number.
    """

    world: Diorama
    pixels: int = 256

    @property
    def name(self) -> str:
        return f"diorama|style:{STYLE}|pixels:{self.pixels}|world:{self.world.digest()}"

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self.world.collection.image_ids.tolist())}

    @cached_property
    def _texts(self) -> dict[str, str]:
        held = self.world.collection
        return dict(zip(held.caption_ids.tolist(), held.captions, strict=True))

    def draw(self, row: Row, number: int, seed: int) -> tuple[Image, Row]:
        from crossmatch.diorama.draw import draw

        scene, positive_holds = self.scene(row, number, seed)
        return draw(scene, STYLE, self.pixels), {"caption_holds": positive_holds}

    def scene(self, row: Row, number: int, seed: int) -> tuple[Scene, bool]:
        """The scene of a candidate, and whether the positive caption is true of it too."""
        text = self._texts.get(row["caption_id"])
        if text is None or words_of(text) != words_of(row["caption"]):
            raise NoImage("no caption of this world", f"{row['caption_id']}: {row['caption']}")
        original, said = worded(self.world, self._places[row["image_id"]], row["caption_id"])
        dice = Dice("generate", row["id"], seed)
        edits = understood(original, said, row["negative"], dice, str(row.get("category", "")))
        read, spare = False, list[Scene]()
        for edit in edits:
            if not misleading(original, edit):
                raise NoImage("the negative is true of its scene", row["negative"])
            read = True
            found = _candidate(original, edit, number, dice, spare)
            if found is not None:
                return found, False
        if spare:
            return spare[min(number, len(spare) - 1)], True
        raise NoImage("no scene fits the words" if read else "words or a change that the world does not have", row["negative"])


def _candidate(original: Scene, edit: Edit, number: int, dice: Dice, spare: list[Scene]) -> Scene | None:
    """A scene of which the negative is true and the caption is not; into `spare` comes one of which both are."""
    positive, negative = edit.positive.caption.meaning, edit.negative.caption.meaning
    near: Scene | None = None
    for version in _versions(original, edit, dice):
        if not holds(negative, version):
            continue
        if holds(positive, version):
            spare.append(version)
        elif number == 0 or (near is not None and version.things != near.things):
            return version
        else:
            near = version
    return near and replace(near, seed=dice.bits())  # there is no other place for anything: another take of the same scene


def _versions(original: Scene, edit: Edit, dice: Dice) -> Iterator[Scene]:
    for _ in range(ROUNDS):
        yield from versions(original, edit.groups, dice, TRIES)


# -- diffusers


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A text-to-image pipeline of diffusers, or any callable of its kind: `pipeline(prompt=…, generator=…).images[0]`."""

    name: str
    pipeline: Any = field(repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, name: str, settings: Mapping[str, Any]) -> Pipeline:
        """From a folder, or from the cache of Hugging Face; nothing is fetched."""
        try:
            import torch
            from diffusers import AutoPipelineForText2Image  # type: ignore[import-not-found, unused-ignore]
        except ImportError as absent:
            raise MissingDependency("diffusers", "generate") from absent
        try:
            pipeline = AutoPipelineForText2Image.from_pretrained(name, local_files_only=True)
        except Exception as error:  # the library's, of many kinds
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise CrossmatchError(
                f"diffusers:{name} cannot be loaded ({type(error).__name__}: {said:.200}). Name the folder of a text-to-image "
                "model, or fetch it first: huggingface-cli download NAME"
            ) from error
        pipeline.set_progress_bar_config(disable=True)
        where = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(f"diffusers:{name}", pipeline.to(where), settings)

    def draw(self, row: Row, number: int, seed: int) -> tuple[Image, Row]:
        import torch

        said = self.pipeline(prompt=row["negative"], generator=torch.Generator().manual_seed(seed), **self.settings)
        refused = getattr(said, "nsfw_content_detected", None)
        if refused and any(refused):
            raise NoImage("refused by the model's own filter")
        return said.images[0], {}


# -- by name


def _renderer(rest: str, world: Diorama | None, settings: Mapping[str, Any]) -> Generator:
    if rest:
        raise WrongWords(f"the generator is diorama:{rest}; diorama alone was expected. Name its world with --data.")
    if world is None:
        raise WrongWords("diorama draws captions of the embedded world alone. Name it: --data diorama, or diorama:tiny")
    pixels = settings.get("pixels", 256)
    if set(settings) - {"pixels"} or not isinstance(pixels, int) or not 16 <= pixels <= 4096:
        raise WrongWords(f"diorama was set to {dict(settings)}; it knows pixels alone, 16 to 4096.")
    return Renderer(world, pixels)


def _pipeline(rest: str, world: Diorama | None, settings: Mapping[str, Any]) -> Generator:
    if not rest:
        raise WrongWords("the generator is diffusers, without a model. Name one behind a colon: diffusers:FOLDER")
    return Pipeline.load(str(Path(rest).expanduser()) if rest.startswith("~") else rest, settings)


GENERATORS: Mapping[str, Callable[[str, Diorama | None, Mapping[str, Any]], Generator]] = {
    "diorama": _renderer,
    "diffusers": _pipeline,
}


def generator(words: str, world: Diorama | None = None, settings: Mapping[str, Any] | None = None) -> Generator:
    """A generator by its name: `diorama` for captions of a world, or `diffusers:FOLDER-OR-NAME`.

    >>> generator("dall-e")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: there is no generator 'dall-e'. Known: diorama, diffusers.
    """
    kind, _, rest = words.partition(":")
    if kind not in GENERATORS:
        raise WrongWords(f"there is no generator {words!r}. {nearest(kind, GENERATORS)}")
    return GENERATORS[kind](rest, world, settings or {})
