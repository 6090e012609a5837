"""`crossmatch captions`: have captions told, judge them, judge the judges, and show where a caption is grounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.generate import generate_command, task_of
from crossmatch.core.errors import CrossmatchError, WrongWords

if TYPE_CHECKING:
    from PIL.Image import Image

    from crossmatch.captions.corpus import Corpus
    from crossmatch.captions.judge import Judged
    from crossmatch.core.grounding import Grounder

FILE = click.Path(path_type=Path, dir_okay=False)
METRICS = "bleu,rouge-l,cider-d"
SAMPLES = click.option("--samples", type=click.IntRange(2, 1_000_000), default=1000, show_default=True, help="Bootstrap samples.")
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of whatever is drawn.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print everything as JSON on standard output.")
IMAGES = click.option("--images", type=click.Path(path_type=Path, file_okay=False), help="Folder of the pictures, named by id.")
MODEL = click.option("-m", "--model", help="A model that embeds images and texts, for clip-score and ref-clip-score.")
GROUNDER = click.option("--grounder", help="A model that grounds texts in regions, for tiger: the folder of a trained one.")
SIZE = click.option("--size", help="Size of the world, for references of diorama: default, coco, tiny.")
SPLIT = click.option("--split", help="Split of the references, where they are a task with several.")
REFERENCES = "A file of references (COCO annotations, {id: [texts]}, csv, tsv), or a task or collection:FOLDER with captions."


@click.group()
def captions() -> None:
    """Generate and score captions, ask how far scores agree with people, and see where a caption is grounded."""


captions.add_command(generate_command)


@captions.command("score")
@click.option("--candidates", "files", type=FILE, multiple=True, required=True,
              help="A file with one caption for each image: COCO results, {id: text}, csv. Several are compared.")  # fmt: skip
@click.option("--references", "words", required=True, help=REFERENCES)
@SIZE
@SPLIT
@click.option("--metrics", default=METRICS, show_default=True,
              help="Separated by commas; options as in cider-d+sigma=4 (see `captions metrics`).")  # fmt: skip
@click.option("--frequencies", type=FILE, help="Document frequencies for CIDEr, from `captions frequencies`.")
@IMAGES
@MODEL
@GROUNDER
@click.option(
    "--partial", is_flag=True, help="Score the images with references and a candidate in every file; others are left out."
)
@click.option("--leave-one-out", is_flag=True, help="Where a candidate is one of its references, leave that reference out.")
@click.option("--by", help="What the worst and the best captions are sorted by.  [default: cider-d, or the last metric]")
@click.option("--per-caption", type=FILE, help="Write the value of every caption to this csv.")
@click.option("-o", "--output", type=FILE, help="Write a page with the worst and the best captions (.html).")
@SAMPLES
@SEED
@JSON
def score_command(files: tuple[Path, ...], words: str, size: str | None, split: str | None, metrics: str,
                  frequencies: Path | None, images: Path | None, model: str | None, grounder: str | None, partial: bool,
                  leave_one_out: bool, by: str | None, per_caption: Path | None, output: Path | None, samples: int, seed: int,
                  as_json: bool) -> None:  # fmt: skip
    """Score captions against references: BLEU, ROUGE-L, CIDEr, METEOR, SPICE, TIGEr, CLIPScore. No Java, no downloads."""
    from crossmatch.benchmarks.formats.caption_files import pictures_in, read_candidates
    from crossmatch.captions.frequencies import Frequencies
    from crossmatch.captions.judge import compare, judge
    from crossmatch.captions.table import chosen
    from crossmatch.report import captions as page
    from crossmatch.report.tables import as_text

    names = named(metrics)
    asked = chosen(names)  # refuses before any work
    by = page.sorted_by(list(asked), by)
    for place, ending in ((output, ".html"), (per_caption, ".csv")):
        if place is not None and place.suffix.lower() != ending:
            raise WrongWords(f"{place} should end in {ending}: a page is -o FILE.html, values are --per-caption FILE.csv")
    if per_caption is not None and per_caption.resolve() in [place.resolve() for place in (*files, Path(words))]:
        raise WrongWords(f"{per_caption} is read, and would be overwritten by --per-caption. Name another file.")
    references, opener = references_of(words, size=size, split=split)
    if frequencies and not any("frequencies" in one.metric.needs for one in asked.values()):
        raise WrongWords(f"--frequencies are for cider and cider-d, which were not asked for: --metrics {metrics},cider-d")
    sets = [read_candidates(path) for path in files]
    if partial:  # what all of them have can be compared
        references = {image: texts for image, texts in references.items() if all(image in candidates for candidates in sets)}
        if not references:
            raise CrossmatchError(f"no image of {words} has a candidate in {', '.join(map(str, files))}. Check the ids.")
    ids = dict.fromkeys(image for candidates in sets for image in candidates if not partial or image in references)
    opener = pictures_in(images, ids) if images else opener
    given = {
        "frequencies": Frequencies.load(frequencies) if frequencies else None,
        "images": opener,
        "embedder": load_embedder(model) if model else None,
        "grounder": load_grounder(grounder) if grounder else None,
        "facts": (("own", "left-out"),) if leave_one_out else (),
    }
    shown = names_of(files)
    judged = [
        judge(name, _corpus(path, candidates, references, partial, leave_one_out), names, samples, seed, **given)
        for name, path, candidates in zip(shown, files, sets, strict=True)
    ]
    table = page.scores_table(judged)
    if as_json:
        told: dict[str, Any] = {one.name: one.as_json() for one in judged}
        if len(judged) > 1:
            told["differences"] = [one.as_json() for one in compare(judged)]
        click.echo(json.dumps(told, indent=1, allow_nan=False))
    else:
        click.echo(as_text(table))
    if per_caption:
        click.echo(f"saved {page.write_values(judged, per_caption)}", err=True)
    if output:
        options = next((dict(one.options) for one in asked.values() if one.metric.family == "tiger"), {})
        click.echo(f"saved {_page(output, judged, table, by, given, options)}", err=True)


def _page(
    output: Path, judged: Sequence[Judged], table: Any, by: str, given: Mapping[str, Any], options: Mapping[str, Any]
) -> Path:
    from crossmatch.report import captions as page
    from crossmatch.report.caption_plots import histogram_panel

    groups, panels = [page.apart(judged[0], one, by, given["images"]) for one in judged[1:]], []
    for one in judged:
        called = f" · {one.name}" if len(judged) > 1 else ""
        values = {name: result.scores.values for name, result in one.results.items()}
        panels.append(histogram_panel(values, f"How are the scores of single captions spread?{called}"))
        drawn = _drawn(one.corpus, given, options) if given["grounder"] is not None and given["images"] is not None else None
        found = page.extremes(one, by, given["images"], drawn)
        groups += [page.Group(group.title + called, group.about, group.cards) for group in found]
    lead = ", ".join(one.name for one in judged)
    signatures = list(dict.fromkeys(result.signature for one in judged for result in one.results.values()))
    return page.write_captions_page(output, f"Captions: {lead}", table.title, [table], panels, groups, signatures)


def _drawn(corpus: Corpus, given: Mapping[str, Any], options: Mapping[str, Any]) -> Callable[[str], str]:
    """Draws where a candidate and its references are grounded, for the page."""
    from crossmatch.report.grounding import explained, grounding_svg

    def draw(image: str) -> str:
        n = corpus.ids.tolist().index(image)
        first = int(corpus.candidate[n])
        texts = (corpus.captions or ())[first : first + 1 + int(corpus.references_each[n])]
        found = explained(given["grounder"], given["images"](image), texts[0], texts[1:], **options)
        if found.boxes is None:
            return ""
        return grounding_svg(found.picture, found.boxes, found.weights, found.texts, found.scores)

    return draw


@captions.command("explain")
@click.option("--caption", required=True, help="The caption to look at.")
@click.option("--image", "picture", type=FILE, help="A picture; or name one by --id.")
@click.option("--id", "name", help="The id of an image in --references.")
@click.option("--references", "words", help=REFERENCES + " Those of the image are drawn beside the caption.")
@IMAGES
@click.option("--grounder", required=True, help="A model that grounds texts in regions: the folder of a trained one.")
@click.option("--metric", default="tiger", show_default=True, help="TIGEr and its options, as in tiger+tau=1+variant=released.")
@click.option("-o", "--output", type=FILE, required=True, help="The picture to write (.png, .svg, .pdf).")
@JSON
def explain_command(caption: str, picture: Path | None, name: str | None, words: str | None, images: Path | None, grounder: str,
                    metric: str, output: Path, as_json: bool) -> None:  # fmt: skip
    """Draw in which regions of an image a caption is grounded, beside its references (TIGEr, Figures 1 and 6)."""
    from crossmatch.benchmarks.formats.caption_files import pictures_in
    from crossmatch.benchmarks.formats.gathered import decoded
    from crossmatch.captions.corpus import require_unicode
    from crossmatch.captions.table import chosen
    from crossmatch.report.grounding import explained, grounding_figure, require_kind, save_grounding

    require_kind(output)
    require_unicode(caption, "--caption")
    asked = next(iter(chosen([metric]).values()))
    if asked.metric.family != "tiger":
        raise WrongWords(f"{metric} looks at no regions; tiger does. Ask for it: --metric tiger")
    if (picture is None) == (name is None):
        raise WrongWords("one image was expected: a file by --image, or the id of one in --references by --id.")
    if name is not None and words is None:
        raise WrongWords(f"image {name!r} is named by its id; say of which references: --references FILE, or --references TASK")
    references, opener = references_of(words) if words else ({}, None)
    own = references.get(name or "", [])
    if name is not None and not own:
        first = next(iter(references))
        raise CrossmatchError(f"image {name!r} is not in {words}. Name one of its {len(references):,} images, such as {first}.")
    if name is not None:
        opener = pictures_in(images, [name]) if images else opener
        if opener is None:
            raise WrongWords(f"{words} has no pictures. Name their folder: --images FOLDER")
    shown = decoded(picture.read_bytes(), str(picture)) if picture else opener(name)  # type: ignore[misc,arg-type]
    options: dict[str, Any] = dict(asked.options)
    found = explained(load_grounder(grounder), shown, caption, own, **options)
    if found.boxes is None:
        raise CrossmatchError(f"{grounder} does not tell where its regions are, so that they cannot be drawn.")
    click.echo(f"saved {save_grounding(grounding_figure(*found), output)}", err=True)
    if as_json:
        told = {label: [round(float(weight), 6) for weight in each] for label, each in found.weights.items()}
        boxes = [[round(float(x), 6) for x in box] for box in found.boxes]
        click.echo(json.dumps({"boxes": boxes, **told, **(found.scores or {}), **options}, indent=1))
    elif found.scores:
        click.echo("  ".join(f"{name} {value:.4f}" for name, value in found.scores.items()))


@captions.command("metrics")
def metrics_command() -> None:
    """List the caption metrics, with best value, options, what they need, and source."""
    from crossmatch.report.captions import metrics_table
    from crossmatch.report.tables import as_text

    click.echo(as_text(metrics_table()))


@captions.command("frequencies")
@click.argument("references")
@click.option("-o", "--output", type=FILE, required=True, help="The file to write (.npz).")
def frequencies_command(references: str, output: Path) -> None:
    """Count in how many images' references each n-gram occurs, for CIDEr of a few captions at a time."""
    from crossmatch.captions.corpus import Corpus
    from crossmatch.captions.frequencies import Frequencies

    if output.suffix.lower() != ".npz":
        raise WrongWords(f"{output} should end in .npz. Name the file so.")
    said, _ = references_of(references)
    found = Frequencies.of(Corpus.of(dict.fromkeys(said, ""), said))
    output.parent.mkdir(parents=True, exist_ok=True)
    found.save(output)
    click.echo(f"{output}: {len(found.counts):,} n-grams of {found.images:,} images · {found.digest}")


def references_of(words: str, **options: str | None) -> tuple[dict[str, list[str]], Callable[[str], Image] | None]:
    """The references of each image, and an opener of the pictures where they are known: a file, a task or `collection:FOLDER`.

    `options` are those of a task, as far as they were given.
    """
    from crossmatch.benchmarks import load_data
    from crossmatch.benchmarks.formats.caption_files import read_references

    path, given = Path(words), dict[str, Any]((name, value) for name, value in options.items() if value is not None)
    if not words.strip():
        raise WrongWords("no references were named. Give a file, a task, or collection:FOLDER.")
    if path.is_file():
        if given:
            raise WrongWords(f"--{next(iter(given))} is for references of a task; {words} is a file. Leave it out.")
        return read_references(path), None
    if path.suffix.lower() in (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt"):
        what = "is a folder" if path.is_dir() else "is not there"
        raise CrossmatchError(f"{words} {what}. Give a file of references, a task, or collection:FOLDER.")
    collection = getattr(load_data(f"collection:{words}" if path.is_dir() else task_of(words), **given), "collection", None)
    if collection is None:
        raise WrongWords(f"{words} has no images with captions of their own. Give a file of references or collection:FOLDER.")
    texts, found = collection.texts(), dict[str, list[str]]()
    for image, caption in collection.links.tolist():
        found.setdefault(str(collection.image_ids[image]), []).append(texts[caption])
    return found, collection.open_image


def _corpus(
    path: Path, candidates: Mapping[str, str], references: Mapping[str, list[str]], partial: bool, leave_one_out: bool
) -> Corpus:
    from crossmatch.captions.corpus import Corpus
    from crossmatch.captions.leave_out import leave_own_out

    kept = {image: texts for image, texts in references.items() if image in candidates} if partial else dict(references)
    candidates = {image: text for image, text in candidates.items() if image in kept} if partial else candidates
    try:
        return Corpus.of(candidates, leave_own_out(candidates, kept) if leave_one_out else kept)
    except CrossmatchError as error:
        some = not partial and any(image in candidates for image in references)
        hint = " Or score the images that have a candidate: --partial" if some and len(kept) > len(candidates) else ""
        raise CrossmatchError(f"{path}: {error}{hint}") from None


def named(words: str) -> list[str]:
    return [name.strip() for name in words.split(",") if name.strip()]


def names_of(files: Sequence[Path]) -> list[str]:
    """What files are called: without folder and ending, or the whole path where that is not enough; the same file is numbered."""
    stems, paths = [path.stem for path in files], [str(path) for path in files]
    names = stems if len(set(stems)) == len(stems) else paths
    return [name if name not in names[:n] else f"{name} ({names[:n].count(name) + 1})" for n, name in enumerate(names)]


def load_embedder(name: str) -> object:
    from crossmatch.models import make_model
    from crossmatch.models.abilities import DualEncoder

    model = make_model(name)
    if not isinstance(model, DualEncoder):
        raise WrongWords(
            f"{name} does not embed images and texts, which clip-score needs. `crossmatch models` lists those that do."
        )
    return model


def load_grounder(name: str) -> Grounder:
    from crossmatch.core.grounding import Grounder
    from crossmatch.models import make_model

    model = make_model(name, "grounded")
    if not isinstance(model, Grounder):
        raise WrongWords(f"{name} does not ground texts in regions, which tiger needs. Train one: crossmatch train grounded -o DIR")
    return model
