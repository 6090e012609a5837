"""The report: one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crossmatch import __version__
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.result import Result
from crossmatch.core.standing import Standing
from crossmatch.report import plots
from crossmatch.report.tables import results_table

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>crossmatch report</title>
<style>
:root { color-scheme: light; --ink: #1d2733; --soft: #5b6775; --line: #dfe4ea; --accent: #0072b2; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: #fff; max-width: 68rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; } h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; } h3 { font-size: 1rem; margin: 1.6rem 0 .3rem; }
.lead { color: var(--soft); margin: 0 0 1.5rem; } .note { border-left: 3px solid var(--accent); padding: .15rem .8rem; margin: .5rem 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem; text-align: right; white-space: nowrap; } .stub { text-align: left; }
thead th { border-bottom: 1px solid var(--line); font-weight: 600; } tbody tr.first td { border-top: 1px solid var(--line); }
figure { margin: .5rem 0 1.5rem; } figure svg { width: 100%; height: auto; } figcaption { color: var(--soft); }
details { margin: 1rem 0; } code { font-size: 12px; word-break: break-all; } li { margin: .15rem 0; }
</style></head><body>
<h1>What the models really matched</h1>
<p class="lead">{{ models | join(", ") }} · crossmatch {{ version }} · values ± half of the 95 % interval (bootstrap over images)</p>
{% for section in sections %}
<h2>{{ section.table.title }}</h2>
{% for note in section.findings %}<p class="note">{{ note }}</p>{% endfor %}
<div class="wide"><table><thead>
{% for line in section.table.head %}<tr>{% for text in line %}<th{% if loop.index0 < section.table.stub %} class="stub"{% endif %}>{{ text }}</th>{% endfor %}</tr>
{% endfor %}</thead><tbody>
{% for line in section.table.rows %}<tr{% if line[0] %} class="first"{% endif %}>{% for text in line %}<td{% if loop.index0 < section.table.stub %} class="stub"{% endif %}>{{ text }}</td>{% endfor %}</tr>
{% endfor %}</tbody></table></div>
{% for title, about, svg in section.figures %}
<figure><h3>{{ title }}</h3><figcaption>{{ about }}</figcaption>{{ svg | safe }}</figure>
{% endfor %}
<details><summary>Ties, unjudged pairs and signatures</summary>
<ul>{% for note in section.table.notes %}<li>{{ note }}</li>{% endfor %}</ul>
<ul>{% for line in section.signatures %}<li><code>{{ line }}</code></li>{% endfor %}</ul></details>
{% endfor %}
</body></html>
"""
NAMES = {"i2t": "Captions for an image", "t2i": "Images for a caption"}


def write_report(results: Sequence[Result], path: Path) -> Path:
    """Write the page; nothing in it points outside of it."""
    try:
        from jinja2 import Environment
    except ImportError:
        raise MissingDependency("Jinja2", "report") from None
    if not results:
        raise CrossmatchError("a report needs at least one result. Make one: crossmatch run -m MODEL -t TASK")
    page = Environment(autoescape=True).from_string(PAGE)
    sections = [
        {
            "table": table,
            "findings": tuple(dict.fromkeys(note for r in mine for note in r.notes)),
            "figures": _figures(mine),
            "signatures": [*(r.system for r in mine), *dict.fromkeys(row.signature for r in mine for row in r.rows)],
        }
        for table, mine in zip(results_table(results), _by_task(results), strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        page.render(sections=sections, models=list(dict.fromkeys(r.model for r in results)), version=__version__), encoding="utf-8"
    )
    return path


def _by_task(results: Sequence[Result]) -> list[list[Result]]:
    return [[r for r in results if r.task == task] for task in dict.fromkeys(r.task for r in results)]


def _figures(results: list[Result]) -> list[tuple[str, str, str]]:
    parts = dict.fromkeys(name for r in results for name, part in r.parts.items() if isinstance(part.evidence, Standing))
    figures = []
    for direction in dict.fromkeys(name.partition("/")[0] for name in parts):
        title = NAMES.get(direction, direction)
        two = any(name.startswith(f"{direction}/") for name in parts)
        judged = " Open circle: by the original links; full circle: by the truth." if two else ""
        figures.append((f"{title} ({direction})", f"Each metric with its 95 % interval; the grey tick is chance.{judged}",
                        plots.links_against_truth(results, direction)))  # fmt: skip
        dashes = " Dashed: by the original links; solid: by the truth." if two else ""
        figures.append((f"{title}: hits by depth", f"How soon something right turns up.{dashes}", plots.hits_by_depth(results, direction)))
    return figures
