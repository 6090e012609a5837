"""Connections over raw sockets: slow, large, many and cut-off requests cost the service little, and one line in the log at most."""

import itertools
import logging
import socket
import time

import pytest

from crossmatch.study.web import connections
from crossmatch.study.web.connections import ConnectionLimits
from study_lab import add_small_study, link_of
from study_web import open_browser, running_server

LIMIT = ConnectionLimits().header_bytes
HEAD = b"GET /alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
UPLOAD = b"Host: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
PATIENCE = 60  # seconds after which a test fails instead of waiting for ever


@pytest.fixture
def link(small):
    return link_of(small, add_small_study(small)).encode()


@pytest.fixture
def log(caplog):
    """The lines of the log so far. No line is a traceback."""
    caplog.set_level(logging.INFO)

    def lines(*words):
        assert all(record.exc_info is None for record in caplog.records), caplog.text
        return [message for message in caplog.messages if all(word in message for word in words)]

    return lines


def connect(port, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), PATIENCE, (source, 0))


def read_all(talk):
    """Everything that the service sends until it closes the connection."""
    received = b""
    try:
        while part := talk.recv(65_536):
            received += part
    except ConnectionError:
        pass
    return received


def send_pieces(talk, pieces):
    """Send pieces until the service closes the connection."""
    try:
        for piece in pieces:
            talk.sendall(piece)
    except ConnectionError:
        pass


def status(response):
    return int(response.split(b" ", 2)[1]) if response else 0


def until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# Headers


def large_headers(size):
    """Headers of this size in different forms: one large one, many small ones, and a long first line."""
    line = b"x-%07d: y\r\n"
    yield HEAD + b"x-large: " + b"y" * (size - len(HEAD) - 13) + b"\r\n\r\n"
    yield HEAD + b"".join(line % n for n in range((size - len(HEAD)) // len(line % 0))) + b"\r\n"
    yield HEAD.replace(b"/alive", b"/" + b"a" * (size - len(HEAD))) + b"\r\n"


@pytest.mark.parametrize("piece", [1_000_000, 100])
@pytest.mark.parametrize("form", range(3))
def test_headers_over_the_limit_are_refused_however_they_arrive(small, log, form, piece):
    """Complete at once, in packets, or a few bytes at a time."""
    with running_server(small) as port:
        for size, allowed in ((LIMIT + 2 * connections.PIECE_BYTES, (0, 400)), (10 * LIMIT, (0, 400)), (LIMIT - 1000, (200, 414))):
            request = list(large_headers(size))[form]
            with connect(port) as talk:
                send_pieces(talk, (request[at : at + piece] for at in range(0, len(request), piece)))
                assert status(read_all(talk)) in allowed, size
        with connect(port) as talk:  # it still works
            talk.sendall(HEAD + b"\r\n")
            assert status(read_all(talk)) == 200
    log()


@pytest.mark.parametrize("begin", [b"", b"GET", HEAD, HEAD + b"x-slow: "])
def test_headers_that_do_not_end_are_cut_off_in_time(small, begin):
    """Whether nothing more comes or a byte now and then, which does not extend the time."""
    with running_server(small, header_seconds=0.2) as port:
        with connect(port) as talk:
            talk.sendall(begin)
            assert read_all(talk) == b""
        with connect(port) as talk:
            send_pieces(talk, itertools.chain([begin or b"G"], dribble(b"E" if not begin else b"x")))
            assert read_all(talk) == b""


def dribble(piece):
    """A piece every 20 ms, for ever."""
    while True:
        time.sleep(0.02)
        yield piece


def test_headers_of_a_second_request_have_the_same_limit(small):
    with running_server(small, header_seconds=0.2) as port, connect(port) as talk:
        talk.sendall(HEAD.replace(b"Connection: close\r\n", b"") + b"\r\n")
        send_pieces(talk, itertools.chain([HEAD], dribble(b"x")))
        assert read_all(talk).count(b"HTTP/1.1 200") == 1  # of the first request


# Bodies


def test_body_that_does_not_end_is_cut_off_in_time(small, link, log):
    with running_server(small, body_seconds=0.2) as port:
        for framing, piece in ((b"Content-Length: 100000\r\n\r\n", b"x"), (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n")):
            for send in (lambda talk: None, lambda talk, piece=piece: send_pieces(talk, dribble(piece))):
                with connect(port) as talk:
                    talk.sendall(b"POST /join/" + link + b" HTTP/1.1\r\n" + UPLOAD + framing)
                    send(talk)
                    assert read_all(talk) == b""
        until(lambda: len(log("an upload was cut off")) == 4)


def test_pipelined_body_has_a_time_limit_too(small, link):
    """The second request arrives together with the first, and its body never does."""
    first = HEAD.replace(b"Connection: close\r\n", b"") + b"\r\n"
    with running_server(small, body_seconds=0.2) as port, connect(port) as talk:
        talk.sendall(first + b"POST /join/" + link + b" HTTP/1.1\r\n" + UPLOAD + b"Content-Length: 9\r\n\r\n")
        assert read_all(talk).count(b"HTTP/1.1 ") == 1


def test_strangers_cannot_make_the_service_read_a_body(small, log):
    """They are refused before the body arrives, and what they send on is not kept for longer than the limit."""
    with running_server(small, body_seconds=0.2) as port:
        for path, expected in ((b"/join/nosuch", 404), (b"/api/h/x/submit", 401), (b"/owner/invite", 401)):
            with connect(port) as talk:
                talk.sendall(b"POST " + path + b" HTTP/1.1\r\n" + UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n")
                assert status(talk.recv(65_536)) == expected
                send_pieces(talk, itertools.repeat(b"10000\r\n" + b"x" * 65_536 + b"\r\n"))
                read_all(talk)
    log()


@pytest.mark.parametrize("rude", [False, True])
def test_aborted_upload_is_one_line_in_the_log(small, link, log, rude):
    with running_server(small) as port:
        with connect(port) as talk:
            talk.sendall(b"POST /join/" + link + b" HTTP/1.1\r\n" + UPLOAD + b"Content-Length: 100000\r\n\r\nperson=")
            if rude:
                talk.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # close with a reset
        until(lambda: log(": an upload was cut off (POST"))  # after a reset, the address may be unknown
    assert len(log()) == 1
    assert open_browser(small).get("/alive").status_code == 200


@pytest.mark.parametrize("path", [b"/api/h/x/submit", b"/join/nosuch", b"/alive"])
def test_invalid_body_after_the_response_is_no_traceback(small, log, path):
    with running_server(small) as port, connect(port) as talk:
        talk.sendall(b"POST " + path + b" HTTP/1.1\r\n" + UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n")
        assert status(talk.recv(65_536)) in (401, 404, 405)
        send_pieces(talk, [b"no size\r\n"])
        read_all(talk)
    assert log("Traceback") == []


# Connections


def test_connections_from_one_address_are_limited(small, log, monkeypatch):
    """Idle ones as well; other addresses are served, and closed connections make room."""
    monkeypatch.setattr(connections, "refusals", connections.RateLimit(0, 1))
    with running_server(small, per_address=5) as port:
        idle = [connect(port) for _ in range(5)]
        for _ in range(3):
            with connect(port) as refused:
                send_pieces(refused, [HEAD + b"\r\n"])
                assert read_all(refused) == b""
        with connect(port, "127.0.0.2") as other:
            other.sendall(HEAD + b"\r\n")
            assert status(read_all(other)) == 200
        assert len(log("127.0.0.1 has 5 open connections")) == 1  # not a line for each
        idle[0].close()
        until(lambda: is_served(port))
        for talk in idle:
            talk.close()


def is_served(port):
    with connect(port) as talk:
        send_pieces(talk, [HEAD + b"\r\n"])
        return status(read_all(talk)) == 200


def test_no_limit_of_connections_if_it_is_0(small):
    with running_server(small, per_address=0) as port:
        idle = [connect(port) for _ in range(20)]
        assert is_served(port)
        for talk in idle:
            talk.close()


def test_upload_does_not_delay_the_end_of_the_service(small, link):
    began = time.monotonic()
    with running_server(small) as port:
        talk = connect(port)
        talk.sendall(b"POST /join/" + link + b" HTTP/1.1\r\n" + UPLOAD + b"Content-Length: 9\r\n\r\n")
        assert is_served(port)
    assert read_all(talk) == b""
    talk.close()
    assert time.monotonic() - began < ConnectionLimits().body_seconds
