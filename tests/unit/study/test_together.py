"""Work of several threads in one transaction: it is done in order, fails alone, and is answered once it is on the disk."""

import threading
import time

import pytest
from sqlalchemy import event as happening
from sqlalchemy import insert, select

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import together
from crossmatch.study.schema import person
from study_lab import in_parallel


def put(name, fail=None):
    """Work that writes a person, and perhaps fails afterwards."""

    def work(connection):
        made = connection.execute(insert(person).values(key=name, role="annotator", at=1.0).returning(person.c.id)).scalar_one()
        if fail is not None:
            raise fail
        return made

    return work


def names(campaign):
    with campaign.reading() as connection:
        return connection.execute(select(person.c.key).order_by(person.c.id)).scalars().all()


@pytest.fixture
def commits(campaign):
    """How many transactions have ended on the disk."""
    seen = []
    happening.listen(campaign.engine, "commit", lambda _: seen.append(1))
    return seen


class Held:
    """Work at which its transaction stands still until it is let go, so that others gather behind it."""

    def __init__(self, campaign):
        self.begun, self.go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=in_parallel, args=([lambda: campaign.write(self.work)],))

    def work(self, _):
        self.begun.set()
        assert self.go.wait(30)

    def __enter__(self):
        self.thread.start()
        assert self.begun.wait(30)
        return self

    def __exit__(self, *_):
        self.go.set()
        self.thread.join()


def gathered(campaign, jobs):
    """What each job gives if all of them come while another transaction is open."""
    out = []
    with Held(campaign):
        rest = threading.Thread(target=lambda: out.extend(in_parallel([lambda work=work: campaign.write(work) for work in jobs])))
        rest.start()
        while len(campaign.together._waiting) < len(jobs):
            time.sleep(0.001)
    rest.join()
    return out


def test_those_who_come_meanwhile_share_a_transaction(campaign, commits):
    made = gathered(campaign, [put(f"p{n}") for n in range(12)])
    assert len(set(made)) == 12
    assert sorted(names(campaign)) == sorted(f"p{n}" for n in range(12))
    assert len(commits) == 2  # the one that held all up, and the one of all


def test_who_fails_fails_alone_and_leaves_nothing(campaign):
    refusal, accident = CrossmatchError("not for you"), RuntimeError("an accident")
    made = gathered(campaign, [put("a"), put("b", refusal), put("c"), put("d", accident), put("e")])
    assert [type(one) for one in made] == [int, CrossmatchError, int, RuntimeError, int]
    assert (made[1], made[3]) == (refusal, accident)
    assert sorted(names(campaign)) == ["a", "c", "e"]


def test_what_the_database_refuses_fails_alone(campaign):
    made = gathered(campaign, [put("same"), put("other"), put("same")])
    assert sorted(names(campaign)) == ["other", "same"]
    assert sum(isinstance(one, int) for one in made) == 2


def test_a_transaction_that_cannot_end_is_nobodys_success(campaign):
    """If nothing reaches the disk, nobody is told that it did."""

    def broken(_):
        raise OSError("no space left on device")

    happening.listen(campaign.engine, "commit", broken)
    made = gathered(campaign, [put("a"), put("b")])
    assert [str(one) for one in made] == ["no space left on device"] * 2
    happening.remove(campaign.engine, "commit", broken)
    assert campaign.write(put("c"))  # and work goes on
    assert names(campaign) == ["c"]


def test_no_more_than_so_many_wait_for_each_other(campaign, commits, monkeypatch):
    monkeypatch.setattr(together, "MOST", 5)
    gathered(campaign, [put(f"p{n}") for n in range(12)])
    assert len(commits) == 1 + 3
    assert len(names(campaign)) == 12


def test_nobody_is_told_before_all_is_on_the_disk(campaign):
    """Whoever has an answer finds what they wrote, by another connection."""

    def written(n):
        campaign.write(put(f"p{n}"))
        return f"p{n}" in names(campaign)

    assert all(in_parallel([lambda n=n: written(n) for n in range(16)]))
