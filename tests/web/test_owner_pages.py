"""The pages of owners and reviewers: who may see and do what, reviews, hostile names, and how it looks in a browser."""

import os
import re
from contextlib import suppress

import numpy as np
import pytest
from sqlalchemy import select

from crossmatch.study.assignment import claims, people
from crossmatch.study.database.schema import claim, slot, study
from crossmatch.study.database.verification import verify
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.new_items import NewItem
from crossmatch.study.results.statistics_cache import StatisticsCache
from crossmatch.study.web.app import make_app
from crossmatch.study.web.site import Site
from polling import LIMIT
from study_lab import Clock, add_annotator, add_small_study, answers_to, disable_sync, hit_of, new_campaign, submit_hit

from .conftest import record_messages
from .studies import SCRIPT_TEXT, chromium, make_screenshot_folder, run_server
from .study_pages import broken_words, wait_for_images, wait_for_page

HOME = "http://127.0.0.1:8400"
PAGES = ("", "/people", "/people/{person}", "/review", "/hit/{claim}", "/disagreement")
FORMS = ("/owner/invite", "/owner/{study}/open", "/owner/{study}/hit/{claim}/review")


# -- a campaign, and people who come in


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def campaign(tmp_path, clock):
    with new_campaign(tmp_path / "campaign", "", clock) as created:
        disable_sync(created)
        yield created


@pytest.fixture
def enter(campaign):
    """Comes in as somebody of a role, or as nobody."""
    from starlette.testclient import TestClient

    app = make_app(campaign, site=Site(campaign, statistics=StatisticsCache(max_wait=60)))

    def entered(role="", key=""):
        client = TestClient(app, base_url=HOME, raise_server_exceptions=False)
        if role:
            token = people.invite(campaign, key or role, role)
            assert client.post(f"/enter/{token}", follow_redirects=False).status_code == 303
        return client

    return entered


@pytest.fixture
def doubtful(campaign):
    """A study of two HITs by two people each; in one of them somebody answered gold wrong. The study, the person, the claim."""
    study_id = add_small_study(campaign, "recipe.people=2", "recipe.pay=2", "recipe.fee=0.18", gold_per_kind=2, name="pairs")
    who = add_annotator(campaign, study_id, "anna")
    made = submit_hit(campaign, study_id, who, wrong=True)
    submit_hit(campaign, study_id, add_annotator(campaign, study_id, "bert"), match="no")
    return study_id, who, made


def csrf_of(page):
    return re.search(r'<meta name="csrf" content="([0-9a-f]+)">', page.text)[1]


def post(client, address, token=None, headers=None, **fields):
    response = csrf_of(client.get("/owner")) if token is None else token
    return client.post(address, data={"csrf": response, **fields}, headers=headers or {}, follow_redirects=False)


def states(campaign):
    with campaign.read_transaction() as connection:
        return sorted(connection.execute(select(slot.c.state)).scalars())


def verdict_of(campaign, claim_id):
    with campaign.read_transaction() as connection:
        row = connection.execute(select(claim).where(claim.c.id == claim_id)).one()
    return row.verdict, row.counted


def addresses(doubtful):
    _, who, made = doubtful
    return ["/owner", *(f"/owner/pairs{page}".format(person=who, claim=made) for page in PAGES)]


# -- who may


def test_owner_pages_are_hidden_from_annotators(enter, doubtful):
    stranger, annotator = enter(), enter("annotator", "anna")
    for address in addresses(doubtful):
        assert stranger.get(address).status_code == 401
        assert annotator.get(address).status_code == 403


def test_owners_and_reviewers_see_all_pages(enter, doubtful):
    for role in ("owner", "reviewer"):
        client = enter(role)
        for address in addresses(doubtful):
            assert client.get(address).status_code == 200, address


def test_only_owners_see_links_and_buttons_that_open(enter, doubtful):
    owner, reviewer = (enter(role).get("/owner/pairs").text for role in ("owner", "reviewer"))
    assert f"{HOME}/join/" in owner
    assert "Close the study" in owner
    assert "/join/" not in reviewer
    assert "Close the study" not in reviewer
    assert "Invite" in enter("owner").get("/owner").text
    assert "Invite" not in enter("reviewer").get("/owner").text


def test_forms_require_the_role(campaign, enter, doubtful):
    _, _, made = doubtful
    fields = {"verdict": "approve", "was": "", "open": "no", "person": "eve", "role": "owner"}
    for address in (form.format(study="pairs", claim=made) for form in FORMS):
        assert post(enter(), address, token="0" * 32, **fields).status_code == 401
        assert post(enter("annotator", "eve"), address, token="0" * 32, **fields).status_code == 403
        owner = enter("owner")
        assert post(owner, address, token="0" * 32, **fields).status_code == 403
        assert post(owner, address, headers={"origin": "http://elsewhere.example"}, **fields).status_code == 403
        assert owner.get(address).status_code in (404, 405)
        assert owner.post(address, json={}).status_code == 415
    reviewer = enter("reviewer")
    for address in FORMS[:2]:
        assert post(reviewer, address.format(study="pairs"), **fields).status_code == 403
    assert verdict_of(campaign, made) == (None, True)
    with campaign.read_transaction() as connection:
        assert connection.execute(select(study.c.open)).scalar()


# -- reviews


def test_a_doubtful_hit_is_listed_and_shown_with_what_was_expected(campaign, enter, doubtful):
    _, _, made = doubtful
    reviewer = enter("reviewer")
    listed = reviewer.get("/owner/pairs/review").text
    assert f"/owner/pairs/hit/{made}" in listed
    assert ">anna<" in listed
    assert ">bert<" not in listed
    shown = reviewer.get(f"/owner/pairs/hit/{made}").text
    assert shown.count("gold, wrong") == 2
    assert "expected: 100% YES" in shown
    assert "expected: 100% NO" in shown
    places = [shown.index(f'src="/h/{made}/picture/{n}/0"') for n in range(5)]
    assert places == sorted(places)
    captions = [item.captions[0] for item in hit_of(campaign, made).items]
    assert [captions.index(text) for text in re.findall(r'<p class="caption-text" dir="auto">(.*?)</p>', shown)] == [0, 1, 2, 3, 4]
    assert reviewer.get(f"/h/{made}/picture/0/0").status_code == 200


@pytest.mark.parametrize(
    ("verdict", "after", "counted", "says"),
    [
        ("approve", ["done", "done", "open", "open"], True, "Approved"),
        ("reject", ["done", "open", "open", "open"], False, "Rejected"),
        ("reassign", ["done", "open", "open", "open"], False, "Reassigned"),
    ],
)
def test_a_verdict_counts_or_opens_the_hit_again(campaign, enter, doubtful, verdict, after, counted, says):
    study_id, _, made = doubtful
    reviewer = enter("reviewer")
    assert states(campaign) == ["done", "open", "open", "review"]
    assert "3 answers that count" in reviewer.get("/owner/pairs").text  # of bert alone
    answer = post(reviewer, f"/owner/pairs/hit/{made}/review", verdict=verdict, was="")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/owner/pairs/review?done={verdict}&claim={made}")
    assert says in reviewer.get(answer.headers["location"]).text
    assert states(campaign) == after
    assert verdict_of(campaign, made) == (verdict, counted)
    overview = reviewer.get("/owner/pairs").text
    assert f"{6 if counted else 3} answers that count" in overview
    paid = {"approve": 2, "reject": 1, "reassign": 2}[verdict]
    assert f"{2.36 * paid:.2f} USD" in overview
    another = add_annotator(campaign, study_id, "cleo")
    handed_out = hit_of(campaign, submit_hit(campaign, study_id, another)).hit_id
    assert (handed_out == hit_of(campaign, made).hit_id) is (not counted)
    verify(campaign)


def test_two_reviewers_do_not_overrule_each_other_unseen(campaign, enter, doubtful):
    study_id, _, made = doubtful
    first, second = enter("reviewer", "rita"), enter("reviewer", "rolf")
    assert post(first, f"/owner/pairs/hit/{made}/review", verdict="approve", was="").status_code == 303
    assert post(second, f"/owner/pairs/hit/{made}/review", verdict="reject", was="").status_code == 409
    assert verdict_of(campaign, made) == ("approve", True)
    assert post(second, f"/owner/pairs/hit/{made}/review", verdict="reject", was="approve").status_code == 303
    assert verdict_of(campaign, made) == ("reject", False)
    back = post(first, f"/owner/pairs/hit/{made}/review", verdict="approve", was="reject")
    assert "done=approve" in back.headers["location"]  # its slot was still open
    assert verdict_of(campaign, made) == ("approve", True)
    post(first, f"/owner/pairs/hit/{made}/review", verdict="reject", was="approve")
    for name in ("cleo", "dora"):
        submit_hit(campaign, study_id, add_annotator(campaign, study_id, name))
    kept = post(first, f"/owner/pairs/hit/{made}/review", verdict="approve", was="reject")
    assert "done=kept" in kept.headers["location"]  # others have the HIT
    assert verdict_of(campaign, made) == ("approve", False)


def test_unknown_verdict_is_refused(campaign, enter, doubtful):
    _, who, made = doubtful
    other = add_small_study(campaign, name="other")
    claim_id = claims.claim_hit(campaign, other, add_annotator(campaign, other, "dora"))
    owner = enter("owner")
    address = f"/owner/pairs/hit/{made}/review"
    assert post(owner, address, verdict="praise", was="").status_code == 422
    assert post(owner, address, verdict="approve").status_code == 409
    assert post(owner, f"/owner/other/hit/{made}/review", verdict="approve", was="").status_code == 404
    assert post(owner, f"/owner/other/hit/{claim_id}/review", verdict="approve", was="").status_code == 404  # not submitted yet
    assert owner.get(f"/owner/other/hit/{claim_id}").status_code == 200
    assert owner.get(f"/owner/other/hit/{made}").status_code == 404
    assert owner.get("/owner/nothing").status_code == 404
    assert owner.get(f"/owner/other/people/{who}").status_code == 404
    assert owner.get(f"/owner/pairs/people/{10**30}").status_code == 404
    assert verdict_of(campaign, made) == (None, True)


def test_pages_that_are_not_there_are_the_nearest(enter, doubtful):
    owner = enter("owner")
    for page in ("0", "-1", "99999999999999999999", "x", "²", ""):
        for where in ("people", "review", "disagreement"):
            assert owner.get(f"/owner/pairs/{where}", params={"page": page}).status_code == 200


# -- opening, closing, inviting


def test_closed_study_assigns_nothing_until_reopened(campaign, enter, doubtful):
    study_id, who, _ = doubtful
    owner = enter("owner")
    assert post(owner, "/owner/pairs/open", open="maybe").status_code == 422
    assert post(owner, "/owner/pairs/open", open="no").headers["location"] == "/owner/pairs"
    with pytest.raises(claims.NoHitAvailableError) as error:
        claims.claim_hit(campaign, study_id, who)
    assert error.value.reason == "closed"
    assert "Open the study" in owner.get("/owner/pairs").text
    assert post(owner, "/owner/pairs/open", open="yes").status_code == 303
    assert claims.claim_hit(campaign, study_id, who)
    verify(campaign)


def test_an_invited_person_enters_by_the_link_that_is_shown_once(campaign, enter, doubtful):
    owner = enter("owner")
    page = post(owner, "/owner/invite", person=" rita ", role="reviewer")
    link = re.search(rf"{HOME}(/enter/[\w-]+)", page.text)[1]
    rita = enter()
    assert rita.post(link, follow_redirects=False).status_code == 303
    assert rita.get("/owner").status_code == 200
    assert "rita" in rita.get("/owner").text
    assert post(owner, "/owner/invite", person="x", role="king").status_code == 422
    assert post(owner, "/owner/invite", person="", role="owner").status_code == 422
    assert post(owner, "/owner/invite", person="owner", role="owner").status_code == 409  # would end this session
    assert owner.get("/owner").status_code == 200


# -- numbers that are not there yet


def test_study_without_answers_explains_empty_sections(campaign, enter):
    add_small_study(campaign, "recipe.people=2", name="pairs")
    owner = enter("owner")
    text = owner.get("/owner/pairs").text
    assert "Not defined: there are no answers yet." in text
    assert "No counted HIT has been submitted yet." in text
    assert "nan" not in text.lower()
    assert "Nothing has been submitted yet" in owner.get("/owner/pairs/people").text
    assert "No item has different answers" in owner.get("/owner/pairs/disagreement").text
    assert "No HIT awaits review" in owner.get("/owner/pairs/review").text


def test_campaign_without_studies_explains_how_to_create_one(enter):
    assert "There is no study yet" in enter("owner").get("/owner").text


# -- in a browser


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """Three studies in full swing: choices with gold and hostile texts, two pictures in random order, and a slider."""
    from PIL import Image

    clock, rng = Clock(), np.random.default_rng(0)
    with new_campaign(tmp_path_factory.mktemp("owner") / "campaign", "", clock) as campaign:
        disable_sync(campaign)
        add_small_study(campaign, "recipe.people=3", "recipe.pay=1.4", items=15, gold_per_kind=8, name="pairs")
        two = [NewItem(f"x{n}", ("a.jpg", "b.jpg"), (SCRIPT_TEXT,)) for n in range(20)]
        create_study(campaign, load_design("bison-verify"), two, seed="seed")
        alike = [NewItem(f"s{n}", (), (SCRIPT_TEXT, f"caption {n}")) for n in range(6)]
        create_study(campaign, load_design("sts", ["recipe.people=3"]), alike)
        for n, name in enumerate(("a.jpg", "b.jpg")):
            Image.new("RGB", (80, 60), (200 * n, 90, 120)).save(campaign.images_folder / name)
        for study_id in (1, 2, 3):
            crowd = [add_annotator(campaign, study_id, f"{name} {study_id}") for name in (SCRIPT_TEXT, "anna", "bert", "lazy")]
            for who in crowd * 4:
                with suppress(claims.NoHitAvailableError):
                    answer(campaign, clock, rng, study_id, who, lazy=who == crowd[3])
        yield campaign


def answer(campaign, clock, rng, study_id, who, lazy):
    claim_id = claims.claim_hit(campaign, study_id, who)
    clock.wait(0.05 if lazy else 1 + rng.random())
    hit = hit_of(campaign, claim_id)
    if study_id == 1:
        answers = answers_to(hit, match=("yes", "no")[rng.integers(2)], wrong=lazy)
    elif study_id == 2:
        answers = [{"which": "image-0" if lazy else ("image-0", "image-1", "both", "neither")[rng.integers(4)]} for _ in hit.items]
    else:
        answers = [{"similarity": 2.5 if lazy else float(rng.uniform(0, 5))} for _ in hit.items]
    claims.submit(campaign, claim_id, who, answers, [float(rng.gamma(4, 2)) for _ in answers])


@pytest.fixture(scope="module")
def save_screenshot(tmp_path_factory):
    """Saves a screenshot of a page, if CROSSMATCH_SCREENSHOTS names a folder."""
    folder = make_screenshot_folder(tmp_path_factory) if os.environ.get("CROSSMATCH_SCREENSHOTS") else None
    return lambda page, name: folder and page.screenshot(path=folder / f"owner-{name}.png", full_page=True)


@pytest.fixture(scope="module")
def visit(crowded):
    """Opens a page of the owner. At the end, no page has sent requests elsewhere or logged messages."""
    token = people.invite(crowded, "olga", "owner")
    with run_server(crowded) as server_url, chromium() as chrome:
        page = chrome.new_context(base_url=server_url).new_page()
        page.set_default_timeout(1000 * LIMIT)
        record_messages(page)
        page.goto(f"/enter/{token}")
        page.locator("main button").first.click()
        page.wait_for_url("**/owner")

        def opened(path, width=1280):
            page.set_viewport_size({"width": width, "height": 860})

            def has_figures():
                page.goto(path)
                return not page.locator("[data-soon]").count()  # else they are still being made

            wait_for_page(page, has_figures)
            return page

        yield opened
        assert page.console_messages == []
        assert [url for url in page.requests if not url.startswith(server_url)] == []


def looked_at(crowded):
    """Pages of the owner, by name."""
    with crowded.read_transaction() as connection:
        doubt = connection.execute(select(claim).where(claim.c.doubt)).first()
        sides = connection.execute(select(claim.c.id).where(claim.c.study == 2, claim.c.submitted.is_not(None))).scalar()
    pages = {"all": "/owner", "doubt": f"/owner/pairs/hit/{doubt.id}", "person": f"/owner/pairs/people/{doubt.person}"}
    pages |= {
        f"pairs-{page or 'overview'}": f"/owner/pairs/{page}".rstrip("/") for page in ("", "people", "review", "disagreement")
    }
    pages |= {"sides": "/owner/bison-verify", "sides-hit": f"/owner/bison-verify/hit/{sides}"}
    pages |= {"sides-disagreement": "/owner/bison-verify/disagreement", "slider-people": "/owner/sts/people"}
    return pages | {"slider": "/owner/sts", "slider-disagreement": "/owner/sts/disagreement"}


@pytest.mark.slow
def test_every_page_passes_axe_and_fits_a_phone(crowded, visit, save_screenshot):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for name, address in looked_at(crowded).items():
        page = visit(address)
        save_screenshot(page, name)
        wrong = [(one["id"], one["nodes"][0]["html"]) for one in axe.run(page).response["violations"]]
        assert (name, wrong) == (name, [])
        page = visit(address, width=360)
        save_screenshot(page, f"{name}-phone")
        assert (name, page.evaluate("document.documentElement.scrollWidth")) == (name, 360)
        assert page.title() not in ("1", "2"), "a text was taken for markup"


def test_names_in_the_table_of_people_are_not_broken(visit):
    page = visit("/owner/pairs/people", width=1200)
    rename = "cells => cells.forEach(cell => { cell.textContent = 'Maximiliane Featherstonehaugh-Wriothesley' })"
    page.locator("tbody th").evaluate_all(rename)
    assert broken_words(page) == []


def test_texts_are_text_never_markup(crowded, visit):
    page = visit("/owner/pairs/people")
    assert page.locator("tbody th", has_text="<script>").count() == 1
    assert page.locator("main img, main script").count() == 0
    page = visit("/owner/bison-verify/disagreement")
    assert page.locator(".caption-text", has_text="onerror=").count() > 0
    assert page.locator("main script").count() == 0
    page.locator("main img").evaluate_all("images => images.forEach(image => { image.loading = 'eager' })")  # else only if in view
    wait_for_images(page, "main img")
    assert set(page.locator("main img").evaluate_all("images => images.map(image => image.naturalWidth)")) == {80}


def test_people_with_warnings_come_first_and_tables_sort(crowded, visit):
    page = visit("/owner/pairs/people")
    assert page.locator("tbody tr").first.inner_text().startswith("lazy")
    assert "wrong gold" in page.locator("tbody tr").first.inner_text()
    header = page.locator("thead th", has_text="Time per item")
    for order, sign in (("descending", -1), ("ascending", 1)):
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == order
        values = page.locator("tbody tr td:nth-child(7)").evaluate_all("all => all.map(one => Number(one.dataset.value))")
        assert values == sorted(values, key=lambda value: sign * value)
    page.locator("thead th", has_text="Person").locator("button").focus()
    for order in ("descending", "ascending"):
        page.keyboard.press("Enter")
        names = page.locator("tbody th a").all_inner_texts()
        assert names == sorted(names, reverse=order == "descending")


def test_a_reviewer_rejects_by_pressing_a_button(crowded, visit):
    page = visit("/owner/pairs/review")
    before = page.locator(".reviews li").count()
    assert before > 0
    page.locator(".reviews li").first.get_by_role("button", name="Reject").click()
    page.wait_for_url("**/review?done=reject*")
    assert "Rejected" in page.locator(".note").first.inner_text()
    assert page.locator(".reviews li").count() == before - 1
    page.get_by_role("button", name="Undo").click()
    page.wait_for_url("**/review?done=undo*")
    assert "Undone" in page.locator(".note").first.inner_text()
    assert page.locator(".reviews li").count() == before
