"""Limits of HTTP connections: time for headers and bodies, size of headers, and number of connections from one address.

uvicorn has no time limits for requests, and h11 checks the size of headers only when it waits for more. So this subclass of uvicorn's
h11 protocol feeds received bytes in small pieces, and closes a connection that sends too slowly.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from crossmatch.study.web.security import RateLimit

PIECE_BYTES = 1024
log = logging.getLogger(__name__)
refusals = RateLimit(1 / 60, 1)  # log lines about refused connections, per address


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of HTTP connections.

    Attributes:
        per_address: Open connections from one address; 0 for any number.
        header_bytes: Size of the first line and the headers of a request.
        header_seconds: From the connection, or the first byte of a further request, until all headers have arrived.
        body_seconds: From then until the body has arrived.
    """

    per_address: int = 256
    header_bytes: int = 64 * 1024
    header_seconds: float = 20.0
    body_seconds: float = 60.0


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with limits."""

    limits = ConnectionLimits()
    _timer: asyncio.TimerHandle | None = None
    _timed: tuple[str, object] = ("", None)  # what the timer is for: headers or a body, and the request

    @classmethod
    def with_limits(cls, limits: ConnectionLimits) -> type[LimitedProtocol]:
        return type(cls.__name__, (cls,), {"limits": limits})

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        clients = [connection.client for connection in self.connections if isinstance(connection, H11Protocol)]
        number = sum(client is not None and client[0] == address for client in clients)
        if 0 < self.limits.per_address < number:
            if refusals.allow(address):
                log.warning("%s has %d open connections; more are refused (--connections).", address, number - 1)
            transport.abort()
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            if not self.transport.is_closing():
                super().data_received(data[start : start + PIECE_BYTES])

    def handle_events(self) -> None:
        super().handle_events()
        self._set_timer()

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP. If a request is being answered or was answered already, close the connection instead."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def shutdown(self) -> None:
        """Do not wait for an upload when the service stops: nothing of it was acknowledged, and the browser sends it again."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()
        else:
            super().shutdown()

    # -- time limits

    def _set_timer(self) -> None:
        """Start the timer of the headers or body that the client is sending, unless it runs already; else stop it."""
        timed = (self._awaited_part(), self.scope)
        if timed[0] == self._timed[0] and timed[1] is self._timed[1]:
            return
        if self._timer is not None:
            self._timer.cancel()
        seconds = {"headers": self.limits.header_seconds, "body": self.limits.body_seconds}.get(timed[0])
        self._timed, self._timer = timed, None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def _awaited_part(self) -> str:
        """What the client is sending: headers or a body. Between two requests, uvicorn's own timer runs."""
        if self.transport.is_closing():
            return ""
        is_idle = self.conn.their_state is h11.IDLE and self.timeout_keep_alive_task is None
        return "headers" if is_idle else "body" if self.conn.their_state is h11.SEND_BODY else ""
