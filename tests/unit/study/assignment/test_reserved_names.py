"""Names that the service uses itself: people who join cannot take them, whatever way they write them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment import people
from crossmatch.study.assignment.reserved_names import LOOKALIKES, is_reserved
from crossmatch.study.database.schema import person
from study_lab import add_annotator, add_small_study, link_of
from study_web import open_browser

MATHEMATICAL_BOLD = {chr(ord("a") + n): chr(0x1D41A + n) for n in range(26)}
FULL_WIDTH = {chr(n): chr(n + 0xFEE0) for n in range(0x21, 0x7F)}
SMALL_CAPITALS = dict(zip("aceilnorstuwfg", "ᴀᴄᴇɪʟɴᴏʀꜱᴛᴜᴡꜰɢ", strict=True))
NAMES = ("owner", "artificial-0001", "artificial-3fa2c1-0001", "guest-0a1b2c3d4e")
SPELLINGS = (
    str.upper,
    str.title,
    lambda name: f"  {name} ",
    lambda name: name.replace("-", " "),
    lambda name: name.replace("-", "—"),
    lambda name: name.replace("-", "_"),
    lambda name: "".join(f"{letter}\u0301" if letter.isalpha() else letter for letter in name),  # accents
    lambda name: name.replace("o", "0", 1).replace("i", "1", 1),
    lambda name: name.replace("i", "l"),
    lambda name: name.replace("w", "vv"),
    *(lambda name, table=table: name.translate(str.maketrans(table)) for table in (MATHEMATICAL_BOLD, FULL_WIDTH, SMALL_CAPITALS)),
    *(
        lambda name, alphabet=alphabet: lookalike_of(name, alphabet)
        for alphabet in ("GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE", "LISU")
    ),
)
PEOPLE = (
    "anna",
    "Owen",
    "Anna Owner",
    "owner2",
    "A. Rtificial",
    "artificially",
    "Guestrin",
    "guest",
    "Борис",
    "Орест",
    "Ольга",
    "Γιώργος",
    "张伟",
    "田中",
)


def lookalike_of(name, alphabet):
    """The name with letters of another alphabet where it has similar ones."""
    letters = {
        ascii_letter: [x for x in others if unicodedata.name(x).startswith(alphabet)] for ascii_letter, others in LOOKALIKES.items()
    }
    return "".join((letters.get(letter) or [letter])[0] for letter in name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("spell", SPELLINGS)
def test_every_spelling_is_reserved(name, spell):
    assert is_reserved(spell(name)), spell(name)


@pytest.mark.parametrize("invisible", ["\ufe0f", "\u034f", "\u17b4", "\u200b", "\u00ad", "\u3164"])
@pytest.mark.parametrize("name", NAMES)
def test_invisible_characters_do_not_make_another_name(name, invisible):
    assert is_reserved(name[:3] + invisible + name[3:])
    assert is_reserved(name + invisible)


@pytest.mark.parametrize("name", PEOPLE)
def test_names_of_people_are_free(name):
    assert not is_reserved(name)


@given(st.sampled_from(NAMES), st.data())
def test_any_mixture_of_alphabets_is_reserved(name, data):
    mixed = "".join(data.draw(st.sampled_from([letter, letter.upper(), *LOOKALIKES.get(letter, "")])) for letter in name)
    assert is_reserved(mixed), mixed


@pytest.mark.parametrize("name", [*NAMES[:2], " Owner ", "оwnеr", "ARTIFICIAL-0001", "artificial 7"])
def test_nobody_who_joins_takes_a_reserved_name(campaign, name):
    study_id = add_small_study(campaign)
    for take in (lambda: people.join_study(campaign, link_of(campaign, study_id), name), lambda: people.invite(campaign, name)):
        with pytest.raises(CrossmatchError, match="is reserved: this service uses it itself"):
            take()
    with campaign.read_transaction() as connection:
        assert connection.execute(select(person)).all() == []


@pytest.mark.parametrize("name", ["owner", "Artificial-0001"])
def test_join_form_platform_id_and_invitation_explain_the_refusal(small, name):
    link = link_of(small, add_small_study(small))
    visitor, boss = open_browser(small), open_browser(small).enter(small, "boss", "owner")
    for response in (
        visitor.post(f"/join/{link}", {"person": name}),
        visitor.post(f"/join/{link}?PROLIFIC_PID={name}", {}),
        boss.post("/owner/invite", {"person": name, "role": "annotator"}),
    ):
        assert response.status_code in (409, 422)
        assert "is reserved" in response.text
        assert "set-cookie" not in response.headers


def test_the_owner_can_get_a_new_link_and_a_guest_a_personal_one(small):
    study_id = add_small_study(small)
    assert people.find_by_token(small, people.invite(small, "owner", "owner")).role == "owner"
    guest_id = add_annotator(small, study_id)
    with small.read_transaction() as connection:
        guest = people.find_person(connection, guest_id).name
    assert people.find_by_token(small, people.invite(small, guest)).id == guest_id


def test_an_artificial_annotator_is_not_invited_as_a_person(small):
    add_small_study(small, name="pairs")
    people.invite_artificial(small, "artificial-0001", "pairs")
    with pytest.raises(CrossmatchError, match="is reserved"):
        people.invite(small, "artificial-0001")
