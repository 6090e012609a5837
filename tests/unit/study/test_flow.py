"""The way through a study: coming in when an answer was lost, whose studies one sees, pauses and closing, and the owner's link."""

import os
import stat
from pathlib import Path

import pytest
from sqlalchemy import select

from crossmatch.data.errors import UsageError
from crossmatch.study.assignment import people
from crossmatch.study.assignment.claims import claim_hit, submit
from crossmatch.study.assignment.review import set_open
from crossmatch.study.database.campaign import open_campaign
from crossmatch.study.database.schema import member, person
from crossmatch.study.database.verification import verify
from crossmatch.study.web.security import BROWSER_COOKIE, COOKIE
from study_lab import Clock, add_annotator, add_small_study, answers_to, hit_of, in_parallel, link_of
from study_web import Browser, open_browser


def everybody(campaign):
    with campaign.read_transaction() as connection:
        return connection.execute(select(person.c.key).order_by(person.c.id)).scalars().all()


def agreed(browser, link, name="", query=""):
    """Read the first page and agree."""
    assert browser.get(f"/join/{link}{query}").status_code == 200
    return browser.post(f"/join/{link}{query}", {"person": name})


# A lost reply to "I agree"


@pytest.mark.parametrize(("name", "query"), [("anna", ""), ("", "?PROLIFIC_PID=5f0c"), ("", "")])
def test_repeated_join_form_is_accepted(campaign, name, query):
    link, browser = link_of(campaign, add_small_study(campaign)), open_browser(campaign)
    assert agreed(browser, link, name, query).status_code == 303
    browser.http.cookies.delete(COOKIE)  # it never arrived
    again = agreed(browser, link, name, query)
    assert (again.status_code, again.headers["location"]) == (303, "/s/eccv-hit")
    assert len(everybody(campaign)) == 1
    assert browser.read_csrf().claim()["items"]
    assert verify(campaign)[0].events == 3  # it began, one person agreed, and claimed


def test_name_alone_gives_no_access_from_another_browser(campaign):
    study = add_small_study(campaign)
    first = open_browser(campaign)
    agreed(first, link_of(campaign, study), "anna")
    for entry in ("", "0" * 32, "x", first.http.cookies[BROWSER_COOKIE][:-1]):
        other = Browser(first.app)
        other.http.cookies.set(BROWSER_COOKIE, entry, domain="127.0.0.1", path="/join")
        answer = other.post(f"/join/{link_of(campaign, study)}", {"person": "anna"})
        assert answer.status_code == 409
        assert COOKIE not in answer.headers.get("set-cookie", "")


def test_concurrent_joins_from_one_browser_are_one_person(campaign):
    link = link_of(campaign, add_small_study(campaign))
    outcomes = in_parallel([lambda: people.join_study(campaign, link, "anna", "e" * 32)[1].id] * 6)
    assert len(set(outcomes)) == 1
    assert everybody(campaign) == ["anna"]


def test_two_people_can_join_from_one_browser(small):
    link, browser = link_of(small, add_small_study(small)), open_browser(small)
    for name in ("anna", "ben"):
        assert agreed(browser, link, query=f"?PROLIFIC_PID={name}").status_code == 303
    assert everybody(small) == ["anna", "ben"]


def test_interrupted_join_can_be_completed_in_a_closed_study(small):
    study = add_small_study(small)
    link, browser = link_of(small, study), open_browser(small)
    browser.get(f"/join/{link}")
    people.join_study(small, link, "anna", browser.http.cookies[BROWSER_COOKIE])  # and then the service was killed
    set_open(small, study, False)
    assert browser.post(f"/join/{link}", {"person": "anna"}).status_code == 303
    assert Browser(browser.app).post(f"/join/{link}", {"person": "ben"}).status_code == 409  # nobody new


# Whose studies one sees


def pages(browser, name):
    """What each page of a study answers."""
    response = [browser.get(f"/s/{name}"), browser.get(f"/s/{name}/example/0/0")]
    posted = [browser.post(f"/s/{name}/{what}", {}) for what in ("agree", "claim")]
    return [answer.status_code for answer in (*response, *posted, browser.api("POST", f"/s/{name}/claim", {}))]


def test_people_see_only_joined_studies(small):
    first, _ = add_small_study(small, name="first"), add_small_study(small, name="second")
    anna = open_browser(small).join(small, first, "anna")
    assert "/s/first" in anna.get("/").text
    assert "/s/second" not in anna.get("/").text
    assert pages(anna, "second") == [404] * 5 == pages(anna, "nosuch")
    with small.read_transaction() as connection:
        assert connection.execute(select(member.c.study)).scalars().all() == [first]


def test_people_see_the_studies_that_they_were_invited_to(small):
    for name in ("first", "second", "third"):
        add_small_study(small, name=name)
    app = open_browser(small).app
    for name, studies in (("anna", ["second"]), ("ben", None)):
        browser = Browser(app)
        browser.post(f"/enter/{people.invite(small, name, studies=studies)}", {})
        response = {each for each in ("first", "second", "third") if f"/s/{each}" in browser.get("/").text}
        assert response == set(studies or ("first", "second", "third"))
    people.invite(small, "anna", studies=["third"])  # one more
    with small.read_transaction() as connection:
        assert len(connection.execute(select(member).where(member.c.person == 1)).all()) == 2
    with pytest.raises(UsageError, match="no study 'fourth'"):
        people.invite(small, "carla", studies=["fourth"])


def test_known_person_joins_another_study_by_its_link(small):
    first, second = add_small_study(small, name="first"), add_small_study(small, name="second")
    anna = open_browser(small).join(small, first, "anna")
    link = link_of(small, second)
    page = anna.get(f"/join/{link}")
    assert "You take part as <strong>anna</strong>" in page.text
    assert anna.post(f"/join/{link}", {}, headers={"origin": "http://evil.example"}).status_code == 403
    assert anna.request("POST", f"/join/{link}", data={"csrf": "0" * 32}).status_code == 403
    assert anna.post(f"/join/{link}", {}).headers["location"] == "/s/second"
    assert anna.claim("second")["items"]
    assert everybody(small) == ["anna"]


def test_invited_person_must_still_consent(small):
    add_small_study(small)
    anna = open_browser(small).enter(small, "anna")
    assert "Agree and start" in anna.get("/s/eccv-hit").text
    assert anna.api("POST", "/s/eccv-hit/claim", {}).json()["why"] == "agree"
    anna.post("/s/eccv-hit/agree", {})
    assert anna.claim()["items"]
    verify(small)


# Pauses, and a study that is closed in the meantime


def test_paused_work_can_be_continued(small):
    study = add_small_study(small)
    anna = open_browser(small).join(small, study, "anna")
    assert ">Start<" in anna.get("/s/eccv-hit").text
    anna.claim()
    page = anna.get("/s/eccv-hit").text
    assert ">Continue<" in page
    assert ">Start<" not in page


def test_held_hit_of_a_closed_study_can_be_finished(small):
    study = add_small_study(small, items=9)
    anna = open_browser(small).join(small, study, "anna")
    ben = Browser(anna.app).join(small, study, "ben")
    hit = anna.claim()
    set_open(small, study, False)
    assert "/s/eccv-hit" in anna.get("/").text
    assert "/s/eccv-hit" not in ben.get("/").text
    for query in ("", "?end=closed"):
        page = anna.get(f"/s/eccv-hit{query}").text
        assert "You can still finish the task" in page
        assert ">Continue<" in page
        assert ">Continue<" not in ben.get(f"/s/eccv-hit{query}").text
    assert anna.claim()["claim"] == hit["claim"]
    assert anna.submit(hit).json()["counted"] is True
    assert ">Continue<" not in anna.get("/s/eccv-hit").text
    assert anna.api("POST", "/s/eccv-hit/claim", {}).json()["why"] == "closed"


def test_draft_response_contains_the_lease_end(small, clock):
    anna = open_browser(small).join(small, add_small_study(small), "anna")
    hit = anna.claim()
    clock.wait(30)
    body = anna.api("PUT", f"/h/{hit['claim']}/draft", {"number": 1, "answers": []}).json()
    assert body == {"kept": True, "lease": clock() + 3600}
    assert anna.api("GET", f"/h/{hit['claim']}").json()["lease"] == clock() + 3600


# Reviews on the owner's pages


def test_undo_button_works_until_reassignment(small):
    study = add_small_study(small, items=3)
    anna = open_browser(small).join(small, study, "anna")
    hit = anna.claim()
    anna.submit(hit)
    boss = Browser(anna.app).enter(small, "boss", "owner")
    where = f"/owner/eccv-hit/hit/{hit['claim']}"
    assert "back</button>" not in boss.get(where).text
    response = boss.post(f"{where}/review", {"verdict": "reject", "was": ""}).headers["location"]
    assert ">Undo<" in boss.get(response).text
    assert "Undo “rejected”" in boss.get(where).text
    assert "done=undo" in boss.post(f"{where}/review", {"verdict": "undo", "was": "reject"}).headers["location"]
    assert "The answers count." in boss.get(where).text
    boss.post(f"{where}/review", {"verdict": "reject", "was": ""})
    Browser(anna.app).join(small, study, "ben").claim()
    answer = boss.post(f"{where}/review", {"verdict": "undo", "was": "reject"})
    assert answer.status_code == 409
    assert "gone to another person in the meantime" in answer.text
    verify(small)


def test_reviewer_cannot_review_their_own_hit_on_the_page(small):
    add_small_study(small, "recipe.people=2", items=3, gold_per_kind=1)
    rita = open_browser(small).enter(small, "rita", "reviewer")
    rita.post("/s/eccv-hit/agree", {})
    hit = rita.claim()
    rita.submit(hit, [{"match": "no"} for _ in hit["items"]])
    where = f"/owner/eccv-hit/hit/{hit['claim']}"
    for page in (where, "/owner/eccv-hit/review"):
        assert "another person must review it" in rita.get(page).text
        assert 'value="approve"' not in rita.get(page).text
    assert rita.post(f"{where}/review", {"verdict": "approve", "was": ""}).status_code == 409
    boss = Browser(rita.app).enter(small, "boss", "owner")
    assert 'value="approve"' in boss.get("/owner/eccv-hit/review").text
    assert boss.post(f"{where}/review", {"verdict": "approve", "was": ""}).status_code == 303


# The owner's link


def owner_file(campaign):
    return Path(campaign.folder) / people.OWNER


def test_concurrent_services_print_one_working_owner_link(campaign):
    others = [open_campaign(campaign.folder, Clock()) for _ in range(3)]
    outcomes = in_parallel([lambda item=one: people.owner_token(item) for one in (campaign, *others)])
    assert len(set(outcomes)) == 1
    assert people.find_by_token(campaign, outcomes[0]).role == "owner"
    assert owner_file(campaign).read_text() == outcomes[0]
    assert stat.S_IMODE(os.stat(owner_file(campaign)).st_mode) == 0o600
    for one in others:
        one.close()


@pytest.mark.parametrize("left", ["file", "row", "empty", "nothing"])
def test_killed_service_leaves_no_dead_owner_link(campaign, left):
    token = people.owner_token(campaign)
    before = people.find_by_token(campaign, token)
    if left in ("row", "nothing"):
        owner_file(campaign).unlink()
    if left == "empty":
        owner_file(campaign).write_text("")
    if left == "file":  # it was written, but the database never heard of it
        owner_file(campaign).write_text("x" * 22)
    again = people.owner_token(campaign)
    after = people.find_by_token(campaign, again)
    assert (after.id, after.session_number) == (before.id, before.session_number + 1)
    assert people.owner_token(campaign) == again == owner_file(campaign).read_text()
    assert people.find_by_token(campaign, again).session_number == after.session_number  # nobody is thrown out by another start


def test_an_error_while_the_file_is_written_leaves_the_old_link(campaign, monkeypatch):
    token = people.owner_token(campaign)
    monkeypatch.setattr("crossmatch.data.io.atomic_write.os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        people.invite(campaign, people.OWNER, "owner")
    assert people.find_by_token(campaign, token).role == "owner"
    assert people.owner_token(campaign) == token


def test_an_owner_who_is_invited_again_has_one_link(campaign):
    people.owner_token(campaign)
    token = people.invite(campaign, people.OWNER, "owner")
    assert people.owner_token(campaign) == token


def test_reopened_expired_hit_has_a_new_lease(campaign, clock):
    """Who returns after the lease has the HIT anew, if nobody wanted it."""
    study = add_small_study(campaign, items=3)
    anna = add_annotator(campaign, study)
    mine = claim_hit(campaign, study, anna)
    clock.wait(10_000)
    assert claim_hit(campaign, study, anna) == mine
    clock.wait(59)
    receipt = submit(campaign, mine, anna, answers_to(hit_of(campaign, mine)))
    assert (receipt.is_counted, receipt.is_late) == (True, False)
