"""Requests as no browser sends them: strange addresses, methods, bodies and hosts are refused, never an accident of the server."""

import json
import re
import socket
import sys
from contextlib import suppress

import pytest
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from crossmatch.data.errors import CrossmatchError
from crossmatch.study.database.campaign import DatabaseUnavailableError
from crossmatch.study.database.verification import verify
from crossmatch.study.web.app import ROUTES, make_app
from crossmatch.study.web.connections import ConnectionLimits
from crossmatch.study.web.security import HEADERS, MAX_BODY_BYTES
from crossmatch.study.web.server import LOOPBACK, SWITCH_INTERVAL_S, allowed_hosts, serve
from polling import LIMIT, wait_until
from study_lab import WITH_GOLD, add_small_study, answers_to, hit_of, link_of
from study_web import Browser, answers_by_caption, open_browser, require_headers, running_server


def joined(campaign):
    """Somebody who has joined."""
    return open_browser(campaign).join(campaign, add_small_study(campaign, *WITH_GOLD, items=6, gold_per_kind=4), "anna")


@pytest.fixture
def anna(small):
    return joined(small)


@pytest.fixture
def anna_on_both(campaign):
    return joined(campaign)


MAX_HEADER_BYTES = ConnectionLimits().header_bytes

# Addresses

STRANGE = (
    "%2e%2e", "%2e%2e%2fsecret", "..%2f..%2fsecret", "....//secret", "..\\secret", "%5c..%5csecret", "%00", "a%00b",
    "%0d%0aSet-Cookie:x=1",
    "%ff%fe", "%ed%a0%80", "*", "%25", "%", "'%20OR%201=1--", "a" * 1500, "%F0%9F%90%88", "-1", "1e9", "0x1", "%E2%80%AE", "~",
    ";", "nosuch",
)  # fmt: skip
PATHS = sorted({route.path for route in ROUTES if isinstance(route, Route) and "{" in route.path})


def filled(path, word):
    """The path with this word in the place of each parameter, one at a time."""
    known = {"study": "eccv-hit", "claim": "f" * 32, "place:int": "0", "n:int": "0", "person:int": "1", "token": "t", "link": "l"}
    parts = path.split("/")
    places = [n for n, part in enumerate(parts) if part.startswith("{")]
    for changed in places:
        yield "/".join(
            word if n == changed else known[part[1:-1]] if n in places else part for n, part in enumerate(parts)
        )  # fmt: skip


def require_nothing(visitor, campaign, where):
    """No address that does not exist is an accident, or shows what is not meant to be shown."""
    secret = (campaign.folder / "secret").read_text()
    for method in ("GET", "PUT" if where.endswith("draft") else "POST"):
        values = {"json": {}} if where.startswith("/api") else {"data": {"csrf": visitor.csrf}}
        answer = visitor.request(method, where, headers={"x-csrf-token": visitor.csrf}, **({} if method == "GET" else values))
        assert answer.status_code < 500, (method, where, answer.text)
        assert answer.status_code != 200 or where.startswith(("/enter/", "/owner/")), where
        assert secret not in answer.text
        assert "x" not in answer.cookies


@pytest.mark.parametrize("path", PATHS)
def test_unknown_addresses_reveal_nothing(anna, small, path):
    visitor = Browser(anna.app).enter(small, "boss", "owner") if path.startswith("/owner") else anna
    for word in STRANGE:
        for where in filled(path, word):
            require_nothing(visitor, small, where)
    verify(small)


def test_unstorable_characters_in_addresses_cause_no_error(anna_on_both, campaign):
    boss = Browser(anna_on_both.app).enter(campaign, "boss", "owner")
    for path in PATHS:
        for word in ("%00", "a%00b", "%ed%a0%80", "9" * 25):
            for where in filled(path, word):
                require_nothing(boss if path.startswith("/owner") else anna_on_both, campaign, where)


ELSEWHERE = (
    "/static/../guard.py", "/static/%2e%2e/guard.py", "/static/..%2fguard.py", "/static//etc/passwd", "/static/%2fetc%2fpasswd",
    "/static/",
    "/static", "/static/..%5cguard.py", "/static/%00", "/static/" + "a" * 500, "/%2fevil.example/", "/.git/config", "/secret",
    "/campaign.db",
    "/pictures/a.jpg", "/templates/base.html",
)  # fmt: skip


@pytest.mark.parametrize("path", ELSEWHERE)
def test_other_paths_are_not_served(anna, path):
    answer = anna.get(path)
    assert answer.status_code in (404, 405)
    assert "location" not in answer.headers


def test_numbers_in_an_address_are_small(anna):
    claim = anna.claim()["claim"]
    for number in ("99", "9" * 18, "9" * 1900, "00000000", "٣"):
        for where in (f"/h/{claim}/picture/{number}/0", f"/h/{claim}/picture/0/{number}", f"/owner/eccv-hit/people/{number}"):
            assert anna.get(where).status_code in (200, 403, 404), where
    assert anna.get(f"/h/{claim}/picture/0/" + "9" * 5000).status_code == 414


def test_trailing_slash_causes_no_redirect(anna):
    for path in ("/s/eccv-hit/", "/owner/", "/alive/", "//s/eccv-hit"):
        answer = anna.get(path, headers={"host": "evil.example"})
        assert answer.status_code == 404
        assert "evil" not in str(answer.headers)


# Methods


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "DELETE", "PATCH", "PUT", "CONNECT", "BREW", "PROPFIND"])
def test_unknown_methods_do_nothing(anna, method, small):
    for path in (
        "/",
        "/alive",
        "/s/eccv-hit",
        "/s/eccv-hit/claim",
        "/api/s/eccv-hit/claim",
        "/owner",
        "/static/study.css",
        "/join/x",
    ):
        answer = anna.request(method, path)
        assert answer.status_code in (404, 405), (method, path)
        assert "access-control-allow-origin" not in answer.headers
    verify(small)


def test_head_is_get_without_a_body(anna):
    claim = anna.claim()["claim"]
    for path in ("/", "/alive", "/s/eccv-hit", f"/h/{claim}", f"/h/{claim}/picture/0/0", f"/api/h/{claim}", "/static/study.css"):
        assert anna.request("HEAD", path).status_code == anna.get(path).status_code == 200
    assert anna.request("HEAD", "/api/s/eccv-hit/claim").status_code == 405


# Bodies

DEEP = b'{"number":1,"answers":' + b"[" * 900 + b"]" * 900 + b"}"
BROKEN = (
    b"", b"{", b"null", b"[]", b'"text"', b"7", b"{'a':1}", b"[" * 100_000, b'{"a":' * 50_000, DEEP,
    b'{"number":1,"answers":[NaN]}', b'{"number":1,"answers":[Infinity]}', b'{"number":1,"answers":[-Infinity]}',
    b'{"number":1,"answers":[1e999]}', b'{"number":1,"answers":["\\ud800"]}', b'{"number":1,"answers":["\\u0000"]}',
    b'{"number":1,"answers":[{"\\u0000":1}]}', b'{"number":1,"answers":[{"\\udfff":1}]}',
    b'{"number":1,"answers":[' + b"9" * 5000 + b"]}",
    b'{"number":NaN,"answers":[]}', b'{"number":1e400,"answers":[]}', b"\x80", b"{}" * 2,
)  # fmt: skip


@pytest.mark.parametrize("body", BROKEN, ids=lambda body: body[:24].decode("latin-1"))
def test_body_that_cannot_be_stored_is_refused(anna_on_both, campaign, body):
    anna = anna_on_both
    claim = anna.claim()["claim"]
    for method, path in (("PUT", f"/h/{claim}/draft"), ("POST", f"/h/{claim}/submit"), ("POST", "/s/eccv-hit/claim")):
        answer = anna.api(method, path, content=body)
        assert answer.status_code in (400, 422), (path, answer.text)
    assert anna.api("GET", f"/h/{claim}").json()["draft"] == {"number": 0, "answers": None}
    assert anna.get(f"/h/{claim}").status_code == 200
    verify(campaign)


@pytest.mark.parametrize("number", [0, -1, 1.5, "1", True, None, 2**31, 10**400, [1]])
def test_a_draft_has_a_number(anna, number):
    claim = anna.claim()["claim"]
    answer = anna.api("PUT", f"/h/{claim}/draft", content=json.dumps({"number": number, "answers": []}).encode())
    assert answer.status_code == 422


@pytest.mark.parametrize(
    "answers", [[], [None], [{"match": "no"}], ["Ünï¢ode 🐈"], [{"far": 1.5}], [[[["deep"]]]], [10**300], ["\\u0000"]]
)
def test_draft_is_returned_unchanged(anna_on_both, answers):
    anna = anna_on_both
    claim = anna.claim()["claim"]
    assert anna.api("PUT", f"/h/{claim}/draft", {"number": 1, "answers": answers}).json()["kept"] is True
    assert anna.api("GET", f"/h/{claim}").json()["draft"] == {"number": 1, "answers": answers}
    assert anna.get(f"/h/{claim}").status_code == 200


@pytest.mark.parametrize(
    "change",
    [lambda a: a[:-1], lambda a: [*a, a[0]], lambda a: {"0": a}, lambda a: None, lambda a: [{}] * len(a),
    lambda a: [{"match": "maybe"}, *a[1:]],
     lambda a: [{"match": ["yes"]}, *a[1:]], lambda a: [{"match": {"yes": 1}}, *a[1:]], lambda a: [{**a[0], "gold": True}, *a[1:]],
     lambda a: [{"match": 10**400}, *a[1:]], lambda a: [{"match": "yes", "reason": ["wrong"]}, *a[1:]], lambda a: [["match",
     "yes"], *a[1:]],
     lambda a: [{"match": "yes" * 10_000}, *a[1:]]],
)  # fmt: skip
def test_answers_that_are_not_options_are_refused(anna, small, change):
    hit = anna.claim()
    right = answers_by_caption(hit)
    body = json.dumps({"answers": change(right), "seconds": None}).encode()
    answer = anna.api("POST", f"/h/{hit['claim']}/submit", content=body)
    assert answer.status_code == 422
    assert len(answer.json()["error"]) < 400
    assert anna.submit(hit, right).json()["again"] is False
    assert answers_to(hit_of(small, hit["claim"])) == right
    verify(small)


@pytest.mark.parametrize("seconds", ["x", [1], {"a": 1}, [10**400] * 5, [True] * 5, -1, [[1]] * 5])
def test_strange_times_do_not_matter(anna, seconds):
    hit = anna.claim()
    body = json.dumps({"answers": answers_by_caption(hit), "seconds": seconds}).encode()
    assert anna.api("POST", f"/h/{hit['claim']}/submit", content=body).status_code == 200


@pytest.mark.parametrize(
    "body",
    [b"person=%00", b"person=a%00b", b"person=a%0d%0aSet-Cookie:x", b"person=%ff", b"\xff", b"a=1&" * 60, b"person=" + b"x" * 500],
)
def test_form_that_cannot_be_stored_is_refused(campaign, body):
    link = link_of(campaign, add_small_study(campaign))
    answer = open_browser(campaign).request(
        "POST", f"/join/{link}", content=body, headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert answer.status_code in (400, 409) or (body == b"person=%ff" and answer.status_code == 303)
    assert "x" not in answer.cookies


@pytest.mark.parametrize("name", ["%00", "a%0d%0aSet-Cookie:%20x=1", "%E2%80%AEevil", "x" * 300])
def test_platform_id_that_cannot_be_stored_is_refused(campaign, name):
    link = link_of(campaign, add_small_study(campaign))
    answer = open_browser(campaign).post(f"/join/{link}?PROLIFIC_PID={name}", {})
    assert answer.status_code == 409
    assert "set-cookie" not in answer.headers


# Sizes


def chunks(size):
    yield from (b"x" * 65_536 for _ in range(size // 65_536 + 1))


@pytest.mark.parametrize("path", ["/api/s/eccv-hit/claim", "/s/eccv-hit/claim", "/join/{link}", "/api/h/x/submit"])
def test_large_bodies_are_refused_with_and_without_content_length(anna, small, path):
    path = path.format(link=link_of(small, 1))
    kind = "application/json" if path.startswith("/api") else "application/x-www-form-urlencoded"
    for body in (b"x" * (MAX_BODY_BYTES + 1), chunks(MAX_BODY_BYTES)):
        answer = anna.request("POST", path, content=body, headers={"content-type": kind, "x-csrf-token": anna.csrf})
        assert answer.status_code == 413
        assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("size", ["-1", "1e3", "x", "9" * 50, str(MAX_BODY_BYTES + 1)])
def test_invalid_content_length_is_refused(anna, size):
    assert anna.request("POST", "/api/s/eccv-hit/claim", content=b"{}", headers={"content-length": size}).status_code in (400, 413)


# Hosts


def test_loopback_service_accepts_only_loopback_hosts(small):
    """A page of another site can make its own name lead here (DNS rebinding); then the origin and the host are equal."""
    link = link_of(small, add_small_study(small))
    visitor = Browser(make_app(small, hosts=allowed_hosts("127.0.0.1", "")))
    for host in ("127.0.0.1:8400", "localhost", "LOCALHOST:1", "[::1]:8400"):
        assert visitor.get("/alive", headers={"host": host}).status_code == 200
    for host in (
        "evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8400",
        "[::2]",
        "",
        "localhost.",
        "[",
        "127.0.0.1@evil.example",
        "2130706433",
    ):
        answer = visitor.get("/alive", headers={"host": host})
        assert answer.status_code == 421
        assert visitor.post(f"/join/{link}", {}, headers={"host": host, "origin": f"http://{host}"}).status_code in (403, 421)


def test_allowed_hosts_follow_the_public_url():
    assert allowed_hosts("127.0.0.1", "") == LOOPBACK
    assert allowed_hosts("127.0.0.1", "https://study.example/x") == (*LOOPBACK, "study.example")
    assert allowed_hosts("0.0.0.0", "https://Study.example:8443") == (*LOOPBACK, "study.example")
    assert allowed_hosts("0.0.0.0", "") == ()


@pytest.mark.parametrize("host", ["[", "]", "[::1", "a b", "evil/api/", "evil\\", "é", "x" * 1000, ":", "@", "127.0.0.1:99999999"])
def test_malformed_hosts_cause_no_server_error(anna, host):
    values = {"host": host.encode("latin-1"), "x-csrf-token": anna.csrf}
    for answer in (
        anna.get("/s/eccv-hit", headers=values),
        anna.get("/nosuch", headers=values),
        anna.get("/api/h/x", headers=values),
    ):
        assert answer.status_code < 500
    assert anna.request("POST", "/s/eccv-hit/claim", data={"csrf": anna.csrf}, headers=values).status_code in (303, 403)


def test_server_error_reveals_nothing_and_has_all_headers(anna, monkeypatch):
    def fail(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("crossmatch.study.assignment.claims.claim_and_load", fail)
    for answer in (anna.api("POST", "/s/eccv-hit/claim", {}), anna.post("/s/eccv-hit/claim", {})):
        assert answer.status_code == 500
        assert "secret detail" not in answer.text


def test_failed_database_is_one_line_in_the_log_and_repeated_by_browsers(anna, monkeypatch, caplog):
    def fail(*_):
        raise DatabaseUnavailableError("Cannot use the database of /secret (database or disk is full).")

    monkeypatch.setattr("crossmatch.study.assignment.claims.claim_and_load", fail)
    for answer in (anna.api("POST", "/s/eccv-hit/claim", {}), anna.post("/s/eccv-hit/claim", {})):
        assert answer.status_code == 503  # static/drafts.js repeats requests with status 5xx
        assert "secret" not in answer.text
    (line,) = caplog.records  # at most one a minute
    assert (line.getMessage(), line.exc_info) == ("Cannot use the database of /secret (database or disk is full).", None)


# On a real socket


@pytest.fixture
def port(small):
    """A real server in this process."""
    add_small_study(small)
    with running_server(small) as started:
        yield started


@pytest.fixture
def join_path(small, port):
    """The address where anybody with the link may send a form."""
    return f"/join/{link_of(small, 1)}".encode()


def spoken(port, said):
    """What a server answers to these bytes until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as talk:
        heard = b""
        with suppress(ConnectionError):  # the server may answer and close before it has read everything
            talk.sendall(said)
        with suppress(ConnectionError):
            while part := talk.recv(65_536):
                heard += part
        return heard


def test_invalid_http_is_closed(port):
    for said in (
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
        b"\x00" * 100,
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        heard = spoken(port, said)
        assert not heard or heard[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 421")
    assert b"200" in spoken(port, b"GET /alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")


def test_one_request_cannot_hide_another(port):
    inner = b"GET /alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    both = b"POST /join/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % len(
        inner
    )
    assert spoken(port, both + inner).count(b"HTTP/1.1") <= 2
    twice = b"POST /join/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 40\r\n\r\n"
    assert spoken(port, twice).startswith(b"HTTP/1.1 400")


def test_a_body_without_end_is_cut_off(port, join_path):
    head = b"POST " + join_path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    endless = head + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"x" * 65_536 + b"\r\n") * 20
    assert b"413" in spoken(port, endless).partition(b"\r\n")[0]
    told = head + b"Content-Length: 99999999\r\n\r\n"
    answer = spoken(port, told)
    assert answer.startswith(b"HTTP/1.1 413")
    assert all(f"{name}: {value}".encode() in answer for name, value in HEADERS.items())


def test_headers_without_end_are_cut_off(port):
    """At once, and not when memory is full: the server answers while they still come."""
    head = b"GET /alive HTTP/1.1\r\nHost: localhost\r\n"
    for endless in (b"x-much: " + b"x" * (MAX_HEADER_BYTES + 70_000), b"x-many: y\r\n" * (MAX_HEADER_BYTES // 8)):
        assert spoken(port, head + endless).startswith(b"HTTP/1.1 400")
    assert spoken(port, b"GET /" + b"a" * (MAX_HEADER_BYTES + 70_000)).startswith(b"HTTP/1.1 400")
    large = head + b"x-large: " + b"x" * (MAX_HEADER_BYTES // 2) + b"\r\nConnection: close\r\n\r\n"
    assert spoken(port, large).startswith(b"HTTP/1.1 200")


def test_headers_behind_a_body_are_cut_off_too(port):
    head = (
        b"POST /join/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked"
    )
    for body in (b"", b"4\r\na=b&\r\n"):
        for endless in (b"x-much: " + b"x" * (MAX_HEADER_BYTES * 8), b"x-many: y\r\n" * MAX_HEADER_BYTES):
            assert spoken(port, head + b"\r\n\r\n" + body + b"0\r\n" + endless).startswith(b"HTTP/1.1 400")
    few = head + b"\r\nConnection: close\r\n\r\n3\r\na=b\r\n0\r\nx-few: y\r\n\r\n"
    assert spoken(port, few).startswith(b"HTTP/1.1 404")


def test_pipelined_request_after_a_large_one_is_served(port, monkeypatch):
    """Both in one go, as far as the first lines of the second one, or without the last ones of the first."""
    receive, received = H11Protocol.data_received, []

    def recorded(protocol, data):
        receive(protocol, data)
        received.append(len(data))

    monkeypatch.setattr(H11Protocol, "data_received", recorded)
    head = b"POST /join/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    plain = head + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n186a0\r\n" + b"x" * 100_000 + b"\r\n0\r\n"
    second, end = b"GET /alive HTTP/1.1\r\nHost: localhost\r\n", b"Connection: close\r\n\r\n"
    for now, later in ((plain + second, end), (chunked, b"\r\n" + second + end)):
        received.clear()
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as talk:
            talk.sendall(now)
            wait_until(lambda now=now: sum(received) == len(now))
            talk.sendall(later)
            heard = b"".join(iter(lambda talk=talk: talk.recv(65_536), b""))
        assert re.findall(rb"HTTP/1.1 (\d+)", heard) == [b"404", b"200"]


def test_request_with_several_hosts_is_refused(port):
    """Else what is checked might be another one than what is used."""
    for told in (
        b"Host: localhost\r\nHost: evil.example",
        b"Host: evil.example\r\nHost: localhost",
        b"Host: localhost\r\nHost: localhost",
    ):
        said = b"GET /alive HTTP/1.1\r\n" + told + b"\r\nConnection: close\r\n\r\n"
        assert spoken(port, said).startswith(b"HTTP/1.1 400")


def test_protocol_upgrades_are_ignored(port):
    """And so is the next request on the same connection."""
    upgrade = b"GET /alive HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    last = b"GET /alive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert spoken(port, upgrade + last).count(b"HTTP/1.1 200") == 2


def test_responses_reveal_no_server_details(port):
    answer = spoken(port, b"GET /nosuch HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"404" in answer
    assert b"traceback" not in answer.lower()


def test_switch_interval_is_restored_after_serving(small, monkeypatch):
    """Threads change places faster while a campaign is served, and no longer."""
    seen, before = [], sys.getswitchinterval()
    monkeypatch.setattr("uvicorn.Server.run", lambda *_: seen.append(sys.getswitchinterval()))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(CrossmatchError, match="is in use"):
            serve(small.folder, port=taken.getsockname()[1])
    assert sys.getswitchinterval() == before
    serve(small.folder, port=0)
    assert seen == [pytest.approx(SWITCH_INTERVAL_S)]
    assert sys.getswitchinterval() == before


def test_headers_are_required_of_every_answer(anna):
    answer = anna.http.get("/alive")
    require_headers(answer)
    del answer.headers["content-security-policy"]
    with pytest.raises(AssertionError):
        require_headers(answer)
