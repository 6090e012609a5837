"""`crossmatch build sample`: sample pairs of graded similarity for people to rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from crossmatch.cli.base import FILE, Command, resumable
from crossmatch.cli.build.common import (
    DATA,
    OUTPUT,
    SEED,
    SKIP_BAD,
    load_usable,
    print_summary,
    refuse_options,
    split_names,
    study_command,
    write_skipped,
)
from crossmatch.cli.cache import cache_options, score_cache
from crossmatch.data.errors import UsageError

# Options of `build sample` that only some kinds of pairs use.
SAMPLE_OPTIONS = {
    "sts": ("image_model", "top", "seed", "cache", "no_cache"),
    "sis": ("text_models", "top"),
    "sits": ("caption_ratings", "image_ratings", "number", "seed"),
}


@click.command("sample", cls=Command)
@click.option("--kind", type=click.Choice(list(SAMPLE_OPTIONS)), required=True,
              help="Pairs of captions (sts), of images (sis), or of an image and a caption (sits).")  # fmt: skip
@DATA
@OUTPUT
@click.option("--image-model", metavar="MODEL", help="sts: model that embeds images: a trained folder, precomputed:FILE, …")
@click.option("--text-models", default="minilm,bow", show_default=True, help="sis: text encoders; each selects its own pairs.")
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="sts, sis: most similar images per image.")
@click.option("--caption-ratings", type=FILE, help="sits: ratings of caption pairs: a study's judgements_t2t.csv, or CxC's file.")
@click.option("--image-ratings", type=FILE, help="sits: ratings of image pairs: a study's judgements_i2i.csv, or CxC's file.")
@click.option("--number", type=click.IntRange(0), help="sits: pairs besides the links.  [default: four per image]")
@SEED
@SKIP_BAD
@cache_options
def sample_command(kind: str, data: str, output: Path, skip_bad: bool, **options: Any) -> None:
    """Sample pairs of graded similarity for people to rate.

    Caption pairs are chosen by the similarity of their images, and image pairs by the similarity of their captions
    (Crisscrossed Captions).
    """
    used = SAMPLE_OPTIONS[kind]
    refuse_options({name for names in SAMPLE_OPTIONS.values() for name in names if name not in used}, f"with --kind {kind}")
    required = {"sts": ("image_model",), "sis": (), "sits": ("caption_ratings", "image_ratings")}[kind]
    missing = next((name for name in required if options[name] is None), None)
    if missing is not None:
        raise UsageError(f"--kind {kind} needs --{missing.replace('_', '-')}.")
    collection, skipped = load_usable(data, skip_bad)
    with resumable():
        manifest = _sample(kind, collection, output, **options)
    print_summary(output, manifest, write_skipped(output, skipped), study_command(kind, "--items", output / "rows.jsonl", data))


def _sample(kind: str, collection: Any, output: Path, *, image_model: str, text_models: str, top: int, caption_ratings: Path,
            image_ratings: Path, number: int | None, seed: int, cache: Path | None,
            no_cache: bool) -> dict[str, Any]:  # fmt: skip
    from crossmatch.build.rated_pair_sampling import sample_sis, sample_sits, sample_sts
    from crossmatch.build.rating_files import read_pair_ratings

    if kind == "sts":
        score_store = score_cache(cache, no_cache)
        return sample_sts(collection, output, image_model=image_model, top=top, seed=seed, cache=score_store)
    if kind == "sis":
        return sample_sis(collection, output, text_models=split_names(text_models, "text model"), top=top)
    return sample_sits(
        collection,
        output,
        caption_ratings=read_pair_ratings(caption_ratings, collection, "caption"),
        image_ratings=read_pair_ratings(image_ratings, collection, "image"),
        number=number,
        seed=seed,
    )
