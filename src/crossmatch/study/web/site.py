"""What all pages share: the campaign, the templates, the rates; and how an error becomes an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from crossmatch.core.errors import CrossmatchError
from crossmatch.study.assign import Nothing
from crossmatch.study.live import Tallies
from crossmatch.study.shown import Ended, NotYours
from crossmatch.study.store import Campaign
from crossmatch.study.verdicts import NotReviewed
from crossmatch.study.web.guard import Rate, Refused, Visitor

if TYPE_CHECKING:
    from starlette.requests import Request

HERE = Path(__file__).parent
STATUS = ((NotYours, 404), (Ended, 401), (Nothing, 409), (NotReviewed, 409), (CrossmatchError, 422))  # the first that fits


@dataclass(frozen=True, eq=False)
class Site:
    """An open campaign as pages."""

    campaign: Campaign
    secure: bool = False  # whether people come by https
    entries: Rate = field(default_factory=lambda: Rate(2, 120))  # of joining and entering, for each address
    requests: Rate = field(default_factory=lambda: Rate(50, 200))  # of everything else, for each person
    tallies: Tallies = field(default_factory=Tallies)  # what owners see of each study
    templates: Environment = field(
        default_factory=lambda: Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
    )

    def limit(self, person_id: int, sessions: int) -> None:
        """A rate for each person; one of its own for sessions that are over, which must not slow down those that hold."""
        if not self.requests.take(f"{person_id}/{sessions}"):
            raise Refused(429, "that was too fast. Wait a moment, and try again.")

    def page(self, template: str, who: Visitor | None, code: int = 200, /, **told: Any) -> HTMLResponse:
        """A page from its template; every text in it is escaped."""
        text = self.templates.get_template(template).render(who=who, csrf=who.csrf if who else "", **told)
        return HTMLResponse(text, code)


def site_of(request: Request) -> Site:
    found: Site = request.app.state.site
    return found


def is_api(request: Request) -> bool:
    return str(request.scope["path"]).startswith("/api/")  # request.url is partly what the sender calls us


def failed(request: Request, error: Exception) -> Response:
    """The answer to a request that went wrong: one line, as json or as a page."""
    status = error.status if isinstance(error, Refused) else next((code for kind, code in STATUS if isinstance(error, kind)), 500)
    told = str(error) if isinstance(error, CrossmatchError) else "something went wrong here. Try again."
    if is_api(request):
        body: dict[str, Any] = {"error": told}
        if isinstance(error, Nothing):
            body["why"] = error.why
        return JSONResponse(body, status)
    return site_of(request).page("error.html", None, status, text=told, status=status)


def see(where: str) -> RedirectResponse:
    """Go on to another page of ours, by GET."""
    return RedirectResponse(where, 303)
