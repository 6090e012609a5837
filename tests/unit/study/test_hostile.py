"""People who want more than they are given: other people's HITs, sessions and pages, and what is gold."""

import asyncio
import re
import string

import pytest
from sqlalchemy import select
from starlette.routing import Route

from crossmatch.study.assignment import people
from crossmatch.study.database.campaign import open_campaign
from crossmatch.study.database.schema import person, slot
from crossmatch.study.database.verification import verify
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.web import security
from crossmatch.study.web.app import ROUTES
from crossmatch.study.web.security import COOKIE, RateLimit
from study_lab import JPEG, START, WITH_GOLD, add_small_study, design_of, gold, link_of, pairs, read_submissions
from study_web import BASE_URL, Browser, answers_by_caption, open_browser

NOW = int(START)  # when sessions of these tests begin
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"


@pytest.fixture
def two(small):
    return both(small)


@pytest.fixture
def two_on_both(campaign):
    return both(campaign)


def both(campaign):
    """Anna, who has a HIT, and Ben, who would like to have it."""
    study = add_small_study(campaign, *WITH_GOLD, "recipe.people=2", items=6, gold_per_kind=4)
    app = open_browser(campaign).app
    return Browser(app).join(campaign, study, "anna"), Browser(app).join(campaign, study, "ben"), study


# Other people's HITs


def test_hit_of_another_person_looks_nonexistent(two_on_both, campaign):
    anna, ben, study = two_on_both
    mine = anna.claim()["claim"]
    answers = {"answers": [{"match": "yes"}] * 5}
    for path, method, told in (
        ("/api/h/{}", "GET", None),
        ("/api/h/{}/draft", "PUT", {"number": 1, "answers": []}),
        ("/api/h/{}/submit", "POST", answers),
        ("/h/{}", "GET", None),
        ("/h/{}/picture/0/0", "GET", None),
    ):
        more = {"json": told} if told else {}
        response = [
            ben.request(method, path.format(claim), headers={"x-csrf-token": ben.csrf}, **more) for claim in (mine, "f" * 32)
        ]
        assert [outcome.status_code for outcome in response] == [404, 404], path
        assert response[0].text == response[1].text
        assert dict(response[0].headers) == dict(response[1].headers)
    assert read_submissions(campaign, study).answers == {}
    assert anna.api("GET", f"/h/{mine}").json()["draft"] == {"number": 0, "answers": None}


def test_submitted_hit_is_hidden_from_other_people(two):
    anna, ben, _ = two
    hit = anna.claim()
    assert anna.submit(hit).json() == {"again": False, "late": False, "counted": True, "passed": None}
    assert ben.submit(hit).status_code == 404
    assert ben.get(f"/h/{hit['claim']}/picture/0/0").status_code == 404
    assert anna.get(f"/h/{hit['claim']}/picture/0/0").content == JPEG


# Sessions


def forged(browser, cookie):
    browser.http.cookies.clear()
    browser.http.cookies.set(COOKIE, cookie, domain="127.0.0.1", path="/")
    return browser.api("POST", "/s/eccv-hit/claim", {}).status_code


def test_tampered_cookie_is_rejected(two, small):
    anna, ben, _ = two
    good, other = anna.cookie, ben.cookie
    payload, signature = good.rsplit(".", 1)
    changed_signature = ("B" if signature[0] == "A" else "A") + signature[1:]
    signer = security._signer(small)
    signer.secret_keys = [b"another secret"]
    unsigned = security._signer(small)
    unsigned.salt = b"csrf"
    for cookie in (
        "", "x", "..", good[:-1], f"{payload}.{changed_signature}", payload, f"{payload}.", f"{payload}..{signature}",
        f"{other.rsplit('.', 1)[0]}.{signature}", f"{payload}.{'A' * len(signature)}",
        signer.dumps([1, 0, "ab", NOW]), unsigned.dumps([1, 0, "ab", NOW]), "a" * 4000,
    ):  # fmt: skip
        assert forged(anna, cookie) == 401, cookie
    assert forged(anna, good) == 200


@pytest.mark.parametrize(
    "session",
    [
        [],
        [1],
        [1, 0, "x"],
        [1, 0, "x", NOW, 2],
        {"a": 1},
        "text",
        None,
        7,
        ["1", 0, "x", NOW],
        [[1], 0, "x", NOW],
        [10**30, 0, "x", NOW],
        [1, 0, "x", None],
        [1, 0, "x", "now"],
    ],
)
def test_malformed_session_is_rejected(two, small, session):
    anna = two[0]
    assert forged(anna, security._signer(small).dumps(session)) in (401, 403)


def test_old_session_expires(two, clock):
    anna = two[0]
    assert forged(anna, anna.cookie) == 200
    clock.wait(security.SESSION_DAYS * 24 * 60 + 1)
    assert anna.get("/s/eccv-hit").status_code == 401


@pytest.mark.parametrize("minutes", [0.05, 5, 3 * 24 * 60])
def test_clock_that_is_set_back_logs_nobody_out(two_on_both, campaign, clock, minutes):
    """Every step of a HIT works at a time before the session and the claim began, and the record stays valid."""
    anna = two_on_both[0]
    hit = anna.claim()
    clock.wait(-minutes)
    assert anna.get("/s/eccv-hit").status_code == 200
    assert anna.claim()["claim"] == hit["claim"]
    assert anna.api("PUT", f"/h/{hit['claim']}/draft", {"number": 1, "answers": []}).json()["kept"] is True
    assert anna.submit(hit).json() == {"again": False, "late": False, "counted": True, "passed": None}
    assert anna.claim()["claim"] != hit["claim"]
    boss = Browser(anna.app).enter(campaign, "boss", "owner")
    for page in ("/owner/eccv-hit", "/owner/eccv-hit/people", "/owner/eccv-hit/people/1", f"/owner/eccv-hit/hit/{hit['claim']}"):
        response = boss.get(page)
        assert response.status_code == 200
        assert not re.search(r"[-−][0-9]+ (s|min|h)\b", response.text)  # no negative duration
    verify(campaign)


def test_servers_with_skewed_clocks_share_sessions(two, small):
    """Two servers of one campaign, one of which is ten minutes ahead: people may be sent to either one."""
    ahead = open_campaign(small.folder, lambda: small.now() + 600)
    try:
        here, there = Browser(two[0].app), open_browser(ahead)
        there.join(ahead, two[2], "carla")
        hit = there.claim()
        here.http.cookies, here.csrf = there.http.cookies, there.csrf
        assert here.claim()["claim"] == hit["claim"]
        assert here.submit(hit).json()["counted"] is True
        assert there.claim()["claim"] == here.claim()["claim"] != hit["claim"]
    finally:
        ahead.close()


def test_a_new_invitation_ends_all_sessions_and_the_old_link(small):
    add_small_study(small)
    anna = open_browser(small).enter(small, "anna")
    assert anna.get("/s/eccv-hit").status_code == 200
    old = people.invite(small, "anna")
    new = people.invite(small, "anna")
    assert anna.get("/s/eccv-hit").status_code == 401
    assert anna.post(f"/enter/{old}", {}).status_code == 404
    assert anna.post(f"/enter/{new}", {}).status_code == 303
    assert anna.get("/s/eccv-hit").status_code == 200


def test_a_session_cookie_cannot_be_read_by_scripts_or_sent_by_other_sites(small):
    link = link_of(small, add_small_study(small))
    for secure in (False, True):
        (response,) = open_browser(small, secure=secure).post(f"/join/{link}", {}).headers.get_list("set-cookie")
        parts = [part.strip().lower() for part in response.split(";")]
        assert {"httponly", "samesite=lax", "path=/"} <= set(parts)
        assert ("secure" in parts) is secure
        assert not any(part.startswith("domain") for part in parts)


def test_entering_always_starts_a_new_session(two, small):
    anna, ben, _ = two
    token = people.invite(small, "carla")
    ben.http.cookies.clear()
    ben.http.cookies.set(COOKIE, anna.cookie, domain="127.0.0.1", path="/")  # planted by somebody
    answer = ben.post(f"/enter/{token}", {})
    assert answer.status_code == 303
    assert answer.cookies[COOKIE] != anna.cookie
    assert anna.cookie.split(".")[0] != answer.cookies[COOKIE].split(".")[0]


def test_ended_session_cannot_claim_or_submit(two_on_both, campaign):
    """Whoever gets a new token ends the old sessions: with the very next request, which leaves nothing behind."""
    anna, ben, study = two_on_both
    mine = anna.claim()["claim"]
    for name in ("anna", "ben"):
        people.invite(campaign, name)
    before = verify(campaign)
    assert ben.api("POST", "/s/eccv-hit/claim", {}).status_code == 401
    assert ben.post("/s/eccv-hit/claim", {}).status_code == 401
    assert anna.api("POST", f"/h/{mine}/submit", {"answers": [{"match": "yes"}] * 5}).status_code == 401
    assert verify(campaign) == before
    with campaign.read_transaction() as connection:
        assert connection.execute(select(slot.c.claim).where(slot.c.state != "open")).scalars().all() == [mine]
    assert not read_submissions(campaign, study).answers


def test_ended_session_learns_nothing(two, small):
    """Neither which studies there are, nor whose a HIT is: everywhere the same."""
    anna, ben, _ = two
    mine, theirs = anna.claim()["claim"], ben.claim()["claim"]
    people.invite(small, "anna")
    for name in ("eccv-hit", "nosuch"):
        assert anna.api("POST", f"/s/{name}/claim", {}).status_code == 401
        assert anna.post(f"/s/{name}/claim", {}).status_code == 401
    for claim in (mine, theirs, "f" * 32):
        assert anna.api("POST", f"/h/{claim}/submit", {"answers": []}).status_code == 401


@pytest.mark.parametrize("path", ["/enter/{token}", "/join/{link}", "/join/{link}?PROLIFIC_PID=x"])
def test_link_previews_start_no_session(small, path):
    """Chat programs and mail scanners ask for what is in messages, by GET and by HEAD."""
    link, token = link_of(small, add_small_study(small)), people.invite(small, "anna", "owner")
    visitor = open_browser(small)
    for method in ("GET", "HEAD"):
        answer = visitor.request(method, path.format(link=link, token=token))
        assert answer.status_code == 200
        assert COOKIE not in answer.headers.get("set-cookie", "")  # no session
    with small.read_transaction() as connection:
        assert len(connection.execute(select(person)).all()) == 1


# Forged requests

CHANGES = (("POST", "/api/s/eccv-hit/claim"), ("PUT", "/api/h/{claim}/draft"), ("POST", "/api/h/{claim}/submit"))
FORMS = ("/s/eccv-hit/agree", "/s/eccv-hit/claim")


@pytest.mark.parametrize("token", ["", "x", "0" * 32, "other's", "é", None])
def test_changes_need_the_csrf_token(two, small, token):
    anna, ben, study = two
    mine = anna.claim()["claim"]
    given = ben.csrf if token == "other's" else token
    headers = {} if given is None else {"x-csrf-token": given.encode("latin-1", "replace")}
    for method, path in CHANGES:
        values = {"number": 1, "answers": [{"match": "yes"}] * 5}
        assert anna.request(method, path.format(claim=mine), json=values, headers=headers).status_code == 403, path
    for path in FORMS:
        fields = {} if given is None else {"csrf": given}
        assert anna.request("POST", path, data={**fields, "x": "y"}).status_code == 403
    assert read_submissions(small, study).answers == {}


ELSEWHERE = ({"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:8401"},
{"origin": "http://127.0.0.1"},
             {"origin": "http://[::1"}, {"origin": ""}, {"origin": "http://127.0.0.1:8400.evil.example"},
             {"sec-fetch-site": "cross-site"},
             {"sec-fetch-site": "same-site"})  # fmt: skip


@pytest.mark.parametrize("headers", ELSEWHERE)
def test_cross_site_requests_are_rejected(two, small, headers):
    anna, _, study = two
    mine = anna.claim()["claim"]
    for method, path in CHANGES:
        values = {"number": 1, "answers": [{"match": "yes"}] * 5}
        answer = anna.request(method, path.format(claim=mine), json=values, headers={"x-csrf-token": anna.csrf, **headers})
        assert answer.status_code in (400, 403), (path, answer.text)
    for path in (*FORMS, f"/join/{link_of(small, study)}", f"/enter/{people.invite(small, 'dora')}"):
        stranger = Browser(anna.app)
        stranger.http.cookies = anna.http.cookies
        assert stranger.post(path, {"csrf": anna.csrf}, headers=headers).status_code in (303, 400, 403)
    assert read_submissions(small, study).answers == {}


@pytest.mark.parametrize("headers", [{"origin": BASE_URL}, {"sec-fetch-site": "same-origin"}, {"sec-fetch-site": "none"}, {}])
def test_same_origin_requests_are_accepted(two, headers):
    anna = two[0]
    assert anna.api("POST", "/s/eccv-hit/claim", {}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "", "application/jsonp"]
)
def test_json_needs_the_json_content_type(two, kind):
    anna = two[0]
    answer = anna.request("POST", "/api/s/eccv-hit/claim", content=b"{}", headers={"content-type": kind, "x-csrf-token": anna.csrf})
    assert answer.status_code == 415


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "multipart/form-data; boundary=x"])
def test_forms_need_the_form_content_type(two, kind):
    anna = two[0]
    answer = anna.request("POST", "/s/eccv-hit/claim", content=f"csrf={anna.csrf}".encode(), headers={"content-type": kind})
    assert answer.status_code == 415


# The owner's pages

OWNERS = [(method, route.path) for route in ROUTES if isinstance(route, Route) and route.path.startswith("/owner")
          for method in sorted(route.methods or ())]  # fmt: skip


def test_there_are_pages_for_owners():
    assert len(OWNERS) >= 10


@pytest.mark.parametrize(("method", "path"), OWNERS)
def test_owner_pages_require_the_role(two, small, method, path):
    anna, ben, _ = two
    mine = anna.claim()["claim"]
    anna.submit(anna.api("GET", f"/h/{mine}").json())
    known = {"study": "eccv-hit", "claim": mine, "person": "1", "person:int": "1"}
    where = re.sub(r"{([^}]*)}", lambda name: known[name[1]], path)
    fields = {"verdict": "approve", "was": "", "open": "no", "person": "mallory", "role": "owner"}
    nobody = Browser(anna.app)
    for visitor, status in ((nobody, 401), (ben, 403)):
        more = {"data": {"csrf": visitor.csrf, **fields}} if method == "POST" else {}
        assert visitor.request(method, where, **more).status_code == status
    verify(small)
    with small.read_transaction() as connection:
        assert connection.execute(select(person).where(person.c.key == "mallory")).first() is None


def test_owner_forms_need_the_csrf_token(two, small):
    boss = Browser(two[0].app).enter(small, "boss", "owner")
    for where, fields in (("/owner/eccv-hit/open", {"open": "no"}), ("/owner/invite", {"person": "x", "role": "owner"})):
        for csrf in ("", "0" * 32, two[0].csrf):
            assert boss.post(where, {**fields, "csrf": csrf}).status_code == 403
        assert boss.post(where, fields, headers={"origin": "http://evil.example"}).status_code == 403


def test_reviewer_cannot_invite_or_close(two, small):
    reviewer = Browser(two[0].app).enter(small, "rita", "reviewer")
    assert reviewer.get("/owner/eccv-hit").status_code == 200
    assert reviewer.post("/owner/invite", {"person": "x", "role": "owner"}).status_code == 403
    assert reviewer.post("/owner/eccv-hit/open", {"open": "no"}).status_code == 403
    assert link_of(small, two[2]) not in reviewer.get("/owner/eccv-hit").text


# What is gold


def shape(value, claim):
    """What can be told of a thing without reading it: keys, types, and texts with their signs made equal."""
    if isinstance(value, dict):
        return {key: shape(each, claim) for key, each in value.items()}
    if isinstance(value, list):
        return [shape(each, claim) for each in value]
    if isinstance(value, str):
        return re.sub(r"[0-9]+", "0", value.replace(claim, "CLAIM"))
    return type(value).__name__


def test_gold_looks_like_everything_else(small):
    items = [*pairs(30), *gold(30)]
    alike = [NewItem(item.key, item.images, ("a caption",), gold=item.gold, kind=item.kind) for item in items]
    (small.images_folder / "a.jpg").write_bytes(JPEG)
    create_study(small, design_of(*WITH_GOLD), alike, seed="seed")
    anna = open_browser(small).join(small, 1, "anna")
    for _ in range(3):
        hit = anna.claim()
        assert len({repr(shape(item, hit["claim"])) for item in hit["items"]}) == 1
        assert [item["images"] for item in hit["items"]] == [[f"/h/{hit['claim']}/picture/{n}/0"] for n in range(5)]
        answers = [anna.get(item["images"][0]) for item in hit["items"]]
        assert len({repr(sorted(answer.headers.items())) for answer in answers}) == 1
        response = anna.get(f"/h/{hit['claim']}").text + repr(hit)
        for word in ("gold", "positive", "negative", "pair-", "a.jpg", "seed"):
            assert word not in response, word
        anna.submit(hit, [{"match": "yes"}] * 5)


def test_image_responses_do_not_reveal_file_times(two, small):
    anna = two[0]
    answer = anna.get(anna.claim()["items"][0]["images"][0])
    assert answer.content == JPEG
    assert answer.headers["content-type"] == "image/jpeg"
    assert not {"etag", "last-modified", "content-disposition"} & set(answer.headers)


def test_gold_has_a_random_place_in_a_hit(small):
    study = add_small_study(small, *WITH_GOLD, "recipe.people=60", items=3, gold_per_kind=1)
    app, places = open_browser(small).app, []
    for _ in range(60):
        hit = Browser(app).join(small, study).claim()
        places += [n for n, item in enumerate(hit["items"]) if item["captions"][0].startswith("gold")]
    counts = [places.count(n) for n in range(5)]
    assert min(counts) > 8  # 24 are expected of each


def test_responses_do_not_reveal_gold_outcomes(two):
    anna, ben, _ = two
    recorded = []
    for visitor, wrong in ((anna, False), (ben, True)):
        hit = visitor.claim()
        right = answers_by_caption(hit)
        answers = [{"match": {"yes": "no", "no": "yes"}[one["match"]]} for one in right] if wrong else right
        body = [
            visitor.submit(hit, answers).json(),
            visitor.submit(hit, answers).json(),
            visitor.api("GET", f"/h/{hit['claim']}").json(),
        ]
        page = re.sub(r"[0-9a-f]{32}|[0-9A-F]{10}|anna|ben", "X", visitor.get("/s/eccv-hit").text)
        recorded.append((body[:2], {k: v for k, v in body[2].items() if k not in ("claim", "items", "lease")}, page))
    assert recorded[0] == recorded[1]


# Script in texts


def test_script_in_captions_and_names_is_text(small):
    (small.images_folder / "a.jpg").write_bytes(JPEG)
    items = [NewItem(f"{SCRIPT}-{n}", ("a.jpg",), (SCRIPT,), details={"why": SCRIPT}) for n in range(3)]
    example = NewItem("example", ("a.jpg",), (SCRIPT,), gold={"match": ("yes",)}, kind="example", details={"why": SCRIPT})
    study = create_study(small, design_of("recipe.people=2"), [*items, example])
    app = open_browser(small).app
    anna = Browser(app).join(small, study, SCRIPT)
    hit = anna.claim()
    pages = [
        anna.get(path) for path in ("/", "/s/eccv-hit", f"/h/{hit['claim']}", f"/join/{link_of(small, study)}?person={SCRIPT}")
    ]
    word = SCRIPT.replace("/", "")
    pages += [anna.get(f"/h/{word}"), anna.get(f"/s/{word}"), anna.post(f"/s/{word}/claim", {})]
    anna.submit(hit, [{"match": "yes"}] * 3)
    pages += [anna.post("/s/eccv-hit/claim", {})]
    boss = Browser(app).enter(small, f"boss {SCRIPT}", "owner")
    who = "1"
    pages += [boss.get(path) for path in ("/owner", "/owner/eccv-hit", "/owner/eccv-hit/people", f"/owner/eccv-hit/people/{who}",
              "/owner/eccv-hit/review", f"/owner/eccv-hit/hit/{hit['claim']}", "/owner/eccv-hit/disagreement",
              f"/owner/{word}")]  # fmt: skip
    for page in pages:
        assert page.headers["content-type"].startswith("text/html"), page.url
        for part in ("<script>alert", "<img src=x", 'onerror=alert(2)>"', "49"):
            assert part not in page.text or (part == "49" and "{{7*7}}" in page.text), (page.url, part)
        assert not re.search(r"<script(?![^>]* src=\"/static/)", page.text)  # nothing inline
        bare = re.sub(r"\"[^\"]*\"", "", page.text)  # without what is quoted, as attributes are
        assert not re.search(r"<[^>]+ on[a-z]+=", bare)


def test_json_responses_have_the_json_content_type(two):
    anna = two[0]
    for answer in (
        anna.api("POST", "/s/eccv-hit/claim", {}),
        anna.api("GET", "/h/nosuch"),
        anna.api("POST", "/s/nosuch/claim", {}),
    ):
        assert answer.headers["content-type"] == "application/json"


# Rates


def test_requests_are_rate_limited(small):
    study = add_small_study(small)
    still = RateLimit(1, 5, now=lambda: 0.0)
    anna = open_browser(small, requests=still).join(small, study)
    statuses = [anna.api("POST", "/s/eccv-hit/claim", {}).status_code for _ in range(7)]
    assert set(statuses[:4]) == {200}
    assert statuses[-1] == 429
    assert anna.get("/s/eccv-hit").status_code == 429


ROUTES_WITH_BODY = [
    (method, route.path)
    for route in ROUTES
    if isinstance(route, Route) and not route.path.startswith(("/join", "/enter"))
    for method in sorted(route.methods & {"POST", "PUT"})
]


@pytest.mark.parametrize(("method", "path"), ROUTES_WITH_BODY)
def test_body_is_not_read_before_the_sender_is_known(small, method, path):
    add_small_study(small)
    app, statuses = open_browser(small).app, []
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json"), (b"content-length", b"500000")]

    async def receive():
        raise AssertionError("the body was read")

    async def send(message):
        statuses.append(message.get("status"))

    scope = {"type": "http", "method": method, "path": re.sub("{.*?}", "eccv-hit", path), "query_string": b"", "headers": headers}
    asyncio.run(app(scope, receive, send))
    assert statuses[0] == 401


def test_body_is_not_read_without_the_csrf_token_in_the_header(two):
    anna, _, _ = two
    claim_id = anna.claim()["claim"]
    response = anna.request("POST", f"/api/h/{claim_id}/submit", content=b"not json", headers={"content-type": "application/json"})
    assert response.status_code == 403


def test_ended_session_has_its_own_rate_limit(small):
    """Who was invited again, since somebody else had their link, is not kept from work by the other one."""
    add_small_study(small)
    app = open_browser(small, requests=RateLimit(1, 5, now=lambda: 0.0)).app
    thief = Browser(app).enter(small, "anna")
    anna = Browser(app).enter(small, "anna")
    statuses = [thief.api("POST", "/s/eccv-hit/claim", {}).status_code for _ in range(9)]
    assert statuses == [401] * 5 + [429] * 4
    assert anna.post("/s/eccv-hit/agree", {}).status_code == 303
    assert anna.api("POST", "/s/eccv-hit/claim", {}).status_code == 200


def test_entries_per_address_are_limited(small):
    link = link_of(small, add_small_study(small))
    visitor = open_browser(small, entries=RateLimit(1, 3, now=lambda: 0.0))
    statuses = [Browser(visitor.app).post(f"/join/{link}", {}).status_code for _ in range(4)]
    assert statuses == [303] * 3 + [429]
    tries = [Browser(visitor.app).post(f"/enter/{letter}", {}).status_code for letter in string.ascii_lowercase[:3]]
    assert tries == [429] * 3  # tokens cannot be tried out either
