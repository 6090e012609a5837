"""`crossmatch captions agree`: how well caption metrics agree with people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from crossmatch.cli.base import FILE, JSON, SIZE, SPLIT, Command, split_names
from crossmatch.cli.captions.common import (
    GROUNDER_HELP,
    IMAGES,
    METRICS,
    MODEL,
    REFERENCES_HELP,
    SEED,
    display_names,
    load_embedder,
    load_grounder,
    load_references,
    task_options,
)
from crossmatch.data.errors import CrossmatchError, UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

    from crossmatch.captions.human.metric_agreement import PreferenceAgreement, RatingAgreement
    from crossmatch.data.ratings import Preferences, Ratings
    from crossmatch.report.pages import Panel
    from crossmatch.report.tables import Table


class Findings(NamedTuple):
    """What the page and the JSON show about one set of human judgements."""

    tables: list[Table]
    panels: list[Panel]
    values: dict[str, Any]
    signatures: list[str]


@click.command("agree", cls=Command)
@click.option("--judgements", required=True,
              help="Ratings, separated by commas: flickr8k-expert, composite, pascal-50s, or a csv (image_id, caption, "
              "rating).")  # fmt: skip
@METRICS
@click.option("--references", "source", help=f"For a csv of your own. {REFERENCES_HELP}")
@SIZE
@SPLIT
@click.option("--ratings", "rating", type=click.Choice(["each", "mean"]), default="each", show_default=True,
              help="Count every single rating, or the mean rating of a caption.")  # fmt: skip
@click.option("--ties", type=click.Choice(["wrong", "half", "right"]), default="wrong", show_default=True,
              help="How equal scores of a pair count.")  # fmt: skip
@click.option("--documents", type=click.Choice(["images", "candidates"]), default="images", show_default=True,
              help="For CIDEr's document frequencies: count each image once, or once per candidate.")  # fmt: skip
@click.option("--curve", is_flag=True, help="Also show agreement by the number of references (TIGEr, Figure 5).")
@click.option("--draws", type=click.IntRange(1), default=20, show_default=True, help="Draws of references for --curve.")
@click.option("--sensitivity", is_flag=True, help="Also show which word changes a metric notices (TIGEr, Figure 7).")
@click.option("--scale", is_flag=True, help="Also map metrics to the human rating scale (TIGEr, Figure 8).")
@IMAGES
@MODEL
@click.option("--grounder", help=GROUNDER_HELP + " For tiger.")
@click.option("-o", "--output", type=FILE, help="Write a page with tables and plots (.html).")
@click.option("--groups", "samples", type=click.IntRange(2, 100_000), default=1000, show_default=True,
              help="Largest number of groups into which the jackknife divides the images; it leaves out one at a time.")  # fmt: skip
@SEED
@JSON
def agree_command(judgements: str, metrics: str, source: str | None, images: Path | None, output: Path | None, as_json: bool,
                  **options: Any) -> None:  # fmt: skip
    """Measure how well caption metrics agree with people."""
    from crossmatch.benchmarks.formats.caption_scoring_files import find_images
    from crossmatch.captions.caption_metric_table import parse_metric_names
    from crossmatch.report.captions.scores_output import write_captions_page
    from crossmatch.report.tables import format_table

    metric_names, judgement_names = split_names(metrics), split_names(judgements)
    parse_metric_names(metric_names)  # refuses unknown metrics before any work
    if output is not None and output.suffix.lower() != ".html":
        raise UsageError(f"-o: {output} should end in .html.")
    if not judgement_names:
        raise UsageError("--judgements is empty. Name some: --judgements flickr8k-expert,pascal-50s")
    titles = display_names([Path(name) for name in judgement_names])
    source_options = task_options(source, size=options.pop("size"), split=options.pop("split"))
    pairs = [_load_judgements(name, title, source, source_options) for name, title in zip(judgement_names, titles, strict=True)]
    loaded = [human for human, _ in pairs]
    if options["scale"] and not any(hasattr(human, "values") for human in loaded):
        raise UsageError("--scale works only with ratings, not with preferences. Omit it, or name ratings.")
    models: dict[str, Any] = {}
    if options["model"]:
        models["embedder"] = load_embedder(options["model"])
    if options["grounder"]:
        models["grounder"] = load_grounder(options["grounder"])
    findings = [
        _measure(human, metric_names, find_images(images, dict.fromkeys(human.images.tolist())) if images else open_image, models,
                 options, with_panels=output is not None)
        for human, open_image in pairs
    ]  # fmt: skip
    tables = [table for finding in findings for table in finding.tables]
    if as_json:
        values = {human.name: finding.values for human, finding in zip(loaded, findings, strict=True)}
        click.echo(json.dumps(values, indent=1, allow_nan=False))
    else:
        click.echo("\n\n".join(map(format_table, tables)))
    if output:
        panels = [panel for finding in findings for panel in finding.panels]
        signatures = [signature for finding in findings for signature in finding.signatures]
        lead = ", ".join(human.name for human in loaded)
        page = write_captions_page(output, "Do caption metrics agree with people?", lead, tables, panels, (), signatures, True)
        click.echo(f"saved {page}", err=True)


def _load_judgements(
    name: str, title: str, source: str | None, source_options: Mapping[str, str]
) -> tuple[Ratings | Preferences, Callable[[str], Image] | None]:
    """Published ratings by name, or a csv of the user's own; and a function that opens an image where the references have images."""
    from crossmatch.benchmarks.formats.caption_scoring_files import read_ratings
    from crossmatch.benchmarks.formats.judgement_files import has_artificial_answers
    from crossmatch.captions.human.published_ratings import load_ratings
    from crossmatch.data.judgements import ARTIFICIAL
    from crossmatch.data.ratings import Ratings

    path = Path(name)
    if path.suffix.lower() not in (".csv", ".tsv"):
        return load_ratings(name), None
    if not path.is_file():
        raise CrossmatchError(f"--judgements {name}: there is no such file. Check the path.")
    if source is None:
        raise UsageError(f"{name} contains ratings of captions. Name the references to score them with: --references FILE")
    rows, (references, open_image) = read_ratings(path), load_references(source, **source_options)
    used = {image: references[image] for image in dict.fromkeys(image for image, _, _ in rows) if image in references}
    label = f"{title} ({ARTIFICIAL})" if has_artificial_answers(path) else title
    return Ratings.from_rows(label, rows, used), open_image


def _measure(
    human: Ratings | Preferences,
    metric_names: list[str],
    open_image: Callable[[str], Image] | None,
    models: Mapping[str, Any],
    options: Mapping[str, Any],
    with_panels: bool,
) -> Findings:
    """The agreement of all metrics with one set of judgements, and the further analyses that were requested."""
    from crossmatch.captions.human.cached_models import cache_models
    from crossmatch.captions.human.metric_agreement import measure_agreement
    from crossmatch.report.captions import agreement_with_people as agreement_report

    tools = cache_models({**models, **({"images": open_image} if open_image else {})})
    protocol: dict[str, Any] = {name: options[name] for name in ("rating", "ties", "documents", "samples", "seed")}
    agreement = measure_agreement(human, metric_names, **protocol, **tools)
    further = _further_analyses(agreement, metric_names, options, tools)
    return Findings(
        [*agreement_report.agreement_tables(agreement), *further.tables],
        [*agreement_report.agreement_panels(agreement), *further.panels] if with_panels else [],
        agreement.as_json() | further.values,
        [agreement.signature, *agreement.signatures, *further.signatures],
    )


def _further_analyses(
    agreement: RatingAgreement | PreferenceAgreement, metric_names: list[str], options: Mapping[str, Any], tools: Mapping[str, Any]
) -> Findings:
    """--curve, --sensitivity and --scale."""
    from crossmatch.captions.human.metric_agreement import RatingAgreement
    from crossmatch.captions.human.rating_scale_matching import map_to_rating_scale
    from crossmatch.captions.human.reference_curve import measure_reference_curve
    from crossmatch.captions.human.sensitivity import measure_word_sensitivity
    from crossmatch.report.captions import agreement_with_people as agreement_report

    findings = Findings([], [], {}, [])
    name, seed = agreement.study.name, options["seed"]
    if options["curve"]:
        protocol = {key: options[key] for key in ("ties", "rating", "documents")}
        curve = measure_reference_curve(agreement.study, metric_names, options["draws"], seed, **protocol, **tools)
        findings.tables.append(agreement_report.curve_table(curve, name))
        findings.panels.extend(agreement_report.analysis_panels(curve))
        findings.values["curve"] = curve.as_json()
        findings.signatures.append(curve.signature)
    if options["sensitivity"]:
        noticed = measure_word_sensitivity(agreement.study, metric_names, seed, **tools)
        findings.tables.append(agreement_report.sensitivity_table(noticed.rows, name))
        findings.panels.extend(agreement_report.analysis_panels(sensitivity=noticed.rows))
        findings.values["sensitivity"] = noticed.as_json()
        findings.signatures.extend([noticed.signature, *noticed.signatures.values()])
    if options["scale"] and isinstance(agreement, RatingAgreement):
        scales = map_to_rating_scale(agreement)
        findings.tables.append(agreement_report.scale_table(scales, name))
        findings.panels.extend(agreement_report.analysis_panels(scales=scales))
        findings.values["scale"] = {
            metric: {"exact": scale.exact.value, "within_one": scale.within_one.value, "off": scale.mean_distance}
            for metric, scale in scales.items()
        }
    return findings
