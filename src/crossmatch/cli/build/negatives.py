"""`crossmatch build negatives`: write hard negative captions."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.base import Command, resumable
from crossmatch.cli.build.common import (
    OUTPUT,
    SEED,
    failure_note,
    load_collection,
    load_world,
    print_summary,
    refuse_options,
    split_names,
)
from crossmatch.data.errors import UsageError

WRITERS = ("rules", "llm", "diorama")


LLM_OPTIONS = ("endpoint", "model", "key_from", "timeout", "attempts", "at_once", "templates")


@click.command("negatives", cls=Command)
@click.argument("source", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--data", default="", help="Images and captions: collection:FOLDER, diorama, diorama:tiny/train, coco-5k, …")
@OUTPUT
@click.option("--format-only", is_flag=True,
              help="Write no negatives; only unify the format of the texts in SOURCE (a folder of negatives), or of --data.")  # fmt: skip
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
    print_summary(output, manifest, failure_note(output, manifest), next_command)


def _write_negatives(by: str, data: str, output: Path, common: dict[str, Any], *, endpoint: str, model: str, key_from: str,
                     timeout: float, attempts: int, at_once: int, templates: Path | None) -> dict[str, Any]:  # fmt: skip
    if by == "diorama":
        from crossmatch.build.negatives.by_diorama import write_diorama_negatives

        return write_diorama_negatives(load_world(data), output, **common)
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
