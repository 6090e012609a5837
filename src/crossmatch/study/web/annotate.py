"""The pages of annotators, and the interface that they use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import assign, people
from crossmatch.study.assign import Nothing
from crossmatch.study.design import from_told
from crossmatch.study.people import Person
from crossmatch.study.schema import item, member, study
from crossmatch.study.shown import NotYours, Shown, load_hit, number_of, shown_item
from crossmatch.study.web.faces import example, payload
from crossmatch.study.web.guard import (
    FIELD,
    HEADER,
    UNKNOWN,
    Refused,
    Session,
    Visitor,
    entry_of,
    form_of,
    give_entry,
    json_of,
    open_session,
    require,
    require_own,
    session,
    visitor,
)
from crossmatch.study.web.site import Site, is_api, see, site_of

if TYPE_CHECKING:
    from starlette.requests import Request

PLATFORMS = ("PROLIFIC_PID", "workerId", "person")  # parameters of a link by which platforms tell who comes
ENDS = ("none", "limit", "closed", "qualify", "excluded")  # why the page of a HIT sends people back to the study


# -- coming in


async def home(request: Request) -> Response:
    """Where to go: to a person's own studies, or to the owner's page."""
    site = site_of(request)

    def shown() -> Response:
        who = visitor(site.campaign, request)
        if who is not None and who.person.role != "annotator":
            return see("/owner")
        with site.campaign.reading() as connection:
            rows = _own_studies(connection, who.person.id) if who else []
        return site.page("home.html", who, studies=[{"name": row.name, "title": row.design["title"]} for row in rows])

    return await run_in_threadpool(shown)


def _own_studies(connection: Connection, person_id: int) -> list[Any]:
    """The studies that a person was invited to or joined: those that are open, and those of which they still hold a HIT."""
    asked = select(study.c.id, study.c.name, study.c.design, study.c.open).join(member, member.c.study == study.c.id)
    rows = connection.execute(asked.where(member.c.person == person_id).order_by(study.c.id))
    return [row for row in rows.all() if row.open or assign.holds(connection, row.id, person_id)]


async def enter(request: Request) -> Response:
    """A person comes with their token: by GET a button, so that a preview of the link opens nothing; by POST they are in."""
    site, token = site_of(request), request.path_params["token"]
    if request.method != "POST":
        return site.page("enter.html", None, token=token)
    require_own(request, None, None)
    _limit_entry(site, request)
    who = await run_in_threadpool(people.enter, site.campaign, token)
    if who is None:
        raise Refused(404, "this link is not, or no longer, valid. Ask who sent it for another one.")
    answer = see("/")
    open_session(site.campaign, answer, who, site.secure)
    return answer


async def join(request: Request) -> Response:
    """A person comes by the link of a study: reads what it is about, agrees, and is in. Whoever agrees again is in, too."""
    site, link = site_of(request), request.path_params["link"]
    given = next((request.query_params[name] for name in PLATFORMS if request.query_params.get(name)), "")
    fields = await form_of(request) if request.method == "POST" else {}

    def shown() -> Response:
        who = visitor(site.campaign, request)
        known = who if who is not None and (not given or who.person.key == given) else None  # else somebody else at this machine
        with site.campaign.reading() as connection:
            row = connection.execute(select(study).where(study.c.link == link)).first()
            if row is None:
                raise Refused(404, "this link leads to no study. Ask who sent it for another one.")
            if known is not None and _is_theirs(connection, row.id, known):
                return see(f"/s/{row.name}")
        if request.method != "POST":
            return first_page(row, known, "")
        require_own(request, known, fields.get(FIELD))
        _limit_entry(site, request)
        try:
            person = known.person if known else _joined(site, request, row, given or fields.get("person", ""))
            people.agree(site.campaign, row.id, person.id)
        except CrossmatchError as error:
            return first_page(row, known, str(error))
        answer = see(f"/s/{row.name}")
        if known is None:
            open_session(site.campaign, answer, person, site.secure)
        return answer

    def first_page(row: Any, known: Visitor | None, error: str) -> Response:
        name = known.person.key if known else given
        told = {"design": from_told(row.design), "given": name, "open": row.open, "error": error}
        answer = site.page("join.html", known, 409 if error else 200, **told)
        if not error:
            give_entry(request, answer, site.secure)
        return answer

    return await run_in_threadpool(shown)


def _joined(site: Site, request: Request, row: Any, name: str) -> Person:
    """Who joins; a closed study takes nobody new."""
    entry = entry_of(request)
    if not row.open and people.returning(site.campaign, name, entry) is None:
        raise CrossmatchError("this study is closed. Thank you for coming.")
    return people.join(site.campaign, row.link, name, entry)[1]


def _limit_entry(site: Site, request: Request) -> None:
    address = request.client.host if request.client else ""
    if not site.entries.take(address):
        raise Refused(429, "too many people came from your address at once. Wait a minute, and try again.")


def _known(site: Site, request: Request) -> Visitor:
    who = require(site.campaign, request)
    site.limit(who.person.id, who.person.sessions)
    return who


def _signed(site: Site, request: Request, token: object) -> Session:
    """Who sends something, by their cookie alone: whether their session holds is asked where it is done, in one transaction."""
    who = session(site.campaign, request)
    if who is None:
        raise Refused(401, UNKNOWN)
    site.limit(who.person, who.number)
    require_own(request, who, token)
    return who


def named(connection: Connection, name: str) -> Any:
    """The study of this name."""
    row = connection.execute(select(study).where(study.c.name == name)).first()
    if row is None:
        raise NotYours("there is no such study. Check the link.")
    return row


def _own(connection: Connection, request: Request, who: Visitor) -> Any:
    """The study of this name, if it is this person's; what others are asked to do is none of theirs."""
    row = named(connection, request.path_params["study"])
    if not _is_theirs(connection, row.id, who):
        raise NotYours("there is no such study. Check the link.")
    return row


def _is_theirs(connection: Connection, study_id: int, who: Visitor) -> bool:
    return who.person.role != "annotator" or people.membership(connection, study_id, who.person.id) is not None


# -- a study


async def overview(request: Request) -> Response:
    """What is asked, how far one is, and a button to begin or to go on."""
    site, end = site_of(request), request.query_params.get("end", "")

    def shown() -> Response:
        who = _known(site, request)
        with site.campaign.reading() as connection:
            row = _own(connection, request, who)
            mine = people.membership(connection, row.id, who.person.id)
            holds = assign.holds(connection, row.id, who.person.id)
            code = people.completion(site.campaign, connection, row.id, who.person)
            examples = [example(row, one) for one in connection.execute(select(item).where(item.c.study == row.id, item.c.example))]
        mine = mine if mine is not None and mine.consented else None
        told = {"member": mine, "holds": holds, "code": code, "examples": examples, "end": end if end in ENDS else ""}
        return site.page("study.html", who, name=row.name, design=from_told(row.design), open=row.open, **told)

    return await run_in_threadpool(shown)


async def agree(request: Request) -> Response:
    """A person who has entered by a token agrees to take part."""
    site, fields = site_of(request), await form_of(request)

    def done() -> Response:
        who = _known(site, request)
        require_own(request, who, fields.get(FIELD))
        with site.campaign.reading() as connection:
            row = _own(connection, request, who)
        people.agree(site.campaign, row.id, who.person.id)
        return see(f"/s/{row.name}")

    return await run_in_threadpool(done)


async def claim(request: Request) -> Response:
    """The next HIT; a page for a form, json for a script."""
    site, api = site_of(request), is_api(request)
    fields = await json_of(request) if api else await form_of(request)
    token = request.headers.get(HEADER) if api else fields.get(FIELD)

    def done() -> Response:
        who = _signed(site, request, token)
        try:
            number = number_of(site.campaign, request.path_params["study"])
            held = assign.claim_and_load(site.campaign, number, who.person, who.number)
        except NotYours:
            require(site.campaign, request)  # a session that is over is told nothing, not even which studies there are
            raise
        except Nothing as error:  # perhaps since the study is not theirs
            return _nothing(site, request, require(site.campaign, request), error, api)
        return JSONResponse(payload(held)) if api else see(f"/h/{held.claim}")

    return await run_in_threadpool(done)


def _nothing(site: Site, request: Request, who: Visitor, error: Nothing, api: bool) -> Response:
    with site.campaign.reading() as connection:
        row = _own(connection, request, who)
        code = people.completion(site.campaign, connection, row.id, who.person)
    if api:
        told = {"code": code[0], "url": code[1]} if code else {}
        return JSONResponse({"error": str(error), "why": error.why, **told}, 409)
    return site.page("finished.html", who, name=row.name, title=row.design["title"], text=str(error), why=error.why, code=code)


# -- a HIT


async def work(request: Request) -> Response:
    """A HIT as a page."""
    site = site_of(request)

    def shown() -> Response:
        who = _known(site, request)
        with site.campaign.reading() as connection:
            held = load_hit(connection, request.path_params["claim"], who.person.id)
            if held.submitted:
                return see(f"/s/{held.name}")
            mine = people.membership(connection, held.study, who.person.id)
            told = payload(held)
        return site.page("work.html", who, hit=told, design=held.design, submitted=mine.submitted if mine else 0)

    return await run_in_threadpool(shown)


async def hit_json(request: Request) -> Response:
    site = site_of(request)

    def shown() -> Response:
        who = _known(site, request)
        with site.campaign.reading() as connection:
            return JSONResponse(payload(load_hit(connection, request.path_params["claim"], who.person.id)))

    return await run_in_threadpool(shown)


async def save_draft(request: Request) -> Response:
    site, told = site_of(request), await json_of(request)

    def done() -> Response:
        who = _known(site, request)
        require_own(request, who, request.headers.get(HEADER))
        number = told.get("number")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**31:
            raise CrossmatchError("a draft needs a number from 1 on. Reload the page.")
        if not isinstance(told.get("answers"), list) or len(told["answers"]) > 10_000:
            raise CrossmatchError("a draft needs a list of answers. Reload the page.")
        lease = assign.keep_draft(site.campaign, request.path_params["claim"], who.person.id, number, told["answers"])
        return JSONResponse({"kept": True, "lease": lease})

    return await run_in_threadpool(done)


async def submit(request: Request) -> Response:
    """Answers to all items of a HIT. Acknowledged only once they are on the disk."""
    site, told = site_of(request), await json_of(request)

    def done() -> Response:
        who = _signed(site, request, request.headers.get(HEADER))
        given = (told.get("answers"), told.get("seconds"))
        try:
            receipt = assign.submit(site.campaign, request.path_params["claim"], who.person, *given, sessions=who.number)
        except NotYours:
            require(site.campaign, request)
            raise
        return JSONResponse({"again": receipt.again, "late": receipt.late, "counted": receipt.counted, "passed": receipt.passed})

    return await run_in_threadpool(done)


async def picture(request: Request) -> Response:
    """The n-th image of an item of one's own HIT. The address says nothing of the file."""
    site = site_of(request)

    def shown() -> Response:
        who = _known(site, request)
        anybody = None if who.person.role in ("owner", "reviewer") else who.person.id
        with site.campaign.reading() as connection:
            held = load_hit(connection, request.path_params["claim"], anybody)
        return _file(site, held.items, request.path_params["place"], request.path_params["n"])

    return await run_in_threadpool(shown)


async def example_picture(request: Request) -> Response:
    site = site_of(request)

    def shown() -> Response:
        who = _known(site, request)
        with site.campaign.reading() as connection:
            row = _own(connection, request, who)
            examples = connection.execute(select(item).where(item.c.study == row.id, item.c.example)).all()
        design = from_told(row.design)
        items = tuple(shown_item(design, one, row.seed, "example") for one in examples)
        return _file(site, items, request.path_params["place"], request.path_params["n"])

    return await run_in_threadpool(shown)


def _file(site: Site, items: tuple[Shown, ...], place: int, n: int) -> Response:
    if place >= len(items) or n >= len(items[place].images):
        raise NotYours("there is no such picture.")
    path = site.campaign.pictures / items[place].images[n]
    if path.parent != site.campaign.pictures or not path.is_file():
        raise NotYours("there is no such picture.")
    # no FileResponse: it tells when the file was made, and gold may have been made on another day
    return Response(path.read_bytes(), media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})
