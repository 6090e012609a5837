"""Work of several threads in one transaction: it is done in order, fails alone, and is answered once it is on the disk."""

import signal
import threading
import time
from collections import deque

import psycopg
import pytest
from sqlalchemy import event as happening
from sqlalchemy import insert, select

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import assign, queries, together
from crossmatch.study.schema import person
from crossmatch.study.verify import verify
from study_lab import a_study, database_of, in_parallel, new_campaign, row_of, someone


def plain(work):
    """Work that asks nothing first."""

    def steps(connection):
        yield ()
        return work(connection)

    return steps


def put(name, fail=None):
    """Work that writes a person, and perhaps fails afterwards."""

    @plain
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
        self.thread = threading.Thread(target=in_parallel, args=([lambda: campaign.write(plain(self.work))],))

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


def gathered(campaign, jobs, meanwhile=lambda: None):
    """What each job gives if all of them come while another transaction is open."""
    out = []
    with Held(campaign):
        rest = threading.Thread(target=lambda: out.extend(in_parallel([lambda work=work: campaign.write(work) for work in jobs])))
        rest.start()
        while len(campaign.together._waiting) < len(jobs):
            time.sleep(0.001)
        meanwhile()
    rest.join()
    return out


def test_those_who_come_meanwhile_share_a_transaction(campaign, commits):
    made = gathered(campaign, [put(f"p{n}") for n in range(12)])
    assert len(set(made)) == 12
    assert sorted(names(campaign)) == sorted(f"p{n}" for n in range(12))
    assert len(commits) == 2  # the one that held all up, and the one of all


def test_those_who_share_a_transaction_ask_before_anybody_goes_on(campaign):
    """On PostgreSQL, which is waited for once; on SQLite one after another."""
    seen = []

    def work(n):
        def steps(connection):
            seen.append(("asks", n))
            (said,) = yield ((queries.FIND_NUMBER, {"its_name": "nobody's"}),)
            seen.append(("hears", n))
            assert said.rows == []
            yield ()  # and once more
            return n

        return steps

    assert sorted(gathered(campaign, [work(n) for n in range(5)])) == list(range(5))
    order = [what for what, _ in seen]
    assert order == (["asks", "hears"] * 5 if campaign.engine.dialect.name == "sqlite" else ["asks"] * 5 + ["hears"] * 5)


def test_what_one_person_asks_for_twice_is_done_one_after_another_in_one_transaction(campaign, commits):
    """On PostgreSQL, where those who ask at the same time do not see each other, in waves; for the disk all wait once."""
    asked, done = [], []

    def note(whose, n):
        def steps(_):
            asked.append((whose, n))
            yield ()
            done.append((whose, n))

        return steps

    jobs = [("anna", 0), ("anna", 1), ("ben", 0), (None, 0), ("anna", 2), (None, 1), ("ben", 1)]
    one_after_another(campaign, [lambda w=w, n=n: campaign.write(note(w, n), whose=w) for w, n in jobs])
    waves = [("anna", 0), ("ben", 0), (None, 0), (None, 1)], [("anna", 1), ("ben", 1)], [("anna", 2)]
    assert done == asked == [job for wave in waves for job in wave]
    assert len(commits) == 1 + 1


@pytest.mark.parametrize("first", ["holder", "other"])
def test_of_two_who_want_the_same_hit_at_the_same_moment_one_has_it(campaign, clock, first):
    """A lease has ended; its person comes again, or submits, just as another takes the HIT over."""
    study = a_study(campaign, "recipe.batch=1", "recipe.people=1", items=1)
    holder, other = (someone(campaign, study) for _ in range(2))
    mine = assign.claim_hit(campaign, study, holder)
    clock.wait(24 * 60)
    jobs = {"holder": lambda: assign.claim_hit(campaign, study, holder), "other": lambda: assign.claim_hit(campaign, study, other)}
    out = one_after_another(campaign, [jobs[first], *(job for name, job in jobs.items() if name != first)])
    assert [type(one).__name__ for one in out] == ["str", "Nothing"]
    assert (out[0] == mine) == (first == "holder")
    assert verify(campaign)


@pytest.mark.parametrize("first", ["holder", "other"])
def test_a_late_answer_counts_unless_another_came_before_it(campaign, clock, first):
    study = a_study(campaign, "recipe.batch=1", "recipe.people=1", items=1)
    holder, other = (someone(campaign, study) for _ in range(2))
    mine = assign.claim_hit(campaign, study, holder)
    clock.wait(24 * 60)
    jobs = {
        "holder": lambda: assign.submit(campaign, mine, holder, [{"match": "yes"}]),
        "other": lambda: assign.claim_hit(campaign, study, other),
    }
    out = one_after_another(campaign, [jobs[first], *(job for name, job in jobs.items() if name != first)])
    submitted, claimed = out if first == "holder" else out[::-1]
    assert submitted.late
    assert submitted.counted == (first == "holder")
    assert isinstance(claimed, assign.Nothing if first == "holder" else str)
    assert verify(campaign)[0].answers == (first == "holder")


def test_a_clock_that_steps_between_two_of_a_batch_gives_no_slot_to_both(campaign, clock, monkeypatch):
    """Somebody gets a HIT back that they had lost, and for the next in the batch that lease has ended already."""
    study = a_study(campaign, "recipe.batch=1", "recipe.people=2", items=1)
    first, second, third, fourth = (someone(campaign, study) for _ in range(4))
    mine = assign.claim_hit(campaign, study, first)
    assign.claim_hit(campaign, study, second)
    clock.wait(24 * 60)
    assign.submit(campaign, assign.claim_hit(campaign, study, third), third, [{"match": "yes"}])

    def stepping():
        clock.wait(2 * 60)
        return clock.at

    object.__setattr__(campaign, "now", stepping)
    jobs = [lambda who=who: assign.claim_hit(campaign, study, who) for who in (first, fourth)]
    out = one_after_another(campaign, jobs)
    assert out[0] == mine
    assert verify(campaign)[0].answers == 1


def test_where_the_turn_is_not_to_be_had_nobody_waits_for_all_others(request, tmp_path):
    """Another process has it, and the server lets nobody wait for long: all are told after two waits, not one after another."""
    url = database_of("postgresql", request)
    with new_campaign(tmp_path / "campaign", f"{url}%20-clock_timeout%3D300ms") as campaign, psycopg.connect(url) as other:
        study = a_study(campaign, "recipe.batch=1", items=20)
        people = [someone(campaign, study) for _ in range(8)]
        tried = []
        happening.listen(campaign.engine, "checkout", lambda *_: tried.append(1))
        jobs = [lambda who=who: assign.claim_hit(campaign, study, who) for who in people]
        out = one_after_another(campaign, jobs, lambda: (tried.clear(), other.execute("SELECT pg_advisory_lock(20230701)")))
        assert {type(one).__name__ for one in out} == {"LockNotAvailable"}
        assert len(tried) == 2


def test_events_of_a_batch_follow_each_other(campaign):
    """Claims and submissions in two studies at once: both chains hold."""
    studies = [a_study(campaign, "recipe.batch=1", items=20, name=name) for name in ("one", "two")]
    people = [(study, someone(campaign, study)) for study in studies for _ in range(4)]
    held = one_after_another(campaign, [lambda s=s, p=p: assign.claim_hit(campaign, s, p) for s, p in people])
    jobs = [lambda c=c, p=p: assign.submit(campaign, c, p, [{"match": "yes"}]) for c, (_, p) in zip(held, people, strict=True)]
    jobs += [lambda s=s, p=p: assign.claim_hit(campaign, s, p) for s, p in people]
    assert all(not isinstance(one, Exception) for one in one_after_another(campaign, jobs))
    assert [one.answers for one in verify(campaign)] == [4, 4]


def one_after_another(campaign, jobs, then=lambda: None):
    """What each job gives if they come in this order, all while another transaction is open."""
    out = [None] * len(jobs)

    def run(n):
        out[n] = in_parallel([jobs[n]])[0]

    with Held(campaign):
        threads = [threading.Thread(target=run, args=(n,)) for n in range(len(jobs))]
        for n, each in enumerate(threads):
            each.start()
            while len(campaign.together._waiting) <= n:
                time.sleep(0.001)
        then()
    for each in threads:
        each.join()
    return out


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


def test_who_is_refused_before_anything_is_written_undoes_nobodys_work(campaign):
    refusal = CrossmatchError("not for you")
    made = gathered(campaign, [put("a"), plain(lambda _: together.Refusal(refusal)), put("c")])
    assert made[1] is refusal
    assert sorted(names(campaign)) == ["a", "c"]


def test_who_asks_in_vain_slows_nobody_down(campaign, commits):
    """They claim where they may not, submit what is no answer or another's, keep drafts of nothing: none of it is undone."""
    study = a_study(campaign, "recipe.batch=1", items=20)
    busy, done, idle = (someone(campaign, study) for _ in range(3))
    stranger = someone(campaign, a_study(campaign, name="another"))
    mine = assign.claim_hit(campaign, study, busy)
    jobs = [
        lambda: assign.claim_hit(campaign, study, done),
        lambda: assign.claim_hit(campaign, study, stranger),
        lambda: assign.claim_and_load(campaign, study, idle, sessions=7),
        lambda: assign.submit(campaign, mine, busy, [{"match": "perhaps"}]),
        lambda: assign.submit(campaign, mine, stranger, [{"match": "yes"}]),
        lambda: assign.submit(campaign, mine, busy, [{"match": "yes"}], sessions=7),
        lambda: assign.keep_draft(campaign, mine, stranger, 1, []),
        lambda: assign.keep_draft(campaign, mine, busy, 1, [None]),
    ]
    commits.clear()
    with Held(campaign):
        out = []
        rest = threading.Thread(target=lambda: out.extend(in_parallel(jobs)))
        rest.start()
        while len(campaign.together._waiting) < len(jobs):
            time.sleep(0.001)
    rest.join()
    kinds = [type(one).__name__ for one in out]
    assert kinds == ["str", "Nothing", "Ended", "CrossmatchError", "NotYours", "Ended", "NotYours", "NoneType"]
    assert len(commits) == 1 + 1
    assert [one.answers for one in verify(campaign)] == [0, 0]
    assert row_of(campaign, out[0]).person == done


@pytest.mark.parametrize("times", [1, 99])
def test_where_no_transaction_is_to_be_had_nobody_waits_for_all_others(campaign, times):
    """Once may be a connection that the server has closed. Then each would wait as long as the one before, for nothing."""
    tried = []

    def fail(*_):
        tried.append(1)
        if len(tried) <= times:
            raise OSError("database is locked")

    made = gathered(campaign, [put(f"p{n}") for n in range(9)], lambda: happening.listen(campaign.engine, "checkout", fail))
    if times == 1:
        assert len(set(made)) == 9
    else:
        assert [str(one) for one in made] == ["database is locked"] * 9
        assert len(tried) == 2
    tried += [1] * 99
    assert campaign.write(put("z"))
    assert len(names(campaign)) == (10 if times == 1 else 1)


def test_who_is_done_by_itself_is_told_at_once(small):
    """And not when all others are done, too."""
    told = threading.Event()
    works = [put("a", CrossmatchError("not for you")), put("b"), plain(lambda _: told.wait(10))]
    then = [lambda: None, told.set, lambda: None]
    made = [None] * 3

    def job(n):
        made[n] = in_parallel([lambda: small.write(works[n])])[0]
        then[n]()

    with Held(small):
        jobs = [threading.Thread(target=job, args=(n,)) for n in range(3)]
        for n, each in enumerate(jobs):
            each.start()
            while len(small.together._waiting) <= n:
                time.sleep(0.001)
    for each in jobs:
        each.join()
    assert [type(one) for one in made] == [CrossmatchError, int, bool]
    assert made[2]


def test_whoever_is_interrupted_keeps_nobody_from_leading(small):
    done = []
    with Held(small):
        main = threading.main_thread().ident
        threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            small.write(put("interrupted"))
    other = threading.Thread(target=lambda: done.append(small.write(put("other"))), daemon=True)
    other.start()
    other.join(10)
    assert done
    assert names(small) == ["other"]


def test_who_is_interrupted_while_leading_tells_nobody_that_it_is_done(small):
    made = []

    def others(held):
        while not small.together._waiting:
            time.sleep(0.001)
        rest = threading.Thread(target=lambda: made.extend(in_parallel([lambda n=n: small.write(put(f"p{n}")) for n in range(3)])))
        rest.start()
        while len(small.together._waiting) < 4:
            time.sleep(0.001)
        held.go.set()
        rest.join()

    with Held(small) as held:
        behind = threading.Thread(target=others, args=(held,))
        behind.start()
        with pytest.raises(KeyboardInterrupt):
            small.write(put("interrupted", KeyboardInterrupt()))
    behind.join()
    assert [type(one) for one in made] == [RuntimeError] * 3
    assert names(small) == []
    assert small.write(put("z"))


def test_who_is_interrupted_before_looking_at_the_queue_lets_another_lead(small, monkeypatch):
    """The main thread leads, and Ctrl-C comes as it begins."""

    class Interrupted(deque):
        def popleft(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(small.together, "_waiting", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        small.write(put("interrupted"))
    assert not small.together._waiting
    monkeypatch.setattr(small.together, "_waiting", deque())
    assert small.write(put("z"))
    assert names(small) == ["z"]
