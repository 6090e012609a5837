"""The folders that commands write to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click


class Folder(click.Path):
    """A path of a folder; an empty one, which would be the folder that one is in, is refused."""

    def convert(self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not os.fspath(value):
            self.fail("it is empty. Name a folder, or . for the one that you are in.", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = Folder(path_type=Path)
