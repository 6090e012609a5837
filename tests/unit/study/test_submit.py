"""Submissions, reviews and drafts: one answer each, by what the item declares, and nothing is refused for a wrong gold answer."""

import math

import pytest
from sqlalchemy import select

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment import people
from crossmatch.study.assignment.claims import claim_hit, save_draft, submit
from crossmatch.study.assignment.displayed_hits import NotFoundError
from crossmatch.study.assignment.people import Person, completion_code
from crossmatch.study.assignment.review import review
from crossmatch.study.database.schema import draft, slot
from crossmatch.study.database.verification import verify
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.new_items import NewItem
from study_lab import (
    WITH_GOLD,
    add_annotator,
    add_small_study,
    answers_to,
    claim_row,
    design_of,
    hit_of,
    in_parallel,
    read_submissions,
    refusal_reason,
    submit_hit,
)

THREE = [{"match": "yes"}] * 3


def begun(campaign, *overrides, **more):
    """A study, a person, and a claim of theirs."""
    study = add_small_study(campaign, *overrides, **more)
    who = add_annotator(campaign, study)
    return study, who, claim_hit(campaign, study, who)


def state_of(campaign, claim_id):
    with campaign.read_transaction() as connection:
        return connection.execute(select(slot.c.state).where(slot.c.id == claim_row(campaign, claim_id).slot)).scalar_one()


# Once


def test_repeated_submission_keeps_the_first_answer(campaign):
    study, anna, mine = begun(campaign)
    first = submit(campaign, mine, anna, THREE)
    assert (first.is_repeat, first.is_counted) == (False, True)
    second = submit(campaign, mine, anna, [{"match": "no"}] * 3)
    assert (second.is_repeat, second.is_counted, second.is_late) == (True, True, False)
    assert submit(campaign, mine, anna, "nonsense").is_repeat  # nothing is looked at any more
    assert read_submissions(campaign, study).answers == {mine: THREE}
    verify(campaign)


def test_two_submissions_at_once_are_one_answer(campaign):
    study, anna, mine = begun(campaign)
    given = ["yes", "no", "yes", "no"]
    receipts = in_parallel([lambda match=match: submit(campaign, mine, anna, [{"match": match}] * 3) for match in given])
    (first,) = [match for receipt, match in zip(receipts, given, strict=True) if not receipt.is_repeat]
    assert read_submissions(campaign, study).answers == {mine: [{"match": first}] * 3}
    verify(campaign)


def test_submission_for_another_person_is_refused(campaign):
    study, _, mine = begun(campaign)
    ben = add_annotator(campaign, study)
    for token in (mine, "0" * 32, ""):
        with pytest.raises(NotFoundError, match="does not exist, or it is not yours"):
            submit(campaign, token, ben, THREE)
    assert read_submissions(campaign, study).answers == {}


@pytest.mark.parametrize(
    "answers", [None, [], {}, "yes", THREE[:2], [*THREE, {"match": "yes"}], [{"match": "yes"}, {"match": "yes"}, {"match": "maybe"}],
              [{"match": "yes"}, {"match": "yes"}, {}], [{"match": "yes"}, {"match": "yes"}, None]]
)  # fmt: skip
def test_invalid_answers_are_refused_and_not_stored(small, answers):
    study, anna, mine = begun(small)
    with pytest.raises(CrossmatchError, match=r"(answers for 3 items|Item 3: .*)\. "):
        submit(small, mine, anna, answers)
    assert read_submissions(small, study).answers == {}
    assert not submit(small, mine, anna, THREE).is_repeat


@pytest.mark.parametrize(
    ("seconds", "stored"),
    [
        ([1, 2.26, 3], [1.0, 2.3, 3.0]),
        (None, None),
        ([1, 2], None),
        ([1, 2, -1], None),
        ([1, 2, math.nan], None),
        ([1, 2, math.inf], None),
        ([1, 2, 10**400], None),
        ([1, 2, True], None),
        (["1", 2, 3], None),
        ({"0": 1}, None),
        ("123", None),
    ],
)
def test_valid_times_are_stored(small, seconds, stored):
    study, anna, mine = begun(small)
    submit(small, mine, anna, THREE, seconds)
    assert read_submissions(small, study).bodies[mine]["seconds"] == stored


# Orders


def test_answers_are_stored_in_declared_places(small):
    """Forty people choose the picture that the item declares first; on the page it stands left or right."""
    items = [NewItem(f"trial-{n}", (f"right-{n}.jpg", f"wrong-{n}.jpg"), ("a caption",)) for n in range(3)]
    study = create_study(small, load_design("bison-verify", ["recipe.people=20", "recipe.batch=3"]), items, seed="seed")
    chosen = []
    for _ in range(20):
        who = add_annotator(small, study)
        mine = claim_hit(small, study, who)
        hit = hit_of(small, mine, who)
        places = [next(n for n, name in enumerate(item.images) if name.startswith("right")) for item in hit.items]
        submit(small, mine, who, [{"which": f"image-{n}"} for n in places])
        chosen += places
        body = read_submissions(small, study).bodies[mine]
        for answer, stored_answer in zip(body["answers"], hit.items, strict=True):
            assert answer["answer"] == {"which": "image-0"}
            assert answer["orders"] == {"images": list(stored_answer.orders["images"])}
            assert answer["item"] == stored_answer.item_id
    assert 15 < sum(chosen) < 45  # both sides


def test_option_values_are_not_translated(small):
    study = create_study(small, load_design("bison-verify"), [NewItem("t", ("a.jpg", "b.jpg"), ("a caption",))], seed="s")
    who = add_annotator(small, study)
    mine = claim_hit(small, study, who)
    submit(small, mine, who, [{"which": "neither"}])
    assert read_submissions(small, study).answers[mine] == [{"which": "neither"}]


def test_lists_are_shuffled_as_a_whole(small):
    images = tuple(f"{which}-{n}.jpg" for which in "xy" for n in range(3))
    design = load_design("ranking-preference", ["recipe.people=12"])
    study = create_study(small, design, [NewItem("q", images, ("a query",))], seed="seed")
    values = set()
    for _ in range(12):
        who = add_annotator(small, study)
        mine = claim_hit(small, study, who)
        (hit,) = hit_of(small, mine, who).items
        assert hit.images in (images, images[3:] + images[:3])
        place = 0 if hit.images[0].startswith("y") else 1
        submit(small, mine, who, [{"better": f"list-{place}"}])
        values.add(place)
        assert read_submissions(small, study).answers[mine] == [{"better": "list-1"}]
    assert values == {0, 1}


def test_blocks_are_ordered_and_their_items_shuffled(small):
    items = [NewItem(f"{block}-{n}", ("a.jpg", "b.jpg"), ("x", "y"), block=block) for n in range(6) for block in ("t2i", "i2t")]
    study = create_study(small, load_design("bivlc-human", ["recipe.people=6"]), items, seed="seed")
    orders = set()
    for _ in range(6):
        who = add_annotator(small, study)
        claim_id = hit_of(small, claim_hit(small, study, who), who)
        assert [item.block for item in claim_id.items] == ["i2t"] * 6 + ["t2i"] * 6
        orders.add(tuple(item.key for item in claim_id.items))
    assert len(orders) > 1


# Gold and reviews


def test_a_wrong_gold_answer_sends_the_hit_to_review_and_never_rejects_it(campaign):
    study, anna, mine = begun(campaign, *WITH_GOLD, gold_per_kind=3)
    receipt = submit(campaign, mine, anna, answers_to(hit_of(campaign, mine), wrong=True))
    assert receipt.is_counted  # as long as nobody says otherwise
    assert (state_of(campaign, mine), claim_row(campaign, mine).doubt, claim_row(campaign, mine).verdict) == ("review", True, None)
    assert len(read_submissions(campaign, study).bodies[mine]["wrong"]) == 2
    assert claim_hit(campaign, study, anna) != mine  # and they may go on
    verify(campaign)


def test_receipt_does_not_reveal_gold(small):
    study = add_small_study(small, *WITH_GOLD, gold_per_kind=4, items=6)
    receipts = []
    for wrong in (True, False):
        who = add_annotator(small, study)
        mine = claim_hit(small, study, who)
        answers = answers_to(hit_of(small, mine), wrong=wrong)
        both = [submit(small, mine, who, answers) for _ in "ab"]
        receipts += [(one.is_repeat, one.is_counted, one.is_late, one.passed_quiz) for one in both]
    assert receipts[:2] == receipts[2:]


@pytest.mark.parametrize("wrong", [False, True])
def test_an_approved_hit_counts_and_is_done(campaign, wrong):
    study, anna, mine = begun(campaign, *WITH_GOLD, gold_per_kind=2)
    submit(campaign, mine, anna, answers_to(hit_of(campaign, mine), wrong=wrong))
    assert review(campaign, mine, None, "approve") is True
    assert (state_of(campaign, mine), claim_row(campaign, mine).counted) == ("done", True)
    assert verify(campaign)[0].study == "eccv-hit"
    assert study


@pytest.mark.parametrize("verdict", ["reject", "reassign"])
def test_rejected_hit_goes_to_another_person(campaign, verdict):
    study, anna, mine = begun(campaign, *WITH_GOLD, gold_per_kind=2, items=3)
    submit(campaign, mine, anna, answers_to(hit_of(campaign, mine), wrong=True))
    assert review(campaign, mine, None, verdict) is False
    assert (state_of(campaign, mine), claim_row(campaign, mine).verdict) == ("open", verdict)
    assert refusal_reason(campaign, study, anna) == "none"
    ben = add_annotator(campaign, study)
    other = submit_hit(campaign, study, ben)
    assert claim_row(campaign, other).slot == claim_row(campaign, mine).slot
    assert review(campaign, mine, None, "approve") is False  # too late: the slot is another's
    assert [claim_row(campaign, claim_id).counted for claim_id in (mine, other)] == [False, True]
    assert verify(campaign)[0].answers == 5
    assert list(read_submissions(campaign, study).answers) == [mine, other]  # both are kept


def test_two_reviewers_at_once_leave_one_state(campaign):
    for verdicts in (("approve", "reject"), ("reassign", "reject"), ("approve", "reassign")):
        study = add_small_study(campaign, *WITH_GOLD, gold_per_kind=2, items=3, name="-".join(verdicts))
        mine = submit_hit(campaign, study, add_annotator(campaign, study), wrong=True)
        outcomes = in_parallel([lambda verdict=verdict, mine=mine: review(campaign, mine, None, verdict) for verdict in verdicts])
        assert all(isinstance(outcome, bool) for outcome in outcomes), outcomes
        verify(campaign)


def test_review_and_work_do_not_block_each_other(campaign):
    """A review names its reviewer, and a claim holds its person: neither waits for the other without end."""
    study = add_small_study(campaign, items=3 * 8 * 3)  # enough if both of rita's jobs get a HIT of their own in each round
    rita = people.find_by_token(campaign, people.invite(campaign, "rita", "reviewer")).id
    people.give_consent(campaign, study, rita)
    ben = add_annotator(campaign, study)
    for _ in range(8):
        done = submit_hit(campaign, study, ben)
        outcomes = in_parallel(
            [lambda: submit_hit(campaign, study, rita), lambda done=done: review(campaign, done, rita, "approve")] * 2
        )
        assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)], outcomes
    verify(campaign)


def test_late_answers_can_be_reviewed_but_never_counted(campaign, clock):
    study, anna, mine = begun(campaign, items=3)
    ben = add_annotator(campaign, study)
    clock.wait(61)
    other = claim_hit(campaign, study, ben)
    submit(campaign, mine, anna, THREE)
    assert review(campaign, mine, None, "approve") is False
    submit(campaign, other, ben, THREE)
    assert review(campaign, mine, None, "reject") is False
    assert state_of(campaign, other) == "done"
    verify(campaign)


def test_review_needs_a_submitted_hit_and_a_known_verdict(campaign):
    _, anna, mine = begun(campaign)
    for token in (mine, "nosuch"):
        with pytest.raises(NotFoundError):
            review(campaign, token, None, "approve")
    submit(campaign, mine, anna, THREE)
    with pytest.raises(CrossmatchError, match="expected one of approve, reject, reassign, undo"):
        review(campaign, mine, None, "praise")


def test_a_quiz_is_not_reviewed(small):
    study = add_small_study(small, "recipe.quiz=2", gold_per_kind=2)
    anna = add_annotator(small, study)
    quiz = claim_hit(small, study, anna)
    submit(small, quiz, anna, answers_to(hit_of(small, quiz)))
    with pytest.raises(NotFoundError):
        review(small, quiz, None, "approve")


# Drafts


def drafted(campaign, claim_id):
    hit = hit_of(campaign, claim_id)
    return hit.draft_number, hit.draft_answers


def test_an_older_draft_never_replaces_a_newer_one(campaign):
    _, anna, mine = begun(campaign)
    for number, text in ((2, "second"), (1, "first"), (2, "second again"), (5, "fifth"), (4, "fourth")):
        save_draft(campaign, mine, anna, number, [{"match": text}])
    assert drafted(campaign, mine) == (5, [{"match": "fifth"}])


def test_draft_is_deleted_by_the_submission(campaign):
    _, anna, mine = begun(campaign)
    save_draft(campaign, mine, anna, 1, [{"match": "no"}])
    submit(campaign, mine, anna, THREE)
    save_draft(campaign, mine, anna, 2, [{"match": "no"}])
    assert drafted(campaign, mine) == (0, None)


def test_no_draft_remains_after_a_concurrent_submission(campaign):
    for n in range(8):
        _, anna, mine = begun(campaign, name=f"study-{n}")
        in_parallel([lambda: save_draft(campaign, mine, anna, 1, [{"match": "no"}]), lambda: submit(campaign, mine, anna, THREE)])  # noqa: B023
    with campaign.read_transaction() as connection:
        assert connection.execute(select(draft)).all() == []


def test_draft_for_another_person_is_refused(small):
    study, _, mine = begun(small)
    with pytest.raises(NotFoundError):
        save_draft(small, mine, add_annotator(small, study), 1, [])


# Completion


def code_of(campaign, study, who, name):
    with campaign.read_transaction() as connection:
        return completion_code(campaign, connection, study, Person(who, name, "annotator", 0))


def test_completion_code_requires_a_submission(campaign):
    url = "https://platform.example/done?cc={code}&who={person}"
    study = add_small_study(campaign, f"recipe.completion_url={url}")
    anna = add_annotator(campaign, study, "anna & co")
    assert code_of(campaign, study, anna, "anna & co") is None
    mine = claim_hit(campaign, study, anna)
    assert code_of(campaign, study, anna, "anna & co") is None
    with pytest.raises(CrossmatchError):
        submit(campaign, mine, anna, [])
    assert code_of(campaign, study, anna, "anna & co") is None
    submit(campaign, mine, anna, THREE)
    code, where = code_of(campaign, study, anna, "anna & co")
    assert len(code) == 10
    assert where == f"https://platform.example/done?cc={code}&who=anna%20%26%20co"
    assert code != code_of(campaign, study, anna, "ben")[0]


def test_a_quiz_earns_no_code(small):
    study = add_small_study(small, "recipe.quiz=2", "recipe.completion_code=SHARED", gold_per_kind=2)
    anna = add_annotator(small, study)
    quiz = claim_hit(small, study, anna)
    submit(small, quiz, anna, answers_to(hit_of(small, quiz)))
    assert code_of(small, study, anna, "anna") is None
    submit_hit(small, study, anna)
    assert code_of(small, study, anna, "anna") == ("SHARED", "")


def test_reasons_are_required_after_weak_answers(small):
    study = create_study(small, design_of("recipe.batch=1"), [NewItem("p", ("a.jpg",), ("x",))])
    anna = add_annotator(small, study)
    mine = claim_hit(small, study, anna)
    with pytest.raises(CrossmatchError, match="Item 1: the question 'reason' has no answer"):
        submit(small, mine, anna, [{"match": "weak-no"}])
    values = {"match": "weak-no", "reason": ["wrong"], "error": ["colour", "quantity"]}
    submit(small, mine, anna, [values])
    assert read_submissions(small, study).answers[mine] == [{**values, "error": ["quantity", "colour"]}]
