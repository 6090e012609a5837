"""Runs the annotation service with uvicorn."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.study.database.campaign import open_campaign

MAX_HEADER_BYTES = 64 * 1024
SWITCH_INTERVAL_S = 0.0005  # the thread with the write lock must not wait long for the GIL after each query
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(
    folder: Path,
    host: str = "127.0.0.1",
    port: int = 8400,
    *,
    url: str = "",
    log: bool = False,
    now: Callable[[], float] = time.time,
) -> None:
    """Serve a campaign until the process is stopped.

    Args:
        folder: The campaign's folder.
        host: Address to listen on. An address that others can reach should be behind https.
        port: Port to listen on.
        url: Public address of the service. With https, cookies are sent by https only.
        log: Whether to log every request.
        now: Returns the time in seconds; simulations use a clock that is ahead.

    Raises:
        UsageError: The folder has no campaign.

    >>> serve(folder / "campaign", port=8401)
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: ... is not a campaign...
    """
    try:
        import uvicorn

        from crossmatch.study.web.app import make_app
    except ImportError as error:
        raise MissingDependencyError(error.name or "uvicorn", "study") from None
    campaign = open_campaign(folder, now)
    if not is_port_free(host, port):
        campaign.close()
        raise UsageError(f"Port {port} of {host} is in use, or the address is not available. Choose another: --port {port + 1}")
    config = uvicorn.Config(
        make_app(campaign, secure=url.startswith("https://"), hosts=allowed_hosts(host, url)),
        host=host,
        port=port,
        http="h11",
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        ws="none",
        log_level="info" if log else "warning",
        access_log=log,
        server_header=False,
        date_header=False,
        timeout_keep_alive=30,
    )
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        uvicorn.Server(config).run()
    except OSError as error:
        raise CrossmatchError(f"Cannot start the service ({error}).") from None
    finally:
        sys.setswitchinterval(interval)
        campaign.close()


def allowed_hosts(host: str, url: str) -> tuple[str, ...]:
    """The allowed values of the Host header; empty for any, if others can reach the address and no URL is given.

    Otherwise a page of another site could reach this machine by a name that points to it (DNS rebinding).
    """
    public_name = urlsplit(url).hostname
    return (*LOOPBACK, *([public_name] if public_name else [])) if public_name or host in LOOPBACK else ()


def is_port_free(host: str, port: int) -> bool:
    """Whether the port can be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
