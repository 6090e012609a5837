"""Write docs/reference.md from the tables: metrics, tasks, models and commands.

`make docs` runs it; a test checks that the page is up to date.
"""

from __future__ import annotations

from pathlib import Path

import click

from blocks import wrap_prose
from crossmatch.benchmarks import list_benchmarks
from crossmatch.captions.caption_metric_table import CAPTION_METRICS, format_option
from crossmatch.cli import cli
from crossmatch.metrics.metric_table import FAMILIES
from crossmatch.models import families

HERE = Path(__file__).parent


def reference() -> str:
    metrics = [
        f"| `{m.name}` | {m.label} | {m.shape} | {m.description} | {m.best * m.scale:g} {m.unit} | {m.source} |" for m in FAMILIES
    ]
    captions = [
        f"| {', '.join(f'`{name}`' for name in m.names)} | {m.description} | {m.best:g} | {', '.join(m.needs)} | "
        f"{' '.join(f'`+{key}={format_option(value)}`' for key, value in m.options)} | {m.source} |"
        for m in CAPTION_METRICS
    ]
    tasks = [
        f"| `{b.name}` | {b.description} | {', '.join(b.directions)} | {', '.join(b.metrics)} | "
        f"{' '.join(f'`+{key}={value}`' for key, value in b.options.items())} | {b.licence} |"
        for b in list_benchmarks().values()
    ]
    models = [f"| `{f.name}{':' + f.argument if f.argument else ''}` | {f.abilities} | {f.about} |" for f in families().values()]
    page = "\n".join(
        [
            "# Reference",
            "All metrics, tasks, models and commands. `docs/make_reference.py` writes this page from the code.",
            "\n## Metrics",
            "`@k` accepts any k. Sources are keys of `references.bib`. Chance depends on the data; every result shows it.\n",
            "| name | shown as | shape | about | best | source |\n|---|---|---|---|---|---|",
            *metrics,
            "\n## Caption metrics",
            "Options follow the name, as in `cider-d+sigma=4`; the table shows their defaults. The name of a family, such as `bleu`, "
            "means all of its metrics. Document frequencies are optional ([captions](captions.md#document-frequencies)).\n",
            "| names | about | best | needs | options | source |\n|---|---|---|---|---|---|",
            *captions,
            "\n## Tasks",
            "Options follow the name, as in `cxc+split=val`; the table shows their defaults. `invalid=drop` leaves out items that the "
            "ECCV paper calls invalid ([decision 11](decisions/0011-eccv-caption-as-published.md)). "
            "[Decision 13](decisions/0013-cxc-conventions.md) explains `cocaptions` and `query`. `collection:FOLDER` and "
            "`trials:FILE` are tasks too.\n",
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
    return wrap_prose(page)


def command_pages(command: click.Command, name: str) -> list[str]:
    """The help texts of a command and of its subcommands."""
    names = cli.context_settings["help_option_names"]
    context = click.Context(command, info_name=name, max_content_width=110, terminal_width=110, help_option_names=names)
    pages = [command.get_help(context)]
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            subcommand = command.get_command(context, sub)
            assert subcommand is not None
            pages += command_pages(subcommand, f"{name} {sub}")
    return pages


if __name__ == "__main__":
    (HERE / "reference.md").write_text(reference(), encoding="utf-8")
