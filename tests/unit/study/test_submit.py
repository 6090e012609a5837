"""Submissions, reviews and drafts: one answer each, by what the item declares, and nothing is refused for a wrong gold answer."""

import math

import pytest
from sqlalchemy import select

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import people
from crossmatch.study.assign import claim_hit, keep_draft, submit
from crossmatch.study.begin import NewItem, create_study
from crossmatch.study.design import load_design
from crossmatch.study.people import Person, completion
from crossmatch.study.schema import draft, slot
from crossmatch.study.shown import NotYours
from crossmatch.study.verdicts import review
from crossmatch.study.verify import verify
from study_lab import GOLDEN, a_study, answers_to, book, design_of, hit_of, in_parallel, refused, row_of, someone, work

THREE = [{"match": "yes"}] * 3


def begun(campaign, *overrides, **more):
    """A study, a person, and a claim of theirs."""
    study = a_study(campaign, *overrides, **more)
    who = someone(campaign, study)
    return study, who, claim_hit(campaign, study, who)


def state_of(campaign, claim_id):
    with campaign.reading() as connection:
        return connection.execute(select(slot.c.state).where(slot.c.id == row_of(campaign, claim_id).slot)).scalar_one()


# Once


def test_a_repeated_submission_is_one_answer_and_the_first_stands(campaign):
    study, anna, mine = begun(campaign)
    first = submit(campaign, mine, anna, THREE)
    assert (first.again, first.counted) == (False, True)
    second = submit(campaign, mine, anna, [{"match": "no"}] * 3)
    assert (second.again, second.counted, second.late) == (True, True, False)
    assert submit(campaign, mine, anna, "nonsense").again  # nothing is looked at any more
    assert book(campaign, study).answers == {mine: THREE}
    verify(campaign)


def test_two_submissions_at_once_are_one_answer(campaign):
    study, anna, mine = begun(campaign)
    given = ["yes", "no", "yes", "no"]
    receipts = in_parallel([lambda match=match: submit(campaign, mine, anna, [{"match": match}] * 3) for match in given])
    (first,) = [match for receipt, match in zip(receipts, given, strict=True) if not receipt.again]
    assert book(campaign, study).answers == {mine: [{"match": first}] * 3}
    verify(campaign)


def test_nobody_submits_for_another(campaign):
    study, _, mine = begun(campaign)
    ben = someone(campaign, study)
    for token in (mine, "0" * 32, ""):
        with pytest.raises(NotYours, match="there is no such page for you"):
            submit(campaign, token, ben, THREE)
    assert book(campaign, study).answers == {}


@pytest.mark.parametrize(
    "given", [None, [], {}, "yes", THREE[:2], [*THREE, {"match": "yes"}], [{"match": "yes"}, {"match": "yes"}, {"match": "maybe"}],
              [{"match": "yes"}, {"match": "yes"}, {}], [{"match": "yes"}, {"match": "yes"}, None]]
)  # fmt: skip
def test_answers_that_are_not_options_are_refused_and_nothing_is_kept(small, given):
    study, anna, mine = begun(small)
    with pytest.raises(CrossmatchError, match=r"(answers came for 3 items|item 3: .*)\. "):
        submit(small, mine, anna, given)
    assert book(small, study).answers == {}
    assert not submit(small, mine, anna, THREE).again


@pytest.mark.parametrize(
    ("seconds", "kept"),
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
def test_times_are_kept_where_they_make_sense(small, seconds, kept):
    study, anna, mine = begun(small)
    submit(small, mine, anna, THREE, seconds)
    assert book(small, study).bodies[mine]["seconds"] == kept


# Orders


def test_answers_name_things_as_items_declare_them_whatever_stood_where(small):
    """Forty people choose the picture that the item declares first; on the page it stands left or right."""
    items = [NewItem(f"trial-{n}", (f"right-{n}.jpg", f"wrong-{n}.jpg"), ("a caption",)) for n in range(3)]
    study = create_study(small, load_design("bison-verify", ["recipe.people=20", "recipe.batch=3"]), items, seed="seed")
    chosen = []
    for _ in range(20):
        who = someone(small, study)
        mine = claim_hit(small, study, who)
        held = hit_of(small, mine, who)
        places = [next(n for n, name in enumerate(one.images) if name.startswith("right")) for one in held.items]
        submit(small, mine, who, [{"which": f"image-{n}"} for n in places])
        chosen += places
        body = book(small, study).bodies[mine]
        for answer, one in zip(body["answers"], held.items, strict=True):
            assert answer["answer"] == {"which": "image-0"}
            assert answer["orders"] == {"images": list(one.orders["images"])}
            assert answer["item"] == one.item
    assert 15 < sum(chosen) < 45  # both sides


def test_what_is_no_place_stays_what_it_is(small):
    study = create_study(small, load_design("bison-verify"), [NewItem("t", ("a.jpg", "b.jpg"), ("a caption",))], seed="s")
    who = someone(small, study)
    mine = claim_hit(small, study, who)
    submit(small, mine, who, [{"which": "neither"}])
    assert book(small, study).answers[mine] == [{"which": "neither"}]


def test_lists_change_places_as_wholes(small):
    images = tuple(f"{which}-{n}.jpg" for which in "xy" for n in range(3))
    design = load_design("ranking-preference", ["recipe.people=12"])
    study = create_study(small, design, [NewItem("q", images, ("a query",))], seed="seed")
    seen = set()
    for _ in range(12):
        who = someone(small, study)
        mine = claim_hit(small, study, who)
        (one,) = hit_of(small, mine, who).items
        assert one.images in (images, images[3:] + images[:3])
        place = 0 if one.images[0].startswith("y") else 1
        submit(small, mine, who, [{"better": f"list-{place}"}])
        seen.add(place)
        assert book(small, study).answers[mine] == [{"better": "list-1"}]
    assert seen == {0, 1}


def test_blocks_come_in_their_order_and_items_within_them_at_random(small):
    items = [NewItem(f"{block}-{n}", ("a.jpg", "b.jpg"), ("x", "y"), block=block) for n in range(6) for block in ("t2i", "i2t")]
    study = create_study(small, load_design("bivlc-human", ["recipe.people=6"]), items, seed="seed")
    orders = set()
    for _ in range(6):
        who = someone(small, study)
        held = hit_of(small, claim_hit(small, study, who), who)
        assert [one.block for one in held.items] == ["i2t"] * 6 + ["t2i"] * 6
        orders.add(tuple(one.key for one in held.items))
    assert len(orders) > 1


# Gold and reviews


def test_a_wrong_gold_answer_sends_the_hit_to_review_and_never_rejects_it(campaign):
    study, anna, mine = begun(campaign, *GOLDEN, golden=3)
    receipt = submit(campaign, mine, anna, answers_to(hit_of(campaign, mine), wrong=True))
    assert receipt.counted  # as long as nobody says otherwise
    assert (state_of(campaign, mine), row_of(campaign, mine).doubt, row_of(campaign, mine).verdict) == ("review", True, None)
    assert len(book(campaign, study).bodies[mine]["wrong"]) == 2
    assert claim_hit(campaign, study, anna) != mine  # and they may go on
    verify(campaign)


def test_the_receipt_says_nothing_of_gold(small):
    study = a_study(small, *GOLDEN, golden=4, items=6)
    receipts = []
    for wrong in (True, False):
        who = someone(small, study)
        mine = claim_hit(small, study, who)
        answers = answers_to(hit_of(small, mine), wrong=wrong)
        both = [submit(small, mine, who, answers) for _ in "ab"]
        receipts += [(one.again, one.counted, one.late, one.passed) for one in both]
    assert receipts[:2] == receipts[2:]


@pytest.mark.parametrize("wrong", [False, True])
def test_an_approved_hit_counts_and_is_done(campaign, wrong):
    study, anna, mine = begun(campaign, *GOLDEN, golden=2)
    submit(campaign, mine, anna, answers_to(hit_of(campaign, mine), wrong=wrong))
    assert review(campaign, mine, None, "approve") is True
    assert (state_of(campaign, mine), row_of(campaign, mine).counted) == ("done", True)
    assert verify(campaign)[0].study == "eccv-hit"
    assert study


@pytest.mark.parametrize("verdict", ["reject", "reassign"])
def test_a_hit_that_does_not_count_goes_to_another_person(campaign, verdict):
    study, anna, mine = begun(campaign, *GOLDEN, golden=2, items=3)
    submit(campaign, mine, anna, answers_to(hit_of(campaign, mine), wrong=True))
    assert review(campaign, mine, None, verdict) is False
    assert (state_of(campaign, mine), row_of(campaign, mine).verdict) == ("open", verdict)
    assert refused(campaign, study, anna) == "none"
    ben = someone(campaign, study)
    other = work(campaign, study, ben)
    assert row_of(campaign, other).slot == row_of(campaign, mine).slot
    assert review(campaign, mine, None, "approve") is False  # too late: the slot is another's
    assert [row_of(campaign, one).counted for one in (mine, other)] == [False, True]
    assert verify(campaign)[0].answers == 5
    assert list(book(campaign, study).answers) == [mine, other]  # both are kept


def test_two_reviewers_at_once_leave_one_state(campaign):
    for verdicts in (("approve", "reject"), ("reassign", "reject"), ("approve", "reassign")):
        study = a_study(campaign, *GOLDEN, golden=2, items=3, name="-".join(verdicts))
        mine = work(campaign, study, someone(campaign, study), wrong=True)
        found = in_parallel([lambda verdict=verdict, mine=mine: review(campaign, mine, None, verdict) for verdict in verdicts])
        assert all(isinstance(one, bool) for one in found), found
        verify(campaign)


def test_whoever_reviews_may_work_at_the_same_time(campaign):
    """A review names its reviewer, and a claim holds its person: neither waits for the other without end."""
    study = a_study(campaign, items=60)
    rita = people.enter(campaign, people.invite(campaign, "rita", "reviewer")).id
    people.agree(campaign, study, rita)
    ben = someone(campaign, study)
    for _ in range(8):
        done = work(campaign, study, ben)
        found = in_parallel([lambda: work(campaign, study, rita), lambda done=done: review(campaign, done, rita, "approve")] * 2)
        assert not [one for one in found if isinstance(one, Exception)], found
    verify(campaign)


def test_late_answers_can_be_reviewed_but_never_counted(campaign, clock):
    study, anna, mine = begun(campaign, items=3)
    ben = someone(campaign, study)
    clock.wait(61)
    other = claim_hit(campaign, study, ben)
    submit(campaign, mine, anna, THREE)
    assert review(campaign, mine, None, "approve") is False
    submit(campaign, other, ben, THREE)
    assert review(campaign, mine, None, "reject") is False
    assert state_of(campaign, other) == "done"
    verify(campaign)


def test_only_submitted_hits_are_reviewed_and_by_words_that_are_known(campaign):
    _, anna, mine = begun(campaign)
    for token in (mine, "nosuch"):
        with pytest.raises(NotYours):
            review(campaign, token, None, "approve")
    submit(campaign, mine, anna, THREE)
    with pytest.raises(CrossmatchError, match="one of approve, reject, reassign, undo was expected"):
        review(campaign, mine, None, "praise")


def test_a_quiz_is_not_reviewed(small):
    study = a_study(small, "recipe.quiz=2", golden=2)
    anna = someone(small, study)
    quiz = claim_hit(small, study, anna)
    submit(small, quiz, anna, answers_to(hit_of(small, quiz)))
    with pytest.raises(NotYours):
        review(small, quiz, None, "approve")


# Drafts


def drafted(campaign, claim_id):
    return hit_of(campaign, claim_id).draft


def test_an_older_draft_never_replaces_a_newer_one(campaign):
    _, anna, mine = begun(campaign)
    for number, text in ((2, "second"), (1, "first"), (2, "second again"), (5, "fifth"), (4, "fourth")):
        keep_draft(campaign, mine, anna, number, [{"match": text}])
    assert drafted(campaign, mine) == (5, [{"match": "fifth"}])


def test_a_draft_ends_with_the_submission_and_none_follows(campaign):
    _, anna, mine = begun(campaign)
    keep_draft(campaign, mine, anna, 1, [{"match": "no"}])
    submit(campaign, mine, anna, THREE)
    keep_draft(campaign, mine, anna, 2, [{"match": "no"}])
    assert drafted(campaign, mine) == (0, None)


def test_no_draft_slips_in_beside_a_submission(campaign):
    for n in range(8):
        _, anna, mine = begun(campaign, name=f"study-{n}")
        in_parallel([lambda: keep_draft(campaign, mine, anna, 1, [{"match": "no"}]), lambda: submit(campaign, mine, anna, THREE)])  # noqa: B023
    with campaign.reading() as connection:
        assert connection.execute(select(draft)).all() == []


def test_nobody_drafts_for_another(small):
    study, _, mine = begun(small)
    with pytest.raises(NotYours):
        keep_draft(small, mine, someone(small, study), 1, [])


# Completion


def code_of(campaign, study, who, name):
    with campaign.reading() as connection:
        return completion(campaign, connection, study, Person(who, name, "annotator", 0))


def test_a_completion_code_comes_only_after_the_answers(campaign):
    url = "https://platform.example/done?cc={code}&who={person}"
    study = a_study(campaign, f"recipe.completion_url={url}")
    anna = someone(campaign, study, "anna & co")
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
    study = a_study(small, "recipe.quiz=2", "recipe.completion_code=SHARED", golden=2)
    anna = someone(small, study)
    quiz = claim_hit(small, study, anna)
    submit(small, quiz, anna, answers_to(hit_of(small, quiz)))
    assert code_of(small, study, anna, "anna") is None
    work(small, study, anna)
    assert code_of(small, study, anna, "anna") == ("SHARED", "")


def test_reasons_are_asked_of_those_who_are_unsure(small):
    study = create_study(small, design_of("recipe.batch=1"), [NewItem("p", ("a.jpg",), ("x",))])
    anna = someone(small, study)
    mine = claim_hit(small, study, anna)
    with pytest.raises(CrossmatchError, match="item 1: the question 'reason' has no answer"):
        submit(small, mine, anna, [{"match": "weak-no"}])
    given = {"match": "weak-no", "reason": ["wrong"], "error": ["colour", "quantity"]}
    submit(small, mine, anna, [given])
    assert book(small, study).answers[mine] == [{**given, "error": ["quantity", "colour"]}]
