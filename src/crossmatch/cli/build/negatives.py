"""`crossmatch build negatives`, `generate` and `refine`: hard negative captions and their images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.base import Command, resumable
from crossmatch.cli.build.common import OUTPUT, SEED, SOURCE, load_collection, print_summary, refuse_options, split_names
from crossmatch.data.errors import UsageError

WRITERS = ("rules", "llm", "diorama")
LLM_OPTIONS = ("endpoint", "model", "key_from", "timeout", "attempts", "at_once", "templates")


@click.command("negatives", cls=Command)
@click.argument("source", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--data", default="", help="Images and captions: collection:FOLDER, diorama, diorama:tiny/train, coco-5k, …")
@OUTPUT
@click.option("--format-only", is_flag=True,
              help="Write no negatives; format the captions of a folder SOURCE of negatives, or of --data.")  # fmt: skip
@click.option("--by", type=click.Choice(WRITERS), default="rules", show_default=True,
              help="Rules, a language model, or edits of the embedded world, whose truth is known.")  # fmt: skip
@click.option("--kinds", default="", help="Categories, separated by commas, such as replace/obj,swap/att.  [default: all seven]")
@click.option("--captions", type=click.IntRange(0), default=0, show_default=True, help="Number of random captions; 0 for all.")
@click.option("--endpoint", default="", help="llm: address of an OpenAI-compatible server, such as http://localhost:8000/v1")
@click.option("--model", default="", help="llm: model of the endpoint; without endpoint, a local folder or .gguf file.")
@click.option("--key-from", default="OPENAI_API_KEY", show_default=True, help="llm: environment variable with the API key.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True,
              help="llm: seconds to wait for an answer.")  # fmt: skip
@click.option("--attempts", type=click.IntRange(1), default=5, show_default=True, help="llm: attempts per request.")
@click.option("--at-once", type=click.IntRange(1, 64), default=1, show_default=True, help="llm: concurrent requests.")
@click.option("--templates", type=click.Path(path_type=Path, file_okay=False), help="llm: folder with your own prompts.")
@SEED
def negatives_command(source: Path | None, data: str, output: Path, format_only: bool, by: str, kinds: str, captions: int,
                      seed: int, **llm: Any) -> None:  # fmt: skip
    """Write hard negative captions, or unify the format of captions.

    An object, attribute or relation is replaced, swapped or added (SugarCrepe, BiVLC). Format negatives before `build refine`, so
    that only words distinguish them from captions.
    """
    if format_only:
        refuse_options(("by", "kinds", "captions", "seed", *LLM_OPTIONS), "with --format-only")
        _format(source, data, output)
        return
    if source is not None or not data:
        raise UsageError("build negatives needs --data; a folder SOURCE is used with --format-only.")
    if by != "llm":
        refuse_options(LLM_OPTIONS, f"with --by {by}")
    from crossmatch.benchmarks.sugarcrepe import CATEGORIES

    common = {"seed": seed, "captions": captions, "categories": split_names(kinds, "category") if kinds else CATEGORIES}
    with resumable():
        manifest = _write_negatives(by, data, output, common, **llm)
    next_command = f"crossmatch build negatives {quote(str(output))} --format-only -o FOLDER"
    print_summary(output, manifest, _failure_note(output, manifest), next_command)


def _write_negatives(by: str, data: str, output: Path, common: dict[str, Any], *, endpoint: str, model: str, key_from: str,
                     timeout: float, attempts: int, at_once: int, templates: Path | None) -> dict[str, Any]:  # fmt: skip
    if by == "diorama":
        from crossmatch.build.negatives.by_diorama import write_diorama_negatives

        return write_diorama_negatives(_load_world(data), output, **common)
    if by == "llm":
        from crossmatch.build.negatives.by_language_model import load_writer, write_llm_negatives

        writer = load_writer(endpoint, model, key_variable=key_from, timeout=timeout, attempts=attempts)
        return write_llm_negatives(load_collection(data), writer, output, at_once=at_once, template_folder=templates, **common)
    from crossmatch.build.negatives.by_rules import write_rule_negatives

    return write_rule_negatives(load_collection(data), output, **common)


def _format(source: Path | None, data: str, output: Path) -> None:
    """Format the captions of a folder of negatives, or of a collection."""
    from crossmatch.build.negatives.caption_format import write_formatted

    if (source is None) == (not data):
        raise UsageError("--format-only needs one input: a folder with negatives, or --data collection:FOLDER.")
    with resumable():
        manifest = write_formatted(source if source is not None else load_collection(data), output)
    print_summary(output, manifest, "" if source is None else f"crossmatch build refine {quote(str(output))} -o FOLDER")


def _failure_note(output: Path, manifest: Mapping[str, Any]) -> str:
    return f"why: {output / 'failed.jsonl'}" if any(name.startswith("failed") for name in manifest["counts"]) else ""


def _load_world(data: str) -> Any:
    from crossmatch.study.design.data_source import is_world, world_of

    if not is_world(data):
        raise UsageError(f"--data {data} is not the embedded world. Pass --data diorama.")
    return world_of(data)


@click.command("generate", cls=Command)
@SOURCE
@OUTPUT
@click.option("--by", required=True, help="diorama for negatives of the embedded world, or diffusers:FOLDER-OR-NAME.")
@click.option("--data", default="", help="diorama: the world of the captions: diorama, or diorama:tiny.")
@click.option("--number", type=click.IntRange(1, 64), default=1, show_default=True,
              help="Images per negative; 4 for people to choose from.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Setting of the generator, such as num_inference_steps=30 or pixels=512. Repeatable.")  # fmt: skip
@SEED
def generate_command(source: Path, output: Path, by: str, data: str, number: int, settings: tuple[str, ...], seed: int) -> None:
    """Generate images of negative captions (BiVLC).

    SOURCE is a folder of `build negatives` or `build refine`.
    """
    from crossmatch.build.generation.generators import load_generator
    from crossmatch.build.generation.negative_images import ITEMS, generate_images

    generator = load_generator(by, _load_world(data) if data else None, _parse_settings(settings))
    with resumable():
        manifest = generate_images(source, output, generator=generator, number=number, seed=seed)
    choose = f"crossmatch study new bivlc-choose --items {quote(str(output / ITEMS))} -o CAMPAIGN"
    print_summary(output, manifest, _failure_note(output, manifest), choose if number == 4 and manifest["rows"] else "")


def _parse_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not key or not equals:
            raise UsageError(f"--set {setting}: expected KEY=VALUE, such as pixels=512.")
        if key in values:
            raise UsageError(f"--set {key} was given twice. Give it once.")
        try:
            values[key] = json.loads(text)
        except ValueError:
            values[key] = text
    return values


@click.command("refine", cls=Command)
@SOURCE
@OUTPUT
@click.option("--scorers", default="plausibility,fluency", show_default=True,
              help="Two scorers, separated by a comma: plausibility, fluency, lm:FOLDER, FILE.py:function.")  # fmt: skip
@click.option("--share", type=click.FloatRange(0, 1, min_open=True), default=0.35, show_default=True,
              help="Share of negatives to keep on the grid, before invalid ones are dropped.")  # fmt: skip
@click.option(
    "--bins", type=click.IntRange(1, 4096), default=100, show_default=True, help="Cells per axis of the grid of the two scores."
)
@click.option(
    "--words",
    is_flag=True,
    help="Also balance every word between captions and negatives; negatives that only add words are dropped.",
)
@click.option("--parts", type=click.IntRange(1, 100), default=1, show_default=True,
              help="Balance this many parts of the images separately, for a later split into train and test.")  # fmt: skip
@SEED
def refine_command(source: Path, output: Path, scorers: str, share: float, bins: int, words: bool, parts: int, seed: int) -> None:
    """Select negatives that text alone does not give away.

    SOURCE is a folder of `build negatives`. The method is that of SugarCrepe and BiVLC.
    """
    from crossmatch.build.refinement.refine import BLIND_FILE, MIN_ROWS, refine_negatives

    names = split_names(scorers, "scorer")
    with resumable():
        manifest = refine_negatives(source, output, scorers=names, share=share, bins=bins, words=words, parts=parts, seed=seed)
    accuracies = json.loads((output / BLIND_FILE).read_text(encoding="utf-8"))
    texts = [f"{stage} {_format_accuracy(values)}" for stage, values in accuracies.items() if "accuracy" in values]
    few = "few rows are left: try fewer --bins, a larger --share, or negatives of more captions"
    generate = f"crossmatch build generate {quote(str(output))} --by GENERATOR -o FOLDER"
    print_summary(
        output,
        manifest,
        f"blind accuracy in %: {', '.join(texts)}" if texts else "",
        few if manifest["rows"] < MIN_ROWS else "",
        generate if manifest["rows"] else "",
    )


def _format_accuracy(values: Mapping[str, Any]) -> str:
    """The blind accuracy in percent, and in parentheses that of a classifier that also sees the words."""
    with_words = f" ({100 * values['with words']['accuracy']:.1f} with words)" if "with words" in values else ""
    return f"{100 * values['accuracy']:.1f}{with_words}"
