"""Write docs/reference.md from the tables: metrics, tasks, models and commands.

`make docs` runs it; a test checks that the page is up to date.
"""

from __future__ import annotations

from pathlib import Path

import click

from crossmatch.benchmarks import benchmarks
from crossmatch.captions.table import CAPTION_METRICS, told
from crossmatch.cli import cli
from crossmatch.metrics.table import FAMILIES
from crossmatch.models import families

HERE = Path(__file__).parent


def reference() -> str:
    metrics = [f"| `{m.name}` | {m.label} | {m.shape} | {m.about} | {m.best * m.scale:g} {m.unit} | {m.source} |" for m in FAMILIES]
    captions = [
        f"| {', '.join(f'`{name}`' for name in m.names)} | {m.about} | {m.best:g} | {', '.join(m.needs)} | "
        f"{' '.join(f'`+{key}={told(value)}`' for key, value in m.options)} | {m.source} |"
        for m in CAPTION_METRICS
    ]
    tasks = [
        f"| `{b.name}` | {b.about} | {', '.join(b.directions)} | {', '.join(b.metrics)} | "
        f"{' '.join(f'`+{key}={value}`' for key, value in b.options.items())} | {b.licence} |"
        for b in benchmarks().values()
    ]
    models = [f"| `{f.name}{':' + f.argument if f.argument else ''}` | {f.abilities} | {f.about} |" for f in families().values()]
    return "\n".join(
        [
            "# Reference",
            "Made from the tables by `docs/make_reference.py`.",
            "\n## Metrics",
            "`@k` takes any k. Sources are keys of `references.bib`. Chance depends on the data and stands beside every result.\n",
            "| name | shown as | shape | about | best | source |\n|---|---|---|---|---|---|",
            *metrics,
            "\n## Caption metrics",
            "Options go with the name, as in `cider-d+sigma=4`; the usual values are shown. The name of a family, such as `bleu`, "
            "stands for all of its numbers. Frequencies are optional; see `captions.md`.\n",
            "| names | about | best | needs | options | source |\n|---|---|---|---|---|---|",
            *captions,
            "\n## Tasks",
            "Options go with the name, as in `cxc+split=val`; the usual values are shown. `invalid=drop` leaves out what the ECCV "
            "paper calls invalid (decision 11), `cocaptions=all` and `query` are explained in decision 13. `collection:FOLDER` "
            "is a task too.\n",
            "| name | about | directions | metrics | options | licence |\n|---|---|---|---|---|---|",
            *tasks,
            "\n## Models",
            "| name | ability | about |\n|---|---|---|",
            *models,
            "\n## Commands",
            *(f"```\n{text}\n```" for text in command_pages(cli, "crossmatch")),
            "",
        ]
    )


def command_pages(command: click.Command, name: str) -> list[str]:
    names = cli.context_settings["help_option_names"]
    context = click.Context(command, info_name=name, max_content_width=110, terminal_width=110, help_option_names=names)
    pages = [command.get_help(context)]
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            pages += command_pages(found, f"{name} {sub}")
    return pages


if __name__ == "__main__":
    (HERE / "reference.md").write_text(reference(), encoding="utf-8")
