"""Any request at all, in any order: the service never has an accident, always says what a browser may do, and stays verifiable."""

import json
import string
import tempfile
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from crossmatch.study.assignment import people
from crossmatch.study.database.verification import verify
from crossmatch.study.web.app import ROUTES
from crossmatch.study.web.security import RateLimit
from study_lab import WITH_GOLD, Clock, add_small_study, database_of, disable_sync, link_of, new_campaign
from study_web import Browser, answers_by_caption, open_browser

METHODS = ("GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PATCH", "TRACE", "X")
PATHS = sorted({route.path for route in ROUTES if isinstance(route, Route)} | {"/static/{claim}", "/nosuch/{claim}"})
TYPES = (
    "application/json",
    "application/x-www-form-urlencoded",
    "text/plain",
    "multipart/form-data; boundary=b",
    "application/json; charset=utf-16",
    "",
)
QUICK = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}

# -- what somebody may send; words in angle brackets are filled in with what exists

WORDS = ("<claim>", "<other>", "<link>", "<token>", "<study>", "<csrf>", "yes", "no", "weak-no", "match", "reason", "approve",
"owner", "image-0",
         "", "..", "0", "1", "-1", "null", "true", "%00", "%ff", "\x00", "<script>", "é", "\ud800", "9" * 30,
         "a" * 300)  # fmt: skip
word = st.sampled_from(WORDS) | st.text(max_size=6) | st.text(string.printable, max_size=6)
number = st.integers(-2, 5) | st.integers() | st.floats() | st.sampled_from([10**400, 2**31, 2**63])
value = st.recursive(
    st.none() | st.booleans() | number | word,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(word, inner, max_size=3),
    max_leaves=8,
)
answer = st.fixed_dictionaries(
    {"match": st.sampled_from(["yes", "no", "weak-no", "maybe"]) | value}, optional={"reason": value, "error": value}
)
told = (
    st.fixed_dictionaries({"answers": st.lists(answer, min_size=5, max_size=5) | value, "number": number | value, "seconds": value})
    | st.fixed_dictionaries({"answers": st.just("<right>"), "seconds": st.none() | st.lists(number, min_size=5, max_size=5)})
    | st.dictionaries(word, value, max_size=3)
    | value
)
fields = st.dictionaries(
    st.sampled_from(["csrf", "person", "verdict", "was", "open", "role"]) | word, word | st.just("<csrf>"), max_size=5
)
body = st.one_of(
    st.none(), st.binary(max_size=60), told.map(lambda item: json.dumps(item).encode()),
    fields.map(lambda some: "&".join(f"{quote(k, errors='replace')}={quote(v, errors='replace')}" for k,
    v in some.items()).encode()),
)  # fmt: skip
headers = st.fixed_dictionaries(
    {},
    optional={
        "content-type": st.sampled_from(TYPES),
        "x-csrf-token": st.sampled_from(["<csrf>", "", "x", "0" * 32]),
        "origin": st.sampled_from(["http://127.0.0.1:8400", "null", "http://evil.example", "[", "http://["]),
        "host": st.sampled_from(["127.0.0.1:8400", "evil.example", "[", "", "a b", "[::1]:1"]),
        "sec-fetch-site": st.sampled_from(["same-origin", "cross-site", "x"]),
        "content-length": st.sampled_from(["0", "5", "99999999", "x", "-1"]),
        "range": st.sampled_from(["bytes=0-1", "bytes=-1", "x"]),
        "cookie": st.sampled_from(["crossmatch_session=", "crossmatch_session=a.b.c", "=", ";;;", "crossmatch_session=<session>x"]),
        "x-forwarded-for": st.sampled_from(["1.2.3.4", "x" * 100]),
        "transfer-encoding": st.just("chunked"),
        "if-none-match": st.just("*"),
    },
)
likely = st.fixed_dictionaries({"content-type": st.just("<kind>"), "x-csrf-token": st.just("<csrf>")})
query = st.just("") | st.dictionaries(
    st.sampled_from(["person", "PROLIFIC_PID", "workerId", "page", "done", "end"]) | word, word, max_size=2
).map(lambda some: "?" + "&".join(f"{quote(k, errors='replace')}={quote(v, errors='replace')}" for k, v in some.items()))
anything = st.tuples(
    st.sampled_from(METHODS), st.sampled_from(PATHS), st.lists(word, min_size=3, max_size=3), query, likely | headers, body
)
# what a person does, with something wrong in it now and then
usual = st.one_of(
    st.tuples(st.just("POST"), st.just("/api/s/{study}/claim"), st.just(["<study>"] * 3), st.just(""), likely, st.just(b"{}")),
    st.tuples(st.just("POST"), st.just("/api/h/{claim}/submit"), st.just(["<claim>"] * 3), st.just(""), likely,
              told.map(lambda item: json.dumps(item).encode())),
    st.tuples(st.just("PUT"), st.just("/api/h/{claim}/draft"), st.just(["<claim>"] * 3), st.just(""), likely,
              st.fixed_dictionaries({"number": st.integers(1, 9), "answers": st.lists(value,
              max_size=5)}).map(lambda o: json.dumps(o).encode())),
    st.tuples(st.just("GET"), st.sampled_from(["/api/h/{claim}", "/h/{claim}", "/h/{claim}/picture/{place:int}/{n:int}"]),
              st.just(["<claim>", "0", "0"]), st.just(""), headers, st.none()),
    st.tuples(st.just("POST"), st.just("/owner/{study}/hit/{claim}/review"), st.just(["<study>", "<claim>", ""]), st.just(""),
    likely,
              st.sampled_from(["approve", "reject", "reassign", "x"]).map(lambda item: f"csrf=<csrf>&was=&verdict={item}".encode())),
)  # fmt: skip


class World:
    """A campaign with an annotator, somebody else, an owner, and nobody."""

    def __init__(self, campaign):
        self.campaign, study = campaign, add_small_study(campaign, *WITH_GOLD, "recipe.people=2", items=9, gold_per_kind=3)
        unlimited = RateLimit(1e9, 1e9)
        app = open_browser(campaign, requests=unlimited, entries=unlimited).app
        self.anna, self.ben = Browser(app).join(campaign, study, "anna"), Browser(app).join(campaign, study, "ben")
        self.boss, self.nobody = Browser(app).enter(campaign, "boss", "owner"), Browser(app)
        self.hit, self.other = self.anna.claim(), self.ben.claim()
        self.words = {
            "<claim>": self.hit["claim"], "<other>": self.other["claim"], "<link>": link_of(campaign, study), "<study>": "eccv-hit",
            "<token>": people.invite(campaign, "carla"), "<right>": answers_by_caption(self.hit), "<session>": self.anna.cookie,
        }  # fmt: skip

    def filled(self, text, who):
        for name, known in {**self.words, "<csrf>": who.csrf}.items():
            text = text.replace(name, known if isinstance(known, str) else name)
        return text

    def send(self, who, asked):
        """One request, with what exists put in its place; what it brought must be an answer with all headers."""
        method, path, parts, more, given, told = asked
        places = iter(quote(self.filled(part, who), safe="%", errors="replace") for part in parts)
        where = "/".join(next(places, "x") if part.startswith("{") else part for part in path.split("/"))
        content = told
        if told is not None:
            right = json.dumps(self.words["<right>"])
            content = self.filled(told.decode("latin-1").replace('"<right>"', right), who).encode("latin-1")
        given = {
            **given,
            **({"content-type": TYPES[not path.startswith("/api/")]} if given.get("content-type") == "<kind>" else {}),
        }
        values = {name: self.filled(text, who).encode("latin-1", "replace") for name, text in given.items()}
        before = dict(who.http.cookies)
        response = who.request(method, where + more, content=content, headers=values)  # which looks at the headers of the answer
        who.http.cookies.clear()  # whoever came in as somebody else goes out again
        for name, kept in before.items():
            who.http.cookies.set(name, kept, domain="127.0.0.1", path="/")
        assert response.status_code < 500, (method, where + more, values, content, response.text)
        return response


@contextmanager
def world(database=""):
    with tempfile.TemporaryDirectory() as folder, new_campaign(Path(folder) / "c", database, Clock()) as campaign:
        if not database:
            disable_sync(campaign)
        yield World(campaign)


@pytest.fixture(params=["sqlite", "postgresql"])
def here(request):
    """A world for all examples of a test; at the end its events are whole, and ben's claim is as it was."""
    with world(database_of(request.param, request)) as created:
        yield created
        verify(created.campaign)
        assert created.ben.api("GET", f"/h/{created.other['claim']}").json()["submitted"] is False


@settings(**QUICK)
@given(st.lists(st.tuples(st.sampled_from(["anna", "anna", "boss", "nobody"]), usual | anything), min_size=1, max_size=8))
@example([("anna", ("GET", "/s/{study}", ["%00", "", ""], "", {}, None))])
@example([("anna", ("PUT", "/api/h/{claim}/draft", ["<claim>", "", ""], "", {"content-type": TYPES[0],
"x-csrf-token": "<csrf>"},
                    b'{"number": 1, "answers": [NaN, "\\ud800", "\\u0000"]}'))])  # fmt: skip
def test_no_request_causes_a_server_error(here, requests):
    for name, asked in requests:
        here.send(getattr(here, name), asked)


def test_valid_requests_succeed():
    """Else everything above would be about refusals."""
    with world() as here:
        likely_headers = {"content-type": "application/json", "x-csrf-token": "<csrf>"}
        submit = ("POST", "/api/h/{claim}/submit", ["<claim>"] * 3, "", likely_headers, b'{"answers": "<right>", "seconds": null}')
        assert here.send(here.anna, submit).json()["counted"] is True
        form = ("POST", "/owner/{study}/hit/{claim}/review", ["<study>", "<claim>", ""], "", {"content-type": TYPES[1]},
                b"csrf=<csrf>&was=&verdict=reassign")  # fmt: skip
        assert here.send(here.boss, form).status_code == 303
        verify(here.campaign)
