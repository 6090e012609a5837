"""Runs the annotation service with uvicorn."""

from __future__ import annotations

import errno
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.study.database.campaign import Campaign, open_campaign

if TYPE_CHECKING:
    import uvicorn

    from crossmatch.study.web.connections import ConnectionLimits
    from crossmatch.study.web.site import Site

KEEP_ALIVE_S = 30
SHUTDOWN_S = 10  # that requests may take when the service is stopped
SWITCH_INTERVAL_S = 0.0005  # the thread with the write lock must not wait long for the GIL after each query
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class TerminatedError(BaseException):
    """The process was asked to end by SIGTERM."""


def serve(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8400,
    *,
    url: str = "",
    log: bool = False,
    connections: int = 256,
    listener: socket.socket | None = None,
    now: Callable[[], float] = time.time,
) -> None:
    """Serve a campaign until the process is stopped. Ctrl-C and SIGTERM close the database first.

    Args:
        folder: The campaign's folder.
        host: Address to listen on. An address that others can reach should be behind https.
        port: Port to listen on.
        url: Public address of the service. With https, cookies are sent by https only.
        log: Whether to log every request.
        connections: Allowed open connections from one address; 0 for any number.
        listener: The listening socket, if it is open already; it is closed afterwards.
        now: Returns the time in seconds; simulations use a clock that is ahead.

    Raises:
        UsageError: The folder has no campaign.
        CrossmatchError: The port is in use.

    >>> serve(folder / "campaign", port=8401)
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: ... is not a campaign...
    """
    try:
        from crossmatch.study.web.connections import ConnectionLimits
        from crossmatch.study.web.site import Site
    except ImportError as error:
        raise MissingDependencyError(error.name or "uvicorn", "study") from None
    campaign = open_campaign(folder, now)
    site, interval = Site(campaign, secure=url.startswith("https://")), sys.getswitchinterval()
    with _end_by_sigterm():
        try:
            with listener or open_listener(host, port) as opened:
                sys.setswitchinterval(SWITCH_INTERVAL_S)
                limits = replace(ConnectionLimits(), per_address=connections)
                make_server(campaign, site, hosts=allowed_hosts(host, url), limits=limits, log=log).run([opened])
        finally:
            sys.setswitchinterval(interval)
            site.statistics.close()
            campaign.close()


def make_server(
    campaign: Campaign, site: Site, *, hosts: tuple[str, ...], limits: ConnectionLimits, log: bool = False
) -> uvicorn.Server:
    """The HTTP server of a campaign."""
    import uvicorn

    from crossmatch.study.web.app import make_app
    from crossmatch.study.web.connections import LimitedProtocol

    config = uvicorn.Config(
        make_app(campaign, site=site, hosts=hosts),
        http=LimitedProtocol.with_limits(limits),
        h11_max_incomplete_event_size=limits.header_bytes,
        ws="none",
        lifespan="off",
        log_level="info" if log else "warning",
        access_log=log,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )
    return uvicorn.Server(config)


@contextmanager
def _end_by_sigterm() -> Iterator[None]:
    """Let SIGTERM leave the block by an exception, so that everything is closed, and end the process by the signal afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(*_: object) -> None:
        raise TerminatedError

    handler = signal.signal(signal.SIGTERM, leave)
    is_terminated = False
    try:
        yield
    except TerminatedError:
        is_terminated = True
    finally:
        signal.signal(signal.SIGTERM, handler)
    if is_terminated:
        signal.raise_signal(signal.SIGTERM)


def allowed_hosts(host: str, url: str) -> tuple[str, ...]:
    """The allowed values of the Host header; empty for any, if others can reach the address and no URL is given.

    Otherwise a page of another site could reach this machine by a name that points to it (DNS rebinding).
    """
    public_name = urlsplit(url).hostname
    return (*LOOPBACK, *([public_name] if public_name else [])) if public_name or host in LOOPBACK else ()


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens on this address.

    Raises:
        CrossmatchError: The port is in use or not permitted, or this machine does not have the address.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=2048)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            problem = f"Port {port} of {host} is in use. Choose another: --port {port + 1}"
        elif error.errno == errno.EACCES:
            problem = f"This user may not listen on port {port} of {host}. Choose a port above 1023: --port 8400"
        else:
            problem = f"Cannot listen on {host} ({error.strerror or error}). Choose an address of this machine: --host 127.0.0.1"
        raise CrossmatchError(problem) from None
