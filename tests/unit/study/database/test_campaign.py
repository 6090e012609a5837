"""Campaigns: a folder that only its owner can read, a secret, and a database that does not forget."""

import os
import signal
import stat
import subprocess
import sys
import threading
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import event as happening
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.assignment import people
from crossmatch.study.database.campaign import DATABASE_FILE, create_campaign, open_campaign, read_database_url
from crossmatch.study.database.schema import person
from crossmatch.study.database.verification import verify
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.new_items import NewItem
from polling import LIMIT, wait_until
from study_lab import Clock, add_annotator, add_small_study, database_of, in_order, in_parallel, new_campaign, submit_hit
from study_web import open_browser


def test_a_campaign_is_opened_again_as_it_was(campaign):
    study_id = add_small_study(campaign)
    submit_hit(campaign, study_id, add_annotator(campaign, study_id))
    again = open_campaign(campaign.folder)
    try:
        assert again.secret == campaign.secret
        assert verify(again) == verify(campaign)
    finally:
        again.close()


def test_campaign_folder_is_private(tmp_path):
    before = os.umask(0)
    try:
        with new_campaign(tmp_path / "c") as campaign:
            add_small_study(campaign)
            assert stat.S_IMODE(campaign.folder.stat().st_mode) & 0o077 == 0
            for name in ("secret", "campaign.toml"):
                assert stat.S_IMODE((campaign.folder / name).stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_campaigns_have_different_secrets(tmp_path):
    with new_campaign(tmp_path / "a") as campaign, new_campaign(tmp_path / "b") as other:
        assert len(campaign.secret) == 32
        assert campaign.secret != other.secret


def test_creating_an_existing_campaign_opens_it(tmp_path):
    with new_campaign(tmp_path / "c") as campaign:
        add_small_study(campaign)
        again = create_campaign(tmp_path / "c")
        assert again.secret == campaign.secret
        again.close()


@pytest.mark.parametrize("database", ["mysql://a/b", "sqlite:///x", "postgres", "postgresql+asyncpg://a/b"])
def test_only_postgresql_urls_are_accepted(tmp_path, database):
    with pytest.raises(UsageError, match="not a PostgreSQL URL"):
        create_campaign(tmp_path / "c", database)


def test_a_campaign_keeps_its_database(tmp_path):
    with new_campaign(tmp_path / "c"), pytest.raises(UsageError, match="already uses another database"):
        create_campaign(tmp_path / "c", "postgresql://nobody@127.0.0.1:1/none")


def test_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="exists and is not a campaign"):
        create_campaign(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


KILLED = (
    "import os, sys; from pathlib import Path; from crossmatch.study.database import campaign as module\n"
    "real = getattr(module, sys.argv[2])\n"
    "def dies(*given, **more):\n"
    "    if sys.argv[2] == 'create_engine_for' or given[0].name == module.CAMPAIGN_FILE: os.kill(os.getpid(), 9)\n"
    "    return real(*given, **more)\n"
    "setattr(module, sys.argv[2], dies); module.create_campaign(Path(sys.argv[1]), sys.argv[3])"
)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("place", ["create_engine_for", "atomic_write"])
def test_interrupted_creation_is_completed(request, tmp_path, place, kind):
    """It is killed before the database is there, or before the description is."""
    folder, database = tmp_path / "c", database_of(kind, request)
    assert subprocess.run([sys.executable, "-c", KILLED, str(folder), place, database], check=False).returncode == -9
    assert (folder / "secret").exists()
    assert not (folder / "campaign.toml").exists()
    create_campaign(folder, database).close()
    with closing(open_campaign(folder)) as campaign:
        add_small_study(campaign)


@pytest.mark.postgres
@pytest.mark.parametrize("whose", ["another's", "its own, with a person in it"])
def test_database_with_a_campaign_is_not_overwritten(request, tmp_path, whose):
    folder, database = tmp_path / "c", database_of("postgresql", request)
    with new_campaign(tmp_path / "there", database) as there:
        people.invite(there, "anna")
    if whose == "another's":
        subprocess.run([sys.executable, "-c", KILLED, str(folder), "create_engine_for", database], check=False)
    else:  # a campaign of captions that has lost its description
        folder = tmp_path / "there"
        (folder / "campaign.toml").unlink()
    content = (folder / "secret").read_text()
    with pytest.raises(UsageError, match="already holds a campaign"):
        create_campaign(folder, database)
    assert (folder / "secret").read_text() == content
    assert not (folder / "campaign.toml").exists()


def test_foreign_folder_with_similar_files_is_left_alone(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "mine.jpg").write_bytes(b"x")
    (tmp_path / "secret").write_text("diary")
    with pytest.raises(UsageError, match="exists and is not a campaign"):
        create_campaign(tmp_path)
    assert (tmp_path / "secret").read_text() == "diary"


@pytest.mark.parametrize("what", ["study", "person", "no database"])
def test_campaign_without_its_toml_file_is_not_overwritten(tmp_path, what):
    """A study of captions has no pictures, so that its folder looks like one that was just begun."""
    with new_campaign(tmp_path / "c") as campaign:
        if what == "study":
            create_study(campaign, load_design("sts", []), [NewItem("a", (), ("one", "another"))])
        elif what == "person":
            people.invite(campaign, "anna")
    if what == "no database":
        (tmp_path / "c" / "campaign.db").write_text("somebody's own" * 99)
    content = (tmp_path / "c" / "campaign.toml").read_text()
    (tmp_path / "c" / "campaign.toml").unlink()
    with pytest.raises(UsageError, match="exists and is not a campaign"):
        create_campaign(tmp_path / "c")
    if what == "study":
        (tmp_path / "c" / "campaign.toml").write_text(content)
        again = open_campaign(tmp_path / "c")
        assert verify(again)
        again.close()


def test_missing_campaign_explains_how_to_create_one(tmp_path):
    with pytest.raises(UsageError, match="crossmatch study new"):
        open_campaign(tmp_path)


@pytest.mark.parametrize(
    ("name", "held", "message"),
    [
        ("campaign.toml", "format = 9", "has format 9"),
        ("campaign.toml", "x", "Cannot read"),
        ("secret", "zz", "Cannot read .*secret"),
        ("secret", "", "Cannot read .*secret"),
    ],
)
def test_damaged_campaign_names_the_damaged_file(tmp_path, name, held, message):
    with new_campaign(tmp_path / "c") as campaign:
        (campaign.folder / name).write_text(held)
        with pytest.raises(CrossmatchError, match=message):
            open_campaign(campaign.folder)


@pytest.mark.parametrize("port", [1, 99999])
def test_unreachable_database_leaves_nothing_and_hides_the_password(tmp_path, port):
    with pytest.raises(CrossmatchError, match=r"Cannot (use|read)") as error:
        create_campaign(tmp_path / "c", f"postgresql://me:hunter2@127.0.0.1:{port}/none")
    assert "hunter2" not in str(error.value)
    with new_campaign(tmp_path / "c") as campaign:  # one can begin again in the same folder
        add_small_study(campaign)


@pytest.mark.postgres
def test_a_database_holds_one_campaign(tmp_path, request):
    database = database_of("postgresql", request)
    with new_campaign(tmp_path / "a", database), pytest.raises(UsageError, match="already holds a campaign"):
        create_campaign(tmp_path / "b", database)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_commits_wait_for_the_disk(tmp_path, request, kind):
    with new_campaign(tmp_path / "c", database_of(kind, request)) as campaign, campaign.read_transaction() as connection:
        if kind == "sqlite":
            told = [connection.execute(text(f"PRAGMA {name}")).scalar() for name in ("journal_mode", "synchronous", "foreign_keys")]
            assert told == ["wal", 2, 1]
        else:
            assert connection.execute(text("SHOW fsync")).scalar() == "on"
            assert connection.execute(text("SHOW transaction_isolation")).scalar() == "repeatable read"


def test_a_reader_sees_one_state(campaign):
    add_small_study(campaign)
    with campaign.read_transaction() as connection:
        before = connection.execute(select(person)).all()
        with campaign.write_transaction() as other:
            other.execute(insert(person).values(key="new", role="annotator", at=1.0))
        assert connection.execute(select(person)).all() == before
    with campaign.read_transaction() as connection:
        assert len(connection.execute(select(person)).all()) == len(before) + 1


def test_a_transaction_that_fails_leaves_nothing(campaign):
    def fail():
        with campaign.write_transaction() as connection:
            connection.execute(insert(person).values(key="new", role="annotator", at=1.0))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    with campaign.read_transaction() as connection:
        assert connection.execute(select(person)).all() == []


def test_database_url_is_stored(campaign):
    assert read_database_url(campaign.folder).startswith("postgresql" if campaign.engine.dialect.name == "postgresql" else "")
    assert isinstance(campaign.now, Clock)


@pytest.mark.postgres
def test_connections_that_the_server_has_closed_are_replaced(request, tmp_path):
    """As after a restart of PostgreSQL: those that were idle are tried first, and nobody sees an error."""
    with new_campaign(tmp_path / "campaign", database_of("postgresql", request)) as campaign:
        study = add_small_study(campaign)
        with psycopg.connect(request.getfixturevalue("postgres_url"), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        for opened in (campaign.read_transaction, campaign.write_transaction):
            with opened() as connection:
                assert connection.execute(text("SELECT count(*) FROM study")).scalar_one() == study


# One writer at a time


def add_person(campaign, name, failure=None):
    with campaign.write_transaction() as connection:
        connection.execute(insert(person).values(key=name, role="annotator", at=1.0))
        if failure is not None:
            raise failure
    return name


def names(campaign):
    with campaign.read_transaction() as connection:
        return connection.execute(select(person.c.key).order_by(person.c.id)).scalars().all()


def test_failed_transaction_affects_no_other(campaign):
    refusal, accident = CrossmatchError("not for you"), RuntimeError("an accident")
    failures = {"b": refusal, "d": accident}
    outcomes = in_parallel([lambda name=name: add_person(campaign, name, failures.get(name)) for name in "abcde"])
    assert outcomes == ["a", refusal, "c", accident, "e"]
    assert sorted(names(campaign)) == ["a", "c", "e"]


def test_write_returns_after_the_commit(campaign):
    """Whoever has an answer finds what they wrote, by another connection."""
    assert all(in_parallel([lambda n=n: add_person(campaign, f"p{n}") in names(campaign) for n in range(16)]))


def test_failed_commit_raises(campaign):
    def broken(_):
        raise OSError("no space left on device")

    happening.listen(campaign.engine, "commit", broken)
    outcomes = in_parallel([lambda name=name: add_person(campaign, name) for name in "ab"])
    assert [str(one) for one in outcomes] == ["no space left on device"] * 2
    happening.remove(campaign.engine, "commit", broken)
    assert add_person(campaign, "c")  # and work goes on
    assert names(campaign) == ["c"]


def test_writers_are_served_in_the_order_in_which_they_came(small):
    served = []
    in_order(small, [lambda n=n: served.append(add_person(small, f"p{n}")) for n in range(8)])
    assert served == names(small) == [f"p{n}" for n in range(8)]


def test_interrupted_waiter_does_not_block_the_lock(small):
    main, lock = threading.main_thread().ident, small.write_lock

    def interrupt_when_waiting():
        wait_until(lambda: lock._waiting)
        signal.pthread_kill(main, signal.SIGINT)

    with lock:
        threading.Thread(target=interrupt_when_waiting, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            small.write_lock.__enter__()
    done = []
    other = threading.Thread(target=lambda: done.append(add_person(small, "other")), daemon=True)
    other.start()
    other.join(LIMIT)
    assert done == names(small) == ["other"]


# A database that is away


def test_database_that_goes_away_while_serving_is_one_line(small, caplog):
    """And when it is back, the service goes on as if nothing had happened."""
    study_id = add_small_study(small)
    anna = open_browser(small).join(small, study_id, "anna")
    hit = anna.claim()
    small.engine.dispose()
    away = (small.folder / DATABASE_FILE).rename(small.folder / "away")
    (small.folder / DATABASE_FILE).mkdir()
    for _ in range(3):
        response = anna.submit(hit)
        assert response.status_code == 503
        assert "Your answers are not lost" in response.json()["error"]
        assert str(small.folder) not in response.text
    (record,) = caplog.records
    assert record.exc_info is None
    assert "unable to open database file" in record.message
    (small.folder / DATABASE_FILE).rmdir()
    away.rename(small.folder / DATABASE_FILE)
    assert anna.submit(hit).json()["counted"] is True


def test_wrong_statement_is_not_called_a_missing_database(campaign):
    for statement in ("SELECT nothing FROM study", "SELEKT 1"):
        with pytest.raises(DBAPIError), campaign.read_transaction() as connection:
            connection.execute(text(statement))
