"""The pages of owners and reviewers."""

from __future__ import annotations

from starlette.routing import Route

ROUTES: tuple[Route, ...] = ()
