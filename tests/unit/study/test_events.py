"""The past: events are chained, and every way to tamper with the database is found."""

import json
import shutil
import threading

import pytest
from sqlalchemy import delete, insert, select, text, update

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import events
from crossmatch.study.assign import claim_hit, submit
from crossmatch.study.schema import barred, claim, event, exclusion, head, hit_item, item, member, person, slot, study
from crossmatch.study.store import open_campaign
from crossmatch.study.verdicts import review, set_open
from crossmatch.study.verify import verify
from study_lab import GOLDEN, Clock, a_study, answers_to, careless, hit_of, new_campaign, someone, work


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """The folder of a campaign in which everything has happened, on SQLite."""
    folder, clock = tmp_path_factory.mktemp("lived") / "campaign", Clock()
    with new_campaign(folder, "", clock) as campaign:
        live(campaign, clock)
    return folder


@pytest.fixture
def lived(memory, tmp_path):
    """A copy of it."""
    shutil.copytree(memory, tmp_path / "copy")
    campaign = open_campaign(tmp_path / "copy", Clock())
    careless(campaign)
    yield campaign
    campaign.close()


@pytest.fixture
def lived_on_both(campaign, clock):
    return live(campaign, clock)


def live(campaign, clock):
    """Two studies, quizzes, late answers, reviews, held and open slots."""
    first = a_study(campaign, *GOLDEN, "recipe.people=2", "recipe.quiz=2", items=15, golden=7, name="first")
    a_study(campaign, items=3, name="second", excludes=["first"])
    people = [someone(campaign, first, name) for name in ("anna", "ben", "carla", "dan")]
    for who in people:
        quiz = claim_hit(campaign, first, who)
        submit(campaign, quiz, who, answers_to(hit_of(campaign, quiz)))
    anna, ben, carla, dan = people
    slow = claim_hit(campaign, first, anna)
    clock.wait(61)
    for who in (ben, carla, dan):
        work(campaign, first, who)
    submit(campaign, slow, anna, answers_to(hit_of(campaign, slow)))
    work(campaign, first, ben, wrong=True)
    review(campaign, work(campaign, first, carla, wrong=True), None, "reassign")
    review(campaign, work(campaign, first, dan, wrong=True), None, "approve")
    claim_hit(campaign, first, ben)
    set_open(campaign, first, False)
    verify(campaign)
    return campaign


def do(campaign, statement):
    with campaign.writing() as connection:
        return connection.execute(statement)


def first_of(campaign, asked):
    with campaign.reading() as connection:
        return connection.execute(asked.limit(1)).one()


def rehashed(campaign, study_id=1):
    """Chain all events anew, as somebody would who knows how; the head too."""
    previous = events.FIRST
    with campaign.writing() as connection:
        for row in connection.execute(select(event).where(event.c.study == study_id).order_by(event.c.number)).all():
            found = events.link(previous, study_id, row.number, row.at, row.kind, row.person, row.claim, row.body)
            mine = (event.c.study == study_id, event.c.number == row.number)
            connection.execute(update(event).where(*mine).values(previous=previous, hash=found))
            previous = found
        last = connection.execute(select(event.c.number).where(event.c.study == study_id).order_by(event.c.number.desc()).limit(1))
        connection.execute(update(head).where(head.c.study == study_id).values(hash=previous, number=last.scalar_one()))


def a_submission(campaign, counted=True):
    word = '%"counted": true%' if counted else '%"counted": false%'
    return first_of(campaign, select(event).where(event.c.kind == "submit", event.c.body.like(word)))


def of(row):
    return (event.c.study == row.study, event.c.number == row.number)


# The chain


def test_events_are_numbered_from_one_and_chained(lived_on_both):
    lived = lived_on_both
    with lived.reading() as connection:
        rows = list(events.events(connection, 1))
        assert [row.number for row in rows] == list(range(1, len(rows) + 1))
        assert [row.previous for row in rows] == [events.FIRST, *(row.hash for row in rows[:-1])]
        assert {row.kind for row in rows} <= set(events.KINDS)
        assert [row.number for row in events.events(connection, 1, after=len(rows) - 1)] == [len(rows)]
    assert events.check_chain(lived, 1) == (len(rows), rows[-1].hash)


def test_time_may_be_told_in_whole_seconds(small):
    study_id = a_study(small)
    with small.writing() as connection:
        events.append(connection, study_id, 1_700_000_000, "open")
    verify(small)


def test_a_changed_answer_breaks_the_chain(lived_on_both):
    lived = lived_on_both
    row = a_submission(lived)
    do(lived, update(event).where(*of(row)).values(body=row.body.replace('"yes"', '"no"', 1)))
    with pytest.raises(CrossmatchError, match=f"event {row.number} of study 1 was changed"):
        verify(lived)


@pytest.mark.parametrize(
    ("column", "value"), [("at", 5.0), ("kind", "claim"), ("person", 2), ("claim", "x"), ("previous", "0" * 64)]
)
def test_every_part_of_an_event_is_hashed(lived, column, value):
    row = a_submission(lived)
    value = 1 if column == "person" and row.person == 2 else value
    do(lived, update(event).where(*of(row)).values({column: value}))
    with pytest.raises(CrossmatchError, match=f"event {row.number} of study 1 was changed"):
        verify(lived)


def test_a_removed_event_is_missed(lived):
    row = a_submission(lived)
    do(lived, delete(event).where(*of(row)))
    with pytest.raises(CrossmatchError, match=f"event {row.number} of study 1 is missing"):
        verify(lived)


def test_an_inserted_event_is_found(lived):
    number, last = events.check_chain(lived, 1)
    values = {"study": 1, "number": number + 1, "at": 1.0, "kind": "review", "person": None, "claim": None, "body": "{}"}
    do(lived, insert(event).values(**values, previous=last, hash="f" * 64))
    with pytest.raises(CrossmatchError, match=f"event {number + 1} of study 1 was changed"):
        verify(lived)


def test_a_truncated_tail_is_found(lived):
    number, _ = events.check_chain(lived, 1)
    do(lived, delete(event).where(event.c.study == 1, event.c.number == number))
    with pytest.raises(CrossmatchError, match=f"ends at event {number - 1}, but {number} were written"):
        verify(lived)


def test_a_tail_that_was_cut_with_its_head_is_found_by_the_tables(lived_on_both):
    lived = lived_on_both
    row = first_of(lived, select(event).where(event.c.study == 1, event.c.kind == "submit").order_by(event.c.number.desc()))
    do(lived, delete(event).where(event.c.study == 1, event.c.number >= row.number))
    rehashed(lived)
    events.check_chain(lived, 1)
    with pytest.raises(CrossmatchError, match="first"):
        verify(lived)


def test_events_that_were_chained_anew_do_not_hide_another_person(lived):
    row = a_submission(lived)
    other = 2 if row.person != 2 else 1
    do(lived, update(event).where(event.c.claim == row.claim).values(person=other))
    rehashed(lived)
    with pytest.raises(CrossmatchError, match="first, claims"):
        verify(lived)


def test_events_that_were_chained_anew_do_not_hide_a_second_answer(lived):
    row = a_submission(lived)
    number, _ = events.check_chain(lived, 1)
    told = {**row._mapping, "number": number + 1}
    do(lived, insert(event).values(**told))
    rehashed(lived)
    with pytest.raises(CrossmatchError, match="submits what was submitted before"):
        verify(lived)


def test_answers_to_other_items_are_found(lived):
    row = a_submission(lived)
    body = json.loads(row.body)
    body["answers"][0]["item"] = body["answers"][1]["item"]
    do(lived, update(event).where(*of(row)).values(body=json.dumps(body)))
    rehashed(lived)
    with pytest.raises(CrossmatchError, match="answered other items than those of its HIT"):
        verify(lived)


# The tables

SLOT = {"open": select(slot).where(slot.c.state == "open"), "held": select(slot).where(slot.c.state == "held"),
        "review": select(slot).where(slot.c.state == "review"), "done": select(slot).where(slot.c.state == "done")}  # fmt: skip


@pytest.mark.parametrize(
    ("of_state", "values"),
    [
        ("open", {"state": "done"}),
        ("open", {"state": "review"}),
        ("held", {"state": "done"}),
        ("held", {"state": "open", "person": None, "claim": None}),
        ("done", {"state": "open", "person": None, "claim": None}),
        ("done", {"state": "review"}),
        ("review", {"state": "done"}),
        ("done", {"claim": "0" * 32}),
        ("done", {"person": None}),
    ],
)
def test_a_slot_that_was_changed_is_found(lived, of_state, values):
    row = first_of(lived, SLOT[of_state].where(slot.c.study == 1))
    do(lived, update(slot).where(slot.c.id == row.id).values(**values))
    with pytest.raises(CrossmatchError, match="first, slots"):
        verify(lived)


def test_a_slot_that_was_added_or_removed_is_found(lived):
    row = first_of(lived, SLOT["open"].where(slot.c.study == 1))
    do(lived, delete(slot).where(slot.c.id == row.id))
    with pytest.raises(CrossmatchError, match="first, slots"):
        verify(lived)
    do(lived, insert(slot).values(**row._mapping))
    verify(lived)
    do(lived, insert(slot).values(study=1, hit=row.hit, number=7, state="open"))
    with pytest.raises(CrossmatchError, match="first, slots"):
        verify(lived)


@pytest.mark.parametrize(
    "values", [{"counted": False}, {"doubt": True}, {"verdict": "approve"}, {"submitted": 1.0}, {"submitted": None}, {"event": 1}]
)
def test_a_claim_that_was_changed_is_found(lived, values):
    row = first_of(lived, select(claim).where(claim.c.counted, ~claim.c.doubt, claim.c.verdict.is_(None)))
    do(lived, update(claim).where(claim.c.id == row.id).values(**values))
    with pytest.raises(CrossmatchError, match="first, claims"):
        verify(lived)


def test_a_claim_that_was_given_to_another_person_is_found(lived):
    row = first_of(lived, select(claim).where(claim.c.counted))
    do(lived, update(claim).where(claim.c.id == row.id).values(person=1 if row.person != 1 else 2))
    with pytest.raises(CrossmatchError, match="first, claims"):
        verify(lived)


def test_an_invented_claim_is_found(lived):
    row = first_of(lived, select(claim).where(claim.c.counted))
    do(lived, insert(claim).values(**{**row._mapping, "id": "f" * 32}))
    with pytest.raises(CrossmatchError, match="first, claims"):
        verify(lived)


@pytest.mark.parametrize("change", ["forget", "invent"])
def test_whoever_could_get_an_item_twice_or_is_kept_from_one_is_found(lived, change):
    row = first_of(lived, select(barred))
    if change == "forget":
        do(lived, delete(barred).where(barred.c.person == row.person, barred.c.hit == row.hit))
    else:
        had = select(barred.c.hit).where(barred.c.person == row.person)
        other = first_of(lived, select(hit_item).where(hit_item.c.hit.not_in(had)))
        do(lived, insert(barred).values(person=row.person, hit=other.hit))
    with pytest.raises(CrossmatchError, match=r"(first|second), HITs that people may not have"):
        verify(lived)


@pytest.mark.parametrize("values", [{"qualified": False}, {"submitted": 0}, {"consented": False}])
def test_a_member_who_was_changed_is_found(lived, values):
    do(lived, update(member).where(member.c.study == 1, member.c.person == 2).values(**values))
    with pytest.raises(CrossmatchError, match="first, people"):
        verify(lived)


def test_people_whose_names_were_swapped_are_found(lived):
    for number, name in ((1, "nobody"), (2, "anna"), (1, "ben")):
        do(lived, update(person).where(person.c.id == number).values(key=name))
    with pytest.raises(CrossmatchError, match="was called otherwise when they agreed"):
        verify(lived)


@pytest.mark.parametrize(
    "statement",
    [
        update(item).where(item.c.key == "pair-0").values(captions=["another caption"]),
        update(item).where(item.c.key.like("positive%"), item.c.study == 1).values(gold={"match": ["no"]}),
        update(item).where(item.c.key == "pair-0").values(gold={"match": ["no"]}),
        update(item).where(item.c.key == "pair-0").values(images=["b.jpg"]),
        update(item).where(item.c.key == "pair-0", item.c.study == 1).values(key="pair-99"),
        update(study).where(study.c.id == 1).values(seed="another"),
        update(study).where(study.c.id == 1).values(open=True),
        update(hit_item).where(hit_item.c.hit == 1, hit_item.c.place == 0).values(place=50),
        text("UPDATE study SET design = '{}' WHERE id = 2"),
    ],
)
def test_what_is_asked_cannot_be_changed_afterwards(lived, statement):
    do(lived, statement)
    with pytest.raises(CrossmatchError, match=r"not those of its beginning|do not say that it is open"):
        verify(lived)


def test_exclusions_cannot_be_lifted(lived):
    do(lived, delete(exclusion))
    with pytest.raises(CrossmatchError, match="do not exclude those"):
        verify(lived)


def test_a_live_campaign_can_be_verified_at_any_time(campaign):
    """Whoever verifies sees one state, even while others go on working."""
    study_id, ended, faults = a_study(campaign, items=60), threading.Event(), []

    def keep_verifying():
        while not ended.is_set():
            try:
                verify(campaign)
            except CrossmatchError as error:
                faults.append(error)

    watcher = threading.Thread(target=keep_verifying)
    watcher.start()
    who = someone(campaign, study_id)
    for _ in range(20):
        work(campaign, study_id, who)
    ended.set()
    watcher.join()
    assert not faults
