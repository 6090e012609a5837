"""The pages of annotators, and the JSON interface that their scripts use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select
from starlette.responses import JSONResponse, Response

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment import claims, people
from crossmatch.study.assignment.claims import NoHitAvailableError
from crossmatch.study.assignment.displayed_hits import (
    NO_SUCH_STUDY,
    SESSION_EXPIRED,
    DisplayedItem,
    NotFoundError,
    display_item,
    find_study_id,
    load_hit,
)
from crossmatch.study.assignment.people import Person
from crossmatch.study.database.schema import item, member, study
from crossmatch.study.design.declaration import design_from_dict
from crossmatch.study.web.hit_json import example_as_json, hit_as_json
from crossmatch.study.web.security import (
    FIELD,
    RequestRejectedError,
    Session,
    Visitor,
    find_visitor,
    give_browser_secret,
    open_session,
    read_browser_secret,
    read_session,
    require_csrf,
    require_same_origin,
    require_visitor,
)
from crossmatch.study.web.site import Site, is_api, redirect, site_of, with_body, with_role

if TYPE_CHECKING:
    from starlette.requests import Request

PLATFORM_PARAMETERS = ("PROLIFIC_PID", "workerId", "person")  # query parameters with the annotator's id
ENDINGS = ("none", "limit", "closed", "qualify", "excluded")  # reasons for which the HIT page returns to the study
BAD_LINK = "This link is not valid. Ask the sender for a new link."
NO_SUCH_IMAGE = "This image does not exist."


# -- entering and joining


def home(request: Request) -> Response:
    """The start page: a person's studies, or a redirect to the owner pages."""
    site = site_of(request)
    visitor = find_visitor(site.campaign, request)
    if visitor is not None and visitor.person.role != "annotator":
        return redirect("/owner")
    with site.campaign.read_transaction() as connection:
        rows = _load_own_studies(connection, visitor.person.id) if visitor else []
    return site.page("home.html", visitor, studies=[{"name": row.name, "title": row.design["title"]} for row in rows])


def _load_own_studies(connection: Connection, person_id: int) -> list[Any]:
    """The studies of a person that are open, or of which they hold a HIT."""
    query = select(study.c.id, study.c.name, study.c.design, study.c.open).join(member, member.c.study == study.c.id)
    rows = connection.execute(query.where(member.c.person == person_id).order_by(study.c.id)).all()
    return [row for row in rows if row.open or claims.has_unfinished_hit(connection, row.id, person_id)]


def enter(request: Request) -> Response:
    """Enter by a personal link. GET shows a button, so that a link preview does not start a session; POST starts it."""
    site, token = site_of(request), request.path_params["token"]
    if request.method != "POST":
        return site.page("enter.html", None, token=token)
    require_same_origin(request)
    _limit_entries(site, request)
    person = people.find_by_token(site.campaign, token)
    if person is None:
        raise RequestRejectedError(404, BAD_LINK)
    response = redirect("/")
    open_session(site.campaign, response, person, site.secure)
    return response


def _require_link(request: Request) -> None:
    """Raise unless the link belongs to a study: a stranger without a link cannot make the service read a body."""
    site = site_of(request)
    if request.method == "POST":
        _limit_entries(site, request)
    with site.campaign.read_transaction() as connection:
        if connection.execute(select(study.c.id).where(study.c.link == request.path_params["link"])).first() is None:
            raise RequestRejectedError(404, BAD_LINK)


@with_body(_require_link)
def join(request: Request, _: None, fields: dict[str, Any]) -> Response:
    """Join a study by its link: read about it and agree. Repeating the form has no further effect."""
    site, link = site_of(request), request.path_params["link"]
    platform_id = next((request.query_params[name] for name in PLATFORM_PARAMETERS if request.query_params.get(name)), "")
    visitor = find_visitor(site.campaign, request)
    if visitor is not None and platform_id and visitor.person.name != platform_id:
        visitor = None  # somebody else at the same browser
    with site.campaign.read_transaction() as connection:
        row = connection.execute(select(study).where(study.c.link == link)).one()
        if visitor is not None and _is_member(connection, row.id, visitor):
            return redirect(f"/s/{row.name}")
    name = visitor.person.name if visitor else platform_id
    values = {"design": design_from_dict(row.design), "annotator_name": name, "open": row.open}
    if request.method != "POST":
        page = site.page("join.html", visitor, **values, error="")
        give_browser_secret(request, page, site.secure)
        return page
    require_csrf(visitor, fields.get(FIELD))
    try:
        person = visitor.person if visitor else _join(site, request, row, platform_id or fields.get("person", ""))
        people.give_consent(site.campaign, row.id, person.id)
    except CrossmatchError as error:
        return site.page("join.html", visitor, 409, **values, error=str(error))
    response = redirect(f"/s/{row.name}")
    if visitor is None:
        open_session(site.campaign, response, person, site.secure)
    return response


def _join(site: Site, request: Request, row: Any, name: str) -> Person:
    """Add a person to a study; a closed study accepts no new people."""
    browser_secret = read_browser_secret(request)
    if not row.open and people.find_returning(site.campaign, name, browser_secret) is None:
        raise CrossmatchError("This study is closed. Thank you for your interest.")
    return people.join_study(site.campaign, row.link, name, browser_secret)[1]


def _limit_entries(site: Site, request: Request) -> None:
    address = request.client.host if request.client else ""
    if not site.entries.allow(address):
        raise RequestRejectedError(429, "Too many people have joined from your address. Wait a minute and try again.")


def _require_session(request: Request) -> Session:
    """The session in the cookie. Whether it has ended is checked later, in the transaction of the change."""
    site = site_of(request)
    session = read_session(site.campaign, request)
    if session is None:
        raise RequestRejectedError(401, SESSION_EXPIRED)
    site.limit_requests(session.person_id, session.session_number)
    return session


def load_study(connection: Connection, name: str) -> Any:
    """The row of the study with this name."""
    row = connection.execute(select(study).where(study.c.name == name)).first()
    if row is None:
        raise NotFoundError(NO_SUCH_STUDY)
    return row


def _load_own_study(connection: Connection, request: Request, visitor: Visitor) -> Any:
    """The study in the address, if the visitor is a member of it."""
    row = load_study(connection, request.path_params["study"])
    if not _is_member(connection, row.id, visitor):
        raise NotFoundError(NO_SUCH_STUDY)
    return row


def _load_examples(connection: Connection, study_id: int) -> Sequence[Any]:
    return connection.execute(select(item).where(item.c.study == study_id, item.c.example)).all()


def _is_member(connection: Connection, study_id: int, visitor: Visitor) -> bool:
    return visitor.person.role != "annotator" or people.find_membership(connection, study_id, visitor.person.id) is not None


# -- a study


def overview(request: Request) -> Response:
    """The page of a study: instructions, progress, and a button to start or continue."""
    site, end = site_of(request), request.query_params.get("end", "")
    visitor = site.require_visitor(request)
    with site.campaign.read_transaction() as connection:
        row = _load_own_study(connection, request, visitor)
        membership = people.find_membership(connection, row.id, visitor.person.id)
        values = {
            "member": membership if membership is not None and membership.consented else None,
            "has_unfinished_hit": claims.has_unfinished_hit(connection, row.id, visitor.person.id),
            "code": people.completion_code(site.campaign, connection, row.id, visitor.person),
            "examples": [example_as_json(row, example) for example in _load_examples(connection, row.id)],
            "end": end if end in ENDINGS else "",
        }
    return site.page("study.html", visitor, name=row.name, design=design_from_dict(row.design), open=row.open, **values)


@with_body(with_role())
def agree(request: Request, visitor: Visitor, _: dict[str, Any]) -> Response:
    """Somebody who entered by a personal link agrees to take part."""
    site = site_of(request)
    with site.campaign.read_transaction() as connection:
        row = _load_own_study(connection, request, visitor)
    people.give_consent(site.campaign, row.id, visitor.person.id)
    return redirect(f"/s/{row.name}")


@with_body(_require_session)
def claim(request: Request, session: Session, _: dict[str, Any]) -> Response:
    """Claim the next HIT; a redirect for a form, JSON for a script."""
    site = site_of(request)
    try:
        study_id = find_study_id(site.campaign, request.path_params["study"])
        claimed = claims.claim_and_load(site.campaign, study_id, session.person_id, session.session_number)
    except NotFoundError:
        require_visitor(site.campaign, request)  # an ended session must not learn which studies exist
        raise
    except NoHitAvailableError as error:
        return _no_hit_response(site, request, require_visitor(site.campaign, request), error)
    return JSONResponse(hit_as_json(claimed)) if is_api(request) else redirect(f"/h/{claimed.claim_id}")


def _no_hit_response(site: Site, request: Request, visitor: Visitor, error: NoHitAvailableError) -> Response:
    with site.campaign.read_transaction() as connection:
        row = _load_own_study(connection, request, visitor)
        code = people.completion_code(site.campaign, connection, row.id, visitor.person)
    if is_api(request):
        completion = {"code": code[0], "url": code[1]} if code else {}
        return JSONResponse({"error": str(error), "why": error.reason, **completion}, 409)
    values = {"name": row.name, "title": row.design["title"], "text": str(error), "reason": error.reason, "code": code}
    return site.page("finished.html", visitor, **values)


# -- a HIT


def work(request: Request) -> Response:
    """The page of a HIT."""
    site = site_of(request)
    visitor = site.require_visitor(request)
    with site.campaign.read_transaction() as connection:
        claimed = load_hit(connection, request.path_params["claim"], visitor.person.id)
        membership = people.find_membership(connection, claimed.study_id, visitor.person.id)
    if claimed.is_submitted:
        return redirect(f"/s/{claimed.study_name}")
    submitted = membership.submitted if membership else 0
    return site.page("work.html", visitor, hit=hit_as_json(claimed), design=claimed.design, submitted=submitted)


def hit_json(request: Request) -> Response:
    """A HIT as JSON."""
    site = site_of(request)
    visitor = site.require_visitor(request)
    with site.campaign.read_transaction() as connection:
        return JSONResponse(hit_as_json(load_hit(connection, request.path_params["claim"], visitor.person.id)))


@with_body(with_role())
def save_draft(request: Request, visitor: Visitor, body: dict[str, Any]) -> Response:
    """Store a draft of the answers."""
    number, answers = body.get("number"), body.get("answers")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 2**31:
        raise CrossmatchError("A draft needs a number of at least 1. Reload the page.")
    if not isinstance(answers, list) or len(answers) > 10_000:
        raise CrossmatchError("A draft needs a list of answers. Reload the page.")
    lease_end = claims.save_draft(site_of(request).campaign, request.path_params["claim"], visitor.person.id, number, answers)
    return JSONResponse({"kept": True, "lease": lease_end})


@with_body(_require_session)
def submit(request: Request, session: Session, body: dict[str, Any]) -> Response:
    """Submit the answers to all items of a HIT. The response is sent when they are on the disk."""
    site, claim_id = site_of(request), request.path_params["claim"]
    answers, seconds = body.get("answers"), body.get("seconds")
    try:
        receipt = claims.submit(site.campaign, claim_id, session.person_id, answers, seconds, session.session_number)
    except NotFoundError:
        require_visitor(site.campaign, request)
        raise
    outcome = {"late": receipt.is_late, "counted": receipt.is_counted, "passed": receipt.passed_quiz}
    return JSONResponse({"again": receipt.is_repeat, **outcome})


def hit_image(request: Request) -> Response:
    """Image n of an item of a HIT. The address does not contain the file name."""
    site = site_of(request)
    visitor = site.require_visitor(request)
    owner_id = None if visitor.person.role in ("owner", "reviewer") else visitor.person.id
    with site.campaign.read_transaction() as connection:
        claimed = load_hit(connection, request.path_params["claim"], owner_id)
    return _image_response(site, claimed.items, request)


def example_image(request: Request) -> Response:
    """Image n of an example."""
    site = site_of(request)
    visitor = site.require_visitor(request)
    with site.campaign.read_transaction() as connection:
        row = _load_own_study(connection, request, visitor)
        examples = _load_examples(connection, row.id)
    design = design_from_dict(row.design)
    return _image_response(site, [display_item(design, example, row.seed, "example") for example in examples], request)


def _image_response(site: Site, items: Sequence[DisplayedItem], request: Request) -> Response:
    place, n = request.path_params["place"], request.path_params["n"]
    if place >= len(items) or n >= len(items[place].images):
        raise NotFoundError(NO_SUCH_IMAGE)
    path = site.campaign.images_folder / items[place].images[n]
    if path.parent != site.campaign.images_folder or not path.is_file():
        raise NotFoundError(NO_SUCH_IMAGE)
    # Not a FileResponse: it sends the modification time, which may differ for images of gold questions.
    return Response(path.read_bytes(), media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})
