"""`crossmatch captions agree`: how well caption metrics agree with people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.captions import (
    FILE,
    GROUNDER,
    IMAGES,
    JSON,
    METRICS,
    MODEL,
    REFERENCES,
    SEED,
    load_embedder,
    load_grounder,
    named,
    names_of,
    references_of,
)  # fmt: skip
from crossmatch.core.errors import WrongWords

if TYPE_CHECKING:
    from PIL.Image import Image

    from crossmatch.captions.agree import PreferenceAgreement, RatingAgreement
    from crossmatch.core.ratings import Preferences, Ratings
    from crossmatch.report.analysis_page import Panel
    from crossmatch.report.tables import Table


GROUPS = click.option("--groups", "samples", type=click.IntRange(2, 100_000), default=1000, show_default=True,
                      help="Groups of images that are left out in turn for the intervals, at most.")  # fmt: skip


@click.command("agree")
@click.option("--judgements", required=True,
              help="Studies, by commas: flickr8k-expert, composite, pascal-50s; or a csv (image_id, caption, rating).")  # fmt: skip
@click.option("--metrics", default=METRICS, show_default=True, help="Separated by commas (see `captions metrics`).")
@click.option("--references", "words", help=f"For a csv of your own. {REFERENCES}")
@click.option("--ratings", "rating", type=click.Choice(["each", "mean"]), default="each", show_default=True,
              help="Count each single rating, or the mean rating of a caption.")  # fmt: skip
@click.option("--ties", type=click.Choice(["wrong", "half", "right"]), default="wrong", show_default=True,
              help="What equal scores of a pair are.")  # fmt: skip
@click.option("--documents", type=click.Choice(["images", "candidates"]), default="images", show_default=True,
              help="What CIDEr counts as a document: each image once, or once for each of its candidates.")  # fmt: skip
@click.option("--curve", is_flag=True, help="Also by the number of references (TIGEr, Figure 5).")
@click.option("--draws", type=click.IntRange(1), default=20, show_default=True, help="Draws of references for --curve.")
@click.option("--sensitivity", is_flag=True, help="Also which changed words a metric notices (TIGEr, Figure 7).")
@click.option("--scale", is_flag=True, help="Also metrics put on people's scale (TIGEr, Figure 8).")
@IMAGES
@MODEL
@GROUNDER
@click.option("-o", "--output", type=FILE, help="Write a page with tables and pictures (.html).")
@GROUPS
@SEED
@JSON
def agree_command(judgements: str, metrics: str, words: str | None, images: Path | None, output: Path | None, as_json: bool,
                  **options: Any) -> None:  # fmt: skip
    """How well each metric agrees with people: correlation with ratings, accuracy on preferences, with intervals and tests."""
    from crossmatch.captions.agree import agree
    from crossmatch.captions.remembered import remembered
    from crossmatch.captions.table import chosen
    from crossmatch.report import agreement as report
    from crossmatch.report.captions import write_captions_page
    from crossmatch.report.tables import as_text

    names = named(metrics)
    chosen(names)
    if output is not None and output.suffix.lower() != ".html":
        raise WrongWords(f"{output} should end in .html. Name the page so.")
    asked = named(judgements)
    studies = [_study(name, called, words) for name, called in zip(asked, names_of([Path(name) for name in asked]), strict=True)]
    if options["scale"] and not any(hasattr(said, "values") for said in studies):
        raise WrongWords("--scale is for ratings; these are preferences. Leave it out, or name a study of ratings.")
    if not studies:
        raise WrongWords("no study was named. Name some: --judgements flickr8k-expert,pascal-50s")
    models = {
        "embedder": (options["model"], load_embedder),
        "grounder": (options["grounder"], load_grounder),
    }
    given: dict[str, Any] = {key: load(name) for key, (name, load) in models.items() if name}
    shared: dict[str, Any] = {key: options[key] for key in ("rating", "ties", "documents", "samples", "seed")}
    tables, panels, told, signatures = list[Any](), list[Any](), dict[str, Any](), list[str]()
    for said in studies:
        opener = _pictures(images, said)
        pictured = remembered({**given, **({"images": opener} if opener else {})})
        found = agree(said, names, **shared, **pictured)
        more = _more(found, names, options, pictured)
        tables += [*report.agreement_tables(found), *more[0]]
        panels += [*report.agreement_panels(found), *more[1]] if output else []
        told[said.name] = found.as_json() | more[2]
        signatures += [found.signature, *found.signatures, *more[3]]
    click.echo(json.dumps(told, indent=1, allow_nan=False) if as_json else "\n\n".join(map(as_text, tables)))
    if output:
        lead = ", ".join(said.name for said in studies)
        page = write_captions_page(output, "Do caption metrics agree with people?", lead, tables, panels, (), signatures, True)
        click.echo(f"saved {page}", err=True)


def _study(name: str, called: str, words: str | None) -> Ratings | Preferences:
    from crossmatch.benchmarks.formats.caption_files import read_ratings
    from crossmatch.captions.judgements import study
    from crossmatch.core.ratings import Ratings

    path = Path(name)
    if path.suffix.lower() not in (".csv", ".tsv"):
        return study(name)
    if words is None:
        raise WrongWords(f"{name} has ratings of captions; say what they are compared with: --references FILE")
    rated, (references, _) = read_ratings(path), references_of(words)
    kept = {image: references[image] for image in dict.fromkeys(image for image, _, _ in rated) if image in references}
    return Ratings.gathered(called, rated, kept)


def _pictures(images: Path | None, said: Ratings | Preferences) -> Callable[[str], Image] | None:
    from crossmatch.benchmarks.formats.caption_files import pictures_in

    return pictures_in(images, dict.fromkeys(said.images.tolist())) if images else None


def _more(
    found: RatingAgreement | PreferenceAgreement, names: list[str], options: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[list[Table], list[Panel], dict[str, Any], list[str]]:
    """Tables, pictures, plain numbers and signatures of what was asked for beyond the agreement itself."""
    from crossmatch.captions import beyond
    from crossmatch.captions.agree import RatingAgreement
    from crossmatch.report import agreement as report

    tables, panels, told, signatures = list[Any](), list[Any](), dict[str, Any](), list[str]()
    name, seed = found.said.name, options["seed"]
    if options["curve"]:
        rules = {key: options[key] for key in ("ties", "rating", "documents")}
        curve = beyond.by_references(found.said, names, options["draws"], seed, **rules, **given)
        tables.append(report.curve_table(curve, name))
        panels += report.more_panels(curve)
        told["curve"] = curve.as_json()
        signatures.append(curve.signature)
    if options["sensitivity"]:
        noticed = beyond.by_words(found.said, names, seed, **given)
        tables.append(report.sensitivity_table(noticed.rows, name))
        panels += report.more_panels(noticed=noticed.rows)
        told["sensitivity"] = noticed.as_json()
        signatures += [noticed.signature, *noticed.signatures.values()]
    if options["scale"] and isinstance(found, RatingAgreement):
        scales = beyond.on_their_scale(found)
        tables.append(report.scale_table(scales, name))
        panels += report.more_panels(scales=scales)
        told["scale"] = {
            metric: {"exact": one.exact.value, "within_one": one.within_one.value, "off": one.off} for metric, one in scales.items()
        }
    return tables, panels, told, signatures
