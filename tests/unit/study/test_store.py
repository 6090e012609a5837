"""Campaigns: a folder that only its owner can read, a secret, and a database that does not forget."""

import os
import stat
import subprocess
import sys
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import insert, select, text

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.study import people
from crossmatch.study.begin import NewItem, create_study
from crossmatch.study.design import load_design
from crossmatch.study.schema import person
from crossmatch.study.store import create, described, open_campaign
from crossmatch.study.verify import verify
from study_lab import Clock, a_study, database_of, new_campaign, someone, work


def test_a_campaign_is_opened_again_as_it_was(campaign):
    study_id = a_study(campaign)
    work(campaign, study_id, someone(campaign, study_id))
    again = open_campaign(campaign.folder)
    try:
        assert again.secret == campaign.secret
        assert verify(again) == verify(campaign)
    finally:
        again.close()


def test_nobody_else_can_read_the_folder_of_a_campaign(tmp_path):
    before = os.umask(0)
    try:
        with new_campaign(tmp_path / "c") as made:
            a_study(made)
            assert stat.S_IMODE(made.folder.stat().st_mode) & 0o077 == 0
            for name in ("secret", "campaign.toml"):
                assert stat.S_IMODE((made.folder / name).stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_every_campaign_has_a_secret_of_its_own(tmp_path):
    with new_campaign(tmp_path / "a") as one, new_campaign(tmp_path / "b") as other:
        assert len(one.secret) == 32
        assert one.secret != other.secret


def test_making_a_campaign_again_opens_it(tmp_path):
    with new_campaign(tmp_path / "c") as made:
        a_study(made)
        again = create(tmp_path / "c")
        assert again.secret == made.secret
        again.close()


@pytest.mark.parametrize("database", ["mysql://a/b", "sqlite:///x", "postgres", "postgresql+asyncpg://a/b"])
def test_only_postgresql_is_another_database(tmp_path, database):
    with pytest.raises(WrongWords, match="no PostgreSQL URL"):
        create(tmp_path / "c", database)


def test_a_campaign_keeps_its_database(tmp_path):
    with new_campaign(tmp_path / "c"), pytest.raises(WrongWords, match="has another database already"):
        create(tmp_path / "c", "postgresql://nobody@127.0.0.1:1/none")


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(WrongWords, match="is there and is no campaign"):
        create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


KILLED = (
    "import os, sys; from pathlib import Path; from crossmatch.study import store; real = getattr(store, sys.argv[2])\n"
    "def dies(*given, **more):\n"
    "    if sys.argv[2] == 'connect' or given[0].name == store.DESCRIPTION: os.kill(os.getpid(), 9)\n"
    "    return real(*given, **more)\n"
    "setattr(store, sys.argv[2], dies); store.create(Path(sys.argv[1]), sys.argv[3])"
)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("place", ["connect", "whole_file"])
def test_what_a_killed_process_has_begun_is_begun_anew(request, tmp_path, place, kind):
    """It is killed before the database is there, or before the description is."""
    folder, database = tmp_path / "c", database_of(kind, request)
    assert subprocess.run([sys.executable, "-c", KILLED, str(folder), place, database], check=False).returncode == -9
    assert (folder / "secret").exists()
    assert not (folder / "campaign.toml").exists()
    create(folder, database).close()
    with closing(open_campaign(folder)) as made:
        a_study(made)


@pytest.mark.parametrize("whose", ["another's", "its own, with a person in it"])
def test_a_database_with_a_campaign_is_not_taken_for_one_that_was_begun(request, tmp_path, whose):
    folder, database = tmp_path / "c", database_of("postgresql", request)
    with new_campaign(tmp_path / "there", database) as there:
        people.invite(there, "anna")
    if whose == "another's":
        subprocess.run([sys.executable, "-c", KILLED, str(folder), "connect", database], check=False)
    else:  # a campaign of captions that has lost its description
        folder = tmp_path / "there"
        (folder / "campaign.toml").unlink()
    held = (folder / "secret").read_text()
    with pytest.raises(WrongWords, match="holds a campaign already"):
        create(folder, database)
    assert (folder / "secret").read_text() == held
    assert not (folder / "campaign.toml").exists()


def test_a_folder_that_only_looks_begun_is_left_alone(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "mine.jpg").write_bytes(b"x")
    (tmp_path / "secret").write_text("diary")
    with pytest.raises(WrongWords, match="is there and is no campaign"):
        create(tmp_path)
    assert (tmp_path / "secret").read_text() == "diary"


@pytest.mark.parametrize("what", ["study", "person", "no database"])
def test_a_campaign_that_lost_its_description_is_not_begun_anew(tmp_path, what):
    """A study of captions has no pictures, so that its folder looks like one that was just begun."""
    with new_campaign(tmp_path / "c") as made:
        if what == "study":
            create_study(made, load_design("sts", []), [NewItem("a", (), ("one", "another"))])
        elif what == "person":
            people.invite(made, "anna")
    if what == "no database":
        (tmp_path / "c" / "campaign.db").write_text("somebody's own" * 99)
    held = (tmp_path / "c" / "campaign.toml").read_text()
    (tmp_path / "c" / "campaign.toml").unlink()
    with pytest.raises(WrongWords, match="is there and is no campaign"):
        create(tmp_path / "c")
    if what == "study":
        (tmp_path / "c" / "campaign.toml").write_text(held)
        again = open_campaign(tmp_path / "c")
        assert verify(again)
        again.close()


def test_what_is_no_campaign_says_how_to_make_one(tmp_path):
    with pytest.raises(WrongWords, match="crossmatch study new"):
        open_campaign(tmp_path)


@pytest.mark.parametrize(
    ("name", "held", "says"),
    [
        ("campaign.toml", "format = 9", "has format 9"),
        ("campaign.toml", "x", "cannot be read"),
        ("secret", "zz", "the secret of"),
        ("secret", "", "the secret of"),
    ],
)
def test_a_damaged_campaign_says_what_is_damaged(tmp_path, name, held, says):
    with new_campaign(tmp_path / "c") as made:
        (made.folder / name).write_text(held)
        with pytest.raises(CrossmatchError, match=says):
            open_campaign(made.folder)


@pytest.mark.parametrize("port", [1, 99999])
def test_a_database_that_is_not_there_leaves_nothing_and_tells_no_password(tmp_path, port):
    with pytest.raises(CrossmatchError, match=r"cannot be (used|read)") as told:
        create(tmp_path / "c", f"postgresql://me:hunter2@127.0.0.1:{port}/none")
    assert "hunter2" not in str(told.value)
    with new_campaign(tmp_path / "c") as made:  # one can begin again in the same folder
        a_study(made)


def test_a_database_holds_one_campaign(tmp_path, request):
    database = database_of("postgresql", request)
    with new_campaign(tmp_path / "a", database), pytest.raises(WrongWords, match="holds a campaign already"):
        create(tmp_path / "b", database)


def test_full_durability(campaign):
    with campaign.reading() as connection:
        if campaign.engine.dialect.name == "sqlite":
            told = [connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous", "foreign_keys")]
            assert told == ["wal", 2, 1]
        else:
            assert connection.execute(text("SHOW fsync")).scalar() == "on"
            assert connection.execute(text("SHOW transaction_isolation")).scalar() == "repeatable read"


def test_a_reader_sees_one_state(campaign):
    a_study(campaign)
    with campaign.reading() as connection:
        before = connection.execute(select(person)).all()
        with campaign.writing() as other:
            other.execute(insert(person).values(key="new", role="annotator", at=1.0))
        assert connection.execute(select(person)).all() == before
    with campaign.reading() as connection:
        assert len(connection.execute(select(person)).all()) == len(before) + 1


def test_a_transaction_that_fails_leaves_nothing(campaign):
    def fail():
        with campaign.writing() as connection:
            connection.execute(insert(person).values(key="new", role="annotator", at=1.0))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with campaign.reading() as connection:
        assert connection.execute(select(person)).all() == []


def test_the_url_of_the_database_is_kept(campaign):
    assert described(campaign.folder).startswith("postgresql" if campaign.engine.dialect.name == "postgresql" else "")
    assert isinstance(campaign.now, Clock)


def test_connections_that_the_server_has_closed_are_replaced(request, tmp_path, monkeypatch):
    """As after a restart of PostgreSQL: those that were idle are tried first, and nobody sees an error."""
    monkeypatch.setattr("crossmatch.study.store.IDLE_S", -1.0)
    with new_campaign(tmp_path / "campaign", database_of("postgresql", request)) as campaign:
        study = a_study(campaign)
        with psycopg.connect(request.getfixturevalue("postgres_url"), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        for opened in (campaign.asking, campaign.reading, campaign.writing):
            with opened() as connection:
                assert connection.execute(text("SELECT count(*) FROM study")).scalar_one() == study
