"""`crossmatch captions explain`: draw in which image regions a caption is grounded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from crossmatch.cli.base import FILE, JSON, SIZE, SPLIT, Command
from crossmatch.cli.captions.common import GROUNDER_HELP, IMAGES, REFERENCES_HELP, load_grounder, load_references, task_options
from crossmatch.data.errors import CrossmatchError, UsageError


@click.command("explain", cls=Command)
@click.option("--caption", required=True, help="The caption to explain.")
@click.option("--image", "image_file", type=FILE, help="An image file; or choose an image with --id.")
@click.option("--id", "image_id", help="The id of an image in --references, or in the file of precomputed regions.")
@click.option("--references", "source", help=REFERENCES_HELP + " The image's references are drawn beside the caption.")
@SIZE
@SPLIT
@IMAGES
@click.option("--grounder", required=True, help=GROUNDER_HELP)
@click.option("--metric", default="tiger", show_default=True, help="TIGEr and its options, as in tiger+tau=1+variant=released.")
@click.option("-o", "--output", type=FILE, required=True, help="The picture to write (.png, .svg, .pdf).")
@JSON
def explain_command(caption: str, image_file: Path | None, image_id: str | None, source: str | None, size: str | None,
                    split: str | None, images: Path | None, grounder: str, metric: str, output: Path, as_json: bool) -> None:  # fmt: skip
    """Draw which image regions a caption refers to (TIGEr).

    The picture is that of TIGEr, Figures 1 and 6. With precomputed regions the image is optional, and only the weights are drawn
    where the file has no boxes.
    """
    from crossmatch.benchmarks.formats.caption_scoring_files import find_images
    from crossmatch.benchmarks.formats.image_decoding import decode_image
    from crossmatch.captions.caption_metric_table import parse_metric_names
    from crossmatch.captions.corpus import require_unicode
    from crossmatch.data.grounding import takes_image_ids
    from crossmatch.report.captions.grounding_pictures import ground_caption, grounding_figure, save_figure
    from crossmatch.report.pages import require_figure_suffix

    require_figure_suffix(output)
    require_unicode(caption, "--caption")
    metric_choice = next(iter(parse_metric_names([metric]).values()))
    if metric_choice.metric.family != "tiger":
        raise UsageError(f"--metric {metric} uses no regions; only tiger does. Use --metric tiger")
    source_options = task_options(source, size=size, split=split)
    if image_file is None and image_id is None:
        raise UsageError("give one image: a file with --image, or the id of an image in --references with --id.")
    model = load_grounder(grounder)
    by_id = takes_image_ids(model)
    if by_id and image_id is None:
        raise UsageError(f"--grounder {grounder} finds the regions of an image by its id. Name it: --id ID")
    if not by_id and image_file is not None and image_id is not None:
        raise UsageError("give one image: a file with --image, or the id of an image in --references with --id.")
    if not by_id and image_id is not None and source is None:
        raise UsageError(f"--id {image_id} needs --references, the file or task that contains the image.")
    references, open_image = load_references(source, **source_options) if source else ({}, None)
    texts = references.get(image_id or "", [])
    if image_id is not None and source and not texts:
        example = next(iter(references))
        raise CrossmatchError(f"--id {image_id} is not in {source}, which has {len(references):,} images, such as {example}.")
    picture = None
    if image_file is not None:
        picture = decode_image(image_file.read_bytes(), str(image_file))
    elif image_id is not None and (images or open_image):
        picture = (find_images(images, [image_id]) if images else open_image)(image_id)  # type: ignore[misc]
    elif not by_id:
        raise UsageError(f"{source} has no images. Name their folder: --images FOLDER")
    options: dict[str, Any] = dict(metric_choice.options)
    explanation = ground_caption(model, image_id if by_id else picture, caption, texts, **options)
    if explanation.boxes is None and not by_id:
        raise CrossmatchError(f"--grounder {grounder} does not report where its regions are, so they cannot be drawn.")
    figure = grounding_figure(picture, *explanation)
    click.echo(f"saved {save_figure(figure, output)}", err=True)
    if as_json:
        weights = {label: [round(float(weight), 6) for weight in row] for label, row in explanation.weights.items()}
        boxes = None if explanation.boxes is None else [[round(float(x), 6) for x in box] for box in explanation.boxes]
        click.echo(json.dumps({"boxes": boxes, **weights, **(explanation.scores or {}), **options}, indent=1))
    elif explanation.scores:
        click.echo("  ".join(f"{name} {value:.4f}" for name, value in explanation.scores.items()))
