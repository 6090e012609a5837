"""An HTTP client of the annotation service, for simulations and benchmarks.

Requests are repeated after a lost connection. This is safe: a claim returns the HIT that the person holds, a stored submission is
acknowledged again, and a person who has joined is recognised by the secret of their browser.
"""

from __future__ import annotations

import http.client
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from crossmatch.data.errors import CrossmatchError

CSRF = re.compile(r'<meta name="csrf" content="([0-9a-zA-Z_.-]+)">')
BROWSER_COOKIE = "crossmatch_entry"  # as in `web.security`
RETRY_STATUSES = (429, 500, 502, 503, 504)
MAX_RESPONSE_BYTES = 64 * 1024 * 1024


class RequestFailedError(CrossmatchError):
    """A request failed. `status` is the HTTP status, 0 if there was no response."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


@dataclass(frozen=True)
class HttpResponse:
    """A response of the service."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise RequestFailedError(self.status, f"The service did not send JSON: {self.body[:80]!r}") from None

    @property
    def text(self) -> str:
        """The error message, or the text of the page, in one line."""
        try:
            return str(json.loads(self.body)["error"])
        except (ValueError, KeyError, TypeError):
            return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", self.body.decode("utf-8", "replace"))).strip()[:200]


@dataclass(eq=False)
class Client:
    """One person's connection to the service at `base`, for one thread.

    A service that does not respond, or is overloaded, is asked again for `patience` seconds.
    """

    base: str
    timeout: float = 30.0
    patience: float = 60.0
    cookies: dict[str, str] = field(default_factory=dict)
    csrf: str = ""
    study: str = ""  # the name of the study that was joined or opened
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    # -- entering

    def join(self, link: str, person: str = "") -> str:
        """Join the study of this link under a name; returns the name of the study."""
        self.cookies.setdefault(BROWSER_COOKIE, secrets.token_hex(16))
        response = self.request("POST", f"/join/{quote(link)}", form={"person": person})
        where = response.headers.get("location", "")
        if response.status != 303 or not where.startswith("/s/"):
            raise RequestFailedError(response.status, f"joining failed: {response.text}")
        self.study = where.removeprefix("/s/")
        self.csrf = self._read_csrf(where)
        return self.study

    def enter(self, token: str) -> None:
        """Enter by a personal token."""
        response = self.request("POST", f"/enter/{quote(token)}", form={})
        if response.status != 303:
            raise RequestFailedError(response.status, f"entering failed: {response.text}")

    def open(self, study: str) -> None:
        """Open the page of a study, and agree to take part."""
        self.study = study
        self.csrf = self._read_csrf(f"/s/{quote(study)}")
        response = self.request("POST", f"/s/{quote(study)}/agree", form={"csrf": self.csrf})
        if response.status != 303:
            raise RequestFailedError(response.status, f"agreeing failed: {response.text}")

    def _read_csrf(self, page: str) -> str:
        """The CSRF token, which every page of the service contains."""
        response = self.request("GET", page)
        csrf_match = CSRF.search(response.body.decode("utf-8", "replace"))
        if response.status != 200 or csrf_match is None:
            raise RequestFailedError(response.status, f"{page} has no csrf token: {response.text}")
        return csrf_match[1]

    # -- working

    def claim(self) -> dict[str, Any] | str:
        """The next HIT, or the reason why no HIT is available."""
        response = self.request("POST", f"/api/s/{quote(self.study)}/claim", json_body={})
        reply: dict[str, Any] = response.json()
        if response.status == 409 and "why" in reply:
            return str(reply["why"])
        return _require_ok(response, reply, "claiming")

    def hit(self, claim: str) -> dict[str, Any]:
        response = self.request("GET", f"/api/h/{claim}")
        return _require_ok(response, response.json(), "loading")

    def picture(self, path: str) -> bytes:
        response = self.request("GET", path)
        if response.status != 200:
            raise RequestFailedError(response.status, f"the image {path} is missing: {response.text}")
        return response.body

    def draft(self, claim: str, number: int, answers: Sequence[Any]) -> None:
        response = self.request("PUT", f"/api/h/{claim}/draft", json_body={"number": number, "answers": list(answers)})
        _require_ok(response, response.json(), "saving the draft")

    def submit(self, claim: str, answers: Sequence[Any], seconds: Sequence[float] | None = None) -> dict[str, Any]:
        """Submit the answers to a HIT, one for each item in the displayed order."""
        body = {"answers": list(answers), "seconds": None if seconds is None else list(seconds)}
        response = self.request("POST", f"/api/h/{claim}/submit", json_body=body)
        return _require_ok(response, response.json(), "submitting")

    # -- requests

    def request(self, method: str, path: str, *, json_body: Any = None, form: Mapping[str, str] | None = None) -> HttpResponse:
        """Send a request and read the response; repeat it while the service is not available."""
        body, headers = None, {"cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())} if self.cookies else {}
        if json_body is not None:
            body = json.dumps(json_body).encode()
            headers = {**headers, "content-type": "application/json", "x-csrf-token": self.csrf}
        elif form is not None:
            body = urlencode(form).encode()
            headers = {**headers, "content-type": "application/x-www-form-urlencoded"}
        until, wait = time.monotonic() + self.patience, 0.05
        while True:
            try:
                response = self._send(method, path, body, headers)
                if response.status not in RETRY_STATUSES or time.monotonic() > until:
                    return response
            except ConnectionRefusedError as error:  # nothing was sent
                self.close()
                if time.monotonic() > until:
                    raise RequestFailedError(0, f"{self.base} does not respond ({error}). Is the service running?") from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() > until:
                    raise RequestFailedError(0, f"{self.base} closed the connection ({type(error).__name__}: {error}).") from None
            time.sleep(wait)
            wait = min(2 * wait, 2.0)

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> HttpResponse:
        if self._connection is None:
            address = urlsplit(self.base)
            kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(address.hostname or "", address.port, timeout=self.timeout)
        self._connection.request(method, path, body, dict(headers))
        response = self._connection.getresponse()
        body_bytes = response.read(MAX_RESPONSE_BYTES)
        for value in response.headers.get_all("set-cookie", []):
            self.cookies |= {name: morsel.value for name, morsel in SimpleCookie(value).items()}
        return HttpResponse(response.status, {name.lower(): value for name, value in response.headers.items()}, body_bytes)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _require_ok(response: HttpResponse, reply: dict[str, Any], doing: str) -> dict[str, Any]:
    if response.status != 200:
        raise RequestFailedError(response.status, f"{doing} failed ({response.status}): {response.text}")
    return reply
