"""Claims: who gets what, for how long, and why not."""

import pytest
from sqlalchemy import func, select, update

from crossmatch.study import people
from crossmatch.study.assign import LEASES, claim_hit, keep_draft, submit
from crossmatch.study.schema import barred, claim, event, member, slot
from crossmatch.study.shown import NotYours
from crossmatch.study.verdicts import NotReviewed, review, set_open
from crossmatch.study.verify import verify
from study_lab import GOLDEN, a_study, answers_to, book, hit_of, in_parallel, refused, row_of, someone, work


def state_of(campaign, claim_id):
    with campaign.reading() as connection:
        return connection.execute(select(slot).where(slot.c.id == row_of(campaign, claim_id).slot)).one()


# Getting a HIT


def test_a_person_gets_one_hit_after_the_other_and_none_twice(campaign):
    study = a_study(campaign, items=7)
    anna = someone(campaign, study)
    hits = [row_of(campaign, work(campaign, study, anna)).hit for _ in range(3)]
    assert len(set(hits)) == 3
    assert refused(campaign, study, anna) == "none"
    verify(campaign)


def test_an_unfinished_hit_comes_again_in_the_same_order(campaign, clock):
    study = a_study(campaign, golden=2)
    anna = someone(campaign, study)
    first = claim_hit(campaign, study, anna)
    before = [(one.item, one.orders) for one in hit_of(campaign, first).items]
    clock.wait(59)
    assert claim_hit(campaign, study, anna) == first
    assert [(one.item, one.orders) for one in hit_of(campaign, first).items] == before
    assert state_of(campaign, first).lease == clock() + 3600  # kept for another hour from now on


def test_whoever_claims_again_after_the_lease_keeps_it_if_nobody_wanted_it(campaign, clock):
    study = a_study(campaign)
    anna = someone(campaign, study)
    first = claim_hit(campaign, study, anna)
    clock.wait(1000)
    assert claim_hit(campaign, study, anna) == first


def test_a_lease_that_has_not_ended_is_nobody_elses(campaign, clock):
    study = a_study(campaign, items=3)
    anna, ben = someone(campaign, study), someone(campaign, study)
    claim_hit(campaign, study, anna)
    clock.wait(60)  # to the very second
    assert refused(campaign, study, ben) == "none"


def test_a_hit_whose_lease_has_ended_goes_to_the_next_who_asks(campaign, clock):
    study = a_study(campaign, items=3)
    anna, ben = someone(campaign, study), someone(campaign, study)
    first = claim_hit(campaign, study, anna)
    clock.wait(60.1)
    second = claim_hit(campaign, study, ben)
    assert second != first
    assert state_of(campaign, second).person == ben
    assert refused(campaign, study, anna) == "none"
    verify(campaign)


def test_late_answers_count_if_nobody_took_the_hit_over(campaign, clock):
    study = a_study(campaign, items=3)
    anna = someone(campaign, study)
    mine = claim_hit(campaign, study, anna)
    clock.wait(61)
    receipt = submit(campaign, mine, anna, answers_to(hit_of(campaign, mine)))
    assert (receipt.late, receipt.counted, receipt.again) == (True, True, False)
    assert state_of(campaign, mine).state == "done"
    verify(campaign)


def test_late_answers_are_kept_but_do_not_count_once_another_has_the_hit(campaign, clock):
    study = a_study(campaign, items=3)
    anna, ben = someone(campaign, study), someone(campaign, study)
    first = claim_hit(campaign, study, anna)
    clock.wait(61)
    second = claim_hit(campaign, study, ben)
    receipt = submit(campaign, first, anna, answers_to(hit_of(campaign, first), "no"))
    assert (receipt.late, receipt.counted) == (True, False)
    assert book(campaign, study).answers[first] == [{"match": "no"}] * 3
    receipt = submit(campaign, second, ben, answers_to(hit_of(campaign, second)))
    assert (receipt.late, receipt.counted) == (False, True)
    assert verify(campaign)[0].answers == 3


def test_who_lost_a_hit_and_gets_it_back_has_one_claim_on_it(campaign, clock):
    """Else a page that was still open could be submitted beside the new one, and the person would have answered twice."""
    study = a_study(campaign, "recipe.people=2", items=3)
    anna, ben = someone(campaign, study), someone(campaign, study)
    first = claim_hit(campaign, study, anna)
    keep_draft(campaign, first, anna, 1, [{"match": "no"}])
    clock.wait(61)
    claim_hit(campaign, study, ben)  # takes it over
    assert claim_hit(campaign, study, anna) == first  # the other slot of the same HIT
    assert state_of(campaign, first).person == anna
    assert submit(campaign, first, anna, answers_to(hit_of(campaign, first))).counted
    assert refused(campaign, study, anna) == "none"
    assert list(book(campaign, study).answers) == [first]
    verify(campaign)


def test_a_hit_that_went_to_and_fro_is_answered_once_by_each(campaign, clock):
    study = a_study(campaign, items=3)
    anna, ben = someone(campaign, study), someone(campaign, study)
    claims = []
    for _ in range(3):
        for who in (anna, ben):
            claims.append(claim_hit(campaign, study, who))
            clock.wait(61)
    assert len(set(claims)) == 2
    receipts = [
        submit(campaign, one, who, answers_to(hit_of(campaign, one))) for one, who in zip(claims, (anna, ben), strict=False)
    ]
    assert [receipt.counted for receipt in receipts] == [False, True]
    assert verify(campaign)[0].answers == 3


# Nobody sees an item twice


def test_people_of_a_hit_are_different_people(campaign):
    study = a_study(campaign, "recipe.people=3", items=3)
    everybody = [someone(campaign, study) for _ in range(4)]
    for who in everybody[:3]:
        work(campaign, study, who)
        assert refused(campaign, study, who) == "none"
    assert refused(campaign, study, everybody[3]) == "none"
    assert verify(campaign)[0].answers == 9


def test_hits_that_share_gold_go_to_different_people(campaign):
    study = a_study(campaign, *GOLDEN, items=9, golden=1)  # one gold item of each kind in all three HITs
    anna, ben = someone(campaign, study), someone(campaign, study)
    work(campaign, study, anna)
    assert refused(campaign, study, anna) == "none"
    work(campaign, study, ben)
    verify(campaign)


def test_a_hit_that_was_abandoned_keeps_its_items_from_being_shown_again(campaign, clock):
    study = a_study(campaign, *GOLDEN, items=6, golden=1)
    anna, ben = someone(campaign, study), someone(campaign, study)
    claim_hit(campaign, study, anna)
    clock.wait(61)
    claim_hit(campaign, study, ben)
    assert refused(campaign, study, anna) == "none"  # the other HIT has the gold that they have seen
    verify(campaign)


def test_a_person_holds_one_hit_of_a_study_at_a_time(campaign):
    study = a_study(campaign, items=9)
    anna = someone(campaign, study)
    found = in_parallel([lambda: claim_hit(campaign, study, anna)] * 6)
    assert len(set(found)) == 1
    verify(campaign)


def test_people_who_come_at_once_get_different_slots(campaign):
    study = a_study(campaign, items=9)
    everybody = [someone(campaign, study) for _ in range(8)]
    found = in_parallel([lambda who=who: claim_hit(campaign, study, who) for who in everybody])
    got = [one for one in found if isinstance(one, str)]
    assert len(got) == len(set(got)) == 3
    assert all(one.why == "none" for one in found if not isinstance(one, str))
    with campaign.reading() as connection:
        assert connection.execute(select(func.count()).select_from(claim)).scalar_one() == 3
    verify(campaign)


def test_one_expired_hit_is_taken_over_by_one_of_many(campaign, clock):
    study = a_study(campaign, items=3)
    first = claim_hit(campaign, study, someone(campaign, study))
    everybody = [someone(campaign, study) for _ in range(6)]
    clock.wait(61)
    found = in_parallel([lambda who=who: claim_hit(campaign, study, who) for who in everybody])
    assert sum(isinstance(one, str) and one != first for one in found) == 1
    verify(campaign)


def test_who_comes_back_while_another_takes_over_has_the_hit_or_is_told(campaign, clock):
    for n in range(6):
        study = a_study(campaign, items=3, name=f"study-{n}")
        anna, ben = someone(campaign, study), someone(campaign, study)
        claim_hit(campaign, study, anna)
        clock.wait(61)
        found = in_parallel([lambda who=who, study=study: claim_hit(campaign, study, who) for who in (anna, ben)])
        got = [one for one in found if isinstance(one, str)]
        assert len(got) == 1
        assert state_of(campaign, got[0]).claim == got[0]
    verify(campaign)


# Why there is nothing


def test_nobody_begins_without_agreeing(campaign):
    study = a_study(campaign)
    token = people.invite(campaign, "anna")
    anna = people.enter(campaign, token).id
    assert refused(campaign, study, anna) == "agree"
    people.agree(campaign, study, anna)
    people.agree(campaign, study, anna)
    claim_hit(campaign, study, anna)
    verify(campaign)


def test_a_closed_study_hands_nothing_out_and_takes_what_it_handed_out(campaign):
    study = a_study(campaign)
    anna, ben = someone(campaign, study), someone(campaign, study)
    mine = claim_hit(campaign, study, anna)
    set_open(campaign, study, False)
    assert refused(campaign, study, ben) == "closed"
    assert claim_hit(campaign, study, anna) == mine
    assert submit(campaign, mine, anna, answers_to(hit_of(campaign, mine))).counted
    assert refused(campaign, study, anna) == "closed"
    set_open(campaign, study, True)
    claim_hit(campaign, study, ben)
    verify(campaign)


def test_a_person_does_no_more_than_the_limit(campaign):
    study = a_study(campaign, "recipe.hits_per_person=2", items=9)
    anna = someone(campaign, study)
    for _ in range(2):
        work(campaign, study, anna)
    assert refused(campaign, study, anna) == "limit"


@pytest.mark.parametrize("begins", [0, 1])
def test_studies_that_exclude_each_other_do_so_both_ways(campaign, begins):
    studies = [a_study(campaign, name="first"), a_study(campaign, name="second", excludes=["first"])]
    here, there = studies[begins], studies[1 - begins]
    anna = someone(campaign, here)
    people.agree(campaign, there, anna)
    claim_hit(campaign, here, anna)  # to have begun is enough
    assert refused(campaign, there, anna) == "excluded"
    verify(campaign)


def test_a_person_who_claims_in_two_studies_at_once_gets_into_one(campaign):
    first = a_study(campaign, name="first")
    second = a_study(campaign, name="second", excludes=["first"])
    for _ in range(4):
        anna = someone(campaign, first)
        people.agree(campaign, second, anna)
        found = in_parallel([lambda study=study, who=anna: claim_hit(campaign, study, who) for study in (first, second)])
        assert sum(isinstance(one, str) for one in found) <= 1
        set_open(campaign, first, True)
    verify(campaign)


def test_nobody_is_nobody(campaign):
    study = a_study(campaign)
    with pytest.raises(NotYours):
        claim_hit(campaign, study, 999)
    with pytest.raises(NotYours):
        claim_hit(campaign, 999, someone(campaign, study))


# The quiz


def test_a_quiz_comes_first_and_whoever_passes_goes_on(campaign):
    study = a_study(campaign, "recipe.quiz=4", golden=4)
    anna = someone(campaign, study)
    quiz = claim_hit(campaign, study, anna)
    held = hit_of(campaign, quiz)
    assert held.quiz
    assert len(held.items) == 4
    assert claim_hit(campaign, study, anna) == quiz
    receipt = submit(campaign, quiz, anna, answers_to(held))
    assert (receipt.passed, receipt.counted) == (True, False)
    assert submit(campaign, quiz, anna, answers_to(held)).passed is True
    assert not hit_of(campaign, claim_hit(campaign, study, anna)).quiz
    verify(campaign)


def test_whoever_fails_the_quiz_has_no_second_try(campaign):
    study = a_study(campaign, "recipe.quiz=4", golden=4)
    anna = someone(campaign, study)
    quiz = claim_hit(campaign, study, anna)
    assert submit(campaign, quiz, anna, answers_to(hit_of(campaign, quiz), wrong=True)).passed is False
    assert refused(campaign, study, anna) == "qualify"
    assert verify(campaign)[0].answers == 0


@pytest.mark.parametrize(("share", "passes"), [("0.75", True), ("0.8", False)])
def test_the_share_of_right_answers_decides(small, share, passes):
    study = a_study(small, "recipe.quiz=4", f"recipe.quiz_share={share}", golden=4)
    anna = someone(small, study)
    quiz = claim_hit(small, study, anna)
    answers = answers_to(hit_of(small, quiz))
    answers[0] = {"match": "no" if answers[0]["match"] == "yes" else "yes"}
    assert submit(small, quiz, anna, answers).passed is passes


def test_a_quiz_is_not_asked_of_those_who_are_kept_out_or_come_too_late(campaign):
    first = a_study(campaign, name="first")
    second = a_study(campaign, "recipe.quiz=2", name="second", golden=2, excludes=["first"])
    anna, ben = someone(campaign, first), someone(campaign, second)
    people.agree(campaign, second, anna)
    claim_hit(campaign, first, anna)
    assert refused(campaign, second, anna) == "excluded"
    set_open(campaign, second, False)
    assert refused(campaign, second, ben) == "closed"


def test_a_quiz_is_not_asked_where_nothing_is_left_to_do(campaign):
    study = a_study(campaign, "recipe.quiz=2", golden=2, items=3)
    anna, ben = someone(campaign, study), someone(campaign, study)
    quiz = claim_hit(campaign, study, anna)
    submit(campaign, quiz, anna, answers_to(hit_of(campaign, quiz)))
    work(campaign, study, anna)
    assert refused(campaign, study, ben) == "none"


def test_two_quizzes_at_once_are_one(campaign):
    study = a_study(campaign, "recipe.quiz=2", golden=2)
    anna = someone(campaign, study)
    assert len(set(in_parallel([lambda: claim_hit(campaign, study, anna)] * 4))) == 1
    verify(campaign)


# The tables themselves hold the rules


def test_no_hit_has_two_slots_of_one_person(campaign):
    study = a_study(campaign, "recipe.people=2", items=3)
    anna = someone(campaign, study)
    mine = claim_hit(campaign, study, anna)
    with pytest.raises(Exception, match=r"(?i)unique"), campaign.writing() as connection:
        connection.execute(update(slot).where(slot.c.hit == row_of(campaign, mine).hit).values(person=anna))


def test_what_was_taken_is_done_when_it_is_submitted_and_reviews_do_not_give_it_back(campaign):
    study = a_study(campaign)
    anna = someone(campaign, study)
    mine = work(campaign, study, anna)
    review(campaign, mine, None, "reject")
    with campaign.reading() as connection:
        assert connection.execute(select(barred.c.hit)).scalars().all() == [row_of(campaign, mine).hit]
        assert connection.execute(select(member.c.submitted)).scalar_one() == 1
    assert row_of(campaign, claim_hit(campaign, study, anna)).hit != row_of(campaign, mine).hit


# Leases of those who are at work


def test_a_draft_renews_the_lease_up_to_a_bound(campaign, clock):
    study = a_study(campaign, items=3)
    anna, ben = someone(campaign, study), someone(campaign, study)
    mine = claim_hit(campaign, study, anna)
    begun = clock()
    for n in range(1, 6):
        clock.wait(50)
        until = min(clock() + 3600, begun + LEASES * 3600)
        renewed = until if n < 5 else None  # the fifth comes after the last of four hours
        assert keep_draft(campaign, mine, anna, n, [{"match": "no"}]) == renewed
        assert state_of(campaign, mine).lease == min(until, begun + LEASES * 3600)
        if n < 5:
            assert refused(campaign, study, ben) == "none"
    assert claim_hit(campaign, study, ben) != mine
    assert keep_draft(campaign, mine, anna, 9, [{"match": "no"}]) is None  # it is another's now
    verify(campaign)


def test_nobody_keeps_a_hit_by_opening_it_again_and_again(campaign, clock):
    study = a_study(campaign, items=3)
    anna = someone(campaign, study)
    mine = claim_hit(campaign, study, anna)
    begun = clock()
    for _ in range(10):
        clock.wait(50)
        if clock() <= begun + LEASES * 3600:
            assert claim_hit(campaign, study, anna) == mine
    assert state_of(campaign, mine).lease == begun + LEASES * 3600


# Verdicts that are taken back


def undone(campaign, study, wrong, verdict="reject"):
    """A HIT that was rejected by mistake, and the verdict taken back."""
    mine = work(campaign, study, someone(campaign, study), wrong=wrong)
    review(campaign, mine, None, verdict)
    return mine, review(campaign, mine, None, "undo")


@pytest.mark.parametrize("verdict", ["reject", "reassign"])
@pytest.mark.parametrize(("wrong", "state"), [(False, "done"), (True, "review")])
def test_a_rejection_is_undone_as_long_as_nobody_has_the_hit(campaign, wrong, state, verdict):
    study = a_study(campaign, *GOLDEN, items=3, golden=1)
    mine, counts = undone(campaign, study, wrong, verdict)
    row, place = row_of(campaign, mine), state_of(campaign, mine)
    assert (counts, row.counted, row.verdict, place.state, place.claim) == (True, True, None, state, mine)
    assert refused(campaign, study, someone(campaign, study)) == "none"
    assert verify(campaign)[0].answers == 5
    assert sum(kind == "review" for kind in kinds(campaign)) == 2  # both are told


def kinds(campaign):
    with campaign.reading() as connection:
        return connection.execute(select(event.c.kind)).scalars().all()


def test_a_rejection_is_not_undone_once_another_has_the_hit(campaign):
    study = a_study(campaign, items=3)
    mine = work(campaign, study, someone(campaign, study))
    review(campaign, mine, None, "reject")
    theirs = claim_hit(campaign, study, someone(campaign, study))
    before = len(kinds(campaign))
    with pytest.raises(NotReviewed, match=r"gone to another person meanwhile.*Reassign"):
        review(campaign, mine, None, "undo")
    assert (len(kinds(campaign)), row_of(campaign, mine).verdict) == (before, "reject")
    assert review(campaign, mine, None, "reassign") is False
    assert state_of(campaign, theirs).claim == theirs
    verify(campaign)


def test_answers_that_were_rejected_count_in_any_slot_of_the_hit_that_is_still_open(campaign):
    study = a_study(campaign, "recipe.people=2", items=3)
    mine = work(campaign, study, someone(campaign, study))
    review(campaign, mine, None, "reject")
    work(campaign, study, someone(campaign, study))  # in the slot that was opened
    assert review(campaign, mine, None, "undo") is True
    assert refused(campaign, study, someone(campaign, study)) == "none"
    assert verify(campaign)[0].answers == 6


def test_there_is_nothing_to_undo_where_nothing_was_said(campaign):
    study = a_study(campaign, items=3)
    mine = work(campaign, study, someone(campaign, study))
    with pytest.raises(NotReviewed, match="nothing to undo"):
        review(campaign, mine, None, "undo")


# Nobody judges their own work


@pytest.mark.parametrize("verdict", ["approve", "reject", "reassign", "undo"])
def test_nobody_reviews_a_hit_that_they_were_given_themselves(campaign, verdict):
    study = a_study(campaign, "recipe.people=2", items=3)
    rita = people.enter(campaign, people.invite(campaign, "rita", "reviewer")).id
    people.agree(campaign, study, rita)
    others = work(campaign, study, someone(campaign, study))
    review(campaign, others, rita, "approve")
    mine = work(campaign, study, rita)
    for each in (mine, others):
        with pytest.raises(NotReviewed, match="given this HIT yourself"):
            review(campaign, each, rita, verdict)
    assert row_of(campaign, mine).verdict is None
    assert review(campaign, mine, None, "approve")
