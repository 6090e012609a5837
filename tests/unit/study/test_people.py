"""People: tokens are kept as hashes, a new one ends the old one's sessions, and nobody comes in as somebody else."""

import pytest
from sqlalchemy import select, text

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.study import people
from crossmatch.study.assign import claim_hit
from crossmatch.study.schema import member, person, study
from crossmatch.study.verdicts import set_open
from crossmatch.study.verify import verify
from study_lab import a_study, link_of, refused, someone


def everybody(campaign):
    with campaign.reading() as connection:
        return connection.execute(select(person).order_by(person.c.id)).all()


# Tokens


def test_a_token_is_kept_as_a_hash_and_stands_nowhere(campaign):
    token = people.invite(campaign, "anna", "owner")
    (row,) = everybody(campaign)
    assert row.token == people.hashed(token)
    assert len(token) >= 22  # 128 bits
    assert token not in str(row)
    if campaign.engine.dialect.name == "sqlite":
        with campaign.writing() as connection:
            connection.execute(text("SELECT 1"))
        held = b"".join(path.read_bytes() for path in campaign.folder.rglob("*") if path.is_file())
        assert token.encode() not in held


def test_whoever_has_a_token_enters_and_nobody_else(campaign):
    token = people.invite(campaign, "anna", "reviewer")
    assert people.enter(campaign, token).key == "anna"
    for wrong in ("", token[:-1], token + "a", token.swapcase(), people.hashed(token), "' OR 1=1 --", "%"):
        assert people.enter(campaign, wrong) is None


def test_a_new_invitation_ends_the_old_token_and_its_sessions(campaign):
    old = people.invite(campaign, "anna", "owner")
    before = people.enter(campaign, old)
    new = people.invite(campaign, "anna", "owner")
    assert people.enter(campaign, old) is None
    after = people.enter(campaign, new)
    assert (after.id, after.sessions) == (before.id, before.sessions + 1)


def test_nobody_changes_from_one_role_to_another(campaign):
    people.invite(campaign, "anna", "annotator")
    for role in ("owner", "reviewer"):
        with pytest.raises(CrossmatchError, match="'anna' is known as annotator"):
            people.invite(campaign, "anna", role)
    with pytest.raises(WrongWords, match="one of owner, reviewer, annotator was expected"):
        people.invite(campaign, "ben", "admin")


# Names


@pytest.mark.parametrize(
    "name", ["", "   ", "a\x00b", "a\nb", "a\r\nSet-Cookie: x=1", "a\tb", "\u202eevil", "x" * 201, "\ud800", "\u200b"]
)
def test_a_name_is_printable_and_of_some_length(small, name):
    with pytest.raises(CrossmatchError, match="printable signs was expected"):
        people.invite(small, name)
    link = link_of(small, a_study(small))
    if name:  # nothing at all is a guest
        with pytest.raises(CrossmatchError, match="printable signs was expected"):
            people.join(small, link, name)


@pytest.mark.parametrize(
    "name", ["anna", "Zoë", "<script>alert(1)</script>", "=1+1", "'; DROP TABLE person; --", "a" * 200, "张伟", "a%b_c"]
)
def test_any_printable_name_will_do(campaign, name):
    study_id = a_study(campaign)
    _, who = people.join(campaign, link_of(campaign, study_id), f" {name} ")
    assert who.key == name
    assert [row.key for row in everybody(campaign)] == [name]


def test_a_name_that_is_taken_opens_nobodys_work(campaign):
    study_id = a_study(campaign)
    someone(campaign, study_id, "anna")
    people.invite(campaign, "boss", "owner")
    for name in ("anna", " anna ", "boss"):
        with pytest.raises(CrossmatchError, match="somebody of this name is here already"):
            people.join(campaign, link_of(campaign, study_id), name)


def test_whoever_joins_is_an_annotator_without_a_token(campaign):
    study_id = a_study(campaign)
    joined, who = people.join(campaign, link_of(campaign, study_id), "")
    assert joined == study_id
    assert (who.role, everybody(campaign)[0].token) == ("annotator", None)
    assert who.key.startswith("guest-")


def test_guests_are_different_people(campaign):
    study_id = a_study(campaign)
    assert len({people.join(campaign, link_of(campaign, study_id))[1].key for _ in range(5)}) == 5


@pytest.mark.parametrize("link", ["", "nosuch", "%", "' OR ''='"])
def test_a_link_that_leads_nowhere_says_so(campaign, link):
    a_study(campaign)
    with pytest.raises(CrossmatchError, match="this link leads to no study"):
        people.join(campaign, link)


def test_links_cannot_be_guessed(small):
    links = {link_of(small, a_study(small, name=f"study-{n}")) for n in range(3)}
    assert len(links) == 3
    assert all(len(link) >= 22 for link in links)


# Qualification


@pytest.mark.parametrize(
    ("tasks", "share", "fits"), [(500, 0.97, True), (499, 1.0, False), (9000, 0.94, False), (None, None, False)]
)
def test_people_need_the_past_that_a_study_asks_for(campaign, tasks, share, fits):
    study_id = a_study(campaign, "recipe.past_tasks=500", "recipe.past_accepted=0.95")
    anna = people.enter(campaign, people.invite(campaign, "anna", past_tasks=tasks, past_accepted=share)).id
    if fits:
        people.agree(campaign, study_id, anna)
        claim_hit(campaign, study_id, anna)
    else:
        with pytest.raises(CrossmatchError, match="for people with 500 tasks behind them, 95 % of them accepted"):
            people.agree(campaign, study_id, anna)
        assert refused(campaign, study_id, anna) == "agree"


def test_a_name_is_not_used_up_by_whom_a_study_does_not_take(campaign):
    study_id = a_study(campaign, "recipe.past_tasks=500")
    for _ in range(2):
        with pytest.raises(CrossmatchError, match="for people with 500 tasks"):
            people.join(campaign, link_of(campaign, study_id), "anna")
    assert everybody(campaign) == []


def test_a_new_invitation_keeps_what_is_known_of_a_past(campaign):
    people.invite(campaign, "anna", past_tasks=500, past_accepted=0.9)
    people.invite(campaign, "anna")
    people.invite(campaign, "anna", past_tasks=600)
    assert [(row.past_tasks, row.past_accepted) for row in everybody(campaign)] == [(600, 0.9)]


def test_a_list_of_people_is_read_with_their_past(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("person,past_tasks,past_accepted\nanna,500,0.95\nben,,\n", encoding="utf-8")
    assert people.invited(path) == [("anna", 500, 0.95), ("ben", None, None)]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("name\nanna\n", "no column `person`"),
        ("person\n", "no column `person`"),
        ("person,past_tasks\nanna,many\n", "line 2 cannot be read"),
        ("person,past_tasks\nanna,-1\n", "line 2: past_tasks must not be below 0"),
        ("person,past_accepted\nanna,nan\n", "line 2: past_tasks|line 2"),
        ("person,past_accepted\nanna,95\n", "from 0 to 1"),
        ("person,past_accepted\nanna,1\n\x00,1\n", "printable|cannot be read"),
    ],
)
def test_a_list_that_cannot_be_used_says_where(tmp_path, told, says):
    path = tmp_path / "people.csv"
    path.write_text(told, encoding="utf-8")
    with pytest.raises(CrossmatchError, match=says):
        people.invited(path)


def test_to_agree_twice_is_to_agree_once(campaign):
    study_id = a_study(campaign)
    anna = someone(campaign, study_id)
    people.agree(campaign, study_id, anna)
    with campaign.reading() as connection:
        assert len(connection.execute(select(member)).all()) == 1
        assert connection.execute(select(study.c.open)).scalar_one()
    assert verify(campaign)[0].events == 2


def test_a_closed_study_can_be_joined_for_what_is_left_of_it(campaign):
    """The page refuses new people; whoever is in already may finish."""
    study_id = a_study(campaign)
    anna = someone(campaign, study_id)
    set_open(campaign, study_id, False)
    assert refused(campaign, study_id, anna) == "closed"
