"""`crossmatch build negatives | format | generate | refine`: captions that are almost true, and their images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.build.common import DATA, OUTPUT, SEED, SOURCE, collection, ended, listed
from crossmatch.cli.stopped import goes_on
from crossmatch.core.errors import WrongWords

WAYS = ("rules", "llm", "diorama")


@click.command("negatives")
@DATA
@OUTPUT
@click.option("--by", type=click.Choice(WAYS), default="rules", show_default=True,
              help="Rules, a language model, or edits of the embedded world, whose truth is known.")  # fmt: skip
@click.option("--kinds", default="", help="Categories, separated by commas, as in replace/obj,swap/att.  [default: all seven]")
@click.option("--captions", type=click.IntRange(0), default=0, show_default=True, help="So many captions, drawn by lot; 0: all.")
@click.option("--endpoint", default="", help="llm: address that speaks OpenAI's protocol, such as http://localhost:8000/v1")
@click.option("--model", default="", help="llm: model of the endpoint; without one, a folder or .gguf file on this machine.")
@click.option("--key-from", default="OPENAI_API_KEY", show_default=True, help="llm: environment variable with the key.")
@click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True, help="llm: seconds for an answer."
)
@click.option("--attempts", type=click.IntRange(1), default=5, show_default=True, help="llm: before a question is given up.")
@click.option("--at-once", type=click.IntRange(1, 64), default=1, show_default=True, help="llm: questions under way together.")
@click.option("--templates", type=click.Path(path_type=Path, file_okay=False), help="llm: folder with prompts of your own.")
@SEED
def negatives_command(data: str, output: Path, by: str, kinds: str, captions: int, endpoint: str, model: str, key_from: str,
                      timeout: float, attempts: int, at_once: int, templates: Path | None, seed: int) -> None:  # fmt: skip
    """Hard negative captions: one thing, quality or relation replaced, swapped or added (SugarCrepe, BiVLC)."""
    from crossmatch.benchmarks.sugarcrepe import CATEGORIES
    from crossmatch.build.negatives import negatives

    if by != "llm" and (endpoint or model or templates):
        raise WrongWords("--endpoint, --model and --templates go with --by llm. Add it, or leave them out.")
    usual: dict[str, Any] = {"seed": seed, "captions": captions, "categories": listed(kinds, "category") if kinds else CATEGORIES}
    with goes_on():
        if by == "diorama":
            from crossmatch.build.negative_world import world_negatives

            told = world_negatives(_world(data), output, **usual)
        elif by == "llm":
            from crossmatch.build.negative_llm import named_writer, written_negatives

            writer = named_writer(endpoint, model, key_from=key_from, timeout=timeout, attempts=attempts)
            told = written_negatives(collection(data), writer, output, at_once=at_once, template_folder=templates, **usual)
        else:
            told = negatives(collection(data), output, **usual)
    ended(output, told, _why(output, told), f"crossmatch build format {quote(str(output))} -o FOLDER")


def _why(output: Path, told: Mapping[str, Any]) -> str:
    return f"why: {output / 'failed.jsonl'}" if any(name.startswith("failed") for name in told["counts"]) else ""


def _world(data: str) -> Any:
    from crossmatch.study.sources import is_world, world_of

    if not is_world(data):
        raise WrongWords(f"--data {data} is not the embedded world, whose scenes alone can be edited. Say --data diorama")
    return world_of(data)


@click.command("format")
@click.argument("source", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--data", default="", help="A collection whose captions are put into form, instead of negatives.")
@OUTPUT
def format_command(source: Path | None, data: str, output: Path) -> None:
    """Captions in one form: of a folder SOURCE of negatives, or of a collection (--data)."""
    from crossmatch.build.format import formatted

    if (source is None) == (not data):
        raise WrongWords("say what is to be put into form: a folder with negatives, or --data collection:FOLDER; one of both.")
    with goes_on():
        told = formatted(source if source is not None else collection(data), output)
    ended(output, told, "" if source is None else f"crossmatch build refine {quote(str(output))} -o FOLDER")


@click.command("generate")
@SOURCE
@OUTPUT
@click.option("--by", required=True, help="diorama for negatives of the embedded world, or diffusers:FOLDER-OR-NAME.")
@click.option("--data", default="", help="diorama: the world of the captions: diorama, or diorama:tiny.")
@click.option(
    "--number", type=click.IntRange(1, 64), default=1, show_default=True, help="Images of each negative; 4 to choose from."
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="For the generator: num_inference_steps=30, pixels=512."
)
@SEED
def generate_command(source: Path, output: Path, by: str, data: str, number: int, settings: tuple[str, ...], seed: int) -> None:
    """An image, or several, of each negative caption of a folder SOURCE (BiVLC)."""
    from crossmatch.build.generate import ITEMS, generate
    from crossmatch.build.generators import generator

    maker = generator(by, _world(data) if data else None, dict(_setting(words) for words in settings))
    with goes_on():
        told = generate(source, output, by=maker, number=number, seed=seed)
    choose = (
        f"crossmatch study new bivlc-choose --items {quote(str(output / ITEMS))} -o CAMPAIGN"
        if number == 4 and told["rows"]
        else ""
    )
    ended(output, told, _why(output, told), choose)


def _setting(words: str) -> tuple[str, Any]:
    key, equals, value = words.partition("=")
    if not key or not equals:
        raise WrongWords(f"--set {words}: KEY=VALUE was expected, such as pixels=512")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


@click.command("refine")
@SOURCE
@OUTPUT
@click.option("--scorers", default="plausibility,fluency", show_default=True,
              help="Two, with a comma: plausibility, fluency, lm:FOLDER, FILE.py:function.")  # fmt: skip
@click.option("--share", type=click.FloatRange(0, 1, min_open=True), default=0.35, show_default=True, help="Of negatives to keep.")
@click.option("--bins", type=click.IntRange(1, 4096), default=100, show_default=True, help="Cells on each side of the grid.")
@click.option("--words", is_flag=True, help="Have every word as often in captions as in negatives, too; additions leave.")
@click.option("--parts", type=click.IntRange(1, 100), default=1, show_default=True,
              help="Of the images, each balanced by itself: for pairs that are split into train and test later.")  # fmt: skip
@SEED
def refine_command(source: Path, output: Path, scorers: str, share: float, bins: int, words: bool, parts: int, seed: int) -> None:
    """The best hard negatives of a folder SOURCE, cut until no blind model tells them from captions (BiVLC, SugarCrepe)."""
    from crossmatch.build.refine import BLIND, FEW, refine

    with goes_on():
        named = listed(scorers, "scorer")
        told = refine(source, output, scorers=named, share=share, bins=bins, words=words, parts=parts, seed=seed)
    blind = json.loads((output / BLIND).read_text(encoding="utf-8"))
    said = [f"{stage} {_found(found)}" for stage, found in blind.items() if "accuracy" in found]
    more = "few are left: try fewer --bins, a larger --share, or negatives of more captions" if told["rows"] < FEW else ""
    then = f"crossmatch build generate {quote(str(output))} --by GENERATOR -o FOLDER" if told["rows"] else ""
    ended(output, told, f"% that a blind model finds: {', '.join(said)}" if said else "", more, then)


def _found(told: Mapping[str, Any]) -> str:
    """What a blind model finds, and in parentheses what it finds if it sees the words, too."""
    more = f" ({100 * told['with words']['accuracy']:.1f} with words)" if "with words" in told else ""
    return f"{100 * told['accuracy']:.1f}{more}"
