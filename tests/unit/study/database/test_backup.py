"""Copies of a campaign: complete, of one moment, and usable like the original."""

import threading
from contextlib import closing

import pytest
from sqlalchemy import select, text

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.assignment import people
from crossmatch.study.database.backup import backup_campaign
from crossmatch.study.database.campaign import open_campaign
from crossmatch.study.database.schema import metadata
from crossmatch.study.database.verification import verify
from study_lab import add_annotator, add_small_study, submit_hit


def rows_of(campaign):
    """All rows of all tables."""
    with campaign.read_transaction() as connection:
        return {table.name: sorted(map(repr, connection.execute(select(table)))) for table in metadata.sorted_tables}


def is_null(campaign):
    """For each nullable JSON column, the number of rows without a value; a JSON null is a value."""
    with campaign.read_transaction() as connection:
        return connection.execute(text("SELECT count(*) FROM item WHERE gold IS NULL")).scalar_one()


@pytest.fixture
def worked(campaign):
    """A campaign with two studies, in which people have done different things."""
    study_id = add_small_study(campaign, "recipe.people=2", "recipe.quiz=2", items=6, gold_per_kind=4)
    other_id = add_small_study(campaign, name="other")
    people.owner_token(campaign)
    for name in ("anna", "ben"):
        annotator = add_annotator(campaign, study_id, name)
        submit_hit(campaign, study_id, annotator)
        submit_hit(campaign, study_id, annotator, wrong=name == "ben")
    add_annotator(campaign, other_id)
    return campaign


def test_copy_equals_the_campaign_and_verifies(worked, tmp_path):
    token = people.owner_token(worked)
    backup_campaign(worked, tmp_path / "copy")
    with closing(open_campaign(tmp_path / "copy", worked.now)) as copy:
        assert verify(copy) == verify(worked)
        assert rows_of(copy) == rows_of(worked)
        assert is_null(copy) == is_null(worked)
        assert copy.engine.dialect.name == "sqlite"
        assert people.find_by_token(copy, token).role == "owner"  # links stay valid
        assert people.owner_token(copy) == token
        anna = people.find_by_token(copy, people.invite(copy, "anna"))
        submit_hit(copy, 2, add_annotator(copy, 2, "carla"))  # work goes on in the copy
        assert anna.name == "anna"
        verify(copy)
    assert (tmp_path / "copy" / "secret").stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["campaign", "copy"]


def test_copy_is_of_one_moment_while_people_work(campaign, tmp_path):
    study_id = add_small_study(campaign, "recipe.people=40", items=3)
    stop, failures = threading.Event(), []

    def work(n):
        try:
            while not stop.is_set():
                submit_hit(campaign, study_id, add_annotator(campaign, study_id))
        except CrossmatchError as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for worker in workers:
        worker.start()
    copies = []
    try:
        for n in range(4):
            backup_campaign(campaign, tmp_path / f"copy-{n}")
            with closing(open_campaign(tmp_path / f"copy-{n}")) as copy:
                copies += verify(copy)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert [error for error in failures if getattr(error, "reason", "") != "none"] == []  # nobody was in the way
    numbers = [copy.events for copy in copies]
    assert numbers == sorted(numbers)
    assert numbers[-1] <= verify(campaign)[0].events


def test_failed_copy_leaves_nothing(worked, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="exists already"):
        backup_campaign(worked, tmp_path)
    with pytest.raises(UsageError, match="is inside the campaign"):
        backup_campaign(worked, worked.folder / "copy")
    monkeypatch.setattr("crossmatch.study.database.backup._copy_files", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        backup_campaign(worked, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["campaign"]
