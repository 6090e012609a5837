"""The data sheet of a result: counted, or read from manifests, and nothing made up (gebru2021datasheets)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from crossmatch.build.files import read_rows
from crossmatch.build.provenance import Chain, Link, people_of
from crossmatch.report.tables import SHORTER

if TYPE_CHECKING:
    from crossmatch.build.card import Material, Wording
    from crossmatch.build.shards import Shard

# Licences that Hugging Face knows by these words; another one is told by its name.
KNOWN = ("mit", "apache-2.0", "cc0-1.0", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-4.0",
         "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "odc-by", "pddl")  # fmt: skip
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"), (10_000_000, "1M<n<10M"))


def sheet(words: Wording, material: Material, chain: Chain) -> str:
    """README.md, with front matter."""
    parts = [
        _front(words, material),
        f"# {words.name}\n\n{words.about or 'Nobody has said yet what it is for.'}",
        _section("What is in it", _counts(material)),
        _section("How it came about", _steps(chain)),
        _section("What each source said", _sources(chain)),
        _section("Who judged", [line for one in chain.links if one.is_study for line in _people(one)]),
        _section("Licences", _licences(words, material)),
        _section("Known limits", _limits(material, chain)),
        _section("How to load it", _load(material)),
        f"## Citation\n\n{words.cite}" if words.cite else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *lines]) if lines else ""


# -- front matter


def _front(words: Wording, material: Material) -> str:
    """What Hugging Face reads; a string of json is one of YAML."""
    licence = words.licence.lower()
    said = [f"license: {licence}"] if licence in KNOWN else []
    said = said or (["license: other", f"license_name: {json.dumps(words.licence, ensure_ascii=False)}"] if licence else [])
    rows = material.shards[0].rows
    lines = ["---", f"pretty_name: {json.dumps(words.name, ensure_ascii=False)}", *said, "size_categories:"]
    lines += [
        f"- {next((word for most, word in SIZES if rows < most), 'n>10M')}",
        "tags:",
        "- image-text",
        "- crossmatch",
        "configs:",
    ]
    for n, one in enumerate(material.shards):
        lines += [f"- config_name: {one.config}", *(["  default: true"] if n == 0 else []), "  data_files:", "  - split: test"]
        lines += [f"    path: {one.path}"]
    return "\n".join([*lines, "---"])


# -- what it is, and how it came about


def _counts(material: Material) -> list[str]:
    table = _table(("what", "number"), [(what, f"{number:,}") for what, number in material.counts.items()])
    return [*table, "", *(line for one in material.shards for line in _columns(one))]


def _columns(shard: Shard) -> list[str]:
    named = ", ".join(f"`{name}`" + (f" ({shard.about[name]})" if name in shard.about else "") for name in shard.columns)
    return [f"- `{shard.config}`, {shard.rows:,} rows: {named}"]


def _steps(chain: Chain) -> list[str]:
    """Each step with its hash and what it read; and whether what it read was at hand when this was written."""
    if not chain.links:
        return ["No manifest was at hand: how the data came about is not known here."]
    rows = []
    for one in chain.links:
        read = [f"{SHORTER.sub('', what)} `{_named(named)}`{_whose(chain, one, named)}" for what, named in one.inputs.items()]
        rows.append((one.name, f"`{one.hash[:16]}`", "; ".join(read) or "–", how(one)))
    return [
        *_table(("step", "hash", "made from", "how"), rows), "",
        "A hash behind which a step stands was compared with the files of that step; the others are as the manifests tell.",
    ]  # fmt: skip


def _named(named: str) -> str:
    """A hash cut short; a model is called by its signature, in full."""
    return named[:16] if re.fullmatch("[0-9a-f]{16,}", named) else named.replace("|", "/")


def _whose(chain: Chain, reader: Link, named: str) -> str:
    found = next(iter(chain.sources(reader, named)), None)
    return f" ({found.name})" if found else ""


def how(one: Link) -> str:
    """How a step or a study came to its rows, in a few words."""
    if one.is_study:
        return f"preset {one.told['preset']}, answers combined by {one.told['combine']}, crossmatch {one.told['crossmatch']}"
    options = ", ".join(f"{key} {_short(value)}" for key, value in one.told["options"].items())
    made = f"seed {one.told['seed']}, {one.told['rows']:,} rows, crossmatch {one.told['crossmatch']}"
    return f"{options}; {made}" if options else made


def _short(value: Any) -> str:
    text = f"({len(value)})" if isinstance(value, list | dict) and len(str(value)) > 40 else str(value)
    return text.replace("|", "/")


def _sources(chain: Chain) -> list[str]:
    """Of a merged result the counts of its manifest (chun2022eccv, Table 3)."""
    merged = next((one for one in chain.links if one.name == "merge"), None)
    if merged is None:
        return []
    rows = [(key, f"{number:,}") for key, number in merged.told["counts"].items()]
    return _table(("what", "number"), rows)


def _people(study: Link) -> list[str]:
    told = study.told
    numbers = f"{told['answers']:,} answers of {told['people']:,} people to {told['items']:,} items"
    lines = [f"- {told['study']} ({told['preset']}): {numbers}."]
    found = people_of(study)
    lines.append(f"  Agreement, Krippendorff's alpha: {found.alpha if found else 'not known, the answers were not at hand'}")
    if found and found.artificial:
        lines.append(f"  **{found.artificial:,} of these {found.number:,} people were artificial annotators: a rehearsal.**")
    if told.get("pending_review"):
        lines.append(f"  {told['pending_review']:,} HITs with wrong gold answers had not been reviewed.")
    return lines


# -- what to know before using it


def _licences(words: Wording, material: Material) -> list[str]:
    lines = [f"- The annotations: {words.licence}." if words.licence else "- The annotations: no licence was stated."]
    if not material.licences:
        return [*lines, "- The pictures: their licences were not stated."]
    each = Counter(material.licences.values())
    return [*lines, *(f"- {number:,} picture{'s' * (number > 1)}: {licence}" for licence, number in each.most_common())]


def _limits(material: Material, chain: Chain) -> list[str]:
    lines = []
    counts, merged = material.counts, next((one for one in chain.links if one.name == "merge"), None)
    if "judged pairs" in counts:
        pairs = counts["images"] * counts["captions"]
        share = 100 * counts["judged pairs"] / pairs
        lines.append(
            f"- {counts['judged pairs']:,} of {pairs:,} pairs ({share:.2g} %) are judged; all others are unjudged, not wrong."
        )
    if merged is not None:
        told = merged.told["counts"]
        lines.append(f"- Sources disagree on {told.get('conflicts', 0):,} pairs; rule: {merged.told['options']['rule']}.")
    for one in chain.links:
        if one.name == "pool":
            models = [SHORTER.sub("", key.removeprefix("model ")) for key in one.inputs if key.startswith("model ")]
            lines.append(
                f"- Only pairs that one of {len(models)} models retrieved were judged: {', '.join(f'`{m}`' for m in models)}."
            )
        if one.name == "bias":
            lines += _bias(one)
        if one.is_study and one.told["still_to_come"]:
            lines.append(f"- {one.told['still_to_come']:,} answers to HITs of {one.told['study']} were still to come.")
    if not chain.links:
        lines.append("- Nothing is known about who made the judgements, and how.")
    return lines or ["- None that the manifests tell of."]


def _bias(one: Link) -> list[str]:
    """The non-self-bias when all models of the pool but one had proposed: what that one lost.

    Against the truth an outsider may be wronged more: what no model proposed is missing from the whole pool, too.
    """
    rows = [row for row in read_rows(one.folder, "bias") if "models" in row]
    most = max((row["models"] for row in rows), default=0)
    return [
        f"- Had one of the models not proposed, its {row['metric']} in {row['direction']} would be off by "
        f"{row['non_self'][0]:.1f} points (non-self-bias with {most} model{'s' * (most > 1)}{_within(row['non_self'])}). "
        "One outside of the pool may be wronged as much, or more."
        for row in rows if row["models"] == most
    ]  # fmt: skip


def _within(value: Sequence[float]) -> str:
    return f", 95 % interval {value[1]:.1f} to {value[2]:.1f}" if len(value) > 1 else ""


def _load(material: Material) -> list[str]:
    lines = ["```python", "import datasets", ""]
    lines += [f'{one.config} = datasets.load_dataset("FOLDER", "{one.config}", split="test")' for one in material.shards]
    lines += ["```"]
    if material.kind == "collection":
        lines += ["", "```", "crossmatch run -m MODEL -t collection:FOLDER", "```"]
    return lines


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
