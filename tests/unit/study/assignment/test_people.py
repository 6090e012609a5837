"""People: tokens are kept as hashes, a new one ends the old one's sessions, and nobody comes in as somebody else."""

import pytest
from sqlalchemy import select, text

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.study.assignment import people
from crossmatch.study.assignment.claims import claim_hit
from crossmatch.study.assignment.review import set_open
from crossmatch.study.database.schema import member, person, study
from crossmatch.study.database.verification import verify
from study_lab import add_annotator, add_small_study, link_of, refusal_reason


def everybody(campaign):
    with campaign.read_transaction() as connection:
        return connection.execute(select(person).order_by(person.c.id)).all()


# Tokens


def test_token_is_stored_only_as_a_hash(campaign):
    token = people.invite(campaign, "anna", "owner")
    (row,) = everybody(campaign)
    assert row.token == people.hash_token(token)
    assert len(token) >= 22  # 128 bits
    assert token not in str(row)
    if campaign.engine.dialect.name == "sqlite":
        with campaign.write_transaction() as connection:
            connection.execute(text("SELECT 1"))
        content = b"".join(path.read_bytes() for path in campaign.folder.rglob("*") if path.is_file())
        assert token.encode() not in content


def test_only_the_exact_token_gives_access(campaign):
    token = people.invite(campaign, "anna", "reviewer")
    assert people.find_by_token(campaign, token).name == "anna"
    for wrong in ("", token[:-1], token + "a", token.swapcase(), people.hash_token(token), "' OR 1=1 --", "%"):
        assert people.find_by_token(campaign, wrong) is None


def test_a_new_invitation_ends_the_old_token_and_its_sessions(campaign):
    old = people.invite(campaign, "anna", "owner")
    before = people.find_by_token(campaign, old)
    new = people.invite(campaign, "anna", "owner")
    assert people.find_by_token(campaign, old) is None
    after = people.find_by_token(campaign, new)
    assert (after.id, after.session_number) == (before.id, before.session_number + 1)


def test_role_cannot_change(campaign):
    people.invite(campaign, "anna", "annotator")
    for role in ("owner", "reviewer"):
        with pytest.raises(CrossmatchError, match="'anna' already has the role annotator"):
            people.invite(campaign, "anna", role)
    with pytest.raises(UsageError, match="expected one of owner, reviewer, annotator"):
        people.invite(campaign, "ben", "admin")


# Names


@pytest.mark.parametrize(
    "name", ["", "   ", "a\x00b", "a\nb", "a\r\nSet-Cookie: x=1", "a\tb", "\u202eevil", "x" * 201, "\ud800", "\u200b"]
)
def test_a_name_is_printable_and_of_some_length(small, name):
    with pytest.raises(CrossmatchError, match="printable characters"):
        people.invite(small, name)
    link = link_of(small, add_small_study(small))
    if name:  # nothing at all is a guest
        with pytest.raises(CrossmatchError, match="printable characters"):
            people.join_study(small, link, name)


@pytest.mark.parametrize(
    "name", ["anna", "Zoë", "<script>alert(1)</script>", "=1+1", "'; DROP TABLE person; --", "a" * 200, "张伟", "a%b_c"]
)
def test_any_printable_name_is_accepted(campaign, name):
    study_id = add_small_study(campaign)
    _, who = people.join_study(campaign, link_of(campaign, study_id), f" {name} ")
    assert who.name == name
    assert [row.key for row in everybody(campaign)] == [name]


def test_taken_name_gives_no_access(campaign):
    study_id = add_small_study(campaign)
    add_annotator(campaign, study_id, "anna")
    people.invite(campaign, "boss", "owner")
    for name in ("anna", " anna ", "boss"):
        with pytest.raises(CrossmatchError, match="name is already taken"):
            people.join_study(campaign, link_of(campaign, study_id), name)


def test_joined_person_is_an_annotator_without_a_token(campaign):
    study_id = add_small_study(campaign)
    joined, who = people.join_study(campaign, link_of(campaign, study_id), "")
    assert joined == study_id
    assert (who.role, everybody(campaign)[0].token) == ("annotator", None)
    assert who.name.startswith("guest-")


def test_guests_get_different_names(campaign):
    study_id = add_small_study(campaign)
    assert len({people.join_study(campaign, link_of(campaign, study_id))[1].name for _ in range(5)}) == 5


@pytest.mark.parametrize("link", ["", "nosuch", "%", "' OR ''='"])
def test_unknown_link_is_refused(campaign, link):
    add_small_study(campaign)
    with pytest.raises(CrossmatchError, match="does not belong to a study"):
        people.join_study(campaign, link)


def test_links_cannot_be_guessed(small):
    links = {link_of(small, add_small_study(small, name=f"study-{n}")) for n in range(3)}
    assert len(links) == 3
    assert all(len(link) >= 22 for link in links)


# Qualification


@pytest.mark.parametrize(
    ("tasks", "share", "fits"), [(500, 0.97, True), (499, 1.0, False), (9000, 0.94, False), (None, None, False)]
)
def test_consent_requires_past_tasks(campaign, tasks, share, fits):
    study_id = add_small_study(campaign, "recipe.past_tasks=500", "recipe.past_accepted=0.95")
    anna = people.find_by_token(campaign, people.invite(campaign, "anna", past_tasks=tasks, past_accepted=share)).id
    if fits:
        people.give_consent(campaign, study_id, anna)
        claim_hit(campaign, study_id, anna)
    else:
        with pytest.raises(CrossmatchError, match="requires 500 earlier tasks, of which 95 % were accepted"):
            people.give_consent(campaign, study_id, anna)
        assert refusal_reason(campaign, study_id, anna) == "agree"


def test_refused_person_leaves_the_name_free(campaign):
    study_id = add_small_study(campaign, "recipe.past_tasks=500")
    for _ in range(2):
        with pytest.raises(CrossmatchError, match="requires 500 earlier tasks"):
            people.join_study(campaign, link_of(campaign, study_id), "anna")
    assert everybody(campaign) == []


def test_new_invitation_keeps_the_past_tasks(campaign):
    people.invite(campaign, "anna", past_tasks=500, past_accepted=0.9)
    people.invite(campaign, "anna")
    people.invite(campaign, "anna", past_tasks=600)
    assert [(row.past_tasks, row.past_accepted) for row in everybody(campaign)] == [(600, 0.9)]


def test_a_list_of_people_is_read_with_their_past(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("person,past_tasks,past_accepted\nanna,500,0.95\nben,,\n", encoding="utf-8")
    assert people.read_people_csv(path) == [("anna", 500, 0.95), ("ben", None, None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name\nanna\n", "no column `person`"),
        ("person\n", "no column `person`"),
        ("person,past_tasks\nanna,many\n", "line 2: "),
        ("person,past_tasks\nanna,-1\n", "past_tasks must be at least 0"),
        ("person,past_accepted\nanna,nan\n", "line 2: past_tasks|line 2"),
        ("person,past_accepted\nanna,95\n", "between 0 and 1"),
        ("person,past_accepted\nanna,1\n\x00,1\n", "printable|cannot be read"),
    ],
)
def test_invalid_list_of_people_names_the_line(tmp_path, text, message):
    path = tmp_path / "people.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CrossmatchError, match=message):
        people.read_people_csv(path)


def test_repeated_consent_has_no_effect(campaign):
    study_id = add_small_study(campaign)
    anna = add_annotator(campaign, study_id)
    people.give_consent(campaign, study_id, anna)
    with campaign.read_transaction() as connection:
        assert len(connection.execute(select(member)).all()) == 1
        assert connection.execute(select(study.c.open)).scalar_one()
    assert verify(campaign)[0].events == 2


def test_a_closed_study_can_be_joined_for_what_is_left_of_it(campaign):
    """The page refuses new people; whoever is in already may finish."""
    study_id = add_small_study(campaign)
    anna = add_annotator(campaign, study_id)
    set_open(campaign, study_id, False)
    assert refusal_reason(campaign, study_id, anna) == "closed"
