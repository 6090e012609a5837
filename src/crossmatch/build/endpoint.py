"""A language model behind an endpoint that speaks OpenAI's protocol: one question, one answer, and patience that has an end.

What is asked of it is `POST URL/chat/completions`. Timeouts, lost connections, 408, 409, 425, 429 and 5xx are asked again, after a
wait that doubles and has a random part, or as long as the endpoint itself asks for; then the question is given up. A refused key or
an unknown model would fail every time, and stops the step.
"""

from __future__ import annotations

import email.utils
import http.client
import ipaddress
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from crossmatch.core.errors import CrossmatchError, WrongWords

AGAIN = frozenset({408, 409, 425, 429, *range(500, 600)})
HOPELESS = {
    401: "refuses the key",
    403: "refuses the key",
    404: "knows no such model, or has no such path",
    405: "has no such path",
}
LARGEST = 1 << 20  # bytes of an answer; a caption has a hundred


class NoAnswer(Exception):  # noqa: N818 - nothing is wrong with the program
    """A question that got no usable answer.

    `reason` is one of few, to be counted; `passing` tells that another time may be better, and `after` how many seconds later.
    """

    def __init__(self, reason: str, told: str = "", passing: bool = False, after: float | None = None) -> None:
        super().__init__(f"{reason}: {told}" if told else reason)
        self.reason, self.told, self.passing, self.after = reason, told, passing, after


class _NoRedirects(HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True)
class Endpoint:
    """Where to ask, whom, and how patiently. The key is read from an environment variable when it is needed, and kept nowhere.

    >>> Endpoint("http://localhost:8000/v1/", "small").name
    'http://localhost:8000/v1|small'
    """

    url: str
    model: str
    key_from: str = "OPENAI_API_KEY"
    timeout: float = 60.0  # seconds for an answer
    attempts: int = 5
    pause: float = 1.0  # seconds before the second attempt; doubles from one to the next
    longest: float = 60.0  # seconds of a pause
    tokens: int = 200
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
            raise WrongWords(f"the endpoint is {self.url!r:.80}; a bare address was expected, such as http://localhost:8000/v1")
        if not self.model.strip():
            raise WrongWords("the endpoint was given no model. Name the one that shall answer.")
        if self.attempts < 1 or not 0 < self.timeout < 86_400 or self.pause < 0 or self.longest < 0 or self.tokens < 1:
            raise WrongWords("an endpoint needs at least one attempt and one token, a timeout, and pauses that are not negative.")
        object.__setattr__(self, "url", self.url.rstrip("/"))

    @property
    def name(self) -> str:
        """What identifies it in a manifest; nothing secret."""
        return f"{self.url}|{self.model}"

    def write(self, prompt: str) -> str:
        """The answer to a prompt, or `NoAnswer` once patience has ended."""
        trouble = NoAnswer("no attempt")
        for attempt in range(self.attempts):
            if attempt:
                self.sleep(self._wait(attempt, trouble))
            try:
                return said_in(self._asked(prompt))
            except NoAnswer as error:
                trouble = error
                if not error.passing:
                    break
        raise trouble

    def _wait(self, attempt: int, trouble: NoAnswer) -> float:
        """Seconds before the next attempt: what the endpoint asked for, or longer from one to the next, with a random part."""
        wait = trouble.after if trouble.after is not None else self.pause * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)
        return float(min(self.longest, wait))

    def _asked(self, prompt: str) -> bytes:
        body = {"model": self.model, "messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": self.tokens}
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._key()}
        request = Request(f"{self.url}/chat/completions", json.dumps(body).encode(), headers, method="POST")
        try:
            with _opener().open(request, timeout=self.timeout) as answer:
                return _read(answer, self.timeout)
        except HTTPError as error:
            with error:
                raise self._refused(error) from None
        except TimeoutError:
            raise NoAnswer("timed out", f"no answer within {self.timeout:g} s", passing=True) from None
        except (URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise NoAnswer("timed out", f"no answer within {self.timeout:g} s", passing=True) from None
            raise NoAnswer("lost connection", f"{type(reason).__name__}: {reason}"[:200], passing=True) from None

    def _refused(self, error: HTTPError) -> Exception:
        if error.code in HOPELESS:
            return CrossmatchError(
                f"{self.url} answers {error.code}: it {HOPELESS[error.code]}. Check the address, the model {self.model!r} and the "
                f"key in ${self.key_from}; what is written is kept, and the step goes on from there."
            )
        return NoAnswer(
            f"status {error.code}", str(error.reason)[:200], error.code in AGAIN, _after(error.headers.get("Retry-After"))
        )

    def _key(self) -> dict[str, str]:
        """The header with the key, where there is one; never over an open line to another machine."""
        key = os.environ.get(self.key_from, "").strip() if self.key_from else ""
        if not key:
            return {}
        if not key.isascii() or not key.isprintable():
            raise CrossmatchError(f"${self.key_from} holds signs that no key has. Set it again.")
        if urlsplit(self.url).scheme == "http" and not _here(urlsplit(self.url).hostname or ""):
            raise CrossmatchError(
                f"the key in ${self.key_from} would travel to {self.url} unencrypted. Use https, or unset the variable where "
                "none is needed."
            )
        return {"Authorization": f"Bearer {key}"}


def said_in(answer: bytes) -> str:
    """The text in an answer of the protocol.

    >>> said_in(b'{"choices": [{"message": {"content": " A dog. "}}]}')
    'A dog.'
    """
    try:
        held = json.loads(answer)
    except (ValueError, RecursionError):
        raise NoAnswer("answer is no json", answer[:80].decode("utf-8", "replace"), passing=True) from None
    try:
        said = held["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise NoAnswer("answer has no text", answer[:80].decode("utf-8", "replace")) from None
    if not isinstance(said, str) or not said.strip():
        raise NoAnswer("empty answer")
    whole = said.encode("utf-8", "replace").decode()  # half a character, as "\\ud83d" alone is, cannot be written down
    if whole != said:
        raise NoAnswer("answer is no text", whole[:80])
    return said.strip()


def _opener() -> OpenerDirector:
    return build_opener(_NoRedirects)


def _read(answer: Any, timeout: float) -> bytes:
    """The body, unless it is too long or comes too slowly: a timeout of the socket alone would wait for every drop."""
    end, parts, size = time.monotonic() + timeout, [], 0
    while part := answer.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise NoAnswer("answer is too large", f"more than {LARGEST:,} bytes")
        if time.monotonic() > end:
            raise TimeoutError
    return b"".join(parts)


def _after(told: str | None) -> float | None:
    """The seconds that `Retry-After` asks for: a number, or a date.

    >>> _after("3"), _after("soon"), _after(None)
    (3.0, None, None)
    """
    if not told:
        return None
    if told.strip().isdigit():
        return float(told)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(told).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _here(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
