"""Statements sent straight to the driver say what SQLAlchemy would have said, on both databases."""

import threading
import time
from contextlib import nullcontext

import psycopg
import pytest
from sqlalchemy import Text, cast, insert, select
from sqlalchemy.exc import DBAPIError

from crossmatch.study import queries
from crossmatch.study.assign import Nothing, claim_and_load, claim_hit, keep_draft, submit
from crossmatch.study.schema import event, head, item, member, person
from crossmatch.study.straight import ask, ask_all, write_all, write_rows
from crossmatch.study.verify import verify
from study_lab import a_study, answers_to, book, database_of, in_parallel, new_campaign, row_of, someone


@pytest.fixture
def begun(campaign):
    """Somebody has a HIT with a draft; what every question of `queries` needs to know."""
    study = a_study(campaign, golden=2)
    who = someone(campaign, study, "anna")
    mine = claim_hit(campaign, study, who)
    keep_draft(campaign, mine, who, 1, [{"match": "yes"}, None])
    given = {"its_person": who, "its_study": study, "its_claim": mine, "its_name": "eccv-hit", "its_sessions": 0}
    given["its_hit"] = row_of(campaign, mine).hit
    return campaign, given | {"its_now": campaign.now(), "its_limit": queries.NO_LIMIT}


QUESTIONS = (
    "FIND_PERSON",
    "FIND_STUDY",
    "FIND_NUMBER",
    "BEGUN",
    "LOAD_CLAIM",
    "LOAD_ITEMS",
    "FIND_CLAIM",
    "LAST_EVENT",
    "FREE_AFTER_QUIZ",
)


@pytest.mark.parametrize("name", QUESTIONS)
def test_rows_are_as_by_sqlalchemy(begun, name):
    campaign, given = begun
    statement = getattr(queries, name)
    with campaign.reading() as connection:
        needed = {key: value for key, value in given.items() if key in statement.compile().params}
        slow = connection.execute(statement, needed).all()
        fast = ask(connection, statement, given).rows
        (again,) = ask_all(connection, (statement, given))
    assert [tuple(row) for row in fast] == [tuple(row) for row in slow] == [tuple(row) for row in again.rows]
    assert [[type(value) for value in row] for row in fast] == [[type(value) for value in row] for row in slow]
    if name != "FREE_AFTER_QUIZ":  # it has no name
        assert all(row._asdict() == dict(other._mapping) for row, other in zip(fast, slow, strict=True))
    assert fast


def test_what_is_asked_next_sees_what_was_written(begun):
    """By the driver, and by SQLAlchemy."""
    campaign, given = begun
    who = given["its_person"]
    with campaign.writing() as connection:
        write_all(
            connection,
            (queries.COUNT_SUBMITTED, given),
            (queries.DROP_DRAFT, given),
            (queries.BAR_DONE, {"its_person": who, "its_hit": 1}),
            (queries.KEEP_SLOT, {"its_slot": -1, "its_claim": given["its_claim"], "its_lease": 1.0}),
            changing=(1, 1, 1, 0),
        )
        assert ask(connection, queries.LOAD_CLAIM, given).first.draft is None
        write_all(connection, (queries.COUNT_SUBMITTED, given))
        assert connection.execute(select(member.c.submitted).where(member.c.person == who)).scalar_one() == 2
        write_all(connection, (queries.COUNT_SUBMITTED, given))  # by nothing but the end of the transaction
    with campaign.reading() as connection:
        assert connection.execute(select(member.c.submitted).where(member.c.person == who)).scalar_one() == 3


def test_what_changes_other_rows_than_expected_undoes_all(begun):
    campaign, given = begun

    def fail():
        with campaign.writing() as connection:
            other = {"its_slot": -1, "its_claim": given["its_claim"], "its_lease": 1.0}
            write_all(connection, (queries.COUNT_SUBMITTED, given), (queries.KEEP_SLOT, other), changing=(1, 1))

    with pytest.raises(RuntimeError, match=r"\[1, 0\] rows changed .* \[1, 1\] were expected"):
        fail()
    with campaign.reading() as connection:
        assert connection.execute(select(member.c.submitted).where(member.c.person == given["its_person"])).scalar_one() == 0


def test_what_was_to_be_sent_in_a_transaction_that_failed_is_not_sent_in_the_next(begun):
    campaign, given = begun

    def fail():
        with campaign.writing() as connection:
            write_all(connection, (queries.COUNT_SUBMITTED, given))
            raise OSError("an accident")

    with pytest.raises(OSError, match="an accident"):
        fail()
    with campaign.writing() as connection:
        assert connection.execute(select(member.c.submitted).where(member.c.person == given["its_person"])).scalar_one() == 0


def test_one_statement_has_one_value_for_each_name(begun):
    """On SQLite they are run one by one, each with its own."""
    campaign, given = begun
    other = {**given, "its_claim": "f" * 32}
    alone = campaign.engine.dialect.name == "sqlite"
    with campaign.writing() as connection, nullcontext() if alone else pytest.raises(ValueError, match="stand in one statement"):
        write_all(connection, (queries.DROP_DRAFT, given), (queries.DROP_DRAFT, other), changing=(1, 0))


def test_what_fails_within_many_leaves_nothing(begun):
    campaign, given = begun
    twice = {"its_person": given["its_person"], "its_hit": 1}

    def fail():
        with campaign.writing() as connection:
            write_all(connection, (queries.COUNT_SUBMITTED, given), (queries.BAR_DONE, twice))
            write_all(connection, (queries.BAR_DONE, twice))

    with pytest.raises(Exception, match=r"(?i)unique|constraint"):
        fail()
    with campaign.reading() as connection:
        assert connection.execute(select(member.c.submitted).where(member.c.person == given["its_person"])).scalar_one() == 0
        last = connection.execute(select(head.c.number)).scalar_one()
        assert connection.execute(select(event.c.number).order_by(event.c.number.desc())).scalars().first() == last
        assert connection.execute(select(person.c.key)).scalars().all() == ["anna"]


def test_many_rows_are_as_by_sqlalchemy(campaign):
    """Lists, nothing at all, and signs that a copy could take for its own."""
    study = a_study(campaign)
    odd = 'a\tb\\n\\N "c" \N{SNOWMAN}'
    gold = ({"match": ["yes"]}, None)
    rows = [
        {
            "id": 900 + n,
            "study": study,
            "key": f"{odd}{n}",
            "images": [],
            "captions": [odd],
            "block": "",
            "gold": one,
            "body": {"x": odd},
        }
        for n, one in enumerate(gold)
    ]
    with campaign.writing() as connection:
        write_rows(connection, item, rows)
        write_rows(connection, item, [])
        connection.execute(insert(item), [{**row, "id": row["id"] + 50, "key": f"slow {row['id']}"} for row in rows])
    asked = select(item.c.images, item.c.captions, item.c.block, item.c.example, item.c.gold, cast(item.c.gold, Text), item.c.body)
    with campaign.reading() as connection:
        fast, slow = (connection.execute(asked.where(item.c.id.between(n, n + 49)).order_by(item.c.id)).all() for n in (900, 950))
        assert connection.execute(select(item.c.key).where(item.c.id == 901)).scalar_one() == f"{odd}1"
    assert fast == slow
    assert len(fast) == 2


def test_a_server_that_ends_connections_loses_and_doubles_nothing(request, tmp_path):
    """Amid statements that were sent together, amid transactions of several, at their end: whoever tries again goes on."""
    with new_campaign(tmp_path / "campaign", database_of("postgresql", request)) as campaign:
        study = a_study(campaign, "recipe.batch=1", "recipe.people=2", items=20)
        people, told = [someone(campaign, study) for _ in range(4)], []
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"

        def storm():
            with psycopg.connect(request.getfixturevalue("postgres_url"), autocommit=True) as other:
                for _ in range(40):
                    time.sleep(0.03)
                    other.execute(end)

        def labour(who):
            while True:
                try:
                    held = claim_and_load(campaign, study, who)
                    submit(campaign, held.claim, who, answers_to(held))
                    told.append(held.claim)
                except Nothing:
                    return
                except (DBAPIError, psycopg.Error):
                    time.sleep(0.01)

        ended = threading.Thread(target=storm)
        ended.start()
        made = in_parallel([lambda who=who: labour(who) for who in people])
        ended.join()
        assert made == [None] * 4
        assert campaign.engine.pool.checkedout() == 0
        campaign.engine.dispose()  # some connections were ended just now, and nobody has noticed
        assert {*told} <= {*book(campaign, study).answers}
        assert len(book(campaign, study).answers) == 40
        assert verify(campaign)[0].answers == 40
