"""What stands between the pages and the world: sessions, forged requests, sizes, rates, and headers.

- A session is a signed cookie that scripts cannot read and other sites cannot send; it ends when the person gets a new token.
- A request that changes something carries a second secret that only our own pages know (CSRF), and comes from our own origin.
- Nothing inline is executed, nothing is loaded from elsewhere, and no page can be put into a frame.
"""

from __future__ import annotations

import hmac
import json
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

from itsdangerous import BadData, URLSafeTimedSerializer

from crossmatch.core.errors import CrossmatchError
from crossmatch.study import people
from crossmatch.study.people import Person

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from crossmatch.study.store import Campaign

COOKIE, FIELD, HEADER = "crossmatch_session", "csrf", "x-csrf-token"
ENTRY = "crossmatch_entry"  # a cookie too: who joins from this browser
DAYS = 14  # after which a session is stale
LARGEST = 512 * 1024  # bytes of a request's body
LONGEST = 2000  # signs of an address
DEEPEST = 12  # of lists within lists
UNKNOWN = "nobody is known here by this session. Open the link that you were given."
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with no-referrer, browsers send our own forms with the origin "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


class Refused(CrossmatchError):  # noqa: N818 - it says what was done
    """A request that is not answered; `status` is its HTTP code."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


@dataclass(frozen=True)
class Visitor:
    """Who sent a request, and the secret of their pages."""

    person: Person
    csrf: str


# -- sessions


def _signer(campaign: Campaign) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(campaign.secret, salt="session")


def open_session(campaign: Campaign, response: Response, who: Person, secure: bool) -> None:
    """Let a person in: their browser keeps a signed cookie."""
    value = _signer(campaign).dumps([who.id, who.sessions, secrets.token_hex(8)])
    response.set_cookie(COOKIE, value, max_age=DAYS * 86_400, httponly=True, samesite="lax", secure=secure, path="/")


@dataclass(frozen=True)
class Session:
    """What a signed cookie tells; whether it still holds, only the database knows."""

    person: int
    number: int
    csrf: str


def session(campaign: Campaign, request: Request) -> Session | None:
    """The session of a request's cookie; none if it is forged or stale."""
    cookie = request.cookies.get(COOKIE, "")
    try:
        person, number, nonce = _signer(campaign).loads(cookie, max_age=DAYS * 86_400)
    except (BadData, ValueError, TypeError):
        return None
    if not isinstance(person, int) or not 0 < person < 2**31 or not isinstance(number, int):
        return None
    return Session(person, number, csrf_of(campaign, f"{person}/{number}/{nonce}"))


def visitor(campaign: Campaign, request: Request) -> Visitor | None:
    """Who sent this request, by their cookie; nobody if it is forged, stale or over."""
    mine = session(campaign, request)
    if mine is None:
        return None
    with campaign.asking() as connection:
        who = people.find(connection, mine.person)
    return None if who is None or who.sessions != mine.number else Visitor(who, mine.csrf)


def entry_of(request: Request) -> str:
    """The secret of the browser from which somebody joins; empty if it has none yet."""
    found = request.cookies.get(ENTRY, "")
    return found if re.fullmatch("[0-9a-f]{32}", found) else ""


def give_entry(request: Request, response: Response, secure: bool) -> None:
    """A browser that shows the first page gets a secret: whoever agrees twice, since the first answer was lost, is one person."""
    if not entry_of(request):
        value = secrets.token_hex(16)
        response.set_cookie(ENTRY, value, max_age=86_400, httponly=True, samesite="lax", secure=secure, path="/join")


def csrf_of(campaign: Campaign, session: str) -> str:
    return hmac.new(campaign.secret, f"csrf/{session}".encode(), "sha256").hexdigest()[:32]


def require(campaign: Campaign, request: Request, *roles: str) -> Visitor:
    """The visitor, if they have one of these roles."""
    found = visitor(campaign, request)
    if found is None:
        raise Refused(401, UNKNOWN)
    if roles and found.person.role not in roles:
        raise Refused(403, "this page is for others. Go back to the study.")
    return found


# -- requests that change something


def require_own(request: Request, who: Visitor | Session | None, token: object) -> None:
    """A request that changes something must come from our own page."""
    require_origin(request)
    if who is not None and not (isinstance(token, str) and hmac.compare_digest(token.encode(), who.csrf.encode())):
        raise Refused(403, "this page is too old, or was sent from elsewhere. Reload it, and try again.")


def require_origin(request: Request) -> None:
    """The page that sent this must be from here, as far as the browser tells."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "").lower()
    if origin is not None and (not host or origin.lower() not in (f"http://{host}", f"https://{host}")):
        raise Refused(403, "this was sent from another site. Open the study itself.")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Refused(403, "this was sent from another site. Open the study itself.")


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a plain form."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/x-www-form-urlencoded":
        raise Refused(415, "a form was expected.")
    try:
        told = dict(parse_qsl((await request.body()).decode(), keep_blank_values=True, strict_parsing=False, max_num_fields=50))
        require_plain(told)
    except (UnicodeDecodeError, ValueError) as error:
        raise _refused(error, "the form cannot be read. Reload the page.") from None
    return told


async def json_of(request: Request) -> dict[str, Any]:
    """The object in a request's body."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise Refused(415, "json was expected.")
    try:
        told = json.loads(await request.body())
        require_plain(told)
    except (ValueError, RecursionError) as error:
        raise _refused(error, "the request is no json. Reload the page.") from None
    if not isinstance(told, dict):
        raise Refused(400, "the request is no json object. Reload the page.")
    return told


def require_plain(told: object, depth: int = 0) -> None:
    """What can be kept and sent back: finite numbers, whole signs, no zero byte, and not nested without end."""
    if depth > DEEPEST:
        raise ValueError("it is nested too deeply")
    if isinstance(told, dict):
        for key, value in told.items():
            require_plain(key, depth)
            require_plain(value, depth + 1)
    elif isinstance(told, list):
        for value in told:
            require_plain(value, depth + 1)
    elif isinstance(told, str):
        told.encode()  # fails where half a sign is
        if "\0" in told:
            raise ValueError("it has a zero byte")
    elif isinstance(told, float) and not math.isfinite(told):
        raise ValueError("it has a number without an end")


def _refused(error: Exception, text: str) -> Refused:
    return error if isinstance(error, Refused) else Refused(400, text)


# -- rates


@dataclass
class Rate:
    """At most `burst` requests at once and `per_second` in the long run, for each key; the oldest keys are forgotten."""

    per_second: float
    burst: float
    now: Callable[[], float] = time.monotonic
    most: int = 20_000
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def take(self, key: str) -> bool:
        """Whether one more is allowed.

        >>> rate = Rate(1, 2, now=lambda: 0.0)
        >>> [rate.take("a"), rate.take("a"), rate.take("a"), rate.take("b")]
        [True, True, False, True]
        """
        with self._lock:
            at = self.now()
            left, before = self._left.pop(key, (self.burst, at))
            left = min(self.burst, left + (at - before) * self.per_second)
            self._left[key] = (left - 1 if left >= 1 else left, at)
            while len(self._left) > self.most:
                self._left.popitem(last=False)
            return left >= 1


# -- around everything


class Guarded:
    """Security headers on every answer; no body, address or host name that is not expected. `hosts`: those by which people come."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self.app, self.hosts = app, frozenset(name.lower() for name in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        read = 0

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > LARGEST:
                raise Refused(413, "the request is too large.")
            return message

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in given]
                ends = [(b"connection", b"close")] * (message["status"] == 413)  # what follows is not read
                message = {**message, "headers": [*message["headers"], *more, *ends]}
            await send(message)

        refused = self._refused(scope)
        if refused is None:
            await self.app(scope, limited, headed)
        else:
            plain = [(b"content-type", b"text/plain; charset=utf-8")]
            await headed({"type": "http.response.start", "status": refused.status, "headers": plain})
            await send({"type": "http.response.body", "body": str(refused).encode()})

    def _refused(self, scope: Scope) -> Refused | None:
        """Why a request is not even looked at."""
        given = {name: value.decode("latin-1") for name, value in scope["headers"] if name in (b"host", b"content-length")}
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:  # which of them would count?
            return Refused(400, "the request names more than one host.")
        host = _name(given.get(b"host", ""))
        if self.hosts and host not in self.hosts:  # a name that somebody else made point here
            return Refused(
                421, f"this service is not known as {host[:80]!r}. Serve it with --url, and the address by which people come."
            )
        if len(scope["path"]) + len(scope["query_string"]) > LONGEST:
            return Refused(414, "the address is too long.")
        if "\0" in scope["path"]:
            return Refused(404, "there is no such page.")
        size = given.get(b"content-length", "0")
        return Refused(413, "the request is too large.") if not size.isdigit() or int(size[:20]) > LARGEST else None


def _name(host: str) -> str:
    """The name in a Host header, without the port.

    >>> _name("localhost:8400"), _name("[::1]:8400"), _name("Study.example")
    ('localhost', '::1', 'study.example')
    """
    known = host.lower()
    return known[1:].partition("]")[0] if known.startswith("[") else known.partition(":")[0]
