"""The pages of owners and reviewers: how far each study is, who works how, what is in doubt, and where people differ.

Both look and review; only an owner opens and closes studies, sees the links by which people join, and invites people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, exists, func, select
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

from crossmatch.study import people, statistics, verdicts
from crossmatch.study.design import from_told
from crossmatch.study.people import ROLES
from crossmatch.study.schema import BUSY, claim, person, slot, study
from crossmatch.study.shown import NotYours
from crossmatch.study.web import look, words
from crossmatch.study.web.annotate import named
from crossmatch.study.web.guard import FIELD, Refused, Visitor, form_of, require, require_own
from crossmatch.study.web.site import Site, see, site_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

STAFF = ("owner", "reviewer")
PAGE = 10  # items on which people differ
ROWS = 50  # HITs of a list
CROWD = 200  # people of a list
BIGGEST = 2**31 - 1  # number of a person
PAIRS = 20  # of people, those who agree least
DONE = {
    "approve": "Approved: the answers count.",
    "reject": "Rejected: the answers do not count and are not paid; the HIT is open for another person.",
    "reassign": "Reassigned: the answers do not count, but are paid; the HIT is open for another person.",
    "undo": "Taken back: nothing is said of the HIT, as when it was submitted.",
    "kept": "Written down. The HIT had gone to another person already, so nothing else has changed.",
}


async def shown(request: Request, page: Callable[[Site, Visitor], Response]) -> Response:
    """A page for owners and reviewers."""
    site = site_of(request)
    return await run_in_threadpool(lambda: page(site, _staff(site, request, *STAFF)))


async def of_study(
    request: Request, tab: str, template: str, tell: Callable[[Site, Visitor, Any, Any], dict[str, Any]]
) -> Response:
    """A page of one study; `tell` says what it shows besides what they all say, given the study and its slots."""

    def page(site: Site, who: Visitor) -> Response:
        with site.campaign.reading() as connection:
            row = named(connection, request.path_params["study"])
            common = _common(connection, row, tab)
        return site.page(template, who, **common, **tell(site, who, row, common["slots"]))

    return await shown(request, page)


async def done(request: Request, roles: tuple[str, ...], act: Callable[[Site, Visitor, dict[str, str]], Response]) -> Response:
    """Something that changes the study: only by a form of our own."""
    site, fields = site_of(request), await form_of(request)

    def acted() -> Response:
        who = _staff(site, request, *roles)
        require_own(request, who, fields.get(FIELD))
        return act(site, who, fields)

    return await run_in_threadpool(acted)


def _staff(site: Site, request: Request, *roles: str) -> Visitor:
    who = require(site.campaign, request, *roles)
    site.limit(who.person.id, who.person.sessions)
    return who


def _paged(request: Request, total: int, size: int) -> dict[str, int]:
    """Which page of a list is asked for: one that there is."""
    given, pages = request.query_params.get("page", ""), max(1, -(-total // size))
    page = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 1
    page = min(max(page, 1), pages)
    return {"page": page, "pages": pages, "start": size * (page - 1)}


def _address(site: Site, request: Request) -> str:
    """How this service is reached, as far as the request tells."""
    return f"{'https' if site.secure else request.url.scheme}://{request.url.netloc}"


def _common(connection: Connection, row: Any, tab: str) -> dict[str, Any]:
    """What every page of a study says."""
    return {"name": row.name, "design": from_told(row.design), "open": row.open, "tab": tab, "say": words,
            "slots": statistics.slots(connection, row.id)}  # fmt: skip


# -- all studies


async def campaign(request: Request) -> Response:
    """All studies, and how far they are."""

    def page(site: Site, who: Visitor) -> Response:
        with site.campaign.reading() as connection:
            rows = connection.execute(select(study.c.id, study.c.name, study.c.design, study.c.open).order_by(study.c.id)).all()
            studies = [_common(connection, row, "") for row in rows]
        return site.page("owner.html", who, studies=studies, roles=ROLES, say=words)

    return await shown(request, page)


async def invite(request: Request) -> Response:
    """A link by which one person enters; it is shown once."""

    def act(site: Site, who: Visitor, fields: dict[str, str]) -> Response:
        name, role = people.checked_key(fields.get("person", "")), fields.get("role", "")
        if name == who.person.key:
            raise Refused(409, "this is you: a new link would end this session. Make it on the command line.")
        chosen = fields.get("study", "")
        token = people.invite(site.campaign, name, role, studies=[chosen] if chosen else None)
        return site.page("owner_invited.html", who, person=name, role=role, link=f"{_address(site, request)}/enter/{token}")

    return await done(request, ("owner",), act)


# -- one study


async def overview(request: Request) -> Response:
    """Progress, time, money and agreement."""

    def tell(site: Site, who: Visitor, row: Any, slots: Any) -> dict[str, Any]:
        view = site.tallies.view(site.campaign, row.id)
        seen = view.figures.seen
        with site.campaign.reading() as connection:
            pairs = [_pairs(connection, each.cohen) for each in view.agreed.questions] if view.agreed else []
            watched = [one for one in view.figures.workers if one.watch]
            names = look.names_of(connection, (one.person for one in watched))
        return {
            "view": view, "answers": int(seen.counts.sum()), "complete": statistics.complete_items(seen.work, view.figures.size),
            "server": statistics.quartiles(statistics.seconds_per_item(seen.work)),
            "browser": statistics.quartiles(seen.said.seconds[seen.said.seconds >= 0]),
            "left": statistics.time_left(seen.work, slots.left, site.campaign.now()),
            "money": statistics.money(seen.design.recipe, seen.work, slots.left),
            "pairs": pairs, "watched": watched, "names": names,
            "link": f"{_address(site, request)}/join/{row.link}" if who.person.role == "owner" else "",
        }  # fmt: skip

    return await of_study(request, "overview", "owner_study.html", tell)


def _pairs(connection: Connection, found: Any) -> list[dict[str, Any]]:
    """The two people of each pair, those who agree least first."""
    kappas = sorted(found.pairs if found else (), key=lambda pair: (pair.kappa.value is None, pair.kappa.value or 0.0))[:PAIRS]
    names = look.names_of(connection, (one for pair in kappas for one in (pair.first, pair.second)))
    return [{"first": names[pair.first], "second": names[pair.second], "kappa": pair.kappa} for pair in kappas]


async def set_open(request: Request) -> Response:
    """Open or close a study."""

    def act(site: Site, who: Visitor, fields: dict[str, str]) -> Response:
        with site.campaign.reading() as connection:
            row = named(connection, request.path_params["study"])
        if fields.get("open") not in ("yes", "no"):
            raise Refused(422, "whether to open or to close was not said. Reload the page.")
        if row.open != (fields["open"] == "yes"):
            verdicts.set_open(site.campaign, row.id, fields["open"] == "yes", who.person.id)
        return see(f"/owner/{row.name}")

    return await done(request, ("owner",), act)


async def crowd(request: Request) -> Response:
    """Everybody who worked, those first whose work should be looked at."""

    def tell(site: Site, _: Visitor, row: Any, __: Any) -> dict[str, Any]:
        view = site.tallies.view(site.campaign, row.id)
        ordered = sorted(view.figures.workers, key=lambda one: (-len(one.watch), -one.answers, one.person))
        paged = _paged(request, len(ordered), CROWD)
        some = ordered[paged["start"] : paged["start"] + CROWD]
        with site.campaign.reading() as connection:
            names = look.names_of(connection, (one.person for one in some))
        told = {"workers": some, "names": names, "number": len(ordered), "asked": view.figures.seen.asked}
        return {"view": view, **told, **paged}

    return await of_study(request, "people", "owner_people.html", tell)


async def worker(request: Request) -> Response:
    """The HITs of one person."""

    def tell(site: Site, _: Visitor, row: Any, __: Any) -> dict[str, Any]:
        asked = min(request.path_params["person"], BIGGEST)
        where = (claim.c.study == row.id, claim.c.person == asked, claim.c.submitted.is_not(None), claim.c.slot.is_not(None))
        with site.campaign.reading() as connection:
            total = connection.execute(select(func.count()).select_from(claim).where(*where)).scalar_one()
            if not total:
                raise NotYours("nobody of this number has submitted anything in this study. Go back to the people.")
            paged = _paged(request, total, ROWS)
            rows = select(claim).where(*where).order_by(claim.c.submitted.desc(), claim.c.id)
            hits = connection.execute(rows.limit(ROWS).offset(paged["start"])).all()
            known = look.names_of(connection, [asked])[asked]
        return {"person": known, "id": asked, "hits": hits, "number": total, **paged}

    return await of_study(request, "people", "owner_person.html", tell)


# -- reviews


async def to_review(request: Request) -> Response:
    """HITs in which gold was answered wrong, newest first."""

    def tell(site: Site, who: Visitor, row: Any, slots: Any) -> dict[str, Any]:
        mine = claim.alias("mine")
        own = exists().where(mine.c.person == who.person.id, mine.c.hit == claim.c.hit).label("own")
        asked = (
            select(claim, person.c.key, own).join(slot, slot.c.id == claim.c.slot).join(person, person.c.id == claim.c.person)
            .where(slot.c.study == row.id, slot.c.state == "review", slot.c.claim == claim.c.id, BUSY)
            .order_by(claim.c.submitted.desc(), claim.c.id)
        )  # fmt: skip
        paged = _paged(request, slots.review, ROWS)
        with site.campaign.reading() as connection:
            hits = connection.execute(asked.limit(ROWS).offset(paged["start"])).all()
            last = look.rejected_before(connection, row.id, request.query_params.get("claim", ""))
        return {"note": DONE.get(request.query_params.get("done", ""), ""), "hits": hits, "last": last, **paged}

    return await of_study(request, "review", "owner_review.html", tell)


async def one_hit(request: Request) -> Response:
    """A HIT as its person saw it, with the answers, and what to say of it."""

    def tell(site: Site, who: Visitor, row: Any, _: Any) -> dict[str, Any]:
        with site.campaign.reading() as connection:
            mine = look.claim_of(connection, row.id, request.path_params["claim"])
            told = {"hit": look.seen_hit(connection, mine), "state": look.slot_state(connection, mine)}
            names = look.names_of(connection, [mine.person])
            own = verdicts.answered(connection, who.person.id, mine.hit)
        return {"claim": mine, "person": names[mine.person], "own": own, **told}

    return await of_study(request, "review", "owner_hit.html", tell)


async def review(request: Request) -> Response:
    """Approve, reject or reassign a HIT, or take that back."""

    def act(site: Site, who: Visitor, fields: dict[str, str]) -> Response:
        with site.campaign.reading() as connection:
            row = named(connection, request.path_params["study"])
            mine = look.claim_of(connection, row.id, request.path_params["claim"])
            held = look.slot_state(connection, mine) is not None
        if fields.get("was") != (mine.verdict or ""):
            raise Refused(409, "somebody else has looked at this HIT meanwhile. Open it again.")
        verdict = fields.get("verdict", "")
        counts = verdicts.review(site.campaign, mine.id, who.person.id, verdict)  # type: ignore[arg-type]  # refused there
        what = verdict if held or counts else "kept"
        return see(f"/owner/{row.name}/review?done={what}&claim={mine.id}")

    return await done(request, STAFF, act)


# -- where people differ


async def disagreement(request: Request) -> Response:
    """Items on which people differ most."""

    def tell(site: Site, _: Visitor, row: Any, __: Any) -> dict[str, Any]:
        view = site.tallies.view(site.campaign, row.id)
        total = len(view.figures.differing.item)
        paged = _paged(request, total, PAGE)
        with site.campaign.reading() as connection:
            items = look.differing_items(connection, row.id, view.figures, paged["start"], PAGE)
        return {"view": view, "items": items, "total": total, **paged}

    return await of_study(request, "disagreement", "owner_disagreement.html", tell)


ROUTES: tuple[Route, ...] = (
    Route("/owner", campaign),
    Route("/owner/invite", invite, methods=["POST"]),
    Route("/owner/{study}", overview),
    Route("/owner/{study}/open", set_open, methods=["POST"]),
    Route("/owner/{study}/people", crowd),
    Route("/owner/{study}/people/{person:int}", worker),
    Route("/owner/{study}/review", to_review),
    Route("/owner/{study}/hit/{claim}", one_hit),
    Route("/owner/{study}/hit/{claim}/review", review, methods=["POST"]),
    Route("/owner/{study}/disagreement", disagreement),
)
