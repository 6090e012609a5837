"""The page of work in a real browser: questions, slider, drafts, lost connections, refusals, hostile texts."""

import re

import pytest

from .studies import SCRIPT_TEXT, counted_flags, link_of, submissions
from .study_pages import draft_on_server, find_accessibility_violations, leave, options, wait_for_images, wait_for_page

# -- questions


def test_follow_up_appears_and_disappears_with_the_answer(open_first_hit, campaign):
    page = open_first_hit("eccv-hit")
    reason, error = page.get_by_text("What is wrong?"), page.get_by_text("What does it get wrong?")
    dot = page.locator(".dot").first
    assert not reason.is_visible()
    page.click("text=Partially YES, but")
    assert reason.is_visible()
    assert not error.is_visible()
    assert "answered" not in dot.get_attribute("class").split()
    page.get_by_text("gets something important wrong").click()
    assert error.is_visible()
    assert "answered" not in dot.get_attribute("class").split()
    page.click("text=Colour")
    assert "answered" in dot.get_attribute("class").split()
    page.get_by_text("gets something important wrong").click()  # takes it back, and with it what came after
    assert not error.is_visible()
    page.get_by_text("gets something important wrong").click()
    assert not page.get_by_label("Colour").is_checked()
    page.click("text=100% YES")
    assert not reason.is_visible()
    for _ in range(3):
        page.click("#next")
        assert page.locator("#submit").is_disabled()
        page.click("text=100% NO")
    leave(page, lambda: page.click("#submit"))
    answers = [one["answer"] for one in submissions(campaign, "eccv-hit", page.person_name)[0]["answers"]]
    assert answers == [{"match": "yes"}] + 3 * [{"match": "no"}]


def test_enter_names_missing_answers_and_arrows_skip_them(open_first_hit):
    page = open_first_hit("bison-verify")
    page.keyboard.press("Enter")
    assert page.locator("#where").inner_text() == "Question 1 of 2"
    assert page.locator("#error").inner_text().startswith("Answer the question first")
    page.keyboard.press("ArrowRight")
    assert page.locator("#where").inner_text() == "Question 2 of 2"
    page.keyboard.press("1")
    page.keyboard.press("Enter")  # the end, but something is open: back to it
    assert page.locator("#where").inner_text() == "Question 1 of 2"
    page.locator(".dot").nth(1).click()
    assert page.locator("#where").inner_text() == "Question 2 of 2"
    page.keyboard.press("ArrowLeft")
    assert page.locator("#where").inner_text() == "Question 1 of 2"


def test_options_are_radio_buttons_whose_names_tell_only_the_place(open_first_hit):
    page = open_first_hit("bison-verify")
    assert page.get_by_role("radio").count() == 4
    assert page.get_by_role("group", name="Which image does the sentence describe?").count() == 1
    page.get_by_role("radio", name="Right image").check()
    assert options(page).nth(1).locator("input").is_checked()
    assert [image.get_attribute("alt") for image in page.locator(".item img").all()] == ["Left image", "Right image"]
    assert re.fullmatch(r"/h/[0-9a-f]{32}/picture/\d/\d", page.locator(".item img").first.get_attribute("src"))


def test_pictures_are_large_and_can_be_enlarged(open_first_hit, screenshot_folder):
    page = open_first_hit("sis")
    boxes = [image.bounding_box() for image in page.locator(".item img").all()]
    assert all(box["width"] > 500 and box["height"] > 350 for box in boxes)
    assert abs(boxes[0]["y"] - boxes[1]["y"]) < 1
    page.keyboard.press("e")
    assert page.locator("#viewed-name").inner_text() == "Left image"
    wait_for_images(page, "#viewed")
    assert page.locator("#viewed").bounding_box()["height"] > 600
    page.keyboard.press("ArrowRight")
    assert page.locator("#viewed").get_attribute("src").endswith("/0/1")
    assert find_accessibility_violations(page) == []
    page.screenshot(path=screenshot_folder / "viewer.png")
    page.keyboard.press("Escape")
    assert not page.locator("#viewer").is_visible()
    page.get_by_role("button", name="Enlarge: Right image").click()
    assert page.locator("#viewed-name").inner_text() == "Right image"
    page.click("#viewer-close")
    page.set_viewport_size({"width": 360, "height": 740})
    boxes = [image.bounding_box() for image in page.locator(".item img").all()]
    assert boxes[1]["y"] > boxes[0]["y"] + boxes[0]["height"]
    assert boxes[0]["width"] > 300


def test_help_lists_the_keys(open_first_hit, screenshot_folder):
    page = open_first_hit("eccv-hit")
    page.keyboard.press("?")
    assert page.locator("#help kbd", has_text="Enter").is_visible()
    assert page.locator("#help").get_by_text("reserved for you until").is_visible()
    assert find_accessibility_violations(page) == []
    page.screenshot(path=screenshot_folder / "help.png")
    page.keyboard.press("1")  # keys do nothing behind it
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    assert page.locator(".option.chosen").count() == 0


# -- the slider


def accent(page):
    """How much of the slider has the colour of its thumb."""
    import io

    from PIL import Image

    box = page.locator(".slider").bounding_box()
    image = Image.open(io.BytesIO(page.screenshot(clip=box))).convert("RGB")
    return sum(n for n, colour in image.getcolors(1 << 20) if colour == (29, 78, 216))


@pytest.mark.parametrize("study", ["sts", "sis", "sits"])
def test_slider_has_no_initial_value_and_shows_no_number(study, open_first_hit):
    page = open_first_hit(study)
    slider = page.locator(".slider")
    assert accent(page) == 0
    assert slider.get_attribute("aria-valuetext") == "not answered yet"
    assert page.locator("#submit").is_disabled()
    recorded = []
    for share in (0.02, 0.31, 0.5, 0.72, 0.98):
        box = slider.bounding_box()
        page.mouse.click(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        recorded.append(slider.get_attribute("aria-valuetext"))
        assert not re.search(r"\d", page.locator(".item").inner_text() + recorded[-1])
    wait_for_page(page, lambda: accent(page) > 100)
    assert slider.get_attribute("title") is None
    assert len(set(recorded)) == 5
    assert recorded[0] in ("different", "not at all")
    assert recorded[2].startswith("between ")


def test_a_press_in_the_very_middle_is_an_answer_too(open_first_hit, campaign):
    page = open_first_hit("sts")
    box = page.locator(".slider").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    leave(page, lambda: page.click("#submit"))
    assert submissions(campaign, "sts", page.person_name)[0]["answers"][0]["answer"]["similarity"] == pytest.approx(2.5, abs=0.02)


def test_slider_keys_start_at_an_end_and_move_in_small_steps(open_first_hit):
    page = open_first_hit("sts")

    def value():
        page.wait_for_selector("#saved:text-is('Saved')")
        return draft_on_server(page)[0]["similarity"]

    page.keyboard.press("a")
    page.keyboard.press("ArrowRight")
    assert value() == 0.0
    page.keyboard.press("ArrowRight")
    page.keyboard.press("PageUp")
    assert value() == pytest.approx(0.51)
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")
    assert value() == pytest.approx(4.99)


def test_anchor_hint_is_shown_on_hover_and_focus(open_first_hit):
    page = open_first_hit("sts")
    criterion, anchor = page.locator(".criterion"), page.get_by_role("button", name="mostly the same")
    assert "only unimportant details differ" not in criterion.inner_text()
    anchor.hover()
    assert "only unimportant details differ" in criterion.inner_text()
    page.locator("#where").hover()
    assert "only unimportant details differ" not in criterion.inner_text()
    anchor.focus()
    assert "only unimportant details differ" in criterion.inner_text()
    assert page.locator("#submit").is_disabled()  # to look is not to answer


# -- drafts and connections


def test_a_draft_survives_a_reload_from_here_and_from_the_server(open_first_hit):
    page = open_first_hit("bison-verify")
    options(page).nth(1).click()
    page.wait_for_selector("#saved:text-is('Saved')")
    page.reload()
    assert options(page).nth(1).locator("input").is_checked()
    page.evaluate("localStorage.clear()")
    page.goto(page.url)
    page.evaluate("localStorage.clear()")
    page.goto(page.url)
    page.keyboard.press("ArrowLeft")
    assert options(page).nth(1).locator("input").is_checked()


CHANGE = """by => {
  const key = Object.keys(localStorage)[0], told = JSON.parse(localStorage[key]);
  const answers = [{which: by > 0 ? "both" : "neither"}, {}];
  localStorage[key] = JSON.stringify({...told, number: told.number + by, answers});
}"""


def test_the_newest_of_both_drafts_counts(open_first_hit):
    page = open_first_hit("bison-verify")
    work = page.url
    options(page).nth(1).click()
    page.wait_for_selector("#saved:text-is('Saved')")
    for by, seen in ((5, {"which": "both"}), (-9, {"which": "both"})):  # newer here, then newer there
        page.goto("/")
        page.evaluate(CHANGE, by)
        page.goto(work)
        assert options(page).nth(2).locator("input").is_checked()
        if by > 0:
            page.wait_for_selector("#saved:text-is('Saved')")
        assert draft_on_server(page)[0] == seen


def test_a_lost_connection_loses_nothing(open_first_hit, campaign):
    page = open_first_hit("caption-detail", expected="ERR_INTERNET_DISCONNECTED")
    page.context.set_offline(True)
    page.keyboard.press("3")
    page.wait_for_selector("#status-note:visible")
    assert "Not connected. Your answers are stored" in page.locator("#status-note").inner_text()
    page.context.set_offline(False)
    page.wait_for_selector("#status-note", state="hidden")
    assert draft_on_server(page)[0] == {"detail": "3"}
    page.keyboard.press("Enter")
    page.keyboard.press("5")
    page.context.set_offline(True)
    page.click("#submit")
    page.wait_for_selector("#status-note:visible")
    assert page.locator("#submit").is_disabled()
    assert page.locator("#submit").inner_text() == "Sending …"
    leave(page, lambda: page.context.set_offline(False))
    stored = submissions(campaign, "caption-detail", page.person_name)
    assert [one["answer"] for one in stored[0]["answers"]] == [{"detail": "3"}, {"detail": "5"}]
    assert len(stored) == 1


def test_lost_acknowledgement_causes_no_second_answer(open_first_hit, campaign):
    page = open_first_hit("sts", expected="Failed to load resource")
    lost = []

    def lose(route):
        if lost:
            return route.continue_()
        lost.append(route.fetch().json())  # the server has it; the browser never hears of it
        return route.abort()

    page.route("**/submit", lose)
    page.locator(".slider").click()
    leave(page, lambda: page.click("#submit"))
    assert lost[0]["again"] is False
    assert len(submissions(campaign, "sts", page.person_name)) == 1


def test_a_double_submit_is_one_answer(open_first_hit, campaign):
    page = open_first_hit("sts")
    claim = page.url.rpartition("/")[2]
    twin = page.context.new_page()
    twin.goto(page.url)
    for each in (page, twin):
        each.locator(".slider").click()
    leave(page, lambda: page.dblclick("#submit"))
    leave(twin, lambda: twin.click("#submit"))
    assert len(submissions(campaign, "sts", page.person_name)) == 1
    assert counted_flags(campaign, page.person_name) == [True]
    assert claim not in page.url
    assert page.url == twin.url  # both have the next one


def refusing(status):
    return lambda route: route.fulfill(status=status, json={"error": f"the reason is {status}."})


def test_refusal_shows_the_server_message_and_keeps_the_answers(open_first_hit):
    page = open_first_hit("sts", expected="Failed to load resource")
    page.locator(".slider").click()
    for status in (403, 404, 409, 422):
        page.route("**/submit", refusing(status))
        page.click("#submit")
        page.wait_for_selector(f"#error:text-is('The reason is {status}.')")
        page.wait_for_selector("#submit:enabled")
        page.unroute("**/submit")
    page.context.clear_cookies()
    page.click("#submit")
    page.wait_for_selector("#error:has-text('Your session has expired.')")
    assert page.locator(".slider.unused").count() == 0


# -- hostile texts


def test_script_in_texts_is_text(visit, campaign, server_url):
    page = visit(f"/join/{link_of(campaign, 'hostile')}", expected="Content Security Policy|404")  # 404: the image of this test
    assert page.locator("h1").inner_text() == SCRIPT_TEXT
    assert page.title() == SCRIPT_TEXT
    page.click("text=Agree and start")
    assert page.locator(".example .quote").inner_text() == SCRIPT_TEXT
    page.click("button:text-is('Start')")
    page.wait_for_selector(".item")
    assert page.locator(".words", has_text="onerror").inner_text() == SCRIPT_TEXT
    assert page.title() == SCRIPT_TEXT
    assert page.locator("img[src='x'], [onerror], script:not([src])").count() == 0
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 1'}))")
    page.evaluate("""new Promise(done => {
        document.body.insertAdjacentHTML('beforeend', '<img src=/static/none onerror="window.hacked = 2">');
        document.body.lastElementChild.addEventListener('error', done);  // called after the attribute's, if that were allowed
    })""")
    assert page.evaluate("window.hacked") is None
    wait_for_page(page, lambda: any("Content Security Policy" in text for text in page.console_messages))


def test_no_page_has_inline_script_or_style(visit, campaign, server_url):
    page = visit("/")
    for path in ("/", "/enter/x", f"/join/{link_of(campaign, 'eccv-hit')}"):
        text = page.request.get(path).text()
        assert not re.search(r"<script(?![^>]*\ssrc=)|\sstyle=|<style|\son\w+=|javascript:", text)
