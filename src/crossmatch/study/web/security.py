"""Security of the pages: sessions, forged requests, size limits, rate limits and headers.

- A session is a signed cookie that scripts cannot read and other sites cannot send. It ends when the person gets a new token, by its
  number and not by a time, so that a clock that is set back ends no session.
- A request that changes something carries a second secret that only our own pages know (CSRF), and comes from our own origin.
- Nothing inline is executed, nothing is loaded from other sites, and no page can be framed.
"""

from __future__ import annotations

import hmac
import json
import logging
import math
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from itsdangerous import BadData, URLSafeSerializer
from starlette.requests import ClientDisconnect

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.assignment.displayed_hits import SESSION_EXPIRED
from crossmatch.study.assignment.people import Person, find_person

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from crossmatch.study.database.campaign import Campaign

COOKIE, FIELD, HEADER = "crossmatch_session", "csrf", "x-csrf-token"
BROWSER_COOKIE = "crossmatch_entry"  # a secret by which a browser is recognised when somebody joins twice
SESSION_DAYS = 14
MAX_BODY_BYTES = 512 * 1024
MAX_ADDRESS_LENGTH = 2000
MAX_JSON_DEPTH = 12
log = logging.getLogger(__name__)
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, browsers send our forms with the origin "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


class RequestRejectedError(CrossmatchError):
    """A request that is rejected with an HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


@dataclass(frozen=True)
class Visitor:
    """The person who sent a request, and the CSRF token of their pages."""

    person: Person
    csrf: str


# -- sessions


def _signer(campaign: Campaign) -> URLSafeSerializer:
    return URLSafeSerializer(campaign.secret, salt="session")


def open_session(campaign: Campaign, response: Response, person: Person, secure: bool) -> None:
    """Start a session: the browser gets a signed cookie."""
    value = _signer(campaign).dumps([person.id, person.session_number, secrets.token_hex(8), int(campaign.now())])
    response.set_cookie(COOKIE, value, max_age=SESSION_DAYS * 86_400, httponly=True, samesite="lax", secure=secure, path="/")


@dataclass(frozen=True)
class Session:
    """The content of a signed cookie. Only the database knows whether the session has ended."""

    person_id: int
    session_number: int
    csrf: str


def read_session(campaign: Campaign, request: Request) -> Session | None:
    """The session in the cookie of a request; None if it is forged or too old.

    A session that starts in the future is valid: the clock was set back, or the clock of another server is ahead.
    """
    try:
        person_id, number, nonce, start = _signer(campaign).loads(request.cookies.get(COOKIE, ""))
    except (BadData, ValueError, TypeError):
        return None
    if not all(isinstance(value, int) for value in (person_id, number, start)) or not 0 < person_id < 2**31:
        return None
    if campaign.now() - start > SESSION_DAYS * 86_400:
        return None
    return Session(person_id, number, csrf_token(campaign, f"{person_id}/{number}/{nonce}"))


def find_visitor(campaign: Campaign, request: Request) -> Visitor | None:
    """The person who sent a request; None if the session is forged, too old or ended."""
    session = read_session(campaign, request)
    if session is None:
        return None
    with campaign.read_transaction() as connection:
        person = find_person(connection, session.person_id)
    return None if person is None or person.session_number != session.session_number else Visitor(person, session.csrf)


def read_browser_secret(request: Request) -> str:
    """The secret of the browser from which somebody joins; empty if it has none yet."""
    secret = request.cookies.get(BROWSER_COOKIE, "")
    return secret if re.fullmatch("[0-9a-f]{32}", secret) else ""


def give_browser_secret(request: Request, response: Response, secure: bool) -> None:
    """Give a browser a secret, so that somebody who joins twice, because a response was lost, is one person."""
    if not read_browser_secret(request):
        value = secrets.token_hex(16)
        response.set_cookie(BROWSER_COOKIE, value, max_age=86_400, httponly=True, samesite="lax", secure=secure, path="/join")


def csrf_token(campaign: Campaign, session: str) -> str:
    return hmac.new(campaign.secret, f"csrf/{session}".encode(), "sha256").hexdigest()[:32]


def require_visitor(campaign: Campaign, request: Request, *roles: str) -> Visitor:
    """The visitor, if they have one of these roles; no roles mean any."""
    visitor = find_visitor(campaign, request)
    if visitor is None:
        raise RequestRejectedError(401, SESSION_EXPIRED)
    if roles and visitor.person.role not in roles:
        raise RequestRejectedError(403, "You do not have access to this page. Go back to the study.")
    return visitor


# -- requests that change something


def require_csrf(sender: Visitor | Session | None, token: object) -> None:
    """Raise unless this is the CSRF token of the sender. Somebody without a session needs none."""
    if sender is not None and not (isinstance(token, str) and hmac.compare_digest(token.encode(), sender.csrf.encode())):
        raise RequestRejectedError(403, "This page is outdated or was sent from another site. Reload it and try again.")


def require_same_origin(request: Request) -> None:
    """Raise if the browser says that another site sent the request."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "").lower()
    is_foreign = origin is not None and (not host or origin.lower() not in (f"http://{host}", f"https://{host}"))
    if is_foreign or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise RequestRejectedError(403, "This request was sent from another site. Open the study directly.")


async def read_form(request: Request) -> dict[str, str]:
    """The fields of an urlencoded form."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise RequestRejectedError(415, "Expected a form (application/x-www-form-urlencoded).")
    try:
        text = (await _read_body(request)).decode()
        fields = dict(parse_qsl(text, keep_blank_values=True, strict_parsing=False, max_num_fields=50))
        require_plain(fields)
    except RequestRejectedError:  # the body is too large or incomplete
        raise
    except (UnicodeDecodeError, ValueError):
        raise RequestRejectedError(400, "Cannot read the form. Reload the page.") from None
    return fields


async def _read_body(request: Request) -> bytes:
    """The body of a request. A connection that ends before it is complete is one line in the log."""
    try:
        return await request.body()
    except ClientDisconnect:
        client = request.client.host if request.client else "unknown address"
        log.warning("%s: an upload was cut off (%s %s).", client, request.method, ascii(request.scope["path"])[:200])
        raise RequestRejectedError(400, "The connection was closed before the request was complete. Try again.") from None


async def read_json(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a request."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise RequestRejectedError(415, "Expected JSON (application/json).")
    try:
        body = json.loads(await _read_body(request))
        require_plain(body)
    except RequestRejectedError:  # the body is too large or incomplete
        raise
    except (ValueError, RecursionError):
        raise RequestRejectedError(400, "The request is not valid JSON. Reload the page.") from None
    if not isinstance(body, dict):
        raise RequestRejectedError(400, "The request is not a JSON object. Reload the page.")
    return body


def require_plain(value: object, depth: int = 0) -> None:
    """Raise ValueError for what cannot be stored or sent back: infinite numbers, lone surrogates, zero bytes, deep nesting."""
    if depth > MAX_JSON_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        for key, entry in value.items():
            require_plain(key, depth)
            require_plain(entry, depth + 1)
    elif isinstance(value, list):
        for entry in value:
            require_plain(entry, depth + 1)
    elif isinstance(value, str):
        value.encode()  # raises for lone surrogates
        if "\0" in value:
            raise ValueError("contains a zero byte")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("contains a number that is not finite")


# -- rate limits


@dataclass
class RateLimit:
    """At most `burst` requests at once and `per_second` in the long run, for each key. The oldest keys are dropped."""

    per_second: float
    burst: float
    now: Callable[[], float] = time.monotonic
    max_keys: int = 20_000
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def allow(self, key: str) -> bool:
        """Count one more request, and return whether it is allowed.

        >>> limit = RateLimit(1, 2, now=lambda: 0.0)
        >>> [limit.allow("a"), limit.allow("a"), limit.allow("a"), limit.allow("b")]
        [True, True, False, True]
        """
        with self._lock:
            now = self.now()
            left, before = self._left.pop(key, (self.burst, now))
            left = min(self.burst, left + (now - before) * self.per_second)
            self._left[key] = (left - 1 if left >= 1 else left, now)
            while len(self._left) > self.max_keys:
                self._left.popitem(last=False)
            return left >= 1


# -- around the application


class SecurityMiddleware:
    """Adds security headers to every response, and rejects unexpected hosts, long addresses and large bodies."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self.app, self.hosts = app, frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        received_bytes = 0

        async def receive_limited() -> Message:
            nonlocal received_bytes
            message = await receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > MAX_BODY_BYTES:
                raise RequestRejectedError(413, "The request is too large.")
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in present]
                close = [(b"connection", b"close")] * (message["status"] == 413)  # the rest of the body is not read
                message = {**message, "headers": [*message["headers"], *added, *close]}
            await send(message)

        rejection = self._reject(scope)
        if rejection is None:
            await self.app(scope, receive_limited, send_with_headers)
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            await send_with_headers({"type": "http.response.start", "status": rejection.status, "headers": headers})
            await send({"type": "http.response.body", "body": str(rejection).encode()})

    def _reject(self, scope: Scope) -> RequestRejectedError | None:
        """Why a request is rejected before the application sees it."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"host", b"content-length")}
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            return RequestRejectedError(400, "The request has more than one Host header.")
        host = host_name(headers.get(b"host", ""))
        if self.hosts and host not in self.hosts:
            return RequestRejectedError(421, f"Unknown host {host[:80]!r}. Start the service with --url and its public address.")
        if len(scope["path"]) + len(scope["query_string"]) > MAX_ADDRESS_LENGTH:
            return RequestRejectedError(414, "The address is too long.")
        if "\0" in scope["path"]:
            return RequestRejectedError(404, "This page does not exist.")
        size = headers.get(b"content-length", "0")
        is_too_large = not size.isdigit() or int(size[:20]) > MAX_BODY_BYTES
        return RequestRejectedError(413, "The request is too large.") if is_too_large else None


def host_name(host: str) -> str:
    """The name in a Host header, without the port.

    >>> host_name("localhost:8400"), host_name("[::1]:8400"), host_name("Study.example")
    ('localhost', '::1', 'study.example')
    """
    lowered = host.lower()
    return lowered[1:].partition("]")[0] if lowered.startswith("[") else lowered.partition(":")[0]
