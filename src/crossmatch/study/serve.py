"""Serve a campaign on this machine, or where one is told to."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.study.store import open_campaign

SWITCH_S = 0.0005  # for which a thread computes while others wait: who has the database must not wait long for Python
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
    """Answer requests until told to stop. An address that others can reach must be asked for, and should be behind https.

    `url` is where people reach it; if that is https, cookies are sent that way alone. `now` tells the time (rehearsals are ahead).
    """
    try:
        import uvicorn

        from crossmatch.study.web.app import make_app
        from crossmatch.study.web.protocol import Bounded
    except ImportError as error:
        raise MissingDependency(error.name or "uvicorn", "study") from None
    campaign = open_campaign(folder, now)
    if not free(host, port):
        campaign.close()
        raise WrongWords(f"port {port} of {host} is taken, or the address is not this machine's. Choose another: --port {port + 1}")
    app = make_app(campaign, secure=url.startswith("https://"), hosts=names(host, url))
    config = uvicorn.Config(
        app, host=host, port=port, log_level="info" if log else "warning", access_log=log,
        server_header=False, date_header=False, timeout_keep_alive=30, http=Bounded, ws="none",
    )  # fmt: skip
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        uvicorn.Server(config).run()
    except OSError as error:
        raise CrossmatchError(f"the service cannot be started ({error}).") from None
    finally:
        sys.setswitchinterval(before)
        campaign.close()


def names(host: str, url: str) -> tuple[str, ...]:
    """The names by which people come; none where any will do: on an address that others can reach, without an URL.

    Else a page of another site could reach this machine by a name of its own that leads here.
    """
    told = urlsplit(url).hostname
    return (*LOOPBACK, *([told] if told else [])) if told or host in LOOPBACK else ()


def free(host: str, port: int) -> bool:
    """Whether a port can be listened to."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True
