"""A visitor of the service without a browser: what the pages do by HTTP, and nothing else.

Everything that is asked again after a lost connection is safe to be asked again: a claim gives the HIT that one has, a submission
that was taken is acknowledged once more, and whoever has joined is let in again by the secret that they joined with.
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

from crossmatch.core.errors import CrossmatchError

CSRF = re.compile(r'<meta name="csrf" content="([0-9a-zA-Z_.-]+)">')
ENTRY = "crossmatch_entry"  # as `web.guard` calls it
BUSY = (429, 500, 502, 503, 504)  # to be asked again
LARGEST = 64 * 1024 * 1024  # bytes of an answer that are read


class Failed(CrossmatchError):  # noqa: N818 - it says what happened
    """The service did not do what it was asked for; `status` is its HTTP code, 0 where it did not answer."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        super().__init__(text)


@dataclass(frozen=True)
class Answer:
    """What the service answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise Failed(self.status, f"the service answered no json: {self.body[:80]!r}") from None

    @property
    def said(self) -> str:
        """Its complaint, in one line."""
        try:
            return str(json.loads(self.body)["error"])
        except (ValueError, KeyError, TypeError):
            return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", self.body.decode("utf-8", "replace"))).strip()[:200]


@dataclass(eq=False)
class Client:
    """One person's connection to the service at `base`; it is kept open, and not for several threads at once.

    `patience` is for how many seconds a service that does not answer, or has too much to do, is asked again.
    """

    base: str
    timeout: float = 30.0
    patience: float = 60.0
    cookies: dict[str, str] = field(default_factory=dict)
    csrf: str = ""
    study: str = ""  # the one that was joined
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    # -- coming in

    def join(self, link: str, person: str = "") -> str:
        """Join the study of this link, under a name; the name of the study."""
        self.cookies.setdefault(ENTRY, secrets.token_hex(16))
        answer = self.ask("POST", f"/join/{quote(link)}", form={"person": person})
        where = answer.headers.get("location", "")
        if answer.status != 303 or not where.startswith("/s/"):
            raise Failed(answer.status, f"joining failed: {answer.said}")
        self.study = where.removeprefix("/s/")
        self.csrf = self._secret(where)
        return self.study

    def enter(self, token: str) -> None:
        """Come in by a token of one's own."""
        answer = self.ask("POST", f"/enter/{quote(token)}", form={})
        if answer.status != 303:
            raise Failed(answer.status, f"entering failed: {answer.said}")

    def open(self, study: str, agree: bool = True) -> None:
        """Open the page of a study, and agree to take part."""
        self.study = study
        self.csrf = self._secret(f"/s/{quote(study)}")
        if agree:
            answer = self.ask("POST", f"/s/{quote(study)}/agree", form={"csrf": self.csrf})
            if answer.status != 303:
                raise Failed(answer.status, f"agreeing failed: {answer.said}")

    def _secret(self, page: str) -> str:
        """The token of our own pages, which stands in each of them."""
        answer = self.ask("GET", page)
        found = CSRF.search(answer.body.decode("utf-8", "replace"))
        if answer.status != 200 or found is None:
            raise Failed(answer.status, f"{page} has no csrf token: {answer.said}")
        return found[1]

    # -- working

    def claim(self) -> dict[str, Any] | str:
        """The next HIT as its page has it; or one word that says why there is none."""
        answer = self.ask("POST", f"/api/s/{quote(self.study)}/claim", told={})
        told: dict[str, Any] = answer.json()
        if answer.status == 409 and "why" in told:
            return str(told["why"])
        return _good(answer, told, "claiming")

    def hit(self, claim: str) -> dict[str, Any]:
        answer = self.ask("GET", f"/api/h/{claim}")
        return _good(answer, answer.json(), "loading")

    def picture(self, path: str) -> bytes:
        answer = self.ask("GET", path)
        if answer.status != 200:
            raise Failed(answer.status, f"the picture {path} is not there: {answer.said}")
        return answer.body

    def draft(self, claim: str, number: int, answers: Sequence[Any]) -> None:
        answer = self.ask("PUT", f"/api/h/{claim}/draft", told={"number": number, "answers": list(answers)})
        _good(answer, answer.json(), "keeping the draft")

    def submit(self, claim: str, answers: Sequence[Any], seconds: Sequence[float] | None = None) -> dict[str, Any]:
        """Hand in the answers to a HIT, one for each item in the order shown."""
        told = {"answers": list(answers), "seconds": None if seconds is None else list(seconds)}
        answer = self.ask("POST", f"/api/h/{claim}/submit", told=told)
        return _good(answer, answer.json(), "submitting")

    # -- the wire

    def ask(self, method: str, path: str, *, told: Any = None, form: Mapping[str, str] | None = None) -> Answer:
        """Send a request and read the answer, again and again for as long as patience lasts."""
        body, headers = None, {"cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())} if self.cookies else {}
        if told is not None:
            body, headers = json.dumps(told).encode(), {**headers, "content-type": "application/json", "x-csrf-token": self.csrf}
        elif form is not None:
            body = urlencode(form).encode()
            headers = {**headers, "content-type": "application/x-www-form-urlencoded"}
        until, wait = time.monotonic() + self.patience, 0.05
        while True:
            try:
                answer = self._once(method, path, body, headers)
                if answer.status not in BUSY or time.monotonic() > until:
                    return answer
            except ConnectionRefusedError as error:  # nothing was sent
                self.close()
                if time.monotonic() > until:
                    raise Failed(0, f"{self.base} does not answer ({error}). Is the service running?") from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if time.monotonic() > until:
                    raise Failed(0, f"{self.base} broke off ({type(error).__name__}: {error}).") from None
            time.sleep(wait)
            wait = min(2 * wait, 2.0)

    def _once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        if self._connection is None:
            address = urlsplit(self.base)
            kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(address.hostname or "", address.port, timeout=self.timeout)
        self._connection.request(method, path, body, dict(headers))
        response = self._connection.getresponse()
        held = response.read(LARGEST)
        for value in response.headers.get_all("set-cookie", []):
            self.cookies |= {name: morsel.value for name, morsel in SimpleCookie(value).items()}
        return Answer(response.status, {name.lower(): value for name, value in response.headers.items()}, held)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _good(answer: Answer, told: dict[str, Any], doing: str) -> dict[str, Any]:
    if answer.status != 200:
        raise Failed(answer.status, f"{doing} failed ({answer.status}): {answer.said}")
    return told
