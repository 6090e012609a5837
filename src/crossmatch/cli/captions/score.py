"""`crossmatch captions score`: score captions against references."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
)
from crossmatch.data.errors import CrossmatchError, UsageError

if TYPE_CHECKING:
    from crossmatch.captions.corpus import CaptionCorpus
    from crossmatch.captions.document_frequencies import DocumentFrequencies
    from crossmatch.captions.score_captions import ScoredCaptions
    from crossmatch.report.tables import Table


@click.command("score", cls=Command)
@click.option("--candidates", "files", type=FILE, multiple=True, required=True,
              help="A file with one caption per image: COCO results, {id: text}, csv. Repeat it to compare files.")  # fmt: skip
@click.option("--references", "source", required=True, help=REFERENCES_HELP)
@SIZE
@SPLIT
@METRICS
@click.option("--frequencies", help="Document frequencies for CIDEr: an .npz file, or other references to count them in.")
@click.option("--save-frequencies", type=FILE, help="Save the document frequencies of --frequencies to this .npz file.")
@IMAGES
@MODEL
@click.option("--grounder", help=GROUNDER_HELP + " For tiger.")
@click.option("--partial", is_flag=True, help="Score only images with references and a candidate in every file.")
@click.option("--leave-one-out", is_flag=True,
              help="Where a candidate is one of its references, omit that reference, for all files.")  # fmt: skip
@click.option("--by", help="Metric that sorts the worst and best captions.  [default: cider-d, or the last metric]")
@click.option("--per-caption", type=FILE, help="Write the value of every caption to this csv.")
@click.option("-o", "--output", type=FILE, help="Write a page with the worst and best captions (.html).")
@click.option("--samples", type=click.IntRange(2, 1_000_000), default=1000, show_default=True, help="Bootstrap samples.")
@SEED
@JSON
def score_command(files: tuple[Path, ...], source: str, size: str | None, split: str | None, metrics: str, frequencies: str | None,
                  save_frequencies: Path | None, images: Path | None, model: str | None, grounder: str | None, partial: bool,
                  leave_one_out: bool, by: str | None, per_caption: Path | None, output: Path | None, samples: int, seed: int,
                  as_json: bool) -> None:  # fmt: skip
    """Score captions by BLEU, CIDEr, METEOR, SPICE, TIGEr and others.

    `crossmatch list metrics` lists all of them. None needs Java.
    """
    from crossmatch.benchmarks.formats.caption_scoring_files import find_images, read_candidates
    from crossmatch.captions.caption_metric_table import parse_metric_names
    from crossmatch.captions.corpus import leave_one_out as drop_own_references
    from crossmatch.captions.score_captions import compare_captions, score_captions
    from crossmatch.report.captions import scores_output
    from crossmatch.report.tables import format_table

    metric_names = split_names(metrics)
    metric_choices = parse_metric_names(metric_names)  # refuses unknown metrics before any work
    sort_metric = scores_output.choose_sort_metric(list(metric_choices), by)
    _require_endings(
        (output, ".html", "-o"), (per_caption, ".csv", "--per-caption"), (save_frequencies, ".npz", "--save-frequencies")
    )
    if per_caption is not None and per_caption.resolve() in [path.resolve() for path in (*files, Path(source))]:
        raise UsageError(f"--per-caption: {per_caption} is an input file and would be overwritten. Name another file.")
    if frequencies and not any("frequencies" in choice.metric.needs for choice in metric_choices.values()):
        raise UsageError(f"--frequencies is only for cider and cider-d. Add one of them: --metrics {metrics},cider-d")
    if save_frequencies and not frequencies:
        raise UsageError("--save-frequencies needs --frequencies, the references to count in.")
    references, open_image = load_references(source, size=size, split=split)
    candidate_sets = [read_candidates(path) for path in files]
    if partial:  # only images that all files have can be compared
        references = {image: texts for image, texts in references.items() if all(image in texts_by for texts_by in candidate_sets)}
        if not references:
            raise CrossmatchError(f"no image of {source} has a candidate in {', '.join(map(str, files))}. Check the ids.")
    if leave_one_out:
        references = drop_own_references(candidate_sets, references)
    image_ids = dict.fromkeys(image for texts_by in candidate_sets for image in texts_by if not partial or image in references)
    tools: dict[str, Any] = {
        "frequencies": _load_frequencies(frequencies, save_frequencies) if frequencies else None,
        "images": find_images(images, image_ids) if images else open_image,
        "embedder": load_embedder(model) if model else None,
        "grounder": load_grounder(grounder) if grounder else None,
        "facts": (("own", "left-out"),) if leave_one_out else (),
    }
    scored = [
        score_captions(name, _corpus(path, texts_by, references, partial), metric_names, samples, seed, **tools)
        for name, path, texts_by in zip(display_names(files), files, candidate_sets, strict=True)
    ]
    table = scores_output.scores_table(scored)
    if as_json:
        values: dict[str, Any] = {captions.name: captions.as_json() for captions in scored}
        if len(scored) > 1:
            values["differences"] = [difference.as_json() for difference in compare_captions(scored)]
        click.echo(json.dumps(values, indent=1, allow_nan=False))
    else:
        click.echo(format_table(table))
    if per_caption:
        click.echo(f"saved {scores_output.write_scores_csv(scored, per_caption)}", err=True)
    if output:
        tiger_options = next((dict(choice.options) for choice in metric_choices.values() if choice.metric.family == "tiger"), {})
        click.echo(f"saved {_write_page(output, scored, table, sort_metric, tools, tiger_options)}", err=True)


def _require_endings(*files: tuple[Path | None, str, str]) -> None:
    for path, ending, option in files:
        if path is not None and path.suffix.lower() != ending:
            raise UsageError(f"{option}: {path} should end in {ending}.")


def _load_frequencies(source: str, save_to: Path | None) -> DocumentFrequencies:
    """Document frequencies from an .npz file, or counted in references."""
    from crossmatch.captions.document_frequencies import DocumentFrequencies

    if source.lower().endswith(".npz"):
        frequencies = DocumentFrequencies.load(Path(source))
    else:
        references, _ = load_references(source)
        frequencies = DocumentFrequencies.from_references(references)
    if save_to:
        save_to.parent.mkdir(parents=True, exist_ok=True)
        frequencies.save(save_to)
        counts = f"{len(frequencies.counts):,} n-grams of {frequencies.images:,} images"
        click.echo(f"saved {save_to} · {counts} · {frequencies.digest}", err=True)
    return frequencies


def _corpus(path: Path, candidates: Mapping[str, str], references: Mapping[str, list[str]], partial: bool) -> CaptionCorpus:
    from crossmatch.captions.corpus import CaptionCorpus

    candidates = {image: text for image, text in candidates.items() if image in references} if partial else candidates
    try:
        return CaptionCorpus.from_texts(candidates, references)
    except CrossmatchError as error:
        has_some = not partial and any(image in candidates for image in references)
        hint = " To score only images with a candidate, add --partial." if has_some and len(references) > len(candidates) else ""
        raise CrossmatchError(f"{path}: {error}{hint}") from None


def _write_page(
    output: Path,
    scored: Sequence[ScoredCaptions],
    table: Table,
    sort_metric: str,
    tools: Mapping[str, Any],
    tiger_options: Mapping[str, Any],
) -> Path:
    from crossmatch.report.captions import scores_output
    from crossmatch.report.captions.agreement_plots import histogram_panel

    open_image, can_draw = tools["images"], tools["grounder"] is not None and tools["images"] is not None
    groups, panels = (
        [scores_output.largest_differences(scored[0], captions, sort_metric, open_image) for captions in scored[1:]],
        [],
    )
    for captions in scored:
        suffix = f" · {captions.name}" if len(scored) > 1 else ""
        values = {name: result.scores.values for name, result in captions.results.items()}
        panels.append(histogram_panel(values, f"Distribution of the scores of single captions{suffix}"))
        draw = _grounding_drawer(captions.corpus, tools, tiger_options) if can_draw else None
        extremes = scores_output.worst_and_best(captions, sort_metric, open_image, draw)
        groups += [scores_output.CardGroup(group.title + suffix, group.description, group.cards) for group in extremes]
    title = f"Captions: {', '.join(captions.name for captions in scored)}"
    signatures = list(dict.fromkeys(result.signature for captions in scored for result in captions.results.values()))
    return scores_output.write_captions_page(output, title, table.title, [table], panels, groups, signatures)


def _grounding_drawer(corpus: CaptionCorpus, tools: Mapping[str, Any], options: Mapping[str, Any]) -> Callable[[str], str]:
    """A function that draws where the candidate and the references of an image are grounded."""
    from crossmatch.data.grounding import takes_image_ids
    from crossmatch.report.captions.grounding_pictures import ground_caption, grounding_svg

    def draw(image: str) -> str:
        n = corpus.ids.tolist().index(image)
        first = int(corpus.candidate_index[n])
        texts = (corpus.captions or ())[first : first + 1 + int(corpus.references_per_image[n])]
        grounder, picture = tools["grounder"], tools["images"](image)
        explanation = ground_caption(grounder, image if takes_image_ids(grounder) else picture, texts[0], texts[1:], **options)
        if explanation.boxes is None:
            return ""
        return grounding_svg(picture, *explanation)

    return draw
