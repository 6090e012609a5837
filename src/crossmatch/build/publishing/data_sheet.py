"""The data sheet of a result: counted from the data or read from manifests, nothing invented (gebru2021datasheets)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from crossmatch.build.publishing.provenance import ProvenanceChain, ProvenanceStep, summarise_annotators
from crossmatch.build.step_files import read_rows
from crossmatch.data.judgements import ARTIFICIAL, rehearsal_note
from crossmatch.data.result import shorten_model_name

if TYPE_CHECKING:
    from crossmatch.build.publishing.parquet import ParquetFile
    from crossmatch.build.publishing.published_folder import CardContents, CardTexts

# Licence identifiers of Hugging Face; other licences are written as `other` with their name.
KNOWN_LICENCES = ("mit", "apache-2.0", "cc0-1.0", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0",
                  "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "odc-by", "pddl")  # fmt: skip
BY_ARTIFICIAL = f"of them by {ARTIFICIAL}"  # a count of the contents
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"), (10_000_000, "1M<n<10M"))


def render_data_sheet(texts: CardTexts, contents: CardContents, chain: ProvenanceChain) -> str:
    """Render README.md, with front matter."""
    parts = [
        _front_matter(texts, contents),
        f"# {texts.name}\n\n{texts.about or 'No description was given.'}",
        f"**{warning}**" if (warning := rehearsal_warning(contents, chain)) else "",
        _section("Contents", _contents(contents)),
        _section("How it was made", _steps(chain)),
        _section("Judgements by source", _sources(chain)),
        _section("Annotators", [line for step in chain.steps if step.is_study for line in _annotators(step)]),
        _section("Licences", _licences(texts, contents)),
        _section("Known limits", _limits(contents, chain)),
        _section("How to load it", _load_instructions(contents)),
        f"## Citation\n\n{texts.cite}" if texts.cite else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def rehearsal_warning(contents: CardContents, chain: ProvenanceChain) -> str:
    """Which judgements are from artificial annotators; empty if none is."""
    studies = [step.record["study"] for step in chain.steps if step.is_study and step.record.get("artificial")]
    if artificial := contents.counts.get(BY_ARTIFICIAL):
        rows = "trials" if contents.kind == "trials" else "judgements"
        return f"{rehearsal_note(f'{artificial:,} of these {rows}')}."
    return f"{rehearsal_note('Answers to ' + ', '.join(studies))}." if studies else ""


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *lines]) if lines else ""


# -- front matter


def _front_matter(texts: CardTexts, contents: CardContents) -> str:
    """YAML for Hugging Face; json strings are valid YAML."""
    licence: list[str] = []
    if texts.licence.lower() in KNOWN_LICENCES:
        licence = [f"license: {texts.licence.lower()}"]
    elif texts.licence:
        licence = ["license: other", f"license_name: {json.dumps(texts.licence, ensure_ascii=False)}"]
    rows = contents.files[0].rows
    lines = ["---", f"pretty_name: {json.dumps(texts.name, ensure_ascii=False)}", *licence, "size_categories:"]
    lines += [
        f"- {next((name for limit, name in SIZES if rows < limit), 'n>10M')}",
        "tags:",
        "- image-text",
        "- crossmatch",
        "configs:",
    ]
    for n, file in enumerate(contents.files):
        lines += [f"- config_name: {file.config}", *(["  default: true"] if n == 0 else []), "  data_files:", "  - split: test"]
        lines += [f"    path: {file.path}"]
    return "\n".join([*lines, "---"])


# -- contents and provenance


def _contents(contents: CardContents) -> list[str]:
    table = _table(("what", "number"), [(name, f"{number:,}") for name, number in contents.counts.items()])
    return [*table, "", *(_columns(file) for file in contents.files)]


def _columns(file: ParquetFile) -> str:
    columns = ", ".join(f"`{name}`" + (f" ({file.about[name]})" if name in file.about else "") for name in file.columns)
    return f"- `{file.config}`, {file.rows:,} rows: {columns}"


def _steps(chain: ProvenanceChain) -> list[str]:
    """A table of all steps with hash, inputs and options."""
    if not chain.steps:
        return ["No manifest was available, so it is unknown how the data were made."]
    rows = []
    for step in chain.steps:
        inputs = [
            f"{shorten_model_name(name)} `{_short_hash(digest)}`{_source_name(chain, step, digest)}"
            for name, digest in step.inputs.items()
        ]
        rows.append((step.name, f"`{step.hash[:16]}`", "; ".join(inputs) or "–", describe_step(step)))
    return [
        *_table(("step", "hash", "made from", "how"), rows), "",
        "A hash followed by the name of a step was compared with the files of that step. Other hashes come from the manifests.",
    ]  # fmt: skip


def _short_hash(digest: str) -> str:
    """The first characters of a hash; the signature of a model in full."""
    return digest[:16] if re.fullmatch("[0-9a-f]{16,}", digest) else digest.replace("|", "/")


def _source_name(chain: ProvenanceChain, reader: ProvenanceStep, digest: str) -> str:
    source = next(iter(chain.sources(reader, digest)), None)
    return f" ({source.name})" if source else ""


def describe_step(step: ProvenanceStep) -> str:
    """Options, seed and number of rows of a step, or design and aggregation of a study."""
    record = step.record
    if step.is_study:
        return f"preset {record['preset']}, answers combined by {record['combine']}, crossmatch {record['crossmatch']}"
    options = ", ".join(f"{key} {_short_value(value)}" for key, value in record["options"].items())
    summary = f"seed {record['seed']}, {record['rows']:,} rows, crossmatch {record['crossmatch']}"
    return f"{options}; {summary}" if options else summary


def _short_value(value: Any) -> str:
    if isinstance(value, str) and "://" not in value:  # a model, or a path on the machine of the author
        value = shorten_model_name(value)
    text = f"({len(value)})" if isinstance(value, list | dict) and len(str(value)) > 40 else str(value)
    return text.replace("|", "/")


def _merge_step(chain: ProvenanceChain) -> ProvenanceStep | None:
    return next((step for step in chain.steps if step.name == "merge"), None)


def _sources(chain: ProvenanceChain) -> list[str]:
    """The counts of a merge (chun2022eccv, Table 3)."""
    merge = _merge_step(chain)
    if merge is None:
        return []
    return _table(("what", "number"), [(name, f"{number:,}") for name, number in merge.record["counts"].items()])


def _annotators(study: ProvenanceStep) -> list[str]:
    record = study.record
    numbers = f"{record['answers']:,} answers of {record['people']:,} people to {record['items']:,} items"
    lines = [f"- {record['study']} ({record['preset']}): {numbers}."]
    summary = summarise_annotators(study)
    alpha = summary.alpha if summary else "unknown, because the answers were not available"
    lines.append(f"  Agreement, Krippendorff's alpha: {alpha}")
    if summary and summary.artificial:
        lines.append(f"  **{summary.artificial:,} of these {summary.number:,} people were {ARTIFICIAL}: a rehearsal.**")
    elif record.get("artificial"):
        lines.append(f"  **{rehearsal_note('These answers')}.**")
    if record.get("pending_review"):
        lines.append(f"  {record['pending_review']:,} HITs with wrong gold answers had not been reviewed.")
    return lines


# -- licences, limits, use


def _licences(texts: CardTexts, contents: CardContents) -> list[str]:
    lines = [f"- Annotations: {texts.licence}." if texts.licence else "- Annotations: no licence was stated."]
    if not contents.licences:
        return [*lines, "- Pictures: no licences were stated."]
    numbers = Counter(contents.licences.values())
    return [*lines, *(f"- {number:,} picture{'s' * (number > 1)}: {licence}" for licence, number in numbers.most_common())]


def _limits(contents: CardContents, chain: ProvenanceChain) -> list[str]:
    lines = []
    counts, merge = contents.counts, _merge_step(chain)
    if "judged pairs" in counts:
        pairs = counts["images"] * counts["captions"]
        share = 100 * counts["judged pairs"] / pairs
        lines.append(
            f"- {counts['judged pairs']:,} of {pairs:,} pairs ({share:.2g} %) are judged; all others are unjudged, not wrong."
        )
    if merge is not None:
        conflicts = merge.record["counts"].get("conflicts", 0)
        lines.append(f"- Sources disagree on {conflicts:,} pairs; rule: {merge.record['options']['rule']}.")
    for step in chain.steps:
        if step.name == "pool":
            models = [shorten_model_name(key.removeprefix("model ")) for key in step.inputs if key.startswith("model ")]
            names = ", ".join(f"`{name}`" for name in models)
            lines.append(f"- Only pairs that one of {len(models)} models retrieved were judged: {names}.")
        if step.name == "bias":
            lines += _bias_limits(step)
        if step.is_study and step.record["still_to_come"]:
            lines.append(f"- {step.record['still_to_come']:,} assignments of {step.record['study']} were missing.")
    if not chain.steps:
        lines.append("- It is unknown who made the judgements, and how.")
    return lines or ["- None according to the manifests."]


def _bias_limits(step: ProvenanceStep) -> list[str]:
    """The non-self-bias with all models of the pool but one, which is what the missing model loses.

    The true disadvantage of a model outside the pool may be larger: pairs that no model proposed are missing from the pool, too.
    """
    rows = [row for row in read_rows(step.folder, "bias") if "models" in row]
    most = max((row["models"] for row in rows), default=0)
    return [
        f"- Without the proposals of one of the models, its {row['metric']} in {row['direction']} would change by "
        f"{row['non_self'][0]:.1f} points (non-self-bias with {most} model{'s' * (most > 1)}{_interval(row['non_self'])}). "
        "A model outside the pool may be disadvantaged as much, or more."
        for row in rows if row["models"] == most
    ]  # fmt: skip


def _interval(values: Sequence[float]) -> str:
    return f", 95 % interval {values[1]:.1f} to {values[2]:.1f}" if len(values) > 1 else ""


def _load_instructions(contents: CardContents) -> list[str]:
    lines = ["```python", "import datasets", ""]
    lines += [f'{file.config} = datasets.load_dataset("FOLDER", "{file.config}", split="test")' for file in contents.files]
    lines += ["```"]
    if contents.kind == "collection":
        lines += ["", "```", "crossmatch run -m MODEL -t collection:FOLDER", "```"]
    return lines


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
