"""A browser for the contract of the annotation service. It writes HTTP to sockets by hand.

It shares no code with crossmatch or an HTTP library, so that their faults cannot hide faults of the service. Requests are repeated
after a lost connection and after the statuses 429 and 5xx with growing pauses, as by the page of a HIT.
"""

from __future__ import annotations

import json
import random
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

HOST = "127.0.0.1"
RESPONSE_TIMEOUT = 60.0  # seconds until a silent server counts as lost
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds; a twentieth of those of a real browser, so that the tests are shorter
GIVE_UP_AFTER = 120.0  # seconds of repeated failures
CSRF = re.compile(rb'<meta name="csrf" content="([0-9a-f]+)">')
FORM, JSON = "application/x-www-form-urlencoded", "application/json"


class ConnectionLostError(Exception):
    """There was no complete response. The server may or may not have carried out the request."""


class UnexpectedResponseError(Exception):
    """The server sent a complete response that a browser cannot continue with, or no response for minutes."""


@dataclass(frozen=True)
class Response:
    """A complete response."""

    status: int
    headers: tuple[tuple[str, str], ...]  # names in lower case
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    @property
    def is_refusal(self) -> bool:
        return self.status >= 500 or self.status == 429

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            raise UnexpectedResponseError(f"status {self.status}: expected JSON, got {self.body[:200]!r}") from None


# -- one connection


class Connection:
    """A connection that is kept open for several requests."""

    def __init__(self, port: int) -> None:
        try:
            self._socket = socket.create_connection((HOST, port), RESPONSE_TIMEOUT)
        except OSError as error:
            raise ConnectionLostError(str(error)) from None
        self._buffer = b""

    def send(self, request: bytes) -> None:
        try:
            self._socket.sendall(request)
        except OSError as error:
            raise ConnectionLostError(str(error)) from None

    def read_response(self) -> Response:
        while b"\r\n\r\n" not in self._buffer:
            self._receive()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        status_line, *header_lines = head.decode("latin-1").split("\r\n")
        headers = tuple((name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in header_lines))
        response = Response(int(status_line.split(" ")[1]), headers, b"")
        if not response.header("content-length").isdigit():
            raise UnexpectedResponseError(f"expected a response with content-length, got {head!r}")
        length = int(response.header("content-length"))
        while len(self._buffer) < length:
            self._receive()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Response(response.status, headers, body)

    def _receive(self) -> None:
        try:
            received = self._socket.recv(65_536)
        except OSError as error:
            raise ConnectionLostError(str(error)) from None
        if not received:
            raise ConnectionLostError("the server closed the connection")
        self._buffer += received

    def close(self, reset: bool = False) -> None:
        if reset:  # the server gets RST instead of FIN
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


# -- a browser


@dataclass
class Browser:
    """One person's browser, for one thread. It knows the ports of all servers and chooses one for each connection.

    Attributes:
        ports: Ports of the servers.
        chance: Source of all random choices.
        report: Called with "lost" or with a refusal after each failed try.
        stop: Set when no more responses are needed.
    """

    ports: Sequence[int]
    chance: random.Random
    report: Callable[[str | Response], object] = lambda failure: None
    stop: threading.Event = field(default_factory=threading.Event)
    cookies: dict[str, str] = field(default_factory=dict)
    csrf: str = ""
    _connection: Connection | None = field(default=None, repr=False)

    def second_window(self) -> Browser:
        """A window of the same browser: it has the same cookies, but its own connection."""
        return Browser(self.ports, random.Random(self.chance.random()), self.report, self.stop, self.cookies, self.csrf)

    def get(self, path: str) -> Response:
        return self.request("GET", path)

    def post_form(self, path: str, **fields: str) -> Response:
        return self.request("POST", path, urlencode(fields).encode(), FORM)

    def send_json(self, method: str, path: str, body: Any) -> Response:
        return self.request(method, path, json.dumps(body).encode(), JSON)

    def request(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> Response:
        """Send a request until there is a response that is no refusal."""
        pause, end = FIRST_PAUSE, time.monotonic() + GIVE_UP_AFTER
        while True:
            try:
                response = self.request_once(method, path, body, content_type)
                if not response.is_refusal:
                    return response
                self.report(response)
            except ConnectionLostError:
                self.report("lost")
            if self.stop.is_set() or time.monotonic() > end:
                raise UnexpectedResponseError(f"{method} {path}: no response after many tries")
            self.stop.wait(pause * self.chance.uniform(0.75, 1.25))
            pause = min(2 * pause, LONGEST_PAUSE)

    def request_once(self, method: str, path: str, body: bytes = b"", content_type: str = "") -> Response:
        if len(self.ports) > 1 and self.chance.random() < 0.3:
            self.close()  # the next request may reach another server
        if self._connection is None:
            self._connection = Connection(self.chance.choice(self.ports))
        try:
            self._connection.send(self._format(method, path, body, content_type))
            response = self._connection.read_response()
        except ConnectionLostError:
            self.close()
            raise
        for name, value in response.headers:
            if name == "set-cookie":
                key, _, cookie = value.partition(";")[0].partition("=")
                self.cookies[key] = cookie
        if response.header("connection") == "close":
            self.close()
        if csrf := CSRF.search(response.body):
            self.csrf = csrf[1].decode()
        return response

    def hang_up_after(self, method: str, path: str, body: Any) -> None:
        """Send a request, or the first half of it, and close the connection without reading the response."""
        request = self._format(method, path, json.dumps(body).encode(), JSON)
        try:
            connection = Connection(self.chance.choice(self.ports))
            connection.send(request if self.chance.random() < 0.8 else request[: len(request) // 2])
            connection.close(reset=self.chance.random() < 0.5)
        except ConnectionLostError:
            self.report("lost")

    def _format(self, method: str, path: str, body: bytes, content_type: str) -> bytes:
        headers = {"host": f"{HOST}:{self.ports[0]}", "accept": "*/*"}
        if self.cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if method != "GET":
            headers |= {"content-type": content_type, "content-length": str(len(body)), "x-csrf-token": self.csrf}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
