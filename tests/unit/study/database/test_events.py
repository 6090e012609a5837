"""Events are chained, and every change of the database is detected."""

import json
import shutil
import threading

import pytest
from sqlalchemy import delete, insert, select, text, update

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment.claims import claim_hit, submit
from crossmatch.study.assignment.review import review, set_open
from crossmatch.study.database import events
from crossmatch.study.database.campaign import open_campaign
from crossmatch.study.database.schema import barred, claim, event, exclusion, head, hit_item, item, member, person, slot, study
from crossmatch.study.database.verification import verify
from study_lab import (
    WITH_GOLD,
    Clock,
    add_annotator,
    add_small_study,
    answers_to,
    disable_sync,
    hit_of,
    new_campaign,
    submit_hit,
    verify_chain,
)


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
    disable_sync(campaign)
    yield campaign
    campaign.close()


@pytest.fixture
def lived_on_both(campaign, clock):
    return live(campaign, clock)


def live(campaign, clock):
    """Two studies, quizzes, late answers, reviews, held and open slots."""
    first = add_small_study(campaign, *WITH_GOLD, "recipe.people=2", "recipe.quiz=2", items=15, gold_per_kind=7, name="first")
    add_small_study(campaign, items=3, name="second", excludes=["first"])
    people = [add_annotator(campaign, first, name) for name in ("anna", "ben", "carla", "dan")]
    for who in people:
        quiz = claim_hit(campaign, first, who)
        submit(campaign, quiz, who, answers_to(hit_of(campaign, quiz)))
    anna, ben, carla, dan = people
    slow = claim_hit(campaign, first, anna)
    clock.wait(61)
    for who in (ben, carla, dan):
        submit_hit(campaign, first, who)
    submit(campaign, slow, anna, answers_to(hit_of(campaign, slow)))
    submit_hit(campaign, first, ben, wrong=True)
    review(campaign, submit_hit(campaign, first, carla, wrong=True), None, "reassign")
    review(campaign, submit_hit(campaign, first, dan, wrong=True), None, "approve")
    claim_hit(campaign, first, ben)
    set_open(campaign, first, False)
    verify(campaign)
    return campaign


def do(campaign, statement):
    with campaign.write_transaction() as connection:
        return connection.execute(statement)


def first_of(campaign, asked):
    with campaign.read_transaction() as connection:
        return connection.execute(asked.limit(1)).one()


def rehashed(campaign, study_id=1):
    """Chain all events anew, as somebody would who knows how; the head too."""
    previous = events.INITIAL_HASH
    with campaign.write_transaction() as connection:
        for row in connection.execute(select(event).where(event.c.study == study_id).order_by(event.c.number)).all():
            found = events.event_hash(previous, study_id, row.number, row.at, row.kind, row.person, row.claim, row.body)
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


def require_fault(campaign, message):
    with pytest.raises(CrossmatchError, match=message):
        verify(campaign)


# The chain


def test_events_are_numbered_from_one_and_chained(lived_on_both):
    lived = lived_on_both
    with lived.read_transaction() as connection:
        rows = list(events.read_events(connection, 1))
        assert [row.number for row in rows] == list(range(1, len(rows) + 1))
        assert [row.previous for row in rows] == [events.INITIAL_HASH, *(row.hash for row in rows[:-1])]
        assert {row.kind for row in rows} <= {"new", "consent", "claim", "submit", "review", "open", "close"}
        assert [row.number for row in events.read_events(connection, 1, after=len(rows) - 1)] == [len(rows)]
    assert verify_chain(lived, 1) == (len(rows), rows[-1].hash)


def test_event_time_can_be_an_integer(small):
    study_id = add_small_study(small)
    with small.write_transaction() as connection:
        events.append_event(connection, study_id, 1_700_000_000, "open")
    verify(small)


def test_a_changed_answer_breaks_the_chain(lived_on_both):
    lived = lived_on_both
    row = a_submission(lived)
    do(lived, update(event).where(*of(row)).values(body=row.body.replace('"yes"', '"no"', 1)))
    require_fault(lived, f"event {row.number} was changed")


@pytest.mark.parametrize(
    ("column", "value"), [("at", 5.0), ("kind", "claim"), ("person", 2), ("claim", "x"), ("previous", "0" * 64)]
)
def test_every_part_of_an_event_is_hashed(lived, column, value):
    row = a_submission(lived)
    value = 1 if column == "person" and row.person == 2 else value
    do(lived, update(event).where(*of(row)).values({column: value}))
    require_fault(lived, f"event {row.number} was changed")


def test_removed_event_is_detected(lived):
    row = a_submission(lived)
    do(lived, delete(event).where(*of(row)))
    require_fault(lived, f"event {row.number} is missing")


def test_inserted_event_is_detected(lived):
    number, last = verify_chain(lived, 1)
    values = {"study": 1, "number": number + 1, "at": 1.0, "kind": "review", "person": None, "claim": None, "body": "{}"}
    do(lived, insert(event).values(**values, previous=last, hash="f" * 64))
    require_fault(lived, f"event {number + 1} was changed")


def test_truncated_log_is_detected(lived):
    number, _ = verify_chain(lived, 1)
    do(lived, delete(event).where(event.c.study == 1, event.c.number == number))
    require_fault(lived, f"ends at event {number - 1}, but {number} events were written")


def test_truncated_log_with_matching_head_is_detected_by_the_tables(lived_on_both):
    lived = lived_on_both
    row = first_of(lived, select(event).where(event.c.study == 1, event.c.kind == "submit").order_by(event.c.number.desc()))
    do(lived, delete(event).where(event.c.study == 1, event.c.number >= row.number))
    rehashed(lived)
    verify_chain(lived, 1)
    require_fault(lived, "first")


def test_rehashed_log_does_not_hide_another_person(lived):
    row = a_submission(lived)
    other = 2 if row.person != 2 else 1
    do(lived, update(event).where(event.c.claim == row.claim).values(person=other))
    rehashed(lived)
    require_fault(lived, "first, claims")


def test_rehashed_log_does_not_hide_a_second_answer(lived):
    row = a_submission(lived)
    number, _ = verify_chain(lived, 1)
    values = {**row._mapping, "number": number + 1}
    do(lived, insert(event).values(**values))
    rehashed(lived)
    require_fault(lived, "submits a submitted HIT")


def test_answers_to_wrong_items_are_detected(lived):
    row = a_submission(lived)
    body = json.loads(row.body)
    body["answers"][0]["item"] = body["answers"][1]["item"]
    do(lived, update(event).where(*of(row)).values(body=json.dumps(body)))
    rehashed(lived)
    require_fault(lived, "answered other items than those of its HIT")


# The tables

FIRST_STUDY = slot.c.study == 1
COUNTED = select(claim).where(claim.c.counted, ~claim.c.doubt, claim.c.verdict.is_(None))


@pytest.mark.parametrize(
    ("state", "values"),
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
def test_changed_slot_is_detected(lived, state, values):
    row = first_of(lived, select(slot).where(slot.c.state == state, FIRST_STUDY))
    do(lived, update(slot).where(slot.c.id == row.id).values(**values))
    require_fault(lived, "first, slots")


def test_added_or_removed_slot_is_detected(lived):
    row = first_of(lived, select(slot).where(slot.c.state == "open", FIRST_STUDY))
    do(lived, delete(slot).where(slot.c.id == row.id))
    require_fault(lived, "first, slots")
    do(lived, insert(slot).values(**row._mapping))
    verify(lived)
    do(lived, insert(slot).values(study=1, hit=row.hit, number=7, state="open"))
    require_fault(lived, "first, slots")


@pytest.mark.parametrize(
    "values",
    [
        {"counted": False},
        {"doubt": True},
        {"verdict": "approve"},
        {"submitted": 1.0},
        {"submitted": None},
        {"event": 1},
        {"person": None},  # another person
    ],
)
def test_changed_claim_is_detected(lived, values):
    row = first_of(lived, COUNTED)
    values = {"person": 1 if row.person != 1 else 2} if "person" in values else values
    do(lived, update(claim).where(claim.c.id == row.id).values(**values))
    require_fault(lived, "first, claims")


def test_added_claim_is_detected(lived):
    row = first_of(lived, select(claim).where(claim.c.counted))
    do(lived, insert(claim).values(**{**row._mapping, "id": "f" * 32}))
    require_fault(lived, "first, claims")


@pytest.mark.parametrize("change", ["forget", "invent"])
def test_changed_barred_hits_are_detected(lived, change):
    row = first_of(lived, select(barred))
    if change == "forget":
        do(lived, delete(barred).where(barred.c.person == row.person, barred.c.hit == row.hit))
    else:
        had = select(barred.c.hit).where(barred.c.person == row.person)
        other = first_of(lived, select(hit_item).where(hit_item.c.hit.not_in(had)))
        do(lived, insert(barred).values(person=row.person, hit=other.hit))
    require_fault(lived, r"(first|second), barred HITs")


@pytest.mark.parametrize("values", [{"qualified": False}, {"submitted": 0}, {"consented": False}])
def test_changed_membership_is_detected(lived, values):
    do(lived, update(member).where(member.c.study == 1, member.c.person == 2).values(**values))
    require_fault(lived, "first, people")


def test_swapped_names_are_detected(lived):
    for number, name in ((1, "nobody"), (2, "anna"), (1, "ben")):
        do(lived, update(person).where(person.c.id == number).values(key=name))
    require_fault(lived, "was renamed after they agreed")


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
def test_changed_content_is_detected(lived, statement):
    do(lived, statement)
    require_fault(lived, r"changed after the study was created|does not say that the study is open")


def test_exclusions_cannot_be_lifted(lived):
    do(lived, delete(exclusion))
    require_fault(lived, "exclusions between studies differ")


def test_a_live_campaign_can_be_verified_at_any_time(campaign):
    """Whoever verifies sees one state, even while others go on working."""
    study_id, ended, faults = add_small_study(campaign, items=60), threading.Event(), []

    def keep_verifying():
        while not ended.is_set():
            try:
                verify(campaign)
            except CrossmatchError as error:
                faults.append(error)

    watcher = threading.Thread(target=keep_verifying)
    watcher.start()
    who = add_annotator(campaign, study_id)
    for _ in range(20):
        submit_hit(campaign, study_id, who)
    ended.set()
    watcher.join()
    assert not faults
