"""The service as an ASGI application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from crossmatch.core.errors import CrossmatchError
from crossmatch.study.store import Campaign
from crossmatch.study.web import annotate, owner
from crossmatch.study.web.guard import Guarded
from crossmatch.study.web.site import HERE, Site, failed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp


async def alive(_: object) -> PlainTextResponse:
    return PlainTextResponse("ok")


PICTURE = "{place:int}/{n:int}"
ROUTES = (
    Route("/", annotate.home),
    Route("/alive", alive),
    Route("/enter/{token}", annotate.enter, methods=["GET", "POST"]),
    Route("/join/{link}", annotate.join, methods=["GET", "POST"]),
    Route("/s/{study}", annotate.overview),
    Route("/s/{study}/agree", annotate.agree, methods=["POST"]),
    Route("/s/{study}/claim", annotate.claim, methods=["POST"]),
    Route(f"/s/{{study}}/example/{PICTURE}", annotate.example_picture),
    Route("/h/{claim}", annotate.work),
    Route(f"/h/{{claim}}/picture/{PICTURE}", annotate.picture),
    Route("/api/s/{study}/claim", annotate.claim, methods=["POST"]),
    Route("/api/h/{claim}", annotate.hit_json),
    Route("/api/h/{claim}/draft", annotate.save_draft, methods=["PUT"]),
    Route("/api/h/{claim}/submit", annotate.submit, methods=["POST"]),
    *owner.ROUTES,
    Mount("/static", StaticFiles(directory=HERE / "static")),
)


def make_app(campaign: Campaign, *, secure: bool = False, site: Site | None = None, hosts: Iterable[str] = ()) -> ASGIApp:
    """The pages of a campaign. `secure` marks cookies for https alone; `hosts` are the only names by which people come."""
    app = Starlette(routes=list(ROUTES), exception_handlers={CrossmatchError: failed, Exception: failed})
    app.router.redirect_slashes = False  # else an address that is none leads to one that the Host header names
    app.state.site = site or Site(campaign, secure)
    return Guarded(app, hosts)
