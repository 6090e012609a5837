"""Client of a language model behind an endpoint with OpenAI's protocol: one prompt, one completion, with retries.

A request is `POST URL/chat/completions`. After timeouts, lost connections and the statuses 408, 409, 425, 429 and 5xx it is
repeated, after a pause that doubles and has a random part, or that the endpoint asks for. A refused key or an unknown model would
fail every time, and raises an error at once.
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
from urllib.request import HTTPRedirectHandler, Request, build_opener

from crossmatch.data.errors import CrossmatchError, UsageError

RETRIED_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
FATAL_STATUSES = {
    401: "the key is refused",
    403: "the key is refused",
    404: "there is no such model or path",
    405: "there is no such path",
}
MAX_RESPONSE = 1 << 20  # bytes; a caption has about a hundred


class NoAnswerError(Exception):
    """A prompt that got no usable answer.

    `reason` is one of a few, which can be counted; `retry_after` is in seconds, if the endpoint asked for a pause.
    """

    def __init__(self, reason: str, detail: str = "", is_temporary: bool = False, retry_after: float | None = None) -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail, self.is_temporary, self.retry_after = reason, detail, is_temporary, retry_after


class _NoRedirects(HTTPRedirectHandler):
    """Refuses redirects, which would send the key to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True)
class Endpoint:
    """An endpoint and a model. The key is read from an environment variable for each request, and stored nowhere.

    >>> Endpoint("http://localhost:8000/v1/", "small").name
    'http://localhost:8000/v1|small'
    """

    url: str  # without path, such as http://localhost:8000/v1
    model: str
    key_variable: str = "OPENAI_API_KEY"
    timeout: float = 60.0  # seconds for a response
    attempts: int = 5  # for a prompt
    pause: float = 1.0  # seconds before the second attempt; doubles with each attempt
    max_pause: float = 60.0
    max_tokens: int = 200
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
            raise UsageError(f"endpoint: expected an address such as http://localhost:8000/v1, got {self.url!r:.80}.")
        if not self.model.strip():
            raise UsageError("the endpoint needs the name of a model.")
        if self.attempts < 1 or not 0 < self.timeout < 86_400 or self.pause < 0 or self.max_pause < 0 or self.max_tokens < 1:
            raise UsageError("an endpoint needs at least one attempt and one token, a timeout below a day, and no negative pauses.")
        object.__setattr__(self, "url", self.url.rstrip("/"))

    @property
    def name(self) -> str:
        """Address and model, for manifests; nothing secret."""
        return f"{self.url}|{self.model}"

    def write(self, prompt: str) -> str:
        """Return the completion of a prompt.

        Raises:
            NoAnswerError: All attempts failed, or the completion is unusable.
            CrossmatchError: The endpoint refuses the key, the model or the path.
        """
        failure = NoAnswerError("no attempt")
        for attempt in range(self.attempts):
            if attempt:
                self.sleep(self._pause_before(attempt, failure))
            try:
                return parse_completion(self._request(prompt))
            except NoAnswerError as error:
                failure = error
                if not error.is_temporary:
                    break
        raise failure

    def _pause_before(self, attempt: int, failure: NoAnswerError) -> float:
        """Seconds before an attempt: what the endpoint asked for, or a pause that doubles, with a random part."""
        seconds = failure.retry_after
        if seconds is None:
            seconds = self.pause * 2 ** (attempt - 1) * random.uniform(0.5, 1.0)
        return float(min(self.max_pause, seconds))

    def _request(self, prompt: str) -> bytes:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": self.max_tokens,
        }
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._key()}
        request = Request(f"{self.url}/chat/completions", json.dumps(body).encode(), headers, method="POST")
        try:
            with build_opener(_NoRedirects).open(request, timeout=self.timeout) as response:
                return _read_body(response, self.timeout)
        except HTTPError as error:
            with error:
                raise self._status_error(error) from None
        except TimeoutError:
            raise NoAnswerError("timed out", f"no answer within {self.timeout:g} s", is_temporary=True) from None
        except (URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise NoAnswerError("timed out", f"no answer within {self.timeout:g} s", is_temporary=True) from None
            raise NoAnswerError("lost connection", f"{type(reason).__name__}: {reason}"[:200], is_temporary=True) from None

    def _status_error(self, error: HTTPError) -> Exception:
        if error.code in FATAL_STATUSES:
            return CrossmatchError(
                f"{self.url} returned status {error.code}: {FATAL_STATUSES[error.code]}. Check the address, the model "
                f"{self.model!r} and the key in ${self.key_variable}. Results so far are stored; run the command again to resume."
            )
        return NoAnswerError(
            f"status {error.code}",
            str(error.reason)[:200],
            error.code in RETRIED_STATUSES,
            _parse_retry_after(error.headers.get("Retry-After")),
        )

    def _key(self) -> dict[str, str]:
        """The header with the key, if there is one; it is never sent unencrypted to another machine."""
        key = os.environ.get(self.key_variable, "").strip() if self.key_variable else ""
        if not key:
            return {}
        if not key.isascii() or not key.isprintable():
            raise CrossmatchError(f"${self.key_variable} contains characters that no key has. Set it again.")
        if urlsplit(self.url).scheme == "http" and not _is_this_machine(urlsplit(self.url).hostname or ""):
            raise CrossmatchError(
                f"the key in ${self.key_variable} would be sent to {self.url} unencrypted. Use https, or unset the variable if no "
                "key is needed."
            )
        return {"Authorization": f"Bearer {key}"}


def parse_completion(response: bytes) -> str:
    """Return the text of a response; without a usable text, raise `NoAnswerError`.

    >>> parse_completion(b'{"choices": [{"message": {"content": " A dog. "}}]}')
    'A dog.'
    """
    try:
        content = json.loads(response)
    except (ValueError, RecursionError):
        raise NoAnswerError("answer is not JSON", response[:80].decode("utf-8", "replace"), is_temporary=True) from None
    try:
        text = content["choices"][0]["message"]["content"]
    except (KeyError, IndexError, TypeError):
        raise NoAnswerError("answer has no text", response[:80].decode("utf-8", "replace")) from None
    if not isinstance(text, str) or not text.strip():
        raise NoAnswerError("empty answer")
    encodable = text.encode("utf-8", "replace").decode()  # a lone surrogate such as "\\ud83d" cannot be written to a file
    if encodable != text:
        raise NoAnswerError("answer is not text", encodable[:80])
    return text.strip()


def _read_body(response: Any, timeout: float) -> bytes:
    """Read the body, unless it is too large or too slow as a whole; the socket's timeout applies to each part only."""
    end, parts, size = time.monotonic() + timeout, [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MAX_RESPONSE:
            raise NoAnswerError("answer is too large", f"more than {MAX_RESPONSE:,} bytes")
        if time.monotonic() > end:
            raise TimeoutError
    return b"".join(parts)


def _parse_retry_after(header: str | None) -> float | None:
    """Return the seconds in a `Retry-After` header, which is a number or a date.

    >>> _parse_retry_after("3"), _parse_retry_after("soon"), _parse_retry_after(None)
    (3.0, None, None)
    """
    if not header:
        return None
    if header.strip().isdigit():
        return float(header)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
