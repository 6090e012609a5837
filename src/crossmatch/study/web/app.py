"""The ASGI application of the annotation service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.database.campaign import Campaign
from crossmatch.study.web import annotator_pages, owner_pages
from crossmatch.study.web.security import SecurityMiddleware
from crossmatch.study.web.site import HERE, Site, handle_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp


async def alive(_: object) -> PlainTextResponse:
    return PlainTextResponse("ok")


IMAGE_PATH = "{place:int}/{n:int}"
ROUTES = (
    Route("/", annotator_pages.home),
    Route("/alive", alive),
    Route("/enter/{token}", annotator_pages.enter, methods=["GET", "POST"]),
    Route("/join/{link}", annotator_pages.join, methods=["GET", "POST"]),
    Route("/s/{study}", annotator_pages.overview),
    Route("/s/{study}/agree", annotator_pages.agree, methods=["POST"]),
    Route("/s/{study}/claim", annotator_pages.claim, methods=["POST"]),
    Route(f"/s/{{study}}/example/{IMAGE_PATH}", annotator_pages.example_image),
    Route("/h/{claim}", annotator_pages.work),
    Route(f"/h/{{claim}}/picture/{IMAGE_PATH}", annotator_pages.hit_image),
    Route("/api/s/{study}/claim", annotator_pages.claim, methods=["POST"]),
    Route("/api/h/{claim}", annotator_pages.hit_json),
    Route("/api/h/{claim}/draft", annotator_pages.save_draft, methods=["PUT"]),
    Route("/api/h/{claim}/submit", annotator_pages.submit, methods=["POST"]),
    *owner_pages.ROUTES,
    Mount("/static", StaticFiles(directory=HERE / "static")),
)


def make_app(campaign: Campaign, *, site: Site | None = None, hosts: Iterable[str] = ()) -> ASGIApp:
    """The application of a campaign.

    Args:
        campaign: The campaign.
        site: Shared state; tests pass their own.
        hosts: The allowed values of the Host header; empty for any.
    """
    handlers = dict.fromkeys((CrossmatchError, Exception), handle_error)
    app = Starlette(routes=list(ROUTES), exception_handlers=handlers)
    app.router.redirect_slashes = False  # a redirect would use the Host header
    app.state.site = site or Site(campaign)
    return SecurityMiddleware(app, hosts)
