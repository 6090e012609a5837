"""Claims: who gets what, for how long, and why not."""

import threading

import psycopg
import pytest
from sqlalchemy import func, select, update

from crossmatch.study.assignment import people
from crossmatch.study.assignment.claims import MAX_LEASES, NoHitAvailableError, claim_and_load, claim_hit, save_draft, submit
from crossmatch.study.assignment.displayed_hits import NotFoundError
from crossmatch.study.assignment.review import ReviewConflictError, review, set_open
from crossmatch.study.database.campaign import DatabaseUnavailableError
from crossmatch.study.database.schema import barred, claim, event, member, slot
from crossmatch.study.database.verification import verify
from polling import wait_until
from study_lab import (
    WITH_GOLD,
    add_annotator,
    add_small_study,
    answers_to,
    claim_row,
    database_of,
    hit_of,
    in_order,
    in_parallel,
    new_campaign,
    read_submissions,
    refusal_reason,
    submit_hit,
)


def state_of(campaign, claim_id):
    with campaign.read_transaction() as connection:
        return connection.execute(select(slot).where(slot.c.id == claim_row(campaign, claim_id).slot)).one()


# Getting a HIT


def test_person_gets_no_hit_twice(campaign):
    study = add_small_study(campaign, items=7)
    anna = add_annotator(campaign, study)
    hits = [claim_row(campaign, submit_hit(campaign, study, anna)).hit for _ in range(3)]
    assert len(set(hits)) == 3
    assert refusal_reason(campaign, study, anna) == "none"
    verify(campaign)


def test_unfinished_hit_is_returned_in_the_same_order(campaign, clock):
    study = add_small_study(campaign, gold_per_kind=2)
    anna = add_annotator(campaign, study)
    first = claim_hit(campaign, study, anna)
    before = [(item.item_id, item.orders) for item in hit_of(campaign, first).items]
    clock.wait(59)
    assert claim_hit(campaign, study, anna) == first
    assert [(item.item_id, item.orders) for item in hit_of(campaign, first).items] == before
    assert state_of(campaign, first).lease == clock() + 3600  # kept for another hour from now on


def test_expired_hit_can_be_reopened_by_its_person(campaign, clock):
    study = add_small_study(campaign)
    anna = add_annotator(campaign, study)
    first = claim_hit(campaign, study, anna)
    clock.wait(1000)
    assert claim_hit(campaign, study, anna) == first


def test_held_hit_is_not_assigned_before_its_lease_ends(campaign, clock):
    study = add_small_study(campaign, items=3)
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    claim_hit(campaign, study, anna)
    clock.wait(60)  # to the very second
    assert refusal_reason(campaign, study, ben) == "none"


def test_hit_with_an_ended_lease_goes_to_the_next_person(campaign, clock):
    study = add_small_study(campaign, items=3)
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    first = claim_hit(campaign, study, anna)
    clock.wait(60.1)
    second = claim_hit(campaign, study, ben)
    assert second != first
    assert state_of(campaign, second).person == ben
    assert refusal_reason(campaign, study, anna) == "none"
    verify(campaign)


def test_late_answers_count_if_the_hit_was_not_taken_over(campaign, clock):
    study = add_small_study(campaign, items=3)
    anna = add_annotator(campaign, study)
    mine = claim_hit(campaign, study, anna)
    clock.wait(61)
    receipt = submit(campaign, mine, anna, answers_to(hit_of(campaign, mine)))
    assert (receipt.is_late, receipt.is_counted, receipt.is_repeat) == (True, True, False)
    assert state_of(campaign, mine).state == "done"
    verify(campaign)


def test_late_answers_are_stored_but_do_not_count_after_reassignment(campaign, clock):
    study = add_small_study(campaign, items=3)
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    first = claim_hit(campaign, study, anna)
    clock.wait(61)
    second = claim_hit(campaign, study, ben)
    receipt = submit(campaign, first, anna, answers_to(hit_of(campaign, first), "no"))
    assert (receipt.is_late, receipt.is_counted) == (True, False)
    assert read_submissions(campaign, study).answers[first] == [{"match": "no"}] * 3
    receipt = submit(campaign, second, ben, answers_to(hit_of(campaign, second)))
    assert (receipt.is_late, receipt.is_counted) == (False, True)
    assert verify(campaign)[0].answers == 3


def test_regained_hit_keeps_its_first_claim(campaign, clock):
    """Else a page that was still open could be submitted beside the new one, and the person would have answered twice."""
    study = add_small_study(campaign, "recipe.people=2", items=3)
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    first = claim_hit(campaign, study, anna)
    save_draft(campaign, first, anna, 1, [{"match": "no"}])
    clock.wait(61)
    claim_hit(campaign, study, ben)  # takes it over
    assert claim_hit(campaign, study, anna) == first  # the other slot of the same HIT
    assert state_of(campaign, first).person == anna
    assert submit(campaign, first, anna, answers_to(hit_of(campaign, first))).is_counted
    assert refusal_reason(campaign, study, anna) == "none"
    assert list(read_submissions(campaign, study).answers) == [first]
    verify(campaign)


def test_hit_that_changes_hands_is_answered_once_by_each_person(campaign, clock):
    study = add_small_study(campaign, items=3)
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    claims = []
    for _ in range(3):
        for who in (anna, ben):
            claims.append(claim_hit(campaign, study, who))
            clock.wait(61)
    assert len(set(claims)) == 2
    receipts = [
        submit(campaign, claim_id, who, answers_to(hit_of(campaign, claim_id)))
        for claim_id, who in zip(claims, (anna, ben), strict=False)
    ]
    assert [receipt.is_counted for receipt in receipts] == [False, True]
    assert verify(campaign)[0].answers == 3


# Nobody sees an item twice


def test_hit_is_answered_by_different_people(campaign):
    study = add_small_study(campaign, "recipe.people=3", items=3)
    everybody = [add_annotator(campaign, study) for _ in range(4)]
    for who in everybody[:3]:
        submit_hit(campaign, study, who)
        assert refusal_reason(campaign, study, who) == "none"
    assert refusal_reason(campaign, study, everybody[3]) == "none"
    assert verify(campaign)[0].answers == 9


def test_hits_that_share_gold_go_to_different_people(campaign):
    study = add_small_study(campaign, *WITH_GOLD, items=9, gold_per_kind=1)  # one gold item of each kind in all three HITs
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    submit_hit(campaign, study, anna)
    assert refusal_reason(campaign, study, anna) == "none"
    submit_hit(campaign, study, ben)
    verify(campaign)


def test_items_of_an_abandoned_hit_are_not_shown_again(campaign, clock):
    study = add_small_study(campaign, *WITH_GOLD, items=6, gold_per_kind=1)
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    claim_hit(campaign, study, anna)
    clock.wait(61)
    claim_hit(campaign, study, ben)
    assert refusal_reason(campaign, study, anna) == "none"  # the other HIT has the gold that they have seen
    verify(campaign)


def test_a_person_holds_one_hit_of_a_study_at_a_time(campaign):
    study = add_small_study(campaign, items=9)
    anna = add_annotator(campaign, study)
    outcomes = in_parallel([lambda: claim_hit(campaign, study, anna)] * 6)
    assert len(set(outcomes)) == 1
    verify(campaign)


def test_concurrent_claims_get_different_slots(campaign):
    study = add_small_study(campaign, items=9)
    everybody = [add_annotator(campaign, study) for _ in range(8)]
    outcomes = in_parallel([lambda who=who: claim_hit(campaign, study, who) for who in everybody])
    got = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert len(got) == len(set(got)) == 3
    assert all(outcome.reason == "none" for outcome in outcomes if not isinstance(outcome, str))
    with campaign.read_transaction() as connection:
        assert connection.execute(select(func.count()).select_from(claim)).scalar_one() == 3
    verify(campaign)


def test_one_expired_hit_is_taken_over_by_one_of_many(campaign, clock):
    study = add_small_study(campaign, items=3)
    first = claim_hit(campaign, study, add_annotator(campaign, study))
    everybody = [add_annotator(campaign, study) for _ in range(6)]
    clock.wait(61)
    outcomes = in_parallel([lambda who=who: claim_hit(campaign, study, who) for who in everybody])
    assert sum(isinstance(outcome, str) and outcome != first for outcome in outcomes) == 1
    verify(campaign)


def test_concurrent_return_and_takeover_give_one_holder(campaign, clock):
    for n in range(6):
        study = add_small_study(campaign, items=3, name=f"study-{n}")
        anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
        claim_hit(campaign, study, anna)
        clock.wait(61)
        outcomes = in_parallel([lambda who=who, study=study: claim_hit(campaign, study, who) for who in (anna, ben)])
        got = [outcome for outcome in outcomes if isinstance(outcome, str)]
        assert len(got) == 1
        assert state_of(campaign, got[0]).claim == got[0]
    verify(campaign)


# Why there is nothing


def test_claim_requires_consent(campaign):
    study = add_small_study(campaign)
    token = people.invite(campaign, "anna")
    anna = people.find_by_token(campaign, token).id
    assert refusal_reason(campaign, study, anna) == "agree"
    people.give_consent(campaign, study, anna)
    people.give_consent(campaign, study, anna)
    claim_hit(campaign, study, anna)
    verify(campaign)


def test_closed_study_assigns_nothing_but_accepts_submissions(campaign):
    study = add_small_study(campaign)
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    mine = claim_hit(campaign, study, anna)
    set_open(campaign, study, False)
    assert refusal_reason(campaign, study, ben) == "closed"
    assert claim_hit(campaign, study, anna) == mine
    assert submit(campaign, mine, anna, answers_to(hit_of(campaign, mine))).is_counted
    assert refusal_reason(campaign, study, anna) == "closed"
    set_open(campaign, study, True)
    claim_hit(campaign, study, ben)
    verify(campaign)


def test_a_person_does_no_more_than_the_limit(campaign):
    study = add_small_study(campaign, "recipe.hits_per_person=2", items=9)
    anna = add_annotator(campaign, study)
    for _ in range(2):
        submit_hit(campaign, study, anna)
    assert refusal_reason(campaign, study, anna) == "limit"


@pytest.mark.parametrize("begins", [0, 1])
def test_studies_that_exclude_each_other_do_so_both_ways(campaign, begins):
    studies = [add_small_study(campaign, name="first"), add_small_study(campaign, name="second", excludes=["first"])]
    here, there = studies[begins], studies[1 - begins]
    anna = add_annotator(campaign, here)
    people.give_consent(campaign, there, anna)
    claim_hit(campaign, here, anna)  # to have begun is enough
    assert refusal_reason(campaign, there, anna) == "excluded"
    verify(campaign)


def test_simultaneous_claims_in_excluding_studies_give_one_hit(campaign):
    first = add_small_study(campaign, name="first")
    second = add_small_study(campaign, name="second", excludes=["first"])
    for _ in range(4):
        anna = add_annotator(campaign, first)
        people.give_consent(campaign, second, anna)
        outcomes = in_parallel([lambda study=study, who=anna: claim_hit(campaign, study, who) for study in (first, second)])
        assert sum(isinstance(outcome, str) for outcome in outcomes) <= 1
        set_open(campaign, first, True)
    verify(campaign)


def test_unknown_person_or_study_is_not_found(campaign):
    study = add_small_study(campaign)
    with pytest.raises(NotFoundError):
        claim_hit(campaign, study, 999)
    with pytest.raises(NotFoundError):
        claim_hit(campaign, 999, add_annotator(campaign, study))


# The quiz


def test_quiz_comes_first_and_passing_it_gives_hits(campaign):
    study = add_small_study(campaign, "recipe.quiz=4", gold_per_kind=4)
    anna = add_annotator(campaign, study)
    quiz = claim_hit(campaign, study, anna)
    hit = hit_of(campaign, quiz)
    assert hit.is_quiz
    assert len(hit.items) == 4
    assert claim_hit(campaign, study, anna) == quiz
    receipt = submit(campaign, quiz, anna, answers_to(hit))
    assert (receipt.passed_quiz, receipt.is_counted) == (True, False)
    assert submit(campaign, quiz, anna, answers_to(hit)).passed_quiz is True
    assert not hit_of(campaign, claim_hit(campaign, study, anna)).is_quiz
    verify(campaign)


def test_failed_quiz_cannot_be_repeated(campaign):
    study = add_small_study(campaign, "recipe.quiz=4", gold_per_kind=4)
    anna = add_annotator(campaign, study)
    quiz = claim_hit(campaign, study, anna)
    assert submit(campaign, quiz, anna, answers_to(hit_of(campaign, quiz), wrong=True)).passed_quiz is False
    assert refusal_reason(campaign, study, anna) == "qualify"
    assert verify(campaign)[0].answers == 0


@pytest.mark.parametrize(("share", "passes"), [("0.75", True), ("0.8", False)])
def test_the_share_of_right_answers_decides(small, share, passes):
    study = add_small_study(small, "recipe.quiz=4", f"recipe.quiz_share={share}", gold_per_kind=4)
    anna = add_annotator(small, study)
    quiz = claim_hit(small, study, anna)
    answers = answers_to(hit_of(small, quiz))
    answers[0] = {"match": "no" if answers[0]["match"] == "yes" else "yes"}
    assert submit(small, quiz, anna, answers).passed_quiz is passes


def test_excluded_or_late_people_get_no_quiz(campaign):
    first = add_small_study(campaign, name="first")
    second = add_small_study(campaign, "recipe.quiz=2", name="second", gold_per_kind=2, excludes=["first"])
    anna, ben = add_annotator(campaign, first), add_annotator(campaign, second)
    people.give_consent(campaign, second, anna)
    claim_hit(campaign, first, anna)
    assert refusal_reason(campaign, second, anna) == "excluded"
    set_open(campaign, second, False)
    assert refusal_reason(campaign, second, ben) == "closed"


def test_quiz_is_not_given_without_open_hits(campaign):
    study = add_small_study(campaign, "recipe.quiz=2", gold_per_kind=2, items=3)
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    quiz = claim_hit(campaign, study, anna)
    submit(campaign, quiz, anna, answers_to(hit_of(campaign, quiz)))
    submit_hit(campaign, study, anna)
    assert refusal_reason(campaign, study, ben) == "none"


def test_concurrent_quiz_claims_are_one_claim(campaign):
    study = add_small_study(campaign, "recipe.quiz=2", gold_per_kind=2)
    anna = add_annotator(campaign, study)
    assert len(set(in_parallel([lambda: claim_hit(campaign, study, anna)] * 4))) == 1
    verify(campaign)


# The tables themselves hold the rules


def test_no_hit_has_two_slots_of_one_person(campaign):
    study = add_small_study(campaign, "recipe.people=2", items=3)
    anna = add_annotator(campaign, study)
    mine = claim_hit(campaign, study, anna)
    with pytest.raises(Exception, match=r"(?i)unique"), campaign.write_transaction() as connection:
        connection.execute(update(slot).where(slot.c.hit == claim_row(campaign, mine).hit).values(person=anna))


def test_rejected_person_does_not_get_the_hit_again(campaign):
    study = add_small_study(campaign)
    anna = add_annotator(campaign, study)
    mine = submit_hit(campaign, study, anna)
    review(campaign, mine, None, "reject")
    with campaign.read_transaction() as connection:
        assert connection.execute(select(barred.c.hit)).scalars().all() == [claim_row(campaign, mine).hit]
        assert connection.execute(select(member.c.submitted)).scalar_one() == 1
    assert claim_row(campaign, claim_hit(campaign, study, anna)).hit != claim_row(campaign, mine).hit


# Leases of those who are at work


def test_a_draft_renews_the_lease_up_to_a_bound(campaign, clock):
    study = add_small_study(campaign, items=3)
    anna, ben = add_annotator(campaign, study), add_annotator(campaign, study)
    mine = claim_hit(campaign, study, anna)
    begun = clock()
    for n in range(1, 6):
        clock.wait(50)
        until = min(clock() + 3600, begun + MAX_LEASES * 3600)
        renewed = until if n < 5 else None  # the fifth comes after the last of four hours
        assert save_draft(campaign, mine, anna, n, [{"match": "no"}]) == renewed
        assert state_of(campaign, mine).lease == min(until, begun + MAX_LEASES * 3600)
        if n < 5:
            assert refusal_reason(campaign, study, ben) == "none"
    assert claim_hit(campaign, study, ben) != mine
    assert save_draft(campaign, mine, anna, 9, [{"match": "no"}]) is None  # it is another's now
    verify(campaign)


def test_reopening_a_hit_cannot_extend_the_lease_beyond_the_limit(campaign, clock):
    study = add_small_study(campaign, items=3)
    anna = add_annotator(campaign, study)
    mine = claim_hit(campaign, study, anna)
    begun = clock()
    for _ in range(10):
        clock.wait(50)
        if clock() <= begun + MAX_LEASES * 3600:
            assert claim_hit(campaign, study, anna) == mine
    assert state_of(campaign, mine).lease == begun + MAX_LEASES * 3600


# Verdicts that are taken back


def undone(campaign, study, wrong, verdict="reject"):
    """A HIT that was rejected by mistake, and the verdict taken back."""
    mine = submit_hit(campaign, study, add_annotator(campaign, study), wrong=wrong)
    review(campaign, mine, None, verdict)
    return mine, review(campaign, mine, None, "undo")


@pytest.mark.parametrize("verdict", ["reject", "reassign"])
@pytest.mark.parametrize(("wrong", "state"), [(False, "done"), (True, "review")])
def test_rejection_can_be_undone_before_reassignment(campaign, wrong, state, verdict):
    study = add_small_study(campaign, *WITH_GOLD, items=3, gold_per_kind=1)
    mine, counts = undone(campaign, study, wrong, verdict)
    row, place = claim_row(campaign, mine), state_of(campaign, mine)
    assert (counts, row.counted, row.verdict, place.state, place.claim) == (True, True, None, state, mine)
    assert refusal_reason(campaign, study, add_annotator(campaign, study)) == "none"
    assert verify(campaign)[0].answers == 5
    assert sum(kind == "review" for kind in kinds(campaign)) == 2  # both are told


def kinds(campaign):
    with campaign.read_transaction() as connection:
        return connection.execute(select(event.c.kind)).scalars().all()


def test_rejection_cannot_be_undone_after_reassignment(campaign):
    study = add_small_study(campaign, items=3)
    mine = submit_hit(campaign, study, add_annotator(campaign, study))
    review(campaign, mine, None, "reject")
    theirs = claim_hit(campaign, study, add_annotator(campaign, study))
    before = len(kinds(campaign))
    with pytest.raises(ReviewConflictError, match=r"gone to another person in the meantime.*reassign"):
        review(campaign, mine, None, "undo")
    assert (len(kinds(campaign)), claim_row(campaign, mine).verdict) == (before, "reject")
    assert review(campaign, mine, None, "reassign") is False
    assert state_of(campaign, theirs).claim == theirs
    verify(campaign)


def test_undone_rejection_uses_any_open_slot_of_the_hit(campaign):
    study = add_small_study(campaign, "recipe.people=2", items=3)
    mine = submit_hit(campaign, study, add_annotator(campaign, study))
    review(campaign, mine, None, "reject")
    submit_hit(campaign, study, add_annotator(campaign, study))  # in the slot that was opened
    assert review(campaign, mine, None, "undo") is True
    assert refusal_reason(campaign, study, add_annotator(campaign, study)) == "none"
    assert verify(campaign)[0].answers == 6


def test_undo_needs_a_verdict(campaign):
    study = add_small_study(campaign, items=3)
    mine = submit_hit(campaign, study, add_annotator(campaign, study))
    with pytest.raises(ReviewConflictError, match="no verdict to undo"):
        review(campaign, mine, None, "undo")


# Nobody judges their own work


@pytest.mark.parametrize("verdict", ["approve", "reject", "reassign", "undo"])
def test_reviewer_cannot_review_a_hit_they_claimed(campaign, verdict):
    study = add_small_study(campaign, "recipe.people=2", items=3)
    rita = people.find_by_token(campaign, people.invite(campaign, "rita", "reviewer")).id
    people.give_consent(campaign, study, rita)
    others = submit_hit(campaign, study, add_annotator(campaign, study))
    review(campaign, others, rita, "approve")
    mine = submit_hit(campaign, study, rita)
    for claim_id in (mine, others):
        with pytest.raises(ReviewConflictError, match="worked on this HIT yourself"):
            review(campaign, claim_id, rita, verdict)
    assert claim_row(campaign, mine).verdict is None
    assert review(campaign, mine, None, "approve")


# Several people at the same moment


@pytest.mark.parametrize("first", ["holder", "other"])
def test_concurrent_claims_of_an_expired_hit_succeed_once(campaign, clock, first):
    """A lease has ended; its person comes again just as another takes the HIT over."""
    study = add_small_study(campaign, "recipe.batch=1", "recipe.people=1", items=1)
    holder, other = (add_annotator(campaign, study) for _ in range(2))
    mine = claim_hit(campaign, study, holder)
    clock.wait(24 * 60)
    jobs = {"holder": lambda: claim_hit(campaign, study, holder), "other": lambda: claim_hit(campaign, study, other)}
    out = in_order(campaign, [jobs[first], *(job for name, job in jobs.items() if name != first)])
    assert [type(result).__name__ for result in out] == ["str", "NoHitAvailableError"]
    assert (out[0] == mine) == (first == "holder")
    assert verify(campaign)


@pytest.mark.parametrize("first", ["holder", "other"])
def test_late_submission_counts_unless_the_hit_was_taken_over(campaign, clock, first):
    study = add_small_study(campaign, "recipe.batch=1", "recipe.people=1", items=1)
    holder, other = (add_annotator(campaign, study) for _ in range(2))
    mine = claim_hit(campaign, study, holder)
    clock.wait(24 * 60)
    jobs = {
        "holder": lambda: submit(campaign, mine, holder, [{"match": "yes"}]),
        "other": lambda: claim_hit(campaign, study, other),
    }
    out = in_order(campaign, [jobs[first], *(job for name, job in jobs.items() if name != first)])
    submitted, claimed = out if first == "holder" else out[::-1]
    assert submitted.is_late
    assert submitted.is_counted == (first == "holder")
    assert isinstance(claimed, NoHitAvailableError if first == "holder" else str)
    assert verify(campaign)[0].answers == (first == "holder")


def test_a_clock_that_steps_between_two_claims_gives_no_slot_to_both(campaign, clock):
    """Somebody gets a HIT back that they had lost, and for the next person that lease has ended already."""
    study = add_small_study(campaign, "recipe.batch=1", "recipe.people=2", items=1)
    first, second, third, fourth = (add_annotator(campaign, study) for _ in range(4))
    mine = claim_hit(campaign, study, first)
    claim_hit(campaign, study, second)
    clock.wait(24 * 60)
    submit(campaign, claim_hit(campaign, study, third), third, [{"match": "yes"}])

    def stepping():
        clock.wait(2 * 60)
        return clock.at

    object.__setattr__(campaign, "now", stepping)
    out = in_order(campaign, [lambda who=who: claim_hit(campaign, study, who) for who in (first, fourth)])
    assert out[0] == mine
    assert verify(campaign)[0].answers == 1


def test_events_of_two_studies_that_are_busy_at_once_follow_each_other(campaign):
    studies = [add_small_study(campaign, "recipe.batch=1", items=20, name=name) for name in ("one", "two")]
    people = [(study, add_annotator(campaign, study)) for study in studies for _ in range(4)]
    outcomes = in_parallel([lambda s=s, p=p: claim_hit(campaign, s, p) for s, p in people])
    jobs = [lambda c=c, p=p: submit(campaign, c, p, [{"match": "yes"}]) for c, (_, p) in zip(outcomes, people, strict=True)]
    assert not any(isinstance(result, Exception) for result in in_parallel(jobs))
    more = in_parallel([lambda s=s, p=p: claim_hit(campaign, s, p) for s, p in people])
    assert not any(isinstance(result, Exception) for result in more)
    assert [verified.answers for verified in verify(campaign)] == [4, 4]


def test_rejected_requests_change_nothing(campaign):
    """Claims where one may not, submissions that are no answer or another's, drafts of nothing."""
    study = add_small_study(campaign, "recipe.batch=1", items=20)
    busy, done, idle = (add_annotator(campaign, study) for _ in range(3))
    stranger = add_annotator(campaign, add_small_study(campaign, name="another"))
    mine = claim_hit(campaign, study, busy)
    jobs = [
        lambda: claim_hit(campaign, study, done),
        lambda: claim_hit(campaign, study, stranger),
        lambda: claim_and_load(campaign, study, idle, session_number=7),
        lambda: submit(campaign, mine, busy, [{"match": "perhaps"}]),
        lambda: submit(campaign, mine, stranger, [{"match": "yes"}]),
        lambda: submit(campaign, mine, busy, [{"match": "yes"}], session_number=7),
        lambda: save_draft(campaign, mine, stranger, 1, []),
        lambda: save_draft(campaign, mine, busy, 1, [None]),
    ]
    out = in_parallel(jobs)
    kinds = [type(outcome).__name__ for outcome in out]
    no_hit, expired, missing = "NoHitAvailableError", "SessionExpiredError", "NotFoundError"
    assert kinds == ["str", no_hit, expired, "CrossmatchError", missing, expired, missing, "NoneType"]
    assert [verified.answers for verified in verify(campaign)] == [0, 0]
    assert claim_row(campaign, out[0]).person == done


@pytest.mark.postgres
def test_a_server_that_ends_connections_loses_and_doubles_nothing(request, tmp_path):
    """In the middle of transactions and at their end: whoever tries again goes on."""
    with new_campaign(tmp_path / "campaign", database_of("postgresql", request)) as campaign:
        study = add_small_study(campaign, "recipe.batch=1", "recipe.people=2", items=20)
        people, told, is_over = [add_annotator(campaign, study) for _ in range(4)], [], threading.Event()
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"

        def storm():
            """Connections end after each submission, wherever the others are."""
            with psycopg.connect(request.getfixturevalue("postgres_url"), autocommit=True) as other:
                for count in range(1, 41):
                    wait_until(lambda count=count: len(told) >= count or is_over.is_set())
                    other.execute(end)

        def labour(who):
            while True:
                try:
                    hit = claim_and_load(campaign, study, who)
                    submit(campaign, hit.claim_id, who, answers_to(hit))
                    told.append(hit.claim_id)
                except NoHitAvailableError:
                    return
                except DatabaseUnavailableError:
                    pass  # asked again at once

        ended = threading.Thread(target=storm)
        ended.start()
        outcomes = in_parallel([lambda who=who: labour(who) for who in people])
        is_over.set()
        ended.join()
        assert outcomes == [None] * 4
        assert campaign.engine.pool.checkedout() == 0
        campaign.engine.dispose()  # some connections were ended just now, and nobody has noticed
        assert {*told} <= {*read_submissions(campaign, study).answers}
        assert len(read_submissions(campaign, study).answers) == 40
        assert verify(campaign)[0].answers == 40
