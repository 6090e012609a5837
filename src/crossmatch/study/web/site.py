"""What all pages share: the campaign, templates, rate limits, checks before a body is read, and error pages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment.claims import NoHitAvailableError
from crossmatch.study.assignment.displayed_hits import NotFoundError, SessionExpiredError
from crossmatch.study.assignment.review import ReviewConflictError
from crossmatch.study.database.campaign import Campaign, DatabaseUnavailableError
from crossmatch.study.results.statistics_cache import StatisticsCache
from crossmatch.study.web.security import (
    FIELD,
    HEADER,
    RateLimit,
    RequestRejectedError,
    Session,
    Visitor,
    read_form,
    read_json,
    require_csrf,
    require_same_origin,
    require_visitor,
)

if TYPE_CHECKING:
    from starlette.requests import Request

HERE = Path(__file__).parent
log = logging.getLogger(__name__)
Sender = TypeVar("Sender", bound=Visitor | Session | None)
DATABASE_AWAY = "The service cannot reach its database at the moment. Your answers are not lost. Try again in a minute."
STATUS_CODES = (  # the first class that fits
    (DatabaseUnavailableError, 503),
    (NotFoundError, 404),
    (SessionExpiredError, 401),
    (NoHitAvailableError, 409),
    (ReviewConflictError, 409),
    (CrossmatchError, 422),
)
SERVER_ERROR = "Something went wrong on the server. Try again."


@dataclass(frozen=True, eq=False)
class Site:
    """An open campaign with everything that its pages need."""

    campaign: Campaign
    secure: bool = False  # whether people use https
    entries: RateLimit = field(default_factory=lambda: RateLimit(2, 120))  # joining and entering, per address
    requests: RateLimit = field(default_factory=lambda: RateLimit(50, 200))  # everything else, per person
    outage_lines: RateLimit = field(default_factory=lambda: RateLimit(1 / 60, 1))  # in the log
    statistics: StatisticsCache = field(default_factory=StatisticsCache)
    templates: Environment = field(
        default_factory=lambda: Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
    )

    def limit_requests(self, person_id: int, session_number: int) -> None:
        """Limit the requests of a person. Ended sessions have their own limit, so that they do not slow down current ones."""
        if not self.requests.allow(f"{person_id}/{session_number}"):
            raise RequestRejectedError(429, "Too many requests. Wait a moment and try again.")

    def require_visitor(self, request: Request, *roles: str) -> Visitor:
        """The person who sent a request, if they have one of these roles; no roles mean any. Counts the request."""
        visitor = require_visitor(self.campaign, request, *roles)
        self.limit_requests(visitor.person.id, visitor.person.session_number)
        return visitor

    def page(self, template: str, visitor: Visitor | None, status: int = 200, /, **values: Any) -> HTMLResponse:
        """Render a template; all texts are escaped."""
        text = self.templates.get_template(template).render(visitor=visitor, csrf=visitor.csrf if visitor else "", **values)
        return HTMLResponse(text, status)


def site_of(request: Request) -> Site:
    site: Site = request.app.state.site
    return site


def is_api(request: Request) -> bool:
    return str(request.scope["path"]).startswith("/api/")  # request.url depends on the Host header


def with_role(*roles: str) -> Callable[[Request], Visitor]:
    """A function for `with_body` that requires a visitor with one of these roles; no roles mean any."""
    return lambda request: site_of(request).require_visitor(request, *roles)


def with_body(
    authenticate: Callable[[Request], Sender],
) -> Callable[[Callable[[Request, Sender, dict[str, Any]], Response]], Callable[[Request], Awaitable[Response]]]:
    """Decorate a handler of requests that change something: check the sender, read the body, run the handler in a thread.

    The sender, the origin and the CSRF token in the header of a JSON request are checked before the body is read. The token of
    a form is one of its fields.

    Args:
        authenticate: Returns who sent the request, or raises. None means anyone; such a handler checks the token itself.
    """

    def decorate(handler: Callable[[Request, Sender, dict[str, Any]], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def check_and_handle(request: Request) -> Response:
            sender = await run_in_threadpool(authenticate, request)
            body: dict[str, Any] = {}
            if request.method in ("POST", "PUT"):
                require_same_origin(request)
                if is_api(request):
                    require_csrf(sender, request.headers.get(HEADER))
                    body = await read_json(request)
                else:
                    body = dict(await read_form(request))
                    require_csrf(sender, body.get(FIELD))
            return await run_in_threadpool(handler, request, sender, body)

        return check_and_handle

    return decorate


def handle_error(request: Request, error: Exception) -> Response:
    """The response to a request that failed: its message as JSON or as a page.

    A database that is away or has a full disk is one line in the log, and browsers repeat the request.
    """
    if isinstance(error, RequestRejectedError):
        status = error.status
    else:
        status = next((code for kind, code in STATUS_CODES if isinstance(error, kind)), 500)
    text = str(error) if isinstance(error, CrossmatchError) else SERVER_ERROR
    if isinstance(error, DatabaseUnavailableError):
        if site_of(request).outage_lines.allow("database"):
            log.error("%s", text)
        text = DATABASE_AWAY  # not the path or the host
    if is_api(request):
        body: dict[str, Any] = {"error": text}
        if isinstance(error, NoHitAvailableError):
            body["why"] = error.reason
        return JSONResponse(body, status)
    return site_of(request).page("error.html", None, status, text=text, status=status)


def redirect(url: str) -> RedirectResponse:
    """Redirect to another page of this service, by GET."""
    return RedirectResponse(url, 303)
