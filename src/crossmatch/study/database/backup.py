"""Copies a campaign while it is served: the database as it was at one moment, with the images and secrets beside it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, Column, Connection, MetaData, Table, Text, cast, insert, select

from crossmatch.data.errors import UsageError
from crossmatch.data.io.atomic_write import TEMPORARY_SUFFIX, atomic_write
from crossmatch.study.assignment.reserved_names import OWNER
from crossmatch.study.database.campaign import (
    IMAGES_FOLDER,
    SECRET_FILE,
    Campaign,
    create_engine_for,
    write_description,
)
from crossmatch.study.database.schema import metadata

BATCH = 5000  # rows


def backup_campaign(campaign: Campaign, folder: Path) -> None:
    """Copy a campaign to a new folder that every command opens, with all its links and sessions.

    The database is read in one transaction, which blocks no writer. The copy has an SQLite database, also if the campaign has a
    PostgreSQL database. A copy that was interrupted leaves no folder with this name.

    Args:
        campaign: The campaign; it may be served meanwhile.
        folder: Where to write. It must not exist.

    Raises:
        UsageError: The folder exists, or is inside the campaign.

    >>> from crossmatch.study import create_campaign, list_studies, open_campaign
    >>> campaign = create_campaign(folder / "campaign")
    >>> backup_campaign(campaign, folder / "copy")
    >>> copy = open_campaign(folder / "copy")
    >>> list_studies(copy) == list_studies(campaign)
    True
    >>> copy.close(); campaign.close()
    """
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} exists already. Choose another place for the copy.")
    if folder.resolve().is_relative_to(campaign.folder.resolve()):
        raise UsageError(f"{folder} is inside the campaign {campaign.folder}. Choose a place outside it.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    temporary.mkdir(mode=0o700)
    try:
        _copy_database(campaign, temporary)
        _copy_files(campaign.folder, temporary)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _copy_database(campaign: Campaign, folder: Path) -> None:
    copy = Campaign(folder, create_engine_for(folder, ""), campaign.secret, campaign.now)
    try:
        with campaign.read_transaction() as source, copy.write_transaction() as target:
            metadata.create_all(target)
            for table in metadata.sorted_tables:
                _copy_rows(source, target, table)
    finally:
        copy.close()


def _copy_rows(source: Connection, target: Connection, table: Table) -> None:
    """Copy a table. JSON is copied as text, so that a missing value and a JSON null stay different."""
    as_text = {column.name: cast(column, Text).label(column.name) for column in table.columns if isinstance(column.type, JSON)}
    plain = Table(table.name, MetaData(), *(Column(c.name, Text if c.name in as_text else c.type) for c in table.columns))
    query = select(*(as_text.get(column.name, column) for column in table.columns))
    with source.execute(query, execution_options={"yield_per": BATCH}) as rows:
        for batch in rows.mappings().partitions():
            values: list[Mapping[str, Any]] = [dict(row) for row in batch]
            target.execute(insert(plain), values)


def _copy_files(source: Path, folder: Path) -> None:
    """Copy images and secrets. Images are never changed or deleted, so those of the copied rows are all there."""
    images = folder / IMAGES_FOLDER
    shutil.copytree(source / IMAGES_FOLDER, images, ignore=shutil.ignore_patterns(f"*{TEMPORARY_SUFFIX}"))
    for name in (SECRET_FILE, OWNER):
        if (source / name).exists():
            with atomic_write(folder / name, durable=True, private=True) as file:
                file.write((source / name).read_bytes())
    write_description(folder, "")
