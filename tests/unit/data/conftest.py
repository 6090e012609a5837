"""A local HTTP server with scripted misbehaviour."""

import contextlib
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from polling import LIMIT


@dataclass
class Server:
    """Serves `content` at every path. Each request takes the next behaviour of `script`; the last one stays.

    A behaviour takes the handler, the content and the first requested byte. `ranges` and `paths` are those of the requests.
    """

    content: bytes = b""
    script: list = field(default_factory=list)
    ranges: list = field(default_factory=list)
    paths: list = field(default_factory=list)
    files: dict = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def take(self):
        return self.script.pop(0) if len(self.script) > 1 else self.script[0] if self.script else honest


def reply(handler, body, *, status=200, length=None, first=None, total=None):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    if first is not None:
        handler.send_header("Content-Range", f"bytes {first}-{total - 1}/{total}")
    handler.end_headers()
    handler.wfile.write(body)


def honest(handler, content, start):
    if start and start >= len(content):
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{len(content)}")
        handler.end_headers()
    elif start:
        reply(handler, content[start:], status=206, first=start, total=len(content))
    else:
        reply(handler, content)


def ignores_range(handler, content, start):
    reply(handler, content)


def other_range(handler, content, start):
    """Sends another range than the requested one."""
    reply(handler, content[start // 2 :], status=206, first=start // 2, total=len(content))


def breaks_after(count, honours=True):
    def behave(handler, content, start):
        start = start if honours else 0
        rest = content[start:]
        reply(handler, rest[:count], status=206 if start else 200, length=len(rest), first=start or None, total=len(content))

    return behave


def says(more):
    """Sends a Content-Length that is wrong by this many bytes."""

    def behave(handler, content, start):
        rest = content[start:]
        length = len(rest) + more if len(rest) + more > 0 else len(rest)
        reply(handler, rest, status=206 if start else 200, length=length, first=start or None, total=len(content))

    return behave


def serves(other):
    return lambda handler, content, start: honest(handler, other, start)


def status(code):
    return lambda handler, content, start: reply(handler, b"<html>sorry</html>", status=code)


def hangs_after(count, server):
    """Sends some bytes and then nothing, with the connection open."""

    def behave(handler, content, start):
        rest = content[start:]
        reply(handler, rest[:count], status=206 if start else 200, length=len(rest), first=start or None, total=len(content))
        handler.wfile.flush()
        server.released.wait(LIMIT)

    return behave


BEHAVIOURS = {f.__name__: f for f in (honest, ignores_range, other_range, breaks_after, says, serves, status, hangs_after)}


@pytest.fixture
def behave():
    """The behaviours by name."""
    return type("Behaviours", (), {name: staticmethod(f) for name, f in BEHAVIOURS.items()})


@pytest.fixture
def server(monkeypatch):
    """A server on the loopback interface. Proxy settings of the machine are ignored."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):  # the name that http.server calls
            requested = self.headers["Range"]
            state.ranges.append(requested)
            state.paths.append(self.path)
            start = int(requested.removeprefix("bytes=").rstrip("-")) if requested else 0
            with contextlib.suppress(ConnectionError):  # the client closed the connection
                state.take()(self, state.files.get(self.path, state.content), start)

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        state.url = f"http://127.0.0.1:{http.server_address[1]}"
        yield state
        state.released.set()
        http.shutdown()
        thread.join()
