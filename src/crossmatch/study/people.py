"""People: who they are, how they come in, what they may do, and what they have earned.

Owners and reviewers enter by a token, annotators by a token or by the link of a study. Tokens are kept as hashes. Who enters from a
platform is known by the platform's id; who comes by a bare link is known by what they call themselves, or not at all.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.whole import whole_file
from crossmatch.study import events, queries
from crossmatch.study.design import Recipe
from crossmatch.study.schema import claim, member, person, study
from crossmatch.study.shown import design_of
from crossmatch.study.straight import ask

if TYPE_CHECKING:
    from crossmatch.study.store import Campaign

ROLES = ("owner", "reviewer", "annotator")
LONGEST_KEY = 200
OWNER = "owner"  # what the first owner is called, and the file with their token


@dataclass(frozen=True)
class Person:
    """Somebody who has entered."""

    id: int
    key: str
    role: str
    sessions: int


def find(connection: Connection, person_id: int) -> Person | None:
    row = ask(connection, queries.FIND_PERSON, {"its_person": person_id}).first
    return None if row is None else Person(row.id, row.key, row.role, row.sessions)


def hashed(token: str) -> str:
    """What is kept of a token; it has 128 random bits, so that a plain hash will do."""
    return hashlib.sha256(token.encode()).hexdigest()


def invite(
    campaign: Campaign,
    key: str,
    role: str = "annotator",
    past_tasks: int | None = None,
    past_accepted: float | None = None,
    studies: Iterable[str] | None = None,
) -> str:
    """A token by which a person enters. Who is invited again has a new token, and the old one and its sessions end.

    An annotator sees the `studies` of these names, and those of earlier invitations: all that there are now, if none is named.
    """
    if role not in ROLES:
        raise WrongWords(f"the role is {role!r}; one of {', '.join(ROLES)} was expected.")
    token = secrets.token_urlsafe(16)
    known = checked_key(key)
    with campaign.writing() as connection:
        row = connection.execute(select(person).where(person.c.key == known).with_for_update()).first()
        told = {"past_tasks": past_tasks, "past_accepted": past_accepted}
        if row is None:
            new = insert(person).values(key=known, role=role, token=hashed(token), at=campaign.now(), **told)
            made = connection.execute(new.returning(person.c.id)).scalar_one()
        elif row.role != role:
            raise CrossmatchError(
                f"{known!r} is known as {row.role}; nobody changes from one role to another. Choose another name."
            )
        else:
            past = {key: value for key, value in told.items() if value is not None}  # what is known stays known
            changed = update(person).where(person.c.id == row.id).values(token=hashed(token), sessions=row.sessions + 1, **past)
            connection.execute(changed)
            made = row.id
        for number in _numbers(connection, studies) if role == "annotator" else ():
            _admit(connection, number, made)
        if known == OWNER and role == "owner":
            _keep_token(campaign, token)
    return token


def _numbers(connection: Connection, names: Iterable[str] | None) -> list[int]:
    """The studies of these names, or all."""
    found = {row.name: row.id for row in connection.execute(select(study.c.name, study.c.id))}
    unknown = next((name for name in names or () if name not in found), None)
    if unknown is not None:
        raise WrongWords(f"there is no study {unknown!r}; there is {', '.join(found) or 'none'}.")
    return [number for name, number in found.items() if names is None or name in names]


def _admit(connection: Connection, study_id: int, person_id: int) -> None:
    """Let a person see a study; to take part they must agree."""
    put = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(put(member).values(study=study_id, person=person_id).on_conflict_do_nothing())


def owner_token(campaign: Campaign) -> str:
    """The token of the campaign's owner: made once, and kept in a file that only its owner may read.

    Several services that start at once wait for each other here, and one that was killed halfway leaves a file or nothing: what
    stands in the file is what opens.
    """
    put = postgresql.insert if campaign.engine.dialect.name == "postgresql" else sqlite.insert
    with campaign.writing() as connection:
        connection.execute(put(person).values(key=OWNER, role="owner", at=campaign.now()).on_conflict_do_nothing())
        row = connection.execute(select(person).where(person.c.key == OWNER).with_for_update()).one()
        if row.role != "owner":
            raise CrossmatchError(
                f"somebody who is {row.role} is called {OWNER!r}. Invite an owner: crossmatch study invite --role owner"
            )
        file = campaign.folder / OWNER
        token = file.read_text().strip() if file.exists() else ""
        if not token:
            token = secrets.token_urlsafe(16)
            _keep_token(campaign, token)
        if row.token != hashed(token):
            values = {"token": hashed(token), "sessions": row.sessions + (row.token is not None)}
            connection.execute(update(person).where(person.c.id == row.id).values(**values))
    return token


def _keep_token(campaign: Campaign, token: str) -> None:
    with whole_file(campaign.folder / OWNER, durable=True, private=True) as file:
        file.write(token.encode())


def invited(path: Path) -> list[tuple[str, int | None, float | None]]:
    """The people of a list: a csv with the column `person`, and `past_tasks` and `past_accepted` if they are known."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise WrongWords(f"the list of people {path} cannot be read ({error}). Check the path.") from None
    if not rows or "person" not in rows[0]:
        raise WrongWords(f"{path} has no column `person`. Name one person in each row.")
    out = []
    for n, row in enumerate(rows, 2):
        try:
            tasks = int(row["past_tasks"]) if row.get("past_tasks") else None
            share = float(row["past_accepted"]) if row.get("past_accepted") else None
        except ValueError as error:
            raise WrongWords(
                f"{path} line {n} cannot be read ({error}). Give a number of tasks, and a share from 0 to 1."
            ) from None
        if (tasks is not None and tasks < 0) or (share is not None and not 0 <= share <= 1):
            raise WrongWords(f"{path} line {n}: past_tasks must not be below 0, past_accepted from 0 to 1. Mend it.")
        out.append((checked_key(row["person"] or ""), tasks, share))
    return out


def checked_key(key: str) -> str:
    """A name that can stand in files: printable, and not empty."""
    known = key.strip()
    if not known or len(known) > LONGEST_KEY or not known.isprintable():
        raise CrossmatchError(f"a name of 1 to {LONGEST_KEY} printable signs was expected. Give another one.")
    return known


def enter(campaign: Campaign, token: str) -> Person | None:
    """Who has this token."""
    with campaign.reading() as connection:
        row = connection.execute(select(person).where(person.c.token == hashed(token))).first()
    return None if row is None else Person(row.id, row.key, row.role, row.sessions)


def join(campaign: Campaign, link: str, key: str = "", entry: str = "") -> tuple[int, Person]:
    """A new annotator, by the link of a study: the study and the person.

    A name that is taken is refused, a platform's id too: what stands in an address, or what anybody can type, opens nobody's work.
    But `entry`, a secret of the browser, does: whoever sends the same once more, because the answer was lost, is in.
    """
    try:
        return _joined(campaign, link, key, entry)
    except IntegrityError:  # in this very moment, by another or by themselves
        return _joined(campaign, link, key, entry)


def _joined(campaign: Campaign, link: str, key: str, entry: str) -> tuple[int, Person]:
    with campaign.writing() as connection:
        row = connection.execute(select(study.c.id).where(study.c.link == link)).first()
        if row is None:
            raise CrossmatchError("this link leads to no study. Ask who sent it for another one.")
        known = checked_key(key) if key else f"guest-{secrets.token_hex(5)}"
        found = _returning(connection, known if key else "", entry)
        if found is None:
            _require_past(design_of(connection, row.id).recipe, None, None)  # or the name would be taken for nothing
            if known == OWNER or connection.execute(select(person.c.id).where(person.c.key == known)).first() is not None:
                raise CrossmatchError(
                    "somebody of this name is here already. If it was you, go on in the browser in which you began, or ask who "
                    "sent the link for a new one."
                )
            token = _entry_hash(entry, known if key else "")
            new = insert(person).values(key=known, role="annotator", token=token, at=campaign.now())
            found = Person(connection.execute(new.returning(person.c.id)).scalar_one(), known, "annotator", 0)
        _admit(connection, row.id, found.id)
        return row.id, found


def returning(campaign: Campaign, key: str, entry: str) -> Person | None:
    """Who joined under this name from this very browser."""
    with campaign.reading() as connection:
        return _returning(connection, key.strip(), entry)


def _returning(connection: Connection, key: str, entry: str) -> Person | None:
    asked = select(person).where(person.c.token == _entry_hash(entry, key), person.c.role == "annotator")
    row = connection.execute(asked).first() if entry else None
    return None if row is None else Person(row.id, row.key, row.role, row.sessions)


def _entry_hash(entry: str, key: str) -> str | None:
    """What is kept of a browser's secret, for each name under which somebody joined from it."""
    return hashed(f"join/{entry}/{key}") if entry else None


def agree(campaign: Campaign, study_id: int, person_id: int) -> None:
    """A person agrees to take part; what the study asks of people's past is checked here. Who agrees again has agreed."""
    with campaign.writing() as connection:
        design = design_of(connection, study_id)
        row = connection.execute(select(person).where(person.c.id == person_id).with_for_update(key_share=True)).one()
        mine = membership(connection, study_id, person_id)
        if mine is not None and mine.consented:
            return
        _require_past(design.recipe, row.past_tasks, row.past_accepted)
        _admit(connection, study_id, person_id)
        own = (member.c.study == study_id, member.c.person == person_id)
        connection.execute(update(member).where(*own).values(consented=True, qualified=design.recipe.quiz == 0))
        events.append(connection, study_id, campaign.now(), "consent", person_id, name=sealed(campaign, row.key))


def _require_past(need: Recipe, tasks: int | None, share: float | None) -> None:
    if (tasks or 0) < need.past_tasks or (share or 0.0) < need.past_accepted:
        raise CrossmatchError(
            f"this study is for people with {need.past_tasks} tasks behind them, {100 * need.past_accepted:g} % of them "
            "accepted. Ask who sent the link whether you are on the list."
        )


def sealed(campaign: Campaign, key: str) -> str:
    """A name as events hold it: it cannot be read from them, but whether it was changed can be told."""
    return hmac.new(campaign.secret, f"name/{key}".encode(), "sha256").hexdigest()[:32]


def membership(connection: Connection, study_id: int, person_id: int) -> Any:
    """A person's place in a study: they were invited to it, or joined it, and have perhaps agreed; nothing if it is not theirs."""
    return connection.execute(select(member).where(member.c.study == study_id, member.c.person == person_id)).first()


def completion(campaign: Campaign, connection: Connection, study_id: int, who: Person) -> tuple[str, str] | None:
    """The code that shows that a person has taken part, and where it is to be given; nothing before a HIT is committed."""
    done = connection.execute(
        select(claim.c.id).where(
            claim.c.study == study_id, claim.c.person == who.id, claim.c.submitted.is_not(None), claim.c.slot.is_not(None)
        ).limit(1)
    ).first()  # fmt: skip
    if done is None:
        return None
    recipe = design_of(connection, study_id).recipe
    own = hmac.new(campaign.secret, f"code/{study_id}/{who.key}".encode(), "sha256").hexdigest()[:10].upper()
    code = recipe.completion_code or own
    url = recipe.completion_url.replace("{code}", quote(code, safe="")).replace("{person}", quote(who.key, safe=""))
    return code, url


def tokens_for(campaign: Campaign, people: Iterable[tuple[str, int | None, float | None]]) -> list[tuple[str, str]]:
    """A token for each of these people."""
    return [(key, invite(campaign, key, "annotator", tasks, share)) for key, tasks, share in people]
