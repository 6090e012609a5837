"""People: roles, invitations, joining by a link, consent and completion codes.

Owners and reviewers enter by a personal token; annotators enter by a token or join by the link of a study. The database stores
hashes of tokens. A person from a crowdsourcing platform is named by the platform's id, anybody else by the name that they type.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.study.assignment.displayed_hits import load_study_design
from crossmatch.study.assignment.reserved_names import GUEST, OWNER, is_reserved
from crossmatch.study.database import events
from crossmatch.study.database.schema import claim, member, person, study
from crossmatch.study.design.declaration import Recipe

if TYPE_CHECKING:
    from crossmatch.study.database.campaign import Campaign

ROLES = ("owner", "reviewer", "annotator")
MAX_NAME_LENGTH = 200


@dataclass(frozen=True)
class Person:
    """A person of a campaign. Sessions with another session number have ended."""

    id: int
    name: str
    role: str
    session_number: int


def _as_person(row: Any) -> Person | None:
    return None if row is None else Person(row.id, row.key, row.role, row.sessions)


def find_person(connection: Connection, person_id: int) -> Person | None:
    """The person with this id."""
    return _as_person(connection.execute(select(person).where(person.c.id == person_id)).first())


def hash_token(token: str) -> str:
    """The hash that the database stores of a token. A plain hash is enough: tokens have 128 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


# -- invitations


def invite(
    campaign: Campaign,
    name: str,
    role: str = "annotator",
    past_tasks: int | None = None,
    past_accepted: float | None = None,
    studies: Iterable[str] | None = None,
) -> str:
    """Create a personal token for a person. If they had one, it and their sessions end.

    Args:
        campaign: The campaign.
        name: The person's name in files.
        role: `owner`, `reviewer` or `annotator`.
        past_tasks: Tasks that the person has done before, for studies that require experience.
        past_accepted: The accepted share of these tasks.
        studies: Names of the studies that an annotator sees, besides those of earlier invitations; None for all.
    """
    if role not in ROLES:
        raise UsageError(f"Unknown role {role!r}; expected one of {', '.join(ROLES)}.")
    name, past = check_name(name), {"past_tasks": past_tasks, "past_accepted": past_accepted}
    return _create_token(campaign, name, role, past, studies, may_be_reserved=name == OWNER and role == "owner")


def invite_artificial(
    campaign: Campaign, name: str, study_name: str, past_tasks: int | None = None, past_accepted: float | None = None
) -> str:
    """Create a personal token for an artificial annotator, whose name is reserved for `study simulate`."""
    past = {"past_tasks": past_tasks, "past_accepted": past_accepted}
    return _create_token(campaign, name, "annotator", past, (study_name,), may_be_reserved=True)


def _create_token(
    campaign: Campaign,
    name: str,
    role: str,
    past: Mapping[str, float | None],
    studies: Iterable[str] | None,
    *,
    may_be_reserved: bool,
) -> str:
    """Create or replace the token of a person, and let annotators see these studies."""
    token = secrets.token_urlsafe(16)
    with campaign.write_transaction() as connection:
        row = connection.execute(select(person).where(person.c.key == name)).first()
        is_known_guest = row is not None and name.startswith(GUEST)
        if not (may_be_reserved or is_known_guest):
            _require_unreserved(name)
        if row is None:
            values = {"key": name, "role": role, "token": hash_token(token), "at": campaign.now(), **past}
            person_id = connection.execute(insert(person).values(**values).returning(person.c.id)).scalar_one()
        elif row.role != role:
            raise CrossmatchError(f"{name!r} already has the role {row.role}, and roles cannot change. Choose another name.")
        else:
            new_past = {key: value for key, value in past.items() if value is not None}
            values = {"token": hash_token(token), "sessions": row.sessions + 1, **new_past}
            connection.execute(update(person).where(person.c.id == row.id).values(**values))
            person_id = row.id
        for study_id in _find_study_ids(connection, studies) if role == "annotator" else ():
            _add_member(connection, study_id, person_id)
        if name == OWNER and role == "owner":
            _write_owner_token(campaign, token)
    return token


def _find_study_ids(connection: Connection, names: Iterable[str] | None) -> list[int]:
    """The ids of the studies with these names, or of all studies."""
    ids = {row.name: row.id for row in connection.execute(select(study.c.name, study.c.id))}
    unknown = next((name for name in names or () if name not in ids), None)
    if unknown is not None:
        raise UsageError(f"There is no study {unknown!r}. Studies of this campaign: {', '.join(ids) or 'none'}.")
    return [study_id for name, study_id in ids.items() if names is None or name in names]


def _insert_or_ignore(connection: Connection, table: Any, **values: Any) -> None:
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).values(**values).on_conflict_do_nothing())


def _add_member(connection: Connection, study_id: int, person_id: int) -> None:
    """Let a person see a study. They can take part once they agree."""
    _insert_or_ignore(connection, member, study=study_id, person=person_id)


def owner_token(campaign: Campaign) -> str:
    """The token of the campaign's owner, created once and stored in a file that only its owner may read.

    If a process was killed between writing the file and the database, the file wins.
    """
    with campaign.write_transaction() as connection:
        _insert_or_ignore(connection, person, key=OWNER, role="owner", at=campaign.now())
        row = connection.execute(select(person).where(person.c.key == OWNER)).one()
        if row.role != "owner":
            raise CrossmatchError(
                f"The name {OWNER!r} is taken by a person with the role {row.role}. "
                "Invite an owner under another name: crossmatch study invite --role owner"
            )
        file = campaign.folder / OWNER
        token = file.read_text().strip() if file.exists() else ""
        if not token:
            token = secrets.token_urlsafe(16)
            _write_owner_token(campaign, token)
        if row.token != hash_token(token):
            values = {"token": hash_token(token), "sessions": row.sessions + (row.token is not None)}
            connection.execute(update(person).where(person.c.id == row.id).values(**values))
    return token


def _write_owner_token(campaign: Campaign, token: str) -> None:
    with atomic_write(campaign.folder / OWNER, durable=True, private=True) as file:
        file.write(token.encode())


def read_people_csv(path: Path) -> list[tuple[str, int | None, float | None]]:
    """Read a list of people: a csv with the column `person`, and optionally `past_tasks` and `past_accepted`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read the list of people {path} ({error}). Check the path.") from None
    if not rows or "person" not in rows[0]:
        raise UsageError(f"{path} has no column `person`. Write one person in each row.")
    people = []
    for n, row in enumerate(rows, 2):
        try:
            tasks = int(row["past_tasks"]) if row.get("past_tasks") else None
            share = float(row["past_accepted"]) if row.get("past_accepted") else None
        except ValueError as error:
            raise UsageError(f"{path}, line {n}: {error}. Write a number of tasks, and a share from 0 to 1.") from None
        if (tasks is not None and tasks < 0) or (share is not None and not 0 <= share <= 1):
            raise UsageError(
                f"{path}, line {n}: past_tasks must be at least 0 and past_accepted between 0 and 1 (got {tasks} and {share})."
            )
        people.append((check_name(row["person"] or ""), tasks, share))
    return people


def check_name(name: str) -> str:
    """The name without blanks around it; it must be printable and not empty, because files contain it."""
    name = name.strip()
    if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
        raise CrossmatchError(f"A name must have 1 to {MAX_NAME_LENGTH} printable characters. Choose another name.")
    return name


def _require_unreserved(name: str) -> None:
    if is_reserved(name):
        raise CrossmatchError(
            f"The name {name!r:.60} is reserved: this service uses it itself, or a name that looks like it. Choose another name."
        )


# -- entering and joining


def find_by_token(campaign: Campaign, token: str) -> Person | None:
    """The person with this token."""
    with campaign.read_transaction() as connection:
        return _as_person(connection.execute(select(person).where(person.c.token == hash_token(token))).first())


def join_study(campaign: Campaign, link: str, name: str = "", browser_secret: str = "") -> tuple[int, Person]:
    """Add a new annotator by the link of a study.

    A name that is taken is refused, also a platform's id: anybody can type a name, so it must not open the work of a known person.
    The same `browser_secret` does open it: somebody who sends the form again because the response was lost is the same person.

    Returns:
        The id of the study, and the person.
    """
    try:
        return _join_study(campaign, link, name, browser_secret)
    except IntegrityError:  # the name was taken at the same moment
        return _join_study(campaign, link, name, browser_secret)


def _join_study(campaign: Campaign, link: str, name: str, browser_secret: str) -> tuple[int, Person]:
    with campaign.write_transaction() as connection:
        row = connection.execute(select(study.c.id).where(study.c.link == link)).first()
        if row is None:
            raise CrossmatchError("This link does not belong to a study. Ask the sender for a new link.")
        checked_name = check_name(name) if name else f"{GUEST}-{secrets.token_hex(5)}"
        joined = _find_returning(connection, checked_name if name else "", browser_secret)
        if joined is None:
            if name:
                _require_unreserved(checked_name)
            _require_experience(load_study_design(connection, row.id).recipe, None, None)
            is_taken = connection.execute(select(person.c.id).where(person.c.key == checked_name)).first() is not None
            if is_taken:
                raise CrossmatchError(
                    "This name is already taken. If it is yours, continue in the browser in which you started, or ask the sender "
                    "of the link for a personal link."
                )
            token = _browser_hash(browser_secret, checked_name if name else "")
            new = insert(person).values(key=checked_name, role="annotator", token=token, at=campaign.now())
            person_id = connection.execute(new.returning(person.c.id)).scalar_one()
            joined = Person(person_id, checked_name, "annotator", 0)
        _add_member(connection, row.id, joined.id)
        return row.id, joined


def find_returning(campaign: Campaign, name: str, browser_secret: str) -> Person | None:
    """The person who joined under this name from this browser."""
    with campaign.read_transaction() as connection:
        return _find_returning(connection, name.strip(), browser_secret)


def _find_returning(connection: Connection, name: str, browser_secret: str) -> Person | None:
    if not browser_secret:
        return None
    query = select(person).where(person.c.token == _browser_hash(browser_secret, name), person.c.role == "annotator")
    return _as_person(connection.execute(query).first())


def _browser_hash(browser_secret: str, name: str) -> str | None:
    """The hash that is stored of a browser's secret, one for each name that joined from it."""
    return hash_token(f"join/{browser_secret}/{name}") if browser_secret else None


# -- taking part


def give_consent(campaign: Campaign, study_id: int, person_id: int) -> None:
    """Record that a person agrees to take part, if they have the experience that the study requires. Repeating it has no effect."""
    with campaign.write_transaction() as connection:
        design = load_study_design(connection, study_id)
        row = connection.execute(select(person).where(person.c.id == person_id)).one()
        membership = find_membership(connection, study_id, person_id)
        if membership is not None and membership.consented:
            return
        _require_experience(design.recipe, row.past_tasks, row.past_accepted)
        _add_member(connection, study_id, person_id)
        is_member = (member.c.study == study_id, member.c.person == person_id)
        connection.execute(update(member).where(*is_member).values(consented=True, qualified=design.recipe.quiz == 0))
        events.append_event(connection, study_id, campaign.now(), "consent", person_id, name=seal_name(campaign, row.key))


def _require_experience(recipe: Recipe, tasks: int | None, share: float | None) -> None:
    if (tasks or 0) < recipe.past_tasks or (share or 0.0) < recipe.past_accepted:
        raise CrossmatchError(
            f"This study requires {recipe.past_tasks} earlier tasks, of which {100 * recipe.past_accepted:g} % were accepted. "
            "Ask the sender of the link whether you are on the list."
        )


def seal_name(campaign: Campaign, name: str) -> str:
    """A keyed hash of a name for the event log: it hides the name, but shows whether the name was changed."""
    return hmac.new(campaign.secret, f"name/{name}".encode(), "sha256").hexdigest()[:32]


def find_membership(connection: Connection, study_id: int, person_id: int) -> Any:
    """The row of a person in a study that they were invited to or joined, or None."""
    return connection.execute(select(member).where(member.c.study == study_id, member.c.person == person_id)).first()


def completion_code(campaign: Campaign, connection: Connection, study_id: int, annotator: Person) -> tuple[str, str] | None:
    """The code that proves participation and the address where it is entered; None until a HIT is submitted."""
    submitted = select(claim.c.id).where(
        claim.c.study == study_id, claim.c.person == annotator.id, claim.c.submitted.is_not(None), claim.c.slot.is_not(None)
    )
    if connection.execute(submitted.limit(1)).first() is None:
        return None
    recipe = load_study_design(connection, study_id).recipe
    personal = hmac.new(campaign.secret, f"code/{study_id}/{annotator.name}".encode(), "sha256").hexdigest()[:10].upper()
    code = recipe.completion_code or personal
    url = recipe.completion_url.replace("{code}", quote(code, safe="")).replace("{person}", quote(annotator.name, safe=""))
    return code, url
