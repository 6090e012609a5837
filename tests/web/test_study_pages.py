"""The pages of annotators in a real browser: every preset end to end by mouse and by keys, axe and a phone on every page.

Pictures of all pages are kept in the folder that CROSSMATCH_SCREENSHOTS names; look at them.
"""

import pytest

from crossmatch.study.assignment import people

from .studies import PRESETS, answers_by_content, files_by_content, link_of, submissions
from .study_pages import (
    answer_by_keys,
    answer_by_mouse,
    answer_whole_study,
    find_accessibility_violations,
    fits_width,
    is_last,
    leave,
    options,
    tab_to,
)

PHONE = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}


# -- every preset, end to end


@pytest.mark.parametrize("study", PRESETS)
def test_a_study_by_mouse(study, visit, campaign, screenshot_folder):
    page = visit(f"/join/{link_of(campaign, study)}")
    key, files = f"mouse-{study}", files_by_content(campaign)
    page.fill("#person", key)
    page.click("text=Agree and start")
    page.click("button:text-is('Start')")
    page.wait_for_selector(".item")
    meant = answer_whole_study(
        page,
        lambda p, n: answer_by_mouse(p, files, n),
        lambda p: p.click("#next"),
        lambda p: p.click("#submit"),
        screenshot_folder,
        study,
    )
    stored = submissions(campaign, study, key)
    assert [answers_by_content(campaign, one) for one in stored] == meant
    assert all(len(one["seconds"]) == len(one["answers"]) and sum(one["seconds"]) > 0 for one in stored)
    assert page.url.endswith(f"/s/{study}?end=none")
    assert page.locator("#code").inner_text() != ""
    assert page.evaluate("Object.keys(localStorage).filter(key => key.startsWith('crossmatch/'))") == []


@pytest.mark.parametrize("study", PRESETS)
def test_a_study_by_keys_alone(study, visit, campaign):
    page = visit(f"/join/{link_of(campaign, study)}")
    key, files = f"keys-{study}", files_by_content(campaign)
    tab_to(page, "#person")
    page.keyboard.type(key)
    tab_to(page, "main button")
    page.keyboard.press("Enter")
    page.wait_for_url("**/s/*")
    tab_to(page, ".start button")
    page.keyboard.press("Enter")
    page.wait_for_selector(".item")

    def enter(p):
        p.keyboard.press("Enter")

    meant = answer_whole_study(page, lambda p, n: answer_by_keys(p, files, n), enter, enter)
    assert [answers_by_content(campaign, one) for one in submissions(campaign, study, key)] == meant


@pytest.mark.parametrize("study", PRESETS)
def test_a_page_of_work_passes_axe_and_fits_a_phone(study, open_first_hit, screenshot_folder):
    page = open_first_hit(study, **PHONE)
    assert find_accessibility_violations(page) == []
    assert fits_width(page)
    if page.locator(".slider").count():
        page.locator(".slider").tap()
    else:
        options(page).nth(1).tap(position={"x": 20, "y": 20})
    page.screenshot(path=screenshot_folder / f"phone-{study}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 860})
    assert find_accessibility_violations(page) == []
    assert fits_width(page)


# -- the other pages


def check(page, screenshot_folder, name):
    assert find_accessibility_violations(page) == []
    assert fits_width(page)
    page.screenshot(path=screenshot_folder / f"{name}.png", full_page=True)
    page.set_viewport_size({"width": 360, "height": 740})
    assert fits_width(page)
    page.screenshot(path=screenshot_folder / f"phone-{name}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 860})


def test_first_pages_pass_axe_and_fit_a_phone(visit, campaign, screenshot_folder):
    page = visit("/", expected="401|404")
    check(page, screenshot_folder, "home-nobody")
    page.goto(f"/join/{link_of(campaign, 'eccv-hit')}")
    check(page, screenshot_folder, "join")
    page.goto(f"/join/{link_of(campaign, 'eccv-hit')}?PROLIFIC_PID=5f0c")
    assert page.locator("#person").count() == 0
    assert page.get_by_text("You take part as 5f0c").is_visible()
    page.goto("/h/0123")
    assert page.get_by_text("Session expired").is_visible()
    check(page, screenshot_folder, "error")


def test_invited_person_reads_agrees_and_starts(visit, campaign, screenshot_folder):
    token = people.invite(campaign, "anna")
    page = visit(f"/enter/{token}", expected="404")
    check(page, screenshot_folder, "enter")
    page.click("text=Continue")
    page.wait_for_selector(".choices")
    check(page, screenshot_folder, "home")
    page.click(".choices a[href='/s/bison-verify']")
    page.wait_for_selector(".example img")
    assert page.get_by_text("Left image").or_(page.get_by_text("Right image")).count() == 1  # the answer of the example
    check(page, screenshot_folder, "study-agree")
    page.click("text=Agree and start")
    page.wait_for_selector(".start")
    check(page, screenshot_folder, "study")
    page.goto("/s/no-such-study")
    assert page.get_by_text("There is no such study.").or_(page.get_by_text("This study does not exist")).is_visible()


def test_taken_name_is_refused_with_an_explanation(open_first_hit, visit, campaign):
    page = open_first_hit("sts")
    other = visit(f"/join/{link_of(campaign, 'sts')}", expected="409")
    other.fill("#person", page.person_name)
    other.click("text=Agree and start")
    assert "name is already taken" in other.get_by_role("alert").inner_text()
    other.wait_for_load_state()
    assert find_accessibility_violations(other) == []


def test_the_end_shows_what_was_done_and_the_code(open_first_hit, campaign, screenshot_folder):
    page = open_first_hit("sts")
    for _ in range(2):
        page.locator(".slider").click()
        leave(page, lambda: page.click("#submit"))
    assert page.locator("h1").inner_text() == "You are done"
    assert page.get_by_text("2 tasks").is_visible()
    check(page, screenshot_folder, "study-end")
    page.click("text=Look for more tasks")
    page.wait_for_selector("text=Back to")
    assert page.locator("#code").inner_text() != ""
    check(page, screenshot_folder, "finished")


def answer_gold(page, right):
    """Answer the trial questions, whose truth is known by their captions."""
    while True:
        text = page.locator(".caption-text .quote").inner_text()
        page.click(f"text=100% {'YES' if right(text) else 'NO'}")
        if is_last(page):
            return
        page.click("#next")


def test_code_is_shown_after_work_but_not_after_the_quiz(open_first_hit, campaign, screenshot_folder):
    from sqlalchemy import select

    from crossmatch.study.database.schema import item

    with campaign.read_transaction() as connection:
        good = connection.execute(select(item.c.captions).where(item.c.key == "positive")).scalars().first()[0]
    page = open_first_hit("quiz")
    assert page.locator("#where").inner_text() == "Test question 1 of 2"
    answer_gold(page, lambda text: text == good)
    leave(page, lambda: page.click("#submit"))
    assert "The actual task starts now" in page.locator("#status-note").inner_text()
    work = page.url
    page.click("text=Pause")
    page.wait_for_selector("text=Instructions")
    assert page.locator("#code").count() == 0
    page.click("button:text-is('Continue')")
    page.wait_for_selector(".item")
    assert page.url == work
    answer_gold(page, lambda text: True)
    leave(page, lambda: page.click("#submit"))
    assert page.url.endswith("?end=limit")
    link = page.get_by_role("link", name="Finish and submit this code").get_attribute("href")
    assert link == f"https://example.org/done?code={page.locator('#code').inner_text()}"
    check(page, screenshot_folder, "study-limit")


def test_failed_quiz_shows_a_message(open_first_hit):
    page = open_first_hit("quiz")
    answer_gold(page, lambda text: False)
    page.keyboard.press("ArrowLeft")
    leave(page, lambda: page.click("#submit"))
    assert page.url.endswith("?end=qualify")
    assert page.get_by_text("did not pass the test questions").is_visible()
    assert page.locator("#code, .start").count() == 0
